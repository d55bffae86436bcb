//! The options of `--screenshot`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::app::layout::SMALLEST;
use crate::base::units::parse_span;

/// The largest picture, in columns and rows.
const LARGEST: (u16, u16) = (1000, 1000);

#[derive(Debug, Clone, Args)]
pub(crate) struct ScreenshotArgs {
    /// Draw the screen into this SVG file and exit, without a terminal; `-` for the standard output
    #[arg(id = "screenshot", long, value_name = "FILE", conflicts_with_all = ["once", "plain", "json"])]
    pub(crate) file: Option<PathBuf>,

    /// Columns and rows of the screenshot
    #[arg(long, value_name = "COLUMNSxROWS", requires = "screenshot", default_value = "120x40", value_parser = parse_size)]
    pub(crate) size: (u16, u16),

    /// Watch for this time before the screenshot [default: 3s, or a whole recording]
    #[arg(long, value_name = "TIME", requires = "screenshot", value_parser = parse_span)]
    pub(crate) after: Option<Duration>,

    /// Press these keys before the screenshot
    #[arg(long, requires = "screenshot", hide = true, value_delimiter = ' ', value_parser = parse_key)]
    pub(crate) keys: Vec<KeyEvent>,
}

pub(super) fn parse_size(text: &str) -> Result<(u16, u16), String> {
    let parsed = text
        .split_once('x')
        .and_then(|(columns, rows)| Some((columns.parse().ok()?, rows.parse().ok()?)));
    let (columns, rows) =
        parsed.ok_or_else(|| "a size has columns and rows, such as 160x50".to_owned())?;
    if columns < SMALLEST.0 || rows < SMALLEST.1 {
        return Err(format!(
            "the smallest screen is {}x{}",
            SMALLEST.0, SMALLEST.1
        ));
    }
    if columns > LARGEST.0 || rows > LARGEST.1 {
        return Err(format!(
            "the largest picture is {}x{}",
            LARGEST.0, LARGEST.1
        ));
    }
    Ok((columns, rows))
}

/// Parses a key by its name on the help page.
pub(super) fn parse_key(name: &str) -> Result<KeyEvent, String> {
    let mut letters = name.chars();
    let code = match (name, letters.next(), letters.next(), letters.next()) {
        ("Enter", ..) => KeyCode::Enter,
        ("Esc", ..) => KeyCode::Esc,
        ("Tab", ..) => KeyCode::Tab,
        ("Space", ..) => KeyCode::Char(' '),
        ("Up", ..) => KeyCode::Up,
        ("Down", ..) => KeyCode::Down,
        ("Left", ..) => KeyCode::Left,
        ("Right", ..) => KeyCode::Right,
        ("Home", ..) => KeyCode::Home,
        ("End", ..) => KeyCode::End,
        ("PgUp", ..) => KeyCode::PageUp,
        ("PgDn", ..) => KeyCode::PageDown,
        (_, Some(letter), None, None) => KeyCode::Char(letter),
        (_, Some('^'), Some(letter), None) => {
            return Ok(KeyEvent::new(
                KeyCode::Char(letter.to_ascii_lowercase()),
                KeyModifiers::CONTROL,
            ));
        }
        (_, Some('F'), ..) => KeyCode::F(
            name[1..]
                .parse()
                .map_err(|_| format!("`{name}` is no key"))?,
        ),
        _ => return Err(format!("`{name}` is no key")),
    };
    Ok(code.into())
}
