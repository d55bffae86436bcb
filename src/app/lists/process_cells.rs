//! The cells of the process list, for the screen and for `--once`, and the keys by which the list
//! is sorted.

use std::cmp::Ordering;

use unicode_width::UnicodeWidthStr;

use super::columns::{Cell, Tone};
use super::gpu_users::growth_note;
use super::process_columns::{ProcessColumn, Sort};
use super::row_order::{self, SortKey, SortKeys};
use crate::base::text::Text;
use crate::base::units::{Bytes, Elapsed, Percent};
use crate::model::{
    GpuOrProcess, Growing, HostModel, LeakVerdict, ProcessTotal, Severity, Verdict,
};
use crate::output::labels::growth::{full_within, rate, when_full};
use crate::output::labels::{
    cache, change_of_memory, command, elapsed, gpu_labels, short_amount, signed, word,
};
use crate::protocol::snapshot::{Missing, Process, ProcessId, Snapshot, State};

#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessLine<'a> {
    pub host: &'a str,
    pub model: &'a HostModel,
    pub snapshot: &'a Snapshot,
    pub process: &'a Process,
    /// The process total on the GPUs that the line is about; `None` when the driver lists the
    /// process for none.
    pub process_total: Option<&'a ProcessTotal>,
    /// Whether the memory is shown on the line of another process, which keeps it.
    pub is_kept: bool,
    /// Whether the list shows only suspects, and the reason in place of the command.
    pub only_suspects: bool,
}

impl<'a> ProcessLine<'a> {
    /// Returns the line of a process on all its GPUs, without marks and history.
    pub(crate) fn new(
        host: &'a str,
        model: &'a HostModel,
        snapshot: &'a Snapshot,
        process: &'a Process,
    ) -> Self {
        Self {
            host,
            model,
            snapshot,
            process,
            process_total: model.process_total(process.id),
            is_kept: false,
            only_suspects: false,
        }
    }
}

pub(crate) fn cell(column: ProcessColumn, line: &ProcessLine<'_>) -> Cell {
    let ProcessLine {
        model,
        snapshot,
        process,
        process_total,
        ..
    } = *line;
    let (load, facts) = (&process.load, &process.facts);
    match column {
        ProcessColumn::Host => Cell::plain(line.host),
        ProcessColumn::Gpu => {
            // A process that the driver does not list may have a GPU open, and keep memory there.
            let open = model
                .verdict(process.id)
                .map(|verdict| verdict.open.as_slice())
                .unwrap_or_default();
            let places = process_total.map_or(open, |total| total.gpus.as_slice());
            Cell::plain(gpu_labels(snapshot, places))
        }
        ProcessColumn::Pid => Cell::plain(process.id.pid.to_string()),
        ProcessColumn::User => Cell::plain(word(facts.user.as_ref())),
        ProcessColumn::Memory => Cell::reading(memory(line)),
        ProcessColumn::Cache => {
            Cell::reading(match process_total.and_then(|_| cache(snapshot, process)) {
                Some(Err(Missing::Unsupported)) | None => String::new(),
                Some(cache) => word(cache.map(short_amount)),
            })
        }
        ProcessColumn::Growth => Cell::reading(
            change_of_memory(model, &GpuOrProcess::Process(process.id))
                .map_or_else(String::new, signed),
        ),
        ProcessColumn::Sm => {
            Cell::reading(process_total.map_or_else(String::new, |total| word(total.sm)))
        }
        ProcessColumn::Cpu => Cell::plain(word(load.cpu)),
        ProcessColumn::Rss => Cell::plain(word(load.rss.map(short_amount))),
        ProcessColumn::Elapsed => Cell::plain(word(elapsed(snapshot, process).map(Elapsed))),
        ProcessColumn::Threads => Cell::plain(word(load.threads)),
        ProcessColumn::State => {
            let tone = match load.state {
                Ok(State::Zombie | State::DiskSleep | State::Dead) => Tone::Alarm,
                Ok(State::Stopped | State::Traced) => Tone::Notable,
                _ => Tone::Plain,
            };
            Cell {
                text: load.state.map_or("?", state_word).to_owned(),
                tone,
            }
        }
        // These are drawn, not written.
        ProcessColumn::History | ProcessColumn::UseHistory => Cell::plain(""),
        ProcessColumn::Origin => Cell {
            text: facts.origin.as_ref().map_or("", Text::as_str).to_owned(),
            tone: Tone::Dim,
        },
        ProcessColumn::Verdict => verdict(model, process.id, true),
        ProcessColumn::Command => Cell::plain(reason_or_command(line)),
    }
}

