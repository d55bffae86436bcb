//! `gputop doctor`: what works here, what does not, why, and a command for each that may mend it.
//!
//! What the driver says comes through an agent, as in every report: a driver that hangs does not hang this.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::agent::diagnostics::Surroundings;
use crate::base::terminal::{self, TerminalAbilities};
use crate::base::units::Moment;
use crate::commands::report::{self, Exit, table};
use crate::protocol::agent_options::AgentOptions;
use crate::protocol::snapshot::{Cause, Snapshot};

/// What to check.
#[derive(Debug)]
pub struct DoctorOptions {
    /// How the agent is started.
    pub agent: AgentOptions,
    /// How long to wait for the driver.
    pub timeout: Duration,
    /// What became of the settings files.
    pub settings: SettingsState,
}

/// What became of the settings files.
#[derive(Debug)]
pub enum SettingsState {
    /// A file has an invalid value: an error message.
    Invalid(String),
    /// The home directory does not respond: an error message.
    Unreadable(String),
    /// A file has keys that gputop does not know: a sentence.
    UnknownKeys(String),
    /// All is well, whether this file exists or not.
    File(PathBuf),
    /// Neither `XDG_CONFIG_HOME` nor `HOME` is set.
    NoHome,
}

/// How well something works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Well,
    /// gputop works, and shows or does less.
    Less,
    /// The main thing does not work.
    Not,
}

/// One thing that was looked at.
#[derive(Debug)]
struct Finding {
    mark: Mark,
    subject: &'static str,
    sentence: String,
    /// What may mend it.
    remedy: Option<&'static str>,
}

/// Prints what was found; the exit code is 0 when nothing is in the way of the main thing.
///
/// # Errors
///
/// When no agent can be started, or when nobody reads what is printed.
pub fn run(options: &DoctorOptions) -> anyhow::Result<ExitCode> {
    let around = Surroundings::look(options.agent.nvml_lib.as_deref());
    let (model, reason) = report::look(&options.agent, options.timeout, |it| it.host.scan.at != Moment(0))?;
    let able = TerminalAbilities::from_env();
    let mut findings = match model.latest() {
        Some(snapshot) => of_driver(snapshot, &around),
        None => vec![not("agent", reason.map_or_else(|| "it says nothing".to_owned(), |it| it.to_string()), None)],
    };
    findings.extend(model.latest().map(|snapshot| of_processes(snapshot, &around)).unwrap_or_default());
    findings.push(of_settings(&options.settings));
    findings.extend(of_terminal(able));
    let text = text(&findings);
    report::put(if able.ascii { table::ascii(&text) } else { text }.as_bytes())?;
    let fails = findings.iter().any(|it| it.mark == Mark::Not);
    let exit = match model.latest().map(|snapshot| Exit::of(snapshot, true)) {
        Some(exit @ (Exit::NoDriver | Exit::NoGpu)) => exit,
        _ if fails => Exit::Error,
        _ => Exit::Success,
    };
    Ok(exit.into())
}

fn well(subject: &'static str, sentence: impl Into<String>) -> Finding {
    Finding { mark: Mark::Well, subject, sentence: sentence.into(), remedy: None }
}

fn less(subject: &'static str, sentence: impl Into<String>, remedy: &'static str) -> Finding {
    Finding { mark: Mark::Less, subject, sentence: sentence.into(), remedy: Some(remedy) }
}

fn not(subject: &'static str, sentence: impl Into<String>, remedy: Option<&'static str>) -> Finding {
    Finding { mark: Mark::Not, subject, sentence: sentence.into(), remedy }
}

/// The first driver whose NVML tells its own reserve from memory in use.
const TELLS_RESERVE: u32 = 510;

