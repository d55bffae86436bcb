//! `srun`: an agent as a step of a job of Slurm, where no ssh reaches a node, or where only the job
//! sees its GPUs.

use std::process::Command;

use super::host_name::HostName;
use crate::protocol::slurm_job::SlurmJob;

/// How a step of a job is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SrunStep {
    /// The host on which `srun` runs; `None` for this host.
    pub(super) login: Option<HostName>,
    /// The number of the job.
    job: u32,
}

/// Variables of Slurm that stay when `srun` starts: where Slurm is. The others belong to the job or step
/// in which gputop itself may run, and would be options of the new step.
const KEPT_VARIABLES: [&str; 2] = ["SLURM_CONF", "SLURM_CLUSTERS"];

impl SrunStep {
    /// Returns the way to start steps of a job, where Slurm was asked.
    pub(crate) fn new(login: Option<HostName>, job: &SlurmJob) -> Self {
        let job = job.number;
        Self { login, job }
    }

    /// Returns the words that start a program on a node. A step shares the CPUs and GPUs of the job's
    /// other steps, and counts no memory as its own. `gets_gpus` is false where Slurm refuses such a
    /// step: then it is given no GPU.
    pub(super) fn words(&self, node: &HostName, gets_gpus: bool) -> Vec<String> {
        let mut words = vec!["srun".to_owned(), "--overlap".to_owned()];
        words.push(format!("--jobid={}", self.job));
        words.extend(["-N1", "-n1", "--mem=0", "-w"].map(str::to_owned));
        words.push(node.to_string());
        if !gets_gpus {
            words.push("--gres=gpu:0".to_owned());
        }
        words
    }
}

/// Returns the shell of this host, whose command runs `srun`. A program in the folder of this gputop
/// is found on a node, where that folder is there too.
pub(super) fn local_shell() -> Command {
    let mut command = Command::new("sh");
    command.arg("-c");
    for (name, _) in std::env::vars_os() {
        let Some(name) = name.to_str() else { continue };
        let is_option = ["SLURM_", "SRUN_", "SLURMD_"]
            .iter()
            .any(|prefix| name.starts_with(prefix));
        if is_option && !KEPT_VARIABLES.contains(&name) {
            command.env_remove(name);
        }
    }
    let own_folder = std::env::current_exe().ok();
    let own_folder = own_folder.as_ref().and_then(|path| path.parent());
    if let (Some(path), Some(folder)) = (std::env::var_os("PATH"), own_folder) {
        let folders = std::env::split_paths(&path).chain([folder.to_owned()]);
        if let Ok(path) = std::env::join_paths(folders) {
            command.env("PATH", path);
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_overlaps_with_the_others_and_has_gpus_unless_slurm_refuses() {
        let step = SrunStep {
            login: None,
            job: 4242,
        };
        let node = "gpu-01".parse().unwrap();
        assert_eq!(
            step.words(&node, true).join(" "),
            "srun --overlap --jobid=4242 -N1 -n1 --mem=0 -w gpu-01"
        );
        assert_eq!(
            step.words(&node, false).join(" "),
            "srun --overlap --jobid=4242 -N1 -n1 --mem=0 -w gpu-01 --gres=gpu:0"
        );
    }
}
