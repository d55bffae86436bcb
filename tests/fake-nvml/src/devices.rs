//! What a device is and what it is doing: names, memory, load, heat, power, clocks.

use std::ffi::{c_char, c_int};

use crate::{
    abi::{
        Answer, Code, LegacyPciInfo, Margin, MemoryV1, MemoryV2, Out, PciInfo, PciInfoExt, Rates, TemperatureV1,
        version,
    },
    gate::{At, device_calls},
    gpu::{Bar1, Clocks, Gpu, Memory},
    scene::{percent, shifted},
    system::{bus_numbers, number},
};

/// The driver's sample period of encoder and decoder, in microseconds.
const SAMPLE_US: u32 = 167_000;

device_calls! {
    nvmlDeviceGetIndex(at, index: Out<u32>) {
        let place = at.place();
        let here = place.part.or_else(|| at.scene.index(place.gpu)).ok_or(Code::GPU_IS_LOST)?;
        index.put(number(here))
    }
    nvmlDeviceGetName(at, text: Out<c_char>, length: u32) {
        let name = &at.board().name;
        match at.part() {
            Some(part) => text.text(length, &format!("{name} MIG {}", part.profile)),
            None => text.text(length, name),
        }
    }
    nvmlDeviceGetUUID(at, text: Out<c_char>, length: u32) {
        text.text(length, at.part().map_or(&at.board().uuid, |it| &it.uuid))
    }
    nvmlDeviceGetSerial(at, text: Out<c_char>, length: u32) {
        text.text(length, at.gpu()?.serial.as_ref().ok_or(Code::NOT_SUPPORTED)?)
    }
    nvmlDeviceGetVbiosVersion(at, text: Out<c_char>, length: u32) {
        text.text(length, at.gpu()?.vbios.as_ref().ok_or(Code::NOT_SUPPORTED)?)
    }
    nvmlDeviceGetMinorNumber(at, minor: Out<u32>) {
        let place = at.place().gpu;
        minor.put(at.gpu()?.minor.unwrap_or(number(place)))
    }
    nvmlDeviceGetBrand(at, brand: Out<u32>) { brand.put(at.gpu()?.brand) }
    nvmlDeviceGetArchitecture(at, architecture: Out<u32>) { architecture.put(at.board().architecture) }
    nvmlDeviceGetNumGpuCores(at, cores: Out<u32>) { cores.put_some(at.gpu()?.cores) }
    nvmlDeviceGetCudaComputeCapability(at, major: Out<c_int>, minor: Out<c_int>) {
        let capability = at.board().compute_capability;
        major.put(capability.0)?;
        minor.put(capability.1)
    }
    nvmlDeviceGetPersistenceMode(at, on: Out<u32>) { on.put_some(at.gpu()?.persistence.map(u32::from)) }
    nvmlDeviceGetComputeMode(at, mode: Out<u32>) { mode.put_some(at.gpu()?.compute_mode) }
    nvmlDeviceGetDisplayActive(at, on: Out<u32>) { on.put_some(at.gpu()?.display.map(u32::from)) }
    nvmlDeviceGetDisplayMode(at, on: Out<u32>) {
        let gpu = at.gpu()?;
        on.put_some(gpu.display_attached.or(gpu.display).map(u32::from))
    }

    nvmlDeviceGetPciInfo(at, info: Out<LegacyPciInfo>) { info.put(pci(at.gpu()?).legacy) }
    nvmlDeviceGetPciInfo_v2(at, info: Out<LegacyPciInfo>) { info.put(pci(at.gpu()?).legacy) }
    nvmlDeviceGetPciInfo_v3(at, info: Out<PciInfo>) { info.put(pci(at.gpu()?)) }
    nvmlDeviceGetPciInfoExt(at, info: Out<PciInfoExt>) {
        let version = expect_version(info.cast(), version::<PciInfoExt>(1))?;
        let PciInfo { legacy, bus_id } = pci(at.gpu()?);
        let LegacyPciInfo { domain, bus, device, device_id, subsystem_id, .. } = legacy;
        let sub_class = at.gpu()?.pci_subclass.unwrap_or(2);
        info.put(PciInfoExt { version, domain, bus, device, device_id, subsystem_id, base_class: 3, sub_class, bus_id })
    }

    nvmlDeviceGetMemoryInfo(at, memory: Out<MemoryV1>) {
        let (of, used) = memory_of(at)?;
        // The first version knows no reserve: what the driver keeps is used.
        let used = used + of.reserved;
        memory.put(MemoryV1 { total: of.total, free: of.total.saturating_sub(used), used })
    }
    nvmlDeviceGetMemoryInfo_v2(at, memory: Out<MemoryV2>) {
        let (of, used) = memory_of(at)?;
        if !of.v2 {
            return Err(Code::NOT_SUPPORTED);
        }
        let version = expect_version(memory.cast(), version::<MemoryV2>(2))?;
        let free = of.total.saturating_sub(of.reserved).saturating_sub(used);
        memory.put(MemoryV2 { version, total: of.total, reserved: of.reserved, free, used })
    }
    nvmlDeviceGetBAR1MemoryInfo(at, memory: Out<MemoryV1>) {
        let Bar1 { total, used } = at.gpu()?.bar1.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        memory.put(MemoryV1 { total: *total, free: total.saturating_sub(*used), used: *used })
    }

    nvmlDeviceGetUtilizationRates(at, rates: Out<Rates>) {
        let busy = &at.gpu()?.utilization;
        let gpu = at.share(busy.gpu, 1).ok_or(Code::NOT_SUPPORTED)?;
        let memory = at.share(busy.memory, 2).ok_or(Code::NOT_SUPPORTED)?;
        rates.put(Rates { gpu, memory })
    }
    nvmlDeviceGetEncoderUtilization(at, share: Out<u32>, period: Out<u32>) {
        engine(at.share(at.gpu()?.utilization.encoder, 3), share, period)
    }
    nvmlDeviceGetDecoderUtilization(at, share: Out<u32>, period: Out<u32>) {
        engine(at.share(at.gpu()?.utilization.decoder, 4), share, period)
    }
    nvmlDeviceGetJpgUtilization(at, share: Out<u32>, period: Out<u32>) {
        engine(at.share(at.gpu()?.utilization.jpeg, 5), share, period)
    }
    nvmlDeviceGetOfaUtilization(at, share: Out<u32>, period: Out<u32>) {
        engine(at.share(at.gpu()?.utilization.ofa, 6), share, period)
    }

    nvmlDeviceGetTemperature(at, sensor: u32, celsius: Out<u32>) {
        if sensor != 0 {
            return Err(Code::INVALID_ARGUMENT);
        }
        celsius.put_some(temperature(at)?)
    }
    nvmlDeviceGetTemperatureV(at, reading: Out<TemperatureV1>) {
        let version = expect_version(reading.cast(), version::<TemperatureV1>(1))?;
        let celsius = temperature(at)?.ok_or(Code::NOT_SUPPORTED)?;
        reading.put(TemperatureV1 { version, sensor: 0, celsius: celsius.cast_signed() })
    }
    nvmlDeviceGetMarginTemperature(at, margin: Out<Margin>) {
        let version = expect_version(margin.cast(), version::<Margin>(1))?;
        let highest = at.gpu()?.temperature.gpu_max.ok_or(Code::NOT_SUPPORTED)?;
        let now = temperature(at)?.ok_or(Code::NOT_SUPPORTED)?;
        margin.put(Margin { version, celsius: highest.cast_signed() - now.cast_signed() })
    }
    nvmlDeviceGetTemperatureThreshold(at, threshold: u32, celsius: Out<u32>) {
        let of = &at.gpu()?.temperature;
        celsius.put_some(match threshold {
            0 => of.shutdown,
            1 => of.slowdown,
            2 => of.memory_max,
            3 => of.gpu_max,
            4..=7 => None,
            _ => return Err(Code::INVALID_ARGUMENT),
        })
    }

    nvmlDeviceGetPowerManagementMode(at, on: Out<u32>) { on.put_some(at.gpu()?.power.limit.map(|_| 1)) }
    nvmlDeviceGetPowerUsage(at, milliwatts: Out<u32>) { milliwatts.put_some(power(at)?) }
    nvmlDeviceGetPowerManagementLimit(at, milliwatts: Out<u32>) { milliwatts.put_some(at.gpu()?.power.limit) }
    nvmlDeviceGetEnforcedPowerLimit(at, milliwatts: Out<u32>) { milliwatts.put_some(at.gpu()?.power.limit) }
    nvmlDeviceGetPowerManagementDefaultLimit(at, milliwatts: Out<u32>) {
        milliwatts.put_some(at.gpu()?.power.default_limit)
    }
    nvmlDeviceGetPowerManagementLimitConstraints(at, least: Out<u32>, most: Out<u32>) {
        let of = &at.gpu()?.power;
        least.put_some(of.min_limit)?;
        most.put_some(of.max_limit)
    }
    nvmlDeviceGetTotalEnergyConsumption(at, millijoules: Out<u64>) { millijoules.put_some(energy(at)?) }

    nvmlDeviceGetClockInfo(at, domain: u32, mhz: Out<u32>) { mhz.put_some(clock(at, domain)?) }
    nvmlDeviceGetMaxClockInfo(at, domain: u32, mhz: Out<u32>) { mhz.put_some(of_domain(&at.gpu()?.max_clocks, domain)?) }
    nvmlDeviceGetPerformanceState(at, state: Out<u32>) { state.put_some(at.gpu()?.pstate) }
    nvmlDeviceGetPowerState(at, state: Out<u32>) { state.put_some(at.gpu()?.pstate) }

    nvmlDeviceGetNumFans(at, count: Out<u32>) { count.put(number(at.gpu()?.fans.len())) }
    nvmlDeviceGetFanSpeed(at, percent: Out<u32>) { percent.put_some(at.gpu()?.fans.first().copied()) }
    nvmlDeviceGetFanSpeed_v2(at, fan: u32, percent: Out<u32>) {
        let fans = &at.gpu()?.fans;
        if fans.is_empty() {
            return Err(Code::NOT_SUPPORTED);
        }
        percent.put(*fans.get(fan as usize).ok_or(Code::INVALID_ARGUMENT)?)
    }
}

