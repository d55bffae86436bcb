//! `gputop orphans`, ending an orphan on the screen, and the audit log.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;

use fake_nvml::GpuProcess;
use rustix::fs::{Mode, OFlags};
use serde_json::Value;

use crate::cli::json;
use crate::ending_a_process::{end, open_dialog};
use crate::host::{GIB, Host};
use crate::process::{ChildProcess, ProcessHandle, process_state, run};
use crate::process_tree::audit_lines;
use crate::ready_pipe::ReadyPipe;
use crate::terminal::{ENTER, ESC, F9, Terminal};
use crate::{DEADLINE, print_note};

const ORPHANS_FOUND: i32 = 10;
const NOTHING_FOUND: i32 = 6;
const NOT_COMPLETE: i32 = 5;

/// A host on which a worker of a `DataLoader` keeps the memory of its killed trainer.
pub(crate) struct HostWithOrphan {
    pub(crate) host: Host,
    /// The PID of the trainer.
    trainer: u32,
    worker: ProcessHandle,
}

impl Drop for HostWithOrphan {
    fn drop(&mut self) {
        self.worker.kill();
    }
}

impl HostWithOrphan {
    pub(crate) fn worker_pid(&self) -> u32 {
        self.worker.pid
    }

    #[track_caller]
    pub(crate) fn new() -> Self {
        Self::on(["H100"])
    }

    /// The host has these GPUs; the memory is on the first.
    #[track_caller]
    fn on<'a>(gpus: impl IntoIterator<Item = &'a str>) -> Self {
        let mut host = Host::new(gpus);
        let pipe = ReadyPipe::create(&host);
        let program = "open_device_files()\nloader = DataLoader(Stuck(), 1)\nloader.request_items()\nsleep_as('trainer')\n";
        let mut command = pipe.command(&host, 0, [("train.py", program)], &["python3", "train.py"]);
        let mut trainer = ChildProcess::spawn(&mut command);
        let ready = [pipe.next_within(DEADLINE), pipe.next_within(DEADLINE)];
        let worker = ready
            .into_iter()
            .flatten()
            .find(|process| process.role == "worker0")
            .expect("both are ready");
        let worker = ProcessHandle::open(worker.pid);
        host.add_process(
            0,
            GpuProcess {
                holders: vec![worker.pid],
                ..GpuProcess::new(trainer.pid(), 11 * GIB)
            },
        );
        trainer.handle.kill();
        trainer.wait();
        Self {
            host,
            trainer: trainer.pid(),
            worker,
        }
    }
}

#[test]
fn an_orphan_is_listed_with_evidence_and_has_an_exit_code() {
    let orphaned = HostWithOrphan::new();
    let output = orphaned.host.run(["orphans", "--timeout", "20s"]);
    let text = output.text();
    assert_eq!(output.code, ORPHANS_FOUND, "{text}{}", output.stderr);
    let (worker, trainer) = (orphaned.worker.pid, orphaned.trainer);
    for words in [
        "1 orphan holds 11.0 GiB",
        &format!("orphan     0  {worker}"),
        &format!("its process group leader {trainer} is gone; still holds 11.0 GiB"),
    ] {
        assert!(text.contains(words), "no `{words}` in\n{text}");
    }
    let lines = text
        .lines()
        .filter(|line| line.contains("11.0") && !line.contains("still holds 11.0 GiB"))
        .count();
    assert_eq!(
        lines, 2,
        "in the summary and on the worker's line, and not again as unaccounted:\n{text}"
    );
    // The long timeout: parallel tests slow the second pass down.
    let output = orphaned.host.run(["orphans", "--json", "--timeout", "20s"]);
    assert_eq!(output.code, ORPHANS_FOUND, "{}", output.stderr);
    let report = json(&output);
    let entry = &report["processes"][0];
    assert_eq!(
        (&entry["pid"], &entry["verdict"]),
        (&worker.into(), &"orphan".into()),
        "{report:#}"
    );
    assert_eq!(entry["memory_kept_bytes"], 11 * GIB);
    assert_eq!(
        (&report["memory_bytes"], &report["is_complete"]),
        (&(11 * GIB).into(), &true.into()),
        "{}",
        output.stderr
    );
    assert_eq!(
        report["unaccounted"][0]["device_file_holders"][0]["pid"],
        worker
    );
    assert!(orphaned.worker.is_alive(), "a report sends no signal");
}

