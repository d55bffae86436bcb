//! The path of the C library, and copies of it without some functions.

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
/// When the library is not in the folder of the running program or the folders above.
#[must_use]
pub fn library() -> PathBuf {
    let program = env::current_exe().expect("the running program has a path");
    let near = program
        .ancestors()
        .skip(1)
        .take(3)
        .flat_map(|folder| [folder.join("deps").join(NAME), folder.join(NAME)]);
    // `deps` has the library of this build; target/debug may have one of an older `cargo build`.
    let found = near
        .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
        .max();
    found.expect("cargo builds the cdylib with the rlib").1
}

/// Links the library as `libnvidia-ml.so.1` into a directory, for `LD_LIBRARY_PATH`. Returns its
/// path.
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

/// Copies the library to `path`, without some functions, like the library of an old driver.
///
/// # Errors
///
/// When the library has no such function, or the copy cannot be written.
pub fn library_without(functions: &[&str], path: impl AsRef<Path>) -> io::Result<()> {
    let mut bytes = fs::read(library())?;
    for function in functions {
        // In .dynstr each name is between two NULs. With another first letter, the symbol is found
        // neither by its old name (the strings differ) nor by its new name (the hash differs).
        let name = [b"\0", function.as_bytes(), b"\0"].concat();
        let mut from = 0;
        while let Some(offset) = bytes[from..]
            .windows(name.len())
            .position(|window| window == name)
        {
            bytes[from + offset + 1] = b'x';
            from += offset + 1;
        }
        if from == 0 {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("the library has no {function}"),
            ));
        }
    }
    fs::write(path, bytes)
}
