//! The arguments of `gputop free`.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::time::Duration;

use clap::Args;

use super::{HostArgs, ReadArgs, values};
use crate::base::units::{Bytes, parse_span};
use crate::commands::free::FreeOptions;

#[derive(Debug, Clone, Args)]
pub(crate) struct FreeArgs {
    #[command(flatten)]
    read: ReadArgs,

    #[command(flatten)]
    hosts: HostArgs,

    /// Number of GPUs
    #[arg(short = 'n', long, value_name = "COUNT", default_value = "1", value_parser = values::count)]
    count: NonZeroUsize,

    /// Take GPUs with this much free memory, such as `20GiB`, even if processes use them [default:
    /// unused GPUs]. Those of another `gputop free -- COMMAND` of yours stay taken until its
    /// command ends
    #[arg(long, value_name = "AMOUNT")]
    memory: Option<Bytes>,

    /// Take only GPUs on which no kernel ran for this time, such as `5m`; they are first watched
    /// for as long
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    idle: Option<Duration>,

    /// Take only these GPUs, given by index, UUID or PCI bus ID
    #[arg(short = 'i', long = "id", value_name = "GPU,…", value_delimiter = ',')]
    id: Vec<String>,

    /// Wait until enough GPUs are free
    #[arg(long)]
    wait: bool,

    /// Name the GPUs by UUID; without it only where a GPU of the host is lost or split by MIG
    #[arg(long)]
    uuid: bool,

    /// Print the GPUs only, such as `0,3`, and nothing if too few are free
    #[arg(long, conflicts_with = "command")]
    ids: bool,

    /// Run this command with `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER` set; its exit code is
    /// the result. It is not run if too few GPUs are free. No other `gputop free` of yours takes
    /// these GPUs before it and its children end. Without a command, print
    /// `CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0,3`, and `CUDA_VISIBLE_DEVICES=` if too
    /// few are free
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "via")]
    command: Vec<OsString>,
}

impl From<&FreeArgs> for FreeOptions {
    fn from(args: &FreeArgs) -> Self {
        Self {
            read: args.read.options(&args.hosts, None),
            count: args.count.get(),
            memory: args.memory,
            idle: args.idle,
            ids: args.id.clone(),
            wait: args.wait,
            by_uuid: args.uuid,
            only_ids: args.ids,
            command: args.command.clone(),
        }
    }
}
