//! The role of a process, such as a launcher, worker or shell, by its name and arguments alone, but
//! for PID 1. Also writes the name and command of a process for sentences.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize};

use crate::base::text::{Argv, Text};
use crate::protocol::launchers::{LaunchPlace, launchers};
use crate::protocol::snapshot::{Process, ProcessFacts, Reading};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(in crate::model) enum ProcessRole {
    /// Neither name nor arguments were read yet.
    Unknown,
    /// Adopts orphans: PID 1 unless it runs Python, service managers, container shims.
    Adopter,
    /// Starts what a person or a schedule asks for, and adopts no orphans: an interactive shell,
    /// tmux, ssh, cron.
    Shell,
    /// A shell that runs a script or one command.
    Script,
    /// Starts the processes of a job and waits: torchrun, accelerate, deepspeed, mpirun. See the
    /// launch table.
    Launcher,
    /// Serves one Python process: forkserver, `resource_tracker`, compile worker.
    Helper,
    /// Works for one other process: `DataLoader` worker, spawned child, engine of a server. See the
    /// launch table.
    Worker,
    Notebook,
    /// A server that starts independent programs for its users: Jupyter, Ray's raylet.
    Server,
    Python,
    Other,
}

// Names of programs or modules, separated by spaces.
const ADOPTERS: &str =
    "systemd init tini dumb-init docker-init catatonit s6-svscan slurmstepd conmon dockerd runc";
const STARTERS: &str = "tmux screen sshd sshd-session login cron crond slurmd supervisord runsv";
const IDLE_PROGRAMS: &str = "sleep tail pause cat";
const SHELLS: &str = "bash sh zsh fish dash ash ksh tcsh csh nu";
const NOTEBOOK_SERVERS: &str =
    "jupyter-notebook jupyter-lab jupyter-server jupyterhub-singleuser jupyterhub jupyter";

// As in `from multiprocessing.forkserver import main; main(5)`; other packages, such as loky, have
// copies of these modules.
const HELPER_MODULES: [&str; 2] = [".forkserver import main;", ".resource_tracker import main;"];

fn is_in(names: &str, name: &str) -> bool {
    names.split(' ').any(|known| known == name)
}

fn starts_with_any(text: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| text.starts_with(prefix))
}

impl ProcessRole {
    /// A name that a program gave itself (`pt_data_worker`) takes precedence over its arguments: a
    /// forked process has the arguments of its parent.
    pub(in crate::model) fn of(process: &Process) -> Self {
        let comm = process.facts.comm.as_ref().map_or("", Text::as_str);
        let argv = &arguments(&process.facts);
        if comm.is_empty() && argv.is_empty() {
            return Self::Unknown;
        }
        let leads_session = process.facts.session == Ok(process.id.pid);
        let by_table = || by_table(comm, argv, leads_session);
        let role = by_comm(comm)
            .or_else(by_table)
            .or_else(|| by_argv(argv))
            .unwrap_or_else(|| match () {
                () if is_python(comm, argv) => Self::Python,
                () if is_in(SHELLS, comm) => shell(argv),
                () => Self::Other,
            });
        // The kernel gives the orphans of a PID namespace to its PID 1. A Python program or
        // launcher with this PID is the parent of its own children all the same.
        if process.id.pid == 1 && !role.runs_python() {
            Self::Adopter
        } else {
            role
        }
    }

    /// Whether the process runs Python code of a user's program.
    pub(in crate::model) fn is_python(self) -> bool {
        matches!(
            self,
            Self::Helper | Self::Worker | Self::Notebook | Self::Python
        )
    }

    /// Whether the process runs Python, or is a launcher, which may start Python.
    pub(in crate::model) fn runs_python(self) -> bool {
        self.is_python() || matches!(self, Self::Launcher | Self::Server)
    }

    /// The relation of the process to those that it creates, for sentences.
    pub(in crate::model) fn relation(self) -> &'static str {
        match self {
            Self::Launcher => "launcher",
            Self::Helper => "helper",
            Self::Server => "server",
            Self::Notebook => "notebook",
            _ => "parent",
        }
    }

    /// Whether the process belongs to the host or its users, and not to the jobs that they start.
    pub(in crate::model) fn is_outside_jobs(self) -> bool {
        matches!(self, Self::Adopter | Self::Shell | Self::Script)
    }
}

