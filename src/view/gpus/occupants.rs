//! Draws what is wrong with a GPU and who is on it, in one line: for a tile, and for the list.

use unicode_width::UnicodeWidthStr;

use crate::app::App;
use crate::app::lists::gpu_list::GpuRow;
use crate::app::lists::{gpu_notes, gpu_users};
use crate::base::units::Bytes;
use crate::model::HostModel;
use crate::output::labels::growth::rate;
use crate::output::labels::short_amount;
use crate::protocol::snapshot::Gpu;
use crate::view::pen::Pen;
use crate::view::theme::{Fill, Theme};

/// The unaccounted memory of a GPU without processes; `None` if there is none, or some process uses
/// the GPU.
pub(super) fn unaccounted(model: &HostModel, gpu: &Gpu) -> Option<Bytes> {
    let here = model
        .unaccounted()
        .iter()
        .find(|unaccounted| unaccounted.gpu == gpu.uuid);
    here.filter(|_| gpu.processes.is_empty())
        .map(|unaccounted| unaccounted.memory)
}

/// Draws what is wrong with the GPU, then who is on it, the largest first, and how many have no
/// room. Users have their names where there are several, and with `names_users`.
pub(super) fn draw(pen: &mut Pen<'_>, theme: Theme, app: &App, row: GpuRow<'_>, names_users: bool) {
    let GpuRow { model, gpu, .. } = row;
    notes(pen, theme, app, row);
    let users = gpu_users::occupants(model, gpu);
    if users.is_empty() {
        nobody(pen, theme, row);
        return;
    }
    let names_users = names_users || users.iter().any(|user| user.name != users[0].name);
    for (place, user) in users.iter().enumerate() {
        let separator = if place > 0 { " · " } else { "" };
        let amount = if users.len() > 1 {
            user.amount()
        } else {
            user.count_if_several()
        };
        let words = [&user.program, &amount]
            .into_iter()
            .filter(|word| !word.is_empty())
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(" ");
        let name = user.name.width() + 1;
        let name = if names_users { name } else { 0 };
        let more = format!(" +{}", users.len() - place);
        let after = if place + 1 < users.len() {
            more.len()
        } else {
            0
        };
        if place > 0 && separator.width() + name + words.width() + after > pen.room() {
            pen.put(more, theme.dim());
            return;
        }
        // The number of the others is not cut.
        let others = if after > 0 {
            format!(" +{}", users.len() - place - 1).len()
        } else {
            0
        };
        pen.put(separator, theme.dim());
        if names_users && user.name.width() <= pen.room() {
            let hue = model.user_hue(&user.name.as_str().into());
            pen.put(&user.name, theme.user(hue)).skip(1);
        }
        let room = pen.room().saturating_sub(others);
        pen.words_within(&words, room, theme.text());
    }
}

/// Draws the troubles of a GPU as badges, and what is no trouble as words.
fn notes(pen: &mut Pen<'_>, theme: Theme, app: &App, row: GpuRow<'_>) {
    let GpuRow { model, gpu, .. } = row;
    for note in gpu_notes::notes(model, gpu) {
        let (text, style) = match note.trouble {
            Some(severity) => (format!(" {} ", note.text), theme.severity(severity)),
            None => (note.text, theme.notable()),
        };
        if text.width() <= pen.room() {
            pen.put(text, style).skip(1);
        } else if !pen.is_begun() {
            pen.words(text, style).skip(1);
        }
    }
    // While memory grows, its rate says how fast.
    if let Some(growing) = gpu_users::growing(model, gpu) {
        let rate = rate(growing.evidence.rate);
        if rate.width() + 8 <= pen.room() {
            pen.put(rate, theme.notable()).skip(1);
        }
    }
    if app.alerts.is_watched(&row.id().into()) {
        pen.put("watched", theme.accent()).skip(1);
    }
}

/// Says why no process is named on a tile.
fn nobody(pen: &mut Pen<'_>, theme: Theme, GpuRow { model, gpu, .. }: GpuRow<'_>) {
    _ = match unaccounted(model, gpu) {
        // A badge before it has the amount.
        Some(_) if pen.is_begun() => pen.words("unaccounted", theme.edge(Fill::Other)),
        Some(memory) => pen.words(
            format!("{} unaccounted", short_amount(memory)),
            theme.edge(Fill::Other),
        ),
        None if gpu.missing.processes.is_some()
            || gpu.trouble.is_some()
            || !gpu.failures.is_empty() =>
        {
            pen.words("processes not known", theme.dim())
        }
        None if gpu_users::is_busy_without_process(gpu) => pen,
        None => pen.words("no process", theme.dim()),
    };
}
