//! Behaviour of drivers that nvml.h does not document. The code that handles a behaviour names its
//! source.

use std::process::Command;

use fake_nvml::{Fault, GpuProcess, GpuSelector, Memory, Utilization, Xid};
use gputop::base::units::{Bytes, Percent};
use gputop::protocol::snapshot::{Cause, Gpu, Missing, Snapshot};

use crate::agent::{Agent, ReceivedLines};
use crate::cli::json;
use crate::host::{GIB, Host};
use crate::print_note;
use crate::process::run;

/// Starts an agent that reports the detail of each GPU in every pass.
fn start_agent_with_detail(host: &Host) -> Agent {
    Agent::spawn(&mut host.gputop(["agent", "--detail", "--interval", "100ms"]))
}

/// Reads lines until a condition holds for the first GPU.
#[track_caller]
fn read_until_gpu(agent: &Agent, description: &str, is_true: impl Fn(&Gpu) -> bool) {
    ReceivedLines::default().read_until(agent, description, |snapshot| {
        snapshot.gpus.first().is_some_and(&is_true)
    });
}

#[test]
fn a_lost_gpu_does_not_silence_the_errors_of_the_others() {
    let mut host = Host::new(["H100", "H100"]);
    let agent = Agent::start(&host);
    let mut received = ReceivedLines::default();
    let healthy_gpus = |snapshot: &Snapshot| {
        snapshot
            .gpus
            .iter()
            .filter(|gpu| gpu.trouble.is_none())
            .count()
    };
    received.read_until(&agent, "two GPUs", |snapshot| healthy_gpus(snapshot) == 2);
    // The GPU comes back, and is lost once more.
    for xid in [94, 95] {
        host.change(|world| world.gpus[0].falls_off_the_bus());
        received.read_until(&agent, "a lost GPU", |snapshot| healthy_gpus(snapshot) == 1);
        check_xid_is_received(&mut host, &agent, &mut received, xid);
        host.change(|world| world.gpus[0].lost = false);
        received.read_until(&agent, "two GPUs", |snapshot| healthy_gpus(snapshot) == 2);
    }
}

/// Makes the second GPU report an Xid until the agent receives one: NVML drops an Xid when no call
/// waits for it.
fn check_xid_is_received(host: &mut Host, agent: &Agent, received: &mut ReceivedLines, xid: u64) {
    for _ in 0..20 {
        host.change(|world| {
            world.xids.push(Xid {
                gpu: GpuSelector::Position(1),
                xid,
            });
        });
        for _ in 0..10 {
            received.apply(agent.next_line());
        }
        if received.snapshot.as_ref().is_some_and(|snapshot| {
            snapshot.gpus[1]
                .health
                .xids
                .iter()
                .any(|found| found.code == xid)
        }) {
            return;
        }
    }
    panic!(
        "no Xid {xid} of the other GPU was received: {:#?}",
        received.snapshot
    );
}

#[test]
fn in_a_container_pid_1_is_listed_and_unknown_values_are_not_zero() {
    let mut host = Host::new(["H100"]);
    host.add_process(0, GpuProcess::fictional(1, 0));
    host.add_process(
        0,
        GpuProcess {
            kinds: vec![],
            sm: Some(50),
            ..GpuProcess::fictional(4_000_001, GIB)
        },
    );
    let mut command = Command::new("unshare");
    let namespace = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    // The shell is PID 1, like a trainer in its container.
    let output = run(host
        .set_environment(&mut command)
        .args(namespace)
        .args(["sh", "-c", "\"$0\" --json; exit $?"])
        .arg(gputop()));
    if output.stdout.is_empty() {
        return print_note(format_args!(
            "skipped: cannot make a PID namespace: {}",
            output.stderr
        ));
    }
    let line = json(&output);
    let gpu_process = &line["gpus"][0]["processes"][0];
    assert_eq!(gpu_process["pid"], 1, "{line:#}");
    assert!(
        gpu_process["memory_used_bytes"].is_null()
            && gpu_process["sm_utilization_percent"].is_null(),
        "{gpu_process:#}"
    );
}

fn gputop() -> &'static str {
    env!("CARGO_BIN_EXE_gputop")
}

#[test]
fn utilization_samples_dated_from_the_boot_are_accepted() {
    let mut host = Host::new(["H100"]);
    host.add_process(
        0,
        GpuProcess {
            sm: Some(60),
            ..GpuProcess::fictional(4_000_001, GIB)
        },
    );
    host.change(|world| world.samples_since_boot = true);
    let agent = Agent::start(&host);
    let sm = |gpu: &Gpu| gpu.processes.first().map(|gpu_process| gpu_process.sm);
    read_until_gpu(&agent, "a busy process", |gpu| {
        assert_ne!(sm(gpu), Some(Ok(Percent::new(0.0))), "the process is busy");
        sm(gpu) == Some(Ok(Percent::new(60.0)))
    });
}

