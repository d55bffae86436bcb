//! Sudden falls: what they are called, and what they say of the growth before.

use super::{LeakDetector, seconds};
use crate::units::Moment;

/// KiB. A context alone takes more.
const NOTHING: u32 = 128 << 10;

/// KiB. A context takes less, of whatever GPU.
const CONTEXT: u32 = 768 << 10;

/// KiB.
const MUCH: u32 = 256 << 10;

/// A sudden fall of memory, and what it usually means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fall {
    /// It began anew: nothing was held, and then something was again.
    Restarted,
    /// Next to nothing is left: the process has lost its context, or is about to go.
    ContextGone,
    /// Much was given back, and much is still held.
    CacheEmptied,
}

impl LeakDetector {
    /// The last sudden fall, and when it was.
    pub fn fall(&self) -> Option<(Moment, Fall)> {
        self.fall
    }

    /// Names a sudden fall, and draws from it what it says of the growth before.
    pub(super) fn fell(&mut self, at: Moment, before: u32, now: u32) {
        if self.is_empty && now > self.beside.saturating_add(NOTHING) {
            // What was there before says nothing of what is there now.
            let fall = Some((at, Fall::Restarted));
            *self = Self { fall, interval: self.interval, first: Some(at), beside: self.beside, ..Self::default() };
            return;
        }
        if before <= now {
            return;
        }
        let fallen = before - now;
        if self.is_gone(before, now) && fallen > MUCH {
            self.beside = now;
            self.is_empty = true;
            self.fall = Some((at, Fall::ContextGone));
        } else if fallen > MUCH && fallen > before / 5 {
            self.fall = Some((at, Fall::CacheEmptied));
        }
        if let Some(watch) = &self.watch {
            // What was never given back is given back: it was garbage. A bump that ends is none of that.
            if f64::from(now) < watch.base {
                self.tooth = self.tooth.max(seconds(watch.since, at));
                self.paused = None;
                self.watch = None;
            }
        }
    }

    /// Whether so much less is held now that a process has lost all that it had.
    fn is_gone(&self, before: u32, now: u32) -> bool {
        // Of a GPU where others hold some, a job that leaked and ended leaves what was held before it came, or a context
        // less than when it was seen first. Garbage that is collected leaves what the job still needs.
        let others = self.beside.saturating_sub(CONTEXT)..self.beside.saturating_add(NOTHING);
        let leaked = self.watch.as_ref().is_some_and(|it| it.is_leak);
        now < NOTHING || leaked && now < before / 2 && others.contains(&now)
    }
}
