//! Computes the detail of a simulated GPU: fixed values of an H100 board, and activity that follows
//! the GPU's load.

use super::scene::{FIRST_RANK, GPUS, percent, rounded};
use crate::agent::GpuReadings;
use crate::base::units::{Bytes, Celsius, Hertz, Moment, Percent, Watts};
use crate::protocol::snapshot::{EccCounts, GpuDetail, Missing, Route};

pub(super) fn with_detail(mut gpu: GpuReadings) -> GpuReadings {
    let (Ok(sm), Ok(temperature), Ok(clock)) =
        (gpu.load.sm, gpu.load.temperature, gpu.load.sm_clock)
    else {
        return gpu;
    };
    let (index, sm) = (gpu.facts.index, f64::from(sm.value()));
    let share = |factor: f64| Ok(Percent::new(percent((sm * factor).round())));
    let mib = |mib: f64| Ok(Bytes::from_mib(u64::from(rounded(mib))));
    // The ranks of the distributed job communicate over NVLink.
    let uses_nvlink = index >= FIRST_RANK;
    let nvlink = mib(if uses_nvlink { sm * 310.0 } else { 0.0 });
    let routes = (0..GPUS).filter(|to| *to != index).map(|to| Route {
        to,
        level: if numa_node(to) == numa_node(index) {
            40
        } else {
            50
        },
        nvlink: Some(true),
    });
    let draw = gpu.load.power.map(milliwatts);
    let limit = gpu.health.power_limit.map(milliwatts);
    let detail = GpuDetail {
        power_draw: draw,
        power_average: draw,
        power_instant: draw,
        power_limit: limit,
        power_limit_enforced: limit,
        encoder: gpu.health.encoder,
        decoder: gpu.health.decoder,
        temperature_margin: Ok(Celsius(87 - temperature.0)),
        memory_temperature: Ok(Celsius(temperature.0 + 6)),
        graphics_clock: Ok(clock),
        pcie_sent: mib(sm * 3.0),
        pcie_received: mib(sm * 9.0),
        nvlink_sent: nvlink,
        nvlink_received: nvlink,
        sm_active: share(0.88),
        sm_occupancy: share(0.41),
        tensor_active: share(0.62),
        dram_active: share(0.45),
        routes: Ok(routes.collect()),
        ..fixed_detail(index, gpu.load.at)
    };
    gpu.detail = Some(Box::new(detail));
    gpu
}

/// Returns the values that do not change.
fn fixed_detail(index: u32, at: Moment) -> GpuDetail {
    let clean = || EccCounts {
        dram: Ok(0),
        sram: Ok(0),
        total: Ok(0),
        ..EccCounts::missing(Missing::Unsupported)
    };
    let limit = |watts: u32| Ok(watts * 1000);
    GpuDetail {
        serial: Ok(format!("16500000000{index:02}").into()),
        pcie_generation: Ok(5),
        pcie_generation_max: Ok(5),
        pcie_generation_gpu_max: Ok(5),
        pcie_width: Ok(16),
        pcie_width_max: Ok(16),
        display_attached: Ok(false),
        display_active: Ok(false),
        persistence: Ok(true),
        power_management: Ok(true),
        vbios: Ok("96.00.A5.00.01".into()),
        compute_mode: Ok(0),
        compute_capability: Ok("9.0".into()),
        ecc: Ok(true),
        ecc_pending: Ok(true),
        remapped_correctable: Ok(0),
        remapped_uncorrectable: Ok(0),
        power_limit_default: limit(700),
        power_limit_min: limit(200),
        power_limit_max: limit(700),
        video_clock: Ok(Hertz::from_mhz(1545)),
        graphics_clock_max: Ok(Hertz::from_mhz(1980)),
        sm_clock_max: Ok(Hertz::from_mhz(1980)),
        memory_clock_max: Ok(Hertz::from_mhz(2619)),
        gsp: Ok(true),
        addressing: Ok(0),
        bar1_used: Ok(Bytes::from_mib(4)),
        bar1_total: Ok(Bytes::from_gib(128)),
        pcie_replays: Ok(0),
        nvlinks: Ok(18),
        nvlinks_up: Ok(18),
        nvlink_speed: Ok(Bytes(26_562_000_000)),
        cpus: Ok(if numa_node(index) == 0 {
            "0-23"
        } else {
            "24-47"
        }
        .into()),
        numa_nodes: Ok(numa_node(index).to_string().into()),
        ..GpuDetail::missing(at, clean(), clean(), clean(), clean(), Missing::Unsupported)
    }
}

/// Returns a power in NVML's unit.
fn milliwatts(power: Watts) -> u32 {
    rounded(f64::from(power.value()) * 1000.0)
}

/// Returns the NUMA node of a GPU. The simulated host has two processors, each with 24 cores and
/// four GPUs.
fn numa_node(index: u32) -> u32 {
    index / 4
}
