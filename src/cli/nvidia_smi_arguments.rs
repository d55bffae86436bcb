//! The arguments of a program that is called as `nvidia-smi`: the options that gputop answers as
//! nvidia-smi does. All others are refused, those of gputop too.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;

use super::{Cli, Subcommand, nvidia_smi};
use crate::commands::live::chosen_processes::ChosenProcesses;
use crate::commands::query::{Caller, FieldTable, MonitorColumns, Query, QueryOptions};
use crate::flags::values::{positive_milliseconds, positive_seconds};
use crate::protocol::agent_options::AgentOptions;

/// The time from one answer to the next for `-l` and `-lms` without a value.
const USUAL_LOOP: Duration = Duration::from_secs(5);

/// The time from one sample to the next of `nvidia-smi pmon`.
const USUAL_DELAY: Duration = Duration::from_secs(1);

/// Why a command line of nvidia-smi is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RefusedArguments {
    /// nvidia-smi refuses it too, with this sentence on the standard output.
    Invalid(String),
    /// Only nvidia-smi does this. The sentence says where gputop has the same facts.
    OnlyNvidiaSmi(String),
}

/// A command line of nvidia-smi.
#[derive(Debug, Clone, Default)]
pub(crate) struct Arguments {
    query: Option<Query>,
    /// The words of `--format`; `None` without that option.
    format: Option<Vec<String>>,
    ids: Vec<String>,
    every: Option<Duration>,
    count: Option<u32>,
    file: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueOf {
    None,
    Optional,
    Required,
}

/// The long name of an option, its short name or an empty text, and whether it has a value.
type KnownOption = (&'static str, &'static str, ValueOf);

const OPTIONS: &[KnownOption] = &[
    ("--help", "-h", ValueOf::None),
    ("--version", "", ValueOf::None),
    ("--list-gpus", "-L", ValueOf::None),
    ("--id", "-i", ValueOf::Required),
    ("--filename", "-f", ValueOf::Required),
    ("--loop", "-l", ValueOf::Optional),
    ("--loop-ms", "-lms", ValueOf::Optional),
    ("--format", "", ValueOf::Required),
    ("--query-gpu", "", ValueOf::Required),
    ("--query-compute-apps", "", ValueOf::Required),
    ("--query-remapped-rows", "", ValueOf::Required),
    ("--help-query-gpu", "", ValueOf::None),
    ("--help-query-compute-apps", "", ValueOf::None),
    ("--help-query-remapped-rows", "", ValueOf::None),
];

/// The options of `nvidia-smi pmon`.
const MONITOR_OPTIONS: &[KnownOption] = &[
    ("--help", "-h", ValueOf::None),
    ("--id", "-i", ValueOf::Required),
    ("--filename", "-f", ValueOf::Required),
    ("--delay", "-d", ValueOf::Required),
    ("--count", "-c", ValueOf::Required),
    ("--select", "-s", ValueOf::Required),
    ("--options", "-o", ValueOf::Required),
];

/// Returns the command line of a program that is called as `nvidia-smi`; `None` under another name.
pub(super) fn parse(mut args: impl Iterator<Item = OsString>) -> Option<Cli> {
    args.next()
        .filter(|program| Path::new(program).file_name() == Some("nvidia-smi".as_ref()))?;
    let words: Vec<String> = args
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    // The variables of gputop still count: they name the library of the driver.
    Some(Cli {
        task: Some(Subcommand::NvidiaSmi(Arguments::parse(&words))),
        ..Cli::parse_from(["nvidia-smi"])
    })
}

impl Arguments {
    /// Parses the words after `nvidia-smi`.
    fn parse(words: &[String]) -> Result<Self, RefusedArguments> {
        let is_monitor = words.first().is_some_and(|word| word == "pmon");
        let known = if is_monitor { MONITOR_OPTIONS } else { OPTIONS };
        let mut arguments = Self::default();
        if is_monitor {
            arguments.query = Some(Query::Monitor(MonitorColumns::default()));
            arguments.every = Some(USUAL_DELAY);
        }
        let mut rest = words.iter().skip(usize::from(is_monitor)).peekable();
        while let Some(word) = rest.next() {
            let (name, written) = match word.split_once('=') {
                Some((name, value)) if word.starts_with('-') => (name, Some(value.to_owned())),
                _ => (word.as_str(), None),
            };
            let option = known
                .iter()
                .find(|(long, short, _)| name == *long || name == *short);
            let Some((long, _, has_value)) = option else {
                return Err(match nvidia_smi::counterpart_of(name, words) {
                    Some(sentence) => RefusedArguments::OnlyNvidiaSmi(format!(
                        "{name} is for nvidia-smi only: {sentence}"
                    )),
                    None => invalid(&format!("ERROR: Option {word} is not recognized.")),
                });
            };
            let value = match (has_value, written) {
                (ValueOf::None, Some(_)) => {
                    return Err(invalid(&format!("ERROR: Option {word} is not recognized.")));
                }
                (ValueOf::None, None) => None,
                (_, Some(value)) => Some(value),
                (ValueOf::Required, None) => rest.next().cloned(),
                (ValueOf::Optional, None) => rest.next_if(|next| !next.starts_with('-')).cloned(),
            };
            if *has_value == ValueOf::Required && value.as_ref().is_none_or(String::is_empty) {
                return Err(invalid(&format!(
                    "ERROR: Option {name} is missing its value."
                )));
            }
            arguments.set(long, name, value.as_deref())?;
        }
        arguments.checked()
    }

