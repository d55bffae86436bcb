//! The first line of a host in trouble: what it names first, until when, and what it never names.

use super::*;
use crate::app::event::Event;
use crate::base::time::ViewerTime;
use crate::protocol::snapshot::{Throttle, Xid};

/// A viewer of 80 by 24 that sees a host with so many GPUs and a process on each.
struct TroubledHost {
    app: App,
    host: Snapshot,
}

impl TroubledHost {
    fn new(gpus: u32) -> Self {
        let host = (0..gpus).fold(host(gpus), |host, gpu| {
            host.with(
                100 + gpu,
                "python serve.py",
                gpu as usize,
                Bytes::from_gib(20),
            )
        });
        let mut app = App::new(AppOptions::default());
        app.update(Event::Resized(80, 24));
        let mut watch = Self { app, host };
        watch.pass(3, |_, _| {});
        watch
    }

    /// Lets seconds pass, in each of which the host changes.
    fn pass(&mut self, seconds: u64, change: impl Fn(&mut Snapshot, u64)) {
        for second in 0..seconds {
            self.host = self.host.later(1);
            change(&mut self.host, second);
            let line = Line::Full(Box::new(self.host.clone()));
            self.app.update(Event::Line(HostKey::FIRST, Box::new(line)));
            self.app
                .update(Event::Tick(ViewerTime::new(Duration::from_secs(1))));
        }
    }

    fn press(&mut self) {
        self.app.update(Event::Key(KeyEvent::from(KeyCode::Down)));
    }

    /// The first line after the name of the program.
    fn first_line(&self) -> String {
        let screen = screen(Theme::new(false, ColourDepth::Sixteen), &self.app, 80, 24);
        let line = screen.lines().next().unwrap().trim_matches('"');
        line.strip_prefix("gputop ")
            .unwrap_or(line)
            .trim()
            .to_owned()
    }

    #[track_caller]
    fn begins_with(&self, words: &str) {
        let line = self.first_line();
        assert!(
            line.starts_with(words),
            "`{line}` does not begin with `{words}`"
        );
    }
}

fn trouble(cause: Cause, since: Moment) -> Trouble {
    let call = Some("nvmlDeviceGetPowerUsage".into());
    Trouble {
        cause,
        sentence: "GPU 3 does not answer".into(),
        call,
        since,
    }
}

/// Keeps the processes on GPU 3 from being listed. The GPU answers.
fn fail(host: &mut Snapshot, cause: Cause) {
    let call = Some("nvmlDeviceGetComputeRunningProcesses_v3".into());
    let sentence = "the driver cannot list the processes on GPU 3".into();
    host.gpus[3].trouble = Some(Trouble {
        cause,
        sentence,
        call,
        since: host.at,
    });
}

/// Lets the process on GPU 2 grow by 80 MiB a second.
fn grow(host: &mut Snapshot, _: u64) {
    let held = host.gpus[2].processes[0].memory.unwrap() + Bytes::from_mib(80);
    let held = held.min(host.gpus[2].load.memory_total.unwrap());
    (
        host.gpus[2].processes[0].memory,
        host.gpus[2].load.memory_used,
    ) = (Ok(held), Ok(held));
}

#[test]
fn each_trouble_comes_first_in_the_first_line() {
    for gpus in [8, 16] {
        let mut healthy = TroubledHost::new(gpus);
        healthy.pass(5, |_, _| {});
        healthy.begins_with("box ");
        let says = |words: &str, seconds: u64, change: fn(&mut Snapshot, u64)| {
            let mut watch = TroubledHost::new(gpus);
            watch.pass(seconds, change);
            watch.begins_with(words);
        };
        says("GPU 3 lost", 5, |host, _| {
            host.gpus[3].trouble = Some(trouble(Cause::Lost, host.at));
        });
        says("GPU 3 hung", 5, |host, _| {
            host.gpus[3].trouble = Some(trouble(Cause::Hung, host.at));
        });
        says("GPU 3 Xid 79", 5, |host, _| {
            host.gpus[3].health.xids = vec![Xid {
                at: host.at,
                code: 79,
            }];
        });
        says("GPU 3 thermal", 5, |host, _| {
            host.gpus[3].load.throttle = Ok(vec![Throttle::Thermal]);
        });
        says("full ", 300, grow);
        says("1 orphan holds 20.0 GiB", 5, |host, _| {
            host.host.scan.at = host.at;
            let worker = host.processes[2].facts_mut();
            (worker.comm, worker.group, worker.parent) =
                (Ok("pt_data_worker".into()), Ok(77), Ok(1));
        });
        let mut silent = TroubledHost::new(gpus);
        silent
            .app
            .update(Event::Tick(ViewerTime::new(Duration::from_secs(7))));
        silent.begins_with("no word from the agent for 8s");
        // One of two hosts.
        let mut silent = TroubledHost::new(gpus);
        silent.app.update(Event::Line(
            HostKey(1),
            Box::new(Line::Full(Box::new(host(gpus)))),
        ));
        silent.pass(7, |_, _| {});
        silent.begins_with("box#2: no word from the agent for 7s");
        // These are no trouble.
        says("box ", 5, |host, _| fail(host, Cause::Failed));
        says("box ", 5, |host, _| fail(host, Cause::Denied));
        says("GPU 3 Xid 79", 5, |host, _| {
            fail(host, Cause::Failed);
            host.gpus[3].health.xids = vec![Xid {
                at: host.at,
                code: 79,
            }];
        });
        says("box ", 5, |host, _| {
            host.gpus[3].load.throttle = Ok(vec![Throttle::PowerCap]);
        });
        says("box ", 5, |host, _| {
            host.gpus[3].health.xids = vec![Xid {
                at: host.at,
                code: 31,
            }];
        });
    }
}

