//! Secrets in command lines and environments appear in no output.

use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::host::{GIB, Host};
use crate::process::{ChildProcess, wait_until};
use crate::terminal::{ENTER, ESC, Terminal};

/// A secret value in arguments and environment.
const SECRET: &str = "s3cr3t-value";

#[test]
fn no_output_shows_a_secret_of_a_process() {
    let mut host = Host::new(["H100"]);
    let token = format!("hf_{}", "Ab3".repeat(11));
    let mut program = Command::new("python3");
    program.args([
        "-c",
        "import time; time.sleep(1000)",
        "train.py",
        "--tokenizer",
        "gpt2",
        "--api-key",
        SECRET,
    ]);
    program
        .arg(format!("--proxy=https://me:{SECRET}@example.org"))
        .arg(&token);
    program
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());
    program
        .env("DB_PASSWORD", SECRET)
        .env("DB_USER", "me")
        .env("RANK", "3");
    host.start(0, GIB, &mut program);
    let shown = "train.py --tokenizer gpt2 --api-key *** --proxy=https://me:***@example.org ***";
    let check = |text: &str| {
        assert!(
            !text.contains(SECRET) && !text.contains(&token),
            "a secret in\n{text}"
        );
    };

    let json = host.run(["--json"]).text();
    assert!(
        json.contains(r#""--tokenizer","gpt2","--api-key","***""#),
        "{json}"
    );
    check(&json);
    check(
        &host
            .run(["--query-compute-apps=pid,name", "--format=csv"])
            .text(),
    );
    let table = host.run(["--once"]).text();
    assert!(table.contains(shown), "{table}");
    check(&table);

    let mut terminal = Terminal::start_at(&host, 260, 80, []);
    terminal.wait_for("--api-key ***");
    terminal.keys(ENTER);
    terminal.wait_for("RANK=3");
    // Not even the names of other variables are shown.
    assert!(
        !terminal.text().contains("DB_USER") && !terminal.text().contains("PATH="),
        "{}",
        terminal.text()
    );
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
    assert!(
        outputs[1].contains("--api-key ***") && outputs[4].contains("--api-key ***"),
        "{}",
        outputs[1]
    );
    for (number, text) in outputs.iter().enumerate() {
        let shown: Vec<&String> = secrets
            .iter()
            .filter(|secret| text.contains(secret.as_str()))
            .collect();
        assert!(shown.is_empty(), "output {number} shows {shown:?}");
    }
}

/// Command lines of programs that take a secret; the space separates two arguments.
const COMMAND_LINES: [&str; 8] = [
    "curl -u me:VALUE https://example.org",
    "mysql -uroot -pVALUE db",
    "sshpass -p VALUE ssh host",
    "redis-cli -a VALUE ping",
    "openssl enc -k VALUE",
    "python3 train.py --hf-token VALUE --secretary bob",
    "wget https://hooks.slack.com/services/VALUE",
    "env r8_VALUEAb3Ab3Ab3Ab3",
];

