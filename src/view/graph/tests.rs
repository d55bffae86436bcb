//! Graphs as text.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::app::AppOptions;
use crate::app::event::Event;
use crate::app::graph::panel::Projection;
use crate::base::terminal::ColourDepth;
use crate::model::{Forecast, Rate, Window};
use crate::protocol::host_key::HostKey;
use crate::protocol::line::Line;
use crate::protocol::snapshot::example::{allocator_stats, host};
use crate::protocol::snapshot::{AllocatorStats, AllocatorUnreadable, Snapshot, Xid};
use crate::view::theme::Fill;

const SIZE: (u16, u16) = (120, 40);

/// The app with a GPU and three processes, after five minutes in which the first grew by 50 MiB per
/// second, and after `keys`.
fn app(keys: &str) -> App {
    let mut app = App::new(AppOptions::default());
    app.update(Event::Resized(SIZE.0, SIZE.1));
    let mut host = [(100, 30), (200, 12), (300, 6)]
        .into_iter()
        .fold(host(1), |host, (pid, gib)| {
            host.with(pid, "python train.py", 0, Bytes::from_gib(gib))
        });
    let see = |app: &mut App, host: &Snapshot| {
        app.update(Event::Line(
            HostKey::FIRST,
            Box::new(Line::Full(Box::new(host.clone()))),
        ));
    };
    for _ in 0..300 {
        host = host.later(1);
        let grown = 50 << 20;
        host.gpus[0].processes[0].memory.as_mut().unwrap().0 += grown;
        host.gpus[0].load.memory_used.as_mut().unwrap().0 += grown;
        see(&mut app, &host);
    }
    host = host.later(1).without(300);
    see(&mut app, &host);
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            '←' => KeyCode::Left,
            letter => KeyCode::Char(letter),
        };
        app.update(Event::Key(KeyEvent::from(code)));
    }
    app
}

fn screen(theme: Theme, app: &App) -> String {
    let mut terminal = Terminal::new(TestBackend::new(SIZE.0, SIZE.1)).unwrap();
    terminal
        .draw(|frame| crate::view::draw(frame.buffer_mut(), &theme, app))
        .unwrap();
    terminal.backend().to_string()
}

/// The only line of a screen with a text.
#[track_caller]
fn line(screen: &str, text: &str) -> String {
    let mut lines = screen.lines().filter(|line| line.contains(text));
    let line = lines.next();
    let line = line.unwrap_or_else(|| panic!("no `{text}` in\n{screen}"));
    assert_eq!(lines.next(), None, "{screen}");
    line.to_owned()
}

#[track_caller]
fn shows(screen: &str, parts: &[&str]) {
    for part in parts {
        assert!(screen.contains(part), "no `{part}` in\n{screen}");
    }
}

#[test]
fn a_process_has_round_amounts_and_times_its_peak_and_its_first_memory() {
    let screen = screen(Theme::new(false, ColourDepth::Sixteen), &app("g"));
    shows(
        &screen,
        &[
            "100 train.py memory  now 44.6 GiB",
            "peak 44.6 GiB",
            "at first 30.0 GiB",
            " full 22:24 (22:23–22:25) ",
            " full 22:24╌",
        ],
    );
    shows(
        &screen,
        &[
            "  0 GiB",
            " 20 GiB",
            " 60 GiB",
            "capacity 80.0 GiB",
            " -15m ",
            " 22:15 ",
            " now ",
            " 22:20 ",
            " +15m",
        ],
    );
    // 40 % of a third of the graph.
    shows(&line(&screen, "  SM  40%"), &["  SM  40%      ", "███"]);
    shows(&line(&screen, "      use "), &["███"]);
}

