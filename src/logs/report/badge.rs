//! Badges: a few words on a background that says how bad something is, as on the screen.

use maud::{Markup, html};

use crate::model::Severity;

/// The words of a badge, and how bad the condition is that they name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PageBadge {
    pub(super) severity: Severity,
    pub(super) text: String,
}

impl PageBadge {
    pub(super) fn draw(&self) -> Markup {
        html! { span.badge.(class(self.severity)) { (self.text) } }
    }
}

/// Returns the class of a severity.
pub(super) fn class(severity: Severity) -> &'static str {
    match severity {
        Severity::Bad => "bad",
        Severity::Notable => "notable",
        Severity::Fine | Severity::Unknown => "fine",
    }
}
