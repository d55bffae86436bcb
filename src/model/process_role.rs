//! What a process is for, by its name and arguments alone.

use crate::base::text::{Argv, Text};
use crate::protocol::snapshot::{Process, ProcessFacts};

/// What a process is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::model) enum ProcessRole {
    /// Not known yet: neither name nor arguments were read.
    Unknown,
    /// PID 1, service managers, container shims, terminals, ssh: what processes are left to.
    Keeper,
    /// A shell that a person types into.
    Shell,
    /// A shell that runs a script or one command.
    Script,
    /// Starts the processes of a job and waits: torchrun, accelerate, deepspeed, mpirun, raylet.
    Launcher,
    /// Serves one Python process: forkserver, `resource_tracker`, compile worker.
    Helper,
    /// Works for one Python process: `DataLoader` worker, spawned child, engine of a server.
    Worker,
    /// A notebook's kernel.
    Notebook,
    /// What notebooks are started by.
    NotebookServer,
    /// Any other Python program.
    Python,
    /// Anything else.
    Other,
}

const KEEPERS: [&str; 21] = [
    "systemd",
    "init",
    "tini",
    "dumb-init",
    "docker-init",
    "catatonit",
    "s6-svscan",
    "runsv",
    "supervisord",
    "tmux",
    "screen",
    "sshd",
    "sshd-session",
    "login",
    "cron",
    "crond",
    "slurmstepd",
    "slurmd",
    "conmon",
    "dockerd",
    "runc",
];
const SHELLS: [&str; 10] = ["bash", "sh", "zsh", "fish", "dash", "ash", "ksh", "tcsh", "csh", "nu"];
const LAUNCHERS: [&str; 12] = [
    "pt_elastic",
    "torchrun",
    "deepspeed",
    "mpirun",
    "mpiexec",
    "orterun",
    "prterun",
    "hydra_pmi_proxy",
    "horovodrun",
    "srun",
    "raylet",
    "prted",
];
const LAUNCHER_MODULES: [&str; 6] = [
    "torch.distributed.run",
    "torch.distributed.launch",
    "torch.distributed.elastic",
    "deepspeed.launcher",
    "accelerate.commands",
    "ray.autoscaler",
];
const NOTEBOOK_SERVERS: [&str; 6] =
    ["jupyter-notebook", "jupyter-lab", "jupyter-server", "jupyterhub-singleuser", "jupyterhub", "jupyter"];

impl ProcessRole {
    /// What that process is for.
    ///
    /// A name that a program gave itself (`pt_data_worker`) goes before its arguments: a forked process
    /// has those of its parent.
    pub(in crate::model) fn of(process: &Process) -> Self {
        let comm = process.facts.comm.as_ref().map_or("", Text::as_str);
        let argv = &arguments(&process.facts);
        if comm.is_empty() && argv.is_empty() {
            return Self::Unknown;
        }
        if process.id.pid == 1 && !is_python(comm, argv) {
            return Self::Keeper;
        }
        by_comm(comm).or_else(|| by_argv(argv)).unwrap_or_else(|| match () {
            () if is_python(comm, argv) => Self::Python,
            () if SHELLS.contains(&comm) => shell(argv),
            () => Self::Other,
        })
    }

    /// Whether Python runs in it, for somebody's program.
    pub(in crate::model) fn is_python(self) -> bool {
        matches!(self, Self::Helper | Self::Worker | Self::Notebook | Self::Python)
    }

    /// Whether its program is Python's, whatever it is for.
    pub(in crate::model) fn runs_python(self) -> bool {
        self.is_python() || matches!(self, Self::Launcher | Self::NotebookServer)
    }

    /// Whether it makes processes for a purpose of its own, so that its end tells something about them.
    pub(in crate::model) fn makes(self) -> bool {
        self.is_python() || self == Self::Launcher
    }

    /// What it is to the processes that it makes.
    pub(in crate::model) fn calling(self) -> &'static str {
        match self {
            Self::Launcher => "launcher",
            Self::Helper => "helper",
            Self::Notebook => "notebook",
            _ => "parent",
        }
    }

    /// Whether a process that has it for a parent may have been left to it, or started by a person there.
    pub(in crate::model) fn is_keeper(self) -> bool {
        matches!(self, Self::Keeper | Self::Shell | Self::Script)
    }
}

fn by_comm(comm: &str) -> Option<ProcessRole> {
    Some(match comm {
        "pt_data_worker" => ProcessRole::Worker,
        "pt_elastic" | "raylet" => ProcessRole::Launcher,
        _ if comm.starts_with("VLLM::") || comm.starts_with("sglang::") || comm.starts_with("ray::") => {
            ProcessRole::Worker
        }
        _ if comm.starts_with("containerd-shim") || comm.starts_with("tmux:") || KEEPERS.contains(&comm) => {
            ProcessRole::Keeper
        }
        _ => return None,
    })
}

