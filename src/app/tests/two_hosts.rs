//! Two hosts that are equal in everything but their keys: the same PIDs, start ticks and GPU UUIDs.
//! Nothing is mixed up.

use super::*;
use crate::app::lists::columns::ListColumn;
use crate::app::lists::gpu_columns::GpuColumn;
use crate::app::lists::process_columns::ProcessColumn;
use crate::model::{HostGpu, HostLabel};
use crate::protocol::snapshot::State;

pub(super) const SECOND: HostKey = HostKey(1);

fn full(host: HostKey, snapshot: &Snapshot) -> Event {
    Event::Line(host, Box::new(Line::Full(Box::new(snapshot.clone()))))
}

/// The app with two hosts that sent the same snapshot.
pub(super) fn two_hosts(snapshot: &Snapshot) -> App {
    let mut fleet = Fleet::default();
    for (host, name) in [(HostKey::FIRST, "node-a"), (SECOND, "node-b")] {
        fleet.set_label(
            host,
            HostLabel {
                name: Some(name.into()),
                source: "ssh".into(),
            },
        );
    }
    let mut app = App::with_hosts(AppOptions::default(), fleet);
    app.update(Event::Resized(120, 40));
    for host in [HostKey::FIRST, SECOND] {
        app.update(full(host, snapshot));
    }
    app
}

fn press(app: &mut App, code: KeyCode) -> Option<Effect> {
    app.update(Event::Key(KeyEvent::from(code)))
}

fn letter(app: &mut App, letter: char) -> Option<Effect> {
    press(app, KeyCode::Char(letter))
}

fn refresh(app: &mut App) -> Option<Effect> {
    app.update(Event::Key(KeyEvent::new(
        KeyCode::Char('r'),
        KeyModifiers::CONTROL,
    )))
}

fn reply(host: HostKey, pid: u32, outcome: Outcome) -> Event {
    Event::Line(
        host,
        Box::new(Line::Reply(Reply {
            process: id(pid),
            outcome,
        })),
    )
}

fn on(host: HostKey, pid: u32) -> HostProcess {
    HostProcess {
        host,
        process: id(pid),
    }
}

fn listed(app: &App) -> Vec<HostProcess> {
    app.processes.rows.iter().filter_map(Row::process).collect()
}

fn commands_to(host: HostKey, commands: Vec<Command>) -> Effect {
    Effect::Commands(
        commands
            .into_iter()
            .map(|command| (host, command))
            .collect(),
    )
}

#[test]
fn lists_have_a_row_for_each_host_and_a_column_that_names_it() {
    let mut app = two_hosts(&three());
    let pairs = [103, 102, 101].map(|pid| [on(HostKey::FIRST, pid), on(SECOND, pid)]);
    assert_eq!(listed(&app), pairs.concat());
    assert_eq!(
        app.processes.columns(120, app.fleet())[0],
        ProcessColumn::Host
    );
    assert_eq!(
        app.gpus.columns(120, app.fleet())[..3],
        [GpuColumn::Host, GpuColumn::Index, GpuColumn::Name]
    );
    // Sorted by host, with memory deciding within each.
    letter(&mut app, 'S');
    let sort = app.processes.sort;
    assert!(sort.column.spec().name != "memory");
    for _ in 0..20 {
        if app.processes.sort.column == ProcessColumn::Host {
            break;
        }
        letter(&mut app, 'S');
    }
    assert_eq!(
        listed(&app)[..3]
            .iter()
            .map(|process| process.host)
            .collect::<Vec<_>>(),
        [HostKey::FIRST; 3]
    );
    // The filter finds the name of a host.
    letter(&mut app, '/');
    "node-b".chars().for_each(|key| _ = letter(&mut app, key));
    assert!(listed(&app).iter().all(|process| process.host == SECOND) && listed(&app).len() == 3);
}

