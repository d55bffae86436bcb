//! The fleet view: what it says of eight hosts, and that it holds any number of hosts.

mod end_of_job;
mod jobs;

use super::*;
use crate::base::time::{ViewerClock, ViewerTime};
use crate::model::{Fleet, HostLabel};
use crate::protocol::snapshot::Xid;

/// 2026-07-14T12:04:00Z.
const NOON: u64 = 1_784_030_640_000;

/// A lab: hosts by their names, and their latest lines.
struct Lab {
    app: App,
    hosts: Vec<Snapshot>,
}

impl Lab {
    /// Hosts of these names, each with eight GPUs, on a screen of this size. None has sent a line.
    fn new(names: &[String], (width, height): (u16, u16)) -> Self {
        let mut fleet = Fleet::default();
        for (key, name) in (0..).zip(names) {
            let label = HostLabel {
                name: Some(name.as_str().into()),
                source: "ssh".into(),
            };
            fleet.set_label(HostKey(key), label);
        }
        let mut app = App::with_hosts(AppOptions::default(), fleet);
        app.update(Event::Resized(width, height));
        let hosts = names.iter().map(|name| {
            let mut at = host(8);
            at.host.facts.name = name.as_str().into();
            at.unix_ms = NOON;
            for gpu in &mut at.gpus {
                gpu.health.pcie_quiet = Ok(false);
                gpu.load.sm = Ok(Percent::new(0.0));
                gpu.load.power = Ok(Watts::from_milliwatts(110_000));
            }
            at
        });
        Self {
            hosts: hosts.collect(),
            app,
        }
    }

    /// Puts a process of a user on GPUs of a host. They compute.
    fn run(&mut self, host: usize, pid: u32, user: &str, gpus: &[usize], memory: Bytes) {
        let mut at = self.hosts[host].clone();
        for gpu in gpus {
            at = at.with(pid, "python train.py", *gpu, memory);
            at.gpus[*gpu].load.sm = Ok(Percent::new(98.0));
            at.gpus[*gpu].load.power = Ok(Watts::from_milliwatts(650_000));
        }
        let process = at
            .processes
            .iter_mut()
            .find(|process| process.id.pid == pid);
        let facts = process.expect("it is there").facts_mut();
        (facts.user, facts.uid) = (Ok(user.into()), Ok(1000 + pid));
        self.hosts[host] = at;
    }

    /// Lets seconds pass, after which each host but these sends a line.
    fn pass(&mut self, seconds: u64, silent: &[usize]) {
        let unix_ms = self.hosts[0].unix_ms + 1000 * seconds;
        let utc_offset = 0;
        let elapsed = ViewerTime::new(Duration::from_secs(seconds));
        self.app.update(Event::Tick(elapsed));
        self.app.update(Event::Clock(ViewerClock {
            unix_ms,
            utc_offset,
        }));
        for (key, at) in self.hosts.iter_mut().enumerate() {
            let is_silent = silent.contains(&key);
            *at = at.later(seconds);
            if is_silent {
                continue;
            }
            let line = Line::Full(Box::new(at.clone()));
            let key = HostKey(u16::try_from(key).expect("few hosts"));
            self.app.update(Event::Line(key, Box::new(line)));
        }
    }

    fn press(&mut self, keys: &[KeyCode]) {
        for key in keys {
            self.app.update(Event::Key(KeyEvent::from(*key)));
        }
    }

    fn lines(&self) -> Vec<String> {
        let (width, height) = self.app.size;
        let screen = screen(
            Theme::new(false, ColourDepth::Sixteen),
            &self.app,
            width,
            height,
        );
        screen
            .lines()
            .map(|line| line.trim_matches('"').trim_end().to_owned())
            .collect()
    }

    #[track_caller]
    fn line(&self, beginning: &str) -> String {
        let lines = self.lines();
        let found = lines.iter().find(|line| line.starts_with(beginning));
        found
            .unwrap_or_else(|| panic!("{beginning}:\n{}", lines.join("\n")))
            .clone()
    }
}

