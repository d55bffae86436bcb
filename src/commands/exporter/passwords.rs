//! Users and passwords of the exporter's readers (HTTP basic authentication, RFC 7617).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use ring::rand::SystemRandom;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// The users, and the passwords that were right before.
///
/// A bcrypt hash takes a tenth of a second to verify, which is too much for each scrape.
#[derive(Debug)]
pub(super) struct Passwords {
    users: BTreeMap<String, String>,
    /// A random key of this process.
    key: hmac::Key,
    /// The users whose password was right, and its tag under the key.
    verified: Mutex<BTreeMap<String, hmac::Tag>>,
    /// Strangers may take the time of one processor, not of all.
    turn: Arc<Semaphore>,
}

impl Passwords {
    /// # Errors
    ///
    /// When the system has no random numbers: a sentence.
    pub(super) fn new(users: BTreeMap<String, String>) -> Result<Self, String> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map_err(|_| "the system gives no random numbers".to_owned())?;
        Ok(Self {
            users,
            key,
            verified: Mutex::default(),
            turn: Arc::new(Semaphore::new(1)),
        })
    }

    /// Whether everyone may read.
    pub(super) fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// Whether the `Authorization` of a request is that of a user.
    pub(super) async fn accepts(&self, authorization: Option<&[u8]>) -> bool {
        if self.users.is_empty() {
            return true;
        }
        let Some((user, password)) = authorization.and_then(user_and_password) else {
            return false;
        };
        let tagged = [user.as_bytes(), &[0], password.as_bytes()].concat();
        if self.is_verified(&user, &tagged) {
            return true;
        }
        // The semaphore is never closed.
        let Ok(turn) = Arc::clone(&self.turn).acquire_owned().await else {
            return false;
        };
        // Another request may have waited for the same answer.
        if self.is_verified(&user, &tagged) {
            return true;
        }
        let known = self.users.get(&user);
        // A user that does not exist takes as long as one that does.
        let Some(hash) = known.or_else(|| self.users.values().next()).cloned() else {
            return false;
        };
        // The turn ends with the computation, which goes on when the reader has gone.
        let verified = spawn_blocking(move || {
            let verified = bcrypt::verify(password, &hash);
            drop(turn);
            verified
        });
        let is_right = matches!(verified.await, Ok(Ok(true))) && known.is_some();
        if is_right {
            let tag = hmac::sign(&self.key, &tagged);
            self.verified
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(user, tag);
        }
        is_right
    }

    fn is_verified(&self, user: &str, tagged: &[u8]) -> bool {
        let verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        verified
            .get(user)
            .is_some_and(|tag| hmac::verify(&self.key, tagged, tag.as_ref()).is_ok())
    }
}

fn user_and_password(authorization: &[u8]) -> Option<(String, String)> {
    let text = std::str::from_utf8(authorization).ok()?;
    let (scheme, encoded) = text.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = STANDARD.decode(encoded.trim()).ok()?;
    let decoded = String::from_utf8(decoded).ok()?;
    let (user, password) = decoded.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn basic(text: &str) -> Vec<u8> {
        format!("Basic {}", STANDARD.encode(text)).into_bytes()
    }

    #[tokio::test]
    async fn only_the_right_password_of_a_known_user_is_accepted_and_it_is_remembered() {
        let hash = bcrypt::hash("se:cret", 4).expect("a hash");
        let passwords = Passwords::new([("alice".to_owned(), hash)].into()).expect("a key");
        for wrong in ["alice:", "alice:secret", "bob:se:cret", ":", "alice"] {
            assert!(!passwords.accepts(Some(&basic(wrong))).await, "{wrong}");
        }
        for wrong in [b"Bearer x".as_slice(), b"Basic ???", b"Basic", b"\xff"] {
            assert!(!passwords.accepts(Some(wrong)).await);
        }
        assert!(!passwords.accepts(None).await);
        let right = basic("alice:se:cret");
        assert!(passwords.accepts(Some(&right)).await);
        assert!(passwords.is_verified("alice", b"alice\0se:cret"));
        assert!(passwords.accepts(Some(&right)).await);
        assert!(!passwords.accepts(Some(&basic("alice:other"))).await);
    }
}
