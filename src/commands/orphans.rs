//! `gputop orphans`: who holds GPU memory and should not, and why we think so; for people, and for scripts.
//!
//! It looks through an agent as every report does, and signals nobody.

use std::collections::HashSet;
use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use crate::base::terminal::{self, TerminalAbilities};
use crate::base::units::{Bytes, Moment};
use crate::commands::report::table::{self, Heading, cell, line};
use crate::commands::report::{self, Exit};
use crate::model::{HostModel, RetainedMemory, Total, UnaccountedMemory, Verdict, VerdictKind};
use crate::protocol::agent_options::AgentOptions;
use crate::protocol::snapshot::{Gpu, Missing, Process, ProcessId, Reading, Snapshot, State};

/// Which orphans to list, and how to write them.
#[derive(Debug)]
pub struct OrphansOptions {
    /// How the agent is started.
    pub agent: AgentOptions,
    /// How long to wait for the driver.
    pub timeout: Duration,
    /// Whether to write JSON.
    pub json: bool,
    /// The user whose processes are listed, `me` for the current user; `None` for everyone.
    pub user: Option<String>,
    /// Whether to write only ASCII.
    pub ascii: bool,
}

/// Prints what was found.
///
/// # Errors
///
/// When no agent can be started, when it says nothing at all, or when nobody reads what is printed.
pub fn run(options: &OrphansOptions) -> anyhow::Result<ExitCode> {
    let (model, reason) = report::look(&options.agent, options.timeout, is_enough)?;
    if let Some(reason) = &reason {
        report::complain(reason);
    }
    let Some(snapshot) = model.latest() else { return Ok(Exit::Error.into()) };
    let found = Found::of(&model, snapshot, options.user.as_deref());
    if options.json {
        report::put(format!("{}\n", found.json(reason.is_none())).as_bytes())?;
    } else {
        let text = found.text(terminal::is_stdout() && TerminalAbilities::from_env().colour);
        let text = if options.ascii { ascii(&text) } else { text };
        report::put(text.as_bytes())?;
    }
    Ok(found.exit(reason.is_none()).into())
}

/// Nothing younger is left behind: in a busy session somebody new is always there, and nobody waits for that one.
const YOUNG: Duration = Duration::from_secs(2);

/// Whether every process was looked at once, so that one can say who is gone; and read, so that one can
/// say what is left.
fn is_enough(snapshot: &Snapshot) -> bool {
    let per_second = snapshot.host.facts.ticks_per_second.max(1);
    let is_due = |it: &Process| {
        let is_on_gpu = snapshot.gpus.iter().any(|gpu| gpu.device_file_holders.contains(&it.id));
        let started = it.id.start_ticks.map(|ticks| Moment(ticks.saturating_mul(1000) / per_second));
        let is_young = started.is_some_and(|it| snapshot.at.since(it) < YOUNG);
        // One that has ended has no arguments. Related processes that is on no GPU is read every few seconds only.
        it.load.state != Ok(State::Zombie)
            && (is_on_gpu || !is_young)
            && (it.facts.argv == Err(Missing::NotYet)
                || it.facts.user == Err(Missing::NotYet)
                || it.load.cpu == Err(Missing::NotYet) && is_on_gpu)
    };
    snapshot.host.scan.at != Moment(0) && !snapshot.processes.iter().any(is_due)
}

/// The same in ASCII; what dims a line stays.
fn ascii(text: &str) -> String {
    table::ascii(&text.replace('≥', ">="))
}

const COLUMNS: [Heading; 8] = [
    ("VERDICT", false),
    ("GPU", true),
    ("PID", true),
    ("USER", false),
    ("MEMORY", true),
    ("RSS", true),
    ("S", false),
    ("COMMAND", false),
];

/// What is to be said.
struct Found<'a> {
    model: &'a HostModel,
    snapshot: &'a Snapshot,
    /// On a GPU, those that hold most first.
    suspects: Vec<&'a Verdict>,
    /// On none.
    leftovers: Vec<&'a Verdict>,
}

