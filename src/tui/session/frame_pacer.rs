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

/// Spaces frames out: ten a second on average, and four where a fleet sends lines all the time. A
/// few frames in a row may answer the user at once.
#[derive(Debug)]
pub(super) struct FramePacer {
    /// When the next frame is due if frames come at the average distance.
    pub(super) next: Instant,
    /// The earliest time of a frame that only shows new lines.
    next_for_lines: Instant,
    /// The shortest time between two frames, if the second only shows new lines.
    between_lines: Duration,
}

impl FramePacer {
    const FRAME: Duration = Duration::from_millis(100);

    /// The shortest time between two frames for the lines of a fleet.
    const FRAME_OF_FLEET: Duration = Duration::from_millis(250);

    /// The fewest hosts of a fleet.
    const FLEET: usize = 3;

    /// Frames that may be drawn ahead of the average to answer the user.
    const AHEAD_FOR_USER: u32 = 4;

    /// Frames that may be drawn ahead of the average for lines, which may come in pairs, as the
    /// first ones do.
    const AHEAD_FOR_LINES: u32 = 1;

    /// Returns the pacer for this many hosts. Without an answer to the user, the first frame is due
    /// at `first`.
    pub(super) fn new(hosts: usize, first: Instant) -> Self {
        Self {
            next: first + Self::AHEAD_FOR_LINES * Self::FRAME,
            next_for_lines: first,
            between_lines: if hosts < Self::FLEET {
                Duration::ZERO
            } else {
                Self::FRAME_OF_FLEET
            },
        }
    }

    pub(super) fn due(&self, screen: ScreenState) -> Instant {
        let ahead = |frames: u32| {
            self.next
                .checked_sub(frames * Self::FRAME)
                .unwrap_or(self.next)
        };
        if screen == ScreenState::Awaited {
            ahead(Self::AHEAD_FOR_USER)
        } else {
            ahead(Self::AHEAD_FOR_LINES).max(self.next_for_lines)
        }
    }

    pub(super) fn note_frame(&mut self, now: Instant) {
        self.next = self.next.max(now) + Self::FRAME;
        self.next_for_lines = now + self.between_lines;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_drawn_at_once_and_the_average_stays_at_ten_frames_a_second() {
        let start = Instant::now();
        let mut pacer = FramePacer::new(1, start);
        let mut now = start;
        let mut frames = 0;
        while now < start + Duration::from_secs(10) {
            now = now.max(pacer.due(ScreenState::Awaited));
            pacer.note_frame(now);
            frames += 1;
        }
        assert!((100..=105).contains(&frames), "{frames}");

        // Frames for the lines of a fast agent leave room for the answer to a key.
        let mut pacer = FramePacer::new(1, now);
        for _ in 0..20 {
            now = now.max(pacer.due(ScreenState::Outdated));
            pacer.note_frame(now);
        }
        assert_eq!(
            pacer.due(ScreenState::Awaited),
            pacer.due(ScreenState::Outdated) - 3 * FramePacer::FRAME
        );
    }

    #[test]
    fn lines_of_a_fleet_are_drawn_four_times_a_second_and_keys_at_once() {
        let start = Instant::now();
        let mut pacer = FramePacer::new(3, start);
        let mut now = start;
        let mut frames = 0;
        while now < start + Duration::from_secs(10) {
            now = now.max(pacer.due(ScreenState::Outdated));
            pacer.note_frame(now);
            frames += 1;
        }
        assert!((40..=42).contains(&frames), "{frames}");
        assert!(pacer.due(ScreenState::Awaited) <= now);
    }
}
