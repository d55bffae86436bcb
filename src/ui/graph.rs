//! How the memory of the GPU or process under the cursor went. On a wide screen, both stand side by side.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::style::Style;

use super::pen::{Align, Pen};
use super::theme::Theme;
use crate::app::layout::Area;
use crate::app::{App, List, rows};
use crate::model::{Series, Subject};
use crate::units::{Bytes, Elapsed, Moment};

/// From here on there is room for two.
const WIDE: u16 = 150;

/// Columns of the amounts at the left.
const AXIS: u16 = 11;

pub(super) fn draw(buffer: &mut Buffer, theme: Theme, app: &App, area: Area) {
    if area.height == 0 {
        return;
    }
    let Some(subject) = app.subject() else { return };
    let other = (area.width >= WIDE).then(|| gpu_beside(app)).flatten();
    match other {
        Some(gpu) => {
            let half = area.width / 2;
            draw_one(buffer, theme, app, &gpu, Area { width: half - 1, ..area });
            draw_one(buffer, theme, app, &subject, Area { x: area.x + half, width: area.width - half, ..area });
        }
        None => draw_one(buffer, theme, app, &subject, area),
    }
}

/// The GPU of the process under the cursor: the one on which it holds the most.
fn gpu_beside(app: &App) -> Option<Subject> {
    if app.focus() != List::Processes {
        return None;
    }
    let snapshot = app.model().latest()?;
    let id = app.under_cursor()?;
    let held = |at: &usize| {
        let tenant = snapshot.gpus[*at].tenants.iter().find(|it| it.process == id);
        tenant.and_then(|it| it.memory.ok())
    };
    let most = app.model().holding(id)?.gpus.iter().max_by_key(|at| held(at))?;
    Some(Subject::Gpu(snapshot.gpus[*most].uuid.clone()))
}

fn title(app: &App, subject: &Subject) -> Option<String> {
    let snapshot = app.model().latest()?;
    Some(match subject {
        Subject::Gpu(uuid) => {
            let gpu = snapshot.gpu(uuid)?;
            format!("GPU {} memory", rows::gpu_label(gpu))
        }
        Subject::Process(id) => {
            let comm = snapshot.process(*id)?.facts.comm.as_ref().map_or_else(ToString::to_string, ToString::to_string);
            format!("{} {comm} memory", id.pid)
        }
    })
}

fn draw_one(buffer: &mut Buffer, theme: Theme, app: &App, subject: &Subject, area: Area) {
    let now = app.model().now();
    let Some(series) = app.model().series(subject) else { return };
    if let Some(mut pen) = Pen::at(buffer, area, 0) {
        pen.put(title(app, subject).unwrap_or_default(), theme.head()).skip(2);
        figures(&mut pen, theme, series, now);
    }
    let span = app.model().span();
    let plot = Area {
        x: area.x + AXIS,
        y: area.y + 1,
        width: area.width.saturating_sub(AXIS),
        height: area.height.saturating_sub(2),
    };
    if plot.width < 4 || plot.height < 2 {
        return;
    }
    let columns = series.columns(now, span, usize::from(plot.width) * 2);
    let scale = Scale::around(columns.iter().flatten().copied());
    draw_axes(buffer, theme, &scale, span, area, plot);
    for level in [series.peak(), series.baseline()].into_iter().flatten() {
        draw_level(buffer, theme.dim(), &scale, level, plot);
    }
    draw_curve(buffer, theme.accent(), &scale, &columns, plot);
}

fn figures(pen: &mut Pen<'_>, theme: Theme, series: &Series, now: Moment) {
    let word = |bytes: Option<Bytes>| bytes.map_or_else(|| "unknown".to_owned(), |it| it.to_string());
    for (name, value) in [("now", series.latest()), ("peak", series.peak()), ("baseline", series.baseline())] {
        pen.put(name, theme.dim()).skip(1).put(word(value), theme.text()).skip(2);
    }
    if let (Some(first), Some(last), Some(began)) = (series.baseline(), series.latest(), series.began()) {
        let (sign, change) =
            if last >= first { ('+', last.saturating_sub(first)) } else { ('-', first.saturating_sub(last)) };
        pen.put(format!("{sign}{change} in {}", Elapsed(now.since(began))), theme.text());
    }
}

