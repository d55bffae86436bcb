//! One file, which a process of its own reads, replaces, creates, checks or plays.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use strum::{IntoStaticStr, VariantArray};

use crate::base::detach::detached_gputop;

/// How long to wait for a home directory, which may be on a network that is down. A process reads
/// it, which may wait for a processor for a second on a busy host.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// The exit code of the process when the file does not exist.
pub(crate) const NOT_FOUND: u8 = 6;

/// An action on a file whose file system may hang.
#[derive(Debug, Clone, Copy, PartialEq, Eq, VariantArray, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub(crate) enum FileAction {
    /// Print the file.
    Read,
    /// Replace the file by the standard input.
    Replace,
    /// Write the standard input to a new file, with a number in its name if that name is taken;
    /// print its path.
    Create,
    /// Check that the file can be written.
    Check,
    /// Print the lines of a recording.
    Play,
    /// Print what happened in a recording.
    Outline,
    /// Write the standard input, a full line and a checkpoint, as the history of a host.
    KeepHistory,
    /// Print the past of a host.
    ReadHistory,
    /// Print the past of this host that the recorder named in this note has seen.
    ReadRecorder,
}

impl FileAction {
    /// Returns the word for this action on the command line.
    pub(crate) fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the action with this name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::VARIANTS
            .iter()
            .copied()
            .find(|action| action.name() == name)
    }
}

/// Reads a file. A file that does not exist is [`io::ErrorKind::NotFound`]. Waits while the file
/// system hangs.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    ask(FileAction::Read, path, Stdio::null())
}

/// Replaces a file at once: a reader finds the old text or the new one. Waits while the file system
/// hangs.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    ask(FileAction::Replace, path, input_of(text.as_bytes())?).map(drop)
}

/// Writes a new file that only its owner may read. Returns its path, which has a number if the name
/// was taken. Waits while the file system hangs.
pub(crate) fn create(path: &Path, text: &str) -> io::Result<PathBuf> {
    ask(FileAction::Create, path, input_of(text.as_bytes())?).map(PathBuf::from)
}

/// The input is complete before the process starts: this process may end at any time.
pub(crate) fn input_of(text: &[u8]) -> io::Result<Stdio> {
    let mut input = File::from(memfd_create("input", MemfdFlags::CLOEXEC)?);
    input.write_all(text)?;
    input.rewind()?;
    Ok(input.into())
}

/// Checks that a file can be written. The file and the folders above it may not exist yet. Waits
/// while the file system hangs.
pub(crate) fn check(path: &Path) -> io::Result<()> {
    ask(FileAction::Check, path, Stdio::null()).map(drop)
}

/// Lets a process of its own act on a file. Returns the standard output of the process.
pub(crate) fn ask(action: FileAction, path: &Path, input: Stdio) -> io::Result<String> {
    let mut command = detached_gputop();
    command
        .arg("file-action")
        .arg(action.name())
        .arg("--")
        .arg(path);
    let output = command
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()?;
    if output.status.success() {
        return String::from_utf8(output.stdout).map_err(io::Error::other);
    }
    Err(match output.status.code() {
        Some(code) if code == i32::from(NOT_FOUND) => Errno::NOENT.into(),
        _ => io::Error::other(
            String::from_utf8_lossy(&output.stderr)
                .trim_end()
                .trim_start_matches("gputop: ")
                .to_owned(),
        ),
    })
}

/// Runs a function on a thread of its own, which may be abandoned. Returns the channel for its
/// result.
pub(crate) fn in_background<T: Send + 'static>(
    function: impl FnOnce() -> T + Send + 'static,
) -> Receiver<T> {
    let (sender, result) = mpsc::channel();
    // If no thread can be started, the channel is closed.
    let _thread = thread::Builder::new()
        .name("settings".to_owned())
        .spawn(move || sender.send(function()));
    result
}
