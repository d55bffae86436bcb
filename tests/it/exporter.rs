//! `gputop exporter`: its metrics say what `--json` says, and foreign pages get no answer.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use fake_nvml::{Fault, GpuProcess, GpuSelector, RemappedRows};
use rustix::process::Signal;
use serde_json::Value;

use crate::DEADLINE;
use crate::cli::json;
use crate::host::{GIB, Host};
use crate::process::{ChildProcess, exit_code, run, wait_until};

/// [`GIB`], as the value of a sample.
const GIB_IN_BYTES: f64 = 1_073_741_824.0;

/// An exporter that runs.
pub(crate) struct RunningExporter {
    pub(crate) process: ChildProcess,
    messages: PathBuf,
}

impl RunningExporter {
    /// Starts an exporter with these arguments, and waits until it listens.
    pub(crate) fn start(host: &Host, args: &[&str]) -> Self {
        let messages = host.path("exporter-messages");
        let mut command = host.gputop(["exporter"]);
        command
            .args(args)
            .env("GPUTOP_INTERVAL", "100ms")
            .stdin(Stdio::null())
            .stderr(File::create(&messages).expect("/tmp has room"));
        let exporter = Self {
            process: ChildProcess::spawn(&mut command),
            messages,
        };
        wait_until("the exporter listens", || {
            exporter.messages().contains("Ctrl-C ends it")
        });
        exporter
    }

    /// Starts an exporter on a free port of this address.
    pub(crate) fn on_free_port(host: &Host, args: &[&str]) -> Self {
        let listen = ["--listen", "127.0.0.1:0"];
        Self::start(host, &[&listen, args].concat())
    }

    pub(crate) fn messages(&self) -> String {
        fs::read_to_string(&self.messages).expect("the file exists")
    }

    /// The address that it says it listens on.
    pub(crate) fn address(&self) -> String {
        let messages = self.messages();
        let (_, rest) = messages.split_once("://").expect("a URL");
        let (address, _) = rest.split_once('/').expect("a path");
        address.to_owned()
    }

    /// The PID of its agent.
    fn agent(&self) -> String {
        let pid = self.process.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.expect("the exporter runs");
        let agent = children.split_whitespace().next().expect("an agent");
        agent.to_owned()
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).expect("the exporter listens");
        let deadline = Some(DEADLINE);
        stream
            .set_read_timeout(deadline)
            .expect("a deadline is no 0");
        stream
    }

    /// Sends a request, and returns the whole answer; an empty text if the connection was closed.
    pub(crate) fn request(&self, request: &str) -> String {
        exchange(&mut self.connect(), request)
    }

    /// The metrics as this computer reads them.
    pub(crate) fn metrics(&self) -> String {
        let answer = self.request(&get("/metrics", "localhost"));
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        body.to_owned()
    }
}

