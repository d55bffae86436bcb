//! The end of a job over eight hosts.

use super::jobs::{end, training};
use super::*;
use crate::app::event::Effect;
use crate::base::text::Text;
use crate::protocol::command::{Command, Signal};
use crate::protocol::reply::{Outcome, Reply};
use crate::protocol::slurm_job::{SlurmCancel, SlurmCancelAnswer};
use crate::protocol::snapshot::ProcessId;

/// The process of a rank.
fn rank(number: u32) -> (HostKey, ProcessId) {
    let host = HostKey(u16::try_from(number / 8).expect("few hosts"));
    let process = ProcessId {
        pid: 4000 + number,
        start_ticks: Some(1),
    };
    (host, process)
}

/// Lets the agents of these ranks answer.
fn reply(lab: &mut Lab, ranks: impl IntoIterator<Item = u32>, outcome: &Outcome) {
    for number in ranks {
        let (host, mut process) = rank(number);
        process.start_ticks = lab.hosts[usize::from(host.0)]
            .processes
            .iter()
            .find(|other| other.id.pid == process.pid)
            .and_then(|other| other.id.start_ticks);
        let outcome = outcome.clone();
        let line = Line::Reply(Reply { process, outcome });
        lab.app.update(Event::Line(host, Box::new(line)));
    }
}

fn press(lab: &mut Lab, key: KeyCode) -> Option<Effect> {
    lab.app.settle();
    lab.app.mark_end_as_read();
    lab.app.update(Event::Key(KeyEvent::from(key)))
}

/// The signals of an effect, as PID and signal.
fn signals(effect: Option<Effect>) -> Vec<(HostKey, u32, Signal)> {
    let Some(Effect::Commands(commands)) = effect else {
        return Vec::new();
    };
    let signals = commands.into_iter().filter_map(|(host, command)| {
        if let Command::Signal { process, signal } = command {
            Some((host, process.pid, signal))
        } else {
            None
        }
    });
    signals.collect()
}

/// Opens the dialog on the job. All agents but those of silent hosts hold their processes.
fn open(lab: &mut Lab, silent: &[usize]) -> Option<Effect> {
    lab.press(&[KeyCode::Char('J'), KeyCode::Enter]);
    for _ in 0..5 {
        lab.pass(2, silent);
    }
    let effect = press(lab, KeyCode::Char('x'));
    let answering = (0..64).filter(|rank| !silent.contains(&(*rank as usize / 8)));
    reply(lab, answering, &Outcome::Held { caution: None });
    effect
}

#[test]
fn a_job_is_ended_on_the_hosts_that_answer_once_their_number_is_typed() {
    let mut lab = training((120, 40));
    // The agent of gpu-06 hangs.
    open(&mut lab, &[5]);
    let text = lab.lines().join("\n");
    for words in [
        "End the job slurm 4242 llama on 8 hosts",
        "does not answer: nothing is sent to it, and nothing is promised",
        "Type the number of hosts, 7, to confirm",
    ] {
        assert!(text.contains(words), "{words}:\n{text}");
    }
    press(&mut lab, KeyCode::Char('8'));
    assert_eq!(signals(press(&mut lab, KeyCode::Enter)), [], "8 is wrong");
    press(&mut lab, KeyCode::Backspace);
    press(&mut lab, KeyCode::Char('7'));
    let sent = signals(press(&mut lab, KeyCode::Enter));
    let expected: Vec<_> = (0..64)
        .filter(|number| number / 8 != 5)
        .map(|number| (rank(number).0, 4000 + number, Signal::Int))
        .collect();
    assert_eq!(sent, expected, "{}", lab.lines().join("\n"));
    // gpu-06 wakes up, and says what it was asked before.
    reply(&mut lab, 40..48, &Outcome::Held { caution: None });
    let sent = signals(press(&mut lab, KeyCode::Enter));
    assert!(
        sent.iter().all(|(host, ..)| *host != HostKey(5)),
        "{sent:?}"
    );
}

#[test]
fn what_came_back_is_said_by_host() {
    let mut lab = training((120, 40));
    open(&mut lab, &[]);
    screens::check("end_of_job_120x40", &lab.app, 120, 40);
    press(&mut lab, KeyCode::Char('8'));
    press(&mut lab, KeyCode::Enter);
    let at = lab.hosts[0].at;
    let sent = Outcome::Sent {
        signal: Signal::Int,
        at,
    };
    reply(&mut lab, 0..64, &sent);
    reply(&mut lab, 0..64, &Outcome::Ended { at });
    (0..64).for_each(|rank| end(&mut lab, rank));
    lab.pass(2, &[]);
    let text = lab.lines().join("\n");
    for words in [
        "64 processes on 8 hosts: 3.7 TiB of 3.7 TiB came back",
        "ended within 0.0 s; returned 472 GiB of 472 GiB",
    ] {
        assert!(text.contains(words), "{words}:\n{text}");
    }
}

