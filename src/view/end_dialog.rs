//! Draws the dialog that ends processes: the targets, the choice, and the progress.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::dialog_frame::{BESIDE, frame, hanging, rows_of};
use super::theme::Theme;
use crate::app::App;
use crate::app::input::end_dialog::{Choice, EndDialog, Member, Scope, Stage, Successor};
use crate::app::layout::Area;
use crate::base::text::Text;
use crate::base::units::{Elapsed, Moment};
use crate::model::{HostModel, HostProcess, Returned, Verdict, VerdictKind};
use crate::output::labels::{self, word};
use crate::output::text_wrap::cut;
use crate::protocol::command::Signal;
use crate::protocol::snapshot::{Process, State};

/// The widths of the dialog for one process and for several.
const WIDTH: u16 = 78;
const WIDE: u16 = 114;

/// The least number of processes, and the number of choices, that are shown at a time.
const SHOWN: usize = 6;
const CHOICES: usize = 4;
/// The rows for everything but the processes. A higher screen shows more processes.
const OTHERS: u16 = 20;

pub(super) fn draw(buffer: &mut Buffer, theme: Theme, app: &App, body: Area) {
    let Some(dialog) = app.modes.end_dialog() else {
        return;
    };
    let Some(root) = dialog.root() else { return };
    let Some(model) = app.fleet().host(dialog.host) else {
        return;
    };
    let is_one = dialog.targets().nth(1).is_none();
    let width = if is_one { WIDTH } else { WIDE }.min(body.width);
    let shown = SHOWN.max(body.height.saturating_sub(OTHERS).into());
    let columns = usize::from(width.saturating_sub(BESIDE));
    let mut description = if is_one {
        one(theme, model, dialog, root)
    } else {
        many(theme, model, dialog, shown, columns)
    };
    let status = status(theme, model, dialog, body.height < 18, columns);
    let below = rows_of(&status, width.saturating_sub(BESIDE));
    // The PIDs of the targets are always shown.
    if !is_one && description.len() + usize::from(below) + 2 > usize::from(body.height) {
        description = briefly(theme, dialog);
    }
    // The title has the name that the user typed.
    if let Some(own_name) = app.fleet().differing_own_name(dialog.host) {
        let line = format!("{} calls itself {own_name}", app.fleet().name(dialog.host));
        description.insert(0, Line::styled(line, theme.notable()));
    }
    let title = title(app, dialog, root);
    frame(buffer, theme, body, width, &title, description, status);
}

/// The lines below the description: cautions, choices and progress. With `is_low`, one choice is shown.
fn status(
    theme: Theme,
    model: &HostModel,
    dialog: &EndDialog,
    is_low: bool,
    columns: usize,
) -> Vec<Line<'static>> {
    let mut status = cautions(theme, dialog);
    if !dialog.is_over() {
        let count = if is_low { 1 } else { CHOICES };
        status.extend(choices(theme, dialog, count, columns));
        status.extend((!is_low).then(Line::default));
    }
    status.extend(progress(theme, model, dialog));
    let unrecorded = dialog.unrecorded.as_ref();
    status.extend(unrecorded.map(|reason| Line::styled(reason.to_string(), theme.notable())));
    status
}

/// The title of the dialog.
fn title(app: &App, dialog: &EndDialog, root: &Member) -> String {
    // The same PID may exist on several hosts.
    let is_named = app.fleet().must_be_named(dialog.host);
    let on_host = if is_named {
        format!("on {} ", app.fleet().name(dialog.host))
    } else {
        String::new()
    };
    let title = match dialog.scope {
        Scope::Job => format!(" End the job of {} ", root.id().pid),
        Scope::Chosen if dialog.targets().nth(1).is_some() => {
            " End the tagged processes ".to_owned()
        }
        // The title says `tagged`, because the process may not be the one under the cursor.
        Scope::Chosen
            if app.processes.tagged.contains(&HostProcess {
                host: dialog.host,
                process: root.id(),
            }) =>
        {
            format!(" End the tagged process {} ", root.id().pid)
        }
        Scope::Chosen => format!(" End process {} ", root.id().pid),
    };
    title + &on_host
}

