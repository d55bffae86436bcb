//! A terminal with a program in it: a pty, an emulator that draws what is written to it, and keys.

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
use crate::host::Host;
use crate::process::{
    ChildProcess, ProcessHandle, children_with_argument, exit_code, now, process_state, wait_until,
};

pub(crate) const ENTER: &str = "\r";
pub(crate) const ESC: &str = "\x1b";
pub(crate) const DOWN: &str = "\x1b[B";
pub(crate) const UP: &str = "\x1b[A";
pub(crate) const TAB: &str = "\t";
pub(crate) const F9: &str = "\x1b[20~";
pub(crate) const DELETE: &str = "\x1b[3~";
pub(crate) const CTRL_C: &str = "\x03";
pub(crate) const CTRL_R: &str = "\x12";
pub(crate) const CTRL_Z: &str = "\x1a";

/// The escape sequences around a synchronized update.
const BEGIN_UPDATE: &[u8] = b"\x1b[?2026h";
const END_UPDATE: &[u8] = b"\x1b[?2026l";

/// The text on the terminal before the program starts.
const TEXT_BEFORE: &[u8] = b"person@host:~$ ls\r\ntrain.py\r\nperson@host:~$ top\r\n";

/// The bytes that ask a terminal for its background and then for its device attributes.
pub(crate) const QUESTION: &[u8] = b"\x1b]11;?\x1b\\\x1b[c";
/// The device attributes of a terminal. Alone they are the answer of one that does not report its
/// background.
pub(crate) const ATTRIBUTES: &str = "\x1b[?62;22c";

/// Commands to the thread that reads the pty.
const STOP_READING: u8 = b's';
const RESUME_READING: u8 = b'r';
const EXIT: u8 = b'x';

/// The emulator, and every byte that was written to the terminal.
struct Emulation {
    emulator: vt100::Parser,
    bytes: Vec<u8>,
    /// The number of bytes that the emulator has drawn: it draws a synchronized update only when it
    /// is complete.
    drawn: usize,
}

impl Emulation {
    /// Draws bytes. Returns whether they end [`QUESTION`].
    fn write(&mut self, bytes: &[u8]) -> bool {
        let first_end = self.bytes.len().saturating_sub(QUESTION.len() - 1);
        self.bytes.extend_from_slice(bytes);
        let is_asked = last_position(&self.bytes[first_end..], QUESTION).is_some();
        let new = &self.bytes[self.drawn..];
        let complete = match (
            last_position(new, BEGIN_UPDATE),
            last_position(new, END_UPDATE),
        ) {
            (Some(begin), end) if end.is_none_or(|end| end < begin) => begin,
            // The sequence that begins an update may be cut in two.
            _ => {
                new.len()
                    - (1..BEGIN_UPDATE.len())
                        .rfind(|length| new.ends_with(&BEGIN_UPDATE[..*length]))
                        .unwrap_or(0)
            }
        };
        self.emulator.process(&new[..complete]);
        self.drawn += complete;
        is_asked
    }
}

#[test]
fn no_frame_is_drawn_in_part_wherever_its_bytes_are_cut() {
    let frame = [BEGIN_UPDATE, b"one two", END_UPDATE].concat();
    let (rows, columns) = rows_and_columns(20, 1);
    for cut in 1..frame.len() {
        let emulator = vt100::Parser::new(rows, columns, 0);
        let mut emulation = Emulation {
            emulator,
            bytes: Vec::new(),
            drawn: 0,
        };
        emulation.write(&frame[..cut]);
        assert_eq!(emulation.emulator.screen().contents(), "", "{cut}");
        emulation.write(&frame[cut..]);
        assert_eq!(emulation.emulator.screen().contents(), "one two", "{cut}");
    }
}

/// The emulation, shared by the test and the thread that reads the pty.
struct SharedEmulation {
    emulation: Mutex<Emulation>,
    changed: Condvar,
}

impl SharedEmulation {
    fn lock(&self) -> MutexGuard<'_, Emulation> {
        self.emulation
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a condition comes true within this time.
    fn becomes_true_within(&self, time: Duration, is_true: impl Fn(&Emulation) -> bool) -> bool {
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), time, |emulation| !is_true(emulation));
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

/// The state of a terminal that a program must restore.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TerminalState {
    /// The modes of the line discipline.
    modes: String,
    /// The text, cursor, attributes and modes of the emulator, as escape sequences.
    screen: String,
}

