//! The panel of settings: the theme, the host line, whether only the user's own processes are
//! shown, and the columns of both lists in their order.

use crate::app::App;
use crate::app::lists::columns::{ColumnSpec, Columns, ListColumn};
use crate::app::lists::gpu_columns::GpuColumn;
use crate::app::lists::process_columns::ProcessColumn;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Item {
    Theme,
    GpuView,
    Host,
    Mine,
    Column(ProcessColumn),
    GpuColumn(GpuColumn),
}

impl Item {
    pub(crate) fn column(self) -> Option<ColumnSpec> {
        match self {
            Self::Column(column) => Some(column.spec()),
            Self::GpuColumn(column) => Some(column.spec()),
            Self::Theme | Self::GpuView | Self::Host | Self::Mine => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SettingsPanel {
    cursor: usize,
}

impl App {
    /// The lines of the panel of settings, each with whether its setting is on, and the index of
    /// the line under the cursor; `None` while the panel is closed.
    pub(crate) fn settings_panel(&self) -> Option<(Vec<(Item, bool)>, usize)> {
        let panel = self.modes.settings_panel()?;
        let first = [
            (Item::Theme, true),
            (Item::GpuView, true),
            (Item::Host, self.host_line),
            (Item::Mine, self.processes.view.only_mine),
        ];
        let (of_processes, of_gpus) = (self.columns_of_processes(), self.columns_of_gpus());
        // The user cannot choose whether lists name the host.
        let columns = of_processes
            .and_others()
            .into_iter()
            .filter(|column| *column != ProcessColumn::Host);
        let columns = columns.map(|column| (Item::Column(column), of_processes.contains(column)));
        let gpu_columns = of_gpus
            .and_others()
            .into_iter()
            .filter(|column| *column != GpuColumn::Host);
        let gpu_columns =
            gpu_columns.map(|column| (Item::GpuColumn(column), of_gpus.contains(column)));
        let items: Vec<_> = first
            .into_iter()
            .chain(columns)
            .chain(gpu_columns)
            .collect();
        let cursor = panel.cursor.min(items.len() - 1);
        Some((items, cursor))
    }

    pub(in crate::app) fn step_settings_panel(&mut self, by: isize) {
        let Some((items, cursor)) = self.settings_panel() else {
            return;
        };
        self.put_settings_cursor(cursor.saturating_add_signed(by).min(items.len() - 1));
    }

    /// Switches the setting under the cursor on or off; chooses the next theme.
    pub(in crate::app) fn toggle(&mut self) {
        let Some((items, cursor)) = self.settings_panel() else {
            return;
        };
        let (item, is_on) = items[cursor];
        match item {
            Item::Theme => self.theme = self.theme.step(1),
            Item::GpuView => self.gpus.view = self.gpus.view.next(),
            Item::Host => self.host_line = !is_on,
            Item::Mine => self.processes.view.only_mine = !is_on,
            Item::Column(column) => match self.columns_of_processes().toggled(column) {
                None => self.notice.set("one column has to stay"),
                columns => self.processes.columns = columns,
            },
            Item::GpuColumn(column) => match self.columns_of_gpus().toggled(column) {
                None => self.notice.set("one column has to stay"),
                columns => self.gpus.columns = columns,
            },
        }
        self.follow_item(item);
    }

    /// Moves the column under the cursor to the right by this many places, or chooses another
    /// theme.
    pub(in crate::app) fn shift(&mut self, by: isize) {
        let Some((items, cursor)) = self.settings_panel() else {
            return;
        };
        match items[cursor] {
            (Item::Theme, _) => self.theme = self.theme.step(by),
            (Item::GpuView | Item::Host | Item::Mine, _) => self.toggle(),
            (_, false) => self
                .notice
                .set("hidden columns cannot be moved: press Space to show this one"),
            (item, true) if item.column().is_some_and(|spec| spec.is_last) => {
                self.notice
                    .set("this column takes the rest of the line, so it is the last");
            }
            (Item::Column(column), true) => {
                self.processes.columns = Some(self.columns_of_processes().moved(column, by));
            }
            (Item::GpuColumn(column), true) => {
                self.gpus.columns = Some(self.columns_of_gpus().moved(column, by));
            }
        }
        self.follow_item(items[cursor].0);
    }

    fn follow_item(&mut self, item: Item) {
        let Some((items, cursor)) = self.settings_panel() else {
            return;
        };
        self.put_settings_cursor(
            items
                .iter()
                .position(|(other, _)| *other == item)
                .unwrap_or(cursor),
        );
    }

    fn put_settings_cursor(&mut self, cursor: usize) {
        if let Some(panel) = self.modes.settings_panel_mut() {
            panel.cursor = cursor;
        }
    }

    fn columns_of_processes(&self) -> Columns<ProcessColumn> {
        self.processes.columns_of_all(self.size.0, self.fleet())
    }

    fn columns_of_gpus(&self) -> Columns<GpuColumn> {
        Columns::new(self.gpus.columns(self.size.0, self.fleet()))
    }
}
