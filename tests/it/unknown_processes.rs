//! GPUs whose processes the driver cannot list: everything that shows processes says so, and
//! nothing calls such a GPU unused.

use std::fs::{self, File};

use fake_nvml::{Fault, World};
use gputop::protocol::line::Line;
use gputop::protocol::snapshot::{Missing, Snapshot};
use serde_json::{Value, json};

use crate::agent::{Agent, ReceivedLines};
use crate::cli::json;
use crate::host::{GIB, Host};
use crate::process::run;
use crate::record::replayed;
use crate::terminal::Terminal;

const LIST: &str = "nvmlDeviceGetComputeRunningProcesses_v3";
const PARTIAL: i32 = 5;
const NONE_FREE: i32 = 11;

/// A way in which the driver does not list the processes of the first of two GPUs.
struct Refusal {
    change: fn(&mut World),
    /// The word in JSON, and the cell of nvidia-smi.
    word: &'static str,
    cell: &'static str,
    sentence: &'static str,
    /// The exit code of reports: a value that a driver does not support is no failure.
    exit: i32,
}

const REFUSALS: [Refusal; 3] = [
    Refusal {
        change: |world| world.gpus[0].no_process_lists = true,
        word: "unsupported",
        cell: "[N/A]",
        sentence: "processes on GPU 0 are not known: the driver cannot list them (WSL 2, vGPU)",
        exit: 0,
    },
    Refusal {
        change: |world| world.faults.push(Fault::error(LIST, "NO_PERMISSION").on(0)),
        word: "denied",
        cell: "[Insufficient Permissions]",
        sentence: "processes on GPU 0 are not known: the driver refuses to list them here",
        exit: PARTIAL,
    },
    Refusal {
        change: |world| world.faults.push(Fault::hang(LIST).on(0)),
        word: "failed",
        cell: "[Unknown Error]",
        sentence: "processes on GPU 0 are not known: the GPU does not answer",
        exit: PARTIAL,
    },
];

/// Two idle GPUs. The first has 20 GiB in use, by a process that the driver does not list.
fn host(refusal: &Refusal) -> Host {
    let mut host = Host::new(["H100"; 2]);
    host.change(|world| {
        world.gpus[0].memory.unaccounted = 20 * GIB;
        (refusal.change)(world);
    });
    host
}

#[test]
fn a_list_that_the_driver_does_not_give_is_unknown_everywhere() {
    for refusal in &REFUSALS {
        let Refusal {
            word,
            cell,
            sentence,
            exit,
            ..
        } = *refusal;
        let host = host(refusal);
        let output = host.run(["--json"]);
        let line = json(&output);
        let lists = |gpu: &Value| (gpu["processes"].clone(), gpu["missing"].clone());
        assert_eq!(output.code, exit, "{}", output.stderr);
        assert_eq!(
            lists(&line["gpus"][0]),
            (json!([]), json!({ "processes": word })),
            "{word}"
        );
        assert_eq!(lists(&line["gpus"][1]), (json!([]), Value::Null), "{word}");

        let output = host.run(["--once"]);
        let text = output.text();
        assert_eq!(output.code, exit, "{text}");
        assert!(
            text.contains(sentence) && text.contains("no process is known to use these GPUs"),
            "{text}"
        );

        let output = host.run(["--plain"]);
        let text = output.text();
        let sentence_of_one = format!("The {sentence}.");
        assert!(
            text.contains(&sentence_of_one) && text.contains("No process is known to use a GPU."),
            "{text}"
        );
        assert!(!text.contains("Unaccounted"), "{text}");

        // As nvidia-smi, one row for the GPU: a script that counts rows must not find it free.
        let output = host.run([
            "--query-compute-apps=pid,name,used_memory",
            "--format=csv,noheader",
        ]);
        assert_eq!(
            (output.code, output.text()),
            (exit, format!("{cell}, {cell}, {cell}\n")),
            "{}",
            output.stderr
        );
        let reason = if exit == PARTIAL { LIST } else { sentence };
        assert!(output.stderr.contains(reason), "{}", output.stderr);
        let output = host.run(["--csv=processes"]);
        let rows: Vec<String> = output.text().lines().skip(1).map(str::to_owned).collect();
        let [row] = rows.as_slice() else {
            panic!("{rows:?}")
        };
        assert_eq!(row.split(',').nth(3), Some("0"), "{row}");
        assert!(output.stderr.contains(reason), "{}", output.stderr);

        let output = host.run(["doctor"]);
        assert!(
            output
                .text()
                .contains(&format!("process list         {sentence}")),
            "{}",
            output.text()
        );

        let output = host.run(["orphans", "-i", "0"]);
        let text = output.text();
        assert!(
            text.contains(sentence) && text.contains("no orphans among the known processes\n"),
            "{text}"
        );
        assert!(!text.contains("no process accounts for"), "{text}");
        assert_eq!(output.code, PARTIAL, "{text}");
        let output = host.run(["orphans", "-i", "0", "--json"]);
        assert_eq!(
            (output.code, &json(&output)["is_complete"]),
            (PARTIAL, &json!(false))
        );

        let output = host.run(["free", "-i", "0"]);
        assert_eq!(output.code, NONE_FREE, "{}", output.stderr);
    }
}

