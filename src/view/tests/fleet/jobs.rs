//! The page of a job over eight hosts, and the way there.

use super::*;
use crate::base::units::Hertz;
use crate::protocol::snapshot::{DistributedFacts, Throttle};

/// A job of Slurm with 64 ranks on eight hosts, all alike, after a while.
pub(super) fn training(size: (u16, u16)) -> Lab {
    let mut lab = Lab::new(&names(8, 2), size);
    for rank in 0..64 {
        let (host, gpu) = (rank as usize / 8, rank as usize % 8);
        let pid = 4000 + rank;
        lab.run(host, pid, "alice", &[gpu], Bytes::from_gib(59));
        let processes = &mut lab.hosts[host].processes;
        let process = processes.iter_mut().find(|process| process.id.pid == pid);
        let facts = process.expect("it was just added").facts_mut();
        facts.origin = Ok("slurm 4242".into());
        (facts.elastic_run, facts.uid) = (Ok("none".into()), Ok(1000));
        facts.parent = Ok(1_000_000 + pid);
        facts.distributed = Some(Box::new(DistributedFacts {
            rank: Some(rank),
            local_rank: Some(rank % 8),
            world_size: Some(64),
            local_world_size: Some(8),
            group_rank: Some(rank / 8),
            master_address: Some("gpu-01".into()),
            master_port: Some(29500),
            slurm_cluster: Some("lab".into()),
            slurm_job_id: Some("4242".into()),
            slurm_job_name: Some("llama".into()),
            ..DistributedFacts::default()
        }));
    }
    for host in &mut lab.hosts {
        for gpu in &mut host.gpus {
            gpu.load.sm_clock = Ok(Hertz::from_mhz(1830));
            gpu.health.pcie_width = Ok(16);
        }
    }
    for _ in 0..10 {
        lab.pass(2, &[]);
    }
    lab
}

/// Lets time pass in which rank 21 takes 60 MiB a second.
fn leak(lab: &mut Lab, seconds: u64) {
    for _ in 0..seconds / 2 {
        let gpu = &mut lab.hosts[2].gpus[5];
        let held = gpu.processes[0].memory.expect("it is known");
        gpu.processes[0].memory = Ok(Bytes(held.0 + (120 << 20)));
        gpu.load.memory_used = gpu.processes[0].memory;
        lab.pass(2, &[]);
    }
}

/// Ends the process of a rank.
pub(super) fn end(lab: &mut Lab, rank: u32) {
    let host = &mut lab.hosts[rank as usize / 8];
    host.processes
        .retain(|process| process.id.pid != 4000 + rank);
    let gpu = &mut host.gpus[rank as usize % 8];
    gpu.processes.clear();
    (gpu.load.memory_used, gpu.load.sm) = (Ok(Bytes(0)), Ok(Percent::new(0.0)));
}

/// Lets the temperature slow the GPU of a rank down.
fn heat(lab: &mut Lab, rank: u32) {
    let gpu = &mut lab.hosts[rank as usize / 8].gpus[rank as usize % 8];
    gpu.load.sm_clock = Ok(Hertz::from_mhz(1200));
    gpu.load.throttle = Ok(vec![Throttle::HardwareThermal]);
}

/// Rank 37 is hot, rank 42 has ended, and rank 21 leaks, all of that for less than three minutes.
fn three_odd_ranks(size: (u16, u16)) -> Lab {
    let mut lab = training(size);
    heat(&mut lab, 37);
    lab.pass(2, &[]);
    end(&mut lab, 42);
    leak(&mut lab, 170);
    lab
}

#[test]
fn the_missing_the_leaking_and_the_throttled_rank_stand_first_within_three_minutes() {
    let mut lab = three_odd_ranks((120, 40));
    let jobs = lab.line("JOBS");
    assert!(
        jobs.contains("slurm 4242 llama  alice  64 ranks on 8 hosts, 63 seen, rank 42 is missing"),
        "{jobs}"
    );
    lab.press(&[KeyCode::Char('J'), KeyCode::Enter]);
    let text = lab.lines().join("\n");
    let places = [
        "42 gpu-06:2  missing since 12:04 (gpu-06 answers)",
        "21 gpu-03:5  LEAK +3.5 GiB/min, the other 62: 0; full 12:",
        "37 gpu-05:5  candidate for a straggler: 1.20GHz (median 1.83GHz), thermal throttling since 12:04",
    ]
    .map(|line| text.find(line).unwrap_or_else(|| panic!("{line}:\n{text}")));
    assert!(places.is_sorted(), "{text}");
    let grid = text.find("gpu-01  0").expect("a grid");
    assert!(places[2] < grid, "{text}");
}

#[test]
fn the_page_of_a_job_fits_each_screen() {
    for (width, height) in [(80, 24), (120, 40), (200, 60)] {
        let mut lab = three_odd_ranks((width, height));
        lab.press(&[KeyCode::Char('J'), KeyCode::Enter]);
        screens::check(&format!("job_{width}x{height}"), &lab.app, width, height);
    }
}

#[test]
fn a_rank_is_missing_only_while_all_hosts_answer() {
    let mut lab = three_odd_ranks((120, 40));
    lab.press(&[KeyCode::Char('J'), KeyCode::Enter]);
    for _ in 0..5 {
        lab.pass(2, &[6]);
    }
    let text = lab.lines().join("\n");
    assert!(!text.contains("missing since"), "{text}");
    assert!(
        text.contains("gpu-07") && text.contains("does not answer: its 8 ranks are unknown"),
        "{text}"
    );
    assert!(
        text.contains("64 ranks on 8 hosts, 55 seen, gpu-07 does not answer"),
        "{text}"
    );
}