/// Returns the value that the list is sorted by; `None` when it is missing, or the column does not
/// sort.
///
/// Amounts that are shown alike are equal: lines do not change places over a difference that nobody
/// sees.
fn sort_key<'a>(column: ProcessColumn, line: &ProcessLine<'a>) -> Option<SortKey<'a>> {
    let ProcessLine {
        host,
        model,
        snapshot,
        process,
        process_total,
        ..
    } = *line;
    let amount = |bytes: Bytes| SortKey::Amount(bytes.as_shown());
    let share = |percent: Percent| SortKey::Share(percent.as_shown());
    match column {
        ProcessColumn::Host => Some(SortKey::Word(host.into())),
        ProcessColumn::Gpu => process_total.map(|total| SortKey::Gpus(&total.gpus)),
        ProcessColumn::Pid => Some(SortKey::Number(process.id.pid.into())),
        ProcessColumn::User => process
            .facts
            .user
            .as_ref()
            .ok()
            .map(|user| SortKey::Word(user.as_str().into())),
        ProcessColumn::Memory => process_total
            .and_then(|total| total.memory.ok())
            .map(|total| amount(total.bytes)),
        ProcessColumn::Cache => cache(snapshot, process)?.ok().map(amount),
        ProcessColumn::Growth => {
            change_of_memory(model, &GpuOrProcess::Process(process.id)).map(SortKey::Number)
        }
        ProcessColumn::Sm => process_total.and_then(|total| total.sm.ok()).map(share),
        ProcessColumn::Cpu => process.load.cpu.ok().map(share),
        ProcessColumn::Rss => process.load.rss.ok().map(amount),
        ProcessColumn::Elapsed => {
            let elapsed = elapsed(snapshot, process).ok()?.as_millis();
            Some(SortKey::Number(i64::try_from(elapsed).unwrap_or(i64::MAX)))
        }
        ProcessColumn::State => process.load.state.ok().map(SortKey::State),
        ProcessColumn::Threads
        | ProcessColumn::History
        | ProcessColumn::UseHistory
        | ProcessColumn::Origin
        | ProcessColumn::Verdict => None,
        ProcessColumn::Command => command(process)
            .ok()
            .map(|command| SortKey::Word(command.into())),
    }
}

/// Returns the values by which the list is sorted first and second.
pub(in crate::app) fn sort_keys<'a>(sort: Sort, line: &ProcessLine<'a>) -> SortKeys<'a> {
    [
        sort_key(sort.column, line),
        sort.then.and_then(|(column, _)| sort_key(column, line)),
    ]
}

/// Compares two lines in the order of the list.
pub(crate) fn compare(sort: Sort, a: &ProcessLine<'_>, b: &ProcessLine<'_>) -> Ordering {
    row_order::compare(sort, &sort_keys(sort, a), &sort_keys(sort, b))
}

/// Whether a column is filled for any process of a host. Only columns that may be empty on every
/// line are looked at.
pub(crate) fn has_values(column: ProcessColumn, model: &HostModel) -> bool {
    let Some(snapshot) = model.latest() else {
        return false;
    };
    match column {
        ProcessColumn::Cache => snapshot
            .processes
            .iter()
            .any(|process| matches!(cache(snapshot, process), Some(Ok(_)))),
        ProcessColumn::Origin => snapshot
            .processes
            .iter()
            .any(|process| process.facts.origin.is_ok()),
        _ => true,
    }
}

/// The growth of a process's memory; `None` while it does not grow.
fn growing(model: &HostModel, process: ProcessId) -> Option<&Growing> {
    model
        .growing()
        .iter()
        .find(|growing| growing.subject == GpuOrProcess::Process(process))
}

