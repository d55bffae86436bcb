//! Screens of all sizes, the lists, the graph, the mouse and colours.

use std::process::Command;

use fake_nvml::Fault;

use crate::host::{GIB, Host};
use crate::terminal::{
    DOWN, ENTER, ESC, F9, TAB, Terminal, count_frames, lines_in_frames, number_after,
};

/// A host with eight GPUs and ten sleeping processes.
fn host_with_ten_processes() -> Host {
    let mut host = Host::with_jitter(["H100"; 8]);
    for gpu in 0..10 {
        host.start_sleep(gpu % 8, (gpu as u64 + 1) * GIB);
    }
    host
}

/// The number of lines that contain this text.
fn lines_with(screen: &vt100::Screen, text: &str) -> usize {
    screen
        .contents()
        .lines()
        .filter(|line| line.contains(text))
        .count()
}

#[test]
fn eighty_columns_by_twenty_four_show_eight_gpus_and_ten_processes() {
    let host = host_with_ten_processes();
    let mut terminal = Terminal::start(&host, []);
    terminal.wait_until("eight GPUs, ten processes", |screen| {
        lines_with(screen, "/79.6G") == 8 && lines_with(screen, "sleep 1000") == 10
    });
    terminal.quit();
}

#[test]
fn larger_screens_show_a_graph_too() {
    let host = host_with_ten_processes();
    for (width, height) in [(120, 40), (200, 60)] {
        let mut terminal = Terminal::start_at(&host, width, height, []);
        terminal.wait_until("all GPUs, all processes and a graph", |screen| {
            let is_full = screen
                .contents()
                .lines()
                .any(|line| line.chars().count() > usize::from(width) - 10);
            lines_with(screen, "H100") >= 8 && lines_with(screen, "sleep 1000") >= 10 && is_full
        });
        terminal.wait_for("GiB");
        terminal.quit();
    }
}

#[test]
fn gpus_are_tiles_where_there_is_room_and_rows_where_there_is_none() {
    let host = host_with_ten_processes();
    for (width, height, tiles) in [(120, 40, 8), (80, 24, 0)] {
        let mut terminal = Terminal::start_at(&host, width, height, ["--gpu-view", "auto"]);
        terminal.wait_until("the GPUs, and who is on them", |screen| {
            let text = screen.contents();
            let is_tile = |number: &usize| text.contains(&format!("╭─ {number} root ─"));
            lines_with(screen, " root ") >= 10 && (0..8).filter(is_tile).count() == tiles
        });
        terminal.quit();
    }
}

#[test]
fn sixteen_gpus_are_on_a_screen_of_eighty_by_twenty_four() {
    let host = Host::with_jitter(["H100"; 16]);
    let mut terminal = Terminal::start_at(&host, 80, 24, []);
    terminal.wait_until("all GPUs", |screen| {
        let is_shown = |gpu: usize| {
            lines_in_frames(&screen.contents())
                .any(|line| line.trim_start().starts_with(&format!("{gpu} H100")))
        };
        (0..16).all(is_shown)
    });
    assert!(!terminal.text().contains("Tab: "), "{}", terminal.text());
    terminal.quit();
}

#[test]
fn more_gpus_than_fit_can_be_scrolled_to() {
    let host = Host::with_jitter(["H100"; 32]);
    let mut terminal = Terminal::start_at(&host, 80, 24, []);
    terminal.wait_for("Tab: ");
    terminal.keys(TAB);
    terminal.keys(&DOWN.repeat(31));
    terminal.wait_until("GPU 31", |screen| {
        lines_in_frames(&screen.contents()).any(|line| line.starts_with("31 "))
    });
    terminal.quit();
}