pub(crate) fn get(path: &str, host: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

pub(crate) fn exchange(stream: &mut (impl Read + Write), request: &str) -> String {
    // The other end may close the connection at any time.
    let _closed = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _closed = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// The value of the only series of a metric that has this label; `None` if there is none.
pub(crate) fn value(metrics: &str, name: &str, label: &str) -> Option<f64> {
    let mut lines = metrics.lines().filter(|line| {
        line.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with('{') && rest.contains(label))
    });
    let line = lines.next()?;
    assert_eq!(lines.next(), None, "{name} with {label} is there twice");
    let (_, value) = line.rsplit_once(' ').expect("a sample has a value");
    Some(value.parse().expect("a value is a number"))
}

#[test]
fn each_gauge_is_that_of_json() {
    let mut host = Host::new(["H100", "H100"]);
    let pid = host.start_sleep(1, 3 * GIB);
    host.change(|world| world.gpus[1].utilization.gpu = Some(37));
    let exporter = RunningExporter::on_free_port(&host, &[]);
    let process = r#"program="sleep""#;
    let mut metrics = String::new();
    wait_until(
        "the process has samples, and the first pass and scan are over",
        || {
            metrics = exporter.metrics();
            value(&metrics, "gputopmon_process_memory_bytes", process).is_some()
                && metrics.contains("gputopmon_gpu_leftover_processes{")
                && metrics.contains("gputopmon_gpu_temperature_celsius{")
        },
    );
    let snapshot = json(&host.run(["--json"]));
    let gpu = &snapshot["gpus"][1];
    let label = format!("uuid={}", gpu["uuid"]);
    let float = |value: &Value| value.as_f64();
    for (name, expected) in [
        (
            "gpu_memory_total_bytes",
            float(&gpu["load"]["memory_total_bytes"]),
        ),
        (
            "gpu_memory_used_bytes",
            float(&gpu["load"]["memory_used_bytes"]),
        ),
        (
            "gpu_memory_reserved_bytes",
            float(&gpu["load"]["memory_reserved_bytes"]),
        ),
        (
            "gpu_temperature_celsius",
            float(&gpu["load"]["temperature_celsius"]),
        ),
        ("gpu_power_watts", float(&gpu["load"]["power_watts"])),
        (
            "gpu_power_limit_watts",
            float(&gpu["health"]["power_limit_watts"]),
        ),
        ("gpu_sm_clock_hertz", float(&gpu["load"]["sm_clock_hertz"])),
        ("gpu_sm_use_ratio", Some(0.37)),
        ("gpu_leftover_processes", Some(0.0)),
        ("gpu_row_remap_failed", Some(0.0)),
        ("gpu_free", Some(0.0)),
    ] {
        let found = value(&metrics, &format!("gputopmon_{name}"), &label);
        assert!(expected.is_some(), "{name}: {gpu}");
        assert_eq!(found, expected, "{name}: {metrics}");
    }
    assert_eq!(value(&metrics, "gputopmon_gpu_trouble", ""), None);
    let memory = value(&metrics, "gputopmon_process_memory_bytes", process);
    assert_eq!(memory, float(&gpu["processes"][0]["memory_used_bytes"]));
    assert_eq!(value(&metrics, "gputopmon_host_up", "host="), Some(1.0));
    // Neither the arguments nor the PID.
    assert!(!metrics.contains("1000"), "{metrics}");
    assert!(!metrics.contains(&format!("\"{pid}\"")), "{metrics}");

    let no_spare_row = RemappedRows {
        failed: true,
        ..RemappedRows::default()
    };
    host.change(|world| world.gpus[1].remapped_rows = Some(no_spare_row));
    wait_until("the GPU has no spare row", || {
        value(
            &exporter.metrics(),
            "gputopmon_gpu_row_remap_failed",
            &label,
        ) == Some(1.0)
    });
    let trouble = format!("{label},trouble=\"hardware_error\"");
    let metrics = exporter.metrics();
    assert_eq!(
        value(&metrics, "gputopmon_gpu_trouble", &trouble),
        Some(1.0)
    );

    // A reading that is not known is absent.
    host.change(|world| world.gpus[1].power.usage = None);
    wait_until("the power is not known", || {
        let metrics = exporter.metrics();
        value(&metrics, "gputopmon_gpu_power_watts", &label).is_none()
            && value(&metrics, "gputopmon_gpu_temperature_celsius", &label).is_some()
    });
    host.change(|world| world.gpus[1].processes.clear());
    wait_until("the process has no samples", || {
        !exporter.metrics().contains("gputopmon_process")
    });
}

#[test]
fn a_signal_ends_it_and_its_socket_file_is_gone() {
    let host = Host::new(["H100"]);
    let socket = host.path("exporter.sock");
    let listen = format!("unix:{}", socket.display());
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut exporter = RunningExporter::start(&host, &["--listen", &listen]);
        let mode = fs::metadata(&socket)
            .expect("the socket")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let mut stream = UnixStream::connect(&socket).expect("the exporter listens");
        // A proxy names any host.
        let answer = exchange(&mut stream, &get("/metrics", "gpu-01.example"));
        assert!(answer.contains("gputopmon_host_up"), "{answer}");
        let second = run(host
            .gputop(["exporter", "--listen", &listen])
            .stdin(Stdio::null()));
        assert_eq!(second.code, 2, "{}", second.stderr);
        assert!(
            second.stderr.contains("cannot listen on unix:"),
            "{}",
            second.stderr
        );
        exporter.process.handle.signal(signal);
        assert_eq!(
            exit_code(exporter.process.wait()),
            0,
            "{}",
            exporter.messages()
        );
        assert!(!socket.exists(), "{}", exporter.messages());
    }
}

