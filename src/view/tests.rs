//! Whole screens of a busy host.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::app::{AppOptions, event::Event, layout::GpuView, settings::Settings};
use crate::base::terminal::ColourDepth;
use crate::base::units::{Bytes, Elapsed, Moment, Percent, Watts};
use crate::protocol::command::Signal;
use crate::protocol::host_key::HostKey;
use crate::protocol::line::Line;
use crate::protocol::reply::{Outcome, Reply};
use crate::protocol::snapshot::example::{allocator_stats, host};
use crate::protocol::snapshot::{
    AllocatorStats, AllocatorUnreadable, Cause, DeviceAllocator, Missing, Snapshot, State, Trouble,
};

mod cluster;
mod end_dialog;
mod end_on_many_hosts;
mod fleet;
mod lines;
mod memory;
mod no_gpu;
mod screens;
mod tiles;
mod troubles;
mod waiting_hosts;

/// Eight GPUs and twelve processes.
fn busy() -> Snapshot {
    (0..12u32).fold(host(8), |host, number| {
        let memory = Bytes::from_mib(u64::from(1000 + number * 3000));
        host.with(
            1000 + number * 7919,
            "python train.py --model resnet50",
            number as usize % 8,
            memory,
        )
    })
}

/// The app after a minute in which the processes of [`busy`] grew, and after `keys`.
fn app(width: u16, height: u16, keys: &[KeyCode]) -> App {
    let mut app = App::new(AppOptions::default());
    app.update(Event::Resized(width, height));
    let mut host = busy();
    for _ in 0..60 {
        host = host.later(1);
        for memory in host
            .gpus
            .iter_mut()
            .flat_map(|gpu| &mut gpu.processes)
            .filter_map(|it| it.memory.as_mut().ok())
        {
            memory.0 += 50 << 20;
        }
        app.update(Event::Line(
            HostKey::FIRST,
            Box::new(Line::Full(Box::new(host.clone()))),
        ));
    }
    for key in keys {
        app.update(Event::Key(KeyEvent::from(*key)));
    }
    app
}

fn screen(theme: Theme, app: &App, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| draw(frame.buffer_mut(), &theme, app))
        .unwrap();
    terminal.backend().to_string()
}

const PLACES: [&[KeyCode]; 9] = [
    &[],
    &[KeyCode::Char('g')],
    &[KeyCode::Char('g'), KeyCode::Char('g')],
    &[
        KeyCode::Tab,
        KeyCode::Char('g'),
        KeyCode::Char('g'),
        KeyCode::Left,
    ],
    &[
        KeyCode::Char('m'),
        KeyCode::Char('x'),
        KeyCode::Enter,
        KeyCode::Char('g'),
        KeyCode::Char('m'),
    ],
    &[KeyCode::F(9)],
    &[KeyCode::Char('?')],
    &[KeyCode::Enter],
    &[KeyCode::Tab, KeyCode::Char('i')],
];

#[test]
fn eighty_by_twenty_four_shows_eight_gpus_and_ten_processes() {
    let screen = screen(
        Theme::new(false, ColourDepth::Sixteen),
        &app(80, 24, &[]),
        80,
        24,
    );
    assert_eq!(
        screen.lines().filter(|line| line.contains("H100")).count(),
        8,
        "{screen}"
    );
    assert!(
        screen
            .lines()
            .filter(|line| line.contains("python train.py"))
            .count()
            >= 10,
        "{screen}"
    );
}

