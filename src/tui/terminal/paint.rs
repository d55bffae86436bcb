//! Turns changed cells into as few bytes as a terminal understands.
//!
//! What is shown, the pen and the cursor are remembered from frame to frame, so that a digit which changed
//! costs a short hop and a byte. ratatui's own terminal would keep two buffers for that, which take three times as much
//! each. Bytes gather in a buffer; nothing here writes to a terminal, or asks it anything.

use std::collections::HashMap;
use std::fmt::Write;

use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::{Position, Size};
use ratatui::style::{Color, Modifier};
use unicode_width::UnicodeWidthStr;

/// Paints into a buffer what a terminal of that size must be sent.
#[derive(Debug)]
pub(super) struct Painter {
    /// The bytes painted so far.
    pub(super) bytes: String,
    size: Size,
    pen: Pen,
    /// Where the cursor surely is.
    cursor: Option<Position>,
    /// What each cell shows, row by row; absent where that is not one plain character.
    shown: Vec<Option<(char, Pen)>>,
    /// What is shown from there on, by place, where it is something else. Absent for the right half of a
    /// wide character: when the left one goes, it shows what the terminal pleases.
    others: HashMap<usize, (String, Pen)>,
}

/// Takes out wide characters over whose right half another was drawn: a terminal cannot show half of one.
fn part_halves(buffer: &mut Buffer) {
    for at in 0..buffer.content.len().saturating_sub(1) {
        let [cell, right] = &mut buffer.content[at..at + 2] else { continue };
        if cell.symbol().len() > 1 && right.symbol() != " " && cell.symbol().width() > 1 {
            cell.set_symbol(" ");
        }
    }
}

/// How the next character will look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Pen {
    foreground: Color,
    background: Color,
    modifier: Modifier,
}

/// Each modifier with the parameters that turn it on and off.
const MODIFIERS: [(Modifier, &str, &str); 9] = [
    (Modifier::BOLD, "1", "22"),
    (Modifier::DIM, "2", "22"),
    (Modifier::ITALIC, "3", "23"),
    (Modifier::UNDERLINED, "4", "24"),
    (Modifier::SLOW_BLINK, "5", "25"),
    (Modifier::RAPID_BLINK, "6", "25"),
    (Modifier::REVERSED, "7", "27"),
    (Modifier::HIDDEN, "8", "28"),
    (Modifier::CROSSED_OUT, "9", "29"),
];

/// The modifiers that can be seen where there is no character.
const SEEN_ON_BLANKS: Modifier = Modifier::UNDERLINED.union(Modifier::REVERSED).union(Modifier::CROSSED_OUT);

impl Pen {
    fn of(cell: &Cell) -> Self {
        Self { foreground: cell.fg, background: cell.bg, modifier: cell.modifier }
    }

    /// Whether a blank looks the same by this pen and by the other.
    fn blank_looks_as(self, other: Self) -> bool {
        self.background == other.background && !(self.modifier | other.modifier).intersects(SEEN_ON_BLANKS)
    }

    /// The parameters that make this pen out of `old`.
    fn parameters(self, old: Self) -> String {
        let afresh =
            if self == Self::default() { String::new() } else { format!("0{}", self.changes(Self::default())) };
        let changes = self.changes(old);
        let changes = changes.trim_start_matches(';');
        if afresh.len() < changes.len() { afresh } else { changes.to_owned() }
    }

    /// What differs from `old`, a semicolon before each parameter.
    fn changes(self, old: Self) -> String {
        let mut parameters = String::new();
        let mut on = old.modifier;
        for (modifier, _, off) in MODIFIERS {
            if on.contains(modifier) && !self.modifier.contains(modifier) {
                push(&mut parameters, format_args!(";{off}"));
                // One parameter may turn off two.
                for (other, _, its_off) in MODIFIERS {
                    on.set(other, on.contains(other) && its_off != off);
                }
            }
        }
        for (modifier, its_on, _) in MODIFIERS {
            if self.modifier.contains(modifier) && !on.contains(modifier) {
                push(&mut parameters, format_args!(";{its_on}"));
            }
        }
        if self.foreground != old.foreground {
            colour(&mut parameters, self.foreground, 30);
        }
        if self.background != old.background {
            colour(&mut parameters, self.background, 40);
        }
        parameters
    }
}

/// The parameter of a colour; `base` is 30 for the foreground, 40 for the background.
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
        Color::Rgb(red, green, blue) => push(parameters, format_args!(";{};2;{red};{green};{blue}", base + 8)),
    }
}

/// A screen with nothing on it.
fn blank(size: Size) -> Vec<Option<(char, Pen)>> {
    vec![Some((' ', Pen::default())); usize::from(size.width) * usize::from(size.height)]
}

fn push(text: &mut String, what: std::fmt::Arguments<'_>) {
    let _infallible: std::fmt::Result = text.write_fmt(what);
}

