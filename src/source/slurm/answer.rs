//! The answer of the script that asks Slurm. Every text in it may be forged.

use std::collections::HashMap;
use std::time::Duration;

use super::job_id::SlurmJobId;
use crate::base::text::Text;
use crate::protocol::slurm_job::{ArrayTask, SlurmJob, SlurmNode};
use crate::source::ssh::HostList;

/// The most fields of a line: its kind, and nine of `squeue`.
pub(super) const FIELDS: usize = 10;

/// The most GPU indices of a node that are read.
const MOST_GPUS: usize = 1024;

/// The states in which a job has no nodes any more.
const ENDED: [&str; 10] = [
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REVOKED",
    "TIMEOUT",
];

/// The states in which a job has no nodes yet.
const WAITING: [&str; 4] = ["PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"];

/// The answer to a question for one job or array.
#[derive(Debug, Default)]
pub(super) struct SlurmAnswer {
    /// The user on whose behalf Slurm was asked.
    user: Text,
    jobs: Vec<FoundJob>,
    /// The GPU indices by the number of the job and the name of the node; `None` where Slurm does not
    /// say which they are.
    gpus: HashMap<(u32, String), Option<Vec<u32>>>,
    /// The number of the job that details are about.
    detailed: Option<u32>,
}

/// A line of `squeue`.
#[derive(Debug, Clone)]
struct FoundJob {
    number: u32,
    task: Option<ArrayTask>,
    user: Text,
    state: Text,
    run_time: Option<Duration>,
    /// The nodes as ranges.
    nodes: Text,
    /// Why the job waits.
    reason: Text,
    name: Text,
}

impl SlurmAnswer {
    /// Takes the next line. Returns whether it was the last.
    ///
    /// # Errors
    ///
    /// When there is no answer: why.
    pub(super) fn take(&mut self, fields: [Text; FIELDS]) -> Result<bool, String> {
        let [kind, first, ..] = &fields;
        match kind.as_str() {
            "lacks" => {
                return Err("there is no squeue; name a login host as in LOGIN:JOB".to_owned());
            }
            "refused" if first.as_str().contains("Invalid job id") => {
                return Err("there is no such job, or it ended a while ago".to_owned());
            }
            "refused" => return Err(first.to_string()),
            "user" => self.user = first.clone(),
            "job" => self.jobs.extend(FoundJob::parse(fields)),
            "detail" => self.take_detail(first.as_str()),
            "done" => return Ok(true),
            _ => {}
        }
        Ok(false)
    }

    /// Takes a line of `scontrol -d show job`.
    fn take_detail(&mut self, line: &str) {
        let line = line.trim_start();
        if let Some(rest) = line.strip_prefix("JobId=") {
            let digits = rest.split(' ').next().unwrap_or_default();
            self.detailed = digits.parse().ok();
            return;
        }
        let (Some(job), Some(rest)) = (self.detailed, line.strip_prefix("Nodes=")) else {
            return;
        };
        let (nodes, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let Ok(nodes) = node_names(nodes) else {
            return;
        };
        let gpus = gpu_indices(rest);
        for node in nodes {
            self.gpus.insert((job, node), gpus.clone());
        }
    }

    /// Returns the job with this ID, which has nodes.
    ///
    /// # Errors
    ///
    /// One sentence: why there is no such job.
    pub(super) fn job(&self, id: SlurmJobId, now: u64) -> Result<SlurmJob, String> {
        let mut active = self.jobs.iter().filter(|job| job.has_nodes());
        let job = match (active.next(), active.next()) {
            (Some(job), None) => job,
            (Some(_), Some(_)) => return Err(self.several_tasks(id)),
            (None, _) => return Err(self.no_nodes(id)),
        };
        let names = node_names(job.nodes.as_str()).map_err(|why| {
            format!(
                "Slurm names the nodes of job {id} in a way that gputop does not understand: {why}"
            )
        })?;
        let nodes = names.into_iter().map(|name| SlurmNode {
            gpus: self
                .gpus
                .get(&(job.number, name.clone()))
                .cloned()
                .flatten(),
            name: Text::from(name.as_str()),
        });
        Ok(SlurmJob {
            number: job.number,
            task: job.task,
            name: job.name.clone(),
            user: job.user.clone(),
            state: job.state.clone(),
            run_time: job.run_time,
            nodes: nodes.collect(),
            asked_at: now,
        })
    }

    /// Names the tasks of an array of which one is to be named.
    fn several_tasks(&self, id: SlurmJobId) -> String {
        const NAMED: usize = 5;
        let mut tasks: Vec<ArrayTask> = self
            .jobs
            .iter()
            .filter(|job| job.has_nodes())
            .filter_map(|job| job.task)
            .collect();
        tasks.sort_by_key(|task| task.task);
        let mut names: Vec<String> = tasks.iter().take(NAMED).map(ToString::to_string).collect();
        if tasks.len() > NAMED {
            names.push(format!("… {} more", tasks.len() - NAMED));
        }
        if names.is_empty() {
            return format!(
                "Slurm knows several jobs {id} that have nodes: name one of their numbers"
            );
        }
        format!(
            "job {id} is an array of which several tasks have nodes: name one, as in {}",
            names.join(", ")
        )
    }

    /// Says why no job has nodes.
    fn no_nodes(&self, id: SlurmJobId) -> String {
        let in_state = |states: &[&str]| {
            let is_one = |job: &&FoundJob| states.contains(&job.state.as_str());
            self.jobs.iter().find(is_one)
        };
        if let Some(job) = in_state(&WAITING) {
            let reason = match job.reason.as_str() {
                "" | "None" => String::new(),
                reason => format!(" ({reason})"),
            };
            return format!("job {id} waits in the queue{reason}: it has no nodes yet");
        }
        match in_state(&ENDED) {
            Some(job) => format!(
                "job {id} has ended ({}): it has no nodes any more",
                job.state
            ),
            None => format!("there is no job {id}, or it ended a while ago"),
        }
    }

    /// Checks that the user who asked owns the job, and that its nodes are these hosts.
    ///
    /// # Errors
    ///
    /// One sentence: the job may not be cancelled.
    pub(super) fn check_cancel(&self, job: &SlurmJob, hosts: &[&str]) -> Result<(), String> {
        let id = job.id();
        if self.user.as_str().is_empty() || self.user != job.user {
            return Err(format!(
                "job {id} belongs to {}, not to {}",
                job.user, self.user
            ));
        }
        let is_node = |host: &str| job.node(host).is_some();
        if let Some(host) = hosts.iter().find(|host| !is_node(host)) {
            return Err(format!("{} is no node of job {id}", Text::from(*host)));
        }
        let is_host = |node: &SlurmNode| hosts.contains(&node.name.as_str());
        match job.nodes.iter().filter(|node| !is_host(node)).count() {
            0 => Ok(()),
            1 => Err(format!(
                "job {id} has one more node, which is not among these hosts"
            )),
            count => Err(format!(
                "job {id} has {count} more nodes, which are not among these hosts"
            )),
        }
    }
}

impl FoundJob {
    /// Parses the fields of `squeue`; `None` for a line that it did not write.
    fn parse(fields: [Text; FIELDS]) -> Option<Self> {
        let [
            _,
            number,
            array,
            task,
            user,
            state,
            run_time,
            nodes,
            reason,
            name,
        ] = fields;
        let task = task.as_str().parse().ok();
        let array = array.as_str().parse().ok();
        Some(Self {
            number: number.as_str().parse().ok()?,
            task: array
                .zip(task)
                .map(|(array, task)| ArrayTask { array, task }),
            run_time: run_time_of(run_time.as_str()),
            user,
            state,
            nodes,
            reason,
            name,
        })
    }

