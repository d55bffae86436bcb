//! What drivers do that nvml.h does not say, or says in passing. Each was seen by others, who are named where gputop
//! minds it.

use std::process::Command;

use fake_nvml::{Fault, Memory, Tenant, Utilization, Which, Xid};
use gputop::base::units::{Bytes, Percent};
use gputop::protocol::snapshot::{Cause, Gpu, Missing, Snapshot};

use crate::agent::{Agent, ReceivedLines};
use crate::cli::json;
use crate::host::{GIB, Host};
use crate::print_note;
use crate::process::run;

/// An agent that says all there is to know of each GPU.
fn in_detail(host: &Host) -> Agent {
    Agent::spawn(&mut host.gputop(["agent", "--detail", "--interval", "100ms"]))
}

/// Reads on until the only GPU, or the first, is so.
#[track_caller]
fn until(agent: &Agent, what: &str, is_so: impl Fn(&Gpu) -> bool) {
    ReceivedLines::default().read_until(agent, what, |it| it.gpus.first().is_some_and(&is_so));
}

#[test]
fn a_lost_gpu_does_not_silence_the_errors_of_the_others() {
    let mut host = Host::new(["H100", "H100"]);
    let agent = Agent::start(&host);
    let mut received = ReceivedLines::default();
    let well = |it: &Snapshot| it.gpus.iter().filter(|gpu| gpu.trouble.is_none()).count();
    received.read_until(&agent, "two GPUs", |it| well(it) == 2);
    // It comes back, and is lost once more.
    for xid in [94, 95] {
        host.change(|world| world.gpus[0].falls_off_the_bus());
        received.read_until(&agent, "a lost GPU", |it| well(it) == 1);
        hear(&mut host, &agent, &mut received, xid);
        host.change(|world| world.gpus[0].lost = false);
        received.read_until(&agent, "two GPUs", |it| well(it) == 2);
    }
}

/// Has the second GPU err until that is heard of: an error that comes before anyone waits again is not told of.
fn hear(host: &mut Host, agent: &Agent, received: &mut ReceivedLines, xid: u64) {
    for _ in 0..20 {
        host.change(|world| world.xids.push(Xid { gpu: Which::Place(1), xid }));
        for _ in 0..10 {
            received.apply(agent.next_line());
        }
        if received.snapshot.as_ref().is_some_and(|it| it.gpus[1].health.xids.iter().any(|it| it.code == xid)) {
            return;
        }
    }
    panic!("no error {xid} of the other GPU was heard of: {:#?}", received.snapshot);
}

#[test]
fn in_a_container_pid_one_is_listed_and_what_its_driver_cannot_say_is_not_zero() {
    let mut host = Host::new(["H100"]);
    host.add_process(0, Tenant::fictional(1, 0));
    host.add_process(0, Tenant { kinds: vec![], sm: Some(50), ..Tenant::fictional(4_000_001, GIB) });
    let mut command = Command::new("unshare");
    let namespace = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    // The shell is PID 1, as a trainer is in its container.
    let output = run(host
        .set_environment(&mut command)
        .args(namespace)
        .args(["sh", "-c", "\"$0\" --json; exit $?"])
        .arg(gputop()));
    if output.stdout.is_empty() {
        return print_note(format_args!("skipped: no PID namespace may be made here: {}", output.stderr));
    }
    let line = json(&output);
    let tenant = &line["gpus"][0]["processes"][0];
    assert_eq!(tenant["pid"], 1, "{line:#}");
    assert!(tenant["memory_used_bytes"].is_null() && tenant["sm_utilization_percent"].is_null(), "{tenant:#}");
}

fn gputop() -> &'static str {
    env!("CARGO_BIN_EXE_gputop")
}

#[test]
fn samples_that_are_dated_from_the_boot_count_like_others() {
    let mut host = Host::new(["H100"]);
    host.add_process(0, Tenant { sm: Some(60), ..Tenant::fictional(4_000_001, GIB) });
    host.change(|world| world.samples_since_boot = true);
    let agent = Agent::start(&host);
    let share = |gpu: &Gpu| gpu.processes.first().map(|it| it.sm);
    until(&agent, "a busy process", |gpu| {
        assert_ne!(share(gpu), Some(Ok(Percent::new(0.0))), "it is busy");
        share(gpu) == Some(Ok(Percent::new(60.0)))
    });
}

