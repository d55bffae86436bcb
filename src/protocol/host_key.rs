//! The key of a host, which tells apart lines, processes and GPUs of different hosts.

/// The number of the source that the host's lines come from: the viewer assigns it, and a line of an agent never contains
/// it. Two sources on one machine are two hosts. Keys are not stable between runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostKey(pub u16);

impl HostKey {
    /// The host of the first source, which is the only one unless `--via` adds others.
    pub const FIRST: Self = Self(0);
}
