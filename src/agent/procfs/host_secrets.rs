//! Finds the secrets in the arguments of every process of this host, for `gputop doctor --secrets`.
//! Passes on where they are, never the secrets.

use std::fs;
use std::sync::mpsc;
use std::time::Duration;

use super::read_pool::{Priority, ReadPool};
use super::slow_files;
use crate::agent::clock;
use crate::base::secrets::{self, FoundSecret};
use crate::protocol::snapshot::Reading;

/// How long one process may take before another thread reads the next one.
const PATIENCE: Duration = Duration::from_millis(50);

/// After this time, a read counts as hung.
const HUNG: Duration = Duration::from_secs(1);

/// The secrets in the arguments of the processes of this host.
#[derive(Debug, Default)]
pub struct HostSecrets {
    /// Each secret with the PID of its process, by PID.
    pub found: Vec<(u32, FoundSecret)>,
    /// The number of processes with arguments that were read.
    pub processes: usize,
    /// The number of processes whose arguments this user may not read.
    pub unreadable: usize,
    /// The number of processes whose arguments were not read in time.
    pub hung: usize,
}

impl HostSecrets {
    /// Reads the arguments of every process.
    pub fn read() -> Self {
        let (sender, answers) = mpsc::channel();
        let mut pool = ReadPool::new("arguments", PATIENCE, secrets_of, move |answer| {
            sender.send(answer).is_ok()
        });
        let entries = fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .filter_map(Result::ok);
        let mut waiting = 0;
        for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
            pool.push(pid, Priority::Normal, clock::now());
            waiting += 1;
        }
        let mut host = Self::default();
        while waiting > 0 {
            if let Ok(answer) = answers.recv_timeout(PATIENCE) {
                host.add(pool.receive(answer, clock::now()));
                waiting -= 1;
                continue;
            }
            let now = clock::now();
            pool.read_waiting(now);
            if pool.slower_than(HUNG, now).count() + pool.delayed_keys(HUNG, now).len() >= waiting {
                break;
            }
        }
        host.hung = waiting;
        host.found.sort_by_key(|(pid, _)| *pid);
        host
    }

    fn add(&mut self, (pid, found): (u32, Reading<Option<Vec<FoundSecret>>>)) {
        match found {
            Ok(None) => {}
            Ok(Some(found)) => {
                self.processes += 1;
                self.found
                    .extend(found.into_iter().map(|secret| (pid, secret)));
            }
            Err(why) => {
                self.unreadable += usize::from(why == crate::protocol::snapshot::Missing::Denied);
            }
        }
    }
}

/// Returns the secrets of a process; `None` for one without arguments, as a thread of the kernel.
fn secrets_of(pid: u32) -> Reading<Option<Vec<FoundSecret>>> {
    let arguments = slow_files::arguments(pid)?;
    Ok((!arguments.is_empty()).then(|| secrets::find(&arguments)))
}
