//! Draws the screen of a running agent as SVG: the pictures of the README.
//!
//! ```text
//! cargo build && cargo run --example picture -- 100x30 90 '' target/debug/gputop agent --demo > assets/screen.svg
//! ```
//!
//! The arguments: columns and rows, seconds to watch before the keys are pressed, the keys (letters, or
//! `Enter`, `F2`, `F9`, `Space`, with spaces between), and the agent to start.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use crossterm::event::{KeyCode, KeyEvent};
use gputop::app::event::{Effect, Event};
use gputop::app::{App, AppOptions};
use gputop::base::units::Moment;
use gputop::model::HostModel;
use gputop::protocol::host_key::HostKey;
use gputop::protocol::line::Line;
use gputop::view::{self, Theme};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next =
        |name: &str| arguments.next().with_context(|| format!("{name} is missing: see the head of this file"));
    let size = next("the size")?;
    let (width, height) = size.split_once('x').context("the size reads like 100x30")?;
    let (width, height): (u16, u16) = (width.parse()?, height.parse()?);
    let seconds: u64 = next("the time")?.parse()?;
    let keys = next("the keys")?;
    let program = next("the agent")?;
    let mut agent = Command::new(program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut commands = agent.stdin.take().context("the agent has no standard input")?;
    let mut lines = BufReader::new(agent.stdout.take().context("the agent has no standard output")?).split(b'\n');

    let mut app = App::new(AppOptions::default());
    app.update(Event::Resized(width, height));
    watch(&mut app, &mut lines, seconds)?;
    for key in keys.split_whitespace() {
        let code = match key {
            "Enter" => KeyCode::Enter,
            "Down" => KeyCode::Down,
            "Left" => KeyCode::Left,
            "Space" => KeyCode::Char(' '),
            "Tab" => KeyCode::Tab,
            "F2" => KeyCode::F(2),
            "F9" => KeyCode::F(9),
            letter => KeyCode::Char(letter.chars().next().unwrap_or(' ')),
        };
        if let Some(Effect::Commands(commands_of_hosts)) = app.update(Event::Key(KeyEvent::from(code))) {
            for (_, command) in commands_of_hosts {
                command.write(&mut commands)?;
            }
        }
        // After three seconds, the result is on the screen.
        watch(&mut app, &mut lines, 3)?;
    }

    let mut terminal = Terminal::new(TestBackend::new(width, height))?;
    terminal.draw(|frame| view::draw(frame.buffer_mut(), &Theme::new(false, true), &app))?;
    svg(terminal.backend().buffer(), io::stdout().lock())?;
    Ok(())
}

/// Returns the time of the latest snapshot.
fn now(app: &App) -> Moment {
    app.fleet().host(HostKey::FIRST).map_or_else(Moment::default, HostModel::now)
}

/// Applies the lines of the agent for this many seconds of data time.
fn watch(app: &mut App, lines: &mut impl Iterator<Item = io::Result<Vec<u8>>>, seconds: u64) -> anyhow::Result<()> {
    let until = now(app).after(Duration::from_secs(seconds));
    let is_first = app.fleet().host(HostKey::FIRST).is_none();
    let mut begin = None;
    for line in lines {
        if let Some(line) = Line::parse(&line?)? {
            app.update(Event::Line(HostKey::FIRST, Box::new(line)));
        }
        let now = now(app);
        let begin = *begin.get_or_insert(now);
        if if is_first { now.since(begin) >= Duration::from_secs(seconds) } else { now >= until } {
            return Ok(());
        }
    }
    anyhow::bail!("the agent ended")
}

const CELL: (f64, f64) = (8.4, 17.0);
const FOREGROUND: &str = "#d4d7dd";
const BACKGROUND: &str = "#16181d";

/// Writes a screen: a rectangle behind each run of cells that has a background, and the runs as text.
fn svg(buffer: &Buffer, mut out: impl Write) -> io::Result<()> {
    let (columns, rows) = (f64::from(buffer.area.width), f64::from(buffer.area.height));
    let (width, height) = (columns * CELL.0 + 24.0, rows * CELL.1 + 24.0);
    writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}">"#
    )?;
    writeln!(out, r#"<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>"#)?;
    writeln!(
        out,
        r#"<g font-family="'DejaVu Sans Mono','Menlo','Consolas',monospace" font-size="14" xml:space="preserve">"#
    )?;
    for y in 0..buffer.area.height {
        let row: Vec<&Cell> = (0..buffer.area.width).map(|x| &buffer[(x, y)]).collect();
        let mut x = 0;
        for run in row.chunk_by(|a, b| a.style() == b.style()) {
            write_back(&mut out, run, x, y)?;
            x += u16::try_from(run.len()).unwrap_or(u16::MAX);
        }
        x = 0;
        // Letters are separate runs from blocks and lines, whose font may have another width.
        let kind = |cell: &Cell| (cell.style(), dots_of(cell).is_some(), cell.symbol().is_ascii());
        for run in row.chunk_by(|a, b| kind(a) == kind(b)) {
            if dots_of(run[0]).is_some() {
                write_dots(&mut out, run, x, y)?;
            } else {
                write_run(&mut out, run, x, y)?;
            }
            x += u16::try_from(run.len()).unwrap_or(u16::MAX);
        }
    }
    writeln!(out, "</g></svg>")
}

