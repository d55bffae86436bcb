//! Notifications: what reaches a server, what a bad server costs, and where a secret goes.

use std::fmt::Write;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::host::{GIB, Host};
use crate::http_server::{Answer, HttpServer, Request, certificate};
use crate::process::{
    ChildProcess, Output, ProcessHandle, children_with_argument, now, run, wait_until,
};
use crate::readme::section;
use crate::record::{RunningRecorder, lines};

/// Part of each URL: nothing but the server may see it.
const SECRET: &str = "hunter2";

/// Adds a table to the configuration of a host, with the URL in a file that only its owner can read.
pub(crate) fn add_notification(host: &Host, name: &str, url: &str, more: &str) {
    let folder = host.path("config/gputop");
    fs::create_dir_all(&folder).expect("/tmp has room");
    let url_file = write_secret(&folder, name, url);
    let file = folder.join("config.toml");
    let mut text = fs::read_to_string(&file).unwrap_or_default();
    let url_file = url_file.display();
    write!(text, "[notify.{name}]\nurl_file = '{url_file}'\n{more}\n").expect("a text grows");
    fs::write(&file, text).expect("/tmp has room");
}

fn write_secret(folder: &Path, name: &str, secret: &str) -> PathBuf {
    let file = folder.join(name);
    fs::write(&file, format!("{secret}\n")).expect("/tmp has room");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("the file is ours");
    file
}

/// Runs `gputop notify` with more variables. Nothing that it prints has the secret.
#[track_caller]
fn notify(host: &Host, name: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = host.gputop(["notify", name]);
    let output = run(command.envs(variables.iter().copied()));
    let printed = format!("{}{}", output.text(), output.stderr);
    assert!(!printed.contains(SECRET), "{printed}");
    output
}

/// Checks that the message does not arrive, and that the only sentence says why.
#[track_caller]
fn check_failure(host: &Host, name: &str, variables: &[(&str, &str)], cause: &str) {
    let output = notify(host, name, variables);
    let expected = format!("gputop: notification {name}: the message did not arrive: {cause}\n");
    assert_eq!((output.code, output.stderr), (1, expected));
}

#[test]
fn each_service_gets_the_body_that_it_documents() {
    let host = Host::new([]);
    let token = write_secret(&host.path(""), "token", "tk_hunter2");
    for kind in ["ntfy", "slack", "discord", "mattermost", "teams", "webhook"] {
        let server = HttpServer::start(Answer::OK);
        let takes_token = ["ntfy", "webhook"].contains(&kind);
        let more = if takes_token {
            format!("kind = '{kind}'\ntoken_file = '{}'", token.display())
        } else {
            format!("kind = '{kind}'")
        };
        add_notification(&host, kind, &server.url("services/hunter2"), &more);
        let output = notify(&host, kind, &[]);
        let expected = format!("notification {kind}: the server took the message\n");
        assert_eq!(
            (output.code, output.text()),
            (0, expected),
            "{}",
            output.stderr
        );
        let Request {
            first_line,
            headers,
            body,
        } = server.next();
        let path = if kind == "ntfy" {
            "/services/"
        } else {
            "/services/hunter2"
        };
        assert_eq!(first_line, format!("POST {path} HTTP/1.1"));
        let has = |line: &str| headers.iter().any(|header| header == line);
        assert!(
            has("content-type: application/json; charset=utf-8"),
            "{headers:?}"
        );
        assert_eq!(
            has("authorization: Bearer tk_hunter2"),
            takes_token,
            "{headers:?}"
        );
        let file = format!(
            "{}/tests/data/notify/{kind}.json",
            env!("CARGO_MANIFEST_DIR")
        );
        let schema = fs::read_to_string(file).expect("each service has a schema");
        let schema = serde_json::from_str(&schema).expect("a schema is JSON");
        let body: Value = serde_json::from_str(&body).expect("each body is JSON");
        let validator = jsonschema::validator_for(&schema).expect("the schema is valid");
        let errors: Vec<String> = validator
            .iter_errors(&body)
            .map(|error| error.to_string())
            .collect();
        assert_eq!(errors, [""; 0], "{kind}: {body}");
        assert!(body.to_string().contains("gputop can reach you"), "{body}");
    }
}

