//! Draws memory as layers. The layers of a GPU are its processes, past and present. The layers of a
//! process are the categories of its tensors, or where these are not known, the memory of all
//! tensors and the other memory that PyTorch reserved. The rest is on top.

use ratatui::buffer::Buffer;

use super::areas::{self, Areas};
use crate::app::App;
use crate::app::graph::panel::Panel;
use crate::app::lists::columns::Align;
use crate::base::text::Text;
use crate::base::units::{Bytes, Moment};
use crate::model::{
    AllocatorHistory, HostModel, MemoryHistory, ProcessHistory, TensorHistory, TensorLayer,
};
use crate::output::labels::name_of;
use crate::protocol::snapshot::GpuUuid;
use crate::view::pen::Pen;
use crate::view::theme::{Fill, Theme};

/// The number of processes with a layer of their own. The others are part of the rest.
const MOST: usize = Fill::LAYERS;

/// One layer: its name, its amount in each column, and its amount at the cursor, or now without a
/// cursor.
struct Layer {
    name: String,
    fill: Fill,
    amounts: Vec<Option<Bytes>>,
    held: Option<Bytes>,
    /// Whether a missing amount is unknown. Otherwise it means that the process was not there.
    may_be_unknown: bool,
}

/// Layers from the bottom, and the rest of the memory on top of them.
struct Stack<'a> {
    whole: &'a MemoryHistory,
    layers: Vec<Layer>,
    /// The name and the fill of the rest.
    rest: (&'static str, Fill),
}

/// Returns the highest amount in each column.
fn amounts(series: &MemoryHistory, panel: &Panel, now: Moment) -> Vec<Option<Bytes>> {
    series
        .over(&panel.window, now)
        .into_iter()
        .map(|range| range.map(|range| range.high))
        .collect()
}

fn user(process: &ProcessHistory) -> Option<&Text> {
    process.facts()?.user.as_ref().ok()
}

/// The layers of a GPU from the bottom, in the order of their first appearance.
fn layers(model: &HostModel, gpu: &GpuUuid, panel: &Panel, cursor: Option<Moment>) -> Vec<Layer> {
    let now = model.now();
    let is_shown = |series: &MemoryHistory| {
        series.end() >= panel.window.start()
            && series
                .began()
                .is_some_and(|began| began < panel.window.end())
    };
    let on_gpu = model.history().gpu_processes(gpu).into_iter().enumerate();
    let mut shown: Vec<_> = on_gpu
        .filter(|(_, (_, _, series))| is_shown(series))
        .collect();
    let mut peaks: Vec<Option<Bytes>> = shown
        .iter()
        .map(|(_, (_, _, series))| series.peak)
        .collect();
    if peaks.len() > MOST {
        peaks.sort_unstable_by(|a, b| b.cmp(a));
        let least = peaks[MOST - 1];
        shown.retain(|(_, (_, _, series))| series.peak >= least);
        shown.truncate(MOST);
    }
    // Each process has the hue of its user, and a shade by its rank among all processes of that
    // user, so that it stays when another process leaves the graph.
    let all = model.history().gpu_processes(gpu);
    let fill = |rank: usize, process: &ProcessHistory| {
        let user_of_layer = user(process);
        let earlier = all.iter().take(rank);
        let shade = earlier
            .filter(|(_, other, _)| user(other) == user_of_layer)
            .count();
        Fill::Process(
            user_of_layer.and_then(|user| model.user_hue(user)),
            u8::try_from(shade % 255).unwrap_or(0),
        )
    };
    let layer =
        |(rank, (id, process, series)): (usize, (_, &ProcessHistory, &MemoryHistory))| Layer {
            name: match user(process) {
                Some(user) => format!("{user} {}", name_of(id, &process.name())),
                None => name_of(id, &process.name()),
            },
            fill: fill(rank, process),
            amounts: amounts(series, panel, now),
            held: match cursor {
                Some(at) => series.at(at, now).map(|range| range.high),
                None => process.gone.is_none().then(|| series.latest()).flatten(),
            },
            may_be_unknown: false,
        };
    shown.into_iter().map(layer).collect()
}

