//! How a device is connected: PCI Express, NVLink, topology. And what no device here can do.

use crate::{
    abi::{Code, FabricInfo, Handle, Out, PlatformInfo, version},
    devices::{expect_version, of_domain, wandering},
    gate::{At, device_calls},
    gpu::{NvLink, Pcie},
};

/// `NVML_TOPOLOGY_SYSTEM`: between two GPUs of ours lies the whole machine.
const SYSTEM: u32 = 50;

device_calls! {
    nvmlDeviceGetCurrPcieLinkGeneration(at, generation: Out<u32>) { generation.put(pcie(at)?.generation) }
    nvmlDeviceGetCurrPcieLinkWidth(at, lanes: Out<u32>) { lanes.put(pcie(at)?.width) }
    nvmlDeviceGetMaxPcieLinkGeneration(at, generation: Out<u32>) { generation.put(pcie(at)?.max_generation) }
    nvmlDeviceGetGpuMaxPcieLinkGeneration(at, generation: Out<u32>) { generation.put(pcie(at)?.max_generation) }
    nvmlDeviceGetMaxPcieLinkWidth(at, lanes: Out<u32>) { lanes.put(pcie(at)?.max_width) }
    nvmlDeviceGetPcieReplayCounter(at, count: Out<u32>) { count.put_some(pcie(at)?.replays) }
    nvmlDeviceGetPcieThroughput(at, direction: u32, kilobytes: Out<u32>) {
        kilobytes.put_some(match direction {
            0 => throughput(at, pcie(at)?.tx),
            1 => throughput(at, pcie(at)?.rx),
            _ => return Err(Code::INVALID_ARGUMENT),
        })
    }

    nvmlDeviceGetNvLinkState(at, link: u32, active: Out<u32>) { active.put(link_is_up(at, link)?.into()) }
    nvmlDeviceGetNvLinkVersion(at, link: u32, version: Out<u32>) {
        link_is_up(at, link)?;
        version.put(nvlink(at)?.version)
    }

    nvmlDeviceGetTopologyCommonAncestor(at, other: Handle, level: Out<u32>) {
        let other = at.scene.number(other)?;
        level.put(if other == at.number() { 0 } else { SYSTEM })
    }
    nvmlDeviceGetCpuAffinity(at, words: u32, set: Out<u64>) {
        // Half of 48 processors, as of a host with two of 24.
        (0..words as usize).try_for_each(|word| set.at(word).put(if word == 0 { 0xFF_FFFF << (24 * near(at)?) } else { 0 }))
    }
    nvmlDeviceGetMemoryAffinity(at, words: u32, set: Out<u64>, scope: u32) {
        if scope > 1 {
            return Err(Code::INVALID_ARGUMENT);
        }
        (0..words as usize).try_for_each(|word| set.at(word).put(if word == 0 { 1 << near(at)? } else { 0 }))
    }
    nvmlDeviceGetNumaNodeId(at, node: Out<u32>) { node.put_some(at.gpu()?.numa_node) }
    nvmlDeviceGetGpuFabricInfoV(at, info: Out<FabricInfo>) {
        let version = expect_version(info.cast(), version::<FabricInfo>(3))?;
        let fabric = at.gpu()?.fabric.as_ref();
        info.put(FabricInfo {
            version,
            cluster: [0; 16],
            clique: fabric.map_or(0, |it| it.clique),
            state: fabric.map_or(0, |it| it.state),
            status: fabric.map_or(0, |it| it.status),
            health: fabric.map_or(0, |it| it.health),
            summary: fabric.map_or(0, |it| it.summary),
        })
    }
    nvmlDeviceGetPlatformInfo(at, info: Out<PlatformInfo>) {
        let version = expect_version(info.cast(), version::<PlatformInfo>(2))?;
        let module = at.gpu()?.module.ok_or(Code::NOT_SUPPORTED)?;
        info.put(PlatformInfo { version, guid: [0; 16], chassis: [0; 16], slot: 0, tray: 0, host: 1, peer: 0, module })
    }
    nvmlDeviceGetApplicationsClock(at, domain: u32, mhz: Out<u32>) { mhz.put_some(application_clock(at, domain)?) }
    nvmlDeviceGetDefaultApplicationsClock(at, domain: u32, mhz: Out<u32>) { mhz.put_some(application_clock(at, domain)?) }
    nvmlDeviceGetAccountingMode(at, on: Out<u32>) { on.put_some(at.gpu()?.accounting.map(u32::from)) }
    nvmlDeviceGetAccountingBufferSize(at, size: Out<u32>) { size.put_some(at.gpu()?.accounting.map(|_| 4000)) }
}

/// Exports functions of devices that answer "not supported" always.
macro_rules! unsupported_calls {
    ($($name:ident)*) => { device_calls! { $($name(at) { at.gpu().and(Err(Code::NOT_SUPPORTED)) })* } };
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

/// From 580 on nobody sets them any more. Before, a board of a server has them.
fn application_clock(at: &At<'_>, domain: u32) -> Result<Option<u32>, Code> {
    if at.scene.world.driver.split('.').next().and_then(|it| it.parse::<u32>().ok()).is_some_and(|it| it >= 580) {
        return Err(Code::DEPRECATED);
    }
    let gpu = at.gpu()?;
    if gpu.ecc.is_none() { Ok(None) } else { of_domain(&gpu.max_clocks, domain) }
}

/// The half of the host that it is near: GPUs are shared out evenly.
fn near(at: &At<'_>) -> Result<u32, Code> {
    at.gpu()?.numa.ok_or(Code::NOT_SUPPORTED)
}

pub fn pcie<'a>(at: &'a At<'_>) -> Result<&'a Pcie, Code> {
    at.gpu()?.pcie.as_ref().ok_or(Code::NOT_SUPPORTED)
}

fn throughput(at: &At<'_>, kilobytes: Option<u32>) -> Option<u32> {
    kilobytes.map(|it| wandering(it, at.wave(10) * f64::from(it) * 0.6))
}

pub fn nvlink<'a>(at: &'a At<'_>) -> Result<&'a NvLink, Code> {
    at.gpu()?.nvlink.as_ref().ok_or(Code::NOT_SUPPORTED)
}

/// Whether that link is up, if there is one.
pub fn link_is_up(at: &At<'_>, link: u32) -> Result<bool, Code> {
    let NvLink { links, down, .. } = nvlink(at)?;
    if link < *links { Ok(link < links.saturating_sub(*down)) } else { Err(Code::INVALID_ARGUMENT) }
}