#[test]
fn a_bad_server_is_described_in_one_sentence_without_the_url() {
    let not_followed =
        "the server wants to redirect the message (HTTP 308), which gputop does not follow";
    for (answer, cause) in [
        (
            Answer::Text(
                "HTTP/1.1 308 Permanent Redirect\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
            ),
            not_followed,
        ),
        (
            Answer::Text("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"),
            "the server does not know the URL (HTTP 404)",
        ),
        (
            Answer::Text("HTTP/1.1 403 Forbidden\r\ncontent-length: 7\r\n\r\nhunter2"),
            "the server refuses the URL or the token (HTTP 403)",
        ),
        (
            Answer::Text("HTTP/1.1 500 hunter2\r\ncontent-length: 0\r\n\r\n"),
            "the server failed (HTTP 500)",
        ),
        (
            Answer::Text("hunter2 hunter2\r\n\r\n"),
            "the answer is not HTTP, or has too many headers",
        ),
        (Answer::Text(""), "the server closed the connection"),
        (
            Answer::EndlessHeaders,
            "the answer is not HTTP, or has too many headers",
        ),
        (Answer::Never, "the server did not answer within 10 s"),
    ] {
        let server = HttpServer::start(answer);
        let host = Host::new([]);
        add_notification(&host, "x", &server.url(SECRET), "kind = 'slack'");
        check_failure(&host, "x", &[], cause);
    }
    let host = Host::new([]);
    add_notification(
        &host,
        "dead",
        &format!("http://127.0.0.1:1/{SECRET}"),
        "kind = 'slack'",
    );
    check_failure(&host, "dead", &[], "the server refuses the connection");
}

#[test]
fn the_body_of_an_answer_is_not_read() {
    let server = HttpServer::start(Answer::Gigabyte);
    let host = Host::new([]);
    add_notification(&host, "huge", &server.url(SECRET), "kind = 'webhook'");
    let started = now();
    assert_eq!(notify(&host, "huge", &[]).code, 0);
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn certificates_are_checked_against_the_roots_of_the_system() {
    let host = Host::new([]);
    let authority = |name: &str| host.path(name).display().to_string();
    let untrusted = "the certificate of the server is from an authority that this system does not trust; \
                     SSL_CERT_FILE can name a file of certificates";
    for (name, of_host, is_valid, trusted, cause) in [
        ("good", "localhost", true, true, ""),
        ("foreign", "localhost", true, false, untrusted),
        (
            "other",
            "other.example",
            true,
            true,
            "the certificate of the server is for another name",
        ),
        (
            "old",
            "localhost",
            false,
            true,
            "the certificate of the server has expired",
        ),
    ] {
        let (pem, tls) = certificate(name, of_host, is_valid);
        fs::write(host.path(name), pem).expect("/tmp has room");
        let server = HttpServer::start_with_tls(tls);
        let url = format!("https://localhost:{}/{SECRET}", server.port);
        add_notification(&host, name, &url, "kind = 'slack'");
        let roots = authority(if trusted { name } else { "good" });
        let variables = [("SSL_CERT_FILE", roots.as_str())];
        if cause.is_empty() {
            let output = notify(&host, name, &variables);
            assert_eq!(output.code, 0, "{}", output.stderr);
            assert_eq!(server.next().first_line, format!("POST /{SECRET} HTTP/1.1"));
        } else {
            check_failure(&host, name, &variables, cause);
        }
    }
}

#[test]
fn the_proxy_of_the_environment_is_used() {
    let proxy = HttpServer::start(Answer::Text(
        "HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n",
    ));
    let host = Host::new([]);
    add_notification(
        &host,
        "x",
        &format!("https://hooks.invalid/{SECRET}"),
        "kind = 'slack'",
    );
    let url = proxy.url("");
    for variable in ["HTTPS_PROXY", "https_proxy"] {
        check_failure(
            &host,
            "x",
            &[(variable, &url)],
            "the proxy does not connect to the server",
        );
        let request = proxy.next();
        assert_eq!(request.first_line, "CONNECT hooks.invalid:443 HTTP/1.1");
    }
    let excepted = [("HTTPS_PROXY", url.as_str()), ("NO_PROXY", "hooks.invalid")];
    check_failure(&host, "x", &excepted, "the name of its host is unknown");
    let not_http = [("HTTPS_PROXY", "socks5://127.0.0.1:1")];
    check_failure(
        &host,
        "x",
        &not_http,
        "HTTPS_PROXY is not the URL of an HTTP proxy",
    );
}

#[test]
fn a_refused_notification_costs_neither_the_recorder_nor_the_others() {
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, GIB);
    let server = HttpServer::start(Answer::OK);
    add_notification(&host, "good", &server.url(SECRET), "kind = 'webhook'");
    add_notification(&host, "open", &server.url(SECRET), "kind = 'webhook'");
    add_notification(&host, "wrong", &server.url(SECRET), "kind = 'pager'");
    let open = host.path("config/gputop/open");
    fs::set_permissions(&open, Permissions::from_mode(0o644)).expect("the file is ours");
    let file = host.path("recordings/night.jsonl.zst");
    let path = file.display().to_string();
    let url = format!("https://hooks.example/{SECRET}");
    let names = ["good", "open", "wrong", "none", &url];
    let args: Vec<&str> = ["-o", &path]
        .into_iter()
        .chain(names.iter().flat_map(|name| ["--notify", name]))
        .collect();
    let recorder = RunningRecorder::start(&host, &file, &args);
    kill_agent(recorder.pid());
    let body: Value = serde_json::from_str(&server.next().body).expect("the body is JSON");
    assert_eq!(
        (&body["kind"], &body["phase"]),
        (&"host_lost".into(), &"begins".into())
    );
    let (code, messages) = recorder.end(Signal::INT);
    assert_eq!(code, 0);
    for sentence in [
        format!(
            "gputop: notification open is not in use: {} can be read by other users: make it yours alone with `chmod 600`\n",
            open.display()
        ),
        ": notify.wrong: `kind` is one of ntfy, slack, discord, mattermost, teams, webhook, not `pager`\n".to_owned(),
        "gputop: notification none is not in use: there is no [notify.none] in ".to_owned(),
        "gputop: a notification is not in use: --notify takes the NAME of a [notify.NAME] table, or a URL of this computer; ".to_owned(),
    ] {
        assert_eq!(messages.matches(&sentence).count(), 1, "{sentence}\n{messages}");
    }
    assert!(!messages.contains(SECRET), "{messages}");
}

