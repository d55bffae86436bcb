//! `gputop file-action`: acts on one file, which may be on a file system that hangs.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;

use rustix::fs::{Access, OFlags, access};
use rustix::io::Errno;

use super::{history, outline, recorder};
use crate::base::text::Text;
use crate::files::action::{FileAction, NOT_FOUND};
use crate::output::{self, Exit};
use crate::source::RecordingReader;

/// The largest settings file in MiB. All settings together fit into a few KiB.
const LARGEST_MIB: u64 = 1;

/// Acts on a file in this process, which [`ask`](crate::files::action::ask) or a replay started.
pub(crate) fn act(action: FileAction, path: &Path, from: Option<u64>) -> ExitCode {
    let result = match action {
        FileAction::Read => read_here(path),
        FileAction::Replace => {
            io::read_to_string(io::stdin()).and_then(|text| replace_here(path, &text))
        }
        FileAction::Create => {
            io::read_to_string(io::stdin()).and_then(|text| create_here(path, &text))
        }
        FileAction::Check => check_here(path),
        FileAction::Play => play_here(path, from),
        FileAction::Outline => outline::print(path).map(|()| String::new()),
        FileAction::KeepHistory => {
            history::write_here(path, io::stdin().lock()).map(|()| String::new())
        }
        FileAction::ReadHistory => history::read_here(path),
        FileAction::ReadRecorder => recorder::read_here(path),
    };
    let Err(error) = result.and_then(|text| io::stdout().write_all(text.as_bytes())) else {
        return Exit::Success.into();
    };
    output::print_error(&Text::new(error.to_string()));
    if error.kind() == io::ErrorKind::NotFound {
        ExitCode::from(NOT_FOUND)
    } else {
        Exit::Error.into()
    }
}

fn read_here(path: &Path) -> io::Result<String> {
    // Opening a pipe without a writer would block.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).map_err(io::Error::other)?;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    if file
        .take((LARGEST_MIB << 20) + 1)
        .read_to_string(&mut text)? as u64
        > LARGEST_MIB << 20
    {
        return Err(io::Error::other(format!(
            "it is larger than {LARGEST_MIB} MiB"
        )));
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
    let (stem, ending) = (
        path.file_stem().unwrap_or_default(),
        path.extension().unwrap_or_default(),
    );
    let numbered = |number: u32| {
        path.with_file_name(format!(
            "{}-{number}.{}",
            stem.to_string_lossy(),
            ending.to_string_lossy()
        ))
    };
    for path in std::iter::once(path.to_owned()).chain((2..1000).map(numbered)) {
        match File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
        {
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
    let existing = path
        .ancestors()
        .find(|ancestor| ancestor.exists())
        .ok_or(Errno::NOENT)?;
    if existing != path && !existing.is_dir() {
        return Err(Errno::NOTDIR.into());
    }
    access(existing, Access::WRITE_OK)?;
    Ok(String::new())
}

/// Prints the lines of a recording, from where a replay must begin to show the moment `from`
/// (milliseconds since 1970). At the end, the error says what is wrong with the recording.
fn play_here(path: &Path, from: Option<u64>) -> io::Result<String> {
    let problems = print_lines(path, from).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => error,
        kind => io::Error::new(kind, format!("cannot read {}: {error}", path.display())),
    })?;
    if problems.is_empty() {
        Ok(String::new())
    } else {
        Err(io::Error::other(problems.join("; ")))
    }
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
        assert!(
            !may_write(&home.path().join("file/below")),
            "a file is no folder"
        );
    }
}
