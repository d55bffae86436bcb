//! The way through the fleet view: keys and clicks there, a host that is opened, and the way back.

use std::ops::ControlFlow;

use super::mode::Mode;
use crate::app::event::Effect;
use crate::app::fleet::fleet_view::FleetFocus;
use crate::app::fleet::trouble_lines::target;
use crate::app::keys::keymap::Intent;
use crate::app::{App, List};
use crate::model::{GpuOrProcess, HostGpu, HostProcess};
use crate::protocol::host_key::HostKey;

/// The fewest hosts that are shown in the fleet view unless the user chose otherwise.
const FEWEST: usize = 3;

impl App {
    /// Whether the fleet view is open, maybe below a page.
    pub(crate) fn is_fleet_view(&self) -> bool {
        self.modes.has_fleet()
    }

    /// Opens the fleet view or closes it as the user chose, or by the number of hosts.
    pub(in crate::app) fn choose_fleet_view(&mut self) {
        let hosts = self.fleet().hosts().len();
        let is_wanted = self.fleet_view.chosen.unwrap_or(hosts >= FEWEST) && hosts > 1;
        if is_wanted != self.is_fleet_view() {
            self.modes.set_fleet(is_wanted);
        }
    }

    /// Shows the fleet view, or the lists of all hosts if it is shown.
    pub(in crate::app) fn toggle_fleet_view(&mut self) {
        if !self.fleet().has_many() {
            self.notice
                .set("there is only one host: the lists show all of it");
            return;
        }
        self.fleet_view.chosen = Some(!self.is_fleet_view());
        self.show_host(None);
        self.choose_fleet_view();
    }

    /// Shows the lists with the GPUs and processes of this host alone; `None` for all hosts.
    fn show_host(&mut self, host: Option<HostKey>) {
        self.processes.view.host = host;
        self.processes.view.gpu = None;
        self.before_gpu = None;
        self.gpus.show_host(host);
    }

    /// Opens the lists of a host, from which Esc leads back to the fleet view.
    fn open_host(&mut self, host: HostKey) {
        self.fleet_view.chosen = Some(false);
        self.modes.set_fleet(false);
        self.show_host(Some(host));
        self.focus = List::Gpus;
        self.is_stale = true;
        self.settle();
    }

    /// Goes from the lists of one host back to the fleet view.
    pub(in crate::app) fn leave_host(&mut self) {
        self.show_host(None);
        self.fleet_view.chosen = Some(true);
        self.choose_fleet_view();
    }

    /// Opens the lists of the host of a process or GPU if the fleet view is open, since the page of
    /// the process or GPU lies over them.
    pub(in crate::app) fn leave_fleet_for(&mut self, host: HostKey) {
        if self.is_fleet_view() {
            self.open_host(host);
        }
    }

    /// Carries out an intent in the fleet view. An intent that is the same everywhere goes on.
    pub(in crate::app) fn perform_in_fleet(
        &mut self,
        intent: Intent,
    ) -> ControlFlow<Option<Effect>> {
        match intent {
            Intent::Move(by) => self.step_fleet(by),
            Intent::MovePage(by) => {
                let page = match self.fleet_view.focus {
                    FleetFocus::Hosts => self.fleet_view.areas.capacity(),
                    FleetFocus::Troubles => self.fleet_view.areas.troubles.height.into(),
                    FleetFocus::Jobs => self.fleet_view.areas.jobs.height.into(),
                };
                self.step_fleet(by * page.max(1).cast_signed());
            }
            Intent::MoveColumn(by) => {
                let rows = self.fleet_view.areas.rows_of_column();
                if self.fleet_view.focus == FleetFocus::Hosts {
                    self.step_fleet(by * rows.cast_signed());
                }
            }
            Intent::OtherList => {
                let (has_troubles, has_jobs) = (
                    self.fleet_view.trouble_count > 0,
                    self.fleet_view.job_count > 0,
                );
                self.fleet_view.focus = match self.fleet_view.focus {
                    FleetFocus::Hosts if has_troubles => FleetFocus::Troubles,
                    FleetFocus::Hosts | FleetFocus::Troubles if has_jobs => FleetFocus::Jobs,
                    _ => FleetFocus::Hosts,
                };
            }
            Intent::Job if self.fleet_view.job_count > 0 => {
                self.fleet_view.focus = FleetFocus::Jobs;
            }
            Intent::Job => self
                .notice
                .set("no process has ranks: there is no job of Slurm, torchrun, MPI or Ray"),
            Intent::Open | Intent::Detail => return ControlFlow::Break(self.open_from_fleet()),
            Intent::OpenFilter => {
                self.fleet_view.focus = FleetFocus::Hosts;
                self.modes.open(Mode::Filter);
            }
            Intent::SortByNeighbour(by) => {
                self.fleet_view.sort = self.fleet_view.sort.neighbour(by);
                self.fleet_view.is_inverted = false;
                self.notice
                    .set(format!("hosts by {}", self.fleet_view.sort));
            }
            Intent::Invert => self.fleet_view.is_inverted = !self.fleet_view.is_inverted,
            Intent::Leave => return ControlFlow::Break(self.leave_in_fleet()),
            _ => return ControlFlow::Continue(()),
        }
        ControlFlow::Break(None)
    }

