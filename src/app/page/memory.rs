//! The breakdown of GPU memory on the page of a process or a GPU: a bar, and lines that add up.

use super::{PageLine, Writer};
use crate::base::units::Bytes;
use crate::model::{Breakdown, HostModel, MemoryPart, ReservedMemory, with_instances};
use crate::output::labels;
use crate::protocol::snapshot::{
    AllocatorUnreadable, DeviceAllocator, Gpu, Process, Reading, Snapshot,
};

/// The most bytes that CUDA and its libraries take of each GPU without the program asking for
/// memory.
const CONTEXT: i64 = 4 << 30;

const MORE_THAN_DRIVER: &str =
    "PyTorch took more than the driver says: read at another moment, or it does not tell all";

/// Said where only the memory is known that PyTorch reserved: its cache hides what tensors hold.
const UNSEEN_LEAK: &str = "so a leak shows only once it is larger than PyTorch's cache; \
     started with `gputop run`, the program shows it from the first step on";

/// Writes the allocator stats of a process, or why they are not known.
pub(super) fn of_process(writer: &mut Writer, model: &HostModel, process: &Process) {
    let (Some(snapshot), Some(stats)) = (model.latest(), &process.allocator) else {
        return;
    };
    // The probe's figures stand in for allocator stats.
    if let Some(why) = stats
        .unreadable
        .filter(|_| process.fresh_report(snapshot.at).is_none())
    {
        writer.field("PyTorch", why);
        if !matches!(
            why,
            AllocatorUnreadable::NoPytorch | AllocatorUnreadable::Copied
        ) {
            writer.field("", UNSEEN_LEAK);
        }
    }
    for allocator in &stats.devices {
        of_allocator(writer, snapshot, process, allocator);
    }
    let is_placed = stats.devices.iter().all(|device| device.gpu.is_some());
    for gpu in snapshot
        .gpus
        .iter()
        .filter(|_| is_placed && !stats.devices.is_empty())
    {
        let is_used = stats
            .devices
            .iter()
            .any(|device| device.gpu.as_ref() == Some(&gpu.uuid));
        let gpu_process = gpu
            .processes
            .iter()
            .find(|gpu_process| gpu_process.process == process.id && !is_used);
        if let Some(memory) = gpu_process.and_then(|gpu_process| gpu_process.memory.ok()) {
            writer.head(&format!("Memory on GPU {}", labels::gpu_label(gpu)));
            amounts(
                writer,
                "- not PyTorch's",
                signed(memory),
                "all: PyTorch has nothing there, CUDA has a context",
            );
        }
    }
    if !is_placed
        && let Some(process_total) = model
            .process_totals()
            .iter()
            .find(|total| total.process == process.id)
        && let Some(whole) = Breakdown::of_process(snapshot, process_total)
    {
        writer.head("Memory on all its GPUs");
        of_driver(writer, &whole, process_total.gpus.len());
        let reserved: i64 = whole
            .parts
            .iter()
            .filter(|part| part.0 != MemoryPart::Outside)
            .map(|part| part.1)
            .sum();
        amounts(
            writer,
            "- reserved",
            reserved,
            "the rest: what PyTorch took from CUDA",
        );
    }
}

/// Writes the driver's figure and the part that is not PyTorch's, where only the probe has figures.
pub(super) fn of_probe(writer: &mut Writer, model: &HostModel, process: &Process) {
    let has_stats = process
        .allocator
        .as_ref()
        .is_some_and(|stats| !stats.devices.is_empty());
    let process_total = model.process_total(process.id).filter(|_| !has_stats);
    let whole = process_total.and_then(|total| {
        Some((
            Breakdown::of_process(model.latest()?, total)?,
            total.gpus.len(),
        ))
    });
    if let Some((whole, gpus)) = whole {
        of_driver(writer, &whole, gpus);
    }
}

/// Writes the driver's figure for this many GPUs, and the part that is not PyTorch's.
fn of_driver(writer: &mut Writer, whole: &Breakdown, gpus: usize) {
    writer
        .lines
        .extend([PageLine::Bar(whole.clone()), PageLine::Legend]);
    amounts(
        writer,
        "driver's figure",
        signed(whole.whole),
        "what nvidia-smi shows: all of the lines below",
    );
    let outside = whole.part(MemoryPart::Outside);
    let contexts = CONTEXT.saturating_mul(i64::try_from(gpus).unwrap_or(1));
    let meaning = match outside {
        ..0 => MORE_THAN_DRIVER,
        bytes if bytes <= contexts => "CUDA context, kernels, NCCL, other libraries",
        _ => "more than CUDA takes for itself: another library allocates beside PyTorch",
    };
    amounts(writer, "- not PyTorch's", outside, meaning);
}

