//! One line per GPU: `0 H100 80GB HBM3  ━━━━━━──── 61.2/79.6G  97% ━━━━━━━─ 64°C 512/700W ok`

use ratatui::buffer::Buffer;
use ratatui::style::Style;
use ratatui::widgets::{Paragraph, Widget, Wrap};

use super::host::word;
use super::pen::{Align, Pen};
use super::rect;
use super::theme::Theme;
use crate::app::layout::Area;
use crate::app::{App, List, rows};
use crate::model::{Subject, Weight};
use crate::snapshot::{Gpu, Missing};
use crate::units::{Bytes, Elapsed, Hertz, Percent};

/// How the columns share a line.
struct Columns {
    label: usize,
    name: usize,
    bar: usize,
    /// Clocks, P-state, fan and ECC, when there is room for all of them.
    more: bool,
    /// Encoder, decoder and PCIe, when there is room for these too.
    most: bool,
}

const MEMORY: usize = 10;
const TEMPERATURE: usize = 5;
const POWER: usize = 8;
const HEALTH: usize = 12;
/// Where there is room for what the word means.
const HEALTH_AT_LENGTH: usize = 36;
/// `5 x16`: generation and lanes.
const PCIE: usize = 5;

impl Columns {
    fn of(width: usize, gpus: &[Gpu]) -> Self {
        let label = gpus.iter().map(|gpu| rows::gpu_label(gpu).len()).max().unwrap_or(1).max(2);
        let more = width >= 150;
        let fixed = label + 1 + 1 + 1 + MEMORY + 1 + Percent::WIDTH + 1 + 1 + TEMPERATURE + 1 + POWER + 1 + HEALTH;
        let most = width >= 190;
        let left = width.saturating_sub(
            fixed + if more { 5 + 39 } else { 0 } + if most { 17 + HEALTH_AT_LENGTH - HEALTH } else { 0 },
        );
        // Two bars and a name share what is left.
        let longest = gpus.iter().filter_map(|gpu| Some(gpu.facts.name.as_ref().ok()?.as_str().len())).max();
        let name = longest.unwrap_or(4).clamp(4, 28).min((left / 2).max(8));
        Self { label, name, bar: (left.saturating_sub(name) / 2).clamp(3, 30), more, most }
    }
}

pub(super) fn draw(buffer: &mut Buffer, theme: Theme, app: &App, area: Area) {
    let Some(snapshot) = app.model().latest() else { return };
    if snapshot.gpus.is_empty() {
        let sentence = match &snapshot.driver.trouble {
            Some(trouble) => trouble.sentence.to_string(),
            None => "The NVIDIA driver answers, and says that there is no GPU on this host.".to_owned(),
        };
        let style = if snapshot.driver.trouble.is_some() { theme.alarm() } else { theme.text() };
        Paragraph::new(sentence).style(style).wrap(Wrap { trim: true }).render(rect(area), buffer);
        return;
    }
    let columns = Columns::of(usize::from(area.width), &snapshot.gpus);
    let hidden = snapshot.gpus.len().saturating_sub(usize::from(area.height.saturating_sub(1)));
    if let Some(mut pen) = Pen::at(buffer, area, 0) {
        match &snapshot.driver.trouble {
            Some(trouble) => pen.put(trouble.sentence.as_str(), theme.alarm()),
            None => head(&mut pen, theme, &columns),
        };
    }
    if hidden > 0
        && let Some(mut pen) = Pen::at(buffer, area, 0)
    {
        // Where the last column has its name.
        let word = format!(" {hidden} more (Tab)");
        pen.tab_from_end(word.len()).put(word, theme.notable());
    }
    let (cursor, top) = app.gpu_cursor();
    for (line, (at, gpu)) in (1..area.height).zip(snapshot.gpus.iter().enumerate().skip(top)) {
        let Some(mut pen) = Pen::at(buffer, area, line) else { return };
        draw_line(&mut pen, theme, app, gpu, &columns);
        if app.focus() == List::Gpus && at == cursor {
            pen.restyle(area, theme.cursor());
        }
    }
}

fn head<'p, 'a>(pen: &'p mut Pen<'a>, theme: Theme, columns: &Columns) -> &'p mut Pen<'a> {
    let style = theme.head();
    pen.cell("#", columns.label, Align::Right, style).skip(1);
    pen.cell("GPU", columns.name, Align::Left, style).skip(1);
    pen.cell("MEMORY", columns.bar + 1 + MEMORY, Align::Left, style).skip(1);
    pen.cell("SM", Percent::WIDTH, Align::Right, style).skip(1 + columns.bar + 1);
    pen.cell("TEMP", TEMPERATURE, Align::Right, style).skip(1);
    pen.cell("POWER", POWER, Align::Right, style).skip(1);
    if columns.more {
        pen.cell("MEM%", Percent::WIDTH, Align::Right, style).skip(1);
        pen.cell("SM CLOCK", 8, Align::Right, style).skip(1);
        pen.cell("MEM CLOCK", 9, Align::Right, style).skip(1);
        pen.cell("P", 3, Align::Right, style).skip(1);
        pen.cell("FAN", Percent::WIDTH, Align::Right, style).skip(1);
        pen.cell("ECC", 6, Align::Right, style).skip(1);
    }
    if columns.most {
        pen.cell("ENC", Percent::WIDTH, Align::Right, style).skip(1);
        pen.cell("DEC", Percent::WIDTH, Align::Right, style).skip(1);
        pen.cell("PCIE", PCIE, Align::Right, style).skip(1);
    }
    pen.put("HEALTH", style)
}

