//! Limits how many agents of one user read a host for viewers elsewhere.
//!
//! Forty people who watch one node with an agent each would cost it as much as a job. An agent that
//! passes on the lines of a recorder needs no slot.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;

use crate::files::folders::shared_folder;
use crate::files::private_folder;

/// The most agents of one user that read a host for viewers of other hosts.
const MOST: usize = 4;

/// The slot of an agent: the kernel frees it when the agent ends, however it ends.
#[derive(Debug)]
pub(super) struct ReadingSlot(#[expect(dead_code, reason = "kept open for its lock")] OwnedFd);

/// Takes a slot. Returns `None` where the slots cannot be read: an agent works as well without them.
///
/// # Errors
///
/// When all slots are taken: a sentence.
pub(super) fn take() -> Result<Option<ReadingSlot>, String> {
    match take_in(&shared_folder()) {
        Ok(Some(slot)) => Ok(Some(slot)),
        Ok(None) => Err(format!(
            "{MOST} agents of this user read this host for other viewers already; with `gputop record` there, all viewers \
             share one"
        )),
        Err(_) => Ok(None),
    }
}

fn take_in(folder: &Path) -> io::Result<Option<ReadingSlot>> {
    let folder = private_folder::open(folder)?;
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for number in 1..=MOST {
        let name = format!("agent-{number}.lock");
        let file = openat(&folder, name, flags, Mode::RUSR | Mode::WUSR)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(ReadingSlot(file))),
            Err(Errno::WOULDBLOCK) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fifth_agent_gets_no_slot_until_another_ends() {
        let folder = std::env::temp_dir().join(format!("gputop-slots-{}", std::process::id()));
        let mut slots: Vec<ReadingSlot> = (0..MOST)
            .map(|_| take_in(&folder).unwrap().expect("a free slot"))
            .collect();
        assert!(take_in(&folder).unwrap().is_none());
        slots.remove(1);
        assert!(take_in(&folder).unwrap().is_some());
        drop(slots);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
