//! A host of which the agent sees only some GPUs: those of a job of Slurm, whose control group hides
//! the others, or those that the driver can still use.

use crate::protocol::snapshot::Snapshot;

/// Returns `sees 4 of 8 GPUs: the cgroup of job 4242`; `None` if the agent sees all GPUs, or if it is
/// not known how many there are.
pub(crate) fn sees_some(snapshot: &Snapshot) -> Option<String> {
    let facts = &snapshot.host.facts;
    let whole = snapshot
        .gpus
        .iter()
        .filter(|gpu| gpu.facts.parent.is_none());
    let (seen, all) = (whole.count(), facts.driver_gpus? as usize);
    // A driver in trouble lists none, and its trouble says why.
    if seen >= all || seen == 0 && snapshot.driver.trouble.is_some() {
        return None;
    }
    let noun = if all == 1 { "GPU" } else { "GPUs" };
    Some(match &facts.slurm_job {
        Some(job) => format!("sees {seen} of {all} {noun}: the cgroup of job {job}"),
        None => format!("sees {seen} of {all} {noun}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::snapshot::example;

    #[track_caller]
    fn check(seen: usize, all: Option<u32>, job: Option<&str>, words: Option<&str>) {
        let mut snapshot = example::host(1);
        let gpu = snapshot.gpus[0].clone();
        snapshot.gpus = vec![gpu; seen];
        snapshot.host.facts.driver_gpus = all;
        snapshot.host.facts.slurm_job = job.map(Into::into);
        assert_eq!(sees_some(&snapshot).as_deref(), words);
    }

    #[test]
    fn a_host_with_hidden_gpus_says_how_many_are_seen_and_why() {
        let words = "sees 4 of 8 GPUs: the cgroup of job 4242";
        check(4, Some(8), Some("4242"), Some(words));
        check(7, Some(8), None, Some("sees 7 of 8 GPUs"));
        check(
            0,
            Some(1),
            Some("7"),
            Some("sees 0 of 1 GPU: the cgroup of job 7"),
        );
        check(8, Some(8), Some("4242"), None);
        check(8, None, Some("4242"), None);
    }
}
