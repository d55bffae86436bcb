//! Whatever the driver does wrong, and wherever: the person sees why, sees the rest, and can leave.
//!
//! Every function that gputop calls fails once and hangs once, on one GPU where it concerns one.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::mpsc;
use std::thread;

use fake_nvml::Fault;

use crate::cli::json;
use crate::host::{GIB, Host};
use crate::print_note;
use crate::process::now;
use crate::terminal::{ENTER, ESC, TAB, Terminal};

/// Cases at a time. Most of each is waiting for a deadline of gputop.
const AT_ONCE: usize = 12;

/// Functions that concern no GPU, so that their failure is the driver's.
const OF_THE_DRIVER: &[&str] = &["nvmlInit_v2", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2"];

/// nvml-wrapper asks for it as a part of the start.
const DRIVER_VERSION: &str = "nvmlSystemGetDriverVersion";

/// Functions whose failure costs gputop nothing: what they would tell is told nowhere at this moment.
const SILENT: &[(&str, &str)] =
    &[("nvmlShutdown", "it is never called: it can hang"), ("nvmlErrorString", "gputop has words of its own")];

/// One thing that goes wrong.
#[derive(Debug, Clone)]
struct Case {
    function: String,
    hangs: bool,
}

impl Case {
    fn is_silent(&self) -> bool {
        // Whoever does not answer is always told of.
        let silent: &[(&str, &str)] = if self.hangs { &SILENT[..1] } else { SILENT };
        silent.iter().any(|(function, _)| *function == self.function)
    }

    /// A host of two GPUs on whose first it goes wrong.
    fn host(&self) -> Host {
        let mut host = Host::with_jitter(["H100", "H100"]);
        host.start_sleep(0, GIB);
        host.start_sleep(1, 2 * GIB);
        let fault = if self.hangs { Fault::hang(&self.function) } else { Fault::error(&self.function, "UNKNOWN") };
        let concerns_one = self.function.starts_with("nvmlDevice") && !OF_THE_DRIVER.contains(&self.function.as_str());
        let fault = if concerns_one { fault.on(0) } else { fault };
        host.change(|world| world.faults.push(fault));
        host
    }

    /// Whether no GPU at all can be reached.
    fn takes_all(&self) -> bool {
        OF_THE_DRIVER.contains(&self.function.as_str()) || self.hangs && self.function == DRIVER_VERSION
    }
}

/// Every function that gputop calls in a life with all that it does.
fn functions() -> BTreeSet<String> {
    let mut host = Host::with_jitter(["H100", "H100"]);
    host.start_sleep(0, GIB);
    let mut terminal = Terminal::start(&host, ["--interval", "100ms"]);
    terminal.wait_for("sleep 1000");
    // Rare lanes are read when one asks.
    terminal.keys("R");
    terminal.wait_for_frames(5);
    terminal.quit();
    host.run(["--json"]);
    let called = host.call_counts().into_keys().collect::<BTreeSet<_>>();
    assert!(called.len() > 15, "{called:?}");
    called
}

/// Runs the check on every case, some at a time, and tells of all that failed.
fn for_each<T: Send>(cases: Vec<T>, name: impl Fn(&T) -> String + Sync, check: impl Fn(T) + Sync) {
    let (cases, failed) = (Mutex::new(cases), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some(case) = cases.lock().expect("nobody panics with it").pop() else { return };
                    let name = name(&case);
                    if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(case))) {
                        let word = panic.downcast_ref::<String>().cloned();
                        let word = word.or_else(|| panic.downcast_ref::<&str>().map(|it| (*it).to_owned()));
                        let failure = format!("{name}: {}", word.unwrap_or_default());
                        failed.lock().expect("nobody panics with it").push(failure);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("nobody panics with it");
    assert!(failed.is_empty(), "{} cases failed\n{}\n", failed.len(), failed.join("\n\n"));
}

fn cases() -> Vec<Case> {
    let mut functions = functions();
    functions.insert("nvmlShutdown".to_owned());
    let both = |function: String| [true, false].map(|hangs| Case { function: function.clone(), hangs });
    functions.into_iter().flat_map(both).collect()
}

fn name(case: &Case) -> String {
    format!("{} {}", case.function, if case.hangs { "hangs" } else { "fails" })
}

/// Whether the line of that GPU is on the screen and is another than before.
fn moves_on(terminal: &Terminal, gpu: &str) {
    let line = |screen: &vt100::Screen| screen.contents().lines().find(|it| it.starts_with(gpu)).map(str::to_owned);
    terminal.wait_until("the other GPU", |screen| line(screen).is_some_and(|it| it.contains('W')));
    let before = terminal.line_starting_with(gpu);
    terminal.wait_until("new figures of the other GPU", |screen| line(screen).is_some_and(|it| it != before));
}

fn keys_are_answered(terminal: &Terminal) {
    terminal.keys("?");
    terminal.wait_for("In the lists");
    terminal.keys(ESC);
    terminal.wait_until_gone("In the lists");
}

#[test]
fn on_the_screen_every_fault_is_named_other_gpus_update_and_q_quits() {
    let (slowest, measured) = mpsc::channel();
    for_each(cases(), name, |case| {
        let host = case.host();
        let mut terminal = Terminal::start_at(&host, 200, 50, ["--interval", "100ms"]);
        terminal.wait_for("gputop");
        keys_are_answered(&terminal);
        if case.takes_all() {
            terminal.wait_for(&case.function);
        } else {
            moves_on(&terminal, " 1 H100");
        }
        if !case.is_silent() && case.hangs {
            terminal.wait_until("who hangs", |screen| {
                screen.contents().lines().any(|line| {
                    (line.contains("hung") || line.contains("has not answered")) && line.contains(&*case.function)
                })
            });
            if !case.takes_all() {
                moves_on(&terminal, " 1 H100");
            }
        } else if !case.is_silent() && !case.takes_all() {
            // Here or on the GPU's own page.
            let is_said = |text: &str| text.contains(&case.function);
            if !is_said(&terminal.text()) {
                terminal.keys(&format!("{TAB}{ENTER}"));
                terminal.wait_until("what failed", |screen| is_said(&screen.contents()));
                terminal.keys(&format!("q{TAB}"));
                terminal.wait_for("HEALTH");
            }
        }
        keys_are_answered(&terminal);
        slowest.send((terminal.quit(), name(&case))).expect("it is heard");
    });
    drop(slowest);
    let slowest = measured.into_iter().max().expect("there were cases");
    print_note(format_args!("the slowest q took {} ms, as {}", slowest.0.as_millis(), slowest.1));
}

#[test]
fn in_reports_every_fault_is_partial_and_has_a_reason() {
    for_each(cases(), name, |case| {
        let host = case.host();
        let silent = case.is_silent();
        for args in [["--once", "--timeout", "3s"], ["--json", "--timeout", "3s"]] {
            let output = host.run(args);
            let said = format!("{}{}", output.text(), output.stderr);
            assert_eq!(output.code, if silent { 0 } else { 5 }, "{args:?}: {said}");
            if args[0] == "--json" {
                let line = json(&output);
                assert!(case.takes_all() || line["gpus"][1]["load"]["power_watts"].is_number(), "{line:#}");
            } else if !silent {
                let reason = said.contains(&*case.function)
                    || said.contains("could not be read")
                    || said.contains("did not answer");
                assert!(reason && (case.takes_all() || said.contains("H100")), "{said}");
            }
        }
    });
}

#[test]
fn every_persona_is_shown_without_errors() {
    let personas = ["H100", "A100", "A100-MIG", "RTX-4090", "GTX-970", "GH200", "GB10"].map(|it| vec![it, it]).to_vec();
    for_each(
        personas,
        |it| it[0].to_owned(),
        |personas| {
            let mut host = Host::with_jitter(personas.iter().copied());
            let pid = host.start_sleep(0, GIB);
            let mut terminal = Terminal::start_at(&host, 160, 40, ["--interval", "100ms"]);
            let word = personas[0].split('-').next().expect("there is one");
            let word = if word == "RTX" {
                "4090"
            } else if word == "GTX" {
                "970"
            } else {
                word
            };
            terminal.wait_until("both GPUs", |screen| {
                screen.contents().lines().filter(|line| line.contains(word)).count() >= 2
            });
            if personas[0] != "A100-MIG" {
                terminal.wait_for(&pid.to_string());
            }
            assert!(!terminal.text().contains("ERR"), "{}", terminal.text());
            keys_are_answered(&terminal);
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
    moves_on(&terminal, " 0 H100");
    host.change(|world| world.faults.push(Fault::hang("nvmlDeviceGetTemperature").on(0)));
    terminal.wait_until("cause and age", |screen| {
        let text = screen.contents();
        let line = text.lines().find(|line| line.starts_with(" 0 H100")).unwrap_or_default();
        line.contains("hung")
            && line.contains("nvmlDeviceGetTemperature")
            && line.contains("old")
            && line.contains("/79.6G")
    });
    moves_on(&terminal, " 1 H100");
    // The driver comes round.
    host.change(|world| world.faults.clear());
    terminal.wait_until_gone("hung");
    moves_on(&terminal, " 0 H100");
    terminal.quit();
}

#[test]
fn a_lost_gpu_that_returns_with_another_index_is_the_same() {
    let mut host = Host::with_jitter(["H100", "RTX-4090"]);
    let mut terminal = Terminal::start_at(&host, 160, 40, ["--interval", "100ms"]);
    moves_on(&terminal, " 0 H100");
    host.change(|world| world.gpus[0].falls_off_the_bus());
    terminal.wait_for("lost");
    moves_on(&terminal, " 1 GeForce");
    host.change(|world| {
        world.gpus[0].lost = false;
        world.gpus.swap(0, 1);
    });
    moves_on(&terminal, " 1 H100");
    moves_on(&terminal, " 0 GeForce");
    terminal.wait_until_gone("lost");
    terminal.quit();
}

#[test]
fn a_driver_that_is_loaded_later_is_used() {
    let mut host = Host::with_jitter(["H100"]);
    host.change(|world| world.faults.push(Fault::error("nvmlInit_v2", "DRIVER_NOT_LOADED")));
    let started = now();
    let mut terminal = Terminal::start(&host, ["--interval", "100ms"]);
    terminal.wait_for("driver");
    terminal.wait_for("mem ");
    assert!(!terminal.text().contains("H100"));
    host.change(|world| world.faults.clear());
    terminal.wait_for("H100");
    print_note(format_args!("taken up {} ms after the start", started.elapsed().as_millis()));
    terminal.quit();
}
