//! The list of GPUs: the cursor, and which columns there are.

use super::columns::Columns;
use super::gpu_columns::GpuColumn;
use super::scroll;
use crate::model::HostModel;
use crate::protocol::snapshot::{Gpu, GpuUuid};

/// The list of GPUs. Its rows are the GPUs of the latest snapshot, in their order.
#[derive(Debug, Default)]
pub struct GpuList {
    /// The columns that the user chose; `None` while the width of the screen decides.
    pub(super) columns: Option<Columns<GpuColumn>>,
    /// The GPU under the cursor; `None` until the user moves the cursor, which then stays in the first row.
    selected: Option<GpuUuid>,
    cursor: usize,
    top: usize,
}

impl GpuList {
    /// The index of the row under the cursor.
    pub fn cursor(&self) -> usize {
        self.cursor
    }

    /// The index of the first row on the screen.
    pub fn top(&self) -> usize {
        self.top
    }

    /// The GPU under the cursor; `None` if there is no GPU.
    pub fn selected_gpu<'a>(&self, model: &'a HostModel) -> Option<&'a Gpu> {
        model.latest()?.gpus.get(self.cursor)
    }

    /// The columns for a screen of this width, from left to right.
    pub fn columns(&self, width: u16) -> Vec<GpuColumn> {
        Columns::shown_at(self.columns.as_ref(), width)
    }

    /// Keeps the cursor on its GPU, wherever that is listed now.
    pub(super) fn refresh(&mut self, model: &HostModel) {
        let gpus = model.latest().map(|snapshot| snapshot.gpus.as_slice()).unwrap_or_default();
        let place = self.selected.as_ref().and_then(|uuid| gpus.iter().position(|gpu| gpu.uuid == *uuid));
        self.cursor = place.unwrap_or(self.cursor).min(gpus.len().saturating_sub(1));
    }

    /// Scrolls so that the cursor is on the screen.
    pub(super) fn fit(&mut self, gpus: usize, height: u16) {
        self.top = scroll::top(self.top, self.cursor, gpus, height);
    }

    /// Moves the cursor to a row, or to the last one.
    pub(super) fn select(&mut self, row: usize, model: &HostModel) {
        let gpus = model.latest().map(|snapshot| snapshot.gpus.as_slice()).unwrap_or_default();
        self.cursor = row.min(gpus.len().saturating_sub(1));
        self.selected = gpus.get(self.cursor).map(|gpu| gpu.uuid.clone());
    }

    /// Moves the cursor by this many rows.
    pub(super) fn step(&mut self, by: isize, model: &HostModel) {
        self.select(self.cursor.saturating_add_signed(by), model);
    }
}
