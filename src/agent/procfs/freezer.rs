//! Tells whether the control group of a process is frozen, as `docker pause` does, and which file
//! thaws it.
//!
//! Reads only the kernel's own file systems. LXC may mount a FUSE file system in their place, which
//! can hang.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::time::Duration;

use super::files::{self, read_cut};
use crate::base::text::Text;
use crate::base::units::Moment;

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
    /// The file that shows whether a group is frozen, by itself or by a group above it, and the
    /// lines that mean "frozen".
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

/// The mount points of control groups on this host, with their versions, and the groups of the
/// shown processes.
#[derive(Debug)]
pub(super) struct Freezer {
    mounts: Vec<(PathBuf, &'static CgroupVersion)>,
    /// By path. The processes in a group keep it alive.
    groups: RefCell<HashMap<PathBuf, Weak<ControlGroup>>>,
}

/// A control group, whose state is read in each pass.
#[derive(Debug)]
pub(super) struct ControlGroup {
    mount: PathBuf,
    path: PathBuf,
    version: &'static CgroupVersion,
    /// The open state file. `None` when descriptors are about to run out: the file is then opened
    /// for each reading.
    state: Option<OwnedFd>,
    /// When the state was last read, and the file that thaws the group; `None` while the group is
    /// not frozen.
    last: RefCell<(Moment, Option<Text>)>,
}

impl Freezer {
    /// Finds the mount points in the list of mounts: `statfs` on a mount point could hang.
    pub(super) fn find() -> Self {
        let mounts = read_cut("/proc/self/mounts").unwrap_or_else(|_| vec![]);
        Self::new(MOUNT_ROOT, &String::from_utf8_lossy(&mounts))
    }

    fn new(root: &str, mounts: &str) -> Self {
        // The last of several mounts on one path is the visible one.
        let file_system = |path: &str| {
            let mut lines = mounts.lines().rev().map(|line| line.split(' ').skip(1));
            lines
                .find(|fields| fields.clone().next() == Some(path))
                .and_then(|mut fields| fields.nth(1))
        };
        let points = VERSIONS.iter().flat_map(|version| {
            version
                .mount_points
                .iter()
                .map(move |point| (point, version))
        });
        let paths = points.map(|(point, version)| (format!("{root}{point}"), version));
        let mounted =
            paths.filter(|(path, version)| file_system(path) == Some(version.file_system));
        let mounts = mounted
            .map(|(path, version)| (path.into(), version))
            .collect();
        Self {
            mounts,
            groups: RefCell::default(),
        }
    }

    /// Returns the groups that can be frozen with a process, given its `/proc/PID/cgroup`: one for
    /// each version of control groups. Leaves out the root group, which is never frozen, and groups
    /// that cannot be seen. `keep_open` decides whether a file stays open.
    pub(super) fn groups(
        &self,
        cgroup: &[u8],
        keep_open: impl Fn(OwnedFd) -> Option<OwnedFd>,
    ) -> Vec<Rc<ControlGroup>> {
        let lines = cgroup
            .split(|byte| *byte == b'\n')
            .filter_map(|line| str::from_utf8(line).ok());
        let groups = lines.filter_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            // A group outside of our cgroup namespace cannot be seen.
            let path = path
                .strip_prefix('/')
                .filter(|path| !path.is_empty() && !path.starts_with(".."))?;
            let has_controller = |version: &CgroupVersion| {
                controllers
                    .split(',')
                    .any(|name| name == version.controller)
            };
            let mut mounts = self
                .mounts
                .iter()
                .filter(|(_, version)| has_controller(version));
            mounts.find_map(|(mount, version)| {
                self.open(mount, mount.join(path), version, &keep_open)
            })
        });
        groups.collect()
    }

    fn open(
        &self,
        mount: &Path,
        path: PathBuf,
        version: &'static CgroupVersion,
        keep_open: impl Fn(OwnedFd) -> Option<OwnedFd>,
    ) -> Option<Rc<ControlGroup>> {
        let mut groups = self.groups.borrow_mut();
        if let Some(group) = groups.get(&path).and_then(Weak::upgrade) {
            return Some(group);
        }
        groups.retain(|_, group| group.strong_count() > 0);
        let state = keep_open(File::open(path.join(version.state.0)).ok()?.into());
        let group = ControlGroup {
            mount: mount.to_owned(),
            path: path.clone(),
            version,
            state,
            last: RefCell::default(),
        };
        let group = Rc::new(group);
        groups.insert(path, Rc::downgrade(&group));
        Some(group)
    }
}

impl ControlGroup {
    /// The time for which the state is not read again: the processes of a group are read one after
    /// the other.
    const FRESH: Duration = Duration::from_millis(50);