/// Reads a relation of a checkpoint; a word that is none becomes `parent`.
pub(super) fn relation<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Cow<'static, str>, D::Error> {
    let word = Text::deserialize(deserializer)?;
    let known = ["", "trainer", "launcher", "helper", "server", "notebook"];
    Ok(known
        .into_iter()
        .find(|known| *known == word.as_str())
        .unwrap_or("parent")
        .into())
}

/// Returns the role that the name alone shows, as comm or as first argument; `None` for most names.
fn by_name(name: &str) -> Option<ProcessRole> {
    match () {
        () if is_in(ADOPTERS, name) || name.starts_with("containerd-shim") => {
            Some(ProcessRole::Adopter)
        }
        () if is_in(STARTERS, name) || starts_with_any(name, &["sshd:", "tmux:"]) => {
            Some(ProcessRole::Shell)
        }
        () if name == "raylet" => Some(ProcessRole::Server),
        () => None,
    }
}

fn by_comm(comm: &str) -> Option<ProcessRole> {
    if comm == DATALOADER_WORKER {
        Some(ProcessRole::Worker)
    } else {
        by_name(comm)
    }
}

/// Returns the role that the launch table shows. A person or a service manager may start the same
/// program as a child of its own, and then it leads a session.
fn by_table(comm: &str, argv: &[&str], leads_session: bool) -> Option<ProcessRole> {
    let may_lead = |place: LaunchPlace| matches!(place, LaunchPlace::Any | LaunchPlace::Session);
    launchers().iter().find_map(|launcher| match () {
        () if launcher.only_waits() && launcher.is_program(comm, argv) => {
            Some(ProcessRole::Launcher)
        }
        () if launcher.is_child(comm, argv) && (!leads_session || may_lead(launcher.place)) => {
            Some(ProcessRole::Worker)
        }
        () => None,
    })
}

fn by_argv(argv: &[&str]) -> Option<ProcessRole> {
    let first = name(argv.first()?);
    let second = argv.get(1).map_or("", |word| name(word));
    match () {
        // A login shell is named `-bash`.
        () if is_in(SHELLS, first.trim_start_matches('-')) => Some(shell(argv)),
        () if is_in(NOTEBOOK_SERVERS, first) || is_in(NOTEBOOK_SERVERS, second) => {
            Some(ProcessRole::Server)
        }
        () if starts_with_any(first, &["python", "pypy"]) => python(argv, second),
        () => by_name(first),
    }
}

/// Returns the role of a Python program; `None` when the arguments do not show it.
fn python(argv: &[&str], second: &str) -> Option<ProcessRole> {
    let [_, rest @ ..] = argv else { return None };
    if second == "supervisord" {
        return Some(ProcessRole::Shell);
    }
    // The interpreter's options end where the program begins; the words after it belong to the
    // program.
    let place = rest
        .iter()
        .position(|word| !word.starts_with('-') || matches!(*word, "-m" | "-c"))?;
    let (option, operand) = (rest[place], rest.get(place + 1).copied().unwrap_or(""));
    match option {
        "-m" if operand.starts_with("ray.autoscaler") => Some(ProcessRole::Launcher),
        "-m" if starts_with_any(operand, &["ipykernel", "colab_kernel"]) => {
            Some(ProcessRole::Notebook)
        }
        "-m" if starts_with_any(operand, &["jupyter", "notebook"]) => Some(ProcessRole::Server),
        // `multiprocessing` writes these programs. A person's program may import the same modules.
        "-c" if operand.starts_with("from ")
            && HELPER_MODULES.iter().any(|module| operand.contains(module)) =>
        {
            Some(ProcessRole::Helper)
        }
        "-c" if operand.contains("spawn_main") && rest.contains(&"--multiprocessing-fork") => {
            Some(ProcessRole::Worker)
        }
        program if program.contains("torch/_inductor/compile_worker") => Some(ProcessRole::Helper),
        program if program.contains("ipykernel_launcher") => Some(ProcessRole::Notebook),
        _ => None,
    }
}

/// Whether a process runs one of the programs that start no others, and keep a container alive.
pub(in crate::model) fn starts_nothing(facts: &ProcessFacts) -> bool {
    facts
        .comm
        .as_ref()
        .is_ok_and(|comm| is_in(IDLE_PROGRAMS, comm.as_str()))
}

