//! The tiles of GPUs.

use super::*;
use crate::app::layout::Area;
use crate::protocol::snapshot::Throttle;
use crate::view::theme::Fill;

#[test]
fn a_tile_shows_memory_use_history_and_who_is_on_the_gpu() {
    let host = host(2)
        .with(7, "python -m torch.distributed.run", 0, Bytes::from_gib(12))
        .with(8, "python train.py --lr 1", 1, Bytes::from_gib(30))
        .with(9, "python train.py --lr 2", 1, Bytes::from_gib(4));
    let app = app_of(&host, 100, 30, Settings::default());
    let screen = screen(Theme::new(false, ColourDepth::Sixteen), &app, 100, 30);
    for words in [
        "╭─ 0 H100 80GB HBM3 alice ─",
        " 50°C 300W ─╮",
        " 50% SM │",
        " 12.0G │",
        " /80.0G │",
        "│ torch.distributed.run ",
        " 34.0G │",
        "│ train.py 2× ",
    ] {
        assert!(screen.contains(words), "{words}\n{screen}");
    }
    assert!(screen.contains("╭─ Processes ─"), "{screen}");
}

#[test]
fn a_narrow_tile_names_its_model_where_the_models_differ() {
    let mut host = host(8).with(7, "python train.py", 0, Bytes::from_gib(12));
    let drawn = |host: &Snapshot| {
        let app = app_of(host, 120, 40, Settings::default());
        screen(Theme::new(false, ColourDepth::Sixteen), &app, 120, 40)
    };
    let one_model = drawn(&host);
    assert!(
        one_model.contains("╭─ 0 alice ─") && one_model.contains("  8× H100 80GB HBM3 "),
        "{one_model}"
    );
    host.gpus[7].facts.name = Ok("NVIDIA L40S".into());
    let several = drawn(&host);
    assert!(
        several.contains("─ 7 L40S ─") && several.contains("─ 0 H100 80GB"),
        "{several}"
    );
}

/// The GPU tiles of a screen without colour, as buffer, and the inner area of each tile.
fn tiles(app: &App, theme: Theme, (width, height): (u16, u16)) -> (Buffer, Vec<Area>) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| draw(frame.buffer_mut(), &theme, app))
        .unwrap();
    let grid = app.layout().unwrap().tiles.unwrap();
    let gpus = app.fleet().hosts().next().unwrap().1.latest().unwrap();
    let areas = (0..gpus.gpus.len()).map(|gpu| grid.tile(gpu).inner());
    (terminal.backend().buffer().clone(), areas.collect())
}

#[test]
fn a_tile_mirrors_use_above_and_memory_below_its_axis() {
    let mut host = host(8).with(7, "python train.py", 0, Bytes::from_gib(80));
    host.gpus[0].load.sm = Ok(Percent::new(100.0));
    host.gpus[1].load.sm = Ok(Percent::new(0.0));
    let app = app_of(&host, 120, 40, Settings::default());
    let theme = Theme::new(false, ColourDepth::Sixteen);
    let (buffer, inside) = tiles(&app, theme, (120, 40));
    // The last column before the figures is the present.
    let column = |gpu: usize| {
        let area = inside[gpu];
        (0..area.height - 1)
            .map(|line| buffer[(area.x + area.width - 9, area.y + line)].clone())
            .collect::<Vec<_>>()
    };
    let symbols = |gpu: usize| {
        let cells = column(gpu);
        cells
            .iter()
            .map(ratatui::buffer::Cell::symbol)
            .collect::<String>()
    };
    // A full GPU fills both rows of use and the row of memory; a known zero is a single dot.
    assert_eq!(symbols(0), "⢸⢸⢸");
    assert_eq!(symbols(1), " ⢀⠈");
    let [use_of_gpu, _, memory] = &column(0)[..] else {
        panic!("{inside:?}")
    };
    assert_eq!(Some(use_of_gpu.fg), theme.fill(Fill::Busy, 1.0).fg);
    let hue = app
        .fleet()
        .host(HostKey::FIRST)
        .and_then(|model| model.user_hue(&"alice".into()));
    assert!(hue.is_some());
    assert_eq!(Some(memory.fg), theme.fill(Fill::User(hue), 1.0).fg);
    // An unknown time is blank.
    let area = inside[0];
    for line in 0..area.height - 1 {
        for x in area.x..area.x + area.width - 9 {
            assert_eq!(buffer[(x, area.y + line)].symbol(), " ");
        }
    }
}

