//! Queries read only what the asked fields need, and a GPU that does not answer costs only its own
//! row.

use fake_nvml::Fault;

use crate::host::{GIB, Host};

const OK: i32 = 0;
const PARTIAL: i32 = 5;
const NONE_FREE: i32 = 11;

#[test]
fn the_used_memory_of_eight_gpus_takes_few_calls() {
    /// Start, count and versions of the driver, then handle and UUID of each GPU; the start again
    /// where the driver was slow. A pass that comes meanwhile reads the memory of each GPU again.
    const MOST: u64 = 24;
    let host = Host::new(["H100"; 8]);
    let output = host.run(["--query-gpu=memory.used", "--format=csv,noheader"]);
    assert_eq!((output.code, output.text()), (OK, "0 MiB\n".repeat(8)));
    let mut counts = host.call_counts();
    let of_memory = counts.remove("nvmlDeviceGetMemoryInfo_v2");
    assert!(
        of_memory.is_some_and(|calls| calls >= 8) && counts.values().sum::<u64>() <= MOST,
        "{of_memory:?} {counts:?}"
    );
}

#[test]
fn calls_for_other_fields_do_not_spoil_an_answer() {
    let mut host = Host::new(["H100"]);
    let functions = [
        "nvmlDeviceGetTotalEccErrors",
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetName",
        "nvmlEventSetCreate",
    ];
    host.change(|world| world.faults.extend(functions.map(Fault::hang)));
    let output = host.run(["--query-gpu=index,memory.used", "--format=csv,noheader"]);
    assert_eq!(
        (output.code, output.text().as_str(), output.stderr.as_str()),
        (OK, "0, 0 MiB\n", "")
    );
    let pid = host.start_sleep(0, GIB);
    let output = host.run([
        "--query-compute-apps=pid,used_memory",
        "--format=csv,noheader",
    ]);
    assert_eq!(
        (output.code, output.text(), output.stderr.as_str()),
        (OK, format!("{pid}, 1024 MiB\n"), "")
    );
}

/// Each field must get its value when the fields beside it, whose values may come from the same
/// calls, are not asked for. That the values are right, and that no field lacks a call, is tested
/// in `query.rs` and in `src/commands/query/field.rs`.
#[test]
fn a_field_has_the_same_value_in_every_query() {
    const PARTS: usize = 20;
    for (persona, driver) in [
        ("H100", "595.71.05"),
        ("RTX-4090", "550.54.15"),
        ("GH200", "590.48.01"),
    ] {
        let mut host = Host::new([persona]);
        host.change(|world| {
            driver.clone_into(&mut world.driver);
            world.gpus[0].fields.extend([
                (274, 95),
                (280, 1),
                (275, 300),
                (279, 5),
                (264, 2),
                (284, 40),
                (301, 2),
            ]);
        });
        let help = host.run(["--help-query-gpu"]).text();
        let names = help
            .lines()
            .filter_map(|line| line.strip_prefix('"')?.split('"').next());
        let names: Vec<&str> = names.filter(|name| *name != "timestamp").collect();
        let query = |names: &[&str]| -> Vec<String> {
            let output = host.run([
                &format!("--query-gpu={}", names.join(",")),
                "--format=csv,noheader",
            ]);
            assert_eq!(output.code, OK, "{}", output.stderr);
            output
                .text()
                .trim_end_matches('\n')
                .split(", ")
                .map(str::to_owned)
                .collect()
        };
        let all = query(&names);
        for part in 0..PARTS {
            let places: Vec<usize> = (part..names.len()).step_by(PARTS).collect();
            let values = query(&places.iter().map(|place| names[*place]).collect::<Vec<_>>());
            for (place, value) in places.iter().zip(values) {
                assert_eq!(value, all[*place], "{} of {persona}", names[*place]);
            }
        }
    }
}

#[test]
fn a_gpu_whose_processes_cannot_be_listed_is_named() {
    let mut host = Host::new(["H100", "H100"]);
    let pid = host.start_sleep(0, GIB);
    host.start_sleep(1, GIB);
    host.change(|world| {
        world
            .faults
            .push(Fault::error("nvmlDeviceGetComputeRunningProcesses_v3", "UNKNOWN").on(1));
    });
    let output = host.run(["--query-compute-apps=pid", "--format=csv,noheader"]);
    assert_eq!(
        (output.code, output.text()),
        (PARTIAL, format!("{pid}\n[Unknown Error]\n")),
        "{}",
        output.stderr
    );
    assert!(
        output.stderr.contains("GPU 1") && output.stderr.lines().count() == 1,
        "{}",
        output.stderr
    );
}

#[test]
fn a_gpu_that_hangs_at_its_handle_costs_only_its_own_row() {
    let mut host = Host::idle(["H100", "H100", "H100"]);
    host.change(|world| {
        world
            .faults
            .push(Fault::hang("nvmlDeviceGetHandleByIndex_v2").on(1));
    });
    let run = |args: &[&str]| host.run(args.iter().chain(&["--timeout", "2500ms"]).copied());
    let named = "GPU 1 has not answered nvmlDeviceGetHandleByIndex_v2";
    let output = run(&[
        "--query-gpu=index,uuid,memory.used",
        "--format=csv,noheader",
    ]);
    let rows = "0, GPU-00000000-1111-2222-3333-000000000000, 0 MiB\n1, [GPU does not answer], [GPU does not answer]\n\
        2, GPU-00000002-1111-2222-3333-000000000002, 0 MiB\n";
    assert_eq!(
        (output.code, output.text().as_str()),
        (PARTIAL, rows),
        "{}",
        output.stderr
    );
    assert!(output.stderr.contains(named), "{}", output.stderr);

    let output = run(&["-L"]);
    let text = output.text();
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        output.code == PARTIAL && lines.len() == 3 && lines[2].contains("(UUID: GPU-00000002"),
        "{text}"
    );
    assert!(
        lines[1].starts_with("GPU 1: ") && lines[1].contains(named),
        "{text}"
    );

    let output = run(&["--csv"]);
    let text = output.text();
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        output.code == PARTIAL && lines.len() == 4 && lines[3].contains("GPU-00000002"),
        "{text}{}",
        output.stderr
    );
    assert!(
        lines[2].ends_with(",starting") && lines[3].ends_with(','),
        "{text}"
    );

    let output = run(&[
        "free",
        "-n",
        "2",
        "--",
        "sh",
        "-c",
        "echo $CUDA_VISIBLE_DEVICES",
    ]);
    let (first, second) = (
        "GPU-00000000-1111-2222-3333-000000000000",
        "GPU-00000002-1111-2222-3333-000000000002",
    );
    assert_eq!(
        (output.code, output.text()),
        (OK, format!("{first},{second}\n")),
        "{}",
        output.stderr
    );
    let output = run(&["free", "-n", "3"]);
    assert!(
        output.code == NONE_FREE && output.stderr.contains("GPU 1 cannot be used"),
        "{}",
        output.stderr
    );
}
