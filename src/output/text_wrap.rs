//! Breaks text into lines.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Cuts a text after this many characters.
pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Breaks a text at spaces into lines of at most `width` columns. The caller indents the lines
/// after the first by `indent` columns. Blanks before the first word stay. A word that is wider
/// than a line is not cut.
pub(crate) fn wrap(text: &str, width: usize, indent: usize) -> Vec<String> {
    break_lines(text, width, indent, false)
}

/// Wraps like [`wrap`], and breaks no line between a number and its unit.
pub(crate) fn wrap_figures(text: &str, width: usize, indent: usize) -> Vec<String> {
    wrap(&bound(text), width, indent)
        .into_iter()
        .map(|line| line.replace(BOUND, " "))
        .collect()
}

/// Wraps like [`wrap_figures`], and cuts words that are wider than a line.
pub(crate) fn wrap_and_cut(text: &str, width: usize, indent: usize) -> Vec<String> {
    break_lines(&bound(text), width, indent, true)
        .into_iter()
        .map(|line| line.replace(BOUND, " "))
        .collect()
}

fn break_lines(text: &str, width: usize, indent: usize, cuts_words: bool) -> Vec<String> {
    let (lead, words) = text.split_at(text.len() - text.trim_start().len());
    let (mut lines, mut line, mut room) = (Vec::new(), lead.to_owned(), width);
    let further_room = width.saturating_sub(indent);
    // Runs of spaces within a line are kept: they align tables.
    for (number, word) in words.split(' ').enumerate() {
        let space = if number == 0 || line.is_empty() {
            ""
        } else {
            " "
        };
        let fits = line.width() + space.len() + word.width() <= room;
        if !fits && cuts_words && word.width() > further_room {
            line.push_str(space);
            let mut columns = line.width();
            for character in word.chars() {
                columns += character.width().unwrap_or(0);
                if columns > room {
                    lines.push(std::mem::take(&mut line));
                    (room, columns) = (further_room, character.width().unwrap_or(0));
                }
                line.push(character);
            }
        } else if fits || line.trim().is_empty() {
            line.push_str(space);
            line.push_str(word);
        } else {
            line.truncate(line.trim_end().len());
            lines.push(std::mem::replace(&mut line, word.to_owned()));
            room = further_room;
        }
    }
    lines.push(line);
    lines
}

const BOUND: char = '\u{a0}';

/// Replaces the space between a number and its unit by [`BOUND`], and that between hours and
/// minutes, as in `3 h 10 min`.
fn bound(text: &str) -> String {
    let mut bound = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        let next = rest.peek().copied().unwrap_or(' ');
        let is_number = bound.ends_with(|last: char| last.is_ascii_digit());
        let is_long = [" h", " d", "\u{a0}h", "\u{a0}d"]
            .iter()
            .any(|unit| bound.ends_with(unit));
        let is_bound = is_number && next.is_alphabetic() || is_long && next.is_ascii_digit();
        bound.push(if character == ' ' && is_bound {
            BOUND
        } else {
            character
        });
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

    #[test]
    fn only_a_word_that_is_wider_than_a_line_is_cut() {
        assert_eq!(
            wrap_and_cut("12 /dev/nvidia0", 6, 0),
            ["12 /de", "v/nvid", "ia0"]
        );
        assert_eq!(wrap_and_cut("one two three", 5, 0), ["one", "two", "three"]);
        assert_eq!(wrap_and_cut("sixteen b", 4, 2), ["sixt", "ee", "n", "b"]);
    }
}
