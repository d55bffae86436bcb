//! What a person can set about the screen and keep: plain data, and the words for it. Where it is kept is not known here.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::App;
use super::columns::Columns;
use super::gpu_columns::GpuColumn;
use super::list_view::Grouping;
use super::process_columns::{ProcessColumn, Sort};

/// Which colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Look {
    /// The terminal's own sixteen.
    #[default]
    Terminal,
    /// Blue and orange instead of green and red, so that people who cannot tell these apart see the same.
    Safe,
    /// Dark colours, for a light background.
    Light,
    /// None: bold, dim and reversed.
    Mono,
}

impl Look {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Terminal, Self::Safe, Self::Light, Self::Mono];

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Terminal => "terminal",
            Self::Safe => "safe",
            Self::Light => "light",
            Self::Mono => "mono",
        }
    }

    /// The next one, or the one before, around the end.
    #[must_use]
    pub fn step(self, by: isize) -> Self {
        let at = Self::ALL.iter().position(|it| *it == self).unwrap_or(0);
        Self::ALL[(at.cast_signed() + by).rem_euclid(Self::ALL.len().cast_signed()).cast_unsigned()]
    }
}

impl fmt::Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Look {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(|it| it.to_string()).join(", ");
        let found = Self::ALL.into_iter().find(|it| it.to_string() == name);
        found.ok_or_else(|| format!("`{name}` is no theme; there are {}", known()))
    }
}

impl fmt::Display for Grouping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Grouping {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(|it| it.to_string()).join(", ");
        let found = Self::ALL.into_iter().find(|it| it.to_string() == name);
        found.ok_or_else(|| format!("`{name}` is no way to group; there are {}", known()))
    }
}

/// What was set; absent where nothing was.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Settings {
    /// Which colours.
    pub theme: Option<Look>,
    /// From one reading to the next.
    pub interval: Option<Duration>,
    /// Which columns the list of processes has, and in which order.
    pub columns: Option<Columns<ProcessColumn>>,
    /// Which columns the list of GPUs has, and in which order.
    pub gpu_columns: Option<Columns<GpuColumn>>,
    /// How it is sorted.
    pub sort: Option<Sort>,
    /// How its lines stand together.
    pub group: Option<Grouping>,
    /// Whether it shows only processes of the user that gputop runs as.
    pub mine: Option<bool>,
    /// Whether the line of the host is there.
    pub host: Option<bool>,
}

impl Settings {
    /// These, and the others where these say nothing.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self {
            theme: self.theme.or(others.theme),
            interval: self.interval.or(others.interval),
            columns: self.columns.or(others.columns),
            gpu_columns: self.gpu_columns.or(others.gpu_columns),
            sort: self.sort.or(others.sort),
            group: self.group.or(others.group),
            mine: self.mine.or(others.mine),
            host: self.host.or(others.host),
        }
    }
}

impl App {
    /// Takes these settings over; what they do not say stays.
    pub fn settle(&mut self, settings: Settings) {
        self.look = settings.theme.unwrap_or(self.look);
        self.options.interval = settings.interval.unwrap_or(self.options.interval);
        self.processes.columns = settings.columns.or(self.processes.columns.take());
        self.gpus.columns = settings.gpu_columns.or(self.gpus.columns.take());
        self.processes.sort = settings.sort.unwrap_or(self.processes.sort);
        self.processes.view.grouping = settings.group.unwrap_or(self.processes.view.grouping);
        self.processes.view.mine = settings.mine.unwrap_or(self.processes.view.mine);
        self.host_line = settings.host.unwrap_or(self.host_line);
    }

    /// All settings as they are now.
    pub fn settings(&self) -> Settings {
        Settings {
            theme: Some(self.look),
            interval: Some(self.options.interval),
            columns: self.processes.columns.clone(),
            gpu_columns: self.gpus.columns.clone(),
            sort: Some(self.processes.sort),
            group: Some(self.processes.view.grouping),
            mine: Some(self.processes.view.mine),
            host: Some(self.host_line),
        }
    }
}