#[test]
fn a_foreign_page_another_method_and_another_path_get_no_metrics() {
    let host = Host::new(["H100"]);
    let exporter = RunningExporter::on_free_port(&host, &[]);
    for (request, status) in [
        (get("/metrics", "evil.example"), "403"),
        (get("/metrics", "localhost.evil.example:19400"), "403"),
        ("GET /metrics HTTP/1.0\r\n\r\n".to_owned(), "403"),
        (get("/../etc/passwd", "localhost"), "404"),
        (get("/metrics", "localhost").replace("GET", "POST"), "405"),
        (
            get("/metrics", "localhost").replace("GET", "OPTIONS"),
            "405",
        ),
        ("hello\r\n\r\n".to_owned(), "400"),
    ] {
        let answer = exporter.request(&request);
        let expected = format!(
            "HTTP/1.{} {status} ",
            u8::from(!request.contains("HTTP/1.0"))
        );
        assert!(answer.starts_with(&expected), "{request}: {answer}");
        assert!(!answer.contains("gputopmon_"), "{request}: {answer}");
        assert!(
            !answer.to_lowercase().contains("access-control"),
            "{answer}"
        );
    }
    let endless = "x".repeat(1 << 20);
    let answer = exporter.request(&format!(
        "GET /{endless} HTTP/1.1\r\nHost: localhost\r\n\r\n"
    ));
    assert!(!answer.contains(" 200 "), "{answer}");
    assert!(exporter.metrics().contains("gputopmon_host_up"));
}

#[test]
fn a_crowd_that_says_nothing_stops_no_scrape() {
    let host = Host::new(["H100"]);
    let exporter = RunningExporter::on_free_port(&host, &[]);
    let crowd: Vec<TcpStream> = (0..200).map(|_| exporter.connect()).collect();
    let files = format!("/proc/{}/fd", exporter.process.pid());
    wait_until("the first of them have their place", || {
        fs::read_dir(&files).is_ok_and(|files| files.count() > 32)
    });
    let open = fs::read_dir(&files).expect("the exporter runs").count();
    assert!(open < 80, "{open} files are open");
    for _ in 0..20 {
        assert!(exporter.metrics().contains("gputopmon_host_up"));
    }
    drop(crowd);
}

#[test]
fn a_host_that_ends_is_down_and_comes_back() {
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, GIB);
    let exporter = RunningExporter::on_free_port(&host, &[]);
    let is_up = || value(&exporter.metrics(), "gputopmon_host_up", "host=");
    wait_until("the host is up", || is_up() == Some(1.0));
    let agent = exporter.agent();
    run(Command::new("kill").args(["-9", &agent]));
    wait_until("the host is down", || is_up() == Some(0.0));
    let metrics = exporter.metrics();
    assert!(!metrics.contains("gputopmon_gpu"), "{metrics}");
    assert!(
        exporter.messages().contains("trying again"),
        "{}",
        exporter.messages()
    );
    wait_until("the host is up again", || is_up() == Some(1.0));
}