#[test]
fn the_use_view_shows_use_alone_at_the_height_of_the_tile() {
    let mut host = host(8);
    host.gpus[0].load.sm = Ok(Percent::new(100.0));
    let settings = Settings {
        gpu_view: Some(GpuView::Use),
        ..Settings::default()
    };
    let app = app_of(&host, 120, 40, settings);
    let (buffer, inside) = tiles(&app, Theme::new(false, ColourDepth::Sixteen), (120, 40));
    for line in 0..inside[0].height - 1 {
        let cell = &buffer[(inside[0].x + inside[0].width - 9, inside[0].y + line)];
        assert_eq!(cell.symbol(), "⢸");
    }
}

#[test]
fn a_limit_of_power_never_hides_that_a_gpu_is_busy_without_a_process() {
    let mut host = host(8);
    host.gpus[0].load.throttle = Ok(vec![Throttle::PowerCap]);
    let app = app_of(&host, 120, 40, Settings::default());
    let screen = screen(Theme::new(false, ColourDepth::Sixteen), &app, 120, 40);
    let lines: Vec<&str> = screen
        .lines()
        .filter(|line| line.contains("busy, no process seen"))
        .collect();
    assert!(
        lines[0].starts_with("\"│ busy, no process seen "),
        "{screen}"
    );
}

#[test]
fn a_tile_says_how_many_processes_it_has_no_room_for() {
    let mut host = host(8).with(
        9,
        "python prepare_dataset_of_images.py",
        0,
        Bytes::from_gib(4),
    );
    for pid in 1..4 {
        host = host.with(
            pid,
            "python pretrain_a_large_language_model.py",
            0,
            Bytes::from_gib(7),
        );
    }
    let app = app_of(&host, 120, 40, Settings::default());
    let screen = screen(Theme::new(false, ColourDepth::Sixteen), &app, 120, 40);
    assert!(
        screen.contains("╭─ 0 alice ─")
            && screen.contains("│ pretrain_")
            && screen.contains("… 21.0G 3× +1 │"),
        "{screen}"
    );
}

#[test]
fn the_label_of_a_mig_instance_is_not_cut() {
    let mut host = host(2).with(9, "python train.py", 1, Bytes::from_gib(4));
    let uuid = host.gpus[0].uuid.clone();
    let facts = &mut host.gpus[1].facts;
    (facts.parent, facts.index, facts.gpu_instance) = (Some(uuid), 0, Ok(13));
    let app = app_of(&host, 80, 24, Settings::default());
    let screen = screen(Theme::new(false, ColourDepth::Sixteen), &app, 80, 24);
    assert!(
        screen
            .lines()
            .any(|line| line.contains("0:13 ") && line.contains(" train.py")),
        "{screen}"
    );
}

#[test]
fn a_small_graph_fills_from_the_right_and_says_how_fast_memory_grows() {
    let mut host = host(8).with(7, "python train.py", 0, Bytes::from_gib(12));
    let mut app = app_of(&host, 120, 40, Settings::default());
    for _ in 0..300 {
        host = host.later(1);
        host.gpus[0].load.memory_used.as_mut().unwrap().0 += 10 << 20;
        app.update(Event::Line(
            HostKey::FIRST,
            Box::new(Line::Full(Box::new(host.clone()))),
        ));
    }
    let theme = Theme::new(false, ColourDepth::Sixteen);
    let text = screen(theme, &app, 120, 40);
    assert!(text.contains(" +600M/min "), "{text}");
    // All small graphs show 15 minutes, of which five are known.
    let (buffer, inside) = tiles(&app, theme, (120, 40));
    let cells = inside[0].width - 8;
    for area in inside {
        let known = (0..cells)
            .filter(|cell| buffer[(area.x + cell, area.y + 1)].symbol() != " ")
            .collect::<Vec<_>>();
        assert!(known.len().abs_diff(usize::from(cells) / 3) <= 1, "{text}");
        assert_eq!(known.last(), Some(&(cells - 1)), "{text}");
    }
}

#[test]
fn a_gpu_that_computes_without_a_process_is_called_odd() {
    let mut host = host(2);
    host.gpus[1].load.sm = Ok(Percent::new(0.0));
    let app = app_of(&host, 100, 30, Settings::default());
    let screen = screen(Theme::new(false, ColourDepth::Sixteen), &app, 100, 30);
    assert!(
        screen.contains("busy, no process seen") && screen.contains("no process  "),
        "{screen}"
    );
}

