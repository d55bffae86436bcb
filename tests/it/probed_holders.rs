//! A process that the driver does not list (WSL 2, containers), with a report of the probe and a GPU
//! open: the list, its page and `gputop tensors` show it.

use std::fs;

use fake_nvml::World;
use serde_json::Value;

use crate::allocator_stats::host_with_gpus;
use crate::cli::json;
use crate::host::Host;
use crate::probe::FakeProbe;
use crate::probe_page::{open_page, report};

/// Ways in which the driver does not list the processes of the first GPU.
const UNLISTED: [fn(&mut World); 2] = [
    |world| world.gpus[0].no_process_lists = true,
    // In a container, the driver may list none of the processes there.
    |world| world.gpus[0].processes.clear(),
];

/// WSL 2 has one device file for all GPUs, and no minor numbers.
#[test]
fn a_process_with_the_device_file_of_wsl_is_shown_by_its_probe() {
    let host = Host::new(["WSL"]);
    fs::write(host.path("nvidia-dxg"), "").expect("/tmp has room");
    let mut probe = FakeProbe::start_with(&host, &["nvidia-dxg"], &[], &[]);
    probe.publish(&report());
    let line = json(&host.run(["--json"]));
    assert_eq!(
        line["gpus"][0]["processes"][0]["pid"],
        probe.pid(),
        "{line}"
    );
    let tensors = host.run(["tensors", &probe.pid().to_string()]).text();
    assert!(
        tensors.contains("7 × (512, 512, 3, 3) float32"),
        "{tensors}"
    );
}

#[test]
fn a_process_that_the_driver_does_not_list_is_shown_by_its_probe() {
    for hide in UNLISTED {
        let mut host = host_with_gpus(2);
        let mut probe = FakeProbe::start(&mut host, &[], &[]);
        host.change(hide);
        let line = json(&host.run(["--json"]));
        let uuid = line["gpus"][0]["uuid"].as_str().expect("a UUID");
        let device = format!(r#""cuda_device": 0, "gpu_uuid": "{uuid}""#);
        let report = report().replacen(r#""cuda_device": 0"#, &device, 1);
        probe.publish(&report);
        let pid = probe.pid().to_string();
        let tensors = host.run(["tensors", &pid]).text();
        assert!(
            tensors.contains("7 × (512, 512, 3, 3) float32"),
            "{tensors}"
        );
        let leaks = host.run(["leaks"]).text();
        assert!(leaks.contains(&pid), "{leaks}");
        let line = json(&host.run(["--json"]));
        let processes = |gpu: usize| line["gpus"][gpu]["processes"].as_array().expect("a list");
        let [process] = processes(0).as_slice() else {
            panic!("{line}")
        };
        assert_eq!(process["pid"], probe.pid());
        // The driver does not tell its memory: it is not 0.
        assert_eq!(
            process.get("memory_used_bytes"),
            Some(&Value::Null),
            "{process}"
        );
        assert!(processes(1).is_empty(), "{line}");
        let list = host.run(["--once"]).text();
        assert!(list.lines().any(|line| line.contains(&pid)), "{list}");
        let mut terminal = open_page(&host, &probe);
        terminal.wait_for("Inside PyTorch 2.5.1");
        terminal.wait_for("▇ parameters         97.5 MiB");
        terminal.quit();
    }
}

#[test]
fn a_process_without_a_report_that_the_driver_does_not_list_stays_unlisted() {
    for hide in UNLISTED {
        let mut host = host_with_gpus(1);
        let _probe = FakeProbe::start(&mut host, &[], &[]);
        host.change(hide);
        let line = json(&host.run(["--json"]));
        assert_eq!(line["gpus"][0]["processes"], Value::Array(vec![]), "{line}");
    }
}
