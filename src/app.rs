//! The state of the viewer, and what the user's keys mean: a cursor, an order, a filter, pages and dialogs over the model.
//!
//! Everything happens in [`App::update`], which returns an [`Effect`] if something is to be done outside. The app reads no
//! clock and draws nothing.

mod alerts;
pub mod columns;
pub mod end_dialog;
pub mod event;
pub mod gpu_cells;
pub mod gpu_columns;
pub mod gpu_list;
pub mod graph;
mod host_trouble;
mod intents;
pub mod keymap;
pub mod labels;
pub mod layout;
mod line_edit;
pub mod list_view;
pub mod marks;
mod mode;
mod mouse;
mod notice;
mod options;
pub mod page;
mod pausable;
pub mod process_cells;
pub mod process_columns;
pub mod process_list;
mod row_order;
pub mod rows;
mod scroll;
pub mod settings;
pub mod settings_panel;
mod text_wrap;
pub mod unread_stats;

use std::collections::BTreeMap;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind};

use self::alerts::Alerts;
use self::end_dialog::{EndDialog, PlannedEnd};
use self::event::{Effect, Event};
use self::gpu_list::{GpuList, gpu_rows};
use self::graph::GraphView;
use self::graph::panel::{self, KnownScale, Panel};
use self::graph::scale::Scale;
pub use self::host_trouble::HostTrouble;
use self::keymap::Intent;
use self::layout::{Area, Layout};
use self::marks::Marks;
pub use self::mode::Mode;
use self::mode::ModeStack;
use self::notice::Notice;
pub use self::options::Options;
use self::page::{Page, PageTopic};
use self::pausable::Pausable;
use self::process_list::ProcessList;
use self::rows::RowSubject;
use self::settings::ThemeName;
pub use self::text_wrap::{wrap, wrap_figures};
use crate::base::text::Text;
use crate::model::{Fleet, HostModel, HostProcess, HostSubject};
use crate::protocol::command::Command;
use crate::protocol::host_key::HostKey;
use crate::protocol::line::Line;
use crate::protocol::reply::{Outcome, Reply};
use crate::protocol::snapshot::{ProcessId, Snapshot};

/// One of the two lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// The upper list.
    Gpus,
    /// The lower list.
    Processes,
}

/// The state of the viewer.
#[derive(Debug)]
pub struct App {
    options: Options,
    size: (u16, u16),
    theme: ThemeName,
    /// Whether the line about the host is shown while nothing is wrong.
    host_line: bool,
    data: Pausable,
    /// The hosts whose source has ended, and why.
    lost: BTreeMap<HostKey, Text>,
    notice: Notice,
    alerts: Alerts,
    focus: List,
    processes: ProcessList,
    gpus: GpuList,
    graph: GraphView,
    marks: Marks,
    modes: ModeStack,
}

impl App {
    /// The app before the first event.
    pub fn new(options: Options) -> Self {
        Self::with_hosts(options, Fleet::default())
    }

    /// The app before the first event, with these hosts.
    pub fn with_hosts(options: Options, fleet: Fleet) -> Self {
        Self {
            options,
            size: (0, 0),
            theme: ThemeName::default(),
            host_line: true,
            data: Pausable::new(fleet),
            lost: BTreeMap::new(),
            notice: Notice::default(),
            alerts: Alerts::default(),
            focus: List::Processes,
            processes: ProcessList::default(),
            gpus: GpuList::default(),
            graph: GraphView::default(),
            marks: Marks::default(),
            modes: ModeStack::default(),
        }
    }

    /// Changes the state for an event. Returns the effect that the event asks for, if any.
    pub fn update(&mut self, event: Event) -> Option<Effect> {
        let effect = match event {
            Event::Line(host, line) => self.take_line(host, *line),
            Event::Key(key) => {
                self.alerts.read(self.data.shown());
                self.press(key)
            }
            Event::Mouse(mouse) => {
                self.mouse(mouse);
                None
            }
            Event::Resized(width, height) => {
                self.size = (width, height);
                None
            }
            Event::Tick(elapsed) => {
                self.data.pass(elapsed);
                self.notice.pass(elapsed);
                // Another event follows right after a tick. Time alone moves no row.
                let dialog = self.modes.end_dialog_mut()?;
                let now = self.data.shown().host(dialog.host())?.now();
                return commands(dialog.host(), dialog.pass(now));
            }
            Event::Done(text) => {
                self.say(text.to_string());
                None
            }
            Event::Host(host, label) => {
                self.data.live_mut().set_label(host, label);
                None
            }
            Event::SourceLost(host, reason) => {
                self.lost.insert(host, reason);
                if let Some(dialog) = self.modes.end_dialog_mut().filter(|dialog| dialog.host() == host) {
                    dialog.lose_agent();
                }
                None
            }
        };
        self.refresh();
        effect
    }

