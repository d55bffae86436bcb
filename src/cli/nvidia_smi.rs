//! Options and commands of nvidia-smi that people type out of habit: accepted where possible,
//! otherwise answered with the counterpart in gputop.

use std::ffi::OsString;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::{Cli, suggestions};

/// Replaces `-lms` by `--loop-ms`: clap would read it as `-l ms`.
pub(super) fn spelled_out(args: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    let mut is_of_command = false;
    args.enumerate().map(move |(place, arg)| {
        match arg.to_str().and_then(|text| text.strip_prefix("-lms")) {
            // The rest belongs to the command that gputop runs.
            _ if is_of_command => arg,
            _ if arg == "--" || place == 1 && arg == "run" => {
                is_of_command = true;
                arg
            }
            Some("") => "--loop-ms".into(),
            Some(value) if value.starts_with('=') => format!("--loop-ms{value}").into(),
            _ => arg,
        }
    })
}

/// The commands `mig -lgi`, `mig -lci` and `mig -lgip` in [`COUNTERPARTS`].
const LIST_OF_INSTANCES: &str = "mig-list";

/// Options and commands of nvidia-smi that gputop does not have, separated by spaces, and where to
/// find the same facts.
const COUNTERPARTS: &[(&str, &str)] = &[
    (
        "-q -qx --query -x --xml-format -d --display -a -u --unit --dtd",
        "the page of a GPU (Tab, i) shows everything about it; for scripts, see `--help-query-gpu`",
    ),
    (
        "--query-accounted-apps --help-query-accounted-apps",
        "gputop does not read the driver's accounting of ended processes; `gputop analyze` reads logs",
    ),
    (
        "--query-retired-pages --help-query-retired-pages",
        "`--query-gpu=retired_pages.pending,retired_pages.dbe,…` counts them; nvidia-smi lists each one",
    ),
    (
        "--query-supported-clocks --help-query-supported-clocks",
        "`--query-gpu=clocks.max.sm,…` has the highest clocks; nvidia-smi lists all that can be set",
    ),
    (
        "dmon daemon replay stats",
        "`gputop --csv -l 1` prints a line for each GPU every second",
    ),
    (
        "pmon",
        "`gputop --once -l 1` prints the processes on each GPU every second",
    ),
    (
        "topo nvlink c2c pci gpm",
        "the page of a GPU (Tab, i) shows its links, their throughput and the path to each other GPU",
    ),
    (
        LIST_OF_INSTANCES,
        "`gputop -L` lists the MIG instances of each GPU",
    ),
    (
        "-col --columns",
        "`gputop --once --gpu-columns COLUMN,…` prints chosen columns of each GPU",
    ),
    (
        "-B --list-excluded-gpus --debug --get-hostname encodersessions fbcsessions compute-policy boost-slider power-hint \
         base-clocks power-smoothing power-profiles rusd prm soc",
        "gputop does not read this",
    ),
    (
        "vgpu",
        "gputop does not show virtual GPUs and their machines; nvidia-smi does",
    ),
    (
        "conf-compute",
        "`--query-gpu=protected_memory.total,protected_memory.used` has the memory of confidential computing; nvidia-smi \
         has the rest",
    ),
    (
        "-pm -e -p -c -r -vm -lgc -rgc -lmc -lmcd -rmc -rmcd -ac -rac -pl -cc -mig -gtt -m -sc -am -caa -den -eow -t \
         --persistence-mode --ecc-config --reset-ecc-errors --compute-mode --gom --gpu-reset --virt-mode \
         --lock-gpu-clocks --mode --reset-gpu-clocks --lock-memory-clocks --reset-memory-clocks \
         --lock-memory-clocks-deferred --reset-memory-clocks-deferred --applications-clocks \
         --reset-applications-clocks --power-limit --scope --cuda-clocks --accounting-mode --clear-accounted-apps \
         --auto-boost-default --auto-boost-permission --multi-instance-gpu --gpu-target-temp --dram-encryption \
         --set-hostname --error-on-warning --toggle-led mig drain clocks",
        "gputop changes no setting of a GPU; nvidia-smi does",
    ),
];

