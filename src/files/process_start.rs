//! The identity of a process of this host across boots: the boot, and the start ticks of the
//! process.

use std::fs;
use std::io;

/// Returns the kernel's ID of this boot.
///
/// # Errors
///
/// When `/proc` cannot be read.
pub(crate) fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned())
}

/// Returns the start ticks of the process with a PID; `None` when there is none.
pub(crate) fn start_ticks(pid: u32) -> Option<u64> {
    /// The number of the field, and that of the first field after the name, which may contain
    /// spaces.
    const START_TICKS: usize = 22;
    const FIRST: usize = 3;
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(START_TICKS - FIRST)?
        .parse()
        .ok()
}