#[test]
fn every_size_from_one_by_one_is_drawn() {
    let host = host_with_ten_processes();
    let mut terminal = Terminal::start(&host, []);
    terminal.wait_for("H100");
    let sizes = (1..=60)
        .step_by(3)
        .flat_map(|width| (1..=20).step_by(3).map(move |height| (width, height)));
    for (width, height) in sizes {
        terminal.resize(width, height);
    }
    terminal.resize(100, 30);
    terminal.wait_for("H100");
    // Help, page and end dialog are drawn in every size too.
    for (keys, sign) in [
        ("?", "In the lists"),
        (ENTER, "identity"),
        (F9, "End process"),
    ] {
        terminal.keys(keys);
        for (width, height) in [
            (1, 1),
            (39, 9),
            (40, 10),
            (41, 11),
            (60, 20),
            (9, 60),
            (60, 3),
        ] {
            terminal.resize(width, height);
        }
        terminal.resize(100, 30);
        terminal.wait_for(sign);
        terminal.wait_until("a whole screen", |screen| {
            screen.contents().starts_with("gputop")
        });
        terminal.keys(ESC);
        terminal.wait_until_gone(sign);
    }
    terminal.keys("q");
    terminal.wait_for_exit();
    terminal.wait_for_main_screen();
}

#[test]
fn a_screen_that_is_too_small_says_so_in_one_line() {
    let host = host_with_ten_processes();
    let mut terminal = Terminal::start_at(&host, 39, 9, []);
    terminal.wait_for("39x9 is too small: 40x10 will do");
    assert_eq!(terminal.text().trim_end().lines().count(), 1);
    terminal.quit();
}

#[test]
fn when_the_process_list_fails_the_screen_does_not_claim_that_it_is_empty() {
    let mut host = Host::with_jitter(["H100"]);
    let list = "nvmlDeviceGetComputeRunningProcesses_v3";
    host.change(|world| world.faults.push(Fault::error(list, "UNKNOWN")));
    let mut terminal = Terminal::start_at(&host, 120, 30, ["--interval", "100ms"]);
    terminal.wait_for("processes on GPU 0 are not known: the driver failed to list them");
    terminal.wait_for(list);
    host.change(|world| world.faults.clear());
    terminal.wait_for("no process uses a GPU");
    terminal.quit();
}

#[test]
fn the_filter_applies_while_it_is_typed() {
    let mut host = Host::with_jitter(["H100"]);
    host.start_sleep(0, GIB);
    host.start(0, GIB, Command::new("sleep").arg("2000"));
    let mut terminal = Terminal::start(&host, []);
    terminal.wait_for("sleep 1000");
    terminal.wait_for("sleep 2000");
    terminal.keys("/2000");
    terminal.wait_until_gone("sleep 1000");
    terminal.wait_for("sleep 2000");
    terminal.keys("x");
    terminal.wait_for("no process matches");
    terminal.keys(ESC);
    terminal.wait_for("sleep 1000");
    terminal.quit();
}

#[test]
fn the_sort_order_reverses_and_the_cursor_follows_its_process() {
    let mut host = Host::with_jitter(["H100"]);
    let (small, large) = (host.start_sleep(0, GIB), host.start_sleep(0, 8 * GIB));
    let mut terminal = Terminal::start(&host, []);
    let order = |screen: &vt100::Screen| {
        let text = screen.contents();
        let line_of = |pid: u32| {
            text.lines()
                .position(|line| line.contains(&format!(" {pid} ")) && line.contains("sleep"))
        };
        Some((line_of(large)?, line_of(small)?))
    };
    terminal.wait_until("the larger first", |screen| {
        order(screen).is_some_and(|(large, small)| large < small)
    });
    let is_marked = |screen: &vt100::Screen, row: usize| {
        let row = row.try_into().expect("a row");
        screen
            .cell(row, 10)
            .is_some_and(|cell| cell.bgcolor() != vt100::Color::Default)
    };
    terminal.keys(DOWN);
    terminal.wait_until("the cursor on the second", |screen| {
        order(screen).is_some_and(|(_, small)| is_marked(screen, small))
    });
    terminal.keys("I");
    terminal.wait_until("the smaller first, under the cursor", |screen| {
        order(screen).is_some_and(|(large, small)| small < large && is_marked(screen, small))
    });
    terminal.quit();
}

