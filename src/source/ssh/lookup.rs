//! Asks ssh how it reaches a host: through which server, and whether through a control master.

use std::path::PathBuf;
use std::process::{Command as StdCommand, Stdio};
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use crate::base::detach::detach;

/// How long ssh may take to read its configuration, in which it may run programs.
const PATIENCE: Duration = Duration::from_secs(5);

/// How ssh reaches a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::source) struct SshRoute {
    /// The server that takes the first connection: two hosts with the same text share it.
    pub(in crate::source) server: String,
    /// Whether the session may run over a control master of the user.
    pub(in crate::source) may_use_master: bool,
    /// The socket of a control master that gputop has opened.
    pub(in crate::source) own_master: Option<PathBuf>,
}

impl SshRoute {
    /// The route of a host to which `srun` of this host leads. All such hosts share it: so few steps
    /// begin at once.
    pub(super) fn through_srun() -> Self {
        Self {
            server: "srun".to_owned(),
            may_use_master: false,
            own_master: None,
        }
    }
}

/// Asks `ssh` with these arguments. If it does not answer, the host shares no server: connecting
/// then says why.
pub(super) async fn route(arguments: Vec<String>, host: &str) -> SshRoute {
    let mut command = StdCommand::new("ssh");
    detach(command.args(arguments));
    let output = Command::from(command)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output();
    let text = match timeout(PATIENCE, output).await {
        Ok(Ok(output)) => output.stdout,
        Ok(Err(_)) | Err(_) => Vec::new(),
    };
    parse(&String::from_utf8_lossy(&text), host)
}

/// Parses the output of `ssh -G`: a keyword in lower case and its value on each line.
fn parse(text: &str, host: &str) -> SshRoute {
    let value = |keyword: &str| {
        let values = text.lines().filter_map(|line| line.split_once(' '));
        values
            .filter(|(name, value)| *name == keyword && *value != "none")
            .map(|(_, value)| value.trim())
            .next()
    };
    let server = if let Some(jumps) = value("proxyjump") {
        // The first of several takes all connections.
        format!("jump {}", jumps.split(',').next().unwrap_or(jumps))
    } else if let Some(command) = value("proxycommand") {
        format!("command {command}")
    } else {
        let address = value("hostname").unwrap_or(host);
        format!("{address} {}", value("port").unwrap_or("22"))
    };
    SshRoute {
        server,
        may_use_master: value("controlpath").is_some(),
        own_master: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, server: &str, may_use_master: bool) {
        let route = SshRoute {
            server: server.to_owned(),
            may_use_master,
            own_master: None,
        };
        assert_eq!(parse(text, "gpu-01"), route, "{text}");
    }

    #[test]
    fn hosts_behind_one_jump_host_share_it() {
        check(
            "hostname 10.0.0.1\nport 2222\ncontrolpath none\n",
            "10.0.0.1 2222",
            false,
        );
        check(
            "hostname 10.0.0.1\nproxyjump alice@login,second\ncontrolpath /home/alice/.ssh/%C\n",
            "jump alice@login",
            true,
        );
        check("hostname a\nproxyjump none\nport 22\n", "a 22", false);
        check(
            "hostname a\nproxycommand ssh -W %h:%p login\n",
            "command ssh -W %h:%p login",
            false,
        );
        check("", "gpu-01 22", false);
    }
}
