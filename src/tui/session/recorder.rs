//! Records what the session receives. A process of its own writes the file: a disk may be slow,
//! full or hang, and neither a frame nor the end of the session waits for it.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::SessionInput;
use crate::base::detach::detached_gputop;
use crate::base::text::Text;
use crate::files::folders::recording_file;
use crate::model::Fleet;
use crate::protocol::command::Command as AgentCommand;
use crate::protocol::host_key::HostKey;
use crate::protocol::host_tag::HostTag;
use crate::protocol::line::Line;
use crate::protocol::recorder_report::{RecorderReport, RecorderState};
use crate::source::{LineReader, Sources, Tap};

/// The most bytes of lines that wait for the process.
const MOST_WAITING: usize = 16 << 20;

/// How long the end of the session waits for the end of the recording, which goes on without it.
const QUIT_TIMEOUT: Duration = Duration::from_millis(250);

const TOO_SLOW: &str =
    "the disk is too slow: lines are not recorded until the next full line of the host";

/// The lines on their way to the process.
#[derive(Debug)]
struct RecorderPipe {
    lines: UnboundedSender<Vec<u8>>,
    bytes: Arc<AtomicUsize>,
    /// The hosts whose lines are left out until their next full line.
    behind: BTreeSet<HostKey>,
    /// The tags of the hosts; empty if there is only one.
    tags: BTreeMap<HostKey, HostTag>,
    inputs: UnboundedSender<SessionInput>,
}

impl RecorderPipe {
    fn push(&self, line: Vec<u8>) {
        self.bytes.fetch_add(line.len(), Ordering::Relaxed);
        // The end of the process is reported by itself.
        let _ended = self.lines.send(line);
    }

    fn copy(&mut self, host: HostKey, line: &Line, raw: &[u8]) {
        match line {
            Line::Full(_) => _ = self.behind.remove(&host),
            _ if self.behind.contains(&host) => return,
            _ => {}
        }
        if self.bytes.load(Ordering::Relaxed) > MOST_WAITING {
            self.behind.insert(host);
            let report = RecorderReport {
                state: RecorderState::Writing,
                sentence: TOO_SLOW.into(),
            };
            let _over = self.inputs.send(SessionInput::Recorder(report));
            return;
        }
        self.push(self.tagged(host, raw.to_vec()));
    }

    /// Adds the tag of the host and the line end.
    fn tagged(&self, host: HostKey, mut line: Vec<u8>) -> Vec<u8> {
        if let Some(tag) = self.tags.get(&host) {
            tag.append_to(&mut line);
        }
        line.push(b'\n');
        line
    }

    /// Begins with the state of each host.
    fn push_beginning(&self, fleet: &Fleet) {
        for (host, model) in fleet.hosts() {
            let full = model
                .latest()
                .map(|latest| Line::Full(Box::new(latest.clone())));
            let checkpoint = model
                .checkpoint()
                .map(|checkpoint| Line::Checkpoint(Box::new(checkpoint)));
            for line in full.into_iter().chain(checkpoint) {
                let mut bytes = Vec::new();
                // Writing to memory fails only if the line is no JSON.
                if line.write(&mut bytes).is_ok() {
                    bytes.pop();
                    self.push(self.tagged(host, bytes));
                }
            }
        }
        self.push(b"\n".to_vec());
    }
}

/// The lines on their way to the process; `None` while nothing is recorded.
#[derive(Debug, Clone, Default)]
pub(super) struct RecorderQueue(Arc<Mutex<Option<RecorderPipe>>>);

