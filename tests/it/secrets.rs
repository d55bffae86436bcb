//! Secrets in command lines and environments appear in no output.

use std::process::Command;

use crate::host::{GIB, Host};
use crate::terminal::{ENTER, ESC, Terminal};

/// A secret value in arguments and environment.
const SECRET: &str = "s3cr3t-value";

#[test]
fn no_output_shows_a_secret_of_a_process() {
    let mut host = Host::new(["H100"]);
    let token = format!("hf_{}", "Ab3".repeat(11));
    let mut program = Command::new("python3");
    program.args(["-c", "import time; time.sleep(1000)", "train.py", "--tokenizer", "gpt2", "--api-key", SECRET]);
    program.arg(format!("--proxy=https://me:{SECRET}@example.org")).arg(&token);
    program.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    program.env("DB_PASSWORD", SECRET).env("DB_USER", "me").env("RANK", "3");
    host.start(0, GIB, &mut program);
    let shown = "train.py --tokenizer gpt2 --api-key *** --proxy=https://me:***@example.org ***";
    let check = |text: &str| assert!(!text.contains(SECRET) && !text.contains(&token), "a secret in\n{text}");

    let json = host.run(["--json"]).text();
    assert!(json.contains(r#""--tokenizer","gpt2","--api-key","***""#), "{json}");
    check(&json);
    check(&host.run(["--query-compute-apps=pid,name", "--format=csv"]).text());
    let table = host.run(["--once"]).text();
    assert!(table.contains(shown), "{table}");
    check(&table);

    let mut terminal = Terminal::start_at(&host, 260, 80, []);
    terminal.wait_for("--api-key ***");
    terminal.keys(ENTER);
    terminal.wait_for("RANK=3");
    // Not even the names of other variables are shown.
    assert!(!terminal.text().contains("DB_USER") && !terminal.text().contains("PATH="), "{}", terminal.text());
    terminal.keys(ESC);
    terminal.wait_for("COMMAND");
    terminal.quit();
    check(&String::from_utf8_lossy(&terminal.bytes()));
}
