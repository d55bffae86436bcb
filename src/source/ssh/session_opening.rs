//! The lines of a session of ssh, or of a step of `srun`, before those of the agent.

use std::time::Duration;

use tokio::time::Instant;

use super::SshHost;
use super::first_contact::{FirstContact, Found};
use super::nvidia_smi::NvidiaSmiReader;
use crate::base::text::Text;
use crate::protocol::line::Line;
use crate::source::opening::{Ending, HostWithoutGputop, Opening, OpeningLine};
use crate::source::schedule::NextTry;
use crate::source::ssh_messages;

/// The most bytes that are skipped before the marker.
const MOST_BYTES: usize = 1 << 20;

/// How long the marker may take over a control master, which is connected already.
const PATIENCE_OVER_MASTER: Duration = Duration::from_secs(5);

/// How long the marker may take otherwise: ssh connects, logs in, and starts a shell whose files may
/// be slow.
const PATIENCE: Duration = Duration::from_secs(20);

/// The program that starts steps of jobs.
const SRUN: &str = "srun";

/// Waits for the marker.
#[derive(Debug)]
pub(super) struct SessionOpening {
    host: String,
    /// `ssh` or `srun`.
    program: &'static str,
    has_screen: bool,
    nonce: String,
    /// Whether ssh may have used a control master.
    may_be_over_master: bool,
    /// The time between two rounds of `nvidia-smi`.
    interval: Duration,
    deadline: Instant,
    /// The bytes that were skipped.
    bytes: usize,
    has_answered: bool,
}

impl SessionOpening {
    pub(super) fn new(host: &SshHost, nonce: String, may_be_over_master: bool) -> Self {
        let patience = if may_be_over_master {
            PATIENCE_OVER_MASTER
        } else {
            PATIENCE
        };
        Self {
            host: host.ssh_name().unwrap_or(&host.name).to_string(),
            program: if host.srun.is_some() { SRUN } else { "ssh" },
            has_screen: host.has_screen,
            nonce,
            may_be_over_master,
            interval: host.agent.interval,
            deadline: Instant::now() + patience,
            bytes: 0,
            has_answered: false,
        }
    }
}

impl Opening for SessionOpening {
    fn take<'a>(&mut self, line: &'a [u8]) -> OpeningLine<'a> {
        let Some(contact) = FirstContact::parse(line, &self.nonce) else {
            self.bytes += line.len() + 1;
            return if self.bytes > MOST_BYTES {
                OpeningLine::Over(Ending::new(
                    "its shell writes without an end before gputop can start",
                ))
            } else {
                OpeningLine::Skipped
            };
        };
        self.has_answered = true;
        match &contact.found {
            Found::Gputop { path, .. } => OpeningLine::Answered(path.clone()),
            Found::NvidiaSmi => {
                let mut reader = NvidiaSmiReader::new(self.host.as_str().into(), self.interval);
                OpeningLine::Translated(Box::new(move |line| {
                    Ok(reader
                        .read(line)?
                        .map(|snapshot| Line::Full(Box::new(snapshot))))
                }))
            }
            Found::Nothing {
                has_nvidia_smi,
                folder,
            } => OpeningLine::Over(Ending {
                lacks_gputop: Some(Box::new(HostWithoutGputop {
                    system: contact.system.clone(),
                    glibc: contact.glibc.map(|version| version.to_string().into()),
                    folder: folder.clone(),
                    has_nvidia_smi: *has_nvidia_smi,
                })),
                ..Ending::new("no gputop there")
            }),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        Some(self.deadline)
    }

    fn timed_out(&self) -> Ending {
        if self.may_be_over_master {
            return Ending {
                blames_master: true,
                ..Ending::new(
                    "no answer within 5 s, perhaps because of a control master of yours; the next try is without one",
                )
            };
        }
        Ending::new(if self.program == SRUN {
            "no answer within 20 s: Slurm may have no room for a step of the job"
        } else {
            "no answer within 20 s: its login shell may hang"
        })
    }

    fn ended(&self, last_lines: &[Text]) -> Ending {
        let (reason, next) = ssh_messages::reason(&self.host, last_lines, self.has_screen)
            .unwrap_or_else(|| {
                let subject = if self.has_answered {
                    "the agent"
                } else {
                    self.program
                };
                let words = format!("{subject} ended without a word");
                (Text::from(words.as_str()), NextTry::ByItself)
            });
        // An agent that has answered cannot make its host wait for the user.
        let next = if self.has_answered {
            NextTry::ByItself
        } else {
            next
        };
        Ending {
            next,
            blames_gpus: self.program == SRUN && ssh_messages::refuses_gpus(last_lines),
            ..Ending::new(reason.as_str())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::protocol::agent_options::{AgentOptions, SimulatedMachine};

    fn opening(over_master: bool) -> SessionOpening {
        let name = "gpu-01".parse().unwrap();
        let agent = AgentOptions {
            interval: Duration::from_secs(1),
            nvml_lib: None,
            demo: SimulatedMachine::None,
            readonly: false,
            detail: false,
            only: Vec::new(),
            shares_lines: false,
        };
        let host = SshHost::new(name, Arc::default(), agent);
        SessionOpening::new(&host, "abc".to_owned(), over_master)
    }

    #[test]
    fn lines_before_the_marker_are_skipped_but_not_without_end() {
        let mut opening = opening(false);
        for noise in [
            "Welcome to gpu-01",
            "",
            "gputop-other\tLinux x86_64\t\tgputop\t1\t/x",
        ] {
            assert!(
                matches!(opening.take(noise.as_bytes()), OpeningLine::Skipped),
                "{noise}"
            );
        }
        let marker = "gputop-abc\tLinux x86_64\tglibc 2.36\tgputop\tgputop 0.1.0\t/usr/bin/gputop";
        assert!(matches!(
            opening.take(marker.as_bytes()),
            OpeningLine::Answered(path) if path.as_str() == "/usr/bin/gputop"
        ));
        let mut endless = self::opening(false);
        let long = vec![b'x'; 1 << 16];
        let lines = (0..17).take_while(|_| matches!(endless.take(&long), OpeningLine::Skipped));
        assert_eq!(lines.count(), 15);
    }

    #[test]
    fn a_host_without_gputop_and_a_session_that_is_silent_end_with_a_sentence() {
        let mut opening = opening(true);
        let marker = b"gputop-abc\tLinux x86_64\t\tnothing\t\t/home/alice/.cache/gputop";
        assert!(matches!(
            opening.take(marker),
            OpeningLine::Over(ending) if ending.reason.as_str() == "no gputop there"
        ));
        assert!(opening.timed_out().blames_master);
        let slow = self::opening(false);
        assert!(!slow.timed_out().blames_master);
        assert!(slow.deadline() > opening.deadline());
    }

    #[test]
    fn a_refusal_waits_for_the_user_only_before_the_host_has_answered() {
        let refusal = [Text::from("alice@gpu-01: Permission denied (publickey).")];
        let mut opening = opening(false);
        assert_eq!(opening.ended(&refusal).next, NextTry::OnRequest);
        opening.has_answered = true;
        assert_eq!(opening.ended(&refusal).next, NextTry::ByItself);
    }
}
