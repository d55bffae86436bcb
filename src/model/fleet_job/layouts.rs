//! Random layouts of jobs on several hosts: in none of them are two jobs joined that have a rank on
//! two hosts.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::test_runner::TestRng;

use super::tests::{fleet, torch, with_rank};
use super::*;
use crate::model::Fleet;
use crate::protocol::snapshot::{DistributedFacts, Process, Snapshot, example};

/// Returns one of these values.
fn one_of<T: Clone>(values: &[T], random: &mut TestRng) -> T {
    values[random.random_range(0..values.len())].clone()
}

fn chance(one_in: u32, random: &mut TestRng) -> bool {
    random.random_range(0..one_in) == 0
}

/// The ranks of one start on one host, and its user. There are few values, so that many starts have
/// most of them in common.
fn start(host: u32, random: &mut TestRng) -> (&'static str, Vec<DistributedFacts>) {
    let per_host = one_of(&[1, 2, 2, 4], random);
    // Where torchrun is started without a word about other hosts, each host is the first one.
    let is_plain = chance(3, random);
    let group = if is_plain || chance(4, random) {
        0
    } else {
        host
    };
    let world_size = per_host
        * if is_plain {
            1
        } else {
            one_of(&[1, 2, 4], random)
        };
    let addresses: &[&str] = if is_plain {
        &["127.0.0.1", "localhost", "gpu-0"]
    } else {
        &["gpu-0", "gpu-0", "gpu-1", "127.0.0.1"]
    };
    let mut first = torch(0);
    first.world_size = Some(world_size).filter(|_| !chance(10, random));
    first.local_world_size = Some(per_host).filter(|_| !chance(10, random));
    first.group_rank = Some(group).filter(|_| !chance(4, random));
    first.master_address = Some(one_of(addresses, random).into()).filter(|_| !chance(10, random));
    first.master_port = Some(one_of(&[29500, 29500, 29501], random));
    first.restart_count = one_of(&[Some(0), Some(0), Some(1), None], random);
    match random.random_range(0..6) {
        0 | 1 => {
            first.rank_variable = Some("OMPI_COMM_WORLD_RANK".into());
            first.mpi_namespace = Some(one_of(&["77", "78"], random).into());
        }
        2 => {
            first.rank_variable = Some("SLURM_PROCID".into());
            (first.local_world_size, first.group_rank) = (None, None);
        }
        _ => {}
    }
    let is_task = first
        .rank_variable
        .as_ref()
        .is_some_and(|name| name.as_str() == "SLURM_PROCID");
    if is_task || chance(3, random) {
        first.slurm_job_id = Some(one_of(&["4242", "4243"], random).into());
        first.slurm_cluster = one_of(&[Some("lab".into()), Some("lab".into()), None], random);
        if chance(3, random) {
            first.slurm_array_job_id = Some("4242".into());
            first.slurm_array_task_id = Some(one_of(&["1", "2"], random).into());
        }
    }
    let ranks = (0..per_host).map(|local| DistributedFacts {
        rank: Some(group * per_host + local),
        local_rank: Some(local),
        ..first.clone()
    });
    (one_of(&["alice", "alice", "bob"], random), ranks.collect())
}

/// A host with some starts, their children, leftovers of earlier starts, and containers.
fn host(number: u32, random: &mut TestRng) -> Snapshot {
    let mut snapshot = example::host(4);
    let mut pid = 1000;
    for _ in 0..random.random_range(1..4) {
        let (user, ranks) = start(number, random);
        let container = chance(5, random);
        let run = one_of(&["none", "none", "mine"], random);
        let session = pid;
        for facts in ranks {
            let mut copies = vec![(facts.clone(), false)];
            if chance(3, random) {
                copies.push((facts.clone(), true));
            }
            if chance(6, random) {
                let restart_count = facts.restart_count.and_then(|count| count.checked_sub(1));
                copies.push((
                    DistributedFacts {
                        restart_count,
                        ..facts
                    },
                    false,
                ));
            }
            let first = pid;
            for (facts, is_child) in copies {
                snapshot = with_rank(snapshot, pid, facts);
                let added = snapshot
                    .processes
                    .iter_mut()
                    .find(|process| process.id.pid == pid);
                let changed = added.expect("it was just added").facts_mut();
                changed.user = Ok(user.into());
                changed.uid = Ok(if user == "bob" { 1001 } else { 1000 });
                changed.session = Ok(session);
                if changed.elastic_run.is_ok() {
                    changed.elastic_run = Ok(run.into());
                }
                if is_child {
                    (changed.parent, changed.forked) = (Ok(first), Ok(true));
                }
                if container && changed.origin.is_err() {
                    changed.origin = Ok("docker 3f2a91c0d1e2".into());
                }
                pid += 1;
            }
        }
    }
    snapshot
}

