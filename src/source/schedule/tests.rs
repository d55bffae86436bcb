//! Tests of the schedule, with a clock that they move by hand.

use super::*;

/// A schedule, and its clock.
struct ScheduleClock {
    schedule: Schedule,
    now: Instant,
}

impl ScheduleClock {
    fn new(hosts: usize, needs_server: bool) -> Self {
        let now = Instant::now();
        let mut schedule = Schedule::new(8, now);
        for host in 0..hosts {
            schedule.add(needs_server, now);
            schedule.start(host, now);
        }
        Self { schedule, now }
    }

    /// Takes all steps that are due until this time has passed.
    fn steps(&mut self, time: Duration) -> Vec<ConnectStep> {
        let end = self.now + time;
        let mut steps = Vec::new();
        while let Some(due) = self.schedule.due().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            steps.extend(self.schedule.take(self.now));
        }
        self.now = end;
        steps
    }

    /// Moves on to the next step, and takes it.
    fn next_step(&mut self) -> Option<ConnectStep> {
        self.now = self.now.max(self.schedule.due()?);
        self.schedule.take(self.now)
    }

    fn ended(&mut self, host: usize, next: NextTry) -> Option<Duration> {
        self.schedule.ended(host, next, self.now)
    }
}

#[track_caller]
fn check_about(wait: Option<Duration>, seconds: f64) {
    let wait = wait.expect("the host is tried again").as_secs_f64();
    assert!(
        (seconds * 0.8 - 0.001..=seconds * 1.2 + 0.001).contains(&wait),
        "{wait} s, not about {seconds} s"
    );
}

#[test]
fn each_host_is_looked_up_and_connected_and_processes_start_one_after_the_other() {
    let mut clock = ScheduleClock::new(3, true);
    let looked_up = [0, 1, 2].map(ConnectStep::LookUp);
    assert_eq!(clock.steps(PACE), looked_up[..2]);
    assert_eq!(clock.steps(PACE), looked_up[2..]);
    for host in 0..3 {
        clock
            .schedule
            .looked_up(host, &format!("gpu-{host}"), clock.now);
    }
    assert_eq!(clock.steps(PACE * 4), [0, 1, 2].map(ConnectStep::Connect));
    assert_eq!(clock.schedule.due(), None);
}

#[test]
fn a_server_takes_eight_new_connections_at_once_and_others_do_not_wait_for_it() {
    let mut clock = ScheduleClock::new(40, true);
    assert_eq!(clock.steps(Duration::from_secs(1)).len(), 40);
    for host in 0..39 {
        clock.schedule.looked_up(host, "login", clock.now);
    }
    clock.schedule.looked_up(39, "gpu-39", clock.now);
    let first = clock.steps(Duration::from_secs(1));
    let connected: Vec<usize> = (0..8).chain([39]).collect();
    assert_eq!(
        first,
        connected
            .iter()
            .map(|host| ConnectStep::Connect(*host))
            .collect::<Vec<_>>()
    );
    // One that was let in, or that has failed, makes room for the next.
    clock.schedule.let_in(3, clock.now);
    assert_eq!(clock.steps(PACE), [ConnectStep::Connect(8)]);
    clock.ended(0, NextTry::OnRequest);
    assert_eq!(clock.steps(PACE * 10), [ConnectStep::Connect(9)]);
    clock.schedule.let_in(39, clock.now);
    assert_eq!(clock.steps(PACE * 10), []);
}

#[test]
fn the_time_to_the_next_try_doubles_to_a_minute_or_to_eight_seconds_for_a_host_that_has_answered() {
    for (has_answered, waits) in [
        (false, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]),
        (true, [1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0, 8.0]),
    ] {
        let mut clock = ScheduleClock::new(1, false);
        if has_answered {
            clock.schedule.answered(0);
        }
        for seconds in waits {
            assert_eq!(clock.next_step(), Some(ConnectStep::Connect(0)));
            check_about(clock.ended(0, NextTry::ByItself), seconds);
        }
    }
}

#[test]
fn a_connect_that_timed_out_has_waited_already() {
    let mut clock = ScheduleClock::new(1, false);
    for _ in 0..3 {
        assert_eq!(clock.next_step(), Some(ConnectStep::Connect(0)));
        clock.ended(0, NextTry::ByItself);
    }
    assert_eq!(clock.next_step(), Some(ConnectStep::Connect(0)));
    clock.now += Duration::from_secs(5);
    let wait = clock.ended(0, NextTry::ByItself).unwrap().as_secs_f64();
    assert!((1.4..=4.6).contains(&wait), "{wait}");
}

#[test]
fn a_connection_that_lasted_is_made_again_at_once_and_one_that_flaps_is_not() {
    let mut clock = ScheduleClock::new(1, false);
    let mut waits = Vec::new();
    for lasted in [100.0, 100.0, 1.0, 1.0, 1.0, 1.0, 100.0] {
        assert_eq!(
            clock.next_step(),
            Some(ConnectStep::Connect(0)),
            "{waits:?}"
        );
        clock.schedule.let_in(0, clock.now);
        clock.schedule.answered(0);
        clock.now += Duration::from_secs_f64(lasted);
        waits.push(clock.ended(0, NextTry::ByItself).unwrap().as_secs_f64());
    }
    for (place, longest) in [(0, 1.2), (1, 1.2), (6, 1.2)] {
        assert!(waits[place] <= longest, "{waits:?}");
    }
    assert!(waits[5] > 5.0, "{waits:?}");
    assert!(waits.iter().all(|wait| *wait >= 0.79), "{waits:?}");
}

#[test]
fn a_host_that_waits_for_the_user_is_tried_on_request_only() {
    let mut clock = ScheduleClock::new(1, false);
    clock.steps(Duration::ZERO);
    assert_eq!(clock.ended(0, NextTry::OnRequest), None);
    assert_eq!(clock.steps(Duration::from_secs(1000)), []);
    clock.schedule.start(0, clock.now);
    assert_eq!(clock.steps(Duration::ZERO), [ConnectStep::Connect(0)]);
}

#[test]
fn a_host_that_is_looked_up_again_has_forgotten_its_server() {
    let mut clock = ScheduleClock::new(1, true);
    assert_eq!(clock.steps(Duration::ZERO), [ConnectStep::LookUp(0)]);
    clock.schedule.looked_up(0, "login", clock.now);
    assert_eq!(clock.steps(PACE), [ConnectStep::Connect(0)]);
    clock.ended(0, NextTry::ByItself);
    assert_eq!(
        clock.steps(Duration::from_secs(2)),
        [ConnectStep::Connect(0)]
    );
    clock.schedule.start(0, clock.now);
    assert_eq!(clock.steps(PACE), [ConnectStep::LookUp(0)]);
    // The answer to an earlier question does not connect the host twice.
    clock.schedule.looked_up(0, "login", clock.now);
    clock.schedule.looked_up(0, "login", clock.now);
    assert_eq!(
        clock.steps(Duration::from_secs(1)),
        [ConnectStep::Connect(0)]
    );
}
