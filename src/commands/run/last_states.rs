//! The folder in which the probes of a command leave their last states, one file for each process
//! that used CUDA. `assets/probe/FORMAT.md` describes the files.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{self, Path, PathBuf};
use std::{env, process};

use serde::Deserialize;
use serde_json::Value;

use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::protocol::snapshot::{ProcessId, TensorLeak};

/// The most bytes of a file: the probe writes far fewer.
const MOST_BYTES: u64 = 1 << 20;

/// A folder that only this user may enter. It goes when the value is dropped.
pub(super) struct StateFolder {
    path: PathBuf,
}

impl StateFolder {
    pub(super) fn create() -> io::Result<Self> {
        let parent = path::absolute(env::temp_dir())?;
        let mut number = 0;
        loop {
            let path = parent.join(format!("gputop-last-states-{}-{number}", process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                // A killed gputop leaves its folder, and a later one may have its PID.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                result => return result.map(|()| Self { path }),
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the last states, in the order of their files' names. A file that cannot be read or
    /// parsed counts as a process that could not be judged.
    pub(super) fn read(&self) -> io::Result<Vec<LastState>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            names.push(entry?.file_name());
        }
        names.sort();
        let states = names.iter().filter_map(|name| {
            let name = Path::new(name);
            // The probe writes under a name that begins with a dot, and renames the file.
            let is_whole = name
                .extension()
                .is_some_and(|extension| extension == "json");
            is_whole.then(|| read(&self.path.join(name)).unwrap_or_else(|why| damaged(name, &why)))
        });
        Ok(states.collect())
    }
}

impl Drop for StateFolder {
    fn drop(&mut self) {
        let _left_over = fs::remove_dir_all(&self.path);
    }
}

/// The knowledge of the probe of a process at its end, or shortly before it was killed.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct LastState {
    pub(super) pid: u32,
    pub(super) start_ticks: Option<u64>,
    /// The name of the program, without arguments.
    pub(super) program: Text,
    /// The number of training steps.
    #[serde(default)]
    pub(super) steps: u64,
    /// The number of tests that pytest ran after the first use of CUDA.
    #[serde(default)]
    pub(super) tests: u64,
    /// The most memory that tensors had; `None` if it is not known.
    pub(super) peak_bytes: Option<Bytes>,
    /// Why the process could not be judged; `None` if it was.
    pub(super) unjudged: Option<Text>,
    /// The leaks; those in an unknown form are left out.
    #[serde(default)]
    leaks: Vec<Value>,
    /// The paths of files that the leaks name without folders.
    #[serde(default)]
    files: BTreeMap<Text, PathBuf>,
}

/// A leak of a process.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct LastLeak {
    #[serde(flatten)]
    pub(super) leak: TensorLeak,
    /// Whether steps of the leak are tests of pytest.
    #[serde(default)]
    pub(super) grows_over_tests: bool,
}

impl LastState {
    /// Returns the state of a process that could not be judged, for this reason.
    pub(super) fn unjudged(id: ProcessId, program: String, why: String) -> Self {
        Self {
            pid: id.pid,
            start_ticks: id.start_ticks,
            program: program.into(),
            unjudged: Some(why.into()),
            ..Self::default()
        }
    }

    pub(super) fn leaks(&self) -> impl Iterator<Item = LastLeak> {
        self.leaks
            .iter()
            .filter_map(|leak| LastLeak::deserialize(leak).ok())
    }

    pub(super) fn likely_leaks(&self) -> impl Iterator<Item = LastLeak> {
        self.leaks().filter(|found| found.leak.is_likely())
    }

    /// Whether the process may have allocated device memory without being judged.
    pub(super) fn is_unjudged(&self) -> bool {
        self.unjudged.is_some() && self.peak_bytes != Some(Bytes(0))
    }

    /// Returns the path of a file that a leak names; the name itself where the probe does not know
    /// it.
    pub(super) fn path_of<'a>(&'a self, file: &'a str) -> &'a Path {
        self.files
            .get(file)
            .map_or(Path::new(file), PathBuf::as_path)
    }
}

fn read(path: &Path) -> io::Result<LastState> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

fn damaged(name: &Path, why: &io::Error) -> LastState {
    let mut numbers = name.to_str().into_iter().flat_map(|name| name.split('-'));
    let id = ProcessId {
        pid: numbers.next().and_then(|pid| pid.parse().ok()).unwrap_or(0),
        start_ticks: numbers.next().and_then(|ticks| ticks.parse().ok()),
    };
    let why = format!("cannot read its last state: {why}");
    LastState::unjudged(id, "?".to_owned(), why)
}
