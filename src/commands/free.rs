//! `gputop free`: which GPUs a job may take, as the variable that gives them to it.
//!
//! It looks through an agent as every report does. A GPU is named by its UUID: an index means another GPU
//! to CUDA, which counts the fastest first, than to NVML, which counts by bus.

use std::collections::HashMap;
use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use crate::base::units::{Bytes, Elapsed, Moment, Percent};
use crate::commands::report::{self, Exit};
use crate::model::{HostModel, Total};
use crate::protocol::agent_options::AgentOptions;
use crate::protocol::snapshot::{Gpu, GpuUuid, Snapshot, Use};

/// Which GPUs are wanted.
#[derive(Debug)]
pub struct FreeOptions {
    /// How the agent is started.
    pub agent: AgentOptions,
    /// How long to wait for the driver.
    pub timeout: Duration,
    /// The number of GPUs.
    pub count: usize,
    /// The free memory that each must have; `None` if no process may use it.
    pub memory: Option<Bytes>,
    /// The time for which no kernel must have run.
    pub idle: Option<Duration>,
    /// Whether to wait until there are enough.
    pub wait: bool,
}

/// Prints a line for the environment, as in `CUDA_VISIBLE_DEVICES=GPU-1b2c…,GPU-3d4e…`, or says why there is none.
///
/// # Errors
///
/// When no agent can be started, or when nobody reads what is printed.
pub fn run(options: &FreeOptions) -> anyhow::Result<ExitCode> {
    let mut search = Search::new(options);
    let sought = report::follow(&options.agent, options.timeout, true, |model| search.look(model))?;
    let exit = match sought {
        Ok(Ok(line)) => {
            report::put(line.as_bytes())?;
            Exit::Success
        }
        Ok(Err((exit, reason))) => {
            report::complain(&reason.as_str().into());
            exit
        }
        Err(reason) => {
            report::complain(&reason);
            Exit::Error
        }
    };
    Ok(exit.into())
}

/// What is looked for, and since when each GPU has been at rest.
struct Search<'a> {
    options: &'a FreeOptions,
    began: Option<Moment>,
    at_rest_since: HashMap<GpuUuid, Moment>,
}

/// The line to print, or why there is none.
type Found = Result<String, (Exit, String)>;

impl<'a> Search<'a> {
    fn new(options: &'a FreeOptions) -> Self {
        Self { options, began: None, at_rest_since: HashMap::new() }
    }

    /// Looks once more. Absent while there is something to wait for.
    fn look(&mut self, model: &HostModel) -> Option<Found> {
        let snapshot = model.latest()?;
        let began = *self.began.get_or_insert(snapshot.at);
        if snapshot.gpus.is_empty() {
            let reason = snapshot.driver.trouble.as_ref().map_or_else(
                || "the NVIDIA driver says that there is no GPU on this host".to_owned(),
                |trouble| trouble.sentence.to_string(),
            );
            return Some(Err((Exit::of(snapshot, true), reason)));
        }
        let candidates: Vec<&Gpu> = snapshot.gpus.iter().filter(|gpu| !is_split(snapshot, gpu)).collect();
        for gpu in &candidates {
            if gpu.load.sm == Ok(Percent::new(0.0)) {
                self.at_rest_since.entry(gpu.uuid.clone()).or_insert(snapshot.at);
            } else {
                self.at_rest_since.remove(&gpu.uuid);
            }
        }
        let (mut free, mut taken) = (Vec::new(), Vec::new());
        for gpu in candidates {
            match self.objection(model, gpu) {
                None => free.push(gpu),
                Some(why) => taken.push((gpu, why)),
            }
        }
        let wanted = self.options.count;
        if free.len() >= wanted {
            free.sort_by_key(|gpu| (std::cmp::Reverse(gpu.load.memory_free.unwrap_or_default()), gpu.facts.index));
            let uuids: Vec<&str> = free[..wanted].iter().map(|gpu| gpu.uuid.0.as_str()).collect();
            return Some(Ok(format!("CUDA_VISIBLE_DEVICES={}\n", uuids.join(","))));
        }
        // Who was busy a moment ago may be at rest for long enough after as long a look.
        let is_patient = self.options.wait || self.options.idle.is_some_and(|idle| snapshot.at.since(began) < idle);
        (!is_patient).then(|| {
            let mut reason = match (wanted, free.len()) {
                (1, _) => "no GPU is free".to_owned(),
                (_, count) => format!("only {count} of the {wanted} GPUs that are wanted are free"),
            };
            for (at, (gpu, why)) in taken.iter().enumerate() {
                let _infallible: std::fmt::Result =
                    write!(reason, "{} GPU {} {why}", if at == 0 { ":" } else { "," }, gpu.facts.index);
            }
            Err((Exit::NoneFree, reason))
        })
    }

    /// Why a job should not take that GPU.
    fn objection(&self, model: &HostModel, gpu: &Gpu) -> Option<String> {
        if let Some(trouble) = &gpu.trouble {
            return Some(format!("cannot be used ({})", trouble.cause));
        }
        if gpu.facts.parent.is_some() && self.options.count > 1 {
            return Some("is an instance of a split GPU, and CUDA gives a process only one of these".to_owned());
        }
        let least = self.options.memory.unwrap_or_default();
        match gpu.load.memory_free {
            Ok(free) if free < least => return Some(format!("has {free} free")),
            Ok(_) => {}
            Err(why) => return Some(format!("does not say how much memory is free ({why})")),
        }
        if self.options.memory.is_none() {
            // A desktop is on its GPU all day, and leaves it to whoever computes.
            let held: Vec<_> =
                gpu.processes.iter().filter(|it| it.usage != Use::Graphics).map(|it| it.memory).collect();
            if !held.is_empty() {
                let amount = match Total::of(held.iter().copied()) {
                    Ok(Total { bytes, lower_bound: false }) => format!(" with {bytes}"),
                    Ok(Total { bytes, lower_bound: true }) => format!(" with {bytes} or more"),
                    Err(_) => String::new(),
                };
                let count = held.len();
                return Some(format!("has {count} process{} on it{amount}", if count == 1 { "" } else { "es" }));
            }
            if let Some(unaccounted) = model.unaccounted().iter().find(|it| it.gpu == gpu.uuid) {
                return Some(format!("has {} in use that no process accounts for", unaccounted.memory));
            }
        }
        let idle = self.options.idle?;
        let now = model.latest().map_or(Moment(0), |snapshot| snapshot.at);
        match (gpu.load.sm, self.at_rest_since.get(&gpu.uuid)) {
            (_, Some(since)) if now.since(*since) >= idle => None,
            (_, Some(since)) => Some(format!("was seen at rest for {} only", Elapsed(now.since(*since)))),
            (Ok(sm), None) => Some(format!("is busy ({sm})")),
            (Err(why), None) => Some(format!("does not say whether it is busy ({why})")),
        }
    }
}

/// Whether its memory is that of its instances.
fn is_split(snapshot: &Snapshot, gpu: &Gpu) -> bool {
    gpu.health.mig == Ok(true) || snapshot.gpus.iter().any(|it| it.facts.parent.as_ref() == Some(&gpu.uuid))
}
