//! A terminal with gputop in it: a pty, an emulator that draws what is written to it, and a person's keys.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::pty::OpenptFlags;
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};

use crate::DEADLINE;
use crate::process::{Life, Started, children};
use crate::world::Host;

pub(crate) const ENTER: &str = "\r";
pub(crate) const ESC: &str = "\x1b";
pub(crate) const DOWN: &str = "\x1b[B";
pub(crate) const UP: &str = "\x1b[A";
pub(crate) const TAB: &str = "\t";
pub(crate) const F9: &str = "\x1b[20~";
pub(crate) const DELETE: &str = "\x1b[3~";
pub(crate) const CTRL_Z: &str = "\x1a";

/// Around a synchronized update.
const BEGIN: &[u8] = b"\x1b[?2026h";
const END: &[u8] = b"\x1b[?2026l";

/// What stands on the terminal before gputop comes.
const SHELL: &[u8] = b"person@host:~$ ls\r\ntrain.py\r\nperson@host:~$ top\r\n";

/// What the emulator shows, and every byte that it was sent.
struct Shown {
    emulator: vt100::Parser,
    bytes: Vec<u8>,
    /// How many of them the emulator has drawn: an update that is under way shows only when it is whole.
    drawn: usize,
}

impl Shown {
    fn take(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let new = &self.bytes[self.drawn..];
        let last = |of: &[u8]| new.windows(of.len()).rposition(|it| it == of);
        let whole = match (last(BEGIN), last(END)) {
            (Some(begin), end) if end.is_none_or(|end| end < begin) => begin,
            _ => new.len(),
        };
        self.emulator.process(&new[..whole]);
        self.drawn += whole;
    }
}

#[derive(Default)]
struct Desk {
    shown: Mutex<Option<Shown>>,
    changed: Condvar,
}

impl Desk {
    fn shown(&self) -> MutexGuard<'_, Option<Shown>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a terminal is like, apart from what is on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manner {
    /// Every mode of the line discipline.
    modes: String,
    /// What the emulator shows, its cursor, pen and modes, as escape sequences.
    picture: String,
}

/// A terminal with a program in it, which ends with the terminal.
pub(crate) struct Terminal {
    program: Started,
    desk: Arc<Desk>,
    slave: OwnedFd,
    master: Option<Arc<OwnedFd>>,
    /// Bytes here tell the reader to stop, to go on, and to leave.
    control: OwnedFd,
    reader: Option<JoinHandle<()>>,
    before: Manner,
}

