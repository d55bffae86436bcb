//! The size of a checkpoint and the time to write and read it, with 8 GPUs and 64 processes whose
//! memory is noise.
//!
//! ```text
//! cargo bench --bench checkpoint
//! ```
//!
//! A measurement, not a test.

use std::io::{self, Write};
use std::time::Duration;

use gputop::base::units::{Bytes, Celsius, Moment, Percent, Watts};
use gputop::model::HostModel;
use gputop::protocol::change::{Change, OutOfStep};
use gputop::protocol::line::Line;
use gputop::protocol::snapshot::{AllocatorStats, Snapshot};
use serde_json::json;

const GPUS: u32 = 8;
const PROCESSES: u32 = 64;
/// The ticks between two checkpoints of a recording.
const TICKS: usize = 600;

fn main() -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let mut host = host()?;
    let mut noise = Noise(1);
    let mut model = HostModel::default();
    model.replace(host.clone());
    let mut seconds = 0;
    for (name, until) in [("1 hour", 3600), ("24 hours", 86_400), ("7 days", 604_800)] {
        while seconds < until {
            // The time before the last half hour fills the coarse tracks.
            let step = match until - seconds {
                0..=1800 => 1,
                _ if until > 86_400 => 100,
                _ => 10,
            };
            let next = later(&host, step, &mut noise)?;
            model
                .change(Change::between(&host, &next).ok_or_else(|| anyhow::anyhow!("no change"))?)
                .map_err(out_of_step)?;
            host = next;
            seconds += step;
        }
        let begin = now();
        let checkpoint = model
            .checkpoint()
            .ok_or_else(|| anyhow::anyhow!("no checkpoint"))?;
        let written = now().saturating_sub(begin);
        let mut line = Vec::new();
        let line_of = Line::Checkpoint(Box::new(checkpoint));
        line_of.write(&mut line)?;
        let state: serde_json::Value = serde_json::from_slice(&line)?;
        let begin = now();
        let parsed = Line::parse(&line)?.ok_or_else(|| anyhow::anyhow!("no line"))?;
        let mut other = HostModel::default();
        other.replace(host.clone());
        other.apply(parsed).map_err(out_of_step)?;
        let read = now().saturating_sub(begin);
        let packed = zstd::bulk::compress(&line, 3)?.len();
        writeln!(
            out,
            "{name}: {} bytes, {packed} with zstd 3, written in {written:?}, read in {read:?}",
            line.len()
        )?;
        for part in ["history", "leaks", "records", "news"] {
            let text = serde_json::to_vec(&state["state"][part])?;
            writeln!(
                out,
                "  {part}: {} bytes, {} with zstd 3",
                text.len(),
                zstd::bulk::compress(&text, 3)?.len()
            )?;
        }
        let mut lines = Vec::new();
        let mut last = host.clone();
        for _ in 0..TICKS {
            let next = later(&last, 1, &mut noise)?;
            let change =
                Change::between(&last, &next).ok_or_else(|| anyhow::anyhow!("no change"))?;
            let mut line = Vec::new();
            Line::Tick(Box::new(change)).write(&mut line)?;
            lines.push(line);
            last = next;
        }
        let bytes: usize = lines.iter().map(Vec::len).sum();
        let packed = zstd::bulk::compress(&lines.concat(), 3)?.len();
        let (mut parsing, mut applying) = (Duration::ZERO, Duration::ZERO);
        for line in &lines {
            let begin = now();
            let Some(Line::Tick(change)) = Line::parse(line)? else {
                anyhow::bail!("no tick")
            };
            parsing += now().saturating_sub(begin);
            let begin = now();
            other.change(*change).map_err(out_of_step)?;
            applying += now().saturating_sub(begin);
        }
        writeln!(
            out,
            "  {TICKS} ticks: {bytes} bytes, {packed} with zstd 3, parsed in {parsing:?}, applied in {applying:?}"
        )?;
    }
    Ok(())
}

/// The CPU time of this thread: on a busy machine, elapsed time would include other processes.
fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

fn out_of_step(_: OutOfStep) -> anyhow::Error {
    anyhow::anyhow!("a tick is of another line")
}

