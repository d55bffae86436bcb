//! Draws memory as layers. The layers of a GPU are its processes, past and present; those of a process are the memory of
//! tensors and the other memory that PyTorch reserved. The rest is on top.

use ratatui::buffer::Buffer;
use ratatui::style::Style;

use super::dots::{self, Dots, FILL_COUNT};
use super::name_of;
use crate::app::columns::Align;
use crate::app::graph::panel::Panel;
use crate::base::units::{Bytes, Moment};
use crate::model::{AllocatorHistory, HostModel, MemoryHistory, MinMax, ProcessHistory, Window};
use crate::protocol::snapshot::GpuUuid;
use crate::view::pen::Pen;
use crate::view::theme::Theme;

/// The number of processes with a layer of their own. The others are part of the rest.
const MOST: usize = FILL_COUNT;

const OTHER: &str = "other";

/// One layer: its name, its amount in each column of dots, and its amount at the cursor, or now without a cursor.
struct Layer {
    name: String,
    amounts: Vec<Option<Bytes>>,
    held: Option<Bytes>,
    /// Whether a missing amount is unknown. Otherwise it means that the process was not there.
    may_be_unknown: bool,
}

/// The layers of a GPU from the bottom, in the order of their first appearance.
fn layers(model: &HostModel, gpu: &GpuUuid, panel: &Panel, cursor: Option<Moment>) -> Vec<Layer> {
    let now = model.now();
    let is_shown = |series: &MemoryHistory| {
        series.end() >= panel.window.start() && series.began().is_some_and(|began| began < panel.window.end())
    };
    let mut shown: Vec<_> = model.history().gpu_processes(gpu).into_iter().filter(|(_, _, it)| is_shown(it)).collect();
    let mut peaks: Vec<Option<Bytes>> = shown.iter().map(|(_, _, it)| it.peak).collect();
    if peaks.len() > MOST {
        peaks.sort_unstable_by(|a, b| b.cmp(a));
        let least = peaks[MOST - 1];
        shown.retain(|(_, _, it)| it.peak >= least);
        shown.truncate(MOST);
    }
    let layer = |(id, process, series): (_, &ProcessHistory, &MemoryHistory)| Layer {
        name: name_of(id, &process.name),
        amounts: series.over(&panel.window, now).into_iter().map(|range| range.map(|range| range.high)).collect(),
        held: match cursor {
            Some(at) => series.at(at, now).map(|range| range.high),
            None => process.gone.is_none().then(|| series.latest()).flatten(),
        },
        may_be_unknown: false,
    };
    shown.into_iter().map(layer).collect()
}

/// Draws the layers of a GPU, and their names at the right where there is room.
pub(super) fn draw(
    buffer: &mut Buffer,
    theme: Theme,
    model: &HostModel,
    gpu: &GpuUuid,
    panel: &Panel,
    cursor: Option<Moment>,
) {
    let Some(series) = model.history().gpu(gpu).map(|history| &history.memory) else { return };
    let layers = layers(model, gpu, panel, cursor);
    // The rest is `unaccounted`, as in the list, if the graph shows the present and every process has a layer.
    let is_unaccounted =
        cursor.is_none() && layers.len() < MOST && model.unaccounted().iter().any(|memory| memory.gpu == *gpu);
    let rest = if is_unaccounted { "unaccounted" } else { OTHER };
    draw_stack(buffer, theme, model.now(), panel, &Stack { whole: series, layers, rest }, cursor);
}

/// Draws the memory of tensors, the other memory that PyTorch reserved, and the rest. Where the parts are not known, only the
/// whole is drawn.
pub(super) fn draw_parts(
    buffer: &mut Buffer,
    theme: Theme,
    model: &HostModel,
    panel: &Panel,
    series: &MemoryHistory,
    split: &AllocatorHistory,
    cursor: Option<Moment>,
) {
    let now = model.now();
    let high = |series: &MemoryHistory, window: &Window| -> Vec<Option<Bytes>> {
        series.over(window, now).into_iter().map(|range| range.map(|range| range.high)).collect()
    };
    let less = |a: Option<Bytes>, b: Option<Bytes>| Some(a?.saturating_sub(b?));
    let held = |series: &MemoryHistory| match cursor {
        Some(at) => series.at(at, now).map(|range| range.high),
        None => series.latest(),
    };
    let (allocated, reserved) = (high(&split.allocated, &panel.window), high(&split.reserved, &panel.window));
    let unallocated = reserved.into_iter().zip(&allocated).map(|(a, b)| less(a, *b)).collect();
    let layers = vec![
        Layer { name: "allocated".to_owned(), amounts: allocated, held: held(&split.allocated), may_be_unknown: true },
        Layer {
            name: "unallocated".to_owned(),
            amounts: unallocated,
            held: less(held(&split.reserved), held(&split.allocated)),
            may_be_unknown: true,
        },
    ];
    draw_stack(buffer, theme, now, panel, &Stack { whole: series, layers, rest: OTHER }, cursor);
}

struct Stack<'a> {
    whole: &'a MemoryHistory,
    layers: Vec<Layer>,
    rest: &'static str,
}

fn draw_stack(
    buffer: &mut Buffer,
    theme: Theme,
    now: Moment,
    panel: &Panel,
    stack: &Stack<'_>,
    cursor: Option<Moment>,
) {
    let layers = stack.layers.as_slice();
    let whole = stack.whole.over(&panel.window, now);
    let mut dots = Dots::new(panel.plot);
    let mut before: Option<Vec<usize>> = None;
    for (x, whole) in whole.into_iter().enumerate() {
        let is_known = layers.iter().all(|layer| !layer.may_be_unknown || layer.amounts[x].is_some());
        let layers = if is_known { layers } else { &[] };
        before = whole.map(|whole| column(&mut dots, theme, panel, layers, x, whole, before.as_deref()));
    }
    dots.draw(buffer);
    let used = cursor.map_or(stack.whole.latest(), |at| stack.whole.at(at, now).map(|range| range.high));
    legend(buffer, theme, panel, stack, used);
}