/// Returns the error with a message that helps someone who knows nvidia-smi, or the error itself.
pub(super) fn explained(error: clap::Error, args: impl Iterator<Item = OsString>) -> clap::Error {
    if let Some(sentence) = misplaced(&error) {
        return clap::Error::raw(error.kind(), format!("{sentence}\n"));
    }
    // Help and version are errors to clap that go to the standard output.
    if !error.use_stderr() {
        return error;
    }
    let refused = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand]
        .into_iter()
        .find_map(|kind| error.get(kind));
    // clap reads `-lgc` as `-l gc`.
    let refused = match refused.map(ToString::to_string) {
        Some(refused) if refused.starts_with("--loop ") => Some("-l".to_owned()),
        refused => refused,
    };
    match refused.and_then(|refused| counterpart(args, &refused)) {
        Some(sentence) => clap::Error::raw(ErrorKind::UnknownArgument, format!("{sentence}\n")),
        None => suggestions::only_near(error),
    }
}

/// Returns where gputop has the counterpart of the argument that clap refused, or `None` if that is
/// no argument of nvidia-smi. Of several letters after one dash, clap names only the first.
fn counterpart(args: impl Iterator<Item = OsString>, refused: &str) -> Option<String> {
    let words: Vec<String> = args
        .skip(1)
        .filter_map(|arg| arg.into_string().ok())
        .collect();
    words
        .iter()
        .filter(|word| word.starts_with(refused))
        .find_map(|word| {
            let name = word.split_once('=').map_or(word.as_str(), |(name, _)| name);
            Some(format!(
                "{name} is an option of nvidia-smi: {}",
                counterpart_of(name, &words)?
            ))
        })
}

/// Returns the sentence on an option or command of nvidia-smi that gputop does not have; `None` for
/// other names. `words` are all arguments.
pub(super) fn counterpart_of(name: &str, words: &[String]) -> Option<&'static str> {
    // `mig` has options that list, and others that change settings.
    let is_list = |word: &String| word.starts_with("-l") || word.starts_with("--list");
    let key = if name == "mig" && words.iter().any(is_list) {
        LIST_OF_INSTANCES
    } else {
        name
    };
    let is_named = |(names, _): &&(&str, &str)| names.split(' ').any(|known| known == key);
    COUNTERPARTS
        .iter()
        .find(is_named)
        .map(|(_, sentence)| *sentence)
}

/// Returns the message for an option of the screen or of a report before a subcommand, where it
/// would have no effect.
fn misplaced(error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => Some(texts.join(", ")),
        _ => None,
    };
    let subcommand = text(ContextKind::InvalidSubcommand)
        .filter(|_| error.kind() == ErrorKind::ArgumentConflict)?;
    let option = text(ContextKind::PriorArg)?;
    // clap names the option with its value: `--csv[=<gpus|processes>]`.
    let option = option.split(['=', '[', ' ']).next().unwrap_or(&option);
    if Cli::command().find_subcommand(&subcommand).is_none() {
        return Some(format!(
            "`{subcommand}` after {option} is no option and no subcommand; lists have commas and no spaces"
        ));
    }
    Some(format!(
        "{option} has no effect on {subcommand}, which has its own options: see gputop {subcommand} --help"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> impl Iterator<Item = OsString> {
        line.split(' ')
            .map(OsString::from)
            .collect::<Vec<_>>()
            .into_iter()
    }

    #[test]
    fn the_milliseconds_of_nvidia_smi_are_accepted() {
        for (typed, meant) in [
            ("gputop -lms 500", "gputop --loop-ms 500"),
            ("gputop -lms=500", "gputop --loop-ms=500"),
            ("gputop -l 1 -L -lx", "gputop -l 1 -L -lx"),
        ] {
            assert_eq!(
                spelled_out(args(typed)).collect::<Vec<_>>(),
                args(meant).collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn an_option_of_nvidia_smi_is_answered_with_its_counterpart() {
        let says = |line, refused| counterpart(args(line), refused).unwrap_or_default();
        assert!(says("gputop dmon -c 1", "dmon").contains("gputop --csv -l 1"));
        assert!(
            says(
                "gputop --query-accounted-apps=pid --format=csv",
                "--query-accounted-apps"
            )
            .starts_with("--query-accounted-apps is an option of nvidia-smi")
        );
        assert!(says("gputop -i 0 -pl 300", "-p").contains("changes no setting"));
        assert_eq!(
            counterpart(args("gputop --bogus -f replay"), "--bogus"),
            None
        );
    }
}
