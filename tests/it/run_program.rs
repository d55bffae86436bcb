//! `gputop run`: replaces gputop by a program that Python can load the probe into, and changes
//! nothing else.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::host::Host;
use crate::process::{ChildProcess, Output, exit_code, run};

/// A `gputop run` whose cache is a private folder of the host.
pub(crate) fn gputop_run<'a>(host: &Host, arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let cache = host.path("cache");
    fs::create_dir_all(&cache).expect("/tmp has room");
    fs::set_permissions(&cache, Permissions::from_mode(0o700)).expect("the folder is ours");
    let mut command = host.gputop(["run"].into_iter().chain(arguments));
    command
        .env("XDG_CACHE_HOME", cache)
        .env_remove("XDG_RUNTIME_DIR");
    command
}

/// Prints the folder of the probe: the first element of `PYTHONPATH`.
const PRINT_FOLDER: [&str; 4] = ["--", "sh", "-c", "printf %s \"${PYTHONPATH%%:*}\""];

fn probe_folder(output: &Output) -> PathBuf {
    assert_eq!(
        (output.code, output.stderr.as_str()),
        (0, ""),
        "{}",
        output.text()
    );
    PathBuf::from(output.text())
}

#[test]
fn the_program_replaces_gputop_and_gets_its_arguments() {
    let host = Host::new(["H100"]);
    let script = "echo $PYTHONPATH $*; echo $$; echo error >&2; exit 7";
    let arguments = ["--", "sh", "-c", script, "sh", "-lms", "--", "--help", "-x"];
    let mut command = gputop_run(&host, arguments);
    let mut process = ChildProcess::spawn(
        command
            .env("PYTHONPATH", "/a::/b")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    let pid = process.pid();
    let mut read = String::new();
    std::io::Read::read_to_string(
        &mut process.child().stdout.take().expect("stdout is piped"),
        &mut read,
    )
    .expect("the output is UTF-8");
    let folder = probe_folder(&run(&mut gputop_run(&host, PRINT_FOLDER)));
    assert_eq!(
        read,
        format!("{}:/a::/b -lms -- --help -x\n{pid}\n", folder.display())
    );
    assert_eq!(exit_code(process.wait()), 7);
    for arguments in [
        ["sh", "-c", "kill -9 $$"].as_slice(),
        &["--", "sh", "-c", "kill -9 $$"],
    ] {
        assert_eq!(
            run(&mut gputop_run(&host, arguments.iter().copied())).code,
            128 + 9
        );
    }
}

#[test]
fn a_program_that_cannot_be_started_has_the_exit_code_of_a_shell() {
    let host = Host::new(["H100"]);
    let output = run(&mut gputop_run(&host, ["--", "no-such-program"]));
    assert_eq!(output.code, 127);
    assert_eq!(
        output.stderr,
        "gputop: cannot run no-such-program: No such file or directory (os error 2)\n"
    );
    let output = run(&mut gputop_run(&host, ["/"]));
    assert_eq!(
        (output.code, output.stderr.lines().count()),
        (126, 1),
        "{}",
        output.stderr
    );
}

#[test]
fn without_a_path_only_the_probe_is_in_it_and_a_switch_leaves_it_out() {
    let host = Host::new(["H100"]);
    let print = ["sh", "-c", "echo \"${PYTHONPATH-unset}\""];
    for empty in [None, Some("")] {
        let mut command = gputop_run(&host, print);
        let output = run(command.envs(empty.map(|path| ("PYTHONPATH", path))));
        assert!(
            !output.text().contains(':') && output.text().starts_with('/'),
            "{}",
            output.text()
        );
    }
    let output = run(gputop_run(&host, print).env("GPUTOP_PROBE", "0"));
    assert_eq!(
        (output.text().as_str(), output.stderr.as_str()),
        ("unset\n", "")
    );
}

#[test]
fn the_folder_is_private_and_its_files_are_those_of_the_binary() {
    let host = Host::new(["H100"]);
    let folder = probe_folder(&run(&mut gputop_run(&host, PRINT_FOLDER)));
    assert_eq!(folder.parent(), Some(host.path("cache").as_path()));
    assert_eq!(
        fs::metadata(&folder)
            .expect("the folder exists")
            .permissions()
            .mode()
            & 0o777,
        0o700
    );
    let embedded = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/probe/sitecustomize.py");
    if let Ok(embedded) = fs::read(embedded) {
        let unpacked = folder.join("sitecustomize.py");
        for damage in ["", "import torch\n"] {
            fs::write(&unpacked, damage).expect("the folder is ours");
            run(&mut gputop_run(&host, PRINT_FOLDER));
            assert!(
                fs::read(&unpacked).is_ok_and(|bytes| bytes == embedded),
                "after {damage:?}"
            );
        }
    }
    // Another user could have created a folder that everyone may enter.
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).expect("the folder is ours");
    let runtime = host.path("runtime");
    fs::create_dir(&runtime).expect("/tmp has room");
    let other = probe_folder(&run(
        gputop_run(&host, PRINT_FOLDER).env("XDG_RUNTIME_DIR", &runtime)
    ));
    assert_eq!(other.parent(), Some(runtime.as_path()));
}

#[test]
fn a_cache_that_other_users_may_change_is_not_used() {
    let host = Host::new(["H100"]);
    let (shared, runtime) = (host.path("shared"), host.path("runtime"));
    for folder in [&shared, &runtime] {
        fs::create_dir(folder).expect("/tmp has room");
    }
    fs::set_permissions(&shared, Permissions::from_mode(0o777)).expect("the folder is ours");
    let mut command = gputop_run(&host, PRINT_FOLDER);
    let output = run(command
        .env("XDG_CACHE_HOME", shared.join("cache"))
        .env("XDG_RUNTIME_DIR", &runtime));
    assert_eq!(probe_folder(&output).parent(), Some(runtime.as_path()));
}
