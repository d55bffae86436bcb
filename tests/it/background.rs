//! The theme `auto`: the question for the terminal's background, and its replies, which are never
//! keys.

use std::process::Command;

use crate::host::{GIB, Host};
use crate::print_note;
use crate::process::exit_code;
use crate::terminal::{ATTRIBUTES, DOWN, ENTER, ESC, QUESTION, Terminal};

const LIGHT: &str = "\x1b]11;rgb:ffff/ffff/ffff";
const BEL: &str = "\x07";
const ST: &str = "\x1b\\";

/// The background of headings in the theme `light`.
const LIGHT_BAND: &[u8] = b"48;5;254";

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn host() -> Host {
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, 20 * GIB);
    host
}

/// gputop in a terminal that does not answer.
fn silent(host: &Host) -> Terminal {
    Terminal::run_answering(&mut host.gputop([]), 100, 24, "")
}

#[track_caller]
fn wait_for_light_bands(terminal: &Terminal) {
    terminal.wait_for_bytes("light bands", |bytes| contains(bytes, LIGHT_BAND));
}

/// Checks that the lists are on the screen, and nothing that a key would open.
#[track_caller]
fn assert_lists(terminal: &Terminal) {
    let text = terminal.text();
    let footer = text.lines().last().unwrap_or_default();
    let are_open = text.contains("MEM▼") && footer.starts_with("? help  / filter");
    assert!(are_open, "{text}");
}

/// Waits until the clock on the screen shows another second.
#[track_caller]
fn wait_for_next_second(terminal: &Terminal) {
    let first_line = |text: String| text.lines().next().map(str::to_owned);
    let before = first_line(terminal.text());
    terminal.wait_until("another second", |screen| {
        first_line(screen.contents()) != before
    });
}

#[test]
fn a_light_background_gives_the_light_theme() {
    let host = host();
    let answer = "\x1b]11;rgb:ffff/ffff/ffff\x1b\\\x1b[?62;22c";
    let mut terminal = Terminal::run_answering(&mut host.gputop([]), 100, 24, answer);
    terminal.wait_for("sleep 1000");
    wait_for_light_bands(&terminal);
    terminal.quit();
}

#[test]
fn without_a_light_background_the_default_is_the_theme_dark() {
    let host = host();
    for answer in ["\x1b]11;rgb:1e1e/1e1e/2e2e\x1b\\\x1b[?62;22c", ATTRIBUTES] {
        let mut terminal = Terminal::run_answering(&mut host.gputop([]), 100, 24, answer);
        terminal.wait_for("sleep 1000");
        wait_for_next_second(&terminal);
        assert!(!contains(&terminal.bytes(), LIGHT_BAND));
        terminal.quit();
    }
}

#[test]
fn colorfgbg_tells_the_background_until_the_terminal_does() {
    let host = host();
    let mut command = host.gputop([]);
    command.env("COLORFGBG", "0;15");
    let mut terminal = Terminal::run_answering(&mut command, 100, 24, "");
    terminal.wait_for("sleep 1000");
    assert!(contains(&terminal.bytes(), LIGHT_BAND));
    terminal.quit();
}

#[test]
fn a_theme_that_is_set_asks_nothing() {
    let host = host();
    let check = |command: &mut Command| {
        let mut terminal = Terminal::run_answering(command, 100, 24, "");
        terminal.wait_for("sleep 1000");
        let question = terminal.bytes();
        assert!(!contains(&question, b"\x1b]11") && !contains(&question, b"\x1b[c"));
        // A reply that nobody asked for is swallowed all the same.
        for end in [BEL, ST] {
            terminal.keys(&format!("{LIGHT}{end}{ATTRIBUTES}"));
            terminal.wait_until_read();
        }
        wait_for_next_second(&terminal);
        assert_lists(&terminal);
        assert!(!contains(&terminal.bytes(), LIGHT_BAND));
        terminal.quit();
    };
    check(&mut host.gputop(["--theme", "terminal"]));
    check(host.gputop([]).env("GPUTOP_THEME", "safe"));
    std::fs::create_dir_all(host.path("config/gputop")).expect("the directory is ours");
    std::fs::write(host.path("config/gputop/config.toml"), "theme = \"mono\"\n")
        .expect("the directory is ours");
    check(&mut host.gputop([]));
}

#[test]
fn a_theme_that_is_chosen_in_the_settings_panel_asks_once() {
    let host = host();
    let mut terminal = Terminal::start(&host, ["--theme", "terminal"]);
    terminal.wait_for("sleep 1000");
    terminal.keys("\x1bOQ");
    terminal.wait_for("theme");
    let questions = |bytes: &[u8]| {
        let is_question = |window: &&[u8]| *window == QUESTION;
        bytes.windows(QUESTION.len()).filter(is_question).count()
    };
    assert_eq!(questions(&terminal.bytes()), 0);
    // All themes, twice.
    let after = [
        "safe",
        "mono",
        "catppuccin",
        "catppuccin-latte",
        "gruvbox",
        "gruvbox-light",
        "nord",
        "solarized",
        "solarized-light",
        "dracula",
        "alucard",
        "tokyo-night",
        "tokyo-night-day",
        "auto",
        "dark",
        "light",
        "terminal",
    ];
    for name in after.repeat(2) {
        terminal.keys(" ");
        terminal.wait_for(&format!("({name})"));
    }
    assert_eq!(questions(&terminal.bytes()), 1);
    terminal.keys(ESC);
    terminal.wait_until_gone("Settings");
    terminal.quit();
}

