//! Why a connection of ssh, or a step of `srun`, failed or ended, by the last lines on its standard
//! error.

use super::schedule::NextTry;
use crate::base::text::Text;

/// A message of ssh or `srun`, in the order of their weight: with a jump host, ssh writes several.
struct SshMessage {
    /// The beginning or a part of a line.
    part: &'static str,
    /// The words for the row of the host, with its name for HOST; empty to take the line itself.
    words: &'static str,
    next: NextTry,
}

const MESSAGES: &[SshMessage] = &[
    SshMessage {
        part: "REMOTE HOST IDENTIFICATION HAS CHANGED",
        words: "the host key has changed: `ssh HOST` in a terminal says more",
        next: NextTry::OnRequest,
    },
    SshMessage {
        part: "Host key verification failed",
        words: "the host key is not known yet",
        next: NextTry::AfterLogin,
    },
    // sshd blocks an address that fails to log in again and again.
    SshMessage {
        part: "Permission denied (",
        words: "",
        next: NextTry::OnRequest,
    },
    SshMessage {
        part: "Too many authentication failures",
        words: "",
        next: NextTry::OnRequest,
    },
    SshMessage {
        part: "Bad configuration option",
        words: "",
        next: NextTry::OnRequest,
    },
    // Slurm would be asked again and again for a job that is over.
    SshMessage {
        part: "Expired or invalid job",
        words: "the job of Slurm has ended",
        next: NextTry::OnRequest,
    },
    SshMessage {
        part: "srun: Force Terminated",
        words: "Slurm has ended the step: the job is over, or the step was cancelled",
        next: NextTry::ByItself,
    },
    SshMessage {
        part: STEP_REFUSED_GPUS,
        words: "",
        next: NextTry::ByItself,
    },
    SshMessage {
        part: "srun: error: Unable to create step",
        words: "",
        next: NextTry::OnRequest,
    },
    SshMessage {
        part: "Connection timed out",
        words: "connect timed out",
        next: NextTry::ByItself,
    },
    SshMessage {
        part: "Operation timed out",
        words: "connect timed out",
        next: NextTry::ByItself,
    },
    SshMessage {
        part: "Connection refused",
        words: "connection refused",
        next: NextTry::ByItself,
    },
    SshMessage {
        part: "No route to host",
        words: "no route to the host",
        next: NextTry::ByItself,
    },
    SshMessage {
        part: "Could not resolve hostname",
        words: "",
        next: NextTry::ByItself,
    },
    SshMessage {
        part: "not responding",
        words: "no answer to ssh's keep-alive: the link is cut, or the host hangs",
        next: NextTry::ByItself,
    },
];

/// A part of the message of `srun` when Slurm refuses a step because of its GPUs.
const STEP_REFUSED_GPUS: &str = "generic resource (gres) specification";

/// Methods of authentication that ask a person.
const ASKING: [&str; 2] = ["password", "keyboard-interactive"];

/// Returns why ssh has failed, and how the host is connected again. `None` if it said nothing.
///
/// Without a screen, on which a key logs in, the reason names a command for it.
pub(super) fn reason(host: &str, lines: &[Text], has_screen: bool) -> Option<(Text, NextTry)> {
    let known = MESSAGES.iter().find_map(|message| {
        let line = lines
            .iter()
            .rfind(|line| line.as_str().contains(message.part))?;
        Some((message, line))
    });
    let Some((message, line)) = known else {
        return lines
            .last()
            .map(|line| (Text::from(without_program(line)), NextTry::ByItself));
    };
    let line = without_program(line);
    let (words, next) = match (message.words, line.split_once("Permission denied (")) {
        ("", Some((_, methods))) if ASKING.iter().any(|asking| methods.contains(asking)) => {
            ("asks for a password", NextTry::AfterLogin)
        }
        ("", Some((_, methods))) => {
            let words = format!("permission denied ({}", methods.trim_end_matches('.'));
            return Some((Text::from(words.as_str()), message.next));
        }
        ("", None) => return Some((Text::from(line), message.next)),
        (words, _) => (words, message.next),
    };
    let mut words = words.replace("HOST", host);
    if next == NextTry::AfterLogin && !has_screen {
        words.push_str(": `gputop hosts connect ");
        words.push_str(host);
        words.push_str("` logs in");
    }
    Some((Text::from(words.as_str()), next))
}

/// Whether a command that says this at its end would fail again, and an attempt could do harm.
pub(super) fn waits_for_user(line: &Text) -> bool {
    MESSAGES
        .iter()
        .any(|message| message.next != NextTry::ByItself && line.as_str().contains(message.part))
}

