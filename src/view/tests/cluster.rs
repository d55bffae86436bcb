//! The cluster view: what it says of a made-up cluster on screens of several sizes.

use super::*;
use crate::app::cluster::{ClusterApp, ClusterEffect, ClusterEvent, ClusterList};
use crate::app::layout::Area;
use crate::app::settings::ThemeName;
use crate::base::time::{ViewerClock, ViewerTime};
use crate::model::cluster::example::ExampleCluster;
use crate::view::draw_cluster;

/// 2026-11-27T12:04:00Z.
const NOON: u64 = 1_795_781_040_000;

/// The cluster view on a screen, before a made-up cluster.
struct ClusterScreen {
    app: ClusterApp,
    server: ExampleCluster,
}

impl ClusterScreen {
    /// Shows hosts of these names; `change` changes them before they are asked for.
    fn new(
        names: impl IntoIterator<Item = String>,
        (width, height): (u16, u16),
        change: impl FnOnce(&mut ExampleCluster),
    ) -> Self {
        let mut server = ExampleCluster::new(names);
        change(&mut server);
        let app = ClusterApp::new("prom:9090".to_owned(), "");
        let mut screen = Self { app, server };
        screen.update(ClusterEvent::Clock(ViewerClock {
            unix_ms: NOON,
            utc_offset: 0,
        }));
        screen.update(ClusterEvent::Resized(width, height));
        screen
    }

    /// Passes an event to the app, and answers its questions.
    fn update(&mut self, event: ClusterEvent) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for effect in self.app.update(event) {
                if let ClusterEffect::Ask(kind, number, questions) = effect {
                    let answers = self.server.answer(&questions);
                    events.insert(0, ClusterEvent::Answered(kind, number, Ok(answers)));
                }
            }
        }
    }

    /// Asks the server again, which fails with this sentence.
    fn fail(&mut self, sentence: &str) {
        let elapsed = ViewerTime::new(Duration::from_mins(1));
        for effect in self.app.update(ClusterEvent::Tick(elapsed)) {
            if let ClusterEffect::Ask(kind, number, _) = effect {
                let failure = Err(sentence.to_owned());
                let _effects = self
                    .app
                    .update(ClusterEvent::Answered(kind, number, failure));
            }
        }
    }

    fn press(&mut self, keys: &[KeyCode]) {
        for key in keys {
            self.update(ClusterEvent::Key(KeyEvent::from(*key)));
        }
    }

    /// The lines of the screen without the spaces at their ends.
    fn lines(&self) -> Vec<String> {
        let (width, height) = self.app.size;
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let theme = Theme::new(false, ColourDepth::Sixteen);
        terminal
            .draw(|frame| draw_cluster(frame.buffer_mut(), &theme, ThemeName::Dark, &self.app))
            .unwrap();
        let screen = terminal.backend().to_string();
        let lines = screen.lines().map(|line| line.trim_matches('"').trim_end());
        lines.map(ToOwned::to_owned).collect()
    }

    /// The first line that contains this text.
    #[track_caller]
    fn line(&self, text: &str) -> String {
        let lines = self.lines();
        let found = lines.iter().find(|line| line.contains(text));
        let found = found.unwrap_or_else(|| panic!("{text} in\n{}", lines.join("\n")));
        found.clone()
    }

    #[track_caller]
    fn check(&self, parts: &[&str]) {
        let screen = self.lines().join("\n");
        for part in parts {
            assert!(screen.contains(part), "{part} in\n{screen}");
        }
    }
}

fn host_names(count: usize) -> impl Iterator<Item = String> {
    (1..=count).map(|number| format!("gpu-{number:02}"))
}

/// Three hosts: GPU 3 of the second one is sick, and `nlp` uses the third one.
fn small_cluster(size: (u16, u16)) -> ClusterScreen {
    ClusterScreen::new(host_names(3), size, |server| {
        server.host("gpu-02").sick = vec![3];
        server.host("gpu-03").gpus = vec![Some("nlp"); 8];
    })
}

