//! The part of a process's page about a recorded step: the memory of each module, and the variables
//! that keep results.

use super::Writer;
use crate::output::labels::tensors;
use crate::protocol::snapshot::{ModuleMemory, ProbeAnswer};

/// The most modules of a device on the page.
const MOST_ROWS: usize = 16;

pub(super) fn describe(writer: &mut Writer, name: &str, answer: &ProbeAnswer) {
    if answer.modules.is_empty() {
        writer.field(name, "no module allocated memory of a GPU in this step");
    }
    let mut label = name;
    for memory in &answer.modules {
        writer.field(std::mem::take(&mut label), tensors::peak_of_step(memory));
        describe_rows(writer, memory);
    }
    for kept in &answer.kept {
        writer.field(&kept.bytes.to_string(), tensors::kept_result(kept));
    }
}

fn describe_rows(writer: &mut Writer, memory: &ModuleMemory) {
    for row in memory.rows.iter().take(MOST_ROWS) {
        let kind = row.kind.as_ref().filter(|kind| **kind != row.path);
        let kind = kind.map_or_else(String::new, |kind| format!(" ({kind})"));
        let calls = row
            .calls
            .filter(|calls| *calls > 1)
            .map_or_else(String::new, |calls| format!(", {calls} calls"));
        let words = format!("{}{kind}{calls}, {} at the peak", row.path, row.peak);
        writer.field(&row.activations.to_string(), words);
    }
    let unlisted = memory.rows.len().saturating_sub(MOST_ROWS) as u64;
    let left_out = memory.rows_left_out.into_iter().sum::<u64>();
    let unlisted = unlisted.saturating_add(left_out);
    if unlisted > 0 {
        let words = format!("and {unlisted} more modules: gputop tensors PID --modules");
        writer.field("", words);
    }
}
