//! The page of one GPU. One line at the end lists what this GPU or its driver never reports.

use std::borrow::Borrow;
use std::fmt::Display;

use super::{Writer, describe_growth, memory};
use crate::base::units::{Bytes, Celsius, Elapsed, Percent, Watts};
use crate::model::{GpuOrProcess, HostModel, health};
use crate::protocol::snapshot::{
    EccCounts, Failure, Gpu, GpuDetail, Missing, Reading, Route, SharedMemory,
};

/// Writes readings, and collects the names of those that are not reported.
struct ReadingWriter<'a> {
    writer: &'a mut Writer,
    unreported: Vec<String>,
    /// Whether the details of the GPU are known. Until then, readings that are not read yet have no
    /// line.
    has_detail: bool,
}

impl ReadingWriter<'_> {
    fn reading(&mut self, label: &str, reading: Result<impl Display, impl Borrow<Missing>>) {
        match reading.map_err(|why| *why.borrow()) {
            Err(Missing::Unsupported) => self.unreported.push(label.to_owned()),
            Err(Missing::NotYet) if !self.has_detail => {}
            reading => self.writer.reading(label, reading),
        }
    }

    /// Writes two readings on one line; the second only if it is known.
    fn pair(
        &mut self,
        label: &str,
        first: Reading<impl Display>,
        between: &str,
        second: Reading<impl Display>,
    ) {
        match (first, second) {
            (Ok(first), Ok(second)) => self
                .writer
                .field(label, format!("{first}{between}{second}")),
            (first, _) => self.reading(label, first),
        }
    }
}

/// Writes the page. `without_detail` stands in place of missing details and says why they are
/// missing.
pub(super) fn describe(writer: &mut Writer, model: &HostModel, gpu: &Gpu, without_detail: &str) {
    let (facts, health) = (&gpu.facts, model.health(gpu));
    writer.reading("name", facts.name.as_ref());
    if facts.simulated {
        writer.field("simulated", "this GPU does not exist: it belongs to --demo");
    }
    writer.field("index", facts.index);
    writer.reading("bus id", facts.bus_id.as_ref());
    writer.field("health", health.phrase);
    if let Some(trouble) = &gpu.trouble {
        writer.field("trouble", &trouble.sentence);
    }
    let driver = model
        .latest()
        .map(|snapshot| snapshot.driver.failures.as_slice())
        .unwrap_or_default();
    for (label, failures) in [
        ("calls that fail", gpu.failures.as_slice()),
        ("of the driver", driver),
    ] {
        if !failures.is_empty() {
            let since = |failure: &Failure| {
                format!(
                    "{failure}, for {}",
                    Elapsed(model.now().since(failure.since))
                )
            };
            writer.list(label, Some(failures.iter().map(since)));
        }
    }
    if let Some(age) = model.age(gpu) {
        writer.field("age", format!("the figures below are {} old", Elapsed(age)));
    }
    let whole = facts
        .parent
        .as_ref()
        .and_then(|parent| model.latest()?.gpu(parent));
    let counts = || EccCounts::missing(Missing::NotYet);
    let unknown = GpuDetail::missing(
        gpu.load.at,
        counts(),
        counts(),
        counts(),
        counts(),
        Missing::NotYet,
    );
    let known = whole.unwrap_or(gpu).detail.as_deref();
    let detail = known.unwrap_or(&unknown);
    let mut page = ReadingWriter {
        writer,
        unreported: Vec::new(),
        has_detail: known.is_some(),
    };
    device_memory(&mut page, model, gpu, detail);
    if let Some(whole) = whole {
        page.writer.field(
            "instance of",
            format!(
                "GPU {}: what follows is of the whole GPU",
                whole.facts.index
            ),
        );
    }
    let gpu = whole.unwrap_or(gpu);
    work(&mut page, gpu, detail);
    heat(&mut page, gpu, detail);
    errors(&mut page, model, gpu, detail);
    if page.has_detail {
        bus(&mut page, gpu, detail);
        board(&mut page, gpu, detail);
    } else {
        page.writer.field("details", without_detail);
    }
    let unreported = page.unreported;
    if !unreported.is_empty() {
        writer.head("Not reported by this GPU or its driver (N/A)");
        writer.field("", unreported.join(", "));
    }
}

