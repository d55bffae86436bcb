//! Tests of the keys of the graph.

use crossterm::event::{KeyCode, KeyEvent};

use super::panel::Projection;
use super::*;
use crate::app::event::Event;
use crate::app::keys::keymap::KeyContext;
use crate::app::page::Page;
use crate::app::{App, AppOptions, Mode};
use crate::base::units::Bytes;
use crate::model::{Forecast, GpuOrProcess, MemoryPart, Rate};
use crate::protocol::host_key::HostKey;
use crate::protocol::line::Line;
use crate::protocol::snapshot::Snapshot;
use crate::protocol::snapshot::example::{allocator_stats, host};

/// The app with a host of one GPU and two processes, one of which grows by a MiB per second.
struct GraphStory {
    app: App,
    host: Snapshot,
}

impl GraphStory {
    fn begin() -> Self {
        let host = host(1)
            .with(100, "python train.py", 0, Bytes::from_gib(20))
            .with(200, "python serve.py", 0, Bytes::from_gib(10));
        let mut app = App::new(AppOptions::default());
        app.update(Event::Resized(120, 40));
        let mut story = Self { app, host };
        story.watch(100);
        story
    }

    fn watch(&mut self, seconds: u64) {
        for _ in 0..seconds {
            let mut host = self.host.later(1);
            if let Some(Ok(memory)) = host.gpus[0].processes.first_mut().map(|it| &mut it.memory) {
                memory.0 += 1 << 20;
            }
            self.see(host);
        }
    }

    fn see(&mut self, host: Snapshot) {
        self.host = host;
        self.app.update(Event::Line(
            HostKey::FIRST,
            Box::new(Line::Full(Box::new(self.host.clone()))),
        ));
    }

    fn keys(&mut self, keys: &str) {
        for key in keys.chars() {
            let code = match key {
                '\n' => KeyCode::Enter,
                '\u{1b}' => KeyCode::Esc,
                '←' => KeyCode::Left,
                '→' => KeyCode::Right,
                '↓' => KeyCode::Down,
                letter => KeyCode::Char(letter),
            };
            self.app.update(Event::Key(KeyEvent::from(code)));
        }
    }

    fn model(&self) -> &HostModel {
        self.app.fleet().host(HostKey::FIRST).unwrap()
    }

    fn panel(&self) -> Panel {
        self.app.panels().remove(0)
    }
}

#[test]
fn a_graph_without_room_below_the_lists_takes_the_whole_screen() {
    let mut story = GraphStory::begin();
    story.app.update(Event::Resized(40, 10));
    for is_whole in [true, false, true] {
        story.keys("g");
        assert_eq!(
            matches!(story.app.modes.current(), Mode::Graph(_)),
            is_whole
        );
    }
    // Where the lists leave room, the graph opens below them first.
    story.keys("g");
    story.app.update(Event::Resized(120, 40));
    story.keys("g");
    assert!(matches!(story.app.modes.current(), Mode::List));
}

#[test]
fn zoom_goes_from_a_minute_to_a_week_and_no_further() {
    let mut story = GraphStory::begin();
    assert_eq!(story.app.graph_span(), Duration::from_mins(15));
    story.keys("[[[[");
    assert_eq!(story.app.graph_span(), Duration::from_mins(1));
    story.keys("[");
    assert_eq!(story.app.graph_span(), Duration::from_mins(1));
    story.keys(&"]".repeat(20));
    assert_eq!(story.app.graph.chosen_span, Some(WEEK));
    assert_eq!(
        story.app.graph_span(),
        WEEK,
        "a short history changes no axis"
    );
    story.see(story.host.later(7 * 24 * 3600));
    assert_eq!(story.app.graph_span(), WEEK);
    let window = story.panel().window;
    let shown = window.part() * u32::try_from(window.parts()).unwrap();
    assert!(shown <= WEEK && shown + window.part() > WEEK, "{window:?}");
    // The present is at the right edge.
    assert_eq!(window.place(story.host.at), Some(window.parts() - 1));
}