#[test]
fn a_gpu_shows_its_processes_on_each_other_with_and_without_colour() {
    let app = app("\tg");
    for theme in [
        Theme::new(false, ColourDepth::Sixteen),
        Theme::new(false, ColourDepth::None),
    ] {
        let screen = screen(theme, &app);
        shows(&screen, &["capacity", "  0 GiB"]);
        // Layers of one user have different glyphs where they have the same colour, or none.
        shows(
            &line(&screen, "44.6 GiB"),
            &["█ alice 100 train.py  ", "  44.6 GiB"],
        );
        shows(
            &line(&screen, "12.0 GiB"),
            &["▒ alice 200 train.py  ", "  12.0 GiB"],
        );
        assert!(
            line(&screen, "12.0 GiB").contains("▒▒▒"),
            "the layer beside its name\n{screen}"
        );
    }
    let poor = screen(Theme::new(true, ColourDepth::None), &app);
    shows(&poor, &["alice 100 train.py", "44.6 GiB", "capacity"]);
    assert!(poor.is_ascii(), "{poor}");
    // With a palette, a user's processes have shades.
    let theme = Theme::new(false, ColourDepth::Rgb);
    shows(
        &screen(theme, &app),
        &["█ alice 100 train.py", "█ alice 200 train.py"],
    );
    let hue = app
        .fleet()
        .host(HostKey::FIRST)
        .and_then(|model| model.user_hue(&"alice".into()));
    assert!(hue.is_some());
    let colour = |shade| theme.fill(Fill::Process(hue, shade), 1.0).fg;
    assert_eq!(colour(0), theme.fill(Fill::User(hue), 1.0).fg);
    assert_ne!(colour(0), colour(1));
}

