//! Why a process is not held or signalled, and what to do instead.

use rustix::io::Errno;

use crate::agent::procfs::read_cut;
use crate::base::text::Text;
use crate::protocol::reply::Outcome;

/// Why nothing was done to a process. Most variants hold its PID. `Display` writes one sentence for
/// the user.
#[derive(Debug, Clone, PartialEq, Eq, strum::Display)]
pub(super) enum Refusal {
    #[strum(to_string = "gputop was started with --readonly: start it without to signal processes")]
    ReadOnly,
    /// To `kill`, 0 means a process group. 1 is init, and no PID has 32 bits.
    #[strum(to_string = "{0} is not a process to signal")]
    NoProcess(u32),
    #[strum(to_string = "{0} is gputop itself: press q to leave it")]
    Ourselves(u32),
    #[strum(
        to_string = "gputop runs inside {0} and would end with it: signal it from another terminal"
    )]
    Ancestor(u32),
    #[strum(to_string = "{0} is a thread of the kernel: no signal ends it")]
    Kernel(u32),
    /// The process is [`Identity::Unverified`](crate::protocol::snapshot::Identity::Unverified).
    #[strum(
        to_string = "NVML may mean a process of another PID namespace, and {0} here may be a stranger: \
                         run gputop on the host instead of in the container"
    )]
    Unverified(u32),
    /// NVML lists the PID, and `/proc` does not.
    #[strum(
        to_string = "no process {0} is seen here: it has ended, or it belongs to another PID namespace, \
                         a container's or the host's: look there"
    )]
    Absent(u32),
    /// A later process with the same PID could have the same start ticks.
    #[strum(to_string = "{0} started within the last clock tick: try again in a second")]
    Fresh(u32),
    #[strum(to_string = "{0} is not listed: wait for the next reading and try again")]
    Unknown(u32),
    #[strum(to_string = "{0} has already ended")]
    Ended(u32),
    #[strum(
        to_string = "/proc shows another PID namespace than gputop's own, so {0} may be a stranger: \
                         run gputop where /proc is its own"
    )]
    ForeignProc(u32),
    #[strum(
        to_string = "no permission to signal {pid} ({comm}, owned by {owner}): run gputop as {user} (`sudo gputop`)"
    )]
    Denied {
        pid: u32,
        comm: Text,
        owner: Text,
        user: Text,
    },
    #[strum(to_string = "{0} is not held: open the panel again")]
    NotHeld(u32),
    /// The second process was to end together with the first, and is not held.
    #[strum(to_string = "nothing was done to {0}, because {1} is not held: open the panel again")]
    NotAlone(u32, u32),
    /// The second number is the limit.
    #[strum(to_string = "{1} processes are held already: let go of some before {0}")]
    TooMany(u32, usize),
    /// The kernel has no pidfds, or a sandbox forbids them.
    #[strum(
        to_string = "this kernel or sandbox has no pidfds (Linux 5.3), without which {0} could be a stranger by now: \
                         signal it with `kill`"
    )]
    NoPidfd(u32),
    #[strum(to_string = "{0} is a thread, not a process: name its process")]
    Thread(u32),
    #[strum(to_string = "cannot get hold of {0}: {1}")]
    Failed(u32, Errno),
}

impl Refusal {
    /// `uid` is the owner of the process.
    pub(super) fn denied(pid: u32, comm: Text, uid: u32) -> Self {
        let owner = user_name(uid);
        let user = if uid == 0 {
            "root".into()
        } else {
            format!("{owner} or root").into()
        };
        Self::Denied {
            pid,
            comm,
            owner,
            user,
        }
    }
}

impl From<Refusal> for Outcome {
    fn from(refusal: Refusal) -> Self {
        Self::Refused {
            reason: refusal.to_string().into(),
        }
    }
}

impl From<Refusal> for String {
    fn from(refusal: Refusal) -> Self {
        refusal.to_string()
    }
}

/// Returns the name of a user, or `uid 1000` if there is none. Reads only `/etc/passwd`: a user
/// directory on the network may hang, and the next command may be urgent.
pub(super) fn user_name(uid: u32) -> Text {
    let name = read_cut("/etc/passwd")
        .ok()
        .and_then(|users| name_in(&users, uid));
    name.unwrap_or_else(|| format!("uid {uid}").into())
}

fn name_in(users: &[u8], uid: u32) -> Option<Text> {
    users.split(|byte| *byte == b'\n').find_map(|user| {
        let mut fields = user.split(|byte| *byte == b':');
        let name = fields.next()?;
        (fields.nth(1)? == uid.to_string().as_bytes()).then(|| Text::new(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_names_the_owner_and_who_may_signal() {
        assert_eq!(
            Refusal::denied(4711, "python".into(), 4_000_001).to_string(),
            "no permission to signal 4711 (python, owned by uid 4000001): \
             run gputop as uid 4000001 or root (`sudo gputop`)"
        );
    }

    #[test]
    fn a_user_has_the_name_in_the_list_of_users() {
        let users = b"root:x:0:0::/root:/bin/sh\nbad\n\nalice:x:1001:1001::/home/alice:/bin/sh\n";
        assert_eq!(name_in(users, 1001), Some("alice".into()));
        assert_eq!(name_in(users, 1002), None);
    }
}