    fn take_line(&mut self, host: HostKey, line: Line) -> Option<Effect> {
        let mut effect = None;
        match &line {
            Line::Full(snapshot) => {
                let latest = self.data.live().host(host).and_then(HostModel::latest);
                let is_next = latest.is_some_and(|latest| latest.sequence + 1 == snapshot.sequence);
                if !is_next {
                    // A new agent does not know which GPU the open page is about.
                    effect = self.modes.page().and_then(|page| detail_command(page, host, snapshot));
                }
                self.lost.remove(&host);
                self.options.interval = Duration::from_millis(snapshot.interval_ms);
            }
            Line::Tick(change) => {
                if let Some(interval) = change.interval_ms {
                    self.options.interval = Duration::from_millis(interval);
                }
            }
            Line::Reply(reply) => self.take_reply(host, reply),
        }
        let is_reply = matches!(line, Line::Reply(_));
        if self.data.live_mut().apply(host, line).is_err() {
            return commands(host, vec![Command::Full]);
        }
        if is_reply {
            return None;
        }
        let model = self.data.shown().host(host);
        if let Some(dialog) = self.modes.end_dialog_mut().filter(|dialog| dialog.host() == host)
            && let Some(model) = model
            && let Some(snapshot) = model.latest()
        {
            let job = dialog.first_chosen().map_or_else(Vec::new, |process| job(model, process));
            dialog.add_to_job(&job, model, snapshot);
            dialog.see(snapshot);
        }
        if effect.is_some() {
            // The next line raises the same alerts, and comes soon.
            return effect;
        }
        let alerts = self.alerts.learn(host, self.data.live(), self.options.warn_before);
        (!alerts.is_empty()).then_some(Effect::Alert(alerts))
    }

    fn take_reply(&mut self, host: HostKey, reply: &Reply) {
        if let Some(Page { topic: PageTopic::Process(topic), .. }) = self.modes.page_mut()
            && topic.id() == (HostProcess { host, process: reply.process })
        {
            match &reply.outcome {
                Outcome::Inspected(found) => topic.inspection = Some(Ok(found.clone())),
                Outcome::NotInspected { reason } => topic.inspection = Some(Err(reason.clone())),
                _ => {}
            }
        }
        if let Some(dialog) = self.modes.end_dialog_mut().filter(|dialog| dialog.host() == host) {
            dialog.take_reply(reply);
        }
    }

