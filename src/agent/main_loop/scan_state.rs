//! The state of the scans of `/proc`, which a thread of their own makes.

use std::io;
use std::sync::mpsc::{SendError, Sender};
use std::time::Duration;

use crate::agent::procfs::Processes;
use crate::agent::procfs::device_files::DeviceFiles;
use crate::agent::scan::{self, ScanRequest, ScanResult, ScanScope, UnaccountedBaseline};
use crate::agent::{AgentEvent, GpuReadings};
use crate::base::units::Moment;
use crate::protocol::snapshot::{HostScan, Missing, ProcessId};

/// How long to search for the replacement of a held process after its end.
const REPLACEMENT: Duration = Duration::from_secs(30);

pub(super) struct ScanState {
    requests: Sender<ScanRequest>,
    /// `None` before the first scan.
    pub(super) result: Option<Box<ScanResult>>,
    /// A later result, whose holders are not known yet.
    received: Option<Box<ScanResult>>,
    unaccounted: UnaccountedBaseline,
    /// The GPU users that the scanner knows of.
    gpu_users: Vec<ProcessId>,
    /// When to begin the first scan. `None` before the first line is written, and once the scan has
    /// begun.
    pub(super) first: Option<Moment>,
    /// No scan is requested before the first one, which waits for the first line.
    pub(super) has_begun: bool,
    pub(super) is_full_requested: bool,
    /// When the last held process ended. `None` while no replacement is searched for.
    pub(super) ended: Option<Moment>,
}

impl ScanState {
    pub(super) fn spawn(is_demo: bool, events: &Sender<AgentEvent>) -> io::Result<Self> {
        let devices = (!is_demo).then(DeviceFiles::from_environment);
        Ok(Self {
            requests: scan::spawn(devices, events.clone())?,
            result: None,
            received: None,
            unaccounted: UnaccountedBaseline::default(),
            gpu_users: vec![],
            first: None,
            has_begun: false,
            is_full_requested: false,
            ended: None,
        })
    }

    /// Begins the first scan if it is due. Returns whether it has begun now.
    pub(super) fn begin_if_due(&mut self, now: Moment) -> bool {
        let is_due = self.first.take_if(|due| now >= *due).is_some();
        if is_due {
            self.has_begun = true;
            self.send(ScanRequest {
                gpu_users: Some(self.gpu_users.clone()),
                scope: ScanScope::AllFiles,
                ..ScanRequest::default()
            });
        }
        is_due
    }

    /// Keeps the result of a scan until it is known which of its device-file holders are monitors.
    pub(super) fn receive(&mut self, mut scan: Box<ScanResult>) {
        scan.is_full |= self.received.take().is_some_and(|earlier| earlier.is_full);
        self.received = Some(scan);
    }

    /// Takes the result that was received last. Returns whether a full scan found other related
    /// processes.
    pub(super) fn accept(&mut self) -> bool {
        let Some(scan) = self.received.take() else {
            return false;
        };
        let old = self.result.as_ref();
        let is_news = scan.is_full && old.is_none_or(|old| old.related != scan.related);
        self.result = Some(scan);
        is_news
    }

    pub(super) fn counts(&self) -> HostScan {
        self.result.as_ref().map_or_else(
            || HostScan::missing(Moment(0), 0, 0, Missing::NotYet),
            |scan| scan.counts.clone(),
        )
    }

    /// Tells the scanner which processes use a GPU, if these changed, and how much to scan.
    pub(super) fn request(&mut self, processes: &mut Processes, gpus: &[GpuReadings], now: Moment) {
        if self
            .ended
            .take_if(|ended| now.since(*ended) >= REPLACEMENT)
            .is_some()
        {
            processes.expected.clear();
        }
        let gpu_users: Vec<ProcessId> = processes.gpu_users().collect();
        let has_other_users = gpu_users != self.gpu_users;
        if has_other_users {
            self.gpu_users.clone_from(&gpu_users);
        }
        let has_grown = self.unaccounted.has_grown(gpus);
        let has_relation_changed = std::mem::take(&mut processes.has_relation_changed);
        if self.has_begun {
            let is_requested = std::mem::take(&mut self.is_full_requested);
            let scope = match () {
                () if is_requested || has_grown => ScanScope::AllFiles,
                () if has_relation_changed || self.ended.is_some() => ScanScope::AllProcesses,
                () => ScanScope::Few,
            };
            self.send(ScanRequest {
                gpu_users: has_other_users.then_some(gpu_users),
                accepted: std::mem::take(&mut processes.accepted),
                monitors: std::mem::take(&mut processes.monitors),
                ended: self.ended,
                scope,
            });
        }
    }

    fn send(&self, request: ScanRequest) {
        // The thread ends only with the main loop.
        let _leaving: Result<(), SendError<ScanRequest>> = self.requests.send(request);
    }
}
