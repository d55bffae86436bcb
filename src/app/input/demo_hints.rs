//! The hints of `--demo`: five things to try first. A hint vanishes when the user has done it.

use crate::app::App;
use crate::app::keys::keymap::Intent;
use crate::app::page::PageTopic;

/// The hints in their order: what the key does, and the words for it.
const HINTS: [(Intent, &str); 5] = [
    (Intent::Detail, "look inside train.py, which leaks"),
    (Intent::Suspects, "the orphans"),
    (
        Intent::OpenEndDialog,
        "end one, and see its memory come back",
    ),
    (Intent::Graph, "its graph over the whole screen"),
    (Intent::Help, "all keys"),
];

/// Which hints the user has done.
#[derive(Debug, Default)]
pub(in crate::app) struct DemoHints {
    done: [bool; HINTS.len()],
}

/// A hint that is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DemoHint {
    /// Its number, from 1. It stays when earlier hints go.
    pub number: usize,
    pub intent: Intent,
    pub words: &'static str,
}

impl App {
    /// Notes which hints are done now.
    pub(in crate::app) fn update_demo_hints(&mut self) {
        let topic = self.modes.page().map(|page| &page.topic);
        let now = [
            matches!(topic, Some(PageTopic::Process(_))),
            self.processes.view.only_suspects,
            self.modes
                .end_dialog()
                .is_some_and(|dialog| dialog.first_sent.is_some()),
            self.modes.graph().is_some(),
            matches!(topic, Some(PageTopic::Help)),
        ];
        for (done, now) in self.demo_hints.done.iter_mut().zip(now) {
            *done |= now;
        }
    }

    /// Returns the hints that are left, in their order; none without `--demo`.
    pub(super) fn demo_hints_left(&self) -> impl Iterator<Item = DemoHint> {
        let hints = HINTS.iter().zip(self.demo_hints.done).zip(1..);
        hints
            .filter(|((_, is_done), _)| self.options.has_demo_hints && !is_done)
            .map(|(((intent, words), _), number)| DemoHint {
                number,
                intent: *intent,
                words,
            })
    }
}