#[test]
fn the_screen_says_why_the_list_is_empty() {
    for refusal in &REFUSALS {
        let host = host(refusal);
        let terminal = Terminal::start_at(&host, 120, 24, []);
        terminal.wait_for(refusal.sentence);
    }
    let host = host(&REFUSALS[0]);
    let mut command = host.gputop([]);
    let tiles = Terminal::run(command.env("GPUTOP_GPU_VIEW", "tiles"), 120, 40);
    tiles.wait_for("processes not known");
    // The processes of the second GPU are known.
    assert_eq!(
        tiles.text().matches("processes not known").count(),
        1,
        "{}",
        tiles.text()
    );
}

#[test]
fn ticks_and_recordings_carry_the_reason_and_a_replay_shows_it() {
    let mut host = Host::new(["H100"; 2]);
    let pid = host.start_sleep(0, 3 * GIB).to_string();
    let agent = Agent::start(&host);
    let file = host.path("lines.jsonl");
    let mut recording = File::create(&file).expect("/tmp has room");
    let mut received = ReceivedLines::default();
    let mut read_until = |is_true: &dyn Fn(&Snapshot) -> bool| {
        loop {
            let line = agent.next_line();
            line.write(&mut recording).expect("/tmp has room");
            let is_tick = matches!(line, Line::Tick(_));
            received.apply(line);
            if received.snapshot.as_ref().is_some_and(is_true) {
                return is_tick;
            }
        }
    };
    read_until(&|snapshot| snapshot.gpus[0].processes.len() == 1);
    host.change(|world| world.faults.push(Fault::error(LIST, "NO_PERMISSION").on(0)));
    assert!(
        read_until(&|snapshot| snapshot.gpus[0].missing.processes == Some(Missing::Denied)),
        "a tick carries it"
    );
    // The process as last seen, and the reason.
    let text = run(Host::new([]).gputop(["replay", "--once"]).arg(&file)).text();
    let sentence = "not all processes on GPU 0 are known: the driver refuses to list them here";
    assert!(text.contains(sentence) && text.contains(&pid), "{text}");

    host.change(|world| world.faults.clear());
    assert!(
        read_until(&|snapshot| snapshot.gpus[0].missing.processes.is_none()),
        "a tick takes it back"
    );
    let text = replayed(&file);
    assert!(!text.contains("are known") && text.contains(&pid), "{text}");

    // Another call hangs: who came and went since then is not known.
    host.change(|world| {
        world
            .faults
            .push(Fault::hang("nvmlDeviceGetPowerUsage").on(0));
    });
    let is_unknown =
        |snapshot: &Snapshot| snapshot.gpus[0].missing.processes == Some(Missing::Failed);
    assert!(read_until(
        &|snapshot| is_unknown(snapshot) && snapshot.gpus[0].processes.len() == 1
    ));
    let text = run(Host::new([]).gputop(["replay", "--once"]).arg(&file)).text();
    assert!(
        text.contains("not all processes on GPU 0 are known: the GPU does not answer"),
        "{text}"
    );
}

/// A later version may have more reasons.
#[test]
fn an_unknown_reason_is_read_as_failed() {
    let host = Host::new(["H100"]);
    let line = host.run(["--json"]).text().replacen(
        r#""processes":[]"#,
        r#""processes":[],"missing":{"processes":"asleep"}"#,
        1,
    );
    let line = line.replacen(r#":"unsupported""#, r#":"asleep""#, 1);
    let file = host.path("later.jsonl");
    fs::write(&file, &line).expect("/tmp has room");
    let Ok(Some(Line::Full(snapshot))) = Line::parse(line.as_bytes()) else {
        panic!("{line}")
    };
    assert_eq!(snapshot.gpus[0].missing.processes, Some(Missing::Failed));
    let text = run(Host::new([]).gputop(["replay", "--once"]).arg(&file)).text();
    assert!(
        text.contains("processes on GPU 0 are not known: the driver failed to list them"),
        "{text}"
    );
}
