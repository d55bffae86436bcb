//! The mouse: the wheel scrolls the list under it, a click puts a cursor there. It can do no more.

use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};

use super::keymap::Mode;
use super::{App, List};
use crate::app::event::Effect;

/// Lines that a turn of the mouse wheel moves.
const WHEEL: isize = 3;

impl App {
    /// Takes in a click, or a turn of the wheel.
    pub(super) fn point(&mut self, mouse: MouseEvent) -> Option<Effect> {
        let layout = self.layout()?;
        let over = if layout.gpus.contains(mouse.column, mouse.row) { List::Gpus } else { List::Processes };
        match mouse.kind {
            MouseEventKind::ScrollUp | MouseEventKind::ScrollDown if self.end.is_none() => {
                if self.mode() == Mode::List {
                    self.focus = over;
                }
                self.step(if mouse.kind == MouseEventKind::ScrollUp { -WHEEL } else { WHEEL });
            }
            MouseEventKind::Down(MouseButton::Left)
                if matches!(self.mode(), Mode::List | Mode::Graph) && self.point_at_graph(mouse.column, mouse.row) => {}
            MouseEventKind::Down(MouseButton::Left) if self.mode() == Mode::List => {
                let (area, top) = match over {
                    List::Gpus => (layout.gpus, self.gpu_top),
                    List::Processes => (layout.processes, self.top),
                };
                if mouse.row > area.y && area.contains(mouse.column, mouse.row) {
                    self.focus = over;
                    let at = top + usize::from(mouse.row - area.y - 1);
                    match over {
                        List::Gpus if at < self.model.latest().map_or(0, |it| it.gpus.len()) => self.choose_gpu(at),
                        List::Processes if at < self.rows.len() => {
                            (self.cursor, self.cursor_at) = (self.rows.get(at).map(|row| row.subject.clone()), at);
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        None
    }
}
