//! Logging in to a host that asks for a password: Enter on its row gives ssh the terminal.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::host::{GIB, Host};
use crate::ssh_hosts::{SshLab, far_session};
use crate::terminal::Terminal;

/// A host whose password is `secret`, with a socket for its control master. `$arguments` are those
/// of ssh.
const ASKING: &str = r#"
case "$arguments" in
    *"-M "*)
        printf 'password, try %d: ' "$(grep -c -e '-M ' asks.calls)" > /dev/tty
        read -r answer < /dev/tty
        if [ "$answer" != secret ]; then
            echo "alice@asks: Permission denied (password)." >&2
            exit 255
        fi
        exec python3 -c "import socket; socket.socket(socket.AF_UNIX).bind('$SSH_LAB/run/gputop/$NAME')" ;;
    *ControlPath=*/run/gputop/*) ;;
    *) echo "alice@asks: Permission denied (publickey,password)." >&2; exit 255 ;;
esac
"#;

/// The name of the socket, which ssh makes of the destination.
const NAME: &str = "0123456789abcdef0123456789abcdef01234567";

#[test]
fn enter_on_a_host_that_asks_for_a_password_gives_ssh_the_terminal() {
    let lab = SshLab::new();
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, 3 * GIB);
    for name in ["a", "b"] {
        lab.add_agent(name, &host, "");
    }
    lab.add(
        "asks",
        &format!("NAME={NAME}{ASKING}{}", far_session(&host)),
    );
    // `ssh -O check` names no host: a master is open if its socket is there.
    lab.add("master", "exit 0");
    let runtime = lab.path("run");
    let masters = runtime.join("gputop");
    fs::create_dir_all(&masters).expect("/tmp has room");
    for folder in [&runtime, &masters] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).expect("it is ours");
    }
    lab.write(
        "asks.config",
        &format!("controlpath {}/{NAME}\n", masters.display()),
    );
    let mut command = lab.gputop(["-H", "a,asks,b"]);
    let mut terminal = Terminal::run(command.env("XDG_RUNTIME_DIR", &runtime), 100, 30);
    terminal.wait_for("asks for a password; Enter logs in");
    // The filter leaves only this host.
    terminal.keys("/asks\r");
    terminal.wait_until_gone("\nb ");
    terminal.keys("\r");
    terminal.wait_for("password, try 1: ");
    // All that is typed goes to ssh: `q` would quit gputop.
    terminal.keys("q\r");
    terminal.wait_for("Enter goes back to gputop");
    terminal.keys("\r");
    terminal.wait_for("asks for a password; Enter logs in");
    terminal.wait_for("asks is not connected");
    terminal.keys("\r");
    terminal.wait_for("password, try 2: ");
    terminal.keys("secret\r");
    terminal.wait_for("3 hosts  3 GPUs");
    terminal.keys("q");
    assert!(terminal.wait_for_exit().success());
    assert_eq!(terminal.modes(), terminal.modes_before());
    assert!(masters.join(NAME).exists(), "gputop ends no master");
}
