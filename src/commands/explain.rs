//! `gputop explain`: looks up the processes that an out-of-memory message names, if they are on
//! this host.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::live::read_hosts::{self, HostState};
use crate::base::text::Text;
use crate::flags::{OutputArgs, ReadArgs, ReadOptions};
use crate::logs::explain::{Explanation, OtherProcesses};
use crate::logs::ooms::explain_last;
use crate::model::HostModel;

#[derive(Debug, Clone, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct ExplainArgs {
    /// Logs, or the message itself. Without one, the standard input is copied to the standard
    /// output and explained at its end; `-` and `--json` read the standard input without copying it
    #[arg(value_name = "FILE|MESSAGE")]
    words: Vec<String>,

    /// Describe the latest report of `gputop ooms`
    #[arg(long, conflicts_with = "words")]
    last: bool,

    #[command(flatten)]
    read: ReadArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// The end of the help.
const EXIT_CODES: &str = "\
Exit codes:
    0  a cause was named; in a pipe also: no line states a failure of memory
    6  no cause was named
    5  none was, and a part of a log could not be read
    1  an argument is neither a file nor a message, or another error";

/// Explains logs or a message. The agent of this host identifies the processes in a message.
///
/// # Errors
///
/// When a log cannot be read, or the explanation not be written.
pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    let ExplainArgs {
        words,
        last,
        read,
        output,
    } = args;
    if *last {
        return explain_last(output);
    }
    let explanation = Explanation::read(words, output.json)?;
    let processes = if explanation.names_processes() {
        processes(&read.this_host(None))
    } else {
        OtherProcesses::default()
    };
    explanation.write(output, &processes)
}

fn processes(read: &ReadOptions) -> OtherProcesses {
    let see = |hosts: &[HostState<'_>]| {
        let HostState { seen, trouble, .. } = &hosts[0];
        let driver_trouble = seen.and_then(|(_, snapshot)| snapshot.driver.trouble.as_ref());
        let reason = driver_trouble
            .map(|trouble| &trouble.sentence)
            .or(trouble.as_ref());
        OtherProcesses {
            model: seen.map(|(model, _)| model.clone()),
            reason: reason.map(Text::to_string),
        }
    };
    read_hosts::read_once(read, HostModel::is_complete, |_| true, Duration::ZERO, see)
        .unwrap_or_else(|error| OtherProcesses {
            model: None,
            reason: Some(format!("{error:#}")),
        })
}
