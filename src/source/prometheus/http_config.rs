//! The file of promtool's `--http.config.file`: who asks, and how the server is reached.
//!
//! The format is that of Prometheus' own clients:
//! <https://prometheus.io/docs/prometheus/latest/configuration/configuration/#http_config>. A
//! setting that gputop does not know is refused: one that asks for more safety must not be passed
//! over. No secret is part of a sentence.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{Error, InconsistentKeys, RootCertStore};
use ureq::http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};
use ureq::{Proxy, ProxyProtocol};
use yaml_rust2::Yaml;

use crate::base::http_proxy;
use crate::base::text::Text;
use crate::base::yaml::{entries, parse_document};
use crate::source::small_file::read_small_file;

/// Headers that gputop or the connection sets.
const OWN_HEADERS: [&str; 10] = [
    "accept",
    "accept-encoding",
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "host",
    "transfer-encoding",
    "user-agent",
];

/// The settings of the file, with what the files that it names hold. It must not be printed.
pub(super) struct HttpConfig {
    /// The texts of the file and of those that it names, in the order in which they were read.
    texts: Vec<String>,
    /// The headers of each request. Those with a secret are marked as sensitive.
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) tls: TlsConfig,
    pub(super) tls_files: TlsFiles,
    pub(super) proxy: Option<Proxy>,
    pub(super) follows_redirects: bool,
}

/// The parts of `tls_config` that the user has given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TlsFiles {
    /// Whether there is a `ca_file`.
    pub(super) has_authorities: bool,
    /// Whether there is a `cert_file`.
    pub(super) has_certificate: bool,
}

/// The folder from which relative paths begin, and the texts that were read.
struct NamedFiles<'a> {
    folder: &'a Path,
    texts: RefCell<Vec<String>>,
}

impl NamedFiles<'_> {
    /// Reads the file that a setting names.
    fn read(&self, name: &str, value: &Yaml) -> Result<String, String> {
        let text = read_small_file(&self.folder.join(text_of(name, value)?))?;
        self.texts.borrow_mut().push(text.clone());
        Ok(text)
    }

    /// Reads a secret, without the white space around it.
    fn secret(&self, name: &str, value: &Yaml) -> Result<String, String> {
        Ok(self.read(name, value)?.trim().to_owned())
    }
}

impl HttpConfig {
    /// Returns the settings without a file.
    pub(super) fn usual() -> Self {
        Self {
            texts: Vec::new(),
            headers: Vec::new(),
            tls: tls_config(RootCerts::PlatformVerifier, None, false),
            tls_files: TlsFiles::default(),
            proxy: None,
            follows_redirects: true,
        }
    }

