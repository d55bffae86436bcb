//! Single lines of the screen at every width: nothing is cut or hidden.

use unicode_width::UnicodeWidthStr;

use super::*;
use crate::app::input::end_dialog::Member;
use crate::base::time::ViewerTime;
use crate::protocol::host_key::HostKey;
use crate::protocol::snapshot::Xid;

#[test]
fn no_word_above_a_list_is_cut() {
    for width in 60..200 {
        let head = line_of(&app_of_size(&[], width, 24), width, " PID ");
        let words =
            "GPU PID USER MEM▼ MEMORY▼ OF MEM 15m CACHE SM CPU RSS TIME ORIGIN COMMAND more below";
        let is_whole =
            |word: &str| words.split(' ').any(|it| it == word) || word.parse::<u32>().is_ok();
        assert!(head.split_whitespace().all(is_whole), "{width}: {head}");
    }
}

#[test]
fn the_number_of_hidden_gpus_cuts_no_heading() {
    for width in [80, 100, 120, 200] {
        let head = line_of(
            &app_with(&host(32), width, Settings::default()),
            width,
            "MEMORY  ",
        );
        let words: Vec<&str> = head.split_whitespace().collect();
        let end = words.len() - 4;
        assert!(
            words[end] == "WHO" && words[end + 1] == "Tab:" && words[end + 3] == "more",
            "{width}: {head}"
        );
    }
}

#[test]
fn a_long_host_name_cuts_no_warning() {
    let mut host = left_over(1);
    for name in ["box", "ip-10-12-33-121.eu-west-1.compute.internal"] {
        host.host.facts.name = name.into();
        let line = |width| {
            line_of(
                &app_with(&host, width, Settings::default()),
                width,
                "gputop",
            )
        };
        let whole = line(250);
        for width in 42..250 {
            let line = line(width);
            assert!(line.contains("  1 orphan holds 9.0 GiB"), "{width}: {line}");
            let is_whole = |part: &str| {
                part.ends_with('…')
                    || whole.split("  ").any(|it| it.trim() == part)
                    || part == "22:13"
            };
            assert!(
                line.split("  ").map(str::trim).all(is_whole),
                "{width}: {line}"
            );
        }
    }
}

#[test]
fn the_clock_is_shown_beside_any_warning_from_80_columns() {
    let mut host = left_over(1);
    host.host.facts.name = "ip-10-12-33-121.eu-west-1.compute.internal".into();
    host.gpus[0].facts.simulated = true;
    for width in 80..200 {
        let line = line_of(
            &app_with(&host, width, Settings::default()),
            width,
            "gputop",
        );
        assert!(
            line.contains(" SIMULATED ") && line.contains("  1 orphan holds 9.0 GiB"),
            "{width}: {line}"
        );
        assert!(
            line.trim_end()
                .split("  ")
                .last()
                .map(str::trim)
                .is_some_and(|end| end.starts_with("22:13")),
            "{width}: {line}"
        );
    }
}

#[test]
fn the_last_line_names_the_key_that_quits_beside_any_badges() {
    for width in 40..160 {
        for keys in [
            "",
            "u",
            "/a long filter that nobody reads to its end\n",
            "/python\nu p",
        ] {
            let mut app = app_of_size(&[], width, 24);
            for key in keys.chars() {
                let code = if key == '\n' {
                    KeyCode::Enter
                } else {
                    KeyCode::Char(key)
                };
                app.update(Event::Key(KeyEvent::from(code)));
            }
            let line = line_of(&app, width, "q quit");
            let is_left = keys.is_empty() || line.contains("Esc leaves");
            assert!(
                is_left && line.trim_end().width() <= usize::from(width),
                "{width} {keys}: {line}"
            );
            assert!(
                !keys.ends_with('p') || line.contains("PAUSED"),
                "{width}: {line}"
            );
        }
    }
}

#[test]
fn the_last_line_of_80_columns_names_the_keys_of_news_and_picture() {
    let line = line_of(&app(80, 24, &[]), 80, "q quit");
    assert!(
        line.contains("E news  ^S picture  q quit")
            && line.starts_with("? help  / filter  o orphans"),
        "{line}"
    );
}