/// A terminal with a program in it. Dropping it hangs up and ends the program; a test that panics
/// prints the screen.
pub(crate) struct Terminal {
    program: ChildProcess,
    shared: Arc<SharedEmulation>,
    slave: OwnedFd,
    /// `None` after the terminal hung up.
    master: Option<Arc<OwnedFd>>,
    /// The pipe of commands to the reader.
    control: OwnedFd,
    reader: Option<JoinHandle<()>>,
    state_before: TerminalState,
}

impl Terminal {
    /// Runs gputop on a host, in a terminal of 80x24.
    pub(crate) fn start<'a>(host: &Host, args: impl IntoIterator<Item = &'a str>) -> Self {
        Self::run(&mut host.gputop(args), 80, 24)
    }

    /// Runs gputop on a host, in a terminal of this size.
    pub(crate) fn start_at<'a>(
        host: &Host,
        width: u16,
        height: u16,
        args: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        Self::run(&mut host.gputop(args), width, height)
    }

    /// Runs a command as the leader of a session whose controlling terminal this is.
    pub(crate) fn run(command: &mut Command, width: u16, height: u16) -> Self {
        Self::run_answering(command, width, height, ATTRIBUTES)
    }

    /// Like [`Self::run`], in a terminal that answers [`QUESTION`] with these bytes.
    pub(crate) fn run_answering(
        command: &mut Command,
        width: u16,
        height: u16,
        answer: &'static str,
    ) -> Self {
        control_terminal(command);
        Self::spawn(command, width, height, answer)
    }

    /// Runs a command in a session without a controlling terminal: this terminal is open, but sends
    /// no signals.
    pub(crate) fn run_uncontrolled(command: &mut Command, width: u16, height: u16) -> Self {
        // SAFETY: one system call, which allocates nothing and takes no lock.
        unsafe { command.pre_exec(|| Ok(rustix::process::setsid().map(drop)?)) };
        Self::spawn(command, width, height, ATTRIBUTES)
    }

    fn spawn(command: &mut Command, width: u16, height: u16, answer: &'static str) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = rustix::pty::openpt(flags).expect("a pty is available");
        rustix::pty::grantpt(&master)
            .and_then(|()| rustix::pty::unlockpt(&master))
            .expect("the pty is ours");
        let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags).expect("the pty is unlocked");
        tcsetwinsize(&slave, winsize(width, height)).expect("a pty has a size");
        let (rows, columns) = rows_and_columns(width, height);
        let mut emulator = vt100::Parser::new(rows, columns, 0);
        emulator.process(TEXT_BEFORE);
        let state_before = TerminalState::read(&slave, emulator.screen());
        let emulation = Mutex::new(Emulation {
            emulator,
            bytes: Vec::new(),
            drawn: 0,
        });
        let shared = Arc::new(SharedEmulation {
            emulation,
            changed: Condvar::new(),
        });
        let stream = || slave.try_clone().expect("a descriptor is available");
        let program =
            ChildProcess::spawn(command.stdin(stream()).stdout(stream()).stderr(stream()));
        let master = Arc::new(master);
        let (commands, control) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
        let reader = thread::spawn({
            let (shared, master) = (Arc::clone(&shared), Arc::clone(&master));
            move || read_pty(&shared, &master, &commands, answer)
        });
        Self {
            program,
            shared,
            slave,
            master: Some(master),
            control,
            reader: Some(reader),
            state_before,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.program.pid()
    }

    /// The program.
    pub(crate) fn handle(&self) -> &ProcessHandle {
        &self.program.handle
    }

    /// The agent of the viewer that runs here.
    #[track_caller]
    pub(crate) fn agent(&self) -> ProcessHandle {
        match children_with_argument(self.pid(), "agent").as_slice() {
            [agent] => ProcessHandle::open(*agent),
            others => panic!("the viewer has not one agent: {others:?}"),
        }
    }

    /// Types keys.
    pub(crate) fn keys(&self, keys: &str) {
        let master = self.master.as_ref().expect("the terminal has not hung up");
        rustix::io::write(master, keys.as_bytes()).expect("the terminal takes keys");
    }

    /// Waits until the program has read everything that was typed.
    #[track_caller]
    pub(crate) fn wait_until_read(&self) {
        wait_until("all keys are read", || self.unread() == 0);
    }

    /// The number of bytes that were typed and not read.
    pub(crate) fn unread(&self) -> u64 {
        rustix::io::ioctl_fionread(&self.slave).expect("a pty has a queue")
    }

    pub(crate) fn resize(&self, width: u16, height: u16) {
        let (rows, columns) = rows_and_columns(width, height);
        self.shared
            .lock()
            .emulator
            .screen_mut()
            .set_size(rows, columns);
        tcsetwinsize(&self.slave, winsize(width, height)).expect("a pty has a size");
    }

    /// The text on the screen.
    pub(crate) fn text(&self) -> String {
        self.shared.lock().emulator.screen().contents()
    }

    /// The first line on the screen that begins with this text; empty when none does.
    pub(crate) fn line_starting_with(&self, beginning: &str) -> String {
        lines_in_frames(&self.text())
            .find(|line| line.starts_with(beginning))
            .unwrap_or_default()
            .to_owned()
    }

    /// Every byte that was written to the terminal.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.shared.lock().bytes.clone()
    }

    /// Waits until this text is on the screen.
    #[track_caller]
    pub(crate) fn wait_for(&self, text: &str) {
        self.wait_until(&format!("`{text}`"), |screen| {
            screen.contents().contains(text)
        });
    }

    /// Waits until this text is not on the screen.
    #[track_caller]
    pub(crate) fn wait_until_gone(&self, text: &str) {
        self.wait_until(&format!("no `{text}`"), |screen| {
            !screen.contents().contains(text)
        });
    }

    /// Waits until a condition holds for the screen. `description` completes "never …" when it does
    /// not come true.
    #[track_caller]
    pub(crate) fn wait_until(&self, description: &str, is_true: impl Fn(&vt100::Screen) -> bool) {
        let came_true = self
            .shared
            .becomes_true_within(DEADLINE, |emulation| is_true(emulation.emulator.screen()));
        assert!(came_true, "never {description}");
    }

    /// Waits for this many more frames.
    #[track_caller]
    pub(crate) fn wait_for_frames(&self, count: usize) {
        // Only the new bytes are searched: all of them, after each new one, take a processor.
        let begin = (self.shared.lock().bytes.len() + 1).saturating_sub(END_UPDATE.len());
        self.wait_for_bytes(&format!("{count} more frames"), |bytes| {
            count_frames(&bytes[begin..]) >= count
        });
    }

    /// Waits until a condition holds for all bytes that were written to the terminal.
    #[track_caller]
    pub(crate) fn wait_for_bytes(&self, description: &str, is_true: impl Fn(&[u8]) -> bool) {
        let came_true = self
            .shared
            .becomes_true_within(DEADLINE, |emulation| is_true(&emulation.bytes));
        assert!(came_true, "never {description}");
    }

    /// Stops reading what the program writes, as a terminal does whose connection hangs.
    pub(crate) fn stop_reading(&self) {
        rustix::io::write(&self.control, &[STOP_READING]).expect("the reader runs");
    }

    pub(crate) fn resume_reading(&self) {
        rustix::io::write(&self.control, &[RESUME_READING]).expect("the reader runs");
    }

    /// Hangs up, as a terminal does that is closed.
    pub(crate) fn hang_up(&mut self) {
        self.stop_reader();
        self.master = None;
    }

    fn stop_reader(&mut self) {
        let _reader_ended = rustix::io::write(&self.control, &[EXIT]);
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the reader does not panic");
        }
    }

    /// Waits for the end of the program.
    #[track_caller]
    pub(crate) fn wait_for_exit(&mut self) -> ExitStatus {
        assert!(self.handle().ends_within(DEADLINE), "gputop does not end");
        self.program.wait()
    }

    /// Waits until text, cursor and modes are as they were before the program started.
    #[track_caller]
    pub(crate) fn wait_until_restored(&self) {
        let state =
            |emulation: &Emulation| TerminalState::read(&self.slave, emulation.emulator.screen());
        self.shared
            .becomes_true_within(DEADLINE, |emulation| state(emulation) == self.state_before);
        assert_eq!(state(&self.shared.lock()), self.state_before);
        let bytes = self.bytes();
        let is_ended = last_position(&bytes, BEGIN_UPDATE) <= last_position(&bytes, END_UPDATE);
        assert!(is_ended, "a synchronized update was begun and not ended");
    }

    /// Waits until gputop has left the alternate screen and restored cursor, mouse and modes.
    /// Returns the text on the main screen, which may have gputop's last words.
    #[track_caller]
    pub(crate) fn wait_for_main_screen(&self) -> String {
        self.wait_until("the main screen", |screen| !screen.alternate_screen());
        self.wait_until("a visible cursor", |screen| !screen.hide_cursor());
        self.wait_until("mouse and pastes as before", |screen| {
            screen.mouse_protocol_mode() == vt100::MouseProtocolMode::None
                && !screen.bracketed_paste()
        });
        assert_eq!(self.modes(), self.state_before.modes);
        self.text()
    }

    /// The modes of the line discipline.
    pub(crate) fn modes(&self) -> String {
        modes(&self.slave)
    }

    /// The modes of the line discipline before the program started.
    pub(crate) fn modes_before(&self) -> &str {
        &self.state_before.modes
    }

    /// Types `q`, and checks that gputop exits with 0 and restores the terminal. Returns the time
    /// until the exit.
    #[track_caller]
    pub(crate) fn quit(&mut self) -> Duration {
        let typed = now();
        self.keys("q");
        let status = self.wait_for_exit();
        let took = typed.elapsed();
        assert_eq!(exit_code(status), 0);
        self.wait_until_restored();
        took
    }
}

