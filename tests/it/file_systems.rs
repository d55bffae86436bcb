//! File systems that do not answer. Only root can mount them.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use crate::host::Host;
use crate::print_note;

/// A frozen file system, where writes hang in the kernel.
pub(crate) struct FrozenFileSystem {
    pub(crate) host: Host,
}

impl FrozenFileSystem {
    /// `None` where no file system can be mounted or frozen, with a note.
    pub(crate) fn new() -> Option<Self> {
        let frozen = Self { host: Host::new(["H100"]) };
        fs::create_dir(frozen.path()).ok()?;
        File::create(frozen.host.path("image")).ok()?.set_len(8 << 20).ok()?;
        let is_frozen = frozen.runs("mkfs.ext4", &["-q"], "image")
            && frozen.runs("mount", &["-o", "loop", frozen.host.path("image").to_str()?], "frozen")
            && frozen.runs("fsfreeze", &["-f"], "frozen");
        if !is_frozen {
            print_note("skipped: no file system can be mounted and frozen here");
        }
        is_frozen.then_some(frozen)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.host.path("frozen")
    }

    pub(crate) fn thaw(&self) {
        self.runs("fsfreeze", &["-u"], "frozen");
    }

    fn runs(&self, program: &str, arguments: &[&str], name: &str) -> bool {
        succeeds(Command::new(program).args(arguments).arg(self.host.path(name)).stdin(Stdio::null()))
    }
}

impl Drop for FrozenFileSystem {
    fn drop(&mut self) {
        self.thaw();
        // Lazily: a process that hung may take a moment to close its file.
        self.runs("umount", &["-l"], "frozen");
    }
}

fn succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// A file system of FUSE whose server takes every request and answers none. A process that opens a file there hangs in the
/// kernel, where no signal reaches it.
pub(crate) struct HungFileSystem {
    path: PathBuf,
}

impl HungFileSystem {
    /// The length of the longest request that the kernel sends.
    const LONGEST_REQUEST: usize = 1 << 18;

    /// Mounts the file system there. `None` where that is not possible, with a note.
    pub(crate) fn mount(path: &Path) -> Option<Self> {
        let mounted = Self::try_mount(path);
        if mounted.is_none() {
            print_note("skipped: no file system of FUSE can be mounted here");
        }
        mounted
    }

    fn try_mount(path: &Path) -> Option<Self> {
        fs::create_dir_all(path).ok()?;
        let mut server = File::options().read(true).write(true).open("/dev/fuse").ok()?;
        let mut mount = Command::new("mount");
        mount.args(["-i", "-t", "fuse", "-o", "fd=0,rootmode=40000,user_id=0,group_id=0", "gputop-test"]).arg(path);
        succeeds(mount.stdin(server.try_clone().ok()?)).then_some(())?;
        let mounted = Self { path: path.to_owned() };
        let mut request = vec![0; Self::LONGEST_REQUEST];
        let length = server.read(&mut request).ok()?;
        server.write_all(&Self::reply_to_init(&request[..length])).ok()?;
        // Ends when the file system is unmounted.
        thread::spawn(move || while server.read(&mut request).is_ok() {});
        Some(mounted)
    }

    /// Returns the reply to the first request, without which the kernel would send no other.
    fn reply_to_init(request: &[u8]) -> Vec<u8> {
        /// The lengths of `struct fuse_out_header` and `struct fuse_init_out`.
        const LENGTH: u32 = 16 + 64;
        const VERSION: [u32; 2] = [7, 31];
        let mut reply = Vec::new();
        reply.extend(LENGTH.to_ne_bytes());
        reply.extend(0_u32.to_ne_bytes());
        // The number of the request.
        reply.extend(&request[8..16]);
        reply.extend(VERSION.map(u32::to_ne_bytes).as_flattened());
        // No read-ahead, no flags, the kernel's limits on background requests, and the shortest `max_write`.
        reply.extend([0, 0, 0, 4096].map(u32::to_ne_bytes).as_flattened());
        reply.resize(LENGTH as usize, 0);
        reply
    }
}

impl Drop for HungFileSystem {
    fn drop(&mut self) {
        // By force: the requests that wait fail, and the processes that wait for them go on.
        succeeds(Command::new("umount").args(["-c", "-f", "-l"]).arg(&self.path));
    }
}