impl<'a> Found<'a> {
    fn of(model: &'a HostModel, snapshot: &'a Snapshot, user: Option<&str>) -> Self {
        let mine: HashSet<ProcessId> = snapshot
            .processes
            .iter()
            .filter(|process| match user {
                None => true,
                Some("me") => process.facts.uid == Ok(snapshot.host.facts.uid),
                Some(name) => process.facts.user.as_ref().is_ok_and(|it| it.as_str() == name),
            })
            .map(|it| it.id)
            .collect();
        // A ghost has no user but that of those who keep its memory.
        let is_asked_for = |it: &&Verdict| match &it.kind {
            VerdictKind::Ghost { heirs, .. } => user.is_none() || heirs.iter().any(|heir| mine.contains(heir)),
            _ => mine.contains(&it.process),
        };
        let verdicts = || model.verdicts().iter().filter(is_asked_for);
        let mut suspects: Vec<&Verdict> = verdicts().filter(|it| it.is_suspect() && it.is_on_gpu()).collect();
        suspects.sort_by_key(|it| std::cmp::Reverse((it.severity(), memory(it))));
        Self { model, snapshot, suspects, leftovers: verdicts().filter(|it| it.is_leftover()).collect() }
    }

    fn exit(&self, is_all: bool) -> Exit {
        match Exit::of(self.snapshot, is_all) {
            none @ (Exit::NoDriver | Exit::NoGpu) => none,
            _ if !self.suspects.is_empty() || !self.leftovers.is_empty() => Exit::Found,
            // What else failed, a fan or a clock, is not what was asked.
            Exit::Partial if !is_all || self.snapshot.gpus.iter().any(|it| it.trouble.is_some()) => Exit::Partial,
            _ => Exit::Success,
        }
    }

    fn text(&self, dims: bool) -> String {
        let mut text = String::new();
        let troubles = self.snapshot.gpus.iter().map(|it| &it.trouble).chain([&self.snapshot.driver.trouble]);
        for trouble in troubles.flatten() {
            line(&mut text, None, trouble.sentence.as_str());
        }
        let summary = Verdict::summary(self.suspects.iter().copied());
        line(&mut text, None, summary.as_deref().unwrap_or("no orphans on these GPUs"));
        self.table(&mut text, &self.suspects);
        // What one of these keeps alone stands on its line.
        let is_told = |it: &&UnaccountedMemory| !self.is_kept_by_one(|gpu| gpu.uuid == it.gpu, None);
        for unaccounted in self.model.unaccounted().iter().filter(is_told) {
            let _infallible: std::fmt::Result = write!(text, "\n{}\n", self.unaccounted(unaccounted));
        }
        if !self.leftovers.is_empty() {
            let (dim, plain) = if dims { ("\x1b[2m", "\x1b[22m") } else { ("", "") };
            let rss: Bytes = self.leftovers.iter().filter_map(|it| it.rss.ok()).sum();
            let shm = cell(&self.snapshot.host.scan.shm_used);
            let _infallible: std::fmt::Result = write!(
                text,
                "\n{dim}left behind without GPU memory: {rss} of host memory (RSS); {shm} in use in /dev/shm\n"
            );
            self.table(&mut text, &self.leftovers);
            text.push_str(plain);
        }
        text
    }

    /// A line for each, and below it why we think so: uncut, because its end has the numbers.
    fn table(&self, text: &mut String, verdicts: &[&Verdict]) {
        if verdicts.is_empty() {
            return;
        }
        let mut rows = String::new();
        table::rows(&mut rows, None, &COLUMNS, verdicts.iter().map(|it| self.row(it)));
        let mut rows = rows.lines();
        line(text, None, rows.next().unwrap_or_default());
        for (row, verdict) in rows.zip(verdicts) {
            line(text, None, row);
            line(text, None, &format!("         {}", verdict.sentence()));
        }
    }

