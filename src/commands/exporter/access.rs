//! Certificates and passwords, which are read again when their files have changed: a certificate is
//! renewed every few weeks, and an exporter runs for months.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;

use super::passwords::Passwords;
use super::web_config::WebConfig;
use crate::base::text::Text;
use crate::output::print_error;

/// The shortest time from one look at the files to the next.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How long a connection waits for a look at the files, which may be on a file system that hangs.
const PATIENCE: Duration = Duration::from_millis(500);

/// Certificates and passwords of one reading of the files.
pub(super) struct Access {
    /// `None` where connections are not encrypted.
    pub tls: Option<TlsAcceptor>,
    pub passwords: Passwords,
}

impl Access {
    /// # Errors
    ///
    /// When the certificates cannot be used: a sentence.
    fn new(config: &WebConfig) -> Result<Self, String> {
        Ok(Self {
            tls: config.server_config()?.map(TlsAcceptor::from),
            // Passwords that were verified before are forgotten.
            passwords: Passwords::new(config.users.clone())?,
        })
    }
}

/// The web configuration file, and the certificates and passwords that are in use.
pub(super) struct AccessFiles {
    /// `None` without a file.
    path: Option<PathBuf>,
    state: Mutex<AccessState>,
}

struct AccessState {
    /// The contents of the files when they were last in order.
    config: WebConfig,
    /// The certificates and passwords of these contents.
    access: Arc<Access>,
    /// When the last look at the files began.
    looked: Instant,
    /// Whether a thread is looking at them.
    is_looking: bool,
    /// Why the files cannot be used at present, as it was printed.
    trouble: Option<String>,
}

impl AccessFiles {
    /// Reads the file, and the certificates that it names.
    ///
    /// # Errors
    ///
    /// When a file cannot be read or used: a sentence.
    pub(super) fn read(path: Option<&Path>) -> Result<Self, String> {
        let config = path.map(WebConfig::read).transpose()?.unwrap_or_default();
        Ok(Self {
            path: path.map(Path::to_owned),
            state: Mutex::new(AccessState {
                access: Arc::new(Access::new(&config)?),
                config,
                looked: Instant::now(),
                is_looking: false,
                trouble: None,
            }),
        })
    }

    /// The certificates and passwords of the last look at which the files were in order.
    pub(super) fn in_use(&self) -> Arc<Access> {
        Arc::clone(&self.lock().access)
    }

    /// Looks at the files if the last look is some time ago, and returns the certificates and
    /// passwords that are in use then.
    pub(super) async fn newest(self: &Arc<Self>) -> Arc<Access> {
        if let Some(look) = self.start_look() {
            // A look that takes longer goes on, and later connections do not wait for it.
            let _looked = timeout(PATIENCE, look).await;
        }
        self.in_use()
    }

    /// Starts a look at the files, and returns its end; `None` if none is due, or one is under way.
    fn start_look(self: &Arc<Self>) -> Option<oneshot::Receiver<()>> {
        self.path.as_ref()?;
        let mut state = self.lock();
        if state.is_looking || state.looked.elapsed() < LOOK_EVERY {
            return None;
        }
        let (end, look) = oneshot::channel();
        let files = Arc::clone(self);
        // The runtime would wait for a thread of its own that hangs when the exporter ends.
        let started = thread::Builder::new()
            .name("certificates".to_owned())
            .spawn(move || {
                if let Some(sentence) = files.look() {
                    print_error(&Text::new(sentence));
                }
                files.lock().is_looking = false;
                // The connection may have ended.
                let _sent = end.send(());
            });
        state.looked = Instant::now();
        state.is_looking = started.is_ok();
        started.ok().map(|_thread| look)
    }

    /// Reads the files again. While they are damaged, those from before stay in use. Returns a
    /// sentence when the files become damaged, or are in order again.
    fn look(&self) -> Option<String> {
        let trouble = self.renew().err();
        let mut state = self.lock();
        let sentence = match (&trouble, &state.trouble) {
            (Some(why), before) if before.as_ref() != Some(why) => Some(format!(
                "{why}; the certificates and passwords from before stay in use"
            )),
            (None, Some(_)) => {
                Some("certificates and passwords are in order again, and in use".to_owned())
            }
            _ => None,
        };
        state.trouble = trouble;
        sentence
    }

