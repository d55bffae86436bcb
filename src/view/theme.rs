//! Roles, not colours: what a thing means is said by the one who draws, how that looks is said here.
//!
//! Colours are the terminal's own sixteen, so they suit light and dark, unless the person chose others. Without
//! colour the same roles are bold, dim or reversed. Without Unicode, every glyph has a stand-in.

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};

use crate::app::columns::Tone;
use crate::app::settings::Look;
use crate::base::units::Bytes;
use crate::model::Severity;

/// How everything looks.
#[derive(Debug, Clone, Copy)]
pub struct Theme {
    is_ascii: bool,
    has_colour: bool,
    look: Look,
}

/// What a colour says. Each look has one of its own for it.
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
    /// Of a look. Those that are not the terminal's own are of its 256, which every terminal of today has: the safe
    /// ones by Okabe and Ito, the others dark enough to be read on white.
    fn colour(self, look: Look) -> Color {
        let own = match self {
            Self::Accent => (Color::Cyan, 74, 24),
            Self::Notable => (Color::Yellow, 220, 94),
            Self::Alarm => (Color::Red, 208, 124),
            Self::Good => (Color::Green, 39, 22),
            Self::Cached => (Color::Blue, 250, 19),
            Self::Outside => (Color::Magenta, 175, 90),
        };
        match look {
            Look::Terminal | Look::Mono => own.0,
            Look::Safe => Color::Indexed(own.1),
            Look::Light => Color::Indexed(own.2),
        }
    }
}

impl Theme {
    /// With these means.
    pub fn new(is_ascii: bool, has_colour: bool) -> Self {
        Self { is_ascii, has_colour, look: Look::default() }
    }

    /// With the colours that the person chose.
    #[must_use]
    pub fn with(self, look: Look) -> Self {
        Self { look, ..self }
    }

    fn role(self, hue: Hue, otherwise: Modifier) -> Style {
        self.painted(hue.colour(self.look), otherwise)
    }

    fn painted(self, colour: Color, otherwise: Modifier) -> Style {
        let has_colour = self.has_colour && self.look != Look::Mono;
        if has_colour { Style::new().fg(colour) } else { Style::new().add_modifier(otherwise) }
    }

    /// What is there to be read.
    pub fn text(self) -> Style {
        Style::new()
    }

    /// What matters less: units, rules, what is old or not sure.
    pub fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// The head of a list.
    pub fn head(self) -> Style {
        self.role(Hue::Accent, Modifier::UNDERLINED)
    }

    /// The one accent: the name of the program, the column that sorts, a curve.
    pub fn accent(self) -> Style {
        self.role(Hue::Accent, Modifier::empty()).add_modifier(Modifier::BOLD)
    }

    /// What should make one look.
    pub fn notable(self) -> Style {
        self.role(Hue::Notable, Modifier::BOLD)
    }

    /// What is wrong.
    pub fn alarm(self) -> Style {
        self.role(Hue::Alarm, Modifier::REVERSED).add_modifier(Modifier::BOLD)
    }

    /// A line towards what is wrong: it would not be readable reversed.
    pub fn alarm_line(self) -> Style {
        self.role(Hue::Alarm, Modifier::BOLD)
    }

    /// What went well.
    pub fn good(self) -> Style {
        self.role(Hue::Good, Modifier::empty())
    }

