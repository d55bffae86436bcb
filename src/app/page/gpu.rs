//! The page of one GPU. One line at the end lists what this GPU or its driver never reports.

use std::fmt::Display;

use super::{Writer, describe_growth, memory};
use crate::base::units::{Bytes, Celsius, Elapsed, Hertz, Percent, Watts};
use crate::model::{GpuOrProcess, HostModel, health};
use crate::protocol::snapshot::{EccCounts, Failure, Gpu, GpuDetail, Missing, Reading, Route};

/// Writes readings, and collects the names of those that are not reported.
struct ReadingWriter<'a> {
    writer: &'a mut Writer,
    unreported: Vec<String>,
}

impl ReadingWriter<'_> {
    fn say(&mut self, label: &str, reading: Reading<impl Display>) {
        match reading {
            Err(Missing::Unsupported) => self.unreported.push(label.to_owned()),
            reading => self.writer.reading(label, reading),
        }
    }

    /// Writes two readings on one line; the second only if it is known.
    fn pair(&mut self, label: &str, first: Reading<impl Display>, between: &str, second: Reading<impl Display>) {
        match (first, second) {
            (Ok(first), Ok(second)) => self.writer.field(label, format!("{first}{between}{second}")),
            (first, _) => self.say(label, first),
        }
    }
}

pub(super) fn describe(writer: &mut Writer, model: &HostModel, gpu: &Gpu) {
    let (facts, health) = (&gpu.facts, model.health(gpu));
    writer.reading("name", facts.name.as_ref().map_err(|why| *why));
    if facts.simulated {
        writer.field("simulated", "this GPU does not exist: it belongs to --demo");
    }
    writer.field("index", facts.index);
    writer.reading("bus id", facts.bus_id.as_ref().map_err(|why| *why));
    writer.field("health", health.phrase);
    if let Some(trouble) = &gpu.trouble {
        writer.field("trouble", &trouble.sentence);
    }
    let driver = model.latest().map(|snapshot| snapshot.driver.failures.as_slice()).unwrap_or_default();
    for (label, failures) in [("calls that fail", gpu.failures.as_slice()), ("of the driver", driver)] {
        if !failures.is_empty() {
            let since = |it: &Failure| format!("{it}, for {}", Elapsed(model.now().since(it.since)));
            writer.list(label, Some(failures.iter().map(since)));
        }
    }
    if let Some(age) = model.age(gpu) {
        writer.field("age", format!("the figures below are {} old", Elapsed(age)));
    }
    let whole = facts.parent.as_ref().and_then(|parent| model.latest()?.gpu(parent));
    let detail = whole.unwrap_or(gpu).detail.as_deref();
    let mut page = ReadingWriter { writer, unreported: Vec::new() };
    device_memory(&mut page, model, gpu, detail);
    if let Some(whole) = whole {
        page.writer.field("instance of", format!("GPU {}: what follows is of the whole GPU", whole.facts.index));
    }
    let gpu = whole.unwrap_or(gpu);
    work(&mut page, gpu, detail);
    heat(&mut page, gpu, detail);
    errors(&mut page, model, gpu, detail);
    match detail {
        Some(detail) => {
            bus(&mut page, gpu, detail);
            board(&mut page, gpu, detail);
        }
        None => page.writer.field("the rest", "asking the driver…"),
    }
    let unreported = page.unreported;
    if !unreported.is_empty() {
        writer.head("Not reported by this GPU or its driver (N/A)");
        writer.field("", unreported.join(", "));
    }
}