fn of_allocator(
    writer: &mut Writer,
    snapshot: &Snapshot,
    process: &Process,
    allocator: &DeviceAllocator,
) {
    let gpu = allocator.gpu.as_ref().and_then(|uuid| snapshot.gpu(uuid));
    head_of_allocator(writer, gpu, allocator.device);
    let reserved = match ReservedMemory::of(allocator) {
        Ok(reserved) => reserved,
        Err(why) => return writer.field("PyTorch", why),
    };
    let gpu_process = gpu.and_then(|gpu| {
        gpu.processes
            .iter()
            .find(|gpu_process| gpu_process.process == process.id)
    });
    let whole =
        gpu_process.map(|gpu_process| Breakdown::of_gpu_process(gpu_process.memory, allocator));
    match &whole {
        Some(Ok(whole)) => of_driver(writer, whole, 1),
        Some(Err(why)) => writer.field(
            "driver's figure",
            format!("{why}: what is not PyTorch's cannot be told"),
        ),
        None => (),
    }
    let rest = if matches!(whole, Some(Ok(_))) {
        "the rest: what PyTorch took from CUDA"
    } else {
        "what PyTorch took from CUDA"
    };
    amounts(writer, "- reserved", signed(reserved.sum()), rest);
    for (part, bytes) in reserved.parts().into_iter().rev() {
        let (name, meaning) = words(part);
        amounts(writer, &format!("  - {name}"), signed(bytes), meaning);
    }
    let rounding = "of allocated and pending: more than was asked for";
    amounts(writer, "    rounding", signed(reserved.rounding), rounding);
    peaks_and_retries(writer, allocator);
    if let Some(advice) = advice(allocator, &reserved) {
        writer.field("what to try", advice);
    }
}

/// Writes the heading of a CUDA device; `gpu` is `None` if it is not known which GPU it is.
fn head_of_allocator(writer: &mut Writer, gpu: Option<&Gpu>, device: u32) {
    match gpu {
        Some(gpu) => {
            writer.head(&format!(
                "Memory on GPU {}, PyTorch's cuda:{device}",
                labels::gpu_label(gpu)
            ));
        }
        None => {
            writer.head(&format!("Memory of PyTorch's cuda:{device}"));
            writer.field(
                "which GPU",
                "cannot be told: neither its environment nor the amounts say which of them it is",
            );
        }
    }
    if gpu.is_some_and(|gpu| gpu.facts.simulated) {
        writer.field(
            "simulated",
            "no PyTorch runs there: these figures belong to --demo",
        );
    }
}

fn peaks_and_retries(writer: &mut Writer, allocator: &DeviceAllocator) {
    let peak =
        |peak: Reading<Bytes>| peak.map_or_else(|why| why.to_string(), |peak| peak.to_string());
    let peaks = (
        peak(allocator.allocated_peak),
        peak(allocator.reserved_peak),
    );
    writer.field(
        "peaks",
        format!(
            "allocated {}, reserved {}, since it began or reset them",
            peaks.0, peaks.1
        ),
    );
    if let (Ok(retries), Ok(ooms)) = (allocator.retries, allocator.ooms) {
        let text = format!(
            "the cache was emptied {retries} times for want of memory, in vain {ooms} times"
        );
        writer.field(
            "retries",
            if retries == 0 && ooms == 0 {
                "none: there was always memory"
            } else {
                &text
            },
        );
    }
}

pub(super) fn of_gpu(writer: &mut Writer, model: &HostModel, gpu: &Gpu) {
    let Some(snapshot) = model.latest() else {
        return;
    };
    let Ok(whole) = Breakdown::of_gpu(snapshot, gpu, model.unaccounted()) else {
        return;
    };
    writer.head("Where it is");
    writer
        .lines
        .extend([PageLine::Bar(whole.clone()), PageLine::Legend]);
    // The rest may be nothing where no process uses PyTorch.
    for (part, bytes) in whole
        .parts
        .iter()
        .filter(|part| **part != (MemoryPart::Outside, 0))
    {
        let (name, meaning) = words(*part);
        let meaning = match part {
            MemoryPart::Outside if *bytes < 0 => MORE_THAN_DRIVER,
            MemoryPart::Undivided => why_undivided(snapshot, gpu),
            _ => meaning,
        };
        amounts(writer, name, *bytes, meaning);
    }
    amounts(writer, "total", signed(whole.whole), "all of these");
}

