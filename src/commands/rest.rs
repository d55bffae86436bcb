//! `gputop rest`: news that `gputop record` does not tell for some time.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::Args;

use crate::base::text::Text;
use crate::base::time::WallClock;
use crate::files::local_time::{unix_ms, utc_offset};
use crate::files::process_start::{boot_id, start_ticks};
use crate::files::rests::{self, Rest, RestingNews};
use crate::flags::values;
use crate::notify::KINDS;
use crate::output::{Exit, print};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// The options of `gputop rest`.
#[derive(Debug, Clone, Args)]
pub(crate) struct RestArgs {
    /// The news to silence: those of a PID, of a GPU as in `gpu3` or by its UUID, or of a kind such as
    /// `idle`; without it, lists what is silenced
    #[arg(value_name = "PID|GPU|KIND")]
    news: Vec<String>,

    /// Until this time of the day, such as `09:00`, the next one that comes [default: 24 hours]
    #[arg(long, value_name = "HH:MM", value_parser = time_of_day, conflicts_with_all = ["span", "end"])]
    until: Option<u64>,

    /// For this time, such as `8h`
    #[arg(long = "for", value_name = "TIME", value_parser = values::positive_span, conflicts_with = "end")]
    span: Option<Duration>,

    /// Tell these news again; without a name, all
    #[arg(long)]
    end: bool,
}

/// Parses `09:00`, in milliseconds of the day.
fn time_of_day(text: &str) -> Result<u64, String> {
    let part = |text: &str, most: u64| {
        let number: u64 = text.parse().ok().filter(|_| text.len() == 2)?;
        (number < most).then_some(number)
    };
    text.split_once(':')
        .and_then(|(hours, minutes)| Some((part(hours, 24)? * 60 + part(minutes, 60)?) * 60_000))
        .ok_or_else(|| "a time of the day is like 09:00 or 21:30".to_owned())
}

/// Adds, ends or lists rests.
///
/// # Errors
///
/// When a name means nothing, or the file of the rests cannot be read or written.
pub(crate) fn run(args: &RestArgs) -> anyhow::Result<ExitCode> {
    let now = unix_ms();
    let path = rests::path().ok_or_else(|| anyhow!("HOME is not set: rests have no file"))?;
    let path = path.display();
    let mut known = rests::read(now).with_context(|| {
        format!("cannot read the rests in {path}: delete the file to let all news be told")
    })?;
    let offset = utc_offset().context("cannot find the time zone of this host: set TZ")?;
    if args.news.is_empty() && !args.end {
        anyhow::ensure!(
            args.until.is_none() && args.span.is_none(),
            "name what rests: a PID, a GPU or a kind"
        );
        print(list(&known, now, offset).as_bytes())?;
        return Ok(Exit::Success.into());
    }
    let named: Vec<RestingNews> = args
        .news
        .iter()
        .map(|name| parse(name))
        .collect::<anyhow::Result<_>>()?;
    known.retain(|rest| !named.is_empty() && !named.contains(&rest.news));
    if !args.end {
        let until_unix_ms = match (args.until, args.span) {
            (Some(time), _) => next(time, now, offset),
            (None, Some(span)) => now.saturating_add(u64::try_from(span.as_millis())?),
            (None, None) => now + DAY_MS,
        };
        known.extend(named.into_iter().map(|news| Rest {
            news,
            until_unix_ms,
        }));
    }
    rests::write(&known).with_context(|| format!("cannot write the rests to {path}"))?;
    print(list(&known, now, offset).as_bytes())?;
    Ok(Exit::Success.into())
}

/// Returns when it is this time of the day next, in milliseconds since 1970 (UTC).
fn next(time_of_day: u64, now: u64, utc_offset: i32) -> u64 {
    let local = now.saturating_add_signed(i64::from(utc_offset) * 1000);
    let wait = (time_of_day + DAY_MS - local % DAY_MS) % DAY_MS;
    now + if wait == 0 { DAY_MS } else { wait }
}

/// Parses a PID, a GPU or a kind.
fn parse(name: &str) -> anyhow::Result<RestingNews> {
    let boot_id = || boot_id().context("cannot read which boot of this host this is");
    if let Ok(pid) = name.parse::<u32>() {
        let start_ticks = start_ticks(pid)
            .ok_or_else(|| anyhow!("no process {pid} on this host: nothing of it is told"))?;
        return Ok(RestingNews::Process {
            boot_id: boot_id()?,
            pid,
            start_ticks,
        });
    }
    let index = name
        .strip_prefix("gpu")
        .filter(|index| index.parse::<u32>().is_ok());
    if let Some(gpu) = index.or_else(|| name.starts_with("GPU-").then_some(name)) {
        return Ok(RestingNews::Gpu {
            boot_id: boot_id()?,
            gpu: gpu.to_owned(),
        });
    }
    if KINDS.iter().any(|(kind, _)| *kind == name) {
        return Ok(RestingNews::Kind(name.to_owned()));
    }
    let kinds: Vec<&str> = KINDS.iter().map(|(kind, _)| *kind).collect();
    let name = Text::from(name);
    bail!(
        "`{name}` is no PID, no GPU such as gpu0, and no kind of news; the kinds are: {}",
        kinds.join(", ")
    )
}

fn list(rests: &[Rest], now: u64, utc_offset: i32) -> String {
    if rests.is_empty() {
        return "nothing rests: all news are told\n".to_owned();
    }
    let lines = rests.iter().map(|rest| {
        let what = match &rest.news {
            RestingNews::Process { pid, .. } => format!("process {pid}"),
            RestingNews::Gpu { gpu, .. } => format!("GPU {gpu}"),
            RestingNews::Kind(kind) => format!("all news of the kind {kind}"),
        };
        let local = |ms: u64| ms.saturating_add_signed(i64::from(utc_offset) * 1000);
        let until = local(rest.until_unix_ms);
        let day = if until / DAY_MS == local(now) / DAY_MS {
            String::new()
        } else {
            format!("{} ", WallClock::day(until))
        };
        let time = WallClock::hour_and_minute(until);
        format!("{what}: not told until {day}{time}\n")
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_the_day_is_the_next_one_that_comes() {
        const HOUR: u64 = 3_600_000;
        let nine = time_of_day("09:00").expect("a time");
        assert_eq!(nine, 9 * HOUR);
        // At 22:00 UTC, where the host is two hours ahead, it is midnight.
        assert_eq!(next(nine, 22 * HOUR, 7200), 31 * HOUR);
        assert_eq!(next(nine, 6 * HOUR, 7200), 7 * HOUR);
        assert_eq!(next(nine, 7 * HOUR, 7200), 31 * HOUR);
        for wrong in ["9", "9:00", "24:00", "12:60", "12:3", "x"] {
            assert!(time_of_day(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_pid_a_gpu_and_a_kind_can_rest_and_nothing_else() {
        let own = std::process::id();
        assert!(matches!(
            parse(&own.to_string()).expect("this process"),
            RestingNews::Process { pid, .. } if pid == own
        ));
        for (name, id) in [("gpu3", "3"), ("GPU-a", "GPU-a")] {
            assert!(
                matches!(parse(name).expect("a GPU"), RestingNews::Gpu { gpu, .. } if gpu == id),
                "{name}"
            );
        }
        assert_eq!(
            parse("idle").expect("a kind"),
            RestingNews::Kind("idle".to_owned())
        );
        let refused = parse("idel").expect_err("a typo").to_string();
        assert!(
            refused.contains("`idel`") && refused.contains("idle"),
            "{refused}"
        );
        assert!(parse("4294967294").is_err(), "there is no such process");
    }
}
