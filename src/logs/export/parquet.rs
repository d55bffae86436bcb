//! Writes Parquet: a table by columns, which pandas, `DuckDB` and Spark read without parsing text.
//!
//! The crate `parquet` would add 50 s of CPU time to the build and 0.8 MiB to the program, for an
//! encoder of which this table needs little: plain values, one page for each column of a group of
//! rows, compressed by zstd. The format is <https://parquet.apache.org/docs/file-format/>; a script
//! reads the files with `DuckDB` and pandas.

use std::io::{self, Write};

use super::table::{ColumnKind, ExportCell, ExportColumn};

/// The rows of a group: they are in memory until they are written.
const GROUP_ROWS: usize = 65_536;

const MAGIC: &[u8] = b"PAR1";
const ZSTD_LEVEL: i32 = 3;

// Numbers of the format.
const CODEC_ZSTD: u64 = 6;
const ENCODING_PLAIN: u64 = 0;
const ENCODING_RLE: u64 = 3;
const OPTIONAL: u64 = 1;

/// Writes the rows of a table.
pub(super) struct ParquetWriter<W> {
    out: W,
    written: u64,
    columns: Vec<ExportColumn>,
    /// The cells of the rows that are not written yet, by column.
    cells: Vec<Vec<ExportCell>>,
    groups: Vec<RowGroup>,
}

struct RowGroup {
    rows: usize,
    chunks: Vec<ColumnChunk>,
}

/// The place of a column of a group in the file.
struct ColumnChunk {
    offset: u64,
    compressed: u64,
    uncompressed: u64,
}

impl<W: Write> ParquetWriter<W> {
    pub(super) fn new(mut out: W, columns: Vec<ExportColumn>) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        let cells = columns.iter().map(|_| Vec::new()).collect();
        Ok(Self {
            out,
            written: MAGIC.len() as u64,
            columns,
            cells,
            groups: Vec::new(),
        })
    }

    /// Adds a row, which has a cell for each column.
    pub(super) fn row(&mut self, row: Vec<ExportCell>) -> io::Result<()> {
        for (column, cell) in self.cells.iter_mut().zip(row) {
            column.push(cell);
        }
        if self
            .cells
            .first()
            .is_some_and(|column| column.len() >= GROUP_ROWS)
        {
            self.write_group()
        } else {
            Ok(())
        }
    }

    fn write_group(&mut self) -> io::Result<()> {
        let rows = self.cells.first().map_or(0, Vec::len);
        if rows == 0 {
            return Ok(());
        }
        let mut chunks = Vec::new();
        for number in 0..self.columns.len() {
            let page = page_content(
                &std::mem::take(&mut self.cells[number]),
                self.columns[number].kind,
            );
            let compressed = zstd::bulk::compress(&page, ZSTD_LEVEL)?;
            let header = page_header(rows, page.len(), compressed.len());
            self.out.write_all(&header)?;
            self.out.write_all(&compressed)?;
            chunks.push(ColumnChunk {
                offset: self.written,
                compressed: (header.len() + compressed.len()) as u64,
                uncompressed: (header.len() + page.len()) as u64,
            });
            self.written += (header.len() + compressed.len()) as u64;
        }
        self.groups.push(RowGroup { rows, chunks });
        Ok(())
    }

    /// Writes the rest and the footer. Returns the writer below.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.write_group()?;
        let footer = footer(&self.columns, &self.groups);
        self.out.write_all(&footer)?;
        self.out.write_all(
            &u32::try_from(footer.len())
                .map_err(io::Error::other)?
                .to_le_bytes(),
        )?;
        self.out.write_all(MAGIC)?;
        Ok(self.out)
    }
}

/// Returns the content of a page: which cells have a value, then the values.
fn page_content(cells: &[ExportCell], kind: ColumnKind) -> Vec<u8> {
    let mut levels = Vec::new();
    for run in cells.chunk_by(|a, b| a.is_empty() == b.is_empty()) {
        write_varint(&mut levels, (run.len() as u64) << 1);
        levels.push(u8::from(run.first().is_some_and(|cell| !cell.is_empty())));
    }
    let mut page = u32::try_from(levels.len())
        .unwrap_or(u32::MAX)
        .to_le_bytes()
        .to_vec();
    page.extend(levels);
    for cell in cells {
        match (cell, kind) {
            (ExportCell::Empty, _) => {}
            (ExportCell::Text(text), _) => {
                page.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
                page.extend(text.as_bytes());
            }
            (ExportCell::Integer(number), _) => page.extend(number.to_le_bytes()),
            (ExportCell::Float(number), _) => page.extend(number.to_le_bytes()),
        }
    }
    page
}

/// The number of the type in the format, and that of its meaning.
fn type_numbers(kind: ColumnKind) -> (u64, Option<u64>) {
    const INT64: u64 = 2;
    const FLOAT: u64 = 4;
    const BYTE_ARRAY: u64 = 6;
    const UTF8: u64 = 0;
    const TIMESTAMP_MILLIS: u64 = 9;
    match kind {
        ColumnKind::Time => (INT64, Some(TIMESTAMP_MILLIS)),
        ColumnKind::Integer => (INT64, None),
        ColumnKind::Float => (FLOAT, None),
        ColumnKind::Text => (BYTE_ARRAY, Some(UTF8)),
    }
}

