//! Splits shell text, as in `sh -c 'TEXT'`, into simple commands and their words.
//!
//! The text may be any text: nothing in it is an error. Line feeds have become `\u{FFFD}`, because
//! the text is printable.

use std::ops::Range;

use super::word::Word;

/// The character that stands for a line feed.
const LINE_FEED: char = char::REPLACEMENT_CHARACTER;

/// The operator before a text for the standard input of a command.
pub(super) const HERE_STRING: &str = "<<<";

/// Deeper `$(…)` are not searched.
const DEEPEST: u32 = 4;

/// A program with its arguments, and the assignments before it.
#[derive(Debug, Default)]
pub(super) struct ShellCommand<'a> {
    pub(super) words: Vec<Word<'a>>,
    /// Whether the command before writes to the standard input of this one.
    pub(super) is_piped: bool,
}

/// Splits arguments at those that are operators of a shell, as in a command line that another
/// program passes on.
pub(super) fn split_at_operators<'a>(words: &[Word<'a>]) -> Vec<ShellCommand<'a>> {
    let mut commands = vec![ShellCommand::default()];
    for word in words {
        if matches!(&*word.text, "|" | "||" | "&&" | ";") {
            commands.push(ShellCommand {
                words: Vec::new(),
                is_piped: word.text == "|",
            });
        } else if let Some(command) = commands.last_mut() {
            command.words.push(word.clone());
        }
    }
    commands
}

