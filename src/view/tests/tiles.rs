//! The tiles of GPUs.

use super::*;
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
        "╭─ 0 H100 80GB HBM3 ─",
        " 50°C 300W ─╮",
        "12.0/80.0G",
        "alice 12.0G torch.distributed.run",
        "34.0G 2× train.py",
    ] {
        assert!(screen.contains(words), "{words}\n{screen}");
    }
    assert!(screen.contains("╭─ Processes ─"), "{screen}");
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
        screen.contains("alice 21.0G 3× pre") && screen.contains("… +1 │"),
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
fn a_tile_names_the_period_of_its_history_and_says_how_much_memory_grew() {
    let mut host = host(8).with(7, "python train.py", 0, Bytes::from_gib(12));
    let mut app = app_of(&host, 120, 40, Settings::default());
    for _ in 0..70 {
        host = host.later(1);
        host.gpus[0].load.memory_used.as_mut().unwrap().0 += 10 << 20;
        app.update(Event::Line(
            HostKey::FIRST,
            Box::new(Line::Full(Box::new(host.clone()))),
        ));
    }
    let screen = screen(Theme::new(false, ColourDepth::Sixteen), &app, 120, 40);
    let line = screen
        .lines()
        .find(|line| line.contains("+600M/1m"))
        .unwrap_or_else(|| panic!("{screen}"));
    // The height is that of 12 of 80 GiB, also on the tiles whose memory does not change.
    assert!(
        line.contains("▂▂▂") && !line.contains('█') && screen.contains("last 1m"),
        "{screen}"
    );
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
        screen.contains("9.0G unaccounted") && screen.contains("processes not known"),
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
    let mut terminal = Terminal::new(TestBackend::new(120, 40)).unwrap();
    terminal
        .draw(|frame| draw(frame.buffer_mut(), &theme, &app))
        .unwrap();
    let (buffer, grid) = (
        terminal.backend().buffer(),
        app.layout().unwrap().tiles.unwrap(),
    );
    for (gpu, fill, line, height) in [(0, Fill::Other, 3, "█"), (1, Fill::Allocated, 2, "▃")] {
        let inside = grid.tile(gpu).inner();
        let bar = &buffer[(inside.x + 4, inside.y)];
        assert_eq!(
            Some(bar.fg),
            theme.fill(fill, 0.0).fg,
            "{}",
            terminal.backend()
        );
        let columns = inside.x..inside.x + inside.width;
        let latest = columns
            .rev()
            .map(|x| &buffer[(x, inside.y + line)])
            .find(|cell| cell.symbol() == height);
        let latest = latest.unwrap_or_else(|| panic!("{}", terminal.backend()));
        assert_eq!(
            Some(latest.fg),
            theme.fill(fill, 0.0).fg,
            "{}",
            terminal.backend()
        );
    }
}
