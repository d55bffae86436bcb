//! The key of a host: which source a line, a process or a GPU comes from.

/// Identifies one host within one run of gputop. It is the number of the source that the host's lines come from.
///
/// The viewer assigns it, in the order of the sources; a line from the far side never does. Two sources on one machine
/// are two hosts. It is not stable between runs: a name that people see comes from the fleet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostKey(pub u16);

impl HostKey {
    /// The host of the first source, which is the only one unless `--via` adds others.
    pub const FIRST: Self = Self(0);
}
