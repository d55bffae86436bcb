//! Reads logs that gzip, zstd or xz has compressed, up to bounds on memory, size and ratio.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Cursor, ErrorKind, Read};
use std::rc::Rc;

use flate2::read::MultiGzDecoder;
use xz4rust::XzDecoder;
use zstd::stream::read::Decoder;

use crate::base::units::Bytes;

const GZIP: &[u8] = &[0x1F, 0x8B];
pub(super) const ZSTD: &[u8] = &0xFD2F_B528_u32.to_le_bytes();
const XZ: &[u8] = b"\xFD7zXZ\0";
/// Compressions that are not read: the first bytes, and the program that reads them.
const OTHERS: [(&[u8], &str, &str); 3] = [
    (b"BZh", "bzip2", "bzip2 -dc"),
    (b"PK\x03\x04", "zip", "unzip -p"),
    (b"\x04\x22\x4D\x18", "lz4", "lz4 -dc"),
];
/// The number of first bytes that tell a compression.
const MAGIC: usize = 6;

/// The most bytes of earlier text to which a compressed log may refer: those of `zstd --long` and
/// `xz -9`.
const LONGEST_WINDOW: u32 = 1 << 27;
/// The most bytes of text that are read.
const LONGEST_TEXT: u64 = 16 << 30;
/// The most bytes of text for each compressed byte. A log of equal lines has a few hundred.
const LARGEST_RATIO: u64 = 1000;
/// Bytes of text for which the ratio does not count.
const FREE_TEXT: u64 = 64 << 20;

/// A log of which the bytes are text.
pub(super) struct OpenLog {
    pub text: Box<dyn Read>,
    pub is_compressed: bool,
}

/// Opens a log, which may be compressed. `command` is the subcommand that a sentence on another
/// compression names.
pub(super) fn open(mut input: impl Read + 'static, command: &str) -> io::Result<OpenLog> {
    let mut first = Vec::new();
    input.by_ref().take(MAGIC as u64).read_to_end(&mut first)?;
    if let Some((_, compression, program)) =
        OTHERS.iter().find(|(magic, ..)| first.starts_with(magic))
    {
        let sentence = format!(
            "it is compressed with {compression}: use `{program} FILE | gputop {command} -`"
        );
        return Err(io::Error::new(ErrorKind::InvalidData, sentence));
    }
    let (is_gzip, is_zstd, is_xz) = (
        first.starts_with(GZIP),
        first.starts_with(ZSTD),
        first.starts_with(XZ),
    );
    let bytes = Cursor::new(first).chain(input);
    if !(is_gzip || is_zstd || is_xz) {
        return Ok(OpenLog {
            text: Box::new(bytes),
            is_compressed: false,
        });
    }
    let compressed = Rc::new(Cell::new(0));
    let bytes = CountingReader {
        input: bytes,
        count: Rc::clone(&compressed),
    };
    let text: Box<dyn Read> = if is_gzip {
        Box::new(MultiGzDecoder::new(bytes))
    } else if is_zstd {
        let mut decoder = Decoder::new(bytes)?;
        decoder.window_log_max(LONGEST_WINDOW.ilog2())?;
        Box::new(decoder)
    } else {
        Box::new(XzStreams::new(bytes))
    };
    Ok(OpenLog {
        text: Box::new(BoundedReader {
            text,
            length: 0,
            compressed,
        }),
        is_compressed: true,
    })
}

/// Counts the bytes that are read.
struct CountingReader<R> {
    input: R,
    count: Rc<Cell<u64>>,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.input.read(buffer)?;
        self.count.set(self.count.get() + length as u64);
        Ok(length)
    }
}

/// Text that was compressed. Reading fails at the bounds.
struct BoundedReader {
    text: Box<dyn Read>,
    length: u64,
    compressed: Rc<Cell<u64>>,
}

impl Read for BoundedReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bound = LONGEST_TEXT.min(FREE_TEXT + LARGEST_RATIO * self.compressed.get());
        if self.length > bound {
            let sentence = if self.length > LONGEST_TEXT {
                format!("it has more than {} of text", Bytes(LONGEST_TEXT))
            } else {
                format!("its text is more than {LARGEST_RATIO} times as long as the file")
            };
            return Err(io::Error::new(ErrorKind::InvalidData, sentence));
        }
        let length = self.text.read(buffer)?;
        self.length += length as u64;
        Ok(length)
    }
}

/// The streams of an xz file, one after the other.
struct XzStreams<R> {
    input: BufReader<R>,
    decoder: Box<XzDecoder<'static>>,
    is_between: bool,
}

impl<R: Read> XzStreams<R> {
    fn new(input: R) -> Self {
        let decoder = XzDecoder::in_heap_with_alloc_dict_size(1 << 16, LONGEST_WINDOW as usize);
        Self {
            input: BufReader::new(input),
            decoder,
            is_between: true,
        }
    }
}

impl<R: Read> Read for XzStreams<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            let bytes = self.input.fill_buf()?;
            match bytes.first() {
                None if self.is_between => return Ok(0),
                None => return Err(ErrorKind::UnexpectedEof.into()),
                // Zero bytes may follow a stream.
                Some(0) if self.is_between => {
                    self.input.consume(1);
                    continue;
                }
                Some(_) if self.is_between => self.decoder.reset(),
                Some(_) => {}
            }
            let result = self
                .decoder
                .decode(bytes, buffer)
                .map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            self.is_between = result.is_end_of_stream();
            let (consumed, produced) = (result.input_consumed(), result.output_produced());
            self.input.consume(consumed);
            if produced > 0 {
                return Ok(produced);
            }
            if consumed == 0 && !self.is_between {
                return Err(ErrorKind::InvalidData.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read(bytes: Vec<u8>) -> io::Result<usize> {
        let mut text = open(Cursor::new(bytes), "explain")?.text;
        let (mut length, mut buffer) = (0, vec![0; 1 << 16]);
        loop {
            match text.read(&mut buffer)? {
                0 => return Ok(length),
                read => length += read,
            }
        }
    }

    #[test]
    fn a_text_that_is_far_longer_than_its_file_is_not_read_to_its_end() {
        let text = vec![b'a'; 1 << 20];
        let mut encoder = zstd::Encoder::new(Vec::new(), 3).expect("level 3 exists");
        for _ in 0..200 {
            encoder.write_all(&text).expect("memory has room");
        }
        let bomb = encoder.finish().expect("memory has room");
        assert!(
            (bomb.len() as u64) < (200 << 20) / LARGEST_RATIO,
            "{}",
            bomb.len()
        );
        let error = read(bomb).expect_err("the ratio is bounded");
        assert!(
            error.to_string().contains("more than 1000 times as long"),
            "{error}"
        );
    }

    #[test]
    fn several_parts_are_read_one_after_the_other() {
        let part = |text: &[u8]| {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(text).expect("memory has room");
            encoder.finish().expect("memory has room")
        };
        assert_eq!(
            read([part(b"one\n"), part(b"two\n")].concat()).expect("it is whole"),
            8
        );
        let xz = include_bytes!("../../tests/data/oom/compressed/log.xz");
        let length = read(xz.to_vec()).expect("it is whole");
        assert_eq!(
            read([xz.as_slice(), xz].concat()).expect("it is whole"),
            2 * length
        );
        let error = read(xz[..xz.len() / 2].to_vec()).expect_err("its end is missing");
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    }
}
