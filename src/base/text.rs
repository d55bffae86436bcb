//! Text from outside: arguments, names of users, hosts and GPUs, errors of a library. [`Text`]
//! sanitizes such text once, on the way in: no control character, bidi override, invisible
//! character or invalid UTF-8 reaches a terminal or a file.

mod argv;

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

pub use self::argv::Argv;

/// Printable text, made from untrusted bytes.
///
/// Characters that must not be printed are replaced by `\u{FFFD}`. Different inputs may become
/// equal texts, so a text is never an identity.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Text(#[schemars(with = "String")] Arc<str>);

impl Text {
    /// The largest number of bytes. Longer text is cut off and ends in an ellipsis.
    pub const LIMIT: usize = 4096;

    /// The largest number of combining marks on one character. No language needs more.
    const MARKS: usize = 2;

    /// Sanitizes bytes, of which some may be no valid UTF-8.
    pub fn new(bytes: impl AsRef<[u8]>) -> Self {
        let text = String::from_utf8_lossy(bytes.as_ref());
        if text.len() <= Self::LIMIT && text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            return Self(text.into());
        }
        let mut printable = String::with_capacity(text.len().min(Self::LIMIT));
        let mut marks = 0;
        for character in text.chars() {
            marks = if is_mark(character) { marks + 1 } else { 0 };
            if marks > Self::MARKS {
                continue;
            }
            let shown = if is_printable(character) {
                character
            } else {
                '\u{FFFD}'
            };
            // Leaves room for the ellipsis, so that a text that was cut does not change when it is
            // sanitized again.
            if printable.len() + shown.len_utf8() > Self::LIMIT - '…'.len_utf8() {
                printable.push('…');
                break;
            }
            printable.push(shown);
        }
        Self(printable.into())
    }

    /// Returns the text, which is safe to print.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether a terminal can print a character: it does not move the cursor, hide or reorder text.
fn is_printable(character: char) -> bool {
    !character.is_control()
        && !matches!(character,
            // Soft hyphen, combining grapheme joiner, Arabic letter mark, Hangul fillers.
            '\u{00AD}' | '\u{034F}' | '\u{061C}' | '\u{115F}' | '\u{1160}' | '\u{3164}' | '\u{FFA0}'
            // Mongolian variation selectors and vowel separator, zero-width characters and
            // directional marks, line and paragraph separators, embeddings and overrides, word
            // joiner, invisible operators, isolates.
            | '\u{180B}'..='\u{180F}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}'
            // Byte order mark, interlinear annotations, musical formatting, tags, variation
            // selectors.
            | '\u{FEFF}' | '\u{FFF9}'..='\u{FFFB}' | '\u{1D173}'..='\u{1D17A}' | '\u{E0000}'..='\u{E0FFF}'
            | '\u{FE00}'..='\u{FE0F}'
            // Private use: each font shows a different character.
            | '\u{E000}'..='\u{F8FF}' | '\u{F0000}'..='\u{10FFFF}')
}

/// Whether a character takes no column of its own, as a combining mark does.
fn is_mark(character: char) -> bool {
    unicode_width::UnicodeWidthChar::width(character) == Some(0)
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Borrow<str> for Text {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Sanitizes the text, since lines come from other hosts and from recordings.
impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// A `Cow` alone would always copy the string.
        #[derive(Deserialize)]
        struct Borrowed<'a>(#[serde(borrow)] Cow<'a, str>);
        Ok(Self::new(Borrowed::deserialize(deserializer)?.0.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], expected: &str) {
        assert_eq!(Text::new(bytes).as_str(), expected);
    }

    #[test]
    fn characters_that_move_the_cursor_or_hide_are_replaced() {
        check(b"python train.py", "python train.py");
        check(b"a\x1b[2Jb\nc\x7f", "a\u{FFFD}[2Jb\u{FFFD}c\u{FFFD}");
        check("ab\u{202E}cd\u{200B}".as_bytes(), "ab\u{FFFD}cd\u{FFFD}");
        check("\u{9b}31m".as_bytes(), "\u{FFFD}31m");
        check(b"\xff\xfe", "\u{FFFD}\u{FFFD}");
        check("名前 é ü".as_bytes(), "名前 é ü");
    }

    #[test]
    fn more_than_two_marks_on_a_character_are_dropped() {
        let zalgo = format!("a{}b", "\u{0301}".repeat(2048));
        check(zalgo.as_bytes(), "a\u{0301}\u{0301}b");
    }

    #[test]
    fn a_long_text_is_cut_and_ends_in_an_ellipsis() {
        let text = Text::new(vec![b'x'; 1 << 20]);
        assert!(
            text.as_str().len() <= Text::LIMIT && text.as_str().ends_with('…'),
            "{}",
            text.as_str().len()
        );
    }

    proptest! {
        /// Any input gives printable text within the limit, which a second pass does not change.
        #[test]
        fn only_printable_text_comes_out(bytes in proptest::collection::vec(any::<u8>(), 0..6000), text in ".*") {
            for input in [bytes.as_slice(), text.as_bytes()] {
                let once = Text::new(input);
                prop_assert!(once.as_str().chars().all(is_printable));
                prop_assert!(once.as_str().len() <= Text::LIMIT);
                prop_assert_eq!(&Text::new(once.as_str()), &once);
            }
        }
    }
}