#[test]
fn without_a_process_the_graph_is_that_of_the_gpu() {
    let idle = app_of(&host(2), 120, 40, Settings::default());
    let drawn = screen(Theme::new(false, ColourDepth::Sixteen), &idle, 120, 40);
    assert!(
        drawn.contains(" GPU 0 memory ") && drawn.contains("capacity 80.0 GiB"),
        "{drawn}"
    );
}

#[test]
fn the_row_of_unaccounted_memory_says_that_an_orphan_has_the_gpu_open() {
    let mut app = app_with(&left_over(2), 120, Settings::default());
    app.update(Event::Key(KeyEvent::from(KeyCode::Char('0'))));
    let line = line_of(&app, 120, "unaccounted  orphan");
    assert!(
        line.contains("unaccounted  orphan  open in 201 pt_data_worker, 202 pt_data_worker"),
        "{line}"
    );
    app.update(Event::Resized(80, 24));
    let line = line_of(&app, 80, "unaccounted  orphan");
    assert!(line.contains("unaccounted  orphan  open in 201"), "{line}");
}

#[test]
fn the_trouble_of_a_gpu_is_cut_with_an_ellipsis() {
    let mut host = host(1);
    host.gpus[0].trouble = Some(Trouble {
        cause: Cause::Hung,
        sentence: "GPU 0 has not answered nvmlDeviceGetHandleByIndex_v2; only a reboot of the host brings it back."
            .into(),
        call: Some("nvmlDeviceGetHandleByIndex_v2".into()),
        since: host.at,
    });
    let line = line_of(&app_with(&host, 60, Settings::default()), 60, "nvml");
    assert!(line.ends_with('…'), "{line}");
}

#[test]
fn the_trouble_of_a_gpu_with_current_figures_is_whole_in_its_column() {
    for cause in [Cause::Reset, Cause::Failed, Cause::Denied] {
        for (seconds, width) in [0, 4, 59 * 60 + 59]
            .into_iter()
            .flat_map(|it| [(it, 80), (it, 120), (it, 200)])
        {
            let mut host = host(1).later(7200);
            let since = Moment(host.at.0 - 1000 * seconds);
            host.gpus[0].trouble = Some(Trouble {
                cause,
                sentence: "it needs help".into(),
                call: None,
                since,
            });
            let line = line_of(
                &app_with(&host, width, Settings::default()),
                width,
                " 0 H100",
            );
            let words = [
                cause.to_string(),
                format!("{cause} {}", Elapsed(host.at.since(since))),
            ];
            let is_whole = |word: &String| format!("{line} ").contains(&format!(" {word} "));
            assert!(words.iter().any(is_whole), "{width}: {line}");
        }
    }
}

#[test]
fn the_trouble_of_a_gpu_on_a_narrow_screen_is_short_rather_than_left_out() {
    let mut host = host(1).with(7, "python train.py", 0, Bytes::from_gib(3));
    host.gpus[0].health.xids = vec![Xid {
        at: host.at,
        code: 79,
    }];
    let line = |width| {
        line_of(
            &app_with(&host, width, Settings::default()),
            width,
            " 0 H100",
        )
    };
    assert!(line(80).contains(" Xid 79 "), "{}", line(80));
    assert!(
        line(200).contains(" Xid 79: fell off the bus  alice "),
        "{}",
        line(200)
    );
}

