//! One request to a service: HTTPS, or plain HTTP to this computer, with limits on time and size.
//!
//! The errors of the HTTP crate may quote the URL or a header, so sentences are made of gputop's own
//! words.

use std::env;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustls::CertificateError;
use rustls::crypto::ring;
use ureq::config::Config;
use ureq::http::{Response, Uri};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, Body, Error, Proxy, ProxyProtocol};

use super::body::body;
use super::destination::{Destination, Service};
use super::message::Message;
use crate::base::http_proxy;

/// The longest time of one request, from the search for the address to the end of the headers.
const LONGEST_REQUEST: Duration = Duration::from_secs(10);

/// The most bytes of the headers of an answer. Its body is not read.
const MOST_HEADER_BYTES: usize = 16 << 10;

/// The bytes of the buffers of one connection.
const BUFFER: usize = 16 << 10;

/// The longest wait that a server may ask for.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// The variables that name a proxy, in this order.
const PROXY_VARIABLES: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

/// Why a message did not arrive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SendFailure {
    /// The cause in a few words, without any part of the URL.
    pub(super) cause: String,
    /// Whether another try may succeed.
    pub(super) can_retry: bool,
    /// How long the server asks to wait before the next try.
    pub(super) wait: Option<Duration>,
}

impl SendFailure {
    fn final_one(cause: impl Into<String>) -> Self {
        Self {
            cause: cause.into(),
            can_retry: false,
            wait: None,
        }
    }

    fn for_now(cause: impl Into<String>) -> Self {
        Self {
            can_retry: true,
            ..Self::final_one(cause)
        }
    }
}

/// Sends a message in one request.
///
/// # Errors
///
/// When the server did not take the message.
pub(super) fn send(message: &Message, to: &Destination) -> Result<(), SendFailure> {
    let wrong_url = |why: String| SendFailure::final_one(format!("its URL {why}"));
    let body = body(message, to).map_err(wrong_url)?.to_string();
    let url = match to.service {
        Service::Ntfy => to.endpoint.split_topic().map_err(wrong_url)?.0,
        _ => to.endpoint.url().to_owned(),
    };
    // The certificates of the system take a MiB, which goes with the agent: alerts are rare.
    let agent = agent(to)?;
    let mut request = agent
        .post(&url)
        .header("content-type", "application/json; charset=utf-8");
    if let Some(token) = &to.token {
        request = request.header("authorization", format!("Bearer {}", token.expose()));
    }
    let answer = request
        .send(body)
        .map_err(|error| failure_of(&error, to.endpoint.is_plain))?;
    check_status(&answer)
}

fn agent(to: &Destination) -> Result<Agent, SendFailure> {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .https_only(!to.endpoint.is_plain)
        .max_redirects(0)
        .timeout_global(Some(LONGEST_REQUEST))
        .max_response_header_size(MOST_HEADER_BYTES)
        .input_buffer_size(BUFFER)
        .output_buffer_size(BUFFER)
        .max_idle_connections(0)
        .user_agent(concat!("gputop/", env!("CARGO_PKG_VERSION")))
        .proxy(proxy(to)?)
        .tls_config(
            TlsConfig::builder()
                .root_certs(RootCerts::PlatformVerifier)
                .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
                .build(),
        )
        .build();
    if to.endpoint.is_plain {
        return Ok(Agent::with_parts(
            config,
            DefaultConnector::default(),
            ThisComputer::default(),
        ));
    }
    Ok(Agent::new_with_config(config))
}

/// Returns the proxy that the environment names. This computer is reached without one.
fn proxy(to: &Destination) -> Result<Option<Proxy>, SendFailure> {
    if to.endpoint.is_loopback {
        return Ok(None);
    }
    let value = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let Some((name, value)) = PROXY_VARIABLES
        .into_iter()
        .find_map(|name| Some((name, value(name)?)))
    else {
        return Ok(None);
    };
    let excepted = value_of_either("NO_PROXY", "no_proxy").unwrap_or_default();
    proxy_of(&value, &excepted)
        .map(Some)
        .ok_or_else(|| SendFailure::final_one(format!("{name} is not the URL of an HTTP proxy")))
}

fn value_of_either(first: &str, second: &str) -> Option<String> {
    env::var(first).or_else(|_| env::var(second)).ok()
}

/// Returns the HTTP proxy with this URL, without which the excepted hosts are reached; `None` if the
/// URL is of no HTTP proxy.
fn proxy_of(url: &str, excepted: &str) -> Option<Proxy> {
    let given = Proxy::new(url).ok()?;
    if !matches!(given.protocol(), ProxyProtocol::Http | ProxyProtocol::Https) {
        return None;
    }
    http_proxy::excepting(&given, excepted)
}

/// Finds the addresses of this computer only: plain HTTP must not leave it, whatever a name service
/// says.
#[derive(Debug, Default)]
struct ThisComputer(DefaultResolver);

impl Resolver for ThisComputer {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let addresses = self.0.resolve(uri, config, timeout)?;
        if addresses.iter().all(|address| address.ip().is_loopback()) {
            Ok(addresses)
        } else {
            Err(Error::RequireHttpsOnly(String::new()))
        }
    }
}

