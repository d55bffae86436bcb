//! `--via`: a command that the user gave and that writes an agent's lines, such as `ssh HOST gputop
//! agent`.

mod destination;
mod leading_lines;

use std::io;
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

use self::leading_lines::LeadingLines;
use super::connection::{Connection, ProcessKind, Reporter};
use crate::base::secrets::{mask_argv, mask_text};
use crate::base::text::Text;
use crate::protocol::command::Command as AgentCommand;

/// A command that connects to an agent, as the user wrote it: `[NAME=]COMMAND`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViaCommand {
    /// The name that the user gave to the host; `None` when the user gave none.
    pub name: Option<Text>,
    /// The program and its arguments.
    words: Vec<String>,
    /// The interval between two passes to request from the agent; `None` leaves the interval to the
    /// agent.
    pub(super) interval: Option<Duration>,
}

impl FromStr for ViaCommand {
    type Err = String;

    /// Splits the command into words as a shell does. No shell runs it: `$HOME`, `~` and `|` have
    /// no meaning.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, command) = match text.split_once('=') {
            Some((name, command)) if is_name(name) => (Some(Text::from(name)), command),
            _ => (None, text),
        };
        let words = shell_words::split(command)
            .map_err(|error| format!("cannot split the command: {error}"))?;
        if words.first().is_none_or(String::is_empty) {
            return Err("there is no command".to_owned());
        }
        Ok(Self {
            name,
            words,
            interval: None,
        })
    }
}

/// Whether the text before a `=` is the name of a host: a path or several words are part of the
/// command.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|character| character.is_alphanumeric() || "._-".contains(character))
}

impl ViaCommand {
    /// Returns the command with this interval to request from the agent.
    #[must_use]
    pub fn with_interval(self, interval: Option<Duration>) -> Self {
        Self { interval, ..self }
    }

    /// The command as it is shown, without secrets: it is the name of some hosts, also in
    /// recordings, which are shared.
    pub(super) fn command_line(&self) -> Text {
        mask_argv(self.words.iter().map(|word| Text::from(word.as_str())))
            .iter()
            .collect::<Vec<_>>()
            .join(" ")
            .into()
    }

    /// The name of the host by what the user typed: the name, else the destination in the command,
    /// else the command.
    pub(crate) fn host_name(&self) -> Text {
        let destination =
            || destination::destination(&self.words).map(|name| mask_text(&name).into());
        self.name
            .clone()
            .or_else(destination)
            .unwrap_or_else(|| self.command_line())
    }

    pub(super) fn connect(&self, reporter: Reporter) -> io::Result<Connection> {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        let opening = Box::new(LeadingLines::default());
        let connection =
            Connection::to_process(command, ProcessKind::Via, Some(opening), reporter)?;
        if let Some(interval) = self.interval {
            let milliseconds = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
            connection.send(AgentCommand::Interval {
                milliseconds,
                silence: None,
            });
        }
        Ok(connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, name: Option<&str>, words: &[&str]) {
        let via: ViaCommand = text.parse().unwrap();
        assert_eq!(via.name.as_ref().map(Text::as_str), name, "{text}");
        assert_eq!(via.words, words, "{text}");
    }

    #[test]
    fn a_command_is_split_as_a_shell_does_and_may_have_a_name() {
        check(
            "ssh gpu-02 gputop agent",
            None,
            &["ssh", "gpu-02", "gputop", "agent"],
        );
        check(
            "left=ssh gpu-02 gputop agent",
            Some("left"),
            &["ssh", "gpu-02", "gputop", "agent"],
        );
        check(
            "gpu-02.lab=ssh 'a b' \"c d\" e\\ f",
            Some("gpu-02.lab"),
            &["ssh", "a b", "c d", "e f"],
        );
        check(
            "a='program with spaces' x",
            Some("a"),
            &["program with spaces", "x"],
        );
    }

    #[test]
    fn the_host_has_the_name_that_the_user_typed() {
        for (text, name) in [
            ("left=ssh gpu-02 gputop agent", "left"),
            ("ssh alice@gpu-02 gputop agent", "gpu-02"),
            ("./connect gpu-02", "./connect gpu-02"),
            (
                "sshpass -p hunter2 ./connect gpu-02 --token=abc",
                "sshpass -p *** ./connect gpu-02 --token=***",
            ),
        ] {
            assert_eq!(
                text.parse::<ViaCommand>().unwrap().host_name().as_str(),
                name
            );
        }
    }

    #[test]
    fn secrets_in_a_command_are_masked_where_it_is_shown_and_kept_where_it_is_run() {
        for (text, shown, name) in [
            (
                "sshpass -p S3cretPw1 ssh gpu-02 gputop agent",
                "sshpass -p *** ssh gpu-02 gputop agent",
                "gpu-02",
            ),
            (
                "./connect --token S3cretPw1",
                "./connect --token ***",
                "./connect --token ***",
            ),
            (
                "env API_KEY=S3cretPw1 ./connect",
                "env API_KEY=*** ./connect",
                "env API_KEY=*** ./connect",
            ),
        ] {
            let via: ViaCommand = text.parse().unwrap();
            assert_eq!(via.command_line().as_str(), shown);
            assert_eq!(via.host_name().as_str(), name);
            assert!(
                via.words.iter().any(|word| word.contains("S3cretPw1")),
                "{text}"
            );
        }
    }

    #[test]
    fn an_equals_sign_later_on_belongs_to_the_command() {
        check(
            "env A=1 gputop agent",
            None,
            &["env", "A=1", "gputop", "agent"],
        );
        check("./run=x y", None, &["./run=x", "y"]);
        check("=x", None, &["=x"]);
    }

    #[test]
    fn no_shell_looks_at_the_words() {
        check(
            "echo $HOME ~ | tee > file",
            None,
            &["echo", "$HOME", "~", "|", "tee", ">", "file"],
        );
    }

    #[test]
    fn a_command_that_is_missing_or_whose_quote_is_open_is_refused() {
        for (text, reason) in [
            ("", "there is no command"),
            ("left=", "there is no command"),
            ("left=''", "there is no command"),
            (
                "ssh 'gpu",
                "cannot split the command: missing closing quote",
            ),
        ] {
            assert_eq!(text.parse::<ViaCommand>(), Err(reason.to_owned()), "{text}");
        }
    }
}
