//! Words for times, amounts and events, which page, Markdown and plots share.

use std::time::Duration;

use crate::base::time::{WallClock, local_time};
use crate::base::units::Bytes;
use crate::logs::recorded_run::{
    HostRun, LeakFound, ObservedGrowth, ProcessRun, RunEvent, RunMemory, RunSubject,
};
use crate::model::{NewsKind, Total};

/// How far the local time of the host is ahead of UTC in seconds; without its time zone, times are
/// UTC.
pub(super) fn utc_offset(host: &HostRun) -> i32 {
    host.utc_offset.unwrap_or(0)
}

/// Returns the name of the time zone: `UTC`, `UTC+02:00`.
pub(super) fn time_zone(host: &HostRun) -> String {
    let minutes = utc_offset(host) / 60;
    if minutes == 0 {
        return "UTC".to_owned();
    }
    let sign = if minutes < 0 { '-' } else { '+' };
    format!(
        "UTC{sign}{:02}:{:02}",
        minutes.abs() / 60,
        minutes.abs() % 60
    )
}

/// Returns the local time, with the date if the recording is longer than a day or crosses midnight.
pub(super) fn time(host: &HostRun, at: u64) -> String {
    let local = |at: u64| at.saturating_add_signed(i64::from(utc_offset(host)) * 1000);
    let time = WallClock::time_of_day(local(at));
    let day = |at: u64| WallClock::day(local(at));
    if day(host.began) == day(host.ended) && day(at) == day(host.ended) {
        time
    } else {
        format!("{} {time}", day(at))
    }
}

/// Returns the date and local time, as in `2026-07-14 10:12:38`.
pub(super) fn date_and_time(host: &HostRun, at: u64) -> String {
    local_time(at, utc_offset(host))
        .chars()
        .take(19)
        .collect::<String>()
        .replace('T', " ")
}

/// Returns a duration in the two largest units: `45 s`, `12 min`, `3 h 10 min`, `2 d 4 h`.
pub(super) fn duration(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) if minutes < 10 && !seconds.is_multiple_of(60) => {
            format!("{minutes} min {} s", seconds % 60)
        }
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, 0) => format!("{hours} h"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

/// Returns the time after a moment, as in `2 h 10 min`.
pub(super) fn duration_of(span: Duration) -> String {
    duration(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

/// Returns the memory of suspects, or `-` if none of it is known.
pub(super) fn held(total: Total) -> String {
    if total
        == (Total {
            bytes: Bytes(0),
            is_lower_bound: true,
        })
    {
        "-".to_owned()
    } else {
        total.to_string()
    }
}

/// Returns an amount, or `-` if it is not known.
pub(super) fn amount(bytes: Option<Bytes>) -> String {
    bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string())
}

/// Returns `Peak 71.2 GiB (90%) at 15:01:02, lowest 2.1 GiB at 14:00:00.`
pub(super) fn peak(memory: &RunMemory, capacity: Option<Bytes>, host: &HostRun) -> String {
    let Some((at, peak)) = memory.peak else {
        return "Its memory is not known.".to_owned();
    };
    let share = capacity.and_then(|capacity| peak.share_of(capacity));
    let share = share.map_or_else(String::new, |share| format!(" ({:.0}%)", share * 100.0));
    let lowest = memory.lowest.filter(|(_, lowest)| *lowest < peak);
    let lowest = lowest.map_or_else(String::new, |(at, lowest)| {
        format!(", lowest {lowest} at {}", time(host, at))
    });
    format!("Peak {peak}{share} at {}{lowest}.", time(host, at))
}

/// Returns the local time after a moment, as in `13:41`, with the date if it is another day than
/// that of the recording's end.
pub(super) fn clock_after(host: &HostRun, at: u64, span: Duration) -> String {
    let local = |at: u64| at.saturating_add_signed(i64::from(utc_offset(host)) * 1000);
    let at = local(at.saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX / 4)));
    let clock = WallClock::hour_and_minute(at);
    if WallClock::day(at) == WallClock::day(local(host.ended)) {
        clock
    } else {
        format!("{} {clock}", WallClock::day(at))
    }
}

/// Returns the evidence of a leak. A rate that was measured for less than its period gives way to
/// one of a shorter period, or to the amount that was gained.
pub(super) fn leak_reason(leak: &LeakFound) -> String {
    let rate = leak.evidence.rate.to_string();
    match ObservedGrowth::of_leak(&leak.evidence) {
        Some(growth) => leak.reason.replacen(&rate, &growth.to_string(), 1),
        None => {
            let gained = format!("+{} in", leak.evidence.gained);
            leak.reason.replacen(&format!("{rate} for"), &gained, 1)
        }
    }
}

/// Returns a growth, or `-` if it is not known.
pub(super) fn growth(growth: Option<ObservedGrowth>) -> String {
    growth.map_or_else(|| "-".to_owned(), |growth| growth.to_string())
}

/// Returns the short label of an event on a plot.
pub(super) fn event_label(host: &HostRun, event: &RunEvent) -> String {
    let name = || match &event.subject {
        RunSubject::Process(key) => host
            .processes
            .get(key)
            .map_or_else(|| format!("PID {}", key.id.pid), ProcessRun::name),
        RunSubject::Gpu(uuid) => host
            .gpu(uuid)
            .map_or_else(String::new, |gpu| format!("GPU {}", gpu.label)),
    };
    let first_word = || {
        event
            .sentence
            .split(' ')
            .next()
            .map_or_else(String::new, str::to_owned)
    };
    match event.kind {
        None => event.sentence.clone(),
        Some(NewsKind::Xid) => event
            .sentence
            .split(" on ")
            .next()
            .map_or_else(first_word, str::to_owned),
        Some(NewsKind::Suspect | NewsKind::Signalled) => format!("{} {}", first_word(), name()),
        Some(NewsKind::Watched) => "alert".to_owned(),
        Some(NewsKind::Began) => format!("{} starts", name()),
        Some(NewsKind::Ended) => format!("{} ends", name()),
        Some(NewsKind::Leak) => format!("leak: {}", name()),
        Some(NewsKind::LeakOver) => format!("leak over: {}", name()),
        Some(NewsKind::FullSoon) => format!("full soon: {}", name()),
        Some(NewsKind::FullNoMore) => format!("warning over: {}", name()),
        Some(NewsKind::OutOfMemory) => format!("out of memory: {}", name()),
        Some(NewsKind::GpuTrouble) => format!("{} fails", name()),
        Some(NewsKind::Unseen) => "not seen".to_owned(),
        Some(NewsKind::HostLost) => "host lost".to_owned(),
        Some(NewsKind::GpuAnswers) => format!("{} answers", name()),
    }
}
