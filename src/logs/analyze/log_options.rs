//! The options that settle what a log does not tell.

use std::time::Duration;

use crate::base::units::Bytes;

#[derive(Debug, Clone, Default)]
pub(crate) struct LogOptions {
    /// The memory of the GPU.
    pub(crate) capacity: Option<Bytes>,
    /// The time between two samples, for a log without times.
    pub(crate) interval: Option<Duration>,
    /// The column of the times or steps.
    pub(crate) time: Option<String>,
    /// The columns of the memory in use. Empty if the log is to be asked.
    pub(crate) memory: Vec<String>,
    /// The bytes of the unit of memory.
    pub(crate) unit: Option<u64>,
}

impl LogOptions {
    /// Whether one of these cells has the name of a column that the user gave: then they are a
    /// header.
    pub(super) fn names_one_of(&self, cells: &[&str]) -> bool {
        let given = self.memory.iter().chain(&self.time);
        // A number is the place of a column in a log without a header.
        let mut names = given.filter(|name| name.parse::<usize>().is_err());
        names.any(|name| cells.iter().any(|cell| Self::is_name(name, cell)))
    }

    /// Whether a name is the one that the user gave, without regard to case and to its unit.
    pub(super) fn is_name(wanted: &str, name: &str) -> bool {
        let plain = |name: &str| name.trim().trim_matches('"').to_lowercase();
        let without_unit = |name: &str| {
            plain(name)
                .split(['[', '('])
                .next()
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        plain(wanted) == plain(name) || plain(wanted) == without_unit(name)
    }
}
