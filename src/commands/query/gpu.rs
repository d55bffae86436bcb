//! `--query-gpu`: every field by name, in nvidia-smi's order, and how its value is written.

mod errors;
mod fabric;
mod power;
mod virtualization;

use std::time::Duration;

use super::field::{self, QueryField};
use super::value::{
    DEPRECATED, NOT_AVAILABLE, QueryValue, choice, enabled, mhz, mib, microseconds, percent, plain, timestamp, word,
    yes,
};
use crate::protocol::snapshot::{Cause, Gpu, GpuDetail, Missing, Reading, Snapshot};

/// The subject of a row: a GPU, and the snapshot that it is part of.
pub(super) struct QueriedGpu<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) gpu: &'a Gpu,
}

impl QueriedGpu<'_> {
    fn detail<T>(&self, read: impl FnOnce(&GpuDetail) -> Reading<T>) -> Reading<T> {
        self.gpu.detail.as_deref().map_or(Err(Missing::Unsupported), read)
    }

    /// Whether the driver's major version is lower than `major`.
    fn driver_is_before(&self, major: u32) -> bool {
        let version = self.snapshot.driver.version.as_ref();
        let installed = version.and_then(|version| version.as_str().split('.').next()?.parse::<u32>().ok());
        installed.is_some_and(|installed| installed < major)
    }

    /// One part of the PCI address `00000000:0C:00.0`: 0 is the domain, 1 the bus, 2 the device.
    fn bus(&self, part: usize) -> Reading<u32> {
        let bus_id = self.gpu.facts.bus_id.clone()?;
        let part = bus_id.as_str().split([':', '.']).nth(part).ok_or(Missing::Failed)?;
        u32::from_str_radix(part, 16).map_err(|_| Missing::Failed)
    }

    /// The value of a field. A GPU in trouble answers in nvidia-smi's words, or with what could still be read.
    pub(super) fn value(&self, field: &GpuField) -> QueryValue {
        /// The load of a GPU in trouble is from this pass if it is younger.
        const FRESH: Duration = Duration::from_secs(1);
        let (GpuValue { read, is_static }, gpu) = (&field.value, self.gpu);
        let Some(trouble) = gpu.trouble.as_ref().filter(|_| !is_static) else { return read(self) };
        let read_at = gpu.load.at;
        let is_read = !trouble.is_silence() && (read_at >= trouble.since || self.snapshot.at.since(read_at) < FRESH);
        match trouble.cause {
            Cause::Lost => QueryValue::Absent("[GPU is lost]"),
            Cause::Denied if !is_read => QueryValue::missing(Missing::Denied),
            _ if !is_read => QueryValue::missing(Missing::Failed),
            Cause::Reset if read(self) == QueryValue::missing(Missing::Failed) => {
                QueryValue::Absent("[GPU requires reset]")
            }
            _ => read(self),
        }
    }
}

/// How a field of a GPU is read.
pub(super) struct GpuValue {
    read: Box<dyn Fn(&QueriedGpu<'_>) -> QueryValue>,
    /// The value is known even if the GPU does not answer.
    is_static: bool,
}

pub(super) type GpuField = QueryField<GpuValue>;

/// Collects the fields. Names are separated by spaces.
struct GpuFields(Vec<GpuField>);

impl GpuFields {
    /// Adds a field that is known even if the GPU does not answer.
    fn fixed(&mut self, names: &str, help: &'static str, read: impl Fn(&QueriedGpu<'_>) -> QueryValue + 'static) {
        let value = GpuValue { read: Box::new(read), is_static: true };
        self.0.push(QueryField::new(names, "", help, value));
    }

