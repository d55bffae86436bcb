//! The process list: groups, one GPU alone, badges, search, the sort menu, the mouse, and what the
//! command line asks for.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::cli::json;
use crate::host::{GIB, Host};
use crate::terminal::{DOWN, ENTER, ESC, F9, TAB, Terminal};

const F3: &str = "\x1bOR";
const F6: &str = "\x1b[17~";

/// Two GPUs: `sleep 1000` and `sleep 2000` on the first, `sleep 3000` on the second. Returns their
/// PIDs.
fn three_sleepers() -> (Host, [u32; 3]) {
    let mut host = Host::with_jitter(["H100"; 2]);
    let start = |host: &mut Host, gpu, gib: u64, seconds: &str| {
        host.start(gpu, gib * GIB, Command::new("sleep").arg(seconds))
            .pid()
    };
    let pids = [
        start(&mut host, 0, 3, "1000"),
        start(&mut host, 0, 2, "2000"),
        start(&mut host, 1, 1, "3000"),
    ];
    (host, pids)
}

fn own_user() -> String {
    let user =
        uzers::get_user_by_uid(rustix::process::getuid().as_raw()).expect("this user has a name");
    user.name().to_string_lossy().into_owned()
}

/// The place of a text on the screen, as a mouse report counts it: column and line from 1.
fn place(terminal: &Terminal, text: &str) -> (usize, usize) {
    let screen = terminal.text();
    let found = screen.lines().zip(1..).find_map(|(line, row)| {
        let (before, _) = line.split_once(text)?;
        Some((before.chars().count() + 1, row))
    });
    found.unwrap_or_else(|| panic!("no {text} on the screen:\n{screen}"))
}

pub(crate) fn press_mouse(terminal: &Terminal, button: u8, text: &str) {
    let (x, y) = place(terminal, text);
    terminal.keys(&format!("\x1b[<{button};{x};{y}M\x1b[<{button};{x};{y}m"));
}

fn is_before(first: &'static str, second: &'static str) -> impl Fn(&vt100::Screen) -> bool {
    move |screen| {
        let text = screen.contents();
        text.find(first)
            .zip(text.find(second))
            .is_some_and(|(first, second)| first < second)
    }
}

#[test]
fn b_groups_by_gpu_job_user_and_tree() {
    let (host, _) = three_sleepers();
    let mut terminal = Terminal::start_at(&host, 100, 30, []);
    terminal.wait_for("sleep 3000");
    terminal.keys("b");
    terminal.wait_for("GPU 0 2 processes, 5.0 GiB");
    terminal.wait_for("GPU 1 1 process, 1.0 GiB");
    terminal.keys("b");
    terminal.wait_until_gone("GPU 1 1 process");
    terminal.keys("b");
    terminal.wait_for(" 3 processes, 6.0 GiB");
    terminal.keys("bb");
    terminal.wait_until_gone("Esc leaves");
    terminal.quit();
    let mut terminal = Terminal::start_at(&host, 100, 30, ["--group", "gpu"]);
    terminal.wait_for("GPU 0 2 processes, 5.0 GiB");
    terminal.wait_for("by GPU");
    terminal.quit();
}

#[test]
fn a_process_on_two_gpus_is_in_the_group_of_each_with_its_memory_there() {
    let mut host = Host::with_jitter(["H100"; 2]);
    let pid = host.start_sleep(0, 3 * GIB);
    host.change(|world| {
        let mut second = world.gpus[0].processes[0].clone();
        second.memory = Some(2 * GIB);
        world.gpus[1].processes.push(second);
    });
    let mut terminal = Terminal::start_at(&host, 100, 30, ["--group", "gpu"]);
    for (head, memory) in [
        ("GPU 0 1 process, 3.0 GiB", "3.0G"),
        ("GPU 1 1 process, 2.0 GiB", "2.0G"),
    ] {
        terminal.wait_until(head, |screen| {
            let text = screen.contents();
            let row = text
                .split_once(head)
                .and_then(|(_, rest)| rest.lines().nth(1).map(str::to_owned));
            row.is_some_and(|row| {
                row.contains("0,1 ") && row.contains(&pid.to_string()) && row.contains(memory)
            })
        });
    }
    terminal.quit();
}

