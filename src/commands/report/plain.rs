//! The report as sentences, for those who have a screen read to them: a line for each thing, each figure with its name,
//! nothing that must be seen in a column. What cannot be known is said in words.

use std::fmt::Display;

use super::table;
use crate::app::unread_stats;
use crate::base::text::Text;
use crate::base::units::{Bytes, Elapsed, Moment, Percent, Watts};
use crate::model::{self, GpuOrProcess, HostModel, LeakVerdict, Verdict};
use crate::protocol::snapshot::{AllocatorUnreadable, Gpu, GpuProcess, Missing, Process, Reading, Snapshot};

/// The whole report; `reasons` say why it is not all there is.
pub(super) fn of(model: &HostModel, snapshot: &Snapshot, reasons: &[Text]) -> String {
    let mut lines = vec![host(snapshot)];
    if snapshot.gpus.iter().any(|gpu| gpu.facts.simulated) {
        lines.push("This is a simulated machine: none of these GPUs exists.".to_owned());
    }
    let troubles = [&snapshot.driver.trouble].into_iter().chain(snapshot.gpus.iter().map(|gpu| &gpu.trouble)).flatten();
    lines.extend(troubles.map(|trouble| &trouble.sentence).chain(reasons).map(|it| format!("Trouble: {it}.")));
    lines.extend(Verdict::summary(model.verdicts()).map(|summary| format!("Watch out: {summary}.")));
    for it in &snapshot.gpus {
        lines.push(gpu(model, it));
        let mut gpu_processes: Vec<&GpuProcess> = it.processes.iter().collect();
        gpu_processes.sort_by_key(|gpu_process| std::cmp::Reverse(gpu_process.memory.ok()));
        lines.extend(gpu_processes.into_iter().map(|held| gpu_process(model, snapshot, it, held)));
        if let Some(unaccounted) = model.unaccounted().iter().find(|left| left.gpu == it.uuid) {
            lines.push(format!(
                "Unaccounted on GPU {}: {}, held by no listed process.",
                table::number(it),
                unaccounted.memory
            ));
        }
    }
    if !snapshot.gpus.is_empty() && snapshot.gpus.iter().all(|it| it.processes.is_empty()) {
        lines.push("No process uses a GPU.".to_owned());
    }
    lines.extend(unread_stats::sentences_about(std::iter::once(snapshot)).into_iter().map(|it| it + "."));
    lines.join("\n") + "\n"
}

fn host(snapshot: &Snapshot) -> String {
    let (host, driver) = (&snapshot.host, &snapshot.driver);
    let version = |version: &Option<Text>| version.as_ref().map_or_else(|| "unknown".to_owned(), Text::to_string);
    format!(
        "Host {}: driver {}, CUDA {}, processors {} busy, memory {} of {} in use.",
        host.facts.name,
        version(&driver.version),
        version(&driver.cuda_version),
        percent(host.load.cpu),
        said(&host.load.memory_used),
        said(&host.load.memory_total),
    )
}

fn gpu(model: &HostModel, gpu: &Gpu) -> String {
    let (load, health) = (&gpu.load, &gpu.health);
    format!(
        "GPU {}, {}: memory {} of {} in use, a kernel ran {} of the time, temperature {}, power {}, health {}.",
        table::number(gpu),
        said(&gpu.facts.name),
        said(&load.memory_used),
        said(&load.memory_total),
        percent(load.sm),
        said(&load.temperature.map(|it| format!("{} degrees Celsius", it.0))),
        power(load.power, health.power_limit),
        model.health(gpu).phrase,
    )
}

fn gpu_process(model: &HostModel, snapshot: &Snapshot, gpu: &Gpu, gpu_process: &GpuProcess) -> String {
    let id = gpu_process.process;
    let process = snapshot.process(id);
    let of = |show: &dyn Fn(&Process) -> String| process.map_or_else(|| "unknown".to_owned(), show);
    let since = id.start_ticks.and_then(|it| it.saturating_mul(1000).checked_div(snapshot.host.facts.ticks_per_second));
    let since = since.map_or_else(|| "unknown".to_owned(), |it| Elapsed(snapshot.at.since(Moment(it))).to_string());
    let verdict =
        model.verdict(id).filter(|it| it.is_suspect()).map(|it| format!(" {}: {}.", it.word(), it.sentence()));
    let leak = model.growth(&GpuOrProcess::Process(id)).filter(|it| it.verdict() == LeakVerdict::Leak);
    let leak = leak.map(|it| format!(" Its memory: {}.", it.sentence()));
    format!(
        "Process {} of {} on GPU {}: memory {}, kernels ran {} of the time, started {since} ago, runs {}.{}{}{}",
        id.pid,
        of(&|it| said(&it.facts.user)),
        table::number(gpu),
        said(&gpu_process.memory),
        percent(gpu_process.sm),
        of(&table::command),
        process.and_then(|it| pytorch(snapshot, gpu, it, gpu_process.memory)).unwrap_or_default(),
        verdict.unwrap_or_default(),
        leak.unwrap_or_default(),
    )
}

