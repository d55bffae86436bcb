//! Sentences for GPUs whose processes are not known, because the driver could not list them.

use crate::output::labels;
use crate::protocol::snapshot::{Cause, Gpu, Missing};

/// Returns why the processes on a GPU are not known; `None` when the driver listed them.
pub(crate) fn reason(gpu: &Gpu) -> Option<&'static str> {
    let cause = gpu.trouble.as_ref().map(|trouble| trouble.cause);
    Some(match (gpu.missing.processes?, cause) {
        (_, Some(Cause::Hung)) => "the GPU does not answer",
        (_, Some(Cause::Lost)) => "the GPU is lost",
        _ if gpu.missing.processes_not_asked => "they were not asked for",
        (Missing::Unsupported | Missing::NotAsked, _) => {
            "the driver cannot list them (WSL 2, vGPU)"
        }
        (Missing::Denied, _) => "the driver refuses to list them here",
        (Missing::NotYet, _) => "not read yet",
        (Missing::Failed | Missing::Gone, _) => "the driver failed to list them",
    })
}

/// Returns a sentence on each reason why processes are not known, as in `processes on GPU 0, 3 are
/// not known: the driver cannot list them (WSL 2, vGPU)`.
pub(crate) fn sentences<'a>(gpus: impl IntoIterator<Item = &'a Gpu>) -> Vec<String> {
    let gpus: Vec<&Gpu> = gpus.into_iter().collect();
    let mut groups: Vec<(&str, Vec<&Gpu>)> = Vec::new();
    for gpu in &gpus {
        let Some(reason) = reason(gpu) else { continue };
        match groups.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, members)) => members.push(gpu),
            None => groups.push((reason, vec![gpu])),
        }
    }
    let sentence = |(reason, members): (&str, Vec<&Gpu>)| {
        let labels: Vec<String> = members.iter().map(|gpu| labels::gpu_label(gpu)).collect();
        let place = if members.len() == gpus.len() && members.len() > 1 {
            "these GPUs".to_owned()
        } else {
            format!("GPU {}", labels.join(", "))
        };
        // A list that was read before, or another list of the driver, names some.
        let is_any_listed = members.iter().any(|gpu| !gpu.processes.is_empty());
        let subject = if is_any_listed {
            "not all processes"
        } else {
            "processes"
        };
        let verb = if is_any_listed {
            "are known"
        } else {
            "are not known"
        };
        format!("{subject} on {place} {verb}: {reason}")
    };
    groups.into_iter().map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::Bytes;
    use crate::protocol::snapshot::example;

    #[test]
    fn each_reason_names_its_gpus() {
        let mut host = example::host(4).with(100, "python train.py", 3, Bytes::from_gib(1));
        let said = |gpus: &[Gpu]| sentences(gpus);
        assert_eq!(said(&host.gpus), <[&str; 0]>::default());
        host.gpus[0].missing.processes = Some(Missing::Unsupported);
        host.gpus[2].missing.processes = Some(Missing::Unsupported);
        host.gpus[3].missing.processes = Some(Missing::Denied);
        assert_eq!(
            said(&host.gpus),
            [
                "processes on GPU 0, 2 are not known: the driver cannot list them (WSL 2, vGPU)",
                "not all processes on GPU 3 are known: the driver refuses to list them here",
            ]
        );
        host.gpus
            .retain(|gpu| gpu.missing.processes == Some(Missing::Unsupported));
        assert_eq!(
            said(&host.gpus),
            ["processes on these GPUs are not known: the driver cannot list them (WSL 2, vGPU)"]
        );
    }
}
