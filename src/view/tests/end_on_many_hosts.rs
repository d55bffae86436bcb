//! Ends of processes on hosts that look alike: equal PIDs, GPUs and names, hosts that claim the name
//! of another, and PIDs that are used again. Whatever happens, a signal goes only to a process that
//! the dialog shows, on the host that it names.
//!
//! `PROPTEST_CASES=100000 cargo test --release end_on_many_hosts` runs as many cases as wanted.

use proptest::prelude::*;

use super::*;
use crate::app::event::Effect;
use crate::app::input::end_over_hosts::EndOverHosts;
use crate::app::lists::rows::Row;
use crate::app::page::Page;
use crate::base::time::ViewerTime;
use crate::model::{Fleet, GpuOrProcess, HostLabel, HostProcess};
use crate::protocol::command::Command;
use crate::protocol::snapshot::ProcessId;

const HOSTS: u16 = 3;

/// The names that the user typed.
const TYPED: [&str; HOSTS as usize] = ["node-a", "node-b", "node-c"];

#[derive(Debug, Clone)]
enum Step {
    /// A full line: the name that the host claims, its boot, and its processes as PID and start.
    Line {
        host: u16,
        claims: usize,
        boot: u8,
        processes: Vec<(u32, u64)>,
    },
    /// The agents of these hosts answer for the processes of the dialog.
    Reply {
        outcome: Outcome,
        hosts: Vec<u16>,
    },
    /// Seconds pass.
    Tick(u64),
    Lost(u16),
    /// A key that comes before the next frame, or after it.
    Key {
        key: KeyCode,
        is_drawn_before: bool,
    },
}

fn any_step() -> impl Strategy<Value = Step> {
    let line = (
        0..HOSTS,
        0..TYPED.len(),
        0..2u8,
        proptest::collection::vec((101..105u32, 0..2u64), 0..4),
    )
        .prop_map(|(host, claims, boot, processes)| Step::Line {
            host,
            claims,
            boot,
            processes,
        });
    let at = Moment(1_000_000);
    let outcome = prop_oneof![
        4 => Just(Outcome::Held { caution: None }),
        1 => Just(Outcome::Held { caution: Some("another owner".into()) }),
        1 => Just(Outcome::Ended { at }),
        1 => Just(Outcome::Refused { reason: "no permission".into() }),
        2 => Just(Outcome::Sent {
            signal: Signal::Term,
            at
        }),
    ];
    let key = prop_oneof![
        4 => Just(KeyCode::F(9)),
        6 => Just(KeyCode::Enter),
        2 => Just(KeyCode::Esc),
        3 => Just(KeyCode::Down),
        2 => Just(KeyCode::Up),
        2 => Just(KeyCode::Char(' ')),
        1 => Just(KeyCode::Tab),
        2 => Just(KeyCode::Char('a')),
        4 => Just(KeyCode::Char('2')),
        2 => Just(KeyCode::Char('3')),
    ];
    prop_oneof![
        4 => line,
        3 => (outcome, proptest::sample::subsequence(vec![0, 1, 2], 1..=3))
            .prop_map(|(outcome, hosts)| Step::Reply { outcome, hosts }),
        1 => (1..12u64).prop_map(Step::Tick),
        1 => (0..HOSTS).prop_map(Step::Lost),
        8 => (key, any::<bool>()).prop_map(|(key, is_drawn_before)| Step::Key { key, is_drawn_before }),
    ]
}

/// The screen as the user last saw it, and what it is about.
#[derive(Default)]
struct Seen {
    text: String,
    /// The process of the page that is open.
    of_page: Option<HostProcess>,
    selected: Option<HostProcess>,
    /// Whether the dialog over several hosts is open.
    is_over_hosts: bool,
    tagged: Vec<HostProcess>,
}

struct Drawn {
    app: App,
    seen: Seen,
}

impl Drawn {
    fn new() -> Self {
        let mut fleet = Fleet::default();
        for (host, name) in (0..).zip(TYPED) {
            let label = HostLabel {
                name: Some(name.into()),
                source: "ssh".into(),
            };
            fleet.set_label(HostKey(host), label);
        }
        let mut app = App::with_hosts(AppOptions::default(), fleet);
        app.update(Event::Resized(100, 30));
        // The lists, not the fleet view.
        app.update(Event::Key(KeyEvent::from(KeyCode::Char('f'))));
        let mut drawn = Self {
            app,
            seen: Seen::default(),
        };
        drawn.draw();
        drawn
    }

