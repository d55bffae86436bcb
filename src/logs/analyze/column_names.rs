//! The meaning of a name of memory: of a column, of a key in JSON, or of a label in a line of text.

use crate::base::units::Bytes;

/// The kind of memory that a name means. The first is what `analyze` judges if a log has several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MemoryRole {
    /// The memory in use.
    Used,
    /// A name such as `mem` or `GiB`, which says no more.
    Plain,
    /// The memory that PyTorch holds, tensors and cache.
    Reserved,
    /// The memory of tensors.
    Allocated,
    /// The share of the memory in use.
    Percent,
    /// A high-water mark, which never falls.
    Peak,
    Free,
    Total,
}

/// The words of a name that mean a role, in the order in which they are asked.
const ROLES: [(MemoryRole, &[&str], &str); 9] = [
    (
        MemoryRole::Percent,
        &["percent", "percentage", "pct", "ratio", "%"],
        "mem_used_pct",
    ),
    (
        MemoryRole::Peak,
        &["max", "peak", "peaked", "highest", "hwm"],
        "max_memory_allocated",
    ),
    (
        MemoryRole::Free,
        &["free", "available", "avail", "unused", "remaining"],
        "free_vram",
    ),
    (
        MemoryRole::Used,
        &["used", "usage", "use", "consumed"],
        "VRAM Total Used Memory (B)",
    ),
    (
        MemoryRole::Reserved,
        &["reserved", "cached", "cache", "ca"],
        "reserved_bytes.all.current",
    ),
    (
        MemoryRole::Allocated,
        &["allocated", "alloc", "active", "ma"],
        "memoryAllocatedBytes",
    ),
    (
        MemoryRole::Total,
        &["total", "capacity", "limit", "size"],
        "mem_total_mb",
    ),
    (
        MemoryRole::Used,
        &["current", "now", "held"],
        "current_memory",
    ),
    (
        MemoryRole::Plain,
        &["mem", "memory", "bytes", "vram"],
        "gpu_mem_GiB",
    ),
];

/// Words that mean memory of a GPU.
const MEMORY: [&str; 14] = [
    "mem",
    "memory",
    "vram",
    "fb",
    "framebuffer",
    "hbm",
    "gmem",
    "cudamem",
    "gpumem",
    "allocated",
    "reserved",
    "bytes",
    "byte",
    "membytes",
];

/// Words of a name that is no amount of memory of a GPU, with an example of each kind.
const OTHERS: [(&[&str], &str); 9] = [
    (
        &[
            "util",
            "utilization",
            "utilisation",
            "clock",
            "clocks",
            "clk",
            "mhz",
            "temp",
            "temperature",
        ],
        "utilization.memory [%]",
    ),
    (
        &[
            "power", "watt", "watts", "draw", "fan", "pstate", "throttle", "ecc", "error", "errors",
        ],
        "memory_errors",
    ),
    (
        &[
            "bandwidth",
            "bw",
            "bar",
            "throughput",
            "read",
            "write",
            "rx",
            "tx",
            "speed",
            "sec",
            "gbps",
        ],
        "dram_read_bytes",
    ),
    (
        &[
            "cpu", "host", "ram", "swap", "rss", "vms", "disk", "shared", "shm", "virtual", "proc",
        ],
        "cpu_memory_usage",
    ),
    (
        &[
            "pid", "id", "index", "name", "count", "num", "retries", "ooms", "frees",
        ],
        "num_alloc_retries",
    ),
    (
        &[
            "loss", "lr", "grad", "accuracy", "acc", "samples", "tokens", "params", "model",
        ],
        "tokens_in_memory",
    ),
    (
        &[
            "freed",
            "requested",
            "inactive",
            "oversize",
            "fragmented",
            "min",
            "delta",
            "diff",
        ],
        "allocated_bytes.all.freed",
    ),
    (&["bar1", "ccpm", "ccmem"], "bar1"),
    (
        &["junction", "hotspot", "activity", "efficiency"],
        "memory_activity",
    ),
];

/// A name as words in lower case, with its unit.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MemoryName {
    /// The whole name without its unit in brackets.
    name: String,
    words: Vec<String>,
    /// The bytes of the unit in the name.
    pub(super) unit: Option<u64>,
}

