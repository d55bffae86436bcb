//! What the README says to a newcomer is so: each command of the first walk runs, and each key does what it says there.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::host::{GIB, Host};
use crate::print_note;
use crate::process::{ChildProcess, run, wait_until};
use crate::terminal::{ENTER, ESC, Terminal};

fn readme() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).expect("it is there")
}

/// A part of the README, from its heading to the next.
fn part(heading: &str) -> String {
    let text = readme();
    let (_, rest) = text.split_once(&format!("\n## {heading}\n")).expect("the README has that part");
    rest.split("\n## ").next().unwrap_or_default().to_owned()
}

/// The commands of the first walk, without their comments.
fn commands() -> Vec<String> {
    let part = part("A first walk");
    let (_, block) = part.split_once("```sh\n").expect("it has commands");
    let (block, _) = block.split_once("\n```").expect("they end");
    let line = |it: &str| it.split("   #").next().unwrap_or_default().trim_end().to_owned();
    block.lines().map(line).collect()
}

#[test]
fn each_command_of_the_first_walk_runs() {
    let mut host = Host::new(["H100", "H100"]);
    let pid = host.start_sleep(0, 3 * GIB);
    symlink(env!("CARGO_BIN_EXE_gputop"), host.path("gputop")).expect("/tmp has room");
    let path = format!("{}:{}", host.path("").display(), std::env::var("PATH").unwrap_or_default());
    let commands = commands();
    let has_jq = Command::new("jq").arg("--version").output().is_ok();
    if !has_jq {
        print_note("there is no jq: what goes into it was not run");
    }
    let mut said = Vec::new();
    for line in &commands {
        if line.contains("jq") && !has_jq {
            said.push(String::new());
            continue;
        }
        let mut shell = Command::new("sh");
        host.set_environment(shell.args(["-c", line])).env("PATH", &path);
        if line == "gputop" {
            let mut terminal = Terminal::run(&mut shell, 100, 30);
            terminal.wait_for(&pid.to_string());
            terminal.quit();
            said.push(String::new());
            continue;
        }
        let output = run(&mut shell);
        assert_eq!(output.code, 0, "{line}: {}{}", output.text(), output.stderr);
        said.push(output.text());
    }
    let of = |words: &str| &said[commands.iter().position(|it| it.contains(words)).expect("it is among them")];
    assert!(of("--once").contains(&pid.to_string()), "{said:?}");
    if has_jq {
        let used: Vec<u64> = of(".gpus[].load").lines().map(|it| it.parse().expect("a number")).collect();
        assert!(used == [3 * GIB, 0], "{used:?}");
        let row = of("processes[]");
        assert!(
            row.starts_with(&format!("[{pid},")) && row.contains(&format!("\"sleep 1000\",{}]", 3 * GIB)),
            "{said:?}"
        );
    }
    assert!(of("gputop free").trim().starts_with("GPU-00000001"), "{said:?}");
    assert_eq!(commands.len(), 6, "a command that is new is looked at here, too");
}

/// A message as PyTorch 2.5 writes it.
const OUT_OF_MEMORY: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total \
    capacity of 79.25 GiB of which 1.25 GiB is free. Including non-PyTorch memory, this process has 7.50 GiB memory in \
    use. Of the allocated memory 7.00 GiB is allocated by PyTorch, and 20.00 MiB is reserved by PyTorch but unallocated.";

/// The commands of all parts but the first walk and what builds gputop, as they stand.
fn other_commands() -> Vec<String> {
    let text = readme();
    let blocks = text.split("```sh\n").skip(1).filter_map(|it| it.split("\n```").next());
    let line = |it: &str| it.split("   #").next().unwrap_or_default().trim_end().to_owned();
    let lines = blocks.flat_map(str::lines).map(line);
    lines.filter(|it| !it.starts_with("cargo ") && !commands().contains(it)).collect()
}

