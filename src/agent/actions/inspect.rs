//! Looks closely at one process, when a person asks: what never travels in the stream.
//!
//! The environment and the memory maps can be read only under a lock of that process, and it keeps
//! that while it hangs in the driver. So each look has a thread of its own, these two parts another,
//! and what does not come within a second is left out, with a word.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak, mpsc};
use std::thread;
use std::time::Duration;

use rustix::fs::{Dir, Mode, OFlags, openat, readlinkat};

use super::ReplySender;
use crate::agent::procfs::stat;
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::protocol::reply::{Inspection, Outcome, Reply};
use crate::protocol::snapshot::ProcessId;

/// Looks that are under way. Dropping this ends none of them.
pub(super) struct Inspector {
    tell: ReplySender,
    /// The processes under inspection, each until its last thread has gone.
    looks: BTreeMap<ProcessId, Weak<()>>,
}

impl Inspector {
    /// Threads that hang stay until their process lets go: there is a limit to them.
    const MOST_LOOKS: usize = 8;

    pub(super) fn new(tell: ReplySender) -> Self {
        Self { tell, looks: BTreeMap::new() }
    }

    /// Looks at that process; the answer comes by itself.
    pub(super) fn begin(&mut self, process: ProcessId) {
        self.looks.retain(|_, look| look.strong_count() > 0);
        let pid = process.pid;
        if self.looks.contains_key(&process) {
            return self
                .refuse(process, format!("{pid} was asked before and has not answered: it may hang in the kernel"));
        }
        if self.looks.len() >= Self::MOST_LOOKS {
            return self
                .refuse(process, format!("{} processes have not answered yet: ask for {pid} later", self.looks.len()));
        }
        let look = Arc::new(());
        self.looks.insert(process, Arc::downgrade(&look));
        let tell = self.tell.clone();
        let started = thread::Builder::new().name("inspect".to_owned()).spawn(move || {
            let outcome = match inspect(process, &look) {
                Ok(inspection) => Outcome::Inspected(Box::new(inspection)),
                Err(error) => Outcome::NotInspected { reason: error.into() },
            };
            // Before the answer: whoever has it may ask again at once.
            drop(look);
            tell(Reply { process, outcome });
        });
        if let Err(error) = started {
            self.refuse(process, format!("cannot start a thread to look at {pid}: {error}"));
        }
    }

    fn refuse(&self, process: ProcessId, reason: String) {
        (self.tell)(Reply { process, outcome: Outcome::NotInspected { reason: reason.into() } });
    }
}

/// The parts that may hang.
struct LockedParts {
    environment: Option<(Vec<Text>, bool)>,
    pss: Option<Bytes>,
}

/// How long the parts that may hang are waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// The most of any file that is read.
const LONGEST_FILE: u64 = 256 << 10;

/// The most open files that are named.
const MOST_FILES: usize = 1024;

/// The most ancestors that are named; a parent that changes meanwhile could make a circle.
const MOST_ANCESTORS: usize = 64;

