//! The page of users: what each holds now, and the GPU-hours that it held without computing.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{PageLine, Writer};
use crate::app::lists::user_totals::{UserTotals, user_totals};
use crate::base::text::Text;
use crate::base::units::{Elapsed, Percent};
use crate::model::{Fleet, HeldGpus, HostModel, ProcessHistory, Window};
use crate::output::labels::{gpu_hours, gpu_labels, period};
use crate::protocol::snapshot::Gpu;

/// The longest time that the hours are counted over.
const LONGEST: Duration = Duration::from_hours(24);

/// The number of parts in which this time is looked at: a part of a day has five minutes.
const PARTS: usize = 288;

/// The headings of the figures after the name of a user.
const HEADINGS: &str = "GPUS       PROC  MEMORY     SM   HELD   IDLE  RUNS";

/// The width of the numbers of GPUs.
const GPUS_WIDTH: usize = 10;

/// The GPU-hours for which a user held memory, and those of them in which nobody computed on the GPU.
#[derive(Debug, Clone, Copy, Default)]
struct GpuHours {
    held: f64,
    idle: f64,
}

impl GpuHours {
    fn add(&mut self, other: Self) {
        self.held += other.held;
        self.idle += other.idle;
    }
}

/// Writes the users of each host, the one who holds most memory first, and their sum.
pub(super) fn describe(writer: &mut Writer, fleet: &Fleet) {
    for (host, model) in fleet.hosts() {
        if model.latest().is_none() {
            continue;
        }
        let name = if fleet.has_many() {
            format!(" on {}", fleet.both_names(host))
        } else {
            String::new()
        };
        writer.head(&format!("Users{name}"));
        describe_host(writer, model);
    }
    if writer.lines.is_empty() {
        writer.head("No host has been read yet.");
    }
}

fn describe_host(writer: &mut Writer, model: &HostModel) {
    let users = user_totals(model);
    let hours = hours(model);
    if users.is_empty() {
        writer.field("", "nobody uses a GPU");
        return;
    }
    writer.field("", HEADINGS);
    let (mut all, mut all_hours) = (UserTotals::default(), GpuHours::default());
    for (name, totals) in &users {
        let hours = hours.get(name).copied().unwrap_or_default();
        writer.lines.push(PageLine::User {
            name: name.clone(),
            hue: model.user_hue(name),
            figures: figures(model, totals, hours),
        });
        all.add(totals);
        all_hours.add(hours);
    }
    if users.len() > 1 {
        writer.field("all", figures(model, &all, all_hours));
    }
    describe_held_idle(writer, model);
    let seen = seen(model);
    writer.field("", "");
    writer.field(
        "HELD, IDLE",
        format!(
            "GPU-hours in the last {}: with memory of the user, and those of them with 0 % SM",
            period(Duration::from_secs(seen.as_secs().max(60) / 60 * 60))
        ),
    );
}

/// Writes which GPUs each user holds idle now, and for how long.
fn describe_held_idle(writer: &mut Writer, model: &HostModel) {
    let Some(snapshot) = model.latest() else {
        return;
    };
    for held in HeldGpus::by_user(&model.idle_holds(), model.now()) {
        let user = held.user.as_ref().map_or("?", Text::as_str);
        let gpus = gpu_labels(snapshot, &held.gpus);
        let bound = if held.was_seen { "" } else { "≥ " };
        let idle = Elapsed(model.now().since(held.since));
        writer.field(
            "held idle",
            format!(
                "{user}: GPU {gpus}, 0 % SM and a quiet PCIe link for {bound}{idle}, {} GPU-hours",
                gpu_hours(held.time)
            ),
        );
    }
}

