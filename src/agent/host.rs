//! Reads the host's name, boot, processors and memory.

use std::fs;

use sysinfo::{CpuRefreshKind, MemoryRefreshKind, System};

use super::procfs::device_files::stand_in;
use super::procfs::slurm_job_of;
use crate::base::text::Text;
use crate::base::units::{Bytes, Moment, Percent};
use crate::files::local_time;
use crate::protocol::snapshot::{HostFacts, HostLoad, Missing, Reading};

/// The folder in which the kernel module has a folder for each GPU. A control group that hides device
/// files hides none of them.
const DRIVER_GPUS: &str = "/proc/driver/nvidia/gpus";

/// The ending of the folder that stands in for it in tests.
const STAND_IN: &str = "-gpus";

/// Counts the GPUs that the kernel module lists; `None` where it lists none.
fn driver_gpus() -> Option<u32> {
    let folder = stand_in(STAND_IN).unwrap_or_else(|| DRIVER_GPUS.into());
    let count = fs::read_dir(folder).ok()?.count();
    u32::try_from(count).ok().filter(|count| *count > 0)
}

#[derive(Debug)]
pub(super) struct HostReader {
    /// `None` when sysinfo does not support this system.
    system: Option<System>,
    cpu: Reading<Percent>,
    /// `None` before CPU use was first read.
    cpu_read: Option<Moment>,
}

impl HostReader {
    pub(super) fn new() -> Self {
        Self {
            system: System::new().ok(),
            cpu: Err(Missing::NotYet),
            cpu_read: None,
        }
    }

    pub(super) fn facts() -> HostFacts {
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let cpus = std::thread::available_parallelism().ok();
        HostFacts {
            name: Text::new(rustix::system::uname().nodename().to_bytes()),
            boot_id: boot_id.trim_end().into(),
            ticks_per_second: rustix::param::clock_ticks_per_second(),
            uid: rustix::process::getuid().as_raw(),
            driver_gpus: driver_gpus(),
            slurm_job: fs::read("/proc/self/cgroup")
                .ok()
                .and_then(|cgroup| slurm_job_of(&cgroup)),
            hides_processes: Ok(!fs::exists("/proc/1").unwrap_or(true)),
            utc_offset: local_time::utc_offset().ok_or(Missing::Failed),
            cpus: cpus
                .and_then(|cpus| u32::try_from(cpus.get()).ok())
                .ok_or(Missing::Failed),
        }
    }

    pub(super) fn load(&mut self, now: Moment) -> HostLoad {
        let Some(system) = &mut self.system else {
            return HostLoad::missing(Missing::Failed);
        };
        system.refresh_memory_specifics(MemoryRefreshKind::everything());
        let total = system.total_memory();
        let memory = |bytes| {
            if total > 0 {
                Ok(Bytes(bytes))
            } else {
                Err(Missing::Failed)
            }
        };
        let load = System::load_average().map(|load| [load.one, load.five, load.fifteen]);
        // CPU use needs two readings, and is noise over a short time.
        let is_due = |read| now.since(read) >= sysinfo::MINIMUM_CPU_UPDATE_INTERVAL;
        if self.cpu_read.is_none_or(is_due) {
            system.refresh_cpu_specifics(CpuRefreshKind::nothing().with_usage());
            if self.cpu_read.replace(now).is_some() {
                self.cpu = Ok(Percent::new(system.global_cpu_usage()));
            }
        }
        HostLoad {
            cpu: self.cpu,
            load: load.map_err(|_| Missing::Failed),
            memory_used: memory(total.saturating_sub(system.available_memory())),
            memory_total: memory(total),
            swap_used: memory(system.used_swap()),
            swap_total: memory(system.total_swap()),
        }
    }
}
