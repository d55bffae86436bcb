//! Brings the fleet view up to date before it is drawn. Only hosts with new lines cost something.

use super::fleet_areas::{FleetAreas, FleetShape};
use super::fleet_view::{FleetFocus, FleetView, KnownOverview};
use super::host_rows::HostRow;
use super::host_sort::{HostSort, natural_order};
use super::trouble_lines::FleetTrouble;
use crate::app::App;
use crate::app::layout::Area;
use crate::base::time::ViewerTime;
use crate::model::HostModel;
use crate::protocol::host_key::HostKey;

/// Hosts that are sorted by a figure change places no more often than this, in seconds.
const SORTED_FOR: u64 = 5;

impl App {
    /// Brings the fleet view up to date: the overviews of hosts with new lines, the order of hosts,
    /// the lines of troubles and the areas in the body of the screen.
    pub(in crate::app) fn refresh_fleet(&mut self, body: Area) {
        let mut view = std::mem::take(&mut self.fleet_view);
        self.update_overviews(&mut view);
        self.sort_hosts(&mut view);
        self.find_selected_job(&mut view);
        let mut ranked: Vec<_> = self.troubles.lasting().collect();
        ranked.sort_by_key(|(host, trouble)| (trouble.urgency(), *host));
        let troubles: Vec<FleetTrouble<'_>> = ranked
            .into_iter()
            .map(|(host, trouble)| FleetTrouble::Ranked(host, trouble))
            .chain(view.overviews.iter().flat_map(|(host, known)| {
                let held = known.overview.held.iter();
                held.map(|held| FleetTrouble::Held(*host, held))
            }))
            .collect();
        view.trouble_count = troubles.len();
        let is_empty = match view.focus {
            FleetFocus::Hosts => false,
            FleetFocus::Troubles => view.trouble_count == 0,
            FleetFocus::Jobs => view.job_count == 0,
        };
        if is_empty {
            view.focus = FleetFocus::Hosts;
        }
        // The cursor stays on its trouble.
        let is_selected = |trouble: &FleetTrouble<'_>| Some(trouble.id()) == view.selected_trouble;
        let place = troubles.iter().position(is_selected);
        let without = match (view.has_moved, &view.selected_trouble) {
            (false, None) => 0,
            _ => view.trouble_cursor,
        };
        view.trouble_cursor = place
            .unwrap_or(without)
            .min(troubles.len().saturating_sub(1));
        view.areas = FleetAreas::divide(
            &FleetShape {
                body,
                troubles: view.trouble_count,
                is_in_troubles: view.focus == FleetFocus::Troubles,
                hosts: view.hosts.len(),
                name: self.widest_name(&view.hosts),
                cells: widest_cells(&view),
                jobs: view.job_count,
                is_in_jobs: view.focus == FleetFocus::Jobs,
            },
            view.areas.troubles.height,
        );
        let shown = view.shown_troubles();
        view.first_trouble = match view.focus {
            FleetFocus::Hosts | FleetFocus::Jobs => 0,
            FleetFocus::Troubles => view
                .first_trouble
                .min(view.trouble_cursor)
                .max((view.trouble_cursor + 1).saturating_sub(shown)),
        };
        let lines = troubles.iter().skip(view.first_trouble).take(shown);
        let lines = lines.map(|trouble| self.trouble_line(trouble)).collect();
        let moved_to = troubles
            .get(view.trouble_cursor)
            .filter(|_| std::mem::take(&mut view.has_moved));
        view.selected_trouble = moved_to
            .map(FleetTrouble::id)
            .or_else(|| view.selected_trouble.take());
        view.troubles = lines;
        let rows = usize::from(view.areas.jobs.height).max(1);
        view.first_job = match view.focus {
            FleetFocus::Jobs => view
                .first_job
                .min(view.job_cursor)
                .max((view.job_cursor + 1).saturating_sub(rows)),
            FleetFocus::Hosts | FleetFocus::Troubles => 0,
        };
        view.first = view
            .areas
            .first_host(view.first, view.cursor, view.hosts.len());
        self.fleet_view = view;
    }

