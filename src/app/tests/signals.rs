//! Signals reach only the processes that the end-process dialog shows, on the host that it shows.

use std::collections::HashSet;

use proptest::prelude::*;

use super::two_hosts::{SECOND, two_hosts};
use super::*;

/// One of two hosts that are equal in everything but their keys.
fn host() -> impl Strategy<Value = HostKey> {
    prop::sample::select(vec![HostKey::FIRST, SECOND])
}

/// Any event, from either of the two hosts.
fn any_event() -> impl Strategy<Value = Event> {
    let keys = prop::sample::select(vec![
        KeyCode::Up,
        KeyCode::Down,
        KeyCode::Enter,
        KeyCode::Esc,
        KeyCode::Tab,
        KeyCode::Char(' '),
        KeyCode::Char('c'),
        KeyCode::Char('o'),
        KeyCode::Char('t'),
        KeyCode::Char('b'),
        KeyCode::Char('1'),
        KeyCode::F(9),
        KeyCode::Delete,
        KeyCode::Char('x'),
        KeyCode::Char('j'),
        KeyCode::Char('/'),
        KeyCode::Char('s'),
        KeyCode::Char('?'),
        KeyCode::Char('g'),
    ]);
    let outcomes = prop_oneof![
        4 => Just(Outcome::Held { caution: None }),
        1 => Just(Outcome::Refused { reason: "no".into() }),
        1 => Just(Outcome::Sent { signal: Signal::Term, at: Moment(1_000_100) }),
        1 => Just(Outcome::Ended { at: Moment(1_000_200) }),
        1 => Just(Outcome::Zombie { at: Moment(1_000_200), parent: 1 }),
    ];
    let lists = (host(), 0..4u32, 0..3u64).prop_map(|(key, gone, bigger)| {
        let host = family().without(100 + gone);
        Event::Line(
            key,
            Box::new(Line::Full(Box::new(larger(
                101 + u32::try_from(bigger).unwrap(),
            )(host.later(1))))),
        )
    });
    prop_oneof![
        8 => keys.prop_map(|code| Event::Key(KeyEvent::from(code))),
        4 => (host(), 101..104u32, outcomes)
            .prop_map(|(key, pid, outcome)| Event::Line(key, Box::new(Line::Reply(Reply { process: id(pid), outcome })))),
        4 => lists,
        1 => (1..300u16, 1..100u16).prop_map(|(width, height)| Event::Resized(width, height)),
        1 => host().prop_map(|key| Event::SourceLost(key, "gone".into())),
        1 => Just(Event::Tick(ViewerTime::new(Duration::from_secs(1)))),
    ]
}

proptest! {
    /// Whatever events come in whatever order from two hosts with the same PIDs, start ticks and
    /// GPU UUIDs: only processes that the dialog shows are signalled, on their host, with the
    /// signal that the dialog shows, and only after the agent of that host said that it holds them.
    #[test]
    fn signals_reach_only_processes_that_were_shown(events in prop::collection::vec(any_event(), 1..120)) {
        let mut app = two_hosts(&family());
        let mut held: HashSet<(HostKey, ProcessId)> = HashSet::new();
        for event in events {
            let dialog = app.modes.end_dialog();
            let targets = dialog.iter().flat_map(|dialog| dialog.targets().map(|member| (dialog.host, member.id())));
            let shown: HashSet<(HostKey, ProcessId)> = targets.collect();
            let choice = dialog.map(|dialog| dialog.choice);
            match &event {
                Event::Line(host, line) => {
                    if let Line::Reply(Reply { process, outcome: Outcome::Held { .. } }) = &**line {
                        held.insert((*host, *process));
                    }
                }
                Event::SourceLost(lost, _) => held.retain(|(host, _)| host != lost),
                _ => {}
            }
            let Some(Effect::Commands(commands)) = app.update(event) else { continue };
            for (host, command) in commands {
                match command {
                    Command::Hold { process } | Command::Release { process } => _ = held.remove(&(host, process)),
                    Command::Signal { process, signal } => {
                        let target = (host, process);
                        prop_assert!(shown.contains(&target) && held.contains(&target), "{target:?}");
                        let is_gentle = choice == Some(Choice::Gently) && signal != Signal::Kill;
                        prop_assert!(is_gentle || choice == Some(Choice::Signal(signal)), "{signal} for {choice:?}");
                    }
                    Command::Force { processes } => {
                        prop_assert_eq!(choice, Some(Choice::ByForce));
                        let is_target = |process: &ProcessId| {
                            shown.contains(&(host, *process)) && held.contains(&(host, *process))
                        };
                        prop_assert!(processes.iter().all(is_target), "{host:?} {processes:?}");
                    }
                    _ => {}
                }
            }
        }
    }
}
