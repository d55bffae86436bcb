//! `gputop free`: runs a command on GPUs that a job may take, or prints these GPUs as
//! `CUDA_VISIBLE_DEVICES`.
//!
//! Reads an agent as every report does. GPUs are named by NVML's indexes, which are CUDA's in the
//! order of the PCI bus: many programs parse the variable as integers.

mod gpu_locks;
mod inherited_gpus;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt::Write;
use std::num::NonZeroUsize;
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Args;

use self::gpu_locks::{GpuLock, LockFolder};
use self::inherited_gpus::InheritedGpus;
use super::live::gpu_ids;
use super::live::read_hosts::{self, HostState};
use crate::app::lists::unknown_processes;
use crate::base::text::Text;
use crate::base::units::{Bytes, Elapsed, Moment, Percent, parse_span};
use crate::commands::run::replace_program::replace_program;
use crate::flags::{HostArgs, ReadArgs, ReadOptions, values};
use crate::model::{self, HostModel, Total};
use crate::output::{self, Exit};
use crate::protocol::snapshot::{
    Cause, Gpu, GpuUuid, Missing, Reading, SharedMemory, Snapshot, Trouble, Use,
};
use crate::source::{self, Source};

/// The variable that limits CUDA to some GPUs. If it is set to no GPU, CUDA finds none; if it is
/// not set, CUDA finds all.
const VARIABLE: &str = "CUDA_VISIBLE_DEVICES";
/// The variable that says what the numbers in [`VARIABLE`] mean, and the value for NVML's order.
const ORDER_VARIABLE: &str = "CUDA_DEVICE_ORDER";
const BUS_ORDER: &str = "PCI_BUS_ID";

/// Which GPUs are wanted.
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

/// Runs the command on free GPUs, in place of this program, so that its exit code is the result.
/// Without a command, prints `CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0,3`, after
/// `HOST=NAME` if there are several hosts.
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
            "--ids names no host: leave it out, or give one --via only",
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
    let search = |source: &Source| {
        // The variable concerns this host.
        let inherited = matches!(source, Source::LocalAgent(_))
            .then(InheritedGpus::from_env)
            .flatten();
        FreeGpuSearch {
            args,
            inherited,
            began: None,
            idle_since: HashMap::new(),
            has_warned: false,
        }
    };
    let mut searches: Vec<_> = read.sources.iter().map(search).collect();
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
        first_free(hosts, results.collect())
    })?;
    Ok(found.unwrap_or_else(|reason| Err((Exit::Error, reason.to_string()))))
}

/// The GPUs that were found.
struct FoundGpus {
    /// `HOST=NAME `, or empty if there is one host only.
    host: String,
    /// The indexes or UUIDs, separated by commas.
    gpus: String,
    /// The command inherits the locks.
    _locks: Vec<GpuLock>,
}

/// The GPUs, or the reason why too few are free; `None` to wait for the next snapshot.
type SearchResult = Option<Result<FoundGpus, (Exit, String)>>;

