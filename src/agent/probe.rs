//! Reads the reports of gputop's probe, which runs inside Python programs that were started with
//! `gputop run`.
//!
//! The probe writes its report into a memory file (memfd) of its own process, and the agent reads
//! it through `/proc/PID/fd`: nothing runs in the process, and nothing there waits for the agent.
//! `assets/probe/FORMAT.md` describes the file. Everything in it may be forged: reads are bounded,
//! and nothing is mapped.

mod memory_file;
mod request;
mod state;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::geteuid;

use self::memory_file::{MemoryFiles, ReportFile};
pub(super) use self::request::ask;
use self::state::ReportState;
use super::procfs::ProbeSetup;
use crate::base::units::Moment;
use crate::protocol::snapshot::{
    Gpu, GpuUuid, ProbeMissing, ProbeReading, ProbeReport, Process, ProcessId, Reading,
};

/// How many processes are searched for a report in one pass. Each search reads the links of all
/// open files.
const SEARCHES_PER_PASS: u32 = 8;
/// How many are searched in the first passes together, so that a single snapshot has the reports of
/// all processes of a common host.
const FIRST_SEARCHES: u32 = 64;
/// The wait after the first search without a result. Each further wait is twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait for a process that was started with the probe, which publishes when the program
/// first uses a GPU.
const LONGEST_WAIT: Duration = Duration::from_secs(16);
/// The longest wait for other processes: someone may attach a probe.
const LONGEST_WAIT_WITHOUT_PROBE: Duration = Duration::from_secs(32);
/// After this time without a new report, it is checked whether the process still has the file open.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// After this number of damaged readings in a row, the report counts as damaged. A single one may
/// be half written.
const MOST_DAMAGED: u8 = 5;

/// Reads a memory file of these bytes, and one with these bytes as its report. Returns whether one
/// of them has a report.
#[cfg(any(test, fuzzing))]
pub(super) fn read_bytes(bytes: &[u8]) -> bool {
    let writer = state::ReportWriter {
        pid: 42,
        start_ticks: 4711,
    };
    let read_file = |file: &[u8]| {
        let read_at = |buffer: &mut [u8], offset: u64| {
            let begin = usize::try_from(offset).unwrap_or(usize::MAX);
            let found = begin
                .checked_add(buffer.len())
                .and_then(|end| file.get(begin..end));
            found
                .inspect(|found| buffer.copy_from_slice(found))
                .is_some()
        };
        match state::read(writer, None, &mut Vec::new(), read_at) {
            Ok((ReportState::New(mut report), _)) => {
                state::limit(&mut report, 30);
                let written = serde_json::to_string(&report);
                assert!(written.is_ok(), "a report cannot be written: {written:?}");
                true
            }
            _ => false,
        }
    };
    let mut file = state::header(state::REPORTS, writer, 8, bytes);
    file.extend(bytes);
    read_file(bytes) | read_file(&file)
}

pub(super) struct ProbeReader {
    targets: BTreeMap<ProcessId, ProbeTarget>,
    /// `None` where the kernel has no memory files.
    files: Option<MemoryFiles>,
    searches: u32,
    /// The most groups of tensors in a snapshot.
    most_groups: usize,
    buffer: Vec<u8>,
}

/// One process that runs Python.
#[derive(Debug)]
struct ProbeTarget {
    file: Option<ReportFile>,
    last: Arc<ProbeReading>,
    /// When to search again.
    due: Moment,
    wait: Duration,
    /// When a new report was last read, or the open file last checked.
    checked: Moment,
    damaged: u8,
}

impl ProbeReader {
    pub(super) fn new(most_groups: usize) -> Self {
        let files = MemoryFiles::new().ok();
        Self {
            targets: BTreeMap::new(),
            files,
            searches: FIRST_SEARCHES,
            most_groups,
            buffer: Vec::new(),
        }
    }

    pub(super) fn begin_pass(&mut self, is_listed: impl Fn(ProcessId) -> bool) {
        self.searches = self.searches.max(SEARCHES_PER_PASS);
        self.targets.retain(|id, _| is_listed(*id));
    }

