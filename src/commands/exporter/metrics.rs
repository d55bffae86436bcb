//! The metrics of `gputop exporter`, and their text.
//!
//! The formats are those of OpenMetrics 1.0 and of Prometheus before it (0.0.4):
//! <https://prometheus.io/docs/specs/om/open_metrics_spec/>.

use std::fmt::{Display, Write};

use crate::base::text::Text;

/// The prefix of all names. `gputop_` belongs to another exporter of that name, for other GPUs: with
/// one prefix for both, sums over a cluster would mix them.
pub(super) const PREFIX: &str = "gputopmon_";

/// Whether the value of a metric may fall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Gauge,
    Counter,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
        }
    }
}

/// The constant facts about a metric.
#[derive(Debug)]
struct Facts {
    kind: Kind,
    /// The name without the prefix. That of a counter ends in `_total`.
    name: &'static str,
    /// A sentence on the meaning.
    help: &'static str,
}

/// The units that names end in, by OpenMetrics. A rate has none: no name of a unit has a fraction.
const UNITS: [&str; 6] = ["bytes", "seconds", "ratio", "celsius", "watts", "hertz"];

impl Facts {
    fn unit(&self) -> Option<&'static str> {
        let is_unit = |unit: &&str| {
            let rest = self.name.strip_suffix(*unit);
            rest.is_some_and(|rest| rest.ends_with('_') && !rest.ends_with("_per_"))
        };
        UNITS.into_iter().find(is_unit)
    }
}

macro_rules! metrics {
    ($( $metric:ident: $kind:ident $name:literal, $help:literal; )+) => {
        /// A metric. The order is that of the text.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Metric {
            $( $metric, )+
        }

        const METRICS: &[Facts] = &[
            $( Facts { kind: Kind::$kind, name: $name, help: $help }, )+
        ];
    };
}