fn check_status(answer: &Response<Body>) -> Result<(), SendFailure> {
    let status = answer.status();
    let code = status.as_u16();
    let wait = answer
        .headers()
        .get("retry-after")
        .and_then(|value| value.to_str().ok()?.trim().parse().ok())
        .map(|seconds: u64| Duration::from_secs(seconds).min(LONGEST_WAIT));
    let cause = match code {
        200..=299 => return Ok(()),
        300..=399 => {
            return Err(SendFailure::final_one(format!(
                "the server wants to redirect the message (HTTP {code}), which gputop does not follow"
            )));
        }
        401 | 403 => format!("the server refuses the URL or the token (HTTP {code})"),
        404 | 410 => format!("the server does not know the URL (HTTP {code})"),
        429 => format!("the server gets too many messages (HTTP {code})"),
        400..=499 => format!("the server refuses the message (HTTP {code})"),
        _ => format!("the server failed (HTTP {code})"),
    };
    Err(SendFailure {
        cause,
        can_retry: matches!(code, 408 | 429 | 500..),
        wait,
    })
}

/// Describes an error of the HTTP crate. `is_plain` is whether the URL begins with `http:`.
fn failure_of(error: &Error, is_plain: bool) -> SendFailure {
    match error {
        Error::Timeout(_) => SendFailure::for_now(format!(
            "the server did not answer within {} s",
            LONGEST_REQUEST.as_secs()
        )),
        Error::Io(error) => failure_of_io(error),
        Error::Rustls(error) => failure_of_tls(error),
        Error::HostNotFound => SendFailure::for_now("the name of its host is unknown"),
        Error::RequireHttpsOnly(_) if is_plain => SendFailure::final_one(
            "its URL begins with http:, and the name of its host leads to another computer: use https",
        ),
        Error::LargeResponseHeader(..) | Error::Protocol(_) | Error::Http(_) => {
            SendFailure::final_one("the answer is not HTTP, or has too many headers")
        }
        Error::ConnectProxyFailed(_) => {
            SendFailure::for_now("the proxy does not connect to the server")
        }
        Error::ConnectionFailed => SendFailure::for_now("the server cannot be reached"),
        Error::Tls(_) | Error::TlsRequired => SendFailure::final_one("no encryption was agreed on"),
        _ => SendFailure::final_one("the request failed"),
    }
}

fn failure_of_io(error: &io::Error) -> SendFailure {
    let inner = error.get_ref();
    if let Some(error) = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        return failure_of_tls(error);
    }
    match error.kind() {
        ErrorKind::ConnectionRefused => SendFailure::for_now("the server refuses the connection"),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof => {
            SendFailure::for_now("the server closed the connection")
        }
        ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable => {
            SendFailure::for_now("the network of the server cannot be reached")
        }
        _ if error.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error()) => {
            SendFailure::final_one(
                "this process may not use the network: does RestrictAddressFamilies of its systemd unit have AF_INET and AF_INET6?",
            )
        }
        // The library of the system finds no address.
        _ if error.raw_os_error().is_none() && error.to_string().contains("lookup address") => {
            SendFailure::for_now("the name of its host is unknown")
        }
        kind => SendFailure::for_now(format!("the connection failed: {kind}")),
    }
}

fn failure_of_tls(error: &rustls::Error) -> SendFailure {
    let cause = match error {
        rustls::Error::InvalidCertificate(why) => match why {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the certificate of the server has expired"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the certificate of the server is not valid yet: is the clock right?"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "the certificate of the server is for another name"
            }
            CertificateError::UnknownIssuer => {
                "the certificate of the server is from an authority that this system does not trust; \
                 SSL_CERT_FILE can name a file of certificates"
            }
            CertificateError::Revoked => "the certificate of the server is revoked",
            _ => "the certificate of the server is invalid",
        },
        rustls::Error::General(why) if why.contains("No CA certificates") => {
            "this system has no certificates of authorities: install ca-certificates, or name a file of them in SSL_CERT_FILE"
        }
        _ => "the server does not speak TLS as expected",
    };
    SendFailure::final_one(cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_the_url_of_an_http_proxy() {
        let proxy = proxy_of("http://user:word@proxy.example:3128", "intra.example, .lan").unwrap();
        assert_eq!(
            (
                proxy.host(),
                proxy.port(),
                proxy.username(),
                proxy.password()
            ),
            ("proxy.example", 3128, Some("user"), Some("word"))
        );
        let is_excepted = |url: &str| proxy.is_no_proxy(&url.parse().unwrap());
        assert!(is_excepted("https://intra.example/x") && is_excepted("https://a.lan/x"));
        assert!(!is_excepted("https://hooks.example/x"));
        assert_eq!(proxy_of("proxy.example:3128", "").unwrap().port(), 3128);
        assert!(proxy_of("socks5://proxy.example:1080", "").is_none());
        assert!(proxy_of("http://", "").is_none());
    }

    #[test]
    fn no_sentence_quotes_an_error_of_the_crate() {
        let secret = "https://hooks.example/hunter2";
        for error in [
            Error::BadUri(secret.to_owned()),
            Error::RequireHttpsOnly(secret.to_owned()),
            Error::ConnectProxyFailed(secret.to_owned()),
            Error::Other(secret.into()),
            Error::Io(io::Error::other(secret)),
            Error::Rustls(rustls::Error::General(secret.to_owned())),
        ] {
            for is_plain in [false, true] {
                let failure = failure_of(&error, is_plain);
                assert!(
                    !failure.cause.contains("hunter2") && !failure.cause.contains("hooks"),
                    "{failure:?}"
                );
            }
        }
    }
}
