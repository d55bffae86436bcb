//! What PyTorch's caching allocator says in a running process, read from outside, or why it does not.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DeviceAllocator, Missing};

/// What was read in the memory of a GPU process, in this pass or one of the two before it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct AllocatorStats {
    /// One for each CUDA device that PyTorch allocated on, in CUDA's order. Empty when it could not be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceAllocator>,
    /// Why there are none; absent when there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<AllocatorUnreadable>,
}

impl AllocatorStats {
    /// Nothing was read, and this is why.
    pub fn unreadable(why: AllocatorUnreadable) -> Self {
        Self { devices: Vec::new(), unreadable: Some(why) }
    }

    /// Whether it says nothing: nobody looked.
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty() && self.unreadable.is_none()
    }
}

/// Why a process's allocator cannot be read. Each has another way out: see its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AllocatorUnreadable {
    /// It was not looked at yet, or has allocated nothing yet.
    NotYet,
    /// It belongs to another user.
    OtherUser,
    /// Yama lets nobody but root and parents look: `kernel.yama.ptrace_scope`.
    PtraceScope,
    /// The kernel does not let us for another reason: it changed its user, or this is a container.
    Protected,
    /// It has not loaded PyTorch's CUDA library.
    NoPytorch,
    /// Its PyTorch exports no allocator: older than 2.1.
    OldPytorch,
    /// Its allocator is `cudaMallocAsync`.
    CudaMallocAsync,
    /// Its allocator was put in PyTorch's place.
    Pluggable,
    /// What was found breaks the rules of the allocator: torn again and again, or of another layout.
    Implausible,
    /// What stands there is another process's, as it was when this one was forked.
    Copied,
    /// Reading its memory does not come back.
    Hung,
}

impl AllocatorUnreadable {
    /// What stands in the place of the figures.
    pub fn missing(self) -> Missing {
        match self {
            Self::NotYet => Missing::NotYet,
            Self::OtherUser | Self::PtraceScope | Self::Protected => Missing::Denied,
            Self::NoPytorch | Self::OldPytorch | Self::CudaMallocAsync | Self::Pluggable | Self::Copied => {
                Missing::Unsupported
            }
            Self::Implausible | Self::Hung => Missing::Failed,
        }
    }
}

impl fmt::Display for AllocatorUnreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::NotYet => "not read yet, or PyTorch has allocated nothing yet",
            Self::OtherUser => "it belongs to another user: run gputop as that user or as root",
            Self::PtraceScope => {
                "kernel.yama.ptrace_scope lets only root look into it: run gputop as root, \
                 or `sudo sysctl kernel.yama.ptrace_scope=0`"
            }
            Self::Protected => {
                "the kernel lets nobody but root look into it: run gputop as root; in a container, \
                 start that with `--cap-add SYS_PTRACE`"
            }
            Self::NoPytorch => "it has not loaded PyTorch's CUDA library (libc10_cuda.so)",
            Self::OldPytorch => "its PyTorch does not show its allocator: torch 2.1 and later do",
            Self::CudaMallocAsync => {
                "its allocator is cudaMallocAsync, which keeps no figures: with PyTorch's own \
                 (no backend:cudaMallocAsync in PYTORCH_ALLOC_CONF or PYTORCH_CUDA_ALLOC_CONF) they can be read"
            }
            Self::Pluggable => {
                "another allocator stands in PyTorch's place (change_current_allocator), and keeps no figures"
            }
            Self::Implausible => {
                "what stands in its memory does not add up: PyTorch has another layout there, or it changes too fast"
            }
            Self::Copied => "what stands in its memory is another process's: a fork made a copy of it",
            Self::Hung => "reading its memory does not come back: it may be stuck in the driver",
        })
    }
}
