//! Why a process is not held or signalled, and what to do instead: one sentence each.

use std::fs;

use rustix::io::Errno;

use crate::base::text::Text;
use crate::protocol::reply::Outcome;

/// Why nothing was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The agent was started with `--readonly`.
    ReadOnly,
    /// 0 and 1 mean others than one process, and nothing above the largest PID is one.
    NoProcess,
    /// It is the agent or its viewer.
    Ourselves,
    /// It is a process that the agent descends from.
    Ancestor,
    /// It is part of the kernel.
    Kernel,
    /// NVML named the PID, and nothing shows that it means this process.
    Unverified,
    /// NVML named the PID, and no process here has it.
    Absent,
    /// It is too young to be told from a successor.
    Fresh,
    /// The last pass did not see it.
    Unknown,
    /// It was gone before anything was done.
    Ended,
    /// `/proc` counts PIDs otherwise than the kernel does for the agent.
    ForeignProc,
    /// The kernel does not let us.
    Denied { comm: Text, owner: Owner },
    /// A signal came without a hold.
    NotHeld,
    /// It was to be ended with others, and this one of them is not held.
    NotAlone(u32),
    /// The limit of held processes is reached.
    TooMany(usize),
    /// The kernel has no pidfds, or a sandbox forbids them.
    NoPidfd,
    /// The kernel answered in a way that is not expected here.
    Failed(Errno),
}

impl Refusal {
    /// The outcome for the viewer, about that PID.
    pub(super) fn outcome(&self, pid: u32) -> Outcome {
        Outcome::Refused { reason: self.sentence(pid).into() }
    }

    /// The same in words.
    pub(super) fn sentence(&self, pid: u32) -> String {
        match self {
            Self::ReadOnly => "gputop was started with --readonly: start it without to signal processes".to_owned(),
            Self::NoProcess => format!("{pid} is not a process to signal"),
            Self::Ourselves => format!("{pid} is gputop itself: press q to leave it"),
            Self::Ancestor => {
                format!("gputop runs inside {pid} and would end with it: signal it from another terminal")
            }
            Self::Kernel => format!("{pid} is a thread of the kernel: no signal ends it"),
            Self::Unverified => format!(
                "NVML may mean a process of another PID namespace, and {pid} here may be a stranger: \
                 run gputop on the host instead of in the container"
            ),
            Self::Absent => format!(
                "no process {pid} is seen here: it has ended, or it belongs to another PID namespace, \
                 a container's or the host's: look there"
            ),
            Self::Fresh => format!("{pid} started within the last clock tick: try again in a second"),
            Self::Unknown => format!("{pid} is not listed: wait for the next reading and try again"),
            Self::Ended => format!("{pid} has already ended"),
            Self::ForeignProc => format!(
                "/proc shows another PID namespace than gputop's own, so {pid} may be a stranger: \
                 run gputop where /proc is its own"
            ),
            Self::Denied { comm, owner } => {
                let name = owner.name();
                let who = if owner.is_root() { "root".to_owned() } else { format!("{name} or root") };
                format!("no permission to signal {pid} ({comm}, owned by {name}): run gputop as {who} (`sudo gputop`)")
            }
            Self::NotHeld => format!("{pid} is not held: open the panel again"),
            Self::NotAlone(other) => {
                format!("nothing was done to {pid}, because {other} is not held: open the panel again")
            }
            Self::TooMany(most) => format!("{most} processes are held already: let go of some before {pid}"),
            Self::NoPidfd => format!(
                "this kernel or sandbox has no pidfds (Linux 5.3), without which {pid} could be a stranger by now: \
                 signal it with `kill`"
            ),
            Self::Failed(error) => format!("cannot get hold of {pid}: {error}"),
        }
    }
}

/// Whose a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) uid: u32,
}

impl Owner {
    /// The owner of that PID; absent when it has ended.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let status = fs::read(format!("/proc/{pid}/status")).ok()?;
        Self::real_uid(&status).map(|uid| Self { uid })
    }

    fn is_root(self) -> bool {
        self.uid == 0
    }

    /// A user's name, or the number where no name is found.
    pub(super) fn name(self) -> Text {
        // Only this file: a directory of users on the network may not answer, and the next
        // command is perhaps an urgent one.
        let name = fs::read("/etc/passwd").ok().and_then(|users| Self::name_in(&users, self.uid));
        name.unwrap_or_else(|| format!("uid {}", self.uid).into())
    }

    fn real_uid(status: &[u8]) -> Option<u32> {
        let line = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"Uid:"))?;
        std::str::from_utf8(line).ok()?.split_ascii_whitespace().next()?.parse().ok()
    }

    fn name_in(users: &[u8], uid: u32) -> Option<Text> {
        users.split(|&byte| byte == b'\n').find_map(|user| {
            let mut fields = user.split(|&byte| byte == b':');
            let name = fields.next()?;
            let number: u32 = std::str::from_utf8(fields.nth(1)?).ok()?.parse().ok()?;
            (number == uid).then(|| Text::new(name))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_says_whose_it_is_and_what_to_do() {
        let uid = Owner::real_uid(b"Name:\tpython\nUid:\t4000001\t1002\t1003\t1004\n").expect("there is a line");
        let denied = Refusal::Denied { comm: "python".into(), owner: Owner { uid } };
        assert_eq!(
            denied.sentence(4711),
            "no permission to signal 4711 (python, owned by uid 4000001): \
             run gputop as uid 4000001 or root (`sudo gputop`)"
        );
    }

    #[test]
    fn a_user_has_the_name_that_the_list_of_users_says() {
        let users = b"root:x:0:0::/root:/bin/sh\nbad\n\nalice:x:1001:1001::/home/alice:/bin/sh\n";
        assert_eq!(Owner::name_in(users, 1001), Some("alice".into()));
        assert_eq!(Owner::name_in(users, 1002), None);
    }
}
