//! Asks Slurm for the job of `--slurm` again, while the screen goes on.

use tokio::sync::mpsc::UnboundedSender;

use super::SessionInput;
use crate::base::text::Text;
use crate::files::local_time::unix_ms;
use crate::source::AskedJob;

/// Asks Slurm again. The answer is an input of the session.
pub(super) fn ask(asked: &AskedJob, inputs: UnboundedSender<SessionInput>) {
    let AskedJob { commands, id, .. } = asked.clone();
    tokio::spawn(async move {
        let answer = commands.ask(id, unix_ms()).await;
        // Nobody listens any more when gputop ends.
        let _ended = inputs.send(SessionInput::Slurm(answer.map_err(Text::from)));
    });
}
