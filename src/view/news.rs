//! Draws the latest news, below the lists and the graph.

use ratatui::buffer::Buffer;
use ratatui::style::Style;

use super::pen::Pen;
use super::theme::Theme;
use crate::app::App;
use crate::app::fleet::news;
use crate::app::layout::Area;
use crate::model::{NewsKind, Severity};

/// Draws one line for each of the latest news, in a frame if the lists have frames.
pub(super) fn draw(buffer: &mut Buffer, theme: Theme, app: &App, area: Area, has_frame: bool) {
    if area.height == 0 {
        return;
    }
    let summary = app.last_look.summary(app.fleet());
    if has_frame {
        super::framed(
            buffer,
            theme,
            area.frame(),
            summary.as_deref().unwrap_or("News"),
            false,
        );
    }
    let lines = news::lines(app.fleet());
    if lines.is_empty()
        && let Some(mut pen) = Pen::at(buffer, area, 0)
    {
        pen.rest(
            "none yet: processes that begin and end, leaks, orphans, GPU errors",
            theme.dim(),
        );
    }
    for (row, line) in (0..area.height).zip(&lines) {
        let Some(mut pen) = Pen::at(buffer, area, row) else {
            return;
        };
        if let Some(summary) = summary.as_ref().filter(|_| !has_frame && row == 0) {
            pen.rest(summary, theme.notable());
            continue;
        }
        pen.put(line.time(app.fleet(), &app.clocks), theme.dim())
            .skip(1)
            .put(sign(line.item.kind), theme.dim())
            .skip(1);
        sentence(
            &mut pen,
            theme,
            line.item.severity,
            &line.sentence(app.fleet()),
        );
    }
}

/// Writes a sentence. Of a serious one, a word in colour is enough: `LEAK`, `orphan`.
pub(super) fn sentence<'a, 'b>(
    pen: &'a mut Pen<'b>,
    theme: Theme,
    severity: Severity,
    sentence: &str,
) -> &'a mut Pen<'b> {
    match sentence
        .split_once(' ')
        .filter(|_| severity > Severity::Fine)
    {
        Some((word, rest)) => pen
            .put(format!(" {word} "), style(theme, severity))
            .skip(1)
            .rest(rest, theme.text()),
        None => pen.rest(sentence, style(theme, severity)),
    }
}

pub(super) fn style(theme: Theme, severity: Severity) -> Style {
    match severity {
        Severity::Fine | Severity::Unknown => theme.dim(),
        Severity::Notable => theme.caution(),
        Severity::Bad => theme.alarm(),
    }
}

/// The sign before a line: up for memory that was taken, down for memory that was released, `!` for
/// what may need the user.
pub(super) fn sign(kind: NewsKind) -> &'static str {
    match kind {
        NewsKind::Began => "▲",
        NewsKind::Ended | NewsKind::LeakOver | NewsKind::FullNoMore => "▼",
        NewsKind::Signalled => "✕",
        NewsKind::GpuAnswers | NewsKind::Unseen => "·",
        NewsKind::Leak
        | NewsKind::FullSoon
        | NewsKind::Suspect
        | NewsKind::OutOfMemory
        | NewsKind::Xid
        | NewsKind::GpuTrouble
        | NewsKind::HostLost
        | NewsKind::Watched => "!",
    }
}
