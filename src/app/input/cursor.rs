//! Moves the cursors of the lists, and finds the process or GPU under the cursor.

use super::mode::Mode;
use crate::app::keys::keymap::Intent;
use crate::app::lists::rows::RowSubject;
use crate::app::{App, List};
use crate::model::{HostGpu, HostProcess, HostSubject};

impl App {
    /// Moves the cursor of the list or panel that is open by this many rows, or scrolls the open
    /// page or dialog.
    pub(in crate::app) fn step(&mut self, by: isize) {
        let is_fleet = self.is_fleet_view();
        match self.modes.current_mut() {
            Some(Mode::EndDialog(dialog)) => dialog.scroll(by.signum()),
            Some(Mode::EndOverHosts(dialog)) => dialog.scroll(by.signum()),
            Some(Mode::Page(page)) => page.scroll(by),
            Some(Mode::SettingsPanel(_)) => self.step_settings_panel(by),
            Some(Mode::SortMenu(_)) => self.step_sort_menu(by),
            _ if is_fleet => self.step_fleet(by),
            _ => {
                match self.focus {
                    List::Gpus => self.gpus.step(by, self.data.shown()),
                    List::Processes => self.processes.step(by),
                }
                self.follow_cursor();
            }
        }
    }

    /// Moves the cursor among the tiles of GPUs as the arrow keys point. Returns whether the cursor
    /// is there and the intent is one of an arrow key.
    pub(in crate::app) fn step_in_tiles(&mut self, intent: Intent) -> bool {
        if self.focus != List::Gpus || !matches!(self.modes.current(), Mode::List) {
            return false;
        }
        let Some(grid) = self.layout().and_then(|layout| layout.tiles) else {
            return false;
        };
        let fleet = self.data.shown();
        match intent {
            Intent::Move(by @ (-1 | 1)) => self.gpus.step_row(by, grid.columns.into(), fleet),
            // The key that moves a graph into the past points to the left.
            Intent::Back(steps) => self.gpus.step(-steps, fleet),
            Intent::ScrollCommand(by) => self.gpus.step(by, fleet),
            _ => return false,
        }
        self.follow_cursor();
        true
    }

    /// The process under the cursor of the list. On unaccounted memory, the process that alone has
    /// the GPU open without being listed for it: its likely holder. `None` if there are several
    /// such processes, or none.
    pub(in crate::app) fn process_under_cursor(&self) -> Option<HostProcess> {
        let RowSubject::Unaccounted(HostGpu { host, gpu }) =
            &self.processes.selected_row()?.subject
        else {
            return self.processes.selected_process();
        };
        let mut unaccounted = self.fleet().host(*host)?.unaccounted().iter();
        let holders = &unaccounted
            .find(|unaccounted| unaccounted.gpu == *gpu)?
            .device_file_holders;
        let [process] = holders[..] else { return None };
        Some(HostProcess {
            host: *host,
            process,
        })
    }

    /// Gives the graph over the whole screen the subject under the cursor of the lists, which has
    /// moved.
    pub(in crate::app) fn follow_cursor(&mut self) {
        self.modes.set_graph(self.under_cursor());
    }

    /// The subject under the cursor of the focused list, or its GPU; `None` without a GPU.
    pub(in crate::app) fn under_cursor(&self) -> Option<HostSubject> {
        match self.focus {
            List::Gpus => Some(self.gpus.selected_row(self.fleet())?.id().into()),
            List::Processes => match self.processes.selected_row().map(|row| &row.subject) {
                Some(RowSubject::Process(process)) => Some((*process).into()),
                // The graph of the GPU shows the unaccounted memory on top of its processes.
                Some(RowSubject::Unaccounted(gpu)) => Some(gpu.clone().into()),
                // The first process has the most memory, unless the list is sorted by another
                // column.
                Some(RowSubject::Group(group)) => group
                    .gpu()
                    .map(HostSubject::from)
                    .or_else(|| group.processes().next().map(HostSubject::from)),
                // A GPU without processes has a graph, too: it shows the past.
                Some(RowSubject::Heading(_)) | None => {
                    let shown = self.processes.view.gpu.clone();
                    shown
                        .or_else(|| Some(self.gpus.selected_row(self.fleet())?.id()))
                        .map(HostSubject::from)
                }
            },
        }
    }
}
