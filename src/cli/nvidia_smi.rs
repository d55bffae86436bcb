//! Options and commands of nvidia-smi that people type out of habit: accepted where possible, otherwise answered with the
//! counterpart in gputop.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Replaces `-lms` by `--loop-ms`: clap would read it as `-l ms`.
pub(super) fn spelled_out(args: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    args.map(|arg| match arg.to_str().and_then(|text| text.strip_prefix("-lms")) {
        Some("") => "--loop-ms".into(),
        Some(value) if value.starts_with('=') => format!("--loop-ms{value}").into(),
        _ => arg,
    })
}

/// Options and commands of nvidia-smi that gputop does not have, separated by spaces, and where to find the same facts.
const COUNTERPARTS: &[(&str, &str)] = &[
    (
        "-q --query -x --xml-format -d --display",
        "the page of a GPU (Tab, Enter) shows everything about it; for scripts, see `--help-query-gpu`",
    ),
    (
        "--query-accounted-apps --help-query-accounted-apps -caa -am",
        "gputop does not read the driver's accounting of ended processes; `gputop analyze` reads logs",
    ),
    (
        "--query-retired-pages --query-remapped-rows",
        "`--query-gpu=retired_pages.pending,remapped_rows.pending,…` counts them; nvidia-smi lists each one",
    ),
    (
        "--query-supported-clocks",
        "`--query-gpu=clocks.max.sm,…` has the highest clocks; nvidia-smi lists all that can be set",
    ),
    ("dmon daemon replay", "`gputop --csv -l 1` prints a line for each GPU every second"),
    ("pmon", "`gputop --once -l 1` prints the processes on each GPU every second"),
    (
        "topo nvlink c2c pci gpm",
        "the page of a GPU (Tab, Enter) shows its links, their throughput and the path to each other GPU",
    ),
    (
        "-pm -e -p -c -r -vm -lgc -rgc -lmc -rmc -ac -rac -pl -cc -mig -gtt --gpu-reset --power-limit \
         --persistence-mode --compute-mode --ecc-config mig drain clocks",
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
    let refused =
        [ContextKind::InvalidArg, ContextKind::InvalidSubcommand].into_iter().find_map(|kind| error.get(kind));
    match refused.and_then(|refused| counterpart(args, &refused.to_string())) {
        Some(sentence) => clap::Error::raw(ErrorKind::UnknownArgument, format!("{sentence}\n")),
        None => error,
    }
}

/// Returns where gputop has the counterpart of the argument that clap refused, or `None` if that is no argument of
/// nvidia-smi. Of several letters after one dash, clap names only the first.
fn counterpart(args: impl Iterator<Item = OsString>, refused: &str) -> Option<String> {
    let words: Vec<String> = args.skip(1).filter_map(|arg| arg.into_string().ok()).collect();
    words.iter().filter(|word| word.starts_with(refused)).find_map(|word| {
        let name = word.split_once('=').map_or(word.as_str(), |(name, _)| name);
        let (_, sentence) = COUNTERPARTS.iter().find(|(names, _)| names.split(' ').any(|known| known == name))?;
        Some(format!("{name} is an option of nvidia-smi: {sentence}"))
    })
}

/// Returns the message for an option of the screen or of a report before a subcommand, where it would have no effect.
fn misplaced(error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => Some(texts.join(", ")),
        _ => None,
    };
    let subcommand = text(ContextKind::InvalidSubcommand).filter(|_| error.kind() == ErrorKind::ArgumentConflict)?;
    let option = text(ContextKind::PriorArg)?;
    // clap names the option with its value: `--csv[=<gpus|processes>]`.
    let option = option.split(['=', '[', ' ']).next().unwrap_or(&option);
    Some(format!("{option} has no effect on {subcommand}, which has its own options: see gputop {subcommand} --help"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> impl Iterator<Item = OsString> {
        line.split(' ').map(OsString::from).collect::<Vec<_>>().into_iter()
    }

    #[test]
    fn the_milliseconds_of_nvidia_smi_are_accepted() {
        for (typed, meant) in [
            ("gputop -lms 500", "gputop --loop-ms 500"),
            ("gputop -lms=500", "gputop --loop-ms=500"),
            ("gputop -l 1 -L -lx", "gputop -l 1 -L -lx"),
        ] {
            assert_eq!(spelled_out(args(typed)).collect::<Vec<_>>(), args(meant).collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_option_of_nvidia_smi_is_answered_with_its_counterpart() {
        let says = |line, refused| counterpart(args(line), refused).unwrap_or_default();
        assert!(says("gputop dmon -c 1", "dmon").contains("gputop --csv -l 1"));
        assert!(
            says("gputop --query-accounted-apps=pid --format=csv", "--query-accounted-apps")
                .starts_with("--query-accounted-apps is an option of nvidia-smi")
        );
        assert!(says("gputop -i 0 -pl 300", "-p").contains("changes no setting"));
        assert_eq!(counterpart(args("gputop --bogus -f replay"), "--bogus"), None);
    }
}
