//! The configuration: settings from flags, then `GPUTOP_*` variables, then `config.toml`, then what
//! the last run saved.
//!
//! `config.toml` belongs to the user: gputop changes it only on request, and keeps comments and
//! unknown keys. Settings changed on the screen are saved beside it, in `screen.toml` under
//! `$XDG_STATE_HOME`, and have the lowest priority.

mod colours;
pub(crate) mod host_tables;
pub(crate) mod launcher_lines;
pub(crate) mod notify_tables;

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::app::AppOptions;
use crate::app::fleet::slurm_job;
use crate::app::settings::{SettingForm, Settings};
use crate::base::terminal::{ColourDepth, TerminalAbilities};
use crate::cli::Cli;
use crate::cli::cast::CastArgs;
use crate::cli::screenshot::ScreenshotArgs;
use crate::commands::doctor::{AuditLogState, SettingsState};
use crate::files::action::{self, PATIENCE, in_background};
use crate::files::folders::{config_file, state_file};
use crate::files::history::HistoryFiles;
use crate::protocol::agent_options::{AgentOptions, Interval, SimulatedMachine};
use crate::protocol::launchers::{self, Launcher};
use crate::source::Source;
use crate::tui::session::cast::CastOptions;
use crate::tui::session::cluster::ClusterOptions;
use crate::tui::session::screenshot::ScreenshotOptions;
use crate::tui::session::{SessionOptions, SettingsFiles};
use crate::view::{RoleColours, Theme};

#[derive(Debug, Default)]
struct Config {
    settings: Settings,
    mouse: Option<bool>,
    ascii: Option<bool>,
    history: Option<bool>,
    /// The colours that the user gives to roles, under `[colors]`.
    colours: RoleColours,
    /// The lines that the user adds to the launch table.
    launchers: Vec<Launcher>,
    /// A sentence that names the unknown keys of `config.toml`.
    unknown: Option<String>,
    /// A sentence that names the file that could not be read in time.
    unreadable: Option<String>,
    /// `config.toml`; `None` without a home directory.
    file: Option<PathBuf>,
    /// Whether `config.toml` exists.
    has_file: bool,
    last_run: Settings,
    /// `screen.toml`; `None` without a home directory, and for the simulated machine, whose runs
    /// leave no traces in real ones.
    last_run_file: Option<PathBuf>,
}

pub(crate) fn session_options(cli: &Cli) -> Result<SessionOptions, String> {
    let config = Config::load(cli)?;
    launchers::add(config.launchers.clone());
    let mut agent = AgentOptions::from(&cli.agent);
    agent.interval = config.settings.interval.map_or_else(
        || agent.interval.max(cli.usual_interval()),
        |Interval(interval)| interval,
    );
    let ascii = cli.screen.ascii || config.ascii.unwrap_or(false);
    // A picture shows everything, wherever it is drawn.
    let for_picture = cli.is_picture().then_some(TerminalAbilities {
        ascii: false,
        colours: ColourDepth::Rgb,
    });
    let abilities = for_picture.unwrap_or_else(TerminalAbilities::from_env);
    let asked_job = cli.asked_job();
    Ok(SessionOptions {
        app: AppOptions {
            readonly: agent.readonly,
            is_recording: cli.is_recording(),
            speed: cli.speed(),
            interval: agent.interval,
            warn_before: cli
                .screen
                .warn_before
                .unwrap_or(AppOptions::default().warn_before),
            alert_scope: cli.screen.alert_scope(config.settings.mine == Some(true)),
            // A picture shows the screen as it is without them.
            has_demo_hints: cli.agent.demo && !cli.is_recording() && !cli.is_picture(),
            quit_word: if cli.screen.of_cluster {
                "cluster"
            } else {
                AppOptions::default().quit_word
            },
            slurm_job: asked_job.as_ref().map(|asked| asked.job.clone()),
        },
        sources: with_past(
            cli.sources(config.settings.interval.map(|Interval(interval)| interval))
                .into_iter()
                .map(Source::on_screen)
                .collect(),
        ),
        settings: config.settings.clone(),
        filter: cli.screen.filter(),
        theme: Theme::new(ascii || abilities.ascii, abilities.colours)
            .with_colours(&config.colours),
        mouse: !cli.screen.no_mouse && config.mouse.unwrap_or(true),
        bell: cli.screen.bell,
        alert_command: cli.screen.alert_command(),
        notices: [
            config.unknown.clone(),
            config.unreadable.clone(),
            Interval(agent.interval).interval_warning(),
            asked_job.as_ref().map(|asked| slurm_job::found(&asked.job)),
        ]
        .into_iter()
        .flatten()
        .collect(),
        asked_job,
        slurm_commands: cli.slurm_commands(),
        history_files: config
            .keeps_history(cli)
            .then(HistoryFiles::of_user)
            .flatten(),
        named_config: cli.screen.config.clone(),
        settings_files: SettingsFiles {
            config: config.file,
            // Without the settings of the last run, writing would lose them.
            last_run: config
                .last_run_file
                .filter(|_| config.unreadable.is_none())
                .map(|file| (file, config.last_run)),
        },
    })
}

