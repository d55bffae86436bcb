//! The program of `--on-alert`, which runs once for each alert.
//!
//! Each run has a session of its own without a terminal; a thread reaps it. Its output is
//! discarded.

use std::io;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::base::detach::detach;
use crate::base::text::Text;

/// The largest number of programs that run at the same time, should they hang.
const MOST_RUNNING: usize = 8;

/// The program of the user that is run for alerts.
#[derive(Debug)]
pub(crate) struct AlertProgram {
    /// The program and its arguments; empty for none.
    command: Vec<String>,
    running: Arc<AtomicUsize>,
}

impl AlertProgram {
    /// Makes the program of a command: its name and its arguments, or nothing.
    pub(crate) fn new(command: Vec<String>) -> Self {
        Self {
            command,
            running: Arc::default(),
        }
    }

    /// Starts the program, if there is one, without waiting for it. Calls `report` from another
    /// thread with a sentence when it cannot be run or fails.
    ///
    /// # Errors
    ///
    /// When no thread can be started, or too many programs still run: one sentence.
    pub(crate) fn run(
        &self,
        kind: &str,
        sentence: &str,
        facts: impl IntoIterator<Item = (&'static str, String)>,
        report: impl FnOnce(Text) + Send + 'static,
    ) -> Result<(), Text> {
        let Some((name, arguments)) = self.command.split_first() else {
            return Ok(());
        };
        if self.running.load(Ordering::Relaxed) >= MOST_RUNNING {
            return Err(format!(
                "{name} still runs for {MOST_RUNNING} alerts: this alert was not passed on"
            )
            .into());
        }
        let mut command = Command::new(name);
        command
            .args(arguments)
            .env("GPUTOP_ALERT", kind)
            .env("GPUTOP_ALERT_SENTENCE", sentence)
            .envs(
                facts
                    .into_iter()
                    .map(|(fact, value)| (format!("GPUTOP_ALERT_{fact}"), value)),
            )
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        detach(&mut command);
        let (name, running) = (name.clone(), Arc::clone(&self.running));
        running.fetch_add(1, Ordering::Relaxed);
        let run = move || {
            let problem = problem(&name, command.spawn().and_then(|mut child| child.wait()));
            running.fetch_sub(1, Ordering::Relaxed);
            if let Some(problem) = problem {
                report(problem);
            }
        };
        // Starting a program from a network file system may take long, so the thread starts it too.
        thread::Builder::new()
            .name("alert".to_owned())
            .spawn(run)
            .map_err(|error| {
                self.running.fetch_sub(1, Ordering::Relaxed);
                Text::from(format!("an alert was not passed on: {error}"))
            })?;
        Ok(())
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
