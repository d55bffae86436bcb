//! Reads the outline of a recording for the timeline. Another process makes it; the screen does not
//! wait for it.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::Stdio;
use std::thread;

use crate::base::detach::short_lived_gputop;
use crate::model::OutlinePart;
use crate::source::Source;

/// The longest line of an outline, in bytes.
const LONGEST_LINE: u64 = 64 << 10;

/// Starts to read the outline of the recording among these sources, if there is one, and passes its
/// parts on. Without the process or the thread, there is no timeline.
pub(super) fn start(sources: &[Source], take: impl Fn(OutlinePart) -> bool + Send + 'static) {
    let path = sources.iter().find_map(|source| match source {
        Source::Recording(recording) if !recording.is_stdin() => Some(recording.path.clone()),
        _ => None,
    });
    if let Some(path) = path {
        let read = move || read(path, take);
        let _no_timeline = thread::Builder::new()
            .name("outline".to_owned())
            .spawn(read);
    }
}

fn read(path: PathBuf, take: impl Fn(OutlinePart) -> bool) {
    let mut command = short_lived_gputop();
    command.args(["file-action", "outline", "--"]).arg(path);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let Ok(mut process) = command.spawn() else {
        return;
    };
    if let Some(stdout) = process.stdout.take() {
        let (mut lines, mut line) = (BufReader::new(stdout), Vec::new());
        while lines
            .by_ref()
            .take(LONGEST_LINE)
            .read_until(b'\n', &mut line)
            .is_ok_and(|length| length > 0)
        {
            // A line of a later version is skipped.
            if serde_json::from_slice(&line).is_ok_and(|part| !take(part)) {
                break;
            }
            line.clear();
        }
    }
    let _ended = process.wait();
}
