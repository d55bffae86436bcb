//! Where snapshots come from: an agent, a child of this process, that writes lines and obeys commands.
//!
//! The agent may hang in its driver beyond any signal, so nobody here waits for it. Dropping a link closes
//! the agent's standard input, upon which it leaves by itself; it is never killed in the middle of a call.

use std::io;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::base::text::Text;
use crate::cli::AgentArgs;
use crate::protocol::command::Command;
use crate::protocol::host_key::HostKey;
use crate::protocol::line::Line;
use crate::source::SourceEvent;

/// The longest line that is taken in. 1,000 processes make one of a megabyte.
const LONGEST_LINE: usize = 64 << 20;

/// Room for a line that is kept from one to the next: enough for a hundred processes.
const SHORT_LINE: usize = 64 << 10;

/// Lines that may wait for the app. When it is stopped, the rest waits in the pipe, and then at the agent.
const WAITING_LINES: usize = 16;

/// How long after its last line an agent may take to say why it ended. Another process could keep
/// its standard error open for ever.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// An agent that was started, and is not connected yet.
#[derive(Debug)]
pub struct Agent(Child);

impl Agent {
    /// Starts an agent of this host.
    ///
    /// # Errors
    ///
    /// When there can be no more processes, or the program file is gone.
    pub fn start(args: &AgentArgs) -> io::Result<Self> {
        // The file may have been replaced by an update: the kernel still knows the one we run.
        let program = std::env::current_exe().ok().filter(|path| path.exists());
        let mut command = std::process::Command::new(program.unwrap_or_else(|| PathBuf::from("/proc/self/exe")));
        command.arg("agent").arg("--interval").arg(format!("{}ms", args.interval.as_millis()));
        if let Some(library) = &args.nvml_lib {
            command.arg("--nvml-lib").arg(library);
        }
        if args.demo {
            command.arg("--demo");
        }
        if args.detail {
            command.arg("--detail");
        }
        if args.readonly {
            command.arg("--readonly");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().map(Self)
    }
}

/// The connection to one agent. Dropping it ends the agent, unless the driver holds it.
#[derive(Debug)]
pub struct Link {
    events: mpsc::Receiver<SourceEvent>,
    commands: mpsc::UnboundedSender<Command>,
    /// They hold the pipes, and end with the link.
    _pipes: JoinSet<()>,
    child: Option<Child>,
}

impl Link {
    /// Connects to an agent. To be called within the runtime.
    ///
    /// # Errors
    ///
    /// When its pipes cannot be watched.
    pub fn to(Agent(mut child): Agent) -> io::Result<Self> {
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(io::Error::other("the agent was started without pipes"));
        };
        let (happened, events) = mpsc::channel(WAITING_LINES);
        let (commands, to_send) = mpsc::unbounded_channel();
        let mut pipes = JoinSet::new();
        pipes.spawn(receive(ChildStdout::from_std(stdout)?, ChildStderr::from_std(stderr)?, happened));
        pipes.spawn(send(ChildStdin::from_std(stdin)?, to_send));
        Ok(Self { events, commands, _pipes: pipes, child: Some(child) })
    }

    /// Starts an agent and connects to it. Should that fail, the link is one that ends at once, and says why.
    pub fn start(args: &AgentArgs) -> Self {
        Agent::start(args).and_then(Self::to).unwrap_or_else(|error| {
            let link = Self::ended();
            let (happened, events) = mpsc::channel(1);
            let reason = Text::new(format!("cannot start an agent: {error}"));
            let _room_for_one: Result<(), mpsc::error::TrySendError<SourceEvent>> =
                happened.try_send(SourceEvent::Ended(HostKey::FIRST, reason));
            Self { events, ..link }
        })
    }

    /// A link at whose other end is nobody.
    pub fn ended() -> Self {
        Self { events: mpsc::channel(1).1, commands: mpsc::unbounded_channel().0, _pipes: JoinSet::new(), child: None }
    }

