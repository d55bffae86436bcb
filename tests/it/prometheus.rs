//! `gputop --prometheus`: the hosts of a cluster as a Prometheus server knows them, with a stand-in
//! for the server.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::process::Signal;

use crate::host::{GIB, Host};
use crate::process::{ProcessHandle, children_with_argument, exit_code, wait_until};
use crate::ssh_hosts::SshLab;
use crate::terminal::{CTRL_R, DOWN, ENTER, Terminal};

/// The GPUs of each host.
const GPUS: usize = 2;

/// The header of a request with the user `gputop` and the password `secret`.
const LOGIN: &str = "authorization: Basic Z3B1dG9wOnNlY3JldA==";

/// The series that a server has.
#[derive(Debug)]
struct KnownSeries {
    /// The hosts with samples. The first GPU of each is in use, and the second one is free.
    hosts: Vec<&'static str>,
    /// The server's clock, in seconds since 1970.
    now: u64,
    needs_login: bool,
    is_over: bool,
}

/// A server that answers questions as Prometheus does that scrapes dcgm-exporter.
struct PrometheusStandIn {
    port: u16,
    known: Arc<Mutex<KnownSeries>>,
    thread: Option<JoinHandle<()>>,
}

impl PrometheusStandIn {
    fn start(hosts: &[&'static str]) -> Self {
        Self::start_on(0, hosts)
    }

    /// Starts a server on a port, which 0 leaves to the system.
    fn start_on(port: u16, hosts: &[&'static str]) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
        let port = listener.local_addr().expect("the port is open").port();
        let known = Arc::new(Mutex::new(KnownSeries {
            hosts: hosts.to_vec(),
            now: 1_795_780_000,
            needs_login: false,
            is_over: false,
        }));
        let thread = thread::spawn({
            let known = Arc::clone(&known);
            move || {
                for stream in listener.incoming() {
                    if lock(&known).is_over {
                        return;
                    }
                    // A client that goes away is no failure of the test.
                    let _gone = answer(stream.expect("a client connects"), &known);
                }
            }
        });
        Self {
            port,
            known,
            thread: Some(thread),
        }
    }

    fn known(&self) -> MutexGuard<'_, KnownSeries> {
        lock(&self.known)
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Closes the port.
    fn stop(&mut self) {
        self.known().is_over = true;
        // Wakes the thread, which then ends.
        let _closed = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server does not panic");
        }
    }
}

fn lock(known: &Mutex<KnownSeries>) -> MutexGuard<'_, KnownSeries> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads a request and answers it.
fn answer(mut stream: TcpStream, known: &Mutex<KnownSeries>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut length, mut has_login) = (0, false);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        has_login |= line.eq_ignore_ascii_case(LOGIN);
        if let Some(bytes) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
            length = bytes.parse().expect("a length is a number");
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let body = String::from_utf8(body).expect("a form is text");
    let (status, body) = {
        let known = lock(known);
        if known.needs_login && !has_login {
            ("401 Unauthorized", "Unauthorized".to_owned())
        } else {
            ("200 OK", known.answer(&body))
        }
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    )
}

impl KnownSeries {
    /// The answer to a form with a question, in JSON.
    fn answer(&self, form: &str) -> String {
        let field = |name: &str| {
            let mut fields = form.split('&').filter_map(|field| field.split_once('='));
            let found = fields.find(|(known, _)| *known == name)?;
            Some(decoded(found.1))
        };
        let words = field("query").expect("a question");
        let is_past = field("step").is_some();
        let mut series = String::new();
        for (labels, value) in self.series(&words) {
            let comma = if series.is_empty() { "" } else { "," };
            let point = format!("[{},\"{value}\"]", self.now);
            let points = if is_past {
                format!("\"values\":[{point}]")
            } else {
                format!("\"value\":{point}")
            };
            write!(series, "{comma}{{\"metric\":{{{labels}}},{points}}}").expect("a string grows");
        }
        let kind = if is_past { "matrix" } else { "vector" };
        format!(
            "{{\"status\":\"success\",\"data\":{{\"resultType\":\"{kind}\",\"result\":[{series}]}}}}"
        )
    }