/// The shortest way from column to column.
fn sideways(from: u16, to: u16) -> String {
    let right = |columns: u16| match columns {
        0 => String::new(),
        1 => "\x1b[C".to_owned(),
        _ => format!("\x1b[{columns}C"),
    };
    if to >= from {
        return right(to - from);
    }
    let back = "\x08".repeat(usize::from(from - to).min(5));
    let left = if from - to < 5 { back } else { format!("\x1b[{}D", from - to) };
    let from_margin = format!("\r{}", right(to));
    if from_margin.len() < left.len() { from_margin } else { left }
}

impl Painter {
    /// Of a terminal of which nothing is known but its size.
    pub(super) fn new(size: Size) -> Self {
        Self {
            bytes: String::new(),
            size,
            pen: Pen::default(),
            cursor: None,
            shown: blank(size),
            others: HashMap::new(),
        }
    }

    /// Paints what a drawing shows, and the terminal does not. One of another size begins with a clear screen.
    pub(super) fn paint(&mut self, drawing: &mut Buffer) {
        part_halves(drawing);
        if drawing.area.as_size() != self.size {
            self.size = drawing.area.as_size();
            self.clear();
        }
        for y in 0..self.size.height {
            let mut x = 0;
            while x < self.size.width {
                let at = Position::new(x, y);
                let cell = &drawing.content[self.place(at)];
                if !self.shows(at, cell) {
                    self.go_to(at);
                    self.take_up(Pen::of(cell), cell.symbol());
                    self.bytes.push_str(cell.symbol());
                    self.cursor = self.after(at, cell.symbol());
                    self.note(at, cell.symbol());
                }
                x += if cell.symbol().len() > 1 && cell.symbol().width() > 1 { 2 } else { 1 };
            }
        }
    }

    /// Clears the screen.
    pub(super) fn clear(&mut self) {
        // What is cleared takes the background of the pen.
        const CLEAR: &str = "\x1b[m\x1b[2J";
        if !self.bytes.ends_with(CLEAR) {
            self.bytes.push_str(CLEAR);
        }
        self.pen = Pen::default();
        self.cursor = None;
        self.shown = blank(self.size);
        self.others.clear();
    }

    /// Whether the terminal shows this already.
    fn shows(&self, at: Position, cell: &Cell) -> bool {
        let (place, pen) = (self.place(at), Pen::of(cell));
        match self.shown[place] {
            Some((character, its)) => {
                let looks_so = its == pen || character == ' ' && its.blank_looks_as(pen);
                looks_so && cell.symbol() == character.encode_utf8(&mut [0; 4])
            }
            None => self.others.get(&place).is_some_and(|(symbol, its)| symbol == cell.symbol() && *its == pen),
        }
    }

    fn place(&self, at: Position) -> usize {
        usize::from(at.y) * usize::from(self.size.width) + usize::from(at.x)
    }

    /// The characters from one column to another of a line, if this pen would paint them as they are.
    fn between(&self, from: Position, to: Position) -> Option<String> {
        let start = self.place(from);
        let cells = self.shown.get(start..start + usize::from(to.x - from.x))?;
        let as_is = |cell: &Option<(char, Pen)>| {
            let (character, pen) = (*cell)?;
            (pen == self.pen || character == ' ' && self.pen.blank_looks_as(pen)).then_some(character)
        };
        cells.iter().map(as_is).collect()
    }

    /// Notes what a cell shows from now on.
    fn note(&mut self, at: Position, symbol: &str) {
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
        let mut way =
            if to.x == 0 { format!("\x1b[{}H", to.y + 1) } else { format!("\x1b[{};{}H", to.y + 1, to.x + 1) };
        if let Some(from) = self.cursor
            && to.y >= from.y
        {
            // In raw mode a line feed goes down and nowhere else; it cannot scroll, the goal being below.
            let hop = format!("{}{}", "\n".repeat(usize::from(to.y - from.y).min(8)), sideways(from.x, to.x));
            if to.y - from.y < 8 && hop.len() < way.len() {
                way = hop;
            }
            if to.y == from.y
                && to.x > from.x
                && to.x - from.x < 4
                && let Some(same) = self.between(from, to)
                && same.len() <= way.len()
            {
                way = same;
            }
        }
        self.bytes.push_str(&way);
        self.cursor = Some(to);
    }

    fn take_up(&mut self, pen: Pen, symbol: &str) {
        if self.pen != pen && !(symbol == " " && self.pen.blank_looks_as(pen)) {
            let parameters = pen.parameters(self.pen);
            push(&mut self.bytes, format_args!("\x1b[{parameters}m"));
            self.pen = pen;
        }
    }

