//! `--query-gpu`: every field by name, and how it is said.

mod errors;
mod place;
mod rare;

use std::fmt::Write;
use std::time::Duration;

use super::cell::{Cell, DEPRECATED, celsius, enabled, mhz, mib, microseconds, percent, plain, timestamp, watts, yes};
use crate::base::units::Bytes;
use crate::protocol::snapshot::{Cause, Gpu, GpuDetail, Missing, Reading, Snapshot};

/// Whom a field is asked of.
struct Asked<'a> {
    snapshot: &'a Snapshot,
    gpu: &'a Gpu,
}

impl Asked<'_> {
    fn detail<T>(&self, read: impl FnOnce(&GpuDetail) -> Reading<T>) -> Reading<T> {
        self.gpu.detail.as_ref().map_or(Err(Missing::Unsupported), |it| read(it))
    }

    /// Whether its driver is older than that.
    fn driver_is_before(&self, major: u32) -> bool {
        let version = self.snapshot.driver.version.as_ref();
        version.and_then(|it| it.as_str().split('.').next()?.parse::<u32>().ok()).is_some_and(|it| it < major)
    }

    /// `00000000:0C:00.0`: domain, bus and device.
    fn bus(&self, part: usize) -> Reading<u32> {
        let bus_id = self.gpu.facts.bus_id.clone()?;
        let part = bus_id.as_str().split([':', '.']).nth(part).ok_or(Missing::Failed)?;
        u32::from_str_radix(part, 16).map_err(|_| Missing::Failed)
    }
}

/// Figures that were read longer ago than this are not those of this pass.
const FRESH: Duration = Duration::from_secs(1);