/// Draws the layers of a GPU, and their names at the right where there is room.
pub(super) fn draw_gpu(buffer: &mut Buffer, theme: Theme, app: &App, gpu: &GpuUuid, panel: &Panel) {
    let cursor = app.graph.cursor();
    let Some(model) = app.fleet().host(panel.subject.host) else {
        return;
    };
    let Some(series) = model.history().gpu(gpu).map(|history| &history.memory) else {
        return;
    };
    let layers = layers(model, gpu, panel, cursor);
    // The rest is `unaccounted`, as in the list, if the graph shows the present and every process
    // has a layer.
    let is_unaccounted = cursor.is_none()
        && layers.len() < MOST
        && model.unaccounted().iter().any(|memory| memory.gpu == *gpu);
    let rest = if is_unaccounted {
        "unaccounted"
    } else {
        "other"
    };
    draw(
        buffer,
        theme,
        model.now(),
        panel,
        &Stack {
            whole: series,
            layers,
            rest: (rest, Fill::Other),
        },
        cursor,
    );
}

/// Draws the memory of a process: the categories of its tensors, or that of all tensors and the
/// other memory that PyTorch reserved; and the rest. Where the parts are not known, only the whole
/// is drawn.
pub(super) fn draw_process(
    buffer: &mut Buffer,
    theme: Theme,
    model: &HostModel,
    panel: &Panel,
    series: &MemoryHistory,
    cursor: Option<Moment>,
) {
    let (now, subject) = (model.now(), &panel.subject.subject);
    let layers = match (
        model.tensor_history(subject),
        model.allocator_history(subject),
    ) {
        (Some(tensors), _) => category_layers(tensors, panel, now, cursor),
        (None, Some(split)) => allocator_layers(split, panel, now, cursor),
        (None, None) => Vec::new(),
    };
    let rest = if layers.is_empty() {
        ("", Fill::Allocated)
    } else {
        ("other", Fill::Other)
    };
    draw(
        buffer,
        theme,
        now,
        panel,
        &Stack {
            whole: series,
            layers,
            rest,
        },
        cursor,
    );
}

/// The amount at the cursor, or now without a cursor.
fn held(series: &MemoryHistory, now: Moment, cursor: Option<Moment>) -> Option<Bytes> {
    match cursor {
        Some(at) => series.at(at, now).map(|range| range.high),
        None => series.latest(),
    }
}

/// The layers of a process whose probe reports categories. A category without memory has no layer.
fn category_layers(
    tensors: &TensorHistory,
    panel: &Panel,
    now: Moment,
    cursor: Option<Moment>,
) -> Vec<Layer> {
    let layer = |(layer, series): (TensorLayer, &MemoryHistory)| Layer {
        name: layer.to_string(),
        fill: Fill::of_layer(layer),
        amounts: amounts(series, panel, now),
        held: held(series, now, cursor),
        may_be_unknown: true,
    };
    let used = tensors
        .layers()
        .filter(|(_, series)| series.peak.is_some_and(|peak| peak > Bytes(0)));
    used.map(layer).collect()
}

fn allocator_layers(
    split: &AllocatorHistory,
    panel: &Panel,
    now: Moment,
    cursor: Option<Moment>,
) -> Vec<Layer> {
    let less = |a: Option<Bytes>, b: Option<Bytes>| Some(a?.saturating_sub(b?));
    let held = |series: &MemoryHistory| held(series, now, cursor);
    let (allocated, reserved) = (
        amounts(&split.allocated, panel, now),
        amounts(&split.reserved, panel, now),
    );
    let unallocated = reserved
        .into_iter()
        .zip(&allocated)
        .map(|(a, b)| less(a, *b))
        .collect();
    let layer = |name: &str, fill, amounts, held| Layer {
        name: name.to_owned(),
        fill,
        amounts,
        held,
        may_be_unknown: true,
    };
    vec![
        layer(
            "allocated",
            Fill::Allocated,
            allocated,
            held(&split.allocated),
        ),
        layer(
            "unallocated",
            Fill::Unallocated,
            unallocated,
            less(held(&split.reserved), held(&split.allocated)),
        ),
    ]
}