#[test]
fn an_instance_in_the_place_of_another_is_not_that_one() {
    let mut host = Host::new(["A100-MIG"]);
    let agent = Agent::start(&host);
    let mut received = ReceivedLines::default();
    received.read_until(&agent, "three instances", |it| it.gpus.len() == 4);
    host.change(|world| {
        let parts = &mut world.gpus[0].mig.as_mut().expect("it is split").parts;
        parts[1].uuid = "MIG-anew".to_owned();
        parts[1].profile = "2g.10gb".to_owned();
        parts[1].memory.total = 7 * GIB;
        parts.truncate(2);
    });
    let is_anew = |it: &Gpu| it.uuid.0.as_str() == "MIG-anew";
    received.read_until(&agent, "another instance", |it| {
        // Not for a moment does the old one have what is the new one's.
        assert!(it.gpus.iter().all(|gpu| is_anew(gpu) || gpu.load.memory_total != Ok(Bytes(7 * GIB))));
        it.gpus.iter().any(is_anew) && it.gpus.len() == 3
    });
    let gpus = received.snapshot.map(|it| it.gpus).unwrap_or_default();
    let name = gpus.iter().find(|it| is_anew(it)).and_then(|it| it.facts.name.clone().ok());
    assert_eq!(name.as_ref().map(gputop::base::text::Text::as_str), Some("MIG 2g.10gb"));
}

#[test]
fn what_a_split_gpu_does_not_say_is_asked_again_when_it_is_whole() {
    let mut host = Host::new(["H100"]);
    let agent = Agent::start(&host);
    let mut received = ReceivedLines::default();
    received.read_until(&agent, "how busy it is", |it| it.gpus.first().is_some_and(|gpu| gpu.load.sm.is_ok()));
    let mut busy = Utilization::default();
    let mut split = |is_split| {
        host.change(|world| {
            let gpu = &mut world.gpus[0];
            std::mem::swap(&mut gpu.utilization, &mut busy);
            gpu.mig.as_mut().expect("it can be").enabled = is_split;
        });
    };
    split(true);
    received.read_until(&agent, "a split GPU", |it| it.gpus[0].health.mig == Ok(true) && it.gpus[0].load.sm.is_err());
    split(false);
    received.read_until(&agent, "a whole GPU", |it| it.gpus[0].health.mig == Ok(false) && it.gpus[0].load.sm.is_ok());
}

#[test]
fn a_link_that_sleeps_is_up() {
    let mut host = Host::new(["H100"]);
    host.change(|world| world.gpus[0].nvlink.as_mut().expect("it has links").asleep = true);
    let agent = in_detail(&host);
    until(&agent, "its links", |gpu| {
        gpu.detail.as_ref().is_some_and(|it| {
            assert_eq!(it.nvlinks_up, Ok(18));
            assert_eq!(it.nvlink_speed, Err(Missing::Unsupported), "a link that sleeps has none");
            true
        })
    });
}

#[test]
fn memory_of_which_there_is_none_is_not_told_of() {
    for v2 in [true, false] {
        let mut host = Host::new(["GB10"]);
        host.change(|world| {
            world.gpus[0].no_memory_info = false;
            world.gpus[0].memory = Memory { total: 0, v2, ..Memory::default() };
        });
        let line = json(&host.run(["--json"]));
        let load = &line["gpus"][0]["load"];
        for key in ["memory_used_bytes", "memory_free_bytes", "memory_total_bytes"] {
            assert_eq!(load["missing"][key], "unsupported", "{load:#}");
        }
    }
}

