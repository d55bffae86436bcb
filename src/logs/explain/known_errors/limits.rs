//! Errors at a limit below the host's memory: pinned memory, a container, a job, a virtual machine,
//! open files.
//!
//! They come before the forms of other files, which take their lines for the GPU's memory or for
//! the whole host's.

use super::{EarlierLine, KnownError, anywhere, form};

const PINNED: &str = "The driver could not pin host memory, which stays in RAM for copies to the GPU. The GPU's memory is not what was \
    missing: the host's is, or a limit on pinned memory (WSL allows a part of its memory only).";

/// A frame of a traceback in which a program pins memory.
const PIN_MEMORY: EarlierLine = EarlierLine {
    literal: "pin_memory",
    pattern: r#"File ".*pin_memory\.py", line |, in \w*pin_memory\w*$|\.pin_memory\("#,
    within: 6,
};
/// The kernel's line on a memory cgroup that is full.
const CGROUP_USAGE: EarlierLine = EarlierLine {
    literal: "memory: usage ",
    pattern: r"memory: usage (?P<kib_usage>\d+)kB, limit (?P<kib_limit>\d+)kB",
    within: 4096,
};

pub(super) const ERRORS: &[KnownError] = &[
    KnownError {
        cause: "pinned_memory",
        title: "The host has no memory left to pin",
        forms: &[
            anywhere(
                " bytes on host",
                r"failed to alloc(?:ate)? (?P<bytes>\d+) bytes on host: CUDA_ERROR_OUT_OF_MEMORY",
                "TensorFlow asked for {bytes} of pinned host memory, which stays in RAM for copies to the GPU, and got none. This is \
                 not the GPU's memory.",
            ),
            form(
                "out of memory",
                r"(?:CUDA|HIP) (?:driver |runtime )?error: ?out of memory\s*(?:$|[.,;\\'\x22)(]|CUDA|Search|Compile)",
                PINNED,
            )
            .below(&PIN_MEMORY),
            anywhere("CUDAHostAllocator", r"CUDAHostAllocator.*out of memory", PINNED),
            anywhere("HostAllocator", r"(?:CachingHostAllocator|PinnedMemoryAllocator).*out of memory", PINNED),
            anywhere("cudaHostAlloc", r"cudaHostAlloc\w*.*out of memory", PINNED),
            anywhere("cudaHostRegister", r"cudaHostRegister.*out of memory", PINNED),
            anywhere("cudaMallocHost", r"cudaMallocHost.*out of memory", PINNED),
            anywhere("cuMemHost", r"cuMemHost(?:Alloc|Register).*(?i:out.of.memory)", PINNED),
            anywhere("cuMemAllocHost", r"cuMemAllocHost.*(?i:out.of.memory)", PINNED),
            anywhere("hipHost", r"hipHost(?:Malloc|Register).*(?i:out.?of.?memory)", PINNED),
            anywhere("pin_memory", r"pin_memory.*out of memory", PINNED),
            anywhere(
                "pinned memory",
                r"failed to allocate (?P<size>[\d.]+ \w+) of pinned memory",
                "llama.cpp asked for {size} of pinned host memory, which stays in RAM for copies to the GPU, and got none. This is \
                 not the GPU's memory.",
            ),
            anywhere("CUDA host alloc", r"Failed to CUDA host alloc(?: async)? (?P<bytes>\d+)", PINNED),
        ],
        advice: &["pinned-memory"],
        follows: &["kernel_oom_killer", "cgroup_limit"],
        absorbs: &[],
    },
    KnownError {
        cause: "cgroup_limit",
        title: "A container or job has reached its memory limit, and the kernel ended a process of it",
        forms: &[
            anywhere(
                "ut of memory: Kill",
                r"Memory cgroup out of memory: Kill(?:ed)? process (?P<pid>\d+),? \((?P<name>[^)]*)\).*?anon-rss:(?P<kib_rss>[\d,]+) ?kB",
                "The kernel ended process {pid} ({name}), which held {kib_rss}, because its container or job (memory cgroup) used \
                 {kib_usage} of the {kib_limit} that it may. This is not the GPU's memory, and the host itself may have plenty left.",
            )
            .below(&CGROUP_USAGE),
            anywhere(
                "ut of memory: Kill",
                r"Memory cgroup out of memory: Kill(?:ed)? process (?P<pid>\d+),? \((?P<name>[^)]*)\).*?anon-rss:(?P<kib_rss>[\d,]+) ?kB",
                "The kernel ended process {pid} ({name}), which held {kib_rss}, because its container or job (memory cgroup) had \
                 reached its limit. This is not the GPU's memory, and the host itself may have plenty left.",
            ),
            anywhere(
                "ut of memory: Kill",
                r"Memory cgroup out of memory: Kill(?:ed)? process (?P<pid>\d+),? \((?P<name>[^)]*)\)",
                "The kernel ended process {pid} ({name}), because its container or job (memory cgroup) used {kib_usage} of the \
                 {kib_limit} that it may. This is not the GPU's memory, and the host itself may have plenty left.",
            )
            .below(&CGROUP_USAGE),
            anywhere(
                "ut of memory: Kill",
                r"Memory cgroup out of memory: Kill(?:ed)? process (?P<pid>\d+),? \((?P<name>[^)]*)\)",
                "The kernel ended process {pid} ({name}), because its container or job (memory cgroup) had reached its limit. This is \
                 not the GPU's memory, and the host itself may have plenty left.",
            ),
            anywhere(
                "CONSTRAINT_MEMCG",
                r"(?P<vague>oom-kill):constraint=CONSTRAINT_MEMCG,.*task=(?P<name>[^,]*),pid=(?P<pid>\d+)",
                "The kernel ended process {pid} ({name}), because its container or job (memory cgroup) had reached its limit. This is \
                 not the GPU's memory, and the host itself may have plenty left.",
            ),
            anywhere(
                "TaskOOM",
                r"(?P<vague>TaskOOM) event",
                "containerd reports that the kernel ended a process of a container, which had reached its memory limit. This is not \
                 the GPU's memory.",
            ),
        ],
        advice: &["container-memory"],
        follows: &[],
        absorbs: &[],
    },
    KnownError {
        cause: "job_memory_limit",
        title: "The job has reached its memory limit, and the system that runs it ended it",
        forms: &[
            anywhere(
                "TERM_MEMLIMIT",
                r"TERM_MEMLIMIT: job killed after reaching LSF memory usage limit",
                "LSF ended the job, which had used more of the host's memory than its limit allows (bsub -M). This is not the GPU's \
                 memory.",
            ),
            anywhere(
                "exceeded limit",
                r"PBS: job killed: (?:mem|vmem|pmem) (?P<kib_used>\d+)kb exceeded limit (?P<kib_limit>\d+)kb",
                "PBS ended the job, which had used {kib_used} of the host's memory, and its limit is {kib_limit}. This is not the \
                 GPU's memory.",
            ),
            anywhere(
                "killed by YARN",
                r"Container killed by YARN for exceeding (?:physical )?memory limits\.? *(?P<used>[\d.]+ \w+) of (?P<limit>[\d.]+ \w+)",
                "YARN ended a container, which had used {used} of the host's memory, and its limit is {limit}. This is not the GPU's \
                 memory.",
            ),
            anywhere(
                "memory limits. Current usage",
                r"is running beyond (?:physical|virtual) memory limits\. Current usage: (?P<used>[\d.]+ \w+) of (?P<limit>[\d.]+ \w+)",
                "YARN ended a container, which had used {used} of the host's memory, and its limit is {limit}. This is not the GPU's \
                 memory.",
            ),
            anywhere(
                "Container killed due to memory usage",
                r"Container killed due to memory usage",
                "The notebook's or job's container was ended, because it had used up the host memory of its machine. This is not the \
                 GPU's memory.",
            ),
            anywhere(
                "% memory budget",
                r"Worker \S+ \(pid=(?P<pid>\d+)\) exceeded (?P<share>\d+%) memory budget",
                "Dask ended its worker with PID {pid}, which had used {share} of the host memory that it may (--memory-limit). This is \
                 not the GPU's memory.",
            ),
        ],
        advice: &["job-memory"],
        follows: &["kernel_oom_killer", "cgroup_limit"],
        absorbs: &[],
    },
    KnownError {
        cause: "evicted",
        title: "Kubernetes evicted a pod: its node had little memory left",
        forms: &[anywhere(
            "low on resource: memory",
            r"[Tt]he node was low on resource: memory",
            "The node ran low on the host's memory, and Kubernetes ended the pod that exceeded its request by most. This is not the GPU's \
             memory.",
        )],
        advice: &["host-memory"],
        follows: &[],
        absorbs: &[],
    },
    KnownError {
        cause: "notebook_memory",
        title: "The notebook has used up the host memory of its machine",
        forms: &[
            anywhere(
                "notebook tried to allocate more memory",
                r"[Yy]our notebook tried to allocate more memory than is available\. It has restarted",
                "Kaggle restarted the notebook, which had asked for more of the host's memory than its machine has. This is not the GPU's \
                 memory.",
            ),
            anywhere(
                "using all available RAM",
                r"[Yy]our session crashed after using all available RAM",
                "Colab ended the session, which had used up the host memory of its machine. This is not the GPU's memory.",
            ),
        ],
        advice: &["notebook-memory"],
        follows: &[],
        absorbs: &[],
    },
    KnownError {
        cause: "jvm_heap",
        title: "The Java virtual machine has used up its memory",
        forms: &[anywhere(
            "java.lang.OutOfMemoryError",
            r"\bjava\.lang\.OutOfMemoryError: (?P<what>[\w ]*\w)",
            "A program in Java (Spark, for instance) has used up what its virtual machine may have: {what}. This is not the GPU's \
             memory.",
        )],
        advice: &["jvm-heap"],
        follows: &[],
        absorbs: &[],
    },
    KnownError {
        cause: "earlyoom",
        title: "earlyoom ended a process: the host has little memory left",
        forms: &[anywhere(
            "sending SIG",
            r#"sending SIG(?:TERM|KILL) to process (?P<pid>\d+) (?:uid \d+ )?"(?P<name>[^"]*)": .*VmRSS (?P<rss>[\d.]+ \w+)"#,
            "earlyoom ended process {pid} ({name}), which held {rss}, before the host's memory was full. This is not the GPU's memory.",
        ),
        anywhere(
            "sending SIG",
            r#"sending SIG(?:TERM|KILL) to process (?P<pid>\d+) (?:uid \d+ )?"(?P<name>[^"]*)""#,
            "earlyoom ended process {pid} ({name}) before the host's memory was full. This is not the GPU's memory.",
        )],
        advice: &["host-memory"],
        follows: &[],
        absorbs: &[],
    },
    KnownError {
        cause: "open_files",
        title: "A process has too many files open",
        forms: &[
            form(
                "unable to open shared memory object",
                r"unable to open shared memory object </[^>]*> in read-write mode: Too many open files",
                "PyTorch hands tensors over between processes as open files, and this process has reached its limit of open files. No \
                 memory is missing.",
            ),
            form(
                "received 0 items of ancdata",
                r"received 0 items of ancdata",
                "PyTorch hands tensors over between processes as open files, and one of the processes has reached its limit of open \
                 files. No memory is missing.",
            ),
        ],
        advice: &["open-files"],
        follows: &[],
        absorbs: &[],
    },
];
