//! The panel that ends a process: whom, what would be sent, what came of it.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Widget, Wrap};

use super::host::word;
use super::theme::Theme;
use crate::app::end::{CHOICES, EndPanel, Stage};
use crate::app::layout::Area;
use crate::app::{App, page, rows};
use crate::control::Signal;
use crate::model::Returned;
use crate::units::Elapsed;

/// As wide as reads well.
const WIDTH: u16 = 76;
const HEIGHT: u16 = 15;

pub(super) fn draw(buffer: &mut Buffer, theme: Theme, app: &App, body: Area) {
    let Some(panel) = app.end_panel() else { return };
    let (width, height) = (WIDTH.min(body.width), HEIGHT.min(body.height));
    let area = Rect { x: body.x + (body.width - width) / 2, y: body.y + (body.height - height) / 2, width, height };
    Clear.render(area, buffer);
    let block = Block::bordered()
        .border_style(theme.dim())
        .title(Span::styled(format!(" End process {} ", panel.id().pid), theme.accent()));
    let inside = block.inner(area);
    block.render(area, buffer);
    let mut lines = who(theme, app, panel);
    lines.push(Line::default());
    lines.extend(choices(theme, panel));
    lines.push(Line::default());
    lines.extend(progress(theme, app, panel));
    Paragraph::new(lines).wrap(Wrap { trim: false }).render(inside, buffer);
}

fn who(theme: Theme, app: &App, panel: &EndPanel) -> Vec<Line<'static>> {
    let process = &panel.target().process;
    let mut command = word(rows::command(process));
    // Two lines of it tell one from another; the detail page has it all.
    if let Some((cut, _)) = command.char_indices().nth(140) {
        command.truncate(cut);
        command.push('…');
    }
    let user = word(process.facts.user.as_ref().map_err(|why| *why));
    let started = app.model().latest().map(|it| page::elapsed(it, process));
    let started =
        started.and_then(Result::ok).map_or("at an unknown time".to_owned(), |it| format!("{} ago", Elapsed(it)));
    let state = process.load.state.map_or("in an unknown state", page::state_in_words);
    let gpus: Vec<String> = panel.target().gpus.iter().map(|(label, name)| format!("{label} ({name})")).collect();
    vec![
        Line::styled(command, theme.accent()),
        Line::from(format!("of {user}, started {started}, {state}")),
        Line::from(format!("holds {} on GPU {}", held(panel), gpus.join(", "))),
    ]
}

fn held(panel: &EndPanel) -> String {
    panel.expected().map_or_else(|| "memory (nobody says how much)".to_owned(), |it| it.to_string())
}

fn choices(theme: Theme, panel: &EndPanel) -> Vec<Line<'static>> {
    let line = |signal: Signal| {
        let (mark, style) = if signal == panel.choice { ("●", theme.text()) } else { ("○", theme.dim()) };
        let meaning = match signal {
            Signal::Int => "like Ctrl-C: Python may save and clean up",
            Signal::Term => "asks it to end",
            Signal::Kill => "ends it now: nothing is saved",
        };
        Line::styled(format!("{mark} {:<8} {meaning}", signal.to_string()), style)
    };
    CHOICES.into_iter().map(line).collect()
}

fn progress(theme: Theme, app: &App, panel: &EndPanel) -> Vec<Line<'static>> {
    let say = |text: String, style: Style| vec![Line::styled(text, style)];
    let now = app.model().now();
    match panel.stage() {
        Stage::Holding => say("making sure that it is still the same process…".to_owned(), theme.dim()),
        Stage::Held => say(
            format!(
                "Made sure: the signal can reach this process only. Enter sends {}, Esc leaves it alone.",
                panel.choice
            ),
            theme.good(),
        ),
        Stage::Refused(reason) => say(reason.to_string(), theme.alarm()),
        Stage::Asked(signal) => say(format!("sending {signal}…"), theme.dim()),
        Stage::Sent { signal, at, alive } => {
            let mut lines =
                say(format!("{signal} sent {} ago; it has not ended yet.", Elapsed(now.since(*at))), theme.notable());
            if let Some((state, wchan)) = alive {
                let waits = wchan.as_ref().map(|it| format!(" (in {it})")).unwrap_or_default();
                lines.push(Line::from(format!("It is {}{waits}.", page::state_in_words(*state))));
            }
            lines.push(Line::styled(format!("Enter sends {}, Esc leaves it alone.", panel.choice), theme.dim()));
            lines
        }
        Stage::Ended { at, zombie_of } => {
            let took = panel.first_sent.map_or(Duration::ZERO, |sent| at.since(sent));
            let took = format!("{:.1} s", took.as_secs_f64());
            let mut lines = match (panel.first_sent, zombie_of) {
                (None, _) => say("It ended by itself.".to_owned(), theme.good()),
                (Some(_), None) => say(format!("It ended after {took}."), theme.good()),
                (Some(_), Some(parent)) => say(
                    format!(
                        "It ended after {took}. Its parent {parent} has not reaped it: a zombie, which holds no memory."
                    ),
                    theme.notable(),
                ),
            };
            if panel.expected().is_some() {
                lines.push(returned(theme, panel.returned()));
            }
            lines
        }
    }
}

fn returned(theme: Theme, returned: Option<Returned>) -> Line<'static> {
    match returned {
        None => Line::styled("waiting for the GPU to say what came back…", theme.dim()),
        Some(Returned { returned, expected }) => {
            let text = format!("returned {returned} of {expected}");
            // The driver rounds: what is within a hundredth is all of it.
            if returned.0 >= expected.0 - expected.0 / 100 {
                Line::styled(text, theme.good())
            } else {
                Line::styled(format!("{text}; the rest is held by processes that NVML does not list"), theme.notable())
            }
        }
    }
}
