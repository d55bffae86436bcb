//! Finds the secrets in the arguments of processes, and replaces them by `***`: pictures of the
//! screen, recordings and reports are shared. Keeps everything else. Never decides which process a
//! process is.
//!
//! Five kinds of secrets are found: options of known programs (`programs`), logins of any program
//! (`logins`), values whose name says that they are secret (`names`, `named_values`), credentials
//! in URLs (`urls`), and tokens of well-known shapes (`tokens`). An argument with spaces may be
//! text for a shell, so each command in it is searched in the same way.
//!
//! Masking masked arguments changes nothing.

mod commands;
mod logins;
mod named_values;
mod names;
mod programs;
mod shell;
mod tokens;
mod urls;
mod word;

use std::cmp::Reverse;
use std::ops::Range;

use self::word::Word;
use super::text::{Argv, Text};

/// The text that replaces a secret.
pub const MASK: &str = "***";

/// The deepest shell text within shell text that is searched.
const DEEPEST: u32 = 4;

/// The reason why a value is a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SecretRule {
    /// The manual of the program.
    Program,
    /// The name of the option, variable or field.
    Name,
    /// The place in a URL.
    Url,
    /// The shape of the tokens of this issuer.
    Shape(&'static str),
    /// A program that reads a secret from its standard input.
    StandardInput,
}

/// A secret in the arguments of a process. Does not contain the secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundSecret {
    /// The program whose argument it is, as the command names it.
    pub program: String,
    /// The option or the name before the secret; empty when there is none.
    pub option: String,
    /// The reason why it is a secret.
    pub rule: SecretRule,
    argument: usize,
    range: Range<usize>,
}

/// Masks the secrets in the arguments of a process.
pub fn mask_argv(arguments: impl Iterator<Item = Text>) -> Argv {
    let mut arguments: Vec<Text> = arguments.collect();
    mask_arguments(&mut arguments);
    arguments.into_iter().collect()
}

/// Masks the secrets in a text that may be a command line.
pub fn mask_text(text: &str) -> String {
    let mut arguments = [Text::from(text)];
    mask_arguments(&mut arguments);
    arguments[0].as_str().to_owned()
}

/// Returns the secrets in the arguments of a process.
pub fn find(arguments: &[Text]) -> Vec<FoundSecret> {
    let words: Vec<Word<'_>> = arguments
        .iter()
        .enumerate()
        .map(|(number, text)| Word::of_argument(number, text.as_str()))
        .collect();
    let mut finder = Finder { found: Vec::new() };
    finder.search_arguments(&words);
    let mut found = finder.found;
    found.sort_by_key(|secret| {
        (
            secret.argument,
            secret.range.start,
            Reverse(secret.range.end),
            secret.rule,
        )
    });
    // A secret may contain what looks like another one.
    let mut end = (0, 0);
    found.retain(|secret| {
        let is_inside = secret.argument == end.0 && secret.range.end <= end.1;
        end = if is_inside {
            end
        } else {
            (secret.argument, secret.range.end)
        };
        !is_inside
    });
    hide_secrets_in_names(&mut found, arguments);
    found
}

/// Masks names that contain a secret, or are a part of one.
fn hide_secrets_in_names(found: &mut [FoundSecret], arguments: &[Text]) {
    let secrets: Vec<&str> = found
        .iter()
        .map(|secret| &arguments[secret.argument].as_str()[secret.range.clone()])
        .collect();
    for secret in found {
        for name in [&mut secret.program, &mut secret.option] {
            if secrets
                .iter()
                .any(|secret| name.contains(secret) || !name.is_empty() && secret.contains(&**name))
            {
                MASK.clone_into(name);
            }
        }
    }
}

/// Masks until nothing changes, so that the result does not change when it is masked again. Returns
/// whether anything was masked.
fn mask_arguments(arguments: &mut [Text]) -> bool {
    /// Enough for each text within a text.
    const MOST_PASSES: usize = 8;
    for pass in 0..MOST_PASSES {
        let found = find(arguments);
        let mut has_changed = false;
        for (number, argument) in arguments.iter_mut().enumerate() {
            let ranges = found
                .iter()
                .filter(|secret| secret.argument == number)
                .map(|secret| secret.range.clone());
            has_changed |= replace(argument, ranges);
        }
        if !has_changed {
            return pass > 0;
        }
    }
    true
}

/// Replaces these ranges, which are in order. Returns whether the text is now another.
fn replace(argument: &mut Text, ranges: impl Iterator<Item = Range<usize>>) -> bool {
    let text = argument.as_str();
    let (mut masked, mut end) = (String::new(), 0);
    for range in ranges {
        // Touching secrets become one: a mask beside a mask would be masked again.
        if range.start > end || masked.is_empty() && end == 0 {
            masked.push_str(&text[end..range.start]);
            masked.push_str(MASK);
        }
        end = end.max(range.end);
    }
    if masked.is_empty() {
        return false;
    }
    masked.push_str(&text[end..]);
    let has_changed = masked != text;
    if has_changed {
        *argument = masked.into();
    }
    has_changed
}

