//! Hosts over ssh: `-H` and `--hosts`, with a stand-in for ssh that runs the far command here.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::host::{GIB, Host};
use crate::process::{ProcessHandle, run, wait_until};
use crate::terminal::Terminal;

/// Stands in for ssh: `-G` prints a configuration, and a session runs the script of its host, in
/// which `$remote` is the far command. Both note their arguments.
const STAND_IN: &str = r#"#!/bin/sh
arguments="$*" query=
while [ $# -gt 0 ]; do
    case $1 in
        -G) query=1 ;;
        -O) shift ;;
        -o | -p | -J | -F | -i | -l) shift ;;
        --) shift; break ;;
    esac
    shift
done
host=$1 remote=$2
cd "$SSH_LAB" || exit 255
if [ -n "$query" ]; then
    echo "$arguments" >> "$host.lookups"
    echo "hostname $host"
    cat "$host.config" 2> /dev/null
    exit 0
fi
printf '%s\n' "$arguments" >> "$host.calls"
[ -e "$host" ] || { echo "ssh: Could not resolve hostname $host: Name or service not known" >&2; exit 255; }
. "./$host"
"#;

/// Hosts that a stand-in for ssh reaches, and the viewer's machine.
pub(crate) struct SshLab {
    viewer: Host,
}

impl SshLab {
    pub(crate) fn new() -> Self {
        let viewer = Host::new([]);
        viewer.install_script("ssh", STAND_IN);
        Self { viewer }
    }

    /// Adds a host with this script.
    pub(crate) fn add(&self, name: &str, script: &str) {
        fs::write(self.viewer.path(name), script).expect("/tmp has room");
    }

    /// Adds a host where this shell script runs first, and then the far command, with a gputop that
    /// sees this machine.
    pub(crate) fn add_agent(&self, name: &str, host: &Host, first: &str) {
        self.add(name, &format!("{first}\n{}", far_session(host)));
    }

    /// `gputop` on the viewer's machine.
    pub(crate) fn gputop<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = self.viewer.gputop(args);
        let path = std::env::var("PATH").expect("there is a PATH");
        let folder = self.viewer.path("");
        command
            .env("PATH", format!("{}:{path}", folder.display()))
            .env("SSH_LAB", &folder);
        command
    }

    /// Installs a program on the viewer's machine.
    pub(crate) fn install_script(&self, name: &str, text: &str) {
        self.viewer.install_script(name, text);
    }

    /// The path of a file on the viewer's machine.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.viewer.path(name)
    }

    /// The sessions of a host that were begun, each with its arguments on a line.
    pub(crate) fn calls(&self, name: &str) -> String {
        fs::read_to_string(self.viewer.path(&format!("{name}.calls"))).unwrap_or_default()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.viewer.path(name), text).expect("/tmp has room");
    }
}

/// Returns a script that runs the far command with a gputop of this host.
pub(crate) fn far_session(host: &Host) -> String {
    far_environment(host) + " sh -c \"$remote\"\n"
}

/// Returns the beginning of a command of a shell that runs a program with a gputop of this host.
pub(crate) fn far_environment(host: &Host) -> String {
    let mut command = Command::new("sh");
    host.set_environment(&mut command);
    let program = Path::new(env!("CARGO_BIN_EXE_gputop"));
    let folder = program.parent().expect("the program is in a folder");
    let mut script = "exec env -i".to_owned();
    for (name, value) in command.get_envs() {
        let (Some(name), Some(value)) = (name.to_str(), value.and_then(|value| value.to_str()))
        else {
            continue;
        };
        let value = if name == "PATH" {
            format!("{}:/usr/bin:/bin", folder.display())
        } else {
            value.to_owned()
        };
        write!(script, " {name}={}", shell_words::quote(&value)).expect("a string grows");
    }
    script
}

