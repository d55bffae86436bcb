//! The module graph of a crate, read from its source: which module uses which, and where.
//!
//! A path is followed through `use`, `pub use`, `self`, `super`, `crate` and globs to the module
//! that defines the item. Method calls are not followed: their receiver's type is not in the source
//! text. Test code is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;

use super::module_paths::{ModulePath, SourceFile, Usage, read_usages};

/// Children of one folder that use each other in a circle, all reachable from each other.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Circle {
    /// The folder, such as `agent/nvml`; empty for the crate root.
    pub(super) folder: String,
    /// The names of the children, sorted.
    pub(super) members: Vec<String>,
    /// For each use inside the circle that is not yet in an earlier chain, the shortest way around,
    /// one line per arrow.
    pub(super) chains: Vec<String>,
}

/// All modules of a crate, without those that are compiled for tests only.
pub(super) struct ModuleGraph {
    modules: BTreeSet<ModulePath>,
    pub(super) usages: BTreeSet<Usage>,
}

impl ModuleGraph {
    /// Reads the graph from every file of a crate.
    pub(super) fn read(files: &[SourceFile]) -> Self {
        let (modules, usages) = read_usages(files);
        Self { modules, usages }
    }

    /// Uses between different children of a folder, one per pair: the first by file and line.
    fn uses_between_children(&self, folder: &[String]) -> BTreeMap<(String, String), &Usage> {
        let mut uses = BTreeMap::new();
        for usage in &self.usages {
            let below = |module: &ModulePath| {
                module
                    .strip_prefix(folder)
                    .and_then(<[String]>::first)
                    .cloned()
            };
            if let (Some(from), Some(to)) = (below(&usage.from), below(&usage.to))
                && from != to
            {
                uses.entry((from, to)).or_insert(usage);
            }
        }
        uses
    }

    /// Uses between the modules at the top of the crate, with `lib` for its root: who uses whom,
    /// and where first.
    pub(super) fn uses_between_folders(&self) -> BTreeMap<(String, String), &Usage> {
        let top = |module: &ModulePath| module.first().map_or("lib", String::as_str).to_owned();
        let mut uses = BTreeMap::new();
        for usage in &self.usages {
            let (from, to) = (top(&usage.from), top(&usage.to));
            if from != to {
                uses.entry((from, to)).or_insert(usage);
            }
        }
        uses
    }

    /// The names of the modules at the top of the crate.
    pub(super) fn folders(&self) -> BTreeSet<String> {
        self.modules
            .iter()
            .map(|module| module.first().map_or("lib", String::as_str).to_owned())
            .collect()
    }

    /// Returns every circle: among the folders, and among the children of each folder at any depth.
    pub(super) fn circles(&self) -> Vec<Circle> {
        let folders = self
            .modules
            .iter()
            .filter(|module| module.first().is_none_or(|first| first != "main"));
        folders.flat_map(|folder| self.circles_in(folder)).collect()
    }

    fn circles_in(&self, folder: &[String]) -> Vec<Circle> {
        let uses = self.uses_between_children(folder);
        let names: BTreeSet<&String> = uses.keys().flat_map(|(from, to)| [from, to]).collect();
        let mut left = names;
        let mut circles = Vec::new();
        while let Some(first) = left.pop_first() {
            let around = |name: &String| {
                way(&uses, first, name).is_some() && way(&uses, name, first).is_some()
            };
            let others: Vec<&String> = left.iter().copied().filter(|name| around(name)).collect();
            if others.is_empty() {
                continue;
            }
            left.retain(|name| !others.contains(name));
            let members: Vec<String> = iter::once(first).chain(others).cloned().collect();
            let chains = chains(&uses, &members);
            circles.push(Circle {
                folder: folder.join("/"),
                members,
                chains,
            });
        }
        circles
    }
}

/// Returns the shortest chains around a circle that together hold every use inside it.
fn chains(uses: &BTreeMap<(String, String), &Usage>, members: &[String]) -> Vec<String> {
    let mut shown = BTreeSet::new();
    let mut chains = Vec::new();
    for pair @ (from, to) in uses.keys() {
        if shown.contains(pair) || !members.contains(from) || !members.contains(to) {
            continue;
        }
        let back = way(uses, to, from).expect("members of a circle reach each other");
        let mut lines = vec![format!("  {from}")];
        let mut module = from;
        for next in back {
            let arrow = (module.clone(), next.clone());
            lines.push(format!("    -> {next}   {}", uses[&arrow].place));
            shown.insert(arrow);
            module = next;
        }
        chains.push(lines.join("\n"));
    }
    chains
}

/// Returns the children on the shortest way between two of them, both included, or `None` when
/// there is no way.
fn way<'a>(
    uses: &'a BTreeMap<(String, String), &Usage>,
    from: &'a String,
    to: &'a String,
) -> Option<Vec<&'a String>> {
    let mut ways = vec![vec![from]];
    let mut seen = BTreeSet::from([from]);
    let mut place = 0;
    while let Some(way) = ways.get(place).cloned() {
        let last = *way.last().expect("a way begins somewhere");
        if last == to {
            return Some(way);
        }
        for (_, next) in uses.keys().filter(|(user, _)| user == last) {
            if seen.insert(next) {
                ways.push([way.clone(), vec![next]].concat());
            }
        }
        place += 1;
    }
    None
}
