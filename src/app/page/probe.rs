//! The part of a process's page that the probe fills: categories of memory, steps, leaks and the
//! largest tensors.

use super::memory::{self, amounts, signed};
use super::{PageLine, Writer, probe_task, program_marks};
use crate::app::keys::probe_task::AskedTask;
use crate::base::text::Text;
use crate::base::units::{Bytes, Elapsed};
use crate::model::{HostModel, TensorLayer};
use crate::output::labels::{self, tensors};
use crate::protocol::snapshot::{
    AllocatorUnreadable, ProbeDevice, ProbeMissing, ProbeReport, Process, Snapshot, TensorCategory,
    TensorGroup, TensorLeak,
};

/// The label of the sentence that says why there is no report.
const INSIDE: &str = "inside PyTorch";
/// The age in seconds from which the page says that categories are older than the rest of the
/// report.
const OLD_READING: f64 = 5.0;
/// The most groups of tensors on the page.
const MOST_GROUPS: usize = 12;

/// The leaks that the probe of a process found.
pub(super) fn found_leaks(process: &Process) -> impl Iterator<Item = &TensorLeak> {
    let report = process
        .probe
        .as_ref()
        .and_then(|probe| probe.report.as_ref());
    report.into_iter().flat_map(|report| &report.leaks)
}

/// Writes one line for each leak, for the first screenful of the page.
pub(super) fn leaks_in_short(writer: &mut Writer, process: &Process) {
    for leak in found_leaks(process) {
        let held_by = leak
            .held_by
            .first()
            .map_or_else(String::new, |holder| format!(", held by {holder}"));
        writer.field(
            "leak",
            format!("{}{held_by} (more below)", tensors::leak(leak)),
        );
    }
}

/// Writes the last report of the probe, or why there is none.
pub(super) fn describe(
    writer: &mut Writer,
    model: &HostModel,
    process: &Process,
    asked: Option<&AskedTask>,
) {
    let Some(probe) = &process.probe else { return };
    let Some(report) = &probe.report else {
        let uses_torch = process.allocator.as_ref().is_some_and(|stats| {
            !stats.devices.is_empty()
                || stats
                    .unreadable
                    .is_some_and(|why| why != AllocatorUnreadable::NoPytorch)
        });
        if let Some(why) = probe
            .missing
            .filter(|why| uses_torch || *why != ProbeMissing::NotStarted)
        {
            writer.field(INSIDE, why);
        }
        return;
    };
    writer.head(&heading(report));
    if let Some(why) = probe.missing {
        writer.field("not new", why);
    }
    let age = model.now().since(report.at);
    if age >= ProbeReport::FRESH {
        writer.field(
            "age",
            format!(
                "this report came {} ago; the program may be in a long call",
                Elapsed(age)
            ),
        );
    }
    memory::of_probe(writer, model, process);
    for device in &report.devices {
        describe_device(writer, model.latest(), report, device);
    }
    probe_task::describe(writer, asked, report);
    for leak in &report.leaks {
        describe_leak(writer, leak);
    }
    for fill in &report.fills {
        writer.field("fills", tensors::fill(fill));
    }
    describe_changes(writer, report);
    program_marks::describe(writer, report);
    describe_groups(writer, report);
    if let Some(recording) = report
        .recording
        .as_ref()
        .filter(|recording| recording.state.as_str() != "off")
    {
        let left = recording
            .steps_left
            .map_or_else(String::new, |steps| format!(", for {steps} more steps"));
        let by = if recording.state.as_str() == "users" {
            " by the program itself"
        } else {
            ""
        };
        writer.field(
            "recording",
            format!("stacks of allocations are recorded{by}{left}"),
        );
    }
    report
        .trouble
        .iter()
        .for_each(|trouble| writer.field("trouble", trouble));
}

fn heading(report: &ProbeReport) -> String {
    let version = |name: &str, version: &Option<Text>| {
        version.as_ref().map(|version| format!("{name} {version}"))
    };
    let mut parts = vec![
        version("Inside PyTorch", &report.torch).unwrap_or_else(|| "Inside PyTorch".to_owned()),
    ];
    parts.extend(version("Python", &report.python));
    parts.extend(report.steps.as_ref().map(tensors::steps));
    parts.join(", ")
}

