//! `docs/reference.md`: every flag, column, key, setting, variable and file, written from the tables
//! of the program.

use std::path::Path;
use std::{env, fs};

use clap::builder::Str;
use clap::{Arg, Command, CommandFactory};
use strum::VariantArray;

use super::*;
use crate::app::keys::keymap::{BINDINGS, Binding, KeyContext};
use crate::app::lists::columns::ListColumn;
use crate::app::lists::gpu_columns::GpuColumn;
use crate::app::lists::process_columns::ProcessColumn;
use crate::cli::Cli;

const PAGE: &str = "docs/reference.md";

/// The command that writes the page anew.
const UPDATE: &str = "GPUTOP_UPDATE_DOCS=1 cargo test --lib reference_page";

const BEGIN: &str = "\
# Reference

Every flag of the screen and the reports; every column, key, setting, variable and file; and all subcommands, each with its own flags in its
`--help`. `gputop --help` and `?` on the screen say the same. The other pages say when to use which.
";

/// The pages that describe a setting more closely.
const SETTING_PAGES: &[(&str, &str)] = &[
    ("[colors]", "settings.md#themes-and-colours"),
    ("[hosts]", "hosts.md#groups-and-options-of-ssh"),
    ("[host.NAME]", "hosts.md#groups-and-options-of-ssh"),
    ("[ssh]", "hosts.md#groups-and-options-of-ssh"),
    ("[[launchers]]", "leftovers.md#launchers-and-your-own-ones"),
    ("[notify.NAME]", "alerts.md#the-keys-of-a-notification"),
];

/// Writes a text into a cell of a table. Outside of code, stars are no emphasis, and angle brackets
/// no HTML.
fn cell(text: &str) -> String {
    let mut escaped = String::new();
    let mut is_code = false;
    for letter in text.chars() {
        match letter {
            '`' => is_code = !is_code,
            '|' => escaped.push('\\'),
            '*' | '<' if !is_code => escaped.push('\\'),
            _ => {}
        }
        escaped.push(if letter == '\n' { ' ' } else { letter });
    }
    escaped
}

/// Writes words as code, separated by commas.
fn code<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words = words.into_iter().map(|word| format!("`{word}`"));
    cell(&words.collect::<Vec<_>>().join(", "))
}

fn table<Row: AsRef<[String]>>(
    page: &mut String,
    heading: &str,
    columns: &[&str],
    rows: impl Iterator<Item = Row>,
) {
    let _infallible = writeln!(page, "\n{heading}\n");
    let _infallible = writeln!(page, "| {} |", columns.join(" | "));
    let _infallible = writeln!(page, "|{}", "---|".repeat(columns.len()));
    for row in rows {
        let _infallible = writeln!(page, "| {} |", row.as_ref().join(" | "));
    }
}

/// The flags of a heading of the help, each with its default and its variable.
fn flags(page: &mut String, command: &Command, heading: Option<&str>) {
    let is_listed = |argument: &&Arg| {
        !argument.is_hide_set()
            && !argument.is_positional()
            && argument.get_help_heading() == heading
    };
    let row = |argument: &Arg| {
        let short = argument.get_short().map(|short| format!("-{short}"));
        let long = argument.get_long().map(|long| format!("--{long}"));
        let names: Vec<String> = short.into_iter().chain(long).collect();
        let values = argument.get_action().takes_values();
        let value = argument.get_value_names().filter(|_| values);
        let value = value.map_or_else(String::new, |names| {
            format!(" {}", code(names.iter().map(Str::as_str)))
        });
        let help = argument.get_long_help().or(argument.get_help());
        let variable = argument.get_env().and_then(|variable| variable.to_str());
        let mut purpose = cell(&help.map(ToString::to_string).unwrap_or_default());
        let defaults = argument.get_default_values().iter();
        for default in defaults
            .filter_map(|value| value.to_str())
            .filter(|_| values)
        {
            let _infallible = write!(purpose, " [default: {default}]");
        }
        if let Some(variable) = variable {
            let _infallible = write!(purpose, " (variable `{variable}`)");
        }
        [
            format!("{}{value}", code(names.iter().map(String::as_str))),
            purpose,
        ]
    };
    let title = format!("### {}", heading.unwrap_or("All outputs"));
    let arguments = command.get_arguments().filter(is_listed).map(row);
    table(page, &title, &["flag", "purpose"], arguments);
}

fn columns<Column: ListColumn + VariantArray>(page: &mut String, heading: &str) {
    let rows = Column::VARIANTS.iter().map(|column| {
        let spec = column.spec();
        [code([spec.name]), cell(spec.title), cell(spec.help)]
    });
    table(page, heading, &["name", "heading", "shows"], rows);
}