#[test]
fn a_small_screen_shows_the_hosts_and_what_is_typed() {
    let mut lab = training((80, 24));
    open(&mut lab, &[5]);
    screens::check("end_of_job_80x24", &lab.app, 80, 24);
}

/// Opens the dialog, and returns the question to Slurm.
fn open_and_ask(lab: &mut Lab) -> SlurmCancel {
    match open(lab, &[]) {
        Some(Effect::AskToCancel(asked, _)) => asked,
        effect => panic!("Slurm was not asked: {effect:?}"),
    }
}

fn answer(lab: &mut Lab, question: &SlurmCancel, has_run: bool, result: Result<(), Text>) {
    lab.app.update(Event::SlurmCancel(SlurmCancelAnswer {
        question: question.clone(),
        has_run,
        result,
    }));
}

#[test]
fn scancel_is_offered_only_after_slurm_has_agreed() {
    let mut lab = training((120, 40));
    let asked = open_and_ask(&mut lab);
    let hosts: Vec<String> = (1..=8).map(|number| format!("gpu-{number:02}")).collect();
    assert_eq!((asked.job.as_str(), &asked.hosts), ("4242", &hosts));
    press(&mut lab, KeyCode::Up);
    press(&mut lab, KeyCode::Char('8'));
    let sent = signals(press(&mut lab, KeyCode::Enter));
    assert_eq!(sent.len(), 64, "the choice above is no scancel yet");

    let mut lab = training((120, 40));
    let asked = open_and_ask(&mut lab);
    answer(&mut lab, &asked, false, Err("it is bob's".into()));
    let text = lab.lines().join("\n");
    assert!(text.contains("no scancel: it is bob's"), "{text}");

    let mut lab = training((120, 40));
    let asked = open_and_ask(&mut lab);
    answer(&mut lab, &asked, false, Ok(()));
    press(&mut lab, KeyCode::Up);
    assert_eq!(press(&mut lab, KeyCode::Enter), None, "nothing was typed");
    press(&mut lab, KeyCode::Char('8'));
    let effect = press(&mut lab, KeyCode::Enter);
    assert_eq!(effect, Some(Effect::CancelSlurmJob(asked.clone())));
    assert_eq!(press(&mut lab, KeyCode::Enter), None, "it runs already");
    answer(&mut lab, &asked, true, Ok(()));
    let text = lab.lines().join("\n");
    assert!(
        text.contains("scancel has ended without an error"),
        "{text}"
    );
}

#[test]
fn an_answer_of_slurm_to_another_dialog_is_not_taken() {
    let mut lab = training((120, 40));
    let first = open_and_ask(&mut lab);
    press(&mut lab, KeyCode::Esc);
    let Some(Effect::AskToCancel(second, _)) = press(&mut lab, KeyCode::Char('x')) else {
        panic!("Slurm was not asked again");
    };
    reply(&mut lab, 0..64, &Outcome::Held { caution: None });
    answer(&mut lab, &first, false, Ok(()));
    assert!(lab.lines().join("\n").contains("asking squeue"));
    answer(&mut lab, &second, false, Ok(()));
    press(&mut lab, KeyCode::Up);
    press(&mut lab, KeyCode::Char('8'));
    press(&mut lab, KeyCode::Enter);
    answer(&mut lab, &first, false, Ok(()));
    let text = lab.lines().join("\n");
    assert!(text.contains("Slurm is asked once more"), "{text}");
}

#[test]
fn scancel_is_not_offered_while_a_host_is_left_out() {
    let mut lab = training((120, 40));
    let Some(Effect::AskToCancel(asked, _)) = open(&mut lab, &[5]) else {
        panic!("Slurm was not asked");
    };
    answer(&mut lab, &asked, false, Ok(()));
    press(&mut lab, KeyCode::Up);
    press(&mut lab, KeyCode::Char('7'));
    let sent = signals(press(&mut lab, KeyCode::Enter));
    assert_eq!(sent.len(), 56, "{}", lab.lines().join("\n"));
}

#[test]
fn a_caution_that_comes_while_enter_is_typed_is_read_first() {
    let mut lab = training((120, 40));
    open(&mut lab, &[]);
    press(&mut lab, KeyCode::Char('8'));
    lab.app.settle();
    lab.app.mark_end_as_read();
    let caution = Some("it belongs to bob now".into());
    reply(&mut lab, [44], &Outcome::Held { caution });
    let enter = KeyEvent::from(KeyCode::Enter);
    let effect = lab.app.update(Event::Key(enter));
    assert_eq!(signals(effect), []);
    let text = lab.lines().join("\n");
    assert!(
        text.contains("gpu-06 4044: it belongs to bob now"),
        "{text}"
    );
}

