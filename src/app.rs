//! The state of the viewer (cursors, sort order, filter, pages, dialogs) and how lines, keys and
//! time change it.
//!
//! [`App::update`] takes each event and returns an [`Effect`] if the session is to do something.
//! The app reads no clock and draws nothing.

pub(crate) mod cluster;
pub mod event;
pub(crate) mod fleet;
pub(crate) mod graph;
pub(crate) mod input;
pub(crate) mod keys;
pub(crate) mod layout;
pub(crate) mod lists;
pub(crate) mod page;
mod pausable;
pub(crate) mod recordings;
pub(crate) mod settings;

use std::collections::BTreeMap;
use std::time::Duration;

use crossterm::event::{KeyEvent, KeyEventKind};
use tui_input::backend::crossterm::to_input_request;

use self::event::{Effect, Event};
use self::fleet::alert_scope::AlertScope;
use self::fleet::alerts::Alerts;
use self::fleet::connections::HostConnection;
use self::fleet::fleet_view::FleetView;
pub use self::fleet::host_trouble::{HostTrouble, WaitingHost};
use self::fleet::news::{self, LastLook};
use self::fleet::troubles::TroubleLog;
use self::fleet::viewer_clock::Clocks;
use self::graph::GraphView;
use self::graph::panel::{self, Panel};
use self::input::badges::Badge;
use self::input::demo_hints::DemoHints;
use self::input::end_dialog::{self, PlannedEnd};
use self::input::gpu_number::TypedNumber;
pub(crate) use self::input::mode::Mode;
use self::input::mode::ModeStack;
use self::input::mouse::LatestClick;
use self::input::notice::Notice;
use self::input::subject_pages::detail_command;
use self::keys::keymap::{self, Intent, KeyContext};
use self::layout::{Area, GpuView, Layout, ScreenShape, page_and_graph};
use self::lists::gpu_list::GpuList;
use self::lists::process_list::{ProcessList, SelectedRow};
use self::lists::unread_stats;
use self::page::{Page, PageTopic};
use self::pausable::Pausable;
use self::recordings::active_recording::ActiveRecording;
use self::recordings::marks::Marks;
use self::recordings::replay::Replay;
use self::settings::ThemeName;
use crate::base::terminal::Background;
use crate::base::text::Text;
use crate::model::{Fleet, HostModel, HostProcess, HostSubject};
use crate::protocol::command::Command;
use crate::protocol::host_key::HostKey;
use crate::protocol::line::Line;
use crate::protocol::playback::{PlayerReport, Speed};
use crate::protocol::reply::{Outcome, Reply};
use crate::protocol::slurm_job::SlurmJob;

/// Shown in a replay in place of everything that needs an agent.
const RECORDING: &str = "this is a recording";

/// The options with which the viewer starts.
#[derive(Debug, Clone)]
pub struct AppOptions {
    /// Whether processes are never signalled.
    pub readonly: bool,
    /// Whether the lines come from a recording: there is no agent that commands could go to.
    pub is_recording: bool,
    /// How fast a recording is replayed.
    pub speed: Speed,
    /// The time from one pass of an agent to the next.
    pub interval: Duration,
    /// The user gets an alert when a leak will exhaust the memory within this time.
    pub warn_before: Duration,
    /// The users whose memory growth raises alerts.
    pub alert_scope: AlertScope,
    /// Whether the last line has the hints of `--demo`.
    pub has_demo_hints: bool,
    /// The word of the last line for the key that quits.
    pub quit_word: &'static str,
    /// The job of `--slurm`; `None` without one.
    pub slurm_job: Option<SlurmJob>,
}

impl Default for AppOptions {
    fn default() -> Self {
        Self {
            readonly: false,
            is_recording: false,
            speed: Speed::Times(1.0),
            interval: Duration::from_secs(1),
            warn_before: Duration::from_hours(1),
            alert_scope: AlertScope::default(),
            has_demo_hints: false,
            quit_word: "quit",
            slurm_job: None,
        }
    }
}

