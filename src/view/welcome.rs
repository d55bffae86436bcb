//! Draws the page in place of the lists where no host has a GPU: what was found, and what can be
//! done.

use ratatui::buffer::Buffer;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Widget, Wrap};

use super::rect;
use super::theme::Theme;
use crate::app::fleet::no_gpu::MissingGpu;
use crate::app::layout::Area;

/// The commands that help without a GPU, and what each does.
const COMMANDS: [(&str, &str); 4] = [
    ("gputop doctor", "says what is missing, and how to mend it"),
    ("gputop --demo", "shows a simulated machine with 8 GPUs"),
    (
        "gputop --via 'ssh HOST gputop agent'",
        "shows the GPUs of another host",
    ),
    ("gputop replay", "shows the newest recording of this host"),
];

/// The width of a command and the gap after it.
const COMMAND: usize = 38;

/// The narrowest area with the words beside the commands.
const WIDE: u16 = 84;

pub(super) fn draw(buffer: &mut Buffer, theme: Theme, missing: &[MissingGpu], area: Area) {
    let mut lines = vec![
        Line::default(),
        Line::styled("No GPU to show", theme.head()),
        Line::default(),
    ];
    lines.extend(missing.iter().map(|found| {
        let style = if found.is_trouble {
            theme.alarm()
        } else {
            theme.text()
        };
        Line::styled(found.sentence.clone(), style)
    }));
    lines.extend([
        Line::default(),
        Line::styled("What you can do:", theme.text()),
        Line::default(),
    ]);
    for (command, words) in COMMANDS {
        if area.width >= WIDE {
            lines.push(Line::from(vec![
                Span::styled(format!("  {command:COMMAND$}"), theme.accent()),
                Span::styled(words, theme.text()),
            ]));
        } else {
            lines.push(Line::styled(format!("  {command}"), theme.accent()));
            lines.push(Line::styled(format!("      {words}"), theme.text()));
        }
    }
    let inner = Area {
        x: area.x + 2,
        width: area.width.saturating_sub(4),
        ..area
    };
    Paragraph::new(lines)
        .wrap(Wrap { trim: false })
        .render(rect(inner), buffer);
}
