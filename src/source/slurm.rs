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
        let cancel = async {
            let mut session = self.session("cancel", &id).await?;
            while let Some([kind, reason]) = session.answer().await? {
                match kind.as_str() {
                    "cancelled" => return Ok(()),
                    "refused" => return Err(reason.to_string()),
                    "lacks" => return Err("there is no squeue".to_owned()),
                    _ => {}
                }
            }
            Err(self.why_it_ended(session).await)
        };
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
        match timeout(PATIENCE, self.read_answer(job)).await {
            Ok(answer) => answer.map_err(failure),
            Err(_) => Err(failure(format!(
                "no answer within {} s",
                PATIENCE.as_secs()
            ))),
        }
    }

    async fn read_answer(&self, job: SlurmJobId) -> Result<SlurmAnswer, String> {
        let mut session = self.session("ask", &job.to_string()).await?;
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