fn figures(model: &HostModel, totals: &UserTotals, hours: GpuHours) -> String {
    let gpus: Vec<usize> = totals.gpus.iter().copied().collect();
    let labels = model
        .latest()
        .map_or_else(String::new, |snapshot| gpu_labels(snapshot, &gpus));
    let gpus = if labels.len() > GPUS_WIDTH {
        format!("{} of them", gpus.len())
    } else {
        labels
    };
    let sm = totals
        .sm
        .map_or_else(|| "-".to_owned(), |sm| Percent::new(sm).to_string());
    let programs: Vec<&str> = totals.programs.iter().map(String::as_str).collect();
    format!(
        "{gpus:<GPUS_WIDTH$} {:>4}  {:>6}  {sm:>5}  {:>5.1}  {:>5.1}  {}",
        totals.processes,
        totals.held(),
        hours.held,
        hours.idle,
        programs.join(", ")
    )
}

/// The time that the hours of a host are counted over.
fn seen(model: &HostModel) -> Duration {
    let began = model.history().began().unwrap_or(model.now());
    model.now().since(began).min(LONGEST)
}

/// Returns the hours of each user on all GPUs.
fn hours(model: &HostModel) -> BTreeMap<Text, GpuHours> {
    let mut users: BTreeMap<Text, GpuHours> = BTreeMap::new();
    for gpu in model.latest().iter().flat_map(|snapshot| &snapshot.gpus) {
        for (name, hours) in hours_on(model, gpu) {
            users.entry(name).or_default().add(hours);
        }
    }
    users
}

/// Returns the hours for which each user held memory of a GPU, as far as its history reaches.
fn hours_on(model: &HostModel, gpu: &Gpu) -> BTreeMap<Text, GpuHours> {
    let now = model.now();
    let window = Window::until(now, seen(model).max(Duration::from_mins(1)), PARTS);
    let Some(history) = model.history().gpu(&gpu.uuid) else {
        return BTreeMap::new();
    };
    let is_idle: Vec<bool> = history
        .sm
        .over(&window, now)
        .into_iter()
        .map(|range| range.is_some_and(|range| range.high == 0))
        .collect();
    let mut held: BTreeMap<Text, Vec<bool>> = BTreeMap::new();
    for (_, process, series) in model.history().gpu_processes(&gpu.uuid) {
        let Some(name) = user(process) else { continue };
        let parts = held
            .entry(name)
            .or_insert_with(|| vec![false; window.parts()]);
        for (part, range) in parts.iter_mut().zip(series.over(&window, now)) {
            *part |= range.is_some_and(|range| range.high.0 > 0);
        }
    }
    let part = window.part().as_secs_f64() / 3600.0;
    let hours = |parts: Vec<bool>| {
        let mut hours = GpuHours::default();
        for (_, is_idle) in parts.into_iter().zip(&is_idle).filter(|(held, _)| *held) {
            hours.held += part;
            hours.idle += if *is_idle { part } else { 0.0 };
        }
        hours
    };
    held.into_iter()
        .map(|(name, parts)| (name, hours(parts)))
        .collect()
}

fn user(process: &ProcessHistory) -> Option<Text> {
    process.facts()?.user.clone().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::page::PageLine;
    use crate::base::units::Bytes;
    use crate::protocol::snapshot::example;

    #[test]
    fn a_user_who_holds_gpus_idle_has_a_line_with_the_gpu_hours() {
        let mut at = (0..2).fold(example::host(3), |at, gpu| {
            at.with(7, "python notebook.py", gpu, Bytes::from_gib(30))
        });
        let mut model = HostModel::default();
        for _ in 0..=62 {
            for gpu in &mut at.gpus {
                (gpu.load.sm, gpu.health.pcie_quiet) = (Ok(Percent::new(0.0)), Ok(true));
            }
            model.replace(at.clone());
            at = at.later(30);
        }
        let mut writer = Writer {
            width: 120,
            lines: Vec::new(),
        };
        describe_host(&mut writer, &model);
        let line = writer.lines.iter().find_map(|line| match line {
            PageLine::Field(label, text) if label == "held idle" => Some(text.as_str()),
            _ => None,
        });
        let expected = "alice: GPU 0,1, 0 % SM and a quiet PCIe link for ≥ 31m00s, ≥1.0 GPU-hours";
        assert_eq!(line, Some(expected));
    }
}
