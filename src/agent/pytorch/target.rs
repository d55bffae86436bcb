//! One process that is looked into: who it is, where its allocator is, what that said last.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};

use super::ReadRequest;
use super::find::{self, Absent, Other};
use super::fork;
use super::layout::Stats;
use super::memory::{self, Memory};
use super::stats::{Asks, Books, Sample, Scratch};
use crate::agent::procfs::stat;
use crate::agent::procfs::{ListedProcess, NvmlMemory};
use crate::base::units::Moment;
use crate::protocol::snapshot::{AllocatorUnreadable, ProcessId, Reading};

/// What the allocators of a process say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::agent) struct Said {
    /// Of each device, in CUDA's order.
    pub(in crate::agent) devices: Arc<[Stats]>,
    pub(in crate::agent) whose: Whose,
}

/// Whose figures a process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::agent) enum Whose {
    /// Its own.
    #[default]
    Own,
    /// Those of an older process, as they were when it was forked from that.
    Left,
    /// One or the other: it was forked, and hands nothing out.
    Unsure,
}

/// What came of a look.
pub(in crate::agent) type Outcome = Result<Said, AllocatorUnreadable>;

/// A process without PyTorch is looked at again after so long, then after four times that: who has a GPU already, has
/// loaded what uses it.
const AGAIN: Seconds = 8;
/// One that has PyTorch, and is loading its data, allocates at any moment.
const SOON: Seconds = 3;
/// And no one less often than this: it may load PyTorch late.
const SELDOM: Seconds = 300;
/// What was read last stands for so many passes in which it was torn.
const TEARS: u8 = 2;
/// No process has maps of more than this.
const MAPS: u64 = 16 << 20;

/// A process that is looked into.
#[derive(Debug)]
pub(super) struct Target {
    /// In a place of its own: of a thousand processes few have one.
    found: Option<Box<Found>>,
    last: Outcome,
    /// Whether that was told.
    was_told: bool,
    tears: u8,
    /// Whether its allocator was seen to hand out blocks.
    hands_out: bool,
    /// When to look for an allocator again, and the wait before that.
    due: Moment,
    wait: Seconds,
}

/// Whole seconds of a wait: a fourth of what a [`Duration`] takes.
type Seconds = u16;

/// An allocator and the memory that it is in.
#[derive(Debug)]
struct Found {
    memory: File,
    /// Absent where the kernel has none: then each piece is read from the file.
    handle: Option<OwnedFd>,
    books: Books,
    /// Its place, as [`Scratch::note_place`] gives it.
    origin: u64,
    /// Its memory began as a copy of another's.
    is_forked: bool,
    /// Whose its figures are beside that older process, who had its allocator there.
    fork: Option<(ProcessId, Whose)>,
    /// What the driver gave it at the last sample. When that changes, each device is asked whether it is in use now.
    nvml_memory: NvmlMemory,
}

impl Target {
    pub(super) fn new() -> Self {
        Self {
            found: None,
            last: Err(AllocatorUnreadable::NotYet),
            was_told: false,
            tears: 0,
            hands_out: false,
            due: Moment(0),
            wait: 0,
        }
    }

