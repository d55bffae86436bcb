//! The areas of the fleet view: troubles, hosts as a table or in columns, and the totals below them.

use crate::app::layout::Area;

/// The least and the most rows of troubles beside the hosts. One row says that there are none.
const FEWEST_TROUBLES: u16 = 1;
const MOST_TROUBLES: u16 = 12;

/// The rows of troubles that stay when fewer are needed, so that the hosts do not move each time a
/// trouble comes or goes.
const SPARE_TROUBLES: u16 = 2;

/// The rows that the hosts keep while the troubles have the cursor.
const HOSTS_BESIDE_TROUBLES: u16 = 5;

/// The narrowest and the widest name of a host in the table.
const NARROWEST_NAME: usize = 4;
const WIDEST_NAME: usize = 32;

/// The widest row of cells; a host with more GPUs shows `…` at its end.
const MOST_CELLS: usize = 32;

/// The columns between two columns of hosts.
const GAP: usize = 2;

/// The facts that determine the areas.
#[derive(Debug, Clone, Copy)]
pub(in crate::app) struct FleetShape {
    pub(in crate::app) body: Area,
    /// The number of troubles.
    pub(in crate::app) troubles: usize,
    /// Whether the cursor is in the troubles, which then have most rows.
    pub(in crate::app) is_in_troubles: bool,
    pub(in crate::app) hosts: usize,
    /// The width of the widest name of a host.
    pub(in crate::app) name: usize,
    /// The most GPUs of a host.
    pub(in crate::app) cells: usize,
    /// The number of jobs.
    pub(in crate::app) jobs: usize,
    /// Whether the cursor is in the jobs, which then have some rows.
    pub(in crate::app) is_in_jobs: bool,
}

/// How the hosts are placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostGrid {
    /// One row for each, with figures.
    Table,
    /// Names and cells, in so many columns of this width, the gap to the next one included.
    Columns { count: usize, width: usize },
}

impl Default for HostGrid {
    fn default() -> Self {
        Self::Columns { count: 1, width: 1 }
    }
}

/// The areas of the fleet view in the body of the screen.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FleetAreas {
    pub(crate) troubles: Area,
    /// The headings of the table; no row above columns.
    pub(crate) headings: Area,
    pub(crate) hosts: Area,
    pub(crate) grid: HostGrid,
    /// Where the hosts are in columns: the figures of the host under the cursor. No row otherwise.
    pub(crate) selected_host: Area,
    /// The hosts with free GPUs: one row.
    pub(crate) free: Area,
    /// The users: one row or none.
    pub(crate) users: Area,
    pub(crate) jobs: Area,
    /// The width of names and of cells.
    pub(crate) name: usize,
    pub(crate) cells: usize,
}

impl FleetAreas {
    /// Divides the body of the screen. `troubles_before` is the number of rows that the troubles
    /// had.
    pub(in crate::app) fn divide(shape: &FleetShape, troubles_before: u16) -> Self {
        let FleetShape { body, hosts, .. } = *shape;
        let name = shape.name.clamp(NARROWEST_NAME, WIDEST_NAME);
        let name = name.min((usize::from(body.width) / 3).max(NARROWEST_NAME));
        let cells = shape.cells.clamp(1, MOST_CELLS);
        let troubles = trouble_rows(shape, troubles_before);
        let mut top = body.y;
        let end = body.y + body.height;
        let mut take = |rows: u16| {
            let area = Area {
                y: top,
                height: rows.min(end - top),
                ..body
            };
            top += area.height;
            area
        };
        let troubles = take(troubles);
        let left = body.height - troubles.height;
        let free_rows = u16::from(left >= 4);
        let rows_of = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
        let for_jobs = if shape.is_in_jobs {
            rows_of(shape.jobs).min(left / 3).max(1)
        } else {
            0
        };
        let for_users = u16::from(for_jobs > 0);
        let for_table = left.saturating_sub(1 + free_rows + for_users + for_jobs);
        if rows_of(hosts) <= for_table {
            let headings = take(1);
            let hosts = take(rows_of(hosts));
            let free = take(free_rows);
            let users = take(1);
            return Self {
                troubles,
                headings,
                hosts,
                grid: HostGrid::Table,
                selected_host: Area { height: 0, ..users },
                free,
                users,
                jobs: take(rows_of(shape.jobs)),
                name,
                cells,
            };
        }
        let width = (name + 1 + cells + GAP).min(usize::from(body.width) + GAP);
        let count = ((usize::from(body.width) + GAP) / width).max(1);
        let selected_rows = u16::from(left >= 6);
        let users_rows = u16::from(left >= 12);
        let jobs_rows = rows_of(shape.jobs).min(left / 6).max(for_jobs);
        let below = free_rows + selected_rows + users_rows + jobs_rows;
        // No more rows than the hosts fill.
        let most = rows_of(hosts.div_ceil(count));
        let host_rows = left.saturating_sub(below).min(most).max(1);
        Self {
            troubles,
            headings: take(0),
            hosts: take(host_rows),
            grid: HostGrid::Columns { count, width },
            selected_host: take(selected_rows),
            free: take(free_rows),
            users: take(users_rows),
            jobs: take(jobs_rows),
            name,
            cells,
        }
    }

    /// The rows of a column of hosts.
    pub(crate) fn rows_of_column(&self) -> usize {
        usize::from(self.hosts.height).max(1)
    }

    /// The number of hosts on the screen.
    pub(crate) fn capacity(&self) -> usize {
        match self.grid {
            HostGrid::Table => self.rows_of_column(),
            HostGrid::Columns { count, .. } => self.rows_of_column() * count,
        }
    }