#[test]
fn a_process_shows_what_it_holds_and_how_that_grew() {
    let screen = screen(
        Theme::new(false, ColourDepth::Sixteen),
        &app(120, 40, &[]),
        120,
        40,
    );
    let line = screen
        .lines()
        .find(|line| line.contains("88109 alice"))
        .unwrap();
    for part in [
        " 36.1G ",
        " 40% ",
        " 99% ",
        " python train.py --model resnet50",
    ] {
        assert!(line.contains(part), "{part} in {line}");
    }
    // Its memory and its use of a minute, the latest at the right. A healthy process is not called
    // ok.
    let graphs = line
        .chars()
        .filter(|it| ('\u{2801}'..='\u{28ff}').contains(it));
    assert!(graphs.count() >= 2 && !line.contains(" ok "), "{line}");
    assert!(
        screen.contains(" MEM 15m ") && screen.contains(" SM 15m "),
        "{screen}"
    );
    // How it grew is in the head of its graph.
    let head = screen
        .lines()
        .find(|line| line.contains(" 88109 train.py memory"));
    assert!(
        head.is_some_and(|head| head.contains(" +2.9 GiB in 59s ")),
        "{screen}"
    );
    assert!(screen.contains("88109 train.py memory"), "{screen}");
}

#[test]
fn any_size_is_drawn() {
    for keys in PLACES {
        for (width, height) in
            (1..=60).flat_map(|width| (1..=20).map(move |height| (width, height)))
        {
            screen(
                Theme::new(false, ColourDepth::Sixteen),
                &app_of_size(keys, width, height),
                width,
                height,
            );
        }
    }
}

/// Like [`app`], but faster: after one pass only.
fn app_of_size(keys: &[KeyCode], width: u16, height: u16) -> App {
    let mut app = App::new(AppOptions::default());
    app.update(Event::Resized(width, height));
    app.update(Event::Line(
        HostKey::FIRST,
        Box::new(Line::Full(Box::new(busy()))),
    ));
    for key in keys {
        app.update(Event::Key(KeyEvent::from(*key)));
    }
    app
}

#[test]
fn an_ascii_terminal_gets_ascii_only() {
    for keys in PLACES {
        let screen = screen(
            Theme::new(true, ColourDepth::None),
            &app(120, 40, keys),
            120,
            40,
        );
        assert!(screen.is_ascii(), "{screen}");
    }
}

#[test]
fn old_values_show_their_age() {
    let mut app = app(80, 24, &[]);
    app.update(Event::Tick(crate::base::time::ViewerTime::new(
        Duration::from_secs(7),
    )));
    let screen = screen(Theme::new(false, ColourDepth::Sixteen), &app, 80, 24);
    assert!(
        screen.contains("no word from the agent for 7s") && screen.contains("7s old"),
        "{screen}"
    );
}

/// The app with one process whose allocator was read: 36 GiB, of which tensors hold half.
fn with_allocator(width: u16, keys: &[KeyCode]) -> App {
    let gib = |gib: u64| Ok(Bytes::from_gib(gib));
    let mut host = host(1).with(7, "python train.py", 0, Bytes::from_gib(40));
    let allocator = DeviceAllocator {
        allocated: gib(20),
        active: gib(21),
        requested: gib(19),
        inactive_split: gib(5),
        reserved: gib(36),
        allocated_peak: gib(30),
        reserved_peak: gib(37),
        retries: Ok(3),
        ooms: Ok(1),
        ..DeviceAllocator::missing(0, Some(host.gpus[0].uuid.clone()), Missing::NotYet)
    };
    host.processes[0].allocator = Some(Box::new(AllocatorStats {
        devices: vec![allocator],
        unreadable: None,
    }));
    let mut app = App::new(AppOptions::default());
    app.apply_settings(Settings {
        gpu_view: Some(GpuView::Rows),
        ..Settings::default()
    });
    app.update(Event::Resized(width, 60));
    app.update(Event::Line(
        HostKey::FIRST,
        Box::new(Line::Full(Box::new(host))),
    ));
    for key in keys {
        app.update(Event::Key(KeyEvent::from(*key)));
    }
    app
}

#[test]
fn the_command_has_room_at_every_width() {
    for (width, least) in [(80, 24), (100, 39), (120, 40), (160, 40), (200, 80)] {
        let host = with_parts(&[(6, 3)]);
        for app in [
            app_with(&host, width, Settings::default()),
            app(width, 24, &[]),
        ] {
            let head = line_of(&app, width, " PID ");
            let (before, _) = head.split_once("COMMAND").unwrap();
            assert!(
                usize::from(width) - before.chars().count() >= least,
                "{width}: {head}"
            );
        }
    }
}