    /// Reads the file, and those that it names.
    ///
    /// # Errors
    ///
    /// When a file cannot be read or used: a sentence that names it.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let text = read_small_file(path)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::parse(&text, folder).map_err(|why| format!("{}: {why}", path.display()))
    }

    fn parse(text: &str, folder: &Path) -> Result<Self, String> {
        let files = &NamedFiles {
            folder,
            texts: RefCell::new(vec![text.to_owned()]),
        };
        let document = parse_document(text)?;
        let mut config = Self::usual();
        let (mut logins, mut proxies, mut excepted) = (Vec::new(), Vec::new(), String::new());
        for (name, value) in entries(&document, "the file")? {
            match name {
                "basic_auth" => logins.push(basic_auth(value, files)?),
                "authorization" => logins.push(authorization(value, files)?),
                "bearer_token" => logins.push(format!("Bearer {}", text_of(name, value)?)),
                "bearer_token_file" => {
                    logins.push(format!("Bearer {}", files.secret(name, value)?));
                }
                "tls_config" => (config.tls, config.tls_files) = tls(value, files)?,
                "http_headers" => config.headers = headers(value, files)?,
                "proxy_url" => proxies.push(proxy(text_of(name, value)?)?),
                "proxy_from_environment" if flag(name, value)? => {
                    proxies.extend(Proxy::try_from_env().map(checked_proxy).transpose()?);
                }
                "no_proxy" => text_of(name, value)?.clone_into(&mut excepted),
                "follow_redirects" => config.follows_redirects = flag(name, value)?,
                // gputop speaks HTTP/1.1, which every server does.
                "proxy_from_environment" | "enable_http2" => {
                    flag(name, value)?;
                }
                _ => return Err(unknown(name)),
            }
        }
        if logins.len() > 1 || proxies.len() > 1 {
            return Err(
                "there must be one of basic_auth, authorization and bearer_token, and one proxy"
                    .to_owned(),
            );
        }
        if let Some(login) = logins.pop() {
            config.headers.push((AUTHORIZATION, sensitive(&login)?));
        }
        config.proxy = proxies
            .pop()
            .map(|proxy| http_proxy::excepting(&proxy, &excepted).ok_or(NOT_A_PROXY))
            .transpose()?;
        config.texts = files.texts.take();
        Ok(config)
    }

    /// Whether the files had the same texts when these other settings were read.
    pub(super) fn has_texts_of(&self, other: &Self) -> bool {
        self.texts == other.texts
    }

    /// Whether a header holds a secret.
    pub(super) fn has_secret(&self) -> bool {
        self.headers.iter().any(|(_, value)| value.is_sensitive())
    }
}

fn unknown(name: &str) -> String {
    format!(
        "gputop does not know `{}` in a file of --http.config.file",
        Text::new(name)
    )
}

/// Returns a text. A number would lose its leading zeros, so it must be in quotes.
fn text_of<'a>(name: &str, value: &'a Yaml) -> Result<&'a str, String> {
    value
        .as_str()
        .ok_or_else(|| format!("{name} must be a text: put it in quotes"))
}

fn flag(name: &str, value: &Yaml) -> Result<bool, String> {
    value
        .as_bool()
        .ok_or_else(|| format!("{name} must be true or false"))
}

fn sensitive(text: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| "a password, token or header has a character that HTTP forbids".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

fn basic_auth(yaml: &Yaml, files: &NamedFiles<'_>) -> Result<String, String> {
    let (mut user, mut password) = (String::new(), String::new());
    for (name, value) in entries(yaml, "basic_auth")? {
        match name {
            "username" => text_of(name, value)?.clone_into(&mut user),
            "username_file" => user = files.secret(name, value)?,
            "password" => text_of(name, value)?.clone_into(&mut password),
            "password_file" => password = files.secret(name, value)?,
            _ => return Err(unknown(name)),
        }
    }
    if user.is_empty() || user.contains(':') {
        return Err("basic_auth needs a username without a colon".to_owned());
    }
    Ok(format!(
        "Basic {}",
        STANDARD.encode(format!("{user}:{password}"))
    ))
}

fn authorization(yaml: &Yaml, files: &NamedFiles<'_>) -> Result<String, String> {
    let (mut scheme, mut credentials) = ("Bearer", None);
    for (name, value) in entries(yaml, "authorization")? {
        match name {
            "type" => scheme = text_of(name, value)?,
            "credentials" => credentials = Some(text_of(name, value)?.to_owned()),
            "credentials_file" => credentials = Some(files.secret(name, value)?),
            _ => return Err(unknown(name)),
        }
    }
    match credentials {
        Some(credentials) => Ok(format!("{scheme} {credentials}")),
        None => Err("authorization needs credentials or credentials_file".to_owned()),
    }
}

fn headers(yaml: &Yaml, files: &NamedFiles<'_>) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let mut all = Vec::new();
    for (name, kinds) in entries(yaml, "http_headers")? {
        let header = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| format!("`{}` is no name of a header", Text::new(name)))?;
        if OWN_HEADERS.contains(&header.as_str()) {
            return Err(format!("http_headers may not set {header}"));
        }
        for (kind, list) in entries(kinds, name)? {
            let list = list
                .as_vec()
                .ok_or_else(|| format!("{kind} of {header} must be a list"))?;
            for value in list {
                let mut value = match kind {
                    "values" | "secrets" => sensitive(text_of(kind, value)?)?,
                    "files" => sensitive(&files.secret(kind, value)?)?,
                    _ => return Err(unknown(kind)),
                };
                value.set_sensitive(kind != "values");
                all.push((header.clone(), value));
            }
        }
    }
    Ok(all)
}