/// A driver may keep a function for its name only, and call it deprecated at each call.
#[test]
fn a_function_that_is_called_deprecated_is_not_asked_each_second() {
    const OLD: &str = "nvmlDeviceGetCurrentClocksThrottleReasons";
    let mut host = Host::new(["H100"]);
    host.change(|world| world.faults.push(Fault::error(OLD, "DEPRECATED")));
    let agent = in_detail(&host);
    ReceivedLines::default().read_until(&agent, "five passes", |it| {
        let is_read = |gpu: &Gpu| gpu.load.throttle == Ok(vec![]) && gpu.detail.is_some();
        it.sequence >= 5 && it.gpus.first().is_some_and(is_read)
    });
    // The first pass finds out whether the GPU is split, after which all is asked anew.
    assert!(host.call_counts()[OLD] <= 2, "{}", host.call_counts()[OLD]);
}

#[test]
fn functions_that_nvml_means_to_drop_have_their_successors() {
    let mut host = Host::new(["H100"]);
    let library = host.path("libnvidia-ml.so.1");
    let gone = [
        "nvmlDeviceGetTemperature",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
        "nvmlDeviceGetSupportedClocksThrottleReasons",
    ];
    fake_nvml::library_without(&gone, &library).expect("there is room in /tmp");
    host.library = library;
    let agent = in_detail(&host);
    until(&agent, "a GPU", |gpu| {
        gpu.detail.as_ref().is_some_and(|it| {
            assert_eq!(it.clock_reasons_supported, Ok(0x1ff));
            assert!(gpu.load.temperature.is_ok() && gpu.load.throttle == Ok(vec![]), "{:?}", gpu.load);
            true
        })
    });
}

/// When a call hangs, another thread goes on with the other GPUs, and opens them anew.
#[test]
fn what_is_wrong_with_a_gpu_began_when_it_began_though_another_hangs() {
    let mut host = Host::new(["H100", "H100"]);
    let of = |gpu, fault| Fault { gpu: Some(Which::Place(gpu)), ..fault };
    host.change(|world| world.faults.push(of(0, Fault::error("nvmlDeviceGetComputeRunningProcesses_v3", "UNKNOWN"))));
    let agent = Agent::spawn(&mut host.gputop(["agent", "--interval", "100ms"]));
    let mut received = ReceivedLines::default();
    let trouble = |it: &Snapshot, gpu: usize| it.gpus.get(gpu).and_then(|it| it.trouble.clone());
    let failed = |it: &Snapshot| trouble(it, 0).is_some_and(|it| it.cause == Cause::Failed);
    received.read_until(&agent, "a failure", failed);
    let since = received.snapshot.as_ref().and_then(|it| trouble(it, 0)).map(|it| it.since);
    host.change(|world| world.faults.push(of(1, Fault::hang("nvmlDeviceGetUtilizationRates"))));
    received.read_until(&agent, "a hung GPU", |it| trouble(it, 1).is_some_and(|it| it.cause == Cause::Hung));
    let hung = received.snapshot.as_ref().map(|it| it.gpus[1].load.at);
    received.read_until(&agent, "the first read on", |it| failed(it) && hung.is_some_and(|at| it.gpus[0].load.at > at));
    assert_eq!(received.snapshot.as_ref().and_then(|it| trouble(it, 0)).map(|it| it.since), since);
}

/// The first pass ends with the GPU that hangs; those before it come with the next.
#[test]
fn a_gpu_that_hangs_from_the_start_hides_no_other_in_what_is_printed_once() {
    let mut host = Host::new(["H100", "H100", "H100"]);
    host.change(|world| world.faults.push(Fault::hang("nvmlDeviceGetUUID").on(2)));
    let table = host.run(["--once"]);
    assert!((0..3).all(|it| table.text().lines().any(|line| line.starts_with(&format!("{it} ")))), "{}", table.text());
    let listed = json(&host.run(["--json"]))["gpus"].as_array().map(Vec::len);
    assert_eq!(listed, Some(3));
    let rows = host.run(["--query-gpu=index", "--format=csv,noheader"]).text();
    assert_eq!(rows.lines().count(), 3, "{rows}");
    let free = host.run(["free", "-n", "2"]);
    assert!(
        free.text().contains("GPU-00000000") && free.text().contains("GPU-00000001"),
        "{} {}",
        free.text(),
        free.stderr
    );
}
