//! One process whose memory is read: finds its allocator, samples it, and keeps the last result.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};

use super::ReadRequest;
use super::device_stats::DeviceStats;
use super::fork::{self, StatsOwner};
use super::locate::{exports_allocator, locate};
use super::memory::{self, Memory, MemoryRange};
use super::stats_reader::{SampleOutcome, StatsReader, ThreadState};
use crate::agent::procfs::{ListedProcess, NvmlMemory, stat};
use crate::base::units::Moment;
use crate::protocol::snapshot::{AllocatorUnreadable, ProcessId, Reading};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::agent) struct AllocatorReading {
    /// The statistics of each device, in CUDA's order.
    pub(in crate::agent) devices: Arc<[DeviceStats]>,
    pub(in crate::agent) owner: StatsOwner,
}

pub(in crate::agent) type ReadOutcome = Result<AllocatorReading, AllocatorUnreadable>;

/// The first wait until a process without PyTorch is searched again, in seconds. Each further wait
/// is four times as long: a process that uses a GPU has usually loaded PyTorch already.
const FIRST_WAIT: u16 = 8;
/// The wait for a process that has loaded PyTorch and not allocated yet, in seconds: it may
/// allocate at any moment.
const ALLOCATION_WAIT: u16 = 3;
/// The longest wait, in seconds: a process may load PyTorch late.
const LONGEST_WAIT: u16 = 300;
/// For how many torn or locked samples in a row the last result stays valid.
const MOST_TORN: u8 = 2;
/// The shortest wait after a search, in seconds: for a process whose memory grows in every pass.
const SHORTEST_WAIT: u16 = 1;
/// By how many bytes the virtual size grows at least when a process loads PyTorch. Its libraries
/// are larger together; the stack of one more thread is smaller.
const LIBRARIES_SIZE: u64 = 64 << 20;
const MOST_MAPS: u64 = 16 << 20;

#[derive(Debug)]
pub(super) struct TargetProcess {
    /// `None` while no allocator is found. Boxed, since most processes have none.
    found: Option<Box<FoundAllocator>>,
    last: ReadOutcome,
    /// Whether the last result was returned to the main loop.
    is_reported: bool,
    /// The number of torn or locked samples in a row.
    torn: u8,
    /// Whether the process was seen to allocate blocks, which a process with a copy cannot.
    has_allocated: bool,
    /// When the process was searched for an allocator, its virtual size then, and the wait until
    /// the next search in seconds. `None` before the first search.
    searched: Option<(Moment, u64)>,
    wait: u16,
}

#[derive(Debug)]
struct FoundAllocator {
    memory: File,
    /// `None` if the kernel has no pidfds: then every range is read from the file.
    pidfd: Option<OwnedFd>,
    reader: StatsReader,
    /// The hash of its location: [`ThreadState::add_location`].
    location: u64,
    /// Whether the memory began as a copy of the parent's, and CUDA has started no thread since.
    may_be_copied: bool,
    /// The older process with its allocator at the same location, and the owner that followed from
    /// comparing both.
    compared: Option<(ProcessId, StatsOwner)>,
    /// The parent, and whether this process may have its stats from it.
    parent: Option<(Reading<u32>, bool)>,
    /// NVML's report at the last complete sample. A change is a reason to check every unused
    /// device.
    nvml_memory: NvmlMemory,
}

impl TargetProcess {
    pub(super) fn new() -> Self {
        Self {
            found: None,
            last: Err(AllocatorUnreadable::NotYet),
            is_reported: false,
            torn: 0,
            has_allocated: false,
            searched: None,
            wait: 0,
        }
    }

