//! Turns roles into styles. Drawing code names the role of a text or an area, never a colour.
//!
//! Each colour has one meaning:
//!
//! | colour | meaning |
//! |---|---|
//! | bright blue | memory in use by tensors, or by a process whose PyTorch figures are not known |
//! | dull blue | memory that PyTorch keeps without a tensor in it |
//! | magenta | memory outside of PyTorch, and unaccounted memory |
//! | cyan | use of the multiprocessors |
//! | yellow | look at this: something may be wrong |
//! | red | this is wrong, or will be soon |
//! | green | this went well |
//!
//! The layers of a GPU's graph have colours of their own, one for each process. Titles, headings,
//! keys and the cursor have no colour: they are bold, or have a background.
//!
//! Text has the terminal's own sixteen colours, which suit light and dark backgrounds, unless the
//! user chose another theme. Areas have gradients where the terminal shows 24-bit colours. Without
//! colour the roles are bold, dim or reversed, and areas are hatched. Without Unicode every glyph
//! has an ASCII stand-in.

mod fill;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

pub(super) use self::fill::{Fill, cells};
use crate::app::lists::columns::Tone;
use crate::app::settings::ThemeName;
use crate::base::terminal::ColourDepth;
use crate::model::Severity;

/// The styles of all roles on one terminal.
#[derive(Debug, Clone, Copy)]
pub struct Theme {
    is_ascii: bool,
    depth: ColourDepth,
    name: ThemeName,
}

/// The meaning of a colour of text. Each theme has a colour for each meaning.
#[derive(Debug, Clone, Copy)]
enum Hue {
    Notable,
    Alarm,
    Good,
}

impl Hue {
    /// The colour of this meaning in a theme. The colours of `Safe` are those of Okabe and Ito, and
    /// those of `Light` are dark enough to be read on white; both come from the palette of 256.
    fn colour(self, name: ThemeName) -> Color {
        let own = match self {
            Self::Notable => (Color::Yellow, 220, 94),
            Self::Alarm => (Color::Red, 208, 124),
            Self::Good => (Color::Green, 74, 22),
        };
        match name {
            ThemeName::Terminal | ThemeName::Mono => own.0,
            ThemeName::Safe => Color::Indexed(own.1),
            ThemeName::Light => Color::Indexed(own.2),
        }
    }
}

/// The backgrounds of a theme, from the palette of 256 colours.
struct Backgrounds {
    /// Behind headings, and the text on it.
    band: (u8, u8),
    /// Behind the line under the cursor, and its text without a colour.
    cursor: (u8, u8),
}

impl Theme {
    /// The default theme on a terminal that shows only ASCII or not, and this many colours.
    pub fn new(is_ascii: bool, depth: ColourDepth) -> Self {
        Self {
            is_ascii,
            depth,
            name: ThemeName::default(),
        }
    }

    #[must_use]
    pub(super) fn with(self, name: ThemeName) -> Self {
        Self { name, ..self }
    }

    /// The same theme for a picture, which shows every colour.
    pub(super) fn for_picture(self) -> Self {
        let depth = if self.depth == ColourDepth::None {
            ColourDepth::None
        } else {
            ColourDepth::Rgb
        };
        Self { depth, ..self }
    }

    fn has_colour(self) -> bool {
        self.depth > ColourDepth::None && self.name != ThemeName::Mono
    }

    /// `None` where a background could make text unreadable.
    fn backgrounds(self) -> Option<Backgrounds> {
        (self.has_colour() && self.depth >= ColourDepth::Palette).then_some(match self.name {
            ThemeName::Light => Backgrounds {
                band: (254, 238),
                cursor: (153, 16),
            },
            _ => Backgrounds {
                band: (236, 252),
                cursor: (238, 255),
            },
        })
    }

    fn role(self, hue: Hue, otherwise: Modifier) -> Style {
        self.painted(hue.colour(self.name), otherwise)
    }

    fn painted(self, colour: Color, otherwise: Modifier) -> Style {
        if self.has_colour() {
            Style::new().fg(colour)
        } else {
            Style::new().add_modifier(otherwise)
        }
    }

