//! Passes alerts on to the program of `--on-alert`, each once, and waits for none of them.
//!
//! Each runs in a session of its own, on no terminal, on a thread that reaps it. Its output goes nowhere.

use std::io;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

use tokio::sync::mpsc::UnboundedSender;

use super::Outside;
use crate::app::event::Alert;
use crate::base::text::Text;
use crate::source::detach;

/// So many programs at a time, should they hang.
const MOST: usize = 8;

/// Whoever passes alerts on.
#[derive(Debug)]
pub(super) struct Herald<'a> {
    bell: bool,
    command: &'a [String],
    outside: UnboundedSender<Outside>,
    running: usize,
}

impl<'a> Herald<'a> {
    /// As the command line says.
    pub(super) fn new(command: &'a [String], bell: bool, outside: UnboundedSender<Outside>) -> Self {
        Self { bell, command, outside, running: 0 }
    }

    /// Whether the bell rings.
    pub(super) fn rings(&self) -> bool {
        self.bell
    }

    /// Has the program told, if there is one, and says why not.
    pub(super) fn tell(&mut self, alert: &Alert) -> Result<(), Text> {
        let Some((name, arguments)) = self.command.split_first() else { return Ok(()) };
        if self.running >= MOST {
            return Err(format!("{name} has not come back from {MOST} alerts: this one was not passed on").into());
        }
        let mut command = Command::new(name);
        command
            .args(arguments)
            .env("GPUTOP_ALERT", alert.kind.name())
            .env("GPUTOP_ALERT_SENTENCE", &alert.sentence)
            .envs(alert.facts.iter().map(|(fact, value)| (format!("GPUTOP_ALERT_{fact}"), value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        detach(&mut command);
        let (outside, name) = (self.outside.clone(), name.clone());
        let told = move || {
            let trouble = trouble(&name, command.spawn().and_then(|mut child| child.wait()));
            // The session may be over.
            let _leaving = outside.send(Outside::Told(trouble));
        };
        // Starting a program may take long, too, where it lies on another machine.
        thread::Builder::new()
            .name("alert".to_owned())
            .spawn(told)
            .map_err(|error| Text::from(format!("an alert was not passed on: {error}")))?;
        self.running += 1;
        Ok(())
    }

    /// One of them is over.
    pub(super) fn is_back(&mut self) {
        self.running = self.running.saturating_sub(1);
    }
}

/// What went wrong, in a sentence.
fn trouble(name: &str, ended: io::Result<ExitStatus>) -> Option<Text> {
    match ended {
        Ok(status) if status.success() => None,
        Ok(status) => Some(format!("{name}, which was to pass on an alert, ended with {status}").into()),
        Err(error) => Some(format!("cannot run {name} to pass on an alert: {error}").into()),
    }
}