/// The keys of a context. A row without a text of its own has that of another row with its intent,
/// or goes on the row before.
fn keys(page: &mut String, context: KeyContext) {
    let mut rows: Vec<(Vec<&str>, &str)> = Vec::new();
    for binding in BINDINGS
        .iter()
        .filter(|row| row.contexts.contains(&context))
    {
        let keys = binding.keys.split(' ');
        let has_text = |other: &&Binding| !other.help.is_empty() && other.intent == binding.intent;
        match (BINDINGS.iter().find(has_text), rows.last_mut()) {
            _ if !binding.help.is_empty() => rows.push((keys.collect(), binding.help)),
            (Some(other), _) => rows.push((keys.collect(), other.help)),
            (None, Some((before, _))) => before.extend(keys),
            (None, None) => panic!("{} has no text", binding.keys),
        }
    }
    let rows = rows
        .into_iter()
        .map(|(keys, help)| [code(keys), cell(help)]);
    table(page, &format!("### {context}"), &["key", "does"], rows);
}

fn page() -> String {
    let command = Cli::command();
    let mut page = BEGIN.to_owned();
    let listed = |task: &&Command| !task.is_hide_set();
    let tasks = command.get_subcommands().filter(listed).map(|task| {
        let about = task.get_about().map(ToString::to_string);
        [code([task.get_name()]), cell(&about.unwrap_or_default())]
    });
    table(
        &mut page,
        "## Subcommands",
        &["subcommand", "purpose"],
        tasks,
    );
    let _infallible = writeln!(
        page,
        "\n`gputop SUBCOMMAND --help` lists the flags of one. [Scripts](scripts.md#exit-codes) has the exit codes.\n\n## Flags"
    );
    let mut headings: Vec<Option<&str>> = Vec::new();
    for argument in command
        .get_arguments()
        .filter(|argument| !argument.is_hide_set())
    {
        if !headings.contains(&argument.get_help_heading()) {
            headings.push(argument.get_help_heading());
        }
    }
    for heading in headings {
        flags(&mut page, &command, heading);
    }
    let _infallible = writeln!(
        page,
        "\n## Columns\n\nTheir names are the values of `--columns`, `--sort` and `--gpu-columns`, and of the settings of these names."
    );
    columns::<ProcessColumn>(&mut page, "### Columns of the process list");
    columns::<GpuColumn>(&mut page, "### Columns of the GPU list");
    let _infallible = writeln!(
        page,
        "\n## Keys\n\n`^S` is Ctrl-S. A replay has its own keys before those of the lists, the graph and the pages."
    );
    for context in KeyContext::VARIANTS {
        keys(&mut page, *context);
    }
    let settings = SETTINGS.iter().map(|(names, purpose)| {
        let more = SETTING_PAGES.iter().find(|(name, _)| name == names);
        let more = more.map_or_else(String::new, |(_, link)| format!(" [More]({link})"));
        [code(names.split(", ")), cell(purpose) + &more]
    });
    let heading = "## Settings in config.toml";
    table(&mut page, heading, &["setting", "purpose"], settings);
    for (heading, column, rows) in [
        ("## Variables", "variable", VARIABLES),
        ("## Files", "file", FILES),
    ] {
        let rows = rows
            .iter()
            .map(|(names, purpose)| [code(names.split(", ")), cell(purpose)]);
        table(&mut page, heading, &[column, "purpose"], rows);
    }
    page
}

#[test]
fn the_reference_page_is_that_of_the_program() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let written = page();
    if env::var_os("GPUTOP_UPDATE_DOCS").is_some_and(|value| value == "1") {
        fs::write(path, written).unwrap();
        return;
    }
    let kept = fs::read_to_string(path).unwrap();
    let mut lines = written.lines().zip(kept.lines());
    if let Some((line, kept)) = lines.find(|(line, kept)| line != kept) {
        panic!("{PAGE} has {kept:?}, and the program {line:?}. Write the page anew: {UPDATE}");
    }
    assert_eq!(
        written.lines().count(),
        kept.lines().count(),
        "{PAGE} has other rows than the program. Write it anew: {UPDATE}"
    );
}

#[test]
fn every_table_of_the_settings_file_has_a_page() {
    for (names, _) in SETTINGS.iter().filter(|(names, _)| names.starts_with('[')) {
        assert!(
            SETTING_PAGES.iter().any(|(name, _)| name == names),
            "{names} has no page in SETTING_PAGES"
        );
    }
}