    /// Lets the cursor of the jobs stay on its job.
    fn find_selected_job(&self, view: &mut FleetView) {
        let jobs = self.fleet().jobs();
        view.job_count = jobs.len();
        let place = jobs
            .iter()
            .position(|job| Some(&job.key) == view.selected_job.as_ref());
        let last = jobs.len().saturating_sub(1);
        view.job_cursor = place.unwrap_or(view.job_cursor).min(last);
    }

    fn update_overviews(&self, view: &mut FleetView) {
        let fleet = self.fleet();
        view.overviews.retain(|host, _| {
            fleet
                .host(*host)
                .is_some_and(|model| model.latest().is_some())
        });
        for (host, model) in fleet.hosts() {
            let Some(latest) = model.latest() else {
                continue;
            };
            let line = (latest.sequence, latest.at);
            if view
                .overviews
                .get(&host)
                .is_some_and(|known| known.line == line)
            {
                continue;
            }
            if let Some(overview) = HostModel::overview(model) {
                view.overviews
                    .insert(host, KnownOverview { line, overview });
            }
        }
    }

    /// Filters and sorts the hosts. The cursor stays on its host.
    fn sort_hosts(&self, view: &mut FleetView) {
        let filter = self.processes.filter.value();
        let by = (view.sort, view.is_inverted, filter.to_owned());
        let is_new = view.sorted_by.as_ref() != Some(&by);
        let shown = self
            .fleet()
            .hosts()
            .map(|(host, _)| host)
            .filter(|host| self.matches_host(*host, view.overview(*host), filter));
        let mut shown: Vec<HostKey> = shown.collect();
        let is_due = view.since_sorted.duration().as_secs() >= SORTED_FOR;
        if view.sort == HostSort::Name || is_new || is_due {
            view.since_sorted = ViewerTime::ZERO;
            shown.sort_by_cached_key(|host| natural_order(self.fleet().name(*host)));
            if view.sort != HostSort::Name {
                let worst = |host: HostKey| self.troubles.worst_of(host);
                shown.sort_by_cached_key(|host| {
                    view.sort
                        .key(self.current_overview(view, *host), worst(*host))
                });
            }
            if view.is_inverted {
                shown.reverse();
            }
        } else {
            // The order of before; new hosts last.
            let place = |host: &HostKey| {
                let known = view.hosts.iter().position(|known| known == host);
                known.unwrap_or(usize::MAX)
            };
            shown.sort_by_cached_key(place);
        }
        (view.hosts, view.sorted_by) = (shown, Some(by));
        let place = view
            .selected
            .and_then(|host| view.hosts.iter().position(|shown| *shown == host));
        match (place, view.selected) {
            (Some(place), _) => view.cursor = place,
            (None, Some(_)) if is_new => view.select(0),
            (None, Some(_)) => view.select(view.cursor),
            (None, None) => view.cursor = 0,
        }
    }

    /// The rows of the hosts on the screen, with their places.
    pub(crate) fn host_rows(&self) -> impl Iterator<Item = (usize, HostRow<'_>)> {
        let view = &self.fleet_view;
        let shown = view.hosts.iter().enumerate().skip(view.first);
        shown
            .take(view.areas.capacity())
            .map(|(place, host)| (place, self.host_row(*host)))
    }
}

impl App {
    /// The row of the host under the cursor; `None` without hosts.
    pub(crate) fn selected_host_row(&self) -> Option<HostRow<'_>> {
        Some(self.host_row(self.fleet_view.selected()?))
    }
}

/// The most GPUs of a host.
fn widest_cells(view: &FleetView) -> usize {
    let gpus = view
        .overviews
        .values()
        .map(|known| known.overview.gpus.len());
    gpus.max().unwrap_or(0)
}
