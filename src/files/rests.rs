//! The news that a recorder does not tell for some time: `gputop rest` writes them, and the
//! recorder reads them before it tells something.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::folders::state_file;
use super::private_file;

/// The file, in the folder for state.
const FILE: &str = "rests.json";

/// The most bytes of the file.
const LONGEST: u64 = 64 << 10;

/// News that rest, and until when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rest {
    pub(crate) news: RestingNews,
    /// Milliseconds since 1970 (UTC).
    pub(crate) until_unix_ms: u64,
}

/// The subject of news that rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RestingNews {
    /// A process of one boot of a host.
    Process {
        boot_id: String,
        pid: u32,
        start_ticks: u64,
    },
    /// A GPU by its index or UUID, in one boot of a host.
    Gpu { boot_id: String, gpu: String },
    /// All news of a kind, of every host.
    Kind(String),
}

/// Returns the path of the file; `None` without a home directory.
pub(crate) fn path() -> Option<PathBuf> {
    state_file(FILE)
}

/// Reads the rests that are not over at this time.
///
/// # Errors
///
/// When the file cannot be read, or is not what gputop wrote.
pub(crate) fn read(unix_ms: u64) -> io::Result<Vec<Rest>> {
    let Some(path) = path() else {
        return Ok(Vec::new());
    };
    let text = match private_file::read(&path, LONGEST) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut rests: Vec<Rest> = serde_json::from_str(&text)?;
    rests.retain(|rest| rest.until_unix_ms > unix_ms);
    Ok(rests)
}

/// Writes the rests in place of those before.
///
/// # Errors
///
/// When there is no home directory, or the file cannot be written.
pub(crate) fn write(rests: &[Rest]) -> io::Result<()> {
    let path = path().ok_or(io::ErrorKind::NotFound)?;
    private_file::replace(&path, &serde_json::to_string(rests)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::reference::FILES;

    #[test]
    fn the_help_names_the_file() {
        let name = format!("$XDG_STATE_HOME/gputop/{FILE}");
        assert!(FILES.iter().any(|(names, _)| *names == name));
    }
}
