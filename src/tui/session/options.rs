//! The options of the session, and the functions that write settings.

use std::fmt;
use std::io;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use crate::app::AppOptions;
use crate::app::settings::Settings;
use crate::base::text::Text;
use crate::source::Source;
use crate::view::Theme;

/// The values that a session starts with: sources, settings, and choices from the command line.
#[derive(Debug)]
pub(crate) struct SessionOptions {
    pub sources: Vec<Source>,
    pub app: AppOptions,
    pub settings: Settings,
    /// The filter with which the process list begins; empty for none.
    pub filter: String,
    /// The theme, before the settings choose its colours.
    pub theme: Theme,
    pub mouse: bool,
    pub bell: bool,
    /// The program to run for each alert, and its arguments; empty for none.
    pub alert_command: Vec<String>,
    /// Sentences about the settings files, to show at the start.
    pub notices: Vec<String>,
    pub settings_files: SettingsFiles,
    /// `None` when no history is kept: at the user's request, in a replay, and for the simulated machine.
    pub history_files: Option<HistoryFiles>,
    pub recorder_command: RecorderCommand,
}

/// The files of a saved screen.
#[derive(Debug)]
pub(crate) struct ScreenFiles {
    /// The name of the files without an ending.
    pub name: String,
    pub svg: String,
    /// The series of the graph; `None` when there is none.
    pub csv: Option<String>,
}

/// Saves settings for the next run, within the given time.
pub(crate) type SaveChanges = Box<dyn Fn(&Settings, Duration)>;

/// The host whose history a file holds, and the source of its lines.
#[derive(Debug, Clone)]
pub(crate) struct HistoryOwner {
    pub name: Text,
    pub source: Text,
}

/// Returns the past of a host as JSON; `None` when there is none. Blocks while the file system hangs.
pub(crate) type ReadPast = Arc<dyn Fn(&HistoryOwner) -> Result<Option<String>, String> + Send + Sync>;

/// Starts a process that writes lines as the history of a host on this boot.
pub(crate) type WriteHistory = Box<dyn Fn(&HistoryOwner, &Text, &[u8]) -> io::Result<Child>>;

/// Reads and writes the history of hosts.
pub(crate) struct HistoryFiles {
    pub read: ReadPast,
    pub write: WriteHistory,
}

impl fmt::Debug for HistoryFiles {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("HistoryFiles").finish_non_exhaustive()
    }
}

/// Returns the command that writes a recording with this name. The error is one phrase.
type MakeRecorderCommand = dyn Fn(&str) -> Result<Command, String>;

/// Makes the command that writes a recording.
pub(crate) struct RecorderCommand(pub Box<MakeRecorderCommand>);

impl fmt::Debug for RecorderCommand {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RecorderCommand").finish_non_exhaustive()
    }
}

/// Writes settings and screens into files. `write_config` and `save_screen` block while the file system hangs.
pub(crate) struct SettingsFiles {
    /// Writes settings into `config.toml` and returns a sentence that says where, or why it failed.
    pub write_config: Arc<dyn Fn(&Settings) -> String + Send + Sync>,
    /// Saves a screen in new files and returns a sentence that says where, or why it failed.
    pub save_screen: Arc<dyn Fn(&ScreenFiles) -> String + Send + Sync>,
    /// The sentence for a write that takes longer than `patience`.
    pub late: String,
    pub patience: Duration,
    /// Saves settings that were changed on the screen for the next run. Waits no longer than the given time.
    pub save_changes: SaveChanges,
}

impl fmt::Debug for SettingsFiles {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SettingsFiles").field("late", &self.late).finish_non_exhaustive()
    }
}