    fn draw(&mut self) {
        self.app.settle();
        self.app.mark_end_as_read();
        // On the page of a process, F9 is about that one.
        let page = self.app.modes.page().and_then(Page::subject);
        let of_page = page.and_then(|page| match page.subject {
            GpuOrProcess::Process(process) => Some(HostProcess {
                host: page.host,
                process,
            }),
            GpuOrProcess::Gpu(_) => None,
        });
        self.seen = Seen {
            text: screen(Theme::new(false, ColourDepth::Sixteen), &self.app, 100, 30),
            of_page,
            selected: self.app.processes.selected_row().and_then(Row::process),
            tagged: self.app.processes.tagged.clone(),
            is_over_hosts: self.app.modes.end_over_hosts().is_some(),
        };
    }

    fn take(&mut self, step: &Step) -> Option<Effect> {
        match step {
            Step::Line {
                host: number,
                claims,
                boot,
                processes,
            } => {
                let mut snapshot = host(1);
                for (pid, _) in processes {
                    snapshot = snapshot.with(*pid, "python train.py", 0, Bytes::from_gib(3));
                }
                let starts = |id: &mut ProcessId| {
                    let start = processes.iter().find(|(pid, _)| *pid == id.pid);
                    id.start_ticks = start.map(|(_, start)| *start);
                };
                for process in &mut snapshot.processes {
                    starts(&mut process.id);
                }
                for process in &mut snapshot.gpus[0].processes {
                    starts(&mut process.process);
                }
                let facts = crate::protocol::snapshot::HostFacts {
                    name: TYPED[*claims].into(),
                    boot_id: format!("boot-{boot}").into(),
                    ..snapshot.host.facts.clone()
                };
                snapshot.host.facts = facts;
                let line = Line::Full(Box::new(snapshot));
                self.app.take(Event::Line(HostKey(*number), Box::new(line)))
            }
            Step::Tick(seconds) => {
                let elapsed = ViewerTime::new(Duration::from_secs(*seconds));
                self.app.take(Event::Tick(elapsed))
            }
            Step::Reply { outcome, hosts } => {
                let targets = self.targets().into_iter();
                for HostProcess { host, process } in
                    targets.filter(|target| hosts.contains(&target.host.0))
                {
                    let outcome = outcome.clone();
                    let line = Line::Reply(Reply { process, outcome });
                    self.app.take(Event::Line(host, Box::new(line)));
                }
                None
            }
            Step::Lost(host) => self
                .app
                .take(Event::SourceLost(HostKey(*host), "the link is cut".into())),
            Step::Key { key, .. } => self.app.update(Event::Key(KeyEvent::from(*key))),
        }
    }

    /// The processes that the dialog would end, on one host or on several.
    fn targets(&self) -> Vec<HostProcess> {
        let modes = &self.app.modes;
        let parts = modes.end_over_hosts().map_or(&[][..], EndOverHosts::parts);
        let dialogs = modes.end_dialog().into_iter().chain(parts);
        let targets = dialogs.flat_map(|dialog| {
            dialog.targets().map(|target| HostProcess {
                host: dialog.host,
                process: target.id(),
            })
        });
        targets.collect()
    }

    /// The processes that F9 may be about: the one of the page that the user saw, those that were
    /// tagged, or the one under the cursor.
    fn meant(&self) -> Vec<HostProcess> {
        match self.seen.of_page {
            Some(process) => vec![process],
            None if self.seen.tagged.is_empty() => self.seen.selected.into_iter().collect(),
            None => self.seen.tagged.clone(),
        }
    }
}