/// Which amounts the graph spans.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    /// All of them, with a little air, and no less than 64 MiB: the driver's rounding is no hill. In steps of about
    /// that air, or the whole curve would stir with each new value.
    fn around(values: impl Iterator<Item = Bytes> + Clone) -> Self {
        let low = values.clone().min().unwrap_or_default().gib();
        let high = values.max().unwrap_or_default().gib();
        let air = ((high - low) * 0.1).max(1.0 / 32.0);
        let step = air.log2().ceil().exp2();
        Self { low: ((low - air) / step).floor().max(0.0) * step, high: ((high + air) / step).ceil() * step }
    }

    /// The height of an amount, in so many dots from the top.
    fn dot(&self, bytes: Bytes, dots: u16) -> u16 {
        let share = ((bytes.gib() - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and dots")]
        let from_bottom = (share * f64::from(dots - 1)).round() as u16;
        dots - 1 - from_bottom
    }

    /// Digits after the point that tell two neighbouring lines apart.
    fn decimals(&self) -> usize {
        match self.high - self.low {
            range if range < 0.5 => 3,
            range if range < 5.0 => 2,
            _ => 1,
        }
    }
}

fn draw_axes(buffer: &mut Buffer, theme: Theme, scale: &Scale, span: Duration, area: Area, plot: Area) {
    let rows = plot.height - 1;
    for row in [0, rows / 2, rows] {
        let value = scale.high - (scale.high - scale.low) * f64::from(row) / f64::from(rows);
        if let Some(mut pen) = Pen::at(buffer, area, row + 1) {
            let label = format!("{value:.decimals$}", decimals = scale.decimals());
            let label = if row == 0 { format!("{label} GiB") } else { format!("{label}    ") };
            pen.cell(label, usize::from(AXIS) - 1, Align::Right, theme.dim());
        }
    }
    let bottom = Area { x: plot.x, y: plot.y + plot.height, width: plot.width, height: 1 };
    if let Some(mut pen) = Pen::at(buffer, bottom, 0) {
        let width = usize::from(plot.width);
        pen.cell(ago(span), width / 2, Align::Left, theme.dim()).put(ago(span / 2), theme.dim());
        pen.tab_from_end(3).put("now", theme.dim());
    }
}

/// `-15m`, `-7m30s`, `-30s`.
fn ago(span: Duration) -> String {
    match (span.as_secs() / 60, span.as_secs() % 60) {
        (0, seconds) => format!("-{seconds}s"),
        (minutes, 0) => format!("-{minutes}m"),
        (minutes, seconds) => format!("-{minutes}m{seconds}s"),
    }
}

/// The dots of a braille cell, by column and row, as bits of U+2800.
const DOTS: [[u8; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];

fn draw_level(buffer: &mut Buffer, style: Style, scale: &Scale, level: Bytes, plot: Area) {
    if level.gib() < scale.low || level.gib() > scale.high {
        return;
    }
    let row = scale.dot(level, plot.height * 4) / 4;
    for x in (0..plot.width).step_by(2) {
        buffer[(plot.x + x, plot.y + row)].set_char('╌').set_style(style);
    }
}

fn draw_curve(buffer: &mut Buffer, style: Style, scale: &Scale, columns: &[Option<Bytes>], plot: Area) {
    let dots = plot.height * 4;
    let mut cells = vec![0u8; usize::from(plot.width) * usize::from(plot.height)];
    let mut before: Option<u16> = None;
    for (x, value) in columns.iter().enumerate() {
        let at = value.map(|value| scale.dot(value, dots));
        if let Some(at) = at {
            // From one column to the next the curve has no holes, except where nothing is known.
            let from = before.unwrap_or(at);
            for dot in from.min(at)..=from.max(at) {
                let cell = usize::from(dot / 4) * usize::from(plot.width) + x / 2;
                cells[cell] |= DOTS[x % 2][usize::from(dot % 4)];
            }
        }
        before = at;
    }
    for (at, bits) in cells.into_iter().enumerate().filter(|(_, bits)| *bits != 0) {
        let (x, y) = (at % usize::from(plot.width), at / usize::from(plot.width));
        let place = (plot.x + u16::try_from(x).unwrap_or(0), plot.y + u16::try_from(y).unwrap_or(0));
        let glyph = char::from_u32(0x2800 | u32::from(bits)).unwrap_or('·');
        // What marked a level here would show through.
        buffer[place].reset();
        buffer[place].set_char(glyph).set_style(style);
    }
}
