//! Jobs over hosts, each host as the lines of its agent show it.

use super::*;
use crate::base::units::Bytes;
use crate::model::Fleet;
use crate::protocol::line::Line;
use crate::protocol::snapshot::{DistributedFacts, Missing, Snapshot, example};

/// A rank of alice that torchrun started, by default on two hosts of eight ranks.
pub(super) fn torch(rank: u32) -> DistributedFacts {
    DistributedFacts {
        rank: Some(rank),
        local_rank: Some(rank % 8),
        world_size: Some(16),
        local_world_size: Some(8),
        group_rank: Some(rank / 8),
        master_address: Some("gpu-01".into()),
        master_port: Some(29500),
        restart_count: Some(0),
        ..DistributedFacts::default()
    }
}

/// Adds a process of alice with these facts to a snapshot, on the GPU of its local rank.
pub(super) fn with_rank(snapshot: Snapshot, pid: u32, facts: DistributedFacts) -> Snapshot {
    let gpus = snapshot.gpus.len();
    let gpu = facts.local_rank.map_or(0, |rank| rank as usize % gpus);
    let mut snapshot = snapshot.with(pid, "python train.py", gpu, Bytes::from_gib(10));
    let process = snapshot
        .processes
        .iter_mut()
        .find(|process| process.id.pid == pid);
    let process = process.expect("it was just added");
    let changed = process.facts_mut();
    changed.elastic_run = match facts.local_rank {
        Some(_) if facts.rank_variable.is_none() => Ok("none".into()),
        _ => Err(Missing::Unsupported),
    };
    if let Some(job) = &facts.slurm_job_id {
        changed.origin = Ok(format!("slurm {job}").into());
    }
    (changed.parent, changed.session) = (Ok(pid + 1_000_000), Ok(pid));
    changed.distributed = Some(Box::new(facts));
    snapshot
}

/// A host with these ranks as processes 100, 101 and so on.
fn host(ranks: impl IntoIterator<Item = DistributedFacts>) -> Snapshot {
    (100..)
        .zip(ranks)
        .fold(example::host(8), |snapshot, (pid, facts)| {
            with_rank(snapshot, pid, facts)
        })
}

pub(super) fn fleet(hosts: impl IntoIterator<Item = Snapshot>) -> Fleet {
    let mut fleet = Fleet::default();
    for (key, snapshot) in (0..).map(HostKey).zip(hosts) {
        let applied = fleet.apply(key, Line::Full(Box::new(snapshot)));
        applied.expect("a full line needs no line before it");
    }
    fleet.update_jobs();
    fleet
}

/// Returns each job as its title, its hosts and the number of its ranks: `slurm 4242 on 0,1: 16`.
fn jobs(fleet: &Fleet) -> Vec<String> {
    let job = |job: &FleetJob| {
        let hosts: Vec<String> = job.hosts().iter().map(|host| host.0.to_string()).collect();
        format!(
            "{} on {}: {}",
            job.key.mark.title(),
            hosts.join(","),
            job.ranks.len()
        )
    };
    fleet.jobs().iter().map(job).collect()
}

#[track_caller]
fn check(hosts: impl IntoIterator<Item = Snapshot>, expected: &[&str]) {
    let mut found = jobs(&fleet(hosts));
    found.sort();
    assert_eq!(found, expected);
}

fn slurm(facts: DistributedFacts) -> DistributedFacts {
    DistributedFacts {
        slurm_job_id: Some("4242".into()),
        slurm_cluster: Some("lab".into()),
        slurm_job_name: Some("llama".into()),
        ..facts
    }
}

#[test]
fn a_run_of_torchrun_on_two_hosts_is_one_job() {
    check(
        [host((0..8).map(torch)), host((8..16).map(torch))],
        &["torchrun on 0,1: 16"],
    );
}

