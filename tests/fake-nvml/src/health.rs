//! The health of a device: throttling, memory errors, retired pages, remapped rows.

use crate::{
    abi::{Answer, Code, Out, RemapHistogram},
    calls::{Device, device_calls},
    gpu::{Ecc, EccCounts},
};

/// The bits of all throttle reasons.
const ALL_REASONS: u64 = 0x1ff;

device_calls! {
    nvmlDeviceGetCurrentClocksThrottleReasons(device, reasons: Out<u64>) { reasons.write_some(device.gpu()?.throttle) }
    nvmlDeviceGetCurrentClocksEventReasons(device, reasons: Out<u64>) { reasons.write_some(device.gpu()?.throttle) }
    nvmlDeviceGetSupportedClocksThrottleReasons(device, reasons: Out<u64>) { supported_reasons(device, reasons) }
    nvmlDeviceGetSupportedClocksEventReasons(device, reasons: Out<u64>) { supported_reasons(device, reasons) }

    nvmlDeviceGetEccMode(device, current: Out<u32>, pending: Out<u32>) {
        let ecc = device.gpu()?.ecc.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        current.write(ecc.enabled.into())?;
        pending.write(ecc.pending.into())
    }
    nvmlDeviceGetDefaultEccMode(device, mode: Out<u32>) { mode.write_some(device.gpu()?.ecc.as_ref().map(|_| 1)) }
    nvmlDeviceGetTotalEccErrors(device, kind: u32, counter: u32, count: Out<u64>) {
        let counts = ecc_counts(device, counter)?;
        count.write(match kind {
            0 => counts.dram_corrected + counts.sram_corrected,
            1 => counts.dram_uncorrected + counts.sram_uncorrected,
            _ => return Err(Code::INVALID_ARGUMENT),
        })
    }
    nvmlDeviceGetMemoryErrorCounter(device, kind: u32, counter: u32, location: u32, count: Out<u64>) {
        let counts = ecc_counts(device, counter)?;
        count.write(match (location, kind) {
            (2, 0) => counts.dram_corrected,
            (2, 1) => counts.dram_uncorrected,
            (7, 0) => counts.sram_corrected,
            (7, 1) => counts.sram_uncorrected,
            // Caches and registers have no counts of their own since Ampere.
            (0..=7, 0 | 1) => return Err(Code::NOT_SUPPORTED),
            _ => return Err(Code::INVALID_ARGUMENT),
        })
    }

    nvmlDeviceGetRetiredPages(device, cause: u32, count: Out<u32>, addresses: Out<u64>) {
        retired(device, cause, count, |index| addresses.offset(index).write(page(index)))
    }
    nvmlDeviceGetRetiredPages_v2(device, cause: u32, count: Out<u32>, addresses: Out<u64>, times: Out<u64>) {
        retired(device, cause, count, |index| {
            addresses.offset(index).write(page(index))?;
            times.offset(index).write(0)
        })
    }
    nvmlDeviceGetRetiredPagesPendingStatus(device, pending: Out<u32>) {
        pending.write_some(device.gpu()?.retired_pages.as_ref().map(|pages| pages.pending.into()))
    }
    nvmlDeviceGetRemappedRows(device, correctable: Out<u32>, uncorrectable: Out<u32>, pending: Out<u32>, failed: Out<u32>) {
        let rows = device.gpu()?.remapped_rows.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        correctable.write(rows.correctable)?;
        uncorrectable.write(rows.uncorrectable)?;
        pending.write(rows.pending.into())?;
        failed.write(rows.failed.into())
    }
    nvmlDeviceGetRowRemapperHistogram(device, histogram: Out<RemapHistogram>) {
        let rows = device.gpu()?.remapped_rows.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        let used = rows.correctable + rows.uncorrectable;
        histogram.write(RemapHistogram { max: 2560 - used.min(2560), high: used, partial: 0, low: 0, none: 0 })
    }
}

fn supported_reasons(device: &Device<'_>, reasons: Out<u64>) -> Answer {
    let gpu = device.gpu()?;
    reasons.write_some(
        gpu.throttle
            .map(|_| gpu.throttle_supported.unwrap_or(ALL_REASONS)),
    )
}

/// The counts since the driver was loaded (0) or since the board was made (1).
pub fn ecc_counts<'a>(device: &'a Device<'_>, counter: u32) -> Result<&'a EccCounts, Code> {
    let Ecc {
        volatile,
        aggregate,
        ..
    } = device
        .gpu()?
        .ecc
        .as_ref()
        .filter(|ecc| ecc.enabled)
        .ok_or(Code::NOT_SUPPORTED)?;
    match counter {
        0 => Ok(volatile),
        1 => Ok(aggregate),
        _ => Err(Code::INVALID_ARGUMENT),
    }
}

/// Lists the pages retired for a cause: several single-bit errors (0), or a double-bit one (1).
fn retired(
    device: &Device<'_>,
    cause: u32,
    count: Out<u32>,
    put: impl Fn(usize) -> Answer,
) -> Answer {
    let pages = device
        .gpu()?
        .retired_pages
        .as_ref()
        .ok_or(Code::NOT_SUPPORTED)?;
    let found = match cause {
        0 => pages.single_bit,
        1 => pages.double_bit,
        _ => return Err(Code::INVALID_ARGUMENT),
    };
    let capacity = count.read()?;
    count.write(found)?;
    if found > capacity {
        return Err(Code::INSUFFICIENT_SIZE);
    }
    (0..found as usize).try_for_each(put)
}

fn page(index: usize) -> u64 {
    0x0010_0000 + index as u64 * 0x1000
}
