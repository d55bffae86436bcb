//! Draws the dialog that ends processes on several hosts: a row for each host, the choice, and the
//! progress.

use ratatui::buffer::Buffer;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::dialog_frame::{BESIDE, frame, hanging, rows_of};
use super::end_dialog::{meaning_of_signal, name};
use super::theme::Theme;
use crate::app::App;
use crate::app::input::end_dialog::{Choice, EndDialog, Member, Stage};
use crate::app::input::end_over_hosts::{Cancel, EndOverHosts};
use crate::app::layout::Area;
use crate::base::text::Text;
use crate::base::units::{Bytes, Elapsed};
use crate::model::{HostModel, Returned};
use crate::output::text_wrap::cut;
use crate::protocol::reply::is_advice;

const WIDTH: u16 = 114;
/// The columns before the lines of a host that follow its first.
const INDENT: usize = 2;
/// The number of choices that are shown at a time, and of different cautions.
const CHOICES: usize = 4;
const CAUTIONS: usize = 3;

pub(super) fn draw(buffer: &mut Buffer, theme: Theme, app: &App, body: Area) {
    let Some(dialog) = app.modes.end_over_hosts() else {
        return;
    };
    let width = WIDTH.min(body.width);
    let columns = usize::from(width.saturating_sub(BESIDE));
    let is_low = body.height < 24;
    let mut status = choices(theme, dialog, if is_low { 1 } else { CHOICES }, columns);
    status.extend((!is_low && !dialog.is_over()).then(Line::default));
    status.extend(cautions(theme, app, dialog));
    status.extend(progress(theme, dialog));
    let status_rows = rows_of(&status, width.saturating_sub(BESIDE));
    let room = usize::from(body.height.saturating_sub(status_rows + 3));
    let description = hosts(theme, app, dialog, room, columns);
    let subject = cut(&dialog.subject, columns.saturating_sub(24));
    let title = format!(" End {subject} on {} ", places(app, dialog));
    frame(buffer, theme, body, width, &title, description, status);
}

/// The hosts in a few words: `8 hosts`, or the name of the only one.
fn places(app: &App, dialog: &EndOverHosts) -> String {
    match dialog.parts() {
        [only] => app.fleet().name(only.host).to_owned(),
        parts => format!("{} hosts", parts.len()),
    }
}

/// The rows of each host: the PIDs of all of its targets, and its state. Where all of that fits, it is
/// one row.
fn hosts(
    theme: Theme,
    app: &App,
    dialog: &EndOverHosts,
    room: usize,
    columns: usize,
) -> Vec<Line<'static>> {
    let parts = dialog.parts();
    let processes: usize = parts.iter().map(|part| part.targets().count()).sum();
    // Nothing is expected of a host that is left out.
    let is_meant = |part: &&EndDialog| {
        let is_reached = part.left() > 0 && !dialog.is_silent(part.host);
        part.first_sent.is_some() || part.ended().is_some() || is_reached
    };
    let is_awaited =
        |part: &EndDialog| part.reclaim.expected().is_some() && part.returned.is_none();
    let expected: Option<Bytes> = parts
        .iter()
        .filter(is_meant)
        .filter_map(|part| part.reclaim.expected())
        .reduce(|a, b| Bytes(a.0.saturating_add(b.0)));
    let after = match expected {
        None => String::new(),
        // Not read yet is not nothing.
        Some(_) if dialog.is_over() && parts.iter().filter(is_meant).any(is_awaited) => {
            ": waiting for the GPUs to say what came back".to_owned()
        }
        Some(expected) if dialog.is_over() => {
            let returned = parts.iter().filter_map(|part| part.returned.as_ref());
            let freed = returned.flatten().map(|gpu| gpu.freed.0).sum();
            format!(": {} of {expected} came back", Bytes(freed))
        }
        Some(expected) => format!(", {expected} expected back"),
    };
    let summary = format!("{processes} processes on {}{after}", places(app, dialog));
    let mut lines = vec![Line::styled(summary, theme.accent())];
    let shown = room.saturating_sub(2).max(1);
    let widest = parts
        .iter()
        .map(|part| app.fleet().name(part.host).chars().count())
        .max()
        .unwrap_or(0)
        .min(columns / 2);
    let rows = parts.iter();
    let rows = rows.flat_map(|part| row(theme, app, dialog, part, widest, columns));
    let rows: Vec<Line<'_>> = rows.collect();
    let top = dialog.top.min(rows.len().saturating_sub(shown));
    let below = rows.len().saturating_sub(top + shown);
    lines.extend(rows.into_iter().skip(top).take(shown));
    if top + below > 0 {
        lines.push(Line::styled(
            format!("{top} rows above, {below} below (PgUp, PgDn)"),
            theme.dim(),
        ));
    }
    lines
}

