//! A Prometheus server, or one that answers the same questions, such as `VictoriaMetrics`, Thanos
//! and Mimir.
//!
//! Each answer is hostile input: it is bounded in bytes, series and time, and every
//! text of it is sanitized.

mod address;
mod answer;
mod asker;
mod failure;
mod http_config;
mod ssh_forward;

use std::fmt;
use std::io::{BufReader, Read};
use std::mem;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ureq::http::{Response, StatusCode};
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{Connector, DefaultConnector, RustlsConnector};
use ureq::{Agent, Body};

use self::address::ServerAddress;
#[cfg(any(test, fuzzing))]
pub(crate) use self::answer::parse_bytes as parse_answer_bytes;
use self::answer::{MOST_SERIES, ParsedAnswer, parse};
pub(crate) use self::asker::{AskedRound, Asker};
use self::failure::{AskFailure, BodyFault, LONGEST_ANSWER};
use self::http_config::{HttpConfig, TlsFiles};
use self::ssh_forward::{NoAddresses, SshForward};
use super::ssh::SshHost;
use crate::base::text::Text;
use crate::protocol::series::{SeriesAnswer, SeriesQuestion};

/// The longest time to connect.
const LONGEST_CONNECT: Duration = Duration::from_secs(5);

/// The longest time to connect through ssh, which logs in first.
const LONGEST_SSH_CONNECT: Duration = Duration::from_secs(15);

/// How long a connection may be idle before it is opened anew.
const LONGEST_IDLE: Duration = Duration::from_mins(5);

/// The most bytes of an answer, decompressed.
// Without optimizations, a busy machine parses no more in the time that an answer may take.
const MOST_BYTES: u64 = if cfg!(test) { 4 << 20 } else { 64 << 20 };

/// The most bytes of the headers of an answer.
const MOST_HEADER_BYTES: usize = 32 << 10;

/// The bytes of the buffers of the connection.
const BUFFER: usize = 64 << 10;

/// The most redirects for one question.
const MOST_REDIRECTS: usize = 3;

/// Where a Prometheus server is, and how it is reached.
#[derive(Debug, Clone)]
pub(crate) struct PrometheusOptions {
    /// The address, as a person typed it.
    pub(crate) url: String,
    /// The file of `--http.config.file`; `None` asks without a login.
    pub(crate) http_config: Option<PathBuf>,
    /// The host from which the server is reached; `None` for this one.
    pub(crate) ssh: Option<SshHost>,
}

/// A client of one server. It waits for each answer.
pub(crate) struct PrometheusClient {
    options: PrometheusOptions,
    name: String,
    address: ServerAddress,
    http: HttpConfig,
    agent: Agent,
    /// Whether the server refuses POST.
    uses_get: bool,
    /// Whether a connection has answered, which the server may have closed meanwhile.
    has_answered: bool,
    /// The time of the server minus that of this host, in seconds.
    clock_difference: f64,
    /// Why ssh has ended.
    ssh_end: Arc<Mutex<Option<Text>>>,
}

