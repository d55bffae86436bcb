//! Writes a drawn screen as SVG: one group for each row, with the backgrounds, the glyphs of blocks
//! and lines as shapes, and the text in one element.
//!
//! Blocks, lines and braille are not left to the font, whose glyphs rarely fill a cell: neighbours
//! would not join.

mod film;

use std::fmt::{self, Write};

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};
use unicode_width::UnicodeWidthStr;

pub(crate) use self::film::Film;

/// The width and height of a cell, and the margin around the screen.
const CELL: (u16, u16) = (9, 18);
const MARGIN: u32 = 12;

/// The font of all texts, as attributes.
const FONT: &str = "font-family=\"'DejaVu Sans Mono',Menlo,Consolas,monospace\" font-size=\"14.9\"";

/// The colours of one terminal: its background, its text, and its sixteen colours.
#[derive(Debug)]
struct PictureColours {
    background: u32,
    text: u32,
    sixteen: [u32; 16],
}

const DARK: PictureColours = PictureColours {
    background: 0x16_181d,
    text: 0xd4_d7dd,
    sixteen: [
        0x1d_1f21, 0xe5_534b, 0x57_ab5a, 0xd9_a334, 0x53_9bf5, 0xb0_83f0, 0x39_c5cf, 0xc9_d1d9,
        0x63_6e7b, 0xff_7b72, 0x7e_e787, 0xf2_cc60, 0x79_c0ff, 0xd2_a8ff, 0x56_d4dd, 0xff_ffff,
    ],
};

const LIGHT: PictureColours = PictureColours {
    background: 0xff_ffff,
    text: 0x1f_2328,
    sixteen: [
        0x24_292f, 0xcf_222e, 0x11_6329, 0x8a_6100, 0x05_50ae, 0x82_50df, 0x1b_7c83, 0x6e_7781,
        0x57_606a, 0xa4_0e26, 0x1a_7f37, 0x9a_6700, 0x21_8bff, 0xa4_75f9, 0x31_92aa, 0x8c_959f,
    ],
};

impl PictureColours {
    /// Returns the colours of a picture whose theme has this background and text; `None` stands for
    /// those of a dark terminal.
    fn on(theme: Option<[u32; 2]>) -> Self {
        theme.map_or(DARK, |[background, text]| Self {
            background,
            text,
            ..if is_light(background) { LIGHT } else { DARK }
        })
    }

    /// The red, green and blue of a colour; `otherwise` for the terminal's own.
    fn rgb(&self, colour: Color, otherwise: u32) -> u32 {
        let sixteen = |number: usize| self.sixteen[number];
        match colour {
            Color::Reset => otherwise,
            Color::Black => sixteen(0),
            Color::Red => sixteen(1),
            Color::Green => sixteen(2),
            Color::Yellow => sixteen(3),
            Color::Blue => sixteen(4),
            Color::Magenta => sixteen(5),
            Color::Cyan => sixteen(6),
            Color::Gray => sixteen(7),
            Color::DarkGray => sixteen(8),
            Color::LightRed => sixteen(9),
            Color::LightGreen => sixteen(10),
            Color::LightYellow => sixteen(11),
            Color::LightBlue => sixteen(12),
            Color::LightMagenta => sixteen(13),
            Color::LightCyan => sixteen(14),
            Color::White => sixteen(15),
            Color::Rgb(red, green, blue) => u32::from_be_bytes([0, red, green, blue]),
            Color::Indexed(number @ 0..=15) => sixteen(number.into()),
            // A cube of 6 x 6 x 6 colours, then 24 greys.
            Color::Indexed(number @ 16..=231) => {
                let level = |step: u8| [0, 95, 135, 175, 215, 255][usize::from(step % 6)];
                let number = number - 16;
                u32::from_be_bytes([0, level(number / 36), level(number / 6), level(number)])
            }
            Color::Indexed(number) => u32::from(8 + 10 * (number - 232)) * 0x01_0101,
        }
    }
}

