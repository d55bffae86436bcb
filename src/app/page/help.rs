//! The help: the keys, the mouse, and the words on the screen. `/` shows only the lines with some
//! words.

use strum::VariantArray;

use super::{PageLine, Writer};
use crate::app::keys::keymap::{BINDINGS, Binding, KeyContext, KeyGroup};
use crate::app::lists::columns::ListColumn;
use crate::app::lists::gpu_columns::GpuColumn;
use crate::app::lists::process_columns::ProcessColumn;

/// The words of the column VERDICT.
const VERDICTS: &[(&str, &str)] = &[
    (
        "ok",
        "no problem found, or it works for another process of its job",
    ),
    ("…", "not watched long enough to say"),
    ("LEAK", "its memory grows without an end in sight"),
    (
        "filling",
        "its memory grows ever more slowly, as a cache that fills up",
    ),
    ("growing?", "its memory grows; too early to call it a leak"),
    (
        "orphan",
        "its trainer or launcher is gone, and it still holds memory",
    ),
    ("orphan?", "some signs of an orphan, not all"),
    (
        "ended",
        "the driver lists memory for a process that has ended",
    ),
    ("zombie", "has ended, and its parent has not noticed yet"),
    ("dying", "its main thread has ended, others still run"),
    ("stuck", "waits in the driver: signals have no effect"),
    (
        "blocked",
        "waits in the kernel for a disk or file system: signals have no effect",
    ),
    ("frozen", "frozen with its control group"),
    ("stopped", "stopped by a signal or a debugger"),
    ("idle", "holds memory and has computed nothing for long"),
    ("launcher", "starts or serves the processes of a job"),
    (
        "foreign",
        "of a container or another user: not visible here",
    ),
];

/// The colours of the default theme, and which memory has them.
const COLOURS: &[(&str, &str)] = &[
    (
        "red",
        "wrong, or soon to be: a leak and its forecast, an orphan, memory almost full",
    ),
    ("yellow", "look at this: something may be wrong"),
    ("green", "this went well"),
    (
        "bright blue",
        "memory in tensors, or of processes whose PyTorch figures are not known",
    ),
    ("dull blue", "unallocated memory that PyTorch holds"),
    ("purple", "other memory, and unaccounted memory"),
    ("teal", "use of the GPU (SM)"),
    (
        "grey",
        "less important: names of figures, old or uncertain values",
    ),
    (
        "other colours",
        "in the graph of a GPU: one for each process; of a process: one for each kind of tensor",
    ),
    (
        "shades",
        "no meaning: bars get brighter to the right, and areas to the top",
    ),
];

/// Other words on the screen.
const WORDS: &[(&str, &str)] = &[
    (
        "unaccounted",
        "GPU memory in use that the driver lists for no living process",
    ),
    ("held", "the memory is shown at the process that holds it"),
    (
        "shared",
        "several processes hold the memory, which is shown once, elsewhere",
    ),
    (
        "tagged",
        "chosen with Space: F9 ends all tagged processes together",
    ),
    (
        "watched",
        "chosen with w: gputop says when the process ends, or the GPU is free",
    ),
    ("job", "a launcher and all processes that it started"),
    (
        "a tile",
        "use (SM) grows upwards and memory downwards from the middle: the last 15 minutes",
    ),
    (
        "full 13:41",
        "the memory of the GPU ends then if the growth goes on; (13:38–13:45) is the likely range",
    ),
    (
        "at first",
        "in a graph: the memory when gputop saw it first",
    ),
    ("!", "in the news: look at this"),
    ("▲", "in the news and below a graph: began to use a GPU"),
    (
        "▼",
        "in the news and below a graph: ended, or gave its memory back",
    ),
    ("↘", "below a graph: its memory fell"),
    (
        "✕",
        "in the news and below a graph: a signal was sent to it",
    ),
    (
        "timeline",
        "the line above the keys of a replay: ! is serious, ▼ an end, a blank a gap; a click jumps there",
    ),
    (
        "PID 1",
        "the first process of the host or container; it adopts processes whose parent exited",
    ),
    (
        "█ ▓ ·",
        "a GPU in the fleet view: in use, over 90 % of its memory in use, free",
    ),
    (
        "h",
        "in the fleet view: held by a process, without use and PCIe traffic for half an hour",
    ),
    (
        "o L x ?",
        "in the fleet view: an orphan holds it, its memory leaks, it fails, it is not known",
    ),
    (
        "clock 3s behind",
        "the clock of the host, or its time zone, differs from yours",
    ),
    ("≥", "a part of the sum is not known"),
    ("N/A", "this GPU or driver does not report it"),
    ("perm", "only another user or root may see it"),
    ("ERR", "reading it failed"),
];

