//! Reads where a GPU is: nearby processors and memory of the host, PCIe port, NVLink fabric and
//! rack. Also reads its fans and vGPU capabilities.

use std::ffi::c_ulong;
use std::path::Path;
use std::{fs, mem};

use nvml_wrapper::Device;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper_sys::bindings::{
    nvmlGpuFabricInfo_v2_t, nvmlGpuFabricInfo_v3_t, nvmlPlatformInfo_v2_t,
};

use super::gpu_calls::{GpuCalls, read, read_structure, take};
use super::raw::{handle, structure_version, until_nul};
use crate::base::text::Text;
use crate::base::units::Percent;
use crate::protocol::snapshot::{GpuDetail, Missing, Reading};

/// Words of a bit set with room for 4096 processors.
const CPU_WORDS: usize = 4096 / c_ulong::BITS as usize;
/// Words of a bit set with room for 1024 NUMA nodes.
const NODE_WORDS: usize = 1024 / c_ulong::BITS as usize;
/// Asks NVML for NUMA nodes, as opposed to sockets.
const SCOPE_NODE: u32 = 0;
/// `NVML_GPU_VIRTUALIZATION_MODE_NONE`.
const BARE: u32 = 0;
/// `NVML_GPU_VIRTUALIZATION_MODE_HOST_VGPU`.
const SHARED: u32 = 3;
/// `NVML_DEVICE_VGPU_CAP_…`: fractional vGPUs, time slices of several profiles and sizes,
/// placements, MIG support, MIG in use.
const VGPU: [u32; 6] = [0, 1, 2, 9, 10, 11];
const MOST_FANS: u32 = 16;

impl GpuCalls {
    /// Reads the place of the GPU, which does not change while the driver runs.
    pub(super) fn read_place(&mut self, detail: &mut GpuDetail) {
        take! { self, detail:
            cpus = self
                .read("nvmlDeviceGetCpuAffinity", |gpu| gpu.cpu_affinity(CPU_WORDS))
                .and_then(|set| members(&set));
            numa_nodes = self
                .read("nvmlDeviceGetMemoryAffinity", |gpu| {
                    gpu.memory_affinity(NODE_WORDS, SCOPE_NODE)
                })
                .and_then(|set| members(&set));
            numa_node = read!(self, nvmlDeviceGetNumaNodeId);
            pcie_generation_host_max = self.host_pcie_generation();
            vgpu = if read!(self, nvmlDeviceGetVirtualizationMode) == Ok(SHARED) {
                Ok(self.vgpu())
            } else {
                Err(Missing::Unsupported)
            };
            (chassis, slot, tray, rack_host, peer_type, module, fabric_guid) = {
                let platform = read_structure!(
                    self, nvmlDeviceGetPlatformInfo, nvmlPlatformInfo_v2_t, version 2
                );
                (
                    platform.map(|info| until_nul(&info.chassisSerialNumber)),
                    platform.map(|info| info.slotNumber.into()),
                    platform.map(|info| info.trayIndex.into()),
                    platform.map(|info| info.hostId.into()),
                    platform.map(|info| info.peerType.into()),
                    platform.map(|info| info.moduleId.into()),
                    platform.map(|info| hex(&info.ibGuid[..8]).into()),
                )
            };
        }
    }

    /// Reads the highest PCIe generation of the host's port. The PCI bridges of a virtual machine
    /// are not those of the host.
    fn host_pcie_generation(&mut self) -> Reading<u32> {
        let virtualization = read!(self, nvmlDeviceGetVirtualizationMode);
        let pci = self.read("nvmlDeviceGetPciInfo_v3", Device::pci_info);
        match (virtualization, pci) {
            (Ok(BARE), Ok(pci)) => {
                generation_of_port(Path::new("/sys/bus/pci/devices"), &pci.bus_id)
            }
            _ => Err(Missing::Unsupported),
        }
    }

