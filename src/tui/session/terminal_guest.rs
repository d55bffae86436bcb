//! Another gputop that the terminal is lent to: it shows a host of a cluster, or logs in to a host
//! with ssh, which may ask for a password, a code or a new key.
//!
//! It runs as if the user had typed it. Meanwhile nothing is drawn, and its process reads what is
//! typed.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::base::detach::{end_with_this_thread, this_gputop};

/// How long to wait for the end of a program that was told to end.
const PATIENCE: Duration = Duration::from_secs(3);

/// A gputop that has the terminal. Dropping it ends the program.
#[derive(Debug)]
pub(super) struct TerminalGuest {
    child: Arc<Mutex<Child>>,
    /// Closed once the program has ended.
    ended: Receiver<()>,
}

impl TerminalGuest {
    /// Starts gputop with these arguments, and with the configuration file that the user named.
    /// Calls `over` with its end.
    ///
    /// # Errors
    ///
    /// When the process or a thread cannot be started.
    pub(super) fn start<'a>(
        arguments: impl IntoIterator<Item = &'a str>,
        config: Option<&Path>,
        over: impl FnOnce(io::Result<ExitStatus>) + Send + 'static,
    ) -> io::Result<Self> {
        let mut command = this_gputop();
        command
            .args(arguments)
            // The keys of the session come through its standard input.
            .stdin(File::open("/dev/tty")?);
        if let Some(config) = config {
            command.env("GPUTOP_CONFIG", config);
        }
        // Also when this program is killed.
        let child = end_with_this_thread(&mut command, Signal::TERM).spawn()?;
        let pid = Pid::from_child(&child);
        let child = Arc::new(Mutex::new(child));
        let shared = Arc::clone(&child);
        let (end, ended) = mpsc::channel();
        thread::Builder::new()
            .name("guest".to_owned())
            .spawn(move || {
                // Not reaped here, so that the PID is that of the child while it may be signalled.
                let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
                while matches!(waitid(WaitId::Pid(pid), ended), Err(Errno::INTR)) {}
                let status = lock(&shared).wait();
                drop(end);
                over(status);
            })?;
        Ok(Self { child, ended })
    }
}

impl Drop for TerminalGuest {
    /// Ends the program if it still runs, and waits until it has restored the terminal.
    fn drop(&mut self) {
        {
            let mut child = lock(&self.child);
            if let Ok(None) = child.try_wait() {
                // It cannot have been reaped.
                let _ended = kill_process(Pid::from_child(&child), Signal::TERM);
            }
        }
        let _in_time = self.ended.recv_timeout(PATIENCE);
    }
}

fn lock(child: &Mutex<Child>) -> MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}