fn names(count: usize, width: usize) -> Vec<String> {
    (1..=count)
        .map(|number| format!("gpu-{number:0width$}"))
        .collect()
}

/// The eight hosts of the mock-up: one with a lost GPU, one with a leak, one that no data comes
/// from, and one whose user holds four GPUs idle.
fn eight_hosts(size: (u16, u16)) -> Lab {
    let mut lab = Lab::new(&names(8, 2), size);
    let gib = Bytes::from_gib;
    lab.run(2, 4711, "bob", &[0, 1, 2, 3], gib(61));
    lab.run(2, 4712, "alice", &[5, 6, 7], gib(59));
    lab.run(1, 88, "alice", &[0, 1, 2, 3, 4, 5, 6, 7], gib(64));
    for process in &mut lab.hosts[1].processes {
        process.facts_mut().origin = Ok("slurm 4242".into());
    }
    lab.run(3, 99, "carol", &[0, 1, 2, 3], gib(53));
    for gpu in &mut lab.hosts[3].gpus[..4] {
        gpu.load.sm = Ok(Percent::new(0.0));
        gpu.health.pcie_quiet = Ok(true);
    }
    lab.run(5, 7, "dave", &[0, 1], gib(9));
    lab.run(6, 8, "dave", &[0, 1, 2, 3, 4, 5, 6], gib(76));
    lab.run(0, 9, "erin", &[0, 1, 2, 3, 4, 5, 6, 7], gib(30));
    for _ in 0..70 {
        lab.pass(30, &[]);
    }
    let at = lab.hosts[2].at;
    lab.hosts[2].gpus[5].health.xids.push(Xid { at, code: 79 });
    for _ in 0..13 {
        lab.pass(10, &[5]);
    }
    lab
}

#[test]
fn eight_hosts_fit_a_screen_of_80x24_with_their_troubles_figures_and_users() {
    let lab = eight_hosts((80, 24));
    screens::check("fleet_80x24", &lab.app, 80, 24);
    let lab = eight_hosts((120, 40));
    screens::check("fleet_120x40", &lab.app, 120, 40);
}

#[test]
fn the_first_line_counts_each_gpu_once_and_has_the_time_of_the_viewer() {
    let lab = eight_hosts((80, 24));
    let line = &lab.lines()[0];
    for words in [
        "8 hosts  64 GPUs: 33 busy (4 held)",
        "22 free",
        "1 sick",
        "8 unknown",
    ] {
        assert!(line.contains(words), "{words}: {line}");
    }
    assert!(line.ends_with(" 12:41"), "{line}");
}

#[test]
fn the_first_line_of_a_wide_screen_has_the_gpu_hours_of_held_gpus() {
    let lab = eight_hosts((120, 40));
    let line = &lab.lines()[0];
    assert!(line.contains("(4 held for ≥2.4 GPU-hours)"), "{line}");
}

#[test]
fn troubles_come_first_each_with_its_place_its_user_and_its_time() {
    let lab = eight_hosts((120, 40));
    let troubles = lab.lines()[1..4].join("\n");
    let expected = "\
x gpu-03:5   Xid 79 since 12:39; alice's 4712 train.py holds 59.0 GiB
? gpu-06     no word from the agent for 2m10s
h gpu-04:0-3 carol's 99 train.py: 212 GiB, 0 % for ≥ 0h36 (seen since 12:04)";
    assert_eq!(troubles, expected);
}

