//! `gputop tensors PID --modules`: the memory of one recorded step by module.

use std::process::ExitCode;

use serde_json::json;

use super::{TensorsArgs, print_refusal};
use crate::base::terminal;
use crate::base::text::Text;
use crate::output::labels::tensors;
use crate::output::table::{self, Heading};
use crate::output::{self, Exit};
use crate::protocol::snapshot::{ModuleMemory, ProbeAnswer, ProbeReport, Process};

const COLUMNS: [Heading; 5] = [
    ("ACTIVATIONS", true),
    ("AT PEAK", true),
    ("CALLS", true),
    ("MODULE", false),
    ("CLASS", false),
];

/// Prints the memory by module in the answer of a report, or `why` there is none.
///
/// # Errors
///
/// When the standard output cannot be written.
pub(super) fn print(
    args: &TensorsArgs,
    process: &Process,
    report: ProbeReport,
    why: Option<Text>,
) -> anyhow::Result<ExitCode> {
    let answer = report.answer.filter(|_| why.is_none());
    let Some(mut answer) = answer else {
        return Ok(print_refusal(process, "record a step", why));
    };
    for memory in &mut answer.modules {
        memory.rows.retain(|row| args.is_wanted(row.path.as_str()));
    }
    if args.output.json {
        output::print_json(&json!({
            "pid": process.id.pid, "start_ticks": process.id.start_ticks, "command": table::command(process),
            "modules": answer.modules, "kept": answer.kept,
        }))?;
    } else {
        let text = text(process, &answer, terminal::width());
        output::print_text(&text, args.output.is_ascii())?;
    }
    Ok(Exit::Success.into())
}

fn text(process: &Process, answer: &ProbeAnswer, width: Option<usize>) -> String {
    let mut text = String::new();
    let title = format!("{} {}", process.id.pid, table::command(process));
    table::line(&mut text, width, &title);
    for memory in &answer.modules {
        add_modules(&mut text, width, memory);
    }
    if answer.modules.is_empty() {
        table::line(
            &mut text,
            width,
            "no module allocated memory of a GPU in this step",
        );
    }
    for kept in &answer.kept {
        table::line(&mut text, width, &tensors::kept_result(kept));
    }
    text
}

fn add_modules(text: &mut String, width: Option<usize>, memory: &ModuleMemory) {
    table::line(text, width, &tensors::peak_of_step(memory));
    let cells = memory.rows.iter().map(|row| {
        [
            row.activations.to_string(),
            row.peak.to_string(),
            row.calls
                .map_or_else(|| "-".to_owned(), |calls| calls.to_string()),
            row.path.to_string(),
            row.kind.as_ref().map_or_else(String::new, Text::to_string),
        ]
    });
    table::rows(text, width, &COLUMNS, cells);
    if let Some(left_out) = memory.rows_left_out.filter(|left_out| *left_out > 0) {
        table::line(
            text,
            width,
            &format!("{left_out} smaller modules are left out"),
        );
    }
}
