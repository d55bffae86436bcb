//! The columns of the process list, and how the list is sorted by them.
//!
//! A new column is a variant of [`ProcessColumn`], and an arm each in [`spec`](ListColumn::spec),
//! [`cell`](super::process_cells::cell) and `sort_key` beside that. The compiler asks for all of
//! them; the settings panel, the flag, the configuration and `--once` follow.

use std::fmt;
use std::str::FromStr;

use strum::VariantArray;

use super::columns::{ColumnSpec, Columns, HOST_WIDTH, ListColumn, SortOrder, names, parse_column};

/// A column of the process list. `spec` says what each shows, in the words that the user reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, VariantArray)]
pub enum ProcessColumn {
    Host,
    Gpu,
    Pid,
    User,
    Memory,
    History,
    Cache,
    Growth,
    Sm,
    UseHistory,
    Cpu,
    Rss,
    Elapsed,
    Threads,
    State,
    Origin,
    Verdict,
    Command,
}

/// The narrowest screen with both the PyTorch cache and the CPU use of a process.
const SCREEN_WITH_CACHE_AND_CPU: u16 = 90;
/// The narrowest screen with more than the necessary columns.
pub(crate) const WIDE: u16 = 110;
/// The narrowest screen with columns that few users need.
const WIDER: u16 = 140;
/// The narrowest screen with the origin of a process, and with wider bars.
pub(crate) const WIDEST: u16 = 160;
/// No screen is that wide: the column is shown where the user chose it.
const ON_REQUEST: u16 = u16::MAX;

/// The width of a number of bytes, as in `38.2G`.
pub(crate) const BYTES_WIDTH: usize = 5;

impl ListColumn for ProcessColumn {
    const HOST: Self = Self::Host;

    fn spec(self) -> ColumnSpec {
        use SortOrder::{Ascending, Descending};
        const BYTES: usize = BYTES_WIDTH;
        match self {
            Self::Host => ColumnSpec::left("host", "HOST", HOST_WIDTH, "its host; shown with several hosts only")
                .sorted(Ascending),
            Self::Gpu => ColumnSpec::left("gpu", "GPU", 3, "the GPUs that it uses").sorted(Ascending),
            Self::Pid => ColumnSpec::right("pid", "PID", 7, "its PID").sorted(Ascending),
            Self::User => ColumnSpec::left("user", "USER", 8, "its user").sorted(Ascending),
            Self::Memory => {
                ColumnSpec::right("memory", "MEM", BYTES + 1, "GPU memory; a full bar is all memory of its GPUs")
                    .sorted(Descending)
            }
            Self::Cache => ColumnSpec::right(
                "cache",
                "CACHE",
                BYTES,
                "the unallocated GPU memory that empty_cache() would give back; fragments are not in it",
            )
            .sorted(Descending),
            Self::Growth => {
                ColumnSpec::right("growth", "GROWTH", BYTES + 1, "IN 15m: how its GPU memory changed in that time")
                    .sorted(Descending)
                    .on_screens_from(ON_REQUEST)
                    .with_past()
            }
            Self::Sm => ColumnSpec::right("sm", "SM", 4, "GPU use: share of the time in which its kernels ran")
                .sorted(Descending),
            Self::Cpu => ColumnSpec::right("cpu", "CPU", BYTES, "CPU use; 100% is one core").sorted(Descending),
            Self::Rss => {
                ColumnSpec::right("rss", "RSS", BYTES, "host memory").sorted(Descending).on_screens_from(WIDER)
            }
            Self::Elapsed => ColumnSpec::right("time", "TIME", 6, "time since it started").sorted(Descending),
            Self::Threads => ColumnSpec::right("threads", "THR", 4, "number of threads").on_screens_from(ON_REQUEST),
            Self::State => {
                ColumnSpec::left("state", "STATE", 7, "stuck (in the kernel), stopped, zombie; empty while normal")
                    .sorted(Ascending)
                    .on_screens_from(ON_REQUEST)
            }
            Self::History => ColumnSpec::left(
                "history",
                "MEM 15m",
                7,
                "its GPU memory in the last 15 minutes, as a share of all memory of its GPUs",
            )
            .with_past(),
            Self::UseHistory => {
                ColumnSpec::left("usehistory", "SM 15m", 6, "its GPU use in the last 15 minutes")
                    .on_screens_from(WIDE)
                    .with_past()
            }
            Self::Origin => ColumnSpec::left("origin", "ORIGIN", 14, "what started it: Slurm, a container, tmux")
                .on_screens_from(WIDEST),
            Self::Verdict => {
                ColumnSpec::left("verdict", "VERDICT", 9, "whether it leaks, or holds memory that it should not; else before the command")
                    .on_screens_from(ON_REQUEST)
            }
            Self::Command => ColumnSpec::left("command", "COMMAND", 12, "its command line").sorted(Ascending).last(),
        }
    }
}

impl ProcessColumn {
    pub(crate) fn sorts(self) -> bool {
        self.spec().sort.is_some()
    }

    fn starts_descending(self) -> bool {
        self.spec().sort == Some(SortOrder::Descending)
    }
}

