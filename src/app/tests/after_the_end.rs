//! The end dialog once its targets have ended: the processes that took their places, and those that
//! may keep their memory.

use super::*;
use crate::app::input::end_dialog::Member;

fn child_of(mut host: Snapshot, pid: u32, parent: u32) -> Snapshot {
    host.processes
        .iter_mut()
        .filter(|process| process.id.pid == pid)
        .for_each(|process| process.facts_mut().parent = Ok(parent));
    host
}

/// The processes that follow 103 of `before`, which ends by SIGTERM, and whether each is a restart.
/// `after` is the change of the snapshot after the end.
fn successors(before: Snapshot, after: impl FnOnce(Snapshot) -> Snapshot) -> Vec<(u32, u32, bool)> {
    let ended = story(before)
        .keys("F9")
        .hears(103, Outcome::Held { caution: None })
        .keys("Enter")
        .hears(
            103,
            Outcome::Sent {
                signal: Signal::Term,
                at: Moment(1_000_100),
            },
        )
        .hears(
            103,
            Outcome::Ended {
                at: Moment(1_000_200),
            },
        )
        .pass(|host| after(host.without(103)));
    let dialog = ended.app.modes.end_dialog().unwrap();
    dialog
        .successors
        .iter()
        .map(|new| (new.ended.pid, new.process.id.pid, new.is_restart))
        .collect()
}

#[test]
fn a_process_that_a_supervisor_starts_again_is_named() {
    let found = successors(child_of(three(), 103, 77), |host| {
        // A process with the same command and an unrelated parent is no successor.
        let host = host.with(200_000, "python c.py", 1, Bytes::from_gib(1));
        child_of(
            child_of(
                host.with(200_001, "python c.py", 1, Bytes::from_gib(1)),
                200_000,
                77,
            ),
            200_001,
            78,
        )
    });
    assert_eq!(found, [(103, 200_000, true)]);
}

#[test]
fn a_restarted_supervisor_restarts_its_child_and_a_living_one_has_no_double() {
    let before = || child_of(three().related(77, 1, "python supervisor.py"), 103, 77);
    let after = |host: Snapshot| {
        let host = host.related(78, 1, "python supervisor.py").with(
            200_000,
            "python c.py",
            1,
            Bytes::from_gib(1),
        );
        child_of(host, 200_000, 78)
    };
    assert_eq!(
        successors(before(), |host| after(host.without(77))),
        [(103, 200_000, true)]
    );
    assert_eq!(successors(before(), after), []);
}

#[test]
fn a_queue_that_starts_the_next_of_several_restarts_nothing() {
    // The queue ran another `c.py` beside 103, with other arguments.
    let queue = child_of(three(), 103, 77).related(90, 77, "python c.py --seed 2");
    let next = |command: &'static str| {
        move |host: Snapshot| {
            child_of(
                host.with(200_000, command, 1, Bytes::from_gib(1)),
                200_000,
                77,
            )
        }
    };
    assert_eq!(
        successors(queue.clone(), next("python c.py")),
        [(103, 200_000, false)]
    );
    assert_eq!(
        successors(queue.clone(), next("python c.py --seed 3")),
        [(103, 200_000, false)]
    );
    // Another program of the queue has nothing to do with 103.
    assert_eq!(successors(queue, next("python d.py")), []);
    // The twin was not there before the end.
    let later = |host: Snapshot| next("python c.py")(host.related(200_001, 77, "python c.py"));
    let found = successors(child_of(three(), 103, 77), later);
    assert_eq!(found, [(103, 200_000, false), (103, 200_001, false)]);
}

#[test]
fn a_command_that_a_person_types_again_is_no_restart() {
    let at_shell = |shell| child_of(three().related(77, 1, shell), 103, 77);
    let next = |host: Snapshot| {
        child_of(
            host.with(200_000, "python c.py", 1, Bytes::from_gib(1)),
            200_000,
            77,
        )
    };
    assert_eq!(successors(at_shell("-bash"), next), [(103, 200_000, false)]);
    assert_eq!(
        successors(at_shell("bash loop.sh"), next),
        [(103, 200_000, true)]
    );
}

#[test]
fn only_processes_of_the_job_or_the_user_are_said_to_keep_memory() {
    let of_user = |mut host: Snapshot, pid: u32, uid: u32| {
        host.processes
            .iter_mut()
            .filter(|process| process.id.pid == pid)
            .for_each(|process| process.facts_mut().uid = Ok(uid));
        host
    };
    // On GPU 1: a stranger, a process of the same user without memory there, and one with memory of
    // its own.
    let host = three()
        .related(90, 1, "python theirs.py")
        .related(91, 1, "python mine.py");
    let mut host = of_user(
        host.with(104, "python d.py", 1, Bytes::from_gib(5)),
        90,
        1001,
    );
    host.gpus[1].device_file_holders = [90, 91, 103, 104].map(id).to_vec();
    let story = story(host.clone()).keys("F9");
    let dialog = story.app.modes.end_dialog().unwrap();
    assert_eq!(dialog.root().map(Member::id), Some(id(103)));
    assert_eq!(dialog.possible_holders(&host.gpus[1], &host), [id(91)]);
}

/// Three workers whose trainer is gone. Only 201 has GPU 0 open, where 9 GiB are unaccounted.
fn orphans() -> Snapshot {
    let mut host = host(1);
    host.gpus[0].load.memory_used = Ok(Bytes::from_gib(9));
    for pid in 201..=203 {
        host = host.related(pid, 1, "python train.py");
        let worker = host
            .processes
            .iter_mut()
            .find(|process| process.id.pid == pid)
            .unwrap();
        let facts = worker.facts_mut();
        (facts.comm, facts.group) = (Ok("pt_data_worker".into()), Ok(100));
    }
    host.gpus[0].device_file_holders.push(id(201));
    host
}

#[test]
fn a_tags_what_holds_gpu_memory_and_capital_a_the_rest() {
    let tagged = |keys: &str| {
        let story = story(orphans()).keys(keys);
        let mut pids: Vec<u32> = story
            .app
            .processes
            .tagged
            .iter()
            .map(|tagged| tagged.process.pid)
            .collect();
        pids.sort_unstable();
        pids
    };
    assert_eq!(tagged("o a"), [201]);
    assert_eq!(tagged("o a a"), [201]);
    assert_eq!(tagged("o A"), [202, 203]);
    assert_eq!(tagged("o a A"), [201, 202, 203]);
}
