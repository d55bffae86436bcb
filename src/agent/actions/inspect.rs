//! Reads details of one process when its page is open: the parts that no snapshot contains.
//!
//! The environment and the memory maps can be read only under a lock of the process, which the
//! process keeps while it hangs in the driver. So each inspection has a thread, and a second one
//! for these parts. Parts that take longer than a second are left out, and the reply says so.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use super::ReplySender;
use super::refusal::Refusal;
use crate::agent::procfs::{Environment, files, stat};
use crate::agent::worker::call_in_time;
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::protocol::reply::{Inspection, Outcome, Reply};
use crate::protocol::snapshot::ProcessId;

/// The inspections in progress. Dropping the `Inspector` does not end them.
pub(super) struct Inspector {
    replies: ReplySender,
    /// The processes under inspection. A token lives until no thread reads its process any more.
    running: BTreeMap<ProcessId, Weak<()>>,
}

impl Inspector {
    /// The most inspections in progress. One that hangs continues until its process releases the
    /// lock.
    const MOST_RUNNING: usize = 8;

    pub(super) fn new(replies: ReplySender) -> Self {
        Self {
            replies,
            running: BTreeMap::new(),
        }
    }

    pub(super) fn begin(&mut self, process: ProcessId) {
        self.running.retain(|_, token| token.strong_count() > 0);
        let (pid, count) = (process.pid, self.running.len());
        if self.running.contains_key(&process) {
            let reason =
                format!("{pid} was asked before and has not answered: it may hang in the kernel");
            return self.refuse(process, reason);
        }
        if count >= Self::MOST_RUNNING {
            return self.refuse(
                process,
                format!("{count} processes have not answered yet: ask for {pid} later"),
            );
        }
        let token = Arc::new(());
        self.running.insert(process, Arc::downgrade(&token));
        let replies = self.replies.clone();
        let started = thread::Builder::new()
            .name("inspect".to_owned())
            .spawn(move || {
                let outcome = match inspect(process, token) {
                    Some(inspection) => Outcome::Inspected(Box::new(inspection)),
                    None => Outcome::NotInspected {
                        reason: Refusal::Ended(pid).to_string().into(),
                    },
                };
                replies(Reply { process, outcome });
            });
        if let Err(error) = started {
            self.refuse(
                process,
                format!("cannot start a thread to look at {pid}: {error}"),
            );
        }
    }

    fn refuse(&self, process: ProcessId, reason: String) {
        (self.replies)(Reply {
            process,
            outcome: Outcome::NotInspected {
                reason: reason.into(),
            },
        });
    }
}

/// How long reading the environment and the memory maps may take.
const LOCK_LIMIT: Duration = Duration::from_secs(1);

const LONGEST_FILE: usize = 256 << 10;

const MOST_FILES: usize = 1024;

/// The most ancestors that are listed: parents that change while they are read could form a circle.
const MOST_ANCESTORS: usize = 64;

/// Inspects a process. `None` when it has ended. The token is dropped when no thread reads the
/// process any more.
fn inspect(process: ProcessId, token: Arc<()>) -> Option<Inspection> {
    let directory = Arc::new(ProcessDirectory::open(process.pid).ok()?);
    let line = directory.read("stat")?;
    let stat = stat::parse(&line)?;
    if process.start_ticks != Some(stat.start_ticks) {
        return None;
    }
    let mut trouble = Vec::new();
    let mut files = directory.files();
    if let Some(files) = files.as_mut().filter(|files| files.len() > MOST_FILES) {
        files.truncate(MOST_FILES);
        trouble.push(format!("only {MOST_FILES} of its files are named"));
    }
    let locked = directory.clone();
    let in_time = call_in_time("inspect-maps", LOCK_LIMIT, move || {
        let parts = (locked.read("environ"), locked.read("smaps_rollup"));
        drop(token);
        parts
    });
    let (environment, maps) = in_time.unwrap_or_else(|| {
        trouble
            .push("its environment and memory do not answer: it may hang in the kernel".to_owned());
        (None, None)
    });
    if environment
        .as_ref()
        .is_some_and(|environment| environment.len() > LONGEST_FILE)
    {
        trouble.push("its environment is longer than 256 KiB and cut off".to_owned());
    }
    Some(Inspection {
        ancestors: ancestors(stat.parent),
        cwd: link(&directory.path.join("cwd")),
        exe: link(&directory.path.join("exe")),
        environment: environment.map(|environment| Environment::shown_variables(&environment)),
        limits: directory.read("limits").map(|limits| parse_limits(&limits)),
        files,
        cgroup: directory
            .read("cgroup")
            .and_then(|groups| split(&groups, b'\n').pop()),
        pss: maps.and_then(|maps| parse_pss(&maps)),
        trouble: (!trouble.is_empty()).then(|| trouble.join("; ").into()),
    })
}

/// `/proc/PID`, kept open: it stays the directory of that process even when another process gets
/// the PID.
struct ProcessDirectory {
    path: PathBuf,
    _descriptor: OwnedFd,
}

impl ProcessDirectory {
    fn open(pid: u32) -> io::Result<Self> {
        let descriptor = files::open_directory(format!("/proc/{pid}").as_ref())?;
        Ok(Self {
            path: format!("/proc/self/fd/{}", descriptor.as_raw_fd()).into(),
            _descriptor: descriptor,
        })
    }

