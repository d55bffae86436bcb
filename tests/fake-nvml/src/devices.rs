//! Names, memory, utilization, temperature, power and clocks of a device.

use std::ffi::{c_char, c_int};

use crate::{
    abi::{
        Answer, Code, LegacyPciInfo, Margin, MemoryV1, MemoryV2, Out, PciInfo, PciInfoExt, Rates,
        TemperatureV1, version,
    },
    calls::{Device, device_calls},
    gpu::{Bar1, Clocks, Gpu, Memory},
    machine::{percent, plus_u32, plus_u64},
    system::{bus_numbers, number},
};

/// The driver's sample period of encoder and decoder, in microseconds.
const SAMPLE_US: u32 = 167_000;

device_calls! {
    nvmlDeviceGetIndex(device, index: Out<u32>) {
        let position = device.position();
        let index_here = position.instance.or_else(|| device.machine.index(position.gpu)).ok_or(Code::GPU_IS_LOST)?;
        index.write(number(index_here))
    }
    nvmlDeviceGetName(device, text: Out<c_char>, length: u32) {
        let name = &device.physical_gpu().name;
        match device.instance() {
            Some(part) => text.text(length, &format!("{name} MIG {}", part.profile)),
            None => text.text(length, name),
        }
    }
    nvmlDeviceGetUUID(device, text: Out<c_char>, length: u32) {
        text.text(length, device.instance().map_or(&device.physical_gpu().uuid, |instance| &instance.uuid))
    }
    nvmlDeviceGetSerial(device, text: Out<c_char>, length: u32) {
        text.text(length, device.gpu()?.serial.as_ref().ok_or(Code::NOT_SUPPORTED)?)
    }
    nvmlDeviceGetVbiosVersion(device, text: Out<c_char>, length: u32) {
        text.text(length, device.gpu()?.vbios.as_ref().ok_or(Code::NOT_SUPPORTED)?)
    }
    nvmlDeviceGetMinorNumber(device, minor: Out<u32>) {
        let place = device.position().gpu;
        minor.write(device.gpu()?.minor.unwrap_or(number(place)))
    }
    nvmlDeviceGetBrand(device, brand: Out<u32>) { brand.write(device.gpu()?.brand) }
    nvmlDeviceGetArchitecture(device, architecture: Out<u32>) { architecture.write(device.physical_gpu().architecture) }
    nvmlDeviceGetNumGpuCores(device, cores: Out<u32>) { cores.write_some(device.gpu()?.cores) }
    nvmlDeviceGetCudaComputeCapability(device, major: Out<c_int>, minor: Out<c_int>) {
        let capability = device.physical_gpu().compute_capability;
        major.write(capability.0)?;
        minor.write(capability.1)
    }
    nvmlDeviceGetPersistenceMode(device, on: Out<u32>) { on.write_some(device.gpu()?.persistence.map(u32::from)) }
    nvmlDeviceGetComputeMode(device, mode: Out<u32>) { mode.write_some(device.gpu()?.compute_mode) }
    nvmlDeviceGetDisplayActive(device, on: Out<u32>) { on.write_some(device.gpu()?.display.map(u32::from)) }
    nvmlDeviceGetDisplayMode(device, on: Out<u32>) {
        let gpu = device.gpu()?;
        on.write_some(gpu.display_attached.or(gpu.display).map(u32::from))
    }

    nvmlDeviceGetPciInfo(device, info: Out<LegacyPciInfo>) { info.write(pci(device.gpu()?).legacy) }
    nvmlDeviceGetPciInfo_v2(device, info: Out<LegacyPciInfo>) { info.write(pci(device.gpu()?).legacy) }
    nvmlDeviceGetPciInfo_v3(device, info: Out<PciInfo>) { info.write(pci(device.gpu()?)) }
    nvmlDeviceGetPciInfoExt(device, info: Out<PciInfoExt>) {
        let version = expect_version(info.cast(), version::<PciInfoExt>(1))?;
        let PciInfo { legacy, bus_id } = pci(device.gpu()?);
        let sub_class = device.gpu()?.pci_subclass.unwrap_or(2);
        let LegacyPciInfo { domain, bus, device, device_id, subsystem_id, .. } = legacy;
        info.write(PciInfoExt { version, domain, bus, device, device_id, subsystem_id, base_class: 3, sub_class, bus_id })
    }

    nvmlDeviceGetMemoryInfo(device, memory: Out<MemoryV1>) {
        let (described, used) = memory_of(device)?;
        // The first version has no reserve: reserved memory counts as used.
        let used = used + described.reserved;
        memory.write(MemoryV1 { total: described.total, free: described.total.saturating_sub(used), used })
    }
    nvmlDeviceGetMemoryInfo_v2(device, memory: Out<MemoryV2>) {
        let (described, used) = memory_of(device)?;
        if !described.v2 {
            return Err(Code::NOT_SUPPORTED);
        }
        let version = expect_version(memory.cast(), version::<MemoryV2>(2))?;
        let free = described.total.saturating_sub(described.reserved).saturating_sub(used);
        memory.write(MemoryV2 { version, total: described.total, reserved: described.reserved, free, used })
    }
    nvmlDeviceGetBAR1MemoryInfo(device, memory: Out<MemoryV1>) {
        let Bar1 { total, used } = device.gpu()?.bar1.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        memory.write(MemoryV1 { total: *total, free: total.saturating_sub(*used), used: *used })
    }

    nvmlDeviceGetUtilizationRates(device, rates: Out<Rates>) {
        let busy = &device.gpu()?.utilization;
        let gpu = device.utilization(busy.gpu, 1).ok_or(Code::NOT_SUPPORTED)?;
        let memory = device.utilization(busy.memory, 2).ok_or(Code::NOT_SUPPORTED)?;
        rates.write(Rates { gpu, memory })
    }
    nvmlDeviceGetEncoderUtilization(device, share: Out<u32>, period: Out<u32>) {
        engine(device.utilization(device.gpu()?.utilization.encoder, 3), share, period)
    }
    nvmlDeviceGetDecoderUtilization(device, share: Out<u32>, period: Out<u32>) {
        engine(device.utilization(device.gpu()?.utilization.decoder, 4), share, period)
    }
    nvmlDeviceGetJpgUtilization(device, share: Out<u32>, period: Out<u32>) {
        engine(device.utilization(device.gpu()?.utilization.jpeg, 5), share, period)
    }
    nvmlDeviceGetOfaUtilization(device, share: Out<u32>, period: Out<u32>) {
        engine(device.utilization(device.gpu()?.utilization.ofa, 6), share, period)
    }

    nvmlDeviceGetTemperature(device, sensor: u32, celsius: Out<u32>) {
        if sensor != 0 {
            return Err(Code::INVALID_ARGUMENT);
        }
        celsius.write_some(temperature(device)?)
    }
    nvmlDeviceGetTemperatureV(device, reading: Out<TemperatureV1>) {
        let version = expect_version(reading.cast(), version::<TemperatureV1>(1))?;
        let celsius = temperature(device)?.ok_or(Code::NOT_SUPPORTED)?;
        reading.write(TemperatureV1 { version, sensor: 0, celsius: celsius.cast_signed() })
    }
    nvmlDeviceGetMarginTemperature(device, margin: Out<Margin>) {
        let version = expect_version(margin.cast(), version::<Margin>(1))?;
        let highest = device.gpu()?.temperature.gpu_max.ok_or(Code::NOT_SUPPORTED)?;
        let now = temperature(device)?.ok_or(Code::NOT_SUPPORTED)?;
        margin.write(Margin { version, celsius: highest.cast_signed() - now.cast_signed() })
    }
    nvmlDeviceGetTemperatureThreshold(device, threshold: u32, celsius: Out<u32>) {
        let thresholds = &device.gpu()?.temperature;
        celsius.write_some(match threshold {
            0 => thresholds.shutdown,
            1 => thresholds.slowdown,
            2 => thresholds.memory_max,
            3 => thresholds.gpu_max,
            4..=7 => None,
            _ => return Err(Code::INVALID_ARGUMENT),
        })
    }

    nvmlDeviceGetPowerManagementMode(device, on: Out<u32>) { on.write_some(device.gpu()?.power.limit.map(|_| 1)) }
    nvmlDeviceGetPowerUsage(device, milliwatts: Out<u32>) { milliwatts.write_some(power(device)?) }
    nvmlDeviceGetPowerManagementLimit(device, milliwatts: Out<u32>) { milliwatts.write_some(device.gpu()?.power.limit) }
    nvmlDeviceGetEnforcedPowerLimit(device, milliwatts: Out<u32>) { milliwatts.write_some(device.gpu()?.power.limit) }
    nvmlDeviceGetPowerManagementDefaultLimit(device, milliwatts: Out<u32>) {
        milliwatts.write_some(device.gpu()?.power.default_limit)
    }
    nvmlDeviceGetPowerManagementLimitConstraints(device, least: Out<u32>, most: Out<u32>) {
        let power = &device.gpu()?.power;
        least.write_some(power.min_limit)?;
        most.write_some(power.max_limit)
    }
    nvmlDeviceGetTotalEnergyConsumption(device, millijoules: Out<u64>) { millijoules.write_some(energy(device)?) }

    nvmlDeviceGetClockInfo(device, domain: u32, mhz: Out<u32>) { mhz.write_some(clock(device, domain)?) }
    nvmlDeviceGetMaxClockInfo(device, domain: u32, mhz: Out<u32>) { mhz.write_some(of_domain(&device.gpu()?.max_clocks, domain)?) }
    nvmlDeviceGetPerformanceState(device, state: Out<u32>) { state.write_some(device.gpu()?.pstate) }
    nvmlDeviceGetPowerState(device, state: Out<u32>) { state.write_some(device.gpu()?.pstate) }

    nvmlDeviceGetNumFans(device, count: Out<u32>) { count.write(number(device.gpu()?.fans.len())) }
    nvmlDeviceGetFanSpeed(device, percent: Out<u32>) { percent.write_some(device.gpu()?.fans.first().copied()) }
    nvmlDeviceGetFanSpeed_v2(device, fan: u32, percent: Out<u32>) {
        let fans = &device.gpu()?.fans;
        if fans.is_empty() {
            return Err(Code::NOT_SUPPORTED);
        }
        percent.write(*fans.get(fan as usize).ok_or(Code::INVALID_ARGUMENT)?)
    }
}

