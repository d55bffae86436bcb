//! The replay of a recording: where it is, how fast it plays, and the user's way through it.
//!
//! A jump builds a second fleet, while the screen shows the one before. When the jump is done, the second takes its place.

mod typed_time;

use std::time::Duration;

use tui_input::Input;

pub(crate) use self::typed_time::RecordedClock;
use super::App;
use super::event::Effect;
use super::mode::Mode;
use super::steering::Steering;
use crate::base::text::Text;
use crate::protocol::change::OutOfStep;
use crate::protocol::host_key::HostKey;
use crate::protocol::line::Line;
use crate::protocol::playback::{PlayerCommand, PlayerReport, Speed};

const AT_END: &str = "the recording is at its end: J goes to another time";

/// The state of a replay.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Replay {
    pub is_paused: bool,
    pub speed: Speed,
    /// The time of the latest line, in milliseconds since 1970; `None` before the first line.
    pub at: Option<u64>,
    /// Whether a jump is under way.
    is_jumping: bool,
    /// Whether all lines were shown.
    has_ended: bool,
    /// The problem if the recording could not be read to its end.
    problem: Option<Text>,
}

impl Replay {
    pub(super) fn new(speed: Speed) -> Self {
        Self { is_paused: false, speed, at: None, is_jumping: false, has_ended: false, problem: None }
    }

    /// The words of the header.
    pub(crate) fn words(&self) -> String {
        match &self.problem {
            _ if self.is_jumping => "RECORDING jumping…".to_owned(),
            Some(problem) => format!("RECORDING (ended: {problem})"),
            None if self.has_ended => "RECORDING (ended)".to_owned(),
            None if self.is_paused => "RECORDING paused".to_owned(),
            None if self.speed == Speed::Times(1.0) => "RECORDING".to_owned(),
            None => format!("RECORDING {}", self.speed),
        }
    }
}

impl App {
    /// Whether the screen stands still because the user paused it, or the replay.
    pub(super) fn is_paused(&self) -> bool {
        self.replay.as_ref().map_or(self.data.paused().is_some(), |replay| replay.is_paused)
    }

    pub(super) fn is_jumping(&self) -> bool {
        self.replay.as_ref().is_some_and(|replay| replay.is_jumping)
    }

    /// Resumes the screen, or the replay.
    pub(super) fn resume(&mut self) -> Option<Effect> {
        if self.replay.is_some() {
            return self.steer(Steering::Pause);
        }
        self.data.resume();
        None
    }

    pub(super) fn recording_ended(&mut self, problem: Option<Text>) {
        if let Some(replay) = &mut self.replay {
            (replay.has_ended, replay.problem) = (true, problem);
        }
    }

    pub(super) fn recording_at(&mut self, unix_ms: u64) {
        if let Some(replay) = &mut self.replay {
            replay.at = Some(unix_ms);
        }
    }

    /// Takes a line on the way of a jump.
    pub(super) fn take_line_of_jump(&mut self, host: HostKey, line: Line) {
        // Before its first full line, a host has no snapshot that a change could apply to.
        let _too_early: Result<(), OutOfStep> = self.data.live_mut().apply(host, line);
    }

    pub(super) fn take_report(&mut self, report: PlayerReport) {
        match report {
            PlayerReport::At(unix_ms) => self.recording_at(unix_ms),
            PlayerReport::JumpBegan => self.begin_jump(),
            PlayerReport::Jumped => self.end_jump(),
            PlayerReport::JumpRefused(reason) => self.notice.set(reason.as_str()),
        }
    }

    fn begin_jump(&mut self) {
        if let Some(replay) = &mut self.replay {
            (replay.is_jumping, replay.has_ended, replay.problem) = (true, false, None);
            self.data.begin_jump();
        }
    }

    /// Shows the fleet that the jump led to. What happened on the way is no alert.
    fn end_jump(&mut self) {
        let Some(replay) = &mut self.replay else { return };
        replay.is_jumping = false;
        self.data.resume();
        self.lost.clear();
        self.alerts.restart(self.data.live_mut(), self.options.warn_before);
        self.last_look.restart(self.data.live());
        self.graph.follow_present();
    }

    /// Carries out an intent of the keys of a replay.
    pub(super) fn steer(&mut self, steering: Steering) -> Option<Effect> {
        let clock = RecordedClock::of(self.fleet());
        let Some(replay) = &mut self.replay else { return None };
        let command = match steering {
            Steering::Step(1..) if replay.has_ended => {
                self.notice.set(AT_END);
                return None;
            }
            Steering::Pause => {
                if replay.has_ended {
                    self.notice.set(AT_END);
                }
                replay.is_paused = !replay.is_paused;
                if replay.is_paused { PlayerCommand::Pause } else { PlayerCommand::Resume }
            }
            Steering::Step(1..) => {
                replay.is_paused = true;
                PlayerCommand::Step
            }
            Steering::Step(_) => {
                replay.is_paused = true;
                // The latest line before this moment is that of the pass before.
                let before = replay.at?.saturating_sub(1);
                return Some(Effect::Play(vec![PlayerCommand::Pause, PlayerCommand::Jump(before)]));
            }
            Steering::Speed(by) => {
                replay.speed = if by > 0 { replay.speed.faster() } else { replay.speed.slower() };
                self.notice.set(format!("plays at {}", replay.speed));
                PlayerCommand::Speed(replay.speed)
            }
            Steering::JumpBy(minutes) => {
                let by = Duration::from_mins(minutes.unsigned_abs());
                let by = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
                let at = replay.at?;
                PlayerCommand::Jump(if minutes < 0 { at.saturating_sub(by) } else { at.saturating_add(by) })
            }
            Steering::OpenJump => {
                self.modes.open(Mode::JumpTime(Input::default()));
                return None;
            }
            Steering::Jump => {
                let at = replay.at?;
                let Some(Mode::JumpTime(input)) = self.modes.close() else { return None };
                if input.value().trim().is_empty() {
                    return None;
                }
                match clock.parse(input.value(), at) {
                    Ok(target) => PlayerCommand::Jump(target),
                    Err(problem) => {
                        self.notice.set(problem);
                        return None;
                    }
                }
            }
        };
        Some(Effect::Play(vec![command]))
    }
}
