//! `gputop doctor`: diagnoses the setup, and suggests a command for each problem.
//!
//! The driver is read through an agent, as in every report, so a driver that hangs does not hang
//! this command.

mod secret_list;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

pub(crate) use self::secret_list::run as list_secrets;
use super::live::read_hosts;
use crate::agent::diagnostics::Diagnostics;
use crate::app::lists::unknown_processes;
use crate::base::terminal::{self, TerminalAbilities};
use crate::base::text::Text;
use crate::flags::ReadArgs;
use crate::model::HostModel;
use crate::output::{self, Exit};
use crate::protocol::snapshot::{Cause, Missing, Snapshot};

#[derive(Debug, Clone, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    read: ReadArgs,

    /// List instead the secrets in the arguments of this host's processes: program, option, and why
    /// gputop masks each; shows none
    #[arg(long)]
    pub(crate) secrets: bool,
}

/// The end of the help.
const EXIT_CODES: &str = "\
Exit codes:
    0  no check found an error; there may be warnings
    3  the host has no NVIDIA driver
    4  it has no GPU
    1  a check found an error";

/// Whether `kills.jsonl`, the log of ended processes, can be written.
#[derive(Debug)]
pub(crate) enum AuditLogState {
    Writable(PathBuf),
    /// The file, and why this user may not write it.
    NotWritable(PathBuf, String),
    /// The file system of the file did not answer in time.
    Unresponsive(PathBuf),
    NoHome,
}

#[derive(Debug)]
pub(crate) enum SettingsState {
    Invalid(String),
    Unreadable(String),
    UnknownKeys(String),
    /// The settings are valid.
    File(PathBuf),
    /// There is no such file.
    NoFile(PathBuf),
    NoHome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
enum DiagnosisResult {
    Ok,
    /// gputop works, but shows or does less.
    Warning,
    /// A main function does not work.
    Error,
}

#[derive(Debug)]
struct Diagnosis {
    result: DiagnosisResult,
    subject: &'static str,
    sentence: String,
    /// A command that may solve the problem.
    remedy: Option<&'static str>,
}

impl Diagnosis {
    fn ok(subject: &'static str, sentence: impl Into<String>) -> Self {
        Self {
            result: DiagnosisResult::Ok,
            subject,
            sentence: sentence.into(),
            remedy: None,
        }
    }

    fn warning(subject: &'static str, sentence: impl Into<String>, remedy: &'static str) -> Self {
        Self {
            result: DiagnosisResult::Warning,
            subject,
            sentence: sentence.into(),
            remedy: Some(remedy),
        }
    }