struct Finder {
    found: Vec<FoundSecret>,
}

impl Finder {
    /// Searches arguments, which contain several commands if operators of a shell stand among them.
    fn search_arguments(&mut self, words: &[Word<'_>]) {
        let commands = shell::split_at_operators(words);
        for command in &commands {
            self.search(&command.words, 0);
        }
        commands::stdin_secrets(&commands, |word, range| {
            self.add(word, range, "", "", SecretRule::StandardInput);
        });
    }

    /// Searches the words of a command.
    fn search(&mut self, words: &[Word<'_>], depth: u32) {
        let programs = commands::programs(words);
        let name = |place: usize| {
            programs
                .iter()
                .rfind(|program| **program <= place)
                .map_or("", |program| &words[*program].text)
        };
        let secrets = commands::secrets(words, &programs);
        // The secret of an option is no option itself, as in `-pmy-secret`.
        let is_option = |word: &usize| secrets.iter().all(|secret| secret.word != *word);
        for (place, word) in words.iter().enumerate() {
            let option = place
                .checked_sub(1)
                .filter(is_option)
                .map_or("", |before| &*words[before].text);
            self.search_word(word, option, name(place), depth);
        }
        for secret in secrets {
            self.add(
                &words[secret.word],
                secret.range,
                &words[secret.program].text,
                &secret.option,
                SecretRule::Program,
            );
        }
        logins::find(words, &programs, |place, range, named_by| {
            let option = if named_by == place {
                ""
            } else {
                &*words[named_by].text
            };
            self.add(&words[place], range, name(place), option, SecretRule::Name);
        });
    }

    /// Searches one word. `option` is the word before it.
    fn search_word(&mut self, word: &Word<'_>, option: &str, program: &str, depth: u32) {
        let text = &*word.text;
        let is_prose = text.contains(' ')
            && (names::takes_prose(option) || commands::takes_prose(program, option));
        if is_value_of(option, text) && !commands::is_harmless(program, option) {
            self.add(word, 0..text.len(), program, option, SecretRule::Name);
        }
        let is_harmless = text
            .find('=')
            .is_some_and(|equals| commands::is_harmless(program, &text[..=equals]));
        if !is_prose && !is_harmless {
            named_values::find(text, names::takes_assignment(option), |secret| {
                self.add(
                    word,
                    secret.value,
                    program,
                    &text[secret.name],
                    SecretRule::Name,
                );
            });
            named_values::find_in_sql(text, |range| {
                self.add(word, range, program, "SQL", SecretRule::Name);
            });
            named_values::find_in_pairs(text, |range| {
                self.add(word, range, program, "value", SecretRule::Name);
            });
            named_values::find_in_calls(text, |range| {
                self.add(word, range, program, "auth", SecretRule::Name);
            });
        }
        urls::find(text, |range| {
            self.add(
                word,
                range,
                program,
                option_of(option, text),
                SecretRule::Url,
            );
        });
        tokens::find(text, |range, issuer| {
            self.add(
                word,
                range,
                program,
                option_of(option, text),
                SecretRule::Shape(issuer),
            );
        });
        if !is_prose && depth < DEEPEST && text.contains([' ', char::REPLACEMENT_CHARACTER]) {
            // `ProxyCommand=sshpass -p …`.
            let value =
                named_values::start_of_value(text).map(|start| word.part(start..text.len()));
            let commands: Vec<_> = value
                .iter()
                .chain([word])
                .flat_map(shell::commands)
                .collect();
            for command in &commands {
                self.search(&command.words, depth + 1);
            }
            if names::takes_password_command(option_of(option, text)) {
                commands::find_echoed(&commands, |word| {
                    self.add(
                        word,
                        0..word.text.len(),
                        program,
                        option,
                        SecretRule::StandardInput,
                    );
                });
            }
            commands::stdin_secrets(&commands, |word, range| {
                self.add(word, range, program, "", SecretRule::StandardInput);
            });
        }
    }

    fn add(
        &mut self,
        word: &Word<'_>,
        range: Range<usize>,
        program: &str,
        option: &str,
        rule: SecretRule,
    ) {
        if range.is_empty() || names::is_reference(&word.text[range.clone()]) {
            return;
        }
        self.found.push(FoundSecret {
            program: commands::program_name(program).to_owned(),
            option: option.to_owned(),
            rule,
            argument: word.argument,
            range: word.range_in_argument(&range),
        });
    }
}

/// Whether a word is the value of the option before it, and a secret.
fn is_value_of(option: &str, word: &str) -> bool {
    option.starts_with('-')
        && option.bytes().all(named_values::is_name_byte)
        && !word.starts_with('-')
        && !names::is_switch(option)
        && names::is_secret(option, word)
}

/// Returns the option that a word belongs to: itself, or the one before.
fn option_of<'a>(before: &'a str, word: &'a str) -> &'a str {
    match word.split_once('=') {
        Some((name, _)) if name.bytes().all(named_values::is_name_byte) => name,
        _ if before.starts_with('-') => before,
        _ => "",
    }
}

#[cfg(test)]
mod tests;
