//! The socket through which a recorder passes the lines of its host on to other gputops of the same
//! user on that host.
//!
//! It is in a folder that only this user may enter. Each end verifies whose process the other is,
//! and that both see the same PIDs: a container may share the folder, and not the processes.

use std::fs;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, geteuid};

use super::folders::shared_folder;
use super::private_folder;

/// The socket, in the shared folder of the user.
const FILE: &str = "recorder.sock";

/// The socket of this process, which is a recorder. Dropping it removes the socket.
#[derive(Debug)]
pub(crate) struct RecorderSocket {
    pub listener: UnixListener,
    path: PathBuf,
}

impl RecorderSocket {
    /// Creates the socket.
    ///
    /// # Errors
    ///
    /// When another recorder of the user has it, or the folder is not the user's own.
    pub(crate) fn open() -> io::Result<Self> {
        let folder = shared_folder();
        private_folder::open(&folder)?;
        Self::open_at(folder.join(FILE))
    }

    fn open_at(path: PathBuf) -> io::Result<Self> {
        let listener = match UnixListener::bind(&path) {
            // A recorder that was killed leaves its socket.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && !is_served(&path) => {
                fs::remove_file(&path)?;
                UnixListener::bind(&path)?
            }
            listener => listener?,
        };
        Ok(Self { listener, path })
    }
}

/// Waits for the next reader. Readers that may not read are refused.
///
/// # Errors
///
/// When no reader can be accepted any more.
pub(crate) fn accept(listener: &UnixListener) -> io::Result<UnixStream> {
    loop {
        let (reader, _) = listener.accept()?;
        if is_trusted(&reader) {
            return Ok(reader);
        }
    }
}

impl Drop for RecorderSocket {
    fn drop(&mut self) {
        // A socket without its recorder means nothing.
        let _removed = fs::remove_file(&self.path);
    }
}

/// Connects to the recorder of this user on this host.
///
/// # Errors
///
/// When there is none, or it may not be trusted.
pub(crate) fn connect() -> io::Result<UnixStream> {
    let folder = shared_folder();
    private_folder::verify(&folder)?;
    let recorder = UnixStream::connect(folder.join(FILE))?;
    if is_trusted(&recorder) {
        Ok(recorder)
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

fn is_served(path: &Path) -> bool {
    UnixStream::connect(path).is_ok()
}

/// Whether the process at the other end is of this user, and sees the processes of the host under
/// the same PIDs.
fn is_trusted(stream: &UnixStream) -> bool {
    socket_peercred(stream)
        .is_ok_and(|peer| peer.uid == geteuid() && sees_same_pids(peer.pid).unwrap_or(false))
}

fn sees_same_pids(peer: Pid) -> io::Result<bool> {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/pid"));
    Ok(namespace("self")? == namespace(&peer.to_string())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_recorder_gets_no_socket_and_one_that_was_killed_leaves_none_in_the_way() {
        let folder = std::env::temp_dir().join(format!("gputop-socket-{}", std::process::id()));
        private_folder::open(&folder).expect("a folder");
        let path = folder.join(FILE);
        drop(UnixListener::bind(&path).expect("a listener"));
        assert!(path.exists(), "as after `kill -9`");
        let first = RecorderSocket::open_at(path.clone()).expect("a socket");
        let second = RecorderSocket::open_at(path.clone());
        assert_eq!(second.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(first);
        assert!(!path.exists(), "a recorder that ends leaves none");
        fs::remove_dir_all(&folder).expect("the folder is removed");
    }
}