#[test]
fn a_range_of_hosts_is_read_and_each_has_the_name_that_was_typed() {
    let lab = SshLab::new();
    let hosts = [Host::new(["H100"]), Host::new(["H100"; 2])];
    lab.add_agent("n1", &hosts[0], "echo Welcome to n1; echo; printf x");
    lab.add_agent("n2", &hosts[1], "echo '{\"kind\":\"full\"'");
    let output = run(&mut lab.gputop(["--json", "-H", "n[1-2]"]));
    assert_eq!(output.code, 0, "{}{}", output.text(), output.stderr);
    let names: Vec<(String, usize)> = output
        .text()
        .lines()
        .map(|line| {
            let value: Value = serde_json::from_str(line).expect("JSON");
            let name = value["source"]["name"].as_str().expect("a name").to_owned();
            (name, value["gpus"].as_array().expect("a list").len())
        })
        .collect();
    assert_eq!(names, [("n1".to_owned(), 1), ("n2".to_owned(), 2)]);
    assert!(
        lab.calls("n1").starts_with(
            "-T -C -x -a -o BatchMode=yes -o ControlMaster=no -o RemoteCommand=none -o RequestTTY=no -o ClearAllForwardings=yes \
             -o UpdateHostKeys=no -o PermitLocalCommand=no -o ConnectTimeout=5 -o ServerAliveInterval=5 -o ServerAliveCountMax=3 \
             -- n1 exec sh -c '"
        ),
        "{}",
        lab.calls("n1")
    );
}

#[test]
fn inventories_groups_and_hosts_with_a_command_of_their_own_are_named_together_and_each_once() {
    let lab = SshLab::new();
    let hosts = [
        Host::new(["H100"]),
        Host::new(["H100"]),
        Host::new(["H100"]),
    ];
    lab.add_agent("n1", &hosts[0], "");
    lab.add_agent("n2", &hosts[1], "");
    lab.write("inventory", "# the lab\nn1   # old\n@lab\n");
    lab.write(
        "config.toml",
        "host = false\nhosts.lab = [\"n[1-2]\", \"big\"]\n[ssh]\noptions = [\"-o\", \"ConnectTimeout=9\"]\n",
    );
    let path = |name: &str| lab.viewer.path(name).display().to_string();
    lab.add_agent("big", &hosts[2], "");
    let args = [
        "--once",
        "--hosts",
        &path("inventory"),
        "-H",
        "n2,big",
        "--config",
        &path("config.toml"),
    ];
    let output = run(&mut lab.gputop(args));
    assert_eq!(output.code, 0, "{}{}", output.text(), output.stderr);
    for name in ["n1", "n2", "big"] {
        let calls = lab.calls(name);
        assert_eq!(calls.lines().count(), 1, "{calls}");
        assert!(
            calls.contains(
                "PermitLocalCommand=no -o ConnectTimeout=9 -o ConnectTimeout=5 -o Server"
            ),
            "{calls}"
        );
    }
    let own = format!(
        "hosts.lab = [\"n1\", \"big\"]\nhost.big = {{ via = {:?} }}\n",
        crate::two_hosts::agent_of(&hosts[2])
    );
    lab.write("config.toml", &own);
    let output = run(&mut lab.gputop(["--once", "-H", "@lab", "--config", &path("config.toml")]));
    assert_eq!(output.code, 0, "{}{}", output.text(), output.stderr);
    assert!(output.text().contains("big"), "{}", output.text());
    assert_eq!(
        lab.calls("big").lines().count(),
        1,
        "big has a command of its own"
    );
}

#[test]
fn a_wrong_name_is_refused_with_its_line_before_anything_is_started() {
    let lab = SshLab::new();
    lab.write("inventory", "n1\n\nn2; reboot\n");
    let inventory = lab.viewer.path("inventory").display().to_string();
    lab.write("config.toml", "theme = \"dark\"\nhosts.lab = [\"-x\"]\n");
    let config = lab.viewer.path("config.toml").display().to_string();
    let check = |args: &[&str], sentence: &str| {
        let output = run(&mut lab.gputop(args.iter().copied()));
        assert_eq!(output.code, 2, "{args:?}: {}", output.stderr);
        assert!(
            output.stderr.contains(sentence),
            "{args:?}: {}",
            output.stderr
        );
    };
    check(
        &["--once", "--hosts", &inventory],
        &format!("{inventory}:3: `n2; reboot` has the character ';'"),
    );
    check(
        &["--once", "--host=-oProxyCommand=x"],
        "has the character '='",
    );
    check(&["--once", "-H", "n1,-v"], "`-v` begins with `-`");
    check(
        &["--once", "-H", "@lab", "--config", &config],
        &format!("{config}:2: hosts.lab: `-x` begins with `-`"),
    );
    check(
        &["--once", "-H", "n1", "--hosts", "/does/not/exist"],
        "cannot read /does/not/exist",
    );
    check(&["--once", "-H", "n[1-2000]"], "is more than 1000 hosts");
    check(
        &["--once", "-H", "@lob"],
        "there is no group `hosts.lob` in config.toml; it has no group",
    );
    check(&["--once", "--local"], "required");
    for name in ["n1", "n2"] {
        assert_eq!(lab.calls(name), "");
    }
}

