//! Records the lines that a viewer receives: the other end of `R`. Only this process waits for the
//! disk.
//!
//! The standard input has the lines of all hosts, with tags if there are several. It begins with a
//! full line and a checkpoint of each host, up to an empty line. The reports to the viewer go to
//! the standard output.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process;
use std::time::Duration;

use anyhow::Context;
use tokio::process::ChildStdout;
use tokio::time::{Instant, sleep_until};

use super::EndSignals;
use crate::base::text::Text;
use crate::base::units::Elapsed;
use crate::logs::recording_output::RecordingOutput;
use crate::model::Fleet;
use crate::protocol::host_key::HostKey;
use crate::protocol::host_tag::HostTag;
use crate::protocol::recorder_report::{RecorderReport, RecorderState};
use crate::source::{LineReader, RecordingReader, RecordingWriter, parse_line};

/// Records until the viewer closes the pipe, or a signal arrives.
///
/// # Errors
///
/// When the standard input cannot be read.
pub(super) async fn record(
    path: &Path,
    writer: RecordingWriter,
    mut ends: EndSignals,
) -> anyhow::Result<()> {
    let input = io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map(process::ChildStdout::from);
    let input = input
        .and_then(ChildStdout::from_std)
        .context("cannot read the lines of the viewer")?;
    let mut lines = LineReader::new(input);
    let mut recorder = ViewerLines {
        output: RecordingOutput::new(Fleet::default(), writer),
        has_begun: false,
    };
    report(
        RecorderState::Writing,
        &format!("recording, R stops: {}", path.display()),
    );
    loop {
        recorder.report_notes();
        let due = recorder.output.writer.flush_due();
        tokio::select! {
            () = ends.next() => break,
            line = lines.next() => match line {
                Ok(Some(line)) => recorder.receive(line),
                // A line that is too long cannot be passed over.
                Ok(None) | Err(_) => break,
            },
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                recorder.output.writer.flush_if_due(Instant::now());
            }
        }
    }
    let notes = recorder.output.writer.close(Instant::now());
    let summary = match notes.last() {
        Some(note) => format!("{note}: {}", path.display()),
        None => summary(path).unwrap_or_else(|error| {
            format!("recorded, but cannot be read: {error}: {}", path.display())
        }),
    };
    report(RecorderState::Closed, &summary);
    Ok(())
}

/// Says how long the recording is.
fn summary(path: &Path) -> io::Result<String> {
    let mut reader = RecordingReader::open(path)?;
    let Some((first, last)) = reader.span()? else {
        return Ok(format!("recorded nothing: {}", path.display()));
    };
    let span = Elapsed(Duration::from_millis(last.saturating_sub(first)));
    Ok(format!(
        "recorded {span}, {}: {}",
        reader.size(),
        path.display()
    ))
}

fn report(state: RecorderState, sentence: &str) {
    let line = serde_json::to_string(&RecorderReport {
        state,
        sentence: Text::new(sentence),
    });
    // The viewer may be gone: the recording is closed all the same.
    let _no_viewer: io::Result<()> = line
        .map_err(io::Error::from)
        .and_then(|line| io::stdout().write_all((line + "\n").as_bytes()));
}

struct ViewerLines {
    output: RecordingOutput,
    /// Whether the state of all hosts at the beginning is recorded.
    has_begun: bool,
}

impl ViewerLines {
    fn receive(&mut self, raw: &[u8]) {
        if raw.is_empty() {
            return self.begin();
        }
        let Ok(Some(line)) = parse_line(raw) else {
            return;
        };
        let tag = HostTag::parse(raw);
        let Ok(host) = u16::try_from(tag.as_ref().map_or(0, |tag| tag.host_key)).map(HostKey)
        else {
            return;
        };
        if let Some(tag) = tag {
            self.output.set_tag(host, tag);
        }
        // A line that does not fit is followed by a full line.
        if self.has_begun {
            let _out_of_step =
                self.output
                    .record(host, [raw, b"\n"].concat(), line, Instant::now());
        } else {
            let _out_of_step = self.output.fleet.apply(host, line);
        }
    }

    /// Begins the recording with the state of all hosts.
    fn begin(&mut self) {
        self.has_begun = true;
        self.output.begin(Instant::now());
    }

    fn report_notes(&mut self) {
        for note in self.output.writer.take_notes() {
            let is_paused = self.output.writer.is_paused();
            report(
                if is_paused {
                    RecorderState::Paused
                } else {
                    RecorderState::Writing
                },
                &note,
            );
        }
    }
}