/// Whether Slurm has refused a step because of its GPUs.
pub(super) fn refuses_gpus(lines: &[Text]) -> bool {
    lines
        .iter()
        .any(|line| line.as_str().contains(STEP_REFUSED_GPUS))
}

fn without_program(line: &Text) -> &str {
    let line = line.as_str();
    ["ssh: ", "srun: error: "]
        .iter()
        .find_map(|program| line.strip_prefix(program))
        .unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(lines: &[&str], words: &str, next: NextTry) {
        let lines: Vec<Text> = lines.iter().map(|line| Text::from(*line)).collect();
        assert_eq!(
            reason("gpu-01", &lines, false),
            Some((words.into(), next)),
            "{lines:?}"
        );
    }

    #[test]
    fn messages_of_srun_are_said_in_a_few_words() {
        check(
            &[
                "srun: error: Slurm job 14 has expired",
                "srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 14",
            ],
            "the job of Slurm has ended",
            NextTry::OnRequest,
        );
        check(
            &[
                "srun: error: Unable to create step for job 16: Requested node configuration is not available",
            ],
            "Unable to create step for job 16: Requested node configuration is not available",
            NextTry::OnRequest,
        );
        check(
            &[
                "slurmstepd-gpu-03: error: *** STEP 16.0 ON gpu-03 CANCELLED AT 2026-11-27T00:31:49 ***",
                "srun: error: gpu-03: task 0: Terminated",
                "srun: Force Terminated StepId=16.0",
            ],
            "Slurm has ended the step: the job is over, or the step was cancelled",
            NextTry::ByItself,
        );
        let refusal = "srun: error: Unable to create step for job 17: Invalid generic resource (gres) specification";
        check(
            &[refusal],
            "Unable to create step for job 17: Invalid generic resource (gres) specification",
            NextTry::ByItself,
        );
        assert!(refuses_gpus(&["srun: x".into(), refusal.into()]));
        assert!(!refuses_gpus(
            &["srun: error: Unable to create step".into()]
        ));
    }

    #[test]
    fn messages_of_ssh_are_said_in_a_few_words() {
        use NextTry::{AfterLogin, ByItself, OnRequest};
        check(
            &["ssh: connect to host 10.0.0.1 port 22: Connection refused"],
            "connection refused",
            ByItself,
        );
        check(
            &["ssh: connect to host gpu-01 port 22: Connection timed out"],
            "connect timed out",
            ByItself,
        );
        check(
            &[
                "Connection timed out during banner exchange",
                "Connection to 10.0.0.1 port 22 timed out",
            ],
            "connect timed out",
            ByItself,
        );
        check(
            &["ssh: Could not resolve hostname gpu-01: Name or service not known"],
            "Could not resolve hostname gpu-01: Name or service not known",
            ByItself,
        );
        check(
            &["Timeout, server gpu-01 not responding."],
            "no answer to ssh's keep-alive: the link is cut, or the host hangs",
            ByItself,
        );
        check(
            &["alice@gpu-01: Permission denied (publickey)."],
            "permission denied (publickey)",
            OnRequest,
        );
        check(
            &["alice@gpu-01: Permission denied (publickey,password)."],
            "asks for a password: `gputop hosts connect gpu-01` logs in",
            AfterLogin,
        );
        check(
            &[
                "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @",
                "Host key verification failed.",
            ],
            "the host key has changed: `ssh gpu-01` in a terminal says more",
            OnRequest,
        );
        check(
            &["Host key verification failed."],
            "the host key is not known yet: `gputop hosts connect gpu-01` logs in",
            AfterLogin,
        );
    }

    #[test]
    fn no_command_is_named_on_a_screen() {
        let line = "alice@gpu-01: Permission denied (publickey,keyboard-interactive).";
        assert_eq!(
            reason("gpu-01", &[line.into()], true),
            Some(("asks for a password".into(), NextTry::AfterLogin))
        );
    }

    #[test]
    fn behind_a_jump_host_its_message_counts() {
        check(
            &[
                "alice@login: Permission denied (publickey).",
                "kex_exchange_identification: Connection closed by remote host",
                "Connection closed by UNKNOWN port 65535",
            ],
            "permission denied (publickey)",
            NextTry::OnRequest,
        );
    }

    #[test]
    fn another_message_is_its_last_line() {
        check(
            &[
                "Welcome",
                "kex_exchange_identification: read: Connection reset by peer",
            ],
            "kex_exchange_identification: read: Connection reset by peer",
            NextTry::ByItself,
        );
        assert_eq!(reason("gpu-01", &[], false), None);
    }
}
