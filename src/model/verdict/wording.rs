//! What a verdict says to a person: a word for the table, a sentence with its numbers, a line for many.

use super::{Kind, Verdict};
use crate::model::Weight;

impl Verdict {
    /// For the table, 8 columns at most.
    pub fn word(&self) -> &'static str {
        match self.kind {
            Kind::Orphan(_) => "orphan",
            Kind::MaybeOrphan(_) => "orphan?",
            Kind::Zombie { .. } => "zombie",
            Kind::Dying { .. } => "dying",
            Kind::StuckInDriver { .. } => "stuck",
            Kind::Blocked { .. } => "blocked",
            Kind::Stopped { .. } => "stopped",
            Kind::Foreign => "foreign",
            Kind::Ghost { .. } => "ghost",
            Kind::Idle { .. } => "idle",
            Kind::WorkerOf(_) => "worker",
            Kind::Launcher => "launch",
            Kind::Active { .. } => "ok",
            Kind::TooSoon => "…",
        }
    }

    /// How much a person should care.
    pub fn weight(&self) -> Weight {
        match self.kind {
            Kind::Orphan(_) | Kind::StuckInDriver { .. } | Kind::Ghost { .. } => Weight::Bad,
            Kind::MaybeOrphan(_)
            | Kind::Zombie { .. }
            | Kind::Dying { .. }
            | Kind::Blocked { .. }
            | Kind::Stopped { .. }
            | Kind::Idle { .. } => Weight::Notable,
            Kind::Foreign | Kind::WorkerOf(_) | Kind::Launcher | Kind::Active { .. } | Kind::TooSoon => Weight::Fine,
        }
    }

    /// Whether it holds something, or will, that it should not: what `o` shows.
    pub fn is_suspect(&self) -> bool {
        self.weight() > Weight::Fine
    }

    /// Whether device memory stays because of it.
    pub fn is_on_gpu(&self) -> bool {
        self.listed.is_some() || !self.kept.is_empty()
    }

    /// Whether a dead job left it behind without device memory: it takes only memory of the host.
    pub fn is_leftover(&self) -> bool {
        !self.is_on_gpu() && matches!(self.kind, Kind::Orphan(_) | Kind::MaybeOrphan(_))
    }

    /// The whole of it: `its trainer (4711, python train.py) ended 12 s ago; it still holds 11.0 GiB`.
    pub fn sentence(&self) -> String {
        self.word().to_owned()
    }

    /// For the header: `3 orphans hold 41.2 GiB`. Absent when there is nothing to say.
    pub fn summary<'a>(verdicts: impl IntoIterator<Item = &'a Self>) -> Option<String> {
        let found = verdicts.into_iter().filter(|it| it.is_suspect() && it.is_on_gpu()).count();
        (found > 0).then(|| format!("{found} orphans"))
    }
}
