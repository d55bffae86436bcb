//! Turns roles into styles. Drawing code names the role of a text or an area, never a colour.
//!
//! Each colour has one meaning:
//!
//! | colour | meaning |
//! |---|---|
//! | a user's hue | memory and processes of this user; the name stands beside it |
//! | teal | use of the multiprocessors |
//! | bright blue | memory in use by tensors, or by a process whose PyTorch figures are not known |
//! | dull blue | memory that PyTorch keeps without a tensor in it |
//! | magenta | memory outside of PyTorch, and unaccounted memory |
//! | amber badge | look at this: something is wrong |
//! | red badge | this is wrong now, or will be soon |
//! | green | this went well, where the theme has a palette |
//!
//! The layers of a process's graph have colours of their own. Titles, headings, keys and the cursor
//! have no colour: they are bold, or have a background.
//!
//! A theme has a [`Palette`] in 24 bits, of which a terminal with 256 colours shows the nearest
//! ones. `[colors]` in the configuration changes colours of it. The theme `terminal`, and every theme on a terminal with sixteen colours, writes in the
//! terminal's own foreground: its badges are reversed, and its sixteen colours only mark. Without
//! colour the roles are bold, dim or reversed, and areas are hatched. Without Unicode every glyph
//! has an ASCII stand-in.

mod authors;
mod fill;
#[cfg(test)]
mod palette_tests;
mod role_colours;
mod terminal_colours;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use strum::VariantArray;

pub(super) use self::fill::cells;
pub(crate) use self::role_colours::RoleColours;
use crate::app::lists::columns::Tone;
use crate::app::settings::ThemeName;
use crate::base::terminal::ColourDepth;
use crate::model::Severity;
use crate::model::UserHue;
pub(super) use crate::output::fill::Fill;
use crate::output::palette::{self, Palette, Rgb};

/// The colours of a theme; `None` for a theme of the terminal's own colours, or of none.
fn palette_of(name: ThemeName) -> Option<&'static Palette> {
    let palette = match name {
        ThemeName::Terminal | ThemeName::Mono => return None,
        // The app resolves `auto` once the background is known.
        ThemeName::Auto | ThemeName::Dark => &palette::DARK,
        ThemeName::Light => &palette::LIGHT,
        ThemeName::Safe => &palette::SAFE,
        ThemeName::Catppuccin => &authors::CATPPUCCIN,
        ThemeName::CatppuccinLatte => &authors::CATPPUCCIN_LATTE,
        ThemeName::Gruvbox => &authors::GRUVBOX,
        ThemeName::GruvboxLight => &authors::GRUVBOX_LIGHT,
        ThemeName::Nord => &authors::NORD,
        ThemeName::Solarized => &authors::SOLARIZED,
        ThemeName::SolarizedLight => &authors::SOLARIZED_LIGHT,
        ThemeName::Dracula => &authors::DRACULA,
        ThemeName::Alucard => &authors::ALUCARD,
        ThemeName::TokyoNight => &authors::TOKYO_NIGHT,
        ThemeName::TokyoNightDay => &authors::TOKYO_NIGHT_DAY,
    };
    Some(palette)
}

/// The styles of all roles on one terminal.
#[derive(Debug, Clone, Copy)]
pub struct Theme {
    is_ascii: bool,
    depth: ColourDepth,
    /// The theme that the user chose, or the one that [`ThemeName::Auto`] is on this background.
    name: ThemeName,
    /// The palettes with the colours of the user; empty when the user chose none.
    changed: &'static [(ThemeName, Palette)],
}

impl Theme {
    /// The default theme on a terminal that shows only ASCII or not, and this many colours.
    pub fn new(is_ascii: bool, depth: ColourDepth) -> Self {
        Self {
            is_ascii,
            depth,
            name: ThemeName::default(),
            changed: &[],
        }
    }