impl Drop for Terminal {
    #[expect(clippy::print_stderr, reason = "a failed test shows the screen")]
    fn drop(&mut self) {
        // Whatever a test has waited for in vain: the screen tells why.
        if thread::panicking() {
            let state = process_state(self.pid())
                .map_or("gone".to_owned(), |letter| format!("in state {letter}"));
            eprintln!("the program is {state}; the screen is\n{}\n", self.text());
        }
        self.stop_reader();
    }
}

impl TerminalState {
    fn read(slave: &OwnedFd, screen: &vt100::Screen) -> Self {
        Self {
            modes: modes(slave),
            screen: screen.state_formatted(),
        }
    }
}

/// The number that follows these words.
pub(crate) fn number_after(text: &str, words: &str) -> Option<u32> {
    let (_, rest) = text.split_once(words)?;
    rest.split(|letter: char| !letter.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}

/// The number of complete frames.
pub(crate) fn count_frames(bytes: &[u8]) -> usize {
    bytes
        .windows(END_UPDATE.len())
        .filter(|window| *window == END_UPDATE)
        .count()
}

/// The position of the last occurrence of a sequence.
fn last_position(bytes: &[u8], sequence: &[u8]) -> Option<usize> {
    bytes
        .windows(sequence.len())
        .rposition(|window| window == sequence)
}

fn modes(slave: &OwnedFd) -> String {
    format!("{:?}", tcgetattr(slave).expect("a pty has modes"))
}

fn rows_and_columns(width: u16, height: u16) -> (std::num::NonZeroU16, std::num::NonZeroU16) {
    (
        height.try_into().expect("at least one row"),
        width.try_into().expect("at least one column"),
    )
}

fn winsize(width: u16, height: u16) -> Winsize {
    Winsize {
        ws_row: height,
        ws_col: width,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

/// Makes a command the leader of a session whose controlling terminal is at its standard input.
fn control_terminal(command: &mut Command) {
    // SAFETY: two system calls, which allocate nothing and take no lock.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            Ok(rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?)
        });
    }
}

