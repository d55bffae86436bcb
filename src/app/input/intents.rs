//! Carries out each intent of the user.

use std::ops::ControlFlow;
use std::time::Duration;

use super::mode::{MarkName, Mode};
use super::settings_panel::SettingsPanel;
use super::subject_pages::detail_command;
use crate::app::event::Effect;
use crate::app::keys::keymap::Intent;
use crate::app::layout::GraphVisibility;
use crate::app::lists::gpu_list::gpu_rows;
use crate::app::lists::list_view::Grouping;
use crate::app::lists::rows::RowSubject;
use crate::app::page::{NewsList, Page, PageTopic};
use crate::app::{App, List, RECORDING, commands};
use crate::model::{GpuOrProcess, HostProcess, HostSubject};
use crate::output::labels;
use crate::protocol::command::Command;
use crate::protocol::host_key::HostKey;

/// The intervals that the user can step through.
const INTERVALS_MS: [u64; 9] = [100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000];

/// A screen of this width has the layout of one run.
const WITH_RUN: u16 = 160;

/// Lines of the head of a page or panel, which do not scroll.
const PAGE_HEAD: u16 = 2;
/// Lines of the head of a list.
const LIST_HEAD: u16 = 1;

impl App {
    pub(in crate::app) fn perform(&mut self, intent: Intent) -> Option<Effect> {
        if self.step_in_tiles(intent) {
            return None;
        }
        if matches!(self.modes.current(), Mode::Fleet)
            && let ControlFlow::Break(effect) = self.perform_in_fleet(intent)
        {
            return effect;
        }
        match intent {
            Intent::OpenEndDialog | Intent::Refresh | Intent::Interval(_)
                if self.options.is_recording =>
            {
                self.notice.set(RECORDING);
            }
            Intent::Steer(steering) => return self.steer(steering),
            Intent::Move(by) => self.step(by),
            Intent::MovePage(by) => self.step(by * self.page_length().cast_signed()),
            Intent::MoveColumn(by) => self.step_rank(by),
            Intent::OtherList if self.choose_next_difference() => {}
            Intent::OtherList => self.focus_other_list(),
            Intent::FleetView => self.toggle_fleet_view(),
            Intent::SortByNeighbour(_)
            | Intent::SortBy(_)
            | Intent::Invert
            | Intent::OpenSortMenu
            | Intent::SortByChosen => self.sort(intent),
            Intent::OpenFilter => {
                self.focus = List::Processes;
                self.modes.open(Mode::Filter);
            }
            Intent::ClearFilter => self.clear_typed(),
            Intent::OpenSearch | Intent::NextMatch(_) | Intent::SearchPage => self.search(intent),
            Intent::Leave => return self.leave(),
            Intent::Back(steps)
                if matches!(self.modes.current(), Mode::List) && self.graph_area().is_none() =>
            {
                self.processes.scroll_commands(-steps);
            }
            Intent::Graph
            | Intent::Zoom(_)
            | Intent::Back(_)
            | Intent::LoadRows
            | Intent::ZoomAmounts
            | Intent::Now => self.change_graph(intent),
            Intent::Mark | Intent::NameMark | Intent::KeepMarkName => self.edit_marks(intent),
            Intent::Open => return self.open(),
            Intent::ShowGpu(digit) => self.show_gpu(digit),
            Intent::Detail => return self.open_detail(),
            Intent::Job => self.open_job_of_process(),
            Intent::News => self.open_page(PageTopic::News(NewsList::default())),
            Intent::Help => self.open_page(PageTopic::Help),
            Intent::NextLayout => return self.show_next_layout(),
            Intent::GpuView => {
                self.gpus.view = self.gpus.view.next();
                self.notice.set(format!("GPUs: {}", self.gpus.view));
            }
            Intent::OpenEndDialog => return self.open_end_dialog(),
            Intent::Choose(by) => {
                if let Some(dialog) = self.modes.end_dialog_mut() {
                    dialog.choose(by);
                } else if let Some(dialog) = self.modes.end_over_hosts_mut() {
                    dialog.choose(by);
                }
            }
            Intent::Widen => return self.widen_end_dialog(),
            Intent::Confirm => return self.confirm(),
            Intent::Suspects => self.toggle_suspects(),
            Intent::Tree | Intent::Group => self.group(intent),
            Intent::Tag | Intent::TagJob | Intent::TagAll | Intent::TagOthers => self.tag(intent),
            Intent::Untag => self.processes.tagged.clear(),
            Intent::Watch => self.watch(),
            Intent::SettingsPanel => self
                .modes
                .open(Mode::SettingsPanel(SettingsPanel::default())),
            Intent::Toggle => self.toggle(),
            Intent::Shift(by) => self.shift(by),
            Intent::SaveScreen => return Some(Effect::SaveScreen),
            Intent::SaveSettings => return Some(Effect::SaveSettings),
            Intent::Mine => self.processes.view.only_mine = !self.processes.view.only_mine,
            Intent::HostLine => self.toggle_host_line(),
            Intent::Pause if self.data.paused().is_some() => self.data.resume(),
            Intent::Pause => self.data.pause(),
            Intent::ScrollCommand(steps) => self.processes.scroll_commands(steps),
            Intent::CopyPid | Intent::CopyCommand => return self.copy(intent),
            Intent::Close => return self.close(),
            Intent::Interval(by) => return Some(self.change_interval(by)),
            Intent::Refresh => return Some(self.refresh_hosts()),
            Intent::Record => return self.toggle_recording(),
            Intent::AskProbe(task) => return self.ask_probe(task),
            Intent::Suspend => return Some(Effect::Suspend),
            Intent::Quit => return Some(Effect::Quit),
        }
        None
    }