    /// Reads the process, and returns the result if it is new. Searches for an allocator only if
    /// `searches` are left.
    pub(super) fn read(
        &mut self,
        request: ReadRequest,
        now: Moment,
        searches: &mut u32,
        state: &mut ThreadState,
    ) -> Option<&ReadOutcome> {
        let process = request.process;
        if let Some(found) = &mut self.found {
            match found.sample(process, state) {
                SampleOutcome::Complete { has_moved } => {
                    self.torn = 0;
                    let before = self.last.as_ref().ok();
                    self.has_allocated |= has_moved
                        && before.is_some_and(|before| {
                            found.reader.has_allocated_since(&before.devices)
                        });
                    let owner = if self.has_allocated {
                        StatsOwner::Own
                    } else {
                        found.owner(process, state)
                    };
                    if has_moved || before.is_none_or(|before| before.owner != owner) {
                        self.last = Ok(AllocatorReading {
                            devices: found.reader.stats.as_slice().into(),
                            owner,
                        });
                        self.is_reported = false;
                    }
                }
                SampleOutcome::Torn | SampleOutcome::Locked if self.torn < MOST_TORN => {
                    self.torn += 1;
                }
                // The mutex is held at every sample: the allocator may be busy because memory runs
                // out.
                SampleOutcome::Locked => self.set(Err(AllocatorUnreadable::NotYet)),
                // The process was stopped mid-update, or these bytes are no allocator.
                SampleOutcome::Torn => self.set(Err(AllocatorUnreadable::Implausible)),
                // The process has ended or called `exec`.
                SampleOutcome::Gone => *self = Self::new(),
            }
        }
        if self.found.is_none() && *searches > 0 && self.is_search_due(process.virtual_size, now) {
            *searches -= 1;
            match FoundAllocator::search(process, state) {
                Ok((mut found, outcome)) => {
                    let mut new = Self::new();
                    // Otherwise the statistics were changing: the next sample reads them.
                    if matches!(outcome, SampleOutcome::Complete { .. }) {
                        let owner = found.owner(process, state);
                        new.last = Ok(AllocatorReading {
                            devices: found.reader.stats.as_slice().into(),
                            owner,
                        });
                    }
                    *self = Self {
                        found: Some(found.into()),
                        ..new
                    };
                }
                Err(why) => {
                    self.set(Err(why));
                    self.wait = match why {
                        AllocatorUnreadable::NotYet => ALLOCATION_WAIT,
                        _ => (self.wait * 4).clamp(FIRST_WAIT, LONGEST_WAIT),
                    };
                    self.searched = Some((now, process.virtual_size));
                }
            }
        }
        let is_news = !std::mem::replace(&mut self.is_reported, true) || !request.is_known;
        is_news.then_some(&self.last)
    }

    /// Whether to search for an allocator. A process without PyTorch whose virtual size is the same
    /// has loaded no library; one that has grown much may have loaded PyTorch, and may be loading
    /// the rest of it.
    fn is_search_due(&mut self, virtual_size: u64, now: Moment) -> bool {
        let Some((at, size)) = self.searched else {
            return true;
        };
        if self.last == Err(AllocatorUnreadable::NoPytorch) {
            if virtual_size == size {
                return false;
            }
            if virtual_size.saturating_sub(size) >= LIBRARIES_SIZE {
                self.wait = SHORTEST_WAIT;
            }
        }
        now.since(at) >= Duration::from_secs(self.wait.into())
    }

    fn set(&mut self, outcome: ReadOutcome) {
        if self.last != outcome {
            (self.last, self.is_reported) = (outcome, false);
        }
    }

    pub(super) fn is_found(&self) -> bool {
        self.found.is_some()
    }

    /// Returns the pidfd that was opened before the memory was first read. `None` while no memory
    /// is read by PID.
    pub(super) fn pidfd(&self) -> Option<&OwnedFd> {
        self.found.as_ref()?.pidfd.as_ref()
    }
}

impl FoundAllocator {
    fn sample(&mut self, process: ListedProcess, state: &mut ThreadState) -> SampleOutcome {
        // Without NVML's figure, only a check of all devices shows that one is used now.
        let check_all =
            process.nvml_memory != self.nvml_memory || process.nvml_memory.memory.is_err();
        let read = |ranges: &[MemoryRange], buffer: &mut [u8]| {
            self.pidfd.is_some() && memory::read_by_pid(process.id.pid, ranges, buffer)
                || memory::read_file(&self.memory)(ranges, buffer)
        };
        let outcome = self
            .reader
            .sample(&mut Memory::new(&read), check_all, state);
        if matches!(outcome, SampleOutcome::Complete { .. }) {
            self.nvml_memory = process.nvml_memory;
        }
        outcome
    }

    fn search(
        ListedProcess {
            id,
            uid,
            nvml_memory,
            ..
        }: ListedProcess,
        state: &mut ThreadState,
    ) -> Result<(Self, SampleOutcome), AllocatorUnreadable> {
        let why = |error: io::Error| why_denied(&error, uid);
        let memory = File::open(format!("/proc/{}/mem", id.pid)).map_err(why)?;
        let pid = i32::try_from(id.pid).ok().and_then(Pid::from_raw);
        let pidfd = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let libraries = Libraries::read(id.pid).map_err(why)?;
        // The process existed before the files were opened and exists now, so the files are its
        // own.
        let mut line = Vec::new();
        let stat = stat::read_process(id.pid, &mut line).map_err(why)?;
        if Some(stat.start_ticks) != id.start_ticks {
            return Err(AllocatorUnreadable::NotYet);
        }
        let may_be_copied = stat.is_forked() == Ok(true) && !fork::has_cuda_thread(id.pid);
        let (reader, outcome) = search_libraries(&memory, libraries, state)?;
        let location = state.add_location(&reader, id);
        let found = Self {
            memory,
            pidfd,
            reader,
            location,
            may_be_copied,
            compared: None,
            parent: None,
            nvml_memory,
        };
        Ok((found, outcome))
    }

