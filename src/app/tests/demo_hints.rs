//! The hints of `--demo` in the last line.

use super::*;
use crate::app::input::footer::FooterPart;

fn demo(width: u16) -> Story {
    let mut story = story(three());
    story.app.options.has_demo_hints = true;
    story.event(Event::Resized(width, 40));
    story
}

impl Story {
    /// The numbers of the hints on the screen.
    fn hints(&self) -> Vec<usize> {
        let parts = self.app.footer(0).into_iter();
        parts
            .filter_map(|(_, part)| match part {
                FooterPart::Hint { number, .. } => Some(number),
                _ => None,
            })
            .collect()
    }

    fn has_key(&self, wanted: Intent) -> bool {
        let parts = self.app.footer(0).into_iter();
        parts
            .map(|(_, part)| part)
            .any(|part| matches!(part, FooterPart::Key(_, intent, _) if intent == wanted))
    }
}

#[test]
fn a_hint_goes_when_it_was_done_and_the_keys_come_back() {
    let story = demo(200);
    assert_eq!(story.hints(), [1, 2, 3, 4, 5]);
    let story = story.keys("i");
    assert!(story.hints().is_empty(), "a page has keys of its own");
    let story = story.keys("Esc");
    assert_eq!(story.hints(), [2, 3, 4, 5]);
    let story = story.keys("?").keys("Esc").keys("g g").keys("Esc");
    assert_eq!(story.hints(), [2, 3]);
    let story = story
        .keys("F9")
        .hears(103, Outcome::Held { caution: None })
        .keys("Esc");
    assert_eq!(story.hints(), [2, 3], "nothing was sent");
    let story = story
        .keys("F9")
        .hears(103, Outcome::Held { caution: None })
        .keys("Enter")
        .hears(
            103,
            Outcome::Sent {
                signal: Signal::Term,
                at: Moment(1_000_100),
            },
        )
        .keys("Esc");
    assert_eq!(story.hints(), [2]);
    assert!(story.keys("o").hints().is_empty());
}

#[test]
fn a_narrow_screen_has_the_first_hints_and_the_keys_that_help_and_quit() {
    for width in 40..200 {
        let story = demo(width);
        let hints = story.hints();
        assert!(
            hints.iter().copied().eq(1..=hints.len()),
            "{width}: {hints:?}"
        );
        assert!(hints.len() >= usize::from(width / 60), "{width}: {hints:?}");
        assert!(
            story.has_key(Intent::Help) && story.has_key(Intent::Quit),
            "{width}"
        );
    }
}

#[test]
fn without_demo_there_is_no_hint() {
    assert!(story(three()).hints().is_empty());
}