    fn focus_other_list(&mut self) {
        self.focus = if self.focus == List::Gpus {
            List::Processes
        } else {
            List::Gpus
        };
        self.follow_cursor();
    }

    pub(in crate::app) fn open_page(&mut self, topic: PageTopic) {
        self.modes.open(Mode::Page(Box::new(Page::new(topic))));
    }

    /// Shows the next of the layouts: the overview, who holds what, one run where the screen is wide
    /// enough for its page and graph side by side, and the night of each GPU.
    fn show_next_layout(&mut self) -> Option<Effect> {
        let is_wide = self.size.0 >= WITH_RUN;
        let next = match self.modes.page().map(|page| &page.topic) {
            None => Some(PageTopic::Users),
            Some(PageTopic::Users)
                if is_wide && !self.is_fleet_view() && self.under_cursor().is_some() =>
            {
                self.modes.close();
                return self.open_detail();
            }
            Some(PageTopic::Night) => None,
            Some(_) => Some(PageTopic::Night),
        };
        let has_page = self.modes.page().is_some();
        let effect = has_page.then(|| self.close()).flatten();
        if let Some(topic) = next {
            self.open_page(topic);
        }
        effect
    }

    /// Sets a mark, or names the latest one.
    fn edit_marks(&mut self, intent: Intent) {
        match intent {
            Intent::NameMark if self.marks.list.is_empty() => {
                self.notice.set("there is no mark yet: m sets one");
            }
            Intent::NameMark => self.modes.open(Mode::MarkName(MarkName::default())),
            Intent::KeepMarkName => {
                if let Some(Mode::MarkName(name)) = self.modes.close() {
                    self.marks.name_latest(name.0.value());
                }
            }
            _ => {
                let subject = self.subject();
                let notice = self.marks.add(self.data.shown(), subject.as_ref());
                self.notice
                    .set(notice.unwrap_or_else(|| "there is nothing to mark yet".to_owned()));
            }
        }
    }

    fn toggle_suspects(&mut self) {
        self.focus = List::Processes;
        if self.processes.view.only_suspects {
            self.processes.view.only_suspects = false;
        } else {
            self.show_suspects();
        }
    }

    /// Shows the suspects of all GPUs: one on another GPU would be missed.
    fn show_suspects(&mut self) {
        self.processes.view.only_suspects = true;
        self.processes.view.gpu = None;
    }

