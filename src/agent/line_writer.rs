//! Writes lines to the standard output, on a thread of its own: writing blocks while the reader
//! pauses.
//!
//! Only the newest snapshot waits to be written, and a tick holds the changes since the last
//! written snapshot. All replies wait. When the reader is gone, the agent ends.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use super::AgentEvent;
use crate::base::terminal;
use crate::base::units::Moment;
use crate::protocol::change::Change;
use crate::protocol::line::Line;
use crate::protocol::reply::Reply;
use crate::protocol::snapshot::Snapshot;

/// Time between full lines. A program that begins to read in the middle of the stream, or of a
/// recording of it, knows everything after this time. Measured with 16 GPUs and 1000 processes: a
/// full line takes 5.5 ms of CPU time and 880 kB, a tick 0.7 ms and 88 kB. At this interval, full
/// lines are 1 % of the CPU time of an agent.
const FULL_LINE_EVERY: Duration = Duration::from_mins(1);

#[derive(Debug, Default)]
struct WaitingLines {
    /// The past of the simulated machine, written before the snapshot.
    past: Vec<Snapshot>,
    snapshot: Option<Box<Snapshot>>,
    /// Whether the line of the snapshot must be a full one.
    full: bool,
    replies: Vec<Reply>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct LineWriter(Arc<(Mutex<WaitingLines>, Condvar)>);

impl LineWriter {
    /// The thread sends [`AgentEvent::Written`] once, after the first snapshot.
    pub(super) fn spawn(events: mpsc::Sender<AgentEvent>) -> io::Result<Self> {
        let writer = Self::default();
        let shared = writer.clone();
        thread::Builder::new()
            .name("writer".to_owned())
            .spawn(move || shared.run(&events))?;
        Ok(writer)
    }

    fn lock(&self) -> MutexGuard<'_, WaitingLines> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a snapshot, in place of one that still waits. The writing thread sets the sequence
    /// number.
    pub(super) fn put(&self, snapshot: Box<Snapshot>) {
        self.lock().snapshot = Some(snapshot);
        self.0.1.notify_one();
    }

    /// Queues earlier snapshots, to be written with the next call of [`LineWriter::put`].
    pub(super) fn put_past(&self, past: Vec<Snapshot>) {
        self.lock().past.extend(past);
    }

    pub(super) fn request_full(&self) {
        self.lock().full = true;
    }

    /// Queues a reply, which is written before the next snapshot.
    pub(super) fn reply(&self, reply: Reply) {
        self.lock().replies.push(reply);
        self.0.1.notify_one();
    }

