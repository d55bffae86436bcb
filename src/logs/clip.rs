//! `gputop clip`: copies the time between two moments of a recording to a recording of its own.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use tokio::time::Instant;

use super::recording_output::{RecordingOutput, line_ms};
use crate::base::text::Text;
use crate::base::time::local_time;
use crate::base::units::{Bytes, Elapsed};
use crate::flags::values;
use crate::model::Fleet;
use crate::model::RecordedClock;
use crate::output::{self, Exit, print_error};
use crate::protocol::host_key::HostKey;
use crate::protocol::host_tag::HostTag;
use crate::protocol::line::Line;
use crate::source::{RecordingLimits, RecordingReader, RecordingWriter, parse_line};

const DAY_MS: u64 = 86_400_000;

/// The options of `gputop clip`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ClipArgs {
    /// The recording
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// The first moment: `03:10` (the last one in the recording), `2026-07-14 03:10`, RFC 3339, or
    /// `-2h` before its end [default: its beginning]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    from: Option<String>,

    /// The last moment [default: the end of the recording]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    to: Option<String>,

    /// The new file [default: the name of FILE with `-clip`, in the current folder]
    #[arg(short, long, value_name = "FILE", value_parser = values::new_file())]
    output: Option<PathBuf>,
}

/// Copies a part of a recording.
///
/// # Errors
///
/// When the recording cannot be read, has no line between the two times, or the new file exists or
/// cannot be written.
pub(crate) fn run(args: &ClipArgs) -> anyhow::Result<ExitCode> {
    let name = Text::new(args.file.as_os_str().as_encoded_bytes());
    let cannot_read = || format!("cannot read {name}");
    let mut reader = RecordingReader::open(&args.file).with_context(cannot_read)?;
    let span = reader
        .span()
        .with_context(cannot_read)?
        .ok_or_else(|| anyhow!("{name} has no line with a time"))?;
    let clock = RecordedClock {
        offset: utc_offset(&mut reader).with_context(cannot_read)?,
    };
    let (from, to) = times(args, clock, span).map_err(anyhow::Error::msg)?;
    let shown = |unix_ms| local_time(unix_ms, clock.offset)[..19].replace('T', " ");
    if from > to {
        return Err(anyhow!(
            "--from {} is after --to {}",
            shown(from),
            shown(to)
        ));
    }
    if to < span.0 || from > span.1 {
        let (first, last) = (shown(span.0), shown(span.1));
        return Err(anyhow!(
            "{name} has no lines between {} and {}: it begins {first} and ends {last}",
            shown(from),
            shown(to)
        ));
    }
    let path = args.output.clone().unwrap_or_else(|| clip_name(&args.file));
    if path.symlink_metadata().is_ok() {
        return Err(anyhow!(
            "{} exists: choose another file with -o",
            path.display()
        ));
    }
    let limits = RecordingLimits {
        max_size: Bytes(u64::MAX),
        max_age: Duration::MAX,
    };
    let writer = RecordingWriter::open(&path, limits).map_err(anyhow::Error::msg)?;
    reader.seek(from).with_context(cannot_read)?;
    let mut output = RecordingOutput::new(Fleet::default(), writer);
    let copied = copy(&mut reader, &mut output, from, to).with_context(cannot_read)?;
    reader
        .problems()
        .into_iter()
        .for_each(|problem| print_error(&problem.into()));
    let notes = output.writer.close(Instant::now());
    if let Some(note) = notes.first() {
        return Err(anyhow!("cannot write {}: {note}", path.display()));
    }
    let Some((first, last)) = copied else {
        return Err(anyhow!("there is no readable line between the two times"));
    };
    let length = Elapsed(Duration::from_millis(last - first)).to_string();
    let size = Bytes(path.metadata()?.len());
    let sentence = format!(
        "wrote {}: {} to {} ({}, {size})\n",
        path.display(),
        shown(first),
        shown(last),
        length.trim()
    );
    output::print(sentence.as_bytes())?;
    Ok(Exit::Success.into())
}

