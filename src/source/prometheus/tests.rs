//! The client against a small server that answers with given bytes, and a stand-in for ssh.

mod tls;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;
use crate::protocol::series::QuestionSpan;

const GOOD: &str = r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"gpu":"0"},"value":[2000000000.5,"7"]}]}}"#;

/// The longest wait for something that must happen.
const DEADLINE: Duration = Duration::from_secs(30);

/// A server that gives each connection the answers of one list, and closes it then.
struct TestServer {
    address: String,
    requests: Receiver<String>,
}

impl TestServer {
    /// Starts a server. Each list holds the answers of one connection.
    fn start(connections: Vec<Vec<Vec<u8>>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (sender, requests) = channel();
        thread::spawn(move || {
            for answers in connections {
                let Ok((stream, _)) = listener.accept() else {
                    return;
                };
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                for answer in answers {
                    let Some(request) = read_request(&mut reader) else {
                        break;
                    };
                    let _unread = sender.send(request);
                    // The client may have closed the connection.
                    let _unsent = (&stream).write_all(&answer);
                }
            }
        });
        Self { address, requests }
    }

    fn client(&self) -> PrometheusClient {
        client_of(&self.address)
    }

    fn request(&self) -> String {
        self.requests.recv_timeout(DEADLINE).expect("a request")
    }
}

/// Reads the head and the body of a request; `None` at the end of the connection.
fn read_request(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut text = String::new();
    while !text.ends_with("\r\n\r\n") {
        if reader.read_line(&mut text).ok()? == 0 {
            return None;
        }
    }
    let length = text
        .lines()
        .find_map(|line| {
            line.to_ascii_lowercase()
                .strip_prefix("content-length: ")?
                .parse()
                .ok()
        })
        .unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    text += &String::from_utf8(body).unwrap();
    Some(text)
}

fn options(url: &str) -> PrometheusOptions {
    PrometheusOptions {
        url: url.to_owned(),
        http_config: None,
        ssh: None,
    }
}

fn client_of(url: &str) -> PrometheusClient {
    PrometheusClient::new(&options(url)).unwrap()
}