/// One of the two lists on the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// The upper list: GPUs.
    Gpus,
    /// The lower list: processes.
    Processes,
}

/// The state of the viewer. [`App::update`] changes it; before the first event
/// [`App::apply_settings`] and [`App::set_filter`], and [`App::mark_end_as_read`] after a frame.
#[derive(Debug)]
pub struct App {
    pub(crate) options: AppOptions,
    pub(crate) size: (u16, u16),
    /// The areas of the screen: [`App::refresh`] divides it anew.
    layout: Option<Layout>,
    /// Whether an event came since the last [`App::refresh`].
    is_stale: bool,
    pub(crate) theme: ThemeName,
    /// The background of the terminal; `None` while it is not known.
    background: Option<Background>,
    /// Whether the host line is shown while nothing is wrong.
    host_line: bool,
    pub(crate) data: Pausable,
    lost: BTreeMap<HostKey, Text>,
    /// The connections to other hosts, as far as a state was told.
    connections: BTreeMap<HostKey, HostConnection>,
    /// `None` for live hosts.
    pub(crate) replay: Option<Replay>,
    /// The last line on the standard error of each command, which may say why no line comes from its
    /// host.
    said: BTreeMap<HostKey, Text>,
    /// The recording that the user makes now.
    pub(crate) active_recording: Option<ActiveRecording>,
    pub(crate) notice: Notice,
    pub(crate) alerts: Alerts,
    pub(crate) troubles: TroubleLog,
    pub(crate) last_look: LastLook,
    pub(crate) clocks: Clocks,
    pub(crate) fleet_view: FleetView,
    pub(crate) focus: List,
    pub(crate) processes: ProcessList,
    pub(crate) gpus: GpuList,
    pub(crate) graph: GraphView,
    pub(crate) marks: Marks,
    /// How many dialogs over several hosts were opened.
    end_dialogs: u64,
    pub(crate) modes: ModeStack,
    demo_hints: DemoHints,
    /// The badges, the latest last.
    badges: Vec<Badge>,
    click: LatestClick,
    /// The number of a GPU that is being typed.
    typed_number: TypedNumber,
    /// The list with the cursor, and the subject under that of the processes, before the processes
    /// of one GPU alone were shown.
    before_gpu: Option<(List, Option<SelectedRow>)>,
}

impl App {
    /// Returns the app before the first event, without hosts.
    pub fn new(options: AppOptions) -> Self {
        Self::with_hosts(options, Fleet::default())
    }

    pub(crate) fn with_hosts(options: AppOptions, fleet: Fleet) -> Self {
        Self {
            end_dialogs: 0,
            replay: options.is_recording.then(|| Replay::new(options.speed)),
            gpus: GpuList::of_job(options.slurm_job.clone()),
            options,
            size: (0, 0),
            layout: None,
            is_stale: false,
            theme: ThemeName::default(),
            background: None,
            host_line: true,
            data: Pausable::new(fleet),
            lost: BTreeMap::new(),
            connections: BTreeMap::new(),
            said: BTreeMap::new(),
            active_recording: None,
            notice: Notice::default(),
            alerts: Alerts::default(),
            troubles: TroubleLog::default(),
            last_look: LastLook::default(),
            clocks: Clocks::default(),
            fleet_view: FleetView::default(),
            focus: List::Processes,
            processes: ProcessList::default(),
            graph: GraphView::default(),
            marks: Marks::default(),
            modes: ModeStack::default(),
            demo_hints: DemoHints::default(),
            badges: Vec::new(),
            click: LatestClick::default(),
            typed_number: TypedNumber::default(),
            before_gpu: None,
        }
    }

    /// The fleet on the screen: the live one, or a copy while the screen is paused.
    pub fn fleet(&self) -> &Fleet {
        self.data.shown()
    }

    pub(crate) fn set_filter(&mut self, text: &str) {
        self.processes.filter = text.into();
    }