/// Returns the name of a clip in the current folder: `night-clip.jsonl.zst`.
fn clip_name(file: &Path) -> PathBuf {
    let mut name: OsString = file.file_name().unwrap_or_default().into();
    for ending in [".zst", ".jsonl"] {
        let stripped = name
            .to_string_lossy()
            .strip_suffix(ending)
            .map(OsString::from);
        name = stripped.unwrap_or(name);
    }
    name.push("-clip.jsonl.zst");
    name.into()
}

/// Returns the time zone of the first host, in seconds ahead of UTC; 0 if it is not known.
fn utc_offset(reader: &mut RecordingReader) -> std::io::Result<i32> {
    while let Some(line) = reader.next_line()? {
        if let Ok(Some(Line::Full(snapshot))) = parse_line(line) {
            return Ok(snapshot.host.facts.utc_offset.ok().unwrap_or(0));
        }
    }
    Ok(0)
}

/// Returns the two times in milliseconds since 1970. `span` is that of the recording.
fn times(
    args: &ClipArgs,
    clock: RecordedClock,
    (first, last): (u64, u64),
) -> Result<(u64, u64), String> {
    let from = args
        .from
        .as_ref()
        .map_or(Ok(first), |text| parse_time(text, clock, last))?;
    let Some(text) = &args.to else {
        return Ok((from, last));
    };
    let to = parse_time(text, clock, last)?;
    // `--from 23:00 --to 01:00` ends a day later.
    let is_clock = !text.trim().contains(['-', '+', ' ', 'T']);
    Ok((
        from,
        if is_clock && to < from {
            to + DAY_MS
        } else {
            to
        },
    ))
}

/// Parses a time: RFC 3339, or as in a replay. A time without a day is the last one before the end
/// of the recording.
fn parse_time(text: &str, clock: RecordedClock, end: u64) -> Result<u64, String> {
    let text = text.trim();
    if text.starts_with(['-', '+']) {
        return clock.parse(text, end);
    }
    let with_day = text.contains([' ', 'T']);
    let zone = text
        .len()
        .checked_sub("+02:00".len())
        .filter(|offset| with_day && text.is_char_boundary(*offset));
    let (text, offset) = match zone.map(|end| text.split_at(end)) {
        _ if with_day && text.ends_with('Z') => (&text[..text.len() - 1], 0),
        Some((time, zone)) if zone.starts_with(['+', '-']) => (time, parse_zone(zone)?),
        _ => (text, clock.offset),
    };
    // The nearest such time is meant, and half a day earlier that is the last one.
    RecordedClock { offset }.parse(
        text,
        if with_day {
            end
        } else {
            end.saturating_sub(DAY_MS / 2)
        },
    )
}

/// Parses a time zone such as `+02:00` to seconds ahead of UTC.
fn parse_zone(zone: &str) -> Result<i32, String> {
    let number = |digits: Option<&str>| digits.and_then(|digits| digits.parse::<i32>().ok());
    let seconds = number(zone.get(1..3))
        .zip(number(zone.get(4..6)))
        .map(|(hours, minutes)| hours * 3600 + minutes * 60);
    let seconds = seconds
        .filter(|_| zone.get(3..4) == Some(":"))
        .ok_or_else(|| format!("{zone} is no time zone"))?;
    Ok(if zone.starts_with('-') {
        -seconds
    } else {
        seconds
    })
}

