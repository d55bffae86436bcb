//! A small file that only this user can have written, and that is replaced as a whole.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::process::geteuid;

/// Writes the file, and the folders that it lacks.
///
/// # Errors
///
/// When the file cannot be written; the old one stays.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let draft = path.with_extension(format!("{}.tmp", std::process::id()));
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&draft)?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        fs::remove_file(&draft)?;
    }
    written
}

/// Reads a file that only this user can have written, `longest` bytes of it at most.
///
/// # Errors
///
/// When the file cannot be read, is no regular file of this user, or is open to others.
pub(crate) fn read(path: &Path, longest: u64) -> io::Result<String> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.uid() != geteuid().as_raw() || metadata.mode() & 0o077 != 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut text = String::new();
    file.take(longest).read_to_string(&mut text)?;
    Ok(text)
}
