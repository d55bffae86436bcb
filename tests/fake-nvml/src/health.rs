//! What ails a device: throttling, memory errors, retired pages, remapped rows.

use crate::{
    abi::{Answer, Code, Out, RemapHistogram},
    gate::{At, device_calls},
    gpu::{Ecc, EccCounts},
};

/// All reasons that NVML has a bit for.
const ALL_REASONS: u64 = 0x1ff;

device_calls! {
    nvmlDeviceGetCurrentClocksThrottleReasons(at, reasons: Out<u64>) { reasons.put_some(at.gpu()?.throttle) }
    nvmlDeviceGetCurrentClocksEventReasons(at, reasons: Out<u64>) { reasons.put_some(at.gpu()?.throttle) }
    nvmlDeviceGetSupportedClocksThrottleReasons(at, reasons: Out<u64>) { supported_reasons(at, reasons) }
    nvmlDeviceGetSupportedClocksEventReasons(at, reasons: Out<u64>) { supported_reasons(at, reasons) }

    nvmlDeviceGetEccMode(at, current: Out<u32>, pending: Out<u32>) {
        let ecc = at.gpu()?.ecc.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        current.put(ecc.enabled.into())?;
        pending.put(ecc.pending.into())
    }
    nvmlDeviceGetDefaultEccMode(at, mode: Out<u32>) { mode.put_some(at.gpu()?.ecc.as_ref().map(|_| 1)) }
    nvmlDeviceGetTotalEccErrors(at, kind: u32, counter: u32, count: Out<u64>) {
        let of = ecc_counts(at, counter)?;
        count.put(match kind {
            0 => of.dram_corrected + of.sram_corrected,
            1 => of.dram_uncorrected + of.sram_uncorrected,
            _ => return Err(Code::INVALID_ARGUMENT),
        })
    }
    nvmlDeviceGetMemoryErrorCounter(at, kind: u32, counter: u32, location: u32, count: Out<u64>) {
        let of = ecc_counts(at, counter)?;
        count.put(match (location, kind) {
            (2, 0) => of.dram_corrected,
            (2, 1) => of.dram_uncorrected,
            (7, 0) => of.sram_corrected,
            (7, 1) => of.sram_uncorrected,
            // Caches and registers have no counts of their own since Ampere.
            (0..=7, 0 | 1) => return Err(Code::NOT_SUPPORTED),
            _ => return Err(Code::INVALID_ARGUMENT),
        })
    }

    nvmlDeviceGetRetiredPages(at, cause: u32, count: Out<u32>, addresses: Out<u64>) {
        retired(at, cause, count, |index| addresses.at(index).put(page(index)))
    }
    nvmlDeviceGetRetiredPages_v2(at, cause: u32, count: Out<u32>, addresses: Out<u64>, times: Out<u64>) {
        retired(at, cause, count, |index| {
            addresses.at(index).put(page(index))?;
            times.at(index).put(0)
        })
    }
    nvmlDeviceGetRetiredPagesPendingStatus(at, pending: Out<u32>) {
        pending.put_some(at.gpu()?.retired_pages.as_ref().map(|it| it.pending.into()))
    }
    nvmlDeviceGetRemappedRows(at, correctable: Out<u32>, uncorrectable: Out<u32>, pending: Out<u32>, failed: Out<u32>) {
        let rows = at.gpu()?.remapped_rows.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        correctable.put(rows.correctable)?;
        uncorrectable.put(rows.uncorrectable)?;
        pending.put(rows.pending.into())?;
        failed.put(rows.failed.into())
    }
    nvmlDeviceGetRowRemapperHistogram(at, histogram: Out<RemapHistogram>) {
        let rows = at.gpu()?.remapped_rows.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        let used = rows.correctable + rows.uncorrectable;
        histogram.put(RemapHistogram { max: 2560 - used.min(2560), high: used, partial: 0, low: 0, none: 0 })
    }
}

fn supported_reasons(at: &At<'_>, reasons: Out<u64>) -> Answer {
    let gpu = at.gpu()?;
    reasons.put_some(gpu.throttle.map(|_| gpu.throttle_supported.unwrap_or(ALL_REASONS)))
}

/// The counts since the driver was loaded (0) or since the board was made (1).
pub fn ecc_counts<'a>(at: &'a At<'_>, counter: u32) -> Result<&'a EccCounts, Code> {
    let Ecc { volatile, aggregate, .. } = at.gpu()?.ecc.as_ref().filter(|it| it.enabled).ok_or(Code::NOT_SUPPORTED)?;
    match counter {
        0 => Ok(volatile),
        1 => Ok(aggregate),
        _ => Err(Code::INVALID_ARGUMENT),
    }
}

/// Lists the pages retired for that cause: several single-bit errors (0), or a double-bit one (1).
fn retired(at: &At<'_>, cause: u32, count: Out<u32>, put: impl Fn(usize) -> Answer) -> Answer {
    let pages = at.gpu()?.retired_pages.as_ref().ok_or(Code::NOT_SUPPORTED)?;
    let found = match cause {
        0 => pages.single_bit,
        1 => pages.double_bit,
        _ => return Err(Code::INVALID_ARGUMENT),
    };
    let capacity = count.get()?;
    count.put(found)?;
    if found > capacity {
        return Err(Code::INSUFFICIENT_SIZE);
    }
    (0..found as usize).try_for_each(put)
}

fn page(index: usize) -> u64 {
    0x0010_0000 + index as u64 * 0x1000
}
