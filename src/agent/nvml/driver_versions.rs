//! The versions of the NVML library and of the kernel module, for a driver that does not start
//! because they differ.

use std::fs;
use std::path::PathBuf;

use crate::agent::procfs::device_files::stand_in;
use crate::base::text::Text;

/// How the file of the library is called, before its version.
const LIBRARY: &str = "libnvidia-ml.so.";

/// Says that the versions differ, and which they are as far as they can be read.
pub(super) fn mismatch() -> String {
    let maps = fs::read_to_string("/proc/self/maps");
    sentence(
        maps.as_ref().ok().and_then(|maps| library_version(maps)),
        module_version(),
    )
}

fn sentence(library: Option<&str>, module: Option<String>) -> String {
    let versions = match (library, module) {
        (Some(library), Some(module)) => {
            format!(
                "the NVIDIA library has version {library}, and the kernel module has version {module}"
            )
        }
        (library, module) => {
            let in_brackets = |version: Option<&str>| {
                version.map_or(String::new(), |version| format!(" ({version})"))
            };
            let (library, module) = (in_brackets(library), in_brackets(module.as_deref()));
            format!(
                "the NVIDIA library{library} and the kernel module{module} are of different versions"
            )
        }
    };
    format!("{versions}: the driver was updated, so reboot or reload the module")
}

/// The version of the library that this process has loaded, from its file name in
/// `/proc/self/maps`.
fn library_version(maps: &str) -> Option<&str> {
    let versions = maps.lines().filter_map(|line| {
        let (_, rest) = line.rsplit_once('/')?.1.split_once(LIBRARY)?;
        version(rest)
    });
    // The name `libnvidia-ml.so.1` has no version of the driver.
    versions.into_iter().find(|version| version.contains('.'))
}

/// The version of the kernel module that is loaded.
fn module_version() -> Option<String> {
    let files = ["/proc/driver/nvidia/version", "/sys/module/nvidia/version"].map(PathBuf::from);
    let files = stand_in("-version").into_iter().chain(files);
    files
        .into_iter()
        .find_map(|file| module_version_in(&fs::read_to_string(file).ok()?).map(str::to_owned))
}

/// Parses `NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 …`, or the version
/// alone.
fn module_version_in(text: &str) -> Option<&str> {
    text.lines()
        .next()?
        .split_ascii_whitespace()
        .find_map(|word| version(word).filter(|version| *version == word))
}

/// The version at the beginning of a text: numbers with dots between them.
fn version(text: &str) -> Option<&str> {
    let end = text
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .unwrap_or(text.len());
    let version = &text[..end.min(Text::LIMIT)];
    (version.contains('.') && version.starts_with(|letter: char| letter.is_ascii_digit()))
        .then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_read() {
        let maps = "7f00-7f10 r--p 00000000 fe:00 12 /usr/lib/x86_64-linux-gnu/libc.so.6\n\
            7f10-7f20 r--p 00000000 fe:00 13 /usr/lib/libnvidia-ml.so.1\n\
            7f20-7f30 r-xp 00000000 fe:00 14 /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.535.161.07 (deleted)\n";
        assert_eq!(library_version(maps), Some("535.161.07"));
        assert_eq!(library_version(""), None);
        for (text, version) in [
            (
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 22:20:39 UTC 2023\nGCC 12.3.0\n",
                "535.54.03",
            ),
            (
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n",
                "580.65.06",
            ),
            ("550.90.07\n", "550.90.07"),
        ] {
            assert_eq!(module_version_in(text), Some(version));
        }
        assert_eq!(module_version_in("no version"), None);
    }

    #[test]
    fn a_version_that_is_not_known_is_left_out() {
        let sentence = |library, module: Option<&str>| sentence(library, module.map(str::to_owned));
        assert!(sentence(Some("535.161.07"), Some("535.54.03")).starts_with(
            "the NVIDIA library has version 535.161.07, and the kernel module has version 535.54.03: the driver was updated"
        ));
        assert!(
            sentence(None, Some("535.54.03")).starts_with(
                "the NVIDIA library and the kernel module (535.54.03) are of different versions: the driver"
            )
        );
    }
}