    /// Reads a file up to [`LONGEST_FILE`], and one byte more if there is more.
    fn read(&self, name: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(self.path.join(name))
            .ok()?
            .take(LONGEST_FILE as u64 + 1)
            .read_to_end(&mut bytes)
            .ok()?;
        Some(bytes)
    }

    /// Returns up to [`MOST_FILES`] open files, sorted by descriptor, and one more if there are
    /// more. `None` when they cannot be listed.
    fn files(&self) -> Option<Vec<(u32, Text)>> {
        let file = |entry: io::Result<fs::DirEntry>| {
            let entry = entry.ok()?;
            // The file may have been closed meanwhile.
            Some((
                entry.file_name().to_str()?.parse().ok()?,
                link(&entry.path())?,
            ))
        };
        let entries = fs::read_dir(self.path.join("fd")).ok()?;
        let mut files: Vec<_> = entries.filter_map(file).take(MOST_FILES + 1).collect();
        files.sort_unstable_by_key(|(number, _)| *number);
        Some(files)
    }
}

fn link(path: &Path) -> Option<Text> {
    Some(Text::new(
        fs::read_link(path).ok()?.as_os_str().as_encoded_bytes(),
    ))
}

/// Splits at most [`LONGEST_FILE`] bytes at each `end`.
fn split(bytes: &[u8], end: u8) -> Vec<Text> {
    let bytes = &bytes[..bytes.len().min(LONGEST_FILE)];
    bytes
        .split(|byte| *byte == end)
        .filter(|line| !line.is_empty())
        .map(Text::new)
        .collect()
}

/// Parses the line `Pss:   1234 kB` of `smaps_rollup`.
fn parse_pss(maps: &[u8]) -> Option<Bytes> {
    let line = maps
        .split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(b"Pss:"))?;
    let kib = std::str::from_utf8(line)
        .ok()?
        .split_ascii_whitespace()
        .next()?
        .parse()
        .ok()?;
    Some(Bytes::from_kib(kib))
}

/// Parses the table of limits: name, soft limit, hard limit. Names contain single spaces.
fn parse_limits(limits: &[u8]) -> Vec<(Text, Text, Text)> {
    let row = |line: &str| {
        let (name, values) = line.split_once("  ")?;
        let mut values = values.split_ascii_whitespace();
        Some((name.into(), values.next()?.into(), values.next()?.into()))
    };
    String::from_utf8_lossy(limits)
        .lines()
        .skip(1)
        .filter_map(row)
        .collect()
}

fn ancestors(parent: u32) -> Vec<(u32, Text)> {
    let (mut ancestors, mut line, mut next) = (Vec::new(), Vec::new(), parent);
    while next != 0
        && ancestors.len() < MOST_ANCESTORS
        && let Ok(stat) = stat::read_process(next, &mut line)
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
    fn limits_are_split_at_their_columns() {
        let limits =
            b"Limit                     Soft Limit           Hard Limit           Units     \n\
            Max cpu time              unlimited            unlimited            seconds   \n\
            Max open files            1024                 524288               files     \n\
            Max nice priority         0                    0                    \n";
        let expected = [
            ("Max cpu time", "unlimited", "unlimited"),
            ("Max open files", "1024", "524288"),
            ("Max nice priority", "0", "0"),
        ];
        assert_eq!(
            parse_limits(limits),
            expected.map(|(name, soft, hard)| (name.into(), soft.into(), hard.into()))
        );
        assert_eq!(parse_limits(b"\xff\n\n"), []);
    }

    #[test]
    fn memory_is_read_from_its_line() {
        assert_eq!(
            parse_pss(b"55d0-7ffc ---p 00000000 00:00 0 [rollup]\nRss:  1 kB\nPss:     1536 kB\n"),
            Some(Bytes(1_572_864))
        );
        assert_eq!(parse_pss(b"Pss_Anon: 1 kB\n"), None);
    }

    #[test]
    fn a_process_that_hangs_is_not_inspected_again() {
        let (sender, replies) = std::sync::mpsc::channel();
        let mut inspector = Inspector::new(Arc::new(move |reply| {
            sender.send(reply).expect("the test waits");
        }));
        // A thread that hangs in the kernel keeps its token; here the test does.
        let hanging: Vec<Arc<()>> = (0..Inspector::MOST_RUNNING).map(|_| Arc::new(())).collect();
        let ids = (1..).map(|pid| ProcessId {
            pid,
            start_ticks: Some(0),
        });
        inspector.running = ids.zip(hanging.iter().map(Arc::downgrade)).collect();
        let mut inspect = |pid| {
            inspector.begin(ProcessId {
                pid,
                start_ticks: Some(0),
            });
            match replies.recv().expect("an answer").outcome {
                Outcome::NotInspected { reason } => reason,
                other => panic!("{other:?}"),
            }
        };
        assert!(
            inspect(1).as_str().contains("was asked before"),
            "{}",
            inspect(1)
        );
        assert!(
            inspect(99).as_str().contains("ask for 99 later"),
            "{}",
            inspect(99)
        );
        drop(hanging);
        assert!(
            inspect(1).as_str().contains("has already ended"),
            "{}",
            inspect(1)
        );
    }
}
