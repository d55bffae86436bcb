//! Why a Prometheus server has given no answer, in gputop's own words: errors of the HTTP crate may
//! quote a URL or a header.

use std::cell::RefCell;
use std::io::{self, ErrorKind, Read};
use std::rc::Rc;
use std::time::Duration;

use rustls::{AlertDescription, CertificateError};
use ureq::Error;
use ureq::http::StatusCode;

use super::answer::TOO_LARGE;
use super::http_config::TlsFiles;
use crate::base::text::Text;

/// The longest time of one question, from the search for the address to the end of the answer.
pub(super) const LONGEST_ANSWER: Duration = Duration::from_secs(20);

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum AskFailure {
    /// The server has closed the connection, before or in an answer.
    Closed,
    /// The server has refused the question, with its reason if it gives one.
    Status(StatusCode, Option<Text>),
    /// No encrypted connection could be agreed on.
    Tls(TlsFault),
    /// The server was asked without TLS, which it needs.
    WantsHttps,
    /// The answer is none of Prometheus.
    NoAnswer,
    /// The answer passes a limit.
    TooLarge,
    /// The end of a sentence that begins with the server.
    Cause(String),
    /// A whole sentence.
    Sentence(String),
}

/// Why there is no encrypted connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TlsFault {
    /// The server's certificate is from an authority that is not trusted.
    UnknownIssuer,
    /// The server says that the certificate of this client has expired.
    RefusesExpired,
    /// The server ended the connection with another reason, which is often vague.
    Alert,
    /// The end of a sentence that begins with the server.
    Other(&'static str),
}

impl AskFailure {
    fn cause(words: impl Into<String>) -> Self {
        Self::Cause(words.into())
    }

    /// Returns the failure of an error of the HTTP crate.
    pub(super) fn of_http(error: &Error) -> Self {
        match error {
            Error::Timeout(_) => Self::cause(format!(
                "did not answer within {} s",
                LONGEST_ANSWER.as_secs()
            )),
            Error::Io(error) => Self::of_io(error),
            Error::Rustls(error) => Self::of_tls(error),
            Error::HostNotFound => {
                Self::cause("cannot be reached: the name of the host is unknown")
            }
            Error::LargeResponseHeader(..) | Error::Protocol(_) | Error::Http(_) => {
                Self::cause("does not speak HTTP: is the port right, and https where it is needed?")
            }
            Error::Decompress(..) => {
                Self::cause("sent a damaged answer: its gzip data cannot be read")
            }
            Error::ConnectProxyFailed(_) => {
                Self::cause("cannot be reached: the proxy does not connect")
            }
            Error::Tls(_) | Error::TlsRequired => {
                Self::Tls(TlsFault::Other("did not agree on an encryption"))
            }
            _ => Self::cause("cannot be reached"),
        }
    }

    fn of_io(error: &io::Error) -> Self {
        if let Some(inner) = error.get_ref() {
            if let Some(error) = inner.downcast_ref::<Error>() {
                return Self::of_http(error);
            }
            if let Some(error) = inner.downcast_ref::<rustls::Error>() {
                return Self::of_tls(error);
            }
        }
        match error.kind() {
            ErrorKind::ConnectionRefused => {
                Self::cause("refuses the connection: is the port right, and does the server run?")
            }
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof => {
                Self::Closed
            }
            ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable => {
                Self::cause("cannot be reached: there is no route to the host")
            }
            ErrorKind::TimedOut => Self::cause("cannot be reached: the connection timed out"),
            // The library of the system finds no address.
            _ if error.raw_os_error().is_none() && error.to_string().contains("lookup address") => {
                Self::cause("cannot be reached: the name of the host is unknown")
            }
            kind => Self::cause(format!("cannot be reached: {kind}")),
        }
    }

    /// Returns the failure of an error of TLS, in words that do not quote the certificate.
    fn of_tls(error: &rustls::Error) -> Self {
        Self::Tls(match error {
            rustls::Error::InvalidCertificate(why) => TlsFault::of_certificate(why),
            rustls::Error::General(why) if why.contains("No CA certificates") => TlsFault::Other(
                "cannot be verified: this system has no certificates of authorities; name a file of them as \
                 ca_file of tls_config in a file for --http.config.file",
            ),
            rustls::Error::InvalidMessage(_) => {
                TlsFault::Other("does not speak TLS: is it http in place of https?")
            }
            rustls::Error::AlertReceived(
                AlertDescription::ProtocolVersion | AlertDescription::InsufficientSecurity,
            ) => TlsFault::Other("did not agree on an encryption"),
            rustls::Error::AlertReceived(AlertDescription::CertificateExpired) => {
                TlsFault::RefusesExpired
            }
            rustls::Error::AlertReceived(_) => TlsFault::Alert,
            _ => TlsFault::Other("does not speak TLS as expected"),
        })
    }

    /// Whether other settings of the login or of TLS may bring an answer.
    pub(super) fn depends_on_settings(&self) -> bool {
        match self {
            // A server of TLS 1.3 refuses a certificate after the first request, and may close the
            // connection before its reason arrives.
            Self::Closed | Self::Tls(_) => true,
            Self::Status(status, _) => matches!(status.as_u16(), 401 | 403 | 407),
            _ => false,
        }
    }