const NOT_A_PROXY: &str = "proxy_url is not the URL of an HTTP proxy";

fn proxy(url: &str) -> Result<Proxy, String> {
    Proxy::new(url)
        .map_err(|_| NOT_A_PROXY.to_owned())
        .and_then(checked_proxy)
}

fn checked_proxy(proxy: Proxy) -> Result<Proxy, String> {
    match proxy.protocol() {
        ProxyProtocol::Http | ProxyProtocol::Https => Ok(proxy),
        _ => Err("the proxy must be an HTTP proxy".to_owned()),
    }
}

fn tls_config(roots: RootCerts, client: Option<ClientCert>, skips_verification: bool) -> TlsConfig {
    TlsConfig::builder()
        .root_certs(roots)
        .client_cert(client)
        .disable_verification(skips_verification)
        .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
        .build()
}

fn tls(yaml: &Yaml, files: &NamedFiles<'_>) -> Result<(TlsConfig, TlsFiles), String> {
    let (mut authorities, mut certificate, mut key) = (None, None, None);
    let mut skips_verification = false;
    for (name, value) in entries(yaml, "tls_config")? {
        match name {
            "ca" => authorities = Some(text_of(name, value)?.to_owned()),
            "ca_file" => authorities = Some(files.read(name, value)?),
            "cert" => certificate = Some(text_of(name, value)?.to_owned()),
            "cert_file" => certificate = Some(files.read(name, value)?),
            "key" => key = Some(text_of(name, value)?.to_owned()),
            "key_file" => key = Some(files.read(name, value)?),
            "insecure_skip_verify" => skips_verification = flag(name, value)?,
            // gputop speaks no version before 1.2, and prefers 1.3.
            "min_version" if matches!(value.as_str(), Some("TLS10" | "TLS11" | "TLS12")) => {}
            "min_version" => {
                return Err(
                    "gputop speaks TLS 1.2 and 1.3 and cannot refuse one of them: min_version of tls_config must be \
                     TLS12, or left out"
                        .to_owned(),
                );
            }
            "server_name" => {
                return Err(
                    "gputop verifies the host of the address: leave server_name of tls_config out, and write the \
                     address with that name"
                        .to_owned(),
                );
            }
            _ => return Err(unknown(name)),
        }
    }
    let given = TlsFiles {
        has_authorities: authorities.is_some(),
        has_certificate: certificate.is_some(),
    };
    let roots = match authorities {
        None => RootCerts::PlatformVerifier,
        Some(text) => RootCerts::new_with_certs(&certificates(&text, "ca_file")?.0),
    };
    let client = match (certificate, key) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some(client_certificate(&certificate, &key)?),
        _ => return Err("tls_config needs both cert_file and key_file".to_owned()),
    };
    Ok((tls_config(roots, client, skips_verification), given))
}

type Certificates = (Vec<Certificate<'static>>, Vec<CertificateDer<'static>>);

/// Returns the certificates of a text, in the types of both crates.
fn certificates(text: &str, name: &str) -> Result<Certificates, String> {
    let chain = CertificateDer::pem_slice_iter(text.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| format!("cannot read a certificate in PEM form from {name}: {error}"))?;
    if chain.is_empty() {
        return Err(format!("{name} has no certificate"));
    }
    let all = chain
        .iter()
        .map(|certificate| Certificate::from_der(certificate).to_owned())
        .collect();
    Ok((all, chain))
}

