//! The news of hosts that are described by snapshots.

use super::*;
use crate::model::{HostModel, OrphanEvidence, OrphanSign, Total, VerdictKind};
use crate::protocol::command::Signal;
use crate::protocol::line::Line;
use crate::protocol::reply::{Outcome, Reply};
use crate::protocol::snapshot::{Cause, Missing, State, Trouble, example};

/// The news of a model: severity and sentence.
fn news(model: &HostModel) -> Vec<(Severity, &str)> {
    model
        .news()
        .map(|item| (item.severity, item.sentence.as_str()))
        .collect()
}

#[test]
fn a_process_that_begins_and_ends_is_news_once_with_all_its_gpus() {
    let mut model = HostModel::default();
    let host = example::host(2);
    for second in 0..3 {
        model.replace(host.later(second));
    }
    let memory = Bytes::from_gib(10);
    let with = host.later(3).with(101, "python train.py", 0, memory).with(
        101,
        "python train.py",
        1,
        memory,
    );
    model.replace(with.clone());
    model.replace(with.later(1));
    model.replace(host.later(5));
    model.replace(host.later(6));
    let expected = [
        (Severity::Fine, "101 train.py (alice) began on GPU 0,1"),
        (
            Severity::Fine,
            "101 train.py (alice) exited, held 20.0 GiB on GPU 0,1",
        ),
    ];
    assert_eq!(news(&model), expected);
}

#[test]
fn news_get_the_name_of_a_process_whose_arguments_are_read_later() {
    let mut model = HostModel::default();
    let host = example::host(1);
    for second in 0..3 {
        model.replace(host.later(second));
    }
    let with = host
        .later(3)
        .with(101, "python train.py", 0, Bytes::from_gib(10));
    let mut without_arguments = with.clone();
    let process = without_arguments
        .processes
        .iter_mut()
        .find(|process| process.id.pid == 101)
        .unwrap();
    Arc::make_mut(&mut process.facts).argv = Err(Missing::NotYet);
    model.replace(without_arguments);
    assert_eq!(
        news(&model),
        [(Severity::Fine, "101 python (alice) began on GPU 0")]
    );
    model.replace(with.later(1));
    assert_eq!(
        news(&model),
        [(Severity::Fine, "101 train.py (alice) began on GPU 0")]
    );
}

#[test]
fn a_leak_is_news_when_it_is_found_and_when_it_is_over() {
    let mut model = HostModel::default();
    let mut host = example::host(1).with(101, "python train.py", 0, Bytes::from_gib(10));
    for pass in 0..600 {
        host = host.later(10);
        if pass < 200 {
            host.gpus[0].processes[0].memory.as_mut().unwrap().0 += 80 << 20;
        }
        host.gpus[0].load.memory_used = host.gpus[0].processes[0].memory;
        model.replace(host.clone());
    }
    let [(Severity::Bad, found), (Severity::Fine, over)] = news(&model)[..] else {
        panic!("{:?}", news(&model))
    };
    let has_rate = ["+4", "+50"]
        .iter()
        .any(|rate| found.starts_with(&format!("LEAK 101 train.py (alice) {rate}")));
    assert!(has_rate && found.contains(" MiB/min, full "), "{found}");
    assert_eq!(over, "101 train.py (alice) no longer leaks");
}

#[test]
fn a_leak_that_proves_to_be_a_cache_is_news_with_its_plateau() {
    let mut model = HostModel::default();
    let mut host = example::host(1).with(101, "python serve.py", 0, Bytes::from_gib(10));
    for pass in 0..240_u32 {
        host = host.later(10);
        let share = 1.0 - libm::exp(-f64::from(pass) / 180.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an amount of memory"
        )]
        let held = Bytes::from_mib((10_240.0 + 40_960.0 * share) as u64);
        host.gpus[0].processes[0].memory = Ok(held);
        host.gpus[0].load.memory_used = Ok(held);
        model.replace(host.clone());
    }
    let [(Severity::Bad, leak), (Severity::Fine, over)] = news(&model)[..] else {
        panic!("{:?}", news(&model))
    };
    assert!(leak.starts_with("LEAK 101 serve.py (alice) +"), "{leak}");
    assert!(
        over.starts_with("101 serve.py (alice) fills up and levels off near "),
        "{over}"
    );
}

