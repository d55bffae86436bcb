//! `gputop explain` in a pipe, and on files, arguments and running processes.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use fake_nvml::GpuProcess;
use rustix::process::Signal;

use crate::cli::json;
use crate::host::{GIB, Host};
use crate::process::{ChildProcess, Output, exit_code, run, wait_until};
use crate::terminal::Terminal;

const OK: i32 = 0;
const ERROR: i32 = 1;
const NOTHING_FOUND: i32 = 6;

const MESSAGE: &str = "RuntimeError: CUDA out of memory. Tried to allocate 14.14 GiB (GPU 0; 11.00 GiB total capacity; 71.43 \
    MiB already allocated; 9.17 GiB free; 80.00 MiB reserved in total by PyTorch)\n";
const EXPLANATION: &str = "14.14 GiB were requested at once, and the whole GPU has 11.00 GiB";

/// A message that names another process.
pub(crate) fn message_naming(pid: u32) -> String {
    format!(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.25 GiB of \
         which 1.25 GiB is free. Process {pid} has 70.00 GiB memory in use. Including non-PyTorch memory, this process has \
         7.50 GiB memory in use. Of the allocated memory 7.00 GiB is allocated by PyTorch, and 20.00 MiB is reserved by \
         PyTorch but unallocated.\n"
    )
}

/// A `gputop explain` whose input and output are pipes.
struct Pipeline {
    gputop: ChildProcess,
    input: Option<ChildStdin>,
    output: Option<ChildStdout>,
}

