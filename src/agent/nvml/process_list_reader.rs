//! Reads NVML's lists of the processes on a GPU into its own buffer, without nvml-wrapper's types.
//!
//! Some drivers write entries of another size than nvml.h declares. Therefore the first reading of
//! each list makes two calls, with the buffer filled with a different pattern (poison) each time:
//! bytes that still hold the poison were not written, which shows the size of an entry. A PID that
//! no process can have rejects the whole list.
//!
//! In a container, drivers since about 515 list PIDs of the container's namespace (`_gpuConvertPid`
//! in NVIDIA's open kernel modules) and leave out other processes. The trainer itself may then be
//! PID 1. Its memory may be reported as 0, since the driver looks the memory up by the host's PID
//! (pull request 614 there; 560.35 in Project-HAMi/HAMi-core#112).

use std::ffi::c_uint;
use std::ops::RangeInclusive;

use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper_sys::bindings::{NvmlLib, nvmlDevice_t};

use super::gpu_calls::GpuCalls;
use super::raw::handle;
use crate::agent::NvmlProcess;
use crate::agent::procfs::is_initial_pid_namespace;
use crate::base::units::{Bytes, Moment};
use crate::protocol::snapshot::{Missing, Use};

/// The name of a function that reads a list, and its call. The call takes the GPU's handle, the
/// number of entries that fit into the buffer, and the buffer. It changes the number to that of the
/// entries it has written.
type ListFunction = (
    &'static str,
    unsafe fn(&NvmlLib, nvmlDevice_t, &mut c_uint, *mut u64) -> Result<(), NvmlError>,
);

pub(super) const COMPUTE: usize = 0;

/// The use that each list stands for, and the functions that read the list, the newest version
/// first.
pub(super) const LISTS: [(Use, [ListFunction; 3]); 3] = {
    macro_rules! functions {
        ($($function:ident)+) => {
            [$((stringify!($function), |library, gpu, count, entries| {
                // SAFETY: the caller's buffer has room for `count` entries of the largest size that
                // drivers write.
                nvml_try(unsafe { nvml_sym(library.$function.as_ref())?(gpu, count, entries.cast()) })
            })),+]
        };
    }
    [
        (
            Use::Compute,
            functions! {
                nvmlDeviceGetComputeRunningProcesses_v3
                nvmlDeviceGetComputeRunningProcesses_v2
                nvmlDeviceGetComputeRunningProcesses
            },
        ),
        (
            Use::Graphics,
            functions! {
                nvmlDeviceGetGraphicsRunningProcesses_v3
                nvmlDeviceGetGraphicsRunningProcesses_v2
                nvmlDeviceGetGraphicsRunningProcesses
            },
        ),
        (
            Use::Mps,
            functions! {
                nvmlDeviceGetMPSComputeRunningProcesses_v3
                nvmlDeviceGetMPSComputeRunningProcesses_v2
                nvmlDeviceGetMPSComputeRunningProcesses
            },
        ),
    ]
};

#[derive(Debug)]
pub(super) enum ListError {
    Call(NvmlError),
    /// The driver listed this PID, which no process can have.
    ImpossiblePid(u32),
}

/// The sizes of an entry that drivers are known to write, in words of 8 bytes: 16, 24 and 32 bytes.
const STRIDES: [usize; 3] = [2, 3, 4];
const LARGEST_STRIDE: usize = 4;

/// The first and the largest capacity of the buffer, in entries.
const FIRST_ROOM: usize = 64;
const MOST_ROOM: usize = 1 << 16;

const POISONS: [u64; 2] = [0xAAAA_AAAA_AAAA_AAAA, 0x5555_5555_5555_5555];

/// The PIDs that a GPU process can have. 0 is the kernel; 1 is init, except in a container. The
/// upper bound is the limit of Linux itself, since the host may have PIDs above the limit of a
/// container.
const PIDS: RangeInclusive<u32> = 2..=1 << 22;

#[derive(Debug, Clone, Copy, Default)]
struct ListFormat {
    /// The index in [`LISTS`] of the newest function that the library has.
    version: usize,
    /// The size of an entry in words of 8 bytes; `None` until a list with an entry was read.
    stride: Option<usize>,
}

#[derive(Debug)]
pub(super) struct ProcessListReader {
    formats: [ListFormat; 3],
    /// NVML fills this buffer. Words of 8 bytes are aligned as NVML's entries are.
    buffer: Vec<u64>,
    /// Whether gputop runs in another PID namespace than the host's, as in a container.
    pub(super) is_contained: bool,
}

impl ProcessListReader {
    pub(super) fn new() -> Self {
        Self {
            formats: [ListFormat::default(); 3],
            buffer: vec![0; FIRST_ROOM * LARGEST_STRIDE],
            is_contained: !is_initial_pid_namespace(),
        }
    }

