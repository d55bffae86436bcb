//! Which processes the process list shows, and how it groups them.

use strum::VariantArray;

use crate::model::HostGpu;
use crate::protocol::host_key::HostKey;

/// Which processes the process list shows, and how it groups them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct View {
    pub grouping: Grouping,
    /// Whether only suspects are shown: processes that hold memory and should not, and leftovers of
    /// dead jobs.
    pub only_suspects: bool,
    /// Whether only processes of the user that gputop runs as are shown.
    pub only_mine: bool,
    /// The GPU whose processes alone are shown; `None` shows those of all.
    pub gpu: Option<HostGpu>,
    /// The host whose GPUs and processes alone are shown; `None` shows those of all.
    pub host: Option<HostKey>,
}

impl View {
    /// Whether the lists show what is on a host.
    pub(crate) fn shows(&self, host: HostKey) -> bool {
        self.host.is_none_or(|shown| shown == host)
    }
}

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, VariantArray, strum::Display, strum::IntoStaticStr,
)]
#[strum(serialize_all = "lowercase")]
pub enum Grouping {
    #[default]
    #[strum(serialize = "none")]
    Flat,
    /// One group for each GPU, with its memory. A process on several GPUs is in the group of each.
    Gpu,
    /// One group for each job, with the memory of the job.
    Job,
    /// One group for each user, with the memory of the user's processes.
    User,
    /// Each process below its parent. Related processes without a GPU are listed too.
    Tree,
}

impl Grouping {
    /// The grouping that the `b` key chooses next.
    #[must_use]
    pub fn next(self) -> Self {
        match self {
            Self::Flat => Self::Gpu,
            Self::Gpu => Self::Job,
            Self::Job => Self::User,
            Self::User => Self::Tree,
            Self::Tree => Self::Flat,
        }
    }
}

/// Returns the index of the first row of a list that is `height` rows high, heading included. The
/// cursor is visible, and no row stays blank while rows are scrolled out.
pub(in crate::app) fn first_row(top: usize, cursor: usize, rows: usize, height: u16) -> usize {
    let visible = usize::from(height.saturating_sub(1)).max(1);
    top.min(cursor)
        .max((cursor + 1).saturating_sub(visible))
        .min(rows.saturating_sub(visible))
}
