//! The user's terminal: taken over, drawn on, and restored, also after a panic.
//!
//! A frame is painted in memory ([`mod@paint`]) and written by a thread of its own, because writing
//! to a terminal that nothing reads blocks. While that thread writes, no frame is drawn. Restoring
//! the terminal works from any thread and takes no longer than twice [`RESTORE_TIMEOUT`].

mod clipboard;
pub mod input;
mod paint;
mod replies;

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
use self::replies::QUESTION;
use crate::base::terminal::{self, write_unbuffered};
use crate::base::text::Text;

/// How long restoring waits for the terminal to accept the last bytes, at most twice.
const RESTORE_TIMEOUT: Duration = Duration::from_millis(80);

/// Switches to the alternate screen, hides the cursor, and turns on bracketed paste, so that pasted
/// letters are no keys.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?2004h";
/// Reports clicks and the wheel, with coordinates above 223 too; not movements, each of which would
/// wake gputop.
const MOUSE_ON: &str = "\x1b[?1000h\x1b[?1006h";
/// Undoes all of these, also after a frame that was cut off. Resets the style twice: the shell's
/// screen comes back with the style that it was left with.
const LEAVE: &str = "\x1b[?2026l\x1b[?2004l\x1b[?1006l\x1b[?1000l\x1b[m\x1b[?25h\x1b[?1049l\x1b[m";

/// Begin and end of a synchronized update, which the terminal shows as a whole.
const BEGIN: &str = "\x1b[?2026h";
const END: &str = "\x1b[?2026l";

/// The most bytes of one write. When the terminal is restored, a frame stops after the current
/// write.
const CHUNK: usize = 4096;

/// The modes of the terminal, shared by the session, the writing thread and the panic hook.
#[derive(Debug)]
pub struct Tty {
    prior: Mutex<Termios>,
    /// Whether the terminal is restored, so that no frame may be written.
    is_restored: AtomicBool,
    /// Held during a write, so that [`LEAVE`] comes after the last write of a frame.
    write_lock: Mutex<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds the lock, so the content is consistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tty {
    fn set_raw_mode(&self) -> io::Result<()> {
        let mut raw = lock(&self.prior).clone();
        raw.make_raw();
        Ok(termios::tcsetattr(
            io::stdout(),
            OptionalActions::Now,
            &raw,
        )?)
    }

    /// Restores the terminal. More than one call does no harm.
    pub fn restore(self: &Arc<Self>) {
        self.is_restored.store(true, Ordering::SeqCst);
        let (done, end) = mpsc::channel();
        let tty = Arc::clone(self);
        let writer = thread::Builder::new()
            .name("restore".to_owned())
            .spawn(move || {
                let _lock = lock(&tty.write_lock);
                // By now the user may be back from the shell, and the screen taken over again.
                if tty.is_restored.load(Ordering::SeqCst) {
                    let _gone: io::Result<()> = write_unbuffered(LEAVE.as_bytes());
                }
                let _timed_out: Result<(), mpsc::SendError<()>> = done.send(());
            });
        let is_stuck = writer.is_ok()
            && end.recv_timeout(RESTORE_TIMEOUT) == Err(mpsc::RecvTimeoutError::Timeout);
        if is_stuck {
            let _gone: rustix::io::Result<()> =
                termios::tcflush(io::stdout(), QueueSelector::OFlush);
        }
        // Setting the modes wakes a writer that waits for room; flushing alone does not.
        let _gone: rustix::io::Result<()> =
            termios::tcsetattr(io::stdout(), OptionalActions::Now, &lock(&self.prior));
        if is_stuck {
            let _timed_out: Result<(), mpsc::RecvTimeoutError> = end.recv_timeout(RESTORE_TIMEOUT);
        }
    }

    fn write(&self, frame: &str) -> io::Result<()> {
        for chunk in frame.as_bytes().chunks(CHUNK) {
            let _lock = lock(&self.write_lock);
            if self.is_restored.load(Ordering::SeqCst) {
                return Ok(());
            }
            write_unbuffered(chunk)?;
        }
        Ok(())
    }
}

/// The screen: the painter, and the thread that writes its frames.
#[derive(Debug)]
pub struct Screen {
    tty: Arc<Tty>,
    painter: Painter,
    /// The cells of the last drawing. Kept, because new memory for each frame would take a tenth of
    /// the viewer's CPU time.
    drawing: Buffer,
    mouse: bool,
    frames: mpsc::Sender<String>,
    written: queue::UnboundedReceiver<String>,
    /// The only frame buffer; `None` while the writing thread has it.
    spare: Option<String>,
}

impl Screen {
    /// Takes the terminal over. The first frame clears the screen.
    ///
    /// # Errors
    ///
    /// When the standard output is no terminal, or no thread can be started.
    pub fn enter(mouse: bool) -> io::Result<Self> {
        let tty = Arc::new(Tty {
            prior: Mutex::new(termios::tcgetattr(io::stdout())?),
            is_restored: AtomicBool::new(false),
            write_lock: Mutex::new(()),
        });
        let (frames, to_write) = mpsc::channel::<String>();
        let (done, written) = queue::unbounded_channel();
        let writer = Arc::clone(&tty);
        thread::Builder::new()
            .name("frames".to_owned())
            .spawn(move || {
                for frame in to_write {
                    // The watchdog of the session notices a terminal that is gone.
                    let _gone: io::Result<()> = writer.write(&frame);
                    if done.send(frame).is_err() {
                        return;
                    }
                }
            })?;
        let (painter, drawing, spare) = (
            Painter::new(screen_size()),
            Buffer::default(),
            Some(String::new()),
        );
        let mut screen = Self {
            tty,
            painter,
            drawing,
            mouse,
            frames,
            written,
            spare,
        };
        screen.take_over()?;
        Ok(screen)
    }

