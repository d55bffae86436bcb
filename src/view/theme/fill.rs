//! The colours and glyphs of filled areas: bars, and the layers of a graph.

use ratatui::style::{Color, Modifier, Style};

use super::Theme;
use crate::app::settings::ThemeName;
use crate::base::terminal::ColourDepth;
use crate::base::units::Bytes;
use crate::model::TensorLayer;

/// The meaning of a filled area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::view) enum Fill {
    /// Memory in use by tensors, or memory in use whose parts are not known.
    Allocated,
    /// Memory that PyTorch keeps without a tensor in it.
    Unallocated,
    /// Memory outside of PyTorch, and unaccounted memory.
    Other,
    /// Use of the multiprocessors.
    Busy,
    /// One of several processes that are drawn next to each other.
    Process(usize),
}

/// The colours of one meaning: of a terminal with sixteen, of one with 256, of the themes `Safe`
/// and `Light`, and the ends of the gradient in 24 bits.
struct FillColours {
    sixteen: Color,
    indexed: u8,
    safe: u8,
    light: u8,
    gradient: [[u8; 3]; 2],
}

const fn colours(
    sixteen: Color,
    indexed: u8,
    safe: u8,
    light: u8,
    gradient: [u32; 2],
) -> FillColours {
    let [low, high] = gradient;
    let [_, low @ ..] = low.to_be_bytes();
    let [_, high @ ..] = high.to_be_bytes();
    FillColours {
        sixteen,
        indexed,
        safe,
        light,
        gradient: [low, high],
    }
}

const ALLOCATED: FillColours = colours(Color::LightBlue, 69, 32, 26, [0x2e_62d9, 0x69_a9ff]);
const UNALLOCATED: FillColours = colours(Color::Blue, 60, 250, 110, [0x42_4f74, 0x61_7099]);
const OTHER: FillColours = colours(Color::Magenta, 133, 175, 133, [0x8a_3fa3, 0xc6_78dd]);
const BUSY: FillColours = colours(Color::Cyan, 37, 36, 30, [0x0f_7f8c, 0x35_cfc3]);
const PROCESSES: [FillColours; 6] = [
    colours(Color::Green, 71, 39, 28, [0x3c_8a4e, 0x7f_d18b]),
    colours(Color::LightMagenta, 168, 175, 125, [0xa6_3d74, 0xee_86b7]),
    colours(Color::LightCyan, 74, 74, 31, [0x2d_7fb8, 0x7c_c4f2]),
    colours(Color::LightYellow, 179, 220, 136, [0xa0_7a2c, 0xe2_bd6b]),
    colours(Color::LightBlue, 98, 32, 61, [0x5f_4bb6, 0xa3_92f0]),
    colours(Color::LightRed, 173, 208, 130, [0xa8_5a38, 0xe8_9a72]),
];

impl Fill {
    /// The number of processes that have fills of their own.
    pub(in crate::view) const PROCESSES: usize = PROCESSES.len();

    /// The fill of a layer of PyTorch's memory.
    pub(in crate::view) fn of_layer(layer: TensorLayer) -> Self {
        match TensorLayer::ALL.iter().position(|other| *other == layer) {
            Some(place) if layer != TensorLayer::Unallocated => Self::Process(place),
            _ => Self::Unallocated,
        }
    }

    fn colours(self) -> &'static FillColours {
        match self {
            Self::Allocated => &ALLOCATED,
            Self::Unallocated => &UNALLOCATED,
            Self::Other => &OTHER,
            Self::Busy => &BUSY,
            Self::Process(number) => &PROCESSES[number % PROCESSES.len()],
        }
    }

    /// The glyph that tells this fill from those beside it where colour alone cannot.
    fn hatching(self) -> char {
        match self {
            Self::Allocated | Self::Busy => '█',
            Self::Unallocated => '▒',
            Self::Other => '░',
            Self::Process(number) => ['█', '▒', '░'][number % 3],
        }
    }
}

impl Theme {
    /// Whether areas are hatched: they cannot be told apart by colour alone, or should not have to
    /// be.
    pub(in crate::view) fn is_hatched(self) -> bool {
        self.is_ascii || !self.has_colour() || self.name == ThemeName::Safe
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
        if self.is_hatched() {
            fill.hatching()
        } else {
            '█'
        }
    }

    /// The style of a filled area at this place of its gradient, from 0 for the dark end to 1 for
    /// the bright end.
    pub(in crate::view) fn fill(self, fill: Fill, place: f64) -> Style {
        if !self.has_colour() {
            return Style::new();
        }
        let FillColours {
            sixteen,
            indexed,
            safe,
            light,
            gradient: [low, high],
        } = fill.colours();
        Style::new().fg(match (self.name, self.depth) {
            (ThemeName::Safe, _) => Color::Indexed(*safe),
            (ThemeName::Light, _) => Color::Indexed(*light),
            (_, ColourDepth::Rgb) => {
                // Few steps: each change of colour costs bytes on the way to the terminal.
                let place = (place.clamp(0.0, 1.0) * 7.0).round() / 7.0;
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "between two values of 8 bits"
                )]
                let [red, green, blue] = [0, 1, 2].map(|channel| {
                    let (low, high) = (f64::from(low[channel]), f64::from(high[channel]));
                    (low + (high - low) * place) as u8
                });
                Color::Rgb(red, green, blue)
            }
            (_, ColourDepth::Palette) => Color::Indexed(*indexed),
            _ => *sixteen,
        })
    }

    /// The style of the line on top of an area, and of the name of the area.
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
    by_remainder.sort_by_key(|part| std::cmp::Reverse(wide(parts[*part].0.into()) % all));
    let left = usize::try_from((2 * wide(sum) + all) / (2 * all)).unwrap_or_default()
        - cells.iter().sum::<usize>();
    by_remainder
        .into_iter()
        .take(left)
        .for_each(|part| cells[part] += 1);
    cells
}
