//! A recording: a file of lines as `gputop agent` or `gputop --json -l` print them, plain or in
//! zstd frames, and its older parts FILE.1, FILE.2 and so on.

mod blank_lines;
mod folder;
mod frame;
mod frame_writer;
#[cfg(test)]
mod hostile_tests;
mod line_head;
mod line_parser;
mod part;
mod part_times;
mod player;
#[cfg(test)]
mod player_tests;
mod reader;
#[cfg(test)]
mod reader_tests;
mod torn_end;
mod writer;
#[cfg(test)]
mod writer_tests;

use std::io::{self, Read};
use std::path::PathBuf;
use std::process::Stdio;

use rustix::event::{PollFd, PollFlags, Timespec};

use self::player::{Player, Reader, ReaderCommand};
pub use self::reader::RecordingReader;
#[cfg(any(test, fuzzing))]
pub(crate) use self::reader::read_bytes;
pub use self::writer::{FrameStart, RecordingLimits, RecordingWriter};
use super::connection::{Connection, Reporter};
use crate::base::detach::short_lived_gputop;
use crate::base::text::Text;
use crate::protocol::playback::Speed;

/// How long to wait for the first bytes of a file, so that a file that cannot be read is an error
/// before the screen.
const PATIENCE: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// A file of lines, and the speed of its replay.
#[derive(Debug, Clone)]
pub struct Recording {
    /// The path of the file; `-` is the standard input.
    pub path: PathBuf,
    /// How fast the file is replayed.
    pub speed: Speed,
    /// Whether to begin at the last checkpoints: the end of a long recording then comes at once.
    pub from_end: bool,
}

impl Recording {
    /// Starts the replay. Returns an error when the file cannot be read.
    pub(super) fn connect(&self, reporter: Reporter) -> io::Result<Connection> {
        // The file may be on a file system that hangs, so a process reads it that can be left
        // behind.
        let path = if self.is_stdin() {
            PathBuf::from("/dev/stdin")
        } else {
            self.path.clone()
        };
        let is_stdin = self.is_stdin();
        let reader_command = move |from: Option<u64>| {
            let mut command = short_lived_gputop();
            command.args(["file-action", "play"]);
            if let Some(from) = from {
                command.arg("--from").arg(from.to_string());
            }
            command.arg("--").arg(&path);
            if !is_stdin {
                command.stdin(Stdio::null());
            }
            command
        };
        self.play(Box::new(reader_command), reporter)
    }

    /// Replays the lines that a command prints.
    fn play(&self, reader_command: ReaderCommand, reporter: Reporter) -> io::Result<Connection> {
        let (process, stdout, mut stderr) =
            player::start(&mut reader_command(self.from_end.then_some(u64::MAX)))?;
        let mut output = [PollFd::new(&stdout, PollFlags::IN)];
        // The writer of the standard input may be slow.
        let is_slow = self.is_stdin() || rustix::event::poll(&mut output, Some(&PATIENCE))? == 0;
        if !is_slow && !output[0].revents().contains(PollFlags::IN) {
            let mut reason = String::new();
            (&mut stderr)
                .take(Text::LIMIT as u64)
                .read_to_string(&mut reason)?;
            if !reason.is_empty() {
                return Err(io::Error::other(
                    reason.trim_end().trim_start_matches("gputop: ").to_owned(),
                ));
            }
        }
        let cannot_jump = self
            .is_stdin()
            .then_some("a recording from the standard input cannot jump");
        let reader = Reader::new(process, stdout, stderr)?;
        Ok(Connection::to_player(reporter.connection, |commands| {
            Player::new(
                reader_command,
                reader,
                cannot_jump,
                self.speed,
                commands,
                reporter,
            )
            .run()
        }))
    }

    /// Whether the recording comes from the standard input.
    pub fn is_stdin(&self) -> bool {
        self.path.as_os_str() == "-"
    }
}