    /// Returns the file that thaws the group. `None` unless the group is known to be frozen.
    pub(super) fn frozen_by(&self, now: Moment) -> Option<Text> {
        let mut last = self.last.borrow_mut();
        if now.since(last.0) >= Self::FRESH {
            let mut buffer = [0; 256];
            let state = match &self.state {
                Some(file) => files::read(file, &mut buffer).ok(),
                None => File::open(self.path.join(self.version.state.0))
                    .ok()
                    .and_then(|file| files::read(file, &mut buffer).ok()),
            };
            let is_frozen = state.is_some_and(|state| {
                let mut lines = state.split(|byte| *byte == b'\n');
                lines.any(|line| {
                    self.version
                        .state
                        .1
                        .iter()
                        .any(|frozen| frozen.as_bytes() == line)
                })
            });
            *last = (now, is_frozen.then(|| self.control_file()));
        }
        last.1.clone()
    }

    /// Returns the control file of the nearest group, from this one up, that was itself frozen. If
    /// no such group is visible, returns the control file of this group.
    fn control_file(&self) -> Text {
        let is_self_frozen = |group: &&Path| {
            fs::read_to_string(group.join(self.version.self_frozen))
                .is_ok_and(|text| text.trim_end() == "1")
        };
        let mut groups = self
            .path
            .ancestors()
            .take_while(|group| *group != self.mount);
        let file = groups
            .find(is_self_frozen)
            .unwrap_or(&self.path)
            .join(self.version.control);
        Text::new(file.as_os_str().as_encoded_bytes())
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
        let mounts = mounts
            .iter()
            .map(|[file_system, point]| format!("none {root}{point} {file_system} rw 0 0\n"));
        let groups =
            Freezer::new(root, &mounts.collect::<String>()).groups(cgroup.as_bytes(), Some);
        let file = groups
            .iter()
            .find_map(|group| group.frozen_by(Moment(1000)))?;
        Some(
            file.as_str()
                .strip_prefix(root)
                .unwrap()
                .trim_start_matches('/')
                .to_owned(),
        )
    }

    #[track_caller]
    fn check(files: &[(&str, &str)], cgroup: &str, expected: Option<&str>) {
        let mounts = [
            ["cgroup2", ""],
            ["cgroup2", "/unified"],
            ["cgroup", "/freezer"],
        ];
        assert_eq!(
            thaw_file(files, &mounts, cgroup).as_deref(),
            expected,
            "{cgroup}"
        );
    }

    #[test]
    fn the_nearest_group_that_was_itself_frozen_is_named() {
        let group = "0::/pod/train\n";
        let frozen = ("pod/train/cgroup.events", "populated 1\nfrozen 1\n");
        check(
            &[frozen, ("pod/train/cgroup.freeze", "1\n")],
            group,
            Some("pod/train/cgroup.freeze"),
        );
        let above = [
            frozen,
            ("pod/train/cgroup.freeze", "0\n"),
            ("pod/cgroup.freeze", "1\n"),
        ];
        check(&above, group, Some("pod/cgroup.freeze"));
        // The frozen group is outside of what can be seen.
        check(&[frozen], group, Some("pod/train/cgroup.freeze"));
        let hybrid = [
            ("unified/a/cgroup.events", "frozen 1\n"),
            ("unified/a/cgroup.freeze", "1\n"),
        ];
        check(
            &hybrid,
            "3:freezer:/\n0::/a\n",
            Some("unified/a/cgroup.freeze"),
        );
    }

    #[test]
    fn version_1_has_a_hierarchy_of_its_own() {
        let state = |word| {
            [
                ("freezer/a/b/freezer.state", word),
                ("freezer/a/freezer.self_freezing", "1\n"),
            ]
        };
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
        assert_eq!(
            thaw_file(&[["tmpfs", ""], ["cgroup", "/freezer"]]).as_deref(),
            Some("freezer/a/freezer.state")
        );
        assert_eq!(
            thaw_file(&[["tmpfs", ""], ["fuse.lxcfs", "/freezer"]]),
            None
        );
        // The later mount hides the earlier.
        assert_eq!(
            thaw_file(&[["cgroup", "/freezer"], ["fuse.lxcfs", "/freezer"]]),
            None
        );
        assert_eq!(thaw_file(&[["tmpfs", ""]]), None);
    }

    #[test]
    fn a_group_is_read_again_while_its_file_is_open() {
        let root = groups(&[
            ("a/cgroup.events", "frozen 0\n"),
            ("a/cgroup.freeze", "1\n"),
        ]);
        let path = root.path().to_str().unwrap();
        let groups =
            Freezer::new(path, &format!("none {path} cgroup2 rw 0 0\n")).groups(b"0::/a\n", Some);
        assert_eq!(groups[0].frozen_by(Moment(1000)), None);
        fs::write(root.path().join("a/cgroup.events"), "frozen 1\n").unwrap();
        assert!(
            groups[0]
                .frozen_by(Moment(1000).after(ControlGroup::FRESH))
                .is_some()
        );
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