#[test]
fn eighty_columns_show_totals_a_trouble_and_a_row_for_each_host() {
    let screen = small_cluster((80, 24));
    let lines = screen.lines();
    assert!(
        lines[0].starts_with("gputop  prom:9090  3 hosts   1 sick   24 GPUs: 19 busy  4 free"),
        "{}",
        lines[0]
    );
    assert!(lines[0].ends_with(" 12:04"), "{}", lines[0]);
    assert_eq!(lines[1], " ! gpu-02:3   last Xid 79: fell off the bus");
    assert!(
        lines[2].starts_with(" HOST   GPU 01234567  FREE      MEMORY"),
        "{}",
        lines[2]
    );
    for (line, parts) in [
        (3, ["gpu-01     ██████··     2    363/640G", "vision 6"]),
        (4, ["gpu-02     ███x██··     2    363/640G", "vision 6"]),
        (5, ["gpu-03     ████████     0    484/640G", "nlp 8"]),
    ] {
        for part in parts {
            assert!(lines[line].contains(part), "{part}: {}", lines[line]);
        }
    }
    screen.check(&[
        " FREE  4 GPUs: gpu-01 2, gpu-02 2",
        " USERS vision 12, nlp 8",
        "Enter open the host  / filter",
    ]);
    // The host under the cursor, with its GPUs.
    let panel = screen.line("NVIDIA H100 80GB HBM3");
    assert!(panel.starts_with(" gpu-01  NVIDIA"), "{panel}");
    let gpus = lines.iter().filter(|line| line.contains("60.5/80G"));
    assert!(gpus.count() >= 6, "{}", lines.join("\n"));
    let gpu = screen.line("60.5/80G");
    for part in [" 0    █ ", "  97%", "650 W", "64°", "5s", "vision train-0"] {
        assert!(gpu.contains(part), "{part}: {gpu}");
    }
}

#[test]
fn a_wide_screen_has_the_power_and_the_past_of_the_host() {
    let screen = small_cluster((120, 40));
    let host = screen.line("██████··");
    assert!(host.contains("4.1 kW"), "{host}");
    screen.check(&[
        "POWER",
        "samples ≤ 5s old",
        " 1 sick ",
        "↑ SM  ↓ MEMORY",
        "last 1h00m",
    ]);
    let lines = screen.lines();
    let dots = |line: &str| {
        let letters = line.chars();
        letters
            .filter(|letter| ('\u{2801}'..='\u{28ff}').contains(letter))
            .count()
    };
    let curve: usize = lines.iter().map(|line| dots(line)).sum();
    assert!(curve >= 60, "{curve} dots in\n{}", lines.join("\n"));
}

#[test]
fn the_smallest_screen_shows_hosts_in_columns() {
    let screen = ClusterScreen::new(host_names(30), (40, 10), |server| {
        server.host("gpu-02").sick = vec![3];
    });
    let lines = screen.lines();
    assert_eq!(lines.len(), 10);
    assert!(
        lines[0].starts_with("gputop  30 hosts   1 sick"),
        "{}",
        lines[0]
    );
    assert_eq!(lines[1], " ! gpu-02:3   last Xid 79: fell off th…");
    assert!(
        lines[2].starts_with(" gpu-01 ██████··  gpu-"),
        "{}",
        lines[2]
    );
    screen.check(&["gpu-02 ███x██··", "more hosts"]);
    assert!(lines[9].starts_with("Enter open the host"), "{}", lines[9]);
}

