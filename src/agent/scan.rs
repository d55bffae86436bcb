//! Scans all processes of the host: finds those that have a GPU's device file open, and those that
//! are related to them.
//!
//! The scan has its own thread and reads only files that cannot block: a few processes a second, in
//! turn, or all processes when the main loop requests it ([`ScanScope`]). The scan decides which
//! processes are shown; the main loop reads their load.

mod process_table;
mod related;
mod scanner;
#[cfg(test)]
mod tests;
mod unaccounted;

use std::io;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use self::scanner::Scanner;
pub(super) use self::unaccounted::UnaccountedBaseline;
use super::AgentEvent;
use super::procfs::device_files::{DeviceFiles, OpenDeviceFiles};
use crate::base::units::Moment;
use crate::protocol::snapshot::{HostScan, ProcessId};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum ScanScope {
    /// A few processes, in turn.
    #[default]
    Few,
    /// All processes, and the files of related ones: a process has ended or has another parent.
    AllProcesses,
    /// All processes and all their files: at the start, when unaccounted memory has grown, or when
    /// a person asks.
    AllFiles,
}

/// A request to the scan. The main loop sends one in each pass.
#[derive(Debug, Default)]
pub(super) struct ScanRequest {
    /// The processes that use a GPU. `None` when they are the same as in the request before.
    pub(super) gpu_users: Option<Vec<ProcessId>>,
    /// Processes whose arguments show that they are related.
    pub(super) accepted: Vec<ProcessId>,
    /// Device-file holders that only ask NVML.
    pub(super) monitors: Vec<ProcessId>,
    /// When a person last ended a process: a process that has started since may be its replacement.
    /// `None` if not recently.
    pub(super) ended: Option<Moment>,
    pub(super) scope: ScanScope,
}

/// The result of a scan. Lists are sorted by PID.
#[derive(Debug, Clone)]
pub(super) struct ScanResult {
    /// The latest counts of processes, which may be older than this scan.
    pub(super) counts: HostScan,
    /// The processes that use a GPU, the device-file holders, and the processes related to these.
    pub(super) related: Arc<[ProcessId]>,
    pub(super) device_file_holders: Arc<[(ProcessId, OpenDeviceFiles)]>,
    /// Processes whose arguments decide whether they are related.
    pub(super) candidates: Vec<ProcessId>,
    /// Whether all processes were scanned at once.
    pub(super) is_full: bool,
}

/// Starts the thread, which ends when the sender of requests is dropped. Without `devices` it finds
/// only related processes: a simulated GPU has no device file.
pub(super) fn spawn(
    devices: Option<DeviceFiles>,
    events: mpsc::Sender<AgentEvent>,
) -> io::Result<mpsc::Sender<ScanRequest>> {
    let (requests, received) = mpsc::channel::<ScanRequest>();
    thread::Builder::new()
        .name("scan".to_owned())
        .spawn(move || {
            let mut scanner = Scanner::new(devices);
            // A full scan that was requested begins and continues without further requests. Else
            // wait for the next request.
            let next = |wait: Option<Duration>| match received
                .recv_timeout(wait.unwrap_or(Duration::MAX))
            {
                Ok(request) => Some(request),
                Err(mpsc::RecvTimeoutError::Timeout) => Some(ScanRequest::default()),
                Err(mpsc::RecvTimeoutError::Disconnected) => None,
            };
            while let Some(mut request) = next(scanner.next_full_scan()) {
                // Merge the requests that have arrived meanwhile.
                for later in received.try_iter() {
                    request.gpu_users = later.gpu_users.or(request.gpu_users);
                    request.accepted.extend(later.accepted);
                    request.monitors.extend(later.monitors);
                    request.ended = later.ended;
                    request.scope = request.scope.max(later.scope);
                }
                if let Some(result) = scanner.scan(request)
                    && events.send(AgentEvent::Scanned(Box::new(result))).is_err()
                {
                    return;
                }
            }
        })?;
    Ok(requests)
}
