//! `gputop doctor --secrets`: which arguments of the processes of this host are masked, and by
//! which rule. Never shows a secret.

use std::process::ExitCode;

use crate::agent::diagnostics::HostSecrets;
use crate::base::secrets::{FoundSecret, MASK, SecretRule};
use crate::base::terminal::TerminalAbilities;
use crate::output::table::{self, Heading};
use crate::output::{self, Exit};

/// Prints the list.
///
/// # Errors
///
/// When the standard output cannot be written.
pub(crate) fn run() -> anyhow::Result<ExitCode> {
    let host = HostSecrets::read();
    let mut text = String::new();
    if !host.found.is_empty() {
        const HEADINGS: [Heading; 4] = [
            ("PID", true),
            ("PROGRAM", false),
            ("ARGUMENT", false),
            ("RULE", false),
        ];
        let row = |(pid, secret): &(u32, FoundSecret)| {
            [
                pid.to_string(),
                secret.program.clone(),
                argument(secret),
                rule(secret),
            ]
        };
        table::rows(&mut text, None, &HEADINGS, host.found.iter().map(row));
        text.push('\n');
    }
    text.push_str(&summary(&host));
    output::print_text(&text, TerminalAbilities::from_env().ascii)?;
    Ok(Exit::Success.into())
}

fn argument(secret: &FoundSecret) -> String {
    if secret.option.is_empty() {
        MASK.to_owned()
    } else {
        format!("{} {MASK}", secret.option)
    }
}

fn rule(secret: &FoundSecret) -> String {
    match secret.rule {
        SecretRule::Program => format!("{} expects a secret there", secret.program),
        SecretRule::Name => "the name means a secret".to_owned(),
        SecretRule::Url => "this part of a URL is a secret".to_owned(),
        SecretRule::Shape(issuer) => format!("the value has the shape of a secret: {issuer}"),
        SecretRule::StandardInput => {
            "a command reads it as a password from its standard input".to_owned()
        }
    }
}

fn summary(host: &HostSecrets) -> String {
    let mut pids: Vec<u32> = host.found.iter().map(|(pid, _)| *pid).collect();
    pids.dedup();
    let all = processes(host.processes);
    let first = match (host.found.len(), pids.len()) {
        (0, _) => format!("no secret found in the arguments of {all}"),
        (1, _) => format!("1 secret in the arguments of 1 of {all}: gputop shows {MASK} instead"),
        (count, with) => format!(
            "{count} secrets in the arguments of {with} of {all}: gputop shows {MASK} instead"
        ),
    };
    let unreadable = format!(
        "this user may not read the arguments of {}",
        processes(host.unreadable)
    );
    let hung = format!(
        "the arguments of {} could not be read in time",
        processes(host.hung)
    );
    let lines = [
        (true, first),
        (host.unreadable > 0, unreadable),
        (host.hung > 0, hung),
    ];
    lines
        .into_iter()
        .filter(|(is_said, _)| *is_said)
        .map(|(_, line)| line + "\n")
        .collect()
}

fn processes(count: usize) -> String {
    if count == 1 {
        "1 process".to_owned()
    } else {
        format!("{count} processes")
    }
}