/// Kills the agent of a recorder, which starts another one after ten seconds.
fn kill_agent(recorder: u32) {
    let [agent] = children_with_argument(recorder, "agent")[..] else {
        panic!("the recorder has one agent");
    };
    ProcessHandle::open(agent).kill();
}

#[test]
fn bad_servers_delay_neither_the_recorder_nor_other_notifications() {
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, GIB);
    let [good, slow, huge, endless] = [
        Answer::OK,
        Answer::Never,
        Answer::Gigabyte,
        Answer::EndlessHeaders,
    ]
    .map(HttpServer::start);
    add_notification(&host, "good", &good.url(SECRET), "kind = 'webhook'");
    add_notification(
        &host,
        "ends",
        &good.url(SECRET),
        "kind = 'webhook'\nkinds = ['leak']",
    );
    add_notification(&host, "slow", &slow.url(SECRET), "kind = 'webhook'");
    add_notification(&host, "huge", &huge.url(SECRET), "kind = 'webhook'");
    add_notification(&host, "endless", &endless.url(SECRET), "kind = 'webhook'");
    add_notification(
        &host,
        "dead",
        &format!("http://127.0.0.1:1/{SECRET}"),
        "kind = 'webhook'",
    );
    let file = host.path("recordings/night.jsonl.zst");
    let path = file.display().to_string();
    let names = ["good", "ends", "slow", "huge", "endless", "dead"];
    let args: Vec<&str> = ["-o", &path]
        .into_iter()
        .chain(names.iter().flat_map(|name| ["--notify", name]))
        .collect();
    let recorder = RunningRecorder::start(&host, &file, &args);
    let started = now();
    kill_agent(recorder.pid());
    let kind = |request: Request| {
        let body: Value = serde_json::from_str(&request.body).expect("the body is JSON");
        body["kind"].as_str().expect("a kind is text").to_owned()
    };
    assert_eq!(kind(good.next()), "host_lost");
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(kind(good.next()), "host_answers");
    // The slow server still has its first message: the restart of the agent takes ten seconds, too.
    wait_until("each failure", || {
        let messages = recorder.messages();
        messages.contains("slow") && messages.contains("endless") && messages.contains("dead")
    });
    let ended = now();
    let (code, messages) = recorder.end(Signal::INT);
    assert_eq!(code, 0);
    assert!(
        ended.elapsed() < Duration::from_secs(6),
        "{:?}",
        ended.elapsed()
    );
    for sentence in [
        "notification slow: messages do not arrive: the server did not answer within 10 s; gputop tries again\n",
        "notification endless: messages do not arrive: the answer is not HTTP, or has too many headers\n",
        "notification dead: messages do not arrive: the server refuses the connection; gputop tries again\n",
        "notification slow: 2 messages were lost\n",
        "notification endless: 2 messages were lost\n",
        "notification dead: 2 messages were lost\n",
    ] {
        assert_eq!(
            messages.matches(sentence).count(),
            1,
            "{sentence}\n{messages}"
        );
    }
    assert!(
        !messages.contains("good") && !messages.contains("huge"),
        "{messages}"
    );
    assert!(!messages.contains(SECRET), "{messages}");
    assert_eq!(good.requests_left(), 0);
    // The second agent counts its lines anew.
    let sequences: Vec<u64> = lines(&file)
        .iter()
        .filter_map(|line| line["sequence"].as_u64())
        .collect();
    let restart = sequences.iter().skip(1).position(|sequence| *sequence == 1);
    let (before, after) = sequences.split_at(1 + restart.expect("the agent was restarted"));
    for part in [before, after] {
        assert!(
            part.iter().copied().eq(1..=part.len() as u64),
            "{sequences:?}"
        );
    }
}

