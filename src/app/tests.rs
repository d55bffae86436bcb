//! Tests of the app: snapshots of a host and keys, and the effects that follow.

mod after_the_end;
mod connections;
mod demo_hints;
mod end_dialog;
mod replays;
mod signals;
mod two_hosts;

use crossterm::event::{KeyCode, KeyModifiers};

use super::*;
use crate::app::input::end_dialog::{Choice, Stage};
use crate::app::lists::rows::{Row, RowSubject};
use crate::base::time::ViewerTime;
use crate::base::units::{Bytes, Moment};
use crate::model::GpuOrProcess;
use crate::protocol::change::Change;
use crate::protocol::command::Signal;
use crate::protocol::host_key::HostKey;
use crate::protocol::snapshot::example::host;
use crate::protocol::snapshot::{ProcessId, Snapshot, State, Use};

struct Story {
    app: App,
    host: Snapshot,
    asked: Vec<Effect>,
}

fn story(host: Snapshot) -> Story {
    let app = App::new(AppOptions::default());
    let mut story = Story {
        app,
        host: host.clone(),
        asked: Vec::new(),
    };
    story.event(Event::Resized(80, 24));
    story.event(Event::Line(
        HostKey::FIRST,
        Box::new(Line::Full(Box::new(host))),
    ));
    story
}

impl Story {
    fn event(&mut self, event: Event) {
        self.asked.extend(self.app.update(event));
    }

    /// Presses keys, separated by blanks: `Down`, `F9`, `Enter`, `^C` or letters.
    fn keys(mut self, names: &str) -> Self {
        for name in names.split(' ') {
            let code = match name {
                "Up" => KeyCode::Up,
                "Down" => KeyCode::Down,
                "Enter" => KeyCode::Enter,
                "Esc" => KeyCode::Esc,
                "Tab" => KeyCode::Tab,
                "End" => KeyCode::End,
                "^R" => {
                    self.event(Event::Key(KeyEvent::new(
                        KeyCode::Char('r'),
                        KeyModifiers::CONTROL,
                    )));
                    continue;
                }
                "F9" => KeyCode::F(9),
                letters => {
                    for letter in letters.chars() {
                        self.event(Event::Key(KeyEvent::from(KeyCode::Char(letter))));
                    }
                    continue;
                }
            };
            // The user reads before pressing Enter.
            self.app.mark_end_as_read();
            self.event(Event::Key(KeyEvent::from(code)));
        }
        self
    }

    /// Sends the snapshot of the next pass, with `change` applied.
    fn pass(mut self, change: impl FnOnce(Snapshot) -> Snapshot) -> Self {
        let next = change(self.host.later(1));
        self.event(Event::Line(
            HostKey::FIRST,
            Box::new(Line::Full(Box::new(next.clone()))),
        ));
        self.host = next;
        self
    }

    fn model(&self) -> &HostModel {
        self.app.fleet().host(HostKey::FIRST).unwrap()
    }

    fn hears(mut self, pid: u32, outcome: Outcome) -> Self {
        let reply = Reply {
            process: id(pid),
            outcome,
        };
        self.event(Event::Line(HostKey::FIRST, Box::new(Line::Reply(reply))));
        self
    }

    #[track_caller]
    fn asks(mut self, effects: &[Effect]) -> Self {
        assert_eq!(std::mem::take(&mut self.asked), effects);
        self
    }

    /// The memory returned and expected, for each GPU.
    fn returned(&self) -> Vec<(Bytes, Bytes)> {
        let returned = self
            .app
            .modes
            .end_dialog()
            .unwrap()
            .returned
            .as_ref()
            .unwrap();
        returned.iter().map(|it| (it.freed, it.expected)).collect()
    }

    #[track_caller]
    fn shows(self, pids: &[u32], under_cursor: u32) -> Self {
        let rows: Vec<u32> = self
            .app
            .processes
            .rows
            .iter()
            .filter_map(Row::process)
            .map(|id| id.process.pid)
            .collect();
        assert_eq!(
            (
                rows.as_slice(),
                self.app
                    .processes
                    .selected_process()
                    .map(|id| id.process.pid)
            ),
            (pids, Some(under_cursor))
        );
        self
    }
}

fn id(pid: u32) -> ProcessId {
    ProcessId {
        pid,
        start_ticks: Some(u64::from(pid)),
    }
}

/// The effect of these commands to the first host.
fn asked(commands: Vec<Command>) -> Effect {
    Effect::Commands(
        commands
            .into_iter()
            .map(|command| (HostKey::FIRST, command))
            .collect(),
    )
}

/// The effect of opening the end-process dialog on a process: hold it, and scan for its job.
fn hold(pid: u32) -> Effect {
    asked(vec![Command::Hold { process: id(pid) }, Command::Scan])
}

