//! The mouse: the wheel scrolls the list under the pointer, and a click acts on what is there. No
//! click sends a signal.

use std::time::Duration;

use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};

use super::footer::FooterPart;
use super::mode::Mode;
use crate::app::event::Effect;
use crate::app::fleet::news;
use crate::app::keys::keymap::Intent;
use crate::app::layout::{Area, Layout, TileGrid};
use crate::app::lists::process_widths::ProcessWidths;
use crate::app::page::{LABEL, NewsId, Page, PageLine, night};
use crate::app::{App, List};
use crate::base::time::ViewerTime;
use crate::protocol::host_key::HostKey;

const WHEEL: isize = 3;

/// The span of the graph after a click on a strip of the night.
const HOUR: Duration = Duration::from_hours(1);

/// The rows above the lines of a page.
const PAGE_HEAD: u16 = 2;

/// The longest time between the two clicks of a double click.
const DOUBLE_CLICK: Duration = Duration::from_millis(400);

/// The latest click: its place, and the time since.
#[derive(Debug, Default)]
pub(in crate::app) struct LatestClick(Option<(u16, u16, ViewerTime)>);

impl LatestClick {
    pub(in crate::app) fn advance(&mut self, elapsed: ViewerTime) {
        if let Some((.., since)) = &mut self.0 {
            *since += elapsed;
        }
    }

    /// Remembers a click. Returns whether it is the second of a double click.
    fn is_second(&mut self, x: u16, y: u16) -> bool {
        let before = self.0.replace((x, y, ViewerTime::ZERO));
        let is_same_place = |column: u16, row: u16| row == y && column.abs_diff(x) <= 1;
        let is_second = before.is_some_and(|(column, row, since)| {
            is_same_place(column, row) && since.duration() <= DOUBLE_CLICK
        });
        if is_second {
            self.0 = None;
        }
        is_second
    }
}

impl App {
    pub(in crate::app) fn mouse(&mut self, mouse: MouseEvent) -> Option<Effect> {
        match mouse.kind {
            MouseEventKind::ScrollUp => self.turn_wheel(mouse, -WHEEL),
            MouseEventKind::ScrollDown => self.turn_wheel(mouse, WHEEL),
            MouseEventKind::Down(MouseButton::Left) => {
                let is_second = self.click.is_second(mouse.column, mouse.row);
                return self.click(mouse.column, mouse.row, is_second);
            }
            MouseEventKind::Down(MouseButton::Right)
                if self.point_at_process(mouse.column, mouse.row) =>
            {
                self.processes.tag(false, self.data.shown());
            }
            _ => {}
        }
        None
    }

    fn turn_wheel(&mut self, mouse: MouseEvent, rows: isize) {
        let Some(layout) = self.layout() else { return };
        match self.modes.current() {
            Mode::EndDialog(_) | Mode::EndOverHosts(_) => return,
            Mode::Fleet => return self.turn_wheel_in_fleet(mouse.column, mouse.row, rows),
            Mode::List if layout.gpus.contains(mouse.column, mouse.row) => self.focus = List::Gpus,
            Mode::List => self.focus = List::Processes,
            _ => {}
        }
        self.step(rows);
    }

