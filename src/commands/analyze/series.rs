//! The memory of one GPU or process in a log, and what would have been said of it live, sample by sample.

use super::cells;
use crate::base::text::Text;
use crate::base::units::{Bytes, Moment};
use crate::model::{Evidence, Fall, Growing, Growth, LeakDetector, Outlook, Part, PartedDetector, Reserved};

/// One sample.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    /// Which row of the log it was.
    pub(super) place: u32,
    pub(super) bytes: Bytes,
    /// The amount at which memory runs out, where that is known.
    pub(super) limit: Option<Bytes>,
}

/// The samples of a series.
#[derive(Debug)]
pub(super) struct Series {
    /// As the log names it.
    pub(super) gpu: Option<Text>,
    /// That is the index of a GPU.
    pub(super) is_index: bool,
    pub(super) uuid: Option<Text>,
    pub(super) pid: Option<u32>,
    pub(super) name: Option<Text>,
    pub(super) total: Option<Bytes>,
    pub(super) rows: Vec<Row>,
    /// What PyTorch reserved, and what of that was allocated, by the rows' places, in their order. Empty where the log
    /// does not say.
    pub(super) parts: Vec<(u32, [Bytes; 2])>,
    /// The samples are the driver's, and not PyTorch's.
    pub(super) is_drivers: bool,
    /// All that its allocator said last; absent where the log does not say so much.
    pub(super) allocator: Option<Reserved>,
}

/// What a process held at one time, by whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) reserved: Bytes,
    /// Of that.
    pub(super) allocated: Bytes,
    /// What is not PyTorch's, in bytes; below 0 where the figures are not of one moment. Absent where the log has
    /// PyTorch's figures alone.
    pub(super) outside: Option<i64>,
}

/// What was said at one sample.
#[derive(Debug, Clone, Copy)]
pub(super) struct Said {
    /// Seconds since the series began.
    pub(super) at: f64,
    pub(super) outlook: Outlook,
    /// Absent unless it was a suspect or a leak.
    pub(super) evidence: Option<Evidence>,
    /// Which part of memory grew; absent where that is not known, or nothing did.
    pub(super) part: Option<Part>,
}

/// A series that was judged.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) series: Series,
    pub(super) capacity: Option<Bytes>,
    /// Seconds from the first sample to the last.
    pub(super) span: f64,
    pub(super) samples: usize,
    /// Samples of a time that was there already.
    pub(super) same: u64,
    /// At each change of the outlook.
    pub(super) timeline: Vec<Said>,
    /// At least once a minute while it is a leak.
    pub(super) forecasts: Vec<Said>,
    /// What was said last.
    pub(super) last: Said,
    /// The way in which it grew at last; absent unless it was a suspect or a leak.
    pub(super) way: Option<Growth>,
    /// Why.
    pub(super) reason: Option<String>,
    /// By how much it grew though it is steady; absent where it did not.
    pub(super) creep: Option<String>,
    /// Whose it was at last; absent where the log does not say.
    pub(super) parts: Option<Parts>,
    /// Sudden falls, with seconds since the series began.
    pub(super) falls: Vec<(f64, Fall)>,
    /// Seconds and bytes, in their order.
    pub(super) points: Vec<(f64, u64)>,
    /// The same of what was allocated, where that is what leaks.
    pub(super) allocated: Vec<(f64, u64)>,
}

/// Who judges: the whole alone, where the log has no parts, and of a million samples that counts.
enum Detector {
    Whole(Box<LeakDetector>),
    Parted(Box<PartedDetector>),
}

impl Detector {
    fn new(has_parts: bool) -> Self {
        if has_parts { Self::Parted(Box::default()) } else { Self::Whole(Box::default()) }
    }

    fn push(&mut self, at: Moment, held: Bytes, parts: Option<[Bytes; 2]>, limit: Option<Bytes>) {
        match self {
            Self::Whole(it) => it.push(at, held, limit),
            Self::Parted(it) => it.push(at, held, parts, limit),
        }
    }

    fn held(&self) -> &LeakDetector {
        match self {
            Self::Whole(it) => it,
            Self::Parted(it) => it.held(),
        }
    }

    /// How it looks.
    fn outlook(&self) -> Outlook {
        match self {
            Self::Whole(it) => it.outlook(),
            Self::Parted(it) => it.outlook(),
        }
    }

    /// What is thought, and of which part.
    fn growing(&self) -> Growing<'_> {
        match self {
            Self::Whole(it) => Growing::whole(it),
            Self::Parted(it) => it.growing(),
        }
    }
}

/// Milliseconds without a process after which it may be another that has its PID.
const GONE: i64 = 15 * 60_000;