#[test]
fn the_most_urgent_trouble_is_named_and_the_others_are_counted() {
    let mut watch = TroubledHost::new(8);
    watch.pass(5, |host, _| {
        host.gpus[5].load.throttle = Ok(vec![Throttle::Thermal]);
    });
    watch.pass(5, |host, _| {
        host.gpus[4].health.xids = vec![Xid {
            at: host.at,
            code: 79,
        }];
    });
    watch.begins_with("GPU 4 Xid 79    1 slowdown");
    watch.pass(5, |host, _| {
        host.gpus[3].trouble = Some(trouble(Cause::Hung, Moment(host.at.0 - 9000)));
    });
    watch.begins_with("GPU 3 hung 9s    1 hardware error, 1 slowdown");
}

#[test]
fn a_driver_that_hangs_is_not_counted_as_a_gpu() {
    let mut watch = TroubledHost::new(8);
    watch.pass(5, |host, _| {
        host.driver.trouble = Some(trouble(Cause::Hung, Moment(host.at.0 - 9000)));
    });
    watch.begins_with("driver hung 9s");
    watch.press();
    watch.begins_with("1 lost or hung ");
}

#[test]
fn a_key_lets_a_trouble_rest_until_it_changes() {
    let mut watch = TroubledHost::new(8);
    watch.pass(1, |host, _| {
        host.gpus[4].health.xids = vec![Xid {
            at: host.at,
            code: 79,
        }];
    });
    // The key may be older than the trouble.
    watch.press();
    watch.begins_with("GPU 4 Xid 79");
    watch.pass(3, |_, _| {});
    watch.press();
    watch.begins_with("1 hardware error ");
    watch.pass(3, |host, _| {
        host.gpus[4].trouble = Some(trouble(Cause::Lost, host.at));
    });
    watch.begins_with("GPU 4 lost");
}

#[test]
fn a_trouble_that_ended_unseen_stays_readable_until_a_key() {
    let mut watch = TroubledHost::new(8);
    watch.pass(300, grow);
    watch.begins_with("full ");
    watch.pass(120, |_, _| {});
    watch.begins_with("was filling until ");
    assert!(
        watch.first_line().contains(": 102 serve.py"),
        "{}",
        watch.first_line()
    );
    watch.press();
    watch.begins_with("box ");
    // The same, up to the end of memory.
    watch.pass(700, grow);
    watch.begins_with("full ");
    watch.pass(3, |host, _| {
        host.gpus[2].processes.clear();
        host.processes.retain(|process| process.id.pid != 102);
        host.gpus[2].load.memory_used = Ok(Bytes(0));
    });
    watch.begins_with("was full ");
    assert!(
        watch.first_line().contains(": 102 serve.py"),
        "{}",
        watch.first_line()
    );
}

#[test]
fn a_trouble_that_ended_unseen_has_no_time_where_the_time_of_day_is_not_known() {
    let mut watch = TroubledHost::new(8);
    watch.host.host.facts.utc_offset = Err(Missing::Unsupported);
    watch.pass(3, |host, _| {
        host.gpus[3].trouble = Some(trouble(Cause::Hung, host.at));
    });
    watch.pass(3, |host, _| host.gpus[3].trouble = None);
    watch.begins_with("did not answer: GPU 3");
}

#[test]
fn a_process_that_loads_is_no_trouble() {
    let mut idle = TroubledHost {
        host: TroubledHost::new(8).host,
        app: App::new(AppOptions::default()),
    };
    idle.app.update(Event::Resized(80, 24));
    idle.pass(200, |host, second| {
        host.gpus[2].processes[0].sm = Ok(Percent::new(0.0));
        grow(host, second);
    });
    idle.begins_with("box  loading, would be full ");
}
