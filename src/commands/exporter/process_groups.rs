//! The samples of processes: sums over those of one GPU, user, job and program.
//!
//! A label holds the names of the program and the script, never arguments.

use std::collections::{BTreeMap, BTreeSet};

use super::Detail;
use super::metrics::{Exposition, Metric, SampleLabels};
use super::sample_values::{held_by, is_leak, ratio, rounded, word};
use crate::base::text::Argv;
use crate::base::units::Moment;
use crate::model::{GpuOrProcess, HostModel, IdleHold, ReservedMemory, Verdict, main_gpu};
use crate::output::judged;
use crate::protocol::snapshot::{Gpu, GpuProcess, Process, ProcessFacts, ProcessId, Snapshot};

/// The most groups of a host. The others are joined for each user.
const MOST_GROUPS: usize = 500;

/// The program, or the user, of processes that are not told apart. No user has this name: it has a space.
const LEFT_OUT: &str = "(all others)";

/// The groups of a host that the last scrape told apart. Empty where there were far fewer than
/// [`MOST_GROUPS`].
#[derive(Debug, Default)]
pub(super) struct ToldApart(BTreeSet<GroupKey>);

/// The labels of a group beside its GPU. An empty text is a label that is not known, or not told.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct GroupKey {
    /// The place of the GPU in the snapshot.
    gpu: usize,
    user: String,
    slurm_job: String,
    pod: String,
    container: String,
    program: String,
    script: String,
    pid: String,
}

/// The sums of a group. A sum is `None` while it is known of no process.
#[derive(Debug, Default)]
struct GroupSums {
    processes: usize,
    memory: Option<u64>,
    sm: Option<f64>,
    allocated: Option<u64>,
    reserved: Option<u64>,
    categories: BTreeMap<String, u64>,
    /// The longest time of a hold, in seconds.
    held_idle: Option<u64>,
    leftovers: usize,
    leftover_memory: Option<u64>,
    /// The processes that leak.
    leaking: Option<usize>,
    growth: Option<i64>,
    /// The shortest time, in seconds.
    full_in: Option<u64>,
}

fn plus<T: std::ops::Add<Output = T>>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one + other),
        (one, other) => one.or(other),
    }
}

impl GroupSums {
    fn merge(&mut self, other: Self) {
        self.processes += other.processes;
        self.memory = plus(self.memory, other.memory);
        self.sm = plus(self.sm, other.sm);
        self.allocated = plus(self.allocated, other.allocated);
        self.reserved = plus(self.reserved, other.reserved);
        for (category, bytes) in other.categories {
            *self.categories.entry(category).or_default() += bytes;
        }
        self.held_idle = self.held_idle.max(other.held_idle);
        self.leftovers += other.leftovers;
        self.leftover_memory = plus(self.leftover_memory, other.leftover_memory);
        self.leaking = plus(self.leaking, other.leaking);
        self.growth = plus(self.growth, other.growth);
        self.full_in = match (self.full_in, other.full_in) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }
}

/// Adds the samples of the processes of a host.
pub(super) fn add_host(
    out: &mut Exposition,
    model: &HostModel,
    snapshot: &Snapshot,
    host: &str,
    detail: Detail,
    told_apart: &mut ToldApart,
) {
    let labels = SampleLabels::default().with("host", host);
    for (key, group) in told_apart.limit(groups(model, snapshot, detail)) {
        let Some(gpu) = snapshot.gpus.get(key.gpu) else {
            continue;
        };
        let labels = labels
            .with("gpu", &gpu.label())
            .with_known("uuid", Some(&gpu.uuid.0))
            .with("user", &key.user)
            .with("slurm_job", &key.slurm_job)
            .with("pod", &key.pod)
            .with("container", &key.container)
            .with("program", &key.program)
            .with("script", &key.script)
            .with("pid", &key.pid);
        add_group(out, &group, &labels);
    }
}

