//! The processes on a device, and the memory and utilization of each.

use crate::{
    abi::{Answer, Code, Out, ProcessSample, ProcessShare, ProcessShares, version},
    calls::{Device, device_calls},
    devices::expect_version,
    machine::ProcessState,
    system::number,
    world::ProcessKind,
};

/// PIDs that no process can have. A caller reads such PIDs when its entries have another size than
/// the driver's.
const GARBAGE_PIDS: [u32; 4] = [u32::MAX, 0, 4_294_967_040, 1];

/// Bytes per entry.
const V1: usize = 16;
const V2: usize = 24;

device_calls! {
    nvmlDeviceGetComputeRunningProcesses(device, count: Out<u32>, infos: Out<u8>) { list(device, ProcessKind::Compute, V1, count, infos) }
    nvmlDeviceGetComputeRunningProcesses_v2(device, count: Out<u32>, infos: Out<u8>) { list(device, ProcessKind::Compute, V2, count, infos) }
    nvmlDeviceGetComputeRunningProcesses_v3(device, count: Out<u32>, infos: Out<u8>) {
        list(device, ProcessKind::Compute, device.machine.world.stride, count, infos)
    }
    nvmlDeviceGetGraphicsRunningProcesses(device, count: Out<u32>, infos: Out<u8>) { list(device, ProcessKind::Graphics, V1, count, infos) }
    nvmlDeviceGetGraphicsRunningProcesses_v2(device, count: Out<u32>, infos: Out<u8>) { list(device, ProcessKind::Graphics, V2, count, infos) }
    nvmlDeviceGetGraphicsRunningProcesses_v3(device, count: Out<u32>, infos: Out<u8>) {
        list(device, ProcessKind::Graphics, device.machine.world.stride, count, infos)
    }
    nvmlDeviceGetMPSComputeRunningProcesses(device, count: Out<u32>, infos: Out<u8>) { list(device, ProcessKind::Mps, V1, count, infos) }
    nvmlDeviceGetMPSComputeRunningProcesses_v2(device, count: Out<u32>, infos: Out<u8>) { list(device, ProcessKind::Mps, V2, count, infos) }
    nvmlDeviceGetMPSComputeRunningProcesses_v3(device, count: Out<u32>, infos: Out<u8>) {
        list(device, ProcessKind::Mps, device.machine.world.stride, count, infos)
    }

    nvmlDeviceGetProcessUtilization(device, samples: Out<ProcessSample>, count: Out<u32>, last_seen_us: u64) {
        let (found, time_us) = samples_after(device, last_seen_us)?;
        check_room(found.len(), count, samples.is_null())?;
        for (index, process) in found.iter().enumerate() {
            let (pid, mem, enc, dec) = (process.pid, process.mem, process.enc, process.dec);
            let sm = if device.garbage { 4_000_000 } else { process.sm.unwrap_or(0) };
            samples.offset(index).write(ProcessSample { pid, time_us, sm, mem, enc, dec })?;
        }
        Ok(())
    }
    nvmlDeviceGetProcessesUtilizationInfo(device, info: Out<ProcessShares>) {
        expect_version(info.cast(), version::<ProcessShares>(1))?;
        let ProcessShares { list, last_seen_us, .. } = info.read()?;
        let (found, time_us) = samples_after(device, last_seen_us)?;
        check_room(found.len(), info.cast::<u32>().offset(1), list.is_null())?;
        for (index, process) in found.iter().enumerate() {
            let (pid, mem, enc, dec) = (process.pid, process.mem, process.enc, process.dec);
            let sm = if device.garbage { 4_000_000 } else { process.sm.unwrap_or(0) };
            list.offset(index).write(ProcessShare { time_us, pid, sm, mem, enc, dec, jpeg: 0, ofa: 0 })?;
        }
        Ok(())
    }
}

/// Writes a process list with this number of bytes per entry, which may differ from what the caller
/// expects.
fn list(
    device: &Device<'_>,
    kind: ProcessKind,
    stride: usize,
    count: Out<u32>,
    infos: Out<u8>,
) -> Answer {
    if device.physical_gpu().no_process_lists {
        return Err(Code::NOT_SUPPORTED);
    }
    let hides_memory = device.physical_gpu().no_process_memory;
    let listed = || {
        device
            .process_states()
            .iter()
            .filter(|process| process.listed && process.kinds & kind.bit() != 0)
    };
    check_room(listed().count(), count, infos.is_null())?;
    for (index, process) in listed().enumerate() {
        let entry = infos.offset(index * stride);
        entry.cast().write(if device.garbage {
            GARBAGE_PIDS[index % GARBAGE_PIDS.len()]
        } else {
            process.pid
        })?;
        // The padding before the 64-bit field stays as it is: real drivers do not write it either.
        entry
            .offset(8)
            .cast()
            .write(process.bytes.filter(|_| !hides_memory).unwrap_or(u64::MAX))?;
        if stride >= V2 {
            entry.offset(16).cast().write(process.gpu_instance)?;
            entry.offset(20).cast().write(process.compute_instance)?;
        }
        if stride > V2 {
            entry.offset(24).cast().write(0_u64)?;
        }
    }
    Ok(())
}

/// Writes the number of entries, and checks that the caller's list has room for them.
fn check_room(found: usize, count: Out<u32>, no_list: bool) -> Answer {
    let capacity = count.read()? as usize;
    count.write(number(found))?;
    if found > capacity || (no_list && found > 0) {
        Err(Code::INSUFFICIENT_SIZE)
    } else {
        Ok(())
    }
}

/// The clock of `/proc/uptime`, in microseconds.
fn since_boot_us() -> u64 {
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds = uptime
        .split(' ')
        .next()
        .and_then(|seconds| seconds.parse().ok())
        .unwrap_or(0.0);
    u64::try_from(std::time::Duration::from_secs_f64(seconds).as_micros()).unwrap_or(0)
}

/// The processes with a sample after this time, and the time of the sample.
fn samples_after(device: &Device<'_>, last_seen_us: u64) -> Result<(Vec<ProcessState>, u64), Code> {
    let gpu = device.gpu()?;
    if !gpu.process_utilization {
        return Err(Code::NOT_SUPPORTED);
    }
    // The driver samples six times a second.
    let period = 166_667;
    let now_us = if device.machine.world.samples_since_boot {
        since_boot_us()
    } else {
        device.machine.now_us()
    };
    let latest = now_us / period * period;
    let time_us = if device.garbage {
        latest.saturating_sub(600_000_000)
    } else {
        latest
    };
    let found: Vec<ProcessState> = device
        .process_states()
        .iter()
        .filter(|process| process.listed && process.sm.is_some())
        .cloned()
        .collect();
    if found.is_empty() || (latest <= last_seen_us && !device.garbage) {
        return Err(Code::NOT_FOUND);
    }
    Ok((found, time_us))
}