impl MemoryName {
    /// Splits a name such as `memory.used [MiB]`, `gpu0_mem_mb`, `memoryAllocatedBytes`.
    pub(super) fn new(name: &str) -> Self {
        let (name, unit) = match name.split_once(['[', '(']) {
            Some((name, unit)) => (
                name,
                Some(unit.split([']', ')']).next().unwrap_or_default().trim()),
            ),
            None => (name, None),
        };
        let mut words = words(name);
        words.extend(unit.filter(|unit| *unit == "%").map(str::to_owned));
        let in_brackets = unit.and_then(Bytes::unit);
        let last = words
            .last()
            .filter(|last| last.len() > 1 && last.as_str() != "byte")
            .and_then(|last| Bytes::unit(last));
        // `mem_g` has a unit, but `t` and `step_b` have none.
        let letter = words
            .last()
            .filter(|last| last.len() == 1 && words.iter().any(|word| is_memory(word)))
            .and_then(|last| Bytes::unit(last));
        let mut unit = in_brackets.or(last).or(letter);
        // `allocated_bytes.all.current` has its unit in the middle.
        if unit.is_none() && words.iter().any(|word| word == "bytes") {
            unit = Some(1);
        }
        Self {
            name: name.trim().to_ascii_lowercase(),
            words,
            unit,
        }
    }

    /// Returns what the name means; `None` if it is no memory of a GPU.
    pub(super) fn role(&self) -> Option<MemoryRole> {
        let has = |wanted: &[&str]| {
            self.words
                .iter()
                .any(|word| wanted.contains(&word.as_str()))
        };
        let is_only_used = self.words == ["used"];
        let is_short =
            matches!(self.words.as_slice(), [word] | [_, word] if word == "ma" || word == "ca");
        let is_memory = self.words.iter().any(|word| is_memory(word))
            || self.unit.is_some()
            || is_only_used
            || is_short;
        if !is_memory || self.is_other() {
            return None;
        }
        // In `allocated_bytes.all`, `.allocated` counts all allocations so far.
        let is_sum_of_all = has(&["all", "pool"]) && !has(&["current", "peak"]);
        if is_sum_of_all && has(&["bytes"]) {
            return None;
        }
        ROLES
            .iter()
            .find(|(_, words, _)| has(words))
            .map(|(role, ..)| *role)
            .or(Some(MemoryRole::Plain))
    }

    /// Whether the name is that of another figure.
    pub(super) fn is_other(&self) -> bool {
        let has = |wanted: &[&str]| {
            self.words
                .iter()
                .any(|word| wanted.contains(&word.as_str()))
        };
        OTHERS.iter().any(|(words, _)| has(words)) || self.is_share_of_time()
    }

    /// Whether W&B writes the name for a share in per cent: `system.gpu.0.memoryAllocated`.
    pub(super) fn is_share_of_wandb(&self) -> bool {
        self.words.iter().any(|word| word == "system")
            && self.words.iter().any(|word| word == "gpu")
            && self
                .words
                .ends_with(&["memory".to_owned(), "allocated".to_owned()])
    }

    /// Whether W&B writes the name for the share of the time in which memory is read or written:
    /// `system.gpu.0.memory`.
    fn is_share_of_time(&self) -> bool {
        // W&B's figures under `system` without a GPU are those of the host.
        if self.has("system") && !self.has("gpu") {
            return true;
        }
        matches!(self.words.as_slice(), [.., system, gpu, _, memory]
            if system == "system" && gpu == "gpu" && memory == "memory")
    }

    /// Returns the bytes of bare numbers under this name, if it is a name of a known program.
    pub(super) fn usual_unit(&self) -> Option<u64> {
        const MIB: u64 = 1 << 20;
        USUAL_UNITS
            .iter()
            .find(|(name, _)| self.name == *name)
            .map(|(_, unit)| *unit)
            .or_else(|| self.words.iter().any(|word| word == "fb").then_some(MIB))
    }

    /// Returns the GPU of a name such as `gpu0_mem` or `system.gpu.0.memoryAllocatedBytes`.
    pub(super) fn gpu(&self) -> Option<&str> {
        let is_number =
            |word: &str| word.len() <= 3 && word.bytes().all(|digit| digit.is_ascii_digit());
        self.words
            .windows(2)
            .find(|pair| {
                ["gpu", "cuda", "device", "card", "process"].contains(&pair[0].as_str())
                    && is_number(&pair[1])
            })
            .map(|pair| pair[1].as_str())
    }