#[test]
fn one_host_has_no_column_for_hosts() {
    let one = story(three());
    assert_ne!(
        one.app.processes.columns(120, one.app.fleet())[0],
        ProcessColumn::Host
    );
    assert_ne!(
        one.app.gpus.columns(120, one.app.fleet())[0],
        GpuColumn::Host
    );
}

#[test]
fn the_cursor_stays_on_its_host() {
    let mut app = two_hosts(&three());
    press(&mut app, KeyCode::Down);
    assert_eq!(app.processes.selected_process(), Some(on(SECOND, 103)));
    app.update(full(HostKey::FIRST, &three().without(103).later(1)));
    assert_eq!(app.processes.selected_process(), Some(on(SECOND, 103)));
    assert_eq!(app.processes.cursor, 0);
    // The GPUs of both hosts have the same UUIDs.
    press(&mut app, KeyCode::Tab);
    press(&mut app, KeyCode::End);
    let gpu = |app: &App| {
        app.gpus
            .selected_row(app.fleet())
            .map(|row| (row.host, row.gpu.facts.index))
    };
    assert_eq!(gpu(&app), Some((SECOND, 1)));
    app.update(full(HostKey::FIRST, &host(1).later(2)));
    assert_eq!((gpu(&app), app.gpus.cursor), (Some((SECOND, 1)), 2));
}

#[test]
fn tags_and_groups_are_of_one_host() {
    let mut app = two_hosts(&family());
    press(&mut app, KeyCode::Down);
    letter(&mut app, ' ');
    assert_eq!(app.processes.tagged, [on(SECOND, 103)]);
    app.update(full(HostKey::FIRST, &family().without(103).later(1)));
    assert_eq!(app.processes.tagged, [on(SECOND, 103)]);
    app.update(full(SECOND, &family().without(103).later(1)));
    assert_eq!(app.processes.tagged, []);
    // Groups by job, and tags of a whole job, hold members of one host only.
    letter(&mut app, 'b');
    letter(&mut app, 'b');
    press(&mut app, KeyCode::End);
    letter(&mut app, 'c');
    assert!(
        app.processes
            .tagged
            .iter()
            .all(|process| process.host == SECOND),
        "{:?}",
        app.processes.tagged
    );
    assert_eq!(app.processes.tagged.len(), 3);
}

#[test]
fn a_process_is_ended_on_its_host_and_replies_of_the_other_host_do_not_count() {
    let mut app = two_hosts(&three());
    press(&mut app, KeyCode::Down);
    let opened = press(&mut app, KeyCode::F(9));
    assert_eq!(
        opened,
        Some(commands_to(
            SECOND,
            vec![Command::Hold { process: id(103) }, Command::Scan]
        ))
    );
    app.update(reply(HostKey::FIRST, 103, Outcome::Held { caution: None }));
    app.mark_end_as_read();
    assert_eq!(
        press(&mut app, KeyCode::Enter),
        None,
        "the other host holds its own process"
    );
    app.update(Event::SourceLost(HostKey::FIRST, "gone".into()));
    app.update(reply(SECOND, 103, Outcome::Held { caution: None }));
    let sent = press(&mut app, KeyCode::Enter);
    assert_eq!(
        sent,
        Some(commands_to(
            SECOND,
            vec![Command::Signal {
                process: id(103),
                signal: Signal::Term
            }]
        ))
    );
    app.update(reply(
        HostKey::FIRST,
        103,
        Outcome::Ended {
            at: Moment(1_000_200),
        },
    ));
    assert_eq!(app.modes.end_dialog().unwrap().ended(), None);
    assert_eq!(
        press(&mut app, KeyCode::Esc),
        Some(commands_to(
            SECOND,
            vec![Command::Release { process: id(103) }]
        ))
    );
}

