//! All that is known of one GPU, on its page. What this GPU or its driver never reports stands in one line at the end.

use std::fmt::Display;

use super::{Writer, describe_growth, memory};
use crate::base::units::{Bytes, Celsius, Elapsed, Hertz, Percent, Watts};
use crate::model::{GpuOrProcess, HostModel, health};
use crate::protocol::snapshot::{EccCounts, Failure, Gpu, GpuDetail, Missing, Reading, Route};

/// Says what there is to say, and keeps the names of what is not reported.
struct Sheet<'a> {
    writer: &'a mut Writer,
    unreported: Vec<String>,
}

impl Sheet<'_> {
    fn say(&mut self, label: &str, reading: Reading<impl Display>) {
        match reading {
            Err(Missing::Unsupported) => self.unreported.push(label.to_owned()),
            reading => self.writer.reading(label, reading),
        }
    }

    /// Two figures on one line; of the second, only what is there.
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
    let mut sheet = Sheet { writer, unreported: Vec::new() };
    device_memory(&mut sheet, model, gpu, detail);
    if let Some(whole) = whole {
        sheet.writer.field("instance of", format!("GPU {}: what follows is of the whole GPU", whole.facts.index));
    }
    let gpu = whole.unwrap_or(gpu);
    work(&mut sheet, gpu, detail);
    heat(&mut sheet, gpu, detail);
    errors(&mut sheet, model, gpu, detail);
    match detail {
        Some(detail) => {
            bus(&mut sheet, gpu, detail);
            board(&mut sheet, gpu, detail);
        }
        None => sheet.writer.field("the rest", "asking the driver…"),
    }
    let unreported = sheet.unreported;
    if !unreported.is_empty() {
        writer.head("Not reported by this GPU or its driver (N/A)");
        writer.field("", unreported.join(", "));
    }
}

fn device_memory(sheet: &mut Sheet<'_>, model: &HostModel, gpu: &Gpu, detail: Option<&GpuDetail>) {
    let load = &gpu.load;
    sheet.writer.head("Memory");
    if load.memory_total == Err(Missing::Unsupported) {
        let why = "N/A: the driver reports none of its own, as for a GPU that shares the memory of the host";
        sheet.writer.field("device memory", why);
    } else {
        sheet.writer.reading("used", load.memory_used);
        sheet.writer.reading("free", load.memory_free);
        sheet.writer.reading("driver's reserve", load.memory_reserved);
        sheet.writer.reading("total", load.memory_total);
    }
    memory::of_gpu(sheet.writer, model, gpu);
    describe_growth(sheet.writer, model, &GpuOrProcess::Gpu(gpu.uuid.clone()));
    if let Some(detail) = detail.filter(|_| gpu.facts.parent.is_none()) {
        sheet.pair("BAR1 in use", detail.bar1_used, " of ", detail.bar1_total);
        sheet.pair(
            "confidential",
            detail.protected_memory.map(|it| it[1]),
            " of ",
            detail.protected_memory.map(|it| it[0]),
        );
    }
}

fn work(sheet: &mut Sheet<'_>, gpu: &Gpu, detail: Option<&GpuDetail>) {
    let (load, health) = (&gpu.load, &gpu.health);
    sheet.writer.head("Work");
    // One below the other, and the words behind them stay where they are.
    let share = |it: Percent| format!("{it:>4}");
    sheet.say("SM", load.sm.map(|it| format!("{it:>4} of the time, some kernel ran")));
    if let Some(detail) = detail {
        sheet.say("SM active", detail.sm_active.map(|it| format!("{it:>4} of the multiprocessors, on average")));
        sheet.say("SM occupancy", detail.sm_occupancy.map(share));
        sheet.say("tensor cores", detail.tensor_active.map(share));
        sheet.say("DRAM bandwidth", detail.dram_active.map(share));
    }
    sheet.say("memory access", load.memory_bandwidth.map(|it| format!("{it:>4} of the time")));
    sheet.say("encoder", detail.map_or(health.encoder, |it| it.encoder).map(share));
    sheet.say("decoder", detail.map_or(health.decoder, |it| it.decoder).map(share));
    let most = |clock: fn(&GpuDetail) -> Reading<Hertz>| detail.map_or(Err(Missing::Unsupported), clock);
    sheet.pair("SM clock", load.sm_clock, " of at most ", most(|it| it.sm_clock_max));
    sheet.pair("memory clock", health.memory_clock, " of at most ", most(|it| it.memory_clock_max));
    if let Some(detail) = detail {
        sheet.pair("graphics clock", detail.graphics_clock, " of at most ", detail.graphics_clock_max);
        sheet.say("video clock", detail.video_clock);
    }
    sheet.say("P-state", health.performance_state.map(|it| format!("P{it}")));
    sheet.say(
        "throttled by",
        load.throttle.as_ref().map_err(|why| *why).map(|reasons| match reasons.as_slice() {
            [] => "nothing".to_owned(),
            reasons => reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        }),
    );
}