    /// Where the cursor is after a symbol at `at`.
    fn after(&self, at: Position, symbol: &str) -> Option<Position> {
        // Terminals disagree on how wide a wide or composed character is, and on where the cursor
        // stands when the line is full.
        let sure = symbol.chars().count() == 1 && symbol.width() == 1 && at.x + 1 < self.size.width;
        sure.then(|| Position::new(at.x + 1, at.y))
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
            vec![Modifier::BOLD, Modifier::DIM, Modifier::ITALIC, Modifier::UNDERLINED, Modifier::REVERSED],
            0..4,
        );
        let stroke = (0..SIZE.width, 0..SIZE.height, "[ab 0-9é█⣿名]{1,12}", colours(), colours(), modifiers).prop_map(
            |(x, y, text, foreground, background, modifiers)| Stroke {
                at: Position::new(x, y),
                text,
                style: Style::new()
                    .fg(foreground)
                    .bg(background)
                    .add_modifier(modifiers.into_iter().collect::<Modifier>()),
            },
        );
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
                let seen_symbol = if seen_cell.contents().is_empty() { " " } else { seen_cell.contents() };
                assert_eq!(seen_symbol, cell.symbol(), "at {x},{y}");
                assert_eq!(seen_cell.bgcolor(), seen(cell.bg), "background at {x},{y}");
                assert_eq!(seen_cell.inverse(), cell.modifier.contains(Modifier::REVERSED), "at {x},{y}");
                assert_eq!(seen_cell.underline(), cell.modifier.contains(Modifier::UNDERLINED), "at {x},{y}");
                if !blank {
                    assert_eq!(seen_cell.fgcolor(), seen(cell.fg), "foreground at {x},{y}");
                    assert_eq!(seen_cell.italic(), cell.modifier.contains(Modifier::ITALIC), "at {x},{y}");
                    let plain = !cell.modifier.contains(Modifier::BOLD | Modifier::DIM);
                    // The emulator knows one weight at a time.
                    assert!(!plain || seen_cell.bold() == cell.modifier.contains(Modifier::BOLD), "at {x},{y}");
                    assert!(!plain || seen_cell.dim() == cell.modifier.contains(Modifier::DIM), "at {x},{y}");
                }
            }
        }
    }

    proptest! {
        /// Whatever is drawn, frame after frame, the terminal shows it.
        #[test]
        fn the_terminal_shows_what_was_drawn(frames in prop::collection::vec(strokes(), 1..5)) {
            let mut painter = Painter::new(SIZE);
            let mut emulator = vt100::Parser::new(SIZE.height.try_into().unwrap(), SIZE.width.try_into().unwrap(), 0);
            for strokes in frames {
                let mut drawn = Buffer::empty(SCREEN);
                for Stroke { at, text, style } in &strokes {
                    drawn.set_string(at.x, at.y, text, *style);
                }
                painter.paint(&mut drawn);
                emulator.process(std::mem::take(&mut painter.bytes).as_bytes());
                check_screen(emulator.screen(), &drawn);
            }
        }
    }

    /// What is painted for each of these texts, one after the other.
    fn painted<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<String> {
        let mut painter = Painter::new(SIZE);
        let mut paint = |text: &str| {
            let mut drawn = Buffer::empty(SCREEN);
            Text::raw(text).render(SCREEN, &mut drawn);
            painter.paint(&mut drawn);
            std::mem::take(&mut painter.bytes)
        };
        texts.into_iter().map(&mut paint).collect()
    }

    #[test]
    fn a_character_that_did_not_change_is_painted_when_that_is_shorter() {
        assert_eq!(painted(["1.1 G", "2.2 G"])[1], "\r2.2");
    }

    #[test]
    fn what_did_not_change_costs_nothing() {
        assert_eq!(painted(["61.2 GiB", "61.2 GiB"])[1], "");
        assert_eq!(painted(["e\u{301} 名前", "e\u{301} 名前"])[1], "");
    }

    #[test]
    fn a_digit_costs_a_hop_and_a_byte() {
        let painted = painted(["61.2 GiB  97%\n61.2 GiB  97%", "61.3 GiB  98%\n61.3 GiB  98%"]);
        assert_eq!(painted[1], "\x1b[1;4H3\x1b[7C8\n\x1b[9D3\x1b[7C8");
    }

    #[test]
    fn the_pen_changes_by_the_shorter_way() {
        let red = Pen { foreground: Color::Red, ..Pen::default() };
        let loud = Pen { modifier: Modifier::BOLD | Modifier::UNDERLINED, ..red };
        assert_eq!(Pen::default().parameters(loud), "");
        assert_eq!(loud.parameters(red), "1;4");
        assert_eq!(red.parameters(loud), "0;31");
        let dim = Pen { modifier: Modifier::DIM, ..Pen::default() };
        let bold_and_dim = Pen { modifier: Modifier::DIM | Modifier::BOLD, ..Pen::default() };
        assert_eq!(dim.parameters(bold_and_dim), "0;2");
    }
}
