//! One file, which a process of its own reads, replaces, creates, checks or plays.
//!
//! A home directory may be on a network that is down. A thread that waits for it in the kernel cannot be ended, and until it
//! returns, the shell waits for the whole process. So gputop leaves the file to a process that it can leave behind.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use rustix::fs::{Access, MemfdFlags, OFlags, access, memfd_create};
use rustix::io::Errno;

use crate::base::text::Text;
use crate::cli::FileAction;
use crate::commands::history;
use crate::commands::{outline, recorder_note};
use crate::output::{self, Exit};
use crate::source::{RecordingReader, detached_gputop};

/// The largest settings file in MiB. All settings together fit into a few KiB.
const LARGEST_MIB: u64 = 1;

/// Reads a file. A file that does not exist is [`io::ErrorKind::NotFound`]. Waits while the file system hangs.
pub(super) fn read(path: &Path) -> io::Result<String> {
    ask(FileAction::Read, path, Stdio::null())
}

/// Replaces a file at once: a reader finds the old text or the new one. Waits while the file system hangs.
pub(super) fn replace(path: &Path, text: &str) -> io::Result<()> {
    ask(FileAction::Replace, path, input_of(text.as_bytes())?).map(drop)
}

/// Writes a new file that only its owner may read. Returns its path, which has a number if the name was taken. Waits while the
/// file system hangs.
pub(super) fn create(path: &Path, text: &str) -> io::Result<PathBuf> {
    ask(FileAction::Create, path, input_of(text.as_bytes())?).map(PathBuf::from)
}

/// The input is complete before the process starts: this process may end at any time.
pub(super) fn input_of(text: &[u8]) -> io::Result<Stdio> {
    let mut input = File::from(memfd_create("input", MemfdFlags::CLOEXEC)?);
    input.write_all(text)?;
    input.rewind()?;
    Ok(input.into())
}

/// Checks that a file can be written. The file and the folders above it may not exist yet. Waits while the file system hangs.
pub(super) fn check(path: &Path) -> io::Result<()> {
    ask(FileAction::Check, path, Stdio::null()).map(drop)
}

/// Lets a process of its own act on a file. Returns the standard output of the process.
pub(super) fn ask(action: FileAction, path: &Path, input: Stdio) -> io::Result<String> {
    let mut command = detached_gputop();
    command.arg("file-action").arg(action.name()).arg("--").arg(path);
    let output = command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()).output()?;
    if output.status.success() {
        return String::from_utf8(output.stdout).map_err(io::Error::other);
    }
    Err(match output.status.code() {
        Some(code) if code == Exit::Nothing as i32 => Errno::NOENT.into(),
        _ => io::Error::other(
            String::from_utf8_lossy(&output.stderr).trim_end().trim_start_matches("gputop: ").to_owned(),
        ),
    })
}

/// Acts on a file in this process, which [`ask`] or a replay started.
pub(crate) fn act(action: FileAction, path: &Path, from: Option<u64>) -> ExitCode {
    let result = match action {
        FileAction::Read => read_here(path),
        FileAction::Replace => io::read_to_string(io::stdin()).and_then(|text| replace_here(path, &text)),
        FileAction::Create => io::read_to_string(io::stdin()).and_then(|text| create_here(path, &text)),
        FileAction::Check => check_here(path),
        FileAction::Play => play_here(path, from),
        FileAction::Outline => outline::print(path).map(|()| String::new()),
        FileAction::KeepHistory => history::write_here(path, io::stdin().lock()).map(|()| String::new()),
        FileAction::ReadHistory => history::read_here(path),
        FileAction::ReadRecorder => recorder_note::read_here(path),
    };
    let Err(error) = result.and_then(|text| io::stdout().write_all(text.as_bytes())) else {
        return Exit::Success.into();
    };
    output::print_error(&Text::new(error.to_string()));
    if error.kind() == io::ErrorKind::NotFound { Exit::Nothing.into() } else { Exit::Error.into() }
}

fn read_here(path: &Path) -> io::Result<String> {
    // Opening a pipe without a writer would block.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).map_err(io::Error::other)?;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    if file.take((LARGEST_MIB << 20) + 1).read_to_string(&mut text)? as u64 > LARGEST_MIB << 20 {
        return Err(io::Error::other(format!("it is larger than {LARGEST_MIB} MiB")));
    }
    Ok(text)
}

fn replace_here(path: &Path, text: &str) -> io::Result<String> {
    // Users link config.toml to a repository of such files: the link stays.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let draft = path.with_extension(format!("{}.tmp", std::process::id()));
    fs::write(&draft, text)?;
    fs::rename(&draft, &path).inspect_err(|_| _ = fs::remove_file(&draft))?;
    Ok(String::new())
}

fn create_here(path: &Path, text: &str) -> io::Result<String> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let (stem, ending) = (path.file_stem().unwrap_or_default(), path.extension().unwrap_or_default());
    let numbered =
        |number: u32| path.with_file_name(format!("{}-{number}.{}", stem.to_string_lossy(), ending.to_string_lossy()));
    for path in std::iter::once(path.to_owned()).chain((2..1000).map(numbered)) {
        match File::options().write(true).create_new(true).mode(0o600).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            file => {
                file?.write_all(text.as_bytes())?;
                return Ok(path.to_string_lossy().into_owned());
            }
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn check_here(path: &Path) -> io::Result<String> {
    let existing = path.ancestors().find(|ancestor| ancestor.exists()).ok_or(Errno::NOENT)?;
    if existing != path && !existing.is_dir() {
        return Err(Errno::NOTDIR.into());
    }
    access(existing, Access::WRITE_OK)?;
    Ok(String::new())
}

/// Prints the lines of a recording, from where a replay must begin to show the moment `from` (milliseconds since 1970). At the
/// end, the error says what is wrong with the recording.
fn play_here(path: &Path, from: Option<u64>) -> io::Result<String> {
    let problems = print_lines(path, from).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => error,
        kind => io::Error::new(kind, format!("cannot read {}: {error}", path.display())),
    })?;
    if problems.is_empty() { Ok(String::new()) } else { Err(io::Error::other(problems.join("; "))) }
}

/// Prints the lines of a recording. Returns what is wrong with it.
fn print_lines(path: &Path, from: Option<u64>) -> io::Result<Vec<String>> {
    let mut reader = RecordingReader::open(path)?;
    if let Some(from) = from {
        reader.seek(from)?;
    }
    let is_pipe = reader.is_pipe();
    let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
    while let Some(line) = reader.next_line()? {
        out.write_all(line)?;
        out.write_all(b"\n")?;
        // The writer of a pipe may be slow.
        if is_pipe {
            out.flush()?;
        }
    }
    out.flush()?;
    Ok(reader.problems())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_can_be_made_where_the_folder_above_it_can_be() {
        let home = tempfile::tempdir().unwrap();
        let may_write = |path: &Path| check_here(path).is_ok();
        assert!(may_write(&home.path().join("not/yet/there")));
        fs::write(home.path().join("file"), "").unwrap();
        assert!(may_write(&home.path().join("file")));
        assert!(!may_write(&home.path().join("file/below")), "a file is no folder");
    }
}
