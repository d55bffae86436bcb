//! `gputop free`: runs a command on GPUs that a job may take, or prints these GPUs as
//! `CUDA_VISIBLE_DEVICES`.
//!
//! Reads an agent as every report does. GPUs are named by NVML's indexes, which are CUDA's in the
//! order of the PCI bus: many programs parse the variable as integers.

mod gpu_locks;
pub(in crate::commands) mod gpu_search;
mod inherited_gpus;

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Args;

use self::gpu_search::{FoundGpus, FreeGpuSearch, SearchResult, WantedGpus};
use super::live::gpu_ids;
use super::live::read_hosts::{self, HostState};
use crate::base::text::Text;
use crate::base::units::{Bytes, parse_span};
use crate::commands::run::replace_program::replace_program;
use crate::flags::{HostArgs, ReadArgs, ReadOptions, values};
use crate::output::{self, Exit};
use crate::protocol::snapshot::{Cause, Gpu, Snapshot};
use crate::source::{self, Source, SshHost};

/// The variable that limits CUDA to some GPUs. If it is set to no GPU, CUDA finds none; if it is
/// not set, CUDA finds all.
const VARIABLE: &str = "CUDA_VISIBLE_DEVICES";
/// The variable that says what the numbers in [`VARIABLE`] mean, and the value for NVML's order.
const ORDER_VARIABLE: &str = "CUDA_DEVICE_ORDER";
const BUS_ORDER: &str = "PCI_BUS_ID";

/// Which GPUs are wanted.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct FreeArgs {
    #[command(flatten)]
    read: ReadArgs,

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
    /// few are free. With `-H`, print the command line that takes them there, such as `ssh gpu-01
    /// gputop free -i 0,3 -n 2 --`, to which you add your command
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "other_hosts")]
    command: Vec<OsString>,

    #[command(flatten)]
    pub(crate) hosts: HostArgs,
}

/// The end of the help.
const EXIT_CODES: &str = "\
Exit codes:
    0  there are enough free GPUs; with a command, the code is that of the command
   11  too few GPUs are free, or the host has fewer
    6  no GPU has the ID of -i
    3  the host has no NVIDIA driver
    4  it has no GPU
    5  several hosts fail, for different reasons
  126  the command cannot be run
  127  there is no such command
    1  a host is lost, or another error";

impl FreeArgs {
    fn wanted(&self) -> WantedGpus {
        WantedGpus {
            count: self.count,
            memory: self.memory,
            idle: self.idle,
            id: self.id.clone(),
            waits: self.wait,
            by_uuid: self.uuid,
            keeps_locks: true,
        }
    }

    /// Returns the command line that takes these GPUs on a host over ssh. `program` is the path of
    /// gputop there, as the host says.
    fn far_line(&self, host: &SshHost, program: Option<&Text>, gpus: &str) -> String {
        let mut words = host.command_of_a_person();
        words.push(program.map_or("gputop", Text::as_str).to_owned());
        let count = self.count.to_string();
        words.extend(["free", "-i", gpus, "-n", &count].map(str::to_owned));
        if let Some(memory) = self.memory {
            words.extend(["--memory".to_owned(), memory.0.to_string()]);
        }
        if let Some(idle) = self.idle {
            words.extend(["--idle".to_owned(), format!("{}ms", idle.as_millis())]);
        }
        words.push("--".to_owned());
        shell_words::join(words)
    }
}

/// Runs the command on free GPUs, in place of this program, so that its exit code is the result.
/// Without a command, prints `CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0,3`, after
/// `HOST=NAME` if there are several hosts, or the command line that takes the GPUs on a host over
/// ssh.
///
/// If too few GPUs are free, the command is not run, and `CUDA_VISIBLE_DEVICES=` is printed: `env
/// $(gputop free) python train.py` must not use all GPUs then.
///
/// # Errors
///
/// When no agent can be started, or the standard output cannot be written.
pub(crate) fn run(args: &FreeArgs) -> anyhow::Result<ExitCode> {
    let read = args.read.hosts(&args.hosts, None);
    if args.ids && read.sources.len() > 1 {
        output::print_error(&Text::new(
            "--ids names no host: leave it out, or name one host only",
        ));
        return Ok(Exit::Usage.into());
    }
    let found = find(args, &read);
    match (&found, args.command.split_first()) {
        (Ok(Ok(found)), Some((program, arguments))) => {
            return run_on(program, arguments, &found.gpus);
        }
        (Ok(Ok(found)), None) if args.ids => {
            output::print(format!("{}\n", found.gpus).as_bytes())?;
        }
        (
            Ok(Ok(FoundGpus {
                far_line: Some(line),
                ..
            })),
            None,
        ) => output::print(format!("{line}\n").as_bytes())?,
        (Ok(Ok(FoundGpus { host, gpus, .. })), None) => {
            output::print(
                format!("{host}{ORDER_VARIABLE}={BUS_ORDER} {VARIABLE}={gpus}\n").as_bytes(),
            )?;
        }
        (_, Some(_)) => {}
        (_, None) if args.ids => {}
        (_, None) => print_no_gpu()?,
    }
    Ok(match found? {
        Ok(_) => Exit::Success,
        Err((exit, reason)) => {
            output::print_error(&Text::new(reason));
            exit
        }
    }
    .into())
}

