//! `gputop free`: prints the GPUs that a job may take, as `CUDA_VISIBLE_DEVICES`.
//!
//! Reads an agent as every report does. GPUs are named by UUID, because CUDA's indexes (fastest first) differ from NVML's
//! (by PCI bus).

use std::collections::HashMap;
use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use crate::base::units::{Bytes, Elapsed, Moment, Percent};
use crate::commands::report::{self, Exit, HostState, ReadOptions};
use crate::model::{HostModel, Total};
use crate::protocol::snapshot::{Gpu, GpuUuid, Snapshot, Use};

/// Which GPUs are wanted.
#[derive(Debug)]
pub struct FreeOptions {
    /// The hosts. The GPUs are all of one host: of the first one that has enough.
    pub read: ReadOptions,
    /// The number of GPUs.
    pub count: usize,
    /// The free memory that each must have; `None` if no process may use it.
    pub memory: Option<Bytes>,
    /// The time for which no kernel must have run.
    pub idle: Option<Duration>,
    /// Whether to wait until there are enough.
    pub wait: bool,
}

/// Prints `CUDA_VISIBLE_DEVICES=GPU-1b2c…,GPU-3d4e…`, after `HOST=NAME` if there are several hosts, or the reason why
/// too few GPUs are free. Fails if no agent can be started, or if the standard output cannot be written.
pub fn run(options: &FreeOptions) -> anyhow::Result<ExitCode> {
    let search = || FreeGpuSearch { options, began: None, idle_since: HashMap::new() };
    let mut searches: Vec<_> = options.read.sources.iter().map(|_| search()).collect();
    let found = report::read_until(&options.read, true, |hosts| {
        let results = hosts.iter().zip(&mut searches).map(|(host, search)| match &host.trouble {
            Some(trouble) => Some(Err((Exit::Error, trouble.to_string()))),
            None => host.seen.and_then(|(model, snapshot)| search.update(model, snapshot)),
        });
        first_free(hosts, results.collect())
    })?;
    let (exit, reason) = match found {
        Ok(Ok(line)) => {
            report::print(line.as_bytes())?;
            return Ok(Exit::Success.into());
        }
        Ok(Err((exit, reason))) => (exit, reason.as_str().into()),
        Err(reason) => (Exit::Error, reason),
    };
    report::print_error(&reason);
    Ok(exit.into())
}

/// The line to print for a host, or the reason why there is none; `None` to wait for the next snapshot.
type SearchResult = Option<Result<String, (Exit, String)>>;

/// Returns the result of the first host that has enough GPUs, or the reasons of all hosts.
fn first_free(hosts: &[HostState<'_>], mut results: Vec<SearchResult>) -> SearchResult {
    if let [result] = results.as_mut_slice() {
        return result.take();
    }
    if let Some((host, Some(Ok(line)))) = hosts.iter().zip(&results).find(|(_, result)| matches!(result, Some(Ok(_)))) {
        return Some(Ok(format!("HOST={} {line}", host.name)));
    }
    let failures: Vec<(Exit, String)> =
        results.into_iter().collect::<Option<Vec<_>>>()?.into_iter().filter_map(Result::err).collect();
    let exits: Vec<Exit> = failures.iter().map(|(exit, _)| *exit).collect();
    let exit = if exits.contains(&Exit::NoneFree) { Exit::NoneFree } else { Exit::combined(&exits) };
    let reasons = hosts.iter().zip(&failures).map(|(host, (_, reason))| format!("{}: {reason}", host.name));
    Some(Err((exit, reasons.collect::<Vec<_>>().join("; "))))
}

struct FreeGpuSearch<'a> {
    options: &'a FreeOptions,
    /// The time of the first snapshot; `None` before it.
    began: Option<Moment>,
    idle_since: HashMap<GpuUuid, Moment>,
}