#[test]
fn plain_torchruns_on_two_hosts_are_two_jobs() {
    for address in [
        "127.0.0.1",
        "localhost",
        "::1",
        "[::1]",
        "LOCALHOST.",
        "127.1",
        "0.0.0.0",
        "::",
        "0",
    ] {
        let plain = |rank| DistributedFacts {
            world_size: Some(8),
            group_rank: Some(0),
            master_address: Some(address.into()),
            ..torch(rank)
        };
        let both = || [host((0..8).map(plain)), host((0..8).map(plain))];
        check(both(), &["torchrun on 0: 8", "torchrun on 1: 8"]);
        // The address alone keeps them apart: also if a variable claims more ranks.
        let claims = |rank| DistributedFacts {
            master_address: Some(address.into()),
            ..torch(rank)
        };
        check(
            [host((0..8).map(claims)), host((8..16).map(claims))],
            &["torchrun on 0: 8", "torchrun on 1: 8"],
        );
    }
}

#[test]
fn each_mark_keeps_runs_apart() {
    type FactChange = fn(&mut DistributedFacts);
    let changes: [FactChange; 6] = [
        |facts| facts.master_port = Some(29501),
        |facts| facts.master_port = None,
        |facts| facts.master_address = Some("gpu-09".into()),
        |facts| facts.world_size = Some(24),
        |facts| facts.local_world_size = None,
        // The same ranks as on the first host.
        |facts| facts.rank = facts.rank.map(|rank| rank - 8),
    ];
    for change in changes {
        let other = |rank| {
            let mut facts = torch(rank);
            change(&mut facts);
            facts
        };
        check(
            [host((0..8).map(torch)), host((8..16).map(other))],
            &["torchrun on 0: 8", "torchrun on 1: 8"],
        );
    }
    let mut other = host((8..16).map(torch));
    for process in &mut other.processes {
        process.facts_mut().elastic_run = Ok("another".into());
    }
    check(
        [host((0..8).map(torch)), other],
        &["torchrun another on 1: 8", "torchrun on 0: 8"],
    );
    let mut other = host((8..16).map(torch));
    for process in &mut other.processes {
        let facts = process.facts_mut();
        (facts.user, facts.uid) = (Ok("bob".into()), Ok(1001));
    }
    check(
        [host((0..8).map(torch)), other],
        &["torchrun on 0: 8", "torchrun on 1: 8"],
    );
}

#[test]
fn a_job_of_slurm_is_one_job_by_its_number_and_cluster() {
    let rank = |rank| slurm(torch(rank));
    check(
        [host((0..8).map(rank)), host((8..16).map(rank))],
        &["slurm 4242 on 0,1: 16"],
    );
    let of_task = |task: &'static str| {
        move |rank| DistributedFacts {
            slurm_array_job_id: Some("4200".into()),
            slurm_array_task_id: Some(task.into()),
            ..slurm(torch(rank))
        }
    };
    check(
        [
            host((0..8).map(of_task("1"))),
            host((8..16).map(of_task("2"))),
        ],
        &["slurm 4200_1 on 0: 8", "slurm 4200_2 on 1: 8"],
    );
    let of_cluster = |rank| DistributedFacts {
        slurm_cluster: Some("other".into()),
        ..slurm(torch(rank))
    };
    check(
        [host((0..8).map(rank)), host((8..16).map(of_cluster))],
        &["slurm 4242 on 0: 8", "slurm 4242 on 1: 8"],
    );
    let fleet = fleet([host((0..8).map(rank)), host((8..16).map(rank))]);
    let job = &fleet.jobs()[0];
    assert_eq!(
        (job.name.as_str(), job.world_size, job.key.mark.slurm_id()),
        ("llama", Some(16), Some("4242".to_owned()))
    );
    let ranks: Vec<u32> = job.ranks.iter().map(|rank| rank.rank).collect();
    assert_eq!(ranks, (0..16).collect::<Vec<_>>());
}

