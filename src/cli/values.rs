//! Parsers of the values of flags.

use std::num::NonZeroUsize;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::base::units::Bytes;
use crate::protocol::agent_options::{LONGEST_INTERVAL, SHORTEST_INTERVAL};

/// Parses a span of time: `2`, `0.5`, `500ms`, `1m 30s`.
pub(super) fn span(text: &str) -> Result<Duration, String> {
    seconds(text).or_else(|_| humantime::parse_duration(text).map_err(|error| error.to_string()))
}

/// Parses the time between two readings.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let span = span(text)?;
    if span < SHORTEST_INTERVAL {
        return Err("the shortest interval is 100ms".to_owned());
    }
    if span > LONGEST_INTERVAL {
        return Err("the longest interval is 24h".to_owned());
    }
    Ok(span)
}

pub(super) fn positive_span(text: &str) -> Result<Duration, String> {
    positive(span(text)?)
}

pub(super) fn positive_seconds(text: &str) -> Result<Duration, String> {
    positive(seconds(text)?)
}

pub(super) fn positive_milliseconds(text: &str) -> Result<Duration, String> {
    let milliseconds = text.parse().map_err(|_| format!("`{text}` is not a number of milliseconds"))?;
    positive(Duration::from_millis(milliseconds))
}

fn positive(span: Duration) -> Result<Duration, String> {
    if span.is_zero() { Err("must be more than 0".to_owned()) } else { Ok(span) }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("`{text}` is not a number of seconds"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// Parses the memory of a GPU, such as `80GiB`.
pub(super) fn capacity(text: &str) -> Result<Bytes, String> {
    let amount: Bytes = text.parse()?;
    if amount == Bytes(0) { Err("must be more than 0, such as `80GiB`".to_owned()) } else { Ok(amount) }
}

pub(super) fn count(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "must be a whole number from 1".to_owned())
}

/// Accepts a text that names a program.
pub(super) fn check_program(text: &str) -> Result<String, String> {
    if text.trim().is_empty() { Err("no program is named".to_owned()) } else { Ok(text.to_owned()) }
}

/// Parses one of a few names, which shell completions offer.
pub(super) fn one_of<T>(names: [&'static str; 4]) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err = String> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names).try_map(|name| name.parse::<T>())
}