    /// Returns the reading of a process that uses a GPU and whose identity is sure. `None` if it does
    /// not run Python.
    pub(super) fn read(
        &mut self,
        process: &Process,
        setup: Reading<ProbeSetup>,
        gpus: &[Gpu],
        now: Moment,
    ) -> Option<Arc<ProbeReading>> {
        let files = self.files.as_ref()?;
        let target = self
            .targets
            .entry(process.id)
            .or_insert_with(|| ProbeTarget::new(now));
        if now.since(target.checked) >= CHECK_INTERVAL {
            target.checked = now;
            // The program may have closed the file, or called `exec`.
            if target
                .file
                .as_ref()
                .is_some_and(|file| !file.is_open_in(process.id.pid))
            {
                *target = ProbeTarget::new(now);
            }
        }
        if target.file.is_none() && now >= target.due && self.searches > 0 {
            self.searches -= 1;
            target.search(files, process, setup, now);
        }
        match target.file.as_mut().map(|file| file.read(&mut self.buffer)) {
            None => {}
            Some(Ok(ReportState::Same)) => target.damaged = 0,
            Some(Ok(ReportState::New(report))) => target.set_report(*report, self.most_groups, now),
            Some(Err(ProbeMissing::NotYet)) => {}
            Some(Err(why)) => {
                target.damaged = target.damaged.saturating_add(1);
                if why == ProbeMissing::OtherVersion || target.damaged >= MOST_DAMAGED {
                    target.set_missing(Some(why));
                }
            }
        }
        target.assign_gpus(process, gpus);
        (*target.last != ProbeReading::default()).then(|| target.last.clone())
    }
}

impl ProbeTarget {
    fn new(now: Moment) -> Self {
        Self {
            file: None,
            last: Arc::default(),
            due: now,
            wait: FIRST_WAIT,
            checked: now,
            damaged: 0,
        }
    }

    fn search(
        &mut self,
        files: &MemoryFiles,
        process: &Process,
        setup: Reading<ProbeSetup>,
        now: Moment,
    ) {
        let missing = match files.report(process.id) {
            Ok(Some(file)) => {
                (self.file, self.checked, self.wait, self.damaged) =
                    (Some(file), now, FIRST_WAIT, 0);
                return self.set_missing(
                    Some(ProbeMissing::NotYet).filter(|_| self.last.report.is_none()),
                );
            }
            Ok(None) => runs_python(process).then(|| why_absent(process, setup)),
            Err(Errno::ACCESS | Errno::PERM) => runs_python(process).then(|| why_denied(process)),
            Err(_) => None,
        };
        self.set_missing(missing);
        let is_expected = matches!(missing, Some(ProbeMissing::NotYet));
        let longest = if is_expected {
            LONGEST_WAIT
        } else {
            LONGEST_WAIT_WITHOUT_PROBE
        };
        self.due = now.after(self.wait);
        self.wait = (self.wait * 2).min(longest);
    }

    fn set_missing(&mut self, missing: Option<ProbeMissing>) {
        if self.last.missing != missing {
            Arc::make_mut(&mut self.last).missing = missing;
        }
    }

    fn set_report(&mut self, mut report: ProbeReport, most_groups: usize, now: Moment) {
        state::limit(&mut report, most_groups);
        report.at = now;
        (self.checked, self.damaged) = (now, 0);
        self.last = Arc::new(ProbeReading {
            report: Some(report),
            missing: None,
        });
    }

