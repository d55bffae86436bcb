//! Connections of a device: PCI Express, NVLink, topology. Also the functions that no device
//! supports.

use crate::{
    abi::{Code, FabricInfo, Handle, Out, PlatformInfo, version},
    calls::{Device, device_calls},
    devices::{expect_version, of_domain},
    gpu::{NvLink, Pcie},
    machine::plus_u32,
};

/// `NVML_TOPOLOGY_SYSTEM`: two GPUs are connected through the link between CPUs.
const SYSTEM: u32 = 50;

device_calls! {
    nvmlDeviceGetCurrPcieLinkGeneration(device, generation: Out<u32>) { generation.write(pcie(device)?.generation) }
    nvmlDeviceGetCurrPcieLinkWidth(device, lanes: Out<u32>) { lanes.write(pcie(device)?.width) }
    nvmlDeviceGetMaxPcieLinkGeneration(device, generation: Out<u32>) { generation.write(pcie(device)?.max_generation) }
    nvmlDeviceGetGpuMaxPcieLinkGeneration(device, generation: Out<u32>) { generation.write(pcie(device)?.max_generation) }
    nvmlDeviceGetMaxPcieLinkWidth(device, lanes: Out<u32>) { lanes.write(pcie(device)?.max_width) }
    nvmlDeviceGetPcieReplayCounter(device, count: Out<u32>) { count.write_some(pcie(device)?.replays) }
    nvmlDeviceGetPcieThroughput(device, direction: u32, kilobytes: Out<u32>) {
        kilobytes.write_some(match direction {
            0 => throughput(device, pcie(device)?.tx),
            1 => throughput(device, pcie(device)?.rx),
            _ => return Err(Code::INVALID_ARGUMENT),
        })
    }

    nvmlDeviceGetNvLinkState(device, link: u32, active: Out<u32>) { active.write(link_is_up(device, link)?.into()) }
    nvmlDeviceGetNvLinkVersion(device, link: u32, version: Out<u32>) {
        link_is_up(device, link)?;
        version.write(nvlink(device)?.version)
    }

    nvmlDeviceGetTopologyCommonAncestor(device, other: Handle, level: Out<u32>) {
        let other = device.machine.number(other)?;
        level.write(if other == device.number() { 0 } else { SYSTEM })
    }
    nvmlDeviceGetCpuAffinity(device, words: u32, set: Out<u64>) {
        // A host with two CPUs of 24 cores: each GPU is near one of them.
        (0..words as usize).try_for_each(|word| set.offset(word).write(if word == 0 { 0xFF_FFFF << (24 * near(device)?) } else { 0 }))
    }
    nvmlDeviceGetMemoryAffinity(device, words: u32, set: Out<u64>, scope: u32) {
        if scope > 1 {
            return Err(Code::INVALID_ARGUMENT);
        }
        (0..words as usize).try_for_each(|word| set.offset(word).write(if word == 0 { 1 << near(device)? } else { 0 }))
    }
    nvmlDeviceGetNumaNodeId(device, node: Out<u32>) { node.write_some(device.gpu()?.numa_node) }
    nvmlDeviceGetGpuFabricInfoV(device, info: Out<FabricInfo>) {
        let version = expect_version(info.cast(), version::<FabricInfo>(3))?;
        let fabric = device.gpu()?.fabric.as_ref();
        info.write(FabricInfo {
            version,
            cluster: [0; 16],
            clique: fabric.map_or(0, |fabric| fabric.clique),
            state: fabric.map_or(0, |fabric| fabric.state),
            status: fabric.map_or(0, |fabric| fabric.status),
            health: fabric.map_or(0, |fabric| fabric.health),
            summary: fabric.map_or(0, |fabric| fabric.summary),
        })
    }
    nvmlDeviceGetPlatformInfo(device, info: Out<PlatformInfo>) {
        let version = expect_version(info.cast(), version::<PlatformInfo>(2))?;
        let module = device.gpu()?.module.ok_or(Code::NOT_SUPPORTED)?;
        info.write(PlatformInfo { version, guid: [0; 16], chassis: [0; 16], slot: 0, tray: 0, host: 1, peer: 0, module })
    }
    nvmlDeviceGetApplicationsClock(device, domain: u32, mhz: Out<u32>) { mhz.write_some(application_clock(device, domain)?) }
    nvmlDeviceGetDefaultApplicationsClock(device, domain: u32, mhz: Out<u32>) { mhz.write_some(application_clock(device, domain)?) }
    nvmlDeviceGetAccountingMode(device, on: Out<u32>) { on.write_some(device.gpu()?.accounting.map(u32::from)) }
    nvmlDeviceGetAccountingBufferSize(device, size: Out<u32>) { size.write_some(device.gpu()?.accounting.map(|_| 4000)) }
}

