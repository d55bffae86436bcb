//! A sentence to the user that disappears after a while.

use std::time::Duration;

use crate::base::time::ViewerTime;

/// How long a notice stays.
const LIFETIME: ViewerTime = ViewerTime::new(Duration::from_secs(5));

/// The current notice, if any, and the time until it disappears.
#[derive(Debug, Default)]
pub(crate) struct Notice(Option<(String, ViewerTime)>);

impl Notice {
    pub(crate) fn text(&self) -> Option<&str> {
        self.0.as_ref().map(|(text, _)| text.as_str())
    }

    /// Shows this notice in place of the current one.
    pub(super) fn set(&mut self, text: impl Into<String>) {
        self.0 = Some((text.into(), LIFETIME));
    }

    /// Lets this much time pass. The notice disappears when its time is over.
    pub(super) fn pass(&mut self, elapsed: ViewerTime) {
        self.0 = self.0.take().and_then(|(text, left)| Some((text, left.left_after(elapsed)?)));
    }
}
