//! The result of `gputop run --fail-on-leak`: the leaks of all processes of the command, as text,
//! as annotations of GitHub Actions, and in JUnit's form.

use std::env;

use super::known_leaks::KnownLeaks;
use super::last_states::{LastLeak, LastState};
use crate::base::text::Text;
use crate::output::Exit;
use crate::output::labels::tensors;

/// The sentence for a command without a process that left a state.
const NOTHING_USED_CUDA: &str = "no process of the command used CUDA through PyTorch with gputop's probe, so nothing was judged: there may \
     be no GPU here, or something replaces PYTHONPATH on the way (uv, a container)";

pub(super) struct GateResult {
    processes: Vec<JudgedState>,
    /// Whether the command may have processes that could not be judged.
    allows_unjudged: bool,
}

/// The last state of a process, and its leaks.
struct JudgedState {
    state: LastState,
    /// The likely leaks that the baseline does not have.
    leaks: Vec<LastLeak>,
    /// The number of likely leaks that the baseline has.
    known: usize,
    /// The number of leaks that are possible only.
    possible: usize,
}

impl GateResult {
    pub(super) fn new(states: Vec<LastState>, known: &KnownLeaks, allows_unjudged: bool) -> Self {
        let processes = states
            .into_iter()
            .map(|state| JudgedState::new(state, known))
            .collect();
        Self {
            processes,
            allows_unjudged,
        }
    }

    /// The exit code of a command that succeeded.
    pub(super) fn exit(&self) -> Exit {
        if self.leaks().next().is_some() {
            Exit::Leak
        } else if !self.allows_unjudged && self.is_unjudged() {
            Exit::NotJudged
        } else {
            Exit::Success
        }
    }

    /// Whether no process left a state.
    pub(super) fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    fn is_unjudged(&self) -> bool {
        self.is_empty() || self.unjudged().next().is_some()
    }

    fn unjudged(&self) -> impl Iterator<Item = &JudgedState> {
        self.processes
            .iter()
            .filter(|process| process.state.is_unjudged())
    }

    /// The likely leaks that the baseline does not have.
    fn leaks(&self) -> impl Iterator<Item = (&JudgedState, &LastLeak)> {
        self.processes
            .iter()
            .flat_map(|process| process.leaks.iter().map(move |leak| (process, leak)))
    }

    /// Returns the result for people: the leaks, the processes that could not be judged, and a
    /// summary.
    pub(super) fn text(&self) -> String {
        let mut lines = Vec::new();
        for (process, leak) in self.leaks() {
            let name = process.name();
            lines.push(format!("gputop: LEAK in {name}: {}", headline(leak)));
            lines.extend(evidence(leak).map(|line| format!("  {line}")));
        }
        for process in self.unjudged() {
            let why = process.why_unjudged();
            lines.push(format!("gputop: not judged: {}: {why}", process.name()));
        }
        lines.push(format!("gputop: {}", self.summary()));
        lines.join("\n") + "\n"
    }

    fn summary(&self) -> String {
        if self.processes.is_empty() {
            return NOTHING_USED_CUDA.to_owned();
        }
        let sum =
            |count: fn(&JudgedState) -> usize| -> usize { self.processes.iter().map(count).sum() };
        let leaks = match self.leaks().count() {
            0 => "no likely leak".to_owned(),
            count => counted(count, "likely leak"),
        };
        let known = sum(|process| process.known);
        let possible = sum(|process| process.possible);
        let unjudged = self.unjudged().count();
        let parts = [
            (known > 0).then(|| format!("{known} known, in the baseline")),
            (possible > 0).then(|| format!("{possible} possible, which does not count")),
            (unjudged > 0).then(|| format!("{} not judged", counted(unjudged, "process"))),
        ];
        let number = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let steps = number(
            self.processes
                .iter()
                .map(|process| process.state.steps)
                .sum(),
        );
        let tests = number(
            self.processes
                .iter()
                .map(|process| process.state.tests)
                .sum(),
        );
        let mut seen = vec![counted(steps, "training step")];
        if tests > 0 {
            seen.push(counted(tests, "test"));
        }
        let first = format!(
            "{leaks} in {} with {}",
            counted(self.processes.len(), "process"),
            seen.join(" and "),
        );
        let parts = std::iter::once(first).chain(parts.into_iter().flatten());
        parts.collect::<Vec<_>>().join("; ")
    }

    /// Returns one command of GitHub Actions for each leak and for each process that could not be
    /// judged.
    pub(super) fn annotations(&self) -> String {
        let leaks = self.leaks().map(|(process, leak)| {
            let text = std::iter::once(headline(leak)).chain(evidence(leak));
            let text = text.collect::<Vec<_>>().join("\n");
            let place = process
                .place(leak)
                .map_or_else(String::new, |(file, line)| {
                    format!("file={},line={line},", escape_property(&file))
                });
            format!(
                "::error {place}title=GPU memory leaks::{}\n",
                escape_message(&text)
            )
        });
        let kind = if self.allows_unjudged {
            "notice"
        } else {
            "error"
        };
        let unjudged = self.unjudged().map(|process| {
            let text = format!("{}: {}", process.name(), process.why_unjudged());
            format!(
                "::{kind} title=Not judged by gputop::{}\n",
                escape_message(&text)
            )
        });
        let nothing = self
            .processes
            .is_empty()
            .then(|| format!("::{kind} title=Not judged by gputop::{NOTHING_USED_CUDA}\n"));
        leaks.chain(unjudged).chain(nothing).collect()
    }

