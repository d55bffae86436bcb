//! The ways to go through a recording.

/// The user's intent with a key of a replay. A negative direction is back, or slower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Steering {
    /// Pause, or play again.
    Pause,
    /// Go to the next pass, or to the one before.
    Step(isize),
    /// Change the speed by this many steps.
    Speed(isize),
    /// Jump this many minutes.
    JumpBy(i64),
    /// Jump this many events.
    NextEvent(isize),
    /// Jump to the next event that raised an alert.
    NextAlert,
    /// Type a time to jump to.
    OpenJump,
    /// Jump to the time that was typed.
    Jump,
}
