//! Runs the program of `--on-alert` once for each alert, without waiting for it.
//!
//! Each run has a session of its own without a terminal; a thread reaps it. Its output is
//! discarded.

use std::io;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

use tokio::sync::mpsc::UnboundedSender;

use super::SessionInput;
use crate::app::event::Alert;
use crate::base::detach::detach;
use crate::base::text::Text;

/// The largest number of programs that run at the same time, should they hang.
const MOST_RUNNING: usize = 8;

/// Passes alerts to the user's program, and knows whether they ring the terminal's bell.
#[derive(Debug)]
pub(super) struct Notifier<'a> {
    pub(super) rings_bell: bool,
    /// The program and its arguments; empty for none.
    command: &'a [String],
    inputs: UnboundedSender<SessionInput>,
    running: usize,
}

impl<'a> Notifier<'a> {
    pub(super) fn new(
        command: &'a [String],
        rings_bell: bool,
        inputs: UnboundedSender<SessionInput>,
    ) -> Self {
        Self {
            rings_bell,
            command,
            inputs,
            running: 0,
        }
    }

    /// Starts the program, if there is one. Its end arrives as a
    /// [`SessionInput::AlertProgramEnded`].
    ///
    /// # Errors
    ///
    /// When the program cannot be started, or too many still run: one sentence.
    pub(super) fn notify(&mut self, alert: &Alert) -> Result<(), Text> {
        let Some((name, arguments)) = self.command.split_first() else {
            return Ok(());
        };
        if self.running >= MOST_RUNNING {
            return Err(format!(
                "{name} still runs for {MOST_RUNNING} alerts: this alert was not passed on"
            )
            .into());
        }
        let mut command = Command::new(name);
        command
            .args(arguments)
            .env("GPUTOP_ALERT", <&str>::from(alert.kind))
            .env("GPUTOP_ALERT_SENTENCE", &alert.sentence)
            .envs(
                alert
                    .facts
                    .iter()
                    .map(|(fact, value)| (format!("GPUTOP_ALERT_{fact}"), value)),
            )
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        detach(&mut command);
        let (inputs, name) = (self.inputs.clone(), name.clone());
        let run = move || {
            let problem = problem(&name, command.spawn().and_then(|mut child| child.wait()));
            let _session_over = inputs.send(SessionInput::AlertProgramEnded(problem));
        };
        // Starting a program from a network file system may take long, so the thread starts it too.
        thread::Builder::new()
            .name("alert".to_owned())
            .spawn(run)
            .map_err(|error| Text::from(format!("an alert was not passed on: {error}")))?;
        self.running += 1;
        Ok(())
    }

    pub(super) fn program_ended(&mut self) {
        self.running = self.running.saturating_sub(1);
    }
}

fn problem(name: &str, ended: io::Result<ExitStatus>) -> Option<Text> {
    match ended {
        Ok(status) if status.success() => None,
        Ok(status) => {
            Some(format!("{name}, which was to pass on an alert, ended with {status}").into())
        }
        Err(error) => Some(format!("cannot run {name} to pass on an alert: {error}").into()),
    }
}
