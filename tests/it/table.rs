//! Columns, sort order and filters of the lists, the settings file, and the state that is kept for
//! the next run.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::cli::json;
use crate::host::{GIB, Host};
use crate::terminal::{ENTER, ESC, Terminal, number_after};

const F2: &str = "\x1bOQ";
const DOWN: &str = "\x1b[B";

/// The header of the process list.
fn header(screen: &vt100::Screen) -> String {
    let text = screen.contents();
    text.lines()
        .find(|line| line.contains("COMMAND"))
        .unwrap_or_default()
        .trim_end()
        .to_owned()
}

fn write_config(host: &Host, text: &str) {
    fs::create_dir_all(host.path("config/gputop")).expect("/tmp has room");
    fs::write(host.path("config/gputop/config.toml"), text).expect("/tmp has room");
}

#[test]
fn columns_come_from_the_flag_then_the_environment_then_the_file() {
    let mut host = Host::with_jitter(["H100"]);
    host.start_sleep(0, GIB);
    write_config(
        &host,
        "columns = ['user', 'command']\nsort = 'user'\nhost = false\n",
    );
    let shows = |command: &mut Command, expected: &str| {
        let mut terminal = Terminal::run(command, 80, 24);
        terminal.wait_until(expected, |screen| header(screen) == expected);
        assert!(
            !terminal.text().contains("gputop "),
            "the host's line is hidden: {}",
            terminal.text()
        );
        terminal.quit();
    };
    shows(&mut host.gputop([]), " USER▲    COMMAND");
    shows(
        host.gputop([]).env("GPUTOP_COLUMNS", "pid,user,command"),
        "     PID USER▲    COMMAND",
    );
    let mut flagged = host.gputop(["--columns", "command,user,gpu", "--sort", "gpu"]);
    shows(
        flagged.env("GPUTOP_COLUMNS", "pid,command"),
        " USER     GP▲ COMMAND",
    );
}

