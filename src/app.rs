//! What the person sees and means: cursor, order, filter, pages and panels over the model.
//!
//! Everything happens in [`App::update`]; what is to be done in the world is the [`Effect`] it
//! returns. It reads no clock and draws nothing.

mod accessors;
mod alerts;
pub mod columns;
pub mod end_dialog;
pub mod event;
pub mod gpu_cells;
pub mod gpu_columns;
pub mod graph;
pub mod keymap;
pub mod labels;
pub mod layout;
mod line_edit;
pub mod marks;
mod mouse;
mod options;
mod overlay;
pub mod page;
pub mod process_cells;
pub mod process_columns;
mod row_order;
pub mod rows;
pub mod settings;
pub mod settings_panel;
mod table;
mod text_wrap;

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind};
use tui_input::Input;

use self::alerts::Alerts;
use self::columns::Columns;
use self::end_dialog::EndDialog;
use self::gpu_columns::GpuColumn;
use self::graph::GraphView;
use self::keymap::{Intent, Mode};
use self::marks::Marks;
pub use self::options::Options;
use self::page::{Page, Topic};
use self::process_columns::{ProcessColumn, Sort};
use self::row_order::Order;
use self::rows::{Grouping, Row, View};
use self::settings::Look;
use self::settings_panel::SettingsPanel;
pub use self::text_wrap::{wrap, wrap_figures};
use crate::app::event::{Effect, Event};
use crate::base::text::Text;
use crate::model::HostModel;
use crate::protocol::command::{Command, Outcome, Reply};
use crate::protocol::line::Line;
use crate::protocol::snapshot::{GpuUuid, ProcessId};

/// One of the two lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// The upper one.
    Gpus,
    /// The lower one.
    Processes,
}

/// The intervals that a person can step through.
const INTERVALS_MS: [u64; 9] = [100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000];

/// A notice stays for so long.
const NOTICE: Duration = Duration::from_secs(5);

/// All of the viewer's state.
#[derive(Debug)]
pub struct App {
    options: Options,
    model: HostModel,
    /// While the screen is paused: what goes on behind it, and for how long.
    behind: Option<(Box<HostModel>, Duration)>,
    look: Look,
    /// Whether the line of the host shows when nothing is wrong.
    host_line: bool,
    size: (u16, u16),
    lost: Option<Text>,
    notice: Option<(String, Duration)>,
    focus: List,
    view: View,
    rows: Vec<Row>,
    order: Order,
    /// What is under the cursor; absent while the person has not chosen it, which means the first row.
    cursor: Option<rows::Subject>,
    cursor_at: usize,
    top: usize,
    /// The GPU under the cursor; absent while the person has not chosen one, which means the first.
    gpu: Option<GpuUuid>,
    gpu_at: usize,
    gpu_top: usize,
    sort: Sort,
    /// The columns that the person chose; absent while the width of the screen does.
    columns: Option<Columns<ProcessColumn>>,
    /// Those of the list of GPUs.
    gpu_columns: Option<Columns<GpuColumn>>,
    /// How much of each command is scrolled out at the left.
    command_at: usize,
    setup: Option<SettingsPanel>,
    filter: Input,
    is_filtering: bool,
    graph_view: GraphView,
    marks: Marks,
    page: Option<Page>,
    end: Option<EndDialog>,
    /// What the panel opens on instead of the process under the cursor.
    tagged: Vec<ProcessId>,
    alerts: Alerts,
}