/// Exports functions that always answer "not supported".
macro_rules! unsupported_calls {
    ($($name:ident)*) => { device_calls! { $($name(device) { device.gpu().and(Err(Code::NOT_SUPPORTED)) })* } };
}

unsupported_calls! {
    nvmlDeviceGetAccountingPids
    nvmlDeviceGetAccountingStats
    nvmlDeviceGetAdaptiveClockInfoStatus
    nvmlDeviceGetAutoBoostedClocksEnabled
    nvmlDeviceGetBoardId
    nvmlDeviceGetBoardPartNumber
    nvmlDeviceGetBridgeChipInfo
    nvmlDeviceGetClock
    nvmlDeviceGetConfComputeMemSizeInfo
    nvmlDeviceGetCpuAffinityWithinScope
    nvmlDeviceGetDetailedEccErrors
    nvmlDeviceGetDriverModel
    nvmlDeviceGetDynamicPstatesInfo
    nvmlDeviceGetEncoderCapacity
    nvmlDeviceGetEncoderSessions
    nvmlDeviceGetFBCStats
    nvmlDeviceGetFanSpeedRPM
    nvmlDeviceGetGpuFabricInfo
    nvmlDeviceGetGpuOperationMode
    nvmlDeviceGetGspFirmwareVersion
    nvmlDeviceGetInforomConfigurationChecksum
    nvmlDeviceGetIrqNum
    nvmlDeviceGetMaxCustomerBoostClock
    nvmlDeviceGetMemoryBusWidth
    nvmlDeviceGetMinMaxFanSpeed
    nvmlDeviceGetModuleId
    nvmlDeviceGetMultiGpuBoard
    nvmlDeviceGetNvLinkCapability
    nvmlDeviceGetNvLinkErrorCounter
    nvmlDeviceGetNvLinkRemoteDeviceType
    nvmlDeviceGetNvLinkRemotePciInfo
    nvmlDeviceGetNvLinkRemotePciInfo_v2
    nvmlDeviceGetNvLinkUtilizationCounter
    nvmlDeviceGetP2PStatus
    nvmlDeviceGetPcieLinkMaxSpeed
    nvmlDeviceGetPcieSpeed
    nvmlDeviceGetPowerSource
    nvmlDeviceGetRunningProcessDetailList
    nvmlDeviceGetSupportedGraphicsClocks
    nvmlDeviceGetSupportedMemoryClocks
    nvmlDeviceGetSupportedPerformanceStates
    nvmlDeviceGetTargetFanSpeed
    nvmlDeviceGetThermalSettings
    nvmlDeviceGetTopologyNearestGpus
    nvmlDeviceGetViolationStatus
    nvmlDeviceGetVirtualizationMode
}

/// The application clock of a data-centre GPU; deprecated since driver 590. Driver 580.159 answers.
fn application_clock(device: &Device<'_>, domain: u32) -> Result<Option<u32>, Code> {
    if device
        .machine
        .world
        .driver
        .split('.')
        .next()
        .and_then(|major| major.parse::<u32>().ok())
        .is_some_and(|major| major >= 590)
    {
        return Err(Code::DEPRECATED);
    }
    let gpu = device.gpu()?;
    if gpu.ecc.is_none() {
        Ok(None)
    } else {
        of_domain(&gpu.max_clocks, domain)
    }
}

/// The half of the host (0 or 1) that the GPU is near.
fn near(device: &Device<'_>) -> Result<u32, Code> {
    device.gpu()?.numa.ok_or(Code::NOT_SUPPORTED)
}

pub fn pcie<'a>(device: &'a Device<'_>) -> Result<&'a Pcie, Code> {
    device.gpu()?.pcie.as_ref().ok_or(Code::NOT_SUPPORTED)
}

fn throughput(device: &Device<'_>, kilobytes: Option<u32>) -> Option<u32> {
    kilobytes.map(|kilobytes| plus_u32(kilobytes, device.wave(10) * f64::from(kilobytes) * 0.6))
}

pub fn nvlink<'a>(device: &'a Device<'_>) -> Result<&'a NvLink, Code> {
    device.gpu()?.nvlink.as_ref().ok_or(Code::NOT_SUPPORTED)
}

/// Whether a link is up; an error when there is no such link.
pub fn link_is_up(device: &Device<'_>, link: u32) -> Result<bool, Code> {
    let NvLink { links, down, .. } = nvlink(device)?;
    if link < *links {
        Ok(link < links.saturating_sub(*down))
    } else {
        Err(Code::INVALID_ARGUMENT)
    }
}
