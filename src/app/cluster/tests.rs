//! Tests of the cluster view's state: what is asked when, and what keys do.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::*;
use crate::base::text::Text;
use crate::model::cluster::example::ExampleCluster;

/// The cluster view before a made-up cluster, and what it wants.
struct ClusterLab {
    app: ClusterApp,
    server: ExampleCluster,
    /// The questions that are not answered.
    asked: Vec<(RoundKind, u64, Vec<SeriesQuestion>)>,
    /// The other effects.
    effects: Vec<ClusterEffect>,
}

impl ClusterLab {
    /// A screen of this size, whose first questions are answered.
    fn new(names: &[&str], size: (u16, u16)) -> Self {
        let mut lab = Self::unanswered(names, size);
        lab.answer();
        lab
    }

    fn unanswered(names: &[&str], (width, height): (u16, u16)) -> Self {
        let mut lab = Self {
            app: ClusterApp::new("prom:9090".to_owned(), ""),
            server: ExampleCluster::new(names.iter().map(ToString::to_string)),
            asked: Vec::new(),
            effects: Vec::new(),
        };
        lab.update(ClusterEvent::Resized(width, height));
        lab
    }

    fn update(&mut self, event: ClusterEvent) {
        for effect in self.app.update(event) {
            match effect {
                ClusterEffect::Ask(kind, number, questions) => {
                    self.asked.push((kind, number, questions));
                }
                effect => self.effects.push(effect),
            }
        }
    }

    /// Answers all questions, and those that follow from the answers.
    fn answer(&mut self) {
        for _ in 0..100 {
            if self.asked.is_empty() {
                return;
            }
            let (kind, number, questions) = self.asked.remove(0);
            let answers = self.server.answer(&questions);
            self.update(ClusterEvent::Answered(kind, number, Ok(answers)));
        }
        panic!("the questions do not end: {:?}", self.asked);
    }

    /// Fails all questions.
    fn fail(&mut self, sentence: &str) {
        for (kind, number, _) in std::mem::take(&mut self.asked) {
            let failure = Err(sentence.to_owned());
            self.update(ClusterEvent::Answered(kind, number, failure));
        }
    }

    fn pass(&mut self, milliseconds: u64) {
        let elapsed = ViewerTime::new(Duration::from_millis(milliseconds));
        self.server.now += elapsed.duration().as_secs_f64();
        self.update(ClusterEvent::Tick(elapsed));
    }

    fn press(&mut self, key: KeyCode) {
        self.update(ClusterEvent::Key(KeyEvent::from(key)));
    }

    fn press_control(&mut self, letter: char) {
        let key = KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL);
        self.update(ClusterEvent::Key(key));
    }

    fn write(&mut self, text: &str) {
        for letter in text.chars() {
            self.press(KeyCode::Char(letter));
        }
    }

    /// The kinds of the questions that are not answered.
    fn kinds(&self) -> Vec<RoundKind> {
        self.asked.iter().map(|(kind, ..)| *kind).collect()
    }

    /// The hosts in their order.
    fn hosts(&self) -> Vec<&str> {
        let hosts = self.app.hosts.iter();
        hosts.map(|host| host.name.as_str()).collect()
    }

    /// The host under the cursor.
    fn selected(&self) -> &str {
        let host = self.app.selected_host().expect("there are hosts");
        host.name.as_str()
    }
}

const THREE: [&str; 3] = ["gpu-1", "gpu-2", "gpu-3"];

#[test]
fn the_first_event_asks_which_exporters_there_are() {
    let lab = ClusterLab::unanswered(&THREE, (80, 24));
    let [(kind, number, questions)] = &lab.asked[..] else {
        panic!("{:?}", lab.asked);
    };
    assert_eq!((*kind, *number), (RoundKind::Totals, 1));
    for question in questions {
        let expression = &question.expression;
        assert!(expression.starts_with("label_replace("), "{expression}");
    }
    assert!(lab.app.awaits(RoundKind::Totals));
}

#[test]
fn the_answers_give_hosts_with_their_figures_gpus_and_past() {
    let lab = ClusterLab::new(&["gpu-2", "gpu-10", "gpu-1"], (80, 24));
    assert_eq!(lab.hosts(), ["gpu-1", "gpu-2", "gpu-10"]);
    let row = lab.app.row(&lab.app.hosts[0]).expect("the host is known");
    assert_eq!((row.figures.gpus, row.figures.free), (8, Some(2)));
    assert_eq!((row.cells.len(), row.silence), (8, None));
    let [(user, 6, Some(_))] = &row.users[..] else {
        panic!("{:?}", row.users);
    };
    assert_eq!(user.as_str(), "vision");
    assert_eq!(row.jobs, [Text::from("train-0")]);
    let host = lab.app.cluster.host(&lab.app.hosts[0]);
    let past = host.and_then(|host| host.past.as_ref());
    assert_eq!(past.map(|past| past.sm.len()), Some(61));
    let totals = &lab.app.totals;
    assert_eq!((totals.hosts, totals.gpus, totals.free), (3, 24, 6));
    assert_eq!((totals.silent, totals.unknown, totals.sick), (0, 0, 0));
    assert_eq!(totals.age, Some(Duration::from_secs(5)));
    assert!(lab.app.server_trouble.is_none());
}

