//! Answers HTTP requests: who may read, how many, and for how long.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, HOST, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::address::{ListenAddress, names_this_computer};
use super::metrics::Format;
use super::passwords::Passwords;
use super::web_config::WebConfig;

/// The most connections at one time. Others are closed at once.
const MOST_CONNECTIONS: usize = 32;

/// How long a connection may last, from its beginning to the last byte of its answer.
const LONGEST: Duration = Duration::from_secs(5);

/// The most bytes of the head of a request.
const LARGEST_HEAD: usize = 16 << 10;

/// How long to wait before the next connection where none could be accepted: too many files are open.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// An answer that is made anew for each reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ScrapeKind {
    Metrics(Format),
    /// The hosts in short, for the page.
    Fleet,
}

impl ScrapeKind {
    fn content_type(self) -> &'static str {
        match self {
            Self::Metrics(format) => format.content_type(),
            Self::Fleet => "application/json",
        }
    }
}

/// A reader that waits for an answer.
#[derive(Debug)]
pub(super) struct Scrape {
    pub wanted: ScrapeKind,
    pub reply: oneshot::Sender<Bytes>,
}

/// The files of the page: their paths, types and contents.
const PAGE: [(&str, &str, &str); 3] = [
    (
        "/",
        "text/html; charset=utf-8",
        include_str!("../../../assets/exporter/page.html"),
    ),
    (
        "/page.css",
        "text/css; charset=utf-8",
        include_str!("../../../assets/exporter/page.css"),
    ),
    (
        "/page.js",
        "text/javascript; charset=utf-8",
        include_str!("../../../assets/exporter/page.js"),
    ),
];

/// A socket that is listened on.
#[derive(Debug)]
pub(super) enum Listener {
    Network(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// A socket file, which is removed at the end.
#[derive(Debug)]
pub(super) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // A socket without its exporter means nothing.
        let _removed = std::fs::remove_file(&self.0);
    }
}

impl Listener {
    /// Begins to listen.
    ///
    /// # Errors
    ///
    /// When the address is in use, or must not be used: a sentence.
    pub(super) async fn bind(address: &ListenAddress) -> Result<Self, String> {
        let cannot = |error: io::Error| format!("cannot listen on {address}: {error}");
        match address {
            ListenAddress::Network(socket) => TcpListener::bind(socket)
                .await
                .map(Self::Network)
                .map_err(|error| {
                    let hint = if error.kind() == io::ErrorKind::AddrInUse {
                        "; another program listens there: choose another port with --listen"
                    } else {
                        ""
                    };
                    format!("{}{hint}", cannot(error))
                }),
            ListenAddress::Unix(path) => bind_file(path).map_err(cannot),
        }
    }

    /// The address, with the port that the system chose for port 0.
    pub(super) fn address(&self) -> String {
        match self {
            Self::Network(listener) => listener
                .local_addr()
                .map_or_else(|error| error.to_string(), |address| address.to_string()),
            Self::Unix(_, file) => format!("unix:{}", file.0.display()),
        }
    }
}

/// Listens on a socket file that only this user may open: it gets its name when its mode is set.
fn bind_file(path: &Path) -> io::Result<Listener> {
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    let is_other_file = std::fs::symlink_metadata(path)
        .is_ok_and(|file| !std::os::unix::fs::FileTypeExt::is_socket(&file.file_type()));
    if is_other_file {
        return Err(io::Error::other("a file that is no socket is there"));
    }
    let mut unnamed = path.as_os_str().to_owned();
    unnamed.push(format!(".{}", std::process::id()));
    let unnamed = PathBuf::from(unnamed);
    let listener = UnixListener::bind(&unnamed)?;
    let named = std::fs::set_permissions(&unnamed, std::fs::Permissions::from_mode(0o600))
        .and_then(|()| std::fs::rename(&unnamed, path));
    if let Err(error) = named {
        let _removed = std::fs::remove_file(&unnamed);
        return Err(error);
    }
    Ok(Listener::Unix(listener, SocketFile(path.to_owned())))
}

/// Answers requests.
pub(super) struct Server {
    readers: Arc<Readers>,
    tls: Option<TlsAcceptor>,
}

/// The rules on who may read what.
#[derive(Debug)]
struct Readers {
    passwords: Passwords,
    /// Whether a request must name this computer as its host.
    is_loopback: bool,
    has_page: bool,
    scrapes: mpsc::Sender<Scrape>,
}