    /// Whether the name is that of a GPU alone: `GPU0`.
    pub(super) fn is_only_gpu(&self) -> bool {
        self.words.len() == 2 && self.gpu().is_some()
    }

    pub(super) fn has(&self, word: &str) -> bool {
        self.words.iter().any(|other| other == word)
    }
}

/// Names of programs whose bare numbers have one unit, in small letters.
const USUAL_UNITS: [(&str, u64); 9] = [
    // nvidia-smi and gpustat, in MiB.
    ("memory.used", 1 << 20),
    ("memory.free", 1 << 20),
    ("memory.total", 1 << 20),
    ("used_gpu_memory", 1 << 20),
    ("used_memory", 1 << 20),
    ("gpu_memory_usage", 1 << 20),
    // `torch.cuda`, in bytes.
    ("memory_allocated", 1),
    ("memory_reserved", 1),
    ("max_memory_allocated", 1),
];

fn is_memory(word: &str) -> bool {
    MEMORY.contains(&word)
}

/// Returns the words of a name in lower case: `memoryAllocatedBytes` has three, `gpu0` has two.
fn words(name: &str) -> Vec<String> {
    /// A change from small to capital letters is the end of a word of so many letters. `MiB` is one
    /// word.
    const SHORTEST: usize = 3;
    let mut words = vec![String::new()];
    let mut before = ' ';
    for character in name.chars() {
        let word = words.last().map_or(0, String::len);
        let is_end = !character.is_alphanumeric() && character != '%'
            || character.is_ascii_digit() != before.is_ascii_digit()
            || character.is_uppercase() && before.is_lowercase() && word >= SHORTEST;
        if is_end && word > 0 {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut()
            && (character.is_alphanumeric() || character == '%')
        {
            word.extend(character.to_lowercase());
        }
        before = character;
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_and_each_other_kind_has_its_example() {
        for (role, _, example) in ROLES {
            assert_eq!(MemoryName::new(example).role(), Some(role), "{example}");
        }
        for (_, example) in OTHERS {
            assert_eq!(MemoryName::new(example).role(), None, "{example}");
        }
    }

    #[test]
    fn names_of_many_programs_are_understood() {
        use MemoryRole::{Allocated, Peak, Percent, Plain, Reserved, Total, Used};
        let mib = Some(1 << 20);
        for (name, role, unit) in [
            ("memory.used [MiB]", Some(Used), mib),
            ("memory.total", Some(Total), None),
            ("mem_total_mb", Some(Total), Some(1_000_000)),
            ("used_vram", Some(Used), None),
            ("VRAM Total Memory (B)", Some(Total), Some(1)),
            ("GB", Some(Plain), Some(1_000_000_000)),
            (
                "system.gpu.0.memoryAllocatedBytes",
                Some(Allocated),
                Some(1),
            ),
            ("system.gpu.0.memory", None, None),
            (
                "run - system/gpu.1.memoryAllocatedBytes__MAX",
                Some(Peak),
                Some(1),
            ),
            ("memory/device_reserved(gib)", Some(Reserved), Some(1 << 30)),
            ("DCGM_FI_DEV_FB_USED", Some(Used), None),
            ("clocks.mem [MHz]", None, None),
            ("mem_clock_mhz", None, None),
            ("utilization.memory [%]", None, None),
            ("memory_usage [%]", Some(Percent), None),
            ("loss", None, None),
            ("Value", None, None),
            ("allocated_bytes.all.current", Some(Allocated), Some(1)),
            ("Max_MA", Some(Peak), None),
        ] {
            let parsed = MemoryName::new(name);
            assert_eq!((parsed.role(), parsed.unit), (role, unit), "{name}");
        }
        assert_eq!(MemoryName::new("gpu12_mem").gpu(), Some("12"));
        assert_eq!(MemoryName::new("fb").usual_unit(), mib);
        assert!(MemoryName::new("system.gpu.0.memoryAllocated").is_share_of_wandb());
    }
}
