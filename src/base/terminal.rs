//! The terminal at the standard output, for the screen and for reports: its abilities, its size,
//! and unbuffered writes.

use std::env;
use std::ffi::OsString;
use std::io::{self, IsTerminal};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::termios;

/// The columns and lines to assume where the terminal does not report them: those of a VT100.
const DEFAULT_SIZE: (u16, u16) = (80, 24);

/// How many colours a terminal shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ColourDepth {
    /// None, or none are wanted.
    None,
    /// The sixteen of its own.
    Sixteen,
    /// The palette of 256.
    Palette,
    /// All that 24 bits can tell.
    Rgb,
}

/// Whether the background of a terminal is dark or light.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Background {
    /// Light text can be read on it.
    Dark,
    /// Dark text can be read on it.
    Light,
}

impl Background {
    /// Reads `COLORFGBG`, which some terminals set; `None` where it names no background.
    pub(crate) fn from_env() -> Option<Self> {
        Self::from_colorfgbg(env::var("COLORFGBG").ok()?.as_str())
    }

    /// Parses `FOREGROUND;BACKGROUND` or `FOREGROUND;…;BACKGROUND`: two of the sixteen colours.
    fn from_colorfgbg(value: &str) -> Option<Self> {
        let (_, background) = value.rsplit_once(';')?;
        match background.parse::<u8>().ok()? {
            0..=6 | 8 => Some(Self::Dark),
            7 | 9..=15 => Some(Self::Light),
            _ => None,
        }
    }

    /// Judges a colour by how bright its red, green and blue, from 0 to 1, look together.
    pub(crate) fn of_colour([red, green, blue]: [f64; 3]) -> Self {
        if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 {
            Self::Light
        } else {
            Self::Dark
        }
    }
}

/// The abilities of the terminal and the locale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalAbilities {
    /// Whether output must be ASCII only.
    pub ascii: bool,
    /// The colours that can be shown and are wanted.
    pub colours: ColourDepth,
}

impl TerminalAbilities {
    /// Reads `TERM`, `COLORTERM`, `NO_COLOR` and the locale from the environment.
    pub fn from_env() -> Self {
        Self::from_variables(|name| env::var_os(name))
    }

    /// Whether colours can be shown and are wanted.
    pub(crate) fn has_colour(self) -> bool {
        self.colours > ColourDepth::None
    }

    fn from_variables(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let set = |name: &str| {
            let value = variable(name).filter(|value| !value.is_empty());
            value.map(|value| value.to_string_lossy().into_owned())
        };
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
            .into_iter()
            .find_map(set)
            .unwrap_or_default()
            .to_lowercase();
        let term = set("TERM").unwrap_or_default();
        // The Linux console has 512 glyphs and no braille; the other terminals are older than
        // Unicode.
        let lacks_unicode = ["", "dumb", "linux", "ansi", "cons25"].contains(&term.as_str())
            || term.starts_with("vt");
        // Their names do not say that they have at least 256 colours, and `COLORTERM` does not
        // travel over SSH.
        let has_palette = [
            "alacritty",
            "foot",
            "wezterm",
            "xterm-ghostty",
            "xterm-kitty",
        ]
        .contains(&term.as_str());
        let lacks_colour = ["", "dumb"].contains(&term.as_str())
            || term.starts_with("vt1")
            || term.starts_with("vt2");
        Self {
            ascii: lacks_unicode || !(locale.contains("utf-8") || locale.contains("utf8")),
            colours: match set("COLORTERM").as_deref() {
                _ if lacks_colour || set("NO_COLOR").is_some() => ColourDepth::None,
                Some("truecolor" | "24bit") => ColourDepth::Rgb,
                _ if term.contains("direct") => ColourDepth::Rgb,
                _ if term.contains("256color") || has_palette => ColourDepth::Palette,
                _ => ColourDepth::Sixteen,
            },
        }
    }
}

/// Returns whether the standard output is a terminal.
pub fn is_stdout() -> bool {
    io::stdout().is_terminal()
}

/// Returns whether the standard output is a terminal that can show a screen. One with `TERM=dumb`,
/// such as the shell of Emacs, cannot move its cursor.
pub fn can_show_screen() -> bool {
    is_stdout() && !is_dumb()
}

