//! Reads the stories. After its title, a story has these lines, in this order:
//!
//! ```text
//! # the title
//! train.py:                     a file, indented below; `from stage import *` is prepended
//!     rest("trainer")           a process reports the part that it plays
//! run: bash run.sh              the first command; by default, `python3` with the first file
//! on trainer 11GiB sm 90 kept by worker0      the driver lists it on the story's GPU, with this utilisation; its
//!                               memory stays while one of the processes lives that keep it
//! ready monitor                 waits for a process that the driver does not list
//! extra 11GiB                   memory of the GPU that the driver lists no process for
//! kill trainer                  sends SIGKILL and waits for the end; `stop`: SIGSTOP
//! ghost trainer                 from now on the driver lists it even after its end
//! sm trainer 0                  sets its utilisation
//! = worker0 => orphan: its trainer ({trainer}     the word of its verdict, and a part of its sentence, with PIDs by part
//! = worker0 => gone             it has ended
//! = job worker0 => train.py: trainer worker0      the name of its job, and the parts in the job
//! = origin trainer => tmux      its origin
//! = unaccounted => 11.0 GiB, open in worker0      the unaccounted memory of its GPU, and its possible holders
//! never trainer => orphan orphan?      its verdict is none of these words, from here to the end
//! later                         the claims below hold eleven minutes later
//! ```
//!
//! The acts before the first claim happen before gputop starts. Consecutive claims must hold together before the story
//! continues.

use std::collections::BTreeSet;

/// A story.
#[derive(Debug, Default)]
pub(super) struct Story {
    pub(super) title: String,
    /// The names and texts of its files.
    pub(super) files: Vec<(String, String)>,
    pub(super) run: Vec<String>,
    /// Acts, and the claims after them.
    pub(super) scenes: Vec<Scene>,
    /// The claims eleven minutes after the last scene.
    pub(super) later: Vec<Claim>,
}

#[derive(Debug, Default)]
pub(super) struct Scene {
    pub(super) acts: Vec<Act>,
    pub(super) claims: Vec<Claim>,
}

#[derive(Debug)]
pub(super) enum Act {
    Ready(String),
    On { part: String, memory: u64, sm: Option<u32>, holders: Vec<String> },
    Sm(String, u32),
    Extra(u64),
    Kill(String),
    Stop(String),
    Ghost(String),
}

#[derive(Debug)]
pub(super) enum Claim {
    Verdict { part: String, word: String, fragment: String },
    Gone(String),
    Never { parts: Vec<String>, words: Vec<String> },
    Job { part: String, job: String },
    Origin { part: String, origin: String },
    Unaccounted(String),
}

/// Returns the stories of a file. Ignores the text before the first title.
pub(super) fn read(text: &str) -> Vec<Story> {
    let stories = text.split("\n# ").skip(1);
    stories.map(story).collect()
}

fn story(text: &str) -> Story {
    let (title, rest) = text.split_once('\n').expect("a story is more than a title");
    let mut story = Story { title: title.to_owned(), scenes: vec![Scene::default()], ..Story::default() };
    let mut is_later = false;
    for line in rest.lines().filter(|line| !line.is_empty()) {
        let scene = story.scenes.last_mut().expect("there is a scene");
        if let Some(code) = line.strip_prefix("    ") {
            let file = story.files.last_mut().unwrap_or_else(|| panic!("{title}: of which file is {code:?}?"));
            file.1.push_str(code);
            file.1.push('\n');
        } else if let Some(command) = line.strip_prefix("run: ") {
            story.run = words(command);
        } else if let Some(name) = line.strip_suffix(':').filter(|name| !name.contains(' ')) {
            story.files.push((name.to_owned(), String::new()));
        } else if line == "later" {
            is_later = true;
        } else if let Some(claim) = claim(line) {
            if is_later { story.later.push(claim) } else { scene.claims.push(claim) }
        } else {
            let act = act(line).unwrap_or_else(|| panic!("{title}: no such act: {line:?}"));
            if scene.claims.is_empty() {
                scene.acts.push(act);
            } else {
                story.scenes.push(Scene { acts: vec![act], claims: Vec::new() });
            }
        }
    }
    if story.run.is_empty() {
        story.run = vec!["python3".to_owned(), story.files[0].0.clone()];
    }
    story
}