    /// The labels and the value of each series of an answer.
    fn series(&self, words: &str) -> Vec<(String, f64)> {
        if words.starts_with("label_replace(") {
            // Each series names its host.
            let is_by_name = words.contains("count(DCGM_FI_DEV_FB_USED{})");
            let sign = ("\"sign\":\"DCGM_FI_DEV_FB_USED\"".to_owned(), 6.0);
            return Vec::from_iter(is_by_name.then_some(sign));
        }
        if words.starts_with("quantile(") {
            return vec![(String::new(), 20.0)];
        }
        if words.contains("last_over_time(") || words.starts_with("topk(") {
            return Vec::new();
        }
        // The outermost aggregation comes first.
        let labels = words.split_once(" by (cluster,hostname,Hostname");
        let is_by_gpu = labels.is_some_and(|(_, after)| after.starts_with(",gpu"));
        let mut series = Vec::new();
        for host in &self.hosts {
            if words.contains("Hostname=~") && !words.contains(&host.replace('-', r"\\-")) {
                continue;
            }
            let values: Vec<(usize, f64)> = (0..GPUS)
                .filter_map(|gpu| Some((gpu, figure(gpu, words)?)))
                .collect();
            if is_by_gpu {
                series.extend(values.into_iter().map(|(gpu, value)| {
                    let model = "\"modelName\":\"NVIDIA H100 80GB HBM3\"";
                    let labels = format!("\"Hostname\":\"{host}\",\"gpu\":\"{gpu}\",{model}");
                    (labels, value)
                }));
                continue;
            }
            let sum: f64 = values.iter().map(|(_, value)| value).sum();
            let value = match () {
                () if values.is_empty() => None,
                () if words.starts_with("count by") => {
                    Some(if values.len() == GPUS { 2.0 } else { 1.0 })
                }
                () if words.starts_with("avg by") => Some(sum / 2.0),
                () if words.starts_with("max by") => Some(5.0),
                () => Some(sum),
            };
            series.extend(value.map(|value| (format!("\"Hostname\":\"{host}\""), value)));
        }
        series
    }
}

/// The value of a GPU for an expression; `None` where the GPU has no such series.
fn figure(gpu: usize, words: &str) -> Option<f64> {
    const GIB_OF_FLOAT: f64 = 1_073_741_824.0;
    let is_free = gpu == 1;
    let of_state = |busy: f64, free: f64| if is_free { free } else { busy };
    Some(match () {
        () if words.starts_with("group by") => {
            return words.contains(",modelName) ").then_some(1.0);
        }
        () if words.contains("time() - timestamp(") => 5.0,
        () if words.contains("exported_pod=\"\"") => return is_free.then_some(1.0),
        () if words.contains("_FB_FREE{") => 80.0 * GIB_OF_FLOAT,
        () if words.contains("_GPU_UTIL{") => of_state(97.0, 0.0),
        () if words.contains("_POWER_USAGE{") => of_state(650.0, 75.0),
        () if words.contains("_GPU_TEMP{") => of_state(64.0, 31.0),
        () => of_state(60.5 * GIB_OF_FLOAT, 0.0),
    })
}

/// Decodes a field of a form.
fn decoded(field: &str) -> String {
    let mut bytes = Vec::new();
    let mut letters = field.bytes();
    while let Some(letter) = letters.next() {
        bytes.push(match letter {
            b'+' => b' ',
            b'%' => {
                let mut digit = || {
                    let digit = letters.next().map(char::from)?;
                    digit.to_digit(16)
                };
                let code = digit().zip(digit()).map(|(high, low)| 16 * high + low);
                let code = code.expect("two digits follow a percent sign");
                u8::try_from(code).expect("two digits are a byte")
            }
            letter => letter,
        });
    }
    String::from_utf8(bytes).expect("a question is text")
}

const THREE: [&str; 3] = ["gpu-1", "gpu-2", "gpu-3"];

#[test]
fn hosts_and_free_gpus_are_shown_and_a_host_that_vanishes_keeps_its_place() {
    let server = PrometheusStandIn::start(&THREE);
    let viewer = Host::new([]);
    let mut terminal = Terminal::start_at(&viewer, 120, 30, ["--prometheus", &server.url()]);
    terminal.wait_for("3 hosts  6 GPUs: 3 busy  3 free");
    terminal.wait_for("FREE  3 GPUs: gpu-1 1, gpu-2 1, gpu-3 1");
    terminal.wait_for("no trouble on any host");
    // A row with its cells, and the GPUs of the host under the cursor.
    terminal.wait_for("60/160G");
    terminal.wait_for("NVIDIA H100 80GB HBM3");
    terminal.wait_for("60.5/80G");

    server.known().hosts.remove(1);
    server.known().now += 90;
    terminal.keys(CTRL_R);
    terminal.wait_for("gpu-2      no samples for 1m30s");
    terminal.wait_for("3 hosts  4 GPUs: 2 busy  2 free");
    let row = |name: &str| {
        let text = terminal.text();
        let found = text
            .lines()
            .position(|line| line.trim_start().starts_with(name));
        found.unwrap_or_else(|| panic!("{name} in\n{text}"))
    };
    assert!(row("gpu-1 ") < row("gpu-2 ") && row("gpu-2 ") < row("gpu-3 "));

    server.known().hosts.insert(1, "gpu-2");
    server.known().now += 15;
    terminal.keys(CTRL_R);
    terminal.wait_for("no trouble on any host");
    terminal.quit();
}

