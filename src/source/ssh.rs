//! Hosts over the user's own `ssh`: one session for each host, in which an agent runs.

mod command_line;
pub(super) mod first_contact;
mod host_list;
mod host_name;
mod host_tables;
mod lookup;
pub(super) mod masters;
mod nvidia_smi;
pub(super) mod own_program;
mod script;
mod session_opening;
pub(super) mod upload;

use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

pub use self::command_line::SshOptions;
use self::first_contact::{ContactRequest, new_nonce, remote_command};
pub use self::host_list::HostList;
pub(crate) use self::host_list::is_group_name;
pub use self::host_name::HostName;
pub use self::host_tables::SshSettings;
pub(crate) use self::host_tables::{HostTables, NamedHost};
pub(super) use self::lookup::SshRoute;
use self::session_opening::SessionOpening;
use self::upload::UploadFolders;
use tokio::sync::oneshot;

use super::connection::{Connection, ProcessKind, Reporter};
use crate::base::text::Text;
use crate::protocol::agent_options::AgentOptions;

/// A host that ssh connects to.
#[derive(Debug, Clone)]
pub struct SshHost {
    name: HostName,
    settings: Arc<SshSettings>,
    /// The options of the agent there.
    pub(super) agent: AgentOptions,
    /// Whether the user has the host on a screen, which says what is written to the host, and where
    /// the user can log in.
    pub(super) has_screen: bool,
}

/// The control master that a session of ssh uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum UsedMaster {
    /// The master that the user's configuration names, if there is one.
    Configured,
    /// One that gputop has opened, with this socket.
    Own(PathBuf),
    /// None, because it did not answer.
    None,
}

/// How a session of ssh starts.
#[derive(Debug, Clone, Copy)]
pub(super) struct SshStart<'a> {
    pub(super) master: &'a UsedMaster,
    /// Whether the session may run over a control master.
    pub(super) may_use_master: bool,
    /// The name of a copy of this program that may be there.
    pub(super) copy: Option<&'a str>,
    /// Whether `nvidia-smi` stands in if there is no gputop.
    pub(super) falls_back: bool,
}

impl SshHost {
    /// Returns a host with this name, whose agent gets these options.
    pub(crate) fn new(name: HostName, settings: Arc<SshSettings>, agent: AgentOptions) -> Self {
        Self {
            name,
            settings,
            agent,
            has_screen: false,
        }
    }

    /// The name that the user typed.
    pub(crate) fn host_name(&self) -> Text {
        Text::new(self.name.as_str())
    }

    /// The most connects at once to one sshd.
    pub(super) fn connects(&self) -> usize {
        self.settings.connects
    }

    /// Returns the words of a command line with which a person reaches the host, as in `ssh -p 2222
    /// gpu-01`.
    pub(crate) fn command_of_a_person(&self) -> Vec<String> {
        command_line::of_a_person(&self.name, &self.settings.options)
    }

    /// Finds out how ssh reaches the host.
    pub(super) fn route(&self) -> impl Future<Output = SshRoute> + Send + 'static {
        let arguments = command_line::configuration_arguments(&self.name, &self.settings.options);
        let host = self.clone();
        async move {
            let mut route = lookup::route(arguments, host.name.destination()).await;
            route.own_master = host.own_master().await;
            route
        }
    }

    /// Finds a master that `gputop hosts connect` has opened; `None` without one.
    async fn own_master(&self) -> Option<PathBuf> {
        let masters = self.settings.masters.clone()?;
        // Without a socket, ssh need not be asked about this host.
        if masters.sockets().ok()?.is_empty() {
            return None;
        }
        let host = self.clone();
        let (sender, receiver) = oneshot::channel();
        let find = move || {
            let socket = masters.socket(&host).ok();
            let open = socket.filter(|socket| masters::is_open(socket));
            // Nobody waits any more when gputop ends.
            let _ended = sender.send(open);
        };
        let thread = std::thread::Builder::new().name("master".to_owned());
        thread.spawn(find).ok()?;
        receiver.await.ok().flatten()
    }

    /// Whether a copy of this program may be made there.
    pub(super) fn may_get_copy(&self) -> bool {
        self.has_screen && self.settings.upload
    }

    /// The folders that may get the copy.
    pub(super) fn upload_folders(&self) -> UploadFolders {
        if self.settings.uploads_everywhere {
            UploadFolders::All
        } else {
            UploadFolders::Own
        }
    }

    /// The arguments of ssh that say how the host is reached, and its name.
    pub(super) fn destination_arguments(&self) -> Vec<String> {
        command_line::destination_arguments(&self.name, &self.settings.options)
    }

    /// Returns the command that starts ssh, without the command for the host.
    pub(super) fn ssh_command(&self, master: &UsedMaster) -> Command {
        let mut command = Command::new("ssh");
        command.args(command_line::arguments(
            &self.name,
            &self.settings.options,
            master,
        ));
        command
    }

    /// Starts ssh.
    pub(super) fn connect(
        &self,
        start: SshStart<'_>,
        reporter: Reporter,
    ) -> io::Result<Connection> {
        let nonce = new_nonce();
        let request = ContactRequest {
            agent: &self.agent,
            uploaded: start.copy,
            gpu_fields: start.falls_back.then_some(nvidia_smi::FIELDS),
        };
        let mut command = self.ssh_command(start.master);
        command.arg(remote_command(&nonce, &request));
        let opening = SessionOpening::new(self, nonce, start.may_use_master);
        Connection::to_process(command, ProcessKind::Ssh, Some(Box::new(opening)), reporter)
    }

    /// Sets the interval that the agent starts with.
    pub(super) fn set_interval(&mut self, interval: Duration) {
        self.agent.interval = interval;
    }
}
