//! Processes that outlive the programs that started them: what `gputop orphans` says at its first
//! look.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use fake_nvml::GpuProcess;
use gputop::model::Verdict;
use rustix::process::Signal;
use serde_json::Value;

use crate::DEADLINE;
use crate::cli::json;
use crate::explain::message_naming;
use crate::host::{GIB, Host};
use crate::process::{ChildProcess, ProcessHandle, run, wait_until};
use crate::ready_pipe::ReadyPipe;
use crate::record::{RunningRecorder, lines, play};
use crate::stories::ObservedHost;

/// Starts a program that starts others and is then killed. Returns those that reported a role.
fn left_behind(
    host: &mut Host,
    files: &[(&str, &str)],
    words: &[&str],
    roles: usize,
) -> Vec<(String, ProcessHandle)> {
    let pipe = ReadyPipe::create(host);
    let mut first = ChildProcess::spawn(&mut pipe.command(host, 0, files.iter().copied(), words));
    let ready = (0..=roles).map(|_| pipe.next_within(DEADLINE).expect("each process is ready"));
    let ready: Vec<(String, ProcessHandle)> = ready
        .map(|process| (process.role, ProcessHandle::open(process.pid)))
        .collect();
    first.handle.kill();
    first.wait();
    for (_, process) in ready.iter().filter(|(role, _)| role != "starter") {
        host.add_process(
            0,
            GpuProcess {
                sm: Some(50),
                ..GpuProcess::new(process.pid, GIB)
            },
        );
    }
    ready
        .into_iter()
        .filter(|(role, _)| role != "starter")
        .collect()
}

/// The verdicts of `gputop orphans` on these processes: a role, and a word or nothing.
#[track_caller]
fn words_on(host: &Host, processes: &[(String, ProcessHandle)]) -> Vec<(String, String)> {
    let report = json(&host.run(["orphans", "--json", "--timeout", "20s"]));
    let entries = report["processes"].as_array().expect("a list of processes");
    let word = |pid: u32| {
        entries.iter().find(|entry| entry["pid"] == pid)?["verdict"]
            .as_str()
            .map(str::to_owned)
    };
    processes
        .iter()
        .map(|(role, process)| (role.clone(), word(process.pid).unwrap_or_default()))
        .collect()
}

#[test]
fn users_name_launchers_and_those_that_work_for_them() {
    let mut host = Host::new(["H100"]);
    let files = [
        (
            "fleetd",
            "start_python('fleet-worker')
start_python('ranked.py', env={**os.environ, 'OURS_RANK': '1'})
start_python('free.py')
sleep_as('starter')
",
        ),
        ("fleet-worker", "open_device_files()\nsleep_as('worker')\n"),
        ("ranked.py", "open_device_files()\nsleep_as('ranked')\n"),
        ("free.py", "open_device_files()\nsleep_as('free')\n"),
    ];
    let processes = left_behind(&mut host, &files, &["python3", "fleetd"], 3);
    let check = |host: &Host, worker: &str, ranked: &str| {
        let mut words = words_on(host, &processes);
        words.sort_unstable();
        let expected = [("free", ""), ("ranked", ranked), ("worker", worker)];
        assert_eq!(
            words,
            expected.map(|(role, word)| (role.to_owned(), word.to_owned()))
        );
    };
    // They compute, so they look like programs under nohup.
    check(&host, "", "");
    let recording = host.path("seen.jsonl");
    let recorder = RunningRecorder::start(
        &host,
        &recording,
        &["-o", recording.to_str().expect("the path is UTF-8")],
    );
    wait_until("the recording has ten lines", || {
        lines(&recording).len() >= 10
    });
    recorder.end(Signal::TERM);
    // The verdicts in a checkpoint are those of the recorder, which did not know the launchers.
    let without_checkpoints = lines(&recording)
        .into_iter()
        .filter(|line| line["kind"] != "checkpoint");
    let texts: Vec<String> = without_checkpoints.map(|line| line.to_string()).collect();
    fs::write(&recording, texts.join("\n") + "\n").expect("/tmp has room");
    let outline = |host: &Host| {
        run(host
            .gputop(["file-action", "outline", "--"])
            .arg(&recording))
        .text()
    };
    assert!(!outline(&host).contains("\"orphan "), "{}", outline(&host));
    fs::create_dir_all(host.path("config/gputop")).expect("/tmp has room");
    let config = "[[launchers]]\nname = 'fleet'\nprograms = ['fleetd']\nchildren = ['fleet-worker']\nplace = 'group'\n\n\
                  [[launchers]]\nname = 'ours'\nvariables = ['OURS_RANK']\n";
    fs::write(host.path("config/gputop/config.toml"), config).expect("/tmp has room");
    check(&host, "orphan", "orphan");
    let (_, worker) = processes
        .iter()
        .find(|(role, _)| role == "worker")
        .expect("it runs");
    let explained = host.run(["explain", &message_naming(worker.pid)]).text();
    assert!(
        explained.contains("launcher (fleet) is gone"),
        "{explained}"
    );
    // The recorder did not know that OURS_RANK counts, and recorded it of nobody.
    assert!(
        outline(&host).matches("\"orphan ").count() == 1 && outline(&host).contains("fleet-worker")
    );
    fs::write(
        host.path("config/gputop/config.toml"),
        "[[launchers]]\nname = 'x'\n",
    )
    .expect("/tmp has room");
    // The checkpoints of a clip have verdicts, too.
    for args in [&["orphans"][..], &["clip", "recording"]] {
        let output = host.run(args.iter().copied());
        let words = "`x` has neither children nor variables, so no child of it can be known";
        assert!(
            output.code == 2 && output.stderr.contains(words),
            "{args:?}: {} {}",
            output.code,
            output.stderr
        );
    }
}

