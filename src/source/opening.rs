//! The lines before the first line of an agent: those of a shell's start files, which are skipped,
//! and the answer of a host.

use std::fmt;

use tokio::time::Instant;

use super::schedule::NextTry;
use crate::base::text::Text;
use crate::protocol::line::Line;

/// How a connection has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ending {
    /// Why, in one sentence.
    pub(super) reason: Text,
    pub(super) next: NextTry,
    /// Whether the session did not answer over a control master of the user.
    pub(super) blames_master: bool,
    /// Whether Slurm has refused a step of a job because of its GPUs.
    pub(super) blames_gpus: bool,
    /// The answer of a host that has no gputop; `None` for any other end.
    pub(super) lacks_gputop: Option<Box<HostWithoutGputop>>,
}

impl Ending {
    /// An ending after which the host is connected again by itself.
    pub(super) fn new(reason: impl AsRef<str>) -> Self {
        Self {
            reason: Text::new(reason.as_ref()),
            next: NextTry::ByItself,
            blames_master: false,
            blames_gpus: false,
            lacks_gputop: None,
        }
    }
}

/// The answer of a host that has no gputop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostWithoutGputop {
    /// The kernel and the machine, as `uname -sm` prints them.
    pub(super) system: Text,
    /// The version of glibc; `None` where there is another C library.
    pub(super) glibc: Option<Text>,
    /// The user's own folder for copies of gputop, which may not exist.
    pub(super) folder: Text,
    pub(super) has_nvidia_smi: bool,
}

/// A line as an opening sees it.
pub(super) enum OpeningLine<'a> {
    /// Nothing of an agent.
    Skipped,
    /// The first line of an agent.
    Agent(&'a [u8]),
    /// The host has answered: lines of an agent follow. Holds the path of gputop on the host.
    Answered(Text),
    /// The host has answered: lines follow that this function understands.
    Translated(Translator),
    /// No line of an agent will come.
    Over(Ending),
}

/// A function that makes a line of an agent of another line; `None` for a line without a value.
pub(super) type Translator = Box<dyn FnMut(&[u8]) -> Result<Option<Line>, String> + Send>;

/// The rules for the lines before the first line of an agent.
pub(super) trait Opening: fmt::Debug + Send {
    /// Looks at a line.
    fn take<'a>(&mut self, line: &'a [u8]) -> OpeningLine<'a>;

    /// When the opening is over at the latest; `None` while it may take as long as it wants.
    fn deadline(&self) -> Option<Instant>;

    /// How the connection has ended if the deadline has passed.
    fn timed_out(&self) -> Ending;

    /// How the connection has ended, by the last lines on the standard error; at any time, also after
    /// the opening.
    fn ended(&self, last_lines: &[Text]) -> Ending;
}
