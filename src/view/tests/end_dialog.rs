//! The end dialog, drawn.

use super::*;

#[test]
fn the_dialog_asks_for_the_pid_before_it_announces_the_effect_of_enter() {
    let mut app = app(80, 24, &[KeyCode::F(9)]);
    let process = app
        .modes
        .end_dialog()
        .and_then(|panel| Some(panel.root()?.id()))
        .unwrap();
    let outcome = Outcome::Held {
        caution: Some("it is the display server".into()),
    };
    app.update(Event::Line(
        HostKey::FIRST,
        Box::new(Line::Reply(Reply { process, outcome })),
    ));
    app.mark_end_as_read();
    let screen_of = |app: &App| screen(Theme::new(false, ColourDepth::Sixteen), app, 80, 24);
    let before = screen_of(&app);
    assert!(
        before.contains(&format!("Type {} first: then", process.pid)),
        "{before}"
    );
    for digit in process.pid.to_string().chars() {
        app.update(Event::Key(KeyEvent::from(KeyCode::Char(digit))));
    }
    let after = screen_of(&app);
    assert!(
        !after.contains(" first: then") && after.contains("Enter sends SIGTERM"),
        "{after}"
    );
}

#[test]
fn the_dialog_says_that_a_target_runs_another_program_now() {
    let before = host(1).with(7, "python train.py", 0, Bytes::from_gib(3));
    let mut app = app_with(&before, 80, Settings::default());
    app.update(Event::Key(KeyEvent::from(KeyCode::F(9))));
    app.mark_end_as_read();
    assert!(!screen(Theme::new(false, ColourDepth::Sixteen), &app, 80, 24).contains("before"));
    let after = host(1).with(7, "bash save.sh", 0, Bytes::from_gib(3));
    app.update(Event::Line(
        HostKey::FIRST,
        Box::new(Line::Full(Box::new(after))),
    ));
    let text = screen(Theme::new(false, ColourDepth::Sixteen), &app, 80, 24);
    assert!(
        text.contains("│ bash save.sh ")
            && text.contains("it ran something else before: python train.py"),
        "{text}"
    );
    // An Enter that was typed while the screen showed `train.py` must not confirm the end of
    // `save.sh`.
    assert!(app.unread_end().is_some());
}

#[test]
fn several_targets_have_their_users_and_the_names_of_the_list() {
    let mut app = app_with(&left_over(2), 120, Settings::default());
    let screen_of = |app: &App| screen(Theme::new(false, ColourDepth::Sixteen), app, 120, 24);
    for key in [KeyCode::Char('o'), KeyCode::Char('a'), KeyCode::F(9)] {
        app.update(Event::Key(KeyEvent::from(key)));
    }
    let text = screen_of(&app);
    assert!(
        text.contains("    201 alice    [pt_data_worker] python train.py"),
        "{text}"
    );
}

#[test]
fn only_a_process_that_signals_reach_may_ignore_them() {
    for (state, words) in [
        (
            State::Sleeping,
            "It is sleeping. It may ignore that; no process ignores SIGKILL.",
        ),
        (
            State::Traced,
            "It is held by a debugger: only SIGKILL reaches it.",
        ),
        (
            State::Stopped,
            "It is stopped: only SIGKILL and SIGCONT reach it.",
        ),
    ] {
        let host = host(1)
            .with(7, "python train.py", 0, Bytes::from_gib(3))
            .related(8, 7, "python worker.py");
        let mut app = app_with(&host, 80, Settings::default());
        let key = |app: &mut App, key| _ = app.update(Event::Key(KeyEvent::from(key)));
        let screen_of = |app: &App| screen(Theme::new(false, ColourDepth::Sixteen), app, 80, 24);
        key(&mut app, KeyCode::F(9));
        let process = app
            .modes
            .end_dialog()
            .and_then(|panel| Some(panel.root()?.id()))
            .unwrap();
        let hear = |app: &mut App, outcome| {
            app.update(Event::Line(
                HostKey::FIRST,
                Box::new(Line::Reply(Reply { process, outcome })),
            ));
        };
        hear(&mut app, Outcome::Held { caution: None });
        app.mark_end_as_read();
        assert!(
            screen_of(&app).contains("Tab whole job"),
            "{}",
            screen_of(&app)
        );
        key(&mut app, KeyCode::Enter);
        hear(
            &mut app,
            Outcome::Sent {
                signal: Signal::Term,
                at: host.at,
            },
        );
        hear(
            &mut app,
            Outcome::Alive {
                state,
                wchan: None,
                seconds: 2,
            },
        );
        assert!(
            screen_of(&app).contains(words)
                && screen_of(&app).contains("ignore") == (state == State::Sleeping),
            "{}",
            screen_of(&app)
        );
        // After the first signal, the dialog does not widen to the whole job.
        assert!(
            !screen_of(&app).contains("whole job"),
            "{}",
            screen_of(&app)
        );
    }
}