#[test]
fn the_axis_stays_while_the_graph_fills_from_the_right() {
    let mut story = GraphStory::begin();
    // The process whose memory stays the same has no forecast.
    story.keys("↓");
    let began = story.model().history().began().unwrap();
    let mut places = Vec::new();
    for _ in 0..1000 {
        story.watch(1);
        let window = story.panel().window;
        assert_eq!(story.app.graph_span(), Duration::from_mins(15));
        assert_eq!(window.place(story.host.at), Some(window.parts() - 1));
        let subject = story.app.subject().unwrap().subject;
        let series = story.model().series(&subject).unwrap();
        let drawn = series.over(&window, story.model().now());
        let first = drawn.iter().position(Option::is_some).unwrap();
        assert_eq!(first, window.place(began).unwrap_or(0));
        places.push(first);
    }
    let parts = story.panel().window.parts();
    assert!(places[0] > parts * 4 / 5, "{places:?}");
    assert!(
        places.is_sorted_by(|early, late| early >= late),
        "{places:?}"
    );
    assert_eq!(places.last(), Some(&0));
}

#[test]
fn the_window_reaches_a_forecast_that_is_hours_away_unless_the_user_chose_a_span() {
    let mut story = GraphStory::begin();
    story.watch(810);
    let panel = story.panel();
    let full = panel.projection.and_then(|ahead| ahead.full).unwrap();
    assert!(full.likely > Duration::from_hours(10), "{full:?}");
    let reach = panel.window.part() * u32::from(panel.plot.width - panel.past);
    assert!(reach >= full.likely, "{reach:?} {full:?}");
    assert_eq!(story.app.graph_span(), Duration::from_hours(12));
    // Beside half of that span, the future would not reach it: it is twice as long at most.
    assert!(Duration::from_hours(2 * 6) < full.likely);
    story.keys("[");
    assert_eq!(story.app.graph_span(), Duration::from_hours(6));
}

#[test]
fn the_scale_begins_at_zero_unless_the_user_zooms_in() {
    let mut story = GraphStory::begin();
    let capacity = story.panel().capacity.unwrap();
    assert!(story.panel().scale.begins_at_zero() && !story.panel().scale.is_below(capacity));
    story.keys("z");
    assert!(!story.panel().scale.begins_at_zero() && story.panel().scale.is_below(capacity));
    assert_eq!(
        story.panel().scale.zoomed().as_deref(),
        Some("19.95–20.13 GiB")
    );
    story.keys("z");
    assert!(story.panel().scale.begins_at_zero());
    // A process with less than a quarter of the capacity has a scale of its own.
    story.keys("↓");
    assert!(story.panel().scale.begins_at_zero() && story.panel().scale.is_below(capacity));
}

#[test]
fn the_graph_stands_still_under_its_cursor_and_comes_back_to_now() {
    let mut story = GraphStory::begin();
    story.keys("←←←");
    let cursor = story.app.graph.cursor().unwrap();
    // Three steps of 60 in a quarter of an hour.
    assert_eq!(story.host.at.since(cursor), Duration::from_secs(45));
    let window = story.panel().window;
    story.watch(30);
    assert_eq!(
        (story.panel().window, story.app.graph.cursor()),
        (window, Some(cursor))
    );
    story.keys("\u{1b}");
    assert_eq!(story.app.graph.still, None);
    assert!(story.panel().window.place(story.host.at).is_some());
    // When the cursor moves past the present, the graph follows the present again.
    story.keys("←←→→→");
    assert_eq!(story.app.graph.still, None);
}

