//! Finds the place of a process in a distributed job in its environment.

use crate::base::text::Text;
use crate::protocol::snapshot::DistributedFacts;

/// The variables by which one kind of launcher tells a process its rank. A name is empty where the
/// launcher has no such variable.
struct RankVariables {
    rank: &'static str,
    world_size: &'static str,
    local_rank: &'static str,
    local_world_size: &'static str,
    /// A variable without which the others mean something else; empty for none.
    needs: &'static str,
}

const fn variables(
    [rank, world_size, local_rank, local_world_size, needs]: [&'static str; 5],
) -> RankVariables {
    RankVariables {
        rank,
        world_size,
        local_rank,
        local_world_size,
        needs,
    }
}

/// The first launcher counts whose rank is set: PyTorch's variables are the rank that a training
/// program uses, whatever started it.
const LAUNCHERS: [RankVariables; 6] = [
    // DeepSpeed's launcher, which knows no LOCAL_WORLD_SIZE.
    variables([
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_SIZE",
        "CROSS_SIZE",
    ]),
    // torchrun, and accelerate, which uses its code.
    variables(["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", ""]),
    // Open MPI.
    variables([
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "",
    ]),
    // Hydra, the launcher of MPICH and Intel MPI.
    variables([
        "PMI_RANK",
        "PMI_SIZE",
        "MPI_LOCALRANKID",
        "MPI_LOCALNRANKS",
        "",
    ]),
    // The batch script of a job has SLURM_PROCID, too, but is no task of a step.
    variables([
        "SLURM_PROCID",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_LOCALID",
        "",
        "SLURM_STEP_NUM_TASKS",
    ]),
    variables(["PMIX_RANK", "", "", "", "PMIX_NAMESPACE"]),
];

/// The names of all variables that [`parse`] reads and that do not belong to a launcher above.
const OTHERS: [&str; 11] = [
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "PMIX_NAMESPACE",
    "RAY_JOB_ID",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_CLUSTER_NAME",
    "SLURM_JOB_ID",
    "SLURM_JOB_NAME",
    "TORCHELASTIC_RESTART_COUNT",
];

/// Whether the value of a variable is a fact about a distributed job.
pub(super) fn is_fact(name: &str) -> bool {
    OTHERS.contains(&name)
        || LAUNCHERS.iter().any(|launcher| {
            [
                launcher.rank,
                launcher.world_size,
                launcher.local_rank,
                launcher.local_world_size,
            ]
            .contains(&name)
        })
}

/// Returns the facts about the distributed job of a process. `get` returns the value of a variable;
/// `None` if it is not set or empty. Returns `None` when no variable says anything.
pub(super) fn parse(get: impl Fn(&str) -> Option<Text>) -> Option<Box<DistributedFacts>> {
    let number = |name: &str| get(name)?.as_str().parse::<u32>().ok();
    let is_of = |launcher: &&RankVariables| {
        number(launcher.rank).is_some()
            && (launcher.needs.is_empty() || get(launcher.needs).is_some())
    };
    let launcher = LAUNCHERS.iter().find(is_of);
    let of_launcher = |name: fn(&RankVariables) -> &'static str| number(name(launcher?));
    let slurm = get("SLURM_JOB_ID");
    let is_in_slurm = slurm.is_some();
    let of_slurm = |name: &str| get(name).filter(|_| is_in_slurm);
    let facts = DistributedFacts {
        rank: of_launcher(|launcher| launcher.rank),
        rank_variable: launcher
            .filter(|launcher| launcher.rank != "RANK")
            .map(|launcher| launcher.rank.into()),
        local_rank: of_launcher(|launcher| launcher.local_rank),
        world_size: of_launcher(|launcher| launcher.world_size),
        local_world_size: of_launcher(|launcher| launcher.local_world_size),
        group_rank: number("GROUP_RANK"),
        master_address: get("MASTER_ADDR"),
        master_port: number("MASTER_PORT"),
        restart_count: number("TORCHELASTIC_RESTART_COUNT"),
        slurm_cluster: of_slurm("SLURM_CLUSTER_NAME"),
        slurm_array_job_id: of_slurm("SLURM_ARRAY_JOB_ID"),
        slurm_array_task_id: of_slurm("SLURM_ARRAY_TASK_ID"),
        slurm_job_name: of_slurm("SLURM_JOB_NAME"),
        slurm_job_id: slurm,
        mpi_namespace: get("PMIX_NAMESPACE"),
        ray_job_id: get("RAY_JOB_ID"),
    };
    (facts != DistributedFacts::default()).then(|| Box::new(facts))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(environ: &str) -> Option<DistributedFacts> {
        let get = |name: &str| {
            let mut variables = environ.split(' ');
            let value =
                variables.find_map(|variable| variable.strip_prefix(name)?.strip_prefix('='));
            value.filter(|value| !value.is_empty()).map(Text::from)
        };
        parse(get).map(|facts| *facts)
    }

    #[track_caller]
    fn check(environ: &str, expected: &str) {
        let json = serde_json::to_string(&facts(environ)).unwrap();
        assert_eq!(json, expected, "{environ}");
    }

    #[test]
    fn each_launcher_tells_rank_and_size_by_its_own_variables() {
        check(
            "RANK=42 LOCAL_RANK=2 WORLD_SIZE=64 LOCAL_WORLD_SIZE=8 GROUP_RANK=5 MASTER_ADDR=gpu-01 MASTER_PORT=29500 \
             TORCHELASTIC_RESTART_COUNT=1",
            r#"{"rank":42,"local_rank":2,"world_size":64,"local_world_size":8,"group_rank":5,"master_address":"gpu-01","master_port":29500,"restart_count":1}"#,
        );
        check(
            "RANK=9 LOCAL_RANK=1 WORLD_SIZE=16 CROSS_RANK=1 CROSS_SIZE=2 LOCAL_SIZE=8",
            r#"{"rank":9,"local_rank":1,"world_size":16,"local_world_size":8}"#,
        );
        check(
            "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 \
             PMIX_RANK=3 PMIX_NAMESPACE=prterun-gpu-01-77@1",
            r#"{"rank":3,"rank_variable":"OMPI_COMM_WORLD_RANK","local_rank":1,"world_size":4,"local_world_size":2,"mpi_namespace":"prterun-gpu-01-77@1"}"#,
        );
        check(
            "PMI_RANK=3 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2",
            r#"{"rank":3,"rank_variable":"PMI_RANK","local_rank":1,"world_size":4,"local_world_size":2}"#,
        );
        check(
            "PMIX_RANK=3 PMIX_NAMESPACE=slurm.pmix.4242.0",
            r#"{"rank":3,"rank_variable":"PMIX_RANK","mpi_namespace":"slurm.pmix.4242.0"}"#,
        );
        check("RAY_JOB_ID=02000000", r#"{"ray_job_id":"02000000"}"#);
    }

    #[test]
    fn a_task_of_slurm_has_a_rank_and_the_batch_script_has_none() {
        check(
            "SLURM_JOB_ID=4243 SLURM_CLUSTER_NAME=lab SLURM_ARRAY_JOB_ID=4242 SLURM_ARRAY_TASK_ID=1 SLURM_JOB_NAME=llama \
             SLURM_PROCID=9 SLURM_LOCALID=1 SLURM_STEP_NUM_TASKS=16",
            r#"{"rank":9,"rank_variable":"SLURM_PROCID","local_rank":1,"world_size":16,"slurm_cluster":"lab","slurm_job_id":"4243","slurm_array_job_id":"4242","slurm_array_task_id":"1","slurm_job_name":"llama"}"#,
        );
        check(
            "SLURM_JOB_ID=4242 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=16",
            r#"{"slurm_job_id":"4242"}"#,
        );
        // A rank of torchrun in a task of Slurm.
        check(
            "SLURM_JOB_ID=4242 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 RANK=8 LOCAL_RANK=0 WORLD_SIZE=16 LOCAL_WORLD_SIZE=8",
            r#"{"rank":8,"local_rank":0,"world_size":16,"local_world_size":8,"slurm_job_id":"4242"}"#,
        );
    }

    #[test]
    fn an_environment_without_a_job_costs_nothing() {
        for environ in [
            "",
            "HOME=/root",
            "RANK= MASTER_ADDR=",
            "LOCAL_RANK=1",
            "SLURM_CLUSTER_NAME=lab",
        ] {
            assert_eq!(facts(environ), None, "{environ}");
        }
        check(
            "RANK=-1 MASTER_PORT=http MASTER_ADDR=gpu-01",
            r#"{"master_address":"gpu-01"}"#,
        );
    }
}
