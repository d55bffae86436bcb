//! Where a GPU sits: near which processors and memory of the host, in which fabric, in which rack. And its fans.

use std::ffi::c_ulong;
use std::path::Path;
use std::{fs, mem};

use nvml_wrapper::Device;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper_sys::bindings::{nvmlGpuFabricInfo_v2_t, nvmlGpuFabricInfo_v3_t, nvmlPlatformInfo_v2_t};

use super::calls;
use super::gpu_calls::GpuCalls;
use super::raw::handle;
use crate::base::text::Text;
use crate::base::units::Percent;
use crate::protocol::snapshot::{GpuDetail, Missing, Reading};

/// Words of a set of processors: room for 4096.
const CPU_WORDS: usize = 4096 / c_ulong::BITS as usize;
/// Words of a set of NUMA nodes: room for 1024.
const NODE_WORDS: usize = 1024 / c_ulong::BITS as usize;
/// The NUMA node, and not the socket.
const SCOPE_NODE: u32 = 0;
/// `NVML_GPU_VIRTUALIZATION_MODE_NONE`, and `…_HOST_VGPU`.
const BARE: u32 = 0;
const SHARED: u32 = 3;
/// `NVML_DEVICE_VGPU_CAP_…`: fractional, time slices of several profiles and sizes, placements, MIG, whether that is on.
const VGPU: [u32; 6] = [0, 1, 2, 9, 10, 11];
/// More fans than any board has.
const MOST_FANS: u32 = 16;

impl GpuCalls {
    /// What does not change while the driver runs.
    pub(super) fn read_place(&mut self, it: &mut GpuDetail, bus_id: &Reading<Text>) {
        let cpus = self.ask("nvmlDeviceGetCpuAffinity", |gpu| gpu.cpu_affinity(CPU_WORDS));
        it.cpus = cpus.and_then(|set| members(&set));
        let nodes = self.ask("nvmlDeviceGetMemoryAffinity", |gpu| gpu.memory_affinity(NODE_WORDS, SCOPE_NODE));
        it.numa_nodes = nodes.and_then(|set| members(&set));
        it.numa_node = self.ask("nvmlDeviceGetNumaNodeId", Device::numa_node_id);
        let virtualization = self.ask("nvmlDeviceGetVirtualizationMode", calls::virtualization);
        it.pcie_generation_host_max = match (virtualization, bus_id) {
            (Ok(BARE), Ok(bus_id)) => generation_of_port(Path::new("/sys/bus/pci/devices"), bus_id.as_str()),
            // What a virtual machine sees above it is made up.
            _ => Err(Missing::Unsupported),
        };
        it.vgpu = if virtualization == Ok(SHARED) { Ok(self.vgpu()) } else { Err(Missing::Unsupported) };
        let platform = self.ask("nvmlDeviceGetPlatformInfo", platform);
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
    pub(super) fn read_fabric_and_fans(&mut self, it: &mut GpuDetail) {
        let fabric = self.ask("nvmlDeviceGetGpuFabricInfoV", fabric);
        let fabric = fabric.and_then(|it| if it.state == 0 { Err(Missing::Unsupported) } else { Ok(it) });
        it.fabric =
            fabric.map(|it| [u32::from(it.state), it.status, it.cliqueId, it.healthMask, it.healthSummary.into()]);
        it.fabric_cluster = fabric.map(|it| uuid(it.clusterUuid).into());
        it.fans = self.fans();
    }

    /// What driver and GPU can do for virtual machines that share it, in nvidia-smi's order.
    fn vgpu(&mut self) -> Vec<Option<bool>> {
        let driver = self.ask("nvmlGetVgpuDriverCapabilities", |gpu| calls::vgpu_of_driver(gpu, 0));
        let mut can = |it| self.ask_with("nvmlDeviceGetVgpuCapabilities", it, |gpu| calls::vgpu(gpu, it)).ok();
        std::iter::once(driver.ok()).chain(VGPU.map(&mut can)).collect()
    }

    fn fans(&mut self) -> Reading<Vec<Percent>> {
        let count = self.ask("nvmlDeviceGetNumFans", Device::num_fans)?;
        match count {
            0 => Err(Missing::Unsupported),
            1..=MOST_FANS => (0..count)
                .map(|fan| {
                    let percent = self.ask_with("nvmlDeviceGetFanSpeed_v2", fan, |gpu| gpu.fan_speed(fan))?;
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

/// The highest PCIe generation of the host's port that the GPU hangs on, through whichever switches.
fn generation_of_port(devices: &Path, bus_id: &str) -> Reading<u32> {
    // NVML has eight figures for the domain, the kernel four, and more only for one that needs them.
    let (domain, place) = bus_id.split_once(':').ok_or(Missing::Failed)?;
    let name = format!("{}:{place}", domain.strip_prefix("0000").unwrap_or(domain)).to_lowercase();
    let path = fs::canonicalize(devices.join(&name)).map_err(|_| Missing::Unsupported)?;
    let is_root = |it: &&Path| it.file_name().is_some_and(|it| it.to_string_lossy().starts_with("pci"));
    let root = path.ancestors().find(is_root).ok_or(Missing::Unsupported)?;
    let port = path.ancestors().find(|it| it.parent() == Some(root)).filter(|it| *it != path);
    let speed = fs::read_to_string(port.ok_or(Missing::Unsupported)?.join("max_link_speed"));
    let speed = speed.map_err(|_| Missing::Unsupported)?;
    match speed.split_whitespace().next() {
        Some("2.5") => Ok(1),
        Some("5.0" | "5") => Ok(2),
        Some("8.0" | "8") => Ok(3),
        Some("16.0" | "16") => Ok(4),
        Some("32.0" | "32") => Ok(5),
        Some("64.0" | "64") => Ok(6),
        _ => Err(Missing::Unsupported),
    }
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
    fn the_port_of_the_host_is_above_all_switches() {
        let home = tempfile::tempdir().unwrap();
        let of = |bus_id| generation_of_port(&home.path().join("bus"), bus_id);
        let port = home.path().join("devices/pci0000:00/0000:00:01.0");
        let switch = port.join("0000:01:00.0");
        let gpu = switch.join("0000:0a:00.0");
        let alone = home.path().join("devices/pci0000:00/0000:00:09.0");
        for (place, speed) in [(&port, "32.0 GT/s PCIe\n"), (&switch, "16.0 GT/s PCIe\n"), (&gpu, "8.0 GT/s PCIe\n")] {
            fs::create_dir_all(place).unwrap();
            fs::write(place.join("max_link_speed"), speed).unwrap();
        }
        fs::create_dir_all(home.path().join("bus")).unwrap();
        fs::create_dir_all(&alone).unwrap();
        for place in [&gpu, &alone] {
            std::os::unix::fs::symlink(place, home.path().join("bus").join(place.file_name().unwrap())).unwrap();
        }
        assert_eq!(of("00000000:0A:00.0"), Ok(5));
        assert_eq!(of("00000000:00:09.0"), Err(Missing::Unsupported), "it hangs on no port");
        assert_eq!(of("00000000:FF:00.0"), Err(Missing::Unsupported));
        assert_eq!(of("00010000:0A:00.0"), Err(Missing::Unsupported), "one of another domain");
        assert_eq!(of("GPU"), Err(Missing::Failed));
    }

    #[test]
    fn an_id_is_written_in_its_five_parts() {
        let bytes = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255];
        assert_eq!(uuid(bytes), "00010203-0405-0607-0809-0a0b0c0d0eff");
    }
}