#[test]
fn a_tile_says_what_is_wrong_with_its_gpu_and_keeps_the_last_figure() {
    let mut host = host(2);
    let sentence =
        "GPU 1 fell off the bus; `dmesg | grep -i xid` may say why, and the host may need a reboot";
    host.gpus[1].trouble = Some(Trouble {
        cause: Cause::Lost,
        sentence: sentence.into(),
        call: None,
        since: host.at,
    });
    (host.gpus[1].load.temperature, host.gpus[1].load.power) =
        (Err(Missing::Failed), Err(Missing::Failed));
    let text = |width| {
        let app = app_of(&host, width, 30, Settings::default());
        screen(Theme::new(false, ColourDepth::Sixteen), &app, width, 30)
    };
    let wide = text(160);
    let title = wide
        .lines()
        .find_map(|line| line.split("─ 1 ").nth(1))
        .unwrap_or_else(|| panic!("{wide}"));
    assert!(
        !title.contains('°') && !title.contains("ERR"),
        "{title}\n{wide}"
    );
    assert!(
        wide.contains("may say why, and the host may") && wide.contains("│ need a reboot "),
        "{wide}"
    );
    // A tile without room for the sentence has a few words, and the sentence is below the list.
    let narrow = text(80);
    assert!(
        narrow.contains(sentence) || narrow.contains("GPU 1 fell off the bus; `dmesg"),
        "{narrow}"
    );
}

#[test]
fn a_tile_without_a_listed_process_says_whether_memory_is_unaccounted_or_processes_are_not_known() {
    let mut host = host(2);
    host.gpus[0].load.memory_used = Ok(Bytes::from_gib(9));
    host.gpus[1].trouble = Some(Trouble {
        cause: Cause::Failed,
        sentence: "the processes of GPU 1 cannot be listed".into(),
        call: None,
        since: host.at,
    });
    let app = app_of(&host, 100, 30, Settings::default());
    let screen = screen(Theme::new(false, ColourDepth::Sixteen), &app, 100, 30);
    assert!(
        screen.contains("│ 9.0G unaccounted busy, no process seen ")
            && screen.contains("processes not known"),
        "{screen}"
    );
    assert!(!screen.contains("no process  "), "{screen}");
}

#[test]
fn the_arrows_move_among_tiles_as_they_point() {
    let mut app = app_of(&host(7), 120, 40, Settings::default());
    let mut gpu_after = |code| {
        app.update(Event::Key(KeyEvent::from(code)));
        let screen = screen(Theme::new(false, ColourDepth::Sixteen), &app, 120, 40);
        (app.gpus.cursor, screen)
    };
    let keys = [
        (KeyCode::Tab, 0),
        (KeyCode::Right, 1),
        (KeyCode::Down, 5),
        (KeyCode::Left, 4),
        (KeyCode::Up, 0),
        (KeyCode::Up, 0),
        (KeyCode::Left, 0),
        (KeyCode::Char('l'), 1),
        (KeyCode::Char('l'), 2),
        (KeyCode::Right, 3),
        // There is no tile below: the last one is the nearest.
        (KeyCode::Down, 6),
        (KeyCode::Down, 6),
        (KeyCode::Char('k'), 2),
    ];
    for (key, expected) in keys {
        let (gpu, screen) = gpu_after(key);
        assert_eq!(gpu, expected, "after {key:?}\n{screen}");
    }
}

#[test]
fn a_tile_draws_unaccounted_memory_in_its_colour_and_a_constant_history_at_its_height() {
    let mut host = host(8);
    host.gpus[0].load.memory_used = Ok(Bytes::from_gib(40));
    let host = host.with(7, "program", 1, Bytes::from_gib(60));
    let app = app_of(&host, 120, 40, Settings::default());
    let theme = Theme::new(false, ColourDepth::Sixteen);
    let text = screen(theme, &app, 120, 40);
    assert!(text.contains("│ 40.0G unaccounted "), "{text}");
    let (buffer, inside) = tiles(&app, theme, (120, 40));
    let hue = app
        .fleet()
        .host(HostKey::FIRST)
        .and_then(|model| model.user_hue(&"alice".into()));
    // Half of all memory fills half of the row below the axis, and three quarters three quarters.
    for (gpu, fill, glyph) in [(0, Fill::Other, "⠘"), (1, Fill::User(hue), "⠸")] {
        let x = inside[gpu].x + inside[gpu].width - 9;
        let cell = &buffer[(x, inside[gpu].y + 2)];
        assert_eq!(cell.symbol(), glyph, "{text}");
        assert_eq!(Some(cell.fg), theme.fill(fill, 1.0).fg, "{text}");
    }
}
