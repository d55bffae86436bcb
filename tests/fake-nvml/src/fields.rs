//! Field values (many numbers in one call), and samples.

use crate::{
    abi::{Code, FieldValue, NONE, Out, Sample},
    calls::{Device, device_calls},
    devices::{clock, energy, power},
    health::ecc_counts,
    links::{link_is_up, nvlink, pcie},
    machine::plus_u64,
};

/// `nvmlValueType_t`.
const UNSIGNED: u32 = 1;
const LONG: u32 = 3;
const SIGNED: u32 = 5;

device_calls! {
    nvmlDeviceGetFieldValues(device, count: i32, values: Out<FieldValue>) {
        let time_us = device.machine.now_us().cast_signed();
        for index in 0..usize::try_from(count).or(Err(Code::INVALID_ARGUMENT))? {
            let asked = values.offset(index).read()?;
            let (kind, answer, value) = match field(device, asked.field, asked.scope) {
                Ok((kind, value)) => (kind, 0, value),
                Err(code) => (0, code.0, 0),
            };
            values.offset(index).write(FieldValue { time_us, latency_us: 1, kind, answer, value, ..asked })?;
        }
        Ok(())
    }

    nvmlDeviceGetSamples(device, what: u32, last_seen_us: u64, kind: Out<u32>, count: Out<u32>, samples: Out<Sample>) {
        let value = match what {
            0 => power(device)?,
            1 => device.utilization(device.gpu()?.utilization.gpu, 1),
            2 => device.utilization(device.gpu()?.utilization.memory, 2),
            3 => device.utilization(device.gpu()?.utilization.encoder, 3),
            4 => device.utilization(device.gpu()?.utilization.decoder, 4),
            5 => clock(device, 1)?,
            6 => clock(device, 2)?,
            _ => None,
        };
        let value = u64::from(value.ok_or(Code::NOT_SUPPORTED)?);
        let now = device.machine.now_us();
        kind.write(UNSIGNED)?;
        // The driver keeps some 100 samples, one per 20 ms.
        let fresh = (now.saturating_sub(last_seen_us) / 20_000).min(100);
        if fresh == 0 {
            return Err(Code::NOT_FOUND);
        }
        let room = count.read()?;
        if samples.is_null() {
            return count.write(100);
        }
        let written = fresh.min(room.into());
        for index in 0..written {
            let time_us = now - (written - 1 - index) * 20_000;
            samples.offset(usize::try_from(index).unwrap_or(0)).write(Sample { time_us, value })?;
        }
        count.write(u32::try_from(written).unwrap_or(room))
    }
}