#[test]
fn enter_on_a_gpu_shows_its_processes_and_an_empty_gpu_says_who_was_there_last() {
    let (mut host, [.., last]) = three_sleepers();
    let mut terminal = Terminal::start_at(&host, 120, 30, ["--interval", "100ms"]);
    terminal.wait_for("sleep 3000");
    terminal.keys(&format!("{TAB}{DOWN}"));
    terminal.wait_for("Enter its processes");
    terminal.keys(ENTER);
    terminal.wait_until_gone("sleep 1000");
    terminal.wait_for("sleep 3000");
    terminal.wait_for("GPU 1  Esc leaves");
    // The names of users come later than the first rows.
    terminal.wait_until("the user", |screen| {
        let text = screen.contents();
        text.lines()
            .any(|row| row.contains(&last.to_string()) && row.contains(&own_user()))
    });
    host.process(last)
        .handle
        .signal(rustix::process::Signal::KILL);
    terminal.wait_for(&format!("GPU 1 is empty; last: {last} sleep ("));
    terminal.wait_for("), held 1.0 GiB, ended ");
    terminal.keys("gg");
    terminal.wait_for("GPU 1 memory");
    terminal.wait_for(&format!("{last} sleep ended"));
    terminal.keys("g");
    terminal.wait_for("GPU 1 is empty");
    terminal.keys(ESC);
    terminal.wait_for("sleep 1000");
    terminal.wait_until_gone("Esc leaves");
    terminal.quit();
}

#[test]
fn escape_leaves_the_latest_badge_first_and_the_cursor_goes_to_the_top() {
    let (host, [first, ..]) = three_sleepers();
    let mut terminal = Terminal::start_at(&host, 120, 30, []);
    terminal.wait_for("sleep 3000");
    terminal.keys(&format!("{DOWN}{DOWN}"));
    terminal.keys(&format!("/sleep{ENTER}"));
    terminal.wait_for("filter: sleep  Esc leaves");
    terminal.keys("u");
    terminal.wait_for("filter: sleep  mine only  Esc leaves");
    terminal.keys("p");
    terminal.wait_for("PAUSED");
    for (gone, left) in [
        ("PAUSED", "mine only"),
        ("mine only", "filter: sleep"),
        ("filter: sleep", "? help"),
    ] {
        terminal.keys(ESC);
        terminal.wait_until_gone(gone);
        terminal.wait_for(left);
    }
    terminal.keys(F9);
    terminal.wait_for(&format!("End process {first}"));
    // Where no text is typed, `q` quits.
    terminal.quit();
}

#[test]
fn q_quits_from_pages_and_panels_and_is_a_letter_in_a_filter() {
    let (host, _) = three_sleepers();
    for (keys, sign) in [
        (ENTER, "identity"),
        ("?", "In the lists"),
        ("g", "SINCE LAST"),
        ("\x1bOQ", "theme"),
        (F6, "Sort by"),
    ] {
        let mut terminal = Terminal::start_at(&host, 120, 40, []);
        terminal.wait_for("sleep 3000");
        terminal.keys(keys);
        terminal.wait_for(sign);
        terminal.quit();
    }
    let mut terminal = Terminal::start_at(&host, 120, 40, []);
    terminal.wait_for("sleep 3000");
    terminal.keys("/q");
    terminal.wait_for("no process matches the filter");
    terminal.keys(ESC);
    terminal.wait_for("sleep 3000");
    terminal.quit();
}

#[test]
fn the_command_line_filters_by_user_pid_and_text() {
    let (host, pids) = three_sleepers();
    let shows = |args: &[&str], expected: [bool; 3]| {
        let mut terminal = Terminal::start_at(&host, 120, 30, args.iter().copied());
        terminal.wait_until(&format!("{args:?}"), |screen| {
            let text = screen.contents();
            // The news may name a process that is not in the list.
            let Some((_, below)) = text.split_once("COMMAND") else {
                return false;
            };
            let list = below.split('╰').next().unwrap_or_default();
            let shown =
                ["sleep 1000", "sleep 2000", "sleep 3000"].map(|command| list.contains(command));
            !list.contains("no process uses") && shown == expected
        });
        terminal.quit();
    };
    let two = format!("{},{}", pids[0], pids[2]);
    shows(&["--pid", &two], [true, false, true]);
    shows(&["--filter", "sleep 2000"], [false, true, false]);
    shows(&["-u", "no-such-user"], [false; 3]);
    shows(
        &["-u", &own_user(), "--filter", "3000"],
        [false, false, true],
    );
}

