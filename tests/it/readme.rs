//! The README and the pages of `docs/` are true: their commands run, their keys work, their flags and
//! settings exist, and their links lead somewhere.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::doc_scripts;
use crate::host::{GIB, Host};
use crate::process::{ChildProcess, run, wait_until};
use crate::terminal::{ENTER, ESC, Terminal};

/// The text of a page, by its path in the repository.
pub(crate) fn page(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("the page exists")
}

/// The section with this heading.
pub(crate) fn section(path: &str, heading: &str) -> String {
    let text = page(path);
    let (_, rest) = text
        .split_once(&format!("\n## {heading}\n"))
        .expect("the page has the section");
    rest.split("\n## ").next().unwrap_or_default().to_owned()
}

/// The README and all pages of `docs/`, by their paths.
fn pages() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let names = fs::read_dir(folder)
        .expect("the folder exists")
        .map(|file| {
            let name = file.expect("the folder can be read").file_name();
            format!("docs/{}", name.to_string_lossy())
        });
    let mut pages: Vec<String> = names.chain(["README.md".to_owned()]).collect();
    pages.sort();
    assert!(pages.len() > 15, "{pages:?}");
    pages
}

/// The commands of the section "A first walk", without their comments.
fn first_walk() -> Vec<String> {
    let section = section("README.md", "A first walk");
    let (_, block) = section
        .split_once("```sh\n")
        .expect("the section has commands");
    let (block, _) = block.split_once("\n```").expect("the block ends");
    block.lines().map(without_comment).collect()
}

fn without_comment(line: &str) -> String {
    line.split("   #")
        .next()
        .unwrap_or_default()
        .trim_end()
        .to_owned()
}