/// Returns the options of the cluster view, which shows what a Prometheus server knows.
///
/// # Errors
///
/// When a settings file is wrong: a sentence.
pub(crate) fn cluster_options(cli: &Cli) -> Result<ClusterOptions, String> {
    let config = Config::load(cli)?;
    let ascii = cli.screen.ascii || config.ascii.unwrap_or(false);
    let abilities = TerminalAbilities::from_env();
    Ok(ClusterOptions {
        theme: Theme::new(ascii || abilities.ascii, abilities.colours)
            .with_colours(&config.colours),
        theme_name: config.settings.theme.unwrap_or_default(),
        mouse: !cli.screen.no_mouse && config.mouse.unwrap_or(true),
        filter: cli.screen.filter(),
        notices: [config.unknown, config.unreadable]
            .into_iter()
            .flatten()
            .collect(),
        host_flags: host_flags(cli),
        named_config: cli.screen.config.clone(),
    })
}

/// Returns the flags of the command line that a gputop gets which opens a host of a cluster. Those of
/// variables it has anyway.
fn host_flags(cli: &Cli) -> Vec<String> {
    let interval = cli.agent.given_interval();
    let interval = interval.map(|interval| format!("--interval={}ms", interval.as_millis()));
    let theme = cli.screen.theme.map(|theme| format!("--theme={theme}"));
    let flags = [
        (AgentOptions::from(&cli.agent).readonly, "--readonly"),
        (cli.screen.ascii, "--ascii"),
        (cli.screen.no_mouse, "--no-mouse"),
        (cli.screen.no_history, "--no-history"),
        (cli.screen.mine, "--mine"),
        (true, "--of-cluster"),
    ];
    let given = flags.into_iter().filter(|(is_given, _)| *is_given);
    given
        .map(|(_, flag)| flag.to_owned())
        .chain(interval)
        .chain(theme)
        .collect()
}

/// Lets the simulated machine begin with what its GPUs did before: a screen without a history shows
/// little.
fn with_past(mut sources: Vec<Source>) -> Vec<Source> {
    for source in &mut sources {
        if let Source::LocalAgent(AgentOptions {
            demo: demo @ SimulatedMachine::FromNow,
            ..
        }) = source
        {
            *demo = SimulatedMachine::WithPast;
        }
    }
    sources
}

/// Returns the options of `--screenshot`, or `None` if the command line asks for none.
pub(crate) fn screenshot_options(cli: &Cli) -> Option<ScreenshotOptions> {
    let ScreenshotArgs {
        file,
        size,
        after,
        keys,
    } = cli.screen.screenshot.clone();
    file.map(|file| ScreenshotOptions {
        file,
        size,
        after,
        keys,
        patience: cli.timeout,
    })
}

/// Returns the options of `gputop cast`.
pub(crate) fn cast_options(args: &CastArgs) -> CastOptions {
    let (after, keys) = args.schedule();
    CastOptions {
        file: args.file.clone(),
        size: args.size,
        after,
        keys,
        patience: args.timeout,
    }
}

