//! The arguments of `gputop replay`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

use super::{FormatArgs, ScreenArgs};
use crate::logs::recent_recordings;
use crate::protocol::playback::Speed;

#[derive(Debug, Clone, Args)]
pub(crate) struct ReplayArgs {
    /// A recording of `gputop record`, or lines of `gputop --json -l`; `-` for the standard input
    /// [default: the newest recording of this host]
    #[arg(value_name = "FILE")]
    pub(super) file: Option<PathBuf>,

    /// How many times as fast as recorded, or `max`
    #[arg(long, value_name = "NUMBER|max", default_value = "1", value_parser = Speed::from_str)]
    pub(super) speed: Speed,

    #[command(flatten)]
    pub(super) format: FormatArgs,

    #[command(flatten)]
    pub(super) screen: ScreenArgs,
}

impl ReplayArgs {
    /// Returns these arguments with a file: without one, the newest recording of this host.
    ///
    /// # Errors
    ///
    /// When there is no such recording.
    pub(crate) fn with_file(&self) -> anyhow::Result<Self> {
        let file = match &self.file {
            Some(file) => file.clone(),
            None => recent_recordings::newest()?,
        };
        Ok(Self {
            file: Some(file),
            ..self.clone()
        })
    }
}
