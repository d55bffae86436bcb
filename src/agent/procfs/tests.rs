//! Tests that read this test process and its children.

use std::process::{Command, Stdio};

use super::*;
use crate::base::text::Text;

fn read(processes: &mut Processes, pid: u32, listed: Moment) -> Process {
    processes.begin_pass();
    processes.read_listed(pid, listed, Err(Missing::NotYet));
    processes.end_pass().next().cloned().unwrap()
}

fn no_processes() -> Processes {
    Processes::new(true, DeviceFiles::from_environment(), mpsc::channel().0)
}

#[test]
fn an_identity_is_certain_when_a_tick_passed_between_start_and_list() {
    let mut processes = no_processes();
    let me = read(&mut processes, std::process::id(), Moment(0));
    assert_eq!(me.facts.identity, Identity::Fresh);
    let start = processes.procfs.moment(me.id.start_ticks.unwrap());
    let me = read(&mut processes, std::process::id(), Moment(start.0 + 19));
    assert_eq!(me.facts.identity, Identity::Fresh);
    // A certain identity stays certain: the descriptor belongs to this process.
    processes.shown.values_mut().for_each(|me| {
        me.identify(
            &processes.procfs,
            Moment(start.0 + 20),
            Some(Moment(u64::MAX)),
        );
    });
    let me = read(&mut processes, std::process::id(), Moment(0));
    assert_eq!(me.facts.identity, Identity::Sure);
}

#[test]
fn rates_need_a_second_reading() {
    let mut processes = no_processes();
    let first = read(&mut processes, std::process::id(), Moment(0));
    assert_eq!(
        (first.load.cpu, first.facts.parent.is_ok()),
        (Err(Missing::NotYet), true)
    );
    assert!(first.load.rss.is_ok_and(|rss| rss > Bytes::from_mib(1)));
    let me = processes.shown.get_mut(&std::process::id()).unwrap();
    me.cpu = me.cpu.map(|(at, ticks)| (Moment(at.0 - 1000), ticks));
    let second = read(&mut processes, std::process::id(), Moment(0));
    assert!(second.load.cpu.is_ok());
}

#[test]
fn a_process_that_nvml_lists_after_its_end_is_only_a_pid() {
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let mut processes = no_processes();
    let alive = read(&mut processes, child.id(), Moment(0));
    assert_eq!(
        alive.id.start_ticks,
        processes.shown[&child.id()].process.id.start_ticks
    );
    child.kill().unwrap();
    child.wait().unwrap();
    // The list is older than the end, also when the GPU hangs and the list is read again.
    for is_first in [true, false] {
        let before = read(&mut processes, child.id(), Moment(0));
        assert_eq!(
            (before.id, before.load.state),
            (alive.id, Err(Missing::Gone))
        );
        assert_eq!(
            std::mem::take(&mut processes.has_relation_changed),
            is_first
        );
    }
    let gone = read(&mut processes, child.id(), Moment(u64::MAX));
    assert!(!processes.has_relation_changed);
    assert_eq!(
        (gone.id.start_ticks, gone.facts.identity),
        (None, Identity::Unverified)
    );
    assert_eq!(gone.load.state, Err(Missing::Gone));
    processes.begin_pass();
    assert_eq!(processes.end_pass().count(), 0);
}

#[test]
fn a_process_that_ends_while_being_read_is_no_failure() {
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let mut processes = no_processes();
    processes.begin_pass();
    processes.read_listed(child.id(), Moment(0), Err(Missing::NotYet));
    child.kill().unwrap();
    child.wait().unwrap();
    let ended = processes.end_pass().next().cloned().unwrap();
    assert_eq!(
        (ended.facts.uid, ended.facts.user.clone()),
        (Err(Missing::NotYet), Err(Missing::NotYet))
    );
}

#[test]
fn a_postponed_process_is_not_shown_until_it_is_read() {
    let (mut processes, me) = (no_processes(), std::process::id());
    processes.begin_first_pass();
    processes.reads_left = Some(0);
    assert_eq!(
        processes.read_listed(me, Moment(0), Err(Missing::NotYet)),
        ProcessId {
            pid: me,
            start_ticks: None
        }
    );
    assert_eq!(processes.end_pass().next(), None);
    processes.read_postponed();
    assert!(processes.shown[&me].cpu.is_some());
    let seen = read(&mut processes, me, Moment(0));
    assert!(
        seen.id.start_ticks.is_some() && seen.facts.uid.is_ok(),
        "{seen:?}"
    );
}

