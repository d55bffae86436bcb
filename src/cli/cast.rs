//! The arguments of `gputop cast`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use crossterm::event::KeyEvent;

use super::screenshot::{parse_key, parse_size};
use crate::app::settings::ThemeName;
use crate::base::units::parse_span;
use crate::flags::{AgentArgs, values};
use crate::protocol::playback::Speed;

/// The longest time before a key, and from one key to the next.
const LONGEST: Duration = Duration::from_mins(10);

#[derive(Debug, Clone, Args)]
pub(crate) struct CastArgs {
    /// The new file, which web pages show as a moving picture; `-` for the standard output
    #[arg(value_name = "OUT.svg")]
    pub(crate) file: PathBuf,

    /// Play this recording instead of a live host
    #[arg(long, value_name = "FILE", conflicts_with = "demo")]
    pub(crate) replay: Option<PathBuf>,

    /// With `--replay`: how many times as fast as recorded, or `max`
    #[arg(long, value_name = "NUMBER|max", requires = "replay", default_value = "1", value_parser = Speed::from_str)]
    pub(crate) speed: Speed,

    /// Press these keys, named as on the help page, as in `i Esc o F9`. A time among them, such as
    /// `3s`, waits longer. Enter ends processes of the simulated machine of `--demo`, and no others
    #[arg(long, value_name = "KEY …", default_value = "", hide_default_value = true, value_parser = parse_steps)]
    pub(crate) keys: CastSteps,

    /// The time before the first key
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_length)]
    pub(crate) after: Duration,

    /// The time after each key
    #[arg(long, value_name = "TIME", default_value = "2500ms", value_parser = parse_length)]
    pub(crate) pause: Duration,

    /// Columns and rows of the picture
    #[arg(long, value_name = "COLUMNSxROWS", default_value = "120x40", value_parser = parse_size)]
    pub(crate) size: (u16, u16),

    /// Colours, as `--theme` of the screen
    #[arg(long, value_name = "THEME", env = "GPUTOP_THEME", value_parser = values::one_of::<ThemeName>(), hide_possible_values = true)]
    pub(crate) theme: Option<ThemeName>,

    /// How long to wait for the first line
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = values::positive_span)]
    pub(crate) timeout: Duration,

    #[command(flatten)]
    pub(crate) agent: AgentArgs,
}

/// The keys of a cast and the times to wait, in this order.
#[derive(Debug, Clone)]
pub(crate) struct CastSteps(Vec<CastStep>);

#[derive(Debug, Clone, Copy)]
enum CastStep {
    Press(KeyEvent),
    Wait(Duration),
}

impl CastArgs {
    /// Returns the time before the first key, and each key with the time after it.
    pub(crate) fn schedule(&self) -> (Duration, Vec<(KeyEvent, Duration)>) {
        let (mut before, mut keys) = (self.after, Vec::new());
        for step in &self.keys.0 {
            match step {
                CastStep::Press(key) => keys.push((*key, self.pause)),
                CastStep::Wait(span) => {
                    *keys.last_mut().map_or(&mut before, |(_, pause)| pause) += *span;
                }
            }
        }
        (before, keys)
    }
}

fn parse_steps(text: &str) -> Result<CastSteps, String> {
    let step = |name: &str| {
        // `5` is a key, and `5s` a time.
        let is_time = name.len() > 1 && name.starts_with(|letter: char| letter.is_ascii_digit());
        if is_time {
            parse_length(name).map(CastStep::Wait)
        } else {
            parse_key(name).map(CastStep::Press)
        }
    };
    let steps: Result<_, _> = text.split_whitespace().map(step).collect();
    steps.map(CastSteps)
}

fn parse_length(text: &str) -> Result<Duration, String> {
    let length = parse_span(text)?;
    if length > LONGEST {
        Err("a picture waits for 10 minutes at most".to_owned())
    } else {
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use crossterm::event::KeyCode;

    use super::*;
    use crate::cli::{Cli, Subcommand};

    #[test]
    fn times_among_the_keys_wait_longer() {
        let args = ["gputop", "cast", "-", "--keys", "1s i 500ms 5 Esc"];
        let args = args.into_iter().chain(["--after", "2s", "--pause", "3s"]);
        let Some(Subcommand::Cast(cast)) = Cli::parse_from(args).task else {
            panic!("it is a cast")
        };
        let (before, keys) = cast.schedule();
        let keys: Vec<(KeyCode, u128)> = keys
            .into_iter()
            .map(|(key, pause)| (key.code, pause.as_millis()))
            .collect();
        assert_eq!(before, Duration::from_secs(3));
        let expected = [
            (KeyCode::Char('i'), 3500),
            (KeyCode::Char('5'), 3000),
            (KeyCode::Esc, 3000),
        ];
        assert_eq!(keys, expected);
    }

    #[test]
    fn a_word_that_is_no_key_and_no_time_is_an_error() {
        let why = |keys: &str| parse_steps(keys).unwrap_err();
        assert_eq!(why("F9 nonsense"), "`nonsense` is no key");
        assert!(
            why("i 3x").contains("`3x` is no span of time"),
            "{}",
            why("i 3x")
        );
        assert_eq!(why("2h"), "a picture waits for 10 minutes at most");
    }
}
