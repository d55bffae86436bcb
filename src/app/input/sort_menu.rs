//! The menu of the columns that the process list can be sorted by.

use strum::VariantArray;

use super::mode::Mode;
use crate::app::App;
use crate::app::keys::keymap::Intent;
use crate::app::lists::columns::ListColumn;
use crate::app::lists::process_columns::ProcessColumn;

impl App {
    /// The columns of the menu.
    pub(crate) fn sort_choices(&self) -> Vec<ProcessColumn> {
        let has_hosts = self.fleet().has_many();
        let columns = ProcessColumn::VARIANTS
            .iter()
            .copied()
            .filter(|column| column.sorts());
        columns
            .filter(|column| has_hosts || *column != ProcessColumn::HOST)
            .collect()
    }

    pub(in crate::app) fn sort(&mut self, intent: Intent) {
        match intent {
            Intent::OpenSortMenu => self.open_sort_menu(),
            Intent::SortByChosen => self.sort_by_chosen(),
            Intent::SortByNeighbour(by) => {
                let columns = self.processes.columns(self.size.0, self.data.shown());
                self.processes.sort_by_neighbour(columns, by);
            }
            Intent::SortBy(column) => self.processes.sort = self.processes.sort.first_by(column),
            _ => self.processes.sort.descending = !self.processes.sort.descending,
        }
    }

    /// Opens the menu with the cursor on the column that the list is sorted by.
    fn open_sort_menu(&mut self) {
        let place = self
            .sort_choices()
            .iter()
            .position(|column| *column == self.processes.sort.column);
        self.modes.open(Mode::SortMenu(place.unwrap_or(0)));
    }

    pub(in crate::app) fn step_sort_menu(&mut self, by: isize) {
        let last = self.sort_choices().len().saturating_sub(1);
        if let Some(Mode::SortMenu(cursor)) = self.modes.current_mut() {
            *cursor = cursor.saturating_add_signed(by).min(last);
        }
    }

    /// Sorts by the column under the cursor of the menu, and closes the menu.
    fn sort_by_chosen(&mut self) {
        if let Some(Mode::SortMenu(cursor)) = self.modes.close()
            && let Some(column) = self.sort_choices().get(cursor)
            && *column != self.processes.sort.column
        {
            self.processes.sort = self.processes.sort.first_by(*column);
        }
    }

    /// Sorts by a column; inverts the order if the list is sorted by it already.
    pub(in crate::app) fn sort_or_invert(&mut self, column: ProcessColumn) {
        let sort = &mut self.processes.sort;
        if sort.column == column {
            sort.descending = !sort.descending;
        } else if column.sorts() {
            *sort = sort.first_by(column);
        }
    }
}