#[test]
fn a_server_that_is_busy_gets_the_message_a_few_seconds_later() {
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, GIB);
    let busy = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n";
    let server = HttpServer::start_with_answers([Answer::Text(busy), Answer::OK]);
    add_notification(&host, "x", &server.url(SECRET), "kind = 'webhook'");
    let file = host.path("recordings/night.jsonl.zst");
    let path = file.display().to_string();
    let recorder = RunningRecorder::start(&host, &file, &["-o", &path, "--notify", "x"]);
    kill_agent(recorder.pid());
    let [first, second] = [server.next(), server.next()];
    assert_eq!(first.body, second.body);
    let again = "gputop: notification x: messages arrive again; none was lost\n";
    wait_until("messages arrive again", || {
        recorder.messages().contains(again)
    });
    let (code, messages) = recorder.end(Signal::INT);
    let failed = "gputop: notification x: messages do not arrive: the server failed (HTTP 503); gputop tries again\n";
    assert!(
        code == 0 && messages.matches(failed).count() == 1,
        "{messages}"
    );
    assert!(
        !messages.contains("lost\n") || messages.contains(again),
        "{messages}"
    );
}

#[test]
fn the_variable_with_a_url_reaches_no_other_process() {
    const VARIABLE: &str = "TEAM_URL";
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, GIB);
    let server = HttpServer::start(Answer::OK);
    let folder = host.path("config/gputop");
    fs::create_dir_all(&folder).expect("/tmp has room");
    let table = format!("[notify.team]\nkind = 'webhook'\nurl_env = '{VARIABLE}'\n");
    fs::write(folder.join("config.toml"), table).expect("/tmp has room");
    let via = host.install_script(
        "via",
        &format!(
            "#!/bin/sh\nenv >\"$0.env\"\nexec {} agent --interval 100ms\n",
            env!("CARGO_BIN_EXE_gputop")
        ),
    );
    let file = host.path("recordings/night.jsonl.zst");
    let path = file.display().to_string();
    let via_command = format!("far={}", via.display());
    let args = [
        "-o",
        &path,
        "--notify",
        "team",
        "--via",
        &via_command,
        "--local",
    ];
    let recorder =
        RunningRecorder::start_with(&host, &file, &args, &[(VARIABLE, &server.url(SECRET))]);
    let agents = children_with_argument(recorder.pid(), "agent");
    assert_eq!(agents.len(), 2, "one is the command of --via by now");
    for agent in &agents {
        let environment = fs::read(format!("/proc/{agent}/environ")).expect("the agent is ours");
        let environment = String::from_utf8_lossy(&environment);
        assert!(environment.contains("FAKE_NVML_WORLD="), "{environment}");
        assert!(
            !environment.contains(SECRET) && !environment.contains(VARIABLE),
            "{environment}"
        );
    }
    let seen = fs::read_to_string(host.path("via.env")).expect("the command has started");
    assert!(
        seen.contains("FAKE_NVML_WORLD=") && !seen.contains(VARIABLE),
        "{seen}"
    );
    let arguments =
        fs::read(format!("/proc/{}/cmdline", recorder.pid())).expect("the recorder is ours");
    assert!(!String::from_utf8_lossy(&arguments).contains(SECRET));
    // The notification works all the same.
    ProcessHandle::open(agents[0]).kill();
    assert_eq!(server.next().first_line, format!("POST /{SECRET} HTTP/1.1"));
    let (code, messages) = recorder.end(Signal::INT);
    assert!(code == 0 && !messages.contains(SECRET), "{messages}");
    let text = crate::record::play(&file).text();
    assert!(!text.contains(SECRET) && !text.contains(VARIABLE));
}