#[test]
fn a_report_names_each_host_that_does_not_answer() {
    let lab = SshLab::new();
    let host = Host::new(["H100"]);
    lab.add_agent("good", &host, "");
    lab.add(
        "refused",
        "echo 'ssh: connect to host refused port 22: Connection refused' >&2; exit 255",
    );
    let output = run(&mut lab.gputop(["--once", "-H", "good,refused,gone"]));
    assert_ne!(output.code, 0);
    for sentence in [
        "refused: connection refused",
        "gone: Could not resolve hostname gone: Name or service not known",
    ] {
        assert!(output.text().contains(sentence), "{}", output.text());
    }
    assert!(output.text().contains("H100"), "{}", output.text());
}

/// Waits until a row of the screen begins with this name and has these words.
#[track_caller]
fn wait_for_row(terminal: &Terminal, name: &str, words: &str) {
    terminal.wait_until(&format!("{name}: {words}"), |screen| {
        let text = screen.contents();
        let mut lines = text.lines();
        lines.any(|line| {
            line.trim_start_matches(['│', '▎', ' ']).starts_with(name) && line.contains(words)
        })
    });
}

#[test]
fn the_row_of_each_host_says_how_far_it_is() {
    let lab = SshLab::new();
    let mut host = Host::new(["H100"]);
    let pid = host.start_sleep(0, 3 * GIB);
    lab.add_agent("good", &host, "");
    for (name, message) in [
        (
            "refused",
            "ssh: connect to host refused port 22: Connection refused",
        ),
        (
            "slow",
            "ssh: connect to host slow port 22: Connection timed out",
        ),
        ("denied", "alice@denied: Permission denied (publickey)."),
        (
            "asks",
            "alice@asks: Permission denied (publickey,password).",
        ),
        (
            "changed",
            "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
        ),
        ("unknown", "Host key verification failed."),
    ] {
        lab.add(name, &format!("printf '{message}\\n' >&2; exit 255"));
    }
    lab.add("hangs", "exec sleep 1000");
    let names = "good,refused,slow,denied,asks,changed,unknown,hangs,gone";
    let terminal = Terminal::run(&mut lab.gputop(["-H", names]), 120, 40);
    terminal.wait_for("gputop  9 hosts");
    terminal.keys("f");
    terminal.wait_for(&pid.to_string());
    wait_for_row(&terminal, "refused", "connection refused; tries again in ");
    wait_for_row(&terminal, "slow", "connect timed out; tries again in ");
    wait_for_row(
        &terminal,
        "denied",
        "permission denied (publickey); Ctrl-R tries again",
    );
    wait_for_row(&terminal, "asks", "asks for a password; f and Enter log in");
    wait_for_row(
        &terminal,
        "changed",
        "the host key has changed: `ssh changed` in a terminal says more",
    );
    wait_for_row(
        &terminal,
        "unknown",
        "the host key is not known yet; f and Enter log in",
    );
    wait_for_row(&terminal, "hangs", "connecting ");
    wait_for_row(&terminal, "gone", "Could not resolve hostname gone");
    wait_until("a host that refused is tried again", || {
        lab.calls("refused").lines().count() > 1
    });
    for name in ["denied", "asks", "changed", "unknown"] {
        assert_eq!(
            lab.calls(name).lines().count(),
            1,
            "{name} waits for the user"
        );
    }
    crate::print_note(terminal.text());
    // The user has mended it.
    lab.add_agent("denied", &host, "");
    terminal.keys("\u{12}");
    terminal.wait_until("no row of a host that waits", |screen| {
        !screen.contents().contains("permission denied (publickey);")
    });
}