impl Server {
    /// # Errors
    ///
    /// When the address needs a password and TLS, and has none: a sentence.
    pub(super) fn new(
        address: &ListenAddress,
        config: WebConfig,
        has_page: bool,
        scrapes: mpsc::Sender<Scrape>,
    ) -> Result<Self, String> {
        let is_open = matches!(address, ListenAddress::Network(_)) && !address.is_loopback();
        if is_open && (config.tls.is_none() || config.users.is_empty()) {
            return Err(format!(
                "other computers can reach {address}: that needs --web-config FILE with tls_server_config \
                 and basic_auth_users, or listen on 127.0.0.1"
            ));
        }
        let readers = Readers {
            passwords: Passwords::new(config.users)?,
            is_loopback: address.is_loopback(),
            has_page,
            scrapes,
        };
        Ok(Self {
            readers: Arc::new(readers),
            tls: config.tls.map(TlsAcceptor::from),
        })
    }

    /// Whether nobody but the user, and those who know a password, can read.
    pub(super) fn knows_readers(&self) -> bool {
        !self.readers.passwords.is_empty() || !self.readers.is_loopback
    }

    /// Whether connections are encrypted.
    pub(super) fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Accepts connections for ever.
    pub(super) async fn serve(self, listener: Listener) {
        let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        loop {
            let accepted = match &listener {
                Listener::Network(listener) => listener
                    .accept()
                    .await
                    .map(|(stream, _)| Box::new(stream) as Box<dyn Stream>),
                Listener::Unix(listener, _) => listener
                    .accept()
                    .await
                    .map(|(stream, _)| Box::new(stream) as Box<dyn Stream>),
            };
            let Ok(stream) = accepted else {
                sleep(AFTER_FAILURE).await;
                continue;
            };
            let Ok(place) = Arc::clone(&room).try_acquire_owned() else {
                continue;
            };
            let (readers, tls) = (Arc::clone(&self.readers), self.tls.clone());
            tokio::spawn(async move {
                // A reader that is too slow, or breaks off, gets no more.
                let _outcome = timeout(LONGEST, answer(readers, tls, stream)).await;
                drop(place);
            });
        }
    }
}

/// A connection.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Answers one request.
async fn answer(
    readers: Arc<Readers>,
    tls: Option<TlsAcceptor>,
    stream: Box<dyn Stream>,
) -> anyhow::Result<()> {
    let stream: Box<dyn Stream> = match tls {
        Some(tls) => Box::new(tls.accept(stream).await?),
        None => stream,
    };
    let service = service_fn(move |request| {
        let readers = Arc::clone(&readers);
        async move { anyhow::Ok(readers.respond(&request).await) }
    });
    hyper::server::conn::http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(LARGEST_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .await?;
    Ok(())
}

impl Readers {
    async fn respond(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let headers = request.headers();
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        if self.is_loopback && !host.is_some_and(names_this_computer) {
            return plain(
                StatusCode::FORBIDDEN,
                "gputop answers to localhost, 127.0.0.1 and [::1] only\n",
            );
        }
        let authorization = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
        if !self.passwords.accepts(authorization).await {
            let mut response = plain(
                StatusCode::UNAUTHORIZED,
                "a user and a password are needed\n",
            );
            let basic = HeaderValue::from_static("Basic realm=\"gputop\"");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, basic);
            return response;
        }
        if request.method() != Method::GET {
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered\n");
            let get = HeaderValue::from_static("GET");
            response.headers_mut().insert(header::ALLOW, get);
            return response;
        }
        let path = request.uri().path();
        let file = PAGE
            .iter()
            .find(|(name, ..)| self.has_page && *name == path);
        if let Some((_, content_type, text)) = file {
            return response(
                StatusCode::OK,
                content_type,
                Bytes::from_static(text.as_bytes()),
            );
        }
        match path {
            "/metrics" => {
                let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
                let format = Format::of_accept(accept.unwrap_or_default());
                self.ask(ScrapeKind::Metrics(format)).await
            }
            "/fleet.json" if self.has_page => self.ask(ScrapeKind::Fleet).await,
            "/" => plain(
                StatusCode::OK,
                "gputop exporter: the metrics are at /metrics\n",
            ),
            _ => plain(StatusCode::NOT_FOUND, "the metrics are at /metrics\n"),
        }
    }

    async fn ask(&self, wanted: ScrapeKind) -> Response<Full<Bytes>> {
        let (reply, text) = oneshot::channel();
        // Fails when the exporter ends.
        let is_asked = self.scrapes.send(Scrape { wanted, reply }).await.is_ok();
        match text.await {
            Ok(text) if is_asked => response(StatusCode::OK, wanted.content_type(), text),
            _ => plain(StatusCode::SERVICE_UNAVAILABLE, "gputop ends\n"),
        }
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    response(
        status,
        "text/plain; charset=utf-8",
        Bytes::from_static(text.as_bytes()),
    )
}

/// Headers of each answer: no other page may take it for something else, and nothing keeps it.
const HEADERS: [(HeaderName, &str); 4] = [
    (header::CACHE_CONTROL, "no-store"),
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

fn response(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