    fn run(&self, events: &mpsc::Sender<AgentEvent>) {
        let mut lines = Lines::default();
        // The buffer is smaller than a pipe's, so that the reader can begin before the line is
        // complete.
        let mut out = io::BufWriter::with_capacity(1 << 14, Output);
        let mut is_first = true;
        loop {
            let is_empty = |waiting: &mut WaitingLines| {
                waiting.snapshot.is_none() && waiting.replies.is_empty()
            };
            let mut waiting = self
                .0
                .1
                .wait_while(self.lock(), is_empty)
                .unwrap_or_else(PoisonError::into_inner);
            let (replies, snapshot) = (
                std::mem::take(&mut waiting.replies),
                waiting.snapshot.take(),
            );
            let past = std::mem::take(&mut waiting.past);
            let has_snapshot = snapshot.is_some();
            let full = has_snapshot && std::mem::take(&mut waiting.full);
            drop(waiting);

            let written = replies
                .into_iter()
                .try_for_each(|reply| Line::Reply(reply).write(&mut out))
                .and_then(|()| {
                    past.into_iter()
                        .try_for_each(|snapshot| lines.write(Box::new(snapshot), false, &mut out))
                })
                .and_then(|()| {
                    snapshot.map_or(Ok(()), |snapshot| lines.write(snapshot, full, &mut out))
                })
                .and_then(|()| out.flush());
            if written.is_err() {
                super::leave();
            }
            if has_snapshot && std::mem::take(&mut is_first) {
                // Without a main loop, the process is about to end.
                let _gone = events.send(AgentEvent::Written);
            }
        }
    }
}

#[derive(Debug, Default)]
struct Lines {
    last: Option<Box<Snapshot>>,
    last_full: Moment,
}

impl Lines {
    fn write(
        &mut self,
        mut snapshot: Box<Snapshot>,
        full: bool,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        snapshot.sequence = self.last.as_ref().map_or(1, |last| last.sequence + 1);
        let full = full || snapshot.at.since(self.last_full) >= FULL_LINE_EVERY;
        let last = self.last.as_ref().filter(|_| !full);
        if let Some(change) = last.and_then(|last| Change::between(last, &snapshot)) {
            Line::Tick(Box::new(change)).write(out)?;
            self.last = Some(snapshot);
            return Ok(());
        }
        self.last_full = snapshot.at;
        let line = Line::Full(snapshot);
        line.write(out)?;
        if let Line::Full(snapshot) = line {
            self.last = Some(snapshot);
        }
        Ok(())
    }
}

/// The standard output, also when its reader made it non-blocking.
struct Output;

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        terminal::write_unbuffered(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::snapshot::{Driver, Host, HostFacts, HostLoad, HostScan, Missing};

    fn snapshot(at: u64, boot_id: &str) -> Box<Snapshot> {
        let facts = HostFacts {
            name: "host".into(),
            boot_id: boot_id.into(),
            ticks_per_second: 100,
            uid: 0,
            driver_gpus: None,
            slurm_job: None,
            hides_processes: Ok(false),
            utc_offset: Ok(0),
            cpus: Err(Missing::Failed),
        };
        Box::new(Snapshot {
            schema: Snapshot::SCHEMA,
            sequence: 0,
            at: Moment(at),
            unix_ms: at,
            interval_ms: 1000,
            agent: None,
            host: Host {
                facts,
                load: HostLoad::missing(Missing::NotYet),
                scan: HostScan::missing(Moment(0), 0, 0, Missing::NotYet),
            },
            driver: Driver {
                version: None,
                cuda_version: None,
                trouble: None,
                failures: Vec::new(),
            },
            gpus: vec![],
            processes: vec![],
        })
    }

    #[test]
    fn a_line_is_full_at_first_after_another_boot_on_request_and_every_minute() {
        let mut lines = Lines::default();
        let mut written = vec![];
        let passes = [
            (1, "first", false),
            (2, "first", false),
            (9, "first", false),
            (10, "second", false),
            (11, "second", true),
            (60_010, "second", false),
            (60_011, "second", false),
            (60_012, "second", false),
        ];
        for (at, boot_id, full) in passes {
            lines
                .write(snapshot(at, boot_id), full, &mut written)
                .unwrap();
        }
        let kinds = written
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        let kinds = kinds.map(|line| match Line::parse(line).unwrap() {
            Some(Line::Full(snapshot)) => ("full", snapshot.sequence, snapshot.at.0),
            Some(Line::Tick(change)) => ("tick", change.sequence, change.at.0),
            _ => ("other", 0, 0),
        });
        // The snapshot at 9 was late, and none was lost: it has the next sequence number.
        let expected = [
            ("full", 1, 1),
            ("tick", 2, 2),
            ("tick", 3, 9),
            ("full", 4, 10),
            ("full", 5, 11),
            ("tick", 6, 60_010),
            ("full", 7, 60_011),
            ("tick", 8, 60_012),
        ];
        assert_eq!(kinds.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn only_the_newest_snapshot_waits_but_every_reply() {
        let writer = LineWriter::default();
        for at in 1..4 {
            writer.put(snapshot(at, "first"));
            let process = crate::protocol::snapshot::ProcessId {
                pid: 7,
                start_ticks: None,
            };
            writer.reply(Reply {
                process,
                outcome: crate::protocol::reply::Outcome::Held { caution: None },
            });
        }
        let waiting = writer.lock();
        assert_eq!(
            waiting.snapshot.as_ref().map(|snapshot| snapshot.at),
            Some(Moment(3))
        );
        assert_eq!(waiting.replies.len(), 3);
    }
}
