//! Writes what ships beside the program: manual pages and shell completions, made from the command
//! line and the table of keys.
//!
//! ```text
//! cargo run --example pages -- target/pages
//! ```

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, CommandFactory};
use clap_complete::{Shell, generate_to};
use clap_mangen::Man;
use gputop::app::{BINDINGS, GpuColumn, KeyContext, ListColumn, ProcessColumn};
use gputop::cli::Cli;
use gputop::cli::reference::{FILES, SETTINGS, VARIABLES};
use strum::VariantArray;

fn main() -> anyhow::Result<()> {
    let folder = std::env::args_os()
        .nth(1)
        .map(PathBuf::from)
        .context("name the folder to write to")?;
    let (pages, completions) = (folder.join("man"), folder.join("completions"));
    for folder in [&pages, &completions] {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let mut command = Cli::command();
    command.build();
    let mut main = File::create(pages.join("gputop.1"))?;
    write_main(&command, &mut main)?;
    for task in command
        .get_subcommands()
        .filter(|task| !task.is_hide_set() && task.get_name() != "help")
    {
        let name = format!("gputop-{}", task.get_name());
        let page = task
            .clone()
            .display_name(name.clone())
            .bin_name(name.replacen('-', " ", 1));
        Man::new(page).render(&mut File::create(pages.join(format!("{name}.1")))?)?;
    }
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        complete(shell, &completions)?;
    }
    Ok(())
}

fn complete(shell: Shell, folder: &Path) -> io::Result<()> {
    generate_to(shell, &mut offered(&Cli::command()), "gputop", folder).map(drop)
}

/// Returns a command as completions offer it: without hidden arguments and subcommands, and with
/// the names of columns for arguments that begin with one.
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

fn write_main(command: &Command, out: &mut impl Write) -> io::Result<()> {
    let man = Man::new(command.clone());
    man.render_title(out)?;
    man.render_name_section(out)?;
    man.render_synopsis_section(out)?;
    man.render_description_section(out)?;
    man.render_options_section(out)?;
    man.render_subcommands_section(out)?;
    keys(out)?;
    table("FILES", FILES, out)?;
    table("ENVIRONMENT", VARIABLES, out)?;
    table("SETTINGS", SETTINGS, out)?;
    write!(out, "{REST}")?;
    man.render_version_section(out)
}

/// Writes the section on keys, from the program's table of keys.
fn keys(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, ".SH KEYS")?;
    for context in KeyContext::VARIANTS {
        writeln!(out, ".SS {context}")?;
        for binding in BINDINGS
            .iter()
            .filter(|row| row.contexts.contains(context) && !row.help.is_empty())
        {
            let keys = binding.keys.split(' ').map(escaped).collect::<Vec<_>>();
            writeln!(
                out,
                ".TP\n\\fB{}\\fR\n{}",
                keys.join("\\fR, \\fB"),
                escaped(binding.help)
            )?;
        }
    }
    Ok(())
}

/// Writes a section that names things and their purposes.
fn table(title: &str, rows: &[(&str, &str)], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, ".SH {title}")?;
    for (names, purpose) in rows {
        let names = names.split(", ").map(escaped).collect::<Vec<_>>();
        writeln!(
            out,
            ".TP\n\\fB{}\\fR\n{}",
            names.join("\\fR, \\fB"),
            escaped(purpose)
        )?;
    }
    Ok(())
}

/// Escapes a text for roff.
fn escaped(text: &str) -> String {
    let text = text
        .replace('\\', "\\e")
        .replace('-', "\\-")
        .replace('^', "\\(ha")
        .replace('`', "\\(ga");
    if text.starts_with(['.', '\'']) {
        format!("\\&{text}")
    } else {
        text
    }
}

/// The sections that follow the tables.
const REST: &str = r".SH EXIT STATUS
.TP
.B 0
Everything could be read.
.TP
.B 1
An error, described on the standard error.
.TP
.B 2
The command line is invalid.
.TP
.B 3
No NVIDIA driver responds.
.TP
.B 4
The driver finds no GPU.
.TP
.B 5
A GPU or reading failed, or the timeout passed; the output says which.
.TP
.B 6
\fBgputop explain\fR found no message, \fBgputop analyze\fR no series, or no GPU has the given ID.
.TP
.B 10
\fBgputop orphans\fR found orphans.
.TP
.B 11
\fBgputop free\fR found too few free GPUs, and did not run its command. Otherwise the exit code is that of the command: 127 if it was not found, 126 if it could not be run.
.TP
.B 128 + N
Signal N ended gputop.
.SH SAFETY
No single key ends anything. A signal goes through a pidfd that was opened before the start time of the process was compared with that of the one on the screen, so it reaches that process or none. PID 1, kernel threads, gputop itself and its ancestors are refused, and so is a PID that may belong to another PID namespace. With \fB\-\-readonly\fR, gputop sends no signal.
.PP
A value that could not be read is never shown as 0: \fBN/A\fR is not reported by this GPU, driver or system, \fBperm\fR needs other permissions, \fBERR\fR failed, \fB\&...\fR was not read yet.
.PP
A separate process, \fBgputop agent\fR, calls the driver, so a driver that hangs does not block the screen.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_offer_what_clap_adds_and_the_names_of_columns() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut offer = Vec::new();
            clap_complete::generate(shell, &mut offered(&Cli::command()), "gputop", &mut offer);
            let offer = String::from_utf8_lossy(&offer);
            // fish has no dashes before them.
            assert!(
                offer.contains("version") && offer.contains("help") && offer.contains("verdict"),
                "{shell}: {offer}"
            );
        }
    }
}