/// Writes the background of a run of cells, if it has one.
fn write_back(out: &mut impl Write, run: &[&Cell], x: u16, y: u16) -> io::Result<()> {
    let cell = run[0];
    if !cell.modifier.contains(Modifier::REVERSED) {
        return Ok(());
    }
    let (left, top) = (12.0 + f64::from(x) * CELL.0, 12.0 + f64::from(y) * CELL.1);
    let length = f64::from(u16::try_from(run.len()).unwrap_or(u16::MAX)) * CELL.0;
    let colour = hex(cell.fg);
    writeln!(out, r#"<rect x="{left:.1}" y="{top:.1}" width="{length:.1}" height="{}" fill="{colour}"/>"#, CELL.1)
}

fn write_run(out: &mut impl Write, run: &[&Cell], x: u16, y: u16) -> io::Result<()> {
    let text: String = run.iter().map(|cell| cell.symbol()).collect();
    let cell = run[0];
    let is_reversed = cell.modifier.contains(Modifier::REVERSED);
    if text.trim().is_empty() && !cell.modifier.contains(Modifier::UNDERLINED) {
        return Ok(());
    }
    let left = 12.0 + f64::from(x) * CELL.0;
    let top = 12.0 + f64::from(y) * CELL.1;
    let length = f64::from(u16::try_from(run.len()).unwrap_or(u16::MAX)) * CELL.0;
    let colour = hex(cell.fg);
    let fill = if is_reversed { BACKGROUND } else { colour };
    let weight = if cell.modifier.contains(Modifier::BOLD) { r#" font-weight="bold""# } else { "" };
    let opacity = if cell.modifier.contains(Modifier::DIM) { r#" opacity="0.55""# } else { "" };
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let baseline = top + 13.0;
    writeln!(
        out,
        r#"<text x="{left:.1}" y="{baseline:.1}" fill="{fill}"{weight}{opacity} textLength="{length:.1}" lengthAdjust="spacingAndGlyphs">{text}</text>"#
    )
}

/// The dots of a braille letter, as bits.
fn dots_of(cell: &Cell) -> Option<u32> {
    let letter = cell.symbol().chars().next()?;
    ('\u{2800}'..='\u{28ff}').contains(&letter).then_some(letter as u32 & 0xff)
}

/// Draws braille as dots, because the font of braille letters often has another width.
fn write_dots(out: &mut impl Write, run: &[&Cell], x: u16, y: u16) -> io::Result<()> {
    /// The place of each bit in its cell.
    const PLACES: [(f64, f64); 8] =
        [(0.0, 0.0), (0.0, 1.0), (0.0, 2.0), (1.0, 0.0), (1.0, 1.0), (1.0, 2.0), (0.0, 3.0), (1.0, 3.0)];
    let dot = |x: u16, (right, down): (f64, f64)| {
        let left = 12.0 + f64::from(x) * CELL.0 + (2.0 * right + 1.0) * CELL.0 / 4.0;
        let top = 12.0 + f64::from(y) * CELL.1 + (2.0 * down + 1.0) * CELL.1 / 8.0;
        format!("M{left:.1} {top:.1}h0")
    };
    let set = (x..).zip(run.iter().filter_map(|cell| dots_of(cell)));
    let path: String = set
        .flat_map(|(x, bits)| {
            (0..).zip(PLACES).filter(move |(bit, _)| bits >> bit & 1 == 1).map(move |(_, place)| (x, place))
        })
        .map(|(x, place)| dot(x, place))
        .collect();
    let opacity = if run[0].modifier.contains(Modifier::DIM) { r#" opacity="0.55""# } else { "" };
    let colour = hex(run[0].fg);
    writeln!(out, r#"<path d="{path}" stroke="{colour}" stroke-width="1.9" stroke-linecap="round"{opacity}/>"#)
}

/// The terminal's colours, as a dark terminal might have them.
fn hex(colour: Color) -> &'static str {
    match colour {
        Color::Red => "#f2777a",
        Color::Green => "#99cc99",
        Color::Yellow => "#ffcc66",
        Color::Cyan => "#66cccc",
        Color::Magenta => "#cc99cc",
        Color::Blue | Color::LightBlue => "#6699cc",
        Color::LightRed => "#f99157",
        _ => FOREGROUND,
    }
}