#[test]
fn not_even_a_short_lived_process_gets_the_variable_with_a_url() {
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, GIB);
    let folder = host.path("config/gputop");
    fs::create_dir_all(&folder).expect("/tmp has room");
    // The variables of tables that are not in use are removed, too.
    let table = "[notify.team]\nkind = 'webhook'\nurl_env = 'TEAM_URL'\n\
                 [notify.phone]\nkind = 'ntfy'\nurl_env = 'PHONE_URL'\n";
    fs::write(folder.join("config.toml"), table).expect("/tmp has room");
    let (trace, file) = (host.path("trace"), host.path("recordings/night.jsonl.zst"));
    let mut strace = Command::new("strace");
    strace
        .args(["-f", "-v", "-s", "100000", "-e", "trace=execve", "-o"])
        .arg(&trace)
        .arg(env!("CARGO_BIN_EXE_gputop"))
        .args(["record", "--interval", "100ms", "--notify", "team", "-o"])
        .arg(&file)
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    host.set_environment(&mut strace)
        .env("TEAM_URL", format!("http://127.0.0.1:1/{SECRET}"))
        .env("PHONE_URL", format!("http://127.0.0.1:1/{SECRET}"));
    if !Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .status()
        .is_ok_and(|status| status.success())
    {
        return crate::print_note("skipped: strace cannot run here");
    }
    let mut strace = ChildProcess::spawn(&mut strace);
    let started = || fs::read_to_string(&trace).unwrap_or_default();
    wait_until("the agent was started", || {
        started().contains("\"agent\", ")
    });
    let [recorder] = children_with_argument(strace.pid(), "record")[..] else {
        panic!("strace runs one recorder");
    };
    wait_until("the recording has lines", || {
        fs::metadata(&file).is_ok_and(|file| file.len() > 0)
    });
    ProcessHandle::open(recorder).signal(Signal::INT);
    strace.wait();
    let trace = started();
    let programs: Vec<&str> = trace
        .lines()
        .filter(|line| line.contains("execve("))
        .collect();
    let (first, others) = programs.split_first().expect("strace traces its program");
    assert!(first.contains(SECRET), "{first}");
    assert!(
        others.iter().any(|line| line.contains("file-action")),
        "{trace}"
    );
    for program in others {
        assert!(
            !program.contains(SECRET) && !program.contains("_URL="),
            "{program}"
        );
    }
}

#[test]
fn the_lines_of_the_page_send_a_message() {
    let section = section("docs/alerts.md", "Alerts away from the screen");
    let (_, block) = section
        .split_once("```bash\n")
        .expect("the section has commands");
    let (block, _) = block.split_once("\n```").expect("the block ends");
    let (try_it, record) = block.rsplit_once('\n').expect("the last line records");
    assert_eq!(record, "gputop record --notify team");

    let mut host = Host::new(["H100"]);
    host.start_sleep(0, GIB);
    let server = HttpServer::start(Answer::OK);
    let url = host.path("pasted");
    fs::write(&url, format!("{}\n", server.url(SECRET))).expect("/tmp has room");
    let folder = host.path("bin");
    fs::create_dir(&folder).expect("/tmp has room");
    symlink(env!("CARGO_BIN_EXE_gputop"), folder.join("gputop")).expect("/tmp has room");
    let shell = |lines: &str| {
        let mut shell = Command::new("sh");
        host.set_environment(shell.args(["-ec", lines]))
            .env_remove("XDG_CONFIG_HOME")
            .env("HOME", host.path(""))
            .env(
                "PATH",
                format!(
                    "{}:{}",
                    folder.display(),
                    std::env::var("PATH").unwrap_or_default()
                ),
            );
        shell
    };
    let tried = shell(try_it)
        .stdin(File::open(&url).expect("the file exists"))
        .output()
        .expect("there is a shell");
    assert!(tried.status.success(), "{tried:?}");
    let text = |server: &HttpServer| {
        let body: Value = serde_json::from_str(&server.next().body).expect("the body is JSON");
        body["text"].as_str().expect("the text of Slack").to_owned()
    };
    assert!(text(&server).starts_with("gputop can reach you"));
    let recorder = ChildProcess::spawn(
        shell(&format!("exec {record}"))
            .stdin(Stdio::null())
            .stderr(Stdio::null()),
    );
    wait_until("the agent", || {
        children_with_argument(recorder.pid(), "agent").len() == 1
    });
    kill_agent(recorder.pid());
    assert!(text(&server).contains("the agent ended"));
}
