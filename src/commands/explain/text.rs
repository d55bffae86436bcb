//! The explanation for a person: a bar of the GPU, what each part is, why it failed, what to try first.

use std::fmt::Write;

use unicode_width::UnicodeWidthStr;

use super::anatomy::{Anatomy, Me, Mismatch, Whose};
use super::judge::{judge, sentence};
use super::lookup::Neighbours;
use super::message::{Form, Message};
use super::{Story, exact};
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::commands::report::prose::wrap;
use crate::model::{Advice, Shortage, on_shortage};

/// How it is to look.
#[derive(Debug, Clone, Copy)]
pub(super) struct Style {
    pub width: usize,
    pub ascii: bool,
    /// Heads are bold.
    pub bold: bool,
}

/// What stands before each line of the list.
const INDENT: &str = "  ";
const LONGEST_BAR: usize = 72;
const SHORTEST_BAR: usize = 12;

/// All messages, in order.
pub(super) fn of(stories: &[Story<'_>], neighbours: &Neighbours, style: Style) -> String {
    let mut page = Page { text: String::new(), style };
    let count: u64 = stories.iter().map(|it| it.found.count).sum();
    if stories.len() > 1 {
        page.paragraph(
            "",
            &format!(
                "{} different out-of-memory messages, {count} in all. The first is usually the cause, and what follows \
                 is what came of it.",
                stories.len()
            ),
        );
    }
    let mut given = Vec::new();
    for (number, story) in (1..).zip(stories) {
        if stories.len() > 1 {
            page.text.push('\n');
        }
        let number = (stories.len() > 1).then_some(number);
        page.story(number, story, neighbours, &mut given);
    }
    if style.ascii { crate::commands::report::table::ascii(&page.text) } else { page.text }
}

struct Page {
    text: String,
    style: Style,
}

impl Page {
    fn story(
        &mut self,
        number: Option<usize>,
        story: &Story<'_>,
        neighbours: &Neighbours,
        given: &mut Vec<(Advice, usize)>,
    ) {
        let message = &story.found.message;
        let anatomy = Anatomy::of(message);
        let shortages = judge(message, &anatomy);
        self.head(&headline(number, story));
        if message.is_cut {
            self.paragraph(
                "",
                "The message is cut off or mixed with other text; this is what can still be read of it.",
            );
        }
        if self.figures(message, &anatomy) {
            self.text.push('\n');
        }
        for (at, shortage) in shortages.iter().enumerate() {
            let also = if at > 0 { "also " } else { "" };
            self.paragraph("", &format!("{also}{shortage}: {}", sentence(*shortage, message, &anatomy)));
        }
        for mismatch in &anatomy.mismatches {
            self.paragraph("", &amiss(mismatch));
        }
        for note in notes(message, &anatomy) {
            self.paragraph("", &note);
        }
        let others: Vec<u32> = anatomy.named_others().map(|it| it.0).collect();
        for sentence in neighbours.sentences(&others, story.written) {
            self.paragraph("", &sentence);
        }
        let texts = on_shortage(&shortages);
        let mut seen: Vec<String> = Vec::new();
        for (_, at) in given.iter().filter(|(it, _)| texts.contains(it)) {
            let at = at.to_string();
            if !seen.contains(&at) {
                seen.push(at);
            }
        }
        let fresh: Vec<Advice> = texts.into_iter().filter(|it| !given.iter().any(|(seen, _)| seen == it)).collect();
        if !fresh.is_empty() {
            self.text.push('\n');
            self.head("What to try first");
            for (number, advice) in (1..).zip(&fresh) {
                self.advice(number, advice);
            }
        }
        if !seen.is_empty() {
            let head = if fresh.is_empty() { "What to try: as" } else { "Then as" };
            self.paragraph("", &format!("{head} for {}.", seen.join(" and ")));
        }
        given.extend(fresh.into_iter().map(|it| (it, number.unwrap_or(1))));
    }

    fn head(&mut self, head: &str) {
        let (on, off) = if self.style.bold { ("\x1b[1m", "\x1b[22m") } else { ("", "") };
        for line in wrap(head, self.style.width, 0) {
            let _infallible: std::fmt::Result = writeln!(self.text, "{on}{line}{off}");
        }
    }

    /// Text within the width; lines after the first begin with `indent`.
    fn paragraph(&mut self, indent: &str, text: &str) {
        for (at, line) in wrap(text, self.style.width, indent.width()).iter().enumerate() {
            let indent = if at > 0 { indent } else { "" };
            let _infallible: std::fmt::Result = writeln!(self.text, "{indent}{line}");
        }
    }

    /// The bar and the list below it, if there is anything to put there.
    fn figures(&mut self, message: &Message, anatomy: &Anatomy) -> bool {
        let mut parts: Vec<(Option<Whose>, Bytes, String)> = Vec::new();
        for (whose, part) in &anatomy.parts {
            let rounding = match whose {
                Whose::Rest => format!(", give or take {} by rounding", exact(anatomy.rounding)),
                _ => String::new(),
            };
            parts.push((Some(*whose), part.bytes(), format!("{}{rounding}", self::whose(*whose, anatomy.me))));
            if let (Whose::Allocated, Some(pools)) = (whose, message.pools) {
                parts.push((None, pools.bytes, "  of that, in private pools (CUDA graphs)".to_owned()));
            }
        }
        let whole = message.total.map(|it| it.bytes);
        if let (Some(whole), Some(_), Some(_)) = (whole, message.free, anatomy.own) {
            self.bar(&anatomy.parts.iter().map(|(whose, part)| (*whose, part.bytes())).collect::<Vec<_>>(), whole);
        }
        let most = parts.iter().map(|(_, part, _)| exact(*part).len());
        let column = most.chain(whole.map(|it| exact(it).len())).max().unwrap_or_default();
        for (whose, part, label) in parts {
            let glyph = whose.map_or(' ', |it| glyph(it, self.style.ascii));
            let share = match (whose, whole.and_then(|whole| part.share_of(whole))) {
                (Some(_), Some(share)) => format!("{:5.1}%", share * 100.0),
                _ => " ".repeat(6),
            };
            let before = format!("{INDENT}{glyph} {:>column$} {share}  ", exact(part));
            self.paragraph(&" ".repeat(before.width()), &format!("{before}{label}"));
        }
        let blank = " ".repeat(6);
        if let Some(whole) = whole {
            let before = format!("{INDENT}  {:>column$} {blank}  ", exact(whole));
            self.paragraph(&" ".repeat(before.width()), &format!("{before}the whole GPU"));
        }
        if let Some(allowed) = message.allowed {
            let before = format!("{INDENT}  {:>column$} {blank}  ", exact(allowed.bytes));
            self.paragraph(&" ".repeat(before.width()), &format!("{before}allowed to this process"));
        }
        !anatomy.parts.is_empty() || whole.is_some()
    }

    /// The GPU as a line of cells; whatever is there has one at least.
    fn bar(&mut self, parts: &[(Whose, Bytes)], whole: Bytes) {
        let width = self.style.width.saturating_sub(2 * INDENT.len()).clamp(SHORTEST_BAR, LONGEST_BAR);
        let sum: Bytes = parts.iter().map(|(_, part)| *part).sum();
        let cells = cells(parts.iter().map(|(_, part)| *part), sum.max(whole), width);
        let bar: String = parts
            .iter()
            .zip(cells)
            .flat_map(|((whose, _), cells)| std::iter::repeat_n(glyph(*whose, self.style.ascii), cells))
            .collect();
        let _infallible: std::fmt::Result = writeln!(self.text, "{INDENT}{bar}");
    }

    fn advice(&mut self, number: usize, advice: &Advice) {
        self.paragraph("   ", &format!("{number}. {}", advice.title()));
        for paragraph in advice.paragraphs() {
            // Code is copied, not wrapped.
            if paragraph.starts_with(' ') {
                let _infallible: std::fmt::Result = writeln!(self.text, "   {paragraph}");
            } else {
                self.paragraph("   ", &format!("   {paragraph}"));
            }
        }
    }
}

/// Cells of a bar for each part, of `whole` in all: none for nothing, one at least for something.
fn cells(parts: impl Iterator<Item = Bytes>, whole: Bytes, width: usize) -> Vec<usize> {
    let wide = u128::try_from(width).unwrap_or_default();
    let of = |part: Bytes| u128::from(part.0) * wide / u128::from(whole.0.max(1));
    let parts: Vec<Bytes> = parts.collect();
    let mut cells: Vec<usize> =
        parts.iter().map(|part| usize::try_from(of(*part)).unwrap_or(width).max(usize::from(part.0 > 0))).collect();
    // What rounding left over goes to the largest, and comes from there.
    let used: usize = cells.iter().sum();
    if let Some(largest) = (0..parts.len()).max_by_key(|at| parts[*at]) {
        let whole_bar = parts.iter().copied().sum::<Bytes>() >= whole;
        if used > width {
            cells[largest] = cells[largest].saturating_sub(used - width).max(1);
        } else if whole_bar {
            cells[largest] += width - used;
        }
    }
    cells
}

fn glyph(whose: Whose, ascii: bool) -> char {
    let (drawn, stand_in) = match whose {
        Whose::Allocated => ('█', '#'),
        Whose::Unallocated => ('▓', '='),
        Whose::NotPyTorch | Whose::Held => ('▒', '+'),
        Whose::Other(_) => ('░', 'o'),
        Whose::Rest => ('╌', '-'),
        Whose::Free => ('·', '.'),
    };
    if ascii { stand_in } else { drawn }
}

fn whose(whose: Whose, me: Me) -> String {
    match whose {
        Whose::Allocated => "this process: allocated by PyTorch".to_owned(),
        Whose::Unallocated => "this process: reserved by PyTorch, unallocated".to_owned(),
        Whose::NotPyTorch => "this process: not PyTorch's (CUDA context, kernels, NCCL, other libraries)".to_owned(),
        Whose::Held => "this process: PyTorch's or not, what can be read does not say".to_owned(),
        Whose::Other(pid) => format!("process {pid}"),
        Whose::Rest if me == Me::Unnamed => {
            "others, the driver, and what this process holds beside PyTorch (by arithmetic)".to_owned()
        }
        Whose::Rest => "not accounted for: the driver, graphics, processes that are not listed".to_owned(),
        Whose::Free => "free".to_owned(),
    }
}

/// `2. CUDA out of memory on GPU 0: 14.14 GiB asked for (train.log, line 12; rank 3; said 2 times)`
fn headline(number: Option<usize>, story: &Story<'_>) -> String {
    let (found, message) = (story.found, &story.found.message);
    let number = number.map_or_else(String::new, |it| format!("{it}. "));
    let gpu = message.gpu.map_or_else(String::new, |it| format!(" on GPU {it}"));
    let asked = match (message.requested, message.form) {
        (Some(requested), _) => format!(": {} asked for", exact(requested.bytes)),
        (None, Form::Absurd) => ": more than 1 EB asked for".to_owned(),
        (None, _) => String::new(),
    };
    let mut place: Vec<String> = story.source.map(Text::to_string).into_iter().collect();
    if story.has_lines {
        place.push(format!("line {}", found.line));
    }
    match found.ranks.as_slice() {
        [] => {}
        [one] => place.push(format!("rank {one}")),
        many => place.push(format!("ranks {}", many.iter().map(u32::to_string).collect::<Vec<_>>().join(", "))),
    }
    if found.count > 1 {
        place.push(format!("said {} times", found.count));
    }
    let backend = message.backend.map_or_else(|| "Out".to_owned(), |it| format!("{it} out"));
    let place = if place.is_empty() { String::new() } else { format!(" ({})", place.join("; ")) };
    format!("{number}{backend} of memory{gpu}{asked}{place}")
}

fn amiss(mismatch: &Mismatch) -> String {
    let (by, rounding) = (exact(mismatch.by.bytes()), exact(mismatch.by.slack()));
    format!(
        "The figures of the message do not add up: {}, by {by}; rounding explains up to {rounding}. Memory that is not on \
         the GPU is counted, too: the host's, which the driver lends on Windows and WSL, and addresses without memory \
         behind them, as in expandable segments and pools that were put to sleep.",
        mismatch.claim
    )
}

/// What a reader may trip over.
fn notes(message: &Message, anatomy: &Anatomy) -> Vec<String> {
    let mut notes = Vec::new();
    if let Me::As(pid) = anatomy.me {
        let one_of = if message.others.len() > 1 { ", most likely," } else { "" };
        notes.push(format!(
            "Process {pid} is{one_of} this process itself: in a container it is listed under its PID of the host, and \
             PyTorch does not know it by that."
        ));
    }
    let unsaid = message.others.iter().filter(|(_, held)| held.is_err()).map(|(pid, _)| format!("process {pid}"));
    let this = message.this_process.filter(Result::is_err).map(|_| "this process".to_owned());
    let unsaid: Vec<String> = this.into_iter().chain(unsaid).collect();
    if !unsaid.is_empty() {
        notes.push(format!(
            "17179869184.00 GiB is how the message says that the driver gives no figure; so it is for {}.",
            unsaid.join(", ")
        ));
    }
    notes
}

/// Whether the reasons leave something to say of other processes.
pub(super) fn needs_neighbours(stories: &[Story<'_>]) -> bool {
    stories.iter().any(|it| Anatomy::of(&it.found.message).named_others().next().is_some())
}

/// Reasons as a program knows them, for [`super::json`].
pub(super) fn reasons(message: &Message) -> (Anatomy, Vec<Shortage>) {
    let anatomy = Anatomy::of(message);
    let shortages = judge(message, &anatomy);
    (anatomy, shortages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_has_a_cell_for_all_that_is_there_and_is_as_wide_as_it_should() {
        let parts = |list: &[u64]| list.iter().map(|it| Bytes(*it)).collect::<Vec<_>>();
        let bar = |list: &[u64], whole, width| cells(parts(list).into_iter(), Bytes(whole), width);
        assert_eq!(bar(&[50, 25, 25], 100, 8), [4, 2, 2]);
        assert_eq!(bar(&[1, 99_998, 1], 100_000, 10), [1, 8, 1]);
        assert_eq!(bar(&[0, 100], 100, 10), [0, 10]);
        assert_eq!(bar(&[30], 100, 10), [3]);
    }
}