#[test]
fn reports_show_the_processes_that_the_command_line_chooses() {
    let (host, [first, second, third]) = three_sleepers();
    let shown = |args: &[&str]| {
        let output = host.run(args.iter().copied());
        assert_eq!(output.code, 0, "{args:?}: {}", output.stderr);
        let text = match args[0] {
            // A GPU names the processes that have it open.
            "--json" => format!(
                "{} {}",
                json(&output)["gpus"][0]["processes"],
                json(&output)["gpus"][1]["processes"]
            ),
            _ => output.text(),
        };
        [first, second, third].map(|pid| text.contains(&pid.to_string()))
    };
    let (two, one) = (format!("{first},{third}"), second.to_string());
    for report in ["--once", "--plain", "--json", "--csv=processes"] {
        assert_eq!(
            shown(&[report, "--pid", &two]),
            [true, false, true],
            "{report}"
        );
        assert_eq!(
            shown(&[report, "--filter", "sleep 2000"]),
            [false, true, false],
            "{report}"
        );
        assert_eq!(
            shown(&[report, "-u", "no-such-user"]),
            [false; 3],
            "{report}"
        );
        assert_eq!(shown(&[report, "--mine"]), [true; 3], "{report}");
    }
    assert_eq!(
        shown(&["--query-compute-apps=pid", "--format=csv", "--pid", &one]),
        [false, true, false]
    );
    let empty = host.run(["--once", "-u", "no-such-user"]).text();
    assert!(empty.contains("no process matches the filter"), "{empty}");
    let report = json(&host.run(["--json", "--pid", &one]));
    assert_eq!(
        report["processes"].as_array().map(Vec::len),
        Some(1),
        "{report:#}"
    );
    assert_eq!(
        report["gpus"].as_array().map(Vec::len),
        Some(2),
        "{report:#}"
    );
    for args in [["--csv", "-u"], ["-L", "-u"], ["--query-gpu=index", "-u"]] {
        let output = host.run(args.into_iter().chain(["alice"]));
        assert_eq!(output.code, 2, "{args:?}: {}", output.text());
        assert!(
            output
                .stderr
                .contains("choose processes: they go with the screen, --once"),
            "{}",
            output.stderr
        );
    }
}

#[test]
fn a_spreadsheet_takes_no_command_for_a_formula() {
    let mut host = Host::new(["H100"]);
    host.start(0, GIB, Command::new("sleep").arg0("=2+5").arg("1000"));
    let text = host.run(["--csv=processes"]).text();
    assert!(text.contains(",'=2+5 1000,"), "{text}");
}

#[test]
fn an_interval_that_may_be_meant_in_milliseconds_is_questioned() {
    let host = Host::new(["H100"]);
    let sentence = "the interval is 1000 s, which is 16m40s: milliseconds need a unit, as in 500ms";
    let output = host.run(["--once", "--interval", "1000"]);
    assert_eq!(
        (output.code, output.stderr.as_str()),
        (0, &*format!("gputop: {sentence}\n"))
    );
    assert_eq!(host.run(["--once", "--interval", "1000ms"]).stderr, "");
    let mut terminal = Terminal::start(&host, ["--interval", "1000"]);
    terminal.wait_for(sentence);
    terminal.quit();
}

#[test]
fn a_menu_chooses_the_column_to_sort_by() {
    let (host, _) = three_sleepers();
    let mut terminal = Terminal::start_at(&host, 120, 40, []);
    terminal.wait_until("the largest first", is_before("sleep 1000", "sleep 3000"));
    terminal.keys(F6);
    terminal.wait_for("Sort by");
    terminal.wait_for("▼ memory");
    terminal.keys(&format!("{}{ENTER}", DOWN.repeat(20)));
    terminal.wait_for("COMMAND▲");
    terminal.keys(F6);
    terminal.wait_for("Sort by");
    terminal.keys("r");
    terminal.wait_for("▼ command");
    terminal.keys(ESC);
    terminal.wait_until(
        "the last command first",
        is_before("sleep 3000", "sleep 1000"),
    );
    terminal.quit();
}

