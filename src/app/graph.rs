//! What the graph shows: which stretch of time, of whom, between which amounts.
//!
//! It follows the present until the person moves its cursor; then it stands still, and says how to come back.

pub mod panel;
pub mod scale;

use std::time::Duration;

use self::panel::{Kept, Panel};
use self::scale::Scale;
use super::keymap::Intent;
use super::layout::{self, Area};
use super::{App, List, rows};
use crate::app::event::Effect;
use crate::base::units::Moment;
use crate::model::{GpuOrProcess, HostModel, WEEK};

const fn minutes(minutes: u64) -> Duration {
    Duration::from_mins(minutes)
}

/// The spans to choose from.
const ZOOMS: [Duration; 13] = [
    minutes(1),
    minutes(2),
    minutes(5),
    minutes(10),
    minutes(15),
    minutes(30),
    minutes(60),
    minutes(120),
    minutes(360),
    minutes(720),
    minutes(1440),
    minutes(2 * 1440),
    WEEK,
];

/// The cursor goes over a graph in so many steps.
const STEPS: u32 = 60;

/// What the person chose to see of the past.
#[derive(Debug, Default)]
pub struct GraphView {
    /// Whether the panel shows.
    shown: layout::Graph,
    /// Over the whole screen, and of whom: it stays with a process that ends.
    whole: Option<GpuOrProcess>,
    /// How much time; absent for as much as there is history of.
    span: Option<Duration>,
    /// The moment at the right edge; absent while that is the present.
    end: Option<Moment>,
    /// How much time, while the graph stands still and the person chose none.
    still: Option<Duration>,
    cursor: Option<Moment>,
    /// The scale of each graph on the screen.
    scales: Vec<(GpuOrProcess, Scale)>,
}

impl GraphView {
    /// Whether the panel below the lists shows.
    pub(super) fn shown(&self) -> layout::Graph {
        self.shown
    }

    /// Whom the graph over the whole screen is about; absent when there is none.
    pub fn whole(&self) -> Option<&GpuOrProcess> {
        self.whole.as_ref()
    }

    /// The moment under the cursor of the graph.
    pub fn cursor(&self) -> Option<Moment> {
        self.cursor
    }

    /// The moment at the right edge; absent while that is the present.
    pub fn end(&self) -> Option<Moment> {
        self.end
    }

    fn follow(&mut self) {
        (self.end, self.still, self.cursor) = (None, None, None);
    }

    /// Puts the cursor on a moment. The graph stands still, and moves only to keep the cursor on it.
    fn point(&mut self, at: Moment, model: &HostModel) {
        let now = model.now();
        let Some(began) = model.history().began() else { return };
        if at >= now {
            return self.follow();
        }
        let at = at.max(began).max(Moment(now.0.saturating_sub(millis(WEEK))));
        let span = self.span(model);
        let end = self.end.unwrap_or(now);
        (self.still, self.cursor) = (Some(span), Some(at));
        self.end = Some(match () {
            () if at >= end => at.after(span / 4).min(now),
            () if end.since(at) >= span => at.after(span * 3 / 4).min(now),
            () => end,
        });
    }

    fn span(&self, model: &HostModel) -> Duration {
        self.span.or(self.still).unwrap_or_else(|| model.span())
    }

    fn zoom(&mut self, by: isize, model: &HostModel) {
        let at = ZOOMS.partition_point(|it| *it < self.span(model)).min(ZOOMS.len() - 1);
        let span = ZOOMS[at.saturating_add_signed(by).min(ZOOMS.len() - 1)];
        // What is under the cursor, or else at the edge, stays where it is.
        if let (Some(cursor), Some(end)) = (self.cursor, self.end) {
            let behind = end.since(cursor).as_secs_f64() / self.span(model).as_secs_f64();
            self.end = Some(cursor.after(span.mul_f64(behind)).min(model.now()));
        }
        self.span = Some(span);
    }