/// Mixes two colours. `share` is the tenths of the first.
fn mix(colour: u32, other: u32, share: u32) -> u32 {
    let part = |shift: u32| {
        let [first, second] = [colour, other].map(|colour| colour >> shift & 0xff);
        ((first * share + second * (10 - share)) / 10) << shift
    };
    part(16) | part(8) | part(0)
}

/// The colours and the font of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ink {
    colour: u32,
    background: u32,
    is_bold: bool,
    is_underlined: bool,
}

impl Ink {
    fn new(cell: &Cell, palette: &PictureColours) -> Self {
        let has = |modifier| cell.modifier.contains(modifier);
        let (mut colour, mut background) = (
            palette.rgb(cell.fg, palette.text),
            palette.rgb(cell.bg, palette.background),
        );
        if has(Modifier::REVERSED) {
            (colour, background) = (background, colour);
        }
        if has(Modifier::DIM) {
            colour = mix(colour, background, 6);
        }
        Self {
            colour,
            background,
            is_bold: has(Modifier::BOLD),
            is_underlined: has(Modifier::UNDERLINED),
        }
    }
}

/// How a glyph is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Glyph {
    Text,
    /// A part of the cell from the left, and a part from its lower end, in eighths.
    Block(u16, u16),
    /// The upper half of the cell.
    UpperHalf,
    /// The whole cell, in this many tenths of the colour.
    Shade(u32),
    /// A path from the upper left corner of the cell, as relative commands.
    Line(&'static str),
    /// The dots of a braille letter, as the bits of its code point.
    Dots(u32),
}

fn glyph(letter: char) -> Glyph {
    let code = u32::from(letter);
    // The place in a range of letters, which stands for eighths of the cell.
    let eighths = |first: u32| u16::try_from(code - first).unwrap_or(0);
    match letter {
        '▁'..='█' => Glyph::Block(8, eighths(0x2580)),
        '▉'..='▏' => Glyph::Block(8 - eighths(0x2588), 8),
        '▀' => Glyph::UpperHalf,
        '░' => Glyph::Shade(3),
        '▒' => Glyph::Shade(5),
        '▓' => Glyph::Shade(8),
        '─' => Glyph::Line("m0 8.5h9"),
        '╌' => Glyph::Line("m1 8.5h2.5m2 0h2.5"),
        '│' => Glyph::Line("m4.5 0v18"),
        '┊' => Glyph::Line("m4.5 1v2m0 3v2m0 3v2m0 3v1"),
        '┌' => Glyph::Line("m9 8.5h-4.5v9.5"),
        '┐' => Glyph::Line("m0 8.5h4.5v9.5"),
        '└' => Glyph::Line("m9 8.5h-4.5v-8.5"),
        '┘' => Glyph::Line("m0 8.5h4.5v-8.5"),
        '╭' => Glyph::Line("m9 8.5q-4.5 0 -4.5 4.5v5"),
        '╮' => Glyph::Line("m0 8.5q4.5 0 4.5 4.5v5"),
        '╰' => Glyph::Line("m9 8.5q-4.5 0 -4.5 -4.5v-4"),
        '╯' => Glyph::Line("m0 8.5q4.5 0 4.5 -4.5v-4"),
        '├' => Glyph::Line("m4.5 0v18m0 -9.5h4.5"),
        '┤' => Glyph::Line("m4.5 0v18m0 -9.5h-4.5"),
        '┬' => Glyph::Line("m0 8.5h9m-4.5 0v9.5"),
        '┴' => Glyph::Line("m0 8.5h9m-4.5 0v-8.5"),
        '┼' => Glyph::Line("m0 8.5h9m-4.5 -8.5v18"),
        '\u{2800}'..='\u{28ff}' => Glyph::Dots(code & 0xff),
        _ => Glyph::Text,
    }
}

/// A cell that can be seen, with its column.
struct PlacedCell<'a> {
    x: u16,
    text: &'a str,
    glyph: Glyph,
    ink: Ink,
}

