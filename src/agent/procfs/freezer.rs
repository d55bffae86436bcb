//! Whether the control group of a process is frozen, as `docker pause` does it, and where that is undone.
//!
//! Only the kernel's own file systems are read. LXC may put one of a program (FUSE) in their place, which can hang.

use std::fs;
use std::path::{Path, PathBuf};

use crate::base::text::Text;

/// Where control groups are mounted.
const PLACE: &str = "/sys/fs/cgroup";

/// A version of control groups: where it is mounted below [`PLACE`], what a group says of itself, and what of its own will.
struct Version {
    mounts: &'static [&'static str],
    /// What the kernel calls that file system.
    file_system: &'static str,
    /// The file that says whether a group is frozen, if only because one above it is; and the words for that.
    state: (&'static str, &'static [&'static str]),
    /// The file that says `1` where that was asked of this very group.
    own: &'static str,
    /// The file to write to.
    switch: &'static str,
}

const V1: Version = Version {
    mounts: &["/freezer"],
    file_system: "cgroup",
    state: ("freezer.state", &["FROZEN", "FREEZING"]),
    own: "freezer.self_freezing",
    switch: "freezer.state",
};

const V2: Version = Version {
    mounts: &["", "/unified"],
    file_system: "cgroup2",
    state: ("cgroup.events", &["frozen 1"]),
    own: "cgroup.freeze",
    switch: "cgroup.freeze",
};

/// Where control groups can be read on this host.
#[derive(Debug)]
pub(super) struct Freezer {
    first: Vec<PathBuf>,
    second: Vec<PathBuf>,
}

impl Freezer {
    /// By the list of mounts: to ask a mount what it is can hang as well.
    pub(super) fn of_host() -> Self {
        let mounts = fs::read("/proc/self/mounts").unwrap_or_else(|_| vec![]);
        Self::of(PLACE, &String::from_utf8_lossy(&mounts))
    }

    fn of(place: &str, mounts: &str) -> Self {
        let tops = |version: &Version| version.tops(place, mounts).map(PathBuf::from).collect();
        Self { first: tops(&V1), second: tops(&V2) }
    }

    /// The file that freezes a process, by `/proc/PID/cgroup`; absent when none does, or we cannot see it.
    pub(super) fn frozen_by(&self, cgroup: &[u8]) -> Option<Text> {
        let lines = cgroup.split(|byte| *byte == b'\n').filter_map(|line| str::from_utf8(line).ok());
        let mut groups = lines.filter_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            match controllers {
                "" => Some((&V2, &self.second, path)),
                list if list.split(',').any(|it| it == "freezer") => Some((&V1, &self.first, path)),
                _ => None,
            }
        });
        groups.find_map(|(version, tops, path)| version.frozen_by(tops, path))
    }
}

impl Version {
    /// Where it is mounted; what was mounted last in a place is what one sees there.
    fn tops(&self, place: &str, mounts: &str) -> impl Iterator<Item = String> {
        let is_this = |top: &String| {
            let mut lines = mounts.lines().rev().map(|line| line.split(' ').skip(1));
            lines.find(|parts| parts.clone().next() == Some(top)).and_then(|mut parts| parts.nth(1))
                == Some(self.file_system)
        };
        self.mounts.iter().map(move |it| format!("{place}{it}")).filter(is_this)
    }

    fn frozen_by(&self, tops: &[PathBuf], path: &str) -> Option<Text> {
        // That of the whole host is never frozen, and one outside of our namespace is not to be seen.
        let path = path.strip_prefix('/').filter(|it| !it.is_empty() && !it.starts_with(".."))?;
        let found = tops.iter().find_map(|top| self.switch(top, &top.join(path)))?;
        Some(Text::new(found.as_os_str().as_encoded_bytes()))
    }

