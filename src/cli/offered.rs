//! The command line as shell completions offer it.

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, CommandFactory};

use super::Cli;
use crate::app::lists::columns::ListColumn;
use crate::app::lists::gpu_columns::GpuColumn;
use crate::app::lists::process_columns::ProcessColumn;

/// Returns the command line as completions offer it: without hidden arguments and subcommands, and
/// with the names of columns for arguments that begin with one.
pub(crate) fn command() -> Command {
    offered(&Cli::command())
}

fn offered(command: &Command) -> Command {
    let with_names = |argument: &Arg| match argument.get_id().as_str() {
        "sort" => names(argument, |column: ProcessColumn| {
            column.spec().sort.is_some()
        }),
        "columns" => names(argument, |_: ProcessColumn| true),
        "gpu_columns" => names(argument, |_: GpuColumn| true),
        _ => argument.clone(),
    };
    // clap keeps names for as long as the program runs.
    let name: &'static str = command.get_name().to_owned().leak();
    let offered = Command::new(name)
        .about(command.get_about().cloned().unwrap_or_default())
        .args(
            command
                .get_arguments()
                .filter(|argument| !argument.is_hide_set())
                .map(with_names),
        )
        .subcommands(
            command
                .get_subcommands()
                .filter(|subcommand| !subcommand.is_hide_set())
                .map(offered),
        );
    match command.get_version() {
        Some(version) => offered.version(&*version.to_owned().leak()),
        None => offered,
    }
}

/// Returns an argument whose completions are the names of columns.
fn names<C: ListColumn>(argument: &Arg, is_offered: fn(C) -> bool) -> Arg {
    let names = C::VARIANTS
        .iter()
        .filter(|column| is_offered(**column))
        .map(|column| column.spec().name);
    argument
        .clone()
        .value_parser(PossibleValuesParser::new(names))
}

#[cfg(test)]
mod tests {
    use clap_complete::Shell;

    use super::*;

    #[test]
    fn completions_offer_what_clap_adds_and_the_names_of_columns() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut offer = Vec::new();
            clap_complete::generate(shell, &mut command(), "gputop", &mut offer);
            let offer = String::from_utf8_lossy(&offer);
            // fish has no dashes before them.
            assert!(
                offer.contains("version") && offer.contains("help") && offer.contains("verdict"),
                "{shell}: {offer}"
            );
            assert!(!offer.contains("group-witness"), "{shell}: {offer}");
        }
    }
}