impl RecorderQueue {
    /// Returns the tap that copies lines of the sources to this queue.
    pub(super) fn tap(&self) -> Tap {
        let queue = self.clone();
        Tap::new(move |host, line, raw| {
            if let Some(waiting) = &mut *queue.lock() {
                waiting.copy(host, line, raw);
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<RecorderPipe>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts and stops the process that writes a recording, and passes lines to it.
#[derive(Debug)]
pub(super) struct SessionRecorder {
    inputs: UnboundedSender<SessionInput>,
    waiting: RecorderQueue,
    /// Returns the last sentence of the process; `None` before the first recording.
    task: Option<JoinHandle<Text>>,
}

impl SessionRecorder {
    pub(super) fn new(inputs: UnboundedSender<SessionInput>, waiting: &RecorderQueue) -> Self {
        Self {
            inputs,
            waiting: waiting.clone(),
            task: None,
        }
    }

    /// Starts a recording with a file of this name. A full line of each host follows its state now:
    /// lines on the way to the model are not recorded.
    pub(super) fn start(&mut self, name: &str, fleet: &Fleet, sources: &mut Sources) {
        let child = spawn(name);
        let mut child = match child {
            Ok(child) => child,
            Err(reason) => {
                let sentence = Text::new(format!("nothing is recorded: {reason}"));
                let report = RecorderReport {
                    state: RecorderState::Closed,
                    sentence,
                };
                let _over = self.inputs.send(SessionInput::Recorder(report));
                return;
            }
        };
        let (lines, to_write) = mpsc::unbounded_channel();
        let bytes = Arc::new(AtomicUsize::new(0));
        let hosts: BTreeSet<HostKey> = sources.hosts().map(|(host, _)| host).collect();
        let tag = |host: HostKey| HostTag {
            host_key: host.0.into(),
            name: Some(fleet.name(host).into()),
        };
        let tags = if hosts.len() > 1 {
            hosts.iter().map(|host| (*host, tag(*host))).collect()
        } else {
            BTreeMap::new()
        };
        if let Some(stdin) = child.stdin.take() {
            tokio::spawn(write_lines(stdin, to_write, Arc::clone(&bytes)));
        }
        self.task = Some(tokio::spawn(read_reports(child, self.inputs.clone())));
        let waiting = RecorderPipe {
            lines,
            bytes,
            behind: hosts.clone(),
            tags,
            inputs: self.inputs.clone(),
        };
        waiting.push_beginning(fleet);
        *self.waiting.lock() = Some(waiting);
        for host in hosts {
            sources.send(host, AgentCommand::Full);
        }
    }

    /// Uses the name that a host has now. Its first line names it.
    pub(super) fn name(&self, host: HostKey, name: &str) {
        let mut waiting = self.waiting.lock();
        let tag = waiting
            .as_mut()
            .and_then(|waiting| waiting.tags.get_mut(&host));
        if let Some(tag) =
            tag.filter(|tag| tag.name.as_ref().is_none_or(|known| known.as_str() != name))
        {
            tag.name = Some(name.into());
        }
    }

    /// Closes the recording. Its last report follows.
    pub(super) fn stop(&self) {
        *self.waiting.lock() = None;
    }

    /// Closes the recording, and waits a little for the last sentence of its process. `None` when
    /// nothing was recorded, or the sentence was already shown.
    pub(super) async fn finish(mut self) -> Option<Text> {
        self.stop();
        let task = self.task.take().filter(|task| !task.is_finished())?;
        timeout(QUIT_TIMEOUT, task).await.ok()?.ok()
    }
}

/// Starts the process that writes a recording with this name, without an ending. The error is one
/// phrase.
fn spawn(name: &str) -> Result<Child, String> {
    let path = recording_file(&format!("{name}.jsonl.zst")).ok_or("HOME is not set")?;
    let mut command = Command::from(detached_gputop());
    command.args(["record", "--from-viewer", "-o"]).arg(path);
    let process = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    process.map_err(|error| error.to_string())
}

async fn write_lines(
    mut stdin: ChildStdin,
    mut lines: UnboundedReceiver<Vec<u8>>,
    waiting: Arc<AtomicUsize>,
) {
    while let Some(line) = lines.recv().await {
        if stdin.write_all(&line).await.is_err() {
            return;
        }
        waiting.fetch_sub(line.len(), Ordering::Relaxed);
    }
}

/// Passes reports on until the recording is closed. Returns the sentence of the last one.
async fn read_reports(mut process: Child, inputs: UnboundedSender<SessionInput>) -> Text {
    if let Some(stdout) = process.stdout.take() {
        let mut lines = LineReader::new(stdout);
        while let Ok(Some(line)) = lines.next().await {
            let Ok(report) = serde_json::from_slice::<RecorderReport>(line) else {
                continue;
            };
            let end = (report.state == RecorderState::Closed).then(|| report.sentence.clone());
            // Nothing receives the report once the session is over.
            _ = inputs.send(SessionInput::Recorder(report));
            if let Some(end) = end {
                return end;
            }
        }
    }
    let mut reason = Vec::new();
    if let Some(stderr) = process.stderr.take() {
        // Without a reason, the sentence says only that the recording has ended.
        let _unreadable = stderr
            .take(Text::LIMIT as u64)
            .read_to_end(&mut reason)
            .await;
    }
    let reason = String::from_utf8_lossy(&reason);
    let sentence = match reason.trim_end().trim_start_matches("gputop: ") {
        "" => Text::from("the recording ended: its process is gone"),
        reason => Text::new(reason),
    };
    _ = inputs.send(SessionInput::Recorder(RecorderReport {
        state: RecorderState::Closed,
        sentence: sentence.clone(),
    }));
    sentence
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::change::Change;
    use crate::protocol::snapshot::example;

    #[test]
    fn while_too_many_bytes_wait_lines_are_left_out_until_a_full_line_has_room() {
        let (lines, mut sent) = mpsc::unbounded_channel();
        let (inputs, mut reports) = mpsc::unbounded_channel();
        let bytes = Arc::new(AtomicUsize::new(0));
        let host = HostKey::FIRST;
        let mut waiting = RecorderPipe {
            lines,
            bytes: Arc::clone(&bytes),
            behind: [host].into(),
            tags: BTreeMap::new(),
            inputs,
        };
        let (first, second) = (example::host(1), example::host(1).later(1));
        let tick = Line::Tick(Box::new(Change::between(&first, &second).unwrap()));
        let full = Line::Full(Box::new(first));
        let mut copy = |line: &Line, raw: &str| {
            waiting.copy(host, line, raw.as_bytes());
            let lines = std::iter::from_fn(|| sent.try_recv().ok())
                .map(|line| String::from_utf8(line).unwrap());
            let is_said = std::iter::from_fn(|| reports.try_recv().ok()).count() > 0;
            (lines.collect::<String>(), is_said)
        };
        assert_eq!(
            copy(&tick, "before the first full line"),
            (String::new(), false)
        );
        assert_eq!(copy(&full, "full"), ("full\n".to_owned(), false));
        assert_eq!(copy(&tick, "tick"), ("tick\n".to_owned(), false));
        bytes.store(MOST_WAITING + 1, Ordering::Relaxed);
        assert_eq!(copy(&tick, "no room"), (String::new(), true));
        assert_eq!(copy(&tick, "no room"), (String::new(), false));
        bytes.store(0, Ordering::Relaxed);
        assert_eq!(copy(&tick, "does not fit"), (String::new(), false));
        assert_eq!(copy(&full, "full"), ("full\n".to_owned(), false));
        assert_eq!(copy(&tick, "tick"), ("tick\n".to_owned(), false));
    }
}