#[test]
fn keys_open_the_page_the_graph_and_the_help() {
    let mut host = Host::with_jitter(["H100"]);
    host.start(
        0,
        GIB,
        Command::new("sleep")
            .arg("1000")
            .env_clear()
            .env("CUDA_VISIBLE_DEVICES", "7"),
    );
    let mut terminal = Terminal::start_at(&host, 100, 40, []);
    terminal.wait_for("sleep 1000");
    terminal.keys("?");
    terminal.wait_for("end process");
    terminal.wait_for("In the lists");
    terminal.keys(ESC);
    terminal.wait_until_gone("In the lists");
    terminal.keys("g");
    terminal.wait_for("SINCE LAST");
    terminal.keys("g");
    terminal.wait_for("sleep 1000");
    terminal.keys(ENTER);
    terminal.wait_for("identity");
    terminal.wait_for(" sleep memory  now");
    // The answer of the agent makes the page longer than the screen.
    terminal.wait_for("1-24 of ");
    terminal.keys("G");
    terminal.wait_for("limits");
    terminal.wait_for("CUDA_VISIBLE_DEVICES=7");
    terminal.keys(ESC);
    terminal.wait_until_gone("CUDA_VISIBLE");
    terminal.keys(&format!("{TAB}i"));
    terminal.wait_for("Where it is");
    terminal.keys(DOWN);
    terminal.wait_for("slows down at");
    terminal.keys(ESC);
    terminal.wait_for("sleep 1000");
    terminal.quit();
}

/// A host with a process whose memory grows by 64 MiB per second.
fn host_with_growing_process() -> (Host, u32) {
    let mut host = Host::with_jitter(["H100"]);
    let pid = host.start_sleep(0, 4 * GIB);
    host.change(|world| world.gpus[0].processes[0].growth = 64.0 * 1024.0 * 1024.0);
    (host, pid)
}

#[test]
fn the_graph_is_zoomed_from_a_minute_to_a_week() {
    let (host, pid) = host_with_growing_process();
    let mut terminal = Terminal::start_at(&host, 120, 40, ["--interval", "100ms"]);
    let header = format!("{pid} sleep memory");
    let shows = |span: &'static str| {
        let header = header.clone();
        move |screen: &vt100::Screen| {
            screen.contents().lines().any(|line| {
                line.contains(&header) && line.trim_end_matches([' ', '╮', '─']).ends_with(span)
            })
        }
    };
    // The axis does not depend on the length of the history.
    terminal.wait_until("a quarter of an hour", shows(" 15m"));
    terminal.keys("]");
    terminal.wait_until("half an hour", shows(" 30m"));
    terminal.keys(&"]".repeat(9));
    terminal.wait_until("a week", shows(" 7d"));
    terminal.keys("[");
    terminal.wait_until("two days", shows(" 2d"));
    terminal.keys(&"[".repeat(14));
    terminal.wait_until("a minute", shows(" 1m"));
    terminal.keys("z");
    terminal.wait_until("a scale near the amounts", |screen| {
        screen.contents().contains("zoomed: ")
    });
    terminal.quit();
}

#[test]
fn the_graph_scrolls_into_the_past_and_returns_to_now() {
    let (host, _) = host_with_growing_process();
    let mut terminal = Terminal::start_at(&host, 120, 40, ["--interval", "100ms"]);
    terminal.wait_for("sleep memory  now");
    terminal.wait_for_frames(20);
    terminal.keys("\x1b[D");
    terminal.wait_for("s ago  Esc leaves");
    let is_back = |seconds: u32| {
        move |screen: &vt100::Screen| {
            number_after(&screen.contents(), "at -").is_some_and(|shown| shown >= seconds)
        }
    };
    terminal.wait_until("a second ago", is_back(1));
    // The position stays constant, so its age grows.
    terminal.wait_until("two", is_back(2));
    terminal.keys(ESC);
    terminal.wait_until_gone("Esc leaves");
    terminal.wait_for("sleep memory  now");
    // The axis has clock times.
    terminal.wait_until("a clock time", |screen| {
        let is_time = |word: &str| word.len() == 8 && word.matches(':').count() == 2;
        screen.contents().split_whitespace().any(is_time)
    });
    terminal.quit();
}