fn claim(line: &str) -> Option<Claim> {
    let (subject, said) = line.split_once(" => ")?;
    if let Some(parts) = subject.strip_prefix("never ") {
        return Some(Claim::Never { parts: words(parts), words: words(said) });
    }
    let said = said.to_owned();
    Some(match subject.strip_prefix("= ")?.split_once(' ') {
        Some(("job", part)) => Claim::Job { part: part.to_owned(), job: said },
        Some(("origin", part)) => Claim::Origin { part: part.to_owned(), origin: said },
        Some(_) => return None,
        None if subject == "= unaccounted" => Claim::Unaccounted(said),
        None if said == "gone" => Claim::Gone(subject[2..].to_owned()),
        None => {
            let (word, fragment) = said.split_once(": ").or(said.split_once(':'))?;
            Claim::Verdict { part: subject[2..].to_owned(), word: word.to_owned(), fragment: fragment.to_owned() }
        }
    })
}

fn act(line: &str) -> Option<Act> {
    let words = words(line);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Some(match words.as_slice() {
        ["ready", part] => Act::Ready((*part).to_owned()),
        ["extra", memory] => Act::Extra(bytes(memory)?),
        ["kill", part] => Act::Kill((*part).to_owned()),
        ["stop", part] => Act::Stop((*part).to_owned()),
        ["ghost", part] => Act::Ghost((*part).to_owned()),
        ["sm", part, percent] => Act::Sm((*part).to_owned(), percent.parse().ok()?),
        ["on", part, memory, more @ ..] => {
            let (mut sm, mut holders) = (None, &[][..]);
            match more {
                ["sm", percent, "kept", "by", by @ ..] => (sm, holders) = (Some(percent.parse().ok()?), by),
                ["sm", percent] => sm = Some(percent.parse().ok()?),
                ["kept", "by", by @ ..] => holders = by,
                [] => {}
                _ => return None,
            }
            let holders = holders.iter().map(|holder| (*holder).to_owned()).collect();
            Act::On { part: (*part).to_owned(), memory: bytes(memory)?, sm, holders }
        }
        _ => return None,
    })
}

fn bytes(text: &str) -> Option<u64> {
    let units = [("GiB", 30), ("MiB", 20)];
    units.iter().find_map(|(unit, shift)| Some(text.strip_suffix(unit)?.parse::<u64>().ok()? << shift))
}

pub(super) fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

impl Story {
    /// Returns all parts of the story.
    pub(super) fn parts(&self) -> BTreeSet<&str> {
        let acts = self.scenes.iter().flat_map(|scene| &scene.acts).flat_map(|act| match act {
            Act::On { part, holders, .. } => std::iter::once(part).chain(holders).collect::<Vec<_>>(),
            Act::Ready(part) | Act::Kill(part) | Act::Stop(part) | Act::Ghost(part) | Act::Sm(part, _) => vec![part],
            Act::Extra(_) => Vec::new(),
        });
        let claims =
            self.scenes.iter().flat_map(|scene| &scene.claims).chain(&self.later).flat_map(|claim| match claim {
                Claim::Verdict { part, .. }
                | Claim::Gone(part)
                | Claim::Job { part, .. }
                | Claim::Origin { part, .. } => {
                    vec![part]
                }
                Claim::Never { parts, .. } => parts.iter().collect(),
                Claim::Unaccounted(_) => Vec::new(),
            });
        acts.chain(claims).map(String::as_str).collect()
    }
}