fn draw_line(pen: &mut Pen<'_>, theme: Theme, app: &App, gpu: &Gpu, columns: &Columns) {
    let age = app.model().age(gpu);
    let is_old = age.is_some() || gpu.trouble.is_some();
    let style = if is_old { theme.dim() } else { theme.text() };
    let (facts, load) = (&gpu.facts, &gpu.load);
    let watched = if app.is_watched(&Subject::Gpu(gpu.uuid.clone())) { "w" } else { "" };
    pen.cell(format!("{watched}{}", rows::gpu_label(gpu)), columns.label, Align::Right, style).skip(1);
    let name = word(facts.name.as_ref().map_err(|why| *why));
    pen.cell(short(&name), columns.name, Align::Left, style).skip(1);
    let share = load.memory_used.ok().zip(load.memory_total.ok()).and_then(|(used, total)| used.share_of(total));
    let full = if is_old { style } else { theme.full(share) };
    pen.gauge(theme, share, columns.bar, full).skip(1);
    pen.cell(memory(gpu), MEMORY, Align::Right, style).skip(1);
    if let Some(trouble) = &gpu.trouble {
        let mut text = app.model().health(gpu).word;
        if let Some(age) = age {
            text = format!("{text}, figures {} old", Elapsed(age));
        }
        if let Some(call) = &trouble.call {
            text = format!("{text}, {call}");
        }
        // With room, the sentence says it all, and what to do.
        let sentence = trouble.sentence.as_str();
        let text = if sentence.len() <= pen.room() && age.is_none() { sentence.to_owned() } else { text };
        pen.put(text, theme.alarm());
        return;
    }
    let busy = if is_old { style } else { theme.busy() };
    pen.cell(word(load.sm), Percent::WIDTH, Align::Right, style).skip(1);
    pen.gauge(theme, load.sm.ok().map(|it| f64::from(it.value()) / 100.0), columns.bar, busy).skip(1);
    pen.cell(word(load.temperature), TEMPERATURE, Align::Right, heat(theme, gpu, style)).skip(1);
    pen.cell(power(gpu), POWER, Align::Right, style).skip(1);
    if columns.more {
        more(pen, gpu, style);
    }
    if columns.most {
        pen.cell(word(gpu.health.encoder), Percent::WIDTH, Align::Right, style).skip(1);
        pen.cell(word(gpu.health.decoder), Percent::WIDTH, Align::Right, style).skip(1);
        let link = gpu.health.pcie_generation.and_then(|it| Ok(format!("{it} x{}", gpu.health.pcie_width?)));
        pen.cell(word(link), PCIE, Align::Right, style).skip(1);
    }
    match age {
        Some(age) => pen.put(format!("{} old", Elapsed(age)), theme.notable()),
        None => {
            let health = app.model().health(gpu);
            // With room, what it means.
            let words = if health.phrase.len() <= pen.room() { &health.phrase } else { &health.word };
            pen.put(words, theme.weight(health.weight));
            let failure = gpu.failures.first().filter(|_| health.weight > Weight::Fine);
            match failure.map(ToString::to_string).filter(|it| it.len() < pen.room()) {
                Some(failure) => pen.skip(1).put(failure, theme.notable()),
                None => pen,
            }
        }
    };
}

fn more(pen: &mut Pen<'_>, gpu: &Gpu, style: Style) {
    let mhz = |clock: Result<Hertz, Missing>| word(clock);
    pen.cell(word(gpu.load.memory_bandwidth), Percent::WIDTH, Align::Right, style).skip(1);
    pen.cell(mhz(gpu.load.sm_clock), 8, Align::Right, style).skip(1);
    pen.cell(mhz(gpu.health.memory_clock), 9, Align::Right, style).skip(1);
    pen.cell(word(gpu.health.performance_state.map(|it| format!("P{it}"))), 3, Align::Right, style).skip(1);
    pen.cell(word(gpu.health.fan), Percent::WIDTH, Align::Right, style).skip(1);
    let ecc = gpu.health.ecc_corrected.and_then(|fixed| Ok(format!("{fixed}/{}", gpu.health.ecc_uncorrected?)));
    pen.cell(word(ecc), 6, Align::Right, style).skip(1);
}

/// `61.2/79.6G`: used of total.
fn memory(gpu: &Gpu) -> String {
    let gib =
        |bytes: Bytes| if bytes.gib() < 99.95 { format!("{:.1}", bytes.gib()) } else { format!("{:.0}", bytes.gib()) };
    match (gpu.load.memory_used, gpu.load.memory_total) {
        (Ok(used), Ok(total)) => format!("{}/{}G", gib(used), gib(total)),
        (used, _) => word(used),
    }
}

/// `512/700W`: drawn of allowed.
fn power(gpu: &Gpu) -> String {
    match (gpu.load.power, gpu.health.power_limit) {
        (Ok(power), Ok(limit)) => format!("{:.0}/{limit}", power.value()),
        (power, _) => word(power),
    }
}

/// A temperature within ten degrees of where the GPU slows down stands out.
fn heat(theme: Theme, gpu: &Gpu, usual: Style) -> Style {
    match (gpu.load.temperature, gpu.facts.slowdown_temperature) {
        (Ok(is), Ok(limit)) if is >= limit => theme.alarm(),
        (Ok(is), Ok(limit)) if is.0 + 10 >= limit.0 => theme.notable(),
        _ => usual,
    }
}

/// The name without what every name has.
fn short(name: &str) -> &str {
    name.strip_prefix("NVIDIA ").unwrap_or(name)
}
