//! The client against servers with TLS: its sentences, and certificates that are renewed.

use std::net::Shutdown;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use tempfile::TempDir;

use super::*;

/// An authority that signs certificates.
struct TestAuthority(CertifiedIssuer<'static, KeyPair>);

/// A certificate in PEM form and its key.
struct TestCertificate {
    pem: String,
    der: Vec<u8>,
    key: KeyPair,
}

impl TestAuthority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Signs a certificate for these hosts, which ends with a year.
    fn sign(&self, hosts: &[&str], last_year: i32) -> TestCertificate {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params
            .distinguished_name
            .push(DnType::CommonName, "localhost");
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(last_year, 12, 31);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        TestCertificate {
            pem: certificate.pem(),
            der: certificate.der().to_vec(),
            key,
        }
    }
}

/// Returns the settings of a server with this certificate. `clients` signs the certificates that it
/// wants of clients; `None` wants none.
fn server_config(certificate: &TestCertificate, clients: Option<&TestAuthority>) -> ServerConfig {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(authority.0.der().clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let key = PrivateKeyDer::try_from(certificate.key.serialize_der()).unwrap();
    builder
        .with_single_cert(vec![certificate.der.clone().into()], key)
        .unwrap()
}

/// Starts a server that answers one question on each connection. Returns its address.
fn start(config: ServerConfig) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let config = Arc::new(config);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = ServerConnection::new(config.clone()).unwrap();
            let mut stream = StreamOwned::new(connection, stream.unwrap());
            if read_head(&mut stream).is_some() {
                // A client that goes away is no failure of the test.
                let _gone = stream.write_all(&good());
                stream.conn.send_close_notify();
                let _gone = stream.flush();
            }
            // Bytes that stay unread would make the system drop what was sent.
            let _closed = stream.sock.shutdown(Shutdown::Write);
            let _end = stream.sock.read_to_end(&mut Vec::new());
        }
    });
    format!("https://localhost:{port}")
}

/// Reads a request; `None` if the connection ends before it.
fn read_head(stream: &mut impl Read) -> Option<()> {
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    // The body of the form follows the head.
    while !String::from_utf8_lossy(&text).contains("nocache=1") {
        match stream.read(&mut buffer) {
            Ok(length @ 1..) => text.extend_from_slice(&buffer[..length]),
            _ => return None,
        }
    }
    Some(())
}

/// A folder with the files of a client.
struct ClientFiles(TempDir);

impl ClientFiles {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.path().join(name), text).unwrap();
    }

    fn trust(&self, authority: &TestAuthority) {
        self.write("ca.pem", &authority.0.pem());
    }

    fn log_in(&self, certificate: &TestCertificate) {
        self.write("client.pem", &certificate.pem);
        self.write("client.key", &certificate.key.serialize_pem());
    }

    /// Returns a client with these settings of `tls_config`.
    fn client(&self, url: &str, settings: &str) -> PrometheusClient {
        self.write("http.yml", &format!("tls_config: {{{settings}}}\n"));
        let mut options = options(url);
        options.http_config = Some(self.0.path().join("http.yml"));
        PrometheusClient::new(&options).unwrap()
    }
}

const TRUST: &str = "ca_file: ca.pem";
const TRUST_AND_LOGIN: &str = "ca_file: ca.pem, cert_file: client.pem, key_file: client.key";

/// Asks a server and returns the sentence without its address.
#[track_caller]
fn why_not(client: &mut PrometheusClient) -> String {
    let why = client.ask(&question()).unwrap_err();
    why.replace(client.name(), "HOST")
}

#[test]
fn a_certificate_of_the_server_that_is_refused_is_explained() {
    let (ours, other) = (TestAuthority::new("ours"), TestAuthority::new("other"));
    let files = ClientFiles::new();
    files.trust(&ours);
    let mut of_authority = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    of_authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let certificate = of_authority.self_signed(&key).unwrap();
    let own_authority = TestCertificate {
        pem: certificate.pem(),
        der: certificate.der().to_vec(),
        key,
    };
    for (certificate, expected) in [
        (
            other.sign(&["localhost"], 2090),
            "HOST has a certificate that is not from an authority in ca_file",
        ),
        (
            ours.sign(&[], 2090),
            "HOST has a certificate that names no host as subjectAltName: its common name (CN) does not count",
        ),
        (
            ours.sign(&["prom.example"], 2090),
            "HOST has a certificate for another name: write the address with a name of the certificate",
        ),
        (
            ours.sign(&["localhost"], 2021),
            "HOST has a certificate that has expired",
        ),
    ] {
        let url = start(server_config(&certificate, None));
        assert_eq!(why_not(&mut files.client(&url, TRUST)), expected);
    }
    files.write("ca.pem", &own_authority.pem);
    let url = start(server_config(&own_authority, None));
    assert_eq!(
        why_not(&mut files.client(&url, TRUST)),
        "HOST has the certificate of an authority (CA:TRUE), where a server needs one with CA:FALSE"
    );
}

