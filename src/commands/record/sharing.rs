//! Passes the lines of this host on to other gputops of the user, so that one agent reads the host
//! for all of them.
//!
//! A reader gets the next full line and all lines after it, and after the full line once a
//! checkpoint of what the recorder knows. A thread waits for readers. Nothing here waits for one: a
//! reader that is slow loses its connection.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use tokio::sync::Notify;

use crate::files::recorder_socket::{self, RecorderSocket};
use crate::protocol::line::Line;

/// The most bytes that wait for one reader.
const MOST_WAITING: usize = 8 << 20;

/// The most readers at once.
const MOST_READERS: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReaderProgress {
    /// The reader waits for a full line, from which it can go on.
    AwaitsFull,
    /// The reader has a full line, and waits for the checkpoint.
    AwaitsPast,
    /// The reader gets each line.
    Follows,
}

#[derive(Debug)]
struct SharingReader {
    stream: UnixStream,
    waiting: Vec<u8>,
    progress: ReaderProgress,
}

impl SharingReader {
    /// Writes as much as the stream takes. Returns whether the reader keeps up.
    fn write(&mut self, bytes: &[u8]) -> bool {
        self.waiting.extend_from_slice(bytes);
        while !self.waiting.is_empty() {
            match self.stream.write(&self.waiting) {
                Ok(0) => return false,
                Ok(length) => _ = self.waiting.drain(..length),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        self.waiting.len() <= MOST_WAITING
    }
}

/// The readers of this recorder. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Sharing {
    readers: Arc<Mutex<Vec<SharingReader>>>,
    /// Notified when a reader has come, which needs a full line.
    pub came: Arc<Notify>,
}

impl Sharing {
    /// Starts to accept readers. Returns the socket, which must be kept for as long as there are to
    /// be any. Where it cannot be opened, there are none: a recorder works as well without them.
    pub(super) fn start(&self) -> Option<RecorderSocket> {
        let socket = RecorderSocket::open().ok()?;
        let (listener, sharing) = (socket.listener.try_clone().ok()?, self.clone());
        let accept = move || {
            while let Ok(stream) = recorder_socket::accept(&listener) {
                sharing.add(stream);
            }
        };
        let readers = thread::Builder::new().name("readers".to_owned());
        readers.spawn(accept).ok().map(|_| socket)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<SharingReader>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, stream: UnixStream) {
        let mut readers = self.lock();
        if readers.len() < MOST_READERS && stream.set_nonblocking(true).is_ok() {
            readers.push(SharingReader {
                stream,
                waiting: Vec::new(),
                progress: ReaderProgress::AwaitsFull,
            });
            self.came.notify_one();
        }
    }

    /// Passes a line on. `raw` is the line without its end.
    pub(super) fn pass_on(&self, line: &Line, raw: &[u8]) {
        let is_full = matches!(line, Line::Full(_));
        self.lock().retain_mut(|reader| {
            if is_full && reader.progress == ReaderProgress::AwaitsFull {
                reader.progress = ReaderProgress::AwaitsPast;
            }
            reader.progress == ReaderProgress::AwaitsFull || reader.write(&[raw, b"\n"].concat())
        });
    }

    /// Whether a reader waits for a checkpoint.
    pub(super) fn awaits_past(&self) -> bool {
        self.lock()
            .iter()
            .any(|reader| reader.progress == ReaderProgress::AwaitsPast)
    }

    /// Sends a checkpoint to the readers that wait for one; with `None`, lets them go on without.
    pub(super) fn send_past(&self, checkpoint: Option<Line>) {
        let mut raw = Vec::new();
        if let Some(checkpoint) = checkpoint
            && checkpoint.write(&mut raw).is_err()
        {
            raw.clear();
        }
        self.lock().retain_mut(|reader| {
            if reader.progress != ReaderProgress::AwaitsPast {
                return true;
            }
            reader.progress = ReaderProgress::Follows;
            reader.write(&raw)
        });
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;
    use crate::protocol::snapshot::example;

    fn full() -> Line {
        Line::Full(Box::new(example::host(1)))
    }

    #[test]
    fn a_reader_gets_a_full_line_first_then_the_past_then_each_line() {
        let sharing = Sharing::default();
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        sharing.add(ours);
        let text = br#"{"kind":"checkpoint","version":1,"time_ms":1,"unix_time_ms":2,"state":{}}"#;
        let past = Line::parse(text)
            .expect("it is JSON")
            .expect("it is a line");
        sharing.pass_on(&past, b"too early");
        assert!(!sharing.awaits_past());
        sharing.pass_on(&full(), b"full");
        assert!(sharing.awaits_past());
        sharing.send_past(Some(past.clone()));
        assert!(!sharing.awaits_past());
        sharing.pass_on(&past, b"next");
        drop(sharing);
        let lines: Vec<String> = BufReader::new(theirs)
            .lines()
            .map(|line| line.expect("a line"))
            .collect();
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert_eq!((lines[0].as_str(), lines[2].as_str()), ("full", "next"));
        assert!(lines[1].contains("checkpoint"));
    }

    #[test]
    fn a_reader_that_does_not_read_loses_its_connection_and_nobody_waits() {
        let sharing = Sharing::default();
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        sharing.add(ours);
        let long = vec![b'x'; MOST_WAITING / 4];
        for _ in 0..8 {
            sharing.pass_on(&full(), &long);
        }
        assert!(sharing.lock().is_empty());
    }
}