#[test]
fn children_that_a_launcher_left_before_anybody_looked_are_orphans() {
    let mut host = Host::new(["H100"]);
    let files = [
        (
            "start.py",
            "mpi = {'OMPI_COMM_WORLD_RANK': '0', 'OMPI_COMM_WORLD_LOCAL_RANK': '0', 'PMIX_RANK': '0', 'PMIX_NAMESPACE': 'a'}
start_python('rank.py', env={**os.environ, **mpi}, process_group=0)
start_python('-m', 'loky.backend.popen_loky_posix', '--process-name', 'LokyProcess-1')
subprocess.Popen(['bash', '-c', f'exec -a ollama {sys.executable} runner model.py'])
if not os.fork():
    os.setpgid(0, 0)
    os.environ['SLURM_TASK_PID'] = str(os.getpid())
    os.execv(sys.executable, [sys.executable, 'task.py'])
sleep_as('starter')
",
        ),
        ("rank.py", "open_device_files()\nsleep_as('rank')\n"),
        ("task.py", "open_device_files()\nsleep_as('task')\n"),
        ("runner", "open_device_files()\nsleep_as('runner')\n"),
        ("loky/backend/popen_loky_posix.py", "open_device_files()\nsleep_as('loky')\n"),
    ];
    let processes = left_behind(&mut host, &files, &["python3", "start.py"], 4);
    for (role, word) in words_on(&host, &processes) {
        assert_eq!(word, "orphan", "{role}");
    }
}

#[test]
fn the_processes_of_a_demo_are_left_out() {
    let host = Host::new(["H100"]);
    let mut demo = ObservedHost::start(host.gputop(["agent", "--demo"]));
    let is_orphan = |verdict: &&Verdict| verdict.word() == "orphan";
    while !demo
        .model()
        .verdicts()
        .iter()
        .any(|verdict| is_orphan(&verdict))
    {
        demo.apply_next_line();
    }
    let orphans: Vec<u32> = demo
        .model()
        .verdicts()
        .iter()
        .filter(is_orphan)
        .map(|verdict| verdict.process.pid)
        .collect();
    let report = json(&host.run(["orphans", "--json", "--timeout", "20s"]));
    // The demo has just begun: a report waits for the environment of those that it might accuse.
    let lists = ["processes", "leftovers", "undecided"]
        .map(|name| report[name].as_array().expect("a list").clone());
    let accused: Vec<&Value> = lists
        .iter()
        .flatten()
        .filter(|entry| orphans.iter().any(|pid| entry["pid"] == *pid))
        .collect();
    assert!(accused.is_empty(), "{accused:?}");
    assert!(
        report["demo_processes"].as_u64() >= Some(orphans.len() as u64),
        "{report:#}"
    );
    let text = host.run(["orphans", "--timeout", "20s"]).text();
    assert!(text.contains("of gputop's demo are left out"), "{text}");
}