/// What the device has, and what is used of it besides the reserve.
fn memory_of(at: &At<'_>) -> Result<(Memory, u64), Code> {
    if at.board().no_memory_info {
        return Err(Code::NOT_SUPPORTED);
    }
    let (of, unaccounted) = if let Some(part) = at.part() {
        (&part.memory, part.memory.unaccounted)
    } else {
        let parts = at.board().parts().iter().map(|it| it.memory.unaccounted);
        (&at.board().memory, at.board().memory.unaccounted + parts.sum::<u64>())
    };
    let claimed: u64 = at.sights().iter().filter_map(|it| it.bytes).sum();
    let used = (unaccounted + claimed).min(of.total.saturating_sub(of.reserved));
    Ok((of.clone(), if at.garbage { of.total * 2 } else { used }))
}

fn engine(value: Option<u32>, share: Out<u32>, period: Out<u32>) -> Answer {
    share.put_some(value)?;
    period.put(SAMPLE_US)
}

pub fn temperature(at: &At<'_>) -> Result<Option<u32>, Code> {
    let celsius = at.gpu()?.temperature.gpu;
    Ok(celsius.map(|it| percent(it, at.wave(7) * 1.5)))
}

/// Milliwatts drawn now.
pub fn power(at: &At<'_>) -> Result<Option<u32>, Code> {
    let usage = at.gpu()?.power.usage;
    if at.garbage {
        return Ok(Some(u32::MAX - 1));
    }
    Ok(usage.map(|it| wandering(it, at.wave(8) * f64::from(it) * 0.05)))
}

