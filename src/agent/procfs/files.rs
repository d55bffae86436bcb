//! Opens and reads files of `/proc/PID` that cannot block.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::protocol::snapshot::{Missing, Reading};

/// Whether this process runs in the PID namespace of the host, whose inode is `PROC_PID_INIT_INO`
/// in every Linux.
pub(in crate::agent) fn is_initial_pid_namespace() -> bool {
    fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.as_os_str() == "pid:[4026531836]")
}

pub(in crate::agent) fn real_uid(pid: u32) -> Reading<u32> {
    let mut buffer = [0; 1024];
    let status = open(pid, "status")
        .and_then(|status| read(status, &mut buffer))
        .map_err(missing)?;
    parse_real_uid(status).ok_or(Missing::Failed)
}

fn parse_real_uid(status: &[u8]) -> Option<u32> {
    let line = status
        .split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(b"Uid:\t"))?;
    str::from_utf8(line)
        .ok()?
        .split_ascii_whitespace()
        .next()?
        .parse()
        .ok()
}

/// Returns how much a process has read: the larger of `rchar`, which counts reads from the page
/// cache too, and `read_bytes`, which counts the pages of mapped files that came from a disk.
/// `None` where it cannot be read, as for the processes of other users.
pub(super) fn bytes_read(pid: u32) -> Option<Bytes> {
    let mut buffer = [0; 512];
    let io = open(pid, "io")
        .and_then(|file| read(file, &mut buffer))
        .ok()?;
    parse_bytes_read(str::from_utf8(io).ok()?)
}

fn parse_bytes_read(io: &str) -> Option<Bytes> {
    let value = |name: &str| {
        io.lines()
            .find_map(|line| line.strip_prefix(name)?.parse().ok())
    };
    value("rchar: ").max(value("read_bytes: ")).map(Bytes)
}

/// Returns why a file of a process that existed a moment ago cannot be read.
pub(super) fn missing(error: Errno) -> Missing {
    match error {
        Errno::ACCESS | Errno::PERM => Missing::Denied,
        // The process has ended meanwhile, which is no failure. The next pass leaves it out.
        Errno::NOENT | Errno::SRCH => Missing::NotYet,
        _ => Missing::Failed,
    }
}

pub(in crate::agent) fn open(pid: u32, name: &str) -> rustix::io::Result<OwnedFd> {
    use io::Write;
    let mut path = [0_u8; 40];
    let mut rest = path.as_mut_slice();
    // A PID has at most ten digits, so the path fits.
    let _fits: io::Result<()> = write!(rest, "/proc/{pid}/{name}");
    let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

pub(in crate::agent) fn open_directory(path: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(
        path,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// Reads the beginning of a file, as much as the buffer holds.
pub(in crate::agent) fn read(file: impl AsFd, buffer: &mut [u8]) -> rustix::io::Result<&[u8]> {
    let length = rustix::io::pread(file, &mut *buffer, 0)?;
    Ok(&buffer[..length])
}

/// Reads a file that may be of any length. Longer files than 16 MiB are cut.
pub(in crate::agent) fn read_cut(path: &str) -> io::Result<Vec<u8>> {
    const MOST: u64 = 16 << 20;
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the kernel function in which a process or thread waits. `directory` is its directory in
/// `/proc`.
pub(in crate::agent) fn wchan(directory: &Path) -> Reading<Text> {
    let name = fs::read(directory.join("wchan")).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => Missing::Denied,
        _ => Missing::Unsupported,
    })?;
    match name.as_slice() {
        // The kernel prints this when the thread has just woken up, without permission, and when
        // built without wchan.
        b"" | b"0" => Err(Missing::Unsupported),
        name => Ok(Text::new(name)),
    }
}

/// Whether a process has threads that only a PyTorch trainer has. Checks only the newest threads,
/// where these are.
pub(super) fn has_trainer_threads(pid: u32) -> Reading<bool> {
    has_threads_named(pid, &[b"pt_autograd_", b"pt_data_pin", b"pt_nccl_"])
}

/// Whether the process has a thread whose name begins with one of these names.
pub(in crate::agent) fn has_threads_named(pid: u32, names: &[&[u8]]) -> Reading<bool> {
    const MOST_THREADS: usize = 256;
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => Missing::Denied,
        // The process has ended.
        _ => Missing::NotYet,
    })?;
    let tasks: Vec<_> = tasks.filter_map(Result::ok).collect();
    let is_named = tasks.iter().rev().take(MOST_THREADS).any(|task| {
        let comm = fs::read(task.path().join("comm"));
        comm.is_ok_and(|comm| names.iter().any(|name| comm.starts_with(name)))
    });
    Ok(is_named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_an_end_is_cut() {
        assert_eq!(
            read_cut("/dev/zero").map(|bytes| bytes.len()).ok(),
            Some(16 << 20)
        );
    }

    #[test]
    fn the_bytes_read_are_those_from_the_disk_if_these_are_more() {
        let io = |rchar: u64, disk: u64| {
            format!("rchar: {rchar}\nwchar: 9\nsyscr: 1\nread_bytes: {disk}\n")
        };
        assert_eq!(
            [io(7, 4096), io(8192, 0)].map(|io| parse_bytes_read(&io)),
            [4096, 8192].map(|bytes| Some(Bytes(bytes)))
        );
        assert_eq!(parse_bytes_read("rchar: \n"), None);
        assert!(bytes_read(std::process::id()).is_some());
    }

    #[test]
    fn the_real_user_id_is_the_first_of_its_line() {
        assert_eq!(
            parse_real_uid(b"Name:\tpython\nUid:\t4000001\t1002\t1003\t1004\n"),
            Some(4_000_001)
        );
        assert_eq!(parse_real_uid(b"Name:\tUid:\n"), None);
    }
}
