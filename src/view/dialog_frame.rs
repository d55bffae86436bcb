//! Draws the frame of a dialog that ends processes, and wraps the text in it.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Clear, Padding, Paragraph, Widget, Wrap};

use super::theme::Theme;
use crate::app::layout::Area;
use crate::output::text_wrap::wrap;

/// The columns of the frame, and of a blank beside each of its edges.
pub(super) const BESIDE: u16 = 4;

/// Draws the frame of a dialog with its two parts. The lower one is always shown; the description of
/// the targets is cut if the screen is small.
pub(super) fn frame(
    buffer: &mut Buffer,
    theme: Theme,
    body: Area,
    width: u16,
    title: &str,
    description: Vec<Line<'static>>,
    status: Vec<Line<'static>>,
) {
    let columns = width.saturating_sub(BESIDE);
    let below = rows_of(&status, columns);
    let above = rows_of(&description, columns) + 1;
    let height = (above + below + 2).max(15).min(body.height);
    let area = Rect {
        x: body.x + (body.width - width) / 2,
        y: body.y + (body.height - height) / 2,
        width,
        height,
    };
    Clear.render(area, buffer);
    let block = Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(theme.accent())
        .padding(Padding::horizontal(1))
        .title(Span::styled(title.to_owned(), theme.accent()));
    let inside = block.inner(area);
    block.render(area, buffer);
    let below = below.min(inside.height);
    let upper = Rect {
        height: inside.height - below,
        ..inside
    };
    // On a high screen the choices follow the description directly.
    let lower = Rect {
        y: inside.y + above.min(upper.height),
        height: below,
        ..inside
    };
    Paragraph::new(description)
        .wrap(Wrap { trim: false })
        .render(upper, buffer);
    Paragraph::new(status)
        .wrap(Wrap { trim: false })
        .render(lower, buffer);
}

/// The number of rows of wrapped lines, up to 100.
pub(super) fn rows_of(lines: &[Line<'_>], width: u16) -> u16 {
    let area = Rect {
        x: 0,
        y: 0,
        width,
        height: 100,
    };
    let mut drawn = Buffer::empty(area);
    Paragraph::new(lines.to_vec())
        .wrap(Wrap { trim: false })
        .render(area, &mut drawn);
    let is_blank = |row: u16| (0..width).all(|column| drawn[(column, row)].symbol() == " ");
    (0..area.height)
        .rev()
        .find(|row| !is_blank(*row))
        .map_or(0, |row| row + 1)
}

pub(super) fn hanging(text: &str, columns: usize, indent: usize) -> impl Iterator<Item = String> {
    let rows = wrap(text, columns, indent).into_iter().enumerate();
    rows.map(move |(place, row)| {
        if place == 0 {
            row
        } else {
            format!("{:indent$}{row}", "")
        }
    })
}