fn describe_device(
    writer: &mut Writer,
    snapshot: Option<&Snapshot>,
    report: &ProbeReport,
    device: &ProbeDevice,
) {
    if report.devices.len() > 1 {
        let gpu = device.gpu.as_ref().and_then(|gpu| snapshot?.gpu(gpu));
        let on = gpu.map_or_else(String::new, |gpu| {
            format!(" on GPU {}", labels::gpu_label(gpu))
        });
        writer.head(&format!("PyTorch's cuda:{}{on}", device.device));
    }
    let whole = device
        .reserved
        .unwrap_or_else(|| device.categories.values().copied().sum());
    let known = || {
        device
            .categories
            .iter()
            .filter(|(_, bytes)| **bytes > Bytes(0))
    };
    if known().next().is_some() {
        writer
            .lines
            .push(PageLine::Layers(TensorLayer::ALL.map(|layer| {
                known()
                    .filter(|(category, _)| TensorLayer::of(**category) == layer)
                    .map(|(_, bytes)| *bytes)
                    .sum()
            })));
    }
    for (category, bytes) in known() {
        let first = writer.lines.len();
        amounts(
            writer,
            &category.to_string(),
            signed(*bytes),
            &tensors::share(*bytes, whole),
        );
        if let Some(line) = writer.lines.get_mut(first)
            && let PageLine::Field(label, text) = line
        {
            *line = PageLine::Layer(
                TensorLayer::of(*category),
                std::mem::take(label),
                std::mem::take(text),
            );
        }
        if *category == TensorCategory::OptimizerState && device.optimizer_state.len() > 1 {
            for (kind, bytes) in &device.optimizer_state {
                amounts(writer, &format!("  {kind}"), signed(*bytes), "of it");
            }
        }
    }
    if let Some(reserved) = device.reserved.filter(|_| !device.categories.is_empty()) {
        amounts(writer, "reserved", signed(reserved), "all of these");
    }
    let age = report
        .unix_time
        .zip(device.unix_time)
        .map(|(report, device)| report - device);
    if let Some(age) = age.filter(|age| *age >= OLD_READING) {
        writer.field("read", format!("{age:.0} s before the rest of this report"));
    }
    let floor = device.floor.map(|floor| format!("{floor} after a step"));
    let peak = device.peak.map(|peak| match device.peak_step {
        Some(step) => format!("{peak} at the peak, in step {step}"),
        None => format!("{peak} at the peak"),
    });
    let above = device
        .peak_base
        .zip(device.peak)
        .map(|(base, peak)| format!("that step needed {} more", peak.saturating_sub(base)));
    let words: Vec<String> = [floor, peak, above].into_iter().flatten().collect();
    if !words.is_empty() {
        writer.field("tensors", words.join("; "));
    }
}

fn describe_leak(writer: &mut Writer, leak: &TensorLeak) {
    let sure = leak
        .sure
        .as_ref()
        .map_or_else(String::new, |sure| format!(" ({sure})"));
    let since = leak
        .steps
        .map_or_else(String::new, |steps| format!(", for {steps} steps"));
    writer.head(&format!("Leak{sure}"));
    writer.field("grows", format!("{}{since}", tensors::leak(leak)));
    let lines = leak.allocated_at.iter().flat_map(|lines| {
        let inner = lines
            .inner
            .iter()
            .filter(|inner| lines.user.as_ref() != Some(inner));
        lines.user.iter().chain(inner)
    });
    let mut label = "allocated at";
    for line in lines {
        writer.field(std::mem::take(&mut label), line);
    }
    let mut label = "held by";
    for holder in &leak.held_by {
        writer.field(std::mem::take(&mut label), holder);
    }
    if let Some(path) = &leak.path {
        writer.field("path", path);
    }
    if let Some(cause) = tensors::cause(leak) {
        writer.field("cause", cause);
    }
    leak.advice
        .iter()
        .for_each(|advice| writer.field("what to try", advice));
}

/// Writes the groups of tensors that grew or shrank since the last step or mark, the largest change
/// first.
fn describe_changes(writer: &mut Writer, report: &ProbeReport) {
    let mut changed: Vec<(&TensorGroup, String)> = report
        .groups
        .iter()
        .filter_map(|group| Some((group, tensors::tensors_changed(group)?)))
        .collect();
    if changed.is_empty() {
        return;
    }
    changed.sort_by_key(|(group, _)| std::cmp::Reverse(group.bytes_change.map(i64::unsigned_abs)));
    let since = report.changes_since.as_ref();
    let step = since
        .and_then(|since| since.step)
        .map_or_else(String::new, |step| format!(" step {step}"));
    match since.and_then(|since| since.mark.as_ref()) {
        Some(mark) => writer.head(&format!("Changed since the mark {mark}")),
        None if step.is_empty() => writer.head("Changed since the reading before"),
        None => writer.head(&format!("Changed since{step}")),
    }
    for (group, words) in changed.into_iter().take(MOST_GROUPS) {
        let bytes = group.bytes_change.map_or_else(String::new, labels::change);
        writer.field(
            "",
            format!("{words}  {bytes}  {}", tensors::category(group)),
        );
    }
}

fn describe_groups(writer: &mut Writer, report: &ProbeReport) {
    if report.groups.is_empty() {
        return;
    }
    writer.head("Tensors, the largest first");
    for group in report.groups.iter().take(MOST_GROUPS) {
        let age = group
            .age_steps
            .map_or_else(String::new, |age| format!("  {age} steps old"));
        let words = format!(
            "{}  {}{age}",
            tensors::tensors(group),
            tensors::category(group)
        );
        writer.field(&group.bytes.to_string(), words);
    }
    let unlisted = report.groups.get(MOST_GROUPS..).map_or(0, <[_]>::len) as u64;
    let left_out = report
        .groups_left_out
        .as_ref()
        .map_or(0, |left_out| left_out.count);
    let unlisted = unlisted.saturating_add(left_out);
    if unlisted > 0 {
        writer.field(
            "",
            format!("and {unlisted} more groups: gputop tensors PID lists them"),
        );
    }
}