    /// Takes the terminal over again, in whatever state it is. The next frame draws the whole
    /// screen.
    ///
    /// # Errors
    ///
    /// When the terminal is gone.
    pub fn take_over(&mut self) -> io::Result<()> {
        self.tty.set_raw_mode()?;
        self.tty.is_restored.store(false, Ordering::SeqCst);
        self.painter = Painter::new(screen_size());
        self.painter.bytes.push_str(ENTER);
        if self.mouse {
            self.painter.bytes.push_str(MOUSE_ON);
        }
        self.painter.clear();
        Ok(())
    }

    /// Asks the terminal to copy a text to its clipboard, with the next frame.
    pub fn copy(&mut self, text: &str) {
        self.painter.bytes.push_str(&clipboard::sequence(text));
    }

    /// Asks the terminal for its background: at once, or with the next frame while one is written.
    pub fn ask(&mut self) {
        self.painter.bytes.push_str(QUESTION);
        if self.is_ready() {
            self.write("", "");
        }
    }

    /// Makes the next frame draw the whole screen.
    pub fn redraw(&mut self) {
        self.painter.clear();
    }

    /// Rings the bell with the next frame.
    pub fn ring(&mut self) {
        self.painter.bytes.push('\x07');
    }

    /// Takes the terminal over from the shell, which may have changed the modes to restore.
    ///
    /// # Errors
    ///
    /// When the terminal is gone.
    pub fn return_from_shell(&mut self) -> io::Result<()> {
        *lock(&self.tty.prior) = termios::tcgetattr(io::stdout())?;
        self.take_over()
    }

    /// Returns the handle that restores the terminal.
    pub fn tty(&self) -> Arc<Tty> {
        Arc::clone(&self.tty)
    }

    /// Waits until the previous frame is written, so that a frame may be drawn.
    pub async fn ready(&mut self) {
        if self.spare.is_none() {
            self.spare = self.written.recv().await;
        }
    }

    /// Returns whether a frame may be drawn.
    pub fn is_ready(&mut self) -> bool {
        if self.spare.is_none() {
            self.spare = self.written.try_recv().ok();
        }
        self.spare.is_some()
    }

    /// Draws a frame, if one may be drawn, and starts to write the cells that changed.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Buffer)) {
        if !self.is_ready() {
            return;
        }
        self.drawing
            .resize(Rect::from((Position::ORIGIN, screen_size())));
        self.drawing.reset();
        draw(&mut self.drawing);
        self.painter.paint(&self.drawing);
        if !self.painter.bytes.is_empty() {
            self.write(BEGIN, END);
        }
    }

    /// Starts to write what was painted, if one may write.
    fn write(&mut self, begin: &str, end: &str) {
        if let Some(mut frame) = self.spare.take() {
            frame.clear();
            frame.push_str(begin);
            frame.push_str(&self.painter.bytes);
            frame.push_str(end);
            self.painter.bytes.clear();
            let _at_exit: Result<(), mpsc::SendError<String>> = self.frames.send(frame);
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.tty.restore();
    }
}

fn screen_size() -> Size {
    Size::from(terminal::size())
}

/// Makes a panic in any thread restore the terminal `tty`, if any, print one line, and end the
/// program.
pub fn end_on_panic(tty: Option<Arc<Tty>>) {
    std::panic::set_hook(Box::new(move |panic| {
        if let Some(tty) = &tty {
            tty.restore();
        }
        let message = Text::new(panic.payload_as_str().unwrap_or("panic").replace('\n', " "));
        let place = panic
            .location()
            .map_or_else(String::new, |place| format!(" ({place})"));
        let _closed: io::Result<()> = writeln!(
            io::stderr(),
            "gputop: this is a bug in gputop, please report it: {message}{place}"
        );
        #[expect(clippy::exit, reason = "the other threads would go on after the panic")]
        std::process::exit(PANICKED);
    }));
}

/// The exit code of a Rust program that panicked.
const PANICKED: i32 = 101;
