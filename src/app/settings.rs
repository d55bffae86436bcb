//! The settings of the screen and the text of each value. The files and flags that hold these texts
//! are known elsewhere.
//!
//! A new setting is a line of `settings!`, and a field each in [`App::apply_settings`],
//! [`App::settings`] and where flags become settings in `config.rs`. The compiler asks for the last
//! three.

use std::fmt;
use std::str::FromStr;

use strum::VariantArray;

use super::App;
use super::layout::GpuView;
use crate::app::lists::columns::Columns;
use crate::app::lists::gpu_columns::GpuColumn;
use crate::app::lists::list_view::Grouping;
use crate::app::lists::process_columns::{ProcessColumn, Sort};
use crate::base::terminal::Background;
use crate::protocol::agent_options::Interval;

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, VariantArray, strum::Display, strum::IntoStaticStr,
)]
#[strum(serialize_all = "kebab-case")]
pub enum ThemeName {
    /// The theme that suits the background of the terminal.
    #[default]
    Auto,
    /// For a dark background.
    Dark,
    Light,
    /// The terminal's own sixteen colours.
    Terminal,
    /// Blue and orange instead of green and red, for people who cannot tell these apart.
    Safe,
    /// No colours: bold, dim and reversed.
    Mono,
    /// Catppuccin Mocha.
    Catppuccin,
    CatppuccinLatte,
    Gruvbox,
    GruvboxLight,
    Nord,
    Solarized,
    SolarizedLight,
    Dracula,
    /// The light variant of Dracula.
    Alucard,
    TokyoNight,
    TokyoNightDay,
}

impl ThemeName {
    /// The theme to draw with on this background; `None` when the background is not known. Never
    /// [`Self::Auto`].
    #[must_use]
    pub(crate) fn on(self, background: Option<Background>) -> Self {
        match (self, background) {
            (Self::Auto, Some(Background::Light)) => Self::Light,
            (Self::Auto, Some(Background::Dark) | None) => Self::Dark,
            (theme, _) => theme,
        }
    }

    /// The next theme, or the one before; after the last comes the first.
    #[must_use]
    pub fn step(self, by: isize) -> Self {
        let place = Self::VARIANTS
            .iter()
            .position(|theme| *theme == self)
            .unwrap_or(0);
        Self::VARIANTS[(place.cast_signed() + by)
            .rem_euclid(Self::VARIANTS.len().cast_signed())
            .cast_unsigned()]
    }
}

impl FromStr for ThemeName {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        parse_name(name, "theme")
    }
}

fn parse_name<T: VariantArray + Copy + fmt::Display>(name: &str, what: &str) -> Result<T, String> {
    let found = T::VARIANTS
        .iter()
        .copied()
        .find(|value| value.to_string() == name);
    found.ok_or_else(|| {
        let known: Vec<String> = T::VARIANTS.iter().map(ToString::to_string).collect();
        format!("`{name}` is no {what}; there are {}", known.join(", "))
    })
}

impl FromStr for GpuView {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        parse_name(name, "view of the GPUs")
    }
}

