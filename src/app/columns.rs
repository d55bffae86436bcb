//! Columns of a list: their declarations, which of them a list shows, and the type of a cell.
//!
//! The screen and `--once` share them.

use std::fmt;
use std::str::FromStr;

use strum::VariantArray;

use crate::model::Severity;

/// The width of the name of a host, in terminal columns.
pub const HOST_WIDTH: usize = 10;

/// The side of its cell to which a text is aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// For texts.
    Left,
    /// For numbers.
    Right,
}

/// The meaning of a text to the reader; the theme turns it into a style.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// As the rest of the line.
    Plain,
    /// A figure that the driver gave: dim when it is old.
    Reading,
    /// Less important than the rest of the line.
    Dim,
    /// Something healthy.
    Good,
    /// Something unusual.
    Notable,
    /// Something wrong.
    Alarm,
    /// The severity of a verdict, or of the health of a GPU.
    Severity(Severity),
}

/// The content of one column on one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// The text, which may be wider than the column.
    pub text: String,
    /// The meaning of the text.
    pub tone: Tone,
}

impl Cell {
    /// A cell in the tone of its line.
    pub fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), tone: Tone::Plain }
    }

    /// A cell with a figure of the driver.
    pub fn reading(text: impl Into<String>) -> Self {
        Self { text: text.into(), tone: Tone::Reading }
    }
}

/// The direction in which a list is sorted by a column at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SortOrder {
    /// The list cannot be sorted by the column.
    None,
    /// The smallest first.
    Ascending,
    /// The largest first.
    Descending,
}

/// The properties of a column besides its cells: name, heading, width, alignment and sort order.
#[derive(Debug, Clone, Copy)]
pub struct ColumnSpec {
    /// The name in the configuration and on the command line.
    pub name: &'static str,
    /// The heading.
    pub title: &'static str,
    /// The content of the column, in a few words.
    pub help: &'static str,
    /// The side of the cell to which the text is aligned.
    pub align: Align,
    /// The width on a narrow screen, in terminal columns.
    pub width: usize,
    /// The narrowest screen that shows the column unless the user chose it.
    pub from_screen_width: u16,
    /// The direction in which the list is sorted by this column at first, or `None`.
    pub sort: SortOrder,
    /// Whether the column shows a change over time, which a report of a single snapshot leaves out.
    pub needs_past: bool,
    /// Whether the column takes the rest of the line, and so is the last one.
    pub is_last: bool,
}

impl ColumnSpec {
    const fn new(name: &'static str, title: &'static str, width: usize, align: Align, help: &'static str) -> Self {
        let sort = SortOrder::None;
        Self { name, title, help, align, width, from_screen_width: 0, sort, needs_past: false, is_last: false }
    }

    /// A column of texts.
    pub const fn left(name: &'static str, title: &'static str, width: usize, help: &'static str) -> Self {
        Self::new(name, title, width, Align::Left, help)
    }

    /// A column of numbers.
    pub const fn right(name: &'static str, title: &'static str, width: usize, help: &'static str) -> Self {
        Self::new(name, title, width, Align::Right, help)
    }

    /// The same column, which the list can be sorted by.
    #[must_use]
    pub const fn sorted(self, sort: SortOrder) -> Self {
        Self { sort, ..self }
    }

    /// The same column, shown on screens of at least this width.
    #[must_use]
    pub const fn from_width(self, from_screen_width: u16) -> Self {
        Self { from_screen_width, ..self }
    }

    /// The same column, left out by reports of a single snapshot.
    #[must_use]
    pub const fn with_past(self) -> Self {
        Self { needs_past: true, ..self }
    }

    /// The same column as the last one of the list.
    #[must_use]
    pub const fn last(self) -> Self {
        Self { is_last: true, ..self }
    }
}

/// The columns of one list. The order of the variants is the order on the screen, from left to right.
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
pub fn parse_column<C: ListColumn>(name: &str) -> Result<C, String> {
    let found = C::VARIANTS.iter().copied().find(|column| column.spec().name == name);
    found.ok_or_else(|| {
        let known: Vec<_> = C::VARIANTS.iter().map(|column| column.spec().name).collect();
        format!("`{name}` is no column; there are {}", known.join(", "))
    })
}

/// Splits a text at commas into names, without the blanks around them.
pub(super) fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty())
}

/// The columns that the user chose, from left to right. The column that takes the rest of the line is the last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns<C>(Vec<C>);

impl<C: ListColumn> Columns<C> {
    /// Returns these columns without duplicates. The one that takes the rest of the line comes last.
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

    /// The columns on a screen: the chosen ones, or all that have room if none were chosen. The host column is included
    /// with several hosts only.
    pub(super) fn on_screen(chosen: Option<&Self>, has_hosts: bool, has_room: impl Fn(C) -> bool) -> Vec<C> {
        let mut shown = match chosen {
            Some(columns) => columns.0.clone(),
            None => C::VARIANTS.iter().copied().filter(|column| has_room(*column)).collect(),
        };
        shown.retain(|column| *column != C::HOST || has_hosts);
        // A PID or an index alone would be ambiguous, whatever the user chose.
        if has_hosts && !shown.contains(&C::HOST) {
            shown.insert(0, C::HOST);
        }
        shown
    }

    /// Whether the user chose `column`.
    pub fn contains(&self, column: C) -> bool {
        self.0.contains(&column)
    }

    /// All columns of the list: the chosen ones in their order, then the others in the default order.
    pub fn and_others(&self) -> Vec<C> {
        let others = C::VARIANTS.iter().copied().filter(|column| !self.contains(*column));
        self.0.iter().copied().chain(others).collect()
    }

    /// The columns without `column`, or with it if they lack it; `None` when no column would be left.
    #[must_use]
    pub fn toggled(&self, column: C) -> Option<Self> {
        let others = self.0.iter().copied().filter(|other| *other != column);
        let columns: Vec<C> = others.chain((!self.contains(column)).then_some(column)).collect();
        if columns.is_empty() { None } else { Some(Self::new(columns)) }
    }

    /// The columns with `column` moved by that many places to the right; a negative number moves it to the left.
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
        if columns.is_empty() { Err("at least one column is needed".to_owned()) } else { Ok(Self::new(columns)) }
    }
}

impl<C: ListColumn> fmt::Display for Columns<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(|column| column.spec().name).collect::<Vec<_>>().join(","))
    }
}