#[test]
fn the_history_of_the_first_minute_is_headed_in_seconds_and_a_watched_gpu_says_so() {
    let mut app = app_of_size(&[KeyCode::Tab, KeyCode::Char('w')], 160, 24);
    app.update(Event::Tick(crate::base::time::ViewerTime::new(
        Duration::from_secs(9),
    )));
    assert!(!line_of(&app, 160, " PID ").contains(" 0 MIN"));
    app.update(Event::Line(
        HostKey::FIRST,
        Box::new(Line::Full(Box::new(busy().later(1)))),
    ));
    let line = line_of(&app, 160, " 0 H100");
    assert!(
        line.contains(" watched ") && !line.contains(" ok"),
        "{line}"
    );
}

#[test]
fn a_tagged_or_watched_process_says_so_in_words() {
    let mut app = app(120, 24, &[KeyCode::Char('w'), KeyCode::Char(' ')]);
    app.update(Event::Tick(crate::base::time::ViewerTime::new(
        Duration::from_secs(9),
    )));
    let line = line_of(&app, 120, " 88109 alice");
    assert!(
        line.starts_with("█3 ") && line.contains(" tagged watched python train.py"),
        "{line}"
    );
}

#[test]
fn rows_mark_my_processes_with_a_wide_bar_and_those_of_others_with_a_narrow_one() {
    let mut host = host(2)
        .with(7, "python train.py", 0, Bytes::from_gib(9))
        .with(8, "python serve.py", 1, Bytes::from_gib(5));
    let facts = host.processes[1].facts_mut();
    (facts.uid, facts.user) = (Ok(1001), Ok("bob".into()));
    for (width, height, before) in [(80, 24, ""), (120, 40, "│")] {
        let settings = Settings {
            gpu_view: Some(GpuView::Rows),
            ..Settings::default()
        };
        let app = app_of(&host, width, height, settings);
        let text = screen(Theme::new(false, ColourDepth::Sixteen), &app, width, height);
        for (words, mark) in [
            (" 7 alice ", '█'),
            (" 8 bob ", '▎'),
            (" 0 H100 ", '▎'),
            (" 1 H100 ", '▎'),
        ] {
            let row = text.lines().find(|line| line.contains(words));
            assert!(
                row.is_some_and(|row| row.starts_with(&format!("\"{before}{mark}"))),
                "{words} {mark}\n{text}"
            );
        }
    }
}

/// A host where each process has this much reserved and allocated, in GiB, and 2 GiB that are not
/// PyTorch's.
fn with_parts(each: &[(u64, u64)]) -> Snapshot {
    let mut snapshot = host(1);
    for (pid, (reserved, allocated)) in (7..).zip(each) {
        snapshot = snapshot.with(pid, "python train.py", 0, Bytes::from_gib(reserved + 2));
        let gpu = Some(snapshot.gpus[0].uuid.clone());
        let it = snapshot.processes.last_mut().unwrap();
        it.allocator = Some(
            allocator_stats(gpu, Bytes::from_gib(*reserved), Bytes::from_gib(*allocated)).into(),
        );
    }
    snapshot
}

#[test]
fn a_full_list_leaves_a_row_for_the_note_about_unread_stats() {
    let screen_of = |processes: usize, height: u16| {
        let mut host = with_parts(&vec![(1, 1); processes]);
        host.processes.iter_mut().for_each(|it| {
            it.allocator = Some(AllocatorStats::unreadable(AllocatorUnreadable::OtherUser).into());
        });
        let mut app = App::new(AppOptions::default());
        app.apply_settings(Settings {
            gpu_view: Some(GpuView::Rows),
            ..Settings::default()
        });
        app.update(Event::Resized(80, height));
        app.update(Event::Line(
            HostKey::FIRST,
            Box::new(Line::Full(Box::new(host))),
        ));
        screen(Theme::new(false, ColourDepth::Sixteen), &app, 80, height)
    };
    let roomy = screen_of(3, 24);
    assert!(
        roomy.contains("user: run gputop as that user or as root"),
        "{roomy}"
    );
    let full = screen_of(30, 24);
    assert!(
        full.contains(
            "PyTorch's part of 30 processes is not known (Enter says why, and what to do)"
        ),
        "{full}"
    );
    assert!(full.contains("19 more"), "{full}");
    // Where there is too little room for a reason, the note in its place is complete.
    for processes in 1..30 {
        let screen = screen_of(processes, 24);
        assert!(
            screen.contains("Enter says why") || screen.contains("as root"),
            "{screen}"
        );
    }
}