fn signal(pid: u32, signal: Signal) -> Effect {
    asked(vec![Command::Signal {
        process: id(pid),
        signal,
    }])
}

/// Three processes, listed by memory: 103 (40 GiB), 102 (30 GiB), 101 (20 GiB).
fn three() -> Snapshot {
    host(2)
        .with(101, "python a.py", 0, Bytes::from_gib(20))
        .with(102, "python b.py", 0, Bytes::from_gib(30))
        .with(103, "python c.py", 1, Bytes::from_gib(40))
}

fn larger(pid: u32) -> impl FnOnce(Snapshot) -> Snapshot {
    move |mut host| {
        for gpu_process in host
            .gpus
            .iter_mut()
            .flat_map(|gpu| &mut gpu.processes)
            .filter(|it| it.process.pid == pid)
        {
            gpu_process.memory = Ok(Bytes::from_gib(70));
        }
        host
    }
}

#[test]
fn the_cursor_follows_its_process_and_not_its_row() {
    story(three())
        .shows(&[103, 102, 101], 103)
        .keys("Down")
        .pass(larger(101))
        .shows(&[101, 103, 102], 102);
}

#[test]
fn a_cursor_that_was_never_moved_stays_at_the_top() {
    story(three())
        .pass(larger(101))
        .shows(&[101, 103, 102], 101);
}

#[test]
fn when_the_process_under_the_cursor_ends_the_next_one_is_there() {
    story(three())
        .keys("Down")
        .pass(|host| host.without(102))
        .shows(&[103, 101], 101);
}

#[test]
fn after_the_processes_of_one_gpu_the_cursor_is_where_it_was() {
    for back in ["Esc", "0"] {
        let story = story(three())
            .keys("Down Down")
            .shows(&[103, 102, 101], 101)
            .keys("0")
            .keys("Up")
            .keys(back);
        assert_eq!(
            story.shows(&[103, 102, 101], 101).app.focus,
            List::Processes
        );
    }
    let story = story(three()).keys("Tab Enter").keys("Esc");
    assert_eq!(story.app.focus, List::Gpus);
}

#[test]
fn the_page_of_a_process_that_ended_lies_over_its_graph_and_keeps_the_filter_also_before_it_is_reaped()
 {
    let becomes_zombie = |mut host: Snapshot| {
        host.gpus[0]
            .processes
            .retain(|gpu_process| gpu_process.process.pid != 101);
        host.processes[0].load.state = Ok(State::Zombie);
        host
    };
    let ends: [&dyn Fn(Snapshot) -> Snapshot; 2] = [&becomes_zombie, &|host| host.without(101)];
    for end in ends {
        let story = story(three())
            .keys("/ b.py Enter")
            .pass(|host| host)
            .pass(end)
            .keys("E Enter Esc");
        let graph = story.app.modes.graph().map(|graph| graph.subject.clone());
        assert_eq!(graph, Some(GpuOrProcess::Process(id(101))));
        story.keys("Esc").shows(&[102], 102);
    }
}

#[test]
fn a_filter_matches_as_it_is_typed_and_all_its_words() {
    story(three())
        .keys("/")
        .keys("ali")
        .shows(&[103, 102, 101], 103)
        .keys("ce")
        .keys("Enter");
    let mut typed = story(three()).keys("/ b.py");
    typed.event(Event::Key(KeyEvent::from(KeyCode::Char(' '))));
    typed
        .keys("gpu0")
        .shows(&[102], 102)
        .keys("Esc")
        .shows(&[103, 102, 101], 103);
}

#[test]
fn a_filter_finds_the_words_of_every_column() {
    let mut host = three();
    host.gpus[1].processes[0].usage = Use::Graphics;
    host.processes[0].facts_mut().origin = Ok("slurm 4711".into());
    host.processes[1].load.state = Ok(State::Zombie);
    let shows = |filter: &str, pid: u32| {
        _ = story(host.clone())
            .keys("/")
            .keys(filter)
            .shows(&[pid], pid);
    };
    shows("graphics", 103);
    shows("slurm", 101);
    shows("zombie", 102);
    shows("gpu1", 103);
}

#[test]
fn a_filter_by_gpu_keeps_the_line_of_its_unaccounted_memory() {
    let mut host = host(4);
    for gpu in [2, 3] {
        host.gpus[gpu].load.memory_used = Ok(Bytes::from_gib(9));
    }
    let unaccounted = |keys: &str| {
        let rows = story(host.clone()).keys(keys).app.processes.rows;
        let gpus = rows.into_iter().filter_map(|row| match row.subject {
            RowSubject::Unaccounted(gpu) => {
                host.gpus.iter().position(|known| known.uuid == gpu.gpu)
            }
            _ => None,
        });
        gpus.collect::<Vec<usize>>()
    };
    assert_eq!(unaccounted("Tab"), [2, 3]);
    assert_eq!(
        (unaccounted("3"), unaccounted("/ gpu3")),
        (vec![3], vec![3])
    );
    assert_eq!(
        (unaccounted("/ unaccounted"), unaccounted("/ train")),
        (vec![2, 3], vec![])
    );
    assert_eq!(unaccounted("b / gpu3"), [3]);
}

