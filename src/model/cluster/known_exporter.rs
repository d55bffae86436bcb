//! The exporters whose series the cluster view reads, as a table: which series holds which figure,
//! and which labels name the host, the GPU, and who uses it.
//!
//! In an expression, `$}` stands for the matchers that choose hosts, and `}`. A value that an exporter writes
//! for "not known" is filtered there, before anything is added up: DCGM's are 2147483632 and more,
//! that of nvitop-exporter is NaN. A GPU with an error of its hardware is not free. The numbers of the
//! Xid errors are those that a program causes.

/// The label of DCGM with the number of a MIG instance.
const INSTANCE: &str = "GPU_I_ID";

/// A figure of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Figure {
    /// Device memory in use, in bytes.
    MemoryUsed,
    /// The GPUs whose memory in use is known. The value says nothing.
    Known,
    /// Device memory, in bytes.
    MemoryTotal,
    /// The share of the time in which a kernel ran, in percent.
    Sm,
    /// In watts.
    Power,
    /// In degrees Celsius.
    Temperature,
    /// The GPUs that nobody uses. The value says nothing.
    Free,
    /// The host's driver or one of its GPUs is lost. The value says nothing.
    Lost,
    /// The seconds until memory is full, where that is a quarter of an hour at most.
    FullSoon,
    /// The latest Xid error of the hardware.
    Xid,
    /// The GPU could not replace a bad row of its memory. The value says nothing.
    RowRemapFailure,
    /// Another error of the hardware. The value says nothing.
    HardwareError,
    /// The memory errors that ECC could not correct, since the driver was loaded.
    EccErrors,
    /// Memory leaks. The value says nothing.
    Leak,
    /// Device memory that leftover processes hold, in bytes; 0 where that is not known.
    Leftover,
    /// The seconds for which a process has held the GPU without use, where they are half an hour at
    /// least.
    HeldIdle,
    /// The hardware or its temperature slows the GPU down. The value says nothing.
    Slowdown,
    /// The index of the GPU, of an exporter that does not have it as a label.
    Index,
}

impl Figure {
    /// The figures that each host has.
    pub(super) const OF_HOSTS: [Self; 6] = [
        Self::MemoryUsed,
        Self::Known,
        Self::MemoryTotal,
        Self::Sm,
        Self::Power,
        Self::Free,
    ];

    /// The troubles, of which few GPUs have one.
    pub(super) const TROUBLES: [Self; 10] = [
        Self::Lost,
        Self::FullSoon,
        Self::Xid,
        Self::RowRemapFailure,
        Self::EccErrors,
        // After those that say more.
        Self::HardwareError,
        Self::Leak,
        Self::Leftover,
        Self::HeldIdle,
        Self::Slowdown,
    ];

    /// The figures that are shown of each GPU.
    pub(super) const OF_GPUS: [Self; 7] = [
        Self::MemoryUsed,
        Self::MemoryTotal,
        Self::Sm,
        Self::Power,
        Self::Temperature,
        Self::Free,
        Self::Index,
    ];

    /// How the figures of a host's GPUs become that of the host.
    pub(super) fn aggregation(self) -> &'static str {
        match self {
            Self::MemoryUsed | Self::MemoryTotal | Self::Power => "sum",
            Self::Sm => "avg",
            Self::Free | Self::Known => "count",
            _ => "max",
        }
    }

    /// Whether the figure of a host is a number of its GPUs.
    pub(super) fn is_count(self) -> bool {
        self.aggregation() == "count"
    }

    /// Whether it is an error of the hardware, so that the GPU is sick.
    pub(super) fn is_of_hardware(self) -> bool {
        matches!(
            self,
            Self::Lost | Self::Xid | Self::RowRemapFailure | Self::EccErrors | Self::HardwareError
        )
    }

    /// Whether a smaller value is worse.
    pub(super) fn is_worse_when_less(self) -> bool {
        self == Self::FullSoon
    }
}

