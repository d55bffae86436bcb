//! All ranks of a job by host: one cell for each, with a letter where it differs.

use std::collections::BTreeMap;

use unicode_width::UnicodeWidthStr;

use super::differences::Difference;
use super::{ShownJob, severity_of};
use crate::model::{Severity, UserHue};
use crate::protocol::host_key::HostKey;

/// The columns between two hosts of a line.
const GAP: usize = 3;

/// The most ranks of one host in a line; further ones have lines of their own.
const MOST_CELLS: usize = 32;

/// A rank in the grid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GridCell {
    pub(crate) rank: u32,
    /// The letter of a rank that differs: `m` missing, `L` leak, `s` straggler. `None` for one that
    /// does not.
    pub(crate) letter: Option<char>,
    pub(crate) severity: Severity,
    pub(crate) is_chosen: bool,
}

/// The ranks of a host, or some of them, in a line of the grid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GridHost {
    /// The name of the host, as wide as that of the others; blank where the ranks of the host above
    /// continue.
    pub(crate) name: String,
    /// The number of the first rank, as wide as that of the others.
    pub(crate) first: String,
    pub(crate) cells: Vec<GridCell>,
    /// The number of the last rank.
    pub(crate) last: String,
    pub(crate) hue: Option<UserHue>,
    /// The column at which the host begins.
    pub(crate) column: usize,
    width: usize,
}

/// Returns the hosts of the grid, by their lowest rank.
pub(super) fn hosts(shown: &ShownJob<'_>, differences: &[Difference]) -> Vec<GridHost> {
    let mut letters: BTreeMap<u32, char> = BTreeMap::new();
    for difference in differences {
        if let Some(rank) = difference.rank {
            letters.entry(rank).or_insert(difference.letter);
        }
    }
    let mut ranks: BTreeMap<HostKey, Vec<u32>> = BTreeMap::new();
    for rank in &shown.job.ranks {
        ranks.entry(rank.host).or_default().push(rank.rank);
        if !shown.answers(rank.host) {
            letters.insert(rank.rank, '?');
        }
    }
    for missing in shown.missing.iter().flatten() {
        if let Some(host) = missing.host {
            ranks.entry(host).or_default().push(missing.rank);
            letters.entry(missing.rank).or_insert('m');
        }
    }
    let mut by_host: Vec<(HostKey, Vec<u32>)> = ranks.into_iter().collect();
    for (_, ranks) in &mut by_host {
        ranks.sort_unstable();
        ranks.dedup();
    }
    by_host.sort_by_key(|(_, ranks)| ranks.first().copied());
    let digits = |rank: &u32| rank.to_string().len();
    let all = || by_host.iter().flat_map(|(_, ranks)| ranks);
    let digits = all().map(digits).max().unwrap_or(1);
    let names = by_host
        .iter()
        .map(|(host, _)| shown.fleet.name(*host).width());
    let name_width = names.max().unwrap_or(0).min(32);
    let most = by_host.iter().map(|(_, ranks)| ranks.len()).max();
    let most = most.unwrap_or(0).min(MOST_CELLS);
    let mut hosts = Vec::new();
    for (host, ranks) in &by_host {
        let hue = shown.fleet.host(*host).and_then(|model| {
            let user = shown.job.user.as_ref()?;
            model.user_hue(user)
        });
        for (part, ranks) in ranks.chunks(MOST_CELLS).enumerate() {
            let name: String = shown.fleet.name(*host).chars().take(32).collect();
            let name = if part == 0 { name } else { String::new() };
            let padding = " ".repeat(name_width.saturating_sub(name.width()));
            let cells = ranks.iter().map(|rank| {
                let letter = letters.get(rank).copied();
                GridCell {
                    rank: *rank,
                    letter,
                    severity: letter.map_or(Severity::Fine, severity_of),
                    is_chosen: false,
                }
            });
            let ends = [ranks.first(), ranks.last()].map(|rank| rank.copied().unwrap_or(0));
            hosts.push(GridHost {
                name: format!("{name}{padding}"),
                first: format!("{:>digits$}", ends[0]),
                cells: cells.collect(),
                last: ends[1].to_string(),
                hue,
                column: 0,
                width: name_width + 1 + digits + 1 + most + 1 + digits,
            });
        }
    }
    hosts
}

/// Returns for each host its line and the column where it begins: as many in a line as fit.
pub(super) fn places(hosts: &[GridHost], width: usize) -> Vec<(usize, usize)> {
    let each = hosts.iter().map(|host| host.width + GAP).max().unwrap_or(1);
    let columns = ((width + GAP).saturating_sub(2) / each).max(1);
    (0..hosts.len())
        .map(|place| (place / columns, (place % columns) * each))
        .collect()
}

/// Returns for each rank the line of the page, the number and the column, in the order of the ranks.
pub(super) fn cells(
    hosts: &[GridHost],
    places: &[(usize, usize)],
    first: usize,
) -> Vec<(usize, u32, usize)> {
    let mut cells: Vec<(usize, u32, usize)> = hosts
        .iter()
        .zip(places)
        .flat_map(|(host, (line, column))| {
            let before = host.name.width() + 1 + host.first.len() + 1;
            let cells = host.cells.iter().enumerate();
            cells.map(move |(place, cell)| (first + line, cell.rank, column + before + place))
        })
        .collect();
    cells.sort_by_key(|(_, rank, _)| *rank);
    cells
}

/// Returns the lines of the grid.
pub(super) fn lines(
    hosts: Vec<GridHost>,
    places: &[(usize, usize)],
    chosen: Option<u32>,
) -> Vec<Vec<GridHost>> {
    let mut lines: Vec<Vec<GridHost>> = Vec::new();
    for (mut host, (line, column)) in hosts.into_iter().zip(places) {
        host.column = *column;
        for cell in &mut host.cells {
            cell.is_chosen = Some(cell.rank) == chosen;
        }
        if *line >= lines.len() {
            lines.push(Vec::new());
        }
        if let Some(last) = lines.last_mut() {
            last.push(host);
        }
    }
    lines
}
