//! The mode: which part of the screen is open, and so where keys go.

use tui_input::{Input, InputRequest};

use super::end_dialog::EndDialog;
use super::end_over_hosts::EndOverHosts;
use super::settings_panel::SettingsPanel;
use crate::app::keys::keymap::KeyContext;
use crate::app::page::Page;
use crate::model::HostSubject;
use crate::protocol::host_key::HostKey;

/// The longest name of a mark, in characters.
const LONGEST_MARK_NAME: usize = 24;

#[derive(Debug)]
pub(crate) enum Mode {
    List,
    /// All hosts at a glance.
    Fleet,
    Filter,
    /// The search is being typed.
    Search,
    /// The menu of columns to sort by, with its cursor.
    SortMenu(usize),
    /// The time to jump to is being typed.
    JumpTime(Input),
    /// The name of the latest mark is being typed.
    MarkName(MarkName),
    /// The graph over the whole screen. Its subject stays when the process ends.
    Graph(HostSubject),
    Page(Box<Page>),
    SettingsPanel(SettingsPanel),
    EndDialog(Box<EndDialog>),
    EndOverHosts(Box<EndOverHosts>),
}

#[derive(Debug, Default)]
pub(crate) struct MarkName(pub Input);

impl MarkName {
    pub(in crate::app) fn edit(&mut self, request: InputRequest) {
        let is_full = self.0.value().chars().count() >= LONGEST_MARK_NAME;
        if !(is_full && matches!(request, InputRequest::InsertChar(_))) {
            self.0.handle(request);
        }
    }
}

impl Mode {
    pub(crate) fn key_context(&self) -> KeyContext {
        match self {
            Self::List => KeyContext::List,
            Self::Fleet => KeyContext::Fleet,
            Self::Filter | Self::Search => KeyContext::Filter,
            Self::Page(page) if page.is_typing() => KeyContext::Filter,
            Self::JumpTime(_) => KeyContext::JumpTime,
            Self::SortMenu(_) => KeyContext::SortMenu,
            Self::MarkName(_) => KeyContext::MarkName,
            Self::Graph(_) => KeyContext::Graph,
            Self::Page(_) => KeyContext::Page,
            Self::SettingsPanel(_) => KeyContext::SettingsPanel,
            Self::EndDialog(_) | Self::EndOverHosts(_) => KeyContext::EndDialog,
        }
    }
}

/// The modes that are open over the lists, the lowest first. Keys go to the topmost.
///
/// More than one mode is open in these cases: a page, the name of a mark or the end-process dialog
/// over the graph, the dialog over a page, and the page of a process over that of its job. The fleet view is below all others.
#[derive(Debug, Default)]
pub(crate) struct ModeStack(Vec<Mode>);

impl ModeStack {
    pub(crate) fn current(&self) -> &Mode {
        self.0.last().unwrap_or(&Mode::List)
    }

    pub(in crate::app) fn current_mut(&mut self) -> Option<&mut Mode> {
        self.0.last_mut()
    }

    pub(in crate::app) fn open(&mut self, mode: Mode) {
        self.0.push(mode);
    }

    /// Closes the topmost mode and returns it; `None` if only the lists are open.
    pub(in crate::app) fn close(&mut self) -> Option<Mode> {
        self.0.pop()
    }

    /// Whether the fleet view is open, maybe below others.
    pub(crate) fn has_fleet(&self) -> bool {
        matches!(self.0.first(), Some(Mode::Fleet))
    }

    /// Opens or closes the fleet view below all others.
    pub(in crate::app) fn set_fleet(&mut self, is_open: bool) {
        self.0.retain(|mode| !matches!(mode, Mode::Fleet));
        if is_open {
            self.0.insert(0, Mode::Fleet);
        }
    }

    /// The subject of the graph over the whole screen; `None` while that is closed.
    pub(crate) fn graph(&self) -> Option<&HostSubject> {
        self.0.iter().find_map(|mode| {
            if let Mode::Graph(subject) = mode {
                Some(subject)
            } else {
                None
            }
        })
    }

    /// Changes the subject of the graph over the whole screen; `None` closes the graph. Nothing
    /// happens while it is closed.
    pub(in crate::app) fn set_graph(&mut self, subject: Option<HostSubject>) {
        let Some(place) = self
            .0
            .iter()
            .position(|mode| matches!(mode, Mode::Graph(_)))
        else {
            return;
        };
        match subject {
            Some(subject) => self.0[place] = Mode::Graph(subject),
            None => _ = self.0.remove(place),
        }
    }

    /// The topmost page, which the end-process dialog may cover.
    pub(crate) fn page(&self) -> Option<&Page> {
        self.0.iter().rev().find_map(|mode| {
            if let Mode::Page(page) = mode {
                Some(&**page)
            } else {
                None
            }
        })
    }

    pub(in crate::app) fn page_mut(&mut self) -> Option<&mut Page> {
        self.0.iter_mut().rev().find_map(|mode| {
            if let Mode::Page(page) = mode {
                Some(&mut **page)
            } else {
                None
            }
        })
    }

    /// The end-process dialog, which nothing covers.
    pub(crate) fn end_dialog(&self) -> Option<&EndDialog> {
        if let Mode::EndDialog(dialog) = self.current() {
            Some(dialog)
        } else {
            None
        }
    }

    pub(in crate::app) fn end_dialog_mut(&mut self) -> Option<&mut EndDialog> {
        if let Some(Mode::EndDialog(dialog)) = self.current_mut() {
            Some(dialog)
        } else {
            None
        }
    }

    /// The dialog that ends processes on several hosts, which nothing covers.
    pub(crate) fn end_over_hosts(&self) -> Option<&EndOverHosts> {
        if let Mode::EndOverHosts(dialog) = self.current() {
            Some(dialog)
        } else {
            None
        }
    }

    pub(in crate::app) fn end_over_hosts_mut(&mut self) -> Option<&mut EndOverHosts> {
        if let Some(Mode::EndOverHosts(dialog)) = self.current_mut() {
            Some(dialog)
        } else {
            None
        }
    }

    /// The dialog of a host, also as a part of one over several hosts.
    pub(in crate::app) fn end_on_host_mut(&mut self, host: HostKey) -> Option<&mut EndDialog> {
        let dialogs = match self.current_mut() {
            Some(Mode::EndDialog(dialog)) => std::slice::from_mut(&mut **dialog),
            Some(Mode::EndOverHosts(dialog)) => dialog.parts.as_mut_slice(),
            _ => &mut [],
        };
        dialogs.iter_mut().find(|dialog| dialog.host == host)
    }

    /// The panel of settings, which nothing covers.
    pub(in crate::app) fn settings_panel(&self) -> Option<&SettingsPanel> {
        if let Mode::SettingsPanel(panel) = self.current() {
            Some(panel)
        } else {
            None
        }
    }

    pub(in crate::app) fn settings_panel_mut(&mut self) -> Option<&mut SettingsPanel> {
        if let Some(Mode::SettingsPanel(panel)) = self.current_mut() {
            Some(panel)
        } else {
            None
        }
    }
}