    pub(super) fn read_fabric_and_fans(&mut self, detail: &mut GpuDetail) {
        take! { self, detail:
            (fabric, fabric_cluster) = {
                let fabric = self.read("nvmlDeviceGetGpuFabricInfoV", fabric);
                let fabric = match fabric {
                    Ok(fabric) if fabric.state == 0 => Err(Missing::Unsupported),
                    fabric => fabric,
                };
                let numbers = fabric.map(|fabric| {
                    [
                        u32::from(fabric.state),
                        fabric.status,
                        fabric.cliqueId,
                        fabric.healthMask,
                        fabric.healthSummary.into(),
                    ]
                });
                (numbers, fabric.map(|fabric| uuid(fabric.clusterUuid).into()))
            };
            fans = self.fans();
        }
    }

    /// Reads the capabilities of driver and GPU for virtual machines that share the GPU, in
    /// nvidia-smi's order.
    fn vgpu(&mut self) -> Vec<Option<bool>> {
        let driver = self
            .read(
                "nvmlGetVgpuDriverCapabilities",
                driver_supports_heterogeneous_vgpu,
            )
            .ok();
        let mut gpu = |capability: u32| {
            read!(self, nvmlDeviceGetVgpuCapabilities(capability))
                .ok()
                .map(|has| has != 0)
        };
        std::iter::once(driver).chain(VGPU.map(&mut gpu)).collect()
    }

    fn fans(&mut self) -> Reading<Vec<Percent>> {
        match read!(self, nvmlDeviceGetNumFans)? {
            0 => Err(Missing::Unsupported),
            count @ 1..=MOST_FANS => (0..count).map(|fan| self.fan(fan)).collect(),
            _ => Err(Missing::Failed),
        }
    }

    pub(super) fn fan(&mut self, fan: u32) -> Reading<Percent> {
        let percent = self.read_with("nvmlDeviceGetFanSpeed_v2", &[fan], |gpu| {
            match gpu.fan_speed(fan) {
                // A board without fans may return this error instead.
                Err(NvmlError::InvalidArg) if fan == 0 => Err(NvmlError::NotSupported),
                other => other,
            }
        });
        u16::try_from(percent?)
            .map(|percent| Percent::new(percent.into()))
            .map_err(|_| Missing::Failed)
    }
}

/// Older drivers have only version 2 of the structure, without the health summary.
fn fabric(device: &Device<'static>) -> Result<nvmlGpuFabricInfo_v3_t, NvmlError> {
    let function = nvml_sym(device.nvml().lib().nvmlDeviceGetGpuFabricInfoV.as_ref())?;
    // SAFETY: the structure is plain numbers, for all of which zero is valid.
    let mut info: nvmlGpuFabricInfo_v3_t = unsafe { mem::zeroed() };
    info.version = structure_version::<nvmlGpuFabricInfo_v3_t>(3);
    // SAFETY: `info` is the structure that this function fills, of the version in its field.
    match nvml_try(unsafe { function(handle(device), &raw mut info) }) {
        Err(NvmlError::UnexpectedVariant(_) | NvmlError::InvalidArg) => {
            info.version = structure_version::<nvmlGpuFabricInfo_v2_t>(2);
            // SAFETY: version 2 of the structure is a prefix of version 3.
            nvml_try(unsafe { function(handle(device), &raw mut info) })?;
        }
        other => other?,
    }
    Ok(info)
}

/// `nvmlGetVgpuDriverCapabilities`: whether one GPU can have virtual GPUs of several profiles.
fn driver_supports_heterogeneous_vgpu(gpu: &Device<'static>) -> Result<bool, NvmlError> {
    const HETEROGENEOUS: u32 = 0;
    let function = nvml_sym(gpu.nvml().lib().nvmlGetVgpuDriverCapabilities.as_ref())?;
    let mut has = 0;
    // SAFETY: NVML writes one number to `has`.
    nvml_try(unsafe { function(HETEROGENEOUS, &raw mut has) })?;
    Ok(has != 0)
}

