//! A recording: a file of lines as `gputop agent` or `gputop --json -l` print them, plain or in zstd frames, and its older
//! parts FILE.1, FILE.2 and so on.

mod frame;
mod line_head;
mod part;
mod part_times;
pub(super) mod player;
mod reader;
#[cfg(test)]
mod reader_tests;

use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::str::FromStr;

use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::process::{ChildStderr, ChildStdout};

use self::player::Player;
pub use self::reader::RecordingReader;
use super::connection::{Connection, Reporter};
use super::detach::{detached_gputop, kill_with_this_thread};
use super::line_reader::LineReader;
use super::standard_error::StandardError;
use crate::base::text::Text;

/// How long to wait for the first bytes of a file, so that a file that cannot be read is an error before the screen.
const PATIENCE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// A file of lines, and the speed of its replay.
#[derive(Debug, Clone)]
pub struct Recording {
    /// The path of the file; `-` is the standard input.
    pub path: PathBuf,
    /// How fast the file is replayed.
    pub speed: Speed,
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

impl Recording {
    /// Starts the replay. Returns an error when the file cannot be read.
    pub(super) fn connect(&self, reporter: Reporter) -> io::Result<Connection> {
        // The file may be on a file system that hangs, so a process reads it that can be left behind.
        let mut command = detached_gputop();
        command.args(["file-action", "play", "--"]);
        if self.is_stdin() {
            command.arg("/dev/stdin");
        } else {
            command.arg(&self.path).stdin(Stdio::null());
        }
        self.play_output(kill_with_this_thread(&mut command), reporter)
    }

    /// Replays the standard output of a command.
    fn play_output(&self, command: &mut Command, reporter: Reporter) -> io::Result<Connection> {
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (Some(stdout), Some(mut stderr)) = (process.stdout.take(), process.stderr.take()) else {
            return Err(io::Error::other("a process was started without pipes"));
        };
        let mut output = [PollFd::new(&stdout, PollFlags::IN)];
        // The writer of the standard input may be slow.
        let is_slow = self.is_stdin() || rustix::event::poll(&mut output, Some(&PATIENCE))? == 0;
        if !is_slow && !output[0].revents().contains(PollFlags::IN) {
            let mut reason = String::new();
            (&mut stderr).take(Text::LIMIT as u64).read_to_string(&mut reason)?;
            if !reason.is_empty() {
                return Err(io::Error::other(reason.trim_end().trim_start_matches("gputop: ").to_owned()));
            }
        }
        let lines = LineReader::new(ChildStdout::from_std(stdout)?);
        let standard_error = StandardError::new(ChildStderr::from_std(stderr)?);
        let connection = reporter.connection;
        Ok(Connection::to_task(connection, Player::new(lines, standard_error, self.speed, reporter).run()))
    }

    fn is_stdin(&self) -> bool {
        self.path.as_os_str() == "-"
    }
}
