//! Decides when the next frame is drawn.

use std::time::Duration;

use tokio::time::Instant;

/// Whether the screen shows the state of the app.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ScreenState {
    UpToDate,
    /// The app changed by itself.
    Outdated,
    /// The user acted and waits for the result.
    Awaited,
}

/// Spaces frames out: ten a second on average, while a few frames in a row may answer the user at
/// once.
#[derive(Debug)]
pub(super) struct FramePacer {
    /// When the next frame is due if frames come at the average distance.
    pub(super) next: Instant,
}

impl FramePacer {
    pub(super) const FRAME: Duration = Duration::from_millis(100);

    /// Frames that may be drawn ahead of the average to answer the user.
    const AHEAD_FOR_USER: u32 = 4;

    /// Frames that may be drawn ahead of the average for lines, which may come in pairs, as the
    /// first ones do.
    const AHEAD_FOR_LINES: u32 = 1;

    pub(super) fn due(&self, screen: ScreenState) -> Instant {
        let frames = if screen == ScreenState::Awaited {
            Self::AHEAD_FOR_USER
        } else {
            Self::AHEAD_FOR_LINES
        };
        let ahead = frames * Self::FRAME;
        self.next.checked_sub(ahead).unwrap_or(self.next)
    }

    pub(super) fn note_frame(&mut self, now: Instant) {
        self.next = self.next.max(now) + Self::FRAME;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_drawn_at_once_and_the_average_stays_at_ten_frames_a_second() {
        let start = Instant::now();
        let mut pacer = FramePacer { next: start };
        let mut now = start;
        let mut frames = 0;
        while now < start + Duration::from_secs(10) {
            now = now.max(pacer.due(ScreenState::Awaited));
            pacer.note_frame(now);
            frames += 1;
        }
        assert!((100..=105).contains(&frames), "{frames}");

        // Frames for the lines of a fast agent leave room for the answer to a key.
        let mut pacer = FramePacer { next: now };
        for _ in 0..20 {
            now = now.max(pacer.due(ScreenState::Outdated));
            pacer.note_frame(now);
        }
        assert_eq!(
            pacer.due(ScreenState::Awaited),
            pacer.due(ScreenState::Outdated) - 3 * FramePacer::FRAME
        );
    }
}
