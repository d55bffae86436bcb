//! Sends a request to the probe in a process.

use rustix::io::Errno;
use serde::Serialize;

use super::memory_file::MemoryFiles;
use crate::agent::clock;
use crate::protocol::command::ProbeRequest;
use crate::protocol::reply::Outcome;
use crate::protocol::snapshot::ProcessId;

/// The most bytes of a request: those of its file behind the header.
const MOST: usize = 4096 - 64;

/// A request as the probe reads it.
#[derive(Serialize)]
struct NumberedRequest<'a> {
    id: u64,
    #[serde(flatten)]
    request: &'a ProbeRequest,
}

/// Sends a request to the probe in a process whose identity is sure. Returns the number of the
/// request, or why it was refused.
pub(in crate::agent) fn ask(process: ProcessId, request: &ProbeRequest) -> Outcome {
    // Two requests within a millisecond are one too many: the probe would see only the later one.
    let id = clock::unix_ms();
    let text = match serde_json::to_vec(&NumberedRequest { id, request }) {
        Ok(text) if text.len() <= MOST => text,
        _ => return refused("the request is too long for the probe".to_owned()),
    };
    let pid = process.pid;
    match MemoryFiles::new().and_then(|files| files.request(process, &text)) {
        Ok(true) => Outcome::ProbeAsked { id },
        Ok(false) => refused(format!(
            "process {pid} has no probe: start it as `gputop run -- python train.py`"
        )),
        Err(Errno::ACCESS | Errno::PERM) => refused(format!(
            "the kernel does not let this user ask the probe in process {pid}: run gputop as its user"
        )),
        Err(Errno::NOENT | Errno::SRCH) => refused(format!("process {pid} has ended")),
        Err(error) => refused(format!(
            "the probe in process {pid} cannot be asked: {error}"
        )),
    }
}

fn refused(reason: String) -> Outcome {
    Outcome::Refused {
        reason: reason.into(),
    }
}
