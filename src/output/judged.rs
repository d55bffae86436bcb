//! Verdicts and growth for `--json`: the line of the agent has readings alone.

use std::time::Duration;

use serde_json::{Value, json};

use crate::model::{GpuOrProcess, HostModel, LeakVerdict, Verdict, part_name};
use crate::protocol::snapshot::Snapshot;

/// Returns the verdicts on the processes of these GPUs and on what else is left behind, and the
/// growth of each GPU.
pub(super) fn judged(model: &HostModel, shown: &Snapshot) -> Value {
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
    let gpus = shown.gpus.iter().map(|gpu| {
        let mut value = growth(model, &GpuOrProcess::Gpu(gpu.uuid.clone()));
        value["uuid"] = json!(gpu.uuid);
        value
    });
    json!({
        "processes": processes.map(|verdict| process(model, verdict)).collect::<Vec<_>>(),
        "gpus": gpus.collect::<Vec<_>>(),
    })
}

fn process(model: &HostModel, verdict: &Verdict) -> Value {
    let mut value = growth(model, &GpuOrProcess::Process(verdict.process));
    let origin = model
        .job(verdict.process)
        .map(|job| job.origin.as_ref().ok());
    value["pid"] = json!(verdict.process.pid);
    value["start_ticks"] = json!(verdict.process.start_ticks);
    value["verdict"] = json!(verdict.name());
    value["is_suspect"] = json!(verdict.is_suspect());
    // Another look may show that the process has ended, is stuck, or is an orphan.
    value["is_decided"] = json!(verdict.undecided_for.is_none());
    value["sentence"] = json!(verdict.sentence());
    value["job"] = json!(model.job(verdict.process).map(|job| json!({
        "name": job.name, "root": job.root, "origin": origin.flatten(),
    })));
    value
}

/// Returns the growth of the memory of a GPU or process under `growth`: `null` while it was not
/// watched for long enough, with the reason under `missing`.
fn growth(model: &HostModel, subject: &GpuOrProcess) -> Value {
    let Some(growth) = model
        .growth(subject)
        .filter(|growth| growth.verdict() != LeakVerdict::TooSoon)
    else {
        return json!({ "growth": null, "missing": { "growth": "not_yet" } });
    };
    let evidence = growth.detector.evidence();
    let forecast = evidence.and_then(|evidence| evidence.forecast);
    let seconds = |span: Duration| span.as_secs_f64().round();
    json!({ "growth": {
        "verdict": growth.verdict().name(),
        "sentence": growth.sentence(),
        "part": growth.part.map(part_name),
        "rate_bytes_per_s": evidence.map(|evidence| evidence.rate.0.round()),
        "gained_bytes": evidence.map(|evidence| evidence.gained),
        "oom_in_s": forecast.map(|forecast| seconds(forecast.likely)),
        "oom_low_s": forecast.map(|forecast| seconds(forecast.low)),
        "oom_high_s": forecast.map(|forecast| seconds(forecast.high)),
    } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::Bytes;
    use crate::protocol::snapshot::example::host;

    #[test]
    fn a_leak_has_its_rate_and_the_time_left_and_one_look_has_neither() {
        let mut snapshot = host(1).with(7, "python train.py", 0, Bytes::from_gib(3));
        let mut model = HostModel::default();
        model.replace(snapshot.clone());
        let growth = |model: &HostModel, list: &str| {
            let judged = judged(model, model.latest().expect("a snapshot"));
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
        let pids = |shown: &Snapshot| -> Vec<Value> {
            let judged = judged(&model, shown);
            let processes = judged["processes"].as_array().expect("a list");
            processes
                .iter()
                .map(|process| process["pid"].clone())
                .collect()
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