    /// The same theme with these colours instead of those of its palettes.
    #[must_use]
    pub(crate) fn with_colours(self, colours: &RoleColours) -> Self {
        if colours.is_empty() {
            return self;
        }
        let changed: Vec<_> = ThemeName::VARIANTS
            .iter()
            .filter_map(|name| Some((*name, colours.applied_to(palette_of(*name)?))))
            .collect();
        // Once for each run of the program, so that a theme is copied like a number.
        let changed = changed.leak();
        Self { changed, ..self }
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

    /// The colours of the theme; `None` where the terminal's own ones are used, or none.
    fn palette(self) -> Option<&'static Palette> {
        if !self.has_colour() || self.depth < ColourDepth::Palette {
            return None;
        }
        let changed = self.changed.iter().find(|(name, _)| *name == self.name);
        changed.map_or_else(|| palette_of(self.name), |(_, palette)| Some(palette))
    }

    /// The background and the text of a picture; `None` for those of the terminal.
    pub(super) fn picture_colours(self) -> Option<[u32; 2]> {
        self.palette()
            .map(|palette| [palette.background.0, palette.text.0])
    }

    /// Returns a colour of the palette as the terminal shows it.
    fn shown(self, colour: Rgb) -> Color {
        if self.depth == ColourDepth::Rgb {
            colour.in_24_bits()
        } else {
            colour.in_256()
        }
    }

    /// The style of a mark: a colour of the palette, or one of the terminal's sixteen.
    fn mark(self, colour: impl Fn(&Palette) -> Rgb, sixteen: Color) -> Style {
        match self.palette() {
            Some(palette) => Style::new().fg(self.shown(colour(palette))),
            None if self.has_colour() => Style::new().fg(sixteen),
            None => Style::new().add_modifier(Modifier::BOLD),
        }
    }

    /// The style of words in a colour of the palette. The terminal's own colours only mark: nobody
    /// knows their contrast.
    fn words(self, colour: impl Fn(&Palette) -> Rgb) -> Style {
        match self.palette() {
            Some(palette) => Style::new().fg(self.shown(colour(palette))),
            None => self.text(),
        }
    }

    /// A badge in a background and a text colour; reversed where there is no palette.
    fn solid(self, colours: impl Fn(&Palette) -> [Rgb; 2]) -> Style {
        let style = match self.palette() {
            Some(palette) => {
                let [background, text] = colours(palette);
                Style::new().bg(self.shown(background)).fg(self.shown(text))
            }
            None => Style::new().add_modifier(Modifier::REVERSED),
        };
        style.add_modifier(Modifier::BOLD)
    }

    /// Ordinary text.
    pub fn text(self) -> Style {
        match self.palette() {
            Some(palette) if palette.is_painted => Style::new().fg(self.shown(palette.text)),
            _ => Style::new(),
        }
    }

    /// Less important text: units, rules, old or uncertain values.
    pub fn dim(self) -> Style {
        match self.palette() {
            Some(palette) => Style::new().fg(self.shown(palette.dim)),
            None => Style::new().add_modifier(Modifier::DIM),
        }
    }

    /// A heading above columns, on a band where the terminal shows one.
    pub(super) fn head(self) -> Style {
        match self.palette() {
            Some(palette) => Style::new()
                .bg(self.shown(palette.band))
                .fg(self.shown(palette.text)),
            None => Style::new().add_modifier(Modifier::UNDERLINED),
        }
    }

    /// The name of the program, a title, a key, the column that sorts.
    pub fn accent(self) -> Style {
        // A title on a dim frame is not dim.
        self.text()
            .add_modifier(Modifier::BOLD)
            .remove_modifier(Modifier::DIM)
    }