/// What of it PyTorch has; absent where it runs none, or nobody looked.
fn pytorch(snapshot: &Snapshot, gpu: &Gpu, process: &Process, held: Reading<Bytes>) -> Option<String> {
    let peek = process.allocator.as_ref()?;
    let parts = |it: &model::ReservedMemory| {
        format!("{} allocated, {} unallocated", it.allocated, it.sum().saturating_sub(it.allocated))
    };
    Some(match peek.unreadable {
        Some(AllocatorUnreadable::NoPytorch) => return None,
        Some(why) => format!(" What PyTorch has of it: {}.", said(&Err::<Missing, _>(why.missing()))),
        None if peek.devices.iter().any(|it| it.gpu.is_none()) => {
            let it = model::reserved(snapshot, process.id, None)?;
            format!(" PyTorch has {} on its GPUs, on which cannot be told: {}.", it.sum(), parts(&it))
        }
        None => {
            let it = model::reserved(snapshot, process.id, Some(gpu))?;
            let of_it = if held.is_ok_and(|held| held < it.sum()) { "by its own account" } else { "of it" };
            format!(" PyTorch has {} {of_it}: {}.", it.sum(), parts(&it))
        }
    })
}

fn percent(share: Reading<Percent>) -> String {
    said(&share.map(|it| format!("{:.0} percent", it.value())))
}

fn power(drawn: Reading<Watts>, limit: Reading<Watts>) -> String {
    match (drawn, limit) {
        (Ok(drawn), Ok(limit)) => format!("{:.0} of {:.0} watts", drawn.value(), limit.value()),
        (drawn, _) => said(&drawn.map(|it| format!("{:.0} watts", it.value()))),
    }
}

/// A reading, or in words why there is none.
fn said(reading: &Reading<impl Display>) -> String {
    match reading {
        Ok(value) => value.to_string(),
        Err(Missing::Unsupported) => "not reported".to_owned(),
        Err(Missing::Gone) => "unknown".to_owned(),
        Err(Missing::Denied) => "not permitted to be read".to_owned(),
        Err(Missing::Failed) => "not readable though it should be".to_owned(),
        Err(Missing::NotYet) => "not read yet".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::snapshot::{AllocatorStats, DeviceAllocator, example};

    #[test]
    fn each_figure_has_its_name_and_nothing_needs_a_column() {
        let mut host = example::host(1).with(100, "python train.py", 0, Bytes::from_gib(20));
        host.gpus[0].load.power = Err(Missing::Failed);
        let gib = |gib| Ok(Bytes::from_gib(gib));
        let (allocated, active, requested) = (gib(10), gib(10), gib(10));
        let figures = DeviceAllocator::missing(0, Some(host.gpus[0].uuid.clone()), Missing::NotYet);
        let figures =
            DeviceAllocator { allocated, active, requested, inactive_split: gib(0), reserved: gib(18), ..figures };
        host.processes[0].allocator = Some(AllocatorStats { devices: vec![figures], unreadable: None }.into());
        let mut model = HostModel::default();
        model.replace(host);
        let text = of(&model, model.latest().unwrap(), &[]);
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
        let said = |snapshot: &Snapshot, held| pytorch(snapshot, &snapshot.gpus[0], &snapshot.processes[0], held);
        let more =
            Some(" PyTorch has 18.0 GiB by its own account: 10.0 GiB allocated, 8.0 GiB unallocated.".to_owned());
        assert_eq!(said(&snapshot, gib(2)), more);
        snapshot.processes[0].allocator.as_mut().unwrap().devices[0].gpu = None;
        let somewhere =
            " PyTorch has 18.0 GiB on its GPUs, on which cannot be told: 10.0 GiB allocated, 8.0 GiB unallocated.";
        assert_eq!(said(&snapshot, gib(20)).as_deref(), Some(somewhere));
        snapshot.processes[0].allocator = Some(AllocatorStats::unreadable(AllocatorUnreadable::OtherUser).into());
        assert_eq!(said(&snapshot, gib(20)).as_deref(), Some(" What PyTorch has of it: not permitted to be read."));
        let last = of(&model, &snapshot, &[]).lines().last().map(str::to_owned);
        let way_out = "PyTorch's part of the memory of 1 process is not known: it belongs to another user: \
                       run gputop as that user or as root.";
        assert_eq!(last.as_deref(), Some(way_out));
    }
}
