//! Screens one after the other as one animated SVG.
//!
//! The frames stand below each other, and a CSS animation moves each of them into the picture for
//! its time: an image on a web page may have neither scripts nor fonts of its own. Each row, and
//! each piece of a row, is stored once, however many frames show it.

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::hash::Hash;
use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::{
    CELL, FONT, Glyph, MARGIN, PictureColours, PlacedCell, hex, row, width, write_escaped,
    write_rect, write_shapes,
};
use crate::app::App;
use crate::view::{Theme, draw};

/// Different values, each with a number.
#[derive(Debug)]
struct Numbered<T> {
    list: Vec<T>,
    numbers: HashMap<T, usize>,
}

impl<T: Clone + Eq + Hash> Numbered<T> {
    fn new() -> Self {
        Self {
            list: Vec::new(),
            numbers: HashMap::new(),
        }
    }

    /// Returns the number of a value.
    fn number(&mut self, value: T) -> usize {
        let next = self.list.len();
        *self.numbers.entry(value).or_insert_with_key(|value| {
            self.list.push(value.clone());
            next
        })
    }
}

/// A screen of the film.
#[derive(Debug)]
struct FilmFrame {
    /// The time since the beginning.
    at: Duration,
    /// Whether it stays in the film whatever its interval is.
    is_needed: bool,
    /// The numbers of its rows.
    rows: Vec<usize>,
}

/// The frames of an animated SVG.
#[derive(Debug)]
pub(crate) struct Film {
    theme: Theme,
    palette: PictureColours,
    /// The width and height of the picture.
    size: (u32, u32),
    /// The SVG of the shapes and texts that rows consist of.
    pieces: Numbered<String>,
    /// The numbers of the pieces of each row.
    rows: Numbered<Vec<usize>>,
    frames: Vec<FilmFrame>,
}

impl Film {
    /// An empty film of the screens of this app, on the background of its theme.
    pub(crate) fn new(theme: Theme, app: &App) -> Self {
        let colours = theme
            .with(app.drawn_theme())
            .for_picture()
            .picture_colours();
        Self::of_size(app.size, theme, PictureColours::on(colours))
    }

    fn of_size((columns, rows): (u16, u16), theme: Theme, palette: PictureColours) -> Self {
        let pixels = |cells: u16, of_cell: u16| u32::from(cells) * u32::from(of_cell) + 2 * MARGIN;
        Self {
            theme: theme.for_picture(),
            palette,
            size: (pixels(columns, CELL.0), pixels(rows, CELL.1)),
            pieces: Numbered::new(),
            rows: Numbered::new(),
            frames: Vec::new(),
        }
    }

    /// Takes a frame of the screen. One that is not needed may be left out of a film with fewer
    /// frames.
    pub(crate) fn take(&mut self, app: &App, at: Duration, is_needed: bool) {
        let mut buffer = Buffer::empty(Rect::new(0, 0, app.size.0, app.size.1));
        draw(&mut buffer, &self.theme, app);
        self.add(&buffer, at, is_needed);
    }

    fn add(&mut self, buffer: &Buffer, at: Duration, is_needed: bool) {
        let rows = (0..buffer.area.height).map(|y| {
            let pieces = pieces(&row(buffer, y, &self.palette), self.palette.background);
            let numbers = pieces.into_iter().map(|piece| self.pieces.number(piece));
            self.rows.number(numbers.collect())
        });
        let rows = rows.collect();
        self.frames.push(FilmFrame {
            at,
            is_needed,
            rows,
        });
    }

