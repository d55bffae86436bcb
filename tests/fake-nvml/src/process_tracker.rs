//! Tracks which processes of the world file live, and how much memory they have.

use std::{collections::HashMap, fs, os::fd::OwnedFd};

use rustix::{
    buffer::spare_capacity,
    event::{Timespec, epoll},
    process::{Pid, PidfdFlags, pidfd_open, test_kill_process},
};

/// The most pidfds that are kept open: the monitor has 1024 descriptors as a rule. Other processes
/// are polled by `kill(pid, 0)`.
const MOST_PIDFDS: usize = 384;

/// One process. A later process with the same PID is another one.
#[derive(Debug)]
pub struct TrackedProcess {
    /// Unix seconds when the process was first tracked.
    pub first_seen: f64,
    /// Unix seconds when its end was noticed; `None` while it lives.
    pub ended: Option<f64>,
    /// Resident memory in bytes; 0 until [`ProcessTracker::read_rss`].
    pub rss: u64,
    pidfd: Option<OwnedFd>,
}

/// All processes of the world file.
#[derive(Debug, Default)]
pub struct ProcessTracker {
    known: HashMap<u32, TrackedProcess>,
    /// The PIDs of living processes without a pidfd.
    polled: Vec<u32>,
    /// The epoll instance that reports which pidfds became readable.
    epoll: Option<OwnedFd>,
}

impl ProcessTracker {
    pub fn get(&self, pid: u32) -> Option<&TrackedProcess> {
        self.known.get(&pid)
    }

    /// Tracks these processes from now on, and no others.
    pub fn track(&mut self, pids: impl Iterator<Item = u32>, now: f64) {
        let mut before = std::mem::take(&mut self.known);
        if self.epoll.is_none() {
            self.epoll = epoll::create(epoll::CreateFlags::CLOEXEC).ok();
        }
        let mut pidfds = before
            .values()
            .filter(|process| process.pidfd.is_some())
            .count();
        for pid in pids {
            if self.known.contains_key(&pid) {
                continue;
            }
            let process = before.remove(&pid).unwrap_or_else(|| {
                let has_room = pidfds < MOST_PIDFDS;
                let number = valid_pid(pid).filter(|_| has_room);
                let pidfd =
                    number.and_then(|number| open_watched_pidfd(self.epoll.as_ref()?, number));
                pidfds += usize::from(pidfd.is_some());
                let lives = pidfd.is_some() || exists(pid);
                TrackedProcess {
                    first_seen: now,
                    ended: (!lives).then_some(now),
                    rss: 0,
                    pidfd,
                }
            });
            self.known.insert(pid, process);
        }
        let polled = self
            .known
            .iter()
            .filter(|(_, process)| process.pidfd.is_none() && process.ended.is_none());
        self.polled = polled.map(|(pid, _)| *pid).collect();
    }

    /// Notices processes that have ended since the last call.
    pub fn refresh(&mut self, now: f64) {
        for pid in &self.polled {
            let process = self
                .known
                .get_mut(pid)
                .filter(|process| process.ended.is_none());
            if let Some(process) = process.filter(|_| !exists(*pid)) {
                process.ended = Some(now);
            }
        }
        let Some(epoll) = &self.epoll else { return };
        // A pidfd is readable when its process has ended. One epoll call costs the same for one
        // pidfd and for hundreds.
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut events = Vec::with_capacity(64);
        while epoll::wait(epoll, spare_capacity(&mut events), Some(&at_once))
            .is_ok_and(|count| count > 0)
        {
            for event in events.drain(..) {
                let pid = u32::try_from(event.data.u64()).unwrap_or(0);
                if let Some(process) = self.known.get_mut(&pid) {
                    process.ended = Some(now);
                    // Closing the pidfd removes it from the epoll instance.
                    process.pidfd = None;
                }
            }
        }
    }

    /// Reads the resident memory of a process. After its end, the last value stays.
    pub fn read_rss(&mut self, pid: u32) {
        if let Some(process) = self.known.get_mut(&pid)
            && process.ended.is_none()
            && let Ok(statm) = fs::read_to_string(format!("/proc/{pid}/statm"))
            && let Some(pages) = statm
                .split(' ')
                .nth(1)
                .and_then(|pages| pages.parse::<u64>().ok())
            && pages > 0
        {
            process.rss = pages * rustix::param::page_size() as u64;
        }
    }
}

/// Opens a pidfd and adds it to the epoll instance.
fn open_watched_pidfd(epoll: &OwnedFd, pid: Pid) -> Option<OwnedFd> {
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    let number = u64::try_from(pid.as_raw_nonzero().get()).ok()?;
    epoll::add(
        epoll,
        &pidfd,
        epoll::EventData::new_u64(number),
        epoll::EventFlags::IN,
    )
    .ok()?;
    Some(pidfd)
}

/// `None` for 0 and for numbers beyond `i32`: kill(2) takes them for process groups.
fn valid_pid(pid: u32) -> Option<Pid> {
    i32::try_from(pid)
        .ok()
        .filter(|pid| *pid > 0)
        .and_then(Pid::from_raw)
}

fn exists(pid: u32) -> bool {
    valid_pid(pid).is_some_and(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}
