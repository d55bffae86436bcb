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

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};
use ureq::{Error, Timeout};

use crate::base::text::Text;

/// How long the last words of ssh may take after its output has ended.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The most bytes that are kept of what ssh writes to its standard error.
const KEPT: usize = 2 * Text::LIMIT;

/// Starts ssh for each connection.
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
        let mut child = command
            .args(words)
            .stdin(OwnedFd::from(theirs))
            .stdout(OwnedFd::from(copy))
            .stderr(Stdio::piped())
            .spawn()?;
        // The command holds the other end, which must not stay open in this process.
        drop(command);
        let words = child.stderr.take().map(last_line).transpose();
        let pipe = SshPipe {
            child,
            stream: ours,
            buffers: LazyBuffers::new(input, output),
            last_line: Mutex::new(None),
            end: self.end.clone(),
        };
        // From here on, the child ends with the value.
        if let (Some(receiver), Ok(mut slot)) = (words?, pipe.last_line.lock()) {
            *slot = Some(receiver);
        }
        Ok(pipe)
    }
}

/// Reads the standard error of ssh on a thread. Its last line that is not empty comes at its end.
fn last_line(mut stream: ChildStderr) -> io::Result<Receiver<Option<Text>>> {
    let (sender, receiver) = channel();
    let read = move || {
        let mut tail = Vec::new();
        let mut buffer = [0; 1024];
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            tail.extend_from_slice(&buffer[..length]);
            tail.drain(..tail.len().saturating_sub(KEPT));
        }
        let last = tail
            .split(|byte| matches!(byte, b'\n' | b'\r'))
            .map(<[u8]>::trim_ascii)
            .rfind(|line| !line.is_empty())
            .map(Text::new);
        // Nobody waits where the connection was closed on purpose.
        let _unheard = sender.send(last);
    };
    thread::Builder::new().name("ssh".to_owned()).spawn(read)?;
    Ok(receiver)
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
    /// Gets the last line of the standard error.
    last_line: Mutex<Option<Receiver<Option<Text>>>>,
    end: Arc<Mutex<Option<Text>>>,
}

impl SshPipe {
    /// Notes why ssh has ended, if it has.
    fn note_end(&mut self) {
        let receiver = self.last_line.get_mut().ok().and_then(Option::take);
        let line = receiver.and_then(|receiver| receiver.recv_timeout(LAST_WORDS).ok().flatten());
        if let (Some(line), Ok(mut end)) = (line, self.end.lock()) {
            *end = Some(line);
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
        // A process that has ended needs no signal.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Finds no address: ssh connects by the name.
#[derive(Debug)]
pub(super) struct NoAddresses;

impl Resolver for NoAddresses {
    fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        Ok(self.empty())
    }
}
