//! The audit log: one line of JSON for each signal, and more for its effect.
//!
//! The file is `$XDG_STATE_HOME/gputop/kills.jsonl`, readable by its owner only. It is written by a thread of its own: a
//! home directory on the network may hang, and no signal waits for it. A failure to write is reported once.

mod log_file;
#[cfg(test)]
pub(super) mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde::Serialize;

use self::log_file::LogFile;
use super::ReplySender;
use super::refusal::Owner;
use crate::agent::clock;
use crate::base::text::{Argv, Text};
use crate::protocol::command::Signal;
use crate::protocol::reply::{Outcome, Reply};
use crate::protocol::snapshot::ProcessId;

/// The extent of the end that the person chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SignalMode {
    /// This process.
    One,
    /// A whole job, of which the person was shown this one.
    Job,
    /// A whole job, and this one was found below another one of it.
    Joined,
}

/// A line of the log.
#[derive(Debug, Serialize)]
struct AuditLine<'a> {
    /// The same for an act and what became of it.
    id: &'a str,
    /// Milliseconds since 1970.
    unix_time_ms: u64,
    #[serde(flatten)]
    what: AuditEvent<'a>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum AuditEvent<'a> {
    Act {
        /// The user who acted.
        uid: u32,
        /// To whom: the boot, the PID and the start ticks are a name that is never used again.
        boot_id: Option<&'a str>,
        #[serde(flatten)]
        process: ProcessId,
        comm: &'a Text,
        argv: Option<&'a Argv>,
        owner_uid: Option<u32>,
        owner: Option<Text>,
        signal: Signal,
        mode: SignalMode,
    },
    Fate {
        outcome: AuditOutcome,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<&'a Text>,
    },
}

/// The effect of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum AuditOutcome {
    Ended,
    Zombie,
    Alive,
    Resumed,
    Refused,
}

impl AuditOutcome {
    /// The word for an outcome and its reason, if it is one to write down.
    fn of(outcome: &Outcome) -> Option<(Self, Option<Text>)> {
        match outcome {
            Outcome::Ended { .. } => Some((Self::Ended, None)),
            Outcome::Zombie { .. } => Some((Self::Zombie, None)),
            Outcome::Alive { .. } => Some((Self::Alive, None)),
            Outcome::Resumed { reason } => Some((Self::Resumed, Some(reason.clone()))),
            Outcome::Refused { reason } => Some((Self::Refused, Some(reason.clone()))),
            Outcome::Held { .. }
            | Outcome::Joined { .. }
            | Outcome::Sent { .. }
            | Outcome::NotRecorded { .. }
            | Outcome::Inspected(_)
            | Outcome::NotInspected { .. } => None,
        }
    }
}

/// The record of a signal to a process.
#[derive(Debug)]
pub(super) struct SignalRecord {
    pub(super) process: ProcessId,
    pub(super) comm: Text,
    pub(super) argv: Option<Argv>,
    pub(super) owner: Option<Owner>,
    pub(super) signal: Signal,
    pub(super) mode: SignalMode,
}

#[derive(Debug)]
enum AuditContent {
    SignalRecord(SignalRecord),
    Fate(AuditOutcome, Option<Text>),
}

/// An entry, with the id of its act and its time.
#[derive(Debug)]
struct AuditEntry {
    id: String,
    process: ProcessId,
    unix_time_ms: u64,
    entry: AuditContent,
}

/// The audit log, as the thread that sends signals sees it.
pub(super) struct Audit {
    home: Option<PathBuf>,
    tell: ReplySender,
    /// The thread that writes, once there was something to write.
    writer: Option<AuditWriter>,
    /// The last act on each process, and the last word about it.
    acts: BTreeMap<ProcessId, (String, Option<AuditOutcome>)>,
    /// How many acts there were.
    count: u64,
    began_ms: u64,
    has_complained: bool,
}

struct AuditWriter {
    notes: mpsc::SyncSender<AuditEntry>,
    done: mpsc::Receiver<()>,
}

/// Where the user keeps such things, if there is such a place.
pub(in crate::agent) fn state_home() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|it| it.is_absolute());
    absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))
}

impl Audit {
    /// The number of notes that wait for a file that does not answer; further ones are lost, and that is reported.
    const MOST_WAITING: usize = 1 << 14;

    /// An audit in that place. Nothing is touched before the first act.
    pub(super) fn new(home: Option<PathBuf>, tell: ReplySender) -> Self {
        Self {
            home,
            tell,
            writer: None,
            acts: BTreeMap::new(),
            count: 0,
            began_ms: clock::unix_ms(),
            has_complained: false,
        }
    }

