//! The replay of a recording: where it is, how fast it plays, and the user's way through it.
//!
//! A jump builds a second fleet, while the screen shows the one before. When the jump is done, the
//! second takes its place.

mod timeline;

use std::time::Duration;

use tui_input::Input;

pub(crate) use self::timeline::{Timeline, TimelineCell};
use crate::app::App;
use crate::app::event::Effect;
use crate::app::fleet::troubles::TroubleLog;
use crate::app::input::mode::Mode;
use crate::app::keys::steering::Steering;
use crate::base::text::Text;
use crate::model::OutlinePart;
use crate::model::RecordedClock;
use crate::protocol::change::OutOfStep;
use crate::protocol::host_key::HostKey;
use crate::protocol::line::Line;
use crate::protocol::playback::{PlayerCommand, PlayerReport, Speed};

const AT_END: &str = "the recording is at its end: J goes to another time";

const NOTHING_ACTS: &str = "nothing here acts on the machine";

/// A timeline of this width has room for words.
const WITH_WORDS: u16 = 120;

/// The texts around the bar of the timeline, and the place of the bar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TimelineBar {
    pub begin: String,
    pub end: String,
    /// The time of the replay, with seconds.
    pub position: String,
    pub words: &'static str,
    /// The first column of the bar on the screen.
    pub x: u16,
    pub width: usize,
}

/// The state of a replay.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Replay {
    pub is_paused: bool,
    pub speed: Speed,
    /// The time of the latest line, in milliseconds since 1970; `None` before the first line.
    pub at: Option<u64>,
    /// The target of the latest jump that was asked for; `None` when it is done or refused.
    target: Option<u64>,
    /// Whether a jump is under way.
    is_jumping: bool,
    /// The jump to an event that waits until the outline of the recording is known so far; `None`
    /// when none waits.
    waiting: Option<Steering>,
    /// Whether all lines were shown.
    has_ended: bool,
    pub timeline: Timeline,
    /// The problem if the recording could not be read to its end.
    problem: Option<Text>,
}

impl Replay {
    pub(in crate::app) fn new(speed: Speed) -> Self {
        Self {
            is_paused: false,
            speed,
            at: None,
            target: None,
            is_jumping: false,
            waiting: None,
            has_ended: false,
            timeline: Timeline::default(),
            problem: None,
        }
    }

    /// Asks for a jump.
    pub(in crate::app) fn jump(&mut self, target: u64) -> PlayerCommand {
        self.target = Some(target);
        PlayerCommand::Jump(target)
    }