#[test]
fn the_pid_of_each_process_can_be_read() {
    let mut lab = training((80, 24));
    let rank_0 = lab.hosts[0].processes.iter();
    let rank_0 = rank_0.clone().find(|process| process.id.pid == 4000);
    let facts = rank_0.expect("it runs").facts.clone();
    for pid in 5000..5040 {
        lab.run(0, pid, "alice", &[0], Bytes::from_gib(1));
        let mut processes = lab.hosts[0].processes.iter_mut();
        let process = processes.find(|process| process.id.pid == pid);
        let process = process.expect("it was just added");
        process.facts = facts.clone();
        process.facts_mut().parent = Ok(4000);
    }
    lab.pass(2, &[]);
    open(&mut lab, &[]);
    let mut seen = String::new();
    for _ in 0..30 {
        seen += &lab.lines().join(" ");
        press(&mut lab, KeyCode::PageDown);
    }
    assert!(seen.contains("104 processes on 8 hosts"), "{seen}");
    for pid in (4000..4064).chain(5000..5040) {
        assert!(
            seen.split_whitespace().any(|word| word == pid.to_string()),
            "{pid} is not to be seen:\n{}",
            lab.lines().join("\n")
        );
    }
}

#[test]
fn an_agent_that_never_answers_about_its_processes_does_not_keep_the_others() {
    let mut lab = training((120, 40));
    lab.press(&[KeyCode::Char('J'), KeyCode::Enter]);
    lab.pass(2, &[]);
    press(&mut lab, KeyCode::Char('x'));
    // The lines of gpu-06 come, and no reply.
    let answering = (0..64).filter(|number| number / 8 != 5);
    reply(&mut lab, answering, &Outcome::Held { caution: None });
    press(&mut lab, KeyCode::Char('8'));
    assert_eq!(signals(press(&mut lab, KeyCode::Enter)), []);
    for _ in 0..6 {
        lab.pass(2, &[]);
    }
    let text = lab.lines().join("\n");
    assert!(
        text.contains("its agent does not answer: nothing is sent to it"),
        "{text}"
    );
    press(&mut lab, KeyCode::Char('7'));
    let sent = signals(press(&mut lab, KeyCode::Enter));
    assert_eq!(sent.len(), 56, "{}", lab.lines().join("\n"));
    assert!(sent.iter().all(|(host, ..)| *host != HostKey(5)));
}

#[test]
fn the_dialog_says_that_it_does_not_end_ranks_that_no_host_has_shown() {
    let mut lab = training((120, 40));
    for host in &mut lab.hosts {
        for process in &mut host.processes {
            let facts = process.facts_mut().distributed.as_mut();
            facts.expect("each is a rank").world_size = Some(80);
        }
    }
    open(&mut lab, &[]);
    let text = lab.lines().join("\n");
    assert!(
        text.contains("16 of the 80 ranks were not seen: they are not among these processes."),
        "{text}"
    );
}

#[test]
fn ranks_that_have_ended_were_seen() {
    let mut lab = training((120, 40));
    end(&mut lab, 42);
    lab.pass(2, &[]);
    open(&mut lab, &[]);
    let text = lab.lines().join("\n");
    assert!(text.contains("63 processes on 8 hosts"), "{text}");
    assert!(!text.contains("not seen"), "{text}");
}

#[test]
fn nothing_more_can_be_sent_while_only_a_silent_host_has_processes_left() {
    let mut lab = training((120, 40));
    open(&mut lab, &[]);
    press(&mut lab, KeyCode::Char('8'));
    assert_eq!(signals(press(&mut lab, KeyCode::Enter)).len(), 64);
    let at = lab.hosts[0].at;
    let signal = Signal::Int;
    let answering = || (0..64).filter(|number| number / 8 != 5);
    reply(&mut lab, answering(), &Outcome::Sent { signal, at });
    reply(&mut lab, answering(), &Outcome::Ended { at });
    answering().for_each(|rank| end(&mut lab, rank));
    for _ in 0..5 {
        lab.pass(2, &[5]);
    }
    let text = lab.lines().join("\n");
    for words in [
        "what was sent may arrive later, and nothing is promised",
        "Some have not ended yet, and their hosts do not answer: nothing more can be sent now.",
    ] {
        assert!(text.contains(words), "{words}:\n{text}");
    }
    assert_eq!(signals(press(&mut lab, KeyCode::Enter)), []);
}
