//! Checks the stories of `stories.txt` on a model, and properties of random stories.

mod layouts;

use proptest::prelude::*;

use super::*;
use crate::base::units::Percent;
use crate::model::job::Jobs;
use crate::model::process_tree::ProcessTree;
use crate::model::verdict::process_records::ProcessView;
use crate::model::{HostModel, Job};
use crate::protocol::line::Line;
use crate::protocol::snapshot::{
    GpuProcess, Identity, Missing, Process, ProcessFacts, ProcessLoad, Snapshot, State, Use,
    example,
};

/// The host of a story. The format is in the head of `stories.txt`.
struct VerdictStory {
    host: Snapshot,
    model: HostModel,
    /// Models that go on from checkpoints of the story.
    restored: Vec<HostModel>,
    /// The memory in bytes on each GPU that the driver lists no process for.
    extra: [u64; 2],
}

impl VerdictStory {
    fn new() -> Self {
        let (host, model) = (example::host(2), HostModel::default());
        let mut story = Self {
            host,
            model,
            restored: Vec::new(),
            extra: [0; 2],
        };
        for gpu in &mut story.host.gpus {
            gpu.load.memory_reserved = Ok(Bytes::from_mib(551));
        }
        story.line("1 systemd | user root");
        story
    }

    /// Applies a line that changes the host.
    fn line(&mut self, line: &str) {
        let (words, attributes) = line.split_once(" | ").unwrap_or((line, ""));
        let words: Vec<&str> = words.split_whitespace().collect();
        match *words.as_slice() {
            ["pass"] => self.pass(1),
            ["pass", seconds] => self.pass(number(seconds)),
            ["kill", pid] => self.kill(number(pid), 1),
            ["kill", pid, adopter] => self.kill(number(pid), number(adopter)),
            ["fresh"] => (self.model, self.restored) = (HostModel::default(), Vec::new()),
            ["gone", pid] => self
                .host
                .processes
                .retain(|process| process.id.pid != number::<u32>(pid)),
            ["extra", gpu, memory] => self.extra[number::<usize>(gpu)] = bytes(memory).0,
            ["unread", processes] => self.host.host.scan.unreadable = number(processes),
            ["hung", gpu] => {
                self.host.gpus[number::<usize>(gpu)].missing.processes = Some(Missing::Failed);
            }
            ["answers", gpu] => self.host.gpus[number::<usize>(gpu)].missing.processes = None,
            ["ghost", pid] => self.ghost(number(pid), Missing::Gone),
            ["foreign", pid] => self.ghost(number(pid), Missing::Unsupported),
            ["hidden", pid] => self.ghost(number(pid), Missing::Denied),
            ["unreadable", pid] => self.ghost(number(pid), Missing::Failed),
            [pid, "<", parent, ref argv @ ..] => self.process(number(pid), number(parent), argv),
            [pid, ref argv @ ..] => self.process(number(pid), 1, argv),
            [] => {}
        }
        for attribute in attributes
            .split(", ")
            .filter(|attribute| !attribute.is_empty())
        {
            self.attribute(number(words[0]), &attribute.split(' ').collect::<Vec<_>>());
        }
    }

    /// Ends a process, and gives its children to another one.
    fn kill(&mut self, pid: u32, adopter: u32) {
        self.host.processes.retain(|process| process.id.pid != pid);
        for child in self
            .host
            .processes
            .iter_mut()
            .filter(|process| process.facts.parent == Ok(pid))
        {
            child.facts_mut().parent = Ok(adopter);
        }
    }

    fn at(&mut self, pid: u32) -> &mut Process {
        self.host
            .processes
            .iter_mut()
            .find(|process| process.id.pid == pid)
            .unwrap_or_else(|| panic!("no process {pid}"))
    }