    /// The time from which the next key goes on: keys may come faster than jumps are done.
    fn position(&self) -> Option<u64> {
        self.target.or(self.at)
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
    pub(in crate::app) fn is_paused(&self) -> bool {
        self.replay
            .as_ref()
            .map_or(self.data.paused().is_some(), |replay| replay.is_paused)
    }

    /// Whether lines lead to the time of a jump, and are not shown.
    pub(crate) fn is_jumping(&self) -> bool {
        self.replay.as_ref().is_some_and(|replay| replay.is_jumping)
    }

    /// Resumes the screen, or the replay.
    pub(in crate::app) fn resume(&mut self) -> Option<Effect> {
        if self.replay.is_some() {
            return self.steer(Steering::Pause);
        }
        self.data.resume();
        None
    }

    pub(in crate::app) fn recording_ended(&mut self, problem: Option<Text>) {
        if let Some(replay) = &mut self.replay {
            (replay.has_ended, replay.problem) = (true, problem);
        }
    }

    pub(in crate::app) fn recording_at(&mut self, unix_ms: u64) -> Option<Effect> {
        self.replay.as_mut()?.at = Some(unix_ms);
        None
    }

    /// Takes a line on the way of a jump.
    pub(in crate::app) fn take_line_of_jump(&mut self, host: HostKey, line: Line) {
        // Before its first full line, a host has no snapshot that a change could apply to.
        let _too_early: Result<(), OutOfStep> = self.data.live_mut().apply(host, line);
    }

    pub(in crate::app) fn take_report(&mut self, report: PlayerReport) -> Option<Effect> {
        match report {
            PlayerReport::At(unix_ms) => return self.recording_at(unix_ms),
            PlayerReport::JumpBegan => self.begin_jump(),
            PlayerReport::Jumped => self.end_jump(),
            PlayerReport::JumpRefused(reason) => {
                self.replay.as_mut()?.target = None;
                self.notice.set(reason.as_str());
            }
        }
        None
    }

    fn begin_jump(&mut self) {
        if let Some(replay) = &mut self.replay {
            (replay.is_jumping, replay.has_ended, replay.problem) = (true, false, None);
            self.data.begin_jump();
        }
    }

    /// Shows the fleet that the jump led to. What happened on the way is no alert.
    fn end_jump(&mut self) {
        let Some(replay) = &mut self.replay else {
            return;
        };
        (replay.is_jumping, replay.target) = (false, None);
        self.data.resume();
        self.lost.clear();
        self.alerts.restart(self.data.live_mut(), &self.options);
        self.last_look.restart(self.data.live());
        // The troubles before the jump have not ended.
        self.troubles = TroubleLog::default();
        self.graph.follow_present();
    }

    pub(in crate::app) fn take_outline(&mut self, part: OutlinePart) -> Option<Effect> {
        let replay = self.replay.as_mut()?;
        replay.timeline.add(part);
        let waiting = replay.waiting.take()?;
        self.steer(waiting)
    }

    /// The texts around the bar of the timeline, and its width; `None` while the span of the
    /// recording is not known.
    pub(crate) fn timeline_bar(&self) -> Option<TimelineBar> {
        let replay = self.replay.as_ref()?;
        let area = self.layout()?.timeline;
        let (begin, end) = replay.timeline.span?;
        let clock = RecordedClock::of_first_host(self.fleet());
        let words = if area.width >= WITH_WORDS {
            NOTHING_ACTS
        } else {
            "read-only"
        };
        let mut bar = TimelineBar {
            begin: clock.hour_and_minute(begin, end),
            end: clock.hour_and_minute(end, begin),
            position: replay.at.map_or_else(String::new, |at| clock.seconds(at)),
            words,
            x: 0,
            width: 0,
        };
        bar.x = area.x + u16::try_from(bar.begin.len()).ok()? + 1;
        let others =
            bar.begin.len() + 1 + 1 + bar.end.len() + 2 + bar.position.len() + 2 + words.len();
        bar.width = usize::from(area.width).checked_sub(others)?;
        Some(bar)
    }

    /// Jumps to a column of the timeline that was clicked.
    pub(in crate::app) fn click_timeline(&mut self, x: u16) -> Option<Effect> {
        let bar = self.timeline_bar()?;
        let column = usize::from(x.checked_sub(bar.x)?);
        let replay = self.replay.as_mut()?;
        let target = replay.timeline.target(column, bar.width)?;
        Some(Effect::Play(vec![replay.jump(target)]))
    }

    /// Carries out an intent of the keys of a replay.
    pub(in crate::app) fn steer(&mut self, steering: Steering) -> Option<Effect> {
        let replay = self.replay.as_mut()?;
        replay.waiting = None;
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
                if replay.is_paused {
                    PlayerCommand::Pause
                } else {
                    PlayerCommand::Resume
                }
            }
            Steering::Step(1..) => {
                replay.is_paused = true;
                PlayerCommand::Step
            }
            Steering::Step(_) => {
                replay.is_paused = true;
                // The latest line before this moment is that of the pass before.
                let before = replay.position()?.saturating_sub(1);
                return Some(Effect::Play(vec![
                    PlayerCommand::Pause,
                    replay.jump(before),
                ]));
            }
            Steering::Speed(by) => {
                replay.speed = if by > 0 {
                    replay.speed.faster()
                } else {
                    replay.speed.slower()
                };
                self.notice.set(format!("plays at {}", replay.speed));
                PlayerCommand::Speed(replay.speed)
            }
            Steering::JumpBy(minutes) => {
                let by = Duration::from_mins(minutes.unsigned_abs());
                let by = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
                let at = replay.position()?;
                replay.jump(if minutes < 0 {
                    at.saturating_sub(by)
                } else {
                    at.saturating_add(by)
                })
            }
            Steering::NextEvent(by) => return self.jump_to_event(steering, by, false),
            Steering::NextAlert => return self.jump_to_event(steering, 1, true),
            Steering::OpenJump => {
                self.modes.open(Mode::JumpTime(Input::default()));
                return None;
            }
            Steering::Jump => return self.jump_to_typed_time(),
        };
        Some(Effect::Play(vec![command]))
    }

    /// Jumps to the event that is next after this moment, or before it if `by` is negative.
    fn jump_to_event(&mut self, steering: Steering, by: isize, alerts: bool) -> Option<Effect> {
        let clock = RecordedClock::of_first_host(self.fleet());
        let replay = self.replay.as_mut()?;
        let noun = if alerts { "alert" } else { "event" };
        let side = if by > 0 { "after" } else { "before" };
        let at = replay.position()?;
        let next = replay.timeline.next_event(at, by, alerts);
        let is_known = if by > 0 {
            next.is_some()
        } else {
            replay.timeline.is_known_to(at)
        };
        if !is_known && !replay.timeline.is_complete {
            self.notice.set(format!(
                "looking for the {noun} {side} this moment: gputop still reads the recording"
            ));
            replay.waiting = Some(steering);
            return None;
        }
        let Some((event, target)) = next else {
            self.notice
                .set(format!("there is no {noun} {side} this moment"));
            return None;
        };
        self.notice.set(format!(
            "{} {}",
            clock.seconds(event.unix_ms),
            event.sentence
        ));
        Some(Effect::Play(vec![replay.jump(target)]))
    }

    /// Jumps to the time that the user typed. Says so if it is no time.
    fn jump_to_typed_time(&mut self) -> Option<Effect> {
        let at = self.replay.as_ref()?.position()?;
        let Some(Mode::JumpTime(input)) = self.modes.close() else {
            return None;
        };
        if input.value().trim().is_empty() {
            return None;
        }
        match RecordedClock::of_first_host(self.fleet()).parse(input.value(), at) {
            Ok(target) => Some(Effect::Play(vec![self.replay.as_mut()?.jump(target)])),
            Err(problem) => {
                self.notice.set(problem);
                None
            }
        }
    }
}