    /// Shows the suspects for memory whose holder is not known for certain.
    pub(super) fn show_possible_holders(&mut self) {
        self.show_suspects();
        self.notice.set("no single process has this GPU open, so the holder of this memory is not known for certain");
    }

    fn group(&mut self, intent: Intent) {
        let grouping = match (intent, self.processes.view.grouping) {
            (Intent::Tree, Grouping::Tree) => Grouping::Flat,
            (Intent::Tree, _) => Grouping::Tree,
            (_, grouping) => grouping.next(),
        };
        match self.processes.group(grouping, self.data.shown()) {
            Some(notice) => self.notice.set(notice),
            None => self.notice.clear(),
        }
    }

    fn change_graph(&mut self, intent: Intent) {
        match intent {
            Intent::Graph => self.toggle_graph(),
            Intent::LoadRows => self.graph.load = self.graph.load.next(),
            Intent::ZoomAmounts => self.graph.is_zoomed = !self.graph.is_zoomed,
            Intent::Now => self.graph.follow_present(),
            _ => self.move_graph(intent),
        }
    }

    fn move_graph(&mut self, intent: Intent) {
        let Some(host) = self.subject().map(|subject| subject.host) else {
            return;
        };
        let Some(model) = self.data.shown().host(host) else {
            return;
        };
        match intent {
            Intent::Zoom(by) => self.graph.zoom(by, model),
            Intent::Back(steps) => self.graph.step_back(steps, host, model),
            _ => {}
        }
    }

    /// The number of rows that a page key moves by.
    fn page_length(&self) -> usize {
        let Some(layout) = self.layout() else {
            return 1;
        };
        let (height, head) = match (self.modes.current(), self.focus) {
            (Mode::SettingsPanel(_), _) => (layout.settings_panel().height, PAGE_HEAD),
            (Mode::Page(_), _) => (self.page_area(layout.body).height, PAGE_HEAD),
            (Mode::EndDialog(_) | Mode::EndOverHosts(_), _) => (layout.body.height, PAGE_HEAD),
            (_, List::Gpus) => (layout.gpus.height, LIST_HEAD),
            (_, List::Processes) => (layout.processes.height, LIST_HEAD),
        };
        usize::from(height.saturating_sub(head)).max(1)
    }

    /// Restarts the sources of lost and silent hosts. If there are none, asks every agent for a
    /// scan.
    fn refresh_hosts(&mut self) -> Effect {
        let hosts: Vec<HostKey> = self.troubles().map(|(host, _)| host).collect();
        if hosts.is_empty() {
            return self.with_question_to_slurm(self.to_all_hosts(&Command::Scan));
        }
        self.notice.set("starting an agent…");
        self.with_question_to_slurm(Effect::Reconnect(hosts))
    }

    fn to_all_hosts(&self, command: &Command) -> Effect {
        Effect::Commands(
            self.fleet()
                .hosts()
                .map(|(host, _)| (host, command.clone()))
                .collect(),
        )
    }

    fn toggle_host_line(&mut self) {
        self.host_line = !self.host_line;
        if !self.host_line && gpu_rows(self.fleet()).any(|row| row.gpu.facts.simulated) {
            self.notice
                .set("a simulated machine always says in its first line that it is one");
        }
    }

    fn change_interval(&mut self, by: isize) -> Effect {
        let now = u64::try_from(self.options.interval.as_millis()).unwrap_or(u64::MAX);
        let place = INTERVALS_MS
            .partition_point(|interval| *interval < now)
            .min(INTERVALS_MS.len() - 1);
        let milliseconds =
            INTERVALS_MS[place.saturating_add_signed(by).min(INTERVALS_MS.len() - 1)];
        self.options.interval = Duration::from_millis(milliseconds);
        self.notice
            .set(format!("reading every {:?}", self.options.interval));
        self.to_all_hosts(&Command::Interval {
            milliseconds,
            silence: None,
        })
    }

