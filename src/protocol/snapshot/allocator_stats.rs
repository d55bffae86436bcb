//! PyTorch's allocator stats of a running process, read from outside.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::{DeviceAllocator, Missing};

/// PyTorch's allocator stats, as read from the memory of a GPU process in this pass or one of the
/// two before.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct AllocatorStats {
    /// The stats of each CUDA device that PyTorch allocated on, in CUDA's order. Empty when they
    /// could not be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceAllocator>,
    /// Why the stats could not be read; absent when they were.
    pub unreadable: Option<AllocatorUnreadable>,
}

impl AllocatorStats {
    /// Returns stats that could not be read.
    pub fn unreadable(why: AllocatorUnreadable) -> Self {
        Self {
            devices: Vec::new(),
            unreadable: Some(why),
        }
    }

    /// Whether there are neither stats nor a reason: nothing tried to read them.
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty() && self.unreadable.is_none()
    }
}

/// Why the allocator stats of a process cannot be read. The text of each says what to do.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, strum::Display,
)]
#[serde(rename_all = "snake_case")]
pub enum AllocatorUnreadable {
    /// The process was not read yet, or has allocated nothing yet.
    #[strum(to_string = "not read yet, or PyTorch has allocated nothing yet")]
    NotYet,
    /// The process belongs to another user.
    #[strum(to_string = "it belongs to another user: run gputop as that user or as root")]
    OtherUser,
    /// Yama permits only root and parents: `kernel.yama.ptrace_scope`.
    #[strum(
        to_string = "kernel.yama.ptrace_scope lets only root look into it: run gputop as root, \
         or `sudo sysctl kernel.yama.ptrace_scope=0`"
    )]
    PtraceScope,
    /// The kernel refuses for another reason: the process changed its user, or the agent runs in a
    /// container.
    #[strum(
        to_string = "the kernel lets nobody but root look into it: run gputop as root; in a container, \
         start that with `--cap-add SYS_PTRACE`"
    )]
    Protected,
    /// The process has not loaded PyTorch's CUDA library.
    #[strum(to_string = "it has not loaded PyTorch's CUDA library (libc10_cuda.so)")]
    NoPytorch,
    /// PyTorch is older than 2.1 and exports no allocator.
    #[strum(to_string = "its PyTorch does not show its allocator: torch 2.1 and later do")]
    OldPytorch,
    /// The allocator is `cudaMallocAsync`.
    #[strum(
        to_string = "its allocator is cudaMallocAsync, which keeps no figures: with PyTorch's own \
         (no backend:cudaMallocAsync in PYTORCH_ALLOC_CONF or PYTORCH_CUDA_ALLOC_CONF) they can be read"
    )]
    CudaMallocAsync,
    /// The program replaced PyTorch's allocator.
    #[strum(
        to_string = "another allocator stands in PyTorch's place (change_current_allocator), and keeps no figures"
    )]
    Pluggable,
    /// `PYTORCH_NO_CUDA_MEMORY_CACHING` is set.
    #[strum(
        to_string = "PYTORCH_NO_CUDA_MEMORY_CACHING is set there, and without its cache PyTorch keeps no figures"
    )]
    Uncached,
    /// The stats are inconsistent: they change too fast, or have another layout.
    #[strum(
        to_string = "its allocator stats are inconsistent: PyTorch has another layout there, or they change too fast"
    )]
    Implausible,
    /// The stats are a stale copy of another process's, from a fork.
    #[strum(
        to_string = "its allocator stats are a stale copy of another process's, made by a fork"
    )]
    Copied,
    /// The process was forked, and its parent has ended or has no such stats: these may be a stale
    /// copy, until the process allocates.
    #[strum(
        to_string = "it was forked, and its parent has no such allocator stats: whether they are its own shows when it \
             allocates"
    )]
    MaybeCopied,
    /// Reading the memory of the process hangs.
    #[strum(to_string = "reading its memory does not come back: it may be stuck in the driver")]
    Hung,
}

impl AllocatorUnreadable {
    /// Returns the reason to show in the place of a figure.
    pub fn missing(self) -> Missing {
        match self {
            Self::NotYet | Self::MaybeCopied => Missing::NotYet,
            Self::OtherUser | Self::PtraceScope | Self::Protected => Missing::Denied,
            Self::NoPytorch
            | Self::OldPytorch
            | Self::CudaMallocAsync
            | Self::Pluggable
            | Self::Uncached
            | Self::Copied => Missing::Unsupported,
            Self::Implausible | Self::Hung => Missing::Failed,
        }
    }
}