#[test]
fn tasks_of_srun_have_the_ranks_of_slurm_unless_torchrun_starts_ranks_below_them() {
    let task = |rank| {
        slurm(DistributedFacts {
            rank_variable: Some("SLURM_PROCID".into()),
            local_world_size: None,
            group_rank: None,
            master_address: None,
            ..torch(rank)
        })
    };
    check(
        [host((0..8).map(task)), host((8..16).map(task))],
        &["slurm 4242 on 0,1: 16"],
    );
    // Task 1 is the torchrun of the second host.
    let with_agent = |task_rank, ranks: std::ops::Range<u32>| {
        let of_slurm = ranks.map(|rank| slurm(torch(rank)));
        let mut agent = task(task_rank);
        agent.world_size = Some(2);
        host(of_slurm.chain([agent]))
    };
    check(
        [with_agent(0, 0..8), with_agent(1, 8..16)],
        &["slurm 4242 on 0,1: 16"],
    );
}

#[test]
fn two_runs_in_one_job_of_slurm_are_apart_if_they_have_the_same_ranks() {
    let plain = |rank| {
        slurm(DistributedFacts {
            world_size: Some(8),
            master_address: Some("127.0.0.1".into()),
            ..torch(rank)
        })
    };
    check(
        [host((0..8).map(plain)), host((0..8).map(plain))],
        &["slurm 4242 on 0: 8", "slurm 4242 on 1: 8"],
    );
    let second = |rank| DistributedFacts {
        master_port: Some(29501),
        ..slurm(torch(rank))
    };
    let first = |rank| slurm(torch(rank));
    check(
        [
            host((0..8).map(first)),
            host((8..16).map(first)),
            host((0..8).map(second)),
            host((8..16).map(second)),
        ],
        &["slurm 4242 on 0,1: 16", "slurm 4242 on 2,3: 16"],
    );
}

#[test]
fn children_are_of_the_rank_that_they_inherit() {
    let mut first = host((0..8).map(torch));
    first = with_rank(first, 300, torch(3));
    let child = first
        .processes
        .iter_mut()
        .find(|process| process.id.pid == 300);
    let facts = child.expect("it was just added").facts_mut();
    (facts.parent, facts.forked) = (Ok(103), Ok(true));
    let fleet = fleet([first, host((8..16).map(torch))]);
    let job = &fleet.jobs()[0];
    assert_eq!(job.ranks.len(), 16);
    assert_eq!(job.ranks[3].process.pid, 103);
    assert_eq!(job.members().count(), 17);
}

#[test]
fn ranks_of_an_earlier_start_are_left_over() {
    let again = |rank| DistributedFacts {
        restart_count: Some(1),
        ..torch(rank)
    };
    // On one host.
    let both = host((0..8).map(again).chain([torch(3)]));
    let fleet = fleet([both, host((8..16).map(again))]);
    let job = &fleet.jobs()[0];
    assert_eq!((job.ranks.len(), job.ranks[3].process.pid), (16, 103));
    let left: Vec<u32> = job
        .parts
        .iter()
        .flat_map(|part| &part.left_over)
        .map(|id| id.pid)
        .collect();
    assert_eq!(left, [108]);
    // On another host, which torchrun has replaced. Hosts that live on may count less.
    let hosts = [
        host((0..8).map(torch)),
        host((8..16).map(torch)),
        host((8..16).map(again)),
    ];
    let fleet = self::fleet(hosts);
    let job = &fleet.jobs()[0];
    assert_eq!(jobs(&fleet), ["torchrun on 0,1,2: 16"]);
    let left: Vec<(HostKey, usize)> = job
        .parts
        .iter()
        .map(|part| (part.host, part.left_over.len()))
        .collect();
    assert_eq!(left, [(HostKey(0), 0), (HostKey(1), 8), (HostKey(2), 0)]);
}

