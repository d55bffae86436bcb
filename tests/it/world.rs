//! A host as a test wants it: GPUs of a world file, and real processes on them.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use fake_nvml::{Tenant, World, WorldFile};
use tempfile::TempDir;

use crate::process::{Ran, Started, run};

pub(crate) const GIB: u64 = 1 << 30;

/// A host. Its processes and files go with it.
pub(crate) struct Host {
    directory: TempDir,
    file: WorldFile,
    processes: Vec<Started>,
    pub(crate) library: PathBuf,
}

impl Host {
    /// With GPUs of these personas, whose figures wander.
    pub(crate) fn with<'a>(personas: impl IntoIterator<Item = &'a str>) -> Self {
        let mut host = Self::still(personas);
        host.change(|world| world.gpus.iter_mut().for_each(|gpu| gpu.jitter = true));
        host
    }

    /// With GPUs whose figures stay as they are.
    pub(crate) fn still<'a>(personas: impl IntoIterator<Item = &'a str>) -> Self {
        let world = World::of(personas);
        let directory = tempfile::tempdir().expect("there is room in /tmp");
        let names = (0..world.gpus.len()).map(|gpu| gpu.to_string()).chain(["ctl".to_owned(), "-uvm".to_owned()]);
        for name in names {
            fs::write(directory.path().join(format!("nvidia{name}")), "").expect("there is room in /tmp");
        }
        let file = WorldFile::create(directory.path().join("world.json"), world).expect("there is room in /tmp");
        Self { directory, file, processes: Vec::new(), library: fake_nvml::library() }
    }

    pub(crate) fn change(&mut self, change: impl FnOnce(&mut World)) {
        self.file.change(change).expect("there is room in /tmp");
    }

    /// The device file of a GPU, opened. Who holds it is surely meant by NVML, in a container too.
    pub(crate) fn device(&self, gpu: usize) -> File {
        File::open(self.path(&format!("nvidia{gpu}"))).expect("each GPU has one")
    }

    /// Starts a process, and puts it on a GPU, whose device file is its input.
    pub(crate) fn start(&mut self, gpu: usize, memory: u64, command: &mut Command) -> &mut Started {
        let process = Started::start(command.stdin(self.device(gpu)));
        self.put(gpu, Tenant::new(process.pid(), memory));
        self.processes.push(process);
        self.processes.last_mut().expect("one was pushed")
    }

    /// A process that does nothing. Gives its PID.
    pub(crate) fn sleeper(&mut self, gpu: usize, memory: u64) -> u32 {
        self.start(gpu, memory, Command::new("sleep").arg("1000")).pid()
    }

    /// Puts a tenant on a GPU, whoever it is.
    pub(crate) fn put(&mut self, gpu: usize, tenant: Tenant) {
        self.change(|world| world.gpus[gpu].tenants.push(tenant));
    }

    /// A process that was started here.
    pub(crate) fn process(&mut self, pid: u32) -> &mut Started {
        self.processes.iter_mut().find(|it| it.pid() == pid).expect("it was started here")
    }

    /// How often each function of the driver was called.
    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        fake_nvml::counts(self.directory.path().join("counts")).expect("the driver was loaded")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Puts a program there that everyone may run, and gives its path. Another process writes it: what a neighbouring
    /// test forks holds for a moment whatever this one has open, and nobody can run a file that someone may write to.
    pub(crate) fn install(&self, from: &Path, name: &str) -> PathBuf {
        let to = self.path(name);
        let mut install = Command::new("install");
        assert!(install.args(["-m", "755"]).args([from, &to]).status().is_ok_and(|it| it.success()), "{install:?}");
        to
    }

    /// The same with a script.
    pub(crate) fn script(&self, name: &str, text: &str) -> PathBuf {
        let draft = self.path("draft");
        fs::write(&draft, text).expect("there is room in /tmp");
        self.install(&draft, name)
    }

    /// Lets users other than the test's find this host. Gives a gputop that they may run.
    pub(crate) fn open_to_all(&mut self) -> PathBuf {
        fs::set_permissions(self.directory.path(), Permissions::from_mode(0o777)).expect("it is ours");
        // Where the checkout lies, others may not look.
        self.library = self.install(&self.library, "libnvidia-ml.so.1");
        self.install(Path::new(env!("CARGO_BIN_EXE_gputop")), "gputop")
    }

    /// `gputop` on this host, in an environment that says nothing else.
    pub(crate) fn gputop<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gputop"));
        command.args(args);
        self.dress(&mut command);
        command
    }

    /// Gives a command the environment in which gputop finds this host.
    pub(crate) fn dress<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("TERM", "xterm-256color")
            .env("LANG", "C.UTF-8")
            .env("XDG_STATE_HOME", self.directory.path())
            .env("XDG_CONFIG_HOME", self.directory.path().join("config"))
            .env("GPUTOP_NVML_LIB", &self.library)
            .env("GPUTOP_DEVICES", self.directory.path().join("nvidia"))
            .env("FAKE_NVML_WORLD", self.file.path())
            .env("FAKE_NVML_COUNTS", self.directory.path().join("counts"))
    }

    /// Runs `gputop` to its end, without a terminal.
    #[track_caller]
    pub(crate) fn run<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Ran {
        run(&mut self.gputop(args))
    }
}