fn style(theme: Theme, layers: &[Layer], at: usize) -> Style {
    if at < layers.len() { theme.layer(at) } else { theme.dim() }
}

/// Draws one column of dots: each layer filled up to its edge. Returns the rows of the edges.
fn column(
    dots: &mut Dots,
    theme: Theme,
    panel: &Panel,
    layers: &[Layer],
    x: usize,
    whole: MinMax<Bytes>,
    before: Option<&[usize]>,
) -> Vec<usize> {
    let mut sum = Bytes(0);
    let mut floor = dots.height();
    let mut edges = Vec::with_capacity(layers.len() + 1);
    for at in 0..=layers.len() {
        // The rest ends at the memory in use. The layers may be higher, because they were read a moment later.
        sum = layers
            .get(at)
            .map_or(Bytes(whole.high.0.max(sum.0)), |layer| Bytes(sum.0 + layer.amounts[x].map_or(0, |bytes| bytes.0)));
        let edge = dots.row(panel.scale.height(sum));
        edges.push(edge);
        if edge < floor {
            if at < layers.len() {
                dots.fill(x, edge..floor, at, style(theme, layers, at));
            }
            floor = edge;
        }
    }
    // From the bottom to the top, so that the edge of the whole covers the others. A layer without height has no edge.
    let mut floor = dots.height();
    for (at, edge) in edges.iter().enumerate() {
        let is_there = *edge + 1 < floor || at == layers.len();
        if is_there {
            let is_top = at == layers.len();
            // An edge that was unknown in the column before is not joined to it.
            let from = before.filter(|before| is_top || before.len() == edges.len());
            let from = from.and_then(|before| if is_top { before.last() } else { before.get(at) }).unwrap_or(edge);
            let style = if is_top { theme.accent() } else { style(theme, layers, at) };
            dots.line(x, (*from, *edge), style);
            floor = *edge;
        }
    }
    edges
}

/// Draws the names of the layers, each at the height of its layer.
fn legend(buffer: &mut Buffer, theme: Theme, panel: &Panel, stack: &Stack<'_>, used: Option<Bytes>) {
    if panel.legend.width == 0 {
        return;
    }
    let layers = stack.layers.as_slice();
    let known: Bytes = layers.iter().filter_map(|layer| layer.held).sum();
    let is_known = layers.iter().all(|layer| !layer.may_be_unknown || layer.held.is_some());
    let rest = used.map(|used| used.saturating_sub(known)).filter(|_| is_known);
    let mut entries: Vec<(f64, usize, String, Option<Bytes>)> = Vec::new();
    let mut sum = Bytes(0);
    for (at, layer) in layers.iter().enumerate() {
        let Some(amount) = layer.held else { continue };
        let middle = panel.scale.height(Bytes(sum.0 + amount.0 / 2));
        entries.push((middle, at, layer.name.clone(), Some(amount)));
        sum = Bytes(sum.0 + amount.0);
    }
    if let Some(rest) = rest.filter(|rest| *rest >= Bytes::from_mib(256)) {
        let middle = panel.scale.height(Bytes(sum.0 + rest.0 / 2));
        entries.push((middle, layers.len(), stack.rest.to_owned(), Some(rest)));
    }
    for (row, (_, at, name, amount)) in places(&entries, panel.plot.height) {
        let Some(mut pen) = Pen::at(buffer, panel.legend, row) else { continue };
        let sample = if at < layers.len() { dots::sample(at) } else { ' ' };
        pen.skip(1).put(sample.to_string(), style(theme, layers, at)).skip(1);
        let amount = amount.map_or_else(String::new, |amount| amount.to_string());
        let room = pen.room().saturating_sub(Bytes::WIDTH + 1);
        pen.cell(name, room, Align::Left, style(theme, layers, at)).skip(1);
        pen.cell(amount, Bytes::WIDTH, Align::Right, theme.text());
    }
}

/// Places names in rows, as near to their layers as the others allow. The lowest name is the first.
fn places<T: Clone>(entries: &[(f64, usize, String, T)], rows: u16) -> Vec<(u16, (f64, usize, String, T))> {
    let mut free = rows;
    let mut placed = Vec::new();
    for (left, entry) in entries.iter().enumerate().map(|(at, it)| (entries.len() - 1 - at, it)) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and the rows there are")]
        let wanted = rows.saturating_sub(1 + (entry.0.clamp(0.0, 1.0) * f64::from(rows)) as u16);
        let above = u16::try_from(left).unwrap_or(u16::MAX);
        let Some(lowest) = free.checked_sub(1) else { break };
        let row = wanted.max(above).min(lowest);
        placed.push((row, entry.clone()));
        free = row;
    }
    placed
}

/// The memory of each layer at a moment, the largest first, for the line of figures.
pub(super) fn memory_at(model: &HostModel, gpu: &GpuUuid, at: Moment) -> Vec<(String, Bytes)> {
    let held = |(id, process, series): (_, &ProcessHistory, &MemoryHistory)| {
        Some((name_of(id, &process.name), series.at(at, model.now())?.high))
    };
    let mut held: Vec<_> = model.history().gpu_processes(gpu).into_iter().filter_map(held).collect();
    held.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    held
}