/// A process of 40 GiB, of which PyTorch reserved 36. Tensors hold 10 GiB, and 50 MiB more each
/// second. The parts are not known in the first minute, and in half a minute later on.
fn with_parts(keys: &[KeyCode], size: (u16, u16)) -> App {
    let mut app = App::new(AppOptions::default());
    app.update(Event::Resized(size.0, size.1));
    let mut host = host(1).with(100, "python train.py", 0, Bytes::from_gib(40));
    for second in 0..300 {
        host = host.later(1);
        let (reserved, allocated) = (Bytes::from_gib(36), Bytes::from_mib(10_240 + 50 * second));
        let peek = allocator_stats(Some(host.gpus[0].uuid.clone()), reserved, allocated);
        let is_known = second >= 60 && !(150..180).contains(&second);
        host.processes[0].allocator = Some(Box::new(if is_known {
            peek
        } else {
            AllocatorStats::unreadable(AllocatorUnreadable::NotYet)
        }));
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

#[test]
fn a_process_shows_its_parts_on_each_other_where_they_are_known() {
    let graph = KeyCode::Char('g');
    let app = with_parts(&[graph], SIZE);
    let colours = screen(Theme::new(false, ColourDepth::Sixteen), &app);
    // Tensors held 10.0 GiB at first. The rest of the 36 GiB that PyTorch reserved is unallocated.
    shows(
        &colours,
        &[
            "█ allocated",
            "24.6 GiB",
            "█ unallocated",
            "11.4 GiB",
            "█ other",
            "4.0 GiB",
        ],
    );
    shows(
        &screen(Theme::new(true, ColourDepth::None), &app),
        &["# allocated", "% unallocated", ": other"],
    );
    // Where the parts are not known, only the whole is drawn, and no part is shown as 0.
    let zoom = KeyCode::Char('[');
    let near = with_parts(&[graph, zoom, zoom], SIZE);
    let near = screen(Theme::new(false, ColourDepth::Sixteen), &near);
    let has_unknown_parts = |row: &str| row.contains("█░░░░") || row.contains("░░░░█");
    assert!(near.lines().any(has_unknown_parts), "{near}");
    // Without room for a legend, the figures under the cursor have the names.
    let narrow = with_parts(&[graph, KeyCode::Left], (75, 40));
    let mut terminal = Terminal::new(TestBackend::new(75, 40)).unwrap();
    terminal
        .draw(|frame| {
            crate::view::draw(
                frame.buffer_mut(),
                &Theme::new(false, ColourDepth::Sixteen),
                &narrow,
            );
        })
        .unwrap();
    shows(&terminal.backend().to_string(), &["allocated 23.9 GiB"]);
}

#[test]
fn unaccounted_memory_has_the_same_name_in_graph_and_list() {
    let mut app = App::new(AppOptions::default());
    app.update(Event::Resized(SIZE.0, SIZE.1));
    let mut host = host(1).with(100, "python train.py", 0, Bytes::from_gib(30));
    host.gpus[0].load.memory_used.as_mut().unwrap().0 += 9 << 30;
    app.update(Event::Line(
        HostKey::FIRST,
        Box::new(Line::Full(Box::new(host))),
    ));
    for key in [KeyCode::Tab, KeyCode::Char('g')] {
        app.update(Event::Key(KeyEvent::from(key)));
    }
    let screen = screen(Theme::new(false, ColourDepth::Sixteen), &app);
    shows(&line(&screen, " 9.0 GiB"), &["█ unaccounted  "]);
}

#[test]
fn a_scale_that_does_not_begin_at_zero_says_so() {
    let theme = Theme::new(false, ColourDepth::Sixteen);
    for keys in ["g", "\tg"] {
        shows(
            &screen(theme, &app(keys)),
            &["  0 GiB", "╌ capacity 80.0 GiB ╌"],
        );
        shows(
            &screen(theme, &app(&format!("{keys}z"))),
            &["zoomed: ", " GiB≈", "capacity 80.0 GiB ↑"],
        );
    }
    // A zoomed graph shows the changes of every part.
    shows(
        &screen(
            theme,
            &with_parts(&[KeyCode::Char('g'), KeyCode::Char('z')], SIZE),
        ),
        &["zoomed: 1", "allocated"],
    );
}

#[test]
fn a_level_is_named_where_its_line_is_seen_or_not_at_all() {
    let shown = screen(Theme::new(false, ColourDepth::Sixteen), &app("g"));
    shows(&shown, &["╌ peak 44.6 GiB ╌"]);
    let is_area = |it: Option<char>| it.is_some_and(|it| ('▁'..='▓').contains(&it));
    for keys in ["g", "g[", "g[[", "\tg", "\tg[["] {
        let shown = screen(Theme::new(false, ColourDepth::Sixteen), &app(keys));
        for line in shown.lines().skip(2).take(24) {
            for part in ["eak", "ity", "pea", "cap"] {
                let cut = line.split_once(part).is_some_and(|(before, after)| {
                    is_area(before.chars().next_back()) || is_area(after.chars().next())
                });
                assert!(!cut, "{line}\n{shown}");
            }
        }
    }
}

#[test]
fn ended_processes_are_listed_and_marked_on_the_axis() {
    let screen = screen(Theme::new(false, ColourDepth::Sixteen), &app("\tg"));
    shows(
        &screen,
        &[
            "▼ 300 train.py ended, held 6.0 GiB",
            "22:18:21      -0s ▼ 300 train.py",
        ],
    );
}

#[test]
fn a_living_process_without_memory_has_not_ended() {
    let mut app = app("\tg");
    let host = app
        .fleet()
        .host(HostKey::FIRST)
        .unwrap()
        .latest()
        .unwrap()
        .later(1);
    let mut idle = host.clone().without(200);
    idle.processes = host.processes;
    app.update(Event::Line(
        HostKey::FIRST,
        Box::new(Line::Full(Box::new(idle))),
    ));
    shows(
        &screen(Theme::new(false, ColourDepth::Sixteen), &app),
        &["200 train.py let go of 12.0 GiB"],
    );
}

#[test]
fn words_on_the_axis_cover_no_letter_of_an_earlier_event() {
    let mut app = app("\tg");
    let mut host = app
        .fleet()
        .host(HostKey::FIRST)
        .unwrap()
        .latest()
        .unwrap()
        .later(1);
    host.gpus[0].health.xids.push(Xid {
        at: host.at,
        code: 79,
    });
    for host in [host.clone(), host.later(12).without(200)] {
        app.update(Event::Line(
            HostKey::FIRST,
            Box::new(Line::Full(Box::new(host))),
        ));
    }
    let screen = screen(Theme::new(false, ColourDepth::Sixteen), &app);
    assert!(
        screen
            .lines()
            .any(|line| line.contains('!') && line.contains('▼')),
        "{screen}"
    );
}

#[test]
fn marks_are_drawn_in_the_graph_and_listed_with_the_change_of_memory() {
    let screen = screen(
        Theme::new(false, ColourDepth::Sixteen),
        &app("gm'epoch 3\nm'after eval\n"),
    );
    let in_list = |name: &str| {
        screen
            .lines()
            .rfind(|it| it.contains(name))
            .unwrap()
            .to_owned()
    };
    shows(&in_list("epoch 3"), &["22:18:21", "-0s", "44.6 GiB"]);
    shows(&in_list("after eval"), &["44.6 GiB", "+0"]);
    // Both names are in the graph too, beside the line of both, and the latest is in the head.
    assert!(
        screen.matches("epoch 3").count() == 2 && screen.matches("after eval").count() == 3,
        "{screen}"
    );
    shows(&screen, &["┊"]);
}

#[test]
fn power_and_temperature_are_rows_below_the_graph_on_request() {
    let theme = Theme::new(false, ColourDepth::Sixteen);
    for keys in ["gv", "\tgv"] {
        let screen = screen(theme, &app(keys));
        shows(&screen, &["   SM  ", "0% "]);
        for (figure, row) in [("     300 W ", "▄▄▄"), ("      50°C ", "███")] {
            assert!(
                screen
                    .lines()
                    .any(|line| line.contains(figure) && line.contains(row)),
                "{screen}"
            );
        }
    }
    let without = screen(theme, &app("gvv"));
    assert!(
        !without.contains("300 W") && !without.contains("SM  ") && !without.contains(" use "),
        "{without}"
    );
}

#[test]
fn the_cursor_shows_the_figures_of_its_moment() {
    let screen = screen(
        Theme::new(false, ColourDepth::Sixteen),
        &app("\tg←←←←←←←←←←"),
    );
    shows(
        &screen,
        &[
            "at -",
            "SM 50%",
            "300 W",
            "50°C",
            "at -2m30s",
            "graph 2m30s ago",
        ],
    );
    shows(&line(&screen, "37.4 GiB"), &["alice 100 train.py"]);
    shows(&line(&screen, "12.0 GiB"), &["alice 200 train.py"]);
}

#[test]
fn growth_is_drawn_ahead_until_memory_is_full() {
    let app = app("g");
    let mut panel = app.panels().remove(0);
    let minutes = Duration::from_mins;
    let full = Forecast {
        low: minutes(2),
        likely: minutes(3),
        high: minutes(5),
    };
    panel.projection = Some(Projection {
        rate: Rate(5e7),
        now: Bytes::from_gib(44),
        from: Bytes::from_gib(44),
        limit: panel.capacity,
        full: Some(full),
    });
    panel.past = panel.plot.width * 3 / 4;
    panel.window = Window::until(
        app.fleet().host(HostKey::FIRST).unwrap().now(),
        minutes(5),
        usize::from(panel.past),
    );
    let theme = Theme::new(false, ColourDepth::Sixteen);
    let mut terminal = Terminal::new(TestBackend::new(SIZE.0, SIZE.1)).unwrap();
    terminal
        .draw(|frame| draw_one(frame.buffer_mut(), theme, &app, &panel))
        .unwrap();
    let screen = terminal.backend().to_string();
    shows(
        &screen,
        &[
            " full 22:21 (22:20–22:23) ",
            " full 22:21 →",
            "+5m10s",
            "now",
        ],
    );
    let beyond = usize::from(panel.plot.x + panel.past);
    let drawn = screen.lines().skip(1).take(usize::from(panel.plot.height));
    let dots = drawn
        .flat_map(|it| it.chars().skip(beyond + 1))
        .filter(|it| ('\u{2801}'..='\u{28ff}').contains(it));
    assert!(dots.count() > 5, "{screen}");
}

#[test]
fn a_forecast_that_ends_below_the_capacity_names_the_memory_of_others() {
    let app = app("g");
    let mut panel = app.panels().remove(0);
    let minutes = Duration::from_mins;
    let full = Forecast {
        low: minutes(2),
        likely: minutes(3),
        high: minutes(5),
    };
    panel.past = panel.plot.width * 3 / 4;
    panel.window = Window::until(
        app.fleet().host(HostKey::FIRST).unwrap().now(),
        minutes(15),
        usize::from(panel.past),
    );
    // Each limit is in another part of a row.
    for limit in (60..64).map(Bytes::from_gib) {
        panel.projection = Some(Projection {
            rate: Rate(5e7),
            now: Bytes::from_gib(44),
            from: Bytes::from_gib(44),
            limit: Some(limit),
            full: Some(full),
        });
        let theme = Theme::new(false, ColourDepth::Sixteen);
        let mut terminal = Terminal::new(TestBackend::new(SIZE.0, SIZE.1)).unwrap();
        terminal
            .draw(|frame| draw_one(frame.buffer_mut(), theme, &app, &panel))
            .unwrap();
        let screen = terminal.backend().to_string();
        let others = Bytes::from_gib(80).saturating_sub(limit);
        shows(
            &screen,
            &[&format!(" others hold {others} "), "capacity 80.0 GiB"],
        );
        let is_dots = |symbol: &str| {
            symbol
                .chars()
                .any(|letter| ('\u{2801}'..='\u{28ff}').contains(&letter))
        };
        let buffer = terminal.backend().buffer();
        let first = (0..SIZE.1).find(|y| (0..SIZE.0).any(|x| is_dots(buffer[(x, *y)].symbol())));
        let row = panel.plot.y + panel.plot.height - 1 - row_of(&panel, limit);
        assert_eq!(first, Some(row), "{limit}:\n{screen}");
    }
}

#[test]
fn a_steep_projection_has_no_gaps() {
    let app = app("g");
    let mut panel = app.panels().remove(0);
    let seconds = Duration::from_secs;
    let full = Forecast {
        low: seconds(9),
        likely: seconds(10),
        high: seconds(11),
    };
    panel.projection = Some(Projection {
        rate: Rate(5e9),
        now: Bytes::from_gib(30),
        from: Bytes::from_gib(30),
        limit: panel.capacity,
        full: Some(full),
    });
    panel.past = panel.plot.width * 3 / 4;
    panel.window = Window::until(
        app.fleet().host(HostKey::FIRST).unwrap().now(),
        Duration::from_hours(1),
        usize::from(panel.past),
    );
    panel.capacity = None;
    let theme = Theme::new(false, ColourDepth::Sixteen);
    let mut terminal = Terminal::new(TestBackend::new(SIZE.0, SIZE.1)).unwrap();
    terminal
        .draw(|frame| forecast::draw(frame.buffer_mut(), theme, &panel, None, Moment(0)))
        .unwrap();
    // The projection reaches its limit in the first column, which joins the limit to the memory
    // now.
    let row_at = |gib| panel.plot.y + panel.plot.height - 1 - row_of(&panel, Bytes::from_gib(gib));
    let buffer = terminal.backend().buffer();
    let rows: Vec<u16> = (0..SIZE.1)
        .filter(|y| buffer[(panel.plot.x + panel.past, *y)].symbol() != " ")
        .collect();
    assert_eq!(
        (rows.first(), rows.last()),
        (Some(&panel.plot.y), Some(&row_at(30))),
        "{}",
        terminal.backend()
    );
    assert!(rows.windows(2).all(|two| two[0] + 1 == two[1]), "{rows:?}");
}

/// The row of an amount, from the bottom.
fn row_of(panel: &Panel, amount: Bytes) -> u16 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and the rows there are"
    )]
    let row = (panel.scale.height(amount) * f64::from(panel.plot.height)) as u16;
    row
}
