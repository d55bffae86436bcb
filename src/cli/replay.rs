//! The arguments of `gputop replay`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

use super::{FormatArgs, ScreenArgs};
use crate::protocol::playback::Speed;

#[derive(Debug, Clone, Args)]
pub(crate) struct ReplayArgs {
    /// Lines as `gputop agent` or `gputop --json -l` print them; `-` for the standard input
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,

    /// How many times as fast as recorded, or `max`
    #[arg(long, value_name = "NUMBER|max", default_value = "1", value_parser = Speed::from_str)]
    pub(super) speed: Speed,

    #[command(flatten)]
    pub(super) format: FormatArgs,

    #[command(flatten)]
    pub(super) screen: ScreenArgs,
}
