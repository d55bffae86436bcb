//! The graph of memory over time: the span that it shows, its cursor, and the scales of its panels.
//!
//! The graph follows the present until the user moves its cursor. Then it stands still until the
//! user returns to now.

pub(super) mod export;
pub(crate) mod panel;
pub(crate) mod scale;

use std::time::Duration;

use self::panel::Panel;
use super::layout::{Area, GraphVisibility};
use crate::base::units::Moment;
use crate::model::{GpuOrProcess, HostGpu, HostModel, HostSubject, WEEK};
use crate::protocol::host_key::HostKey;

/// The spans of time to choose from, in minutes: up to a week.
const ZOOMS: [u64; 13] = [1, 2, 5, 10, 15, 30, 60, 120, 360, 720, 1440, 2880, 10_080];

/// The span unless the user chooses another.
const DEFAULT_SPAN: Duration = Duration::from_mins(15);

/// The number of steps in which the cursor crosses a graph.
const CURSOR_STEPS: u32 = 60;

/// The rows below a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum LoadRows {
    #[default]
    Sm,
    SmPowerTemperature,
    None,
}

impl LoadRows {
    fn rows(self) -> u16 {
        match self {
            Self::Sm => 1,
            Self::SmPowerTemperature => 3,
            Self::None => 0,
        }
    }