fn device_memory(page: &mut ReadingWriter<'_>, model: &HostModel, gpu: &Gpu, detail: &GpuDetail) {
    let load = &gpu.load;
    page.writer.head("Memory");
    if load.memory_total == Err(Missing::Unsupported) {
        let why = "N/A: the driver reports none of its own, as for a GPU that shares the memory of the host";
        page.writer.field("device memory", why);
        if let Some(SharedMemory { used, total }) = gpu.shared_memory {
            page.writer.field(
                "host's memory",
                format!("{used} of {total} in use, by all programs of the host"),
            );
        }
    } else {
        page.writer.reading("used", load.memory_used);
        page.writer.reading("free", load.memory_free);
        page.writer
            .reading("driver's reserve", load.memory_reserved);
        page.writer.reading("total", load.memory_total);
    }
    memory::of_gpu(page.writer, model, gpu);
    describe_growth(page.writer, model, &GpuOrProcess::Gpu(gpu.uuid.clone()));
    if gpu.facts.parent.is_none() {
        page.pair("BAR1 in use", detail.bar1_used, " of ", detail.bar1_total);
        page.reading(
            "confidential",
            detail.protected_memory.map(|[total, used]| {
                if total == Bytes(0) {
                    "off".to_owned()
                } else {
                    format!("{used} of {total}")
                }
            }),
        );
    }
}

fn work(page: &mut ReadingWriter<'_>, gpu: &Gpu, detail: &GpuDetail) {
    let (load, health) = (&gpu.load, &gpu.health);
    page.writer.head("Work");
    // The figures are aligned, and the words behind them too.
    let share = |percent: Percent| format!("{percent:>4}");
    page.reading(
        "SM",
        load.sm
            .map(|percent| format!("{percent:>4} of the time, some kernel ran")),
    );
    page.reading(
        "SM active",
        detail
            .sm_active
            .map(|share| format!("{share:>4} of the multiprocessors, on average")),
    );
    page.reading("SM occupancy", detail.sm_occupancy.map(share));
    page.reading("tensor cores", detail.tensor_active.map(share));
    page.reading("DRAM bandwidth", detail.dram_active.map(share));
    page.reading(
        "memory access",
        load.memory_bandwidth
            .map(|percent| format!("{percent:>4} of the time")),
    );
    let [encoder, decoder] = if page.has_detail {
        [detail.encoder, detail.decoder]
    } else {
        [health.encoder, health.decoder]
    };
    page.reading("encoder", encoder.map(share));
    page.reading("decoder", decoder.map(share));
    page.pair(
        "SM clock",
        load.sm_clock,
        " of at most ",
        detail.sm_clock_max,
    );
    page.pair(
        "memory clock",
        health.memory_clock,
        " of at most ",
        detail.memory_clock_max,
    );
    page.pair(
        "graphics clock",
        detail.graphics_clock,
        " of at most ",
        detail.graphics_clock_max,
    );
    page.reading("video clock", detail.video_clock);
    page.reading(
        "P-state",
        health.performance_state.map(|state| format!("P{state}")),
    );
    let reasons = load.throttle.as_ref().map(|reasons| joined(reasons));
    page.reading(
        "throttled by",
        reasons.map(|reasons| {
            if reasons.is_empty() {
                "nothing".to_owned()
            } else {
                reasons
            }
        }),
    );
}

