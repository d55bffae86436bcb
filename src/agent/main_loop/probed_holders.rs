//! Processes that the driver does not list (WSL 2, containers), but whose probe reports memory of a
//! GPU that they have open.

use crate::protocol::snapshot::{Gpu, GpuProcess, Missing, ProbeReport, Process, ProcessId, Use};

/// Whether a process has a GPU open, and no GPU lists it.
pub(super) fn is_unlisted_holder(id: ProcessId, gpus: &[Gpu]) -> bool {
    gpus.iter().all(|gpu| gpu.process(id).is_none())
        && gpus.iter().any(|gpu| gpu.device_file_holders.contains(&id))
}

/// Adds these processes to the GPUs that their reports name. The driver does not tell their memory.
pub(super) fn list_by_probe(gpus: &mut [Gpu], processes: &[Process]) {
    let reports: Vec<(ProcessId, &ProbeReport)> = processes
        .iter()
        .filter(|process| is_unlisted_holder(process.id, gpus))
        .filter_map(|process| Some((process.id, process.probe.as_ref()?.report.as_ref()?)))
        .collect();
    for gpu in gpus
        .iter_mut()
        .filter(|gpu| !gpu.missing.processes_not_asked)
    {
        let is_used = |report: &ProbeReport| {
            report
                .devices
                .iter()
                .any(|device| device.gpu.as_ref() == Some(&gpu.uuid))
        };
        let found = reports.iter().filter(|(_, report)| is_used(report));
        let found: Vec<GpuProcess> = found
            .map(|(id, _)| GpuProcess {
                process: *id,
                usage: Use::Compute,
                memory: Err(Missing::Unsupported),
                sm: Err(Missing::Unsupported),
                engines: None,
                names: None,
            })
            .collect();
        gpu.processes.extend(found);
    }
}
