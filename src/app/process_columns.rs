//! Columns that a person chooses and orders; those of the list of processes, and how it is sorted by them.

use std::fmt;
use std::str::FromStr;

use super::rows::View;

/// Columns of one list, of which a person chooses some.
pub trait Choice: Copy + PartialEq + 'static {
    /// Every column, from left to right.
    const ALL: &'static [Self];

    /// What it is called in the configuration and on the command line.
    fn name(self) -> &'static str;

    /// What it shows, in a few words.
    fn help(self) -> &'static str;

    /// Whether it takes the rest of the line, and so is the last.
    fn is_last(self) -> bool;
}

/// A column of the list of processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// The GPUs it is on.
    Gpu,
    /// Its PID.
    Pid,
    /// Whose it is.
    User,
    /// Device memory.
    Memory,
    /// What of it PyTorch keeps free.
    Cache,
    /// What became of that since gputop first saw it.
    Growth,
    /// Use of the multiprocessors.
    Sm,
    /// CPU time.
    Cpu,
    /// Memory of the host.
    Rss,
    /// Time since it started.
    Elapsed,
    /// How many threads it has.
    Threads,
    /// Running, sleeping…
    State,
    /// The last minutes of its memory.
    History,
    /// What it was started by.
    Origin,
    /// What is thought of it.
    Verdict,
    /// What it runs.
    Command,
}

/// From this width on there is room for the cache and for the host's memory.
const SNUG: u16 = 86;
/// From this width on there is room for more than the necessary.
pub const WIDE: u16 = 110;
/// From this width on there is room for a column of which nothing may be known.
const ROOMY: u16 = 120;
/// From this width on there is room for everything.
pub const WIDEST: u16 = 160;

impl Choice for Column {
    const ALL: &'static [Self] = &[
        Self::Gpu,
        Self::Pid,
        Self::User,
        Self::Memory,
        Self::Cache,
        Self::Growth,
        Self::Sm,
        Self::Cpu,
        Self::Rss,
        Self::Elapsed,
        Self::Threads,
        Self::State,
        Self::History,
        Self::Origin,
        Self::Verdict,
        Self::Command,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::Pid => "pid",
            Self::User => "user",
            Self::Memory => "memory",
            Self::Cache => "cache",
            Self::Growth => "growth",
            Self::Sm => "sm",
            Self::Cpu => "cpu",
            Self::Rss => "rss",
            Self::Elapsed => "time",
            Self::Threads => "threads",
            Self::State => "state",
            Self::History => "history",
            Self::Origin => "origin",
            Self::Verdict => "verdict",
            Self::Command => "command",
        }
    }

    fn help(self) -> &'static str {
        match self {
            Self::Gpu => "the GPUs that it is on",
            Self::Pid => "its PID",
            Self::User => "whose it is",
            Self::Memory => "device memory, and its share of the GPU as a bar",
            Self::Cache => "what of it PyTorch's empty_cache() would give back",
            Self::Growth => "what became of its memory since gputop first saw it",
            Self::Sm => "share of the time in which its kernels ran",
            Self::Cpu => "use of processors; 100% is one",
            Self::Rss => "memory of the host",
            Self::Elapsed => "time since it started",
            Self::Threads => "how many threads it has",
            Self::State => "R running, S sleeping, D stuck, T stopped, Z ended",
            Self::History => "the last minutes of its memory",
            Self::Origin => "what it was started by: Slurm, a container, tmux",
            Self::Verdict => "whether it holds memory and should not, or leaks",
            Self::Command => "what it runs",
        }
    }

    fn is_last(self) -> bool {
        self == Self::Command
    }
}

impl Column {
    /// Whether the list can be sorted by it.
    pub fn sorts(self) -> bool {
        !matches!(self, Self::Threads | Self::History | Self::Origin | Self::Verdict)
    }