/// The memory of a device, and the bytes that are used without the reserve.
fn memory_of(device: &Device<'_>) -> Result<(Memory, u64), Code> {
    if device.physical_gpu().no_memory_info {
        return Err(Code::NOT_SUPPORTED);
    }
    let (described, unaccounted) = if let Some(part) = device.instance() {
        (&part.memory, part.memory.unaccounted)
    } else {
        let instances = device
            .physical_gpu()
            .instances()
            .iter()
            .map(|instance| instance.memory.unaccounted);
        (
            &device.physical_gpu().memory,
            device.physical_gpu().memory.unaccounted + instances.sum::<u64>(),
        )
    };
    let claimed: u64 = device
        .process_states()
        .iter()
        .filter_map(|process| process.bytes)
        .sum();
    let used = (unaccounted + claimed).min(described.total.saturating_sub(described.reserved));
    Ok((
        described.clone(),
        if device.garbage {
            described.total * 2
        } else {
            used
        },
    ))
}

fn engine(value: Option<u32>, share: Out<u32>, period: Out<u32>) -> Answer {
    share.write_some(value)?;
    period.write(SAMPLE_US)
}

pub fn temperature(device: &Device<'_>) -> Result<Option<u32>, Code> {
    let celsius = device.gpu()?.temperature.gpu;
    Ok(celsius.map(|celsius| percent(celsius, device.wave(7) * 1.5)))
}