#[test]
fn a_reply_in_two_pieces_is_no_key_wherever_it_is_cut() {
    let host = host();
    for end in [BEL, ST] {
        let mut terminal = silent(&host);
        terminal.wait_for("sleep 1000");
        assert!(!contains(&terminal.bytes(), LIGHT_BAND));
        let reply = format!("{LIGHT}{end}{ATTRIBUTES}");
        // The first piece may arrive with the question open or not: there is an end mark in the
        // first reply.
        for cut in 1..reply.len() {
            terminal.keys(&reply[..cut]);
            terminal.wait_until_read();
            terminal.keys(&reply[cut..]);
            terminal.wait_until_read();
            assert_lists(&terminal);
        }
        wait_for_light_bands(&terminal);
        wait_for_next_second(&terminal);
        assert_lists(&terminal);
        terminal.quit();
    }
}

#[test]
fn a_late_reply_repaints_the_screen_and_leaves_the_open_page_open() {
    let host = host();
    let mut terminal = silent(&host);
    terminal.wait_for("sleep 1000");
    terminal.keys(DOWN);
    terminal.keys(ENTER);
    terminal.wait_until_gone("COMMAND");
    // `ESC` is held back: it would close the page.
    terminal.keys(ESC);
    wait_for_next_second(&terminal);
    assert!(!terminal.text().contains("COMMAND"), "{}", terminal.text());
    terminal.keys(&format!("{}{BEL}", &LIGHT[1..]));
    wait_for_next_second(&terminal);
    assert!(!terminal.text().contains("COMMAND"), "{}", terminal.text());
    // The end mark ends the wait for replies: Esc acts at once.
    terminal.keys(ATTRIBUTES);
    terminal.keys(ESC);
    terminal.wait_for("COMMAND");
    wait_for_light_bands(&terminal);
    terminal.quit();
}

#[test]
fn keys_act_after_a_reply_that_never_ends() {
    let host = host();
    for begun in [LIGHT, "\x1b]11;rgb:ff", "\x1b[?62;", "\x1b]", "\x1b[?"] {
        let mut terminal = silent(&host);
        terminal.wait_for("sleep 1000");
        terminal.keys(begun);
        // A key that is read together with the reply would be taken for a part of it.
        wait_for_next_second(&terminal);
        terminal.keys("q");
        assert_eq!(exit_code(terminal.wait_for_exit()), 0, "{begun:?}");
    }
}

#[test]
fn no_reply_is_left_for_the_shell() {
    let host = host();
    let mut terminal = silent(&host);
    terminal.wait_for_bytes("a question", |bytes| contains(bytes, QUESTION));
    // The reply is under way when gputop is told to quit.
    terminal.keys("q");
    terminal.keys(&format!("{LIGHT}{ST}"));
    terminal.keys(ATTRIBUTES);
    assert_eq!(exit_code(terminal.wait_for_exit()), 0);
    terminal.wait_until_restored();
    assert_eq!(terminal.unread(), 0);
}

#[test]
fn inside_tmux_a_reply_is_no_key() {
    if Command::new("tmux").arg("-V").output().is_err() {
        print_note("skipped: tmux is not installed");
        return;
    }
    let host = host();
    let (socket, settings) = (host.path("tmux"), host.path("tmux.conf"));
    let lines = [
        "set -s exit-unattached on",
        "set -g escape-time 0",
        "set -g status off",
        "set -g default-terminal tmux-256color",
        "set -g window-style bg=#ffffff",
    ];
    std::fs::write(&settings, lines.join("\n")).expect("the directory is ours");
    let mut tmux = Command::new("tmux");
    host.set_environment(&mut tmux)
        .arg("-S")
        .arg(&socket)
        .arg("-f")
        .arg(&settings)
        .arg("new-session")
        .arg(env!("CARGO_BIN_EXE_gputop"));
    let mut terminal = Terminal::run(&mut tmux, 100, 30);
    terminal.wait_for("sleep 1000");
    wait_for_light_bands(&terminal);
    for end in [BEL, ST] {
        let reply = format!("{LIGHT}{end}{ATTRIBUTES}");
        for cut in 1..reply.len() {
            terminal.keys(&reply[..cut]);
            terminal.wait_until_read();
            terminal.keys(&reply[cut..]);
            terminal.wait_until_read();
        }
        wait_for_next_second(&terminal);
        assert_lists(&terminal);
    }
    terminal.keys("q");
    assert_eq!(exit_code(terminal.wait_for_exit()), 0);
}
