//! Columns of a list: their declarations, which of them a list shows, and the type of a cell.
//!
//! The screen and `--once` share them.

use std::fmt;
use std::str::FromStr;

use strum::VariantArray;

use crate::model::Severity;

pub(crate) const HOST_WIDTH: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// The meaning of a text to the reader; the theme turns it into a style.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    /// A figure that the driver gave: dim when it is old.
    Reading,
    Dim,
    Notable,
    Alarm,
    Severity(Severity),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cell {
    /// The text, which may be wider than the column.
    pub text: String,
    pub tone: Tone,
}

impl Cell {
    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            tone: Tone::Plain,
        }
    }

    pub(crate) fn reading(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            tone: Tone::Reading,
        }
    }
}

/// The direction in which a list is sorted by a column at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SortOrder {
    Ascending,
    Descending,
}

#[derive(Debug, Clone, Copy)]
pub struct ColumnSpec {
    /// The name in the configuration and on the command line.
    pub name: &'static str,
    pub title: &'static str,
    pub help: &'static str,
    pub align: Align,
    /// The width on a narrow screen, in terminal columns.
    pub width: usize,
    /// The narrowest screen that shows the column unless the user chose it.
    pub from_screen_width: u16,
    /// `None` if the list cannot be sorted by the column.
    pub sort: Option<SortOrder>,
    /// Whether the column shows a change over time, which a report of a single snapshot leaves out.
    pub needs_past: bool,
    /// Whether the column takes the rest of the line, and so is the last one.
    pub is_last: bool,
}

impl ColumnSpec {
    const fn new(
        name: &'static str,
        title: &'static str,
        width: usize,
        align: Align,
        help: &'static str,
    ) -> Self {
        Self {
            name,
            title,
            help,
            align,
            width,
            from_screen_width: 0,
            sort: None,
            needs_past: false,
            is_last: false,
        }
    }

    pub const fn left(
        name: &'static str,
        title: &'static str,
        width: usize,
        help: &'static str,
    ) -> Self {
        Self::new(name, title, width, Align::Left, help)
    }

    pub const fn right(
        name: &'static str,
        title: &'static str,
        width: usize,
        help: &'static str,
    ) -> Self {
        Self::new(name, title, width, Align::Right, help)
    }

    #[must_use]
    pub const fn sorted(self, sort: SortOrder) -> Self {
        Self {
            sort: Some(sort),
            ..self
        }
    }

    #[must_use]
    pub const fn on_screens_from(self, from_screen_width: u16) -> Self {
        Self {
            from_screen_width,
            ..self
        }
    }

    #[must_use]
    pub const fn with_past(self) -> Self {
        Self {
            needs_past: true,
            ..self
        }
    }

    #[must_use]
    pub const fn last(self) -> Self {
        Self {
            is_last: true,
            ..self
        }
    }
}

/// The columns of one list. The order of the variants is the order on the screen, from left to
/// right.
pub trait ListColumn: Copy + PartialEq + VariantArray {
    /// The column that names the host: shown with several hosts only, and then always.
    const HOST: Self;

    /// Returns the declaration of the column.
    fn spec(self) -> ColumnSpec;
}

/// Parses the name of a column.
///
/// # Errors
///
/// When no column has that name. The message lists the existing ones.
pub(crate) fn parse_column<C: ListColumn>(name: &str) -> Result<C, String> {
    let found = C::VARIANTS
        .iter()
        .copied()
        .find(|column| column.spec().name == name);
    found.ok_or_else(|| {
        let known: Vec<_> = C::VARIANTS
            .iter()
            .map(|column| column.spec().name)
            .collect();
        format!("`{name}` is no column; there are {}", known.join(", "))
    })
}

pub(in crate::app) fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
}

/// The columns that the user chose, from left to right. The column that takes the rest of the line
/// is the last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns<C>(Vec<C>);

impl<C: ListColumn> Columns<C> {
    pub fn new(columns: impl IntoIterator<Item = C>) -> Self {
        let mut once = Vec::new();
        for column in columns {
            if !once.contains(&column) {
                once.push(column);
            }
        }
        once.sort_by_key(|column| column.spec().is_last);
        Self(once)
    }

    /// The columns on a screen: the chosen ones, or all that have room if none were chosen. The
    /// host column is included with several hosts only.
    pub(in crate::app) fn on_screen(
        chosen: Option<&Self>,
        has_hosts: bool,
        has_room: impl Fn(C) -> bool,
    ) -> Vec<C> {
        let mut shown = match chosen {
            Some(columns) => columns.0.clone(),
            None => C::VARIANTS
                .iter()
                .copied()
                .filter(|column| has_room(*column))
                .collect(),
        };
        shown.retain(|column| *column != C::HOST || has_hosts);
        // A PID or an index alone would be ambiguous, whatever the user chose.
        if has_hosts && !shown.contains(&C::HOST) {
            shown.insert(0, C::HOST);
        }
        shown
    }

    pub fn contains(&self, column: C) -> bool {
        self.0.contains(&column)
    }

    /// All columns of the list: the chosen ones in their order, then the others in the default
    /// order.
    pub fn and_others(&self) -> Vec<C> {
        let others = C::VARIANTS
            .iter()
            .copied()
            .filter(|column| !self.contains(*column));
        self.0.iter().copied().chain(others).collect()
    }

    /// The columns without `column`, or with it if they lack it; `None` when no column would be
    /// left. A column comes back after the nearest one that is before it in the default order.
    #[must_use]
    pub fn toggled(&self, column: C) -> Option<Self> {
        let mut columns = self.0.clone();
        if self.contains(column) {
            columns.retain(|other| *other != column);
        } else {
            let earlier = C::VARIANTS.iter().take_while(|other| **other != column);
            let place = earlier
                .filter_map(|earlier| columns.iter().position(|other| other == earlier))
                .last()
                .map_or(0, |before| before + 1);
            columns.insert(place, column);
        }
        if columns.is_empty() {
            None
        } else {
            Some(Self::new(columns))
        }
    }

    /// The columns with `column` moved by that many places to the right; a negative number moves it
    /// to the left.
    #[must_use]
    pub fn moved(&self, column: C, by: isize) -> Self {
        let mut columns = self.0.clone();
        if let Some(from) = columns.iter().position(|other| *other == column) {
            let to = from.saturating_add_signed(by).min(columns.len() - 1);
            columns.swap(from, to);
        }
        Self::new(columns)
    }
}

impl<C: ListColumn> FromStr for Columns<C> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let columns: Vec<C> = names(text).map(parse_column).collect::<Result<_, _>>()?;
        if columns.is_empty() {
            Err("at least one column is needed".to_owned())
        } else {
            Ok(Self::new(columns))
        }
    }
}

impl<C: ListColumn> fmt::Display for Columns<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            &self
                .0
                .iter()
                .map(|column| column.spec().name)
                .collect::<Vec<_>>()
                .join(","),
        )
    }
}

/// Returns the columns that fit beside each other at their `least` widths. Leaves out columns from
/// the right, but never the one that takes the rest of the line.
pub(crate) fn fitting<C: ListColumn>(
    mut columns: Vec<C>,
    width: usize,
    least: impl Fn(C) -> usize,
) -> Vec<C> {
    while columns
        .iter()
        .map(|column| least(*column) + 1)
        .sum::<usize>()
        > width + 1
        && let Some(place) = columns
            .iter()
            .rposition(|column| !column.spec().is_last)
            .filter(|_| columns.len() > 1)
    {
        columns.remove(place);
    }
    columns
}