    /// Returns the film as an SVG file that lasts until `end` and then begins again. Frames that
    /// are not needed follow the one before after at least `interval`.
    fn svg(&self, end: Duration, interval: Duration) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _written = self.write(&mut out, &self.frames_at(interval), end);
        out
    }

    /// Returns the film as an SVG file of at most this many bytes, and the shortest interval between
    /// its frames that is enough: `interval`, or twice, four times and so on as much. Returns the
    /// size of the file as an error if it is larger even without the frames that are not needed.
    pub(crate) fn svg_within(
        &self,
        most: usize,
        end: Duration,
        interval: Duration,
    ) -> Result<(String, Duration), usize> {
        let mut interval = interval;
        loop {
            let svg = self.svg(end, interval);
            if svg.len() <= most {
                return Ok((svg, interval));
            }
            if interval > end {
                return Err(svg.len());
            }
            interval *= 2;
        }
    }

    /// Returns the frames that differ from the one before.
    fn frames_at(&self, interval: Duration) -> Vec<&FilmFrame> {
        let mut frames: Vec<&FilmFrame> = Vec::new();
        let mut latest: Option<Duration> = None;
        for frame in &self.frames {
            let is_due = latest.is_none_or(|latest| frame.at.saturating_sub(latest) >= interval);
            if frame.is_needed || is_due {
                latest = Some(frame.at);
                if frames.last().is_none_or(|before| before.rows != frame.rows) {
                    frames.push(frame);
                }
            }
        }
        frames
    }

    fn write(&self, out: &mut String, frames: &[&FilmFrame], end: Duration) -> fmt::Result {
        let (width, height) = self.size;
        writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">"
        )?;
        self.write_style(out, frames, end)?;
        writeln!(
            out,
            "<rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"{}\"/>",
            hex(self.palette.background)
        )?;
        let row_uses = uses(
            self.rows.list.len(),
            frames.iter().flat_map(|frame| &frame.rows),
        );
        let shown = (0..self.rows.list.len()).filter(|number| row_uses[*number] > 0);
        let pieces = shown.flat_map(|number| &self.rows.list[number]);
        let piece_uses = uses(self.pieces.list.len(), pieces);
        out.push_str("<defs>\n");
        for (number, piece) in self.pieces.list.iter().enumerate() {
            if piece_uses[number] > 1 {
                // Each piece is one element, whose name has four letters.
                let (name, rest) = piece.split_at(piece.find(' ').unwrap_or(0));
                writeln!(out, "{name} id=\"p{number}\"{rest}")?;
            }
        }
        for (number, pieces) in self.rows.list.iter().enumerate() {
            if row_uses[number] > 1 && !pieces.is_empty() {
                write!(out, "<g id=\"r{number}\">")?;
                self.write_pieces(out, pieces, &piece_uses)?;
                out.push_str("</g>\n");
            }
        }
        writeln!(
            out,
            "</defs>\n<g class=\"film\" {FONT} stroke-width=\"1\" fill=\"none\">"
        )?;
        for (place, frame) in (0..).zip(frames) {
            let top = MARGIN + height * place;
            writeln!(out, "<g transform=\"translate({MARGIN},{top})\">")?;
            for (y, number) in (0..).zip(&frame.rows) {
                let (top, pieces) = (y * CELL.1, &self.rows.list[*number]);
                if row_uses[*number] > 1 && !pieces.is_empty() {
                    writeln!(out, "<use href=\"#r{number}\" y=\"{top}\"/>")?;
                } else if !pieces.is_empty() {
                    write!(out, "<g transform=\"translate(0,{top})\">")?;
                    self.write_pieces(out, pieces, &piece_uses)?;
                    out.push_str("</g>\n");
                }
            }
            out.push_str("</g>\n");
        }
        out.push_str("</g>\n</svg>\n");
        Ok(())
    }

    /// Writes the animation: which frame is in the picture from when on.
    fn write_style(&self, out: &mut String, frames: &[&FilmFrame], end: Duration) -> fmt::Result {
        let seconds = end.as_secs_f64().max(0.1);
        out.push_str("<style>@keyframes film{");
        for (place, frame) in (0..).zip(frames) {
            let percent = 100.0 * frame.at.as_secs_f64() / seconds;
            let top = self.size.1 * place;
            write!(out, "{percent:.3}%{{transform:translateY(-{top}px)}}")?;
        }
        writeln!(
            out,
            "}}.film{{animation:film {seconds:.3}s step-end infinite}}\
             @media (prefers-reduced-motion:reduce){{.film{{animation:none}}}}\
             rect{{shape-rendering:crispEdges}}</style>"
        )
    }

    fn write_pieces(&self, out: &mut String, pieces: &[usize], uses: &[usize]) -> fmt::Result {
        for number in pieces {
            if uses[*number] > 1 {
                write!(out, "<use href=\"#p{number}\"/>")?;
            } else {
                out.push_str(&self.pieces.list[*number]);
            }
        }
        Ok(())
    }
}

/// Returns how often each of `count` numbers is used.
fn uses<'a>(count: usize, numbers: impl Iterator<Item = &'a usize>) -> Vec<usize> {
    let mut uses = vec![0; count];
    for number in numbers {
        uses[*number] += 1;
    }
    uses
}