#[test]
fn quit_keys_type_letters_into_a_filter() {
    story(three()).keys("/ q").asks(&[]);
}

/// The end-process dialog on the whole job of a rank of [`family`], with every target held.
fn job() -> Story {
    let mut job = story(family()).keys("End F9 Tab");
    for pid in [100, 101, 102] {
        job = job.hears(pid, Outcome::Held { caution: None });
    }
    job.asked.clear();
    job
}

#[test]
fn a_job_of_one_line_has_no_head_of_its_own() {
    let grouped = story(family()).keys("bb").shows(&[103, 102, 101], 103);
    let heads: Vec<usize> = (0..)
        .zip(&grouped.app.processes.rows)
        .filter(|(_, row)| row.process().is_none())
        .map(|it| it.0)
        .collect();
    assert_eq!(heads, [1]);
    let depths: Vec<usize> = grouped
        .app
        .processes
        .rows
        .iter()
        .map(|it| it.depth)
        .collect();
    assert_eq!(depths, [0, 0, 1, 1]);
}

#[test]
fn b_goes_through_the_groupings_and_says_when_the_list_looks_the_same() {
    let mut grouped = story(family());
    for words in ["by GPU", "by job", "by user", "tree"] {
        grouped = grouped.keys("b");
        assert_eq!(
            (
                grouped.app.badge_words().join(","),
                grouped.app.notice.text()
            ),
            (words.to_owned(), None)
        );
    }
    assert!(grouped.keys("b").app.badge_words().is_empty());
    let alone = story(three()).keys("t");
    assert_eq!(
        alone.app.notice.text(),
        Some("processes below their parents, which looks the same here")
    );
}

#[test]
fn the_gpu_list_tags_and_ends_no_process() {
    let on_gpu = story(three()).keys("Tab c").asks(&[]);
    assert_eq!(
        (&on_gpu.app.processes.tagged[..], on_gpu.app.notice.text()),
        (&[][..], Some("only processes are tagged: Tab goes to them"))
    );
    let on_gpu = on_gpu.keys("F9").asks(&[]);
    assert_eq!(
        on_gpu.app.notice.text(),
        Some("only processes are ended: Tab goes to them")
    );
    on_gpu.keys("Tab F9").asks(&[hold(103)]);
}

#[test]
fn old_figures_show_their_age() {
    let mut story = story(three());
    let gpu = story.host.gpus[0].clone();
    assert_eq!(story.model().age(&gpu), None);
    story.event(Event::Tick(ViewerTime::new(Duration::from_secs(4))));
    assert_eq!(story.model().age(&gpu), Some(Duration::from_secs(4)));
    assert_eq!(story.model().silence(), Some(Duration::from_secs(4)));
    assert_eq!(story.pass(|host| host).model().silence(), None);
}

/// [`three`] and a launcher that is the parent of two of them.
fn family() -> Snapshot {
    let mut host = three().related(100, 1, "torchrun train.py");
    host.host.scan.at = host.at;
    for process in host
        .processes
        .iter_mut()
        .filter(|it| it.id.pid < 103 && it.id.pid > 100)
    {
        process.facts_mut().parent = Ok(100);
    }
    host
}

#[test]
fn a_tick_that_starts_from_another_snapshot_asks_for_a_full_line() {
    let mut story = story(three());
    let (second, third) = (story.host.later(1), story.host.later(1).later(1));
    let tick = Change::between(&second, &third).expect("two passes of one host");
    story.event(Event::Line(
        HostKey::FIRST,
        Box::new(Line::Tick(Box::new(tick))),
    ));
    assert_eq!(story.asked, [asked(vec![Command::Full])]);
}

#[test]
fn a_process_is_said_to_have_no_probe_only_after_a_search() {
    let mut host = three();
    let scanned = std::mem::replace(&mut host.host.scan.at, Moment(0));
    let story = story(host).keys("i m");
    assert_eq!(
        story.app.notice.text(),
        Some("no probe was looked for in this process yet: press the key again")
    );
    let searched = story.pass(|mut host| {
        host.host.scan.at = scanned;
        host
    });
    assert_eq!(
        searched.keys("m").app.notice.text(),
        Some("no probe is in this process: start it as `gputop run -- python train.py`")
    );
}