#[test]
fn a_server_that_asks_for_a_login_gets_that_of_the_settings_file() {
    let server = PrometheusStandIn::start(&THREE);
    server.known().needs_login = true;
    let viewer = Host::new([]);
    let mut terminal = Terminal::start_at(&viewer, 120, 30, ["--prometheus", &server.url()]);
    terminal.wait_for("asks for a login");
    terminal.wait_for("--http.config.file");
    terminal.quit();

    let file = viewer.path("http.yml");
    let text = "basic_auth:\n  username: gputop\n  password: secret\n";
    std::fs::write(&file, text).expect("/tmp has room");
    let file = file.to_str().expect("the path is text");
    let arguments = ["--prometheus", &server.url(), "--http.config.file", file];
    let mut terminal = Terminal::start_at(&viewer, 120, 30, arguments);
    terminal.wait_for("3 hosts  6 GPUs: 3 busy  3 free");
    terminal.quit();
    let shown = String::from_utf8_lossy(&terminal.bytes()).into_owned();
    assert!(!shown.contains("secret"), "the password is on the screen");
}

#[test]
fn the_hosts_stay_while_the_server_is_away_and_it_is_asked_again() {
    let mut server = PrometheusStandIn::start(&THREE);
    let viewer = Host::new([]);
    let mut terminal = Terminal::start_at(&viewer, 120, 30, ["--prometheus", &server.url()]);
    terminal.wait_for("3 hosts  6 GPUs: 3 busy  3 free");
    terminal.wait_for("60.5/80G");
    server.stop();
    terminal.keys(CTRL_R);
    terminal.wait_for("refuses the connection");
    let text = terminal.text();
    for name in THREE {
        assert!(text.contains(&format!("\n {name} ")), "{name} in\n{text}");
    }
    let _server = PrometheusStandIn::start_on(server.port, &THREE);
    terminal.keys(CTRL_R);
    terminal.wait_until_gone("refuses the connection");
    terminal.wait_for("no trouble on any host");
    terminal.quit();
}

#[test]
fn enter_opens_the_host_over_the_user_s_ssh_and_its_end_leads_back() {
    let server = PrometheusStandIn::start(&THREE);
    let lab = SshLab::new();
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, 3 * GIB);
    lab.add_agent("gpu-2", &host, "");
    let mut command = lab.gputop(["--prometheus", &server.url()]);
    let mut terminal = Terminal::run(&mut command, 100, 30);
    terminal.wait_for("3 hosts  6 GPUs: 3 busy  3 free");
    terminal.keys(DOWN);
    terminal.keys(ENTER);
    wait_until("gputop starts ssh", || !lab.calls("gpu-2").is_empty());
    terminal.wait_for("sleep");
    let calls = lab.calls("gpu-2");
    assert!(calls.contains(" -- gpu-2 "), "{calls}");
    assert_eq!(lab.calls("gpu-1"), "", "the cursor was on gpu-2");
    terminal.wait_for("q cluster");
    terminal.keys("q");
    terminal.wait_for("back from gpu-2");
    terminal.wait_for("3 hosts  6 GPUs: 3 busy  3 free");
    terminal.quit();
}

#[test]
fn keys_typed_with_enter_open_no_second_gputop_and_the_opened_one_ends_with_the_view() {
    let server = PrometheusStandIn::start(&THREE);
    let lab = SshLab::new();
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, 3 * GIB);
    lab.add_agent("gpu-1", &host, "");
    let mut command = lab.gputop(["--prometheus", &server.url()]);
    let mut terminal = Terminal::run(&mut command, 100, 30);
    terminal.wait_for("3 hosts  6 GPUs: 3 busy  3 free");
    // The view reads them at once: the second Enter, `q` and `?` are meant for no one.
    terminal.keys(&format!("{ENTER}{ENTER}q?"));
    terminal.wait_for("sleep");
    let opened = || children_with_argument(terminal.pid(), "--host=gpu-1");
    assert_eq!(opened().len(), 1);
    terminal.keys("q");
    terminal.wait_for("back from gpu-1");
    assert!(!terminal.text().contains("Keys and cells"));

    terminal.keys(ENTER);
    terminal.wait_for("sleep");
    let opened: Vec<ProcessHandle> = opened().into_iter().map(ProcessHandle::open).collect();
    assert_eq!(opened.len(), 1);
    terminal.handle().signal(Signal::TERM);
    assert_eq!(exit_code(terminal.wait_for_exit()), 143);
    assert!(!opened[0].is_alive(), "it outlives the view");
    terminal.wait_until_restored();

    let mut command = lab.gputop(["--prometheus", &server.url()]);
    let terminal = Terminal::run(&mut command, 100, 30);
    terminal.wait_for("3 hosts  6 GPUs: 3 busy  3 free");
    terminal.keys(ENTER);
    terminal.wait_for("sleep");
    for opened in children_with_argument(terminal.pid(), "--host=gpu-1") {
        let opened = ProcessHandle::open(opened);
        terminal.handle().kill();
        opened.wait_for_end();
    }
}