/// Prints that a job has no GPU.
///
/// # Errors
///
/// When the standard output cannot be written.
pub(crate) fn print_no_gpu() -> anyhow::Result<()> {
    Ok(output::print(format!("{VARIABLE}=\n").as_bytes())?)
}

/// Replaces this program by the command. Returns an exit code only if that fails.
fn run_on(program: &OsString, arguments: &[OsString], gpus: &str) -> anyhow::Result<ExitCode> {
    read_hosts::block_on(async {
        source::reap_agents().await;
        Ok(())
    })?;
    let mut command = Command::new(program);
    Ok(replace_program(
        command
            .args(arguments)
            .env(ORDER_VARIABLE, BUS_ORDER)
            .env(VARIABLE, gpus),
    ))
}

/// Reads the hosts until one has enough free GPUs, or it is certain that none has.
fn find(args: &FreeArgs, read: &ReadOptions) -> anyhow::Result<Result<FoundGpus, (Exit, String)>> {
    let wanted = args.wanted();
    let sources = read.sources.iter();
    let mut searches: Vec<_> = sources
        .map(|source| FreeGpuSearch::new(&wanted, source))
        .collect();
    let found = read_hosts::read_until(read, true, |hosts| {
        let snapshots: Vec<&Snapshot> =
            hosts.iter().filter_map(|host| Some(host.seen?.1)).collect();
        let unknown = gpu_ids::unknown(&snapshots, &args.id);
        let are_all_read = snapshots.len() == hosts.len()
            && snapshots.iter().all(|snapshot| !snapshot.gpus.is_empty());
        if are_all_read && !unknown.is_empty() {
            return Some(Err((
                Exit::Nothing,
                gpu_ids::no_such_gpu(&unknown).to_string(),
            )));
        }
        let results = hosts
            .iter()
            .zip(&mut searches)
            .map(|(host, search)| match &host.trouble {
                Some(trouble) if !host.lacks_only_gpus => {
                    Some(Err((Exit::Error, trouble.to_string())))
                }
                _ => host
                    .seen
                    .and_then(|(model, snapshot)| search.update(model, snapshot)),
            });
        let results = results.collect();
        first_free(hosts, results, |place, gpus| {
            match read.sources.get(place)? {
                Source::Ssh(host) => Some(args.far_line(host, hosts[place].program, gpus)),
                _ => None,
            }
        })
    })?;
    Ok(found.unwrap_or_else(|reason| Err((Exit::Error, reason.to_string()))))
}

/// Returns the result of the first host that has enough GPUs, or the reasons of all hosts. `far_line`
/// returns the command line that takes GPUs on the host at a place.
fn first_free(
    hosts: &[HostState<'_>],
    mut results: Vec<SearchResult>,
    far_line: impl Fn(usize, &str) -> Option<String>,
) -> SearchResult {
    let has_one = results.len() == 1;
    let is_found = |result: &SearchResult| matches!(result, Some(Ok(_)));
    if let Some(place) = results.iter().position(is_found) {
        let host = if has_one {
            String::new()
        } else {
            format!("HOST={} ", hosts[place].name)
        };
        return results.swap_remove(place).map(|found| {
            found.map(|found| FoundGpus {
                host,
                far_line: far_line(place, &found.gpus),
                ..found
            })
        });
    }
    if has_one {
        return results.remove(0);
    }
    let failures: Vec<(Exit, String)> = results
        .into_iter()
        .collect::<Option<Vec<_>>>()?
        .into_iter()
        .filter_map(Result::err)
        .collect();
    let exits: Vec<Exit> = failures.iter().map(|(exit, _)| *exit).collect();
    let exit = if exits.contains(&Exit::NoneFree) {
        Exit::NoneFree
    } else {
        Exit::combined(&exits)
    };
    let reasons = hosts
        .iter()
        .zip(&failures)
        .map(|(host, (_, reason))| format!("{}: {reason}", host.name));
    Some(Err((exit, reasons.collect::<Vec<_>>().join("; "))))
}

fn is_lost(gpu: &Gpu) -> bool {
    gpu.trouble
        .as_ref()
        .is_some_and(|trouble| trouble.cause == Cause::Lost)
}
