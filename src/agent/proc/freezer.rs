//! Whether the control group of a process is frozen, as `docker pause` does it, and where that is undone.

use std::fs;
use std::path::{Path, PathBuf};

use crate::untrusted::Text;

/// Where control groups are mounted.
const MOUNT: &str = "/sys/fs/cgroup";

/// A version of control groups: where it is mounted below [`MOUNT`], what a group says of itself, and what of its own will.
struct Version {
    mounts: &'static [&'static str],
    /// The file that says whether a group is frozen, if only because one above it is; and the words for that.
    state: (&'static str, &'static [&'static str]),
    /// The file that says `1` where that was asked of this very group.
    own: &'static str,
    /// The file to write to.
    switch: &'static str,
}

const V1: Version = Version {
    mounts: &["freezer"],
    state: ("freezer.state", &["FROZEN", "FREEZING"]),
    own: "freezer.self_freezing",
    switch: "freezer.state",
};

const V2: Version = Version {
    mounts: &["", "unified"],
    state: ("cgroup.events", &["frozen 1"]),
    own: "cgroup.freeze",
    switch: "cgroup.freeze",
};

/// The file that freezes a process, by `/proc/PID/cgroup`; absent when none does, or we cannot see it.
pub(super) fn frozen_by(cgroup: &[u8]) -> Option<Text> {
    frozen_below(Path::new(MOUNT), cgroup)
}

fn frozen_below(mount: &Path, cgroup: &[u8]) -> Option<Text> {
    let lines = cgroup.split(|byte| *byte == b'\n').filter_map(|line| str::from_utf8(line).ok());
    let mut groups = lines.filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let version = match controllers {
            "" => &V2,
            list if list.split(',').any(|it| it == "freezer") => &V1,
            _ => return None,
        };
        Some((version, path))
    });
    groups.find_map(|(version, path)| version.frozen_by(mount, path))
}

impl Version {
    fn frozen_by(&self, mount: &Path, path: &str) -> Option<Text> {
        // That of the whole host is never frozen, and one outside of our namespace is not to be seen.
        let path = path.strip_prefix('/').filter(|it| !it.is_empty() && !it.starts_with(".."))?;
        let found = self.mounts.iter().find_map(|it| {
            let top = mount.join(it);
            self.switch(&top, &top.join(path))
        })?;
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

    #[track_caller]
    fn check(files: &[(&str, &str)], cgroup: &str, expected: Option<&str>) {
        let mount = groups(files);
        let found = frozen_below(mount.path(), cgroup.as_bytes());
        let expected = expected.map(|it| Text::from(mount.path().join(it).to_str().unwrap()));
        assert_eq!(found, expected, "{cgroup}");
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