fn check(steps: &[Step]) -> Result<(), TestCaseError> {
    let mut drawn = Drawn::new();
    for step in steps {
        if let Step::Key {
            is_drawn_before: true,
            ..
        } = step
        {
            drawn.draw();
        }
        let had_dialog = !drawn.targets().is_empty();
        let meant = drawn.meant();
        let effect = drawn.take(step);
        if !had_dialog {
            for process in drawn.targets() {
                // A key that comes before the next frame may have moved the cursor.
                if matches!(
                    step,
                    Step::Key {
                        is_drawn_before: true,
                        ..
                    }
                ) {
                    prop_assert!(
                        meant.contains(&process),
                        "{process:?} was not meant: {meant:?}"
                    );
                }
            }
        }
        let Some(Effect::Commands(commands)) = effect else {
            continue;
        };
        for (host, command) in commands {
            let ended: Vec<ProcessId> = match command {
                Command::Signal { process, .. } => vec![process],
                Command::Force { processes } => processes,
                _ => continue,
            };
            let name = TYPED[usize::from(host.0)];
            let text = &drawn.seen.text;
            let has_title = text.contains(&format!("on {name}"));
            for process in ended {
                let pid = process.pid.to_string();
                // A dialog over several hosts has a row for each.
                let is_in_row = || {
                    let mut rows = text.lines().filter(|line| line.contains(name));
                    rows.any(|row| row.split_whitespace().any(|word| word == pid))
                };
                let is_shown = if drawn.seen.is_over_hosts {
                    is_in_row()
                } else {
                    has_title && text.contains(&pid)
                };
                prop_assert!(
                    is_shown,
                    "a signal to {pid} on {name}, which the dialog did not show:\n{text}"
                );
            }
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_signal_goes_only_where_the_dialog_said(steps in proptest::collection::vec(any_step(), 1..40)) {
        check(&steps)?;
    }
}

#[test]
fn the_steps_of_the_property_do_end_processes() {
    let line = |claims| Step::Line {
        host: 1,
        claims,
        boot: 0,
        processes: vec![(101, 1)],
    };
    let key = |key| Step::Key {
        key,
        is_drawn_before: true,
    };
    let mut drawn = Drawn::new();
    let held = Step::Reply {
        outcome: Outcome::Held { caution: None },
        hosts: vec![0, 1, 2],
    };
    for step in [line(0), key(KeyCode::F(9)), held, line(2)] {
        drawn.draw();
        drawn.take(&step);
    }
    drawn.draw();
    assert!(
        drawn.seen.text.contains("on node-b"),
        "a host that claims another name keeps the one that was typed:\n{}",
        drawn.seen.text
    );
    let effect = drawn.take(&key(KeyCode::Enter));
    let sent = Effect::Commands(vec![(
        HostKey(1),
        Command::Signal {
            process: ProcessId {
                pid: 101,
                start_ticks: Some(1),
            },
            signal: Signal::Term,
        },
    )]);
    assert_eq!(effect, Some(sent));
}

#[test]
fn tagged_processes_on_two_hosts_are_ended_together_once_the_number_of_hosts_is_typed() {
    let line = |host, pid| Step::Line {
        host,
        claims: 0,
        boot: 0,
        processes: vec![(pid, 1)],
    };
    let key = |key| Step::Key {
        key,
        is_drawn_before: true,
    };
    let mut drawn = Drawn::new();
    let held = Step::Reply {
        outcome: Outcome::Held { caution: None },
        hosts: vec![0, 1, 2],
    };
    let steps = [
        line(0, 101),
        line(1, 101),
        line(2, 104),
        Step::Lost(2),
        key(KeyCode::Char('a')),
        key(KeyCode::F(9)),
        held,
    ];
    for step in steps {
        drawn.draw();
        drawn.take(&step);
    }
    drawn.draw();
    let text = &drawn.seen.text;
    for words in [
        " End the tagged processes on 3 hosts ",
        "does not answer: nothing is sent to it, and nothing is promised",
        "Type the number of hosts, 2, to confirm",
    ] {
        assert!(text.contains(words), "{words}:\n{text}");
    }
    assert_eq!(drawn.take(&key(KeyCode::Enter)), None, "nothing was typed");
    drawn.take(&key(KeyCode::Char('2')));
    drawn.draw();
    let signal = |host| {
        let process = ProcessId {
            pid: 101,
            start_ticks: Some(1),
        };
        let signal = Signal::Int;
        (HostKey(host), Command::Signal { process, signal })
    };
    let effect = drawn.take(&key(KeyCode::Enter));
    assert_eq!(
        effect,
        Some(Effect::Commands(vec![signal(0), signal(1)])),
        "{}",
        drawn.seen.text
    );
}
