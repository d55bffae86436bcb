//! Text broken into lines.

use unicode_width::UnicodeWidthStr;

/// Lines of at most so many columns, broken at spaces; those after the first are to be indented so far. What stands
/// before the first word stays.
pub fn wrap(text: &str, width: usize, indent: usize) -> Vec<String> {
    let lead = text.len() - text.trim_start().len();
    let mut lines = vec![text[..lead].to_owned()];
    let mut is_first = true;
    // Runs of spaces within a line are a table's.
    for word in text[lead..].split(' ') {
        let room = if lines.len() > 1 { width.saturating_sub(indent) } else { width };
        let Some(line) = lines.last_mut() else { break };
        if !is_first && !line.trim().is_empty() && line.width() + 1 + word.width() > room {
            line.truncate(line.trim_end().len());
            lines.push(word.to_owned());
        } else {
            line.push_str(if is_first { "" } else { " " });
            line.push_str(word);
        }
        is_first = false;
    }
    lines
}

/// The same, and no line breaks between a number and its unit.
pub fn wrap_figures(text: &str, width: usize, indent: usize) -> Vec<String> {
    wrap(&bound(text), width, indent).into_iter().map(|line| line.replace(BOUND, " ")).collect()
}

/// A space at which no line is broken.
pub(super) const BOUND: char = '\u{a0}';

/// Binds a number to its unit, and hours to their minutes, as in `3 h 10 min`.
pub(super) fn bound(text: &str) -> String {
    let mut bound = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        let next = rest.peek().copied().unwrap_or(' ');
        let is_number = bound.ends_with(|it: char| it.is_ascii_digit());
        let is_long = [" h", " d", "\u{a0}h", "\u{a0}d"].iter().any(|it| bound.ends_with(it));
        let is_bound = is_number && next.is_alphabetic() || is_long && next.is_ascii_digit();
        bound.push(if character == ' ' && is_bound { BOUND } else { character });
    }
    bound
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_wrap(text: &str, width: usize, expected: &[&str]) {
        assert_eq!(wrap(text, width, 0), expected);
    }

    #[test]
    fn lines_break_at_spaces_and_keep_their_indent() {
        check_wrap("one two three", 7, &["one two", "three"]);
        check_wrap("  one two", 7, &["  one", "two"]);
        check_wrap("averylongword b", 4, &["averylongword", "b"]);
        check_wrap("", 4, &[""]);
        check_wrap("1  2", 80, &["1  2"]);
        assert_eq!(wrap("a: one two three", 9, 3), ["a: one", "two", "three"]);
    }
}
