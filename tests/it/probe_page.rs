//! Reports of the probe on the screen: on the page of a process and in its graph.

use serde_json::Value;

use crate::allocator_stats::host_with_gpus;
use crate::host::Host;
use crate::probe::FakeProbe;
use crate::process::wait_until;
use crate::terminal::{ENTER, ESC, Terminal};

/// A report of a training program that keeps its outputs.
pub(crate) fn report() -> String {
    on_one_line(include_str!("../data/probe-report.json"))
}

pub(crate) fn on_one_line(json: &str) -> String {
    json.lines().map(str::trim).collect()
}

/// Starts gputop and opens the page of the only process.
pub(crate) fn open_page(host: &Host, probe: &FakeProbe) -> Terminal {
    let terminal = Terminal::start_at(host, 120, 90, ["--interval", "100ms"]);
    terminal.wait_for(&probe.pid().to_string());
    terminal.keys("i");
    terminal.wait_for("identity");
    terminal
}

#[test]
fn the_page_shows_categories_steps_leaks_and_tensors() {
    let mut host = host_with_gpus(1);
    let mut probe = FakeProbe::start(&mut host, &[], &[]);
    probe.publish(&report());
    let mut terminal = open_page(&host, &probe);
    for words in [
        "Inside PyTorch 2.5.1, Python 3.11.7, step 120, 4.8 steps/s",
        "▇ parameters         97.5 MiB       102,236,160  12 %",
        "  exp_avg          97.5 MiB       102,236,160  of it",
        "▇ activations         319 MiB       334,154,752  39 %",
        "reserved            816 MiB       855,638,016  all of these",
        "435 MiB after a step; 1.1 GiB at the peak, in step 80; that step needed 717 MiB more",
        "leak             250 KiB per step: 1 × (64, 1000) float32, named tensors, held by list outputs, train.py:41 in main",
        "Leak (likely)",
        "allocated at     train.py:40 in step",
        "                 model.py:12 in forward",
        "held by          list outputs, train.py:41 in main",
        "path             outputs[…]",
        "what to try      outputs.append(output.detach().cpu())",
        "fills            global window, train.py:5: 81 of at most 300 elements, 5.0 MiB",
        "Changed since step 119",
        "+ 1 × (64, 1000) float32  +250 KiB  named tensors",
        "63.0 MiB         7 × (512, 512, 3, 3) float32  parameters  120 steps old",
        "63.0 MiB         7 × (512, 512, 3, 3) float32  optimizer state exp_avg",
        "1 × blocks of 8.1 MiB  libraries",
        "and 12 more groups",
    ] {
        terminal.wait_for(words);
    }
    terminal.keys(ESC);
    terminal.wait_for("COMMAND");
    terminal.quit();
}

/// Waits until the probe is asked for something else than before, answers with these fields, and
/// returns the request.
pub(crate) fn answer(probe: &mut FakeProbe, before: &Value, fields: &str) -> Value {
    let mut request = Value::Null;
    wait_until("the probe is asked", || {
        request = serde_json::from_str(&probe.request("request")).expect("the request is JSON");
        // `null` also stands for a request that is being written.
        request != *before && request != Value::Null
    });
    let report = report();
    let report = report.strip_suffix('}').expect("a report is an object");
    let answer = format!(
        r#""answer": {{"id": {}, "request": {}, {fields}}}"#,
        request["id"], request["request"]
    );
    probe.request(&format!("publish {report}, {answer}}}"));
    request
}

#[test]
fn the_peak_is_recorded_after_its_cost_was_confirmed() {
    let mut host = host_with_gpus(1);
    let mut probe = FakeProbe::start(&mut host, &[], &[]);
    probe.publish(&report());
    let mut terminal = open_page(&host, &probe);
    terminal.wait_for(
        "keys             p peak, b modules, r lines, h holders, t tensors, m mark, s snapshot",
    );
    for keys in ["p", "r"] {
        terminal.keys(keys);
        terminal.wait_for("cost             a step takes about 0.4 % longer meanwhile");
        terminal.wait_for("Enter start  Esc cancel");
        terminal.keys(ESC);
        terminal.wait_for("keys             p peak");
        assert_eq!(
            probe.request("request"),
            "null",
            "nothing is asked before Enter"
        );
    }
    terminal.keys("p");
    terminal.wait_for("2 ms in all");
    terminal.keys(ENTER);
    terminal.wait_for("recording 2 steps");
    terminal.keys("h");
    terminal.wait_for("the probe has not answered the key before yet");
    let fields = r#""ok": true, "steps": 2, "peak": [{"cuda_device": 0, "peak_bytes": 2097152, "is_complete": false,
        "category_bytes": {"gradients": 524288, "activations": 1572864}, "lines": [
        {"bytes": 1048576, "count": 4, "user": "train.py:40 in step", "inner": "model.py:12 in forward"}]}]"#;
    let request = answer(&mut probe, &Value::Null, &fields.replace('\n', " "));
    assert_eq!(
        (&request["request"], &request["steps"]),
        (&Value::from("peak"), &Value::from(2))
    );
    for words in [
        "peak             2.0 MiB of cuda:0 in 2 steps, made of:",
        "activations         1.5 MiB         1,572,864  75 %",
        "gradients           512 KiB           524,288  25 %",
        "more was allocated than the recording has room for: the peak may be higher",
        "1.0 MiB          4 × train.py:40 in step, model.py:12 in forward  50 %",
    ] {
        terminal.wait_for(words);
    }
    terminal.quit();
}

