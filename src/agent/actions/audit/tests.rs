//! Tests of the audit log with real files.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use super::*;
use crate::base::units::Moment;

const PATIENCE: Duration = Duration::from_secs(20);

/// The state directory of a test.
pub(in crate::agent::actions) struct TestHome(PathBuf);

impl TestHome {
    pub(in crate::agent::actions) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "gputop-audit-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let place = std::env::temp_dir().join(name);
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&place)
            .expect("it is new");
        Self(place)
    }

    pub(in crate::agent::actions) fn path(&self) -> &Path {
        &self.0
    }

    fn file(&self) -> PathBuf {
        self.0.join("gputop/kills.jsonl")
    }

    /// Returns the lines of the log.
    #[track_caller]
    pub(in crate::agent::actions) fn lines(&self) -> Vec<Value> {
        let Ok(text) = fs::read_to_string(self.file()) else {
            return Vec::new();
        };
        text.lines()
            .map(|line| serde_json::from_str(line).expect("each line is JSON"))
            .collect()
    }

    /// Records a signal and its effect. Returns the replies to the viewer.
    fn record_one_signal(&self) -> Vec<Outcome> {
        let (sender, received) = mpsc::channel();
        let replies: ReplySender =
            Arc::new(move |reply| sender.send(reply).expect("the test receives"));
        let mut audit = Audit::new(Some(self.0.join("gputop")), replies);
        audit.signal(record());
        audit.effect(record().process, &Outcome::Ended { at: Moment(0) });
        audit.finish(PATIENCE);
        received.try_iter().map(|reply| reply.outcome).collect()
    }

    /// Expects that nothing is recorded, and that a reply gives the reason.
    #[track_caller]
    fn expect_failure(&self, because: &str) {
        match self.record_one_signal().as_slice() {
            [Outcome::NotRecorded { reason }] => {
                assert!(reason.as_str().contains(because), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for TestHome {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

fn record() -> SignalRecord {
    SignalRecord {
        process: ProcessId {
            pid: 4711,
            start_ticks: Some(99),
        },
        comm: Text::new("py\x1b[2J"),
        argv: Some(
            ["python", "train.py\n"]
                .map(Text::from)
                .into_iter()
                .collect(),
        ),
        owner_uid: Some(4_000_001),
        owner: Some(UserName(4_000_001)),
        signal: Signal::Kill,
        mode: SignalMode::Job,
    }
}

#[test]
fn a_signal_and_its_effect_are_two_lines_with_one_id() {
    let home = TestHome::new();
    assert_eq!(home.record_one_signal(), []);
    let lines = home.lines();
    let [act, end] = lines.as_slice() else {
        panic!("{lines:?}")
    };
    let pick = |names: &[&str]| {
        names
            .iter()
            .map(|name| act[name].clone())
            .collect::<Value>()
    };
    assert_eq!(
        pick(&[
            "pid",
            "start_ticks",
            "comm",
            "argv",
            "owner_uid",
            "owner",
            "signal",
            "mode"
        ]),
        serde_json::json!([
            4711,
            99,
            "py\u{FFFD}[2J",
            ["python", "train.py\u{FFFD}"],
            4_000_001,
            "uid 4000001",
            "KILL",
            "job"
        ])
    );
    assert_eq!(act["uid"], getuid().as_raw());
    assert!(
        act["boot_id"].as_str().is_some_and(|id| id.len() == 36)
            && act["unix_time_ms"].as_u64() > Some(1_700_000_000_000)
    );
    assert_eq!(
        (&end["id"], end["outcome"].as_str()),
        (&act["id"], Some("ended"))
    );
}

#[test]
fn only_the_owner_can_read_the_log_and_lines_are_appended() {
    let home = TestHome::new();
    home.record_one_signal();
    let mode = |path: &Path| {
        fs::metadata(path)
            .expect("it is there")
            .permissions()
            .mode()
            & 0o777
    };
    let folder = home.path().join("gputop");
    assert_eq!((mode(&folder), mode(&home.file())), (0o700, 0o600));
    // Another program made the log readable.
    fs::set_permissions(home.file(), fs::Permissions::from_mode(0o666)).expect("it is ours");
    home.record_one_signal();
    assert_eq!((mode(&home.file()), home.lines().len()), (0o600, 4));
}

#[test]
fn symbolic_links_are_not_followed() {
    let home = TestHome::new();
    let target = home.path().join("target");
    fs::write(&target, "precious").expect("it is new");
    fs::create_dir(home.path().join("gputop")).expect("it is new");
    symlink(&target, home.file()).expect("it is new");
    home.expect_failure("symbolic link");
    assert_eq!(
        fs::read_to_string(&target).ok().as_deref(),
        Some("precious")
    );

    let home = TestHome::new();
    fs::create_dir(home.path().join("elsewhere")).expect("it is new");
    symlink(home.path().join("elsewhere"), home.path().join("gputop")).expect("it is new");
    home.expect_failure("symbolic link");
}

#[test]
fn only_a_plain_file_of_the_user_is_written() {
    let home = TestHome::new();
    fs::create_dir_all(home.file()).expect("it is new");
    home.expect_failure("directory");

    let home = TestHome::new();
    fs::create_dir(home.path().join("gputop")).expect("it is new");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        home.file(),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .expect("anyone may");
    // Opening a pipe without a reader would block.
    home.expect_failure("No such device");

    if std::os::unix::fs::chown(home.path(), Some(65_534), None).is_ok() {
        let home = TestHome::new();
        home.record_one_signal();
        std::os::unix::fs::chown(home.file(), Some(65_534), None).expect("root may");
        home.expect_failure("someone else");
    }
}

#[test]
fn without_a_home_the_failure_is_reported_once() {
    let (sender, replies) = mpsc::channel();
    let mut audit = Audit::new(
        None,
        Arc::new(move |reply| sender.send(reply).expect("the test receives")),
    );
    for _ in 0..3 {
        audit.signal(record());
        audit.effect(
            record().process,
            &Outcome::Alive {
                state: crate::protocol::snapshot::State::Sleeping,
                wchan: None,
                seconds: 2,
            },
        );
    }
    audit.finish(PATIENCE);
    assert_eq!(replies.try_iter().count(), 1);
}

#[test]
fn an_effect_is_recorded_again_only_after_another_effect() {
    let home = TestHome::new();
    let mut audit = Audit::new(
        Some(home.path().join("gputop")),
        Arc::new(|reply| panic!("{reply:?}")),
    );
    let process = record().process;
    let alive = Outcome::Alive {
        state: crate::protocol::snapshot::State::DiskSleep,
        wchan: None,
        seconds: 2,
    };
    audit.effect(process, &alive);
    audit.signal(record());
    let sent = Outcome::Sent {
        signal: Signal::Kill,
        at: Moment(0),
    };
    let ended = Outcome::Ended { at: Moment(0) };
    for outcome in [&sent, &alive, &alive, &ended, &ended] {
        audit.effect(process, outcome);
    }
    audit.finish(PATIENCE);
    let words: Vec<Value> = home
        .lines()
        .iter()
        .map(|line| line["outcome"].clone())
        .collect();
    assert_eq!(words, [Value::Null, "alive".into(), "ended".into()]);
}