/// The news on a process that grows by 100 MiB a second for so long, up to 80 GiB, and then no
/// longer.
fn news_on_growth(seconds: u64) -> Vec<String> {
    let mut model = HostModel::default();
    let mut host = example::host(1).with(
        101,
        "python train.py",
        0,
        Bytes(Bytes::from_gib(80).0 - seconds * (100 << 20)),
    );
    for pass in 0..seconds + 900 {
        host = host.later(1);
        if pass < seconds {
            host.gpus[0].processes[0].memory.as_mut().unwrap().0 += 100 << 20;
        }
        host.gpus[0].load.memory_used = host.gpus[0].processes[0].memory;
        model.replace(host.clone());
    }
    let sentences = news(&model)
        .into_iter()
        .map(|(_, sentence)| sentence.to_owned());
    sentences
        .map(|sentence| sentence.split(" +").next().unwrap().to_owned())
        .collect()
}

#[test]
fn memory_that_stops_growing_when_it_is_full_is_not_said_to_have_room() {
    let soon = "FULL SOON 101 train.py (alice)";
    assert_eq!(
        news_on_growth(100),
        [soon, "101 train.py (alice) no longer grows"]
    );
    let leak = "LEAK 101 train.py (alice)";
    assert_eq!(
        news_on_growth(200),
        [soon, leak, "101 train.py (alice) no longer leaks"]
    );
}

#[test]
fn trouble_of_a_gpu_and_its_end_are_news() {
    let mut model = HostModel::default();
    let host = example::host(2);
    model.replace(host.clone());
    let mut sick = host.later(1);
    let sentence = "the driver does not answer";
    sick.gpus[1].trouble = Some(Trouble {
        cause: Cause::Hung,
        sentence: sentence.into(),
        call: None,
        since: sick.at,
    });
    model.replace(sick.clone());
    model.replace(sick.later(1));
    model.replace(host.later(3));
    assert_eq!(
        news(&model),
        [
            (Severity::Bad, "GPU 1: hung"),
            (Severity::Fine, "GPU 1 answers again")
        ]
    );
}

#[test]
fn memory_that_ran_out_is_news_with_the_number_of_times() {
    let mut model = HostModel::default();
    let mut host = example::host(1).with(101, "python train.py", 0, Bytes::from_gib(10));
    for ooms in [1, 1, 3] {
        host = host.later(1);
        let mut stats = example::allocator_stats(None, Bytes::from_gib(6), Bytes::from_gib(4));
        stats.devices[0].ooms = Ok(ooms);
        host.processes[0].allocator = Some(Box::new(stats));
        model.replace(host.clone());
    }
    assert_eq!(
        news(&model),
        [(
            Severity::Bad,
            "OUT OF MEMORY in 101 train.py (alice), 3 times so far"
        )]
    );
}

#[test]
fn a_suspect_is_news_once_when_its_verdict_has_held_for_two_passes() {
    let mut model = HostModel::default();
    let mut host = example::host(1).with(101, "python train.py", 0, Bytes::from_gib(10));
    for pass in 0..5 {
        host = host.later(1);
        host.processes[0].load.state = Ok(if pass == 0 {
            State::Sleeping
        } else {
            State::Stopped
        });
        model.replace(host.clone());
        assert_eq!(
            news(&model).len(),
            usize::from(pass >= 2),
            "{:?}",
            news(&model)
        );
    }
    let (severity, sentence) = news(&model)[0];
    assert!(
        sentence.starts_with("stopped 101 train.py (alice): "),
        "{sentence}"
    );
    assert_eq!(severity, Severity::Notable);
}