    /// Returns the whole sentence. `given` is empty for a server without TLS.
    pub(super) fn sentence(&self, name: &str, given: TlsFiles) -> String {
        match self {
            Self::Closed if given.has_certificate => format!(
                "{name} closed the connection before the end of its answer: it may refuse the certificate of \
                 cert_file"
            ),
            Self::Closed => format!("{name} closed the connection before the end of its answer"),
            Self::Tls(fault) => format!("{name} {}", fault.words(given)),
            Self::WantsHttps => {
                format!("{name} speaks https on this port: begin its address with https://")
            }
            Self::NoAnswer => {
                format!(
                    "{name} sent something else than an answer of Prometheus: is the path right?"
                )
            }
            Self::TooLarge => format!("the answer of {name} is too large for gputop"),
            Self::Cause(cause) => format!("{name} {cause}"),
            Self::Sentence(sentence) => sentence.clone(),
            Self::Status(status, reason) => status_sentence(name, *status, reason.as_ref()),
        }
    }
}

impl TlsFault {
    fn of_certificate(why: &CertificateError) -> Self {
        Self::Other(match why {
            CertificateError::UnknownIssuer => return Self::UnknownIssuer,
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "has a certificate that has expired"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "has a certificate that is not valid yet: is the clock right?"
            }
            CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty() => {
                "has a certificate that names no host as subjectAltName: its common name (CN) does not count"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "has a certificate for another name: write the address with a name of the certificate"
            }
            CertificateError::Revoked => "has a certificate that is revoked",
            // `openssl req -x509` makes them so.
            _ if format!("{why:?}").contains("CaUsedAsEndEntity") => {
                "has the certificate of an authority (CA:TRUE), where a server needs one with CA:FALSE"
            }
            _ => {
                "has a certificate that is invalid; if it is self-signed, name it as ca_file of tls_config in \
                 a file for --http.config.file"
            }
        })
    }

    /// Returns the end of a sentence that begins with the server.
    fn words(self, given: TlsFiles) -> &'static str {
        match self {
            Self::UnknownIssuer if given.has_authorities => {
                "has a certificate that is not from an authority in ca_file"
            }
            Self::UnknownIssuer => {
                "has a certificate from an authority that this system does not trust: name its file as ca_file of \
                 tls_config in a file for --http.config.file"
            }
            Self::RefusesExpired if given.has_certificate => {
                "refuses the certificate of cert_file: it has expired"
            }
            Self::Alert if given.has_certificate => {
                "ended the encryption: it may refuse the certificate of cert_file"
            }
            Self::RefusesExpired | Self::Alert => {
                "ended the encryption: it may ask for a certificate (cert_file and key_file of tls_config)"
            }
            Self::Other(words) => words,
        }
    }
}

fn status_sentence(name: &str, status: StatusCode, reason: Option<&Text>) -> String {
    let code = status.as_u16();
    let cause = match code {
        401 => {
            "asks for a login, or refuses the given one: --http.config.file names a file with it"
        }
        403 => "forbids the question to this login",
        404 => "has no Prometheus at this path: is the path right?",
        429 | 503 => "is overloaded, or does not serve yet",
        400 | 422 => "refuses the question",
        407 => "cannot be reached: the proxy asks for a login",
        500.. => "failed",
        _ => "refuses the request",
    };
    match reason {
        Some(reason) => format!("{name} {cause} (HTTP {code}): {reason}"),
        None => format!("{name} {cause} (HTTP {code})"),
    }
}

/// Remembers how the reading of a body ended: the parser of JSON keeps only the kind of an error.
#[derive(Debug, Default, Clone)]
pub(super) struct BodyFault(Rc<RefCell<Option<AskFailure>>>);

impl BodyFault {
    /// Returns a reader of a body that ends with an error after so many bytes.
    pub(super) fn watch(&self, body: impl Read, most: u64) -> impl Read {
        WatchedBody {
            body: body.take(most + 1),
            fault: self.clone(),
        }
    }

    fn set(&self, failure: AskFailure) {
        *self.0.borrow_mut() = Some(failure);
    }

    /// Returns why the parser failed.
    pub(super) fn failure(&self, error: &serde_json::Error) -> AskFailure {
        if let Some(failure) = self.0.take() {
            return failure;
        }
        if error.to_string().contains(TOO_LARGE) {
            AskFailure::TooLarge
        } else if error.is_eof() {
            AskFailure::Closed
        } else {
            AskFailure::NoAnswer
        }
    }
}

struct WatchedBody<R> {
    body: io::Take<R>,
    fault: BodyFault,
}

impl<R: Read> Read for WatchedBody<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let result = self.body.read(buffer);
        let failure = match &result {
            Ok(_) if self.body.limit() == 0 => AskFailure::TooLarge,
            Ok(_) => return result,
            Err(error) => AskFailure::of_io(error),
        };
        self.fault.set(failure);
        Err(ErrorKind::Other.into())
    }
}
