//! Answers HTTP requests: who may read, how many, and for how long.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, HOST, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, yield_now};
use tokio::time::{sleep, timeout};

use super::access::AccessFiles;
use super::address::{ListenAddress, names_this_computer};
use super::metrics::Format;
use super::passwords::Passwords;

/// The most connections at one time. One more closes another.
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
pub(super) struct SocketFile {
    path: PathBuf,
    /// Its device and inode: another program may have put its own there meanwhile.
    identity: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            // A socket without its exporter means nothing.
            let _removed = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
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

    /// The URL of a path, with the port that the system chose for port 0. A socket file has none.
    pub(super) fn url(&self, scheme: &str, path: &str) -> String {
        match self {
            Self::Network(listener) => listener.local_addr().map_or_else(
                |error| error.to_string(),
                |address| format!("{scheme}://{address}/{path}"),
            ),
            Self::Unix(_, file) => format!("unix:{}", file.path.display()),
        }
    }
}

/// Listens on a socket file that only this user may open. It is made in a folder that nobody else may
/// enter, and gets its name when its mode is set.
fn bind_file(path: &Path) -> io::Result<Listener> {
    match UnixStream::connect(path) {
        Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
        // An exporter that was killed leaves its socket.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    if fs::symlink_metadata(path).is_ok_and(|file| !file.file_type().is_socket()) {
        return Err(io::Error::other("a file that is no socket is there"));
    }
    let mut folder = path.as_os_str().to_owned();
    folder.push(format!(".{}", std::process::id()));
    let folder = PathBuf::from(folder);
    fs::DirBuilder::new().mode(0o700).create(&folder)?;
    let bound = bind_in(&folder, path);
    let _removed = fs::remove_dir_all(&folder);
    bound
}

fn bind_in(folder: &Path, path: &Path) -> io::Result<Listener> {
    let unnamed = folder.join("s");
    let listener = UnixListener::bind(&unnamed)?;
    fs::set_permissions(&unnamed, fs::Permissions::from_mode(0o600))?;
    fs::rename(&unnamed, path)?;
    let file = SocketFile {
        path: path.to_owned(),
        identity: identity(path)?,
    };
    Ok(Listener::Unix(listener, file))
}

/// Answers requests.
pub(super) struct Server {
    readers: Arc<Readers>,
    files: Arc<AccessFiles>,
}

/// The rules on who may read what.
#[derive(Debug)]
struct Readers {
    /// The address on which this computer alone can ask: a request must name it as its host, or
    /// `localhost`. `None` where others can ask.
    loopback: Option<IpAddr>,
    has_page: bool,
    scrapes: mpsc::Sender<Scrape>,
}

impl Server {
    /// # Errors
    ///
    /// When the address needs a password and TLS, and has none: a sentence.
    pub(super) fn new(
        address: &ListenAddress,
        files: AccessFiles,
        has_page: bool,
        scrapes: mpsc::Sender<Scrape>,
    ) -> Result<Self, String> {
        let is_open = matches!(address, ListenAddress::Network(_)) && address.loopback().is_none();
        let access = files.in_use();
        if is_open && (access.tls.is_none() || access.passwords.is_empty()) {
            return Err(format!(
                "other computers can reach {address}: that needs --web-config FILE with tls_server_config \
                 and basic_auth_users, or listen on 127.0.0.1"
            ));
        }
        let readers = Readers {
            loopback: address.loopback(),
            has_page,
            scrapes,
        };
        Ok(Self {
            readers: Arc::new(readers),
            files: Arc::new(files),
        })
    }

    /// Whether nobody but the user, and those who know a password, can read.
    pub(super) fn knows_readers(&self) -> bool {
        !self.files.in_use().passwords.is_empty() || self.readers.loopback.is_none()
    }

    /// Whether connections are encrypted.
    pub(super) fn has_tls(&self) -> bool {
        self.files.in_use().tls.is_some()
    }

    /// Accepts connections for ever.
    pub(super) async fn serve(self, listener: Listener) {
        let mut connections: Vec<OpenConnection> = Vec::new();
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
            connections.retain(|connection| !connection.task.is_finished());
            if connections.len() >= MOST_CONNECTIONS {
                // Programs that connect and ask nothing must not keep out a collector, which asks at once.
                let silent = |connection: &OpenConnection| !connection.has_asked.load(Relaxed);
                let place = connections.iter().position(silent).unwrap_or(0);
                connections.remove(place).task.abort();
                // An aborted task closes its connection when it is its turn.
                yield_now().await;
            }
            let (readers, files) = (Arc::clone(&self.readers), Arc::clone(&self.files));
            let has_asked = Arc::new(AtomicBool::new(false));
            let answer = answer(readers, files, stream, Arc::clone(&has_asked));
            // A reader that is too slow, or breaks off, gets no more.
            let task = tokio::spawn(async { drop(timeout(LONGEST, answer).await) }).abort_handle();
            connections.push(OpenConnection { task, has_asked });
        }
    }
}

/// A connection that has not ended. Those of a server are in the order in which they began.
struct OpenConnection {
    task: AbortHandle,
    /// Whether the head of a request has come.
    has_asked: Arc<AtomicBool>,
}

/// The bytes of a connection.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Answers one request.
async fn answer(
    readers: Arc<Readers>,
    files: Arc<AccessFiles>,
    stream: Box<dyn Stream>,
    has_asked: Arc<AtomicBool>,
) -> anyhow::Result<()> {
    let access = files.newest().await;
    let stream: Box<dyn Stream> = match &access.tls {
        Some(tls) => Box::new(tls.accept(stream).await?),
        None => stream,
    };
    let service = service_fn(move |request| {
        has_asked.store(true, Relaxed);
        let (readers, access) = (Arc::clone(&readers), Arc::clone(&access));
        async move { anyhow::Ok(readers.respond(&request, &access.passwords).await) }
    });
    hyper::server::conn::http1::Builder::new()
        .keep_alive(false)
        // A reader may close its side once it has asked, as `nc -N` does.
        .half_close(true)
        .max_buf_size(LARGEST_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .await?;
    Ok(())
}

impl Readers {
    async fn respond(
        &self,
        request: &Request<Incoming>,
        passwords: &Passwords,
    ) -> Response<Full<Bytes>> {
        let headers = request.headers();
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        if let Some(own) = self.loopback
            && !host.is_some_and(|host| names_this_computer(host, own))
        {
            return plain(
                StatusCode::FORBIDDEN,
                "gputop answers here only to requests that name localhost, 127.0.0.1 or [::1] as their host: \
                 use such a URL\n",
            );
        }
        let authorization = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
        if !passwords.accepts(authorization).await {
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
