//! Parts of a line about one of many hosts, for the fleet view and the cluster view: the cells of its
//! GPUs, its figures, and who uses it.

use ratatui::buffer::Buffer;
use ratatui::style::Style;
use unicode_width::UnicodeWidthStr;

use super::pen::Pen;
use super::theme::{Fill, Theme};
use crate::app::fleet::fleet_areas::FleetAreas;
use crate::app::fleet::host_sort::HostSort;
use crate::app::layout::Area;
use crate::app::lists::columns::Align;
use crate::base::text::Text;
use crate::base::units::{Bytes, Percent};
use crate::model::cluster::ClusterFigures;
use crate::model::{GpuState, HostOverview, Severity, UserHue};

/// The heading of the cells, above the column before the first one.
pub(super) const GPU: &str = "GPU ";

/// The widths of the figures of the table. The memory of a host with sixteen GPUs of 192 GiB fits.
const FREE: usize = 4;
const MEMORY: usize = 11;
const POWER: usize = 7;

/// The figures of the table from left to right: the heading, the width, and the order by it.
const FIGURES: [(&str, usize, HostSort); 4] = [
    ("FREE", 1 + FREE, HostSort::Free),
    ("MEMORY", MEMORY, HostSort::Memory),
    ("SM", Percent::WIDTH, HostSort::Sm),
    ("POWER", POWER, HostSort::Power),
];

/// The least width of the column of users.
const WHO: usize = 12;

/// A user of a host, the number of GPUs, and the hue.
pub(super) type HostUser<'a> = (&'a Text, usize, Option<UserHue>);

/// The figures of a host. `None` stands for what is not known.
#[derive(Debug, Clone, Copy)]
pub(super) struct HostFigures {
    free: Option<usize>,
    memory_used: Option<Bytes>,
    memory_total: Option<Bytes>,
    /// Whether the memory of a GPU is not known, so that there is more.
    is_lower_bound: bool,
    sm: Option<Percent>,
    /// In watts.
    power: Option<f32>,
}

impl From<&HostOverview> for HostFigures {
    fn from(overview: &HostOverview) -> Self {
        let used = overview.memory_used.ok();
        Self {
            free: Some(overview.count(GpuState::Free)),
            memory_used: used.map(|total| total.bytes),
            memory_total: overview.memory_total.ok().map(|total| total.bytes),
            is_lower_bound: used.is_some_and(|total| total.is_lower_bound),
            sm: overview.sm,
            power: overview.power,
        }
    }
}

impl From<&ClusterFigures> for HostFigures {
    fn from(figures: &ClusterFigures) -> Self {
        Self {
            free: figures.free,
            memory_used: figures.memory_used,
            memory_total: figures.memory_total,
            is_lower_bound: figures.unknown() > 0,
            sm: figures.sm,
            power: figures.power,
        }
    }
}

impl HostFigures {
    /// A figure, and its style.
    fn figure(&self, theme: Theme, figure: HostSort) -> (String, Style) {
        let unknown = || "?".to_owned();
        let text = match figure {
            HostSort::Free => {
                let style = if self.free > Some(0) {
                    theme.accent()
                } else {
                    theme.dim()
                };
                let words = self.free.map_or_else(unknown, |free| free.to_string());
                return (words, style);
            }
            HostSort::Memory => self.memory(),
            HostSort::Sm => self.sm.map_or_else(unknown, |sm| sm.to_string()),
            HostSort::Power => self.power(),
            HostSort::Name | HostSort::Trouble => String::new(),
        };
        (text, theme.text())
    }

    /// `421/637G`, with `≥` where the memory of a GPU is not known.
    fn memory(&self) -> String {
        match (self.memory_used, self.memory_total) {
            (Some(used), Some(total)) => {
                let bound = if self.is_lower_bound { "≥" } else { "" };
                format!("{bound}{:.0}/{:.0}G", used.gib(), total.gib())
            }
            _ => "?".to_owned(),
        }
    }