impl fmt::Debug for PrometheusClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The headers and the proxy may hold secrets.
        f.debug_struct("PrometheusClient")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl PrometheusClient {
    /// Makes a client, and reads the settings file. Connects to nothing yet.
    ///
    /// # Errors
    ///
    /// When the address or the file cannot be used: a sentence.
    pub(crate) fn new(options: &PrometheusOptions) -> Result<Self, String> {
        let address = ServerAddress::parse(&options.url)?;
        let http = read_config(options)?;
        let ssh_end = Arc::default();
        let agent = agent(options, &http, &address, &ssh_end);
        Ok(Self {
            name: Text::new(&options.url).to_string(),
            options: options.clone(),
            address,
            http,
            agent,
            uses_get: false,
            has_answered: false,
            clock_difference: 0.0,
            ssh_end,
        })
    }

    /// The address, as a person typed it. It has no password.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A warning about the connection; `None` if there is none.
    pub(crate) fn notice(&self) -> Option<String> {
        let leaks = self.http.has_secret() && !self.address.is_https && !self.address.is_loopback();
        leaks.then(|| {
            format!(
                "the password or token goes to {} unencrypted: use https",
                self.name
            )
        })
    }

    /// Asks a question, and waits for the answer. A question that the server refuses has an answer
    /// without series and with a warning, since it says nothing about the others.
    ///
    /// # Errors
    ///
    /// When there is no answer: a sentence that names the server.
    pub(crate) fn ask(&mut self, question: &SeriesQuestion) -> Result<SeriesAnswer, String> {
        match self.try_repeatedly(question) {
            Ok(answer) => Ok(answer),
            Err(
                failure @ AskFailure::Status(
                    StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY,
                    _,
                ),
            ) => Ok(SeriesAnswer {
                warning: Some(self.sentence(&failure).into()),
                ..SeriesAnswer::default()
            }),
            Err(failure) => {
                let end = self.ssh_end.lock().ok().and_then(|mut end| end.take());
                Err(match end {
                    Some(end) => format!("{} cannot be reached through ssh: {end}", self.name),
                    None => self.sentence(&failure),
                })
            }
        }
    }

    fn try_repeatedly(&mut self, question: &SeriesQuestion) -> Result<SeriesAnswer, AskFailure> {
        let mut result = self.try_once(question);
        // The server has closed an idle connection just when it was used again.
        if matches!(result, Err(AskFailure::Closed)) && mem::take(&mut self.has_answered) {
            result = self.try_once(question);
        }
        match &result {
            Err(failure) if failure.depends_on_settings() && self.renew_settings()? => {
                self.try_once(question)
            }
            _ => result,
        }
    }

    /// Reads the settings files again. Returns whether they have changed and are in use now. Those
    /// from before stay in use while the new ones cannot be used, and so does the connection while
    /// none has changed.
    fn renew_settings(&mut self) -> Result<bool, AskFailure> {
        let path = self.options.http_config.as_ref();
        // A pipe, such as that of `<(command)` in a shell, can be read only once.
        if !path.is_some_and(|path| path.is_file()) {
            return Ok(false);
        }
        let http = read_config(&self.options).map_err(AskFailure::Sentence)?;
        if http.has_texts_of(&self.http) {
            return Ok(false);
        }
        self.agent = agent(&self.options, &http, &self.address, &self.ssh_end);
        self.http = http;
        Ok(true)
    }

    /// Returns the sentence for a failure.
    fn sentence(&self, failure: &AskFailure) -> String {
        let given = if self.address.is_https {
            self.http.tls_files
        } else {
            TlsFiles::default()
        };
        failure.sentence(&self.name, given)
    }

    fn try_once(&mut self, question: &SeriesQuestion) -> Result<SeriesAnswer, AskFailure> {
        if let Ok(mut end) = self.ssh_end.lock() {
            *end = None;
        }
        let path = if question.span.is_some() {
            "/api/v1/query_range"
        } else {
            "/api/v1/query"
        };
        let fields = self.fields(question);
        for _ in 0..=MOST_REDIRECTS {
            let mut response = self.send(path, &fields)?;
            let status = response.status();
            if status.is_redirection() {
                read_text(&mut response);
                self.follow(path, &response)?;
            } else if status == StatusCode::METHOD_NOT_ALLOWED && !self.uses_get {
                read_text(&mut response);
                self.uses_get = true;
            } else if status.is_success() {
                let parsed = read_answer(&mut response)?;
                self.has_answered = true;
                return self.accept(question, parsed);
            } else {
                let text = read_text(&mut response);
                if status == StatusCode::BAD_REQUEST
                    && !self.address.is_https
                    && asks_for_tls(&text)
                {
                    return Err(AskFailure::WantsHttps);
                }
                let reason = parse(text.as_slice()).ok().and_then(|parsed| parsed.error);
                return Err(AskFailure::Status(status, reason));
            }
        }
        Err(AskFailure::Sentence(format!(
            "{} redirects again and again",
            self.name
        )))
    }

    /// The fields of the form.
    fn fields(&self, question: &SeriesQuestion) -> Vec<(&'static str, String)> {
        let mut fields = vec![
            ("query", question.expression.clone()),
            ("timeout", "15s".to_owned()),
            ("limit", MOST_SERIES.to_string()),
            // VictoriaMetrics would answer with values that are half a minute older.
            ("nocache", "1".to_owned()),
        ];
        if let Some(span) = question.span {
            let end = now() + self.clock_difference;
            let start = end - span.length.as_secs_f64();
            fields.push(("start", format!("{start:.3}")));
            fields.push(("end", format!("{end:.3}")));
            fields.push(("step", format!("{:.3}", span.step.as_secs_f64().max(0.001))));
        }
        fields
    }

    fn send(
        &self,
        path: &str,
        fields: &[(&'static str, String)],
    ) -> Result<Response<Body>, AskFailure> {
        let url = self.address.url(path);
        let fields = fields.iter().map(|(name, value)| (*name, value.as_str()));
        let headers = self.http.headers.iter();
        let result = if self.uses_get {
            headers
                .fold(self.agent.get(&url), |request, (name, value)| {
                    request.header(name, value)
                })
                .query_pairs(fields)
                .call()
        } else {
            headers
                .fold(self.agent.post(&url), |request, (name, value)| {
                    request.header(name, value)
                })
                .send_form(fields)
        };
        result.map_err(|error| AskFailure::of_http(&error))
    }

    fn follow(&mut self, path: &str, response: &Response<Body>) -> Result<(), AskFailure> {
        let location = response
            .headers()
            .get("location")
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let next = self
            .http
            .follows_redirects
            .then(|| self.address.redirected(path, location))
            .flatten();
        self.address = next.ok_or_else(|| {
            AskFailure::Sentence(format!(
                "{} redirects to `{}`, which gputop does not follow: is the address right?",
                self.name,
                Text::new(&location[..location.floor_char_boundary(200)])
            ))
        })?;
        Ok(())
    }

    fn accept(
        &mut self,
        question: &SeriesQuestion,
        parsed: ParsedAnswer,
    ) -> Result<SeriesAnswer, AskFailure> {
        if let Some(reason) = parsed.error {
            return Err(AskFailure::Status(
                StatusCode::UNPROCESSABLE_ENTITY,
                Some(reason),
            ));
        }
        if !parsed.has_status {
            return Err(AskFailure::NoAnswer);
        }
        let first = parsed.answer.series.first();
        if let (None, Some(point)) = (
            question.span,
            first.and_then(|series| series.points.first()),
        ) {
            self.clock_difference = point.time - now();
        }
        Ok(parsed.answer)
    }
}

fn read_config(options: &PrometheusOptions) -> Result<HttpConfig, String> {
    match &options.http_config {
        None => Ok(HttpConfig::usual()),
        Some(path) => HttpConfig::read(path),
    }
}

/// The time in seconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "the span of a question ends at the present"
)]
fn now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}

