//! Draws a page: its title, and its lines, which are headings, named texts and memory bars.

use ratatui::buffer::Buffer;
use ratatui::style::Modifier;

use super::graph::axes;
use super::news;
use super::pen::Pen;
use super::theme::{Fill, Theme};
use crate::app::App;
use crate::app::layout::Area;
use crate::app::lists::columns::Align;
use crate::app::lists::process_cells::block;
use crate::app::page::{GridHost, LABEL, NewsPart, PageLine};
use crate::model::{Severity, TensorLayer};

pub(super) fn head(
    buffer: &mut Buffer,
    theme: Theme,
    area: Area,
    title: &str,
    top: usize,
    lines: usize,
) {
    let Some(mut pen) = Pen::at(buffer, area, 0) else {
        return;
    };
    pen.put(title, theme.accent());
    let shown = usize::from(area.height.saturating_sub(2));
    if lines > shown {
        let place = format!("{}-{} of {lines}", top + 1, (top + shown).min(lines));
        pen.tab_from_end(place.len()).put(place, theme.dim());
    }
}

pub(super) fn draw(buffer: &mut Buffer, theme: Theme, app: &App, area: Area) {
    let Some(page) = app.modes.page() else { return };
    head(
        buffer,
        theme,
        area,
        &page.title(),
        page.top,
        page.lines.len(),
    );
    if let Some(mut pen) = Pen::at(buffer, area, 1) {
        pen.rest(page.second_line(), theme.text());
    }
    for (row, line) in (2..area.height).zip(page.lines.iter().skip(page.top)) {
        let Some(mut pen) = Pen::at(buffer, area, row) else {
            return;
        };
        let place = Area {
            y: area.y + row,
            height: 1,
            ..area
        };
        draw_line(&mut pen, theme, line, place);
    }
}

/// Draws a line of a page. The pen is at the beginning of `place`, the row of the line.
fn draw_line(pen: &mut Pen<'_>, theme: Theme, line: &PageLine, place: Area) {
    let room = usize::from(place.width).saturating_sub(2 + LABEL + 1 + 1);
    match line {
        PageLine::Head(text) => {
            pen.style_as_heading(theme);
            pen.put(text, theme.head());
        }
        PageLine::Bar(breakdown) => {
            let whole = breakdown.whole;
            pen.skip(2 + LABEL + 1)
                .breakdown(theme, breakdown, whole, room, theme.text());
        }
        PageLine::Layers(amounts) => {
            let mut layers = TensorLayer::ALL.into_iter();
            let parts =
                amounts.map(|bytes| (bytes, layers.next().map_or(Fill::Other, Fill::of_layer)));
            let all = amounts.iter().copied().sum();
            pen.skip(2 + LABEL + 1)
                .amounts(theme, parts, all, room, theme.text());
        }
        PageLine::Layer(layer, label, text) => {
            let fill = Fill::of_layer(*layer);
            pen.put(theme.bar_glyph(fill).to_string(), theme.edge(fill))
                .skip(1);
            pen.cell(label, LABEL, Align::Left, theme.dim())
                .skip(1)
                .put(text, theme.text());
        }
        PageLine::Legend => legend(pen, theme),
        PageLine::News(part) => {
            news_line(pen, theme, part);
            if part.is_selected {
                pen.select(theme, place);
            }
        }
        PageLine::Verdict(severity, badge, sentence) => {
            pen.skip(2)
                .put(format!(" {badge} "), theme.severity(*severity))
                .tab_to(2 + LABEL + 1)
                .put(sentence, theme.accent());
        }
        PageLine::User { name, hue, figures } => {
            pen.skip(2)
                .cell(name, LABEL, Align::Left, theme.user(*hue))
                .skip(1)
                .put(figures, theme.text());
        }
        PageLine::Difference {
            letter,
            severity,
            label,
            label_width,
            sentence,
        } => {
            let style = theme.severity(*severity);
            let style = if *letter == ' ' { theme.text() } else { style };
            pen.put(letter.to_string(), style)
                .skip(1)
                .cell(label, *label_width, Align::Left, theme.accent())
                .skip(2)
                .rest(sentence, theme.text());
        }
        PageLine::Ranks(hosts) => ranks(pen, theme, hosts),
        PageLine::Strip {
            label,
            hue,
            values,
            is_use,
            ..
        } => {
            let (fill, style) = if *is_use {
                (Fill::Busy, theme.dim())
            } else {
                (Fill::User(*hue), theme.user(*hue))
            };
            pen.skip(2).cell(label, LABEL, Align::Left, style).skip(1);
            strip(pen, theme, fill, values);
        }
        PageLine::Events(events) => {
            pen.skip(2 + LABEL + 1);
            for (column, kind) in events.iter().rev() {
                let (symbol, style) = axes::glyph(theme, *kind);
                pen.put_at(2 + LABEL + 1 + column, symbol, style);
            }
        }
        PageLine::Field(label, text) => {
            pen.skip(2)
                .cell(label, LABEL, Align::Left, theme.dim())
                .skip(1)
                .put(text, theme.text());
        }
    }
}