#[test]
fn an_agent_that_says_nothing_has_readings_that_grow_old() {
    let host = Host::new(["H100"]);
    let exporter = RunningExporter::on_free_port(&host, &[]);
    let age = || {
        value(
            &exporter.metrics(),
            "gputopmon_host_reading_age_seconds",
            "host=",
        )
    };
    wait_until("the host is up", || age().is_some());
    let agent = exporter.agent();
    run(Command::new("kill").args(["-STOP", &agent]));
    // Nothing happens meanwhile but the scrapes themselves.
    wait_until("the readings are old", || {
        age().is_some_and(|age| age > 4.0)
    });
    run(Command::new("kill").args(["-CONT", &agent]));
    wait_until("new ones have come", || age().is_some_and(|age| age < 2.0));
}

#[test]
fn readings_that_come_every_forty_seconds_are_served_until_the_next_ones() {
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, GIB);
    let exporter = RunningExporter::on_free_port(&host, &["--interval", "40s"]);
    let seen = |name: &str| value(&exporter.metrics(), &format!("gputopmon_{name}"), "host=");
    wait_until("the process is read", || {
        seen("process_memory_bytes").is_some()
    });
    wait_until("the readings are older than half a minute", || {
        // The exporter closes a connection that says nothing after five seconds.
        assert_eq!(exporter.request(""), "");
        let metrics = exporter.metrics();
        let seen = |name: &str| value(&metrics, &format!("gputopmon_{name}"), "host=");
        assert_eq!(seen("host_up"), Some(1.0), "{metrics}");
        assert_eq!(
            seen("process_memory_bytes"),
            Some(GIB_IN_BYTES),
            "{metrics}"
        );
        assert!(seen("gpu_temperature_celsius").is_some(), "{metrics}");
        seen("host_reading_age_seconds").is_some_and(|age| age > 30.0)
    });
}

#[test]
fn processes_of_a_gpu_that_mig_splits_are_on_its_instances_alone() {
    let mut host = Host::new(["A100-MIG"]);
    let process = ChildProcess::spawn(Command::new("sleep").arg("1000").stdin(host.open_device(0)));
    let mut uuids = [String::new(), String::new()];
    host.change(|world| {
        let gpu = &mut world.gpus[0];
        let instance = &mut gpu.mig.as_mut().expect("MIG splits it").instances[1];
        instance
            .processes
            .push(GpuProcess::new(process.pid(), 3 * GIB));
        uuids = [gpu.uuid.clone(), instance.uuid.clone()];
    });
    let [whole, instance] = uuids.map(|uuid| format!("uuid=\"{uuid}\""));
    let exporter = RunningExporter::on_free_port(&host, &[]);
    let mut metrics = String::new();
    wait_until("the process has samples, and the scan is over", || {
        metrics = exporter.metrics();
        metrics.contains("gputopmon_process_memory_bytes{")
            && metrics.contains("gputopmon_gpu_leftover_processes{")
    });
    let bytes = |name: &str, label: &str| value(&metrics, &format!("gputopmon_{name}"), label);
    let memory = Some(3.0 * GIB_IN_BYTES);
    // The only series of all.
    assert_eq!(bytes("process_memory_bytes", ""), memory, "{metrics}");
    assert_eq!(bytes("processes", &instance), Some(1.0), "{metrics}");
    assert_eq!(bytes("gpu_free", ""), Some(0.0), "{metrics}");
    assert_eq!(
        bytes("gpu_memory_used_bytes", &instance),
        memory,
        "{metrics}"
    );
    assert_eq!(bytes("gpu_memory_used_bytes", &whole), memory, "{metrics}");
    for line in metrics.lines().filter(|line| line.contains(&whole)) {
        let is_of_processes = ["process", "leftover", "held_idle", "unaccounted"]
            .iter()
            .any(|word| line.contains(word));
        assert!(!is_of_processes, "{line}");
    }
    let instances = metrics
        .lines()
        .filter(|line| line.starts_with("gputopmon_gpu_leftover_processes{"));
    assert_eq!(instances.count(), 3, "{metrics}");
}