    /// A process's or GPU's health.
    pub fn severity(self, severity: Severity) -> Style {
        match severity {
            Severity::Untold => self.dim(),
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

    /// Work: much of it is what a GPU is for.
    pub fn busy(self) -> Style {
        self.good()
    }

    /// One of several processes that stand beside or on each other. They differ by more than colour.
    pub fn layer(self, at: usize) -> Style {
        const COLOURS: [Color; 6] =
            [Color::Green, Color::Yellow, Color::Magenta, Color::LightBlue, Color::Cyan, Color::LightRed];
        const SAFE: [u8; 6] = [39, 220, 175, 74, 208, 250];
        const DARK: [u8; 6] = [22, 94, 90, 19, 24, 124];
        let colour = match self.look {
            Look::Terminal | Look::Mono => COLOURS[at % COLOURS.len()],
            Look::Safe => Color::Indexed(SAFE[at % SAFE.len()]),
            Look::Light => Color::Indexed(DARK[at % DARK.len()]),
        };
        self.painted(colour, Modifier::empty())
    }

    /// The share of memory from which on it is about to run out.
    pub const FULL: f64 = 0.95;

    /// Memory, by how full it is: the fuller, the nearer the end of a job.
    pub fn full(self, share: Option<f64>) -> Style {
        match share {
            Some(Self::FULL..) => self.role(Hue::Alarm, Modifier::BOLD),
            Some(0.80..) => self.role(Hue::Notable, Modifier::empty()),
            _ => self.good(),
        }
    }

    /// Memory that is free, and kept for later.
    pub fn unallocated(self) -> Style {
        self.role(Hue::Cached, Modifier::empty())
    }

    /// Memory of which nothing more is known.
    pub fn outside(self) -> Style {
        self.role(Hue::Outside, Modifier::empty())
    }

    /// The line under the cursor: reversed, and of one colour, or each bar would be a block.
    pub fn cursor(self) -> Style {
        Style::new().fg(Color::Reset).add_modifier(Modifier::REVERSED).remove_modifier(Modifier::DIM | Modifier::BOLD)
    }

    /// Puts stand-ins where the terminal knows only ASCII.
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
        // A letter with a mark on it.
        _ if glyph.is_ascii() => glyph,
        '━' => '=',
        '┅' => ':',
        '═' => '%',
        '─' | '╸' | '╌' | '–' | '—' => '-',
        '│' => '|',
        '┌' | '┐' | '└' | '┘' | '├' | '┤' | '┼' => '+',
        '▁' => '_',
        '▂' => '.',
        '▃' => ':',
        '▄' => '-',
        '▅' => '=',
        '▆' => '+',
        '▇' => '*',
        '█' => '#',
        '°' => ' ',
        '…' => '~',
        '·' => '.',
        '┊' => ':',
        '✕' => 'x',
        '↘' => '\\',
        '▲' => '^',
        '▼' | '▾' => 'v',
        '▴' => '^',
        '●' => '*',
        '○' => 'o',
        '≥' => '>',
        '≤' => '<',
        '↑' | '↓' => ' ',
        '\u{2800}' => ' ',
        // Braille: more than half of the dots, or fewer.
        '\u{2801}'..='\u{28FF}' if (glyph as u32 & 0xFF).count_ones() > 2 => '#',
        '\u{2801}'..='\u{28FF}' => '.',
        _ => '?',
    }
}

/// How many cells of a bar each part takes: all together as many as their sum does, and each as near to its own share as
/// that lets it. A part without an amount takes none.
pub(super) fn cells<const PARTS: usize>(parts: [Bytes; PARTS], all: Bytes, width: usize) -> [usize; PARTS] {
    let wide = |bytes: u128| bytes * u128::try_from(width).unwrap_or_default();
    let sum: u128 = parts.iter().map(|it| u128::from(it.0)).sum();
    let all = u128::from(all.0).max(sum).max(1);
    let mut cells = parts.map(|it| usize::try_from(wide(it.0.into()) / all).unwrap_or_default());
    let mut by_rest: Vec<usize> = (0..PARTS).collect();
    by_rest.sort_by_key(|at| std::cmp::Reverse(wide(parts[*at].0.into()) % all));
    let left = usize::try_from((2 * wide(sum) + all) / (2 * all)).unwrap_or_default() - cells.iter().sum::<usize>();
    by_rest.into_iter().take(left).for_each(|at| cells[at] += 1);
    cells
}

/// The ends of a bar: full cells and what rounds them.
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

/// A part of a whole in one cell.
pub(super) fn step(part: u32, whole: u32) -> char {
    rise(part.into(), whole.into())
}

fn rise(part: u64, whole: u64) -> char {
    const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    STEPS[usize::try_from(part * 7 / whole.max(1)).unwrap_or(7).min(7)]
}