    /// The place of the first host on the screen, so that the cursor is visible and no column is
    /// blank while hosts are scrolled out. Columns scroll whole.
    pub(in crate::app) fn first_host(&self, first: usize, cursor: usize, hosts: usize) -> usize {
        let rows = match self.grid {
            HostGrid::Table => 1,
            HostGrid::Columns { .. } => self.rows_of_column(),
        };
        let columns = self.capacity() / rows;
        let last = hosts.div_ceil(rows).saturating_sub(columns);
        let column = cursor / rows;
        let first = (first / rows)
            .min(column)
            .max((column + 1).saturating_sub(columns))
            .min(last);
        first * rows
    }

    /// The area of the host at this place on the screen.
    pub(crate) fn host(&self, place: usize) -> Area {
        let rows = self.rows_of_column();
        let (column, row) = (place / rows, place % rows);
        let whole = Area {
            y: self.hosts.y + u16::try_from(row).unwrap_or(0),
            height: 1,
            ..self.hosts
        };
        match self.grid {
            HostGrid::Table => whole,
            HostGrid::Columns { width, .. } => {
                let x = self.hosts.x + u16::try_from(column * width).unwrap_or(u16::MAX);
                let end = self.hosts.x + self.hosts.width;
                Area {
                    x,
                    width: u16::try_from(width - GAP)
                        .unwrap_or(u16::MAX)
                        .min(end.saturating_sub(x)),
                    ..whole
                }
            }
        }
    }

    /// The place on the screen of the host that was clicked; `None` beside the hosts.
    pub(in crate::app) fn host_at(&self, x: u16, y: u16) -> Option<usize> {
        self.hosts.contains(x, y).then(|| {
            let row = usize::from(y - self.hosts.y);
            match self.grid {
                HostGrid::Table => row,
                HostGrid::Columns { width, .. } => {
                    usize::from(x - self.hosts.x) / width * self.rows_of_column() + row
                }
            }
        })
    }
}

/// The rows of troubles: a quarter of the screen at most, or most of it while they have the cursor.
fn trouble_rows(shape: &FleetShape, before: u16) -> u16 {
    let body = shape.body.height;
    let needed = u16::try_from(shape.troubles).unwrap_or(u16::MAX);
    if shape.is_in_troubles {
        return needed.clamp(
            FEWEST_TROUBLES,
            body.saturating_sub(HOSTS_BESIDE_TROUBLES).max(1),
        );
    }
    let most = (body / 4).clamp(FEWEST_TROUBLES, MOST_TROUBLES);
    let needed = needed.max(FEWEST_TROUBLES).min(most);
    if (needed..=needed.saturating_add(SPARE_TROUBLES).min(most)).contains(&before) {
        before
    } else {
        needed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn areas(width: u16, height: u16, hosts: usize, name: usize) -> FleetAreas {
        let body = Area {
            x: 0,
            y: 1,
            width,
            height: height - 2,
        };
        FleetAreas::divide(
            &FleetShape {
                body,
                troubles: 40,
                is_in_troubles: false,
                hosts,
                name,
                cells: 8,
                jobs: 9,
                is_in_jobs: false,
            },
            0,
        )
    }

    #[test]
    fn a_hundred_and_twenty_five_hosts_are_in_columns_and_two_hundred_scroll_at_80x24() {
        let areas = areas(120, 40, 125, 4);
        let HostGrid::Columns { count, .. } = areas.grid else {
            panic!("{areas:?}")
        };
        assert!(count >= 6 && areas.capacity() >= 125, "{areas:?}");
        assert_eq!(areas.first_host(0, 124, 125), 0);

        let areas = self::areas(80, 24, 200, 4);
        let rows = areas.rows_of_column();
        assert!(areas.capacity() < 200, "{areas:?}");
        let first = areas.first_host(0, 199, 200);
        assert_eq!(first % rows, 0);
        assert!((first..first + areas.capacity()).contains(&199));
        assert_eq!(areas.first_host(first, 0, 200), 0);
    }

    #[test]
    fn every_host_on_the_screen_has_its_own_area_where_a_click_finds_it() {
        for (width, height) in [(40, 10), (80, 24), (120, 40), (200, 60)] {
            for (hosts, name) in [(1, 3), (8, 6), (30, 60), (200, 12)] {
                let areas = areas(width, height, hosts, name);
                for place in 0..areas.capacity().min(hosts) {
                    let area = areas.host(place);
                    assert_eq!(areas.host_at(area.x, area.y), Some(place), "{areas:?}");
                    let end = areas.hosts.y + areas.hosts.height;
                    assert!(area.y < end && end < height, "{areas:?}");
                    assert!(area.x + area.width <= width, "{areas:?}");
                }
            }
        }
    }

    #[test]
    fn the_hosts_stay_where_they_are_when_a_trouble_ends() {
        let shape = |troubles| FleetShape {
            body: Area {
                x: 0,
                y: 1,
                width: 80,
                height: 22,
            },
            troubles,
            is_in_troubles: false,
            hosts: 8,
            name: 6,
            cells: 8,
            jobs: 0,
            is_in_jobs: false,
        };
        let rows = |troubles, before| trouble_rows(&shape(troubles), before);
        assert_eq!([rows(3, 0), rows(2, 3), rows(4, 3)], [3, 3, 4]);
        assert_eq!([rows(0, 0), rows(90, 3)], [1, 5]);
    }
}