impl Columns<ProcessColumn> {
    /// The columns on a screen of this width: the chosen ones, or all that it has room for if none
    /// were chosen. `has_values` says whether a column is filled on any line.
    pub fn shown(
        chosen: Option<&Self>,
        width: u16,
        only_suspects: bool,
        has_values: impl Fn(ProcessColumn) -> bool,
        has_hosts: bool,
    ) -> Vec<ProcessColumn> {
        use ProcessColumn::{Cache, Command, Cpu, Gpu, Host, Memory, Origin, Pid, User, Verdict};
        let fits = |column: ProcessColumn| column.spec().from_screen_width <= width;
        // The list of suspects needs the room for the reasons.
        if only_suspects {
            let short = [Host, Gpu, Pid, User, Memory, Origin, Verdict];
            let is_shown = |column: &ProcessColumn| match column {
                Host => has_hosts,
                Verdict => true,
                _ => has_values(*column) && fits(*column),
            };
            return short
                .into_iter()
                .filter(is_shown)
                .chain([Command])
                .collect();
        }
        Self::on_screen(chosen, has_hosts, |column| match column {
            _ if !has_values(column) => false,
            Cache => true,
            // The cache takes the room of the CPU use: it matters more on a screen for GPUs.
            Cpu if has_values(Cache) => width >= SCREEN_WITH_CACHE_AND_CPU,
            _ => fits(column),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sort {
    pub column: ProcessColumn,
    /// Whether the largest value comes first.
    pub descending: bool,
    /// The column that decides where the first column has equal values, and whether its largest
    /// value comes first.
    pub then: Option<(ProcessColumn, bool)>,
}

impl Sort {
    /// Sorts by one column, in its usual direction.
    pub(crate) fn by(column: ProcessColumn) -> Self {
        Self {
            column,
            descending: column.starts_descending(),
            then: None,
        }
    }

    /// Sorts by another column; the present one decides where values are equal.
    #[must_use]
    pub(crate) fn first_by(self, column: ProcessColumn) -> Self {
        let then = if column == self.column {
            self.then
        } else {
            Some((self.column, self.descending))
        };
        Self {
            then,
            ..Self::by(column)
        }
    }
}

/// Parses `memory` or `user,memory`; `-time` for the reverse order.
impl FromStr for Sort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = names(text).map(|name| {
            let (name, inverted) = name
                .strip_prefix('-')
                .map_or((name, false), |name| (name, true));
            let column: ProcessColumn = parse_column(name)?;
            if column.sorts() {
                Ok((column, column.starts_descending() != inverted))
            } else {
                Err(format!("the list cannot be sorted by `{name}`"))
            }
        });
        let (column, descending) = parts.next().ok_or("a column is needed to sort by")??;
        let then = parts
            .next()
            .transpose()?
            .filter(|(then, _)| *then != column);
        if parts.next().is_some() {
            return Err("the list can be sorted by two columns, not by more".to_owned());
        }
        Ok(Self {
            column,
            descending,
            then,
        })
    }
}

impl fmt::Display for Sort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let write = |f: &mut fmt::Formatter<'_>, column: ProcessColumn, descending| {
            let sign = if column.starts_descending() == descending {
                ""
            } else {
                "-"
            };
            write!(f, "{sign}{}", column.spec().name)
        };
        write(f, self.column, self.descending)?;
        let Some((column, descending)) = self.then else {
            return Ok(());
        };
        f.write_str(",")?;
        write(f, column, descending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_order_or_choice_is_read_again() {
        for text in ["memory", "-memory", "user,memory", "gpu,-time"] {
            assert_eq!(text.parse::<Sort>().unwrap().to_string(), text);
        }
        let reordered = "command, pid,gpu"
            .parse::<Columns<ProcessColumn>>()
            .unwrap();
        assert_eq!(reordered.to_string(), "pid,gpu,command");
        let all = Columns::new(ProcessColumn::VARIANTS.iter().copied());
        assert_eq!(all.to_string().parse(), Ok(all));
    }

    #[test]
    fn an_unknown_column_is_named_in_the_error() {
        assert!(
            "memry"
                .parse::<Sort>()
                .unwrap_err()
                .contains("`memry` is no column; there are host, gpu, pid")
        );
        assert!(
            "verdict"
                .parse::<Sort>()
                .unwrap_err()
                .contains("cannot be sorted")
        );
        assert!("pid,user,memory".parse::<Sort>().is_err());
        assert!(" , ".parse::<Columns<ProcessColumn>>().is_err());
    }

    #[test]
    fn a_wider_screen_has_more_columns_unless_the_user_chose() {
        let shown = |width, has_cache| {
            let has_values = |column| column != ProcessColumn::Cache || has_cache;
            Columns::shown(None, width, false, has_values, false)
        };
        let count = |width| shown(width, false).len();
        assert!(count(80) < count(110) && count(110) < count(160));
        let chosen: Option<Columns<ProcessColumn>> = "command,cache".parse().ok();
        assert_eq!(
            Columns::shown(chosen.as_ref(), 80, false, |_| true, false),
            [ProcessColumn::Cache, ProcessColumn::Command]
        );
        let has = |width, has_cache| {
            [ProcessColumn::Cache, ProcessColumn::Cpu]
                .map(|column| shown(width, has_cache).contains(&column))
        };
        assert_eq!(
            [has(80, false), has(80, true)],
            [[false, true], [true, false]]
        );
        assert_eq!(
            [has(90, true), has(110, true), has(120, false)],
            [[true; 2], [true; 2], [false, true]]
        );
    }
}
