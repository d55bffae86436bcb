//! Computes the load and memory of the simulated GPUs from the time since the start. Every run
//! shows the same curves.

use std::f64::consts::TAU;

use super::processes::{DemoRole, RANKS};
use crate::agent::{GpuReadings, NvmlProcess};
use crate::base::units::{Bytes, Celsius, Hertz, Moment, Percent, Watts};
use crate::protocol::snapshot::{
    AllocatorStats, DeviceAllocator, GpuFacts, GpuHealth, GpuLoad, GpuUuid, Missing, Throttle, Use,
};

pub(super) const GPUS: u32 = 8;

/// The index of the GPU whose power limit is below what its load needs.
const CAPPED: u32 = 6;

/// The total memory of a GPU, and the part that the driver reserves, in MiB.
const MEMORY_MIB: (u64, u64) = (81_559, 551);

/// The first GPU of the distributed job.
pub(super) const FIRST_RANK: u32 = GPUS - RANKS;

/// Returns the index of the GPU that a process uses; `None` for a process that uses none.
pub(super) fn gpu_of(role: DemoRole) -> Option<u32> {
    match role {
        DemoRole::Growing => Some(0),
        DemoRole::Server => Some(1),
        DemoRole::Notebook | DemoRole::Orphan => Some(2),
        DemoRole::Hidden => Some(3),
        DemoRole::Rank(rank) | DemoRole::DataWorker(rank) => Some(FIRST_RANK + rank),
        DemoRole::Launcher | DemoRole::Trainer | DemoRole::Forker => None,
    }
}

/// `None` for a role that uses no memory of a GPU.
pub(super) fn process(role: DemoRole, pid: u32, now: Moment, seconds: f64) -> Option<NvmlProcess> {
    let (mib, sm) = match role {
        DemoRole::Growing => (grown_mib(seconds), sm_of_trainer(seconds)),
        DemoRole::Rank(rank) => (
            59_904.0 - 124.0 * f64::from(rank),
            sm_of_rank(rank, seconds),
        ),
        DemoRole::Server => (21_504.0, sm_of_server(seconds)),
        DemoRole::Notebook => (6144.0, 0.0),
        DemoRole::Orphan => (11_264.0, 0.0),
        DemoRole::Hidden => (9318.0, 0.0),
        DemoRole::Launcher | DemoRole::DataWorker(_) | DemoRole::Trainer | DemoRole::Forker => {
            return None;
        }
    };
    let memory = Ok(Bytes::from_mib(u64::from(rounded(mib))));
    Some(NvmlProcess {
        pid,
        listed: now,
        usage: Use::Compute,
        memory,
        sm: Ok(Percent::new(percent(sm))),
        engines: None,
    })
}

/// The memory that PyTorch reserved, and its parts without a tensor, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reserved {
    pub(super) whole: u64,
    pub(super) cache: u64,
    pub(super) fragmented: u64,
}

/// `None` for a role without PyTorch.
pub(super) fn reserved(role: DemoRole, seconds: f64) -> Option<Reserved> {
    const MIB: u64 = 1 << 20;
    /// Memory outside of PyTorch's allocator: context, kernels and libraries.
    const BESIDE: u64 = 468 * MIB;
    let reserved = process(role, 0, Moment(0), seconds)?
        .memory
        .ok()?
        .0
        .saturating_sub(BESIDE);
    let share = |share: f64| reserved / 1000 * u64::from(rounded(share * 1000.0));
    let (cache, fragmented) = match role {
        // Memory that a training step frees stays in the cache until the next step.
        DemoRole::Growing => (
            u64::from(rounded(1536.0 - 768.0 * (seconds / 7.0).fract())) * MIB,
            share(0.03),
        ),
        DemoRole::Rank(_) => (share(0.06 + 0.12 * wave(seconds, 31.0)), share(0.04)),
        DemoRole::Server => (share(0.35), share(0.05)),
        // The memory of a cell that ran long ago is still cached.
        DemoRole::Notebook => (share(0.72), share(0.02)),
        _ => return None,
    };
    Some(Reserved {
        whole: reserved,
        cache,
        fragmented,
    })
}

