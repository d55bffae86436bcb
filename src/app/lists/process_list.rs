//! The list of processes: its rows, their order, the filter, the cursor and the tags.

use tui_input::Input;

use super::columns::Columns;
use super::list_view::{Grouping, View, first_row};
use super::process_cells;
use super::process_columns::{ProcessColumn, Sort};
use super::row_order::RowOrder;
use super::rows::{self, Row, RowSubject};
use crate::model::{Fleet, HostGpu, HostProcess, Verdict};

/// Columns of a command that one key press scrolls.
const SCROLL_STEP: isize = 16;
/// The farthest that commands are scrolled, in columns: longer than a command line that anyone
/// reads.
const SCROLL_LIMIT: usize = 4096;

/// The subject of the row under the cursor, and the GPU of that row.
pub(in crate::app) type SelectedRow = (RowSubject, Option<HostGpu>);

#[derive(Debug)]
pub(crate) struct ProcessList {
    pub view: View,
    pub sort: Sort,
    /// The columns that the user chose; `None` while the width of the screen decides.
    pub(in crate::app) columns: Option<Columns<ProcessColumn>>,
    pub rows: Vec<Row>,
    order: RowOrder,
    pub filter: Input,
    /// The text that `n` and `N` look for.
    pub search: Input,
    /// `None` until the user moves the cursor, which then stays in the first row.
    selected: Option<SelectedRow>,
    /// The filter at the last refresh.
    shown: (String, View),
    pub cursor: usize,
    pub top: usize,
    /// The rows that the list needs, heading included.
    pub(in crate::app) wanted: u16,
    /// The tagged processes, in the order in which they were tagged.
    pub tagged: Vec<HostProcess>,
    /// How many columns of each command are scrolled out at the left.
    pub command_offset: usize,
}

impl Default for ProcessList {
    fn default() -> Self {
        Self {
            view: View::default(),
            sort: Sort::by(ProcessColumn::Memory),
            columns: None,
            rows: Vec::new(),
            order: RowOrder::default(),
            filter: Input::default(),
            search: Input::default(),
            selected: None,
            shown: (String::new(), View::default()),
            cursor: 0,
            top: 0,
            wanted: 0,
            tagged: Vec::new(),
            command_offset: 0,
        }
    }
}

/// The most rows beyond those of the processes that the list keeps. The areas of the screen move
/// only when processes come that fit no more, or when several end.
const SPARE: u16 = 3;

impl ProcessList {
    pub(crate) fn selected_row(&self) -> Option<&Row> {
        self.rows.get(self.cursor)
    }

    /// The process under the cursor; `None` on a row that is not about one process.
    pub(crate) fn selected_process(&self) -> Option<HostProcess> {
        self.selected_row()?.process()
    }

    pub(crate) fn columns(&self, width: u16, fleet: &Fleet) -> Vec<ProcessColumn> {
        Columns::shown(
            self.columns.as_ref(),
            width,
            self.view.only_suspects,
            |column| has_values(fleet, column),
            fleet.has_many(),
        )
    }

    /// The columns of the full list: the list of suspects has its own.
    pub(in crate::app) fn columns_of_all(
        &self,
        width: u16,
        fleet: &Fleet,
    ) -> Columns<ProcessColumn> {
        Columns::new(Columns::shown(
            self.columns.as_ref(),
            width,
            false,
            |column| has_values(fleet, column),
            fleet.has_many(),
        ))
    }

    /// Builds the rows from the fleet and keeps the cursor on its subject; when the filter has
    /// changed, it goes to the top. Tags of processes that ended are dropped.
    pub(in crate::app) fn refresh(&mut self, fleet: &Fleet) {
        let shown = (
            self.filter.value().to_owned(),
            View {
                grouping: Grouping::Flat,
                ..self.view.clone()
            },
        );
        if self.shown != shown {
            self.shown = shown;
            (self.selected, self.cursor, self.top) = (None, 0, 0);
        }
        self.rows = rows::rows(
            fleet,
            &self.view,
            self.sort,
            self.filter.value(),
            &mut self.order,
        );
        let needed = u16::try_from(self.rows.len() + 1).unwrap_or(u16::MAX);
        if !(needed..=needed.saturating_add(SPARE)).contains(&self.wanted) {
            self.wanted = needed;
        }
        self.tagged
            .retain(|process| fleet.process(*process).is_some());
        let place = self.selected.as_ref().and_then(|(subject, gpu)| {
            let is_subject = |row: &Row| row.subject == *subject;
            let exact = self
                .rows
                .iter()
                .position(|row| is_subject(row) && row.gpu == *gpu);
            exact.or_else(|| self.rows.iter().position(is_subject))
        });
        match (place, &self.selected) {
            (Some(place), _) => self.cursor = place,
            // The subject is gone: stay in the same row, with its new subject.
            (None, Some(_)) if !self.rows.is_empty() => self.select(self.cursor),
            (None, _) => (self.selected, self.cursor) = (None, 0),
        }
    }

    pub(in crate::app) fn fit(&mut self, height: u16) {
        self.top = first_row(self.top, self.cursor, self.rows.len(), height);
    }

    pub(in crate::app) fn select(&mut self, row: usize) {
        self.cursor = row.min(self.rows.len().saturating_sub(1));
        self.selected = self
            .selected_row()
            .map(|row| (row.subject.clone(), row.gpu.clone()));
    }