    fn click(&mut self, x: u16, y: u16, is_second: bool) -> Option<Effect> {
        let layout = self.layout()?;
        if layout.timeline.contains(x, y) {
            return self.click_timeline(x);
        }
        if layout.footer.contains(x, y) {
            return self.click_footer(x.into());
        }
        if let (Mode::SortMenu(_), Some(row)) =
            (self.modes.current(), row_at(layout.processes, x, y))
        {
            // The menu scrolls only where it has too few rows, and the mouse is not needed there.
            if let Some(Mode::SortMenu(cursor)) = self.modes.current_mut() {
                *cursor = row;
            }
            return self.perform(Intent::SortByChosen);
        }
        if let Mode::Page(page) = self.modes.current() {
            let line = usize::from(y.checked_sub(layout.body.y + PAGE_HEAD)?) + page.top;
            if let Some(PageLine::Strip { host, values, .. }) = page.lines.get(line) {
                let (host, columns) = (*host, values.len());
                return self.click_strip(host, columns, x.checked_sub(layout.body.x)?);
            }
            let Some(PageLine::News(part)) = page.lines.get(line) else {
                return None;
            };
            let item = part.id;
            if is_second {
                return self.open_news(item);
            }
            if let Some(list) = self.modes.page_mut().and_then(Page::news_mut) {
                list.select(item);
            }
            return None;
        }
        if let Mode::Fleet = self.modes.current() {
            return self.click_fleet(x, y, is_second);
        }
        if !matches!(self.modes.current(), Mode::List | Mode::Graph(_)) {
            return None;
        }
        if let (Mode::List, true) = (self.modes.current(), layout.news.contains(x, y)) {
            let item = self.news_in_row(layout, usize::from(y - layout.news.y))?;
            return self.open_news(item);
        }
        if let Some(panel) = self
            .panels()
            .into_iter()
            .find(|panel| panel.area.contains(x, y))
        {
            let host = panel.subject.host;
            if let (Some(at), Some(model)) = (panel.moment(x), self.data.shown().host(host)) {
                self.graph.point(at, host, model);
            }
            return None;
        }
        let Mode::List = self.modes.current() else {
            return None;
        };
        let gpus = self.gpus.rows(self.fleet()).count();
        let tile = |grid: TileGrid| (0..gpus).find(|gpu| grid.tile(*gpu).contains(x, y));
        let gpu = match layout.tiles {
            Some(grid) => tile(grid),
            None => row_at(layout.gpus, x, y).map(|row| row + self.gpus.top),
        };
        if let Some(row) = gpu {
            if row < gpus {
                self.focus = List::Gpus;
                self.gpus.select(row, self.data.shown());
                return self.perform(if is_second {
                    Intent::Detail
                } else {
                    Intent::Open
                });
            }
        } else if y == layout.processes.y {
            let widths = ProcessWidths::new(self, layout.processes.width.into());
            if let Some(column) = widths.at(usize::from(x.saturating_sub(layout.processes.x))) {
                self.sort_or_invert(column);
            }
        } else if self.point_at_process(x, y) && is_second {
            return self.perform(Intent::Detail);
        }
        None
    }

    /// Goes to the moment of a column of the page of the night: in a replay it jumps there, live the
    /// graph of the row under the cursor shows that hour.
    fn click_strip(&mut self, host: HostKey, columns: usize, x: u16) -> Option<Effect> {
        let model = self.data.shown().host(host)?;
        let column = usize::from(x).checked_sub(2 + LABEL + 1)?;
        let at = night::window(model, columns).moment(column.min(columns.saturating_sub(1)));
        if self.options.is_recording {
            let behind = model.now().since(at);
            let behind = u64::try_from(behind.as_millis()).unwrap_or(u64::MAX);
            let replay = self.replay.as_mut()?;
            let target = replay.at?.saturating_sub(behind);
            return Some(Effect::Play(vec![replay.jump(target)]));
        }
        self.graph.chosen_span = Some(HOUR);
        self.graph.point(at, host, model);
        self.modes.close();
        None
    }

    /// The item in a row of the news below the lists; `None` where the row has none.
    fn news_in_row(&self, layout: Layout, row: usize) -> Option<NewsId> {
        let fleet = self.fleet();
        if row == 0 && !layout.has_frames && self.last_look.summary(fleet).is_some() {
            return None;
        }
        let line = *news::lines(fleet).get(row)?;
        Some((line.host, line.item.number))
    }

    /// Moves the cursor to the row of the process list at this place. Returns whether there is one.
    fn point_at_process(&mut self, x: u16, y: u16) -> bool {
        let (Mode::List, Some(layout)) = (self.modes.current(), self.layout()) else {
            return false;
        };
        let Some(row) = row_at(layout.processes, x, y).map(|row| row + self.processes.top) else {
            return false;
        };
        self.focus = List::Processes;
        let is_row = row < self.processes.rows.len();
        if is_row {
            self.processes.select(row);
        }
        is_row
    }

    /// Presses the key in the footer at this column. The key that sends a signal has to be pressed
    /// itself.
    fn click_footer(&mut self, x: usize) -> Option<Effect> {
        if self.is_typing() {
            return None;
        }
        let under = self
            .footer(0)
            .into_iter()
            .rev()
            .find(|(start, _)| *start <= x)?
            .1;
        match under {
            FooterPart::Key(_, Intent::Confirm, _) => None,
            FooterPart::Key(_, intent, _) | FooterPart::Hint { intent, .. } => self.perform(intent),
            FooterPart::Badge(_) => None,
            FooterPart::Notice(_) => {
                self.notice.clear();
                None
            }
        }
    }
}

/// The row of a list at this place, counted from the one below the headings.
fn row_at(area: Area, x: u16, y: u16) -> Option<usize> {
    (y > area.y && area.contains(x, y)).then(|| usize::from(y - area.y - 1))
}