/// Returns the stats of an allocator with this reserved memory.
pub(super) fn allocator(gpu: GpuUuid, reserved: Reserved) -> AllocatorStats {
    let bytes = |bytes: u64| Ok(Bytes(bytes));
    let peak = bytes(reserved.whole);
    let used = reserved.whole - reserved.cache - reserved.fragmented;
    let device = DeviceAllocator {
        device: 0,
        gpu: Some(gpu),
        allocated: bytes(used),
        allocated_peak: peak,
        reserved: peak,
        reserved_peak: peak,
        active: bytes(used),
        active_peak: peak,
        inactive_split: bytes(reserved.fragmented),
        inactive_split_peak: peak,
        requested: bytes(used / 100 * 99),
        requested_peak: peak,
        allocations: Ok(1000),
        segments: Ok(100),
        retries: Ok(0),
        ooms: Ok(0),
    };
    AllocatorStats {
        devices: vec![device],
        unreadable: None,
    }
}

/// The growth of the job that leaks: 1.5 GiB per minute.
pub(super) const LEAK_MIB_PER_SECOND: f64 = 25.6;

/// Returns the leaked memory of that job, in MiB. The curve starts again before the GPU is full.
pub(super) fn leaked_mib(seconds: f64) -> f64 {
    LEAK_MIB_PER_SECOND * seconds % 40_000.0
}

/// Returns the memory of that job, in MiB.
fn grown_mib(seconds: f64) -> f64 {
    const FIRST: f64 = 40_000.0;
    // PyTorch allocates segments of 20 MiB.
    FIRST + (leaked_mib(seconds) / 20.0).floor() * 20.0
}

pub(super) fn uuid(gpu: u32) -> GpuUuid {
    GpuUuid(format!("GPU-demo-{gpu}").into())
}

/// Returns the readings of a GPU with its living processes. The driver does not list those in
/// `hidden`.
pub(super) fn gpu(
    index: u32,
    now: Moment,
    seconds: f64,
    processes: Vec<NvmlProcess>,
    hidden: &[NvmlProcess],
) -> GpuReadings {
    let uuid = uuid(index);
    // The sum of no floats is -0, so the fold starts at 0.
    let sm = processes
        .iter()
        .filter_map(|process| process.sm.ok())
        .fold(0.0, |sum, sm| sum + sm.value());
    let sm = f64::from(sm.min(100.0));
    let used: Bytes = processes
        .iter()
        .chain(hidden)
        .filter_map(|process| process.memory.ok())
        .sum();
    let (total, reserved) = (Bytes::from_mib(MEMORY_MIB.0), Bytes::from_mib(MEMORY_MIB.1));

    let limit: f64 = if index == CAPPED { 450.0 } else { 700.0 };
    // An idle board draws 72 W, and 540 W more at full load. Each GPU differs a little.
    let wanted = 72.0 + 5.4 * sm + f64::from(index) * 3.0 + 4.0 * wave(seconds, 11.0);
    let is_capped = wanted > limit;
    let power = if is_capped {
        limit - 2.0 * wave(seconds, 5.0)
    } else {
        wanted
    };
    let clock = match () {
        () if sm < 1.0 => 345.0,
        // The further the wanted power exceeds the limit, the lower the clock.
        () if is_capped => 1980.0 * (limit / wanted).sqrt(),
        () => 1980.0 - 15.0 * wave(seconds, 23.0).round(),
    };
    GpuReadings {
        uuid,
        facts: facts(index),
        load: GpuLoad {
            at: now,
            memory_used: Ok(used),
            memory_free: Ok(total.saturating_sub(reserved).saturating_sub(used)),
            memory_reserved: Ok(reserved),
            memory_total: Ok(total),
            sm: Ok(Percent::new(percent(sm).round())),
            memory_bandwidth: Ok(Percent::new(percent(sm * 0.55).round())),
            temperature: Ok(celsius(27.0 + power / 16.0 + 1.5 * wave(seconds, 90.0))),
            power: Ok(Watts::from_milliwatts(rounded(power * 1000.0))),
            sm_clock: Ok(Hertz::from_mhz(rounded(clock))),
            throttle: Ok(if is_capped {
                vec![Throttle::PowerCap]
            } else {
                Vec::new()
            }),
        },
        health: health(now, limit, sm <= 0.0),
        shares_memory: false,
        detail: None,
        processes,
        processes_missing: None,
        trouble: None,
        failures: vec![],
    }
}

