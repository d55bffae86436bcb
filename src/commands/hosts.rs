//! `gputop hosts`: connections to other hosts that later sessions share, and the copies of gputop
//! there.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::Context;
use clap::{Args, Subcommand};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::live::read_hosts::block_on;
use crate::base::text::Text;
use crate::files::{folders, private_folder};
use crate::flags::{HostArgs, SUBCOMMAND_HELP};
use crate::output::{self, Exit, print, print_error};
use crate::source::{
    HostList, Masters, NamedHost, SshHost, clean_copies, master_is_open, stop_master,
};

/// The most hosts that are cleaned at once.
const AT_ONCE: usize = 8;

/// How long a connection stays without a session, as ssh's `ControlPersist`.
const KEEP: &str = "10m";
/// For a viewer: longer than it waits before it connects again, so that the connection lasts as long
/// as the viewers that use it.
const KEEP_FOR_VIEWER: &str = "90s";

/// The options of `gputop hosts`.
#[derive(Debug, Clone, Args)]
pub(crate) struct HostsArgs {
    #[command(subcommand)]
    action: HostsAction,
}

/// An action on hosts.
#[derive(Debug, Clone, Subcommand)]
enum HostsAction {
    /// Log in to hosts once: ssh asks for passwords and codes on this terminal, and `gputop -H` uses
    /// the connections. Each ends ten minutes after its last use
    #[command(help_template = SUBCOMMAND_HELP, before_help = "Examples:\n  gputop hosts connect 'gpu-[01-08]'")]
    Connect(ConnectArgs),
    /// End the connections of `gputop hosts connect`; without a name, all of them. Sessions that use
    /// one go on
    #[command(help_template = SUBCOMMAND_HELP, before_help = "Examples:\n  gputop hosts disconnect gpu-03")]
    Disconnect(NamedHosts),
    /// Remove the copies of gputop that were made on hosts
    #[command(help_template = SUBCOMMAND_HELP, before_help = "Examples:\n  gputop hosts clean gpu-03")]
    Clean(NamedHosts),
}

#[derive(Debug, Clone, Args)]
struct ConnectArgs {
    #[command(flatten)]
    named: NamedHosts,

    /// Connect for a viewer, which cannot wait for questions itself: the connections end soon after
    /// their last use, and a failure stays on the screen until it was read
    #[arg(long, hide = true)]
    from_viewer: bool,
}

#[derive(Debug, Clone, Args)]
struct NamedHosts {
    /// The hosts, as for `-H`: `gpu-01 node[01-16] @lab`
    #[arg(value_name = "HOST", value_parser = HostList::from_str)]
    names: Vec<HostList>,

    /// These hosts, too, as `gputop -H` takes them
    #[arg(short = 'H', long = "host", value_name = "HOST,…", value_parser = HostList::from_str)]
    more: Vec<HostList>,

    /// The hosts of this file, as for `gputop --hosts`
    #[arg(long = "hosts", value_name = "FILE")]
    inventories: Vec<PathBuf>,

    #[arg(skip)]
    hosts: HostArgs,
}

impl HostsArgs {
    /// The flags on hosts, whose names are still to be looked up in the configuration.
    pub(crate) fn hosts_mut(&mut self) -> &mut HostArgs {
        let (HostsAction::Connect(ConnectArgs { named, .. })
        | HostsAction::Disconnect(named)
        | HostsAction::Clean(named)) = &mut self.action;
        let lists = [named.names.clone(), named.more.clone()].concat();
        named.hosts.set_lists(lists, named.inventories.clone());
        &mut named.hosts
    }
}

/// Connects, disconnects or cleans hosts.
///
/// # Errors
///
/// When the folder of the sockets cannot be used, or the standard output cannot be written.
pub(crate) fn run(args: &HostsArgs) -> anyhow::Result<ExitCode> {
    Ok(match &args.action {
        HostsAction::Connect(args) if args.named.is_nobody() => refuse_nobody("connect gpu-01"),
        HostsAction::Clean(named) if named.is_nobody() => refuse_nobody("clean gpu-01"),
        HostsAction::Connect(args) if args.from_viewer => connect_for_viewer(args)?,
        HostsAction::Connect(args) => connect(args)?,
        HostsAction::Disconnect(named) => disconnect(named)?,
        HostsAction::Clean(named) => block_on(clean(named))?,
    })
}

fn refuse_nobody(example: &str) -> ExitCode {
    let sentence = format!("name hosts, as in `gputop hosts {example}` or `@lab`");
    output::refuse(&sentence.as_str().into())
}