/// Returns the elements of a row: backgrounds, then shapes, then texts.
fn pieces(cells: &[PlacedCell<'_>], background: u32) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut add = |write: &dyn Fn(&mut String) -> fmt::Result| {
        let mut piece = String::new();
        // Writing to a string cannot fail.
        let _written = write(&mut piece);
        if !piece.is_empty() {
            piece.truncate(piece.trim_end().len());
            pieces.push(piece);
        }
    };
    for run in cells.chunk_by(|left, right| left.ink.background == right.ink.background) {
        let PlacedCell { x, ink, .. } = run[0];
        if ink.background != background {
            let across = (x * CELL.0, width(run) * CELL.0);
            add(&|out| write_rect(out, across, (0.0, f32::from(CELL.1)), ink.background));
        }
    }
    for run in cells.chunk_by(|left, right| (left.glyph, left.ink) == (right.glyph, right.ink)) {
        add(&|out| write_shapes(out, run));
    }
    for run in texts(cells) {
        add(&|out| write_text(out, run));
    }
    pieces
}

/// Returns the texts of a row: cells in one style, with single spaces at most.
fn texts<'a, 'b>(cells: &'a [PlacedCell<'b>]) -> Vec<&'a [PlacedCell<'b>]> {
    let is_visible = |cell: &PlacedCell<'_>| cell.text != " " || cell.ink.is_underlined;
    let is_text = |cell: &PlacedCell<'_>| cell.glyph == Glyph::Text && is_visible(cell);
    let (mut texts, mut at) = (Vec::new(), 0);
    while let Some(first) = cells[at..].iter().position(is_text).map(|place| at + place) {
        let goes_on = |cell: Option<&PlacedCell<'_>>| {
            cell.is_some_and(|cell| is_text(cell) && cell.ink == cells[first].ink)
        };
        at = first + 1;
        while goes_on(cells.get(at))
            || cells.get(at).is_some_and(|cell| cell.text == " ") && goes_on(cells.get(at + 1))
        {
            at += 1;
        }
        texts.push(&cells[first..at]);
    }
    texts
}

