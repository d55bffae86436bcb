//! Fields on memory errors: counts by kind and place, retired pages, remapped rows.

use super::GpuFields;
use crate::commands::query::value::{enabled, plain, yes};
use crate::protocol::snapshot::{EccCounts, GpuDetail, Reading};

type ErrorCounts = fn(&GpuDetail) -> &EccCounts;
const KINDS: [(&str, ErrorCounts); 4] = [
    ("corrected.volatile", |detail| &detail.corrected),
    ("corrected.aggregate", |detail| &detail.corrected_ever),
    ("uncorrected.volatile", |detail| &detail.uncorrected),
    ("uncorrected.aggregate", |detail| &detail.uncorrected_ever),
];
type CountAt = fn(&EccCounts) -> Reading<u64>;
const PLACES: [(&str, CountAt); 9] = [
    ("device_memory", |counts| counts.dram),
    ("dram", |counts| counts.dram),
    ("register_file", |counts| counts.register_file),
    ("l1_cache", |counts| counts.l1_cache),
    ("l2_cache", |counts| counts.l2_cache),
    ("texture_memory", |counts| counts.texture_memory),
    ("cbu", |counts| counts.cbu),
    ("sram", |counts| counts.sram),
    ("total", |counts| counts.total),
];

/// In the order of [`GpuDetail::sram_errors`].
const SRAM: [&str; 9] = [
    "volatile.sram.parity",
    "volatile.sram.secded",
    "aggregate.sram.parity",
    "aggregate.sram.secded",
    "aggregate.sram.l2",
    "aggregate.sram.sm",
    "aggregate.sram.mcu",
    "aggregate.sram.pcie",
    "aggregate.sram.other",
];
/// The index in [`SRAM`] before which nvidia-smi lists the threshold.
const THRESHOLD: usize = 4;

pub(super) fn add(fields: &mut GpuFields) {
    let help = "Whether device memory is encrypted.";
    fields.detail("dramEncryption.mode.current", "", help, |detail| enabled(detail.dram_encryption));
    let help = "Whether device memory is encrypted after the next reboot.";
    fields.detail("dramEncryption.mode.pending", "", help, |detail| enabled(detail.dram_encryption_pending));
    fields.detail("ecc.mode.current", "", "Whether ECC is on.", |detail| enabled(detail.ecc));
    let help = "Whether ECC is on after the next reboot.";
    fields.detail("ecc.mode.pending", "", help, |detail| enabled(detail.ecc_pending));
    for (kind, counts) in KINDS {
        for (place, count) in PLACES {
            let help = "Memory errors since the driver was loaded (volatile) or the board was made (aggregate).";
            let name = format!("ecc.errors.{kind}.{place}");
            fields.detail(name, "", help, move |detail| plain(&count(counts(detail))));
        }
    }
    for (at, name) in SRAM.into_iter().enumerate() {
        if at == THRESHOLD {
            let name = "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded";
            let help = "Whether there are so many SRAM errors that the board should be replaced.";
            fields.detail(name, "", help, |detail| yes(detail.sram_exceeded));
        }
        let help = "Uncorrected errors in SRAM.";
        fields.detail(format!("ecc.errors.uncorrected.{name}"), "", help, move |detail| {
            plain(&detail.sram_errors.map(|errors| errors[at]))
        });
    }
    let help = "Pages retired after single-bit errors.";
    let names = "retired_pages.single_bit_ecc.count retired_pages.sbe";
    fields.detail(names, "", help, |detail| plain(&detail.retired_single));
    let help = "Pages retired after double-bit errors.";
    let names = "retired_pages.double_bit.count retired_pages.dbe";
    fields.detail(names, "", help, |detail| plain(&detail.retired_double));
    let help = "Whether pages are to be retired at the next reboot.";
    fields.detail("retired_pages.pending", "", help, |detail| yes(detail.retired_pending));
    let help = "Rows remapped after corrected errors.";
    let names = "remapped_rows.correctable remapped_rows.sbe";
    fields.detail(names, "", help, |detail| plain(&detail.remapped_correctable));
    // nvidia-smi has the two `_inactive` fields since 595.
    let help = "Rows remapped after corrected errors, not in force yet.";
    let name = "remapped_rows.correctable_inactive";
    fields.detail(name, "", help, |detail| plain(&detail.remapped_correctable_inactive));
    let help = "Rows remapped after uncorrected errors.";
    let names = "remapped_rows.uncorrectable remapped_rows.dbe";
    fields.detail(names, "", help, |detail| plain(&detail.remapped_uncorrectable));
    let help = "Rows remapped after uncorrected errors, not in force yet.";
    let name = "remapped_rows.uncorrectable_inactive";
    fields.detail(name, "", help, |detail| plain(&detail.remapped_uncorrectable_inactive));
    let help = "Whether rows are to be remapped at the next reset.";
    fields.detail("remapped_rows.pending", "", help, |detail| yes(detail.remapped_pending));
    let help = "Whether a row could not be remapped.";
    fields.detail("remapped_rows.failure", "", help, |detail| yes(detail.remapped_failed));
    for (at, spares) in ["max", "high", "partial", "low", "none"].into_iter().enumerate() {
        let name = format!("remapped_rows.histogram.{spares}");
        fields.detail(name, "", "Memory banks by their remaining spare rows.", move |detail| {
            plain(&detail.remapped_banks.map(|banks| banks[at]))
        });
    }
}
