//! Counts calls per function, in a file that all processes share and that outlives them.
//!
//! The file that `$FAKE_NVML_COUNTS` names has 256 records of 64 bytes:
//!
//! ```text
//! 0        56       64
//! | name   | count  |     name: NUL-padded, empty in unused records; count: u64, little endian
//! ```

use std::{
    collections::BTreeMap,
    env,
    fs::{self, File, OpenOptions},
    io,
    path::Path,
    ptr, slice,
    sync::{
        OnceLock,
        atomic::{AtomicU8, AtomicU64, Ordering::Relaxed},
    },
};

use rustix::{
    fs::{FlockOperation, flock},
    mm::{MapFlags, ProtFlags, mmap},
};

const RECORDS: usize = 256;

#[repr(C)]
struct Record {
    name: [AtomicU8; 56],
    count: AtomicU64,
}

struct Table {
    file: File,
    records: &'static [Record],
}

/// The counter of a function; `None` when `$FAKE_NVML_COUNTS` is not set.
pub fn counter(name: &str) -> Option<&'static AtomicU64> {
    static TABLE: OnceLock<Option<Table>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let path = env::var_os("FAKE_NVML_COUNTS")?;
        Table::open(Path::new(&path))
            .inspect_err(|error| eprintln!("fake-nvml: cannot count in {}: {error}", path.display()))
            .ok()
    });
    table.as_ref()?.claim(name)
}

impl Table {
    fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let length = RECORDS * size_of::<Record>();
        file.set_len(length as u64)?;
        // SAFETY: a new mapping of its own, never unmapped, and only ever accessed atomically.
        let records = unsafe {
            let base = mmap(ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)?;
            slice::from_raw_parts(base.cast(), RECORDS)
        };
        Ok(Self { file, records })
    }

    /// The record with this name, or the first unused one.
    fn claim(&self, name: &str) -> Option<&'static AtomicU64> {
        // Other processes claim records too, and without the lock two could claim the same one. On a file system without locks,
        // the counts may be wrong.
        let _unlocked = flock(&self.file, FlockOperation::LockExclusive);
        let found = self.records.iter().find_map(|record| {
            let found = record.name();
            if found.is_empty() {
                record.name.iter().zip(name.bytes()).for_each(|(to, from)| to.store(from, Relaxed));
            }
            (found.is_empty() || found == name).then_some(&record.count)
        });
        let _still_locked = flock(&self.file, FlockOperation::Unlock);
        found
    }
}

impl Record {
    fn name(&self) -> String {
        text(&self.name.each_ref().map(|byte| byte.load(Relaxed)))
    }
}

fn text(padded: &[u8]) -> String {
    padded.iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte)).collect()
}

/// Reads a file of counts: the number of calls of each function, of all processes together.
///
/// # Errors
///
/// When the file cannot be read.
pub fn read(path: impl AsRef<Path>) -> io::Result<BTreeMap<String, u64>> {
    let bytes = fs::read(path)?;
    let counts = bytes.chunks_exact(size_of::<Record>()).filter_map(|record| {
        let (name, count) = record.split_last_chunk::<8>()?;
        Some((text(name), u64::from_le_bytes(*count))).filter(|(name, _)| !name.is_empty())
    });
    Ok(counts.collect())
}