fn words(part: MemoryPart) -> (&'static str, &'static str) {
    match part {
        MemoryPart::Allocated => ("allocated", "held by tensors"),
        MemoryPart::Pending => ("pending", "freed, awaited by another stream"),
        MemoryPart::Fragmented => (
            "fragmented",
            "free, but not releasable: a part of its segment is in use",
        ),
        MemoryPart::Cache => ("cache", "free: empty_cache() would give it back"),
        MemoryPart::Undivided => ("in use", "of processes whose PyTorch figures are not known"),
        MemoryPart::Outside => (
            "other",
            "not PyTorch's: CUDA contexts, kernels, other libraries",
        ),
        MemoryPart::Unaccounted => ("unaccounted", "in use, by no listed process"),
        MemoryPart::Driver => ("driver", "held by the driver"),
        MemoryPart::Free => ("free", "not in use"),
    }
}

/// Explains why PyTorch's part of the memory of some processes on a GPU is not known.
fn why_undivided(snapshot: &Snapshot, gpu: &Gpu) -> &'static str {
    let stats = |process| {
        snapshot
            .process(process)
            .and_then(|process| process.allocator.as_deref())
    };
    let gpu_processes = || with_instances(snapshot, gpu).flat_map(|gpu| &gpu.processes);
    let all_stats = || gpu_processes().map(|gpu_process| stats(gpu_process.process));
    // A process without PyTorch has no stats, and those of a forked worker are a copy of its
    // parent's.
    let needs_no_stats = |why| {
        matches!(
            why,
            AllocatorUnreadable::NoPytorch | AllocatorUnreadable::Copied
        )
    };
    let is_unread = all_stats().any(|stats| {
        stats.is_none_or(|stats| stats.unreadable.is_some_and(|why| !needs_no_stats(why)))
    });
    let is_unplaced = all_stats()
        .flatten()
        .flat_map(|stats| &stats.devices)
        .any(|device| device.gpu.is_none());
    if with_instances(snapshot, gpu).any(|gpu| gpu.missing.processes.is_some()) {
        return "of processes that the driver does not list, or that could not be read";
    }
    match (is_unread, is_unplaced) {
        (false, false) => "of processes without PyTorch",
        (true, false) => "of processes that could not be read, or without PyTorch",
        (_, true) => "of processes of which it cannot be told on which GPU PyTorch has its memory",
    }
}

pub(super) fn signed(bytes: Bytes) -> i64 {
    bytes.0.min(1 << 60).cast_signed()
}

/// Writes an amount and its meaning, which continues below itself on a narrow screen.
pub(super) fn amounts(writer: &mut Writer, label: &str, bytes: i64, meaning: &str) {
    writer.hanging(label, amount(bytes, meaning), 10 + 1 + 17 + 2);
}

/// Formats an amount with its unit and to the byte, so that the lines can be added up.
fn amount(bytes: i64, meaning: &str) -> String {
    let digits = bytes.unsigned_abs().to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .filter_map(|group| str::from_utf8(group).ok())
        .collect();
    let sign = if bytes < 0 { "-" } else { "" };
    let (short, exact) = (
        format!("{sign}{}", Bytes(bytes.unsigned_abs())),
        format!("{sign}{}", groups.join(",")),
    );
    format!("{short:>10} {exact:>17}  {meaning}")
        .trim_end()
        .to_owned()
}

/// Returns advice about a part that is larger than it should be; `None` if there is none.
fn advice(allocator: &DeviceAllocator, reserved: &ReservedMemory) -> Option<&'static str> {
    let free = Bytes(reserved.fragmented.0.saturating_add(reserved.cache.0));
    let share = |bytes: Bytes| bytes.share_of(reserved.sum());
    match () {
        () if share(reserved.fragmented) > Some(0.2)
            || allocator.retries.is_ok_and(|retries| retries > 0) && share(free) > Some(0.2) =>
        {
            Some(
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or inputs of like lengths: free pieces do not fit",
            )
        }
        () if share(reserved.cache) > Some(0.5) => Some(
            "torch.cuda.empty_cache() once, where others need the memory; this process would take it again",
        ),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_read_at_a_glance_and_added_up_to_the_byte() {
        assert_eq!(
            amount(20_971_520, "cache"),
            "  20.0 MiB        20,971,520  cache"
        );
        assert_eq!(amount(-512, ""), "    -512 B              -512");
    }
}
