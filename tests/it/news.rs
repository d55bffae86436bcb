//! The news on the screen: processes that begin and end, and a leak.

use crate::host::{GIB, Host};
use crate::terminal::{ESC, Terminal};

#[test]
fn a_process_that_begins_and_ends_is_in_the_news_with_what_it_held() {
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, GIB);
    let mut terminal = Terminal::start_at(&host, 120, 45, ["--interval", "100ms"]);
    terminal.wait_for("sleep 1000");
    terminal.wait_for_frames(5);
    assert!(!terminal.text().contains("News"), "{}", terminal.text());
    let pid = host.start_sleep(0, 3 * GIB);
    terminal.wait_for("─ News ─");
    terminal.wait_for(&format!("▲ {pid} sleep (root) began on GPU 0"));
    host.process(pid).handle.kill();
    host.process(pid).wait();
    terminal.wait_for(&format!("▼ {pid} sleep (root) exited, held 3.0 GiB on GPU 0"));
    terminal.keys("E");
    terminal.wait_until_gone("COMMAND");
    terminal.wait_for(&format!("▲ {pid} sleep (root) began on GPU 0"));
    terminal.keys("/exited\r");
    terminal.wait_until_gone("began on");
    terminal.wait_for(&format!("▼ {pid} sleep (root) exited, held 3.0 GiB on GPU 0"));
    terminal.keys(ESC);
    terminal.wait_for("COMMAND");
    terminal.quit();
}
