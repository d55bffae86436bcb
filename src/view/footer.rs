//! Draws the last line: the notice, the text being typed, or the most useful keys.

use ratatui::buffer::Buffer;
use ratatui::style::Modifier;
use tui_input::Input;

use super::pen::Pen;
use super::theme::Theme;
use crate::app::end_dialog::Scope;
use crate::app::keymap::{BINDINGS, Binding, Intent};
use crate::app::layout::Area;
use crate::app::process_list::ProcessList;
use crate::app::rows::RowSubject;
use crate::app::{App, Mode};
use crate::model::HostProcess;

/// The intents whose keys the footer shows over the lists, the most useful first, each with a word. The word is empty
/// if the next key has the same.
const LIST: &[(Intent, &str)] = &[
    (Intent::Help, "help"),
    (Intent::Suspects, "orphans"),
    (Intent::OpenFilter, "filter"),
    (Intent::SortByNeighbour(1), "sort"),
    (Intent::Graph, "graph"),
    (Intent::Detail, "detail"),
    (Intent::OpenEndDialog, "end process"),
    (Intent::OtherList, "GPUs"),
    (Intent::Quit, "quit"),
    (Intent::SettingsPanel, "settings"),
    (Intent::Pause, "pause"),
    (Intent::Mine, "mine"),
];

const SETTINGS_PANEL: &[(Intent, &str)] = &[
    (Intent::Close, "back"),
    (Intent::Toggle, "show or hide"),
    (Intent::SaveSettings, "write to config.toml"),
    (Intent::Shift(-1), "move left"),
    (Intent::Shift(1), "move right"),
];

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
    (Intent::OpenEndDialog, "end process"),
    (Intent::Help, "help"),
];

const END_DIALOG: &[(Intent, &str)] = &[
    (Intent::Confirm, "send"),
    (Intent::Choose(-1), ""),
    (Intent::Choose(1), "choose"),
    (Intent::Widen, "whole job"),
    (Intent::Close, "close"),
];

pub(super) fn draw(buffer: &mut Buffer, theme: Theme, app: &App, area: Area) {
    let Some(mut pen) = Pen::at(buffer, area, 0) else { return };
    // The text that the user types has precedence over a notice.
    if let Some(notice) = app.notice.text().filter(|_| !app.is_typing()) {
        pen.rest(notice, theme.notable());
        return;
    }
    let processes = &app.processes;
    match app.modes.current() {
        Mode::Filter => typed(&mut pen, theme, "filter: ", &processes.filter),
        Mode::Mark(mark) => typed(&mut pen, theme, "mark this moment as: ", &mark.name),
        Mode::List => {
            if !processes.filter.value().is_empty() {
                pen.put(format!("filter: {}", processes.filter.value()), theme.accent()).skip(2);
            }
            if processes.view.mine {
                pen.put("mine only", theme.accent()).skip(2);
            }
            if !processes.tagged.is_empty() {
                pen.put(tagged(processes), theme.accent()).skip(2);
            }
        }
        _ => {}
    }
    let hints: &[(Intent, &str)] = match app.modes.current() {
        Mode::SettingsPanel(_) => SETTINGS_PANEL,
        Mode::List => LIST,
        Mode::Filter => &[(Intent::Close, "keep"), (Intent::ClearFilter, "clear")],
        Mode::Page(_) => PAGE,
        Mode::Graph(_) => GRAPH,
        Mode::Mark(_) => &[(Intent::AddMark, "keep"), (Intent::Close, "no mark")],
        Mode::EndDialog(dialog) if dialog.is_over() => &[(Intent::Close, "close")],
        Mode::EndDialog(_) => END_DIALOG,
    };
    let context = app.modes.current().key_context();
    let dialog = app.modes.end_dialog();
    for (intent, word) in hints {
        let word = match (intent, dialog) {
            (Intent::Widen, Some(dialog)) if !dialog.can_widen() => continue,
            (Intent::Widen, Some(dialog)) if dialog.scope == Scope::Job => "not all of it",
            _ => *word,
        };
        let is_hinted = |binding: &&Binding| binding.contexts.contains(&context) && binding.intent == *intent;
        let Some(key) = BINDINGS.iter().find(is_hinted).and_then(|binding| binding.keys.split(' ').next()) else {
            continue;
        };
        if pen.room() < key.len() + 1 + word.len() {
            break;
        }
        pen.put(key, theme.accent()).skip(1).put(word, theme.dim()).skip(if word.is_empty() { 0 } else { 2 });
    }
}

/// The number of tagged processes, and of those that the list does not show now.
fn tagged(processes: &ProcessList) -> String {
    let is_listed = |id: &HostProcess| {
        processes.rows.iter().any(|row| match &row.subject {
            RowSubject::Process(process) => process == id,
            RowSubject::Group(group) => group.host == id.host && group.members.contains(&id.process),
            RowSubject::Unaccounted(_) | RowSubject::Heading(_) => false,
        })
    };
    let hidden = processes.tagged.iter().filter(|id| !is_listed(id)).count();
    let count = processes.tagged.len();
    if hidden > 0 { format!("{count} tagged, {hidden} not listed") } else { format!("{count} tagged") }
}

fn typed(pen: &mut Pen<'_>, theme: Theme, what: &str, input: &Input) {
    let value = input.value();
    let before: String = value.chars().take(input.cursor()).collect();
    let under = value.chars().nth(input.cursor()).unwrap_or(' ');
    pen.put(what, theme.accent()).put(&before, theme.text());
    pen.put(under.to_string(), theme.text().add_modifier(Modifier::REVERSED));
    pen.put(value.chars().skip(input.cursor() + 1).collect::<String>(), theme.text());
    pen.skip(2);
}