#[test]
fn tagged_processes_of_two_hosts_are_ended_in_one_dialog() {
    let mut app = two_hosts(&three());
    letter(&mut app, ' ');
    letter(&mut app, ' ');
    assert_eq!(
        app.processes.tagged,
        [on(HostKey::FIRST, 103), on(SECOND, 103)]
    );
    let hold = |host| (host, Command::Hold { process: id(103) });
    assert_eq!(
        press(&mut app, KeyCode::F(9)),
        Some(Effect::Commands(vec![hold(HostKey::FIRST), hold(SECOND)]))
    );
    let release = |host| (host, Command::Release { process: id(103) });
    assert_eq!(
        press(&mut app, KeyCode::Esc),
        Some(Effect::Commands(vec![
            release(HostKey::FIRST),
            release(SECOND)
        ]))
    );
}

#[test]
fn a_page_takes_the_answer_of_its_own_host() {
    let mut app = two_hosts(&three());
    press(&mut app, KeyCode::Down);
    assert_eq!(
        press(&mut app, KeyCode::Enter),
        Some(commands_to(
            SECOND,
            vec![Command::Inspect { process: id(103) }]
        ))
    );
    let asks = |app: &App| {
        app.modes
            .page()
            .unwrap()
            .lines
            .iter()
            .any(|line| format!("{line:?}").contains("asking the"))
    };
    app.update(reply(
        HostKey::FIRST,
        103,
        Outcome::NotInspected {
            reason: "not here".into(),
        },
    ));
    assert!(asks(&app));
    app.update(reply(
        SECOND,
        103,
        Outcome::NotInspected {
            reason: "not here".into(),
        },
    ));
    assert!(!asks(&app));
    press(&mut app, KeyCode::Esc);
    press(&mut app, KeyCode::Tab);
    press(&mut app, KeyCode::End);
    let uuid = app.fleet().host(SECOND).unwrap().latest().unwrap().gpus[1]
        .uuid
        .clone();
    let detail = |gpu| vec![Command::Detail { gpu }];
    assert_eq!(
        letter(&mut app, 'i'),
        Some(commands_to(SECOND, detail(Some(uuid))))
    );
    // A restarted agent of the first host is not asked about a GPU of the second.
    let mut restarted = three();
    restarted.sequence = 700;
    assert_eq!(app.update(full(HostKey::FIRST, &restarted)), None);
    assert_eq!(
        press(&mut app, KeyCode::Esc),
        Some(commands_to(SECOND, detail(None)))
    );
}

#[test]
fn a_verdict_belongs_to_its_host() {
    let mut app = two_hosts(&three());
    let mut stopped = three().later(1);
    stopped
        .processes
        .iter_mut()
        .for_each(|process| process.load.state = Ok(State::Stopped));
    app.update(full(SECOND, &stopped));
    letter(&mut app, 'o');
    assert_eq!(listed(&app), [103, 102, 101].map(|pid| on(SECOND, pid)));
}

#[test]
fn the_end_of_a_watched_process_is_reported_for_its_host_only() {
    let mut app = two_hosts(&three());
    press(&mut app, KeyCode::Down);
    letter(&mut app, 'w');
    assert!(
        app.alerts.is_watched(&on(SECOND, 103).into())
            && !app.alerts.is_watched(&on(HostKey::FIRST, 103).into())
    );
    let mut received = Vec::new();
    for host in [HostKey::FIRST, SECOND] {
        for second in 1..4 {
            let mut without = three().without(103).later(second);
            without.host.scan.at = without.at;
            if let Some(Effect::Alert(alerts)) = app.update(full(host, &without)) {
                received.extend(alerts.into_iter().map(|alert| (host, alert.sentence)));
            }
        }
    }
    assert_eq!(
        received,
        [(SECOND, "node-b: 103 (python c.py) has ended".to_owned())]
    );
}

