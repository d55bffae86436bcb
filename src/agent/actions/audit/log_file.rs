//! Appends to the file of the audit log. Follows no symbolic link, and refuses files of another
//! type or owner.

use std::fs::DirBuilder;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, fchmod, fstat, open, openat};
use rustix::io::Errno;

const NAME: &str = "kills.jsonl";

pub(super) fn append(folder: Option<&Path>, lines: &[u8]) -> Result<(), String> {
    let folder = folder.ok_or("neither XDG_STATE_HOME nor HOME says where")?;
    let explain = |why: String| format!("{}: {why}", folder.join(NAME).display());
    let file = open_file(folder).map_err(explain)?;
    // One write: two agents may append at once, and each line stays whole.
    match rustix::io::write(&file, lines) {
        Ok(length) if length == lines.len() => Ok(()),
        Ok(_) => Err(explain("the disk is full".to_owned())),
        Err(error) => Err(explain(error.to_string())),
    }
}

/// Opens the file. A symbolic link, or a file of another user, could lead a write of root anywhere.
fn open_file(folder: &Path) -> Result<OwnedFd, String> {
    let explain = |error: Errno| match error {
        Errno::LOOP | Errno::NOTDIR => {
            "it is a symbolic link, or not where it should be".to_owned()
        }
        other => other.to_string(),
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| error.to_string())?;
    let flags = OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let folder = open(
        folder,
        flags | OFlags::RDONLY | OFlags::DIRECTORY,
        Mode::empty(),
    )
    .map_err(explain)?;
    make_private(&folder, FileType::Directory)?;
    // A pipe that nobody reads could be in the place of the file. Opening it must not block.
    let flags = flags | OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NONBLOCK;
    let file = openat(&folder, NAME, flags, Mode::RUSR | Mode::WUSR).map_err(explain)?;
    make_private(&file, FileType::RegularFile)?;
    Ok(file)
}

/// Checks the type and the owner of a file, and takes away the permissions of other users.
fn make_private(file: &OwnedFd, expected: FileType) -> Result<(), String> {
    let stat = fstat(file).map_err(|error| error.to_string())?;
    if FileType::from_raw_mode(stat.st_mode) != expected {
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