    /// `4.1 kW`
    fn power(&self) -> String {
        self.power.map_or_else(
            || "?".to_owned(),
            |watts| format!("{:.1} kW", watts / 1000.0),
        )
    }
}

/// The figures that fit into this room beside the users.
fn fitting_figures(room: usize) -> &'static [(&'static str, usize, HostSort)] {
    let mut left = room.saturating_sub(WHO);
    let fits = |(_, width, _): &&(&str, usize, HostSort)| {
        let has_room = left > *width;
        left = left.saturating_sub(width + 1);
        has_room
    };
    &FIGURES[..FIGURES.iter().take_while(fits).count()]
}

/// Draws the headings of the table, and the number of hosts that are not on the screen.
pub(super) fn headings(
    buffer: &mut Buffer,
    theme: Theme,
    area: Area,
    areas: &FleetAreas,
    sort: HostSort,
    hidden: usize,
) {
    let Some(mut pen) = Pen::at(buffer, area, 0) else {
        return;
    };
    pen.style_as_heading(theme);
    let style = |of: HostSort| {
        if sort == of && of != HostSort::Name {
            theme.accent()
        } else {
            theme.head()
        }
    };
    pen.cell("HOST", areas.name, Align::Left, style(HostSort::Name));
    pen.skip(1).put(GPU, theme.head());
    // Digits, as the labels of GPUs: from the tenth on the last one.
    let digits: String = (0..areas.cells)
        .map(|gpu| char::from(b'0' + u8::try_from(gpu % 10).unwrap_or(0)))
        .collect();
    pen.put(digits, theme.head()).skip(1);
    for (title, width, sort) in fitting_figures(pen.room()) {
        pen.cell(title, *width, Align::Right, style(*sort)).skip(1);
    }
    pen.skip(1).put("WHO", theme.head());
    if hidden > 0 {
        let words = format!(" {hidden} more hosts");
        pen.over_end(words.width()).put(words, theme.accent());
    }
}

/// Draws the figures of a host below their headings.
pub(super) fn figures(pen: &mut Pen<'_>, theme: Theme, figures: &HostFigures) {
    for (_, width, figure) in fitting_figures(pen.room()) {
        let (text, style) = figures.figure(theme, *figure);
        pen.cell(text, *width, Align::Right, style).skip(1);
    }
    pen.skip(1);
}

/// Draws the figures of the host under the cursor, where the hosts are in columns.
pub(super) fn selected(pen: &mut Pen<'_>, theme: Theme, figures: &HostFigures) {
    let free = figures
        .free
        .map_or_else(|| "?".to_owned(), |free| free.to_string());
    let sm = figures
        .sm
        .map_or_else(String::new, |sm| format!("SM {sm}  "));
    pen.skip(1)
        .put(format!("{free} free  {}  ", figures.memory()), theme.text())
        .put(sm, theme.text())
        .put(format!("{}  ", figures.power()), theme.text());
}

/// Writes the users of a host in their hues, each with the number of its GPUs, and the jobs.
pub(super) fn who(pen: &mut Pen<'_>, theme: Theme, users: &[HostUser<'_>], jobs: &[&str]) {
    for (place, (user, gpus, hue)) in users.iter().enumerate() {
        let left = users.len() - place;
        let words = format!("{user} {gpus}");
        // The last user needs no room for the count of others.
        let others = if left > 1 { ", +99".len() } else { 0 };
        if words.width() + others > pen.room() && place > 0 {
            pen.put(format!(", +{left}"), theme.dim());
            return;
        }
        if place > 0 {
            pen.put(", ", theme.dim());
        }
        pen.put(user.as_str(), theme.user(*hue))
            .put(format!(" {gpus}"), theme.text());
    }
    for (place, job) in jobs.iter().enumerate() {
        if job.width() + 2 > pen.room() {
            return;
        }
        let before = if place == 0 { "  " } else { ", " };
        pen.put(before, theme.dim()).put(job, theme.dim());
    }
}