pub(crate) fn state(cli: &Cli) -> SettingsState {
    match Config::load(cli) {
        Err(why) => SettingsState::Invalid(why),
        Ok(Config {
            unreadable: Some(sentence),
            ..
        }) => SettingsState::Unreadable(sentence),
        Ok(Config {
            unknown: Some(sentence),
            ..
        }) => SettingsState::UnknownKeys(sentence),
        Ok(Config {
            file: Some(file),
            has_file: true,
            ..
        }) => SettingsState::File(file),
        Ok(Config {
            file: Some(file), ..
        }) => SettingsState::NoFile(file),
        Ok(_) => SettingsState::NoHome,
    }
}

/// Finds out whether the log of ended processes can be written. The agent writes that log.
pub(crate) fn audit_log() -> AuditLogState {
    let Some(file) = state_file("kills.jsonl") else {
        return AuditLogState::NoHome;
    };
    let path = file.clone();
    match in_background(move || action::check(&path)).recv_timeout(PATIENCE) {
        Ok(Ok(())) => AuditLogState::Writable(file),
        Ok(Err(error)) => AuditLogState::NotWritable(file, error.to_string()),
        Err(_) => AuditLogState::Unresponsive(file),
    }
}

impl Config {
    fn load(cli: &Cli) -> Result<Self, String> {
        let screen = &cli.screen;
        let flags = Settings {
            theme: screen.theme,
            interval: cli.agent.interval,
            columns: screen.columns.clone(),
            gpu_columns: screen.gpu_columns.clone(),
            sort: screen.sort,
            group: screen.group,
            gpu_view: screen.gpu_view,
            mine: screen.mine.then_some(true),
            host: screen.no_host.then_some(false),
        };
        let file = screen.config.clone().or_else(|| config_file("config.toml"));
        let is_simulated = AgentOptions::from(&cli.agent).demo != SimulatedMachine::None;
        let last_run_file = state_file("screen.toml").filter(|_| !is_simulated);
        // Both files are read at the same time.
        let start = |path: PathBuf| (path.clone(), in_background(move || action::read(&path)));
        let mut unreadable = None;
        let mut finish = |path: &Path, result: &Receiver<io::Result<String>>| {
            let patience = if unreadable.is_none() {
                PATIENCE
            } else {
                Duration::ZERO
            };
            result.recv_timeout(patience).unwrap_or_else(|_| {
                let sentence = || {
                    format!(
                        "{} does not respond: saved settings are not in use",
                        path.display()
                    )
                };
                unreadable.get_or_insert_with(sentence);
                Err(io::Error::from(io::ErrorKind::TimedOut))
            })
        };
        let (reading, last_reading) = (file.clone().map(start), last_run_file.clone().map(start));
        let text = reading.map_or_else(
            || Ok(String::new()),
            |(path, result)| finish(&path, &result),
        );
        let has_file = file.is_some() && text.is_ok();
        let text = match text.map_err(|error| (error.kind(), error)) {
            Err((io::ErrorKind::NotFound | io::ErrorKind::TimedOut, _))
                if screen.config.is_none() =>
            {
                Ok(String::new())
            }
            Err((io::ErrorKind::TimedOut, _)) => Err("it does not respond".to_owned()),
            text => text.map_err(|(_, error)| error.to_string()),
        };
        let name = file.as_deref().unwrap_or(Path::new("config.toml"));
        let text = text.map_err(|error| format!("cannot read {}: {error}", name.display()))?;
        let mut config = parse(&text, name)?;
        // gputop wrote that file itself: an error in it comes from another version, and is ignored.
        let last_run = last_reading
            .and_then(|(path, result)| parse(&finish(&path, &result).ok()?, &path).ok());
        config.unreadable = unreadable;
        config.last_run = last_run.unwrap_or_default().settings;
        config.settings = flags.or(config.settings).or(config.last_run.clone());
        (config.file, config.has_file, config.last_run_file) = (file, has_file, last_run_file);
        Ok(config)
    }

    fn keeps_history(&self, cli: &Cli) -> bool {
        // The file of the last run has a place under the same conditions.
        self.last_run_file.is_some()
            && !cli.screen.no_history
            && self.history.unwrap_or(true)
            && !cli.is_recording()
    }
}