impl FromStr for Grouping {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        parse_name(name, "grouping")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SettingForm {
    Text,
    /// A list of texts in quotes, which `Display` and `FromStr` separate by commas.
    List,
    Flag,
}

/// Declares [`Settings`]. Each line is one setting: its key in `config.toml`, its type, and its
/// form in the file. The type's `Display` and `FromStr` convert the value to and from text.
macro_rules! settings {
    ($( $(#[doc = $doc:literal])* $name:ident: $type:ty = $form:ident, )+) => {
        /// The settings that the user set; `None` for those that were not set.
        #[derive(Debug, Clone, PartialEq, Default)]
        pub(crate) struct Settings {
            $( $(#[doc = $doc])* pub $name: Option<$type>, )+
        }

        impl Settings {
            /// How many settings there are.
            #[cfg(test)]
            pub(crate) const COUNT: usize = [$( stringify!($name) ),+].len();

            /// Returns these settings, with those of `others` where they are not set.
            #[must_use]
            pub(crate) fn or(self, others: Self) -> Self {
                Self { $( $name: self.$name.or(others.$name), )+ }
            }

            #[must_use]
            pub(crate) fn changed_since(&self, before: &Self) -> Self {
                Self { $( $name: self.$name.clone().filter(|value| Some(value) != before.$name.as_ref()), )+ }
            }

            /// How a settings file writes the value of a key; `None` when there is no such key.
            pub(crate) fn form(key: &str) -> Option<SettingForm> {
                match key {
                    $( stringify!($name) => Some(SettingForm::$form), )+
                    _ => None,
                }
            }

            /// Sets the value of a key from its text. An unknown key changes nothing.
            ///
            /// # Errors
            ///
            /// When the text is not a valid value; the message says why.
            pub(crate) fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
                match key {
                    $( stringify!($name) => {
                        self.$name = Some(text.parse::<$type>().map_err(|why| why.to_string())?);
                    } )+
                    _ => {}
                }
                Ok(())
            }

            pub(crate) fn entries(&self) -> Vec<(&'static str, SettingForm, String)> {
                let entries = [
                    $( self.$name.as_ref().map(|value| {
                        (stringify!($name), SettingForm::$form, value.to_string())
                    }), )+
                ];
                entries.into_iter().flatten().collect()
            }
        }
    };
}

settings! {
    theme: ThemeName = Text,
    /// The time from one reading to the next.
    interval: Interval = Text,
    /// The columns of the process list, from left to right.
    columns: Columns<ProcessColumn> = List,
    /// The columns of the GPU list, from left to right.
    gpu_columns: Columns<GpuColumn> = List,
    gpu_view: GpuView = Text,
    sort: Sort = List,
    group: Grouping = Text,
    /// Whether the process list shows only processes of the user that gputop runs as.
    mine: bool = Flag,
    host: bool = Flag,
}

impl Settings {
    /// Returns the keys and values that a settings file has for these settings.
    pub(crate) fn toml_lines(&self) -> Vec<(&'static str, String)> {
        let quoted = |text: &str| format!("\"{text}\"");
        let written = |form, text: String| match form {
            SettingForm::Text => quoted(&text),
            SettingForm::List => format!(
                "[{}]",
                text.split(',').map(quoted).collect::<Vec<_>>().join(", ")
            ),
            SettingForm::Flag => text,
        };
        self.entries()
            .into_iter()
            .map(|(key, form, text)| (key, written(form, text)))
            .collect()
    }
}

impl App {
    pub(crate) fn apply_settings(&mut self, settings: Settings) {
        let Settings {
            theme,
            interval,
            columns,
            gpu_columns,
            gpu_view,
            sort,
            group,
            mine,
            host,
        } = settings;
        self.theme = theme.unwrap_or(self.theme);
        self.options.interval =
            interval.map_or(self.options.interval, |Interval(interval)| interval);
        self.processes.columns = columns.or(self.processes.columns.take());
        self.gpus.columns = gpu_columns.or(self.gpus.columns.take());
        self.gpus.view = gpu_view.unwrap_or(self.gpus.view);
        self.processes.sort = sort.unwrap_or(self.processes.sort);
        self.processes.view.grouping = group.unwrap_or(self.processes.view.grouping);
        self.processes.view.only_mine = mine.unwrap_or(self.processes.view.only_mine);
        self.host_line = host.unwrap_or(self.host_line);
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings {
            theme: Some(self.theme),
            interval: Some(Interval(self.options.interval)),
            columns: self.processes.columns.clone(),
            gpu_columns: self.gpus.columns.clone(),
            gpu_view: Some(self.gpus.view),
            sort: Some(self.processes.sort),
            group: Some(self.processes.view.grouping),
            mine: Some(self.processes.view.only_mine),
            host: Some(self.host_line),
        }
    }
}
