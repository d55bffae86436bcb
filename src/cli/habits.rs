//! What people who know nvidia-smi type out of habit: understood where it can be, and otherwise answered with where to find it.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// nvidia-smi has options of one dash and three letters, which would be read as `-l ms`.
pub(super) fn spelled_out(args: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    args.map(|arg| match arg.to_str().and_then(|it| it.strip_prefix("-lms")) {
        Some("") => "--loop-ms".into(),
        Some(value) if value.starts_with('=') => format!("--loop-ms{value}").into(),
        _ => arg,
    })
}

/// What nvidia-smi has and gputop has not, and where to find it.
const ELSEWHERE: &[(&[&str], &str)] = &[
    (
        &["-q", "--query", "-x", "--xml-format", "-d", "--display"],
        "all that there is of a GPU is on its page (Tab, Enter), and for scripts `--help-query-gpu` lists it",
    ),
    (
        &["--query-accounted-apps", "--help-query-accounted-apps", "-caa", "-am"],
        "the driver's accounting of processes that ended is nvidia-smi's; `gputop analyze` reads a log of those that ran",
    ),
    (
        &["--query-retired-pages", "--query-remapped-rows"],
        "how many there are is `--query-gpu=retired_pages.pending,remapped_rows.pending,…`; one by one, nvidia-smi lists them",
    ),
    (
        &["--query-supported-clocks"],
        "which clocks can be set is nvidia-smi's; `--query-gpu=clocks.max.sm,…` is the highest",
    ),
    (&["dmon", "daemon", "replay"], "a line for each GPU and second is `gputop --csv -l 1`"),
    (&["pmon"], "who is on each GPU, each second, is `gputop --once -l 1`"),
    (
        &["topo", "nvlink", "c2c", "pci", "gpm"],
        "a GPU's page (Tab, Enter) has its links, its throughput and its way to each other GPU",
    ),
    (
        &[
            "-pm",
            "-e",
            "-p",
            "-c",
            "-r",
            "-vm",
            "-lgc",
            "-rgc",
            "-lmc",
            "-rmc",
            "-ac",
            "-rac",
            "-pl",
            "-cc",
            "-mig",
            "-gtt",
            "--gpu-reset",
            "--power-limit",
            "--persistence-mode",
            "--compute-mode",
            "--ecc-config",
            "mig",
            "drain",
            "clocks",
        ],
        "gputop changes no setting of a GPU; nvidia-smi does",
    ),
];

/// Where to find what the argument asks of nvidia-smi that was `refused`, if it is such a one. Of several letters after one
/// dash, the first was.
pub(super) fn elsewhere(args: impl Iterator<Item = OsString>, refused: &str) -> Option<String> {
    let words: Vec<String> = args.skip(1).filter_map(|it| it.into_string().ok()).collect();
    words.iter().filter(|it| it.starts_with(refused)).find_map(|word| {
        let name = word.split_once('=').map_or(word.as_str(), |(name, _)| name);
        let (_, sentence) = ELSEWHERE.iter().find(|(names, _)| names.contains(&name))?;
        Some(format!("{name} is nvidia-smi's: {sentence}"))
    })
}

/// What an option of the screen or of a table does before a subcommand: nothing, so it is refused.
pub(super) fn out_of_place(error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => Some(texts.join(", ")),
        _ => None,
    };
    let subcommand = text(ContextKind::InvalidSubcommand).filter(|_| error.kind() == ErrorKind::ArgumentConflict)?;
    let option = text(ContextKind::PriorArg)?;
    Some(format!("{option} does nothing for {subcommand}, which has its own options: see gputop {subcommand} --help"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> impl Iterator<Item = OsString> {
        line.split(' ').map(OsString::from).collect::<Vec<_>>().into_iter()
    }

    #[test]
    fn milliseconds_are_understood_as_nvidia_smi_spells_them() {
        for (typed, meant) in [
            ("gputop -lms 500", "gputop --loop-ms 500"),
            ("gputop -lms=500", "gputop --loop-ms=500"),
            ("gputop -l 1 -L -lx", "gputop -l 1 -L -lx"),
        ] {
            assert_eq!(spelled_out(args(typed)).collect::<Vec<_>>(), args(meant).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_is_elsewhere_says_where() {
        let says = |line, refused| elsewhere(args(line), refused).unwrap_or_default();
        assert!(says("gputop dmon -c 1", "dmon").contains("gputop --csv -l 1"));
        assert!(
            says("gputop --query-accounted-apps=pid --format=csv", "--query-accounted-apps")
                .starts_with("--query-accounted-apps is nvidia-smi's")
        );
        assert!(says("gputop -i 0 -pl 300", "-p").contains("changes no setting"));
        assert_eq!(elsewhere(args("gputop --bogus -f replay"), "--bogus"), None);
    }
}
