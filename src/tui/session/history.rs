//! Keeps the history of each host in a file, and begins with that of an earlier session.
//!
//! Processes of their own read and write the files, because a home directory may hang: neither a
//! frame nor the end of the session waits for one.

use std::collections::BTreeMap;
use std::io::Write;
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use super::SessionInput;
use crate::app::event::Event;
use crate::base::text::Text;
use crate::files::history::{HistoryFiles, HistoryOwner};
use crate::model::{Fleet, HostModel, Past};
use crate::protocol::host_key::HostKey;
use crate::protocol::line::Line;
use crate::source::Sources;

/// The time between two writes for a host. A session that is killed loses as much.
const WRITE_INTERVAL: Duration = Duration::from_mins(5);

/// The time between two writes. With more hosts than fit into their interval, each is written less
/// often: a write takes some ten milliseconds of CPU.
const BETWEEN_WRITES: Duration = Duration::from_secs(3);

/// The most processes that read or write at once.
const MOST_BUSY: usize = 4;

/// How long the end of the session may start processes that write. The histories of the other hosts
/// are those of their last write.
const LAST_WRITES: Duration = Duration::from_millis(300);

/// The result of a process that read or wrote a history.
#[derive(Debug)]
pub(super) enum HistoryResult {
    /// The past of a host; `None` when there is none.
    Read(Result<Option<Box<Past>>, Text>),
    Written(Result<(), Text>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HistoryState {
    /// A process reads or writes the file. It may hang.
    Busy,
    /// The file is written at this time.
    Due(Instant),
    /// The file cannot be read or written.
    Off,
}

#[derive(Debug)]
struct HostHistory {
    owner: HistoryOwner,
    state: HistoryState,
}

#[derive(Debug)]
pub(super) struct HistoryKeeper<'a> {
    /// `None` when no history is kept.
    files: Option<&'a HistoryFiles>,
    inputs: UnboundedSender<SessionInput>,
    hosts: BTreeMap<HostKey, HostHistory>,
    /// When the next write may start.
    next_write: Option<Instant>,
}

impl<'a> HistoryKeeper<'a> {
    pub(super) fn new(
        files: Option<&'a HistoryFiles>,
        inputs: UnboundedSender<SessionInput>,
    ) -> Self {
        Self {
            files,
            inputs,
            hosts: BTreeMap::new(),
            next_write: None,
        }
    }

    /// Starts to read the past of new hosts, and to write the history of the host that has been due
    /// for longest.
    pub(super) fn start_due(&mut self, fleet: &Fleet, sources: &Sources, now: Instant) {
        let Some(files) = self.files else { return };
        let is_busy = |known: &&HostHistory| known.state == HistoryState::Busy;
        let mut room = MOST_BUSY.saturating_sub(self.hosts.values().filter(is_busy).count());
        for (host, model) in fleet.hosts() {
            if room == 0 {
                return;
            }
            if let Some(latest) = model.latest()
                && !self.hosts.contains_key(&host)
                && let Some((_, source)) = sources.hosts().find(|(key, _)| *key == host)
            {
                room -= 1;
                let owner = HistoryOwner {
                    name: latest.host.facts.name.clone(),
                    source: source.description(),
                };
                let known = HostHistory {
                    owner: owner.clone(),
                    state: HistoryState::Busy,
                };
                self.hosts.insert(host, known);
                let files = files.clone();
                self.start(host, move || {
                    HistoryResult::Read(files.read(&owner).and_then(parse).map_err(Text::from))
                });
            }
        }
        if room > 0 && self.next_write.is_none_or(|next| next <= now) {
            self.start_write(files, fleet, now);
        }
    }

