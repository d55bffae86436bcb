//! Passes on the lines of a recorder of the same user instead of reading the host again.
//!
//! An agent for a viewer of another host begins so, where a recorder runs, and one for a report that
//! needs the recorder's knowledge. It becomes an agent that
//! reads the host itself as soon as a command needs more than lines: to inspect, to end, to ask a
//! probe. The recorder's socket is for reading only.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::stdio;

use super::actions::CommandReader;
use crate::base::terminal;
use crate::files::recorder_socket;
use crate::protocol::command::Command;

/// How long the recorder may take to send its first line.
const FIRST_LINE: Duration = Duration::from_secs(2);

/// The bytes that a pipe takes without waiting, once it is ready to be written to.
const ROOM: usize = 4096;

/// The way on after the recorder's lines.
#[derive(Debug)]
pub(super) enum AfterShared {
    /// The viewer has closed the input, or reads no more.
    End,
    /// Read the host. These commands are to be performed.
    ReadHost(Vec<Command>),
}

/// Passes on the lines of the recorder while that is enough.
pub(super) fn pass_on(commands: &mut CommandReader<'_>) -> AfterShared {
    let Ok(mut recorder) = connect() else {
        return AfterShared::ReadHost(Vec::new());
    };
    let mut lines = CompleteLines::default();
    // The lines that the viewer has not taken yet. It may have stopped reading for good.
    let mut output = Vec::new();
    let needed = loop {
        let (stdin, stdout) = (stdio::stdin(), stdio::stdout());
        let mut fds = [
            PollFd::new(&stdin, PollFlags::IN),
            if output.is_empty() {
                PollFd::new(&recorder, PollFlags::IN)
            } else {
                PollFd::new(&stdout, PollFlags::OUT)
            },
        ];
        let silence_left = commands.silence_left();
        let timeout = silence_left.and_then(|left| left.try_into().ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) if commands.silence_left() == Some(Duration::ZERO) => return AfterShared::End,
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => break Vec::new(),
        }
        let [has_command, is_other_ready] = fds.map(|fd| !fd.revents().is_empty());
        if has_command {
            let Ok(read) = commands.read() else {
                return AfterShared::End;
            };
            // The recorder chooses its interval.
            let needed: Vec<Command> = read
                .into_iter()
                .filter(|command| !matches!(command, Command::Interval { .. }))
                .collect();
            if needed.iter().any(|command| *command != Command::Full) {
                break needed;
            }
            if !needed.is_empty() {
                // A new connection begins with a full line.
                match connect() {
                    Ok(again) => (recorder, lines) = (again, CompleteLines::default()),
                    Err(_) => break needed,
                }
                continue;
            }
        }
        if is_other_ready && output.is_empty() {
            match lines.read(&mut recorder) {
                Ok(complete) => output = complete,
                // The recorder has ended, or this reader was too slow for it.
                Err(_) => break Vec::new(),
            }
        } else if is_other_ready {
            let part = &output[..output.len().min(ROOM)];
            match rustix::io::write(stdout, part) {
                Ok(written) => drop(output.drain(..written)),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => return AfterShared::End,
            }
        }
    };
    // The next line begins after the end of this one.
    match terminal::write_unbuffered(&output) {
        Ok(()) => AfterShared::ReadHost(needed),
        Err(_) => AfterShared::End,
    }
}

/// Connects to the recorder, and waits until it sends.
fn connect() -> io::Result<UnixStream> {
    let recorder = recorder_socket::connect()?;
    let timeout = FIRST_LINE.try_into().map_err(io::Error::other)?;
    let mut fds = [PollFd::new(&recorder, PollFlags::IN)];
    match poll(&mut fds, Some(&timeout))? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(recorder),
    }
}

/// The lines of a stream that are complete: the lines of an agent may come after them.
#[derive(Debug, Default)]
struct CompleteLines {
    waiting: Vec<u8>,
}

impl CompleteLines {
    /// Reads once. Returns the lines that are complete now; the end of the stream is an error.
    fn read(&mut self, stream: &mut impl Read) -> io::Result<Vec<u8>> {
        let mut bytes = [0; 16 << 10];
        let length = match stream.read(&mut bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            read => read?,
        };
        self.waiting.extend_from_slice(&bytes[..length]);
        let end = self
            .waiting
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |place| place + 1);
        let rest = self.waiting.split_off(end);
        Ok(std::mem::replace(&mut self.waiting, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_lines_are_passed_on() {
        let mut lines = CompleteLines::default();
        let mut next = |bytes: &[u8]| {
            lines
                .read(&mut &*bytes)
                .map(|read| String::from_utf8(read).unwrap())
        };
        assert_eq!(next(b"one\ntw").unwrap(), "one\n");
        assert_eq!(next(b"o").unwrap(), "");
        assert_eq!(next(b"\nthree\n").unwrap(), "two\nthree\n");
        assert!(next(b"").is_err());
    }
}