/// An exporter.
#[derive(Debug)]
pub(crate) struct KnownExporter {
    pub(crate) name: &'static str,
    /// The name of a series that there is for each GPU.
    pub(super) sign: &'static str,
    /// Matchers of that series that leave out what is no GPU of its own.
    restriction: &'static str,
    /// The labels that name the host, the best first.
    host_labels: &'static [&'static str],
    /// The labels with the index of the GPU, and of its MIG instance. Some versions of an exporter
    /// have one of them, some another.
    pub(super) index_labels: &'static [&'static str],
    /// The labels with the UUID of the GPU.
    pub(super) uuid_labels: &'static [&'static str],
    expressions: &'static [(Figure, &'static str)],
    /// The expression whose series have the labels of users and jobs; empty without one.
    owners: &'static str,
    /// The labels that name the user or the team, the best first.
    pub(super) owner_labels: &'static [&'static str],
    /// The labels that name the job, the best first.
    pub(super) job_labels: &'static [&'static str],
    /// The expression whose series have the label with the model of the GPU, and the label.
    models: (&'static str, &'static str),
}

/// The series of an exporter with labels that name the host, or with the scraped address alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SeriesForm {
    /// The place in [`KnownExporter::ALL`]. Where two exporters read one host, the first counts.
    place: usize,
    /// Whether only the label `instance` names the host.
    by_instance: bool,
}