#[test]
fn the_cursor_stays_in_sight_and_within_what_is_known() {
    let mut story = GraphStory::begin();
    story.watch(1000);
    story.keys("[[[[[[[[[[");
    for _ in 0..100 {
        story.keys("←←←←←←←←←←←←←");
        let (panel, cursor) = (story.panel(), story.app.graph.cursor().unwrap());
        assert!(
            panel.window.place(cursor).is_some(),
            "{:?} {cursor:?}",
            panel.window
        );
    }
    assert_eq!(story.app.graph.cursor(), story.model().history().began());
    // Zooming out keeps the cursor in its column.
    let column = |story: &GraphStory| {
        story
            .panel()
            .column(story.app.graph.cursor().unwrap())
            .unwrap()
    };
    let before = column(&story);
    story.keys("]");
    assert!(column(&story).abs_diff(before) <= 1);
}

#[test]
fn the_graph_of_a_group_is_that_of_its_gpu_or_of_its_first_process() {
    let mut story = GraphStory::begin();
    story.keys("b");
    let is_group = |story: &GraphStory| story.app.processes.rows[0].process().is_none();
    let subject = |story: &GraphStory| story.app.subject().map(|subject| subject.subject);
    assert!(is_group(&story) && matches!(subject(&story), Some(GpuOrProcess::Gpu(_))));
    story.keys("bb");
    assert!(is_group(&story) && matches!(subject(&story), Some(GpuOrProcess::Process(_))));
    story.keys("g");
    assert!(matches!(story.app.modes.current(), Mode::Graph(_)));
}

#[test]
fn the_graph_over_the_whole_screen_stays_with_a_process_that_ends() {
    let mut story = GraphStory::begin();
    story.keys("g");
    assert!(matches!(story.app.modes.current(), Mode::Graph(_)));
    let subject = story.app.subject().unwrap();
    let next = story.host.later(1).without(100);
    story.see(next);
    assert_eq!(story.app.subject(), Some(subject.clone()));
    assert_eq!(story.panel().subject, subject);
    // The page shows the last facts about it, and the key for the end of a process acts on no other
    // process.
    story.keys("\n");
    let title = story.app.modes.page().map(Page::title);
    assert_eq!(title.as_deref(), Some("Process 100"));
    story.keys("x");
    assert_eq!(
        story.app.notice.text(),
        Some("there is no process under the cursor")
    );
    story.keys("\u{1b}");
    assert_eq!(story.app.modes.current().key_context(), KeyContext::Graph);
    story.keys("↓");
    assert_ne!(story.app.subject(), Some(subject));
    story.keys("\u{1b}");
    assert!(matches!(story.app.modes.current(), Mode::List));
}

#[test]
fn letters_of_a_marks_name_are_no_keys() {
    let mut story = GraphStory::begin();
    story.keys("m");
    assert!(matches!(story.app.modes.current(), Mode::List));
    assert_eq!(story.app.marks.list[0].name.as_str(), "mark 1");
    story.keys("'quit gx");
    assert!(matches!(story.app.modes.current(), Mode::MarkName(_)));
    story.keys("\n");
    assert!(matches!(story.app.modes.current(), Mode::List));
    assert_eq!(story.app.marks.list[0].name.as_str(), "quit gx");
    story.keys("'no\u{1b}");
    assert_eq!(story.app.marks.list[0].name.as_str(), "quit gx");
    assert_eq!(story.app.modes.current().key_context(), KeyContext::List);
}

#[test]
fn the_scale_stays_while_memory_wobbles() {
    let mut story = GraphStory::begin();
    let (mut scale, mut moves) = (story.panel().scale, 0);
    for pass in 0..240 {
        let mut host = story.host.later(1);
        host.gpus[0].processes[0].memory = Ok(Bytes::from_mib(20_580 + 30 * (pass % 3)));
        story.see(host);
        let before = std::mem::replace(&mut scale, story.panel().scale);
        moves += usize::from(before != scale);
    }
    // The scale changes once, when the early peak leaves the graph.
    assert!(moves <= 1, "{moves}");
}