#[test]
fn a_new_mig_instance_in_the_slot_of_an_old_one_is_another_gpu() {
    let mut host = Host::new(["A100-MIG"]);
    let agent = Agent::start(&host);
    let mut received = ReceivedLines::default();
    received.read_until(&agent, "three instances", |snapshot| {
        snapshot.gpus.len() == 4
    });
    host.change(|world| {
        let instances = &mut world.gpus[0]
            .mig
            .as_mut()
            .expect("the GPU supports MIG")
            .instances;
        instances[1].uuid = "MIG-new".to_owned();
        instances[1].profile = "2g.10gb".to_owned();
        instances[1].memory.total = 7 * GIB;
        instances.truncate(2);
    });
    let is_new = |gpu: &Gpu| gpu.uuid.0.as_str() == "MIG-new";
    received.read_until(&agent, "another instance", |snapshot| {
        // The old instance never has the values of the new one.
        assert!(
            snapshot
                .gpus
                .iter()
                .all(|gpu| is_new(gpu) || gpu.load.memory_total != Ok(Bytes(7 * GIB)))
        );
        snapshot.gpus.iter().any(is_new) && snapshot.gpus.len() == 3
    });
    let gpus = received.snapshot.expect("lines were read").gpus;
    let name = gpus
        .iter()
        .find(|gpu| is_new(gpu))
        .and_then(|gpu| gpu.facts.name.clone().ok());
    assert_eq!(
        name.as_ref().map(gputop::base::text::Text::as_str),
        Some("MIG 2g.10gb")
    );
}

#[test]
fn readings_that_a_split_gpu_does_not_support_return_when_it_is_whole() {
    let mut host = Host::new(["H100"]);
    let agent = Agent::start(&host);
    let mut received = ReceivedLines::default();
    received.read_until(&agent, "the SM utilization", |snapshot| {
        snapshot.gpus.first().is_some_and(|gpu| gpu.load.sm.is_ok())
    });
    let mut other_utilization = Utilization::default();
    let mut split = |is_split| {
        host.change(|world| {
            let gpu = &mut world.gpus[0];
            std::mem::swap(&mut gpu.utilization, &mut other_utilization);
            gpu.mig.as_mut().expect("the GPU supports MIG").enabled = is_split;
        });
    };
    split(true);
    received.read_until(&agent, "a split GPU", |snapshot| {
        snapshot.gpus[0].health.mig == Ok(true) && snapshot.gpus[0].load.sm.is_err()
    });
    split(false);
    received.read_until(&agent, "a whole GPU", |snapshot| {
        snapshot.gpus[0].health.mig == Ok(false) && snapshot.gpus[0].load.sm.is_ok()
    });
}

#[test]
fn a_sleeping_nvlink_counts_as_up() {
    let mut host = Host::new(["H100"]);
    host.change(|world| {
        world.gpus[0]
            .nvlink
            .as_mut()
            .expect("an H100 has NVLink")
            .asleep = true;
    });
    let agent = start_agent_with_detail(&host);
    read_until_gpu(&agent, "the state of its links", |gpu| {
        gpu.detail.as_ref().is_some_and(|detail| {
            assert_eq!(detail.nvlinks_up, Ok(18));
            assert_eq!(
                detail.nvlink_speed,
                Err(Missing::Unsupported),
                "a sleeping link has no speed"
            );
            true
        })
    });
}

#[test]
fn memory_with_a_total_of_zero_is_unsupported() {
    for v2 in [true, false] {
        let mut host = Host::new(["GB10"]);
        host.change(|world| {
            world.gpus[0].no_memory_info = false;
            world.gpus[0].memory = Memory {
                total: 0,
                v2,
                ..Memory::default()
            };
        });
        let line = json(&host.run(["--json"]));
        let load = &line["gpus"][0]["load"];
        for key in [
            "memory_used_bytes",
            "memory_free_bytes",
            "memory_total_bytes",
        ] {
            assert_eq!(load["missing"][key], "unsupported", "{load:#}");
        }
    }
}