#[test]
fn the_orphans_of_all_gpus_are_listed_whichever_gpu_was_shown_alone() {
    let orphaned = HostWithOrphan::on(["H100"; 2]);
    let mut terminal = Terminal::start(&orphaned.host, ["--interval", "100ms"]);
    terminal.wait_for("1 orphan holds 11.0 GiB");
    terminal.keys("1");
    terminal.wait_for("GPU 1 is empty");
    terminal.wait_for("GPU 1  Esc leaves");
    terminal.wait_for("F9 end");
    terminal.keys("o");
    terminal.wait_for(&format!("{} ", orphaned.worker.pid));
    terminal.wait_for("orphans only  Esc leaves");
    terminal.wait_for("F9 end");
    terminal.keys("1");
    terminal.wait_for("no orphan on GPU 1; elsewhere 1 orphan holds 11.0 GiB");
    terminal.quit();
}

#[test]
fn the_row_of_unaccounted_memory_leads_to_the_process_that_alone_has_the_gpu_open() {
    let orphaned = HostWithOrphan::new();
    let worker = orphaned.worker.pid;
    let mut terminal = Terminal::start_at(&orphaned.host, 120, 40, ["--interval", "100ms"]);
    terminal.wait_for(&format!("unaccounted  orphan  open in {worker}"));
    terminal.keys(ENTER);
    terminal.wait_for(&format!("Process {worker}"));
    terminal.wait_for("sure: PID and start time were read together");
    terminal.keys(ESC);
    terminal.wait_until_gone("identity");
    terminal.keys(F9);
    terminal.wait_for(&format!("End process {worker}"));
    terminal.wait_for("Verified: only");
    terminal.keys(ESC);
    terminal.wait_until_gone("End process");
    assert!(orphaned.worker.is_alive(), "Esc cancels");
    terminal.quit();
}

#[test]
fn the_row_of_unaccounted_memory_without_a_known_holder_leads_to_the_orphans() {
    let mut host = Host::new(["H100"]);
    host.change(|world| world.gpus[0].memory.unaccounted = 5 * GIB);
    for key in [ENTER, F9] {
        let mut terminal = Terminal::start_at(&host, 120, 40, ["--interval", "100ms"]);
        terminal.wait_for("unaccounted open in no process");
        terminal.keys(key);
        terminal.wait_for("so the holder of this memory is not known for certain");
        terminal.keys("n");
        terminal.wait_for("E shows the news");
        terminal.keys("p");
        terminal.wait_for("orphans only  PAUSED");
        terminal.quit();
    }
}

#[test]
fn a_user_filter_leaves_out_orphans_of_other_users() {
    let orphaned = HostWithOrphan::new();
    let count = |user: &str| {
        let output = orphaned
            .host
            .run(["orphans", "--json", "--user", user, "--timeout", "20s"]);
        (
            output.code,
            json(&output)["processes"].as_array().map(Vec::len),
        )
    };
    assert_eq!(count("me"), (ORPHANS_FOUND, Some(1)));
    let report = json(&orphaned.host.run(["orphans", "--json", "--timeout", "20s"]));
    let name = report["processes"][0]["user"].as_str().expect("a user");
    assert_eq!(count(name), (ORPHANS_FOUND, Some(1)));
    assert_eq!(count("somebody-else"), (0, Some(0)));
}

#[test]
fn an_id_limits_the_orphans_to_those_on_its_gpu() {
    let orphaned = HostWithOrphan::new();
    let report = |ids: &str| {
        orphaned
            .host
            .run(["orphans", "--json", "-i", ids, "--timeout", "20s"])
    };
    let found = json(&report("0"));
    assert_eq!(
        found["processes"][0]["pid"], orphaned.worker.pid,
        "{found:#}"
    );
    // Processes on no GPU are on none of these.
    assert_eq!(found["leftovers"], Value::Array(vec![]), "{found:#}");
    let unknown = report("9");
    assert_eq!(
        (unknown.code, unknown.stderr.as_str()),
        (NOTHING_FOUND, "gputop: no such GPU here: 9\n")
    );
    assert_eq!(json(&unknown)["processes"], Value::Array(vec![]));
}

#[test]
fn without_orphans_the_report_says_so_and_succeeds() {
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, GIB);
    // A user without processes: other tests leave orphans on this machine.
    let output = host.run(["orphans", "--user", "nobody", "--timeout", "20s"]);
    // A second line counts the processes of simulated machines, which other tests may run now.
    assert_eq!(
        (output.code, output.text().lines().next()),
        (0, Some("no orphans on these GPUs")),
        "{}",
        output.stderr
    );
    let output = host.run(["orphans", "--json", "--user", "nobody", "--timeout", "20s"]);
    assert_eq!(
        (output.code, &json(&output)["summary"]),
        (0, &Value::Null),
        "{}",
        output.stderr
    );
}

