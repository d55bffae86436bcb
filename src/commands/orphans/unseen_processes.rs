//! The processes that `gputop orphans` could not see or judge.

use std::time::Duration;

use crate::model::{Verdict, VerdictKind};
use crate::protocol::snapshot::{ArgvDelay, Missing, Process, State};

/// The processes that were asked for, and that could not be seen or judged, by the reason.
#[derive(Default)]
pub(super) struct UnseenProcesses<'a> {
    /// The driver lists the PID, and `/proc` does not.
    hidden: Vec<&'a Verdict>,
    /// The state or parent of the process could not be read, or its arguments wait behind others
    /// that hang.
    unreadable: Vec<&'a Verdict>,
    /// One more reading may show that the process is stuck: it waits in the kernel.
    waiting: Vec<&'a Verdict>,
    /// One more reading may show that the process is an orphan, or has ended.
    undecided: Vec<&'a Verdict>,
    /// The arguments hang.
    hung: Vec<&'a Verdict>,
}

impl<'a> UnseenProcesses<'a> {
    /// `is_all`: everything was read that was waited for.
    pub(super) fn add(&mut self, verdict: &'a Verdict, process: &Process, is_all: bool) {
        /// The process has been read again within this time.
        const LASTS: Duration = Duration::from_millis(750);
        let (is_foreign, is_ghost) = (
            matches!(verdict.kind, VerdictKind::Foreign { .. }),
            matches!(verdict.kind, VerdictKind::Ghost { .. }),
        );
        let has_ended = process.load.state == Err(Missing::Gone);
        let is_unreadable = (process.load.state.is_err() || process.facts.parent.is_err())
            && !is_foreign
            && !is_ghost
            && !has_ended;
        let waits = process.load.state == Ok(State::DiskSleep);
        let is_undecided = verdict.undecided_for.is_some_and(|span| {
            // A process that began to wait or ended just now is an everyday sight.
            let is_new = span < LASTS && (waits || has_ended || verdict.is_suspect());
            !is_new || !is_all
        });
        let delay = process.facts.argv_delay;
        for (list, is_member) in [
            (&mut self.hidden, is_foreign),
            (
                &mut self.unreadable,
                is_unreadable || delay == Some(ArgvDelay::NoReader),
            ),
            (&mut self.waiting, is_undecided && waits),
            (&mut self.undecided, is_undecided && !waits),
            (&mut self.hung, delay == Some(ArgvDelay::Hung)),
        ] {
            list.extend(is_member.then_some(verdict));
        }
    }

    /// The lists, each with its name in JSON and the words after the PIDs of one process or of
    /// several.
    pub(super) fn lists(&self) -> [(&'static str, &[&'a Verdict], [&'static str; 2]); 5] {
        const HIDDEN: [&str; 2] = [
            "is on a GPU, and not visible here",
            "are on a GPU, and not visible here",
        ];
        const UNREADABLE: [&str; 2] = ["could not be read", "could not be read"];
        const WAITS: [&str; 2] = [
            "waits in the kernel: `--watch 12s` tells whether for long",
            "wait in the kernel: `--watch 12s` tells whether for long",
        ];
        const UNDECIDED: [&str; 2] = [
            "could not be judged yet: look once more",
            "could not be judged yet: look once more",
        ];
        const HUNG: [&str; 2] = [
            "has arguments that hang in the kernel",
            "have arguments that hang in the kernel",
        ];
        [
            ("hidden", &self.hidden, HIDDEN),
            ("unreadable", &self.unreadable, UNREADABLE),
            ("undecided", &self.waiting, WAITS),
            ("undecided", &self.undecided, UNDECIDED),
            ("hung", &self.hung, HUNG),
        ]
    }

    /// Whether one of the processes is on a GPU.
    pub(super) fn is_any_on_gpu(&self) -> bool {
        self.lists()
            .iter()
            .any(|(_, verdicts, _)| verdicts.iter().any(|verdict| verdict.is_on_gpu()))
    }

    /// Returns a sentence for each list that has a process on a GPU.
    pub(super) fn sentences(&self) -> impl Iterator<Item = String> {
        const NAMED: usize = 8;
        self.lists()
            .into_iter()
            .filter_map(|(_, verdicts, [one, several])| {
                let on_gpu = verdicts.iter().filter(|verdict| verdict.is_on_gpu());
                let pids: Vec<String> = on_gpu
                    .map(|verdict| verdict.process.pid.to_string())
                    .collect();
                let more = match pids.len().saturating_sub(NAMED) {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                let words = if pids.len() == 1 { one } else { several };
                (!pids.is_empty())
                    .then(|| format!("{}{more} {words}", pids[..pids.len().min(NAMED)].join(", ")))
            })
    }
}
