//! Tells monitors from programs that compute: both may have `/dev/nvidia-uvm` open.
//!
//! NVML of driver 580 opens that file, so `nvidia-smi -l`, DCGM, nvtop and another gputop have the
//! device files open that CUDA has. CUDA's own library shows the difference: a program that can
//! allocate has loaded `libcuda.so`, a forked child too, and a monitor only `libnvidia-ml.so`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use crate::protocol::snapshot::ProcessId;

/// The most bytes of `maps` that are read.
const MOST_MAPS: u64 = 16 << 20;

/// Whether a process has loaded NVML, and not CUDA. False where that cannot be read, and for a
/// process that has ended. Needs the mmap lock of the process.
pub(super) fn is_monitor(id: ProcessId) -> bool {
    File::open(format!("/proc/{}/maps", id.pid))
        .and_then(|maps| has_only_nvml(BufReader::with_capacity(32 << 10, maps.take(MOST_MAPS))))
        .is_ok_and(|has_only_nvml| has_only_nvml)
        && super::stat::start_ticks(id.pid) == id.start_ticks
}

fn has_only_nvml(mut maps: impl BufRead) -> io::Result<bool> {
    let mut has_nvml = false;
    let mut line = Vec::new();
    while maps.read_until(b'\n', &mut line)? > 0 {
        // The file name may have a version, and ` (deleted)` after it.
        let name = line.rsplit(|byte| *byte == b'/').next().unwrap_or(&line);
        if name.starts_with(b"libcuda.so") {
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
        assert_eq!(has_only_nvml(maps.as_bytes()).unwrap(), expected, "{maps}");
    }

    #[test]
    fn a_process_with_nvml_and_without_cuda_is_a_monitor() {
        let (nvml, cuda) = (
            "/usr/lib/libnvidia-ml.so.580.159.04",
            "/usr/lib/libcuda.so.580.159.04",
        );
        check(&["/usr/bin/nvidia-smi", nvml, "[stack]"], true);
        check(&[&format!("{nvml} (deleted)")], true);
        check(&["/usr/bin/python3.12", cuda], false);
        // PyTorch asks NVML, too.
        check(&[nvml, cuda], false);
        check(&["/usr/bin/sleep", ""], false);
        check(&["/opt/libcuda.so.d/x"], false);
    }
}