#[test]
fn the_reason_for_unread_stats_is_shown_once_below_the_list() {
    let mut host = host(1);
    for (pid, why) in [
        (7, AllocatorUnreadable::PtraceScope),
        (8, AllocatorUnreadable::PtraceScope),
        (9, AllocatorUnreadable::OldPytorch),
        (10, AllocatorUnreadable::NotYet),
    ] {
        host = host.with(pid, "python train.py", 0, Bytes::from_gib(4));
        host.processes.last_mut().unwrap().allocator =
            Some(Box::new(AllocatorStats::unreadable(why)));
    }
    let mut app = App::new(AppOptions::default());
    app.update(Event::Line(
        HostKey::FIRST,
        Box::new(Line::Full(Box::new(host))),
    ));
    for (width, height) in [(80, 24), (120, 40), (200, 60)] {
        app.update(Event::Resized(width, height));
        let screen = screen(Theme::new(false, ColourDepth::Sixteen), &app, width, height);
        let text = screen
            .replace(['"', '│'], " ")
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        for reason in [
            "of the memory of 2 processes is not known: kernel.yama.ptrace_scope lets only root look into it: run gputop \
             as root, or `sudo sysctl kernel.yama.ptrace_scope=0`",
            "of the memory of 1 process is not known: its PyTorch does not show its allocator: torch 2.1 and later do",
        ] {
            assert_eq!(text.matches(reason).count(), 1, "{reason}\n{screen}");
        }
        assert_eq!(text.matches("is not known").count(), 2, "{screen}");
    }
    // A list that needs all rows leaves none for the note.
    app.update(Event::Resized(80, 10));
    let screen = screen(Theme::new(false, ColourDepth::Sixteen), &app, 80, 10);
    assert!(!screen.contains("is not known"), "{screen}");
}

/// A host on whose GPU this many workers of a dead trainer keep 9 GiB that the driver lists for no
/// process.
fn left_over(workers: u32) -> Snapshot {
    let mut host = host(1);
    host.gpus[0].load.memory_used = Ok(Bytes::from_gib(9));
    for pid in 201..=200 + workers {
        host = host.related(pid, 1, "python train.py");
        let worker = host
            .processes
            .iter_mut()
            .find(|it| it.id.pid == pid)
            .unwrap();
        let id = worker.id;
        let facts = worker.facts_mut();
        (facts.comm, facts.group) = (Ok("pt_data_worker".into()), Ok(100));
        host.gpus[0].device_file_holders.push(id);
    }
    host
}

/// The list of suspects of [`left_over`].
fn short_list(workers: u32) -> String {
    let mut app = app_with(&left_over(workers), 80, Settings::default());
    app.update(Event::Key(KeyEvent::from(KeyCode::Char('o'))));
    screen(Theme::new(false, ColourDepth::Sixteen), &app, 80, 24)
}

#[test]
fn the_short_list_has_each_byte_once_and_the_whole_reason_below_it() {
    let line = |screen: &str, word: &str| {
        screen
            .lines()
            .find(|line| line.contains(word))
            .map(str::to_owned)
    };
    let alone = short_list(1);
    assert!(
        line(&alone, "    201 alice").is_some_and(|line| line.contains(" 9.0G orphan")),
        "{alone}"
    );
    assert_eq!(
        line(&alone, "unaccounted"),
        None,
        "it stands on the line of the one who keeps it:\n{alone}"
    );
    assert!(
        alone
            .contains("its parent exited (now under PID 1); its process group leader 100 is gone,"),
        "{alone}"
    );
    assert!(
        alone.contains("but it still computes; still holds 9.0 GiB"),
        "{alone}"
    );
    assert!(alone.contains("holds 9.0 GiB"), "{alone}");
    let two = short_list(2);
    for pid in ["    201 alice", "    202 alice"] {
        assert!(
            line(&two, pid).is_some_and(|line| line.contains("shared orphan")),
            "{two}"
        );
    }
    assert_eq!(two.matches("9.0G").count(), 1, "{two}");
    assert!(
        line(&two, "9.0G").is_some_and(|line| line.contains("unaccounted")),
        "{two}"
    );
}