/// Passes what is written to the terminal to the emulator, and answers [`QUESTION`], until the
/// command to exit.
fn read_pty(shared: &SharedEmulation, master: &OwnedFd, commands: &OwnedFd, answer: &str) {
    let mut is_reading = true;
    let mut bytes = vec![0; 1 << 16];
    loop {
        let mut fds = vec![PollFd::new(commands, PollFlags::IN)];
        if is_reading {
            fds.push(PollFd::new(master, PollFlags::IN));
        }
        rustix::event::poll(&mut fds, None).expect("poll waits");
        let has_command = !fds[0].revents().is_empty();
        let has_output = fds.get(1).is_some_and(|fd| !fd.revents().is_empty());
        if has_command {
            let mut command = [0];
            match rustix::io::read(commands, &mut command) {
                Ok(1) if command == [STOP_READING] => is_reading = false,
                Ok(1) if command == [RESUME_READING] => is_reading = true,
                _ => return,
            }
        } else if has_output {
            match rustix::io::read(master, &mut bytes) {
                Ok(length @ 1..) => {
                    let is_asked = shared.lock().write(&bytes[..length]);
                    shared.changed.notify_all();
                    if is_asked {
                        let _hung_up = rustix::io::write(master, answer.as_bytes());
                    }
                }
                // The last process that had the slave open is gone.
                _ => is_reading = false,
            }
        }
    }
}

/// The lines of a screen, without the frames at their ends and the blank column after each.
pub(crate) fn lines_in_frames(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(|line| {
        let line = line.strip_prefix('│').unwrap_or(line);
        line.strip_prefix([' ', '▎', '█'])
            .unwrap_or(line)
            .trim_end_matches('│')
    })
}