    fn add(
        &mut self,
        names: impl Into<String>,
        unit: &'static str,
        help: &'static str,
        read: impl Fn(&QueriedGpu<'_>) -> QueryValue + 'static,
    ) {
        let value = GpuValue { read: Box::new(read), is_static: false };
        self.0.push(QueryField::new(names, unit, help, value));
    }

    /// Adds a field of the GPU's detail.
    fn detail(
        &mut self,
        names: impl Into<String>,
        unit: &'static str,
        help: &'static str,
        read: impl Fn(&GpuDetail) -> QueryValue + 'static,
    ) {
        self.add(names, unit, help, move |queried| queried.gpu.detail.as_deref().map_or(NOT_AVAILABLE, &read));
    }
}

fn all() -> Vec<GpuField> {
    let mut fields = GpuFields(Vec::new());
    identity(&mut fields);
    bus(&mut fields);
    modes(&mut fields);
    clocks_event_reasons(&mut fields);
    memory_and_use(&mut fields);
    errors::add(&mut fields);
    power::heat_and_power(&mut fields);
    power::power_smoothing(&mut fields);
    clocks(&mut fields);
    fabric::fabric(&mut fields);
    fabric::platform(&mut fields);
    let help = "Host name that an administrator may have given the GPU; gputop does not read it.";
    fields.add("hostname", "", help, |_| NOT_AVAILABLE);
    fields.0
}

pub(super) fn select(names: &[String]) -> Result<Vec<GpuField>, String> {
    field::select(all, names)
}

pub(super) fn help() -> String {
    field::help("Fields of --query-gpu", all)
}

fn identity(fields: &mut GpuFields) {
    let version = |queried: &QueriedGpu<'_>| plain(&queried.snapshot.driver.version.as_ref().ok_or(Missing::Failed));
    fields.fixed("timestamp", "Local time of the query: YYYY/MM/DD HH:MM:SS.msec.", |queried| {
        let offset = queried.snapshot.host.facts.utc_offset.unwrap_or(0);
        QueryValue::plain(timestamp(queried.snapshot.unix_ms, offset))
    });
    fields.fixed("driver_version", "Version of the driver.", version);
    fields.fixed("kmd_version", "Version of the kernel-mode driver: the same.", version);
    virtualization::driver_capability(fields);
    fields.fixed("count", "Number of GPUs on the host.", |queried| {
        QueryValue::plain(queried.snapshot.gpus.iter().filter(|gpu| gpu.facts.parent.is_none()).count())
    });
    fields.fixed("name gpu_name", "Product name.", |queried| plain(&queried.gpu.facts.name));
    fields.detail("serial gpu_serial", "", "Serial number of the board.", |detail| plain(&detail.serial));
    fields.fixed("uuid gpu_uuid", "UUID of the GPU.", |queried| QueryValue::plain(&queried.gpu.uuid));
}

fn bus(fields: &mut GpuFields) {
    let id = |queried: &QueriedGpu<'_>| plain(&queried.gpu.facts.bus_id);
    fields.fixed("pci.bus_id gpu_bus_id", "PCI address: domain:bus:device.function.", id);
    fields.fixed("pci.domain", "PCI domain.", |queried| plain(&queried.bus(0).map(|part| format!("0x{part:04X}"))));
    fields.fixed("pci.bus", "PCI bus.", |queried| plain(&queried.bus(1).map(|part| format!("0x{part:02X}"))));
    fields.fixed("pci.device", "PCI device.", |queried| plain(&queried.bus(2).map(|part| format!("0x{part:02X}"))));
    let hex = |reading: Reading<u32>| plain(&reading.map(|number| format!("0x{number:X}")));
    let wide = |reading: Reading<u32>| plain(&reading.map(|number| format!("0x{number:08X}")));
    fields.detail("pci.baseClass", "", "PCI base class.", move |detail| hex(detail.pci_class.map(|class| class[0])));
    fields.detail("pci.subClass", "", "PCI subclass.", move |detail| hex(detail.pci_class.map(|class| class[1])));
    fields.detail("pci.device_id", "", "PCI device and vendor.", move |detail| wide(detail.pci_device));
    fields.detail("pci.sub_device_id", "", "PCI subsystem.", move |detail| wide(detail.pci_subsystem));
    virtualization::gpu_capabilities(fields);
    let current = "PCIe generation in use.";
    fields.detail("pcie.link.gen.current", "", current, |detail| plain(&detail.pcie_generation));
    fields.detail("pcie.link.gen.gpucurrent", "", current, |detail| plain(&detail.pcie_generation));
    fields.detail("pcie.link.gen.max", "", "Highest PCIe generation that GPU and host share.", |detail| {
        plain(&detail.pcie_generation_max)
    });
    fields.detail("pcie.link.gen.gpumax", "", "Highest PCIe generation of the GPU.", |detail| {
        plain(&detail.pcie_generation_gpu_max)
    });
    fields.detail("pcie.link.gen.hostmax", "", "Highest PCIe generation of the host's port.", |detail| {
        plain(&detail.pcie_generation_host_max)
    });
    fields.detail("pcie.link.width.current", "", "PCIe lanes in use.", |detail| plain(&detail.pcie_width));
    fields.detail("pcie.link.width.max", "", "Highest number of PCIe lanes.", |detail| plain(&detail.pcie_width_max));
}

fn modes(fields: &mut GpuFields) {
    /// The first driver that calls `display_mode` deprecated.
    const WITHOUT_DISPLAY_MODE: u32 = 580;
    fields.fixed("index", "Index of the GPU, which can change at each boot.", |queried| {
        QueryValue::plain(queried.gpu.facts.index)
    });
    fields.add("display_mode", "", "As display_attached; deprecated since driver 580.", |queried| {
        if queried.driver_is_before(WITHOUT_DISPLAY_MODE) {
            enabled(queried.detail(|detail| detail.display_attached))
        } else {
            DEPRECATED
        }
    });
    let help = "Whether a display is connected: Yes, No.";
    fields.detail("display_attached", "", help, |detail| yes(detail.display_attached));
    let help = "Whether a display is initialized.";
    fields.detail("display_active", "", help, |detail| enabled(detail.display_active));
    let help = "Whether the driver stays loaded while nothing uses the GPU.";
    fields.detail("persistence_mode", "", help, |detail| enabled(detail.persistence));
    let help = "How the GPU addresses host memory: None, HMM, ATS.";
    fields.detail("addressing_mode", "", help, |detail| word(detail.addressing, &["None", "HMM", "ATS"]));
    let help = "Whether the driver keeps figures of ended processes.";
    fields.detail("accounting.mode", "", help, |detail| enabled(detail.accounting));
    let help = "Number of ended processes whose figures are kept.";
    fields.detail("accounting.buffer_size", "", help, |detail| plain(&detail.accounting_buffer));
    virtualization::driver_model(fields);
    fields.detail("vbios_version", "", "Version of the VBIOS.", |detail| plain(&detail.vbios));
    let help = "Version of the infoROM image.";
    fields.detail("inforom.img inforom.image", "", help, |detail| plain(&detail.inforom_image));
    fields.detail("inforom.oem", "", "Version of the infoROM's OEM object.", |detail| plain(&detail.inforom_oem));
    fields.detail("inforom.ecc", "", "Version of the infoROM's ECC object.", |detail| plain(&detail.inforom_ecc));
    let help = "Version of the infoROM's power object.";
    fields.detail("inforom.pwr inforom.power", "", help, |detail| plain(&detail.inforom_power));
    let help = "Whether the infoROM's checksum is right: valid, invalid.";
    fields.detail("inforom.checksum_validation", "", help, |detail| choice(detail.inforom_valid, ["invalid", "valid"]));
    fields.detail("gpu_recovery_action", "", "What the driver suggests to repair the GPU.", |detail| {
        /// The actions in the order of NVML's enumeration.
        const ACTIONS: [&str; 8] = [
            "None",
            "Reset",
            "Reboot",
            "Drain P2P",
            "Drain and Reset",
            "Recover IMEX Domain",
            "Bus Reset",
            "System Reboot",
        ];
        word(detail.recovery_action, &ACTIONS)
    });
    let operation = |mode| word(mode, &["All On", "Compute", "Low Double Precision"]);
    let help = "GPU operation mode: All On, Compute, Low Double Precision.";
    fields.detail("gom.current gpu_operation_mode.current", "", help, move |detail| {
        operation(detail.operation_mode.map(|modes| modes[0]))
    });
    let help = "GPU operation mode after the next reboot.";
    fields.detail("gom.pending gpu_operation_mode.pending", "", help, move |detail| {
        operation(detail.operation_mode.map(|modes| modes[1]))
    });
    fields.add("fan.speed", "%", "Intended speed of the fan.", |queried| percent(queried.gpu.health.fan));
    fields.add("pstate", "", "Performance state: P0 is the fastest, P15 the slowest.", |queried| {
        plain(&queried.gpu.health.performance_state.map(|state| format!("P{state}")))
    });
}

fn clocks_event_reasons(fields: &mut GpuFields) {
    /// The name of each reason, its bit in NVML, and its help.
    const REASONS: [(&str, u64, &str); 8] = [
        ("gpu_idle", 0x1, "Clocks are low because the GPU is idle."),
        ("applications_clocks_setting", 0x2, "Clocks are limited by the application clocks setting."),
        ("sw_power_cap", 0x4, "Clocks are limited by the software power cap."),
        ("hw_slowdown", 0x8, "Clocks are limited by hardware, for temperature or power."),
        ("hw_thermal_slowdown", 0x40, "Clocks are limited by hardware, for temperature."),
        ("hw_power_brake_slowdown", 0x80, "Clocks are limited by the external power brake."),
        ("sw_thermal_slowdown", 0x20, "Clocks are limited by the software temperature limit."),
        ("sync_boost", 0x10, "Clocks are limited by a slower GPU of the sync boost group."),
    ];
    type LimitedFor = fn(&GpuDetail) -> Reading<u64>;
    const COUNTERS: [(&str, LimitedFor); 5] = [
        ("sw_power_cap", |detail| detail.held_power_cap),
        ("sync_boost", |detail| detail.held_sync_boost),
        ("sw_thermal_slowdown", |detail| detail.held_thermal),
        ("hw_thermal_slowdown", |detail| detail.held_hardware_thermal),
        ("hw_power_brake_slowdown", |detail| detail.held_power_brake),
    ];
    let names = |reason: &str| format!("clocks_event_reasons.{reason} clocks_throttle_reasons.{reason}");
    let bits = |reading: Reading<u64>| plain(&reading.map(|bits| format!("0x{bits:016X}")));
    fields.detail(names("supported"), "", "Bits of the reasons that can limit the clocks.", move |detail| {
        bits(detail.clock_reasons_supported)
    });
    fields.detail(names("active"), "", "Bits of the reasons that limit the clocks now.", move |detail| {
        bits(detail.clock_reasons)
    });
    for (reason, bit, help) in REASONS {
        fields.detail(names(reason), "", help, move |detail| {
            choice(detail.clock_reasons.map(|bits| bits & bit != 0), ["Not Active", "Active"])
        });
    }
    for (reason, limited_for) in COUNTERS {
        let name = format!("clocks_event_reasons_counters.{reason}");
        let help = "Time for which this has limited the clocks.";
        fields.detail(name, "us", help, move |detail| microseconds(limited_for(detail)));
    }
}

fn memory_and_use(fields: &mut GpuFields) {
    fields.add("memory.total", "MiB", "All device memory.", |queried| mib(queried.gpu.load.memory_total));
    let help = "Device memory reserved by the driver.";
    fields.add("memory.reserved", "MiB", help, |queried| mib(queried.gpu.load.memory_reserved));
    let help = "Device memory in use, without the reserved memory.";
    fields.add("memory.used", "MiB", help, |queried| mib(queried.gpu.load.memory_used));
    fields.add("memory.free", "MiB", "Free device memory.", |queried| mib(queried.gpu.load.memory_free));
    fields.detail("compute_mode", "", "Which processes may compute on the GPU.", |detail| {
        word(detail.compute_mode, &["Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process"])
    });
    fields.detail("compute_cap", "", "CUDA compute capability.", |detail| plain(&detail.compute_capability));
    let help = "Share of time in which a kernel ran.";
    fields.add("utilization.gpu", "%", help, |queried| percent(queried.gpu.load.sm));
    let help = "Share of time in which memory was read or written.";
    fields.add("utilization.memory", "%", help, |queried| percent(queried.gpu.load.memory_bandwidth));
    fields.detail("utilization.encoder", "%", "Use of the encoder.", |detail| percent(detail.encoder));
    fields.detail("utilization.decoder", "%", "Use of the decoder.", |detail| percent(detail.decoder));
    fields.detail("utilization.jpeg", "%", "Use of the JPEG engine.", |detail| percent(detail.jpeg));
    fields.detail("utilization.ofa", "%", "Use of the optical flow engine.", |detail| percent(detail.ofa));
    for (at, name, help) in [
        (0, "encoder.stats.sessionCount", "Number of encoder sessions."),
        (1, "encoder.stats.averageFps", "Mean frames per second of the encoder sessions."),
        (2, "encoder.stats.averageLatency", "Mean latency of the encoder sessions in microseconds."),
    ] {
        fields.detail(name, "", help, move |detail| plain(&detail.encoder_stats.map(|stats| stats[at])));
    }
}

fn clocks(fields: &mut GpuFields) {
    let help = "Clock of the graphics engine.";
    fields.detail("clocks.current.graphics clocks.gr", "MHz", help, |detail| mhz(detail.graphics_clock));
    let help = "Clock of the multiprocessors.";
    fields.add("clocks.current.sm clocks.sm", "MHz", help, |queried| mhz(queried.gpu.load.sm_clock));
    let help = "Clock of the device memory.";
    fields.add("clocks.current.memory clocks.mem", "MHz", help, |queried| mhz(queried.gpu.health.memory_clock));
    let help = "Clock of the video engines.";
    fields.detail("clocks.current.video clocks.video", "MHz", help, |detail| mhz(detail.video_clock));
    for (at, names) in [
        "clocks.applications.graphics clocks.applications.gr",
        "clocks.applications.memory clocks.applications.mem",
        "clocks.default_applications.graphics clocks.default_applications.gr",
        "clocks.default_applications.memory clocks.default_applications.mem",
    ]
    .into_iter()
    .enumerate()
    {
        fields.detail(names, "MHz", "Application clock; deprecated in newer drivers.", move |detail| {
            let clock = detail.application_clocks.as_ref().map(|clocks| clocks[at]).map_err(|reason| *reason);
            QueryValue::of(clock, |clock| clock.map_or(DEPRECATED, QueryValue::plain))
        });
    }
    let help = "Highest clock of the graphics engine.";
    fields.detail("clocks.max.graphics clocks.max.gr", "MHz", help, |detail| mhz(detail.graphics_clock_max));
    let help = "Highest clock of the multiprocessors.";
    fields.detail("clocks.max.sm", "MHz", help, |detail| mhz(detail.sm_clock_max));
    let help = "Highest clock of the device memory.";
    fields.detail("clocks.max.memory clocks.max.mem", "MHz", help, |detail| mhz(detail.memory_clock_max));
    fields.add("mig.mode.current", "", "Whether MIG is on.", |queried| enabled(queried.gpu.health.mig));
    let help = "Whether MIG is on after the next reset.";
    fields.detail("mig.mode.pending", "", help, |detail| enabled(detail.mig_pending));
    let help = "Whether the GPU System Processor runs the driver's firmware.";
    fields.detail("gsp.mode.current", "", help, |detail| enabled(detail.gsp));
    let help = "Whether it does so by default.";
    fields.detail("gsp.mode.default", "", help, |detail| enabled(detail.gsp_default));
    let help = "Whether the chip-to-chip link to the CPU is on.";
    fields.detail("c2c.mode", "", help, |detail| enabled(detail.c2c));
    let help = "Memory protected by confidential computing.";
    fields.detail("protected_memory.total", "MiB", help, |detail| mib(detail.protected_memory.map(|[total, _]| total)));
    let help = "Protected memory in use.";
    fields.detail("protected_memory.used", "MiB", help, |detail| mib(detail.protected_memory.map(|[_, used]| used)));
    fields.detail("protected_memory.free", "MiB", "Free protected memory.", |detail| {
        mib(detail.protected_memory.map(|[total, used]| total.saturating_sub(used)))
    });
}
