//! The tables of an estimate.

use super::savings::{self, SavingsRow};
use super::script::{ScriptAnswers, TrainingEstimate};
use super::sweep::{CellAnswer, Sweep};
use super::variant::StepVariant;
use super::{EstimateArgs, GpuKind};
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::output::table::{self, Heading};
use crate::output::{StyledText, TextStyle};

/// The columns of GPUs.
const GPU_COLUMNS: [Heading; 3] = [("GPU", false), ("MEMORY", true), ("LARGEST BATCH", true)];

/// The columns of what each flag saves.
const SAVINGS_COLUMNS: [Heading; 5] = [
    ("WITH", false),
    ("TOTAL", true),
    ("SAVES", true),
    ("FITS", false),
    ("", false),
];

/// Returns the tables. `why_none` is the reason why no GPU is known.
pub(super) fn format(
    args: &EstimateArgs,
    variant: &StepVariant,
    answers: &ScriptAnswers,
    gpus: &[GpuKind],
    why_none: Option<&Text>,
    style: TextStyle,
) -> String {
    let mut text = StyledText::new(style);
    text.heading(&heading(args, &answers.first));
    match &args.sweep {
        Some(sweep) => add_grid(&mut text, sweep, answers, gpus),
        None => {
            add_parts(&mut text, &answers.first);
            add_savings(&mut text, &savings::rows(variant, answers), gpus);
            if !gpus.is_empty() {
                add_largest_batches(&mut text, &answers.first, gpus);
            }
        }
    }
    if let Some(why) = why_none {
        text.gap();
        text.paragraph(
            2,
            format_args!("{why}: --gpu-memory 24GiB finds what fits such a GPU"),
        );
    }
    if let Some(why) = &answers.why_missing {
        text.gap();
        text.paragraph(2, format_args!("not run: {why}"));
    }
    text.gap();
    text.line("assumptions:");
    for assumption in &answers.first.assumptions {
        text.paragraph(4, format_args!("  - {assumption}"));
    }
    text.finish()
}

/// `one training step of build in model.py, estimated: batch 32, AdamW, PyTorch 2.5.1`.
fn heading(args: &EstimateArgs, estimate: &TrainingEstimate) -> String {
    let file = args.subject.file.display();
    let subject = match &args.subject.function {
        Some(function) => format!("{function} in {file}"),
        None => file.to_string(),
    };
    let batch = estimate
        .batch
        .filter(|_| args.sweep.is_none())
        .map_or_else(String::new, |batch| format!("batch {batch}, "));
    let (what, optimizer) = match &estimate.optimizer {
        Some(optimizer) => ("training step", format!("{optimizer}, ")),
        None => ("inference", String::new()),
    };
    let how = if estimate.measured {
        "measured"
    } else {
        "estimated"
    };
    let one = if args.sweep.is_some() {
        "the total of one"
    } else {
        "one"
    };
    format!(
        "{one} {what} of {subject}, {how}: {batch}{optimizer}PyTorch {}",
        estimate.torch
    )
}

fn add_parts(text: &mut StyledText, estimate: &TrainingEstimate) {
    for (name, amount, note) in parts(estimate) {
        if let Some(amount) = amount {
            let line = format!("  {name:<20}{:>10}  {note}", amount.to_string());
            text.line(line.trim_end());
        }
    }
}

fn add_largest_batches(text: &mut StyledText, estimate: &TrainingEstimate, gpus: &[GpuKind]) {
    let rows = gpus
        .iter()
        .zip(&estimate.largest_batches)
        .map(|(gpu, largest)| {
            let largest = match largest {
                Some(0) => "none fits".to_owned(),
                Some(largest) => largest.to_string(),
                None => "-".to_owned(),
            };
            [gpu.label(), gpu.memory.to_string(), largest]
        });
    add_table(text, &GPU_COLUMNS, rows);
}