/// Returns the folder of the sockets, which only this user may enter.
fn folder() -> anyhow::Result<PathBuf> {
    let folder = folders::masters_folder();
    private_folder::open(&folder).with_context(|| {
        format!(
            "cannot use {} for the sockets of connections",
            folder.display()
        )
    })?;
    Ok(folder)
}

impl NamedHosts {
    /// Whether the command line names no host, and no file of hosts.
    fn is_nobody(&self) -> bool {
        self.names.is_empty() && self.more.is_empty() && self.inventories.is_empty()
    }

    /// The hosts over ssh. Reports those that have a command of their own.
    fn over_ssh(&self) -> Vec<SshHost> {
        let mut hosts = Vec::new();
        for named in self.hosts.named() {
            match named {
                NamedHost::Ssh(name) => hosts.push(self.hosts.ssh_host(name)),
                NamedHost::Srun(..) | NamedHost::Via(_) => print_error(&Text::new(format!(
                    "{} has a command of its own, without ssh",
                    named.name()
                ))),
            }
        }
        hosts
    }
}

fn connect(args: &ConnectArgs) -> anyhow::Result<ExitCode> {
    let (keep, connected) = if args.from_viewer {
        (KEEP_FOR_VIEWER, "is connected")
    } else {
        (KEEP, "is connected, until 10 minutes without use")
    };
    let masters = Masters::new(folder()?);
    let mut exits = Vec::new();
    for host in args.named.over_ssh() {
        let name = host.host_name();
        let socket = masters
            .socket(&host)
            .with_context(|| format!("cannot connect {name}"))?;
        let (exit, sentence) = if master_is_open(&socket) {
            (Exit::Success, "is connected already")
        } else {
            stop_master(&socket).with_context(|| format!("cannot remove {}", socket.display()))?;
            // ssh says itself why it cannot connect.
            let status = masters
                .open_command(&host, keep)
                .status()
                .context("cannot start ssh")?;
            if status.success() && master_is_open(&socket) {
                (Exit::Success, connected)
            } else {
                (Exit::Error, "is not connected")
            }
        };
        print(format!("{name} {sentence}\n").as_bytes())?;
        exits.push(exit);
    }
    Ok(Exit::combined(&exits).into())
}

/// Connects for a viewer, whose screen would hide why a connection failed.
fn connect_for_viewer(args: &ConnectArgs) -> anyhow::Result<ExitCode> {
    let result = connect(args);
    if result.as_ref().is_ok_and(|exit| *exit == ExitCode::SUCCESS) {
        return result;
    }
    if let Err(error) = &result {
        print_error(&Text::new(format!("{error:#}")));
    }
    print(b"Enter goes back to gputop\n")?;
    io::stdin()
        .read_line(&mut String::new())
        .context("cannot read the terminal")?;
    Ok(Exit::Error.into())
}

fn disconnect(named: &NamedHosts) -> anyhow::Result<ExitCode> {
    let masters = Masters::new(folder()?);
    if named.is_nobody() {
        let mut count = 0;
        for socket in masters.sockets().context("cannot list the connections")? {
            count += u32::from(stop_master(&socket)?);
        }
        let noun = if count == 1 {
            "connection"
        } else {
            "connections"
        };
        print(format!("{count} {noun} ended\n").as_bytes())?;
        return Ok(Exit::Success.into());
    }
    for host in named.over_ssh() {
        let name = host.host_name();
        let socket = masters
            .socket(&host)
            .with_context(|| format!("cannot find {name}"))?;
        let sentence = if stop_master(&socket)? {
            "is disconnected"
        } else {
            "was not connected"
        };
        print(format!("{name} {sentence}\n").as_bytes())?;
    }
    Ok(Exit::Success.into())
}

async fn clean(named: &NamedHosts) -> anyhow::Result<ExitCode> {
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut cleaned = JoinSet::new();
    for host in named.over_ssh() {
        let turns = Arc::clone(&turns);
        cleaned.spawn(async move {
            let _turn = turns.acquire().await;
            (host.host_name(), clean_copies(&host).await)
        });
    }
    let mut exits = Vec::new();
    while let Some(result) = cleaned.join_next().await {
        let (name, removed) = result?;
        match removed {
            Ok(paths) if paths.is_empty() => {
                print(format!("{name}: there was no copy\n").as_bytes())?;
                exits.push(Exit::Success);
            }
            Ok(paths) => {
                for path in paths {
                    print(format!("{name}: removed {path}\n").as_bytes())?;
                }
                exits.push(Exit::Success);
            }
            Err(reason) => {
                print_error(&Text::new(format!("{name}: {reason}")));
                exits.push(Exit::Error);
            }
        }
    }
    Ok(Exit::combined(&exits).into())
}
