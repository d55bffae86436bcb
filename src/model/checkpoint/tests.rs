//! Checks that a model that goes on from a checkpoint has the state of the model that saw every
//! line, and that a forged checkpoint does no harm.

use proptest::prelude::*;
use serde_json::Value;
use serde_json::value::to_raw_value;

use super::*;
use crate::base::units::{Bytes, Moment, Percent};
use crate::model::{GpuOrProcess, HostModel, Window};
use crate::protocol::change::Change;
use crate::protocol::line::Line;
use crate::protocol::snapshot::{Xid, example};

/// Returns a checkpoint as a file would hold it.
fn written(model: &HostModel) -> Line {
    let mut line = Vec::new();
    Line::Checkpoint(Box::new(model.checkpoint().unwrap()))
        .write(&mut line)
        .unwrap();
    Line::parse(&line).unwrap().unwrap()
}

/// Returns a model that begins with this snapshot and the checkpoint of another model.
fn restored(latest: &Snapshot, from: &HostModel) -> HostModel {
    let mut model = HostModel::default();
    model.replace(latest.clone());
    model.apply(written(from)).unwrap();
    model
}

/// A host whose memory leaks, whose processes come and go, and which is not seen for a while.
fn life() -> Vec<Snapshot> {
    let gib = Bytes::from_gib;
    let mut host = example::host(2)
        .with(100, "python train.py", 0, gib(4))
        .with(200, "python eval.py", 1, gib(9));
    let mut random = 1_u64;
    let mut lines = Vec::new();
    for pass in 0..400_u64 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let seconds = match pass {
            // Longer than the history has patience, and longer than it keeps seconds.
            150 => 40,
            250 => 1200,
            _ if pass % 7 == 0 => 3,
            _ => 2,
        };
        host = host.later(seconds);
        match pass {
            60 => {
                host = host.with(300, "python third.py", 0, gib(1)).related(
                    301,
                    300,
                    "python third.py",
                );
            }
            90 => host.unix_ms -= 7_200_000,
            120 => host = host.without(200),
            180 => host.gpus[0].health.xids.push(Xid {
                at: host.at,
                code: 31,
            }),
            200 => host = host.with(100, "python train.py", 1, gib(1)),
            300 => host = host.without(300),
            330 => host.gpus[1].load.memory_used = Err(crate::protocol::snapshot::Missing::Failed),
            _ => {}
        }
        for gpu in &mut host.gpus {
            gpu.load.sm = Ok(Percent::new(f32::from(u8::try_from(random >> 57).unwrap())));
            for gpu_process in &mut gpu.processes {
                let noise = random >> 44 & 0xff000;
                gpu_process.memory = match gpu_process.process.pid {
                    100 => Ok(Bytes((4 << 30) + (pass << 24) + noise)),
                    _ => gpu_process.memory,
                };
            }
            let used: Option<Bytes> = gpu
                .processes
                .iter()
                .map(|gpu_process| gpu_process.memory.ok())
                .sum();
            gpu.load.memory_used = gpu.load.memory_used.and(Ok(used.unwrap()));
        }
        for process in &mut host.processes {
            process.load.rss = Ok(Bytes(random >> 34));
            let allocated = Bytes((pass << 24) + (random >> 40));
            process.allocator = Some(
                example::allocator_stats(Some(host.gpus[0].uuid.clone()), gib(5), allocated).into(),
            );
        }
        lines.push(host.clone());
    }
    lines
}