/// Returns a screen as the text of an SVG file. `colours` are the background and the text of the
/// theme; `None` for those of a dark terminal.
pub(super) fn svg(buffer: &Buffer, colours: Option<[u32; 2]>) -> String {
    let palette = PictureColours::on(colours);
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _written = write_screen(&mut out, buffer, &palette);
    out
}

/// Whether a colour is nearer to white than to black.
fn is_light(colour: u32) -> bool {
    let [_, red, green, blue] = colour.to_be_bytes().map(u32::from);
    red + green + blue > 3 * 128
}

fn write_screen(out: &mut String, buffer: &Buffer, palette: &PictureColours) -> fmt::Result {
    let width = u32::from(buffer.area.width) * u32::from(CELL.0) + 2 * MARGIN;
    let height = u32::from(buffer.area.height) * u32::from(CELL.1) + 2 * MARGIN;
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"{}\"/>\n\
         <g {FONT} stroke-width=\"1\" fill=\"none\" \
         xml:space=\"preserve\">",
        hex(palette.background)
    )?;
    for y in 0..buffer.area.height {
        let top = u32::from(y) * u32::from(CELL.1) + MARGIN;
        writeln!(out, "<g transform=\"translate({MARGIN},{top})\">")?;
        write_row(out, &row(buffer, y, palette), palette.background)?;
        out.push_str("</g>\n");
    }
    out.push_str("</g>\n</svg>\n");
    Ok(())
}

/// The cells of a row, without those behind a wide letter.
fn row<'a>(buffer: &'a Buffer, y: u16, palette: &PictureColours) -> Vec<PlacedCell<'a>> {
    let mut cells = Vec::new();
    let mut next = 0;
    for x in 0..buffer.area.width {
        let cell = &buffer[(buffer.area.x + x, buffer.area.y + y)];
        if x >= next {
            let text = cell.symbol();
            next = x + u16::try_from(text.width()).unwrap_or(1).max(1);
            let mut letters = text.chars();
            let glyph = letters
                .next()
                .filter(|_| letters.next().is_none())
                .map_or(Glyph::Text, glyph);
            cells.push(PlacedCell {
                x,
                text,
                glyph,
                ink: Ink::new(cell, palette),
            });
        }
    }
    cells
}

fn write_row(out: &mut String, cells: &[PlacedCell<'_>], background: u32) -> fmt::Result {
    for run in cells.chunk_by(|left, right| left.ink.background == right.ink.background) {
        let PlacedCell { x, ink, .. } = run[0];
        if ink.background != background {
            write_rect(
                out,
                (x * CELL.0, width(run) * CELL.0),
                (0.0, f32::from(CELL.1)),
                ink.background,
            )?;
        }
    }
    for run in cells.chunk_by(|left, right| (left.glyph, left.ink) == (right.glyph, right.ink)) {
        write_shapes(out, run)?;
    }
    let is_text = |cell: &PlacedCell<'_>| {
        cell.glyph == Glyph::Text && (cell.text != " " || cell.ink.is_underlined)
    };
    if cells.iter().any(is_text) {
        out.push_str("<text y=\"13.5\">");
        for run in
            cells.chunk_by(|left, right| left.ink == right.ink && is_text(left) == is_text(right))
        {
            if is_text(&run[0]) {
                write_text(out, run)?;
            }
        }
        out.push_str("</text>\n");
    }
    Ok(())
}