/// Writes text in one style. `textLength` keeps it in its columns if the font is wider or narrower.
fn write_text(out: &mut String, run: &[PlacedCell<'_>]) -> fmt::Result {
    let PlacedCell { x, ink, .. } = run[0];
    let (left, length) = (x * CELL.0, width(run) * CELL.0);
    write!(
        out,
        "<text x=\"{left}\" y=\"13.5\" textLength=\"{length}\" fill=\"{}\"",
        hex(ink.colour)
    )?;
    if ink.is_bold {
        out.push_str(" font-weight=\"bold\"");
    }
    if ink.is_underlined {
        out.push_str(" text-decoration=\"underline\"");
    }
    out.push('>');
    write_escaped(out, run);
    out.push_str("</text>");
    Ok(())
}

#[cfg(test)]
mod tests {
    use ratatui::style::{Color, Style};

    use super::*;
    use crate::base::terminal::ColourDepth;

    /// A film of one frame a second. Each has these rows.
    fn film(frames: &[&[&str]]) -> Film {
        let size = (30, 4);
        let theme = Theme::new(false, ColourDepth::Rgb);
        let mut film = Film::of_size(size, theme, PictureColours::on(None));
        for (second, rows) in (0..).zip(frames) {
            let mut buffer = Buffer::empty(Rect::new(0, 0, size.0, size.1));
            for (y, text) in (0..).zip(*rows) {
                buffer.set_string(0, y, text, Style::new());
            }
            film.add(&buffer, Duration::from_secs(second), second == 0);
        }
        film
    }

    fn svg(film: &Film, interval: u64) -> String {
        let end = Duration::from_secs(film.frames.len() as u64);
        film.svg(end, Duration::from_secs(interval))
    }

    fn count(svg: &str, text: &str) -> usize {
        svg.matches(text).count()
    }

    #[test]
    fn each_frame_is_in_the_picture_for_its_time() {
        let svg = svg(&film(&[&["a"], &["b"], &["b"], &["c"]]), 1);
        // Four rows of 18 pixels, and a margin of 12 at both sides.
        let moves = "0.000%{transform:translateY(-0px)}25.000%{transform:translateY(-96px)}\
                     75.000%{transform:translateY(-192px)}";
        let style = format!(
            "<style>@keyframes film{{{moves}}}.film{{animation:film 4.000s step-end infinite}}"
        );
        assert!(svg.contains(&style), "{svg}");
        for top in [12, 108, 204] {
            assert_eq!(count(&svg, &format!("translate(12,{top})")), 1, "{svg}");
        }
        assert_eq!(count(&svg, ">b</text>"), 1, "{svg}");
    }

    #[test]
    fn equal_rows_are_stored_once() {
        let svg = svg(
            &film(&[
                &["same row", "x 1"],
                &["same row", "x 2"],
                &["x 1", "same row"],
            ]),
            1,
        );
        assert_eq!(count(&svg, ">same row</text>"), 1, "{svg}");
        assert_eq!(count(&svg, ">x 1</text>"), 1, "{svg}");
        assert_eq!(count(&svg, "<use href=\"#r0\" y=\"0\"/>"), 2, "{svg}");
        assert_eq!(count(&svg, "<use href=\"#r0\" y=\"18\"/>"), 1, "{svg}");
    }

    #[test]
    fn equal_texts_of_different_rows_are_stored_once() {
        let svg = svg(&film(&[&["first word  1"], &["first word  2"]]), 1);
        assert_eq!(count(&svg, ">first word</text>"), 1, "{svg}");
        assert!(svg.contains("<text id=\"p0\" x=\"0\""), "{svg}");
        assert_eq!(count(&svg, "<use href=\"#p0\"/>"), 2, "{svg}");
    }

    #[test]
    fn a_longer_interval_leaves_out_frames_that_are_not_needed() {
        let frames: Vec<String> = (0..8).map(|second| second.to_string()).collect();
        let rows: Vec<[&str; 1]> = frames.iter().map(|text| [text.as_str()]).collect();
        let rows: Vec<&[&str]> = rows.iter().map(<[&str; 1]>::as_slice).collect();
        let mut film = film(&rows);
        film.frames[5].is_needed = true;
        let shown = |interval| {
            let frames = film.frames_at(Duration::from_secs(interval));
            frames
                .iter()
                .map(|frame| frame.at.as_secs())
                .collect::<Vec<_>>()
        };
        assert_eq!(shown(1), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(shown(2), [0, 2, 4, 5, 7]);
        assert_eq!(shown(60), [0, 5]);
        let (all, few) = (svg(&film, 1), svg(&film, 60));
        assert!(few.len() < all.len() && !few.contains(">7</text>"), "{few}");
    }

    #[test]
    fn a_film_that_is_too_large_has_fewer_frames() {
        let rows: Vec<String> = (0..16)
            .map(|second| format!("{second}").repeat(9))
            .collect();
        let rows: Vec<[&str; 1]> = rows.iter().map(|text| [text.as_str()]).collect();
        let rows: Vec<&[&str]> = rows.iter().map(<[&str; 1]>::as_slice).collect();
        let (film, second) = (film(&rows), Duration::from_secs(1));
        let size = |interval: u64| svg(&film, interval).len();
        let within = |most: usize| film.svg_within(most, second * 16, second);
        let interval = |most: usize| within(most).map(|(_, interval)| interval.as_secs());
        assert_eq!(interval(size(1)), Ok(1));
        assert_eq!(interval(size(1) - 1), Ok(2));
        assert_eq!(interval(size(4)), Ok(4));
        assert_eq!(within(size(4)).map(|(svg, _)| svg), Ok(svg(&film, 4)));
        assert_eq!(within(size(60) - 1), Err(size(60)));
    }

    #[test]
    fn a_film_of_a_minute_in_which_one_number_changes_is_small() {
        let rows: Vec<[String; 2]> = (0..60)
            .map(|second| {
                [
                    "a row that never changes".repeat(2),
                    format!("time {second}"),
                ]
            })
            .collect();
        let rows: Vec<Vec<&str>> = rows
            .iter()
            .map(|rows| rows.iter().map(String::as_str).collect())
            .collect();
        let rows: Vec<&[&str]> = rows.iter().map(Vec::as_slice).collect();
        let size = svg(&film(&rows), 1).len();
        assert!(size < 20_000, "{size}");
    }

    #[test]
    fn single_spaces_belong_to_a_text() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 30, 1));
        buffer.set_string(0, 0, "a <b  c", Style::new());
        buffer.set_string(7, 0, " d", Style::new().fg(Color::Rgb(1, 2, 3)));
        let pieces = pieces(
            &row(&buffer, 0, &PictureColours::on(None)),
            PictureColours::on(None).background,
        );
        assert_eq!(
            pieces,
            [
                "<text x=\"0\" y=\"13.5\" textLength=\"36\" fill=\"#d4d7dd\">a &lt;b</text>",
                "<text x=\"54\" y=\"13.5\" textLength=\"9\" fill=\"#d4d7dd\">c</text>",
                "<text x=\"72\" y=\"13.5\" textLength=\"9\" fill=\"#010203\">d</text>",
            ]
        );
    }
}