    /// Shows the graph below the lists, then over the whole screen, then not at all.
    fn toggle_graph(&mut self) {
        if matches!(self.modes.current(), Mode::Graph(_)) {
            self.modes.close();
            self.graph.visibility = GraphVisibility::Hidden;
            return;
        }
        let Some(subject) = self.under_cursor() else {
            return self
                .notice
                .set("there is nothing here to draw: move to a process, or with Tab to a GPU");
        };
        let is_hidden = |app: &Self| {
            let layout = app.divided();
            layout.is_some_and(|layout| layout.graph.height == 0)
        };
        if is_hidden(self) {
            self.graph.visibility = GraphVisibility::Shown;
            if !is_hidden(self) {
                return;
            }
        }
        // A graph that is already open below the lists, or has no room there, takes the whole
        // screen.
        self.modes.open(Mode::Graph(subject));
    }

    fn watch(&mut self) {
        let fleet = self.data.shown();
        let subject = match self.focus {
            List::Gpus => self.gpus.selected_row(fleet).map(|row| row.id().into()),
            List::Processes => self.processes.selected_process().map(HostSubject::from),
        };
        let notice = subject.and_then(|subject| self.alerts.watch(subject, fleet));
        self.notice
            .set(notice.unwrap_or_else(|| "there is nothing under the cursor to watch".to_owned()));
    }

    /// Shows only the processes of the GPU under the cursor; those of all GPUs if it is shown alone
    /// already. Opens the page of a process, or the subject of a line of the news. Closes another
    /// page.
    fn open(&mut self) -> Option<Effect> {
        if self.proposal().is_some() {
            return self.confirm_task();
        }
        if self.modes.page().is_some_and(|page| page.job().is_some()) {
            return self.open_rank();
        }
        if let Some(page) = self.modes.page() {
            return match page.news().and_then(NewsList::selected) {
                Some(item) => self.open_news(item),
                None => self.close(),
            };
        }
        if let Some(host) = self.login_without_rows() {
            return Some(Effect::LogIn(host));
        }
        let gpu = match self.focus {
            List::Gpus => Some(self.gpus.selected_row(self.data.shown())?.id()),
            List::Processes => match &self.processes.selected_row()?.subject {
                RowSubject::Group(group) => group.gpu(),
                RowSubject::Unaccounted(_) if self.process_under_cursor().is_none() => {
                    self.show_possible_holders();
                    return None;
                }
                RowSubject::Process(_) | RowSubject::Unaccounted(_) | RowSubject::Heading(_) => {
                    None
                }
            },
        };
        match gpu {
            Some(gpu) => self.show_only(gpu),
            None => return self.open_detail(),
        }
        None
    }

    pub(in crate::app) fn open_detail(&mut self) -> Option<Effect> {
        if self.focus == List::Gpus {
            let row = self.gpus.selected_row(self.data.shown())?;
            let page = Page::new(PageTopic::Gpu(row.id(), labels::gpu_label(row.gpu)));
            let effect = detail_command(&page, row.host, row.model.latest()?);
            self.modes.open(Mode::Page(Box::new(page)));
            return effect;
        }
        // The graph over the whole screen stays with a process that has ended.
        let process = match self.modes.graph() {
            Some(HostSubject {
                host,
                subject: GpuOrProcess::Process(process),
            }) => HostProcess {
                host: *host,
                process: *process,
            },
            _ => self.process_under_cursor()?,
        };
        self.open_process_page(process)
    }

    fn tag(&mut self, intent: Intent) {
        if self.focus == List::Gpus {
            self.notice
                .set("only processes are tagged: Tab goes to them");
            return;
        }
        let fleet = self.data.shown();
        match intent {
            Intent::TagJob => self.processes.tag(true, fleet),
            Intent::TagAll if !self.processes.tag_listed(true, fleet) => {
                self.notice
                    .set("no listed process holds GPU memory (A tags those without)");
            }
            Intent::TagOthers if !self.processes.tag_listed(false, fleet) => {
                self.notice
                    .set("all listed processes hold GPU memory (a tags them)");
            }
            Intent::TagAll | Intent::TagOthers => {}
            _ => {
                self.processes.tag(false, fleet);
                self.step(1);
            }
        }
    }

