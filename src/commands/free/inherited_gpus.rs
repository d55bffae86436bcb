//! The GPUs that `CUDA_VISIBLE_DEVICES` leaves to this process. A scheduler, a container or a
//! person has set it: the other GPUs are somebody else's.

use std::env;

use super::{ORDER_VARIABLE, VARIABLE, is_lost};
use crate::protocol::snapshot::{Gpu, GpuUuid};
use crate::protocol::visible_gpus::CudaVariables;

pub(super) struct InheritedGpus {
    visible: String,
    order: Option<String>,
}

impl InheritedGpus {
    /// Returns `None` if the variable is not set: all GPUs may be used then.
    pub(super) fn from_env() -> Option<Self> {
        let variable = |name| env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        Some(Self {
            visible: variable(VARIABLE)?,
            order: variable(ORDER_VARIABLE),
        })
    }

    /// Returns the GPUs and instances that may be used. The error says why that is not certain.
    pub(super) fn visible<'a>(&self, gpus: &'a [Gpu]) -> Result<Vec<&'a GpuUuid>, String> {
        let variables = CudaVariables {
            visible: Some(&self.visible),
            order: self.order.as_deref(),
        };
        let lost = gpus
            .iter()
            .find(|gpu| is_lost(gpu) && variables.has_numbers());
        let reason = match (lost, variables.visible_gpus(gpus)) {
            (None, Some(places)) => {
                return Ok(places.into_iter().map(|place| &gpus[place].uuid).collect());
            }
            (Some(lost), _) => format!("GPU {} is lost", lost.facts.index),
            (None, None) => {
                format!(
                    "the GPUs here are of several models, and {ORDER_VARIABLE} is not {}",
                    super::BUS_ORDER
                )
            }
        };
        Err(format!(
            "which GPUs {VARIABLE}={} means is not certain, because {reason}: name them by UUID, as `gputop -L` does",
            self.visible
        ))
    }

    /// Returns the beginning of a sentence on the GPUs of this host.
    pub(super) fn sentence_start(&self) -> String {
        format!("within {VARIABLE}={}, ", self.visible)
    }
}