metrics! {
    HostUp: Gauge "host_up", "1 while readings come from the host, 0 while none do.";
    HostReadingAge: Gauge "host_reading_age_seconds", "The time since the last readings of the host.";
    HostUnreadable: Gauge "host_unreadable_processes", "Processes whose open files the agent may not read: those of other users, unless it runs as root.";
    Troubles: Gauge "troubles", "Troubles of the host, by kind: gpu_lost, full_soon, hardware_error, leak, leftover or slowdown.";
    GpuInfo: Gauge "gpu_info", "1; the labels say what the GPU is.";
    GpuFree: Gauge "gpu_free", "1 if nobody uses the GPU and it works, 0 if not; absent while that is not known, and for MIG instances.";
    GpuTrouble: Gauge "gpu_trouble", "1 while the GPU has a trouble, with the most urgent one as the label; absent without one, and for MIG instances.";
    GpuReadingAge: Gauge "gpu_reading_age_seconds", "The time since this group of readings: load or health.";
    GpuMemoryTotal: Gauge "gpu_memory_total_bytes", "Device memory.";
    GpuMemoryUsed: Gauge "gpu_memory_used_bytes", "Device memory in use, without that which the driver reserves.";
    GpuMemoryReserved: Gauge "gpu_memory_reserved_bytes", "Device memory that the driver reserves.";
    GpuMemoryUnaccounted: Gauge "gpu_memory_unaccounted_bytes", "Device memory in use by no listed process.";
    GpuSm: Gauge "gpu_sm_use_ratio", "Share of the last sample period in which a kernel ran.";
    GpuBandwidth: Gauge "gpu_memory_use_ratio", "Share of the last sample period in which device memory was read or written.";
    GpuTemperature: Gauge "gpu_temperature_celsius", "Temperature of the GPU's core.";
    GpuPower: Gauge "gpu_power_watts", "Power draw of the board.";
    GpuPowerLimit: Gauge "gpu_power_limit_watts", "The power limit in force.";
    GpuSmClock: Gauge "gpu_sm_clock_hertz", "Clock of the streaming multiprocessors.";
    GpuThrottled: Gauge "gpu_throttled", "1 while this reason lowers the clock, 0 while it does not.";
    GpuLastXid: Gauge "gpu_last_xid", "The latest Xid error that the driver reported while gputop ran, one of the hardware in the last hour before later ones of programs; absent without one.";
    GpuLastXidAge: Gauge "gpu_last_xid_age_seconds", "The time since that Xid error.";
    GpuEccUncorrected: Counter "gpu_ecc_uncorrected_errors_total", "Memory errors that ECC could not correct, since the driver was loaded.";
    GpuRowRemapFailed: Gauge "gpu_row_remap_failed", "1 if the GPU could not replace a bad row of its memory, 0 if not.";
    GpuHeldIdle: Gauge "gpu_held_idle_seconds", "How long a process has held the GPU without use: no kernel ran, and nothing moved over PCIe. 0 while it is in use, or nothing holds it.";
    GpuLeftovers: Gauge "gpu_leftover_processes", "Orphans, and ended or stuck processes, that hold memory of the GPU.";
    GpuLeftoverMemory: Gauge "gpu_leftover_memory_bytes", "The device memory that they hold. The sum of those of which it is known.";
    GpuLeaking: Gauge "gpu_leaking", "1 while the memory of the GPU leaks, 0 while it does not; absent until that is known.";
    GpuGrowth: Gauge "gpu_memory_growth_bytes_per_second", "How fast the memory in use grows; absent while it does not.";
    GpuFullIn: Gauge "gpu_full_in_seconds", "The time until memory is full, by estimate: earliest, likely or latest. Absent where that is not to be expected.";
    Processes: Gauge "processes", "Processes on the GPU.";
    ProcessMemory: Gauge "process_memory_bytes", "Device memory that the driver gave to the processes. The sum of those of which it is known.";
    ProcessSm: Gauge "process_sm_use_ratio", "Share of the last second in which kernels of the processes ran. The sum of those of which it is known.";
    ProcessAllocated: Gauge "process_allocated_bytes", "Device memory of tensors, in PyTorch's allocator. The sum of those of which it is known.";
    ProcessReserved: Gauge "process_reserved_bytes", "Device memory that PyTorch's allocator took from CUDA, in use or not. The sum of those of which it is known.";
    ProcessCategory: Gauge "process_category_bytes", "Reserved memory by category: parameters, gradients, activations and others, as the probe of gputop run reports it. The sum of those that report.";
    ProcessHeldIdle: Gauge "process_held_idle_seconds", "How long the processes have held the GPU without use.";
    ProcessLeftovers: Gauge "process_leftovers", "Orphans, and ended or stuck processes, among the processes.";
    ProcessLeftoverMemory: Gauge "process_leftover_memory_bytes", "The device memory that they hold. The sum of those of which it is known.";
    ProcessLeaking: Gauge "process_leaking", "Processes whose memory leaks; absent until that is known of one. A process on several GPUs counts on the one where it has most memory.";
    ProcessGrowth: Gauge "process_memory_growth_bytes_per_second", "How fast the memory of the processes grows; absent while it does not. On the GPU where a process has most memory.";
    ProcessFullIn: Gauge "process_full_in_seconds", "The likely time until one of the processes has filled its GPU; absent where that is not to be expected.";
    DcgmSmClock: Gauge "DCGM_FI_DEV_SM_CLOCK", "SM clock, in MHz.";
    DcgmMemoryClock: Gauge "DCGM_FI_DEV_MEM_CLOCK", "Memory clock, in MHz.";
    DcgmTemperature: Gauge "DCGM_FI_DEV_GPU_TEMP", "Temperature of the GPU, in degrees Celsius.";
    DcgmPower: Gauge "DCGM_FI_DEV_POWER_USAGE", "Power draw, in watts.";
    DcgmUse: Gauge "DCGM_FI_DEV_GPU_UTIL", "Use of the GPU, in percent.";
    DcgmMemoryUse: Gauge "DCGM_FI_DEV_MEM_COPY_UTIL", "Use of the memory's bandwidth, in percent.";
    DcgmEncoder: Gauge "DCGM_FI_DEV_ENC_UTIL", "Use of the video encoder, in percent.";
    DcgmDecoder: Gauge "DCGM_FI_DEV_DEC_UTIL", "Use of the video decoder, in percent.";
    DcgmXid: Gauge "DCGM_FI_DEV_XID_ERRORS", "The latest Xid error.";
    DcgmFree: Gauge "DCGM_FI_DEV_FB_FREE", "Free device memory, in MiB.";
    DcgmUsed: Gauge "DCGM_FI_DEV_FB_USED", "Device memory in use, in MiB.";
    DcgmReserved: Gauge "DCGM_FI_DEV_FB_RESERVED", "Device memory that the driver reserves, in MiB.";
}