fn agent(
    options: &PrometheusOptions,
    http: &HttpConfig,
    address: &ServerAddress,
    ssh_end: &Arc<Mutex<Option<Text>>>,
) -> Agent {
    let connect = if options.ssh.is_some() {
        LONGEST_SSH_CONNECT
    } else {
        LONGEST_CONNECT
    };
    let proxy = if options.ssh.is_some() {
        None
    } else {
        http.proxy.clone()
    };
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .timeout_connect(Some(connect))
        .timeout_global(Some(LONGEST_ANSWER))
        .max_response_header_size(MOST_HEADER_BYTES)
        .input_buffer_size(BUFFER)
        .output_buffer_size(BUFFER)
        .max_idle_connections(1)
        .max_idle_age(LONGEST_IDLE)
        .user_agent(concat!("gputop/", env!("CARGO_PKG_VERSION")))
        .proxy(proxy)
        .tls_config(http.tls.clone())
        .build();
    match &options.ssh {
        None => Agent::with_parts(config, DefaultConnector::new(), DefaultResolver::default()),
        Some(host) => {
            let forward = SshForward::new(host.forwarding(&address.target()), ssh_end.clone());
            let connector = forward.chain(RustlsConnector::default());
            Agent::with_parts(config, connector, NoAddresses)
        }
    }
}

fn read_answer(response: &mut Response<Body>) -> Result<ParsedAnswer, AskFailure> {
    let is_page = response
        .body()
        .mime_type()
        .is_some_and(|kind| kind.contains("html"));
    if is_page {
        return Err(AskFailure::NoAnswer);
    }
    let fault = BodyFault::default();
    let body = response.body_mut().as_reader();
    let reader = BufReader::with_capacity(BUFFER, fault.watch(body, MOST_BYTES));
    parse(reader).map_err(|error| fault.failure(&error))
}

/// Returns the text of an answer that reports an error. Reads a short answer to its end, so that the
/// connection can be used again.
fn read_text(response: &mut Response<Body>) -> Vec<u8> {
    const LONGEST: u64 = 64 << 10;
    let mut text = Vec::new();
    let reader = response.body_mut().as_reader().take(LONGEST);
    // A part of it is worth a try.
    let _end = BufReader::new(reader).read_to_end(&mut text);
    text
}

/// Whether a server says that it was asked without TLS: in Go, nginx or Apache.
fn asks_for_tls(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    [
        "HTTP request to an HTTPS server",
        "HTTP request was sent to HTTPS port",
        "plain HTTP to an SSL-enabled server",
    ]
    .iter()
    .any(|words| text.contains(words))
}

#[cfg(test)]
mod tests;
