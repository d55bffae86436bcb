//! Turns roles into styles, and amounts into the glyphs of bars. Drawing code names the role of a text, never a colour.
//!
//! The colours are the terminal's own sixteen, which suit light and dark backgrounds, unless the user chose another
//! theme. Without colour the same roles are bold, dim or reversed. Without Unicode every glyph has an ASCII stand-in.

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};

use crate::app::columns::Tone;
use crate::app::settings::ThemeName;
use crate::base::units::Bytes;
use crate::model::Severity;

/// The styles of all roles of text on one terminal.
#[derive(Debug, Clone, Copy)]
pub struct Theme {
    is_ascii: bool,
    has_colour: bool,
    name: ThemeName,
}

/// The meaning of a colour. Each theme has a colour for each meaning.
#[derive(Debug, Clone, Copy)]
enum Hue {
    Accent,
    Notable,
    Alarm,
    Good,
    Cached,
    Outside,
}

impl Hue {
    /// The colour of this meaning in a theme. The colours of `Safe` are those of Okabe and Ito, and those of `Light` are
    /// dark enough to be read on white; both come from the palette of 256.
    fn colour(self, name: ThemeName) -> Color {
        let own = match self {
            Self::Accent => (Color::Cyan, 74, 24),
            Self::Notable => (Color::Yellow, 220, 94),
            Self::Alarm => (Color::Red, 208, 124),
            Self::Good => (Color::Green, 39, 22),
            Self::Cached => (Color::Blue, 250, 19),
            Self::Outside => (Color::Magenta, 175, 90),
        };
        match name {
            ThemeName::Terminal | ThemeName::Mono => own.0,
            ThemeName::Safe => Color::Indexed(own.1),
            ThemeName::Light => Color::Indexed(own.2),
        }
    }
}

impl Theme {
    /// The default theme on a terminal that shows only ASCII or not, and colour or not.
    pub fn new(is_ascii: bool, has_colour: bool) -> Self {
        Self { is_ascii, has_colour, name: ThemeName::default() }
    }

    #[must_use]
    pub(super) fn with(self, name: ThemeName) -> Self {
        Self { name, ..self }
    }

    fn role(self, hue: Hue, otherwise: Modifier) -> Style {
        self.painted(hue.colour(self.name), otherwise)
    }

    fn painted(self, colour: Color, otherwise: Modifier) -> Style {
        let has_colour = self.has_colour && self.name != ThemeName::Mono;
        if has_colour { Style::new().fg(colour) } else { Style::new().add_modifier(otherwise) }
    }

    /// Ordinary text.
    pub fn text(self) -> Style {
        Style::new()
    }

    /// Less important text: units, rules, old or uncertain values.
    pub fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub(super) fn head(self) -> Style {
        self.role(Hue::Accent, Modifier::UNDERLINED)
    }

    /// The accent: the name of the program, the column that sorts, a curve.
    pub(super) fn accent(self) -> Style {
        self.role(Hue::Accent, Modifier::empty()).add_modifier(Modifier::BOLD)
    }

    pub(super) fn notable(self) -> Style {
        self.role(Hue::Notable, Modifier::BOLD)
    }

    pub(super) fn alarm(self) -> Style {
        self.role(Hue::Alarm, Modifier::REVERSED).add_modifier(Modifier::BOLD)
    }

    /// A line that leads to trouble. It would not be readable reversed.
    pub(super) fn alarm_line(self) -> Style {
        self.role(Hue::Alarm, Modifier::BOLD)
    }

    pub(super) fn good(self) -> Style {
        self.role(Hue::Good, Modifier::empty())
    }

    pub(super) fn severity(self, severity: Severity) -> Style {
        match severity {
            Severity::Unknown => self.dim(),
            Severity::Fine => self.good(),
            Severity::Notable => self.notable(),
            Severity::Bad => self.alarm(),
        }
    }

    /// The style of a text in a list, on a line whose other texts have the style `plain`, and its readings `reading`.
    pub(super) fn tone(self, tone: Tone, plain: Style, reading: Style) -> Style {
        match tone {
            Tone::Plain => plain,
            Tone::Reading => reading,
            Tone::Dim => plain.patch(self.dim()),
            Tone::Good => self.good(),
            Tone::Notable => self.notable(),
            Tone::Alarm => self.alarm(),
            Tone::Severity(severity) => self.severity(severity),
        }
    }

