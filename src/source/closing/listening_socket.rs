//! Recognises a control master of ssh: it has a listening Unix socket open, to which the user's
//! other sessions connect.

use std::collections::HashSet;
use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::process::Pid;

/// The flag of a listening socket in `/proc/net/unix`.
const ACCEPTS_CONNECTIONS: u32 = 1 << 16;

/// Whether this process or a descendant has a listening Unix socket open, or that cannot be read.
pub(super) fn may_be_master(pid: Pid) -> bool {
    let pid = pid.as_raw_pid();
    has_listening_socket(pid).unwrap_or(true)
        || descendants(pid).map_or(true, |descendants| {
            descendants
                .into_iter()
                .any(|descendant| match has_listening_socket(descendant) {
                    Ok(has_one) => has_one,
                    Err(error) => !has_ended(&error),
                })
        })
}

fn has_listening_socket(pid: i32) -> io::Result<bool> {
    let mut sockets = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        match fs::read_link(entry?.path()) {
            Ok(target) => sockets.extend(target.to_str().and_then(socket_inode)),
            // The process has closed the descriptor meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    if sockets.is_empty() {
        return Ok(false);
    }
    // The list of the process's own network namespace.
    let listening = listening_inodes(&fs::read(format!("/proc/{pid}/net/unix"))?);
    Ok(sockets.iter().any(|inode| listening.contains(inode)))
}

/// Parses a link of `/proc/PID/fd`. Returns `None` if it does not lead to a socket.
fn socket_inode(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?
        .strip_suffix(']')?
        .parse()
        .ok()
}

/// Parses `/proc/net/unix`: `Num RefCount Protocol Flags Type St Inode Path`, after a line of
/// titles.
fn listening_inodes(list: &[u8]) -> HashSet<u64> {
    let lines = list
        .split(|byte| *byte == b'\n')
        .map(String::from_utf8_lossy);
    let inode = |line: &str| {
        let mut fields = line.split_ascii_whitespace().skip(3);
        let flags = u32::from_str_radix(fields.next()?, 16).ok()?;
        (flags & ACCEPTS_CONNECTIONS != 0).then(|| fields.nth(2)?.parse().ok())?
    };
    lines.filter_map(|line| inode(&line)).collect()
}

/// The processes below a process that live now.
pub(super) fn descendants(pid: i32) -> io::Result<Vec<i32>> {
    let mut others: Vec<(i32, i32)> = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(Ok(other)) = name.to_str().map(str::parse) else {
            continue;
        };
        match fs::read(format!("/proc/{other}/stat")) {
            Ok(stat) => others.extend(parent(&stat).map(|parent| (other, parent))),
            Err(error) if has_ended(&error) => {}
            Err(error) => return Err(error),
        }
    }
    let mut family = vec![pid];
    let mut next = 0;
    while let Some(ancestor) = family.get(next).copied() {
        family.extend(
            others
                .iter()
                .filter(|(_, parent)| *parent == ancestor)
                .map(|(child, _)| *child),
        );
        next += 1;
    }
    Ok(family.split_off(1))
}

/// Parses the parent in `/proc/PID/stat`. The name of the program before it may contain anything.
fn parent(stat: &[u8]) -> Option<i32> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    str::from_utf8(&stat[name_end + 1..])
        .ok()?
        .split_ascii_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

/// Whether a file of `/proc` could not be read because its process has ended.
fn has_ended(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(Errno::SRCH.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_are_found_in_the_kernels_list() {
        let list = b"Num               RefCount Protocol Flags    Type St Inode Path\n\
            ffff9a3c: 00000002 00000000 00010000 0001 01 10563 /run/user/1000/master socket\n\
            ffff9a3d: 00000003 00000000 00000000 0001 03 10564 /run/user/1000/master\n\
            ffff9a3e: 00000002 00000000 00010000 0005 01 10565 @abstract \xFF\n";
        assert_eq!(listening_inodes(list), HashSet::from([10563, 10565]));
        assert_eq!(socket_inode("socket:[10563]"), Some(10563));
        assert_eq!(socket_inode("pipe:[10563]"), None);
    }

    #[test]
    fn the_parent_is_found_behind_a_strange_name() {
        assert_eq!(parent(b"12 (a) S 9 (b)) S 7 12 12 0\n"), Some(7));
        assert_eq!(parent(b""), None);
    }
}