/// The areas of the screen that have rows, from above to below.
fn areas(app: &ClusterApp) -> Vec<(&'static str, Area)> {
    let (all, fleet) = (&app.areas, &app.areas.fleet);
    let lists = match app.list {
        ClusterList::Hosts => vec![
            ("headings", fleet.headings),
            ("hosts", fleet.hosts),
            ("selected host", fleet.selected_host),
            ("free", fleet.free),
            ("users", fleet.users),
            ("panel", all.panel),
        ],
        ClusterList::AllGpus => vec![("gpus", all.gpus)],
    };
    let above = [("header", all.header), ("troubles", fleet.troubles)];
    let mut areas = [&above[..], &lists, &[("footer", all.footer)]].concat();
    areas.retain(|(_, area)| area.height > 0);
    areas
}

#[test]
fn no_line_of_any_screen_runs_into_another_one() {
    for size in [(40, 10), (80, 24), (120, 40), (200, 50)] {
        for hosts in [1, 3, 30, 200] {
            let mut screen_of = ClusterScreen::new(host_names(hosts), size, |server| {
                server.hosts[0].sick = (0..8).collect();
                server.warning = Some("results truncated due to limit");
            });
            for keys in [
                &[] as &[KeyCode],
                &[KeyCode::End],
                &[KeyCode::Tab],
                &[KeyCode::Esc, KeyCode::Char('a')],
                &[KeyCode::Char('a')],
            ] {
                screen_of.press(keys);
                let lines = screen_of.lines();
                let screen = lines.join("\n");
                assert_eq!(lines.len(), usize::from(size.1), "{screen}");
                assert!(lines[0].starts_with("gputop  pr"), "{screen}");
                let areas = areas(&screen_of.app);
                for (place, (name, area)) in areas.iter().enumerate() {
                    let end = area.y + area.height;
                    assert!(end <= size.1, "{name}: {area:?}\n{screen}");
                    for (other, below) in &areas[place + 1..] {
                        assert!(end <= below.y, "{name}, {other}\n{screen}");
                    }
                }
                // Nothing of a row is left below it.
                let last = &lines[lines.len() - 1];
                assert!(!last.contains('█') && !last.contains("gpu-"), "{screen}");
            }
        }
    }
}

#[test]
fn a_host_without_samples_says_so_in_its_row() {
    let mut screen = small_cluster((80, 24));
    screen.server.hosts.remove(0);
    screen.server.now += 45.0;
    screen.update(ClusterEvent::Tick(ViewerTime::new(Duration::from_secs(45))));
    let lines = screen.lines();
    assert!(
        lines[0].contains("3 hosts   1 sick   16 GPUs: 13 busy  2 free"),
        "{}",
        lines[0]
    );
    screen.check(&["! gpu-01     no samples for 45s"]);
    let row = lines.iter().find(|line| line.starts_with(" gpu-01  "));
    let row = row.unwrap_or_else(|| panic!("{}", lines.join("\n")));
    assert!(row.contains("no samples") && !row.contains('G'), "{row}");
}

#[test]
fn the_ages_of_gpus_grow_between_two_answers() {
    let mut screen = small_cluster((120, 40));
    let age = |screen: &ClusterScreen| {
        let gpu = screen.line("650 W").replace("vision", "|vision");
        let (before, _) = gpu.split_once('|').expect("vision uses it");
        before.split_whitespace().last().map(str::to_owned)
    };
    assert_eq!(age(&screen).as_deref(), Some("5s"));
    // The server does not answer.
    screen.fail("no answer");
    assert_eq!(age(&screen).as_deref(), Some("1m05s"));
    screen.check(&["≤ 1m05s old"]);
}

#[test]
fn a_long_sentence_of_the_server_is_cut_at_the_edge_and_the_hosts_stay() {
    let mut screen = small_cluster((80, 24));
    let reason = "many-to-many matching not allowed: matching labels must be unique on one side";
    screen.fail(&format!(
        "prom:9090 refuses the question (HTTP 422): {reason}"
    ));
    let line = screen.line("prom:9090 refuses");
    assert!(
        line.starts_with(" ! prom:9090 refuses the question (HTTP 422): m"),
        "{line}"
    );
    assert!(line.contains('…') && line.chars().count() <= 80, "{line}");
    screen.check(&["last Xid 79", "██████··", "for 0s"]);
    // The words of the server stand in no other line.
    let lines = screen.lines();
    let mentioned = lines.iter().filter(|line| line.contains("many-to-"));
    assert!(mentioned.count() <= 1, "{}", lines.join("\n"));
}