#[test]
fn marks_and_graphs_show_the_memory_of_their_host() {
    let mut app = two_hosts(&three());
    letter(&mut app, 'm');
    app.update(full(SECOND, &larger(103)(three().later(1))));
    let changes = [HostKey::FIRST, SECOND].map(|host| {
        let lines = app
            .marks
            .lines(app.fleet().host(host).unwrap(), &on(host, 103).into());
        lines.last().unwrap().change(|memory| memory.held)
    });
    assert_eq!(changes, [Some(0), Some(30 << 30)]);
    // A host that was booted again loses its part of the mark, and the other keeps its own.
    let mut booted = three();
    booted.host.facts.boot_id = "another boot".into();
    booted.at = Moment(1000);
    app.update(full(HostKey::FIRST, &booted));
    assert_eq!(
        (
            app.marks.list[0].at(HostKey::FIRST),
            app.marks.list[0].at(SECOND).is_some()
        ),
        (None, true)
    );

    app = two_hosts(&three());
    press(&mut app, KeyCode::Down);
    press(&mut app, KeyCode::Char('g'));
    assert_eq!(app.subject(), Some(on(SECOND, 103).into()));
    for second in 1..60 {
        app.update(full(SECOND, &larger(103)(three().later(second))));
    }
    press(&mut app, KeyCode::Left);
    assert!(app.graph.cursor().is_some());
    let of_first = HostGpu {
        host: HostKey::FIRST,
        gpu: app.fleet().host(SECOND).unwrap().latest().unwrap().gpus[0]
            .uuid
            .clone(),
    };
    // Each host has a clock of its own: on the other host, the graph shows the present.
    press(&mut app, KeyCode::Tab);
    press(&mut app, KeyCode::Home);
    assert_eq!(
        (app.subject(), app.graph.cursor()),
        (Some(of_first.into()), None)
    );
}

#[test]
fn a_lost_host_affects_only_itself() {
    let mut app = two_hosts(&three());
    app.update(Event::SourceLost(SECOND, "ssh ended".into()));
    let reason = "ssh ended".into();
    let troubles: Vec<_> = app.troubles().collect();
    assert_eq!(troubles, [(SECOND, HostTrouble::Lost(&reason))]);
    press(&mut app, KeyCode::Down);
    assert_eq!(press(&mut app, KeyCode::F(9)), None);
    assert!(
        app.notice
            .text()
            .is_some_and(|notice| notice.contains("no agent"))
    );
    press(&mut app, KeyCode::Up);
    let opened = press(&mut app, KeyCode::F(9));
    assert_eq!(
        opened,
        Some(commands_to(
            HostKey::FIRST,
            vec![Command::Hold { process: id(103) }, Command::Scan]
        ))
    );
    press(&mut app, KeyCode::Esc);
    assert_eq!(refresh(&mut app), Some(Effect::Reconnect(vec![SECOND])));
    app.update(full(SECOND, &three().later(5)));
    assert_eq!(app.troubles().count(), 0);
    let all = [HostKey::FIRST, SECOND].map(|host| (host, Command::Scan));
    assert_eq!(refresh(&mut app), Some(Effect::Commands(all.to_vec())));
}

#[test]
fn only_the_silent_host_is_called_silent() {
    let mut app = two_hosts(&three());
    app.update(Event::Tick(ViewerTime::new(Duration::from_secs(20))));
    app.update(full(SECOND, &three().later(20)));
    let troubles: Vec<_> = app.troubles().collect();
    assert_eq!(
        troubles,
        [(HostKey::FIRST, HostTrouble::Silent(Duration::from_secs(20)))]
    );
}

#[test]
fn a_host_that_calls_itself_otherwise_than_before_is_reported() {
    let mut app = two_hosts(&three());
    assert_eq!(app.notice.text(), None);
    let mut other = three().later(1);
    other.host.facts.name = "other".into();
    app.update(full(SECOND, &other));
    assert_eq!(
        app.notice.text(),
        Some("node-b called itself box and now calls itself other")
    );
    app.notice.clear();
    app.update(full(SECOND, &other.later(1)));
    assert_eq!(app.notice.text(), None);
}