    pub(super) fn function(&self, list: usize) -> &'static str {
        LISTS[list].1[self.formats[list].version].0
    }

    /// Reads one list of a GPU in a pass that began at `listed`.
    pub(super) fn read(
        &mut self,
        calls: &GpuCalls,
        list: usize,
        listed: Moment,
    ) -> Result<Vec<NvmlProcess>, ListError> {
        let missing = Missing::NotYet;
        let template = NvmlProcess {
            pid: 0,
            listed,
            usage: LISTS[list].0,
            memory: Err(missing),
            sm: Err(missing),
            engines: None,
        };
        let count = self
            .fill(calls, list, POISONS[0])
            .map_err(ListError::Call)?;
        if let Some(stride) = self.formats[list].stride {
            if let Ok(processes) = decode(
                &self.buffer[..count * stride],
                stride,
                self.is_contained,
                &template,
            ) {
                return Ok(processes);
            }
            // A stride that was measured with one entry can be wrong for two.
            self.formats[list].stride = None;
        }
        if count == 0 {
            return Ok(vec![]);
        }
        let first = self.buffer.clone();
        let again = self
            .fill(calls, list, POISONS[1])
            .map_err(ListError::Call)?;
        // The number of processes may have changed between the two calls: the longer list shows how
        // much was written.
        let stride = stride_of(&first, &self.buffer, count.max(again));
        let processes = decode(
            &self.buffer[..again * stride],
            stride,
            self.is_contained,
            &template,
        )
        .map_err(ListError::ImpossiblePid)?;
        self.formats[list].stride = Some(stride);
        Ok(processes)
    }

    /// Fills the buffer with `poison`, has the driver write into it, and returns the number of
    /// entries that it wrote.
    fn fill(&mut self, calls: &GpuCalls, list: usize, poison: u64) -> Result<usize, NvmlError> {
        let versions = &LISTS[list].1;
        loop {
            self.buffer.fill(poison);
            let format = &mut self.formats[list];
            let (name, function) = versions[format.version];
            let room = self.buffer.len() / LARGEST_STRIDE;
            let mut count = c_uint::try_from(room).unwrap_or(c_uint::MAX);
            let (library, gpu, entries) = (
                calls.device.nvml().lib(),
                handle(&calls.device),
                self.buffer.as_mut_ptr(),
            );
            // SAFETY: the buffer is aligned, and has room for `count` entries of the largest size.
            match calls.call(name, || unsafe {
                function(library, gpu, &mut count, entries)
            }) {
                Ok(()) => return Ok((count as usize).min(room)),
                Err(NvmlError::InsufficientSize(_)) if room < MOST_ROOM => {
                    // More processes may start until the next call.
                    let wanted = (count as usize).max(room).saturating_mul(2).min(MOST_ROOM);
                    self.buffer.resize(wanted * LARGEST_STRIDE, poison);
                }
                Err(NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound)
                    if format.version + 1 < versions.len() =>
                {
                    *format = ListFormat {
                        version: format.version + 1,
                        stride: None,
                    };
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Returns the size of an entry in words, from two readings over different poisons. The longer list
/// had `longest` entries.
fn stride_of(first: &[u64], second: &[u64], longest: usize) -> usize {
    let written = first
        .iter()
        .zip(second)
        .rposition(|words| words != (&POISONS[0], &POISONS[1]));
    let written = written.map_or(0, |last| last + 1);
    STRIDES
        .into_iter()
        .find(|stride| stride * longest >= written)
        .unwrap_or(LARGEST_STRIDE)
}

/// Decodes the entries that the driver wrote. Time and use are those of `template`. The error is an
/// impossible PID.
fn decode(
    words: &[u64],
    stride: usize,
    is_contained: bool,
    template: &NvmlProcess,
) -> Result<Vec<NvmlProcess>, u32> {
    let process = |entry: &[u64]| {
        // The PID is the first four bytes; the next four are padding.
        let [a, b, c, d, ..] = entry[0].to_ne_bytes();
        let pid = u32::from_ne_bytes([a, b, c, d]);
        if !(PIDS.contains(&pid) || is_contained && pid == 1) {
            return Err(pid);
        }
        let memory = match entry[1] {
            // All ones: the driver does not know (WSL, WDDM, confidential computing).
            u64::MAX => Err(Missing::Unsupported),
            0 if is_contained => Err(Missing::Unsupported),
            bytes => Ok(Bytes(bytes)),
        };
        Ok(NvmlProcess {
            pid,
            memory,
            ..template.clone()
        })
    };
    words.chunks_exact(stride).map(process).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A poisoned buffer after a driver wrote entries of `stride` words.
    fn written(pids: &[u32], stride: usize, poison: u64) -> Vec<u64> {
        let mut buffer = vec![poison; 64 * LARGEST_STRIDE];
        for (entry, pid) in buffer.chunks_exact_mut(stride).zip(pids) {
            entry.fill(u64::MAX);
            entry[0] = u64::from(*pid).to_le();
            entry[1] = 1 << 30;
        }
        buffer
    }

    fn template() -> NvmlProcess {
        let missing = Missing::NotYet;
        NvmlProcess {
            pid: 0,
            listed: Moment(0),
            usage: Use::Compute,
            memory: Err(missing),
            sm: Err(missing),
            engines: None,
        }
    }

    #[test]
    fn two_poisons_show_the_size_of_an_entry() {
        for stride in STRIDES {
            for pids in [&[4242][..], &[4242, 77], &[2, 3, 4, 5, 6, 7, 8]] {
                let [first, second] = POISONS.map(|poison| written(pids, stride, poison));
                assert_eq!(stride_of(&first, &second, pids.len()), stride, "{pids:?}");
            }
        }
    }

    #[test]
    fn a_pid_that_cannot_be_rejects_the_list() {
        for pid in [0, 1, u32::MAX, (1 << 22) + 1] {
            assert_eq!(
                decode(&written(&[4242, pid], 3, 0)[..6], 3, false, &template()),
                Err(pid)
            );
        }
    }

    #[test]
    fn in_a_container_pid_one_is_a_process_and_no_memory_is_not_told() {
        let mut words = written(&[1, 7], 3, 0);
        words[4] = 0;
        let processes = decode(&words[..6], 3, true, &template()).unwrap();
        let memory: Vec<_> = processes
            .iter()
            .map(|process| (process.pid, process.memory))
            .collect();
        assert_eq!(
            memory,
            [(1, Ok(Bytes::from_gib(1))), (7, Err(Missing::Unsupported))]
        );
        assert_eq!(decode(&words[..3], 3, false, &template()), Err(1));
    }
}