#[test]
fn without_hosts_a_sentence_of_the_server_is_wrapped() {
    for size in [(40, 10), (80, 24)] {
        let mut app = ClusterApp::new("prom:9090".to_owned(), "");
        let effects = app.update(ClusterEvent::Resized(size.0, size.1));
        let mut screen = ClusterScreen {
            app,
            server: ExampleCluster::new([]),
        };
        screen.check(&["asking prom:9090…"]);
        let [ClusterEffect::Ask(kind, number, _)] = effects[..] else {
            panic!("{effects:?}");
        };
        let sentence = "prom:9090 asks for a login, or refuses the given one: --http.config.file \
                        names a file with it (HTTP 401)";
        let failure = Err(sentence.to_owned());
        let _effects = screen
            .app
            .update(ClusterEvent::Answered(kind, number, failure));
        let words = screen.lines().join(" ");
        let words: Vec<&str> = words.split_whitespace().collect();
        assert!(
            words.join(" ").contains(sentence),
            "{}",
            screen.lines().join("\n")
        );
    }
}

#[test]
fn a_server_without_series_of_gpus_is_named() {
    let screen = ClusterScreen::new([], (80, 24), |_| ());
    let words = screen.lines().join(" ");
    let words: Vec<&str> = words.split_whitespace().collect();
    let words = words.join(" ");
    assert!(words.contains("prom:9090 "), "{words}");
    assert!(words.contains(" no "), "{words}");
}

#[test]
fn all_gpus_are_listed_with_their_hosts_and_users() {
    let mut screen = small_cluster((120, 40));
    screen.press(&[KeyCode::Char('a')]);
    let lines = screen.lines();
    assert!(lines[2].starts_with(" HOST   GPU"), "{}", lines[2]);
    assert!(lines[2].contains(" WHO"), "{}", lines[2]);
    let rows = lines.iter().filter(|line| line.contains("/80G"));
    assert_eq!(rows.count(), 24, "{}", lines.join("\n"));
    let sick = screen.line("gpu-02 3    x");
    assert!(
        sick.contains("60.5/80G") && sick.contains("vision train-0"),
        "{sick}"
    );
    screen.check(&["gpu-01 6    · "]);
}

#[test]
fn an_incomplete_answer_of_the_server_is_noted_in_the_last_line() {
    let screen = ClusterScreen::new(host_names(3), (120, 40), |server| {
        server.warning = Some("results truncated due to limit");
    });
    let lines = screen.lines();
    assert!(
        lines[39].contains("results truncated due to limit"),
        "{}",
        lines[39]
    );
}

#[test]
fn the_help_names_every_key() {
    let mut screen = small_cluster((80, 24));
    screen.press(&[KeyCode::Char('?')]);
    screen.check(&[
        "open the host with gputop, over your ssh",
        "list all GPUs, and back to the hosts",
        "ask the server now",
        "q, F10, Ctrl-C",
    ]);
}

#[test]
fn with_a_filter_the_last_line_keeps_the_keys_that_help_and_quit() {
    let mut screen = small_cluster((80, 24));
    let lines = screen.lines();
    assert!(
        lines
            .last()
            .unwrap()
            .ends_with("Tab troubles  ? help  q quit")
    );
    screen.press(&"/gpu-".chars().map(KeyCode::Char).collect::<Vec<_>>());
    screen.press(&[KeyCode::Enter]);
    let lines = screen.lines();
    let footer = lines.last().unwrap();
    assert!(
        footer.starts_with(" filter: gpu-  Enter open the host")
            && footer.ends_with("? help  q quit"),
        "{footer}"
    );
}
