//! `gputop estimate`: runs the user's Python, and prints a table of the memory of a training step.
//! The estimate itself needs PyTorch: `tests/pytorch` has no stand-in for that, so a shell script
//! plays Python here, or PyTorch is a stand-in and the estimate fails before.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::cli::json;
use crate::host::Host;
use crate::process::{Output, run};

/// An answer as `estimate_command.py` prints it.
const ANSWER: &str = concat!(
    r#"{"bytes": {"parameters": 49807360, "buffers": 0, "inputs": 1048576, "activations": 943718400, "gradients": 49807360, "#,
    r#""optimizer_state": 99614720, "peak": 1153433600}, "measured": false, "assumptions": ["one GPU", "no CUDA graphs"], "#,
    r#""batch": 32, "per_sample": 30408704, "largest_batches": [2500, 0], "optimizer": "AdamW", "torch": "2.5.1"}"#,
);

const MODEL: &str = r#"import torch
print("text of the program")
def build():
    return torch.nn.Module(), torch.Tensor(3, 4)
def fails():
    size = 0
    raise ValueError(f"no rows: {size}\nin two lines")
def ends():
    raise SystemExit(3)
number = lambda: 5
no_model = lambda: (5, torch.Tensor(3, 4))
no_inputs = lambda: (torch.nn.Module(), 5)
def other_key():
    return {"model": torch.nn.Module(), "batch_size": 3}
constant = 5
"#;

/// A host with a cache and the model, and two kinds of GPUs.
fn host() -> Host {
    let host = Host::new(["H100", "H100", "GTX-970"]);
    fs::create_dir(host.path("cache")).expect("/tmp has room");
    fs::set_permissions(host.path("cache"), Permissions::from_mode(0o700))
        .expect("the folder is ours");
    fs::write(host.path("model.py"), MODEL).expect("/tmp has room");
    host
}

/// A `gputop estimate` in the folder of the host, with the stand-in for PyTorch.
fn estimate(host: &Host, arguments: &[&str]) -> Command {
    let mut command = host.gputop(["estimate"].iter().chain(arguments).copied());
    command
        .env("XDG_CACHE_HOME", host.path("cache"))
        .env_remove("XDG_RUNTIME_DIR")
        .current_dir(host.path(""));
    command.env(
        "PYTHONPATH",
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pytorch/stand_in"),
    );
    command
}

/// Installs a program that prints answers as Python would, one a line, and stores its last argument.
fn fake_python(host: &Host, answers: &str) -> String {
    let script = format!("#!/bin/sh\nprintf %s \"$2\" > arguments\nprintf '%s\\n' '{answers}'\n");
    host.install_script("fake-python", &script)
        .display()
        .to_string()
}

/// The argument that the fake Python has stored.
fn asked(host: &Host) -> serde_json::Value {
    let asked = fs::read_to_string(host.path("arguments")).expect("Python was asked");
    serde_json::from_str(&asked).expect("the argument is JSON")
}

/// A brief answer with this peak in MiB, which fits the first GPU or none.
fn brief(mib: u64, fits: bool) -> String {
    format!(
        r#"{{"bytes": {{"peak": {}}}, "measured": false, "assumptions": [], "by_formula": ["peak"], "fits": [{fits}], "optimizer": "AdamW", "torch": "2.5.1"}}"#,
        mib << 20
    )
}

#[track_caller]
fn check_refusal(output: &Output, code: i32, words: &str) {
    assert_eq!(
        (output.code, output.text().as_str()),
        (code, ""),
        "{}",
        output.stderr
    );
    let line = output.stderr.lines().find(|line| line.contains(words));
    assert!(line.is_some(), "{words} is not in {}", output.stderr);
}

