//! Turns changed cells into the shortest bytes that make a terminal show them.
//!
//! The painter remembers cells, style and cursor from frame to frame, so that a changed digit costs
//! a short cursor movement and one byte. ratatui's own terminal keeps two buffers instead, each
//! three times as large. The bytes go into a buffer; nothing here writes to a terminal or queries
//! it.

use std::collections::HashMap;
use std::fmt::Write;

use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::{Position, Size};
use ratatui::style::{Color, Modifier};
use unicode_width::UnicodeWidthStr;

#[derive(Debug)]
pub(super) struct Painter {
    pub(super) bytes: String,
    size: Size,
    pen: TerminalPen,
    /// The position of the cursor; `None` where terminals disagree on it.
    cursor: Option<Position>,
    /// The content of each cell, row by row; `None` for a cell that does not show one plain
    /// character.
    shown: Vec<Option<(char, TerminalPen)>>,
    /// The content of the other cells, by their place in `shown`. The right half of a wide
    /// character has no entry: once the left half is replaced, terminals differ in what the right
    /// half shows.
    others: HashMap<usize, (String, TerminalPen)>,
}

/// The style of the next character.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct TerminalPen {
    foreground: Color,
    background: Color,
    modifier: Modifier,
}

/// Each modifier with the SGR parameter that turns it on.
const MODIFIERS: [(Modifier, u8); 9] = [
    (Modifier::BOLD, 1),
    (Modifier::DIM, 2),
    (Modifier::ITALIC, 3),
    (Modifier::UNDERLINED, 4),
    (Modifier::SLOW_BLINK, 5),
    (Modifier::RAPID_BLINK, 6),
    (Modifier::REVERSED, 7),
    (Modifier::HIDDEN, 8),
    (Modifier::CROSSED_OUT, 9),
];

/// The modifiers that are visible on a blank.
const VISIBLE_ON_BLANKS: Modifier = Modifier::UNDERLINED
    .union(Modifier::REVERSED)
    .union(Modifier::CROSSED_OUT);

impl TerminalPen {
    fn from_cell(cell: &Cell) -> Self {
        Self {
            foreground: cell.fg,
            background: cell.bg,
            modifier: cell.modifier,
        }
    }

    /// Returns whether a blank looks the same with both pens.
    fn blank_looks_as(self, other: Self) -> bool {
        self.background == other.background
            && !(self.modifier | other.modifier).intersects(VISIBLE_ON_BLANKS)
    }

    /// Returns the SGR parameters that change the pen from `old` to this one.
    fn parameters(self, old: Self) -> String {
        if self == Self::default() {
            return String::new();
        }
        // A reset is mostly as short as the parameters that turn single modifiers off.
        let (reset, old) = if self.modifier.contains(old.modifier) {
            ("", old)
        } else {
            ("0", Self::default())
        };
        let mut parameters = reset.to_owned();
        for (modifier, parameter) in MODIFIERS {
            if self.modifier.difference(old.modifier).contains(modifier) {
                push(&mut parameters, format_args!(";{parameter}"));
            }
        }
        if self.foreground != old.foreground {
            colour(&mut parameters, self.foreground, 30);
        }
        if self.background != old.background {
            colour(&mut parameters, self.background, 40);
        }
        parameters.trim_start_matches(';').to_owned()
    }
}