    /// The areas of the screen, as the last event left them; `None` if the screen is too small.
    pub(crate) fn layout(&self) -> Option<Layout> {
        self.layout
    }

    fn divided(&self) -> Option<Layout> {
        let (width, height) = self.size;
        if self.is_fleet_view() {
            return Layout::without_lists(width, height, self.replay.is_some());
        }
        let gpus = self.gpus.rows(self.fleet()).count();
        // A tile has no room for a sentence about the driver. One of several hosts has a row for it.
        let is_sick = || {
            let mut hosts = self.fleet().hosts();
            !self.fleet().has_many()
                && hosts
                    .any(|(_, model)| model.latest().is_some_and(|it| it.driver.trouble.is_some()))
        };
        let gpu_view = if is_sick() {
            GpuView::Rows
        } else {
            self.gpus.view
        };
        let unread = unread_stats::sentences(self.fleet(), &self.processes.view);
        let reason = if self.processes.view.only_suspects {
            Layout::WITH_REASON
        } else {
            0
        };
        let layout =
            ScreenShape {
                width,
                height,
                gpus,
                waiting_hosts: self.waiting_hosts().len(),
                read_hosts: self
                    .fleet()
                    .hosts()
                    .filter(|(_, model)| model.latest().is_some())
                    .count(),
                gpu_view,
                graph: self.graph.visibility,
                has_forecast: self
                    .fleet()
                    .hosts()
                    .any(|(_, model)| panel::has_forecast(model)),
                processes: self.processes.wanted.max(reason).saturating_add(
                    unread_stats::rows_below(self.fleet(), &self.processes.view, width),
                ),
                is_serious: news::is_serious(self.fleet()),
                has_host_line: self.shows_host(),
                has_timeline: self.replay.is_some(),
            }
            .divide()?;
        if self.processes.view.only_suspects {
            return Some(layout.with_reason());
        }
        let has_room = unread.is_empty() || layout.has_room_for(&unread, self.processes.rows.len());
        Some(if has_room {
            layout
        } else {
            layout.with_unread()
        })
    }

    pub(crate) fn intent(&self, key: KeyEvent) -> Option<Intent> {
        let context = self.modes.current().key_context();
        let is_steered = self.options.is_recording && context.has_replay_keys();
        let of_replay = is_steered
            .then(|| keymap::intent(KeyContext::Replay, key))
            .flatten();
        of_replay.or_else(|| keymap::intent(context, key))
    }

    pub(crate) fn is_typing(&self) -> bool {
        let context = self.modes.current().key_context();
        matches!(
            context,
            KeyContext::Filter | KeyContext::MarkName | KeyContext::JumpTime
        )
    }

    /// The effect of Enter in the end-process dialog, unless it is marked as read; `None` too while
    /// the dialog is closed.
    pub(crate) fn unread_end(&self) -> Option<PlannedEnd> {
        match self.modes.current() {
            Mode::EndDialog(dialog) if !dialog.is_read() => Some(dialog.planned()),
            Mode::EndOverHosts(dialog) if !dialog.is_read() => Some(dialog.planned()),
            _ => None,
        }
    }

    /// The span of time that the graphs show; zero while there is nothing to draw.
    pub(crate) fn graph_span(&self) -> Duration {
        self.graph_model()
            .map_or(Duration::ZERO, |_| self.graph.span())
    }

    /// The GPU or process of the graph: that of the graph over the whole screen while it is open,
    /// else the one under the cursor of the lists. `None` if that row has no graph.
    pub(crate) fn subject(&self) -> Option<HostSubject> {
        let of_page = self.modes.page().and_then(Page::subject);
        of_page
            .or_else(|| self.modes.graph().cloned())
            .or_else(|| self.under_cursor())
    }

    /// Changes the state for an event, and brings the screen up to date. Returns the effect that
    /// the event asks for, if any.
    pub fn update(&mut self, event: Event) -> Option<Effect> {
        let effect = self.take(event);
        self.settle();
        effect
    }