fn heat(page: &mut ReadingWriter<'_>, gpu: &Gpu, detail: &GpuDetail) {
    let (load, health) = (&gpu.load, &gpu.health);
    page.writer.head("Heat and power");
    page.reading("temperature", load.temperature);
    page.reading("slows down at", gpu.facts.slowdown_temperature);
    page.reading("of the memory", detail.memory_temperature);
    let margin = detail
        .temperature_margin
        .map(|Celsius(degrees)| format!("{degrees} degrees before it slows down"));
    page.reading("margin", margin);
    page.reading("power", load.power);
    page.reading("power limit", health.power_limit);
    let watts = |reading: Reading<u32>| reading.map(Watts::from_milliwatts);
    page.pair(
        "may be set to",
        watts(detail.power_limit_min),
        " to ",
        watts(detail.power_limit_max),
    );
    page.reading("by default", watts(detail.power_limit_default));
    page.reading("energy", detail.energy.map(energy));
    let module_limit = watts(detail.module_power_limit_enforced);
    page.pair(
        "whole module",
        watts(detail.module_power_average),
        " of ",
        module_limit,
    );
    match detail.fans.as_deref() {
        Ok(fans @ [_, _, ..]) => page.writer.field("fans", joined(fans)),
        _ => page.reading("fan", health.fan),
    }
}