#[test]
fn every_other_command_of_the_readme_runs() {
    let mut host = Host::new(["H100", "H100"]);
    host.change(|world| world.gpus.iter_mut().for_each(|gpu| gpu.utilization.gpu = Some(0)));
    symlink(env!("CARGO_BIN_EXE_gputop"), host.path("gputop")).expect("/tmp has room");
    let write = |name: &str, text: &str| fs::write(host.path(name), text).expect("/tmp has room");
    write("train.log", OUT_OF_MEMORY);
    write("train.py", &format!("print('''{OUT_OF_MEMORY}''')\n"));
    host.install_script("tell-me", "#!/bin/sh\n");
    let path = format!("{}:{}", host.path("").display(), std::env::var("PATH").unwrap_or_default());
    let there = |command: &str| {
        let mut shell = Command::new("sh");
        host.set_environment(shell.args(["-c", command])).env("PATH", &path).current_dir(host.path(""));
        shell
    };
    let commands = other_commands();
    assert!(commands.len() >= 14, "{commands:?}");
    for line in &commands {
        // Not every host calls Python so, nor has five minutes.
        let line = line.replace("python ", "python3 ").replace("5m", "1s");
        if line == "gputop --bell" || line.starts_with("gputop --on-alert") {
            let mut terminal = Terminal::run(&mut there(&line), 100, 30);
            terminal.wait_for("H100");
            terminal.quit();
        } else if let Some((_, file)) = line.split_once(">> ") {
            let _gputop = ChildProcess::spawn(there(&format!("exec {line}")).stdin(Stdio::null()));
            wait_until("the first line", || fs::read_to_string(host.path(file)).is_ok_and(|it| it.contains('\n')));
        } else {
            let output = run(&mut there(&line));
            // Some process of this host may be left behind without a GPU.
            let is_well = output.code == 0 || line.contains("orphans") && output.code == 10;
            assert!(is_well, "{line}: {} {}{}", output.code, output.text(), output.stderr);
        }
    }
}

#[test]
fn the_keys_of_the_first_walk_work_as_described() {
    let mut host = Host::with_jitter(["H100"]);
    let mut train = Command::new("tail");
    train.args(["-f", "/dev/null", "--pid=1", "train.py"]).stderr(Stdio::null());
    let trainer = host.start(0, 3 * GIB, &mut train).pid().to_string();
    let other = host.start_sleep(0, GIB).to_string();
    // So low that no graph is drawn unasked.
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
    terminal.wait_for("MEMORY▼");
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
    assert!(part("A first walk").contains("`F9` opens the dialog"), "the keys above are those of the README");
}

#[test]
fn every_flag_and_subcommand_that_the_readme_names_exists() {
    let host = Host::new(["H100"]);
    let help = host.run(["--help"]).text();
    let text = readme();
    let subcommands = ["orphans", "explain", "free", "doctor", "schema", "analyze"];
    for name in subcommands {
        assert!(help.contains(name) && text.contains(&format!("gputop {name}")), "{name}");
    }
    let of_gputop = [
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
    for flag in of_gputop.into_iter().chain(["--config", "--readonly", "--demo", "--query-gpu", "--query-compute-apps"])
    {
        assert!(help.contains(flag), "{flag} is not in --help");
        assert!(text.contains(flag), "{flag} is not in the README");
    }
}

#[test]
fn the_readme_s_example_settings_are_the_defaults() {
    let part = part("Settings");
    let (_, block) = part.split_once("```toml\n").expect("it has an example");
    let (example, _) = block.split_once("```").expect("it ends");
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, GIB);
    let shown = |host: &Host| {
        let mut terminal = Terminal::start_at(host, 100, 24, []);
        terminal.wait_for("sleep 1000");
        terminal.wait_for("every 1s");
        let head = terminal.text().lines().find(|it| it.contains("COMMAND")).unwrap_or_default().to_owned();
        terminal.quit();
        head
    };
    let before = shown(&host);
    fs::create_dir_all(host.path("config/gputop")).expect("/tmp has room");
    fs::write(host.path("config/gputop/config.toml"), example).expect("/tmp has room");
    assert_eq!(shown(&host), before);
    // And the lines that are commented out do.
    let columns: Vec<&str> = example.lines().filter_map(|it| it.strip_prefix("# ")).collect();
    assert_eq!(columns.len(), 2);
    fs::write(host.path("config/gputop/config.toml"), columns.join("\n")).expect("/tmp has room");
    assert!(!shown(&host).contains("CPU"));
}
