//! Pausing: the screen shows a copy of the fleet, while lines go to the live one.

use std::time::Duration;

use crate::base::time::ViewerTime;
use crate::model::Fleet;

/// The fleet on the screen and the live fleet. They are the same until the user pauses the screen.
#[derive(Debug, Default)]
pub(crate) struct Pausable {
    shown: Fleet,
    /// While paused, the live fleet and the time since the pause began; `None` otherwise.
    live: Option<(Box<Fleet>, ViewerTime)>,
}

impl Pausable {
    pub(super) fn new(fleet: Fleet) -> Self {
        Self {
            shown: fleet,
            live: None,
        }
    }

    pub(super) fn shown(&self) -> &Fleet {
        &self.shown
    }

    pub(super) fn live(&self) -> &Fleet {
        self.live.as_ref().map_or(&self.shown, |(fleet, _)| fleet)
    }

    pub(super) fn live_mut(&mut self) -> &mut Fleet {
        self.live
            .as_mut()
            .map_or(&mut self.shown, |(fleet, _)| fleet)
    }

    /// The time since the pause began; `None` while the screen is live.
    pub(crate) fn paused(&self) -> Option<Duration> {
        self.live.as_ref().map(|(_, paused)| paused.duration())
    }

    /// Lets viewer time pass for the live fleet, except in a replay, where no host is silent. The
    /// paused screen stands still.
    pub(super) fn advance(&mut self, elapsed: ViewerTime, is_recording: bool) {
        if !is_recording {
            self.live_mut().advance(elapsed);
        }
        if let Some((_, paused)) = &mut self.live {
            *paused += elapsed;
        }
    }

    pub(super) fn pause(&mut self) {
        if self.live.is_none() {
            self.live = Some((Box::new(self.shown.clone()), ViewerTime::ZERO));
        }
    }

    /// Begins a jump of a recording: lines go to a new fleet, until [`Self::resume`] shows it.
    pub(super) fn begin_jump(&mut self) {
        self.live = Some((Box::default(), ViewerTime::ZERO));
    }

    pub(super) fn resume(&mut self) {
        if let Some((fleet, _)) = self.live.take() {
            self.shown = *fleet;
        }
    }
}
