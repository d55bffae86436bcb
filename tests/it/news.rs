//! The news on the screen: processes that begin and end, and a leak.

use fake_nvml::Fault;

use crate::host::{GIB, Host};
use crate::terminal::{DOWN, ENTER, ESC, TAB, Terminal};

#[test]
fn a_process_that_begins_and_ends_is_in_the_news_with_what_it_held() {
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, GIB);
    let mut terminal = Terminal::start_at(&host, 120, 45, ["--interval", "100ms"]);
    terminal.wait_for("sleep 1000");
    terminal.wait_for_frames(5);
    // The rows of the news are there before the first ones, so that nothing moves.
    let row_of = |text: &str, words: &str| text.lines().position(|line| line.contains(words));
    let before = terminal.text();
    assert!(
        row_of(&before, "─ News ─").is_some() && !before.contains('▲'),
        "{before}"
    );
    let pid = host.start_sleep(0, 3 * GIB);
    terminal.wait_for(&format!("▲ {pid} sleep (root) began on GPU 0"));
    let after = terminal.text();
    for words in ["─ News ─", " memory  now ", "COMMAND"] {
        assert_eq!(row_of(&after, words), row_of(&before, words), "{after}");
    }
    host.process(pid).handle.kill();
    host.process(pid).wait();
    terminal.wait_for(&format!(
        "▼ {pid} sleep (root) exited, held 3.0 GiB on GPU 0"
    ));
    terminal.keys("E");
    terminal.wait_until_gone("COMMAND");
    terminal.wait_for(&format!("▲ {pid} sleep (root) began on GPU 0"));
    terminal.keys("/exited\r");
    terminal.wait_until_gone("began on");
    terminal.wait_for(&format!(
        "▼ {pid} sleep (root) exited, held 3.0 GiB on GPU 0"
    ));
    terminal.keys(ESC);
    terminal.wait_for("COMMAND");
    terminal.quit();
}

#[test]
fn enter_on_a_line_of_the_news_opens_its_process_also_when_that_has_ended() {
    let mut host = Host::new(["H100"; 2]);
    let lives = host.start_sleep(1, 9 * GIB);
    let mut terminal = Terminal::start(&host, ["--interval", "100ms", "--filter", "2000"]);
    terminal.wait_for("no process matches");
    terminal.wait_for_frames(5);
    let ends = host.start_sleep(0, 3 * GIB);
    let begins = host.start_sleep(0, GIB);
    terminal.keys("E");
    terminal.wait_for(&format!("▲ {begins} sleep ("));
    host.process(ends).handle.kill();
    host.process(ends).wait();
    terminal.wait_for(&format!("▼ {ends} sleep ("));
    // The latest line is under the cursor.
    terminal.keys(ENTER);
    terminal.wait_for(&format!("Process {ends}"));
    terminal.wait_for("ago, held 3.0 GiB; the facts here are the last that");
    terminal.keys(ESC);
    terminal.wait_for(&format!("{ends} sleep memory  ended"));
    terminal.keys(ESC);
    terminal.wait_for("no process matches");
    terminal.keys(&format!("E{DOWN}"));
    terminal.wait_for("Enter open");
    terminal.keys(ENTER);
    terminal.wait_for("sure: PID and start time were read together");
    terminal.wait_until("a process that lives", |screen| {
        let text = screen.contents();
        text.contains(&format!("Process {begins}")) || text.contains(&format!("Process {ends}"))
    });
    terminal.keys(ESC);
    terminal.wait_for(&lives.to_string());
    terminal.quit();
}

#[test]
fn a_click_on_a_line_of_the_news_opens_its_process() {
    let mut host = Host::new(["H100"]);
    let mut terminal = Terminal::start_at(&host, 120, 45, ["--interval", "100ms"]);
    terminal.wait_for("no process uses a GPU");
    terminal.wait_for_frames(5);
    let pid = host.start_sleep(0, 3 * GIB);
    terminal.wait_for(&format!("▲ {pid} sleep"));
    crate::list::press_mouse(&terminal, 0, &format!("▲ {pid} sleep"));
    terminal.wait_for(&format!("Process {pid}"));
    terminal.quit();
}

#[test]
fn a_process_that_ends_while_its_gpu_hangs_keeps_its_name_and_ends_once() {
    let mut host = Host::new(["H100"]);
    let mut terminal = Terminal::start(&host, ["--interval", "100ms"]);
    terminal.wait_for_frames(5);
    let pid = host.start_sleep(0, 3 * GIB);
    terminal.wait_for("sleep 1000");
    host.change(|world| world.faults = vec![Fault::hang("*").on(0)]);
    terminal.wait_for("GPU 0 hung");
    host.process(pid).handle.kill();
    host.process(pid).wait();
    // The list that has the process is older than its end: the driver does not list it still.
    terminal.wait_for("sleep 1000 (has ended)");
    terminal.keys("E");
    terminal.wait_for(&format!("▲ {pid} sleep (root) began on GPU 0"));
    host.change(|world| world.faults.clear());
    terminal.wait_for("GPU 0 answers again");
    terminal.wait_for(&format!(
        "▼ {pid} sleep (root) exited, held 3.0 GiB on GPU 0"
    ));
    let news = terminal.text();
    let count = |words| news.matches(words).count();
    assert_eq!((count("began"), count("exited")), (1, 1), "{news}");
    terminal.quit();
}

#[test]
fn alerts_about_what_is_watched_are_news() {
    let mut host = Host::idle(["H100"]);
    let pid = host.start_sleep(0, 3 * GIB);
    let mut terminal = Terminal::start(&host, ["--interval", "100ms"]);
    terminal.wait_for("sleep 1000");
    terminal.keys("w");
    terminal.wait_for(&format!("{pid} is watched"));
    terminal.keys(&format!("{TAB}w"));
    terminal.wait_for("GPU 0 is watched");
    host.process(pid).handle.kill();
    host.process(pid).wait();
    terminal.keys("E");
    terminal.wait_for(" ALERT  GPU 0 is free");
    terminal.wait_for(&format!(" ALERT  {pid} sleep "));
    assert_eq!(
        terminal.text().matches("exited, held 3.0 GiB").count(),
        1,
        "{}",
        terminal.text()
    );
    terminal.quit();
}
