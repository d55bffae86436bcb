//! The page of the night: use and memory of each GPU over the last 24 hours, with what happened.

use std::time::Duration;

use super::{PageLine, Writer};
use crate::app::lists::gpu_users;
use crate::base::time::WallClock;
use crate::model::{Fleet, GpuOrProcess, HostModel, Window};
use crate::output::labels::gpu_label;
use crate::protocol::host_key::HostKey;
use crate::protocol::snapshot::Gpu;

/// The time that the page shows.
const SPAN: Duration = Duration::from_hours(24);

/// A strip of values over the time of the page, in thousandths of the most; `None` where a value is
/// not known.
pub(crate) type StripValues = Vec<Option<u16>>;

/// Returns the time of the strips of a page that has this many columns for them.
pub(crate) fn window(model: &HostModel, columns: usize) -> Window {
    Window::until(model.now(), SPAN, columns)
}

/// Writes two strips for each GPU, its events below them, and a row of hours.
pub(super) fn describe(writer: &mut Writer, fleet: &Fleet) {
    for (host, model) in fleet.hosts() {
        let Some(snapshot) = model.latest() else {
            continue;
        };
        let name = if fleet.has_many() {
            format!(" on {}", fleet.both_names(host))
        } else {
            String::new()
        };
        writer.head(&format!("The last 24 hours{name}: use, memory, events"));
        let window = window(model, writer.width);
        for gpu in &snapshot.gpus {
            strips(writer, host, model, gpu, &window);
        }
        if let Some(clock) = model.wall_clock() {
            writer.field("", hours(clock.local_ms(model.now()), &window));
        }
    }
    if writer.lines.is_empty() {
        writer.head("No host has been read yet.");
    }
}

fn strips(writer: &mut Writer, host: HostKey, model: &HostModel, gpu: &Gpu, window: &Window) {
    let Some(history) = model.history().gpu(&gpu.uuid) else {
        return;
    };
    let now = model.now();
    let label = gpu_label(gpu);
    let usage = history.sm.over(window, now).into_iter();
    let usage = usage.map(|range| {
        let percent = u16::try_from(range?.high).unwrap_or(100);
        Some(10 * percent.min(100))
    });
    writer.lines.push(PageLine::Strip {
        host,
        label: format!("GPU {label} SM"),
        hue: None,
        values: usage.collect(),
        is_use: true,
    });
    let total = gpu.load.memory_total.ok();
    let memory = history.memory.over(window, now).into_iter();
    let memory = memory.map(|range| {
        let (held, total) = (range?.high.0, total?.0.max(1));
        u16::try_from(
            (u128::from(held) * 1000)
                .div_ceil(u128::from(total))
                .min(1000),
        )
        .ok()
    });
    let user = gpu_users::names(model, gpu).into_iter().next();
    writer.lines.push(PageLine::Strip {
        host,
        label: match &user {
            Some(user) => format!("  {user}"),
            None => "  memory".to_owned(),
        },
        hue: user.and_then(|user| model.user_hue(&user)),
        values: memory.collect(),
        is_use: false,
    });
    let subject = GpuOrProcess::Gpu(gpu.uuid.clone());
    let events: Vec<_> = model
        .history()
        .events(&subject)
        .filter_map(|event| Some((window.place(event.at)?, event.kind)))
        .collect();
    if !events.is_empty() {
        writer.lines.push(PageLine::Events(events));
    }
}

/// Returns the hours below the strips: `00:00` in the column in which that hour begins. `now` is the
/// local time in the last column, in milliseconds.
fn hours(now: u64, window: &Window) -> String {
    const HOUR: u64 = 3_600_000;
    /// The hours from one label to the next.
    const STEP: u64 = 3;
    let part = u64::try_from(window.part().as_millis()).unwrap_or(u64::MAX);
    let hour = |column: usize| {
        let behind = (window.parts() - 1 - column) as u64;
        now.saturating_sub(behind.saturating_mul(part)) / HOUR
    };
    let mut line = String::new();
    for column in 1..window.parts() {
        let here = hour(column);
        if here != hour(column - 1) && here % STEP == 0 && line.len() <= column {
            let blanks = column - line.len();
            line += &" ".repeat(blanks);
            line.extend([WallClock::hour_and_minute(here * HOUR), " ".to_owned()]);
        }
    }
    line.truncate(window.parts());
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::{Bytes, Moment};
    use crate::protocol::line::Line;
    use crate::protocol::snapshot::example::host;

    const HOUR_MS: u64 = 3_600_000;

    #[test]
    fn hours_are_below_the_columns_in_which_they_begin() {
        // A column is half an hour; the last one has 06:10.
        let window = Window::until(Moment(30 * HOUR_MS), SPAN, 48);
        let line = hours(246 * HOUR_MS + 10 * 60_000, &window);
        let places = ["09:00", "12:00", "21:00", "00:00", "03:00"].map(|hour| line.find(hour));
        assert_eq!(places, [5, 11, 29, 35, 41].map(Some), "{line}");
    }

    #[test]
    fn a_time_that_was_not_seen_is_unknown_and_not_zero() {
        let mut fleet = Fleet::default();
        let host = host(1).with(7, "python a.py", 0, Bytes::from_gib(40));
        fleet
            .apply(HostKey::FIRST, Line::Full(Box::new(host)))
            .unwrap();
        let mut writer = Writer {
            width: 24,
            lines: Vec::new(),
        };
        describe(&mut writer, &fleet);
        let strips: Vec<_> = writer
            .lines
            .iter()
            .filter_map(|line| match line {
                PageLine::Strip { label, values, .. } => Some((label.as_str(), values)),
                _ => None,
            })
            .collect();
        let [(usage, _), (user, memory)] = strips.as_slice() else {
            panic!("{strips:?}");
        };
        assert_eq!((*usage, *user), ("GPU 0 SM", "  alice"));
        assert!(memory[..23].iter().all(Option::is_none), "{memory:?}");
        assert!(memory[23].is_some_and(|share| share > 0), "{memory:?}");
    }
}
