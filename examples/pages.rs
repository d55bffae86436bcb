//! Writes what ships beside the program: manual pages and shell completions, made from the command line and the table of keys.
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
use gputop::app::columns::ListColumn;
use gputop::app::gpu_columns::GpuColumn;
use gputop::app::keymap::{BINDINGS, KeyContext};
use gputop::app::process_columns::ProcessColumn;
use gputop::cli::Cli;
use strum::VariantArray;

fn main() -> anyhow::Result<()> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from).context("say into which folder")?;
    let (pages, completions) = (folder.join("man"), folder.join("completions"));
    for folder in [&pages, &completions] {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let mut command = Cli::command();
    command.build();
    let mut main = File::create(pages.join("gputop.1"))?;
    write_main(&command, &mut main)?;
    for task in command.get_subcommands().filter(|it| !it.is_hide_set() && it.get_name() != "help") {
        let name = format!("gputop-{}", task.get_name());
        let page = task.clone().display_name(name.clone()).bin_name(name.replacen('-', " ", 1));
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

/// A command as completions offer it: without what is hidden, and with the names that a list of columns may begin with,
/// where a shell would offer files.
fn offered(command: &Command) -> Command {
    let argument = |it: &Arg| match it.get_id().as_str() {
        "sort" => names(it, ProcessColumn::sorts),
        "columns" => names(it, |_: ProcessColumn| true),
        "gpu_columns" => names(it, |_: GpuColumn| true),
        _ => it.clone(),
    };
    // clap keeps names for as long as the program runs.
    let name: &'static str = command.get_name().to_owned().leak();
    let it = Command::new(name)
        .about(command.get_about().cloned().unwrap_or_default())
        .args(command.get_arguments().filter(|it| !it.is_hide_set()).map(argument))
        .subcommands(command.get_subcommands().filter(|it| !it.is_hide_set()).map(offered));
    match command.get_version() {
        Some(version) => it.version(&*version.to_owned().leak()),
        None => it,
    }
}

/// An argument that begins with the name of a column.
fn names<C: ListColumn>(argument: &Arg, is_offered: fn(C) -> bool) -> Arg {
    let names = C::VARIANTS.iter().filter(|column| is_offered(**column)).map(|column| column.spec().name);
    argument.clone().value_parser(PossibleValuesParser::new(names))
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
    write!(out, "{REST}")?;
    man.render_version_section(out)
}

/// The table of keys, as the program has it.
fn keys(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, ".SH KEYS")?;
    for context in KeyContext::VARIANTS {
        writeln!(out, ".SS {context}")?;
        for binding in BINDINGS.iter().filter(|row| row.contexts.contains(context) && !row.help.is_empty()) {
            let keys = binding.keys.split(' ').map(escaped).collect::<Vec<_>>();
            writeln!(out, ".TP\n\\fB{}\\fR\n{}", keys.join("\\fR, \\fB"), escaped(binding.help))?;
        }
    }
    Ok(())
}

/// Text that roff takes as it is.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('^', "\\(ha").replace('`', "\\(ga");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

/// What the command line does not know of itself.
const REST: &str = r".SH FILES
.TP
\fI$XDG_CONFIG_HOME/gputop/config.toml\fR, \fI~/.config/gputop/config.toml\fR
What the person set: \fBtheme\fR, \fBinterval\fR, \fBcolumns\fR, \fBgpu_columns\fR, \fBsort\fR, \fBgroup\fR, \fBmine\fR, \fBhost\fR, \fBmouse\fR, \fBascii\fR. \fBW\fR writes it. A flag counts more than a variable, and that more than the file. A name that is not known is said and passed over; a value that does not do is said with its line.
.TP
\fI$XDG_STATE_HOME/gputop/screen.toml\fR, \fI~/.local/state/gputop/screen.toml\fR
How the screen was left: sorting, columns, grouping, colours. What config.toml says counts more.
.TP
\fI$XDG_STATE_HOME/gputop/kills.jsonl\fR
What was signalled, when, and what came of it, a line each.
.SH ENVIRONMENT
.TP
\fBGPUTOP_INTERVAL\fR, \fBGPUTOP_THEME\fR, \fBGPUTOP_COLUMNS\fR, \fBGPUTOP_SORT\fR, \fBGPUTOP_GROUP\fR, \fBGPUTOP_CONFIG\fR, \fBGPUTOP_NVML_LIB\fR
As the flags of these names.
.TP
\fBNO_COLOR\fR
When it is set and not empty, there are no colours.
.SH EXIT STATUS
.TP
.B 0
All is well.
.TP
.B 1
An error; the standard error says which.
.TP
.B 2
The command line makes no sense.
.TP
.B 3
No NVIDIA driver answers.
.TP
.B 4
The driver knows of no GPU.
.TP
.B 5
Some GPU or reading failed, or the timeout was up; the output says which.
.TP
.B 6
There was nothing to explain in a file, an argument or \fB\-\fR, or no such GPU.
.TP
.B 10
\fBgputop orphans\fR found some.
.TP
.B 11
\fBgputop free\fR found too few.
.TP
.B 128 + N
Signal N ended it.
.SH SAFETY
No single key ends anything. A signal goes through a pidfd that was opened before the start time of the process was compared with that of the one on the screen, so it reaches that process or nobody. PID 1, kernel threads, gputop itself and its ancestors are refused, and so is a PID that may belong to another PID namespace. \fB\-\-readonly\fR signals nobody.
.PP
What could not be read is never shown as 0: \fBN/A\fR is never reported here, \fBperm\fR may be seen by someone else, \fBERR\fR should have worked, \fB\&...\fR was not read yet.
.PP
The driver is called in a process of its own, \fBgputop agent\fR: one that hangs takes no screen with it.
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
