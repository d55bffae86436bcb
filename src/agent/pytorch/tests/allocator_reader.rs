//! Tests of [`AllocatorReader`] without processes: threads that hang and come back.

use std::sync::mpsc;

use super::super::{AllocatorReader, AllocatorReading, ReadResults};
use crate::agent::procfs::{ListedProcess, NvmlMemory};
use crate::agent::worker::WorkerMessage;
use crate::base::units::Moment;
use crate::protocol::snapshot::{AllocatorUnreadable, ProcessId};

fn id(pid: u32) -> ProcessId {
    ProcessId {
        pid,
        start_ticks: Some(1),
    }
}

fn request(reader: &mut AllocatorReader, pids: &[u32], now: Moment) {
    let listed = |pid: &u32| ListedProcess {
        id: id(*pid),
        uid: Ok(0),
        nvml_memory: NvmlMemory::default(),
        parent: Ok(1),
        virtual_size: 0,
    };
    reader.request(pids.iter().map(listed), now);
}

/// A message of the thread with this number. Without results, the thread was abandoned and has come
/// back.
fn message(generation: u64, results: Option<ReadResults>) -> WorkerMessage<ReadResults> {
    WorkerMessage::pretend(generation, results)
}

#[test]
fn a_process_whose_memory_hangs_is_avoided_and_the_others_are_read() {
    let mut reader = AllocatorReader::new(mpsc::channel().0);
    reader.worker.pretend(id(7), Moment(1000));
    assert_eq!(reader.deadline(), Some(Moment(2000)));
    assert!(
        !reader.abandon_overdue(Moment(1999))
            && reader.worker.is_running()
            && !reader.results.contains_key(&id(7))
    );
    assert!(reader.abandon_overdue(Moment(2000)) && !reader.worker.is_running());
    assert_eq!(
        reader.results.get(&id(7)),
        Some(&Err(AllocatorUnreadable::Hung))
    );
    // Another thread reads the other processes.
    request(&mut reader, &[7, 8], Moment(4000));
    assert!(reader.worker.is_running());
    reader.receive(message(
        2,
        Some(vec![(id(8), Err(AllocatorUnreadable::NoPytorch))]),
    ));
    assert_eq!(
        reader.results.get(&id(8)),
        Some(&Err(AllocatorUnreadable::NoPytorch))
    );
    assert_eq!(
        reader.results.get(&id(7)),
        Some(&Err(AllocatorUnreadable::Hung))
    );
    // The process has ended.
    request(&mut reader, &[8], Moment(5000));
    assert_eq!(reader.results.get(&id(7)), None);
}

#[test]
fn a_process_whose_memory_was_only_slow_is_read_again() {
    let mut reader = AllocatorReader::new(mpsc::channel().0);
    reader.worker.pretend(id(7), Moment(1000));
    reader.abandon_overdue(Moment(2000));
    request(&mut reader, &[7, 8], Moment(2000));
    // Results from before the hang are late, and do not mean that the thread came back.
    reader.receive(message(
        1,
        Some(vec![(id(8), Ok(AllocatorReading::default()))]),
    ));
    assert_eq!(
        (reader.avoided.len(), reader.results.get(&id(8))),
        (1, None)
    );
    reader.receive(message(1, None));
    assert_eq!(
        (reader.avoided.len(), reader.results.get(&id(7))),
        (0, None)
    );
}

#[test]
fn when_too_many_threads_hang_old_results_are_dropped() {
    let mut reader = AllocatorReader::new(mpsc::channel().0);
    reader.worker.pretend(id(1), Moment(0));
    reader.receive(message(
        1,
        Some(vec![(id(100), Ok(AllocatorReading::default()))]),
    ));
    for pid in 1..=8 {
        reader.worker.pretend(id(pid), Moment(0));
        assert!(reader.abandon_overdue(Moment(1000)));
    }
    let all = [1, 2, 3, 4, 5, 6, 7, 8, 100];
    request(&mut reader, &all, Moment(2000));
    assert_eq!(
        reader.results.get(&id(100)),
        Some(&Err(AllocatorUnreadable::NotYet))
    );
    assert!(!reader.worker.is_running());
    assert_eq!(
        reader.results.get(&id(8)),
        Some(&Err(AllocatorUnreadable::Hung))
    );
    // One thread comes back.
    reader.receive(message(3, None));
    request(&mut reader, &all, Moment(3000));
    assert!(reader.worker.is_running());
}