/// The beginning of a command. The page of the process has all of it.
fn command(process: &Process, most: usize) -> String {
    cut(&word(labels::command(process)), most)
}

fn one(theme: Theme, model: &HostModel, dialog: &EndDialog, member: &Member) -> Vec<Line<'static>> {
    let process = &member.process;
    let user = word(process.facts.user.as_ref());
    let started = model
        .latest()
        .map(|snapshot| labels::elapsed(snapshot, process))
        .and_then(Result::ok);
    let started = started.map_or("at an unknown time".to_owned(), |started| {
        format!("{} ago", Elapsed(started))
    });
    // The last state of an ended process is out of date.
    let has_ended = matches!(member.stage, Stage::Ended { .. });
    let state = match member.stage {
        Stage::Ended {
            zombie_of: None, ..
        } => "ended",
        _ => process.load.state.map_or("in an unknown state", |state| {
            labels::state_in_words(process, state)
        }),
    };
    let gpus: Vec<String> = member
        .gpus
        .iter()
        .map(|(label, name)| format!("{label} ({name})"))
        .collect();
    let holds = if has_ended { "held" } else { "holds" };
    let held = match dialog.reclaim.expected() {
        Some(bytes) if gpus.is_empty() => {
            format!("{holds} a GPU open, where {bytes} are unaccounted")
        }
        Some(bytes) => format!("{holds} {bytes} on GPU {}", gpus.join(", ")),
        None if gpus.is_empty() => format!("{holds} no GPU memory itself"),
        None => format!(
            "{holds} memory on GPU {}, which does not say how much",
            gpus.join(", ")
        ),
    };
    let mut lines = vec![
        Line::styled(command(process, 140), theme.accent()),
        Line::from(format!("of {user}, started {started}, {state}")),
        Line::from(held),
    ];
    if let Some(ran) = member.earlier_arguments().filter(|_| !has_ended) {
        lines.push(Line::styled(
            format!("it ran something else before: {}", cut(&ran.line(), 60)),
            theme.notable(),
        ));
    }
    // After the end, only the progress matters.
    if let Some(verdict) = model
        .verdict(member.id())
        .filter(|verdict| verdict.is_suspect() && !has_ended)
    {
        lines.push(Line::styled(verdict.sentence(), theme.notable()));
    }
    if dialog.spared_count() > 0 && dialog.first_sent.is_none() && !has_ended {
        let spared = dialog.spared_count();
        lines.push(Line::styled(
            format!("Tab: its whole job, {spared} more"),
            theme.dim(),
        ));
    } else if !model.is_complete() && dialog.first_sent.is_none() && !has_ended {
        lines.push(Line::styled(
            "who else belongs to its job is not known yet…",
            theme.dim(),
        ));
    }
    lines
}

/// The width before a command in a list: a mark for processes that the agent found, and the PID.
const PID: usize = 9;
const USER: usize = 8;
/// The width of the progress beside a command. A longer text continues below.
const STATE: usize = 22;

