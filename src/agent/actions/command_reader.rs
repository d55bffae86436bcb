//! Splits the standard input into lines, and parses each as a command.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::io::Errno;

use crate::agent::{clock, print_error};
use crate::protocol::command::Command;

/// Reads commands, and keeps the beginning of a line that is not complete yet.
pub(in crate::agent) struct CommandReader<'a> {
    pub(super) input: BorrowedFd<'a>,
    line: Vec<u8>,
    /// Whether the beginning of the line was dropped, since it is too long for a command.
    is_overlong: bool,
    errors_left: u32,
    /// How long the viewer may be silent; `None` for any time.
    longest_silence: Option<Duration>,
    /// The time awake when the last bytes arrived.
    heard: Duration,
}

impl<'a> CommandReader<'a> {
    /// The most bytes of a line. The longest command names every process of a job: 4,096 of them,
    /// 64 bytes each.
    const LONGEST: usize = 256 << 10;

    /// The most errors that are printed. The standard error may be a pipe that nobody reads: when
    /// it is full, printing would block this thread.
    const MOST_ERRORS: u32 = 64;

    /// The shortest silence of a viewer upon which an agent ends: a busy viewer may take a while.
    pub(super) const SHORTEST_SILENCE: Duration = Duration::from_secs(1);

    pub(in crate::agent) fn new(input: BorrowedFd<'a>) -> Self {
        Self {
            input,
            line: Vec::new(),
            is_overlong: false,
            errors_left: Self::MOST_ERRORS,
            longest_silence: None,
            heard: clock::time_awake(),
        }
    }

    /// Reads once, and returns the complete commands. A line that is no command is reported and
    /// ignored.
    ///
    /// # Errors
    ///
    /// When the input has ended, or cannot be read.
    pub(in crate::agent) fn read(&mut self) -> io::Result<Vec<Command>> {
        let mut bytes = [0; 16384];
        let length = match rustix::io::read(self.input, &mut bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => length,
            Err(Errno::INTR | Errno::AGAIN) => 0,
            Err(error) => return Err(error.into()),
        };
        self.heard = clock::time_awake();
        let mut commands = Vec::new();
        for piece in bytes[..length].split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                match Command::parse(&std::mem::take(&mut self.line)) {
                    _ if std::mem::take(&mut self.is_overlong) => self.report("it is too long"),
                    Ok(command) => {
                        self.learn_silence(&command);
                        commands.push(command);
                    }
                    Err(error) => self.report(&error.to_string()),
                }
            } else if self.line.len() > Self::LONGEST {
                self.line.clear();
                self.is_overlong = true;
            }
        }
        Ok(commands)
    }

    fn learn_silence(&mut self, command: &Command) {
        if let Command::Interval {
            silence: Some(silence),
            ..
        } = command
        {
            let silence = Duration::from_millis(*silence);
            self.longest_silence = Some(silence.max(Self::SHORTEST_SILENCE));
        }
    }

    /// How long the viewer may still be silent before the agent ends; `None` for any time.
    pub(in crate::agent) fn silence_left(&self) -> Option<Duration> {
        let silence = clock::time_awake().saturating_sub(self.heard);
        Some(self.longest_silence?.saturating_sub(silence))
    }

    /// Prints that a line was no command. The reason is cut to 200 bytes, since the parser may
    /// quote the line.
    fn report(&mut self, why: &str) {
        if self.errors_left > 0 {
            self.errors_left -= 1;
            print_error(&format!(
                "ignored a line that is no command: {}",
                why.get(..200).unwrap_or(why)
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::pipe::pipe;

    use super::super::CommandHandler;
    use super::*;
    use crate::protocol::snapshot::ProcessId;

    #[track_caller]
    fn check(pieces: &[&[u8]], expected: &[Command]) {
        let (reader, writer) = pipe().expect("a pipe");
        let mut input = CommandReader::new(reader.as_fd());
        let mut commands = Vec::new();
        for piece in pieces {
            for part in piece.chunks(4096) {
                rustix::io::write(&writer, part).expect("it fits");
                commands.extend(input.read().expect("there are bytes"));
            }
        }
        assert_eq!(commands, expected);
        drop(writer);
        assert!(input.read().is_err(), "the input has ended");
    }

    #[test]
    fn a_line_may_come_in_pieces() {
        check(&[br#"{"command":"#, b"\"scan\"}\n"], &[Command::Scan]);
        check(
            &[b"{\"command\":\"scan\"}\n{\"command\":\"scan\"}\n{"],
            &[Command::Scan, Command::Scan],
        );
    }

    #[test]
    fn a_job_may_be_as_large_as_can_be_held() {
        let process = ProcessId {
            pid: 4_194_304,
            start_ticks: Some(u64::MAX),
        };
        let force = Command::Force {
            processes: vec![process; CommandHandler::MOST_HELD],
        };
        let mut line = Vec::new();
        force.write(&mut line).expect("a line");
        check(&[&line], &[force]);
    }

    #[test]
    fn a_line_that_is_no_command_is_ignored() {
        let scan = b"{\"command\":\"scan\"}\n".as_slice();
        check(
            &[
                b"\n",
                b"\xff\x1b[2J\n",
                br#"{"command":"reboot"}"#,
                b"\n",
                scan,
            ],
            &[Command::Scan],
        );
        let long = [b"x".repeat(1_000_000).as_slice(), b"\n"].concat();
        check(&[&long, scan], &[Command::Scan]);
        // The end of an overlong line is no command.
        let hidden = [b" ".repeat(400_000).as_slice(), scan].concat();
        check(&[&hidden], &[]);
    }
}