/// Returns the result of the first host that has enough GPUs, or the reasons of all hosts.
fn first_free(hosts: &[HostState<'_>], mut results: Vec<SearchResult>) -> SearchResult {
    if let [result] = results.as_mut_slice() {
        return result.take();
    }
    if let Some(place) = results
        .iter()
        .position(|result| matches!(result, Some(Ok(_))))
    {
        let host = format!("HOST={} ", hosts[place].name);
        return results
            .swap_remove(place)
            .map(|found| found.map(|found| FoundGpus { host, ..found }));
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

/// Returns the reason why a snapshot has no GPU.
fn no_gpu_reason(snapshot: &Snapshot) -> String {
    snapshot.driver.trouble.as_ref().map_or_else(
        || "the NVIDIA driver finds no GPU on this host".to_owned(),
        |trouble| trouble.sentence.to_string(),
    )
}

struct FreeGpuSearch<'a> {
    args: &'a FreeArgs,
    /// The GPUs that this process may use; `None` if it may use all.
    inherited: Option<InheritedGpus>,
    /// The time of the first snapshot; `None` before it.
    began: Option<Moment>,
    idle_since: HashMap<GpuUuid, Moment>,
    /// Whether the user knows that GPUs cannot be locked.
    has_warned: bool,
}

impl FreeGpuSearch<'_> {
    /// Takes the latest snapshot. Returns the GPUs, locked, or the reason why there are too few.
    /// Returns `None` to wait for the next snapshot.
    fn update(&mut self, model: &HostModel, snapshot: &Snapshot) -> SearchResult {
        let began = *self.began.get_or_insert(snapshot.at);
        if snapshot.gpus.is_empty() {
            return Some(Err((
                Exit::of_snapshot(snapshot, true),
                no_gpu_reason(snapshot),
            )));
        }
        let visible = match self
            .inherited
            .as_ref()
            .map(|inherited| inherited.visible(&snapshot.gpus))
            .transpose()
        {
            // The names of all GPUs say in which order CUDA counts them.
            Err(_) if snapshot.gpus.iter().any(is_starting) => return None,
            Err(reason) => return Some(Err((Exit::Error, reason))),
            Ok(visible) => visible,
        };
        let is_candidate = |gpu: &&Gpu| {
            visible
                .as_ref()
                .is_none_or(|visible| visible.contains(&&gpu.uuid))
                && !is_split(snapshot, gpu)
                && gpu_ids::is_chosen(snapshot, gpu, &self.args.id)
        };
        let candidates: Vec<&Gpu> = snapshot.gpus.iter().filter(is_candidate).collect();
        self.note_idle(&candidates, snapshot.at);
        let suitable = candidates
            .iter()
            .filter(|gpu| self.is_suitable(gpu))
            .count();
        let (mut free, mut taken) = (Vec::new(), Vec::new());
        for gpu in candidates {
            match self.objection(model, snapshot, gpu) {
                None => free.push(gpu),
                Some(reason) => taken.push((gpu, reason)),
            }
        }
        free.sort_by_key(|gpu| {
            (
                std::cmp::Reverse(free_memory(gpu).unwrap_or_default()),
                gpu.facts.index,
            )
        });
        let wanted = self.args.count.get();
        let (chosen, locks) = self.lock(free, &mut taken);
        if chosen.len() == wanted {
            return Some(Ok(FoundGpus {
                host: String::new(),
                gpus: self.ids(&chosen, snapshot),
                _locks: locks,
            }));
        }
        let is_possible = suitable >= wanted;
        // A GPU that was busy in the first snapshot is idle for the wanted time only after that
        // time.
        if is_possible
            && (self.args.wait
                || self
                    .args
                    .idle
                    .is_some_and(|idle| snapshot.at.since(began) < idle))
        {
            return None;
        }
        let reason = self.too_few_free(suitable, chosen.len(), &taken);
        Some(Err((Exit::NoneFree, reason)))
    }

    /// Returns the names of the chosen GPUs for `CUDA_VISIBLE_DEVICES`.
    fn ids(&self, chosen: &[&Gpu], snapshot: &Snapshot) -> String {
        let by_uuid = self.args.uuid || !are_indexes_certain(snapshot);
        let id = |gpu: &&Gpu| {
            if by_uuid {
                gpu.uuid.to_string()
            } else {
                gpu.facts.index.to_string()
            }
        };
        chosen.iter().map(id).collect::<Vec<_>>().join(",")
    }

    /// Returns the reason why there are fewer free GPUs than wanted. `taken` has the others, each
    /// with the reason why it is not free.
    fn too_few_free(&self, suitable: usize, free: usize, taken: &[(&Gpu, String)]) -> String {
        let wanted = self.args.count.get();
        let mut reason = if suitable < wanted {
            let within = self
                .inherited
                .as_ref()
                .map_or_else(String::new, InheritedGpus::sentence_start);
            format!("{within}this host has {suitable} of the {wanted} GPUs that are wanted")
        } else if wanted == 1 {
            "no GPU is free".to_owned()
        } else {
            format!("only {free} of the {wanted} GPUs that are wanted are free")
        };
        for (place, (gpu, objection)) in taken.iter().enumerate() {
            let separator = if place == 0 { ":" } else { "," };
            let _infallible: std::fmt::Result =
                write!(reason, "{separator} GPU {} {objection}", gpu.facts.index);
        }
        reason
    }

    /// Remembers since when each GPU is idle.
    fn note_idle(&mut self, gpus: &[&Gpu], now: Moment) {
        for gpu in gpus {
            if gpu.load.sm == Ok(Percent::new(0.0)) {
                self.idle_since.entry(gpu.uuid.clone()).or_insert(now);
            } else {
                self.idle_since.remove(&gpu.uuid);
            }
        }
    }

    /// Locks as many of the free GPUs as are wanted. Adds those that cannot be had to `taken`, with
    /// the reason.
    fn lock<'a>(
        &mut self,
        free: Vec<&'a Gpu>,
        taken: &mut Vec<(&'a Gpu, String)>,
    ) -> (Vec<&'a Gpu>, Vec<GpuLock>) {
        let (mut chosen, mut locks) = (Vec::new(), Vec::new());
        let folder = LockFolder::open()
            .inspect_err(|reason| self.warn(reason))
            .ok();
        for gpu in free {
            if chosen.len() == self.args.count.get() {
                break;
            }
            match folder
                .as_ref()
                .map(|folder| folder.lock(&gpu.uuid))
                .transpose()
            {
                Ok(Some(None)) => taken.push((gpu, "is taken by another gputop free".to_owned())),
                Ok(lock) => {
                    chosen.push(gpu);
                    locks.extend(lock.flatten());
                }
                Err(error) => taken.push((gpu, format!("cannot be locked ({error})"))),
            }
        }
        (chosen, locks)
    }

    /// Says once that GPUs cannot be locked. The GPUs are free nevertheless, and a job must not
    /// wait for a folder.
    fn warn(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.has_warned, true) {
            let words = "no GPU is locked, so another gputop free may choose the same one";
            output::print_error(&Text::new(format!("{words}: {reason}")));
        }
    }

    /// Whether the job could take the GPU once no other job uses it.
    fn is_suitable(&self, gpu: &Gpu) -> bool {
        let total = gpu.load.memory_total.or(gpu
            .shared_memory
            .map(|shared| shared.total)
            .ok_or(Missing::Unsupported));
        let is_too_small = total.is_ok_and(|total| total < self.args.memory.unwrap_or_default());
        !is_too_small && (gpu.facts.parent.is_none() || self.args.count.get() == 1)
    }

    /// Returns why a job should not take a GPU.
    fn objection(&self, model: &HostModel, snapshot: &Snapshot, gpu: &Gpu) -> Option<String> {
        if let Some(trouble) = &gpu.trouble {
            return Some(format!("cannot be used ({})", trouble.cause));
        }
        if gpu.facts.parent.is_some() && self.args.count.get() > 1 {
            return Some(
                "is a MIG instance, and CUDA gives a process only one of these".to_owned(),
            );
        }
        if let Some(memory) = self.args.memory {
            match free_memory(gpu) {
                Ok(free) if free < memory => return Some(format!("has {free} free")),
                Ok(_) => {}
                Err(reason) => return Some(format!("does not report its free memory ({reason})")),
            }
        } else {
            // A GPU is judged by its processes and by its memory, or by what is known of the two.
            match (unknown_processes::reason(gpu), gpu.load.memory_used) {
                (None, _) => {}
                (Some(_), Err(_)) => {
                    return Some("reports neither its processes nor its memory".to_owned());
                }
                (Some(reason), Ok(used))
                    if model::idle_memory(gpu).is_none_or(|idle| used > idle) =>
                {
                    return Some(format!(
                        "has {used} in use by processes that are not known: {reason}"
                    ));
                }
                (Some(_), Ok(_)) => {}
            }
            // Graphics processes do not count: a desktop stays on its GPU, and leaves room for
            // jobs.
            let computing = gpu
                .processes
                .iter()
                .filter(|gpu_process| gpu_process.usage != Use::Graphics);
            let used: Vec<_> = computing.map(|gpu_process| gpu_process.memory).collect();
            if !used.is_empty() {
                let amount = match Total::sum_bytes(used.iter().copied()) {
                    Ok(Total {
                        bytes,
                        is_lower_bound: lower_bound,
                    }) => {
                        format!(" with {bytes}{}", if lower_bound { " or more" } else { "" })
                    }
                    Err(_) => String::new(),
                };
                let plural = if used.len() == 1 { "" } else { "es" };
                return Some(format!("has {} process{plural} on it{amount}", used.len()));
            }
            if let Some(unaccounted) = model
                .unaccounted()
                .iter()
                .find(|memory| memory.gpu == gpu.uuid)
            {
                return Some(format!(
                    "has {} in use that no process accounts for",
                    unaccounted.memory
                ));
            }
        }
        let idle = self.args.idle?;
        match (
            gpu.load.sm,
            self.idle_since
                .get(&gpu.uuid)
                .map(|since| snapshot.at.since(*since)),
        ) {
            (_, Some(span)) if span >= idle => None,
            (_, Some(span)) => Some(format!("has been idle for only {}", Elapsed(span))),
            (Ok(sm), None) => Some(format!("is busy ({sm})")),
            (Err(reason), None) => Some(format!("does not report whether it is busy ({reason})")),
        }
    }
}

