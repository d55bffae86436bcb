//! NVML's own lists of the processes on a GPU, read raw.
//!
//! Some drivers write entries of another size than the header says. Therefore the first reading of each list reads it twice
//! over different poisons: where the poison stayed, nothing was written, which shows the size of an entry. A PID that no
//! process can have rejects the whole list.
//!
//! In a container, drivers since about 515 name PIDs of the container's namespace (`_gpuConvertPid` in NVIDIA's open kernel
//! modules) and leave out other processes. The trainer itself may then be PID 1, and its memory may be given as 0, since the
//! driver looks it up by the other PID (pull request 614 there; 560.35 in Project-HAMi/HAMi-core#112).

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

/// The name of a function that reads a list, and its call: with the GPU's handle, the number of entries that there is room for,
/// which becomes that of the written ones, and the room.
type ListFunction = (&'static str, unsafe fn(&NvmlLib, nvmlDevice_t, &mut c_uint, *mut u64) -> Result<(), NvmlError>);

/// The place of the list of compute processes in [`LISTS`].
pub(super) const COMPUTE: usize = 0;

/// NVML's lists: how a listed process uses the GPU, and the functions that read the list, the newest version first. Each
/// function has its own type of entry. None of these types is trusted.
pub(super) const LISTS: [(Use, [ListFunction; 3]); 3] = {
    macro_rules! functions {
        ($($function:ident)+) => {
            [$((stringify!($function), |library, gpu, count, entries| {
                // SAFETY: the caller has room for `count` entries, of the largest size that drivers write.
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

/// The reason why a list could not be read.
#[derive(Debug)]
pub(super) enum ListError {
    /// The call failed.
    Call(NvmlError),
    /// The driver named this PID, which no process can have.
    ImpossiblePid(u32),
}

/// The sizes of an entry that drivers were seen to write: 16, 24 and 32 bytes, in words of 8.
const STRIDES: [usize; 3] = [2, 3, 4];
const LARGEST: usize = 4;

/// Entries that the buffer has room for at first, and at most.
const FIRST_ROOM: usize = 64;
const MOST_ROOM: usize = 1 << 16;

/// Patterns that the buffer is filled with before a call.
const POISONS: [u64; 2] = [0xAAAA_AAAA_AAAA_AAAA, 0x5555_5555_5555_5555];

/// PIDs that a GPU process can have. 0 is the kernel; 1 is init, except in a container. The largest is the limit of Linux
/// itself, since the limit of a container does not bound the host's PIDs.
const PIDS: RangeInclusive<u32> = 2..=1 << 22;

/// The properties of one list with this driver.
#[derive(Debug, Clone, Copy, Default)]
struct ListFormat {
    /// The place of the newest function that the library has, in [`LISTS`].
    version: usize,
    /// The size of an entry in words of 8 bytes; `None` until a list with an entry was read.
    stride: Option<usize>,
}

/// Reads process lists, and remembers versions and sizes of this driver.
#[derive(Debug)]
pub(super) struct ProcessListReader {
    formats: [ListFormat; 3],
    /// Words, so that it is aligned as NVML's entries are.
    buffer: Vec<u64>,
    /// Whether gputop runs in a PID namespace of its own.
    pub(super) is_contained: bool,
}

impl ProcessListReader {
    pub(super) fn new() -> Self {
        Self {
            formats: [ListFormat::default(); 3],
            buffer: vec![0; FIRST_ROOM * LARGEST],
            is_contained: !is_initial_pid_namespace(),
        }
    }

    /// The name of the function that reads this list.
    pub(super) fn function(&self, list: usize) -> &'static str {
        LISTS[list].1[self.formats[list].version].0
    }

    /// Reads one list of one GPU, at `listed` or later, into `entries`, which is emptied first.
    pub(super) fn read(
        &mut self,
        calls: &GpuCalls,
        list: usize,
        listed: Moment,
        entries: &mut Vec<NvmlProcess>,
    ) -> Result<(), ListError> {
        let template = NvmlProcess {
            pid: 0,
            listed,
            usage: LISTS[list].0,
            memory: Err(Missing::NotYet),
            sm: Err(Missing::NotYet),
        };
        entries.clear();
        let count = self.fill(calls, list, POISONS[0]).map_err(ListError::Call)?;
        if let Some(stride) = self.formats[list].stride {
            if decode(&self.buffer[..count * stride], stride, self.is_contained, &template, entries).is_ok() {
                return Ok(());
            }
            // A stride that was found out with one entry can be wrong for two.
            self.formats[list].stride = None;
        }
        if count == 0 {
            return Ok(());
        }
        let first = self.buffer.clone();
        let again = self.fill(calls, list, POISONS[1]).map_err(ListError::Call)?;
        // A process may have come or gone between the two: the longer list reaches furthest.
        let stride = stride_of(&first, &self.buffer, count.max(again));
        decode(&self.buffer[..again * stride], stride, self.is_contained, &template, entries)
            .map_err(ListError::ImpossiblePid)?;
        self.formats[list].stride = Some(stride);
        Ok(())
    }

    /// Fills the buffer with `poison`, has the driver write into it, and returns the number of entries that it wrote.
    fn fill(&mut self, calls: &GpuCalls, list: usize, poison: u64) -> Result<usize, NvmlError> {
        let versions = &LISTS[list].1;
        loop {
            self.buffer.fill(poison);
            let format = &mut self.formats[list];
            let (name, function) = versions[format.version];
            // There is room for this many entries of the largest size.
            let room = self.buffer.len() / LARGEST;
            let mut count = c_uint::try_from(room).unwrap_or(c_uint::MAX);
            let (library, gpu, entries) = (calls.device.nvml().lib(), handle(&calls.device), self.buffer.as_mut_ptr());
            // SAFETY: the buffer is aligned, and has room for `count` entries of the largest size.
            match calls.call(name, || unsafe { function(library, gpu, &mut count, entries) }) {
                Ok(()) => return Ok((count as usize).min(room)),
                Err(NvmlError::InsufficientSize(_)) if room < MOST_ROOM => {
                    // More may come until the next call.
                    let wanted = (count as usize).max(room).saturating_mul(2).min(MOST_ROOM);
                    self.buffer.resize(wanted * LARGEST, poison);
                }
                Err(NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound)
                    if format.version + 1 < versions.len() =>
                {
                    *format = ListFormat { version: format.version + 1, stride: None };
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// The size of an entry, from two fillings over different poisons, the longer of which had `longest` entries.
fn stride_of(first: &[u64], second: &[u64], longest: usize) -> usize {
    let written = first.iter().zip(second).rposition(|words| words != (&POISONS[0], &POISONS[1]));
    let written = written.map_or(0, |last| last + 1);
    STRIDES.into_iter().find(|stride| stride * longest >= written).unwrap_or(LARGEST)
}

/// Decodes the entries that the driver wrote, with time and use of `template`. The error is an impossible PID.
fn decode(
    words: &[u64],
    stride: usize,
    is_contained: bool,
    template: &NvmlProcess,
    entries: &mut Vec<NvmlProcess>,
) -> Result<(), u32> {
    entries.clear();
    for entry in words.chunks_exact(stride) {
        // The PID is the first four bytes; the next four are padding.
        let [a, b, c, d, ..] = entry[0].to_ne_bytes();
        let pid = u32::from_ne_bytes([a, b, c, d]);
        if !(PIDS.contains(&pid) || is_contained && pid == 1) {
            entries.clear();
            return Err(pid);
        }
        let memory = match entry[1] {
            // All ones: the driver does not know (WSL, WDDM, confidential computing).
            u64::MAX => Err(Missing::Unsupported),
            0 if is_contained => Err(Missing::Unsupported),
            bytes => Ok(Bytes(bytes)),
        };
        entries.push(NvmlProcess { pid, memory, ..template.clone() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A poisoned buffer after a driver wrote entries of `stride` words.
    fn written(pids: &[u32], stride: usize, poison: u64) -> Vec<u64> {
        let mut buffer = vec![poison; 64 * LARGEST];
        for (entry, pid) in buffer.chunks_exact_mut(stride).zip(pids) {
            entry.fill(u64::MAX);
            entry[0] = u64::from(*pid).to_le();
            entry[1] = 1 << 30;
        }
        buffer
    }

    fn template() -> NvmlProcess {
        let missing = Missing::NotYet;
        NvmlProcess { pid: 0, listed: Moment(0), usage: Use::Compute, memory: Err(missing), sm: Err(missing) }
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
            let mut entries = vec![];
            assert_eq!(decode(&written(&[4242, pid], 3, 0)[..6], 3, false, &template(), &mut entries), Err(pid));
            assert_eq!(entries, []);
        }
    }

    #[test]
    fn in_a_container_pid_one_is_a_process_and_no_memory_is_not_told() {
        let mut entries = vec![];
        let mut words = written(&[1, 7], 3, 0);
        words[4] = 0;
        assert_eq!(decode(&words[..6], 3, true, &template(), &mut entries), Ok(()));
        let memory: Vec<_> = entries.iter().map(|entry| (entry.pid, entry.memory)).collect();
        assert_eq!(memory, [(1, Ok(Bytes::from_gib(1))), (7, Err(Missing::Unsupported))]);
        assert_eq!(decode(&words[..3], 3, false, &template(), &mut entries), Err(1));
    }
}
