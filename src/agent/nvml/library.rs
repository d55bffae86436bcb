//! Finds, loads and starts the NVML library. If that fails, explains the reason in a sentence for
//! the user.
//!
//! A started driver is never shut down: `nvmlShutdown` can hang. After a failure, the driver is
//! started again all the same.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

use super::call_watch::{CallSubject, CallWatch};
use super::raw::Library;
use super::{VERSION, errors, raw};
use crate::base::text::Text;
use crate::base::units::Moment;
use crate::protocol::snapshot::{Cause, Trouble};

/// The name by which the system's loader finds the library.
const NAME: &str = "libnvidia-ml.so.1";

/// Paths that the loader does not search: those of WSL's driver, and the mounts of container
/// runtimes.
const PLACES: [&str; 3] = [
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
    "/usr/local/nvidia/lib/libnvidia-ml.so.1",
];

pub(in crate::agent) const INIT: &str = "nvmlInit_v2";

pub(super) fn start(
    watch: &CallWatch,
    only: Option<&Path>,
    now: Moment,
) -> Result<Library, Trouble> {
    let elsewhere = PLACES
        .iter()
        .map(PathBuf::from)
        .filter(|place| place.exists());
    let usual = || {
        std::iter::once(PathBuf::from(NAME))
            .chain(elsewhere)
            .collect()
    };
    let candidates: Vec<PathBuf> = only.map_or_else(usual, |path| vec![path.to_owned()]);
    let mut trouble = no_library(OsStr::new(NAME), now);
    for candidate in &candidates {
        match begin(watch, candidate.as_os_str()) {
            Ok(nvml) => return Ok(Box::leak(Box::new(nvml))),
            // The error of the first file that exists is the one to report.
            Err(error) if trouble.cause == Cause::NoLibrary => {
                trouble = start_trouble(candidate.as_os_str(), &error, now);
            }
            Err(_) => (),
        }
    }
    Err(trouble)
}

/// Starts the driver in two steps, so that a hang is reported with its function: nvml-wrapper's
/// start also reads the version.
fn begin(watch: &CallWatch, file: &OsStr) -> Result<Nvml, NvmlError> {
    let library = raw::load(file)?;
    watch.call(CallSubject::Driver, INIT, || raw::init(&library))?;
    // The driver is started already, so this second start takes no time.
    watch.call(CallSubject::Driver, VERSION, || {
        Nvml::builder().lib_path(file).init()
    })
}

/// Returns the paths that [`start`] may load, in its order, without loading any.
pub(in crate::agent) fn places(only: Option<&Path>) -> Vec<PathBuf> {
    const USUAL: [&str; 4] = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
    ];
    if let Some(path) = only {
        return vec![path.to_owned()];
    }
    // The loader searches these folders first. A library of another version there is a common
    // reason for a failed start.
    let set = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_else(|| "".into());
    let first = std::env::split_paths(&set).filter(|folder| folder.is_absolute());
    let folders = first.chain(USUAL.map(PathBuf::from));
    folders
        .map(|folder| folder.join(NAME))
        .chain(PLACES.map(PathBuf::from))
        .collect()
}

fn no_library(file: &OsStr, now: Moment) -> Trouble {
    let file = Text::new(file.as_encoded_bytes());
    let sentence = format!(
        "cannot load {file}: no such file; install the NVIDIA driver, or name its library with --nvml-lib"
    );
    Trouble {
        cause: Cause::NoLibrary,
        sentence: sentence.into(),
        call: None,
        since: now,
    }
}

fn start_trouble(file: &OsStr, error: &NvmlError, now: Moment) -> Trouble {
    let name = Text::new(file.as_encoded_bytes());
    let (cause, sentence) = match error {
        NvmlError::LibloadingError(error) => {
            let reason = error.to_string();
            if is_absent(file, &reason) {
                return no_library(file, now);
            }
            let reason = Text::from(reason);
            (
                Cause::NotLoading,
                format!("cannot load {name}: {reason}; is it whole, and of this architecture?"),
            )
        }
        NvmlError::FailedToLoadSymbol(_) => (
            Cause::NotLoading,
            format!(
                "{name} was loaded, but has no {INIT}: it is no NVML library, or a very old one"
            ),
        ),
        error => {
            // The sentence may name the version of the library, while it is loaded.
            let _loaded = raw::load(file);
            return errors::driver_trouble(INIT, error, now);
        }
    };
    Trouble {
        cause,
        sentence: sentence.into(),
        call: None,
        since: now,
    }
}

/// Whether the file itself does not exist, as opposed to a library that the file depends on.
fn is_absent(file: &OsStr, reason: &str) -> bool {
    if Path::new(file).is_absolute() {
        return !Path::new(file).exists();
    }
    reason.contains(&format!(
        "{}: cannot open shared object file: No such file",
        file.to_string_lossy()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_library_itself_can_be_absent() {
        let reason = "libnvidia-ml.so.1: cannot open shared object file: No such file or directory";
        assert!(is_absent(OsStr::new(NAME), reason));
        let reason = "libcuda-part.so: cannot open shared object file: No such file or directory";
        assert!(!is_absent(OsStr::new(NAME), reason));
        assert!(is_absent(
            OsStr::new("/nowhere/libnvidia-ml.so.1"),
            "whatever"
        ));
    }
}
