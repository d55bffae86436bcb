//! Where gputop's files are: the folders of the XDG Base Directory Specification.

use std::env;
use std::path::PathBuf;

use rustix::process::geteuid;

/// For tests: the prefix of the plain files that stand in for GPUs. The shared folder is beside
/// them.
const DEVICES_VARIABLE: &str = "GPUTOP_DEVICES";

/// Returns the path of a file of gputop in the folder for settings; `None` without a home
/// directory.
pub(crate) fn config_file(name: &str) -> Option<PathBuf> {
    Some(
        below_home("XDG_CONFIG_HOME", ".config")?
            .join("gputop")
            .join(name),
    )
}

/// Returns the path of a file of gputop in the folder for state, which outlives a program; `None`
/// without a home directory.
pub(crate) fn state_file(name: &str) -> Option<PathBuf> {
    Some(state_folder()?.join(name))
}

/// Returns the path of a recording in the folder where recordings are kept; `None` without a home
/// directory.
pub(crate) fn recording_file(name: &str) -> Option<PathBuf> {
    Some(state_folder()?.join("recordings").join(name))
}

/// Returns gputop's folder for state; `None` without a home directory.
pub(crate) fn state_folder() -> Option<PathBuf> {
    Some(below_home("XDG_STATE_HOME", ".local/state")?.join("gputop"))
}

/// Returns the folder in which programs keep what they can make anew; `None` without a home
/// directory.
pub(crate) fn cache_folder() -> Option<PathBuf> {
    below_home("XDG_CACHE_HOME", ".cache")
}

/// Returns the folder of the user's login, which goes when the user logs out; `None` when there is
/// none.
pub(crate) fn runtime_folder() -> Option<PathBuf> {
    absolute("XDG_RUNTIME_DIR")
}

/// Returns gputop's folder that is the same in all sessions of a user, whether or not somebody is
/// logged in. Variables such as `XDG_RUNTIME_DIR` and `TMPDIR` are set in some of them only, and a
/// folder of the login does not outlive it, as a job may.
pub(crate) fn shared_folder() -> PathBuf {
    match env::var_os(DEVICES_VARIABLE) {
        Some(mut prefix) => {
            prefix.push("-locks");
            prefix.into()
        }
        None => format!("/tmp/gputop-{}", geteuid().as_raw()).into(),
    }
}

/// Returns the folder of the sockets of ssh connections that gputop opens, which only this user may
/// enter.
pub(crate) fn masters_folder() -> PathBuf {
    runtime_folder().map_or_else(shared_folder, |folder| folder.join("gputop"))
}

fn below_home(variable: &str, default: &str) -> Option<PathBuf> {
    absolute(variable).or_else(|| Some(absolute("HOME")?.join(default)))
}

/// Returns the path in a variable. The specification says that a relative one counts as absent.
fn absolute(variable: &str) -> Option<PathBuf> {
    env::var_os(variable)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
}