#[test]
fn the_same_pid_in_another_namespace_does_not_verify_a_process() {
    let mut processes = no_processes();
    processes.procfs = HostProcfs::foreign();
    let me = read(&mut processes, std::process::id(), Moment(u64::MAX));
    assert_eq!(me.facts.identity, Identity::Unverified);
    let absent = read(&mut processes, 1 << 22, Moment(u64::MAX));
    assert_eq!(absent.facts.comm, Err(Missing::Unsupported));
}

#[test]
fn a_process_is_read_without_an_open_descriptor() {
    let mut processes = no_processes();
    let first = read(&mut processes, std::process::id(), Moment(0));
    processes.shown.values_mut().for_each(|me| me.stat = None);
    assert_eq!(
        read(&mut processes, std::process::id(), Moment(0)).id,
        first.id
    );
    // As if another process had the PID now.
    processes
        .shown
        .values_mut()
        .for_each(|me| me.process.id.start_ticks = Some(1));
    assert_eq!(
        read(&mut processes, std::process::id(), Moment(0)).id,
        first.id
    );
}

/// Runs a pass in which NVML lists some processes and the scan finds related ones.
fn pass(processes: &mut Processes, listed: &[u32], related: &[ProcessId]) -> Vec<Process> {
    processes.begin_pass();
    for pid in listed {
        processes.read_listed(*pid, Moment(u64::MAX), Err(Missing::NotYet));
    }
    processes.read_related(related, false, |_| false);
    processes.end_pass().cloned().collect()
}

fn me() -> ProcessId {
    let start_ticks = stat::read_process(std::process::id(), &mut Vec::new())
        .unwrap()
        .start_ticks;
    ProcessId {
        pid: std::process::id(),
        start_ticks: Some(start_ticks),
    }
}

#[test]
fn a_related_process_is_certain_in_any_namespace_and_its_successor_is_not_related() {
    let mut processes = no_processes();
    processes.procfs = HostProcfs::foreign();
    // NVML may mean a process of another namespace; the scan means this process.
    let shown = pass(&mut processes, &[me().pid], &[me()]);
    assert_eq!(shown[0].facts.identity, Identity::Unverified);
    assert_eq!(processes.gpu_users().count(), 0);
    let shown = loop {
        let shown = pass(&mut processes, &[], &[me()]);
        // This test may run within a clock tick of the start of its process.
        if shown[0].facts.identity != Identity::Fresh {
            break shown;
        }
    };
    assert_eq!(
        (shown[0].id, shown[0].facts.identity),
        (me(), Identity::Sure)
    );
    let shown = pass(&mut processes, &[me().pid], &[me()]);
    assert_eq!(shown[0].facts.identity, Identity::Unverified);
    let other = ProcessId {
        start_ticks: Some(1),
        ..me()
    };
    assert_eq!(pass(&mut processes, &[], &[other]), []);
}

#[test]
fn the_end_of_a_gpu_process_counts_once() {
    let mut processes = no_processes();
    pass(&mut processes, &[me().pid, 1 << 22], &[]);
    pass(&mut processes, &[me().pid, 1 << 22], &[]);
    assert!(!std::mem::take(&mut processes.has_relation_changed));
    pass(&mut processes, &[1 << 22], &[me()]);
    assert!(std::mem::take(&mut processes.has_relation_changed));
    pass(&mut processes, &[1 << 22], &[me()]);
    assert!(!std::mem::take(&mut processes.has_relation_changed));
}

#[test]
fn a_related_process_has_parent_group_and_session_and_is_no_trainer() {
    let mut processes = no_processes();
    let shown = pass(&mut processes, &[], &[me()]);
    let facts = &shown[0].facts;
    // SAFETY: the call takes no pointer. rustix cannot return 0, a session outside of the PID
    // namespace.
    let session = unsafe { libc::getsid(0) };
    assert_eq!(facts.session.map(i64::from), Ok(i64::from(session)));
    assert_eq!(facts.trainer_threads, Err(Missing::Unsupported));
    assert_eq!(shown[0].load.wchan, Err(Missing::Unsupported));
}

#[test]
fn a_trainer_is_recognized_by_its_threads() {
    let mut processes = no_processes();
    let (stop, stopped) = mpsc::channel::<()>();
    let thread = std::thread::Builder::new().name("pt_autograd_0".to_owned());
    let thread = thread.spawn(move || stopped.recv().is_err()).unwrap();
    // A thread names itself after it started.
    while !pass(&mut processes, &[me().pid], &[])[0]
        .facts
        .trainer_threads
        .is_ok_and(|is_trainer| is_trainer)
    {
        processes.shown.clear();
    }
    drop(stop);
    assert!(thread.join().unwrap());
}

