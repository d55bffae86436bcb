//! The colours and glyphs of filled areas: bars, and the layers of a graph.

use ratatui::style::{Color, Modifier, Style};

use super::Theme;
use crate::app::settings::ThemeName;
use crate::base::units::Bytes;
use crate::output::fill::Fill;

impl Fill {
    /// The colour on a terminal with sixteen.
    fn sixteen(self) -> Color {
        match self {
            Self::Allocated => Color::LightBlue,
            Self::Unallocated => Color::Blue,
            Self::Other => Color::Magenta,
            Self::Busy => Color::Cyan,
            Self::Layer(layer) => [
                Color::Green,
                Color::LightMagenta,
                Color::LightCyan,
                Color::LightGreen,
                Color::LightBlue,
                Color::Gray,
            ][layer % Self::LAYERS],
            Self::Process(hue, _) => Self::User(hue).sixteen(),
            Self::User(Some(hue)) => hue.sixteen().map_or(Color::Reset, |place| {
                [
                    Color::LightBlue,
                    Color::Green,
                    Color::Magenta,
                    Color::LightCyan,
                ][place]
            }),
            Self::User(None) => Color::Reset,
        }
    }

    /// The glyph that tells this fill from those beside it where colour alone cannot.
    fn hatching(self) -> char {
        match self {
            Self::Allocated | Self::Busy | Self::User(_) => '█',
            Self::Unallocated => '▒',
            Self::Other => '░',
            Self::Layer(layer) => ['█', '▒', '░'][layer % 3],
            Self::Process(_, shade) => ['█', '▒', '░'][usize::from(shade % Self::SHADES)],
        }
    }
}

impl Theme {
    /// Whether areas are hatched: they cannot be told apart by colour alone, or should not have to
    /// be.
    pub(in crate::view) fn is_hatched(self) -> bool {
        self.is_ascii || !self.has_colour() || self.name == ThemeName::Safe
    }

    /// Whether the processes of a user have one colour on this terminal, so that hatching tells them
    /// apart.
    fn has_one_shade(self, fill: Fill) -> bool {
        matches!(fill, Fill::Process(..)) && self.palette().is_none()
    }

    /// The glyph of a filled cell of a bar. Bars below each other do not touch.
    pub(in crate::view) fn bar_glyph(self, fill: Fill) -> char {
        match self.area_glyph(fill) {
            '█' if !self.is_ascii => '▇',
            glyph => glyph,
        }
    }

    /// The glyph of a filled cell of an area.
    pub(in crate::view) fn area_glyph(self, fill: Fill) -> char {
        if self.is_hatched() || self.has_one_shade(fill) {
            fill.hatching()
        } else {
            '█'
        }
    }

    /// The dark end of a gradient, on the way from the background to the colour. From there on, each
    /// palette has a contrast of 3.
    pub(super) const DARK_END: f64 = 0.75;

    /// The body of an area that says little, on the way from the background to the colour.
    const WASH: f64 = 0.2;

    /// The style of a filled area at this place of its gradient, from 0 for the dark end to 1 for
    /// the bright end.
    pub(in crate::view) fn fill(self, fill: Fill, place: f64) -> Style {
        if !self.has_colour() {
            return Style::new();
        }
        let Some(palette) = self.palette() else {
            return Style::new().fg(fill.sixteen());
        };
        // Few steps: each change of colour costs bytes on the way to the terminal.
        let place = (place.clamp(0.0, 1.0) * 7.0).round() / 7.0;
        let dark_end = (palette.background).towards(fill.colour(palette), Self::DARK_END);
        Style::new().fg(self.shown(match self.name {
            // Hatched areas have one colour.
            ThemeName::Safe => fill.colour(palette),
            _ => dark_end.towards(fill.colour(palette), place),
        }))
    }

    /// The style of an area that says little, such as memory that stays the same: near to the
    /// background.
    pub(in crate::view) fn faint(self, fill: Fill) -> Style {
        match self.palette() {
            Some(palette) => {
                let faint = palette.background.towards(fill.colour(palette), 0.42);
                Style::new().fg(self.shown(faint))
            }
            None => self.fill(fill, 1.0).add_modifier(Modifier::DIM),
        }
    }

    /// The style of a filled area that says little, at this share of the way from its body to its
    /// upper edge.
    pub(in crate::view) fn wash(self, fill: Fill, place: f64) -> Style {
        match self.palette() {
            Some(palette) if self.name != ThemeName::Safe => {
                let place = (place.clamp(0.0, 1.0) * 7.0).round() / 7.0;
                let share = Self::WASH + (1.0 - Self::WASH) * place;
                let washed = palette.background.towards(fill.colour(palette), share);
                Style::new().fg(self.shown(washed))
            }
            _ if place > 0.0 => self.fill(fill, place),
            _ => self.faint(fill),
        }
    }

    /// The style of the name of an area, and of its amount.
    pub(in crate::view) fn fill_name(self, fill: Fill) -> Style {
        self.words(|palette| fill.colour(palette))
    }

    /// The style of the line on top of an area.
    pub(in crate::view) fn edge(self, fill: Fill) -> Style {
        self.fill(fill, 1.0).add_modifier(if self.has_colour() {
            Modifier::empty()
        } else {
            Modifier::BOLD
        })
    }
}

/// Returns how many cells of a bar each part takes, by the largest remainder method: together as
/// many as their sum rounds to, each as near to its own share as that allows. A part without an
/// amount takes none.
pub(in crate::view) fn cells<const PARTS: usize>(
    parts: [Bytes; PARTS],
    all: Bytes,
    width: usize,
) -> [usize; PARTS] {
    let wide = |bytes: u128| bytes * u128::try_from(width).unwrap_or_default();
    let sum: u128 = parts.iter().map(|part| u128::from(part.0)).sum();
    let all = u128::from(all.0).max(sum).max(1);
    let mut cells =
        parts.map(|part| usize::try_from(wide(part.0.into()) / all).unwrap_or_default());
    let mut by_remainder: Vec<usize> = (0..PARTS).collect();
    by_remainder.sort_by_key(|at| std::cmp::Reverse(wide(parts[*at].0.into()) % all));
    let left = usize::try_from((2 * wide(sum) + all) / (2 * all)).unwrap_or_default()
        - cells.iter().sum::<usize>();
    by_remainder
        .into_iter()
        .take(left)
        .for_each(|at| cells[at] += 1);
    cells
}