/// The columns of cells that are next to each other.
fn width(run: &[PlacedCell<'_>]) -> u16 {
    run.iter()
        .map(|cell| u16::try_from(cell.text.width()).unwrap_or(1).max(1))
        .sum()
}

/// Writes cells with equal glyphs as shapes, if they are no text.
fn write_shapes(out: &mut String, run: &[PlacedCell<'_>]) -> fmt::Result {
    let PlacedCell {
        x,
        glyph,
        ink: Ink {
            colour, background, ..
        },
        ..
    } = run[0];
    let (whole, height) = ((x * CELL.0, width(run) * CELL.0), f32::from(CELL.1));
    match glyph {
        Glyph::Text => Ok(()),
        Glyph::Block(8, eighths) => {
            let top = height * f32::from(8 - eighths) / 8.0;
            write_rect(out, whole, (top, height - top), colour)
        }
        Glyph::UpperHalf => write_rect(out, whole, (0.0, height / 2.0), colour),
        Glyph::Shade(tenths) => {
            write_rect(out, whole, (0.0, height), mix(colour, background, tenths))
        }
        // A long line is one stroke.
        Glyph::Line("m0 8.5h9") => {
            writeln!(
                out,
                "<path d=\"M{} 8.5h{}\" stroke=\"{}\"/>",
                whole.0,
                whole.1,
                hex(colour)
            )
        }
        Glyph::Block(eighths, _) => {
            let width = f32::from(CELL.0 * eighths) / 8.0;
            out.push_str("<path d=\"");
            for cell in run {
                write!(out, "M{} 0h{width}v{height}h-{width}z", cell.x * CELL.0)?;
            }
            writeln!(out, "\" fill=\"{}\"/>", hex(colour))
        }
        Glyph::Line(path) => {
            out.push_str("<path d=\"");
            for cell in run {
                write!(out, "M{} 0{path}", cell.x * CELL.0)?;
            }
            writeln!(out, "\" stroke=\"{}\"/>", hex(colour))
        }
        Glyph::Dots(bits) => {
            out.push_str("<path d=\"");
            for cell in run {
                write_dots(out, cell.x, bits)?;
            }
            writeln!(
                out,
                "\" stroke=\"{}\" stroke-width=\"2\" stroke-linecap=\"round\"/>",
                hex(colour)
            )
        }
    }
}

/// Writes the path of the dots of one braille letter: a line without length for each dot, which its
/// round ends make visible.
fn write_dots(out: &mut String, x: u16, bits: u32) -> fmt::Result {
    /// The column and row of each bit in its cell.
    const PLACES: [(u16, u16); 8] = [
        (0, 0),
        (0, 1),
        (0, 2),
        (1, 0),
        (1, 1),
        (1, 2),
        (0, 3),
        (1, 3),
    ];
    for (_, (right, down)) in PLACES
        .into_iter()
        .enumerate()
        .filter(|(bit, _)| bits >> bit & 1 == 1)
    {
        let left = f32::from(x * CELL.0) + f32::from(CELL.0 * (2 * right + 1)) / 4.0;
        let top = f32::from(CELL.1 * (2 * down + 1)) / 8.0;
        write!(out, "M{left} {top}h0")?;
    }
    Ok(())
}

fn write_rect(
    out: &mut String,
    (left, width): (u16, u16),
    (top, height): (f32, f32),
    colour: u32,
) -> fmt::Result {
    writeln!(
        out,
        "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" fill=\"{}\" shape-rendering=\"crispEdges\"/>",
        hex(colour)
    )
}

/// Writes text in one style. `textLength` keeps it in its columns if the font is wider or narrower.
fn write_text(out: &mut String, run: &[PlacedCell<'_>]) -> fmt::Result {
    let PlacedCell {
        x,
        ink:
            Ink {
                colour,
                is_bold,
                is_underlined,
                ..
            },
        ..
    } = run[0];
    let (left, length) = (x * CELL.0, width(run) * CELL.0);
    write!(
        out,
        "<tspan x=\"{left}\" textLength=\"{length}\" lengthAdjust=\"spacingAndGlyphs\" fill=\"{}\"{}{}>",
        hex(colour),
        if is_bold { " font-weight=\"bold\"" } else { "" },
        if is_underlined {
            " text-decoration=\"underline\""
        } else {
            ""
        },
    )?;
    write_escaped(out, run);
    out.push_str("</tspan>");
    Ok(())
}

fn write_escaped(out: &mut String, run: &[PlacedCell<'_>]) {
    for letter in run.iter().flat_map(|cell| cell.text.chars()) {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            letter => out.push(letter),
        }
    }
}

fn hex(colour: u32) -> String {
    format!("#{colour:06x}")
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;
    use ratatui::style::Style;

    use super::*;

    /// The SVG of one row of text.
    #[track_caller]
    fn check(text: &str, style: Style, expected: &[&str]) {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 12, 1));
        buffer.set_string(1, 0, text, style);
        let svg = svg(&buffer, None);
        let row: Vec<&str> = svg
            .lines()
            .skip(4)
            .take_while(|line| *line != "</g>")
            .collect();
        assert_eq!(row, expected, "{text}");
    }

    #[test]
    fn a_row_is_one_text_element_in_its_columns() {
        check(
            "a<b  &",
            Style::new(),
            &[
                "<text y=\"13.5\"><tspan x=\"9\" textLength=\"27\" lengthAdjust=\"spacingAndGlyphs\" fill=\"#d4d7dd\">a&lt;b\
               </tspan><tspan x=\"54\" textLength=\"9\" lengthAdjust=\"spacingAndGlyphs\" fill=\"#d4d7dd\">&amp;</tspan>\
               </text>",
            ],
        );
        check(
            "漢b",
            Style::new()
                .fg(Color::Indexed(231))
                .add_modifier(Modifier::BOLD),
            &[
                "<text y=\"13.5\"><tspan x=\"9\" textLength=\"27\" lengthAdjust=\"spacingAndGlyphs\" fill=\"#ffffff\" \
               font-weight=\"bold\">漢b</tspan></text>",
            ],
        );
    }

    #[test]
    fn blocks_and_lines_are_shapes_that_join() {
        check(
            "██▂",
            Style::new().fg(Color::Rgb(1, 2, 3)),
            &[
                "<rect x=\"9\" y=\"0\" width=\"18\" height=\"18\" fill=\"#010203\" shape-rendering=\"crispEdges\"/>",
                "<rect x=\"27\" y=\"13.5\" width=\"9\" height=\"4.5\" fill=\"#010203\" shape-rendering=\"crispEdges\"/>",
            ],
        );
        check(
            "───╯",
            Style::new(),
            &[
                "<path d=\"M9 8.5h27\" stroke=\"#d4d7dd\"/>",
                "<path d=\"M36 0m0 8.5q4.5 0 4.5 -4.5v-4\" stroke=\"#d4d7dd\"/>",
            ],
        );
        check(
            "▎",
            Style::new(),
            &["<path d=\"M9 0h2.25v18h-2.25z\" fill=\"#d4d7dd\"/>"],
        );
    }

    #[test]
    fn the_picture_has_the_background_of_the_theme() {
        let picture = svg(&Buffer::empty(Rect::new(0, 0, 1, 1)), Some([0xfd_f6e3, 0]));
        assert!(picture.contains("fill=\"#fdf6e3\"/>"), "{picture}");
        assert!(is_light(0xfd_f6e3) && !is_light(0x00_2b36));
    }

    #[test]
    fn reversed_and_dim_text_is_drawn_as_a_terminal_shows_it() {
        check(
            "x",
            Style::new().fg(Color::Red).add_modifier(Modifier::REVERSED),
            &[
                "<rect x=\"9\" y=\"0\" width=\"9\" height=\"18\" fill=\"#e5534b\" shape-rendering=\"crispEdges\"/>",
                "<text y=\"13.5\"><tspan x=\"9\" textLength=\"9\" lengthAdjust=\"spacingAndGlyphs\" fill=\"#16181d\">x</tspan></text>",
            ],
        );
        assert_eq!(mix(0xff_ffff, 0, 6), 0x99_9999);
        assert_eq!(DARK.rgb(Color::Indexed(232), 0), 0x08_0808);
        assert_eq!(DARK.rgb(Color::Indexed(255), 0), 0xee_eeee);
        assert_eq!(DARK.rgb(Color::Indexed(16 + 36 + 6 * 2 + 3), 0), 0x5f_87af);
    }
}