    /// Applies one option, which was written as `name`.
    fn set(&mut self, long: &str, name: &str, value: Option<&str>) -> Result<(), RefusedArguments> {
        let text = value.unwrap_or_default();
        let list = || {
            text.split(',')
                .map(|part| part.trim().to_owned())
                .collect::<Vec<String>>()
        };
        let wrong = || invalid(&format!("Invalid value \"{text}\" for {name}."));
        let fields = |table| Query::Fields(table, list());
        match (long, &mut self.query) {
            ("--id", _) => self.ids = list(),
            ("--filename", _) => self.file = Some(PathBuf::from(text)),
            ("--format", _) => self.format = Some(list()),
            ("--loop", _) => {
                let seconds = value
                    .map(positive_seconds)
                    .transpose()
                    .map_err(|_| wrong())?;
                self.every = Some(seconds.unwrap_or(USUAL_LOOP));
            }
            ("--loop-ms", _) => {
                let time = value
                    .map(positive_milliseconds)
                    .transpose()
                    .map_err(|_| wrong())?;
                self.every = Some(time.unwrap_or(USUAL_LOOP));
            }
            ("--delay", _) => self.every = Some(positive_seconds(text).map_err(|_| wrong())?),
            // With 0, samples are printed until a signal.
            ("--count", _) => {
                self.count = Some(text.parse().map_err(|_| wrong())?).filter(|count| *count > 0);
            }
            ("--select", Some(Query::Monitor(columns))) => {
                (columns.utilization, columns.memory) = (text.contains('u'), text.contains('m'));
                text.chars()
                    .all(|letter| "um".contains(letter))
                    .then_some(())
                    .ok_or_else(wrong)?;
            }
            ("--options", Some(Query::Monitor(columns))) => {
                (columns.date, columns.time) = (text.contains('D'), text.contains('T'));
                text.chars()
                    .all(|letter| "DT".contains(letter))
                    .then_some(())
                    .ok_or_else(wrong)?;
            }
            // Help is printed whatever stands beside it.
            (_, Some(Query::Usage)) => {}
            ("--help", query) => *query = Some(Query::Usage),
            (
                "--query-gpu" | "--query-compute-apps" | "--query-remapped-rows",
                Some(Query::Fields(..)),
            ) => {
                return Err(RefusedArguments::Invalid(
                    "Only one --query-* switch can be used at a time.".to_owned(),
                ));
            }
            (_, Some(_)) => return Err(invalid("Invalid combination of input arguments.")),
            ("--version", query) => *query = Some(Query::Version),
            ("--list-gpus", query) => *query = Some(Query::List),
            ("--query-gpu", query) => *query = Some(fields(FieldTable::Gpu)),
            ("--query-compute-apps", query) => *query = Some(fields(FieldTable::ComputeApps)),
            ("--query-remapped-rows", query) => *query = Some(fields(FieldTable::RemappedRows)),
            ("--help-query-gpu", query) => *query = Some(Query::Help(FieldTable::Gpu)),
            ("--help-query-compute-apps", query) => {
                *query = Some(Query::Help(FieldTable::ComputeApps));
            }
            (_, query) => *query = Some(Query::Help(FieldTable::RemappedRows)),
        }
        Ok(())
    }