#[test]
fn a_leak_an_orphan_and_memory_that_is_full_soon_have_their_lines() {
    let mut lab = Lab::new(&names(3, 2), (120, 40));
    lab.run(1, 88, "alice", &[1], Bytes::from_gib(20));
    for _ in 0..400 {
        for gpu in &mut lab.hosts[1].gpus[1..2] {
            gpu.processes[0].memory = gpu.processes[0]
                .memory
                .map(|memory| Bytes(memory.0 + (60 << 20)));
            gpu.load.memory_used = gpu.processes[0].memory;
        }
        lab.pass(2, &[]);
    }
    let leak = lab.line("L gpu-02:1");
    assert!(
        leak.contains("alice's 88 train.py +1.8 GiB/min, full "),
        "{leak}"
    );
    assert!(lab.line("gpu-02").contains("·L······"));
    assert!(
        lab.lines()[0].contains("1 busy (1 leaks)"),
        "{}",
        lab.lines()[0]
    );
}

#[test]
fn a_host_without_a_driver_says_so_on_its_row_and_leaves_the_others_as_they_are() {
    let mut lab = eight_hosts((80, 24));
    let sentence = "the NVIDIA driver is not loaded: load it with modprobe nvidia";
    lab.hosts[4].gpus.clear();
    lab.hosts[4].driver.trouble = Some(Trouble {
        cause: Cause::Failed,
        sentence: sentence.into(),
        call: None,
        since: lab.hosts[4].at,
    });
    lab.pass(1, &[5]);
    assert!(
        lab.line("gpu-05 ")
            .contains("the NVIDIA driver is not loaded")
    );
    assert!(lab.line("gpu-02 ").contains("512/640G"));
    let line = lab.line("x gpu-05 ");
    assert!(line.contains("the driver: failed since 12:41"), "{line}");
    // The same in the lists, whose headings stay.
    lab.press(&[KeyCode::Char('f')]);
    let lines = lab.lines();
    let text = lines.join("\n");
    let is_heading = |line: &&String| line.contains("HOST") && line.contains("MEMORY");
    assert!(lines.iter().any(|line| is_heading(&line)), "{text}");
    let row = lines
        .iter()
        .find(|line| line.starts_with(" gpu-05 "))
        .expect("it has a row");
    assert!(row.contains("the NVIDIA driver is not loaded"), "{text}");
}

#[test]
fn a_host_where_no_driver_is_installed_is_in_no_trouble() {
    let mut lab = eight_hosts((80, 24));
    lab.hosts[4].gpus.clear();
    lab.hosts[4].driver.trouble = Some(Trouble {
        cause: Cause::NoLibrary,
        sentence: "no NVML on this host".into(),
        call: None,
        since: lab.hosts[4].at,
    });
    lab.pass(1, &[5]);
    assert!(lab.line("gpu-05 ").contains("no NVML on this host"));
    let text = lab.lines().join("\n");
    assert!(!text.contains("x gpu-05"), "{text}");
}

#[test]
fn enter_shows_a_host_alone_and_esc_leads_back_step_by_step() {
    let mut lab = eight_hosts((120, 40));
    lab.press(&[KeyCode::Down, KeyCode::Down, KeyCode::Enter]);
    let text = lab.lines().join("\n");
    assert!(
        text.contains("host gpu-03") && text.contains("4711"),
        "{text}"
    );
    assert!(!text.contains("gpu-02"), "{text}");
    // The first GPU, then its process.
    lab.press(&[KeyCode::Enter, KeyCode::Enter]);
    assert!(
        lab.lines()[1].contains("4711"),
        "{}",
        lab.lines().join("\n")
    );
    lab.press(&[KeyCode::Esc, KeyCode::Esc]);
    assert!(
        lab.lines().join("\n").contains("4712"),
        "all GPUs of the host again"
    );
    lab.press(&[KeyCode::Esc]);
    assert!(lab.line("gpu-01 ").contains("erin 8"));
    assert_eq!(lab.app.fleet_view.cursor, 2, "the cursor is where it was");
}

