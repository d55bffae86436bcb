//! Errors of the host's memory: a process that was killed, an allocation that failed, `/dev/shm`
//! that is full.

use super::{EarlierLine, KnownError, anywhere, form};

const SHM: &str = "DataLoader workers hand batches over through shared memory (/dev/shm), which is full: the worker died of a bus \
    error. Containers have 64 MB of it unless told otherwise.";
const BUS_ERROR: &str = "A program died of a bus error: most often shared memory (/dev/shm) is full, through which DataLoader \
    workers and NCCL hand data over. Containers have 64 MB of it unless told otherwise.";
const WORKER_KILLED: &str = "A DataLoader worker was ended with SIGKILL, which a worker does not do to itself: most often the host or \
    the container ran out of memory, and the kernel chose the worker.";
const SIGKILL: &str = "A process was ended with SIGKILL, which nothing can catch. Nobody says why in this log: most often the host, \
    the container or the job ran out of memory (not the GPU), and the kernel chose this process.";
const HOST_ALLOCATION: &str = "The program asked the host, not the GPU, for memory, and the host refused: the request is larger than \
    the memory that is free, or than a limit of the container or user allows.";
const KERNEL: &str = "The host had no memory left, and the kernel ended a process to get some.";

const PROCESS_OF_FULL_HOST: &str = "The kernel ended process {pid} ({name}), because the host had no memory left. This is not the GPU's memory.";

/// Docker's statement that a container did not reach its limit.
const NOT_OOM_KILLED: EarlierLine = EarlierLine {
    literal: "OOMKilled",
    pattern: r#""OOMKilled": ?false"#,
    within: 8,
};

