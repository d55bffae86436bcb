//! Getters of the app for the view and the session. Nothing here changes the app.

use std::time::Duration;

use crossterm::event::KeyEvent;

use super::end_dialog::{EndDialog, PlannedEnd};
use super::gpu_list::gpu_rows;
use super::graph::panel::{KnownScale, Panel};
use super::host_trouble::HostTrouble;
use super::keymap::{self, Intent};
use super::layout::{self, Layout};
use super::mode::Mode;
use super::{App, alerts, unread_stats};
use crate::model::{Fleet, HostSubject};
use crate::protocol::host_key::HostKey;

impl App {
    /// The fleet on the screen.
    pub fn fleet(&self) -> &Fleet {
        self.data.shown()
    }

    /// The areas of the screen; `None` if the screen is too small.
    pub fn layout(&self) -> Option<Layout> {
        let gpus = gpu_rows(self.fleet()).count();
        let layout = layout::divide(self.size.0, self.size.1, gpus, self.graph.visibility, self.shows_host())?;
        if self.processes.view.suspects {
            return Some(layout.with_reason());
        }
        let unread = unread_stats::sentences(self.fleet());
        let has_room = unread.is_empty() || layout.has_room_for(&unread, self.processes.rows.len());
        Some(if has_room { layout } else { layout.with_unread() })
    }

    /// Why no data comes from a host; `None` while lines arrive in time.
    pub fn trouble(&self, host: HostKey) -> Option<HostTrouble<'_>> {
        let silence = || self.data.live().host(host)?.silence().map(HostTrouble::Silent);
        self.lost.get(&host).map(HostTrouble::Lost).or_else(silence)
    }

    /// The hosts from which no data comes, with the reason.
    pub fn troubles(&self) -> impl Iterator<Item = (HostKey, HostTrouble<'_>)> {
        self.data.live().hosts().filter_map(|(host, _)| Some((host, self.trouble(host)?)))
    }

    /// The worst leak in a few words; `None` while no memory leaks.
    pub fn leak(&self) -> Option<String> {
        alerts::summary(self.fleet())
    }

    /// The intent of a key in the current mode; `None` if the key means nothing there.
    pub fn intent(&self, key: KeyEvent) -> Option<Intent> {
        keymap::intent(self.modes.current().key_context(), key)
    }

    /// Whether letters are typed into a text, and no commands.
    pub fn is_typing(&self) -> bool {
        matches!(self.modes.current(), Mode::Filter | Mode::Mark(_))
    }

    /// The act that Enter performs in the end-process dialog; `None` while the dialog is closed.
    pub fn planned_end(&self) -> Option<PlannedEnd> {
        self.modes.end_dialog().map(EndDialog::planned)
    }

    /// The span of time that the graphs show; zero while there is nothing to draw.
    pub fn graph_span(&self) -> Duration {
        self.graph_model().map_or(Duration::ZERO, |(_, model)| self.graph.span(model))
    }

    /// Every graph on the screen, laid out.
    pub fn panels(&self) -> Vec<Panel> {
        self.lay_out_graphs(KnownScale::Current)
    }

    /// The subject of the graph: over the whole screen, the one it was opened on, else the one under the cursor.
    pub fn subject(&self) -> Option<HostSubject> {
        self.modes.graph().cloned().or_else(|| self.under_cursor())
    }
}
