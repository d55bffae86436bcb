//! The graph of memory over time: the span that it shows, its cursor, and the scales of its panels.
//!
//! The graph follows the present until the user moves its cursor. Then it stands still until the user returns to now.

pub mod panel;
pub mod scale;

use std::time::Duration;

use self::panel::Panel;
use self::scale::Scale;
use super::layout::{Area, GraphVisibility};
use crate::base::units::Moment;
use crate::model::{GpuOrProcess, HostGpu, HostModel, HostSubject, WEEK};
use crate::protocol::host_key::HostKey;

/// The spans of time to choose from, in minutes: up to a week.
const ZOOMS: [u64; 13] = [1, 2, 5, 10, 15, 30, 60, 120, 360, 720, 1440, 2880, 10_080];

/// The number of steps in which the cursor crosses a graph.
const CURSOR_STEPS: u32 = 60;

/// The span of time that the user chose to see, and the cursor of the graph.
#[derive(Debug, Default)]
pub struct GraphView {
    /// Whether the panel below the lists is open.
    pub(super) visibility: GraphVisibility,
    /// The chosen span of time; `None` for as much as the history has, up to 15 minutes.
    span: Option<Duration>,
    /// The moment at the right edge; `None` while the graph follows the present.
    pub end: Option<Moment>,
    /// The span while the graph stands still and the user has not chosen one.
    frozen_span: Option<Duration>,
    /// The host whose clock `end` and `cursor` are measured by; `None` while the graph follows the present.
    frozen_on: Option<HostKey>,
    /// The moment under the cursor of the graph; `None` while the graph follows the present.
    pub cursor: Option<Moment>,
    /// The scale of each graph on the screen.
    scales: Vec<(HostSubject, Scale)>,
}

impl GraphView {
    /// The span of time that the graph shows.
    pub fn span(&self, model: &HostModel) -> Duration {
        self.span.or(self.frozen_span).unwrap_or_else(|| model.span())
    }

    pub(super) fn follow_present(&mut self) {
        (self.end, self.frozen_span, self.frozen_on, self.cursor) = (None, None, None, None);
    }

    /// Moves the cursor this many steps into the past, or towards the present.
    pub(super) fn step_back(&mut self, steps: isize, host: HostKey, model: &HostModel) {
        let from = self.cursor.unwrap_or_else(|| model.now());
        let distance = self.span(model) / CURSOR_STEPS * u32::try_from(steps.unsigned_abs()).unwrap_or(CURSOR_STEPS);
        let to = if steps < 0 { from.after(distance) } else { Moment(from.0.saturating_sub(millis(distance))) };
        self.point(to, host, model);
    }

    /// Puts the cursor on a moment. From then on the graph stands still, and moves only to keep the cursor visible. A
    /// cursor at the present makes the graph follow the present.
    pub(super) fn point(&mut self, at: Moment, host: HostKey, model: &HostModel) {
        let now = model.now();
        let Some(began) = model.history().began() else { return };
        if at >= now {
            return self.follow_present();
        }
        let at = at.max(began).max(Moment(now.0.saturating_sub(millis(WEEK))));
        let span = self.span(model);
        let end = self.end.unwrap_or(now);
        (self.frozen_span, self.frozen_on, self.cursor) = (Some(span), Some(host), Some(at));
        self.end = Some(match () {
            () if at >= end => at.after(span / 4).min(now),
            () if end.since(at) >= span => at.after(span * 3 / 4).min(now),
            () => end,
        });
    }

    /// Shows more time, or less, by this many steps.
    pub(super) fn zoom(&mut self, by: isize, model: &HostModel) {
        let place = ZOOMS.partition_point(|zoom| Duration::from_mins(*zoom) < self.span(model)).min(ZOOMS.len() - 1);
        let span = Duration::from_mins(ZOOMS[place.saturating_add_signed(by).min(ZOOMS.len() - 1)]);
        // The moment under the cursor stays in its column; without a cursor, the right edge stays.
        if let (Some(cursor), Some(end)) = (self.cursor, self.end) {
            let behind = end.since(cursor).as_secs_f64() / self.span(model).as_secs_f64();
            self.end = Some(cursor.after(span.mul_f64(behind)).min(model.now()));
        }
        self.span = Some(span);
    }

    /// Lays out the graph of a subject. On a wide area, the graph of a process has that of its GPU beside it.
    pub(super) fn panels(&self, model: &HostModel, subject: HostSubject, area: Area) -> Vec<Panel> {
        let beside = (area.width >= panel::TWO_GRAPHS).then(|| gpu_of(model, &subject)).flatten();
        let half = area.width / 2;
        let places = match beside {
            Some(gpu) => vec![
                (gpu, Area { width: half - 2, ..area }),
                (subject, Area { x: area.x + half, width: area.width - half, ..area }),
            ],
            None => vec![(subject, area)],
        };
        let panels = places.into_iter().filter_map(|(subject, area)| {
            let old = self.scales.iter().find(|(known, _)| *known == subject).map(|(_, scale)| *scale);
            Panel::new(model, self, subject, area, old)
        });
        panels.collect()
    }

    /// Remembers the scale of each graph on the screen. Returns to the present if the cursor is on the clock of another host,
    /// or the clock of its host started again. `shown` is the host of the graph and its present.
    pub(super) fn settle(&mut self, panels: Vec<Panel>, shown: Option<(HostKey, Moment)>) {
        self.scales = panels.into_iter().map(|panel| (panel.subject, panel.scale)).collect();
        let is_elsewhere = |(host, now): (HostKey, Moment)| {
            self.frozen_on.is_some_and(|frozen_on| frozen_on != host) || self.cursor.is_some_and(|cursor| cursor > now)
        };
        if shown.is_some_and(is_elsewhere) {
            self.follow_present();
        }
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// The GPU on which a process holds, or held, the most memory; `None` if the subject is a GPU.
fn gpu_of(model: &HostModel, subject: &HostSubject) -> Option<HostSubject> {
    let GpuOrProcess::Process(id) = &subject.subject else { return None };
    let parts = &model.history().process(*id)?.parts;
    let (gpu, _) = parts.iter().max_by_key(|(_, series)| series.latest())?;
    Some(HostGpu { host: subject.host, gpu: gpu.clone() }.into())
}

#[cfg(test)]
mod tests;