#[test]
fn an_alert_about_a_watched_process_is_the_line_about_its_end() {
    let mut model = HostModel::default();
    let host = example::host(1);
    let with = host
        .clone()
        .with(101, "python train.py", 0, Bytes::from_gib(4));
    model.replace(with.clone());
    model.replace(with.later(1));
    model.replace(host.later(2));
    let process = with.processes[0].id;
    model.add_alert(
        GpuOrProcess::Process(process),
        "101 (python train.py) has ended",
    );
    model.add_alert(
        GpuOrProcess::Gpu(host.gpus[0].uuid.clone()),
        "GPU 0 is free",
    );
    let expected = [
        (
            Severity::Notable,
            "ALERT 101 train.py (alice) exited, held 4.0 GiB on GPU 0",
        ),
        (Severity::Notable, "ALERT GPU 0 is free"),
    ];
    assert_eq!(news(&model), expected);
}

#[test]
fn an_alert_that_comes_before_the_list_of_the_driver_becomes_the_line_about_the_end() {
    let mut model = HostModel::default();
    let host = example::host(1);
    let with = host
        .clone()
        .with(101, "python train.py", 0, Bytes::from_gib(4));
    model.replace(with.clone());
    let mut ended = with.later(1);
    ended.processes[0].load.state = Err(Missing::Gone);
    model.replace(ended);
    model.add_alert(
        GpuOrProcess::Process(with.processes[0].id),
        "101 (python train.py) has ended",
    );
    let early = (Severity::Notable, "ALERT 101 (python train.py) has ended");
    assert_eq!(news(&model), [early]);
    model.replace(host.later(2));
    let expected = "ALERT 101 train.py (alice) exited, held 4.0 GiB on GPU 0";
    assert_eq!(news(&model), [(Severity::Notable, expected)]);
}

#[test]
fn a_signal_to_a_process_without_gpu_memory_names_it_and_its_user_although_it_has_ended() {
    let mut model = HostModel::default();
    let mut host = example::host(1).with(101, "python train.py", 0, Bytes::from_gib(4));
    host.gpus[0].processes.clear();
    let process = host.processes[0].id;
    model.replace(host.clone());
    let outcome = Outcome::Sent {
        signal: Signal::Term,
        at: host.at,
    };
    model
        .apply(Line::Reply(Reply { process, outcome }))
        .unwrap();
    model.replace(host.without(101).later(1));
    assert_eq!(
        news(&model),
        [(Severity::Notable, "SIGTERM sent to 101 train.py (alice)")]
    );
}

#[test]
fn an_orphan_that_was_only_possible_before_is_one_line() {
    let host = example::host(1).with(101, "python train.py", 0, Bytes::from_gib(4));
    let mut log = NewsLog::default();
    let mut words_after = |kind: fn(OrphanEvidence) -> VerdictKind| {
        let signs = vec![OrphanSign::GroupLeaderGone(99)];
        let verdict = Verdict {
            process: host.processes[0].id,
            kind: kind(OrphanEvidence {
                signs,
                serves: false,
                computes: false,
            }),
            listed: Some(Ok(Total {
                bytes: Bytes::from_gib(4),
                is_lower_bound: false,
            })),
            open: Vec::new(),
            kept: Vec::new(),
            rss: Ok(Bytes(0)),
            undecided_for: None,
        };
        let verdicts = [verdict];
        let history = History::default();
        let sources = || NewsSources {
            snapshot: &host,
            history: &history,
            verdicts: &verdicts,
            growing: &[],
            clock: None,
        };
        log.add_snapshot(&sources());
        log.add_snapshot(&sources());
        let word = |item: &NewsItem| item.sentence.split(' ').next().unwrap().to_owned();
        log.iter().map(word).collect::<Vec<_>>()
    };
    assert_eq!(words_after(VerdictKind::MaybeOrphan), ["orphan?"]);
    assert_eq!(words_after(VerdictKind::Orphan), ["orphan"]);
    assert_eq!(words_after(VerdictKind::MaybeOrphan), ["orphan"]);
}