    /// One of several processes that are drawn next to each other. They differ by more than colour.
    pub(super) fn layer(self, at: usize) -> Style {
        const COLOURS: [Color; 6] =
            [Color::Green, Color::Yellow, Color::Magenta, Color::LightBlue, Color::Cyan, Color::LightRed];
        const SAFE: [u8; 6] = [39, 220, 175, 74, 208, 250];
        const DARK: [u8; 6] = [22, 94, 90, 19, 24, 124];
        let colour = match self.name {
            ThemeName::Terminal | ThemeName::Mono => COLOURS[at % COLOURS.len()],
            ThemeName::Safe => Color::Indexed(SAFE[at % SAFE.len()]),
            ThemeName::Light => Color::Indexed(DARK[at % DARK.len()]),
        };
        self.painted(colour, Modifier::empty())
    }

    /// From this share on, memory is about to run out.
    pub(super) const FULL: f64 = 0.95;

    pub(super) fn full(self, share: Option<f64>) -> Style {
        match share {
            Some(Self::FULL..) => self.role(Hue::Alarm, Modifier::BOLD),
            Some(0.80..) => self.role(Hue::Notable, Modifier::empty()),
            _ => self.good(),
        }
    }

    pub(super) fn unallocated(self) -> Style {
        self.role(Hue::Cached, Modifier::empty())
    }

    pub(super) fn outside(self) -> Style {
        self.role(Hue::Outside, Modifier::empty())
    }

    /// The line under the cursor: reversed and in one colour, since reversed bars would be solid blocks.
    pub fn cursor(self) -> Style {
        Style::new().fg(Color::Reset).add_modifier(Modifier::REVERSED).remove_modifier(Modifier::DIM | Modifier::BOLD)
    }

    /// Replaces glyphs by their stand-ins where the terminal shows only ASCII.
    pub(super) fn finish(self, buffer: &mut Buffer) {
        if !self.is_ascii {
            return;
        }
        for cell in &mut buffer.content {
            if !cell.symbol().is_ascii() {
                cell.set_char(cell.symbol().chars().next().map_or(' ', stand_in));
            }
        }
    }
}

fn stand_in(glyph: char) -> char {
    match glyph {
        // An ASCII letter with a combining mark.
        _ if glyph.is_ascii() => glyph,
        '━' | '▅' => '=',
        '┅' | '┊' | '▃' => ':',
        '═' => '%',
        '─' | '╸' | '╌' | '–' | '—' | '▄' => '-',
        '│' => '|',
        '┌' | '┐' | '└' | '┘' | '├' | '┤' | '┼' | '▆' => '+',
        '▁' => '_',
        '▂' | '·' => '.',
        '▇' | '●' => '*',
        '█' => '#',
        '°' | '↑' | '↓' | '\u{2800}' => ' ',
        '…' => '~',
        '✕' => 'x',
        '↘' => '\\',
        '▲' | '▴' => '^',
        '▼' | '▾' => 'v',
        '○' => 'o',
        '≥' => '>',
        '≤' => '<',
        // Braille: more than half of the dots, or fewer.
        '\u{2801}'..='\u{28FF}' if (glyph as u32 & 0xFF).count_ones() > 2 => '#',
        '\u{2801}'..='\u{28FF}' => '.',
        _ => '?',
    }
}

/// Returns how many cells of a bar each part takes, by the largest remainder method: together as many as their sum
/// rounds to, each as near to its own share as that allows. A part without an amount takes none.
pub(super) fn cells<const PARTS: usize>(parts: [Bytes; PARTS], all: Bytes, width: usize) -> [usize; PARTS] {
    let wide = |bytes: u128| bytes * u128::try_from(width).unwrap_or_default();
    let sum: u128 = parts.iter().map(|part| u128::from(part.0)).sum();
    let all = u128::from(all.0).max(sum).max(1);
    let mut cells = parts.map(|part| usize::try_from(wide(part.0.into()) / all).unwrap_or_default());
    let mut by_remainder: Vec<usize> = (0..PARTS).collect();
    by_remainder.sort_by_key(|at| std::cmp::Reverse(wide(parts[*at].0.into()) % all));
    let left = usize::try_from((2 * wide(sum) + all) / (2 * all)).unwrap_or_default() - cells.iter().sum::<usize>();
    by_remainder.into_iter().take(left).for_each(|at| cells[at] += 1);
    cells
}

/// Returns the filled part of a bar, rounded to half a cell, and the rest.
pub(super) fn bar(share: f64, width: usize) -> (String, String) {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of at most 1 of a short bar")]
    #[expect(clippy::cast_precision_loss, reason = "a bar has fewer than 2^52 cells")]
    let halves = (share.clamp(0.0, 1.0) * width as f64 * 2.0).round() as usize;
    let mut filled = "━".repeat(halves / 2);
    if halves % 2 == 1 {
        filled.push('╸');
    }
    (filled, "─".repeat(width - halves.div_ceil(2)))
}
