//! The key of a host, which tells apart lines, processes and GPUs of different hosts.

/// Identifies one host within one run of gputop. The key is the number of the source that the host's lines come from.
///
/// The viewer assigns the keys in the order of the sources; a line of an agent never contains one. Two sources on one
/// machine are two hosts. Keys are not stable between runs; the name that the user sees comes from the fleet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostKey(pub u16);

impl HostKey {
    /// The host of the first source, which is the only one unless `--via` adds others.
    pub const FIRST: Self = Self(0);
}
