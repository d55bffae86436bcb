//! The NVML calls that a few readings need. An agent that a query starts makes no others: another
//! call may be slow, hang or fail.

/// The readings to take, each as its path in the JSON of a GPU: `load.memory_used_bytes`. Empty for
/// all readings. `processes` stands for the lists of compute processes, `graphics_processes` and
/// `process_utilization` for what else is read of them, and `instances` for the instances of a
/// split GPU.
#[derive(Debug, Clone, Default)]
pub(super) struct Wanted(Vec<String>);

impl Wanted {
    pub(super) fn new(readings: &[String]) -> Self {
        Self(readings.to_vec())
    }

    pub(super) fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a reading is wanted that begins with this path.
    pub(super) fn has(&self, path: &str) -> bool {
        self.is_everything() || self.0.iter().any(|reading| reading.starts_with(path))
    }

    /// Whether a wanted reading needs this function.
    pub(super) fn needs(&self, function: &str) -> bool {
        self.is_everything()
            || FUNCTIONS.lines().any(|line| {
                let (functions, readings) = line.split_once(':').unwrap_or((line, ""));
                functions.split(' ').any(|name| name == function)
                    && readings
                        .split_whitespace()
                        .any(|path| self.0.iter().any(|reading| is_at(path, reading)))
            })
    }
}

/// Whether a path of the table means this reading. A `*` at its end stands for any rest.
fn is_at(path: &str, reading: &str) -> bool {
    path.strip_suffix('*')
        .map_or(path == reading, |beginning| reading.starts_with(beginning))
}

/// On each line NVML functions, and the readings that come from them.
const FUNCTIONS: &str = include_str!("functions.txt");
