//! Draws GPUs of the cluster view: those of the host under the cursor, with its past, and all GPUs.

use std::time::Duration;

use ratatui::buffer::Buffer;
use unicode_width::UnicodeWidthStr;

use crate::app::cluster::{ClusterApp, PAST};
use crate::app::layout::Area;
use crate::app::lists::columns::Align;
use crate::base::units::{Bytes, Elapsed};
use crate::model::GpuState;
use crate::model::cluster::{ClusterFigures, ClusterGpu, HostPast, RoundKind};
use crate::view::host_line::{self, middle_cut};
use crate::view::mirror::{self, Samples};
use crate::view::pen::Pen;
use crate::view::theme::{Fill, Theme};

/// The widths of the cells of a GPU.
const INDEX: usize = 4;
const BAR: usize = 12;
const MEMORY: usize = 12;
const SM: usize = 5;
const POWER: usize = 6;
const TEMPERATURE: usize = 5;
const AGE: usize = 6;

/// The widest name of a host in the list of all GPUs.
const WIDEST_HOST: usize = 32;

/// The least width of a panel with the past, the width of the past, and the gap before it.
const WITH_PAST: u16 = 112;
const PAST_WIDTH: u16 = 36;
const GAP: u16 = 2;

/// The fewest and the most pieces of time in which one point is looked for.
const LONGEST_GAP: f64 = 150.0;

/// Draws the GPUs of the host under the cursor, and its past where there is room.
pub(super) fn draw(buffer: &mut Buffer, theme: Theme, app: &ClusterApp) {
    let area = app.areas.panel;
    let Some(id) = app.selected_host().filter(|_| area.height > 1) else {
        return;
    };
    let Some(host) = app.cluster.host(id) else {
        return;
    };
    let has_past = area.width >= WITH_PAST;
    let left = Area {
        width: if has_past {
            area.width - PAST_WIDTH - GAP
        } else {
            area.width
        },
        ..area
    };
    if let Some(mut pen) = Pen::at(buffer, left, 0) {
        pen.style_as_heading(theme);
        let model = host.gpus.iter().find_map(|gpu| gpu.model.as_ref());
        let title = model.map_or_else(String::new, |model| format!("  {model}"));
        let name = middle_cut(id.name.as_str(), left.width.into());
        pen.put(name, theme.head());
        pen.rest(title, theme.head());
        pen.style_as_heading(theme);
    }
    let rows = Area {
        y: left.y + 1,
        height: left.height - 1,
        ..left
    };
    if host.gpus.is_empty()
        && let Some(mut pen) = Pen::at(buffer, rows, 0)
    {
        let words = if host.is_silent {
            "no samples"
        } else if host.figures.gpus == 0 {
            "it has no GPU that answers"
        } else if app.awaits(RoundKind::Rows) {
            "asking for its GPUs…"
        } else if app.cluster.warning().is_some() {
            "its GPUs are not known"
        } else {
            "its GPUs are not known: its name may have characters that gputop replaces"
        };
        pen.put(words, theme.dim());
    }
    let hidden = host.gpus.len().saturating_sub(usize::from(rows.height));
    // The GPUs of a silent host are those of its last samples.
    let silence = app.cluster.silence(host).unwrap_or_default();
    let since = app.since_rows.duration() + silence;
    for (row, gpu) in (0..rows.height).zip(&host.gpus) {
        let Some(mut pen) = Pen::at(buffer, rows, row) else {
            return;
        };
        if row + 1 == rows.height && hidden > 0 {
            pen.put(format!("+{} more GPUs", hidden + 1), theme.accent())
                .put(" (a lists all)", theme.dim());
            break;
        }
        gpu_line(&mut pen, theme, app, gpu, since);
    }
    if has_past {
        let right = Area {
            x: area.x + left.width + GAP,
            width: PAST_WIDTH,
            ..area
        };
        draw_past(buffer, theme, right, host.past.as_ref(), &host.figures);
    }
}

/// Draws all GPUs.
pub(super) fn draw_all(buffer: &mut Buffer, theme: Theme, app: &ClusterApp) {
    let area = app.areas.gpus;
    let Some(mut pen) = Pen::at(buffer, area, 0) else {
        return;
    };
    let rows = usize::from(area.height).saturating_sub(1);
    let first = app.gpu_place.first;
    let shown: Vec<_> = (first..app.gpus.len().min(first + rows))
        .filter_map(|place| Some((place, app.gpu_row(place)?)))
        .collect();
    let widest = shown.iter().map(|(_, row)| row.host.width()).max();
    let name = widest.unwrap_or(0).clamp(4, WIDEST_HOST);
    pen.style_as_heading(theme);
    pen.cell("HOST", name, Align::Left, theme.head()).skip(1);
    for (title, width) in [
        ("GPU", INDEX + 2),
        ("", BAR),
        ("MEMORY", MEMORY),
        ("SM", SM),
        ("POWER", POWER),
        ("TEMP", TEMPERATURE),
        ("AGE", AGE),
    ] {
        let align = if title == "GPU" {
            Align::Left
        } else {
            Align::Right
        };
        pen.cell(title, width, align, theme.head()).skip(1);
    }
    pen.put(" WHO", theme.head());
    let hidden = app.gpus.len().saturating_sub(shown.len());
    if hidden > 0 {
        let words = format!(" {hidden} more GPUs");
        pen.over_end(words.width()).put(words, theme.accent());
    }
    if shown.is_empty()
        && let Some(mut pen) = Pen::at(buffer, area, 1)
    {
        let words = if app.awaits(RoundKind::AllGpus) {
            "asking for all GPUs…"
        } else if app.filter.value().is_empty() {
            "no GPU"
        } else {
            "no GPU has these words"
        };
        pen.put(words, theme.dim());
    }
    for (line, (place, row)) in (1..area.height).zip(shown) {
        let Some(mut pen) = Pen::at(buffer, area, line) else {
            return;
        };
        pen.cell(middle_cut(row.host, name), name, Align::Left, theme.text())
            .skip(1);
        gpu_line(&mut pen, theme, app, row.gpu, app.since_rows.duration());
        if place == app.gpu_place.cursor && !app.is_in_troubles {
            pen.select(theme, area);
        }
    }
}

