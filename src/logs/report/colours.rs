//! The colours of the page: those of the screen on a light and on a dark background, as variables
//! and classes of the style sheet.

use std::fmt::Write;

use crate::output::fill::Fill;
use crate::output::palette::{DARK, LIGHT, Palette, Rgb};

/// The rules of everything but colours. They are gputop's own text, so they are not escaped.
const RULES: &str = include_str!("page.css");

/// The classes of the layers of a stack, and of the hues of users.
const LAYERS: [&str; Fill::LAYERS] = ["l0", "l1", "l2", "l3", "l4", "l5"];
const USERS: [&str; 8] = ["u0", "u1", "u2", "u3", "u4", "u5", "u6", "u7"];

/// Returns the style sheet. Print is on white paper.
pub(super) fn style_sheet() -> String {
    let (light, dark) = (variables(&LIGHT), variables(&DARK));
    let mut sheet = format!(
        ":root{{color-scheme:light dark;{light}}}\n@media (prefers-color-scheme:dark){{:root{{{dark}}}}}\n\
         @media print{{:root{{color-scheme:light;{light}--bg:#fff;--soft:#fff}}}}\n"
    );
    let fills = ["allocated", "unallocated", "other", "busy", "nobody"];
    for class in fills.iter().chain(&LAYERS).chain(&USERS) {
        _ = write!(sheet, ".{class}{{--area:var(--{class})}}");
    }
    sheet.push('\n');
    sheet.push_str(RULES);
    sheet
}

/// Returns the class of an area. It sets the variable `--area` to the colour.
pub(super) fn class(fill: Fill) -> &'static str {
    match fill {
        Fill::Allocated => "allocated",
        Fill::Unallocated => "unallocated",
        Fill::Other => "other",
        Fill::Busy => "busy",
        Fill::Layer(layer) => LAYERS[layer % Fill::LAYERS],
        Fill::User(Some(hue)) | Fill::Process(Some(hue), _) => USERS[hue.place() % USERS.len()],
        Fill::User(None) | Fill::Process(None, _) => "nobody",
    }
}

fn variables(palette: &Palette) -> String {
    let [alarm, on_alarm] = palette.alarm;
    let [caution, on_caution] = palette.caution;
    let background = palette.background;
    let named = [
        ("bg", background),
        ("fg", palette.text),
        ("dim", palette.dim),
        ("line", background.towards(palette.dim, 0.35)),
        ("soft", background.towards(palette.band, 0.5)),
        ("alarm", alarm),
        ("on-alarm", on_alarm),
        ("alarm-line", palette.alarm_line),
        ("caution", caution),
        ("on-caution", on_caution),
        ("good", palette.good),
        ("allocated", Fill::Allocated.colour(palette)),
        ("unallocated", Fill::Unallocated.colour(palette)),
        ("other", Fill::Other.colour(palette)),
        ("busy", Fill::Busy.colour(palette)),
        ("nobody", Fill::User(None).colour(palette)),
    ];
    let layers = LAYERS.into_iter().zip(palette.layers);
    let users = USERS.into_iter().zip(palette.users);
    let mut text = String::new();
    for (name, Rgb(colour)) in named.into_iter().chain(layers).chain(users) {
        _ = write!(text, "--{name}:#{colour:06x};");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::UserHues;

    #[test]
    fn a_user_has_the_hue_of_the_screen_on_both_backgrounds() {
        let hues = UserHues::of(["alice", "bob", "carol"]);
        for name in ["alice", "bob", "carol"] {
            let fill = Fill::User(hues.hue(&name.into()));
            for palette in [&LIGHT, &DARK] {
                let Rgb(colour) = fill.colour(palette);
                let variable = format!("--{}:#{colour:06x};", class(fill));
                assert!(variables(palette).contains(&variable), "{name}: {variable}");
            }
        }
        let sheet = style_sheet();
        assert!(sheet.contains(&variables(&LIGHT)) && sheet.contains(&variables(&DARK)));
    }
}