#[test]
fn the_projection_ends_at_the_capacity() {
    let seconds = Duration::from_secs;
    let full = Forecast {
        low: seconds(50),
        likely: seconds(100),
        high: seconds(200),
    };
    let projection = Projection {
        rate: Rate(1.0),
        now: Bytes::from_gib(60),
        from: Bytes::from_gib(60),
        limit: Some(Bytes::from_gib(80)),
        full: Some(full),
    };
    // A MiB is added before the division, because amounts are not exact.
    let gib = |amounts: [Bytes; 3]| amounts.map(|bytes| (bytes.0 + (1 << 20)) >> 30);
    assert_eq!(gib(projection.held(seconds(50))), [80, 70, 65]);
    assert_eq!(gib(projection.held(seconds(500))), [80; 3]);
    // Tensors of 60 GiB grow into memory that PyTorch has reserved: 70 GiB are in use now.
    let reserved = Projection {
        now: Bytes::from_gib(70),
        ..projection
    };
    assert_eq!(gib(reserved.held(seconds(40))), [76, 70, 70]);
    let unknown = Projection {
        rate: Rate(f64::from(1 << 30)),
        limit: None,
        full: None,
        ..projection
    };
    assert_eq!(gib(unknown.held(seconds(50))), [110; 3]);
}

#[test]
fn a_leak_is_drawn_ahead_and_a_graph_of_the_past_is_not() {
    let mut story = GraphStory::begin();
    assert_eq!(
        (story.panel().projection, story.panel().past),
        (None, story.panel().plot.width)
    );
    for _ in 0..1200 {
        let mut host = story.host.later(1);
        let gpu = &mut host.gpus[0];
        for bytes in [&mut gpu.processes[0].memory, &mut gpu.load.memory_used] {
            bytes.as_mut().unwrap().0 += 20 << 20;
        }
        story.see(host);
    }
    let panel = story.panel();
    let projection = panel.projection.unwrap();
    assert!(
        (15e6..30e6).contains(&projection.rate.0) && projection.full.is_some(),
        "{projection:?}"
    );
    assert!(panel.past < panel.plot.width);
    story.keys("←");
    assert_eq!(
        (story.panel().projection, story.panel().past),
        (None, panel.plot.width)
    );
    // A process that has ended leaks no more.
    story.keys("\u{1b}g");
    assert!(story.panel().projection.is_some());
    let without = story.host.later(1).without(story.host.processes[0].id.pid);
    story.see(without);
    assert_eq!(story.panel().projection, None);
}

#[test]
fn the_projection_of_tensors_continues_their_peaks() {
    let mut story = GraphStory::begin();
    let gpu = story.host.gpus[0].uuid.clone();
    for second in 0..1200 {
        let mut host = story.host.later(1);
        // Each step takes up to 2 GiB, and gives it back.
        let allocated = Bytes::from_mib(10_240 + 5 * second + second * 37 % 5 * 512);
        host.processes[0].allocator = Some(Box::new(allocator_stats(
            Some(gpu.clone()),
            Bytes::from_gib(19),
            allocated,
        )));
        story.see(host);
    }
    let subject = GpuOrProcess::Process(story.host.processes[0].id);
    assert_eq!(
        story.model().growth(&subject).and_then(|it| it.part),
        Some(MemoryPart::Allocated)
    );
    let panel = story.panel();
    let drawn = story
        .model()
        .allocator_history(&subject)
        .unwrap()
        .allocated
        .over(&panel.window, story.model().now());
    let top = drawn
        .iter()
        .rev()
        .take(panel.window.parts() / 15)
        .flatten()
        .map(|it| it.high)
        .max();
    // The memory that is not PyTorch's stays.
    let outside = story
        .model()
        .series(&subject)
        .unwrap()
        .latest()
        .unwrap()
        .saturating_sub(Bytes::from_gib(19));
    assert_eq!(
        panel.projection.map(|it| it.from.saturating_sub(outside)),
        top
    );
}
