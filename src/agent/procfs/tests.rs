//! What `/proc` says of this very test, and of children that end.

use std::process::{Command, Stdio};

use super::*;
use crate::base::text::Text;

fn see(processes: &mut Processes, pid: u32, listed: Moment) -> Process {
    processes.begin();
    processes.see(pid, listed, Err(Missing::NotYet));
    processes.end().next().cloned().unwrap()
}

fn nobody() -> Processes {
    Processes::new(true, Devices::of_host(), mpsc::channel().0)
}

#[test]
fn a_process_is_sure_when_it_started_well_before_it_was_listed() {
    let mut processes = nobody();
    let me = see(&mut processes, std::process::id(), Moment(0));
    assert_eq!(me.facts.identity, Identity::Fresh);
    let start = processes.root.moment(me.id.start_ticks.unwrap());
    let me = see(&mut processes, std::process::id(), Moment(start.0 + 19));
    assert_eq!(me.facts.identity, Identity::Fresh);
    // Once sure it stays so: the descriptor is of this process and no other.
    processes
        .known
        .values_mut()
        .for_each(|me| me.identify(&processes.root, Moment(start.0 + 20), Some(Moment(u64::MAX))));
    let me = see(&mut processes, std::process::id(), Moment(0));
    assert_eq!(me.facts.identity, Identity::Sure);
}

#[test]
fn rates_need_a_second_reading() {
    let mut processes = nobody();
    let first = see(&mut processes, std::process::id(), Moment(0));
    assert_eq!((first.load.cpu, first.facts.parent.is_ok()), (Err(Missing::NotYet), true));
    assert!(first.load.rss.is_ok_and(|rss| rss > Bytes::from_mib(1)));
    let me = processes.known.get_mut(&std::process::id()).unwrap();
    me.cpu = me.cpu.map(|(at, ticks)| (Moment(at.0 - 1000), ticks));
    let second = see(&mut processes, std::process::id(), Moment(0));
    assert!(second.load.cpu.is_ok());
}

