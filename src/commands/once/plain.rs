//! The report as sentences, for screen readers: each figure has its name, nothing depends on a
//! column, and missing values are words.

use std::fmt::Display;

use super::HostReport;
use crate::app::lists::{unknown_processes, unread_stats};
use crate::base::text::Text;
use crate::base::units::{Bytes, Elapsed, Percent, Watts};
use crate::model::{self, GpuOrProcess, HostModel, LeakVerdict, Verdict};
use crate::output::labels;
use crate::output::labels::visible_gpus::sees_some;
use crate::output::table::command;
use crate::protocol::snapshot::{
    AllocatorUnreadable, Gpu, GpuProcess, Missing, Process, Reading, SharedMemory, Snapshot,
};

/// Returns the whole report; `unreached` says why other hosts are not in it.
pub(super) fn format(hosts: &[HostReport<'_>], unreached: &[Text]) -> String {
    let mut text = hosts.iter().map(format_host).collect::<Vec<_>>().join("\n");
    text.extend(
        unreached
            .iter()
            .map(|reason| format!("Trouble: {reason}.\n")),
    );
    text
}

fn format_host(report: &HostReport<'_>) -> String {
    let HostReport {
        both_names,
        model,
        snapshot,
        reasons,
        ..
    } = report;
    let mut lines = vec![host_sentence(both_names, snapshot)];
    if snapshot.gpus.iter().any(|gpu| gpu.facts.simulated) {
        lines.push("This is a simulated machine: none of these GPUs exists.".to_owned());
    }
    lines.extend(sees_some(snapshot).map(|words| format!("The agent {words}.")));
    let troubles = [&snapshot.driver.trouble]
        .into_iter()
        .chain(report.gpus().map(|(_, gpu)| &gpu.trouble))
        .flatten();
    lines.extend(
        troubles
            .map(|trouble| &trouble.sentence)
            .chain(reasons)
            .map(|sentence| format!("Trouble: {sentence}.")),
    );
    lines
        .extend(Verdict::summary(model.verdicts()).map(|summary| format!("Watch out: {summary}.")));
    for (_, gpu) in report.gpus() {
        lines.push(gpu_sentence(model, gpu));
        if let Some(reason) = unknown_processes::reason(gpu) {
            let none_or_some = if gpu.processes.is_empty() {
                "The"
            } else {
                "Some"
            };
            lines.push(format!(
                "{none_or_some} processes on GPU {} are not known: {reason}.",
                labels::gpu_label(gpu)
            ));
        }
        let mut gpu_processes: Vec<&GpuProcess> = gpu.processes.iter().collect();
        gpu_processes.sort_by_key(|gpu_process| std::cmp::Reverse(gpu_process.memory.ok()));
        lines.extend(
            gpu_processes
                .into_iter()
                .map(|used| process_sentence(model, snapshot, gpu, used)),
        );
        let mut unaccounted = model
            .unaccounted()
            .iter()
            .filter(|_| report.processes.is_all());
        if let Some(unaccounted) = unaccounted.find(|unaccounted| unaccounted.gpu == gpu.uuid) {
            let number = labels::gpu_label(gpu);
            lines.push(format!(
                "Unaccounted on GPU {number}: {}, held by no listed process.",
                unaccounted.memory
            ));
        }
    }
    if report.gpus().next().is_some() && report.gpus().all(|(_, gpu)| gpu.processes.is_empty()) {
        let is_any_unknown = report
            .gpus()
            .any(|(_, gpu)| gpu.missing.processes.is_some());
        let sentence = match report.processes.is_all() {
            false => "No process matches the filter.",
            true if is_any_unknown => "No process is known to use a GPU.",
            true => "No process uses a GPU.",
        };
        lines.push(sentence.to_owned());
    }
    lines.extend(
        unread_stats::sentences_about(&[*snapshot])
            .into_iter()
            .map(|sentence| sentence + "."),
    );
    lines.join("\n") + "\n"
}

fn host_sentence(name: &str, snapshot: &Snapshot) -> String {
    let (host, driver) = (&snapshot.host, &snapshot.driver);
    let version = |version: &Option<Text>| {
        version
            .as_ref()
            .map_or_else(|| "unknown".to_owned(), Text::to_string)
    };
    format!(
        "Host {name}: driver {}, CUDA {}, processors {} busy, memory {} of {} in use.",
        version(&driver.version),
        version(&driver.cuda_version),
        percent(host.load.cpu),
        describe(&host.load.memory_used),
        describe(&host.load.memory_total),
    )
}

fn gpu_sentence(model: &HostModel, gpu: &Gpu) -> String {
    let (load, health) = (&gpu.load, &gpu.health);
    let memory = match gpu.shared_memory {
        Some(SharedMemory { used, total }) => {
            format!("{used} of {total} in use of the host's memory, which it shares")
        }
        None => format!(
            "memory {} of {} in use",
            describe(&load.memory_used),
            describe(&load.memory_total)
        ),
    };
    format!(
        "GPU {}, {}: {memory}, a kernel ran {} of the time, temperature {}, power {}, health {}.",
        labels::gpu_label(gpu),
        describe(&gpu.facts.name),
        percent(load.sm),
        describe(
            &load
                .temperature
                .map(|temperature| format!("{} degrees Celsius", temperature.0))
        ),
        power(load.power, health.power_limit),
        model.health(gpu).phrase,
    )
}

fn process_sentence(
    model: &HostModel,
    snapshot: &Snapshot,
    gpu: &Gpu,
    gpu_process: &GpuProcess,
) -> String {
    let id = gpu_process.process;
    let process = snapshot.process(id);
    let show =
        |show: &dyn Fn(&Process) -> String| process.map_or_else(|| "unknown".to_owned(), show);
    let verdict = model.verdict(id).filter(|verdict| verdict.is_suspect());
    let verdict = verdict.map(|verdict| format!(" {}: {}.", verdict.word(), verdict.sentence()));
    let leak = model
        .growth(&GpuOrProcess::Process(id))
        .filter(|growth| matches!(growth.verdict(), LeakVerdict::Leak | LeakVerdict::Filling));
    let leak = leak.map(|growth| format!(" Its memory: {}.", growth.sentence()));
    format!(
        "Process {} of {} on GPU {}: memory {}, kernels ran {} of the time, started {} ago, runs {}.{}{}{}",
        id.pid,
        show(&|process| describe(&process.facts.user)),
        labels::gpu_label(gpu),
        describe(&gpu_process.memory),
        percent(gpu_process.sm),
        show(&|process| labels::elapsed(snapshot, process)
            .map_or("unknown".to_owned(), |age| Elapsed(age).to_string())),
        show(&command),
        process
            .and_then(|process| pytorch(snapshot, gpu, process, gpu_process.memory))
            .unwrap_or_default(),
        verdict.unwrap_or_default(),
        leak.unwrap_or_default(),
    )
}

/// Returns a sentence on the memory that PyTorch has reserved; `None` if the process does not run
/// PyTorch, or if its allocator has not been read.
fn pytorch(
    snapshot: &Snapshot,
    gpu: &Gpu,
    process: &Process,
    used: Reading<Bytes>,
) -> Option<String> {
    let stats = process.allocator.as_ref()?;
    let has_unknown_gpu = stats.devices.iter().any(|device| device.gpu.is_none());
    match stats.unreadable {
        Some(AllocatorUnreadable::NoPytorch) => return None,
        Some(reason) => {
            return Some(format!(
                " PyTorch's memory: {}.",
                describe(&Err::<Missing, _>(reason.missing()))
            ));
        }
        None => {}
    }
    let reserved = model::reserved(snapshot, process.id, (!has_unknown_gpu).then_some(gpu))?;
    let (sum, allocated) = (reserved.sum(), reserved.allocated);
    let scope = match used {
        _ if has_unknown_gpu => "on its GPUs, without telling on which",
        Ok(used) if used < sum => "by its own account",
        _ => "of it",
    };
    let unallocated = sum.saturating_sub(allocated);
    Some(format!(
        " PyTorch has {sum} {scope}: {allocated} allocated, {unallocated} unallocated."
    ))
}

fn percent(share: Reading<Percent>) -> String {
    describe(&share.map(|share| format!("{:.0} percent", share.value())))
}

fn power(drawn: Reading<Watts>, limit: Reading<Watts>) -> String {
    match (drawn, limit) {
        (Ok(drawn), Ok(limit)) => format!("{:.0} of {:.0} watts", drawn.value(), limit.value()),
        (drawn, _) => describe(&drawn.map(|power| format!("{:.0} watts", power.value()))),
    }
}

/// Returns a reading, or the reason why it is missing in words.
fn describe(reading: &Reading<impl Display>) -> String {
    match reading {
        Ok(value) => value.to_string(),
        Err(Missing::Unsupported) => "not reported".to_owned(),
        Err(Missing::NotAsked) => "not asked for".to_owned(),
        Err(Missing::Gone) => "unknown".to_owned(),
        Err(Missing::Denied) => "not permitted to be read".to_owned(),
        Err(Missing::Failed) => "not readable though it should be".to_owned(),
        Err(Missing::NotYet) => "not read yet".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::live::chosen_processes::ChosenProcesses;
    use crate::protocol::snapshot::{AllocatorStats, DeviceAllocator, example};

    fn of_box(model: &HostModel, snapshot: &Snapshot) -> String {
        format(
            &[HostReport {
                name: "box",
                both_names: "box",
                model,
                snapshot,
                reasons: Vec::new(),
                ids: &[],
                processes: &ChosenProcesses::default(),
            }],
            &[],
        )
    }

    #[test]
    fn every_figure_has_its_name() {
        let mut host = example::host(1).with(100, "python train.py", 0, Bytes::from_gib(20));
        host.gpus[0].load.power = Err(Missing::Failed);
        let gib = |gib| Ok(Bytes::from_gib(gib));
        let (allocated, active, requested) = (gib(10), gib(10), gib(10));
        let figures = DeviceAllocator::missing(0, Some(host.gpus[0].uuid.clone()), Missing::NotYet);
        let figures = DeviceAllocator {
            allocated,
            active,
            requested,
            inactive_split: gib(0),
            reserved: gib(18),
            ..figures
        };
        host.processes[0].allocator = Some(
            AllocatorStats {
                devices: vec![figures],
                unreadable: None,
            }
            .into(),
        );
        let mut model = HostModel::default();
        model.replace(host);
        let text = of_box(&model, model.latest().unwrap());
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "Host box: driver 580.65.06, CUDA 13.0, processors 12 percent busy, memory 100 GiB of 512 GiB in use.",
                "GPU 0, NVIDIA H100 80GB HBM3: memory 20.0 GiB of 80.0 GiB in use, a kernel ran 50 percent of the time, \
                 temperature 50 degrees Celsius, power not readable though it should be, health ERR.",
                "Process 100 of alice on GPU 0: memory 20.0 GiB, kernels ran 40 percent of the time, started 16m39s ago, \
                 runs python train.py. PyTorch has 18.0 GiB of it: 10.0 GiB allocated, 8.0 GiB unallocated.",
            ]
        );
        let mut snapshot = model.latest().unwrap().clone();
        let sentence = |snapshot: &Snapshot, used| {
            pytorch(snapshot, &snapshot.gpus[0], &snapshot.processes[0], used)
        };
        let more = Some(
            " PyTorch has 18.0 GiB by its own account: 10.0 GiB allocated, 8.0 GiB unallocated."
                .to_owned(),
        );
        assert_eq!(sentence(&snapshot, gib(2)), more);
        snapshot.processes[0].allocator.as_mut().unwrap().devices[0].gpu = None;
        let somewhere = " PyTorch has 18.0 GiB on its GPUs, without telling on which: 10.0 GiB allocated, 8.0 GiB unallocated.";
        assert_eq!(sentence(&snapshot, gib(20)).as_deref(), Some(somewhere));
        snapshot.processes[0].allocator =
            Some(AllocatorStats::unreadable(AllocatorUnreadable::OtherUser).into());
        assert_eq!(
            sentence(&snapshot, gib(20)).as_deref(),
            Some(" PyTorch's memory: not permitted to be read.")
        );
        let last = of_box(&model, &snapshot).lines().last().map(str::to_owned);
        let way_out = "PyTorch's part of the memory of 1 process is not known: it belongs to another user: \
                       run gputop as that user or as root.";
        assert_eq!(last.as_deref(), Some(way_out));
    }
}
