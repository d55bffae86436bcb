//! The arguments of `gputop doctor`.

use clap::Args;

use super::ReadArgs;

#[derive(Debug, Clone, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(super) read: ReadArgs,

    /// List instead the secrets in the arguments of this host's processes: program, option, and why
    /// gputop masks each; shows none
    #[arg(long)]
    pub(super) secrets: bool,
}
