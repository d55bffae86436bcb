//! The files of a recording that is written: FILE and its older parts, in one folder. Follows no
//! symbolic link, and refuses a folder that another user could change.

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, Stat, fchmod, flock, fstat, open, openat,
    renameat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::part::{MOST_PARTS, older_path};

/// The folder of a recording, and the name of its newest file.
#[derive(Debug)]
pub(super) struct RecordingFolder {
    folder: OwnedFd,
    name: OsString,
}

/// An older part.
#[derive(Debug, Clone, Copy)]
pub(super) struct OlderPart {
    pub(super) number: u32,
    pub(super) bytes: u64,
    /// When its last line was written.
    pub(super) modified: SystemTime,
}

impl RecordingFolder {
    /// Opens the folder of this file, and creates it if it is absent. The error is one phrase.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let name = path
            .file_name()
            .ok_or("it is not the name of a file")?
            .to_owned();
        let folder = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|error| error.to_string())?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = open(folder, flags, Mode::empty()).map_err(|error| match error {
            Errno::LOOP | Errno::NOTDIR => {
                "its folder is a symbolic link: name the folder itself".to_owned()
            }
            error => io::Error::from(error).to_string(),
        })?;
        let stat = fstat(&folder).map_err(|error| io::Error::from(error).to_string())?;
        if ![0, geteuid().as_raw()].contains(&stat.st_uid) {
            return Err(
                "its folder belongs to another user: choose a folder of your own".to_owned(),
            );
        }
        // In a sticky folder such as /tmp, nobody else can replace or remove the file.
        let mode = Mode::from_raw_mode(stat.st_mode);
        if mode.contains(Mode::WOTH) && !mode.contains(Mode::SVTX) {
            return Err(
                "every user may write to its folder: choose a folder of your own".to_owned(),
            );
        }
        Ok(Self { folder, name })
    }

    /// Opens the newest file for reading and writing, and creates it if it is absent. No other
    /// recorder can open it then.
    pub(super) fn open_newest(&self) -> Result<File, String> {
        let phrase = |error: Errno| io::Error::from(error).to_string();
        // A pipe in the place of the file must not block.
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file =
            openat(&self.folder, &self.name, flags, Mode::RUSR | Mode::WUSR).map_err(|error| {
                match error {
                    Errno::LOOP => "it is a symbolic link: name the file itself".to_owned(),
                    error => phrase(error),
                }
            })?;
        let stat = fstat(&file).map_err(phrase)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err("it is no plain file".to_owned());
        }
        if stat.st_uid != geteuid().as_raw() {
            return Err("it belongs to another user".to_owned());
        }
        if stat.st_nlink > 1 {
            return Err("it has a second name, as a hard link: choose a new file".to_owned());
        }
        let mode = Mode::from_raw_mode(stat.st_mode);
        if mode.intersects(Mode::RWXG | Mode::RWXO) {
            fchmod(&file, mode & Mode::RWXU).map_err(phrase)?;
        }
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => {
                Err("another gputop records to it: choose another file with -o".to_owned())
            }
            // Some file systems of networks have no locks.
            Ok(()) | Err(_) => Ok(file.into()),
        }
    }

    /// Returns the older parts, the newest first.
    pub(super) fn older_parts(&self) -> io::Result<Vec<OlderPart>> {
        let mut parts = Vec::new();
        for number in 1..=MOST_PARTS {
            let stat = match statat(&self.folder, self.older(number), AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => break,
                stat => stat?,
            };
            parts.push(OlderPart {
                number,
                bytes: size(&stat),
                modified: modified(&stat),
            });
        }
        Ok(parts)
    }

    /// Makes FILE the part FILE.1, FILE.1 the part FILE.2, and so on.
    pub(super) fn rotate(&self) -> io::Result<()> {
        for part in self.older_parts()?.iter().rev() {
            renameat(
                &self.folder,
                self.older(part.number),
                &self.folder,
                self.older(part.number + 1),
            )?;
        }
        renameat(&self.folder, &self.name, &self.folder, self.older(1))?;
        Ok(())
    }

    pub(super) fn remove(&self, part: &OlderPart) -> io::Result<()> {
        Ok(unlinkat(
            &self.folder,
            self.older(part.number),
            AtFlags::empty(),
        )?)
    }

    fn older(&self, number: u32) -> PathBuf {
        older_path(Path::new(OsStr::new(&self.name)), number)
    }
}

/// Returns the size of a file in bytes.
fn size(stat: &Stat) -> u64 {
    stat.st_size.try_into().unwrap_or(u64::MAX)
}

fn modified(stat: &Stat) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(stat.st_mtime.try_into().unwrap_or(u64::MAX >> 1))
}