#[test]
fn a_gpu_that_hangs_has_a_trouble_and_no_figures() {
    let mut host = Host::new(["H100", "H100"]);
    host.start_sleep(1, 3 * GIB);
    let exporter = RunningExporter::on_free_port(&host, &["--page"]);
    let used = |gpu: &str| value(&exporter.metrics(), "gputopmon_gpu_memory_used_bytes", gpu);
    wait_until("both are read", || {
        used("gpu=\"0\"").is_some() && used("gpu=\"1\"").is_some()
    });
    host.change(|world| {
        world.faults.push(Fault {
            gpu: Some(GpuSelector::Position(1)),
            ..Fault::hang("*")
        });
    });
    wait_until("the readings of one are old", || {
        used("gpu=\"1\"").is_none()
    });
    // Until the agent abandons the call, the other one is not read either.
    wait_until("the other one is read again", || {
        used("gpu=\"0\"").is_some()
    });
    assert_eq!(used("gpu=\"1\""), None);
    wait_until("it is in trouble", || {
        let lost = value(
            &exporter.metrics(),
            "gputopmon_troubles",
            "trouble=\"gpu_lost\"",
        );
        lost == Some(1.0)
    });
    assert!(!exporter.metrics().contains("gputopmon_process_memory"));
    let answer = exporter.request(&get("/fleet.json", "localhost"));
    let (_, body) = answer.split_once("\r\n\r\n").expect("an answer");
    let fleet: Value = serde_json::from_str(body).expect("the body is JSON");
    let seen = &fleet["hosts"][0];
    assert_eq!(seen["gpus"][1]["memory_used_bytes"], Value::Null, "{fleet}");
    assert_eq!(seen["memory_is_lower_bound"], true, "{fleet}");
}

#[test]
fn the_page_has_its_files_from_here_alone_and_names_no_command() {
    let mut host = Host::idle(["H100", "H100"]);
    host.start_sleep(1, 3 * GIB);
    let without = RunningExporter::on_free_port(&host, &[]);
    for path in ["/fleet.json", "/page.js"] {
        let answer = without.request(&get(path, "localhost"));
        assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    }
    let exporter = RunningExporter::on_free_port(&host, &["--page"]);
    let mut size = 0;
    for (path, content_type) in [
        ("/", "text/html"),
        ("/page.css", "text/css"),
        ("/page.js", "text/javascript"),
    ] {
        let answer = exporter.request(&get(path, "localhost"));
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        assert!(head.contains(content_type), "{head}");
        assert!(head.contains("default-src 'none'"), "{head}");
        // The only address is the name of a format.
        let body = body.replace("http://www.w3.org/2000/svg", "");
        assert!(
            !body.contains("//www") && !body.contains("https:"),
            "{body}"
        );
        assert!(!body.contains("innerHTML"), "{body}");
        size += body.len();
    }
    assert!(size < 60_000, "{size} bytes");
    let fleet = || -> Value {
        let answer = exporter.request(&get("/fleet.json", "localhost"));
        let (_, body) = answer.split_once("\r\n\r\n").expect("an answer");
        assert!(!body.contains("sleep"), "{body}");
        serde_json::from_str(body).expect("the body is JSON")
    };
    wait_until("the process and its user are seen", || {
        let fleet = fleet();
        let host = &fleet["hosts"][0];
        host["gpus"][1]["state"] == "busy" && host["users"][0] != Value::Null
    });
    let fleet = fleet();
    let [host] = fleet["hosts"].as_array().expect("a list").as_slice() else {
        panic!("one host: {fleet}");
    };
    assert_eq!(
        (&host["up"], &host["gpus"][0]["state"]),
        (&true.into(), &"free".into())
    );
    assert_eq!(host["users"][0]["gpus"], 1, "{fleet}");
    assert_eq!(fleet["troubles"], Value::Array(Vec::new()));
}