impl KnownExporter {
    /// All exporters. Where several read one host, the first one counts: it knows the most.
    pub(super) const ALL: [Self; 5] = [
        Self {
            name: "gputop exporter",
            sign: "gputopmon_gpu_info",
            // The instances of a split GPU are there beside it.
            restriction: "gpu!~\".*:.*\"",
            host_labels: &["host"],
            index_labels: &["gpu"],
            uuid_labels: &["uuid"],
            expressions: &[
                (
                    Figure::MemoryUsed,
                    "gputopmon_gpu_memory_used_bytes{gpu!~\".*:.*\",$}",
                ),
                (
                    Figure::MemoryTotal,
                    "gputopmon_gpu_memory_total_bytes{gpu!~\".*:.*\",$}",
                ),
                (
                    Figure::Sm,
                    "100 * gputopmon_gpu_sm_use_ratio{gpu!~\".*:.*\",$}",
                ),
                (Figure::Power, "gputopmon_gpu_power_watts{$}"),
                (Figure::Temperature, "gputopmon_gpu_temperature_celsius{$}"),
                (
                    Figure::Free,
                    // One of several exporters on a host may see less than the others.
                    "gputopmon_gpu_free{$} > 0 unless on (cluster, uuid) gputopmon_gpu_free{$} == 0 \
                     unless on (cluster, uuid) gputopmon_gpu_trouble{trouble=~\"gpu_lost|hardware_error\",$}",
                ),
                (
                    Figure::Lost,
                    "gputopmon_gpu_trouble{trouble=\"gpu_lost\",$} or \
                     (gputopmon_troubles{trouble=\"gpu_lost\",$} > 0 unless on (cluster, host) \
                     gputopmon_gpu_trouble{trouble=\"gpu_lost\",$})",
                ),
                (
                    Figure::FullSoon,
                    "gputopmon_gpu_full_in_seconds{estimate=\"likely\",$} <= 900",
                ),
                (
                    Figure::Xid,
                    "gputopmon_gpu_last_xid{$} != 13 != 31 != 43 != 45 != 68 != 69 != 109 and on \
                     (host, uuid) gputopmon_gpu_last_xid_age_seconds{$} <= 3600",
                ),
                (
                    Figure::RowRemapFailure,
                    "gputopmon_gpu_row_remap_failed{$} > 0",
                ),
                (
                    Figure::EccErrors,
                    "gputopmon_gpu_ecc_uncorrected_errors_total{$} > 0",
                ),
                (
                    Figure::HardwareError,
                    "gputopmon_gpu_trouble{trouble=\"hardware_error\",$}",
                ),
                (
                    Figure::Leak,
                    "gputopmon_gpu_leaking{$} > 0 or gputopmon_process_leaking{$} > 0",
                ),
                (
                    Figure::Leftover,
                    "gputopmon_gpu_leftover_memory_bytes{$} > 0 or \
                     0 * (gputopmon_gpu_leftover_processes{$} > 0)",
                ),
                (
                    Figure::HeldIdle,
                    "gputopmon_gpu_held_idle_seconds{$} >= 1800",
                ),
                (
                    Figure::Slowdown,
                    "gputopmon_gpu_trouble{trouble=\"slowdown\",$}",
                ),
            ],
            owners: "label_replace(gputopmon_processes{$} > 0, \"gpu\", \"$1\", \"gpu\", \"(.*):.*\")",
            owner_labels: &["user"],
            job_labels: &["slurm_job", "pod", "script", "program"],
            models: ("gputopmon_gpu_info{gpu!~\".*:.*\",$}", "name"),
        },
        Self {
            name: "dcgm-exporter",
            sign: "DCGM_FI_DEV_FB_USED",
            restriction: "",
            host_labels: &["hostname", "Hostname"],
            index_labels: &["gpu", INSTANCE],
            uuid_labels: &["UUID"],
            expressions: &[
                (
                    Figure::MemoryUsed,
                    "1048576 * (DCGM_FI_DEV_FB_USED{$} < 2147483632)",
                ),
                (
                    Figure::MemoryTotal,
                    "1048576 * ((DCGM_FI_DEV_FB_USED{$} < 2147483632) + \
                     (DCGM_FI_DEV_FB_FREE{$} < 2147483632))",
                ),
                (
                    Figure::Sm,
                    "(DCGM_FI_DEV_GPU_UTIL{$} < 2147483632) or \
                     100 * (DCGM_FI_PROF_GR_ENGINE_ACTIVE{GPU_I_ID!=\"\",$} < 2)",
                ),
                (Figure::Power, "DCGM_FI_DEV_POWER_USAGE{$} < 2147483632"),
                (Figure::Temperature, "DCGM_FI_DEV_GPU_TEMP{$} < 2147483632"),
                (
                    Figure::Free,
                    "DCGM_FI_DEV_FB_USED{exported_pod=\"\",hpc_job=\"\",$} < 512 unless \
                     DCGM_FI_DEV_FB_USED{pod!~\"(.*dcgm-exporter.*)?\",$} unless \
                     0 < DCGM_FI_DEV_GPU_UTIL{$} < 2147483632 unless on (UUID, GPU_I_ID) \
                     (0 < DCGM_FI_DEV_XID_ERRORS{$} < 2147483632 != 13 != 31 != 43 != 45 != 68 \
                     != 69 != 109) unless on (UUID, GPU_I_ID) \
                     (0 < DCGM_FI_DEV_ROW_REMAP_FAILURE{$} < 2147483632) unless on (UUID, GPU_I_ID) \
                     (0 < DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{$} < 2147483632)",
                ),
                (
                    Figure::Xid,
                    "0 < DCGM_FI_DEV_XID_ERRORS{$} < 2147483632 != 13 != 31 != 43 != 45 != 68 != 69 \
                     != 109",
                ),
                (
                    Figure::RowRemapFailure,
                    "0 < DCGM_FI_DEV_ROW_REMAP_FAILURE{$} < 2147483632",
                ),
                (
                    Figure::EccErrors,
                    "0 < DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{$} < 2147483632",
                ),
            ],
            // A workload has the labels of its pod, or these with `exported_` before them where the
            // pod of the exporter has taken them.
            owners: "DCGM_FI_DEV_FB_USED{exported_pod!=\"\",$} or \
                     DCGM_FI_DEV_FB_USED{exported_pod=\"\",pod!~\"(.*dcgm-exporter.*)?\",$} or \
                     DCGM_FI_DEV_FB_USED{hpc_job!=\"\",$}",
            owner_labels: &["exported_namespace", "namespace"],
            job_labels: &["hpc_job", "exported_pod", "pod"],
            models: ("DCGM_FI_DEV_FB_USED{$}", "modelName"),
        },
        Self {
            name: "nvitop-exporter",
            sign: "gpu_memory_used_MiB",
            restriction: "",
            host_labels: &["hostname"],
            index_labels: &["index"],
            uuid_labels: &["uuid"],
            expressions: &[
                (
                    Figure::MemoryUsed,
                    "1048576 * (gpu_memory_used_MiB{$} >= 0)",
                ),
                (
                    Figure::MemoryTotal,
                    "1048576 * (gpu_memory_total_MiB{$} >= 0)",
                ),
                (Figure::Sm, "gpu_utilization_Percentage{$} >= 0"),
                (Figure::Power, "gpu_power_usage_W{$} >= 0"),
                (Figure::Temperature, "gpu_temperature_C{$} >= 0"),
                (
                    Figure::Free,
                    "gpu_memory_used_MiB{$} < 512 unless gpu_utilization_Percentage{$} > 0 unless \
                     on (hostname, uuid) process_gpu_memory_MiB{$}",
                ),
            ],
            owners: "process_gpu_memory_MiB{$}",
            owner_labels: &["username"],
            job_labels: &[],
            models: ("gpu_memory_used_MiB{$}", "devicename"),
        },
        Self {
            name: "all-smi",
            sign: "all_smi_gpu_memory_used_bytes",
            restriction: "",
            // With `honor_labels`, its own name of the host is the label `instance`.
            host_labels: &["exported_instance"],
            index_labels: &["gpu_index", "index"],
            uuid_labels: &["gpu_uuid", "uuid"],
            expressions: &[
                (Figure::MemoryUsed, "all_smi_gpu_memory_used_bytes{$}"),
                (Figure::MemoryTotal, "all_smi_gpu_memory_total_bytes{$}"),
                (Figure::Sm, "all_smi_gpu_utilization{$}"),
                (Figure::Power, "all_smi_gpu_power_consumption_watts{$}"),
                (Figure::Temperature, "all_smi_gpu_temperature_celsius{$}"),
                (
                    Figure::Free,
                    "all_smi_gpu_memory_used_bytes{$} < 536870912 unless \
                     all_smi_gpu_utilization{$} > 0",
                ),
            ],
            // The series of its processes do not name the host.
            owners: "",
            owner_labels: &[],
            job_labels: &[],
            models: ("all_smi_gpu_memory_used_bytes{$}", "gpu"),
        },
        Self {
            name: "nvidia_gpu_exporter",
            sign: "nvidia_smi_memory_used_bytes",
            restriction: "",
            // It has none of its own; these are often added to what it writes.
            host_labels: &["hostname", "host", "nodename", "node"],
            index_labels: &[],
            uuid_labels: &["uuid"],
            expressions: &[
                (Figure::MemoryUsed, "nvidia_smi_memory_used_bytes{$}"),
                (Figure::MemoryTotal, "nvidia_smi_memory_total_bytes{$}"),
                (Figure::Sm, "100 * nvidia_smi_utilization_gpu_ratio{$}"),
                (
                    Figure::Power,
                    "nvidia_smi_power_draw_watts{$} or nvidia_smi_power_draw_average_watts{$} or \
                     nvidia_smi_power_draw_instant_watts{$}",
                ),
                (Figure::Temperature, "nvidia_smi_temperature_gpu{$}"),
                (Figure::Index, "nvidia_smi_index{$}"),
                (
                    Figure::Free,
                    "nvidia_smi_memory_used_bytes{$} < 536870912 unless \
                     nvidia_smi_utilization_gpu_ratio{$} > 0 unless \
                     nvidia_smi_remapped_rows_failure{$} > 0 unless \
                     nvidia_smi_ecc_errors_uncorrected_volatile_total{$} > 0",
                ),
                (
                    Figure::RowRemapFailure,
                    "nvidia_smi_remapped_rows_failure{$} > 0",
                ),
                (
                    Figure::EccErrors,
                    "nvidia_smi_ecc_errors_uncorrected_volatile_total{$} > 0",
                ),
                (
                    Figure::Slowdown,
                    "nvidia_smi_clocks_event_reasons_hw_slowdown{$} > 0 or \
                     nvidia_smi_clocks_event_reasons_hw_thermal_slowdown{$} > 0 or \
                     nvidia_smi_clocks_throttle_reasons_hw_slowdown{$} > 0",
                ),
            ],
            owners: "",
            owner_labels: &[],
            job_labels: &[],
            models: ("nvidia_smi_gpu_info{$}", "name"),
        },
    ];