    fn row(&self, verdict: &Verdict) -> [String; 8] {
        let process = self.snapshot.process(verdict.process);
        let of = |show: &dyn Fn(&Process) -> String| process.map_or_else(String::new, show);
        [
            verdict.word().to_owned(),
            self.gpus(verdict).iter().map(|at| table::number(&self.snapshot.gpus[*at])).collect::<Vec<_>>().join(","),
            verdict.process.pid.to_string(),
            of(&|it| cell(&it.facts.user)),
            self.memory(verdict),
            cell(&verdict.rss),
            of(&|it| cell(&it.load.state.map(State::letter))),
            of(&table::command),
        ]
    }

    /// Its memory, each part on one line only.
    fn memory(&self, verdict: &Verdict) -> String {
        let alone = || verdict.kept.iter().filter(|it| it.holders == 1);
        match verdict.listed {
            Some(Ok(_)) if self.is_kept_by_one(|_| true, Some(verdict.process)) => "kept".to_owned(),
            Some(Ok(listed)) => listed.bytes.to_string(),
            Some(Err(_)) => "-".to_owned(),
            None if verdict.kept.is_empty() => "-".to_owned(),
            None if alone().next().is_none() => "shared".to_owned(),
            None => alone().map(|it| it.memory).sum::<Bytes>().to_string(),
        }
    }

    /// Whether one that is named here keeps alone what is unaccounted there, or what that ghost is listed for.
    fn is_kept_by_one(&self, is_there: impl Fn(&Gpu) -> bool, ghost: Option<ProcessId>) -> bool {
        let holders = self.suspects.iter().filter(|it| it.listed.is_none());
        let is_it = |kept: &&RetainedMemory| {
            kept.holders == 1 && kept.ghost == ghost && self.snapshot.gpus.get(kept.gpu).is_some_and(&is_there)
        };
        holders.flat_map(|it| &it.kept).any(|kept| is_it(&kept))
    }

    /// The GPUs that it is listed for or has open.
    fn gpus(&self, verdict: &Verdict) -> Vec<usize> {
        let mut gpus = self.model.process_total(verdict.process).map_or_else(Vec::new, |it| it.gpus.clone());
        gpus.extend(&verdict.open);
        gpus.sort_unstable();
        gpus
    }

    /// `GPU 0: 11.0 GiB that no process accounts for; open in 101 (python train.py); 42 could not be looked at`
    fn unaccounted(&self, unaccounted: &UnaccountedMemory) -> String {
        let gpu = self.snapshot.gpu(&unaccounted.gpu).map_or_else(String::new, table::number);
        let holders = unaccounted.device_file_holders.iter().map(|id| match self.snapshot.process(*id) {
            Some(process) => format!("{} ({})", id.pid, table::command(process)),
            None => id.pid.to_string(),
        });
        let holders = holders.collect::<Vec<_>>().join(", ");
        let open =
            if holders.is_empty() { "nobody to be seen has it open".to_owned() } else { format!("open in {holders}") };
        let unreadable = match unaccounted.unreadable {
            0 => String::new(),
            count => format!("; {count} processes could not be looked at (run gputop as root)"),
        };
        format!("GPU {gpu}: {} that no process accounts for; {open}{unreadable}", unaccounted.memory)
    }

    fn json(&self, is_all: bool) -> Value {
        let total = Verdict::total(&self.suspects.iter().copied());
        json!({
            "schema": Snapshot::SCHEMA,
            "is_all": is_all,
            "summary": Verdict::summary(self.suspects.iter().copied()),
            "memory_bytes": total.bytes,
            "memory_is_lower_bound": total.lower_bound,
            "processes": self.suspects.iter().map(|it| self.entry(it)).collect::<Vec<_>>(),
            "leftovers": self.leftovers.iter().map(|it| self.entry(it)).collect::<Vec<_>>(),
            "unaccounted": self.model.unaccounted().iter().map(|it| json!({
                "gpu_uuid": it.gpu,
                "memory_bytes": it.memory,
                "device_file_holders": it.device_file_holders,
                "unreadable_processes": it.unreadable,
                "sentence": self.unaccounted(it),
            })).collect::<Vec<_>>(),
            "shm_used_bytes": known(&self.snapshot.host.scan.shm_used),
        })
    }

