//! Why the probe is not started in a running process, and what to do instead.

use rustix::io::Errno;

use crate::base::text::Text;

/// Why no probe was started. The first field of most variants is the PID. `Display` writes one
/// sentence for the user.
#[derive(Debug, Clone, PartialEq, Eq, strum::Display)]
pub(crate) enum AttachRefusal {
    #[strum(
        to_string = "no process {0} is seen here: it has ended, or it belongs to another PID namespace, \
                         a container's or the host's: look there"
    )]
    Gone(u32),
    /// The second number is the PID of the process.
    #[strum(to_string = "{0} is a thread of process {1}: run `gputop attach {1}`")]
    Thread(u32, u32),
    #[strum(
        to_string = "the main thread of process {0} has ended, and only that thread could start the probe: \
                         start the program as `gputop run -- python train.py`"
    )]
    NoMainThread(u32),
    #[strum(
        to_string = "process {pid} belongs to {owner}, and gputop runs its Python as nobody else, root included: \
                         run `sudo -u {owner} gputop attach {pid}`"
    )]
    OtherUser { pid: u32, owner: Text },
    #[strum(
        to_string = "process {pid} runs in a container or a similar namespace, whose files are not those of gputop: \
                         run `gputop attach {inner}` inside it, as with `docker exec`"
    )]
    OtherNamespace { pid: u32, inner: u32 },
    #[strum(
        to_string = "process {0} has another root folder, in which the probe is not found: \
                         start the program as `gputop run -- python train.py` there"
    )]
    OtherRoot(u32),
    #[strum(
        to_string = "the kernel does not let gputop look into process {0}, which is not dumpable, or gputop is in a \
                         sandbox: start the program as `gputop run -- python train.py`"
    )]
    Protected(u32),
    /// The second field is the program.
    #[strum(
        to_string = "process {0} runs {1}, which is no Python interpreter: give the PID of its Python process, or \
                         start the program as `gputop run -- python train.py`"
    )]
    NotPython(u32, Text),
    /// The second field is the implementation with its version.
    #[strum(
        to_string = "process {0} runs {1}, and only CPython 3.14 or later lets gputop attach: \
                         start the program as `gputop run -- python train.py`"
    )]
    UnsuitablePython(u32, Text),
    #[strum(
        to_string = "process {0} runs a Python that was built without remote debugging: \
                         start the program as `gputop run -- python train.py`"
    )]
    BuiltWithout(u32),
    #[strum(
        to_string = "process {0} was started with `-X disable-remote-debug` or PYTHON_DISABLE_REMOTE_DEBUG: start \
                         it without, or as `gputop run -- python train.py`"
    )]
    RemoteDebugOff(u32),
    #[strum(
        to_string = "process {0} was started with GPUTOP_PROBE=0, which turns the probe off: start it without"
    )]
    TurnedOff(u32),
    #[strum(
        to_string = "process {0} has the probe already: run `gputop tensors {0}`, or press Enter on it in gputop"
    )]
    HasProbe(u32),
    #[strum(
        to_string = "process {0} has the probe already, which waits for the program to use a GPU through PyTorch"
    )]
    HasWaitingProbe(u32),
    #[strum(to_string = "process {0} is stopped: continue it first, as with `kill -CONT {0}`")]
    Stopped(u32),
    #[strum(to_string = "process {0} is stopped by a debugger: let it go on first")]
    Traced(u32),
    #[strum(
        to_string = "kernel.yama.ptrace_scope is {1}, so the kernel does not let gputop write to process {0}: run \
                         `sudo sysctl kernel.yama.ptrace_scope=0`, or start the program as `gputop run -- python train.py`"
    )]
    Yama(u32, u8),
    #[strum(
        to_string = "the kernel does not let gputop write to process {0}: start the program as \
                         `gputop run -- python train.py`, or a container with `--cap-add SYS_PTRACE`"
    )]
    Denied(u32),
    /// The second field is Python's message.
    #[strum(
        to_string = "the Python of process {0} cannot start the probe there: {1}: \
                         start the program as `gputop run -- python train.py`"
    )]
    Failed(u32, Text),
    /// The kernel has no pidfds, or a sandbox forbids them.
    #[strum(
        to_string = "this kernel or sandbox has no pidfds (Linux 5.3), without which {0} could be a stranger by now: \
                         start the program as `gputop run -- python train.py`"
    )]
    NoPidfd(u32),
    #[strum(to_string = "cannot look at process {0}: {1}")]
    Unreadable(u32, Errno),
}