/// Lists several targets, one line each.
fn many(
    theme: Theme,
    model: &HostModel,
    dialog: &EndDialog,
    shown: usize,
    columns: usize,
) -> Vec<Line<'static>> {
    let count = dialog.targets().count();
    let expected = dialog
        .reclaim
        .expected()
        .map_or_else(String::new, |bytes| format!(", {bytes} expected back"));
    let mut summary = format!("{count} processes{expected}");
    // Later, the ended ones have no verdict.
    if dialog.first_sent.is_none() {
        let kinds = Verdict::kinds(dialog.targets().map(|target| model.verdict(target.id())));
        summary = format!("{summary}: {kinds}");
    }
    let mut lines: Vec<Line<'_>> = hanging(&summary, columns, 2)
        .map(|row| Line::styled(row, theme.accent()))
        .collect();
    let now = model.now();
    for member in dialog.targets().skip(dialog.top).take(shown) {
        let (state, style) = stage(theme, member, now, dialog.first_sent);
        let joined = if member.was_found_late { "+" } else { " " };
        let user = cut(&word(member.process.facts.user.as_ref()), USER - 1);
        let most = columns.saturating_sub(PID + USER + 1 + 1 + STATE).max(8);
        let command = command(&member.process, most - 1);
        let target = format!(
            "{joined}{:>7} {user:<USER$} {command:<most$.most$} ",
            member.id().pid
        );
        if PID + USER + 1 + most + 1 + state.chars().count() <= columns {
            lines.push(Line::from(vec![
                Span::raw(target),
                Span::styled(state, style),
            ]));
        } else {
            lines.push(Line::raw(target));
            let below = format!("{:PID$}{state}", "");
            lines.extend(hanging(&below, columns, PID).map(|row| Line::styled(row, style)));
        }
    }
    if count > shown {
        let hidden = count - shown.min(count - dialog.top);
        lines.push(Line::styled(
            format!("{:PID$}and {hidden} more (PgDn)", ""),
            theme.dim(),
        ));
    }
    lines
}

/// Lists the PIDs of the targets, where there is no room for one line each.
fn briefly(theme: Theme, dialog: &EndDialog) -> Vec<Line<'static>> {
    let pids: Vec<String> = dialog
        .targets()
        .skip(dialog.top)
        .map(|member| member.id().pid.to_string())
        .collect();
    let text = format!("{} processes: {}", dialog.targets().count(), pids.join(" "));
    vec![Line::styled(text, theme.accent())]
}

fn stage(theme: Theme, member: &Member, now: Moment, sent: Option<Moment>) -> (String, Style) {
    let since = |at: Moment| format!("{:.1} s", at.since(sent.unwrap_or(at)).as_secs_f64());
    match &member.stage {
        Stage::Unasked | Stage::Verifying => ("…".to_owned(), theme.dim()),
        Stage::Held => ("verified".to_owned(), theme.good()),
        Stage::Refused(reason) => (reason.to_string(), theme.notable()),
        Stage::Asked(signal) => (format!("{signal}…"), theme.dim()),
        Stage::Sent { alive: Some(_), .. } if member.process.facts.frozen_by.is_ok() => {
            ("frozen".to_owned(), theme.notable())
        }
        Stage::Sent {
            alive: Some((state, wchan)),
            ..
        } => (
            alive(&member.process, *state, wchan.as_ref()),
            theme.notable(),
        ),
        Stage::Sent {
            signal,
            at,
            alive: None,
        } => (
            format!("{signal} {}", Elapsed(now.since(*at))),
            theme.text(),
        ),
        Stage::LetGo(reason) => (format!("let go on: {reason}"), theme.notable()),
        Stage::Ended {
            at,
            zombie_of: None,
        } => (format!("ended, {}", since(*at)), theme.good()),
        Stage::Ended {
            zombie_of: Some(parent),
            ..
        } => (format!("zombie of {parent}"), theme.notable()),
    }
}

fn alive(process: &Process, state: State, wchan: Option<&Text>) -> String {
    match (state, wchan) {
        (State::DiskSleep, Some(wchan)) => format!("stuck in the kernel ({wchan})"),
        (State::DiskSleep, None) => "stuck in the kernel".to_owned(),
        (state, _) => {
            let words = labels::state_in_words(process, state);
            format!("still there, {}", words.split(':').next().unwrap_or(words))
        }
    }
}

fn cautions(theme: Theme, dialog: &EndDialog) -> Vec<Line<'static>> {
    let mut lines: Vec<Line<'static>> = Vec::new();
    for (member, caution) in dialog.cautions().take(3) {
        lines.push(Line::styled(
            format!("{}: {caution}", member.id().pid),
            theme.notable(),
        ));
    }
    if let Some(word) = dialog.word_to_type().filter(|_| !dialog.is_over()) {
        let typed = &dialog.typed;
        lines.push(Line::from(vec![
            Span::styled(format!("Type {word} to confirm: "), theme.notable()),
            Span::styled(format!("{typed}_"), theme.accent()),
        ]));
    }
    lines
}

