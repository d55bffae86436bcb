//! InfoROM, encoder sessions, GSP firmware, addressing mode, SRAM errors and protected memory of a
//! device.

use std::ffi::c_char;

use crate::{
    abi::{Addressing, Code, MemoryV1, Out, SramStatus, version},
    calls::device_calls,
    devices::expect_version,
    gpu::EccCounts,
    health::ecc_counts,
};

device_calls! {
    nvmlDeviceGetInforomImageVersion(device, text: Out<c_char>, length: u32) {
        let inforom = device.gpu()?.inforom.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        text.text(length, inforom.image.as_ref().ok_or(Code::NOT_SUPPORTED)?)
    }
    nvmlDeviceGetInforomVersion(device, part: u32, text: Out<c_char>, length: u32) {
        let inforom = device.gpu()?.inforom.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        let version = match part {
            0 => &inforom.oem,
            1 => &inforom.ecc,
            2 => &inforom.power,
            _ => return Err(Code::INVALID_ARGUMENT),
        };
        text.text(length, version.as_ref().ok_or(Code::NOT_SUPPORTED)?)
    }
    nvmlDeviceValidateInforom(device) {
        let inforom = device.gpu()?.inforom.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        if inforom.corrupt { Err(Code::CORRUPTED_INFOROM) } else { Ok(()) }
    }

    nvmlDeviceGetEncoderStats(device, sessions: Out<u32>, fps: Out<u32>, latency: Out<u32>) {
        let stats = device.gpu()?.encoder.ok_or(Code::NOT_SUPPORTED)?;
        sessions.write(stats.0)?;
        fps.write(stats.1)?;
        latency.write(stats.2)
    }

    nvmlDeviceGetGspFirmwareMode(device, on: Out<u32>, by_default: Out<u32>) {
        let gsp = device.gpu()?.gsp.ok_or(Code::NOT_SUPPORTED)?;
        on.write(gsp.into())?;
        by_default.write(gsp.into())
    }

    nvmlDeviceGetDriverModel_v2(device, now: Out<u32>, then: Out<u32>) {
        now.write_some(device.gpu()?.driver_model)?;
        then.write_some(device.gpu()?.driver_model)
    }

    nvmlDeviceGetAddressingMode(device, mode: Out<Addressing>) {
        let version = expect_version(mode.cast(), version::<Addressing>(1))?;
        mode.write(Addressing { version, value: device.gpu()?.addressing.ok_or(Code::NOT_SUPPORTED)? })
    }
    nvmlDeviceGetC2cModeInfoV(device, on: Out<u32>) { on.write_some(device.gpu()?.c2c.map(u32::from)) }

    nvmlDeviceGetSramEccErrorStatus(device, status: Out<SramStatus>) {
        let version = expect_version(status.cast(), version::<SramStatus>(1))?;
        let (volatile, aggregate) = (ecc_counts(device, 0)?, ecc_counts(device, 1)?);
        let by_kind = |counts: &EccCounts| [counts.sram_uncorrected, 0, counts.sram_corrected];
        let mut counts = [0; 11];
        counts[..3].copy_from_slice(&by_kind(aggregate));
        counts[3..6].copy_from_slice(&by_kind(volatile));
        // All errors are in the multiprocessors.
        counts[7] = aggregate.sram_uncorrected;
        status.write(SramStatus { version, counts, exceeded: 0 })
    }

    nvmlDeviceGetConfComputeProtectedMemoryUsage(device, memory: Out<MemoryV1>) {
        let (total, used) = device.gpu()?.protected_memory.ok_or(Code::NOT_SUPPORTED)?;
        memory.write(MemoryV1 { total, free: total - used, used })
    }
}