fn by_argv(argv: &[&str]) -> Option<ProcessRole> {
    let first = name(argv.first()?);
    let second = argv.get(1).map_or("", |it| name(it));
    // A login shell is called `-bash`.
    if SHELLS.contains(&first.trim_start_matches('-')) {
        return Some(shell(argv));
    }
    if first.starts_with("VLLM::") || first.starts_with("sglang::") || first.starts_with("ray::") {
        return Some(ProcessRole::Worker);
    }
    if LAUNCHERS.contains(&first) {
        return Some(ProcessRole::Launcher);
    }
    if KEEPERS.contains(&first) || first.starts_with("containerd-shim") || first == "sshd:" || first == "tmux:" {
        return Some(ProcessRole::Keeper);
    }
    if NOTEBOOK_SERVERS.contains(&first) || NOTEBOOK_SERVERS.contains(&second) {
        return Some(ProcessRole::NotebookServer);
    }
    if !first.starts_with("python") && !first.starts_with("pypy") && first != "accelerate" {
        return None;
    }
    python(argv, second)
}

/// What a Python program is for; absent when only it knows.
fn python(argv: &[&str], second: &str) -> Option<ProcessRole> {
    let [program, rest @ ..] = argv else { return None };
    if LAUNCHERS.contains(&second) {
        return Some(ProcessRole::Launcher);
    }
    if second == "supervisord" {
        return Some(ProcessRole::Keeper);
    }
    if (second == "accelerate" || name(program) == "accelerate") && rest.iter().take(2).any(|it| *it == "launch") {
        return Some(ProcessRole::Launcher);
    }
    // Options of the interpreter end where the program begins; after that, words are the program's own.
    let at = rest.iter().position(|it| !it.starts_with('-') || matches!(*it, "-m" | "-c"))?;
    let (option, operand) = (rest[at], rest.get(at + 1).copied().unwrap_or(""));
    match option {
        "-m" if LAUNCHER_MODULES.iter().any(|it| operand.starts_with(it)) => Some(ProcessRole::Launcher),
        "-m" if operand.starts_with("ipykernel") || operand.starts_with("colab_kernel") => Some(ProcessRole::Notebook),
        "-m" if operand.starts_with("jupyter") || operand.starts_with("notebook") => Some(ProcessRole::NotebookServer),
        "-c" if operand.contains("multiprocessing.forkserver") || operand.contains("resource_tracker") => {
            Some(ProcessRole::Helper)
        }
        "-c" if operand.contains("multiprocessing.spawn") || operand.contains("spawn_main") => {
            Some(ProcessRole::Worker)
        }
        program if program.contains("torch/_inductor/compile_worker") => Some(ProcessRole::Helper),
        program if program.contains("ipykernel_launcher") => Some(ProcessRole::Notebook),
        _ => None,
    }
}

fn is_python(comm: &str, argv: &[&str]) -> bool {
    let interpreter = |it: &str| it.starts_with("python") || it.starts_with("pypy") || it == "ipython";
    interpreter(comm) || comm.starts_with("pt_") || argv.first().is_some_and(|it| interpreter(name(it)))
}

/// With a command or a file to run, a shell is a script.
fn shell(argv: &[&str]) -> ProcessRole {
    let is_option = |it: &&str| it.starts_with('-') && *it != "-c";
    if argv.iter().skip(1).all(is_option) { ProcessRole::Shell } else { ProcessRole::Script }
}

/// The last part of a path.
fn name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// Its arguments; none where they are not known.
fn arguments(facts: &ProcessFacts) -> Vec<&str> {
    facts.argv.iter().flat_map(Argv::iter).collect()
}

/// What people call the program: its script, its module, or its short name.
pub(in crate::model) fn program(facts: &ProcessFacts) -> String {
    let argv = &arguments(facts);
    let script =
        argv.iter().map(|it| name(it)).find(|it| it.strip_suffix(".py").is_some_and(|stem| stem != "__main__"));
    // As in `python /opt/env/bin/vllm serve`.
    let tool = argv.get(1).filter(|it| is_python("", argv) && !it.starts_with('-')).map(|it| name(it));
    let module = || argv.iter().copied().skip_while(|it| *it != "-m").nth(1);
    let comm = || facts.comm.as_ref().map_or_else(ToString::to_string, ToString::to_string);
    script.or(tool).or_else(module).map_or_else(comm, str::to_owned)
}

/// What it runs: its arguments, or its short name where there are none. Cut to what fits a sentence.
pub(in crate::model) fn command(facts: &ProcessFacts) -> String {
    const LIMIT: usize = 60;
    let argv = &arguments(facts);
    let mut words = argv.iter().copied();
    let mut command = match argv.first() {
        // Where the interpreter lies is of no interest.
        Some(first) => words.next().map_or("", |_| name(first)).to_owned(),
        None => facts.comm.as_ref().map_or_else(ToString::to_string, ToString::to_string),
    };
    for word in words {
        command.push(' ');
        command.push_str(word);
        if command.len() > LIMIT {
            let fits = command.char_indices().map(|(at, _)| at).nth(LIMIT);
            if let Some(at) = fits {
                command.truncate(at);
                command.push('…');
            }
            break;
        }
    }
    command
}
