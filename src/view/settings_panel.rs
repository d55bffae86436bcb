//! Draws the panel of settings, one line for each setting.

use std::fmt::Display;

use ratatui::buffer::Buffer;
use strum::VariantArray;

use super::pen::Pen;
use super::theme::Theme;
use super::{gpus, page, processes};
use crate::app::App;
use crate::app::input::settings_panel::Item;
use crate::app::layout::Area;
use crate::app::lists::columns::{Align, ListColumn};
use crate::app::settings::ThemeName;

/// The width of a setting's name.
const NAME: usize = 12;
/// The narrowest screen with advice beside a column that has no room.
const ROOMY: usize = 80;

pub(super) fn draw(
    buffer: &mut Buffer,
    theme: Theme,
    app: &App,
    items: &[(Item, bool)],
    cursor: usize,
    area: Area,
) {
    let width = usize::from(area.width);
    let (without_room, gpus_without_room) = (
        processes::crowded_out(app, width),
        gpus::crowded_out(app, width),
    );
    let no_room = if width < ROOMY {
        "no room"
    } else {
        "no room for it: hide another, or widen the window"
    };
    let top = (cursor + 1).saturating_sub(usize::from(area.height.saturating_sub(2)));
    page::head(buffer, theme, area, "Settings", top, items.len());
    for (row, (place, (item, is_on))) in (2..area.height).zip(items.iter().enumerate().skip(top)) {
        let Some(mut pen) = Pen::at(buffer, area, row) else {
            return;
        };
        let no_room = |lacks_room: bool, help: &str| {
            if *is_on && lacks_room { no_room } else { help }.to_owned()
        };
        let (name, help) = match item {
            Item::Theme => ("theme".to_owned(), theme_words(app.theme)),
            Item::GpuView => ("GPUs".to_owned(), choices(app.gpus.view)),
            Item::Host => (
                "host".to_owned(),
                "the first line: load and memory of the host".to_owned(),
            ),
            Item::Mine => (
                "mine".to_owned(),
                "only processes of the user that gputop runs as".to_owned(),
            ),
            Item::Column(column) => (
                column.spec().name.to_owned(),
                no_room(without_room.contains(column), column.spec().help),
            ),
            Item::GpuColumn(column) => {
                let help = no_room(gpus_without_room.contains(column), column.spec().help);
                (format!("GPU {}", column.spec().name), help)
            }
        };
        let mark = match item {
            Item::Theme | Item::GpuView => "   ",
            _ if *is_on => "[x]",
            _ => "[ ]",
        };
        pen.skip(2).put(mark, theme.text()).skip(1);
        pen.cell(name, NAME, Align::Left, theme.text())
            .skip(1)
            .words(help, theme.dim());
        if place == cursor {
            pen.select(theme, area);
        }
    }
}

/// The present theme and its place among all of them, which would not fit on one line.
fn theme_words(present: ThemeName) -> String {
    let all = ThemeName::VARIANTS;
    let place = all.iter().position(|theme| *theme == present).unwrap_or(0);
    let total = all.len();
    format!(
        "({present})  {} of {total}; safe is for the colour-blind",
        place + 1
    )
}

/// All values of a setting, the present one in parentheses.
fn choices<T: VariantArray + Copy + PartialEq + Display>(present: T) -> String {
    let word = |value: &T| {
        if *value == present {
            format!("({value})")
        } else {
            format!(" {value} ")
        }
    };
    T::VARIANTS.iter().map(word).collect()
}