/// Returns the number of the line with this byte.
fn line(text: &str, offset: usize) -> usize {
    let breaks = text.bytes().take(offset).filter(|byte| *byte == b'\n');
    1 + breaks.count()
}

/// Returns the place of a span for a sentence: the file and the line.
fn place(text: &str, path: &Path, span: Range<usize>) -> String {
    format!("{}:{}", path.display(), line(text, span.start))
}

/// Parses a settings file as TOML.
fn table<'a>(text: &'a str, path: &Path) -> Result<Spanned<DeTable<'a>>, String> {
    DeTable::parse(text).map_err(|error| {
        let place = place(text, path, error.span().unwrap_or_default());
        format!("{place}: {}", error.message())
    })
}

/// Parses a settings file. Unknown keys are reported and ignored; invalid values are errors that
/// name the line.
fn parse(text: &str, path: &Path) -> Result<Config, String> {
    let place = |span: Range<usize>| place(text, path, span);
    let table = table(text, path)?;
    let (mut config, mut unknown) = (Config::default(), Vec::new());
    for (key, value) in table.get_ref() {
        let name: &str = key.get_ref();
        if name == "colors" {
            config.colours = colours::parse(value.get_ref()).map_err(|(span, why)| {
                format!("{}: {name}: {why}", place(span.unwrap_or(value.span())))
            })?;
            continue;
        }
        // The command line that names hosts reads these tables.
        if host_tables::is_host_table(name, value.get_ref()) {
            host_tables::check(name, value)
                .map_err(|(span, why)| format!("{}: {why}", place(span)))?;
            continue;
        }
        match set(&mut config, name, value.get_ref()) {
            Ok(true) => {}
            Ok(false) => {
                unknown.push(format!("`{name}` (line {})", line(text, key.span().start)));
            }
            Err(why) => return Err(format!("{}: {name}: {why}", place(value.span()))),
        }
    }
    if !unknown.is_empty() {
        config.unknown = Some(format!(
            "{}: unknown keys: {}",
            path.display(),
            unknown.join(", ")
        ));
    }
    Ok(config)
}

/// Sets the value of one key. Returns false if the key is unknown.
fn set(config: &mut Config, key: &str, value: &DeValue<'_>) -> Result<bool, String> {
    match key {
        "mouse" => config.mouse = Some(flag(value)?),
        "ascii" => config.ascii = Some(flag(value)?),
        "history" => config.history = Some(flag(value)?),
        "launchers" => config.launchers = launcher_lines::lines(value)?,
        // A command that uses notifications reads their tables itself, and goes on without those
        // that are wrong.
        "notify" => {}
        key => match Settings::form(key) {
            Some(SettingForm::Flag) => config.settings.set(key, &flag(value)?.to_string())?,
            Some(SettingForm::Text | SettingForm::List) => {
                config.settings.set(key, &text(value)?)?;
            }
            None => return Ok(false),
        },
    }
    Ok(true)
}

fn flag(value: &DeValue<'_>) -> Result<bool, String> {
    value
        .as_bool()
        .ok_or_else(|| "must be true or false".to_owned())
}

/// Returns a text, or a list of texts joined by commas.
fn text(value: &DeValue<'_>) -> Result<String, String> {
    if let Some(text) = value.as_str() {
        return Ok(text.to_owned());
    }
    let texts = value.as_array().and_then(|list| {
        list.iter()
            .map(|element| element.get_ref().as_str())
            .collect::<Option<Vec<_>>>()
    });
    texts
        .map(|texts| texts.join(","))
        .ok_or_else(|| format!("must be text in quotes, not {}", value.type_str()))
}

#[cfg(test)]
mod tests {
    use strum::VariantArray;

    use super::*;
    use crate::app::lists::process_columns::ProcessColumn;
    use crate::app::settings::ThemeName;

    fn read(text: &str) -> Result<Config, String> {
        parse(text, Path::new("config.toml"))
    }

