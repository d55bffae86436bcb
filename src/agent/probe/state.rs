//! Checks and parses the bytes of a report, which anyone may have written.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::protocol::snapshot::{
    LineMemory, MarkPair, MarkedDevice, ModuleMemory, ModuleRow, OmittedGroups, PeakParts,
    ProbeAnswer, ProbeDevice, ProbeMissing, ProbeReport, ProgramMark, StepEnd, TensorCategory,
    TensorGroup, TensorLeak, TrainingSteps, probe_version_1,
};

pub(super) const HEADER_SIZE: usize = 64;

/// The version of a report, whose other values a later version may write in another form.
#[derive(Deserialize)]
struct ReportVersion {
    version: u32,
}

/// One of the memory files of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileKind {
    /// The target of the link in `/proc/PID/fd`.
    pub(super) link: &'static str,
    /// The size of the file, which never changes.
    pub(super) size: u32,
    magic: &'static [u8; 8],
}

/// The probe publishes here.
pub(super) const REPORTS: FileKind = FileKind {
    link: "/memfd:gputop-probe (deleted)",
    size: 1 << 20,
    magic: b"gputopP1",
};
/// The probe reads requests here.
pub(super) const REQUESTS: FileKind = FileKind {
    link: "/memfd:gputop-probe-requests (deleted)",
    size: 4 << 10,
    magic: b"gputopR1",
};

/// The process that wrote a report. A forked process has the file of its parent, with the parent's
/// identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReportWriter {
    /// The PID in the PID namespace of the writer.
    pub(super) pid: u32,
    pub(super) start_ticks: u64,
}

#[derive(Debug, PartialEq)]
pub(super) enum ReportState {
    /// The report with the known sequence number.
    Same,
    New(Box<ProbeReport>),
}

/// The first bytes of the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header {
    writer: ReportWriter,
    /// Odd while the rest of the file is being written.
    pub(super) sequence: u64,
    length: usize,
    checksum: u32,
}

impl Header {
    /// `NotYet` for the header of a file without a report.
    pub(super) fn parse(kind: FileKind, bytes: &[u8; HEADER_SIZE]) -> Result<Self, ProbeMissing> {
        if *bytes == [0; HEADER_SIZE] {
            return Err(ProbeMissing::NotYet);
        }
        Self::parse_written(kind, bytes).ok_or(ProbeMissing::Damaged)
    }

    fn parse_written(kind: FileKind, bytes: &[u8; HEADER_SIZE]) -> Option<Self> {
        let long = |offset: usize| {
            Some(u64::from_le_bytes(
                bytes.get(offset..offset + 8)?.try_into().ok()?,
            ))
        };
        let u32_at = |offset: usize| {
            Some(u32::from_le_bytes(
                bytes.get(offset..offset + 4)?.try_into().ok()?,
            ))
        };
        if !bytes.starts_with(kind.magic) || u32_at(8)? != kind.size {
            return None;
        }
        Some(Self {
            writer: ReportWriter {
                pid: u32_at(12)?,
                start_ticks: long(16)?,
            },
            sequence: long(24)?,
            length: u32_at(32)?.try_into().ok()?,
            checksum: u32_at(36)?,
        })
    }
}

/// Returns the header of a file with this content.
pub(super) fn header(
    kind: FileKind,
    writer: ReportWriter,
    sequence: u64,
    content: &[u8],
) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
    let mut bytes = kind.magic.to_vec();
    bytes.extend(kind.size.to_le_bytes());
    bytes.extend(writer.pid.to_le_bytes());
    bytes.extend(writer.start_ticks.to_le_bytes());
    bytes.extend(sequence.to_le_bytes());
    bytes.extend(length.to_le_bytes());
    bytes.extend(crc32fast::hash(content).to_le_bytes());
    bytes.resize(HEADER_SIZE, 0);
    bytes
}

/// Whether a header is of this process, or was never written.
pub(super) fn may_be_of(kind: FileKind, header: &[u8; HEADER_SIZE], writer: ReportWriter) -> bool {
    match Header::parse(kind, header) {
        Ok(header) => header.writer == writer,
        Err(why) => why == ProbeMissing::NotYet,
    }
}

