//! File systems that do not answer. Only root can mount them.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::host::Host;
use crate::{DEADLINE, print_note};

/// Releases a file system when the test is over, or takes too long: then the processes that wait
/// for it go on, and the test fails instead of waiting for them for ever.
struct FileSystemGuard {
    /// Closed when the test is over.
    test: Option<Sender<()>>,
    /// Returns whether the test took too long.
    thread: Option<JoinHandle<bool>>,
}

impl FileSystemGuard {
    /// Longer than a test waits for any condition.
    const LIMIT: Duration = DEADLINE.saturating_mul(2);

    fn new(release: impl FnOnce() + Send + 'static) -> Self {
        let (test, end_of_test) = mpsc::channel();
        let thread = thread::spawn(move || {
            let is_late = end_of_test.recv_timeout(Self::LIMIT) == Err(RecvTimeoutError::Timeout);
            release();
            is_late
        });
        Self {
            test: Some(test),
            thread: Some(thread),
        }
    }
}

impl Drop for FileSystemGuard {
    fn drop(&mut self) {
        drop(self.test.take());
        let is_late = self
            .thread
            .take()
            .is_some_and(|thread| thread.join().unwrap_or(true));
        assert!(
            !is_late || thread::panicking(),
            "a process waited for the file system for {:?}",
            Self::LIMIT
        );
    }
}

/// A frozen file system, where writes hang in the kernel.
pub(crate) struct FrozenFileSystem {
    /// Dropped before the host, whose processes may wait for the file system.
    _guard: FileSystemGuard,
    pub(crate) host: Host,
}

impl FrozenFileSystem {
    /// `None` where no file system can be mounted or frozen, with a note.
    pub(crate) fn new() -> Option<Self> {
        let frozen = Self::try_new();
        if frozen.is_none() {
            print_note("skipped: no file system can be mounted and frozen here");
        }
        frozen
    }

    fn try_new() -> Option<Self> {
        let host = Host::new(["H100"]);
        let (image, path) = (host.path("image"), host.path("frozen"));
        fs::create_dir(&path).ok()?;
        File::create(&image).ok()?.set_len(8 << 20).ok()?;
        let mounted = path.clone();
        let guard = FileSystemGuard::new(move || {
            succeeds(Command::new("fsfreeze").arg("-u").arg(&mounted));
            // Lazily: a process that hung may take a moment to close its file.
            succeeds(Command::new("umount").arg("-l").arg(&mounted));
        });
        let is_frozen = succeeds(Command::new("mkfs.ext4").arg("-q").arg(&image))
            && succeeds(
                Command::new("mount")
                    .args(["-o", "loop"])
                    .arg(&image)
                    .arg(&path),
            )
            && succeeds(Command::new("fsfreeze").arg("-f").arg(&path));
        is_frozen.then_some(Self {
            _guard: guard,
            host,
        })
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.host.path("frozen")
    }

    pub(crate) fn thaw(&self) {
        succeeds(Command::new("fsfreeze").arg("-u").arg(self.path()));
    }

    /// Freezes the file system again.
    #[track_caller]
    pub(crate) fn freeze(&self) {
        assert!(
            succeeds(Command::new("fsfreeze").arg("-f").arg(self.path())),
            "it was frozen before"
        );
    }
}

fn succeeds(command: &mut Command) -> bool {
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// A file system of FUSE whose server takes every request and answers none. A process that opens a
/// file there hangs in the kernel, where no signal reaches it.
pub(crate) struct HungFileSystem {
    _guard: FileSystemGuard,
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
        let mut server = File::options()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .ok()?;
        let mut mount = Command::new("mount");
        mount
            .args([
                "-i",
                "-t",
                "fuse",
                "-o",
                "fd=0,rootmode=40000,user_id=0,group_id=0",
                "gputop-test",
            ])
            .arg(path);
        succeeds(mount.stdin(server.try_clone().ok()?)).then_some(())?;
        let mounted = path.to_owned();
        let guard = FileSystemGuard::new(move || {
            // By force: the requests that wait fail, and the processes that wait for them go on.
            succeeds(
                Command::new("umount")
                    .args(["-c", "-f", "-l"])
                    .arg(&mounted),
            );
        });
        let mut request = vec![0; Self::LONGEST_REQUEST];
        let length = server.read(&mut request).ok()?;
        server
            .write_all(&Self::reply_to_init(&request[..length]))
            .ok()?;
        // Ends when the file system is unmounted.
        thread::spawn(move || while server.read(&mut request).is_ok() {});
        Some(Self { _guard: guard })
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
        // No read-ahead, no flags, the kernel's limits on background requests, and the shortest
        // `max_write`.
        reply.extend([0, 0, 0, 4096].map(u32::to_ne_bytes).as_flattened());
        reply.resize(LENGTH as usize, 0);
        reply
    }
}
