//! Passes alerts to the user outside of the screen: to the program of `--on-alert`, and as the
//! terminal's bell.

use tokio::sync::mpsc::UnboundedSender;

use super::SessionInput;
use crate::app::event::Alert;
use crate::base::text::Text;
use crate::notify::AlertProgram;

/// Passes alerts to the user's program, and knows whether they ring the terminal's bell.
#[derive(Debug)]
pub(super) struct Notifier {
    pub(super) rings_bell: bool,
    program: AlertProgram,
    inputs: UnboundedSender<SessionInput>,
}

impl Notifier {
    pub(super) fn new(
        command: &[String],
        rings_bell: bool,
        inputs: UnboundedSender<SessionInput>,
    ) -> Self {
        Self {
            rings_bell,
            program: AlertProgram::new(command.to_vec()),
            inputs,
        }
    }

    /// Starts the program, if there is one. A failure of it arrives as a
    /// [`SessionInput::AlertProgramFailed`].
    ///
    /// # Errors
    ///
    /// When the program cannot be started, or too many still run: one sentence.
    pub(super) fn notify(&self, alert: &Alert) -> Result<(), Text> {
        let inputs = self.inputs.clone();
        let report = move |problem| {
            let _session_over = inputs.send(SessionInput::AlertProgramFailed(problem));
        };
        self.program.run(
            alert.kind.into(),
            &alert.sentence,
            alert.facts.iter().cloned(),
            report,
        )
    }
}
