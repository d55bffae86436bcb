//! Tests of the history: remembered processes, curves, memory use and events.

use super::*;
use crate::base::units::Watts;
use crate::protocol::snapshot::example::{allocator_stats, host};

fn id(pid: u32) -> ProcessId {
    ProcessId {
        pid,
        start_ticks: Some(u64::from(pid)),
    }
}

/// Adds `passes` snapshots of a host, one each second, each changed from the one before. Returns
/// the last one.
fn watch(
    history: &mut History,
    mut host: Snapshot,
    passes: u64,
    mut change: impl FnMut(u64, Snapshot) -> Snapshot,
) -> Snapshot {
    for pass in 0..passes {
        host = change(pass, host.later(1));
        history.add_snapshot(&host, &crate::model::process_total::process_totals(&host));
    }
    host
}

impl History {
    /// The heap memory of the whole history in bytes.
    fn bytes(&self) -> usize {
        let gpu = |gpu: &GpuHistory| {
            gpu.memory.curve.bytes() + gpu.sm.bytes() + gpu.power.bytes() + gpu.temperature.bytes()
        };
        let process = |history: &ProcessHistory| {
            let own = size_of::<ProcessHistory>();
            let parts = history
                .parts
                .iter()
                .map(|(_, series)| series.curve.bytes())
                .sum::<usize>();
            let all = history.all.as_ref().map_or(0, |history| {
                size_of::<MemoryHistory>() + history.curve.bytes()
            });
            let allocator = history.allocator.as_ref().map_or(0, |allocator| {
                size_of::<AllocatorHistory>()
                    + allocator.allocated.curve.bytes()
                    + allocator.reserved.curve.bytes()
            });
            own + allocator
                + parts
                + history.parts.capacity() * size_of::<(GpuUuid, MemoryHistory)>()
                + all
                + history.sm.bytes()
                + history.rss.bytes()
        };
        self.gpus.values().map(gpu).sum::<usize>()
            + self
                .processes
                .values()
                .map(|history| process(history))
                .sum::<usize>()
            + self.gpus.len() * size_of::<(GpuUuid, GpuHistory)>()
            + 2 * self.processes.len() * size_of::<(ProcessId, Box<ProcessHistory>)>()
    }
}

#[test]
fn a_process_on_two_gpus_has_a_curve_for_each_and_one_for_both() {
    let mut history = History::default();
    let one = host(2).with(100, "python train.py", 0, Bytes::from_gib(3));
    let one = watch(&mut history, one, 10, |_, host| host);
    let both = one.with(100, "python train.py", 1, Bytes::from_gib(2));
    let both = watch(&mut history, both, 10, |_, host| host);
    let process = history.process(id(100)).unwrap();
    let latest = |series: Option<&MemoryHistory>| series.and_then(MemoryHistory::latest);
    assert_eq!(
        latest(process.on_gpu(&both.gpus[0].uuid)),
        Some(Bytes::from_gib(3))
    );
    assert_eq!(
        latest(process.on_gpu(&both.gpus[1].uuid)),
        Some(Bytes::from_gib(2))
    );
    assert_eq!(latest(process.memory()), Some(Bytes::from_gib(5)));
    let all = process.memory().unwrap();
    assert_eq!(
        (all.baseline(), all.peak),
        (Some(Bytes::from_gib(3)), Some(Bytes::from_gib(5)))
    );
    let before = all.at(Moment(both.at.0 - 15_000), both.at).unwrap();
    assert_eq!(before.high, Bytes::from_gib(3));
}

#[test]
fn an_ended_process_is_remembered_for_hours_and_not_mistaken_for_its_successor() {
    let mut history = History::default();
    let host = host(1).with(100, "python train.py", 0, Bytes::from_gib(3));
    let host = watch(&mut history, host, 10, |_, host| host);
    let host = watch(&mut history, host.without(100), 1, |_, host| host);
    assert_eq!(history.process(id(100)).unwrap().gone, Some(host.at));
    let ended = history.gpu_processes(&host.gpus[0].uuid);
    assert_eq!(
        ended.iter().map(|(id, ..)| id.pid).collect::<Vec<_>>(),
        [100]
    );
    let mut again = host
        .clone()
        .with(100, "python other.py", 0, Bytes::from_gib(1));
    again.gpus[0].processes[0].process.start_ticks = Some(7);
    again.processes[0].id.start_ticks = Some(7);
    let again = watch(&mut history, again, 10, |_, host| host);
    assert_eq!(history.gpu_processes(&again.gpus[0].uuid).len(), 2);
    watch(&mut history, again.later(6 * 3600), 1, |_, host| host);
    assert!(history.process(id(100)).is_none());
}

