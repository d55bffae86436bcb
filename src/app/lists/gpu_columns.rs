//! The columns of the GPU list.
//!
//! A new column is a variant of [`GpuColumn`], and an arm each in [`spec`](ListColumn::spec) and
//! [`cell`](super::gpu_cells::cell). The compiler asks for all of them; the settings panel, the
//! flag, the configuration and `--once` follow.

use strum::VariantArray;

use super::columns::{ColumnSpec, Columns, HOST_WIDTH, ListColumn};

/// A column of the GPU list. `spec` says what each shows, in the words that the user reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, VariantArray)]
pub enum GpuColumn {
    Host,
    Index,
    Name,
    Memory,
    Sm,
    Temperature,
    Power,
    MemoryUse,
    SmClock,
    MemoryClock,
    PState,
    Fan,
    Ecc,
    Encoder,
    Decoder,
    Pcie,
    Health,
}

/// The narrowest screen with clocks, P-state, fan and ECC errors.
const SCREEN_WITH_CLOCKS: u16 = 150;
/// The narrowest screen with every column.
pub(crate) const WIDEST_FOR_GPUS: u16 = 190;

/// The width of used and total memory, as in `61.2/79.6G`.
pub(crate) const MEMORY_WIDTH: usize = 10;

impl ListColumn for GpuColumn {
    const HOST: Self = Self::Host;

    fn spec(self) -> ColumnSpec {
        const SHARE: usize = 4;
        match self {
            Self::Host => ColumnSpec::left(
                "host",
                "HOST",
                HOST_WIDTH,
                "its host; shown with several hosts only",
            ),
            Self::Index => ColumnSpec::right("index", "#", 2, "the index, as in nvidia-smi"),
            Self::Name => ColumnSpec::left("name", "GPU", 8, "the model name"),
            Self::Memory => ColumnSpec::left(
                "memory",
                "MEMORY",
                MEMORY_WIDTH + 1,
                "memory used and total, with a bar",
            ),
            Self::Sm => {
                ColumnSpec::right("sm", "SM", SHARE, "share of the time in which a kernel ran")
            }
            Self::Temperature => ColumnSpec::right("temp", "TEMP", 5, "temperature of the core"),
            Self::Power => ColumnSpec::right("power", "POWER", 8, "power drawn, and the limit"),
            Self::MemoryUse => ColumnSpec::right(
                "memuse",
                "MEM%",
                SHARE,
                "share of the time in which memory was read or written",
            )
            .on_screens_from(SCREEN_WITH_CLOCKS),
            Self::SmClock => ColumnSpec::right("smclock", "SM CLOCK", 8, "SM clock")
                .on_screens_from(SCREEN_WITH_CLOCKS),
            Self::MemoryClock => ColumnSpec::right("memclock", "MEM CLOCK", 9, "memory clock")
                .on_screens_from(SCREEN_WITH_CLOCKS),
            Self::PState => ColumnSpec::right(
                "pstate",
                "P",
                3,
                "performance state: P0 is fastest, P15 slowest",
            )
            .on_screens_from(SCREEN_WITH_CLOCKS),
            Self::Fan => ColumnSpec::right(
                "fan",
                "FAN",
                SHARE,
                "target fan speed; the GPU's page lists all fans",
            )
            .on_screens_from(SCREEN_WITH_CLOCKS),
            Self::Ecc => ColumnSpec::right(
                "ecc",
                "ECC",
                6,
                "memory errors since the driver was loaded: corrected/uncorrected",
            )
            .on_screens_from(SCREEN_WITH_CLOCKS),
            Self::Encoder => ColumnSpec::right("enc", "ENC", SHARE, "use of the video encoder")
                .on_screens_from(WIDEST_FOR_GPUS),
            Self::Decoder => ColumnSpec::right("dec", "DEC", SHARE, "use of the video decoder")
                .on_screens_from(WIDEST_FOR_GPUS),
            Self::Pcie => ColumnSpec::right("pcie", "PCIE", 5, "PCIe generation and lanes in use")
                .on_screens_from(WIDEST_FOR_GPUS),
            Self::Health => ColumnSpec::left(
                "health",
                "HEALTH",
                16,
                "what is wrong with it, and who is on it",
            )
            .last(),
        }
    }
}

impl Columns<GpuColumn> {
    /// The columns on a screen of this width: the chosen ones, or all that it has room for if none
    /// were chosen.
    pub fn shown_at(chosen: Option<&Self>, width: u16, has_hosts: bool) -> Vec<GpuColumn> {
        Self::on_screen(chosen, has_hosts, |column| {
            column.spec().from_screen_width <= width
        })
    }
}
