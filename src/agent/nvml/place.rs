//! Where a GPU sits: near which processors and memory of the host, in which fabric, in which rack. And its fans.

use std::ffi::c_ulong;
use std::mem;

use nvml_wrapper::Device;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper_sys::bindings::{nvmlGpuFabricInfo_v2_t, nvmlGpuFabricInfo_v3_t, nvmlPlatformInfo_v2_t};

use super::gpu::Gpu;
use super::raw::handle;
use super::watch::Watch;
use crate::snapshot::{GpuDetail, Missing, Reading};
use crate::units::Percent;
use crate::untrusted::Text;

/// Words of a set of processors: room for 4096.
const CPU_WORDS: usize = 4096 / c_ulong::BITS as usize;
/// Words of a set of NUMA nodes: room for 1024.
const NODE_WORDS: usize = 1024 / c_ulong::BITS as usize;
/// The NUMA node, and not the socket.
const SCOPE_NODE: u32 = 0;
/// More fans than any board has.
const MOST_FANS: u32 = 16;

impl Gpu {
    /// What does not change while the driver runs.
    pub(super) fn read_place(&mut self, watch: &Watch, it: &mut GpuDetail) {
        let cpus = self.ask(watch, "nvmlDeviceGetCpuAffinity", 0, |gpu| gpu.cpu_affinity(CPU_WORDS));
        it.cpus = cpus.and_then(|set| members(&set));
        let nodes =
            self.ask(watch, "nvmlDeviceGetMemoryAffinity", 0, |gpu| gpu.memory_affinity(NODE_WORDS, SCOPE_NODE));
        it.numa_nodes = nodes.and_then(|set| members(&set));
        it.numa_node = self.ask(watch, "nvmlDeviceGetNumaNodeId", 0, Device::numa_node_id);
        let platform = self.ask(watch, "nvmlDeviceGetPlatformInfo", 0, platform);
        let number = |pick: fn(&nvmlPlatformInfo_v2_t) -> u8| {
            platform.as_ref().map_or_else(|why| Err(*why), |it| Ok(pick(it).into()))
        };
        it.chassis = platform.as_ref().map_or_else(|why| Err(*why), |it| Ok(until_nul(&it.chassisSerialNumber)));
        it.slot = number(|it| it.slotNumber);
        it.tray = number(|it| it.trayIndex);
        it.rack_host = number(|it| it.hostId);
        it.peer_type = number(|it| it.peerType);
        it.module = number(|it| it.moduleId);
        it.fabric_guid = platform.map(|it| hex(&it.ibGuid[..8]).into());
    }

    /// Its state in the fabric of NVLink switches, and how fast its fans are to turn.
    pub(super) fn read_fabric_and_fans(&mut self, watch: &Watch, it: &mut GpuDetail) {
        let fabric = self.ask(watch, "nvmlDeviceGetGpuFabricInfoV", 0, fabric);
        let fabric = fabric.and_then(|it| if it.state == 0 { Err(Missing::Unsupported) } else { Ok(it) });
        it.fabric =
            fabric.map(|it| [u32::from(it.state), it.status, it.cliqueId, it.healthMask, it.healthSummary.into()]);
        it.fabric_cluster = fabric.map(|it| uuid(it.clusterUuid).into());
        it.fans = self.fans(watch);
    }

    fn fans(&mut self, watch: &Watch) -> Reading<Vec<Percent>> {
        let count = self.ask(watch, "nvmlDeviceGetNumFans", 0, Device::num_fans)?;
        match count {
            0 => Err(Missing::Unsupported),
            1..=MOST_FANS => (0..count)
                .map(|fan| {
                    let percent = self.ask(watch, "nvmlDeviceGetFanSpeed_v2", fan, |gpu| gpu.fan_speed(fan))?;
                    u16::try_from(percent).map(|it| Percent::new(it.into())).map_err(|_| Missing::Failed)
                })
                .collect(),
            _ => Err(Missing::Failed),
        }
    }
}

/// `nvmlDeviceGetGpuFabricInfoV`: the third version of what it fills, or on an older driver the second, which has no summary.
fn fabric(device: &Device<'static>) -> Result<nvmlGpuFabricInfo_v3_t, NvmlError> {
    let function = nvml_sym(device.nvml().lib().nvmlDeviceGetGpuFabricInfoV.as_ref())?;
    // SAFETY: the structure is plain numbers, for all of which zero is a value.
    let mut info: nvmlGpuFabricInfo_v3_t = unsafe { mem::zeroed() };
    info.version = version::<nvmlGpuFabricInfo_v3_t>(3);
    // SAFETY: it is the structure that this function fills, of the version that it says.
    match nvml_try(unsafe { function(handle(device), &raw mut info) }) {
        Err(NvmlError::UnexpectedVariant(_) | NvmlError::InvalidArg) => {
            info.version = version::<nvmlGpuFabricInfo_v2_t>(2);
            // SAFETY: the second version is the first part of the third.
            nvml_try(unsafe { function(handle(device), &raw mut info) })?;
        }
        other => other?,
    }
    Ok(info)
}

/// `nvmlDeviceGetPlatformInfo`.
fn platform(device: &Device<'static>) -> Result<nvmlPlatformInfo_v2_t, NvmlError> {
    let function = nvml_sym(device.nvml().lib().nvmlDeviceGetPlatformInfo.as_ref())?;
    // SAFETY: the structure is plain numbers, for all of which zero is a value.
    let mut info: nvmlPlatformInfo_v2_t = unsafe { mem::zeroed() };
    info.version = version::<nvmlPlatformInfo_v2_t>(2);
    // SAFETY: it is the structure that this function fills, of the version that it says.
    nvml_try(unsafe { function(handle(device), &raw mut info) })?;
    Ok(info)
}

/// What NVML wants to find in the first field of a structure of that version.
fn version<T>(number: u32) -> u32 {
    u32::try_from(size_of::<T>()).map_or(0, |size| size | number << 24)
}

fn until_nul(bytes: &[u8]) -> Text {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    Text::new(&bytes[..end])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}

fn uuid(bytes: [u8; 16]) -> String {
    let hex = hex(&bytes);
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// The members of a set of bits as `0-15,32-47`; a set of none says that nobody knows.
fn members(set: &[c_ulong]) -> Reading<Text> {
    let has = |at: usize| set[at / c_ulong::BITS as usize] >> (at % c_ulong::BITS as usize) & 1 == 1;
    let all: Vec<usize> = (0..set.len() * c_ulong::BITS as usize).filter(|at| has(*at)).collect();
    let ranges: Vec<String> = all
        .chunk_by(|one, next| one + 1 == *next)
        .filter_map(|range| match (range.first()?, range.last()?) {
            (first, last) if first == last => Some(first.to_string()),
            (first, last) => Some(format!("{first}-{last}")),
        })
        .collect();
    if ranges.is_empty() { Err(Missing::Unsupported) } else { Ok(ranges.join(",").into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_processors_is_said_as_the_kernel_says_it() {
        let says = |set: &[c_ulong]| members(set).map(|it| it.to_string());
        assert_eq!(says(&[0b1111]), Ok("0-3".to_owned()));
        assert_eq!(says(&[1 << 63 | 0b101, 0b11]), Ok("0,2,63-65".to_owned()));
        assert_eq!(says(&[0, 0]), Err(Missing::Unsupported));
    }

    #[test]
    fn an_id_is_written_in_its_five_parts() {
        let bytes = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255];
        assert_eq!(uuid(bytes), "00010203-0405-0607-0809-0a0b0c0d0eff");
    }
}