#[test]
fn each_command_of_the_first_walk_runs() {
    let mut host = Host::new(["H100", "H100"]);
    let pid = host.start_sleep(0, 3 * GIB);
    symlink(env!("CARGO_BIN_EXE_gputop"), host.path("gputop")).expect("/tmp has room");
    let path = format!(
        "{}:{}",
        host.path("").display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let commands = first_walk();
    let mut outputs = Vec::new();
    for line in &commands {
        let mut shell = Command::new("sh");
        host.set_environment(shell.args(["-c", line]))
            .env("PATH", &path);
        if line == "gputop" {
            let mut terminal = Terminal::run(&mut shell, 100, 30);
            terminal.wait_for(&pid.to_string());
            terminal.quit();
            outputs.push(String::new());
            continue;
        }
        let output = run(&mut shell);
        // 10: other tests leave orphans on this host.
        let is_found = line.contains("orphans") && output.code == 10;
        assert!(
            output.code == 0 || is_found,
            "{line}: {}{}",
            output.text(),
            output.stderr
        );
        outputs.push(output.text());
    }
    let output_of = |words: &str| {
        &outputs[commands
            .iter()
            .position(|command| command.contains(words))
            .expect("the README has the command")]
    };
    for words in ["--once", "--plain"] {
        assert!(output_of(words).contains(&pid.to_string()), "{outputs:?}");
    }
    assert!(
        output_of("gputop orphans").contains("orphan"),
        "{outputs:?}"
    );
    assert_eq!(commands.len(), 4, "a new command needs a check above");
}

/// An out-of-memory message of PyTorch 2.5.
const OUT_OF_MEMORY: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total \
    capacity of 79.25 GiB of which 1.25 GiB is free. Including non-PyTorch memory, this process has 7.50 GiB memory in \
    use. Of the allocated memory 7.00 GiB is allocated by PyTorch, and 20.00 MiB is reserved by PyTorch but unallocated.";

/// All other commands of the README and of the pages but those of cargo, without the pages whose
/// blocks are whole scripts.
fn other_commands() -> Vec<String> {
    let first_walk = first_walk();
    let mut commands: Vec<String> = Vec::new();
    for path in pages() {
        if doc_scripts::PAGES.contains(&path.as_str()) {
            continue;
        }
        let text = page(&path);
        let blocks = text
            .split("```sh\n")
            .skip(1)
            .filter_map(|block| block.split("\n```").next());
        for command in blocks.flat_map(str::lines).map(without_comment) {
            if !command.starts_with("cargo ")
                && !first_walk.contains(&command)
                && !commands.contains(&command)
            {
                commands.push(command);
            }
        }
    }
    commands
}

#[test]
fn every_other_command_of_the_pages_runs() {
    let host = Host::idle(["H100", "H100"]);
    symlink(env!("CARGO_BIN_EXE_gputop"), host.path("gputop")).expect("/tmp has room");
    let write = |name: &str, text: &str| fs::write(host.path(name), text).expect("/tmp has room");
    write("train.log", OUT_OF_MEMORY);
    write(
        "memory.csv",
        "time,memory_used_bytes\n0,1000000000\n60,1000000000\n120,1000000000\n",
    );
    write("train.py", &format!("print('''{OUT_OF_MEMORY}''')\n"));
    host.install_script("tell-me", "#!/bin/sh\n");
    let path = format!(
        "{}:{}",
        host.path("").display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let shell = |command: &str| {
        let mut shell = Command::new("sh");
        host.set_environment(shell.args(["-c", command]))
            .env("PATH", &path)
            .current_dir(host.path(""));
        shell
    };
    let commands = other_commands();
    assert!(commands.len() >= 35, "{commands:?}");
    for line in &commands {
        // Not every host has `python`, and the test has no five minutes.
        let line = line.replace("python ", "python3 ").replace("5m", "1s");
        // No process has a PID above the kernel's limit.
        let line = line.replace("attach 4711", "attach 4194305");
        let line = line.replace("wait 4711", "wait 4194305");
        if line == "gputop --bell" || line.starts_with("gputop --on-alert") {
            let mut terminal = Terminal::run(&mut shell(&line), 100, 30);
            terminal.wait_for("H100");
            terminal.quit();
        } else if let Some((_, file)) = line.split_once(">> ") {
            let _gputop = ChildProcess::spawn(shell(&format!("exec {line}")).stdin(Stdio::null()));
            wait_until("the first line", || {
                fs::read_to_string(host.path(file)).is_ok_and(|text| text.contains('\n'))
            });
        } else {
            let output = run(&mut shell(&line));
            // 10: other tests leave orphans on this host.
            let is_found = line.contains("orphans") && output.code == 10;
            // No process here has the PID of the README, and none has run out of memory.
            let is_absent = [
                "process 4711 uses no GPU",
                "no process 4194305",
                "no process has the PID 4194305",
                "no process of job 4711",
                "no file model.py",
                "no file config.json",
                "there is no report",
            ]
            .iter()
            .any(|words| output.stderr.contains(words));
            let has_no_probe = output.text().contains("has a report of gputop's probe");
            let succeeds = output.code == 0 || is_found || is_absent || has_no_probe;
            assert!(
                succeeds,
                "{line}: {} {}{}",
                output.code,
                output.text(),
                output.stderr
            );
        }
    }
}

#[test]
fn the_keys_of_the_first_walk_work_as_described() {
    let mut host = Host::with_jitter(["H100"]);
    let mut train = Command::new("tail");
    train
        .args(["-f", "/dev/null", "--pid=1", "train.py"])
        .stderr(Stdio::null());
    let trainer = host.start(0, 3 * GIB, &mut train).pid().to_string();
    let other = host.start_sleep(0, GIB).to_string();
    // 18 lines: too low for a graph until `g` opens it.
    let mut terminal = Terminal::start_at(&host, 100, 18, []);
    terminal.wait_for(&other);
    terminal.keys("/train");
    terminal.keys(ENTER);
    terminal.wait_until_gone(&other);
    terminal.wait_for(&trainer);
    terminal.keys(ESC);
    terminal.wait_for(&other);
    terminal.keys("P");
    terminal.wait_for("SM▼");
    terminal.keys("M");
    terminal.wait_for("MEM▼");
    terminal.keys("g");
    terminal.wait_for("memory  now");
    terminal.keys("g");
    terminal.wait_for("Esc back");
    terminal.keys("g");
    terminal.wait_for("COMMAND");
    terminal.keys(ENTER);
    terminal.wait_for("identity");
    terminal.keys(ESC);
    terminal.wait_for("COMMAND");
    terminal.keys("\x1b[20~");
    terminal.wait_for(&format!("End process {trainer}"));
    terminal.keys(ESC);
    terminal.wait_until_gone("End process");
    terminal.keys("?");
    terminal.wait_for("In the lists");
    terminal.keys(ESC);
    terminal.wait_for("COMMAND");
    terminal.quit();
    assert!(
        section("README.md", "A first walk").contains("`F9` opens the dialog"),
        "the README names other keys"
    );
}

#[test]
fn every_flag_and_subcommand_that_the_pages_name_exists() {
    let host = Host::new(["H100"]);
    let help = host.run(["--help"]).text();
    let text = pages().iter().map(|path| page(path)).collect::<String>();
    let subcommands = ["orphans", "explain", "free", "doctor", "schema", "analyze"];
    for name in subcommands {
        assert!(
            help.contains(name) && text.contains(&format!("gputop {name}")),
            "{name}"
        );
    }
    let flags = [
        "--plain",
        "--once",
        "--json",
        "--csv",
        "--theme",
        "--interval",
        "--sort",
        "--columns",
        "--gpu-columns",
        "--group",
    ];
    for flag in flags.into_iter().chain([
        "--config",
        "--readonly",
        "--demo",
        "--query-gpu",
        "--query-compute-apps",
    ]) {
        assert!(help.contains(flag), "{flag} is not in --help");
        assert!(text.contains(flag), "{flag} is on no page");
    }
}

#[test]
fn the_example_settings_are_the_defaults() {
    let section = section("docs/settings.md", "The file");
    let (_, block) = section
        .split_once("```toml\n")
        .expect("the section has an example");
    let (example, _) = block.split_once("```").expect("the block ends");
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, GIB);
    let header = |host: &Host| {
        let mut terminal = Terminal::start_at(host, 100, 24, []);
        terminal.wait_for("sleep 1000");
        terminal.wait_for("every 1s");
        let header = terminal
            .text()
            .lines()
            .find(|line| line.contains("COMMAND"))
            .unwrap_or_default()
            .to_owned();
        terminal.quit();
        header
    };
    let before = header(&host);
    fs::create_dir_all(host.path("config/gputop")).expect("/tmp has room");
    fs::write(host.path("config/gputop/config.toml"), example).expect("/tmp has room");
    assert_eq!(header(&host), before);
    // The lines that are commented out change the columns.
    let columns: Vec<&str> = example
        .lines()
        .filter_map(|line| line.strip_prefix("# "))
        .collect();
    assert_eq!(columns.len(), 2);
    fs::write(host.path("config/gputop/config.toml"), columns.join("\n")).expect("/tmp has room");
    assert!(!header(&host).contains("CPU"));
}

/// The links of a page, those to addresses of the web left out.
fn links(text: &str) -> Vec<&str> {
    let targets = text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    targets
        .filter(|target| !target.starts_with("http"))
        .collect()
}

/// The anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept
        .chars()
        .filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter })
        .collect()
}

#[test]
fn every_link_of_the_pages_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let others = ["CONTRIBUTING.md", "SECURITY.md", "ARCHITECTURE.md"].map(str::to_owned);
    let readme = page("README.md");
    for path in pages().into_iter().chain(others) {
        assert!(
            path.starts_with("docs/") <= readme.contains(&format!("]({path})")),
            "README.md does not lead to {path}"
        );
        let text = page(&path);
        for link in links(&text) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => root.join(&path),
                file => root.join(&path).with_file_name("").join(file),
            };
            assert!(target.exists(), "{path}: nothing is at {link}");
            if !heading.is_empty() {
                let text = fs::read_to_string(&target).expect("a page of text");
                let mut headings = text.lines().filter(|line| line.starts_with('#'));
                assert!(
                    headings.any(|line| anchor(line.trim_start_matches(['#', ' '])) == heading),
                    "{path}: no heading for {link}"
                );
            }
        }
    }
}

#[test]
fn the_readme_is_short() {
    let lines = page("README.md").lines().count();
    assert!(
        lines <= 160,
        "README.md has {lines} lines: a page of docs/ takes more"
    );
}