fn inspect(process: ProcessId, look: &Arc<()>) -> Result<Inspection, String> {
    let ended = || format!("{} has already ended", process.pid);
    let place = Arc::new(ProcessDirectory::of(process.pid).map_err(|_| ended())?);
    // The open directory stays that of one process: once the start ticks are right, all that is
    // read through it is of the process the person asked for.
    let line = place.read("stat").map_err(|_| ended())?;
    let stat = stat::parse(&line).ok_or_else(ended)?;
    if process.start_ticks != Some(stat.start_ticks) {
        return Err(ended());
    }

    let (answer, answered) = mpsc::sync_channel(1);
    let (guarded_place, guarded_look) = (Arc::clone(&place), Arc::clone(look));
    let started = thread::Builder::new().name("inspect-maps".to_owned()).spawn(move || {
        let guarded = LockedParts {
            environment: guarded_place.read("environ").ok().map(|environment| lines_of(&environment, 0)),
            pss: guarded_place.read("smaps_rollup").ok().and_then(|maps| pss(&maps)),
        };
        drop(guarded_look);
        // Nobody waits any more when it took too long.
        let _late: Result<(), mpsc::TrySendError<LockedParts>> = answer.try_send(guarded);
    });

    let files = place.files();
    let mut inspection = Inspection {
        ancestors: ancestors(stat.parent),
        cwd: place.link("cwd"),
        exe: place.link("exe"),
        environment: None,
        limits: place.read("limits").ok().map(|limits| parse_limits(&limits)),
        cgroup: place.read("cgroup").ok().and_then(|groups| lines_of(&groups, b'\n').0.pop()),
        pss: None,
        trouble: None,
        files: None,
    };
    let mut trouble = Vec::new();
    if let Ok((files, is_cut)) = files {
        inspection.files = Some(files);
        if is_cut {
            trouble.push(format!("only {MOST_FILES} of its files are named"));
        }
    }
    match started.map(|_thread| answered.recv_timeout(PATIENCE)) {
        Ok(Ok(LockedParts { environment, pss })) => {
            inspection.pss = pss;
            if let Some((environment, is_cut)) = environment {
                inspection.environment = Some(environment);
                if is_cut {
                    trouble.push("its environment is longer than 256 KiB and cut off".to_owned());
                }
            }
        }
        Ok(Err(_)) => {
            trouble.push("its environment and memory do not answer: it may hang in the kernel".to_owned());
        }
        Err(error) => trouble.push(format!("its environment and memory were not read: {error}")),
    }
    inspection.trouble = (!trouble.is_empty()).then(|| trouble.join("; ").into());
    Ok(inspection)
}

/// `/proc/PID` of one process, kept open.
struct ProcessDirectory(OwnedFd);

impl ProcessDirectory {
    fn of(pid: u32) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(format!("/proc/{pid}"), flags, Mode::empty())?))
    }

    /// A file there, up to [`LONGEST_FILE`] and one byte, by which one sees that there is more.
    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let file = File::from(openat(&self.0, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?);
        let mut bytes = Vec::new();
        file.take(LONGEST_FILE + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn link(&self, name: &str) -> Option<Text> {
        Some(Text::new(readlinkat(&self.0, name, Vec::new()).ok()?.as_bytes()))
    }

    /// Returns the open files of a process, and whether there are more than are named.
    fn files(&self) -> io::Result<(Vec<(u32, Text)>, bool)> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(&self.0, "fd", flags, Mode::empty())?;
        let (mut files, mut is_cut) = (Vec::new(), false);
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            let Some(number) = entry.file_name().to_str().ok().and_then(|name| name.parse().ok()) else { continue };
            if files.len() == MOST_FILES {
                is_cut = true;
                break;
            }
            // It may have been closed meanwhile.
            if let Ok(target) = readlinkat(&folder, entry.file_name(), Vec::new()) {
                files.push((number, Text::new(target.as_bytes())));
            }
        }
        files.sort_unstable_by_key(|(number, _)| *number);
        Ok((files, is_cut))
    }
}

/// The lines that `end` ends, and whether they were cut off. The environment comes sorted by name.
fn lines_of(bytes: &[u8], end: u8) -> (Vec<Text>, bool) {
    let limit = usize::try_from(LONGEST_FILE).unwrap_or(usize::MAX);
    let whole = bytes.get(..limit.min(bytes.len())).unwrap_or(bytes);
    let mut lines: Vec<Text> =
        whole.split(|&byte| byte == end).filter(|line| !line.is_empty()).map(Text::new).collect();
    if end == 0 {
        lines.sort_unstable();
    }
    (lines, bytes.len() > limit)
}

/// `Pss:   1234 kB`.
fn pss(maps: &[u8]) -> Option<Bytes> {
    let line = maps.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"Pss:"))?;
    let kib = std::str::from_utf8(line).ok()?.split_ascii_whitespace().next()?.parse().ok()?;
    Some(Bytes::from_kib(kib))
}

