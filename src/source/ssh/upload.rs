//! Copies this program to a host that has no gputop, in an `ssh` session of its own.
//!
//! The script on the host (`assets/remote/upload.sh`) chooses a folder that can execute and that
//! only the user may enter, and asks for the bytes unless the copy is there already. It verifies
//! the SHA-256 of what has arrived before it starts or renames anything; the first contact verifies
//! it again before every start.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::HostShell;
use super::own_program::OwnProgram;
use super::script;
use super::script_session::ScriptSession;
use crate::base::text::Text;
use crate::base::units::Bytes;

/// The most uploads at once.
const AT_ONCE: usize = 4;

/// How long a host may take for an upload, with a slow link.
const LONGEST_UPLOAD: Duration = Duration::from_mins(10);

/// The most removed files of one host that are told.
const MOST_REMOVED: usize = 1000;

/// The folders that may get a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UploadFolders {
    /// The user's own: in the home folder, and in that of the login.
    Own,
    /// The own folders, and private ones in `/dev/shm` and `/tmp`.
    All,
}

/// Lets few uploads run at once. The first runs alone: where hosts share a home folder, the others
/// find its copy.
#[derive(Debug)]
pub(crate) struct UploadLimit {
    turns: Semaphore,
    is_first_done: AtomicBool,
}

impl Default for UploadLimit {
    fn default() -> Self {
        Self {
            turns: Semaphore::new(1),
            is_first_done: AtomicBool::new(false),
        }
    }
}

/// The turn of one upload, until it is dropped.
struct UploadTurn<'a> {
    limit: &'a UploadLimit,
    _permit: SemaphorePermit<'a>,
}

impl UploadLimit {
    async fn turn(&self) -> Result<UploadTurn<'_>, String> {
        let permit = self.turns.acquire().await;
        Ok(UploadTurn {
            limit: self,
            _permit: permit.map_err(|error| error.to_string())?,
        })
    }
}

impl Drop for UploadTurn<'_> {
    fn drop(&mut self) {
        if !self.limit.is_first_done.swap(true, Ordering::Relaxed) {
            self.limit.turns.add_permits(AT_ONCE - 1);
        }
    }
}

/// Says what is about to be written to which hosts. `folder` is that of the first host; the others
/// have their own.
pub(crate) fn announcement(program: &OwnProgram, folder: &Text, hosts: usize) -> String {
    format!(
        "copies gputop {} ({}) to {folder} on {}; --no-upload forbids it",
        OwnProgram::VERSION,
        Bytes(program.size),
        match hosts {
            1 => "1 host".to_owned(),
            hosts => format!("{hosts} hosts"),
        }
    )
}

/// Copies the program through the shell of a host. Returns the path
/// of the copy there.
///
/// # Errors
///
/// One sentence: why there is no copy.
pub(crate) async fn upload(
    shell: HostShell,
    program: Arc<OwnProgram>,
    folders: UploadFolders,
    limit: &UploadLimit,
) -> Result<Text, String> {
    let _turn = limit.turn().await?;
    timeout(LONGEST_UPLOAD, run(shell, program, folders))
        .await
        .unwrap_or_else(|_| {
            Err(format!(
                "the copy of gputop did not arrive within {} minutes",
                LONGEST_UPLOAD.as_secs() / 60
            ))
        })
}

async fn run(
    shell: HostShell,
    program: Arc<OwnProgram>,
    folders: UploadFolders,
) -> Result<Text, String> {
    let file = File::open(&program.path)
        .map_err(|error| format!("cannot read the file of gputop: {error}"))?;
    let size = program.size.div_ceil(1024).to_string();
    let folders = match folders {
        UploadFolders::Own => "own",
        UploadFolders::All => "all",
    };
    let mut session = ScriptSession::start(
        shell,
        script::UPLOAD,
        &[&program.copy_name(), &size, folders],
    )?;
    let mut unsent = Some((file, session.stdin.take()));
    let mut skipped = Vec::new();
    while let Some([kind, path, detail, more]) = session.answer().await? {
        let reason = match kind.as_str() {
            "send" => {
                if let Some((mut file, Some(stdin))) = unsent.take() {
                    send(move || std::io::copy(&mut file, &mut File::from(stdin)))?;
                }
                continue;
            }
            "ready" => return Ok(path),
            "failed" => return Err(failure(path.as_str(), &detail, &more)),
            "checksum" => {
                return Err(
                    "gputop is not copied: no sha256sum, shasum or openssl is there to verify it"
                        .to_owned(),
                );
            }
            "none" if skipped.is_empty() => {
                return Err("gputop is not copied: the user has no folder of their own".to_owned());
            }
            "none" => return Err(format!("gputop is not copied: {}", skipped.join("; "))),
            "owner" => "is a link, open to others or not the user's",
            "folder" => "is a folder in the way",
            "create" => "cannot be made",
            "write" => "cannot be written to",
            "noexec" => "may not hold programs (noexec)",
            "room" => "has too little room",
            _ => continue,
        };
        skipped.push(format!("{path} {reason}"));
    }
    Err(session.why_it_ended("gputop was not copied").await)
}

/// Removes all copies of gputop through the shell of a host. Returns
/// the paths of the removed files.
///
/// # Errors
///
/// One sentence: why the host could not be asked.
pub(crate) async fn clean(shell: HostShell) -> Result<Vec<Text>, String> {
    let mut session = ScriptSession::start(shell, script::CLEAN, &[])?;
    let mut removed = Vec::new();
    while let Some([kind, path]) = session.answer().await? {
        match kind.as_str() {
            "removed" if removed.len() < MOST_REMOVED => removed.push(path),
            "done" => return Ok(removed),
            _ => {}
        }
    }
    Err(session.why_it_ended("copies were not removed").await)
}

/// Runs a function in a thread, which ends when `ssh` does: reading this program's file may hang.
/// Its result is not needed, because the host verifies the hash.
fn send<T>(function: impl FnOnce() -> T + Send + 'static) -> Result<(), String> {
    std::thread::Builder::new()
        .name("upload".to_owned())
        .spawn(move || drop(function()))
        .map(drop)
        .map_err(|error| format!("cannot start a thread: {error}"))
}

/// Says why a copy that was begun is not there.
fn failure(kind: &str, folder: &Text, detail: &Text) -> String {
    match kind {
        "hash" => format!("gputop did not arrive in {folder} as it was sent, and was removed"),
        "run" => format!("gputop does not run there, and was removed: {detail}"),
        _ => format!("gputop cannot be written to {folder}: {detail}"),
    }
}

#[cfg(test)]
mod tests;