fn of_driver(snapshot: &Snapshot, around: &Surroundings) -> Vec<Finding> {
    let mut findings = vec![];
    let (module, library) = (around.kernel_module.as_ref(), around.library.as_ref());
    let library_version = library.and_then(|(_, version)| version.as_ref());
    let versions = || match (module, library_version) {
        (Some(module), Some(library)) => format!(" (kernel module {module}, library {library})"),
        (Some(module), None) => format!(" (kernel module {module})"),
        (None, Some(library)) => format!(" (no kernel module is loaded, library {library})"),
        (None, None) => String::new(),
    };
    // Who finds versions that differ has found both: a container that was given no GPU finds none.
    let is_mismatch = snapshot.driver.trouble.as_ref().is_some_and(|it| it.cause == Cause::Mismatch);
    let is_blind = around.container.is_some() && around.devices.is_empty() && !is_mismatch;
    match &snapshot.driver.trouble {
        Some(trouble) => {
            let remedy = match trouble.cause {
                _ if is_blind => Some("docker run --gpus all …   # with the NVIDIA Container Toolkit on the host"),
                Cause::Mismatch => {
                    Some("sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia   # or reboot")
                }
                Cause::NoDriver => Some("sudo modprobe nvidia && nvidia-smi"),
                Cause::NoLibrary | Cause::NotLoading => Some("ldconfig -p | grep libnvidia-ml"),
                Cause::Denied => Some("ls -l /dev/nvidia*"),
                _ => Some("sudo dmesg | grep -i -e nvrm -e xid | tail"),
            };
            let sentence = format!("{}{}", trouble.sentence, versions());
            let sentence = if is_blind { format!("{sentence}; no GPU is given to this container") } else { sentence };
            findings.push(not("driver", sentence, remedy));
        }
        None => {
            let version = snapshot.driver.version.as_ref().map_or("of unknown version", |it| it.as_str());
            let cuda = snapshot.driver.cuda_version.as_ref().map_or("unknown", |it| it.as_str());
            findings.push(well("driver", format!("{version}, CUDA {cuda}{}", versions())));
            let major = version.split('.').next().and_then(|it| it.parse::<u32>().ok());
            if major.is_some_and(|major| major < TELLS_RESERVE) {
                let sentence =
                    "its memory in use includes what the driver keeps for itself, so a little memory looks unaccounted";
                findings.push(less(
                    "old driver",
                    sentence,
                    "nvidia-smi --query-gpu=driver_version --format=csv   # 510 or later tells them apart",
                ));
            }
        }
    }
    let gpus = &snapshot.gpus;
    for gpu in gpus {
        let failures = gpu.failures.iter().map(|it| format!("{it}"));
        let troubles = gpu.trouble.as_ref().map(|it| it.sentence.to_string());
        if let Some(sentence) = troubles.or_else(|| {
            let all: Vec<String> = failures.collect();
            (!all.is_empty()).then(|| format!("GPU {} does not answer {}", gpu.facts.index, all.join(", ")))
        }) {
            findings.push(less("GPU", sentence, "sudo dmesg | grep -i -e nvrm -e xid | tail"));
        }
    }
    if snapshot.driver.trouble.is_none() {
        let whole = gpus.iter().filter(|gpu| gpu.facts.parent.is_none()).count();
        findings.push(match (whole, gpus.len() - whole) {
            (0, _) => not("GPUs", "the driver says that there is none", Some("lspci | grep -i nvidia")),
            (whole, 0) => well("GPUs", whole.to_string()),
            (whole, parts) => well("GPUs", format!("{whole}, split into {parts} MIG instances")),
        });
    }
    let closed: Vec<&str> = around.devices.iter().filter(|(_, may)| !may).map(|(file, _)| file.as_str()).collect();
    if !closed.is_empty() {
        let sentence = format!("this user may not open {}", closed.join(", "));
        findings.push(less(
            "device files",
            sentence,
            "ls -l /dev/nvidia*; id   # the group that owns them must be yours",
        ));
    }
    findings
}