fn device_memory(page: &mut ReadingWriter<'_>, model: &HostModel, gpu: &Gpu, detail: Option<&GpuDetail>) {
    let load = &gpu.load;
    page.writer.head("Memory");
    if load.memory_total == Err(Missing::Unsupported) {
        let why = "N/A: the driver reports none of its own, as for a GPU that shares the memory of the host";
        page.writer.field("device memory", why);
    } else {
        page.writer.reading("used", load.memory_used);
        page.writer.reading("free", load.memory_free);
        page.writer.reading("driver's reserve", load.memory_reserved);
        page.writer.reading("total", load.memory_total);
    }
    memory::of_gpu(page.writer, model, gpu);
    describe_growth(page.writer, model, &GpuOrProcess::Gpu(gpu.uuid.clone()));
    if let Some(detail) = detail.filter(|_| gpu.facts.parent.is_none()) {
        page.pair("BAR1 in use", detail.bar1_used, " of ", detail.bar1_total);
        page.pair(
            "confidential",
            detail.protected_memory.map(|sizes| sizes[1]),
            " of ",
            detail.protected_memory.map(|sizes| sizes[0]),
        );
    }
}

fn work(page: &mut ReadingWriter<'_>, gpu: &Gpu, detail: Option<&GpuDetail>) {
    let (load, health) = (&gpu.load, &gpu.health);
    page.writer.head("Work");
    // The figures are aligned, and the words behind them too.
    let share = |it: Percent| format!("{it:>4}");
    page.say("SM", load.sm.map(|percent| format!("{percent:>4} of the time, some kernel ran")));
    if let Some(detail) = detail {
        page.say(
            "SM active",
            detail.sm_active.map(|percent| format!("{percent:>4} of the multiprocessors, on average")),
        );
        page.say("SM occupancy", detail.sm_occupancy.map(share));
        page.say("tensor cores", detail.tensor_active.map(share));
        page.say("DRAM bandwidth", detail.dram_active.map(share));
    }
    page.say("memory access", load.memory_bandwidth.map(|percent| format!("{percent:>4} of the time")));
    page.say("encoder", detail.map_or(health.encoder, |detail| detail.encoder).map(share));
    page.say("decoder", detail.map_or(health.decoder, |detail| detail.decoder).map(share));
    let most = |clock: fn(&GpuDetail) -> Reading<Hertz>| detail.map_or(Err(Missing::Unsupported), clock);
    page.pair("SM clock", load.sm_clock, " of at most ", most(|detail| detail.sm_clock_max));
    page.pair("memory clock", health.memory_clock, " of at most ", most(|detail| detail.memory_clock_max));
    if let Some(detail) = detail {
        page.pair("graphics clock", detail.graphics_clock, " of at most ", detail.graphics_clock_max);
        page.say("video clock", detail.video_clock);
    }
    page.say("P-state", health.performance_state.map(|state| format!("P{state}")));
    page.say(
        "throttled by",
        load.throttle.as_ref().map_err(|why| *why).map(|reasons| match reasons.as_slice() {
            [] => "nothing".to_owned(),
            reasons => reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        }),
    );
}

