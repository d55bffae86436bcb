//! Parses the stories. After its title, a story has these lines, in this order:
//!
//! ```text
//! # the title
//! train.py:                     a file, indented below; `from prelude import *` is prepended
//!     sleep_as("trainer")       a process reports its role
//! run: bash run.sh              the first command; by default, `python3` with the first file
//! on trainer 11GiB sm 90 kept by worker0      the driver lists the process on the story's GPU, with this SM utilization;
//!                               its memory stays in use until the processes after `kept by` have ended
//! ready monitor                 waits for a process that the driver does not list
//! extra 11GiB                   memory of the GPU that the driver lists no process for
//! kill trainer                  sends SIGKILL and waits for the end; `stop`: SIGSTOP
//! ghost trainer                 from now on, the driver lists the process even after its end
//! sm trainer 0                  sets its SM utilization
//! = worker0 => orphan: its trainer ({trainer}     the word of its verdict, and a fragment of its sentence; a role in braces
//!                               stands for a PID
//! = worker0 => gone             the process has ended
//! = job worker0 => train.py: trainer worker0      the name of its job, and the roles in the job
//! = origin trainer => tmux      its origin
//! = unaccounted => 11.0 GiB, open in worker0      the unaccounted memory of the GPU, and the device-file holders
//! never trainer => orphan orphan?      its verdict is none of these words, from here to the end
//! later                         the claims below hold eleven minutes later
//! ```
//!
//! The actions before the first claim happen before gputop starts. Consecutive claims must hold
//! together before the story continues.

use std::collections::BTreeSet;

#[derive(Debug, Default)]
pub(super) struct Story {
    pub(super) title: String,
    /// The names and texts of its files.
    pub(super) files: Vec<(String, String)>,
    pub(super) run: Vec<String>,
    /// Actions, and the claims after them.
    pub(super) steps: Vec<Step>,
    /// The claims eleven minutes after the last step.
    pub(super) later: Vec<Claim>,
}

#[derive(Debug, Default)]
pub(super) struct Step {
    pub(super) actions: Vec<Action>,
    pub(super) claims: Vec<Claim>,
}

#[derive(Debug)]
pub(super) enum Action {
    Ready(String),
    On {
        role: String,
        memory: u64,
        sm: Option<u32>,
        holders: Vec<String>,
    },
    Sm(String, u32),
    Extra(u64),
    Kill(String),
    Stop(String),
    Ghost(String),
}

#[derive(Debug)]
pub(super) enum Claim {
    Verdict {
        role: String,
        word: String,
        fragment: String,
    },
    Gone(String),
    Never {
        roles: Vec<String>,
        words: Vec<String>,
    },
    Job {
        role: String,
        job: String,
    },
    Origin {
        role: String,
        origin: String,
    },
    Unaccounted(String),
}

/// Returns the stories of a file. Ignores the text before the first title.
pub(super) fn read(text: &str) -> Vec<Story> {
    let stories = text.split("\n# ").skip(1);
    stories.map(story).collect()
}

fn story(text: &str) -> Story {
    let (title, rest) = text.split_once('\n').expect("lines follow the title");
    let mut story = Story {
        title: title.to_owned(),
        steps: vec![Step::default()],
        ..Story::default()
    };
    let mut is_later = false;
    for line in rest.lines().filter(|line| !line.is_empty()) {
        let step = story
            .steps
            .last_mut()
            .expect("the first step was created above");
        if let Some(code) = line.strip_prefix("    ") {
            let file = story.files.last_mut().unwrap_or_else(|| {
                panic!("{title}: {code:?} is indented, but follows no file name")
            });
            file.1.push_str(code);
            file.1.push('\n');
        } else if let Some(command) = line.strip_prefix("run: ") {
            story.run = words(command);
        } else if let Some(name) = line.strip_suffix(':').filter(|name| !name.contains(' ')) {
            story.files.push((name.to_owned(), String::new()));
        } else if line == "later" {
            is_later = true;
        } else if let Some(claim) = claim(line) {
            if is_later {
                story.later.push(claim);
            } else {
                step.claims.push(claim);
            }
        } else {
            let action = action(line)
                .unwrap_or_else(|| panic!("{title}: {line:?} is neither a claim nor an action"));
            if step.claims.is_empty() {
                step.actions.push(action);
            } else {
                story.steps.push(Step {
                    actions: vec![action],
                    claims: Vec::new(),
                });
            }
        }
    }
    if story.run.is_empty() {
        story.run = vec!["python3".to_owned(), story.files[0].0.clone()];
    }
    story
}