#[test]
fn the_table_has_the_parts_and_the_largest_batch_for_each_kind_of_gpu() {
    let host = host();
    let python = fake_python(&host, ANSWER);
    let output = run(&mut estimate(
        &host,
        &["model.py:build", "--python", &python],
    ));
    let text = output.text();
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..11],
        [
            "one training step of build in model.py, estimated: batch 32, AdamW, PyTorch 2.5.1",
            "  parameters            47.5 MiB",
            "  gradients             47.5 MiB",
            "  optimizer state       95.0 MiB",
            "  buffers                    0 B",
            "  inputs                 1.0 MiB",
            "  activations            900 MiB  saved for the backward pass",
            "  peak                   1.1 GiB  the parts are not all there at once, and backward adds some",
            "  total                  1.9 GiB  with CUDA's context and libraries",
            "  per sample            29.0 MiB  how the peak of large batches grows",
            "",
        ],
        "{text}"
    );
    assert!(
        lines[12].starts_with("2 × NVIDIA H100") && lines[12].ends_with(" 2500"),
        "{text}"
    );
    assert!(
        lines[13].contains("GTX 970") && lines[13].ends_with(" none fits"),
        "{text}"
    );
    assert_eq!(
        lines[15..],
        ["assumptions:", "  - one GPU", "  - no CUDA graphs"],
        "{text}"
    );
    let asked = asked(&host);
    assert_eq!(
        (&asked["file"], &asked["function"], &asked["measure"]),
        (&"model.py".into(), &"build".into(), &false.into())
    );
    assert_eq!(asked["runs"].as_array().map(Vec::len), Some(1));
    assert_eq!(asked["gpus"].as_array().map(Vec::len), Some(2));
}

