//! Draws the load below a plot, a row for each: use of the multiprocessors, power and temperature.

use ratatui::buffer::Buffer;

use crate::app::graph::panel::{AXIS, Panel};
use crate::app::layout::Area;
use crate::app::lists::columns::Align;
use crate::base::units::Moment;
use crate::model::{Curve, GpuHistory, GpuOrProcess, HostModel};
use crate::view::pen::Pen;
use crate::view::theme::{Fill, Theme};

/// The temperature at the upper edge of its row, in kelvin: 100 °C. The lower edge is 0 °C.
const HOT: u32 = 373;

/// A row: its curve, the values at its lower and upper edge, and the words for a value.
struct LoadRow<'a> {
    /// The name, above the value where there is room.
    name: &'static str,
    curve: &'a Curve,
    edges: (u32, u32),
    words: fn(u32) -> String,
    /// The colours of the area; `None` for a dim one.
    fill: Option<Fill>,
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
        name: "use",
        curve,
        edges: (0, 100),
        words: |percent| format!("SM {percent:>3}%"),
        fill: Some(Fill::Busy),
    });
    let row = |name, curve, edges, words| LoadRow {
        name,
        curve,
        edges,
        words,
        fill: None,
    };
    let power = history.map(|gpu| {
        row("power", &gpu.power, (0, limit), |watts| {
            format!("{watts} W")
        })
    });
    let temperature = history.map(|gpu| {
        row("heat", &gpu.temperature, (HOT - 100, HOT), |kelvin| {
            format!("{}°C", GpuHistory::celsius(kelvin))
        })
    });
    let mut y = panel.load;
    for (row, height) in [sm, power, temperature].iter().zip(panel.load_rows) {
        if let Some(row) = row.as_ref().filter(|_| height > 0) {
            let lines = Area {
                y,
                height,
                ..panel.plot
            };
            row.draw(buffer, theme, panel, lines, (at, model.now()));
        }
        y += height;
    }
}

impl LoadRow<'_> {
    /// Draws the row, with its value at a moment at the left.
    fn draw(
        &self,
        buffer: &mut Buffer,
        theme: Theme,
        panel: &Panel,
        lines: Area,
        (at, now): (Moment, Moment),
    ) {
        let left = Area {
            x: panel.area.x,
            width: AXIS,
            ..lines
        };
        let value = self
            .curve
            .at(at, now)
            .map_or_else(|| "-".to_owned(), |range| (self.words)(range.high));
        let texts = [value, self.name.to_owned()].into_iter();
        for (line, text) in (0..left.height).rev().zip(texts) {
            if let Some(mut pen) = Pen::at(buffer, left, line) {
                pen.cell(text, usize::from(AXIS) - 1, Align::Right, theme.dim());
            }
        }
        let (low, high) = self.edges;
        let rows = u64::from(lines.height);
        let parts = self.curve.over(&panel.window, now);
        // The lowest row is the first that fills.
        for row in 0..lines.height {
            let below = rows - 1 - u64::from(row);
            let step = |value: u32| {
                let most = u64::from(high.saturating_sub(low)).max(1);
                let eighths = u64::from(value.saturating_sub(low)).min(most) * 8 * rows / most;
                // A known value is seen, however low it is.
                let eighths = eighths.max(1).saturating_sub(8 * below).min(8);
                EIGHTHS[usize::try_from(eighths).unwrap_or(0)]
            };
            let steps: String = parts
                .iter()
                .map(|range| range.map_or(' ', |range| step(range.high)))
                .collect();
            let place = f64::from(lines.height - row) / f64::from(lines.height);
            let style = self
                .fill
                .map_or(theme.dim(), |fill| theme.wash(fill, place));
            let line = (lines.x, lines.y + row);
            buffer.set_stringn(line.0, line.1, steps, usize::from(panel.past), style);
        }
    }
}

/// Blocks by their height in eighths of a cell.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
