//! How nvidia-smi ends: its exit codes, as its manual lists them, and its sentences on the standard
//! output.

use crate::base::text::Text;
use crate::output::Exit;
use crate::protocol::snapshot::{Cause, Gpu, Missing, Snapshot};

/// An exit of nvidia-smi.
#[derive(Debug, Clone, Copy)]
pub(super) struct NvidiaSmiExit {
    pub(super) code: u8,
    /// The sentence in place of an answer; empty with an answer.
    pub(super) sentence: &'static str,
}

impl NvidiaSmiExit {
    /// An error without a code of its own.
    pub(super) const OTHER: Self = Self {
        code: 255,
        sentence: "",
    };

    /// The code where an ID is that of no GPU.
    pub(super) const NO_DEVICE: u8 = 6;

    /// Whether there is no answer.
    pub(super) fn is_refusal(self) -> bool {
        !self.sentence.is_empty()
    }
}

/// The sentence in place of a table without any GPU.
pub(super) const NO_DEVICES: &str = "No devices were found\n";

/// Returns how nvidia-smi ends after a query with this result. `needs_lists` says whether the
/// answer consists of processes.
pub(super) fn after_query(
    exit: Exit,
    snapshot: &Snapshot,
    gpus: &[&Gpu],
    needs_lists: bool,
) -> NvidiaSmiExit {
    let (code, sentence) = code_and_sentence(exit, snapshot, gpus, needs_lists);
    NvidiaSmiExit { code, sentence }
}

fn code_and_sentence(
    exit: Exit,
    snapshot: &Snapshot,
    gpus: &[&Gpu],
    needs_lists: bool,
) -> (u8, &'static str) {
    const OTHER: u8 = NvidiaSmiExit::OTHER.code;
    let cause = snapshot
        .driver
        .trouble
        .as_ref()
        .map(|trouble| trouble.cause);
    match (cause, exit) {
        (Some(Cause::NoLibrary | Cause::NotLoading), _) => (
            12,
            "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display \
             Driver is properly installed and present in your system.\nPlease also try adding directory that contains \
             libnvidia-ml.so to your system PATH.\n",
        ),
        (Some(Cause::NoDriver), _) => (
            9,
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest \
             NVIDIA driver is installed and running.\n\n",
        ),
        (Some(Cause::Mismatch), _) => (
            18,
            "Failed to initialize NVML: Driver/library version mismatch\n",
        ),
        (Some(Cause::Denied), _) => (4, "Failed to initialize NVML: Insufficient Permissions\n"),
        (Some(Cause::NoGpu), _) | (None, Exit::NoGpu | Exit::Nothing) => {
            (NvidiaSmiExit::NO_DEVICE, NO_DEVICES)
        }
        (Some(_), _) => (OTHER, "Failed to initialize NVML: Unknown Error\n"),
        (None, Exit::Success) => (0, ""),
        (None, _) => (
            gpus.iter()
                .map(|gpu| code_of_gpu(gpu, needs_lists))
                .max()
                .unwrap_or(OTHER),
            "",
        ),
    }
}

/// Returns the exit code for one GPU. A value that cannot be read has words in its place, and is no
/// error.
fn code_of_gpu(gpu: &Gpu, needs_lists: bool) -> u8 {
    let Some(trouble) = &gpu.trouble else {
        return 0;
    };
    let is_handle = || {
        trouble
            .call
            .as_ref()
            .is_some_and(|call| call.as_str().contains("Handle"))
    };
    match trouble.cause {
        Cause::Lost => 15,
        _ if trouble.is_silence() || is_handle() || needs_lists && list_trouble(gpu).is_some() => {
            NvidiaSmiExit::OTHER.code
        }
        _ => 0,
    }
}

/// Returns nvidia-smi's words in place of the processes of a GPU whose lists cannot be read; `None`
/// where they can.
pub(super) fn list_trouble(gpu: &Gpu) -> Option<&'static str> {
    let Some(trouble) = &gpu.trouble else {
        return gpu.missing.processes.map(|why| match why {
            Missing::Denied => "Insufficient Permissions",
            Missing::Unsupported => "Not Supported",
            _ => "Unknown Error",
        });
    };
    let is_list = trouble
        .call
        .as_ref()
        .is_some_and(|call| call.as_str().contains("RunningProcesses"));
    match trouble.cause {
        Cause::Lost | Cause::Hung | Cause::Starting | Cause::Reset => None,
        Cause::Denied => is_list.then_some("Insufficient Permissions"),
        _ => is_list.then_some("Unknown Error"),
    }
}

/// Returns the line about a GPU that does not answer, which then has no row; `None` for a GPU that
/// answers.
pub(super) fn without_handle(gpu: &Gpu) -> Option<String> {
    let trouble = gpu.trouble.as_ref()?;
    let reason = match trouble.cause {
        Cause::Lost => "GPU is lost.  Reboot the system to recover this GPU",
        _ if trouble.is_silence() => "Unknown Error",
        _ => return None,
    };
    // The domain has four digits here. A GPU that never answered has no address.
    let address = |bus: &Text| format!(" {}:", bus.as_str().get(4..).unwrap_or(bus.as_str()));
    let address = gpu
        .facts
        .bus_id
        .as_ref()
        .map_or_else(|_| String::new(), address);
    Some(format!(
        "Unable to determine the device handle for GPU{}:{address} {reason}\n",
        gpu.facts.index
    ))
}

/// Returns the line about a GPU whose processes are not known; `None` where they are.
pub(super) fn without_list(gpu: &Gpu) -> Option<String> {
    let words = || list_trouble(gpu).filter(|_| gpu.processes.is_empty());
    let sentence = || {
        Some(format!(
            "Unable to list the processes of GPU{}: {}\n",
            gpu.facts.index,
            words()?
        ))
    };
    without_handle(gpu).or_else(sentence)
}
