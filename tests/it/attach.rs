//! `gputop attach` starts the probe in a Python program that runs already, or says why it cannot.
//! PyTorch is a stand-in.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::{env, iter};

use fake_nvml::GpuProcess;
use rustix::process::Signal;

use crate::cli::json;
use crate::host::{GIB, Host};
use crate::print_note;
use crate::process::{ChildProcess, Output, run, wait_until};

/// A program that does what each line of its input says, and answers each with a line.
const PROGRAM: &str = r#"
import sys, time
print("ready", flush=True)
for line in sys.stdin:
    if line == "import\n":
        import torch
        print("imported", flush=True)
    elif line == "train\n":
        import torch
        parameter, kept = torch.nn.Parameter(3, 4), torch.empty(1000)
        optimizer = torch.optim.Optimizer([parameter])
        print("training", flush=True)
        while True:
            optimizer.step()
            time.sleep(0.001)
    else:
        print("nothing", flush=True)
"#;

/// A running program.
struct Program {
    process: ChildProcess,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Program {
    fn start(command: &mut Command) -> Self {
        let mut process = ChildProcess::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let stdin = process.child().stdin.take().expect("stdin is piped");
        let stdout = BufReader::new(process.child().stdout.take().expect("stdout is piped"));
        let mut program = Self {
            process,
            stdin,
            stdout,
        };
        program.wait_for("ready");
        program
    }

    fn wait_for(&mut self, answer: &str) {
        let mut line = String::new();
        self.stdout
            .read_line(&mut line)
            .expect("the program answers");
        assert_eq!(line.trim_end(), answer);
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").expect("the program reads its input");
    }

    fn pid(&self) -> String {
        self.process.pid().to_string()
    }
}

/// A host whose cache folder is private, and the folder of the stand-in for PyTorch on
/// `PYTHONPATH`.
fn host() -> Host {
    let host = Host::new(["H100"]);
    fs::create_dir(host.path("cache")).expect("/tmp has room");
    fs::set_permissions(host.path("cache"), Permissions::from_mode(0o700))
        .expect("the folder is ours");
    host
}

fn attach<'a>(host: &Host, arguments: impl IntoIterator<Item = &'a str>) -> Output {
    let mut command = host.gputop(iter::once("attach").chain(arguments));
    run(command
        .env("XDG_CACHE_HOME", host.path("cache"))
        .env_remove("XDG_RUNTIME_DIR"))
}

fn python(interpreter: impl AsRef<Path>) -> Command {
    let mut command = Command::new(interpreter.as_ref());
    let stand_in = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pytorch/stand_in");
    command
        .args(["-c", PROGRAM])
        .env("PYTHONPATH", stand_in)
        .env("GPUTOP_PROBE_INTERVAL", "0.05");
    command
}

