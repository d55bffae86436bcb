//! The audit log: one line of JSON for each signal, and one for each of its effects.
//!
//! The file is `$XDG_STATE_HOME/gputop/kills.jsonl`, readable by its owner only. A thread of its
//! own writes it: a home directory on the network may hang, and no signal waits for it. A failure
//! to write is reported once.

mod log_file;
#[cfg(test)]
pub(super) mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::time::Duration;
use std::{fs, io, iter, thread};

use rustix::process::getuid;
use serde::{Serialize, Serializer};

use super::ReplySender;
use super::refusal::user_name;
use crate::agent::{clock, print_error};
use crate::base::text::{Argv, Text};
use crate::protocol::command::Signal;
use crate::protocol::reply::{Outcome, Reply};
use crate::protocol::snapshot::ProcessId;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SignalMode {
    /// Only this process.
    One,
    /// A whole job. The user saw this process.
    Job,
    /// A whole job. This process was found later, as a descendant of the others.
    Joined,
}

#[derive(Debug, Serialize)]
pub(super) struct SignalRecord {
    #[serde(flatten)]
    pub(super) process: ProcessId,
    pub(super) comm: Text,
    pub(super) argv: Option<Argv>,
    pub(super) owner_uid: Option<u32>,
    pub(super) owner: Option<UserName>,
    pub(super) signal: Signal,
    pub(super) mode: SignalMode,
}

/// A user, by ID. The audit thread looks up the name, since the list of users may be long.
#[derive(Debug)]
pub(super) struct UserName(pub(super) u32);

impl Serialize for UserName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        user_name(self.0).serialize(serializer)
    }
}

#[derive(Debug, Serialize)]
struct AuditLine {
    /// The ID of a signal, which is also that of its effects.
    id: String,
    /// Milliseconds since 1970.
    unix_time_ms: u64,
    #[serde(flatten)]
    event: AuditEvent,
    #[serde(skip)]
    process: ProcessId,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum AuditEvent {
    Signal {
        /// The user who sent the signal.
        uid: u32,
        /// Start ticks count from boot, so boot, PID and start ticks together identify a process
        /// for ever.
        boot_id: Option<String>,
        #[serde(flatten)]
        record: SignalRecord,
    },
    Effect {
        /// The `kind` of the [`Outcome`].
        outcome: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<Text>,
    },
}

/// The audit log, as the thread that sends signals sees it.
pub(super) struct Audit {
    folder: Option<PathBuf>,
    failure: Arc<FailureReport>,
    /// `None` before the first signal.
    writer: Option<AuditWriter>,
    /// The ID of the last signal to each process, and its last effect.
    signals: BTreeMap<ProcessId, (String, &'static str)>,
    count: u64,
    started_ms: u64,
    boot_id: Option<String>,
}

/// The lines for the thread that writes, and a channel that closes when the thread ends.
type AuditWriter = (SyncSender<AuditLine>, Receiver<()>);

impl Audit {
    /// The most lines that wait while the file system does not answer. Further lines are lost, and
    /// the loss is reported.
    const MOST_WAITING: usize = 1 << 14;

    /// Returns the audit log in this folder. No file is touched before the first signal.
    pub(super) fn new(folder: Option<PathBuf>, replies: ReplySender) -> Self {
        let failure = FailureReport {
            replies,
            is_sent: AtomicBool::new(false),
        };
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
        Self {
            folder,
            failure: failure.into(),
            writer: None,
            signals: BTreeMap::new(),
            count: 0,
            started_ms: clock::unix_ms(),
            boot_id: boot_id.map(|boot_id| boot_id.trim_end().to_owned()),
        }
    }

    pub(super) fn signal(&mut self, record: SignalRecord) {
        self.count += 1;
        // The ID is unique: several agents of one user share the file, and PIDs are reused.
        let id = format!("{}-{}-{}", self.started_ms, std::process::id(), self.count);
        let process = record.process;
        self.signals.insert(process, (id.clone(), ""));
        let (uid, boot_id) = (getuid().as_raw(), self.boot_id.clone());
        self.write(
            id,
            process,
            AuditEvent::Signal {
                uid,
                boot_id,
                record,
            },
        );
    }

    /// Records the effect on a process that was signalled, unless it is the same as the last
    /// effect.
    pub(super) fn effect(&mut self, process: ProcessId, outcome: &Outcome) {
        let (word, reason) = match outcome {
            Outcome::Ended { .. } => ("ended", None),
            Outcome::Zombie { .. } => ("zombie", None),
            Outcome::Alive { .. } => ("alive", None),
            Outcome::Resumed { reason } => ("resumed", Some(reason.clone())),
            Outcome::Refused { reason } => ("refused", Some(reason.clone())),
            _ => return,
        };
        let Some((id, last)) = self
            .signals
            .get_mut(&process)
            .filter(|(_, last)| *last != word)
        else {
            return;
        };
        *last = word;
        let id = id.clone();
        // No later effect is recorded after these.
        if matches!(outcome, Outcome::Ended { .. } | Outcome::Resumed { .. }) {
            self.signals.remove(&process);
        }
        self.write(
            id,
            process,
            AuditEvent::Effect {
                outcome: word,
                reason,
            },
        );
    }

    fn write(&mut self, id: String, process: ProcessId, event: AuditEvent) {
        let line = AuditLine {
            id,
            unix_time_ms: clock::unix_ms(),
            event,
            process,
        };
        if self.writer.is_none() {
            match start(self.folder.take(), self.failure.clone()) {
                Ok(writer) => self.writer = Some(writer),
                Err(error) => {
                    return self
                        .failure
                        .send(process, &format!("cannot start a thread: {error}"));
                }
            }
        }
        if let Some((lines, _)) = &self.writer
            && let Err(TrySendError::Full(_)) = lines.try_send(line)
        {
            self.failure.send(process, "the disk does not answer");
        }
    }

    pub(super) fn finish(self, limit: Duration) {
        if let Some((lines, done)) = self.writer {
            drop(lines);
            let _late = done.recv_timeout(limit);
        }
    }
}

fn start(folder: Option<PathBuf>, failure: Arc<FailureReport>) -> io::Result<AuditWriter> {
    let (lines, received) = mpsc::sync_channel(Audit::MOST_WAITING);
    let (running, done) = mpsc::channel();
    thread::Builder::new()
        .name("audit".to_owned())
        .spawn(move || {
            write_all(folder.as_deref(), &received, &failure);
            drop(running);
        })?;
    Ok((lines, done))
}

fn write_all(folder: Option<&Path>, received: &Receiver<AuditLine>, failure: &FailureReport) {
    while let Ok(first) = received.recv() {
        let process = first.process;
        let mut text = Vec::new();
        // The file is opened once for all waiting lines, and not kept open: the user may move it
        // away.
        for line in iter::once(first).chain(received.try_iter()) {
            // Writing to memory cannot fail, and each line can be serialized.
            let _written = serde_json::to_writer(&mut text, &line);
            text.push(b'\n');
        }
        if let Err(error) = log_file::append(folder, &text) {
            failure.send(process, &error);
        }
    }
}

/// Reports once that the log cannot be written.
struct FailureReport {
    replies: ReplySender,
    is_sent: AtomicBool,
}

impl FailureReport {
    fn send(&self, process: ProcessId, why: &str) {
        if !self.is_sent.swap(true, Ordering::Relaxed) {
            let reason = Text::new(format!("signals are not recorded: {why}"));
            print_error(reason.as_str());
            (self.replies)(Reply {
                process,
                outcome: Outcome::NotRecorded { reason },
            });
        }
    }
}
