//! Checks processes in the layouts of real programs: none is accused while its starter lives.

use super::VerdictStory;

/// Adds the processes of a layout, given as lines of a story.
fn tell(story: &mut VerdictStory, lines: &[&str]) {
    for line in lines {
        story.line(line);
    }
}

/// The processes that are, or may be, orphans, for a message.
fn accused(story: &VerdictStory) -> Vec<String> {
    let orphans = story.model.verdicts().iter().filter(|verdict| verdict.is_orphan());
    orphans.map(|verdict| format!("{} {}: {}", verdict.process.pid, verdict.word(), verdict.sentence())).collect()
}

/// Returns the stories of a file: the title and the lines of each. Ignores the text before the first title.
fn stories(text: &str) -> Vec<(&str, Vec<&str>)> {
    let stories = text.split("\n# ").skip(1).map(|story| story.split_once('\n').expect("lines follow the title"));
    stories.map(|(title, lines)| (title, lines.lines().filter(|line| !line.is_empty()).collect())).collect()
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
            wrong.extend(accused(&story).into_iter().map(|accused| format!("{title}, {seconds} s: {accused}")));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), layouts.len(), wrong.join("\n"));
    assert!(layouts.len() >= 50, "{}", layouts.len());
}