fn answer(head: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let mut bytes =
        format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

fn good() -> Vec<u8> {
    answer("200 OK\r\nContent-Type: application/json", GOOD)
}

/// The good answer, compressed.
fn compressed() -> Vec<u8> {
    let mut body = GzEncoder::new(Vec::new(), Compression::fast());
    body.write_all(GOOD.as_bytes()).unwrap();
    body.finish().unwrap()
}

fn question() -> SeriesQuestion {
    SeriesQuestion {
        expression: "up == 1".to_owned(),
        span: None,
    }
}

/// Asks a server that answers with these bytes. Returns the sentence without the address.
#[track_caller]
fn sentence(bytes: Vec<u8>) -> String {
    let server = TestServer::start(vec![vec![bytes]]);
    let answer = server.client().ask(&question());
    let why = answer.map_or_else(
        |why| why,
        |refused| refused.warning.expect("a warning").to_string(),
    );
    why.replace(&server.address, "HOST")
}

#[test]
fn questions_share_a_connection_and_the_clock_of_the_server() {
    let server = TestServer::start(vec![vec![good(), good()]]);
    let mut client = server.client();
    assert_eq!(client.name(), server.address);
    let answer = client.ask(&question()).unwrap();
    assert_eq!(answer.series[0].points[0].value.to_bits(), 7f64.to_bits());
    let request = server.request();
    assert!(
        request.starts_with("POST /api/v1/query HTTP/1.1\r\n"),
        "{request}"
    );
    assert!(
        request.contains("query=up+%3D%3D+1&timeout=15s&limit=200000"),
        "{request}"
    );
    let span = QuestionSpan {
        length: Duration::from_mins(15),
        step: Duration::from_secs(15),
    };
    let expression = "up".to_owned();
    client
        .ask(&SeriesQuestion {
            expression,
            span: Some(span),
        })
        .unwrap();
    let request = server.request();
    assert!(
        request.starts_with("POST /api/v1/query_range "),
        "{request}"
    );
    // The server lives in 2033.
    assert!(
        request.contains("end=20000000") && request.contains("step=15.000"),
        "{request}"
    );
}

#[test]
fn a_connection_that_the_server_closed_is_opened_again() {
    let server = TestServer::start(vec![vec![good()], vec![good()]]);
    let mut client = server.client();
    client.ask(&question()).unwrap();
    client.ask(&question()).unwrap();
}

#[test]
fn a_server_without_post_is_asked_with_get() {
    let server = TestServer::start(vec![vec![answer("405 Method Not Allowed", "no"), good()]]);
    server.client().ask(&question()).unwrap();
    assert!(server.request().starts_with("POST /"));
    let request = server.request();
    assert!(
        request.starts_with("GET /api/v1/query?query=up"),
        "{request}"
    );
}

#[test]
fn each_failure_is_one_sentence() {
    let error = r#"{"status":"error","error":"parse error:\u001b[2J x"}"#;
    let mut damaged = compressed();
    // The checksum is near the end.
    let place = damaged.len() - 6;
    damaged[place] ^= 1;
    for (bytes, expected) in [
        (
            answer("401 Unauthorized", "x"),
            "HOST asks for a login, or refuses the given one",
        ),
        (answer("403 Forbidden", ""), "HOST forbids the question"),
        (
            answer("404 Not Found", "<html>"),
            "HOST has no Prometheus at this path: is the path right? (HTTP 404)",
        ),
        (
            answer("422 Unprocessable", error),
            "HOST refuses the question (HTTP 422): parse error:\u{FFFD}[2J x",
        ),
        (
            answer("503 Unavailable", ""),
            "HOST is overloaded, or does not serve yet (HTTP 503)",
        ),
        (
            answer("200 OK", error),
            "HOST refuses the question (HTTP 422): parse error",
        ),
        (
            answer("200 OK\r\nContent-Type: text/html", "<html>"),
            "HOST sent something else than an answer",
        ),
        (
            answer("200 OK", "[1]"),
            "HOST sent something else than an answer",
        ),
        (b"SSH-2.0-OpenSSH\r\n".to_vec(), "HOST does not speak HTTP"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{\"status\":".to_vec(),
            "HOST closed the connection before the end",
        ),
        (Vec::new(), "HOST closed the connection before the end"),
        (
            answer("200 OK\r\nContent-Encoding: gzip", damaged),
            "HOST sent a damaged answer: its gzip",
        ),
        (
            answer("302 Found\r\nLocation: https://evil.example/x", ""),
            "HOST redirects to `https://evil.example/x`, which gputop does not follow",
        ),
    ] {
        let why = sentence(bytes);
        assert!(why.starts_with(expected), "{expected}: {why}");
        assert!(!why.contains('\n'), "{why}");
    }
}

#[test]
fn a_server_that_is_not_there_is_one_sentence() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let why = client_of(&address).ask(&question()).unwrap_err();
    assert!(
        why.contains("refuses the connection: is the port right"),
        "{why}"
    );
    let server = TestServer::start(vec![vec![b"HTTP/1.1 400 Bad\r\n\r\n".to_vec()]]);
    let why = client_of(&format!("https://{}", server.address))
        .ask(&question())
        .unwrap_err();
    assert!(
        why.contains("closed the connection") || why.contains("does not speak TLS"),
        "{why}"
    );
}

#[test]
fn a_long_compressed_answer_ends_at_the_limit() {
    let mut bomb = GzEncoder::new(Vec::new(), Compression::fast());
    bomb.write_all(b"{\"status\":\"success\",\"x\":\"").unwrap();
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..8 {
        bomb.write_all(&piece).unwrap();
    }
    let why = sentence(answer(
        "200 OK\r\nContent-Encoding: gzip",
        bomb.finish().unwrap(),
    ));
    assert_eq!(why, "the answer of HOST is too large for gputop");
}

#[test]
fn a_compressed_answer_is_read() {
    let bytes = answer("200 OK\r\nContent-Encoding: gzip", compressed());
    let server = TestServer::start(vec![vec![bytes, good()]]);
    let mut client = server.client();
    client.ask(&question()).unwrap();
    assert!(
        server
            .request()
            .to_ascii_lowercase()
            .contains("accept-encoding: gzip")
    );
    client.ask(&question()).unwrap();
}

#[test]
fn a_redirect_to_the_same_server_is_followed_and_remembered() {
    let found = answer("302 Found\r\nLocation: /prom/api/v1/query", "");
    let server = TestServer::start(vec![vec![found, good(), good()]]);
    let mut client = server.client();
    client.ask(&question()).unwrap();
    client.ask(&question()).unwrap();
    server.request();
    for _ in 0..2 {
        let request = server.request();
        assert!(request.starts_with("POST /prom/api/v1/query "), "{request}");
    }
}

#[test]
fn a_renewed_password_is_read_after_a_refusal_and_a_plain_one_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("http.yml");
    fs::write(
        &config,
        "basic_auth:\n  username: me\n  password_file: word\n",
    )
    .unwrap();
    let word = folder.path().join("word");
    fs::write(&word, "old").unwrap();
    let server = TestServer::start(vec![vec![answer("401 Unauthorized", "")], vec![good()]]);
    let mut options = options(&server.address);
    options.http_config = Some(config);
    let mut client = PrometheusClient::new(&options).unwrap();
    assert_eq!(client.notice(), None);
    fs::write(&word, "new").unwrap();
    client.ask(&question()).unwrap();
    let old = server.request().to_ascii_lowercase();
    let new = server.request().to_ascii_lowercase();
    assert!(old.contains("authorization: basic bwu6b2xk"), "{old}");
    assert!(new.contains("authorization: basic bwu6bmv3"), "{new}");
    options.url = "prom.example:9090".to_owned();
    let notice = PrometheusClient::new(&options).unwrap().notice().unwrap();
    assert!(notice.contains("unencrypted"), "{notice}");
    assert!(!format!("{client:?}").contains("old"));
}

