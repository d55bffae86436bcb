//! Parsers of the values of flags.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PathBufValueParser, PossibleValuesParser, TypedValueParser};
use strum::VariantArray;

use crate::base::units::Bytes;
use crate::base::units::parse_span;

pub(crate) fn positive_span(text: &str) -> Result<Duration, String> {
    positive(parse_span(text)?)
}

pub(crate) fn positive_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| format!("`{text}` is not a number of seconds"))?;
    positive(Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?)
}

pub(crate) fn positive_milliseconds(text: &str) -> Result<Duration, String> {
    let milliseconds = text
        .parse()
        .map_err(|_| format!("`{text}` is not a number of milliseconds"))?;
    positive(Duration::from_millis(milliseconds))
}

fn positive(span: Duration) -> Result<Duration, String> {
    if span.is_zero() {
        Err("must be more than 0".to_owned())
    } else {
        Ok(span)
    }
}

pub(crate) fn capacity(text: &str) -> Result<Bytes, String> {
    let amount: Bytes = text.parse()?;
    // Nobody has a GPU of 80 bytes: a bare number has lost its unit.
    if text.trim().parse::<f64>().is_ok() {
        return Err(format!(
            "`{0}` has no unit: write `{0}GiB` or `{0}MiB`",
            text.trim()
        ));
    }
    if amount == Bytes(0) {
        Err("must be more than 0, such as `80GiB`".to_owned())
    } else {
        Ok(amount)
    }
}

/// Parses a unit of memory, and returns its bytes.
pub(crate) fn unit(text: &str) -> Result<u64, String> {
    Bytes::unit(text.trim())
        .ok_or_else(|| format!("`{text}` is no unit of memory: say bytes, KiB, MiB, GiB, MB or GB"))
}

pub(crate) fn recording_size(text: &str) -> Result<Bytes, String> {
    /// Room for some frames of a large host in each part.
    const SMALLEST: Bytes = Bytes(1_000_000);
    let amount: Bytes = text.parse()?;
    if amount < SMALLEST {
        Err("must be at least 1MB".to_owned())
    } else {
        Ok(amount)
    }
}

/// Returns the file that the user chose for output; `None` for `-`, the standard output.
pub(crate) fn unless_stdout(file: Option<&Path>) -> Option<&Path> {
    file.filter(|file| file.as_os_str() != "-")
}

/// Parses the path of a new file that cannot be the standard output.
pub(crate) fn new_file() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        if path.as_os_str() == "-" {
            Err("the standard output cannot be chosen here: name a file")
        } else {
            Ok(path)
        }
    })
}

pub(crate) fn count(text: &str) -> Result<NonZeroUsize, String> {
    text.parse()
        .map_err(|_| "must be a whole number from 1".to_owned())
}

pub(crate) fn check_program(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        Err("no program is named".to_owned())
    } else {
        Ok(text.to_owned())
    }
}

/// Parses one of a few names, which shell completions offer.
pub(crate) fn one_of<T>() -> impl TypedValueParser<Value = T>
where
    T: VariantArray
        + Into<&'static str>
        + Copy
        + FromStr<Err = String>
        + Clone
        + Send
        + Sync
        + 'static,
{
    PossibleValuesParser::new(
        T::VARIANTS
            .iter()
            .map(|value| -> &'static str { (*value).into() }),
    )
    .try_map(|name| name.parse::<T>())
}