    fn renew(&self) -> Result<(), String> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let config = WebConfig::read(path)?;
        {
            let state = self.lock();
            if config == state.config {
                return Ok(());
            }
            // The start decided how much of other users' processes is told, and Prometheus knows the scheme
            // of the URL.
            let is_turned = |has: fn(&WebConfig) -> bool| has(&config) != has(&state.config);
            if is_turned(WebConfig::has_tls) || is_turned(WebConfig::has_users) {
                return Err(format!(
                    "{} turns TLS or passwords on or off, which needs a restart of gputop exporter",
                    path.display()
                ));
            }
        }
        let access = Arc::new(Access::new(&config)?);
        let mut state = self.lock();
        (state.config, state.access) = (config, access);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, AccessState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use rcgen::generate_simple_self_signed;
    use tempfile::TempDir;

    use super::*;

    const TLS: &str = "tls_server_config: {cert_file: server.crt, key_file: server.key}\n";

    /// A folder with the three files.
    struct Folder(TempDir);

    impl Folder {
        fn new() -> Self {
            let folder = Self(tempfile::tempdir().expect("/tmp has room"));
            folder.renew(["server.crt", "server.key"]);
            folder.write("web.yml", &format!("{TLS}{}", Self::users("alice")));
            folder
        }

        fn users(name: &str) -> String {
            let hash = bcrypt::hash("hunter2", 4).expect("a hash");
            format!("basic_auth_users: {{{name}: {hash}}}\n")
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.0.path().join(name), text).expect("/tmp has room");
        }

        /// Writes these files of a new certificate.
        fn renew<const COUNT: usize>(&self, names: [&str; COUNT]) {
            let made = generate_simple_self_signed(["localhost".to_owned()]).expect("a key");
            for name in names {
                let text = match name {
                    "server.crt" => made.cert.pem(),
                    _ => made.signing_key.serialize_pem(),
                };
                self.write(name, &text);
            }
        }

        fn files(&self) -> AccessFiles {
            AccessFiles::read(Some(&self.0.path().join("web.yml")))
                .unwrap_or_else(|why| panic!("{why}"))
        }
    }

    #[test]
    fn files_that_are_damaged_or_do_not_belong_together_change_nothing_and_are_told_once() {
        let folder = Folder::new();
        let files = folder.files();
        let before = files.in_use();
        assert_eq!(files.look(), None);
        let whole = fs::read_to_string(folder.0.path().join("server.crt")).expect("it was written");
        let damages: [(&str, &str, &str); 6] = [
            ("server.crt", "", "has no certificate"),
            ("server.crt", &whole[..whole.len() / 2], "server.crt"),
            ("server.key", "", "server.key"),
            ("web.yml", "tls_server_config: [", "web.yml"),
            ("web.yml", TLS, "on or off"),
            ("web.yml", "", "on or off"),
        ];
        for (name, text, named) in damages {
            let path = folder.0.path().join(name);
            let whole = fs::read_to_string(&path).expect("it was written");
            folder.write(name, text);
            let told = files.look().expect("the damage is told");
            assert!(told.contains(named), "{told}");
            assert!(told.ends_with("from before stay in use"), "{told}");
            assert_eq!(files.look(), None, "{told}");
            assert!(Arc::ptr_eq(&before, &files.in_use()), "{told}");
            folder.write(name, &whole);
            assert!(files.look().is_some_and(|told| told.contains("in order")));
            assert_eq!(files.look(), None);
        }
        let config = folder.0.path().join("web.yml");
        for (mode, named) in [
            (0o666, "every user may change"),
            (0o664, "are in order again"),
        ] {
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(&config, mode).expect("the file is ours");
            let told = files.look().expect("the change is told");
            assert!(told.contains(named), "{told}");
        }
        folder.renew(["server.key"]);
        let told = files.look().expect("the damage is told");
        assert!(told.contains("is not that of the certificate"), "{told}");
        fs::remove_file(folder.0.path().join("web.yml")).expect("it was written");
        // Another damage is told, too.
        let told = files.look().expect("the damage is told");
        assert!(told.contains("cannot read"), "{told}");
        assert!(Arc::ptr_eq(&before, &files.in_use()));
    }

    #[tokio::test]
    async fn a_renewal_is_used_without_a_word_and_a_verified_password_ends_with_its_user() {
        let folder = Folder::new();
        let files = folder.files();
        let before = files.in_use();
        let alice = b"Basic YWxpY2U6aHVudGVyMg==";
        assert!(before.passwords.accepts(Some(alice)).await);
        folder.renew(["server.crt", "server.key"]);
        assert_eq!(files.look(), None);
        let renewed = files.in_use();
        assert!(!Arc::ptr_eq(&before, &renewed));
        assert!(renewed.passwords.accepts(Some(alice)).await);
        folder.write("web.yml", &format!("{TLS}{}", Folder::users("bob")));
        assert_eq!(files.look(), None);
        assert!(!files.in_use().passwords.accepts(Some(alice)).await);
    }
}