    /// Changes the state for an event as [`App::update`] does, but leaves rows, cursors and troubles
    /// as they were until [`App::settle`]. A fleet sends many lines between two frames.
    pub fn take(&mut self, event: Event) -> Option<Effect> {
        let effect = match event {
            Event::Line(host, line) if self.is_jumping() => {
                self.take_line_of_jump(host, *line);
                return None;
            }
            Event::Line(host, line) => self.take_line(host, *line),
            Event::Past(host, past) => self.begin_after(host, &past),
            Event::RecorderPast(host, past) => {
                self.data.live_mut().continue_from_recorder(host, &past);
                None
            }
            Event::Key(key) => {
                self.alerts.read(self.data.shown());
                self.troubles.press();
                self.last_look.press(self.data.live());
                self.press(key)
            }
            Event::Mouse(mouse) => self.mouse(mouse),
            Event::Resized(width, height) => {
                self.size = (width, height);
                None
            }
            Event::Clock(clock) => {
                self.clocks.set(clock);
                return None;
            }
            Event::Tick(elapsed) => {
                self.clocks.advance(elapsed);
                self.fleet_view.advance(elapsed);
                self.data.advance(elapsed, self.options.is_recording);
                self.notice.advance(elapsed);
                self.advance_connections(elapsed);
                self.troubles.advance(elapsed);
                self.active_recording
                    .iter_mut()
                    .for_each(|recording| recording.advance(elapsed));
                self.click.advance(elapsed);
                self.typed_number.advance(elapsed);
                self.last_look.advance(elapsed, self.data.live());
                self.is_stale = true;
                return self.due_commands(elapsed.duration());
            }
            Event::Background(background) => {
                self.background = Some(background);
                None
            }
            Event::Done(text) => {
                self.notice.set(text.to_string());
                None
            }
            Event::SlurmCancel(answer) => {
                self.take_slurm_cancel(&answer);
                None
            }
            Event::Slurm(answer) => {
                self.take_slurm_answer(answer);
                None
            }
            Event::Said(host, said) => self.note_error_line(host, said),
            Event::Host(host, label) => {
                self.data.live_mut().set_label(host, label);
                None
            }
            Event::Connection(host, state) => {
                self.note_connection(host, state);
                None
            }
            Event::Recorder(report) => self.take_recorder_report(&report),
            Event::RecordingEnded(problem) => {
                self.recording_ended(problem);
                None
            }
            // The bar of the timeline follows from these alone.
            Event::Player(PlayerReport::At(unix_ms)) => return self.recording_at(unix_ms),
            Event::Outline(part) => return self.take_outline(part),
            Event::Player(report) => self.take_report(report),
            Event::LoggedIn(host, is_open) => {
                if is_open {
                    return Some(Effect::Reconnect(vec![host]));
                }
                let name = self.fleet().name(host);
                self.notice.set(format!("{name} is not connected"));
                None
            }
            Event::SourceLost(host, reason) => {
                if !self.options.is_recording && !self.lost.contains_key(&host) {
                    self.data.live_mut().add_lost(host, &reason);
                }
                self.lost.insert(host, reason);
                if let Some(dialog) = self.modes.end_on_host_mut(host) {
                    dialog.lose_agent();
                }
                None
            }
        };
        self.is_stale = true;
        effect.and_then(|effect| self.allow(effect))
    }

    /// Brings rows, cursors, troubles and the layout up to date with the events before. Needed
    /// before the app is drawn, and before the user acts on what was drawn.
    pub fn settle(&mut self) {
        if std::mem::take(&mut self.is_stale) {
            self.refresh();
        }
    }

    /// Returns the theme to draw with: the user's, or one that suits the background.
    pub(crate) fn drawn_theme(&self) -> ThemeName {
        self.theme.on(self.background)
    }

