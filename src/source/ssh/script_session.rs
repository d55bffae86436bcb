//! A session of `ssh`, or of a shell of this host, in which a script runs that gputop brings along.

use std::iter;
use std::os::fd::OwnedFd;
use std::process::Stdio;

use tokio::process::{Child, ChildStdout, Command};

use super::HostShell;
use super::first_contact::new_nonce;
use super::script::{self, RemoteScript};
use crate::base::detach::detach;
use crate::base::text::Text;
use crate::source::line_reader::LineReader;
use crate::source::standard_error::StandardError;

/// A session of `ssh` in which a script runs.
pub(in crate::source) struct ScriptSession {
    /// The program that was started: `ssh`, or a shell of this host.
    program: String,
    /// The standard input of the script; `None` once it was taken.
    pub(in crate::source) stdin: Option<OwnedFd>,
    lines: LineReader<ChildStdout>,
    standard_error: StandardError,
    nonce: String,
    /// The process, which is killed when the session is dropped.
    _process: Child,
}

impl ScriptSession {
    pub(in crate::source) fn start(
        shell: HostShell,
        script: RemoteScript,
        words: &[&str],
    ) -> Result<Self, String> {
        let nonce = new_nonce();
        let words = iter::once(nonce.as_str()).chain(words.iter().copied());
        let mut command = shell.run(script, words);
        let program = command.get_program().display().to_string();
        detach(&mut command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = Command::from(command)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("cannot start {program}: {error}"))?;
        let (Some(stdin), Some(stdout), Some(stderr)) = (
            process.stdin.take(),
            process.stdout.take(),
            process.stderr.take(),
        ) else {
            return Err(format!("{program} was started without pipes"));
        };
        let stdin = stdin
            .into_owned_fd()
            .map_err(|error| format!("cannot write to {program}: {error}"))?;
        Ok(Self {
            program,
            stdin: Some(stdin),
            lines: LineReader::new(stdout),
            standard_error: StandardError::new(stderr),
            nonce,
            _process: process,
        })
    }

    /// Returns the first fields of the next line of the script, empty where there are fewer; `None`
    /// at the end. Skips lines of the login shell.
    pub(in crate::source) async fn answer<const FIELDS: usize>(
        &mut self,
    ) -> Result<Option<[Text; FIELDS]>, String> {
        loop {
            let line = tokio::select! {
                line = self.lines.next() => line,
                () = self.standard_error.read() => continue,
            };
            let line =
                line.map_err(|error| format!("cannot read from {}: {error}", self.program))?;
            let Some(line) = line else {
                return Ok(None);
            };
            if let Some(mut fields) = script::fields(line, &self.nonce) {
                return Ok(Some(std::array::from_fn(|_| {
                    Text::new(fields.next().unwrap_or_default())
                })));
            }
        }
    }

    /// Returns the last lines of the standard error, once the session has ended.
    pub(in crate::source) async fn last_lines(&mut self) -> Vec<Text> {
        self.standard_error.last_lines().await
    }

    /// Says why the session ended before the script was done.
    pub(in crate::source) async fn why_it_ended(&mut self, consequence: &str) -> String {
        match self.standard_error.last_lines().await.last() {
            Some(reason) => format!("{consequence}: {reason}"),
            None => format!("{consequence}: {} ended without a word", self.program),
        }
    }
}