/// Returns the next snapshot, in which the memory of all processes has changed.
fn later(host: &Snapshot, seconds: u64, noise: &mut Noise) -> anyhow::Result<Snapshot> {
    let mut host = host.clone();
    host.sequence += 1;
    host.interval_ms = seconds * 1000;
    host.at = Moment(host.at.0 + seconds * 1000);
    host.unix_ms += seconds * 1000;
    for gpu in &mut host.gpus {
        gpu.load.at = host.at;
        gpu.load.memory_used = Ok(Bytes(0));
        gpu.load.sm = Ok(Percent::new(f32::from(u8::try_from(noise.below(100))?)));
        gpu.load.power = Ok(Watts::from_milliwatts(400_000 + noise.below(200_000)));
        gpu.load.temperature = Ok(Celsius(60 + i32::try_from(noise.below(3))?));
        for gpu_process in &mut gpu.processes {
            // The allocator takes segments of 2 MiB.
            let memory = Bytes::from_mib(u64::from(1000 + 2 * noise.below(3500)));
            gpu_process.memory = Ok(memory);
            gpu_process.sm = Ok(Percent::new(f32::from(u8::try_from(noise.below(100))?)));
            gpu.load.memory_used = gpu.load.memory_used.map(|used| Bytes(used.0 + memory.0));
        }
    }
    for process in &mut host.processes {
        process.load.rss = Ok(Bytes::from_kib(
            (3 << 20) + u64::from(noise.below(4000)) * 4,
        ));
        for device in process
            .allocator
            .iter_mut()
            .flat_map(|stats| &mut stats.devices)
        {
            // Tensors are multiples of 512 bytes.
            device.allocated = Ok(Bytes(u64::from(noise.below(8_000_000)) * 512));
            device.reserved = Ok(Bytes::from_mib(u64::from(4000 + 2 * noise.below(2000))));
            device.active = device.allocated;
            device.requested = device.allocated;
        }
    }
    Ok(host)
}

/// Pseudo-random numbers, the same in each run.
struct Noise(u32);

impl Noise {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) % end
    }
}

/// The snapshot of a host. Readings that are left out are missing.
fn host() -> anyhow::Result<Snapshot> {
    let at = 1_000_000;
    let gpu = |index: u32| {
        let own = (0..PROCESSES).filter(|number| number % GPUS == index);
        let gpu_process = |number| json!({"pid": 1000 + number, "start_ticks": number, "type": "compute", "memory_used_bytes": 0, "sm_utilization_percent": 40.0});
        json!({
            "uuid": format!("GPU-{index}"),
            "facts": {"index": index, "parent_uuid": null, "simulated": false, "name": "H100"},
            "load": {
                "time_ms": at, "memory_used_bytes": 0, "memory_total_bytes": 80_u64 << 30, "sm_utilization_percent": 50.0,
                "temperature_celsius": 50, "power_watts": 300.0,
            },
            "health": {"time_ms": at, "xids": []},
            "processes": own.map(gpu_process).collect::<Vec<_>>(),
            "device_file_holders": [],
        })
    };
    let process = |number: u32| {
        let stats = json!({"devices": [{
            "device_index": 0, "gpu_uuid": format!("GPU-{}", number % GPUS), "allocated_bytes": 0, "active_bytes": 0,
            "requested_bytes": 0, "inactive_split_bytes": 0, "reserved_bytes": 0,
        }], "unreadable": null});
        json!({
            "pid": 1000 + number,
            "start_ticks": number,
            "facts": {"identity": "sure", "user": "alice", "parent_pid": 1, "comm": "python", "argv": ["python", "/home/alice/project/train.py", "--config", format!("configs/run{number}.yaml")]},
            "load": {"state": "sleeping", "cpu_percent": 99.0, "rss_bytes": 3_u64 << 30},
            "allocator_stats": serde_json::from_value::<AllocatorStats>(stats).ok(),
        })
    };
    let host = json!({
        "schema": Snapshot::SCHEMA, "sequence": 0, "time_ms": at, "unix_time_ms": 1_700_000_000_000_u64, "interval_ms": 1000,
        "host": {
            "facts": {"name": "box", "boot_id": "b007", "ticks_per_second": 100, "agent_uid": 1000},
            "load": {},
            "scan": {"time_ms": at, "processes": 300, "unreadable_processes": 0},
        },
        "driver": {},
        "gpus": (0..GPUS).map(gpu).collect::<Vec<_>>(),
        "processes": (0..PROCESSES).map(process).collect::<Vec<_>>(),
    });
    Ok(serde_json::from_value(host)?)
}