pub(super) const ERRORS: &[KnownError] = &[
    KnownError {
        cause: "kernel_oom_killer",
        title: "The kernel ended a process: the host has no memory left",
        forms: &[
            anywhere(
                "ut of memory: Kill",
                r"Out of memory: Kill(?:ed)? process (?P<pid>\d+),? \((?P<name>[^)]*)\).*?anon-rss:(?P<rss>[\d,]+ ?kB)",
                "The kernel ended process {pid} ({name}), which held {rss} of the host's memory, because none was left. This is the \
                 host's memory, not the GPU's.",
            ),
            anywhere(
                "ut of memory: Kill",
                r"Out of memory: Kill(?:ed)? process (?P<pid>\d+),? \((?P<name>[^)]*)\)",
                PROCESS_OF_FULL_HOST,
            ),
            anywhere(
                "oom-kill:constraint=",
                r"(?P<vague>oom-kill):constraint=\w+,.*task=(?P<name>[^,]*),pid=(?P<pid>\d+)",
                "The kernel ended process {pid} ({name}), because the host or its container had no memory left. This is not the GPU's memory.",
            ),
            anywhere(
                "System OOM encountered",
                r"System OOM encountered, victim process: (?P<name>[^,]*), pid: (?P<pid>\d+)",
                PROCESS_OF_FULL_HOST,
            ),
            anywhere("oom-kill:constraint=", r"(?P<vague>oom-kill):constraint=", KERNEL),
            anywhere("invoked oom-killer", r"(?P<vague>\S+) invoked oom-killer: gfp_mask", KERNEL),
            anywhere(
                "oom_reaper: reaped process",
                r"(?P<vague>oom_reaper): reaped process (?P<pid>\d+) \((?P<name>[^)]*)\)",
                PROCESS_OF_FULL_HOST,
            ),
            anywhere(
                "killed by the OOM killer",
                r"(?:[Pp]rocess|unit)\b.* (?:was|has been) killed by the OOM killer",
                "The kernel ended a process, because the host or the container had no memory left. This is not the GPU's memory.",
            ),
            anywhere(
                "Failed with result 'oom-kill'",
                r"\S+: Failed with result 'oom-kill'",
                "The kernel ended a process of a service, because the host or the service's limit had no memory left. This is not the \
                 GPU's memory.",
            ),
            anywhere(
                "systemd-oomd",
                r"systemd-oomd(?:\S*: Killed .* due to memory| killed [1-9]\d* process)",
                "systemd-oomd ended the programs of a session or service, because the host had little memory left.",
            ),
        ],
        advice: &["host-memory"],
        follows: &[],
        absorbs: &[],
    },
    KnownError {
        cause: "slurm_oom_kill",
        title: "Slurm's job has used more memory than it asked for",
        forms: &[
            anywhere(
                "oom",
                r"(?i)Detected \d+ oom[-_]kill event(?:s|\(s\))? in (?:StepId=|step )(?P<step>[\w.+-]*\w)",
                "The job step {step} reached the host memory that the job asked Slurm for, and the kernel ended a process of it.",
            ),
            anywhere(
                "cgroup out-of-memory handler",
                r"processes may have been killed by the cgroup out-of-memory handler",
                "Slurm says that the kernel ended processes of the job, which had reached the host memory that the job asked for.",
            ),
            anywhere(
                "DUE TO MEMORY LIMIT",
                r"CANCELLED AT \S+ DUE TO MEMORY LIMIT",
                "The job has used more of the host's memory than it asked Slurm for, and Slurm ended it.",
            ),
            anywhere(
                "Out Of Memory",
                r"srun: error: \S+: tasks? [\d,-]+: Out Of Memory",
                "Slurm ended a task of the job, which had reached the host memory that the job asked for.",
            ),
            anywhere(
                "exceeded",
                r"(?:slurmstepd|srun|slurmd)\S*: .*[Ee]xceeded (?:job |step )?memory limit",
                "The job has used more of the host's memory than it asked Slurm for, and Slurm ended it.",
            ),
            anywhere(
                "xceeded step memory limit",
                r"slurmstepd: error: Exceeded step memory limit",
                "The job has used more of the host's memory than it asked Slurm for.",
            ),
            anywhere(
                "OUT_OF_ME",
                r"(?:JobState=|State=|state |\s)OUT_OF_ME(?:MORY|\+)",
                "Slurm's records say that the job has used more of the host's memory than it asked for.",
            ),
        ],
        advice: &["slurm-memory"],
        follows: &["cgroup_limit", "kernel_oom_killer"],
        absorbs: &[],
    },
    KnownError {
        cause: "ray_memory_monitor",
        title: "Ray ended a task: the node is low on memory",
        forms: &[
            anywhere(
                "running low on memory",
                r"(?:Task|Actor|Worker|[Tt]he actor)\S* (?:was|were|is) killed due to the node running low on memory",
                "Ray's memory monitor ended a task or actor, because its node had used nearly all of the host's memory. This is not \
                 the GPU's memory.",
            ),
            anywhere(
                "of the memory on node",
                r"More than (?P<share>[\d.]+%) of the memory on node\s+(?:\S+ is used)?",
                "More than {share} of the memory of a node was in use, and Ray's memory monitor stopped a task. This is the host's \
                 memory, not the GPU's.",
            ),
            anywhere(
                "killed due to memory pressure",
                r"(?P<count>\d+) Workers \(tasks / actors\) killed due to memory pressure \(OOM\)",
                "Ray's memory monitor ended {count} workers, because their node had used nearly all of the host's memory. This is not \
                 the GPU's memory.",
            ),
            anywhere(
                "RayOutOfMemoryError",
                r"RayOutOfMemoryError: ",
                "Ray's memory monitor stopped a task, because its node had used nearly all of the host's memory.",
            ),
        ],
        advice: &["ray-memory"],
        follows: &["cgroup_limit", "kernel_oom_killer"],
        absorbs: &[],
    },
    KnownError {
        cause: "shared_memory",
        title: "Shared memory (/dev/shm) is full",
        forms: &[
            form(
                "is killed by signal: Bus error",
                r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\) is killed by signal: Bus error",
                SHM,
            ),
            form("Unexpected bus error encountered in worker", r"Unexpected bus error encountered in worker", SHM),
            form(
                "unable to ",
                r"unable to (?:write to file|open shared memory object|mmap \d+ bytes from file|resize file) ?<?/?(?:torch_|dev/shm)?.*",
                "A program hands tensors over through shared memory (/dev/shm), which is full, or it has too many files open.",
            ),
            form(
                "unable to allocate shared memory",
                r"unable to allocate shared memory ?\(shm\) for file",
                "A program hands tensors over through shared memory (/dev/shm), which is full, or a limit on it is reached.",
            ),
            anywhere(
                "SIGBUS",
                r"terminated with signal SIGBUS|Signal 7 \(SIGBUS\) received by PID \d+|died with <Signals\.SIGBUS",
                BUS_ERROR,
            ),
            form("Fatal Python error: Bus error", r"Fatal Python error: Bus error", BUS_ERROR),
            form(
                "No space left on device",
                r".*(?:/dev/shm|shm_open|posix_fallocate|NCCL|nccl-).*No space left on device|\[Errno 28\] No space left on device.*/dev/shm",
                "Shared memory (/dev/shm) is full. Containers have 64 MB of it unless told otherwise.",
            ),
            anywhere(
                "Bus error",
                r"^(?:.*line +\d+: +\d+ )?Bus error(?: +\(core dumped\).*)?$",
                BUS_ERROR,
            ),
            anywhere(
                "/dev/shm/nccl",
                r"(?:Error|error|WARN).*(?:while creating|failed to (?:extend|open)|creating)(?: shared memory segment)? /dev/shm/nccl",
                "NCCL could not make its segment in shared memory (/dev/shm): it is full.",
            ),
        ],
        advice: &["shared-memory"],
        follows: &[],
        absorbs: &["worker_killed"],
    },
    KnownError {
        cause: "worker_killed",
        title: "A DataLoader worker was killed",
        forms: &[
            form(
                "is killed by signal: Killed",
                r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\) is killed by signal: Killed",
                WORKER_KILLED,
            ),
            form(
                "exited unexpectedly",
                r"DataLoader worker \(pid(?:\(s\))? (?P<pid>[\d, ]+)\) exited unexpectedly",
                "DataLoader worker {pid} ended without a word. Most often the host or the container ran out of memory; an error of the \
                 worker stands above in the log, if it printed one.",
            ),
        ],
        advice: &["worker-killed"],
        follows: &[
            "cgroup_limit",
            "earlyoom",
            "kernel_oom_killer",
            "slurm_oom_kill",
            "host_allocator",
            "pytorch",
            "cuda_malloc_async",
            "cuda_out_of_memory",
        ],
        absorbs: &[],
    },
    KnownError {
        cause: "host_allocator",
        title: "The host refused memory",
        forms: &[
            anywhere(
                "os::commit_memory",
                r"os::commit_memory\(.*\) failed; error='(?:Not enough space|Cannot allocate memory)'",
                HOST_ALLOCATION,
            ),
            form(
                "There is insufficient memory for the Java",
                r"^# There is insufficient memory for the Java Runtime Environment",
                HOST_ALLOCATION,
            ),
            form(
                "DefaultCPUAllocator: ",
                r"(?:\[enforce fail at [^\]]*\].{0,40}|)DefaultCPUAllocator: (?:can't allocate memory|not enough memory): you tried to allocate (?P<bytes>\d+) ?bytes",
                "PyTorch asked the host, not the GPU, for {bytes} at once, and the host refused: that is more than is free, or than a \
                 limit of the container or user allows.",
            ),
            form("posix_memalign(", r"\[enforce fail at [^\]]*\] ?posix_memalign\(", HOST_ALLOCATION),
            form(
                "std::bad_alloc",
                r"(?:std::bad_alloc|terminate called after throwing an instance of 'std::bad_alloc')(?:$|['\x22.\\])",
                HOST_ALLOCATION,
            ),
            form(
                "numpy",
                r"\S*ArrayMemoryError: Unable to allocate (?P<size>[\d.]+ \w+) for an array",
                "NumPy asked the host, not the GPU, for {size} at once, and the host refused.",
            ),
            form(
                "Unable to allocate",
                r"MemoryError: Unable to allocate (?P<size>[\d.]+ \w+) for an array|Unable to allocate (?:[\d.]+ \w+) for an array with shape",
                "NumPy asked the host, not the GPU, for an array that is larger than what is free.",
            ),
            form("MemoryError", r"(?:[\w.]*\b)?MemoryError(?:: .*)?$", HOST_ALLOCATION),
            form(
                "Cannot allocate memory",
                r"(?:OSError: |PermissionError: |BlockingIOError: )?\[Errno 12\] Cannot allocate memory",
                HOST_ALLOCATION,
            ),
            anywhere("Cannot allocate memory", r": Cannot allocate memory(?: \(12\))?\W*$", HOST_ALLOCATION),
            form(
                "memory allocation of ",
                r"memory allocation of (?P<bytes>\d+) bytes failed",
                "A library in Rust, such as tokenizers or safetensors, asked the host, not the GPU, for {bytes} at once, and the host \
                 refused.",
            ),
            form(
                "aging file is too small",
                r"(?:OSError: )?\[WinError 1455\] [Tt]he paging file is too small",
                "Windows has no room left in memory and page file for the libraries that Python loads.",
            ),
        ],
        advice: &["host-allocator"],
        follows: &["cgroup_limit", "kernel_oom_killer"],
        absorbs: &[],
    },
    KnownError {
        cause: "killed",
        title: "A process was killed (SIGKILL)",
        forms: &[
            anywhere(
                "exitcode: -9",
                r"failed \(exitcode: -9\) local_rank: (?P<local_rank>\d+) \(pid: (?P<pid>\d+)\)",
                "Local rank {local_rank} of a node (PID {pid}) was ended with SIGKILL, which nothing can catch. Most often the host, the container or the job ran out of memory (not the GPU), and the kernel chose this process.",
            ),
            anywhere("exitcode", r"^\W*(?P<in_table>exitcode)\s*: -9 \(pid: (?P<pid>\d+)\)", SIGKILL),
            anywhere("exitcode", r"failed \(exitcode: -9\)", SIGKILL),
            anywhere("Signal 9 (SIGKILL)", r"Signal 9 \(SIGKILL\) received by PID (?P<pid>\d+)", SIGKILL),
            anywhere(
                "SIGKILL",
                r"(?:died with <Signals\.SIGKILL: 9>|terminated with signal SIGKILL|terminated by (?:signal )?SIGKILL)",
                SIGKILL,
            ),
            anywhere("return code = -9", r"exits with return code = -9", SIGKILL),
            anywhere(
                "SIGKILL(-9)",
                r"exit codes of the workers are \{.*SIGKILL\(-9\)",
                "joblib lost a worker, which was ended with SIGKILL: most often the host or the container ran out of memory (not the GPU), \
                 and the kernel chose it.",
            ),
            anywhere(": Killed", r"srun: error: \S+: tasks? [\d,-]+: Killed$", SIGKILL),
            anywhere("status=9/KILL", r"Main process exited, code=killed, status=9/KILL", SIGKILL),
            anywhere("was sent SIGKILL!", r"Worker \(pid:(?P<pid>\d+)\) was sent SIGKILL!", SIGKILL),
            anywhere("signal 9 (Killed)", r"PID (?P<pid>\d+) on node \S+ exited on signal 9 \(Killed\)", SIGKILL),
            anywhere(
                "Killed signal terminated program",
                r"fatal error: Killed signal terminated program (?P<name>\S+)",
                "The compiler {name} was ended with SIGKILL: most often the host or the container had too little memory for so many \
                 compilers at once (MAX_JOBS, make -j).",
            ),
            anywhere(
                "ExitCode",
                r#""ExitCode": 137\b"#,
                "A container was ended with SIGKILL, and Docker says that it had not reached its memory limit (OOMKilled: false). Who \
                 ended it is not said: the kernel because the whole host was out of memory, docker stop or kill, or a person.",
            )
            .below(&NOT_OOM_KILLED),
            anywhere("signal: 9", r"\(signal: 9(?:, SIGKILL)?(?:: kill)?\)", SIGKILL),
            anywhere("Error 137", r"\*\*\* \[.*\] Error 137$", SIGKILL),
            anywhere("terminated by signal 9", r"[Cc]ommand terminated by signal 9\b", SIGKILL),
            anywhere(" signal 9", r"\bdied (?:due to|of) signal 9\b", SIGKILL),
            anywhere("signal (9)", r"\bsignal \(9\):? ?[Kk]illed", SIGKILL),
            anywhere("killed by signal 9", r"[Ww]orker process (?P<pid>\d+) was killed by signal 9\b", SIGKILL),
            anywhere("'signal 9 (SIGKILL)'", r"exited with 'signal 9 \(SIGKILL\)'", SIGKILL),
            anywhere("Exit code is 137", r"Container killed on request\. Exit code is 137\b", SIGKILL),
            anywhere(
                "internal compiler error: Killed",
                r"internal compiler error: Killed (?:signal terminated program |\(program )(?P<name>[\w+]+)",
                "The compiler {name} was ended with SIGKILL: most often the host or the container had too little memory for so many \
                 compilers at once (MAX_JOBS, make -j).",
            ),
            anywhere("execute command: Killed", r"error: unable to execute command: Killed", SIGKILL),
            anywhere("Negsignal.SIGKILL", r"exited with return code Negsignal\.SIGKILL", SIGKILL),
            anywhere("signal 9 (SIGKILL)", r"exited prematurely: signal 9 \(SIGKILL\)", SIGKILL),
            anywhere("errno 137", r"^npm ERR! errno 137$", SIGKILL),
            anywhere(
                "TerminatedWorkerError",
                r"TerminatedWorkerError: A worker process managed by the executor was unexpectedly terminated",
                "A worker of loky or joblib ended without a word. Most often the host or the container ran out of memory, and the kernel \
                 ended it.",
            ),
            anywhere(
                "KilledWorker",
                r"KilledWorker: ",
                "Dask gave up a task whose workers ended again and again. Most often each ran out of the host's memory, and Dask or the \
                 kernel ended it.",
            ),
            anywhere("exit status -9", r"returned non-zero exit status -9", SIGKILL),
            anywhere(
                "Killed",
                r"(?:line +\d+: +|\[\d+\][+-]? +)(?:\d+ )?Killed(?: +\S.*|\s*)$|^(?:\[\w+\]: ?)?Killed(?:: 9)?\s*(?:\(core dumped\))?$|[)\]]\s*Killed$",
                SIGKILL,
            ),
            anywhere(
                "killed",
                r"^(?:zsh: |\S+sh: )(?:\d+ )?killed(?: +\S.*)?$|\[\d+\] +(?:\+ )?\d* *killed +\S",
                SIGKILL,
            ),
            anywhere(
                "OOMKilled",
                r"(?i:Reason|State|status|\x22reason\x22)\W+\x22?OOMKilled|^\S+ +\d+/\d+ +OOMKilled\b|\x22OOMKilled\x22: ?true|OOMKilled$",
                "Kubernetes or Docker reports OOMKilled: the container reached its limit of the host's memory, and the kernel ended a process of it. This is not the GPU's memory.",
            ),
            anywhere(
                "137",
                r"(?i)(?:exit(?:ed)?(?: with)?(?: \w+)?|returned(?: a)? non-zero|exit)[ _]?(?:code|status)?[:= ]+\(?137\b",
                SIGKILL,
            ),
            anywhere(
                "SIGKILL",
                r"(?i:worker|process|task)\b[^.]*?(?:\d\W? | was | were | got )(?:killed|ended|terminated) (?:by|with) (?:signal )?(?:9 )?\(?SIGKILL",
                SIGKILL,
            ),
            anywhere(
                "BrokenProcessPool",
                r"BrokenProcessPool: A process in the process pool was terminated abruptly",
                "A worker of a process pool ended without a word. Most often the host or the container ran out of memory, and the kernel \
                 ended it.",
            ),
        ],
        advice: &["killed"],
        follows: &[
            "cgroup_limit",
            "earlyoom",
            "job_memory_limit",
            "kernel_oom_killer",
            "slurm_oom_kill",
            "ray_memory_monitor",
            "pytorch",
            "cuda_malloc_async",
            "cuda_out_of_memory",
            "host_allocator",
            "shared_memory",
            "worker_killed",
        ],
        absorbs: &[],
    },
];
