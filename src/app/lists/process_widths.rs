//! The widths of the columns of the process list on a screen, and the column at a place.

use super::columns::{ListColumn, fitting};
use super::gpu_list::gpu_rows;
use super::process_columns::{BYTES_WIDTH, ProcessColumn, WIDE, WIDEST};
use crate::app::App;
use crate::app::layout::SMALLEST;
use crate::output::labels::gpu_label;

/// The width of an amount of memory, with room for `≥` before it.
pub(crate) const MEMORY: usize = BYTES_WIDTH + 1;

#[derive(Debug)]
pub(crate) struct ProcessWidths {
    pub shown: Vec<ProcessColumn>,
    gpu: usize,
    user: usize,
    /// The width of the bar beside the amount of memory; 0 without a bar.
    pub memory_bar: usize,
    /// The width of a little graph.
    pub graph: usize,
}

impl ProcessWidths {
    pub(crate) fn new(app: &App, width: usize) -> Self {
        let (gpu, user, memory_bar, graph) = match width {
            width if width >= usize::from(WIDEST) => (5, 10, 12, 12),
            width if width >= usize::from(WIDE) => (3, 8, 0, 8),
            // The narrowest screen keeps the amount of memory.
            width if width < usize::from(SMALLEST.0) => (3, 7, 0, 7),
            _ => (3, 8, 0, 7),
        };
        // The label of a MIG instance may be longer, as in `0:13`.
        let labels = gpu_rows(app.fleet())
            .map(|row| row.gpu)
            .filter(|gpu| gpu.facts.parent.is_some())
            .map(gpu_label);
        let gpu = labels.map(|label| label.len()).max().unwrap_or(0).max(gpu);
        // The list of suspects needs the room for the reasons.
        let memory_bar = if app.processes.view.only_suspects {
            0
        } else {
            memory_bar
        };
        let mut widths = Self {
            shown: Vec::new(),
            gpu,
            user,
            memory_bar,
            graph,
        };
        widths.shown = fitting(
            app.processes.columns(app.size.0, app.fleet()),
            width,
            |column| widths.width(column),
        );
        widths
    }

    /// The width of a column. For the last column, the least useful width.
    pub(crate) fn width(&self, column: ProcessColumn) -> usize {
        match column {
            ProcessColumn::Gpu => self.gpu,
            ProcessColumn::User => self.user,
            ProcessColumn::Memory if self.memory_bar > 0 => MEMORY + 1 + self.memory_bar,
            ProcessColumn::Memory => MEMORY,
            ProcessColumn::History | ProcessColumn::UseHistory => self.graph,
            _ => column.spec().width,
        }
    }

    /// The column of a click this many cells from the left.
    pub(in crate::app) fn at(&self, x: usize) -> Option<ProcessColumn> {
        let mut end = 0;
        self.shown.iter().copied().find(|column| {
            end += self.width(*column) + 1;
            x < end || column.spec().is_last
        })
    }
}