#[test]
fn of_many_ended_processes_the_longest_running_stay() {
    let mut history = History::default();
    let host = host(1).with(7, "python train.py", 0, Bytes::from_gib(3));
    let host = watch(&mut history, host, 60, |_, host| host).without(7);
    watch(&mut history, host, 500, |pass, host| {
        let pid = 1000 + u32::try_from(pass).unwrap();
        host.without(pid - 1)
            .with(pid, "python eval.py", 0, Bytes::from_gib(1))
    });
    assert!(
        history.processes.len() <= MOST_GONE + 1,
        "{}",
        history.processes.len()
    );
    assert!(history.process(id(7)).is_some());
}

#[test]
fn load_temperature_and_power_are_kept_too() {
    let mut history = History::default();
    let host = host(1).with(100, "python train.py", 0, Bytes::from_gib(3));
    let host = watch(&mut history, host, 10, |_, host| host);
    let gpu = history.gpu(&host.gpus[0].uuid).unwrap();
    let now = |curve: &Curve| curve.at(host.at, host.at).map(|range| range.high);
    assert_eq!((now(&gpu.sm), now(&gpu.power)), (Some(50), Some(300)));
    assert_eq!(now(&gpu.temperature).map(GpuHistory::celsius), Some(50));
    let process = history.process(id(100)).unwrap();
    assert_eq!(
        (now(&process.sm), now(&process.rss)),
        (Some(40), Some(3 << 20))
    );
}

#[test]
fn a_thousand_young_processes_take_almost_no_memory() {
    let mut history = History::default();
    let crowd = (0..1000).fold(host(4), |host, number| {
        host.with(
            1000 + number,
            "python train.py",
            number as usize % 4,
            Bytes::from_mib(u64::from(number)),
        )
    });
    watch(&mut history, crowd, 10, |_, host| host);
    assert!(history.bytes() < 1 << 20, "{}", history.bytes());
}

/// The history of a week with figures that never repeat, of 8 GPUs, 64 processes, and as many ended
/// processes as are remembered.
#[test]
fn a_full_history_takes_less_than_six_mebibytes() {
    let mut history = History::default();
    let mut host = (0..64).fold(host(8), |host, number| {
        host.with(
            1000 + number,
            "python train.py",
            number as usize % 8,
            Bytes::from_gib(1),
        )
    });
    let mut noise = 1u32;
    let mut next = || {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        noise >> 1
    };
    let (week, six_hours, quarter) = (7 * 86_400, 6 * 3600, 900);
    let steps = [
        (week - six_hours, 300),
        (six_hours - quarter, 10),
        (quarter, 1),
    ];
    let steps = steps
        .into_iter()
        .flat_map(|(span, step)| std::iter::repeat_n(step, usize::try_from(span / step).unwrap()));
    host.interval_ms = 300_000;
    for (pass, step) in steps.enumerate() {
        host.at = Moment(host.at.0 + step * 1000);
        for gpu in &mut host.gpus {
            gpu.load.at = host.at;
            gpu.load.memory_used = Ok(Bytes::from_kib(next().into()));
            gpu.load.sm = Ok(Percent::new(f32::from(u8::try_from(next() % 256).unwrap())));
            gpu.load.power = Ok(Watts::from_milliwatts(next() % 1_000_000));
            for gpu_process in &mut gpu.processes {
                gpu_process.memory = Ok(Bytes::from_kib(next().into()));
                gpu_process.sm = Ok(Percent::new(f32::from(u8::try_from(next() % 256).unwrap())));
            }
        }
        for process in &mut host.processes {
            process.load.rss = Ok(Bytes::from_kib(next().into()));
            let amounts = (next() >> 1, next() >> 1);
            let [allocated, reserved] =
                [amounts.0, amounts.0 + amounts.1].map(|kib| Bytes::from_kib(kib.into()));
            process.allocator = Some(allocator_stats(None, reserved, allocated).into());
        }
        // Some processes are replaced in the last pass.
        if pass % 20 == 0 && step == 1 {
            let pid = host.processes[0].id.pid;
            host = host.without(pid).with(
                pid + 64,
                "python train.py",
                pid as usize % 8,
                Bytes::from_gib(1),
            );
        }
        history.add_snapshot(&host, &crate::model::process_total::process_totals(&host));
    }
    assert_eq!(
        history
            .processes
            .values()
            .filter(|process| process.gone.is_some())
            .count(),
        MOST_GONE
    );
    let bytes = history.bytes();
    assert!(bytes < 6 << 20, "{bytes}");
    assert!(bytes > 2_500_000, "it is not full: {bytes}");
}

