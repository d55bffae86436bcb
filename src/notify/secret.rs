//! Secrets: URLs of webhooks, and tokens. They are read from files that nobody else can read, or
//! from variables, which then leave the environment.

use std::env;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::process::geteuid;

/// The longest secret in bytes. URLs of webhooks have a few hundred.
const LONGEST: u64 = 4096;

/// A text that nobody else may read. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// Makes a secret of a text without the white space around it.
    ///
    /// # Errors
    ///
    /// When the text is no single word: a sentence without the text.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() {
            return Err("is empty".to_owned());
        }
        if text.bytes().any(|byte| !byte.is_ascii_graphic()) {
            return Err("must be one line without spaces, of ASCII letters".to_owned());
        }
        Ok(Self(text.to_owned()))
    }

    /// Reads a secret from a file that only its owner can read. Waits while the file system hangs.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or others can read it: the end of a sentence that begins with
    /// the path.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let why = |error: std::io::Error| format!("cannot be read: {error}");
        // Opening a pipe without a writer would block, and a terminal must not become gputop's.
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
        let file = File::options()
            .read(true)
            .custom_flags(i32::try_from(flags).unwrap_or_default())
            .open(path)
            .map_err(why)?;
        // The file that is open counts, not the name, which may lead to another one by now.
        let metadata = file.metadata().map_err(why)?;
        if !metadata.is_file() {
            return Err("is not a regular file".to_owned());
        }
        check_access(metadata.uid(), metadata.mode(), geteuid().as_raw())?;
        let mut text = String::new();
        let read = file.take(LONGEST + 1).read_to_string(&mut text);
        if read.map_err(|_| "is not a text in UTF-8".to_owned())? as u64 > LONGEST {
            return Err(format!("has more than {LONGEST} bytes"));
        }
        Self::new(&text)
    }

    /// Reads a secret from a variable of the environment.
    ///
    /// # Errors
    ///
    /// When the variable is not set or has no valid value: the end of a sentence that begins with
    /// its name.
    pub(crate) fn from_variable(name: &str) -> Result<Self, String> {
        Self::new(&env::var(name).map_err(|_| "is not set".to_owned())?)
    }

    /// Returns the text, which must not be printed.
    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

/// Checks that a file is readable by its owner alone, who is this user, or that it is root's and
/// unreadable by users that are not in its group.
fn check_access(owner: u32, mode: u32, user: u32) -> Result<(), String> {
    const ROOT: u32 = 0;
    const GROUP_AND_OTHERS: u32 = 0o077;
    const OTHERS: u32 = 0o007;
    if owner != user && owner != ROOT {
        return Err(
            "belongs to another user: the secret must be in a file of yours, or of root".to_owned(),
        );
    }
    let forbidden = if owner == ROOT {
        OTHERS
    } else {
        GROUP_AND_OTHERS
    };
    if mode & forbidden == 0 {
        return Ok(());
    }
    Err("can be read by other users: make it yours alone with `chmod 600`".to_owned())
}

/// Removes a variable from the environment of this process, and so of every process that it starts.
///
/// Call it before gputop starts threads that stay. `/proc/PID/environ` of this process still shows
/// the variable to this user and root: the kernel keeps what the process was started with.
pub(crate) fn remove_variable(name: &str) {
    if name.is_empty() || name.contains(['=', '\0']) {
        return;
    }
    // SAFETY: no other thread reads or changes the environment meanwhile. The command line was
    // parsed by a thread that has ended, and a thread that may still run waits for one file.
    unsafe { env::remove_var(name) };
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_secret_is_never_printed() {
        let secret = Secret::new(" https://hooks.example/T0/hunter2\n").unwrap();
        assert_eq!(secret.expose(), "https://hooks.example/T0/hunter2");
        assert_eq!(format!("{:?}", Some(secret)), "Some(Secret)");
        for text in ["", " \n", "a b", "a\nb", "ä"] {
            let why = Secret::new(text).unwrap_err();
            assert!(text.trim().is_empty() || !why.contains(text), "{why}");
        }
    }

    #[test]
    fn a_file_of_a_secret_is_readable_by_its_owner_alone() {
        const ME: u32 = 1000;
        let read_by_others = "can be read by other users: make it yours alone with `chmod 600`";
        let of_another =
            "belongs to another user: the secret must be in a file of yours, or of root";
        for (owner, mode, user, expected) in [
            (ME, 0o600, ME, Ok(())),
            (ME, 0o400, ME, Ok(())),
            (ME, 0o640, ME, Err(read_by_others)),
            (ME, 0o604, ME, Err(read_by_others)),
            (ME, 0o620, ME, Err(read_by_others)),
            (0, 0o640, ME, Ok(())),
            (0, 0o644, ME, Err(read_by_others)),
            (0, 0o600, 0, Ok(())),
            (0, 0o640, 0, Ok(())),
            (0, 0o604, 0, Err(read_by_others)),
            (ME, 0o600, 0, Err(of_another)),
            (1001, 0o600, ME, Err(of_another)),
        ] {
            assert_eq!(
                check_access(owner, 0o100_000 | mode, user),
                expected.map_err(str::to_owned),
                "{owner} {mode:o} {user}"
            );
        }
    }

    #[test]
    fn only_a_small_regular_file_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("url");
        let write = |text: &str| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        };
        write("https://example.org/x\n");
        assert_eq!(
            Secret::read(&path).unwrap().expose(),
            "https://example.org/x"
        );
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert!(Secret::read(&path).unwrap_err().contains("chmod 600"));
        write(&"x".repeat(5000));
        assert_eq!(Secret::read(&path).unwrap_err(), "has more than 4096 bytes");
        assert_eq!(
            Secret::read(folder.path()).unwrap_err(),
            "is not a regular file"
        );
        let missing = Secret::read(&folder.path().join("none")).unwrap_err();
        assert!(
            missing.starts_with("cannot be read: No such file"),
            "{missing}"
        );
    }
}