fn row(
    theme: Theme,
    app: &App,
    dialog: &EndOverHosts,
    part: &EndDialog,
    widest: usize,
    columns: usize,
) -> Vec<Line<'static>> {
    let host = cut(app.fleet().name(part.host), widest);
    let own_name = app
        .fleet()
        .differing_own_name(part.host)
        .map_or_else(String::new, |name| format!(" (calls itself {name})"));
    let count = part.targets().count();
    let noun = if count == 1 { "process" } else { "processes" };
    let head = format!("{host:<widest$}{own_name} {count} {noun} ");
    let (state, style) = state(theme, app, dialog, part);
    let pids: Vec<String> = part
        .targets()
        .map(|target| target.id().pid.to_string())
        .collect();
    let pids = pids.join(" ");
    let width = |text: &str| text.chars().count();
    let beside = columns.saturating_sub(width(&head) + width(&state) + 1);
    if width(&pids) <= beside {
        return vec![Line::from(vec![
            Span::raw(head),
            Span::styled(format!("{pids:<beside$} "), theme.dim()),
            Span::styled(state, style),
        ])];
    }
    let on_one_row = |head: &str| {
        let beside = columns.saturating_sub(width(&state));
        let head = Span::raw(format!("{head:<beside$}"));
        Line::from(vec![head, Span::styled(state.clone(), style)])
    };
    let is_state_beside = width(&head) + width(&state) <= columns;
    if part.is_over() && is_state_beside {
        return vec![on_one_row(&head)];
    }
    // Each PID is shown: a signal reaches only what the user could read.
    let indented = |text: &str, style: Style| {
        let below = format!("{:INDENT$}{text}", "");
        let rows = hanging(&below, columns, INDENT).map(move |row| Line::styled(row, style));
        rows.collect::<Vec<_>>()
    };
    if width(&head) + width(&pids) <= columns {
        let first = vec![Span::raw(head), Span::styled(pids, theme.dim())];
        let below = indented(&state, style);
        return std::iter::once(Line::from(first)).chain(below).collect();
    }
    let mut lines = if is_state_beside {
        vec![on_one_row(&head)]
    } else {
        let below = indented(&state, style);
        std::iter::once(Line::raw(head)).chain(below).collect()
    };
    lines.extend(indented(&pids, theme.dim()));
    lines
}

/// The state of the targets of one host in a few words.
fn state(theme: Theme, app: &App, dialog: &EndOverHosts, part: &EndDialog) -> (String, Style) {
    let count = |is: &dyn Fn(&Member) -> bool| part.targets().filter(|target| is(target)).count();
    let refused = part.targets().find_map(|target| match &target.stage {
        Stage::Refused(reason) => Some(reason.to_string()),
        _ => None,
    });
    let refused_count = count(&|target| matches!(target.stage, Stage::Refused(_)));
    let is_asked = count(&|target| matches!(target.stage, Stage::Asked(_))) > 0;
    if dialog.is_silent(part.host) && part.left() > 0 {
        let words = app.host_words(part.host);
        let words = words.unwrap_or_else(|| "its agent does not answer".to_owned());
        let was_sent = part.first_sent.is_some() || is_asked;
        let sent = if was_sent {
            "what was sent may arrive later"
        } else {
            "nothing is sent to it"
        };
        return (
            format!("{words}: {sent}, and nothing is promised"),
            theme.alarm(),
        );
    }
    if part.is_over() {
        let all = part.targets().count();
        if let Some(reason) = &refused
            && refused_count == all
        {
            return (reason.clone(), theme.alarm());
        }
        let (came_back, style) = returned(theme, part);
        let refused = refused.map_or_else(String::new, |reason| {
            format!("; {refused_count} refused: {reason}")
        });
        let took = part
            .ended()
            .zip(part.first_sent)
            .map(|(at, sent)| at.since(sent));
        let took = match took {
            Some(took) => format!("ended within {:.1} s", took.as_secs_f64()),
            None if dialog.cancel() == Some(&Cancel::Done) => "ended by Slurm".to_owned(),
            None => "ended by themselves".to_owned(),
        };
        let again = part.successors.iter().find(|next| next.is_restart);
        let again = again.map_or_else(String::new, |next| {
            let (ended, pid) = (next.ended.pid, next.process.id.pid);
            format!("; {ended} was started again, as {pid}")
        });
        let style = if again.is_empty() {
            style
        } else {
            theme.alarm()
        };
        return (format!("{took}{came_back}{again}{refused}"), style);
    }
    if !part.is_settled() {
        return ("verifying…".to_owned(), theme.dim());
    }
    if is_asked && part.first_sent.is_none() {
        return ("sending…".to_owned(), theme.dim());
    }
    let Some(sent) = part.first_sent else {
        let held = count(&Member::is_held);
        return match refused {
            None => ("verified".to_owned(), theme.good()),
            Some(reason) => (
                format!("{held} verified, {refused_count} refused: {reason}"),
                theme.notable(),
            ),
        };
    };
    let now = app.fleet().host(part.host).map(HostModel::now);
    let ago = now.map_or_else(String::new, |now| {
        format!(" {} ago", Elapsed(now.since(sent)))
    });
    let next = part
        .next_step()
        .zip(now)
        .map_or_else(String::new, |(at, now)| {
            format!(", SIGTERM in {}", Elapsed(at.since(now)))
        });
    (
        format!("sent{ago}, {} left{next}", part.left()),
        theme.notable(),
    )
}

