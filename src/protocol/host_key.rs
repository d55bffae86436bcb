//! The key of a host, which tells apart lines, processes and GPUs of different hosts.

/// The number of the source that the host's lines come from; in a recording, the place of the host
/// in the order of first lines. The viewer assigns the number: no line of an agent contains it. Two
/// sources on one machine are two hosts. Keys are not stable between runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostKey(pub u16);

impl HostKey {
    /// The first host.
    pub const FIRST: Self = Self(0);
}
