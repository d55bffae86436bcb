//! NVML's own lists of the processes on a GPU, read raw.
//!
//! Some drivers write entries of another size than the header says. So each list is read twice over
//! different poisons the first time: where the poison stayed, nothing was written, and that shows the
//! true size of an entry. A PID that no process can have rejects the whole list.
//!
//! In a container, drivers since 515 or so name PIDs of its own (`_gpuConvertPid` in NVIDIA's open kernel modules), and
//! those others that they leave out. Then the trainer itself may be PID 1, and its memory may be told as 0, since it
//! is looked up by the other PID (pull request 614 there; 560.35 in Project-HAMi/HAMi-core#112).

use std::ffi::c_uint;
use std::ops::RangeInclusive;

use nvml_wrapper::Device;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper_sys::bindings::{NvmlLib, nvmlDevice_t};

use super::call_watch::Watch;
use crate::agent::procfs::is_initial_pid_namespace;
use crate::base::units::Bytes;
use crate::protocol::snapshot::{Missing, Reading};

/// Which processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum List {
    Compute,
    Graphics,
    Mps,
}

/// A version of the functions, the newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V3,
    V2,
    V1,
}

/// One process that NVML named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) pid: u32,
    pub(super) memory: Reading<Bytes>,
}

/// Why there is no list.
#[derive(Debug)]
pub(super) enum Fault {
    /// The call failed.
    Error(NvmlError),
    /// It named this PID, which no process can have.
    Garbage(u32),
}

/// The sizes of an entry that drivers were seen to write: 16, 24 and 32 bytes, in words of 8.
const STRIDES: [usize; 3] = [2, 3, 4];
const LARGEST: usize = 4;

/// What the buffer is filled with before a call.
const POISONS: [u64; 2] = [0xAAAA_AAAA_AAAA_AAAA, 0x5555_5555_5555_5555];

/// PIDs that a process can have and that may be spoken of. 0 is the kernel, 1 is init, except in a container; the most
/// is what any Linux allows, since a container's own limit says nothing of the host's PIDs.
const PIDS: RangeInclusive<u32> = 2..=1 << 22;

/// What was found out about one list's functions.
#[derive(Debug, Clone, Copy)]
struct Known {
    version: Version,
    stride: Option<usize>,
}

/// Reads process lists, and remembers what it found out about this driver.
#[derive(Debug)]
pub(super) struct Lists {
    known: [Known; 3],
    /// Words, so that it is aligned as NVML's entries are.
    buffer: Vec<u64>,
    /// Whether this is a PID namespace of its own.
    is_contained: bool,
}

impl Lists {
    pub(super) fn new() -> Self {
        let known = Known { version: Version::V3, stride: None };
        Self { known: [known; 3], buffer: vec![0; 64 * LARGEST], is_contained: !is_initial_pid_namespace() }
    }

    /// Whether this is a PID namespace of its own.
    pub(super) fn is_contained(&self) -> bool {
        self.is_contained
    }

