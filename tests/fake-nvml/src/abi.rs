//! Error codes, structs and pointers of the C interface, laid out as in nvml.h.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::world::ErrorCode;

/// `nvmlDevice_t` and `nvmlEventSet_t`: numbers that are cast to pointers, and never dereferenced.
pub type Handle = *mut c_void;

/// The result of a call, besides the values that it writes.
pub type Answer = Result<(), Code>;

/// `NVML_ERROR_…`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code(pub u32);

macro_rules! codes {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        impl Code {
            $(pub const $name: Self = Self($number);)*

            /// The code of an error in a world file.
            pub fn find(error: &ErrorCode) -> Option<Self> {
                match error {
                    ErrorCode::Number(number) => Some(Self(*number)),
                    ErrorCode::Name(name) => match name.strip_prefix("NVML_ERROR_").unwrap_or(name) {
                        $(stringify!($name) => Some(Self::$name),)*
                        _ => None,
                    },
                }
            }

            /// The text of `nvmlErrorString`.
            pub fn text(self) -> &'static CStr {
                match self.0 {
                    0 => c"Success",
                    $($number => $text,)*
                    _ => c"Unknown Error code",
                }
            }
        }
    };
}

codes! {
    UNINITIALIZED = 1, c"Uninitialized";
    INVALID_ARGUMENT = 2, c"Invalid Argument";
    NOT_SUPPORTED = 3, c"Not Supported";
    NO_PERMISSION = 4, c"Insufficient Permissions";
    ALREADY_INITIALIZED = 5, c"Already Initialized";
    NOT_FOUND = 6, c"Not Found";
    INSUFFICIENT_SIZE = 7, c"Insufficient Size";
    INSUFFICIENT_POWER = 8, c"Insufficient External Power";
    DRIVER_NOT_LOADED = 9, c"Driver Not Loaded";
    TIMEOUT = 10, c"Timeout";
    IRQ_ISSUE = 11, c"Interrupt Request Issue";
    LIBRARY_NOT_FOUND = 12, c"NVML Shared Library Not Found";
    FUNCTION_NOT_FOUND = 13, c"Function Not Found";
    CORRUPTED_INFOROM = 14, c"Corrupted infoROM";
    GPU_IS_LOST = 15, c"GPU is lost";
    RESET_REQUIRED = 16, c"GPU requires restart";
    OPERATING_SYSTEM = 17, c"The operating system has blocked the request.";
    LIB_RM_VERSION_MISMATCH = 18, c"Driver/library version mismatch";
    IN_USE = 19, c"In use by another client";
    MEMORY = 20, c"Insufficient Memory";
    NO_DATA = 21, c"No data";
    VGPU_ECC_NOT_SUPPORTED = 22, c"vGPU ECC not supported";
    INSUFFICIENT_RESOURCES = 23, c"Insufficient resources";
    FREQ_NOT_SUPPORTED = 24, c"Requested frequency is not supported";
    ARGUMENT_VERSION_MISMATCH = 25, c"Argument version mismatch";
    DEPRECATED = 26, c"Requested functionality has been deprecated";
    NOT_READY = 27, c"System not ready";
    GPU_NOT_FOUND = 28, c"No GPUs found";
    INVALID_STATE = 29, c"Invalid state";
    RESET_TYPE_NOT_SUPPORTED = 30, c"Reset type not supported";
    UNKNOWN = 999, c"Unknown Error";
}

/// The `nvmlReturn_t` of a result.
pub fn to_c(answer: Answer) -> c_int {
    answer
        .err()
        .map_or(0, |code| c_int::try_from(code.0).unwrap_or(999))
}

/// A pointer of the C caller: to write a value to, or to read a count, a version or a list from.
///
/// It is made from a reference, or is an argument of an exported function. There, the caller
/// guarantees that it is null or points to enough memory, as nvml.h demands. This crate trusts no
/// other pointer.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Writes the value.
    pub fn write(self, value: T) -> Answer {
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // SAFETY: not null, and valid by the contract of nvml.h.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Writes the value; `None` is answered as not supported.
    pub fn write_some(self, value: Option<T>) -> Answer {
        self.write(value.ok_or(Code::NOT_SUPPORTED)?)
    }

    /// Reads the value that the caller wrote.
    pub fn read(self) -> Result<T, Code>
    where
        T: Copy,
    {
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // SAFETY: not null, and valid by the contract of nvml.h.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// The element at this index of a list.
    pub fn offset(self, index: usize) -> Self {
        Self(self.0.wrapping_add(index))
    }

    /// The same pointer with another type.
    pub fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }

    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }
}

impl Out<c_char> {
    /// Writes a C string into a buffer of this length.
    pub fn text(self, length: u32, text: &str) -> Answer {
        if text.len() >= length as usize {
            return Err(Code::INSUFFICIENT_SIZE);
        }
        for (index, byte) in text.bytes().chain([0]).enumerate() {
            self.offset(index).cast().write(byte)?;
        }
        Ok(())
    }

    /// Reads the C string of the caller.
    pub fn string(self) -> Result<String, Code> {
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // SAFETY: not null, and a C string by the contract of nvml.h.
        Ok(unsafe { CStr::from_ptr(self.0) }
            .to_string_lossy()
            .into_owned())
    }
}

