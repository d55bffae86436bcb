//! Hosts over ssh without gputop: they get a copy, or `nvidia-smi` stands in.

use std::fs;
use std::path::Path;

use crate::host::Host;
use crate::print_note;
use crate::process::{run, wait_until};
use crate::ssh_hosts::{SshLab, far_session};
use crate::terminal::Terminal;

/// Whether this machine has a gputop, which each host would find.
fn has_gputop() -> bool {
    let installed = ["/usr/bin/gputop", "/usr/local/bin/gputop"]
        .into_iter()
        .find(|path| Path::new(path).exists());
    if let Some(path) = installed {
        print_note(format!("skipped, because {path} is installed"));
    }
    installed.is_some()
}

/// Returns a script that runs the far command on a host without gputop, with these programs.
fn session_without_gputop(host: &Host, programs: &str) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_gputop"));
    let folder = program.parent().expect("the program is in a folder");
    let folder = format!("{}:", folder.display());
    let script = far_session(host);
    assert!(script.contains(&folder), "{script}");
    let home = host.path("");
    script
        .replace(&folder, &format!("{programs}:"))
        .replace(" sh -c", &format!(" HOME={} sh -c", home.display()))
}

fn copies(host: &Host) -> Vec<String> {
    let files = fs::read_dir(host.path(".cache/gputop"));
    let files = files.into_iter().flatten();
    files
        .map(|file| {
            let name = file.expect("an entry").file_name();
            name.to_string_lossy().into_owned()
        })
        .collect()
}

#[test]
fn a_host_gets_a_copy_after_its_row_has_said_where() {
    if has_gputop() {
        return;
    }
    let lab = SshLab::new();
    let host = Host::new(["H100"]);
    lab.add("n1", &session_without_gputop(&host, "/nowhere"));
    let mut screen = Terminal::run(&mut lab.gputop(["-H", "n1"]), 140, 30);
    screen.wait_for("copies gputop");
    screen.wait_for("--no-upload forbids it");
    assert_eq!(copies(&host), [""; 0], "nothing is written before");
    screen.wait_for("H100");
    screen.quit();
    assert!(
        matches!(&copies(&host)[..], [copy] if copy.starts_with("gputop-")),
        "{:?}",
        copies(&host)
    );

    // A report makes no copy, and finds this one.
    let output = run(&mut lab.gputop(["--json", "-H", "n1"]));
    assert_eq!(output.code, 0, "{}{}", output.text(), output.stderr);
    assert!(output.text().contains("end_after_silence"));

    let output = run(&mut lab.gputop(["hosts", "clean", "n1"]));
    assert!(
        output.text().starts_with("n1: removed "),
        "{}{}",
        output.text(),
        output.stderr
    );
    assert_eq!(copies(&host), [""; 0]);

    // Hosts are named as everywhere else.
    fs::write(host.path("lab.txt"), "n1\n").expect("/tmp has room");
    let file = host.path("lab.txt").display().to_string();
    for hosts in [["-H", "n1"], ["--host", "n[1]"], ["--hosts", file.as_str()]] {
        let output = run(&mut lab.gputop(["hosts", "clean"].into_iter().chain(hosts)));
        assert_eq!(
            output.text(),
            "n1: there was no copy\n",
            "{}",
            output.stderr
        );
    }
    let nobody = run(&mut lab.gputop(["hosts", "clean"]));
    assert_eq!(nobody.code, 2, "{}", nobody.stderr);
}

#[test]
fn nvidia_smi_stands_in_where_there_may_be_no_copy() {
    if has_gputop() {
        return;
    }
    let lab = SshLab::new();
    let host = Host::new([]);
    host.install_script(
        "nvidia-smi",
        "#!/bin/sh\nwhile echo '1, 0, GPU-a, NVIDIA H100 80GB HBM3, 00000000:18:00.0, 590.48.01, 81559, 19818, 61263, 100, 11, 59, \
         631.95, 700.00, 1980, 2619, P0, [N/A]'; do sleep 1; done\n",
    );
    let programs = host.path("").display().to_string();
    lab.add("n1", &session_without_gputop(&host, &programs));
    let mut screen = Terminal::run(&mut lab.gputop(["-H", "n1", "--no-upload"]), 140, 30);
    screen.wait_for("nvidia-smi only, without processes: no gputop there");
    screen.wait_for("H100 80GB");
    screen.quit();
    let output = run(&mut lab.gputop(["--json", "-H", "n1"]));
    assert!(
        output.text().contains(r#""program":"nvidia-smi""#),
        "{}{}",
        output.text(),
        output.stderr
    );
    assert_eq!(copies(&host), [""; 0]);
}

#[test]
fn a_host_without_gputop_and_nvidia_smi_says_so() {
    if has_gputop() {
        return;
    }
    let lab = SshLab::new();
    let host = Host::new([]);
    lab.add("n1", &session_without_gputop(&host, "/nowhere"));
    let mut screen = Terminal::run(&mut lab.gputop(["-H", "n1", "--no-upload"]), 140, 30);
    screen.wait_for("no gputop there; Ctrl-R tries again");
    screen.quit();
    wait_until("nothing is on the host", || copies(&host).is_empty());
}
