//! The marks by which processes of several hosts belong to one job.

use super::only;
use crate::base::text::Text;
use crate::model::JobKey;
use crate::protocol::host_key::HostKey;
use crate::protocol::snapshot::{DistributedFacts, Missing, Process};

/// The mark of a job: what all of its processes have in common, and no other job has. Each has a
/// user, since two users are never one job.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobMark {
    /// A job of Slurm.
    Slurm {
        user: Text,
        /// `SLURM_CLUSTER_NAME`; `None` if the environment could not be read.
        cluster: Option<Text>,
        /// The number of the job; its SLUID where only that is known.
        job: Text,
        /// The numbers of the array and of the task, as squeue lists them: `4242_7`. `None` for a job
        /// that is no task of an array.
        array_task: Option<(Text, Text)>,
    },
    /// Ranks with the same meeting point, started by torchrun, accelerate or deepspeed.
    Torch {
        user: Text,
        /// `TORCHELASTIC_RUN_ID`; `None` if it is not set.
        run: Option<Text>,
        /// The launcher of a run without such an ID: `deepspeed`. `None` if none is known.
        launcher: Option<Text>,
        address: Text,
        port: u32,
        world_size: u32,
    },
    /// Ranks of one start of an MPI launcher.
    Mpi {
        user: Text,
        namespace: Text,
        world_size: u32,
    },
    /// The workers of a job of a Ray cluster.
    Ray {
        user: Text,
        /// The name of the cluster's session: it has the time of its start and a PID.
        session: Text,
        job: Text,
    },
    /// A job of one host.
    Local {
        host: HostKey,
        key: JobKey,
        /// The container or pod, as in `docker 3f2a91c0d1e2`, or the launcher, as in `torchrun`.
        started_by: Option<Text>,
    },
}

impl JobMark {
    /// The number of the job as squeue and scancel take it: `4242`, or `4242_7` for a task of an
    /// array. `None` if it is no job of Slurm, or only its SLUID is known.
    pub fn slurm_id(&self) -> Option<String> {
        match self {
            Self::Slurm {
                array_task: Some((array, task)),
                ..
            } => Some(format!("{array}_{task}")),
            Self::Slurm { job, .. } => job
                .as_str()
                .bytes()
                .all(|byte| byte.is_ascii_digit())
                .then(|| job.to_string()),
            _ => None,
        }
    }

    /// The scheduler, launcher or container with its number or name: `slurm 4242`, `torchrun`,
    /// `ray 02000000`. Empty for a program that was started by hand.
    pub(crate) fn title(&self) -> String {
        match self {
            Self::Slurm { job, .. } => {
                let number = self.slurm_id().unwrap_or_else(|| job.to_string());
                format!("slurm {number}")
            }
            Self::Torch { run: Some(run), .. } if !["none", ""].contains(&run.as_str()) => {
                format!("torchrun {run}")
            }
            Self::Torch { run: Some(_), .. } => "torchrun".to_owned(),
            Self::Torch { launcher, .. } => launcher
                .as_ref()
                .map_or_else(String::new, ToString::to_string),
            Self::Mpi { .. } => "mpirun".to_owned(),
            Self::Ray { job, .. } => format!("ray {job}"),
            Self::Local { started_by, .. } => started_by
                .as_ref()
                .map_or_else(String::new, ToString::to_string),
        }
    }
}