#[test]
fn begin_end_drop_and_signal_are_events() {
    let mut history = History::default();
    let host = host(1).with(100, "python train.py", 0, Bytes::from_gib(8));
    let host = watch(&mut history, host, 5, |_, host| host);
    let mut host = watch(
        &mut history,
        host.with(200, "python eval.py", 0, Bytes::from_gib(1)),
        1,
        |_, host| host,
    );
    let came = host.at;
    host.gpus[0].processes[0].memory = Ok(Bytes::from_gib(3));
    let mut host = watch(&mut history, host, 1, |_, host| host);
    let fell = host.at;
    host.gpus[0]
        .health
        .xids
        .push(crate::protocol::snapshot::Xid { at: fell, code: 79 });
    history.signalled(id(200), Signal::Term, fell);
    let host = watch(&mut history, host.without(200), 3, |_, host| host);
    let gpu = GpuOrProcess::Gpu(host.gpus[0].uuid.clone());
    let noted: Vec<_> = history
        .events(&gpu)
        .map(|event| {
            (
                event.at.since(came).as_secs(),
                event.process.as_ref().map(|named| named.0.pid),
                event.kind,
            )
        })
        .collect();
    let expected = [
        (1, None, HistoryEventKind::Xid(79)),
        (
            2,
            Some(200),
            HistoryEventKind::Ended(Some(Bytes::from_gib(1))),
        ),
        (1, Some(200), HistoryEventKind::Signalled(Signal::Term)),
        (
            1,
            Some(100),
            HistoryEventKind::Dropped {
                from: Bytes::from_gib(8),
                to: Bytes::from_gib(3),
            },
        ),
        (0, Some(200), HistoryEventKind::Began),
    ];
    assert_eq!(noted, expected);
    let of = |pid| history.events(&GpuOrProcess::Process(id(pid))).count();
    assert_eq!((of(100), of(200)), (2, 4));
}

#[test]
fn processes_on_a_gpu_that_answers_late_did_not_begin_then() {
    let mut history = History::default();
    let late = host(1).with(100, "python train.py", 0, Bytes::from_gib(8));
    let gpus = late.gpus.clone();
    let empty = watch(
        &mut history,
        Snapshot {
            gpus: vec![],
            ..late
        },
        4,
        |_, host| host,
    );
    let at = Moment(empty.at.0 + empty.interval_ms);
    let mut host = Snapshot { at, gpus, ..empty };
    host.gpus[0].load.at = at;
    host = watch(&mut history, host, 3, |_, host| host);
    let gpu = GpuOrProcess::Gpu(host.gpus[0].uuid.clone());
    assert_eq!(history.events(&gpu).count(), 0);
    let host = watch(
        &mut history,
        host.with(200, "python eval.py", 0, Bytes::from_gib(1)),
        1,
        |_, host| host,
    );
    let kinds: Vec<_> = history.events(&gpu).map(|event| event.kind).collect();
    assert_eq!(
        (kinds, host.gpus[0].processes.len()),
        (vec![HistoryEventKind::Began], 2)
    );
}

#[test]
fn the_baseline_of_a_process_is_the_sum_over_its_gpus() {
    let gib = Bytes::from_gib;
    let first = |hosts: &[Snapshot]| {
        let mut history = History::default();
        for host in hosts {
            history.add_snapshot(host, &crate::model::process_total::process_totals(host));
        }
        history
            .process(id(100))
            .unwrap()
            .memory()
            .unwrap()
            .baseline()
    };
    let one = host(2).with(100, "python train.py", 0, gib(8));
    let both = one.clone().with(100, "python train.py", 1, gib(9));
    assert_eq!(first(&[both.clone(), both.later(1)]), Some(gib(17)));
    assert_eq!(first(&[one.clone(), both.later(1)]), Some(gib(8)));
}
