//! One settings file, which a process of its own reads or replaces.
//!
//! A home directory may be on a network that is down. A thread that waits for it in the kernel cannot be ended, and until it
//! returns, the shell waits for the whole process. So the screen leaves the file to a process that it can leave behind.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{ExitCode, Stdio};

use rustix::fs::{MemfdFlags, OFlags, memfd_create};
use rustix::io::Errno;

use crate::base::text::Text;
use crate::cli::FileAction;
use crate::commands::report::{self, Exit};
use crate::source::detached_gputop;

/// The largest settings file in MiB. All settings together fit into a few KiB.
const LARGEST_MIB: u64 = 1;

/// Reads a file. A file that does not exist is [`io::ErrorKind::NotFound`]. Waits while the file system hangs.
pub(super) fn read(path: &Path) -> io::Result<String> {
    ask(FileAction::Read, path, Stdio::null())
}

/// Replaces a file at once: a reader finds the old text or the new one. Waits while the file system hangs.
pub(super) fn replace(path: &Path, text: &str) -> io::Result<()> {
    // The input is complete before the process starts: this process may end at any time.
    let mut input = File::from(memfd_create("settings", MemfdFlags::CLOEXEC)?);
    input.write_all(text.as_bytes())?;
    input.rewind()?;
    ask(FileAction::Replace, path, input.into()).map(drop)
}

/// Lets a process of its own act on a file. Returns the standard output of the process.
fn ask(action: FileAction, path: &Path, input: Stdio) -> io::Result<String> {
    let mut command = detached_gputop();
    command.arg("settings-file").arg(action.name()).arg("--").arg(path);
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

/// Acts on a file in this process, which [`ask`] started.
pub(crate) fn act(action: FileAction, path: &Path) -> ExitCode {
    let result = match action {
        FileAction::Read => read_here(path),
        FileAction::Replace => io::read_to_string(io::stdin()).and_then(|text| replace_here(path, &text)),
    };
    let exit = match result.and_then(|text| io::stdout().write_all(text.as_bytes())) {
        Ok(()) => Exit::Success,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Exit::Nothing,
        Err(error) => {
            report::print_error(&Text::new(error.to_string()));
            Exit::Error
        }
    };
    exit.into()
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
