//! Tests of sources, with shell scripts in place of agents.

use std::sync::mpsc::channel;

use tokio::time::timeout;

use super::*;

/// Runs a task to its end.
pub(super) fn run<T>(task: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(task)
}

/// Returns a source that is a shell script.
fn script(script: &str) -> Source {
    Source::Via(
        format!("sh -c {}", shell_words::quote(script))
            .parse()
            .unwrap(),
    )
}

/// Starts one source for each script. Must be called within the tokio runtime.
fn start<const N: usize>(scripts: [&str; N]) -> Sources {
    Sources::start(scripts.map(script).into(), None).unwrap()
}

/// Waits for the next event other than the state of a connection.
async fn next(sources: &mut Sources) -> SourceEvent {
    loop {
        let event = sources.next().await;
        if !matches!(event, SourceEvent::Connection(..)) {
            return event;
        }
    }
}

#[track_caller]
fn check_ended(text: &str, reason: &str) {
    let event = run(async { start([text]).next().await });
    assert_eq!(
        event,
        SourceEvent::Ended(HostKey::FIRST, reason.into()),
        "{text}"
    );
}

#[test]
fn the_last_line_on_standard_error_is_the_reason_for_the_end() {
    check_ended(
        "echo 'gputop: no more memory' >&2; echo >&2",
        "the command ended: no more memory",
    );
    check_ended("exit 1", "the command ended without a word");
    check_ended("printf '\\033[2J' >&2", "the command ended: \u{FFFD}[2J");
}

#[test]
fn a_standard_error_that_stays_open_delays_the_reason_only_a_little() {
    check_ended(
        "echo over >&2; exec 1>&-; read line",
        "the command ended: over",
    );
}

#[test]
fn a_line_of_a_later_agent_is_ignored_and_garbage_ends_the_source() {
    check_ended(
        "echo '{\"kind\":\"aura\"}'; echo nonsense",
        "the command: its line is not understood: expected ident at line 1 column 2: nonsense",
    );
}

#[test]
fn a_program_that_does_not_exist_is_named() {
    let missing: Source = Source::Via("/does/not/exist agent".parse().unwrap());
    let reason = "cannot start /does/not/exist: No such file or directory (os error 2)";
    run(async {
        let error = Sources::start(vec![missing.clone()], None).unwrap_err();
        assert_eq!(error.to_string(), reason);
        let mut sources = Sources::start(vec![missing, script("read line")], None).unwrap();
        assert_eq!(
            next(&mut sources).await,
            SourceEvent::Ended(HostKey(0), reason.into())
        );
        // Another try would fail as well.
        assert_eq!(
            sources.next().await,
            SourceEvent::Connection(HostKey(0), ConnectionState::WaitsForUser)
        );
    });
}

#[test]
fn commands_reach_the_agent_and_do_not_wait_for_it() {
    run(async {
        let mut sources = start(["exec sleep 60", "read line; echo \"$line\" >&2"]);
        let is_waiting = |host: &HostSource| host.connection.number == 0;
        while sources.list.iter().any(is_waiting) {
            _ = timeout(Duration::from_millis(1), sources.next()).await;
        }
        for _ in 0..10_000 {
            sources.send(HostKey(0), Command::Scan);
        }
        sources.send(HostKey(1), Command::Scan);
        let reason = r#"the command ended: {"command":"scan"}"#;
        assert_eq!(
            next(&mut sources).await,
            SourceEvent::Ended(HostKey(1), reason.into())
        );
    });
}

