//! The states that hide or change what the lists show, such as a filter: each is a badge in the
//! footer, and Esc leaves the latest.

use crate::app::event::Effect;
use crate::app::lists::list_view::Grouping;
use crate::app::lists::process_list::ProcessList;
use crate::app::lists::rows::RowSubject;
use crate::app::{App, Mode};
use crate::base::units::Elapsed;
use crate::model::{HostModel, HostProcess};
use crate::output::labels;
use crate::output::text_wrap::cut;

/// The most characters of a filter in its badge.
const LONGEST_FILTER: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Badge {
    Filter,
    Host,
    Gpu,
    Mine,
    Suspects,
    Grouping,
    Tags,
    Pause,
    /// The graph shows the past.
    Past,
}

impl App {
    /// Updates the list of badges: those that remain keep their order, and new ones come last.
    pub(in crate::app) fn refresh_badges(&mut self) {
        let view = &self.processes.view;
        let active = [
            (Badge::Filter, !self.processes.filter.value().is_empty()),
            (Badge::Host, view.host.is_some()),
            (Badge::Gpu, view.gpu.is_some()),
            (Badge::Mine, view.only_mine),
            (Badge::Suspects, view.only_suspects),
            (Badge::Grouping, view.grouping != Grouping::Flat),
            (Badge::Tags, !self.processes.tagged.is_empty()),
            (Badge::Pause, self.is_paused()),
            (Badge::Past, self.graph.still.is_some()),
        ];
        let active: Vec<Badge> = active
            .into_iter()
            .filter(|(_, is_active)| *is_active)
            .map(|(badge, _)| badge)
            .collect();
        self.badges.retain(|badge| active.contains(badge));
        let new: Vec<Badge> = active
            .into_iter()
            .filter(|badge| !self.badges.contains(badge))
            .collect();
        self.badges.extend(new);
    }

    /// The words of the badges that concern what is on the screen, the latest last.
    pub(in crate::app) fn badge_words(&self) -> Vec<String> {
        let is_shown = |badge: &&Badge| match self.modes.current() {
            Mode::List => true,
            Mode::Fleet => matches!(badge, Badge::Filter | Badge::Pause),
            Mode::Graph(_) => matches!(badge, Badge::Pause | Badge::Past),
            _ => **badge == Badge::Pause,
        };
        self.badges
            .iter()
            .filter(is_shown)
            .map(|badge| self.words(*badge))
            .collect()
    }

    fn words(&self, badge: Badge) -> String {
        let view_host = self.processes.view.host;
        match badge {
            Badge::Filter => format!(
                "filter: {}",
                cut(self.processes.filter.value(), LONGEST_FILTER)
            ),
            Badge::Host => {
                let name = view_host.map_or("", |host| self.fleet().name(host));
                format!("host {}", cut(name, LONGEST_FILTER))
            }
            Badge::Gpu => self.shown_gpu_label().map_or_else(
                || "a GPU that is gone".to_owned(),
                |gpu| format!("GPU {gpu}"),
            ),
            Badge::Mine => "mine only".to_owned(),
            Badge::Suspects => "orphans only".to_owned(),
            Badge::Grouping => match self.processes.view.grouping {
                Grouping::Tree => "tree".to_owned(),
                Grouping::Gpu => "by GPU".to_owned(),
                grouping => format!("by {grouping}"),
            },
            Badge::Tags => tagged(&self.processes),
            Badge::Pause => {
                let ago = self.data.paused().filter(|_| self.replay.is_none());
                ago.map_or_else(
                    || "PAUSED".to_owned(),
                    |ago| format!("PAUSED {} ago", Elapsed(ago)),
                )
            }
            Badge::Past => {
                let now = self.graph_model().map(|(_, model)| model.now());
                let ago = self
                    .graph
                    .cursor()
                    .zip(now)
                    .map(|(cursor, now)| now.since(cursor))
                    .unwrap_or_default();
                format!("graph {} ago", Elapsed(ago))
            }
        }
    }

    /// The short name of the GPU whose processes alone are shown; `None` when all are shown, or the
    /// GPU is gone.
    pub(in crate::app) fn shown_gpu_label(&self) -> Option<String> {
        let gpu = self.processes.view.gpu.as_ref()?;
        let snapshot = self.fleet().host(gpu.host).and_then(HostModel::latest)?;
        snapshot.gpu(&gpu.gpu).map(labels::gpu_label)
    }

    /// Leaves the state of the latest badge.
    pub(in crate::app) fn leave(&mut self) -> Option<Effect> {
        match self.badges.last() {
            None => {}
            Some(Badge::Filter) => self.processes.filter.reset(),
            Some(Badge::Host) => self.leave_host(),
            Some(Badge::Gpu) => self.show_all_gpus(),
            Some(Badge::Mine) => self.processes.view.only_mine = false,
            Some(Badge::Suspects) => self.processes.view.only_suspects = false,
            Some(Badge::Grouping) => self.processes.view.grouping = Grouping::Flat,
            Some(Badge::Tags) => self.processes.tagged.clear(),
            Some(Badge::Pause) => return self.resume(),
            Some(Badge::Past) => self.graph.follow_present(),
        }
        None
    }
}

/// The number of tagged processes, and of those that the list does not show now.
fn tagged(processes: &ProcessList) -> String {
    let is_listed = |id: &HostProcess| {
        processes.rows.iter().any(|row| match &row.subject {
            RowSubject::Process(process) => process == id,
            RowSubject::Group(group) => {
                group.host == id.host && group.members.contains(&id.process)
            }
            RowSubject::Unaccounted(_) | RowSubject::Heading(_) => false,
        })
    };
    let hidden = processes.tagged.iter().filter(|id| !is_listed(id)).count();
    let count = processes.tagged.len();
    if hidden > 0 {
        format!("{count} tagged, {hidden} not listed")
    } else {
        format!("{count} tagged")
    }
}
