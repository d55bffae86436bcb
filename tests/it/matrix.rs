//! Every function of the driver that gputop calls fails once and hangs once: on the first GPU, if
//! it has a GPU parameter. The screen must name the function, update the other GPU, and answer
//! keys.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::mpsc;
use std::thread;

use fake_nvml::Fault;

use crate::cli::json;
use crate::host::{GIB, Host};
use crate::print_note;
use crate::process::now;
use crate::terminal::{CTRL_R, ESC, TAB, Terminal, lines_in_frames};

/// The number of cases that run at the same time. Most of their time is waiting for a deadline of
/// gputop.
const PARALLEL_CASES: usize = 12;

/// Functions without which no GPU can be read.
const DRIVER_FUNCTIONS: &[&str] = &[
    "nvmlInit_v2",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
];

/// nvml-wrapper calls this function while it initialises.
const DRIVER_VERSION: &str = "nvmlSystemGetDriverVersion";

/// Functions whose failure is shown nowhere, with the reason.
const SILENT: &[(&str, &str)] = &[
    ("nvmlShutdown", "never called: it can hang"),
    ("nvmlErrorString", "gputop has its own texts"),
];

/// A function that fails or hangs.
#[derive(Debug, Clone)]
struct Case {
    function: String,
    hangs: bool,
}

impl Case {
    fn is_silent(&self) -> bool {
        // A function that hangs is always named.
        let silent: &[(&str, &str)] = if self.hangs { &SILENT[..1] } else { SILENT };
        silent
            .iter()
            .any(|(function, _)| *function == self.function)
    }

    /// A host with two GPUs and this fault.
    fn host(&self) -> Host {
        let mut host = Host::with_jitter(["H100", "H100"]);
        host.start_sleep(0, GIB);
        host.start_sleep(1, 2 * GIB);
        let fault = if self.hangs {
            Fault::hang(&self.function)
        } else {
            Fault::error(&self.function, "UNKNOWN")
        };
        let has_gpu = self.function.starts_with("nvmlDevice")
            && !DRIVER_FUNCTIONS.contains(&self.function.as_str());
        let fault = if has_gpu { fault.on(0) } else { fault };
        host.change(|world| world.faults.push(fault));
        host
    }

    /// Whether no GPU can be read.
    fn affects_all_gpus(&self) -> bool {
        DRIVER_FUNCTIONS.contains(&self.function.as_str())
            || self.hangs && self.function == DRIVER_VERSION
    }
}

/// The functions that gputop calls on the screen and for `--json`.
fn called_functions() -> BTreeSet<String> {
    let mut host = Host::with_jitter(["H100", "H100"]);
    host.start_sleep(0, GIB);
    let mut terminal = Terminal::start(&host, ["--interval", "100ms"]);
    terminal.wait_for("sleep 1000");
    // Ctrl-R also reads what is read rarely.
    terminal.keys(CTRL_R);
    terminal.wait_for_frames(5);
    terminal.quit();
    host.run(["--json"]);
    let called = host.call_counts().into_keys().collect::<BTreeSet<_>>();
    assert!(called.len() > 15, "{called:?}");
    called
}

