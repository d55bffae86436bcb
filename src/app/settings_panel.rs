//! The panel of settings: colours, the host's line, and which columns stand in which order.

use super::App;
use super::columns::{Columns, ListColumn};
use super::gpu_columns::GpuColumn;
use super::process_columns::ProcessColumn;
use super::settings::ThemeName;

/// A line of the panel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item {
    /// Which colours.
    Theme(ThemeName),
    /// Whether the line of the host shows.
    Host(bool),
    /// Whether the list shows the person's own processes only.
    Mine(bool),
    /// A column of the list of processes, and whether it shows.
    Column(ProcessColumn, bool),
    /// A column of the list of GPUs, and whether it shows.
    GpuColumn(GpuColumn, bool),
}

/// The panel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SettingsPanel {
    at: usize,
}

impl App {
    /// The panel of settings: its lines, and which is under the cursor; absent while it is closed.
    pub fn settings_panel(&self) -> Option<(Vec<Item>, usize)> {
        let panel = self.modes.settings_panel()?;
        let first = [Item::Theme(self.theme), Item::Host(self.host_line), Item::Mine(self.processes.view.mine)];
        let (shown, of_gpus) = (self.columns_of_processes(), self.columns_of_gpus());
        // The user cannot choose whether lists name the host.
        let columns = shown.and_others().into_iter().filter(|column| *column != ProcessColumn::Host);
        let columns = columns.map(|column| Item::Column(column, shown.contains(column)));
        let gpu_columns = of_gpus.and_others().into_iter().filter(|column| *column != GpuColumn::Host);
        let gpu_columns = gpu_columns.map(|column| Item::GpuColumn(column, of_gpus.contains(column)));
        let items: Vec<Item> = first.into_iter().chain(columns).chain(gpu_columns).collect();
        let at = panel.at.min(items.len() - 1);
        Some((items, at))
    }

    pub(super) fn step_settings_panel(&mut self, by: isize) {
        let Some((items, at)) = self.settings_panel() else { return };
        self.put_settings_cursor(at.saturating_add_signed(by).min(items.len() - 1));
    }

    /// Shows what is under the cursor, or hides it; of several, the next one.
    pub(super) fn toggle(&mut self) {
        let Some((items, at)) = self.settings_panel() else { return };
        match items[at] {
            Item::Theme(theme) => self.theme = theme.step(1),
            Item::Host(is_shown) => self.host_line = !is_shown,
            Item::Mine(is_so) => self.processes.view.mine = !is_so,
            Item::Column(column, _) => match self.columns_of_processes().toggled(column) {
                Some(columns) => self.processes.columns = Some(columns),
                None => return self.notice.set(ONE),
            },
            Item::GpuColumn(column, _) => match self.columns_of_gpus().toggled(column) {
                Some(columns) => self.gpus.columns = Some(columns),
                None => return self.notice.set(ONE),
            },
        }
        self.follow_item(items[at]);
    }

    /// Moves the column under the cursor to the left or right; of several, takes another.
    pub(super) fn shift(&mut self, by: isize) {
        let Some((items, at)) = self.settings_panel() else { return };
        match items[at] {
            Item::Theme(theme) => self.theme = theme.step(by),
            Item::Host(_) | Item::Mine(_) => self.toggle(),
            Item::Column(_, false) | Item::GpuColumn(_, false) => {
                self.notice.set("a column that is hidden has no place: Space shows it");
            }
            Item::Column(it, true) if it.spec().is_last => {
                self.notice.set("the command takes the rest of the line, so it is the last");
            }
            Item::GpuColumn(it, true) if it.spec().is_last => {
                self.notice.set("the health takes the rest of the line, so it is the last");
            }
            Item::Column(column, true) => self.processes.columns = Some(self.columns_of_processes().moved(column, by)),
            Item::GpuColumn(column, true) => self.gpus.columns = Some(self.columns_of_gpus().moved(column, by)),
        }
        self.follow_item(items[at]);
    }

    /// The cursor stays on its column.
    fn follow_item(&mut self, item: Item) {
        let Some((items, at)) = self.settings_panel() else { return };
        let is_it = |other: &Item| match (item, *other) {
            (Item::Column(one, _), Item::Column(other, _)) => one == other,
            (Item::GpuColumn(one, _), Item::GpuColumn(other, _)) => one == other,
            _ => false,
        };
        self.put_settings_cursor(items.iter().position(is_it).unwrap_or(at));
    }

    fn put_settings_cursor(&mut self, at: usize) {
        if let Some(panel) = self.modes.settings_panel_mut() {
            panel.at = at;
        }
    }

    fn columns_of_processes(&self) -> Columns<ProcessColumn> {
        self.processes.columns_of_all(self.size.0, self.fleet())
    }

    fn columns_of_gpus(&self) -> Columns<GpuColumn> {
        Columns::new(self.gpus.columns(self.size.0, self.fleet()))
    }
}

const ONE: &str = "one column has to stay";