fn heat(sheet: &mut Sheet<'_>, gpu: &Gpu, detail: Option<&GpuDetail>) {
    let (load, health) = (&gpu.load, &gpu.health);
    sheet.writer.head("Heat and power");
    sheet.say("temperature", load.temperature);
    sheet.say("slows down at", gpu.facts.slowdown_temperature);
    if let Some(detail) = detail {
        sheet.say("of the memory", detail.memory_temperature);
        sheet.say("margin", detail.temperature_margin.map(|Celsius(it)| format!("{it} degrees before it slows down")));
    }
    sheet.say("power", load.power);
    sheet.say("power limit", health.power_limit);
    if let Some(detail) = detail {
        let watts = |it: Reading<u32>| it.map(Watts::from_milliwatts);
        sheet.pair("may be set to", watts(detail.power_limit_min), " to ", watts(detail.power_limit_max));
        sheet.say("by default", watts(detail.power_limit_default));
        sheet.say("energy", detail.energy.map(energy));
        sheet.pair(
            "whole module",
            watts(detail.module_power_average),
            " of ",
            watts(detail.module_power_limit_enforced),
        );
    }
    match detail.map(|it| it.fans.as_deref()) {
        Some(Ok(fans @ [_, _, ..])) => {
            sheet.writer.field("fans", fans.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
        }
        _ => sheet.say("fan", health.fan),
    }
}

fn errors(sheet: &mut Sheet<'_>, model: &HostModel, gpu: &Gpu, detail: Option<&GpuDetail>) {
    let health = &gpu.health;
    sheet.writer.head("Errors");
    if let Some(detail) = detail {
        let mode = |it: bool| if it { "on" } else { "off" };
        let pending = detail.ecc_pending.ok().filter(|it| Ok(*it) != detail.ecc);
        let after = pending.map_or_else(String::new, |it| format!(", {} after a reboot", mode(it)));
        sheet.say("ECC", detail.ecc.map(|it| format!("{}{after}", mode(it))));
    }
    sheet.say("ECC, mended", health.ecc_corrected);
    sheet.say("ECC, not mended", health.ecc_uncorrected);
    if let Some(detail) = detail {
        places(sheet, "mended", &detail.corrected);
        places(sheet, "not mended", &detail.uncorrected);
        sheet.say("mended ever", detail.corrected_ever.total);
        sheet.say("not mended ever", detail.uncorrected_ever.total);
        let rows = detail.remapped_correctable.and_then(|mended| Ok((mended, detail.remapped_uncorrectable?)));
        sheet.say(
            "rows replaced",
            rows.map(|(mended, not)| format!("{mended} after mended errors, {not} after others")),
        );
    }
    let pending = health.remap_pending.map(|it| if it { "yes: reset the GPU when nobody is on it" } else { "no" });
    sheet.say("rows waiting", pending);
    sheet.say("unreplaced rows", health.remap_failed.map(|it| if it { "yes: no spare row is left" } else { "no" }));
    if let Some(detail) = detail {
        let pages = detail.retired_single.and_then(|single| Ok((single, detail.retired_double?)));
        sheet.say(
            "pages retired",
            pages.map(|(one, two)| format!("{one} after single-bit errors, {two} after double-bit")),
        );
    }
    sheet.say("pages waiting", health.retired_pending.map(|it| if it { "yes: reboot when idle" } else { "no" }));
    let action = |it: u32| health::recovery(it).map_or("nothing", |(_, words)| words);
    sheet.say("to be done", health.recovery_action.map(action));
    let xids = health.xids.iter().map(|it| {
        let words = health::describe_xid(it.code).map_or_else(String::new, |words| format!(" {words}"));
        format!("{}{words}, {} ago", it.code, Elapsed(model.now().since(it.at)))
    });
    sheet.writer.list("Xid", Some(xids));
}

/// Where errors were, if there were any.
fn places(sheet: &mut Sheet<'_>, label: &str, counts: &EccCounts) {
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
        sheet.writer.field(&format!("  {label}"), some.join(", "));
    }
}