/// Draws hosts with their ranks: `gpu-01  0 ████████ 7`. Letters say which rank differs; the colour
/// helps.
fn ranks(pen: &mut Pen<'_>, theme: Theme, hosts: &[GridHost]) {
    for host in hosts {
        pen.tab_to(2 + host.column);
        pen.put(&host.name, theme.accent())
            .skip(1)
            .put(&host.first, theme.dim())
            .skip(1);
        for cell in &host.cells {
            let style = match cell.letter {
                None => theme.edge(Fill::User(host.hue)),
                Some('?') => theme.dim(),
                Some(_) => theme.severity(cell.severity),
            };
            let style = if cell.is_chosen {
                style.add_modifier(Modifier::REVERSED)
            } else {
                style
            };
            let letter = cell.letter.unwrap_or('█').to_string();
            pen.put(letter, style);
        }
        pen.skip(1).put(&host.last, theme.dim());
    }
}

/// Draws values over time as blocks: higher and brighter ones for more.
fn strip(pen: &mut Pen<'_>, theme: Theme, fill: Fill, values: &[Option<u16>]) {
    for value in values {
        match value {
            None => pen.skip(1),
            Some(0) => pen.put("·", theme.faint(fill)),
            Some(thousandths) => {
                let symbol = block(u64::from(*thousandths), 1000).to_string();
                pen.put(symbol, theme.fill(fill, f64::from(*thousandths) / 1000.0))
            }
        };
    }
}

/// Draws the glyphs of a memory bar with their names.
fn legend(pen: &mut Pen<'_>, theme: Theme) {
    pen.skip(2 + LABEL + 1);
    for (fill, name) in [
        (Fill::Allocated, "allocated"),
        (Fill::Unallocated, "unallocated"),
        (Fill::Other, "other"),
    ] {
        let glyph = theme.bar_glyph(fill).to_string().repeat(2);
        pen.put(glyph, theme.edge(fill))
            .skip(1)
            .put(name, theme.text())
            .skip(3);
    }
    pen.put("──", theme.dim()).skip(1).put("free", theme.text());
}

/// Draws one line of a piece of news, whose sentence may take several.
fn news_line(pen: &mut Pen<'_>, theme: Theme, part: &NewsPart) {
    let style = news::style(theme, part.severity);
    pen.skip(2)
        .cell(&part.time, "07-14 03:41".len(), Align::Left, theme.dim())
        .skip(1);
    // Only the first line of a sentence has a time.
    if part.time.is_empty() {
        let style = if part.severity > Severity::Fine {
            theme.text()
        } else {
            style
        };
        pen.skip(2).put(&part.text, style);
    } else {
        pen.put(news::sign(part.kind), style).skip(1);
        news::sentence(pen, theme, part.severity, &part.text);
    }
}