#[test]
fn an_estimate_is_kept_from_the_gpus_and_a_measurement_is_not() {
    let host = host();
    let answer = ANSWER
        .replace("[2500, 0]", "[700]")
        .replace(r#""measured": false"#, r#""measured": true"#);
    let script = format!(
        "#!/bin/sh\nprintf '%s\\n%s\\n%s\\n' \"$2\" \"${{CUDA_VISIBLE_DEVICES-unset}}\" \"$LD_LIBRARY_PATH\" > asked\nprintf '%s\\n' '{answer}'\n"
    );
    let python = host.install_script("fake-python", &script);
    let asked = |more: &[&str]| {
        let python = python.display().to_string();
        let arguments = [
            "model.py:build",
            "--python",
            &python,
            "--gpu-memory",
            "24G",
            "--precision",
            "bf16",
            "--checkpoint",
        ];
        let mut command = estimate(&host, &[&arguments, more].concat());
        let output = run(command
            .env("LD_LIBRARY_PATH", "/own")
            .env_remove("CUDA_VISIBLE_DEVICES"));
        assert_eq!(output.code, 0, "{}", output.stderr);
        let text = fs::read_to_string(host.path("asked")).expect("Python was asked");
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let estimated = asked(&[]);
    for flag in [r#""precision":"bf16""#, r#""checkpoint":true"#] {
        assert!(estimated[0].contains(flag), "{estimated:?}");
    }
    assert_eq!(estimated[1], "", "{estimated:?}");
    let (no_driver, own) = estimated[2].split_once(':').expect("two folders");
    assert_eq!(own, "/own");
    assert!(Path::new(no_driver).join("libcuda.so.1").is_file());
    let measured = asked(&["--measure"]);
    assert_eq!(measured[0].matches("is_brief").count(), 1, "{measured:?}");
    assert_eq!(
        (measured[1].as_str(), measured[2].as_str()),
        ("unset", "/own")
    );
}

#[test]
fn a_named_amount_of_memory_replaces_the_gpus_and_json_has_all_of_it() {
    let host = host();
    let python = fake_python(&host, &ANSWER.replace("[2500, 0]", "[700]"));
    let arguments = [
        "model.py:build",
        "--python",
        &python,
        "--gpu-memory",
        "24G",
        "--measure",
        "--json",
    ];
    let line = json(&run(&mut estimate(&host, &arguments)));
    assert_eq!(
        line["gpus"],
        serde_json::json!([{
            "name": "a GPU", "count": 1, "memory_bytes": 24_u64 << 30, "largest_batch": 700,
        }])
    );
    assert_eq!(
        (&line["peak_bytes"], &line["total_bytes"]),
        (&1_153_433_600.into(), &1_992_294_400.into())
    );
    assert_eq!(line["fixed_bytes"], serde_json::Value::Null);
    let asked = fs::read_to_string(host.path("arguments")).expect("Python was asked");
    assert!(
        asked.contains(r#""measure":true"#) && asked.contains(r#""gpus":[25769803776]"#),
        "{asked}"
    );
}

#[test]
fn a_table_says_what_each_flag_saves() {
    let host = host();
    let all = ANSWER
        .replace("[2500, 0]", r#"[700], "fits": [true]"#)
        .replace(r#""peak""#, r#""gathered": 1048576, "peak""#);
    let answers = [
        all.as_str(),
        &brief(30000, false),
        &brief(20000, true),
        r#"{"error": "--lora finds no linear layer"}"#,
    ]
    .join("\n");
    let python = fake_python(&host, &answers);
    let arguments = [
        "model.py:build",
        "--python",
        &python,
        "--gpu",
        "RTX 4090",
        "--precision",
        "bf16",
        "--lora",
        "r=16",
        "--zero",
        "3",
        "--gpus",
        "8",
    ];
    let output = run(&mut estimate(&host, &arguments));
    let text = output.text();
    for line in [
        "  gathered 1.0 MiB parameters and gradients that are whole for a moment",
        "WITH                 TOTAL     SAVES  FITS",
        "no flag           30.1 GiB            none      by formula",
        "--precision bf16  20.3 GiB   9.8 GiB  RTX 4090  by formula",
        "--lora r=16         failed",
        "--zero 3 --gpus 8  not run",
        "--lora r=16: --lora finds no linear layer",
        "RTX 4090  24.0 GiB            700",
    ] {
        let plain = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            text.lines().any(|shown| plain(shown) == plain(line)),
            "{line} is not in {text}"
        );
    }
    assert!(
        text.contains("not run: ") && text.contains("ended with exit status: 0"),
        "{text}"
    );
    let asked = asked(&host);
    let flags = [
        "optimizer",
        "precision",
        "checkpoint",
        "lora",
        "sharding",
        "is_brief",
    ];
    let runs = asked["runs"].as_array().expect("a list").iter();
    let runs: Vec<_> = runs
        .map(|run| flags.map(|flag| run[flag].to_string()).join(" "))
        .collect();
    assert_eq!(
        runs,
        [
            r#"null "bf16" false 16 ["zero",8,3] false"#,
            "null null false null null true",
            r#"null "bf16" false null null true"#,
            "null null false 16 null true",
            r#"null null false null ["zero",8,3] true"#,
        ]
    );
    let line = json(&run(estimate(&host, &arguments).arg("--json")));
    let savings = line["savings"].as_array().expect("a list");
    assert_eq!(savings.len(), 5, "{line}");
    assert_eq!(
        (
            &savings[1]["flags"],
            &savings[1]["total_bytes"],
            &savings[1]["fits"]
        ),
        (
            &serde_json::json!(["--precision bf16"]),
            &(20800_u64 << 20).into(),
            &serde_json::json!(["RTX 4090"])
        )
    );
    assert_eq!(savings[2]["error"], "--lora finds no linear layer");
    assert_eq!(savings[3]["total_bytes"], serde_json::Value::Null);
    assert_eq!(line["gathered_bytes"], 1 << 20);
}

#[test]
fn a_sweep_is_a_grid_with_what_fits() {
    let host = host();
    let answers = [
        brief(1000, true),
        brief(2000, true),
        brief(30000, false),
        r#"{"error": "too long"}"#.to_owned(),
    ]
    .join("\n");
    let python = fake_python(&host, &answers);
    let arguments = [
        "hf:model.py",
        "--python",
        &python,
        "--gpu",
        "RTX 4090",
        "--fsdp",
        "8",
        "--sweep",
        "length=512..1024,batch=1..4",
    ];
    let output = run(&mut estimate(&host, &arguments));
    let text = output.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..13],
        [
            "the total of one training step of model.py, estimated: AdamW, PyTorch 2.5.1",
            "",
            "BATCH  LENGTH 512  LENGTH 1024",
            "    1     1.8 GiB      2.7 GiB",
            "    2    30.1 GiB       failed",
            "    4     not run      not run",
            "  by formula",
            "BATCH 2, LENGTH 1024: too long",
            "",
            "GPU         MEMORY  LARGEST BATCH, LENGTH 512  LENGTH 1024",
            "RTX 4090  24.0 GiB                          1            1",
            "",
            lines[12],
        ],
        "{text}"
    );
    assert!(lines[12].starts_with("not run: "), "{text}");
    let asked = asked(&host);
    assert_eq!(asked["function"], serde_json::Value::Null);
    let runs = asked["runs"].as_array().expect("a list");
    assert_eq!(runs.len(), 6);
    assert_eq!(
        (&runs[1]["parameters"], &runs[1]["sharding"]),
        (
            &serde_json::json!({"batch": 1, "length": 1024}),
            &serde_json::json!(["fsdp", 8])
        )
    );
    let line = json(&run(estimate(&host, &arguments).arg("--json")));
    let sweep = &line["sweep"];
    assert_eq!(sweep["names"], serde_json::json!(["batch", "length"]));
    assert_eq!(sweep["cells"][2]["peak_bytes"], 30000_u64 << 20);
    assert_eq!(sweep["cells"][5]["peak_bytes"], serde_json::Value::Null);
    assert_eq!(line["peak_bytes"], serde_json::Value::Null);
}

#[test]
fn an_estimate_that_takes_too_long_is_ended() {
    let host = host();
    let script = "#!/bin/sh\nexec sleep 1000\n";
    let python = host
        .install_script("fake-python", script)
        .display()
        .to_string();
    let arguments = [
        "model.py:build",
        "--python",
        &python,
        "--time-limit",
        "100ms",
    ];
    let output = run(&mut estimate(&host, &arguments));
    check_refusal(
        &output,
        1,
        "build gave no estimate in 100ms, and was ended: estimate a smaller model",
    );
}

#[test]
fn flags_that_make_no_sense_get_a_sentence() {
    let host = host();
    for (flags, words) in [
        ("--zero 4 --gpus 8", "4 is not in 1..=3"),
        ("--zero 3", "--gpus <COUNT>"),
        ("--gpus 8", "--zero <STAGE>"),
        ("--fsdp 0", "must be a number of GPUs from 2"),
        ("--fsdp 8 --measure", "cannot be used with '--measure'"),
        (
            "--lora r=0",
            "must be the rank of the adapters, such as `r=16`",
        ),
        ("--sweep length=5..3", "5..3 goes down: write length=3..5"),
    ] {
        let arguments: Vec<&str> = std::iter::once("model.py:build")
            .chain(flags.split(' '))
            .collect();
        check_refusal(&run(&mut estimate(&host, &arguments)), 2, words);
    }
}

#[test]
fn gpus_are_named_and_a_formula_is_said() {
    let host = host();
    let answer = ANSWER.replace("[2500, 0]", "[700, 80, 9]").replace(
        r#""measured""#,
        r#""by_formula": ["optimizer_state"], "fits": [true, true, false], "measured""#,
    );
    let python = fake_python(&host, &answer);
    let arguments = [
        "model.py:build",
        "--python",
        &python,
        "--gpu",
        "rtx 4090",
        "--gpu",
        "NVIDIA T4",
        "--gpu-memory",
        "8GiB",
        "--optimizer",
        "adamw8bit",
    ];
    let output = run(&mut estimate(&host, &arguments));
    let text = output.text();
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    for line in [
        "  optimizer state       95.0 MiB  by formula",
        "no flag                not run",
        "--optimizer adamw8bit  1.9 GiB         RTX 4090, T4  by formula",
        "RTX 4090  24.0 GiB            700",
        "T4        15.0 GiB             80",
        "a GPU      8.0 GiB              9",
    ] {
        assert!(
            text.lines().any(|shown| shown == line),
            "{line} is not in {text}"
        );
    }
    let unknown = run(&mut estimate(
        &host,
        &["model.py:build", "--gpu", "RTX 9999"],
    ));
    check_refusal(
        &unknown,
        2,
        "gputop knows no GPU of this name: give its memory with --gpu-memory",
    );
}

#[test]
fn a_host_without_a_gpu_says_how_to_name_one() {
    let host = host();
    let python = fake_python(&host, &ANSWER.replace("[2500, 0]", "[]"));
    let output = run(&mut estimate(
        &host,
        &[
            "model.py:build",
            "--python",
            &python,
            "--nvml-lib",
            "/nothing",
        ],
    ));
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    assert!(
        output
            .text()
            .contains(": --gpu-memory 24GiB finds what fits such a GPU"),
        "{}",
        output.text()
    );
}

#[test]
fn bad_input_gets_a_sentence() {
    let host = host();
    fs::write(host.path("wrong.py"), "def build(:\n").expect("/tmp has room");
    for (subject, words) in [
        (
            "model.py:fails",
            "fails() in model.py failed: ValueError: no rows: 0 (model.py:7, in fails: raise ValueError(",
        ),
        (
            "model.py:ends",
            "ends() in model.py ended the program with sys.exit(3) (model.py:9, in ends: raise SystemExit(3))",
        ),
        (
            "model.py:number",
            "number() returned a value of type int instead of (model, inputs), (model, inputs, optimizer)",
        ),
        (
            "model.py:no_model",
            "no_model() returned a value of type int as the model, which must be a torch.nn.Module",
        ),
        (
            "model.py:no_inputs",
            "no_inputs() returned a value of type int as the inputs, which must be a tensor",
        ),
        (
            "model.py:other_key",
            "returned a dict with the key batch_size: it may have model, inputs",
        ),
        (
            "model.py:nothing",
            "model.py has no function nothing; its functions: build, fails, ends, number",
        ),
        ("model.py:constant", "model.py has no function constant; "),
        ("wrong.py:build", "importing wrong.py failed: SyntaxError: "),
        (
            "absent.py:build",
            "there is no file absent.py: name it as in `model.py:build` or `hf:config.json`",
        ),
    ] {
        let output = run(&mut estimate(
            &host,
            &[subject, "--gpu-memory", "24G", "--python", "python3"],
        ));
        check_refusal(&output, 1, words);
        let lines: Vec<&str> = output
            .stderr
            .lines()
            .filter(|line| *line != "text of the program")
            .collect();
        assert_eq!(lines.len(), 1, "{lines:?}");
    }
    let output = run(&mut estimate(&host, &["model.py", "--gpu-memory", "24G"]));
    check_refusal(
        &output,
        2,
        "must be a file and a function in it, such as `model.py:build`, or `hf:config.json`",
    );
}

#[test]
fn a_python_without_a_suitable_torch_is_refused() {
    let host = host();
    let with_torch = |text: &str| {
        fs::write(host.path("torch.py"), text).expect("/tmp has room");
        let mut command = estimate(
            &host,
            &[
                "model.py:build",
                "--gpu-memory",
                "24G",
                "--python",
                "python3",
            ],
        );
        run(command.env("PYTHONPATH", host.path("")))
    };
    let way_out = "name the Python of your environment with --python, or activate it";
    let missing = with_torch("raise ModuleNotFoundError(\"No module named 'torch'\")");
    check_refusal(
        &missing,
        1,
        &format!("cannot import torch: ModuleNotFoundError: No module named 'torch': {way_out}"),
    );
    check_refusal(
        &with_torch("__version__ = '1.13.1'"),
        1,
        "has PyTorch 1.13.1, and an estimate needs 2.0 or later",
    );
    check_refusal(&with_torch(""), 1, "torch.py is not PyTorch");
    for (python, words) in [
        (
            "/no/python",
            "cannot run /no/python: No such file or directory",
        ),
        (
            "false",
            "false gave no estimate, and ended with exit status: 1",
        ),
    ] {
        let output = run(&mut estimate(
            &host,
            &["model.py:build", "--gpu-memory", "24G", "--python", python],
        ));
        check_refusal(&output, 1, words);
    }
}

#[test]
fn the_python_of_the_virtual_environment_is_taken() {
    let host = host();
    let python = fake_python(&host, &ANSWER.replace("[2500, 0]", "[700]"));
    fs::create_dir_all(host.path("venv/bin")).expect("/tmp has room");
    fs::rename(Path::new(&python), host.path("venv/bin/python")).expect("the folder is ours");
    let mut command = estimate(&host, &["model.py:build", "--gpu-memory", "24G"]);
    let output = run(command.env("VIRTUAL_ENV", host.path("venv")));
    assert!(
        output.text().contains("a GPU  24.0 GiB            700"),
        "{}{}",
        output.text(),
        output.stderr
    );
}
