//! Asks Slurm for the job of `--slurm` again, and cancels a job, while the screen goes on.

use tokio::sync::mpsc::UnboundedSender;

use super::SessionInput;
use crate::base::text::Text;
use crate::files::local_time::unix_ms;
use crate::protocol::slurm_job::{SlurmCancel, SlurmCancelAnswer, SlurmJob};
use crate::source::{AskedJob, SlurmCommands};

/// Asks Slurm again. The answer is an input of the session.
pub(super) fn ask(asked: &AskedJob, inputs: UnboundedSender<SessionInput>) {
    let AskedJob { commands, id, .. } = asked.clone();
    tokio::spawn(async move {
        let answer = commands.ask(id, unix_ms()).await;
        // Nobody listens any more when gputop ends.
        let _ended = inputs.send(SessionInput::Slurm(answer.map_err(Text::from)));
    });
}

/// Asks whether the user may cancel a job from a dialog with these hosts. The answer is an input of
/// the session.
pub(super) fn ask_to_cancel(
    commands: &SlurmCommands,
    job: SlurmCancel,
    inputs: UnboundedSender<SessionInput>,
) {
    let commands = commands.clone();
    tokio::spawn(async move {
        let result = check(&commands, &job).await.map(drop);
        answer(job, false, result, &inputs);
    });
}

/// Asks that again, and cancels the job if the user may.
pub(super) fn cancel(
    commands: &SlurmCommands,
    job: SlurmCancel,
    inputs: UnboundedSender<SessionInput>,
) {
    let commands = commands.clone();
    tokio::spawn(async move {
        let result = match check(&commands, &job).await {
            Ok(job) => commands.cancel(&job).await,
            Err(why) => Err(why),
        };
        answer(job, true, result, &inputs);
    });
}

fn answer(
    question: SlurmCancel,
    has_run: bool,
    result: Result<(), String>,
    inputs: &UnboundedSender<SessionInput>,
) {
    let answer = SlurmCancelAnswer {
        question,
        has_run,
        result: result.map_err(Text::from),
    };
    // Nobody listens any more when gputop ends.
    let _ended = inputs.send(SessionInput::SlurmCancel(answer));
}

async fn check(commands: &SlurmCommands, job: &SlurmCancel) -> Result<SlurmJob, String> {
    let hosts: Vec<&str> = job.hosts.iter().map(String::as_str).collect();
    let id = job.job.parse()?;
    commands.check_cancel(id, &hosts, unix_ms()).await
}