impl Pipeline {
    fn start(host: &Host, args: &[&str]) -> Self {
        let mut command = host.gputop(["explain"].iter().chain(args).copied());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut gputop = ChildProcess::spawn(&mut command);
        let (input, output) = (gputop.child().stdin.take(), gputop.child().stdout.take());
        Self {
            gputop,
            input,
            output,
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().expect("the pipe is open");
        input.write_all(bytes).expect("gputop reads its input");
    }

    /// Writes bytes, and checks that the same bytes come out.
    #[track_caller]
    fn write_and_check(&mut self, bytes: &[u8]) {
        self.write(bytes);
        let mut passed = vec![0; bytes.len()];
        self.output
            .as_mut()
            .expect("the pipe is open")
            .read_exact(&mut passed)
            .expect("gputop writes to its output");
        assert_eq!(passed, bytes);
    }

    /// Closes the input, and returns the remaining output.
    fn finish(mut self) -> Output {
        self.input = None;
        let mut output = self.output.take().expect("the pipe is open");
        let (mut stdout, mut stderr) = (Vec::new(), String::new());
        output.read_to_end(&mut stdout).expect("a pipe can be read");
        self.gputop
            .child()
            .stderr
            .take()
            .expect("stderr is piped")
            .read_to_string(&mut stderr)
            .expect("UTF-8");
        Output {
            code: exit_code(self.gputop.wait()),
            stdout,
            stderr,
        }
    }
}

#[test]
fn a_pipe_passes_every_byte_on_at_once() {
    let host = Host::with_jitter(["H100"]);
    let mut pipeline = Pipeline::start(&host, &[]);
    // Each piece must come out before the next one goes in, even without a line end or valid UTF-8.
    for piece in [
        b"epoch 1".as_slice(),
        b"\xff\xfe\0\x1b[31m",
        b"\r 37%",
        MESSAGE.as_bytes(),
        b"no end of line",
    ] {
        pipeline.write_and_check(piece);
    }
    let output = pipeline.finish();
    assert_eq!(output.code, OK);
    assert_eq!(output.stdout, b"", "all output was read before");
    assert!(output.stderr.contains(EXPLANATION), "{}", output.stderr);
    assert!(
        output.stderr.contains("line 1") && !output.stderr.contains('\x1b'),
        "{}",
        output.stderr
    );
}

#[test]
fn without_a_cause_every_form_says_what_was_looked_for() {
    let host = Host::with_jitter(["H100"]);
    let mut pipeline = Pipeline::start(&host, &[]);
    pipeline.write_and_check(b"all is well\n");
    let output = pipeline.finish();
    assert_eq!(output.code, OK, "a program without trouble is a success");
    assert!(
        output
            .stderr
            .starts_with("gputop: no memory error in 1 line. Looked for: "),
        "{}",
        output.stderr
    );
    let mut pipeline = Pipeline::start(&host, &["-"]);
    pipeline.write(b"all is well\n");
    assert_eq!(pipeline.finish().code, NOTHING_FOUND);
    let mut pipeline = Pipeline::start(&host, &["-"]);
    pipeline.write(b"torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n");
    let output = pipeline.finish();
    assert_eq!(output.code, NOTHING_FOUND);
    assert!(
        output
            .stderr
            .contains("The log has what follows such an error, without the error itself"),
        "{}",
        output.stderr
    );
    let mut pipeline = Pipeline::start(&host, &["--json"]);
    pipeline.write(b"all is well\n");
    let output = pipeline.finish();
    assert_eq!(
        (
            output.code,
            json(&output)["messages"].as_array().map(Vec::len)
        ),
        (NOTHING_FOUND, Some(0))
    );
}

#[test]
fn a_failure_in_unknown_words_is_shown_with_its_line() {
    const LOG: &[u8] = b"step 1\n[ERROR] engine: device arena is out of memory\nbye\n";
    const SHOWN: &str =
        "gputop: not known to gputop: line 2 [ERROR] engine: device arena is out of memory\n";
    let host = Host::with_jitter(["H100"]);
    let mut pipeline = Pipeline::start(&host, &[]);
    pipeline.write_and_check(LOG);
    let output = pipeline.finish();
    assert_eq!(output.code, NOTHING_FOUND);
    assert!(
        output.stderr.ends_with(SHOWN) && !output.stderr.contains("no memory error"),
        "{}",
        output.stderr
    );
    let mut pipeline = Pipeline::start(&host, &["--json"]);
    pipeline.write(LOG);
    let output = pipeline.finish();
    let explained = json(&output);
    assert_eq!(
        (output.code, explained["messages"].as_array().map(Vec::len)),
        (NOTHING_FOUND, Some(0))
    );
    assert_eq!(
        explained["unrecognised_lines"][0]["line"], 2,
        "{explained:#}"
    );
    // In front of a known cause, the line is shown with it.
    let log = host.path("train.log");
    fs::write(&log, [LOG, MESSAGE.as_bytes()].concat()).expect("/tmp has room");
    let output = host.run(["explain", log.to_str().expect("UTF-8")]);
    assert_eq!(output.code, OK);
    assert!(
        output.text().ends_with(
            "\nnot known to gputop: line 2 [ERROR] engine: device arena is out of memory\n"
        ),
        "{}",
        output.text()
    );
}

#[test]
fn a_failure_after_which_the_program_continued_is_said_to_be_one() {
    let host = Host::with_jitter(["H100"]);
    let mut pipeline = Pipeline::start(&host, &[]);
    pipeline.write_and_check(MESSAGE.as_bytes());
    pipeline.write_and_check(b"Decreasing batch size to: 32\nepoch 1\n");
    let output = pipeline.finish();
    assert_eq!(output.code, OK);
    assert_eq!(
        output.stderr,
        "gputop: no memory error in 3 lines that ended anything: line 1 states one, and by line 2 the program continued.\n"
    );
}

#[test]
fn compressed_logs_are_read() {
    let host = Host::with_jitter(["H100"]);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/oom/compressed");
    for name in ["log.gz", "log.zst", "log.xz"] {
        let bytes = fs::read(folder.join(name)).expect("the file is checked in");
        let output = host.run(["explain", folder.join(name).to_str().expect("UTF-8")]);
        assert_eq!((output.code, output.stderr.as_str()), (OK, ""), "{name}");
        assert!(
            output
                .text()
                .starts_with("CUDA out of memory on GPU 0: 2.00 GiB requested (line 4)\n"),
            "{}",
            output.text()
        );
        let mut pipeline = Pipeline::start(&host, &["-"]);
        pipeline.write(&bytes);
        assert!(
            pipeline
                .finish()
                .text()
                .starts_with("CUDA out of memory on GPU 0"),
            "{name}"
        );
    }
    // The beginning of a log whose end is missing is explained, and the rest is missed.
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    gzip.write_all(format!("{MESSAGE}{}", "step 1\n".repeat(50_000)).as_bytes())
        .expect("memory has room");
    let gzip = gzip.finish().expect("memory has room");
    let cut = host.path("cut.gz");
    fs::write(&cut, &gzip[..gzip.len() - 9]).expect("/tmp has room");
    let cut = cut.to_str().expect("UTF-8");
    let output = host.run(["explain", cut]);
    assert_eq!(output.code, OK);
    assert_eq!(
        output.stderr,
        format!("gputop: only the beginning of {cut} could be read: its end is missing\n")
    );
    assert_eq!(
        json(&host.run(["explain", "--json", cut]))["unread"][0]["reason"],
        "its end is missing"
    );
    fs::write(cut, b"PK\x03\x04 and more").expect("/tmp has room");
    let output = host.run(["explain", cut]);
    assert_eq!(output.code, ERROR);
    assert!(
        output
            .stderr
            .contains("it is compressed with zip: use `unzip -p FILE | gputop explain -`"),
        "{}",
        output.stderr
    );
}

#[test]
fn an_error_without_figures_is_named_with_what_followed() {
    const LOG: &str = "step 40\n/var/spool/slurm_script: line 28:  8156 Killed                  python3 train.py\n\
        torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n\
        slurmstepd: error: Detected 1 oom-kill event(s) in StepId=191.batch cgroup.\n";
    let host = Host::with_jitter(["H100"]);
    let log = host.path("train.log");
    fs::write(&log, LOG).expect("/tmp has room");
    let output = host.run(["explain", log.to_str().expect("UTF-8")]);
    assert_eq!((output.code, output.stderr.as_str()), (OK, ""));
    let text = output
        .text()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    let offset = |words: &str| {
        text.find(words)
            .unwrap_or_else(|| panic!("no `{words}` in\n{text}"))
    };
    let order = [
        "The first is the cause, and the other its consequence.",
        "1. Slurm's job has used more memory than it asked for (line 4)",
        "sbatch --mem=64G job.sh",
        "2. A process was killed (SIGKILL) (line 2)",
        "What followed: torchrun ended the other ranks",
    ];
    assert!(
        order
            .windows(2)
            .all(|pair| offset(pair[0]) < offset(pair[1])),
        "{text}"
    );
}

#[test]
fn closing_the_output_closes_the_input() {
    let host = Host::with_jitter(["H100"]);
    let mut pipeline = Pipeline::start(&host, &[]);
    pipeline.write_and_check(MESSAGE.as_bytes());
    pipeline.output = None;
    // A parallel test that is starting a program keeps the pipe open for a moment, so one line is
    // not enough.
    let (input, life) = (
        pipeline.input.as_mut().expect("the pipe is open"),
        &pipeline.gputop.handle,
    );
    wait_until("gputop ends", || {
        let _closed = input.write_all(b"more\n");
        life.ends_within(Duration::from_millis(5))
    });
    let error = input
        .write_all(b"nobody reads this\n")
        .expect_err("the pipe is closed");
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    let mut err = String::new();
    pipeline
        .gputop
        .child()
        .stderr
        .take()
        .expect("stderr is piped")
        .read_to_string(&mut err)
        .expect("UTF-8");
    assert_eq!(exit_code(pipeline.gputop.wait()), OK);
    assert!(
        err.contains(EXPLANATION),
        "what was seen is explained: {err}"
    );
}

#[test]
fn after_an_interrupt_the_last_lines_of_the_writer_pass() {
    let host = Host::with_jitter(["H100"]);
    let mut pipeline = Pipeline::start(&host, &[]);
    pipeline.write_and_check(b"epoch 1\n");
    pipeline.gputop.handle.signal(Signal::INT);
    pipeline.write_and_check(b"KeyboardInterrupt\n");
    pipeline.write_and_check(MESSAGE.as_bytes());
    let output = pipeline.finish();
    assert_eq!(output.code, OK, "{}", output.stderr);
    assert!(output.stderr.contains(EXPLANATION), "{}", output.stderr);
}

#[test]
fn an_endless_log_takes_bounded_memory() {
    const PIECES: usize = 128;
    let host = Host::with_jitter(["H100"]);
    let mut pipeline = Pipeline::start(&host, &[]);
    // Incomplete messages, a line of 8 MB, and many different messages.
    let mut piece = vec![b'x'; 1 << 16];
    piece.extend_from_slice(b"CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total");
    let mut output = pipeline.output.take().expect("the pipe is open");
    let reader = thread::spawn(move || {
        let mut bytes = Vec::new();
        output.read_to_end(&mut bytes).expect("a pipe can be read");
        bytes
    });
    let resident = |pipeline: &Pipeline| {
        let status = fs::read_to_string(format!("/proc/{}/status", pipeline.gputop.pid()))
            .expect("gputop runs");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .expect("the status has VmRSS");
        line.trim()
            .trim_end_matches(" kB")
            .parse::<u64>()
            .expect("a number")
    };
    let mut sent = Vec::new();
    let mut early = 0;
    for place in 0..PIECES {
        let number =
            format!("\nCUDA out of memory. Tried to allocate {place}.00 MiB. GPU 0 has a tot");
        for bytes in [piece.as_slice(), number.as_bytes()] {
            pipeline.write(bytes);
            sent.extend_from_slice(bytes);
        }
        if place == PIECES / 8 {
            early = resident(&pipeline);
        }
    }
    let late = resident(&pipeline);
    assert!(late < early + 4096, "{early} kB became {late} kB");
    pipeline.input = None;
    assert!(
        reader.join().expect("reading does not panic") == sent,
        "what came out is not what went in"
    );
    assert_eq!(exit_code(pipeline.gputop.wait()), OK);
}

#[test]
fn files_arguments_and_json_pass_nothing_on() {
    let host = Host::with_jitter(["H100"]);
    let (log, other) = (host.path("train.log"), host.path("other.log"));
    fs::write(&log, format!("epoch 1\n{MESSAGE}")).expect("/tmp has room");
    fs::write(&other, "epoch 1\n").expect("/tmp has room");
    let log = log.to_str().expect("UTF-8");

    let output = host.run(["explain", log]);
    assert_eq!(output.code, OK, "{}", output.stderr);
    assert!(
        output
            .text()
            .starts_with("CUDA out of memory on GPU 0: 14.14 GiB requested (line 2)\n"),
        "{}",
        output.text()
    );
    assert_eq!(output.stderr, "");

    assert!(
        output.text().lines().all(|line| line.chars().count() <= 80),
        "80 columns in a pipe: {}",
        output.text()
    );
    let output = run(host.gputop(["explain", log]).env("COLUMNS", "50"));
    assert!(
        output
            .text()
            .lines()
            .any(|line| line.starts_with("too big: ") && line.len() <= 50),
        "{}",
        output.text()
    );

    let output = host.run(["explain", log, other.to_str().expect("UTF-8")]);
    let text = output
        .text()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(text.contains("train.log; line 2"), "{text}");

    let output = host.run(["explain", MESSAGE]);
    assert!(
        output
            .text()
            .starts_with("CUDA out of memory on GPU 0: 14.14 GiB requested\n"),
        "{}",
        output.text()
    );
    let output = run(host.gputop(["explain"]).args(MESSAGE.split_whitespace()));
    assert!(output.text().contains(EXPLANATION), "{}", output.text());

    let mut pipeline = Pipeline::start(&host, &["--json"]);
    pipeline.write(MESSAGE.as_bytes());
    let output = pipeline.finish();
    let message = &json(&output)["messages"][0];
    assert_eq!(
        (output.code, message["reason"].as_str()),
        (OK, Some("too_big")),
        "{message:#}"
    );
    assert_eq!(
        message["other_processes_bytes"]
            .as_u64()
            .map(|bytes| bytes / (GIB / 100)),
        Some(175),
        "{message:#}"
    );

    let mut pipeline = Pipeline::start(&host, &["-"]);
    pipeline.write(MESSAGE.as_bytes());
    assert!(
        pipeline
            .finish()
            .text()
            .starts_with("CUDA out of memory on GPU 0")
    );
}

#[test]
fn wrong_arguments_are_reported_in_a_sentence() {
    let host = Host::with_jitter(["H100"]);
    let output = host.run(["explain", "/nowhere/train.log"]);
    assert_eq!(
        (output.code, output.stderr.as_str()),
        (
            ERROR,
            "gputop: /nowhere/train.log is neither a file nor an out-of-memory message\n"
        )
    );
    let output = host.run(["explain", "/"]);
    assert_eq!(
        (output.code, output.stderr.as_str()),
        (
            ERROR,
            "gputop: cannot read /: Is a directory (os error 21)\n"
        )
    );
    let output = host.run(["explain", "no memory of that"]);
    assert_eq!((output.code, output.text()), (NOTHING_FOUND, String::new()));
}

#[test]
fn other_processes_are_looked_up_and_their_age_compared() {
    let mut host = Host::with_jitter(["H100"]);
    let pid = host.start_sleep(0, 70 * GIB);
    let output = host.run(["explain", &message_naming(pid)]);
    let text = output
        .text()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert_eq!(output.code, OK);
    for words in [
        format!(
            "someone else: process {pid} holds 70.00 GiB of the GPU's 79.25 GiB. This process holds 7.50 GiB"
        ),
        format!("Process {pid} here and now: sleep 1000, of "),
        "holds 70.0 GiB of GPU memory".to_owned(),
        "PIDs are reused".to_owned(),
    ] {
        assert!(text.contains(&words), "no `{words}` in\n{text}");
    }

    // The log is older than the process.
    let log = host.path("old.log");
    fs::write(&log, message_naming(pid)).expect("/tmp has room");
    let times = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
    fs::File::options()
        .write(true)
        .open(&log)
        .expect("the file is ours")
        .set_times(times)
        .expect("the file is ours");
    let output = host.run(["explain", log.to_str().expect("UTF-8")]);
    let text = output
        .text()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(text.contains("the message means another process"), "{text}");

    let output = host.run(["explain", "--json", &message_naming(pid)]);
    let other = &json(&output)["messages"][0]["other_processes"][0];
    assert_eq!(other["pid"], pid, "{other:#}");
    assert_eq!(
        other["running_process"]["command"], "sleep 1000",
        "{other:#}"
    );
    assert_eq!(
        other["running_process"]["started_after_message"],
        serde_json::Value::Null,
        "{other:#}"
    );
}

#[test]
fn processes_that_are_not_here_are_named_as_such() {
    let mut host = Host::with_jitter(["H100"]);
    // A PID that no process of this host has.
    host.add_process(0, GpuProcess::new(std::process::id(), GIB));
    let output = host.run(["explain", &message_naming(4_190_000)]);
    let text = output
        .text()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(
        text.contains("Process 4190000 is not on a GPU of this host now"),
        "{text}"
    );
    let output = host.run([
        "explain",
        "--nvml-lib",
        "/nowhere/libnvidia-ml.so.1",
        &message_naming(4_190_000),
    ]);
    assert_eq!(output.code, OK, "explain needs no GPU");
    let text = output
        .text()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(
        text.contains("Process 4190000 is not visible from here: "),
        "{text}"
    );
    // The reason is given once for all processes.
    let two = message_naming(4_190_000).replace(
        "Process 4190000 has",
        "Process 4190001 has 1.00 GiB memory in use. Process 4190000 has",
    );
    let output = host.run(["explain", "--nvml-lib", "/nowhere/libnvidia-ml.so.1", &two]);
    let text = output
        .text()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(
        text.contains("Processes 4190001, 4190000 are not visible from here: "),
        "{text}"
    );
    assert_eq!(text.matches("not visible from here").count(), 1, "{text}");
}

/// Runs `gputop explain` in a terminal. Returns the text and the bytes of the screen.
fn run_in_terminal(
    host: &Host,
    width: u16,
    env: &[(&str, &str)],
    args: &[&str],
) -> (String, Vec<u8>) {
    let log = host.path("train.log");
    fs::write(&log, MESSAGE).expect("/tmp has room");
    let log = log.to_str().expect("UTF-8");
    let mut command = Command::new("sh");
    host.set_environment(&mut command).envs(env.iter().copied());
    let script = format!(
        "\"$0\" explain {} {log}; echo; echo end of output; read _",
        args.join(" ")
    );
    command.args(["-c", &script, env!("CARGO_BIN_EXE_gputop")]);
    let terminal = Terminal::run(&mut command, width, 50);
    terminal.wait_for("end of output");
    (terminal.text(), terminal.bytes())
}

#[test]
fn the_bar_fits_the_terminal() {
    let host = Host::with_jitter(["H100"]);
    for width in [200, 80, 40] {
        let (text, bytes) = run_in_terminal(&host, width, &[], &[]);
        let bar = text
            .lines()
            .find(|line| line.starts_with("  █▓"))
            .unwrap_or_else(|| panic!("no bar in\n{text}"));
        let cells = bar.trim().chars().count();
        assert_eq!(cells, usize::from(width - 4).min(72), "{text}");
        assert!(
            bytes.windows(4).any(|window| window == b"\x1b[1m"),
            "heads are bold"
        );
        assert!(
            text.lines().any(|line| line == "What to try first"),
            "{text}"
        );
    }
    let (text, _) = run_in_terminal(&host, 80, &[], &["--ascii"]);
    assert!(
        text.lines()
            .any(|line| line.starts_with("  #=---") && line.ends_with("....")),
        "{text}"
    );
    let (text, _) = run_in_terminal(&host, 80, &[("LANG", "C")], &[]);
    assert!(text.contains("#=---") && text.is_ascii(), "{text}");
    let (_, bytes) = run_in_terminal(&host, 80, &[("NO_COLOR", "1")], &[]);
    assert!(
        !bytes.windows(4).any(|window| window == b"\x1b[1m"),
        "NO_COLOR also removes bold"
    );
}

#[test]
fn on_a_terminal_the_explanation_follows_the_log() {
    let host = Host::with_jitter(["H100"]);
    let log = host.path("train.log");
    fs::write(&log, format!("epoch 1\n{MESSAGE}")).expect("/tmp has room");
    let mut command = Command::new("sh");
    host.set_environment(&mut command)
        .args(["-c", "cat \"$1\" | \"$0\" explain 2>/dev/null; read _"]);
    let terminal = Terminal::run(command.arg(env!("CARGO_BIN_EXE_gputop")).arg(&log), 120, 40);
    terminal.wait_for("What to try first");
    let text = terminal.text();
    let offset = |words: &str| {
        text.find(words)
            .unwrap_or_else(|| panic!("no `{words}` in\n{text}"))
    };
    assert!(
        offset("epoch 1") < offset("RuntimeError")
            && offset("RuntimeError") < offset("CUDA out of memory on GPU 0"),
        "{text}"
    );
}