#[cfg(test)]
impl<T> From<&mut T> for Out<T> {
    fn from(place: &mut T) -> Self {
        Self(place)
    }
}

#[cfg(test)]
impl<T> Out<T> {
    pub fn list(positions: &mut [T]) -> Self {
        Self(positions.as_mut_ptr())
    }

    pub fn null() -> Self {
        Self(std::ptr::null_mut())
    }
}

/// The `version` of a struct that carries one: its size, and its number in the top byte.
pub const fn version<T>(number: u32) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "structs of NVML are small")]
    let size = size_of::<T>() as u32;
    size | number << 24
}

/// Means "no instance", and "all links" as the scope of a field.
pub const NONE: u32 = u32::MAX;

/// `nvmlPciInfo_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PciInfo {
    pub legacy: LegacyPciInfo,
    pub bus_id: [u8; 32],
}

/// The fields of the first two versions of `nvmlPciInfo_t`, which the third has too.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LegacyPciInfo {
    pub bus_id: [u8; 16],
    pub domain: u32,
    pub bus: u32,
    pub device: u32,
    pub device_id: u32,
    pub subsystem_id: u32,
}

/// `nvmlPciInfoExt_v1_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PciInfoExt {
    pub version: u32,
    pub domain: u32,
    pub bus: u32,
    pub device: u32,
    pub device_id: u32,
    pub subsystem_id: u32,
    pub base_class: u32,
    pub sub_class: u32,
    pub bus_id: [u8; 32],
}

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemoryV1 {
    pub total: u64,
    pub free: u64,
    pub used: u64,
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemoryV2 {
    pub version: u32,
    pub total: u64,
    pub reserved: u64,
    pub free: u64,
    pub used: u64,
}

/// `nvmlUtilization_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Rates {
    pub gpu: u32,
    pub memory: u32,
}

/// `nvmlTemperature_v1_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TemperatureV1 {
    pub version: u32,
    pub sensor: u32,
    pub celsius: i32,
}

/// `nvmlDeviceAddressingMode_v1_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Addressing {
    pub version: u32,
    pub value: u32,
}

/// `nvmlEccSramErrorStatus_v1_t`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct SramStatus {
    pub version: u32,
    /// Aggregate: parity, SEC-DED, corrected; volatile: the same three; aggregate by location: L2,
    /// SM, PCIe, MCU, other.
    pub counts: [u64; 11],
    pub exceeded: u32,
}

/// `nvmlMarginTemperature_v1_t`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Margin {
    pub version: u32,
    pub celsius: i32,
}

/// `nvmlProcessUtilizationSample_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ProcessSample {
    pub pid: u32,
    pub time_us: u64,
    pub sm: u32,
    pub mem: u32,
    pub enc: u32,
    pub dec: u32,
}

/// `nvmlProcessUtilizationInfo_v1_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ProcessShare {
    pub time_us: u64,
    pub pid: u32,
    pub sm: u32,
    pub mem: u32,
    pub enc: u32,
    pub dec: u32,
    pub jpeg: u32,
    pub ofa: u32,
}

/// `nvmlProcessesUtilizationInfo_v1_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ProcessShares {
    pub version: u32,
    pub count: u32,
    pub last_seen_us: u64,
    pub list: Out<ProcessShare>,
}

/// `nvmlDeviceAttributes_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Attributes {
    pub multiprocessors: u32,
    pub copy_engines: u32,
    pub decoders: u32,
    pub encoders: u32,
    pub jpeg: u32,
    pub ofa: u32,
    pub gpu_slices: u32,
    pub compute_slices: u32,
    pub memory_mb: u64,
}

/// `nvmlEventData_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EventData {
    pub device: Handle,
    pub kind: u64,
    pub data: u64,
    pub gpu_instance: u32,
    pub compute_instance: u32,
}

/// `nvmlFieldValue_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FieldValue {
    pub field: u32,
    pub scope: u32,
    pub time_us: i64,
    pub latency_us: i64,
    pub kind: u32,
    pub answer: u32,
    pub value: u64,
}

/// `nvmlSample_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Sample {
    pub time_us: u64,
    pub value: u64,
}

/// `nvmlGpmSupport_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct GpmSupport {
    pub version: u32,
    pub supported: u32,
}

/// `nvmlGpuFabricInfo_v3_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FabricInfo {
    pub version: u32,
    pub cluster: [u8; 16],
    pub status: u32,
    pub clique: u32,
    pub state: u8,
    pub health: u32,
    pub summary: u8,
}

/// `nvmlPlatformInfo_v2_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PlatformInfo {
    pub version: u32,
    pub guid: [u8; 16],
    pub chassis: [u8; 16],
    pub slot: u8,
    pub tray: u8,
    pub host: u8,
    pub peer: u8,
    pub module: u8,
}

/// `nvmlRowRemapperHistogramValues_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RemapHistogram {
    pub max: u32,
    pub high: u32,
    pub partial: u32,
    pub low: u32,
    pub none: u32,
}
