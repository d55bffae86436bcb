//! Draws the time axis below a plot: clock times, and the time before or after now at its ends.

use std::time::Duration;

use ratatui::buffer::Buffer;

use crate::app::graph::panel::Panel;
use crate::app::layout::Area;
use crate::base::time::WallClock;
use crate::base::units::{Elapsed, Moment};
use crate::output::labels::period;
use crate::view::pen::Pen;
use crate::view::theme::Theme;

/// The distances between two labels, in seconds.
const STEPS: [u64; 18] = [
    5, 10, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400,
    172_800, 345_600,
];

const DAY: u64 = 86_400;

/// The columns between two labels.
const APART: u64 = 4;

/// Labels on one line that do not overlap.
struct Labels<'a> {
    buffer: &'a mut Buffer,
    theme: Theme,
    row: Area,
    taken: Vec<std::ops::Range<u64>>,
}

impl Labels<'_> {
    /// Writes a label from this column on, if it has room there.
    fn put(&mut self, start: u64, label: &str) {
        let place = start..start + label.len() as u64;
        let is_free = self
            .taken
            .iter()
            .all(|other| place.end < other.start || other.end < place.start);
        if is_free
            && place.end <= u64::from(self.row.width)
            && let Some(mut pen) = Pen::at(self.buffer, self.row, 0)
        {
            pen.skip(usize::try_from(start).unwrap_or(usize::MAX))
                .put(label, self.theme.dim());
            self.taken.push(place);
        }
    }
}

/// Draws the axis. `clock` is the wall clock of the host; `None` if its time zone is not known.
pub(super) fn draw(
    buffer: &mut Buffer,
    theme: Theme,
    panel: &Panel,
    clock: Option<WallClock>,
    now: Moment,
) {
    let row = Area {
        y: panel.time,
        height: 1,
        ..panel.plot
    };
    let mut labels = Labels {
        buffer,
        theme,
        row,
        taken: Vec::new(),
    };
    let (past, width) = (u64::from(panel.past), u64::from(panel.plot.width));
    let window = &panel.window;
    let column_ms = u64::try_from(window.part().as_millis()).unwrap_or(u64::MAX);
    let is_present = window.place(now).is_some();
    let span = panel.span.as_secs();
    let (begin, end) = if is_present {
        (format!("-{}", period(panel.span)), "now".to_owned())
    } else {
        let ago = |moment: Moment| format!("-{}", Elapsed(now.since(moment)));
        (ago(window.start()), ago(window.end()))
    };
    labels.put(past.saturating_sub(end.len() as u64), &end);
    labels.put(0, &begin);
    if past < width {
        let seconds = span * (width - past) / past.max(1);
        let unit = if seconds < 60 {
            1
        } else if seconds < 600 {
            10
        } else {
            60
        };
        let ahead = format!(
            "+{}",
            period(Duration::from_secs((seconds + unit / 2) / unit * unit))
        );
        labels.put(width - ahead.len() as u64, &ahead);
    }
    let Some(clock) = clock else { return };
    // The local time at the end of the past: the first moment after it.
    let end = clock.local_ms(window.end());
    let begin = end.saturating_sub(past * column_ms);
    let with_seconds = span < 300;
    let least = if with_seconds { 1 } else { 60 };
    let label_width = if with_seconds { 8 } else { 5 } + APART;
    let steps = STEPS.into_iter().filter(|step| *step >= least);
    let step = steps
        .into_iter()
        .find(|step| step * 1000 / column_ms >= label_width)
        .unwrap_or(7 * DAY)
        * 1000;
    for local in (begin.div_ceil(step)..).map(|number| number * step) {
        let column = (local - begin) / column_ms;
        if column >= width {
            break;
        }
        let label = match step {
            _ if step >= DAY * 1000 => WallClock::day(local),
            _ if with_seconds => WallClock::time_of_day(local),
            _ => WallClock::hour_and_minute(local),
        };
        // The label is below its moment.
        if let Some(start) = column.checked_sub(label.len() as u64 / 2) {
            labels.put(start, &label);
        }
    }
}
