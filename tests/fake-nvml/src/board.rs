//! What few ask of a device: its infoROM, its encoder's sessions, its firmware, its protected memory.

use std::ffi::c_char;

use crate::{
    abi::{Addressing, Code, MemoryV1, Out, SramStatus, version},
    devices::expect_version,
    gate::device_calls,
    gpu::EccCounts,
    health::ecc_counts,
};

device_calls! {
    nvmlDeviceGetInforomImageVersion(at, text: Out<c_char>, length: u32) {
        let inforom = at.gpu()?.inforom.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        text.text(length, inforom.image.as_ref().ok_or(Code::NOT_SUPPORTED)?)
    }
    nvmlDeviceGetInforomVersion(at, part: u32, text: Out<c_char>, length: u32) {
        let inforom = at.gpu()?.inforom.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        let version = match part {
            0 => &inforom.oem,
            1 => &inforom.ecc,
            2 => &inforom.power,
            _ => return Err(Code::INVALID_ARGUMENT),
        };
        text.text(length, version.as_ref().ok_or(Code::NOT_SUPPORTED)?)
    }
    nvmlDeviceValidateInforom(at) {
        let inforom = at.gpu()?.inforom.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        if inforom.corrupt { Err(Code::CORRUPTED_INFOROM) } else { Ok(()) }
    }

    nvmlDeviceGetEncoderStats(at, sessions: Out<u32>, fps: Out<u32>, latency: Out<u32>) {
        let stats = at.gpu()?.encoder.ok_or(Code::NOT_SUPPORTED)?;
        sessions.put(stats.0)?;
        fps.put(stats.1)?;
        latency.put(stats.2)
    }

    nvmlDeviceGetGspFirmwareMode(at, on: Out<u32>, by_default: Out<u32>) {
        let gsp = at.gpu()?.gsp.ok_or(Code::NOT_SUPPORTED)?;
        on.put(gsp.into())?;
        by_default.put(gsp.into())
    }

    nvmlDeviceGetDriverModel_v2(at, now: Out<u32>, then: Out<u32>) {
        now.put_some(at.gpu()?.driver_model)?;
        then.put_some(at.gpu()?.driver_model)
    }

    nvmlDeviceGetAddressingMode(at, mode: Out<Addressing>) {
        let version = expect_version(mode.cast(), version::<Addressing>(1))?;
        mode.put(Addressing { version, value: at.gpu()?.addressing.ok_or(Code::NOT_SUPPORTED)? })
    }
    nvmlDeviceGetC2cModeInfoV(at, on: Out<u32>) { on.put_some(at.gpu()?.c2c.map(u32::from)) }

    nvmlDeviceGetSramEccErrorStatus(at, status: Out<SramStatus>) {
        let version = expect_version(status.cast(), version::<SramStatus>(1))?;
        let (now, ever) = (ecc_counts(at, 0)?, ecc_counts(at, 1)?);
        let of = |it: &EccCounts| [it.sram_uncorrected, 0, it.sram_corrected];
        let mut counts = [0; 11];
        counts[..3].copy_from_slice(&of(ever));
        counts[3..6].copy_from_slice(&of(now));
        // All of them in the multiprocessors.
        counts[7] = ever.sram_uncorrected;
        status.put(SramStatus { version, counts, exceeded: 0 })
    }

    nvmlDeviceGetConfComputeProtectedMemoryUsage(at, memory: Out<MemoryV1>) {
        let (total, used) = at.gpu()?.protected_memory.ok_or(Code::NOT_SUPPORTED)?;
        memory.put(MemoryV1 { total, free: total - used, used })
    }
}
