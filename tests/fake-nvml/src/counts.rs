//! Counts calls per function, in a file that all processes share and that outlives them.
//!
//! The file that `$FAKE_NVML_COUNTS` names has 256 records of 64 bytes:
//!
//! ```text
//! 0        48       56       64
//! | name   | hash   | count  |     name: NUL-padded, empty in unused records; hash, count: u64, little endian
//! ```
//!
//! No process waits for another: one that is stopped stops no other.

use std::{
    collections::BTreeMap,
    env,
    fs::{self, OpenOptions},
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::Path,
    ptr, slice,
    sync::{
        OnceLock,
        atomic::{AtomicU8, AtomicU64, Ordering::Relaxed},
    },
};

use rustix::mm::{MapFlags, ProtFlags, mmap};

const RECORDS: usize = 256;

#[repr(C)]
struct Record {
    name: [AtomicU8; 48],
    /// The hash of the name. The process that changes it from 0 has claimed the record.
    hash: AtomicU64,
    count: AtomicU64,
}

struct Table(&'static [Record]);

/// The counter of a function; `None` when `$FAKE_NVML_COUNTS` is not set.
pub fn counter(name: &str) -> Option<&'static AtomicU64> {
    static TABLE: OnceLock<Option<Table>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let path = env::var_os("FAKE_NVML_COUNTS")?;
        Table::open(Path::new(&path))
            .inspect_err(|error| {
                eprintln!("fake-nvml: cannot count in {}: {error}", path.display())
            })
            .ok()
    });
    table.as_ref()?.claim(name)
}

impl Table {
    fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        let length = RECORDS * size_of::<Record>();
        file.set_len(length as u64)?;
        // SAFETY: a new mapping of its own, never unmapped, and only ever accessed atomically.
        let records = unsafe {
            let base = mmap(
                ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &file,
                0,
            )?;
            slice::from_raw_parts(base.cast(), RECORDS)
        };
        Ok(Self(records))
    }

    /// The record of this name, or the first unused one.
    fn claim(&self, name: &str) -> Option<&'static AtomicU64> {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let hash = hasher.finish();
        let found = self.0.iter().find(|record| {
            match record.hash.compare_exchange(0, hash, Relaxed, Relaxed) {
                Ok(_) => {
                    record
                        .name
                        .iter()
                        .zip(name.bytes())
                        .for_each(|(to, from)| to.store(from, Relaxed));
                    true
                }
                Err(claimed) => claimed == hash,
            }
        });
        found.map(|record| &record.count)
    }
}

fn text(padded: &[u8]) -> String {
    padded
        .iter()
        .take_while(|byte| **byte != 0)
        .map(|byte| char::from(*byte))
        .collect()
}

/// Reads a file of counts: the number of calls of each function, of all processes together.
///
/// # Errors
///
/// When the file cannot be read.
pub fn read(path: impl AsRef<Path>) -> io::Result<BTreeMap<String, u64>> {
    let bytes = fs::read(path)?;
    let counts = bytes
        .chunks_exact(size_of::<Record>())
        .filter_map(|record| {
            let (name_and_hash, count) = record.split_last_chunk::<8>()?;
            let (name, _) = name_and_hash.split_last_chunk::<8>()?;
            Some((text(name), u64::from_le_bytes(*count))).filter(|(name, _)| !name.is_empty())
        });
    Ok(counts.collect())
}
