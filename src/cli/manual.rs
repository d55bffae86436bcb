//! The manual pages, made from the command line and the table of keys.

use std::io::{self, Write};

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use strum::VariantArray;

use super::Cli;
use super::reference::{FILES, SETTINGS, VARIABLES};
use crate::app::keys::keymap::{BINDINGS, KeyContext};
use crate::commands::man::ManualPage;

/// Returns the page of gputop, and then one for each subcommand that is not hidden.
///
/// # Errors
///
/// Never: the pages are written to memory.
pub(crate) fn pages() -> io::Result<Vec<ManualPage>> {
    let mut command = Cli::command();
    command.build();
    let mut roff = Vec::new();
    write_main(&command, &mut roff)?;
    let mut pages = vec![ManualPage {
        subcommand: None,
        roff,
    }];
    for subcommand in command
        .get_subcommands()
        .filter(|subcommand| !subcommand.is_hide_set() && subcommand.get_name() != "help")
    {
        let name = subcommand.get_name();
        let page = subcommand
            .clone()
            .display_name(format!("gputop-{name}"))
            .bin_name(format!("gputop {name}"));
        let mut roff = Vec::new();
        Man::new(page).render(&mut roff)?;
        // clap_mangen leaves out what stands before the help.
        if let Some(before) = subcommand.get_before_help() {
            let before = before.to_string();
            writeln!(roff, ".SH EXAMPLES")?;
            for example in before.lines().skip(1).map(str::trim_start) {
                writeln!(roff, "{}\n.br", escaped(example))?;
            }
        }
        pages.push(ManualPage {
            subcommand: Some(name.to_owned()),
            roff,
        });
    }
    Ok(pages)
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
\fBgputop explain\fR found no message, \fBgputop analyze\fR no series, or no GPU, process or job has the given ID.
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