#[test]
fn enter_on_a_trouble_opens_the_page_of_its_gpu() {
    let mut lab = eight_hosts((120, 40));
    lab.press(&[KeyCode::Tab, KeyCode::Enter]);
    let text = lab.lines().join("\n");
    assert!(text.contains("GPU 5") && text.contains("Xid 79"), "{text}");
    lab.press(&[KeyCode::Esc, KeyCode::Esc]);
    assert!(lab.line("gpu-01 ").contains("erin 8"));
}

#[test]
fn the_news_open_the_lists_of_their_host() {
    let mut lab = eight_hosts((120, 40));
    lab.press(&[KeyCode::Char('E'), KeyCode::Enter]);
    let text = lab.lines().join("\n");
    assert!(text.contains("GPU 5"), "{text}");
    lab.press(&[KeyCode::Esc]);
    assert!(lab.lines().join("\n").contains("host gpu-03"));
}

#[test]
fn a_key_toggles_to_the_lists_of_all_hosts_and_two_hosts_begin_with_them() {
    let mut lab = eight_hosts((120, 40));
    lab.press(&[KeyCode::Char('f')]);
    let text = lab.lines().join("\n");
    assert!(text.contains("erin") && text.contains("COMMAND"), "{text}");
    lab.press(&[KeyCode::Char('f')]);
    assert!(lab.line("gpu-01 ").contains("erin 8"));

    let mut two = Lab::new(&names(2, 2), (120, 40));
    two.run(0, 7, "erin", &[0], Bytes::from_gib(9));
    two.pass(1, &[]);
    assert!(two.lines().join("\n").contains("COMMAND"));
    two.press(&[KeyCode::Char('f')]);
    assert!(two.line("gpu-01 ").contains("erin 1"));
}

#[test]
fn the_filter_finds_hosts_by_user_job_and_state() {
    let mut lab = eight_hosts((80, 24));
    let hosts = |lab: &Lab| -> Vec<String> {
        let rows = lab
            .lines()
            .into_iter()
            .filter(|line| line.starts_with("gpu-"));
        rows.map(|row| row[..6].to_owned()).collect()
    };
    for (words, expected) in [
        ("alice", &["gpu-02", "gpu-03"][..]),
        ("slurm 4242", &["gpu-02"]),
        ("no word", &["gpu-06"]),
        ("user:bob", &["gpu-03"]),
        ("gpu-07", &["gpu-07"]),
        (
            "h100",
            &[
                "gpu-01", "gpu-02", "gpu-03", "gpu-04", "gpu-05", "gpu-06", "gpu-07", "gpu-08",
            ],
        ),
    ] {
        lab.press(&[KeyCode::Char('/')]);
        let letters: Vec<KeyCode> = words.chars().map(KeyCode::Char).collect();
        lab.press(&letters);
        lab.press(&[KeyCode::Enter]);
        assert_eq!(hosts(&lab), expected, "{words}");
        lab.press(&[KeyCode::Esc]);
    }
    assert_eq!(hosts(&lab).len(), 8);
}

#[test]
fn hosts_are_sorted_by_free_gpus_and_keep_their_places_for_some_seconds() {
    let mut lab = eight_hosts((80, 24));
    lab.press(&[KeyCode::Char('s')]);
    let first = |lab: &Lab| -> Vec<String> {
        let rows = lab
            .lines()
            .into_iter()
            .filter(|line| line.starts_with("gpu-"));
        rows.take(3).map(|row| row[..6].to_owned()).collect()
    };
    assert_eq!(first(&lab), ["gpu-05", "gpu-08", "gpu-04"]);
    assert!(
        lab.lines()[23].contains("hosts by free GPUs"),
        "{}",
        lab.lines()[23]
    );
    // gpu-05 is taken.
    lab.run(
        4,
        50,
        "frank",
        &[0, 1, 2, 3, 4, 5, 6, 7],
        Bytes::from_gib(20),
    );
    lab.pass(1, &[5]);
    assert_eq!(first(&lab), ["gpu-05", "gpu-08", "gpu-04"]);
    for _ in 0..6 {
        lab.pass(1, &[5]);
    }
    assert_eq!(first(&lab), ["gpu-08", "gpu-04", "gpu-03"]);
}

