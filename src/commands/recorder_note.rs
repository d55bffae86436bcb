//! The note in which a recorder leaves the path of its file. A report of the same user goes on from the recorder's last
//! checkpoint, so it knows of processes that ended before it began.

use std::fs::{self, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::OFlags;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use super::private_folder::state_folder;
use crate::base::text::Text;
use crate::model::Past;
use crate::protocol::checkpoint::Checkpoint;
use crate::protocol::host_tag::HostTag;
use crate::protocol::line::Line;
use crate::source::process_start::{boot_id, start_ticks};
use crate::source::{RecordingReader, detached_gputop, parse_line};

/// How long a report waits for the recorder's checkpoint.
pub(super) const PATIENCE: Duration = Duration::from_millis(200);

/// The age of the oldest checkpoint that is used: a recorder writes one every five minutes, and may take some time for it.
const OLDEST: Duration = Duration::from_secs(330);

/// The note, below the folder for state.
const FILE: &str = "gputop/recorder.json";

/// The most bytes of a note.
const LONGEST: u64 = 8 << 10;

/// Where a recorder writes, and which process it is.
#[derive(Debug, Serialize, Deserialize)]
struct RecorderNote {
    boot_id: String,
    pid: u32,
    start_ticks: u64,
    file: PathBuf,
}

/// The note of this process, which is a recorder. Dropping it removes the note.
pub(super) struct OwnNote(Option<PathBuf>);

impl OwnNote {
    /// Writes the note. Without it, a recorder works as well, so a failure is not reported.
    pub(super) fn write(recording: &Path) -> Self {
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

fn path() -> Option<PathBuf> {
    Some(state_folder()?.join(FILE))
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
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    let written = file.write_all(serde_json::to_string(&note)?.as_bytes()).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        fs::remove_file(&draft)?;
    }
    written
}

/// Reads a note that only this user can have written.
fn read(path: &Path) -> io::Result<RecorderNote> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.uid() != geteuid().as_raw() || metadata.mode() & 0o077 != 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text)?)
}

/// Reads the past of this host from the recorder that runs here, in a process of its own: a file system may hang.
pub(super) fn past() -> Option<Receiver<Past>> {
    let mut command = detached_gputop();
    command.args(["file-action", "read-recorder", "--"]).arg(path()?);
    let mut reader = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let output = reader.stdout.take()?;
    let (sender, past) = mpsc::channel();
    let read = move || {
        let read = serde_json::from_reader(BufReader::new(output)).map(|past| sender.send(past));
        (read, reader.wait())
    };
    thread::Builder::new().name("recorder".to_owned()).spawn(read).ok()?;
    Some(past)
}

/// Returns the past of this host as JSON, from the recorder whose note this is. Runs in the process that [`past`] starts.
pub(crate) fn read_here(note: &Path) -> io::Result<String> {
    let past = read_past(note).ok_or(io::ErrorKind::NotFound)?;
    Ok(serde_json::to_string(&past)?)
}

fn read_past(path: &Path) -> Option<Past> {
    let note = read(path).ok()?;
    let boot_id = boot_id().ok()?;
    // The recorder may have been killed, and its PID be that of another process.
    if note.boot_id != boot_id || start_ticks(note.pid) != Some(note.start_ticks) {
        return None;
    }
    let checkpoint = last_checkpoint(&note.file, &boot_id).ok()??;
    let written = UNIX_EPOCH + Duration::from_millis(checkpoint.unix_ms);
    #[expect(clippy::disallowed_methods, reason = "the age of a checkpoint in a file")]
    let is_recent = SystemTime::now().duration_since(written).is_ok_and(|age| age <= OLDEST);
    is_recent.then(|| Past {
        path: Text::new(note.file.as_os_str().as_encoded_bytes()),
        boot_id: boot_id.into(),
        unix_ms: checkpoint.unix_ms,
        last_look_ms: None,
        checkpoint,
    })
}

/// Returns the last checkpoint of the host with this boot in a recording; `None` if there is none.
fn last_checkpoint(file: &Path, boot_id: &str) -> io::Result<Option<Checkpoint>> {
    let mut reader = RecordingReader::open(file)?;
    let Some((_, last)) = reader.span()? else { return Ok(None) };
    reader.seek(last)?;
    let (mut host, mut checkpoint) = (None, None);
    while let Some(raw) = reader.next_line()? {
        // Most lines are ticks.
        if raw.starts_with(b"{\"kind\":\"tick\"") {
            continue;
        }
        let key = HostTag::of(raw).map(|tag| tag.host_key);
        match parse_line(raw) {
            Ok(Some(Line::Full(full))) => {
                let is_simulated = full.gpus.iter().any(|gpu| gpu.facts.simulated);
                if full.host.facts.boot_id.as_str() == boot_id && !is_simulated {
                    host = Some(key);
                }
            }
            Ok(Some(Line::Checkpoint(read))) if host == Some(key) => checkpoint = Some(*read),
            _ => {}
        }
    }
    Ok(checkpoint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::reference::FILES;

    #[test]
    fn the_help_names_the_note() {
        assert!(FILES.iter().any(|(names, _)| *names == format!("$XDG_STATE_HOME/{FILE}")));
    }
}