    /// The switch of the nearest group that was frozen of its own, from this one up.
    fn switch(&self, top: &Path, group: &Path) -> Option<PathBuf> {
        let (file, words) = self.state;
        let state = fs::read_to_string(group.join(file)).ok()?;
        if !state.lines().any(|line| words.contains(&line)) {
            return None;
        }
        let is_own = |it: &&Path| fs::read_to_string(it.join(self.own)).is_ok_and(|it| it.trim_end() == "1");
        let mut above = group.ancestors().take_while(|it| *it != top);
        Some(above.find(is_own).unwrap_or(group).join(self.switch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Control groups with these files in them.
    fn groups(files: &[(&str, &str)]) -> tempfile::TempDir {
        let mount = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = mount.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        mount
    }

    /// What freezes it where these file systems are mounted.
    fn found(files: &[(&str, &str)], mounts: &[[&str; 2]], cgroup: &str) -> Option<String> {
        let place = groups(files);
        let place = place.path().to_str().unwrap();
        let mounts = mounts.iter().map(|[file_system, top]| format!("none {place}{top} {file_system} rw 0 0\n"));
        let found = Freezer::of(place, &mounts.collect::<String>()).frozen_by(cgroup.as_bytes())?;
        Some(found.as_str().strip_prefix(place).unwrap().trim_start_matches('/').to_owned())
    }

    #[track_caller]
    fn check(files: &[(&str, &str)], cgroup: &str, expected: Option<&str>) {
        let mounts = [["cgroup2", ""], ["cgroup2", "/unified"], ["cgroup", "/freezer"]];
        assert_eq!(found(files, &mounts, cgroup).as_deref(), expected, "{cgroup}");
    }

    #[test]
    fn the_nearest_group_that_was_frozen_of_its_own_is_where_it_is_undone() {
        let group = "0::/pod/train\n";
        let frozen = ("pod/train/cgroup.events", "populated 1\nfrozen 1\n");
        check(&[frozen, ("pod/train/cgroup.freeze", "1\n")], group, Some("pod/train/cgroup.freeze"));
        let above = [frozen, ("pod/train/cgroup.freeze", "0\n"), ("pod/cgroup.freeze", "1\n")];
        check(&above, group, Some("pod/cgroup.freeze"));
        // It is frozen from where we may not look.
        check(&[frozen], group, Some("pod/train/cgroup.freeze"));
        let hybrid = [("unified/a/cgroup.events", "frozen 1\n"), ("unified/a/cgroup.freeze", "1\n")];
        check(&hybrid, "3:freezer:/\n0::/a\n", Some("unified/a/cgroup.freeze"));
    }

    #[test]
    fn the_first_version_has_a_hierarchy_for_that() {
        let state = |word| [("freezer/a/b/freezer.state", word), ("freezer/a/freezer.self_freezing", "1\n")];
        let group = "9:cpu,freezer:/a/b\n0::/\n";
        check(&state("FROZEN\n"), group, Some("freezer/a/freezer.state"));
        check(&state("FREEZING\n"), group, Some("freezer/a/freezer.state"));
        check(&state("THAWED\n"), group, None);
        check(&state("FROZEN\n"), "9:cpu:/a/b\n0::/\n", None);
    }

    #[test]
    fn only_what_the_kernel_mounted_is_read() {
        let (files, cgroup) = ([("freezer/a/freezer.state", "FROZEN\n")], "9:freezer:/a\n");
        let found = |mounts: &[[&str; 2]]| found(&files, mounts, cgroup);
        assert_eq!(found(&[["tmpfs", ""], ["cgroup", "/freezer"]]).as_deref(), Some("freezer/a/freezer.state"));
        assert_eq!(found(&[["tmpfs", ""], ["fuse.lxcfs", "/freezer"]]), None);
        // The one over it is what one sees.
        assert_eq!(found(&[["cgroup", "/freezer"], ["fuse.lxcfs", "/freezer"]]), None);
        assert_eq!(found(&[["tmpfs", ""]]), None);
    }

    #[test]
    fn what_is_not_frozen_or_cannot_be_seen_is_not_called_so() {
        let thawed = ("a/cgroup.events", "populated 1\nfrozen 0\n");
        check(&[thawed], "0::/a\n", None);
        check(&[("cgroup.events", "frozen 1\n")], "0::/\n", None);
        check(&[("cgroup.events", "frozen 1\n")], "0::/../a\n", None);
        check(&[], "0::/b\n", None);
        check(&[], "", None);
        check(&[], "no cgroup at all", None);
    }
}
