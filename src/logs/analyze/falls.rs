//! Sudden falls of memory, in words that claim no more than the log knows.

use crate::base::units::Bytes;
use crate::model::MemoryDrop;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct MemoryFall {
    /// Seconds since the start of the series.
    pub(super) at: f64,
    pub(super) kind: MemoryDrop,
    /// The memory that was given back from one sample to the next.
    pub(super) given_back: Bytes,
    /// Whether the figure is that of a GPU, on which any program may have given memory back.
    pub(super) is_of_gpu: bool,
    /// Whether the log has PyTorch's figures, which tell the cache from tensors.
    pub(super) has_pytorch: bool,
}

impl MemoryFall {
    pub(super) fn words(&self) -> String {
        match (self.kind, self.is_of_gpu, self.has_pytorch) {
            (MemoryDrop::CacheEmptied, _, true) => self.kind.to_string(),
            (MemoryDrop::CacheEmptied, ..) => format!("gave back {}", self.given_back),
            (MemoryDrop::ContextGone, true, _) => {
                format!("gave back {}: nearly all", self.given_back)
            }
            (MemoryDrop::Restarted, true, _) => "in use again after nearly nothing".to_owned(),
            _ => self.kind.to_string(),
        }
    }
}