fn errors(page: &mut ReadingWriter<'_>, model: &HostModel, gpu: &Gpu, detail: &GpuDetail) {
    let health = &gpu.health;
    page.writer.head("Errors");
    let pending = detail
        .ecc_pending
        .ok()
        .filter(|pending| Ok(*pending) != detail.ecc);
    let after = pending.map_or_else(String::new, |pending| {
        format!(", {} after a reboot", on_or_off(pending))
    });
    page.reading(
        "ECC",
        detail
            .ecc
            .map(|is_on| format!("{}{after}", on_or_off(is_on))),
    );
    page.reading("ECC, corrected", health.ecc_corrected);
    page.reading("ECC, uncorrected", health.ecc_uncorrected);
    places(page, "corrected", &detail.corrected);
    places(page, "uncorrected", &detail.uncorrected);
    page.reading("corrected ever", detail.corrected_ever.total);
    page.reading("uncorrected ever", detail.uncorrected_ever.total);
    let rows = detail.remapped_correctable.and_then(|correctable| {
        Ok(format!(
            "{correctable} after correctable errors, {} after uncorrectable ones",
            detail.remapped_uncorrectable?
        ))
    });
    page.reading("rows replaced", rows);
    let or_no = |text: &'static str| move |is_so: bool| if is_so { text } else { "no" };
    page.reading(
        "rows waiting",
        health
            .remap_pending
            .map(or_no("yes: reset the GPU when idle")),
    );
    page.reading(
        "unreplaced rows",
        health.remap_failed.map(or_no("yes: no spare row is left")),
    );
    let pages = detail.retired_single.and_then(|single| {
        Ok(format!(
            "{single} after single-bit errors, {} after double-bit",
            detail.retired_double?
        ))
    });
    page.reading("pages retired", pages);
    page.reading(
        "pages waiting",
        health.retired_pending.map(or_no("yes: reboot when idle")),
    );
    let action = |action: u32| health::recovery(action).map_or("nothing", |(_, words)| words);
    page.reading("to be done", health.recovery_action.map(action));
    let xids = health.xids.iter().map(|xid| {
        let words =
            health::describe_xid(xid.code).map_or_else(String::new, |words| format!(" {words}"));
        format!(
            "{}{words}, {} ago",
            xid.code,
            Elapsed(model.now().since(xid.at))
        )
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
    let known = places
        .into_iter()
        .filter_map(|(place, count)| Some((place, count.ok()?)));
    let some: Vec<_> = known
        .filter(|(_, count)| *count > 0)
        .map(|(place, count)| format!("{count} in {place}"))
        .collect();
    if !some.is_empty() {
        page.writer.field(&format!("  {label}"), some.join(", "));
    }
}

fn bus(page: &mut ReadingWriter<'_>, gpu: &Gpu, detail: &GpuDetail) {
    page.writer.head("Bus");
    page.pair(
        "PCIe generation",
        detail.pcie_generation,
        " of at most ",
        detail.pcie_generation_max,
    );
    page.pair(
        "PCIe lanes",
        detail.pcie_width,
        " of at most ",
        detail.pcie_width_max,
    );
    page.reading("PCIe sends", detail.pcie_sent.map(rate));
    page.reading("PCIe receives", detail.pcie_received.map(rate));
    page.reading(
        "sent again",
        detail.pcie_replays.map(|count| format!("{count} packets")),
    );
    let speed = detail
        .nvlink_speed
        .map_or_else(|_| String::new(), |speed| format!(", {} each", rate(speed)));
    page.pair(
        "NVLink",
        detail.nvlinks_up,
        " up of ",
        detail.nvlinks.map(|count| format!("{count}{speed}")),
    );
    page.reading("NVLink sends", detail.nvlink_sent.map(rate));
    page.reading("NVLink receives", detail.nvlink_received.map(rate));
    match &detail.routes {
        Ok(routes) => routes.iter().for_each(|other| {
            page.writer
                .field(&format!("to GPU {}", other.to), route(other));
        }),
        Err(why) => page.reading("topology", Err::<String, _>(why)),
    }
    page.reading("near CPUs", detail.cpus.as_ref());
    page.reading("near NUMA node", detail.numa_nodes.as_ref());
    if let Ok(node) = detail.numa_node {
        page.writer.field(
            "is NUMA node",
            format!("{node}: its memory is also the host's"),
        );
    }
    if let Ok([state, status, clique, ..]) = detail.fabric {
        let state = match (state, status) {
            (1, _) => "not started".to_owned(),
            (2, _) => "in progress".to_owned(),
            (_, 0) => "completed".to_owned(),
            (_, error) => format!("FAILED (NVML error {error})"),
        };
        page.writer
            .field("NVLink fabric", format!("{state}, clique {clique}"));
    }
    if let Ok(minor) = gpu.facts.minor {
        page.writer
            .field("device file", format!("/dev/nvidia{minor}"));
    }
}

fn board(page: &mut ReadingWriter<'_>, gpu: &Gpu, detail: &GpuDetail) {
    page.writer.head("Board and modes");
    page.writer.field("UUID", &gpu.uuid);
    page.reading(
        "MIG",
        gpu.health.mig.map(|is_split| {
            if is_split {
                "split into instances"
            } else {
                "off"
            }
        }),
    );
    page.reading("persistence", detail.persistence.map(on_or_off));
    let mode = detail.compute_mode.map(|mode| match mode {
        0 => "default: any number of processes",
        1 | 3 => "exclusive: one process",
        2 => "prohibited: no process may compute",
        _ => "another",
    });
    page.reading("compute mode", mode);
    page.reading("capability", detail.compute_capability.as_ref());
    let display =
        detail
            .display_active
            .map(|is_active| match (is_active, detail.display_attached) {
                (true, _) => "drawn here",
                (false, Ok(true)) => "attached, not in use",
                (false, _) => "none",
            });
    page.reading("display", display);
    page.reading("GSP firmware", detail.gsp.map(on_or_off));
    let addressing = detail.addressing.map(|mode| match mode {
        0 => "its own memory only",
        1 => "the host's memory too, by HMM",
        _ => "the host's memory too, by ATS",
    });
    page.reading("addresses", addressing);
    page.reading("serial", detail.serial.as_ref());
    page.reading("VBIOS", detail.vbios.as_ref());
}

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

fn on_or_off(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

fn joined(parts: &[impl ToString]) -> String {
    parts
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

fn rate(bytes: Bytes) -> String {
    format!("{bytes}/s")
}

/// Formats the energy since the driver was loaded in kWh, the unit of an electricity bill; a small
/// amount in Wh.
fn energy(millijoules: u64) -> String {
    let watt_hours = millijoules / 3_600_000;
    let amount = if watt_hours < 100 {
        format!("{watt_hours}.{} Wh", millijoules / 360_000 % 10)
    } else {
        format!("{}.{:02} kWh", watt_hours / 1000, watt_hours % 1000 / 10)
    };
    format!("{amount} since the driver was loaded")
}