    /// Waits for a line, or for the end of the link; after that, for ever. Safe to cancel.
    pub async fn next(&mut self) -> SourceEvent {
        match self.events.recv().await {
            Some(event) => event,
            None => std::future::pending().await,
        }
    }

    /// Asks this of the agent, without waiting until it reads it.
    pub fn ask(&self, command: Command) {
        // The end of a link is an event; what is asked after it has nobody to obey it.
        let _ended: Result<(), mpsc::error::SendError<Command>> = self.commands.send(command);
    }

    /// Ends the link, and hands out what is left of the agent.
    pub fn abandon(self) -> Option<Abandoned> {
        self.child.map(Abandoned)
    }
}

/// An agent whose link has ended, and that may not have left yet.
#[derive(Debug)]
pub struct Abandoned(Child);

impl Abandoned {
    /// Whether it has left; it is no zombie then. Does not wait.
    pub fn has_left(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }
}

async fn send(mut stdin: ChildStdin, mut commands: mpsc::UnboundedReceiver<Command>) {
    while let Some(command) = commands.recv().await {
        let mut line = Vec::new();
        let sent = command.write(&mut line).is_ok() && stdin.write_all(&line).await.is_ok();
        if !sent {
            return;
        }
    }
}

async fn receive(stdout: ChildStdout, mut stderr: ChildStderr, happened: mpsc::Sender<SourceEvent>) {
    let mut complaints = Complaints::default();
    let mut lines = Lines::of(stdout);
    let reason = loop {
        let line = tokio::select! {
            line = lines.next() => line,
            () = complaints.read(&mut stderr) => continue,
        };
        match line {
            Ok(Some(line)) => match Line::parse(line) {
                Ok(Some(line)) => {
                    if happened.send(SourceEvent::Line(HostKey::FIRST, Box::new(line))).await.is_err() {
                        return;
                    }
                }
                // A later agent may say more than is known here.
                Ok(None) => {}
                Err(error) => break format!("the agent's line is not understood: {error}"),
            },
            Ok(None) => {
                let _cut_short = tokio::time::timeout(LAST_WORDS, async {
                    while !complaints.ended {
                        complaints.read(&mut stderr).await;
                    }
                })
                .await;
                break match complaints.last() {
                    Some(words) => format!("the agent ended: {words}"),
                    None => "the agent ended without a word".to_owned(),
                };
            }
            Err(error) => break format!("cannot read from the agent: {error}"),
        }
    };
    let _at_exit: Result<(), mpsc::error::SendError<SourceEvent>> =
        happened.send(SourceEvent::Ended(HostKey::FIRST, Text::new(reason))).await;
}

/// The end of what an agent wrote to its standard error.
#[derive(Debug, Default)]
struct Complaints {
    tail: Vec<u8>,
    ended: bool,
}

impl Complaints {
    /// Reads some more; once there is no more, waits for ever. Safe to cancel.
    async fn read(&mut self, stderr: &mut ChildStderr) {
        if self.ended {
            return std::future::pending().await;
        }
        let mut some = [0; 4096];
        match stderr.read(&mut some).await {
            Ok(0) | Err(_) => self.ended = true,
            Ok(length) => self.tail.extend_from_slice(&some[..length]),
        }
        let surplus = self.tail.len().saturating_sub(2 * Text::LIMIT);
        self.tail.drain(..surplus);
    }

    /// Its last line that says something.
    fn last(&self) -> Option<Text> {
        let line = self.tail.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).rfind(|line| !line.is_empty())?;
        // The link says who ended.
        Some(Text::new(line.strip_prefix(b"gputop: ").unwrap_or(line)))
    }
}

/// Cuts a stream into lines.
#[derive(Debug)]
struct Lines<R> {
    from: R,
    bytes: Vec<u8>,
    /// How many of them are the line handed out last.
    taken: usize,
    /// How many are known to hold no line end.
    searched: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    fn of(from: R) -> Self {
        Self { from, bytes: Vec::with_capacity(64 << 10), taken: 0, searched: 0 }
    }