fn add_savings(text: &mut StyledText, savings: &[SavingsRow<'_>], gpus: &[GpuKind]) {
    let Some(without) = savings.first() else {
        return;
    };
    let rows = savings.iter().map(|row| {
        let name = match row.flags.as_slice() {
            [] => "no flag".to_owned(),
            [flag] => flag.clone(),
            _ => "all of them".to_owned(),
        };
        let saves = match row.saved_from(without) {
            Some(bytes) if !row.flags.is_empty() => {
                let sign = if bytes < 0 { "-" } else { "" };
                format!("{sign}{}", Bytes(bytes.unsigned_abs()))
            }
            _ => String::new(),
        };
        let (fits, note) = match row.answer {
            Some(Ok(estimate)) => {
                let fitting = estimate.fitting(gpus);
                let none = if gpus.is_empty() { "-" } else { "none" };
                let fits = if fitting.is_empty() {
                    none.to_owned()
                } else {
                    fitting.join(", ")
                };
                let is_by_formula = !estimate.by_formula.is_empty();
                (fits, if is_by_formula { "by formula" } else { "" })
            }
            _ => (String::new(), ""),
        };
        [name, total(row.answer), saves, fits, note.to_owned()]
    });
    add_table(text, &SAVINGS_COLUMNS, rows);
    for row in savings {
        if let Some(Err(why)) = row.answer {
            text.paragraph(2, format_args!("{}: {why}", row.flags.join(" ")));
        }
    }
}

/// Adds the totals of a sweep, and the largest values of the rows that fit each GPU.
fn add_grid(text: &mut StyledText, sweep: &Sweep, answers: &ScriptAnswers, gpus: &[GpuKind]) {
    let columns = sweep.column_values();
    let cells = sweep.answers(answers);
    let rows: Vec<&[CellAnswer<'_>]> = cells.chunks(columns.len()).collect();
    let name = sweep.rows.name.to_uppercase();
    let titles: Vec<String> = columns
        .iter()
        .map(|value| match (&sweep.columns, value) {
            (Some(columns), Some(value)) => format!("{} {value}", columns.name.to_uppercase()),
            _ => "TOTAL".to_owned(),
        })
        .collect();
    let column_headings = || titles.iter().map(|title| (title.as_str(), true));
    let headings: Vec<(&str, bool)> = std::iter::once((name.as_str(), true))
        .chain(column_headings())
        .collect();
    let totals = sweep.rows.values.iter().zip(&rows).map(|(value, row)| {
        let totals = row.iter().map(|answer| total(*answer));
        std::iter::once(value.to_string())
            .chain(totals)
            .collect::<Vec<_>>()
    });
    add_table(text, &headings, totals);
    if !answers.first.by_formula.is_empty() {
        text.line("  by formula");
    }
    for (cell, answer) in cells.iter().enumerate() {
        if let Some(Err(why)) = answer {
            let row = sweep.rows.values[cell / columns.len()];
            let column = match sweep.columns {
                Some(_) => format!(", {}", titles[cell % columns.len()]),
                None => String::new(),
            };
            text.paragraph(2, format_args!("{name} {row}{column}: {why}"));
        }
    }
    if gpus.is_empty() {
        return;
    }
    let first = if sweep.columns.is_some() {
        format!("LARGEST {name}, {}", titles[0])
    } else {
        format!("LARGEST {name}")
    };
    let mut headings = vec![("GPU", false), ("MEMORY", true), (first.as_str(), true)];
    headings.extend(column_headings().skip(1));
    let largest = gpus.iter().enumerate().map(|(gpu, kind)| {
        let mut row = vec![kind.label(), kind.memory.to_string()];
        row.extend((0..columns.len()).map(|column| {
            let column: Vec<CellAnswer<'_>> = rows.iter().map(|row| row[column]).collect();
            largest_that_fits(&sweep.rows.values, &column, gpu)
        }));
        row
    });
    add_table(text, &headings, largest);
}

/// Returns the largest value whose step fits a GPU, with a `+` where larger ones were not run.
fn largest_that_fits(values: &[u64], column: &[CellAnswer<'_>], gpu: usize) -> String {
    let fits = |answer: &CellAnswer<'_>| match answer {
        Some(Ok(estimate)) => estimate.fits.get(gpu).copied().unwrap_or_default(),
        _ => false,
    };
    let largest = column.iter().rposition(fits);
    let after = largest.map_or(0, |place| place + 1);
    let more = if column.get(after).is_some_and(Option::is_none) {
        "+"
    } else {
        ""
    };
    match largest {
        Some(place) => format!("{}{more}", values[place]),
        None if more.is_empty() => "none".to_owned(),
        None => "not run".to_owned(),
    }
}

fn total(answer: CellAnswer<'_>) -> String {
    match answer {
        Some(Ok(estimate)) => estimate.total().to_string(),
        Some(Err(_)) => "failed".to_owned(),
        None => "not run".to_owned(),
    }
}

fn add_table<R: AsRef<[String]>>(
    text: &mut StyledText,
    headings: &[(&str, bool)],
    rows: impl Iterator<Item = R>,
) {
    let mut table = String::new();
    table::rows(&mut table, Some(text.style.width), headings, rows);
    text.gap();
    text.lines(&table);
}

/// The lines: name, amount, and a note. Those without an amount are left out.
fn parts(estimate: &TrainingEstimate) -> [(&'static str, Option<Bytes>, String); 11] {
    let bytes = &estimate.bytes;
    let activations = if estimate.optimizer.is_some() {
        "saved for the backward pass"
    } else {
        "the most at one time"
    };
    let peak = if estimate.measured {
        ""
    } else {
        "the parts are not all there at once, and backward adds some"
    };
    let note = |part: &str, note: &str| match (estimate.is_by_formula(part), note) {
        (true, "") => "by formula".to_owned(),
        (true, note) => format!("by formula: {note}"),
        (false, note) => note.to_owned(),
    };
    [
        ("parameters", bytes.parameters, note("parameters", "")),
        ("gradients", bytes.gradients, note("gradients", "")),
        (
            "optimizer state",
            bytes.optimizer_state,
            note("optimizer_state", ""),
        ),
        (
            "gathered",
            bytes.gathered,
            note(
                "gathered",
                "parameters and gradients that are whole for a moment",
            ),
        ),
        ("buffers", bytes.buffers, String::new()),
        ("inputs", bytes.inputs, String::new()),
        ("activations", bytes.activations, activations.to_owned()),
        (
            "fixed",
            bytes.fixed,
            "does not depend on the batch".to_owned(),
        ),
        ("peak", Some(bytes.peak), note("peak", peak)),
        (
            "total",
            Some(estimate.total()),
            "with CUDA's context and libraries".to_owned(),
        ),
        (
            "per sample",
            estimate.per_sample,
            "how the peak of large batches grows".to_owned(),
        ),
    ]
}
