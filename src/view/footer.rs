//! The last line: what was just done, the filter being typed, or the keys that help most.

use ratatui::buffer::Buffer;
use ratatui::style::Modifier;
use tui_input::Input;

use super::pen::Pen;
use super::theme::Theme;
use crate::app::App;
use crate::app::end_dialog::{EndDialog, Scope};
use crate::app::keymap::{BINDINGS, Intent, Mode};
use crate::app::layout::Area;
use crate::app::rows::Subject;
use crate::protocol::snapshot::ProcessId;

/// The keys to name, the most useful first, and what to call them in a word: none where the next key has the same.
const LIST: &[(Intent, &str)] = &[
    (Intent::Help, "help"),
    (Intent::Suspects, "orphans"),
    (Intent::OpenFilter, "filter"),
    (Intent::NextColumn, "sort"),
    (Intent::Graph, "graph"),
    (Intent::Detail, "detail"),
    (Intent::OpenEndPanel, "end process"),
    (Intent::OtherList, "GPUs"),
    (Intent::Quit, "quit"),
    (Intent::SettingsPanel, "settings"),
    (Intent::Pause, "pause"),
    (Intent::Mine, "mine"),
];

const SETUP: &[(Intent, &str)] = &[
    (Intent::Close, "back"),
    (Intent::Toggle, "show or hide"),
    (Intent::Keep, "write to config.toml"),
    (Intent::Shift(-1), "move left"),
    (Intent::Shift(1), "move right"),
];

const FILTER: &[(Intent, &str)] = &[(Intent::KeepFilter, "keep"), (Intent::ClearFilter, "clear")];

const PAGE: &[(Intent, &str)] = &[
    (Intent::Close, "back"),
    (Intent::Move(-1), ""),
    (Intent::Move(1), "line"),
    (Intent::MovePage(-1), ""),
    (Intent::MovePage(1), "page"),
];

const GRAPH: &[(Intent, &str)] = &[
    (Intent::Close, "back"),
    (Intent::Back(1), "past"),
    (Intent::Now, "now"),
    (Intent::Zoom(-1), "less time"),
    (Intent::Zoom(1), "more time"),
    (Intent::Mark, "mark"),
    (Intent::Move(1), "next"),
    (Intent::OtherList, "GPUs"),
    (Intent::OpenEndPanel, "end process"),
    (Intent::Help, "help"),
];

const MARK: &[(Intent, &str)] = &[(Intent::KeepMark, "keep"), (Intent::DropMark, "no mark")];

const PANEL: &[(Intent, &str)] = &[
    (Intent::Confirm, "send"),
    (Intent::Choose(-1), ""),
    (Intent::Choose(1), "choose"),
    (Intent::Widen, "whole job"),
    (Intent::Close, "close"),
];

const OVER: &[(Intent, &str)] = &[(Intent::Close, "close")];

pub(super) fn draw(buffer: &mut Buffer, theme: Theme, app: &App, area: Area) {
    let Some(mut pen) = Pen::at(buffer, area, 0) else { return };
    let mode = app.mode();
    // What one types, one sees.
    if let Some(notice) = app.notice().filter(|_| !matches!(mode, Mode::Filter | Mode::Mark)) {
        pen.rest(notice, theme.notable());
        return;
    }
    if mode == Mode::Filter {
        typed(&mut pen, theme, "filter: ", app.filter());
    } else if let (Mode::Mark, Some(name)) = (mode, app.marks().typed()) {
        typed(&mut pen, theme, "mark this moment as: ", name);
    } else if !app.filter().value().is_empty() && mode == Mode::List {
        pen.put(format!("filter: {}", app.filter().value()), theme.accent()).skip(2);
    }
    if mode == Mode::List && app.view().mine {
        pen.put("mine only", theme.accent()).skip(2);
    }
    if mode == Mode::List && !app.tagged().is_empty() {
        pen.put(tagged(app), theme.accent()).skip(2);
    }
    let hints = match mode {
        Mode::SettingsPanel => SETUP,
        Mode::List => LIST,
        Mode::Filter => FILTER,
        Mode::Page => PAGE,
        Mode::Graph => GRAPH,
        Mode::Mark => MARK,
        Mode::EndDialog if app.end_dialog().is_some_and(EndDialog::is_over) => OVER,
        Mode::EndDialog => PANEL,
    };
    // There is no more of the job than is meant, or what is meant has begun.
    let scope = app.end_dialog().map(EndDialog::scope);
    let is_fixed = |it: &EndDialog| it.first_sent().is_some() || it.scope() == Scope::Chosen && it.spared() == 0;
    let is_fixed = app.end_dialog().is_some_and(is_fixed);
    for (intent, word) in hints.iter().filter(|(intent, _)| !is_fixed || *intent != Intent::Widen) {
        let Some(key) =
            BINDINGS.iter().find(|it| it.mode == mode && it.intent == *intent).and_then(|it| it.keys.first())
        else {
            continue;
        };
        let word = if *intent == Intent::Widen && scope == Some(Scope::Job) { &"not all of it" } else { word };
        if pen.room() < key.name.len() + 1 + word.len() {
            break;
        }
        pen.put(key.name, theme.accent()).skip(1).put(*word, theme.dim()).skip(if word.is_empty() { 0 } else { 2 });
    }
}

/// How many are tagged, whom the panel would open on; and how many of those are not in the list now.
fn tagged(app: &App) -> String {
    let is_listed = |id: &ProcessId| {
        app.rows().iter().any(|row| match &row.subject {
            Subject::Process(process) => process == id,
            Subject::Group(group) => group.members.contains(id),
            Subject::Unaccounted(_) | Subject::Heading(_) => false,
        })
    };
    let hidden = app.tagged().iter().filter(|id| !is_listed(id)).count();
    let count = app.tagged().len();
    if hidden > 0 { format!("{count} tagged, {hidden} not listed") } else { format!("{count} tagged") }
}

/// A line that is being typed, and its cursor.
fn typed(pen: &mut Pen<'_>, theme: Theme, what: &str, input: &Input) {
    let value = input.value();
    let before: String = value.chars().take(input.cursor()).collect();
    let under = value.chars().nth(input.cursor()).unwrap_or(' ');
    pen.put(what, theme.accent()).put(&before, theme.text());
    pen.put(under.to_string(), theme.text().add_modifier(Modifier::REVERSED));
    pen.put(value.chars().skip(input.cursor() + 1).collect::<String>(), theme.text());
    pen.skip(2);
}