#[test]
fn mpi_and_deepspeed_are_joined_by_their_own_marks() {
    let mpi = |namespace: &'static str| {
        move |rank| DistributedFacts {
            rank_variable: Some("OMPI_COMM_WORLD_RANK".into()),
            mpi_namespace: Some(namespace.into()),
            ..torch(rank)
        }
    };
    let one = mpi("prterun-gpu-01-77@1");
    check(
        [host((0..8).map(one)), host((8..16).map(one))],
        &["mpirun on 0,1: 16"],
    );
    check(
        [
            host((0..8).map(one)),
            host((8..16).map(mpi("prterun-gpu-02-9@1"))),
        ],
        &["mpirun on 0: 8", "mpirun on 1: 8"],
    );
    let without_run = |ranks| {
        let mut host = host(ranks);
        for process in &mut host.processes {
            process.facts_mut().elastic_run = Err(Missing::Unsupported);
            process.facts_mut().launcher = Ok("deepspeed".into());
        }
        host
    };
    let [first, second] = [0..8, 8..16].map(|ranks| without_run(ranks.map(torch as fn(u32) -> _)));
    check([first, second], &["deepspeed on 0,1: 16"]);
}

/// A host of a Ray cluster with this session, and two workers of this job.
fn ray_host(session: &str, job: &'static str) -> Snapshot {
    let raylet = format!("raylet --raylet_socket_name=/tmp/ray/{session}/sockets/raylet");
    let mut host = example::host(2).with(90, &raylet, 0, Bytes::from_mib(1));
    for (pid, gpu) in [(100, 0), (101, 1)] {
        host = host.with(pid, "ray::TrainWorker", gpu, Bytes::from_gib(20));
        let worker = host
            .processes
            .iter_mut()
            .find(|process| process.id.pid == pid);
        let facts = worker.expect("it was just added").facts_mut();
        facts.parent = Ok(90);
        facts.distributed = Some(Box::new(DistributedFacts {
            ray_job_id: Some(job.into()),
            ..DistributedFacts::default()
        }));
    }
    host
}

#[test]
fn workers_of_ray_are_one_job_by_the_session_of_their_raylet() {
    let [one, other] = [
        "session_2026-11-26_09-00-00_123456_789",
        "session_2026-11-26_09-00-00_123457_790",
    ];
    let job = "02000000";
    check(
        [ray_host(one, job), ray_host(one, job)],
        &["ray 02000000 on 0,1: 0"],
    );
    check(
        [
            ray_host(one, job),
            ray_host(other, job),
            ray_host(one, "03000000"),
        ],
        &[
            "ray 02000000 on 0: 0",
            "ray 02000000 on 1: 0",
            "ray 03000000 on 2: 0",
        ],
    );
}

#[test]
fn a_rank_is_missing_only_if_all_hosts_of_the_job_answer() {
    let all = || [host((0..8).map(torch)), host((8..16).map(torch))];
    let mut fleet = fleet(all());
    let [_, mut second] = all();
    second.sequence += 1;
    second.processes.remove(2);
    second.gpus[2].processes.clear();
    let applied = fleet.apply(HostKey(1), Line::Full(Box::new(second.clone())));
    applied.expect("a full line needs no line before it");
    fleet.update_jobs();
    let job = &fleet.jobs()[0];
    assert_eq!(job.missing(|host| host != HostKey(0)), None);
    let missing = job.missing(|_| true).expect("all hosts answer");
    let expected = MissingRank {
        rank: 10,
        host: Some(HostKey(1)),
        local_rank: Some(2),
        since: Some(second.at),
    };
    assert_eq!(missing, [expected]);
    // A viewer that starts later knows where the rank should be, but not since when it is missing.
    let [first, _] = all();
    let fleet = self::fleet([first, second]);
    let missing = fleet.jobs()[0].missing(|_| true).expect("all hosts answer");
    assert_eq!(
        missing,
        [MissingRank {
            since: None,
            ..expected
        }]
    );
    // A host that gputop does not watch has ranks that are not missing.
    let fleet = self::fleet([host((0..8).map(torch))]);
    assert_eq!(fleet.jobs()[0].missing(|_| true), Some(vec![]));
}