    pub(in crate::app) fn selected_subject(&self) -> Option<SelectedRow> {
        self.selected.clone()
    }

    /// Shows the processes of all GPUs, with the cursor on this subject, or in the first row.
    pub(in crate::app) fn show_all_gpus(&mut self, selected: Option<SelectedRow>) {
        self.view.gpu = None;
        self.shown.1.gpu = None;
        (self.selected, self.cursor, self.top) = (selected, 0, 0);
    }

    pub(in crate::app) fn step(&mut self, by: isize) {
        self.select(self.cursor.saturating_add_signed(by));
    }

    /// Moves the cursor to the next process that the search finds, or to the one before. After the
    /// last comes the first. With 0, a process under the cursor that matches keeps the cursor.
    /// Returns whether there is one.
    pub(in crate::app) fn find(&mut self, by: isize, fleet: &Fleet) -> bool {
        let rows = self.rows.len();
        let is_match = rows::matcher(fleet, self.search.value());
        let first = usize::from(by != 0);
        let places = (first..rows + first).map(|distance| match by {
            ..0 => (self.cursor + rows - distance) % rows,
            _ => (self.cursor + distance) % rows,
        });
        let place = places
            .into_iter()
            .find(|place| self.rows[*place].process().is_some_and(&is_match));
        if let Some(place) = place {
            self.select(place);
        }
        place.is_some()
    }

    /// Changes the grouping. Returns a notice if the list looks the same as before; otherwise the
    /// badge says enough.
    pub(in crate::app) fn group(&mut self, grouping: Grouping, fleet: &Fleet) -> Option<String> {
        let before = std::mem::take(&mut self.rows);
        self.view.grouping = grouping;
        self.refresh(fleet);
        let words = match grouping {
            Grouping::Flat => "each process for itself",
            Grouping::Gpu => "processes by GPU",
            Grouping::Tree => "processes below their parents",
            Grouping::Job => "processes by job",
            Grouping::User => "processes by user",
        };
        (self.rows == before).then(|| format!("{words}, which looks the same here"))
    }

    /// Sorts by the column `by` places after the present one, among the shown columns that can
    /// sort. After the last comes the first.
    pub(in crate::app) fn sort_by_neighbour(&mut self, shown: Vec<ProcessColumn>, by: isize) {
        let columns: Vec<ProcessColumn> =
            shown.into_iter().filter(|column| column.sorts()).collect();
        let Some(last) = columns.len().checked_sub(1) else {
            return;
        };
        let next = match columns
            .iter()
            .position(|column| *column == self.sort.column)
        {
            Some(place) => (place.cast_signed() + by)
                .rem_euclid(columns.len().cast_signed())
                .cast_unsigned(),
            None if by < 0 => last,
            None => 0,
        };
        self.sort = self.sort.first_by(columns[next]);
    }

    /// Tags the subject under the cursor, or untags it if it is tagged: a process, its whole job,
    /// or a group.
    pub(in crate::app) fn tag(&mut self, whole_job: bool, fleet: &Fleet) {
        let Some(row) = self.selected_row() else {
            return;
        };
        let processes: Vec<HostProcess> = match &row.subject {
            RowSubject::Process(process) if whole_job => {
                let job = fleet
                    .host(process.host)
                    .and_then(|model| model.job(process.process));
                let members = job.map(|job| job.members.as_slice()).unwrap_or_default();
                members
                    .iter()
                    .map(|member| HostProcess {
                        host: process.host,
                        process: *member,
                    })
                    .collect()
            }
            RowSubject::Process(process) => vec![*process],
            RowSubject::Group(group) => group.processes().collect(),
            RowSubject::Unaccounted(_) | RowSubject::Heading(_) => Vec::new(),
        };
        if processes
            .iter()
            .all(|process| self.tagged.contains(process))
        {
            self.tagged.retain(|process| !processes.contains(process));
        } else {
            let new: Vec<HostProcess> = processes
                .into_iter()
                .filter(|process| !self.tagged.contains(process))
                .collect();
            self.tagged.extend(new);
        }
    }

    /// Tags the listed processes that hold GPU memory, or all others if `holds_memory` is false.
    /// Returns whether there are any.
    pub(in crate::app) fn tag_listed(&mut self, holds_memory: bool, fleet: &Fleet) -> bool {
        let is_meant = |process: &HostProcess| {
            let verdict = fleet
                .host(process.host)
                .and_then(|model| model.verdict(process.process));
            verdict.is_some_and(Verdict::holds_gpu_memory) == holds_memory
        };
        let meant: Vec<HostProcess> = self
            .rows
            .iter()
            .filter_map(Row::process)
            .filter(is_meant)
            .collect();
        let new = meant
            .iter()
            .filter(|process| !self.tagged.contains(process))
            .copied()
            .collect::<Vec<_>>();
        self.tagged.extend(new);
        !meant.is_empty()
    }

    pub(in crate::app) fn scroll_commands(&mut self, steps: isize) {
        self.command_offset = self
            .command_offset
            .saturating_add_signed(steps * SCROLL_STEP)
            .min(SCROLL_LIMIT);
    }
}

/// Whether a column is filled for any process of any host.
fn has_values(fleet: &Fleet, column: ProcessColumn) -> bool {
    fleet
        .hosts()
        .any(|(_, model)| process_cells::has_values(column, model))
}
