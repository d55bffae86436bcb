//! The files of the viewer's own history, and the processes that read and write them for a session.

use std::io;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::action::{FileAction, ask, input_of};
use super::folders::state_file;
use crate::base::detach::detached_gputop;
use crate::base::text::Text;

/// How the name of each file ends.
pub(crate) const ENDING: &str = ".jsonl.zst";

/// The host whose history a file holds, and the source of its lines.
#[derive(Debug, Clone)]
pub(crate) struct HistoryOwner {
    pub name: Text,
    pub source: Text,
}

impl HistoryOwner {
    /// Returns the beginning of the file names of a host and source. Another source of the same
    /// host has another one.
    fn stem(&self) -> String {
        format!(
            "{}-{:08x}",
            file_name(self.name.as_str()),
            crc32fast::hash(self.source.as_str().as_bytes())
        )
    }
}

/// The folder of histories, and the number of the session that writes there.
#[derive(Debug, Clone)]
pub(crate) struct HistoryFiles {
    folder: PathBuf,
    session: String,
}

impl HistoryFiles {
    /// Returns the histories of this user; `None` without a home directory.
    #[expect(
        clippy::disallowed_methods,
        reason = "the wall clock numbers the session; no data has this time"
    )]
    pub(crate) fn of_user() -> Option<Self> {
        let since_1970 = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
        // Two viewers never have one number: their PIDs are not the same, or their times.
        let session = format!("{:x}-{:x}", since_1970.as_millis(), std::process::id());
        Some(Self {
            folder: state_file("history")?,
            session,
        })
    }

    /// Returns the past of a host as JSON; `None` when there is none. Waits while the file system
    /// hangs.
    pub(crate) fn read(&self, owner: &HistoryOwner) -> Result<Option<String>, String> {
        match ask(
            FileAction::ReadHistory,
            &self.folder.join(owner.stem()),
            Stdio::null(),
        ) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Starts a process that writes lines as the history of a host on this boot.
    pub(crate) fn start_write(
        &self,
        owner: &HistoryOwner,
        boot_id: &Text,
        lines: &[u8],
    ) -> io::Result<Child> {
        let boot = crc32fast::hash(boot_id.as_str().as_bytes());
        let name = format!("{}-{boot:08x}-{}{ENDING}", owner.stem(), self.session);
        let mut command = detached_gputop();
        command
            .arg("file-action")
            .arg(FileAction::KeepHistory.name())
            .arg("--")
            .arg(self.folder.join(name));
        command
            .stdin(input_of(lines)?)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
    }
}

/// Returns a host's name as part of a file name.
pub(crate) fn file_name(host: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let name: String = host
        .chars()
        .take(64)
        .map(|letter| if plain(letter) { letter } else { '_' })
        .collect();
    name.trim_start_matches('.').to_owned()
}
