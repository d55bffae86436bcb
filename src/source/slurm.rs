//! Jobs of Slurm: which nodes and GPUs a job has, and its cancellation. Slurm is asked on this host,
//! or on one that ssh reaches, with the script `assets/remote/slurm.sh`.

mod answer;
mod job_id;

use std::time::Duration;

use tokio::time::timeout;

use self::answer::SlurmAnswer;
pub use self::job_id::{SlurmJobId, SlurmTarget};
use super::ssh::script::SLURM;
use super::ssh::script_session::ScriptSession;
use super::ssh::{HostShell, SshHost, UsedMaster};
use super::ssh_messages;
use crate::protocol::slurm_job::SlurmJob;

/// How long Slurm may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The most lines of an answer. An array has a line for each of its tasks that runs.
const MOST_LINES: usize = 20_000;

/// A job that Slurm was asked for, and where.
#[derive(Debug, Clone)]
pub struct AskedJob {
    /// The commands of Slurm, where the question was asked.
    pub commands: SlurmCommands,
    /// The ID in the question.
    pub id: SlurmJobId,
    /// The answer at the start of gputop.
    pub job: SlurmJob,
}

/// The commands of Slurm, where they are: on this host, or on a login host.
#[derive(Debug, Clone)]
pub struct SlurmCommands {
    /// The login host; `None` for this host.
    login: Option<SshHost>,
}

impl SlurmCommands {
    /// Returns the commands on this host, or on a login host.
    pub(crate) fn new(login: Option<SshHost>) -> Self {
        Self { login }
    }

    /// Asks for a job that has nodes.
    ///
    /// # Errors
    ///
    /// One sentence: Slurm cannot be asked, there is no such job, or it has no nodes.
    pub(crate) async fn ask(&self, job: SlurmJobId, now: u64) -> Result<SlurmJob, String> {
        self.answer(job).await?.job(job, now)
    }

    /// Checks that a job may be cancelled from a dialog that names these hosts: it belongs to the user
    /// who would cancel it, and its nodes are these hosts and no others. Asks Slurm.
    ///
    /// # Errors
    ///
    /// One sentence: why it may not be cancelled.
    pub async fn check_cancel(
        &self,
        job: SlurmJobId,
        hosts: &[&str],
        now: u64,
    ) -> Result<SlurmJob, String> {
        let answer = self.answer(job).await?;
        let found = answer.job(job, now)?;
        answer.check_cancel(&found, hosts)?;
        Ok(found)
    }

    /// Runs `scancel` for a job, which [`Self::check_cancel`] has returned just before.
    ///
    /// # Errors
    ///
    /// One sentence: why the job was not cancelled.
    pub async fn cancel(&self, job: &SlurmJob) -> Result<(), String> {
        let id = job.id();
        let cancel = async { self.read_result(self.session("cancel", &id).await?).await };
        let failure = |why| format!("cannot cancel job {id}{}: {why}", self.place());
        match timeout(PATIENCE, cancel).await {
            Ok(result) => result.map_err(failure),
            Err(_) => Err(failure(format!(
                "no answer within {} s; it may be cancelled or not",
                PATIENCE.as_secs()
            ))),
        }
    }

    /// Asks for a job, and for the name of the user who asks.
    async fn answer(&self, job: SlurmJobId) -> Result<SlurmAnswer, String> {
        let failure = |why| format!("cannot ask Slurm for job {job}{}: {why}", self.place());
        let ask = async {
            self.read_answer(self.session("ask", &job.to_string()).await?)
                .await
        };
        match timeout(PATIENCE, ask).await {
            Ok(answer) => answer.map_err(failure),
            Err(_) => Err(failure(format!(
                "no answer within {} s",
                PATIENCE.as_secs()
            ))),
        }
    }

    /// Reads the result of `scancel`.
    async fn read_result(&self, mut session: ScriptSession) -> Result<(), String> {
        while let Some([kind, reason]) = session.answer().await? {
            match kind.as_str() {
                "cancelled" => return Ok(()),
                "refused" => return Err(reason.to_string()),
                "lacks" => return Err("there is no squeue".to_owned()),
                _ => {}
            }
        }
        Err(self.why_it_ended(session).await)
    }

    /// Reads what `squeue` and `scontrol` say.
    async fn read_answer(&self, mut session: ScriptSession) -> Result<SlurmAnswer, String> {
        let mut answer = SlurmAnswer::default();
        for _ in 0..MOST_LINES {
            let Some(fields) = session.answer().await? else {
                return Err(self.why_it_ended(session).await);
            };
            if answer.take(fields)? {
                return Ok(answer);
            }
        }
        Err(format!("the answer has more than {MOST_LINES} lines"))
    }