#[test]
fn a_column_hidden_in_the_settings_panel_stays_hidden_once_saved() {
    let mut host = Host::with_jitter(["H100"]);
    let pid = host.start_sleep(0, GIB).to_string();
    let mut terminal = Terminal::start_at(&host, 80, 24, []);
    terminal.wait_for(&pid);
    terminal.keys(F2);
    terminal.wait_for("[x] pid");
    // The lines theme, GPUs, host, mine and gpu come before pid.
    terminal.keys(&DOWN.repeat(5));
    terminal.keys(" ");
    terminal.wait_for("[ ] pid");
    terminal.keys("W");
    terminal.wait_for("written to");
    terminal.keys(ESC);
    terminal.wait_until_gone("Settings");
    terminal.wait_until_gone("PID");
    terminal.quit();
    let text = fs::read_to_string(host.path("config/gputop/config.toml"))
        .expect("the settings were saved");
    assert!(
        text.contains(r#"columns = ["gpu", "user", "memory""#),
        "{text}"
    );
    let mut terminal = Terminal::start_at(&host, 120, 30, []);
    terminal.wait_for("sleep 1000");
    assert!(!terminal.text().contains("PID"), "{}", terminal.text());
    terminal.quit();
}

#[test]
fn gpu_columns_are_chosen_ordered_and_hidden_like_process_columns() {
    let mut host = Host::with_jitter(["H100", "RTX-4090"]);
    host.start_sleep(0, GIB);
    write_config(&host, "gpu_columns = ['health', 'index', 'temp']\n");
    let header = |screen: &vt100::Screen| {
        let text = screen.contents();
        text.lines()
            .find(|line| line.contains('#'))
            .unwrap_or_default()
            .trim_end()
            .to_owned()
    };
    let shows = |command: &mut Command, expected: &str| {
        let terminal = Terminal::run(command, 80, 24);
        terminal.wait_until(expected, |screen| header(screen) == expected);
        terminal
    };
    shows(&mut host.gputop([]), "  #  TEMP WHO").quit();
    shows(
        host.gputop([])
            .env("GPUTOP_GPU_COLUMNS", "index,fan,health"),
        "  #  FAN WHO",
    )
    .quit();
    let mut terminal = shows(
        &mut host.gputop(["--gpu-columns", "fan,index,pstate"]),
        "  FAN  #   P",
    );
    // A lost GPU says so, whichever columns are chosen.
    host.change(|world| world.gpus[1].falls_off_the_bus());
    terminal.wait_for("lost");
    terminal.keys(F2);
    terminal.wait_for("theme");
    let are_shown = |screen: &vt100::Screen, first: &str| {
        screen.contents().contains(first) && screen.contents().contains(" of 37")
    };
    terminal.wait_until("the first lines of the panel", |screen| {
        are_shown(screen, " 1-")
    });
    terminal.keys("G");
    terminal.wait_for("[ ] GPU health");
    terminal.wait_until("the last lines of the panel", |screen| {
        are_shown(screen, "-37")
    });
    terminal.keys(" ");
    terminal.wait_for("[x] GPU health");
    terminal.keys("W");
    terminal.wait_for("written to");
    terminal.keys(ESC);
    terminal.wait_until("the new column", |screen| {
        header(screen) == "  FAN  #   P WHO"
    });
    terminal.wait_until_gone("Settings");
    terminal.quit();
    let text = fs::read_to_string(host.path("config/gputop/config.toml"))
        .expect("the settings were saved");
    assert!(
        text.contains(r#"gpu_columns = ["fan", "index", "pstate", "health"]"#),
        "{text}"
    );
}

#[test]
fn changed_settings_but_no_filter_are_kept_for_the_next_run() {
    let mut host = Host::with_jitter(["H100"]);
    host.start_sleep(0, GIB);
    let mut terminal = Terminal::start_at(&host, 80, 24, []);
    terminal.wait_for("sleep 1000");
    terminal.keys(&format!("P/sleep{ENTER}u"));
    terminal.wait_for("mine only");
    terminal.quit();
    let mut terminal = Terminal::start_at(&host, 80, 24, []);
    terminal.wait_until("sorted as before", |screen| {
        header(screen).contains("SM▼") && header(screen).contains("MEM▾")
    });
    assert!(
        !terminal.text().contains("filter:") && !terminal.text().contains("mine only"),
        "{}",
        terminal.text()
    );
    terminal.quit();
    // The settings file overrides what was kept.
    write_config(&host, "sort = ['pid']\n");
    let mut terminal = Terminal::start_at(&host, 80, 24, []);
    terminal.wait_until("sorted as it is written", |screen| {
        header(screen).contains("PID▲")
    });
    terminal.quit();
}

#[test]
fn an_invalid_setting_is_an_error_with_its_line_and_an_unknown_key_is_a_warning() {
    let host = Host::with_jitter(["H100"]);
    write_config(&host, "# mine\ntheme = 'pink'\n");
    let mut terminal = Terminal::run(&mut host.gputop([]), 120, 24);
    terminal.wait_for("config.toml:2: theme: `pink` is no theme; there are ");
    assert_eq!(terminal.wait_for_exit().code(), Some(2));
    write_config(&host, "theme = \"\\u001b[2Jowned\"\n");
    let mut terminal = Terminal::run(&mut host.gputop([]), 120, 24);
    terminal.wait_for("[2Jowned` is no theme");
    terminal.wait_for_exit();
    assert!(
        !terminal
            .bytes()
            .windows(4)
            .any(|window| window == b"\x1b[2J")
    );
    write_config(&host, "theme = 'safe'\nthme = 'dark'\n");
    let mut terminal = Terminal::start_at(&host, 160, 24, []);
    terminal.wait_for("config.toml: unknown keys: `thme` (line 2)");
    terminal.quit();
    // Reports ignore an invalid theme of the file, and say so beside their output.
    write_config(&host, "theme = 'pink'\n");
    // The orphans of other tests are not of that user.
    let orphans = &["orphans", "--json", "--user", "nobody"][..];
    for args in [&["--once"][..], &["--json"], orphans] {
        let output = host.run(args.iter().copied());
        assert_eq!(output.code, 0, "{args:?}: {}", output.stderr);
        assert!(
            output.stderr.contains("ignoring the settings: ")
                && output
                    .stderr
                    .contains("config.toml:1: theme: `pink` is no theme")
                && output.stderr.lines().count() == 1,
            "{args:?}: {}",
            output.stderr
        );
        assert!(!output.text().contains("pink"), "{}", output.text());
    }
    let output = host.run(["--theme", "pink"]);
    assert_eq!(output.code, 2, "{}", output.stderr);
}

#[test]
fn ties_are_sorted_by_the_previous_column() {
    let mut host = Host::new(["H100"]);
    let (one, two) = (host.start_sleep(0, GIB), host.start_sleep(0, GIB));
    let (low, high) = (one.min(two).to_string(), one.max(two).to_string());
    let mut terminal = Terminal::start_at(&host, 100, 24, ["--sort", "memory,-pid"]);
    let is_before = |screen: &vt100::Screen, first: &str, second: &str| {
        let text = screen.contents();
        // The figures of the GPU above may have the digits of a PID.
        let Some((_, list)) = text.split_once("COMMAND") else {
            return false;
        };
        list.find(first)
            .zip(list.find(second))
            .is_some_and(|(first, second)| first < second)
    };
    terminal.wait_until("the higher PID first", |screen| {
        is_before(screen, &high, &low)
    });
    terminal.keys("SS");
    terminal.wait_until("by PID", |screen| {
        header(screen).contains("PID▲") && is_before(screen, &low, &high)
    });
    terminal.quit();
}

#[test]
fn the_report_is_sorted_as_the_flag_says() {
    let mut host = Host::new(["H100", "H100"]);
    let pids =
        [(0, 2), (1, 3), (0, 1)].map(|(gpu, gib)| host.start_sleep(gpu, gib * GIB).to_string());
    let order = |args: &[&str]| -> Vec<usize> {
        let text = host.run(args.iter().copied()).text();
        let rows = text.lines().filter(|line| line.contains("sleep 1000"));
        let pid = |row: &str| {
            pids.iter()
                .position(|pid| row.split_whitespace().nth(1) == Some(pid))
        };
        rows.map(|row| pid(row).unwrap_or_else(|| panic!("{text}")))
            .collect()
    };
    assert_eq!(order(&["--once"]), [0, 2, 1], "by GPU, then by memory");
    assert_eq!(order(&["--once", "--sort", "memory"]), [1, 0, 2]);
    assert_eq!(order(&["--once", "--sort", "-memory"]), [2, 0, 1]);
    assert_eq!(order(&["--once", "--sort", "-gpu,-memory"]), [1, 2, 0]);
}

#[test]
fn the_list_can_show_own_processes_only_and_scroll_long_commands() {
    if !rustix::process::getuid().is_root() {
        return crate::print_note("skipped: only root can start a process as someone else");
    }
    let mut host = Host::with_jitter(["H100"]);
    let mine = host.start_sleep(0, GIB).to_string();
    let other = host
        .start(0, GIB, Command::new("sleep").arg("1000").uid(65534))
        .pid()
        .to_string();
    let mut terminal = Terminal::start_at(&host, 80, 24, []);
    terminal.wait_for(&other);
    terminal.keys("u");
    terminal.wait_until_gone(&other);
    terminal.wait_for(&mine);
    terminal.keys("u");
    terminal.wait_for(&other);
    let argument = format!("{}-the-end", "x".repeat(70));
    let mut tail = Command::new("tail");
    // tail complains about its last argument on stderr.
    tail.args(["-f", "/dev/null", "--pid=1", &argument])
        .stderr(Stdio::null());
    let long = host.start(0, GIB, &mut tail).pid();
    terminal.wait_for(&long.to_string());
    assert!(!terminal.text().contains("the-end"));
    terminal.keys("llllll");
    terminal.wait_for("the-end");
    terminal.keys("hhhhhhh");
    terminal.wait_for("tail -f");
    terminal.quit();
}

#[test]
fn a_paused_screen_says_so_stays_constant_and_resumes() {
    let mut host = Host::with_jitter(["H100"]);
    let pid = host.start_sleep(0, GIB).to_string();
    let mut terminal = Terminal::start_at(&host, 120, 24, ["--interval", "100ms"]);
    terminal.wait_for(&pid);
    terminal.keys("p");
    terminal.wait_for("PAUSED");
    let gpu = terminal.line_starting_with(" 0 H100");
    let new = host.start_sleep(0, GIB).to_string();
    terminal.wait_until("a pause of three seconds", |screen| {
        number_after(&screen.contents(), "PAUSED ").is_some_and(|seconds| seconds >= 3)
    });
    assert_eq!(terminal.line_starting_with(" 0 H100"), gpu);
    assert!(!terminal.text().contains(&new), "{}", terminal.text());
    // The end dialog resumes the screen: a signal needs current data.
    terminal.keys("x");
    terminal.wait_until_gone("PAUSED");
    terminal.wait_for("End process");
    terminal.keys(ESC);
    terminal.wait_until_gone("End process");
    terminal.wait_for(&new);
    terminal.keys("p");
    terminal.wait_for("PAUSED");
    terminal.keys("p");
    terminal.wait_until_gone("PAUSED");
    terminal.quit();
}

#[test]
fn pid_and_command_are_copied_to_the_clipboard() {
    let mut host = Host::with_jitter(["H100"]);
    let pid = host.start_sleep(0, GIB);
    let mut terminal = Terminal::start_at(&host, 100, 24, []);
    terminal.wait_for("sleep 1000");
    terminal.keys("Y");
    terminal.wait_for(&format!("copied the command of {pid}"));
    // `sleep 1000`, as base64.
    let has = |sequence: &[u8]| {
        terminal
            .bytes()
            .windows(sequence.len())
            .any(|window| window == sequence)
    };
    assert!(has(b"\x1b]52;c;c2xlZXAgMTAwMA==\x07"));
    terminal.keys("y");
    terminal.wait_for(&format!("copied {pid}"));
    terminal.quit();
}

#[test]
fn themes_differ_in_colours_only() {
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, 20 * GIB);
    let colours = |theme: &str| {
        let mut terminal = Terminal::start_at(&host, 100, 24, ["--theme", theme]);
        terminal.wait_for("sleep 1000");
        let bytes = String::from_utf8_lossy(&terminal.bytes()).into_owned();
        terminal.quit();
        // The parameters of styles; those of cursor movements look alike.
        let sequences = bytes
            .split("\x1b[")
            .filter_map(|rest| Some(rest.split_once('m')?.0));
        let is_style = |text: &&str| {
            text.bytes()
                .all(|byte| byte.is_ascii_digit() || byte == b';')
        };
        sequences.filter(is_style).collect::<Vec<_>>().join("\n;")
    };
    assert!(colours("terminal").contains(";2\n") && !colours("terminal").contains(";5;32"));
    let palettes = ["dark", "light", "safe", "nord"].map(colours);
    for (place, palette) in palettes.iter().enumerate() {
        assert!(palette.contains("38;5"), "{palette:?}");
        assert!(!palettes[..place].contains(palette), "{palette:?}");
    }
    let mono = colours("mono");
    assert!(
        !["38;5", "48;5", ";32", ";36"]
            .iter()
            .any(|colour| mono.contains(colour)),
        "{mono:?}"
    );
}

#[test]
fn the_plain_report_has_neither_columns_nor_colours() {
    let mut host = Host::new(["H100", "GTX-970"]);
    let pid = host.start_sleep(0, 2 * GIB);
    let output = host.run(["--plain"]);
    let text = output.text();
    assert_eq!(output.code, 0, "{text}{}", output.stderr);
    assert!(
        text.contains(&format!("Process {pid} of ")) && text.contains("memory 2.0 GiB"),
        "{text}"
    );
    assert!(
        text.contains("GPU 1, NVIDIA GeForce GTX 970:") && text.contains("power not reported"),
        "{text}"
    );
    assert!(
        text.chars()
            .all(|letter| letter.is_ascii_graphic() || letter == ' ' || letter == '\n'),
        "{text}"
    );
    assert!(
        !text.lines().any(|line| line.contains("  ")),
        "no columns: {text}"
    );
    // On a terminal, `--plain` prints and ends too.
    let mut terminal = Terminal::run(&mut host.gputop(["--plain"]), 80, 24);
    assert!(terminal.wait_for_exit().success());
    let bytes = terminal.bytes();
    assert!(
        !bytes.contains(&0x1b),
        "{}",
        String::from_utf8_lossy(&bytes)
    );
    assert_eq!(
        json(&host.run(["--json"]))["gpus"][1]["load"]["power_watts"],
        serde_json::Value::Null
    );
}
