//! A GPU in detail: what its page says, what looking costs, and what it says of a GPU that is not well.

use fake_nvml::Fault;

use crate::host::{GIB, Host};
use crate::process::wait_until;
use crate::terminal::{ENTER, ESC, TAB, Terminal};

/// The lists, with the page of the first GPU over them.
fn page(host: &Host, width: u16, height: u16) -> Terminal {
    let terminal = Terminal::start_at(host, width, height, ["--interval", "100ms"]);
    terminal.wait_for("HEALTH");
    terminal.wait_for("80G");
    terminal.keys(&format!("{TAB}{ENTER}"));
    terminal
}

#[test]
fn the_page_shows_every_reading_of_a_gpu() {
    let mut host = Host::with_jitter(["H100", "H100"]);
    host.start_sleep(0, GIB);
    host.change(|world| world.gpus[0].nvlink.as_mut().expect("an H100 has it").rate = 4 << 20);
    let mut terminal = page(&host, 120, 120);
    for words in [
        "tensor cores",
        "SM active",
        "PCIe generation  5 of at most 5",
        "PCIe lanes       16 of at most 16",
        "MiB/s",
        "NVLink           18 up of 18",
        "to GPU 1         SYS: through the link between processors",
        "BAR1 in use      4.0 MiB of 128 GiB",
        " of at most 1980 MHz",
        "compute mode     default",
        "persistence      on",
        "to be done       nothing",
        "kWh since the driver was loaded",
    ] {
        terminal.wait_for(words);
    }
    // Rates need a second look, which comes by itself.
    terminal.wait_until("the rate of NVLink", |screen| {
        screen.contents().lines().any(|line| line.contains("NVLink receives") && line.contains("/s"))
    });
    terminal.wait_until("what a server's board lacks", |screen| {
        let text = screen.contents();
        text.split("Not reported by").nth(1).is_some_and(|it| it.contains("fan"))
    });
    terminal.keys(ESC);
    terminal.wait_for("COMMAND");
    terminal.quit();
}

#[test]
fn the_page_shows_affinity_fans_and_links() {
    let mut host = Host::new(["RTX-4090", "GH200", "H100"]);
    host.change(|world| {
        world.gpus[0].fans = vec![38, 41];
        world.gpus[0].numa = Some(1);
    });
    let mut terminal = page(&host, 120, 120);
    terminal.wait_for("fans             38%, 41%");
    terminal.wait_for("near CPUs        24-47");
    terminal.wait_for("near NUMA node   1");
    let next = |terminal: &mut Terminal| {
        terminal.keys(ESC);
        terminal.wait_for("COMMAND");
        terminal.keys(&format!("j{ENTER}"));
    };
    next(&mut terminal);
    terminal.wait_for("is NUMA node     1: its memory is also the host's");
    terminal.wait_for("whole module     731W of 1000W");
    next(&mut terminal);
    terminal.wait_for("NVLink fabric    completed, clique 0");
    terminal.keys(ESC);
    terminal.wait_for("COMMAND");
    terminal.quit();
}

#[test]
fn slow_readings_are_read_only_while_the_page_is_open() {
    let host = Host::with_jitter(["H100"]);
    let mut terminal = page(&host, 100, 30);
    let calls = || {
        let counts = host.call_counts();
        ["nvmlDeviceGetPcieThroughput", "nvmlGpmSampleGet", "nvmlDeviceGetBAR1MemoryInfo"]
            .map(|it| counts.get(it).copied().unwrap_or(0))
    };
    terminal.wait_for("Work");
    terminal.wait_until("a look", |_| calls()[0] > 0);
    terminal.keys(ESC);
    terminal.wait_for("COMMAND");
    // The agent hears of it a moment later, and may be in the middle of a look.
    let mut before = calls();
    wait_until("an end to that", || {
        terminal.wait_for_frames(5);
        let last = std::mem::replace(&mut before, calls());
        last == before
    });
    // Three seconds of the clock at which it was read.
    terminal.wait_for_frames(30);
    assert_eq!(calls(), before);
    terminal.quit();
}

/// At the default interval of a second, with what is read more rarely, that stays under 10 calls a second and GPU.
#[test]
fn a_pass_makes_eight_calls_per_gpu_and_others_are_rare() {
    const PASSES: u64 = 30;
    let mut host = Host::with_jitter(["H100"]);
    host.start_sleep(0, GIB);
    let mut terminal = Terminal::start_at(&host, 100, 30, ["--interval", "100ms"]);
    terminal.wait_for("80G");
    // The second slow reading comes soon after the first, so that each GPU finds its own second.
    terminal.wait_until("both slow readings of the start", |_| {
        host.call_counts().get("nvmlDeviceGetPerformanceState") == Some(&2)
    });
    let before = host.call_counts();
    terminal.wait_until("so many passes", |_| {
        host.call_counts()["nvmlDeviceGetPowerUsage"] - before["nvmlDeviceGetPowerUsage"] >= PASSES
    });
    let after = host.call_counts();
    let grown = |name: &String| after[name] - before.get(name).copied().unwrap_or(0);
    let (each, rare): (Vec<&String>, Vec<&String>) = after.keys().partition(|name| grown(name) >= PASSES / 2);
    let expected = [
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetProcessUtilization",
        "nvmlDeviceGetTemperature",
        "nvmlDeviceGetUtilizationRates",
    ];
    assert_eq!(each, expected);
    let of_a_gpu: Vec<_> = rare.into_iter().filter(|it| it.starts_with("nvmlDevice") && grown(it) > 0).collect();
    assert!(of_a_gpu.iter().all(|it| grown(it) <= 2) && of_a_gpu.len() <= 12, "{of_a_gpu:?}");
    terminal.quit();
}

#[test]
fn a_failed_call_of_the_page_is_shown_there_and_forgotten_with_it() {
    let mut host = Host::with_jitter(["H100"]);
    host.change(|world| world.faults.push(Fault::error("nvmlDeviceGetBAR1MemoryInfo", "UNKNOWN")));
    let mut terminal = page(&host, 100, 30);
    terminal.wait_for("calls that fail");
    terminal.wait_for("nvmlDeviceGetBAR1MemoryInfo");
    terminal.keys(ESC);
    terminal.wait_for("COMMAND");
    terminal.wait_until_gone("ERR");
    terminal.quit();
}

#[test]
fn damaged_memory_is_reported_with_what_to_do() {
    let mut host = Host::with_jitter(["A100", "H100", "GTX-970"]);
    host.change(|world| {
        world.gpus[0].remapped_rows.as_mut().expect("an A100 has them").pending = true;
        world.gpus[1].recovery_action = Some(1);
    });
    let mut terminal = Terminal::start_at(&host, 200, 40, ["--interval", "100ms"]);
    terminal.wait_for("row remap pending: reset when idle");
    terminal.wait_for("reset it when idle");
    terminal.resize(80, 24);
    terminal.wait_for("row remap");
    terminal.wait_for("needs reset");
    terminal.wait_until_gone("pending");
    terminal.quit();
}
