//! Verdicts and growth for `--json` and tables: the lines of an agent have readings alone.

use std::time::Duration;

use serde_json::Value;

use crate::base::units::Bytes;
use crate::model::{GpuOrProcess, HostModel, LeakVerdict, Verdict, part_name};
use crate::protocol::judged::{
    GrowthFigures, Judged, JudgedGpu, JudgedGrowth, JudgedJob, JudgedProcess, MissingGrowth,
};
use crate::protocol::snapshot::{Gpu, Missing, ProcessId, Snapshot};

/// A column of a table with what is judged: its name, the values, and where they are in JSON.
#[derive(Debug)]
pub(crate) struct JudgedColumn {
    pub(crate) name: &'static str,
    pub(crate) kind: JudgedKind,
    pointer: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JudgedKind {
    Text,
    Integer,
}

const fn text(name: &'static str, pointer: &'static str) -> JudgedColumn {
    JudgedColumn {
        name,
        kind: JudgedKind::Text,
        pointer,
    }
}

const fn integer(name: &'static str, pointer: &'static str) -> JudgedColumn {
    JudgedColumn {
        name,
        kind: JudgedKind::Integer,
        pointer,
    }
}

/// The columns of a process, such as `orphan`, `"its parent exited"`, `train.py`, `slurm 4711`.
pub(crate) const PROCESS_COLUMNS: [JudgedColumn; 4] = [
    text("verdict", "/verdict"),
    text("verdict_reason", "/sentence"),
    text("job", "/job/name"),
    text("job_origin", "/job/origin"),
];

/// The columns of growth, of a GPU and of a process, such as `leak`, 1048576, 524288000, 600, 540,
/// 700.
pub(crate) const GROWTH_COLUMNS: [JudgedColumn; 6] = [
    text("growth", "/growth/verdict"),
    integer("growth_bytes_per_s", "/growth/rate_bytes_per_s"),
    integer("growth_bytes", "/growth/gained_bytes"),
    integer("oom_in_s", "/growth/oom_in_s"),
    integer("oom_low_s", "/growth/oom_low_s"),
    integer("oom_high_s", "/growth/oom_high_s"),
];

/// Returns the values of these columns. `Value::Null` is not known.
pub(crate) fn cells(
    judged: &Value,
    columns: &'static [JudgedColumn],
) -> impl Iterator<Item = Value> {
    let cell = |column: &JudgedColumn| judged.pointer(column.pointer).cloned();
    columns
        .iter()
        .map(move |column| cell(column).unwrap_or(Value::Null))
}

/// Returns the verdicts on the processes of these GPUs and on what else is left behind, and the
/// growth of each GPU.
pub(crate) fn judged(model: &HostModel, shown: &Snapshot) -> Judged {
    let is_shown = |verdict: &&Verdict| {
        let is_on_gpu = shown.gpus.iter().any(|gpu| {
            gpu.process(verdict.process).is_some()
                || gpu.device_file_holders.contains(&verdict.process)
        });
        // With `--mine` and the like, those of others are left out.
        let is_chosen = shown.process(verdict.process).is_some();
        is_chosen && (is_on_gpu || verdict.is_leftover())
    };
    let processes = model.verdicts().iter().filter(is_shown);
    Judged {
        processes: processes.map(|verdict| process(model, verdict)).collect(),
        gpus: shown.gpus.iter().map(|shown| gpu(model, shown)).collect(),
    }
}

/// Returns the growth of a GPU.
pub(crate) fn gpu(model: &HostModel, gpu: &Gpu) -> JudgedGpu {
    JudgedGpu {
        uuid: gpu.uuid.clone(),
        growth: growth(model, &GpuOrProcess::Gpu(gpu.uuid.clone())),
    }
}

/// Returns the verdict on a process, with its job and its growth.
pub(crate) fn process(model: &HostModel, verdict: &Verdict) -> JudgedProcess {
    let id = verdict.process;
    let job = model.job(id).map(|job| JudgedJob {
        name: job.name.clone(),
        root: job.root,
        origin: job.origin.clone().ok(),
    });
    JudgedProcess {
        pid: id.pid,
        start_ticks: id.start_ticks,
        verdict: verdict.name().to_owned(),
        is_suspect: verdict.is_suspect(),
        // Another look may show that the process has ended, is stuck, or is an orphan.
        is_decided: verdict.undecided_for.is_none(),
        sentence: verdict.sentence(),
        job,
        leak_line: leak_line(model, id),
        growth: growth(model, &GpuOrProcess::Process(id)),
    }
}

/// The line of the leak that the probe reports in a process.
fn leak_line(model: &HostModel, process: ProcessId) -> Option<String> {
    let growth = model.growth(&GpuOrProcess::Process(process))?;
    growth.leak_line().map(str::to_owned)
}

/// Returns how the memory of a GPU or process grows.
pub(crate) fn growth(model: &HostModel, subject: &GpuOrProcess) -> JudgedGrowth {
    let Some(growth) = model
        .growth(subject)
        .filter(|growth| growth.verdict() != LeakVerdict::TooSoon)
    else {
        let missing = MissingGrowth {
            growth: Missing::NotYet,
        };
        return JudgedGrowth {
            growth: None,
            missing: Some(missing),
        };
    };
    let evidence = growth.evidence(model.now());
    let forecast = evidence.and_then(|evidence| evidence.forecast);
    let seconds = |span: Duration| (span + Duration::from_millis(500)).as_secs();
    #[expect(clippy::cast_possible_truncation, reason = "whole bytes are exact")]
    let rate = evidence.map(|evidence| evidence.rate.0.round() as i64);
    let figures = GrowthFigures {
        verdict: growth.verdict().name().to_owned(),
        sentence: growth.sentence(),
        part: growth.part.map(|part| part_name(part).to_owned()),
        rate_bytes_per_s: rate,
        // The probe may know a rate without a time or an amount.
        gained_bytes: evidence
            .map(|evidence| evidence.gained)
            .filter(|gained| *gained > Bytes(0)),
        oom_in_s: forecast.map(|forecast| seconds(forecast.likely)),
        oom_low_s: forecast.map(|forecast| seconds(forecast.low)),
        oom_high_s: forecast.map(|forecast| seconds(forecast.high)),
    };
    JudgedGrowth {
        growth: Some(figures),
        missing: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::snapshot::example::host;

    #[test]
    fn a_leak_has_its_rate_and_the_time_left_and_one_look_has_neither() {
        let mut snapshot = host(1).with(7, "python train.py", 0, Bytes::from_gib(3));
        let mut model = HostModel::default();
        model.replace(snapshot.clone());
        let growth = |model: &HostModel, list: &str| {
            let judged = judged(model, model.latest().expect("a snapshot"));
            let judged = serde_json::to_value(judged).expect("JSON");
            judged[list][0].clone()
        };
        for list in ["processes", "gpus"] {
            let found = growth(&model, list);
            assert_eq!(found["growth"], Value::Null, "{found}");
            assert_eq!(found["missing"]["growth"], "not_yet", "{found}");
        }
        for _ in 0..900 {
            snapshot = snapshot.later(1);
            let gpu = &mut snapshot.gpus[0];
            for bytes in [&mut gpu.processes[0].memory, &mut gpu.load.memory_used] {
                bytes.as_mut().expect("known").0 += 20 << 20;
            }
            model.replace(snapshot.clone());
        }
        for list in ["processes", "gpus"] {
            let found = growth(&model, list);
            let growth = &found["growth"];
            assert_eq!(growth["verdict"], "leak", "{found}");
            let rate = growth["rate_bytes_per_s"].as_f64().expect("a rate");
            assert!((rate / f64::from(20 << 20) - 1.0).abs() < 0.05, "{found}");
            let [low, likely, high] = ["oom_low_s", "oom_in_s", "oom_high_s"]
                .map(|name| growth[name].as_f64().expect("a time"));
            assert!(low < likely && likely < high, "{found}");
        }
        let gpu = &model.latest().expect("a snapshot").gpus[0];
        let cells: Vec<Value> = cells(
            &serde_json::to_value(super::gpu(&model, gpu)).expect("JSON"),
            &GROWTH_COLUMNS,
        )
        .collect();
        for (cell, column) in cells.iter().zip(&GROWTH_COLUMNS) {
            let is_right = match column.kind {
                JudgedKind::Text => cell.is_string(),
                JudgedKind::Integer => cell.is_i64(),
            };
            assert!(is_right, "{}: {cell}", column.name);
        }
        assert_eq!(growth(&model, "processes")["pid"], 7);
        assert_eq!(growth(&model, "gpus")["uuid"], "GPU-0");
    }

    #[test]
    fn a_process_that_a_filter_leaves_out_is_not_judged_either() {
        let snapshot = host(1)
            .with(7, "python mine.py", 0, Bytes::from_gib(3))
            .with(8, "python theirs.py", 0, Bytes::from_gib(3));
        let mut model = HostModel::default();
        model.replace(snapshot.clone());
        let pids = |shown: &Snapshot| -> Vec<u32> {
            let judged = judged(&model, shown);
            judged.processes.iter().map(|process| process.pid).collect()
        };
        assert_eq!(pids(&snapshot), [7, 8]);
        // As the filter does, which leaves the holders of the device files.
        let mut shown = snapshot;
        shown.gpus[0].device_file_holders = shown.processes.iter().map(|it| it.id).collect();
        shown.processes.retain(|process| process.id.pid == 7);
        shown.gpus[0].processes.retain(|it| it.process.pid == 7);
        assert_eq!(pids(&shown), [7]);
    }
}
