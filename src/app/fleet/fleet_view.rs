//! The state of the fleet view: the overviews of hosts, their order, the cursors and the areas.

use std::collections::BTreeMap;

use super::fleet_areas::FleetAreas;
use super::host_sort::HostSort;
use super::trouble_lines::{TroubleId, TroubleLine};
use crate::base::time::ViewerTime;
use crate::base::units::Moment;
use crate::model::{FleetJobKey, HostOverview};
use crate::protocol::host_key::HostKey;

/// The part of the fleet view with the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum FleetFocus {
    #[default]
    Hosts,
    Troubles,
    Jobs,
}

/// The overview of a host, and the line that it is from.
#[derive(Debug)]
pub(super) struct KnownOverview {
    pub(super) line: (u64, Moment),
    pub(super) overview: HostOverview,
}

#[derive(Debug, Default)]
pub(crate) struct FleetView {
    /// Whether the user chose the fleet view or the lists; `None` while the number of hosts
    /// decides.
    pub(in crate::app) chosen: Option<bool>,
    pub(super) overviews: BTreeMap<HostKey, KnownOverview>,
    pub(crate) sort: HostSort,
    pub(crate) is_inverted: bool,
    /// The hosts that the filter lets through, in their order.
    pub(crate) hosts: Vec<HostKey>,
    /// The order and the filter of the hosts, and the viewer time since they were sorted.
    pub(super) sorted_by: Option<(HostSort, bool, String)>,
    pub(super) since_sorted: ViewerTime,
    /// The host under the cursor; `None` until the user moves the cursor, which then stays on the
    /// first host.
    pub(super) selected: Option<HostKey>,
    pub(crate) cursor: usize,
    /// The place of the first host on the screen.
    pub(crate) first: usize,
    pub(crate) focus: FleetFocus,
    /// The lines of troubles on the screen.
    pub(crate) troubles: Vec<TroubleLine>,
    /// The troubles in all.
    pub(crate) trouble_count: usize,
    /// The trouble under the cursor; `None` until the user moves the cursor, which then stays on the
    /// first.
    pub(in crate::app) selected_trouble: Option<TroubleId>,
    /// Whether the cursor was moved since the last refresh.
    pub(in crate::app) has_moved: bool,
    pub(crate) trouble_cursor: usize,
    pub(crate) first_trouble: usize,
    /// The number of jobs, the place of the one under the cursor, and of the first on the screen.
    pub(crate) job_count: usize,
    pub(crate) job_cursor: usize,
    pub(crate) first_job: usize,
    /// The job under the cursor; `None` until the user moves the cursor, which then stays on the
    /// first.
    pub(in crate::app) selected_job: Option<FleetJobKey>,
    pub(crate) areas: FleetAreas,
}

impl FleetView {
    pub(in crate::app) fn advance(&mut self, elapsed: ViewerTime) {
        self.since_sorted += elapsed;
    }

    /// The overview of a host; `None` before its first line.
    pub(crate) fn overview(&self, host: HostKey) -> Option<&HostOverview> {
        self.overviews.get(&host).map(|known| &known.overview)
    }

    /// The host under the cursor; `None` without hosts.
    pub(crate) fn selected(&self) -> Option<HostKey> {
        self.hosts.get(self.cursor).copied()
    }

    pub(in crate::app) fn select(&mut self, place: usize) {
        self.cursor = place.min(self.hosts.len().saturating_sub(1));
        self.selected = self.selected();
    }

    /// The number of lines of troubles on the screen; the last row counts the others.
    pub(super) fn shown_troubles(&self) -> usize {
        let rows = usize::from(self.areas.troubles.height);
        if self.trouble_count > rows && self.focus != FleetFocus::Troubles {
            rows.saturating_sub(1)
        } else {
            rows
        }
    }
}
