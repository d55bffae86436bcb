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

/// Arguments in which `VALUE` is a secret; the space separates two arguments.
const SECRET_ARGUMENTS: [&str; 20] = [
    "--api-key VALUE",
    "--api-key=VALUE",
    "--password VALUE",
    "--hf-token VALUE",
    "--clientSecret=VALUE",
    "--dbPassword VALUE",
    "--credentials VALUE",
    "--basic-auth me:VALUE",
    "HF_TOKEN=VALUE",
    "WANDB_API_KEY=VALUE",
    "-Djavax.keyStorePassword=VALUE",
    "+logger.wandb.api_key=VALUE",
    "X-Api-Key:VALUE",
    "https://me:VALUE@example.org/a",
    "https://example.org/b?x=1&token=VALUE",
    "{\"api_key\":\"VALUE\"}",
    "os.environ['HF_TOKEN']='VALUE'",
    "hf_Ab3Ab3Ab3Ab3Ab3Ab3VALUE",
    "ghp_Ab3Ab3Ab3Ab3Ab3Ab3VALUE",
    "nvapi-Ab3Ab3Ab3Ab3Ab3Ab3VALUE",
];

#[test]
fn no_page_and_no_table_of_a_recording_shows_one_of_200_secrets() {
    let mut host = Host::new(["H100"]);
    let mut secrets = Vec::new();
    for process in 0..10 {
        let mut program = Command::new("python3");
        program.args(["-c", "import time; time.sleep(1000)", "train.py"]);
        for (number, arguments) in SECRET_ARGUMENTS.iter().enumerate() {
            let secret = format!("Zq{process}Xk{number}Wv7s3cr3t");
            program.args(arguments.replace("VALUE", &secret).split(' '));
            secrets.push(secret);
        }
        host.start(0, GIB, &mut program);
    }
    let path = host.path("run.jsonl");
    let lines = host.run(["--json"]);
    assert!(lines.text().contains("--basic-auth"), "{}", lines.text());
    std::fs::write(&path, &lines.stdout).expect("/tmp has room");
    let path = path.display().to_string();
    let page = host.path("run.html").display().to_string();
    let written = host.run(["report", &path, "-o", &page]);
    assert_eq!((written.code, written.stderr.as_str()), (0, ""));
    let outputs = [
        lines.text(),
        std::fs::read_to_string(&page).expect("the page was written"),
        host.run(["report", &path, "--md"]).text(),
        host.run(["report", &path, "--svg"]).text(),
        host.run(["export", &path, "--of", "processes"]).text(),
        host.run(["diff", &path, &path]).text(),
        host.run(["diff", &path, &path, "--json"]).text(),
    ];
    assert_eq!(secrets.len(), 200);
    assert!(outputs[1].contains("--api-key ***") && outputs[4].contains("--api-key ***"), "{}", outputs[1]);
    for (number, text) in outputs.iter().enumerate() {
        let shown: Vec<&String> = secrets.iter().filter(|secret| text.contains(secret.as_str())).collect();
        assert!(shown.is_empty(), "output {number} shows {shown:?}");
    }
}