    /// Returns a test suite in JUnit's form, with a test case for each process.
    pub(super) fn junit(&self) -> String {
        let unjudged = if self.allows_unjudged {
            "skipped"
        } else {
            "error"
        };
        // Names and results.
        let mut cases: Vec<(String, String)> = self
            .processes
            .iter()
            .map(|process| (process.name(), process.junit(unjudged)))
            .collect();
        if cases.is_empty() {
            let result = xml_element(unjudged, NOTHING_USED_CUDA, "");
            cases.push(("no process".to_owned(), result));
        }
        let count = |element: &str| {
            let begin = format!("<{element} ");
            cases
                .iter()
                .filter(|(_, result)| result.starts_with(&begin))
                .count()
        };
        let head = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <testsuite name=\"gputop run --fail-on-leak\" tests=\"{}\" failures=\"{}\" errors=\"{}\" \
             skipped=\"{}\">\n",
            cases.len(),
            count("failure"),
            count("error"),
            count("skipped"),
        );
        let cases = cases.iter().map(|(name, result)| {
            let name = escape_xml(name);
            format!("  <testcase classname=\"gputop\" name=\"{name}\">{result}</testcase>\n")
        });
        head + &cases.collect::<String>() + "</testsuite>\n"
    }
}

impl JudgedState {
    fn new(state: LastState, known: &KnownLeaks) -> Self {
        let (known, leaks): (Vec<LastLeak>, Vec<LastLeak>) = state
            .likely_leaks()
            .partition(|found| known.contains(&found.leak));
        Self {
            possible: state.leaks().count() - known.len() - leaks.len(),
            state,
            leaks,
            known: known.len(),
        }
    }

    /// `train.py (PID 4711)`.
    fn name(&self) -> String {
        format!("{} (PID {})", self.state.program, self.state.pid)
    }

    fn why_unjudged(&self) -> &str {
        self.state.unjudged.as_ref().map_or("", |why| why.as_str())
    }

    /// The result of a test case in JUnit's form; empty if the process is healthy. `unjudged` is the
    /// element for a process that could not be judged.
    fn junit(&self, unjudged: &str) -> String {
        if self.leaks.is_empty() && self.state.is_unjudged() {
            return xml_element(unjudged, self.why_unjudged(), "");
        }
        let failures = self.leaks.iter().map(|found| {
            let text = evidence(found).collect::<Vec<_>>().join("\n");
            xml_element("failure", &headline(found), &text)
        });
        failures.collect()
    }

    /// The file of a leak and the number of the line there; `None` if the leak has no line.
    fn place(&self, found: &LastLeak) -> Option<(String, u64)> {
        let (file, line) = found.leak.line()?.rsplit_once(':')?;
        let path = self.state.path_of(file);
        let path = match env::current_dir() {
            Ok(folder) => path.strip_prefix(folder).unwrap_or(path),
            Err(_) => path,
        };
        Some((path.display().to_string(), line.parse().ok()?))
    }
}

/// `train.py:41, 250 KiB per step: tensors are kept`.
fn headline(found: &LastLeak) -> String {
    let place = found
        .leak
        .line()
        .map_or_else(String::new, |line| format!("{line}, "));
    let growth = tensors::growth(&found.leak);
    let growth = if found.grows_over_tests {
        growth.replace("per step", "per test")
    } else {
        growth
    };
    let cause = tensors::cause(&found.leak).map_or_else(String::new, |cause| format!(": {cause}"));
    format!("{place}{growth}{cause}")
}

/// The lines below the headline: the tensors and their holders, and what to try.
fn evidence(found: &LastLeak) -> impl Iterator<Item = String> {
    let leak = &found.leak;
    let parts = [
        Some(tensors::leaking_tensors(leak)),
        (!leak.held_by.is_empty()).then(|| {
            let holders: Vec<&str> = leak.held_by.iter().map(Text::as_str).collect();
            format!("held by {}", holders.join("; "))
        }),
        leak.bytes.map(|bytes| format!("{bytes} so far")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let advice = leak.advice.as_ref().map(|advice| format!("try: {advice}"));
    std::iter::once(parts.join(", ")).chain(advice)
}

/// `1 step`, `2 steps`, `2 processes`.
fn counted(count: usize, word: &str) -> String {
    match count {
        1 => format!("1 {word}"),
        _ if word.ends_with('s') => format!("{count} {word}es"),
        _ => format!("{count} {word}s"),
    }
}

/// Escapes the message of a command of GitHub Actions.
fn escape_message(text: &str) -> String {
    text.replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

/// Escapes a property of a command of GitHub Actions.
fn escape_property(text: &str) -> String {
    escape_message(text).replace(':', "%3A").replace(',', "%2C")
}

fn xml_element(name: &str, message: &str, text: &str) -> String {
    let (message, text) = (escape_xml(message), escape_xml(text));
    format!("<{name} message=\"{message}\">{text}</{name}>")
}

fn escape_xml(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
