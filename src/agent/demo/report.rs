//! The report of a probe that the simulated training program would have: a list keeps its outputs,
//! with all that was saved for their backward pass.

use std::collections::BTreeMap;

use super::processes::DemoRole;
use super::scene;
use crate::base::units::{Bytes, Moment};
use crate::protocol::snapshot::{
    AllocationLines, ChangesSince, ProbeDevice, ProbeReport, StackRecording, TensorCategory,
    TensorGroup, TensorLeak, TrainingSteps,
};

const MIB: u64 = 1 << 20;
/// The output that each step keeps: 50 MiB, as much as the program grows in the time of a step.
const OUTPUT: [u64; 3] = [8, 1024, 1600];
const OUTPUT_BYTES: u64 = 8 * 1024 * 1600 * 4;
const SECONDS_PER_STEP: f64 = 50.0 / scene::LEAK_MIB_PER_SECOND;
/// The matrices of a model like GPT-2 XL: their number and shape.
const MATRICES: [(u64, [u64; 2]); 5] = [
    (48, [1600, 6400]),
    (48, [6400, 1600]),
    (48, [1600, 4800]),
    (48, [1600, 1600]),
    (1, [50_257, 1600]),
];
const LIBRARIES: u64 = 24 * MIB;
const BATCH: u64 = 64 * MIB;

fn bytes_of((count, [rows, columns]): (u64, [u64; 2])) -> u64 {
    count * rows * columns * 4
}

/// `None` for a program without a probe.
pub(super) fn report(role: DemoRole, now: Moment, seconds: f64) -> Option<ProbeReport> {
    let parts = scene::reserved(role, seconds).filter(|_| role == DemoRole::Growing)?;
    let steps = u64::from(scene::rounded((seconds / SECONDS_PER_STEP).floor()));
    let kept = u64::from(scene::rounded(scene::leaked_mib(seconds))) * MIB / OUTPUT_BYTES;
    let weights: u64 = MATRICES.into_iter().map(bytes_of).sum();
    let allocated = parts.whole - parts.cache - parts.fragmented;
    let fixed = 4 * weights + LIBRARIES + BATCH;
    let categories = [
        (TensorCategory::Parameters, weights),
        (TensorCategory::Gradients, weights),
        (TensorCategory::OptimizerState, 2 * weights),
        (TensorCategory::NamedTensors, BATCH),
        (TensorCategory::Activations, allocated.saturating_sub(fixed)),
        (TensorCategory::Libraries, LIBRARIES),
        (TensorCategory::Cache, parts.cache),
        (TensorCategory::Fragmentation, parts.fragmented),
    ];
    let device = ProbeDevice {
        gpu: scene::gpu_of(role).map(scene::uuid),
        moment: Some("any".into()),
        allocated: Some(Bytes(allocated)),
        reserved: Some(Bytes(parts.whole)),
        categories: categories
            .map(|(category, bytes)| (category, Bytes(bytes)))
            .into(),
        optimizer_state: BTreeMap::from(
            ["exp_avg", "exp_avg_sq"].map(|name| (name.into(), Bytes(weights))),
        ),
        floor: Some(Bytes(fixed + kept * OUTPUT_BYTES)),
        peak: Some(Bytes(allocated)),
        peak_step: Some(steps),
        peak_base: Some(Bytes(fixed + kept.saturating_sub(1) * OUTPUT_BYTES)),
        ..ProbeDevice::default()
    };
    Some(ProbeReport {
        version: 2,
        at: now,
        torch: Some("2.5.1".into()),
        python: Some("3.11.9".into()),
        steps: Some(TrainingSteps {
            count: steps,
            seconds: Some(SECONDS_PER_STEP),
            source: Some("optimizer".into()),
        }),
        devices: vec![device],
        groups: groups(steps, kept),
        changes_since: Some(ChangesSince {
            step: Some(steps.saturating_sub(1)),
            mark: None,
        }),
        leaks: vec![leak(steps, kept)],
        recording: Some(StackRecording {
            state: "off".into(),
            cost_percent: Some(1.8),
            steps_left: None,
        }),
        ..ProbeReport::default()
    })
}

