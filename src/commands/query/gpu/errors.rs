//! Memory errors, and what was done about them: counts by kind and place, pages, rows.

use super::List;
use crate::commands::query::cell::{enabled, plain, yes};
use crate::protocol::snapshot::{EccCounts, GpuDetail, Reading};

/// Errors by kind and time, and by place.
type Counts = fn(&GpuDetail) -> &EccCounts;
type Place = fn(&EccCounts) -> Reading<u64>;
const COUNTS: [(&str, Counts); 4] = [
    ("corrected.volatile", |it| &it.corrected),
    ("corrected.aggregate", |it| &it.corrected_ever),
    ("uncorrected.volatile", |it| &it.uncorrected),
    ("uncorrected.aggregate", |it| &it.uncorrected_ever),
];
const PLACES: [(&str, Place); 9] = [
    ("device_memory", |it| it.dram),
    ("dram", |it| it.dram),
    ("register_file", |it| it.register_file),
    ("l1_cache", |it| it.l1_cache),
    ("l2_cache", |it| it.l2_cache),
    ("texture_memory", |it| it.texture_memory),
    ("cbu", |it| it.cbu),
    ("sram", |it| it.sram),
    ("total", |it| it.total),
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

/// From here on, by place.
const BY_PLACE: usize = 4;

pub(super) fn errors(list: &mut List) {
    list.add("dramEncryption.mode.current", "", "Whether device memory is encrypted.", |it| {
        enabled(it.detail(|it| it.dram_encryption))
    });
    list.add("dramEncryption.mode.pending", "", "Whether it will be after a reboot.", |it| {
        enabled(it.detail(|it| it.dram_encryption_pending))
    });
    list.add("ecc.mode.current", "", "Whether ECC is on.", |it| enabled(it.detail(|it| it.ecc)));
    list.add("ecc.mode.pending", "", "Whether it will be after a reboot.", |it| {
        enabled(it.detail(|it| it.ecc_pending))
    });
    for (kind, counts) in COUNTS {
        for (place, count) in PLACES {
            let name = format!("ecc.errors.{kind}.{place}");
            let about =
                "Memory errors there, since the driver was loaded (volatile) or the board was made (aggregate).";
            list.add(&name, "", about, move |it| plain(it.detail(|it| count(counts(it)))));
        }
    }
    for (at, name) in SRAM.into_iter().enumerate() {
        if at == BY_PLACE {
            let name = "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded";
            let about = "Whether these are so many that the board should be replaced.";
            list.add(name, "", about, |it| yes(it.detail(|it| it.sram_exceeded)));
        }
        let name = format!("ecc.errors.uncorrected.{name}");
        list.add(&name, "", "Errors in memory on the chip that were not mended.", move |it| {
            plain(it.detail(|it| it.sram_errors.map(|it| it[at])))
        });
    }
    list.add(
        "retired_pages.single_bit_ecc.count retired_pages.sbe",
        "",
        "Pages out of use after single-bit errors.",
        |it| plain(it.detail(|it| it.retired_single)),
    );
    list.add(
        "retired_pages.double_bit.count retired_pages.dbe",
        "",
        "Pages out of use after double-bit errors.",
        |it| plain(it.detail(|it| it.retired_double)),
    );
    list.add("retired_pages.pending", "", "Whether some wait for a reboot.", |it| {
        yes(it.detail(|it| it.retired_pending))
    });
    list.add("remapped_rows.correctable remapped_rows.sbe", "", "Rows replaced after errors that were mended.", |it| {
        plain(it.detail(|it| it.remapped_correctable))
    });
    inactive(list, "correctable", |it| it.remapped_correctable_inactive);
    list.add("remapped_rows.uncorrectable remapped_rows.dbe", "", "Rows replaced after errors that were not.", |it| {
        plain(it.detail(|it| it.remapped_uncorrectable))
    });
    inactive(list, "uncorrectable", |it| it.remapped_uncorrectable_inactive);
    list.add("remapped_rows.pending", "", "Whether some wait for a reset.", |it| {
        yes(it.detail(|it| it.remapped_pending))
    });
    list.add("remapped_rows.failure", "", "Whether one could not be replaced.", |it| {
        yes(it.detail(|it| it.remapped_failed))
    });
    for (at, left) in ["max", "high", "partial", "low", "none"].into_iter().enumerate() {
        let name = format!("remapped_rows.histogram.{left}");
        list.add(&name, "", "Banks by the spare rows that they have left.", move |it| {
            plain(it.detail(|it| it.remapped_banks.map(|it| it[at])))
        });
    }
}

/// Since nvidia-smi 595.
fn inactive(list: &mut List, kind: &str, count: fn(&GpuDetail) -> Reading<u64>) {
    let name = format!("remapped_rows.{kind}_inactive");
    list.add(&name, "", "Those of them that are not in force.", move |it| plain(it.detail(count)));
}
