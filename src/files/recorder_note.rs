//! The note in which a recorder leaves the path of its file.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use super::folders::state_file;
use crate::files::process_start::{boot_id, start_ticks};

/// The note, in the folder for state.
const FILE: &str = "recorder.json";

/// The most bytes of a note.
const LONGEST: u64 = 8 << 10;

/// Where a recorder writes, and which process it is.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RecorderNote {
    pub boot_id: String,
    pub pid: u32,
    pub start_ticks: u64,
    pub file: PathBuf,
}

/// The note of this process, which is a recorder. Dropping it removes the note.
pub(crate) struct OwnNote(Option<PathBuf>);

impl OwnNote {
    /// Writes the note. Without it, a recorder works as well, so a failure is not reported.
    pub(crate) fn write(recording: &Path) -> Self {
        Self(path().filter(|path| write(path, recording).is_ok()))
    }
}

impl Drop for OwnNote {
    fn drop(&mut self) {
        let is_own = |path: &&PathBuf| read(path).is_ok_and(|note| note.pid == std::process::id());
        if let Some(path) = self.0.as_ref().filter(is_own) {
            // A note without its recorder means nothing.
            let _removed = fs::remove_file(path);
        }
    }
}

/// Returns the path of the note; `None` without a home directory.
pub(crate) fn path() -> Option<PathBuf> {
    state_file(FILE)
}

fn write(path: &Path, recording: &Path) -> io::Result<()> {
    let pid = std::process::id();
    let note = RecorderNote {
        boot_id: boot_id()?,
        pid,
        start_ticks: start_ticks(pid).ok_or(io::ErrorKind::InvalidData)?,
        file: std::path::absolute(recording)?,
    };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let draft = path.with_extension(format!("{pid}.tmp"));
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&draft)?;
    let written = file
        .write_all(serde_json::to_string(&note)?.as_bytes())
        .and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        fs::remove_file(&draft)?;
    }
    written
}

/// Reads a note that only this user can have written.
pub(crate) fn read(path: &Path) -> io::Result<RecorderNote> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.uid() != geteuid().as_raw() || metadata.mode() & 0o077 != 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::reference::FILES;

    #[test]
    fn the_help_names_the_note() {
        assert!(
            FILES
                .iter()
                .any(|(names, _)| *names == format!("$XDG_STATE_HOME/gputop/{FILE}"))
        );
    }
}
