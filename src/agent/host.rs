//! The host itself: its name, its boot, its processors and memory.

use std::fs;

use sysinfo::{CpuRefreshKind, MemoryRefreshKind, System};

use super::clock;
use crate::base::text::Text;
use crate::base::units::{Bytes, Moment, Percent};
use crate::protocol::snapshot::{HostFacts, HostLoad, Missing};

/// Reads the host.
#[derive(Debug)]
pub(super) struct Host {
    /// Absent where this system cannot be read at all.
    system: Option<System>,
    last: HostLoad,
    read: Option<Moment>,
    asked: Option<Moment>,
}

impl Host {
    pub(super) fn new() -> Self {
        Self { system: System::new().ok(), last: HostLoad::missing(Missing::NotYet), read: None, asked: None }
    }

    /// What does not change.
    pub(super) fn facts() -> HostFacts {
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        HostFacts {
            name: Text::new(rustix::system::uname().nodename().to_bytes()),
            boot_id: boot_id.trim_end().into(),
            ticks_per_second: rustix::param::clock_ticks_per_second(),
            uid: rustix::process::getuid().as_raw(),
            utc_offset: clock::utc_offset().ok_or(Missing::Failed),
            cpus: std::thread::available_parallelism()
                .map_err(|_| Missing::Failed)
                .and_then(|cpus| u32::try_from(cpus.get()).map_err(|_| Missing::Failed)),
        }
    }

    /// What changes.
    pub(super) fn load(&mut self, now: Moment) -> HostLoad {
        // Two lines close to each other share one reading: the shares of so short a time say nothing.
        if self.read.is_some_and(|read| now.since(read) < sysinfo::MINIMUM_CPU_UPDATE_INTERVAL / 2) {
            return self.last.clone();
        }
        self.read = Some(now);
        let Some(system) = &mut self.system else { return HostLoad::missing(Missing::Failed) };
        system.refresh_memory_specifics(MemoryRefreshKind::everything());
        let total = system.total_memory();
        let memory = |bytes| if total > 0 { Ok(Bytes(bytes)) } else { Err(Missing::Failed) };
        let load = System::load_average().map(|load| [load.one, load.five, load.fifteen]);
        self.last = HostLoad {
            cpu: self.last.cpu,
            load: load.map_err(|_| Missing::Failed),
            memory_used: memory(total.saturating_sub(system.available_memory())),
            memory_total: memory(total),
            swap_used: memory(system.used_swap()),
            swap_total: memory(system.total_swap()),
        };
        let first = self.asked.is_none();
        if self.asked.is_none_or(|asked| now.since(asked) >= sysinfo::MINIMUM_CPU_UPDATE_INTERVAL) {
            self.asked = Some(now);
            system.refresh_cpu_specifics(CpuRefreshKind::nothing().with_usage());
            // A share needs two readings.
            self.last.cpu = if first { Err(Missing::NotYet) } else { Ok(Percent::new(system.global_cpu_usage())) };
        }
        self.last.clone()
    }
}