/// Runs a check on every case, and reports all failures.
fn check_all<T: Send>(cases: Vec<T>, name: impl Fn(&T) -> String + Sync, check: impl Fn(T) + Sync) {
    let (cases, failed) = (Mutex::new(cases), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..PARALLEL_CASES {
            scope.spawn(|| {
                loop {
                    let Some(case) = cases.lock().expect("no check runs with the lock").pop()
                    else {
                        return;
                    };
                    let name = name(&case);
                    if let Err(panic) =
                        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(case)))
                    {
                        let message = panic.downcast_ref::<String>().cloned();
                        let message = message.or_else(|| {
                            panic.downcast_ref::<&str>().map(|text| (*text).to_owned())
                        });
                        let failure = format!("{name}: {}", message.unwrap_or_default());
                        failed
                            .lock()
                            .expect("no check runs with the lock")
                            .push(failure);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no check runs with the lock");
    assert!(
        failed.is_empty(),
        "{} cases failed\n{}\n",
        failed.len(),
        failed.join("\n\n")
    );
}

fn cases() -> Vec<Case> {
    let mut functions = called_functions();
    functions.insert("nvmlShutdown".to_owned());
    let both = |function: String| {
        [true, false].map(|hangs| Case {
            function: function.clone(),
            hangs,
        })
    };
    functions.into_iter().flat_map(both).collect()
}

fn name(case: &Case) -> String {
    format!(
        "{} {}",
        case.function,
        if case.hangs { "hangs" } else { "fails" }
    )
}

/// Waits until the line of a GPU changes.
fn wait_for_update(terminal: &Terminal, gpu: &str) {
    let line = |screen: &vt100::Screen| {
        lines_in_frames(&screen.contents())
            .find(|line| line.starts_with(gpu))
            .map(str::to_owned)
    };
    terminal.wait_until("the line of the GPU, with its power", |screen| {
        line(screen).is_some_and(|line| line.contains('W'))
    });
    let before = terminal.line_starting_with(gpu);
    terminal.wait_until("new readings of the GPU", |screen| {
        line(screen).is_some_and(|line| line != before)
    });
}

fn check_keys_work(terminal: &Terminal) {
    terminal.keys("?");
    terminal.wait_for("In the lists");
    terminal.keys(ESC);
    terminal.wait_until_gone("In the lists");
}

#[test]
fn on_the_screen_every_fault_is_named_other_gpus_update_and_q_quits() {
    let (send, quit_times) = mpsc::channel();
    check_all(cases(), name, |case| {
        let host = case.host();
        let mut terminal = Terminal::start_at(&host, 200, 50, ["--interval", "250ms"]);
        terminal.wait_for("gputop");
        check_keys_work(&terminal);
        if case.affects_all_gpus() {
            terminal.wait_for(&case.function);
        } else {
            wait_for_update(&terminal, " 1 H100");
        }
        if !case.is_silent() && case.hangs {
            terminal.wait_until("the function that hangs", |screen| {
                screen.contents().lines().any(|line| {
                    (line.contains("hung") || line.contains("has not answered"))
                        && line.contains(&*case.function)
                })
            });
            if !case.affects_all_gpus() {
                wait_for_update(&terminal, " 1 H100");
            }
        } else if !case.is_silent() && !case.affects_all_gpus() {
            // The list or the page of the GPU names the function.
            let is_named = |text: &str| text.contains(&case.function);
            if !is_named(&terminal.text()) {
                terminal.keys(&format!("{TAB}i"));
                terminal.wait_until("the function that failed", |screen| {
                    is_named(&screen.contents())
                });
                terminal.keys(ESC);
                terminal.wait_for("WHO");
                terminal.keys(TAB);
            }
        }
        check_keys_work(&terminal);
        send.send((terminal.quit(), name(&case)))
            .expect("the receiver is open");
    });
    drop(send);
    let slowest = quit_times.into_iter().max().expect("there are cases");
    print_note(format_args!(
        "the slowest q took {} ms, when {}",
        slowest.0.as_millis(),
        slowest.1
    ));
}

#[test]
fn in_reports_every_fault_is_partial_and_has_a_reason() {
    check_all(cases(), name, |case| {
        let host = case.host();
        let silent = case.is_silent();
        for args in [["--once", "--timeout", "5s"], ["--json", "--timeout", "5s"]] {
            let output = host.run(args);
            let text = format!("{}{}", output.text(), output.stderr);
            assert_eq!(output.code, if silent { 0 } else { 5 }, "{args:?}: {text}");
            if args[0] == "--json" {
                let line = json(&output);
                assert!(
                    case.affects_all_gpus() || line["gpus"][1]["load"]["power_watts"].is_number(),
                    "{line:#}"
                );
            } else if !silent {
                let has_reason = text.contains(&*case.function)
                    || text.contains("could not be read")
                    || text.contains("did not answer");
                assert!(
                    has_reason && (case.affects_all_gpus() || text.contains("H100")),
                    "{text}"
                );
            }
        }
    });
}

#[test]
fn every_persona_is_shown_without_errors() {
    let personas = [
        "H100", "A100", "A100-MIG", "RTX-4090", "GTX-970", "GH200", "GB10",
    ]
    .map(|persona| [persona; 2])
    .to_vec();
    check_all(
        personas,
        |personas| personas[0].to_owned(),
        |personas| {
            let mut host = Host::with_jitter(personas.iter().copied());
            let pid = host.start_sleep(0, GIB);
            let mut terminal = Terminal::start_at(&host, 160, 40, ["--interval", "100ms"]);
            let model = match personas[0] {
                "A100-MIG" => "A100",
                "RTX-4090" => "4090",
                "GTX-970" => "970",
                persona => persona,
            };
            terminal.wait_until("both GPUs", |screen| {
                screen
                    .contents()
                    .lines()
                    .filter(|line| line.contains(model))
                    .count()
                    >= 2
            });
            if personas[0] != "A100-MIG" {
                terminal.wait_for(&pid.to_string());
            }
            assert!(!terminal.text().contains("ERR"), "{}", terminal.text());
            check_keys_work(&terminal);
            terminal.quit();
            let output = host.run(["--json"]);
            assert_eq!(output.code, 0, "{}{}", output.stderr, output.text());
            assert_eq!(host.run(["--once"]).code, 0);
        },
    );
}

#[test]
fn a_gpu_that_hangs_later_keeps_its_readings_and_shows_their_age() {
    let mut host = Host::with_jitter(["H100", "H100"]);
    let mut terminal = Terminal::start_at(&host, 160, 40, ["--interval", "100ms"]);
    wait_for_update(&terminal, " 0 H100");
    host.change(|world| {
        world
            .faults
            .push(Fault::hang("nvmlDeviceGetTemperature").on(0));
    });
    terminal.wait_until("cause and age", |screen| {
        let text = screen.contents();
        let line = lines_in_frames(&text)
            .find(|line| line.starts_with(" 0 H100"))
            .unwrap_or_default();
        line.contains("hung")
            && line.contains("nvmlDeviceGetTemperature")
            && line.contains("old")
            && line.contains("/79.6G")
    });
    wait_for_update(&terminal, " 1 H100");
    // The driver answers again.
    host.change(|world| world.faults.clear());
    terminal.wait_for("GPU 0 answers again");
    terminal.wait_until_gone("nvmlDeviceGetTemperature");
    wait_for_update(&terminal, " 0 H100");
    terminal.quit();
}

#[test]
fn a_lost_gpu_that_returns_with_another_index_is_the_same() {
    let mut host = Host::with_jitter(["H100", "RTX-4090"]);
    let mut terminal = Terminal::start_at(&host, 160, 40, ["--interval", "100ms"]);
    wait_for_update(&terminal, " 0 H100");
    host.change(|world| world.gpus[0].falls_off_the_bus());
    terminal.wait_for("lost");
    wait_for_update(&terminal, " 1 GeForce");
    host.change(|world| {
        world.gpus[0].lost = false;
        world.gpus.swap(0, 1);
    });
    wait_for_update(&terminal, " 1 H100");
    wait_for_update(&terminal, " 0 GeForce");
    // The news below still say that it was lost.
    terminal.wait_until("both GPUs answer", |screen| {
        let text = screen.contents();
        [" 0 GeForce", " 1 H100"].iter().all(|gpu| {
            lines_in_frames(&text).any(|line| line.starts_with(gpu) && !line.contains("lost"))
        })
    });
    terminal.quit();
}

#[test]
fn a_driver_that_is_loaded_later_is_used() {
    let mut host = Host::with_jitter(["H100"]);
    host.change(|world| {
        world
            .faults
            .push(Fault::error("nvmlInit_v2", "DRIVER_NOT_LOADED"));
    });
    let started = now();
    let mut terminal = Terminal::start(&host, ["--interval", "100ms"]);
    terminal.wait_for("driver");
    terminal.wait_for("mem ");
    assert!(!terminal.text().contains("H100"));
    host.change(|world| world.faults.clear());
    terminal.wait_for("H100");
    print_note(format_args!(
        "used {} ms after the start",
        started.elapsed().as_millis()
    ));
    terminal.quit();
}