fn add_group(out: &mut Exposition, group: &GroupSums, labels: &SampleLabels) {
    out.add(Metric::Processes, labels, group.processes);
    out.add_known(Metric::ProcessMemory, labels, group.memory.ok_or(()));
    out.add_known(Metric::ProcessSm, labels, group.sm.map(rounded).ok_or(()));
    out.add_known(Metric::ProcessAllocated, labels, group.allocated.ok_or(()));
    out.add_known(Metric::ProcessReserved, labels, group.reserved.ok_or(()));
    for (category, bytes) in &group.categories {
        out.add(
            Metric::ProcessCategory,
            &labels.with("category", category),
            bytes,
        );
    }
    out.add_known(Metric::ProcessHeldIdle, labels, group.held_idle.ok_or(()));
    out.add(Metric::ProcessLeftovers, labels, group.leftovers);
    out.add_known(
        Metric::ProcessLeftoverMemory,
        labels,
        group.leftover_memory.ok_or(()),
    );
    out.add_known(Metric::ProcessLeaking, labels, group.leaking.ok_or(()));
    out.add_known(Metric::ProcessGrowth, labels, group.growth.ok_or(()));
    out.add_known(Metric::ProcessFullIn, labels, group.full_in.ok_or(()));
}

impl ToldApart {
    /// Joins groups where there are too many: those of one user on one GPU, so that the sums of each
    /// user stay right, and beyond another [`MOST_GROUPS`] those of one GPU.
    ///
    /// The groups with the most memory are told apart, so that no new large one is hidden behind many small
    /// old ones. A group that was told apart counts as twice as large, because series that come and go with
    /// each scrape are useless: a group takes the place of another one only when it is more than twice as
    /// large, and loses it again only to one that is more than twice as large as itself.
    fn limit(&mut self, groups: BTreeMap<GroupKey, GroupSums>) -> BTreeMap<GroupKey, GroupSums> {
        let before = std::mem::take(&mut self.0);
        if groups.len() <= MOST_GROUPS / 2 {
            return groups;
        }
        let (mut told, others) = split(groups, &before);
        let of_users = joined(others, |key| GroupKey {
            gpu: key.gpu,
            user: key.user,
            program: LEFT_OUT.to_owned(),
            ..GroupKey::default()
        });
        let (of_users, others) = split(of_users, &before);
        self.0 = told.keys().chain(of_users.keys()).cloned().collect();
        let of_gpus = joined(others, |key| GroupKey {
            gpu: key.gpu,
            user: LEFT_OUT.to_owned(),
            ..GroupKey::default()
        });
        // A program can call itself as it likes, so that its group may have such a key already.
        for (key, group) in of_users.into_iter().chain(of_gpus) {
            told.entry(key).or_default().merge(group);
        }
        told
    }
}

/// Splits the groups into those that are told apart, and the others.
fn split(
    groups: BTreeMap<GroupKey, GroupSums>,
    before: &BTreeSet<GroupKey>,
) -> (BTreeMap<GroupKey, GroupSums>, Vec<(GroupKey, GroupSums)>) {
    if groups.len() <= MOST_GROUPS {
        return (groups, Vec::new());
    }
    let mut by_weight: Vec<(GroupKey, GroupSums)> = groups.into_iter().collect();
    by_weight.sort_by_cached_key(|(key, group)| {
        let was_told = before.contains(key);
        let weight = group.memory.map(|bytes| {
            if was_told {
                bytes.saturating_mul(2)
            } else {
                bytes
            }
        });
        // Where memory is the same or not known, those that were told before come first.
        std::cmp::Reverse((weight, was_told))
    });
    let others = by_weight.split_off(MOST_GROUPS);
    (by_weight.into_iter().collect(), others)
}

/// Adds up the groups that get the same key.
fn joined(
    groups: Vec<(GroupKey, GroupSums)>,
    key_of: fn(GroupKey) -> GroupKey,
) -> BTreeMap<GroupKey, GroupSums> {
    let mut joined: BTreeMap<GroupKey, GroupSums> = BTreeMap::new();
    for (key, group) in groups {
        joined.entry(key_of(key)).or_default().merge(group);
    }
    joined
}