#[test]
fn three_keys_end_an_orphan() {
    let orphaned = HostWithOrphan::new();
    let mut terminal = Terminal::start(&orphaned.host, ["--interval", "200ms"]);
    // The first line of the screen reports the orphan, and names the key that selects it.
    terminal.wait_for("1 orphan holds 11.0 GiB");
    terminal.keys("o");
    let row = |line: &str| {
        ["orphan", "11.0G", &orphaned.worker.pid.to_string()]
            .iter()
            .all(|word| line.contains(word))
    };
    terminal.wait_until("the orphan with its memory", |screen| {
        screen.contents().lines().any(row)
    });
    terminal.keys(F9);
    terminal.wait_for(&format!("End process {}", orphaned.worker.pid));
    terminal.wait_for("Verified: only");
    terminal.keys(ENTER);
    orphaned.worker.wait_for_end();
    terminal.wait_for("returned 11.0 GiB of 11.0 GiB");
    terminal.keys(ENTER);
    terminal.wait_until_gone("End process");
    // Only this orphan must be gone: other tests leave orphans on this machine.
    terminal.wait_until("no row of the orphan", |screen| {
        !screen.contents().lines().any(row)
    });
    terminal.quit();
}

#[test]
fn keys_typed_before_the_end_dialog_is_drawn_send_nothing() {
    let mut host = Host::new(["H100"]);
    let pid = host.start_sleep(0, GIB);
    let mut terminal = Terminal::start(&host, ["--interval", "100ms"]);
    open_dialog(&terminal, pid);
    terminal.wait_for("Verified: only");
    terminal.keys("\x1b");
    terminal.wait_until_gone("End process");
    // One write, like a slip of the finger, or a paste in a terminal without bracketed paste.
    terminal.keys("x\r\r\r");
    terminal.wait_for("Verified: only");
    assert_eq!(process_state(pid), Some('S'));
    assert!(
        !host.path("gputop/kills.jsonl").exists(),
        "no signal was sent, so the audit log does not exist"
    );
    end(&terminal, &mut host, pid);
    terminal.quit();
}

/// Ends a process in the end dialog. Returns the text of the screen at the end.
#[track_caller]
pub(crate) fn end_a_process(host: &mut Host) -> String {
    let pid = host.start_sleep(0, GIB);
    let mut terminal = Terminal::start_at(host, 100, 30, ["--interval", "100ms"]);
    open_dialog(&terminal, pid);
    let text = end(&terminal, host, pid);
    let agent = terminal.agent();
    terminal.quit();
    // The agent writes the audit log before it ends.
    agent.wait_for_end();
    text
}

#[test]
fn the_audit_log_records_signals_for_its_owner_only() {
    let mut host = Host::new(["H100"]);
    let text = end_a_process(&mut host);
    assert!(!text.contains("not recorded"), "{text}");
    let mode = fs::metadata(host.path("gputop/kills.jsonl"))
        .expect("the audit log exists")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let lines = audit_lines(&host);
    let signal = &lines[0];
    assert_eq!(
        (&signal["signal"], &signal["comm"], &signal["mode"]),
        (&"TERM".into(), &"sleep".into(), &"one".into())
    );
    assert!(
        signal["start_ticks"].is_u64()
            && signal["boot_id"].is_string()
            && signal["unix_time_ms"].is_u64(),
        "{signal:#}"
    );
    let outcomes: Vec<&Value> = lines
        .iter()
        .filter(|line| line["id"] == signal["id"])
        .map(|line| &line["outcome"])
        .collect();
    assert!(outcomes.contains(&&"ended".into()), "{lines:#?}");
    // Lines of the next action are appended.
    end_a_process(&mut host);
    assert!(audit_lines(&host).len() > lines.len());
}

#[test]
fn the_audit_log_follows_no_symbolic_link() {
    let mut host = Host::new(["H100"]);
    let elsewhere = host.path("elsewhere");
    fs::write(&elsewhere, "precious\n").expect("/tmp has room");
    fs::create_dir(host.path("gputop")).expect("/tmp has room");
    symlink(&elsewhere, host.path("gputop/kills.jsonl")).expect("/tmp has room");
    let text = end_a_process(&mut host);
    assert!(
        text.contains("symbolic link"),
        "the screen gives the reason why nothing is logged:\n{text}"
    );
    assert_eq!(
        fs::read_to_string(&elsewhere).expect("the file exists"),
        "precious\n"
    );
}

#[test]
fn a_clean_host_with_many_workers_has_no_orphans() {
    let mut host = Host::new(["H100"]);
    let pipe = ReadyPipe::create(&host);
    let program = "open_device_files()\nloader = DataLoader(Dataset(), 6)\nsleep_as('trainer')\n";
    let mut command = pipe.command(&host, 0, [("train.py", program)], &["python3", "train.py"]);
    let trainer = ChildProcess::spawn(&mut command);
    for _ in 0..7 {
        pipe.next_within(DEADLINE)
            .expect("trainer and workers are ready");
    }
    host.add_process(0, GpuProcess::new(trainer.pid(), 11 * GIB));
    // The workers' CPU use is known in the second pass. Waiting for their turn would take longer
    // than this.
    let report = json(&host.run(["orphans", "--json", "--timeout", "4s"]));
    // Other tests may leave orphans that hold no GPU.
    assert_eq!(
        (&report["is_complete"], &report["processes"]),
        (&true.into(), &Value::Array(vec![])),
        "{report}"
    );
}

