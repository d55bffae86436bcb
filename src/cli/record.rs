//! The command lines of `gputop record` and `gputop clip`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{AgentArgs, HostArgs, values};
use crate::base::units::Bytes;
use crate::commands::record::RecordOptions;
use crate::logs::clip::ClipOptions;
use crate::protocol::agent_options::{AgentOptions, DEFAULT_INTERVAL, Interval, SimulatedMachine};
use crate::source::RecordingLimits;

#[derive(Debug, Clone, Args)]
pub(crate) struct RecordArgs {
    #[command(flatten)]
    agent: AgentArgs,

    #[command(flatten)]
    hosts: HostArgs,

    /// The file to write or to append to; its older parts are FILE.1, FILE.2 and so on [default:
    /// `$XDG_STATE_HOME/gputop/recordings/HOST.jsonl.zst` or
    /// `~/.local/state/gputop/recordings/HOST.jsonl.zst`]
    #[arg(short, long, value_name = "FILE", value_parser = values::new_file())]
    output: Option<PathBuf>,

    /// Record the lines that a viewer writes to the standard input
    #[arg(long, hide = true)]
    from_viewer: bool,

    /// Delete the oldest lines so that all parts together stay below this size
    #[arg(long, value_name = "SIZE", default_value = "1GB", value_parser = values::recording_size)]
    max_size: Bytes,

    /// Delete lines of this age, such as `12h` or `30d`
    #[arg(long, value_name = "TIME", default_value = "14d", value_parser = values::positive_span)]
    max_age: Duration,
}

impl RecordArgs {
    /// Returns the options. `place` returns the path of a file of this name in the folder of
    /// recordings.
    pub(crate) fn options(&self, place: impl FnOnce(&str) -> Option<PathBuf>) -> RecordOptions {
        let interval = self.agent.interval.map(|Interval(interval)| interval);
        let is_simulated = AgentOptions::from(&self.agent).demo != SimulatedMachine::None;
        let name = if !self.hosts.via.is_empty() {
            "hosts".to_owned()
        } else if is_simulated {
            "demo".to_owned()
        } else {
            rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .replace('/', "-")
        };
        RecordOptions {
            sources: self.hosts.sources(&self.agent, interval),
            interval: interval.unwrap_or(DEFAULT_INTERVAL),
            from_viewer: self.from_viewer,
            file: self
                .output
                .clone()
                .or_else(|| place(&format!("{name}.jsonl.zst"))),
            limits: RecordingLimits {
                max_size: self.max_size,
                max_age: self.max_age,
            },
        }
    }
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ClipArgs {
    /// The recording
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// The first moment: `03:10` (the last one in the recording), `2026-07-14 03:10`, RFC 3339, or
    /// `-2h` before its end [default: its beginning]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    from: Option<String>,

    /// The last moment [default: the end of the recording]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    to: Option<String>,

    /// The new file [default: the name of FILE with `-clip`, in the current folder]
    #[arg(short, long, value_name = "FILE", value_parser = values::new_file())]
    output: Option<PathBuf>,
}

impl From<&ClipArgs> for ClipOptions {
    fn from(args: &ClipArgs) -> Self {
        let ClipArgs {
            file,
            from,
            to,
            output,
        } = args.clone();
        Self {
            file,
            from,
            to,
            output,
        }
    }
}