/// The memory that came back on a host: `; returned 61 GiB of 61 GiB`.
fn returned(theme: Theme, part: &EndDialog) -> (String, Style) {
    match (part.reclaim.expected(), &part.returned) {
        (None, _) => (String::new(), theme.good()),
        (Some(_), None) => ("; waiting for the GPUs".to_owned(), theme.dim()),
        (Some(_), Some(gpus)) => {
            let sum = |of: fn(&Returned) -> Bytes| Bytes(gpus.iter().map(|gpu| of(gpu).0).sum());
            let (freed, expected) = (sum(|gpu| gpu.freed), sum(|gpu| gpu.expected));
            let style = if gpus.iter().all(Returned::is_all) {
                theme.good()
            } else {
                theme.notable()
            };
            (format!("; returned {freed} of {expected}"), style)
        }
    }
}

fn choices(
    theme: Theme,
    dialog: &EndOverHosts,
    shown: usize,
    columns: usize,
) -> Vec<Line<'static>> {
    if dialog.is_over() {
        return Vec::new();
    }
    let choices = dialog.choices();
    let place = choices
        .iter()
        .position(|choice| *choice == dialog.choice)
        .unwrap_or(0);
    let top = (place + 1)
        .saturating_sub(shown)
        .min(choices.len() - shown.min(choices.len()));
    let mut lines = Vec::new();
    for choice in choices.into_iter().skip(top).take(shown) {
        let (mark, style) = if choice == dialog.choice {
            ("●", theme.text())
        } else {
            ("○", theme.dim())
        };
        let word = choice.map_or_else(|| "scancel".to_owned(), name);
        let text = format!("{mark} {word:<8}  {}", meaning(choice, dialog));
        lines.extend(hanging(&text, columns, 12).map(|row| Line::styled(row, style)));
    }
    lines
}

fn meaning(choice: Option<Choice>, dialog: &EndOverHosts) -> String {
    match choice {
        None => {
            let job = dialog.slurm.as_ref().map(|(slurm, _)| slurm.job.as_str());
            format!(
                "Slurm ends job {} with all of its steps, after asking squeue once more",
                job.unwrap_or_default()
            )
        }
        Some(Choice::Gently) => {
            let grace = dialog.parts().iter().map(EndDialog::grace).max();
            let first = if dialog.parts().iter().any(EndDialog::begins_with_roots) {
                "on each host to those that started the others"
            } else {
                "to all"
            };
            format!(
                "SIGINT {first}, after {} s SIGTERM to all that are left",
                grace.unwrap_or_default().as_secs()
            )
        }
        Some(Choice::ByForce) => {
            "stop all, look for more, then SIGKILL: nothing is saved".to_owned()
        }
        Some(Choice::Signal(signal)) => meaning_of_signal(signal).to_owned(),
    }
}

