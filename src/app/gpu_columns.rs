//! The columns of the list of GPUs.

use super::process_columns::{Choice, Columns};

/// A column of the list of GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpuColumn {
    /// Its number.
    Index,
    /// Its product name.
    Name,
    /// Memory in use, as a bar and of how much.
    Memory,
    /// Use of the multiprocessors.
    Sm,
    /// Temperature.
    Temperature,
    /// Power, and how much it may draw.
    Power,
    /// Share of time in which memory was read or written.
    MemoryUse,
    /// The clock of the multiprocessors.
    SmClock,
    /// The clock of the memory.
    MemoryClock,
    /// P0 to P15.
    PState,
    /// Its fan.
    Fan,
    /// Memory errors.
    Ecc,
    /// Use of the encoder.
    Encoder,
    /// Use of the decoder.
    Decoder,
    /// PCIe generation and lanes.
    Pcie,
    /// How it is.
    Health,
}

/// From this width on there is room for clocks, P-state, fan and ECC.
const MORE: u16 = 150;
/// From this width on there is room for everything.
pub const MOST: u16 = 190;

impl Choice for GpuColumn {
    const ALL: &'static [Self] = &[
        Self::Index,
        Self::Name,
        Self::Memory,
        Self::Sm,
        Self::Temperature,
        Self::Power,
        Self::MemoryUse,
        Self::SmClock,
        Self::MemoryClock,
        Self::PState,
        Self::Fan,
        Self::Ecc,
        Self::Encoder,
        Self::Decoder,
        Self::Pcie,
        Self::Health,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Index => "index",
            Self::Name => "name",
            Self::Memory => "memory",
            Self::Sm => "sm",
            Self::Temperature => "temp",
            Self::Power => "power",
            Self::MemoryUse => "memuse",
            Self::SmClock => "smclock",
            Self::MemoryClock => "memclock",
            Self::PState => "pstate",
            Self::Fan => "fan",
            Self::Ecc => "ecc",
            Self::Encoder => "enc",
            Self::Decoder => "dec",
            Self::Pcie => "pcie",
            Self::Health => "health",
        }
    }

    fn help(self) -> &'static str {
        match self {
            Self::Index => "its number, as nvidia-smi has it",
            Self::Name => "its product name",
            Self::Memory => "device memory in use, as a bar and of how much",
            Self::Sm => "share of the time in which some kernel ran",
            Self::Temperature => "temperature of the core",
            Self::Power => "drawn, and how much it may draw",
            Self::MemoryUse => "share of the time in which memory was read or written",
            Self::SmClock => "clock of the multiprocessors",
            Self::MemoryClock => "clock of the memory",
            Self::PState => "P0 is fastest, P15 slowest",
            Self::Fan => "the intended speed of its fan; all of its fans are on its page",
            Self::Ecc => "memory errors since the driver was loaded: mended/not mended",
            Self::Encoder => "use of the encoder",
            Self::Decoder => "use of the decoder",
            Self::Pcie => "PCIe generation and lanes in use",
            Self::Health => "whether something is wrong with it",
        }
    }

    fn is_last(self) -> bool {
        self == Self::Health
    }
}

impl GpuColumn {
    /// How wide a screen must be to have it, unless the person chose it.
    fn least_width(self) -> u16 {
        match self {
            Self::MemoryUse | Self::SmClock | Self::MemoryClock | Self::PState | Self::Fan | Self::Ecc => MORE,
            Self::Encoder | Self::Decoder | Self::Pcie => MOST,
            _ => 0,
        }
    }
}

impl Columns<GpuColumn> {
    /// The columns of a screen of that width: those that were chosen, or those that it has room for.
    pub fn shown_at(chosen: Option<&Self>, width: u16) -> Vec<GpuColumn> {
        match chosen {
            Some(columns) => columns.chosen().to_vec(),
            None => GpuColumn::ALL.iter().copied().filter(|it| it.least_width() <= width).collect(),
        }
    }
}
