//! Which processes of the world live, and how much memory they have. Knows nothing of GPUs.

use std::{collections::HashMap, fs, os::fd::OwnedFd};

use rustix::{
    buffer::spare_capacity,
    event::{Timespec, epoll},
    process::{Pid, PidfdFlags, pidfd_open, test_kill_process},
};

/// More would eat up the descriptors of the monitor (1024 as a rule); the rest is asked with `kill(pid, 0)`.
const MOST_PIDFDS: usize = 384;

/// What we know of one PID. It is one process: a later one of the same number is not it.
#[derive(Debug)]
pub struct Life {
    /// Unix seconds of the first look.
    pub first_seen: f64,
    /// Unix seconds of its end, as far as we saw it.
    pub ended: Option<f64>,
    /// Resident memory in bytes, if someone asked for it.
    pub rss: u64,
    pidfd: Option<OwnedFd>,
}

/// All processes that the world speaks of.
#[derive(Debug, Default)]
pub struct Lives {
    known: HashMap<u32, Life>,
    /// Those without a pidfd.
    asked: Vec<u32>,
    /// Tells which pidfds became readable.
    watch: Option<OwnedFd>,
}

impl Lives {
    pub fn get(&self, pid: u32) -> Option<&Life> {
        self.known.get(&pid)
    }

    /// Meets those who are new, and forgets those who are not among them any more.
    pub fn meet(&mut self, pids: impl Iterator<Item = u32>, now: f64) {
        let mut before = std::mem::take(&mut self.known);
        if self.watch.is_none() {
            self.watch = epoll::create(epoll::CreateFlags::CLOEXEC).ok();
        }
        let mut pidfds = before.values().filter(|it| it.pidfd.is_some()).count();
        for pid in pids {
            if self.known.contains_key(&pid) {
                continue;
            }
            let life = before.remove(&pid).unwrap_or_else(|| {
                let room = pidfds < MOST_PIDFDS;
                let pidfd = raw(pid).filter(|_| room).and_then(|it| watched(self.watch.as_ref()?, it));
                pidfds += usize::from(pidfd.is_some());
                let lives = pidfd.is_some() || exists(pid);
                Life { first_seen: now, ended: (!lives).then_some(now), rss: 0, pidfd }
            });
            self.known.insert(pid, life);
        }
        let asked = self.known.iter().filter(|(_, it)| it.pidfd.is_none() && it.ended.is_none());
        self.asked = asked.map(|(pid, _)| *pid).collect();
    }

    /// Finds out who ended since the last look.
    pub fn look(&mut self, now: f64) {
        for pid in &self.asked {
            if let Some(life) = self.known.get_mut(pid).filter(|it| it.ended.is_none() && !exists(*pid)) {
                life.ended = Some(now);
            }
        }
        let Some(watch) = &self.watch else { return };
        // A pidfd is readable when its process has ended. An epoll costs the same for one and for a thousand.
        let mut events = Vec::with_capacity(64);
        while epoll::wait(watch, spare_capacity(&mut events), Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
            .is_ok_and(|it| it > 0)
        {
            for event in events.drain(..) {
                let pid = u32::try_from(event.data.u64()).unwrap_or(0);
                if let Some(life) = self.known.get_mut(&pid) {
                    life.ended = Some(now);
                    // Closed, it leaves the watch.
                    life.pidfd = None;
                }
            }
        }
    }

    /// Reads how much memory it has now. One that ended keeps its last figure.
    pub fn weigh(&mut self, pid: u32) {
        if let Some(life) = self.known.get_mut(&pid)
            && life.ended.is_none()
            && let Ok(statm) = fs::read_to_string(format!("/proc/{pid}/statm"))
            && let Some(pages) = statm.split(' ').nth(1).and_then(|it| it.parse::<u64>().ok())
            && pages > 0
        {
            life.rss = pages * rustix::param::page_size() as u64;
        }
    }
}

/// A pidfd that the watch tells of.
fn watched(watch: &OwnedFd, pid: Pid) -> Option<OwnedFd> {
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    let number = u64::try_from(pid.as_raw_nonzero().get()).ok()?;
    epoll::add(watch, &pidfd, epoll::EventData::new_u64(number), epoll::EventFlags::IN).ok()?;
    Some(pidfd)
}

fn raw(pid: u32) -> Option<Pid> {
    // 0 and numbers over i32 are groups to kill(2), not processes.
    i32::try_from(pid).ok().filter(|it| *it > 0).and_then(Pid::from_raw)
}

fn exists(pid: u32) -> bool {
    raw(pid).is_some_and(|it| test_kill_process(it) != Err(rustix::io::Errno::SRCH))
}