/// Returns an interpreter of `CPython` 3.14 or later: that of `GPUTOP_TEST_PYTHON314`, one on the
/// PATH, or one of pyenv. `None`, with a note, if there is none.
fn new_python() -> Option<PathBuf> {
    let pyenv = env::home_dir().map(|home| home.join(".pyenv/versions"));
    let versions = pyenv
        .and_then(|folder| fs::read_dir(folder).ok())
        .into_iter()
        .flatten()
        .flatten();
    let found = env::var_os("GPUTOP_TEST_PYTHON314")
        .map(PathBuf::from)
        .into_iter();
    let found = found.chain(["python3.14", "python3.15"].map(PathBuf::from));
    let mut found = found.chain(versions.map(|version| version.path().join("bin/python3")));
    let is_new = |python: &PathBuf| {
        let test = "import sys; sys.exit(not getattr(sys, 'is_remote_debug_enabled', bool)())";
        Command::new(python)
            .args(["-c", test])
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    let python = found.find(is_new);
    if python.is_none() {
        print_note("skipped: no Python 3.14 is here; GPUTOP_TEST_PYTHON314 names one");
    }
    python
}

/// Checks that attaching is refused with one line that has these words.
#[track_caller]
fn check_refusal(output: &Output, words: &str) {
    assert_eq!(
        (
            output.code,
            output.text().as_str(),
            output.stderr.lines().count()
        ),
        (1, "", 1),
        "{}",
        output.stderr
    );
    assert!(output.stderr.contains(words), "{}", output.stderr);
}

#[test]
fn a_program_that_trains_has_the_probe_after_attach() {
    let Some(python_3_14) = new_python() else {
        return;
    };
    let mut host = host();
    let mut program = Program::start(&mut python(python_3_14));
    program.tell("import");
    program.wait_for("imported");
    program.tell("train");
    program.wait_for("training");
    let pid = program.pid();
    host.add_process(0, GpuProcess::new(program.process.pid(), GIB));
    let output = attach(&host, [pid.as_str(), "--wait", "1m"]);
    let expected =
        format!("attached to {pid}: press Enter on it in gputop, or run `gputop tensors {pid}`\n");
    assert_eq!(
        (output.code, output.text(), output.stderr.as_str()),
        (0, expected, "")
    );
    let mut report = serde_json::Value::Null;
    wait_until("steps are counted, and the parameter is found", || {
        let output = host.run(["tensors", &pid, "--json"]);
        report = if output.code == 0 {
            json(&output)["report"].clone()
        } else {
            serde_json::Value::Null
        };
        let has_parameter = report["groups"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|group| group["category"] == "parameters");
        has_parameter && report["steps"]["count"].as_u64() > Some(0)
    });
    assert_eq!(report["steps"]["source"], "optimizer_since_attach");
    assert_eq!(report["trouble"], serde_json::Value::Null);
    let text = host.run(["tensors", &pid]).text();
    assert!(text.contains(" steps since attach"), "{text}");
    check_refusal(
        &attach(&host, [pid.as_str()]),
        "has the probe already: run `gputop tensors",
    );
}

#[test]
fn the_probe_is_queued_until_the_main_thread_runs_python_and_then_waits_for_cuda() {
    let Some(python_3_14) = new_python() else {
        return;
    };
    let mut host = host();
    let mut program = Program::start(&mut python(python_3_14));
    let pid = program.pid();
    program.process.handle.wait_for_state('S');
    let output = attach(&host, [pid.as_str(), "--wait", "0s"]);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    assert!(
        output.text().starts_with(&format!("queued in {pid}: ")),
        "{}",
        output.text()
    );
    program.tell("anything");
    program.wait_for("nothing");
    // The program imports PyTorch only now.
    wait_until("the probe waits", || {
        attach(&host, [pid.as_str(), "--wait", "0s"])
            .stderr
            .contains("which waits for")
    });
    program.tell("train");
    program.wait_for("training");
    host.add_process(0, GpuProcess::new(program.process.pid(), GIB));
    wait_until("the probe counts steps", || {
        host.run(["tensors", &pid])
            .text()
            .contains(" steps since attach")
    });
}

#[test]
fn a_program_that_started_with_a_switch_is_refused() {
    let Some(python_3_14) = new_python() else {
        return;
    };
    let host = host();
    for (name, value, words) in [
        (
            "PYTHON_DISABLE_REMOTE_DEBUG",
            "1",
            "was started with `-X disable-remote-debug`",
        ),
        ("GPUTOP_PROBE", "0", "was started with GPUTOP_PROBE=0"),
    ] {
        let program = Program::start(python(&python_3_14).env(name, value));
        check_refusal(&attach(&host, [program.pid().as_str()]), words);
    }
    let folder = host.path("probe").display().to_string();
    let path = format!(
        "{folder}:{}",
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pytorch/stand_in")
    );
    let mut command = python(&python_3_14);
    let program = Program::start(
        command
            .env("GPUTOP_PROBE_FOLDER", folder)
            .env("PYTHONPATH", path),
    );
    check_refusal(
        &attach(&host, [program.pid().as_str()]),
        "has the probe already, which waits for",
    );
}

#[test]
fn an_older_python_is_refused_with_its_version() {
    let version =
        run(Command::new("python3")
            .args(["-c", "import platform; print(platform.python_version())"]))
        .text();
    let minor: Option<u32> = version
        .split('.')
        .nth(1)
        .and_then(|minor| minor.parse().ok());
    if minor.is_none_or(|minor| minor >= 14) {
        return print_note(format_args!(
            "skipped: python3 is no older Python, but {version}"
        ));
    }
    let program = Program::start(&mut python("python3"));
    let words = format!(
        "runs Python {}, and only CPython 3.14 or later lets gputop attach: start",
        version.trim_end()
    );
    check_refusal(&attach(&host(), [program.pid().as_str()]), &words);
}

#[test]
fn what_is_no_python_program_is_refused() {
    let mut host = host();
    let sleep = host.start_sleep(0, GIB).to_string();
    wait_until("the process runs sleep", || {
        fs::read_link(format!("/proc/{sleep}/exe")).is_ok_and(|program| program.ends_with("sleep"))
    });
    check_refusal(
        &attach(&host, [sleep.as_str()]),
        "/sleep, which is no Python interpreter: give the PID",
    );
    for pid in ["0", "4194305", "4294967295"] {
        check_refusal(
            &attach(&host, [pid]),
            &format!("no process {pid} is seen here: it has ended, or"),
        );
    }
    let output = attach(&host, ["train.py"]);
    assert_eq!(
        (output.code, output.stdout.len()),
        (2, 0),
        "{}",
        output.stderr
    );
    let mut ended = ChildProcess::spawn(&mut Command::new("true"));
    let pid = ended.pid().to_string();
    ended.wait();
    check_refusal(&attach(&host, [pid.as_str()]), "it has ended");
}

#[test]
fn a_thread_is_refused_with_the_pid_of_its_process() {
    let host = host();
    let program = "import threading; event = threading.Event(); thread = threading.Thread(target=event.wait); thread.start(); \
                   print('ready', flush=True); print(thread.native_id, flush=True)";
    let mut program = Program::start(Command::new("python3").args(["-c", program]));
    let mut thread = String::new();
    program
        .stdout
        .read_line(&mut thread)
        .expect("the program prints");
    let words = format!(
        "{0} is a thread of process {1}: run `gputop attach {1}`",
        thread.trim_end(),
        program.pid()
    );
    check_refusal(&attach(&host, [thread.trim_end()]), &words);
}

#[test]
fn a_stopped_process_is_refused() {
    let program = Program::start(&mut python("python3"));
    program.process.handle.signal(Signal::STOP);
    program.process.handle.wait_for_state('T');
    let pid = program.pid();
    check_refusal(
        &attach(&host(), [pid.as_str()]),
        &format!("is stopped: continue it first, as with `kill -CONT {pid}`"),
    );
    program.process.handle.signal(Signal::CONT);
}

#[test]
fn root_does_not_run_the_python_of_another_user() {
    if !rustix::process::getuid().is_root() {
        return print_note("skipped: only root can start a process of another user");
    }
    // A shell script of pyenv may stand in front of the interpreter, in a folder that other users
    // may not enter.
    let real =
        run(Command::new("python3").args(["-c", "import sys; print(sys.executable)"])).text();
    let copy = host();
    let program = Program::start(Command::new(real.trim_end()).args([
        "-c",
        "import os, sys; os.setresuid(54321, 54321, 54321); print('ready', flush=True); sys.stdin.read()",
    ]));
    let pid = program.pid();
    check_refusal(
        &attach(&copy, [pid.as_str()]),
        "belongs to #54321, and gputop runs its Python as nobody else, root included",
    );
    // Other way around, the kernel hides it, and the owner is named first.
    let own = Program::start(&mut python("python3"));
    let binary = copy.install(Path::new(env!("CARGO_BIN_EXE_gputop")), "gputop");
    let mut command = Command::new(binary);
    let output = run(command.args(["attach", &own.pid()]).uid(54321));
    check_refusal(
        &output,
        "belongs to root, and gputop runs its Python as nobody else",
    );
}

#[test]
fn a_process_of_a_container_is_refused_with_its_pid_there() {
    if !rustix::process::getuid().is_root() {
        return print_note("skipped: only root can make a PID namespace");
    }
    let program = "import os; print('ready', flush=True); print(os.getpid(), flush=True); input()";
    let mut command = Command::new("unshare");
    command.args([
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "python3",
        "-c",
        program,
    ]);
    let mut unshare = Program::start(&mut command);
    unshare.wait_for("1");
    let children = format!("/proc/{0}/task/{0}/children", unshare.pid());
    let pid = fs::read_to_string(children).expect("unshare runs");
    check_refusal(
        &attach(&host(), [pid.trim()]),
        "in a container or a similar namespace",
    );
    check_refusal(
        &attach(&host(), [pid.trim()]),
        "run `gputop attach 1` inside it",
    );
}
