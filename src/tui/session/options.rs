//! The options of the session.

use std::path::PathBuf;

use crate::app::AppOptions;
use crate::app::settings::Settings;
use crate::files::history::HistoryFiles;
use crate::source::{AskedJob, SlurmCommands, Source};
use crate::view::Theme;

/// The values that a session starts with: sources, settings, and choices from the command line.
#[derive(Debug)]
pub(crate) struct SessionOptions {
    pub sources: Vec<Source>,
    pub app: AppOptions,
    /// The job of `--slurm`; `None` without one.
    pub asked_job: Option<AskedJob>,
    /// The commands of Slurm, where `--slurm` says; on this host without it.
    pub slurm_commands: SlurmCommands,
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
    /// The configuration file that the user named; `None` for the usual one.
    pub named_config: Option<PathBuf>,
    pub settings_files: SettingsFiles,
    /// `None` when no history is kept: at the user's request, in a replay, and for the simulated
    /// machine.
    pub history_files: Option<HistoryFiles>,
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

/// The files in which the session saves settings.
#[derive(Debug)]
pub(crate) struct SettingsFiles {
    /// `config.toml`; `None` without a home directory.
    pub config: Option<PathBuf>,
    /// `screen.toml`, which keeps what was changed on the screen, and what it holds; `None` when
    /// nothing may be written there.
    pub last_run: Option<(PathBuf, Settings)>,
}
