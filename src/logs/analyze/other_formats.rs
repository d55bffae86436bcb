//! Texts that people take for logs, but that have no times or one moment only: what they are, and
//! what to record instead.

/// Records the memory of each GPU.
pub(super) const GPU_COMMAND: &str =
    "nvidia-smi --query-gpu=timestamp,index,memory.used,memory.total --format=csv -l 5";
/// Records the memory of each process.
pub(super) const PROCESS_COMMAND: &str = "nvidia-smi --query-compute-apps=timestamp,gpu_uuid,pid,process_name,used_gpu_memory --format=csv -l 5";

/// A format that `analyze` cannot judge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OtherFormat {
    NvidiaSmiTable,
    NvidiaSmiQuery,
    NvidiaSmiXml,
    NvidiaSmiList,
    NvidiaSmiError,
    NvidiaSmiHelp,
    Dmon,
    Pmon,
    DcgmiDmon,
    Prometheus,
    Gpustat,
    GputopHelp,
    GputopTable,
    OutOfMemoryMessage,
    Binary,
}

impl OtherFormat {
    /// Recognizes a format by one of its lines.
    pub(super) fn of_line(line: &str) -> Option<Self> {
        let words = || {
            line.trim_start_matches('#')
                .split_whitespace()
                .map(str::to_ascii_lowercase)
        };
        let has = |word: &str| words().any(|other| other == word);
        Some(match line {
            _ if line.starts_with("| NVIDIA-SMI ")
                || line.starts_with("|=====") && line.contains("=+=") =>
            {
                Self::NvidiaSmiTable
            }
            _ if line.contains("NVSMI LOG=") => Self::NvidiaSmiQuery,
            _ if line.starts_with("<nvidia_smi_log") || line.contains("nvsmi_device") => {
                Self::NvidiaSmiXml
            }
            _ if line.starts_with("GPU ") && line.contains("(UUID: ") => Self::NvidiaSmiList,
            _ if line.starts_with("NVIDIA-SMI has failed")
                || line.starts_with("Failed to initialize NVML") =>
            {
                Self::NvidiaSmiError
            }
            _ if line.starts_with("NVIDIA System Management Interface") => Self::NvidiaSmiHelp,
            _ if line.starts_with("# ") && has("gpu") && has("memory") && has("temp") => {
                Self::GputopTable
            }
            _ if line.starts_with('#') && has("gpu") && has("pid") => Self::Pmon,
            _ if line.starts_with('#')
                && has("gpu")
                && ["pwr", "fb", "sm", "rxpci", "mclk"].into_iter().any(has) =>
            {
                Self::Dmon
            }
            _ if line.starts_with("#Entity") => Self::DcgmiDmon,
            _ if line.starts_with("# HELP ") || line.starts_with("# TYPE ") || is_metric(line) => {
                Self::Prometheus
            }
            _ if line.starts_with('[') && line.contains(" MB |") => Self::Gpustat,
            _ if line.starts_with("Usage: gputop") => Self::GputopHelp,
            _ if line.contains("CUDA out of memory. Tried to allocate") => Self::OutOfMemoryMessage,
            _ if line.starts_with("PAR1")
                || line
                    .chars()
                    .filter(|character| *character == '\u{fffd}')
                    .count()
                    > 8 =>
            {
                Self::Binary
            }
            _ => return None,
        })
    }

    /// The words for a log of this format, if it may have memory over time.
    pub(super) fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::NvidiaSmiTable => "the table of `nvidia-smi`",
            Self::Dmon => "the table of `nvidia-smi dmon`",
            Self::Pmon => "the table of `nvidia-smi pmon`",
            Self::Prometheus => "metrics of Prometheus (as of dcgm-exporter)",
            Self::Gpustat => "the table of gpustat",
            _ => return None,
        })
    }

    /// Says what the log is, and what to do.
    pub(super) fn advice(self) -> String {
        let no_times = |name: &str| format!("{name} has no times: record with `{GPU_COMMAND}`");
        match self {
            Self::NvidiaSmiTable => no_times("the table of `nvidia-smi`"),
            Self::NvidiaSmiQuery => no_times("the text of `nvidia-smi -q`"),
            Self::NvidiaSmiXml => no_times("the XML of `nvidia-smi -q -x`"),
            Self::NvidiaSmiList => no_times("the list of `nvidia-smi -L`"),
            Self::NvidiaSmiError => {
                "nvidia-smi failed when this was recorded: `gputop doctor` says what is wrong with the driver"
                    .to_owned()
            }
            Self::NvidiaSmiHelp => format!("this is the help of nvidia-smi: record with `{GPU_COMMAND}`"),
            Self::Dmon => format!(
                "the table of `nvidia-smi dmon` has no memory in use: record with `nvidia-smi dmon -s m -o DT`, or with `{GPU_COMMAND}`"
            ),
            Self::Pmon => format!(
                "the table of `nvidia-smi pmon` has no memory in use: record with `nvidia-smi pmon -s m -o DT`, or with `{PROCESS_COMMAND}`"
            ),
            Self::DcgmiDmon => format!("the table of `dcgmi dmon` is not read: record with `{GPU_COMMAND}`"),
            Self::Prometheus => format!(
                "metrics of Prometheus (as of dcgm-exporter) without memory in use, such as DCGM_FI_DEV_FB_USED: record with \
                 `{GPU_COMMAND}`"
            ),
            Self::Gpustat => no_times("the table of gpustat"),
            Self::GputopHelp => "this is the help of gputop: record with `gputop record`".to_owned(),
            Self::GputopTable => {
                "the table of `gputop --once` shows one moment: record with `gputop record`".to_owned()
            }
            Self::OutOfMemoryMessage => {
                "this is an out-of-memory message: `gputop explain` reads it, and memory over time is not in it"
                    .to_owned()
            }
            Self::Binary => format!("this is no text: record with `{GPU_COMMAND}`, or with `gputop record`"),
        }
    }
}

/// Whether a line is a metric of a GPU in the text format of Prometheus:
/// `DCGM_FI_DEV_FB_USED{gpu="0"} 1234`.
fn is_metric(line: &str) -> bool {
    line.split_once('{').is_some_and(|(name, rest)| {
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':')
            && rest.contains("=\"")
            && rest.contains('}')
    })
}
