//! Lines that follow when one process of a job has failed. None of them names a cause.

use super::{ErrorForm, anywhere};

pub(in super::super) const AFTERMATH: &[ErrorForm] = &[
    anywhere(
        "Worker exit type: SYSTEM_ERROR",
        r"Worker exit type: SYSTEM_ERROR",
        "Ray lost a worker and does not know why: killed for memory, stopped, or crashed",
    ),
    anywhere(
        "ChildFailedError",
        r"ChildFailedError:",
        "torchrun ended the other ranks and reported that a rank had failed (ChildFailedError)",
    ),
    anywhere(
        "closing signal SIGTERM",
        r"Sending process (?P<pid>\d+) closing signal SIGTERM",
        "torchrun told the other ranks to end (SIGTERM)",
    ),
    anywhere(
        "Watchdog caught collective operation timeout",
        r"Watchdog caught collective operation timeout",
        "a rank waited in a collective operation of NCCL until its watchdog ended it: another rank had not joined it",
    ),
    anywhere(
        "heartbeat",
        r"(?:ProcessGroupNCCL|NCCL).*(?:watchdog|monitoring).* heartbeat",
        "the watchdog of NCCL stopped a rank that made no progress: another rank had not joined in",
    ),
    anywhere(
        "ncclRemoteError",
        r"ncclRemoteError: ",
        "a rank lost its connection to another rank, which had ended (ncclRemoteError)",
    ),
    anywhere(
        "Connection",
        r"(?:\[Rank \d+\]|ProcessGroup|TCPStore|gloo|recvValue|sendBytes|recvBytes|socket|Broken pipe).*(?:Connection reset by peer|Connection closed by peer|connection was closed|Connection refused)",
        "a rank lost its connection to another rank, which had ended",
    ),
    anywhere(
        "Broken pipe",
        r"(?:sendBytes|recvValue|TCPStore).*Broken pipe",
        "a rank lost its connection to another rank, which had ended",
    ),
    anywhere(
        "Engine core initialization failed",
        r"Engine core initialization failed\. See root cause above",
        "vLLM's server reported that its engine had not started",
    ),
    anywhere(
        "EngineDeadError",
        r"EngineDeadError: ",
        "vLLM's server reported that its engine had died",
    ),
    anywhere(
        "leaked semaphore objects",
        r"leaked (?:semaphore|shared_memory) objects to clean up",
        "Python cleaned up what the killed processes had left (leaked semaphores)",
    ),
    anywhere(
        "error: *** ",
        r"slurmstepd: error: \*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED",
        "Slurm cancelled the rest of the job",
    ),
    anywhere(
        "srun: Terminating",
        r"srun: Terminating (?:job step|StepId)",
        "Slurm ended the other tasks of the step",
    ),
];
