//! The panel of settings: colours, the host's line, and which columns stand in which order.

use super::App;
use super::columns::{Columns, ListColumn};
use super::gpu_columns::GpuColumn;
use super::labels;
use super::process_columns::ProcessColumn;
use super::settings::Look;

/// A line of the panel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item {
    /// Which colours.
    Theme(Look),
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
    pub fn setup(&self) -> Option<(Vec<Item>, usize)> {
        let setup = self.setup?;
        let first = [Item::Theme(self.look), Item::Host(self.host_line), Item::Mine(self.view.mine)];
        let (shown, of_gpus) = (self.of_processes(), self.of_gpus());
        let columns = shown.and_others().into_iter().map(|it| Item::Column(it, shown.contains(it)));
        let gpu_columns = of_gpus.and_others().into_iter().map(|it| Item::GpuColumn(it, of_gpus.contains(it)));
        let items: Vec<Item> = first.into_iter().chain(columns).chain(gpu_columns).collect();
        let at = setup.at.min(items.len() - 1);
        Some((items, at))
    }

    pub(super) fn step_setup(&mut self, by: isize) {
        let Some((items, at)) = self.setup() else { return };
        self.setup = Some(SettingsPanel { at: at.saturating_add_signed(by).min(items.len() - 1) });
    }

    /// Shows what is under the cursor, or hides it; of several, the next one.
    pub(super) fn toggle(&mut self) {
        let Some((items, at)) = self.setup() else { return };
        match items[at] {
            Item::Theme(look) => self.look = look.step(1),
            Item::Host(is_shown) => self.host_line = !is_shown,
            Item::Mine(is_so) => self.view.mine = !is_so,
            Item::Column(column, _) => match self.of_processes().toggled(column) {
                Some(columns) => self.columns = Some(columns),
                None => return self.say(ONE),
            },
            Item::GpuColumn(column, _) => match self.of_gpus().toggled(column) {
                Some(columns) => self.gpu_columns = Some(columns),
                None => return self.say(ONE),
            },
        }
        self.follow_item(items[at]);
    }

    /// Moves the column under the cursor to the left or right; of several, takes another.
    pub(super) fn shift(&mut self, by: isize) {
        let Some((items, at)) = self.setup() else { return };
        match items[at] {
            Item::Theme(look) => self.look = look.step(by),
            Item::Host(_) | Item::Mine(_) => self.toggle(),
            Item::Column(_, false) | Item::GpuColumn(_, false) => {
                self.say("a column that is hidden has no place: Space shows it");
            }
            Item::Column(it, true) if it.spec().is_last => {
                self.say("the command takes the rest of the line, so it is the last");
            }
            Item::GpuColumn(it, true) if it.spec().is_last => {
                self.say("the health takes the rest of the line, so it is the last");
            }
            Item::Column(column, true) => self.columns = Some(self.of_processes().moved(column, by)),
            Item::GpuColumn(column, true) => self.gpu_columns = Some(self.of_gpus().moved(column, by)),
        }
        self.follow_item(items[at]);
    }

    /// The cursor stays on its column.
    fn follow_item(&mut self, item: Item) {
        let Some((items, at)) = self.setup() else { return };
        let is_it = |other: &Item| match (item, *other) {
            (Item::Column(one, _), Item::Column(other, _)) => one == other,
            (Item::GpuColumn(one, _), Item::GpuColumn(other, _)) => one == other,
            _ => false,
        };
        self.setup = Some(SettingsPanel { at: items.iter().position(is_it).unwrap_or(at) });
    }

    /// The columns of the list without the short one of suspects, which has its own.
    fn of_processes(&self) -> Columns<ProcessColumn> {
        Columns::new(Columns::shown(self.columns.as_ref(), self.size.0, false, labels::has_cache(&self.model)))
    }

    fn of_gpus(&self) -> Columns<GpuColumn> {
        Columns::new(self.gpu_columns())
    }
}

const ONE: &str = "one column has to stay";