fn of_processes(snapshot: &Snapshot, around: &Surroundings) -> Vec<Finding> {
    let mut findings = vec![];
    let root = snapshot.host.facts.uid == 0;
    findings.push(if around.initial_pid_namespace {
        well("processes", "NVML's PIDs are those of this host")
    } else {
        let inside = around.container.map_or_else(String::new, |name| format!(" ({name})"));
        let sentence = format!(
            "this is a PID namespace of its own{inside}: NVML may name PIDs of the host, so only processes that hold a GPU's device file here can be ended"
        );
        less("processes", sentence, "docker run --pid=host …")
    });
    if let Some(option) = &around.hidepid {
        let sentence = format!("other users' processes cannot be seen: /proc is mounted with {option}");
        findings.push(less("hidden processes", sentence, "sudo mount -o remount,hidepid=0 /proc"));
    }
    let unreadable = snapshot.host.scan.unreadable;
    findings.push(match (root, unreadable) {
        (_, 0) => well("holders", "the open files of every process can be seen"),
        (_, count) => less(
            "holders",
            format!("the open files of {count} processes of other users cannot be seen: who of them holds unaccounted memory stays unknown"),
            "sudo gputop",
        ),
    });
    match around.ptrace_scope {
        Some(scope @ 1..) if !root => findings.push(less(
            "other processes' memory",
            format!("ptrace_scope is {scope}: what a PyTorch process has in its allocator cannot be read from outside"),
            "sudo sysctl kernel.yama.ptrace_scope=0",
        )),
        _ => {}
    }
    findings.push(if around.pidfd {
        well("ending processes", "by descriptor (pidfd): no signal can hit a successor of a PID")
    } else {
        not(
            "ending processes",
            "this kernel gives no descriptors of processes (pidfd), so nobody can be signalled safely",
            Some("uname -r   # Linux 5.3 or later has it"),
        )
    });
    findings.push(match &around.state_home {
        Some(home) => {
            let file = home.join("gputop/kills.jsonl");
            let elsewhere = "export XDG_STATE_HOME=$(mktemp -d)   # or any folder that is yours";
            match around.keeps_record {
                Some(true) => well("record of what was ended", file.to_string_lossy().into_owned()),
                Some(false) => less(
                    "record of what was ended",
                    format!("cannot be kept: this user may not write {}", file.display()),
                    elsewhere,
                ),
                None => less(
                    "record of what was ended",
                    format!("may not be kept: {} does not answer", home.display()),
                    elsewhere,
                ),
            }
        }
        None => {
            less("record of what was ended", "is not kept: neither XDG_STATE_HOME nor HOME is set", "export HOME=~")
        }
    });
    findings
}

/// What is said at the start, too, and there may be overlooked.
fn of_settings(settings: &SettingsState) -> Finding {
    match settings {
        SettingsState::Invalid(why) => not("settings", why, Some("gputop --config /dev/null   # starts without them")),
        SettingsState::Unreadable(why) => less("settings", why, "timeout 5 ls ~ || echo 'the home hangs'"),
        SettingsState::UnknownKeys(sentence) => {
            less("settings", sentence, "man gputop   # FILES lists the names that there are")
        }
        SettingsState::File(file) if file.exists() => well("settings", file.to_string_lossy()),
        SettingsState::File(file) => well("settings", format!("none: there is no {}", file.display())),
        SettingsState::NoHome => {
            less("settings", "have no place: neither XDG_CONFIG_HOME nor HOME is set", "export HOME=~")
        }
    }
}

fn of_terminal(able: TerminalAbilities) -> Vec<Finding> {
    let mut findings = vec![];
    findings.push(if terminal::is_stdout() {
        well(
            "terminal",
            if able.colour { "there is one, with colours" } else { "there is one; NO_COLOR, or TERM, says no colours" },
        )
    } else {
        less("terminal", "the output is not a terminal: tables are printed instead of the screen", "ssh -t HOST gputop")
    });
    if able.ascii {
        let sentence = "the locale is not UTF-8, or TERM is of a poor terminal: graphs are drawn in ASCII";
        findings.push(less("locale", sentence, "export LANG=C.UTF-8 TERM=xterm-256color"));
    }
    findings
}

/// A line for each, and below it the command.
fn text(findings: &[Finding]) -> String {
    let mut text = String::new();
    let width = findings.iter().map(|it| it.subject.len()).max().unwrap_or_default();
    for Finding { mark, subject, sentence, remedy } in findings {
        let word = match mark {
            Mark::Well => "ok  ",
            Mark::Less => "less",
            Mark::Not => "NOT ",
        };
        let _infallible: std::fmt::Result = writeln!(text, "{word}  {subject:width$}  {sentence}");
        if let Some(remedy) = remedy {
            let _infallible: std::fmt::Result = writeln!(text, "      {:width$}  try: {remedy}", "");
        }
    }
    text
}