    fn scale(&self, subject: &GpuOrProcess) -> Option<Scale> {
        self.scales.iter().find(|(it, _)| it == subject).map(|(_, scale)| *scale)
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

impl App {
    /// What the person chose to see of the past.
    pub fn graph_view(&self) -> &GraphView {
        &self.graph_view
    }

    /// How much time the graph shows.
    pub fn graph_span(&self) -> Duration {
        self.graph_view.span(&self.model)
    }

    /// Every graph on the screen: of what is under the cursor, and beside it of its GPU where there is room.
    pub fn panels(&self) -> Vec<Panel> {
        self.lay_out(Kept::Settled)
    }

    fn lay_out(&self, kept: impl Fn(Scale) -> Kept) -> Vec<Panel> {
        let Some(area) = self.graph_area() else { return Vec::new() };
        let Some(subject) = self.subject() else { return Vec::new() };
        let beside = (area.width >= panel::WIDE).then(|| self.gpu_of(&subject)).flatten();
        let half = area.width / 2;
        let places = match beside {
            Some(gpu) => vec![
                (gpu, Area { width: half - 2, ..area }),
                (subject, Area { x: area.x + half, width: area.width - half, ..area }),
            ],
            None => vec![(subject, area)],
        };
        let panels = places.into_iter().filter_map(|(subject, area)| {
            let scale = self.graph_view.scale(&subject).map_or(Kept::Nothing, &kept);
            Panel::new(&self.model, &self.graph_view, subject, area, scale)
        });
        panels.collect()
    }

    /// Where graphs may be drawn: over the whole screen, or in their panel.
    fn graph_area(&self) -> Option<Area> {
        let layout = self.layout()?;
        let area = if self.graph_view.whole.is_some() { panel::whole(layout.body).0 } else { layout.graph };
        (area.height > 0).then_some(area)
    }

    /// The GPU of a process: the one on which it holds, or held, the most.
    fn gpu_of(&self, subject: &GpuOrProcess) -> Option<GpuOrProcess> {
        let GpuOrProcess::Process(id) = subject else { return None };
        let parts = &self.model.history().process(*id)?.parts;
        let (gpu, _) = parts.iter().max_by_key(|(_, series)| series.latest())?;
        Some(GpuOrProcess::Gpu(gpu.clone()))
    }

    /// Lets each graph keep its scale for as long as it will do.
    pub(super) fn settle_graphs(&mut self) {
        let panels = self.lay_out(Kept::Before);
        self.graph_view.scales = panels.into_iter().map(|it| (it.subject, it.scale)).collect();
        self.marks.fit(self.model.history().began(), self.model.now());
        let now = self.model.now();
        if self.graph_view.cursor.is_some_and(|it| it > now) {
            self.graph_view.follow();
        }
    }

    /// Does what a key means for the graph.
    pub(super) fn obey_graph(&mut self, intent: Intent) -> Option<Effect> {
        let span = self.graph_span();
        match intent {
            Intent::Graph if self.subject().is_none() => {
                self.say("there is nothing here to draw: move to a process, or with Tab to a GPU");
            }
            Intent::Graph if self.graph_view.whole.is_some() => {
                (self.graph_view.whole, self.graph_view.shown) = (None, layout::Graph::Hidden);
            }
            Intent::Graph if self.layout().is_some_and(|it| it.graph.height > 0) => {
                self.graph_view.whole = self.subject()
            }
            Intent::Graph => {
                self.graph_view.shown = layout::Graph::Shown;
                // Where there is no room beside the lists, it has the whole screen.
                if self.layout().is_some_and(|it| it.graph.height == 0) {
                    self.graph_view.whole = self.subject();
                }
            }
            Intent::Zoom(by) => self.graph_view.zoom(by, &self.model),
            Intent::Back(steps) => {
                let from = self.graph_view.cursor.unwrap_or_else(|| self.model.now());
                let step = millis(span) / u64::from(STEPS);
                let to = if steps < 0 {
                    from.after(Duration::from_millis(step * steps.unsigned_abs() as u64))
                } else {
                    Moment(from.0.saturating_sub(step * steps.unsigned_abs() as u64))
                };
                self.graph_view.point(to, &self.model);
            }
            Intent::Now => self.graph_view.follow(),
            Intent::Mark => {
                self.marks.begin(&self.model);
                if self.marks.typed().is_none() {
                    self.say("there is nothing to mark yet");
                }
            }
            Intent::KeepMark => self.marks.keep(),
            Intent::DropMark => self.marks.give_up(),
            _ => {}
        }
        None
    }

    /// Leaves what is over the lists, step by step: the past first, then the whole screen.
    pub(super) fn close_graph(&mut self) {
        if self.graph_view.end.is_some() {
            self.graph_view.follow();
        } else {
            self.graph_view.whole = None;
        }
    }

    /// The cursor of the lists moved: the graph over the whole screen goes with it.
    pub(super) fn follow_cursor(&mut self) {
        if self.graph_view.whole.take().is_some() {
            self.graph_view.whole = self.subject();
        }
    }

    /// A click on a graph puts its cursor there. Says whether it was one.
    pub(super) fn point_at_graph(&mut self, x: u16, y: u16) -> bool {
        let Some(panel) = self.panels().into_iter().find(|it| it.area.contains(x, y)) else { return false };
        if let Some(at) = panel.moment(x) {
            self.graph_view.point(at, &self.model);
        }
        true
    }

    /// What the graph shows: what is under the cursor, or what it was opened on.
    pub fn subject(&self) -> Option<GpuOrProcess> {
        if let Some(subject) = &self.graph_view.whole {
            return Some(subject.clone());
        }
        match self.focus {
            List::Gpus => Some(GpuOrProcess::Gpu(self.model.latest()?.gpus.get(self.gpu_at)?.uuid.clone())),
            List::Processes => match &self.rows.get(self.cursor_at)?.subject {
                rows::Subject::Process(id) => Some(GpuOrProcess::Process(*id)),
                // It is drawn there, on top of all that somebody accounts for.
                rows::Subject::Unaccounted(gpu) => Some(GpuOrProcess::Gpu(gpu.clone())),
                rows::Subject::Group(_) | rows::Subject::Heading(_) => None,
            },
        }
    }
}

#[cfg(test)]
mod tests;
