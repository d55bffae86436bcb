//! Keys, clicks and pasted text of the cluster view.

use crossterm::event::{
    Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use tui_input::InputRequest;
use tui_input::backend::crossterm::to_input_request;

use super::{ClusterApp, ClusterEffect, ClusterList, ClusterMode, ListPlace};
use crate::model::cluster::RoundKind;

/// The rows of one turn of the wheel.
const WHEEL: isize = 3;

/// The keys, each with what it does, and the cells of GPUs, for the help.
pub(crate) const KEYS: [(&str, &str); 17] = [
    ("↑ ↓ ← →, j k", "move"),
    ("PgUp PgDn, Home End", "move by a page, to an end"),
    ("Enter", "open the host with gputop, over your ssh"),
    ("/", "filter by host, user, job, model and state"),
    ("s S", "sort by the next figure, by the one before"),
    ("i", "turn the order round"),
    ("a", "list all GPUs, and back to the hosts"),
    ("Tab", "to the troubles, and back"),
    ("Ctrl-R", "ask the server now"),
    ("Esc", "leave: the filter, the troubles, all GPUs"),
    ("Ctrl-L", "draw the screen anew"),
    ("Ctrl-Z", "stop gputop, until `fg`"),
    ("?, F1", "this help"),
    ("q, F10, Ctrl-C", "quit"),
    ("·  █  ▓", "a GPU is free, in use, more than 90 % full"),
    ("x  L  o", "hardware error, leak, leftover processes"),
    ("h  ?", "held without use, no samples"),
];

impl ClusterApp {
    pub(super) fn press(&mut self, key: KeyEvent) -> Option<ClusterEffect> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => return Some(ClusterEffect::Quit),
            KeyCode::Char('z') if is_control => return Some(ClusterEffect::Suspend),
            KeyCode::Char('l') if is_control => return Some(ClusterEffect::Redraw),
            _ => {}
        }
        match self.mode {
            ClusterMode::Filter => {
                self.type_filter(key);
                return None;
            }
            ClusterMode::Help => {
                self.mode = ClusterMode::Lists;
                return None;
            }
            ClusterMode::Lists => {}
        }
        self.press_in_lists(key.code, is_control)
    }

    fn press_in_lists(&mut self, code: KeyCode, is_control: bool) -> Option<ClusterEffect> {
        let page = self.page().cast_signed();
        let column = self.areas.fleet.rows_of_column().cast_signed();
        match code {
            KeyCode::Char('r') if is_control => {
                self.ask_now();
                self.notice.set("asking the server");
            }
            KeyCode::Char('q') | KeyCode::F(10) => return Some(ClusterEffect::Quit),
            KeyCode::Char('?') | KeyCode::F(1) => self.mode = ClusterMode::Help,
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::Left if self.list == ClusterList::Hosts => self.step(-column),
            KeyCode::Right if self.list == ClusterList::Hosts => self.step(column),
            KeyCode::PageUp => self.step(-page),
            KeyCode::PageDown => self.step(page),
            KeyCode::Home => self.step(isize::MIN),
            KeyCode::End => self.step(isize::MAX),
            KeyCode::Char('/') => {
                self.is_in_troubles = false;
                self.mode = ClusterMode::Filter;
            }
            KeyCode::Char('s') => self.sort_by_neighbour(1),
            KeyCode::Char('S') => self.sort_by_neighbour(-1),
            KeyCode::Char('i') => self.is_inverted = !self.is_inverted,
            KeyCode::Char('a') => self.toggle_all_gpus(),
            KeyCode::Tab if self.trouble_count() > 0 => {
                self.is_in_troubles = !self.is_in_troubles;
            }
            KeyCode::Esc => self.leave(),
            KeyCode::Enter => return self.open(),
            _ => {}
        }
        None
    }

    fn sort_by_neighbour(&mut self, by: isize) {
        self.sort = self.sort.neighbour(by);
        self.is_inverted = false;
        self.notice.set(format!("sorted by {}", self.sort));
    }

    /// Shows all GPUs, and asks for them; shows the hosts if all GPUs are shown.
    fn toggle_all_gpus(&mut self) {
        self.is_in_troubles = false;
        if self.list == ClusterList::AllGpus {
            self.list = ClusterList::Hosts;
            return;
        }
        self.list = ClusterList::AllGpus;
        self.gpu_place = ListPlace::default();
        self.done.remove(&RoundKind::AllGpus);
    }

    fn leave(&mut self) {
        if self.is_in_troubles {
            self.is_in_troubles = false;
        } else if !self.filter.value().is_empty() {
            self.filter.reset();
        } else {
            self.list = ClusterList::Hosts;
        }
    }

    /// The lines of a page.
    fn page(&self) -> usize {
        let lines = match self.list {
            _ if self.is_in_troubles => self.areas.fleet.troubles.height.into(),
            ClusterList::Hosts => self.areas.fleet.capacity(),
            ClusterList::AllGpus => usize::from(self.areas.gpus.height).saturating_sub(1),
        };
        lines.max(1)
    }

    fn step(&mut self, by: isize) {
        let (place, length) = match self.list {
            _ if self.is_in_troubles => (&mut self.trouble_place, self.troubles.len() + 1),
            ClusterList::Hosts => (&mut self.host_place, self.hosts.len()),
            ClusterList::AllGpus => (&mut self.gpu_place, self.gpus.len()),
        };
        place.cursor = place
            .cursor
            .saturating_add_signed(by)
            .min(length.saturating_sub(1));
        if !self.is_in_troubles && self.list == ClusterList::Hosts {
            self.selected = self.hosts.get(self.host_place.cursor).cloned();
        }
    }

    /// Opens the host under the cursor. A name that ssh could take for something else is refused.
    fn open(&mut self) -> Option<ClusterEffect> {
        let id = if self.is_in_troubles {
            // The first line may be that of the server.
            let place = self
                .trouble_place
                .cursor
                .checked_sub(usize::from(self.server_trouble.is_some()))?;
            self.troubles.get(place)?.host.clone()
        } else {
            self.selected_host()?.clone()
        };
        let name = id.name.to_string();
        let is_name = name.starts_with(|first: char| first.is_ascii_alphanumeric())
            && name.len() <= 253
            && name
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric() || "._-:".contains(letter));
        if !is_name {
            self.notice
                .set("cannot open it: the server's name for it is no name of a host");
            return None;
        }
        Some(ClusterEffect::Open(name))
    }

    fn type_filter(&mut self, key: KeyEvent) {
        match key.code {
            KeyCode::Enter => self.mode = ClusterMode::Lists,
            KeyCode::Esc => {
                self.mode = ClusterMode::Lists;
                self.filter.reset();
            }
            KeyCode::Up => self.step(-1),
            KeyCode::Down => self.step(1),
            _ => {
                if let Some(request) = to_input_request(&Event::Key(key)) {
                    self.filter.handle(request);
                }
            }
        }
    }

    pub(super) fn paste(&mut self, text: &str) {
        if self.mode == ClusterMode::Filter {
            for letter in text.chars().filter(|letter| !letter.is_control()) {
                self.filter.handle(InputRequest::InsertChar(letter));
            }
        }
    }

    pub(super) fn click(&mut self, mouse: MouseEvent) -> Option<ClusterEffect> {
        if self.mode != ClusterMode::Lists {
            return None;
        }
        let (x, y) = (mouse.column, mouse.row);
        let troubles = self.areas.fleet.troubles;
        match mouse.kind {
            MouseEventKind::ScrollUp => self.step(-WHEEL),
            MouseEventKind::ScrollDown => self.step(WHEEL),
            MouseEventKind::Down(MouseButton::Left)
                if troubles.contains(x, y) && self.trouble_count() > 0 =>
            {
                self.is_in_troubles = true;
                self.trouble_place.cursor = self.trouble_place.first + usize::from(y - troubles.y);
            }
            MouseEventKind::Down(MouseButton::Left) => {
                self.is_in_troubles = false;
                match self.list {
                    ClusterList::Hosts => {
                        let place = self.areas.fleet.host_at(x, y)? + self.host_place.first;
                        let host = self.hosts.get(place)?.clone();
                        if self.selected.as_ref() == Some(&host) {
                            return self.open();
                        }
                        self.host_place.cursor = place;
                        self.selected = Some(host);
                    }
                    ClusterList::AllGpus => {
                        let area = self.areas.gpus;
                        if area.contains(x, y) && y > area.y {
                            self.gpu_place.cursor =
                                self.gpu_place.first + usize::from(y - area.y) - 1;
                        }
                    }
                }
            }
            _ => {}
        }
        None
    }
}
