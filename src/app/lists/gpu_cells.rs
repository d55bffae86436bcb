//! The cells of the GPU list, for the screen and for `--once`.

use super::columns::{Cell, Tone};
use super::gpu_columns::GpuColumn;
use crate::base::units::{Bytes, Elapsed};
use crate::model::HostModel;
use crate::output::labels::{gpu_label, word};
use crate::protocol::snapshot::Gpu;

/// Returns the cell of one column. `host` is the name of the GPU's host.
pub(crate) fn cell(column: GpuColumn, host: &str, model: &HostModel, gpu: &Gpu) -> Cell {
    let (facts, load, health) = (&gpu.facts, &gpu.load, &gpu.health);
    match column {
        GpuColumn::Host => Cell::reading(host),
        GpuColumn::Index => Cell::reading(gpu_label(gpu)),
        GpuColumn::Name => {
            let name = word(facts.name.as_ref());
            Cell::reading(short_name(&name))
        }
        GpuColumn::Memory => Cell::reading(memory(gpu)),
        GpuColumn::Sm => Cell::reading(word(load.sm)),
        GpuColumn::Temperature => Cell {
            text: word(load.temperature),
            tone: heat(gpu),
        },
        GpuColumn::Power => Cell::reading(power(gpu)),
        GpuColumn::MemoryUse => Cell::reading(word(load.memory_bandwidth)),
        GpuColumn::SmClock => Cell::reading(word(load.sm_clock)),
        GpuColumn::MemoryClock => Cell::reading(word(health.memory_clock)),
        GpuColumn::PState => Cell::reading(word(
            health.performance_state.map(|state| format!("P{state}")),
        )),
        GpuColumn::Fan => Cell::reading(word(health.fan)),
        GpuColumn::Ecc => {
            let corrected = health.ecc_corrected;
            Cell::reading(word(corrected.and_then(|corrected| {
                Ok(format!("{corrected}/{}", health.ecc_uncorrected?))
            })))
        }
        GpuColumn::Encoder => Cell::reading(word(health.encoder)),
        GpuColumn::Decoder => Cell::reading(word(health.decoder)),
        GpuColumn::Pcie => {
            let generation = health.pcie_generation;
            Cell::reading(word(generation.and_then(|generation| {
                Ok(format!("{generation} x{}", health.pcie_width?))
            })))
        }
        GpuColumn::Health => match model.age(gpu) {
            Some(age) => Cell {
                text: format!("{} old", Elapsed(age)),
                tone: Tone::Notable,
            },
            None => {
                let health = model.health(gpu);
                Cell {
                    text: health.word,
                    tone: Tone::Severity(health.severity),
                }
            }
        },
    }
}

pub(crate) fn short_name(name: &str) -> &str {
    name.strip_prefix("NVIDIA ").unwrap_or(name)
}

/// Used and total memory: `61.2/79.6G`; of the host, where the GPU shares it.
fn memory(gpu: &Gpu) -> String {
    // From here on one decimal place would make the amount wider than its column.
    const WITHOUT_DECIMALS: f64 = 99.95;
    let gib = |bytes: Bytes| match bytes.gib() {
        gib if gib < WITHOUT_DECIMALS => format!("{gib:.1}"),
        gib => format!("{gib:.0}"),
    };
    let own = gpu
        .load
        .memory_used
        .and_then(|used| Ok((used, gpu.load.memory_total?)));
    let shared = gpu.shared_memory.map(|shared| (shared.used, shared.total));
    match own.or_else(|reason| shared.ok_or(reason)) {
        Ok((used, total)) => format!("{}/{}G", gib(used), gib(total)),
        Err(reason) => reason.to_string(),
    }
}

/// Power drawn, and its limit: `512/700W`.
fn power(gpu: &Gpu) -> String {
    match (gpu.load.power, gpu.health.power_limit) {
        (Ok(power), Ok(limit)) => format!("{:.0}/{limit}", power.value()),
        (power, _) => word(power),
    }
}

/// A temperature stands out when at most this many degrees remain until the GPU slows down.
const HOT_MARGIN: i32 = 10;

fn heat(gpu: &Gpu) -> Tone {
    match (gpu.load.temperature, gpu.facts.slowdown_temperature) {
        (Ok(now), Ok(limit)) if now >= limit => Tone::Alarm,
        (Ok(now), Ok(limit)) if now.0 + HOT_MARGIN >= limit.0 => Tone::Notable,
        _ => Tone::Reading,
    }
}
