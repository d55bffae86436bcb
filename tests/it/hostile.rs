//! Text from outside is sanitized in every output: terminal, reports and JSON.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use fake_nvml::GpuProcess;

use crate::host::{GIB, Host};
use crate::print_note;
use crate::process::run;
use crate::terminal::{DOWN, ENTER, ESC, F9, QUESTION, TAB, Terminal};

/// Hostile names of processes.
const ARGUMENTS: [&str; 6] = [
    // A title, a cleared screen, a clipboard, a cursor.
    "\x1b]0;owned\x07\x1b[2J\x1b]52;c;b3duZWQ=\x07\x1b[31mred",
    // The same, with control characters of C1.
    "\u{9b}31mc1\u{9d}0;owned\u{9c}",
    // Right to left, isolates, marks, zero widths.
    "train\u{202e}yp.mod\u{2066}x\u{2069}\u{200b}\u{200f}\u{feff}\u{ad}",
    // Lines.
    "one\ntwo\rthree\u{2028}four\tfive\x08\x0b\x0c",
    // The ends of a synchronized update and of the alternate screen.
    "\x1b[?2026l\x1b[?1049l\x1b[?25h",
    // Delete, tags, variation selectors.
    "\x7f\u{e0041}\u{fe0f}\u{fff9}",
];

/// Whether no output of gputop may contain this character.
fn is_hostile(character: char) -> bool {
    matches!(character, '\u{80}'..='\u{9f}' | '\u{7f}' | '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// A host whose processes and GPUs have hostile names.
fn hostile_host() -> Host {
    let mut host = Host::new(["H100", "H100"]);
    for argument in ARGUMENTS {
        host.start(
            0,
            GIB,
            Command::new("sleep")
                .arg("1000")
                .env_clear()
                .arg0(argument)
                .env("EVIL", argument),
        );
    }
    // 4 KiB of combining marks.
    host.start(
        0,
        GIB,
        Command::new("sleep")
            .arg("1000")
            .arg0(format!("zalgo{}", "\u{301}\u{489}".repeat(1024))),
    );
    // Invalid UTF-8.
    let bytes = OsStr::from_bytes(b"\xff\xfe\xc3\x28\xf0\x28\x8c\xbc bytes \x80\x9b31m");
    host.start(0, GIB, Command::new("sleep").arg("1000").arg0(bytes));
    // The comm, which a program can set itself.
    let program = "import ctypes, time\nctypes.CDLL(None).prctl(15, b'\\x1b[2J) \\n\\xe2\\x80\\xaex', 0, 0, 0)\nprint(flush=True)\ntime.sleep(1000)";
    let named = host.start(
        1,
        GIB,
        Command::new("python3")
            .args(["-c", program])
            .stdout(std::process::Stdio::piped()),
    );
    let out = named.child().stdout.take().expect("stdout is piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut String::new())
        .expect("the program prints a line");
    host.change(|world| {
        world.gpus[0].name = "NVIDIA \x1b[2JH100\u{202e}\u{200b}\x07 evil".into();
        world.gpus[1].uuid = "GPU-\x1b]0;owned\x07-\u{202e}".into();
        world.driver = "550\x1b[31m.54".into();
        world.gpus[1].processes.push(GpuProcess {
            name: Some("\x1b[2J".to_owned()),
            ..GpuProcess::fictional(4_000_001, GIB)
        });
    });
    host
}

#[track_caller]
fn check_text(bytes: &[u8]) {
    let text = std::str::from_utf8(bytes).expect("output is UTF-8");
    let bad: Vec<char> = text
        .chars()
        .filter(|letter| is_hostile(*letter) || letter.is_control() && *letter != '\n')
        .collect();
    assert!(bad.is_empty(), "{bad:?} in\n{text:?}");
    let are_marks = |letters: &[char]| {
        letters
            .iter()
            .all(|letter| matches!(letter, '\u{301}' | '\u{489}'))
    };
    let characters: Vec<char> = text.chars().collect();
    assert!(
        !characters.windows(5).any(are_marks),
        "five combining marks in a row in\n{text:?}"
    );
}

#[test]
fn the_table_and_json_contain_no_raw_text() {
    let host = hostile_host();
    for args in [["--once"], ["--json"]] {
        let output = host.run(args);
        check_text(&output.stdout);
        check_text(output.stderr.as_bytes());
        for word in ["owned", "zalgo", "evil", "bytes"] {
            assert!(
                output.text().contains(word),
                "no {word} in\n{}",
                output.text()
            );
        }
    }
}

#[test]
fn a_user_name_is_sanitized() {
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, GIB);
    let names = host.path("passwd");
    let uid = rustix::process::getuid().as_raw();
    let entry = format!(
        "boss\x1b[2J\x1b]0;owned\x07\u{202e}{}:x:{uid}:0::/:/bin/sh\n",
        "\u{301}".repeat(100)
    );
    std::fs::write(&names, entry).expect("/tmp has room");
    // In its own mount namespace, where this file is the list of users.
    let script = "mount --bind \"$0\" /etc/passwd || exit 77; exec \"$@\"";
    for args in [["--once"], ["--json"]] {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script]).arg(&names);
        let gputop = host.gputop(args);
        let output =
            run(host.set_environment(command.arg(gputop.get_program()).args(gputop.get_args())));
        if matches!(output.code, 1 | 77 | 127) {
            return print_note(format_args!(
                "skipped: only root can give users other names: {}",
                output.stderr
            ));
        }
        check_text(&output.stdout);
        assert!(
            output.text().contains("boss"),
            "{}{}",
            output.text(),
            output.stderr
        );
    }
}