fn heat(page: &mut ReadingWriter<'_>, gpu: &Gpu, detail: Option<&GpuDetail>) {
    let (load, health) = (&gpu.load, &gpu.health);
    page.writer.head("Heat and power");
    page.say("temperature", load.temperature);
    page.say("slows down at", gpu.facts.slowdown_temperature);
    if let Some(detail) = detail {
        page.say("of the memory", detail.memory_temperature);
        page.say("margin", detail.temperature_margin.map(|Celsius(it)| format!("{it} degrees before it slows down")));
    }
    page.say("power", load.power);
    page.say("power limit", health.power_limit);
    if let Some(detail) = detail {
        let watts = |it: Reading<u32>| it.map(Watts::from_milliwatts);
        page.pair("may be set to", watts(detail.power_limit_min), " to ", watts(detail.power_limit_max));
        page.say("by default", watts(detail.power_limit_default));
        page.say("energy", detail.energy.map(energy));
        page.pair(
            "whole module",
            watts(detail.module_power_average),
            " of ",
            watts(detail.module_power_limit_enforced),
        );
    }
    match detail.map(|detail| detail.fans.as_deref()) {
        Some(Ok(fans @ [_, _, ..])) => {
            page.writer.field("fans", fans.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
        }
        _ => page.say("fan", health.fan),
    }
}

fn errors(page: &mut ReadingWriter<'_>, model: &HostModel, gpu: &Gpu, detail: Option<&GpuDetail>) {
    let health = &gpu.health;
    page.writer.head("Errors");
    if let Some(detail) = detail {
        let mode = |it: bool| if it { "on" } else { "off" };
        let pending = detail.ecc_pending.ok().filter(|mode| Ok(*mode) != detail.ecc);
        let after = pending.map_or_else(String::new, |pending_mode| format!(", {} after a reboot", mode(pending_mode)));
        page.say("ECC", detail.ecc.map(|is_on| format!("{}{after}", mode(is_on))));
    }
    page.say("ECC, mended", health.ecc_corrected);
    page.say("ECC, not mended", health.ecc_uncorrected);
    if let Some(detail) = detail {
        places(page, "mended", &detail.corrected);
        places(page, "not mended", &detail.uncorrected);
        page.say("mended ever", detail.corrected_ever.total);
        page.say("not mended ever", detail.uncorrected_ever.total);
        let rows = detail.remapped_correctable.and_then(|mended| Ok((mended, detail.remapped_uncorrectable?)));
        page.say(
            "rows replaced",
            rows.map(|(mended, not)| format!("{mended} after mended errors, {not} after others")),
        );
    }
    let pending = health.remap_pending.map(|is_pending| if is_pending { "yes: reset the GPU when idle" } else { "no" });
    page.say("rows waiting", pending);
    page.say(
        "unreplaced rows",
        health.remap_failed.map(|has_failed| if has_failed { "yes: no spare row is left" } else { "no" }),
    );
    if let Some(detail) = detail {
        let pages = detail.retired_single.and_then(|single| Ok((single, detail.retired_double?)));
        page.say(
            "pages retired",
            pages.map(|(one, two)| format!("{one} after single-bit errors, {two} after double-bit")),
        );
    }
    page.say(
        "pages waiting",
        health.retired_pending.map(|is_pending| if is_pending { "yes: reboot when idle" } else { "no" }),
    );
    let action = |it: u32| health::recovery(it).map_or("nothing", |(_, words)| words);
    page.say("to be done", health.recovery_action.map(action));
    let xids = health.xids.iter().map(|it| {
        let words = health::describe_xid(it.code).map_or_else(String::new, |words| format!(" {words}"));
        format!("{}{words}, {} ago", it.code, Elapsed(model.now().since(it.at)))
    });
    page.writer.list("Xid", Some(xids));
}

/// Writes the parts of the GPU in which errors occurred, if any.
fn places(page: &mut ReadingWriter<'_>, label: &str, counts: &EccCounts) {
    let places = [
        ("device memory", counts.dram),
        ("registers", counts.register_file),
        ("L1", counts.l1_cache),
        ("L2", counts.l2_cache),
        ("texture memory", counts.texture_memory),
        ("CBU", counts.cbu),
        ("on the chip", counts.sram),
    ];
    let some: Vec<String> = places
        .iter()
        .filter_map(|(place, count)| match count {
            Ok(count @ 1..) => Some(format!("{count} in {place}")),
            _ => None,
        })
        .collect();
    if !some.is_empty() {
        page.writer.field(&format!("  {label}"), some.join(", "));
    }
}

fn bus(page: &mut ReadingWriter<'_>, gpu: &Gpu, detail: &GpuDetail) {
    page.writer.head("Bus");
    page.pair("PCIe generation", detail.pcie_generation, " of at most ", detail.pcie_generation_max);
    page.pair("PCIe lanes", detail.pcie_width, " of at most ", detail.pcie_width_max);
    page.say("PCIe sends", detail.pcie_sent.map(rate));
    page.say("PCIe receives", detail.pcie_received.map(rate));
    page.say("sent again", detail.pcie_replays.map(|count| format!("{count} packets")));
    let speed = detail.nvlink_speed.map_or_else(|_| String::new(), |speed| format!(", {} each", rate(speed)));
    page.pair("NVLink", detail.nvlinks_up, " up of ", detail.nvlinks.map(|count| format!("{count}{speed}")));
    page.say("NVLink sends", detail.nvlink_sent.map(rate));
    page.say("NVLink receives", detail.nvlink_received.map(rate));
    match &detail.routes {
        Ok(routes) => routes.iter().for_each(|other| page.writer.field(&format!("to GPU {}", other.to), route(other))),
        Err(why) => page.say("topology", Err::<u32, _>(*why)),
    }
    page.say("near CPUs", detail.cpus.as_ref().map_err(|why| *why));
    page.say("near NUMA node", detail.numa_nodes.as_ref().map_err(|why| *why));
    if let Ok(node) = detail.numa_node {
        page.writer.field("is NUMA node", format!("{node}: its memory is also the host's"));
    }
    if let Ok([state, status, clique, ..]) = detail.fabric {
        let state = match (state, status) {
            (1, _) => "not started".to_owned(),
            (2, _) => "in progress".to_owned(),
            (_, 0) => "completed".to_owned(),
            (_, error) => format!("FAILED (NVML error {error})"),
        };
        page.writer.field("NVLink fabric", format!("{state}, clique {clique}"));
    }
    if let Ok(minor) = gpu.facts.minor {
        page.writer.field("device file", format!("/dev/nvidia{minor}"));
    }
}

fn board(page: &mut ReadingWriter<'_>, gpu: &Gpu, detail: &GpuDetail) {
    let on = |it: bool| if it { "on" } else { "off" };
    page.writer.head("Board and modes");
    page.writer.field("UUID", &gpu.uuid);
    page.say("MIG", gpu.health.mig.map(|is_split| if is_split { "split into instances" } else { "not split" }));
    page.say("persistence", detail.persistence.map(on));
    let mode = detail.compute_mode.map(|it| match it {
        0 => "default: any number of processes",
        1 | 3 => "exclusive: one process",
        2 => "prohibited: no process may compute",
        _ => "another",
    });
    page.say("compute mode", mode);
    page.say("capability", detail.compute_capability.as_ref().map_err(|why| *why));
    page.say("display", detail.display_active.map(|is_active| if is_active { "drawn here" } else { "none" }));
    page.say("GSP firmware", detail.gsp.map(on));
    let addressing = detail.addressing.map(|it| match it {
        0 => "its own memory only",
        1 => "the host's memory too, by HMM",
        _ => "the host's memory too, by ATS",
    });
    page.say("addresses", addressing);
    page.say("serial", detail.serial.as_ref().map_err(|why| *why));
    page.say("VBIOS", detail.vbios.as_ref().map_err(|why| *why));
}

/// Describes an NVML topology level by nvidia-smi's letters and in words.
fn route(route: &Route) -> String {
    let (letters, words) = match route.level {
        0 => ("PIX", "on the same board"),
        10 => ("PIX", "through one PCIe switch"),
        20 => ("PXB", "through several PCIe switches"),
        30 => ("PHB", "through a host bridge"),
        40 => ("NODE", "through the bridges of one NUMA node"),
        _ => ("SYS", "through the link between processors"),
    };
    match route.nvlink {
        Some(true) => format!("NVLink; by PCIe {letters}, {words}"),
        _ => format!("{letters}: {words}"),
    }
}

fn rate(bytes: Bytes) -> String {
    format!("{bytes}/s")
}

/// Formats the energy since the driver was loaded in kWh, the unit of an electricity bill.
fn energy(millijoules: u64) -> String {
    let watt_hours = millijoules / 3_600_000;
    format!("{}.{:02} kWh since the driver was loaded", watt_hours / 1000, watt_hours % 1000 / 10)
}