/// Adds the SGR parameter of a colour; `base` is 30 for the foreground and 40 for the background.
fn colour(parameters: &mut String, colour: Color, base: u8) {
    let mut ansi = |number: u8| push(parameters, format_args!(";{}", base + number));
    match colour {
        Color::Reset => ansi(9),
        Color::Black => ansi(0),
        Color::Red => ansi(1),
        Color::Green => ansi(2),
        Color::Yellow => ansi(3),
        Color::Blue => ansi(4),
        Color::Magenta => ansi(5),
        Color::Cyan => ansi(6),
        Color::Gray => ansi(7),
        Color::DarkGray => ansi(60),
        Color::LightRed => ansi(61),
        Color::LightGreen => ansi(62),
        Color::LightYellow => ansi(63),
        Color::LightBlue => ansi(64),
        Color::LightMagenta => ansi(65),
        Color::LightCyan => ansi(66),
        Color::White => ansi(67),
        Color::Indexed(index) => push(parameters, format_args!(";{};5;{index}", base + 8)),
        Color::Rgb(red, green, blue) => push(
            parameters,
            format_args!(";{};2;{red};{green};{blue}", base + 8),
        ),
    }
}

fn blank(size: Size) -> Vec<Option<(char, TerminalPen)>> {
    vec![Some((' ', TerminalPen::default())); usize::from(size.width) * usize::from(size.height)]
}

fn is_character(symbol: &str, character: char) -> bool {
    symbol.chars().eq([character])
}

fn push(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    let _infallible: std::fmt::Result = text.write_fmt(arguments);
}

/// The longest movement to the left that backspaces are used for: `CSI n D` takes four bytes.
const MOST_BACKSPACES: u16 = 4;

/// The longest movement down that line feeds are used for: `CSI row;column H` takes at most eight
/// bytes on most screens.
const MOST_LINE_FEEDS: u16 = 7;

/// The longest movement to the right for which unchanged characters may be repainted: `CSI n C`
/// takes four bytes.
const MOST_REPAINTED: u16 = 3;

fn horizontal_movement(from: u16, to: u16) -> String {
    let right = |columns: u16| match columns {
        0 => String::new(),
        1 => "\x1b[C".to_owned(),
        _ => format!("\x1b[{columns}C"),
    };
    if to >= from {
        return right(to - from);
    }
    let distance = from - to;
    let left = if distance <= MOST_BACKSPACES {
        "\x08".repeat(usize::from(distance))
    } else {
        format!("\x1b[{distance}D")
    };
    let from_margin = format!("\r{}", right(to));
    if from_margin.len() < left.len() {
        from_margin
    } else {
        left
    }
}

impl Painter {
    /// A painter for a terminal of this size with an unknown content.
    pub(super) fn new(size: Size) -> Self {
        Self {
            bytes: String::new(),
            size,
            pen: TerminalPen::default(),
            cursor: None,
            shown: blank(size),
            others: HashMap::new(),
        }
    }

    /// Paints the cells of a drawing that the terminal does not show yet. After a change of size,
    /// clears the screen first.
    pub(super) fn paint(&mut self, drawing: &Buffer) {
        if drawing.area.as_size() != self.size {
            self.size = drawing.area.as_size();
            self.clear();
        }
        for y in 0..self.size.height {
            let mut x = 0;
            while x < self.size.width {
                x += self.paint_cell(Position::new(x, y), drawing);
            }
        }
    }

    /// Paints one cell if the terminal does not show it yet. Returns how many columns it takes.
    fn paint_cell(&mut self, at: Position, drawing: &Buffer) -> u16 {
        let place = self.place(at);
        let cell = &drawing.content[place];
        let (mut symbol, pen) = (cell.symbol(), TerminalPen::from_cell(cell));
        // Almost all cells end here.
        if self.shown[place].is_some() && self.shows(place, symbol, pen) {
            return 1;
        }
        let mut width = symbol.width();
        let right = drawing.content.get(place + 1);
        // The right half was overwritten: a terminal cannot show half a character.
        if width > 1 && right.is_some_and(|right| right.symbol() != " ") {
            (symbol, width) = (" ", 1);
        }
        if !self.shows(place, symbol, pen) {
            self.go_to(at);
            self.set_pen(pen, symbol);
            self.bytes.push_str(symbol);
            self.cursor = self.cursor_after(at, symbol);
            self.remember(at, symbol);
        }
        if width > 1 { 2 } else { 1 }
    }

