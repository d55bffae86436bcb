//! The dialog that ends processes.

use super::*;

#[test]
fn the_panel_keeps_its_target_when_the_list_moves() {
    story(three())
        .keys("F9")
        .asks(&[hold(103)])
        .hears(103, Outcome::Held { caution: None })
        .pass(larger(101))
        .keys("Enter")
        .asks(&[signal(103, Signal::Term)]);
}

#[test]
fn no_signal_is_sent_before_the_agent_verified_the_process() {
    story(three())
        .keys("F9 Enter")
        .asks(&[hold(103)])
        .hears(103, Outcome::Held { caution: None })
        .asks(&[]);
}

#[test]
fn only_processes_of_the_simulated_machine_are_simulated() {
    let is_simulated = |host: Snapshot| {
        let story = story(host).keys("F9");
        let dialog = story.app.modes.end_dialog().unwrap();
        dialog.is_simulated()
    };
    let mut host = three();
    assert!(!is_simulated(host.clone()));
    for process in &mut host.processes {
        process.facts_mut().argv = Ok(["python", "(gputop demo)"]
            .map(Text::from)
            .into_iter()
            .collect());
    }
    assert!(is_simulated(host));
}

#[test]
fn nothing_is_sent_twice_by_an_impatient_enter() {
    story(three())
        .keys("F9")
        .hears(103, Outcome::Held { caution: None })
        .keys("Enter Enter")
        .asks(&[hold(103), signal(103, Signal::Term)]);
}

#[test]
fn a_refusal_ends_the_matter() {
    let refused = Outcome::Refused {
        reason: "no permission".into(),
    };
    let release = asked(vec![Command::Release { process: id(103) }]);
    story(three())
        .keys("F9")
        .hears(103, refused)
        .keys("Enter")
        .asks(&[hold(103), release]);
}

#[test]
fn another_signal_can_follow_when_the_first_did_nothing() {
    let sent = Outcome::Sent {
        signal: Signal::Term,
        at: Moment(1_000_500),
    };
    story(three())
        .keys("F9")
        .hears(103, Outcome::Held { caution: None })
        .keys("Enter")
        .hears(103, sent)
        .keys("Down Enter")
        .asks(&[
            hold(103),
            signal(103, Signal::Term),
            signal(103, Signal::Kill),
        ]);
}

#[test]
fn the_dialog_shows_the_memory_that_came_back() {
    let ended = story(three())
        .keys("F9")
        .hears(103, Outcome::Held { caution: None })
        .keys("Enter")
        .hears(
            103,
            Outcome::Sent {
                signal: Signal::Term,
                at: Moment(1_000_100),
            },
        )
        .hears(
            103,
            Outcome::Ended {
                at: Moment(1_000_200),
            },
        );
    assert_eq!(ended.app.modes.end_dialog().unwrap().returned, None);
    let ended = ended.pass(|host| host.without(103));
    assert_eq!(
        ended.returned(),
        [(Bytes::from_gib(40), Bytes::from_gib(40))]
    );
}

#[test]
fn memory_that_stays_or_that_a_neighbour_freed_is_not_called_returned() {
    let ended = story(three())
        .keys("F9")
        .hears(103, Outcome::Held { caution: None })
        .keys("Enter")
        .hears(
            103,
            Outcome::Ended {
                at: Moment(1_000_200),
            },
        )
        .pass(|host| {
            let used = host.gpus[1].load.memory_used;
            let mut host = host.without(103);
            host.gpus[1].load.memory_used =
                used.map(|used| used.saturating_sub(Bytes::from_gib(10)));
            host
        });
    assert_eq!(
        ended.returned(),
        [(Bytes::from_gib(10), Bytes::from_gib(40))]
    );
}

#[test]
fn a_lost_agent_holds_no_process() {
    let mut lost = story(three())
        .keys("F9")
        .hears(103, Outcome::Held { caution: None });
    lost.event(Event::SourceLost(HostKey::FIRST, "the agent ended".into()));
    assert!(matches!(
        lost.app.modes.end_dialog().unwrap().root().unwrap().stage,
        Stage::Refused(_)
    ));
    lost.keys("Enter").asks(&[
        hold(103),
        asked(vec![Command::Release { process: id(103) }]),
    ]);
}

#[test]
fn a_job_is_held_as_a_whole_its_root_first() {
    let asked = [
        hold(101),
        asked(vec![
            Command::Hold { process: id(100) },
            Command::Hold { process: id(102) },
        ]),
    ];
    story(family()).keys("End F9 Tab").asks(&asked);
}