    /// Adds a process, or changes its parent or program.
    fn process(&mut self, pid: u32, parent: u32, argv: &[&str]) {
        if let Some(known) = self
            .host
            .processes
            .iter_mut()
            .find(|process| process.id.pid == pid)
        {
            if !argv.is_empty() {
                known.facts_mut().argv = Ok(arguments(argv));
            }
            known.facts_mut().parent = if pid == 1 { Ok(0) } else { Ok(parent) };
            return;
        }
        let above = self
            .host
            .processes
            .iter()
            .find(|process| process.id.pid == parent)
            .map(|process| process.facts.clone());
        // A program that a shell starts has a process group of its own, like a command typed into
        // it.
        let is_shell = |facts: &ProcessFacts| {
            matches!(
                facts.comm.as_ref().map_or("", Text::as_str),
                "bash" | "systemd"
            )
        };
        let group = above
            .as_ref()
            .filter(|facts| !is_shell(facts))
            .map_or(Ok(pid), |facts| facts.group);
        let name = argv[0].rsplit('/').next().unwrap();
        let facts = ProcessFacts {
            uid: Ok(1000),
            user: Ok("alice".into()),
            parent: Ok(if pid == 1 { 0 } else { parent }),
            group,
            session: above.as_ref().map_or(Ok(pid), |facts| facts.session),
            comm: Ok(name.into()),
            argv: Ok(arguments(argv)),
            ..ProcessFacts::missing(Identity::Sure, Missing::Unsupported)
        };
        let load = ProcessLoad {
            state: Ok(State::Sleeping),
            threads: Ok(1),
            cpu: Ok(Percent::new(0.0)),
            rss: Ok(Bytes::from_gib(1)),
            wchan: Err(Missing::Unsupported),
        };
        let id = ProcessId {
            pid,
            start_ticks: Some(u64::from(pid)),
        };
        self.host.processes.push(Process {
            id,
            facts: facts.into(),
            load,
            allocator: None,
            probe: None,
            bytes_read: None,
        });
    }

    fn ghost(&mut self, pid: u32, why: Missing) {
        let id = ProcessId {
            pid,
            start_ticks: None,
        };
        self.host.processes.retain(|process| process.id.pid != pid);
        self.host.processes.push(Process {
            id,
            facts: ProcessFacts::missing(Identity::Unverified, why).into(),
            load: ProcessLoad::missing(why),
            allocator: None,
            probe: None,
            bytes_read: None,
        });
        for gpu_process in self
            .host
            .gpus
            .iter_mut()
            .flat_map(|gpu| &mut gpu.processes)
            .filter(|gpu_process| gpu_process.process.pid == pid)
        {
            (gpu_process.process, gpu_process.sm) = (id, Ok(Percent::new(0.0)));
        }
    }