    pub(super) fn clear(&mut self) {
        // Cleared cells get the background of the pen, so the pen is reset first.
        const CLEAR: &str = "\x1b[m\x1b[2J";
        if !self.bytes.ends_with(CLEAR) {
            self.bytes.push_str(CLEAR);
        }
        self.pen = TerminalPen::default();
        self.cursor = None;
        self.shown = blank(self.size);
        self.others.clear();
    }

    fn shows(&self, place: usize, symbol: &str, pen: TerminalPen) -> bool {
        match self.shown[place] {
            Some((character, shown_pen)) => {
                let looks_same =
                    shown_pen == pen || character == ' ' && shown_pen.blank_looks_as(pen);
                looks_same && is_character(symbol, character)
            }
            None => self
                .others
                .get(&place)
                .is_some_and(|shown| (shown.0.as_str(), shown.1) == (symbol, pen)),
        }
    }

    fn place(&self, at: Position) -> usize {
        usize::from(at.y) * usize::from(self.size.width) + usize::from(at.x)
    }

    /// Returns the characters from one column to another of a line, if the current pen paints them
    /// as they are.
    fn unchanged_between(&self, from: Position, to: Position) -> Option<String> {
        let start = self.place(from);
        let cells = self.shown.get(start..start + usize::from(to.x - from.x))?;
        let unchanged = |cell: &Option<(char, TerminalPen)>| {
            let (character, pen) = (*cell)?;
            (pen == self.pen || character == ' ' && self.pen.blank_looks_as(pen))
                .then_some(character)
        };
        cells.iter().map(unchanged).collect()
    }

    fn remember(&mut self, at: Position, symbol: &str) {
        let place = self.place(at);
        let mut characters = symbol.chars();
        let (first, second, width) = (characters.next(), characters.next(), symbol.width());
        let plain = first.filter(|_| second.is_none() && width == 1);
        self.shown[place] = plain.map(|character| (character, self.pen));
        if plain.is_some() && self.others.is_empty() {
            return;
        }
        self.others.remove(&place);
        if plain.is_none() {
            self.others.insert(place, (symbol.to_owned(), self.pen));
        }
        if width > 1 && at.x + 1 < self.size.width {
            self.shown[place + 1] = None;
            self.others.remove(&(place + 1));
        }
    }

    fn go_to(&mut self, to: Position) {
        if self.cursor == Some(to) {
            return;
        }
        let mut movement = if to.x == 0 {
            format!("\x1b[{}H", to.y + 1)
        } else {
            format!("\x1b[{};{}H", to.y + 1, to.x + 1)
        };
        if let Some(from) = self.cursor
            && to.y >= from.y
        {
            // In raw mode a line feed keeps the column. It does not scroll here, because the target
            // row is on the screen.
            let rows = to.y - from.y;
            let relative = format!(
                "{}{}",
                "\n".repeat(rows.min(MOST_LINE_FEEDS).into()),
                horizontal_movement(from.x, to.x)
            );
            if rows <= MOST_LINE_FEEDS && relative.len() < movement.len() {
                movement = relative;
            }
            if rows == 0
                && to.x > from.x
                && to.x - from.x <= MOST_REPAINTED
                && let Some(characters) = self.unchanged_between(from, to)
                && characters.len() <= movement.len()
            {
                movement = characters;
            }
        }
        self.bytes.push_str(&movement);
        self.cursor = Some(to);
    }

    fn set_pen(&mut self, pen: TerminalPen, symbol: &str) {
        if self.pen != pen && !(symbol == " " && self.pen.blank_looks_as(pen)) {
            let parameters = pen.parameters(self.pen);
            push(&mut self.bytes, format_args!("\x1b[{parameters}m"));
            self.pen = pen;
        }
    }