#[test]
fn the_keys_of_the_page_ask_the_probe_and_the_page_shows_its_answer() {
    let mut host = host_with_gpus(1);
    let mut probe = FakeProbe::start(&mut host, &[], &[]);
    probe.publish(&report());
    let mut terminal = open_page(&host, &probe);
    terminal.wait_for("directory ");
    // The first line of the agent has no probes.
    terminal.wait_for("keys             p peak, b modules");
    let mut request = Value::Null;
    let lines = r#""ok": true, "steps": 3, "lines": [{"bytes": 4096, "count": 3, "user": "train.py:7"}, {"bytes": 512, "user": "other lines"}]"#;
    for (keys, name, fields, words) in [
        (
            "m",
            "mark",
            r#""ok": true"#,
            "set: the changes below count from it",
        ),
        (
            "u",
            "unmark",
            r#""ok": true"#,
            "ended: the changes below count from the reading before",
        ),
        ("t", "tensors", r#""ok": true"#, "all tensors were read"),
        (
            "h",
            "holders",
            r#""ok": true"#,
            "looked for: see the leaks below",
        ),
        (
            "s",
            "snapshot",
            r#""ok": true, "path": "/x/new.pickle", "bytes": 2048"#,
            "/x/new.pickle (2 KiB): open it at",
        ),
        (
            "s",
            "snapshot",
            r#""ok": false, "error": "FileExistsError: there""#,
            "not done: FileExistsError: there",
        ),
        ("r\r", "record", lines, "4 KiB            3 × train.py:7"),
    ] {
        terminal.keys(keys);
        request = answer(&mut probe, &request, fields);
        assert_eq!(request["request"], name);
        terminal.wait_for(words);
    }
    terminal.keys("s");
    let request = answer(&mut probe, &request, r#""ok": true"#);
    let folder = std::env::current_dir().expect("a folder");
    let path = folder.join(format!("gputop-{}-step-120.pickle", probe.pid()));
    assert_eq!(request["path"].as_str(), path.to_str());
    terminal.quit();
}

#[test]
fn the_page_says_how_to_start_a_program_with_the_probe() {
    let mut host = host_with_gpus(1);
    let folder = [("GPUTOP_PROBE_FOLDER", "/probe")];
    let probe = FakeProbe::start(&mut host, &[], &folder);
    let mut terminal = open_page(&host, &probe);
    terminal.wait_for(
        "inside PyTorch   `gputop run` started it, but something changed PYTHONPATH on the way",
    );
    terminal.quit();
}

#[test]
fn the_graph_stacks_the_categories() {
    let mut host = host_with_gpus(1);
    let mut probe = FakeProbe::start(&mut host, &[], &[]);
    probe.publish(&report());
    let mut terminal = Terminal::start_at(&host, 130, 40, ["--interval", "100ms"]);
    terminal.wait_for(&probe.pid().to_string());
    terminal.keys("g");
    terminal.wait_for("memory  now");
    // An old report has no amounts.
    probe.request(&format!("publish {}", report()));
    terminal.wait_until("the names and amounts of the categories", |screen| {
        let text = screen.contents();
        let has = |name: &str, amount: &str| {
            text.lines()
                .any(|line| line.contains(name) && line.contains(amount))
        };
        has("optimizer state", "195 MiB")
            && has("activations", "319 MiB")
            && has("unallocated", "62.0 MiB")
    });
    terminal.quit();
}

#[test]
fn the_demo_shows_a_leak_with_its_line_and_holder() {
    let host = host_with_gpus(1);
    let mut terminal = Terminal::start_at(&host, 120, 90, ["--demo"]);
    terminal.wait_for("python train.py");
    terminal.keys("i");
    for words in [
        "held by list outputs, train.py:88 in",
        "Inside PyTorch 2.5.1, Python 3.11.9, step ",
        "allocated at     train.py:61 in train_step",
        "held by          list outputs, train.py:88 in main",
        "× (8, 1024, 1600) float32  activations",
        "× (1600, 6400) float32  optimizer state exp_avg",
    ] {
        terminal.wait_for(words);
    }
    assert!(
        !terminal.text().contains("memory alone cannot tell"),
        "the probe knows the cause"
    );
    terminal.keys("h");
    terminal.wait_for("holders          not done: --demo simulates the report of this program");
    terminal.quit();
}
