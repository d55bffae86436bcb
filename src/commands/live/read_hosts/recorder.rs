//! The past of this host from the recorder that runs here: a report goes on from the recorder's
//! last checkpoint, so it knows of processes that ended before it began.

use std::io::BufReader;
use std::process::Stdio;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use crate::base::detach::detached_gputop;
use crate::files::action::FileAction;
use crate::files::recorder_note;
use crate::model::Past;

/// How long a report waits for the recorder's checkpoint.
pub(super) const PATIENCE: Duration = Duration::from_millis(200);

/// Reads the past of this host from the recorder that runs here, in a process of its own: a file
/// system may hang.
pub(super) fn read_past() -> Option<Receiver<Past>> {
    let mut command = detached_gputop();
    command
        .arg("file-action")
        .arg(FileAction::ReadRecorder.name())
        .arg("--")
        .arg(recorder_note::path()?);
    let mut reader = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let output = reader.stdout.take()?;
    let (sender, past) = mpsc::channel();
    let read = move || {
        let past = serde_json::from_reader(BufReader::new(output));
        // Reaped before the report goes on: it may be at its end.
        let reaped = reader.wait();
        (past.map(|past| sender.send(past)), reaped)
    };
    thread::Builder::new()
        .name("recorder".to_owned())
        .spawn(read)
        .ok()?;
    Some(past)
}
