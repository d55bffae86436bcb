//! The `[notify.NAME]` tables of `config.toml`, for the commands that use notifications.
//!
//! A table that is wrong, or whose secret cannot be read safely, costs its notification alone: one
//! sentence says why.

use std::env;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use crate::base::text::Text;
use crate::cli::Cli;
use crate::files::action::{PATIENCE, in_background};
use crate::files::folders::config_file;
use crate::notify::{
    Destination, Endpoint, KINDS, MessageFilter, Secret, Service, remove_variable,
};

/// The keys of a table.
const KEYS: [&str; 13] = [
    "kind",
    "url_file",
    "url_env",
    "url",
    "token_file",
    "token_env",
    "command",
    "kinds",
    "users",
    "gpus",
    "jobs",
    "priority",
    "tags",
];

/// The largest configuration file in bytes.
const LARGEST: u64 = 1 << 20;

/// The notifications that a command line names, as far as they can be used.
#[derive(Debug, Default)]
pub(crate) struct ChosenNotifications {
    pub(crate) destinations: Vec<Destination>,
    /// A sentence for each notification that cannot be used.
    pub(crate) refusals: Vec<Text>,
}

/// Where a secret is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SecretPlace {
    File(PathBuf),
    Variable(String),
    /// A URL of this computer, which is no secret.
    Open(String),
}

/// A table as it is written.
#[derive(Debug)]
struct NotifyTable {
    service: Service,
    url: SecretPlace,
    token: Option<SecretPlace>,
    sends_command: bool,
    filter: MessageFilter,
    priority: Option<u8>,
    tags: Vec<String>,
}

/// The NAME of a table, and the table or what is wrong with it.
type NamedTable = (String, Result<NotifyTable, String>);

/// Reads the tables with these names, and their secrets. Removes the variables that hold secrets from
/// the environment: call it before gputop starts another process or a thread that stays.
///
/// Reads the files in this process, since another one would get the environment.
pub(crate) fn load(cli: &Cli, names: &[String]) -> ChosenNotifications {
    let mut chosen = ChosenNotifications::default();
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    // Named twice is named once.
    names.sort_unstable();
    names.dedup();
    names.retain(|name| {
        let is_url = name.contains("://");
        if is_url {
            chosen.add(url_of_arguments(name));
        }
        !is_url
    });
    if names.is_empty() {
        return chosen;
    }
    let file = cli.screen.config.clone();
    let Some(path) = file.or_else(|| config_file("config.toml")) else {
        chosen.refuse("notifications are not in use: HOME is not set, so there is no config.toml");
        return chosen;
    };
    let from = path.clone();
    let read = in_background(move || read_config(&from));
    let text = match read.recv_timeout(PATIENCE) {
        Ok(Ok(text)) => text,
        Ok(Err(error)) => {
            let path = path.display();
            chosen.refuse(&format!(
                "notifications are not in use: cannot read {path}: {error}"
            ));
            return chosen;
        }
        Err(_) => {
            let path = path.display();
            chosen.refuse(&format!(
                "notifications are not in use: {path} does not respond"
            ));
            return chosen;
        }
    };
    match tables(&text, &path) {
        Err(why) => chosen.refuse(&format!("notifications are not in use: {why}")),
        Ok(tables) => {
            for name in names {
                match tables.iter().find(|(known, _)| known == name) {
                    Some((_, Ok(table))) => {
                        let made = table
                            .destination(name, &path)
                            .map_err(|why| format!("notification {name} is not in use: {why}"));
                        chosen.add(made);
                    }
                    Some((_, Err(why))) => {
                        chosen.refuse(&format!("notification {name} is not in use: {why}"));
                    }
                    None => chosen.refuse(&unknown_name(name, &tables, &path)),
                }
            }
            remove_variables(&tables);
        }
    }
    chosen
}

impl ChosenNotifications {
    fn add(&mut self, made: Result<Destination, String>) {
        match made {
            Ok(destination) => self.destinations.push(destination),
            Err(why) => self.refuse(&why),
        }
    }

    fn refuse(&mut self, why: &str) {
        self.refusals.push(why.into());
    }
}

