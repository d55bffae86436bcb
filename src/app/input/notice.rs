//! A sentence to the user that disappears after a while, or with the next key.

use std::time::Duration;

use crate::base::time::ViewerTime;

const LIFETIME: ViewerTime = ViewerTime::new(Duration::from_secs(5));

/// The current notice, if any, and the time until it disappears.
#[derive(Debug, Default)]
pub(crate) struct Notice(Option<(String, ViewerTime)>);

impl Notice {
    pub(crate) fn text(&self) -> Option<&str> {
        self.0.as_ref().map(|(text, _)| text.as_str())
    }

    pub(in crate::app) fn set(&mut self, text: impl Into<String>) {
        self.0 = Some((text.into(), LIFETIME));
    }

    pub(in crate::app) fn clear(&mut self) {
        self.0 = None;
    }

    pub(in crate::app) fn advance(&mut self, elapsed: ViewerTime) {
        self.0 = self
            .0
            .take()
            .and_then(|(text, left)| Some((text, left.left_after(elapsed)?)));
    }
}
