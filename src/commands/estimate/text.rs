//! The table of an estimate.

use super::{CONTEXT, EstimateArgs, GpuKind, TrainingEstimate};
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::output::table::{self, Heading};
use crate::output::{StyledText, TextStyle};

/// The columns of GPUs.
const GPU_COLUMNS: [Heading; 3] = [("GPU", false), ("MEMORY", true), ("LARGEST BATCH", true)];

/// Returns the table. `why_none` is the reason why no GPU is known.
pub(super) fn format(
    args: &EstimateArgs,
    estimate: &TrainingEstimate,
    gpus: &[GpuKind],
    why_none: Option<&Text>,
    style: TextStyle,
) -> String {
    let mut text = StyledText::new(style);
    text.heading(&heading(args, estimate));
    for (name, amount, note) in parts(estimate) {
        if let Some(amount) = amount {
            text.line(
                format_args!("  {name:<20}{:>10}  {note}", amount.to_string())
                    .to_string()
                    .trim_end(),
            );
        }
    }
    text.line("");
    let mut table = String::new();
    let rows = gpus
        .iter()
        .zip(&estimate.largest_batches)
        .map(|(gpu, largest)| {
            let name = if gpu.count > 1 {
                format!("{} × {}", gpu.count, gpu.name)
            } else {
                gpu.name.clone()
            };
            let largest = match largest {
                Some(0) => "none fits".to_owned(),
                Some(largest) => largest.to_string(),
                None => "-".to_owned(),
            };
            [name, gpu.memory.to_string(), largest]
        });
    if let Some(why) = why_none {
        text.paragraph(
            2,
            format_args!("{why}: --gpu-memory 24GiB finds the largest batch that fits such a GPU"),
        );
    } else {
        table::rows(&mut table, Some(style.width), &GPU_COLUMNS, rows);
        text.lines(&table);
    }
    text.line("");
    text.line("assumptions:");
    for assumption in &estimate.assumptions {
        text.paragraph(4, format_args!("  - {assumption}"));
    }
    text.finish()
}

/// `one training step of build in model.py: batch 32, AdamW, PyTorch 2.5.1`.
fn heading(args: &EstimateArgs, estimate: &TrainingEstimate) -> String {
    let (file, function) = (args.subject.file.display(), &args.subject.function);
    let batch = estimate
        .batch
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
    format!(
        "one {what} of {function} in {file}, {how}: {batch}{optimizer}PyTorch {}",
        estimate.torch
    )
}

/// The lines: name, amount, and a note. Those without an amount are left out.
fn parts(estimate: &TrainingEstimate) -> [(&'static str, Option<Bytes>, &'static str); 10] {
    let bytes = &estimate.bytes;
    let is_training = estimate.optimizer.is_some();
    let activations = if is_training {
        "saved for the backward pass"
    } else {
        "the most at one time"
    };
    let optimizer_state = if estimate
        .by_formula
        .iter()
        .any(|part| part == "optimizer_state")
    {
        "by formula"
    } else {
        ""
    };
    let peak = if estimate.measured {
        ""
    } else {
        "the parts are not all there at once, and backward adds some"
    };
    [
        ("parameters", bytes.parameters, ""),
        ("gradients", bytes.gradients, ""),
        ("optimizer state", bytes.optimizer_state, optimizer_state),
        ("buffers", bytes.buffers, ""),
        ("inputs", bytes.inputs, ""),
        ("activations", bytes.activations, activations),
        ("fixed", bytes.fixed, "does not depend on the batch"),
        ("peak", Some(bytes.peak), peak),
        (
            "total",
            Some(bytes.peak + CONTEXT),
            "with CUDA's context and libraries",
        ),
        (
            "per sample",
            estimate.per_sample,
            "how the peak of large batches grows",
        ),
    ]
}
