//! Whole screens, each as a file in `tests/data/screens`, so that a shifted column is a difference.

use std::path::Path;
use std::{env, fs};

use super::*;

/// The command that writes the files anew.
const UPDATE: &str = "GPUTOP_UPDATE_SCREENS=1 cargo test --lib screens";

/// Compares the screen with its file, or writes the file.
pub(super) fn check(name: &str, app: &App, width: u16, height: u16) {
    let drawn: String = screen(Theme::new(false, ColourDepth::Sixteen), app, width, height)
        .lines()
        .filter_map(|line| line.strip_prefix('"')?.strip_suffix('"'))
        .map(|line| line.trim_end().to_owned() + "\n")
        .collect();
    let file = format!("tests/data/screens/{name}.txt");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(&file);
    if env::var_os("GPUTOP_UPDATE_SCREENS").is_some_and(|value| value == "1") {
        fs::write(path, drawn).unwrap();
        return;
    }
    let kept = fs::read_to_string(path).unwrap_or_default();
    let (kept, drawn): (Vec<&str>, Vec<&str>) = (kept.lines().collect(), drawn.lines().collect());
    for place in 0..kept.len().max(drawn.len()) {
        let line = |lines: &[&str]| lines.get(place).map_or("(no line)", |line| line).to_owned();
        let (kept, drawn) = (line(&kept), line(&drawn));
        assert_eq!(
            kept,
            drawn,
            "line {} of {file} differs from the screen. If the screen is right, write its file: {UPDATE}",
            place + 1
        );
    }
}

#[test]
fn a_small_screen_lists_eight_gpus_and_their_processes() {
    check("eight_gpus", &app(80, 24, &[]), 80, 24);
}

#[test]
fn a_larger_screen_has_tiles_a_graph_and_news() {
    let mut app = app(120, 40, &[]);
    let host = app.fleet().host(HostKey::FIRST).unwrap();
    let ended = host.latest().unwrap().later(1).without(1000);
    app.update(Event::Line(
        HostKey::FIRST,
        Box::new(Line::Full(Box::new(ended))),
    ));
    check("tiles_graph_news", &app, 120, 40);
}

#[test]
fn the_page_of_a_process_has_the_parts_of_its_memory() {
    let mut app = with_allocator(100, &[KeyCode::Enter]);
    app.update(Event::Resized(100, 30));
    check("process_page", &app, 100, 30);
}
