//! The note in which a recorder leaves the path of its file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::folders::state_file;
use super::private_file;
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
    private_file::replace(path, &serde_json::to_string(&note)?)
}

/// Reads a note that only this user can have written.
pub(crate) fn read(path: &Path) -> io::Result<RecorderNote> {
    let text = private_file::read(path, LONGEST)?;
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