fn groups(model: &HostModel, snapshot: &Snapshot, detail: Detail) -> BTreeMap<GroupKey, GroupSums> {
    let holds = model.holds();
    let mut groups: BTreeMap<GroupKey, GroupSums> = BTreeMap::new();
    for (place, gpu) in snapshot.gpus.iter().enumerate() {
        // Lists of a GPU that hangs are those of the time before.
        if gpu.missing.processes.is_some() || model.age(gpu).is_some() {
            continue;
        }
        let leftovers: BTreeMap<ProcessId, &Verdict> = model
            .leftovers_on(gpu)
            .map(|verdict| (verdict.process, verdict))
            .collect();
        let listed = gpu
            .processes
            .iter()
            .map(|listed| (listed.process, Some(listed)));
        let unlisted = leftovers
            .keys()
            .filter(|id| gpu.process(**id).is_none())
            .map(|id| (*id, None));
        for (id, listed) in listed.chain(unlisted) {
            let key = GroupKey::of(snapshot, place, id, detail);
            let leftover = leftovers.get(&id).copied();
            let group = one(model, snapshot, place, id, listed, leftover, &holds);
            groups.entry(key).or_default().merge(group);
        }
    }
    groups
}

impl GroupKey {
    fn of(snapshot: &Snapshot, gpu: usize, id: ProcessId, detail: Detail) -> Self {
        let nobodys = Self {
            gpu,
            ..Self::default()
        };
        let Some(process) = snapshot.process(id) else {
            return nobodys;
        };
        let facts = &process.facts;
        let user = facts
            .user
            .as_ref()
            .map_or("", |user| user.as_str())
            .to_owned();
        let is_own = facts.uid == Ok(snapshot.host.facts.uid);
        if !is_own && !detail.other_users {
            return Self { user, ..nobodys };
        }
        let origin = facts.origin.as_ref().map_or("", |origin| origin.as_str());
        let (slurm_job, pod, container) = match origin.split_once(' ') {
            Some(("slurm", job)) => (job, "", ""),
            Some(("kubernetes", pod)) => ("", pod, ""),
            Some(_) => ("", "", origin),
            // A terminal, or a service.
            None => ("", "", ""),
        };
        let program = program(facts);
        let script = script(facts, &program).unwrap_or_default().to_owned();
        Self {
            gpu,
            user,
            slurm_job: slurm_job.to_owned(),
            pod: pod.to_owned(),
            container: container.to_owned(),
            program,
            script,
            pid: if detail.pids {
                id.pid.to_string()
            } else {
                String::new()
            },
        }
    }
}

/// Whether a word is a name: not an option such as `--secret=abc.py`, and not a path or an address.
fn is_name(word: &str) -> bool {
    !word.is_empty() && !word.starts_with('-') && !word.contains(['=', ' ', '/', ':', '@'])
}

/// The name of the script or module that an interpreter of Python runs; `None` where there is none.
fn script<'a>(facts: &'a ProcessFacts, program: &str) -> Option<&'a str> {
    let interpreters = ["python", "pypy", "ipython"];
    if !interpreters.iter().any(|name| program.starts_with(name)) {
        return None;
    }
    let mut arguments = facts.argv.iter().flat_map(Argv::iter).skip(1);
    loop {
        match arguments.next()? {
            "-c" => return None,
            "-m" => return arguments.next().filter(|module| is_name(module)),
            // Options with a value of their own.
            "-W" | "-X" => drop(arguments.next()),
            option if option.starts_with('-') => {}
            path => {
                let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
                return Some(name).filter(|name| is_name(name));
            }
        }
    }
}

/// The name of the program: its first argument without the folder, or the kernel's name of the process
/// where a program has written something else there.
fn program(facts: &ProcessFacts) -> String {
    let first = facts.argv.iter().flat_map(Argv::iter).next();
    let name = first.map(|path| path.rsplit_once('/').map_or(path, |(_, name)| name));
    let comm = || facts.comm.as_ref().map_or("", |comm| comm.as_str());
    name.filter(|name| is_name(name))
        .unwrap_or_else(comm)
        .to_owned()
}