    fn start_write(&mut self, files: &HistoryFiles, fleet: &Fleet, now: Instant) {
        let due = self
            .hosts
            .iter_mut()
            .filter_map(|(host, known)| match known.state {
                HistoryState::Due(due) if due <= now => Some((due, *host, known)),
                _ => None,
            });
        let longest = due.min_by_key(|(due, host, _)| (*due, *host));
        let Some((_, host, known)) = longest else {
            return;
        };
        let Some(model) = fleet.host(host) else {
            return;
        };
        known.state = HistoryState::Busy;
        self.next_write = Some(now + BETWEEN_WRITES);
        match write(files, &known.owner, model) {
            Ok(child) => self.start(host, move || HistoryResult::Written(wait(child))),
            Err(reason) => {
                let written = HistoryResult::Written(Err(reason));
                _ = self.inputs.send(SessionInput::History(host, written));
            }
        }
    }

    fn start(&self, host: HostKey, act: impl FnOnce() -> HistoryResult + Send + 'static) {
        let inputs = self.inputs.clone();
        // Nothing receives the result once the session is over. Without a thread, the host stays
        // without a history.
        let act = move || _ = inputs.send(SessionInput::History(host, act()));
        let _no_thread = thread::Builder::new().name("history".to_owned()).spawn(act);
    }

    /// Takes a result. Returns the event for the app, if there is one.
    pub(super) fn take_result(&mut self, host: HostKey, result: HistoryResult) -> Option<Event> {
        let known = self.hosts.get_mut(&host)?;
        let (state, event) = match result {
            HistoryResult::Read(Ok(past)) => (
                HistoryState::Due(Instant::now() + WRITE_INTERVAL),
                past.map(|past| Event::Past(host, past)),
            ),
            HistoryResult::Written(Ok(())) => {
                (HistoryState::Due(Instant::now() + WRITE_INTERVAL), None)
            }
            HistoryResult::Read(Err(reason)) | HistoryResult::Written(Err(reason)) => (
                HistoryState::Off,
                Some(Event::Done(Text::new(format!(
                    "no history is kept: {reason}"
                )))),
            ),
        };
        known.state = state;
        event
    }

    /// Starts to write the history of each host, the one that was written first before the others,
    /// and waits for none.
    pub(super) fn finish(&self, fleet: &Fleet) {
        let Some(files) = self.files else { return };
        let until = Instant::now() + LAST_WRITES;
        let mut due: Vec<_> = self
            .hosts
            .iter()
            .filter_map(|(host, known)| match known.state {
                HistoryState::Due(due) => Some((due, host, known)),
                HistoryState::Busy | HistoryState::Off => None,
            })
            .collect();
        due.sort_by_key(|(due, host, _)| (*due, **host));
        for (_, host, known) in due {
            if Instant::now() > until {
                break;
            }
            if let Some(model) = fleet.host(*host) {
                let _left_behind = write(files, &known.owner, model);
            }
        }
    }
}

fn parse(text: Option<String>) -> Result<Option<Box<Past>>, String> {
    let past = text.map(|text| serde_json::from_str(&text)).transpose();
    past.map_err(|error| format!("the past of the host is not understood: {error}"))
}

/// Starts a process that writes the history of a host.
fn write(
    files: &HistoryFiles,
    owner: &HistoryOwner,
    model: &HostModel,
) -> Result<std::process::Child, Text> {
    let (Some(latest), Some(checkpoint)) = (model.latest(), model.checkpoint()) else {
        return Err("the state of the host cannot be written".into());
    };
    let mut lines = Vec::new();
    let written = Line::Full(Box::new(latest.clone()))
        .write(&mut lines)
        .and_then(|()| Line::Checkpoint(Box::new(checkpoint)).write(&mut lines))
        .and_then(|()| lines.flush())
        .and_then(|()| files.start_write(owner, &latest.host.facts.boot_id, &lines));
    written.map_err(|error| Text::new(error.to_string()))
}

fn wait(child: std::process::Child) -> Result<(), Text> {
    let output = child
        .wait_with_output()
        .map_err(|error| Text::new(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&output.stderr);
    Err(Text::new(reason.trim_end().trim_start_matches("gputop: ")))
}