    /// Starts the script.
    async fn session(&self, verb: &str, job: &str) -> Result<ScriptSession, String> {
        let shell = match &self.login {
            None => HostShell::of_this_host(),
            Some(host) => {
                let master = host.route().await.own_master;
                let master = master.map_or(UsedMaster::Configured, UsedMaster::Own);
                host.shell(&master, true)
            }
        };
        ScriptSession::start(shell, SLURM, &[verb, job])
    }

    /// Says why a session ended before its last line.
    async fn why_it_ended(&self, mut session: ScriptSession) -> String {
        let lines = session.last_lines().await;
        let host = self.login.as_ref().map(SshHost::host_name);
        let host = host.unwrap_or_default();
        match ssh_messages::reason(host.as_str(), &lines, false) {
            Some((words, _)) => words.to_string(),
            None => "the answer is incomplete".to_owned(),
        }
    }

    /// Names the login host in a sentence; empty for this host.
    fn place(&self) -> String {
        match &self.login {
            None => String::new(),
            Some(host) => format!(" on {}", host.host_name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use tempfile::TempDir;

    use super::*;
    use crate::source::tests::run;

    /// A folder with stand-ins for the commands of Slurm.
    fn stand_ins(programs: &[(&str, &str)]) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, script) in programs {
            let path = folder.path().join(name);
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
        }
        folder
    }

    fn session(folder: &TempDir, verb: &str, job: &str) -> ScriptSession {
        let mut shell = Command::new("sh");
        shell.arg("-c").env_clear();
        let path = format!("{}:/usr/bin:/bin", folder.path().display());
        shell.env("PATH", path);
        ScriptSession::start(HostShell::from(shell), SLURM, &[verb, job]).unwrap()
    }

    /// The options of `squeue` that print a line; the text before the fields is the marker.
    const SQUEUE: &str = r#"echo "squeue: a warning" >&2
while [ "$1" != -o ]; do [ "$1" = -j ] && job=$2; shift; done
[ "$job" = 4242_3 ] || { echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; }
printf "%s4300\\t4242\\t3\\t%s\\tRUNNING\\t1-00:00:00\\tgpu-[1-2]\\tNone\\ta\\tname\\n" "${2%%%A*}" "$(id -un)""#;

    #[test]
    fn a_job_is_asked_for_with_its_gpus_and_the_user_who_asks_may_cancel_it() {
        let scontrol = "echo \"JobId=4300 ArrayJobId=4242 ArrayTaskId=3 JobName=a\"; \
                        echo \"   Nodes=gpu-[1-2] CPU_IDs=0 Mem=0 GRES=gpu:2(IDX:0,7)\"";
        let folder = stand_ins(&[("squeue", SQUEUE), ("scontrol", scontrol)]);
        let answer = run(async {
            let commands = SlurmCommands::new(None);
            commands
                .read_answer(session(&folder, "ask", "4242_3"))
                .await
        });
        let answer = answer.unwrap();
        let job = answer.job("4242_3".parse().unwrap(), 7).unwrap();
        assert_eq!((job.id().as_str(), job.number), ("4242_3", 4300));
        assert_eq!(job.gpus(), Some(4));
        assert_eq!(answer.check_cancel(&job, &["gpu-2", "gpu-1"]), Ok(()));
    }

    #[test]
    fn what_slurm_refuses_is_told_in_its_words() {
        let scancel = "[ \"$1\" = 7 ] || { echo \"scancel: error: Kill job error on job id $1: Access/permission denied\" >&2; exit 1; }";
        let folder = stand_ins(&[("squeue", SQUEUE), ("scancel", scancel)]);
        run(async {
            let commands = SlurmCommands::new(None);
            let why = commands.read_answer(session(&folder, "ask", "9")).await;
            assert_eq!(
                why.unwrap_err(),
                "there is no such job, or it ended a while ago"
            );
            let cancelled = commands.read_result(session(&folder, "cancel", "7")).await;
            assert_eq!(cancelled, Ok(()));
            let why = commands.read_result(session(&folder, "cancel", "8")).await;
            assert_eq!(
                why.unwrap_err(),
                "scancel: error: Kill job error on job id 8: Access/permission denied"
            );
        });
    }
}