    fn error(
        subject: &'static str,
        sentence: impl Into<String>,
        remedy: Option<&'static str>,
    ) -> Self {
        Self {
            result: DiagnosisResult::Error,
            subject,
            sentence: sentence.into(),
            remedy,
        }
    }
}

const KERNEL_LOG: &str = "sudo dmesg | grep -i -e nvrm -e xid | tail";

/// Prints the results of all checks. The exit code is 0 unless there is an error. Fails if no agent
/// can be started, or if the standard output cannot be written.
pub(crate) fn run(
    args: &DoctorArgs,
    settings: &SettingsState,
    audit_log: &AuditLogState,
) -> anyhow::Result<ExitCode> {
    let around = Diagnostics::read(args.read.agent.nvml_lib.as_deref());
    let able = TerminalAbilities::from_env();
    let mut diagnoses = Vec::new();
    let exit = read_hosts::read_once(
        &args.read.this_host(None),
        HostModel::is_complete,
        |_| true,
        Duration::ZERO,
        |hosts| {
            let Some((_, snapshot)) = hosts[0].seen else {
                let reason = hosts[0]
                    .trouble
                    .as_ref()
                    .map_or("does not respond", Text::as_str);
                diagnoses.push(Diagnosis::error("agent", reason, None));
                return Exit::Error;
            };
            check_driver(&mut diagnoses, snapshot, &around);
            check_gpus(&mut diagnoses, snapshot, &around);
            check_processes(&mut diagnoses, snapshot, &around);
            Exit::of_snapshot(snapshot, true)
        },
    )?;
    diagnoses.push(check_audit_log(audit_log));
    diagnoses.push(check_settings(settings));
    check_terminal(&mut diagnoses, able);
    let text = text(&diagnoses);
    output::print_text(&text, able.ascii)?;
    let has_errors = diagnoses
        .iter()
        .any(|diagnosis| diagnosis.result == DiagnosisResult::Error);
    let exit = match exit {
        Exit::NoDriver | Exit::NoGpu => exit,
        _ if has_errors => Exit::Error,
        _ => Exit::Success,
    };
    Ok(exit.into())
}

fn check_driver(diagnoses: &mut Vec<Diagnosis>, snapshot: &Snapshot, around: &Diagnostics) {
    /// The first driver whose NVML separates reserved memory from memory in use.
    const SEPARATES_RESERVED: u32 = 510;
    let library_version = around
        .library
        .as_ref()
        .and_then(|(_, version)| version.as_ref());
    let versions = match (&around.kernel_module, library_version) {
        (Some(module), Some(library)) => format!(" (kernel module {module}, library {library})"),
        (Some(module), None) => format!(" (kernel module {module})"),
        (None, Some(library)) => format!(" (no kernel module is loaded, library {library})"),
        (None, None) => String::new(),
    };
    let Some(trouble) = &snapshot.driver.trouble else {
        let version = snapshot
            .driver
            .version
            .as_ref()
            .map_or("of unknown version", |version| version.as_str());
        let cuda = snapshot
            .driver
            .cuda_version
            .as_ref()
            .map_or("unknown", |version| version.as_str());
        diagnoses.push(Diagnosis::ok(
            "driver",
            format!("{version}, CUDA {cuda}{versions}"),
        ));
        let major = version
            .split('.')
            .next()
            .and_then(|major| major.parse::<u32>().ok());
        if major.is_some_and(|major| major < SEPARATES_RESERVED) {
            diagnoses.push(Diagnosis::warning(
                "old driver",
                "memory in use includes memory reserved by the driver, so a little memory appears as unaccounted",
                "nvidia-smi --query-gpu=driver_version --format=csv   # 510 or later separates them",
            ));
        }
        return;
    };
    // Different versions of module and library are only found if the container has a GPU.
    let lacks_gpu =
        around.container.is_some() && around.devices.is_empty() && trouble.cause != Cause::Mismatch;
    let remedy = match trouble.cause {
        _ if lacks_gpu => {
            "docker run --gpus all …   # with the NVIDIA Container Toolkit on the host"
        }
        Cause::Mismatch => {
            "sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia   # or reboot"
        }
        Cause::NoDriver => "sudo modprobe nvidia && nvidia-smi",
        Cause::NoLibrary | Cause::NotLoading => "ldconfig -p | grep libnvidia-ml",
        Cause::Denied => "ls -l /dev/nvidia*",
        _ => KERNEL_LOG,
    };
    let container = if lacks_gpu {
        "; this container has no GPU"
    } else {
        ""
    };
    diagnoses.push(Diagnosis::error(
        "driver",
        format!("{}{versions}{container}", trouble.sentence),
        Some(remedy),
    ));
}

fn check_gpus(diagnoses: &mut Vec<Diagnosis>, snapshot: &Snapshot, around: &Diagnostics) {
    for gpu in &snapshot.gpus {
        let sentence = match &gpu.trouble {
            Some(trouble) => trouble.sentence.to_string(),
            None if gpu.failures.is_empty() => continue,
            None => {
                let failures: Vec<String> = gpu.failures.iter().map(ToString::to_string).collect();
                format!(
                    "GPU {} does not answer {}",
                    gpu.facts.index,
                    failures.join(", ")
                )
            }
        };
        diagnoses.push(Diagnosis::warning("GPU", sentence, KERNEL_LOG));
    }
    if snapshot.driver.trouble.is_none() {
        let whole = snapshot
            .gpus
            .iter()
            .filter(|gpu| gpu.facts.parent.is_none())
            .count();
        diagnoses.push(match (whole, snapshot.gpus.len() - whole) {
            (0, _) => Diagnosis::error(
                "GPUs",
                "the driver finds none",
                Some("lspci | grep -i nvidia"),
            ),
            (whole, 0) => Diagnosis::ok("GPUs", whole.to_string()),
            (whole, instances) => Diagnosis::ok(
                "GPUs",
                format!("{whole}, split into {instances} MIG instances"),
            ),
        });
    }
    let closed = around
        .devices
        .iter()
        .filter(|(_, may_open)| !may_open)
        .map(|(file, _)| file.as_str());
    let closed: Vec<&str> = closed.collect();
    if !closed.is_empty() {
        diagnoses.push(Diagnosis::warning(
            "device files",
            format!("this user may not open {}", closed.join(", ")),
            "ls -l /dev/nvidia*; id   # you must be in the group that owns them",
        ));
    }
}

fn check_processes(diagnoses: &mut Vec<Diagnosis>, snapshot: &Snapshot, around: &Diagnostics) {
    diagnoses.push(if around.is_initial_pid_namespace {
        Diagnosis::ok("processes", "NVML's PIDs are those of this host")
    } else {
        let container = around.container.map_or_else(String::new, |name| format!(" ({name})"));
        Diagnosis::warning(
            "processes",
            format!(
                "this is a PID namespace of its own{container}: NVML may report PIDs of the host, so only processes that \
                 have a GPU's device file open here can be ended"
            ),
            "docker run --pid=host …",
        )
    });
    let remedy = match snapshot.gpus.iter().find_map(|gpu| gpu.missing.processes) {
        Some(Missing::Unsupported) => {
            "nvidia-smi   # in WSL 2, run nvidia-smi.exe on Windows; with a vGPU, on its host"
        }
        Some(Missing::Denied) => {
            "ls -l /dev/nvidia*; id   # you must be in the group that owns them"
        }
        _ => KERNEL_LOG,
    };
    for sentence in unknown_processes::sentences(&snapshot.gpus) {
        diagnoses.push(Diagnosis::warning("process list", sentence, remedy));
    }
    if let Some(option) = &around.hidepid {
        diagnoses.push(Diagnosis::warning(
            "hidden processes",
            format!("other users' processes are hidden: /proc is mounted with {option}"),
            "sudo mount -o remount,hidepid=0 /proc",
        ));
    }
    diagnoses.push(match snapshot.host.scan.unreadable {
        0 if snapshot.host.facts.hides_processes == Ok(true) => Diagnosis::warning(
            "device-file holders",
            "the processes of other users are hidden: they may hold unaccounted memory".to_owned(),
            "sudo gputop",
        ),
        0 => Diagnosis::ok("device-file holders", "the open files of every process can be read"),
        count => Diagnosis::warning(
            "device-file holders",
            format!(
                "the open files of {count} processes of other users cannot be read: they may hold unaccounted memory"
            ),
            "sudo gputop",
        ),
    });
    let is_root = snapshot.host.facts.uid == 0;
    if let Some(scope) = around.ptrace_scope.filter(|scope| *scope > 0 && !is_root) {
        diagnoses.push(Diagnosis::warning(
            "memory of processes",
            format!("ptrace_scope is {scope}: PyTorch's allocator stats cannot be read from outside the process"),
            "sudo sysctl kernel.yama.ptrace_scope=0",
        ));
    }
    diagnoses.push(if around.has_pidfd {
        Diagnosis::ok("ending processes", "by file descriptor (pidfd), so a signal never reaches a reused PID")
    } else {
        Diagnosis::error(
            "ending processes",
            "this kernel has no file descriptors of processes (pidfd), so no process can be signalled safely",
            Some("uname -r   # Linux 5.3 or later has them"),
        )
    });
}

fn check_audit_log(audit_log: &AuditLogState) -> Diagnosis {
    const SUBJECT: &str = "audit log";
    const OTHER_FOLDER: &str = "export XDG_STATE_HOME=$(mktemp -d)   # or any folder of yours";
    match audit_log {
        AuditLogState::Writable(file) => Diagnosis::ok(SUBJECT, file.to_string_lossy()),
        AuditLogState::NotWritable(file, why) => Diagnosis::warning(
            SUBJECT,
            format!("this user may not write {}: {why}", file.display()),
            OTHER_FOLDER,
        ),
        AuditLogState::Unresponsive(file) => Diagnosis::warning(
            SUBJECT,
            format!("{} does not respond", file.display()),
            OTHER_FOLDER,
        ),
        AuditLogState::NoHome => Diagnosis::warning(
            SUBJECT,
            "off: neither XDG_STATE_HOME nor HOME is set",
            "export HOME=~",
        ),
    }
}

fn check_settings(settings: &SettingsState) -> Diagnosis {
    const SUBJECT: &str = "settings";
    match settings {
        SettingsState::Invalid(error) => Diagnosis::error(
            SUBJECT,
            error,
            Some("gputop --config /dev/null   # starts without settings"),
        ),
        SettingsState::Unreadable(error) => Diagnosis::warning(
            SUBJECT,
            error,
            "timeout 5 ls ~ || echo 'the home directory hangs'",
        ),
        SettingsState::UnknownKeys(sentence) => {
            Diagnosis::warning(SUBJECT, sentence, "man gputop   # FILES lists all names")
        }
        SettingsState::File(file) => Diagnosis::ok(SUBJECT, file.to_string_lossy()),
        SettingsState::NoFile(file) => {
            Diagnosis::ok(SUBJECT, format!("none: there is no {}", file.display()))
        }
        SettingsState::NoHome => Diagnosis::warning(
            SUBJECT,
            "no folder: neither XDG_CONFIG_HOME nor HOME is set",
            "export HOME=~",
        ),
    }
}

fn check_terminal(diagnoses: &mut Vec<Diagnosis>, able: TerminalAbilities) {
    diagnoses.push(match (terminal::is_stdout(), able.has_colour()) {
        (true, true) => Diagnosis::ok("terminal", "with colours"),
        (true, false) => Diagnosis::ok("terminal", "without colours, because of NO_COLOR or TERM"),
        (false, _) => Diagnosis::warning(
            "terminal",
            "the output is not a terminal: tables are printed instead of the screen",
            "ssh -t HOST gputop",
        ),
    });
    if able.ascii {
        diagnoses.push(Diagnosis::warning(
            "locale",
            "the locale is not UTF-8, or TERM is of a limited terminal: graphs are drawn in ASCII",
            "export LANG=C.UTF-8 TERM=xterm-256color",
        ));
    }
}

fn text(diagnoses: &[Diagnosis]) -> String {
    let width = diagnoses
        .iter()
        .map(|diagnosis| diagnosis.subject.len())
        .max()
        .unwrap_or_default();
    let lines = diagnoses.iter().map(
        |Diagnosis {
             result,
             subject,
             sentence,
             remedy,
         }| {
            let word: &str = result.into();
            let remedy = remedy.map_or_else(String::new, |remedy| {
                format!("         {:width$}  try: {remedy}\n", "")
            });
            format!("{word:7}  {subject:width$}  {sentence}\n{remedy}")
        },
    );
    lines.collect()
}