/// The figures of one process on a GPU.
fn one(
    model: &HostModel,
    snapshot: &Snapshot,
    place: usize,
    id: ProcessId,
    listed: Option<&GpuProcess>,
    leftover: Option<&Verdict>,
    holds: &[IdleHold],
) -> GroupSums {
    let gpu = &snapshot.gpus[place];
    let process = snapshot.process(id);
    let now = model.now();
    let reserved = process.and_then(|process| ReservedMemory::of_process(process, Some(gpu), now));
    let hold = holds
        .iter()
        .find(|hold| hold.gpu == place && hold.processes.contains(&id));
    let mut group = GroupSums {
        processes: 1,
        memory: listed.and_then(|listed| Some(listed.memory.ok()?.0)),
        sm: listed.and_then(|listed| Some(ratio(listed.sm.ok()?))),
        allocated: reserved.map(|parts| parts.allocated.0),
        reserved: reserved.map(|parts| parts.sum().0),
        categories: categories(process, gpu, now),
        held_idle: hold.map(|hold| gpu.load.at.since(hold.since).as_secs()),
        leftovers: usize::from(leftover.is_some()),
        leftover_memory: leftover.and_then(|verdict| Some(held_by(verdict, listed, place)?.0)),
        ..GroupSums::default()
    };
    if main_gpu(model, id).is_some_and(|main| main.uuid == gpu.uuid)
        && let subject = GpuOrProcess::Process(id)
        && let Some(figures) = judged::growth(model, &subject).growth
    {
        group.leaking = Some(usize::from(is_leak(model, &subject, &figures)));
        group.growth = figures.rate_bytes_per_s;
        group.full_in = figures.oom_in_s;
    }
    group
}