/// Seconds after which the next sample is foretold from again: at least once a minute, wherever samples come in one.
const HALF: f64 = 30.0;

impl Series {
    /// Whether somebody else has its PID now: who holds less than half as much, and has another name, or was away for
    /// long. A name alone says nothing: a program may set its own. `times` are of all rows, in milliseconds.
    pub(super) fn is_other(&self, times: &[i64], now: i64, bytes: Bytes, name: Option<&str>) -> bool {
        let [.., before, last] = self.rows.as_slice() else { return false };
        let ours = self.name.as_ref().filter(|it| is_named(it.as_str()));
        let theirs = name.filter(|it| is_named(it));
        let is_renamed = ours.zip(theirs).is_some_and(|(ours, theirs)| *ours != Text::new(theirs));
        let gap = now - times[last.place as usize];
        let usual = times[last.place as usize] - times[before.place as usize];
        bytes.0 < last.bytes.0 / 2 && (is_renamed || gap > GONE.max(4 * usual))
    }

    /// Takes the name that it has now, if that is said.
    pub(super) fn rename(&mut self, name: &str) {
        if is_named(name) && self.name.as_ref().is_none_or(|it| it.as_str() != name) {
            self.name = Some(Text::new(name));
        }
    }

    /// Looks at the samples in their order; `times` are of all rows, in milliseconds.
    pub(super) fn judge(mut self, times: &[i64], capacity: Option<Bytes>) -> Judged {
        let mut rows = std::mem::take(&mut self.rows);
        let time = |it: &Row| times[it.place as usize];
        if !rows.is_sorted_by_key(time) {
            rows.sort_by_key(time);
        }
        let before = rows.len();
        rows.dedup_by(|next, kept| {
            let is_same = time(next) == time(kept);
            if is_same {
                kept.bytes = kept.bytes.max(next.bytes);
            }
            is_same
        });
        let same = (before - rows.len()) as u64;
        let began = rows.first().map_or(0, time);
        let mut feeder = Detector::new(!self.parts.is_empty());
        let parts = std::mem::take(&mut self.parts);
        let mut judged = Judged {
            capacity: capacity.or(self.total),
            series: self,
            span: 0.0,
            samples: rows.len(),
            same,
            timeline: Vec::new(),
            forecasts: Vec::new(),
            last: Said { at: 0.0, outlook: Outlook::TooSoon, evidence: None, part: None },
            way: None,
            reason: None,
            creep: None,
            parts: None,
            falls: Vec::new(),
            points: Vec::with_capacity(rows.len()),
            allocated: Vec::new(),
        };
        let mut foretold = f64::NEG_INFINITY;
        for row in &rows {
            let moment = Moment(time(row).abs_diff(began));
            let known = parts.binary_search_by_key(&row.place, |it| it.0).ok().map(|at| parts[at].1);
            if let Some([reserved, allocated]) = known {
                let signed = |it: Bytes| it.0.min(1 << 60).cast_signed();
                let outside = judged.series.is_drivers.then(|| signed(row.bytes) - signed(reserved));
                judged.parts = Some(Parts { reserved, allocated, outside });
            }
            feeder.push(moment, row.bytes, known, row.limit);
            let (at, outlook) = (seconds(moment), feeder.outlook());
            let said = || {
                let growing = feeder.growing();
                Said { at, outlook, evidence: growing.detector.evidence().copied(), part: growing.part }
            };
            if judged.timeline.last().is_none_or(|it| it.outlook != outlook) {
                judged.timeline.push(said());
            }
            if outlook != Outlook::Leak {
                foretold = f64::NEG_INFINITY;
            } else if at - foretold >= HALF {
                foretold = at;
                judged.forecasts.push(said());
            }
            if let Some((when, fall)) = feeder.held().fall()
                && when == moment
            {
                judged.falls.push((at, fall));
            }
            judged.points.push((at, row.bytes.0));
            judged.allocated.extend(known.map(|[_, allocated]| (at, allocated.0)));
            judged.span = at;
        }
        let growing = feeder.growing();
        (judged.way, judged.reason) = (growing.way(), growing.reason());
        judged.creep = growing.detector.creep();
        let evidence = growing.detector.evidence().copied();
        judged.last = Said { at: judged.span, outlook: growing.outlook(), evidence, part: growing.part };
        if growing.part != Some(Part::Allocated) {
            judged.allocated = Vec::new();
        }
        judged
    }
}

/// Whether that is a name: `[Not Found]` is none.
fn is_named(name: &str) -> bool {
    !cells::is_missing(name)
}

fn seconds(moment: Moment) -> f64 {
    moment.since(Moment(0)).as_secs_f64()
}
