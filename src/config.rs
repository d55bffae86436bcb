//! Where settings come from and are kept: flags, then `GPUTOP_*`, then `config.toml`, then what the last run left.
//!
//! `config.toml` is the person's: it changes only when they say so, and keeps its comments. What a person changed on
//! the screen is kept beside it, under `$XDG_STATE_HOME`, and gives way to all that was written on purpose.

use std::env;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use crate::app::settings::Settings;
use crate::cli::{self, Cli};

/// How long one who starts, or asks for it, waits for a home.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// All that was set, and where.
#[derive(Debug, Default)]
pub struct Config {
    /// For the app.
    pub settings: Settings,
    /// Whether the mouse is taken.
    pub mouse: Option<bool>,
    /// Whether only ASCII is drawn.
    pub ascii: Option<bool>,
    /// What the files have that is not known here: a sentence.
    pub unknown: Option<String>,
    /// Which file does not answer, so that what it has is not known: a sentence.
    pub unreadable: Option<String>,
    /// Where `W` writes; absent where there is no home.
    pub file: Option<PathBuf>,
    /// What the last run left.
    left: Settings,
}

impl Config {
    /// Reads it all.
    ///
    /// # Errors
    ///
    /// When a value does not do: one sentence with file and line.
    pub fn load(cli: &Cli) -> Result<Self, String> {
        let screen = &cli.screen;
        let given = Settings {
            theme: screen.theme,
            interval: cli.interval_given.then_some(cli.agent.interval),
            columns: screen.columns.clone(),
            gpu_columns: screen.gpu_columns.clone(),
            sort: screen.sort,
            group: screen.group,
            mine: screen.mine.then_some(true),
            host: screen.no_host.then_some(false),
        };
        let file = screen.config.clone().or_else(|| home("XDG_CONFIG_HOME", ".config", "config.toml"));
        let mut unreadable = None;
        let mut read_in_time = |path: PathBuf| {
            // Mostly it is one home, and one is not waited for twice.
            if unreadable.is_some() {
                return Ok(String::new());
            }
            let of_home = path.clone();
            let text = in_time(PATIENCE, move || fs::read_to_string(of_home));
            text.unwrap_or_else(|| {
                unreadable = Some(format!("{} does not answer, so settings are not as you left them", path.display()));
                Ok(String::new())
            })
        };
        let text = match &screen.config {
            // Who names a file waits for it: another program may be writing it.
            Some(path) => fs::read_to_string(path),
            None => file.clone().map_or_else(|| Ok(String::new()), &mut read_in_time),
        };
        let text = match (text, file.as_ref()) {
            (Ok(text), _) => text,
            (Err(error), Some(path)) if screen.config.is_some() || error.kind() != io::ErrorKind::NotFound => {
                return Err(format!("cannot read {}: {error}", path.display()));
            }
            (Err(_), _) => String::new(),
        };
        let place = file.as_deref().unwrap_or(Path::new("config.toml"));
        let mut config = parse(&text, place)?;
        // Nobody wrote that by hand: what is not understood there is of another version.
        let left = home("XDG_STATE_HOME", ".local/state", "screen.toml").and_then(|path| {
            let text = read_in_time(path.clone()).ok()?;
            parse(&text, &path).ok()
        });
        config.unreadable = unreadable;
        config.left = left.unwrap_or_default().settings;
        config.settings = given.or(config.settings).or(config.left.clone());
        config.file = file;
        Ok(config)
    }

    /// What writes settings into `config.toml`, leaves all else there as it is, and says where, or why not. It waits for the
    /// home, which may hang.
    pub fn write(&self, settings: &Settings) -> impl FnOnce() -> String + Send + use<> {
        let (path, lines) = (self.file.clone(), lines(settings));
        move || {
            let nowhere = || "there is no home to keep config.toml in: HOME is not set".to_owned();
            path.map_or_else(nowhere, |path| write(&path, &lines))
        }
    }

    /// What there is to say where the home does not answer to that.
    pub fn late(&self) -> String {
        let file = self.file.as_deref().unwrap_or(Path::new("config.toml"));
        format!("{} does not answer: nothing may have been written", file.display())
    }

