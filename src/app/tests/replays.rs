//! Tests of the app in a replay: nothing acts on the world, and keys steer the player.

use super::*;
use crate::model::{NewsKind, OutlineEvent, OutlinePart, Severity};
use crate::protocol::playback::{PlayerCommand, PlayerReport, Speed};

/// A replay at its first line.
fn replay() -> Story {
    let app = App::new(AppOptions {
        is_recording: true,
        ..AppOptions::default()
    });
    let mut story = Story {
        app,
        host: three(),
        asked: Vec::new(),
    };
    story.event(Event::Resized(120, 24));
    let first = Line::Full(Box::new(story.host.clone()));
    story.event(Event::Line(HostKey::FIRST, Box::new(first)));
    let at = story.host.unix_ms;
    story.report(PlayerReport::At(at))
}

impl Story {
    fn report(mut self, report: PlayerReport) -> Self {
        self.event(Event::Player(report));
        self
    }

    #[track_caller]
    fn plays(self, commands: &[PlayerCommand]) -> Self {
        self.asks(&[Effect::Play(commands.to_vec())])
    }
}

#[test]
fn a_recording_is_not_acted_on() {
    let mut story = replay();
    for key in ["F9", "^R"] {
        story = story.keys(key).asks(&[]);
        assert_eq!(
            story.app.notice.text(),
            Some("this is a recording"),
            "{key}"
        );
        story.event(Event::Tick(ViewerTime::new(Duration::from_secs(6))));
    }
    assert!(story.app.modes.end_dialog().is_none());
    // The page of a process says why the rest is not known.
    story = story.keys("Enter").asks(&[]);
    let lines = &story.app.modes.page().unwrap().lines;
    assert!(
        lines
            .iter()
            .any(|line| format!("{line:?}").contains("this is a recording")),
        "{lines:?}"
    );
    // The next tick skips a pass. A recording has no agent that could be asked for a full line.
    story = story.keys("Esc");
    let (second, third) = (story.host.later(1), story.host.later(1).later(1));
    story.event(Event::Line(
        HostKey::FIRST,
        Box::new(Line::Tick(Box::new(
            Change::between(&second, &third).unwrap(),
        ))),
    ));
    story.asks(&[]);
}

#[test]
fn a_recording_is_not_recorded() {
    let story = replay().keys("R").asks(&[]);
    let notice = "a recording cannot be recorded: `gputop clip` copies a part of it";
    assert_eq!(
        (
            story.app.notice.text(),
            story.app.active_recording.is_none()
        ),
        (Some(notice), true)
    );
}

#[test]
fn keys_steer_the_player() {
    let story = replay();
    let at = story.host.unix_ms;
    let story = story.keys("p").plays(&[PlayerCommand::Pause]);
    assert_eq!(story.app.badge_words(), ["PAUSED"]);
    let story = story
        .keys("Esc")
        .plays(&[PlayerCommand::Resume])
        .keys(".")
        .plays(&[PlayerCommand::Step]);
    assert_eq!(
        story.app.replay.as_ref().unwrap().words(),
        "RECORDING paused"
    );
    let story = story
        .keys(",")
        .plays(&[PlayerCommand::Pause, PlayerCommand::Jump(at - 1)]);
    // A key that comes before the jump is done goes on from its target.
    let at = at - 1 + 60_000;
    let story = story.keys(")").plays(&[PlayerCommand::Jump(at)]);
    let story = story
        .keys("+")
        .plays(&[PlayerCommand::Speed(Speed::Times(2.0))]);
    let story = story.keys("p").plays(&[PlayerCommand::Resume]);
    assert_eq!(story.app.replay.as_ref().unwrap().words(), "RECORDING ×2");
    story
        .keys("J-10m Enter")
        .plays(&[PlayerCommand::Jump(at - 600_000)])
        .keys("J noon Enter J Esc")
        .asks(&[]);
}

#[test]
fn a_jump_to_an_event_waits_until_the_recording_is_read_so_far() {
    let mut story = replay();
    let at = story.host.unix_ms;
    let event = |seconds: u64| {
        Event::Outline(OutlinePart::Event(OutlineEvent {
            unix_ms: at + seconds * 1000,
            number: seconds,
            host: "box".into(),
            news: NewsKind::Leak,
            severity: Severity::Bad,
            sentence: "LEAK".into(),
        }))
    };
    let jump = |seconds: u64| [PlayerCommand::Jump(at + seconds * 1000 + 500)];
    story = story.keys("}").asks(&[]);
    assert_eq!(
        story.app.notice.text(),
        Some("looking for the event after this moment: gputop still reads the recording")
    );
    story.event(event(10));
    story = story
        .plays(&jump(10))
        .report(PlayerReport::At(at + 20_000))
        .report(PlayerReport::Jumped)
        .keys("{")
        .asks(&[]);
    story.event(event(15));
    story = story.asks(&[]);
    // The events before this moment are known now.
    story.event(event(30));
    story = story
        .plays(&jump(15))
        .report(PlayerReport::JumpRefused("no file".into()))
        .report(PlayerReport::At(at + 40_000))
        .keys("!")
        .asks(&[]);
    story.event(Event::Outline(OutlinePart::Complete));
    assert_eq!(
        story.asks(&[]).app.notice.text(),
        Some("there is no alert after this moment")
    );
}

#[test]
fn keys_of_the_player_are_letters_while_text_is_typed() {
    let story = replay().keys("/a.b-p Enter").asks(&[]);
    assert_eq!(story.app.processes.filter.value(), "a.b-p");
}

#[test]
fn a_trouble_does_not_end_on_the_way_of_a_jump() {
    let story = replay().pass(|mut host| {
        host.gpus[0].health.remap_failed = Ok(true);
        host
    });
    let named = |story: &Story| story.app.named_trouble().map(|named| named.text);
    let before = named(&story);
    assert!(before.is_some());
    let story = story.report(PlayerReport::JumpBegan);
    let story = story.pass(|mut host| {
        host.gpus[0].health.remap_failed = Ok(false);
        host
    });
    assert_eq!(named(&story), before);
    let story = story.report(PlayerReport::Jumped);
    assert_eq!(named(&story), None);
    story.asks(&[]);
}

#[test]
fn the_screen_stands_still_until_the_jump_is_done() {
    let story = replay().report(PlayerReport::JumpBegan);
    let story = story
        .pass(|host| host.without(103))
        .shows(&[103, 102, 101], 103);
    let (at, rows) = (story.model().now(), story.app.processes.rows.len());
    let story = story.pass(|host| host);
    assert_eq!(
        (story.model().now(), story.app.processes.rows.len()),
        (at, rows)
    );
    assert_eq!(
        story.app.replay.as_ref().unwrap().words(),
        "RECORDING jumping…"
    );
    let story = story.report(PlayerReport::Jumped).shows(&[102, 101], 102);
    assert_eq!(story.app.replay.as_ref().unwrap().words(), "RECORDING");
    // The history before the jump does not count.
    let story = story
        .report(PlayerReport::JumpBegan)
        .report(PlayerReport::Jumped);
    assert_eq!(story.app.fleet().hosts().len(), 0);
    story.asks(&[]);
}