    /// How wide a screen must be to have it, unless the person chose it.
    fn least_width(self) -> u16 {
        match self {
            Self::Growth | Self::Verdict => WIDE,
            Self::Cache => ROOMY,
            Self::Threads | Self::Origin => WIDEST,
            _ => 0,
        }
    }

    /// Whether one looks for the largest in it.
    fn starts_descending(self) -> bool {
        matches!(self, Self::Memory | Self::Cache | Self::Growth | Self::Sm | Self::Cpu | Self::Rss | Self::Elapsed)
    }
}

impl FromStr for Column {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        named(name)
    }
}

/// The column of that name.
fn named<C: Choice>(name: &str) -> Result<C, String> {
    let found = C::ALL.iter().copied().find(|it| it.name() == name);
    found.ok_or_else(|| {
        let known: Vec<_> = C::ALL.iter().map(|it| it.name()).collect();
        format!("`{name}` is no column; there are {}", known.join(", "))
    })
}

/// Columns that the person chose, from left to right. What takes the rest of the line is the last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns<C = Column>(Vec<C>);

impl<C: Choice> Columns<C> {
    /// Those, each once.
    pub fn new(columns: impl IntoIterator<Item = C>) -> Self {
        let mut once = Vec::new();
        for column in columns {
            if !once.contains(&column) {
                once.push(column);
            }
        }
        once.sort_by_key(|it| it.is_last());
        Self(once)
    }

    /// Those that were chosen, in their order.
    pub fn chosen(&self) -> &[C] {
        &self.0
    }

    /// Whether it is one of them.
    pub fn has(&self, column: C) -> bool {
        self.0.contains(&column)
    }

    /// All columns: these in their order, then the others in theirs.
    pub fn and_others(&self) -> Vec<C> {
        self.0.iter().copied().chain(C::ALL.iter().copied().filter(|it| !self.has(*it))).collect()
    }

    /// These without that one, or with it when it was none of them; nothing when none would be left.
    #[must_use]
    pub fn toggled(&self, column: C) -> Option<Self> {
        let others = self.0.iter().copied().filter(|it| *it != column);
        let columns: Vec<C> = others.chain((!self.has(column)).then_some(column)).collect();
        if columns.is_empty() { None } else { Some(Self::new(columns)) }
    }

    /// These with that one so many places further to the right.
    #[must_use]
    pub fn moved(&self, column: C, by: isize) -> Self {
        let mut columns = self.0.clone();
        if let Some(from) = columns.iter().position(|it| *it == column) {
            let to = from.saturating_add_signed(by).min(columns.len() - 1);
            columns.swap(from, to);
        }
        Self::new(columns)
    }
}

impl Columns {
    /// The columns of a screen of that width: those that were chosen, or those that it has room for. One for the cache
    /// where somebody's is known, or the screen is wide.
    pub fn shown(chosen: Option<&Self>, width: u16, view: View, has_cache: bool) -> Vec<Column> {
        // In the short list the room is for the reasons.
        if view.suspects {
            let short = [Column::Gpu, Column::Pid, Column::User, Column::Memory, Column::Origin, Column::Verdict];
            let fits = |it: &Column| *it == Column::Verdict || it.least_width() <= width;
            return short.into_iter().chain([Column::Command]).filter(fits).collect();
        }
        match chosen {
            Some(columns) => columns.0.clone(),
            None => {
                let has_room = |it: &Column| match it {
                    Column::Cache if has_cache => true,
                    // It has the room of what is no device memory.
                    Column::Rss if has_cache => width >= SNUG,
                    _ => it.least_width() <= width,
                };
                Column::ALL.iter().copied().filter(has_room).collect()
            }
        }
    }
}

impl<C: Choice> FromStr for Columns<C> {
    type Err = String;

    fn from_str(names: &str) -> Result<Self, String> {
        let columns: Vec<C> = words(names).map(named).collect::<Result<_, _>>()?;
        if columns.is_empty() { Err("at least one column is needed".to_owned()) } else { Ok(Self::new(columns)) }
    }
}