/// The actions of the mouse.
const MOUSE: &[(&str, &str)] = &[
    ("wheel", "scrolls the list under it"),
    (
        "click",
        "puts the cursor there; on a heading, sorts by it; on a GPU, shows its processes; on a key below, presses it",
    ),
    ("double click", "opens the page of the process or GPU"),
    ("right click", "tags the process"),
    ("Shift and drag", "selects text, as without gputop"),
];

/// The letters of ranks on the page of a job.
const RANKS: &[(&str, &str)] = &[
    ("█", "runs as the others do, in the colour of its user"),
    ("x", "its GPU is lost, hangs, or has a hardware error"),
    (
        "m",
        "missing: no host shows it, and all hosts of the job answer",
    ),
    ("L", "its memory leaks, and that of the others does not"),
    (
        "s",
        "candidate for a straggler: its GPU is slower than the median for a minute",
    ),
    ("+", "holds clearly more memory than the median; - less"),
    ("!", "another Xid error, or memory that is full soon"),
    ("?", "on a host that does not answer"),
];

/// The parts of a memory bar.
const MEMORY: &[(&str, &str)] = &[
    (
        "allocated",
        "in use by PyTorch's tensors; all memory of a process whose PyTorch figures are not known",
    ),
    (
        "unallocated",
        "reserved by PyTorch, without a tensor in it: the cache (CACHE), fragments and pending memory",
    ),
    (
        "other",
        "in use beside PyTorch: CUDA contexts, libraries; also unaccounted memory",
    ),
];

/// Returns the lines that have all words of `search`. In a replay, some keys have another meaning.
pub(super) fn lines(width: usize, search: &str, is_replay: bool) -> Vec<PageLine> {
    let words: Vec<String> = search.split_whitespace().map(str::to_lowercase).collect();
    let mut writer = Writer {
        width,
        lines: Vec::new(),
    };
    for (head, entries) in sections(is_replay) {
        let is_found = |(name, text): &&(String, String)| {
            let line = format!("{head} {name} {text}").to_lowercase();
            words.iter().all(|word| line.contains(word))
        };
        let found: Vec<&(String, String)> = entries.iter().filter(is_found).collect();
        if found.is_empty() {
            continue;
        }
        writer.head(&head);
        if head == MEMORY_BAR && words.is_empty() {
            writer.lines.push(PageLine::Legend);
        }
        for (name, text) in found {
            writer.field(name, text);
        }
    }
    if writer.lines.is_empty() {
        writer.head("No line of the help has these words.");
    }
    writer.lines
}

const MEMORY_BAR: &str = "Words: the bar of memory";