/// Copies the lines between two times. Returns the times of the first and the last.
fn copy(
    reader: &mut RecordingReader,
    output: &mut RecordingOutput,
    from: u64,
    to: u64,
) -> std::io::Result<Option<(u64, u64)>> {
    // All lines are written at the same time: none waits for another flush.
    let now = Instant::now();
    let mut keys: Vec<Option<u64>> = Vec::new();
    let (mut first, mut last) = (None, None);
    while let Some(raw) = reader.next_line()? {
        let Ok(Some(line)) = parse_line(raw) else {
            continue;
        };
        let tag = HostTag::parse(raw);
        let key = tag.as_ref().map(|tag| tag.host_key);
        let place = keys
            .iter()
            .position(|known| *known == key)
            .unwrap_or(keys.len());
        let Ok(host) = u16::try_from(place).map(HostKey) else {
            continue;
        };
        if place == keys.len() {
            keys.push(key);
            if let Some(tag) = tag {
                output.set_tag(host, tag);
            }
        }
        let unix_ms = line_ms(&line);
        if unix_ms.is_some_and(|unix_ms| unix_ms > to) {
            break;
        }
        if first.is_none() && unix_ms.is_none_or(|unix_ms| unix_ms < from) {
            output.apply_raw(host, raw);
            continue;
        }
        let Some(begin) = first.or(unix_ms) else {
            continue;
        };
        if first.is_none() {
            // The state of all hosts just before the first line.
            output.begin(now);
            first = Some(begin);
        }
        last = unix_ms.or(last);
        // The model derives the same from the lines before a checkpoint.
        if !matches!(line, Line::Checkpoint(_)) {
            let raw = [raw, b"\n"].concat();
            output.record(host, raw, line, now);
        }
    }
    Ok(first.zip(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-07-14T08:12:38Z, at which clocks in Berlin show 10:12:38.
    const END: u64 = 1_784_016_758_000;
    const BERLIN: RecordedClock = RecordedClock { offset: 7200 };

    fn shown(unix_ms: u64) -> String {
        local_time(unix_ms, BERLIN.offset)[..19].to_owned()
    }

    #[test]
    fn a_time_is_that_of_the_recorded_host_or_of_a_zone() {
        for (text, expected) in [
            ("03:10", "2026-07-14T03:10:00"),
            ("10:12:40", "2026-07-13T10:12:40"),
            ("2026-07-14 03:10", "2026-07-14T03:10:00"),
            ("2026-07-14T03:10:05Z", "2026-07-14T05:10:05"),
            ("2026-07-14T03:10:05+01:00", "2026-07-14T04:10:05"),
            ("2026-07-14T03:10:05-01:30", "2026-07-14T06:40:05"),
            ("-2h", "2026-07-14T08:12:38"),
        ] {
            assert_eq!(
                parse_time(text, BERLIN, END).map(shown).as_deref(),
                Ok(expected),
                "{text}"
            );
        }
        for text in [
            "yesterday",
            "2026-07-14T03:10:05+1:00",
            "2026-07-14T03:10:05+ab:cd",
            "Tä+02:00",
            "",
        ] {
            assert!(parse_time(text, BERLIN, END).is_err(), "{text}");
        }
    }

    #[test]
    fn an_end_on_the_clock_is_after_the_beginning() {
        let options = |from: &str, to: &str| ClipArgs {
            file: PathBuf::new(),
            from: Some(from.to_owned()),
            to: Some(to.to_owned()),
            output: None,
        };
        let found = |from, to| {
            times(&options(from, to), BERLIN, (0, END)).map(|(from, to)| (shown(from), shown(to)))
        };
        let expected = (
            "2026-07-13T23:00:00".to_owned(),
            "2026-07-14T01:00:00".to_owned(),
        );
        assert_eq!(found("23:00", "01:00"), Ok(expected));
        let expected = (
            "2026-07-14T09:00:00".to_owned(),
            "2026-07-14T11:00:00".to_owned(),
        );
        assert_eq!(found("09:00", "11:00"), Ok(expected));
    }

    #[test]
    fn a_clip_is_named_after_its_recording() {
        for file in ["/var/night.jsonl.zst", "night.jsonl", "night"] {
            assert_eq!(
                clip_name(Path::new(file)),
                Path::new("night-clip.jsonl.zst")
            );
        }
    }
}