    /// Finds the GPU of each device in the report. A process may name any GPU; only one that it
    /// uses counts.
    fn assign_gpus(&mut self, process: &Process, gpus: &[Gpu]) {
        let Some(report) = &self.last.report else {
            return;
        };
        let uuids = |is_used: fn(&Gpu, ProcessId) -> bool| -> Vec<&GpuUuid> {
            let used = gpus.iter().filter(|gpu| is_used(gpu, process.id));
            used.map(|gpu| &gpu.uuid).collect()
        };
        let mut used = uuids(|gpu, id| gpu.process(id).is_some());
        if used.is_empty() {
            // The driver does not list the process.
            used = uuids(|gpu, id| gpu.device_file_holders.contains(&id));
        }
        let is_single = report.devices.len() == 1;
        let found: Vec<Option<GpuUuid>> = report
            .devices
            .iter()
            .map(|device| {
                let stats = process
                    .allocator
                    .iter()
                    .flat_map(|allocator| &allocator.devices);
                let by_stats = || {
                    stats
                        .clone()
                        .find(|stats| stats.device == device.device)?
                        .gpu
                        .clone()
                };
                let is_named = |gpu: &&&GpuUuid| {
                    device
                        .gpu
                        .as_ref()
                        .is_some_and(|named| is_same_gpu(named, gpu))
                };
                let named = used.iter().find(is_named).map(|gpu| (*gpu).clone());
                named.or_else(by_stats).or_else(|| match used.as_slice() {
                    [gpu] if is_single => Some((*gpu).clone()),
                    _ => None,
                })
            })
            .collect();
        if report.devices.iter().map(|device| &device.gpu).ne(&found)
            && let Some(report) = &mut Arc::make_mut(&mut self.last).report
        {
            report
                .devices
                .iter_mut()
                .zip(found)
                .for_each(|(device, gpu)| device.gpu = gpu);
        }
    }
}

/// Reads the latest report of the probe in a process. `None` if the process has no probe.
pub(super) fn latest_report(id: ProcessId) -> Option<Result<ProbeReport, ProbeMissing>> {
    let mut file = MemoryFiles::new().ok()?.report(id).ok()??;
    Some(match file.read(&mut Vec::new()) {
        Ok(ReportState::New(report)) => Ok(*report),
        Ok(ReportState::Same) => Err(ProbeMissing::NotYet),
        Err(why) => Err(why),
    })
}

/// Compares UUIDs of PyTorch and NVML, which differ in the prefix.
fn is_same_gpu(named: &GpuUuid, gpu: &GpuUuid) -> bool {
    let digits = |uuid: &GpuUuid| {
        uuid.0
            .as_str()
            .trim_start_matches("GPU-")
            .trim_start_matches("MIG-")
            .to_owned()
    };
    digits(named).eq_ignore_ascii_case(&digits(gpu))
}

/// Whether a process runs Python, also under another name.
fn runs_python(process: &Process) -> bool {
    let exe = fs::read_link(format!("/proc/{}/exe", process.id.pid));
    let is_python = |name: &[u8]| name.starts_with(b"python") || name.starts_with(b"pypy");
    exe.is_ok_and(|exe| {
        exe.file_name()
            .is_some_and(|name| is_python(name.as_encoded_bytes()))
    }) || process
        .facts
        .comm
        .as_ref()
        .is_ok_and(|comm| is_python(comm.as_str().as_bytes()))
}

/// Returns why a process that runs Python, and whose open files can be read, has no report.
fn why_absent(process: &Process, setup: Reading<ProbeSetup>) -> ProbeMissing {
    match setup {
        Ok(ProbeSetup::TurnedOff) => ProbeMissing::TurnedOff,
        Ok(ProbeSetup::PathDropped) => ProbeMissing::PathDropped,
        Ok(ProbeSetup::OnPath) if has_isolated_python(process) => ProbeMissing::Isolated,
        Ok(ProbeSetup::OnPath) | Err(_) => ProbeMissing::NotYet,
        Ok(ProbeSetup::Absent) => ProbeMissing::NotStarted,
    }
}

fn has_isolated_python(process: &Process) -> bool {
    process
        .facts
        .argv
        .as_ref()
        .is_ok_and(|argv| is_isolated(argv.iter()))
}

/// Whether Python was started with an option that ignores `PYTHONPATH` or `sitecustomize`.
pub(super) fn is_isolated<'a>(argv: impl Iterator<Item = &'a str>) -> bool {
    let options = argv
        .skip(1)
        .take_while(|word| word.starts_with('-') && word.len() > 1 && !word.starts_with("--"));
    // The letters after `-c`, `-m`, `-W` and `-X` are an argument.
    let letters = options.flat_map(|word| {
        word[1..]
            .chars()
            .take_while(|letter| !"cmWX".contains(*letter))
    });
    letters.into_iter().any(|letter| "EIS".contains(letter))
}

fn why_denied(process: &Process) -> ProbeMissing {
    let own = geteuid();
    match process.facts.uid {
        Ok(uid) if uid != own.as_raw() && !own.is_root() => ProbeMissing::OtherUser,
        _ => ProbeMissing::Protected,
    }
}
