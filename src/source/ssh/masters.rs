//! Control masters that gputop opens: connections of `ssh` that later sessions share, so that a
//! password or a code is asked for once.
//!
//! They have sockets of their own in a folder that only this user may enter, never the
//! `ControlPath` of the user's configuration. A master ends by itself some time after its last
//! session. One that is stopped takes no more sessions, and ends with the last.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::SshHost;
use crate::base::detach::detach;

/// The options of a master. The compression and the keep-alive are those of all of its sessions.
const MASTER: [&str; 18] = [
    "-M",
    "-N",
    "-f",
    "-C",
    "-x",
    "-a",
    "-o",
    "RemoteCommand=none",
    "-o",
    "ClearAllForwardings=yes",
    "-o",
    "PermitLocalCommand=no",
    "-o",
    "ServerAliveInterval=5",
    "-o",
    "ServerAliveCountMax=3",
    "-o",
    "ConnectTimeout=10",
];

/// The masters of this user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Masters {
    /// The folder of the sockets.
    folder: PathBuf,
}

impl Masters {
    /// Returns the masters whose sockets are in this folder, which only this user may enter.
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Returns the socket for a host, whether or not there is a master.
    ///
    /// # Errors
    ///
    /// When `ssh` does not say how it reaches the host.
    pub(crate) fn socket(&self, host: &SshHost) -> io::Result<PathBuf> {
        let mut command = Command::new("ssh");
        command
            .arg("-G")
            .args(self.control_path())
            .args(host.destination_arguments());
        let output = detach(&mut command)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()?;
        self.socket_in(&String::from_utf8_lossy(&output.stdout))
            .ok_or_else(|| io::Error::other("ssh does not say how it reaches the host"))
    }

    /// Finds the socket in the output of `ssh -G`, which has put a hash of the destination in place
    /// of `%C`.
    fn socket_in(&self, configuration: &str) -> Option<PathBuf> {
        let mut lines = configuration.lines();
        let path = lines.find_map(|line| line.strip_prefix("controlpath "))?;
        Some(PathBuf::from(path)).filter(|path| path.parent() == Some(&self.folder))
    }

    fn control_path(&self) -> [String; 2] {
        let path = format!("ControlPath={}/%C", self.folder.display());
        ["-o".to_owned(), path]
    }

    /// Returns the command that opens a master with `ssh` on the terminal, which asks there for a
    /// password, a code, or whether a new key is right. It succeeds once the master runs in the
    /// background, where it stays for this time without a session, as in `10m`.
    pub(crate) fn open_command(&self, host: &SshHost, keep: &str) -> Command {
        let mut command = Command::new("ssh");
        command
            .args(self.control_path())
            .args(MASTER)
            .args(["-o", &format!("ControlPersist={keep}")])
            .args(host.destination_arguments());
        command
    }

    /// The sockets of all masters, also of those that were killed.
    pub(crate) fn sockets(&self) -> io::Result<Vec<PathBuf>> {
        let mut sockets = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if entry.file_type()?.is_socket() && is_hash(&entry.file_name().to_string_lossy()) {
                sockets.push(entry.path());
            }
        }
        sockets.sort();
        Ok(sockets)
    }
}

/// Whether a master answers at a socket.
pub(crate) fn is_open(socket: &Path) -> bool {
    socket.exists() && control(socket, "check")
}

/// Stops the master at a socket. Returns whether there was one.
///
/// # Errors
///
/// When the socket of a master that was killed cannot be removed.
pub(crate) fn stop(socket: &Path) -> io::Result<bool> {
    let is_stopped = socket.exists() && control(socket, "stop");
    // A master that was killed leaves its socket, and `ssh` would not become a master there.
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(is_stopped),
    }
}

/// Whether this is the name of a socket: the hash that ssh puts in place of `%C`.
fn is_hash(name: &str) -> bool {
    name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Sends a command to the master at a socket. Returns whether it was obeyed.
fn control(socket: &Path, command: &str) -> bool {
    let mut path = OsString::from("ControlPath=");
    path.push(socket);
    let mut ssh = Command::new("ssh");
    // ssh wants the name of a host, and uses the socket.
    ssh.args(["-O", command, "-o"])
        .arg(path)
        .args(["--", "master"]);
    detach(&mut ssh)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn the_socket_is_in_the_folder_and_has_a_hash_for_its_name() {
        let masters = Masters::new("/run/user/1000/gputop".into());
        let hash = "f4c2ab3c9524215fabc0ae90197f0c9e0dcf28d4";
        let text = format!("hostname gpu-01\ncontrolpath /run/user/1000/gputop/{hash}\nport 22\n");
        let socket = masters.socket_in(&text).unwrap();
        assert_eq!(socket.file_name().unwrap().to_str(), Some(hash));
        for text in [
            "hostname gpu-01\n",
            "controlpath none\n",
            "controlpath /home/alice/.ssh/master\n",
        ] {
            assert_eq!(masters.socket_in(text), None, "{text}");
        }
    }

    #[test]
    fn only_sockets_with_the_name_of_a_master_are_listed_and_a_dead_one_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let name = "0123456789abcdef0123456789abcdef01234567";
        let socket = folder.path().join(name);
        drop(UnixListener::bind(&socket).unwrap());
        drop(UnixListener::bind(folder.path().join("recorder.sock")).unwrap());
        fs::write(folder.path().join(name.replace('0', "f")), "").unwrap();
        let masters = Masters::new(folder.path().to_owned());
        assert_eq!(masters.sockets().unwrap(), vec![socket.clone()]);
        assert!(!is_open(&socket), "nobody listens there");
        assert!(!stop(&socket).unwrap());
        assert!(!socket.exists());
        assert!(!stop(&socket).unwrap(), "there is nothing left to stop");
    }
}