type Show = Box<dyn Fn(&Asked<'_>) -> Cell>;

/// What can be asked.
pub(super) struct Field {
    /// The first is what stands in the head.
    names: Vec<String>,
    unit: &'static str,
    about: &'static str,
    /// It is known of a GPU that does not answer, too.
    always: bool,
    show: Show,
}

impl Field {
    pub(super) fn head(&self) -> String {
        let name = &self.names[0];
        if self.unit.is_empty() { name.clone() } else { format!("{name} [{}]", self.unit) }
    }

    pub(super) fn cell(&self, snapshot: &Snapshot, gpu: &Gpu) -> Cell {
        let cell = || (self.show)(&Asked { snapshot, gpu });
        let Some(trouble) = gpu.trouble.as_ref().filter(|_| !self.always) else { return cell() };
        // What was read before it fell silent is no answer.
        let load = gpu.load.at;
        let is_read = !trouble.is_silence() && (load >= trouble.since || snapshot.at.since(load) < FRESH);
        match trouble.cause {
            Cause::Lost => Cell::None("[GPU is lost]"),
            Cause::Denied if !is_read => Cell::None("[Insufficient Permissions]"),
            _ if !is_read => Cell::missing(Missing::Failed),
            Cause::Reset if cell() == Cell::missing(Missing::Failed) => Cell::None("[GPU requires reset]"),
            _ => cell(),
        }
    }
}

/// The fields of these names, or the name that none has.
pub(super) fn fields(names: &[String]) -> Result<Vec<Field>, String> {
    let mut fields = Vec::new();
    for name in names {
        let name = name.trim();
        let found = all().into_iter().find(|field| field.names.iter().any(|it| it == name));
        fields.push(found.ok_or_else(|| name.to_owned())?);
    }
    Ok(fields)
}

pub(super) fn help() -> String {
    let mut text = "Fields of --query-gpu:\n".to_owned();
    for field in all() {
        let names: Vec<String> = field.names.iter().map(|it| format!("\"{it}\"")).collect();
        let _infallible: std::fmt::Result = write!(text, "\n{}\n{}\n", names.join(" or "), field.about);
    }
    text
}

/// All fields, as a list that grows.
struct List(Vec<Field>);

impl List {
    /// Names are parted by spaces.
    fn add(
        &mut self,
        names: &str,
        unit: &'static str,
        about: &'static str,
        show: impl Fn(&Asked<'_>) -> Cell + 'static,
    ) {
        let names = names.split(' ').map(str::to_owned).collect();
        self.0.push(Field { names, unit, about, always: false, show: Box::new(show) });
    }

    /// One that is known also of a GPU that does not answer.
    fn always(&mut self, names: &str, about: &'static str, show: impl Fn(&Asked<'_>) -> Cell + 'static) {
        self.add(names, "", about, show);
        if let Some(field) = self.0.last_mut() {
            field.always = true;
        }
    }
}

/// In nvidia-smi's order.
fn all() -> Vec<Field> {
    let mut list = List(Vec::new());
    identity(&mut list);
    bus(&mut list);
    modes(&mut list);
    clocks_event_reasons(&mut list);
    memory_and_use(&mut list);
    errors::errors(&mut list);
    heat_and_power(&mut list);
    clocks(&mut list);
    place::fabrics(&mut list);
    place::platform(&mut list);
    rare::hostname(&mut list);
    list.0
}

fn identity(list: &mut List) {
    list.always("timestamp", "When it was asked, in local time: YYYY/MM/DD HH:MM:SS.msec.", |it| {
        Cell::plain(timestamp(it.snapshot.unix_ms, it.snapshot.host.facts.utc_offset.unwrap_or(0)))
    });
    list.always("driver_version", "The driver's version.", |it| {
        it.snapshot.driver.version.as_ref().map_or(Cell::missing(Missing::Failed), Cell::plain)
    });
    list.always("kmd_version", "The version of its part in the kernel: the same.", |it| {
        it.snapshot.driver.version.as_ref().map_or(Cell::missing(Missing::Failed), Cell::plain)
    });
    rare::vgpu_of_driver(list);
    list.always("count", "How many GPUs the host has.", |it| {
        Cell::plain(it.snapshot.gpus.iter().filter(|gpu| gpu.facts.parent.is_none()).count())
    });
    list.always("name gpu_name", "Product name.", |it| plain(it.gpu.facts.name.clone()));
    list.add("serial gpu_serial", "", "The number on the board.", |it| plain(it.detail(|it| it.serial.clone())));
    list.always("uuid gpu_uuid", "The GPU's own id.", |it| Cell::plain(&it.gpu.uuid));
}

fn bus(list: &mut List) {
    list.always("pci.bus_id gpu_bus_id", "PCI domain:bus:device.function.", |it| plain(it.gpu.facts.bus_id.clone()));
    list.always("pci.domain", "PCI domain.", |it| Cell::of(it.bus(0), |it| Cell::plain(format!("0x{it:04X}"))));
    list.always("pci.bus", "PCI bus.", |it| Cell::of(it.bus(1), |it| Cell::plain(format!("0x{it:02X}"))));
    list.always("pci.device", "PCI device.", |it| Cell::of(it.bus(2), |it| Cell::plain(format!("0x{it:02X}"))));
    let hex = |reading: Reading<u32>| Cell::of(reading, |it| Cell::plain(format!("0x{it:X}")));
    let wide = |reading: Reading<u32>| Cell::of(reading, |it| Cell::plain(format!("0x{it:08X}")));
    list.add("pci.baseClass", "", "PCI base class.", move |it| hex(it.detail(|it| it.pci_class.map(|it| it[0]))));
    list.add("pci.subClass", "", "PCI subclass.", move |it| hex(it.detail(|it| it.pci_class.map(|it| it[1]))));
    list.add("pci.device_id", "", "PCI device and vendor.", move |it| wide(it.detail(|it| it.pci_device)));
    list.add("pci.sub_device_id", "", "PCI subsystem.", move |it| wide(it.detail(|it| it.pci_subsystem)));
    rare::vgpu_of_gpu(list);
    list.add("pcie.link.gen.current", "", "PCIe generation in use.", |it| plain(it.detail(|it| it.pcie_generation)));
    list.add("pcie.link.gen.gpucurrent", "", "The same.", |it| plain(it.detail(|it| it.pcie_generation)));
    list.add("pcie.link.gen.max", "", "The highest that GPU and host can do together.", |it| {
        plain(it.detail(|it| it.pcie_generation_max))
    });
    list.add("pcie.link.gen.gpumax", "", "The highest that the GPU can do.", |it| {
        plain(it.detail(|it| it.pcie_generation_gpu_max))
    });
    list.add("pcie.link.gen.hostmax", "", "The highest that the port of the host can do.", |it| {
        plain(it.detail(|it| it.pcie_generation_host_max))
    });
    list.add("pcie.link.width.current", "", "PCIe lanes in use.", |it| plain(it.detail(|it| it.pcie_width)));
    list.add("pcie.link.width.max", "", "The most there can be.", |it| plain(it.detail(|it| it.pcie_width_max)));
}

fn modes(list: &mut List) {
    list.always("index", "The GPU's number, which can change at each boot.", |it| Cell::plain(it.gpu.facts.index));
    list.add("display_mode", "", "As display_attached, of drivers before 580; later ones call it deprecated.", |it| {
        if it.driver_is_before(580) { enabled(it.detail(|it| it.display_attached)) } else { DEPRECATED }
    });
    list.add("display_attached", "", "Whether a display can be connected: Yes, No.", |it| {
        yes(it.detail(|it| it.display_attached))
    });
    list.add("display_active", "", "Whether one is drawn.", |it| enabled(it.detail(|it| it.display_active)));
    list.add("persistence_mode", "", "Whether the driver stays when nobody uses the GPU.", |it| {
        enabled(it.detail(|it| it.persistence))
    });
    list.add("addressing_mode", "", "How it addresses the host's memory: None, HMM, ATS.", |it| {
        Cell::of(it.detail(|it| it.addressing), |it| match it {
            0 => Cell::plain("None"),
            1 => Cell::plain("HMM"),
            2 => Cell::plain("ATS"),
            _ => Cell::missing(Missing::Failed),
        })
    });
    list.add("accounting.mode", "", "Whether ended processes are accounted for.", |it| {
        enabled(it.detail(|it| it.accounting))
    });
    list.add("accounting.buffer_size", "", "For how many.", |it| plain(it.detail(|it| it.accounting_buffer)));
    rare::driver_model(list);
    list.add("vbios_version", "", "Version of the board's firmware.", |it| plain(it.detail(|it| it.vbios.clone())));
    list.add("inforom.img inforom.image", "", "Version of the infoROM.", |it| {
        plain(it.detail(|it| it.inforom_image.clone()))
    });
    list.add("inforom.oem", "", "Version of its OEM part.", |it| plain(it.detail(|it| it.inforom_oem.clone())));
    list.add("inforom.ecc", "", "Version of its ECC part.", |it| plain(it.detail(|it| it.inforom_ecc.clone())));
    list.add("inforom.pwr inforom.power", "", "Version of its power part.", |it| {
        plain(it.detail(|it| it.inforom_power.clone()))
    });
    list.add("inforom.checksum_validation", "", "Whether its checksum is right: valid, invalid.", |it| {
        Cell::of(it.detail(|it| it.inforom_valid), |it| Cell::plain(if it { "valid" } else { "invalid" }))
    });
    list.add("gpu_recovery_action", "", "What should be done to mend the GPU.", |it| {
        Cell::of(it.detail(|it| it.recovery_action), |it| match it {
            0 => Cell::plain("None"),
            1 => Cell::plain("Reset"),
            2 => Cell::plain("Reboot"),
            3 => Cell::plain("Drain P2P"),
            4 => Cell::plain("Drain and Reset"),
            5 => Cell::plain("Recover IMEX Domain"),
            6 => Cell::plain("Bus Reset"),
            7 => Cell::plain("System Reboot"),
            _ => Cell::missing(Missing::Failed),
        })
    });
    place::operation_mode(list);
    list.add("fan.speed", "%", "The intended speed of the fan.", |it| percent(it.gpu.health.fan));
    list.add("pstate", "", "P0 is fastest, P15 slowest.", |it| {
        Cell::of(it.gpu.health.performance_state, |it| Cell::plain(format!("P{it}")))
    });
}

/// Name, NVML's bit, and what it is.
const REASONS: [(&str, u64, &str); 8] = [
    ("gpu_idle", 0x1, "Nothing runs."),
    ("applications_clocks_setting", 0x2, "The clocks were set so."),
    ("sw_power_cap", 0x4, "The power limit of software."),
    ("hw_slowdown", 0x8, "Hardware slowdown, for heat or power."),
    ("hw_thermal_slowdown", 0x40, "Hardware slowdown for heat."),
    ("hw_power_brake_slowdown", 0x80, "The power supply asked for it."),
    ("sw_thermal_slowdown", 0x20, "The temperature limit of software."),
    ("sync_boost", 0x10, "Another GPU of its group is slower."),
];

/// A name, and for how long that has held the clocks.
type Held = fn(&GpuDetail) -> Reading<u64>;
const HELD: [(&str, Held); 5] = [
    ("sw_power_cap", |it| it.held_power_cap),
    ("sync_boost", |it| it.held_sync_boost),
    ("sw_thermal_slowdown", |it| it.held_thermal),
    ("hw_thermal_slowdown", |it| it.held_hardware_thermal),
    ("hw_power_brake_slowdown", |it| it.held_power_brake),
];

fn clocks_event_reasons(list: &mut List) {
    let name = |it: &str| format!("clocks_event_reasons.{it} clocks_throttle_reasons.{it}");
    let bits = |reading: Reading<u64>| Cell::of(reading, |it| Cell::plain(format!("0x{it:016X}")));
    list.add(&name("supported"), "", "Bits of what can hold the clocks.", move |it| {
        bits(it.detail(|it| it.clock_reasons_supported))
    });
    list.add(&name("active"), "", "Bits of what holds the clocks.", move |it| bits(it.detail(|it| it.clock_reasons)));
    for (reason, bit, about) in REASONS {
        list.add(&name(reason), "", about, move |it| {
            let active = it.detail(|it| it.clock_reasons.map(|bits| bits & bit != 0));
            Cell::of(active, |it| Cell::plain(if it { "Active" } else { "Not Active" }))
        });
    }
    for (reason, held) in HELD {
        let name = format!("clocks_event_reasons_counters.{reason}");
        list.add(&name, "us", "How long that has held the clocks.", move |it| microseconds(it.detail(held)));
    }
}

fn memory_and_use(list: &mut List) {
    list.add("memory.total", "MiB", "All device memory.", |it| mib(it.gpu.load.memory_total));
    list.add("memory.reserved", "MiB", "What the driver keeps for itself.", |it| mib(it.gpu.load.memory_reserved));
    list.add("memory.used", "MiB", "What is in use, without that.", |it| mib(it.gpu.load.memory_used));
    list.add("memory.free", "MiB", "What is left.", |it| mib(it.gpu.load.memory_free));
    list.add("compute_mode", "", "Who may compute on it.", |it| {
        Cell::of(it.detail(|it| it.compute_mode), |it| match it {
            0 => Cell::plain("Default"),
            1 => Cell::plain("Exclusive_Thread"),
            2 => Cell::plain("Prohibited"),
            3 => Cell::plain("Exclusive_Process"),
            _ => Cell::missing(Missing::Failed),
        })
    });
    list.add("compute_cap", "", "CUDA compute capability.", |it| plain(it.detail(|it| it.compute_capability.clone())));
    list.add("utilization.gpu", "%", "Share of time in which a kernel ran.", |it| percent(it.gpu.load.sm));
    list.add("utilization.memory", "%", "Share of time in which memory was read or written.", |it| {
        percent(it.gpu.load.memory_bandwidth)
    });
    list.add("utilization.encoder", "%", "Use of the encoder.", |it| percent(it.detail(|it| it.encoder)));
    list.add("utilization.decoder", "%", "Use of the decoder.", |it| percent(it.detail(|it| it.decoder)));
    list.add("utilization.jpeg", "%", "Use of the JPEG engine.", |it| percent(it.detail(|it| it.jpeg)));
    list.add("utilization.ofa", "%", "Use of the optical flow engine.", |it| percent(it.detail(|it| it.ofa)));
    for (at, name, about) in [
        (0, "sessionCount", "Encoder sessions."),
        (1, "averageFps", "Their mean frames per second."),
        (2, "averageLatency", "Their mean latency in microseconds."),
    ] {
        let name = format!("encoder.stats.{name}");
        list.add(&name, "", about, move |it| plain(it.detail(|it| it.encoder_stats.map(|it| it[at]))));
    }
}

/// Names, what it is, and where it stands.
type Power = fn(&GpuDetail) -> Reading<u32>;
const POWER: [(&str, &str, Power); 8] = [
    ("power.draw", "What the board draws.", |it| it.power_draw),
    ("power.draw.average gpu.power.draw.average", "On average over the last second.", |it| it.power_average),
    ("power.draw.instant gpu.power.draw.instant", "Now.", |it| it.power_instant),
    ("power.limit gpu.power.requested_limit", "The limit that was asked for.", |it| it.power_limit),
    ("enforced.power.limit gpu.power.current_limit", "The limit in force.", |it| it.power_limit_enforced),
    ("power.default_limit gpu.power.default_limit", "The limit after a reboot.", |it| it.power_limit_default),
    ("power.min_limit gpu.power.min_limit", "The lowest that may be asked for.", |it| it.power_limit_min),
    ("power.max_limit gpu.power.max_limit", "The highest that may be asked for.", |it| it.power_limit_max),
];

fn heat_and_power(list: &mut List) {
    list.add("temperature.gpu", "", "Of the core, in degrees Celsius.", |it| celsius(it.gpu.load.temperature));
    list.add("temperature.gpu.tlimit", "", "How far it is from slowing down for heat.", |it| {
        celsius(it.detail(|it| it.temperature_margin))
    });
    // The one field whose absence has no brackets.
    list.add("temperature.memory", "", "Of the device memory.", |it| match it.detail(|it| it.memory_temperature) {
        Err(Missing::Unsupported) => Cell::None("N/A"),
        temperature => celsius(temperature),
    });
    list.add("power.management", "", "Not answered by drivers any more.", |_| DEPRECATED);
    for (names, about, power) in POWER {
        list.add(names, "W", about, move |it| watts(it.detail(power)));
    }
    place::module_power(list);
    rare::power_smoothing(list);
}

fn clocks(list: &mut List) {
    list.add("clocks.current.graphics clocks.gr", "MHz", "Of the graphics engine.", |it| {
        mhz(it.detail(|it| it.graphics_clock))
    });
    list.add("clocks.current.sm clocks.sm", "MHz", "Of the multiprocessors.", |it| mhz(it.gpu.load.sm_clock));
    list.add("clocks.current.memory clocks.mem", "MHz", "Of the device memory.", |it| mhz(it.gpu.health.memory_clock));
    list.add("clocks.current.video clocks.video", "MHz", "Of the video engines.", |it| {
        mhz(it.detail(|it| it.video_clock))
    });
    for (at, (name, short)) in [
        ("applications", "gr"),
        ("applications", "mem"),
        ("default_applications", "gr"),
        ("default_applications", "mem"),
    ]
    .into_iter()
    .enumerate()
    {
        let long = if short == "gr" { "graphics" } else { "memory" };
        let names = format!("clocks.{name}.{long} clocks.{name}.{short}");
        list.add(&names, "MHz", "The clock that applications get; newer drivers have none.", move |it| {
            let clocks = it.detail(|it| it.application_clocks.as_ref().map(|it| it[at]).map_err(|why| *why));
            Cell::of(clocks, |it| it.map_or(DEPRECATED, |it| Cell::Value(it.to_string(), "MHz")))
        });
    }
    list.add("clocks.max.graphics clocks.max.gr", "MHz", "The highest of the graphics engine.", |it| {
        mhz(it.detail(|it| it.graphics_clock_max))
    });
    list.add("clocks.max.sm", "MHz", "The highest of the multiprocessors.", |it| mhz(it.detail(|it| it.sm_clock_max)));
    list.add("clocks.max.memory clocks.max.mem", "MHz", "The highest of the device memory.", |it| {
        mhz(it.detail(|it| it.memory_clock_max))
    });
    list.add("mig.mode.current", "", "Whether MIG splits it.", |it| enabled(it.gpu.health.mig));
    list.add("mig.mode.pending", "", "Whether it will after a reset.", |it| enabled(it.detail(|it| it.mig_pending)));
    list.add("gsp.mode.current", "", "Whether the GPU's own processor runs the driver's firmware.", |it| {
        enabled(it.detail(|it| it.gsp))
    });
    list.add("gsp.mode.default", "", "Whether it does by default.", |it| enabled(it.detail(|it| it.gsp_default)));
    list.add("c2c.mode", "", "Whether the chip-to-chip link to the processor is on.", |it| {
        enabled(it.detail(|it| it.c2c))
    });
    let protected = |it: &Asked<'_>| it.detail(|it| it.protected_memory);
    list.add("protected_memory.total", "MiB", "Memory under confidential computing.", move |it| {
        mib(protected(it).map(|it| it[0]))
    });
    list.add("protected_memory.used", "MiB", "What of it is in use.", move |it| mib(protected(it).map(|it| it[1])));
    list.add("protected_memory.free", "MiB", "What of it is left.", move |it| {
        mib(protected(it).map(|[total, used]: [Bytes; 2]| total.saturating_sub(used)))
    });
}