/// The power in milliwatts.
pub fn power(device: &Device<'_>) -> Result<Option<u32>, Code> {
    let usage = device.gpu()?.power.usage;
    if device.garbage {
        return Ok(Some(u32::MAX - 1));
    }
    Ok(usage.map(|usage| plus_u32(usage, device.wave(8) * f64::from(usage) * 0.05)))
}

/// The energy in millijoules.
pub fn energy(device: &Device<'_>) -> Result<Option<u64>, Code> {
    let power = &device.gpu()?.power;
    let since = device.machine.elapsed() * f64::from(power.usage.unwrap_or(0));
    Ok(power.energy.map(|energy| plus_u64(energy, since)))
}

/// A clock in MHz: 0 graphics, 1 SM, 2 memory, 3 video.
pub fn clock(device: &Device<'_>, domain: u32) -> Result<Option<u32>, Code> {
    let mhz = of_domain(&device.gpu()?.clocks, domain)?;
    // Clocks change in steps of 15 MHz, and only downwards.
    let change = if domain == 2 {
        0.0
    } else {
        -15.0 * (2.0 + 2.0 * device.wave(9)).round()
    };
    Ok(if device.physical_gpu().jitter {
        mhz.map(|mhz| plus_u32(mhz, change))
    } else {
        mhz
    })
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

/// Checks the version that the caller wrote into a struct.
pub fn expect_version(found: Out<u32>, version: u32) -> Result<u32, Code> {
    let found = found.read()?;
    if found == version {
        Ok(found)
    } else {
        Err(Code::ARGUMENT_VERSION_MISMATCH)
    }
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
