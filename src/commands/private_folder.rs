//! Folders of this user: the folder of states, and folders that only this user may enter, also below a folder that everyone may
//! write to.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::{env, io};

use rustix::fs::{self, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Returns the folder in which programs keep their state: `$XDG_STATE_HOME` or `~/.local/state`; `None` without a home.
pub(super) fn state_folder() -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))
}

/// Opens a folder that only this user may enter, and creates it if it is absent.
pub(super) fn open(path: &Path) -> io::Result<OwnedFd> {
    match fs::mkdir(path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = fs::openat(CWD, path, flags, Mode::empty())?;
    let stat = fs::fstat(&folder)?;
    // Anyone may have created a folder of this name in /tmp.
    if stat.st_uid != geteuid().as_raw() || Mode::from_raw_mode(stat.st_mode).intersects(Mode::RWXG | Mode::RWXO) {
        return Err(io::Error::other("it belongs to someone else, or others may enter it"));
    }
    Ok(folder)
}