    /// Writes down what is about to be done.
    pub(super) fn act(&mut self, deed: SignalRecord) {
        self.count += 1;
        // Two agents of one user write into one file; the PID tells them apart, the time their runs.
        let id = format!("{}-{}-{}", self.began_ms, std::process::id(), self.count);
        let process = deed.process;
        self.acts.insert(process, (id.clone(), None));
        self.note(id, process, AuditContent::SignalRecord(deed));
    }

    /// Writes down what became of a process, if something was done to it, and once for each word.
    pub(super) fn fate(&mut self, process: ProcessId, outcome: &Outcome) {
        let Some((word, reason)) = AuditOutcome::of(outcome) else { return };
        let Some((id, last)) = self.acts.get_mut(&process) else { return };
        if *last == Some(word) {
            return;
        }
        *last = Some(word);
        let id = id.clone();
        // Nothing more can become of it.
        if matches!(word, AuditOutcome::Ended | AuditOutcome::Resumed) {
            self.acts.remove(&process);
        }
        self.note(id, process, AuditContent::Fate(word, reason));
    }

    fn note(&mut self, id: String, process: ProcessId, entry: AuditContent) {
        let note = AuditEntry { id, process, unix_time_ms: clock::unix_ms(), entry };
        if self.writer.is_none() {
            match start(self.home.take(), self.tell.clone()) {
                Ok(writer) => self.writer = Some(writer),
                Err(error) => return self.complain(process, &format!("cannot start a thread: {error}")),
            }
        }
        if let Some(writer) = &self.writer
            && let Err(mpsc::TrySendError::Full(_)) = writer.notes.try_send(note)
        {
            self.complain(process, "the disk does not answer");
        }
    }

    fn complain(&mut self, process: ProcessId, why: &str) {
        if !std::mem::replace(&mut self.has_complained, true) {
            complain(&self.tell, process, why);
        }
    }

    /// Waits for what is still to be written, but not for long.
    pub(super) fn finish(self, patience: Duration) {
        if let Some(AuditWriter { notes, done }) = self.writer {
            drop(notes);
            let _late = done.recv_timeout(patience);
        }
    }
}

fn start(home: Option<PathBuf>, tell: ReplySender) -> std::io::Result<AuditWriter> {
    let (notes, arriving) = mpsc::sync_channel(Audit::MOST_WAITING);
    let (finished, done) = mpsc::channel();
    thread::Builder::new().name("audit".to_owned()).spawn(move || {
        write_all(home, &arriving, &tell);
        // Nobody may wait for it.
        let _alone = finished.send(());
    })?;
    Ok(AuditWriter { notes, done })
}

fn write_all(home: Option<PathBuf>, notes: &mpsc::Receiver<AuditEntry>, tell: &ReplySender) {
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
    let boot_id = boot_id.as_deref().map(str::trim_end);
    let uid = rustix::process::getuid().as_raw();
    let book = LogFile::new(home);
    let mut has_complained = false;
    while let Ok(first) = notes.recv() {
        // The file is opened for all that waits at once: someone may move it away meanwhile.
        let waiting: Vec<AuditEntry> = std::iter::once(first).chain(notes.try_iter()).collect();
        let mut lines = Vec::new();
        for note in &waiting {
            // Writing to memory cannot fail, and a line has a form in JSON.
            let _written = serde_json::to_writer(&mut lines, &line(note, uid, boot_id));
            lines.push(b'\n');
        }
        if let (Err(error), false, Some(note)) = (book.add(&lines), has_complained, waiting.first()) {
            has_complained = true;
            complain(tell, note.process, &error);
        }
    }
}

fn line<'a>(note: &'a AuditEntry, uid: u32, boot_id: Option<&'a str>) -> AuditLine<'a> {
    let what = match &note.entry {
        AuditContent::SignalRecord(deed) => AuditEvent::Act {
            uid,
            boot_id,
            process: deed.process,
            comm: &deed.comm,
            argv: deed.argv.as_ref(),
            owner_uid: deed.owner.map(|it| it.uid),
            owner: deed.owner.map(Owner::name),
            signal: deed.signal,
            mode: deed.mode,
        },
        AuditContent::Fate(outcome, reason) => AuditEvent::Fate { outcome: *outcome, reason: reason.as_ref() },
    };
    AuditLine { id: &note.id, unix_time_ms: note.unix_time_ms, what }
}

fn complain(tell: &ReplySender, process: ProcessId, why: &str) {
    use std::io::Write;
    let reason = Text::new(format!("what is done is not written down: {why}"));
    let _closed = writeln!(std::io::stderr(), "gputop agent: {reason}");
    tell(Reply { process, outcome: Outcome::NotRecorded { reason } });
}