fn facts(index: u32) -> GpuFacts {
    GpuFacts {
        index,
        parent: None,
        simulated: true,
        name: Ok("Simulated H100".into()),
        bus_id: Ok(format!("00000000:{:02X}:00.0", 0x1a + 0x11 * index).into()),
        minor: Err(Missing::Unsupported),
        slowdown_temperature: Ok(Celsius(90)),
        gpu_instance: Err(Missing::Unsupported),
        compute_instance: Err(Missing::Unsupported),
    }
}

/// Returns the health of a GPU with this power limit in watts. `is_quiet`: nothing moves over PCIe.
fn health(now: Moment, limit: f64, is_quiet: bool) -> GpuHealth {
    GpuHealth {
        at: now,
        xids: Vec::new(),
        power_limit: Ok(Watts::from_milliwatts(rounded(limit * 1000.0))),
        memory_clock: Ok(Hertz::from_mhz(2619)),
        performance_state: Ok(0),
        omitted_processes: Err(Missing::Unsupported),
        omitted_memory: Err(Missing::Unsupported),
        // Server boards have no fan.
        fan: Err(Missing::Unsupported),
        mig: Ok(false),
        ecc_corrected: Ok(0),
        ecc_uncorrected: Ok(0),
        remap_pending: Ok(false),
        remap_failed: Ok(false),
        retired_pending: Err(Missing::Unsupported),
        recovery_action: Ok(0),
        pcie_generation: Ok(5),
        pcie_width: Ok(16),
        pcie_quiet: Ok(is_quiet),
        encoder: Ok(Percent::new(0.0)),
        decoder: Ok(Percent::new(0.0)),
    }
}

/// Returns a value that swings from 0 to 1 and back once in `period` seconds.
fn wave(seconds: f64, period: f64) -> f64 {
    0.5 - 0.5 * libm::cos(seconds / period * TAU)
}

/// Trains at 88 to 95 %, and evaluates for 14 s after each 150 s.
fn sm_of_trainer(seconds: f64) -> f64 {
    if is_in(seconds, 150.0, 75.0..89.0) {
        return 41.0 + 9.0 * noise(seconds, 2.0, 1);
    }
    88.0 + 3.0 * wave(seconds, 13.0) + 4.0 * noise(seconds, 3.0, 2)
}

/// Trains at 88 to 95 %, evaluates for 18 s every four minutes, and writes a checkpoint after that.
/// The ranks wait for each other, so their curves rise and fall together.
fn sm_of_rank(rank: u32, seconds: f64) -> f64 {
    let own = 1.5 * noise(seconds, 2.0, 10 + rank);
    if is_in(seconds, 240.0, 100.0..118.0) {
        return 62.0 + 6.0 * wave(seconds, 5.0) + own;
    }
    if is_in(seconds, 240.0, 118.0..124.0) {
        return 14.0 + own;
    }
    88.0 + 2.5 * wave(seconds, 17.0) + 3.0 * noise(seconds, 4.0, 3) + own
}

/// Answers single requests, and a burst of them now and then: as high and as long as chance has it.
fn sm_of_server(seconds: f64) -> f64 {
    /// Some four bursts in ten spans.
    const CALM: f64 = 0.6;
    let single = 7.0 * noise(seconds, 2.0, 4);
    let load = noise(seconds, 11.0, 5) - CALM;
    if load <= 0.0 {
        return single;
    }
    single + 18.0 + 140.0 * load + 6.0 * noise(seconds, 1.0, 6)
}

/// Whether a time is in this span of each period, all in seconds.
fn is_in(seconds: f64, period: f64, span: std::ops::Range<f64>) -> bool {
    span.contains(&(seconds % period))
}

/// Returns a value from 0 to 1 that looks like chance and is the same in every run: it goes from
/// one value to another in `span` seconds. Each `series` has values of its own.
fn noise(seconds: f64, span: f64, series: u32) -> f64 {
    let (number, share) = ((seconds / span).floor(), (seconds / span).fract());
    let value = |number: f64| {
        let mut bits = rounded(number)
            .wrapping_mul(0x9E37_79B1)
            .wrapping_add(series.wrapping_mul(0x85EB_CA77));
        bits = (bits ^ (bits >> 15)).wrapping_mul(0x2C1B_3C6D);
        bits = (bits ^ (bits >> 12)).wrapping_mul(0x297A_2D39);
        f64::from(bits ^ (bits >> 15)) / f64::from(u32::MAX)
    };
    value(number) * (1.0 - share) + value(number + 1.0) * share
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the curves stay small and above 0"
)]
pub(super) fn rounded(value: f64) -> u32 {
    value.round() as u32
}

