//! Servers of a test, as good and as bad as those in the world.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::DEADLINE;

/// The answer of a server to a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Answer {
    /// Sends this text, and closes the connection.
    Text(&'static str),
    /// Keeps the connection open without an answer.
    Never,
    /// Sends headers without an end.
    EndlessHeaders,
    /// Sends a body of a gigabyte.
    Gigabyte,
}

impl Answer {
    pub(crate) const OK: Self = Self::Text("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");

    /// Answers as far as the client listens.
    fn send(self, stream: &mut (impl Read + Write)) -> std::io::Result<()> {
        let mut repeat = |head: &str, piece: &[u8], times: usize| {
            stream.write_all(head.as_bytes())?;
            (0..times).try_for_each(|_| stream.write_all(piece))
        };
        match self {
            Self::Text(text) => repeat(text, b"", 0),
            Self::EndlessHeaders => repeat(
                "HTTP/1.1 200 OK\r\n",
                &b"x: yyyyyyyyyy\r\n".repeat(100),
                1 << 20,
            ),
            Self::Gigabyte => repeat(
                "HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n",
                &[b'x'; 1 << 14],
                1 << 16,
            ),
            // The client gives up first.
            Self::Never => stream.read(&mut [0]).map(drop),
        }
    }
}

/// A request that a server received.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) first_line: String,
    /// The header lines, with names in small letters.
    pub(crate) headers: Vec<String>,
    pub(crate) body: String,
}

impl Request {
    /// Reads a request; `None` if the client closes the connection before its end.
    fn read(stream: &mut impl Read) -> Option<Self> {
        let mut reader = BufReader::new(stream);
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            reader
                .read_line(&mut line)
                .ok()
                .filter(|bytes| *bytes > 0)?;
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let headers: Vec<String> = lines.split_off(1);
        let length = headers.iter().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            (name == "content-length").then(|| value.parse().expect("a length is a number"))
        });
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body).ok()?;
        Some(Self {
            first_line: lines.remove(0),
            headers,
            body: String::from_utf8(body).expect("a body is UTF-8"),
        })
    }
}

/// A server on a port of its own. Its threads end with the test's process.
pub(crate) struct HttpServer {
    pub(crate) port: u16,
    requests: Receiver<Request>,
}

impl HttpServer {
    pub(crate) fn start(answer: Answer) -> Self {
        Self::start_with_answers([answer, answer])
    }

    /// Starts a server that answers the first request in one way, and all others in another.
    pub(crate) fn start_with_answers([first, others]: [Answer; 2]) -> Self {
        let is_first = Arc::new(AtomicBool::new(true));
        Self::serve(move |mut stream, requests| {
            if let Some(request) = Request::read(&mut stream) {
                let is_first = is_first.swap(false, Ordering::Relaxed);
                let answer = if is_first { first } else { others };
                let _test_over = requests.send(request);
                let _closed = answer.send(&mut stream);
            }
        })
    }

    /// Starts a server that speaks TLS and takes each message.
    pub(crate) fn start_with_tls(config: Arc<ServerConfig>) -> Self {
        Self::serve(move |stream, requests| {
            let connection = ServerConnection::new(Arc::clone(&config)).expect("the key is valid");
            let mut stream = StreamOwned::new(connection, stream);
            if let Some(request) = Request::read(&mut stream) {
                let _test_over = requests.send(request);
                let _closed = Answer::OK.send(&mut stream);
                stream.conn.send_close_notify();
                let _closed = stream.flush();
            }
        })
    }

    fn serve(answer: impl Fn(TcpStream, &Sender<Request>) + Clone + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("the port is open").port();
        let (sender, requests) = mpsc::channel();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (answer, sender) = (answer.clone(), sender.clone());
                let stream = stream.expect("a client connects");
                thread::spawn(move || answer(stream, &sender));
            }
        });
        Self { port, requests }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    /// Waits for the next request.
    #[track_caller]
    pub(crate) fn next(&self) -> Request {
        self.requests
            .recv_timeout(DEADLINE)
            .expect("a request arrives")
    }

    /// The number of requests that arrived and were not taken.
    pub(crate) fn requests_left(&self) -> usize {
        self.requests.try_iter().count()
    }
}

/// Makes a certificate for a host, which is its own authority with this name. Returns it as a client
/// trusts it, and the settings of a server.
pub(crate) fn certificate(
    authority: &str,
    of_host: &str,
    is_valid: bool,
) -> (String, Arc<ServerConfig>) {
    let mut params = CertificateParams::new([of_host.to_owned()]).expect("the name is valid");
    params
        .distinguished_name
        .push(DnType::CommonName, authority);
    if !is_valid {
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
    }
    let key = KeyPair::generate().expect("the system has random numbers");
    let certificate = params.self_signed(&key).expect("the key can sign");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has TLS 1.2 and 1.3")
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).expect("the key is valid"),
        )
        .expect("the key belongs to the certificate");
    (certificate.pem(), Arc::new(config))
}