/// The hosts that the questions of the last round of a kind name.
fn named(lab: &ClusterLab, kind: RoundKind) -> Vec<&str> {
    let mut rounds = lab.asked.iter().rev();
    let found = rounds.find(|(known, ..)| *known == kind);
    let (.., questions) = found.unwrap_or_else(|| panic!("{kind:?} in {:?}", lab.kinds()));
    let (_, pattern) = questions[0]
        .expression
        .split_once("Hostname=~\"")
        .expect("the question names hosts");
    let (pattern, _) = pattern.split_once('"').expect("the pattern ends");
    pattern.split('|').collect()
}

#[test]
fn rows_are_asked_for_the_hosts_on_the_screen_only_and_again_after_scrolling() {
    let names: Vec<String> = (1000..1200).map(|number| format!("n{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut lab = ClusterLab::new(&names, (80, 24));
    assert_eq!(lab.hosts().len(), 200);
    let capacity = lab.app.areas.fleet.capacity();
    assert!((20..150).contains(&capacity), "{capacity}");
    lab.press(KeyCode::Down);
    assert_eq!(lab.kinds(), [], "the same hosts are on the screen");
    lab.press(KeyCode::End);
    assert_eq!(lab.kinds(), [RoundKind::Rows, RoundKind::Past]);
    for kind in [RoundKind::Rows, RoundKind::Past] {
        let asked = named(&lab, kind);
        assert!(asked.len() <= capacity, "{asked:?}");
        assert!(
            asked.contains(&"n1199") && !asked.contains(&"n1000"),
            "{asked:?}"
        );
    }
    lab.answer();
    let cells = |lab: &ClusterLab, place: usize| {
        let row = lab.app.row(&lab.app.hosts[place]);
        row.expect("the host is known").cells.len()
    };
    assert_eq!(cells(&lab, 199), 8);
    assert_eq!(
        cells(&lab, 0),
        8,
        "they stay, and are asked for again when shown"
    );
    lab.press(KeyCode::Home);
    assert!(named(&lab, RoundKind::Rows).contains(&"n1000"));
}

#[test]
fn a_failure_keeps_the_hosts_and_says_its_sentence_until_an_answer_arrives() {
    let mut lab = ClusterLab::new(&THREE, (80, 24));
    lab.press_control('r');
    lab.fail("prom:9090 did not answer within 20 s");
    assert_eq!(lab.hosts(), THREE);
    let sentence = |lab: &ClusterLab| {
        let trouble = lab.app.server_trouble.as_ref();
        trouble.map(|trouble| trouble.sentence.clone())
    };
    let expected = "prom:9090 did not answer within 20 s";
    assert_eq!(sentence(&lab).as_deref(), Some(expected));
    assert_eq!(lab.app.trouble_count(), 1);
    assert_eq!(
        lab.app
            .cluster
            .silence(lab.app.cluster.hosts().next().unwrap().1),
        None
    );
    lab.pass(4000);
    let age = lab.app.server_trouble.as_ref().map(|trouble| trouble.age);
    assert_eq!(age, Some(ViewerTime::new(Duration::from_secs(4))));
    lab.press_control('r');
    lab.answer();
    assert_eq!(sentence(&lab), None);
}

#[test]
fn nothing_is_asked_twice_while_it_is_not_answered() {
    let mut lab = ClusterLab::new(&THREE, (80, 24));
    for _ in 0..10 {
        lab.pass(15_000);
        lab.press_control('r');
    }
    assert_eq!(lab.kinds(), [RoundKind::Totals]);
    // The answer to an old question changes nothing.
    lab.update(ClusterEvent::Answered(RoundKind::Totals, 1, Ok(Vec::new())));
    assert!(lab.app.awaits(RoundKind::Totals));
    assert_eq!(lab.hosts(), THREE);
}

#[test]
fn the_next_round_comes_after_15_seconds_or_the_time_between_samples() {
    for (samples, milliseconds) in [(120.0, 15_000), (8.0, 15_000), (4.0, 30_000)] {
        let mut lab = ClusterLab::unanswered(&THREE, (80, 24));
        lab.server.samples = samples;
        lab.answer();
        // The interval is known from the first answer with samples on.
        lab.press_control('r');
        lab.answer();
        lab.pass(milliseconds - 1);
        assert_eq!(lab.kinds(), [], "{samples}");
        lab.pass(1);
        assert_eq!(lab.kinds(), [RoundKind::Totals], "{samples}");
        // The rows on the screen are asked for again once the totals are there.
        let (kind, number, questions) = lab.asked.remove(0);
        let answers = lab.server.answer(&questions);
        lab.update(ClusterEvent::Answered(kind, number, Ok(answers)));
        assert_eq!(lab.kinds(), [RoundKind::Rows, RoundKind::Past]);
    }
}

#[test]
fn a_host_that_the_server_does_not_know_any_more_keeps_its_place_without_samples() {
    let mut lab = ClusterLab::new(&THREE, (80, 24));
    lab.server.hosts.remove(1);
    lab.pass(30_000);
    lab.answer();
    assert_eq!(lab.hosts(), THREE);
    let row = lab.app.row(&lab.app.hosts[1]).expect("the host is known");
    assert_eq!(row.silence, Some(Duration::from_secs(30)));
    let totals = &lab.app.totals;
    assert_eq!((totals.hosts, totals.silent, totals.gpus), (3, 1, 16));
    let free: Vec<(&str, usize)> = lab.app.free_gpus().collect();
    assert_eq!(free, [("gpu-1", 2), ("gpu-3", 2)]);
    let [trouble] = &lab.app.troubles[..] else {
        panic!("{:?}", lab.app.troubles);
    };
    assert_eq!(trouble.sentence, "no samples for 30s");
}

#[test]
fn the_filter_finds_names_users_models_and_states_and_its_keys_are_text() {
    let mut lab = ClusterLab::new(&["gpu-1", "gpu-2", "quiet-3"], (80, 24));
    lab.server.host("gpu-2").gpus = vec![Some("nlp"); 8];
    lab.press_control('r');
    lab.answer();
    lab.press(KeyCode::Char('/'));
    lab.write("q");
    assert_eq!(lab.effects, [], "q is a letter here");
    assert_eq!(lab.hosts(), ["quiet-3"]);
    lab.press(KeyCode::Esc);
    assert_eq!(lab.app.mode, ClusterMode::Lists);
    assert_eq!(lab.hosts().len(), 3);
    for (words, expected) in [
        ("NLP", &["gpu-2"] as &[&str]),
        ("h100", &["gpu-1", "gpu-2", "quiet-3"]),
        ("free gpu", &["gpu-1"]),
        ("nothing", &[]),
    ] {
        lab.press(KeyCode::Char('/'));
        lab.write(words);
        lab.press(KeyCode::Enter);
        assert_eq!(lab.hosts(), expected, "{words}");
        lab.press(KeyCode::Esc);
    }
    lab.press(KeyCode::Char('/'));
    lab.update(ClusterEvent::Paste("gpu-2\n\x1b".to_owned()));
    assert_eq!(lab.app.filter.value(), "gpu-2");
    assert_eq!(lab.hosts(), ["gpu-2"]);
    lab.press_control('c');
    assert_eq!(lab.effects, [ClusterEffect::Quit]);
}

#[test]
fn all_gpus_are_asked_for_and_listed_at_a() {
    let mut lab = ClusterLab::new(&THREE, (80, 24));
    lab.press(KeyCode::Char('a'));
    assert_eq!(lab.kinds(), [RoundKind::AllGpus]);
    for (.., questions) in &lab.asked {
        for question in questions {
            assert!(!question.expression.contains("=~\""), "{question:?}");
        }
    }
    lab.answer();
    assert_eq!(
        (lab.app.list, lab.app.gpus.len()),
        (ClusterList::AllGpus, 24)
    );
    let row = lab.app.gpu_row(8).expect("the GPU is known");
    assert_eq!((row.host, row.gpu.label().as_str()), ("gpu-2", "0"));
    lab.press(KeyCode::End);
    assert_eq!(lab.selected(), "gpu-3");
    lab.press(KeyCode::Esc);
    assert_eq!(lab.app.list, ClusterList::Hosts);
}

#[test]
fn enter_opens_the_host_under_the_cursor() {
    let mut lab = ClusterLab::new(&["gpu-1", "gpu-2.example.org", "fd00::7"], (80, 24));
    assert_eq!(lab.hosts(), ["fd00::7", "gpu-1", "gpu-2.example.org"]);
    for _ in 0..3 {
        lab.press(KeyCode::Enter);
        lab.press(KeyCode::Down);
    }
    let opened = ["fd00::7", "gpu-1", "gpu-2.example.org"];
    assert_eq!(
        lab.effects,
        opened.map(|host| ClusterEffect::Open(host.to_owned()))
    );
}

#[test]
fn a_name_that_ssh_could_take_for_something_else_is_not_opened() {
    let long = "x".repeat(254);
    for name in [
        "-oProxyCommand=x",
        "a b",
        "root@x",
        "x;reboot",
        "$(reboot)",
        "a/b",
        "[fd00::7]",
        ".x",
        "ü",
        "",
        &long,
    ] {
        let mut lab = ClusterLab::new(&[name, "zz"], (80, 24));
        lab.press(KeyCode::Home);
        if lab.hosts().contains(&name) {
            while lab.selected() != name {
                lab.press(KeyCode::Down);
            }
            lab.press(KeyCode::Enter);
            assert_eq!(lab.effects, [], "{name}");
            let notice = lab.app.notice.text().unwrap_or_default();
            assert!(notice.starts_with("cannot open it"), "{name}: {notice}");
        } else {
            assert_eq!(name, "", "an empty label names no host");
        }
    }
}

#[test]
fn tab_leads_to_the_troubles_where_enter_opens_the_host() {
    let mut lab = ClusterLab::new(&THREE, (80, 24));
    lab.press(KeyCode::Tab);
    assert!(!lab.app.is_in_troubles, "there is none");
    lab.server.host("gpu-2").sick = vec![3];
    lab.server.host("gpu-3").sick = vec![0, 1];
    lab.press_control('r');
    lab.answer();
    assert_eq!(lab.app.trouble_count(), 2);
    lab.press(KeyCode::Tab);
    lab.press(KeyCode::Down);
    lab.press(KeyCode::Enter);
    assert_eq!(lab.effects, [ClusterEffect::Open("gpu-3".to_owned())]);
    // The server's own trouble is the first line, and no host.
    lab.press_control('r');
    lab.fail("prom:9090 failed (HTTP 500)");
    lab.press(KeyCode::Home);
    lab.press(KeyCode::Enter);
    assert_eq!(lab.effects.len(), 1, "{:?}", lab.effects);
    lab.press(KeyCode::Down);
    lab.press(KeyCode::Enter);
    assert_eq!(lab.effects[1..], [ClusterEffect::Open("gpu-2".to_owned())]);
}

#[test]
fn the_cursor_stays_on_its_host_when_another_one_comes() {
    let mut lab = ClusterLab::new(&["gpu-2", "gpu-4"], (80, 24));
    lab.press(KeyCode::Down);
    assert_eq!(lab.selected(), "gpu-4");
    let more = ExampleCluster::new(["gpu-1".to_owned(), "gpu-3".to_owned()]).hosts;
    lab.server.hosts.extend(more);
    lab.pass(15_000);
    lab.answer();
    assert_eq!(lab.hosts(), ["gpu-1", "gpu-2", "gpu-3", "gpu-4"]);
    assert_eq!(lab.selected(), "gpu-4");
}

#[test]
fn the_hosts_are_sorted_by_free_gpus_memory_and_trouble() {
    let mut lab = ClusterLab::new(&THREE, (80, 24));
    lab.server.host("gpu-2").gpus = vec![None; 8];
    lab.server.host("gpu-3").sick = vec![7];
    lab.press_control('r');
    lab.answer();
    for expected in [
        ["gpu-2", "gpu-1", "gpu-3"],
        ["gpu-1", "gpu-3", "gpu-2"],
        ["gpu-1", "gpu-3", "gpu-2"],
        ["gpu-1", "gpu-3", "gpu-2"],
        ["gpu-3", "gpu-1", "gpu-2"],
        ["gpu-1", "gpu-2", "gpu-3"],
    ] {
        lab.press(KeyCode::Char('s'));
        assert_eq!(lab.hosts(), expected, "{}", lab.app.sort);
    }
    lab.press(KeyCode::Char('i'));
    assert_eq!(lab.hosts(), ["gpu-3", "gpu-2", "gpu-1"]);
}

#[test]
fn q_quits_and_the_help_takes_any_key() {
    let mut lab = ClusterLab::new(&THREE, (80, 24));
    lab.press(KeyCode::Char('?'));
    assert_eq!(lab.app.mode, ClusterMode::Help);
    lab.press(KeyCode::Char('q'));
    assert_eq!(
        (lab.app.mode, &lab.effects[..]),
        (ClusterMode::Lists, &[] as &[_])
    );
    lab.press(KeyCode::Char('q'));
    assert_eq!(lab.effects, [ClusterEffect::Quit]);
}
