//! The place of a process in a distributed job, by the variables of its environment.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::text::Text;

/// The facts in the environment of a process about the distributed job that it works for. A value is
/// absent when its variable is not set, or is no number where a number is meant. A child inherits
/// the environment, so it has the values of its parent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DistributedFacts {
    /// The rank in the whole job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The variable that `rank` is from, as in `OMPI_COMM_WORLD_RANK`; absent for `RANK`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank_variable: Option<Text>,
    /// The rank among the processes of the job on the same host: `LOCAL_RANK`, or the variable of
    /// the launcher that set `rank`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_rank: Option<u32>,
    /// The number of ranks of the whole job: `WORLD_SIZE`, or the variable of the launcher that set
    /// `rank`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub world_size: Option<u32>,
    /// The number of ranks on the same host: `LOCAL_WORLD_SIZE`, or the variable of the launcher
    /// that set `rank`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_world_size: Option<u32>,
    /// `GROUP_RANK`: torchrun's number of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_rank: Option<u32>,
    /// `MASTER_ADDR`: the host of rank 0, as the other ranks reach it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub master_address: Option<Text>,
    /// `MASTER_PORT`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub master_port: Option<u32>,
    /// `TORCHELASTIC_RESTART_COUNT`: how often torchrun has started the ranks of this host anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_count: Option<u32>,
    /// `SLURM_CLUSTER_NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slurm_cluster: Option<Text>,
    /// `SLURM_JOB_ID`. The control group, which `origin` follows, may name another job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slurm_job_id: Option<Text>,
    /// `SLURM_ARRAY_JOB_ID`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slurm_array_job_id: Option<Text>,
    /// `SLURM_ARRAY_TASK_ID`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slurm_array_task_id: Option<Text>,
    /// `SLURM_JOB_NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slurm_job_name: Option<Text>,
    /// `PMIX_NAMESPACE`: the job of an MPI launcher, as in `prterun-gpu-01-4242@1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mpi_namespace: Option<Text>,
    /// `RAY_JOB_ID`, which is unique only within one Ray cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ray_job_id: Option<Text>,
}

impl DistributedFacts {
    /// Shares the memory of equal texts with the facts of another process.
    pub(super) fn share(&mut self, other: &Self) {
        let texts = [
            (&mut self.rank_variable, &other.rank_variable),
            (&mut self.master_address, &other.master_address),
            (&mut self.slurm_cluster, &other.slurm_cluster),
            (&mut self.slurm_job_id, &other.slurm_job_id),
            (&mut self.slurm_array_job_id, &other.slurm_array_job_id),
            (&mut self.slurm_array_task_id, &other.slurm_array_task_id),
            (&mut self.slurm_job_name, &other.slurm_job_name),
            (&mut self.mpi_namespace, &other.mpi_namespace),
            (&mut self.ray_job_id, &other.ray_job_id),
        ];
        for (mine, other) in texts {
            if mine == other {
                mine.clone_from(other);
            }
        }
    }
}
