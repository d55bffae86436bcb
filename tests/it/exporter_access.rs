//! `gputop exporter`: only those who may read get an answer. Certificates and passwords that change are
//! used without a restart.

use std::fs::{self, File, Permissions};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertifiedKey, KeyPair};
use rustix::process::Signal;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::exporter::{RunningExporter, exchange, get};
use crate::host::Host;
use crate::process::{exit_code, run, wait_until};

const TLS: &str = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n";

/// Settings by which these users have the password `hunter2`.
fn users(names: &[&str]) -> String {
    // At the lowest cost.
    let hash = bcrypt::hash("hunter2", 4).expect("the system has random numbers");
    let lines: Vec<String> = names
        .iter()
        .map(|name| format!("  {name}: {hash}\n"))
        .collect();
    format!("basic_auth_users:\n{}", lines.concat())
}

fn basic(text: &str) -> String {
    format!("Authorization: Basic {}\r\n", STANDARD.encode(text))
}

fn certificate() -> CertifiedKey<KeyPair> {
    rcgen::generate_simple_self_signed(["localhost".to_owned()])
        .expect("the system has random numbers")
}

/// Replaces a file of the host as `certbot` does: readers see the old one or the new one.
fn replace(host: &Host, name: &str, text: &str) {
    let draft = host.path("draft");
    fs::write(&draft, text).expect("/tmp has room");
    fs::rename(draft, host.path(name)).expect("the folder is ours");
}

/// The answer with the metrics to a client that trusts this certificate alone; an empty text if it does
/// not trust that of the exporter.
fn ask(
    exporter: &RunningExporter,
    trusted: &CertificateDer<'static>,
    authorization: &str,
) -> String {
    let address = exporter.address();
    let (_, port) = address.rsplit_once(':').expect("a port");
    let stream = TcpStream::connect(format!("127.0.0.1:{port}")).expect("it listens");
    let mut stream = StreamOwned::new(client(trusted), stream);
    exchange(
        &mut stream,
        &format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\n{authorization}\r\n"),
    )
}

fn client(root: &CertificateDer<'static>) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    roots.add(root.clone()).expect("the certificate is valid");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    ClientConnection::new(Arc::new(config), name).expect("the settings are valid")
}

#[test]
fn other_computers_need_tls_and_a_password() {
    let host = Host::new(["H100"]);
    let made = certificate();
    let users = users(&["prometheus"]);
    for (name, text) in [
        ("server.crt", made.cert.pem()),
        ("server.key", made.signing_key.serialize_pem()),
        ("tls", TLS.to_owned()),
        ("users", users.clone()),
        ("both", format!("{TLS}{users}")),
    ] {
        replace(&host, name, &text);
    }
    let refused = |args: &[&str]| {
        let mut command = host.gputop(["exporter", "--listen", "0.0.0.0:0"]);
        let output = run(command.args(args).stdin(Stdio::null()));
        assert_eq!(output.code, 2, "{}", output.stderr);
        assert!(output.stderr.contains("--web-config"), "{}", output.stderr);
    };
    refused(&[]);
    for name in ["tls", "users"] {
        refused(&["--web-config", &host.path(name).display().to_string()]);
    }

    let both = host.path("both").display().to_string();
    let args = ["--listen", "0.0.0.0:0", "--web-config", &both];
    let exporter = RunningExporter::start(&host, &args);
    assert!(
        exporter.messages().contains("https://"),
        "{}",
        exporter.messages()
    );
    for wrong in [
        "",
        &basic("prometheus:"),
        &basic("root:hunter2"),
        "Authorization: x\r\n",
    ] {
        let answer = ask(&exporter, made.cert.der(), wrong);
        assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
        assert!(!answer.contains("gputopmon_"), "{answer}");
    }
    // The second time from memory.
    for _ in 0..2 {
        let answer = ask(&exporter, made.cert.der(), &basic("prometheus:hunter2"));
        assert!(answer.contains("gputopmon_host_up"), "{answer}");
    }
}

#[test]
fn a_renewed_certificate_is_used_without_a_restart_and_until_it_is_whole_the_old_one_is() {
    let host = Host::new(["H100"]);
    let (old, new) = (certificate(), certificate());
    replace(&host, "server.crt", &old.cert.pem());
    replace(&host, "server.key", &old.signing_key.serialize_pem());
    replace(&host, "web.yml", TLS);
    let config = host.path("web.yml").display().to_string();
    let exporter = RunningExporter::on_free_port(&host, &["--web-config", &config]);
    let is_served = |certificate: &CertifiedKey<KeyPair>| {
        ask(&exporter, certificate.cert.der(), "").contains("gputopmon_host_up")
    };
    let count_of = |sentence: &str| exporter.messages().matches(sentence).count();
    assert!(is_served(&old) && !is_served(&new));

    // The certificate is there before its key.
    replace(&host, "server.crt", &new.cert.pem());
    wait_until("it says that they do not belong together", || {
        assert!(is_served(&old), "{}", exporter.messages());
        count_of("is not that of the certificate in") == 1
    });
    replace(&host, "server.key", &new.signing_key.serialize_pem());
    wait_until("the new certificate is served", || is_served(&new));
    assert!(!is_served(&old));
    wait_until("it says that all is well", || count_of("in order") == 1);

    // A file that is cut off, and is not mended.
    let whole = new.cert.pem();
    fs::write(host.path("server.crt"), &whole[..whole.len() / 2]).expect("/tmp has room");
    wait_until("it says which file is damaged", || {
        assert!(is_served(&new), "{}", exporter.messages());
        count_of("server.crt: ") == 1
    });
    // Another renewal succeeds at once.
    let newest = certificate();
    replace(&host, "server.key", &newest.signing_key.serialize_pem());
    replace(&host, "server.crt", &newest.cert.pem());
    wait_until("the newest certificate is served", || is_served(&newest));
    wait_until("it says that all is well", || count_of("in order") == 2);
    // The damage lasted for several looks.
    assert_eq!(count_of("server.crt: "), 1, "{}", exporter.messages());
}

