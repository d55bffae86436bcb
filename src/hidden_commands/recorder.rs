//! Reads the last checkpoint of the recorder that runs on this host, for a report.

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::base::text::Text;
use crate::files::process_start::{boot_id, start_ticks};
use crate::files::recorder_note;
use crate::model::Past;
use crate::protocol::checkpoint::Checkpoint;
use crate::protocol::host_tag::HostTag;
use crate::protocol::line::Line;
use crate::source::{RecordingReader, parse_line};

/// The age of the oldest checkpoint that is used: a recorder writes one every five minutes, and may
/// take some time for it.
const OLDEST: Duration = Duration::from_secs(330);

/// Returns the past of this host as JSON, from the recorder whose note this is.
pub(crate) fn read_here(note: &Path) -> io::Result<String> {
    let past = read_past(note).ok_or(io::ErrorKind::NotFound)?;
    Ok(serde_json::to_string(&past)?)
}

fn read_past(path: &Path) -> Option<Past> {
    let note = recorder_note::read(path).ok()?;
    let boot_id = boot_id().ok()?;
    // The recorder may have been killed, and its PID be that of another process.
    if note.boot_id != boot_id || start_ticks(note.pid) != Some(note.start_ticks) {
        return None;
    }
    let checkpoint = last_checkpoint(&note.file, &boot_id).ok()??;
    let written = UNIX_EPOCH + Duration::from_millis(checkpoint.unix_ms);
    #[expect(
        clippy::disallowed_methods,
        reason = "the age of a checkpoint in a file"
    )]
    let is_recent = SystemTime::now()
        .duration_since(written)
        .is_ok_and(|age| age <= OLDEST);
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
    let Some((_, last)) = reader.span()? else {
        return Ok(None);
    };
    reader.seek(last)?;
    let (mut host, mut checkpoint) = (None, None);
    while let Some(raw) = reader.next_line()? {
        // Most lines are ticks.
        if raw.starts_with(b"{\"kind\":\"tick\"") {
            continue;
        }
        let key = HostTag::parse(raw).map(|tag| tag.host_key);
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