#[test]
fn a_host_that_was_seen_comes_back_by_itself() {
    let lab = SshLab::new();
    let host = Host::new(["H100"]);
    let other = Host::new(["A100"]);
    let first = format!("echo $$ > {}", lab.viewer.path("session").display());
    lab.add_agent("n1", &host, &first);
    lab.add_agent("n2", &other, "");
    let terminal = Terminal::run(&mut lab.gputop(["-H", "n1,n2"]), 120, 40);
    terminal.wait_for("A100");
    terminal.wait_for("H100");
    // The session becomes the agent, as it is here no far process.
    let session = || {
        let text = fs::read_to_string(lab.viewer.path("session")).expect("the session has begun");
        ProcessHandle::open(text.trim().parse().expect("a PID"))
    };
    session().kill();
    terminal.wait_for("n1: the agent ended without a word; tries again in ");
    wait_until("it is connected again", || {
        lab.calls("n1").lines().count() == 2
    });
    terminal.wait_until_gone("n1: the agent ended");
    assert_eq!(lab.calls("n2").lines().count(), 1);
    // It is refused for a while, and then answers.
    lab.add(
        "n1",
        "echo 'ssh: connect to host n1 port 22: Connection refused' >&2; exit 255",
    );
    session().kill();
    terminal.wait_for("n1: connection refused; tries again in ");
    wait_until("three tries", || lab.calls("n1").lines().count() >= 5);
    lab.add_agent("n1", &host, &first);
    terminal.wait_until_gone("n1: connection refused");
}

#[test]
fn hosts_behind_one_jump_host_are_connected_eight_at_a_time() {
    let lab = SshLab::new();
    let names: Vec<String> = (1..=9).map(|number| format!("n{number}")).collect();
    for name in &names {
        lab.write(&format!("{name}.config"), "proxyjump login\n");
        lab.add(
            name,
            // The folder is removed at the end of the test.
            &format!(
                "while [ -e {name}.config ] && [ ! -e open ]; do sleep 0.05; done
                 echo ended >&2; exit 1"
            ),
        );
    }
    let terminal = Terminal::run(&mut lab.gputop(["-H", "n[1-9]"]), 120, 70);
    let begun = || {
        names
            .iter()
            .filter(|name| !lab.calls(name).is_empty())
            .count()
    };
    wait_until("eight connects", || begun() == 8);
    wait_for_row(&terminal, "n9", "waiting");
    wait_for_row(&terminal, "n1", "connecting ");
    wait_until("all are looked up", || {
        names
            .iter()
            .all(|name| lab.viewer.path(&format!("{name}.lookups")).exists())
    });
    assert_eq!(begun(), 8);
    lab.write("open", "");
    wait_until("all connects", || begun() == 9);
}

#[test]
fn a_silent_master_of_the_user_is_avoided_at_the_next_try() {
    let lab = SshLab::new();
    let host = Host::new(["H100"]);
    lab.write("n1.config", "controlpath /home/alice/.ssh/n1\n");
    lab.add_agent(
        "n1",
        &host,
        "case $arguments in *ControlPath=none*) ;; *) exec sleep 1000 ;; esac",
    );
    let terminal = Terminal::run(&mut lab.gputop(["-H", "n1"]), 120, 40);
    terminal.wait_for("no answer within 5 s, perhaps because of a control master of yours");
    terminal.wait_for("H100");
    let calls = lab.calls("n1");
    assert_eq!(calls.lines().count(), 2, "{calls}");
}

#[test]
fn free_prints_the_command_line_that_takes_the_gpus_on_the_first_host_with_enough() {
    let lab = SshLab::new();
    let mut hosts = [Host::idle(["H100"; 2]), Host::idle(["H100"; 4])];
    hosts[1].start_sleep(1, 30 * GIB);
    lab.add_agent("n1", &hosts[0], "");
    lab.add_agent("n2", &hosts[1], "");
    let program = env!("CARGO_BIN_EXE_gputop");
    let output = run(&mut lab.gputop(["free", "-H", "n[1-2]", "-n", "3"]));
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert_eq!(
        output.text(),
        format!("ssh n2 {program} free -i 0,2,3 -n 3 --\n")
    );
    let output = run(&mut lab.gputop(["free", "-H", "alice@n2:22", "--memory", "20GiB"]));
    assert_eq!(
        output.code, 1,
        "there is no host alice@n2: {}",
        output.stderr
    );
    let output = run(&mut lab.gputop(["free", "-H", "n2", "-i", "1", "--memory", "1GiB"]));
    assert_eq!(
        output.text(),
        format!("ssh n2 {program} free -i 1 -n 1 --memory 1073741824 --\n"),
        "{}",
        output.stderr
    );
    let output = run(&mut lab.gputop(["free", "-H", "n1,n2", "-n", "5"]));
    assert_eq!(
        (output.code, output.text().as_str()),
        (11, "CUDA_VISIBLE_DEVICES=\n"),
        "{}",
        output.stderr
    );
    let output = run(&mut lab.gputop(["free", "-H", "n1", "--", "true"]));
    assert_eq!(output.code, 2);
    assert!(
        output.stderr.contains("cannot be used with"),
        "{}",
        output.stderr
    );
}

