//! A far agent is hostile input: no line that parses makes a viewer panic.

use gputop::app::event::Event;
use gputop::app::{App, AppOptions};
use gputop::base::terminal::ColourDepth;
use gputop::base::units::Moment;
use gputop::protocol::host_key::HostKey;
use gputop::protocol::line::Line;
use gputop::protocol::snapshot::Snapshot;
use gputop::view::{self, Theme};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use serde_json::Value;

use crate::agent::{Agent, ReceivedLines};
use crate::host::{GIB, Host};

/// Values that a hostile agent may send in place of any number.
const EXTREMES: [&str; 6] = [
    "0",
    "1",
    "4294967295",
    "18446744073709551615",
    "-1",
    "1e300",
];

/// The pointers to all numbers below a value.
fn numbers(value: &Value, pointer: &str, found: &mut Vec<String>) {
    match value {
        Value::Number(_) => found.push(pointer.to_owned()),
        Value::Array(values) => {
            // Elements of a list have the same fields; one stands for all.
            if let Some(first) = values.first() {
                numbers(first, &format!("{pointer}/0"), found);
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                numbers(value, &format!("{pointer}/{name}"), found);
            }
        }
        _ => {}
    }
}

/// Returns the snapshot of a host with a process, after the process and the GPU were read in full.
fn snapshot() -> Snapshot {
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, GIB);
    let agent = Agent::start(&host);
    let mut received = ReceivedLines::default();
    received.read_until(&agent, "the process", |snapshot| {
        snapshot.host.scan.at != Moment(0)
            && snapshot.gpus[0].load.temperature.is_ok()
            && snapshot
                .processes
                .iter()
                .any(|process| process.facts.argv.is_ok())
    });
    received.snapshot.expect("lines were read")
}

fn line(snapshot: &Snapshot) -> Value {
    let mut bytes = Vec::new();
    Line::Full(Box::new(snapshot.clone()))
        .write(&mut bytes)
        .expect("writing to memory succeeds");
    serde_json::from_slice(&bytes).expect("the output is JSON")
}

/// Feeds an app with these lines, as far as they parse, and draws each.
fn show(lines: &[&Value]) {
    let mut app = App::new(AppOptions::default());
    app.update(Event::Resized(120, 40));
    for line in lines {
        let Ok(Some(line)) = Line::parse(line.to_string().as_bytes()) else {
            continue;
        };
        app.update(Event::Line(HostKey::FIRST, Box::new(line)));
        let mut buffer = Buffer::empty(Rect::new(0, 0, 120, 40));
        view::draw(&mut buffer, &Theme::new(false, ColourDepth::Sixteen), &app);
    }
}

#[test]
fn extreme_numbers_in_any_field_do_not_panic() {
    let mut host = snapshot();
    let before = line(&host);
    host.sequence += 1;
    host.at = Moment(host.at.0 + 1000);
    let good = line(&host);
    let mut pointers = Vec::new();
    numbers(&good, "", &mut pointers);
    assert!(pointers.len() > 50, "{pointers:?}");
    for pointer in pointers {
        for extreme in EXTREMES {
            let mut bad = good.clone();
            *bad.pointer_mut(&pointer).expect("the pointer was found") =
                serde_json::from_str(extreme).expect("a number");
            // A bad line after a good line, and a good line after the bad one.
            show(&[&before, &bad, &good]);
        }
    }
}