    /// A state of the screen, such as a filter, that hides something.
    pub fn badge(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// A sentence or a figure that deserves a look, and is no trouble.
    pub(super) fn notable(self) -> Style {
        self.accent()
    }

    /// The badge of a serious trouble.
    pub(super) fn alarm(self) -> Style {
        self.solid(|palette| palette.alarm)
    }

    /// The badge of another trouble.
    pub(super) fn caution(self) -> Style {
        self.solid(|palette| palette.caution)
    }

    /// A line that leads to trouble, and the frame of a GPU in trouble: a badge would hide what is
    /// below it.
    pub(super) fn alarm_line(self) -> Style {
        self.mark(|palette| palette.alarm_line, Color::Red)
    }

    /// The frame of a GPU with a trouble that is not serious.
    pub(super) fn caution_line(self) -> Style {
        self.mark(|palette| palette.caution_line, Color::Yellow)
    }

    /// Words beside a line that leads to trouble.
    pub(super) fn alarm_words(self) -> Style {
        self.words(|palette| palette.alarm_line)
            .add_modifier(Modifier::BOLD)
    }

    /// Words about an end that went well.
    pub(super) fn good(self) -> Style {
        self.words(|palette| palette.good)
    }

    /// The name of a user, and what marks the user's rows. A user without a hue has that of text.
    pub(super) fn user(self, hue: Option<UserHue>) -> Style {
        let style = match (self.palette(), hue) {
            (Some(palette), Some(hue)) => Style::new().fg(self.shown(palette.users[hue.place()])),
            _ => self.text(),
        };
        style.add_modifier(Modifier::BOLD)
    }

    pub(super) fn severity(self, severity: Severity) -> Style {
        match severity {
            Severity::Unknown | Severity::Fine => self.dim(),
            Severity::Notable => self.caution(),
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
            Tone::Notable => self.notable(),
            Tone::Alarm => self.alarm(),
            Tone::Severity(severity) => self.severity(severity),
        }
    }

    /// From this share on, memory is about to run out.
    const FULL: f64 = 0.95;

    /// The style of a figure of memory: strong when this share is in use, and `otherwise` below.
    pub(super) fn memory_style(self, share: Option<f64>, otherwise: Style) -> Style {
        if share.is_some_and(|share| share >= Self::FULL) {
            self.accent()
        } else {
            otherwise
        }
    }

    /// Marks the line under the cursor. Its texts keep their colours, and its badges their
    /// background, where the terminal has a background for the line.
    pub(super) fn select(self, buffer: &mut Buffer, line: Rect) {
        let palette = self.palette();
        for place in line.intersection(buffer.area).positions() {
            let cell = &mut buffer[place];
            cell.modifier.remove(Modifier::DIM);
            match palette {
                Some(palette) if cell.bg == Color::Reset => {
                    cell.bg = self.shown(palette.cursor);
                    // Dim text on a brighter background would be hard to read.
                    if cell.fg == Color::Reset || cell.fg == self.shown(palette.dim) {
                        cell.fg = self.shown(palette.text);
                    }
                }
                Some(_) => {}
                // Reversed and in one colour, since reversed bars would be solid blocks. What was
                // reversed, a badge, stands out of the line the other way round.
                None => {
                    cell.fg = Color::Reset;
                    cell.modifier.toggle(Modifier::REVERSED);
                    if cell.modifier.contains(Modifier::REVERSED) {
                        cell.modifier.remove(Modifier::BOLD);
                    }
                }
            }
        }
    }

    /// Paints the background of the theme behind everything that has none of its own.
    fn paint(self, buffer: &mut Buffer) {
        let Some(palette) = self.palette().filter(|palette| palette.is_painted) else {
            return;
        };
        for cell in &mut buffer.content {
            if cell.bg == Color::Reset {
                cell.bg = self.shown(palette.background);
            }
            if cell.fg == Color::Reset {
                cell.fg = self.shown(palette.text);
            }
        }
    }

    /// Paints the background, and replaces glyphs by their stand-ins where the terminal shows only
    /// ASCII.
    pub(super) fn finish(self, buffer: &mut Buffer) {
        self.paint(buffer);
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
        '▒' | '▓' => '%',
        '─' | '╌' | '–' | '—' | '▄' => '-',
        '│' | '▎' | '▌' => '|',
        '┌' | '┐' | '└' | '┘' | '├' | '┤' | '┼' | '╭' | '╮' | '╰' | '╯' | '▆' => {
            '+'
        }
        '▁' | '▏' | '▍' => '_',
        '▂' | '·' => '.',
        '▇' | '●' | '▉' | '▊' | '▋' => '*',
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::terminal::Background;

    /// A line with a badge of two cells, a text and a dim text, under the cursor.
    fn line(theme: Theme) -> Buffer {
        let area = Rect::new(0, 0, 4, 1);
        let mut buffer = Buffer::empty(area);
        buffer.set_string(0, 0, "ab", theme.alarm());
        buffer.set_string(2, 0, "c", theme.text());
        buffer.set_string(3, 0, "d", theme.dim());
        theme.select(&mut buffer, area);
        buffer
    }

    #[test]
    fn a_badge_keeps_its_background_under_the_cursor() {
        for depth in [ColourDepth::Palette, ColourDepth::Rgb] {
            for name in [ThemeName::Dark, ThemeName::Light, ThemeName::Safe] {
                let theme = Theme::new(false, depth).with(name);
                let buffer = line(theme);
                let (badge, beside) = (&buffer[(0, 0)], &buffer[(2, 0)]);
                assert_eq!(
                    (Some(badge.bg), Some(badge.fg)),
                    (theme.alarm().bg, theme.alarm().fg)
                );
                assert!(badge.modifier.contains(Modifier::BOLD));
                assert!(beside.bg != Color::Reset && beside.bg != badge.bg);
                assert_eq!(buffer[(3, 0)].bg, beside.bg, "the cursor is one bar");
            }
        }
    }

    #[test]
    fn without_a_palette_a_badge_is_reversed_and_reversed_back_under_the_cursor() {
        for depth in [ColourDepth::None, ColourDepth::Sixteen] {
            let theme = Theme::new(false, depth);
            for badge in [theme.alarm(), theme.severity(Severity::Notable)] {
                let modifiers = Modifier::REVERSED | Modifier::BOLD;
                assert_eq!((badge.add_modifier, badge.bg), (modifiers, None));
            }
            let buffer = line(theme);
            let is_reversed = |x| buffer[(x, 0)].modifier.contains(Modifier::REVERSED);
            assert_eq!([0, 1, 2, 3].map(is_reversed), [false, false, true, true]);
            assert!(buffer[(0, 0)].modifier.contains(Modifier::BOLD));
            assert!(!buffer[(3, 0)].modifier.contains(Modifier::DIM));
        }
    }

    #[test]
    fn nearly_full_memory_is_bold_and_not_the_colour_of_trouble() {
        for depth in [ColourDepth::None, ColourDepth::Sixteen, ColourDepth::Rgb] {
            let theme = Theme::new(false, depth);
            let full = theme.memory_style(Some(0.95), theme.dim());
            assert!(full.add_modifier.contains(Modifier::BOLD));
            assert_eq!((full.fg, full.bg), (theme.text().fg, None));
            assert_eq!(theme.memory_style(Some(0.94), theme.dim()), theme.dim());
            // A remark is bold only, too.
            assert_eq!(theme.notable(), theme.accent());
        }
    }

    #[test]
    fn text_has_the_default_foreground_in_the_theme_terminal() {
        for depth in [ColourDepth::Sixteen, ColourDepth::Palette, ColourDepth::Rgb] {
            let theme = Theme::new(false, depth).with(ThemeName::Terminal);
            for style in [theme.text(), theme.dim(), theme.accent()] {
                assert_eq!((style.fg, style.bg), (None, None));
            }
        }
    }

    #[test]
    fn auto_is_light_only_on_a_light_background() {
        let drawn = |background| ThemeName::Auto.on(background);
        assert_eq!(drawn(Some(Background::Light)), ThemeName::Light);
        assert_eq!(drawn(Some(Background::Dark)), ThemeName::Dark);
        assert_eq!(drawn(None), ThemeName::Dark);
        // A theme that the user chose is drawn on every background.
        let chosen = ThemeName::Safe.on(Some(Background::Light));
        assert_eq!(chosen, ThemeName::Safe);
    }
}