    /// Returns the owner of the statistics, as long as the process was not seen to allocate.
    /// Compares the process once with each older process at the same location.
    fn owner(
        &mut self,
        ListedProcess { id, parent, .. }: ListedProcess,
        state: &ThreadState,
    ) -> StatsOwner {
        if !self.may_be_copied {
            return StatsOwner::Own;
        }
        if let Some(older) = state.older(self.location, id) {
            let known = self.compared.filter(|(process, _)| *process == older);
            let (_, owner) = *self
                .compared
                .insert(known.unwrap_or_else(|| (older, fork::owner(older, id))));
            if owner != StatsOwner::Unknown {
                return owner;
            }
        }
        let known = self.parent.filter(|(known, _)| *known == parent);
        let (_, is_creator) = *self.parent.insert(known.unwrap_or_else(|| {
            (
                parent,
                fork::is_below_its_creator(id.pid, parent, &self.reader),
            )
        }));
        if is_creator {
            StatsOwner::Unknown
        } else {
            StatsOwner::Orphaned
        }
    }
}

/// Finds the allocator that one of the libraries exports, and takes the first sample.
fn search_libraries(
    memory: &File,
    Libraries { mut named, others }: Libraries,
    state: &mut ThreadState,
) -> Result<(StatsReader, SampleOutcome), AllocatorUnreadable> {
    let mut why = AllocatorUnreadable::NoPytorch;
    let read = memory::read_file(memory);
    if named.is_empty() {
        named.extend(
            others
                .into_iter()
                .find(|base| exports_allocator(&mut Memory::new(&read), *base)),
        );
    }
    for base in named {
        let memory = &mut Memory::new(&read);
        why = match locate(memory, base).map(StatsReader::new) {
            Ok(mut reader) => match reader.sample(memory, true, state) {
                SampleOutcome::Gone => AllocatorUnreadable::NotYet,
                outcome => return Ok((reader, outcome)),
            },
            Err(why) => why,
        };
    }
    Err(why)
}

/// The addresses where a process has loaded files.
#[derive(Debug, Default)]
struct Libraries {
    /// Addresses of PyTorch's CUDA library, `libc10_cuda.so`.
    named: Vec<u64>,
    /// Addresses of other files. One of them may be the library under another name.
    others: Vec<u64>,
}

impl Libraries {
    fn read(pid: u32) -> io::Result<Self> {
        const MOST_NAMED: usize = 4;
        const MOST_OTHERS: usize = 1024;
        let mut maps = BufReader::with_capacity(
            32 << 10,
            File::open(format!("/proc/{pid}/maps"))?.take(MOST_MAPS),
        );
        let mut line = Vec::new();
        let mut found = Self::default();
        while found.named.len() < MOST_NAMED && maps.read_until(b'\n', &mut line)? > 0 {
            match file_start(&line) {
                Some((start, true)) => found.named.push(start),
                Some((start, false)) if found.others.len() < MOST_OTHERS => {
                    found.others.push(start);
                }
                _ => (),
            }
            line.clear();
        }
        Ok(found)
    }
}

/// Parses a line of `maps`. Returns the address if a file begins there, and whether the file is
/// `libc10_cuda.so`.
fn file_start(line: &[u8]) -> Option<(u64, bool)> {
    // 7f12a0000000-7f12a0010000 r--p 00000000 08:01 4711       /env/torch/lib/libc10_cuda.so
    let path = &line[line.iter().position(|byte| *byte == b'/')?..];
    let name = path.rsplit(|byte| *byte == b'/').next()?;
    // Tools that bundle libraries put a hash in the name.
    let is_named = name
        .strip_prefix(b"libc10_cuda")
        .is_some_and(|rest| rest.starts_with(b".so") || rest.starts_with(b"-"));
    // Reading the memory of a device may have effects.
    if path.starts_with(b"/dev/") {
        return None;
    }
    let mut words = str::from_utf8(&line[..line.len() - path.len()])
        .ok()?
        .split_ascii_whitespace();
    let (addresses, offset) = (words.next()?, words.nth(1)?);
    let is_start = u64::from_str_radix(offset, 16).ok()? == 0;
    let start = u64::from_str_radix(addresses.split('-').next()?, 16).ok()?;
    is_start.then_some((start, is_named))
}

fn why_denied(error: &io::Error, uid: Reading<u32>) -> AllocatorUnreadable {
    if error.kind() != io::ErrorKind::PermissionDenied {
        // The process has ended.
        return AllocatorUnreadable::NotYet;
    }
    let ours = geteuid();
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    match uid {
        Ok(uid) if uid != ours.as_raw() && !ours.is_root() => AllocatorUnreadable::OtherUser,
        _ if scope.is_ok_and(|scope| scope.trim() != "0") && !ours.is_root() => {
            AllocatorUnreadable::PtraceScope
        }
        _ => AllocatorUnreadable::Protected,
    }
}
