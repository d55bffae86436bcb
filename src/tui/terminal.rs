//! The person's terminal: taken over, drawn on, and given back as it was, whatever happens.
//!
//! A frame is painted in memory ([`mod@paint`]) and written by a thread of its own, because a terminal that
//! nobody reads blocks its writer. While that thread writes, no frame is drawn. Giving the terminal
//! back waits for nobody longer than [`PATIENCE`], and works from any thread, a panicking one too.

mod clipboard;
mod paint;

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect, Size};
use rustix::termios::{self, OptionalActions, QueueSelector, Termios};
use tokio::sync::mpsc as queue;

use self::paint::Painter;
use crate::base::terminal::{self, write_unbuffered};
use crate::base::text::Text;

/// How long giving the terminal back waits for it to take what it is sent; at most twice.
const PATIENCE: Duration = Duration::from_millis(80);

/// Alternate screen, no cursor, and what is pasted comes marked: its letters are no keys.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?2004h";
/// Clicks and the wheel, with coordinates that do not end at 223. Not every move: those would wake us.
const MOUSE_ON: &str = "\x1b[?1000h\x1b[?1006h";
/// Undoes it all, after a frame that was cut off in the middle too. The pen that comes back with the shell's
/// screen may be ours, where the screen was taken twice.
const LEAVE: &str = "\x1b[?2026l\x1b[?2004l\x1b[?1006l\x1b[?1000l\x1b[m\x1b[?25h\x1b[?1049l\x1b[m";

/// A synchronized update: the terminal shows what is between at once, or not yet.
const BEGIN: &str = "\x1b[?2026h";
const END: &str = "\x1b[?2026l";

/// Bytes in one write. A frame is given up between two of them.
const CHUNK: usize = 4096;

/// The terminal itself, as the session, its writer and a panic share it.
#[derive(Debug)]
pub struct Tty {
    /// As the terminal was before; how it is given back.
    prior: Mutex<Termios>,
    /// It is the shell's: no more frames.
    left: AtomicBool,
    /// Held during a write, so that nothing comes between the end of the last frame and [`LEAVE`].
    turn: Mutex<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is inside is whole: nobody panics in the middle of changing it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tty {
    fn raw(&self) -> io::Result<()> {
        let mut raw = lock(&self.prior).clone();
        raw.make_raw();
        Ok(termios::tcsetattr(io::stdout(), OptionalActions::Now, &raw)?)
    }

    /// Gives the terminal back. Doing so twice does no harm.
    pub fn leave(self: &Arc<Self>) {
        self.left.store(true, Ordering::SeqCst);
        let (done, is_done) = mpsc::channel();
        let tty = Arc::clone(self);
        let writer = thread::Builder::new().name("leave".to_owned()).spawn(move || {
            let _turn = lock(&tty.turn);
            // A turn that comes too late finds us back from the shell.
            if tty.left.load(Ordering::SeqCst) {
                // Nobody is left to tell, should the terminal be gone.
                let _gone: io::Result<()> = write_unbuffered(LEAVE.as_bytes());
            }
            let _late: Result<(), mpsc::SendError<()>> = done.send(());
        });
        let stuck = writer.is_ok() && is_done.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout);
        if stuck {
            let _gone: rustix::io::Result<()> = termios::tcflush(io::stdout(), QueueSelector::OFlush);
        }
        // Setting the modes wakes a writer that waits for room, which flushing alone does not.
        let _gone: rustix::io::Result<()> = termios::tcsetattr(io::stdout(), OptionalActions::Now, &lock(&self.prior));
        if stuck {
            let _in_vain: Result<(), mpsc::RecvTimeoutError> = is_done.recv_timeout(PATIENCE);
        }
    }

    fn write(&self, frame: &str) -> io::Result<()> {
        for chunk in frame.as_bytes().chunks(CHUNK) {
            let _turn = lock(&self.turn);
            if self.left.load(Ordering::SeqCst) {
                return Ok(());
            }
            write_unbuffered(chunk)?;
        }
        Ok(())
    }
}

/// The screen: what was drawn last, and whether the next frame may be.
#[derive(Debug)]
pub struct Screen {
    tty: Arc<Tty>,
    painter: Painter,
    mouse: bool,
    frames: mpsc::Sender<String>,
    written: queue::UnboundedReceiver<String>,
    /// The one buffer there is, unless the writer has it.
    spare: Option<String>,
}

