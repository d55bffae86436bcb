//! Tests of the player, on files that `cat` reads.

use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tokio::time::Instant;

use super::super::tests::run;
use super::super::{HostSource, Source, SourceEvent, Sources};
use super::Recording;
use super::player::RecordedHost;
use crate::base::units::Moment;
use crate::protocol::host_tag::HostTag;
use crate::protocol::line::Line;
use crate::protocol::playback::Speed;
use crate::protocol::snapshot::example;

/// Returns a full line of a pass at this time in milliseconds, with this tag.
fn line(at: u64, tag: Option<(u64, &str)>) -> Vec<u8> {
    let mut snapshot = example::host(1);
    snapshot.at = Moment(at);
    let mut line = Vec::new();
    Line::Full(Box::new(snapshot)).write(&mut line).unwrap();
    if let Some((host_key, name)) = tag {
        HostTag {
            host_key,
            name: Some(name.into()),
        }
        .append_to(&mut line);
    }
    line
}

/// Starts a replay of this file, which `cat` reads: these tests are not gputop.
fn start_cat(path: &Path, speed: Speed) -> Sources {
    let mut sources = Sources::start(Vec::new(), None).unwrap();
    let recording = Recording {
        path: path.to_owned(),
        speed,
        from_end: false,
    };
    let reporter = sources.reporter(0);
    let file = path.to_owned();
    let cat = move |_from| {
        let mut command = Command::new("cat");
        command.arg(&file);
        command
    };
    let connection = recording.play(Box::new(cat), reporter).unwrap();
    let source = HostSource::new(Source::Recording(recording), connection);
    sources.list.push(source);
    sources
}

/// Replays these bytes. Returns each event, with the time since the start in milliseconds; a line
/// as its host key and data time.
fn replay(bytes: &[u8], speed: Speed) -> Vec<(u128, String)> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    run(async {
        let start = Instant::now();
        let mut sources = start_cat(file.path(), speed);
        let mut events = Vec::new();
        loop {
            let event = sources.next().await;
            let is_last = matches!(
                event,
                SourceEvent::RecordingEnded(_) | SourceEvent::Ended(..)
            );
            let shown = match event {
                SourceEvent::Player(_) => continue,
                SourceEvent::Line(host, line) => match *line {
                    Line::Full(snapshot) => format!("{} {}", host.0, snapshot.at.0),
                    other => format!("{other:?}"),
                },
                SourceEvent::Named(host, name) => format!("{} is {name}", host.0),
                SourceEvent::RecordingEnded(None) => "end".to_owned(),
                SourceEvent::RecordingEnded(Some(problem)) => format!("end: {problem}"),
                SourceEvent::Ended(_, reason) => reason.to_string(),
                other => format!("{other:?}"),
            };
            events.push((start.elapsed().as_millis(), shown));
            if is_last {
                return events;
            }
        }
    })
}

#[track_caller]
fn check(bytes: &[u8], expected: &[&str]) {
    let events: Vec<String> = replay(bytes, Speed::Max)
        .into_iter()
        .map(|(_, event)| event)
        .collect();
    assert_eq!(events, expected);
}

#[test]
fn hosts_have_keys_in_the_order_of_their_first_lines_whatever_the_file_says() {
    let lines = [
        line(1000, Some((7, "b"))),
        line(1000, Some((u64::MAX, "a"))),
        line(2000, Some((7, "b"))),
    ];
    check(
        &lines.concat(),
        &["0 is b", "0 1000", "1 is a", "1 1000", "0 2000", "end"],
    );
    check(
        &[line(1000, None), line(2000, None)].concat(),
        &["0 1000", "0 2000", "end"],
    );
}

#[test]
fn data_time_sets_the_pace() {
    let mut host = RecordedHost::new(None, Moment(10_000), Duration::ZERO);
    let positions: Vec<u128> = [10_000, 10_300, 5_000, 5_300]
        .map(|at| host.advance(Moment(at)).as_millis())
        .into();
    assert_eq!(positions, [0, 300, 300, 600]);
}

#[test]
fn no_line_comes_before_it_is_due() {
    let lines = [line(10_000, None), line(10_300, None)].concat();
    for (times, due) in [(1.0, 300), (3.0, 100), (0.5, 600)] {
        let events: Vec<u128> = replay(&lines, Speed::Times(times))
            .into_iter()
            .map(|(time, _)| time)
            .collect();
        assert!(events[1] >= due, "{times}: {events:?}");
    }
}

#[test]
fn a_last_line_that_is_cut_off_is_reported_and_one_without_a_line_end_is_whole() {
    let (first, second) = (line(1000, None), line(2000, None));
    let whole = [&first[..], &second[..second.len() - 1]].concat();
    check(&whole, &["0 1000", "0 2000", "end"]);
    check(
        &whole[..whole.len() - 10],
        &["0 1000", "end: the last line of the recording is cut off"],
    );
}

#[test]
fn lines_that_are_not_understood_are_ignored_and_reported() {
    let lines = [
        &line(1000, None)[..],
        b"hello\n",
        b"{\"kind\":\"later\"}\n",
        &line(2000, None),
        b"[]\n",
    ]
    .concat();
    let problem = "end: 2 lines are not understood; the first is line 2 of the recording: its line is not understood: \
                   expected value at line 1 column 1: hello";
    check(&lines, &["0 1000", "0 2000", problem]);
}

#[test]
fn a_file_without_a_line_is_an_error() {
    check(
        b"",
        &["the recording cannot be replayed: there is no line in it"],
    );
    check(
        b"{",
        &["the recording cannot be replayed: the last line of the recording is cut off"],
    );
}

#[test]
fn times_of_a_hostile_recording_do_no_harm() {
    let lines = [
        line(0, None),
        line(u64::MAX, None),
        line(0, None),
        line(u64::MAX, None),
    ]
    .concat();
    let latest = format!("0 {}", Moment::LATEST.0);
    check(&lines, &["0 0", &latest, "0 0", &latest, "end"]);
}