fn bus(sheet: &mut Sheet<'_>, gpu: &Gpu, detail: &GpuDetail) {
    sheet.writer.head("Bus");
    sheet.pair("PCIe generation", detail.pcie_generation, " of at most ", detail.pcie_generation_max);
    sheet.pair("PCIe lanes", detail.pcie_width, " of at most ", detail.pcie_width_max);
    sheet.say("PCIe sends", detail.pcie_sent.map(rate));
    sheet.say("PCIe receives", detail.pcie_received.map(rate));
    sheet.say("sent again", detail.pcie_replays.map(|it| format!("{it} packets")));
    let speed = detail.nvlink_speed.map_or_else(|_| String::new(), |it| format!(", {} each", rate(it)));
    sheet.pair("NVLink", detail.nvlinks_up, " up of ", detail.nvlinks.map(|it| format!("{it}{speed}")));
    sheet.say("NVLink sends", detail.nvlink_sent.map(rate));
    sheet.say("NVLink receives", detail.nvlink_received.map(rate));
    match &detail.routes {
        Ok(routes) => routes.iter().for_each(|it| sheet.writer.field(&format!("to GPU {}", it.to), route(it))),
        Err(why) => sheet.say("topology", Err::<u32, _>(*why)),
    }
    sheet.say("near CPUs", detail.cpus.as_ref().map_err(|why| *why));
    sheet.say("near NUMA node", detail.numa_nodes.as_ref().map_err(|why| *why));
    if let Ok(node) = detail.numa_node {
        sheet.writer.field("is NUMA node", format!("{node}: its memory is also the host's"));
    }
    if let Ok([state, status, clique, ..]) = detail.fabric {
        let state = match (state, status) {
            (1, _) => "not started".to_owned(),
            (2, _) => "in progress".to_owned(),
            (_, 0) => "completed".to_owned(),
            (_, error) => format!("FAILED (NVML error {error})"),
        };
        sheet.writer.field("NVLink fabric", format!("{state}, clique {clique}"));
    }
    if let Ok(minor) = gpu.facts.minor {
        sheet.writer.field("device file", format!("/dev/nvidia{minor}"));
    }
}

fn board(sheet: &mut Sheet<'_>, gpu: &Gpu, detail: &GpuDetail) {
    let on = |it: bool| if it { "on" } else { "off" };
    sheet.writer.head("Board and modes");
    sheet.writer.field("UUID", &gpu.uuid);
    sheet.say("MIG", gpu.health.mig.map(|is_split| if is_split { "split into instances" } else { "not split" }));
    sheet.say("persistence", detail.persistence.map(on));
    let mode = detail.compute_mode.map(|it| match it {
        0 => "default: any number of processes",
        1 | 3 => "exclusive: one process",
        2 => "prohibited: no process may compute",
        _ => "another",
    });
    sheet.say("compute mode", mode);
    sheet.say("capability", detail.compute_capability.as_ref().map_err(|why| *why));
    sheet.say("display", detail.display_active.map(|it| if it { "drawn here" } else { "none" }));
    sheet.say("GSP firmware", detail.gsp.map(on));
    let addressing = detail.addressing.map(|it| match it {
        0 => "its own memory only",
        1 => "the host's memory too, by HMM",
        _ => "the host's memory too, by ATS",
    });
    sheet.say("addresses", addressing);
    sheet.say("serial", detail.serial.as_ref().map_err(|why| *why));
    sheet.say("VBIOS", detail.vbios.as_ref().map_err(|why| *why));
}

/// NVML's levels, in nvidia-smi's letters and in words.
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

/// Since the driver was loaded, in the unit of an electricity bill.
fn energy(millijoules: u64) -> String {
    let watt_hours = millijoules / 3_600_000;
    format!("{}.{:02} kWh since the driver was loaded", watt_hours / 1000, watt_hours % 1000 / 10)
}