    /// Ordinary text.
    pub fn text(self) -> Style {
        Style::new()
    }

    /// Less important text: units, rules, old or uncertain values.
    pub fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// A heading above columns, on a band where the terminal shows one.
    pub(super) fn head(self) -> Style {
        match self.backgrounds() {
            Some(Backgrounds {
                band: (background, text),
                ..
            }) => Style::new()
                .bg(Color::Indexed(background))
                .fg(Color::Indexed(text)),
            None => Style::new().add_modifier(Modifier::UNDERLINED),
        }
    }

    /// The name of the program, a title, a key, the column that sorts.
    pub fn accent(self) -> Style {
        // A title on a dim frame is not dim.
        Style::new()
            .add_modifier(Modifier::BOLD)
            .remove_modifier(Modifier::DIM)
    }

    /// A state of the screen, such as a filter, that hides something.
    pub fn badge(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub(super) fn notable(self) -> Style {
        self.role(Hue::Notable, Modifier::BOLD)
    }

    pub(super) fn alarm(self) -> Style {
        self.role(Hue::Alarm, Modifier::REVERSED)
            .add_modifier(Modifier::BOLD)
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
            Severity::Unknown | Severity::Fine => self.dim(),
            Severity::Notable => self.notable(),
            Severity::Bad => self.alarm(),
        }
    }

    /// The style of a text in a list, on a line whose other texts have the style `plain`, and its
    /// readings `reading`.
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

    /// The style of a note beside figures. Reversed, it would be louder than they are.
    pub(super) fn note(self, tone: Tone) -> Style {
        if tone == Tone::Alarm {
            self.alarm_line()
        } else {
            self.tone(tone, self.text(), self.text())
        }
    }

    /// From this share on, memory is about to run out.
    const FULL: f64 = 0.95;

    /// The style of a figure of memory: an alarm when this share is in use, and `otherwise` below.
    pub(super) fn memory_style(self, share: Option<f64>, otherwise: Style) -> Style {
        if share.is_some_and(|share| share >= Self::FULL) {
            self.alarm_line()
        } else {
            otherwise
        }
    }

    /// Marks the line under the cursor. Its texts keep their colours where the terminal has a
    /// background for it.
    pub(super) fn select(self, buffer: &mut Buffer, line: Rect) {
        let backgrounds = self.backgrounds();
        for place in line.intersection(buffer.area).positions() {
            let cell = &mut buffer[place];
            cell.modifier.remove(Modifier::DIM);
            match backgrounds {
                Some(Backgrounds {
                    cursor: (background, text),
                    ..
                }) => {
                    cell.bg = Color::Indexed(background);
                    if cell.fg == Color::Reset {
                        cell.fg = Color::Indexed(text);
                    }
                }
                // Reversed and in one colour, since reversed bars would be solid blocks.
                None => {
                    cell.fg = Color::Reset;
                    cell.modifier.remove(Modifier::BOLD);
                    cell.modifier.insert(Modifier::REVERSED);
                }
            }
        }
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
        '▅' => '=',
        '┊' | '▃' | '░' => ':',
        '▒' => '%',
        '─' | '╌' | '–' | '—' | '▄' => '-',
        '│' | '▎' => '|',
        '┌' | '┐' | '└' | '┘' | '├' | '┤' | '┼' | '╭' | '╮' | '╰' | '╯' | '▆' => {
            '+'
        }
        '▁' => '_',
        '▂' | '·' => '.',
        '▇' | '●' => '*',
        '█' => '#',
        '°' | '↑' | '↓' | '\u{2800}' => ' ',
        '…' | '≈' => '~',
        '✕' | '×' => 'x',
        '↘' => '\\',
        '▲' | '▴' => '^',
        '▼' | '▾' => 'v',
        '○' => 'o',
        '≥' | '→' => '>',
        '≤' => '<',
        // Braille: more than half of the dots, or fewer.
        '\u{2801}'..='\u{28FF}' if (glyph as u32 & 0xFF).count_ones() > 2 => '#',
        '\u{2801}'..='\u{28FF}' => '.',
        _ => '?',
    }
}
