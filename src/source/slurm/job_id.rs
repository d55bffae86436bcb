//! The ID of a job as a person types it: `4242` or `4242_3`, after the host to ask and a colon.

use std::fmt;
use std::str::FromStr;

use crate::base::text::Text;
use crate::source::ssh::HostName;

/// The ID of a job, or of a task of an array of jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlurmJobId {
    /// The number of the job or of the array.
    pub job: u32,
    /// The number of the task in the array; `None` for any other job.
    pub task: Option<u32>,
}

/// A job, and the host on which Slurm is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlurmTarget {
    /// The host on which Slurm is asked over ssh; `None` for this host.
    pub login: Option<HostName>,
    /// The ID of the job.
    pub job: SlurmJobId,
}

impl fmt::Display for SlurmJobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.job)?;
        match self.task {
            Some(task) => write!(f, "_{task}"),
            None => Ok(()),
        }
    }
}

impl FromStr for SlurmJobId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (job, task) = match text.split_once('_') {
            Some((job, task)) => (job, Some(task)),
            None => (text, None),
        };
        let number = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| text.parse().ok()).flatten()
        };
        let parsed = match (number(job).filter(|job| *job > 0), task.map(number)) {
            (Some(job), None) => Some(Self { job, task: None }),
            (Some(job), Some(Some(task))) => Some(Self {
                job,
                task: Some(task),
            }),
            _ => None,
        };
        parsed.ok_or_else(|| {
            format!(
                "`{}` is no job of Slurm, such as 4242 or 4242_3",
                Text::new(text)
            )
        })
    }
}

impl FromStr for SlurmTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text.rsplit_once(':') {
            Some((login, job)) => Self {
                login: Some(login.parse()?),
                job: job.parse()?,
            },
            None => Self {
                login: None,
                job: text.parse()?,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, login: Option<&str>, job: u32, task: Option<u32>) {
        let target: SlurmTarget = text.parse().unwrap();
        assert_eq!(target.login.as_ref().map(HostName::as_str), login);
        assert_eq!(target.job, SlurmJobId { job, task });
    }

    #[test]
    fn a_job_may_have_a_task_and_a_login_host() {
        check("4242", None, 4242, None);
        check("4242_3", None, 4242, Some(3));
        check("login:4242", Some("login"), 4242, None);
        check(
            "alice@login:2222:4242_0",
            Some("alice@login:2222"),
            4242,
            Some(0),
        );
        check("[fe80::1]:22:7", Some("[fe80::1]:22"), 7, None);
        for id in ["4242", "4242_3"] {
            assert_eq!(id.parse::<SlurmJobId>().unwrap().to_string(), id);
        }
    }

    #[test]
    fn another_text_is_refused_with_a_sentence() {
        for (text, reason) in [
            ("", "`` is no job of Slurm, such as 4242 or 4242_3"),
            ("llama", "`llama` is no job of Slurm"),
            ("0", "`0` is no job of Slurm"),
            ("-1", "`-1` is no job of Slurm"),
            ("+1", "`+1` is no job of Slurm"),
            ("4242_", "`4242_` is no job of Slurm"),
            ("4242_[1-3]", "`4242_[1-3]` is no job of Slurm"),
            ("4242.0", "`4242.0` is no job of Slurm"),
            ("99999999999", "`99999999999` is no job of Slurm"),
            ("login:", "`` is no job of Slurm"),
            (":7", "lacks the name of a host"),
            ("-v:7", "begins with `-`"),
            ("a b:7", "has the character ' '"),
        ] {
            let why = text.parse::<SlurmTarget>().unwrap_err();
            assert!(why.contains(reason), "{text}: {why}");
        }
    }
}