fn choices(theme: Theme, dialog: &EndDialog, shown: usize, columns: usize) -> Vec<Line<'static>> {
    let choices = dialog.choices();
    let place = choices
        .iter()
        .position(|choice| *choice == dialog.choice)
        .unwrap_or(0);
    let top = (place + 1)
        .saturating_sub(shown)
        .min(choices.len() - shown.min(choices.len()));
    let line = |choice: &Choice| {
        let (mark, style) = if *choice == dialog.choice {
            ("●", theme.text())
        } else {
            ("○", theme.dim())
        };
        let text = format!("{mark} {:<8}  {}", name(*choice), meaning(*choice, dialog));
        hanging(&text, columns, 12)
            .map(move |row| Line::styled(row, style))
            .collect::<Vec<_>>()
    };
    choices
        .iter()
        .skip(top)
        .take(shown)
        .flat_map(line)
        .collect()
}

pub(super) fn name(choice: Choice) -> String {
    match choice {
        Choice::Signal(signal) => signal.to_string(),
        Choice::Gently => "gently".to_owned(),
        Choice::ByForce => "by force".to_owned(),
    }
}

/// The effect of Enter and what has to be typed first, as in `Enter sends SIGTERM`.
fn effect_of_enter(dialog: &EndDialog) -> String {
    if !dialog.is_read() {
        return "Enter waits a moment".to_owned();
    }
    let is_rest = dialog.first_sent.is_some() && dialog.targets().nth(1).is_some();
    let effect = match dialog.choice {
        Choice::Signal(signal) if is_rest => {
            format!("Enter sends {signal} to the {} left", dialog.left())
        }
        Choice::Signal(signal) => format!("Enter sends {signal}"),
        Choice::Gently => format!(
            "Enter sends SIGINT to {}, then SIGTERM to those left",
            gentle_start(dialog)
        ),
        Choice::ByForce => "Enter stops all and sends SIGKILL".to_owned(),
    };
    match dialog.word_to_type().filter(|word| *word != dialog.typed) {
        Some(word) => format!("Type {word} first: then {effect}"),
        None => effect,
    }
}

/// The processes that a gentle end begins with: the root by its PID, or the number of those that
/// are left.
fn gentle_start(dialog: &EndDialog) -> String {
    let root = dialog.root().filter(|_| dialog.is_root_left());
    root.map_or_else(
        || format!("the {} left", dialog.left()),
        |root| root.id().pid.to_string(),
    )
}

fn meaning(choice: Choice, dialog: &EndDialog) -> String {
    let signal = match choice {
        Choice::Gently => {
            let (start, grace) = (gentle_start(dialog), dialog.grace().as_secs());
            return format!("SIGINT to {start}, after {grace} s SIGTERM to all that are left");
        }
        Choice::ByForce => {
            return "stop all, look for more, then SIGKILL: nothing is saved".to_owned();
        }
        Choice::Signal(signal) => signal,
    };
    meaning_of_signal(signal).to_owned()
}

pub(super) fn meaning_of_signal(signal: Signal) -> &'static str {
    match signal {
        Signal::Int => "like Ctrl-C: Python may save and clean up",
        Signal::Term => "asks it to end",
        Signal::Kill => "ends it now: nothing is saved",
        Signal::Hup => "the terminal is gone; a server reads its configuration again",
        Signal::Quit => "ends it with a core dump",
        Signal::Usr1 | Signal::Usr2 => "what the program makes of it: often, a checkpoint",
        Signal::Stop => "hold still: the memory stays",
        Signal::Cont => "go on",
    }
}

