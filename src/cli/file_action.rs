//! The actions of the hidden subcommand `file-action`.

use clap::ValueEnum;

/// An action on a file whose file system may hang.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum FileAction {
    /// Print the file
    Read,
    /// Replace the file by the standard input
    Replace,
    /// Write the standard input to a new file, with a number in its name if that name is taken; print its path
    Create,
    /// Check that the file can be written
    Check,
    /// Print the lines of a recording
    Play,
    /// Print what happened in a recording
    Outline,
    /// Write the standard input, a full line and a checkpoint, as the history of a host
    KeepHistory,
    /// Print the past of a host
    ReadHistory,
    /// Print the past of this host that the recorder named in this note has seen
    ReadRecorder,
}

impl FileAction {
    /// Returns the word for this action on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Replace => "replace",
            Self::Create => "create",
            Self::Check => "check",
            Self::Play => "play",
            Self::Outline => "outline",
            Self::KeepHistory => "keep-history",
            Self::ReadHistory => "read-history",
            Self::ReadRecorder => "read-recorder",
        }
    }
}