#[test]
fn memory_is_compared_between_marks() {
    let (host, _) = host_with_growing_process();
    let mut terminal = Terminal::start_at(&host, 120, 40, ["--interval", "100ms"]);
    terminal.wait_for("sleep memory  now");
    terminal.keys("m");
    terminal.wait_for("sleep: memory ");
    terminal.keys("'epoch 3\r");
    terminal.wait_for("since epoch 3");
    terminal.keys("g");
    terminal.wait_for("SINCE LAST");
    let grown = |name: &str| {
        let name = name.to_owned();
        move |screen: &vt100::Screen| {
            screen
                .contents()
                .lines()
                .filter(|line| line.trim_start_matches('│').starts_with(&name))
                .any(|line| line.contains(" +") && !line.contains(" +0 "))
        }
    };
    terminal.wait_until("growth since the mark", grown("now "));
    // One key shows what the time since the mark cost.
    terminal.keys("m");
    terminal.wait_until("the change", |screen| {
        screen.contents().lines().any(|line| {
            line.contains("mark 2, ") && line.contains(" sleep: memory ") && line.contains("(+")
        })
    });
    terminal.wait_until("both marks", |screen| {
        screen
            .contents()
            .lines()
            .any(|line| line.starts_with("epoch 3"))
            && lines_with(screen, "mark 2") >= 1
    });
    terminal.keys(ESC);
    terminal.wait_for("COMMAND");
    terminal.quit();
}

#[test]
fn the_graph_of_an_ended_process_stays_visible() {
    let (mut host, pid) = host_with_growing_process();
    let mut terminal = Terminal::start_at(&host, 120, 40, ["--interval", "100ms"]);
    terminal.wait_for("sleep memory  now");
    terminal.keys("g");
    terminal.wait_for("SINCE LAST");
    host.process(pid)
        .handle
        .signal(rustix::process::Signal::KILL);
    terminal.wait_for(&format!("{pid} sleep ended, held"));
    terminal.wait_for(&format!("{pid} sleep memory  ended"));
    terminal.keys(ESC);
    terminal.wait_until_gone("SINCE LAST");
    terminal.quit();
}

/// The parameters of the escape sequences that end with this byte.
fn sequences(bytes: &[u8], end: u8) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let parts = text.split("\x1b[").skip(1);
    let ends = parts.filter_map(|part| {
        part.split_at_checked(part.find(|letter: char| letter.is_ascii_alphabetic())?)
    });
    ends.filter(|(_, rest)| rest.as_bytes().first() == Some(&end))
        .map(|(parameters, _)| parameters.to_owned())
        .collect()
}

#[test]
fn no_color_removes_colours_and_keeps_the_cursor_visible() {
    let mut host = host_with_ten_processes();
    host.change(|world| world.gpus[0].lost = true);
    let mut terminal = Terminal::run(host.gputop([]).env("NO_COLOR", "1"), 120, 40);
    terminal.wait_for("sleep 1000");
    terminal.wait_for("lost");
    terminal.keys("?");
    terminal.wait_for("In the lists");
    terminal.keys(ESC);
    terminal.wait_for("sleep 1000");
    terminal.quit();
    let attributes: Vec<String> = sequences(&terminal.bytes(), b'm');
    let numbers = attributes
        .iter()
        .flat_map(|parameters| parameters.split(';'))
        .filter(|number| !number.is_empty());
    let colours: Vec<&str> = numbers
        .filter(|number| {
            number
                .parse::<u8>()
                .is_ok_and(|number| (30..=107).contains(&number))
        })
        .collect();
    assert!(
        colours
            .iter()
            .all(|number| ["39", "49", "59"].contains(number)),
        "not default colours: {colours:?}"
    );
    let has_reverse = attributes
        .iter()
        .any(|parameters| parameters.split(';').any(|number| number == "7"));
    assert!(has_reverse, "nothing is reversed: {attributes:?}");
}