impl FreeGpuSearch<'_> {
    /// Takes the latest snapshot. Returns the line to print, or the reason why there is none. Returns `None` to wait
    /// for the next snapshot.
    fn update(&mut self, model: &HostModel, snapshot: &Snapshot) -> SearchResult {
        let began = *self.began.get_or_insert(snapshot.at);
        if snapshot.gpus.is_empty() {
            let reason = snapshot.driver.trouble.as_ref().map_or_else(
                || "the NVIDIA driver finds no GPU on this host".to_owned(),
                |trouble| trouble.sentence.to_string(),
            );
            return Some(Err((Exit::of_snapshot(snapshot, true), reason)));
        }
        let candidates: Vec<&Gpu> = snapshot.gpus.iter().filter(|gpu| !is_split(snapshot, gpu)).collect();
        for gpu in &candidates {
            if gpu.load.sm == Ok(Percent::new(0.0)) {
                self.idle_since.entry(gpu.uuid.clone()).or_insert(snapshot.at);
            } else {
                self.idle_since.remove(&gpu.uuid);
            }
        }
        let (mut free, mut taken) = (Vec::new(), Vec::new());
        for gpu in candidates {
            match self.objection(model, snapshot, gpu) {
                None => free.push(gpu),
                Some(reason) => taken.push((gpu, reason)),
            }
        }
        let wanted = self.options.count;
        if free.len() >= wanted {
            free.sort_by_key(|gpu| (std::cmp::Reverse(gpu.load.memory_free.unwrap_or_default()), gpu.facts.index));
            let uuids: Vec<&str> = free[..wanted].iter().map(|gpu| gpu.uuid.0.as_str()).collect();
            return Some(Ok(format!("CUDA_VISIBLE_DEVICES={}\n", uuids.join(","))));
        }
        // A GPU that was busy in the first snapshot is idle for the wanted time only after that time.
        if self.options.wait || self.options.idle.is_some_and(|idle| snapshot.at.since(began) < idle) {
            return None;
        }
        let mut reason = match (wanted, free.len()) {
            (1, _) => "no GPU is free".to_owned(),
            (_, count) => format!("only {count} of the {wanted} GPUs that are wanted are free"),
        };
        for (at, (gpu, objection)) in taken.iter().enumerate() {
            let separator = if at == 0 { ":" } else { "," };
            let _infallible: std::fmt::Result = write!(reason, "{separator} GPU {} {objection}", gpu.facts.index);
        }
        Some(Err((Exit::NoneFree, reason)))
    }

    /// Returns why a job should not take a GPU.
    fn objection(&self, model: &HostModel, snapshot: &Snapshot, gpu: &Gpu) -> Option<String> {
        if let Some(trouble) = &gpu.trouble {
            return Some(format!("cannot be used ({})", trouble.cause));
        }
        if gpu.facts.parent.is_some() && self.options.count > 1 {
            return Some("is a MIG instance, and CUDA gives a process only one of these".to_owned());
        }
        match gpu.load.memory_free {
            Ok(free) if free < self.options.memory.unwrap_or_default() => return Some(format!("has {free} free")),
            Ok(_) => {}
            Err(reason) => return Some(format!("does not report its free memory ({reason})")),
        }
        if self.options.memory.is_none() {
            // Graphics processes do not count: a desktop stays on its GPU, and leaves room for jobs.
            let computing = gpu.processes.iter().filter(|gpu_process| gpu_process.usage != Use::Graphics);
            let used: Vec<_> = computing.map(|gpu_process| gpu_process.memory).collect();
            if !used.is_empty() {
                let amount = match Total::of(used.iter().copied()) {
                    Ok(Total { bytes, lower_bound }) => {
                        format!(" with {bytes}{}", if lower_bound { " or more" } else { "" })
                    }
                    Err(_) => String::new(),
                };
                let plural = if used.len() == 1 { "" } else { "es" };
                return Some(format!("has {} process{plural} on it{amount}", used.len()));
            }
            if let Some(unaccounted) = model.unaccounted().iter().find(|memory| memory.gpu == gpu.uuid) {
                return Some(format!("has {} in use that no process accounts for", unaccounted.memory));
            }
        }
        let idle = self.options.idle?;
        match (gpu.load.sm, self.idle_since.get(&gpu.uuid).map(|since| snapshot.at.since(*since))) {
            (_, Some(span)) if span >= idle => None,
            (_, Some(span)) => Some(format!("has been idle for only {}", Elapsed(span))),
            (Ok(sm), None) => Some(format!("is busy ({sm})")),
            (Err(reason), None) => Some(format!("does not report whether it is busy ({reason})")),
        }
    }
}

/// Whether the GPU is split into MIG instances, which have its memory.
fn is_split(snapshot: &Snapshot, gpu: &Gpu) -> bool {
    gpu.health.mig == Ok(true) || snapshot.gpus.iter().any(|instance| instance.facts.parent.as_ref() == Some(&gpu.uuid))
}