#[test]
fn no_rank_differs_while_all_are_alike() {
    let mut lab = training((120, 40));
    // All ranks wait for one that loads data: its GPU is idle, and that alone is no sign.
    for _ in 0..50 {
        lab.hosts[3].gpus[2].load.sm = Ok(Percent::new(0.0));
        lab.pass(2, &[]);
    }
    lab.press(&[KeyCode::Char('J'), KeyCode::Enter]);
    let text = lab.lines().join("\n");
    assert!(text.contains("no rank differs from the others"), "{text}");
}

#[test]
fn a_rank_is_no_candidate_before_a_minute_nor_when_most_ranks_are_slow() {
    let mut lab = training((120, 40));
    heat(&mut lab, 37);
    for _ in 0..29 {
        lab.pass(2, &[]);
    }
    lab.press(&[KeyCode::Char('J'), KeyCode::Enter]);
    assert!(!lab.lines().join("\n").contains("candidate"));
    lab.pass(2, &[]);
    lab.pass(2, &[]);
    let text = lab.lines().join("\n");
    assert!(text.contains("37 gpu-05:5  candidate"), "{text}");
    (0..64).for_each(|rank| heat(&mut lab, rank));
    lab.pass(2, &[]);
    let text = lab.lines().join("\n");
    assert!(!text.contains("candidate"), "{text}");
}

#[test]
fn arrows_choose_a_rank_and_enter_opens_its_process() {
    let mut lab = three_odd_ranks((120, 40));
    lab.press(&[KeyCode::Char('J'), KeyCode::Enter]);
    assert!(lab.line("rank 42").contains("does not run"));
    // To the next rank that differs, and from there to its neighbours.
    lab.press(&[KeyCode::Tab]);
    let line = lab.line("rank 21 gpu-03:5");
    assert!(line.contains("4021 train.py"), "{line}");
    lab.press(&[KeyCode::Right]);
    lab.line("rank 22 gpu-03:6");
    lab.press(&[KeyCode::Left, KeyCode::Left]);
    lab.line("rank 20 gpu-03:4");
    lab.press(&[KeyCode::Up, KeyCode::Enter]);
    let text = lab.lines().join("\n");
    assert!(text.contains("Process 40"), "{text}");
    lab.press(&[KeyCode::Esc]);
    assert!(lab.lines().join("\n").contains("Job slurm 4242 llama"));
    lab.press(&[KeyCode::Esc]);
    lab.line("JOBS");
}

#[test]
fn the_lists_and_the_page_of_a_process_lead_to_its_job() {
    let mut lab = training((120, 40));
    lab.press(&[KeyCode::Char('f'), KeyCode::Char('J')]);
    assert!(lab.lines().join("\n").contains("Job slurm 4242 llama"));
    lab.press(&[KeyCode::Enter, KeyCode::Char('J')]);
    let text = lab.lines().join("\n");
    assert!(text.contains("Job slurm 4242 llama"), "{text}");
}

#[test]
fn the_page_of_a_job_that_has_ended_keeps_its_last_figures() {
    let mut lab = training((120, 40));
    lab.press(&[KeyCode::Char('J'), KeyCode::Enter]);
    // The hosts end one after the other.
    (0..32).for_each(|rank| end(&mut lab, rank));
    lab.pass(2, &[]);
    let text = lab.lines().join("\n");
    assert!(text.contains("64 ranks on 8 hosts, 32 seen"), "{text}");
    (32..64).for_each(|rank| end(&mut lab, rank));
    lab.pass(2, &[]);
    lab.pass(60, &[]);
    let text = lab.lines().join("\n");
    let head = "No rank runs any more: seen at 12:04:24. The figures below were read at 12:04:20.";
    assert!(text.contains(head), "{text}");
    assert!(
        text.contains("for 16m20s  64 ranks on 8 hosts") && text.contains("59.0G"),
        "{text}"
    );
}

#[test]
fn a_process_that_outlives_all_ranks_is_said_to_be_left() {
    let mut lab = training((120, 40));
    let facts = lab.hosts[2].processes[0].facts.clone();
    lab.run(2, 9000, "alice", &[5], Bytes::from_gib(3));
    let mut processes = lab.hosts[2].processes.iter_mut();
    let worker = processes
        .find(|process| process.id.pid == 9000)
        .expect("it was just added");
    worker.facts = facts;
    let distributed = worker.facts_mut().distributed.as_mut();
    distributed.expect("it is of the job").rank = None;
    lab.pass(2, &[]);
    lab.press(&[KeyCode::Char('J'), KeyCode::Enter]);
    for rank in 0..64 {
        end(&mut lab, rank);
    }
    lab.run(2, 9000, "alice", &[5], Bytes::from_gib(3));
    lab.pass(2, &[]);
    let text = lab.lines().join("\n");
    for words in [
        "no rank runs, 1 process left on gpu-03",
        "gpu-03  1 process left after the end of all ranks (PID 9000)",
    ] {
        assert!(text.contains(words), "{words}:\n{text}");
    }
    assert!(!text.contains("no rank differs"), "{text}");
}
