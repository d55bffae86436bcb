//! Tests of uploads, with a shell of this machine in place of `ssh` and another home folder.

#![expect(clippy::print_stdout, reason = "a test says why it is skipped")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command as StdCommand;

use rustix::process::geteuid;
use tempfile::TempDir;

use super::*;
use crate::source::tests::run;

/// A program that counts its starts in the home folder.
const PROGRAM: &str = "#!/bin/sh\n# A copy.\necho start >>\"$HOME/starts\"\necho gputop 9.8.7\n";

/// A host with a home folder, and the program to copy there.
struct TestHost {
    folder: TempDir,
    program: OwnProgram,
}

impl TestHost {
    fn new() -> Self {
        Self::with_program(PROGRAM)
    }

    fn with_program(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        fs::write(&path, text).unwrap();
        fs::create_dir(folder.path().join("home")).unwrap();
        let sum = StdCommand::new("sha256sum").arg(&path).output().unwrap();
        let program = OwnProgram {
            hash: String::from_utf8(sum.stdout).unwrap()[..64].to_owned(),
            size: text.len() as u64,
            path,
            machine: None,
            glibc: None,
        };
        Self { folder, program }
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// The path that a copy in the home folder has.
    fn copy(&self) -> PathBuf {
        self.home()
            .join(".cache/gputop")
            .join(format!("gputop-{}", self.program.copy_name()))
    }

    /// A command in place of `ssh`, which runs the command that is appended.
    fn ssh(&self, shell: &[&str]) -> StdCommand {
        let mut command = StdCommand::new(shell[0]);
        command
            .args(&shell[1..])
            .env_clear()
            .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
            .env("HOME", self.home());
        command
    }

    async fn upload(&self) -> Result<Text, String> {
        self.upload_through(self.ssh(&["bash", "-c"]), UploadFolders::Own)
            .await
    }

    async fn upload_through(
        &self,
        ssh: StdCommand,
        folders: UploadFolders,
    ) -> Result<Text, String> {
        let program = Arc::new(self.program.clone());
        upload(ssh.into(), program, folders, &UploadLimit::default()).await
    }

    /// How often the program was started on the host.
    fn starts(&self) -> usize {
        fs::read_to_string(self.home().join("starts")).map_or(0, |text| text.lines().count())
    }

    /// The names of the files beside the copy.
    fn files(&self) -> Vec<String> {
        let folder = fs::read_dir(self.home().join(".cache/gputop"));
        let files = folder.into_iter().flatten();
        files
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[track_caller]
    fn check_copy(&self, path: &Text) {
        assert_eq!(path.as_str(), self.copy().to_str().unwrap());
        let metadata = fs::symlink_metadata(self.copy()).unwrap();
        assert!(metadata.is_file());
        assert_eq!(metadata.mode() & 0o7777, 0o700);
        assert_eq!(
            fs::read(self.copy()).unwrap(),
            fs::read(&self.program.path).unwrap()
        );
        assert_eq!(self.files().len(), 1, "{:?}", self.files());
    }
}

fn make_private(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_copy_arrives_through_every_login_shell() {
    run(async {
        for shell in ["bash", "dash", "zsh", "fish", "tcsh", "ksh", "mksh"] {
            let host = TestHost::new();
            if StdCommand::new(shell)
                .arg("-c")
                .arg("exit")
                .status()
                .is_err()
            {
                println!("not tested with {shell}, which is not installed");
                continue;
            }
            let ssh = host.ssh(&[shell, "-c"]);
            let path = host.upload_through(ssh, UploadFolders::Own).await;
            host.check_copy(&path.unwrap_or_else(|error| panic!("{shell}: {error}")));
        }
    });
}

#[test]
fn forty_hosts_with_one_home_folder_get_one_copy() {
    run(async {
        let host = Arc::new(TestHost::new());
        let limit = Arc::new(UploadLimit::default());
        let mut uploads = tokio::task::JoinSet::new();
        for _ in 0..40 {
            let (host, limit) = (host.clone(), limit.clone());
            uploads.spawn(async move {
                let program = Arc::new(host.program.clone());
                let ssh = host.ssh(&["bash", "-c"]);
                upload(ssh.into(), program, UploadFolders::Own, &limit).await
            });
        }
        for path in uploads.join_all().await {
            host.check_copy(&path.unwrap());
        }
        assert_eq!(host.starts(), 1, "a start for each copy that is written");
    });
}

#[test]
fn a_file_with_the_right_name_and_other_content_is_replaced_and_never_started() {
    run(async {
        let host = TestHost::new();
        make_private(host.copy().parent().unwrap());
        fs::write(host.copy(), "#!/bin/sh\ntouch \"$HOME/foreign\"\n").unwrap();
        fs::set_permissions(host.copy(), fs::Permissions::from_mode(0o700)).unwrap();
        host.check_copy(&host.upload().await.unwrap());
        assert!(!host.home().join("foreign").exists());
    });
}

#[test]
fn a_link_in_place_of_the_copy_is_replaced_and_its_target_stays() {
    run(async {
        let host = TestHost::new();
        make_private(host.copy().parent().unwrap());
        let target = host.home().join("target");
        fs::write(&target, "important").unwrap();
        symlink(&target, host.copy()).unwrap();
        host.check_copy(&host.upload().await.unwrap());
        assert_eq!(fs::read(&target).unwrap(), b"important");
    });
}

#[test]
fn a_folder_that_is_not_the_users_alone_is_refused() {
    run(async {
        let host = TestHost::new();
        let folder = host.copy().parent().unwrap().to_owned();
        let is_refused = async |why: &str| {
            let error = host.upload().await.unwrap_err();
            let sentence = format!(
                "gputop is not copied: {} is a link, open to others or not the user's",
                folder.display()
            );
            assert_eq!(error, sentence, "{why}");
            assert_eq!(host.starts(), 0, "{why}");
        };
        make_private(&folder);
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        is_refused("others may enter it").await;
        fs::remove_dir(&folder).unwrap();
        let elsewhere = host.home().join("elsewhere");
        make_private(&elsewhere);
        symlink(&elsewhere, &folder).unwrap();
        is_refused("it is a link").await;
        fs::remove_file(&folder).unwrap();
        symlink(host.home().join("nowhere"), &folder).unwrap();
        is_refused("it is a link to nothing").await;
        fs::remove_file(&folder).unwrap();
        if geteuid().is_root() {
            make_private(&folder);
            std::os::unix::fs::chown(&folder, Some(12345), None).unwrap();
            is_refused("another user made it").await;
        } else {
            println!("not tested with a folder of another user, which only root can make");
        }
    });
}

#[test]
fn a_copy_that_did_not_arrive_whole_is_removed_and_never_started() {
    run(async {
        let mut host = TestHost::new();
        host.program.hash = "0".repeat(64);
        let error = host.upload().await.unwrap_err();
        assert!(
            error.ends_with("as it was sent, and was removed"),
            "{error}"
        );
        assert_eq!((host.starts(), host.files()), (0, vec![]));
    });
}

#[test]
fn a_program_that_does_not_run_there_is_removed() {
    run(async {
        let host =
            TestHost::with_program("#!/bin/sh\necho version GLIBC_2.99 not found >&2\nexit 1\n");
        assert_eq!(
            host.upload().await.unwrap_err(),
            "gputop does not run there, and was removed: version GLIBC_2.99 not found"
        );
        assert_eq!(host.files(), [""; 0]);
    });
}

#[test]
fn a_folder_with_too_little_room_is_passed_over() {
    run(async {
        let mut host = TestHost::new();
        host.program.size = 1 << 60;
        let error = host.upload().await.unwrap_err();
        assert!(
            error.ends_with("/.cache/gputop has too little room"),
            "{error}"
        );
        assert_eq!(host.files(), [""; 0]);
    });
}

#[test]
fn a_login_without_a_home_folder_gets_the_copy_in_its_runtime_folder() {
    run(async {
        let host = TestHost::new();
        let ssh = |runtime: &Path| {
            let mut ssh = host.ssh(&["bash", "-c"]);
            // Nobody can make a folder there.
            ssh.env("XDG_CACHE_HOME", "/proc/gputop")
                .env("XDG_RUNTIME_DIR", runtime);
            ssh
        };
        let runtime = host.folder.path().join("runtime");
        make_private(&runtime);
        let path = host.upload_through(ssh(&runtime), UploadFolders::Own).await;
        assert!(
            path.as_ref()
                .unwrap()
                .as_str()
                .starts_with(runtime.to_str().unwrap()),
            "{path:?}"
        );
        let error = host
            .upload_through(ssh(Path::new("/nonexistent")), UploadFolders::Own)
            .await;
        assert_eq!(
            error.unwrap_err(),
            "gputop is not copied: /proc/gputop/gputop cannot be made"
        );
    });
}

/// Returns a command in place of `ssh` that first runs this script in a mount namespace of its own;
/// `None` where users cannot have one.
fn with_mounts(host: &TestHost, script: &str) -> Option<StdCommand> {
    let unshare = ["unshare", "--map-root-user", "--mount"];
    let is_allowed = StdCommand::new(unshare[0])
        .args(&unshare[1..])
        .args(["mount", "-t", "tmpfs", "tmpfs", "/dev/shm"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !is_allowed {
        println!("not tested, because this user cannot mount in a namespace of their own");
        return None;
    }
    let script = format!("set -e; {script}; exec bash -c \"$1\"");
    let mut ssh = host.ssh(&unshare);
    ssh.args(["bash", "-c", &script, "bash"]);
    Some(ssh)
}

#[test]
fn a_home_folder_on_noexec_is_passed_over() {
    run(async {
        let host = TestHost::new();
        let mount = "mkdir \"$HOME/.cache\"; mount -t tmpfs -o noexec tmpfs \"$HOME/.cache\"; mount -t tmpfs tmpfs /dev/shm";
        let Some(ssh) = with_mounts(&host, mount) else {
            return;
        };
        let error = host
            .upload_through(ssh, UploadFolders::Own)
            .await
            .unwrap_err();
        assert!(
            error.ends_with("/.cache/gputop may not hold programs (noexec)"),
            "{error}"
        );
        let mount = mount.replace("mkdir ", "mkdir -p ");
        let ssh = with_mounts(&host, &mount).unwrap();
        let path = host.upload_through(ssh, UploadFolders::All).await.unwrap();
        assert!(
            path.as_str().starts_with("/dev/shm/gputop-0/gputop-"),
            "{path}"
        );
    });
}

#[test]
fn a_disk_that_is_full_is_one_sentence() {
    run(async {
        let mut host = TestHost::with_program(&format!("{PROGRAM}{}", "#".repeat(1 << 20)));
        // The room is found too small before the copy, and while it arrives.
        for (size, expected) in [
            (host.program.size, "/.cache/gputop has too little room"),
            (1, "No space left on device"),
        ] {
            host.program.size = size;
            let mount =
                "mkdir -p \"$HOME/.cache\"; mount -t tmpfs -o size=64k tmpfs \"$HOME/.cache\"";
            let Some(ssh) = with_mounts(&host, mount) else {
                return;
            };
            let error = host
                .upload_through(ssh, UploadFolders::Own)
                .await
                .unwrap_err();
            assert!(error.ends_with(expected), "{error}");
            assert_eq!(host.starts(), 0);
        }
    });
}

#[test]
fn versions_that_nobody_started_for_thirty_days_go() {
    run(async {
        let host = TestHost::new();
        let folder = host.copy().parent().unwrap().to_owned();
        make_private(&folder);
        for (name, age) in [
            ("gputop-0.0.1-old", "31 days ago"),
            ("gputop-0.0.2-new", "29 days ago"),
            (".new-interrupted", "3 days ago"),
            ("other", "99 days ago"),
        ] {
            let touched = StdCommand::new("touch")
                .arg("-d")
                .arg(age)
                .arg(folder.join(name))
                .status();
            assert!(touched.unwrap().success());
        }
        host.upload().await.unwrap();
        let mut files = host.files();
        files.sort();
        let copy = format!("gputop-{}", host.program.copy_name());
        assert_eq!(files, ["gputop-0.0.2-new", copy.as_str(), "other"]);
    });
}

#[test]
fn clean_removes_all_copies_and_nothing_else() {
    run(async {
        let host = TestHost::new();
        let path = host.upload().await.unwrap();
        let other = host.copy().parent().unwrap().join("other");
        fs::write(&other, "").unwrap();
        let removed = clean(host.ssh(&["bash", "-c"]).into()).await.unwrap();
        assert!(removed.contains(&path), "{removed:?}");
        assert_eq!(host.files(), ["other"]);
        fs::remove_file(other).unwrap();
        clean(host.ssh(&["bash", "-c"]).into()).await.unwrap();
        assert!(!host.home().join(".cache/gputop").exists());
    });
}

#[test]
fn the_error_of_ssh_is_the_reason() {
    run(async {
        let host = TestHost::new();
        let ssh = host.ssh(&["bash", "-c", "echo Permission denied. >&2; exit 255"]);
        let error = host.upload_through(ssh, UploadFolders::Own).await;
        assert_eq!(
            error.unwrap_err(),
            "gputop was not copied: Permission denied."
        );
    });
}

#[test]
fn the_announcement_names_the_folder_and_the_hosts() {
    let mut program = TestHost::new().program;
    program.size = 9 << 20;
    let sentence = announcement(&program, &"/home/alice/.cache/gputop".into(), 3);
    assert_eq!(
        sentence,
        format!(
            "copies gputop {} (9.0 MiB) to /home/alice/.cache/gputop on 3 hosts; --no-upload forbids it",
            OwnProgram::VERSION
        )
    );
}