    /// Keeps for the next run what the person changed on the screen in this one. A slow home is waited for so long.
    pub fn keep(&self, now: &Settings, patience: Duration) {
        let before = Settings { mine: None, interval: None, ..self.left.clone() };
        let start = &self.settings;
        let changed = Settings {
            theme: now.theme.filter(|it| *it != start.theme.unwrap_or_default()),
            columns: now.columns.clone().filter(|it| Some(it) != start.columns.as_ref()),
            gpu_columns: now.gpu_columns.clone().filter(|it| Some(it) != start.gpu_columns.as_ref()),
            sort: now.sort.filter(|it| Some(*it) != start.sort),
            group: now.group.filter(|it| *it != start.group.unwrap_or_default()),
            host: now.host.filter(|it| *it != start.host.unwrap_or(true)),
            // They are of the moment, as a filter is.
            mine: None,
            interval: None,
        };
        // What was left there, and is not known now, would be lost.
        if changed == Settings::default() || self.unreadable.is_some() {
            return;
        }
        let Some(path) = home("XDG_STATE_HOME", ".local/state", "screen.toml") else { return };
        let Ok(text) = merged("", &lines(&changed.or(before))) else { return };
        // It is a comfort, no more: nobody is to be told.
        let _late_or_lost: Option<io::Result<()>> = in_time(patience, move || put(&path, &text));
    }
}

/// What comes of it within that time. A home may be far away, and hang: then the thread that asks is left behind.
fn in_time<T: Send + 'static>(span: Duration, ask: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (answer, answered) = mpsc::channel();
    thread::Builder::new().name("settings".to_owned()).spawn(move || answer.send(ask())).ok()?;
    answered.recv_timeout(span).ok()
}

/// Writes these values into a file of the person's. Says where, or why not.
fn write(path: &Path, lines: &[(&'static str, String)]) -> String {
    // What stands there may be a link to where a person keeps such files.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let failed = |error: io::Error| format!("cannot write {}: {error}", path.display());
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return failed(error),
    };
    match merged(&text, lines) {
        Ok(text) => put(&path, &text).map_or_else(failed, |()| format!("written to {}", path.display())),
        Err(why) => format!("{}: {why}", path.display()),
    }
}

/// A file of ours by the rules of XDG; absent without a home.
fn home(variable: &str, otherwise: &str, name: &str) -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).map(PathBuf::from).filter(|it| it.is_absolute());
    let base = set(variable).or_else(|| Some(set("HOME")?.join(otherwise)))?;
    Some(base.join("gputop").join(name))
}

/// Writes a file as a whole, so that no one ever finds a half.
fn put(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let draft = path.with_extension(format!("{}.tmp", std::process::id()));
    fs::write(&draft, text)?;
    fs::rename(&draft, path).inspect_err(|_| _ = fs::remove_file(&draft))
}

/// What a file says.
fn parse(text: &str, path: &Path) -> Result<Config, String> {
    let line = |at: usize| 1 + text.bytes().take(at).filter(|it| *it == b'\n').count();
    let place = |span: Range<usize>| format!("{}:{}", path.display(), line(span.start));
    let table = DeTable::parse(text)
        .map_err(|error| format!("{}: {}", place(error.span().unwrap_or_default()), error.message()))?;
    let (mut config, mut unknown) = (Config::default(), Vec::new());
    for (key, value) in table.get_ref() {
        let name: &str = key.get_ref();
        match set(&mut config, name, value.get_ref()) {
            Ok(true) => {}
            Ok(false) => unknown.push(format!("`{name}` (line {})", line(key.span().start))),
            Err(why) => return Err(format!("{}: {name}: {why}", place(value.span()))),
        }
    }
    if !unknown.is_empty() {
        config.unknown = Some(format!("{} says what is not known here: {}", path.display(), unknown.join(", ")));
    }
    Ok(config)
}

/// Takes one value; false when there is no such key.
fn set(config: &mut Config, key: &str, value: &DeValue<'_>) -> Result<bool, String> {
    let settings = &mut config.settings;
    match key {
        "theme" => settings.theme = Some(word(value)?),
        "interval" => settings.interval = Some(cli::interval(&text(value)?)?),
        "columns" => settings.columns = Some(word(value)?),
        "gpu_columns" => settings.gpu_columns = Some(word(value)?),
        "sort" => settings.sort = Some(word(value)?),
        "group" => settings.group = Some(word(value)?),
        "mine" => settings.mine = Some(flag(value)?),
        "host" => settings.host = Some(flag(value)?),
        "mouse" => config.mouse = Some(flag(value)?),
        "ascii" => config.ascii = Some(flag(value)?),
        _ => return Ok(false),
    }
    Ok(true)
}

fn flag(value: &DeValue<'_>) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| "it has to be true or false".to_owned())
}

fn word<T: FromStr<Err = String>>(value: &DeValue<'_>) -> Result<T, String> {
    text(value)?.parse()
}

