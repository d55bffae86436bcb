//! Screens with hosts from which no line has come.

use super::*;
use crate::base::time::ViewerTime;
use crate::model::{Fleet, HostLabel};

/// An app of this size with hosts of these names, of which only the first answers, after so many
/// seconds.
fn fleet(names: &[&str], is_first_there: bool, seconds: u64, (width, height): (u16, u16)) -> App {
    let mut fleet = Fleet::default();
    for (key, name) in (0..).zip(names) {
        fleet.set_label(
            HostKey(key),
            HostLabel {
                name: Some((*name).into()),
                source: "ssh".into(),
            },
        );
    }
    let mut app = App::with_hosts(AppOptions::default(), fleet);
    app.update(Event::Resized(width, height));
    let mut first = busy();
    for _ in 0..seconds {
        if is_first_there {
            first = first.later(1);
            app.update(Event::Line(
                HostKey::FIRST,
                Box::new(Line::Full(Box::new(first.clone()))),
            ));
        }
        app.update(Event::Tick(ViewerTime::new(Duration::from_secs(1))));
    }
    app
}

fn lines(app: &App) -> Vec<String> {
    let (width, height) = app.size;
    let screen = screen(Theme::new(false, ColourDepth::Sixteen), app, width, height);
    screen
        .lines()
        .map(|line| line.trim_matches('"').trim_end().to_owned())
        .collect()
}

#[test]
fn a_host_that_never_answers_is_named_with_its_age_in_the_first_line_and_on_a_row_of_its_own() {
    for size in [(80, 24), (120, 40), (200, 60)] {
        let mut app = fleet(&["gpu-01", "gpu-02"], true, 34, size);
        let screen = lines(&app);
        assert!(
            screen[0].starts_with("gputop   gpu-02: no answer for 34s   "),
            "{}",
            screen.join("\n")
        );
        let rows = |screen: &[String]| -> Vec<String> {
            let is_row = |line: &&String| line.contains("gpu-02") && line.contains("no answer for");
            screen[1..].iter().filter(is_row).cloned().collect()
        };
        let [row] = &rows(&screen)[..] else {
            panic!("{}", screen.join("\n"))
        };
        assert!(
            row.trim_start_matches(['│', ' '])
                .starts_with("gpu-02     no answer for 34s"),
            "{row}"
        );
        // The last line of its command says why.
        app.update(Event::Said(
            HostKey(1),
            "ssh: connect to host gpu-02 port 22: No route".into(),
        ));
        app.update(Event::Key(KeyEvent::from(KeyCode::Down)));
        let screen = lines(&app);
        assert!(
            rows(&screen)[0].contains("no answer for 34s: ssh: connect to host gpu-02"),
            "{}",
            screen.join("\n")
        );
        // The GPUs of the other host stay.
        assert!(
            screen.iter().any(|line| line.contains("80.0G")),
            "{}",
            screen.join("\n")
        );
        // Its first line takes the row away.
        app.update(Event::Line(
            HostKey(1),
            Box::new(Line::Full(Box::new(host(1)))),
        ));
        assert!(
            !lines(&app).join("\n").contains("no answer"),
            "{}",
            lines(&app).join("\n")
        );
    }
}

#[test]
fn one_host_that_never_answers_is_named_and_does_not_start_for_ever() {
    for size in [(80, 24), (120, 40), (200, 60)] {
        let starting = lines(&fleet(&["gpu-02"], false, 5, size));
        assert!(
            starting[0].starts_with("gputop starting…"),
            "{}",
            starting.join("\n")
        );
        let mut app = fleet(&["gpu-02"], false, 34, size);
        app.update(Event::Said(
            HostKey(0),
            "Permission denied (publickey).".into(),
        ));
        app.update(Event::Key(KeyEvent::from(KeyCode::Down)));
        let screen = lines(&app);
        assert!(
            screen[0].starts_with("gputop gpu-02: no answer for 34s "),
            "{}",
            screen.join("\n")
        );
        let row = screen[1..]
            .iter()
            .find(|line| line.contains("gpu-02"))
            .expect("it has a row");
        assert!(
            row.contains("no answer for 34s: Permission denied (publickey)."),
            "{}",
            screen.join("\n")
        );
    }
}

#[test]
fn many_hosts_that_never_answer_leave_room_for_the_others() {
    let names: Vec<String> = (1..=40).map(|number| format!("gpu-{number:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut app = fleet(&names, true, 34, (80, 24));
    app.update(Event::SourceLost(
        HostKey(39),
        "the agent ended: no such host".into(),
    ));
    // The lists, not the fleet view.
    app.update(Event::Key(KeyEvent::from(KeyCode::Char('f'))));
    let screen = lines(&app);
    let count = screen
        .iter()
        .filter(|line| line.contains("no answer for"))
        .count();
    assert!((2..=6).contains(&count), "{}", screen.join("\n"));
    assert!(
        screen
            .iter()
            .any(|line| line.contains(" more without an answer: gpu-0")),
        "{}",
        screen.join("\n")
    );
    assert!(
        screen.iter().any(|line| line.contains("80.0G")),
        "{}",
        screen.join("\n")
    );
}

#[test]
fn a_host_that_never_answers_gets_its_row_while_time_alone_passes() {
    let app = fleet(&["gpu-01"], false, 30, (80, 24));
    let screen = lines(&app);
    assert!(
        screen[1..]
            .iter()
            .any(|line| line.contains("no answer for 30s")),
        "{}",
        screen.join("\n")
    );
}
