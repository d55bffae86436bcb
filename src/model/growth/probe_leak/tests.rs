//! Hosts with a program whose probe reports leaks.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::model::{GpuOrProcess, HostModel, NewsKind};
use crate::protocol::snapshot::{ProbeReading, Snapshot, example};

/// A host with a program whose probe reports these leaks.
fn host(leaks: &Value) -> Snapshot {
    let mut host = example::host(1).with(7, "python train.py", 0, Bytes::from_gib(3));
    report(&mut host, leaks);
    host
}

fn report(host: &mut Snapshot, leaks: &Value) {
    let report = json!({"version": 2, "steps": {"count": 50, "seconds": 0.5}, "leaks": leaks});
    host.processes[0].probe = Some(Arc::new(ProbeReading {
        report: Some(serde_json::from_value(report).expect("a report")),
        missing: None,
    }));
}

fn leak(sure: &str, bytes_per_step: u64) -> Value {
    json!({
        "cuda_device": 0, "category": "activations", "sure": sure, "bytes_per_step": bytes_per_step, "steps": 40,
        "title": "tensors are kept", "held_by": ["list outputs, train.py:41 in main"],
    })
}

fn model(host: &Snapshot) -> HostModel {
    let mut model = HostModel::default();
    model.replace(host.clone());
    model
}

fn subject(host: &Snapshot) -> GpuOrProcess {
    GpuOrProcess::Process(host.processes[0].id)
}

fn verdict(model: &HostModel, subject: &GpuOrProcess) -> LeakVerdict {
    model.growth(subject).expect("it is known").verdict()
}

fn leak_news(model: &HostModel) -> Vec<String> {
    let leaks = model.news().filter(|item| item.kind == NewsKind::Leak);
    leaks.map(|item| item.sentence.clone()).collect()
}

#[test]
fn a_likely_leak_is_a_leak_at_once_with_its_line_in_the_news() {
    let mut host = host(&json!([leak("maybe", 8 << 20), leak("likely", 1 << 20)]));
    let subject = subject(&host);
    let mut model = model(&host);
    assert_eq!(verdict(&model, &subject), LeakVerdict::Leak);
    let growth = model.growth(&subject).expect("it is known");
    assert_eq!(growth.leak_line(), Some("train.py:41"));
    assert_eq!(
        growth.sentence(),
        "LEAK: tensors are kept, train.py:41, +120 MiB/min for 40 steps (by the probe)"
    );
    let growing = model.growing().to_vec();
    assert_eq!(growing.len(), 1, "the GPU has the same cause: {growing:?}");
    assert!(growing[0].is_leak() && !growing[0].is_urgent());
    assert_eq!(growing[0].left(), None, "the probe knows no limit");
    let news = ["LEAK 7 train.py (alice) at train.py:41 +120 MiB/min"];
    assert_eq!(leak_news(&model), news);
    // The same leak is no news again.
    host = host.later(2);
    model.replace(host.clone());
    assert_eq!(leak_news(&model), news);
    // The program lets go of the tensors.
    host = host.later(2);
    report(&mut host, &json!([]));
    for _ in 0..70 {
        host = host.later(10);
        model.replace(host.clone());
    }
    assert_eq!(model.growing().to_vec(), []);
    let over = model.news().find(|item| item.kind == NewsKind::LeakOver);
    assert_eq!(
        over.map(|item| item.sentence.as_str()),
        Some("7 train.py (alice) no longer leaks")
    );
}

#[test]
fn a_leak_that_may_be_none_is_suspect_without_news() {
    let host = host(&json!([leak("maybe", 1 << 20)]));
    let model = model(&host);
    assert_eq!(verdict(&model, &subject(&host)), LeakVerdict::Suspect);
    assert!(
        model
            .growing()
            .iter()
            .all(|growing| !growing.is_leak() && !growing.is_urgent())
    );
    assert_eq!(leak_news(&model), [""; 0]);
}

#[test]
fn the_probe_does_not_lower_the_verdict_of_the_figures() {
    let mut host = host(&json!([leak("maybe", 1 << 20)]));
    let subject = subject(&host);
    let mut model = model(&host);
    for _ in 0..900 {
        host = host.later(1);
        let gpu = &mut host.gpus[0];
        for bytes in [&mut gpu.processes[0].memory, &mut gpu.load.memory_used] {
            bytes.as_mut().expect("known").0 += 20 << 20;
        }
        model.replace(host.clone());
    }
    assert_eq!(verdict(&model, &subject), LeakVerdict::Leak);
    let growth = model.growth(&subject).expect("it is known");
    assert!(
        !growth.sentence().contains("probe"),
        "{}",
        growth.sentence()
    );
    assert_eq!(growth.leak_line(), Some("train.py:41"));
    let growing = &model.growing()[0];
    assert!(growing.left().is_some(), "the figures have a forecast");
    assert_eq!(growing.by_probe, None);
}

#[test]
fn only_a_leak_with_a_rate_counts_by_the_second_before_by_the_step() {
    for (fields, mib_per_minute) in [
        (json!({"bytes_per_step": 1 << 20}), Some(120.0)),
        (
            json!({"bytes_per_step": 1 << 20, "bytes_per_second": 1 << 20}),
            Some(60.0),
        ),
        (json!({"bytes_per_second": 1 << 20}), Some(60.0)),
        // History that takes no memory, and fragmentation.
        (json!({"bytes_per_step": 0}), None),
        (json!({"bytes": 1 << 30}), None),
        (json!({}), None),
    ] {
        let mut leak = fields.clone();
        leak["cuda_device"] = json!(0);
        leak["category"] = json!("fragmentation");
        leak["sure"] = json!("likely");
        let host = host(&json!([leak]));
        let found = ProbeLeak::of(&host.processes[0]);
        let rate = found.map(|found| found.rate.0 * 60.0 / f64::from(1 << 20));
        assert_eq!(rate, mib_per_minute, "{fields}");
        let verdict = verdict(&model(&host), &subject(&host));
        assert_eq!(verdict == LeakVerdict::Leak, rate.is_some(), "{fields}");
    }
}
