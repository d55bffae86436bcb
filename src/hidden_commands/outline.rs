//! Prints the outline of a recording for the timeline of a replay: its span, then what happened and
//! the gaps, one JSON object per line.
//!
//! A checkpoint holds the news up to its moment, so only the lines after the last one are read, and
//! those before a restart of the recorder. A recording without checkpoints is read from its
//! beginning.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use crate::base::text::Text;
use crate::model::{Fleet, HostLabel, OutlineEvent, OutlinePart, outline_events};
use crate::protocol::change::OutOfStep;
use crate::protocol::checkpoint::Checkpoint;
use crate::protocol::host_key::HostKey;
use crate::protocol::host_tag::HostTag;
use crate::protocol::line::Line;
use crate::source::{RecordingReader, parse_line};

/// A longer time between two lines is a gap. The longest interval of an agent is a minute.
const GAP: Duration = Duration::from_mins(2);

/// Checkpoints are five minutes apart, or ten in recordings of an earlier version, unless the
/// recorder was off.
const APART: Duration = Duration::from_mins(11);

/// The most hosts of a recording.
const MOST_HOSTS: usize = 1024;

/// Prints the outline of the recording at this path.
///
/// # Errors
///
/// When the file cannot be read, or nothing reads the outline any more.
pub(crate) fn print(path: &Path) -> io::Result<()> {
    print_parts(path)?;
    write(&OutlinePart::Complete)
}

fn print_parts(path: &Path) -> io::Result<()> {
    let mut reader = RecordingReader::open(path)?;
    let Some((begin, end)) = reader.span()? else {
        return Ok(());
    };
    let mut outline = Outline {
        known: BTreeSet::new(),
        hosts: Vec::new(),
    };
    write(&OutlinePart::Span { begin, end })?;
    let mut at = end;
    let mut later: Option<(u64, Vec<OutlineEvent>)> = None;
    loop {
        reader.seek(at)?;
        let mut stretch = Stretch::default();
        let first = outline.read_start(&mut reader, &mut stretch)?;
        if stretch.checkpoints.is_empty() {
            // From here on to the beginning, every line counts.
            reader.seek(0)?;
            let until = later.map(|(until, _)| until);
            return outline.read_lines(&mut reader, Stretch::default(), None, until);
        }
        let begins_at = stretch.begin.unwrap_or(at);
        let events = outline_events(&stretch.fleet);
        let is_continued = later.as_ref().is_some_and(|(until, later)| {
            let is_near = until.saturating_sub(begins_at) < milliseconds(APART);
            let has_same = |event: &OutlineEvent| later.iter().any(|other| is_same(event, other));
            is_near && events.last().is_none_or(has_same)
        });
        if is_continued {
            outline.write_new(&events)?;
        } else {
            for (host, checkpoint) in std::mem::take(&mut stretch.checkpoints) {
                apply(&mut stretch.fleet, host, Line::Checkpoint(checkpoint));
            }
            outline.read_lines(&mut reader, stretch, first, later.map(|(until, _)| until))?;
        }
        if begins_at <= begin || begins_at > at {
            return Ok(());
        }
        later = Some((begins_at, events));
        at = begins_at - 1;
    }
}

fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn write(part: &OutlinePart) -> io::Result<()> {
    let mut line = serde_json::to_vec(part)?;
    line.push(b'\n');
    io::stdout().write_all(&line)
}

/// Events of two checkpoints are the same if their times differ no more than clocks drift apart.
fn is_same(one: &OutlineEvent, other: &OutlineEvent) -> bool {
    one.unix_ms.abs_diff(other.unix_ms) < 5000
        && (&one.host, one.number) == (&other.host, other.number)
}

/// A stretch of the recording that is read from a checkpoint, or from the beginning.
#[derive(Default)]
struct Stretch {
    fleet: Fleet,
    /// The checkpoints at its beginning. The fleet has taken in their news alone.
    checkpoints: Vec<(HostKey, Box<Checkpoint>)>,
    /// The time of the first line, and of the latest.
    begin: Option<u64>,
    latest: Option<u64>,
}

/// A line with the host that it comes from.
type LineOfHost = (HostKey, Line);

struct Outline {
    /// The events that were written: host, number and time in units of 5 seconds.
    known: BTreeSet<(Text, u64, u64)>,
    /// The keys of the hosts in the file.
    hosts: Vec<Option<u64>>,
}