fn page_header(rows: usize, uncompressed: usize, compressed: usize) -> Vec<u8> {
    let mut header = CompactStruct::default();
    header.int32(1, 0);
    header.int32(2, uncompressed as u64);
    header.int32(3, compressed as u64);
    header.structure(5, |data| {
        data.int32(1, rows as u64);
        data.int32(2, ENCODING_PLAIN);
        data.int32(3, ENCODING_RLE);
        data.int32(4, ENCODING_RLE);
    });
    header.finish()
}

fn footer(columns: &[ExportColumn], groups: &[RowGroup]) -> Vec<u8> {
    let rows: usize = groups.iter().map(|group| group.rows).sum();
    let mut footer = CompactStruct::default();
    footer.int32(1, 1);
    footer.list(2, CompactStruct::STRUCT, columns.len() + 1, |list| {
        let mut root = CompactStruct::default();
        root.text(4, "table");
        root.int32(5, columns.len() as u64);
        list.extend(root.finish());
        for column in columns {
            let (number, meaning) = type_numbers(column.kind);
            let mut element = CompactStruct::default();
            element.int32(1, number);
            element.int32(3, OPTIONAL);
            element.text(4, column.name);
            if let Some(meaning) = meaning {
                element.int32(6, meaning);
            }
            list.extend(element.finish());
        }
    });
    footer.int64(3, rows as u64);
    footer.list(4, CompactStruct::STRUCT, groups.len(), |list| {
        for group in groups {
            list.extend(row_group(columns, group));
        }
    });
    footer.text(6, concat!("gputop version ", env!("CARGO_PKG_VERSION")));
    footer.finish()
}

fn row_group(columns: &[ExportColumn], group: &RowGroup) -> Vec<u8> {
    let mut written = CompactStruct::default();
    written.list(1, CompactStruct::STRUCT, columns.len(), |list| {
        for (column, chunk) in columns.iter().zip(&group.chunks) {
            let mut place = CompactStruct::default();
            place.int64(2, chunk.offset);
            place.structure(3, |data| {
                data.int32(1, type_numbers(column.kind).0);
                data.list(2, CompactStruct::INT32, 2, |list| {
                    write_signed(list, ENCODING_PLAIN);
                    write_signed(list, ENCODING_RLE);
                });
                data.list(3, CompactStruct::TEXT, 1, |list| {
                    write_text(list, column.name);
                });
                data.int32(4, CODEC_ZSTD);
                data.int64(5, group.rows as u64);
                data.int64(6, chunk.uncompressed);
                data.int64(7, chunk.compressed);
                data.int64(9, chunk.offset);
            });
            list.extend(place.finish());
        }
    });
    written.int64(2, group.chunks.iter().map(|chunk| chunk.uncompressed).sum());
    written.int64(3, group.rows as u64);
    written.finish()
}

/// A structure in Thrift's compact protocol, which the metadata has. Fields are written in the
/// order of their numbers.
#[derive(Default)]
struct CompactStruct {
    bytes: Vec<u8>,
    last: u8,
}

impl CompactStruct {
    const INT32: u8 = 5;
    const INT64: u8 = 6;
    const TEXT: u8 = 8;
    const LIST: u8 = 9;
    const STRUCT: u8 = 12;

    fn field(&mut self, number: u8, kind: u8) {
        self.bytes.push((number - self.last) << 4 | kind);
        self.last = number;
    }

    fn int32(&mut self, number: u8, value: u64) {
        self.field(number, Self::INT32);
        write_signed(&mut self.bytes, value);
    }

    fn int64(&mut self, number: u8, value: u64) {
        self.field(number, Self::INT64);
        write_signed(&mut self.bytes, value);
    }

    fn text(&mut self, number: u8, text: &str) {
        self.field(number, Self::TEXT);
        write_text(&mut self.bytes, text);
    }

    fn list(&mut self, number: u8, kind: u8, length: usize, write: impl FnOnce(&mut Vec<u8>)) {
        self.field(number, Self::LIST);
        match u8::try_from(length) {
            Ok(length @ 0..15) => self.bytes.push(length << 4 | kind),
            _ => {
                self.bytes.push(0xF0 | kind);
                write_varint(&mut self.bytes, length as u64);
            }
        }
        write(&mut self.bytes);
    }

    fn structure(&mut self, number: u8, write: impl FnOnce(&mut Self)) {
        self.field(number, Self::STRUCT);
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes.extend(inner.finish());
    }

    fn finish(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }
}

/// Writes a number in groups of seven bits.
fn write_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
}

/// Writes a signed number that is not negative: the lowest bit is the sign.
fn write_signed(bytes: &mut Vec<u8>, value: u64) {
    write_varint(bytes, value << 1);
}

fn write_text(bytes: &mut Vec<u8>, text: &str) {
    write_varint(bytes, text.len() as u64);
    bytes.extend(text.as_bytes());
}
