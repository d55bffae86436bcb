//! The page of a GPU: its readings, the calls that it causes, and what it shows of a damaged GPU.

use fake_nvml::Fault;

use crate::host::{GIB, Host};
use crate::process::wait_until;
use crate::terminal::{ESC, TAB, Terminal};

/// Starts gputop and opens the page of the first GPU.
fn open_page(host: &Host, width: u16, height: u16) -> Terminal {
    let terminal = Terminal::start_at(host, width, height, ["--interval", "100ms"]);
    terminal.wait_for("WHO");
    terminal.wait_for("80G");
    terminal.keys(&format!("{TAB}i"));
    terminal
}

#[test]
fn the_page_shows_every_reading_of_a_gpu() {
    let mut host = Host::with_jitter(["H100", "H100"]);
    host.start_sleep(0, GIB);
    host.change(|world| {
        world.gpus[0]
            .nvlink
            .as_mut()
            .expect("an H100 has NVLink")
            .rate = 4 << 20;
    });
    let mut terminal = open_page(&host, 120, 120);
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
    // A rate needs a second reading, which follows by itself.
    terminal.wait_until("the rate of NVLink", |screen| {
        screen
            .contents()
            .lines()
            .any(|line| line.contains("NVLink receives") && line.contains("/s"))
    });
    terminal.wait_until("the missing fan", |screen| {
        let text = screen.contents();
        text.split("Not reported by")
            .nth(1)
            .is_some_and(|list| list.contains("fan"))
    });
    terminal.keys(ESC);
    terminal.wait_for("COMMAND");
    terminal.quit();
}

/// The figures beside `nvidia-smi -q` on a real H100: "Display Attached: Yes", although its board
/// has no connector; confidential computing of 0 MiB; and little energy soon after a start.
#[test]
fn the_page_of_a_real_h100_says_what_its_figures_mean() {
    let host = Host::new(["H100-580"]);
    let mut terminal = Terminal::start_at(&host, 120, 120, ["--interval", "100ms"]);
    terminal.wait_for("80G");
    terminal.keys(&format!("{TAB}i"));
    for words in [
        "display          attached, not in use",
        "confidential     off",
        "energy           1.6 Wh since the driver was loaded",
        "driver's reserve 480 MiB",
        "margin           37 degrees",
        "slows down at    89°C",
        "power limit      700W",
        "serial           1650000000001",
    ] {
        terminal.wait_for(words);
    }
    terminal.quit();
}

#[test]
fn the_page_shows_affinity_fans_and_links() {
    let mut host = Host::new(["RTX-4090", "GH200", "H100"]);
    host.change(|world| {
        world.gpus[0].fans = vec![38, 41];
        world.gpus[0].numa = Some(1);
    });
    let mut terminal = open_page(&host, 120, 120);
    terminal.wait_for("fans             38%, 41%");
    terminal.wait_for("near CPUs        24-47");
    terminal.wait_for("near NUMA node   1");
    let open_next_page = |terminal: &mut Terminal| {
        terminal.keys(ESC);
        terminal.wait_for("COMMAND");
        terminal.keys("ji");
    };
    open_next_page(&mut terminal);
    terminal.wait_for("is NUMA node     1: its memory is also the host's");
    terminal.wait_for("whole module     731W of 1000W");
    open_next_page(&mut terminal);
    terminal.wait_for("NVLink fabric    completed, clique 0");
    terminal.keys(ESC);
    terminal.wait_for("COMMAND");
    terminal.quit();
}

#[test]
fn slow_readings_are_read_only_while_the_page_is_open() {
    let host = Host::with_jitter(["H100"]);
    let mut terminal = open_page(&host, 100, 30);
    let calls = || {
        let counts = host.call_counts();
        [
            "nvmlDeviceGetPcieThroughput",
            "nvmlGpmSampleGet",
            "nvmlDeviceGetBAR1MemoryInfo",
        ]
        .map(|function| counts.get(function).copied().unwrap_or(0))
    };
    terminal.wait_for("Work");
    terminal.wait_until("a slow reading", |_| calls()[0] > 0);
    terminal.keys(ESC);
    terminal.wait_for("COMMAND");
    // The agent learns a moment later that the page is closed, and may be in the middle of a pass.
    let mut before = calls();
    wait_until("a pass without slow readings", || {
        terminal.wait_for_frames(5);
        let previous = std::mem::replace(&mut before, calls());
        previous == before
    });
    // Slow readings are read every second, so three seconds are enough.
    terminal.wait_for_frames(30);
    assert_eq!(calls(), before);
    terminal.quit();
}

/// At the default interval of a second, and with the rare calls, that stays below 10 calls per
/// second and GPU.
#[test]
fn a_pass_makes_eight_calls_per_gpu_and_others_are_rare() {
    const PASSES: u64 = 30;
    let mut host = Host::with_jitter(["H100"]);
    host.start_sleep(0, GIB);
    let mut terminal = Terminal::start_at(&host, 100, 30, ["--interval", "100ms"]);
    terminal.wait_for("80G");
    // The second rare reading follows soon after the first, so that the GPUs are read in different
    // seconds.
    terminal.wait_until("both rare readings after the start", |_| {
        host.call_counts().get("nvmlDeviceGetPerformanceState") == Some(&2)
    });
    let before = host.call_counts();
    terminal.wait_until("enough passes", |_| {
        host.call_counts()["nvmlDeviceGetPowerUsage"] - before["nvmlDeviceGetPowerUsage"] >= PASSES
    });
    let after = host.call_counts();
    let calls = |name: &String| after[name] - before.get(name).copied().unwrap_or(0);
    let (frequent, rare): (Vec<&String>, Vec<&String>) =
        after.keys().partition(|name| calls(name) >= PASSES / 2);
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
    assert_eq!(frequent, expected);
    let rare: Vec<_> = rare
        .into_iter()
        .filter(|name| name.starts_with("nvmlDevice") && calls(name) > 0)
        .collect();
    assert!(
        rare.iter().all(|name| calls(name) <= 2) && rare.len() <= 12,
        "{rare:?}"
    );
    terminal.quit();
}

#[test]
fn a_failed_call_of_the_page_is_shown_there_and_forgotten_with_it() {
    let mut host = Host::with_jitter(["H100"]);
    host.change(|world| {
        world
            .faults
            .push(Fault::error("nvmlDeviceGetBAR1MemoryInfo", "UNKNOWN"));
    });
    let mut terminal = open_page(&host, 100, 30);
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
        world.gpus[0]
            .remapped_rows
            .as_mut()
            .expect("an A100 has remapped rows")
            .pending = true;
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
