//! News that `gputop record` tells to people who are not at the screen: each once, also over a
//! restart.

use std::fs;
use std::path::PathBuf;

use fake_nvml::{GpuSelector, Xid};
use rustix::process::Signal;
use serde_json::Value;

use crate::host::{GIB, Host};
use crate::http_server::{Answer, HttpServer};
use crate::notify::add_notification;
use crate::orphans::HostWithOrphan;
use crate::process::wait_until;
use crate::record::RunningRecorder;

/// A server that gets the messages of a recorder, and the recording.
struct Phone {
    server: HttpServer,
    file: PathBuf,
}

impl Phone {
    /// Configures a host to tell the server of what the table lets through.
    fn of(host: &Host, table: &str) -> Self {
        let server = HttpServer::start(Answer::OK);
        let table = format!("kind = 'webhook'\n{table}");
        add_notification(host, "phone", &server.url("hook"), &table);
        let file = host.path("recordings/night.jsonl.zst");
        Self { server, file }
    }

    fn record(&self, host: &Host, options: &[&str]) -> RunningRecorder {
        let path = self.file.display().to_string();
        let options = [&["-o", &path, "--notify", "phone"], options].concat();
        RunningRecorder::start(host, &self.file, &options)
    }

    /// Waits for the next message. Returns its kind, its GPU, and its sentence.
    fn next(&self) -> (String, Value, String) {
        let body: Value = serde_json::from_str(&self.server.next().body).expect("JSON");
        let text = |name: &str| body[name].as_str().unwrap_or("?").to_owned();
        (text("kind"), body["gpu"].clone(), text("sentence"))
    }

    #[track_caller]
    fn expect(&self, kind: &str, gpu: impl Into<Value>, words: &str) {
        let (told, on, sentence) = self.next();
        let gpu = gpu.into();
        assert!(
            told == kind && on == gpu && sentence.contains(words),
            "expected {kind} on {gpu} with `{words}`, and got {told} on {on}: {sentence}"
        );
    }
}

#[test]
fn each_event_is_told_once_also_by_a_recorder_that_is_started_again() {
    let mut host = Host::idle(["H100"; 3]);
    let phone = Phone::of(&host, "");
    let first = host.start_sleep(0, GIB);
    let second = host.start_sleep(1, GIB);
    let recorder = phone.record(&host, &[]);
    host.process(first).handle.kill();
    host.process(first).wait();
    phone.expect("process_ended", "0", &format!("{first} sleep"));
    phone.expect("gpu_free", "0", "GPU 0 is free");
    // Xid errors of programs are not told.
    for xid in [31, 79] {
        let gpu = GpuSelector::Position(1);
        host.change(|world| world.xids.push(Xid { gpu, xid }));
    }
    phone.expect("xid", "1", "Xid 79");
    host.change(|world| world.gpus[2].lost = true);
    phone.expect("gpu_lost", "2", "GPU 2");
    // News that were told stay told, however the recorder ends.
    recorder.end(Signal::KILL);
    let recorder = phone.record(&host, &[]);
    host.change(|world| world.gpus[2].lost = false);
    phone.expect("gpu_answers", "2", "answers again");
    host.process(second).handle.kill();
    host.process(second).wait();
    phone.expect("process_ended", "1", &format!("{second} sleep"));
    phone.expect("gpu_free", "1", "GPU 1 is free");
    let (code, messages) = recorder.end(Signal::INT);
    assert_eq!(code, 0, "{messages}");
    assert!(!messages.contains("hook"), "{messages}");
}

#[test]
fn a_filter_leaves_out_other_kinds_and_a_program_gets_them_all() {
    let mut host = Host::idle(["H100"]);
    let phone = Phone::of(&host, "kinds = ['gpu_free']");
    let pid = host.start_sleep(0, GIB);
    let list = host.path("told");
    let script = format!(
        "#!/bin/sh\necho \"$GPUTOP_ALERT $GPUTOP_ALERT_PID $GPUTOP_ALERT_GPU $GPUTOP_ALERT_PHASE\" >> {}\n",
        list.display()
    );
    let program = host.install_script("tell-me", &script);
    let recorder = phone.record(&host, &["--on-alert", &program.display().to_string()]);
    host.process(pid).handle.kill();
    host.process(pid).wait();
    phone.expect("gpu_free", "0", "GPU 0 is free");
    let expected = [
        format!("process_ended {pid} 0 once"),
        "gpu_free  0 once".to_owned(),
    ];
    let lines = || -> Vec<String> {
        let text = fs::read_to_string(&list).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    };
    wait_until("the program was run for each", || lines().len() == 2);
    let mut told = lines();
    told.sort_unstable_by(|a, b| b.cmp(a));
    assert_eq!(told, expected);
    recorder.end(Signal::INT);
}

#[test]
fn an_orphan_is_told_with_its_reason() {
    let orphaned = HostWithOrphan::new();
    let phone = Phone::of(&orphaned.host, "");
    let recorder = phone.record(&orphaned.host, &[]);
    let worker = orphaned.worker_pid();
    phone.expect("orphan", "0", &worker.to_string());
    recorder.end(Signal::INT);
}

#[test]
fn news_that_rest_are_not_told_until_they_are_told_again() {
    let mut host = Host::idle(["H100"; 2]);
    let phone = Phone::of(&host, "");
    let [first, second] = [0, 1].map(|gpu| host.start_sleep(gpu, GIB));
    let recorder = phone.record(&host, &[]);
    let rest = |host: &Host, args: &[&str]| {
        let output = host.run([&["rest"], args].concat());
        assert_eq!(output.code, 0, "{}", output.stderr);
        output.text()
    };
    let text = rest(&host, &[&first.to_string(), "gpu0", "--for", "8h"]);
    let has = |words: &str| text.contains(words);
    assert!(
        has(&format!("process {first}: not told until ")) && has("GPU 0: not told until "),
        "{text}"
    );
    for pid in [first, second] {
        host.process(pid).handle.kill();
        host.process(pid).wait();
    }
    phone.expect("process_ended", "1", &format!("{second} sleep"));
    // The news of several GPUs do not rest with one of them.
    let (kind, _, sentence) = phone.next();
    let free = ["GPU 1 is free", "GPUs 0, 1 are free"];
    assert!(
        kind == "gpu_free" && free.contains(&sentence.as_str()),
        "{kind}: {sentence}"
    );
    assert_eq!(
        rest(&host, &["--end"]),
        "nothing rests: all news are told\n"
    );
    let third = host.start_sleep(0, GIB);
    let has_recorded = || {
        let recording = phone.file.display().to_string();
        let rows = host.run(["export", &recording, "--of", "processes"]).text();
        rows.contains(&format!(",{third},"))
    };
    wait_until("the recorder has seen the process", has_recorded);
    host.process(third).handle.kill();
    host.process(third).wait();
    phone.expect("process_ended", "0", &format!("{third} sleep"));
    recorder.end(Signal::INT);
}