#[test]
fn advice_about_a_lost_gpu_is_shown_once_on_its_line_or_below_the_list() {
    let mut host = host(2).with(7, "python train.py", 1, Bytes::from_gib(3));
    let sentence =
        "GPU 0 fell off the bus; `dmesg | grep -i xid` may say why, and the host may need a reboot";
    let (cause, call) = (Cause::Lost, Some("nvmlDeviceGetHandleByIndex_v2".into()));
    host.gpus[0].trouble = Some(Trouble {
        cause,
        sentence: sentence.into(),
        call,
        since: host.at,
    });
    let words = |it: &str| {
        it.split(['"', ' ', '\n'])
            .filter(|it| !it.is_empty())
            .collect::<Vec<_>>()
            .join(" ")
    };
    for (width, is_old, was_read) in [60, 80, 120, 200].into_iter().flat_map(|width| {
        [
            (width, false, true),
            (width, true, true),
            (width, false, false),
            (width, true, false),
        ]
    }) {
        host.gpus[0].load.memory_used = if was_read {
            Ok(Bytes::from_gib(3))
        } else {
            Err(Missing::Failed)
        };
        let mut app = app_with(&host, width, Settings::default());
        if is_old {
            app.update(Event::Tick(ViewerTime::new(Duration::from_secs(30))));
        }
        let text = screen(Theme::new(false, ColourDepth::Sixteen), &app, width, 24);
        assert_eq!(words(&text).matches(sentence).count(), 1, "{width}: {text}");
        // The age is shown only if there is a figure.
        assert_eq!(
            text.contains("lost 0s, figures 30s old"),
            is_old && was_read,
            "{width}: {text}"
        );
        // GPU 1, which answers, has its own age.
        let next = line_of(&app, width, " 1 H100");
        assert_eq!(next.contains(" figures 30s old "), is_old, "{next}");
    }
}

#[test]
fn memory_has_its_figure_on_the_narrowest_screen() {
    for width in 40..80 {
        let line = line_of(
            &app_with(&busy(), width, Settings::default()),
            width,
            " 88109 alice",
        );
        assert!(
            line.contains(" 33.2G") && line.contains(" python t"),
            "{width}: {line}"
        );
    }
}

#[test]
fn a_list_of_own_processes_only_does_not_call_the_gpus_unused() {
    let mut host = host(1).with(7, "python train.py", 0, Bytes::from_gib(3));
    host.host.facts.uid += 1;
    let text = |host: &Snapshot, keys: &str| {
        let mut app = app_with(host, 80, Settings::default());
        keys.chars()
            .for_each(|key| _ = app.update(Event::Key(KeyEvent::from(KeyCode::Char(key)))));
        screen(Theme::new(false, ColourDepth::Sixteen), &app, 80, 24)
    };
    for keys in ["u", "uo"] {
        assert!(
            text(&host, keys).contains("no process of yours uses a GPU (u shows those of others)"),
            "{}",
            text(&host, keys)
        );
    }
    host.host.facts.uid -= 1;
    assert!(
        text(&host, "uo").contains("no process holds memory that it should not"),
        "{}",
        text(&host, "uo")
    );
    host.gpus[0].processes.clear();
    host.processes.clear();
    assert!(text(&host, "u").contains("no process uses a GPU"));
}

#[test]
fn every_gpu_with_unknown_processes_is_named_below_the_list() {
    let mut host = host(4);
    for (gpu, why) in [
        (1, Missing::Unsupported),
        (2, Missing::Denied),
        (3, Missing::Unsupported),
    ] {
        host.gpus[gpu].missing.processes = Some(why);
    }
    let sentences = [
        "processes on GPU 1, 3 are not known: the driver cannot list them (WSL 2, vGPU)",
        "processes on GPU 2 are not known: the driver refuses to list them here",
    ];
    let draw = |host: &Snapshot| {
        let app = app_with(host, 120, Settings::default());
        screen(Theme::new(false, ColourDepth::Sixteen), &app, 120, 24)
    };
    let empty = draw(&host);
    assert!(
        empty.contains("processes on GPU 1, 2, 3 are not known"),
        "{empty}"
    );
    let listed = draw(
        &host
            .clone()
            .with(7, "python train.py", 0, Bytes::from_gib(3)),
    );
    for text in [&empty, &listed] {
        assert!(
            sentences.iter().all(|sentence| text.contains(sentence)),
            "{text}"
        );
    }
    // With one reason, the sentence is in place of the rows only.
    host.gpus[2].missing.processes = None;
    assert_eq!(
        draw(&host).matches(sentences[0]).count(),
        1,
        "{}",
        draw(&host)
    );
}