    fn search(&mut self, intent: Intent) {
        match intent {
            Intent::SearchPage => {
                if let Some(page) = self.modes.page_mut() {
                    page.open_search();
                }
                return;
            }
            Intent::NextMatch(_) if self.processes.search.value().is_empty() => {
                self.notice
                    .set("n goes to the next match of a search, which F3 opens; E shows the news");
                return;
            }
            Intent::NextMatch(by) => {
                if !self.processes.find(by, self.data.shown()) {
                    self.notice
                        .set("no process in the list matches the search: F3 opens it");
                }
            }
            _ => {
                self.processes.search.reset();
                self.modes.open(Mode::Search);
            }
        }
        self.focus = List::Processes;
        self.follow_cursor();
    }

    /// Clears the text being typed, and closes the line where it is typed.
    fn clear_typed(&mut self) {
        match self.modes.current_mut() {
            Some(Mode::Page(page)) => page.close_search(false),
            Some(Mode::Search) => {
                self.processes.search.reset();
                self.modes.close();
            }
            _ => {
                self.processes.filter.reset();
                self.modes.close();
            }
        }
    }

    /// Closes the topmost page, dialog or graph. A graph of the past returns to the present first.
    pub(super) fn close(&mut self) -> Option<Effect> {
        if matches!(self.modes.current(), Mode::Graph(_)) && self.graph.still.is_some() {
            self.graph.follow_present();
            return None;
        }
        if let Some(Mode::Page(page)) = self.modes.current_mut()
            && page.is_typing()
        {
            page.close_search(true);
            return None;
        }
        if let Some(topic) = self.proposal() {
            topic.asked = None;
            return None;
        }
        match self.modes.close()? {
            Mode::EndDialog(dialog) => commands(dialog.host, dialog.release()),
            Mode::EndOverHosts(dialog) => Some(Effect::Commands(dialog.release())),
            Mode::Page(page) => match &page.topic {
                PageTopic::Gpu(gpu, _) => commands(gpu.host, vec![Command::Detail { gpu: None }]),
                _ => None,
            },
            _ => None,
        }
    }

    /// Asks the terminal to put a PID, a UUID or a command into its clipboard.
    fn copy(&mut self, intent: Intent) -> Option<Effect> {
        let Some((text, name)) = self.text_to_copy(intent) else {
            self.notice.set("there is nothing here to copy");
            return None;
        };
        self.notice.set(format!(
            "copied {name}, if the terminal lets programs do that (OSC 52)"
        ));
        Some(Effect::Copy(text))
    }

    /// The text to copy, and its name in the notice; `None` if there is nothing to copy.
    fn text_to_copy(&self, intent: Intent) -> Option<(String, String)> {
        let on_page = match self.modes.page().map(|page| &page.topic) {
            Some(PageTopic::Process(topic)) => Some(topic.id()),
            Some(PageTopic::Gpu(gpu, _)) => {
                return Some((gpu.gpu.to_string(), gpu.gpu.to_string()));
            }
            _ => None,
        };
        if on_page.is_none() && self.focus == List::Gpus {
            let uuid = self.gpus.selected_row(self.fleet())?.gpu.uuid.to_string();
            return Some((uuid.clone(), uuid));
        }
        let shown = on_page.or_else(|| self.processes.selected_process());
        if intent == Intent::CopyCommand {
            let (_, process) = self.fleet().process(shown?)?;
            let command = match &process.facts.argv {
                Ok(argv) if !argv.is_empty() => argv.line().clone(),
                _ => labels::command(process).ok()?,
            };
            return Some((command, format!("the command of {}", process.id.pid)));
        }
        let processes: Vec<HostProcess> = match (
            on_page,
            self.processes.selected_row().map(|row| &row.subject),
        ) {
            (None, _) if !self.processes.tagged.is_empty() => self.processes.tagged.clone(),
            (None, Some(RowSubject::Group(group))) => group.processes().collect(),
            _ => vec![shown?],
        };
        let pids = processes
            .iter()
            .map(|process| process.process.pid.to_string())
            .collect::<Vec<_>>()
            .join(" ");
        let name = if processes.len() == 1 {
            pids.clone()
        } else {
            format!("{} PIDs", processes.len())
        };
        Some((pids, name))
    }
}
