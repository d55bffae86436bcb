//! The file of a picture.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use anyhow::{Context, anyhow};

/// Checks that a file can be written: the user should not wait before learning that it cannot.
///
/// # Errors
///
/// When it cannot be written.
pub(super) fn check(file: &Path) -> anyhow::Result<()> {
    if !is_stdout(file) {
        let opened = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(file);
        opened.with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// Checks that a new file can be written, and leaves none behind.
///
/// # Errors
///
/// When it exists or cannot be written.
pub(super) fn check_new(file: &Path) -> anyhow::Result<()> {
    if !is_stdout(file) {
        drop(create(file)?);
        fs::remove_file(file).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// Writes a picture to a file, or to the standard output.
///
/// # Errors
///
/// When it cannot be written.
pub(super) fn write(file: &Path, svg: &str) -> anyhow::Result<()> {
    if is_stdout(file) {
        io::stdout().write_all(svg.as_bytes())?;
    } else {
        fs::write(file, svg).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// Writes a picture to a new file, or to the standard output.
///
/// # Errors
///
/// When the file exists or cannot be written.
pub(super) fn write_new(file: &Path, svg: &str) -> anyhow::Result<()> {
    if is_stdout(file) {
        return write(file, svg);
    }
    create(file)?
        .write_all(svg.as_bytes())
        .with_context(|| format!("cannot write {}", file.display()))
}

fn create(file: &Path) -> anyhow::Result<File> {
    File::create_new(file).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => anyhow!(
            "{} exists: delete it first, or choose another file",
            file.display()
        ),
        _ => anyhow!("cannot write {}: {error}", file.display()),
    })
}

fn is_stdout(file: &Path) -> bool {
    file == Path::new("-")
}