#[test]
fn figures_that_are_read_stand_beside_what_is_wrong() {
    let mut host = host(1);
    let sentence = "GPU 0 failed at nvmlDeviceGetComputeRunningProcesses_v3: an unknown error; `dmesg` may say why";
    host.gpus[0].trouble = Some(Trouble {
        cause: Cause::Failed,
        sentence: sentence.into(),
        call: Some("nvmlDeviceGetComputeRunningProcesses_v3".into()),
        since: host.at,
    });
    for width in [80, 120, 200] {
        let line = line_of(
            &app_with(&host, width, Settings::default()),
            width,
            " 0 H100",
        );
        assert!(
            ["50%", "50°C", "300W", "failed 0s"]
                .iter()
                .all(|it| line.contains(it)),
            "{width}: {line}"
        );
        let text = screen(
            Theme::new(false, ColourDepth::Sixteen),
            &app_with(&host, width, Settings::default()),
            width,
            24,
        );
        let words = |it: &str| {
            it.split(['"', ' ', '\n'])
                .filter(|it| !it.is_empty())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert!(words(&text).contains(sentence), "{width}: {text}");
    }
    let settings = Settings {
        gpu_columns: "index,name,sm".parse().ok(),
        ..Settings::default()
    };
    assert!(
        line_of(&app_with(&host, 80, settings), 80, " 0 H100")
            .trim_end()
            .ends_with("failed 0s")
    );
    // A lost GPU has no current figures.
    if let Some(trouble) = &mut host.gpus[0].trouble {
        trouble.cause = Cause::Lost;
    }
    assert!(!line_of(&app_with(&host, 120, Settings::default()), 120, " 0 H100").contains("°C"));
}

#[test]
fn the_age_of_figures_is_shown_whichever_columns_are_shown() {
    let settings = Settings {
        gpu_columns: "index,name,memory,sm".parse().ok(),
        ..Settings::default()
    };
    for width in [40, 80, 200] {
        let mut app = app_with(&busy(), width, settings.clone());
        app.update(Event::Tick(ViewerTime::new(Duration::from_secs(7))));
        assert!(
            line_of(&app, width, "H100").trim_end().ends_with(" 7s old"),
            "{width}"
        );
    }
    // The age replaces a whole figure: no part of that remains.
    let settings = Settings {
        gpu_columns: "index,temp,name,memory,power".parse().ok(),
        ..Settings::default()
    };
    let power = line_of(&app_with(&busy(), 60, settings.clone()), 60, "H100");
    let power = power.split_whitespace().last().unwrap_or_default();
    let mut app = app_with(&busy(), 60, settings);
    app.update(Event::Tick(ViewerTime::new(Duration::from_secs(7))));
    let line = line_of(&app, 60, "H100");
    let figures: Vec<&str> = line.split_whitespace().rev().take(3).collect();
    assert!(
        figures.starts_with(&["old", "7s"]) && !power.starts_with(figures[2]),
        "{power}: {line}"
    );
}

#[test]
fn columns_that_do_not_fit_leave_the_last_one_its_room_and_say_so() {
    let settings = Settings {
        gpu_columns: "index,name,memory,sm,temp,power,memuse,smclock,memclock,pstate,fan,ecc,pcie,health".parse().ok(),
        columns: "gpu,pid,user,memory,cache,growth,sm,cpu,rss,time,threads,history,origin,verdict,command".parse().ok(),
        ..Settings::default()
    };
    let mut app = app_with(&busy(), 80, settings.clone());
    assert!(line_of(&app, 80, "POWER").contains("WHO"));
    assert!(line_of(&app, 80, " 88109 alice").contains(" python t"));
    app.update(Event::Key(KeyEvent::from(KeyCode::F(2))));
    for _ in 0..40 {
        app.update(Event::Key(KeyEvent::from(KeyCode::Down)));
    }
    assert!(line_of(&app, 80, "GPU pcie").contains("no room for it"));
    let wide = app_with(&busy(), 200, settings);
    assert!(line_of(&wide, 200, "POWER").contains("PCIE WHO"));
}

#[test]
fn figures_of_a_large_board_are_not_cut() {
    let mut host = host(1);
    (host.gpus[0].load.power, host.gpus[0].health.power_limit) = (
        Ok(Watts::from_milliwatts(1_034_000)),
        Ok(Watts::from_milliwatts(1_200_000)),
    );
    assert!(
        line_of(&app_with(&host, 80, Settings::default()), 80, "H100").contains(" 1034/1200W ")
    );
}

#[test]
fn the_figures_of_the_host_line_keep_their_columns() {
    let host_line = |load: f64, used: u64| {
        let mut host = host(1);
        (host.host.load.load, host.host.load.memory_used) =
            (Ok([load, load, load]), Ok(Bytes::from_gib(used)));
        let line = line_of(&app_with(&host, 120, Settings::default()), 120, "gputop");
        ["load", "mem", "driver"].map(|word| line.find(word))
    };
    for (load, used) in [(9.99, 9), (10.01, 100), (99.99, 0), (123.4, 512), (0.0, 1)] {
        assert_eq!(host_line(load, used), host_line(1.0, 50), "{load} {used}");
    }
}

#[test]
fn the_column_that_sorts_is_marked_at_any_width() {
    for (name, mark) in [("memory", "▼"), ("user", "▲"), ("sm", "▼"), ("-time", "")] {
        let settings = Settings {
            sort: name.parse().ok(),
            ..Settings::default()
        };
        let head = line_of(&app_with(&busy(), 200, settings), 200, " PID ");
        assert!(
            head.contains(mark) && (head.contains('▼') || head.contains('▲')),
            "{name}: {head}"
        );
        assert!(!head.contains('…'), "{name}: {head}");
    }
}

#[test]
fn settings_are_cut_between_words() {
    let app = app_of_size(&[KeyCode::F(2)], 50, 24);
    let text = screen(Theme::new(false, ColourDepth::Sixteen), &app, 50, 24);
    let help: Vec<&str> = text
        .lines()
        .filter(|it| it.contains("[x]") || it.contains("[ ]"))
        .collect();
    assert!(
        help.iter()
            .any(|it| it.contains("only processes of the user…")),
        "{text}"
    );
}

#[test]
fn a_refusal_stands_below_the_process_that_it_is_about() {
    let mut app = app_of_size(
        &[KeyCode::Char(' '), KeyCode::Char(' '), KeyCode::F(9)],
        80,
        24,
    );
    let processes: Vec<_> = app
        .modes
        .end_dialog()
        .map(|panel| panel.targets().map(Member::id).collect())
        .unwrap_or_default();
    assert_eq!(processes.len(), 2);
    for process in processes {
        let reason = "no permission to signal it, which is owned by someone else: run gputop as root (`sudo gputop`)";
        let outcome = Outcome::Refused {
            reason: reason.into(),
        };
        app.update(Event::Line(
            HostKey::FIRST,
            Box::new(Line::Reply(Reply { process, outcome })),
        ));
    }
    let text = screen(Theme::new(false, ColourDepth::Sixteen), &app, 80, 24);
    let rows: Vec<&str> = text
        .lines()
        .filter(|it| it.contains("permission") || it.contains("root (`"))
        .collect();
    assert_eq!(rows.len(), 4, "{text}");
    // The text continues below the command, and not below the PID.
    assert!(
        rows.iter()
            .all(|it| it.contains("│          no perm") || it.contains("│          ")),
        "{text}"
    );
    assert!(rows.iter().all(|it| !it.contains("│           ")), "{text}");
}

#[test]
fn two_marks_and_the_present_are_listed_below_a_graph() {
    use KeyCode::{Char, Enter};
    let keys = [
        Char('g'),
        Char('g'),
        Char('m'),
        Char('\''),
        Char('a'),
        Enter,
        Char('m'),
    ];
    let text = screen(
        Theme::new(false, ColourDepth::Sixteen),
        &app(80, 24, &keys),
        80,
        24,
    );
    let listed = |name: &str| text.lines().any(|it| it.starts_with(&format!("\"{name} ")));
    assert!(listed("a") && listed("mark 2") && listed("now"), "{text}");
}

#[test]
fn the_evidence_of_a_leak_is_on_the_first_screenful_of_a_small_screen() {
    let mut host = with_parts(&[(30, 10)]);
    let mut app = App::new(AppOptions::default());
    app.update(Event::Resized(80, 24));
    for _ in 0..600 {
        host = host.later(1);
        let gpu = &mut host.gpus[0];
        for bytes in [&mut gpu.processes[0].memory, &mut gpu.load.memory_used] {
            bytes.as_mut().unwrap().0 += 20 << 20;
        }
        app.update(Event::Line(
            HostKey::FIRST,
            Box::new(Line::Full(Box::new(host.clone()))),
        ));
    }
    app.update(Event::Key(KeyEvent::from(KeyCode::Enter)));
    let screen = screen(Theme::new(false, ColourDepth::Sixteen), &app, 80, 24);
    assert!(
        screen.contains("LEAK: not PyTorch's +") && screen.contains("out of memory in"),
        "{screen}"
    );
}

#[test]
fn the_bar_of_a_gpu_is_split_as_those_of_its_processes() {
    for (theme, glyphs) in [
        (Theme::new(false, ColourDepth::None), ['▇', '▒', '░', '─']),
        (Theme::new(true, ColourDepth::Sixteen), ['#', '%', ':', '-']),
    ] {
        let screen = screen(theme, &with_allocator(160, &[]), 160, 60);
        let (line, _) = screen
            .lines()
            .find_map(|line| line.split_once("40.0/80.0G"))
            .unwrap();
        let cells: Vec<char> = line.chars().filter(|it| glyphs.contains(it)).collect();
        let gib =
            glyphs.map(|glyph| 80 * cells.iter().filter(|it| **it == glyph).count() / cells.len());
        for (is, due) in gib.into_iter().zip([20, 16, 4, 40_usize]) {
            assert!(is.abs_diff(due) <= 2, "{gib:?}: {line}");
        }
    }
}

#[test]
fn the_header_of_a_recording_says_so_and_says_that_it_ended() {
    let mut app = App::new(AppOptions {
        is_recording: true,
        ..AppOptions::default()
    });
    app.update(Event::Resized(120, 60));
    let header = |app: &App| {
        screen(Theme::new(false, ColourDepth::Sixteen), app, 120, 60)
            .lines()
            .next()
            .unwrap()
            .to_owned()
    };
    app.update(Event::Line(
        HostKey::FIRST,
        Box::new(Line::Full(Box::new(host(1)))),
    ));
    assert!(
        header(&app).contains("gputop RECORDING  box"),
        "{}",
        header(&app)
    );
    // `H` does not hide the header of a recording.
    app.update(Event::Key(KeyCode::Char('H').into()));
    app.update(Event::RecordingEnded(Some(
        "its last line is cut off".into(),
    )));
    app.update(Event::Tick(ViewerTime::new(Duration::from_mins(1))));
    assert!(
        header(&app).contains("gputop RECORDING (ended: its last line is cut off)  box"),
        "{}",
        header(&app)
    );
    // No agent can be asked for details that the recording lacks.
    for key in [KeyCode::Tab, KeyCode::Char('i')] {
        app.update(Event::Key(key.into()));
    }
    let page = screen(Theme::new(false, ColourDepth::Sixteen), &app, 120, 60);
    assert!(
        page.contains("details          not in this recording")
            && !page.contains("asking the driver"),
        "{page}"
    );
}

#[test]
fn the_header_has_the_interval_of_a_single_host_only() {
    let mut app = app_with(
        &Snapshot {
            interval_ms: 500,
            ..host(1)
        },
        120,
        Settings::default(),
    );
    assert!(line_of(&app, 120, "gputop").contains("every 500ms"));
    app.update(Event::Line(
        HostKey(1),
        Box::new(Line::Full(Box::new(Snapshot {
            interval_ms: 2000,
            ..host(1)
        }))),
    ));
    assert!(!line_of(&app, 120, "2 hosts").contains("every"));
    // The interval that the user chose for all hosts stays.
    assert_eq!(app.options.interval, Duration::from_millis(500));
}
