//! The tables `hosts`, `host` and `ssh` of `config.toml`, and the hosts that a command line names.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::mpsc::RecvTimeoutError;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{place, table};
use crate::cli::Cli;
use crate::commands::live::read_hosts::block_on;
use crate::files::action::{self, PATIENCE, in_background};
use crate::files::folders::{config_file, masters_folder};
use crate::files::local_time::unix_ms;
use crate::files::private_folder;
use crate::source::{
    HostList, HostTables, Masters, SshOptions, SshSettings, ViaCommand, is_group_name,
};

/// The keys of the table `ssh`.
const SSH_KEYS: [&str; 3] = ["upload", "connects", "options"];

/// The most connects at once to one sshd that a user may ask for.
const MOST_CONNECTS: i64 = 100;

/// Returns the command line with the hosts that its lists name. Reads `config.toml` and the
/// inventories only if there is such a list.
///
/// # Errors
///
/// When a file cannot be read, or a host, a group or a table is wrong: a sentence.
pub(crate) fn with_hosts(cli: &Cli) -> Result<Cli, String> {
    let mut cli = cli.clone();
    let config = cli.screen.config.clone();
    let needs_ssh = cli.cluster.login().is_some();
    let Some(hosts) = cli
        .hosts_mut()
        .filter(|hosts| hosts.names_lists() || needs_ssh)
    else {
        return Ok(cli);
    };
    let mut lists = hosts.lists();
    for path in hosts.inventories() {
        let failure = |why: &str| format!("cannot read {}: {why}", path.display());
        let text = read(path).map_err(|why| failure(&why))?;
        let list = HostList::of_inventory(&text)
            .map_err(|(line, why)| format!("{}:{line}: {why}", path.display()))?;
        lists.push(list);
    }
    let tables = match config.clone().or_else(|| config_file("config.toml")) {
        None => HostTables::default(),
        Some(path) => match read_if_there(&path, config.is_some())? {
            None => HostTables::default(),
            Some(text) => tables(&text, &path)?,
        },
    };
    let named = tables.named_hosts(&lists)?;
    let folder = masters_folder();
    let masters = private_folder::verify(&folder)
        .is_ok()
        .then(|| Masters::new(folder));
    let ssh = SshSettings {
        masters,
        ..tables.ssh.clone()
    };
    hosts.set_named(named, ssh);
    if let Some(target) = hosts.slurm().cloned() {
        let commands = hosts.slurm_commands();
        let asked = block_on(async { Ok(commands.ask(target.job, unix_ms()).await) });
        let job = asked.map_err(|error| error.to_string())??;
        hosts.add_nodes(&tables, &target, job)?;
    }
    Ok(cli)
}

fn read(path: &Path) -> Result<String, String> {
    let file = path.to_owned();
    match in_background(move || action::read(&file)).recv_timeout(PATIENCE) {
        Ok(text) => text.map_err(|error| error.to_string()),
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
            Err("it does not respond".to_owned())
        }
    }
}

/// Reads the configuration. `None` if it is not there and needs not be.
fn read_if_there(path: &Path, must_be_there: bool) -> Result<Option<String>, String> {
    let file = path.to_owned();
    match in_background(move || action::read(&file)).recv_timeout(PATIENCE) {
        Ok(Ok(text)) => Ok(Some(text)),
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound && !must_be_there => Ok(None),
        Ok(Err(error)) => Err(format!("cannot read {}: {error}", path.display())),
        Err(_) => Err(format!("{} does not respond", path.display())),
    }
}

/// Parses the tables on hosts of a configuration.
fn tables(text: &str, path: &Path) -> Result<HostTables, String> {
    let table = table(text, path)?;
    let mut tables = HostTables::default();
    for (key, value) in table.get_ref() {
        let name: &str = key.get_ref();
        set(&mut tables, name, value)
            .map_err(|(span, why)| format!("{}: {why}", place(text, path, span)))?;
    }
    Ok(tables)
}

/// The place of a value, and what is wrong with it.
type Problem = (Range<usize>, String);