/// Checks everything that the screens show.
#[track_caller]
fn assert_same(one: &HostModel, other: &HostModel, line: usize) {
    assert_eq!(one.verdicts(), other.verdicts(), "{line}");
    assert_eq!(one.suspects(), other.suspects(), "{line}");
    assert_eq!(one.leaking(), other.leaking(), "{line}");
    assert!(one.news().eq(other.news()), "{line}");
    let latest = one.latest().unwrap();
    let gpus = latest
        .gpus
        .iter()
        .map(|gpu| GpuOrProcess::Gpu(gpu.uuid.clone()));
    let processes = latest
        .processes
        .iter()
        .map(|process| GpuOrProcess::Process(process.id));
    for subject in gpus.chain(processes) {
        assert!(
            one.history()
                .events(&subject)
                .eq(other.history().events(&subject)),
            "{line}"
        );
        let shown = |model: &HostModel| {
            let windows = [10, 60, 600, 900, 3600, 21_600, 604_800].map(|seconds| {
                let window =
                    Window::until(model.now(), std::time::Duration::from_secs(seconds), 100);
                format!(
                    "{:?}",
                    model
                        .series(&subject)
                        .map(|series| series.over(&window, model.now()))
                )
            });
            (windows, format!("{:?}", model.growth(&subject)))
        };
        assert_eq!(shown(one), shown(other), "{line}: {subject:?}");
    }
    assert_eq!(one.checkpoint(), other.checkpoint(), "{line}");
}

#[test]
fn a_model_goes_on_from_a_checkpoint_as_if_it_had_seen_every_line() {
    let lines = life();
    let mut whole = HostModel::default();
    let mut later: Vec<HostModel> = Vec::new();
    for (place, line) in lines.iter().enumerate() {
        whole.replace(line.clone());
        for model in &mut later {
            let change = Change::between(&lines[place - 1], line).unwrap();
            model.change(change).unwrap();
        }
        if place % 10 == 0 || [59, 61, 119, 121, 149, 151, 249, 251].contains(&place) {
            for model in &later {
                assert_same(&whole, model, place);
            }
            later.push(restored(line, &whole));
        }
    }
    assert!(
        !whole.suspects().is_empty(),
        "the life of the host has a leak"
    );
    assert!(whole.news().count() > 5);
}

#[test]
fn a_viewer_that_reads_its_own_past_adds_what_it_sees_now() {
    let lines = life();
    let (mut before, mut whole) = (HostModel::default(), HostModel::default());
    for line in &lines[..200] {
        before.replace(line.clone());
        whole.replace(line.clone());
    }
    whole.replace(lines[240].clone());
    assert_same(&whole, &restored(&lines[240], &before), 240);
}

#[test]
fn the_hue_of_a_user_survives_a_checkpoint() {
    let of_users = |names: &[&str]| {
        (7..)
            .zip(names)
            .fold(example::host(1), |host, (pid, name)| {
                let mut host = host.with(pid, "python train.py", 0, Bytes::from_gib(1));
                let process = host.processes.iter_mut().find(|it| it.id.pid == pid);
                process.unwrap().facts_mut().user = Ok((*name).into());
                host
            })
    };
    let names = ["a", "b", "c", "d", "e"];
    let mut before = HostModel::default();
    // Each later user gets a hue that is free: alone, `e` would have another one.
    for seen in 1..=names.len() {
        let host = of_users(&names[..seen]).later(u64::try_from(seen).unwrap());
        before.apply(Line::Full(Box::new(host))).unwrap();
    }
    let latest = of_users(&names[4..]).later(9);
    before.apply(Line::Full(Box::new(latest.clone()))).unwrap();
    let after = restored(&latest, &before);
    let hues = |model: &HostModel| names.map(|name| model.user_hue(&name.into()));
    assert_eq!(hues(&after), hues(&before));
    assert!(hues(&after).iter().all(Option::is_some));
    let mut alone = HostModel::default();
    alone.apply(Line::Full(Box::new(latest))).unwrap();
    assert_ne!(hues(&alone)[4], hues(&before)[4]);
}

#[test]
fn a_checkpoint_of_another_boot_version_or_time_is_ignored() {
    let lines = life();
    let mut before = HostModel::default();
    lines[..100]
        .iter()
        .for_each(|line| before.replace(line.clone()));
    let fresh = |latest: &Snapshot| {
        let mut model = HostModel::default();
        model.replace(latest.clone());
        model.checkpoint()
    };
    let mut rebooted = lines[100].clone();
    rebooted.host.facts.boot_id = "another".into();
    assert_eq!(restored(&rebooted, &before).checkpoint(), fresh(&rebooted));
    assert_eq!(
        restored(&lines[98], &before).checkpoint(),
        fresh(&lines[98]),
        "it is from the future"
    );
    assert_ne!(
        restored(&lines[99], &before).checkpoint(),
        fresh(&lines[99])
    );
    let mut model = HostModel::default();
    model.replace(lines[99].clone());
    let checkpoint = Checkpoint {
        version: VERSION + 1,
        ..before.checkpoint().unwrap()
    };
    model.apply(Line::Checkpoint(checkpoint.into())).unwrap();
    assert_eq!(model.checkpoint(), fresh(&lines[99]));
    let mut empty = HostModel::default();
    empty.apply(written(&before)).unwrap();
    assert_eq!(empty.checkpoint(), None);
}

