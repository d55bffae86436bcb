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
pub(super) mod script;
pub(super) mod script_session;
mod session_opening;
mod srun;
pub(super) mod upload;

use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

pub use self::command_line::SshOptions;
use self::first_contact::{ContactRequest, contact_words, new_nonce};
pub use self::host_list::HostList;
pub(crate) use self::host_list::is_group_name;
pub use self::host_name::HostName;
pub use self::host_tables::SshSettings;
pub(crate) use self::host_tables::{HostTables, NamedHost};
pub(super) use self::lookup::SshRoute;
use self::script::RemoteScript;
use self::session_opening::SessionOpening;
pub(crate) use self::srun::SrunStep;
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
    /// How `srun` starts programs there; `None` where ssh does.
    srun: Option<SrunStep>,
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
    /// Whether a step of Slurm is to have the GPUs of its job.
    pub(super) gets_gpus: bool,
}

/// A shell that runs a script on a host.
#[derive(Debug)]
pub(super) struct HostShell {
    /// The program and its arguments, before the command for the shell.
    command: Command,
    /// The words of a program in the shell that runs the script; empty for none.
    program: Vec<String>,
}

impl HostShell {
    /// Returns a shell of this host.
    pub(super) fn of_this_host() -> Self {
        srun::local_shell().into()
    }

    /// Returns the program and its arguments, which runs a script with these words.
    fn run<'a>(
        mut self,
        script: RemoteScript,
        words: impl IntoIterator<Item = &'a str>,
    ) -> Command {
        self.command.arg(script.command(&self.program, words));
        self.command
    }
}

impl From<Command> for HostShell {
    fn from(command: Command) -> Self {
        let program = Vec::new();
        Self { command, program }
    }
}

impl SshHost {
    /// Returns a host with this name, whose agent gets these options.
    pub(crate) fn new(name: HostName, settings: Arc<SshSettings>, agent: AgentOptions) -> Self {
        Self {
            name,
            settings,
            srun: None,
            agent,
            has_screen: false,
        }
    }

    /// Returns the host with its programs started as steps of a job of Slurm.
    pub(crate) fn with_srun(self, step: SrunStep) -> Self {
        Self {
            srun: Some(step),
            ..self
        }
    }

    /// The host that ssh connects to; `None` where `srun` runs on this host.
    pub(super) fn ssh_name(&self) -> Option<&HostName> {
        match &self.srun {
            None => Some(&self.name),
            Some(step) => step.login.as_ref(),
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
        let options = &self.settings.options;
        let mut words = match self.ssh_name() {
            Some(name) => command_line::of_a_person(name, options),
            None => Vec::new(),
        };
        words.extend(self.srun_words(true));
        words
    }

    /// The words of `srun`; empty where ssh starts programs.
    fn srun_words(&self, gets_gpus: bool) -> Vec<String> {
        match &self.srun {
            None => Vec::new(),
            Some(step) => step.words(&self.name, gets_gpus),
        }
    }

    /// Finds out how ssh reaches the host.
    pub(super) fn route(&self) -> impl Future<Output = SshRoute> + Send + 'static {
        let host = self.clone();
        async move {
            let Some(name) = host.ssh_name() else {
                return SshRoute::through_srun();
            };
            let arguments = command_line::configuration_arguments(name, &host.settings.options);
            let mut route = lookup::route(arguments, name.destination()).await;
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
        let name = self.ssh_name().unwrap_or(&self.name);
        command_line::destination_arguments(name, &self.settings.options)
    }

    /// Returns the words of a command whose input and output are a connection from the host to
    /// `HOST:PORT`.
    pub(super) fn forwarding(&self, target: &str) -> Vec<String> {
        let name = self.ssh_name().unwrap_or(&self.name);
        command_line::forwarding(name, &self.settings.options, target)
    }

    /// Returns the shell of the host: that of ssh, through `srun` where that starts programs.
    pub(super) fn shell(&self, master: &UsedMaster, gets_gpus: bool) -> HostShell {
        let command = match self.ssh_name() {
            None => srun::local_shell(),
            Some(name) => {
                let mut command = Command::new("ssh");
                let options = &self.settings.options;
                command.args(command_line::arguments(name, options, master));
                command
            }
        };
        HostShell {
            command,
            program: self.srun_words(gets_gpus),
        }
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
        let shell = self.shell(start.master, start.gets_gpus);
        let words = contact_words(&nonce, &request);
        let command = shell.run(script::FIRST_CONTACT, words.iter().map(String::as_str));
        let opening = SessionOpening::new(self, nonce, start.may_use_master);
        Connection::to_process(command, ProcessKind::Ssh, Some(Box::new(opening)), reporter)
    }

    /// Sets the interval that the agent starts with.
    pub(super) fn set_interval(&mut self, interval: Duration) {
        self.agent.interval = interval;
    }
}