/// Draws one cell for each GPU.
pub(super) fn cells(
    pen: &mut Pen<'_>,
    theme: Theme,
    cells: &[(GpuState, Option<UserHue>)],
    width: usize,
) {
    let fits = cells.len() <= width;
    let shown = if fits { cells.len() } else { width - 1 };
    for (state, hue) in &cells[..shown] {
        cell(pen, theme, *state, *hue);
    }
    if !fits {
        pen.put("…", theme.dim());
    }
    pen.skip(width - shown - usize::from(!fits));
}

/// Draws the cell of a GPU.
pub(super) fn cell(pen: &mut Pen<'_>, theme: Theme, state: GpuState, hue: Option<UserHue>) {
    let (glyph, style) = match state {
        GpuState::Sick => ("x", theme.severity(Severity::Bad)),
        GpuState::Unknown => ("?", theme.dim()),
        GpuState::Leak => ("L", theme.severity(Severity::Bad)),
        GpuState::Orphan => ("o", theme.severity(Severity::Notable)),
        GpuState::HeldIdle => ("h", theme.severity(Severity::Notable)),
        GpuState::NearlyFull => ("▓", theme.edge(Fill::User(hue))),
        GpuState::Busy => ("█", theme.edge(Fill::User(hue))),
        GpuState::Free => ("·", theme.dim()),
    };
    pen.put(glyph, style);
}

/// Draws the hosts with free GPUs: `FREE 14 GPUs: gpu-05 8, gpu-04 4`.
pub(super) fn free<'a>(
    buffer: &mut Buffer,
    theme: Theme,
    area: Area,
    hosts: impl ExactSizeIterator<Item = (&'a str, usize)> + Clone,
) {
    let Some(mut pen) = Pen::at(buffer, area, 0) else {
        return;
    };
    let count: usize = hosts.clone().map(|(_, gpus)| gpus).sum();
    pen.put("FREE ", theme.head());
    if count == 0 {
        pen.put(" no GPU", theme.dim());
        return;
    }
    let noun = if count == 1 { "GPU" } else { "GPUs" };
    pen.put(format!(" {count} {noun}: "), theme.text());
    list(&mut pen, theme, hosts.map(named_count));
}

/// Draws the users of all hosts: `USERS alice 24, bob 12`.
pub(super) fn users<'a>(
    buffer: &mut Buffer,
    theme: Theme,
    area: Area,
    users: impl ExactSizeIterator<Item = (&'a str, usize)>,
) {
    let Some(mut pen) = Pen::at(buffer, area, 0) else {
        return;
    };
    if users.len() > 0 {
        pen.put("USERS", theme.head()).skip(1);
        list(&mut pen, theme, users.map(named_count));
    }
}

fn named_count((name, count): (&str, usize)) -> String {
    format!("{name} {count}")
}

/// Writes the items that fit, separated by commas, and the number of the others. There may be
/// thousands: those that do not fit are not made.
pub(super) fn list(pen: &mut Pen<'_>, theme: Theme, items: impl ExactSizeIterator<Item = String>) {
    let count = items.len();
    for (place, item) in items.enumerate() {
        let left = count - place;
        let after = if left > 1 { ", +999".len() } else { 0 };
        let before = if place > 0 { ", " } else { "" };
        if before.len() + item.width() + after > pen.room() {
            pen.put(format!("{before}+{left}"), theme.dim());
            return;
        }
        pen.put(before, theme.dim()).put(item, theme.text());
    }
}

/// Returns a name in at most this many columns. A longer one has `…` in its middle: the beginning
/// and the end of names of hosts differ more often.
pub(super) fn middle_cut(name: &str, width: usize) -> String {
    if name.width() <= width {
        return name.to_owned();
    }
    let letters: Vec<char> = name.chars().collect();
    let (head, tail) = (width.saturating_sub(1) / 2, width / 2);
    let tail = tail.min(width.saturating_sub(1 + head));
    let end: String = letters[letters.len().saturating_sub(tail)..]
        .iter()
        .collect();
    let start: String = letters.iter().take(head).collect();
    format!("{start}…{end}")
}
