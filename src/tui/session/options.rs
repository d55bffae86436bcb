//! The options of the session, and the functions that write settings.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::app::AppOptions;
use crate::app::settings::Settings;
use crate::source::Source;
use crate::view::Theme;

/// The values that a session starts with: sources, settings, and choices from the command line.
#[derive(Debug)]
pub(crate) struct SessionOptions {
    pub sources: Vec<Source>,
    pub app: AppOptions,
    pub settings: Settings,
    /// The theme, before the settings choose its colours.
    pub theme: Theme,
    pub mouse: bool,
    pub bell: bool,
    /// The program to run for each alert, and its arguments; empty for none.
    pub alert_command: Vec<String>,
    /// Sentences about the settings files, to show at the start.
    pub notices: Vec<String>,
    pub settings_files: SettingsFiles,
}

/// Saves settings for the next run, within the given time.
pub(crate) type SaveChanges = Box<dyn Fn(&Settings, Duration)>;

/// Writes settings into files. `write_config` blocks while the home directory hangs.
pub(crate) struct SettingsFiles {
    /// Writes settings into `config.toml` and returns a sentence that says where, or why it failed.
    pub write_config: Arc<dyn Fn(&Settings) -> String + Send + Sync>,
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