    pub(super) fn next(self) -> Self {
        match self {
            Self::Sm => Self::SmPowerTemperature,
            Self::SmPowerTemperature => Self::None,
            Self::None => Self::Sm,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct GraphView {
    /// Whether the panel below the lists is open.
    pub(super) visibility: GraphVisibility,
    /// The span of time that the user chose; `None` for [`DEFAULT_SPAN`], or the shortest one that
    /// reaches the forecast. A graph fills from the right while the history is shorter.
    pub chosen_span: Option<Duration>,
    /// Whether the scale shows only the amounts in use, instead of beginning at 0.
    pub(super) is_zoomed: bool,
    pub(super) load: LoadRows,
    /// `None` while the graph follows the present.
    pub still: Option<StillGraph>,
    /// The graphs on the screen. Their scales stay in use while they fit.
    shown: Vec<Panel>,
}

/// The part of the past that a graph shows while it stands still.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct StillGraph {
    /// The host whose clock both moments are measured by.
    host: HostKey,
    /// The moment under the cursor of the graph.
    pub cursor: Moment,
    /// The moment at the right edge.
    pub end: Moment,
    /// The span: the history grows, and a graph that stands still must not.
    span: Duration,
}

impl GraphView {
    /// The span that the graph shows.
    pub(crate) fn span(&self) -> Duration {
        match (self.still, self.shown.first()) {
            (None, Some(panel)) => panel.span,
            _ => self.span_without_forecast(),
        }
    }

    /// The span that a graph without a forecast shows: the chosen one. It does not depend on the
    /// length of the history, so that the axis stays.
    fn span_without_forecast(&self) -> Duration {
        self.still.map_or_else(
            || self.chosen_span.unwrap_or(DEFAULT_SPAN),
            |still| still.span,
        )
    }

    pub(crate) fn cursor(&self) -> Option<Moment> {
        self.still.map(|still| still.cursor)
    }

    pub(super) fn follow_present(&mut self) {
        self.still = None;
    }

    /// Moves the cursor this many steps into the past, or towards the present.
    pub(super) fn step_back(&mut self, steps: isize, host: HostKey, model: &HostModel) {
        let from = self.cursor().unwrap_or_else(|| model.now());
        let distance = self.span() / CURSOR_STEPS
            * u32::try_from(steps.unsigned_abs()).unwrap_or(CURSOR_STEPS);
        let to = if steps < 0 {
            from.after(distance)
        } else {
            Moment(from.0.saturating_sub(millis(distance)))
        };
        self.point(to, host, model);
    }

    /// Puts the cursor on a moment. From then on the graph stands still, and moves only to keep the
    /// cursor visible. A cursor at the present makes the graph follow the present.
    pub(super) fn point(&mut self, at: Moment, host: HostKey, model: &HostModel) {
        let now = model.now();
        let Some(began) = model.history().began() else {
            return;
        };
        if at >= now {
            return self.follow_present();
        }
        let cursor = at
            .max(began)
            .max(Moment(now.0.saturating_sub(millis(WEEK))));
        let span = self.span();
        let end = match self.still.map_or(now, |still| still.end) {
            end if cursor >= end => cursor.after(span / 4).min(now),
            end if end.since(cursor) >= span => cursor.after(span * 3 / 4).min(now),
            end => end,
        };
        self.still = Some(StillGraph {
            host,
            cursor,
            end,
            span,
        });
    }

    /// Shows more time, or less, by this many steps.
    pub(super) fn zoom(&mut self, by: isize, model: &HostModel) {
        let before = self.span();
        let from = before;
        let place = ZOOMS
            .partition_point(|zoom| Duration::from_mins(*zoom) < from)
            .min(ZOOMS.len() - 1);
        let span = Duration::from_mins(ZOOMS[place.saturating_add_signed(by).min(ZOOMS.len() - 1)]);
        // The moment under the cursor stays in its column; without a cursor, the right edge stays.
        if let Some(still) = &mut self.still {
            let behind = still.end.since(still.cursor).as_secs_f64() / before.as_secs_f64();
            still.span = span;
            still.end = still
                .cursor
                .after(still.span.mul_f64(behind))
                .min(model.now());
        }
        self.chosen_span = Some(span);
    }

    /// Lays out the graph of a subject. On a wide area, the graph of a process has that of its GPU
    /// beside it.
    pub(super) fn panels(&self, model: &HostModel, subject: HostSubject, area: Area) -> Vec<Panel> {
        // The graph of a GPU with one process would be the same again.
        let is_shared = |gpu: &HostSubject| match &gpu.subject {
            GpuOrProcess::Gpu(uuid) => model.history().gpu_processes(uuid).len() > 1,
            GpuOrProcess::Process(_) => false,
        };
        let beside = (area.width >= panel::TWO_GRAPHS)
            .then(|| gpu_of(model, &subject))
            .flatten()
            .filter(is_shared);
        let half = area.width / 2;
        let places = match beside {
            Some(gpu) => vec![
                (
                    gpu,
                    Area {
                        width: half - 2,
                        ..area
                    },
                ),
                (
                    subject,
                    Area {
                        x: area.x + half,
                        width: area.width - half,
                        ..area
                    },
                ),
            ],
            None => vec![(subject, area)],
        };
        let panels = places.into_iter().filter_map(|(subject, area)| {
            let old = self.shown.iter().find(|panel| panel.subject == subject);
            Panel::new(model, self, subject, area, old)
        });
        panels.collect()
    }

    /// Remembers the graphs on the screen. Returns to the present if the cursor is on the clock of
    /// another host, or the clock of its host started again. `shown` is the host of the graph and
    /// its present.
    pub(super) fn settle(&mut self, panels: Vec<Panel>, shown: Option<(HostKey, Moment)>) {
        self.shown = panels;
        if let Some((host, now)) = shown {
            self.still
                .take_if(|still| still.host != host || still.cursor > now);
        }
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// The GPU on which a process holds, or held, the most memory; `None` if the subject is a GPU.
fn gpu_of(model: &HostModel, subject: &HostSubject) -> Option<HostSubject> {
    let GpuOrProcess::Process(id) = &subject.subject else {
        return None;
    };
    let parts = &model.history().process(*id)?.parts;
    let (gpu, _) = parts.iter().max_by_key(|(_, series)| series.latest())?;
    Some(
        HostGpu {
            host: subject.host,
            gpu: gpu.clone(),
        }
        .into(),
    )
}

#[cfg(test)]
mod tests;