/// The names of DCGM begin so, and have no prefix.
const DCGM: &str = "DCGM_";

impl Metric {
    fn facts(self) -> &'static Facts {
        &METRICS[self as usize]
    }
}

impl Facts {
    fn prefix(&self) -> &'static str {
        if self.name.starts_with(DCGM) {
            ""
        } else {
            PREFIX
        }
    }
}

/// The labels of a sample, as they are written.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SampleLabels(String);

impl SampleLabels {
    /// Returns the labels and one more. An empty value is the same as no label.
    pub(super) fn with(&self, name: &str, value: &str) -> Self {
        let mut labels = self.0.clone();
        if !value.is_empty() {
            if !labels.is_empty() {
                labels.push(',');
            }
            labels.push_str(name);
            labels.push_str("=\"");
            for character in value.chars() {
                match character {
                    '\\' => labels.push_str("\\\\"),
                    '"' => labels.push_str("\\\""),
                    '\n' => labels.push_str("\\n"),
                    other => labels.push(other),
                }
            }
            labels.push('"');
        }
        Self(labels)
    }

    /// Returns the labels and one more where its text is known.
    pub(super) fn with_known(&self, name: &str, value: Option<&Text>) -> Self {
        self.with(name, value.map_or("", Text::as_str))
    }
}

/// The format of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Format {
    OpenMetrics,
    /// Prometheus' own format, which it had before: without units and end mark, and a counter has
    /// the name of its samples.
    Prometheus,
}

