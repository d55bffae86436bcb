//! One file of a recording, and where the frames in it begin.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;

use super::frame::{FrameEnd, FrameStream, MAGIC, find_end, find_magic, read_at};

/// The most older parts that a recording may have.
pub(super) const MOST_PARTS: u32 = 1000;

/// The most frames of one part: a year of them is half as many.
const MOST_FRAMES: usize = 1 << 20;

/// One file of a recording.
pub(super) struct Part {
    pub(super) file: Arc<File>,
    /// The length in bytes when the file was opened; `None` for a pipe.
    pub(super) length: Option<u64>,
    /// Whether the file consists of zstd frames.
    pub(super) has_frames: bool,
    /// The offsets of all frames; empty until they are needed.
    frames: Vec<u64>,
}

/// Returns the path of an older part: `FILE.1` is the one before FILE.
pub(super) fn older_path(path: &Path, number: u32) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!(".{number}"));
    name.into()
}

/// Opens the file and its older parts, the oldest first.
pub(super) fn open_all(path: &Path) -> io::Result<Vec<Part>> {
    let newest = File::open(path).and_then(Part::inspect);
    let mut parts = Vec::new();
    let mut seen = Vec::new();
    if newest.as_ref().is_ok_and(|part| part.length.is_none()) {
        return Ok(vec![newest?]);
    }
    if let Ok(part) = &newest {
        seen.push(file_id(&part.file)?);
    }
    for number in 1..=MOST_PARTS {
        let path = older_path(path, number);
        // A pipe of this name must not block.
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).map_err(io::Error::other)?;
        let Ok(file) = File::options().read(true).custom_flags(flags).open(&path) else {
            break;
        };
        let id = file_id(&file)?;
        // A recorder may have renamed the files in between.
        if file.metadata()?.is_file() && !seen.contains(&id) {
            seen.push(id);
            parts.push(Part::inspect(file)?);
        }
    }
    parts.reverse();
    match newest {
        Ok(part) => parts.push(part),
        Err(error) if parts.is_empty() || error.kind() != ErrorKind::NotFound => return Err(error),
        Err(_) => {}
    }
    Ok(parts)
}

fn file_id(file: &File) -> io::Result<(u64, u64)> {
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

impl Part {
    pub(super) fn inspect(file: File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(rustix::io::Errno::ISDIR.into());
        }
        let length = metadata.is_file().then_some(metadata.len());
        let has_frames = length.map_or(Ok(false), |length| has_frames(&file, length))?;
        Ok(Self {
            file: Arc::new(file),
            length,
            has_frames,
            frames: Vec::new(),
        })
    }

    /// Returns the length of a file that is no pipe.
    pub(super) fn length(&self) -> u64 {
        self.length.unwrap_or(u64::MAX)
    }

    /// Returns a reader of a file without frames from this offset on.
    pub(super) fn lines_from(&self, offset: u64) -> io::Result<impl BufRead + use<>> {
        let mut file = self.file.try_clone()?;
        if self.length.is_some() {
            file.seek(SeekFrom::Start(offset))?;
        }
        Ok(BufReader::with_capacity(64 << 10, file))
    }

    /// Returns the offsets of the frames, also of damaged ones. Reads only headers.
    pub(super) fn frames(&mut self) -> io::Result<&[u64]> {
        if self.frames.is_empty() {
            let mut offset = 0;
            while offset < self.length() && self.frames.len() < MOST_FRAMES {
                let end = find_end(&self.file, offset, self.length())?;
                self.frames.push(offset);
                offset = match end {
                    FrameEnd::At(end) => end,
                    _ => {
                        match find_magic(&self.file, offset + MAGIC.len() as u64, self.length())? {
                            Some(next) => next,
                            None => break,
                        }
                    }
                };
            }
        }
        Ok(&self.frames)
    }

    /// Returns the content of the frame that begins at `offset`, or all lines from there on.
    pub(super) fn content_from(&self, offset: u64) -> io::Result<Box<dyn BufRead>> {
        Ok(if self.has_frames {
            Box::new(BufReader::new(FrameStream::new(
                Arc::clone(&self.file),
                offset,
                self.length(),
            )?))
        } else {
            Box::new(self.lines_from(offset)?)
        })
    }
}

/// Decides by the first bytes whether a file consists of zstd frames.
fn has_frames(file: &File, length: u64) -> io::Result<bool> {
    /// The bytes in which a second frame is searched when the first is damaged.
    const SEARCHED: u64 = 4 << 20;
    let mut first = [0; MAGIC.len()];
    let read = read_at(file, &mut first, 0, length)?;
    Ok(match &first[..read] {
        [b'{', ..] => false,
        first if first == MAGIC => true,
        _ => find_magic(file, 0, length.min(SEARCHED))?.is_some(),
    })
}
