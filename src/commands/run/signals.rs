//! Signals of a process that waits for its child and takes no action of its own on them.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Pid, Resource, Rlimit, setrlimit};

/// The signals of this process, all blocked: they wait until [`BlockedSignals::next`] takes them.
pub(super) struct BlockedSignals {
    all: libc::sigset_t,
    /// The mask with which gputop started.
    before: libc::sigset_t,
    /// The action of SIGCHLD when gputop started. Where it was to ignore the signal, the kernel
    /// would keep no exit codes.
    child_action: libc::sighandler_t,
}

impl BlockedSignals {
    /// Blocks all signals. Call it before other threads start: each thread has its own mask.
    pub(super) fn block() -> Self {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: both sets are written before they are read, and the default action of SIGCHLD
        // runs no code of this process.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            Self {
                all: all.assume_init(),
                before: before.assume_init(),
                child_action: libc::signal(libc::SIGCHLD, libc::SIG_DFL),
            }
        }
    }

    /// Makes a command start with the signal mask and the action of SIGCHLD that gputop started
    /// with.
    pub(super) fn restore_in(&self, command: &mut Command) {
        let (before, child_action) = (self.before, self.child_action);
        let restore = move || {
            // SAFETY: the set was filled by the kernel, and the action is not a function of this
            // process: gputop has just started.
            unsafe {
                libc::signal(libc::SIGCHLD, child_action);
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
            }
            Ok(())
        };
        // SAFETY: the closure makes two system calls, allocates nothing and takes no lock.
        unsafe { command.pre_exec(restore) };
    }

    /// Waits for a signal and returns its number.
    pub(super) fn next(&self) -> i32 {
        let mut signal = 0;
        // SAFETY: the set is initialized, and the number has room for a signal.
        unsafe { libc::sigwait(&raw const self.all, &raw mut signal) };
        signal
    }
}

/// Sends a signal to a child that was not waited for, so the PID is its own.
pub(super) fn send(child: Pid, signal: i32) {
    // SAFETY: the call reads nothing from memory. It fails only for a child of another user, which
    // gputop may not signal.
    let _refused = unsafe { libc::kill(child.as_raw_nonzero().get(), signal) };
}

/// Takes the default action of a signal, which is blocked before and after. Returns when it has not
/// ended this process, or when this process was stopped and is continued.
pub(super) fn take_default_action(signal: i32) {
    let mut one = MaybeUninit::uninit();
    // SAFETY: the set is initialized before it is used, and no code of this process runs on the
    // default action.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::sigemptyset(one.as_mut_ptr());
        libc::sigaddset(one.as_mut_ptr(), signal);
        libc::raise(signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, one.as_ptr(), std::ptr::null_mut());
        libc::pthread_sigmask(libc::SIG_BLOCK, one.as_ptr(), std::ptr::null_mut());
    }
}

/// Keeps this process from writing a core file.
pub(super) fn forbid_core_file() -> io::Result<()> {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    Ok(setrlimit(Resource::Core, none)?)
}