#[test]
fn more_troubles_than_rows_are_counted_and_tab_shows_them_all() {
    let mut lab = Lab::new(&names(30, 2), (80, 24));
    lab.pass(1, &[]);
    for _ in 0..5 {
        lab.pass(5, &(1..30).collect::<Vec<_>>());
    }
    assert!(lab.line("+").starts_with("+25 more (Tab shows them)"));
    lab.press(&[KeyCode::Tab, KeyCode::End]);
    let troubles = |lab: &Lab| -> Vec<String> {
        let lines = lab.lines().into_iter();
        lines.filter(|line| line.starts_with("? gpu")).collect()
    };
    assert!(troubles(&lab).len() > 10 && troubles(&lab).last().unwrap().contains("gpu-30"));
    lab.press(&[KeyCode::Esc]);
    assert_eq!(troubles(&lab).len(), 4);
}

#[test]
fn two_hundred_hosts_at_80x24_scroll_by_columns_and_the_cursor_stays_visible() {
    let mut lab = Lab::new(&names(200, 3), (80, 24));
    lab.run(199, 7, "zoe", &[0], Bytes::from_gib(9));
    lab.pass(1, &[]);
    assert!(lab.lines().join("\n").contains("more hosts"));
    assert!(!lab.lines().join("\n").contains("gpu-200"));
    lab.press(&[KeyCode::End]);
    let text = lab.lines().join("\n");
    assert!(
        text.contains("gpu-200 █·······") && text.contains("zoe 1"),
        "{text}"
    );
    lab.press(&[KeyCode::Left]);
    let before = lab.app.fleet_view.cursor;
    lab.press(&[KeyCode::Right]);
    assert!(before < lab.app.fleet_view.cursor);
}

#[test]
fn a_hundred_and_twenty_five_hosts_are_all_on_a_screen_of_120x40() {
    let mut lab = Lab::new(&names(125, 3), (120, 40));
    lab.pass(1, &[]);
    let text = lab.lines().join("\n");
    for number in 1..=125 {
        assert!(
            text.contains(&format!("gpu-{number:03} ········")),
            "{number}\n{text}"
        );
    }
    assert!(
        lab.lines()[0].contains("125 hosts  1000 GPUs: 0 busy  1000 free"),
        "{text}"
    );
}

