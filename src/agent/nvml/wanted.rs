//! The readings that an agent is asked for. An agent that a query starts makes no other NVML calls:
//! another call may be slow, hang or fail.

/// The readings to take, each as its path in the JSON of a GPU: `load.memory_used_bytes`. Empty for
/// all readings. `processes` stands for the lists of compute processes, `graphics_processes` and
/// `process_utilization` for what else is read of them, and `instances` for the instances of a
/// split GPU.
#[derive(Debug, Clone, Default)]
pub(super) struct Wanted(Vec<String>);

impl Wanted {
    pub(super) fn new(readings: &[String]) -> Self {
        let mut wanted = Self(readings.to_vec());
        if !wanted.is_everything() && (wanted.has("instances") || wanted.has("processes")) {
            // A split GPU has instances, and these list its processes.
            wanted
                .0
                .extend(["instances", "health.mig_enabled"].map(str::to_owned));
        }
        wanted
    }

    pub(super) fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the reading at this path, or a part of it, is wanted.
    pub(super) fn has(&self, path: &str) -> bool {
        let is_of = |reading: &String| {
            let rest = reading.strip_prefix(path);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.is_everything() || self.0.iter().any(is_of)
    }
}
