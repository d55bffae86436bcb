//! Python programs that take roles in a test, such as `trainer` or `worker0`. They use
//! `stories/prelude.py`, and report through a named pipe when they are ready.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};

use crate::host::Host;

/// The named pipe through which test programs report that they are ready.
pub(crate) struct ReadyPipe {
    path: PathBuf,
    lines: Receiver<String>,
}

/// A process that is ready.
pub(crate) struct ReadyProcess {
    /// The index of the GPU that the process was started for.
    pub(crate) gpu: usize,
    pub(crate) role: String,
    pub(crate) pid: u32,
}

impl ReadyPipe {
    /// Creates the pipe in the folder of a host.
    pub(crate) fn create(host: &Host) -> Self {
        let path = host.path("ready");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("/tmp has room");
        // Opened for writing too: otherwise the pipe ends when the first writer closes it.
        let pipe = rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .expect("the pipe exists");
        let (send, lines) = mpsc::channel();
        thread::spawn(move || {
            BufReader::new(File::from(pipe))
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| send.send(line))
        });
        Self { path, lines }
    }

    /// The next process that reports; `None` when none does within this time.
    pub(crate) fn next_within(&self, time: Duration) -> Option<ReadyProcess> {
        let line = self.lines.recv_timeout(time).ok()?;
        let words: Vec<&str> = line.split(' ').collect();
        let [gpu, role, pid] = words.as_slice() else {
            panic!("{line:?} is not `GPU ROLE PID`")
        };
        let (gpu, pid) = (gpu.parse().expect("an index"), pid.parse().expect("a PID"));
        Some(ReadyProcess {
            gpu,
            role: (*role).to_owned(),
            pid,
        })
    }

    /// Writes the files into a folder, and returns a command that runs there, for this GPU, in a
    /// process group of its own, as an interactive shell runs a command.
    pub(crate) fn command<'a>(
        &self,
        host: &Host,
        gpu: usize,
        files: impl IntoIterator<Item = (&'a str, &'a str)>,
        words: &[&str],
    ) -> Command {
        let folder = host.path(&format!("programs{gpu}"));
        for (name, text) in files {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().expect("a file is in a folder"))
                .expect("/tmp has room");
            let is_python = path.extension().is_none_or(|extension| extension == "py");
            let head = if is_python {
                "from prelude import *\n"
            } else {
                ""
            };
            fs::write(path, format!("{head}{text}")).expect("/tmp has room");
        }
        let mut command = Command::new(words[0]);
        host.set_environment(&mut command)
            .process_group(0)
            .args(&words[1..])
            .current_dir(&folder)
            .env(
                "PYTHONPATH",
                concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/stories"),
            )
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("STORY_GPU", gpu.to_string())
            .env("STORY_PIPE", &self.path)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }
}