impl App {
    /// The app before anything happened.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            model: HostModel::default(),
            behind: None,
            look: Look::default(),
            host_line: true,
            size: (0, 0),
            lost: None,
            notice: None,
            focus: List::Processes,
            view: View::default(),
            rows: Vec::new(),
            order: Order::default(),
            cursor: None,
            cursor_at: 0,
            top: 0,
            gpu: None,
            gpu_at: 0,
            gpu_top: 0,
            sort: Sort::by(ProcessColumn::Memory),
            columns: None,
            gpu_columns: None,
            command_at: 0,
            setup: None,
            filter: Input::default(),
            is_filtering: false,
            graph_view: GraphView::default(),
            marks: Marks::default(),
            page: None,
            end: None,
            tagged: Vec::new(),
            alerts: Alerts::default(),
        }
    }

    /// Takes in what happened, and says what is to be done about it.
    pub fn update(&mut self, event: Event) -> Option<Effect> {
        let effect = match event {
            Event::Line(_, line) => self.hear(*line),
            Event::Key(key) => {
                self.alerts.read(self.model.now());
                self.press(key)
            }
            Event::Mouse(mouse) => self.point(mouse),
            Event::Resized(width, height) => {
                self.size = (width, height);
                None
            }
            Event::Tick(elapsed) => {
                self.pass(elapsed);
                self.notice = self.notice.take().and_then(|(text, left)| Some((text, left.checked_sub(elapsed)?)));
                // Each other event comes right after one of these. Time alone moves no line.
                let now = self.model.now();
                return self.end.as_mut().and_then(|end| commands(end.pass(now)));
            }
            Event::Done(words) => {
                self.say(words.to_string());
                None
            }
            Event::SourceLost(_, reason) => {
                self.lost = Some(reason);
                if let Some(end) = &mut self.end {
                    end.lose_agent();
                }
                None
            }
        };
        self.arrange();
        effect
    }

    fn hear(&mut self, line: Line) -> Option<Effect> {
        let mut effect = None;
        match line {
            Line::Full(snapshot) => {
                let is_next = self.newest().latest().is_some_and(|old| old.sequence + 1 == snapshot.sequence);
                if !is_next {
                    // Another agent does not know whose page is open.
                    effect = self.page.as_ref().and_then(|page| overlay::detail_of(page, &snapshot));
                }
                self.lost = None;
                self.options.interval = Duration::from_millis(snapshot.interval_ms);
                self.newest().replace(*snapshot);
            }
            Line::Tick(change) => {
                if let Some(interval) = change.interval_ms {
                    self.options.interval = Duration::from_millis(interval);
                }
                if self.newest().change(change).is_err() {
                    return Some(Effect::Commands(vec![Command::Full]));
                }
            }
            Line::Reply(reply) => {
                self.answer(&reply);
                return None;
            }
        }
        if let (Some(end), Some(snapshot)) = (&mut self.end, self.model.latest()) {
            let job = end.first_chosen().map_or_else(Vec::new, |id| job(&self.model, id));
            end.meet(&job, &self.model, snapshot);
            end.see(snapshot);
        }
        if effect.is_some() {
            // The next line is soon there, and says it again.
            return effect;
        }
        let newest = self.behind.as_ref().map_or(&self.model, |(model, _)| model);
        let alerts = self.alerts.learn(newest, self.options.warn_before);
        (!alerts.is_empty()).then_some(Effect::Alert(alerts))
    }

    fn answer(&mut self, reply: &Reply) {
        if let Outcome::Sent { signal, at } = reply.outcome {
            self.model.signalled(reply.process, signal, at);
        }
        if let Some(Page { topic: Topic::Process(process, inspection), .. }) = &mut self.page
            && process.id == reply.process
        {
            match &reply.outcome {
                Outcome::Inspected(found) => *inspection = Some(Ok(found.clone())),
                Outcome::NotInspected { reason } => *inspection = Some(Err(reason.clone())),
                _ => {}
            }
        }
        if let Some(end) = &mut self.end {
            end.hear(reply);
        }
    }

    fn press(&mut self, key: KeyEvent) -> Option<Effect> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        let mode = self.mode();
        match keymap::meaning(mode, key) {
            Some(intent) => self.obey(intent),
            None if mode == Mode::Filter => {
                if let Some(request) = line_edit::edit(key) {
                    self.filter.handle(request);
                    self.top = 0;
                }
                None
            }
            None if mode == Mode::Mark => {
                if let Some(request) = line_edit::edit(key) {
                    self.marks.edit(request);
                }
                None
            }
            None => {
                if let Some(end) = &mut self.end {
                    match key.code {
                        KeyCode::Backspace => end.type_in(None),
                        KeyCode::Char(character) => end.type_in(Some(character)),
                        _ => {}
                    }
                }
                None
            }
        }
    }

    /// Where keys go now.
    pub fn mode(&self) -> Mode {
        match () {
            () if self.end.is_some() => Mode::EndDialog,
            () if self.page.is_some() => Mode::Page,
            () if self.setup.is_some() => Mode::SettingsPanel,
            () if self.is_filtering => Mode::Filter,
            () if self.marks.typed().is_some() => Mode::Mark,
            () if self.graph_view.whole().is_some() => Mode::Graph,
            () => Mode::List,
        }
    }

    fn obey(&mut self, intent: Intent) -> Option<Effect> {
        match intent {
            Intent::Move(by) => self.step(by),
            Intent::MovePage(by) => self.step(by * self.page_length().cast_signed()),
            Intent::First => self.step(isize::MIN),
            Intent::Last => self.step(isize::MAX),
            Intent::OtherList => {
                self.focus = if self.focus == List::Gpus { List::Processes } else { List::Gpus };
                self.follow_cursor();
            }
            Intent::NextColumn => self.sort_by_neighbour(1),
            Intent::PreviousColumn => self.sort_by_neighbour(-1),
            Intent::SortBy(column) => self.sort = self.sort.first_by(column),
            Intent::Invert => self.sort.descending = !self.sort.descending,
            Intent::OpenFilter => (self.is_filtering, self.focus) = (true, List::Processes),
            Intent::KeepFilter => self.is_filtering = false,
            Intent::ClearFilter => {
                (self.filter, self.is_filtering) = (Input::default(), false);
                return self.obey_graph(Intent::Now);
            }
            Intent::Graph
            | Intent::Zoom(_)
            | Intent::Back(_)
            | Intent::Now
            | Intent::Mark
            | Intent::KeepMark
            | Intent::DropMark => return self.obey_graph(intent),
            Intent::Detail => return self.open_detail(),
            Intent::Help => self.page = Some(Page::new(Topic::Help)),
            Intent::OpenEndPanel => return self.open_end_panel(),
            Intent::Choose(by) => {
                if let Some(end) = &mut self.end {
                    end.choose(by);
                }
            }
            Intent::Suspects => {
                self.view.suspects = !self.view.suspects;
                (self.focus, self.cursor, self.cursor_at) = (List::Processes, None, 0);
            }
            Intent::Tree => {
                let is_tree = self.view.grouping == Grouping::Tree;
                self.group(if is_tree { Grouping::Flat } else { Grouping::Tree });
            }
            Intent::Group => self.group(self.view.grouping.next()),
            Intent::Tag => {
                self.tag(false);
                if self.focus == List::Processes {
                    self.step(1);
                }
            }
            Intent::TagJob => self.tag(true),
            Intent::Untag => self.tagged.clear(),
            Intent::Watch => self.watch(),
            Intent::Widen => {
                let snapshot = self.model.latest()?;
                return commands(self.end.as_mut()?.widen(snapshot));
            }
            Intent::Confirm => return self.confirm(),
            Intent::SettingsPanel => self.setup = Some(SettingsPanel::default()),
            Intent::Toggle => self.toggle(),
            Intent::Shift(by) => self.shift(by),
            Intent::Keep => return Some(Effect::Keep),
            Intent::Mine | Intent::HostLine | Intent::Pause | Intent::ScrollCommand(_) => self.change_view(intent),
            Intent::CopyPid | Intent::CopyCommand => return self.copy(intent),
            Intent::Close => return self.close(),
            Intent::Faster => return Some(self.pace(-1)),
            Intent::Slower => return Some(self.pace(1)),
            Intent::Refresh if self.lost.is_some() || self.silence().is_some() => {
                self.say("starting an agent…");
                return Some(Effect::Reconnect);
            }
            Intent::Refresh => return Some(Effect::Commands(vec![Command::Scan])),
            Intent::Suspend => return Some(Effect::Suspend),
            Intent::Quit => return Some(Effect::Quit),
        }
        None
    }

    /// Moves the cursor, or the page, by so many lines.
    fn step(&mut self, by: isize) {
        let moved = |at: usize, len: usize| at.saturating_add_signed(by).min(len.saturating_sub(1));
        if let Some(end) = &mut self.end {
            end.scroll(by.signum());
        } else if self.setup.is_some() && self.page.is_none() {
            self.step_setup(by);
        } else if let Some(page) = &mut self.page {
            page.scroll(by);
        } else if self.focus == List::Gpus {
            self.choose_gpu(moved(self.gpu_at, self.model.latest().map_or(0, |it| it.gpus.len())));
        } else {
            self.cursor_at = moved(self.cursor_at, self.rows.len());
            self.cursor = self.rows.get(self.cursor_at).map(|row| row.subject.clone());
        }
        self.follow_cursor();
    }

    /// Puts the cursor on a GPU: on itself, not on its place, which another may take.
    fn choose_gpu(&mut self, at: usize) {
        self.gpu_at = at;
        self.gpu = self.model.latest().and_then(|it| Some(it.gpus.get(at)?.uuid.clone()));
    }

    /// Tags what is under the cursor, or takes the tag away: a process, its job, or a group.
    fn tag(&mut self, whole_job: bool) {
        if self.focus == List::Gpus {
            return self.say("only processes are tagged: Tab goes to them");
        }
        let Some(row) = self.rows.get(self.cursor_at) else { return };
        let meant = match &row.subject {
            rows::Subject::Process(id) if whole_job => self.model.job(*id).map(|it| it.members.clone()),
            rows::Subject::Process(id) => Some(vec![*id]),
            rows::Subject::Group(group) => Some(group.members.clone()),
            rows::Subject::Unaccounted(_) | rows::Subject::Heading(_) => None,
        };
        let meant = meant.unwrap_or_default();
        if meant.iter().all(|id| self.tagged.contains(id)) {
            self.tagged.retain(|id| !meant.contains(id));
        } else {
            let new: Vec<ProcessId> = meant.into_iter().filter(|id| !self.tagged.contains(id)).collect();
            self.tagged.extend(new);
        }
    }

    fn page_length(&self) -> usize {
        let Some(layout) = self.layout() else { return 1 };
        let (height, head) = match (&self.page, self.focus) {
            (Some(_), _) => (layout.body.height, 2),
            (None, _) if self.setup.is_some() => (layout.body.height, 2),
            (None, List::Gpus) => (layout.gpus.height, 1),
            (None, List::Processes) => (layout.processes.height, 1),
        };
        usize::from(height.saturating_sub(head)).max(1)
    }

    fn pace(&mut self, by: isize) -> Effect {
        let now = u64::try_from(self.options.interval.as_millis()).unwrap_or(u64::MAX);
        let at = INTERVALS_MS.partition_point(|it| *it < now).min(INTERVALS_MS.len() - 1);
        let milliseconds = INTERVALS_MS[at.saturating_add_signed(by).min(INTERVALS_MS.len() - 1)];
        self.options.interval = Duration::from_millis(milliseconds);
        self.say(format!("reading every {:?}", self.options.interval));
        Effect::Commands(vec![Command::Interval { milliseconds }])
    }

    fn say(&mut self, notice: impl Into<String>) {
        self.notice = Some((notice.into(), NOTICE));
    }

    /// Draws from state what follows from it: rows, where the cursor is, what is scrolled out.
    fn arrange(&mut self) {
        self.rows = rows::rows(&self.model, self.view, self.sort, self.filter.value(), &mut self.order);
        self.tagged.retain(|id| self.model.latest().is_some_and(|it| it.process(*id).is_some()));
        let found = self.cursor.as_ref().and_then(|it| self.rows.iter().position(|row| row.subject == *it));
        match (found, &self.cursor) {
            (Some(at), _) => self.cursor_at = at,
            // It is gone: stay in its place, with whoever is there now.
            (None, Some(_)) if !self.rows.is_empty() => {
                self.cursor_at = self.cursor_at.min(self.rows.len() - 1);
                self.cursor = self.rows.get(self.cursor_at).map(|row| row.subject.clone());
            }
            (None, _) => (self.cursor, self.cursor_at) = (None, 0),
        }
        let gpus = self.model.latest().map_or(0, |it| it.gpus.len());
        let place = |uuid: &GpuUuid| self.model.latest()?.gpus.iter().position(|gpu| gpu.uuid == *uuid);
        self.gpu_at = self.gpu.as_ref().and_then(place).unwrap_or(self.gpu_at).min(gpus.saturating_sub(1));
        let Some(layout) = self.layout() else { return };
        let visible = |height: u16| usize::from(height.saturating_sub(1)).max(1);
        self.top = scroll(self.top, self.cursor_at, self.rows.len(), visible(layout.processes.height));
        self.gpu_top = scroll(self.gpu_top, self.gpu_at, gpus, visible(layout.gpus.height));
        self.settle_graphs();
        if let Some(page) = &mut self.page {
            page.fit(&self.model, layout.body.width, layout.body.height);
        }
    }
}

/// The job of a process, its root first; nobody before every process of the host was looked at: a part of a job
/// is not to be taken for the whole.
fn job(model: &HostModel, process: ProcessId) -> Vec<ProcessId> {
    let Some(job) = model.job(process).filter(|_| model.is_complete()) else { return Vec::new() };
    let others = job.members.iter().copied().filter(|id| Some(*id) != job.root);
    job.root.into_iter().chain(others).collect()
}

/// An effect, when there is something to ask.
fn commands(commands: Vec<Command>) -> Option<Effect> {
    (!commands.is_empty()).then_some(Effect::Commands(commands))
}

/// The first line on the screen, such that the cursor is on it and nothing is left blank.
fn scroll(top: usize, cursor: usize, len: usize, visible: usize) -> usize {
    top.min(cursor).max((cursor + 1).saturating_sub(visible)).min(len.saturating_sub(visible))
}

#[cfg(test)]
mod tests;