impl Outline {
    /// Returns the next line that is understood; `None` at the end. Names its host in the fleet.
    fn next_line(
        &mut self,
        reader: &mut RecordingReader,
        fleet: &mut Fleet,
    ) -> io::Result<Option<LineOfHost>> {
        while let Some(raw) = reader.next_line()? {
            let Ok(Some(line)) = parse_line(raw) else {
                continue;
            };
            let tag = HostTag::parse(raw);
            let key = tag.as_ref().map(|tag| tag.host_key);
            let place = self
                .hosts
                .iter()
                .position(|known| *known == key)
                .unwrap_or(self.hosts.len());
            let Ok(host) = u16::try_from(place).map(HostKey) else {
                continue;
            };
            if place == MOST_HOSTS {
                continue;
            }
            if place == self.hosts.len() {
                self.hosts.push(key);
            }
            if let (None, Some(name)) = (fleet.host(host), tag.and_then(|tag| tag.name)) {
                fleet.set_label(
                    host,
                    HostLabel {
                        name: Some(name.clone()),
                        source: name,
                    },
                );
            }
            return Ok(Some((host, line)));
        }
        Ok(None)
    }

    /// Reads full lines and checkpoints into a stretch. Returns the first other line.
    fn read_start(
        &mut self,
        reader: &mut RecordingReader,
        stretch: &mut Stretch,
    ) -> io::Result<Option<LineOfHost>> {
        let mut full = BTreeSet::new();
        while let Some((host, line)) = self.next_line(reader, &mut stretch.fleet)? {
            match line {
                Line::Full(snapshot) if full.insert(host) => {
                    stretch.begin.get_or_insert(snapshot.unix_ms);
                    stretch.latest = Some(snapshot.unix_ms);
                    apply(&mut stretch.fleet, host, Line::Full(snapshot));
                }
                Line::Checkpoint(checkpoint) => {
                    stretch.fleet.apply_news(host, &checkpoint);
                    stretch.checkpoints.push((host, checkpoint));
                }
                line => return Ok(Some((host, line))),
            }
        }
        Ok(None)
    }

    /// Reads all lines of a stretch, and writes the events and gaps in it. `first` is its next
    /// line, and `until` the time at which a later stretch begins.
    fn read_lines(
        &mut self,
        reader: &mut RecordingReader,
        mut stretch: Stretch,
        first: Option<LineOfHost>,
        until: Option<u64>,
    ) -> io::Result<()> {
        let mut next = match first {
            Some(line) => Some(line),
            None => self.next_line(reader, &mut stretch.fleet)?,
        };
        self.write_new(&outline_events(&stretch.fleet))?;
        while let Some((host, line)) = next {
            let time = match &line {
                Line::Full(snapshot) => Some(snapshot.unix_ms),
                Line::Tick(change) => Some(change.unix_ms),
                Line::Reply(_) | Line::Checkpoint(_) => None,
            };
            if let (Some(time), Some(latest)) = (time, stretch.latest)
                && time.saturating_sub(latest) > milliseconds(GAP)
            {
                write(&OutlinePart::Gap {
                    begin: latest,
                    end: time,
                })?;
            }
            stretch.latest = time.or(stretch.latest);
            if time.zip(until).is_some_and(|(time, until)| time >= until) {
                return Ok(());
            }
            // The model derives from the lines what a later checkpoint holds, so that one is skipped.
            if !matches!(line, Line::Checkpoint(_)) {
                let before = news_count(&stretch.fleet);
                apply(&mut stretch.fleet, host, line);
                if news_count(&stretch.fleet) != before {
                    self.write_new(&outline_events(&stretch.fleet))?;
                }
            }
            next = self.next_line(reader, &mut stretch.fleet)?;
        }
        Ok(())
    }

    /// Writes the events that were not written yet.
    fn write_new(&mut self, events: &[OutlineEvent]) -> io::Result<()> {
        for event in events {
            let key = |place: u64| (event.host.clone(), event.number, place);
            let place = event.unix_ms / 5000;
            if [place.saturating_sub(1), place, place + 1]
                .into_iter()
                .all(|place| !self.known.contains(&key(place)))
            {
                self.known.insert(key(place));
                write(&OutlinePart::Event(event.clone()))?;
            }
        }
        Ok(())
    }
}

/// Applies a line. One that does not fit is skipped: a full line follows.
fn apply(fleet: &mut Fleet, host: HostKey, line: Line) {
    let _skipped: Result<(), OutOfStep> = fleet.apply(host, line);
}

/// The number of the latest news of each host: it changes with each of them.
fn news_count(fleet: &Fleet) -> u64 {
    fleet
        .hosts()
        .filter_map(|(_, model)| model.news().map(|item| item.number + 1).max())
        .sum()
}
