//! The names that clap suggests for a mistyped one. Of these, people see the near ones, and no
//! hidden one.

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue};

use super::Cli;

/// The most letters that differ between a name and a near one.
const MOST_DIFFERENCES: usize = 2;

/// Returns the error without suggestions that nobody can have meant.
pub(super) fn only_near(mut error: clap::Error) -> clap::Error {
    for (typed, suggested) in [
        (
            ContextKind::InvalidSubcommand,
            ContextKind::SuggestedSubcommand,
        ),
        (ContextKind::InvalidArg, ContextKind::SuggestedArg),
    ] {
        let typed = error
            .get(typed)
            .map(ToString::to_string)
            .unwrap_or_default();
        let is_meant = |name: &String| is_near(&typed, name) && !is_hidden(name);
        let kept = match error.remove(suggested) {
            Some(ContextValue::Strings(names)) => {
                let names: Vec<String> = names.into_iter().filter(is_meant).collect();
                (!names.is_empty()).then_some(ContextValue::Strings(names))
            }
            Some(ContextValue::String(name)) => {
                is_meant(&name).then_some(ContextValue::String(name))
            }
            other => other,
        };
        if let Some(kept) = kept {
            error.insert(suggested, kept);
        }
    }
    error
}

fn is_hidden(name: &str) -> bool {
    let command = Cli::command();
    let name = name.trim_start_matches('-');
    let mut arguments = command.get_arguments().chain(
        command
            .get_subcommands()
            .flat_map(clap::Command::get_arguments),
    );
    command
        .find_subcommand(name)
        .is_some_and(clap::Command::is_hide_set)
        || arguments.any(|argument| argument.get_long() == Some(name) && argument.is_hide_set())
}

/// Whether few letters differ, or one name begins with the other.
fn is_near(typed: &str, name: &str) -> bool {
    let (typed, name) = (typed.trim_start_matches('-'), name.trim_start_matches('-'));
    let is_beginning = typed.starts_with(name) || name.starts_with(typed);
    is_beginning || differences(typed, name) <= MOST_DIFFERENCES.min(name.len() / 2)
}

/// Returns how many letters must be inserted, removed or replaced to make one word of the other.
fn differences(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, letter) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], line + 1);
        for (place, other_letter) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other_letter);
            diagonal = row[place + 1];
            row[place + 1] = replaced.min(diagonal + 1).min(row[place] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn message(typed: &str) -> String {
        only_near(Cli::try_parse_from(["gputop", typed]).unwrap_err()).to_string()
    }

    #[test]
    fn a_near_name_is_suggested() {
        for (typed, name) in [
            ("orphan", "'orphans'"),
            ("docter", "'doctor'"),
            ("--intervall", "'--interval'"),
            ("--querygpu", "'--query-gpu'"),
            ("--once-only", "'--once'"),
        ] {
            assert!(message(typed).contains(name), "{}", message(typed));
        }
    }

    #[test]
    fn no_far_and_no_hidden_name_is_suggested() {
        for typed in [
            "status",
            "stat",
            "gpu-processes",
            "demo-proces",
            "--detials",
            "--detai",
            "--only-mine",
            "--demo-pas",
        ] {
            let message = message(typed);
            assert!(
                !message.contains("tip:") || typed == "--demo-pas" && message.contains("'--demo'"),
                "{message}"
            );
        }
    }

    #[test]
    fn differences_are_counted() {
        for (one, other, count) in [
            ("", "abc", 3),
            ("abc", "abc", 0),
            ("stat", "estimate", 4),
            ("docter", "doctor", 1),
        ] {
            assert_eq!(
                (differences(one, other), differences(other, one)),
                (count, count)
            );
        }
    }
}