fn draw(
    buffer: &mut Buffer,
    theme: Theme,
    now: Moment,
    panel: &Panel,
    stack: &Stack<'_>,
    cursor: Option<Moment>,
) {
    let layers = stack.layers.as_slice();
    let fills = layers
        .iter()
        .map(|layer| Some(layer.fill))
        .chain([Some(stack.rest.1), None]);
    let mut areas = Areas::new(fills.collect());
    for (x, whole) in amounts(stack.whole, panel, now).into_iter().enumerate() {
        let Some(whole) = whole else {
            areas.push(panel.plot, std::iter::empty());
            continue;
        };
        let is_known = layers
            .iter()
            .all(|layer| !layer.may_be_unknown || layer.amounts[x].is_some());
        let mut sum = Bytes(0);
        let tops = layers.iter().map(|layer| {
            sum = layer.amounts[x]
                .filter(|_| is_known)
                .map_or(sum, |amount| sum + amount);
            sum
        });
        // The rest ends at the memory in use. The layers may be higher, because they were read a
        // moment later.
        let ends = [if is_known { whole } else { Bytes(0) }, whole];
        areas.push(
            panel.plot,
            tops.chain(ends).map(|amount| panel.scale.height(amount)),
        );
    }
    areas.draw(buffer, theme, panel.plot);
    let used = cursor.map_or(stack.whole.latest(), |at| {
        stack.whole.at(at, now).map(|range| range.high)
    });
    legend(buffer, theme, panel, stack, used);
}

/// Draws the names of the layers, each at the height of its layer.
fn legend(
    buffer: &mut Buffer,
    theme: Theme,
    panel: &Panel,
    stack: &Stack<'_>,
    used: Option<Bytes>,
) {
    if panel.legend.width == 0 {
        return;
    }
    let layers = stack.layers.as_slice();
    let known: Bytes = layers.iter().filter_map(|layer| layer.held).sum();
    let is_known = layers
        .iter()
        .all(|layer| !layer.may_be_unknown || layer.held.is_some());
    let rest = used
        .map(|used| used.saturating_sub(known))
        .filter(|_| is_known);
    let mut entries: Vec<LegendEntry<'_>> = Vec::new();
    let mut sum = Bytes(0);
    let named = layers
        .iter()
        .map(|layer| (layer.name.as_str(), layer.fill, layer.held));
    // A small rest is rounding, and the memory that every CUDA context takes.
    let rest = rest.filter(|rest| *rest >= Bytes::from_mib(256));
    for (name, fill, amount) in named.chain([(stack.rest.0, stack.rest.1, rest)]) {
        let Some(amount) = amount else { continue };
        entries.push(LegendEntry {
            height: panel.scale.height(sum + Bytes(amount.0 / 2)),
            name,
            fill,
            amount,
        });
        sum = sum + amount;
    }
    for (row, entry) in places(entries, panel.plot.height) {
        let Some(mut pen) = Pen::at(buffer, panel.legend, row) else {
            continue;
        };
        let sample = areas::glyph(theme, Some(entry.fill));
        pen.skip(1)
            .put(sample.to_string(), theme.fill(entry.fill, 1.0))
            .skip(1);
        let room = pen.room().saturating_sub(Bytes::WIDTH + 1);
        pen.cell(entry.name, room, Align::Left, theme.fill_name(entry.fill))
            .skip(1);
        pen.cell(entry.amount, Bytes::WIDTH, Align::Right, theme.text());
    }
}

/// A line of the legend, and the height of the middle of its layer.
struct LegendEntry<'a> {
    height: f64,
    name: &'a str,
    fill: Fill,
    amount: Bytes,
}

/// Places entries in rows, as near to their layers as the others allow. The lowest is the first.
fn places(entries: Vec<LegendEntry<'_>>, rows: u16) -> Vec<(u16, LegendEntry<'_>)> {
    let mut free = rows;
    let mut placed = Vec::new();
    let count = entries.len();
    for (place, entry) in entries.into_iter().enumerate() {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and the rows there are"
        )]
        let wanted =
            rows.saturating_sub(1 + (entry.height.clamp(0.0, 1.0) * f64::from(rows)) as u16);
        let above = u16::try_from(count - 1 - place).unwrap_or(u16::MAX);
        let Some(lowest) = free.checked_sub(1) else {
            break;
        };
        let row = wanted.max(above).min(lowest);
        placed.push((row, entry));
        free = row;
    }
    placed
}

/// The memory of each layer at a moment, the largest first, for the line of figures.
pub(super) fn memory_at(model: &HostModel, gpu: &GpuUuid, at: Moment) -> Vec<(String, Bytes)> {
    let held = |(id, process, series): (_, &ProcessHistory, &MemoryHistory)| {
        Some((
            name_of(id, &process.name()),
            series.at(at, model.now())?.high,
        ))
    };
    let mut held: Vec<_> = model
        .history()
        .gpu_processes(gpu)
        .into_iter()
        .filter_map(held)
        .collect();
    held.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    held
}
