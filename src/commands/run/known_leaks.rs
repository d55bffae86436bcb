//! A baseline: a file of known leaks, for which `gputop run --fail-on-leak` does not fail.
//!
//! A line has the cause of a leak and the holder of the tensors without line numbers, so that a
//! change elsewhere in the file does not make a known leak a new one.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use crate::protocol::snapshot::TensorLeak;

/// The first lines of a file that gputop writes.
const HEAD: &str = "\
# Known leaks of GPU memory: `gputop run --fail-on-leak --baseline` does not fail for them.
# Each line has the cause, and the holder of the tensors without line numbers.
";

#[derive(Debug, Default, PartialEq)]
pub(super) struct KnownLeaks {
    lines: BTreeSet<String>,
}

impl KnownLeaks {
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        Ok(Self::parse(&fs::read_to_string(path)?))
    }

    fn parse(text: &str) -> Self {
        let lines = text.lines().map(str::trim);
        let is_leak = |line: &&str| !line.is_empty() && !line.starts_with('#');
        Self {
            lines: lines.filter(is_leak).map(str::to_owned).collect(),
        }
    }

    pub(super) fn contains(&self, leak: &TensorLeak) -> bool {
        self.lines.contains(&line(leak))
    }

    pub(super) fn insert(&mut self, leak: &TensorLeak) {
        self.lines.insert(line(leak));
    }

    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let lines = self.lines.iter().map(|line| format!("{line}\n"));
        fs::write(path, HEAD.to_owned() + &lines.collect::<String>())
    }
}

/// The line of a leak: `kept_outputs: list outputs, train.py in main`.
fn line(leak: &TensorLeak) -> String {
    let cause = leak
        .cause
        .as_ref()
        .map_or("unknown", |cause| cause.as_str());
    let lines = leak.allocated_at.as_ref();
    let allocated = lines.and_then(|lines| lines.user.as_ref().or(lines.inner.as_ref()));
    match leak.held_by.first().or(allocated) {
        Some(place) => format!("{cause}: {}", without_line_numbers(place.as_str())),
        None => cause.to_owned(),
    }
}

/// `list outputs, train.py in main` for `list outputs, train.py:41 in main`.
fn without_line_numbers(place: &str) -> String {
    let words = place.split(' ').map(|word| {
        let (rest, comma) = match word.strip_suffix(',') {
            Some(rest) => (rest, ","),
            None => (word, ""),
        };
        let is_number =
            |number: &str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        match rest.rsplit_once(':') {
            Some((file, number)) if is_number(number) => format!("{file}{comma}"),
            _ => word.to_owned(),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_numbers_of_a_holder_are_left_out() {
        for (place, without) in [
            (
                "list outputs, train.py:40 in main",
                "list outputs, train.py in main",
            ),
            (
                "Layer.cache, model.py:7, in train.py:3",
                "Layer.cache, model.py, in train.py",
            ),
            ("tensor total", "tensor total"),
            ("list a:b, x.py:1", "list a:b, x.py"),
        ] {
            assert_eq!(without_line_numbers(place), without);
        }
    }

    #[test]
    fn comments_and_empty_lines_are_no_leaks() {
        let known = KnownLeaks::parse("# a comment\n\n kept_outputs: list a, b.py \n");
        assert_eq!(
            known.lines.iter().collect::<Vec<_>>(),
            ["kept_outputs: list a, b.py"]
        );
    }
}
