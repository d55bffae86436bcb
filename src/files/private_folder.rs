//! Folders that only this user may enter, also below a folder that everyone may write to.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{self, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Opens a folder that only this user may enter, and creates it if it is absent.
pub(crate) fn open(path: &Path) -> io::Result<OwnedFd> {
    match fs::mkdir(path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    verify(path)
}

/// Opens a folder that exists, if only this user may enter it.
pub(crate) fn verify(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = fs::openat(CWD, path, flags, Mode::empty())?;
    let stat = fs::fstat(&folder)?;
    // Anyone may have created a folder of this name in /tmp.
    if stat.st_uid != geteuid().as_raw()
        || Mode::from_raw_mode(stat.st_mode).intersects(Mode::RWXG | Mode::RWXO)
    {
        return Err(io::Error::other(
            "it belongs to someone else, or others may enter it",
        ));
    }
    Ok(folder)
}