/// A named pipe whose reader waits for a writer until it is dropped.
struct Fifo(PathBuf);

impl Drop for Fifo {
    fn drop(&mut self) {
        // Fails if there is no reader.
        let _writer = rustix::fs::open(&self.0, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty());
    }
}

#[test]
fn a_process_that_waits_in_the_kernel_is_judged_after_a_watch() {
    let mut host = Host::new(["H100"]);
    let pipe = ReadyPipe::create(&host);
    let fifo = Fifo(host.path("fifo"));
    // The parent of `posix_spawn` waits in the kernel until its child runs, which waits for a
    // writer of the pipe.
    let program = format!(
        "open_device_files()
os.mkfifo('{0}')
report_ready('trainer')
os.posix_spawn('/bin/true', ['true'], {{}}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, '{0}', os.O_RDONLY, 0)])
",
        fifo.0.display()
    );
    let mut command = pipe.command(
        &host,
        0,
        [("train.py", program.as_str())],
        &["python3", "train.py"],
    );
    let trainer = ChildProcess::spawn(&mut command);
    pipe.next_within(DEADLINE).expect("the trainer is ready");
    trainer.handle.wait_for_state('D');
    host.add_process(0, GpuProcess::new(trainer.pid(), 11 * GIB));
    let output = host.run(["orphans", "-i", "0"]);
    let hint = format!(
        "{} waits in the kernel: `--watch 12s` tells whether for long",
        trainer.pid()
    );
    assert!(output.text().contains(&hint), "{}", output.text());
    assert_eq!(output.code, NOT_COMPLETE, "{}", output.text());
    let report = json(&host.run(["orphans", "-i", "0", "--json"]));
    assert_eq!(
        (&report["undecided"][0]["pid"], &report["is_complete"]),
        (&trainer.pid().into(), &false.into()),
        "{report:#}"
    );
    let output = host.run(["orphans", "--watch", "12s"]);
    assert_eq!(output.code, ORPHANS_FOUND, "{}", output.text());
    assert!(
        output.text().contains("waits in the kernel") && output.text().contains("blocked"),
        "{}",
        output.text()
    );
}

#[test]
fn hidden_processes_are_not_taken_for_seen() {
    let host = Host::new(["H100"]);
    // A user without privileges, in a mount namespace whose /proc hides the processes of others.
    let script = "mount -t proc -o hidepid=2 proc /proc || exit 77; exec setpriv --reuid 12345 --regid 12345 --clear-groups \"$@\"";
    for (subcommand, words) in [
        (
            "orphans",
            "processes of other users are hidden here (/proc has hidepid): run gputop as root",
        ),
        (
            "doctor",
            "the processes of other users are hidden: they may hold unaccounted memory",
        ),
    ] {
        let gputop = host.gputop([subcommand]);
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", script, "sh"])
            .arg(gputop.get_program())
            .args(gputop.get_args());
        let output = run(host.set_environment(&mut command));
        if matches!(output.code, 1 | 77 | 126 | 127) {
            return print_note(format_args!(
                "skipped: only root can mount, or the program is not readable: {}",
                output.stderr
            ));
        }
        assert!(output.text().contains(words), "{}", output.text());
    }
}

#[test]
fn the_demo_has_an_orphan_wherever_its_option_stands() {
    let host = Host::new([]);
    for args in [["--demo", "orphans"], ["orphans", "--demo"]] {
        let output = host.run(args);
        assert_eq!(output.code, 10, "{args:?}: {}", output.stderr);
        assert!(
            output.text().contains("finetune.py"),
            "{args:?}: {}",
            output.text()
        );
    }
}

/// The readings of `--json` come from the agent; what gputop judges stands beside them.
#[test]
fn json_says_what_one_look_cannot_judge() {
    let orphaned = HostWithOrphan::new();
    let line = json(&orphaned.host.run(["--json", "--timeout", "20s"]));
    let judged = line["judged"]["processes"]
        .as_array()
        .expect("a list of processes")
        .iter()
        .find(|process| process["pid"] == orphaned.worker.pid)
        .expect("the worker is on the GPU");
    assert!(
        (judged["verdict"] == "orphan") == (judged["is_decided"] == true),
        "{judged:#}"
    );
    assert_eq!(
        (&judged["growth"], &judged["missing"]["growth"]),
        (&Value::Null, &"not_yet".into())
    );
}