fn claim(line: &str) -> Option<Claim> {
    let (subject, expected) = line.split_once(" => ")?;
    if let Some(roles) = subject.strip_prefix("never ") {
        return Some(Claim::Never {
            roles: words(roles),
            words: words(expected),
        });
    }
    let expected = expected.to_owned();
    Some(match subject.strip_prefix("= ")?.split_once(' ') {
        Some(("job", role)) => Claim::Job {
            role: role.to_owned(),
            job: expected,
        },
        Some(("origin", role)) => Claim::Origin {
            role: role.to_owned(),
            origin: expected,
        },
        Some(_) => return None,
        None if subject == "= unaccounted" => Claim::Unaccounted(expected),
        None if expected == "gone" => Claim::Gone(subject[2..].to_owned()),
        None => {
            let (word, fragment) = expected.split_once(": ").or(expected.split_once(':'))?;
            Claim::Verdict {
                role: subject[2..].to_owned(),
                word: word.to_owned(),
                fragment: fragment.to_owned(),
            }
        }
    })
}

fn action(line: &str) -> Option<Action> {
    let words = words(line);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Some(match words.as_slice() {
        ["ready", role] => Action::Ready((*role).to_owned()),
        ["extra", memory] => Action::Extra(bytes(memory)?),
        ["kill", role] => Action::Kill((*role).to_owned()),
        ["stop", role] => Action::Stop((*role).to_owned()),
        ["ghost", role] => Action::Ghost((*role).to_owned()),
        ["sm", role, percent] => Action::Sm((*role).to_owned(), percent.parse().ok()?),
        ["on", role, memory, more @ ..] => {
            let (mut sm, mut holders) = (None, &[][..]);
            match more {
                ["sm", percent, "kept", "by", by @ ..] => {
                    (sm, holders) = (Some(percent.parse().ok()?), by);
                }
                ["sm", percent] => sm = Some(percent.parse().ok()?),
                ["kept", "by", by @ ..] => holders = by,
                [] => {}
                _ => return None,
            }
            let holders = holders.iter().map(|holder| (*holder).to_owned()).collect();
            Action::On {
                role: (*role).to_owned(),
                memory: bytes(memory)?,
                sm,
                holders,
            }
        }
        _ => return None,
    })
}

fn bytes(text: &str) -> Option<u64> {
    let units = [("GiB", 30), ("MiB", 20)];
    units
        .iter()
        .find_map(|(unit, shift)| Some(text.strip_suffix(unit)?.parse::<u64>().ok()? << shift))
}

pub(super) fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

impl Story {
    /// The roles that actions and claims name.
    pub(super) fn roles(&self) -> BTreeSet<&str> {
        let actions = self
            .steps
            .iter()
            .flat_map(|step| &step.actions)
            .flat_map(|action| match action {
                Action::On { role, holders, .. } => {
                    std::iter::once(role).chain(holders).collect::<Vec<_>>()
                }
                Action::Ready(role)
                | Action::Kill(role)
                | Action::Stop(role)
                | Action::Ghost(role)
                | Action::Sm(role, _) => vec![role],
                Action::Extra(_) => Vec::new(),
            });
        let claims = self
            .steps
            .iter()
            .flat_map(|step| &step.claims)
            .chain(&self.later)
            .flat_map(|claim| match claim {
                Claim::Verdict { role, .. }
                | Claim::Gone(role)
                | Claim::Job { role, .. }
                | Claim::Origin { role, .. } => {
                    vec![role]
                }
                Claim::Never { roles, .. } => roles.iter().collect(),
                Claim::Unaccounted(_) => Vec::new(),
            });
        actions.chain(claims).map(String::as_str).collect()
    }
}
