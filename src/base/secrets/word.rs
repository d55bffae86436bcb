//! A word of a command, and where its bytes are in the argument that contains it.

use std::borrow::Cow;
use std::ops::Range;

/// An argument, or a word of shell text without its quotes.
#[derive(Debug, Clone)]
pub(super) struct Word<'a> {
    /// The number of the argument that contains the word.
    pub(super) argument: usize,
    pub(super) text: Cow<'a, str>,
    places: Places,
}

/// The places in the argument of the bytes of a word.
#[derive(Debug, Clone)]
enum Places {
    /// The bytes follow each other from this place on.
    From(usize),
    /// Quotes stand between the bytes: the place of each.
    Each(Vec<usize>),
}

impl<'a> Word<'a> {
    /// A whole argument.
    pub(super) fn of_argument(argument: usize, text: &'a str) -> Self {
        Self {
            argument,
            text: text.into(),
            places: Places::From(0),
        }
    }

    /// A part of this word.
    pub(super) fn part(&self, range: Range<usize>) -> Word<'_> {
        let places = match &self.places {
            Places::From(start) => Places::From(start + range.start),
            Places::Each(places) => Places::Each(places[range.clone()].to_vec()),
        };
        Word {
            argument: self.argument,
            text: self.text[range].into(),
            places,
        }
    }

    /// A word that consists of some bytes of this word.
    pub(super) fn of_bytes(&self, text: String, bytes: &[usize]) -> Word<'static> {
        let places = Places::Each(bytes.iter().map(|byte| self.place(*byte)).collect());
        Word {
            argument: self.argument,
            text: text.into(),
            places,
        }
    }

    /// Returns where this range of the word is in the argument.
    pub(super) fn range_in_argument(&self, range: &Range<usize>) -> Range<usize> {
        if range.is_empty() {
            0..0
        } else {
            self.place(range.start)..self.place(range.end - 1) + 1
        }
    }

    fn place(&self, byte: usize) -> usize {
        match &self.places {
            Places::From(start) => start + byte,
            Places::Each(places) => places[byte],
        }
    }
}
