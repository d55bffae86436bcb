//! Tells whether the control group of a process is frozen, as `docker pause` does, and which file thaws it.
//!
//! Reads only the kernel's own file systems. LXC may mount a FUSE file system in their place, which can hang.

use std::fs;
use std::path::{Path, PathBuf};

use crate::base::text::Text;

/// Where control groups are mounted.
const MOUNT_ROOT: &str = "/sys/fs/cgroup";

#[derive(Debug)]
struct CgroupVersion {
    /// Mount points below [`MOUNT_ROOT`].
    mount_points: &'static [&'static str],
    /// The type of the file system, as in `/proc/mounts`.
    file_system: &'static str,
    /// The controller in `/proc/PID/cgroup`; version 2 names none.
    controller: &'static str,
    /// The file that shows whether a group is frozen, by itself or by a group above it, and the lines that mean "frozen".
    state: (&'static str, &'static [&'static str]),
    /// The file that holds `1` when this group itself was frozen.
    self_frozen: &'static str,
    /// The file to write to in order to thaw the group.
    control: &'static str,
}

static VERSIONS: [CgroupVersion; 2] = [
    CgroupVersion {
        mount_points: &["/freezer"],
        file_system: "cgroup",
        controller: "freezer",
        state: ("freezer.state", &["FROZEN", "FREEZING"]),
        self_frozen: "freezer.self_freezing",
        control: "freezer.state",
    },
    CgroupVersion {
        mount_points: &["", "/unified"],
        file_system: "cgroup2",
        controller: "",
        state: ("cgroup.events", &["frozen 1"]),
        self_frozen: "cgroup.freeze",
        control: "cgroup.freeze",
    },
];

/// The mount points of control groups on this host, with their versions.
#[derive(Debug)]
pub(super) struct Freezer(Vec<(PathBuf, &'static CgroupVersion)>);

impl Freezer {
    /// Finds the mount points in the list of mounts: `statfs` on a mount point could hang.
    pub(super) fn of_host() -> Self {
        let mounts = fs::read("/proc/self/mounts").unwrap_or_else(|_| vec![]);
        Self::new(MOUNT_ROOT, &String::from_utf8_lossy(&mounts))
    }

    fn new(root: &str, mounts: &str) -> Self {
        // The last of several mounts on one path is the visible one.
        let file_system = |path: &str| {
            let mut lines = mounts.lines().rev().map(|line| line.split(' ').skip(1));
            lines.find(|fields| fields.clone().next() == Some(path)).and_then(|mut fields| fields.nth(1))
        };
        let points = VERSIONS.iter().flat_map(|version| version.mount_points.iter().map(move |point| (point, version)));
        let paths = points.map(|(point, version)| (format!("{root}{point}"), version));
        let mounted = paths.filter(|(path, version)| file_system(path) == Some(version.file_system));
        Self(mounted.map(|(path, version)| (path.into(), version)).collect())
    }

    /// Returns the file that thaws a process, given its `/proc/PID/cgroup`. `None` unless it is known to be frozen.
    pub(super) fn frozen_by(&self, cgroup: &[u8]) -> Option<Text> {
        let mut lines = cgroup.split(|byte| *byte == b'\n').filter_map(|line| str::from_utf8(line).ok());
        let file = lines.find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            // The root group is never frozen, and a group outside of our cgroup namespace cannot be seen.
            let path = path.strip_prefix('/').filter(|path| !path.is_empty() && !path.starts_with(".."))?;
            let has_controller =
                |version: &CgroupVersion| controllers.split(',').any(|name| name == version.controller);
            let mut mounts = self.0.iter().filter(|(_, version)| has_controller(version));
            mounts.find_map(|(mount, version)| version.control_file(mount, &mount.join(path)))
        })?;
        Some(Text::new(file.as_os_str().as_encoded_bytes()))
    }
}

impl CgroupVersion {
    /// Returns the control file of the nearest group, from this one up, that was itself frozen. If no such group is visible,
    /// returns the control file of this group. `None` when the group is not frozen.
    fn control_file(&self, mount: &Path, group: &Path) -> Option<PathBuf> {
        let (file, frozen) = self.state;
        let state = fs::read_to_string(group.join(file)).ok()?;
        if !state.lines().any(|line| frozen.contains(&line)) {
            return None;
        }
        let is_self_frozen =
            |group: &&Path| fs::read_to_string(group.join(self.self_frozen)).is_ok_and(|text| text.trim_end() == "1");
        let mut groups = group.ancestors().take_while(|group| *group != mount);
        Some(groups.find(is_self_frozen).unwrap_or(group).join(self.control))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of control groups that contains these files.
    fn groups(files: &[(&str, &str)]) -> tempfile::TempDir {
        let mount = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = mount.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        mount
    }

    /// The file that thaws the process when these file systems are mounted.
    fn thaw_file(files: &[(&str, &str)], mounts: &[[&str; 2]], cgroup: &str) -> Option<String> {
        let root = groups(files);
        let root = root.path().to_str().unwrap();
        let mounts = mounts.iter().map(|[file_system, point]| format!("none {root}{point} {file_system} rw 0 0\n"));
        let file = Freezer::new(root, &mounts.collect::<String>()).frozen_by(cgroup.as_bytes())?;
        Some(file.as_str().strip_prefix(root).unwrap().trim_start_matches('/').to_owned())
    }

    #[track_caller]
    fn check(files: &[(&str, &str)], cgroup: &str, expected: Option<&str>) {
        let mounts = [["cgroup2", ""], ["cgroup2", "/unified"], ["cgroup", "/freezer"]];
        assert_eq!(thaw_file(files, &mounts, cgroup).as_deref(), expected, "{cgroup}");
    }

    #[test]
    fn the_nearest_group_that_was_itself_frozen_is_named() {
        let group = "0::/pod/train\n";
        let frozen = ("pod/train/cgroup.events", "populated 1\nfrozen 1\n");
        check(&[frozen, ("pod/train/cgroup.freeze", "1\n")], group, Some("pod/train/cgroup.freeze"));
        let above = [frozen, ("pod/train/cgroup.freeze", "0\n"), ("pod/cgroup.freeze", "1\n")];
        check(&above, group, Some("pod/cgroup.freeze"));
        // The frozen group is outside of what can be seen.
        check(&[frozen], group, Some("pod/train/cgroup.freeze"));
        let hybrid = [("unified/a/cgroup.events", "frozen 1\n"), ("unified/a/cgroup.freeze", "1\n")];
        check(&hybrid, "3:freezer:/\n0::/a\n", Some("unified/a/cgroup.freeze"));
    }

    #[test]
    fn version_1_has_a_hierarchy_of_its_own() {
        let state = |word| [("freezer/a/b/freezer.state", word), ("freezer/a/freezer.self_freezing", "1\n")];
        let group = "9:cpu,freezer:/a/b\n0::/\n";
        check(&state("FROZEN\n"), group, Some("freezer/a/freezer.state"));
        check(&state("FREEZING\n"), group, Some("freezer/a/freezer.state"));
        check(&state("THAWED\n"), group, None);
        check(&state("FROZEN\n"), "9:cpu:/a/b\n0::/\n", None);
    }

    #[test]
    fn only_file_systems_of_the_kernel_are_read() {
        let (files, cgroup) = ([("freezer/a/freezer.state", "FROZEN\n")], "9:freezer:/a\n");
        let thaw_file = |mounts: &[[&str; 2]]| thaw_file(&files, mounts, cgroup);
        assert_eq!(thaw_file(&[["tmpfs", ""], ["cgroup", "/freezer"]]).as_deref(), Some("freezer/a/freezer.state"));
        assert_eq!(thaw_file(&[["tmpfs", ""], ["fuse.lxcfs", "/freezer"]]), None);
        // The later mount hides the earlier.
        assert_eq!(thaw_file(&[["cgroup", "/freezer"], ["fuse.lxcfs", "/freezer"]]), None);
        assert_eq!(thaw_file(&[["tmpfs", ""]]), None);
    }

    #[test]
    fn a_group_that_is_thawed_or_cannot_be_seen_is_not_frozen() {
        let thawed = ("a/cgroup.events", "populated 1\nfrozen 0\n");
        check(&[thawed], "0::/a\n", None);
        check(&[("cgroup.events", "frozen 1\n")], "0::/\n", None);
        check(&[("cgroup.events", "frozen 1\n")], "0::/../a\n", None);
        check(&[], "0::/b\n", None);
        check(&[], "", None);
        check(&[], "no cgroup at all", None);
    }
}