/// Reads a report by `read_at`, which fills its buffer from an offset and returns whether it could.
/// Returns the report, if its sequence number is not the known one, and the sequence number. Fails
/// if the report is damaged, or being written.
pub(super) fn read(
    writer: ReportWriter,
    known: Option<u64>,
    buffer: &mut Vec<u8>,
    read_at: impl Fn(&mut [u8], u64) -> bool,
) -> Result<(ReportState, u64), ProbeMissing> {
    let read_header = || {
        let mut bytes = [0; HEADER_SIZE];
        let is_read = read_at(&mut bytes, 0);
        if is_read {
            Header::parse(REPORTS, &bytes)
        } else {
            Err(ProbeMissing::Damaged)
        }
    };
    let header = read_header()?;
    if header.sequence == 0 && header.writer == writer {
        return Err(ProbeMissing::NotYet);
    }
    if known == Some(header.sequence) {
        return Ok((ReportState::Same, header.sequence));
    }
    let most = usize::try_from(REPORTS.size).unwrap_or(usize::MAX) - HEADER_SIZE;
    if header.writer != writer || header.sequence % 2 == 1 || header.length > most {
        return Err(ProbeMissing::Damaged);
    }
    buffer.resize(header.length, 0);
    let is_read = read_at(buffer, HEADER_SIZE as u64);
    if !is_read || read_header()? != header || crc32fast::hash(buffer) != header.checksum {
        return Err(ProbeMissing::Damaged);
    }
    let report = parse(buffer)?;
    // One report may be larger than all others together.
    buffer.shrink_to(MOST_KEPT);
    if !is_plausible(&report) {
        return Err(ProbeMissing::Damaged);
    }
    Ok((ReportState::New(Box::new(report)), header.sequence))
}

fn parse(bytes: &[u8]) -> Result<ProbeReport, ProbeMissing> {
    let version: ReportVersion = from_json(serde_json::from_slice(bytes))?;
    match version.version {
        1 => {
            let mut report = from_json(serde_json::from_slice(bytes))?;
            probe_version_1::rename_report(&mut report);
            from_json(serde_json::from_value(report))
        }
        2 => from_json(serde_json::from_slice(bytes)),
        _ => Err(ProbeMissing::OtherVersion),
    }
}

fn from_json<T>(parsed: serde_json::Result<T>) -> Result<T, ProbeMissing> {
    parsed.map_err(|_| ProbeMissing::Damaged)
}

/// The most bytes that the buffer keeps between two reports.
const MOST_KEPT: usize = 64 << 10;