/// Returns the job of Slurm that these processes work for; `None` if they work for two, or if a rank
/// among them works for none. The control group, which `origin` prefers, cannot be inherited from
/// another job, and the environment can.
pub(super) fn slurm<'a>(
    processes: impl Iterator<Item = &'a Process> + Clone,
    user: &Text,
) -> Option<JobMark> {
    let number = |process: &'a Process| {
        let origin = process.facts.origin.as_ref().ok()?;
        origin.as_str().strip_prefix("slurm ")
    };
    let facts = |process: &'a Process| process.facts.distributed.as_deref();
    let is_rank = |process: &&'a Process| facts(process).is_some_and(|facts| facts.rank.is_some());
    let mut ranks = processes.clone().filter(is_rank);
    let job = only(processes.clone().filter_map(number))?;
    if ranks.any(|rank| number(rank).is_none()) {
        return None;
    }
    // The environment of some processes may not be read yet.
    let of_job = processes.filter_map(facts).filter(|facts| {
        let id = facts.slurm_job_id.as_ref();
        id.is_some_and(|id| id.as_str() == job)
    });
    let place = |facts: &'a DistributedFacts| {
        let array = facts.slurm_array_job_id.as_ref();
        let task = array.zip(facts.slurm_array_task_id.as_ref());
        (facts.slurm_cluster.as_ref(), task)
    };
    let (cluster, array_task) = match of_job.clone().next() {
        Some(_) => only(of_job.map(place))?,
        None => (None, None),
    };
    Some(JobMark::Slurm {
        user: user.clone(),
        cluster: cluster.cloned(),
        job: job.into(),
        array_task: array_task.map(|(array, task)| (array.clone(), task.clone())),
    })
}

/// Returns the run of a rank; `None` if its environment does not prove that the run has other hosts.
/// The defaults of torchrun are the same everywhere: its run ID is `none`, and its meeting point is
/// port 29500 of the own host.
pub(super) fn run(process: &Process, user: &Text) -> Option<JobMark> {
    let facts = process.facts.distributed.as_deref()?;
    let world_size = facts.world_size?;
    if facts
        .local_world_size
        .is_some_and(|local| local >= world_size)
    {
        return None;
    }
    if facts.rank_variable.is_some() {
        return Some(JobMark::Mpi {
            user: user.clone(),
            namespace: facts.mpi_namespace.clone()?,
            world_size,
        });
    }
    facts.local_world_size?;
    let address = facts.master_address.clone()?;
    if is_own_host(address.as_str()) {
        return None;
    }
    let run = match &process.facts.elastic_run {
        Ok(run) => Some(run.clone()),
        Err(Missing::Unsupported) => None,
        Err(_) => return None,
    };
    Some(JobMark::Torch {
        user: user.clone(),
        launcher: process
            .facts
            .launcher
            .as_ref()
            .ok()
            .filter(|_| run.is_none())
            .cloned(),
        run,
        address,
        port: facts.master_port?,
        world_size,
    })
}

/// Whether an address means the host itself, on every host.
fn is_own_host(address: &str) -> bool {
    /// The beginnings of names and numbers; numbers may have fewer parts, as `127.1`.
    const BEGINNINGS: [&str; 5] = ["127.", "localhost", "ip6-lo", "::ffff:127.", "::ffff:7f"];
    let address = address
        .trim_matches(['[', ']'])
        .trim_end_matches('.')
        .to_ascii_lowercase();
    let is_zero_or_one = address
        .bytes()
        .all(|byte| matches!(byte, b'0' | b':' | b'.'))
        || address
            .trim_end_matches('1')
            .bytes()
            .all(|byte| matches!(byte, b'0' | b':'));
    is_zero_or_one
        || address.ends_with(".localhost")
        || BEGINNINGS.iter().any(|name| address.starts_with(name))
}

/// Returns the name of the session in the arguments of a raylet, as in
/// `--raylet_socket_name=/tmp/ray/session_2026-11-26_09-00-00_123456_789/sockets/raylet`.
pub(super) fn ray_session<'a>(mut arguments: impl Iterator<Item = &'a str>) -> Option<Text> {
    let socket = arguments.find_map(|argument| {
        ["--raylet_socket_name=", "--raylet-socket-name="]
            .iter()
            .find_map(|name| argument.strip_prefix(name))
    })?;
    let session = socket
        .split('/')
        .find(|part| part.starts_with("session_"))?;
    Some(session.into())
}
