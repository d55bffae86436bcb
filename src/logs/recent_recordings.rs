//! The recordings that `gputop replay`, `report` and `diff` take when none is named: the newest of
//! this host in the folder of recordings.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, bail};

use crate::base::text::Text;
use crate::files::folders::recording_file;
use crate::output::print_error;

/// How the names of recordings end.
const ENDING: &str = ".jsonl.zst";

/// The name of the recordings of the simulated machine, without ending.
pub(crate) const SIMULATED: &str = "demo";

/// Returns the newest recording of this host, and prints its path to the standard error.
///
/// # Errors
///
/// When there is none, or the folder of recordings cannot be read.
pub(crate) fn newest() -> anyhow::Result<PathBuf> {
    let (folder, found) = of_this_host()?;
    let Some(newest) = found.into_iter().next() else {
        bail!(
            "no recording of this host is in {}: make one with `gputop record`, or name a file{}",
            folder.display(),
            of_simulated_machine(&folder)
        );
    };
    print_taken(&newest);
    Ok(newest)
}

/// Returns the two newest recordings of this host, the older one first, and prints their paths to
/// the standard error.
///
/// # Errors
///
/// When there are fewer, or the folder of recordings cannot be read.
pub(crate) fn two_newest() -> anyhow::Result<[PathBuf; 2]> {
    let (folder, found) = of_this_host()?;
    let count = found.len();
    let mut found = found.into_iter();
    let (Some(newest), Some(older)) = (found.next(), found.next()) else {
        let found = if count == 0 {
            "no recording"
        } else {
            "only one recording"
        };
        bail!(
            "{found} of this host is in {}, and two are needed: name two files, or two parts of one{}",
            folder.display(),
            of_simulated_machine(&folder)
        );
    };
    print_taken(&older);
    print_taken(&newest);
    Ok([older, newest])
}

fn print_taken(path: &Path) {
    print_error(&Text::new(format!("taking {}", path.display())));
}

/// Returns the end of a sentence that names the recording of the simulated machine, which is none of
/// this host; empty if there is none.
fn of_simulated_machine(folder: &Path) -> String {
    let file = folder.join(format!("{SIMULATED}{ENDING}"));
    if file.is_file() {
        format!(
            "; {} is that of the simulated machine (`gputop record --demo`)",
            file.display()
        )
    } else {
        String::new()
    }
}

/// Returns the folder of recordings, and the recordings of this host in it, the newest first.
fn of_this_host() -> anyhow::Result<(PathBuf, Vec<PathBuf>)> {
    let folder = recording_file("").context("HOME is not set: name a file")?;
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let found = match fs::read_dir(&folder) {
        Ok(entries) => newest_first(entries, &host),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read {}", folder.display()));
        }
    };
    Ok((folder, found))
}

fn newest_first(entries: fs::ReadDir, host: &str) -> Vec<PathBuf> {
    let mut found: Vec<(SystemTime, PathBuf)> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            let is_of_host = is_of_host(entry.file_name().to_str()?, host);
            let written = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            is_of_host.then(|| (written, entry.path()))
        })
        .collect();
    found.sort_unstable_by(|a, b| b.cmp(a));
    found.into_iter().map(|(_, path)| path).collect()
}

/// Whether a file has the name that `gputop record` gives to a recording of a host
/// (`gpu-1.jsonl.zst`), or the screen does (`gpu-1-2026-11-23T034112.jsonl.zst`).
fn is_of_host(file: &str, host: &str) -> bool {
    let plain = |name: &str| -> String {
        name.chars()
            .map(|letter| {
                if letter.is_ascii_alphanumeric() {
                    letter
                } else {
                    '-'
                }
            })
            .collect()
    };
    let Some(stem) = file.strip_suffix(ENDING).map(plain) else {
        return false;
    };
    let is_time = |text: &str| {
        let text = text.as_bytes();
        let fits = |(letter, form): (&u8, &u8)| match form {
            b'0' => letter.is_ascii_digit(),
            form => letter == form,
        };
        let form = b"0000-00-00T000000";
        text.len() == form.len() && text.iter().zip(form).all(fits)
    };
    match stem.strip_prefix(&plain(host)) {
        Some("") => true,
        Some(rest) => rest.strip_prefix('-').is_some_and(is_time),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recordings_of_record_and_of_the_screen_are_of_the_host_and_those_of_others_are_not() {
        for (file, expected) in [
            ("gpu-1.lab.jsonl.zst", true),
            ("gpu-1-lab-2026-11-23T034112.jsonl.zst", true),
            ("gpu-1.lab.jsonl.zst.1", false),
            ("gpu-1.laboratory.jsonl.zst", false),
            ("gpu-1-lab-2-2026-11-23T034112.jsonl.zst", false),
            ("demo.jsonl.zst", false),
            ("hosts-2026-11-23T034112.jsonl.zst", false),
        ] {
            assert_eq!(is_of_host(file, "gpu-1.lab"), expected, "{file}");
        }
    }

    #[test]
    fn the_recording_that_was_written_last_comes_first() {
        let folder = tempfile::tempdir().expect("/tmp has room");
        for (name, seconds) in [
            ("box-2026-11-23T034112.jsonl.zst", 20),
            ("box.jsonl.zst", 30),
            ("other.jsonl.zst", 40),
            ("box-2026-11-22T034112.jsonl.zst", 10),
        ] {
            let file = fs::File::create(folder.path().join(name)).expect("/tmp has room");
            let written = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            file.set_modified(written).expect("it is ours");
        }
        let entries = fs::read_dir(folder.path()).expect("it is ours");
        let names: Vec<_> = newest_first(entries, "box")
            .into_iter()
            .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
            .collect();
        let expected = [
            "box.jsonl.zst",
            "box-2026-11-23T034112.jsonl.zst",
            "box-2026-11-22T034112.jsonl.zst",
        ];
        assert_eq!(names, expected);
    }
}
