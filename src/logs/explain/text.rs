//! The explanation as text: a bar of the GPU's memory, its parts, the reason, and what to try
//! first.

use super::breakdown::{ContradictoryFigures, MemoryOwner, MessageBreakdown, WriterName};
use super::error_finder::{AftermathLine, UnknownLine};
use super::events::LogEvent;
use super::message::{MessageForm, OomMessage, RoundedAmount};
use super::message_finder::LogRank;
use super::other_processes::OtherProcesses;
use super::reason_sentence::sentence;
use super::scan::{RecoveredFailure, ScannedLog};
use super::{ExplainedEvent, ExplainedMessage, LogSource, exact};
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::model::Advice;
use crate::output::{StyledText, TextStyle};

const INDENT: usize = 2;
/// The most lines of a log that are shown because they state a failure in unknown words.
pub(super) const MOST_UNKNOWN: usize = 5;

pub(super) fn format(
    events: &[ExplainedEvent<'_>],
    sources: &[LogSource],
    processes: &OtherProcesses,
    style: TextStyle,
) -> String {
    let mut text = StyledText::new(style);
    let are_many = events.len() > 1;
    if are_many {
        text.paragraph(0, summary(events));
    }
    let mut given = Vec::new();
    for (number, explained) in (1..).zip(events) {
        if are_many {
            text.line("");
        }
        add_event(
            &mut text,
            are_many.then_some(number),
            explained,
            processes,
            &mut given,
        );
    }
    for sentence in sources
        .iter()
        .flat_map(|source| aftermath_sentences(&source.log))
    {
        text.line("");
        text.paragraph(0, sentence);
    }
    for sentence in unknown_lines(sources) {
        text.line("");
        text.paragraph(INDENT, sentence);
    }
    text.finish()
}

/// Returns the lines that state a failure of memory in words that no known form has, each with its
/// number.
pub(super) fn unknown_lines(sources: &[LogSource]) -> Vec<String> {
    let of_source = |source: &LogSource| {
        let place = source
            .name
            .as_ref()
            .map_or_else(String::new, |name| format!("{name}; "));
        let line = |unknown: &UnknownLine| {
            format!(
                "not known to gputop: {place}line {} {}",
                unknown.line, unknown.text
            )
        };
        let mut lines: Vec<String> = source
            .log
            .unknown
            .iter()
            .take(MOST_UNKNOWN)
            .map(line)
            .collect();
        let more = source.log.unknown.len().saturating_sub(MOST_UNKNOWN);
        lines.extend((more > 0).then(|| format!("not known to gputop: {place}{more} more")));
        lines
    };
    sources.iter().flat_map(of_source).collect()
}

/// Returns a sentence on the number of events, and which is the cause.
fn summary(events: &[ExplainedEvent<'_>]) -> String {
    let consequences = events
        .iter()
        .filter(|explained| explained.is_consequence)
        .count();
    let others = events.len() - 1;
    let rest = match (others - consequences.min(others), consequences) {
        (_, 0) => "The first is usually the cause, and the others its consequences.".to_owned(),
        (0, 1) => "The first is the cause, and the other its consequence.".to_owned(),
        (0, _) => "The first is the cause, and the others its consequences.".to_owned(),
        (_, consequences) => {
            let plural = if consequences == 1 {
                "is a consequence"
            } else {
                "are consequences"
            };
            format!("The first is usually the cause; the last {consequences} {plural}.")
        }
    };
    format!("{} different errors. {rest}", events.len())
}

/// Returns a sentence on the lines that follow from the events of a log, and one on those that
/// stand before all of them.
fn aftermath_sentences(log: &ScannedLog) -> Vec<String> {
    let Some(first) = log.events.iter().map(|(event, _)| event.line()).min() else {
        return Vec::new();
    };
    let (before, after): (Vec<&AftermathLine>, _) =
        log.aftermath.iter().partition(|line| line.line < first);
    let followed =
        (!after.is_empty()).then(|| format!("What followed: {}.", aftermath_list(&after)));
    let early = (!before.is_empty()).then(|| {
        format!(
            "Most likely not the cause, although it comes before the error in this log: {}. Several processes write into a log, \
             each at its own time.",
            aftermath_list(&before)
        )
    });
    followed.into_iter().chain(early).collect()
}

fn aftermath_list(lines: &[&AftermathLine]) -> String {
    let one = |line: &&AftermathLine| {
        let ranks = ranks(&line.ranks).map_or_else(String::new, |ranks| format!(", {ranks}"));
        format!("{} (line {}{ranks})", line.sentence, line.line)
    };
    lines.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// Returns a sentence for logs without a cause: what they end with, and what was looked for.
pub(super) fn nothing_found(sources: &[LogSource]) -> String {
    let lines: u64 = sources.iter().map(|source| source.log.lines).sum();
    let plural = if lines == 1 { "" } else { "s" };
    let aftermath: Vec<&AftermathLine> = sources
        .iter()
        .flat_map(|source| &source.log.aftermath)
        .collect();
    let followed = if aftermath.is_empty() {
        String::new()
    } else {
        format!(
            " The log has what follows such an error, without the error itself: {}. Look in the logs of the other ranks and hosts.",
            aftermath_list(&aftermath)
        )
    };
    let recovered: Vec<String> = sources
        .iter()
        .flat_map(|source| &source.log.recovered)
        .map(recovery_sentence)
        .collect();
    if sources.iter().any(|source| !source.log.unknown.is_empty()) {
        return format!(
            "no known memory error in {lines} line{plural}, but a failure of memory in words that gputop does not know.{followed}"
        );
    }
    if let Some(first) = recovered.first() {
        return format!(
            "no memory error in {lines} line{plural} that ended anything: {first}.{followed}"
        );
    }
    format!(
        "no memory error in {lines} line{plural}. Looked for: out of memory in PyTorch (CUDA, HIP, XPU, NPU, MPS), CUDA, cuBLAS, \
         cuDNN, NCCL, Triton, vLLM, SGLang, JAX, TensorFlow, CuPy, ONNX Runtime, TensorRT, llama.cpp; Xid errors; full /dev/shm; \
         killed processes (kernel, Slurm, Ray, torchrun, containers); failed allocations of the host.{followed}"
    )
}

fn recovery_sentence(failure: &RecoveredFailure) -> String {
    format!(
        "line {} states one, and by line {} the program continued",
        failure.line, failure.continued
    )
}

/// Adds the explanation of an event. `given` has the advice that was given for earlier events, with
/// their numbers.
fn add_event(
    text: &mut StyledText,
    number: Option<usize>,
    explained: &ExplainedEvent<'_>,
    processes: &OtherProcesses,
    given: &mut Vec<(Advice, usize)>,
) {
    text.heading(&headline(number, explained));
    if explained.is_consequence {
        // Only the kernel, Slurm and Ray are taken as causes of lines that stand before theirs.
        let comes_first = |(event, follows): &(LogEvent, bool)| {
            !follows && event.line() <= explained.event.line()
        };
        let sentence = if explained.log.log.events.iter().any(comes_first) {
            "It followed from an error above: help there first."
        } else {
            "It followed from an error above, although its line comes earlier in this log: the kernel, Slurm and Ray report a \
             kill only when it is over. Solve that error first."
        };
        text.paragraph(0, sentence);
        return;
    }
    if let LogEvent::Error(found) = explained.event {
        text.paragraph(INDENT, format_args!("{:INDENT$}{}", "", found.excerpt));
        text.line("");
        text.paragraph(0, &found.sentence);
    }
    if let Some(message) = &explained.message {
        add_message(text, message, explained.log, processes);
    }
    let (known, new): (Vec<Advice>, Vec<Advice>) = explained
        .advice
        .iter()
        .copied()
        .partition(|advice| given.iter().any(|(old, _)| old == advice));
    if !new.is_empty() {
        text.line("");
        text.heading("What to try first");
        for (number, advice) in (1..).zip(&new) {
            text.advice(number, advice, false);
        }
    }
    let mut earlier: Vec<usize> = given
        .iter()
        .filter(|(old, _)| known.contains(old))
        .map(|(_, at)| *at)
        .collect();
    earlier.dedup();
    if !earlier.is_empty() {
        let start = if new.is_empty() {
            "What to try: as"
        } else {
            "Then as"
        };
        let earlier: Vec<String> = earlier.iter().map(usize::to_string).collect();
        text.paragraph(0, format_args!("{start} for {}.", earlier.join(" and ")));
    }
    given.extend(new.into_iter().map(|advice| (advice, number.unwrap_or(1))));
}

fn add_message(
    text: &mut StyledText,
    explained: &ExplainedMessage<'_>,
    log: &LogSource,
    processes: &OtherProcesses,
) {
    let (message, breakdown) = (&explained.found.message, &explained.breakdown);
    if message.is_cut {
        text.paragraph(0, "The message is cut off or mixed with other text; this is what can still be read of it.");
    }
    for contradiction in &breakdown.contradictions {
        text.paragraph(0, contradiction_sentence(contradiction));
    }
    if message.total.is_some() || !breakdown.parts.is_empty() {
        bar(text, message, breakdown);
        list(text, message, breakdown);
        text.line("");
    }
    for (place, shortage) in explained.shortages.iter().enumerate() {
        let also = if place > 0 { "also " } else { "" };
        text.paragraph(
            0,
            format_args!(
                "{also}{shortage}: {}",
                sentence(*shortage, message, breakdown)
            ),
        );
    }
    for note in notes(message, breakdown) {
        text.paragraph(0, note);
    }
    let pids: Vec<u32> = breakdown.other_processes().map(|(pid, _)| pid).collect();
    for sentence in processes.sentences(&pids, log.written) {
        text.paragraph(0, sentence);
    }
}

fn list(text: &mut StyledText, message: &OomMessage, breakdown: &MessageBreakdown) {
    let mut lines: Vec<(Option<MemoryOwner>, Bytes, String)> = Vec::new();
    for (owner, part) in &breakdown.parts {
        let rounding = match owner {
            MemoryOwner::Rest => {
                format!(", give or take {} by rounding", exact(breakdown.rounding))
            }
            _ => String::new(),
        };
        // The rest may be nothing but rounding.
        if *owner == MemoryOwner::Rest && part.bytes <= part.slack
            || part.bytes == 0 && *owner != MemoryOwner::Free
        {
            continue;
        }
        lines.push((
            Some(*owner),
            part.bytes(),
            format!("{}{rounding}", owner_name(*owner, breakdown.writer)),
        ));
        if let (MemoryOwner::Allocated, Some(pools)) = (owner, message.pools) {
            lines.push((
                None,
                pools.bytes(),
                "  of that, in private pools (CUDA graphs)".to_owned(),
            ));
        }
    }
    let total = message.total.map(RoundedAmount::bytes);
    lines.extend(total.map(|total| (None, total, "the whole GPU".to_owned())));
    lines.extend(
        message
            .allowed
            .map(|allowed| (None, allowed.bytes(), "allowed to this process".to_owned())),
    );
    let width = lines
        .iter()
        .map(|(_, bytes, _)| exact(*bytes).len())
        .max()
        .unwrap_or_default();
    for (owner, bytes, label) in lines {
        let glyph = owner.map_or(' ', |owner| glyph(owner, text.style.ascii));
        let share = owner.and(total).and_then(|total| bytes.share_of(total));
        let share = share.map_or_else(String::new, |share| format!("{:.1}%", share * 100.0));
        let figures = format!(
            "{:INDENT$}{glyph} {:>width$} {share:>6}  ",
            "",
            exact(bytes)
        );
        text.paragraph(figures.chars().count(), format_args!("{figures}{label}"));
    }
}

fn bar(text: &mut StyledText, message: &OomMessage, breakdown: &MessageBreakdown) {
    const SHORTEST: usize = 12;
    const LONGEST: usize = 72;
    let (Some(total), Some(_), Some(_)) = (message.total, message.free, breakdown.own) else {
        return;
    };
    let width = text
        .style
        .width
        .saturating_sub(2 * INDENT)
        .clamp(SHORTEST, LONGEST);
    let parts: Vec<Bytes> = breakdown
        .parts
        .iter()
        .map(|(_, part)| part.bytes())
        .collect();
    let cells = cells(
        &parts,
        parts.iter().copied().sum::<Bytes>().max(total.bytes()),
        width,
    );
    let glyphs = breakdown
        .parts
        .iter()
        .map(|(owner, _)| glyph(*owner, text.style.ascii));
    let bar: String = glyphs
        .zip(cells)
        .flat_map(|(glyph, cells)| std::iter::repeat_n(glyph, cells))
        .collect();
    text.line(format_args!("{:INDENT$}{bar}", ""));
}

/// Returns the number of cells of each part in a bar of `width` cells for `whole`. A part that is
/// not 0 has at least one cell.
fn cells(parts: &[Bytes], whole: Bytes, width: usize) -> Vec<usize> {
    let exact = |part: Bytes| u128::from(part.0) * width as u128 / u128::from(whole.0.max(1));
    let count = |part: &Bytes| {
        usize::try_from(exact(*part))
            .unwrap_or(width)
            .max(usize::from(part.0 > 0))
    };
    let mut cells: Vec<usize> = parts.iter().map(count).collect();
    // The largest part takes up the difference that rounding makes.
    let used: usize = cells.iter().sum();
    if let Some(largest) = (0..parts.len()).max_by_key(|place| parts[*place]) {
        if used > width {
            cells[largest] = cells[largest].saturating_sub(used - width).max(1);
        } else if parts.iter().copied().sum::<Bytes>() >= whole {
            cells[largest] += width - used;
        }
    }
    cells
}

fn glyph(owner: MemoryOwner, ascii: bool) -> char {
    let (block, stand_in) = match owner {
        MemoryOwner::Allocated => ('█', '#'),
        MemoryOwner::Unallocated => ('▓', '='),
        MemoryOwner::NotPyTorch | MemoryOwner::ThisProcess => ('▒', '+'),
        MemoryOwner::OtherProcess(_) => ('░', 'o'),
        MemoryOwner::Rest => ('╌', '-'),
        MemoryOwner::Free => ('·', '.'),
    };
    if ascii { stand_in } else { block }
}

fn owner_name(owner: MemoryOwner, writer: WriterName) -> String {
    match owner {
        MemoryOwner::Allocated => "this process: allocated by PyTorch".to_owned(),
        MemoryOwner::Unallocated => "this process: reserved by PyTorch, unallocated".to_owned(),
        MemoryOwner::NotPyTorch => {
            "this process: not PyTorch's (CUDA context, kernels, NCCL, other libraries)".to_owned()
        }
        MemoryOwner::ThisProcess => {
            "this process: PyTorch's or not, the message does not say".to_owned()
        }
        MemoryOwner::OtherProcess(pid) => format!("process {pid}"),
        MemoryOwner::Rest if writer == WriterName::None => {
            "the rest: others, the driver, and this process's memory outside PyTorch".to_owned()
        }
        MemoryOwner::Rest => {
            "not accounted for: the driver, graphics, processes that are not listed".to_owned()
        }
        MemoryOwner::Free => "free".to_owned(),
    }
}

/// Returns a headline: `2. CUDA out of memory on GPU 0: 14.14 GiB requested (train.log; line 12;
/// rank 3; 2 times)`.
fn headline(number: Option<usize>, explained: &ExplainedEvent<'_>) -> String {
    let event = explained.event;
    let number = number.map_or_else(String::new, |number| format!("{number}. "));
    let title = match event {
        LogEvent::Message(found) => message_title(&found.message),
        LogEvent::Error(found) => found.title.clone(),
    };
    let mut places: Vec<String> = explained
        .log
        .name
        .as_ref()
        .map(Text::to_string)
        .into_iter()
        .collect();
    if explained.log.log.lines > 1 {
        places.push(format!("line {}", event.line()));
    }
    places.extend(ranks(event.ranks()));
    if event.count() > 1 {
        places.push(format!("{} times", event.count()));
    }
    let places = if places.is_empty() {
        String::new()
    } else {
        format!(" ({})", places.join("; "))
    };
    format!("{number}{title}{places}")
}

fn message_title(message: &OomMessage) -> String {
    let gpu = message
        .gpu
        .map_or_else(String::new, |gpu| format!(" on GPU {gpu}"));
    let requested = match (message.requested, message.form) {
        (Some(requested), _) => format!(": {} requested", exact(requested.bytes())),
        (None, MessageForm::Absurd) => ": more than 1 EB requested".to_owned(),
        (None, _) => String::new(),
    };
    let start = message
        .backend
        .map_or_else(|| "Out".to_owned(), |backend| format!("{backend} out"));
    format!("{start} of memory{gpu}{requested}")
}

/// Returns `rank 3`, `ranks 0, 1` or `local rank 3`. `None` if there are none.
fn ranks(ranks: &[LogRank]) -> Option<String> {
    let named = |name: &str, ranks: Vec<u32>| match ranks.as_slice() {
        [] => None,
        [rank] => Some(format!("{name} {rank}")),
        ranks => Some(format!(
            "{name}s {}",
            ranks
                .iter()
                .map(u32::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        )),
    };
    let all = [
        named("rank", LogRank::global(ranks)),
        named("local rank", LogRank::local(ranks)),
    ];
    let all: Vec<String> = all.into_iter().flatten().collect();
    (!all.is_empty()).then(|| all.join("; "))
}

fn contradiction_sentence(contradiction: &ContradictoryFigures) -> String {
    format!(
        "The figures of the message do not add up: {}, by {}. They may include memory that is not on the GPU: host memory \
         that the driver lends on Windows and WSL, or addresses without memory behind them (expandable segments, vLLM's \
         sleep mode).",
        contradiction.claim,
        exact(contradiction.by.bytes())
    )
}

fn notes(message: &OomMessage, breakdown: &MessageBreakdown) -> Vec<String> {
    let mut notes = Vec::new();
    if let WriterName::HostPid(pid) = breakdown.writer {
        let most_likely = if message.others.len() > 1 {
            ", most likely,"
        } else {
            ""
        };
        notes.push(format!(
            "Process {pid} is{most_likely} this process itself: the driver lists a process of a container under its PID on \
             the host, which PyTorch does not know."
        ));
    }
    let this = message
        .this_process
        .filter(Result::is_err)
        .map(|_| "this process".to_owned());
    let others = message
        .others
        .iter()
        .filter(|(_, held)| held.is_err())
        .map(|(pid, _)| format!("process {pid}"));
    let unknown: Vec<String> = this.into_iter().chain(others).collect();
    if !unknown.is_empty() {
        notes.push(format!(
            "17179869184.00 GiB means that the driver gives no figure; so it is for {}.",
            unknown.join(", ")
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_a_cell_and_the_bar_has_its_width() {
        let bar = |parts: &[u64], whole, width| {
            cells(
                &parts.iter().map(|part| Bytes(*part)).collect::<Vec<_>>(),
                Bytes(whole),
                width,
            )
        };
        assert_eq!(bar(&[50, 25, 25], 100, 8), [4, 2, 2]);
        assert_eq!(bar(&[1, 99_998, 1], 100_000, 10), [1, 8, 1]);
        assert_eq!(bar(&[0, 100], 100, 10), [0, 10]);
        assert_eq!(bar(&[30], 100, 10), [3]);
    }
}