#[test]
fn the_footer_counts_tagged_processes_wherever_the_cursor_is() {
    let host = host(1)
        .with(7, "python train.py", 0, Bytes::from_gib(3))
        .with(8, "python a.py", 0, Bytes::from_gib(2));
    let mut app = app_with(&host, 80, Settings::default());
    let mut after = |keys: &str| {
        for key in keys.chars() {
            let code = if key == '\n' {
                KeyCode::Enter
            } else {
                KeyCode::Char(key)
            };
            app.update(Event::Key(KeyEvent::from(code)));
        }
        screen(Theme::new(false, ColourDepth::Sixteen), &app, 80, 24)
    };
    assert!(!after("").contains("tagged"));
    assert!(after(" ").contains("\"1 tagged  Esc leaves  ? help"));
    // The filter hides the tagged process, and the dialog opens on it all the same.
    assert!(
        after("/a.py\n").contains("1 tagged, 1 not listed"),
        "{}",
        after("")
    );
    assert!(
        after("x").contains("End the tagged process 7 "),
        "{}",
        after("")
    );
}

#[test]
fn typed_text_has_precedence_over_a_notice() {
    let mut app = app(120, 24, &[KeyCode::Char('/'), KeyCode::Char('x')]);
    app.update(Event::Done("settings were saved".into()));
    assert!(line_of(&app, 120, "filter: ").starts_with("filter: x"));
}

#[test]
fn badges_stay_beside_a_notice_which_ends_with_the_next_key() {
    for width in [80, 120] {
        let mut app = app(width, 24, &[KeyCode::Char('u'), KeyCode::Char('p')]);
        let badges = "mine only  PAUSED 0s ago";
        assert!(line_of(&app, width, badges).contains("Esc leaves  ? help"));
        app.update(Event::Done("settings were saved".into()));
        let line = line_of(&app, width, badges);
        assert!(
            line.contains("ago  settings were saved") && !line.contains("? help"),
            "{line}"
        );
        // A long notice has half of the line, and the latest badge stays.
        app.update(Event::Done("x".repeat(200).into()));
        assert!(
            line_of(&app, width, "PAUSED 0s ago").contains(&"x".repeat(usize::from(width) / 2))
        );
        app.update(Event::Key(KeyEvent::from(KeyCode::Down)));
        assert!(line_of(&app, width, badges).contains("Esc leaves  ? help"));
    }
}

/// The app on `host`, with these settings.
fn app_with(host: &Snapshot, width: u16, settings: Settings) -> App {
    app_of(
        host,
        width,
        24,
        Settings {
            gpu_view: Some(GpuView::Rows),
            ..settings
        },
    )
}

fn app_of(host: &Snapshot, width: u16, height: u16, settings: Settings) -> App {
    let mut app = App::new(AppOptions::default());
    app.apply_settings(settings);
    app.update(Event::Resized(width, height));
    app.update(Event::Line(
        HostKey::FIRST,
        Box::new(Line::Full(Box::new(host.clone()))),
    ));
    app
}

/// The first line on the screen that contains `words`.
fn line_of(app: &App, width: u16, words: &str) -> String {
    let screen = screen(Theme::new(false, ColourDepth::Sixteen), app, width, 24);
    let line = screen
        .lines()
        .find(|it| it.contains(words))
        .unwrap_or_else(|| panic!("no {words}:\n{screen}"));
    line.trim_matches('"').to_owned()
}
