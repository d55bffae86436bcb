//! Pausing: the screen shows a copy of the model, while lines go to the live one.

use std::time::Duration;

use crate::model::HostModel;

/// The model on the screen and the live model. Both are one until the user pauses the screen.
#[derive(Debug, Default)]
pub(super) struct Pausable {
    shown: HostModel,
    /// While paused: the live model, and the time since the pause began.
    live: Option<(Box<HostModel>, Duration)>,
}

impl Pausable {
    /// The model on the screen.
    pub(super) fn shown(&self) -> &HostModel {
        &self.shown
    }

    pub(super) fn shown_mut(&mut self) -> &mut HostModel {
        &mut self.shown
    }

    /// The model that lines go to.
    pub(super) fn live(&self) -> &HostModel {
        self.live.as_ref().map_or(&self.shown, |(model, _)| model)
    }

    pub(super) fn live_mut(&mut self) -> &mut HostModel {
        self.live.as_mut().map_or(&mut self.shown, |(model, _)| model)
    }

    /// The time since the pause began; `None` while the screen is live.
    pub(super) fn paused(&self) -> Option<Duration> {
        self.live.as_ref().map(|(_, paused)| *paused)
    }

    /// Advances the live model's clock. The paused screen stands still.
    pub(super) fn pass(&mut self, elapsed: Duration) {
        self.live_mut().pass(elapsed);
        if let Some((_, paused)) = &mut self.live {
            *paused += elapsed;
        }
    }

    pub(super) fn pause(&mut self) {
        if self.live.is_none() {
            self.live = Some((Box::new(self.shown.clone()), Duration::ZERO));
        }
    }

    pub(super) fn resume(&mut self) {
        if let Some((model, _)) = self.live.take() {
            self.shown = *model;
        }
    }
}
