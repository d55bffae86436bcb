//! A host for the tests: GPUs, and processes on them, each given in a few words.

use super::{
    AllocatorStats, DeviceAllocator, Driver, Gpu, GpuFacts, GpuHealth, GpuLoad, GpuProcess,
    GpuUuid, Host, HostFacts, HostLoad, HostScan, Identity, Missing, MissingLists, Process,
    ProcessFacts, ProcessId, ProcessLoad, Snapshot, State, Use,
};
use crate::base::text::Text;
use crate::base::units::{Bytes, Celsius, Moment, Percent, Watts};

/// Returns the snapshot of a host with this many GPUs of 80 GiB and no processes, 1000 s after
/// boot.
pub(crate) fn host(gpus: u32) -> Snapshot {
    Snapshot {
        schema: Snapshot::SCHEMA,
        sequence: 0,
        at: Moment(1_000_000),
        unix_ms: 1_700_000_000_000,
        interval_ms: 1000,
        agent: None,
        host: Host {
            facts: HostFacts {
                hides_processes: Ok(false),
                utc_offset: Ok(0),
                cpus: Ok(64),
                ..HostFacts::missing("box".into(), "b007".into(), 100, 1000, Missing::NotYet)
            },
            load: HostLoad {
                cpu: Ok(Percent::new(12.0)),
                load: Ok([1.0, 2.0, 3.0]),
                memory_used: Ok(Bytes::from_gib(100)),
                memory_total: Ok(Bytes::from_gib(512)),
                swap_used: Ok(Bytes(0)),
                swap_total: Ok(Bytes(0)),
            },
            scan: HostScan::missing(Moment(1_000_000), 300, 0, Missing::NotYet),
        },
        driver: Driver {
            version: Some("580.65.06".into()),
            cuda_version: Some("13.0".into()),
            trouble: None,
            failures: Vec::new(),
        },
        gpus: (0..gpus).map(gpu).collect(),
        processes: Vec::new(),
    }
}

fn gpu(index: u32) -> Gpu {
    let at = Moment(1_000_000);
    Gpu {
        uuid: GpuUuid(format!("GPU-{index}").into()),
        facts: GpuFacts {
            name: Ok("NVIDIA H100 80GB HBM3".into()),
            slowdown_temperature: Ok(Celsius(89)),
            ..GpuFacts::missing(index, None, false, Missing::Unsupported)
        },
        load: GpuLoad {
            memory_used: Ok(Bytes(0)),
            memory_total: Ok(Bytes::from_gib(80)),
            sm: Ok(Percent::new(50.0)),
            temperature: Ok(Celsius(50)),
            power: Ok(Watts::from_milliwatts(300_000)),
            throttle: Ok(Vec::new()),
            ..GpuLoad::missing(at, Missing::Unsupported)
        },
        health: GpuHealth::missing(at, Vec::new(), Missing::Unsupported),
        shared_memory: None,
        detail: None,
        processes: Vec::new(),
        missing: MissingLists::default(),
        device_file_holders: Vec::new(),
        trouble: None,
        failures: vec![],
    }
}

/// Returns the allocator stats of a process with one device.
pub(crate) fn allocator_stats(
    gpu: Option<GpuUuid>,
    reserved: Bytes,
    allocated: Bytes,
) -> AllocatorStats {
    let allocator = DeviceAllocator {
        allocated: Ok(allocated),
        active: Ok(allocated),
        requested: Ok(allocated),
        inactive_split: Ok(Bytes(0)),
        reserved: Ok(reserved),
        ..DeviceAllocator::missing(0, gpu, Missing::NotYet)
    };
    AllocatorStats {
        devices: vec![allocator],
        unreadable: None,
    }
}

impl Snapshot {
    /// Adds a process of alice on the GPU at this index, which holds this much memory there. Call
    /// it again to put the same process on another GPU.
    pub(crate) fn with(mut self, pid: u32, command: &str, gpu: usize, memory: Bytes) -> Self {
        let id = ProcessId {
            pid,
            start_ticks: Some(u64::from(pid)),
        };
        let gpu_process = GpuProcess {
            process: id,
            usage: Use::Compute,
            memory: Ok(memory),
            sm: Ok(Percent::new(40.0)),
            engines: None,
            names: None,
        };
        self.gpus[gpu].processes.push(gpu_process);
        if let Ok(used) = &mut self.gpus[gpu].load.memory_used {
            used.0 += memory.0;
        }
        if self.process(id).is_some() {
            self
        } else {
            self.related(pid, 1, command)
        }
    }

    /// Adds a process of alice on no GPU, with this parent.
    pub(crate) fn related(mut self, pid: u32, parent: u32, command: &str) -> Self {
        let id = ProcessId {
            pid,
            start_ticks: Some(u64::from(pid)),
        };
        let facts = ProcessFacts {
            uid: Ok(1000),
            user: Ok("alice".into()),
            parent: Ok(parent),
            comm: Ok("python".into()),
            argv: Ok(command.split(' ').map(Text::from).collect()),
            ..ProcessFacts::missing(Identity::Sure, Missing::NotYet)
        };
        let load = ProcessLoad {
            state: Ok(State::Sleeping),
            threads: Ok(12),
            cpu: Ok(Percent::new(99.0)),
            rss: Ok(Bytes::from_gib(3)),
            wchan: Err(Missing::Unsupported),
        };
        self.processes.push(Process {
            id,
            facts: facts.into(),
            load,
            allocator: None,
            probe: None,
            bytes_read: None,
        });
        self.processes.sort_by_key(|process| process.id);
        self
    }

    /// Returns the snapshot of the next pass, this many seconds later.
    pub(crate) fn later(&self, seconds: u64) -> Self {
        let mut next = self.clone();
        next.sequence += 1;
        next.at = Moment(self.at.0 + seconds * 1000);
        next.unix_ms += seconds * 1000;
        for gpu in &mut next.gpus {
            gpu.load.at = next.at;
        }
        next
    }

    /// Removes the processes with this PID, and the memory that they hold. A GPU that they leave to
    /// no other process does nothing.
    pub(crate) fn without(mut self, pid: u32) -> Self {
        self.processes.retain(|process| process.id.pid != pid);
        for gpu in &mut self.gpus {
            let (gone, rest): (Vec<_>, Vec<_>) = gpu
                .processes
                .drain(..)
                .partition(|gpu_process| gpu_process.process.pid == pid);
            gpu.processes = rest;
            if gpu.processes.is_empty() && !gone.is_empty() {
                gpu.load.sm = Ok(Percent::new(0.0));
            }
            let freed: Bytes = gone
                .iter()
                .filter_map(|gpu_process| gpu_process.memory.ok())
                .sum();
            gpu.load.memory_used = gpu.load.memory_used.map(|used| used.saturating_sub(freed));
        }
        self
    }
}