/// The categories of the probe's latest report.
fn categories(process: Option<&Process>, gpu: &Gpu, now: Moment) -> BTreeMap<String, u64> {
    let mut categories = BTreeMap::new();
    let devices = process
        .and_then(|process| process.fresh_report(now))
        .map_or(&[][..], |report| &report.devices);
    let here = devices
        .iter()
        .filter(|device| device.gpu.as_ref() == Some(&gpu.uuid));
    for (category, bytes) in here.flat_map(|device| &device.categories) {
        *categories.entry(word(category)).or_default() += bytes.0;
    }
    categories
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::text::Text;
    use crate::base::units::Bytes;
    use crate::commands::exporter::metrics::Format;
    use crate::protocol::snapshot::example::host;

    const DETAIL: Detail = Detail {
        pids: false,
        other_users: false,
        dcgm: false,
    };

    const PIDS: Detail = Detail {
        pids: true,
        other_users: true,
        ..DETAIL
    };

    fn text(snapshot: &Snapshot, detail: Detail) -> String {
        next_text(&mut ToldApart::default(), snapshot, detail)
    }

    /// The answer to the next scrape.
    fn next_text(told_apart: &mut ToldApart, snapshot: &Snapshot, detail: Detail) -> String {
        let mut model = HostModel::default();
        model.replace(snapshot.clone());
        let mut out = Exposition::new();
        add_host(&mut out, &model, snapshot, "", detail, told_apart);
        out.text(Format::OpenMetrics)
    }

    /// The samples of the memory of groups: their labels and their bytes.
    fn memory(text: &str) -> BTreeMap<&str, u64> {
        text.lines()
            .filter_map(|line| line.strip_prefix("gputopmon_process_memory_bytes"))
            .map(|sample| {
                let (labels, bytes) = sample.rsplit_once(' ').expect("a sample has a value");
                (labels, bytes.parse().expect("the value is a number"))
            })
            .collect()
    }

    /// The sum of the samples with this label.
    fn sum(memory: &BTreeMap<&str, u64>, label: &str) -> u64 {
        let with_label = memory.iter().filter(|(labels, _)| labels.contains(label));
        with_label.map(|(_, bytes)| bytes).sum()
    }

    #[test]
    fn other_users_have_no_commands_unless_they_are_shared() {
        let mut snapshot = host(1)
            .with(7, "python /home/a/mine.py --token=x", 0, Bytes::from_gib(3))
            .with(8, "python -m theirs --lr 1", 0, Bytes::from_gib(2));
        snapshot.host.facts.uid = 1000;
        for (process, uid) in snapshot.processes.iter_mut().zip([1000, 1001]) {
            let facts = process.facts_mut();
            (facts.uid, facts.user) = (Ok(uid), Ok(format!("user{uid}").into()));
        }
        let alone = text(&snapshot, DETAIL);
        let mine = r#"user="user1000",program="python",script="mine.py"} 3221225472"#;
        assert!(alone.contains(mine), "{alone}");
        assert!(alone.contains(r#"user="user1001"} 2147483648"#), "{alone}");
        assert!(!alone.contains("theirs"), "{alone}");
        let shared = Detail {
            other_users: true,
            ..DETAIL
        };
        let shared = text(&snapshot, shared);
        let theirs = r#"user="user1001",program="python",script="theirs"} 2147483648"#;
        assert!(shared.contains(theirs), "{shared}");
        assert!(
            !shared.contains("token") && !shared.contains("/home"),
            "{shared}"
        );
        // Root owns nobody else's processes here.
        snapshot.host.facts.uid = 0;
        let root = text(&snapshot, DETAIL);
        assert!(!root.contains("mine") && !root.contains("theirs"), "{root}");
    }

    #[test]
    fn processes_of_one_program_are_one_group_and_an_unknown_figure_is_absent() {
        let mut snapshot = host(1)
            .with(7, "python train.py --rank 0", 0, Bytes::from_gib(3))
            .with(8, "python train.py --rank 1", 0, Bytes::from_gib(2));
        snapshot.host.facts.uid = snapshot.processes[0].facts.uid.unwrap_or_default();
        let sum = text(&snapshot, DETAIL);
        assert!(sum.contains("gputopmon_processes{gpu=\"0\""), "{sum}");
        assert!(sum.contains("} 5368709120\n"), "{sum}");
        for listed in &mut snapshot.gpus[0].processes {
            listed.memory = Err(crate::protocol::snapshot::Missing::Unsupported);
        }
        let unknown = text(&snapshot, DETAIL);
        assert!(!unknown.contains("process_memory_bytes"), "{unknown}");
        assert!(unknown.contains("} 2\n"), "{unknown}");
    }

    /// A host with processes of alice and bob, who take turns. The memory of each is that of its PID.
    fn crowd(pids: impl Iterator<Item = u32>, memory: impl Fn(u32) -> u64) -> Snapshot {
        let mut snapshot = host(1);
        for pid in pids {
            snapshot = snapshot.with(pid, "python train.py", 0, Bytes(memory(pid)));
            if pid % 2 == 1 {
                let place = snapshot
                    .processes
                    .binary_search_by_key(&pid, |process| process.id.pid);
                let facts = snapshot.processes[place.expect("it was added")].facts_mut();
                facts.user = Ok("bob".into());
            }
        }
        snapshot
    }

    #[test]
    fn the_number_of_series_is_limited_and_the_sums_of_users_stay_right() {
        let text = text(&crowd(1..=2000, u64::from), PIDS);
        let memory = memory(&text);
        assert_eq!(memory.len(), MOST_GROUPS + 2);
        assert_eq!(sum(&memory, r#"user="alice""#), 1000 * 1001);
        assert_eq!(sum(&memory, r#"user="bob""#), 1000 * 1000);
        let others = r#"user="bob",program="(all others)"}"#;
        assert_eq!(sum(&memory, others), 750 * 750);
        assert!(memory.keys().all(|labels| {
            labels.contains("(all others)") || !labels.contains(r#"pid="1500""#)
        }));
    }

    #[test]
    fn thousands_of_users_are_limited_and_no_memory_is_lost() {
        let mut snapshot = crowd(1..=2000, u64::from);
        for process in &mut snapshot.processes {
            let user = format!("user{}", process.id.pid);
            process.facts_mut().user = Ok(user.as_str().into());
        }
        // A program may call itself so.
        let facts = snapshot.processes[1999].facts_mut();
        facts.argv = Ok([LEFT_OUT].into_iter().map(Text::from).collect());
        facts.comm = Ok(LEFT_OUT.into());
        let text = text(&snapshot, PIDS);
        let memory = memory(&text);
        assert_eq!(memory.len(), 2 * MOST_GROUPS + 1);
        assert_eq!(sum(&memory, ""), 2000 * 2001 / 2);
        assert_eq!(sum(&memory, r#"user="(all others)"}"#), 1000 * 1001 / 2);
    }

    #[test]
    fn the_same_groups_are_told_apart_while_amounts_change_and_small_groups_come_and_go() {
        let mut told_apart = ToldApart::default();
        // Amounts rise and fall by a third, each in its own rhythm.
        let amount = |pid: u32, scrape: u32| {
            let swing = u64::from((pid * 7 + scrape * 13) % 41);
            (80 + swing) << 20
        };
        let scrape = |told_apart: &mut ToldApart, number: u32, more: &[(u32, u64)]| {
            // Each of the last hundred lives for a few scrapes.
            let pids = (1..=600).chain(1000 + number * 30..1100 + number * 30);
            let pids = pids.chain(more.iter().map(|(pid, _)| *pid));
            let snapshot = crowd(pids, |pid| {
                let of_more = more.iter().find(|(other, _)| *other == pid);
                of_more.map_or_else(|| amount(pid, number), |(_, bytes)| *bytes)
            });
            let text = next_text(told_apart, &snapshot, PIDS);
            let memory = memory(&text);
            assert!(memory.len() <= MOST_GROUPS + 2, "{}", memory.len());
            memory
                .into_keys()
                .map(str::to_owned)
                .collect::<BTreeSet<String>>()
        };
        let is_lasting = |labels: &&String| {
            let pid = labels
                .split_once("pid=\"")
                .and_then(|(_, rest)| rest.split_once('"'));
            pid.is_none_or(|(pid, _)| pid.parse::<u32>().is_ok_and(|pid| pid <= 600))
        };
        // The number of lasting groups that were told apart, and are not any more.
        let left = |before: &BTreeSet<String>, told: &BTreeSet<String>| {
            before.difference(told).filter(is_lasting).count()
        };
        let mut before = scrape(&mut told_apart, 0, &[]);
        for number in 1..20 {
            let told = scrape(&mut told_apart, number, &[]);
            assert_eq!(left(&before, &told), 0, "scrape {number}");
            before = told;
        }

        // A new group that is far larger takes the place of one other, and keeps it.
        for number in 20..25 {
            let told = scrape(&mut told_apart, number, &[(9999, 400 << 20)]);
            assert!(
                told.iter().any(|labels| labels.contains("pid=\"9999\"")),
                "{number}"
            );
            let left = left(&before, &told);
            assert!(left <= usize::from(number == 20), "{left}");
            before = told;
        }
    }

    #[test]
    fn an_argument_is_no_name() {
        for (command, program, script) in [
            ("python train.py", "python", "train.py"),
            ("/opt/env/bin/python3.11 -u a/b.py -x", "python3.11", "b.py"),
            ("python -c pass --secret=abc.py", "python", ""),
            ("ray::train(key=1) x", "ray::train", ""),
            (
                "python -X dev -m torch.distributed.run a.py",
                "python",
                "torch.distributed.run",
            ),
            (
                "llama-server -m /home/a/secret-customer.gguf",
                "llama-server",
                "",
            ),
            ("serve --input /data/patient-4711.py", "serve", ""),
            ("python -m /home/a/secret", "python", ""),
            ("python run.sh patient-4711.py", "python", "run.sh"),
        ] {
            let mut snapshot = host(1).with(7, command, 0, Bytes(1));
            let facts = snapshot.processes[0].facts_mut();
            facts.comm = Ok("ray::train".into());
            let uid = facts.uid.unwrap_or_default();
            snapshot.host.facts.uid = uid;
            let key = GroupKey::of(&snapshot, 0, snapshot.processes[0].id, DETAIL);
            assert_eq!(
                (key.program.as_str(), key.script.as_str()),
                (program, script),
                "{command}"
            );
        }
    }
}
