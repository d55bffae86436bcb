//! What the ui may ask of the app. It changes nothing.

use std::time::Duration;

use tui_input::Input;

use super::columns::Columns;
use super::end_dialog::EndDialog;
use super::gpu_columns::GpuColumn;
use super::labels;
use super::layout::{self, Layout};
use super::marks::Marks;
use super::page::Page;
use super::process_columns::{ProcessColumn, Sort};
use super::rows::{self, Row, View};
use super::settings::Look;
use super::{App, List, alerts};
use crate::base::text::Text;
use crate::model::{GpuOrProcess, HostModel};
use crate::protocol::snapshot::ProcessId;

impl App {
    /// The model behind the screen.
    pub fn model(&self) -> &HostModel {
        &self.model
    }

    /// Where things stand; absent when the screen is too small.
    pub fn layout(&self) -> Option<Layout> {
        let gpus = self.model.latest().map_or(0, |it| it.gpus.len());
        let layout = layout::divide(self.size.0, self.size.1, gpus, self.graph_view.shown(), self.shows_host())?;
        if self.view.suspects {
            return Some(layout.with_reason());
        }
        let unreadable = self.model.latest().map(rows::unreadable).unwrap_or_default();
        let has_room = unreadable.is_empty() || layout.has_room_for(&unreadable, self.rows.len());
        Some(if has_room { layout } else { layout.with_unread() })
    }

    /// Whether the line of the host shows: as the person wants it, and when something is to be said there.
    fn shows_host(&self) -> bool {
        let is_well = self.model.latest().is_some_and(|it| it.gpus.iter().all(|gpu| !gpu.facts.simulated));
        self.host_line || !is_well || self.lost.is_some() || self.silence().is_some() || self.behind.is_some()
    }

    /// Which colours.
    pub fn look(&self) -> Look {
        self.look
    }

    /// The columns of the list of GPUs, from left to right.
    pub fn gpu_columns(&self) -> Vec<GpuColumn> {
        Columns::shown_at(self.gpu_columns.as_ref(), self.size.0)
    }

    /// The columns of the list of processes, from left to right.
    pub fn columns(&self) -> Vec<ProcessColumn> {
        Columns::shown(self.columns.as_ref(), self.size.0, self.view.suspects, labels::has_cache(&self.model))
    }

    /// How much of each command is scrolled out at the left.
    pub fn command_at(&self) -> usize {
        self.command_at
    }

    /// Why there is no agent; absent while there is one.
    pub fn lost(&self) -> Option<&Text> {
        self.lost.as_ref()
    }

    /// A word to the person that soon goes away.
    pub fn notice(&self) -> Option<&str> {
        self.notice.as_ref().map(|(text, _)| text.as_str())
    }

    /// What leaks, and when memory runs out; absent while nothing does.
    pub fn leak(&self) -> Option<String> {
        alerts::summary(&self.model)
    }

    /// What happened last of what the person wanted to hear of, until it was read.
    pub fn news(&self) -> Option<&str> {
        self.alerts.news()
    }

    /// Whether the person wants to hear when it ends, or is free.
    pub fn is_watched(&self, subject: &GpuOrProcess) -> bool {
        self.alerts.is_watched(subject)
    }

    /// What the person looks at.
    pub fn focus(&self) -> List {
        self.focus
    }

    /// What the list shows.
    pub fn view(&self) -> View {
        self.view
    }

    /// The processes that the panel would open on instead of the one under the cursor.
    pub fn tagged(&self) -> &[ProcessId] {
        &self.tagged
    }

    /// The lines of the list, in order.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The row of the cursor, and the first row on the screen.
    pub fn cursor(&self) -> (usize, usize) {
        (self.cursor_at, self.top)
    }

    /// The GPU of the cursor, and the first on the screen.
    pub fn gpu_cursor(&self) -> (usize, usize) {
        (self.gpu_at, self.gpu_top)
    }

    /// The process under the cursor.
    pub fn under_cursor(&self) -> Option<ProcessId> {
        self.rows.get(self.cursor_at)?.process()
    }

    /// How the list is sorted.
    pub fn sort(&self) -> Sort {
        self.sort
    }

    /// The filter.
    pub fn filter(&self) -> &Input {
        &self.filter
    }

    /// Whether the filter is being typed.
    pub fn is_filtering(&self) -> bool {
        self.is_filtering
    }

    /// The page over the lists.
    pub fn page(&self) -> Option<&Page> {
        self.page.as_ref()
    }

    /// The panel that ends a process.
    pub fn end_dialog(&self) -> Option<&EndDialog> {
        self.end.as_ref()
    }

    /// Whether nobody may be signalled.
    pub fn is_readonly(&self) -> bool {
        self.options.readonly
    }

    /// From one reading to the next.
    pub fn interval(&self) -> Duration {
        self.options.interval
    }

    /// The marks.
    pub fn marks(&self) -> &Marks {
        &self.marks
    }
}