    /// Looks at it, and says what is new. Where its allocator is, is looked for while there are `searches` left.
    pub(super) fn look(
        &mut self,
        request: ReadRequest,
        now: Moment,
        searches: &mut u32,
        scratch: &mut Scratch,
    ) -> Option<&Outcome> {
        if let Some(found) = &mut self.found {
            match found.sample(request.process, scratch) {
                Sample::Whole { has_moved } => {
                    self.tears = 0;
                    let before = self.last.as_ref().ok();
                    self.hands_out =
                        self.hands_out || has_moved && before.is_some_and(|it| found.books.hands_out(&it.devices));
                    let whose = if self.hands_out { Whose::Own } else { found.whose(request.process.id, scratch) };
                    if has_moved || before.is_none_or(|it| it.whose != whose) {
                        self.last = Ok(Said { devices: found.books.stats().into(), whose });
                        self.was_told = false;
                    }
                }
                Sample::Torn | Sample::Held if self.tears < TEARS => self.tears += 1,
                // It allocates whenever one looks: near its end, perhaps.
                Sample::Held => self.is(Err(AllocatorUnreadable::NotYet)),
                // It was stopped while it wrote, or is not what it looked like.
                Sample::Torn => self.is(Err(AllocatorUnreadable::Implausible)),
                // It runs another program since, or has ended.
                Sample::Gone => *self = Self::new(),
            }
        }
        if self.found.is_none() && now >= self.due && *searches > 0 {
            *searches -= 1;
            match Found::look_for(request.process, scratch) {
                Ok((mut found, Sample::Whole { .. })) => {
                    let whose = found.whose(request.process.id, scratch);
                    let last = Ok(Said { devices: found.books.stats().into(), whose });
                    *self = Self { found: Some(found.into()), last, ..Self::new() };
                }
                // Someone changes it, or holds its mutex: the next look says more.
                Ok((found, _)) => *self = Self { found: Some(found.into()), ..Self::new() },
                Err(why) => {
                    self.is(Err(why));
                    self.wait =
                        if why == AllocatorUnreadable::NotYet { SOON } else { (self.wait * 4).clamp(AGAIN, SELDOM) };
                    self.due = now.after(Duration::from_secs(self.wait.into()));
                }
            }
        }
        let is_news = !std::mem::replace(&mut self.was_told, true) || !request.is_known;
        is_news.then_some(&self.last)
    }

    fn is(&mut self, outcome: Outcome) {
        if self.last != outcome {
            (self.last, self.was_told) = (outcome, false);
        }
    }

    /// What it said was not passed on.
    pub(super) fn was_not_heard(&mut self) {
        self.was_told = false;
    }

    /// Whether its allocator was found.
    pub(super) fn is_found(&self) -> bool {
        self.found.is_some()
    }

    /// What holds the process whose PID its memory is read by. Absent while nothing is read so.
    pub(super) fn handle(&self) -> Option<&OwnedFd> {
        self.found.as_ref()?.handle.as_ref()
    }
}

impl Found {
    fn sample(&mut self, process: ListedProcess, scratch: &mut Scratch) -> Sample {
        let asks = match () {
            () if process.nvml_memory != self.nvml_memory => Asks::All,
            // Where the driver does not say what it gave, nothing else tells of a device that is used now.
            () if process.nvml_memory.memory.is_err() => Asks::Half,
            () => Asks::One,
        };
        let read = memory::of(&self.memory);
        let memory = &mut Memory::new(&read);
        let sample = match self.handle {
            Some(_) => {
                let gather = memory::gather(process.id.pid);
                self.books.sample(&mut Memory::new(&read).gathering(&gather), asks, scratch)
            }
            None => self.books.sample(memory, asks, scratch),
        };
        if matches!(sample, Sample::Whole { .. }) {
            self.nvml_memory = process.nvml_memory;
        }
        sample
    }

    fn look_for(
        ListedProcess { id, uid, nvml_memory }: ListedProcess,
        scratch: &mut Scratch,
    ) -> Result<(Self, Sample), AllocatorUnreadable> {
        let why = |error: io::Error| why(&error, uid);
        let memory = File::open(format!("/proc/{}/mem", id.pid)).map_err(why)?;
        let pid = i32::try_from(id.pid).ok().and_then(Pid::from_raw);
        let handle = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let libraries = libraries(id.pid).map_err(why)?;
        // It was there before the files were opened, and is there still: they are its own.
        let mut line = Vec::new();
        let stat = stat::of(id.pid, &mut line).map_err(why)?;
        if Some(stat.start_ticks) != id.start_ticks {
            return Err(AllocatorUnreadable::NotYet);
        }
        let is_forked = stat.is_forked();
        let (books, sample) = search(&memory::of(&memory), libraries, scratch)?;
        let origin = scratch.note_place(&books, id);
        Ok((Self { memory, handle, books, origin, is_forked, fork: None, nvml_memory }, sample))
    }