fn layouts() -> impl Strategy<Value = Vec<Snapshot>> {
    Just(()).prop_perturb(|(), mut random| {
        let hosts = random.random_range(2..5);
        (0..hosts).map(|number| host(number, &mut random)).collect()
    })
}

fn process(fleet: &Fleet, id: HostProcess) -> &Process {
    fleet.process(id).expect("a member is a process").1
}

/// A rank, its host, and its count of starts.
type SeenRank = (u32, HostKey, Option<u32>);

/// The ranks of a job that run, by the environment of its members.
fn ranks_by_environment(fleet: &Fleet, job: &FleetJob) -> BTreeSet<SeenRank> {
    // A child of a rank that is left over has its environment, and is left over with it.
    let is_left = |id: &HostProcess| {
        let parent = process(fleet, *id).facts.parent;
        let parts = job.parts.iter().filter(|part| part.host == id.host);
        let mut left_over = parts.flat_map(|part| &part.left_over);
        left_over.any(|left| *left == id.process || Ok(left.pid) == parent)
    };
    let of_member = |id: HostProcess| {
        let facts = process(fleet, id).facts.distributed.clone()?;
        let source = facts
            .rank_variable
            .as_ref()
            .map_or(0, |name| match name.as_str() {
                "SLURM_PROCID" => 2,
                _ => 1,
            });
        Some((source, (facts.rank?, id.host, facts.restart_count)))
    };
    let members = job.members().filter(|id| !is_left(id));
    let found: Vec<(u8, SeenRank)> = members.filter_map(of_member).collect();
    let best = found.iter().map(|(source, _)| *source).min();
    let of_best = found
        .into_iter()
        .filter(|(source, _)| Some(*source) == best);
    of_best.map(|(_, rank)| rank).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn no_jobs_are_joined_that_have_a_rank_on_two_hosts(hosts in layouts()) {
        let fleet = fleet(hosts);
        let mut job_of: BTreeMap<HostProcess, usize> = BTreeMap::new();
        for (place, job) in fleet.jobs().iter().enumerate() {
            let mut host_of: BTreeMap<(u32, Option<u32>), HostKey> = BTreeMap::new();
            for (rank, host, restarts) in ranks_by_environment(&fleet, job) {
                let other = host_of.insert((rank, restarts), host);
                prop_assert!(other.is_none_or(|other| other == host), "rank {rank}: {job:#?}");
            }
            let mut seen: Vec<u32> = job.ranks.iter().map(|rank| rank.rank).collect();
            seen.dedup();
            prop_assert_eq!(seen.len(), job.ranks.len(), "a rank is listed twice: {:#?}", job);
            for member in job.members() {
                prop_assert!(job_of.insert(member, place).is_none(), "in two jobs: {member:?}");
                let facts = &process(&fleet, member).facts;
                prop_assert_eq!(facts.user.as_ref().ok(), job.user.as_ref(), "{:#?}", job);
            }
        }
        for (host, model) in fleet.hosts() {
            for process in &model.latest().expect("it has sent a line").processes {
                let id = HostProcess { host, process: process.id };
                prop_assert!(job_of.contains_key(&id), "in no job: {process:?}");
            }
        }
        for job in fleet.jobs().iter().filter(|job| job.hosts().len() > 1) {
            for member in job.members() {
                let facts = &process(&fleet, member).facts;
                let distributed = facts.distributed.as_deref().expect("every process has ranks");
                match &job.key.mark {
                    JobMark::Slurm { job: number, cluster, .. } => {
                        prop_assert_eq!(distributed.slurm_job_id.as_ref(), Some(number));
                        prop_assert_eq!(&distributed.slurm_cluster, cluster);
                    }
                    JobMark::Torch { address, port, world_size, .. } => {
                        prop_assert_eq!(distributed.master_address.as_ref(), Some(address));
                        prop_assert_eq!(distributed.master_port, Some(*port));
                        prop_assert!(distributed.local_world_size < Some(*world_size));
                        prop_assert!(!["127.0.0.1", "localhost"].contains(&address.as_str()));
                    }
                    JobMark::Mpi { namespace, .. } => {
                        prop_assert_eq!(distributed.mpi_namespace.as_ref(), Some(namespace));
                    }
                    mark => prop_assert!(false, "joined by {mark:?}"),
                }
            }
        }
    }
}