#[test]
fn a_server_that_refuses_or_lacks_a_certificate_of_the_client_is_explained() {
    let (ours, other) = (TestAuthority::new("ours"), TestAuthority::new("other"));
    let files = ClientFiles::new();
    files.trust(&ours);
    let url = start(server_config(&ours.sign(&["localhost"], 2090), Some(&ours)));
    assert_eq!(
        why_not(&mut files.client(&url, TRUST)),
        "HOST ended the encryption: it may ask for a certificate (cert_file and key_file of tls_config)"
    );
    for (certificate, expected) in [
        (
            ours.sign(&["alice"], 2021),
            "HOST refuses the certificate of cert_file: it has expired",
        ),
        (
            other.sign(&["alice"], 2090),
            "HOST ended the encryption: it may refuse the certificate of cert_file",
        ),
    ] {
        files.log_in(&certificate);
        assert_eq!(why_not(&mut files.client(&url, TRUST_AND_LOGIN)), expected);
    }
    let closes = TestServer::start(vec![Vec::new()]);
    let url = format!("https://{}", closes.address);
    assert_eq!(
        why_not(&mut files.client(&url, TRUST_AND_LOGIN)),
        "HOST closed the connection before the end of its answer: it may refuse the certificate of cert_file"
    );
}

#[test]
fn a_server_with_tls_that_is_asked_without_is_one_failure_with_advice() {
    let text = "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
    let server = TestServer::start(vec![vec![text.into()]]);
    let url = format!("http://{}", server.address);
    assert_eq!(
        why_not(&mut client_of(&url)),
        "HOST speaks https on this port: begin its address with https://"
    );
}

#[test]
fn renewed_certificates_are_used_after_a_refusal() {
    let (old, new) = (TestAuthority::new("old"), TestAuthority::new("new"));
    let files = ClientFiles::new();
    files.trust(&old);
    files.log_in(&new.sign(&["alice"], 2021));
    let url = start(server_config(&new.sign(&["localhost"], 2090), Some(&new)));
    let mut client = files.client(&url, TRUST_AND_LOGIN);
    let foreign = "HOST has a certificate that is not from an authority in ca_file";
    assert_eq!(why_not(&mut client), foreign);
    files.trust(&new);
    assert_eq!(
        why_not(&mut client),
        "HOST refuses the certificate of cert_file: it has expired"
    );
    // Half of the new pair is no reason to forget the old one.
    let renewed = new.sign(&["alice"], 2090);
    files.write("client.pem", &renewed.pem);
    let why = why_not(&mut client);
    assert!(
        why.ends_with("http.yml: the key in key_file is not that of the certificate in cert_file"),
        "{why}"
    );
    files.log_in(&renewed);
    assert!(client.ask(&question()).is_ok());
}

#[test]
fn a_renewed_token_is_used_after_a_refusal_and_the_same_one_keeps_its_connection() {
    let forbidden = || answer("403 Forbidden", "");
    let server = TestServer::start(vec![
        vec![good(), forbidden(), good(), forbidden()],
        vec![good()],
    ]);
    let files = ClientFiles::new();
    files.write("token", "old");
    files.write("http.yml", "authorization:\n  credentials_file: token\n");
    let mut options = options(&server.address);
    options.http_config = Some(files.0.path().join("http.yml"));
    let mut client = PrometheusClient::new(&options).unwrap();
    assert!(client.ask(&question()).is_ok());
    assert_eq!(
        why_not(&mut client),
        "HOST forbids the question to this login (HTTP 403)"
    );
    assert!(client.ask(&question()).is_ok());
    files.write("token", "new");
    assert!(client.ask(&question()).is_ok());
    let tokens: Vec<String> = (0..5)
        .map(|_| {
            let request = server.request().to_ascii_lowercase();
            let token = request.split("authorization: bearer ").nth(1).unwrap();
            token[..3].to_owned()
        })
        .collect();
    assert_eq!(tokens, ["old", "old", "old", "old", "new"]);
}
