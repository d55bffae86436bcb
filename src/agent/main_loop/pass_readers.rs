//! The readers of everything in a line besides the readings of the driver.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::mpsc::Sender;

use super::probed_holders;
use super::scan_state::ScanState;
use crate::agent::demo::Simulation;
use crate::agent::host::HostReader;
use crate::agent::probe::ProbeReader;
use crate::agent::procfs::Processes;
use crate::agent::procfs::device_files::DeviceFiles;
use crate::agent::pytorch::{AllocatorReader, DeviceProof, cuda_devices};
use crate::agent::{AgentEvent, GpuReadings};
use crate::base::units::Moment;
use crate::protocol::snapshot::{
    Gpu, GpuProcess, HostFacts, HostLoad, Missing, MissingLists, Process, ProcessId, SharedMemory,
};

/// The most groups of tensors of one process: more would be most of a line.
const MOST_GROUPS: usize = 32;
/// The most groups with `--detail`.
const ALL_GROUPS: usize = 1000;

pub(super) struct PassReaders {
    pub(super) processes: Processes,
    pub(super) allocators: AllocatorReader,
    /// For each process with allocator stats on several GPUs: which of them its CUDA devices are.
    device_proofs: BTreeMap<ProcessId, DeviceProof>,
    probes: ProbeReader,
    pub(super) host: HostReader,
    pub(super) host_facts: HostFacts,
}

impl PassReaders {
    /// With `detail`, up to [`ALL_GROUPS`] groups of tensors of each process are read.
    pub(super) fn new(detail: bool, is_demo: bool, events: &Sender<AgentEvent>) -> Self {
        Self {
            processes: Processes::new(is_demo, DeviceFiles::from_environment(), events.clone()),
            allocators: AllocatorReader::new(events.clone()),
            device_proofs: BTreeMap::new(),
            probes: ProbeReader::new(if detail { ALL_GROUPS } else { MOST_GROUPS }),
            host: HostReader::new(),
            host_facts: HostReader::facts(),
        }
    }

    pub(super) fn request_allocators(&mut self, now: Moment) {
        self.allocators.request(self.processes.listed(), now);
    }

    /// Begins a pass over the processes. The first pass reads only some in full: those with the
    /// most GPU memory.
    pub(super) fn begin_pass(&mut self, is_first: bool, gpus: &[GpuReadings]) {
        if !is_first {
            self.processes.begin_pass();
            return;
        }
        self.processes.begin_first_pass();
        let mut listed: Vec<_> = gpus.iter().flat_map(|gpu| &gpu.processes).collect();
        listed.sort_by_key(|process| Reverse(process.memory.ok()));
        for process in listed {
            self.processes
                .read_listed(process.pid, process.listed, process.memory);
        }
    }

    /// Converts the readings of a GPU to the protocol's type, and looks up its processes in `/proc`.
    pub(super) fn join(&mut self, gpu: &GpuReadings, host: &HostLoad) -> Gpu {
        let processes = &mut self.processes;
        let shared_memory = || {
            Some(SharedMemory {
                used: host.memory_used.ok()?,
                total: host.memory_total.ok()?,
            })
        };
        let gpu_processes = gpu.processes.iter().map(|process| GpuProcess {
            process: processes.read_listed(process.pid, process.listed, process.memory),
            usage: process.usage,
            memory: process.memory,
            sm: process.sm,
            engines: process.engines,
            names: None,
        });
        Gpu {
            uuid: gpu.uuid.clone(),
            facts: gpu.facts.clone(),
            load: gpu.load.clone(),
            health: gpu.health.clone(),
            shared_memory: gpu.shares_memory.then(shared_memory).flatten(),
            detail: gpu.detail.clone(),
            processes: gpu_processes.collect(),
            missing: MissingLists {
                processes: gpu.processes_missing,
                processes_not_asked: gpu.processes_missing == Some(Missing::NotAsked),
            },
            device_file_holders: vec![],
            trouble: gpu.trouble.clone(),
            failures: gpu.failures.clone(),
        }
    }

    /// Reads the processes that no GPU lists: those of a simulated machine that hold memory, and
    /// those that a scan found. Ends the pass, and returns all processes of it.
    pub(super) fn read_others(
        &mut self,
        scans: &ScanState,
        simulation: Option<&Simulation>,
    ) -> Vec<Process> {
        for holder in simulation.into_iter().flat_map(Simulation::holders) {
            self.processes.read_holder(holder);
        }
        let scan = scans.result.as_deref();
        let related = scan.map_or(&[][..], |scan| &*scan.related);
        let holders = scan.map_or(&[][..], |scan| &*scan.device_file_holders);
        let is_holder = |id| {
            holders
                .binary_search_by_key(&id, |(holder, _)| *holder)
                .is_ok()
        };
        self.processes
            .read_related(related, scans.is_full_requested, is_holder);
        self.processes.end_pass().cloned().collect()
    }

    pub(super) fn add_allocators(&mut self, processes: &mut [Process], gpus: &[Gpu]) {
        let mut device_proofs = std::mem::take(&mut self.device_proofs);
        for process in processes {
            let result = self.allocators.results.get(&process.id);
            let result = result.zip(self.processes.cuda_environment(process.id));
            let mut proof = device_proofs.remove(&process.id);
            process.allocator = result.map(|(result, cuda)| {
                cuda_devices::allocator_stats(result, process.id, gpus, cuda, &mut proof).into()
            });
            self.device_proofs
                .extend(proof.map(|proof| (process.id, proof)));
        }
    }

    /// Adds the reports of probes: of the processes that a GPU lists, and of others that have one
    /// open and a report.
    pub(super) fn add_probes(&mut self, processes: &mut [Process], gpus: &[Gpu], now: Moment) {
        let listed: Vec<ProcessId> = self.processes.listed().map(|listed| listed.id).collect();
        let is_listed = |id| listed.binary_search(&id).is_ok();
        let is_holder = |id| probed_holders::is_unlisted_holder(id, gpus);
        self.probes.begin_pass(|id| is_listed(id) || is_holder(id));
        for process in processes {
            let is_listed = is_listed(process.id);
            if is_listed || is_holder(process.id) {
                let setup = self.processes.probe_setup(process.id);
                let probe = self.probes.read(process, setup, gpus, now);
                process.probe = probe.filter(|probe| is_listed || probe.report.is_some());
            }
        }
    }
}
