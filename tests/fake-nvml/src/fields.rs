//! Field values (many numbers in one call), and samples.

use crate::{
    abi::{Code, FieldValue, NONE, Out, Sample},
    devices::{clock, energy, power},
    gate::{At, device_calls},
    health::ecc_counts,
    links::{link_is_up, nvlink, pcie},
    scene::shifted,
};

/// `nvmlValueType_t`.
const UNSIGNED: u32 = 1;
const LONG: u32 = 3;
const SIGNED: u32 = 5;

device_calls! {
    nvmlDeviceGetFieldValues(at, count: i32, values: Out<FieldValue>) {
        let time_us = at.scene.now_us().cast_signed();
        for index in 0..usize::try_from(count).or(Err(Code::INVALID_ARGUMENT))? {
            let asked = values.at(index).get()?;
            let (kind, answer, value) = match field(at, asked.field, asked.scope) {
                Ok((kind, value)) => (kind, 0, value),
                Err(code) => (0, code.0, 0),
            };
            values.at(index).put(FieldValue { time_us, latency_us: 1, kind, answer, value, ..asked })?;
        }
        Ok(())
    }

    nvmlDeviceGetSamples(at, what: u32, last_seen_us: u64, kind: Out<u32>, count: Out<u32>, samples: Out<Sample>) {
        let value = match what {
            0 => power(at)?,
            1 => at.share(at.gpu()?.utilization.gpu, 1),
            2 => at.share(at.gpu()?.utilization.memory, 2),
            3 => at.share(at.gpu()?.utilization.encoder, 3),
            4 => at.share(at.gpu()?.utilization.decoder, 4),
            5 => clock(at, 1)?,
            6 => clock(at, 2)?,
            _ => None,
        };
        let value = u64::from(value.ok_or(Code::NOT_SUPPORTED)?);
        let now = at.scene.now_us();
        kind.put(UNSIGNED)?;
        // The driver keeps some 100 samples, one each 20 ms.
        let fresh = (now.saturating_sub(last_seen_us) / 20_000).min(100);
        if fresh == 0 {
            return Err(Code::NOT_FOUND);
        }
        let room = count.get()?;
        if samples.is_null() {
            return count.put(100);
        }
        let written = fresh.min(room.into());
        for index in 0..written {
            let time_us = now - (written - 1 - index) * 20_000;
            samples.at(usize::try_from(index).unwrap_or(0)).put(Sample { time_us, value })?;
        }
        count.put(u32::try_from(written).unwrap_or(room))
    }
}

/// One field's type and value. The numbers are nvml.h's `NVML_FI_DEV_…`.
fn field(at: &At<'_>, field: u32, scope: u32) -> Result<(u32, u64), Code> {
    let gpu = at.gpu()?;
    let unsigned = |value: Option<u32>| Ok((UNSIGNED, u64::from(value.ok_or(Code::NOT_SUPPORTED)?)));
    let flag = |value: Option<bool>| unsigned(value.map(u32::from));
    let long = |value: Option<u64>| Ok((LONG, value.ok_or(Code::NOT_SUPPORTED)?));
    // How far a threshold lies beyond the highest temperature at which it should run: never above 0.
    let margin = |threshold: Option<u32>| {
        let (threshold, highest) = threshold.zip(gpu.temperature.gpu_max).ok_or(Code::NOT_SUPPORTED)?;
        let margin = (highest.cast_signed() - threshold.cast_signed()).min(0);
        Ok((SIGNED, u64::from(margin.cast_unsigned())))
    };
    let rows = gpu.remapped_rows.as_ref();
    let pages = gpu.retired_pages.as_ref();
    let limit = &gpu.power;
    // What held the clocks came with 575, and moved in 580.82. In between the settings of power smoothing made room;
    // 251 is whether that is on.
    let mut version = at.scene.world.driver.split('.').map(|it| it.parse::<u32>().unwrap_or(0));
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
    // Of the module of GPU and processor, where they are one.
    if let (185..=190 | 192, 1) = (field, scope) {
        let at = [185, 186, 187, 188, 189, 190, 192].iter().position(|it| *it == field);
        return unsigned(gpu.module_power.zip(at).map(|(power, at)| power[at]));
    }
    match field {
        1 => flag(gpu.ecc.as_ref().map(|it| it.enabled)),
        2 => flag(gpu.ecc.as_ref().map(|it| it.pending)),
        3 => ecc_counts(at, 0).and_then(|it| long(Some(it.dram_corrected + it.sram_corrected))),
        4 => ecc_counts(at, 0).and_then(|it| long(Some(it.dram_uncorrected + it.sram_uncorrected))),
        5 => ecc_counts(at, 1).and_then(|it| long(Some(it.dram_corrected + it.sram_corrected))),
        6 => ecc_counts(at, 1).and_then(|it| long(Some(it.dram_uncorrected + it.sram_uncorrected))),
        29 => unsigned(pages.map(|it| it.single_bit)),
        30 => unsigned(pages.map(|it| it.double_bit)),
        31 => flag(pages.map(|it| it.pending)),
        74 | 76 | 251..=253 => long(gpu.throttle_ns.get(&field).copied()),
        82 => unsigned(gpu.temperature.memory),
        83 | 191 => long(energy(at)?),
        90 => nvlink(at).and_then(|it| unsigned(Some(it.speed))),
        91 => nvlink(at).and_then(|it| unsigned(Some(it.links))),
        94 => pcie(at).and_then(|it| unsigned(it.replays)),
        138 | 140 => long(Some(transferred(at, scope, false)?)),
        139 | 141 => long(Some(transferred(at, scope, true)?)),
        142 => unsigned(rows.map(|it| it.correctable)),
        143 => unsigned(rows.map(|it| it.uncorrectable)),
        144 => flag(rows.map(|it| it.pending)),
        145 => flag(rows.map(|it| it.failed)),
        164 => {
            let up = link_is_up(at, scope)?;
            unsigned(Some(if up && !nvlink(at)?.asleep { nvlink(at)?.speed } else { 0 }))
        }
        165 => {
            let up = if nvlink(at)?.asleep { 2 } else { 1 };
            unsigned(Some(if link_is_up(at, scope)? { up } else { 0 }))
        }
        166 => nvlink(at).and_then(|it| unsigned(Some(it.version))),
        185 if gpu.power_without_average => Err(Code::NOT_SUPPORTED),
        185 => unsigned(power(at)?),
        186 => unsigned(gpu.power_instant.or(power(at)?)),
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

/// KiB over one link, or over all.
fn transferred(at: &At<'_>, link: u32, received: bool) -> Result<u64, Code> {
    let of = nvlink(at)?;
    #[expect(clippy::cast_precision_loss, reason = "a rate has no 53 bits")]
    let since = at.scene.elapsed() * of.rate as f64;
    let all = shifted(if received { of.rx } else { of.tx }, since);
    if link == NONE {
        return Ok(all);
    }
    let up = of.links.saturating_sub(of.down);
    Ok(if link_is_up(at, link)? { all / u64::from(up) } else { 0 })
}