#[test]
fn the_dialog_counts_the_targets_by_their_kinds() {
    let mut workers = left_over(20).with(7, "python other.py", 0, Bytes::from_gib(3));
    workers.gpus[0].device_file_holders.truncate(1);
    let mut app = app_with(&workers, 120, Settings::default());
    let screen_of = |app: &App| screen(Theme::new(false, ColourDepth::Sixteen), app, 120, 24);
    // `o a` tags the orphan that holds memory: one target needs no counts.
    let keys = |app: &mut App, codes: &[KeyCode]| {
        for code in codes {
            app.update(Event::Key(KeyEvent::from(*code)));
        }
    };
    keys(
        &mut app,
        &[KeyCode::Char('o'), KeyCode::Char('a'), KeyCode::F(9)],
    );
    assert!(
        screen_of(&app).contains("End the tagged process 201"),
        "{}",
        screen_of(&app)
    );
    // The list of all has the healthy process, too, and `A` tags those without memory.
    keys(
        &mut app,
        &[
            KeyCode::Esc,
            KeyCode::Char('A'),
            KeyCode::Char('o'),
            KeyCode::Char('a'),
            KeyCode::F(9),
        ],
    );
    let text = screen_of(&app);
    let counts = "1 orphan, 1 healthy process, 19 without GPU memory";
    assert!(
        text.contains("21 processes") && text.contains(counts),
        "{text}"
    );
}

#[test]
fn a_zombie_for_which_the_driver_lists_memory_has_the_words_of_its_verdict() {
    let host = host(1)
        .with(7, "python train.py", 0, Bytes::from_gib(3))
        .related(4, 1, "python launch.py");
    let child = |mut host: Snapshot, state: State| {
        let process = host
            .processes
            .iter_mut()
            .find(|process| process.id.pid == 7)
            .unwrap();
        process.facts_mut().parent = Ok(4);
        (process.load.state, process.load.threads) = (Ok(state), Ok(1));
        host
    };
    let mut app = app_with(
        &child(host.clone(), State::Sleeping),
        80,
        Settings::default(),
    );
    app.update(Event::Key(KeyEvent::from(KeyCode::F(9))));
    let process = app
        .modes
        .end_dialog()
        .and_then(|panel| Some(panel.root()?.id()))
        .unwrap();
    let hear = |app: &mut App, outcome| {
        app.update(Event::Line(
            HostKey::FIRST,
            Box::new(Line::Reply(Reply { process, outcome })),
        ));
    };
    let screen_of = |app: &App| screen(Theme::new(false, ColourDepth::Sixteen), app, 80, 24);
    hear(&mut app, Outcome::Held { caution: None });
    app.mark_end_as_read();
    app.update(Event::Key(KeyEvent::from(KeyCode::Enter)));
    hear(
        &mut app,
        Outcome::Sent {
            signal: Signal::Term,
            at: host.at,
        },
    );
    hear(
        &mut app,
        Outcome::Zombie {
            at: host.at.after(Duration::from_millis(100)),
            parent: 4,
        },
    );
    assert!(
        screen_of(&app).contains("Its parent 4 has not reaped it: a zombie."),
        "{}",
        screen_of(&app)
    );
    let mut later = child(host, State::Zombie);
    (later.sequence, later.at) = (later.sequence + 1, later.at.after(Duration::from_secs(1)));
    app.update(Event::Line(
        HostKey::FIRST,
        Box::new(Line::Full(Box::new(later))),
    ));
    let text = screen_of(&app);
    let rows = text.lines().filter_map(|row| row.split('│').nth(1));
    let sentence = rows
        .flat_map(str::split_whitespace)
        .collect::<Vec<_>>()
        .join(" ");
    let expected = "7: has ended, but the driver still lists 3.0 GiB; its parent (4, python launch.py) has not reaped it.";
    assert!(sentence.contains(expected), "{text}");
    assert!(
        text.contains("1 zombie holds 3.0 GiB") && !text.contains("no memory"),
        "{text}"
    );
}
