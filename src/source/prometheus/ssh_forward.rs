//! A connection to a server behind a login host: `ssh -W HOST:PORT LOGIN`, whose input and output
//! are the connection.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};
use ureq::{Error, Timeout};

use crate::base::detach::end_with_this_thread;
use crate::base::text::Text;

/// How long the last words of ssh may take after its output has ended.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The most bytes that are kept of what ssh writes to its standard error.
const KEPT: usize = 2 * Text::LIMIT;

/// How long ssh may take to end after SIGTERM.
const END: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// Starts ssh for each connection. It ends with its connection, and with the thread that connects,
/// in whatever way gputop ends: a server that hangs would keep it for ever.
#[derive(Debug)]
pub(super) struct SshForward {
    /// The program and its arguments.
    words: Vec<String>,
    /// Gets the reason when ssh ends.
    end: Arc<Mutex<Option<Text>>>,
}

impl SshForward {
    /// Returns a connector that runs this command. `end` gets the reason when it ends by itself.
    pub(super) fn new(words: Vec<String>, end: Arc<Mutex<Option<Text>>>) -> Self {
        Self { words, end }
    }

    fn start(&self, input: usize, output: usize) -> io::Result<SshPipe> {
        let (ours, theirs) = UnixStream::pair()?;
        let copy = theirs.try_clone()?;
        let mut words = self.words.iter();
        let mut command = Command::new(words.next().map_or("ssh", String::as_str));
        command
            .args(words)
            .stdin(OwnedFd::from(theirs))
            .stdout(OwnedFd::from(copy))
            .stderr(Stdio::piped());
        let mut child = end_with_this_thread(&mut command, Signal::TERM).spawn()?;
        // The command holds the other end, which must not stay open in this process.
        drop(command);
        let words = child.stderr.take().map(read_reason).transpose();
        let pipe = SshPipe {
            child,
            stream: ours,
            buffers: LazyBuffers::new(input, output),
            reason: Mutex::new(None),
            end: self.end.clone(),
        };
        // From here on, the child ends with the value.
        if let (Some(receiver), Ok(mut slot)) = (words?, pipe.reason.lock()) {
            *slot = Some(receiver);
        }
        Ok(pipe)
    }
}

/// Reads the standard error of ssh on a thread. The reason in it comes at its end.
fn read_reason(mut stream: ChildStderr) -> io::Result<Receiver<Option<Text>>> {
    let (sender, receiver) = channel();
    let read = move || {
        let mut tail = Vec::new();
        let mut buffer = [0; 1024];
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            tail.extend_from_slice(&buffer[..length]);
            tail.drain(..tail.len().saturating_sub(KEPT));
        }
        // Nobody waits where the connection was closed on purpose.
        let _unheard = sender.send(reason(&tail));
    };
    thread::Builder::new().name("ssh".to_owned()).spawn(read)?;
    Ok(receiver)
}

/// Returns why ssh has ended, from its standard error: the last line that is not empty, but the line
/// before it where that one has the cause.
fn reason(standard_error: &[u8]) -> Option<Text> {
    let mut lines = standard_error
        .split(|byte| matches!(byte, b'\n' | b'\r'))
        .map(<[u8]>::trim_ascii)
        .rev()
        .filter(|line| !line.is_empty());
    let last = lines.next()?;
    let line = match lines.next() {
        Some(before) if last == b"stdio forwarding failed" => before,
        _ => last,
    };
    let line = Text::new(line);
    let cause = line.as_str().split_once(" open failed: ");
    let cause = cause.map(|(_, cause)| cause);
    Some(match cause {
        None => line,
        Some(cause) if cause.starts_with("administratively prohibited") => format!(
            "{cause}: does the sshd of the login host allow it (AllowTcpForwarding, PermitOpen)?"
        )
        .into(),
        Some(cause) => cause.into(),
    })
}

impl Connector<()> for SshForward {
    type Out = SshPipe;

    fn connect(
        &self,
        details: &ConnectionDetails,
        _chained: Option<()>,
    ) -> Result<Option<SshPipe>, Error> {
        let config = details.config;
        let pipe = self
            .start(config.input_buffer_size(), config.output_buffer_size())
            .inspect_err(|error| self.tell(format!("it cannot be started: {error}").into()))?;
        Ok(Some(pipe))
    }
}

impl SshForward {
    fn tell(&self, reason: Text) {
        if let Ok(mut end) = self.end.lock() {
            *end = Some(reason);
        }
    }
}

/// A running ssh, which ends with this value.
#[derive(Debug)]
pub(super) struct SshPipe {
    child: Child,
    stream: UnixStream,
    buffers: LazyBuffers,
    /// Gets the reason in the standard error.
    reason: Mutex<Option<Receiver<Option<Text>>>>,
    end: Arc<Mutex<Option<Text>>>,
}

impl SshPipe {
    /// Notes why ssh has ended, if it has.
    fn note_end(&mut self) {
        let receiver = self.reason.get_mut().ok().and_then(Option::take);
        let reason = receiver.and_then(|receiver| receiver.recv_timeout(LAST_WORDS).ok().flatten());
        if let (Some(reason), Ok(mut end)) = (reason, self.end.lock()) {
            *end = Some(reason);
        }
    }
}

/// Returns the error of a read or write that took too long, or failed.
fn error_of(error: io::Error, reason: Timeout) -> Error {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::Timeout(reason),
        _ => error.into(),
    }
}

impl Transport for SshPipe {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let timeout = timeout.for_write();
        self.stream
            .set_write_timeout(timeout.not_zero().map(|limit| *limit))?;
        let written = self.stream.write_all(&self.buffers.output()[..amount]);
        written.map_err(|error| {
            if error.kind() == ErrorKind::BrokenPipe {
                self.note_end();
            }
            error_of(error, timeout.reason)
        })
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let timeout = timeout.for_read();
        self.stream
            .set_read_timeout(timeout.not_zero().map(|limit| *limit))?;
        let read = loop {
            match self.stream.read(self.buffers.input_append_buf()) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        let amount = match read {
            Ok(amount) => amount,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            Err(error) => return Err(error_of(error, timeout.reason)),
        };
        self.buffers.input_appended(amount);
        if amount == 0 {
            self.note_end();
        }
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        // An idle server sends nothing.
        let mut byte = [0];
        if self.stream.set_nonblocking(true).is_err() {
            return false;
        }
        let is_idle = matches!(self.stream.read(&mut byte), Err(error) if error.kind() == ErrorKind::WouldBlock);
        is_idle && self.stream.set_nonblocking(false).is_ok()
    }
}

impl Drop for SshPipe {
    fn drop(&mut self) {
        let _closed = self.stream.shutdown(Shutdown::Both);
        if !ends_by_sigterm(&self.child) {
            // A process that has ended needs no signal.
            let _ended = self.child.kill();
        }
        let _reaped = self.child.wait();
    }
}

/// Lets ssh end the command of its `ProxyCommand`, which SIGKILL would leave behind. Returns whether
/// it has ended.
fn ends_by_sigterm(child: &Child) -> bool {
    let Ok(process) = pidfd_open(Pid::from_child(child), PidfdFlags::empty()) else {
        return false;
    };
    let _has_ended = pidfd_send_signal(&process, Signal::TERM);
    let mut ends = [PollFd::new(&process, PollFlags::IN)];
    poll(&mut ends, Some(&END)).is_ok_and(|count| count > 0)
}

/// Finds no address: ssh connects by the name.
#[derive(Debug)]
pub(super) struct NoAddresses;

impl Resolver for NoAddresses {
    fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        Ok(self.empty())
    }
}