    /// Returns the position of the cursor after a symbol at `at`; `None` where terminals disagree.
    fn cursor_after(&self, at: Position, symbol: &str) -> Option<Position> {
        // Terminals disagree on the width of wide and composed characters, and on the cursor after
        // the last column.
        let is_certain =
            symbol.chars().count() == 1 && symbol.width() == 1 && at.x + 1 < self.size.width;
        is_certain.then(|| Position::new(at.x + 1, at.y))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ratatui::layout::Rect;
    use ratatui::style::Style;
    use ratatui::text::Text;
    use ratatui::widgets::Widget;

    use super::*;

    const SIZE: Size = Size::new(20, 6);
    const SCREEN: Rect = Rect::new(0, 0, SIZE.width, SIZE.height);

    /// A line of text somewhere on the screen.
    #[derive(Debug, Clone)]
    struct Stroke {
        at: Position,
        text: String,
        style: Style,
    }

    fn colours() -> impl Strategy<Value = Color> {
        prop_oneof![
            Just(Color::Reset),
            Just(Color::Red),
            Just(Color::Gray),
            Just(Color::DarkGray),
            Just(Color::White),
            any::<u8>().prop_map(|index| Color::Indexed(index | 16)),
            any::<[u8; 3]>().prop_map(|[red, green, blue]| Color::Rgb(red, green, blue)),
        ]
    }

    fn strokes() -> impl Strategy<Value = Vec<Stroke>> {
        let modifiers = prop::sample::subsequence(
            vec![
                Modifier::BOLD,
                Modifier::DIM,
                Modifier::ITALIC,
                Modifier::UNDERLINED,
                Modifier::REVERSED,
            ],
            0..4,
        );
        let stroke = (
            0..SIZE.width,
            0..SIZE.height,
            "[ab 0-9é█⣿名]{1,12}",
            colours(),
            colours(),
            modifiers,
        )
            .prop_map(|(x, y, text, foreground, background, modifiers)| Stroke {
                at: Position::new(x, y),
                text,
                style: Style::new()
                    .fg(foreground)
                    .bg(background)
                    .add_modifier(modifiers.into_iter().collect::<Modifier>()),
            });
        prop::collection::vec(stroke, 0..8)
    }

    fn seen(colour: Color) -> vt100::Color {
        match colour {
            Color::Red => vt100::Color::Idx(1),
            Color::Gray => vt100::Color::Idx(7),
            Color::DarkGray => vt100::Color::Idx(8),
            Color::White => vt100::Color::Idx(15),
            Color::Indexed(index) => vt100::Color::Idx(index),
            Color::Rgb(red, green, blue) => vt100::Color::Rgb(red, green, blue),
            _ => vt100::Color::Default,
        }
    }

    #[track_caller]
    fn check_screen(screen: &vt100::Screen, buffer: &Buffer) {
        for y in 0..SIZE.height {
            for x in 0..SIZE.width {
                let (seen_cell, cell) = (screen.cell(y, x).unwrap(), &buffer[(x, y)]);
                if seen_cell.is_wide_continuation() {
                    continue;
                }
                let blank = cell.symbol() == " ";
                let seen_symbol = if seen_cell.contents().is_empty() {
                    " "
                } else {
                    seen_cell.contents()
                };
                assert_eq!(seen_symbol, cell.symbol(), "at {x},{y}");
                assert_eq!(seen_cell.bgcolor(), seen(cell.bg), "background at {x},{y}");
                assert_eq!(
                    seen_cell.inverse(),
                    cell.modifier.contains(Modifier::REVERSED),
                    "at {x},{y}"
                );
                assert_eq!(
                    seen_cell.underline(),
                    cell.modifier.contains(Modifier::UNDERLINED),
                    "at {x},{y}"
                );
                if !blank {
                    assert_eq!(seen_cell.fgcolor(), seen(cell.fg), "foreground at {x},{y}");
                    assert_eq!(
                        seen_cell.italic(),
                        cell.modifier.contains(Modifier::ITALIC),
                        "at {x},{y}"
                    );
                    let plain = !cell.modifier.contains(Modifier::BOLD | Modifier::DIM);
                    // The emulator shows either bold or dim, not both.
                    assert!(
                        !plain || seen_cell.bold() == cell.modifier.contains(Modifier::BOLD),
                        "at {x},{y}"
                    );
                    assert!(
                        !plain || seen_cell.dim() == cell.modifier.contains(Modifier::DIM),
                        "at {x},{y}"
                    );
                }
            }
        }
    }

    /// Replaces wide characters whose right half was overwritten with blanks.
    fn blank_cut_characters(drawn: &mut Buffer) {
        for place in 0..drawn.content.len() - 1 {
            if drawn.content[place].symbol().width() > 1 && drawn.content[place + 1].symbol() != " "
            {
                drawn.content[place].set_symbol(" ");
            }
        }
    }

    proptest! {
        /// The terminal shows each frame of any sequence of drawings.
        #[test]
        fn the_terminal_shows_what_was_drawn(frames in prop::collection::vec(strokes(), 1..5)) {
            let mut painter = Painter::new(SIZE);
            let mut emulator = vt100::Parser::new(SIZE.height.try_into().unwrap(), SIZE.width.try_into().unwrap(), 0);
            for strokes in frames {
                let mut drawn = Buffer::empty(SCREEN);
                for Stroke { at, text, style } in &strokes {
                    drawn.set_string(at.x, at.y, text, *style);
                }
                painter.paint(&drawn);
                emulator.process(std::mem::take(&mut painter.bytes).as_bytes());
                blank_cut_characters(&mut drawn);
                check_screen(emulator.screen(), &drawn);
            }
        }
    }

    /// Returns the bytes painted for each of these texts, one after the other.
    fn painted<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<String> {
        let mut painter = Painter::new(SIZE);
        let mut paint = |text: &str| {
            let mut drawn = Buffer::empty(SCREEN);
            Text::raw(text).render(SCREEN, &mut drawn);
            painter.paint(&drawn);
            std::mem::take(&mut painter.bytes)
        };
        texts.into_iter().map(&mut paint).collect()
    }

    #[test]
    fn an_unchanged_character_is_repainted_when_that_is_shorter_than_moving() {
        assert_eq!(painted(["1.1 G", "2.2 G"])[1], "\r2.2");
    }

    #[test]
    fn an_unchanged_frame_costs_no_bytes() {
        assert_eq!(painted(["61.2 GiB", "61.2 GiB"])[1], "");
        assert_eq!(painted(["e\u{301} 名前", "e\u{301} 名前"])[1], "");
    }

    #[test]
    fn a_changed_digit_costs_a_short_movement_and_a_byte() {
        let painted = painted([
            "61.2 GiB  97%\n61.2 GiB  97%",
            "61.3 GiB  98%\n61.3 GiB  98%",
        ]);
        assert_eq!(painted[1], "\x1b[1;4H3\x1b[7C8\n\x1b[9D3\x1b[7C8");
    }

    #[test]
    fn the_pen_changes_with_the_fewest_parameters() {
        let red = TerminalPen {
            foreground: Color::Red,
            ..TerminalPen::default()
        };
        let loud = TerminalPen {
            modifier: Modifier::BOLD | Modifier::UNDERLINED,
            ..red
        };
        assert_eq!(TerminalPen::default().parameters(loud), "");
        assert_eq!(loud.parameters(red), "1;4");
        assert_eq!(red.parameters(loud), "0;31");
        let dim = TerminalPen {
            modifier: Modifier::DIM,
            ..TerminalPen::default()
        };
        let bold_and_dim = TerminalPen {
            modifier: Modifier::DIM | Modifier::BOLD,
            ..TerminalPen::default()
        };
        assert_eq!(dim.parameters(bold_and_dim), "0;2");
    }
}
