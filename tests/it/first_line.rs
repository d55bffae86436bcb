//! The first line of an agent does not wait for all readings, and reports that are printed once do.

use fake_nvml::{Fault, GpuProcess};
use gputop::protocol::snapshot::{Gpu, Missing};
use serde_json::Value;

use crate::agent::{Agent, ReceivedLines};
use crate::host::{GIB, Host};

const GPUS: usize = 8;
const PROCESSES_PER_GPU: usize = 8;

/// A host on which each call into the driver takes a millisecond.
fn slow_host(gpus: usize, processes_per_gpu: usize) -> Host {
    let mut host = Host::new(vec!["H100"; gpus]);
    host.change(|world| {
        let mut pids = 4_000_000..;
        for gpu in &mut world.gpus {
            gpu.utilization.gpu = Some(0);
            gpu.processes = pids
                .by_ref()
                .take(processes_per_gpu)
                .map(|pid| GpuProcess::fictional(pid, GIB))
                .collect();
        }
        world.faults.push(Fault::slow("*", 1));
    });
    host
}

/// The names of readings that are missing because they were not read yet, wherever they are in this
/// value. Whether a PCIe link is quiet is not read from a GPU in use.
fn unread_readings(value: &Value) -> Vec<String> {
    match value {
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(name, value)| {
                if value == "not_yet" && name != "pcie_quiet" {
                    vec![name.clone()]
                } else {
                    unread_readings(value)
                }
            })
            .collect(),
        Value::Array(values) => values.iter().flat_map(unread_readings).collect(),
        _ => vec![],
    }
}

fn to_json(gpu: &Gpu) -> Value {
    serde_json::to_value(gpu).expect("a GPU serializes")
}

#[test]
fn the_first_line_has_names_memory_and_processes_and_the_rest_follows() {
    let mut host = slow_host(GPUS, PROCESSES_PER_GPU);
    // The agent writes only the newest snapshot. The rest takes so long that a busy machine writes
    // the first one before it.
    host.change(|world| {
        world
            .faults
            .insert(0, Fault::slow("nvmlDeviceGetTemperature", 400));
    });
    let agent = Agent::spawn(&mut host.gputop(["agent", "--interval", "1s"]));
    let mut received = ReceivedLines::default();
    received.read_until(&agent, "a line with GPUs", |snapshot| {
        !snapshot.gpus.is_empty()
    });
    let first = received.snapshot.clone().expect("a line was read");
    assert_eq!(first.gpus.len(), GPUS);
    for gpu in &first.gpus {
        assert!(
            gpu.facts.name.is_ok() && gpu.load.memory_used.is_ok() && gpu.load.memory_total.is_ok(),
            "{gpu:?}"
        );
        assert!(
            gpu.processes.iter().all(|process| process.memory.is_ok()),
            "{:?}",
            gpu.processes
        );
        assert_eq!(gpu.processes.len(), PROCESSES_PER_GPU);
        // Other readings are missing with the reason "not read yet": neither zero nor unsupported.
        assert!(gpu.is_partly_read());
        let rest = [
            gpu.load.sm.err(),
            gpu.load.temperature.err(),
            gpu.load.power.err(),
            gpu.health.power_limit.err(),
        ];
        assert_eq!(rest, [Some(Missing::NotYet); 4]);
        assert_eq!(gpu.load.throttle, Err(Missing::NotYet));
        assert!(
            gpu.processes
                .iter()
                .all(|process| process.sm == Err(Missing::NotYet)),
            "{:?}",
            gpu.processes
        );
    }
    while received
        .snapshot
        .as_ref()
        .is_some_and(|snapshot| snapshot.gpus.iter().all(Gpu::is_partly_read))
    {
        received.apply(agent.next_line());
    }
    for gpu in &received.snapshot.expect("a line was read").gpus {
        assert_eq!(
            unread_readings(&to_json(gpu)),
            Vec::<String>::new(),
            "the rest of all GPUs comes with one line"
        );
    }
}