    /// Whose its figures are, while it was not seen to hand out blocks. Asked once of each older process.
    fn whose(&mut self, id: ProcessId, scratch: &Scratch) -> Whose {
        if !self.is_forked {
            return Whose::Own;
        }
        // Its parent may have ended before anybody looked.
        let Some(older) = scratch.older(self.origin, id) else { return Whose::Unsure };
        let (_, whose) = self.fork.filter(|it| it.0 == older).unwrap_or_else(|| {
            let whose = match fork::was_left_by(older, id) {
                Some(true) => Whose::Left,
                Some(false) => Whose::Own,
                None => Whose::Unsure,
            };
            (older, whose)
        });
        self.fork = Some((older, whose));
        whose
    }
}

/// The allocator behind one of the libraries, and what came of the first sample.
fn search(
    read: &dyn Fn(u64, &mut [u8]) -> bool,
    libraries: Vec<u64>,
    scratch: &mut Scratch,
) -> Result<(Books, Sample), AllocatorUnreadable> {
    let mut reason = AllocatorUnreadable::NoPytorch;
    for base in libraries {
        let memory = &mut Memory::new(read);
        let books = find::find(memory, base).map(Books::of);
        reason = match books.map(|mut books| (books.sample(memory, Asks::All, scratch), books)) {
            Ok((sample @ (Sample::Whole { .. } | Sample::Torn | Sample::Held), books)) => return Ok((books, sample)),
            Ok(_) | Err(Absent::Nothing) => AllocatorUnreadable::NotYet,
            Err(Absent::Symbol) => AllocatorUnreadable::OldPytorch,
            Err(Absent::Other(Other::Async)) => AllocatorUnreadable::CudaMallocAsync,
            Err(Absent::Other(Other::Pluggable)) => AllocatorUnreadable::Pluggable,
        };
    }
    Err(reason)
}

/// Where the process has PyTorch's CUDA library: in torch's own words, `libc10_cuda.so`.
fn libraries(pid: u32) -> io::Result<Vec<u64>> {
    const MOST: usize = 4;
    let mut maps = BufReader::with_capacity(32 << 10, File::open(format!("/proc/{pid}/maps"))?.take(MAPS));
    let mut line = Vec::new();
    let mut found = Vec::new();
    while found.len() < MOST && maps.read_until(b'\n', &mut line)? > 0 {
        found.extend(library(&line));
        line.clear();
    }
    Ok(found)
}

/// The address in a line of `maps`, when the library begins there.
fn library(line: &[u8]) -> Option<u64> {
    // 7f12a0000000-7f12a0010000 r--p 00000000 08:01 4711       /env/torch/lib/libc10_cuda.so
    let path = &line[line.iter().position(|byte| *byte == b'/')?..];
    let name = path.rsplit(|byte| *byte == b'/').next()?;
    // Tools that bundle libraries put a hash in the name.
    let rest = name.strip_prefix(b"libc10_cuda")?;
    if !rest.starts_with(b".so") && !rest.starts_with(b"-") {
        return None;
    }
    let mut words = str::from_utf8(&line[..line.len() - path.len()]).ok()?.split_ascii_whitespace();
    let (addresses, offset) = (words.next()?, words.nth(1)?);
    let is_start = u64::from_str_radix(offset, 16).ok()? == 0;
    let start = u64::from_str_radix(addresses.split('-').next()?, 16).ok()?;
    is_start.then_some(start)
}

/// Why the kernel does not let us look.
fn why(error: &io::Error, uid: Reading<u32>) -> AllocatorUnreadable {
    if error.kind() != io::ErrorKind::PermissionDenied {
        // It has ended: it is not in the next pass.
        return AllocatorUnreadable::NotYet;
    }
    let ours = geteuid();
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    match uid {
        Ok(uid) if uid != ours.as_raw() && !ours.is_root() => AllocatorUnreadable::OtherUser,
        _ if scope.is_ok_and(|it| it.trim() != "0") && !ours.is_root() => AllocatorUnreadable::PtraceScope,
        _ => AllocatorUnreadable::Protected,
    }
}
