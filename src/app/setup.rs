//! The panel of settings: colours, the host's line, and which columns stand in which order.

use super::App;
use super::columns::{Column, Columns};
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
    /// A column, and whether it shows.
    Column(Column, bool),
}

/// The panel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Setup {
    at: usize,
}

impl App {
    /// The panel of settings: its lines, and which is under the cursor; absent while it is closed.
    pub fn setup(&self) -> Option<(Vec<Item>, usize)> {
        let setup = self.setup?;
        let shown = Columns::new(self.shown_columns());
        let columns = shown.and_others().into_iter().map(|it| Item::Column(it, shown.has(it)));
        let first = [Item::Theme(self.look), Item::Host(self.host_line), Item::Mine(self.view.mine)];
        let items: Vec<Item> = first.into_iter().chain(columns).collect();
        let at = setup.at.min(items.len() - 1);
        Some((items, at))
    }

    pub(super) fn step_setup(&mut self, by: isize) {
        let Some((items, at)) = self.setup() else { return };
        self.setup = Some(Setup { at: at.saturating_add_signed(by).min(items.len() - 1) });
    }

    /// Shows what is under the cursor, or hides it; of several, the next one.
    pub(super) fn toggle(&mut self) {
        let Some((items, at)) = self.setup() else { return };
        match items[at] {
            Item::Theme(look) => self.look = look.step(1),
            Item::Host(is_shown) => self.host_line = !is_shown,
            Item::Mine(is_so) => self.view.mine = !is_so,
            Item::Column(column, is_shown) => {
                let mut columns = self.shown_columns();
                if is_shown {
                    columns.retain(|it| *it != column);
                } else {
                    columns.push(column);
                }
                if columns.is_empty() {
                    return self.say("one column has to stay");
                }
                self.columns = Some(Columns::new(columns));
                self.follow_item(column);
            }
        }
    }

    /// Moves the column under the cursor to the left or right; of several, takes another.
    pub(super) fn shift(&mut self, by: isize) {
        let Some((items, at)) = self.setup() else { return };
        match items[at] {
            Item::Theme(look) => self.look = look.step(by),
            Item::Host(_) | Item::Mine(_) => self.toggle(),
            Item::Column(_, false) => self.say("a column that is hidden has no place: Space shows it"),
            Item::Column(Column::Command, true) => {
                self.say("the command takes the rest of the line, so it is the last");
            }
            Item::Column(column, true) => {
                let mut columns = self.shown_columns();
                let Some(from) = columns.iter().position(|it| *it == column) else { return };
                let to = from.saturating_add_signed(by).min(columns.len() - 1);
                columns.swap(from, to);
                self.columns = Some(Columns::new(columns));
                self.follow_item(column);
            }
        }
    }

    /// The cursor stays on its column.
    fn follow_item(&mut self, column: Column) {
        let Some((items, _)) = self.setup() else { return };
        let at = items.iter().position(|it| matches!(it, Item::Column(it, _) if *it == column));
        self.setup = at.map(|at| Setup { at });
    }

    /// The columns of the list without the short one of suspects, which has its own.
    fn shown_columns(&self) -> Vec<Column> {
        Columns::shown(self.columns.as_ref(), self.size.0, super::rows::View { suspects: false, ..self.view })
    }
}