/// A text, or a list of texts as one with commas.
fn text(value: &DeValue<'_>) -> Result<String, String> {
    if let Some(text) = value.as_str() {
        return Ok(text.to_owned());
    }
    let list =
        value.as_array().and_then(|list| list.iter().map(|it| it.get_ref().as_str()).collect::<Option<Vec<_>>>());
    list.map(|it| it.join(",")).ok_or_else(|| format!("it has to be a text in quotes, not {}", value.type_str()))
}

/// Each setting as it stands in a file.
fn lines(settings: &Settings) -> Vec<(&'static str, String)> {
    let quoted = |text: String| format!("\"{text}\"");
    let list =
        |text: String| format!("[{}]", text.split(',').map(|it| format!("\"{it}\"")).collect::<Vec<_>>().join(", "));
    let lines = [
        ("theme", settings.theme.map(|it| quoted(it.to_string()))),
        ("interval", settings.interval.map(|it| quoted(humantime::format_duration(it).to_string()))),
        ("columns", settings.columns.as_ref().map(|it| list(it.to_string()))),
        ("gpu_columns", settings.gpu_columns.as_ref().map(|it| list(it.to_string()))),
        ("sort", settings.sort.map(|it| list(it.to_string()))),
        ("group", settings.group.map(|it| quoted(it.to_string()))),
        ("mine", settings.mine.map(|it| it.to_string())),
        ("host", settings.host.map(|it| it.to_string())),
    ];
    lines.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}

/// A file with these values in it, and all else as it was.
fn merged(text: &str, lines: &[(&'static str, String)]) -> Result<String, String> {
    let table = DeTable::parse(text).map_err(|error| format!("it is no TOML: {}", error.message()))?;
    let has_tables = table.get_ref().values().any(|it| it.get_ref().is_table());
    let mut edits: Vec<(Range<usize>, &str)> = Vec::new();
    let mut new: Vec<String> = Vec::new();
    for (key, value) in lines {
        match table.get_ref().iter().find(|(it, _)| it.get_ref() == key) {
            Some((_, old)) => edits.push((old.span(), value)),
            None => new.push(format!("{key} = {value}\n")),
        }
    }
    let mut merged = text.to_owned();
    edits.sort_by_key(|(span, _)| span.start);
    for (span, value) in edits.into_iter().rev() {
        merged.replace_range(span, value);
    }
    // What stands after the head of a table belongs to that table.
    if has_tables {
        return Ok(new.concat() + &merged);
    }
    if !merged.is_empty() && !merged.ends_with('\n') {
        merged.push('\n');
    }
    Ok(merged + &new.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::process_columns::ProcessColumn;
    use crate::app::settings::Look;

    fn read(text: &str) -> Result<Config, String> {
        parse(text, Path::new("config.toml"))
    }

    #[test]
    fn a_file_is_read_and_what_it_has_besides_is_named() {
        let config = read("theme = 'light'\nsort = ['user', 'memory']\nthme = 1\n[future]\nx = 1\n").unwrap();
        assert_eq!(config.settings.theme, Some(Look::Light));
        let sort = config.settings.sort.unwrap();
        assert_eq!((sort.column, sort.then), (ProcessColumn::User, Some((ProcessColumn::Memory, true))));
        let unknown = config.unknown.unwrap();
        assert!(unknown.contains("`thme` (line 3)") && unknown.contains("`future` (line 4)"), "{unknown}");
    }

    #[test]
    fn a_value_that_does_not_do_is_named_with_its_line() {
        let why = |text| read(text).unwrap_err();
        assert_eq!(
            why("host = true\ntheme = 'dark'\n"),
            "config.toml:2: theme: `dark` is no theme; there are terminal, safe, light, mono"
        );
        assert_eq!(why("mine = 'yes'"), "config.toml:1: mine: it has to be true or false");
        assert_eq!(why("interval = '1ms'"), "config.toml:1: interval: the shortest interval is 100ms");
        assert_eq!(why("sort = 3"), "config.toml:1: sort: it has to be a text in quotes, not integer");
        assert!(why("\n\ntheme = \n").starts_with("config.toml:3: "), "{}", why("\n\ntheme = \n"));
    }

    #[test]
    fn what_is_written_leaves_the_rest_as_it_was() {
        let settings = Settings { theme: Some(Look::Safe), host: Some(false), ..Settings::default() };
        let old = "# mine\ntheme = \"mono\" # for the beamer\n[future]\nhost = 1\n";
        let new = merged(old, &lines(&settings)).unwrap();
        assert_eq!(new, "host = false\n# mine\ntheme = \"safe\" # for the beamer\n[future]\nhost = 1\n");
        let config = read(&merged("", &lines(&settings)).unwrap()).unwrap();
        assert_eq!(config.settings, settings);
    }
}
