//! Tasks of a newcomer on a screen of 80x24, and the number of keys that each takes.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use rustix::process::Signal;

use crate::host::{GIB, Host};
use crate::orphans::HostWithOrphan;
use crate::process::ProcessHandle;
use crate::terminal::{ENTER, ESC, F9, Terminal};

#[test]
fn the_largest_process_on_gpu_3_is_ended_with_three_keys() {
    let mut host = Host::with_jitter(["H100"; 4]);
    host.start_sleep(0, 9 * GIB);
    let largest = host.start_sleep(3, 2 * GIB);
    host.start(3, GIB, Command::new("sleep").arg("3000"));
    let mut terminal = Terminal::start(&host, ["--interval", "100ms"]);
    terminal.wait_for("sleep 3000");
    terminal.wait_for(&largest.to_string());
    terminal.keys("3");
    terminal.wait_for("GPU 3  Esc leaves");
    terminal.keys(F9);
    terminal.wait_for(&format!("End process {largest}"));
    terminal.wait_for("Verified: only");
    terminal.keys(ENTER);
    assert_eq!(
        host.process(largest).wait().signal(),
        Some(Signal::TERM.as_raw())
    );
    terminal.wait_for("returned 2.0 GiB of 2.0 GiB");
    terminal.quit();
}

#[test]
fn a_gpu_with_two_digits_is_typed_and_a_number_that_is_shown_alone_shows_all_again() {
    let mut host = Host::with_jitter(["H100"; 12]);
    host.start_sleep(1, GIB);
    host.start(11, GIB, Command::new("sleep").arg("3000"));
    let mut terminal = Terminal::start(&host, []);
    terminal.wait_for("sleep 3000");
    terminal.wait_for("sleep 1000");
    terminal.keys("11");
    terminal.wait_for("GPU 11  Esc leaves");
    terminal.wait_until_gone("sleep 1000");
    terminal.keys(ESC);
    terminal.wait_for("sleep 1000");
    terminal.keys("5");
    terminal.wait_for("GPU 5  Esc leaves");
    terminal.keys("5");
    terminal.wait_for("sleep 1000");
    terminal.quit();
}

#[test]
fn the_number_of_no_gpu_is_answered() {
    let host = Host::new(["H100"]);
    let mut terminal = Terminal::start(&host, []);
    terminal.wait_for("H100");
    terminal.keys("7");
    terminal.wait_for("there is no GPU 7");
    terminal.quit();
}

#[test]
fn whether_training_runs_out_of_memory_is_seen_without_a_key() {
    let mut terminal = Terminal::start(&Host::new([]), ["--demo"]);
    terminal.wait_until("a leak, whose it is, and when memory is full", |screen| {
        let text = screen.contents();
        text.lines().next().is_some_and(|header| {
            (header.contains("LEAK: ") || header.contains(" full ")) && header.contains("train.py")
        }) && text
            .lines()
            .any(|line| line.contains("alice") && line.contains("LEAK"))
            && text
                .lines()
                .any(|line| line.contains("H100") && line.contains(" full "))
    });
    terminal.quit();
}

#[test]
fn the_memory_that_an_evaluation_took_is_seen_with_two_keys() {
    let mut host = Host::with_jitter(["H100"]);
    host.start_sleep(0, 4 * GIB);
    let mut terminal = Terminal::start(&host, ["--interval", "100ms"]);
    terminal.wait_for("sleep 1000");
    terminal.keys("m");
    terminal.wait_for("sleep: memory ");
    host.change(|world| world.gpus[0].processes[0].memory = Some(7 * GIB));
    terminal.wait_for("7.0G");
    host.change(|world| world.gpus[0].processes[0].memory = Some(5 * GIB));
    terminal.wait_for("5.0G");
    terminal.keys("m");
    // The memory that is left, and the peak in between.
    terminal.wait_until("the cost", |screen| {
        let text = screen.contents();
        text.lines().any(|line| {
            line.contains("mark 2, ")
                && line.contains(" sleep: memory ")
                && line.contains("+1.0 GiB")
                && line.contains("7.0 GiB")
        })
    });
    terminal.quit();
}

#[test]
fn several_orphans_are_ended_with_four_keys() {
    let mut orphaned = HostWithOrphan::new();
    let second = orphaned.host.start_sleep(0, GIB);
    orphaned.host.process(second).handle.signal(Signal::STOP);
    let other = orphaned
        .host
        .start(0, GIB, Command::new("sleep").arg("3000"))
        .pid();
    let worker = ProcessHandle::open(orphaned.worker_pid());
    // The list of orphans has those of other tests too.
    let pids = format!("{},{second},{other}", worker.pid);
    let mut terminal = Terminal::start(&orphaned.host, ["--interval", "100ms", "--pid", &pids]);
    terminal.wait_for("sleep 3000");
    terminal.keys("o");
    terminal.wait_until_gone("sleep 3000");
    terminal.wait_for(&format!(" {} ", worker.pid));
    terminal.wait_for(&format!(" {second} "));
    terminal.keys("a");
    terminal.wait_for("2 tagged");
    terminal.keys(F9);
    terminal.wait_for("End the tagged processes");
    terminal.wait_for("Verified: only");
    terminal.keys(ENTER);
    terminal.wait_until("the worker has ended", |_| !worker.is_alive());
    orphaned.host.process(second).handle.signal(Signal::CONT);
    orphaned.host.process(second).wait();
    terminal.wait_for("All ended within ");
    assert!(orphaned.host.process(other).handle.is_alive());
    terminal.quit();
}

#[test]
fn what_happened_last_night_is_seen_with_one_key() {
    let mut host = Host::with_jitter(["H100"]);
    let pid = host.start_sleep(0, 3 * GIB);
    let mut terminal = Terminal::start(&host, ["--interval", "100ms"]);
    terminal.wait_for("sleep 1000");
    terminal.wait_for_frames(5);
    host.process(pid).handle.kill();
    host.process(pid).wait();
    terminal.wait_for("no process uses a GPU");
    terminal.keys("E");
    terminal.wait_for(&format!("▼ {pid} sleep ("));
    terminal.wait_for("exited, held 3.0 GiB on GPU 0");
    terminal.quit();
}
