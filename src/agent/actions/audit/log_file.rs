//! The file of the audit: opened with suspicion, only ever added to.

use std::fs::DirBuilder;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use rustix::fs::{FileType, Mode, OFlags, fchmod, fstat, open, openat};
use rustix::io::Errno;

/// Where it is, or would be.
pub(super) struct LogFile {
    folder: Option<PathBuf>,
}

impl LogFile {
    const NAME: &str = "kills.jsonl";

    pub(super) fn new(home: Option<PathBuf>) -> Self {
        Self { folder: home.map(|it| it.join("gputop")) }
    }

    /// Adds whole lines, or says why not.
    pub(super) fn add(&self, lines: &[u8]) -> Result<(), String> {
        let Some(folder) = &self.folder else {
            return Err("neither XDG_STATE_HOME nor HOME says where".to_owned());
        };
        let complaint = |why: String| format!("{}: {why}", folder.join(Self::NAME).display());
        let file = self.open().map_err(complaint)?;
        // One write: two agents may add to it at once, and each line stays whole.
        match rustix::io::write(&file, lines) {
            Ok(length) if length == lines.len() => Ok(()),
            Ok(_) => Err(complaint("the disk is full".to_owned())),
            Err(error) => Err(complaint(error.to_string())),
        }
    }

    /// Opens it. A symbolic link, or what belongs to someone else, could lead a write of root anywhere.
    fn open(&self) -> Result<OwnedFd, String> {
        let words = |error: Errno| match error {
            Errno::LOOP | Errno::NOTDIR => "it is a symbolic link, or not where it should be".to_owned(),
            other => other.to_string(),
        };
        let folder = self.folder.as_deref().ok_or("there is no place for it")?;
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| error.to_string())?;
        let flags = OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let folder = open(folder, flags | OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).map_err(words)?;
        check(&folder, FileType::Directory)?;
        // Without waiting: in the place of the file there could be a pipe that nobody reads.
        let flags = flags | OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NONBLOCK;
        let file = openat(&folder, Self::NAME, flags, Mode::RUSR | Mode::WUSR).map_err(words)?;
        check(&file, FileType::RegularFile)?;
        Ok(file)
    }
}

/// Whether it is what it should be, and ours alone. Others' rights to it are taken away.
fn check(file: &OwnedFd, kind: FileType) -> Result<(), String> {
    let stat = fstat(file).map_err(|error| error.to_string())?;
    if FileType::from_raw_mode(stat.st_mode) != kind {
        return Err("it is no plain file".to_owned());
    }
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err("it belongs to someone else".to_owned());
    }
    let mode = Mode::from_raw_mode(stat.st_mode);
    if mode.intersects(Mode::RWXG | Mode::RWXO) {
        fchmod(file, mode & Mode::RWXU).map_err(|error| error.to_string())?;
    }
    Ok(())
}
