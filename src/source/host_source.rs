//! A source with its connection, and how it is connected.

use std::io;
use std::time::Duration;

use tokio::time::Instant;

use super::connection::{Connection, Reporter};
use super::ssh::{SshRoute, SshStart, UsedMaster};
use super::{Source, local_agent};

/// How long a host over ssh may be silent, or five of its intervals if that is longer. Then it is
/// connected again. ssh itself does not notice when it runs over a control master whose link is cut.
const LONGEST_SILENCE: Duration = Duration::from_secs(20);

/// The knowledge of gputop on a host over ssh.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum OnHost {
    /// Nothing yet, or it is there.
    #[default]
    Unknown,
    /// It is not there, and is being copied.
    Copying,
    /// It is not there, and cannot be copied: `nvidia-smi` stands in.
    Absent,
}

/// A source and its connection.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact that one connection told about the next"
)]
#[derive(Debug)]
pub(super) struct HostSource {
    pub(super) source: Source,
    pub(super) connection: Connection,
    /// How ssh reaches the host; `None` while it is not known.
    pub(super) route: Option<SshRoute>,
    /// Whether a connection was over, and the user has seen why.
    pub(super) has_ended: bool,
    /// Whether ssh must not use a control master, because it did not answer.
    pub(super) avoids_master: bool,
    /// Whether Slurm has refused a step with GPUs.
    pub(super) was_refused_gpus: bool,
    /// The interval of the agent in milliseconds; `None` while it is not known.
    pub(super) interval_ms: Option<u64>,
    /// Whether the agent ends after a silence of this viewer, if asked so.
    pub(super) can_end_after_silence: bool,
    pub(super) on_host: OnHost,
    /// When the latest line came, or the host has answered; `None` before.
    pub(super) heard: Option<Instant>,
}

impl HostSource {
    pub(super) fn new(source: Source, connection: Connection) -> Self {
        Self {
            source,
            connection,
            route: None,
            has_ended: false,
            avoids_master: false,
            was_refused_gpus: false,
            interval_ms: None,
            can_end_after_silence: false,
            on_host: OnHost::default(),
            heard: None,
        }
    }

    /// Connects the host. `copy` is the name of a copy of this program that may be there.
    pub(super) fn connect(&mut self, copy: Option<&str>, reporter: Reporter) -> io::Result<()> {
        self.heard = None;
        self.connection = match &self.source {
            Source::LocalAgent(options) => local_agent::connect(options, reporter)?,
            Source::Via(via) => via.connect(reporter)?,
            Source::Ssh(host) => {
                let master = self.master();
                let start = SshStart {
                    may_use_master: self.may_use_master(),
                    master: &master,
                    copy,
                    falls_back: self.on_host == OnHost::Absent,
                    gets_gpus: !self.was_refused_gpus,
                };
                host.connect(start, reporter)?
            }
            Source::Recording(recording) => recording.connect(reporter)?,
        };
        Ok(())
    }

    /// The control master of the next session.
    pub(super) fn master(&self) -> UsedMaster {
        let own = self
            .route
            .as_ref()
            .and_then(|route| route.own_master.clone());
        match own {
            _ if self.avoids_master => UsedMaster::None,
            Some(socket) => UsedMaster::Own(socket),
            None => UsedMaster::Configured,
        }
    }

    /// Whether the next session may run over a control master.
    pub(super) fn may_use_master(&self) -> bool {
        match self.master() {
            UsedMaster::Own(_) => true,
            UsedMaster::Configured => self
                .route
                .as_ref()
                .is_some_and(|route| route.may_use_master),
            UsedMaster::None => false,
        }
    }

    /// How long the host may be silent.
    pub(super) fn longest_silence(&self) -> Duration {
        let interval = Duration::from_millis(self.interval_ms.unwrap_or_default());
        LONGEST_SILENCE.max(interval.saturating_mul(5))
    }
}
