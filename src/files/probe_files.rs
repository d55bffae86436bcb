//! Unpacks the probe, which is part of this binary, into a private folder, and checks every file
//! there each time.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;

use rustix::process::geteuid;

use crate::files::{folders, private_folder};

/// The files of the probe: their paths in `assets/probe/`, and their contents.
macro_rules! probe_files {
    ($($path:literal)*) => {
        &[$(($path, include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/probe/", $path)))),*]
    };
}

const FILES: &[(&str, &[u8])] = probe_files! {
    "attach.py"
    "estimate_command.py"
    "gputop_probe/__init__.py"
    "gputop_probe/allocator.py"
    "gputop_probe/authors.py"
    "gputop_probe/boot.py"
    "gputop_probe/causes.py"
    "gputop_probe/changes.py"
    "gputop_probe/code_lines.py"
    "gputop_probe/cycles.py"
    "gputop_probe/diagnosis.py"
    "gputop_probe/estimates.py"
    "gputop_probe/extended.py"
    "gputop_probe/fake_cuda.py"
    "gputop_probe/files.py"
    "gputop_probe/frames.py"
    "gputop_probe/graphs.py"
    "gputop_probe/holders.py"
    "gputop_probe/hugging_face.py"
    "gputop_probe/kept.py"
    "gputop_probe/kernel_memory.py"
    "gputop_probe/last_state.py"
    "gputop_probe/labels.py"
    "gputop_probe/leaks.py"
    "gputop_probe/lengths.py"
    "gputop_probe/ledger.py"
    "gputop_probe/lines.py"
    "gputop_probe/measurement.py"
    "gputop_probe/meta_device.py"
    "gputop_probe/modules.py"
    "gputop_probe/nested.py"
    "gputop_probe/next_event.py"
    "gputop_probe/objects.py"
    "gputop_probe/ooms.py"
    "gputop_probe/passes.py"
    "gputop_probe/paths.py"
    "gputop_probe/probe.py"
    "gputop_probe/publish.py"
    "gputop_probe/readings.py"
    "gputop_probe/requests.py"
    "gputop_probe/shares.py"
    "gputop_probe/sharding.py"
    "gputop_probe/simulation.py"
    "gputop_probe/state.py"
    "gputop_probe/step_memory.py"
    "gputop_probe/steps.py"
    "gputop_probe/test_steps.py"
    "gputop_probe/trouble.py"
    "gputop_probe/variants.py"
    "inject.py"
    "no_driver/libcuda.so.1"
    "sitecustomize.py"
};

/// The file that begins with the name of its folder, because Python does not tell it.
const ATTACH: &str = "attach.py";

/// Unpacks the probe where that is necessary. Returns its folder.
///
/// The name of the folder has a checksum of the probe, so that another version of gputop does not
/// change the files of a running program.
///
/// # Errors
///
/// When no folder can be used. The error names the last one that was tried.
pub(crate) fn unpack() -> Result<PathBuf, String> {
    let mut checksum = crc32fast::Hasher::new();
    for (path, bytes) in FILES {
        checksum.update(path.as_bytes());
        checksum.update(bytes);
    }
    let name = format!(
        "gputop-probe-{}-{:08x}",
        env!("CARGO_PKG_VERSION"),
        checksum.finalize()
    );
    let mut why = String::new();
    for parent in parents() {
        let is_shared = parent == Path::new(TEMPORARY);
        // The names of users differ in a folder of all.
        let folder = parent.join(if is_shared {
            format!("{name}-{}", geteuid().as_raw())
        } else {
            name.clone()
        });
        match unpack_into(&parent, &folder) {
            Ok(()) => return Ok(folder),
            Err(error) => why = format!("cannot unpack it into {}: {error}", folder.display()),
        }
    }
    Err(why)
}

const TEMPORARY: &str = "/tmp";

/// Returns the folders in which the probe may be unpacked, the best first. Python may load parts of
/// the probe long after the start, so a folder that outlives the login comes before that of the
/// login. Containers of clusters share the home folder.
fn parents() -> impl Iterator<Item = PathBuf> {
    // A colon would end the element of PYTHONPATH.
    let can_be_element = |path: &PathBuf| !path.as_os_str().as_encoded_bytes().contains(&b':');
    let parents = [
        folders::cache_folder(),
        folders::runtime_folder(),
        Some(TEMPORARY.into()),
    ];
    parents.into_iter().flatten().filter(can_be_element)
}

fn unpack_into(parent: &Path, folder: &Path) -> io::Result<()> {
    if !parent.exists() {
        fs::DirBuilder::new().mode(0o700).create(parent)?;
    }
    for ancestor in fs::canonicalize(parent)?.ancestors() {
        check_owner(ancestor)?;
    }
    private_folder::open(folder)?;
    for (path, bytes) in FILES {
        let path = folder.join(path);
        if let Some(subfolder) = path.parent().filter(|subfolder| *subfolder != folder) {
            private_folder::open(subfolder)?;
        }
        let is_attach = path == folder.join(ATTACH);
        let content = if is_attach {
            [folder_line(folder).as_bytes(), bytes].concat()
        } else {
            bytes.to_vec()
        };
        if !has_content(&path, &content) {
            write(&path, &content)?;
        }
    }
    Ok(())
}

/// Returns a line of Python that names a folder.
fn folder_line(folder: &Path) -> String {
    let escaped = folder
        .as_os_str()
        .as_encoded_bytes()
        .iter()
        .fold(String::new(), |text, byte| match byte {
            b'/' | b'-' | b'_' | b'.' => text + &char::from(*byte).to_string(),
            byte if byte.is_ascii_alphanumeric() => text + &char::from(*byte).to_string(),
            byte => text + &format!("\\x{byte:02x}"),
        });
    format!("FOLDER = __import__(\"os\").fsdecode(b\"{escaped}\")\n")
}

/// Fails if another user may replace what is in a folder: with `sudo`, the home folder may be that
/// of the user who called it.
fn check_owner(folder: &Path) -> io::Result<()> {
    const STICKY: u32 = 0o1000;
    const WRITABLE_BY_OTHERS: u32 = 0o022;
    let metadata = fs::metadata(folder)?;
    let is_trusted = metadata.uid() == 0 || metadata.uid() == geteuid().as_raw();
    let is_writable = metadata.mode() & WRITABLE_BY_OTHERS != 0 && metadata.mode() & STICKY == 0;
    if is_trusted && !is_writable {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "other users may change {}",
        folder.display()
    )))
}

/// Whether a file is a plain file with exactly these bytes.
fn has_content(path: &Path, bytes: &[u8]) -> bool {
    let mut content = Vec::new();
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path);
    let read = file.and_then(|file| file.take(bytes.len() as u64 + 1).read_to_end(&mut content));
    read.is_ok() && content == bytes
}

/// Writes a file under a temporary name and renames it: another `gputop run` may start a program at
/// the same time.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension(format!("{}.tmp", process::id()));
    let _left_over: io::Result<()> = fs::remove_file(&temporary);
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)?
        .write_all(bytes)?;
    fs::rename(&temporary, path)
}
