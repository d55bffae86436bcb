//! Choosing and confirming, as the dialogs on one host and on several do it: the neighbour of a choice,
//! the plan that Enter carries out, and the number that is typed before.

use crossterm::event::KeyCode;

use super::Choice;
use crate::base::text::{Argv, Text};
use crate::protocol::host_key::HostKey;
use crate::protocol::snapshot::ProcessId;

/// Everything that decides about the effect of Enter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlannedEnd {
    hosts: Vec<PlannedOnHost>,
    /// Whether `scancel` is run instead.
    cancels: bool,
}

impl PlannedEnd {
    pub(super) fn on_host(plan: PlannedOnHost) -> Self {
        Self {
            hosts: vec![plan],
            cancels: false,
        }
    }

    /// Returns the plan for all of these hosts.
    pub(in crate::app::input) fn of(plans: impl IntoIterator<Item = Self>, cancels: bool) -> Self {
        let hosts = plans.into_iter().flat_map(|plan| plan.hosts).collect();
        Self { hosts, cancels }
    }
}

/// The effect of Enter on one host: whether a gentle end begins with the roots, and each target with
/// its arguments and its caution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedOnHost {
    pub(super) host: HostKey,
    pub(super) choice: Choice,
    pub(super) is_root_left: bool,
    pub(super) targets: Vec<(ProcessId, Option<Argv>, Option<Text>)>,
}

/// Types a key into a confirmation, which has only digits.
pub(in crate::app::input) fn type_digit(typed: &mut String, key: KeyCode) {
    match key {
        KeyCode::Char(digit) if digit.is_ascii_digit() && typed.len() < 10 => typed.push(digit),
        KeyCode::Backspace => _ = typed.pop(),
        _ => {}
    }
}

/// Returns the choice that lies `by` further down the list, or the last one on that way.
pub(in crate::app::input) fn neighbour<T: Copy + PartialEq>(
    choices: &[T],
    choice: T,
    by: isize,
) -> T {
    let place = choices.iter().position(|other| *other == choice);
    let place = place.unwrap_or(0).saturating_add_signed(by);
    choices
        .get(place)
        .or(choices.last())
        .copied()
        .unwrap_or(choice)
}