    /// The expression of a figure, with `$}` for the matchers; `None` where the exporter lacks it.
    fn template(&self, figure: Figure) -> Option<&'static str> {
        // It is known where the memory in use is.
        let named = if figure == Figure::Known {
            Figure::MemoryUsed
        } else {
            figure
        };
        let (_, template) = self.expressions.iter().find(|(known, _)| *known == named)?;
        Some(template)
    }
}

impl SeriesForm {
    /// All forms of one kind.
    pub(super) fn all(by_instance: bool) -> impl Iterator<Item = Self> {
        (0..KnownExporter::ALL.len()).map(move |place| Self { place, by_instance })
    }

    /// The forms of the exporters with this sign; `None` where there is no such exporter.
    pub(super) fn of_sign(sign: &str, by_instance: bool) -> Option<Self> {
        let place = KnownExporter::ALL
            .iter()
            .position(|exporter| exporter.sign == sign)?;
        Some(Self { place, by_instance })
    }

    pub(crate) fn exporter(self) -> &'static KnownExporter {
        const ALL: &[KnownExporter] = &KnownExporter::ALL;
        &ALL[self.place]
    }

    pub(super) fn is_by_instance(self) -> bool {
        self.by_instance
    }

    /// The label with the model of a GPU; `None` without one.
    pub(super) fn model_label(self) -> Option<&'static str> {
        let (_, label) = self.exporter().models;
        (!label.is_empty()).then_some(label)
    }

    /// The labels of a host, the best first.
    pub(super) fn host_names(self) -> &'static [&'static str] {
        if self.by_instance {
            &["instance"]
        } else {
            self.exporter().host_labels
        }
    }

    /// The labels of a host, as they stand after `by`.
    pub(super) fn host_labels(self) -> String {
        [&["cluster"], self.host_names()].concat().join(",")
    }

    /// The labels that tell the GPUs of a host apart, as they stand after `by`.
    pub(super) fn gpu_labels(self) -> String {
        let exporter = self.exporter();
        [exporter.index_labels, exporter.uuid_labels]
            .concat()
            .join(",")
    }

    /// The labels that tell the whole GPUs of a host apart, as they stand after `by`: the exporter
    /// repeats the power of a GPU for each of its MIG instances.
    pub(super) fn whole_gpu_labels(self) -> String {
        let exporter = self.exporter();
        let mut labels = [exporter.index_labels, exporter.uuid_labels].concat();
        labels.retain(|label| *label != INSTANCE);
        labels.join(",")
    }

    /// The labels of users, as they stand after `by`.
    pub(super) fn owner_labels(self) -> String {
        self.exporter().owner_labels.join(",")
    }

    /// The labels of users and jobs, as they stand after `by`.
    pub(super) fn job_labels(self) -> String {
        let exporter = self.exporter();
        [exporter.owner_labels, exporter.job_labels]
            .concat()
            .join(",")
    }

    /// The matchers that choose the series without a label that names the host.
    fn without_host(self) -> String {
        let labels = self.exporter().host_labels.iter();
        let matchers: Vec<String> = labels.map(|label| format!("{label}=\"\"")).collect();
        matchers.join(",")
    }

    /// The number of series of this form, if there are some.
    pub(super) fn count(self) -> String {
        let all = format!("count({})", self.sign(""));
        if self.by_instance {
            return all;
        }
        format!(
            "{all} > (count({}) or vector(0))",
            self.sign(&self.without_host())
        )
    }

    /// The matchers that choose the series of this form and of the selected hosts.
    fn matchers(self, selected: &str) -> String {
        let mut matchers: Vec<String> = Vec::new();
        if self.by_instance {
            matchers.push(self.without_host());
        }
        if !selected.is_empty() {
            matchers.push(selected.to_owned());
        }
        matchers.join(",")
    }

    /// The series that each GPU has.
    pub(super) fn sign(self, selected: &str) -> String {
        let KnownExporter {
            sign, restriction, ..
        } = self.exporter();
        let matchers = self.matchers(selected);
        let all: Vec<&str> = [restriction, matchers.as_str()]
            .into_iter()
            .filter(|matcher| !matcher.is_empty())
            .collect();
        format!("{sign}{{{}}}", all.join(","))
    }

    /// The series that each GPU has, without those of the other form of the exporter, which do not
    /// name the host.
    pub(super) fn sign_of_named(self, selected: &str) -> String {
        let all = self.sign(selected);
        if self.by_instance {
            return all;
        }
        let without = format!("{selected},{}", self.without_host());
        format!("{all} unless {}", self.sign(&without))
    }

    fn filled(self, template: &str, selected: &str) -> String {
        template.replace("$}", &format!("{}}}", self.matchers(selected)))
    }

    /// The expression of a figure of these hosts; `None` where the exporter lacks it.
    pub(super) fn expression(self, figure: Figure, selected: &str) -> Option<String> {
        Some(self.filled(self.exporter().template(figure)?, selected))
    }

    /// The expression whose series name users and jobs; `None` where the exporter lacks it.
    pub(super) fn owners(self, selected: &str) -> Option<String> {
        let owners = self.exporter().owners;
        (!owners.is_empty()).then(|| self.filled(owners, selected))
    }

    /// The expression whose series name the models of GPUs, and the label with them.
    pub(super) fn models(self, selected: &str) -> Option<(String, &'static str)> {
        let (models, label) = self.exporter().models;
        (!models.is_empty()).then(|| (self.filled(models, selected), label))
    }
}