#[test]
fn ssh_to_a_server_that_hangs_ends_with_gputop() {
    let lab = SshLab::new();
    // It ends neither by itself nor with its input.
    lab.add(
        "login",
        "echo $$ > pid.new; mv pid.new pid; exec sleep 3600",
    );
    let file = lab.path("pid");
    let ends: [fn(&Terminal); 6] = [
        |terminal| terminal.keys("q"),
        |terminal| terminal.keys("\x03"),
        |terminal| terminal.handle().signal(Signal::TERM),
        |terminal| terminal.handle().signal(Signal::HUP),
        |terminal| terminal.handle().signal(Signal::USR1),
        |terminal| terminal.handle().kill(),
    ];
    for end in ends {
        let arguments = [
            "--prometheus",
            "localhost:9090",
            "--prometheus-from",
            "login",
        ];
        let mut terminal = Terminal::run(&mut lab.gputop(arguments), 100, 30);
        wait_until("gputop starts ssh", || file.exists());
        let pid = std::fs::read_to_string(&file).expect("a file that is there");
        let ssh = ProcessHandle::open(pid.trim().parse().expect("a PID"));
        std::fs::remove_file(&file).expect("the folder is ours");
        end(&terminal);
        terminal.wait_for_exit();
        ssh.wait_for_end();
    }
    let calls = lab.calls("login");
    assert!(calls.contains(" -W localhost:9090 -- login\n"), "{calls}");
}

#[test]
fn a_command_line_that_asks_for_something_else_too_is_refused() {
    let with_server = ["--prometheus", "http://prometheus:9090"];
    let viewer = Host::new([]);
    for (others, expected) in [
        (&["--once"] as &[&str], "it prints no report"),
        (&["--json"], "it prints no report"),
        (&["-H", "gpu-1"], "'--prometheus <URL>' cannot be used with"),
        (&["--demo"], "'--prometheus <URL>' cannot be used with"),
    ] {
        let output = viewer.run(with_server.iter().chain(others).copied());
        assert_eq!(output.code, 2, "{others:?}: {}", output.stderr);
        assert_eq!(output.text(), "", "{others:?}");
        let first = output.stderr.lines().next().unwrap_or_default();
        assert!(first.contains(expected), "{others:?}: {}", output.stderr);
    }
    let output = viewer.run(["--http.config.file", "x.yml"]);
    assert_eq!(output.code, 2, "{}", output.stderr);
    assert!(
        output.stderr.contains("\n  --prometheus <URL>\n"),
        "{}",
        output.stderr
    );
}

#[test]
fn an_address_or_a_file_that_cannot_be_used_is_refused_with_a_sentence() {
    let viewer = Host::new([]);
    let file = viewer.path("http.yml");
    std::fs::write(&file, "basic_auth: [secret\n").expect("/tmp has room");
    let file = file.to_str().expect("the path is text");
    let url = "http://prometheus:9090";
    for (arguments, expected) in [
        (
            &["--prometheus", "http://alice:secret@prometheus:9090"] as &[&str],
            "put them into a file for --http.config.file",
        ),
        (
            &["--prometheus", "ftp://prometheus"],
            "is no address of a Prometheus server",
        ),
        (
            &["--prometheus", url, "--http.config.file", "/nowhere/x.yml"],
            "/nowhere/x.yml",
        ),
        (&["--prometheus", url, "--http.config.file", file], file),
    ] {
        let mut terminal = Terminal::start_at(&viewer, 250, 24, arguments.iter().copied());
        let status = terminal.wait_for_exit();
        terminal.wait_for(expected);
        let text = terminal.text();
        assert_eq!(exit_code(status), 2, "{arguments:?}: {text}");
        assert!(text.contains("\ngputop: "), "{arguments:?}: {text}");
        assert!(!text.contains("secret"), "{arguments:?}: {text}");
        assert_eq!(terminal.modes(), terminal.modes_before());
    }
}