/// Whether a key of `config.toml` is one of these tables. A `host` that is true or false is the
/// setting of the screen.
pub(super) fn is_host_table(key: &str, value: &DeValue<'_>) -> bool {
    matches!(key, "hosts" | "ssh") || key == "host" && value.is_table()
}

/// Checks one of these tables.
pub(super) fn check(key: &str, value: &Spanned<DeValue<'_>>) -> Result<(), Problem> {
    set(&mut HostTables::default(), key, value)
}

/// Takes one table. Ignores other keys.
fn set(tables: &mut HostTables, key: &str, value: &Spanned<DeValue<'_>>) -> Result<(), Problem> {
    if !is_host_table(key, value.get_ref()) {
        return Ok(());
    }
    let table = value
        .get_ref()
        .as_table()
        .ok_or_else(|| (value.span(), format!("{key}: must be a table")))?;
    match key {
        "hosts" => {
            for (name, lists) in table {
                let lists = group(name.get_ref(), lists)?;
                tables.groups.insert(name.get_ref().to_string(), lists);
            }
        }
        "host" => {
            for (name, value) in table {
                let command = host(name.get_ref(), value)?;
                tables.commands.insert(name.get_ref().to_string(), command);
            }
        }
        _ => ssh(tables, table)?,
    }
    Ok(())
}

/// Parses a group: `hosts.lab = ["gpu-[01-08]", "big"]`.
fn group(name: &str, value: &Spanned<DeValue<'_>>) -> Result<Vec<HostList>, Problem> {
    if !is_group_name(name) {
        let why =
            format!("hosts: `{name}` is no name of a group: it has letters, digits, . _ and -");
        return Err((value.span(), why));
    }
    let elements = value.get_ref().as_array().ok_or_else(|| {
        let why = format!("hosts.{name}: must be a list of hosts, as in [\"gpu-[01-08]\"]");
        (value.span(), why)
    })?;
    elements
        .iter()
        .map(|element| {
            let text = element
                .get_ref()
                .as_str()
                .ok_or_else(|| "must be text in quotes".to_owned());
            text.and_then(str::parse)
                .map_err(|why| (element.span(), format!("hosts.{name}: {why}")))
        })
        .collect()
}

/// Parses the command of a host: `host.big = { via = "kubectl exec …" }`.
fn host(name: &str, value: &Spanned<DeValue<'_>>) -> Result<ViaCommand, Problem> {
    let problem = |span, why: String| (span, format!("host.{name}: {why}"));
    let table = value
        .get_ref()
        .as_table()
        .ok_or_else(|| problem(value.span(), "must be a table with the key via".to_owned()))?;
    if let Some((key, _)) = table.iter().find(|(key, _)| key.get_ref() != "via") {
        let why = format!("`{}` is no key; there is via", key.get_ref());
        return Err(problem(key.span(), why));
    }
    let via = table
        .get("via")
        .ok_or_else(|| problem(value.span(), "lacks the key via".to_owned()))?;
    let mut command: ViaCommand = via
        .get_ref()
        .as_str()
        .ok_or_else(|| "via must be text in quotes".to_owned())
        .and_then(str::parse)
        .map_err(|why| problem(via.span(), why))?;
    command.name = Some(name.into());
    Ok(command)
}