    /// Returns the arguments if they go together.
    fn checked(self) -> Result<Self, RefusedArguments> {
        let has_csv = self
            .format
            .as_ref()
            .is_some_and(|words| words.iter().any(|word| word == "csv"));
        match self.query {
            Some(Query::Fields(..)) if !has_csv => Err(invalid("\"--format=\" switch is missing.")),
            None | Some(Query::List) if self.format.is_some() => {
                Err(invalid("Invalid combination of input arguments."))
            }
            _ => Ok(self),
        }
    }

    /// Returns the query. `cli` holds the variables of gputop.
    pub(crate) fn options(&self, cli: &Cli) -> QueryOptions {
        QueryOptions {
            caller: Caller::NvidiaSmi,
            agent: AgentOptions::from(&cli.agent),
            timeout: cli.timeout,
            every: self.every,
            count: self.count,
            query: Some(self.query.clone().unwrap_or(Query::Summary)),
            format: self.format.clone().unwrap_or_default(),
            ids: self.ids.clone(),
            processes: ChosenProcesses::default(),
            file: self.file.clone(),
        }
    }
}

fn invalid(sentence: &str) -> RefusedArguments {
    RefusedArguments::Invalid(format!("{sentence} Please run 'nvidia-smi -h' for help."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Arguments, RefusedArguments> {
        Arguments::parse(
            &line
                .split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn values_stand_behind_an_equals_sign_or_in_the_next_word() {
        for line in [
            "--query-gpu=index,name --format=csv -i 0,1 -l 2",
            "-l=2 --id=0,1 --format csv --query-gpu index,name",
        ] {
            let Arguments {
                query,
                format,
                ids,
                every,
                ..
            } = parsed(line).unwrap();
            assert!(
                matches!(query, Some(Query::Fields(FieldTable::Gpu, names)) if names == ["index", "name"]),
                "{line}"
            );
            assert_eq!(
                (format, ids),
                (
                    Some(vec!["csv".to_owned()]),
                    vec!["0".to_owned(), "1".to_owned()]
                )
            );
            assert_eq!(every, Some(Duration::from_secs(2)));
        }
        assert_eq!(parsed("-l").unwrap().every, Some(USUAL_LOOP));
        assert_eq!(
            parsed("-lms 500 -i 0").unwrap().every,
            Some(Duration::from_millis(500))
        );
        assert_eq!(parsed("pmon -c 2 -d 3").unwrap().count, Some(2));
        assert_eq!(parsed("pmon -d 1 -s u -c 0").unwrap().count, None);
    }

    #[test]
    fn arguments_that_nvidia_smi_refuses_are_refused_in_its_words() {
        for (line, sentence) in [
            ("-i", "ERROR: Option -i is missing its value."),
            ("-lms100", "ERROR: Option -lms100 is not recognized."),
            ("--once", "ERROR: Option --once is not recognized."),
            ("free", "ERROR: Option free is not recognized."),
            ("--query-gpu=name", "\"--format=\" switch is missing."),
            (
                "--query-gpu=name --format=noheader",
                "\"--format=\" switch is missing.",
            ),
            ("--format=csv", "Invalid combination of input arguments."),
            (
                "-L --query-gpu=name --format=csv",
                "Invalid combination of input arguments.",
            ),
            (
                "--query-gpu=index, name --format=csv",
                "ERROR: Option name is not recognized.",
            ),
            ("pmon -s x", "Invalid value \"x\" for -s."),
            ("-l often", "Invalid value \"often\" for -l."),
        ] {
            let refusal = parsed(line).unwrap_err();
            assert_eq!(refusal, invalid(sentence), "{line}");
        }
    }

    #[test]
    fn what_only_nvidia_smi_does_is_answered_with_the_counterpart() {
        for (line, words) in [
            ("-q -d MEMORY", "-q is for nvidia-smi only"),
            (
                "-i 0 -pl 300",
                "-pl is for nvidia-smi only: gputop changes no setting",
            ),
            ("--gpu-reset", "changes no setting"),
            ("mig -lgi", "gputop -L"),
            ("mig -cgi 9", "changes no setting"),
            ("dmon -c 1", "gputop --csv -l 1"),
            ("topo -m", "topo is for nvidia-smi only"),
        ] {
            let Err(RefusedArguments::OnlyNvidiaSmi(sentence)) = parsed(line) else {
                panic!("{line}: {:?}", parsed(line))
            };
            assert!(sentence.contains(words), "{line}: {sentence}");
        }
    }
}
