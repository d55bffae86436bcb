//! Where Python programs play their parts: `stories/stage.py` is at their hand, and each says who it is.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};

use crate::world::Host;

/// What the programs say of themselves.
pub(crate) struct Parts {
    path: PathBuf,
    said: Receiver<String>,
}

/// Who plays which part.
pub(crate) struct Part {
    /// The GPU of its play.
    pub(crate) gpu: usize,
    pub(crate) name: String,
    pub(crate) pid: u32,
}

impl Parts {
    /// A pipe in the folder of that host.
    pub(crate) fn of(host: &Host) -> Self {
        let path = host.path("parts");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("there is room in /tmp");
        // Open for writing too: it has no end while the test goes on.
        let pipe = rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).expect("it is there");
        let (send, said) = mpsc::channel();
        thread::spawn(move || {
            BufReader::new(File::from(pipe)).lines().map_while(Result::ok).try_for_each(|line| send.send(line))
        });
        Self { path, said }
    }

    /// The next that comes; absent when nobody does within that time.
    pub(crate) fn next(&self, time: Duration) -> Option<Part> {
        let line = self.said.recv_timeout(time).ok()?;
        let words: Vec<&str> = line.split(' ').collect();
        let [gpu, name, pid] = words.as_slice() else { panic!("{line:?}") };
        let (gpu, pid) = (gpu.parse().expect("a number"), pid.parse().expect("a PID"));
        Some(Part { gpu, name: (*name).to_owned(), pid })
    }

    /// A command in a folder with these files, on that GPU; as an interactive shell does, in a group of its own.
    pub(crate) fn play<'a>(
        &self,
        host: &Host,
        gpu: usize,
        files: impl IntoIterator<Item = (&'a str, &'a str)>,
        run: &[&str],
    ) -> Command {
        let folder = host.path(&format!("play{gpu}"));
        for (name, text) in files {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().expect("it has one")).expect("there is room in /tmp");
            let is_python = path.extension().is_none_or(|it| it == "py");
            let head = if is_python { "from stage import *\n" } else { "" };
            fs::write(path, format!("{head}{text}")).expect("there is room in /tmp");
        }
        let mut command = Command::new(run[0]);
        host.dress(&mut command)
            .process_group(0)
            .args(&run[1..])
            .current_dir(&folder)
            .env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/stories"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("STORY", gpu.to_string())
            .env("STORY_PARTS", &self.path)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }
}