#[test]
fn members_of_a_job_may_be_found_while_the_dialog_is_open() {
    let others = asked(vec![
        Command::Hold { process: id(100) },
        Command::Hold { process: id(102) },
    ]);
    let open = story(three()).keys("End F9").asks(&[hold(101)]);
    assert_eq!(open.app.modes.end_dialog().unwrap().spared_count(), 0);
    let open = open.pass(|_| family().later(1)).asks(&[]);
    assert_eq!(open.app.modes.end_dialog().unwrap().spared_count(), 2);
    let open = open.keys("Tab").asks(&[others]);
    assert_eq!(
        open.app.modes.end_dialog().unwrap().root().unwrap().id(),
        id(100)
    );
}

#[test]
fn a_gentle_end_interrupts_the_root_then_asks_all_that_are_left_and_never_kills() {
    let mut gentle = job().keys("Enter").asks(&[signal(100, Signal::Int)]);
    gentle = gentle.hears(
        100,
        Outcome::Sent {
            signal: Signal::Int,
            at: Moment(1_000_000),
        },
    );
    // The root looks like torchrun, so it gets 35 s.
    for seconds in [34, 1, 100] {
        gentle = gentle.pass(|host| {
            if seconds > 1 {
                host.later(seconds - 1)
            } else {
                host
            }
        });
        gentle.event(Event::Tick(ViewerTime::ZERO));
        if seconds == 1 {
            let all = [100, 101, 102].map(|pid| Command::Signal {
                process: id(pid),
                signal: Signal::Term,
            });
            gentle = gentle.asks(&[asked(all.to_vec())]);
        }
    }
    gentle.asks(&[]);
}

#[test]
fn sigterm_follows_although_the_root_had_ended_before_its_sigint() {
    let mut gentle = job().keys("Enter").asks(&[signal(100, Signal::Int)]);
    gentle = gentle.hears(
        100,
        Outcome::Ended {
            at: Moment(1_000_000),
        },
    );
    gentle = gentle.pass(|host| host.later(12)).asks(&[]);
    gentle.event(Event::Tick(ViewerTime::ZERO));
    let rest = [101, 102].map(|pid| Command::Signal {
        process: id(pid),
        signal: Signal::Term,
    });
    gentle.asks(&[asked(rest.to_vec())]);
}

#[test]
fn a_forced_end_is_one_act_on_all_that_are_held() {
    let processes = [100, 101, 102].map(id).to_vec();
    let forced = job()
        .keys("Down Down Down Enter")
        .asks(&[asked(vec![Command::Force { processes }])]);
    let panel = forced.hears(
        500,
        Outcome::Joined {
            comm: "sh".into(),
            parent: id(101),
        },
    );
    let shown: Vec<u32> = panel
        .app
        .modes
        .end_dialog()
        .unwrap()
        .targets()
        .map(|it| it.id().pid)
        .collect();
    assert_eq!(shown, [100, 101, 102, 500]);
}

#[test]
fn tagged_processes_are_ended_together_and_no_others() {
    let both = [103, 102].map(|pid| Command::Hold { process: id(pid) });
    let both = asked(both.into_iter().chain([Command::Scan]).collect());
    let mut tagged = story(three());
    for key in [' ', ' '] {
        tagged.event(Event::Key(KeyEvent::from(KeyCode::Char(key))));
    }
    tagged.keys("F9").asks(&[both]);
}

#[test]
fn enter_sends_nothing_before_the_dialog_could_be_read() {
    let mut story = story(three())
        .keys("F9")
        .hears(103, Outcome::Held { caution: None })
        .asks(&[hold(103)]);
    story.app.mark_end_as_read();
    // Another signal than the one that was read.
    let enter_after = |story: &mut Story, code: KeyCode| {
        story.event(Event::Key(KeyEvent::from(code)));
        story.event(Event::Key(KeyEvent::from(KeyCode::Enter)));
    };
    enter_after(&mut story, KeyCode::Down);
    let mut story = story.asks(&[]);
    // The signal that was read, but another one was shown since.
    enter_after(&mut story, KeyCode::Up);
    let mut story = story.asks(&[]);
    story.app.mark_end_as_read();
    story.event(Event::Key(KeyEvent::from(KeyCode::Enter)));
    story.asks(&[signal(103, Signal::Term)]);
}

#[test]
fn a_risky_end_needs_the_pid_typed() {
    let caution = Some("it is the display server".into());
    let grave = story(three())
        .keys("F9")
        .hears(103, Outcome::Held { caution })
        .keys("Enter")
        .asks(&[hold(103)]);
    grave.keys("13 Enter").asks(&[]).keys("Enter").asks(&[]);
    let caution = Some("it is the display server".into());
    story(three())
        .keys("F9")
        .hears(103, Outcome::Held { caution })
        .keys("103 Enter")
        .asks(&[hold(103), signal(103, Signal::Term)]);
}

#[test]
fn readonly_opens_no_panel() {
    let mut story = story(three());
    story.app.options.readonly = true;
    let story = story.keys("F9").asks(&[]);
    assert!(story.app.modes.end_dialog().is_none());
}