/// At 1 ms per call, the calls before the first line take less than the 100 ms in which a screen
/// must show names, memory and processes. Calls are counted instead of time, because the time
/// depends on the load of the machine.
#[test]
fn the_first_line_needs_at_most_ten_driver_calls_per_gpu() {
    /// The calls that read names, memory and processes.
    const NEEDED: [&str; 10] = [
        "nvmlInit_v2",
        "nvmlSystemGetDriverVersion",
        "nvmlSystemGetCudaDriverVersion_v2",
        "nvmlDeviceGetCount_v2",
        "nvmlDeviceGetHandleByIndex_v2",
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetName",
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetMigMode",
    ];
    let mut host = slow_host(GPUS, PROCESSES_PER_GPU);
    // All other calls hang, so that the count stays at that of the first line.
    host.change(|world| {
        let needed = NEEDED.map(|function| Fault::slow(function, 0));
        world.faults = needed.into_iter().chain([Fault::hang("*")]).collect();
    });
    let agent = Agent::start(&host);
    let mut received = ReceivedLines::default();
    received.read_until(&agent, "a line with GPUs", |snapshot| {
        !snapshot.gpus.is_empty()
    });
    let calls: u64 = host.call_counts().values().sum();
    let gpus = &received.snapshot.expect("a line was read").gpus;
    assert!(
        gpus.iter()
            .all(|gpu| gpu.load.memory_used.is_ok() && gpu.processes.len() == PROCESSES_PER_GPU)
    );
    assert_eq!(gpus.len(), GPUS);
    assert!(
        calls <= 10 * GPUS as u64,
        "{calls} calls: {:?}",
        host.call_counts()
    );
}

#[test]
fn instances_are_in_the_first_line_too() {
    let mut host = Host::new(["A100-MIG"]);
    // The agent writes only the newest snapshot. The rest takes so long that a busy machine writes
    // the first one before it.
    host.change(|world| {
        world.faults = vec![
            Fault::slow("nvmlDeviceGetTemperature", 800),
            Fault::slow("*", 1),
        ];
    });
    let agent = Agent::start(&host);
    let mut received = ReceivedLines::default();
    received.read_until(&agent, "a line with GPUs", |snapshot| {
        !snapshot.gpus.is_empty()
    });
    let first = received.snapshot.clone().expect("a line was read");
    let instances: Vec<_> = first
        .gpus
        .iter()
        .filter(|gpu| gpu.facts.parent.is_some())
        .collect();
    assert!(!instances.is_empty(), "{first:?}");
    for gpu in instances {
        assert!(
            gpu.facts.name.is_ok() && gpu.load.memory_used.is_ok() && gpu.is_partly_read(),
            "{gpu:?}"
        );
        assert_eq!(
            gpu.load.power,
            Err(Missing::Unsupported),
            "only the parent reports power"
        );
    }
    received.read_until(&agent, "all of it", |snapshot| {
        !snapshot.gpus.iter().any(Gpu::is_partly_read)
    });
    let gpus = received.snapshot.expect("a line was read").gpus;
    for gpu in &gpus {
        assert_eq!(unread_readings(&to_json(gpu)), Vec::<String>::new());
        assert_eq!(
            gpu.facts.minor, gpus[0].facts.minor,
            "an instance has its parent's device file"
        );
    }
}

#[test]
fn reports_wait_for_all_readings() {
    // The long timeouts: parallel tests slow the second pass down.
    let host = slow_host(2, 0);
    let json = host.run(["--json", "--timeout", "20s"]);
    assert_eq!(json.code, 0, "{}", json.stderr);
    let json: Value = serde_json::from_slice(&json.stdout).expect("the output is JSON");
    let gpus = json["gpus"].as_array().expect("a list of GPUs");
    assert_eq!(gpus.len(), 2);
    for gpu in gpus {
        assert_eq!(unread_readings(gpu), Vec::<String>::new());
    }
    for report in ["--once", "--plain"] {
        let output = host.run([report, "--timeout", "20s"]);
        assert!(
            output.code == 0
                && !output.text().contains('…')
                && !output.text().contains("not read yet"),
            "{}",
            output.text()
        );
    }
    let fields = "--query-gpu=name,pci.bus_id,power.draw,temperature.gpu,utilization.gpu,enforced.power.limit,fan.speed";
    let output = host.run([fields, "--format=csv,noheader", "--timeout", "20s"]);
    assert!(
        output.code == 0 && !output.text().contains("Unknown Error"),
        "{}{}",
        output.text(),
        output.stderr
    );
    assert_eq!(output.text().lines().count(), 2);
    // A GPU is free only when its utilization is known.
    let output = host.run(["free", "-n", "2", "--timeout", "20s"]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    let output = host.run(["orphans", "--json", "--timeout", "20s"]);
    let orphans: Value = serde_json::from_slice(&output.stdout).expect("the output is JSON");
    // The exit code may tell of orphans of other tests.
    assert_eq!(orphans["is_complete"], true, "{}", output.stderr);
}