    fn attribute(&mut self, pid: u32, words: &[&str]) {
        let id = self.at(pid).id;
        let gpu_processes = |host: &mut Snapshot, sm: Reading<Percent>| {
            host.gpus
                .iter_mut()
                .flat_map(|gpu| &mut gpu.processes)
                .filter(|gpu_process| gpu_process.process == id)
                .for_each(|gpu_process| gpu_process.sm = sm);
        };
        match *words {
            ["gpu", gpu, memory] => {
                let gpu = &mut self.host.gpus[number::<usize>(gpu)];
                gpu.processes.push(GpuProcess {
                    process: id,
                    usage: Use::Compute,
                    memory: Ok(bytes(memory)),
                    sm: Ok(Percent::new(0.0)),
                    engines: None,
                    names: None,
                });
                gpu.device_file_holders.push(id);
            }
            ["graphics"] => {
                let gpu_processes = self.host.gpus.iter_mut().flat_map(|gpu| &mut gpu.processes);
                gpu_processes
                    .filter(|gpu_process| gpu_process.process == id)
                    .for_each(|gpu_process| gpu_process.usage = Use::Graphics);
            }
            ["open", gpu] => self.host.gpus[number::<usize>(gpu)]
                .device_file_holders
                .push(id),
            ["sm", "N/A"] => gpu_processes(&mut self.host, Err(Missing::Unsupported)),
            ["sm", percent] => gpu_processes(&mut self.host, Ok(Percent::new(number(percent)))),
            ["argv", "unread"] => {
                let facts = self.at(pid).facts_mut();
                (facts.argv, facts.launcher) = (Err(Missing::NotYet), Err(Missing::NotYet));
            }
            ["argv", "read"] => self.at(pid).facts_mut().argv = Ok(arguments(&["python"])),
            ["cpu", "new"] => self.at(pid).load.cpu = Err(Missing::NotYet),
            ["cpu", percent] => self.at(pid).load.cpu = Ok(Percent::new(number(percent))),
            // Between two passes.
            ["born"] => self.at(pid).id.start_ticks = Some((self.host.at.0 + 500) / 10),
            ["state", letter] => self.at(pid).load.state = Ok(State::from(letter.as_bytes()[0])),
            ["threads", count] => self.at(pid).load.threads = Ok(number(count)),
            ["rss", memory] => self.at(pid).load.rss = Ok(bytes(memory)),
            ["wchan", function] => self.at(pid).load.wchan = Ok(function.into()),
            ["comm", comm] => self.at(pid).facts_mut().comm = Ok(comm.into()),
            ["comm", first, second] => {
                self.at(pid).facts_mut().comm = Ok(format!("{first} {second}").into());
            }
            ["group", group] => self.at(pid).facts_mut().group = Ok(number(group)),
            ["session"] => {
                let facts = self.at(pid).facts_mut();
                (facts.session, facts.group) = (Ok(pid), Ok(pid));
            }
            ["session", session] => self.at(pid).facts_mut().session = Ok(number(session)),
            ["run", run] => self.at(pid).facts_mut().elastic_run = Ok(run.into()),
            ["launcher", launcher] => {
                self.at(pid).facts_mut().launcher = Ok(launcher.replace('~', " ").into());
            }
            ["origin", ref words @ ..] => {
                self.at(pid).facts_mut().origin = Ok(words.join(" ").into());
            }
            ["frozen", file] => self.at(pid).facts_mut().frozen_by = Ok(file.into()),
            ["thawed"] => self.at(pid).facts_mut().frozen_by = Err(Missing::Unsupported),
            ["rank", rank] => self.at(pid).facts_mut().rank = Ok(rank.into()),
            ["forked"] => self.at(pid).facts_mut().forked = Ok(true),
            ["started"] => self.at(pid).facts_mut().forked = Ok(false),
            ["served", served] => self.at(pid).facts_mut().ended_served = Ok(number(served)),
            ["trains"] => self.at(pid).facts_mut().trainer_threads = Ok(true),
            ["stranger"] => self.at(pid).facts_mut().identity = Identity::Unverified,
            ["user", user] => {
                let uid = if user == "root" { 0 } else { 1001 };
                let facts = self.at(pid).facts_mut();
                (facts.uid, facts.user) = (Ok(uid), Ok(user.into()));
            }
            _ => panic!("what is {words:?}?"),
        }
    }

    fn pass(&mut self, seconds: u64) {
        let processes = &self.host.processes;
        let records = |id: &ProcessId| processes.iter().any(|process| process.id == *id);
        for (gpu, extra) in self.host.gpus.iter_mut().zip(self.extra) {
            gpu.processes
                .retain(|gpu_process| records(&gpu_process.process));
            gpu.device_file_holders.retain(records);
            let claimed: Bytes = gpu
                .processes
                .iter()
                .filter_map(|gpu_process| gpu_process.memory.ok())
                .sum();
            gpu.load.memory_used = Ok(Bytes(claimed.0 + extra));
        }
        // Passes second by second, like an agent.
        for _ in 0..seconds {
            self.host = self.host.later(1);
            self.host.host.scan.at = self.host.at;
            self.model.replace(self.host.clone());
            self.finds_the_same_afresh();
            for model in &mut self.restored {
                model.replace(self.host.clone());
            }
        }
    }