impl Terminal {
    /// gputop on that host, at 80x24.
    pub(crate) fn start<'a>(host: &Host, args: impl IntoIterator<Item = &'a str>) -> Self {
        Self::run(&mut host.gputop(args), 80, 24)
    }

    /// The same in another size.
    pub(crate) fn start_at<'a>(host: &Host, width: u16, height: u16, args: impl IntoIterator<Item = &'a str>) -> Self {
        Self::run(&mut host.gputop(args), width, height)
    }

    /// Any command, as the leader of a session whose terminal this is.
    pub(crate) fn run(command: &mut Command, width: u16, height: u16) -> Self {
        // SAFETY: two system calls, which allocate nothing and take no lock.
        unsafe {
            command.pre_exec(|| {
                rustix::process::setsid()?;
                Ok(rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?)
            });
        }
        Self::put(command, width, height)
    }

    /// Any command, in a session without a terminal: this one is open, and controls nobody.
    pub(crate) fn open(command: &mut Command, width: u16, height: u16) -> Self {
        // SAFETY: one system call, which allocates nothing and takes no lock.
        unsafe { command.pre_exec(|| Ok(rustix::process::setsid().map(drop)?)) };
        Self::put(command, width, height)
    }

    fn put(command: &mut Command, width: u16, height: u16) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = rustix::pty::openpt(flags).expect("there are ptys");
        rustix::pty::grantpt(&master).and_then(|()| rustix::pty::unlockpt(&master)).expect("it is ours");
        let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags).expect("it is unlocked");
        tcsetwinsize(&slave, winsize(width, height)).expect("a pty has a size");
        let mut emulator = emulator(width, height);
        emulator.process(SHELL);
        let before = Manner::of(&slave, emulator.screen());
        let desk = Arc::new(Desk::default());
        *desk.shown() = Some(Shown { emulator, bytes: Vec::new(), drawn: 0 });
        let end = || slave.try_clone().expect("there are descriptors");
        let program = Started::start(command.stdin(end()).stdout(end()).stderr(end()));
        let master = Arc::new(master);
        let (told, control) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("there are pipes");
        let reader = thread::spawn({
            let (desk, master) = (Arc::clone(&desk), Arc::clone(&master));
            move || read(&desk, &master, &told)
        });
        Self { program, desk, slave, master: Some(master), control, reader: Some(reader), before }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.program.pid()
    }

    /// The program, to wait for and to signal.
    pub(crate) fn life(&self) -> &Life {
        &self.program.life
    }

    /// The agent of the viewer that runs here.
    #[track_caller]
    pub(crate) fn agent(&self) -> Life {
        match children(self.pid(), "agent").as_slice() {
            [agent] => Life::of(*agent),
            other => panic!("{} agents: {other:?}", other.len()),
        }
    }

    /// Types.
    pub(crate) fn keys(&self, keys: &str) {
        let master = self.master.as_ref().expect("the terminal is there");
        rustix::io::write(master, keys.as_bytes()).expect("the terminal takes keys");
    }

    /// The window gets another size.
    pub(crate) fn resize(&self, width: u16, height: u16) {
        if let Some(shown) = &mut *self.desk.shown() {
            let size = size(width, height);
            shown.emulator.screen_mut().set_size(size.0, size.1);
        }
        tcsetwinsize(&self.slave, winsize(width, height)).expect("a pty has a size");
    }

    /// What can be read on it now.
    pub(crate) fn text(&self) -> String {
        self.look(|shown| shown.emulator.screen().contents())
    }

    /// The line that begins so; empty when there is none.
    pub(crate) fn line_at(&self, beginning: &str) -> String {
        self.text().lines().find(|line| line.starts_with(beginning)).unwrap_or_default().to_owned()
    }

    /// Every byte that was written to it.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.look(|shown| shown.bytes.clone())
    }

    fn look<T>(&self, look: impl FnOnce(&Shown) -> T) -> T {
        look(self.desk.shown().as_ref().expect("there is an emulator"))
    }

    /// Waits until this text stands on the screen.
    #[track_caller]
    pub(crate) fn wait_for(&self, text: &str) {
        self.wait_until(&format!("`{text}`"), |screen| screen.contents().contains(text));
    }

    /// Waits until this text is gone from the screen.
    #[track_caller]
    pub(crate) fn wait_without(&self, text: &str) {
        self.wait_until(&format!("no `{text}`"), |screen| !screen.contents().contains(text));
    }

    /// Waits until the screen is so.
    #[track_caller]
    pub(crate) fn wait_until(&self, what: &str, is_so: impl Fn(&vt100::Screen) -> bool) {
        if !self.is_within(DEADLINE, &is_so) {
            let state = crate::process::state(self.pid()).map_or("gone".to_owned(), |it| format!("in state {it}"));
            panic!("never {what}; gputop is {state}; the screen is\n{}\n", self.text());
        }
    }

    fn is_within(&self, time: Duration, is_so: impl Fn(&vt100::Screen) -> bool) -> bool {
        let not_yet = |it: &mut Option<Shown>| it.as_ref().is_none_or(|it| !is_so(it.emulator.screen()));
        let waited = self.desk.changed.wait_timeout_while(self.desk.shown(), time, not_yet);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Waits until so many more frames were written.
    #[track_caller]
    pub(crate) fn wait_frames(&self, count: usize) {
        let goal = frames(&self.bytes()) + count;
        self.wait_bytes(&format!("{count} more frames"), |bytes| frames(bytes) >= goal);
    }

    /// Waits until what was written is so, from the first byte on.
    #[track_caller]
    pub(crate) fn wait_bytes(&self, what: &str, is_so: impl Fn(&[u8]) -> bool) {
        let not_yet = |it: &mut Option<Shown>| it.as_ref().is_none_or(|it| !is_so(&it.bytes));
        let waited = self.desk.changed.wait_timeout_while(self.desk.shown(), DEADLINE, not_yet);
        assert!(!waited.unwrap_or_else(PoisonError::into_inner).1.timed_out(), "never {what}");
    }

    /// Nobody reads what is written to the terminal any more.
    pub(crate) fn stop_reading(&self) {
        rustix::io::write(&self.control, b"s").expect("the reader is there");
    }

    pub(crate) fn read_on(&self) {
        rustix::io::write(&self.control, b"g").expect("the reader is there");
    }

    /// The connection breaks.
    pub(crate) fn hang_up(&mut self) {
        self.stop_reader();
        self.master = None;
    }

    fn stop_reader(&mut self) {
        let _left = rustix::io::write(&self.control, b"l");
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the reader does not panic");
        }
    }

    /// Waits for the end of the program.
    #[track_caller]
    pub(crate) fn wait_gone(&mut self) -> ExitStatus {
        assert!(self.life().ends_within(DEADLINE), "gputop does not end; the screen is\n{}\n", self.text());
        self.program.wait()
    }

    /// Waits until the terminal is as it was before: picture, cursor and modes.
    #[track_caller]
    pub(crate) fn wait_as_before(&self) {
        let now = || self.look(|shown| Manner::of(&self.slave, shown.emulator.screen()));
        self.is_within(DEADLINE, |screen| Manner::of(&self.slave, screen) == self.before);
        assert_eq!(now(), self.before);
        let bytes = self.bytes();
        let last = |of: &[u8]| bytes.windows(of.len()).rposition(|it| it == of);
        assert!(last(BEGIN) <= last(END), "an update was begun and not ended");
    }

    /// Waits until gputop has left the screen, whatever it said in leaving. Gives what stands there.
    #[track_caller]
    pub(crate) fn wait_left(&self) -> String {
        self.wait_until("the shell's screen", |screen| !screen.alternate_screen());
        self.wait_until("a cursor", |screen| !screen.hide_cursor());
        self.wait_until("a mouse of one's own", |screen| {
            screen.mouse_protocol_mode() == vt100::MouseProtocolMode::None && !screen.bracketed_paste()
        });
        assert_eq!(self.modes(), self.before.modes);
        self.text()
    }

    /// Every mode of the line discipline, in words.
    pub(crate) fn modes(&self) -> String {
        modes(&self.slave)
    }

    pub(crate) fn modes_before(&self) -> String {
        self.before.modes.clone()
    }

    /// Quits, and finds everything as it was. Says how long that took.
    #[track_caller]
    pub(crate) fn quit(&mut self) -> Duration {
        let asked = crate::process::now();
        self.keys("q");
        let status = self.wait_gone();
        let took = asked.elapsed();
        assert_eq!(crate::process::code(status), 0);
        self.wait_as_before();
        took
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.stop_reader();
    }
}

