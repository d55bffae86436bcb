//! Reads the stories. After a title, each is told in this order:
//!
//! ```text
//! # what it is about
//! train.py:                     a file of its folder, indented below; `from stage import *` goes before it
//!     rest("trainer")           a process says which part it plays
//! run: bash run.sh              what is started; without it, `python3` with the first file
//! on trainer 11GiB sm 90 kept by worker0      the driver lists it on the story's GPU, busy so many percent; its
//!                               memory stays while one of those lives who keep it
//! ready monitor                 a process that is waited for, and that the driver does not list
//! extra 11GiB                   memory of the GPU that the driver lists for nobody
//! kill trainer                  it is sent SIGKILL, and has ended; `stop`: SIGSTOP
//! ghost trainer                 from now on the driver lists it whether it lives or not
//! sm trainer 0                  it is busy so many percent from now on
//! = worker0 => orphan: its trainer ({trainer}     the word of its verdict, and a part of its sentence, with PIDs by part
//! = worker0 => gone             it has ended
//! = job worker0 => train.py: trainer worker0      its job's name, and who of the parts is in it
//! = origin trainer => tmux      where it comes from
//! = unaccounted => 11.0 GiB, open in worker0        memory of its GPU that nobody accounts for, and who has that open
//! never trainer => orphan orphan?      none of these words is said of it, from here to the end
//! later                         what is claimed below is so eleven minutes later
//! ```
//!
//! What is done before the first claim is done before gputop begins to look. Claims that follow each other hold
//! together before the story goes on.

use std::collections::BTreeSet;

/// A story, as it is written.
#[derive(Debug, Default)]
pub(super) struct Story {
    pub(super) title: String,
    /// Names and texts of its files.
    pub(super) files: Vec<(String, String)>,
    pub(super) run: Vec<String>,
    /// What is done, and what is so then.
    pub(super) scenes: Vec<Scene>,
    /// What is so eleven minutes after the last scene.
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

/// The stories of a file. What stands before the first title is for the reader.
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
    /// Every part that is played.
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