    fn has_nodes(&self) -> bool {
        let state = self.state.as_str();
        !self.nodes.as_str().is_empty() && !ENDED.contains(&state) && !WAITING.contains(&state)
    }
}

/// Writes out the ranges of a list of nodes.
///
/// # Errors
///
/// One sentence, if it is no list of names that may be the names of nodes.
fn node_names(list: &str) -> Result<Vec<String>, String> {
    let list: HostList = list.parse()?;
    let names = list.names()?;
    // ssh would take these for a user, a port or an address.
    match names
        .iter()
        .find(|name| name.contains(['@', ':', '%', '+', '[', ']']))
    {
        Some(name) => Err(format!("`{}` is no name of a node", Text::new(name))),
        None => Ok(names),
    }
}

/// Parses the time that a job has run: `2:06`, `1:02:03` or `5-01:02:03`.
fn run_time_of(text: &str) -> Option<Duration> {
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (days.parse::<u64>().ok()?, rest),
        None => (0, text),
    };
    let numbers: Vec<u64> = rest
        .split(':')
        .map(|number| number.parse().ok())
        .collect::<Option<_>>()?;
    let seconds = match numbers[..] {
        [minutes, seconds] => minutes.checked_mul(60)?.checked_add(seconds)?,
        [hours, minutes, seconds] => hours
            .checked_mul(3600)?
            .checked_add(minutes.checked_mul(60)?)?
            .checked_add(seconds)?,
        _ => return None,
    };
    let seconds = days.checked_mul(86_400)?.checked_add(seconds)?;
    Some(Duration::from_secs(seconds))
}

/// Finds the GPU indices in the line of a node, such as `CPU_IDs=0-3 Mem=0 GRES=gpu:h100:4(IDX:0-3)`.
/// Returns `None` where they are not told, and for instances of split GPUs, whose indices are others.
fn gpu_indices(line: &str) -> Option<Vec<u32>> {
    let words = line.split(' ');
    let gres = words
        .filter_map(|word| word.split_once('='))
        .find(|(key, _)| key.starts_with("GRES"))
        .map_or("", |(_, gres)| gres);
    let mut found = Vec::new();
    for (name, inside) in resources(gres) {
        let mut parts = name.split(':');
        if parts.next() != Some("gpu") {
            continue;
        }
        let is_instance = parts.next().is_some_and(|kind| {
            let digits = kind.trim_start_matches(|letter: char| letter.is_ascii_digit());
            digits.len() < kind.len() && digits.starts_with("g.")
        });
        if is_instance {
            return None;
        }
        for range in inside.strip_prefix("IDX:")?.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            if last < first || found.len() + (last - first) as usize >= MOST_GPUS {
                return None;
            }
            found.extend(first..=last);
        }
    }
    found.sort_unstable();
    found.dedup();
    Some(found)
}

/// Splits `gpu:h100:2(IDX:0,3),nic:1(IDX:0)` at the commas between the resources: the name of each, and
/// the text between its brackets.
fn resources(gres: &str) -> impl Iterator<Item = (&str, &str)> {
    gres.split(')').filter_map(|resource| {
        let resource = resource.trim_start_matches(',');
        match resource.split_once('(') {
            Some(named) => Some(named),
            None if resource.is_empty() => None,
            None => Some((resource, "")),
        }
    })
}

#[cfg(test)]
mod tests;
