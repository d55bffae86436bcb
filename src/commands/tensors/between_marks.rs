//! `gputop tensors PID --since MARK`: the tensors that came and went between two marks.

use std::process::ExitCode;

use serde_json::json;

use super::{TensorsArgs, print_refusal};
use crate::base::terminal;
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::output::labels::{self, tensors};
use crate::output::table::{self, Heading};
use crate::output::{self, Exit};
use crate::protocol::snapshot::{MarkPair, ProbeReport, Process, TensorGroup};

const COLUMNS: [Heading; 6] = [
    ("CHANGE", true),
    ("NOW", true),
    ("DEVICE", false),
    ("TENSORS", false),
    ("CATEGORY", false),
    ("LINE", false),
];

/// Prints the comparison in the answer of a report, or `why` there is none.
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
    let compared = report.answer.and_then(|answer| answer.compared);
    let Some(mut pair) = compared.filter(|_| why.is_none()) else {
        return Ok(print_refusal(process, "compare marks", why));
    };
    args.keep_wanted(&mut pair.groups);
    if args.output.json {
        output::print_json(&json!({
            "pid": process.id.pid, "start_ticks": process.id.start_ticks, "command": table::command(process), "compared": pair,
        }))?;
    } else {
        let text = text(process, &pair, terminal::width());
        output::print_text(&text, args.output.is_ascii())?;
    }
    Ok(Exit::Success.into())
}

fn text(process: &Process, pair: &MarkPair, width: Option<usize>) -> String {
    let mut text = String::new();
    let title = format!("{} {}", process.id.pid, table::command(process));
    table::line(&mut text, width, &title);
    table::line(&mut text, width, &tensors::pair(pair));
    if pair.groups.is_empty() {
        table::line(&mut text, width, "no group of tensors changed");
        return text;
    }
    let cells = pair.groups.iter().map(|group| {
        let change = group
            .bytes_change
            .map_or_else(|| "-".to_owned(), labels::change);
        [
            change,
            group.bytes.to_string(),
            format!("cuda:{}", group.device),
            tensors::tensors_changed(group).unwrap_or_else(|| tensors::tensors(group)),
            tensors::category(group),
            tensors::allocating_lines(group).unwrap_or_else(|| "-".to_owned()),
        ]
    });
    table::rows(&mut text, width, &COLUMNS, cells);
    let mut notes = vec![sums(&pair.groups)];
    if let Some(left_out) = &pair.groups_left_out {
        let change = labels::change(left_out.bytes_change);
        notes.push(format!(
            "{} smaller changes with {change} are left out",
            left_out.count
        ));
    }
    if pair.groups.iter().all(|group| group.allocated_at.is_none()) {
        notes.push(
            "lines are known after a recording of stacks (r on the page of the process)".to_owned(),
        );
    }
    table::line(&mut text, width, &notes.join("; "));
    text
}

/// `came 2.5 MiB, went 390 KiB`
fn sums(groups: &[TensorGroup]) -> String {
    let sum = |is_wanted: fn(i64) -> bool| -> Bytes {
        let changes = groups.iter().filter_map(|group| group.bytes_change);
        changes
            .filter(|change| is_wanted(*change))
            .map(|change| Bytes(change.unsigned_abs()))
            .sum()
    };
    format!(
        "came {}, went {}",
        sum(|change| change > 0),
        sum(|change| change < 0)
    )
}
