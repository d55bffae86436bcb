//! Identities: a process or GPU within one host, and within the fleet.

use serde::{Deserialize, Serialize};

use crate::protocol::host_key::HostKey;
use crate::protocol::snapshot::{GpuUuid, ProcessId};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostProcess {
    pub host: HostKey,
    pub process: ProcessId,
}

/// A GPU, or one of its MIG instances, within the fleet.
///
/// The UUID alone is not enough: two sources may run on one machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HostGpu {
    pub host: HostKey,
    pub gpu: GpuUuid,
}

/// A GPU or a process of one host: both have a memory history.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum GpuOrProcess {
    /// A GPU, or one of its MIG instances.
    Gpu(GpuUuid),
    /// A process, with its memory on all of its GPUs.
    Process(ProcessId),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct HostSubject {
    pub host: HostKey,
    pub subject: GpuOrProcess,
}

impl From<HostProcess> for HostSubject {
    fn from(process: HostProcess) -> Self {
        Self {
            host: process.host,
            subject: GpuOrProcess::Process(process.process),
        }
    }
}

impl From<HostGpu> for HostSubject {
    fn from(gpu: HostGpu) -> Self {
        Self {
            host: gpu.host,
            subject: GpuOrProcess::Gpu(gpu.gpu),
        }
    }
}