/// Returns the highest PCIe generation of the host's root port, which is above the GPU and its PCIe
/// switches.
fn generation_of_port(devices: &Path, bus_id: &str) -> Reading<u32> {
    // NVML writes the PCI domain with eight digits; the kernel writes four, and more only where
    // needed.
    let (domain, place) = bus_id.split_once(':').ok_or(Missing::Failed)?;
    let name = format!("{}:{place}", domain.strip_prefix("0000").unwrap_or(domain)).to_lowercase();
    let path = fs::canonicalize(devices.join(&name)).map_err(|_| Missing::Unsupported)?;
    let is_root = |path: &&Path| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("pci"))
    };
    let root = path.ancestors().find(is_root).ok_or(Missing::Unsupported)?;
    let port = path
        .ancestors()
        .find(|ancestor| ancestor.parent() == Some(root))
        .filter(|port| *port != path);
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

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}

fn uuid(bytes: [u8; 16]) -> String {
    let hex = hex(&bytes);
    [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ]
    .join("-")
}

/// Formats the members of a bit set as ranges: `0-15,32-47`. An empty set means that NVML does not
/// know the members.
fn members(set: &[c_ulong]) -> Reading<Text> {
    let has =
        |bit: usize| set[bit / c_ulong::BITS as usize] >> (bit % c_ulong::BITS as usize) & 1 == 1;
    let all: Vec<usize> = (0..set.len() * c_ulong::BITS as usize)
        .filter(|bit| has(*bit))
        .collect();
    let ranges: Vec<String> = all
        .chunk_by(|one, next| one + 1 == *next)
        .filter_map(|range| match (range.first()?, range.last()?) {
            (first, last) if first == last => Some(first.to_string()),
            (first, last) => Some(format!("{first}-{last}")),
        })
        .collect();
    if ranges.is_empty() {
        Err(Missing::Unsupported)
    } else {
        Ok(ranges.join(",").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_processors_is_said_as_the_kernel_says_it() {
        let says = |set: &[c_ulong]| members(set).map(|text| text.to_string());
        assert_eq!(says(&[0b1111]), Ok("0-3".to_owned()));
        assert_eq!(says(&[1 << 63 | 0b101, 0b11]), Ok("0,2,63-65".to_owned()));
        assert_eq!(says(&[0, 0]), Err(Missing::Unsupported));
    }

    #[test]
    fn the_port_of_the_host_is_above_all_switches() {
        let home = tempfile::tempdir().unwrap();
        let generation = |bus_id| generation_of_port(&home.path().join("bus"), bus_id);
        let port = home.path().join("devices/pci0000:00/0000:00:01.0");
        let switch = port.join("0000:01:00.0");
        let gpu = switch.join("0000:0a:00.0");
        let alone = home.path().join("devices/pci0000:00/0000:00:09.0");
        for (place, speed) in [
            (&port, "32.0 GT/s PCIe\n"),
            (&switch, "16.0 GT/s PCIe\n"),
            (&gpu, "8.0 GT/s PCIe\n"),
        ] {
            fs::create_dir_all(place).unwrap();
            fs::write(place.join("max_link_speed"), speed).unwrap();
        }
        fs::create_dir_all(home.path().join("bus")).unwrap();
        fs::create_dir_all(&alone).unwrap();
        for place in [&gpu, &alone] {
            std::os::unix::fs::symlink(
                place,
                home.path().join("bus").join(place.file_name().unwrap()),
            )
            .unwrap();
        }
        assert_eq!(generation("00000000:0A:00.0"), Ok(5));
        assert_eq!(
            generation("00000000:00:09.0"),
            Err(Missing::Unsupported),
            "it hangs on no port"
        );
        assert_eq!(generation("00000000:FF:00.0"), Err(Missing::Unsupported));
        assert_eq!(
            generation("00010000:0A:00.0"),
            Err(Missing::Unsupported),
            "one of another domain"
        );
        assert_eq!(generation("GPU"), Err(Missing::Failed));
    }

    #[test]
    fn an_id_is_written_in_its_five_parts() {
        let bytes = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255];
        assert_eq!(uuid(bytes), "00010203-0405-0607-0809-0a0b0c0d0eff");
    }
}
