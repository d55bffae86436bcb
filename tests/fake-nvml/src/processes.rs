//! Who is on a device, and how much of it each one uses.

use crate::{
    abi::{Answer, Code, Out, ProcessSample, ProcessShare, ProcessShares, version},
    devices::expect_version,
    gate::{At, device_calls},
    scene::Sight,
    system::number,
    world::Kind,
};

/// PIDs that no process can have, as drivers with another stride than the caller's make them.
const GARBAGE_PIDS: [u32; 4] = [u32::MAX, 0, 4_294_967_040, 1];

/// Bytes per entry.
const V1: usize = 16;
const V2: usize = 24;

device_calls! {
    nvmlDeviceGetComputeRunningProcesses(at, count: Out<u32>, infos: Out<u8>) { list(at, Kind::Compute, V1, count, infos) }
    nvmlDeviceGetComputeRunningProcesses_v2(at, count: Out<u32>, infos: Out<u8>) { list(at, Kind::Compute, V2, count, infos) }
    nvmlDeviceGetComputeRunningProcesses_v3(at, count: Out<u32>, infos: Out<u8>) {
        list(at, Kind::Compute, at.scene.world.stride, count, infos)
    }
    nvmlDeviceGetGraphicsRunningProcesses(at, count: Out<u32>, infos: Out<u8>) { list(at, Kind::Graphics, V1, count, infos) }
    nvmlDeviceGetGraphicsRunningProcesses_v2(at, count: Out<u32>, infos: Out<u8>) { list(at, Kind::Graphics, V2, count, infos) }
    nvmlDeviceGetGraphicsRunningProcesses_v3(at, count: Out<u32>, infos: Out<u8>) {
        list(at, Kind::Graphics, at.scene.world.stride, count, infos)
    }
    nvmlDeviceGetMPSComputeRunningProcesses(at, count: Out<u32>, infos: Out<u8>) { list(at, Kind::Mps, V1, count, infos) }
    nvmlDeviceGetMPSComputeRunningProcesses_v2(at, count: Out<u32>, infos: Out<u8>) { list(at, Kind::Mps, V2, count, infos) }
    nvmlDeviceGetMPSComputeRunningProcesses_v3(at, count: Out<u32>, infos: Out<u8>) {
        list(at, Kind::Mps, at.scene.world.stride, count, infos)
    }

    nvmlDeviceGetProcessUtilization(at, samples: Out<ProcessSample>, count: Out<u32>, last_seen_us: u64) {
        let (found, time_us) = samples_after(at, last_seen_us)?;
        room(found.len(), count, samples.is_null())?;
        for (index, it) in found.iter().enumerate() {
            let (pid, mem, enc, dec) = (it.pid, it.mem, it.enc, it.dec);
            let sm = if at.garbage { 4_000_000 } else { it.sm.unwrap_or(0) };
            samples.at(index).put(ProcessSample { pid, time_us, sm, mem, enc, dec })?;
        }
        Ok(())
    }
    nvmlDeviceGetProcessesUtilizationInfo(at, info: Out<ProcessShares>) {
        expect_version(info.cast(), version::<ProcessShares>(1))?;
        let ProcessShares { list, last_seen_us, .. } = info.get()?;
        let (found, time_us) = samples_after(at, last_seen_us)?;
        room(found.len(), info.cast::<u32>().at(1), list.is_null())?;
        for (index, it) in found.iter().enumerate() {
            let (pid, mem, enc, dec) = (it.pid, it.mem, it.enc, it.dec);
            let sm = if at.garbage { 4_000_000 } else { it.sm.unwrap_or(0) };
            list.at(index).put(ProcessShare { time_us, pid, sm, mem, enc, dec, jpeg: 0, ofa: 0 })?;
        }
        Ok(())
    }
}

/// Writes a process list with that many bytes per entry, whatever the caller takes them for.
fn list(at: &At<'_>, kind: Kind, stride: usize, count: Out<u32>, infos: Out<u8>) -> Answer {
    if at.board().no_process_lists {
        return Err(Code::NOT_SUPPORTED);
    }
    let is_silent = at.board().no_process_memory;
    let listed = || at.sights().iter().filter(|it| it.listed && it.kinds & kind.bit() != 0);
    room(listed().count(), count, infos.is_null())?;
    for (index, it) in listed().enumerate() {
        let entry = infos.at(index * stride);
        entry.cast().put(if at.garbage { GARBAGE_PIDS[index % GARBAGE_PIDS.len()] } else { it.pid })?;
        // The hole before the 64-bit field: a driver leaves what it finds there, and so do we.
        entry.at(8).cast().put(it.bytes.filter(|_| !is_silent).unwrap_or(u64::MAX))?;
        if stride >= V2 {
            entry.at(16).cast().put(it.gpu_instance)?;
            entry.at(20).cast().put(it.compute_instance)?;
        }
        if stride > V2 {
            entry.at(24).cast().put(0_u64)?;
        }
    }
    Ok(())
}

/// Tells the caller how many there are, and whether he has room for them.
fn room(found: usize, count: Out<u32>, no_list: bool) -> Answer {
    let capacity = count.get()? as usize;
    count.put(number(found))?;
    if found > capacity || (no_list && found > 0) { Err(Code::INSUFFICIENT_SIZE) } else { Ok(()) }
}

/// The clock of `/proc/uptime`, in microseconds.
fn since_boot_us() -> u64 {
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds = uptime.split(' ').next().and_then(|it| it.parse().ok()).unwrap_or(0.0);
    u64::try_from(std::time::Duration::from_secs_f64(seconds).as_micros()).unwrap_or(0)
}

/// The tenants with a sample that the caller has not seen, and its time.
fn samples_after(at: &At<'_>, last_seen_us: u64) -> Result<(Vec<Sight>, u64), Code> {
    let gpu = at.gpu()?;
    if !gpu.process_utilization {
        return Err(Code::NOT_SUPPORTED);
    }
    // The driver samples six times a second.
    let period = 166_667;
    let now_us = if at.scene.world.samples_since_boot { since_boot_us() } else { at.scene.now_us() };
    let latest = now_us / period * period;
    let time_us = if at.garbage { latest.saturating_sub(600_000_000) } else { latest };
    let found: Vec<Sight> = at.sights().iter().filter(|it| it.listed && it.sm.is_some()).cloned().collect();
    if found.is_empty() || (latest <= last_seen_us && !at.garbage) {
        return Err(Code::NOT_FOUND);
    }
    Ok((found, time_us))
}
