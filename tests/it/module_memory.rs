//! The memory of a recorded step by module: `gputop tensors PID --modules`, and the key `b` on the
//! page of the program.

use serde_json::Value;

use crate::allocator_stats::host_with_gpus;
use crate::probe::FakeProbe;
use crate::probe_commands::answered_with;
use crate::probe_page::{answer, open_page, report};
use crate::terminal::ENTER;

/// An answer of the probe.
const MODULES: &str = r#""ok": true, "modules": [{"cuda_device": 0, "peak_bytes": 104857600, "before_bytes": 20971520, "outside_bytes": 1024, "backward_bytes": 2097152, "rows": [{"path": "Transformer", "type": "Transformer", "calls": 1, "activation_bytes": 81788928, "peak_bytes": 80787904}, {"path": "blocks", "type": "ModuleList", "calls": 0, "activation_bytes": 63963136, "peak_bytes": 62914560}, {"path": "blocks.3.mlp", "type": "Mlp", "calls": 2, "activation_bytes": 63963136, "peak_bytes": 62914560}], "rows_left_out": 4}], "kept": [{"cuda_device": 0, "names": ["logits"], "line": "train.py:31 in main", "bytes": 1048576}]"#;

const KEPT: &str = "logits (train.py:31 in main) stays alive over the step: del logits frees 1.0 MiB before the next forward pass";

#[test]
fn the_memory_of_a_step_is_listed_by_module_with_results_that_stay_alive() {
    let answered = |args: &[&str]| answered_with(args, "tensors", &report(), &report(), MODULES);
    let (code, stdout, stderr, request) = answered(&["--modules"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert_eq!(request["request"], "modules");
    let lines: Vec<&str> = stdout.lines().skip(1).collect();
    assert_eq!(
        lines,
        [
            "one step, 100 MiB at its peak on cuda:0: 20.0 MiB from before it, 2.0 MiB of the backward pass, 1 KiB \
             outside of modules, the rest of modules",
            "ACTIVATIONS   AT PEAK  CALLS  MODULE        CLASS",
            "   78.0 MiB  77.0 MiB      1  Transformer   Transformer",
            "   61.0 MiB  60.0 MiB      0  blocks        ModuleList",
            "   61.0 MiB  60.0 MiB      2  blocks.3.mlp  Mlp",
            "4 smaller modules are left out",
            KEPT,
        ],
        "{stdout}"
    );
    let (_, stdout, _, _) = answered(&["--modules", "--json", "MLP"]);
    let line: Value = serde_json::from_str(&stdout).expect("one line of JSON");
    let rows = line["modules"][0]["rows"].as_array().expect("a list");
    assert_eq!(rows.len(), 1, "{line}");
    assert_eq!(rows[0]["activation_bytes"], 63_963_136);
    assert_eq!(line["kept"][0]["names"][0], "logits");
}

#[test]
fn a_step_that_cannot_be_recorded_gets_the_reason() {
    let error = r#""ok": false, "error": "the program has a profiler of its own""#;
    let (code, stdout, stderr, _) =
        answered_with(&["--modules"], "tensors", &report(), &report(), error);
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert!(
        stderr.ends_with("cannot record a step: the program has a profiler of its own\n"),
        "{stderr}"
    );
}

#[test]
fn a_key_of_the_page_shows_the_cost_and_then_the_memory_of_each_module() {
    let mut host = host_with_gpus(1);
    let mut probe = FakeProbe::start(&mut host, &[], &[]);
    probe.publish(&report());
    let mut terminal = open_page(&host, &probe);
    terminal.wait_for("keys             p peak, b modules");
    terminal.keys("b");
    terminal.wait_for("records 1 step, and shows the memory of each module");
    terminal.wait_for("and 0.1 ms per call of a module");
    terminal.keys(ENTER);
    terminal.wait_for("recording 1 step");
    let request = answer(&mut probe, &Value::Null, MODULES);
    assert_eq!(request["request"], "modules");
    for words in [
        "modules          one step, 100 MiB at its peak on cuda:0",
        "78.0 MiB         Transformer, 77.0 MiB at the peak",
        "61.0 MiB         blocks.3.mlp (Mlp), 2 calls, 60.0 MiB at the peak",
        "and 4 more modules: gputop tensors PID --modules",
        "1.0 MiB          logits (train.py:31 in main) stays alive over the step",
    ] {
        terminal.wait_for(words);
    }
    terminal.quit();
}