impl Screen {
    /// Takes the terminal over. The screen is cleared with the first frame.
    ///
    /// # Errors
    ///
    /// When the standard output is no terminal, or there can be no more threads.
    pub fn enter(mouse: bool) -> io::Result<Self> {
        let tty = Arc::new(Tty {
            prior: Mutex::new(termios::tcgetattr(io::stdout())?),
            left: AtomicBool::new(false),
            turn: Mutex::new(()),
        });
        let (frames, to_write) = mpsc::channel::<String>();
        let (done, written) = queue::unbounded_channel();
        let writer = Arc::clone(&tty);
        thread::Builder::new().name("frames".to_owned()).spawn(move || {
            for frame in to_write {
                // A terminal that takes nothing more is noticed by whoever watches it.
                let _gone: io::Result<()> = writer.write(&frame);
                if done.send(frame).is_err() {
                    return;
                }
            }
        })?;
        let mut screen =
            Self { tty, painter: Painter::new(screen_size()), mouse, frames, written, spare: Some(String::new()) };
        screen.take()?;
        Ok(screen)
    }

    /// Takes the terminal over, whatever became of it, and forgets what was on it.
    ///
    /// # Errors
    ///
    /// When it is gone.
    pub fn take(&mut self) -> io::Result<()> {
        self.tty.raw()?;
        self.tty.left.store(false, Ordering::SeqCst);
        self.painter = Painter::new(screen_size());
        self.painter.bytes.push_str(ENTER);
        if self.mouse {
            self.painter.bytes.push_str(MOUSE_ON);
        }
        self.painter.clear();
        Ok(())
    }

    /// Asks the terminal to take a text into its clipboard, with the next frame.
    pub fn copy(&mut self, text: &str) {
        self.painter.bytes.push_str(&clipboard::sequence(text));
    }

    /// Takes nothing on the screen for granted: the next frame draws all of it.
    pub fn forget(&mut self) {
        self.painter.clear();
    }

    /// Rings the bell with the next frame.
    pub fn ring(&mut self) {
        self.painter.bytes.push('\x07');
    }

    /// Takes the terminal over from a shell, which may have changed its modes.
    ///
    /// # Errors
    ///
    /// When it is gone.
    pub fn return_from_shell(&mut self) -> io::Result<()> {
        *lock(&self.tty.prior) = termios::tcgetattr(io::stdout())?;
        self.take()
    }

    /// For those who give the terminal back.
    pub fn tty(&self) -> Arc<Tty> {
        Arc::clone(&self.tty)
    }

    /// Waits until a frame may be drawn: until the one before is written.
    pub async fn ready(&mut self) {
        if self.spare.is_none() {
            self.spare = self.written.recv().await;
        }
    }

    /// Whether a frame may be drawn.
    pub fn is_ready(&mut self) -> bool {
        if self.spare.is_none() {
            self.spare = self.written.try_recv().ok();
        }
        self.spare.is_some()
    }

    /// Draws a frame, if one may be drawn, and has what changed written. Nothing is when nothing did.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Buffer)) {
        if !self.is_ready() {
            return;
        }
        // Made anew: it is many times the size of what is remembered of it, and most seconds need one.
        let mut drawing = Buffer::empty(Rect::from((Position::ORIGIN, screen_size())));
        draw(&mut drawing);
        self.painter.paint(&mut drawing);
        let painted = &mut self.painter.bytes;
        if painted.is_empty() {
            return;
        }
        if let Some(mut frame) = self.spare.take() {
            frame.clear();
            frame.push_str(BEGIN);
            frame.push_str(painted);
            frame.push_str(END);
            painted.clear();
            let _at_exit: Result<(), mpsc::SendError<String>> = self.frames.send(frame);
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.tty.leave();
    }
}

fn screen_size() -> Size {
    Size::from(terminal::size())
}

/// From now on a panic in any thread gives the terminal back first, where one was taken over, then says
/// in one line what happened, and ends the program.
pub fn end_on_panic(tty: Option<Arc<Tty>>) {
    std::panic::set_hook(Box::new(move |panic| {
        if let Some(tty) = &tty {
            tty.leave();
        }
        let what = Text::new(panic.payload_as_str().unwrap_or("panic").replace('\n', " "));
        let place = panic.location().map_or_else(String::new, |place| format!(" ({place})"));
        let _closed: io::Result<()> =
            writeln!(io::stderr(), "gputop: this is a bug in gputop, please report it: {what}{place}");
        #[expect(clippy::exit, reason = "the other threads know nothing of the panic, and would go on")]
        std::process::exit(PANICKED);
    }));
}

/// The exit code of a program of Rust that panicked.
const PANICKED: i32 = 101;