    fn entry(&self, verdict: &Verdict) -> Value {
        let facts = self.snapshot.process(verdict.process).map(|it| &it.facts);
        let job = self.model.job(verdict.process);
        json!({
            "process": verdict.process,
            "verdict": verdict.name(),
            "sentence": verdict.sentence(),
            "gpu_uuids": self.gpus(verdict).iter().map(|at| &self.snapshot.gpus[*at].uuid).collect::<Vec<_>>(),
            "memory_used_bytes": verdict.listed.and_then(|it| Some(it.ok()?.bytes)),
            "memory_kept_bytes": verdict.kept.iter().map(|it| it.memory).sum::<Bytes>(),
            "rss_bytes": known(&verdict.rss),
            "user": facts.and_then(|it| known(&it.user)),
            "argv": facts.and_then(|it| known(&it.argv)),
            "origin": facts.and_then(|it| known(&it.origin)),
            "job": job.map(|it| json!({ "name": it.name, "root": it.root, "members": it.members })),
        })
    }
}

fn known<T: Clone>(reading: &Reading<T>) -> Option<T> {
    reading.clone().ok()
}

/// What the driver lists for it; else what it may keep.
fn memory(verdict: &Verdict) -> Option<Bytes> {
    match verdict.listed {
        Some(listed) => listed.ok().map(|it: Total| it.bytes),
        None => verdict.kept.iter().map(|it| it.memory).reduce(|a, b| Bytes(a.0.saturating_add(b.0))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::snapshot::example;

    /// A data worker that keeps a GPU open after its trainer ended, and a trainer of somebody else.
    fn left_behind() -> HostModel {
        let mut host = example::host(1).with(101, "python train.py", 0, Bytes::from_gib(11)).with(
            200,
            "python eval.py",
            0,
            Bytes::from_gib(2),
        );
        host.host.scan.at = host.at;
        let worker = host.processes[0].facts_mut();
        (worker.comm, worker.group) = (Ok("pt_data_worker".into()), Ok(100));
        let other = host.processes[1].facts_mut();
        (other.uid, other.user) = (Ok(1001), Ok("bob".into()));
        let mut model = HostModel::default();
        model.replace(host);
        model
    }

    #[track_caller]
    fn check(user: Option<&str>, exit: Exit, expected: &[&str]) {
        let model = left_behind();
        let found = Found::of(&model, model.latest().expect("it has one"), user);
        assert_eq!(found.text(false).lines().collect::<Vec<_>>(), expected);
        assert_eq!(found.exit(true), exit);
        assert_eq!(found.json(true)["processes"].as_array().map(Vec::len), Some(found.suspects.len()));
    }

    #[test]
    fn an_orphan_is_named_with_the_evidence_and_found() {
        let lines = [
            "1 orphan holds 11.0 GiB",
            "VERDICT  GPU  PID  USER     MEMORY      RSS  S  COMMAND",
            "orphan     0  101  alice  11.0 GiB  3.0 GiB  S  python train.py",
            "         it was left to PID 1, the leader of its process group (100) is gone, though it computes; it still \
             holds 11.0 GiB",
        ];
        check(None, Exit::Found, &lines);
        check(Some("me"), Exit::Found, &lines);
        check(Some("alice"), Exit::Found, &lines);
    }

    #[test]
    fn who_has_none_is_told_so() {
        check(Some("bob"), Exit::Success, &["no orphans on these GPUs"]);
    }
}