/// Removes the variables of all tables, also of those that are not in use.
fn remove_variables(tables: &[NamedTable]) {
    for (_, table) in tables {
        let Ok(table) = table else { continue };
        for place in [Some(&table.url), table.token.as_ref()]
            .into_iter()
            .flatten()
        {
            if let SecretPlace::Variable(name) = place {
                remove_variable(name);
            }
        }
    }
}

fn read_config(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(LARGEST).read_to_string(&mut text)?;
    Ok(text)
}

fn unknown_name(name: &str, tables: &[NamedTable], path: &Path) -> String {
    let known: Vec<&str> = tables.iter().map(|(name, _)| name.as_str()).collect();
    let known = if known.is_empty() {
        "it has none".to_owned()
    } else {
        format!("it has {}", known.join(", "))
    };
    format!(
        "notification {name} is not in use: there is no [notify.{name}] in {}; {known}",
        path.display()
    )
}

/// Makes a destination of a URL in the arguments, which everybody can read in `ps`.
fn url_of_arguments(url: &str) -> Result<Destination, String> {
    let refusal = || {
        "a notification is not in use: --notify takes the NAME of a [notify.NAME] table, or a URL of this computer; \
         everybody can read the arguments, so put another URL into a file and name that with url_file"
            .to_owned()
    };
    let endpoint = Secret::new(url)
        .and_then(Endpoint::new)
        .ok()
        .filter(Endpoint::is_of_this_computer)
        .ok_or_else(refusal)?;
    Ok(Destination {
        name: endpoint.host_and_port().into(),
        service: Service::Webhook,
        endpoint,
        token: None,
        sends_command: false,
        filter: MessageFilter::default(),
        priority: None,
        tags: Vec::new(),
    })
}

/// Parses the `[notify.NAME]` tables of a configuration file: each name, and its table or what is
/// wrong with it.
fn tables(text: &str, path: &Path) -> Result<Vec<NamedTable>, String> {
    let all = super::table(text, path)?;
    let Some((_, value)) = all
        .get_ref()
        .iter()
        .find(|(key, _)| &**key.get_ref() == "notify")
    else {
        return Ok(Vec::new());
    };
    let place = |span| super::place(text, path, span);
    let Some(notify) = value.get_ref().as_table() else {
        let place = place(value.span());
        return Err(format!("{place}: notify: must be tables: `[notify.NAME]`"));
    };
    let table = |name: &str, value: &toml::Spanned<DeValue<'_>>| {
        let Some(table) = value.get_ref().as_table() else {
            return Err(format!("{}: must be a table", place(value.span())));
        };
        NotifyTable::parse(table).map_err(|(key, why)| {
            let span = key.and_then(|key| Some(table.get_key_value(key)?.0.span()));
            let place = place(span.unwrap_or(value.span()));
            format!("{place}: notify.{name}: {why}")
        })
    };
    Ok(notify
        .iter()
        .map(|(name, value)| {
            let name = name.get_ref().to_string();
            let table = table(&name, value);
            (name, table)
        })
        .collect())
}

