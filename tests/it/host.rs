//! The host of a test: GPUs described by a world file of the fake driver, and real processes on
//! them.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use fake_nvml::{GpuProcess, World, WorldFile};
use tempfile::TempDir;

use crate::process::{ChildProcess, Output, run};

pub(crate) const GIB: u64 = 1 << 30;

/// A host. Dropping it ends its processes and deletes its files.
pub(crate) struct Host {
    directory: TempDir,
    file: WorldFile,
    processes: Vec<ChildProcess>,
    /// The path of the fake driver's library.
    pub(crate) library: PathBuf,
}

impl Host {
    /// A host with GPUs of these personas, whose readings change all the time.
    pub(crate) fn with_jitter<'a>(personas: impl IntoIterator<Item = &'a str>) -> Self {
        let mut host = Self::new(personas);
        host.change(|world| world.gpus.iter_mut().for_each(|gpu| gpu.jitter = true));
        host
    }

    /// A host with GPUs of these personas, which do nothing.
    pub(crate) fn idle<'a>(personas: impl IntoIterator<Item = &'a str>) -> Self {
        let mut host = Self::new(personas);
        host.change(|world| {
            let loads = world.gpus.iter_mut().map(|gpu| &mut gpu.utilization.gpu);
            loads.for_each(|load| *load = load.map(|_| 0));
        });
        host
    }

    /// A host with GPUs of these personas, whose readings are constant. Personas that were captured
    /// from a busy GPU compute without a process.
    pub(crate) fn new<'a>(personas: impl IntoIterator<Item = &'a str>) -> Self {
        let world = World::with_gpus(personas);
        let directory = tempfile::tempdir().expect("/tmp has room");
        let names = (0..world.gpus.len())
            .map(|gpu| gpu.to_string())
            .chain(["ctl".to_owned(), "-uvm".to_owned()]);
        for name in names {
            fs::write(directory.path().join(format!("nvidia{name}")), "").expect("/tmp has room");
        }
        let file =
            WorldFile::create(directory.path().join("world.json"), world).expect("/tmp has room");
        Self {
            directory,
            file,
            processes: Vec::new(),
            library: fake_nvml::library(),
        }
    }

    /// Changes the world file. The driver sees the change within 5 ms of its next call.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut World)) {
        self.file.change(change).expect("/tmp has room");
    }

    /// Opens the device file of a GPU. A process that has it open is trusted to be the one that
    /// NVML names, in a container too.
    pub(crate) fn open_device(&self, gpu: usize) -> File {
        File::open(self.path(&format!("nvidia{gpu}"))).expect("each GPU has a device file")
    }

    /// Starts a process on a GPU, with the GPU's device file as its input.
    pub(crate) fn start(
        &mut self,
        gpu: usize,
        memory: u64,
        command: &mut Command,
    ) -> &mut ChildProcess {
        let process = ChildProcess::spawn(command.stdin(self.open_device(gpu)));
        self.add_process(gpu, GpuProcess::new(process.pid(), memory));
        self.processes.push(process);
        self.processes.last_mut().expect("a process was pushed")
    }

    /// Starts `sleep 1000` on a GPU, and returns its PID.
    pub(crate) fn start_sleep(&mut self, gpu: usize, memory: u64) -> u32 {
        self.start(gpu, memory, Command::new("sleep").arg("1000"))
            .pid()
    }

    /// Makes the driver list a process on a GPU.
    pub(crate) fn add_process(&mut self, gpu: usize, process: GpuProcess) {
        self.change(|world| world.gpus[gpu].processes.push(process));
    }

    /// The process that [`Self::start`] started with this PID.
    pub(crate) fn process(&mut self, pid: u32) -> &mut ChildProcess {
        self.processes
            .iter_mut()
            .find(|process| process.pid() == pid)
            .expect("the host started the process")
    }

    /// The number of calls of each function of the driver.
    pub(crate) fn call_counts(&self) -> BTreeMap<String, u64> {
        fake_nvml::counts(self.path("counts")).expect("the driver was loaded")
    }

    /// The path of a file in the host's folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Installs a program that everyone may run, and returns its path. `install` writes the file:
    /// if the test wrote it, a parallel test could fork while it is open, and a file that someone
    /// may write to cannot be run.
    pub(crate) fn install(&self, from: &Path, name: &str) -> PathBuf {
        let to = self.path(name);
        let mut install = Command::new("install");
        let status = install.args(["-m", "755"]).args([from, &to]).status();
        assert!(status.is_ok_and(|status| status.success()), "{install:?}");
        to
    }

    /// Installs a script that everyone may run, and returns its path.
    pub(crate) fn install_script(&self, name: &str, text: &str) -> PathBuf {
        let draft = self.path("draft");
        fs::write(&draft, text).expect("/tmp has room");
        self.install(&draft, name)
    }

    /// Lets other users read this host's files. Returns the path of a gputop that they may run.
    pub(crate) fn open_to_other_users(&mut self) -> PathBuf {
        fs::set_permissions(self.directory.path(), Permissions::from_mode(0o777))
            .expect("the directory is ours");
        // Other users may not be able to read the checkout.
        self.library = self.install(&self.library, "libnvidia-ml.so.1");
        self.install(Path::new(env!("CARGO_BIN_EXE_gputop")), "gputop")
    }

    /// A command that runs gputop on this host. Nothing of the test's environment reaches it but
    /// `PATH`.
    pub(crate) fn gputop<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gputop"));
        command.args(args);
        self.set_environment(&mut command);
        command
    }

    /// Replaces a command's environment by one in which gputop finds this host.
    pub(crate) fn set_environment<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("TERM", "xterm-256color")
            .env("LANG", "C.UTF-8")
            // Most tests read the rows of GPUs.
            .env("GPUTOP_GPU_VIEW", "rows")
            .env("XDG_STATE_HOME", self.directory.path())
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env("GPUTOP_NVML_LIB", &self.library)
            .env("GPUTOP_DEVICES", self.path("nvidia"))
            .env("FAKE_NVML_WORLD", self.file.path())
            .env("FAKE_NVML_COUNTS", self.path("counts"))
    }

    /// Runs `gputop` to its end, without a terminal.
    #[track_caller]
    pub(crate) fn run<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Output {
        run(&mut self.gputop(args))
    }
}
