//! Draws what is wrong with a GPU and who is on it, in one line: for a tile, and for the list.

use unicode_width::UnicodeWidthStr;

use crate::app::App;
use crate::app::lists::gpu_list::GpuRow;
use crate::app::lists::gpu_notes::{self, GpuNote};
use crate::app::lists::gpu_users;
use crate::base::units::Bytes;
use crate::model::{self, HostModel};
use crate::output::labels::growth::rate;
use crate::output::labels::short_amount;
use crate::protocol::snapshot::Gpu;
use crate::view::pen::Pen;
use crate::view::theme::{Fill, Theme};

/// The width of a program's name that is cut for the amount after it, but no further.
const SHORTEST_PROGRAM: usize = 8;

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
    let (troubles, remarks): (Vec<GpuNote>, Vec<GpuNote>) = gpu_notes::notes(model, gpu)
        .into_iter()
        .partition(|note| note.trouble.is_some());
    let start = pen.column();
    notes(pen, theme, start, troubles);
    if let Some(memory) = unaccounted(model, gpu) {
        // Beside leftovers, which hold it, the amount would count twice.
        let words = match model.leftovers_on(gpu).next() {
            Some(_) => "unaccounted".to_owned(),
            None => format!("{} unaccounted", short_amount(memory)),
        };
        if words.len() <= pen.room() || pen.column() == start {
            pen.words(words, theme.fill_name(Fill::Other)).skip(1);
        }
    }
    notes(pen, theme, start, remarks);
    growth_and_watch(pen, theme, app, row);
    let users = gpu_users::occupants(model, gpu);
    if users.is_empty() {
        nobody(pen, theme, row, start);
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
        let beside = amount.width() + 1;
        if words.width() <= room || amount.is_empty() || room <= beside + SHORTEST_PROGRAM {
            pen.words_within(&words, room, theme.text());
        } else {
            // A long name leaves room for the amount.
            pen.words_within(&user.program, room - beside, theme.text())
                .skip(1)
                .put(&amount, theme.text());
        }
    }
}

/// Draws troubles as badges, and what is no trouble as words, at the length that fits. The first
/// note, which begins in the column `start`, is cut rather than left out.
fn notes(pen: &mut Pen<'_>, theme: Theme, start: usize, notes: Vec<GpuNote>) {
    for note in notes {
        let style = match note.trouble {
            Some(severity) => theme.severity(severity),
            None => theme.notable(),
        };
        let padded = |text: &str| match note.trouble {
            Some(_) => format!(" {text} "),
            None => text.to_owned(),
        };
        let (whole, short) = (padded(&note.text), padded(&note.short));
        if whole.width() <= pen.room() {
            pen.put(whole, style).skip(1);
        } else if short.width() <= pen.room() || pen.column() == start {
            pen.badge(&short, style).skip(1);
        }
    }
}

/// Draws how fast the memory of a GPU grows, and whether the user watches the GPU.
fn growth_and_watch(pen: &mut Pen<'_>, theme: Theme, app: &App, row: GpuRow<'_>) {
    let GpuRow { model, gpu, .. } = row;
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

/// Says why no process is named, where nothing before says so.
fn nobody(pen: &mut Pen<'_>, theme: Theme, row: GpuRow<'_>, start: usize) {
    let GpuRow { model, gpu, .. } = row;
    if unaccounted(model, gpu).is_some() || model::is_busy_without_process(gpu) {
        return;
    }
    let is_unknown =
        gpu.missing.processes.is_some() || gpu.trouble.is_some() || !gpu.failures.is_empty();
    let words = if is_unknown {
        "processes not known"
    } else {
        "no process"
    };
    if words.len() <= pen.room() || pen.column() == start {
        pen.words(words, theme.dim());
    }
}