/// Whether the only target was seen alive, and is now a PID without a process for which the driver
/// lists memory.
fn is_ghost(model: &HostModel, dialog: &EndDialog) -> bool {
    let verdict = dialog.root().and_then(|root| model.verdict(root.id()));
    verdict.is_some_and(|verdict| matches!(verdict.kind, VerdictKind::Ghost { was: Some(_), .. }))
}

fn progress(theme: Theme, model: &HostModel, dialog: &EndDialog) -> Vec<Line<'static>> {
    let now = model.now();
    let say = |text: String, style: Style| vec![Line::styled(text, style)];
    let is_one = dialog.targets().nth(1).is_none();
    let effect = effect_of_enter(dialog);
    let root = dialog.root();
    match root.map(|root| &root.stage) {
        _ if dialog.ended().is_some() => ended(theme, model, dialog),
        Some(Stage::Refused(_)) if is_one && is_ghost(model, dialog) => {
            let way_out = if dialog.spared_count() > 0 {
                " Tab chooses those who hold its memory."
            } else {
                ""
            };
            say(
                format!("It has ended: no signal reaches it.{way_out}"),
                theme.alarm(),
            )
        }
        Some(Stage::Refused(reason)) if is_one => say(reason.to_string(), theme.alarm()),
        _ if dialog.is_over() => say("Nothing can be done here.".to_owned(), theme.alarm()),
        _ if !dialog.is_settled() || (dialog.first_sent.is_none() && !dialog.is_read()) => say(
            "making sure that it is still the same process…".to_owned(),
            theme.dim(),
        ),
        Some(Stage::Asked(signal)) => say(format!("sending {signal}…"), theme.dim()),
        Some(Stage::LetGo(reason)) if is_one => say(reason.to_string(), theme.alarm()),
        Some(Stage::Sent { signal, at, alive }) => {
            let mut lines = say(
                format!(
                    "{signal} sent {} ago; it has not ended yet.",
                    Elapsed(now.since(*at))
                ),
                theme.notable(),
            );
            if let Some(next) = next_step(dialog, now) {
                lines.push(next);
            } else if let (Some((state, wchan)), Some(root)) = (alive, root) {
                let is_frozen = root.process.facts.frozen_by.is_ok();
                let waits = wchan
                    .as_ref()
                    .filter(|_| !is_frozen)
                    .map(|wchan| format!(" (in {wchan})"))
                    .unwrap_or_default();
                let is_reached = !is_frozen
                    && !matches!(state, State::DiskSleep | State::Stopped | State::Traced);
                let may_ignore =
                    is_reached && matches!(signal, Signal::Int | Signal::Term | Signal::Hup);
                let way_out = if may_ignore && is_one {
                    " It may ignore that; no process ignores SIGKILL."
                } else {
                    ""
                };
                lines.push(Line::from(format!(
                    "It is {}{waits}.{way_out}",
                    labels::state_in_words(&root.process, *state)
                )));
            }
            lines.push(Line::styled(format!("{effect}, Esc cancels."), theme.dim()));
            lines
        }
        _ if dialog.first_sent.is_some() => {
            let mut lines = say("Some have not ended yet.".to_owned(), theme.notable());
            lines.extend(next_step(dialog, now));
            lines.push(Line::styled(format!("{effect}, Esc cancels."), theme.dim()));
            lines
        }
        _ => {
            let targets = if is_one {
                "this process"
            } else {
                "these processes"
            };
            say(
                format!("Verified: only {targets} will be signalled. {effect}, Esc cancels."),
                theme.good(),
            )
        }
    }
}

/// Announces the SIGTERM of a gentle end; `None` if none is to follow.
fn next_step(dialog: &EndDialog, now: Moment) -> Option<Line<'static>> {
    let left = Elapsed(dialog.next_step()?.since(now));
    Some(Line::from(format!(
        "SIGTERM follows in {left} to all that are left; Esc leaves it at this."
    )))
}