#[expect(clippy::cast_possible_truncation, reason = "the curves stay small")]
fn celsius(value: f64) -> Celsius {
    Celsius(value.round() as i32)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a percentage needs no more digits than an f32 has"
)]
pub(super) fn percent(value: f64) -> f32 {
    value.clamp(0.0, 100.0) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings_at(index: u32, seconds: u32) -> GpuReadings {
        let seconds = f64::from(seconds);
        let roles = [
            DemoRole::Growing,
            DemoRole::Server,
            DemoRole::Notebook,
            DemoRole::Orphan,
        ];
        let roles = roles.into_iter().chain((0..RANKS).map(DemoRole::Rank));
        let roles = roles.filter(|role| gpu_of(*role) == Some(index));
        let processes = roles
            .filter_map(|role| process(role, 7, Moment(0), seconds))
            .collect();
        gpu(index, Moment(0), seconds, processes, &[])
    }

    #[test]
    fn values_stay_plausible_for_a_day() {
        for (index, seconds) in
            (0..GPUS).flat_map(|index| (0..86_400).step_by(17).map(move |seconds| (index, seconds)))
        {
            let GpuReadings { load, health, .. } = readings_at(index, seconds);
            let memory = [load.memory_used, load.memory_free, load.memory_reserved]
                .map(|part| part.expect("it is there"));
            assert_eq!(
                Ok(memory.into_iter().sum()),
                load.memory_total,
                "GPU {index} after {seconds} s"
            );
            assert!(load.power.expect("it is there") <= health.power_limit.expect("it is there"));
            assert!((20..85).contains(&load.temperature.expect("it is there").0));
        }
    }

    #[test]
    fn a_leak_of_a_gigabyte_shows_within_a_minute() {
        let growth = |from: u32, to: u32| {
            let used = |seconds| {
                readings_at(0, seconds)
                    .load
                    .memory_used
                    .expect("it is there")
            };
            used(to).saturating_sub(used(from))
        };
        assert!(growth(0, 63) > Bytes::from_gib(1));
        // The memory of the other GPUs stays the same.
        assert_eq!(
            readings_at(1, 0).load.memory_used,
            readings_at(1, 3600).load.memory_used
        );
    }

    #[test]
    fn training_is_steady_with_dips_and_the_server_has_bursts() {
        let sm = |role, from: u32| -> Vec<f32> {
            let seconds = (from..from + 900).map(f64::from);
            seconds
                .map(|seconds| {
                    let process = process(role, 7, Moment(0), seconds).expect("it uses a GPU");
                    process.sm.expect("it is there").value()
                })
                .collect()
        };
        let share = |values: &[f32], range: std::ops::RangeInclusive<f32>| {
            values.iter().filter(|sm| range.contains(sm)).count() * 100 / values.len()
        };
        for from in [0, 900, 40_000] {
            for role in [DemoRole::Growing, DemoRole::Rank(2)] {
                let sm = sm(role, from);
                assert!(
                    (85..95).contains(&share(&sm, 88.0..=95.0)),
                    "{role:?}: {sm:?}"
                );
                assert_eq!(share(&sm, 70.0..=87.9), 0, "{role:?}: {sm:?}");
            }
            let sm = sm(DemoRole::Server, from);
            assert!(share(&sm, 0.0..=7.0) >= 40, "{sm:?}");
            assert!((10..50).contains(&share(&sm, 20.0..=100.0)), "{sm:?}");
        }
        // The first minute on the screen has no dip.
        let first = &sm(DemoRole::Rank(0), 900)[..60];
        assert_eq!(share(first, 88.0..=95.0), 100, "{first:?}");
    }

    #[test]
    fn one_gpu_is_power_capped_and_one_is_idle() {
        assert_eq!(
            readings_at(CAPPED, 30).load.throttle,
            Ok(vec![Throttle::PowerCap])
        );
        assert_eq!(readings_at(2, 30).load.sm, Ok(Percent::new(0.0)));
        assert!(
            readings_at(2, 30)
                .load
                .memory_used
                .is_ok_and(|used| used > Bytes::from_gib(16))
        );
    }
}
