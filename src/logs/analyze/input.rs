//! The lines of a log, which may be compressed.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, IsTerminal, Read, Write};
use std::path::Path;

use zstd::stream::read::Decoder;

use super::log::LogReader;
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::logs::compressed_log;
use crate::logs::compressed_log::{OpenLog, ZSTD};
use crate::output;
use crate::source::RecordingReader;

/// Reads the standard input to its end.
pub(super) fn read_stdin(log: &mut LogReader) -> io::Result<()> {
    let input = io::stdin();
    if input.is_terminal() {
        output::print_error(&Text::new("paste the log, then press Enter and Ctrl-D"));
    }
    read(input.lock(), "standard input", 0, log)
}

/// Reads a file to its end: a recording with its older parts, or a log.
pub(super) fn read_file(path: &Path, name: &Text, log: &mut LogReader) -> io::Result<()> {
    // The beginning of a pipe could not be read again.
    if fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) && is_recording(path) {
        return read_recording(path, name, log);
    }
    let file = File::open(path)?;
    let size = file.metadata().map_or(0, |metadata| metadata.len());
    read(file, name.as_str(), size, log)
}

/// Whether a file is a log of another program, and no recording and no lines of gputop. A file that
/// cannot be read is none.
pub(crate) fn is_log(path: &Path) -> bool {
    let first = || -> io::Result<Vec<u8>> {
        /// A line of gputop begins with its kind or its host.
        const BEGIN: u64 = 256;
        let open = compressed_log::open(File::open(path)?, "analyze")?;
        let mut bytes = Vec::new();
        open.text.take(BEGIN).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let is_file = fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    is_file
        && first().is_ok_and(|bytes| {
            let text = String::from_utf8_lossy(&bytes);
            let text = text.trim_start_matches('\u{feff}').trim_start();
            let is_line = text.starts_with('{')
                && ["\"kind\":", "\"source\":", "\"schema\":"]
                    .iter()
                    .any(|key| text.contains(key));
            !text.is_empty() && !is_line
        })
}

/// Whether a file is a recording in zstd frames, and not another text that was compressed with
/// zstd.
fn is_recording(path: &Path) -> bool {
    let first = || -> io::Result<[u8; ZSTD.len()]> {
        let mut bytes = [0; ZSTD.len()];
        File::open(path)?.read_exact(&mut bytes)?;
        Ok(bytes)
    };
    let content = || -> io::Result<u8> {
        let mut byte = [0];
        Decoder::new(File::open(path)?)?.read_exact(&mut byte)?;
        Ok(byte[0])
    };
    // The reader of recordings also says what is damaged.
    first().is_ok_and(|bytes| bytes.starts_with(ZSTD))
        && content().map_or(true, |byte| byte == b'{')
}

/// Reads a recording in zstd frames, with its older parts.
fn read_recording(path: &Path, name: &Text, log: &mut LogReader) -> io::Result<()> {
    let mut reader = RecordingReader::open(path)?;
    while let Some(line) = reader.next_line()? {
        log.line(&String::from_utf8_lossy(line));
    }
    for problem in reader.problems() {
        output::print_error(&Text::new(format!("{name}: {problem}")));
    }
    Ok(())
}

/// Reads a log, plain or compressed, and shows the progress on a terminal. `size` is 0 if it is not
/// known.
pub(super) fn read(
    input: impl Read + 'static,
    name: &str,
    size: u64,
    log: &mut LogReader,
) -> io::Result<()> {
    let OpenLog {
        text,
        is_compressed,
    } = compressed_log::open(input, "analyze")?;
    let size = if is_compressed { 0 } else { size };
    read_lines(BufReader::with_capacity(ROOM, text), name, size, log)
}

/// Bytes of one read.
const ROOM: usize = 1 << 16;

fn read_lines(
    mut input: impl BufRead,
    name: &str,
    size: u64,
    log: &mut LogReader,
) -> io::Result<()> {
    /// Bytes between two reports of progress: some tenths of a second.
    const PROGRESS_STEP: u64 = 16 << 20;
    /// Bytes after which a line is cut, so that a file without line ends does not fill the memory.
    const LONGEST_LINE: u64 = 1 << 24;
    let (mut line, mut bytes_read, mut next_report) = (Vec::new(), 0, PROGRESS_STEP);
    let shows_progress = io::stderr().is_terminal();
    loop {
        line.clear();
        let read = Read::take(&mut input, LONGEST_LINE).read_until(b'\n', &mut line);
        let length = match read {
            // The log was still being written, or was copied in part: its beginning is as good.
            Err(error) if bytes_read > 0 && error.kind() == ErrorKind::UnexpectedEof => {
                output::print_error(&Text::new(format!("{name} is cut off: its end is missing")));
                0
            }
            read => read?,
        };
        if length == 0 {
            break;
        }
        bytes_read += length as u64;
        // PowerShell writes UTF-16. Without its zero bytes, that is ASCII.
        if line.contains(&0) {
            line.retain(|byte| *byte != 0);
        }
        // Progress bars are written over each other, and are lines of their own.
        let text = String::from_utf8_lossy(&line);
        match text.trim_end_matches(['\r', '\n']) {
            text if text.contains('\r') => text.split('\r').for_each(|part| log.line(part)),
            text => log.line(text),
        }
        if bytes_read >= next_report && shows_progress {
            next_report += PROGRESS_STEP;
            let of_size = if size > 0 {
                format!(" of {}", Bytes(size))
            } else {
                String::new()
            };
            let _closed: io::Result<()> = write!(
                io::stderr(),
                "\r{name}: {}{of_size} read…",
                Bytes(bytes_read)
            );
        }
    }
    if shows_progress && bytes_read >= PROGRESS_STEP {
        let _closed: io::Result<()> = write!(io::stderr(), "\r\x1b[K");
    }
    Ok(())
}
