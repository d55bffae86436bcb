//! The command line of the subcommands about the probe in Python programs.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::options::is_ascii;
use super::values;
use super::{HostArgs, OutputArgs, ReadArgs};
use crate::base::units::{Bytes, parse_span};
use crate::commands::attach::AttachOptions;
use crate::commands::estimate::{EstimateOptions, EstimateSubject};
use crate::commands::read_hosts::ReadOptions;
use crate::commands::run::RunOptions;
use crate::commands::snapshot::SnapshotOptions;
use crate::commands::tensors::{TensorOrder, TensorsOptions};
use crate::logs::ooms::OomsOptions;
use crate::source::Source;

#[derive(Debug, Clone, Args)]
pub(crate) struct RunArgs {
    /// The command, whose PID, exit code, signals and output stay as they are. `GPUTOP_PROBE=0`
    /// runs it without the probe
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required = true,
        value_name = "COMMAND"
    )]
    command: Vec<OsString>,
}

impl From<&RunArgs> for RunOptions {
    fn from(args: &RunArgs) -> Self {
        Self {
            command: args.command.clone(),
        }
    }
}

#[derive(Debug, Clone, Args)]
pub(crate) struct AttachArgs {
    /// The PID of the program
    pid: u32,

    /// How long to wait until the program lets the probe start
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_span)]
    wait: Duration,
}

impl From<&AttachArgs> for AttachOptions {
    fn from(args: &AttachArgs) -> Self {
        Self {
            pid: args.pid,
            wait: args.wait,
        }
    }
}

#[derive(Debug, Clone, Args)]
pub(crate) struct EstimateArgs {
    /// A file and a function in it, such as `model.py:build`. The function has no parameters, and
    /// returns `(model, inputs)`, `(model, inputs, optimizer)`, or a dict with `model`, `inputs`,
    /// `optimizer`, `loss` and `batch`
    #[arg(value_name = "FILE:FUNCTION")]
    subject: EstimateSubject,

    /// The Python that imports the file [default: of `VIRTUAL_ENV`, else the first on the PATH]
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,

    /// Use this optimizer: `adamw`, `adam`, `sgd`, `sgd_momentum`, `rmsprop`, `adagrad` or `lion`;
    /// `none` for inference [default: the one that the function returns, or `adamw`]
    #[arg(long, value_name = "NAME", value_parser = OPTIMIZERS, hide_possible_values = true)]
    optimizer: Option<String>,

    /// Run training steps on the current GPU, with the whole batch and with half of it, and measure
    /// their peaks
    #[arg(long)]
    measure: bool,

    /// Find the largest batch for a GPU with this much memory, such as `24GiB` [default: the GPUs
    /// of this host]
    #[arg(long, value_name = "AMOUNT", value_parser = values::capacity)]
    gpu_memory: Option<Bytes>,

    #[command(flatten)]
    read: ReadArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// The optimizers that an estimate knows by name.
const OPTIMIZERS: [&str; 8] = [
    "adamw",
    "adam",
    "sgd",
    "sgd_momentum",
    "rmsprop",
    "adagrad",
    "lion",
    "none",
];

impl From<&EstimateArgs> for EstimateOptions {
    fn from(args: &EstimateArgs) -> Self {
        Self {
            subject: args.subject.clone(),
            python: args.python.clone(),
            optimizer: args.optimizer.clone(),
            measure: args.measure,
            gpu_memory: args.gpu_memory,
            read: args
                .read
                .options(&HostArgs::default(), Some(PROBE_INTERVAL)),
            json: args.output.json,
            ascii: is_ascii(args.output.ascii),
        }
    }
}

#[derive(Debug, Clone, Args)]
pub(crate) struct TensorsArgs {
    /// The PID of the program
    pid: u32,

    /// Only the groups with all of these words in their shape, type and category, such as `float32
    /// parameters`
    #[arg(value_name = "WORD")]
    words: Vec<String>,

    /// Sort by `bytes`, `count`, `age` or `change`
    #[arg(long, value_name = "BY", default_value = "bytes", value_parser = values::one_of::<TensorOrder>(), hide_possible_values = true)]
    sort: TensorOrder,

    #[command(flatten)]
    read: ReadArgs,

    #[command(flatten)]
    output: OutputArgs,
}

impl From<&TensorsArgs> for TensorsOptions {
    fn from(args: &TensorsArgs) -> Self {
        Self {
            read: read_probe(&args.read, true),
            pid: args.pid,
            order: args.sort,
            words: args.words.clone(),
            json: args.output.json,
            ascii: is_ascii(args.output.ascii),
        }
    }
}

#[derive(Debug, Clone, Args)]
pub(crate) struct SnapshotArgs {
    /// The PID of the program
    pid: u32,

    /// The new file [default: `gputop-PID-step-STEP.pickle` in the current folder]
    #[arg(short, long, value_name = "FILE", value_parser = values::new_file())]
    output: Option<PathBuf>,

    #[command(flatten)]
    read: ReadArgs,
}

impl From<&SnapshotArgs> for SnapshotOptions {
    fn from(args: &SnapshotArgs) -> Self {
        Self {
            read: read_probe(&args.read, false),
            pid: args.pid,
            file: args.output.clone(),
        }
    }
}

/// The interval of an agent that is asked once.
const PROBE_INTERVAL: Duration = Duration::from_millis(250);

/// Returns how to read this host. With `all`, reports have all groups of tensors.
fn read_probe(args: &ReadArgs, all: bool) -> ReadOptions {
    let mut read = args.options(&HostArgs::default(), Some(PROBE_INTERVAL));
    for source in &mut read.sources {
        if let Source::LocalAgent(agent) = source {
            // Only the processes of GPUs matter.
            (agent.detail, agent.only) = (all, vec!["processes".to_owned()]);
        }
    }
    read
}

#[derive(Debug, Clone, Args)]
pub(crate) struct OomsArgs {
    #[command(flatten)]
    output: OutputArgs,
}

impl From<&OutputArgs> for OomsOptions {
    fn from(args: &OutputArgs) -> Self {
        Self {
            json: args.json,
            ascii: is_ascii(args.ascii),
        }
    }
}

impl From<&OomsArgs> for OomsOptions {
    fn from(args: &OomsArgs) -> Self {
        Self::from(&args.output)
    }
}