fn cautions(theme: Theme, app: &App, dialog: &EndOverHosts) -> Vec<Line<'static>> {
    let mut lines: Vec<Line<'static>> = Vec::new();
    if let Some((unseen, all)) = dialog.unseen {
        lines.push(Line::styled(
            format!(
                "{unseen} of the {all} ranks were not seen: they are not among these processes."
            ),
            theme.notable(),
        ));
    }
    // Many processes of a job have the same one.
    let mut texts: Vec<(String, Vec<String>)> = Vec::new();
    for (host, member, caution) in dialog.cautions() {
        let process = format!("{} {}", app.fleet().name(host), member.id().pid);
        let caution = caution.to_string();
        match texts.iter_mut().find(|(text, _)| *text == caution) {
            Some((_, processes)) => processes.push(process),
            None => texts.push((caution, vec![process])),
        }
    }
    // Warnings of harm come first.
    texts.sort_by_key(|(text, _)| is_advice(&Text::from(text.as_str())));
    for (caution, processes) in texts.iter().take(CAUTIONS) {
        let whose = match processes.as_slice() {
            [one] => one.clone(),
            [first, others @ ..] => format!("{first} and {} more", others.len()),
            [] => continue,
        };
        lines.push(Line::styled(format!("{whose}: {caution}"), theme.notable()));
    }
    if texts.len() > CAUTIONS {
        let others = texts.len() - CAUTIONS;
        lines.push(Line::styled(
            format!("{others} more warnings: end each of these processes alone to read them"),
            theme.notable(),
        ));
    }
    for part in dialog.parts() {
        if let Some(reason) = &part.unrecorded {
            let host = app.fleet().name(part.host);
            lines.push(Line::styled(format!("{host}: {reason}"), theme.notable()));
        }
    }
    match dialog.cancel() {
        Some(Cancel::Refused(why)) => {
            lines.push(Line::styled(format!("no scancel: {why}"), theme.dim()));
        }
        Some(Cancel::Asked) => {
            lines.push(Line::styled("asking squeue about scancel…", theme.dim()));
        }
        Some(Cancel::Running) => lines.push(Line::styled("scancel…", theme.notable())),
        Some(Cancel::Done) => lines.push(Line::styled(
            "scancel has ended without an error: Slurm ends the job now.",
            theme.good(),
        )),
        Some(Cancel::Offered) | None => {}
    }
    if let Some((word, counted)) = dialog.word_to_type().filter(|_| !dialog.is_over()) {
        let typed = &dialog.typed;
        lines.push(Line::from(vec![
            Span::styled(
                format!("Type the number of {counted}, {word}, to confirm: "),
                theme.notable(),
            ),
            Span::styled(format!("{typed}_"), theme.accent()),
        ]));
    }
    lines
}

fn progress(theme: Theme, dialog: &EndOverHosts) -> Vec<Line<'static>> {
    let say = |text: &str, style: Style| vec![Line::styled(text.to_owned(), style)];
    if dialog.is_over() {
        let has_ended = dialog.parts().iter().any(|part| part.ended().is_some());
        return if has_ended {
            say("Enter or Esc closes.", theme.dim())
        } else {
            say("Nothing can be done here.", theme.alarm())
        };
    }
    if !dialog.is_settled() || (!dialog.was_sent() && !dialog.is_read()) {
        return say(
            "making sure that they are still the same processes…",
            theme.dim(),
        );
    }
    if dialog.cancel() == Some(&Cancel::Running) {
        return say(
            "Slurm is asked once more, and then to end the job. Esc closes this panel and does not stop that.",
            theme.notable(),
        );
    }
    let hosts = dialog.reached_count();
    if hosts == 0 {
        let text = if dialog.was_sent() {
            "Some have not ended yet, and their hosts do not answer: nothing more can be sent now. Esc closes this panel."
        } else {
            "None of these hosts answers: nothing can be sent now. Esc closes this panel."
        };
        return say(text, theme.alarm());
    }
    let noun = if hosts == 1 { "host" } else { "hosts" };
    let effect = match dialog.choice {
        None => {
            let job = dialog.slurm.as_ref().map(|(slurm, _)| slurm.job.as_str());
            let job = job.unwrap_or_default();
            return say(
                &format!("Enter asks squeue once more, and runs scancel {job}. Esc cancels."),
                theme.good(),
            );
        }
        Some(Choice::Gently) => format!("begins to end them on {hosts} {noun}"),
        Some(Choice::ByForce) => format!("stops all on {hosts} {noun} and sends SIGKILL"),
        Some(Choice::Signal(signal)) => format!("sends {signal} on {hosts} {noun}"),
    };
    let effect = format!("Enter {effect}, Esc cancels.");
    if dialog.was_sent() {
        return say(
            &format!("Some have not ended yet. {effect}"),
            theme.notable(),
        );
    }
    say(
        &format!("Verified: only these processes will be signalled. {effect}"),
        theme.good(),
    )
}
