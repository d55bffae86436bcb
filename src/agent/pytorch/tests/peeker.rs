//! The thread as the loop sees it: what is done when it does not come back.

use std::sync::{Arc, Mutex, mpsc};

use super::super::{At, Peeker, Said};
use crate::agent::procfs::{ListedProcess, NvmlMemory};
use crate::base::units::Moment;
use crate::protocol::snapshot::{AllocatorUnreadable, ProcessId};

/// A peeker whose thread, of this number, is at that process since then.
fn at_work(peeker: &mut Peeker, generation: u64, pid: u32, since: Moment) {
    let (thread, _orders) = mpsc::sync_channel(1);
    let at: At = Arc::new(Mutex::new((Some((id(pid), since)), false)));
    (peeker.thread, peeker.generation) = (Some((thread, at)), generation);
}

fn id(pid: u32) -> ProcessId {
    ProcessId { pid, start_ticks: Some(1) }
}

fn listed(pid: u32) -> ListedProcess {
    ListedProcess { id: id(pid), uid: Ok(0), nvml_memory: NvmlMemory::default() }
}

#[test]
fn a_process_whose_memory_hangs_is_left_alone_and_the_others_are_read() {
    let mut peeker = Peeker::new(mpsc::channel().0);
    at_work(&mut peeker, 1, 7, Moment(1000));
    assert_eq!(peeker.deadline(), Some(Moment(2000)));
    assert!(!peeker.check(Moment(1999)) && peeker.thread.is_some() && peeker.said(id(7)).is_none());
    assert!(peeker.check(Moment(2000)) && peeker.thread.is_none());
    assert_eq!(peeker.said(id(7)), Some(&Err(AllocatorUnreadable::Hung)));
    // Another thread goes on without it.
    peeker.order([7, 8].into_iter().map(listed), Moment(4000));
    assert_eq!((peeker.generation, peeker.stuck.len()), (2, 1));
    peeker.learn(2, vec![(id(8), Err(AllocatorUnreadable::NoPytorch))]);
    assert_eq!(peeker.said(id(8)), Some(&Err(AllocatorUnreadable::NoPytorch)));
    assert_eq!(peeker.said(id(7)), Some(&Err(AllocatorUnreadable::Hung)));
    // It ended.
    peeker.order([8].into_iter().map(listed), Moment(5000));
    assert_eq!(peeker.said(id(7)), None);
}

#[test]
fn a_thread_that_was_only_slow_makes_its_process_one_to_be_looked_into_again() {
    let mut peeker = Peeker::new(mpsc::channel().0);
    at_work(&mut peeker, 1, 7, Moment(1000));
    peeker.check(Moment(2000));
    peeker.order([7, 8].into_iter().map(listed), Moment(2000));
    // What it said of others before it hung comes too late, and does not say that it is back.
    peeker.learn(1, vec![(id(8), Ok(Said::default()))]);
    assert_eq!((peeker.stuck.len(), peeker.avoid.len()), (1, 1));
    peeker.learn(1, vec![]);
    assert_eq!((peeker.stuck.len(), peeker.avoid.len()), (0, 0));
    assert_eq!((peeker.said(id(7)), peeker.said(id(8))), (None, None));
}

#[test]
fn where_too_many_hang_nobody_s_figures_stay() {
    let mut peeker = Peeker::new(mpsc::channel().0);
    at_work(&mut peeker, 1, 1, Moment(0));
    peeker.learn(1, vec![(id(100), Ok(Said::default()))]);
    for pid in 1..=8 {
        at_work(&mut peeker, pid.into(), pid, Moment(0));
        assert!(peeker.check(Moment(1000)));
    }
    let all = [1, 2, 3, 4, 5, 6, 7, 8, 100].into_iter().map(listed);
    peeker.order(all.clone(), Moment(2000));
    assert_eq!((peeker.said(id(100)), peeker.thread.is_none()), (Some(&Err(AllocatorUnreadable::NotYet)), true));
    assert_eq!(peeker.said(id(8)), Some(&Err(AllocatorUnreadable::Hung)));
    // One comes back.
    peeker.learn(3, vec![]);
    peeker.order(all, Moment(3000));
    assert!(peeker.thread.is_some());
}