#[test]
fn equal_names_and_pids_on_two_hosts_stay_apart() {
    let lab = SshLab::new();
    let mut hosts = [Host::new(["H100"]), Host::new(["H100"])];
    let pid = hosts[0].start_sleep(0, 3 * GIB);
    hosts[1].change(|world| {
        world.gpus[0].uuid = "GPU-the-same".into();
    });
    hosts[0].change(|world| {
        world.gpus[0].uuid = "GPU-the-same".into();
    });
    hosts[1].add_process(0, fake_nvml::GpuProcess::new(pid, 5 * GIB));
    lab.add_agent("n1", &hosts[0], "");
    // Both are this machine, and call themselves the same.
    lab.add_agent("n2", &hosts[1], "");
    let output = run(&mut lab.gputop(["--once", "-H", "n1,n2"]));
    let text = output.text();
    assert_eq!(output.code, 0, "{text}{}", output.stderr);
    for (name, memory) in [("n1", "3.0/79.6G"), ("n2", "5.0/79.6G")] {
        let mut rows = text.lines().filter(|line| line.contains(memory));
        assert!(rows.all(|line| line.starts_with(name)), "{text}");
    }
}

#[test]
fn a_frozen_host_says_so_and_is_connected_again_without_a_key() {
    let lab = SshLab::new();
    let [host, other] = [Host::new(["H100"]), Host::new(["A100"])];
    let first = format!("echo $$ >> {}", lab.viewer.path("session").display());
    lab.add_agent("n1", &host, &first);
    lab.add_agent("n2", &other, "");
    let terminal = Terminal::run(&mut lab.gputop(["-H", "n1,n2"]), 120, 40);
    terminal.wait_for("A100");
    terminal.wait_for("H100");
    let text = fs::read_to_string(lab.viewer.path("session")).expect("the session has begun");
    let agent = ProcessHandle::open(text.trim().parse().expect("a PID"));
    agent.signal(Signal::STOP);
    terminal.wait_for("n1: frozen ");
    terminal.wait_until_gone("n1: frozen ");
    terminal.wait_until("the second session", |_| {
        lab.calls("n1").lines().count() == 2
    });
    terminal.wait_until_gone("n1: no line came for 20 s");
    assert_eq!(lab.calls("n2").lines().count(), 1);
    agent.kill();
}

#[test]
fn quitting_ends_the_far_agents_and_the_sessions() {
    let lab = SshLab::new();
    let host = Host::new(["H100"]);
    let first = format!("echo $$ >> {}", lab.viewer.path("session").display());
    lab.add_agent("n1", &host, &first);
    lab.add(
        "n2",
        &format!(
            "echo $$ >> {}; exec sleep 1000",
            lab.viewer.path("session").display()
        ),
    );
    let mut terminal = Terminal::run(&mut lab.gputop(["-H", "n1,n2"]), 120, 40);
    terminal.wait_for("H100");
    wait_for_row(&terminal, "n2", "connecting ");
    let text = fs::read_to_string(lab.viewer.path("session")).expect("the sessions have begun");
    let sessions: Vec<ProcessHandle> = text
        .lines()
        .map(|pid| ProcessHandle::open(pid.parse().expect("a PID")))
        .collect();
    assert_eq!(sessions.len(), 2);
    terminal.quit();
    for session in sessions {
        session.wait_for_end();
    }
}

#[test]
fn the_time_of_a_report_counts_from_when_its_hosts_are_connected() {
    let lab = SshLab::new();
    let host = Host::new(["H100"]);
    lab.add_agent("n1", &host, "sleep 7");
    let output = run(&mut lab.gputop(["--once", "-H", "n1,gone", "--timeout", "5s"]));
    let text = output.text();
    assert!(
        text.contains("H100") && text.contains("gone: Could not resolve"),
        "{text}"
    );
    assert!(!text.contains("n1: "), "{text}");
}