#[test]
fn an_agent_exits_when_its_connection_is_closed_and_is_reaped() {
    run(async {
        let mut sources = start(["cat > /dev/null"]);
        sources.restart(HostKey::FIRST, Duration::from_secs(1));
        while !sources.exiting.is_empty() {
            sources.reap();
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn events_of_a_connection_that_was_replaced_are_dropped() {
    run(async {
        let count = tempfile::NamedTempFile::new().unwrap();
        // The first run of the script ends at once; the second waits for a command and writes
        // `second`.
        let text = format!(
            "echo x >> {0}; if [ $(wc -l < {0}) = 1 ]; then exit; fi; read a; echo second >&2",
            count.path().display()
        );
        let mut sources = start([&text]);
        while std::fs::read(count.path()).unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        sources.restart(HostKey::FIRST, Duration::from_secs(1));
        assert_eq!(
            next(&mut sources).await,
            SourceEvent::Ended(HostKey::FIRST, "the command ended: second".into())
        );
    });
}

/// Other hosts have these things in their start files.
#[test]
fn lines_before_those_of_the_agent_are_skipped() {
    let reply = r#"{"kind":"reply","process":{"pid":1,"start_ticks":1},"outcome":{"kind":"refused","reason":""}}"#;
    for text in [
        format!("echo Welcome to gpu-02; echo; echo '{reply}'; read line"),
        format!("echo '{reply}'; read line"),
    ] {
        let event = run(async { next(&mut start([&text])).await });
        assert!(matches!(event, SourceEvent::Line(..)), "{event:?}");
    }
    check_ended(
        "echo Welcome to gpu-02; echo again",
        "the command: its line is not understood: expected value at line 1 column 1: Welcome to gpu-02",
    );
    check_ended(
        "echo Welcome; echo gputop: command not found >&2",
        "the command ended: command not found",
    );
    check_ended(
        "yes | head -c 1000000; read line",
        "the command: its line is not understood: expected value at line 1 column 1: y",
    );
}

#[test]
fn a_command_that_ends_is_started_again_by_itself_but_not_in_a_loop() {
    run(async {
        let count = tempfile::NamedTempFile::new().unwrap();
        let text = format!("echo x >> {}; exit 1", count.path().display());
        let mut sources = start([&text]);
        let begin = Instant::now();
        let mut waits = Vec::new();
        while waits.len() < 2 {
            if let SourceEvent::Connection(_, ConnectionState::TriesAgain(after)) =
                sources.next().await
            {
                waits.push(after);
            }
        }
        assert!(begin.elapsed() >= Duration::from_millis(790), "{waits:?}");
        assert_eq!(std::fs::read_to_string(count.path()).unwrap(), "x\nx\n");
        assert!(waits[1] > Duration::from_secs(1), "{waits:?}");
    });
}

#[test]
fn a_command_that_was_refused_waits_for_the_user() {
    run(async {
        let mut sources = start(["echo 'alice@gpu-02: Permission denied (publickey).' >&2"]);
        let ended = "the command ended: alice@gpu-02: Permission denied (publickey).";
        assert_eq!(
            sources.next().await,
            SourceEvent::Ended(HostKey::FIRST, ended.into())
        );
        assert_eq!(
            sources.next().await,
            SourceEvent::Connection(HostKey::FIRST, ConnectionState::WaitsForUser)
        );
    });
}

#[test]
fn a_running_command_shows_its_standard_error_as_a_note() {
    run(async {
        let mut sources = start(["echo 'Warning: added gpu-02 to known hosts' >&2; read line"]);
        let note = SourceEvent::Note(
            HostKey::FIRST,
            "Warning: added gpu-02 to known hosts".into(),
        );
        assert_eq!(sources.next().await, note);
    });
}

#[test]
fn a_command_has_no_controlling_terminal() {
    check_ended(
        "if (: < /dev/tty) 2> /dev/null; then echo has one; else echo has none; fi >&2",
        "the command ended: has none",
    );
    check_ended(
        "read _ _ _ _ _ session _ < /proc/$$/stat; test $session = $$ && echo leads >&2",
        "the command ended: leads",
    );
}

/// A recorder gets no line that a replay would not understand.
#[test]
fn a_tap_gets_each_raw_line_that_is_understood_with_its_host() {
    let (sender, lines) = channel();
    let tap = Tap::new(move |host, _, line: &[u8]| _ = sender.send((host, line.to_vec())));
    let reply = |pid: u32| {
        format!(
            r#"{{"kind":"reply", "process":{{"pid":{pid},"start_ticks":1}},"outcome":{{"kind":"refused","reason":""}}}}"#
        )
    };
    run(async {
        let left = format!(
            "echo '{}'; echo '{{\"kind\":\"aura\"}}'; echo '{}'",
            reply(1),
            reply(2)
        );
        let right = format!("echo '{}'", reply(3));
        let mut sources =
            Sources::start([script(&left), script(&right)].into(), Some(tap)).unwrap();
        let mut ended = 0;
        while ended < 2 {
            ended += u32::from(matches!(sources.next().await, SourceEvent::Ended(..)));
        }
    });
    let mut lines: Vec<(u16, String)> = lines
        .iter()
        .map(|(host, line)| (host.0, String::from_utf8(line).unwrap()))
        .collect();
    lines.sort_by_key(|(host, _)| *host);
    assert_eq!(lines, [(0, reply(1)), (0, reply(2)), (1, reply(3))]);
}

/// A checkpoint replaces the history of its host, so a host may send one, not one after the other.
#[test]
fn one_checkpoint_of_a_connection_is_the_past_and_further_ones_are_left_out() {
    let checkpoint = r#"{"kind":"checkpoint","version":1,"time_ms":1,"unix_time_ms":1,"state":{}}"#;
    let text = format!("echo '{checkpoint}'; echo '{checkpoint}'; echo over >&2");
    run(async {
        let mut sources = start([text.as_str()]);
        let past = sources.next().await;
        assert!(
            matches!(&past, SourceEvent::Past(HostKey::FIRST, past) if past.version == 1),
            "{past:?}"
        );
        assert_eq!(
            sources.next().await,
            SourceEvent::Ended(HostKey::FIRST, "the command ended: over".into())
        );
    });
}