/// Makes a client that connects through a script in place of ssh.
fn through(script: &str, folder: &Path, address: &str) -> PrometheusClient {
    let program = folder.join("ssh");
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut client = client_of(address);
    let words = vec![program.display().to_string()];
    let forward = SshForward::new(words, client.ssh_end.clone());
    let config = client.agent.config().clone();
    client.agent = Agent::with_parts(
        config,
        forward.chain(RustlsConnector::default()),
        NoAddresses,
    );
    client
}

#[test]
fn a_connection_through_ssh_ends_with_the_client_and_tells_why_it_failed() {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::start(vec![vec![good(), good()]]);
    let script = format!(
        "echo $$ > {0}/pid; exec python3 -c '\nimport os, socket, threading\n\
         s = socket.create_connection((\"127.0.0.1\", {1}))\n\
         def copy():\n while (d := os.read(0, 4096)): s.sendall(d)\n\
         threading.Thread(target=copy, daemon=True).start()\n\
         while (d := s.recv(4096)): os.write(1, d)\n'",
        folder.path().display(),
        server.address.rsplit(':').next().unwrap()
    );
    let mut client = through(&script, folder.path(), "prom.behind:9090");
    client.ask(&question()).unwrap();
    client.ask(&question()).unwrap();
    let pid = fs::read_to_string(folder.path().join("pid")).unwrap();
    let process = Path::new("/proc").join(pid.trim());
    assert!(process.exists(), "one ssh serves both questions");
    drop(client);
    assert!(!process.exists(), "ssh outlives its connection");

    for (lines, cause) in [
        (
            "first\nme@login: Permission denied (publickey).",
            "me@login: Permission denied (publickey).",
        ),
        (
            "channel 0: open failed: connect failed: Connection refused\nstdio forwarding failed",
            "connect failed: Connection refused",
        ),
        (
            "channel 0: open failed: administratively prohibited: open failed\nstdio forwarding failed",
            "administratively prohibited: open failed: does the sshd of the login host allow it (AllowTcpForwarding, PermitOpen)?",
        ),
        ("stdio forwarding failed", "stdio forwarding failed"),
    ] {
        let script = format!("printf '{lines}\n' >&2; exit 255");
        let mut client = through(&script, folder.path(), "prom.behind:9090");
        assert_eq!(
            client.ask(&question()).unwrap_err(),
            format!("prom.behind:9090 cannot be reached through ssh: {cause}")
        );
    }
}

#[test]
fn the_newest_questions_of_a_slot_are_answered_in_the_order_of_slots() {
    let server = TestServer::start(vec![vec![good(); 3]]);
    let (sender, rounds) = channel();
    let asker = Asker::start(server.client(), move |round| sender.send(round).is_ok()).unwrap();
    asker.ask(0, 1, vec![question(), question()]);
    let round = rounds.recv_timeout(DEADLINE).expect("a round");
    assert_eq!((round.slot, round.round), (0, 1));
    assert_eq!(round.answers.map(|answers| answers.len()), Ok(2));
    asker.ask(1, 2, vec![question()]);
    let round = rounds.recv_timeout(DEADLINE).expect("a round");
    let AskedRound { slot, round, .. } = round;
    assert_eq!((slot, round), (1, 2));
    drop(asker);
    assert!(rounds.recv_timeout(DEADLINE).is_err(), "the thread goes on");
}