    /// Returns the effect, or `None` if it would act on the world during a replay. Then an open
    /// process page says that this is a recording.
    fn allow(&mut self, effect: Effect) -> Option<Effect> {
        match effect {
            Effect::Commands(_)
            | Effect::Reconnect(_)
            | Effect::AskSlurm(_)
            | Effect::AskToCancel(..)
            | Effect::CancelSlurmJob(_)
            | Effect::Alert(_)
                if self.options.is_recording =>
            {
                if let Some(Page {
                    topic: PageTopic::Process(topic),
                    ..
                }) = self.modes.page_mut()
                {
                    topic.inspection = Some(Err(RECORDING.into()));
                }
                None
            }
            effect => Some(effect),
        }
    }

    fn take_line(&mut self, host: HostKey, line: Line) -> Option<Effect> {
        let mut effect = None;
        match &line {
            Line::Full(snapshot) => {
                let latest = self.data.live().host(host).and_then(HostModel::latest);
                let is_next = latest.is_some_and(|latest| {
                    latest.sequence.checked_add(1) == Some(snapshot.sequence)
                });
                if !is_next {
                    // A new agent does not know which GPU the open page is about.
                    effect = self
                        .modes
                        .page()
                        .and_then(|page| detail_command(page, host, snapshot));
                }
                self.lost.remove(&host);
                self.said.remove(&host);
                self.note_lines(host);
            }
            Line::Tick(_) | Line::Checkpoint(_) => {}
            Line::Reply(reply) => self.take_reply(host, reply),
        }
        let is_reply = matches!(line, Line::Reply(_));
        let own_name = self.data.live().own_name(host);
        if self.data.live_mut().apply(host, line).is_err() {
            return commands(host, vec![Command::Full]);
        }
        if is_reply {
            return None;
        }
        self.compare_clocks(host);
        self.note_new_name(host, own_name);
        // With several hosts, each may have its own interval, so the option stays the interval that
        // the user chose last.
        let fleet = self.data.live();
        if let Some(snapshot) = fleet
            .host(host)
            .and_then(HostModel::latest)
            .filter(|_| !fleet.has_many())
        {
            self.options.interval = Duration::from_millis(snapshot.interval_ms);
        }
        let model = self.data.shown().host(host);
        if let Some(dialog) = self.modes.end_on_host_mut(host)
            && let Some(model) = model
            && let Some(snapshot) = model.latest()
        {
            let job = dialog
                .chosen
                .first()
                .map_or_else(Vec::new, |process| end_dialog::job(model, *process));
            dialog.add_to_job(&job, model, snapshot);
            dialog.update(snapshot);
        }
        if effect.is_some() {
            // The next line raises the same alerts, and comes soon.
            return effect;
        }
        let alerts = self
            .alerts
            .update(host, self.data.live_mut(), &self.options);
        (!alerts.is_empty()).then_some(Effect::Alert(alerts))
    }

    fn take_reply(&mut self, host: HostKey, reply: &Reply) {
        if let Some(Page {
            topic: PageTopic::Process(topic),
            ..
        }) = self.modes.page_mut()
            && topic.id()
                == (HostProcess {
                    host,
                    process: reply.process,
                })
        {
            match &reply.outcome {
                Outcome::Inspected(found) => topic.inspection = Some(Ok(found.clone())),
                Outcome::NotInspected { reason } => topic.inspection = Some(Err(reason.clone())),
                outcome => topic.take_outcome(outcome),
            }
        }
        if let Some(dialog) = self.modes.end_on_host_mut(host) {
            dialog.take_reply(reply);
        }
    }

