//! Finds what limits gputop on this host, for `gputop doctor`. Calls no driver and opens no device.

use std::fs;
use std::path::Path;

use rustix::fs::{Access, access};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use super::nvml::library;
pub use super::procfs::HostSecrets;
use super::procfs::{is_initial_pid_namespace, read_cut};
use crate::base::text::Text;

/// The facts of this host and user that matter to gputop.
#[derive(Debug, Clone)]
pub struct Diagnostics {
    /// The version of NVIDIA's kernel module; `None` when the module is not loaded.
    pub kernel_module: Option<Text>,
    /// The path of the NVML library, and its version if the file name contains it. `None` when no
    /// library is found.
    pub library: Option<(Text, Option<Text>)>,
    /// Device files of GPUs and of the driver, and whether this user may open them.
    pub devices: Vec<(Text, bool)>,
    /// The software that runs this container; `None` outside of a known container.
    pub container: Option<&'static str>,
    /// Whether gputop runs in the initial PID namespace, where NVML and `/proc` use the same PIDs.
    pub is_initial_pid_namespace: bool,
    /// The mount option that hides other users' processes. `None` when `/proc` shows them.
    pub hidepid: Option<Text>,
    /// Yama's rule for reading the memory of other processes: 0 allows those of the same user.
    /// `None` without Yama.
    pub ptrace_scope: Option<u8>,
    /// Whether Linux has pidfds (5.3 or later), which are needed to end a process safely.
    pub has_pidfd: bool,
}

impl Diagnostics {
    /// Reads all facts. `only` is the NVML library that the user named, if any.
    pub fn read(only: Option<&Path>) -> Self {
        let read = |path: &str| fs::read_to_string(path).ok();
        Self {
            kernel_module: read("/proc/driver/nvidia/version")
                .and_then(|text| module_version(&text)),
            library: library::places(only)
                .iter()
                .find_map(|file| version_of(file)),
            devices: devices(),
            container: container(),
            is_initial_pid_namespace: is_initial_pid_namespace(),
            hidepid: read_cut("/proc/self/mounts")
                .ok()
                .and_then(|mounts| hidepid(&String::from_utf8_lossy(&mounts))),
            ptrace_scope: ptrace_scope(),
            has_pidfd: pidfd_open(getpid(), PidfdFlags::empty()).is_ok(),
        }
    }
}

/// Returns Yama's rule for reading and writing the memory of other processes. `None` without Yama.
pub(super) fn ptrace_scope() -> Option<u8> {
    fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope")
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// Returns the first word that is a version. The words before it differ between the open and the
/// closed kernel module.
fn module_version(text: &str) -> Option<Text> {
    let is_version = |word: &&str| {
        word.contains('.')
            && word
                .split('.')
                .all(|part| !part.is_empty() && part.parse::<u32>().is_ok())
    };
    text.lines()
        .next()?
        .split_whitespace()
        .find(is_version)
        .map(Text::from)
}

/// Returns the path of a library, and the version in the name of the file that it links to. `None`
/// without such a file.
fn version_of(file: &Path) -> Option<(Text, Option<Text>)> {
    let real = fs::canonicalize(file).ok()?;
    let name = real.file_name()?.to_string_lossy().into_owned();
    let version = name
        .split_once(".so.")
        .map(|(_, version)| version)
        .filter(|version| version.contains('.'));
    Some((
        Text::new(file.as_os_str().as_encoded_bytes()),
        version.map(Text::from),
    ))
}

fn devices() -> Vec<(Text, bool)> {
    let is_wanted = |name: &str| match name.strip_prefix("nvidia") {
        Some("ctl" | "-uvm") => true,
        Some(minor) => minor.parse::<u32>().is_ok(),
        None => false,
    };
    let entries = fs::read_dir("/dev").into_iter().flatten().flatten();
    let names = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| is_wanted(name));
    let paths = names.map(|name| format!("/dev/{name}"));
    let may_open = |path: &str| access(path, Access::READ_OK | Access::WRITE_OK).is_ok();
    let mut devices: Vec<_> = paths
        .map(|path| (Text::from(path.as_str()), may_open(&path)))
        .collect();
    devices.sort();
    devices
}

fn container() -> Option<&'static str> {
    let kubernetes = std::env::var_os("KUBERNETES_SERVICE_HOST").map(|_| "Kubernetes");
    let by_file = [
        ("/run/.containerenv", "Podman"),
        ("/.dockerenv", "Docker"),
        ("/singularity", "Apptainer"),
    ];
    kubernetes.or_else(|| {
        by_file
            .into_iter()
            .find(|(file, _)| Path::new(file).exists())
            .map(|(_, name)| name)
    })
}

/// Returns the `hidepid` option of the `/proc` mount. `None` when the option is absent or hides
/// nothing.
fn hidepid(mounts: &str) -> Option<Text> {
    let proc = mounts
        .lines()
        .rfind(|line| line.split(' ').nth(1) == Some("/proc"))?;
    let options = proc.split(' ').nth(3)?.split(',');
    let option = options
        .into_iter()
        .find(|option| option.starts_with("hidepid="))?;
    (!["hidepid=0", "hidepid=off"].contains(&option)).then(|| option.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_says_its_version_in_many_words() {
        let version = |text| module_version(text).map(|text| text.to_string());
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (root@b)  Sun\nGCC version:  gcc version 12.3.0";
        assert_eq!(version(open).as_deref(), Some("580.65.06"));
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.256.02  Thu May  2 14:37:44 UTC 2024";
        assert_eq!(version(closed).as_deref(), Some("470.256.02"));
        assert_eq!((version(""), version("no. version here")), (None, None));
    }

    #[test]
    fn hidden_processes_are_an_option_of_proc() {
        let hides = |options: &str| {
            hidepid(&format!(
                "tmp /tmp tmpfs rw,hidepid=2 0 0\nproc /proc proc {options} 0 0\n"
            ))
        };
        assert_eq!(
            hides("rw,nosuid,hidepid=invisible")
                .map(|option| option.to_string())
                .as_deref(),
            Some("hidepid=invisible")
        );
        assert_eq!((hides("rw,relatime"), hides("rw,hidepid=0")), (None, None));
    }
}
