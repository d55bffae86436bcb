//! Writes lines of hosts to a recording. A model of each host is kept for the beginnings of frames:
//! full lines, and checkpoints with which a replay can begin there.

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::model::Fleet;
use crate::protocol::host_key::HostKey;
use crate::protocol::host_tag::HostTag;
use crate::protocol::line::Line;
use crate::source::{FrameStart, RecordingWriter, parse_line};

pub(crate) struct RecordingOutput {
    pub(crate) fleet: Fleet,
    pub(crate) writer: RecordingWriter,
    /// The tags of the hosts, if their lines have tags.
    tags: BTreeMap<HostKey, HostTag>,
}

/// Returns the time of a line in milliseconds since 1970; `None` for a line that does not change
/// the snapshot.
pub(crate) fn line_ms(line: &Line) -> Option<u64> {
    match line {
        Line::Full(snapshot) => Some(snapshot.unix_ms),
        Line::Tick(change) => Some(change.unix_ms),
        Line::Reply(_) | Line::Checkpoint(_) => None,
    }
}

impl RecordingOutput {
    pub(crate) fn new(fleet: Fleet, writer: RecordingWriter) -> Self {
        Self {
            fleet,
            writer,
            tags: BTreeMap::new(),
        }
    }

    /// Lets the lines of a host that are made here have this tag.
    pub(crate) fn set_tag(&mut self, host: HostKey, tag: HostTag) {
        self.tags.insert(host, tag);
    }

    /// Applies a raw line to the model without recording it. Returns its time.
    pub(crate) fn apply_raw(&mut self, host: HostKey, raw: &[u8]) -> Option<u64> {
        let line = parse_line(raw).ok()??;
        let unix_ms = line_ms(&line);
        // A line that does not fit is followed by a full line.
        let _out_of_step = self.fleet.apply(host, line);
        unix_ms
    }

    /// Records a line, given raw with its tag and line end, and parsed. Returns whether it fits to
    /// the lines before.
    pub(crate) fn record(&mut self, host: HostKey, raw: Vec<u8>, line: Line, now: Instant) -> bool {
        let is_full = matches!(line, Line::Full(_));
        let unix_ms = line_ms(&line);
        let fits = self.fleet.apply(host, line).is_ok();
        let start = unix_ms.and_then(|unix_ms| {
            Some((
                self.writer.next_frame(host, unix_ms, is_full, now)?,
                unix_ms,
            ))
        });
        let Some((start, unix_ms)) = start else {
            self.writer.add(&raw, now);
            return fits;
        };
        let own = if is_full { Some((host, raw)) } else { None };
        let lines = self.first_lines(own, start);
        self.writer
            .begin_frame(start, &lines, BTreeMap::from([(host, unix_ms)]), now);
        fits
    }

    /// Begins the recording with the state of all hosts; without hosts, their first lines begin it.
    pub(crate) fn begin(&mut self, now: Instant) {
        let times = self
            .fleet
            .hosts()
            .filter_map(|(host, model)| Some((host, model.latest()?.unix_ms)));
        let times: BTreeMap<HostKey, u64> = times.collect();
        let Some((host, unix_ms)) = times.iter().next().map(|(host, unix_ms)| (*host, *unix_ms))
        else {
            return;
        };
        let Some(start) = self.writer.next_frame(host, unix_ms, true, now) else {
            return;
        };
        let lines = self.first_lines(None, start);
        self.writer.begin_frame(start, &lines, times, now);
    }

    /// Returns the lines that a frame begins with. `own` is the line that a host has written
    /// itself. It comes first: a search for a time reads the first line of a frame, and the latest
    /// line of another host may be old.
    fn first_lines(&self, own: Option<(HostKey, Vec<u8>)>, start: FrameStart) -> Vec<u8> {
        let (own_host, mut lines) = own.map_or((None, Vec::new()), |(host, raw)| (Some(host), raw));
        for (key, model) in self.fleet.hosts() {
            if own_host != Some(key)
                && let Some(snapshot) = model.latest()
            {
                self.append(key, &Line::Full(Box::new(snapshot.clone())), &mut lines);
            }
        }
        for (key, model) in self.fleet.hosts().filter(|_| start.has_checkpoints) {
            if let Some(checkpoint) = model.checkpoint() {
                self.append(key, &Line::Checkpoint(Box::new(checkpoint)), &mut lines);
            }
        }
        lines
    }

    fn append(&self, host: HostKey, line: &Line, lines: &mut Vec<u8>) {
        let mut bytes = Vec::new();
        // Writing to memory fails only if the line is no JSON.
        if line.write(&mut bytes).is_ok() {
            if let Some(tag) = self.tags.get(&host) {
                tag.append_to(&mut bytes);
            }
            lines.append(&mut bytes);
        }
    }
}
