//! Words for the reports of the probe: groups of tensors, steps and marks of the program.

use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::output::labels;
use crate::protocol::snapshot::{
    KeptResult, MarkPair, ModuleMemory, ProgramMark, TensorCategory, TensorFill, TensorGroup,
    TensorLeak, TrainingSteps,
};

/// `(512, 512, 3, 3) float32`, as Python prints a shape; `blocks without a tensor` if there is no
/// shape.
pub(crate) fn shape(shape: Option<&[u64]>, dtype: Option<&Text>) -> String {
    let shape = match shape {
        None => return "blocks without a tensor".to_owned(),
        Some([one]) => format!("({one},)"),
        Some(shape) => format!(
            "({})",
            shape
                .iter()
                .map(u64::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        ),
    };
    dtype.map_or_else(|| shape.clone(), |dtype| format!("{shape} {dtype}"))
}

/// `7 × (512, 512, 3, 3) float32`.
pub(crate) fn tensors(group: &TensorGroup) -> String {
    let shape = match group.block {
        Some(block) if group.shape.is_none() => format!("blocks of {block}"),
        _ => shape(group.shape.as_deref(), group.dtype.as_ref()),
    };
    format!("{} × {shape}", group.count)
}

/// `parameters`, and for optimizer state its name: `optimizer state exp_avg`.
pub(crate) fn category(group: &TensorGroup) -> String {
    let part = if group.part { ", in flat buffers" } else { "" };
    match &group.kind {
        Some(kind) => format!("{} {kind}{part}", group.category),
        None => format!("{}{part}", group.category),
    }
}

/// `+ 7 × (512, 512, 3, 3) float32`: how the number of tensors in a group changed. `None` if
/// nothing did, or it is not known.
pub(crate) fn tensors_changed(group: &TensorGroup) -> Option<String> {
    let change = group.count_change.filter(|change| *change != 0)?;
    let sign = if change < 0 { '-' } else { '+' };
    Some(format!(
        "{sign} {}",
        tensors(&TensorGroup {
            count: change.unsigned_abs(),
            ..group.clone()
        })
    ))
}

/// `train.py:40 in step, model.py:12 in forward`: the lines that allocated what changed in a group.
/// `None` if they are not known.
pub(crate) fn allocating_lines(group: &TensorGroup) -> Option<String> {
    let lines = group.allocated_at.as_ref()?;
    let lines: Vec<&str> = [&lines.user, &lines.inner]
        .into_iter()
        .flatten()
        .map(Text::as_str)
        .collect();
    (!lines.is_empty()).then(|| lines.join(", "))
}

/// `before, eval, eval end`: each name once, the latest last.
pub(crate) fn mark_names(marks: &[ProgramMark]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for mark in marks {
        names.retain(|name| *name != mark.name.as_str());
        names.push(mark.name.as_str());
    }
    names.join(", ")
}

/// `one step, 1.2 GiB at its peak on cuda:0: 400 MiB from before it, 30 MiB of the backward pass, 12 MiB
/// outside of modules, the rest of modules`
pub(crate) fn peak_of_step(memory: &ModuleMemory) -> String {
    format!(
        "one step, {} at its peak on cuda:{}: {} from before it, {} of the backward pass, {} outside of \
         modules, the rest of modules",
        memory.peak, memory.device, memory.before, memory.backward, memory.outside
    )
}

/// `logits (train.py:31 in main) stays alive over the step: del logits frees 61.0 MiB before the next
/// forward pass`
pub(crate) fn kept_result(kept: &KeptResult) -> String {
    let names: Vec<&str> = kept.names.iter().map(Text::as_str).collect();
    let line = kept
        .line
        .as_ref()
        .map_or_else(String::new, |line| format!(" ({line})"));
    let stays = if names.len() == 1 { "stays" } else { "stay" };
    format!(
        "{}{line} {stays} alive over the step: del {} frees {} before the next forward pass",
        names.join(" and "),
        names.join(", "),
        kept.bytes
    )
}

/// `eval → eval end, 12 times, +24.0 MiB in all`
pub(crate) fn pair_in_words(pair: &MarkPair) -> String {
    let names = format!("{} → {}", pair.since.name, pair.until.name);
    let total = pair.total_bytes_change().map_or_else(String::new, |total| {
        format!(", {} in all", labels::change(total))
    });
    match pair.times {
        None | Some(0 | 1) => names,
        Some(times) => format!("{names}, {times} times{total}"),
    }
}

/// `+ 5 × (64, 64) float32  +80 KiB  named tensors  train.py:40 in main`: a group that changed between
/// two marks.
pub(crate) fn changed_group(group: &TensorGroup) -> String {
    let change = group.bytes_change.map(labels::change);
    let changed = tensors_changed(group).unwrap_or_else(|| tensors(group));
    [
        Some(changed),
        change,
        Some(category(group)),
        allocating_lines(group),
    ]
    .into_iter()
    .flatten()
    .collect::<Vec<_>>()
    .join("  ")
}

/// `from eval (train.py:40, step 3) to eval end (train.py:52, step 3), 1.50 s: +2.0 MiB of tensors,
/// 31.0 MiB then`
pub(crate) fn pair(pair: &MarkPair) -> String {
    let mark = |mark: &ProgramMark| {
        let line = mark.at.as_ref().map(Text::to_string);
        let step = mark.step.map(|step| format!("step {step}"));
        let details: Vec<String> = [line, step].into_iter().flatten().collect();
        if details.is_empty() {
            mark.name.to_string()
        } else {
            format!("{} ({})", mark.name, details.join(", "))
        }
    };
    let seconds = pair
        .seconds
        .map_or_else(String::new, |seconds| format!(", {} s", rounded(seconds)));
    let changes = pair.devices.iter().map(|device| {
        let on = if pair.devices.len() > 1 {
            format!(" on cuda:{}", device.device)
        } else {
            String::new()
        };
        let change = labels::change(device.bytes_change);
        format!("{change} of tensors{on}, {} then", device.allocated)
    });
    let changes: Vec<String> = changes.collect();
    let changes = if changes.is_empty() {
        "no memory of tensors".to_owned()
    } else {
        changes.join("; ")
    };
    format!(
        "from {} to {}{seconds}: {changes}",
        mark(&pair.since),
        mark(&pair.until)
    )
}

/// `2.0 MiB per step: 3 × (64, 128) float32, activations`. Without a growth per step, by the second
/// or in all.
pub(crate) fn leak(leak: &TensorLeak) -> String {
    format!("{}: {}", growth(leak), leaking_tensors(leak))
}

/// `2.0 MiB per step`. Without a growth per step, by the second or in all.
pub(crate) fn growth(leak: &TensorLeak) -> String {
    match (leak.bytes_per_step, leak.bytes_per_second, leak.bytes) {
        (Some(step), _, _) if step > Bytes(0) => format!("{step} per step"),
        (_, Some(second), _) if second > Bytes(0) => format!("{second} per second"),
        (_, _, Some(all)) => format!("{all} so far"),
        _ => "grows".to_owned(),
    }
}

/// `3 × (64, 128) float32, activations`.
pub(crate) fn leaking_tensors(leak: &TensorLeak) -> String {
    let count = leak
        .count_per_step
        .map_or_else(String::new, |count| format!("{} × ", rounded(count)));
    let shape = shape(leak.shape.as_deref(), leak.dtype.as_ref());
    let category = match leak.category {
        TensorCategory::Other => String::new(),
        category => format!(", {category}"),
    };
    format!("{count}{shape}{category}")
}

/// `tensors are kept with their history`: the cause of a leak. `None` when it is not known.
pub(crate) fn cause(leak: &TensorLeak) -> Option<String> {
    let title = leak.title.as_ref().map(Text::to_string);
    title.or_else(|| Some(leak.cause.as_ref()?.as_str().replace('_', " ")))
}

/// `global window, train.py:5: 81 of at most 300 elements, 5.1 MiB`.
pub(crate) fn fill(fill: &TensorFill) -> String {
    let TensorFill {
        held_by,
        limit,
        length,
        bytes,
    } = fill;
    format!("{held_by}: {length} of at most {limit} elements, {bytes}")
}

/// `step 120, 4.8 steps/s`; where steps take long, `step 120, 3.5 s per step`. An attached probe
/// has not seen the first steps: `120 steps since attach, 4.8 steps/s`.
pub(crate) fn steps(steps: &TrainingSteps) -> String {
    let is_attached = steps
        .source
        .as_ref()
        .is_some_and(|source| source.as_str() == "optimizer_since_attach");
    let count = if is_attached {
        format!("{} steps since attach", steps.count)
    } else {
        format!("step {}", steps.count)
    };
    match steps.seconds {
        Some(seconds) if seconds > 1.0 => format!("{count}, {} s per step", rounded(seconds)),
        Some(seconds) if seconds > 0.0 => format!("{count}, {} steps/s", rounded(1.0 / seconds)),
        _ => count,
    }
}

/// Two digits, and all of a larger number: `0.21`, `4.8`, `133`.
fn rounded(number: f64) -> String {
    match number {
        number if number.fract() == 0.0 || number >= 10.0 => format!("{number:.0}"),
        number if number >= 1.0 => format!("{number:.1}"),
        number => format!("{number:.2}"),
    }
}

/// `31 %`; empty if the whole is 0.
pub(crate) fn share(part: Bytes, whole: Bytes) -> String {
    match part.share_of(whole) {
        Some(share) if share < 0.005 && part > Bytes(0) => "< 1 %".to_owned(),
        Some(share) => format!("{:.0} %", share * 100.0),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(shape: Option<Vec<u64>>) -> TensorGroup {
        TensorGroup {
            device: 0,
            category: TensorCategory::OptimizerState,
            dtype: shape.is_some().then(|| "float32".into()),
            shape,
            block: Some(Bytes::from_mib(9)),
            kind: Some("exp_avg".into()),
            count: 7,
            bytes: Bytes::from_mib(63),
            age_steps: None,
            count_change: Some(-2),
            bytes_change: None,
            part: false,
            allocated_at: None,
        }
    }

    #[test]
    fn groups_read_as_python_prints_shapes() {
        assert_eq!(tensors(&group(Some(vec![512, 3]))), "7 × (512, 3) float32");
        assert_eq!(tensors(&group(Some(vec![512]))), "7 × (512,) float32");
        assert_eq!(tensors(&group(Some(vec![]))), "7 × () float32");
        assert_eq!(tensors(&group(None)), "7 × blocks of 9.0 MiB");
        assert_eq!(
            tensors_changed(&group(Some(vec![1]))).as_deref(),
            Some("- 2 × (1,) float32")
        );
        assert_eq!(category(&group(None)), "optimizer state exp_avg");
    }

    #[test]
    fn steps_have_a_rate_or_a_duration() {
        let words = |seconds| {
            steps(&TrainingSteps {
                count: 120,
                seconds,
                source: None,
            })
        };
        assert_eq!(words(Some(0.21)), "step 120, 4.8 steps/s");
        assert_eq!(words(Some(3.5)), "step 120, 3.5 s per step");
        assert_eq!(
            (words(Some(0.0)), words(None)),
            ("step 120".to_owned(), "step 120".to_owned())
        );
        let source = Some("optimizer_since_attach".into());
        assert_eq!(
            steps(&TrainingSteps {
                count: 120,
                seconds: None,
                source
            }),
            "120 steps since attach"
        );
    }

    #[test]
    fn shares_are_whole_percents() {
        assert_eq!(share(Bytes(31), Bytes(100)), "31 %");
        assert_eq!(
            (
                share(Bytes(1), Bytes(1000)).as_str(),
                share(Bytes(0), Bytes(0)).as_str()
            ),
            ("< 1 %", "")
        );
    }

    #[test]
    fn a_container_of_limited_length_says_how_far_it_is_filled() {
        let fill_of = TensorFill {
            held_by: "global window, train.py:5".into(),
            limit: 300,
            length: 81,
            bytes: Bytes::from_mib(5),
        };
        assert_eq!(
            fill(&fill_of),
            "global window, train.py:5: 81 of at most 300 elements, 5.0 MiB"
        );
    }
}
