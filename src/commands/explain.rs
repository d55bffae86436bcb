//! `gputop explain`: looks up the processes that an out-of-memory message names, if they are on
//! this host.

use std::process::ExitCode;
use std::time::Duration;

use super::read_hosts::{self, HostState, ReadOptions};
use crate::base::text::Text;
use crate::logs::explain::{ExplainOptions, Explanation, OtherProcesses};

/// Explains logs or a message. `read` is this host, whose agent identifies the processes in a
/// message.
///
/// # Errors
///
/// When a log cannot be read, or the explanation not be written.
pub(crate) fn run(options: &ExplainOptions, read: &ReadOptions) -> anyhow::Result<ExitCode> {
    let explanation = Explanation::read(options)?;
    let processes = if explanation.names_processes() {
        processes(read)
    } else {
        OtherProcesses::default()
    };
    explanation.write(options, &processes)
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
    read_hosts::read_once(read, read_hosts::is_scanned, |_| true, Duration::ZERO, see)
        .unwrap_or_else(|error| OtherProcesses {
            model: None,
            reason: Some(format!("{error:#}")),
        })
}