/// One field's type and value. The numbers are nvml.h's `NVML_FI_DEV_…`.
fn field(device: &Device<'_>, field: u32, scope: u32) -> Result<(u32, u64), Code> {
    let gpu = device.gpu()?;
    let unsigned =
        |value: Option<u32>| Ok((UNSIGNED, u64::from(value.ok_or(Code::NOT_SUPPORTED)?)));
    let flag = |value: Option<bool>| unsigned(value.map(u32::from));
    let long = |value: Option<u64>| Ok((LONG, value.ok_or(Code::NOT_SUPPORTED)?));
    // The difference of the highest operating temperature and a threshold: never above 0.
    let margin = |threshold: Option<u32>| {
        let (threshold, highest) = threshold
            .zip(gpu.temperature.gpu_max)
            .ok_or(Code::NOT_SUPPORTED)?;
        let margin = (highest.cast_signed() - threshold.cast_signed()).min(0);
        Ok((SIGNED, u64::from(margin.cast_unsigned())))
    };
    let rows = gpu.remapped_rows.as_ref();
    let pages = gpu.retired_pages.as_ref();
    let limit = &gpu.power;
    // Driver 575 added three of the throttle counters, with the numbers 251 to 253. Driver 580.82
    // gave them the numbers 269 to
    // 271. From 570 on, other drivers use 251 to 253 for power smoothing; 251 says whether it is
    //   on.
    let mut version = device
        .machine
        .world
        .driver
        .split('.')
        .map(|number| number.parse::<u32>().unwrap_or(0));
    let version = (version.next().unwrap_or(0), version.next().unwrap_or(0));
    let field = match (field, version) {
        (251..=253, (575.., _)) if version < (580, 82) => field,
        (269..=271, _) if version >= (580, 82) => field - 18,
        (251..=253, (570.., _)) => return unsigned(Some(u32::from(field == 251))),
        (251..=253 | 269..=271, _) => return Err(Code::INVALID_ARGUMENT),
        (field, _) => field,
    };
    if let Some(value) = gpu.fields.get(&field) {
        return long(Some(*value));
    }
    // Scope 1 means the module of GPU and CPU.
    if let (185..=190 | 192, 1) = (field, scope) {
        let index = [185, 186, 187, 188, 189, 190, 192]
            .iter()
            .position(|module_field| *module_field == field);
        return unsigned(
            gpu.module_power
                .zip(index)
                .map(|(power, index)| power[index]),
        );
    }
    match field {
        1 => flag(gpu.ecc.as_ref().map(|ecc| ecc.enabled)),
        2 => flag(gpu.ecc.as_ref().map(|ecc| ecc.pending)),
        3 => ecc_counts(device, 0)
            .and_then(|counts| long(Some(counts.dram_corrected + counts.sram_corrected))),
        4 => ecc_counts(device, 0)
            .and_then(|counts| long(Some(counts.dram_uncorrected + counts.sram_uncorrected))),
        5 => ecc_counts(device, 1)
            .and_then(|counts| long(Some(counts.dram_corrected + counts.sram_corrected))),
        6 => ecc_counts(device, 1)
            .and_then(|counts| long(Some(counts.dram_uncorrected + counts.sram_uncorrected))),
        29 => unsigned(pages.map(|pages| pages.single_bit)),
        30 => unsigned(pages.map(|pages| pages.double_bit)),
        31 => flag(pages.map(|pages| pages.pending)),
        74 | 76 | 251..=253 => long(gpu.throttle_ns.get(&field).copied()),
        82 => unsigned(gpu.temperature.memory),
        83 | 191 => long(energy(device)?),
        90 => nvlink(device).and_then(|nvlink| unsigned(Some(nvlink.speed))),
        91 => nvlink(device).and_then(|nvlink| unsigned(Some(nvlink.links))),
        94 => pcie(device).and_then(|pcie| unsigned(pcie.replays)),
        138 | 140 => long(Some(transferred(device, scope, false)?)),
        139 | 141 => long(Some(transferred(device, scope, true)?)),
        142 => unsigned(rows.map(|rows| rows.correctable)),
        143 => unsigned(rows.map(|rows| rows.uncorrectable)),
        144 => flag(rows.map(|rows| rows.pending)),
        145 => flag(rows.map(|rows| rows.failed)),
        164 => {
            let up = link_is_up(device, scope)?;
            unsigned(Some(if up && !nvlink(device)?.asleep {
                nvlink(device)?.speed
            } else {
                0
            }))
        }
        165 => {
            let up = if nvlink(device)?.asleep { 2 } else { 1 };
            unsigned(Some(if link_is_up(device, scope)? { up } else { 0 }))
        }
        166 => nvlink(device).and_then(|nvlink| unsigned(Some(nvlink.version))),
        185 if gpu.power_without_average => Err(Code::NOT_SUPPORTED),
        185 => unsigned(power(device)?),
        186 => unsigned(gpu.power_instant.or(power(device)?)),
        187 => unsigned(limit.min_limit),
        188 => unsigned(limit.max_limit),
        189 => unsigned(limit.default_limit),
        190 | 192 => unsigned(limit.limit),
        193 => margin(gpu.temperature.shutdown),
        194 => margin(gpu.temperature.slowdown),
        195 => margin(gpu.temperature.memory_max.and(gpu.temperature.gpu_max)),
        196 => margin(gpu.temperature.gpu_max),
        230 => unsigned(gpu.recovery_action),
        _ => Err(Code::NOT_SUPPORTED),
    }
}

/// KiB transferred over one link, or over all links.
fn transferred(device: &Device<'_>, link: u32, received: bool) -> Result<u64, Code> {
    let nvlink = nvlink(device)?;
    #[expect(clippy::cast_precision_loss, reason = "a rate has no 53 bits")]
    let since = device.machine.elapsed() * nvlink.rate as f64;
    let all = plus_u64(if received { nvlink.rx } else { nvlink.tx }, since);
    if link == NONE {
        return Ok(all);
    }
    let up = nvlink.links.saturating_sub(nvlink.down);
    Ok(if link_is_up(device, link)? {
        all / u64::from(up)
    } else {
        0
    })
}