/// Draws a GPU: its state, its memory, its figures, and who uses it. `since` is the time since the
/// server told its age.
fn gpu_line(pen: &mut Pen<'_>, theme: Theme, app: &ClusterApp, gpu: &ClusterGpu, since: Duration) {
    let first = gpu.owners.first().and_then(|owner| owner.user.as_ref());
    let hue = first.and_then(|user| app.cluster.hues.hue(user));
    pen.cell(gpu.label(), INDEX, Align::Left, theme.text())
        .skip(1);
    let state = if app.is_outdated() {
        GpuState::Unknown
    } else {
        gpu.state
    };
    host_line::cell(pen, theme, state, hue);
    pen.skip(1);
    let share = gpu
        .memory_used
        .zip(gpu.memory_total)
        .and_then(|(used, total)| used.share_of(total));
    pen.gauge(theme, share, BAR, Fill::Allocated, theme.text())
        .skip(1);
    let unknown = || "?".to_owned();
    let memory = match (gpu.memory_used, gpu.memory_total) {
        (Some(used), Some(total)) => format!("{:.1}/{:.0}G", used.gib(), total.gib()),
        (Some(used), None) => format!("{:.1}G", used.gib()),
        _ => unknown(),
    };
    let style = theme.memory_style(share, theme.text());
    pen.cell(memory, MEMORY, Align::Right, style).skip(1);
    let figures = [
        (gpu.sm.map(|sm| sm.to_string()), SM),
        (gpu.power.map(|watts| format!("{watts:.0} W")), POWER),
        (
            gpu.temperature.map(|heat| format!("{heat:.0}°")),
            TEMPERATURE,
        ),
    ];
    for (figure, width) in figures {
        let text = figure.unwrap_or_else(unknown);
        pen.cell(text, width, Align::Right, theme.text()).skip(1);
    }
    let age = gpu.age.map(|age| Elapsed(age + since).to_string());
    let age = age.unwrap_or_else(unknown);
    pen.cell(age, AGE, Align::Right, theme.dim()).skip(2);
    for (place, owner) in gpu.owners.iter().enumerate() {
        if place > 0 {
            pen.put(", ", theme.dim());
        }
        if let Some(user) = &owner.user {
            let hue = app.cluster.hues.hue(user);
            pen.put(user.as_str(), theme.user(hue)).skip(1);
        }
        if let Some(job) = &owner.job {
            pen.put(job.as_str(), theme.dim());
        }
    }
}

/// Draws the use and the memory of the last hour: use upwards from the middle, memory downwards.
fn draw_past(
    buffer: &mut Buffer,
    theme: Theme,
    area: Area,
    past: Option<&HostPast>,
    figures: &ClusterFigures,
) {
    if let Some(mut pen) = Pen::at(buffer, area, 0) {
        pen.style_as_heading(theme);
        pen.put("↑ SM  ↓ MEMORY", theme.head());
        let span = format!("last {}", Elapsed(PAST.length));
        pen.over_end(span.width()).put(span, theme.head());
    }
    let plot = Area {
        y: area.y + 1,
        height: area.height - 1,
        ..area
    };
    let Some(past) = past else {
        return;
    };
    let columns = 2 * usize::from(area.width);
    let shares = |points: &[(f64, f64)], all: f64| columns_of(points, past.end, all, columns);
    let sm = Samples::of_shares(shares(&past.sm, 100.0), Fill::Busy);
    let memory = figures.memory_total.filter(|total| *total > Bytes(0));
    let memory = memory.map(|total| {
        let all = total.gib() * f64::from(1 << 30);
        Samples::of_shares(shares(&past.memory_used, all), Fill::Allocated)
    });
    mirror::draw(buffer, theme, plot, Some(&sm), memory.as_ref());
}

/// The value of each column of dots, as a share of `all`: that of the latest point before it, which
/// must not be much older.
fn columns_of(points: &[(f64, f64)], end: f64, all: f64, columns: usize) -> Vec<Option<f64>> {
    let length = PAST.length.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a screen has few columns")]
    let time = |column: usize| end - length + length * (column + 1) as f64 / columns as f64;
    let mut next = 0;
    (0..columns)
        .map(|column| {
            let at = time(column);
            while points.get(next).is_some_and(|(time, _)| *time <= at) {
                next += 1;
            }
            let (time, value) = *points.get(next.checked_sub(1)?)?;
            (at - time <= LONGEST_GAP).then_some(value / all)
        })
        .collect()
}
