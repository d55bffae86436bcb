//! The commands that the viewer sends to the player of a recording, and the player's reports.

use std::str::FromStr;

use crate::base::text::Text;

/// A command to the player of a recording.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PlayerCommand {
    /// Send no more lines.
    Pause,
    /// Send lines again.
    Resume,
    /// Pause after the next pass of each host.
    Step,
    /// Play at this speed from now on.
    Speed(Speed),
    /// Continue at this time, in milliseconds since 1970 by the clock of the recorded hosts.
    Jump(u64),
}

/// A report of the player of a recording.
#[derive(Debug, Clone, PartialEq)]
pub enum PlayerReport {
    /// The recording is at this time, in milliseconds since 1970.
    At(u64),
    /// The recording jumps. The lines until [`Self::Jumped`] lead to the target, and the lines
    /// before no longer count.
    JumpBegan,
    /// The jump is done.
    Jumped,
    /// The recording stays where it is; the text says why it cannot jump.
    JumpRefused(Text),
}

/// How fast a recording is replayed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Speed {
    /// This many times the speed at which it was recorded.
    Times(f64),
    /// As fast as the lines can be read.
    Max,
}

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "max" {
            return Ok(Self::Max);
        }
        match text.strip_suffix('x').unwrap_or(text).parse() {
            Ok(times) if times > 0.0 && f64::is_finite(times) => Ok(Self::Times(times)),
            _ => Err("expected `max` or a number above 0, such as 1, 10 or 0.5".to_owned()),
        }
    }
}

impl Speed {
    /// The speeds that the user steps through, before [`Speed::Max`].
    const STEPS: [f64; 11] = [
        0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0,
    ];

    /// Returns the next higher speed that the user can choose.
    #[must_use]
    pub fn faster(self) -> Self {
        let Self::Times(times) = self else {
            return Self::Max;
        };
        Self::STEPS
            .into_iter()
            .find(|step| *step > times)
            .map_or(Self::Max, Self::Times)
    }

    /// Returns the next lower speed that the user can choose.
    #[must_use]
    pub fn slower(self) -> Self {
        let [slowest, .., fastest] = Self::STEPS;
        let Self::Times(times) = self else {
            return Self::Times(fastest);
        };
        Self::Times(
            Self::STEPS
                .into_iter()
                .rev()
                .find(|step| *step < times)
                .unwrap_or(slowest.min(times)),
        )
    }
}

impl std::fmt::Display for Speed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Times(times) => write!(f, "×{times}"),
            Self::Max => f.write_str("×max"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_a_number_or_max() {
        assert_eq!("max".parse(), Ok(Speed::Max));
        assert_eq!("10".parse(), Ok(Speed::Times(10.0)));
        assert_eq!("0.5x".parse(), Ok(Speed::Times(0.5)));
        for text in ["", "0", "-1", "inf", "nan", "fast"] {
            assert!(text.parse::<Speed>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_speeds_are_stepped_through_from_any_speed() {
        let shown = |speed: Speed| [speed.slower(), speed.faster()].map(|speed| speed.to_string());
        assert_eq!(shown(Speed::Times(1.0)), ["×0.5", "×2"]);
        assert_eq!(shown(Speed::Times(3.0)), ["×2", "×5"]);
        assert_eq!(shown(Speed::Times(1000.0)), ["×500", "×max"]);
        assert_eq!(shown(Speed::Max), ["×1000", "×max"]);
        assert_eq!(shown(Speed::Times(0.5)), ["×0.5", "×1"]);
        assert_eq!(shown(Speed::Times(0.1)), ["×0.1", "×0.5"]);
    }
}
