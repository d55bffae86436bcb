//! The files of the viewer's own history: a file for each host, source, boot and session, in a
//! folder that only the user can read.
//!
//! Each file is a recording of two lines: a snapshot and a checkpoint. Everything here runs in a
//! process of its own, which the viewer can leave behind. Such a process also reads the past of the
//! host from a recorder's file, if that is newer.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, mkdirat, openat, renameat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::base::text::Text;
use crate::files::history::{ENDING, file_name};
use crate::model::{HostModel, Past};
use crate::protocol::host_tag::HostTag;
use crate::source::{RecordingReader, parse_line};

/// The age from which a file is neither read nor kept.
const OLDEST: Duration = Duration::from_hours(7 * 24);

/// The most bytes of all files together. The oldest are removed first.
const MOST_BYTES: u64 = 64 << 20;

/// The most bytes that a viewer passes on: a full line and a checkpoint, each within the limit of a
/// line.
const LONGEST_INPUT: u64 = 128 << 20;

/// A folder of histories that belongs to the user and is no link.
struct HistoryFolder {
    descriptor: OwnedFd,
}

/// A file of the folder.
struct HistoryFile {
    name: String,
    stat: Stat,
}

impl HistoryFile {
    fn modified(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(u64::try_from(self.stat.st_mtime).unwrap_or(0))
    }

    fn is_expired(&self) -> bool {
        self.modified().elapsed().is_ok_and(|age| age > OLDEST)
    }

    fn bytes(&self) -> u64 {
        u64::try_from(self.stat.st_size).unwrap_or(0)
    }
}

impl HistoryFolder {
    fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let refuse = |why: &str| io::Error::other(format!("{} {why}", path.display()));
        let descriptor = match openat(CWD, path, flags, Mode::empty()) {
            Err(Errno::LOOP | Errno::NOTDIR) => return Err(refuse("is no folder of its own")),
            opened => opened?,
        };
        if fstat(&descriptor)?.st_uid != geteuid().as_raw() {
            return Err(refuse("belongs to another user"));
        }
        Ok(Self { descriptor })
    }

    /// Opens a file of the user, which is no link.
    fn file(&self, name: &str) -> io::Result<(File, Stat)> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&self.descriptor, name, flags, Mode::empty())?;
        let stat = fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile
            || stat.st_uid != geteuid().as_raw()
        {
            return Err(Errno::PERM.into());
        }
        Ok((file.into(), stat))
    }

    /// The histories in the folder, the newest first. Leaves out links and files of other users.
    fn files(&self) -> io::Result<Vec<HistoryFile>> {
        let mut files = Vec::new();
        for entry in Dir::read_from(&self.descriptor)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            if name.ends_with(ENDING)
                && let Ok((_, stat)) = self.file(name)
            {
                files.push(HistoryFile {
                    name: name.to_owned(),
                    stat,
                });
            }
        }
        files.sort_by_key(|file| {
            std::cmp::Reverse((
                file.stat.st_mtime,
                file.stat.st_mtime_nsec,
                file.name.clone(),
            ))
        });
        Ok(files)
    }

    /// Removes files that are too old, and the oldest ones until the rest has at most
    /// [`MOST_BYTES`].
    fn prune(&self) -> io::Result<()> {
        let mut bytes = 0_u64;
        for file in self.files()? {
            bytes = bytes.saturating_add(file.bytes());
            if file.is_expired() || bytes > MOST_BYTES {
                unlinkat(&self.descriptor, file.name.as_str(), AtFlags::empty())?;
            }
        }
        Ok(())
    }
}

/// Writes lines as the history at this path, in this process, and removes histories over the
/// limits.
pub(crate) fn write_here(path: &Path, input: impl Read) -> io::Result<()> {
    let (Some(folder_path), Some(name)) = (
        path.parent(),
        path.file_name().and_then(|name| name.to_str()),
    ) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let about = |error: io::Error| {
        io::Error::new(
            error.kind(),
            format!("cannot write {}: {error}", path.display()),
        )
    };
    if let Some(above) = folder_path.parent() {
        std::fs::create_dir_all(above).map_err(about)?;
    }
    match mkdirat(CWD, folder_path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(about(error.into())),
    }
    let folder = HistoryFolder::open(folder_path)?;
    let draft = format!("{name}.{}.tmp", std::process::id());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(
        &folder.descriptor,
        draft.as_str(),
        flags,
        Mode::RUSR | Mode::WUSR,
    )
    .map_err(|error| about(error.into()))?;
    let written = compress(File::from(file), input).and_then(|()| {
        Ok(renameat(
            &folder.descriptor,
            draft.as_str(),
            &folder.descriptor,
            name,
        )?)
    });
    if written.is_err() {
        _ = unlinkat(&folder.descriptor, draft.as_str(), AtFlags::empty());
    }
    written.and_then(|()| folder.prune()).map_err(about)
}

