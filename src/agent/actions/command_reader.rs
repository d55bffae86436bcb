//! Takes the standard input apart into commands.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;

use crate::base::text::Text;
use crate::protocol::command::Command;

/// The lines that come in, up to the one that is not whole yet.
pub(super) struct CommandReader<'a> {
    from: BorrowedFd<'a>,
    rest: Vec<u8>,
    /// The line that comes in is too long to be a command.
    is_overlong: bool,
    complaints: u32,
}

impl<'a> CommandReader<'a> {
    /// The longest command names every process of a job: 4,096 of them, 64 bytes each.
    const LONGEST: usize = 256 << 10;

    /// The standard error may be a pipe that nobody reads: it holds that many sentences, and more
    /// of them would block this thread.
    const MOST_COMPLAINTS: u32 = 64;

    pub(super) fn new(from: &'a impl AsFd) -> Self {
        Self { from: from.as_fd(), rest: Vec::new(), is_overlong: false, complaints: 0 }
    }

    /// Reads what is there, once. A line that is no command is passed over.
    ///
    /// # Errors
    ///
    /// When nothing will come any more.
    pub(super) fn read(&mut self) -> io::Result<Vec<Command>> {
        let mut bytes = [0; 16384];
        let length = match rustix::io::read(self.from, &mut bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => length,
            Err(Errno::INTR | Errno::AGAIN) => 0,
            Err(error) => return Err(error.into()),
        };
        Ok(self.take(&bytes[..length]))
    }

    fn take(&mut self, bytes: &[u8]) -> Vec<Command> {
        let mut commands = Vec::new();
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.rest.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.rest);
                let is_overlong = std::mem::take(&mut self.is_overlong);
                match Command::parse(&line) {
                    Ok(command) if !is_overlong => commands.push(command),
                    Ok(_) => self.complain("it is too long"),
                    Err(error) => self.complain(&error.to_string()),
                }
            } else if self.rest.len() > Self::LONGEST {
                self.rest.clear();
                self.is_overlong = true;
            }
        }
        commands
    }

    /// Says that a line was no command. An error of the parser may quote it.
    fn complain(&mut self, why: &str) {
        if self.complaints < Self::MOST_COMPLAINTS {
            self.complaints += 1;
            let why = Text::new(why.get(..200).unwrap_or(why));
            let _closed: io::Result<()> =
                writeln!(io::stderr(), "gputop agent: passed over a line that is no command: {why}");
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::pipe::pipe;

    use super::super::CommandHandler;
    use super::*;
    use crate::protocol::snapshot::ProcessId;

    #[track_caller]
    fn check(pieces: &[&[u8]], expected: &[Command]) {
        let (reader, writer) = pipe().expect("a pipe");
        let mut input = CommandReader::new(&reader);
        let mut commands = Vec::new();
        for piece in pieces {
            for part in piece.chunks(4096) {
                rustix::io::write(&writer, part).expect("it fits");
                commands.extend(input.read().expect("there is some"));
            }
        }
        assert_eq!(commands, expected);
        drop(writer);
        assert!(input.read().is_err(), "the end is an end");
    }

    #[test]
    fn a_line_may_come_in_pieces() {
        check(&[br#"{"command":"#, b"\"scan\"}\n"], &[Command::Scan]);
        check(&[b"{\"command\":\"scan\"}\n{\"command\":\"scan\"}\n{"], &[Command::Scan, Command::Scan]);
    }

    #[test]
    fn a_job_may_be_as_large_as_can_be_held() {
        let process = ProcessId { pid: 4_194_304, start_ticks: Some(u64::MAX) };
        let force = Command::Force { processes: vec![process; CommandHandler::MOST_HELD] };
        let mut line = Vec::new();
        force.write(&mut line).expect("a line");
        check(&[&line], &[force]);
    }

    #[test]
    fn what_is_no_command_is_passed_over() {
        let scan = b"{\"command\":\"scan\"}\n".as_slice();
        check(&[b"\n", b"\xff\x1b[2J\n", br#"{"command":"reboot"}"#, b"\n", scan], &[Command::Scan]);
        let long = [b"x".repeat(1_000_000).as_slice(), b"\n"].concat();
        check(&[&long, scan], &[Command::Scan]);
        // The end of a line that was too long is no line of its own.
        let hidden = [b" ".repeat(400_000).as_slice(), scan].concat();
        check(&[&hidden], &[]);
    }
}
