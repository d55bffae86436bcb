//! Logging in to a host with ssh on the terminal, for a password, a code or a new key.
//!
//! `gputop hosts connect` runs there as if the user had typed it. Meanwhile nothing is drawn, and
//! its process reads what is typed. The lines of the other hosts are taken in as always.

use std::fs::File;
use std::io;
use std::path::Path;
use std::thread;

use tokio::sync::mpsc::UnboundedSender;

use super::SessionInput;
use crate::base::detach::this_gputop;
use crate::base::text::Text;
use crate::protocol::host_key::HostKey;

/// Starts to log in. The result comes as an input of the session.
///
/// # Errors
///
/// When the process or a thread cannot be started.
pub(super) fn start(
    host: HostKey,
    name: &Text,
    config: Option<&Path>,
    inputs: UnboundedSender<SessionInput>,
) -> io::Result<()> {
    let mut command = this_gputop();
    command
        .args(["hosts", "connect", "--from-viewer", "--"])
        .arg(name.as_str())
        // The keys of the session come through its standard input.
        .stdin(File::open("/dev/tty")?);
    if let Some(config) = config {
        command.env("GPUTOP_CONFIG", config);
    }
    let mut child = command.spawn()?;
    thread::Builder::new()
        .name("login".to_owned())
        .spawn(move || {
            let is_open = child.wait().is_ok_and(|status| status.success());
            let _over = inputs.send(SessionInput::LoggedIn(host, is_open));
        })?;
    Ok(())
}
