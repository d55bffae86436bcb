//! The page of users: what each holds now, and the GPU-hours that it held without computing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{PageLine, Writer};
use crate::base::text::Text;
use crate::base::units::{Bytes, Percent};
use crate::model::{Fleet, HostModel, ProcessHistory, Window};
use crate::output::labels::{gpu_labels, period, program, short_amount};
use crate::protocol::snapshot::Gpu;

/// The longest time that the hours are counted over.
const LONGEST: Duration = Duration::from_hours(24);

/// The number of parts in which this time is looked at: a part of a day has five minutes.
const PARTS: usize = 288;

/// The headings of the figures after the name of a user.
const HEADINGS: &str = "GPUS       PROC  MEMORY     SM   HELD   IDLE  RUNS";

/// The width of the numbers of GPUs.
const GPUS_WIDTH: usize = 10;

/// The processes, memory and hours of one user on a host.
#[derive(Debug, Default)]
struct UserTotals {
    gpus: BTreeSet<usize>,
    processes: usize,
    memory: Bytes,
    /// Whether the memory of some process is not known: the user holds more.
    is_lower_bound: bool,
    /// The use of the multiprocessors of all its GPUs, in percent of one GPU; `None` where no use
    /// is known.
    sm: Option<f32>,
    programs: BTreeSet<String>,
    /// The GPU-hours for which the user held memory, and those of them in which nobody computed on
    /// the GPU.
    hours: GpuHours,
}

#[derive(Debug, Clone, Copy, Default)]
struct GpuHours {
    held: f64,
    idle: f64,
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
    let users = totals(model);
    if users.is_empty() {
        writer.field("", "nobody uses a GPU");
        return;
    }
    writer.field("", HEADINGS);
    let mut by_memory: Vec<(&Text, &UserTotals)> = users.iter().collect();
    by_memory.sort_by_key(|(_, totals)| std::cmp::Reverse(totals.memory));
    for (name, totals) in &by_memory {
        writer.lines.push(PageLine::User {
            name: (*name).clone(),
            hue: model.user_hue(name),
            figures: figures(model, totals),
        });
    }
    if users.len() > 1 {
        writer.field("all", figures(model, &sum(&users)));
    }
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

fn figures(model: &HostModel, totals: &UserTotals) -> String {
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
        memory(totals),
        totals.hours.held,
        totals.hours.idle,
        programs.join(", ")
    )
}

/// The memory of a user: `≥61.0G` where that of a process is not known, `?` where none is.
fn memory(totals: &UserTotals) -> String {
    match (totals.is_lower_bound, totals.memory) {
        (true, Bytes(0)) => "?".to_owned(),
        (true, known) => format!("≥{}", short_amount(known)),
        (false, known) => short_amount(known),
    }
}

fn sum(users: &BTreeMap<Text, UserTotals>) -> UserTotals {
    let mut all = UserTotals::default();
    for totals in users.values() {
        all.gpus.extend(&totals.gpus);
        all.processes += totals.processes;
        all.memory = Bytes(all.memory.0 + totals.memory.0);
        all.is_lower_bound |= totals.is_lower_bound;
        if let Some(sm) = totals.sm {
            all.sm = Some(all.sm.unwrap_or(0.0) + sm);
        }
        all.hours.held += totals.hours.held;
        all.hours.idle += totals.hours.idle;
    }
    all
}

/// The time that the hours of a host are counted over.
fn seen(model: &HostModel) -> Duration {
    let began = model.history().began().unwrap_or(model.now());
    model.now().since(began).min(LONGEST)
}

fn totals(model: &HostModel) -> BTreeMap<Text, UserTotals> {
    let mut users: BTreeMap<Text, UserTotals> = BTreeMap::new();
    let Some(snapshot) = model.latest() else {
        return users;
    };
    for total in model.process_totals() {
        let Some(process) = snapshot.process(total.process) else {
            continue;
        };
        let Ok(name) = &process.facts.user else {
            continue;
        };
        let user = users.entry(name.clone()).or_default();
        user.gpus.extend(&total.gpus);
        user.processes += 1;
        user.programs.insert(program(process));
        match total.memory {
            Ok(memory) => {
                user.memory = Bytes(user.memory.0 + memory.bytes.0);
                user.is_lower_bound |= memory.is_lower_bound;
            }
            Err(_) => user.is_lower_bound = true,
        }
        if let Ok(sm) = total.sm {
            user.sm = Some(user.sm.unwrap_or(0.0) + sm.value());
        }
    }
    for gpu in &snapshot.gpus {
        for (name, hours) in hours_on(model, gpu) {
            let user = users.entry(name).or_default();
            user.hours.held += hours.held;
            user.hours.idle += hours.idle;
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
    use crate::protocol::host_key::HostKey;
    use crate::protocol::line::Line;
    use crate::protocol::snapshot::Missing;
    use crate::protocol::snapshot::example::host;

    /// The memory that the page shows for the only user of a host.
    fn memory_shown(is_known: bool) -> String {
        let mut host = host(1).with(7, "python a.py", 0, Bytes::from_gib(12)).with(
            8,
            "python b.py",
            0,
            Bytes::from_gib(3),
        );
        if !is_known {
            for process in &mut host.gpus[0].processes {
                process.memory = Err(Missing::Unsupported);
            }
        }
        let mut fleet = Fleet::default();
        fleet
            .apply(HostKey::FIRST, Line::Full(Box::new(host)))
            .unwrap();
        let (_, model) = fleet.hosts().next().unwrap();
        let users = totals(model);
        assert_eq!(users.len(), 1);
        users.values().map(memory).collect()
    }

    #[test]
    fn unknown_memory_of_a_user_is_not_none() {
        assert_eq!([true, false].map(memory_shown), ["15.0G", "?"]);
    }
}
