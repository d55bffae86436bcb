//! Draws the load below a plot, a row for each: use of the multiprocessors, power and temperature.

use ratatui::buffer::Buffer;
use ratatui::style::Style;

use crate::app::graph::panel::{AXIS, Panel};
use crate::app::layout::Area;
use crate::app::lists::columns::Align;
use crate::app::lists::process_cells::block;
use crate::base::units::Moment;
use crate::model::{Curve, GpuHistory, GpuOrProcess, HostModel};
use crate::view::pen::Pen;
use crate::view::theme::{Fill, Theme};

/// The temperature at the upper edge of its row, in kelvin: 100 °C. The lower edge is 0 °C.
const HOT: u32 = 373;

/// A row: its curve, the values at its lower and upper edge, and the words for a value.
struct LoadRow<'a> {
    curve: &'a Curve,
    edges: (u32, u32),
    words: fn(u32) -> String,
    style: Style,
}

/// Draws as many rows as the graph has: use, then power and temperature of the GPU, or of the GPU
/// of the process.
pub(super) fn draw(
    buffer: &mut Buffer,
    theme: Theme,
    model: &HostModel,
    panel: &Panel,
    at: Moment,
) {
    let gpu = match &panel.subject.subject {
        GpuOrProcess::Gpu(gpu) => Some(gpu),
        GpuOrProcess::Process(id) => model
            .history()
            .process(*id)
            .and_then(|process| Some(&process.parts.first()?.0)),
    };
    let history = gpu.and_then(|gpu| model.history().gpu(gpu));
    let sm = match &panel.subject.subject {
        GpuOrProcess::Gpu(_) => history.map(|history| &history.sm),
        GpuOrProcess::Process(id) => model.history().process(*id).map(|process| &process.sm),
    };
    let limit = gpu.and_then(|gpu| model.latest()?.gpu(gpu)?.health.power_limit.ok());
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "watts, never below 0"
    )]
    let limit = limit.map_or(1000, |limit| limit.value() as u32);
    let sm = sm.map(|curve| LoadRow {
        curve,
        edges: (0, 100),
        words: |percent| format!("SM {percent:>3}%"),
        style: theme.edge(Fill::Busy),
    });
    let row = |curve, edges, words| LoadRow {
        curve,
        edges,
        words,
        style: theme.dim(),
    };
    let power = history.map(|gpu| row(&gpu.power, (0, limit), |watts| format!("{watts} W")));
    let temperature = history.map(|gpu| {
        row(&gpu.temperature, (HOT - 100, HOT), |kelvin| {
            format!("{}°C", GpuHistory::celsius(kelvin))
        })
    });
    for (y, row) in (panel.load..panel.load + panel.load_rows).zip([sm, power, temperature]) {
        if let Some(row) = row {
            row.draw(buffer, theme, panel, y, (at, model.now()));
        }
    }
}

impl LoadRow<'_> {
    /// Draws the row, with its value at a moment at the left.
    fn draw(
        &self,
        buffer: &mut Buffer,
        theme: Theme,
        panel: &Panel,
        y: u16,
        (at, now): (Moment, Moment),
    ) {
        let left = Area {
            x: panel.area.x,
            y,
            width: AXIS,
            height: 1,
        };
        let value = self
            .curve
            .at(at, now)
            .map_or_else(|| "-".to_owned(), |range| (self.words)(range.high));
        if let Some(mut pen) = Pen::at(buffer, left, 0) {
            pen.cell(value, usize::from(AXIS) - 1, Align::Right, theme.dim());
        }
        let (low, high) = self.edges;
        let height = |value: u32| {
            block(
                value.saturating_sub(low).into(),
                high.saturating_sub(low).into(),
            )
        };
        let parts = self.curve.over(&panel.window, now);
        let steps: String = parts
            .iter()
            .map(|range| range.map_or(' ', |range| height(range.high)))
            .collect();
        buffer.set_stringn(panel.plot.x, y, steps, usize::from(panel.past), self.style);
    }
}