    /// Checks that models that go on from earlier checkpoints have the state and the verdicts of
    /// the whole story.
    fn goes_on_from_checkpoints(&mut self) {
        let Some(checkpoint) = self.model.checkpoint() else {
            return;
        };
        let mut model = HostModel::default();
        model.replace(self.model.latest().unwrap().clone());
        model
            .apply(Line::Checkpoint(Box::new(checkpoint.clone())))
            .unwrap();
        self.restored.push(model);
        for model in &self.restored {
            assert_eq!(model.verdicts(), self.model.verdicts());
            assert_eq!(model.checkpoint().unwrap(), checkpoint);
        }
    }

    /// Checks that results kept from the previous pass equal those of a fresh computation.
    fn finds_the_same_afresh(&self) {
        let HostModel {
            latest: Some(latest),
            records,
            process_totals,
            tree,
            jobs,
            ..
        } = &self.model
        else {
            return;
        };
        let fresh = ProcessTree::of(latest);
        assert_eq!(*tree, fresh);
        let mut fresh_jobs = Jobs::of(ProcessView {
            snapshot: latest,
            tree,
            records,
        });
        fresh_jobs.update_memory(process_totals);
        assert_eq!(jobs.list, fresh_jobs.list);
    }

    fn verdict(&self, pid: u32) -> &Verdict {
        self.model
            .verdicts()
            .iter()
            .find(|verdict| verdict.process.pid == pid)
            .unwrap_or_else(|| panic!("no process {pid}"))
    }

    /// Returns what the model says to the question of a claim.
    fn answer(&self, question: &str) -> String {
        match question.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["summary"] => {
                Verdict::summary(self.model.verdicts()).unwrap_or_else(|| "nothing".to_owned())
            }
            ["leftovers"] => {
                let left = self
                    .model
                    .verdicts()
                    .iter()
                    .filter(|verdict| verdict.is_leftover());
                or_nobody(
                    left.map(|verdict| verdict.process.pid.to_string())
                        .collect::<Vec<_>>()
                        .join(" "),
                )
            }
            ["unaccounted"] => {
                let said = self.model.unaccounted().iter().map(|unaccounted| {
                    let device_file_holders: Vec<_> = unaccounted
                        .device_file_holders
                        .iter()
                        .map(|holder| holder.pid)
                        .collect();
                    format!(
                        "{} of {}, open in {device_file_holders:?}, {} unread",
                        unaccounted.memory, unaccounted.gpu, unaccounted.unreadable
                    )
                });
                said.collect::<Vec<_>>().join("; ")
            }
            ["job", pid] => job(self.model.job(self.verdict(number(pid)).process).unwrap()),
            ["word", pid] => self.verdict(number(pid)).word().to_owned(),
            [pid] => format!(
                "{}: {}",
                self.verdict(number(pid)).word(),
                self.verdict(number(pid)).sentence()
            ),
            _ => panic!("what is {question}?"),
        }
    }
}

fn job(job: &Job) -> String {
    let members: Vec<_> = job.members.iter().map(|member| member.pid).collect();
    let root = job
        .root
        .map_or("no root".to_owned(), |root| format!("root {}", root.pid));
    format!("{}, {root}, {members:?}", job.name)
}

fn or_nobody(text: String) -> String {
    if text.is_empty() {
        "nobody".to_owned()
    } else {
        text
    }
}

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse()
        .unwrap_or_else(|_| panic!("{text} is no number"))
}

/// Parses arguments; `~` stands for a space in one.
fn arguments(words: &[&str]) -> crate::base::text::Argv {
    words
        .iter()
        .map(|word| Text::from(word.replace('~', " ")))
        .collect()
}

/// Parses `11GiB`, `300MiB` or `0`.
fn bytes(text: &str) -> Bytes {
    match (text.strip_suffix("GiB"), text.strip_suffix("MiB")) {
        (Some(gib), _) => Bytes::from_gib(number(gib)),
        (_, Some(mib)) => Bytes::from_mib(number(mib)),
        _ => Bytes(number(text)),
    }
}