impl Format {
    /// Returns the format that a client asks for with `Accept`.
    pub(super) fn of_accept(accept: &str) -> Self {
        if accept.contains("application/openmetrics-text") {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The samples of all metrics at one moment.
#[derive(Debug)]
pub(super) struct Exposition {
    /// The lines of each metric, in the order of [`METRICS`].
    samples: Vec<String>,
}

impl Exposition {
    pub(super) fn new() -> Self {
        Self {
            samples: vec![String::new(); METRICS.len()],
        }
    }

    /// Adds a sample.
    pub(super) fn add(&mut self, metric: Metric, labels: &SampleLabels, value: impl Display) {
        let facts = metric.facts();
        let lines = &mut self.samples[metric as usize];
        // Writing to a string cannot fail.
        let _written = writeln!(
            lines,
            "{}{}{{{}}} {value}",
            facts.prefix(),
            facts.name,
            labels.0
        );
    }

    /// Adds a sample if the value is known: an absent one is not 0.
    pub(super) fn add_known<E>(
        &mut self,
        metric: Metric,
        labels: &SampleLabels,
        value: Result<impl Display, E>,
    ) {
        if let Ok(value) = value {
            self.add(metric, labels, value);
        }
    }

    /// Returns the text of the metrics that have samples.
    pub(super) fn text(&self, format: Format) -> String {
        let length = self.samples.iter().map(|lines| lines.len() + 256).sum();
        let mut text = String::with_capacity(length);
        let with_samples = METRICS.iter().zip(&self.samples);
        for (facts, lines) in with_samples.filter(|(_, lines)| !lines.is_empty()) {
            let kind = facts.kind.name();
            let mut name = format!("{}{}", facts.prefix(), facts.name);
            if format == Format::OpenMetrics && facts.kind == Kind::Counter {
                let family = name.strip_suffix("_total").map(str::len);
                name.truncate(family.unwrap_or(name.len()));
            }
            let _written = writeln!(text, "# HELP {name} {}", facts.help);
            let _written = writeln!(text, "# TYPE {name} {kind}");
            if let Some(unit) = facts.unit().filter(|_| format == Format::OpenMetrics) {
                let _written = writeln!(text, "# UNIT {name} {unit}");
            }
            text.push_str(lines);
        }
        if format == Format::OpenMetrics {
            text.push_str("# EOF\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The names of metrics in a text.
    fn names_in(text: &str) -> BTreeSet<&str> {
        let is_of_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
        text.split(|character: char| !is_of_name(character))
            .filter(|word| word.starts_with(PREFIX) && *word != PREFIX)
            .collect()
    }

    #[test]
    fn both_formats_name_a_counter_and_a_unit_as_their_specifications_say() {
        let mut exposition = Exposition::new();
        let labels = SampleLabels::default()
            .with("host", "gpu-\"1\"\\")
            .with("gpu", "");
        exposition.add(Metric::GpuEccUncorrected, &labels, 3);
        exposition.add(Metric::GpuMemoryUsed, &labels, 1_u64 << 40);
        let sample = "gputopmon_gpu_memory_used_bytes{host=\"gpu-\\\"1\\\"\\\\\"} 1099511627776\n";
        let openmetrics = exposition.text(Format::OpenMetrics);
        assert!(openmetrics.contains(sample), "{openmetrics}");
        assert!(openmetrics.contains("# UNIT gputopmon_gpu_memory_used_bytes bytes\n"));
        assert!(openmetrics.contains("# TYPE gputopmon_gpu_ecc_uncorrected_errors counter\n"));
        assert!(openmetrics.contains("gputopmon_gpu_ecc_uncorrected_errors_total{"));
        assert!(openmetrics.ends_with("# EOF\n"));
        let prometheus = exposition.text(Format::Prometheus);
        assert!(prometheus.contains(sample), "{prometheus}");
        assert!(prometheus.contains("# TYPE gputopmon_gpu_ecc_uncorrected_errors_total counter\n"));
        assert!(!prometheus.contains("UNIT") && !prometheus.contains("EOF"));
    }

    #[test]
    fn each_name_is_used_once_and_says_its_unit() {
        let names: BTreeSet<&str> = METRICS.iter().map(|facts| facts.name).collect();
        assert_eq!(names.len(), METRICS.len());
        for facts in METRICS {
            let is_total = facts.name.ends_with("_total");
            assert_eq!(is_total, facts.kind == Kind::Counter, "{}", facts.name);
            assert!(facts.help.ends_with('.'), "{}", facts.name);
            assert!(!facts.help.contains(['\n', '\\']), "{}", facts.name);
        }
        assert_eq!(Metric::GpuGrowth.facts().unit(), None);
        assert_eq!(Metric::GpuPower.facts().unit(), Some("watts"));
    }

    #[test]
    fn the_dashboard_the_alerts_and_the_page_name_metrics_that_exist() {
        let known: BTreeSet<String> = METRICS
            .iter()
            .map(|facts| format!("{PREFIX}{}", facts.name))
            .collect();
        for text in [
            include_str!("../../../assets/grafana.json"),
            include_str!("../../../assets/alerts.yml"),
            include_str!("../../../docs/prometheus.md"),
        ] {
            let names = names_in(text);
            assert!(names.len() > 5, "{names:?}");
            for name in names {
                assert!(known.contains(name), "{name} does not exist");
            }
        }
        // The page lists all of them.
        let page = names_in(include_str!("../../../docs/prometheus.md"));
        for name in &known {
            if !name.contains(DCGM) {
                assert!(page.contains(name.as_str()), "{name} is not on the page");
            }
        }
    }
}