#[test]
fn a_search_moves_the_cursor_and_hides_nothing() {
    let (host, [_, second, third]) = three_sleepers();
    let mut terminal = Terminal::start_at(&host, 120, 30, []);
    terminal.wait_for("sleep 3000");
    let is_under_cursor = |pid: u32| {
        move |screen: &vt100::Screen| {
            let text = screen.contents();
            let row = text
                .lines()
                .position(|line| line.contains(&format!(" {pid} ")) && line.contains("sleep "));
            let row = row.and_then(|row| row.try_into().ok());
            row.and_then(|row| screen.cell(row, 10))
                .is_some_and(|cell| cell.bgcolor() != vt100::Color::Default)
        }
    };
    terminal.keys(&format!("{F3}000"));
    terminal.keys(ENTER);
    terminal.keys("n");
    terminal.wait_until("the second", is_under_cursor(second));
    terminal.keys("n");
    terminal.wait_until("the third", is_under_cursor(third));
    terminal.keys("N");
    terminal.wait_until("the second again", is_under_cursor(second));
    assert!(
        terminal.text().contains("sleep 1000"),
        "{}",
        terminal.text()
    );
    terminal.quit();
}

#[test]
fn the_mouse_sorts_tags_opens_pages_and_presses_keys() {
    let (host, [_, second, third]) = three_sleepers();
    let mut terminal = Terminal::start_at(&host, 120, 30, []);
    terminal.wait_until("the largest first", is_before("sleep 1000", "sleep 3000"));
    press_mouse(&terminal, 0, "COMMAND");
    terminal.wait_for("COMMAND▲");
    press_mouse(&terminal, 0, "COMMAND");
    terminal.wait_until("inverted", is_before("sleep 3000", "sleep 1000"));
    press_mouse(&terminal, 2, "sleep 2000");
    terminal.wait_for("tagged sleep 2000");
    press_mouse(&terminal, 2, "tagged sleep 2000");
    terminal.wait_until_gone("tagged");
    press_mouse(&terminal, 0, &format!(" {third} "));
    press_mouse(&terminal, 0, &format!(" {third} "));
    terminal.wait_for(&format!("Process {third}"));
    press_mouse(&terminal, 0, "back");
    terminal.wait_for(&format!(" {second} "));
    press_mouse(&terminal, 0, "1 H100");
    terminal.wait_for("GPU 1  Esc leaves");
    terminal.wait_until_gone("sleep 2000");
    press_mouse(&terminal, 0, "0 H100");
    terminal.wait_for("GPU 0  Esc leaves");
    terminal.wait_for("sleep 2000");
    press_mouse(&terminal, 0, "help");
    terminal.wait_for("In the lists");
    terminal.quit();
}

#[test]
fn a_click_never_sends_a_signal() {
    let (host, [first, ..]) = three_sleepers();
    let mut terminal = Terminal::start_at(&host, 120, 30, []);
    terminal.wait_for("sleep 3000");
    terminal.keys(F9);
    terminal.wait_for("Verified: only");
    press_mouse(&terminal, 0, "Enter send");
    press_mouse(&terminal, 0, "close");
    terminal.wait_until_gone("End process");
    terminal.quit();
    assert_eq!(crate::process::process_state(first), Some('S'));
}

#[test]
fn the_help_is_searched() {
    let (host, _) = three_sleepers();
    let mut terminal = Terminal::start_at(&host, 80, 24, []);
    terminal.wait_for("sleep 3000");
    terminal.keys("?");
    terminal.wait_for("/ search");
    terminal.keys("/orphan");
    terminal.wait_for("its trainer or launcher is gone");
    terminal.wait_until_gone("In the lists: look");
    terminal.keys(ENTER);
    terminal.wait_for("its trainer or launcher is gone");
    terminal.keys("/");
    terminal.wait_for("clear");
    terminal.keys(ESC);
    terminal.wait_for("In the lists: look");
    terminal.quit();
}
