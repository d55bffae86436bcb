//! How a device is connected: PCI Express, NVLink, topology. And what no device here can do.

use crate::{
    abi::{Code, Handle, Out},
    devices::wandering,
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
    nvmlDeviceGetApplicationsClock
    nvmlDeviceGetAutoBoostedClocksEnabled
    nvmlDeviceGetBoardId
    nvmlDeviceGetBoardPartNumber
    nvmlDeviceGetBridgeChipInfo
    nvmlDeviceGetClock
    nvmlDeviceGetConfComputeMemSizeInfo
    nvmlDeviceGetCpuAffinity
    nvmlDeviceGetCpuAffinityWithinScope
    nvmlDeviceGetDefaultApplicationsClock
    nvmlDeviceGetDetailedEccErrors
    nvmlDeviceGetDriverModel
    nvmlDeviceGetDriverModel_v2
    nvmlDeviceGetDynamicPstatesInfo
    nvmlDeviceGetEncoderCapacity
    nvmlDeviceGetEncoderSessions
    nvmlDeviceGetFBCStats
    nvmlDeviceGetFanSpeedRPM
    nvmlDeviceGetGpuFabricInfo
    nvmlDeviceGetGpuFabricInfoV
    nvmlDeviceGetGpuOperationMode
    nvmlDeviceGetGspFirmwareVersion
    nvmlDeviceGetInforomConfigurationChecksum
    nvmlDeviceGetIrqNum
    nvmlDeviceGetMaxCustomerBoostClock
    nvmlDeviceGetMemoryAffinity
    nvmlDeviceGetMemoryBusWidth
    nvmlDeviceGetMinMaxFanSpeed
    nvmlDeviceGetModuleId
    nvmlDeviceGetMultiGpuBoard
    nvmlDeviceGetNumaNodeId
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