/// Whether every amount, count and time of a report is one that a program may have. Others would
/// overflow sums.
fn is_plausible(report: &ProbeReport) -> bool {
    /// A PiB, or as many tensors or steps.
    const MOST: u64 = 1 << 50;
    /// As seconds since 1970: the year 33658.
    const MOST_SECONDS: f64 = 1e12;
    let bytes = |amounts: &[Option<Bytes>]| amounts.iter().flatten().all(|bytes| bytes.0 <= MOST);
    let count = |count: Option<u64>| count.is_none_or(|count| count <= MOST);
    let change = |change: Option<i64>| count(change.map(i64::unsigned_abs));
    let number =
        |number: Option<f64>| number.is_none_or(|number| (0.0..=MOST_SECONDS).contains(&number));
    let parts = |categories: &BTreeMap<TensorCategory, Bytes>, states: &BTreeMap<Text, Bytes>| {
        categories
            .values()
            .chain(states.values())
            .all(|bytes| bytes.0 <= MOST)
    };
    let step_end = |end: &StepEnd| {
        bytes(&[end.allocated, end.reserved, end.requested])
            && count(end.step)
            && parts(&end.categories, &end.optimizer_state)
    };
    let device = |device: &ProbeDevice| {
        bytes(&[
            device.allocated,
            device.reserved,
            device.requested,
            device.floor,
            device.peak,
            device.peak_base,
        ]) && count(device.peak_step)
            && number(device.unix_time)
            && parts(&device.categories, &device.optimizer_state)
            && device.step_end.as_ref().is_none_or(step_end)
    };
    let group = |group: &TensorGroup| {
        bytes(&[Some(group.bytes), group.block])
            && [Some(group.count), group.age_steps].into_iter().all(count)
            && [group.count_change, group.bytes_change]
                .into_iter()
                .all(change)
    };
    let mark = |mark: &ProgramMark| count(mark.step) && number(mark.unix_time);
    let leak = |leak: &TensorLeak| {
        bytes(&[leak.bytes_per_step, leak.bytes_per_second, leak.bytes])
            && number(leak.count_per_step)
            && count(leak.steps)
    };
    let lines = |lines: &[LineMemory]| {
        lines
            .iter()
            .all(|line| bytes(&[Some(line.bytes)]) && count(line.count))
    };
    let pair = |pair: &MarkPair| {
        let device = |device: &MarkedDevice| {
            bytes(&[Some(device.allocated)])
                && [Some(device.bytes_change), device.total_bytes_change]
                    .into_iter()
                    .all(change)
        };
        [&pair.since, &pair.until].into_iter().all(mark)
            && number(pair.seconds)
            && [pair.times, pair.groups_from].into_iter().all(count)
            && pair.devices.iter().all(device)
            && pair.groups.iter().all(group)
            && pair.groups_left_out.as_ref().is_none_or(|left_out| {
                count(Some(left_out.count)) && change(Some(left_out.bytes_change))
            })
    };
    let peak = |peak: &PeakParts| {
        bytes(&[Some(peak.peak)]) && parts(&peak.categories, &BTreeMap::new()) && lines(&peak.lines)
    };
    let module_memory = |memory: &ModuleMemory| {
        let row =
            |row: &ModuleRow| bytes(&[Some(row.activations), Some(row.peak)]) && count(row.calls);
        bytes(&[memory.peak, memory.before, memory.outside, memory.backward].map(Some))
            && memory.rows.iter().all(row)
            && count(memory.rows_left_out)
    };
    let answer = |answer: &ProbeAnswer| {
        bytes(&[answer.bytes])
            && count(answer.steps)
            && lines(&answer.lines)
            && answer.peak.iter().all(peak)
            && answer.compared.as_deref().is_none_or(pair)
            && answer.modules.iter().all(module_memory)
            && answer.kept.iter().all(|kept| bytes(&[Some(kept.bytes)]))
    };
    let steps = |steps: &TrainingSteps| count(Some(steps.count)) && number(steps.seconds);
    let left_out =
        |left_out: &OmittedGroups| count(Some(left_out.count)) && bytes(&[Some(left_out.bytes)]);
    number(report.unix_time)
        && report.steps.as_ref().is_none_or(steps)
        && report.devices.iter().all(device)
        && report.groups.iter().all(group)
        && report.leaks.iter().all(leak)
        && (report.fills.iter()).all(|fill| bytes(&[Some(fill.bytes)]))
        && report.marks.iter().all(mark)
        && report.mark_pairs.iter().all(pair)
        && report.answer.as_ref().is_none_or(answer)
        && report.groups_left_out.as_ref().is_none_or(left_out)
        && (report.recording.as_ref())
            .is_none_or(|recording| number(recording.cost_percent) && count(recording.steps_left))
}

