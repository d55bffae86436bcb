//! Tells monitors from programs that compute: both may have `/dev/nvidia-uvm` open.
//!
//! NVML of driver 580 opens that file and loads `libcuda.so`, so `nvidia-smi -l`, DCGM, nvtop and
//! another gputop have the files and libraries of a CUDA program. Its address space shows the
//! difference: CUDA maps `/dev/nvidia0` and the like as soon as it is initialized, and a forked child
//! inherits that; NVML maps `/dev/nvidiactl` only. Both were seen on an H100 with driver 580.159.04.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::time::Duration;

use crate::base::units::Moment;
use crate::protocol::snapshot::ProcessId;

/// How long an answer is waited for: a process that holds its mmap lock may never give one.
const PATIENCE: Duration = Duration::from_secs(1);

/// The most bytes of `maps` that are read.
const MOST_MAPS: u64 = 16 << 20;

/// Whether a device-file holder is a monitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MonitorAnswer {
    AskedAt(Moment),
    Is(bool),
}

impl MonitorAnswer {
    pub(super) fn is_awaited(self, now: Moment) -> bool {
        matches!(self, Self::AskedAt(at) if now.since(at) < PATIENCE)
    }
}

/// Whether a process has loaded NVML, and maps no GPU. False where that cannot be read, and for a
/// process that has ended. Needs the mmap lock of the process.
pub(super) fn is_monitor(id: ProcessId) -> bool {
    File::open(format!("/proc/{}/maps", id.pid))
        .and_then(|maps| asks_only_nvml(BufReader::with_capacity(32 << 10, maps.take(MOST_MAPS))))
        .is_ok_and(|asks_only_nvml| asks_only_nvml)
        && super::stat::start_ticks(id.pid) == id.start_ticks
}

fn asks_only_nvml(mut maps: impl BufRead) -> io::Result<bool> {
    let mut has_nvml = false;
    let mut line = Vec::new();
    while maps.read_until(b'\n', &mut line)? > 0 {
        // The file name may have a version, and ` (deleted)` after it.
        let name = line.rsplit(|byte| *byte == b'/').next().unwrap_or(&line);
        if let Some([digit, ..]) = name.strip_prefix(b"nvidia")
            && digit.is_ascii_digit()
        {
            return Ok(false);
        }
        has_nvml |= name.starts_with(b"libnvidia-ml.so");
        line.clear();
    }
    Ok(has_nvml)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(files: &[&str], expected: bool) {
        let lines = files
            .iter()
            .map(|file| format!("7f00-7f10 r--p 00000000 fe:00 12    {file}\n"));
        let maps: String = lines.collect();
        assert_eq!(asks_only_nvml(maps.as_bytes()).unwrap(), expected, "{maps}");
    }

    #[test]
    fn a_process_with_nvml_that_maps_no_gpu_is_a_monitor() {
        let (nvml, cuda) = (
            "/usr/lib/libnvidia-ml.so.580.159.04",
            "/usr/lib/libcuda.so.580.159.04",
        );
        let control = "/dev/nvidiactl";
        check(&["/usr/bin/nvidia-smi", nvml, "[stack]"], true);
        check(&[&format!("{nvml} (deleted)")], true);
        // As `nvidia-smi -l` of driver 580 has them.
        check(&[control, "/usr/bin/nvidia-smi", cuda, nvml], true);
        check(&["/dev/nvidia-uvm", nvml], true);
        check(&["/dev/nvidia0", control, cuda], false);
        // PyTorch asks NVML, too.
        check(&[nvml, cuda, "/dev/nvidia11"], false);
        check(&["/usr/bin/sleep", ""], false);
        check(&[cuda], false);
    }
}
