//! Lets processes of their own read and write the history of hosts for a session.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::file_action;
use crate::cli::FileAction;
use crate::commands::history::{ENDING, file_name};
use crate::source::detached_gputop;
use crate::tui::session::{HistoryFiles, HistoryOwner};

/// Returns the functions with which a session reads and writes histories in a folder.
#[expect(clippy::disallowed_methods, reason = "the wall clock numbers the session; no data has this time")]
pub(super) fn files(folder: PathBuf) -> HistoryFiles {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    // Two viewers never have one number: their PIDs are not the same, or their times.
    let session = format!("{:x}-{:x}", since_1970.as_millis(), std::process::id());
    let reading = folder.clone();
    HistoryFiles {
        read: Arc::new(move |owner| read(&reading.join(stem(owner)))),
        write: Box::new(move |owner, boot_id, lines| {
            let boot = crc32fast::hash(boot_id.as_str().as_bytes());
            start_write(&folder.join(format!("{}-{boot:08x}-{session}{ENDING}", stem(owner))), lines)
        }),
    }
}

/// Returns the beginning of the file names of a host and source. Another source of the same host has another one.
fn stem(owner: &HistoryOwner) -> String {
    format!("{}-{:08x}", file_name(owner.name.as_str()), crc32fast::hash(owner.source.as_str().as_bytes()))
}

/// Returns the past of a host as JSON, whose files begin with this path; `None` when there is none. Waits while the file system hangs.
fn read(path: &Path) -> Result<Option<String>, String> {
    match file_action::ask(FileAction::ReadHistory, path, Stdio::null()) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

fn start_write(path: &Path, lines: &[u8]) -> io::Result<Child> {
    let mut command = detached_gputop();
    command.arg("file-action").arg(FileAction::KeepHistory.name()).arg("--").arg(path);
    command.stdin(file_action::input_of(lines)?).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()
}