/// Whether a process is a worker or helper that only Python code starts: from a module, or with a
/// title such as `VLLM::EngineCore`.
pub(in crate::model) fn is_started_by_python(facts: &ProcessFacts) -> bool {
    let argv = arguments(facts);
    let has_title =
        matches!(argv.as_slice(), [title] if starts_with_any(title, &["VLLM::", "sglang::"]));
    has_title || is_module_of_python(facts)
}

/// Whether a process runs a module of `multiprocessing` or of a package like it.
pub(in crate::model) fn is_module_of_python(facts: &ProcessFacts) -> bool {
    let argv = arguments(facts);
    let mut options = argv.iter().skip(1).take_while(|word| word.starts_with('-'));
    let is_module = is_python("", &argv) && options.any(|word| matches!(*word, "-c" | "-m"));
    let is_loky = || {
        argv.iter()
            .any(|word| word.ends_with("loky.backend.popen_loky_posix"))
    };
    let role = || python(&argv, argv.get(1).map_or("", |word| name(word)));
    is_module && (is_loky() || matches!(role(), Some(ProcessRole::Helper | ProcessRole::Worker)))
}

fn is_python(comm: &str, argv: &[&str]) -> bool {
    let interpreter = |name: &str| name == "ipython" || starts_with_any(name, &["python", "pypy"]);
    interpreter(comm)
        || comm.starts_with("pt_")
        || argv.first().is_some_and(|word| interpreter(name(word)))
}

/// Returns the role of a shell: a script when the shell has a command or file to run.
fn shell(argv: &[&str]) -> ProcessRole {
    let is_option = |word: &&str| word.starts_with('-') && *word != "-c";
    if argv.iter().skip(1).all(is_option) {
        ProcessRole::Shell
    } else {
        ProcessRole::Script
    }
}

/// Whether a person types commands at this process: it is a shell that was told no script and no
/// command.
pub(crate) fn is_interactive_shell(process: &Process) -> bool {
    let argv = &arguments(&process.facts);
    let is_shell = |word: &&str| is_in(SHELLS, name(word).trim_start_matches('-'));
    argv.first().is_some_and(is_shell) && shell(argv) == ProcessRole::Shell
}

fn name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

pub(in crate::model) fn arguments(facts: &ProcessFacts) -> Vec<&str> {
    facts.argv.iter().flat_map(Argv::iter).collect()
}

/// The name that a `DataLoader` worker gives itself. Its arguments are those of its trainer.
pub(crate) const DATALOADER_WORKER: &str = "pt_data_worker";

/// The short name of a program: its script, its module, or its comm.
pub(in crate::model) fn program(facts: &ProcessFacts) -> String {
    let argv = &arguments(facts);
    let script = argv.iter().map(|word| name(word)).find(|word| {
        word.strip_suffix(".py")
            .is_some_and(|stem| stem != "__main__")
    });
    // `vllm` in `python /opt/env/bin/vllm serve`.
    let tool = argv
        .get(1)
        .filter(|word| is_python("", argv) && !word.starts_with('-'))
        .map(|word| name(word));
    let module = || argv.iter().copied().skip_while(|word| *word != "-m").nth(1);
    script
        .or(tool)
        .or_else(module)
        .map_or_else(|| comm(facts), str::to_owned)
}

/// The short name of a process: that of its program, unless it gave itself another; `Err` if
/// neither its arguments nor its name in the kernel are known.
pub(crate) fn short_name(facts: &ProcessFacts) -> Reading<Text> {
    match &facts.comm {
        Ok(comm) if comm.as_str() == DATALOADER_WORKER => Ok(comm.clone()),
        Err(why) if arguments(facts).is_empty() => Err(*why),
        _ => Ok(program(facts).into()),
    }
}

fn comm(facts: &ProcessFacts) -> String {
    facts
        .comm
        .as_ref()
        .map_or_else(ToString::to_string, ToString::to_string)
}

/// The command line, or the comm where there are no arguments; truncated to fit a sentence.
pub(in crate::model) fn command(facts: &ProcessFacts) -> String {
    const LIMIT: usize = 60;
    let mut words: Vec<&str> = facts.argv.iter().flat_map(Argv::shown).collect();
    let Some(first) = words.first_mut() else {
        return comm(facts);
    };
    // The directory of the interpreter does not matter.
    *first = name(first);
    let mut command = words.join(" ");
    if let Some((end, _)) = command
        .char_indices()
        .nth(LIMIT)
        .filter(|_| words.len() > 1)
    {
        command.truncate(end);
        command.push('…');
    }
    command
}