/// A driver may export a function that only answers that it is deprecated.
#[test]
fn a_function_that_answers_deprecated_is_not_called_in_each_pass() {
    const DEPRECATED_FUNCTION: &str = "nvmlDeviceGetCurrentClocksThrottleReasons";
    let mut host = Host::new(["H100"]);
    host.change(|world| {
        world
            .faults
            .push(Fault::error(DEPRECATED_FUNCTION, "DEPRECATED"));
    });
    let agent = start_agent_with_detail(&host);
    ReceivedLines::default().read_until(&agent, "five passes", |snapshot| {
        let is_read = |gpu: &Gpu| gpu.load.throttle == Ok(vec![]) && gpu.detail.is_some();
        snapshot.sequence >= 5 && snapshot.gpus.first().is_some_and(is_read)
    });
    // Two calls: the first pass finds out whether the GPU is split, and then all functions are
    // tried again.
    let calls = host.call_counts()[DEPRECATED_FUNCTION];
    assert!(calls <= 2, "{calls}");
}

#[test]
fn when_a_function_is_missing_its_successor_is_called() {
    let mut host = Host::new(["H100"]);
    let library = host.path("libnvidia-ml.so.1");
    let missing = [
        "nvmlDeviceGetTemperature",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
        "nvmlDeviceGetSupportedClocksThrottleReasons",
    ];
    fake_nvml::library_without(&missing, &library).expect("/tmp has room");
    host.library = library;
    let agent = start_agent_with_detail(&host);
    read_until_gpu(&agent, "a GPU", |gpu| {
        gpu.detail.as_ref().is_some_and(|detail| {
            assert_eq!(detail.clock_reasons_supported, Ok(0x1ff));
            assert!(
                gpu.load.temperature.is_ok() && gpu.load.throttle == Ok(vec![]),
                "{:?}",
                gpu.load
            );
            true
        })
    });
}

/// When a call hangs, another thread takes over the other GPUs, and opens them again.
#[test]
fn the_start_of_a_failure_is_kept_when_another_gpu_hangs() {
    let mut host = Host::new(["H100", "H100"]);
    host.change(|world| {
        world
            .faults
            .push(Fault::error("nvmlDeviceGetComputeRunningProcesses_v3", "UNKNOWN").on(0));
    });
    let agent = Agent::start(&host);
    let mut received = ReceivedLines::default();
    let trouble = |snapshot: &Snapshot, gpu: usize| {
        snapshot.gpus.get(gpu).and_then(|gpu| gpu.trouble.clone())
    };
    let failed = |snapshot: &Snapshot| {
        trouble(snapshot, 0).is_some_and(|trouble| trouble.cause == Cause::Failed)
    };
    received.read_until(&agent, "a failure", failed);
    let since = received
        .snapshot
        .as_ref()
        .and_then(|snapshot| trouble(snapshot, 0))
        .map(|trouble| trouble.since);
    host.change(|world| {
        world
            .faults
            .push(Fault::hang("nvmlDeviceGetUtilizationRates").on(1));
    });
    received.read_until(&agent, "a hung GPU", |snapshot| {
        trouble(snapshot, 1).is_some_and(|trouble| trouble.cause == Cause::Hung)
    });
    let last_read = received
        .snapshot
        .as_ref()
        .map(|snapshot| snapshot.gpus[1].load.at);
    received.read_until(&agent, "another reading of the first GPU", |snapshot| {
        failed(snapshot) && last_read.is_some_and(|at| snapshot.gpus[0].load.at > at)
    });
    assert_eq!(
        received
            .snapshot
            .as_ref()
            .and_then(|snapshot| trouble(snapshot, 0))
            .map(|trouble| trouble.since),
        since
    );
}

/// The first pass ends at the GPU that hangs; the next pass continues with the others.
#[test]
fn a_gpu_that_hangs_from_the_start_hides_no_other_gpu_in_reports() {
    let mut host = Host::idle(["H100", "H100", "H100"]);
    host.change(|world| world.faults.push(Fault::hang("nvmlDeviceGetUUID").on(2)));
    let table = host.run(["--once"]);
    let has_row = |index: usize| {
        table
            .text()
            .lines()
            .any(|line| line.starts_with(&format!("{index} ")))
    };
    assert!((0..3).all(has_row), "{}", table.text());
    let listed = json(&host.run(["--json"]))["gpus"].as_array().map(Vec::len);
    assert_eq!(listed, Some(3));
    let rows = host
        .run(["--query-gpu=index", "--format=csv,noheader"])
        .text();
    assert_eq!(rows.lines().count(), 3, "{rows}");
    let free = host.run(["free", "-n", "2"]);
    assert!(
        free.text().contains("GPU-00000000") && free.text().contains("GPU-00000001"),
        "{} {}",
        free.text(),
        free.stderr
    );
}
