//! The memory of one GPU or process in a log.

use super::cells::is_missing;
use super::rows::LogRow;
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::model::ReservedMemory;

#[derive(Debug, Clone, Default)]
pub(super) struct LogSeries {
    /// The name of the host in a log of several hosts.
    pub(super) host: Option<Text>,
    /// The GPU as the log names it.
    pub(super) gpu: Option<Text>,
    pub(super) is_index: bool,
    /// The label of the amount in the log, where it says more than the GPU: `MA`, `run-2`.
    pub(super) label: Option<Text>,
    /// Whether the log does not name the GPU, and `gpu` is the place of its rows among those of one
    /// time.
    pub(super) is_by_order: bool,
    pub(super) uuid: Option<Text>,
    pub(super) pid: Option<u32>,
    /// The names of the process, each with the number of the first line that has it.
    pub(super) names: Vec<(u64, Text)>,
    pub(super) total: Option<Bytes>,
    /// Number of the line, and the memory that PyTorch reserved and allocated, in the order of
    /// lines. Empty if the log does not have both.
    pub(super) pytorch: Vec<(u64, [Bytes; 2])>,
    /// Whether the samples are PyTorch's figures, because the log has none of the driver.
    pub(super) is_pytorch_only: bool,
    /// The latest allocator figures in gputop's own lines.
    pub(super) allocator: Option<ReservedMemory>,
}

impl LogSeries {
    pub(super) fn rename(&mut self, line: u64, name: &str) {
        if !is_missing(name)
            && self
                .names
                .last()
                .is_none_or(|(_, known)| known.as_str() != name)
        {
            self.names.push((line, Text::new(name)));
        }
    }

    /// Returns the name of the process in a line.
    pub(super) fn name_at(&self, line: u32) -> Option<&Text> {
        let known = self
            .names
            .partition_point(|(first, _)| *first <= u64::from(line));
        self.names[..known].last().map(|(_, name)| name)
    }

    /// Returns what PyTorch reserved and allocated in a line.
    pub(super) fn pytorch_at(&self, line: u32) -> Option<[Bytes; 2]> {
        let place = self
            .pytorch
            .binary_search_by_key(&u64::from(line), |(line, _)| *line)
            .ok()?;
        Some(self.pytorch[place].1)
    }

    /// Returns the series of the rows in a place among those of one time.
    pub(super) fn of_place(&self, place: usize) -> Self {
        let gpu = Some(Text::new(place.to_string()));
        Self {
            gpu,
            is_index: true,
            is_by_order: true,
            ..self.clone()
        }
    }

    /// Returns the series without the figures of its lines.
    pub(super) fn without_lines(&self) -> Self {
        Self {
            host: self.host.clone(),
            gpu: self.gpu.clone(),
            uuid: self.uuid.clone(),
            label: self.label.clone(),
            names: Vec::new(),
            pytorch: Vec::new(),
            ..*self
        }
    }

    /// Splits the rows of a PID, in the order of time, where another process has the PID.
    pub(super) fn processes<'a>(&self, rows: &'a [LogRow]) -> Vec<&'a [LogRow]> {
        let mut processes = Vec::new();
        let mut begin = 0;
        if self.pid.is_some() {
            for row in 2..rows.len() {
                if row >= begin + 2
                    && self.is_other_process([&rows[row - 2], &rows[row - 1]], &rows[row])
                {
                    processes.push(&rows[begin..row]);
                    begin = row;
                }
            }
        }
        processes.push(&rows[begin..]);
        processes
    }

    /// Whether the next row belongs to another process with the same PID: it uses less than half as
    /// much memory, and has another name or follows a long gap. A new name alone proves nothing,
    /// because programs can rename themselves.
    fn is_other_process(&self, [before, last]: [&LogRow; 2], next: &LogRow) -> bool {
        /// The shortest gap, in milliseconds, after which a PID may have been reused.
        const LONG_GAP: i64 = 15 * 60_000;
        if next.used().0 >= last.used().0 / 2 {
            return false;
        }
        let is_renamed = self
            .name_at(last.line)
            .zip(self.name_at(next.line))
            .is_some_and(|(ours, theirs)| ours != theirs);
        is_renamed || next.time - last.time > LONG_GAP.max(4 * (last.time - before.time))
    }
}
