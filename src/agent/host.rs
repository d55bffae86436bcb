//! Reads the host's name, boot, processors and memory.

use std::fs;

use sysinfo::{CpuRefreshKind, MemoryRefreshKind, System};

use super::clock;
use crate::base::text::Text;
use crate::base::units::{Bytes, Moment, Percent};
use crate::protocol::snapshot::{HostFacts, HostLoad, Missing};

/// Reads facts and load of the host.
#[derive(Debug)]
pub(super) struct HostReader {
    /// `None` where sysinfo does not know the system.
    system: Option<System>,
    last: HostLoad,
    read: Option<Moment>,
    asked: Option<Moment>,
}

impl HostReader {
    pub(super) fn new() -> Self {
        Self { system: System::new().ok(), last: HostLoad::missing(Missing::NotYet), read: None, asked: None }
    }

    /// Reads the facts.
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

    /// Reads the load.
    pub(super) fn load(&mut self, now: Moment) -> HostLoad {
        // Two lines in quick succession share one reading: CPU use over so short a time is noise.
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
            // CPU use needs two readings.
            self.last.cpu = if first { Err(Missing::NotYet) } else { Ok(Percent::new(system.global_cpu_usage())) };
        }
        self.last.clone()
    }
}
