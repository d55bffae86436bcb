//! Makes processes hang in the kernel: a loop image whose file system is frozen. Needs root.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::wait_until;

/// A frozen file system. A process that writes to it hangs in the kernel.
pub(super) struct FrozenFileSystem {
    image: PathBuf,
    pub(super) place: PathBuf,
}

impl FrozenFileSystem {
    pub(super) fn new() -> Option<Self> {
        let folder = std::env::temp_dir().join(format!("gputop-frozen-{}", std::process::id()));
        fs::create_dir_all(folder.join("mounted")).ok()?;
        let frozen = Self {
            image: folder.join("image"),
            place: folder.join("mounted"),
        };
        fs::File::create(&frozen.image)
            .ok()?
            .set_len(8 << 20)
            .ok()?;
        let (image, place) = (frozen.image.to_str()?, frozen.place.to_str()?);
        let is_done = runs("mkfs.ext4", &["-q", image])
            && runs("mount", &["-o", "loop", image, place])
            && runs("fsfreeze", &["-f", place]);
        is_done.then_some(frozen)
    }

    pub(super) fn thaw(&self) {
        runs("fsfreeze", &["-u", self.place.to_str().expect("it is")]);
    }
}

impl Drop for FrozenFileSystem {
    fn drop(&mut self) {
        self.thaw();
        let folder = self.image.parent().expect("it has one");
        wait_until(
            || {
                runs("umount", &[self.place.to_str().expect("it is")])
                    || fs::remove_dir(&self.place).is_ok()
            },
            "it stays mounted",
        );
        let _gone = fs::remove_dir_all(folder);
    }
}

fn runs(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
