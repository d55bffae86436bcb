//! Finds a symbol of a library in the memory of the process that loaded it.
//!
//! Uses what the dynamic linker needs: program headers, the dynamic section, and the hash table of
//! names. So the file of the library is not opened: it may be in a container, deleted, or on a
//! server that hangs. About ten reads suffice for a library of any size; a crate that parses ELF
//! files would need the whole file. Tables are read in pieces, since every library of a process may
//! be searched.

use super::memory::{Memory, PAGE, word};

// Constants of the System V ABI.
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
/// The `st_info` of a global object.
const GLOBAL_OBJECT: u8 = 1 << 4 | 1;

/// Limits of the tables that are searched, since the memory may be forged.
const MOST_HEADERS: usize = 64;
const MOST_PIECES: usize = 32;
const MOST_SYMBOLS: u32 = 256;
/// The size of a program header.
const HEADER: usize = 56;
/// The size of an entry of the dynamic section, and of the pieces in which the section is read.
const ENTRY: usize = 16;
const PIECE: usize = 16 * ENTRY;

fn half(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

fn number(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

/// Returns the address of an eight-byte object that the library at `base` exports under this name.
/// `None` when there is none, or the memory is no such library.
pub(super) fn find(memory: &mut Memory<'_>, base: u64, name: &str) -> Option<u64> {
    let library = LoadedLibrary::read(memory, base)?;
    let tables = library.read_symbol_tables(memory)?;
    let symbol = tables.find(memory, name)?;
    let is_object = symbol[4] == GLOBAL_OBJECT && word(&symbol, 16)? == 8;
    if is_object {
        library.shift.checked_add(word(&symbol, 8)?)
    } else {
        None
    }
}

struct LoadedLibrary {
    base: u64,
    /// The difference between an address in memory and the same address in the file.
    shift: u64,
    /// The address of the dynamic section.
    dynamic: u64,
}

impl LoadedLibrary {
    /// Reads the program headers of the library at `base`.
    fn read(memory: &mut Memory<'_>, base: u64) -> Option<Self> {
        let header = memory.bytes::<64>(base)?;
        // ELFCLASS64, and the byte order of this machine.
        let order = if cfg!(target_endian = "little") { 1 } else { 2 };
        if !header.starts_with(b"\x7fELF") || header[4..6] != [2, order] {
            return None;
        }
        let (headers, size, count) = (
            word(&header, 0x20)?,
            half(&header, 0x36)?,
            half(&header, 0x38)?,
        );
        let (mut first, mut dynamic) = (None, None);
        let mut table = [0; HEADER * MOST_HEADERS];
        let table = table
            .get_mut(..HEADER * usize::from(count))
            .filter(|_| usize::from(size) == HEADER)?;
        memory.read(base.checked_add(headers)?, table)?;
        for header in table.as_chunks::<HEADER>().0 {
            match number(header, 0)? {
                PT_LOAD if first.is_none() => first = word(header, 16),
                PT_DYNAMIC => dynamic = word(header, 16),
                _ => {}
            }
        }
        // The segment with the file's address `first` was loaded at `base`.
        let shift = base.checked_sub(first? & !0xfff)?;
        Some(Self {
            base,
            shift,
            dynamic: shift.checked_add(dynamic?)?,
        })
    }

    /// Reads the addresses of the tables of symbols from the dynamic section.
    fn read_symbol_tables(&self, memory: &mut Memory<'_>) -> Option<SymbolTables> {
        let mut tables = [None; 3];
        let mut at = self.dynamic;
        'section: for _ in 0..MOST_PIECES {
            // The page after the section may not be mapped.
            let rest_of_page = PAGE - usize::try_from(at % PAGE as u64).ok()?;
            let mut piece = [0; PIECE];
            let piece = &mut piece[..(rest_of_page / ENTRY * ENTRY).clamp(ENTRY, PIECE)];
            memory.read(at, piece)?;
            at = at.checked_add(piece.len() as u64)?;
            for entry in piece.as_chunks::<ENTRY>().0 {
                let value = word(entry, 8)?;
                // Some dynamic linkers replace the file's addresses by real ones.
                let address = || {
                    if value >= self.base {
                        Some(value)
                    } else {
                        self.shift.checked_add(value)
                    }
                };
                match word(entry, 0)? {
                    0 => break 'section,
                    DT_STRTAB => tables[0] = Some(address()?),
                    DT_SYMTAB => tables[1] = Some(address()?),
                    DT_GNU_HASH => tables[2] = Some(address()?),
                    _ => {}
                }
            }
        }
        let [Some(names), Some(symbols), Some(hashes)] = tables else {
            return None;
        };
        Some(SymbolTables {
            names,
            symbols,
            hashes,
        })
    }
}

/// The addresses of the tables of symbols.
struct SymbolTables {
    names: u64,
    symbols: u64,
    hashes: u64,
}

impl SymbolTables {
    /// Returns the entry of the symbol with this name.
    fn find(&self, memory: &mut Memory<'_>, name: &str) -> Option<[u8; 24]> {
        // The table has a header, a Bloom filter, buckets, then one word for each symbol: its hash,
        // with the last bit set at the end of a bucket.
        let header = memory.bytes::<16>(self.hashes)?;
        let (buckets, skipped, filter) = (
            number(&header, 0)?,
            number(&header, 4)?,
            number(&header, 8)?,
        );
        let buckets_at = self.hashes.checked_add(16 + 8 * u64::from(filter))?;
        let chains_at = buckets_at.checked_add(4 * u64::from(buckets))?;
        let hash = hash(name);
        let bucket = hash.checked_rem(buckets)?;
        let first = memory.bytes(buckets_at.checked_add(4 * u64::from(bucket))?)?;
        let mut at = u32::from_ne_bytes(first);
        for _ in 0..MOST_SYMBOLS {
            let place = u64::from(at.checked_sub(skipped)?);
            let known = u32::from_ne_bytes(memory.bytes(chains_at.checked_add(4 * place)?)?);
            if known | 1 == hash | 1 {
                let symbol = memory.bytes::<24>(self.symbols.checked_add(24 * u64::from(at))?)?;
                let name_at = self.names.checked_add(number(&symbol, 0)?.into())?;
                if memory.has_text(name_at, name) {
                    return Some(symbol);
                }
            }
            if known & 1 == 1 {
                return None;
            }
            at = at.checked_add(1)?;
        }
        None
    }
}

/// The hash function of `DT_GNU_HASH` tables, by D. J. Bernstein.
fn hash(name: &str) -> u32 {
    name.bytes().fold(5381, |hash: u32, byte| {
        hash.wrapping_mul(33).wrapping_add(byte.into())
    })
}
