//! The program that wrote a `full` line, and what it is able to do.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Snapshot;
use crate::base::text::Text;

/// The program that wrote a `full` line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentFacts {
    /// The program with its version, as in `gputop 0.1.0`; `nvidia-smi` where a viewer made the line
    /// of its output.
    pub program: Text,
    /// The names of abilities that agents of earlier versions lack: `end_after_silence` for an agent
    /// that ends when its viewer is silent for a time that an `interval` command names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub abilities: Vec<Text>,
}

impl AgentFacts {
    const END_AFTER_SILENCE: &str = "end_after_silence";

    const NVIDIA_SMI: &str = "nvidia-smi";

    /// Returns the facts of this program as an agent.
    pub(crate) fn of_this_program() -> Self {
        Self {
            program: concat!("gputop ", env!("CARGO_PKG_VERSION")).into(),
            abilities: vec![Self::END_AFTER_SILENCE.into()],
        }
    }

    /// Returns the facts of a host where `nvidia-smi` runs in place of an agent.
    pub(crate) fn of_nvidia_smi() -> Self {
        Self {
            program: Self::NVIDIA_SMI.into(),
            abilities: Vec::new(),
        }
    }
}

impl Snapshot {
    /// Whether the agent ends after a silence of its viewer, if asked so.
    pub fn can_end_after_silence(&self) -> bool {
        self.agent.as_ref().is_some_and(|agent| {
            let mut abilities = agent.abilities.iter();
            abilities.any(|ability| ability.as_str() == AgentFacts::END_AFTER_SILENCE)
        })
    }

    /// Whether the readings are those of `nvidia-smi`, because there is no gputop on the host.
    pub fn is_of_nvidia_smi(&self) -> bool {
        self.agent
            .as_ref()
            .is_some_and(|agent| agent.program.as_str() == AgentFacts::NVIDIA_SMI)
    }
}