/// Replaces the value at a place, counted through the whole tree, by another one of the same kind.
/// Returns whether the tree has that many values.
fn forge(value: &mut Value, place: &mut usize, number: u64, text: &str) -> bool {
    if let Some(rest) = place.checked_sub(1) {
        *place = rest;
        return match value {
            Value::Array(items) => items
                .iter_mut()
                .any(|item| forge(item, place, number, text)),
            Value::Object(fields) => fields
                .values_mut()
                .any(|field| forge(field, place, number, text)),
            _ => false,
        };
    }
    match value {
        Value::Number(_) => *value = number.into(),
        Value::String(_) => *value = text.into(),
        Value::Bool(is_so) => *is_so = !*is_so,
        Value::Array(items) if number.is_multiple_of(3) => items.clear(),
        Value::Array(items) if number % 3 == 1 => items.reverse(),
        Value::Array(items) => items.extend(items.clone()),
        Value::Null => *value = number.into(),
        Value::Object(_) => *value = Value::Null,
    }
    true
}

/// Returns the number of values in a tree.
fn values(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(values).sum::<usize>(),
        Value::Object(fields) => fields.values().map(values).sum(),
        _ => 0,
    }
}

fn any_number() -> impl Strategy<Value = u64> {
    let edges = [
        0,
        1,
        2,
        7,
        64,
        255,
        1 << 31,
        (1 << 32) - 2,
        (1 << 32) - 1,
        1 << 32,
        1 << 53,
        Moment::LATEST.0,
        u64::MAX,
    ];
    prop_oneof![
        proptest::sample::select(edges.to_vec()),
        any::<u64>(),
        0..2_000_000_u64
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// A forged checkpoint is refused or leads to wrong figures, but never to a panic.
    #[test]
    fn a_forged_checkpoint_does_no_harm(
        forged in proptest::collection::vec((0.0..1.0, any_number(), "[A-Za-z0-9+/]{0,80}"), 1..6)
    ) {
        static LIFE: std::sync::LazyLock<(Vec<Snapshot>, Value, usize)> = std::sync::LazyLock::new(|| {
            let lines = life();
            let mut model = HostModel::default();
            lines[..310].iter().for_each(|line| model.replace(line.clone()));
            let state: Value = serde_json::from_str(model.checkpoint().unwrap().state.get()).unwrap();
            let count = values(&state);
            (lines, state, count)
        });
        let (lines, state, count) = &*LIFE;
        let mut state = state.clone();
        for (share, number, text) in forged {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a place")]
            let mut place = (share * *count as f64) as usize;
            forge(&mut state, &mut place, number, &text);
        }
        let state = to_raw_value(&state).unwrap();
        let mut model = HostModel::default();
        model.replace(lines[311].clone());
        model.apply(Line::Checkpoint(Checkpoint { version: VERSION, at: lines[309].at, unix_ms: 0, state }.into())).unwrap();
        for line in &lines[312..] {
            model.replace(line.clone());
            model.news().for_each(|item| assert!(!item.sentence.contains('\u{1b}')));
        }
        let now = model.now();
        for gpu in &lines[320].gpus {
            let subject = GpuOrProcess::Gpu(gpu.uuid.clone());
            for seconds in [10, 900, 604_800] {
                let window = Window::until(now, std::time::Duration::from_secs(seconds), 100);
                let history = model.history().gpu(&gpu.uuid).unwrap();
                _ = (history.memory.over(&window, now), history.sm.over(&window, now));
            }
            _ = (model.growth(&subject), model.leaking(), model.checkpoint());
        }
    }
}