fn compress(file: File, input: impl Read) -> io::Result<()> {
    let mut out = zstd::Encoder::new(file, zstd::DEFAULT_COMPRESSION_LEVEL)?;
    io::copy(&mut input.take(LONGEST_INPUT), &mut out)?;
    out.finish()?.flush()
}

/// Returns the past of the host whose files begin with this path as JSON. Without one, the error is
/// [`io::ErrorKind::NotFound`].
pub(crate) fn read_here(path: &Path) -> io::Result<String> {
    let (Some(folder_path), Some(stem)) = (
        path.parent(),
        path.file_name().and_then(|name| name.to_str()),
    ) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let host = stem.rsplit_once('-').map_or(stem, |(host, _)| host);
    let own = match HistoryFolder::open(folder_path) {
        Ok(folder) => own_past(&folder, folder_path, &format!("{stem}-"), host)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let recording = folder_path
        .with_file_name("recordings")
        .join(format!("{host}{ENDING}"));
    let recorded = past_of_recorder(&recording, host, own.as_ref().map_or(0, |own| own.unix_ms));
    let past = match (recorded, own) {
        // A file that a recorder has damaged hides no history.
        (Ok(Some(recorded)), own) => Past {
            last_look_ms: own.and_then(|own| own.last_look_ms),
            ..recorded
        },
        (_, Some(own)) => own,
        (_, None) => return Err(io::ErrorKind::NotFound.into()),
    };
    Ok(serde_json::to_string(&past)?)
}

/// Returns the past in the newest file of a host and source; `None` when there is none.
fn own_past(
    folder: &HistoryFolder,
    path: &Path,
    prefix: &str,
    host: &str,
) -> io::Result<Option<Past>> {
    for file in folder
        .files()?
        .iter()
        .filter(|file| file.name.starts_with(prefix) && !file.is_expired())
    {
        // Only the user can put another file there now.
        let path = path.join(&file.name);
        if let Some(past) = past_of(&mut RecordingReader::open(&path)?, &path, host)? {
            return Ok(Some(Past {
                last_look_ms: Some(past.unix_ms),
                ..past
            }));
        }
    }
    Ok(None)
}

/// Returns the past of a host in a recording, if it is newer than `unix_ms`.
fn past_of_recorder(path: &Path, host: &str, unix_ms: u64) -> io::Result<Option<Past>> {
    let mut reader = RecordingReader::open(path)?;
    let Some((_, last)) = reader.span()?.filter(|(_, last)| *last > unix_ms) else {
        return Ok(None);
    };
    reader.seek(last)?;
    past_of(&mut reader, path, host)
}

/// Applies all lines of a reader. Returns the past of a host at the last line; `None` without a
/// line of the host.
fn past_of(reader: &mut RecordingReader, path: &Path, host: &str) -> io::Result<Option<Past>> {
    let mut models: BTreeMap<Option<u64>, HostModel> = BTreeMap::new();
    while let Some(raw) = reader.next_line()? {
        let Ok(Some(line)) = parse_line(raw) else {
            continue;
        };
        let key = HostTag::parse(raw).map(|tag| tag.host_key);
        // A tick without the line before it is left out, as in a replay.
        let _out_of_step = models.entry(key).or_default().apply(line);
    }
    let is_host = |model: &&HostModel| {
        model
            .latest()
            .is_some_and(|latest| file_name(latest.host.facts.name.as_str()) == host)
    };
    let model = models
        .values()
        .filter(is_host)
        .max_by_key(|model| model.latest().map(|latest| latest.unix_ms));
    let Some((latest, checkpoint)) = model.and_then(|model| model.latest().zip(model.checkpoint()))
    else {
        return Ok(None);
    };
    Ok(Some(Past {
        path: Text::new(path.as_os_str().as_encoded_bytes()),
        boot_id: latest.host.facts.boot_id.clone(),
        unix_ms: latest.unix_ms,
        last_look_ms: None,
        checkpoint,
    }))
}

#[cfg(test)]
mod tests;