#[test]
fn a_user_who_is_removed_or_has_a_new_password_is_refused_without_a_restart() {
    let host = Host::new(["H100"]);
    replace(&host, "web.yml", &users(&["alice", "bob"]));
    let config = host.path("web.yml").display().to_string();
    let exporter = RunningExporter::on_free_port(&host, &["--web-config", &config]);
    let status = |login: &str| {
        let answer = exporter.request(&format!(
            "GET /metrics HTTP/1.1\r\nHost: localhost\r\n{}\r\n",
            basic(login)
        ));
        let status = answer.split(' ').nth(1).unwrap_or_default().to_owned();
        assert_eq!(status == "200", answer.contains("gputopmon_"), "{answer}");
        status
    };
    // The second time from memory.
    for login in ["alice:hunter2", "bob:hunter2", "alice:hunter2"] {
        assert_eq!(status(login), "200", "{login}");
    }
    replace(&host, "web.yml", &users(&["bob"]));
    wait_until("alice is refused", || status("alice:hunter2") == "401");
    assert_eq!(status("bob:hunter2"), "200");
    let hash = bcrypt::hash("another", 4).expect("the system has random numbers");
    let changed = format!("basic_auth_users:\n  bob: {hash}\n");
    replace(&host, "web.yml", &changed);
    wait_until("the old password is refused", || {
        status("bob:hunter2") == "401"
    });
    assert_eq!(status("bob:another"), "200");
    assert!(
        !exporter.messages().contains("from before"),
        "{}",
        exporter.messages()
    );

    // A file that was emptied lets nobody in.
    replace(&host, "web.yml", "");
    wait_until("it asks for a restart", || {
        assert_eq!(status("alice:hunter2"), "401");
        exporter.messages().contains("needs a restart")
    });
    assert_eq!(status("bob:another"), "200");
}

#[test]
fn a_file_that_hangs_stops_neither_a_scrape_nor_the_end() {
    let host = Host::new(["H100"]);
    replace(&host, "web.yml", &users(&["alice"]));
    let config = host.path("web.yml").display().to_string();
    let mut exporter = RunningExporter::on_free_port(&host, &["--web-config", &config]);
    let metrics = || {
        let login = basic("alice:hunter2");
        exporter.request(&format!(
            "GET /metrics HTTP/1.1\r\nHost: localhost\r\n{login}\r\n"
        ))
    };
    // Reading a pipe blocks while a program may still write into it.
    let draft = host.path("draft");
    let made = run(Command::new("mkfifo").arg(&draft));
    assert_eq!(made.code, 0, "{}", made.stderr);
    let writer = File::options().read(true).write(true).open(&draft);
    let _writer = writer.expect("the pipe is ours");
    fs::rename(&draft, &config).expect("the folder is ours");
    let threads = format!("/proc/{}/task", exporter.process.pid());
    wait_until("a thread hangs, and scrapes are answered", || {
        let answer = metrics();
        assert!(answer.contains("gputopmon_host_up"), "{answer}");
        let mut threads = fs::read_dir(&threads).expect("the exporter runs").flatten();
        threads.any(|thread| {
            fs::read_to_string(thread.path().join("comm"))
                .is_ok_and(|name| name == "certificates\n")
        })
    });
    let answer = metrics();
    assert!(answer.contains("gputopmon_host_up"), "{answer}");
    exporter.process.handle.signal(Signal::TERM);
    assert_eq!(exit_code(exporter.process.wait()), 0);
}

#[test]
fn the_socket_file_is_closed_to_other_users() {
    if !rustix::process::getuid().is_root() {
        return crate::print_note("skipped: only root can connect as someone else");
    }
    let host = Host::new(["H100"]);
    let socket = host.path("exporter.sock").display().to_string();
    let _exporter = RunningExporter::start(&host, &["--listen", &format!("unix:{socket}")]);
    // Everyone may enter the folder.
    fs::set_permissions(host.path(""), Permissions::from_mode(0o755)).expect("the folder is ours");
    let program = "import socket, sys\n\
                   stream = socket.socket(socket.AF_UNIX)\n\
                   stream.connect(sys.argv[1])\n\
                   stream.sendall(sys.argv[2].encode())\n\
                   print(stream.recv(100))";
    let request = get("/metrics", "localhost");
    let read_as = |user: u32| {
        let mut command = Command::new("python3");
        run(command.args(["-c", program, &socket, &request]).uid(user))
    };
    let own = read_as(0);
    assert!(own.text().contains("HTTP/1.1 200 "), "{}", own.stderr);
    let other = read_as(65534);
    assert_ne!(other.code, 0, "{}", other.text());
    assert!(other.stderr.contains("PermissionError"), "{}", other.stderr);
    assert_eq!(other.text(), "");
}