#[test]
fn whether_one_is_frozen_is_looked_at_when_it_seems_so_and_not_in_each_pass() {
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let (root, mut aside) = (Root::new(true, Devices::of_host()), Aside::new(mpsc::channel().0));
    let (mut buffer, mut now) = ([0; 1024], clock::now());
    let mut entry = Entry::unreadable(child.id());
    // Says that, reads it a second later, and tells whether that was looked at.
    let mut is_looked_at = |entry: &mut Entry, said: Reading<Text>| {
        now = now.after(Duration::from_secs(1));
        let mut reader = Reader { buffer: &mut buffer, root: &root, aside: &mut aside, now };
        if entry.is_unread() {
            *entry = Entry::open(child.id(), &mut reader, None);
        }
        entry.process.facts_mut().frozen_by = said.clone();
        entry.refresh(&mut reader, None) && entry.process.facts.frozen_by != said
    };
    let mut looks = 0;
    while !entry.rests() {
        looks = u32::from(is_looked_at(&mut entry, Err(Missing::Denied)));
    }
    let mut looks_of = |readings: u32, said: Reading<Text>| {
        (0..readings).map(|_| u32::from(is_looked_at(&mut entry, said.clone()))).sum::<u32>()
    };
    // It has begun to sleep, as who is frozen does in the second version of control groups.
    assert_eq!(looks + looks_of(4, Err(Missing::Denied)), 1);
    assert_eq!(looks_of(20, Err(Missing::Denied)), 0);
    assert_eq!(looks_of(20, Ok("it".into())), 4);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_process_that_ended_is_only_a_pid() {
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let mut processes = nobody();
    let alive = see(&mut processes, child.id(), Moment(0));
    assert_eq!(alive.id.start_ticks, processes.known[&child.id()].process.id.start_ticks);
    child.kill().unwrap();
    child.wait().unwrap();
    let gone = see(&mut processes, child.id(), Moment(0));
    assert_eq!((gone.id.start_ticks, gone.facts.identity), (None, Identity::Unverified));
    assert_eq!(gone.load.state, Err(Missing::Gone));
    processes.begin();
    assert_eq!(processes.end().count(), 0);
}

#[test]
fn that_someone_ends_while_being_read_is_no_failure() {
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let mut processes = nobody();
    processes.begin();
    processes.see(child.id(), Moment(0), Err(Missing::NotYet));
    child.kill().unwrap();
    child.wait().unwrap();
    let ended = processes.end().next().cloned().unwrap();
    assert_eq!((ended.facts.uid, ended.facts.user.clone()), (Err(Missing::NotYet), Err(Missing::NotYet)));
}

#[test]
fn who_was_put_off_is_only_a_pid_until_it_is_read() {
    let (mut gpu_processes, me) = (nobody(), std::process::id());
    gpu_processes.begin_first();
    gpu_processes.room = 0;
    assert_eq!(gpu_processes.see(me, Moment(0), Err(Missing::NotYet)), ProcessId { pid: me, start_ticks: None });
    assert_eq!(gpu_processes.end().next(), None);
    gpu_processes.catch_up();
    assert!(gpu_processes.known[&me].cpu.is_some());
    let seen = see(&mut gpu_processes, me, Moment(0));
    assert!(seen.id.start_ticks.is_some() && seen.facts.uid.is_ok(), "{seen:?}");
}

#[test]
fn a_pid_of_another_namespace_is_not_verified_by_being_here() {
    let mut processes = nobody();
    processes.root = Root::foreign();
    let me = see(&mut processes, std::process::id(), Moment(u64::MAX));
    assert_eq!(me.facts.identity, Identity::Unverified);
    let nobody = see(&mut processes, 1 << 22, Moment(u64::MAX));
    assert_eq!(nobody.facts.comm, Err(Missing::Unsupported));
}

#[test]
fn without_a_descriptor_it_is_read_all_the_same() {
    let mut processes = nobody();
    let first = see(&mut processes, std::process::id(), Moment(0));
    processes.known.values_mut().for_each(|me| me.stat = None);
    assert_eq!(see(&mut processes, std::process::id(), Moment(0)).id, first.id);
    // Another process with the same PID is another.
    processes.known.values_mut().for_each(|me| me.process.id.start_ticks = Some(1));
    assert_eq!(see(&mut processes, std::process::id(), Moment(0)).id, first.id);
}

/// A pass in which NVML named those, and the census knows that related processes.
fn pass(processes: &mut Processes, named: &[u32], related: &[ProcessId]) -> Vec<Process> {
    processes.begin();
    for pid in named {
        processes.see(*pid, Moment(u64::MAX), Err(Missing::NotYet));
    }
    processes.keep(related, false);
    processes.end().cloned().collect()
}

fn me() -> ProcessId {
    let start_ticks = stat::of(std::process::id(), &mut Vec::new()).unwrap().start_ticks;
    ProcessId { pid: std::process::id(), start_ticks: Some(start_ticks) }
}

#[test]
fn kin_is_sure_in_any_namespace_and_whoever_has_its_pid_now_is_not_kin() {
    let mut processes = nobody();
    processes.root = Root::foreign();
    // NVML may mean another process; the census means this one.
    let shown = pass(&mut processes, &[me().pid], &[me()]);
    assert_eq!(shown[0].facts.identity, Identity::Unverified);
    assert_eq!(processes.roots().count(), 0);
    let shown = pass(&mut processes, &[], &[me()]);
    assert_eq!((shown[0].id, shown[0].facts.identity), (me(), Identity::Sure));
    let shown = pass(&mut processes, &[me().pid], &[me()]);
    assert_eq!(shown[0].facts.identity, Identity::Unverified);
    let other = ProcessId { start_ticks: Some(1), ..me() };
    assert_eq!(pass(&mut processes, &[], &[other]), []);
}

#[test]
fn the_end_of_a_tenant_is_news_once() {
    let mut processes = nobody();
    pass(&mut processes, &[me().pid, 1 << 22], &[]);
    pass(&mut processes, &[me().pid, 1 << 22], &[]);
    assert!(!processes.take_upset());
    pass(&mut processes, &[1 << 22], &[me()]);
    assert!(processes.take_upset());
    pass(&mut processes, &[1 << 22], &[me()]);
    assert!(!processes.take_upset());
}

#[test]
fn kin_tells_its_parent_group_and_session_and_is_no_trainer() {
    let mut processes = nobody();
    let shown = pass(&mut processes, &[], &[me()]);
    let facts = &shown[0].facts;
    // SAFETY: it takes no pointer. rustix has no word for 0, a session from outside of a PID namespace.
    let session = unsafe { libc::getsid(0) };
    assert_eq!(facts.session.map(i64::from), Ok(i64::from(session)));
    assert_eq!(facts.trainer_threads, Err(Missing::Unsupported));
    assert_eq!(shown[0].load.wchan, Err(Missing::Unsupported));
}

#[test]
fn a_trainer_is_known_by_its_threads() {
    let mut processes = nobody();
    let (stop, stopped) = mpsc::channel::<()>();
    let thread = std::thread::Builder::new().name("pt_autograd_0".to_owned());
    let thread = thread.spawn(move || stopped.recv().is_err()).unwrap();
    // It may not have begun, and then it has no name yet.
    while !pass(&mut processes, &[me().pid], &[])[0].facts.trainer_threads.is_ok_and(|it| it) {
        processes.known.clear();
    }
    drop(stop);
    assert!(thread.join().unwrap());
}

#[test]
fn arguments_make_a_stray_kin() {
    let mut processes = nobody();
    let strays = [ProcessId { pid: 7, start_ticks: Some(7) }, ProcessId { pid: 8, start_ticks: Some(8) }];
    processes.ask_about(&strays);
    let spawned = "from multiprocessing.spawn import spawn_main; spawn_main()";
    for (id, argument) in strays.into_iter().zip([spawned, "train.py"]) {
        let argv = ["python", "-c", argument].map(Text::from).into_iter().collect();
        processes.learn(Finding::Argv(id, Ok(argv), Err(Missing::Denied)));
    }
    assert_eq!(processes.take_adopted(), [strays[0]]);
    assert_eq!(processes.take_adopted(), []);
}