#[test]
fn a_candidate_is_accepted_by_its_arguments() {
    let mut processes = no_processes();
    let candidates = [
        ProcessId {
            pid: 7,
            start_ticks: Some(7),
        },
        ProcessId {
            pid: 8,
            start_ticks: Some(8),
        },
    ];
    processes.examine(&candidates);
    let spawned = "from multiprocessing.spawn import spawn_main; spawn_main()";
    for (id, argument) in candidates.into_iter().zip([spawned, "train.py"]) {
        let argv = ["python", "-c", argument]
            .map(Text::from)
            .into_iter()
            .collect();
        processes.set_slow_facts(
            id,
            SlowFacts {
                argv: Ok(argv),
                ..SlowFacts::missing(Missing::Denied)
            },
        );
    }
    assert_eq!(std::mem::take(&mut processes.accepted), [candidates[0]]);
    assert_eq!(std::mem::take(&mut processes.accepted), []);
}

/// The processes with the identity of this one, which a list of the driver proves, and their
/// events.
fn with_certain_identity() -> (Processes, mpsc::Receiver<AgentEvent>) {
    let (events, received) = mpsc::channel();
    let mut processes = Processes::new(true, DeviceFiles::from_environment(), events);
    while read(&mut processes, std::process::id(), clock::now())
        .facts
        .identity
        != Identity::Sure
    {}
    (processes, received)
}

/// Lets passes go by in which this process holds so many MiB, and returns it as the last one shows
/// it.
fn hold(processes: &mut Processes, amounts: impl IntoIterator<Item = u64>) -> Process {
    let mut shown = None;
    for mib in amounts {
        processes.begin_pass();
        processes.read_listed(std::process::id(), clock::now(), Ok(Bytes::from_mib(mib)));
        shown = processes.end_pass().next().cloned();
    }
    shown.expect("there was a pass")
}

#[test]
fn the_bytes_read_are_asked_for_only_while_gpu_memory_clearly_grows() {
    let (mut processes, received) = with_certain_identity();
    // Steady, up and down, and slow growth.
    hold(&mut processes, [1000; 30]);
    hold(&mut processes, [1000, 1040].into_iter().cycle().take(30));
    hold(&mut processes, (1000..1100).step_by(3));
    assert!(processes.slow_files.bytes_read.was_never_used());
    let loading = (1100..5000).step_by(100);
    let last = hold(&mut processes, loading);
    assert!(!processes.slow_files.bytes_read.was_never_used());
    assert_eq!(last.bytes_read, None, "a thread reads them");
    let message = received.iter().find_map(|event| match event {
        AgentEvent::SlowFile(message @ SlowFilesMessage::BytesRead(_)) => Some(message),
        _ => None,
    });
    processes.receive(message.expect("the thread answers"));
    assert!(
        hold(&mut processes, [5100])
            .bytes_read
            .is_some_and(|bytes| bytes > Bytes(0))
    );
    // An answer that comes after the end of the growth does not count.
    assert_eq!(hold(&mut processes, [5100; 40]).bytes_read, None);
    while let Some(AgentEvent::SlowFile(message)) = received.try_iter().next() {
        processes.receive(message);
    }
    assert_eq!(hold(&mut processes, [5100]).bytes_read, None);
}

#[test]
fn an_empty_environment_is_read_again_five_times_since_it_is_empty_during_an_exec() {
    let (events, received) = mpsc::channel();
    let mut processes = Processes::new(true, DeviceFiles::from_environment(), events);
    let mut child = Command::new("/bin/sleep")
        .arg("1000")
        .env_clear()
        .spawn()
        .unwrap();
    let mut reads = 0;
    loop {
        read(&mut processes, child.id(), Moment(0));
        if processes.slow_files.processes.is_idle() {
            break;
        }
        while !processes.slow_files.processes.is_idle() {
            let event = received.recv_timeout(Duration::from_mins(1));
            match event.expect("the thread answers") {
                AgentEvent::SlowFile(message) => processes.receive(message),
                _ => panic!("only files are read"),
            }
        }
        reads += 1;
    }
    assert_eq!(reads, 6);
    let shown = &processes.shown[&child.id()].process.facts;
    let argv = shown.argv.as_ref().unwrap();
    assert!(argv.iter().eq(["/bin/sleep", "1000"]), "{argv:?}");
    child.kill().unwrap();
    child.wait().unwrap();
}
