//! The readings of a snapshot that failed, and the exit code of a report on it.

use super::Exit;
use crate::protocol::snapshot::{
    Cause, DeviceAllocator, EccCounts, Failure, Gpu, GpuDetail, Missing, Process, Snapshot,
};

impl Exit {
    /// Returns the exit code for a snapshot. `is_all` says whether the snapshot is complete.
    pub(crate) fn of_snapshot(snapshot: &Snapshot, is_all: bool) -> Self {
        match snapshot
            .driver
            .trouble
            .as_ref()
            .map(|trouble| trouble.cause)
        {
            Some(
                Cause::NoLibrary
                | Cause::NotLoading
                | Cause::NoDriver
                | Cause::Mismatch
                | Cause::Denied,
            ) => Self::NoDriver,
            Some(Cause::NoGpu) => Self::NoGpu,
            Some(_) => Self::Partial,
            None if snapshot.gpus.is_empty() => Self::NoGpu,
            None if snapshot.gpus.iter().any(|gpu| gpu.trouble.is_some()) => Self::Partial,
            None if !is_all || !failed_readings(snapshot).is_empty() => Self::Partial,
            None => Self::Success,
        }
    }
}

/// Returns the readings that failed, and why, as in `fan_percent of GPU 0
/// (nvmlDeviceGetFanSpeed_v2: an unknown error)`. Leaves out GPUs in trouble, which the report
/// names anyway.
pub(crate) fn failed_readings(snapshot: &Snapshot) -> Vec<String> {
    let host = &snapshot.host;
    let of_host = host
        .facts
        .failed()
        .chain(host.scan.failed())
        .chain(host.load.failed());
    let host = part("the host", &of_host.collect::<Vec<_>>(), &[]);
    let driver = part("the driver", &[], &snapshot.driver.failures);
    let gpus = snapshot.gpus.iter().filter(|gpu| gpu.trouble.is_none());
    let gpus = gpus.map(|gpu| {
        part(
            &format!("GPU {}", gpu.facts.index),
            &of_gpu(gpu),
            &gpu.failures,
        )
    });
    let processes = snapshot.processes.iter();
    let processes = processes.map(|process| {
        part(
            &format!("process {}", process.id.pid),
            &of_process(process),
            &[],
        )
    });
    [host, driver]
        .into_iter()
        .chain(gpus)
        .chain(processes)
        .flatten()
        .collect()
}

fn of_gpu(gpu: &Gpu) -> Vec<&'static str> {
    let mut failed: Vec<_> = gpu.facts.failed().chain(gpu.load.failed()).collect();
    failed.extend(gpu.health.failed());
    failed.extend(gpu.detail.iter().flat_map(|detail| of_detail(detail)));
    failed.extend(gpu.processes.iter().flat_map(|gpu_process| {
        let memory = gpu_process.memory == Err(Missing::Failed);
        let sm = gpu_process.sm == Err(Missing::Failed);
        let memory = memory.then_some("memory_used_bytes");
        memory
            .into_iter()
            .chain(sm.then_some("sm_utilization_percent"))
    }));
    failed.extend((gpu.missing.processes == Some(Missing::Failed)).then_some("processes"));
    failed
}

fn of_detail(detail: &GpuDetail) -> Vec<&'static str> {
    let GpuDetail {
        corrected,
        corrected_ever,
        uncorrected,
        uncorrected_ever,
        ..
    } = detail;
    let counts = [corrected, corrected_ever, uncorrected, uncorrected_ever];
    detail
        .failed()
        .chain(counts.into_iter().flat_map(EccCounts::failed))
        .collect()
}

fn of_process(process: &Process) -> Vec<&'static str> {
    let devices = process.allocator.iter().flat_map(|stats| &stats.devices);
    let of_devices = devices.flat_map(DeviceAllocator::failed);
    process
        .facts
        .failed()
        .chain(process.load.failed())
        .chain(of_devices)
        .collect()
}

/// Returns what failed in one part of a snapshot; `None` if nothing did.
fn part(owner: &str, failed: &[&str], failures: &[Failure]) -> Option<String> {
    let why = why(failures);
    match failed {
        [] if why.is_empty() => None,
        // The failed call returns no reading.
        [] => Some(format!("{owner} in part{why}")),
        some @ ([_] | [_, _]) => Some(format!("{} of {owner}{why}", some.join(" and "))),
        many => Some(format!("{} readings of {owner}{why}", many.len())),
    }
}

/// Returns the calls that failed, in parentheses; empty if there are none.
fn why(failures: &[Failure]) -> String {
    let failures = failures
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    if failures.is_empty() {
        failures
    } else {
        format!(" ({failures})")
    }
}

#[cfg(test)]
mod tests {
    use proptest::test_runner::{RngAlgorithm, TestRng};
    use serde_json::{Value, json};

    use super::*;
    use crate::base::units::Moment;
    use crate::protocol::snapshot::arbitrary::Arbitrary;
    use crate::protocol::snapshot::{Trouble, example};

    fn trouble(cause: Cause) -> Trouble {
        Trouble {
            cause,
            sentence: "no luck".into(),
            call: None,
            since: Moment(0),
        }
    }

    #[test]
    fn a_driver_in_trouble_has_an_exit_code() {
        let host = example::host(2);
        assert_eq!(Exit::of_snapshot(&host, true), Exit::Success);
        assert_eq!(Exit::of_snapshot(&host, false), Exit::Partial);
        assert_eq!(Exit::of_snapshot(&example::host(0), true), Exit::NoGpu);

        for (cause, exit) in [
            (Cause::NoLibrary, Exit::NoDriver),
            (Cause::Mismatch, Exit::NoDriver),
            (Cause::Hung, Exit::Partial),
        ] {
            let mut host = example::host(0);
            host.driver.trouble = Some(trouble(cause));
            assert_eq!(Exit::of_snapshot(&host, true), exit, "{cause}");
        }
    }

    #[test]
    fn one_gpu_or_reading_in_trouble_makes_the_report_partial() {
        let mut lost = example::host(2);
        lost.gpus[1].trouble = Some(trouble(Cause::Lost));
        assert_eq!(Exit::of_snapshot(&lost, true), Exit::Partial);

        let mut reading = example::host(2);
        reading.gpus[1].load.power = Err(Missing::Unsupported);
        assert_eq!(Exit::of_snapshot(&reading, true), Exit::Success);
        reading.gpus[1].load.power = Err(Missing::Failed);
        assert_eq!(Exit::of_snapshot(&reading, true), Exit::Partial);
    }

    /// Returns how often a JSON tree says that a reading failed.
    fn count(value: &Value) -> usize {
        let failed = |(name, value): (&String, &Value)| match value {
            Value::Object(missing) if name == "missing" => {
                missing.values().filter(|why| *why == "failed").count()
            }
            value => count(value),
        };
        match value {
            Value::Object(fields) => fields.iter().map(failed).sum(),
            Value::Array(values) => values.iter().map(count).sum(),
            _ => 0,
        }
    }

    #[test]
    fn each_reading_that_failed_in_the_json_is_named() {
        let mut random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let mut some = 0;
        for _ in 0..64 {
            let gpu = Gpu::arbitrary(&mut random);
            let process = Process::arbitrary(&mut random);
            assert_eq!(of_gpu(&gpu).len(), count(&json!(gpu)), "{gpu:?}");
            assert_eq!(
                of_process(&process).len(),
                count(&json!(process)),
                "{process:?}"
            );
            some += of_gpu(&gpu).len();
        }
        assert!(some > 0);
    }
}