#[test]
fn every_claim_of_the_stories_holds() {
    let (mut told, mut wrong) = (0, Vec::new());
    for text in include_str!("stories.txt").split("\n# ").skip(1) {
        let (title, lines) = text.split_once('\n').unwrap();
        let mut story = VerdictStory::new();
        told += 1;
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            match line.strip_prefix("= ") {
                None => story.line(line),
                Some(claim) => {
                    story.goes_on_from_checkpoints();
                    let (question, expected) = claim.split_once(" => ").unwrap();
                    let answer = story.answer(question);
                    if answer != expected {
                        wrong.push(format!(
                            "{title}\n  {question}\n    told: {expected}\n    said: {answer}"
                        ));
                    }
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {told} stories:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(told >= 25, "{told}");
}

/// Generates processes of some kinds, some of which end, as lines of a story: the first line of
/// each process, and a later one.
fn any_forest() -> impl Strategy<Value = Vec<(String, String)>> {
    let kinds = proptest::sample::select(vec![
        "python train.py",
        "python train.py | comm pt_data_worker",
        "python -c from~multiprocessing.spawn~import~spawn_main; --multiprocessing-fork",
        "python -c from~multiprocessing.forkserver~import~main",
        "torchrun train.py",
        "bash",
        "ffmpeg -i x",
        "python -m ipykernel_launcher -f k.json",
    ]);
    let traits = proptest::sample::select(vec![
        "rss 1GiB",
        "gpu 0 1GiB",
        "open 1",
        "run 7f",
        "run none",
        "group 99",
    ]);
    let process = (
        kinds,
        traits.clone(),
        traits,
        0..8_u32,
        0..3_u32,
        any::<bool>(),
    );
    proptest::collection::vec(process, 1..12).prop_map(|processes| {
        let lines =
            (100..)
                .zip(processes)
                .map(|(pid, (kind, one, other, above, fate, is_busy))| {
                    let parent = if pid - 100 > above {
                        pid - 1 - above
                    } else {
                        1
                    };
                    let (argv, comm) = kind.split_once(" | ").unwrap_or((kind, "rss 1GiB"));
                    let cpu = if is_busy { 90 } else { 0 };
                    let now =
                        format!("{pid} < {parent} {argv} | {comm}, cpu {cpu}, {one}, {other}");
                    let later = match fate {
                        0 => format!("gone {pid}"),
                        1 => format!("{pid} < 1"),
                        _ => format!("{pid} < {parent}"),
                    };
                    (now, later)
                });
        lines.collect()
    })
}

/// Runs the story of a forest. Rotates the snapshot's lists by `turned` places twice.
fn story_of(forest: &[(String, String)], turned: usize) -> VerdictStory {
    let mut story = VerdictStory::new();
    let turn = |story: &mut VerdictStory| {
        let count = story.host.processes.len();
        story.host.processes.rotate_left(turned % count);
        for gpu in &mut story.host.gpus {
            let (gpu_processes, holders) = (
                gpu.processes.len().max(1),
                gpu.device_file_holders.len().max(1),
            );
            gpu.processes.rotate_left(turned % gpu_processes);
            gpu.device_file_holders.rotate_left(turned % holders);
        }
    };
    for (now, _) in forest {
        story.line(now);
    }
    turn(&mut story);
    story.pass(1);
    let gone = |later: &str| later.starts_with("gone");
    forest
        .iter()
        .filter(|(_, later)| !gone(later))
        .for_each(|(_, later)| story.line(later));
    forest
        .iter()
        .filter(|(_, later)| gone(later))
        .for_each(|(_, later)| story.line(later));
    turn(&mut story);
    story.pass(12);
    story
}

proptest! {
    /// A process that computes and does not serve another is no orphan because of its parents
    /// alone.
    #[test]
    fn a_computing_process_is_no_orphan_because_of_its_parent(forest in any_forest()) {
        let story = story_of(&forest, 0);
        for verdict in story.model.verdicts() {
            if let VerdictKind::Orphan(orphaned) | VerdictKind::MaybeOrphan(orphaned) = &verdict.kind {
                prop_assert!(!orphaned.signs.is_empty());
                let is_more = |sign: &OrphanSign| match sign {
                    OrphanSign::CreatorEnded(ended) => ended.process.relation == "launcher",
                    OrphanSign::LauncherGone(_) | OrphanSign::ServedGone(_) | OrphanSign::StarterIsOrphan(_) => true,
                    OrphanSign::Left { .. } | OrphanSign::GroupLeaderGone(_) => false,
                };
                prop_assert!(!orphaned.computes || orphaned.serves || orphaned.signs.iter().any(is_more), "{verdict:?}");
            }
            prop_assert!(verdict.word().chars().count() <= 8 && !verdict.sentence().is_empty());
        }
    }

    /// The order of processes in a snapshot does not change verdicts or jobs.
    #[test]
    fn the_order_of_processes_changes_nothing(forest in any_forest(), turned in 0..9_usize) {
        let (one, other) = (story_of(&forest, 0), story_of(&forest, turned));
        prop_assert_eq!(one.model.verdicts().iter().map(|verdict| (&verdict.process, &verdict.kind)).collect::<Vec<_>>(),
            other.model.verdicts().iter().map(|verdict| (&verdict.process, &verdict.kind)).collect::<Vec<_>>());
        prop_assert_eq!(&one.model.jobs.list, &other.model.jobs.list);
    }

    /// Each process is in exactly one job, and each root is in its own.
    #[test]
    fn each_process_is_in_one_job(forest in any_forest()) {
        let story = story_of(&forest, 0);
        let mut members: Vec<ProcessId> = story.model.jobs.list.iter().flat_map(|job| job.members.clone()).collect();
        members.sort_unstable();
        let processes: Vec<ProcessId> = story.model.latest().unwrap().processes.iter().map(|process| process.id).collect();
        prop_assert_eq!(members, processes);
        for job in &story.model.jobs.list {
            prop_assert!(job.root.is_none_or(|root| job.members.contains(&root)), "{job:?}");
        }
    }

    /// A process is never its own ancestor, even with invalid parents in a recording.
    #[test]
    fn no_process_is_its_own_ancestor(parents in proptest::collection::vec(0..12_u32, 1..12), ticks in 0..2_u64) {
        let mut host = example::host(0);
        for (pid, parent) in (0..).zip(parents) {
            host.gpus.clear();
            let mut one = example::host(1).with(pid, "python a.py", 0, Bytes(0)).processes.remove(0);
            one.id.start_ticks = Some(7 + ticks * u64::from(pid % 2));
            one.facts_mut().parent = Ok(parent);
            host.processes.push(one);
        }
        let mut model = HostModel::default();
        model.replace(host);
        let ids: Vec<ProcessId> = model.verdicts().iter().map(|verdict| verdict.process).collect();
        for id in &ids {
            let place = model.process_tree().place(*id).unwrap();
            prop_assert!(model.process_tree().ancestors_of(place).all(|ancestor| ancestor != place));
        }
        let mut tree: Vec<ProcessId> = model.process_tree().forest(&ids).into_iter().map(|row| row.0).collect();
        tree.sort_unstable();
        prop_assert_eq!(tree, ids);
    }
}

#[test]
fn a_forest_keeps_the_given_order() {
    let mut story = VerdictStory::new();
    let lines = [
        "50 bash",
        "100 < 50 python a.py",
        "101 < 100 ffmpeg x",
        "102 < 101 python b.py",
        "103 < 100 python c.py",
    ];
    for line in lines {
        story.line(line);
    }
    story.pass(1);
    let ids = [103, 102, 50, 100].map(|pid| story.verdict(pid).process);
    let tree = story.model.process_tree().forest(&ids);
    assert_eq!(
        tree.iter()
            .map(|row| (row.0.pid, row.1))
            .collect::<Vec<_>>(),
        [(50, 0), (100, 1), (103, 2), (102, 2)]
    );
}