#[test]
fn a_look_knows_what_the_recorder_saw_before() {
    let mut host = Host::new(["H100"]);
    let pipe = ReadyPipe::create(&host);
    let files = [
        (
            "accelerate",
            "start_python('train.py')\nsleep_as('launcher')\n",
        ),
        ("train.py", "open_device_files()\nsleep_as('trainer')\n"),
    ];
    let mut launcher = ChildProcess::spawn(&mut pipe.command(
        &host,
        0,
        files,
        &["python3", "accelerate", "launch", "train.py"],
    ));
    let ready = [pipe.next_within(DEADLINE), pipe.next_within(DEADLINE)];
    let trainer = ready
        .into_iter()
        .flatten()
        .find(|process| process.role == "trainer")
        .expect("both are ready");
    let trainer = ProcessHandle::open(trainer.pid);
    host.add_process(
        0,
        GpuProcess {
            sm: Some(90),
            ..GpuProcess::new(trainer.pid, 6 * GIB)
        },
    );
    fs::create_dir(host.path("recordings")).expect("/tmp has room");
    let file = host.path("recordings/night.jsonl.zst");
    let arguments = ["-o".to_owned(), file.display().to_string()];
    let arguments = arguments.each_ref().map(String::as_str);
    let recorder = RunningRecorder::start(&host, &file, &arguments);
    let pid = launcher.pid();
    // Only the launcher has this argument.
    let has_launcher = || play(&file).text().contains("\"accelerate\"");
    wait_until("the recorder has seen the launcher", has_launcher);
    launcher.handle.kill();
    launcher.wait();
    // The second recorder goes on from the recording of the first, and begins with a checkpoint.
    recorder.end(Signal::TERM);
    let word = |host: &Host| {
        let report = json(&host.run(["orphans", "--json", "--timeout", "20s"]));
        let entries = report["processes"]
            .as_array()
            .expect("a list of processes")
            .clone();
        entries
            .into_iter()
            .find(|entry| entry["pid"] == trainer.pid)
            .map(|entry| entry["sentence"].to_string())
    };
    assert_eq!(
        word(&host),
        None,
        "a program that computes under PID 1 may be under nohup"
    );
    let recorder = RunningRecorder::start(&host, &file, &arguments);
    let note = host.path("gputop/recorder.json");
    let mode = fs::metadata(&note)
        .expect("the recorder notes its file")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let sentence = word(&host).expect("the recorder saw the launcher");
    let words = format!("its launcher ({pid}, python3 accelerate launch train.py) ended at ");
    assert!(
        sentence.contains(&words) && sentence.contains("seen by the recorder"),
        "{sentence}"
    );
    recorder.end(Signal::TERM);
    assert!(!note.exists(), "the note goes with the recorder");
    assert_eq!(word(&host), None);
}

/// As a real driver does while a forked child has the device files open.
#[test]
fn memory_listed_for_a_dead_pid_is_reported_beside_a_recorder() {
    let mut host = Host::new(["H100"]);
    fs::create_dir(host.path("recordings")).expect("/tmp has room");
    let file = host.path("recordings/night.jsonl.zst");
    let arguments = ["-o".to_owned(), file.display().to_string()];
    let arguments = arguments.each_ref().map(String::as_str);
    let recorder = RunningRecorder::start(&host, &file, &arguments);
    host.add_process(0, GpuProcess::fictional(4_000_001, GIB));
    for arguments in [
        &["orphans", "--json", "--timeout", "20s"][..],
        &["orphans", "--json", "--timeout", "20s", "--watch", "1s"],
    ] {
        let report = json(&host.run(arguments.iter().copied()));
        let found = &report["processes"][0];
        assert_eq!(
            (&found["pid"], &found["verdict"]),
            (&4_000_001.into(), &"ghost".into()),
            "{report:#}"
        );
    }
    recorder.end(Signal::TERM);
}
