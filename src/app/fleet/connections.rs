//! The connections to other hosts, and the words about a host from which no data comes.

use std::time::Duration;

use super::host_trouble::HostTrouble;
use crate::app::App;
use crate::base::time::ViewerTime;
use crate::base::units::Elapsed;
use crate::protocol::connection_state::ConnectionState;
use crate::protocol::host_key::HostKey;

/// The connection to another host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostConnection {
    state: ConnectionState,
    /// How long the connection has had this state.
    age: Duration,
}

impl HostConnection {
    /// The state in a few words, such as `connecting 4s`; `None` while there is nothing to say.
    fn words(self) -> Option<String> {
        match self.state {
            ConnectionState::Waiting => Some("waiting".to_owned()),
            ConnectionState::Connecting => Some(format!("connecting {}", Elapsed(self.age))),
            ConnectionState::Copying => Some(format!("copying gputop {}", Elapsed(self.age))),
            // The key that logs in depends on the view.
            ConnectionState::Answered | ConnectionState::NeedsLogin => None,
            ConnectionState::TriesAgain(after) => {
                let left = after.saturating_sub(self.age);
                Some(if left.is_zero() {
                    "waiting".to_owned()
                } else {
                    // Rounded up: a try in less than a second is not one now.
                    let left =
                        Duration::from_secs(left.as_secs() + u64::from(left.subsec_nanos() > 0));
                    format!("tries again in {}", Elapsed(left))
                })
            }
            ConnectionState::WaitsForUser => Some("Ctrl-R tries again".to_owned()),
        }
    }
}

impl App {
    /// Remembers the state of a connection.
    pub(in crate::app) fn note_connection(&mut self, host: HostKey, state: ConnectionState) {
        let connection = HostConnection {
            state,
            age: Duration::ZERO,
        };
        self.connections.insert(host, connection);
    }

    /// Notes that lines of a host come.
    pub(in crate::app) fn note_lines(&mut self, host: HostKey) {
        if self.connections.contains_key(&host) {
            self.note_connection(host, ConnectionState::Answered);
        }
    }

    /// Lets time pass.
    pub(in crate::app) fn advance_connections(&mut self, elapsed: ViewerTime) {
        for connection in self.connections.values_mut() {
            connection.age += elapsed.duration();
        }
    }

    /// Whether a host is another one, whose connection has a state.
    pub(crate) fn is_other_host(&self, host: HostKey) -> bool {
        self.connections.contains_key(&host)
    }

    /// Whether the user can log in to a host.
    pub(in crate::app) fn needs_login(&self, host: HostKey) -> bool {
        let connection = self.connections.get(&host);
        connection.is_some_and(|connection| connection.state == ConnectionState::NeedsLogin)
    }

    /// The host that Enter logs in to while the lists have no row, which needs no choice.
    pub(in crate::app) fn login_without_rows(&self) -> Option<HostKey> {
        let fleet = self.fleet();
        if fleet.hosts().any(|(_, model)| model.latest().is_some()) {
            return None;
        }
        let mut hosts = fleet.hosts().map(|(host, _)| host);
        hosts.find(|host| self.needs_login(*host))
    }

    /// Whether a host waits until others are connected, or until it has a copy of gputop.
    pub(super) fn waits_for_others(&self, host: HostKey) -> bool {
        self.connections.get(&host).is_some_and(|connection| {
            matches!(
                connection.state,
                ConnectionState::Waiting | ConnectionState::Copying
            )
        })
    }

    /// Why no data comes from a host, and what gputop does about it, as in `connect timed out; tries
    /// again in 20s` or `frozen 12s`; `None` while data comes. Does not repeat what its command wrote
    /// to its standard error.
    pub(crate) fn host_words(&self, host: HostKey) -> Option<String> {
        let connection = self.connections.get(&host);
        let trouble = match self.trouble(host) {
            // A host that does not answer may still answer a connect.
            Some(HostTrouble::Silent(silence)) if connection.is_some() => {
                Some(format!("frozen {}", Elapsed(silence)))
            }
            Some(HostTrouble::NeverAnswered(_))
                if connection.is_some_and(|connection| connection.words().is_some()) =>
            {
                None
            }
            trouble => trouble.map(|trouble| trouble.to_string()),
        };
        let state = match connection {
            Some(_) if self.needs_login(host) => {
                let keys = if self.is_fleet_view() || self.login_without_rows() == Some(host) {
                    "Enter logs in"
                } else {
                    "f and Enter log in"
                };
                Some(keys.to_owned())
            }
            connection => connection.and_then(|connection| connection.words()),
        };
        match (trouble, state) {
            (Some(trouble), Some(state)) => Some(format!("{trouble}; {state}")),
            (trouble, state) => trouble.or(state),
        }
    }
}