#[test]
fn a_limited_terminal_gets_ascii_only() {
    let host = host_with_ten_processes();
    let mut by_flag = host.gputop(["--ascii"]);
    let mut by_locale = host.gputop([]);
    by_locale.env("LANG", "C");
    let mut by_terminal = host.gputop([]);
    by_terminal.env("TERM", "vt100");
    for command in [&mut by_flag, &mut by_locale, &mut by_terminal] {
        let mut terminal = Terminal::run(command, 120, 40);
        terminal.wait_for("sleep 1000");
        for keys in ["g", "?"] {
            terminal.keys(keys);
        }
        terminal.wait_for("In the lists");
        terminal.keys(ESC);
        terminal.wait_until_gone("In the lists");
        terminal.keys(F9);
        terminal.wait_for("SIGTERM");
        terminal.keys(ESC);
        terminal.wait_until_gone("SIGTERM");
        terminal.keys(ESC);
        terminal.wait_for("COMMAND");
        terminal.quit();
        let raw: Vec<u8> = terminal
            .bytes()
            .into_iter()
            .filter(|byte| !byte.is_ascii())
            .collect();
        assert!(raw.is_empty(), "{}", String::from_utf8_lossy(&raw));
    }
}

#[test]
fn the_mouse_selects_a_process_and_can_be_disabled() {
    let mut host = Host::with_jitter(["H100"]);
    let pids = [
        host.start_sleep(0, 3 * GIB),
        host.start_sleep(0, 2 * GIB),
        host.start_sleep(0, GIB),
    ];
    let mut terminal = Terminal::start(&host, []);
    terminal.wait_for(&pids[2].to_string());
    let row = terminal
        .text()
        .lines()
        .position(|line| line.contains(&format!(" {} ", pids[2])))
        .expect("the process is listed");
    terminal.keys(&format!("\x1b[<0;20;{}M", row + 1));
    terminal.keys(F9);
    terminal.wait_for(&format!("End process {}", pids[2]));
    terminal.keys(ESC);
    terminal.wait_until_gone("End process");
    terminal.quit();

    let mut terminal = Terminal::start(&host, ["--no-mouse"]);
    terminal.wait_for("H100");
    terminal.quit();
    let bytes = terminal.bytes();
    let modes = sequences(&bytes, b'h');
    let is_mouse = |mode: &String| mode.contains("100") && !mode.contains("1049");
    assert!(!modes.iter().any(is_mouse), "{modes:?}");
}

#[test]
fn only_changed_cells_are_written() {
    const FRAMES: usize = 10;
    let mut host = Host::new(["H100"; 8]);
    host.change(|world| world.gpus[0].jitter = true);
    let mut terminal = Terminal::start_at(&host, 200, 60, ["--interval", "100ms"]);
    terminal.wait_for("every 100ms");
    terminal.wait_for_frames(5);
    let before = terminal.bytes().len();
    terminal.wait_for_frames(FRAMES);
    // Only the readings of one GPU and of the host change. A whole screen has 12,000 cells.
    let new_output = &terminal.bytes()[before..];
    let bytes_per_frame = new_output.len() / count_frames(new_output);
    assert!(bytes_per_frame < 400, "{bytes_per_frame} bytes per frame");
    terminal.quit();
}

#[test]
fn the_demo_shows_a_leak_a_forecast_orphans_and_a_job_of_four_ranks() {
    let mut terminal = Terminal::start_at(&Host::new([]), 160, 60, ["--demo"]);
    let lines_with = |screen: &vt100::Screen, words: [&str; 2]| {
        screen
            .contents()
            .lines()
            .filter(|line| words.iter().all(|word| line.contains(word)))
            .count()
    };
    for words in [
        "SIMULATED MACHINE",
        " LEAK ",
        " 2 orphans hold",
        "alice",
        "bob",
        "carol",
        "dave",
    ] {
        terminal.wait_for(words);
    }
    terminal.wait_until("a forecast, and its range", |screen| {
        let text = screen.contents();
        let mut forecasts = text.split(" full ").skip(1);
        // `full 13:41 (13:38–13:45)`
        forecasts.any(|time| time.get(2..3) == Some(":") && time.get(5..7) == Some(" ("))
    });
    terminal.wait_until("four ranks", |screen| {
        lines_with(screen, ["bob", "python -u pretrain.py"]) == 4
    });
    terminal.keys("t");
    terminal.wait_until("eight workers", |screen| {
        lines_with(screen, ["bob", "pt_data_worker"]) == 8
    });
    terminal.quit();
}