/// The headings, each with its entries.
fn sections(is_replay: bool) -> Vec<(String, Vec<(String, String)>)> {
    let texts = |entries: &[(&str, &str)]| {
        entries
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect()
    };
    let of_lists = |group: &KeyGroup| {
        let is_in_group = |binding: &Binding| binding.intent.group() == *group;
        (
            format!("{}: {group}", KeyContext::List),
            keys(KeyContext::List, is_replay, is_in_group),
        )
    };
    let of_context =
        |context: &KeyContext| (context.to_string(), keys(*context, is_replay, |_| true));
    let columns = |specs: Vec<crate::app::lists::columns::ColumnSpec>| {
        specs
            .into_iter()
            .map(|spec| (spec.title.to_owned(), spec.help.to_owned()))
            .collect()
    };
    let is_first = |context: &KeyContext| is_replay && *context == KeyContext::Replay;
    let first = KeyContext::VARIANTS
        .iter()
        .filter(|context| is_first(context))
        .map(of_context);
    let mut sections: Vec<(String, Vec<(String, String)>)> = first
        .chain(KeyGroup::VARIANTS.iter().map(of_lists))
        .collect();
    sections.push(("Mouse".to_owned(), texts(MOUSE)));
    sections.push((
        "Words: columns of the process list".to_owned(),
        columns(
            ProcessColumn::VARIANTS
                .iter()
                .map(|column| column.spec())
                .collect(),
        ),
    ));
    sections.push(("Words: verdicts".to_owned(), texts(VERDICTS)));
    sections.push((MEMORY_BAR.to_owned(), texts(MEMORY)));
    sections.push(("Words: colours".to_owned(), texts(COLOURS)));
    sections.push((
        "Words: columns of the GPU list".to_owned(),
        columns(
            GpuColumn::VARIANTS
                .iter()
                .map(|column| column.spec())
                .collect(),
        ),
    ));
    sections.push(("Words: ranks of a job".to_owned(), texts(RANKS)));
    sections.push(("Words: others".to_owned(), texts(WORDS)));
    let others = KeyContext::VARIANTS
        .iter()
        .filter(|context| **context != KeyContext::List && !is_first(context));
    sections.extend(others.map(of_context));
    sections
}

/// Returns the keys that a context has a help for, with it.
fn keys(
    context: KeyContext,
    is_replay: bool,
    is_shown: impl Fn(&Binding) -> bool,
) -> Vec<(String, String)> {
    let is_shown = |binding: &&Binding| {
        !binding.help.is_empty() && binding.contexts.contains(&context) && is_shown(binding)
    };
    let keys = BINDINGS
        .iter()
        .filter(is_shown)
        .map(|binding| (binding.keys_in(context, is_replay), binding.help));
    keys.filter(|(keys, _)| !keys.is_empty())
        .map(|(keys, help)| (keys, help.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(search: &str) -> String {
        help_of(search, false)
    }

    fn help_of(search: &str, is_replay: bool) -> String {
        let line = |line| match line {
            PageLine::Head(text) => text,
            PageLine::Field(name, text) => format!("{name} {text}"),
            _ => String::new(),
        };
        lines(60, search, is_replay)
            .into_iter()
            .map(|written| line(written) + "\n")
            .collect()
    }

    #[test]
    fn the_help_explains_each_key_heading_and_word() {
        let help = text("");
        for binding in BINDINGS.iter().filter(|binding| !binding.help.is_empty()) {
            assert!(help.contains(binding.keys), "{}", binding.keys);
        }
        for column in ProcessColumn::VARIANTS {
            assert!(
                help.contains(column.spec().title),
                "{}",
                column.spec().title
            );
        }
    }

    #[test]
    fn in_a_replay_a_key_has_only_the_meaning_that_it_has_there() {
        let help = help_of("", true);
        let has = |line: &str| help.lines().any(|other| other == line);
        assert!(
            has("Space p pause / play") && has("- play slower, down to ×0.5"),
            "{help}"
        );
        assert!(
            has("PgDn ^F a screen down") && has("q ^C F10 quit"),
            "{help}"
        );
        for other in [
            "Space tag, to end several processes at once",
            "+ = read more often",
            "p pause / resume",
        ] {
            assert!(
                !has(other) && text("").lines().any(|line| line == other),
                "{other}"
            );
        }
    }

    #[test]
    fn a_search_leaves_the_lines_with_all_words_and_their_headings() {
        assert_eq!(
            text("CACHE would"),
            "Words: columns of the process list\nCACHE the unallocated GPU memory that empty_cache() would give\n back; fragments are not in it\n"
        );
        assert!(text("no such words").contains("No line"));
    }
}
