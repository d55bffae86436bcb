//! The groups and hosts of the configuration, and how hosts on the command line become sources.

use std::collections::{BTreeMap, HashSet};

use super::command_line::SshOptions;
use super::host_list::{HostList, ListedHost, MOST_HOSTS, too_many};
use super::host_name::HostName;
use super::masters::Masters;
use super::srun::SrunStep;
use crate::base::text::Text;
use crate::source::via::ViaCommand;

/// The most connects at once to one sshd: the usual server refuses more than ten.
pub(crate) const DEFAULT_CONNECTS: usize = 8;

/// How ssh connects to hosts: the table `ssh` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshSettings {
    /// Whether gputop may be uploaded to a host that has none.
    pub(crate) upload: bool,
    /// Whether a copy may also be in a private folder in `/dev/shm` or `/tmp`.
    pub(crate) uploads_everywhere: bool,
    /// The most connects at once to one sshd.
    pub(crate) connects: usize,
    pub(crate) options: SshOptions,
    /// The masters that gputop has opened; `None` where their folder cannot be used.
    pub(crate) masters: Option<Masters>,
}

impl Default for SshSettings {
    fn default() -> Self {
        Self {
            upload: true,
            uploads_everywhere: false,
            connects: DEFAULT_CONNECTS,
            options: SshOptions::default(),
            masters: None,
        }
    }
}

/// The tables `hosts`, `host` and `ssh` of the configuration.
#[derive(Debug, Clone, Default)]
pub(crate) struct HostTables {
    /// The lists of each group.
    pub(crate) groups: BTreeMap<String, Vec<HostList>>,
    /// The command of each host that has one of its own.
    pub(crate) commands: BTreeMap<String, ViaCommand>,
    pub(crate) ssh: SshSettings,
}

/// A host that a list names, and how it is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NamedHost {
    /// Through ssh.
    Ssh(HostName),
    /// Through `srun`, as a step of a job.
    Srun(HostName, SrunStep),
    /// Through a command of its own.
    Via(ViaCommand),
}

impl NamedHost {
    /// The name of the host.
    pub(crate) fn name(&self) -> Text {
        match self {
            Self::Ssh(name) | Self::Srun(name, _) => Text::new(name.as_str()),
            Self::Via(command) => command.host_name(),
        }
    }
}

impl HostTables {
    /// Returns the hosts of these lists, in their order. A host that is named twice is there once.
    ///
    /// # Errors
    ///
    /// When there is no such group, or there are too many hosts: a sentence.
    pub(crate) fn named_hosts(&self, lists: &[HostList]) -> Result<Vec<NamedHost>, String> {
        let mut found = FoundHosts::default();
        for list in lists {
            self.add(list, &mut found)?;
        }
        Ok(found.hosts)
    }

    fn add(&self, list: &HostList, found: &mut FoundHosts) -> Result<(), String> {
        for listed in &list.0 {
            match listed {
                ListedHost::Host(name) => {
                    if !found.names.insert(name.as_str().to_owned()) {
                        continue;
                    }
                    if found.hosts.len() == MOST_HOSTS {
                        return Err(too_many());
                    }
                    found.hosts.push(match self.commands.get(name.as_str()) {
                        Some(command) => NamedHost::Via(command.clone()),
                        None => NamedHost::Ssh(name.clone()),
                    });
                }
                // A group that names itself, or one above it, adds nothing.
                ListedHost::Group(group) => {
                    let lists = self
                        .groups
                        .get(group)
                        .ok_or_else(|| self.no_such_group(group))?;
                    if found.groups.insert(group.clone()) {
                        for list in lists {
                            self.add(list, found)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn no_such_group(&self, group: &str) -> String {
        let known: Vec<&str> = self.groups.keys().map(String::as_str).collect();
        let known = if known.is_empty() {
            "it has no group".to_owned()
        } else {
            format!("it has {}", known.join(", "))
        };
        format!(
            "there is no group `hosts.{}` in config.toml; {known}",
            Text::new(group)
        )
    }
}

#[derive(Default)]
struct FoundHosts {
    hosts: Vec<NamedHost>,
    /// The names of the hosts.
    names: HashSet<String>,
    /// The groups that were written out.
    groups: HashSet<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables() -> HostTables {
        let lists = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        HostTables {
            groups: [
                ("lab".to_owned(), lists(&["gpu-[1-2]", "big"])),
                ("all".to_owned(), lists(&["@lab", "@all", "gpu-9"])),
            ]
            .into(),
            commands: [(
                "big".to_owned(),
                "big=kubectl exec -i trainer-0 -- gputop agent"
                    .parse()
                    .unwrap(),
            )]
            .into(),
            ssh: SshSettings::default(),
        }
    }

    fn names(texts: &[&str]) -> Result<Vec<String>, String> {
        let lists: Vec<HostList> = texts.iter().map(|text| text.parse().unwrap()).collect();
        let hosts = tables().named_hosts(&lists)?;
        Ok(hosts
            .iter()
            .map(|host| match host {
                NamedHost::Via(command) => format!("{} (its own command)", command.host_name()),
                other => other.name().to_string(),
            })
            .collect())
    }

    #[test]
    fn groups_are_written_out_and_each_host_is_there_once_and_with_its_own_command() {
        assert_eq!(
            names(&["gpu-2,x", "@all", "x"]).unwrap(),
            ["gpu-2", "x", "gpu-1", "big (its own command)", "gpu-9"]
        );
    }

    #[test]
    fn an_unknown_group_and_too_many_hosts_are_refused() {
        assert_eq!(
            names(&["@lob"]).unwrap_err(),
            "there is no group `hosts.lob` in config.toml; it has all, lab"
        );
        assert_eq!(
            HostTables::default()
                .named_hosts(&["@lab".parse().unwrap()])
                .unwrap_err(),
            "there is no group `hosts.lab` in config.toml; it has no group"
        );
        assert_eq!(names(&["a[1-900]", "b[1-900]"]).unwrap_err(), too_many());
    }
}