/// Returns the verdict on a process in one word, in the order of troubles: memory that is full
/// soon, a leak, a leftover. A harmless verdict is empty unless `even_harmless`.
pub(crate) fn verdict(model: &HostModel, process: ProcessId, even_harmless: bool) -> Cell {
    let verdict = model.verdict(process);
    let growing = growing(model, process);
    if let Some(growing) =
        growing.filter(|growing| !growing.is_leak() && (growing.is_urgent() || growing.is_loading))
    {
        let note = growth_note(model, growing);
        // The time is beside the rate.
        let text = if growing.is_urgent() {
            "FULL SOON".to_owned()
        } else {
            note.text
        };
        return Cell { text, ..note };
    }
    let growth = model
        .growth(&GpuOrProcess::Process(process))
        .map(|growth| growth.verdict());
    match (verdict, growth) {
        (_, Some(growth @ LeakVerdict::Leak))
            if growing.is_none_or(|growing| !growing.is_loading) =>
        {
            Cell {
                text: growth.word().to_owned(),
                tone: Tone::Severity(growth.severity()),
            }
        }
        (Some(verdict), _) if verdict.is_suspect() => Cell {
            text: verdict.word().to_owned(),
            tone: Tone::Severity(verdict.severity()),
        },
        (_, Some(growth @ LeakVerdict::Suspect)) => Cell {
            text: growth.word().to_owned(),
            tone: Tone::Severity(growth.severity()),
        },
        (_, Some(growth @ LeakVerdict::Filling)) => {
            let is_calm = growing.is_none_or(|growing| growing.calm_plateau().is_some());
            Cell {
                text: growth.word().to_owned(),
                tone: if is_calm {
                    Tone::Dim
                } else {
                    Tone::Severity(Severity::Notable)
                },
            }
        }
        (Some(verdict), _) if even_harmless => Cell {
            text: verdict.word().to_owned(),
            tone: Tone::Dim,
        },
        _ => Cell::plain(""),
    }
}

/// The columns that a growth leaves to the command after it, at least.
const COMMAND_AFTER_GROWTH: usize = 12;

/// Returns how fast the memory of a process grows, and when it is full, or where it levels off, as far as the command keeps
/// room in so many columns: `+2.3G/min full 13:41 (13:38–13:45)`, `+2.3G/min full 13:41`,
/// `+2.3G/min`. The line of a leak that the probe reports comes first: `+2.3G/min train.py:41`. `None` while it does not grow.
pub(crate) fn growth(model: &HostModel, process: ProcessId, room: usize) -> Option<Cell> {
    let growing = growing(model, process)?;
    let rate = rate(growing.evidence.rate);
    let within = full_within(model, growing);
    let full = when_full(model, growing).filter(|_| within.is_some());
    let plateau = growing
        .calm_plateau()
        .map(|plateau| format!("levels off {}", short_amount(plateau)));
    let line = growing.line.clone();
    let line_and_full = line
        .as_ref()
        .and_then(|line| Some(format!("{line} {}", full.as_ref()?)));
    let longer = [plateau, line_and_full, line, within, full]
        .into_iter()
        .flatten()
        .map(|full| format!("{rate} {full}"));
    let text = longer
        .into_iter()
        .find(|text| text.width() + 2 + COMMAND_AFTER_GROWTH <= room);
    Some(Cell {
        text: text.unwrap_or(rate),
        tone: growth_note(model, growing).tone,
    })
}

/// The word for a state of a process; empty for the normal ones.
fn state_word(state: State) -> &'static str {
    match state {
        State::Running | State::Sleeping | State::Idle => "",
        State::DiskSleep => "stuck",
        State::Stopped => "stopped",
        State::Traced => "traced",
        State::Zombie => "zombie",
        State::Dead => "ended",
        State::Other => "?",
    }
}

fn reason_or_command(line: &ProcessLine<'_>) -> String {
    let ProcessLine {
        model,
        process,
        only_suspects,
        ..
    } = *line;
    let verdict = model
        .verdict(process.id)
        .filter(|verdict| only_suspects && verdict.is_suspect());
    verdict.map_or_else(|| word(command(process)), Verdict::sentence)
}

fn memory(line: &ProcessLine<'_>) -> String {
    match line.process_total.filter(|_| !line.is_kept) {
        None if line.is_kept => "held".to_owned(),
        None => kept(line.model.verdict(line.process.id)),
        Some(total) => match total.memory {
            Ok(total) => format!(
                "{}{}",
                if total.is_lower_bound { "≥" } else { "" },
                short_amount(total.bytes)
            ),
            Err(why) => why.to_string(),
        },
    }
}

/// The memory that only this process keeps and that the driver lists for no living process. Empty
/// if there is none; `shared` if other processes keep it too, whose amount is shown at the ended
/// process or as unaccounted memory.
fn kept(verdict: Option<&Verdict>) -> String {
    let kept = verdict
        .map(|verdict| verdict.kept.as_slice())
        .unwrap_or_default();
    let alone = || kept.iter().filter(|memory| memory.holders == 1);
    match kept {
        [] => String::new(),
        _ if alone().next().is_none() => "shared".to_owned(),
        _ => short_amount(alone().map(|memory| memory.memory).sum()),
    }
}

/// A share of a whole as a block of that height.
pub(crate) fn block(part: u64, whole: u64) -> char {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    usize::try_from(part * 7 / whole.max(1)).map_or('█', |level| BLOCKS[level.min(7)])
}