    fn press(&mut self, key: KeyEvent) -> Option<Effect> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        if let Some(intent) = self.intent(key) {
            return self.obey(intent);
        }
        match self.modes.current_mut() {
            Some(Mode::Filter) => {
                if let Some(request) = line_edit::edit(key) {
                    self.processes.edit_filter(request);
                }
            }
            Some(Mode::Mark(mark)) => {
                if let Some(request) = line_edit::edit(key) {
                    mark.edit(request);
                }
            }
            Some(Mode::EndDialog(dialog)) => match key.code {
                KeyCode::Backspace => dialog.type_in(None),
                KeyCode::Char(character) => dialog.type_in(Some(character)),
                _ => {}
            },
            _ => {}
        }
        None
    }

    fn say(&mut self, notice: impl Into<String>) {
        self.notice.set(notice);
    }

    /// Updates everything that follows from the model and the screen's size: rows, cursors, scales of graphs, lines of a page.
    fn refresh(&mut self) {
        self.processes.refresh(self.data.shown());
        self.gpus.refresh(self.data.shown());
        let Some(layout) = self.layout() else { return };
        self.processes.fit(layout.processes.height);
        self.gpus.fit(gpu_rows(self.data.shown()).count(), layout.gpus.height);
        let panels = self.lay_out_graphs(KnownScale::Previous);
        let shown = self.graph_model().map(|(host, model)| (host, model.now()));
        self.graph.settle(panels, shown);
        self.marks.fit(self.data.shown());
        if let Some(page) = self.modes.page_mut() {
            page.fit(self.data.shown(), layout.body.width, layout.body.height);
        }
    }

    /// The host that the graph is about, and its model.
    fn graph_model(&self) -> Option<(HostKey, &HostModel)> {
        let host = self.subject()?.host;
        Some((host, self.fleet().host(host)?))
    }

    /// Puts the graph over the whole screen on what is under the cursor of the lists, which has moved.
    fn follow_cursor(&mut self) {
        self.modes.set_graph(self.under_cursor());
    }

    /// The subject under the cursor of the focused list; `None` on a row that has no graph.
    fn under_cursor(&self) -> Option<HostSubject> {
        match self.focus {
            List::Gpus => Some(self.gpus.selected_row(self.fleet())?.id().into()),
            List::Processes => match &self.processes.selected_row()?.subject {
                RowSubject::Process(process) => Some((*process).into()),
                // The graph of the GPU shows the unaccounted memory on top of its processes.
                RowSubject::Unaccounted(gpu) => Some(gpu.clone().into()),
                RowSubject::Group(_) | RowSubject::Heading(_) => None,
            },
        }
    }

    fn lay_out_graphs(&self, known: impl Fn(Scale) -> KnownScale) -> Vec<Panel> {
        let (Some(area), Some(subject)) = (self.graph_area(), self.subject()) else { return Vec::new() };
        let Some(model) = self.fleet().host(subject.host) else { return Vec::new() };
        self.graph.panels(model, subject, area, known)
    }

    /// The area for graphs: the whole screen, or the panel below the lists; `None` if neither has room.
    fn graph_area(&self) -> Option<Area> {
        let layout = self.layout()?;
        let area = if self.modes.graph().is_some() { panel::whole_screen(layout.body).0 } else { layout.graph };
        (area.height > 0).then_some(area)
    }

    /// Whether the line about the host is shown: as the user chose, and whenever something is wrong.
    fn shows_host(&self) -> bool {
        let is_fine = self.fleet().hosts().all(|(host, model)| {
            let is_real = |snapshot: &Snapshot| snapshot.gpus.iter().all(|gpu| !gpu.facts.simulated);
            self.trouble(host).is_none() && model.latest().is_some_and(is_real)
        });
        self.host_line || !is_fine || !self.lost.is_empty() || self.paused().is_some()
    }
}

/// What the view and the session read.
impl App {
    /// The fleet on the screen.
    pub fn fleet(&self) -> &Fleet {
        self.data.shown()
    }

    /// The areas of the screen; `None` if the screen is too small.
    pub fn layout(&self) -> Option<Layout> {
        let gpus = gpu_rows(self.fleet()).count();
        let layout = layout::divide(self.size.0, self.size.1, gpus, self.graph.visibility, self.shows_host())?;
        if self.processes.view.suspects {
            return Some(layout.with_reason());
        }
        let unread = unread_stats::sentences(self.fleet());
        let has_room = unread.is_empty() || layout.has_room_for(&unread, self.processes.rows().len());
        Some(if has_room { layout } else { layout.with_unread() })
    }

    /// The width of the screen, in columns.
    pub fn width(&self) -> u16 {
        self.size.0
    }

    /// The colours.
    pub fn theme(&self) -> ThemeName {
        self.theme
    }

    /// The time between two readings.
    pub fn interval(&self) -> Duration {
        self.options.interval
    }