/// Millijoules used up to now.
pub fn energy(at: &At<'_>) -> Result<Option<u64>, Code> {
    let of = &at.gpu()?.power;
    let since = at.scene.elapsed() * f64::from(of.usage.unwrap_or(0));
    Ok(of.energy.map(|it| shifted(it, since)))
}

/// MHz of a clock now: 0 graphics, 1 SM, 2 memory, 3 video.
pub fn clock(at: &At<'_>, domain: u32) -> Result<Option<u32>, Code> {
    let mhz = of_domain(&at.gpu()?.clocks, domain)?;
    // Clocks go by 15 MHz, and only down from where they are.
    let by = if domain == 2 { 0.0 } else { -15.0 * (2.0 + 2.0 * at.wave(9)).round() };
    Ok(if at.board().jitter { mhz.map(|it| wandering(it, by)) } else { mhz })
}

pub fn of_domain(clocks: &Clocks, domain: u32) -> Result<Option<u32>, Code> {
    match domain {
        0 => Ok(clocks.graphics),
        1 => Ok(clocks.sm),
        2 => Ok(clocks.memory),
        3 => Ok(clocks.video),
        _ => Err(Code::INVALID_ARGUMENT),
    }
}

/// A figure that changed, and still fits.
pub fn wandering(value: u32, by: f64) -> u32 {
    u32::try_from(shifted(value.into(), by)).unwrap_or(u32::MAX)
}

/// The version that the caller wrote into his struct, if it is one of ours.
pub fn expect_version(found: Out<u32>, version: u32) -> Result<u32, Code> {
    let found = found.get()?;
    if found == version { Ok(found) } else { Err(Code::ARGUMENT_VERSION_MISMATCH) }
}

fn pci(gpu: &Gpu) -> PciInfo {
    let (domain, bus, device) = bus_numbers(&gpu.pci).unwrap_or_default();
    PciInfo {
        legacy: LegacyPciInfo {
            bus_id: padded(&format!("{domain:04X}:{bus:02X}:{device:02X}.0")),
            domain,
            bus,
            device,
            device_id: gpu.pci_device_id,
            subsystem_id: gpu.pci_subsystem_id.unwrap_or(0x16C1_10DE),
        },
        bus_id: padded(&gpu.pci),
    }
}

fn padded<const LENGTH: usize>(text: &str) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    for (to, from) in bytes.iter_mut().take(LENGTH - 1).zip(text.bytes()) {
        *to = from;
    }
    bytes
}