fn client_certificate(certificate: &str, key: &str) -> Result<ClientCert, String> {
    let (chain, checked) = certificates(certificate, "cert_file")?;
    let wrong_key = || "cannot read a key in PEM form from key_file".to_owned();
    let checked_key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| wrong_key())?;
    let private = PrivateKey::from_pem(key.as_bytes()).map_err(|_| wrong_key())?;
    // The HTTP crate panics if the key is not that of the certificate.
    rustls::ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| {
            builder
                .with_root_certificates(RootCertStore::empty())
                .with_client_auth_cert(checked, checked_key)
        })
        .map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                "the key in key_file is not that of the certificate in cert_file".to_owned()
            }
            error => format!("cert_file and key_file cannot be used: {error}"),
        })?;
    Ok(ClientCert::new_with_certs(&chain, private))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn parse(text: &str) -> Result<HttpConfig, String> {
        HttpConfig::parse(text, Path::new("/nowhere"))
    }

    #[test]
    fn a_login_becomes_a_header_that_is_never_printed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("word"), "hunter2\n").unwrap();
        for (text, expected) in [
            (
                "basic_auth:\n  username: me\n  password_file: word\n",
                "Basic bWU6aHVudGVyMg==",
            ),
            ("authorization:\n  credentials: hunter2\n", "Bearer hunter2"),
            (
                "authorization:\n  type: Token\n  credentials_file: word\n",
                "Token hunter2",
            ),
            ("bearer_token_file: word\n", "Bearer hunter2"),
        ] {
            let config =
                HttpConfig::parse(text, folder.path()).unwrap_or_else(|why| panic!("{why}"));
            let (name, value) = &config.headers[0];
            assert_eq!((name, value.to_str().unwrap()), (&AUTHORIZATION, expected));
            assert!(config.has_secret());
            assert!(!format!("{value:?}").contains("hunter2"));
        }
    }

    #[test]
    fn headers_proxy_and_redirects_are_read() {
        let config = parse(
            "http_headers:\n  X-Scope-OrgID:\n    values: [lab]\nproxy_url: http://p.example:3128\n\
             no_proxy: prom.lan\nfollow_redirects: false\nenable_http2: true\n",
        )
        .unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(config.headers[0].1.to_str().unwrap(), "lab");
        assert!(!config.has_secret() && !config.follows_redirects);
        let proxy = config.proxy.unwrap();
        assert!(proxy.is_no_proxy(&"http://prom.lan/".parse().unwrap()));
        assert!(!proxy.is_no_proxy(&"http://other.lan/".parse().unwrap()));
    }

    #[test]
    fn a_setting_that_cannot_be_kept_is_refused_with_its_name() {
        for (text, named) in [
            ("oauth2:\n  client_id: x\n", "`oauth2`"),
            ("basic_auth:\n  username: me\n  password: 007\n", "quotes"),
            ("basic_auth:\n  password: hunter2\n", "username"),
            ("authorization:\n  type: Bearer\n", "credentials"),
            (
                "bearer_token: hunter2\nauthorization:\n  credentials: x\n",
                "one of",
            ),
            ("bearer_token: \"hunter2\\n\"\n", "character"),
            (
                "tls_config:\n  server_name: x\n",
                "leave server_name of tls_config out, and write the address with that name",
            ),
            (
                "tls_config:\n  min_version: TLS13\n",
                "min_version of tls_config must be TLS12, or left out",
            ),
            ("tls_config:\n  cert_file: none.pem\n", "/nowhere/none.pem"),
            ("tls_config:\n  ca: hunter2\n", "has no certificate"),
            ("tls_config:\n  cert: x\n", "both cert_file and key_file"),
            ("http_headers:\n  Host:\n    values: [x]\n", "host"),
            ("proxy_url: socks5://x:1\n", "HTTP proxy"),
            ("follow_redirects: 3\n", "true or false"),
            ("- x\n", "names and values"),
        ] {
            let Err(why) = parse(text) else {
                panic!("{text} is accepted")
            };
            assert!(
                why.contains(named) && !why.contains("hunter2"),
                "{text}: {why}"
            );
        }
    }
}