/// Takes the table apart by the columns that its head shows.
fn parse_limits(limits: &[u8]) -> Vec<(Text, Text, Text)> {
    let limits = String::from_utf8_lossy(limits);
    let mut lines = limits.lines();
    let head = lines.next().unwrap_or_default();
    let (Some(soft), Some(hard)) = (head.find("Soft Limit"), head.find("Hard Limit")) else { return Vec::new() };
    let units = head.find("Units").unwrap_or(head.len());
    lines
        .filter_map(|line| {
            let column = |from, to| line.get(from..usize::min(to, line.len())).map(|text| Text::from(text.trim_end()));
            Some((column(0, soft)?, column(soft, hard)?, column(hard, units)?))
        })
        .collect()
}

fn ancestors(parent: u32) -> Vec<(u32, Text)> {
    let (mut ancestors, mut line) = (Vec::new(), Vec::new());
    let mut next = parent;
    while next != 0
        && ancestors.len() < MOST_ANCESTORS
        && let Ok(stat) = stat::of(next, &mut line)
    {
        ancestors.push((next, Text::new(stat.comm)));
        next = stat.parent;
    }
    ancestors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_told_apart_by_their_columns() {
        let limits = b"Limit                     Soft Limit           Hard Limit           Units     \n\
            Max cpu time              unlimited            unlimited            seconds   \n\
            Max open files            1024                 524288               files     \n\
            Max nice priority         0                    0                    \n";
        let expected = [
            ("Max cpu time", "unlimited", "unlimited"),
            ("Max open files", "1024", "524288"),
            ("Max nice priority", "0", "0"),
        ];
        assert_eq!(parse_limits(limits), expected.map(|(name, soft, hard)| (name.into(), soft.into(), hard.into())));
        assert_eq!(parse_limits(b"\xff\n\n"), []);
    }

    #[test]
    fn an_environment_is_sorted_and_cut_at_its_limit() {
        assert_eq!(lines_of(b"PATH=/bin\0A=\x1b[2J\0\0", 0), (vec!["A=\u{FFFD}[2J".into(), "PATH=/bin".into()], false));
        let (lines, is_cut) = lines_of(&b"A=b\0".repeat(1 << 17), 0);
        assert_eq!((lines.len(), is_cut), (1 << 16, true));
    }

    #[test]
    fn memory_is_read_from_its_line() {
        assert_eq!(
            pss(b"55d0-7ffc ---p 00000000 00:00 0 [rollup]\nRss:  1 kB\nPss:     1536 kB\n"),
            Some(Bytes(1_572_864))
        );
        assert_eq!(pss(b"Pss_Anon: 1 kB\n"), None);
    }

    #[test]
    fn who_does_not_answer_is_not_asked_again_and_again() {
        let (sender, replies) = mpsc::channel();
        let mut inspector = Inspector::new(Arc::new(move |reply| sender.send(reply).expect("the test waits")));
        // What hangs in the kernel keeps its token; here the test does.
        let hanging: Vec<Arc<()>> = (0..Inspector::MOST_LOOKS).map(|_| Arc::new(())).collect();
        let ids = (1..).map(|pid| ProcessId { pid, start_ticks: Some(0) });
        inspector.looks = ids.zip(hanging.iter().map(Arc::downgrade)).collect();
        let mut ask = |pid| {
            inspector.begin(ProcessId { pid, start_ticks: Some(0) });
            match replies.recv().expect("an answer").outcome {
                Outcome::NotInspected { reason } => reason,
                other => panic!("{other:?}"),
            }
        };
        assert!(ask(1).as_str().contains("was asked before"), "{}", ask(1));
        assert!(ask(99).as_str().contains("ask for 99 later"), "{}", ask(99));
        drop(hanging);
        assert!(ask(1).as_str().contains("has already ended"), "{}", ask(1));
    }
}