    #[test]
    fn unknown_keys_are_reported_and_ignored() {
        let config =
            read("theme = 'light'\nsort = ['user', 'memory']\nthme = 1\n[future]\nx = 1\n")
                .unwrap();
        assert_eq!(config.settings.theme, Some(ThemeName::Light));
        let sort = config.settings.sort.unwrap();
        assert_eq!(
            (sort.column, sort.then),
            (ProcessColumn::User, Some((ProcessColumn::Memory, true)))
        );
        let unknown = config.unknown.unwrap();
        assert!(
            unknown.contains("`thme` (line 3)") && unknown.contains("`future` (line 4)"),
            "{unknown}"
        );
    }

    #[test]
    fn an_invalid_value_is_an_error_that_names_the_line() {
        let why = |text| read(text).unwrap_err();
        assert_eq!(
            why("host = true\nmine = 'pink'\n"),
            "config.toml:2: mine: must be true or false"
        );
        let no_theme = why("theme = 'pink'");
        assert!(
            no_theme.starts_with("config.toml:1: theme: `pink` is no theme; there are "),
            "{no_theme}"
        );
        for name in ThemeName::VARIANTS {
            assert!(no_theme.contains(<&str>::from(name)), "{no_theme}");
        }
        assert_eq!(
            why("interval = '1ms'"),
            "config.toml:1: interval: the shortest interval is 100ms"
        );
        assert_eq!(
            why("sort = 3"),
            "config.toml:1: sort: must be text in quotes, not integer"
        );
        assert!(
            why("\n\ntheme = \n").starts_with("config.toml:3: "),
            "{}",
            why("\n\ntheme = \n")
        );
    }

    #[test]
    fn a_user_gives_colours_to_roles() {
        let users = "[\"#0000ff\", ".to_owned() + &"\"#00ff00\", ".repeat(7) + "]";
        let text = format!("theme = 'nord'\n[colors]\ncursor = '#223344'\nusers = {users}\n");
        let config = read(&text).unwrap();
        assert_eq!(config.unknown, None);
        let mut expected = RoleColours::default();
        expected.set("cursor", &["#223344"]).unwrap();
        let green = ["#00ff00"; 7];
        expected
            .set("users", &[&["#0000ff"], &green[..]].concat())
            .unwrap();
        assert_eq!(config.colours, expected);

        let why = |text| read(text).unwrap_err();
        assert_eq!(
            why("colors = 1"),
            "config.toml:1: colors: must be a table: `[colors]`"
        );
        assert_eq!(
            why("[colors]\ntext = '#fff'"),
            "config.toml:2: colors: `text`: `#fff` is no colour; write it as in \"#1e90ff\""
        );
        assert_eq!(
            why("[colors]\n\nusers = [1]"),
            "config.toml:3: colors: `users` must be a colour in quotes"
        );
        let no_role = why("[colors]\n\ncurser = '#223344'");
        assert!(
            no_role
                .starts_with("config.toml:3: colors: `curser` is no role; there are background,"),
            "{no_role}"
        );
    }

    #[test]
    fn a_user_adds_lines_to_the_launch_table() {
        let text = "[[launchers]]\nname = 'fleet'\nprograms = ['fleetd run']\nchildren = ['fleet-worker']\n\n\
                    [[launchers]]\nname = 'ours'\nvariables = ['OURS_RANK']\nplace = 'session'\n";
        let config = read(text).unwrap();
        assert_eq!(config.unknown, None);
        let [fleet, ours] = config.launchers.as_slice() else {
            panic!("{:?}", config.launchers)
        };
        assert!(
            fleet.is_program("", &["/bin/fleetd", "run"]) && fleet.is_child("fleet-worker", &[])
        );
        assert!(ours.sets("OURS_RANK") && ours.only_waits());
        let why = |text| read(text).unwrap_err();
        assert_eq!(
            why("launchers = 1"),
            "config.toml:1: launchers: must be a list: `[[launchers]]`"
        );
        assert_eq!(
            why("[[launchers]]\nname = 'x'\nchild = 'y'"),
            "config.toml:1: launchers: `child` is no key; there are name, programs, children, variables, place"
        );
        assert_eq!(
            why("[[launchers]]\nname = 'x'\nchildren = 'y'"),
            "config.toml:1: launchers: `children` must be a list of texts, as in [\"a\", \"b\"]"
        );
    }
}