impl Manner {
    fn of(slave: &OwnedFd, screen: &vt100::Screen) -> Self {
        Self { modes: modes(slave), picture: screen.state_formatted() }
    }
}

/// The number that stands behind these words.
pub(crate) fn number_after(text: &str, words: &str) -> Option<u32> {
    let (_, rest) = text.split_once(words)?;
    rest.split(|it: char| !it.is_ascii_digit()).next()?.parse().ok()
}

/// How many frames are whole in what was written.
pub(crate) fn frames(bytes: &[u8]) -> usize {
    bytes.windows(END.len()).filter(|it| *it == END).count()
}

fn modes(slave: &OwnedFd) -> String {
    format!("{:?}", tcgetattr(slave).expect("a pty has modes"))
}

fn size(width: u16, height: u16) -> (std::num::NonZeroU16, std::num::NonZeroU16) {
    (height.try_into().expect("a row"), width.try_into().expect("a column"))
}

fn emulator(width: u16, height: u16) -> vt100::Parser {
    let size = size(width, height);
    vt100::Parser::new(size.0, size.1, 0)
}

fn winsize(width: u16, height: u16) -> Winsize {
    Winsize { ws_row: height, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 }
}

/// Draws what is written to the terminal, until told to leave.
fn read(desk: &Desk, master: &OwnedFd, told: &OwnedFd) {
    let mut is_reading = true;
    let mut bytes = vec![0; 1 << 16];
    loop {
        let mut fds = vec![PollFd::new(told, PollFlags::IN)];
        if is_reading {
            fds.push(PollFd::new(master, PollFlags::IN));
        }
        rustix::event::poll(&mut fds, None).expect("poll waits");
        let (is_told, is_written) =
            (!fds[0].revents().is_empty(), fds.get(1).is_some_and(|it| !it.revents().is_empty()));
        if is_told {
            let mut word = [0];
            match rustix::io::read(told, &mut word) {
                Ok(1) if word == *b"s" => is_reading = false,
                Ok(1) if word == *b"g" => is_reading = true,
                _ => return,
            }
            continue;
        }
        if is_written {
            match rustix::io::read(master, &mut bytes).map_err(io::Error::from) {
                Ok(length @ 1..) => {
                    if let Some(shown) = &mut *desk.shown() {
                        shown.take(&bytes[..length]);
                    }
                    desk.changed.notify_all();
                }
                // Nobody has the other end open any more.
                _ => is_reading = false,
            }
        }
    }
}
