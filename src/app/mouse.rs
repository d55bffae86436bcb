//! The mouse: the wheel scrolls the list under the pointer, and a click moves a cursor. The mouse can do nothing else.

use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};

use super::mode::Mode;
use super::{App, List};

const WHEEL: isize = 3;

impl App {
    pub(super) fn mouse(&mut self, mouse: MouseEvent) {
        match mouse.kind {
            MouseEventKind::ScrollUp => self.turn_wheel(mouse, -WHEEL),
            MouseEventKind::ScrollDown => self.turn_wheel(mouse, WHEEL),
            MouseEventKind::Down(MouseButton::Left) => self.click(mouse.column, mouse.row),
            _ => {}
        }
    }

    fn turn_wheel(&mut self, mouse: MouseEvent, rows: isize) {
        let Some(layout) = self.layout() else { return };
        match self.modes.current() {
            Mode::EndDialog(_) => return,
            Mode::List if layout.gpus.contains(mouse.column, mouse.row) => self.focus = List::Gpus,
            Mode::List => self.focus = List::Processes,
            _ => {}
        }
        self.step(rows);
    }

    /// Moves the cursor of a graph to the clicked moment, or the cursor of a list to the clicked row.
    fn click(&mut self, x: u16, y: u16) {
        if !matches!(self.modes.current(), Mode::List | Mode::Graph(_)) {
            return;
        }
        if let Some(panel) = self.panels().into_iter().find(|panel| panel.area.contains(x, y)) {
            let host = panel.subject.host;
            if let (Some(at), Some(model)) = (panel.moment(x), self.data.shown().host(host)) {
                self.graph.point(at, host, model);
            }
            return;
        }
        let (Mode::List, Some(layout)) = (self.modes.current(), self.layout()) else { return };
        let row = |area: super::layout::Area, top: usize| {
            (y > area.y && area.contains(x, y)).then(|| top + usize::from(y - area.y - 1))
        };
        let gpus = super::gpu_list::gpu_rows(self.fleet()).count();
        if let Some(row) = row(layout.gpus, self.gpus.top) {
            self.focus = List::Gpus;
            if row < gpus {
                self.gpus.select(row, self.data.shown());
            }
        } else if let Some(row) = row(layout.processes, self.processes.top) {
            self.focus = List::Processes;
            if row < self.processes.rows.len() {
                self.processes.select(row);
            }
        }
    }
}