/// Writes lines as an earlier version wrote them that masked nothing: lines of real processes,
/// whose arguments are then replaced by these. Returns the path of the file.
fn write_unmasked_lines(host: &mut Host, commands: &[String]) -> String {
    // No other test has such a process.
    let seconds = |number: usize| 71_000 + number;
    for number in 0..commands.len() {
        host.start(
            0,
            GIB,
            Command::new("sleep").arg(seconds(number).to_string()),
        );
    }
    let mut lines = host.run(["--json"]).text();
    for (number, command) in commands.iter().enumerate() {
        let arguments = serde_json::to_string(&command.split(' ').collect::<Vec<_>>())
            .expect("arguments are JSON");
        lines = lines.replace(&format!(r#"["sleep","{}"]"#, seconds(number)), &arguments);
        lines = lines.replace(&format!("sleep {}", seconds(number)), command);
    }
    let path = host.path("old.jsonl");
    std::fs::write(&path, &lines).expect("/tmp has room");
    path.display().to_string()
}

#[test]
fn secrets_in_lines_of_earlier_versions_are_shown_and_copied_nowhere() {
    let mut host = Host::new(["H100"]);
    let secret = |number: usize| format!("Zq{number}Xk7Wv7s3cr3t");
    let commands: Vec<String> = (0..)
        .zip(COMMAND_LINES)
        .map(|(place, line)| line.replace("VALUE", &secret(place)))
        .collect();
    let leaks = |text: &str| {
        (0..commands.len())
            .map(secret)
            .filter(|secret| text.contains(secret))
            .count()
    };
    let path = write_unmasked_lines(&mut host, &commands);
    let unmasked = std::fs::read_to_string(&path).expect("the file was written");
    assert_eq!(leaks(&unmasked), commands.len(), "{unmasked}");

    let [clip, page, copy] =
        ["clip.zst", "run.html", "copy.zst"].map(|name| host.path(name).display().to_string());
    assert_eq!(host.run(["clip", &path, "-o", &clip]).code, 0);
    assert_eq!(host.run(["report", &path, "-o", &page]).code, 0);
    // An agent of an earlier version at the end of a command, which ends with its input.
    let via = format!("old=cat {path} -");
    let mut recorder = host.gputop(["record", "-o", &copy, "--via", &via]);
    let mut recorder = ChildProcess::spawn(recorder.stderr(Stdio::null()));
    wait_until("the recording has lines", || {
        std::fs::metadata(&copy).is_ok_and(|file| file.len() > 0)
    });
    recorder.handle.signal(Signal::TERM);
    recorder.wait();
    let lines_of = |path: &str| {
        let lines = zstd::decode_all(std::fs::File::open(path).expect("the file was written"))
            .expect("the file is whole");
        String::from_utf8(lines).expect("lines are UTF-8")
    };
    for (name, text) in [
        (
            "replay --once",
            host.run(["replay", "--once", &path]).text(),
        ),
        (
            "replay --json",
            host.run(["replay", "--json", &path]).text(),
        ),
        (
            "export",
            host.run(["export", &path, "--of", "processes"]).text(),
        ),
        ("report --md", host.run(["report", &path, "--md"]).text()),
        (
            "report",
            std::fs::read_to_string(&page).expect("the page was written"),
        ),
        ("clip", lines_of(&clip)),
        ("--once --via", host.run(["--once", "--via", &via]).text()),
        ("--json --via", host.run(["--json", "--via", &via]).text()),
        ("record --via", lines_of(&copy)),
    ] {
        assert_eq!(leaks(&text), 0, "{name} shows secrets\n{text}");
        assert!(
            text.contains("secretary"),
            "{name} shows no arguments\n{text}"
        );
    }
}

#[test]
fn doctor_lists_the_secrets_of_this_host_and_shows_none() {
    let host = Host::new(["H100"]);
    let secrets = ["Zq1Xk7Wv7s3cr3t", "Zq2Xk7Wv7s3cr3t"];
    let waits = |arguments: &[&str]| {
        ChildProcess::spawn(
            Command::new("sh")
                .arg("-c")
                .args(arguments)
                .stdin(Stdio::piped()),
        )
    };
    let token = format!("--hf-token={}", secrets[0]);
    let program = waits(&["read line", "train", &token, "--lr", "1"]);
    let text = format!(
        "false && curl -u me:{} https://example.org; read line",
        secrets[1]
    );
    let shell = waits(&[&text]);
    let innocent = waits(&["read line", "train", "--tokenizer", "gpt2"]);
    let list = host.run(["doctor", "--secrets"]);
    assert_eq!((list.code, list.stderr.as_str()), (0, ""));
    let list = list.text();
    let words = |pid: u32| {
        let line = list
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        line.filter(|words| words.first() == Some(&&*pid.to_string()))
            .flatten()
            .take(4)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        words(program.pid())[1..],
        ["sh", "--hf-token", "***"],
        "{list}"
    );
    assert_eq!(words(shell.pid())[1..], ["curl", "-u", "***"], "{list}");
    assert_eq!(words(innocent.pid()), [""; 0], "{list}");
    assert!(
        secrets.iter().all(|secret| !list.contains(secret)),
        "{list}"
    );
    assert!(list.contains(" secrets in the arguments of "), "{list}");
}