    /// Why no data comes from a host; `None` while lines arrive in time.
    pub fn trouble(&self, host: HostKey) -> Option<HostTrouble<'_>> {
        let silence = || self.data.live().host(host)?.silence().map(HostTrouble::Silent);
        self.lost.get(&host).map(HostTrouble::Lost).or_else(silence)
    }

    /// The hosts from which no data comes, with the reason.
    pub fn troubles(&self) -> impl Iterator<Item = (HostKey, HostTrouble<'_>)> {
        self.data.live().hosts().filter_map(|(host, _)| Some((host, self.trouble(host)?)))
    }

    /// The time since the screen was paused; `None` while the screen is live.
    pub fn paused(&self) -> Option<Duration> {
        self.data.paused()
    }

    /// The current notice; `None` if there is none.
    pub fn notice(&self) -> Option<&str> {
        self.notice.text()
    }

    /// The worst leak in a few words; `None` while no memory leaks.
    pub fn leak(&self) -> Option<String> {
        alerts::summary(self.fleet())
    }

    /// The latest news about watched processes and GPUs; `None` once the user has read the news.
    pub fn news(&self) -> Option<&str> {
        self.alerts.news()
    }

    /// Whether the user watches this process or GPU.
    pub fn is_watched(&self, subject: &HostSubject) -> bool {
        self.alerts.is_watched(subject)
    }

    /// The list that keys go to.
    pub fn focus(&self) -> List {
        self.focus
    }

    /// The list of processes.
    pub fn processes(&self) -> &ProcessList {
        &self.processes
    }

    /// The list of GPUs.
    pub fn gpus(&self) -> &GpuList {
        &self.gpus
    }

    /// What is open on top of everything else.
    pub fn mode(&self) -> &Mode {
        self.modes.current()
    }

    /// The intent of a key in the current mode; `None` if the key means nothing there.
    pub fn intent(&self, key: KeyEvent) -> Option<Intent> {
        keymap::intent(self.mode().key_context(), key)
    }

    /// Whether letters are typed into a text, and no commands.
    pub fn is_typing(&self) -> bool {
        matches!(self.mode(), Mode::Filter | Mode::Mark(_))
    }

    /// The subject of the graph over the whole screen; `None` while that is closed.
    pub fn whole_screen_graph(&self) -> Option<&HostSubject> {
        self.modes.graph()
    }

    /// The open page, which the end-process dialog may cover.
    pub fn page(&self) -> Option<&Page> {
        self.modes.page()
    }

    /// The open end-process dialog.
    pub fn end_dialog(&self) -> Option<&EndDialog> {
        self.modes.end_dialog()
    }

    /// What Enter does in the end-process dialog; `None` while the dialog is closed.
    pub fn planned_end(&self) -> Option<PlannedEnd> {
        self.end_dialog().map(EndDialog::planned)
    }

    /// Which stretch of time the graphs show.
    pub fn graph(&self) -> &GraphView {
        &self.graph
    }

    /// The span of time that the graphs show; zero while there is nothing to draw.
    pub fn graph_span(&self) -> Duration {
        self.graph_model().map_or(Duration::ZERO, |(_, model)| self.graph.span(model))
    }

    /// Every graph on the screen, laid out.
    pub fn panels(&self) -> Vec<Panel> {
        self.lay_out_graphs(KnownScale::Current)
    }

    /// The subject of the graph: over the whole screen, the one it was opened on, else the one under the cursor.
    pub fn subject(&self) -> Option<HostSubject> {
        self.modes.graph().cloned().or_else(|| self.under_cursor())
    }

    /// The marks.
    pub fn marks(&self) -> &Marks {
        &self.marks
    }
}

/// The job of a process, its root first. Empty until every process of the host was scanned: a part of a job must not be
/// taken for the whole.
fn job(model: &HostModel, process: ProcessId) -> Vec<ProcessId> {
    let Some(job) = model.job(process).filter(|_| model.is_complete()) else { return Vec::new() };
    let others = job.members.iter().copied().filter(|id| Some(*id) != job.root);
    job.root.into_iter().chain(others).collect()
}

/// The effect of these commands to one host; `None` if there are none.
fn commands(host: HostKey, commands: Vec<Command>) -> Option<Effect> {
    let commands: Vec<_> = commands.into_iter().map(|command| (host, command)).collect();
    (!commands.is_empty()).then_some(Effect::Commands(commands))
}

/// Asks for the details of the GPU that a page is about, if it is on this host; for a MIG instance, of its parent.
fn detail_command(page: &Page, host: HostKey, snapshot: &Snapshot) -> Option<Effect> {
    let PageTopic::Gpu(topic, _) = &page.topic else { return None };
    let gpu = snapshot.gpu(&topic.gpu).filter(|_| topic.host == host)?;
    let gpu = gpu.facts.parent.as_ref().unwrap_or(&topic.gpu).clone();
    commands(host, vec![Command::Detail { gpu: Some(gpu) }])
}

#[cfg(test)]
mod tests;
