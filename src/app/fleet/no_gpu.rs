//! The reason why no host has a GPU.

use crate::app::App;
use crate::app::lists::gpu_list::gpu_rows;
use crate::protocol::snapshot::{Cause, Snapshot};

/// Why a host has no GPU to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MissingGpu {
    /// The driver's sentence, after the name of the host if there are several.
    pub sentence: String,
    /// Whether the driver or its library is missing or has failed.
    pub is_trouble: bool,
}

impl App {
    /// Returns why there is no GPU, for each host. `None` while a host has a GPU or a process to
    /// show, or has not answered yet.
    pub(crate) fn missing_gpus(&self) -> Option<Vec<MissingGpu>> {
        let fleet = self.fleet();
        if gpu_rows(fleet).next().is_some() {
            return None;
        }
        let missing: Option<Vec<MissingGpu>> = fleet
            .hosts()
            .map(|(host, model)| {
                let missing = missing_gpu(model.latest()?)?;
                let sentence = if fleet.has_many() {
                    format!("{}: {}", fleet.name(host), missing.sentence)
                } else {
                    missing.sentence
                };
                Some(MissingGpu {
                    sentence,
                    ..missing
                })
            })
            .collect();
        missing.filter(|missing| !missing.is_empty())
    }
}

/// `None` while the driver starts, and with a process to show.
fn missing_gpu(snapshot: &Snapshot) -> Option<MissingGpu> {
    let trouble = snapshot.driver.trouble.as_ref();
    let is_starting = trouble.is_some_and(|trouble| trouble.cause == Cause::Starting);
    (!is_starting && snapshot.processes.is_empty()).then(|| MissingGpu {
        sentence: trouble.map_or_else(
            || "The NVIDIA driver works, and finds no GPU on this host.".to_owned(),
            |trouble| trouble.sentence.to_string(),
        ),
        is_trouble: trouble.is_some(),
    })
}
