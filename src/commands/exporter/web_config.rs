//! The web configuration file of Prometheus' exporters: certificates, and users with passwords.
//!
//! The format is that of `node_exporter`:
//! <https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md>. A setting
//! that gputop does not know is refused: one that asks for more safety must not be passed over.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{Error, InconsistentKeys, ServerConfig};
use yaml_rust2::Yaml;

use crate::base::yaml::{entries, parse_document};
use crate::source::read_small_file;

/// The settings of the file, and the texts of the files that it names.
#[derive(Default, PartialEq)]
pub(super) struct WebConfig {
    /// The certificates and the key; `None` without certificates.
    tls: Option<[PemFile; 2]>,
    /// The users, and the bcrypt hashes of their passwords. Empty where nobody is asked for one.
    pub users: BTreeMap<String, String>,
}

/// A file with certificates or a key. It must not be printed.
#[derive(PartialEq)]
struct PemFile {
    path: PathBuf,
    text: String,
}

impl WebConfig {
    /// Reads the file, and the certificates that it names.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, or a setting is wrong: a sentence.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        const OTHERS_WRITE: u32 = 0o002;
        let text = read_small_file(path)?;
        if fs::metadata(path).is_ok_and(|file| file.mode() & OTHERS_WRITE != 0) {
            return Err(format!(
                "every user may change {0}, and so who may read: `chmod o-w {0}`",
                path.display()
            ));
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        let config =
            ConfigText::parse(&text).map_err(|why| format!("{}: {why}", path.display()))?;
        let pem_file = |name: PathBuf| {
            let path = folder.join(name);
            read_small_file(&path).map(|text| PemFile { path, text })
        };
        let tls = match config.files {
            None => None,
            Some([certificates, key]) => Some([pem_file(certificates)?, pem_file(key)?]),
        };
        Ok(Self {
            tls,
            users: config.users,
        })
    }

    /// Whether connections are encrypted.
    pub(super) fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether readers need a password.
    pub(super) fn has_users(&self) -> bool {
        !self.users.is_empty()
    }

    /// Returns the certificates and the key for connections; `None` without certificates.
    ///
    /// # Errors
    ///
    /// When they cannot be used: a sentence.
    pub(super) fn server_config(&self) -> Result<Option<Arc<ServerConfig>>, String> {
        self.tls.as_ref().map(server_config).transpose()
    }
}

fn server_config([certificates, key]: &[PemFile; 2]) -> Result<Arc<ServerConfig>, String> {
    let cannot = |file: &PemFile, why: &dyn std::fmt::Display| {
        format!(
            "cannot read a certificate or key in PEM form from {}: {why}",
            file.path.display()
        )
    };
    let chain = CertificateDer::pem_slice_iter(certificates.text.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| cannot(certificates, &error))?;
    if chain.is_empty() {
        return Err(format!(
            "{} has no certificate",
            certificates.path.display()
        ));
    }
    let private =
        PrivateKeyDer::from_pem_slice(key.text.as_bytes()).map_err(|error| cannot(key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| {
            builder
                .with_no_client_auth()
                .with_single_cert(chain, private)
        })
        .map_err(|error| {
            let files = [certificates, key].map(|file| file.path.display());
            let [certificates, key] = files;
            match error {
                Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                    format!("the key in {key} is not that of the certificate in {certificates}")
                }
                error => format!("{certificates} and {key} cannot be used: {error}"),
            }
        })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The file's text, before the files that it names are read.
#[derive(Debug, PartialEq)]
struct ConfigText {
    /// The certificates and the key.
    files: Option<[PathBuf; 2]>,
    users: BTreeMap<String, String>,
}

impl ConfigText {
    fn parse(text: &str) -> Result<Self, String> {
        let document = parse_document(text)?;
        let mut config = Self {
            files: None,
            users: BTreeMap::new(),
        };
        for (name, value) in entries(&document, "the file")? {
            match name {
                "tls_server_config" => config.files = files(value)?,
                "basic_auth_users" => config.users = users(value)?,
                _ => return Err(unknown(name)),
            }
        }
        Ok(config)
    }
}

fn unknown(name: &str) -> String {
    format!(
        "gputop does not know `{name}`: it knows cert_file and key_file of tls_server_config, and \
         basic_auth_users"
    )
}

fn files(yaml: &Yaml) -> Result<Option<[PathBuf; 2]>, String> {
    let (mut certificates, mut key) = (None, None);
    for (name, value) in entries(yaml, "tls_server_config")? {
        let file = value
            .as_str()
            .ok_or_else(|| format!("{name} must be a path"))?;
        match name {
            "cert_file" => certificates = Some(file.into()),
            "key_file" => key = Some(file.into()),
            _ => return Err(unknown(name)),
        }
    }
    match (certificates, key) {
        (Some(certificates), Some(key)) => Ok(Some([certificates, key])),
        (None, None) => Ok(None),
        _ => Err("tls_server_config needs both cert_file and key_file".to_owned()),
    }
}

fn users(yaml: &Yaml) -> Result<BTreeMap<String, String>, String> {
    let mut users = BTreeMap::new();
    for (name, value) in entries(yaml, "basic_auth_users")? {
        let hash = value.as_str().unwrap_or_default();
        // A hash that cannot be read would let nobody in, without a word.
        if hash.parse::<bcrypt::HashParts>().is_err() {
            return Err(format!(
                "the password of `{name}` is no bcrypt hash: `htpasswd -nBC 10 {name}` prints one"
            ));
        }
        users.insert(name.to_owned(), hash.to_owned());
    }
    Ok(users)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "$2b$04$DzlUqtLD5VXUM7pyvp1zXeJ0CZx0/nzBKIY3NuSQM22Ke3Frx2jKa";

    #[test]
    fn the_file_of_node_exporter_is_read() {
        let config = ConfigText::parse(&format!(
            "# comment\ntls_server_config:\n  cert_file: server.crt\n  key_file: /etc/server.key\n\
             basic_auth_users:\n  alice: {HASH}\n"
        ))
        .expect("a configuration");
        assert_eq!(
            config.files,
            Some(["server.crt".into(), "/etc/server.key".into()])
        );
        assert_eq!(config.users.get("alice").map(String::as_str), Some(HASH));
        assert_eq!(ConfigText::parse("").map(|config| config.files), Ok(None));
    }

    #[test]
    fn a_setting_that_cannot_be_kept_is_refused_with_its_name() {
        for (text, named) in [
            (
                "tls_server_config:\n  client_ca_file: ca.crt\n",
                "client_ca_file",
            ),
            (
                "tls_server_config:\n  client_auth_type: RequireAndVerifyClientCert\n",
                "client_auth_type",
            ),
            ("http_server_config:\n  http2: true\n", "http_server_config"),
            (
                "tls_server_config:\n  cert_file: server.crt\n",
                "both cert_file and key_file",
            ),
            ("basic_auth_users:\n  alice: secret\n", "alice"),
            ("basic_auth_users:\n  - alice\n", "basic_auth_users"),
            ("basic_auth_users: [", "while parsing"),
            ("a: 1\n---\nb: 2\n", "one document"),
        ] {
            let why = ConfigText::parse(text).expect_err(text);
            assert!(why.contains(named), "{text}: {why}");
        }
    }
}