/// Cuts the lists of a report to lengths that a viewer can show.
pub(super) fn limit(report: &mut ProbeReport, most_groups: usize) {
    const MOST_DEVICES: usize = 64;
    const MOST_LEAKS: usize = 8;
    const MOST_HOLDERS: usize = 8;
    const MOST_DIMENSIONS: usize = 16;
    const MOST_STATES: usize = 16;
    const MOST_TROUBLE: usize = 8;
    const MOST_LINES: usize = 24;
    const MOST_MARKS: usize = 16;
    const MOST_CHANGED: usize = 24;
    report.devices.truncate(MOST_DEVICES);
    for device in &mut report.devices {
        let step_end = device
            .step_end
            .as_mut()
            .map(|step_end| &mut step_end.optimizer_state);
        for states in step_end.into_iter().chain([&mut device.optimizer_state]) {
            while states.len() > MOST_STATES {
                states.pop_last();
            }
        }
    }
    report.leaks.truncate(MOST_LEAKS);
    report.fills.truncate(MOST_LEAKS);
    for leak in &mut report.leaks {
        leak.held_by.truncate(MOST_HOLDERS);
        leak.shape
            .iter_mut()
            .for_each(|shape| shape.truncate(MOST_DIMENSIONS));
    }
    report.trouble.truncate(MOST_TROUBLE);
    keep_last(&mut report.marks, MOST_MARKS);
    keep_last(&mut report.mark_pairs, MOST_MARKS);
    for pair in &mut report.mark_pairs {
        limit_pair(pair, MOST_CHANGED, MOST_DEVICES, MOST_DIMENSIONS);
    }
    if let Some(answer) = &mut report.answer {
        answer.peak.truncate(MOST_DEVICES);
        let peaks = answer.peak.iter_mut().map(|peak| &mut peak.lines);
        for lines in peaks.chain([&mut answer.lines]) {
            lines.truncate(MOST_LINES);
            lines.shrink_to_fit();
        }
        answer.modules.truncate(MOST_DEVICES);
        for memory in &mut answer.modules {
            let left_out = memory.rows.len().saturating_sub(most_groups) as u64;
            if left_out > 0 {
                memory.rows.truncate(most_groups);
                memory.rows.shrink_to_fit();
                let known = memory.rows_left_out.into_iter().sum::<u64>();
                memory.rows_left_out = Some(known.saturating_add(left_out));
            }
        }
        answer.kept.truncate(MOST_HOLDERS);
        for kept in &mut answer.kept {
            kept.names.truncate(MOST_HOLDERS);
        }
        if let Some(pair) = &mut answer.compared {
            limit_pair(pair, most_groups, MOST_DEVICES, MOST_DIMENSIONS);
        }
    }
    if report.groups.len() > most_groups {
        // A third of the places is for those that grew most.
        let growth =
            |group: &usize| -> i64 { report.groups[*group].bytes_change.unwrap_or(i64::MIN) };
        let mut order: Vec<usize> = (0..report.groups.len()).collect();
        order.sort_by_key(|group| std::cmp::Reverse(growth(group)));
        order[most_groups / 3..]
            .sort_by_key(|group| std::cmp::Reverse(report.groups[*group].bytes));
        order.truncate(most_groups);
        let (mut places, mut left_out) = (
            0..,
            report
                .groups_left_out
                .clone()
                .unwrap_or(OmittedGroups::NONE),
        );
        report.groups.retain(|group| {
            let is_kept = places.next().is_some_and(|place| order.contains(&place));
            if !is_kept {
                left_out.add(group);
            }
            is_kept
        });
        report.groups_left_out = Some(left_out);
    }
    for group in &mut report.groups {
        group
            .shape
            .iter_mut()
            .for_each(|shape| shape.truncate(MOST_DIMENSIONS));
    }
    // A forged report may have had tens of thousands of items.
    report.devices.shrink_to_fit();
    report.groups.shrink_to_fit();
    report.leaks.shrink_to_fit();
    report.trouble.shrink_to_fit();
    report
        .groups
        .sort_by_key(|group| std::cmp::Reverse(group.bytes));
}

fn keep_last<T>(list: &mut Vec<T>, most: usize) {
    list.drain(..list.len().saturating_sub(most));
    list.shrink_to_fit();
}

fn limit_pair(pair: &mut MarkPair, most: usize, most_devices: usize, most_dimensions: usize) {
    pair.devices.truncate(most_devices);
    if pair.groups.len() > most {
        let left_out = pair.groups_left_out.get_or_insert_default();
        for group in pair.groups.drain(most..) {
            left_out.count = left_out.count.saturating_add(1);
            let change = left_out.bytes_change;
            left_out.bytes_change = change.saturating_add(group.bytes_change.into_iter().sum());
        }
    }
    let shapes = pair
        .groups
        .iter_mut()
        .filter_map(|group| group.shape.as_mut());
    shapes.for_each(|shape| shape.truncate(most_dimensions));
    pair.devices.shrink_to_fit();
    pair.groups.shrink_to_fit();
}