/// Collects the strings in a value.
fn strings(value: &serde_json::Value, found: &mut Vec<String>) {
    match value {
        serde_json::Value::String(text) => found.push(text.clone()),
        serde_json::Value::Array(values) => values.iter().for_each(|value| strings(value, found)),
        serde_json::Value::Object(fields) => {
            fields.values().for_each(|value| strings(value, found));
        }
        _ => {}
    }
}

#[test]
fn json_contains_no_hostile_character_even_escaped() {
    let line: serde_json::Value = crate::cli::json(&hostile_host().run(["--json"]));
    let mut found = Vec::new();
    strings(&line, &mut found);
    assert!(found.len() > 20);
    for text in found {
        check_text(text.as_bytes());
    }
}

/// Whether gputop itself sends this escape sequence.
fn is_gputops_own(sequence: &str) -> bool {
    let modes = [
        "?2026h", "?2026l", "?1049h", "?1049l", "?25h", "?25l", "?1000h", "?1000l", "?1006h",
        "?1006l", "?2004h", "?2004l", "2J", "K", "J",
    ];
    let (parameters, end) = sequence.split_at(sequence.len() - 1);
    let numbers = parameters
        .chars()
        .all(|letter| letter.is_ascii_digit() || letter == ';');
    modes.contains(&sequence) || (numbers && "mHCDABX".contains(end))
}

#[test]
fn every_escape_sequence_on_the_terminal_is_gputops_own() {
    let host = hostile_host();
    let mut terminal = Terminal::start_at(&host, 200, 60, ["--interval", "100ms"]);
    terminal.wait_for("zalgo");
    terminal.wait_for("owned");
    terminal.keys(DOWN);
    for (keys, sign) in [("g", "GiB"), (F9, "End process")] {
        terminal.keys(keys);
        terminal.wait_for(sign);
    }
    terminal.keys(ESC);
    terminal.wait_until_gone("End process");
    terminal.keys(ESC);
    terminal.wait_for("WHO");
    // Open the page of every process and GPU, with environment, files and names.
    for _ in 0..ARGUMENTS.len() + 3 {
        terminal.keys(ENTER);
        terminal.wait_for("environment");
        terminal.wait_until_gone("asking the agent");
        terminal.keys("G");
        terminal.keys(ESC);
        terminal.wait_for("WHO");
        terminal.keys(DOWN);
    }
    terminal.keys(TAB);
    for _ in 0..2 {
        terminal.keys("i");
        terminal.wait_for("bus id");
        terminal.keys(ESC);
        terminal.wait_for("WHO");
        terminal.keys(DOWN);
    }
    terminal.quit();
    let bytes = terminal.bytes();
    let text = std::str::from_utf8(&bytes).expect("the output is UTF-8");
    assert!(
        !text.chars().any(is_hostile),
        "{:?}",
        text.chars()
            .filter(|letter| is_hostile(*letter))
            .collect::<Vec<_>>()
    );
    // The one sequence that is no CSI.
    let question = std::str::from_utf8(QUESTION).expect("the question is ASCII");
    let text = text.replacen(question, "", 1);
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once('\x1b') {
        let raw: Vec<char> = before
            .chars()
            .filter(|letter| letter.is_control() && !"\n\r\x08".contains(*letter))
            .collect();
        assert!(raw.is_empty(), "{raw:?} in {before:?}");
        let sequence = after
            .strip_prefix('[')
            .expect("gputop sends CSI and nothing else");
        let end = sequence
            .find(|letter: char| letter.is_ascii_alphabetic())
            .expect("a sequence ends");
        assert!(
            is_gputops_own(&sequence[..=end]),
            "{:?} was sent",
            &sequence[..=end]
        );
        rest = &sequence[end + 1..];
    }
}
