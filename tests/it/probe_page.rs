//! Reports of the probe on the screen: on the page of a process and in its graph.

use crate::allocator_stats::host_with_gpus;
use crate::host::Host;
use crate::probe::FakeProbe;
use crate::terminal::{ESC, Terminal};

/// A report of a training program that keeps its outputs.
pub(crate) fn report() -> String {
    include_str!("../data/probe-report.json").lines().map(str::trim).collect()
}

/// Starts gputop and opens the page of the only process.
fn open_page(host: &Host, probe: &FakeProbe) -> Terminal {
    let terminal = Terminal::start_at(host, 120, 90, ["--interval", "100ms"]);
    terminal.wait_for(&probe.pid().to_string());
    terminal.keys("i");
    terminal.wait_for("identity");
    terminal
}

#[test]
fn the_page_shows_categories_steps_leaks_and_tensors() {
    let mut host = host_with_gpus(1);
    let mut probe = FakeProbe::start(&mut host, &[], &[]);
    probe.publish(&report());
    let mut terminal = open_page(&host, &probe);
    for words in [
        "Inside PyTorch 2.5.1, Python 3.11.7, step 120, 4.8 steps/s",
        "parameters         97.5 MiB       102,236,160  12 %",
        "  exp_avg          97.5 MiB       102,236,160  of it",
        "activations         319 MiB       334,154,752  39 %",
        "reserved            816 MiB       855,638,016  all of these",
        "435 MiB after a step; 1.1 GiB at the peak, in step 80; a step needs 717 MiB more",
        "leak             250 KiB per step: 1 × (64, 1000) float32, named tensors, held by list outputs, train.py:41 in main",
        "Leak (likely)",
        "allocated at     train.py:40 in step",
        "                 model.py:12 in forward",
        "held by          list outputs, train.py:41 in main",
        "what to try      outputs.append(output.detach().cpu())",
        "Changed since step 119",
        "+ 1 × (64, 1000) float32  +250 KiB  named tensors",
        "63.0 MiB         7 × (512, 512, 3, 3) float32  parameters  120 steps old",
        "63.0 MiB         7 × (512, 512, 3, 3) float32  optimizer state exp_avg",
        "1 × blocks of 8.1 MiB  libraries",
        "and 12 more groups",
    ] {
        terminal.wait_for(words);
    }
    terminal.keys(ESC);
    terminal.wait_for("COMMAND");
    terminal.quit();
}

#[test]
fn the_page_says_how_to_start_a_program_with_the_probe() {
    let mut host = host_with_gpus(1);
    let folder = [("GPUTOP_PROBE_FOLDER", "/probe")];
    let probe = FakeProbe::start(&mut host, &[], &folder);
    let mut terminal = open_page(&host, &probe);
    terminal.wait_for("inside PyTorch   `gputop run` started it, but something changed PYTHONPATH on the way");
    terminal.quit();
}

#[test]
fn the_graph_stacks_the_categories() {
    let mut host = host_with_gpus(1);
    let mut probe = FakeProbe::start(&mut host, &[], &[]);
    probe.publish(&report());
    let mut terminal = Terminal::start_at(&host, 130, 40, ["--interval", "100ms"]);
    terminal.wait_for(&probe.pid().to_string());
    terminal.keys("g");
    terminal.wait_for("memory  now");
    // An old report has no amounts.
    probe.request(&format!("publish {}", report()));
    terminal.wait_until("the names and amounts of the categories", |screen| {
        let text = screen.contents();
        let has = |name: &str, amount: &str| text.lines().any(|line| line.contains(name) && line.contains(amount));
        has("optimizer state", "195 MiB") && has("activations", "319 MiB") && has("unallocated", "62.0 MiB")
    });
    terminal.quit();
}