    /// The name of the function that reads this list.
    pub(super) fn function(&self, list: List) -> &'static str {
        name(list, self.known[list as usize].version)
    }

    /// Reads one list of one GPU into `entries`, which is emptied first.
    pub(super) fn read(
        &mut self,
        watch: &Watch,
        device: &Device<'static>,
        list: List,
        entries: &mut Vec<Entry>,
    ) -> Result<(), Fault> {
        entries.clear();
        if let Some(stride) = self.known[list as usize].stride {
            let count = self.fill(watch, device, list, POISONS[0]).map_err(Fault::Error)?;
            if decode(&self.buffer[..count * stride], stride, self.is_contained, entries).is_ok() {
                return Ok(());
            }
            // A stride that was found out with one entry can be wrong for two.
            self.known[list as usize].stride = None;
        }
        self.probe(watch, device, list, entries)
    }

    /// Reads a list without knowing how large an entry is.
    fn probe(
        &mut self,
        watch: &Watch,
        device: &Device<'static>,
        list: List,
        entries: &mut Vec<Entry>,
    ) -> Result<(), Fault> {
        let count = self.fill(watch, device, list, POISONS[0]).map_err(Fault::Error)?;
        if count == 0 {
            return Ok(());
        }
        let first = self.buffer.clone();
        let again = self.fill(watch, device, list, POISONS[1]).map_err(Fault::Error)?;
        // A process may have come or gone between the two: the longer list reaches furthest.
        let (count, longest) = (again, count.max(again));
        let stride = stride_of(&first, &self.buffer, longest);
        decode(&self.buffer[..count * stride], stride, self.is_contained, entries).map_err(Fault::Garbage)?;
        self.known[list as usize].stride = Some(stride);
        Ok(())
    }

    /// Fills the buffer with `poison`, has the driver write into it, and says how many entries it wrote.
    fn fill(&mut self, watch: &Watch, device: &Device<'static>, list: List, poison: u64) -> Result<usize, NvmlError> {
        let lib = device.nvml().lib();
        // SAFETY: the handle is only passed on to NVML, and the driver lives as long as the process.
        let handle = unsafe { device.handle() };
        loop {
            self.buffer.fill(poison);
            let version = self.known[list as usize].version;
            // However large an entry is, so many of them have room.
            let room = self.buffer.len() / LARGEST;
            let mut count = c_uint::try_from(room).unwrap_or(c_uint::MAX);
            let function = name(list, version);
            match watch.call(function, || call(lib, list, version, handle, &mut count, &mut self.buffer)) {
                Ok(()) => return Ok((count as usize).min(room)),
                Err(NvmlError::InsufficientSize(_)) if room < 1 << 16 => {
                    // More may come until the next call.
                    let wanted = (count as usize).max(room).saturating_mul(2).min(1 << 16);
                    self.buffer.resize(wanted * LARGEST, poison);
                }
                Err(NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound) if version != Version::V1 => {
                    let older = if version == Version::V3 { Version::V2 } else { Version::V1 };
                    self.known[list as usize] = Known { version: older, stride: None };
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

/// Takes the entries out of what the driver wrote; a PID that cannot be is the error.
fn decode(words: &[u64], stride: usize, is_contained: bool, entries: &mut Vec<Entry>) -> Result<(), u32> {
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
        entries.push(Entry { pid, memory });
    }
    Ok(())
}

fn name(list: List, version: Version) -> &'static str {
    match (list, version) {
        (List::Compute, Version::V3) => "nvmlDeviceGetComputeRunningProcesses_v3",
        (List::Compute, Version::V2) => "nvmlDeviceGetComputeRunningProcesses_v2",
        (List::Compute, Version::V1) => "nvmlDeviceGetComputeRunningProcesses",
        (List::Graphics, Version::V3) => "nvmlDeviceGetGraphicsRunningProcesses_v3",
        (List::Graphics, Version::V2) => "nvmlDeviceGetGraphicsRunningProcesses_v2",
        (List::Graphics, Version::V1) => "nvmlDeviceGetGraphicsRunningProcesses",
        (List::Mps, Version::V3) => "nvmlDeviceGetMPSComputeRunningProcesses_v3",
        (List::Mps, Version::V2) => "nvmlDeviceGetMPSComputeRunningProcesses_v2",
        (List::Mps, Version::V1) => "nvmlDeviceGetMPSComputeRunningProcesses",
    }
}

fn call(
    lib: &NvmlLib,
    list: List,
    version: Version,
    device: nvmlDevice_t,
    count: &mut c_uint,
    buffer: &mut [u64],
) -> Result<(), NvmlError> {
    let out = buffer.as_mut_ptr();
    // One arm a function: each has a type of its own for the entries, and none of them is believed.
    macro_rules! call {
        ($function:ident) => {{
            let function = nvml_sym(lib.$function.as_ref())?;
            // SAFETY: `buffer` is aligned, and has room for `count` entries of the largest size that
            // drivers write, whatever the header says.
            nvml_try(unsafe { function(device, count, out.cast()) })
        }};
    }
    match (list, version) {
        (List::Compute, Version::V3) => call!(nvmlDeviceGetComputeRunningProcesses_v3),
        (List::Compute, Version::V2) => call!(nvmlDeviceGetComputeRunningProcesses_v2),
        (List::Compute, Version::V1) => call!(nvmlDeviceGetComputeRunningProcesses),
        (List::Graphics, Version::V3) => call!(nvmlDeviceGetGraphicsRunningProcesses_v3),
        (List::Graphics, Version::V2) => call!(nvmlDeviceGetGraphicsRunningProcesses_v2),
        (List::Graphics, Version::V1) => call!(nvmlDeviceGetGraphicsRunningProcesses),
        (List::Mps, Version::V3) => call!(nvmlDeviceGetMPSComputeRunningProcesses_v3),
        (List::Mps, Version::V2) => call!(nvmlDeviceGetMPSComputeRunningProcesses_v2),
        (List::Mps, Version::V1) => call!(nvmlDeviceGetMPSComputeRunningProcesses),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a driver with entries of `stride` words leaves of a poisoned buffer.
    fn written(pids: &[u32], stride: usize, poison: u64) -> Vec<u64> {
        let mut buffer = vec![poison; 64 * LARGEST];
        for (entry, pid) in buffer.chunks_exact_mut(stride).zip(pids) {
            entry.fill(u64::MAX);
            entry[0] = u64::from(*pid).to_le();
            entry[1] = 1 << 30;
        }
        buffer
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
            assert_eq!(decode(&written(&[4242, pid], 3, 0)[..6], 3, false, &mut entries), Err(pid));
            assert_eq!(entries, []);
        }
    }

    #[test]
    fn in_a_container_pid_one_is_a_process_and_no_memory_is_not_told() {
        let mut entries = vec![];
        let mut words = written(&[1, 7], 3, 0);
        words[4] = 0;
        assert_eq!(decode(&words[..6], 3, true, &mut entries), Ok(()));
        let memory: Vec<_> = entries.iter().map(|it| (it.pid, it.memory)).collect();
        assert_eq!(memory, [(1, Ok(Bytes::from_gib(1))), (7, Err(Missing::Unsupported))]);
        assert_eq!(decode(&words[..3], 3, false, &mut entries), Err(1));
    }
}