/// Returns whether the terminal is called dumb.
pub fn is_dumb() -> bool {
    env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Returns the terminal's columns and lines; 80 and 24 when they are not known.
pub fn size() -> (u16, u16) {
    match termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col, size.ws_row),
        _ => DEFAULT_SIZE,
    }
}

/// Returns the columns of the terminal. Where the standard output is none, returns `COLUMNS` of the
/// environment; `None` when that is not set.
pub fn width() -> Option<usize> {
    if is_stdout() {
        return Some(usize::from(size().0));
    }
    env::var("COLUMNS")
        .ok()?
        .parse()
        .ok()
        .filter(|columns| *columns > 0)
}

/// Writes these bytes to the standard output at once. Rust's buffer would keep them until a line
/// ends.
///
/// # Errors
///
/// When the standard output is closed or cannot be written.
pub fn write_unbuffered(mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(io::stdout(), bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            // Another program on the same terminal may have made the terminal non-blocking.
            Err(Errno::AGAIN) => {
                let _interrupted = poll(&mut [PollFd::new(&io::stdout(), PollFlags::OUT)], None);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::ColourDepth::{None, Palette, Rgb, Sixteen};
    use super::*;

    #[track_caller]
    fn check(env: &[(&str, &str)], ascii: bool, colours: ColourDepth) {
        let variable = |name: &str| {
            env.iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| value.into())
        };
        assert_eq!(
            TerminalAbilities::from_variables(variable),
            TerminalAbilities { ascii, colours },
            "{env:?}"
        );
    }

    #[test]
    fn the_locale_and_the_terminal_determine_the_abilities() {
        check(
            &[("LANG", "en_US.UTF-8"), ("TERM", "xterm-256color")],
            false,
            Palette,
        );
        check(&[("LANG", "C.utf8"), ("TERM", "screen")], false, Sixteen);
        check(
            &[("LANG", "en_US.UTF-8"), ("LC_ALL", "C"), ("TERM", "xterm")],
            true,
            Sixteen,
        );
        check(
            &[
                ("LANG", "C"),
                ("LC_CTYPE", "de_DE.UTF-8"),
                ("LC_ALL", ""),
                ("TERM", "xterm"),
            ],
            false,
            Sixteen,
        );
        check(&[("TERM", "xterm")], true, Sixteen);
        check(&[("LANG", "en_US.UTF-8"), ("TERM", "linux")], true, Sixteen);
        check(&[("LANG", "en_US.UTF-8"), ("TERM", "vt100")], true, None);
        check(&[("LANG", "en_US.UTF-8"), ("TERM", "dumb")], true, None);
        check(&[("LANG", "en_US.UTF-8")], true, None);
    }

    #[test]
    fn colorfgbg_names_the_background_last() {
        let background = Background::from_colorfgbg;
        assert_eq!(background("15;0"), Some(Background::Dark));
        assert_eq!(background("7;8"), Some(Background::Dark));
        assert_eq!(background("0;15"), Some(Background::Light));
        assert_eq!(background("0;default;7"), Some(Background::Light));
        for unknown in ["", "15", "0;default", "0;16", "0;-1"] {
            assert_eq!(background(unknown), Option::None, "{unknown}");
        }
    }

    #[test]
    fn no_color_turns_colours_off() {
        check(
            &[("LANG", "C.UTF-8"), ("TERM", "xterm"), ("NO_COLOR", "1")],
            false,
            None,
        );
        check(
            &[("LANG", "C.UTF-8"), ("TERM", "xterm"), ("NO_COLOR", "")],
            false,
            Sixteen,
        );
    }

    #[test]
    fn the_terminal_says_how_many_colours_it_has() {
        check(
            &[
                ("LANG", "C.UTF-8"),
                ("TERM", "xterm-256color"),
                ("COLORTERM", "truecolor"),
            ],
            false,
            Rgb,
        );
        check(
            &[
                ("LANG", "C.UTF-8"),
                ("TERM", "xterm"),
                ("COLORTERM", "24bit"),
            ],
            false,
            Rgb,
        );
        check(
            &[
                ("LANG", "C.UTF-8"),
                ("TERM", "tmux-256color"),
                ("COLORTERM", "yes"),
            ],
            false,
            Palette,
        );
        check(
            &[("LANG", "C.UTF-8"), ("TERM", "xterm-kitty")],
            false,
            Palette,
        );
    }
}