    /// The next line, without its end; absent when the stream has ended. Safe to cancel.
    async fn next(&mut self) -> io::Result<Option<&[u8]>> {
        self.bytes.drain(..self.taken);
        // The first line is the longest by far.
        self.bytes.shrink_to(SHORT_LINE);
        self.searched -= self.taken;
        self.taken = 0;
        loop {
            if let Some(length) = self.bytes[self.searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.searched + length;
                self.taken = line + 1;
                self.searched = line + 1;
                return Ok(Some(&self.bytes[..line]));
            }
            self.searched = self.bytes.len();
            if self.bytes.len() > LONGEST_LINE {
                let sentence = format!("its line is longer than {} MiB", LONGEST_LINE >> 20);
                return Err(io::Error::new(io::ErrorKind::InvalidData, sentence));
            }
            self.bytes.reserve(64 << 10);
            if self.from.read_buf(&mut self.bytes).await? == 0 {
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(task: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(task)
    }

    /// A link to a shell in place of an agent.
    fn link(script: &str) -> Link {
        let mut command = std::process::Command::new("sh");
        command.arg("-c").arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Link::to(Agent(command.spawn().unwrap())).unwrap()
    }

    #[track_caller]
    fn check_lost(script: &str, reason: &str) {
        let event = run(async { link(script).next().await });
        assert_eq!(event, SourceEvent::Ended(HostKey::FIRST, reason.into()), "{script}");
    }

    #[test]
    fn the_last_words_of_an_agent_are_the_reason() {
        check_lost("echo 'gputop: no more memory' >&2; echo >&2", "the agent ended: no more memory");
        check_lost("exit 1", "the agent ended without a word");
        check_lost("printf '\\033[2J' >&2", "the agent ended: \u{FFFD}[2J");
    }

    #[test]
    fn a_standard_error_that_stays_open_delays_the_reason_only_a_little() {
        check_lost("echo over >&2; exec 1>&-; read line", "the agent ended: over");
    }

    #[test]
    fn a_line_of_a_later_agent_is_passed_over_and_nonsense_ends_the_link() {
        let event = run(async { link("echo '{\"kind\":\"aura\"}'; echo nonsense").next().await });
        let SourceEvent::Ended(_, reason) = event else { panic!("{event:?}") };
        assert!(reason.as_str().starts_with("the agent's line is not understood"), "{reason}");
    }

    #[test]
    fn commands_reach_the_agent_and_do_not_wait_for_it() {
        run(async {
            let deaf = link("echo '{\"kind\":\"aura\"}'; exec sleep 60");
            for _ in 0..10_000 {
                deaf.ask(Command::Scan);
            }
            let mut obedient = link("read line; echo \"$line\" >&2");
            obedient.ask(Command::Scan);
            assert_eq!(
                obedient.next().await,
                SourceEvent::Ended(HostKey::FIRST, r#"the agent ended: {"command":"scan"}"#.into())
            );
            deaf.child.unwrap().kill().unwrap();
        });
    }

    #[test]
    fn an_agent_leaves_when_its_link_ends() {
        run(async {
            let mut abandoned = link("cat > /dev/null").abandon().unwrap();
            while !abandoned.has_left() {
                tokio::task::yield_now().await;
            }
        });
    }

    #[test]
    fn lines_are_cut_where_they_end() {
        run(async {
            let mut lines = Lines::of(&b"one\n\ntwo\nrest"[..]);
            assert_eq!(lines.next().await.unwrap(), Some(&b"one"[..]));
            assert_eq!(lines.next().await.unwrap(), Some(&b""[..]));
            assert_eq!(lines.next().await.unwrap(), Some(&b"two"[..]));
            assert_eq!(lines.next().await.unwrap(), None);
        });
    }

    #[test]
    fn a_line_without_end_is_an_error() {
        run(async {
            let error = Lines::of(tokio::io::repeat(b'x')).next().await.unwrap_err();
            assert_eq!(error.to_string(), "its line is longer than 64 MiB");
        });
    }
}
