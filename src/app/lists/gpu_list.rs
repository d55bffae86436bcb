//! The list of GPUs of all hosts: its rows, cursor and columns.

use super::columns::Columns;
use super::gpu_columns::GpuColumn;
use super::list_view::first_row;
use crate::app::layout::GpuView;
use crate::model::{Fleet, HostGpu, HostModel};
use crate::protocol::host_key::HostKey;
use crate::protocol::slurm_job::SlurmJob;
use crate::protocol::snapshot::Gpu;

#[derive(Debug, Clone, Copy)]
pub(crate) struct GpuRow<'a> {
    pub host: HostKey,
    pub model: &'a HostModel,
    pub gpu: &'a Gpu,
}

impl GpuRow<'_> {
    pub(crate) fn id(&self) -> HostGpu {
        HostGpu {
            host: self.host,
            gpu: self.gpu.uuid.clone(),
        }
    }
}

pub(crate) fn gpu_rows(fleet: &Fleet) -> impl Iterator<Item = GpuRow<'_>> {
    fleet.hosts().flat_map(|(host, model)| {
        let gpus = model
            .latest()
            .map(|snapshot| snapshot.gpus.as_slice())
            .unwrap_or_default();
        gpus.iter().map(move |gpu| GpuRow { host, model, gpu })
    })
}

#[derive(Debug, Default)]
pub(crate) struct GpuList {
    /// The columns that the user chose; `None` while the width of the screen decides.
    pub(in crate::app) columns: Option<Columns<GpuColumn>>,
    /// The GPU under the cursor; `None` until the user moves the cursor, which then stays in the
    /// first row.
    selected: Option<HostGpu>,
    pub cursor: usize,
    pub view: GpuView,
    /// The index of the first row on the screen.
    pub top: usize,
    /// The host whose GPUs alone are listed; `None` for those of all.
    host: Option<HostKey>,
    /// The job of Slurm whose GPUs come first; `None` without one.
    pub(in crate::app) job: Option<SlurmJob>,
}

impl GpuList {
    /// Returns the list, in which the GPUs of a job come first.
    pub(in crate::app) fn of_job(job: Option<SlurmJob>) -> Self {
        Self {
            job,
            ..Self::default()
        }
    }

    /// The rows of the list.
    pub(crate) fn rows<'a>(
        &self,
        fleet: &'a Fleet,
    ) -> impl Iterator<Item = GpuRow<'a>> + use<'_, 'a> {
        let host = self.host;
        let rows = gpu_rows(fleet).filter(move |row| host.is_none_or(|shown| shown == row.host));
        let of_others = gpu_rows(fleet)
            .filter(move |_| self.job.is_some())
            .filter(move |row| host.is_none_or(|shown| shown == row.host))
            .filter(|row| self.is_of_others(fleet, *row));
        rows.filter(|row| !self.is_of_others(fleet, *row))
            .chain(of_others)
    }

    /// Whether a GPU is on a node of the job, and none of the job's.
    pub(crate) fn is_of_others(&self, fleet: &Fleet, row: GpuRow<'_>) -> bool {
        let of_job = self.job.as_ref().zip(row.gpu.facts.minor.ok());
        let of_job = of_job.and_then(|(job, minor)| job.has_gpu(fleet.name(row.host), minor));
        of_job == Some(false)
    }

    /// Lists the GPUs of a host alone, or of all, with the cursor on the first.
    pub(in crate::app) fn show_host(&mut self, host: Option<HostKey>) {
        if self.host != host {
            (self.host, self.selected, self.cursor, self.top) = (host, None, 0, 0);
        }
    }

    pub(crate) fn selected_row<'a>(&self, fleet: &'a Fleet) -> Option<GpuRow<'a>> {
        self.rows(fleet).nth(self.cursor)
    }

    pub(crate) fn columns(&self, width: u16, fleet: &Fleet) -> Vec<GpuColumn> {
        Columns::shown_at(self.columns.as_ref(), width, fleet.has_many())
    }

    pub(in crate::app) fn refresh(&mut self, fleet: &Fleet) {
        let is_selected = |row: GpuRow<'_>| {
            self.selected
                .as_ref()
                .is_some_and(|gpu| gpu.host == row.host && gpu.gpu == row.gpu.uuid)
        };
        let place = self.rows(fleet).position(is_selected);
        self.cursor = place
            .unwrap_or(self.cursor)
            .min(self.rows(fleet).count().saturating_sub(1));
    }

    pub(in crate::app) fn fit(&mut self, gpus: usize, height: u16) {
        self.top = first_row(self.top, self.cursor, gpus, height);
    }

    pub(in crate::app) fn select(&mut self, row: usize, fleet: &Fleet) {
        self.cursor = row.min(self.rows(fleet).count().saturating_sub(1));
        self.selected = self.selected_row(fleet).map(|row| row.id());
    }

    /// Moves the cursor by this many rows of tiles, which are this many beside each other. Where
    /// the last row has no tile below, the cursor goes to the last tile.
    pub(in crate::app) fn step_row(&mut self, by: isize, columns: usize, fleet: &Fleet) {
        let last = self.rows(fleet).count().saturating_sub(1);
        let row = (self.cursor / columns)
            .saturating_add_signed(by)
            .min(last / columns);
        self.select(row * columns + self.cursor % columns, fleet);
    }

    pub(in crate::app) fn step(&mut self, by: isize, fleet: &Fleet) {
        self.select(self.cursor.saturating_add_signed(by), fleet);
    }
}