/// Describes the result when all targets have ended: the time, and the memory that came back.
fn ended(theme: Theme, model: &HostModel, dialog: &EndDialog) -> Vec<Line<'static>> {
    let end = |member: &Member| {
        if let Stage::Ended { at, zombie_of } = member.stage {
            Some((at, zombie_of))
        } else {
            None
        }
    };
    let took = dialog
        .ended()
        .zip(dialog.first_sent)
        .map_or(Duration::ZERO, |(at, sent)| at.since(sent));
    let took = format!("{:.1} s", took.as_secs_f64());
    let is_one = dialog.targets().nth(1).is_none();
    let sentence = match (dialog.first_sent, is_one) {
        (None, true) => "It ended by itself.".to_owned(),
        (None, false) => "They ended by themselves.".to_owned(),
        (Some(_), true) => format!("It ended after {took}."),
        (Some(_), false) => format!("All ended within {took}."),
    };
    let mut lines = vec![Line::styled(sentence, theme.good())];
    if let (true, Some(root), Some((_, Some(parent)))) =
        (is_one, dialog.root(), dialog.root().and_then(end))
    {
        // Where the driver lists memory for the zombie, the sentence is that of the verdict, and
        // the header counts it.
        let verdict = model
            .verdict(root.id())
            .filter(|verdict| verdict.is_dead() && verdict.holds_gpu_memory());
        let text = verdict.map_or_else(
            || format!("Its parent {parent} has not reaped it: a zombie."),
            |verdict| format!("{}: {}.", root.id().pid, verdict.sentence()),
        );
        lines.push(Line::styled(text, theme.notable()));
    }
    lines.extend(
        dialog
            .successors
            .iter()
            .take(3)
            .map(|successor| succession(theme, successor)),
    );
    match (dialog.reclaim.expected(), &dialog.returned) {
        (None, _) => {}
        (Some(_), None) => lines.push(Line::styled(
            "waiting for the GPU to say what came back…",
            theme.dim(),
        )),
        (Some(_), Some(returned)) => {
            lines.extend(
                returned
                    .iter()
                    .map(|gpu| came_back(theme, model, dialog, gpu, returned.len() > 1)),
            );
        }
    }
    lines
}

/// Says that a parent started the next process.
fn succession(theme: Theme, successor: &Successor) -> Line<'static> {
    let (ended, new) = (successor.ended.pid, &successor.process);
    if successor.is_restart {
        let parent = word(new.facts.parent);
        let text = format!(
            "{ended} was started again, as {} by {parent}: end that one first.",
            new.id.pid
        );
        return Line::styled(text, theme.alarm());
    }
    let text = format!(
        "{ended}: its parent started another {}, {}.",
        command(new, 40),
        new.id.pid
    );
    Line::styled(text, theme.notable())
}

/// `returned 38.2 GiB of 38.4 GiB`. If memory is missing, names the processes that may keep it.
pub(super) fn came_back(
    theme: Theme,
    model: &HostModel,
    dialog: &EndDialog,
    returned: &Returned,
    named: bool,
) -> Line<'static> {
    let gpu = model
        .latest()
        .and_then(|snapshot| snapshot.gpu(&returned.gpu));
    let label = gpu.filter(|_| named).map_or_else(String::new, |gpu| {
        format!("GPU {}: ", labels::gpu_label(gpu))
    });
    let text = format!(
        "{label}returned {} of {}",
        returned.freed, returned.expected
    );
    if returned.is_all() {
        return Line::styled(text, theme.good());
    }
    let keepers = model
        .latest()
        .zip(gpu)
        .map(|(snapshot, gpu)| dialog.possible_holders(gpu, snapshot))
        .unwrap_or_default();
    let pids: Vec<String> = keepers
        .iter()
        .take(4)
        .map(|keeper| keeper.pid.to_string())
        .collect();
    let text = match keepers.len() {
        0 => format!("{text}, the rest not yet"),
        1..=4 => format!("{text}; still open in {}", pids.join(", ")),
        count => format!(
            "{text}; still open in {} and {} more",
            pids.join(", "),
            count - pids.len()
        ),
    };
    Line::styled(text, theme.notable())
}
