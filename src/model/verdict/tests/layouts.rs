//! Checks processes in the layouts of real programs: none is accused while its starter lives.

use super::VerdictStory;
use crate::model::Past;
use crate::protocol::launchers::launchers;

/// Adds the processes of a layout, given as lines of a story.
fn tell(story: &mut VerdictStory, lines: &[&str]) {
    for line in lines {
        story.line(line);
    }
}

/// The processes that are, or may be, orphans, for a message.
fn accused(story: &VerdictStory) -> Vec<String> {
    let orphans = story
        .model
        .verdicts()
        .iter()
        .filter(|verdict| verdict.is_orphan());
    orphans
        .map(|verdict| {
            format!(
                "{} {}: {}",
                verdict.process.pid,
                verdict.word(),
                verdict.sentence()
            )
        })
        .collect()
}

/// Returns the stories of a file: the title and the lines of each. Ignores the text before the
/// first title.
fn stories(text: &str) -> Vec<(&str, Vec<&str>)> {
    let stories = text
        .split("\n# ")
        .skip(1)
        .map(|story| story.split_once('\n').expect("lines follow the title"));
    stories
        .map(|(title, lines)| {
            (
                title,
                lines.lines().filter(|line| !line.is_empty()).collect(),
            )
        })
        .collect()
}

#[test]
fn a_process_whose_starter_lives_is_no_orphan() {
    let layouts = stories(include_str!("../healthy_layouts.txt"));
    let mut wrong = Vec::new();
    for (title, lines) in &layouts {
        let mut story = VerdictStory::new();
        tell(&mut story, lines);
        // A one-shot has two passes. After ten seconds, a process that rests is quiet.
        for seconds in [2, 30] {
            story.pass(seconds);
            wrong.extend(
                accused(&story)
                    .into_iter()
                    .map(|accused| format!("{title}, {seconds} s: {accused}")),
            );
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        layouts.len(),
        wrong.join("\n")
    );
    assert!(layouts.len() >= 50, "{}", layouts.len());
}

/// The processes of a story that should be orphans, or possible ones, and are not.
fn missed(story: &VerdictStory, left: &str) -> Vec<String> {
    let verdicts = left
        .split(' ')
        .map(|pid| story.verdict(pid.parse().expect("a PID")));
    let missed = verdicts.filter(|verdict| !verdict.is_orphan());
    missed
        .map(|verdict| format!("{} {}", verdict.process.pid, verdict.word()))
        .collect()
}

#[test]
fn children_of_a_launcher_that_was_killed_are_orphans() {
    let families = stories(include_str!("../launch_families.txt"));
    let mut wrong = Vec::new();
    for (title, lines) in &families {
        let mut story = VerdictStory::new();
        let [layout @ .., kill, left] = lines.as_slice() else {
            panic!("{title} has few lines")
        };
        let left = left
            .strip_prefix("left ")
            .expect("the last line says who is left");
        tell(&mut story, layout);
        story.pass(2);
        wrong.extend(
            accused(&story)
                .into_iter()
                .map(|accused| format!("{title}, before: {accused}")),
        );
        for (line, eyes) in [(*kill, "watched"), ("fresh", "a look afterwards")] {
            story.line(line);
            story.pass(2);
            wrong.extend(
                missed(&story, left)
                    .into_iter()
                    .map(|missed| format!("{title}, {eyes}: {missed}")),
            );
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        families.len(),
        wrong.join("\n")
    );
    for launcher in launchers() {
        assert!(
            families
                .iter()
                .any(|(title, _)| title.split(':').next() == Some(&launcher.name)),
            "{}",
            launcher.name
        );
    }
}

/// Returns what a recorder saw of a story until now.
fn recorded(story: &VerdictStory) -> Past {
    let latest = story.model.latest().expect("the story has a pass");
    Past {
        path: "night.jsonl.zst".into(),
        boot_id: latest.host.facts.boot_id.clone(),
        unix_ms: latest.unix_ms,
        last_look_ms: None,
        checkpoint: story.model.checkpoint().expect("the story has a pass"),
    }
}

#[test]
fn a_look_knows_what_a_recorder_saw() {
    let layout = [
        "50 bash",
        "100 < 50 python /opt/env/bin/accelerate launch train.py",
        "101 < 100 python train.py | started, gpu 0 6GiB, sm 90, cpu 99",
    ];
    // The recorder's last checkpoint is from before the end of the launcher, or after it.
    for (before, after, when) in [
        (5, 0, "after 22:13, when the recorder last looked"),
        (5, 120, "at 22:13, seen by the recorder"),
    ] {
        let mut story = VerdictStory::new();
        tell(&mut story, &layout);
        story.pass(before);
        let early = recorded(&story);
        story.line("kill 100");
        story.pass(2 + after);
        let past = if after == 0 { early } else { recorded(&story) };
        story.pass(60);
        story.line("fresh");
        story.pass(2);
        assert_eq!(
            story.verdict(101).word(),
            "ok",
            "a program that computes under PID 1 may be under nohup"
        );
        story.model.continue_from_recorder(&past.checkpoint);
        let expected = format!(
            "its launcher (100, python /opt/env/bin/accelerate launch train.py) ended {when}, but it still computes; still \
             holds 6.0 GiB"
        );
        assert_eq!(
            (story.verdict(101).word(), story.verdict(101).sentence()),
            ("orphan", expected)
        );
    }
}