#[test]
fn a_click_moves_the_cursor_and_a_second_one_opens_the_host() {
    use crossterm::event::{KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
    let mut lab = Lab::new(&names(125, 3), (120, 40));
    lab.pass(1, &[]);
    let click = |lab: &mut Lab, column, row| {
        let kind = MouseEventKind::Down(MouseButton::Left);
        let modifiers = KeyModifiers::NONE;
        let mouse = MouseEvent {
            kind,
            column,
            row,
            modifiers,
        };
        lab.app.update(Event::Mouse(mouse));
    };
    let lines = lab.lines();
    let row = lines
        .iter()
        .position(|line| line.contains("gpu-023"))
        .unwrap();
    let column = lines[row]
        .chars()
        .collect::<String>()
        .find("gpu-044")
        .map_or(0, |at| lines[row][..at].chars().count());
    let (column, row) = (u16::try_from(column).unwrap(), u16::try_from(row).unwrap());
    click(&mut lab, column, row);
    assert!(
        lab.lines().join("\n").contains("gpu-044  8 free"),
        "{}",
        lab.lines().join("\n")
    );
    click(&mut lab, column, row);
    assert!(lab.lines().join("\n").contains("host gpu-044"));
}

#[test]
fn figures_of_other_widths_move_nothing() {
    let mut lab = eight_hosts((80, 24));
    let ends = |lab: &Lab| -> Vec<usize> {
        let row = lab.line("gpu-01 ");
        [" 5.2 kW", "erin"]
            .map(|words| row.find(words).unwrap_or(0))
            .to_vec()
    };
    let before = ends(&lab);
    for gpu in &mut lab.hosts[0].gpus {
        gpu.load.sm = Ok(Percent::new(3.0));
        gpu.load.memory_used = Ok(Bytes(0));
    }
    lab.pass(1, &[5]);
    assert_eq!(ends(&lab), before);
}

#[test]
fn any_number_of_hosts_and_gpus_with_any_names_is_drawn_at_any_size() {
    let long = "rack-17-unit-03.very-long-subdomain.cluster.example.org-gpu";
    let mut names = names(9, 2);
    for number in 1..=4 {
        names.push(format!("{long}-{number}"));
    }
    names.push("主机-01".to_owned());
    let mut lab = Lab::new(&names, (120, 40));
    lab.hosts[3].gpus.truncate(4);
    lab.hosts[4] = host(16);
    lab.hosts[5] = host(72);
    lab.hosts[6].gpus.clear();
    for instance in 1..8 {
        lab.hosts[7].gpus[instance].facts.parent = Some(lab.hosts[7].gpus[0].uuid.clone());
    }
    for host in (0..12).filter(|host| *host != 6) {
        lab.run(
            host,
            7,
            "somebody-with-a-long-name",
            &[0],
            Bytes::from_gib(9),
        );
    }
    lab.pass(1, &[8]);
    for keys in [&[][..], &[KeyCode::Tab], &[KeyCode::Down, KeyCode::End]] {
        lab.press(keys);
        for (width, height) in [(40, 10), (41, 12), (60, 16), (80, 24), (120, 40), (300, 90)] {
            lab.app.update(Event::Resized(width, height));
            lab.lines();
        }
    }
    lab.app.update(Event::Resized(120, 40));
    // The ends of long names tell hosts apart.
    let text = lab.lines().join("\n");
    for number in 1..=4 {
        assert!(text.contains(&format!("org-gpu-{number}")), "{text}");
    }
}

#[test]
fn a_terminal_without_unicode_gets_the_letters_of_the_cells_in_ascii() {
    let mut lab = eight_hosts((80, 24));
    lab.press(&[KeyCode::Down]);
    let screen = screen(Theme::new(true, ColourDepth::None), &lab.app, 80, 24);
    assert!(screen.is_ascii(), "{screen}");
    assert!(
        screen.contains("####.x##") && screen.contains("%%%%%%%."),
        "{screen}"
    );
}

#[test]
fn a_host_whose_clock_differs_says_by_how_much_and_its_times_are_those_of_the_viewer() {
    let mut lab = Lab::new(&names(3, 2), (120, 40));
    lab.run(1, 7, "alice", &[0], Bytes::from_gib(9));
    lab.hosts[1].unix_ms -= 90_000;
    lab.hosts[2].host.facts.utc_offset = Ok(-18_000);
    let at = lab.hosts[2].at;
    lab.hosts[2].gpus[5].health.xids.push(Xid { at, code: 79 });
    for _ in 0..3 {
        lab.pass(1, &[]);
    }
    let row = lab.line("gpu-02 ");
    assert!(row.contains("clock 1m30s behind  alice 1"), "{row}");
    assert!(
        lab.line("gpu-03 ")
            .contains("clock 5h00m behind (time zone)")
    );
    // Times of several hosts are those of the viewer.
    assert_eq!(lab.line("x gpu-03:5"), "x gpu-03:5   Xid 79 since 12:04");
    assert!(lab.lines()[0].ends_with("12:04:03"), "{}", lab.lines()[0]);
    // Its own lists say it, too.
    lab.press(&[KeyCode::Down, KeyCode::Enter]);
    assert!(
        lab.lines()[0].contains("gpu-02: clock 1m30s behind"),
        "{}",
        lab.lines()[0]
    );
}