/// Returns the simple commands in a text, also those in `$(…)`.
pub(super) fn commands(text: &Word<'_>) -> Vec<ShellCommand<'static>> {
    commands_within(text, 0)
}

fn commands_within(text: &Word<'_>, depth: u32) -> Vec<ShellCommand<'static>> {
    let mut splitter = Splitter {
        source: text,
        depth,
        offset: 0,
        word: String::new(),
        bytes: Vec::new(),
        is_word: false,
        is_file: false,
        command: ShellCommand::default(),
        commands: Vec::new(),
    };
    splitter.split();
    splitter.commands
}

struct Splitter<'a> {
    source: &'a Word<'a>,
    /// The number of `$(…)` around the text.
    depth: u32,
    offset: usize,
    /// The word so far, without quotes, and the places of its bytes in the source.
    word: String,
    bytes: Vec<usize>,
    /// Whether a word has begun: it may be empty, as in `''`.
    is_word: bool,
    /// Whether the next word is the file of a redirection.
    is_file: bool,
    command: ShellCommand<'static>,
    commands: Vec<ShellCommand<'static>>,
}

impl Splitter<'_> {
    fn split(&mut self) {
        while let Some(character) = self.rest().chars().next() {
            match character {
                ' ' => {
                    self.offset += 1;
                    self.end_word();
                }
                LINE_FEED => {
                    self.offset += character.len_utf8();
                    self.end_word();
                    // A line that begins with an option continues the line before.
                    if !self
                        .rest()
                        .trim_start_matches([' ', LINE_FEED])
                        .starts_with('-')
                    {
                        self.end_command(false);
                    }
                }
                ';' | '(' | ')' | '&' => {
                    self.offset += 1;
                    self.end_command(false);
                }
                '|' => {
                    let operator =
                        self.rest().len() - self.rest().trim_start_matches(['|', '&']).len();
                    let is_pipe = !self.rest().starts_with("||");
                    self.offset += operator;
                    self.end_command(is_pipe);
                }
                '<' | '>' => self.redirect(),
                '\\' => self.take_escaped(),
                '\'' => self.take_quoted('\''),
                '"' => self.take_quoted('"'),
                '`' => self.take_substitution("`", '`'),
                '$' if self.rest().starts_with("$(") => self.take_substitution("$(", ')'),
                '$' if self.rest().starts_with("${") => self.take_parameter(),
                _ => self.take_bytes(character.len_utf8()),
            }
        }
        self.end_command(false);
    }

    fn rest(&self) -> &str {
        &self.source.text[self.offset..]
    }

    /// Adds the next bytes to the word.
    fn take_bytes(&mut self, length: usize) {
        self.word
            .push_str(&self.source.text[self.offset..self.offset + length]);
        self.bytes.extend(self.offset..self.offset + length);
        self.offset += length;
        self.is_word = true;
    }

    fn end_word(&mut self) {
        if std::mem::take(&mut self.is_word) && !std::mem::take(&mut self.is_file) {
            self.command.words.push(
                self.source
                    .of_bytes(std::mem::take(&mut self.word), &self.bytes),
            );
        }
        self.word.clear();
        self.bytes.clear();
    }

    fn end_command(&mut self, is_piped: bool) {
        self.end_word();
        self.is_file = false;
        let command = std::mem::replace(
            &mut self.command,
            ShellCommand {
                words: Vec::new(),
                is_piped,
            },
        );
        if !command.words.is_empty() {
            self.commands.push(command);
        }
    }

    fn redirect(&mut self) {
        // The number of a descriptor, as in `2>`.
        if self.word.bytes().all(|byte| byte.is_ascii_digit()) {
            self.is_word = false;
        }
        self.end_word();
        if self.rest().starts_with(HERE_STRING) {
            self.take_bytes(HERE_STRING.len());
            self.end_word();
            return;
        }
        let rest = self.rest();
        self.offset += rest.len() - rest.trim_start_matches(['<', '>', '&']).len();
        self.is_file = true;
    }

    fn take_escaped(&mut self) {
        self.offset += 1;
        match self.rest().chars().next() {
            // The command continues on the next line.
            Some(LINE_FEED) => self.offset += LINE_FEED.len_utf8(),
            Some(character) => self.take_bytes(character.len_utf8()),
            None => {}
        }
    }

    /// Takes a quoted text. A quote without an end is an ordinary character.
    fn take_quoted(&mut self, quote: char) {
        let Some(end) = end_of_quote(self.rest(), quote) else {
            return self.take_bytes(1);
        };
        let end = self.offset + end;
        self.offset += 1;
        self.is_word = true;
        while self.offset < end {
            let rest = &self.source.text[self.offset..end];
            let Some(character) = rest.chars().next() else {
                break;
            };
            match character {
                '\\' if quote == '"' && rest[1..].starts_with(['"', '\\', '$', '`']) => {
                    self.offset += 1;
                    self.take_bytes(1);
                }
                '$' if quote == '"' && rest.starts_with("$(") => self.take_substitution("$(", ')'),
                _ => self.take_bytes(character.len_utf8()),
            }
        }
        self.offset = self.offset.max(end + 1).min(self.source.text.len());
    }

    /// Takes `$(…)` or `` `…` `` as part of the word, and the commands in it.
    fn take_substitution(&mut self, opening: &str, closing: char) {
        let begin = self.offset + opening.len();
        let Some(end) = end_of_substitution(&self.source.text[begin..], closing) else {
            return self.take_bytes(1);
        };
        self.take_commands(begin..begin + end);
        self.take_bytes(opening.len() + end + 1);
    }

    /// Takes `${…}` as part of the word.
    fn take_parameter(&mut self) {
        let length = self.rest().find('}').map_or(1, |end| end + 1);
        self.take_bytes(length);
    }

    fn take_commands(&mut self, range: Range<usize>) {
        if self.depth < DEEPEST {
            self.commands
                .extend(commands_within(&self.source.part(range), self.depth + 1));
        }
    }
}

/// Returns where the quote ends that the text begins with.
fn end_of_quote(text: &str, quote: char) -> Option<usize> {
    let mut is_escaped = false;
    for (offset, character) in text.char_indices().skip(1) {
        if is_escaped {
            is_escaped = false;
        } else if character == '\\' && quote == '"' {
            is_escaped = true;
        } else if character == quote {
            return Some(offset);
        }
    }
    None
}

/// Returns where the substitution ends that the text is in.
fn end_of_substitution(text: &str, closing: char) -> Option<usize> {
    let mut depth = 0_u32;
    for (offset, character) in text.char_indices() {
        match character {
            _ if character == closing && depth == 0 => return Some(offset),
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}