/// Parses the table `ssh`.
fn ssh(tables: &mut HostTables, table: &DeTable<'_>) -> Result<(), Problem> {
    for (key, value) in table {
        let problem = |why: &str| (value.span(), format!("ssh.{}: {why}", key.get_ref()));
        match (&**key.get_ref(), value.get_ref()) {
            ("upload", value) => {
                let upload = value.as_bool();
                tables.ssh.upload = upload.ok_or_else(|| problem("must be true or false"))?;
                // A user who asks for copies wants them also where only /tmp can hold one.
                tables.ssh.uploads_everywhere = tables.ssh.upload;
            }
            ("connects", value) => {
                let number = value
                    .as_integer()
                    .and_then(|number| i64::from_str_radix(number.as_str(), number.radix()).ok())
                    .filter(|number| (1..=MOST_CONNECTS).contains(number))
                    .and_then(|number| usize::try_from(number).ok());
                tables.ssh.connects = number.ok_or_else(|| {
                    problem(&format!("must be a number from 1 to {MOST_CONNECTS}"))
                })?;
            }
            ("options", value) => {
                let words = value.as_array().and_then(|list| {
                    let word =
                        |word: &Spanned<DeValue<'_>>| Some(word.get_ref().as_str()?.to_owned());
                    list.iter().map(word).collect::<Option<Vec<_>>>()
                });
                let words = words.ok_or_else(|| {
                    problem("must be a list of texts, as in [\"-o\", \"ConnectTimeout=10\"]")
                })?;
                tables.ssh.options = SshOptions::new(words).map_err(|why| problem(&why))?;
            }
            (unknown, _) => {
                let why = format!(
                    "ssh: `{unknown}` is no key; there are {}",
                    SSH_KEYS.join(", ")
                );
                return Err((key.span(), why));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<HostTables, String> {
        tables(text, Path::new("config.toml"))
    }

    #[test]
    fn groups_hosts_and_ssh_are_read_beside_other_settings() {
        let tables = read(
            "host.big = { via = \"kubectl exec -i trainer-0 -- gputop agent\" }\ntheme = 1\n\
             hosts.lab = [\"gpu-[01-02]\", \"big\"]\n[ssh]\nupload = false\nconnects = 4\noptions = [\"-o\", \"ConnectTimeout=10\"]\n",
        )
        .unwrap();
        assert_eq!(tables.groups["lab"].len(), 2);
        assert_eq!(
            tables.commands["big"].name.as_ref().unwrap().as_str(),
            "big"
        );
        assert!(!tables.ssh.upload);
        assert_eq!(tables.ssh.connects, 4);
        assert_eq!(tables.ssh.options.words(), ["-o", "ConnectTimeout=10"]);
        assert!(read("host = false\n").unwrap().commands.is_empty());
    }

    #[test]
    fn a_wrong_table_is_one_sentence_with_its_line() {
        for (text, sentence) in [
            ("a = 1\nhosts = 1", "config.toml:2: hosts: must be a table"),
            (
                "hosts.lab = \"a\"",
                "config.toml:1: hosts.lab: must be a list of hosts",
            ),
            (
                "hosts.lab = [1]",
                "config.toml:1: hosts.lab: must be text in quotes",
            ),
            (
                "hosts.lab = [\n\"a\",\n\"b c\"]",
                "config.toml:3: hosts.lab: `b c` has the character ' '",
            ),
            (
                "hosts.\"a b\" = []",
                "config.toml:1: hosts: `a b` is no name of a group",
            ),
            (
                "host.big = \"x\"",
                "config.toml:1: host.big: must be a table with the key via",
            ),
            (
                "host.big = { vai = \"x\" }",
                "config.toml:1: host.big: `vai` is no key; there is via",
            ),
            (
                "host.big = { via = \"'x\" }",
                "config.toml:1: host.big: cannot split the command",
            ),
            (
                "host.big = {}",
                "config.toml:1: host.big: lacks the key via",
            ),
            (
                "ssh.uplaod = true",
                "config.toml:1: ssh: `uplaod` is no key; there are upload, connects, options",
            ),
            (
                "ssh.upload = 1",
                "config.toml:1: ssh.upload: must be true or false",
            ),
            (
                "ssh.connects = 0",
                "config.toml:1: ssh.connects: must be a number from 1 to 100",
            ),
            (
                "ssh.options = [1]",
                "config.toml:1: ssh.options: must be a list of texts",
            ),
            (
                "ssh.options = [\"-o\", \"ControlMaster=auto\"]",
                "config.toml:1: ssh.options: `ControlMaster=auto` may not be among the options of ssh",
            ),
        ] {
            let why = read(text).unwrap_err();
            assert!(why.starts_with(sentence), "{text}: {why}");
        }
    }
}
