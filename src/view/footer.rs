//! Draws the last line: the text being typed, the badges, and a notice or the most useful keys.

use ratatui::buffer::Buffer;
use ratatui::style::Modifier;
use tui_input::Input;

use super::pen::Pen;
use super::theme::Theme;
use crate::app::input::footer::FooterPart;
use crate::app::layout::Area;
use crate::app::{App, Mode};

pub(super) fn draw(buffer: &mut Buffer, theme: Theme, app: &App, area: Area) {
    let Some(mut pen) = Pen::at(buffer, area, 0) else {
        return;
    };
    match app.modes.current() {
        Mode::Filter => typed(&mut pen, theme, "filter: ", &app.processes.filter),
        Mode::Search => typed(&mut pen, theme, "search: ", &app.processes.search),
        Mode::MarkName(name) => {
            let latest = app
                .marks
                .list
                .last()
                .map_or("the mark", |mark| mark.name.as_str());
            typed(&mut pen, theme, &format!("name of {latest}: "), &name.0);
        }
        Mode::JumpTime(time) => typed(&mut pen, theme, "jump to: ", time),
        Mode::Page(page) if page.is_typing() => typed(&mut pen, theme, "search: ", &page.search),
        _ => {}
    }
    let start = pen.column();
    for (x, part) in app.footer(start) {
        pen.skip(x.saturating_sub(pen.column()));
        match part {
            FooterPart::Badge(words) => pen.put(words, theme.badge()),
            FooterPart::Key(key, _, word) => {
                pen.put(key, theme.accent()).skip(1).put(word, theme.dim())
            }
            FooterPart::Hint {
                number, key, words, ..
            } => pen
                .put(number.to_string(), theme.dim())
                .skip(1)
                .put(key, theme.accent())
                .put(format!(": {words}"), theme.text()),
            FooterPart::Notice(words) => pen.rest(words, theme.notable()),
        };
    }
}

pub(super) fn typed(pen: &mut Pen<'_>, theme: Theme, prompt: &str, input: &Input) {
    let value = input.value();
    let before: String = value.chars().take(input.cursor()).collect();
    let under = value.chars().nth(input.cursor()).unwrap_or(' ');
    pen.put(prompt, theme.accent()).put(&before, theme.text());
    pen.put(
        under.to_string(),
        theme.text().add_modifier(Modifier::REVERSED),
    );
    pen.put(
        value.chars().skip(input.cursor() + 1).collect::<String>(),
        theme.text(),
    );
    pen.skip(2);
}