impl<C: Choice> fmt::Display for Columns<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(|it| it.name()).collect::<Vec<_>>().join(","))
    }
}

/// How the list is sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sort {
    /// By this.
    pub column: Column,
    /// The largest first.
    pub descending: bool,
    /// What is the same in that column, by this one, and whether the largest first.
    pub then: Option<(Column, bool)>,
}

impl Sort {
    /// The order in which one usually looks at a column.
    pub fn by(column: Column) -> Self {
        Self { column, descending: column.starts_descending(), then: None }
    }

    /// By another column; the one before decides over what is the same there.
    #[must_use]
    pub fn first_by(self, column: Column) -> Self {
        let then = if column == self.column { self.then } else { Some((self.column, self.descending)) };
        Self { then, ..Self::by(column) }
    }
}

/// `memory`, `user,memory`; `-time` for the other way around.
impl FromStr for Sort {
    type Err = String;

    fn from_str(names: &str) -> Result<Self, String> {
        let mut parts = words(names).map(|name| {
            let (name, inverted) = name.strip_prefix('-').map_or((name, false), |name| (name, true));
            let column: Column = name.parse()?;
            if column.sorts() {
                Ok((column, column.starts_descending() != inverted))
            } else {
                Err(format!("the list cannot be sorted by `{name}`"))
            }
        });
        let (column, descending) = parts.next().ok_or("a column is needed to sort by")??;
        let then = parts.next().transpose()?.filter(|(then, _)| *then != column);
        if parts.next().is_some() {
            return Err("the list can be sorted by two columns, not by more".to_owned());
        }
        Ok(Self { column, descending, then })
    }
}

impl fmt::Display for Sort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = |column: Column, descending| if column.starts_descending() == descending { "" } else { "-" };
        write!(f, "{}{}", mark(self.column, self.descending), self.column.name())?;
        self.then.map_or(Ok(()), |(column, descending)| write!(f, ",{}{}", mark(column, descending), column.name()))
    }
}

fn words(names: &str) -> impl Iterator<Item = &str> {
    names.split(',').map(str::trim).filter(|it| !it.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for text in ["memory", "-memory", "user,memory", "gpu,-time"] {
            assert_eq!(text.parse::<Sort>().unwrap().to_string(), text);
        }
        assert_eq!("command, pid,gpu".parse::<Columns<Column>>().unwrap().to_string(), "pid,gpu,command");
        let all = Columns::new(Column::ALL.iter().copied());
        assert_eq!(all.to_string().parse(), Ok(all));
    }

    #[test]
    fn what_is_no_column_is_named() {
        assert!("memry".parse::<Sort>().unwrap_err().contains("`memry` is no column; there are gpu, pid"));
        assert!("verdict".parse::<Sort>().unwrap_err().contains("cannot be sorted"));
        assert!("pid,user,memory".parse::<Sort>().is_err());
        assert!(" , ".parse::<Columns<Column>>().is_err());
    }

    #[test]
    fn a_wider_screen_has_more_unless_the_person_chose() {
        let shown = |width, has_cache| Columns::shown(None, width, View::default(), has_cache);
        let count = |width| shown(width, false).len();
        assert!(count(80) < count(110) && count(110) < count(160));
        let chosen: Option<Columns> = "command,cache".parse().ok();
        assert_eq!(Columns::shown(chosen.as_ref(), 80, View::default(), true), [Column::Cache, Column::Command]);
        // What PyTorch would give back says more on a screen for GPUs than what a process has of the host.
        let has = |width, has_cache| [Column::Cache, Column::Rss].map(|it| shown(width, has_cache).contains(&it));
        assert_eq!([has(80, false), has(80, true)], [[false, true], [true, false]]);
        assert_eq!([has(86, true), has(110, true), has(120, false)], [[true; 2]; 3]);
    }
}
