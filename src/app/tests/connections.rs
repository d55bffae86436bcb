//! The words about hosts that are connected, and connected again.

use super::two_hosts::{SECOND, two_hosts};
use super::*;
use crate::protocol::connection_state::ConnectionState;

fn seconds(count: u64) -> Event {
    Event::Tick(ViewerTime::new(Duration::from_secs(count)))
}

/// An app with a host that answers, and another that is still to be connected.
fn app() -> App {
    let mut fleet = Fleet::default();
    for host in [HostKey::FIRST, SECOND] {
        fleet.set_label(
            host,
            crate::model::HostLabel {
                name: Some(format!("gpu-{}", host.0).as_str().into()),
                source: "ssh".into(),
            },
        );
    }
    let mut app = App::with_hosts(AppOptions::default(), fleet);
    app.update(Event::Resized(120, 40));
    app
}

#[track_caller]
fn check(app: &App, words: &str, is_in_trouble: bool) {
    let row = app
        .waiting_hosts()
        .into_iter()
        .find(|host| host.name == "gpu-1")
        .expect("the host has a row");
    assert_eq!(
        (row.words.as_str(), row.is_in_trouble),
        (words, is_in_trouble)
    );
}

#[test]
fn the_row_of_a_host_without_a_line_says_how_far_its_connection_is() {
    let mut app = app();
    let tell = |app: &mut App, state| app.update(Event::Connection(SECOND, state));
    tell(&mut app, ConnectionState::Waiting);
    app.update(seconds(60));
    check(&app, "waiting", false);
    tell(&mut app, ConnectionState::Connecting);
    app.update(seconds(4));
    check(&app, "connecting 4s", true);
    app.update(Event::SourceLost(SECOND, "connect timed out".into()));
    tell(
        &mut app,
        ConnectionState::TriesAgain(Duration::from_millis(19_500)),
    );
    check(&app, "connect timed out; tries again in 20s", true);
    app.update(seconds(15));
    check(&app, "connect timed out; tries again in 5s", true);
    // Others come first.
    app.update(seconds(60));
    check(&app, "connect timed out; waiting", true);
    tell(&mut app, ConnectionState::Connecting);
    check(&app, "connect timed out; connecting 0s", true);
    tell(&mut app, ConnectionState::Answered);
    check(&app, "connect timed out", true);
    app.update(Event::SourceLost(SECOND, "permission denied".into()));
    tell(&mut app, ConnectionState::WaitsForUser);
    check(&app, "permission denied; Ctrl-R tries again", true);
}

#[test]
fn a_host_that_was_read_is_frozen_lost_and_back() {
    let snapshot = three();
    let mut app = two_hosts(&snapshot);
    app.update(Event::Connection(SECOND, ConnectionState::Answered));
    assert_eq!(app.host_words(SECOND), None);
    app.update(seconds(12));
    assert_eq!(app.host_words(SECOND).as_deref(), Some("frozen 12s"));
    // The agent of this host is no other host.
    assert_eq!(
        app.host_words(HostKey::FIRST).as_deref(),
        Some("no word from the agent for 12s")
    );
    app.update(Event::SourceLost(SECOND, "no line came for 20 s".into()));
    app.update(Event::Connection(
        SECOND,
        ConnectionState::TriesAgain(Duration::from_secs(1)),
    ));
    assert_eq!(
        app.silence_words(SECOND).as_deref(),
        Some("node-b: no line came for 20 s; tries again in 1s")
    );
    let line = Line::Full(Box::new(snapshot.later(30)));
    app.update(Event::Line(SECOND, Box::new(line)));
    assert_eq!(app.host_words(SECOND), None);
}