/// Whether the GPU is split into MIG instances, which have its memory.
fn is_split(snapshot: &Snapshot, gpu: &Gpu) -> bool {
    gpu.health.mig == Ok(true)
        || snapshot
            .gpus
            .iter()
            .any(|instance| instance.facts.parent.as_ref() == Some(&gpu.uuid))
}

/// The free memory of a GPU, or the free memory of the host that the GPU shares.
fn free_memory(gpu: &Gpu) -> Reading<Bytes> {
    let of_shared = |shared: SharedMemory| shared.total.saturating_sub(shared.used);
    gpu.load
        .memory_free
        .or_else(|reason| gpu.shared_memory.map(of_shared).ok_or(reason))
}

/// Whether CUDA, in the order of the PCI bus, gives each GPU the index that NVML gives it. A GPU
/// that is split by MIG may have none, and a lost one may still have one.
fn are_indexes_certain(snapshot: &Snapshot) -> bool {
    let is_whole = |gpu: &Gpu| matches!(gpu.health.mig, Ok(false) | Err(Missing::Unsupported));
    snapshot
        .gpus
        .iter()
        .all(|gpu| gpu.facts.parent.is_none() && is_whole(gpu) && !is_lost(gpu))
}

fn is_lost(gpu: &Gpu) -> bool {
    gpu.trouble
        .as_ref()
        .is_some_and(|trouble| trouble.cause == Cause::Lost)
}

fn is_starting(gpu: &Gpu) -> bool {
    gpu.facts.name == Err(Missing::NotYet) && gpu.trouble.as_ref().is_none_or(Trouble::is_starting)
}