    /// Leaves the filter, the pause, or the troubles or jobs under the cursor.
    fn leave_in_fleet(&mut self) -> Option<Effect> {
        if self.fleet_view.focus != FleetFocus::Hosts {
            self.fleet_view.focus = FleetFocus::Hosts;
        } else if !self.processes.filter.value().is_empty() {
            self.processes.filter.reset();
        } else if self.is_paused() {
            return self.resume();
        }
        None
    }

    pub(in crate::app) fn step_fleet(&mut self, by: isize) {
        let view = &mut self.fleet_view;
        match view.focus {
            FleetFocus::Hosts => view.select(view.cursor.saturating_add_signed(by)),
            FleetFocus::Troubles => {
                let last = view.trouble_count.saturating_sub(1);
                view.trouble_cursor = view.trouble_cursor.saturating_add_signed(by).min(last);
                (view.selected_trouble, view.has_moved) = (None, true);
            }
            FleetFocus::Jobs => {
                let last = view.job_count.saturating_sub(1);
                self.select_job(
                    self.fleet_view
                        .job_cursor
                        .saturating_add_signed(by)
                        .min(last),
                );
            }
        }
    }

    /// Puts the cursor of the jobs on the one at this place.
    fn select_job(&mut self, place: usize) {
        let key = self.fleet().jobs().get(place).map(|job| job.key.clone());
        (self.fleet_view.job_cursor, self.fleet_view.selected_job) = (place, key);
    }

    /// Opens the host or the job under the cursor, or the process or GPU of the trouble there.
    fn open_from_fleet(&mut self) -> Option<Effect> {
        if self.fleet_view.focus == FleetFocus::Jobs {
            let job = self.fleet().jobs().get(self.fleet_view.job_cursor)?.clone();
            self.open_job(job);
            return None;
        }
        if self.fleet_view.focus == FleetFocus::Hosts {
            let host = self.fleet_view.selected()?;
            if self.needs_login(host) {
                return Some(Effect::LogIn(host));
            }
            self.open_host(host);
            return None;
        }
        let line = self.fleet_view.trouble_cursor - self.fleet_view.first_trouble;
        let id = self.fleet_view.troubles.get(line)?.id.clone();
        self.open_host(id.host);
        let subject = target(&id)?;
        match subject.subject {
            GpuOrProcess::Gpu(gpu) => self.select_gpu(&HostGpu {
                host: subject.host,
                gpu,
            }),
            GpuOrProcess::Process(process) => self.open_process_page(HostProcess {
                host: subject.host,
                process,
            }),
        }
    }

    /// Acts on a click into the fleet view: the first one moves the cursor, the second one opens
    /// what is there.
    pub(in crate::app) fn click_fleet(
        &mut self,
        x: u16,
        y: u16,
        is_second: bool,
    ) -> Option<Effect> {
        let view = &mut self.fleet_view;
        let troubles = view.areas.troubles;
        if troubles.contains(x, y) {
            let line = usize::from(y - troubles.y);
            if line < view.troubles.len() {
                view.focus = FleetFocus::Troubles;
                view.trouble_cursor = view.first_trouble + line;
                view.selected_trouble = Some(view.troubles[line].id.clone());
                return if is_second {
                    self.open_from_fleet()
                } else {
                    None
                };
            }
            // The row that counts the others.
            if view.trouble_count > 0 {
                view.focus = FleetFocus::Troubles;
            }
            return None;
        }
        if view.areas.jobs.contains(x, y) {
            let place = view.first_job + usize::from(y - view.areas.jobs.y);
            if place < view.job_count {
                view.focus = FleetFocus::Jobs;
                self.select_job(place);
                return is_second.then(|| self.open_from_fleet()).flatten();
            }
            return None;
        }
        let place = view.areas.host_at(x, y)? + view.first;
        if place >= view.hosts.len() {
            return None;
        }
        view.focus = FleetFocus::Hosts;
        view.select(place);
        if is_second {
            self.open_from_fleet()
        } else {
            None
        }
    }

    /// Moves the cursor of the part of the fleet view under the pointer.
    pub(in crate::app) fn turn_wheel_in_fleet(&mut self, x: u16, y: u16, rows: isize) {
        let view = &mut self.fleet_view;
        view.focus = if view.areas.troubles.contains(x, y) && view.trouble_count > 0 {
            FleetFocus::Troubles
        } else if view.areas.jobs.contains(x, y) && view.job_count > 0 {
            FleetFocus::Jobs
        } else {
            FleetFocus::Hosts
        };
        self.step_fleet(rows);
    }
}