/// An error in a table: the key with the wrong value, if one has it, and a sentence.
type TableError = (Option<&'static str>, String);

impl NotifyTable {
    fn parse(table: &DeTable<'_>) -> Result<Self, TableError> {
        let unknown = table
            .keys()
            .map(|key| &**key.get_ref())
            .find(|key| !KEYS.contains(key));
        if let Some(unknown) = unknown {
            return Err((
                None,
                format!("`{unknown}` is no key; there are {}", KEYS.join(", ")),
            ));
        }
        let keys = Keys(table);
        let service = match keys.text("kind")? {
            None => return Err((None, format!("has no `kind`: {}", Service::names()))),
            Some(name) => Service::from_name(name).ok_or_else(|| {
                let names = Service::names();
                (
                    Some("kind"),
                    format!("`kind` is one of {names}, not `{name}`"),
                )
            })?,
        };
        let url = keys
            .one_place("url_file", "url_env", Some("url"))?
            .ok_or_else(|| {
                let why =
                    "has no URL: name a file of it with `url_file`, or a variable with `url_env`";
                (None, why.to_owned())
            })?;
        let token = keys.one_place("token_file", "token_env", None)?;
        let filter = MessageFilter {
            kinds: keys.list("kinds")?,
            users: keys.list("users")?,
            gpus: keys.list("gpus")?,
            jobs: keys.list("jobs")?,
        };
        if let Some(kind) = filter
            .kinds
            .iter()
            .find(|kind| KINDS.iter().all(|(known, _)| known != kind))
        {
            let known: Vec<&str> = KINDS.iter().map(|(known, _)| *known).collect();
            let known = known.join(", ");
            let why = format!("`kinds`: gputop sends no `{kind}`; there are {known}");
            return Err((Some("kinds"), why));
        }
        let priority = keys.priority()?;
        let tags = keys.list("tags")?;
        if service != Service::Ntfy && (priority.is_some() || !tags.is_empty()) {
            let key = if priority.is_some() {
                "priority"
            } else {
                "tags"
            };
            return Err((Some(key), format!("`{key}` is for ntfy only")));
        }
        if token.is_some() && !matches!(service, Service::Ntfy | Service::Webhook) {
            let why = "a token is for ntfy and webhook only".to_owned();
            return Err((None, why));
        }
        Ok(Self {
            service,
            url,
            token,
            sends_command: keys.flag("command")?,
            filter,
            priority,
            tags,
        })
    }

    /// Reads the secrets, and checks the URL.
    fn destination(&self, name: &str, config: &Path) -> Result<Destination, String> {
        let folder = config.parent().unwrap_or(Path::new(""));
        let endpoint = Endpoint::new(self.url.read(folder)?)
            .map_err(|why| format!("the URL {}{why}", self.url.named()))?;
        if self.service == Service::Ntfy {
            endpoint
                .split_topic()
                .map_err(|why| format!("the URL {}{why}", self.url.named()))?;
        }
        let token = self.token.as_ref().map(|token| token.read(folder));
        Ok(Destination {
            name: name.into(),
            service: self.service,
            endpoint,
            token: token.transpose()?,
            sends_command: self.sends_command,
            filter: self.filter.clone(),
            priority: self.priority,
            tags: self.tags.clone(),
        })
    }
}

impl SecretPlace {
    /// Reads the secret. A relative path begins in the folder of the configuration file.
    fn read(&self, folder: &Path) -> Result<Secret, String> {
        match self {
            Self::Open(url) => Secret::new(url).map_err(|why| format!("`url` {why}")),
            Self::Variable(name) => {
                Secret::from_variable(name).map_err(|why| format!("the variable {name} {why}"))
            }
            Self::File(path) => {
                let path = match (path.strip_prefix("~"), env::var_os("HOME")) {
                    (Ok(rest), Some(home)) => Path::new(&home).join(rest),
                    _ => folder.join(path),
                };
                let from = path.clone();
                let secret = in_background(move || Secret::read(&from)).recv_timeout(PATIENCE);
                let secret = secret.unwrap_or_else(|_| Err("does not respond".to_owned()));
                secret.map_err(|why| format!("{} {why}", path.display()))
            }
        }
    }

    /// Returns where the secret is, for a sentence: `in FILE `.
    fn named(&self) -> String {
        match self {
            Self::Open(_) => String::new(),
            Self::Variable(name) => format!("in the variable {name} "),
            Self::File(path) => format!("in {} ", path.display()),
        }
    }
}

/// The keys of one table.
struct Keys<'a>(&'a DeTable<'a>);

impl<'a> Keys<'a> {
    fn value(&self, key: &str) -> Option<&'a DeValue<'a>> {
        self.0.get(key).map(toml::Spanned::get_ref)
    }

    fn text(&self, key: &'static str) -> Result<Option<&'a str>, TableError> {
        self.value(key)
            .map(|value| {
                value.as_str().ok_or_else(|| {
                    let kind = value.type_str();
                    (
                        Some(key),
                        format!("`{key}` must be text in quotes, not {kind}"),
                    )
                })
            })
            .transpose()
    }

    fn flag(&self, key: &'static str) -> Result<bool, TableError> {
        let value = self.value(key).map(|value| {
            value
                .as_bool()
                .ok_or_else(|| (Some(key), format!("`{key}` must be true or false")))
        });
        Ok(value.transpose()?.unwrap_or(false))
    }

    /// Returns a list of texts; a number is a text, too.
    fn list(&self, key: &'static str) -> Result<Vec<String>, TableError> {
        let Some(value) = self.value(key) else {
            return Ok(Vec::new());
        };
        let element = |value: &DeValue<'_>| match value {
            DeValue::String(text) => Some(text.to_string()),
            DeValue::Integer(number) => Some(number.to_string()),
            _ => None,
        };
        let texts = value.as_array().and_then(|list| {
            list.iter()
                .map(|value| element(value.get_ref()))
                .collect::<Option<Vec<String>>>()
        });
        texts.filter(|texts| !texts.is_empty()).ok_or_else(|| {
            let why = format!("`{key}` must be a list of texts, as in [\"a\", \"b\"]");
            (Some(key), why)
        })
    }

    fn priority(&self) -> Result<Option<u8>, TableError> {
        let Some(value) = self.value("priority") else {
            return Ok(None);
        };
        let number = match value {
            DeValue::Integer(number) => number.to_string().parse().ok(),
            _ => None,
        };
        number
            .filter(|number| (1..=5).contains(number))
            .map(Some)
            .ok_or_else(|| {
                let why = "`priority` must be a number from 1 (lowest) to 5 (highest)";
                (Some("priority"), why.to_owned())
            })
    }

    /// Returns where a secret is, which one of these keys says.
    fn one_place(
        &self,
        file: &'static str,
        variable: &'static str,
        open: Option<&'static str>,
    ) -> Result<Option<SecretPlace>, TableError> {
        let path = self.text(file)?.map(|path| SecretPlace::File(path.into()));
        let name = self
            .text(variable)?
            .map(|name| SecretPlace::Variable(name.to_owned()));
        let open = match open {
            Some(key) => self.text(key)?.map(|url| open_url(key, url)).transpose()?,
            None => None,
        };
        let mut places = [path, name, open].into_iter().flatten();
        let place = places.next();
        if places.next().is_some() {
            let why = format!("has more than one of `{file}`, `{variable}` and `url`");
            return Err((None, why));
        }
        Ok(place)
    }
}

/// Takes a URL in the configuration file, which others may read: only one of this computer.
fn open_url(key: &'static str, url: &str) -> Result<SecretPlace, TableError> {
    let is_of_this_computer = Secret::new(url)
        .and_then(Endpoint::new)
        .is_ok_and(|endpoint| endpoint.is_of_this_computer());
    if is_of_this_computer {
        return Ok(SecretPlace::Open(url.to_owned()));
    }
    let why = format!(
        "`{key}` may only be a URL of this computer: put another one into a file that only you can read, and name \
         that with `{key}_file`"
    );
    Err((Some(key), why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::reference::SETTINGS;

    fn parse(text: &str) -> Vec<NamedTable> {
        tables(text, Path::new("config.toml")).unwrap()
    }

    #[test]
    fn a_table_names_a_service_and_where_its_url_is() {
        let text = "theme = 'dark'\n\
                    [notify.phone]\nkind = 'ntfy'\nurl_file = 'ntfy-url'\ntoken_env = 'NTFY_TOKEN'\npriority = 4\ntags = ['gpu']\n\
                    [notify.team]\nkind = 'slack'\nurl_env = 'SLACK_URL'\ncommand = true\n\
                    kinds = ['leak', 'orphan']\nusers = ['ada']\ngpus = [0, 'GPU-a']\njobs = [42]\n\
                    [notify.here]\nkind = 'webhook'\nurl = 'http://localhost:8080/x'\n";
        let tables = parse(text);
        let table = |name: &str| {
            let (_, table) = tables.iter().find(|(known, _)| known == name).unwrap();
            table.as_ref().unwrap()
        };
        let phone = table("phone");
        assert_eq!(phone.service, Service::Ntfy);
        assert_eq!(phone.url, SecretPlace::File("ntfy-url".into()));
        assert_eq!(
            phone.token,
            Some(SecretPlace::Variable("NTFY_TOKEN".to_owned()))
        );
        assert_eq!((phone.priority, phone.tags.len()), (Some(4), 1));
        assert!(!phone.sends_command);
        let team = table("team");
        assert!(team.sends_command);
        assert_eq!(team.filter.kinds, ["leak", "orphan"]);
        assert_eq!(team.filter.gpus, ["0", "GPU-a"]);
        assert_eq!(team.filter.jobs, ["42"]);
        assert!(matches!(table("here").url, SecretPlace::Open(_)));
    }

    #[test]
    fn a_wrong_table_costs_its_notification_alone() {
        let start = "[notify.good]\nkind = 'slack'\nurl_env = 'A'\n[notify.x]\n";
        for (lines, expected) in [
            (
                "url_env = 'A'",
                "config.toml:4: notify.x: has no `kind`: ntfy, slack, discord, mattermost, teams, webhook",
            ),
            (
                "kind = 'pager'\nurl_env = 'A'",
                "config.toml:5: notify.x: `kind` is one of ntfy, slack, discord, mattermost, teams, webhook, not `pager`",
            ),
            (
                "kind = 'slack'",
                "config.toml:4: notify.x: has no URL: name a file of it with `url_file`, or a variable with `url_env`",
            ),
            (
                "kind = 'slack'\nurl_env = 'A'\nurl_file = 'a'",
                "config.toml:4: notify.x: has more than one of `url_file`, `url_env` and `url`",
            ),
            (
                "kind = 'slack'\nurls = 'A'",
                "config.toml:4: notify.x: `urls` is no key; there are kind, url_file, url_env, url, token_file, token_env, command, kinds, users, gpus, jobs, priority, tags",
            ),
            (
                "kind = 'slack'\n\nurl = 'https://hooks.example/hunter2'",
                "config.toml:7: notify.x: `url` may only be a URL of this computer: put another one into a file that only you can read, and name that with `url_file`",
            ),
            (
                "kind = 'slack'\nurl_env = 'A'\nkinds = ['leak', 'leek']",
                "config.toml:7: notify.x: `kinds`: gputop sends no `leek`; there are leak, leak_over, out_of_memory_soon, out_of_memory, process_ended, orphan, gpu_free, gpu_lost, gpu_answers, xid, host_lost, host_answers, idle, idle_over, test",
            ),
            (
                "kind = 'slack'\nurl_env = 'A'\nusers = 'ada'",
                "config.toml:7: notify.x: `users` must be a list of texts, as in [\"a\", \"b\"]",
            ),
            (
                "kind = 'slack'\nurl_env = 'A'\ncommand = 'yes'",
                "config.toml:7: notify.x: `command` must be true or false",
            ),
            (
                "kind = 'slack'\nurl_env = 'A'\npriority = 3",
                "config.toml:7: notify.x: `priority` is for ntfy only",
            ),
            (
                "kind = 'ntfy'\nurl_env = 'A'\npriority = 6",
                "config.toml:7: notify.x: `priority` must be a number from 1 (lowest) to 5 (highest)",
            ),
            (
                "kind = 'teams'\nurl_env = 'A'\ntoken_env = 'B'",
                "config.toml:4: notify.x: a token is for ntfy and webhook only",
            ),
            (
                "kind = 1",
                "config.toml:5: notify.x: `kind` must be text in quotes, not integer",
            ),
        ] {
            let tables = parse(&format!("{start}{lines}\n"));
            let result = |name: &str| {
                let (_, table) = tables.iter().find(|(known, _)| known == name).unwrap();
                table.as_ref().err().cloned()
            };
            assert_eq!(result("good"), None, "{lines}");
            assert_eq!(result("x").as_deref(), Some(expected), "{lines}");
        }
        assert_eq!(
            tables("\nnotify = 1\n", Path::new("config.toml")).unwrap_err(),
            "config.toml:2: notify: must be tables: `[notify.NAME]`"
        );
    }

    #[test]
    fn a_url_in_the_arguments_is_refused_unless_it_is_of_this_computer() {
        let destination = url_of_arguments("http://127.0.0.1:8080/x").unwrap();
        assert_eq!(destination.name.as_str(), "127.0.0.1:8080");
        for url in [
            "https://hooks.example/hunter2",
            "http://hooks.example/hunter2",
            "x://hunter2",
        ] {
            let why = url_of_arguments(url).unwrap_err();
            assert!(
                !why.contains("hunter2") && why.contains("url_file"),
                "{why}"
            );
        }
    }

    #[test]
    fn the_help_names_every_key_of_a_table() {
        let row = SETTINGS.iter().find(|(name, _)| *name == "[notify.NAME]");
        let (_, purpose) = row.expect("the help has a row for notifications");
        assert!(
            KEYS.iter().all(|key| purpose.contains(&format!("`{key}`"))),
            "{purpose}"
        );
    }
}
