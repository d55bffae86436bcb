//! Where the C library lies, and copies of it that lack functions.

use std::{
    env, fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

const NAME: &str = "libfake_nvml.so";

/// The C library that cargo built with this crate.
///
/// # Panics
///
/// When it is not near the running program: it lies beside a test, and beside an example's directory.
#[must_use]
pub fn library() -> PathBuf {
    let program = env::current_exe().expect("the running program has a path");
    let near = program.ancestors().skip(1).take(3).flat_map(|it| [it.join("deps").join(NAME), it.join(NAME)]);
    // `deps` has the one that belongs to this build; target/debug may keep one from an older `cargo build`.
    let found = near.filter_map(|it| Some((it.metadata().ok()?.modified().ok()?, it))).max();
    found.expect("cargo builds the cdylib with the rlib").1
}

/// Makes the library appear as `libnvidia-ml.so.1` in that directory, for `LD_LIBRARY_PATH`. Gives its path.
///
/// # Errors
///
/// When the directory cannot be made or written.
pub fn install(directory: impl AsRef<Path>) -> io::Result<PathBuf> {
    let path = directory.as_ref().join("libnvidia-ml.so.1");
    fs::create_dir_all(directory)?;
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => symlink(library(), &path)?,
    }
    Ok(path)
}

/// Copies the library to `path`, without those functions, as an old driver's library lacks them.
///
/// # Errors
///
/// When the library has no such function, or the copy cannot be written.
pub fn library_without(functions: &[&str], path: impl AsRef<Path>) -> io::Result<()> {
    let mut bytes = fs::read(library())?;
    for function in functions {
        // In .dynstr each name stands between two NULs. With another first letter it is found neither
        // by its old name (the strings differ) nor by its new one (the hash differs).
        let name = [b"\0", function.as_bytes(), b"\0"].concat();
        let mut from = 0;
        while let Some(at) = bytes[from..].windows(name.len()).position(|it| it == name) {
            bytes[from + at + 1] = b'x';
            from += at + 1;
        }
        if from == 0 {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("the library has no {function}")));
        }
    }
    fs::write(path, bytes)
}