/// The groups of tensors, the largest first.
fn groups(steps: u64, kept: u64) -> Vec<TensorGroup> {
    let outputs = TensorGroup {
        device: 0,
        category: TensorCategory::Activations,
        shape: Some(OUTPUT.to_vec()),
        dtype: Some("float32".into()),
        block: None,
        kind: None,
        count: kept,
        bytes: Bytes(kept * OUTPUT_BYTES),
        age_steps: Some(kept.min(steps)),
        count_change: Some(1),
        bytes_change: Some(OUTPUT_BYTES.cast_signed()),
        part: false,
        allocated_at: None,
    };
    let kinds = [
        (TensorCategory::Parameters, None),
        (TensorCategory::Gradients, None),
        (TensorCategory::OptimizerState, Some("exp_avg")),
        (TensorCategory::OptimizerState, Some("exp_avg_sq")),
    ];
    let matrices = MATRICES
        .into_iter()
        .flat_map(|matrix| kinds.map(|(category, kind)| (matrix, category, kind)));
    let weights = matrices.map(|(matrix, category, kind)| TensorGroup {
        category,
        shape: Some(matrix.1.to_vec()),
        kind: kind.map(Into::into),
        count: matrix.0,
        bytes: Bytes(bytes_of(matrix)),
        age_steps: Some(steps),
        count_change: Some(0),
        bytes_change: Some(0),
        ..outputs.clone()
    });
    let mut groups: Vec<TensorGroup> = [outputs.clone()].into_iter().chain(weights).collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.bytes));
    groups
}

fn leak(steps: u64, kept: u64) -> TensorLeak {
    TensorLeak {
        device: 0,
        category: TensorCategory::Activations,
        shape: Some(OUTPUT.to_vec()),
        dtype: Some("float32".into()),
        bytes_per_step: Some(Bytes(OUTPUT_BYTES)),
        bytes_per_second: None,
        bytes: Some(Bytes(kept * OUTPUT_BYTES)),
        count_per_step: Some(1.0),
        steps: Some(kept.min(steps)),
        allocated_at: Some(AllocationLines {
            user: Some("train.py:61 in train_step".into()),
            inner: Some("model.py:212 in forward".into()),
        }),
        held_by: vec!["list outputs, train.py:88 in main".into()],
        path: Some("outputs[…]".into()),
        cause: Some("kept_outputs".into()),
        title: Some("tensors are kept with their history".into()),
        sure: Some("likely".into()),
        advice: Some(
            "`outputs.append(logits)` keeps tensors and what was saved for backward: keep `.detach().cpu()` or `.item()` \
             instead, or clear `outputs`"
                .into(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_categories_are_the_reserved_memory_and_a_step_keeps_one_more_output() {
        let report_at = |seconds: u32| {
            report(DemoRole::Growing, Moment(0), seconds.into()).expect("it has a probe")
        };
        for seconds in (0..86_400).step_by(17) {
            let report = report_at(seconds);
            let [device] = report.devices.as_slice() else {
                panic!("{report:?}")
            };
            let sum: Bytes = device.categories.values().copied().sum();
            assert_eq!(Some(sum), device.reserved, "after {seconds} s");
            assert!(
                device.floor < device.peak && device.peak < device.reserved,
                "after {seconds} s"
            );
        }
        let outputs = |seconds| {
            report_at(seconds)
                .groups
                .iter()
                .map(|group| group.count)
                .sum::<u64>()
        };
        assert_eq!(
            outputs(900 + 125) - outputs(900),
            64,
            "64 steps of nearly two seconds"
        );
        assert!(report(DemoRole::Server, Moment(0), 900.0).is_none());
    }
}