    fn press(&mut self, key: KeyEvent) -> Option<Effect> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        self.notice.clear();
        if let Some(intent) = self.intent(key) {
            return self.perform(intent);
        }
        match self.modes.current_mut() {
            Some(Mode::Filter) => {
                self.processes
                    .filter
                    .handle(to_input_request(&crossterm::event::Event::Key(key))?);
            }
            Some(Mode::Search) => {
                self.processes
                    .search
                    .handle(to_input_request(&crossterm::event::Event::Key(key))?);
                self.processes.find(0, self.data.shown());
            }
            Some(Mode::Page(page)) => {
                page.search_for(to_input_request(&crossterm::event::Event::Key(key))?);
            }
            Some(Mode::JumpTime(time)) => {
                time.handle(to_input_request(&crossterm::event::Event::Key(key))?);
            }
            Some(Mode::MarkName(name)) => {
                name.edit(to_input_request(&crossterm::event::Event::Key(key))?);
            }
            Some(Mode::EndDialog(dialog)) => dialog.type_in(key.code),
            Some(Mode::EndOverHosts(dialog)) => dialog.type_in(key.code),
            _ => {}
        }
        None
    }

    /// Updates everything that follows from the model and the screen's size: rows, cursors, scales
    /// of graphs, lines of a page.
    fn refresh(&mut self) {
        self.update_troubles();
        self.data.live_mut().update_jobs();
        self.choose_fleet_view();
        let is_fleet = self.is_fleet_view();
        if !is_fleet {
            self.processes.refresh(self.data.shown());
            self.gpus.show_host(self.processes.view.host);
            self.gpus.refresh(self.data.shown());
        }
        self.refresh_badges();
        self.update_demo_hints();
        self.layout = self.divided();
        let Some(layout) = self.layout else { return };
        if is_fleet {
            self.refresh_fleet(layout.body);
        } else {
            self.fit_lists(&layout);
        }
        self.marks.fit(self.data.shown());
        self.refresh_job_page();
        let area = self.page_area(layout.body);
        if let Some(page) = self.modes.page_mut() {
            let size = (area.width, area.height);
            page.fit(
                self.data.shown(),
                &self.clocks,
                size,
                self.options.is_recording,
            );
        }
    }

    /// Scrolls the lists so that their cursors are visible, and settles the graph.
    fn fit_lists(&mut self, layout: &Layout) {
        self.processes.fit(layout.processes.height);
        // All tiles are on the screen.
        let gpus = if layout.tiles.is_some() {
            0
        } else {
            self.gpus.rows(self.data.shown()).count()
        };
        self.gpus.fit(gpus, layout.gpus.height);
        let panels = self.panels();
        let shown = self.graph_model().map(|(host, model)| (host, model.now()));
        self.graph.settle(panels, shown);
    }

    fn graph_model(&self) -> Option<(HostKey, &HostModel)> {
        let host = self.subject()?.host;
        Some((host, self.fleet().host(host)?))
    }

    pub(crate) fn panels(&self) -> Vec<Panel> {
        let (Some(area), Some(subject)) = (self.graph_area(), self.subject()) else {
            return Vec::new();
        };
        let Some(model) = self.fleet().host(subject.host) else {
            return Vec::new();
        };
        self.graph.panels(model, subject, area)
    }

    /// The area of the page that is open, in the body of the screen.
    pub(crate) fn page_area(&self, body: Area) -> Area {
        let page = self.modes.page().filter(|page| page.subject().is_some());
        page.map_or(body, |page| page_and_graph(body, page.is_of_process()).0)
    }

    /// The area for graphs: beside or above a page, the whole screen, or the panel below the lists;
    /// `None` where there is no room.
    fn graph_area(&self) -> Option<Area> {
        let layout = self.layout().filter(|_| !self.is_fleet_view())?;
        let area = if let Some(page) = self.modes.page() {
            page.subject()?;
            page_and_graph(layout.body, page.is_of_process()).1
        } else if self.modes.graph().is_some() {
            panel::whole_screen(layout.body).0
        } else {
            layout.graph
        };
        (area.height > 0).then_some(area)
    }
}

fn commands(host: HostKey, commands: Vec<Command>) -> Option<Effect> {
    let commands: Vec<_> = commands
        .into_iter()
        .map(|command| (host, command))
        .collect();
    (!commands.is_empty()).then_some(Effect::Commands(commands))
}

#[cfg(test)]
mod tests;
