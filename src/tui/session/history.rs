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

/// The time between two writes. A session that is killed loses as much.
const WRITE_INTERVAL: Duration = Duration::from_mins(5);

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
        }
    }

    /// Starts to read the past of each new host, and to write the history of each host that is due.
    pub(super) fn start_due(&mut self, fleet: &Fleet, sources: &Sources, now: Instant) {
        let Some(files) = self.files else { return };
        for (host, model) in fleet.hosts() {
            match self.hosts.get_mut(&host) {
                None => {
                    let source = sources.hosts().find(|(key, _)| *key == host);
                    if let (Some(latest), Some((_, source))) = (model.latest(), source) {
                        let name = latest.host.facts.name.clone();
                        let owner = HistoryOwner {
                            name,
                            source: source.description(),
                        };
                        self.hosts.insert(
                            host,
                            HostHistory {
                                owner: owner.clone(),
                                state: HistoryState::Busy,
                            },
                        );
                        let files = files.clone();
                        self.start(host, move || {
                            HistoryResult::Read(
                                files.read(&owner).and_then(parse).map_err(Text::from),
                            )
                        });
                    }
                }
                Some(known) if matches!(known.state, HistoryState::Due(due) if due <= now) => {
                    known.state = HistoryState::Busy;
                    match write(files, &known.owner, model) {
                        Ok(child) => self.start(host, move || HistoryResult::Written(wait(child))),
                        Err(reason) => {
                            _ = self.inputs.send(SessionInput::History(
                                host,
                                HistoryResult::Written(Err(reason)),
                            ));
                        }
                    }
                }
                Some(_) => {}
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

    /// Starts to write the history of each host, and waits for none.
    pub(super) fn finish(&self, fleet: &Fleet) {
        let Some(files) = self.files else { return };
        for (host, known) in self
            .hosts
            .iter()
            .filter(|(_, known)| matches!(known.state, HistoryState::Due(_)))
        {
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
