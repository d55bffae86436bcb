//! `gputop orphans`: lists the processes that hold memory but should not, and unaccounted memory,
//! with the evidence.
//!
//! Reads an agent as every report does. Never sends a signal.

#[cfg(test)]
mod tests;
mod unseen_processes;

use std::collections::HashSet;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use self::unseen_processes::UnseenProcesses;
use super::live::gpu_ids;
use super::live::read_hosts::{self, HostState};
use crate::app::lists::unknown_processes;
use crate::base::units::{Bytes, parse_span};
use crate::flags::{HostArgs, OutputArgs, ReadArgs};
use crate::model::{HostModel, RetainedMemory, Total, UnaccountedMemory, Verdict, VerdictKind};
use crate::output::table::{self, Heading, cell};
use crate::output::{self, Exit, TextStyle, labels};
use crate::protocol::snapshot::{Gpu, Missing, Process, ProcessId, Reading, Snapshot, State};

/// Which orphans to list, and how to write them.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct OrphansArgs {
    #[command(flatten)]
    read: ReadArgs,

    /// Watch the processes for this time first: a process counts as stuck or quiet only after 10s
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_span)]
    watch: Duration,

    /// Show only the processes of this user; `me` for your own
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// Show only the orphans on these GPUs, given by index, UUID or PCI bus ID
    #[arg(short = 'i', long = "id", value_name = "GPU,…", value_delimiter = ',')]
    id: Vec<String>,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    pub(crate) hosts: HostArgs,
}

/// The end of the help.
const EXIT_CODES: &str = "\
Exit codes:
   10  a process holds GPU memory and should not
    0  no process does
    5  no such process was found, but a process or a GPU could not be judged
    6  no GPU has the ID of -i
    3  the host has no NVIDIA driver
    4  it has no GPU
    1  a host is lost, or another error";

/// The interval of `orphans`: a report needs three passes, and nobody waits long for it.
const ORPHANS_INTERVAL: Duration = Duration::from_millis(250);

/// Prints the orphans. Fails if no agent can be started, or if the standard output cannot be
/// written.
pub(crate) fn run(args: &OrphansArgs) -> anyhow::Result<ExitCode> {
    let (exits, has_unknown_ids) = read_hosts::read_once(
        &args.read.hosts(&args.hosts, Some(ORPHANS_INTERVAL)),
        is_complete,
        is_decided,
        args.watch,
        |hosts| {
            let has_unknown_ids = gpu_ids::print_unknown(hosts, &args.id);
            let exits = hosts
                .iter()
                .map(|host| print(args, hosts, host))
                .collect::<anyhow::Result<Vec<Exit>>>();
            exits.map(|exits| (exits, has_unknown_ids))
        },
    )??;
    let exit = match Exit::combined(&exits) {
        _ if exits.contains(&Exit::Found) => Exit::Found,
        Exit::Success if has_unknown_ids => Exit::Nothing,
        exit => exit,
    };
    Ok(exit.into())
}

/// Prints the orphans of a host.
fn print(
    args: &OrphansArgs,
    hosts: &[HostState<'_>],
    host: &HostState<'_>,
) -> anyhow::Result<Exit> {
    let HostState { name, trouble, .. } = host;
    let names_host = hosts.len() > 1;
    if let Some(trouble) = trouble {
        output::print_error(&read_hosts::sentence_on(host, trouble));
    }
    let Some((model, snapshot)) = host.seen else {
        return Ok(Exit::Error);
    };
    let found = FoundOrphans::select(
        model,
        snapshot,
        args.user.as_deref(),
        &args.id,
        trouble.is_none(),
    );
    if args.output.json {
        let mut json = found.json();
        if names_host {
            json["host"] = json!(name);
        }
        output::print_json(&json)?;
    } else {
        let style = TextStyle::of_stdout(args.output.is_ascii());
        let heading = if names_host {
            format!("{name}:\n")
        } else {
            String::new()
        };
        let text = heading + &found.text(style.bold);
        output::print(
            if style.ascii {
                table::ascii(&text.replace('≥', ">="))
            } else {
                text
            }
            .as_bytes(),
        )?;
    }
    Ok(found.exit())
}

/// Whether every process has been scanned, and its details have been read.
fn is_complete(model: &HostModel) -> bool {
    /// The details of a younger process that has no GPU open are not waited for, unless they decide
    /// whether it is an orphan: a busy host always has one. Nor are those of a process that started
    /// during this report.
    const YOUNG: Duration = Duration::from_secs(2);
    let Some(snapshot) = model.latest() else {
        return false;
    };
    let began = model.history().began().unwrap_or(snapshot.at);
    let is_incomplete = |process: &Process| {
        let is_on_gpu = snapshot
            .gpus
            .iter()
            .any(|gpu| gpu.device_file_holders.contains(&process.id));
        let is_open = || {
            model
                .verdict(process.id)
                .is_some_and(|verdict| verdict.undecided_for.is_some())
        };
        let youth = if is_on_gpu || is_open() {
            snapshot.at.since(began)
        } else {
            YOUNG
        };
        let is_young = labels::elapsed(snapshot, process).is_ok_and(|age| age < youth);
        // A zombie has no arguments. The CPU use of related processes without a GPU is read every
        // few seconds only.
        process.load.state != Ok(State::Zombie)
            && !is_young
            && (process.awaits_arguments()
                || process.facts.user == Err(Missing::NotYet)
                || process.load.cpu == Err(Missing::NotYet) && is_on_gpu)
    };
    model.is_complete() && !snapshot.processes.iter().any(is_incomplete)
}

/// Whether one more reading would show nothing new about a process on a GPU.
fn is_decided(model: &HostModel) -> bool {
    !model
        .verdicts()
        .iter()
        .any(|verdict| verdict.is_on_gpu() && verdict.undecided_for.is_some())
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

struct FoundOrphans<'a> {
    model: &'a HostModel,
    snapshot: &'a Snapshot,
    /// The chosen GPUs, as index, UUID or PCI address; all if empty.
    ids: &'a [String],
    /// Processes on a GPU, the most severe verdict first, then the most memory.
    suspects: Vec<&'a Verdict>,
    /// Processes on no GPU.
    leftovers: Vec<&'a Verdict>,
    unseen: UnseenProcesses<'a>,
    /// The number of processes whose environment this user may not read: those of other users.
    denied_environments: usize,
    /// Whether everything was read that the report waits for.
    is_all: bool,
}

impl<'a> FoundOrphans<'a> {
    /// Selects the processes of `user`, or of all users, on the GPUs with these IDs, or on all and
    /// none. `me` is the user who runs gputop.
    fn select(
        model: &'a HostModel,
        snapshot: &'a Snapshot,
        user: Option<&str>,
        ids: &'a [String],
        is_all: bool,
    ) -> Self {
        // Whether the process belongs to the user; missing where its user is not known.
        let is_of_user = |process: &Process| match user {
            None => Ok(true),
            Some("me") => process.facts.uid.map(|uid| uid == snapshot.host.facts.uid),
            Some(name) => process
                .facts
                .user
                .as_ref()
                .map(|user| user.as_str() == name)
                .map_err(|why| *why),
        };
        let of_user: HashSet<ProcessId> = snapshot
            .processes
            .iter()
            .filter(|process| is_of_user(process) == Ok(true))
            .map(|process| process.id)
            .collect();
        // A process that has ended belongs to the users of the processes that keep its memory.
        let is_wanted = |verdict: &&Verdict| match &verdict.kind {
            VerdictKind::Ghost { keepers, .. } => {
                user.is_none() || keepers.iter().any(|keeper| of_user.contains(keeper))
            }
            _ => of_user.contains(&verdict.process),
        };
        let (unseen, suspects, leftovers) = (UnseenProcesses::default(), Vec::new(), Vec::new());
        let mut found = Self {
            model,
            snapshot,
            ids,
            suspects,
            leftovers,
            unseen,
            denied_environments: 0,
            is_all,
        };
        // A process that ended just now may be gone at the next reading.
        let is_found = |verdict: &Verdict| verdict.is_suspect() && verdict.undecided_for.is_none();
        let verdicts = || {
            model
                .verdicts()
                .iter()
                .filter(is_wanted)
                .filter(|verdict| found.is_chosen(verdict))
        };
        let mut suspects: Vec<&Verdict> = verdicts()
            .filter(|verdict| is_found(verdict) && verdict.is_on_gpu())
            .collect();
        suspects.sort_by_key(|verdict| std::cmp::Reverse((verdict.severity(), memory(verdict))));
        let leftovers = verdicts().filter(|verdict| verdict.is_leftover()).collect();
        (found.suspects, found.leftovers) = (suspects, leftovers);
        let mut unseen = UnseenProcesses::default();
        let mut denied_environments = 0;
        for verdict in model
            .verdicts()
            .iter()
            .filter(|verdict| found.is_chosen(verdict))
        {
            let Some(process) = snapshot.process(verdict.process) else {
                continue;
            };
            // With hidepid, only the processes of others are hidden.
            let is_others =
                user == Some("me") && matches!(verdict.kind, VerdictKind::Foreign { hidden: true });
            if is_of_user(process).unwrap_or(!is_others) {
                unseen.add(verdict, process, is_all);
                denied_environments += usize::from(process.facts.launcher == Err(Missing::Denied));
            }
        }
        (found.unseen, found.denied_environments) = (unseen, denied_environments);
        found
    }

    /// Whether the process is on a chosen GPU. Without IDs, all processes are chosen, also those on
    /// no GPU.
    fn is_chosen(&self, verdict: &Verdict) -> bool {
        let is_chosen = |gpu: &Gpu| gpu_ids::is_chosen(self.snapshot, gpu, self.ids);
        self.ids.is_empty() || self.gpus(verdict).into_iter().any(is_chosen)
    }

    fn chosen_gpus(&self) -> impl Iterator<Item = &'a Gpu> {
        let Self { snapshot, ids, .. } = *self;
        snapshot
            .gpus
            .iter()
            .filter(|gpu| gpu_ids::is_chosen(snapshot, gpu, ids))
    }

    /// The unaccounted memory of the chosen GPUs.
    fn unaccounted_memory(&self) -> impl Iterator<Item = &'a UnaccountedMemory> {
        self.model
            .unaccounted()
            .iter()
            .filter(|memory| self.chosen_gpus().any(|gpu| gpu.uuid == memory.gpu))
    }

    /// Whether the driver listed the processes of every chosen GPU.
    fn are_processes_known(&self) -> bool {
        self.chosen_gpus()
            .all(|gpu| gpu.missing.processes.is_none())
    }

    /// Whether all processes on the chosen GPUs that were asked for could be judged.
    fn is_complete(&self) -> bool {
        self.is_all && self.are_processes_known() && !self.unseen.is_any_on_gpu()
    }

    fn exit(&self) -> Exit {
        match Exit::of_snapshot(self.snapshot, self.is_all) {
            none @ (Exit::NoDriver | Exit::NoGpu) => none,
            _ if !self.suspects.is_empty() || !self.leftovers.is_empty() => Exit::Found,
            // Readings of fans or clocks that failed do not matter here.
            _ if !self.is_complete() || self.chosen_gpus().any(|gpu| gpu.trouble.is_some()) => {
                Exit::Partial
            }
            _ => Exit::Success,
        }
    }

    /// Returns the report. `dims` says whether processes without GPU memory are dim.
    fn text(&self, dims: bool) -> String {
        let troubles = self
            .chosen_gpus()
            .map(|gpu| &gpu.trouble)
            .chain([&self.snapshot.driver.trouble]);
        let mut lines: Vec<String> = troubles
            .flatten()
            .map(|trouble| trouble.sentence.to_string())
            .collect();
        let summary = Verdict::summary(self.suspects.iter().copied());
        let unknown = unknown_processes::sentences(self.chosen_gpus());
        let none = if unknown.is_empty() {
            "no orphans on these GPUs"
        } else {
            "no orphans among the known processes"
        };
        lines.extend(unknown);
        lines.push(summary.unwrap_or_else(|| none.to_owned()));
        lines.extend(self.table(&self.suspects));
        lines.extend(self.unseen.sentences());
        if self.snapshot.host.facts.hides_processes == Ok(true) {
            lines.push(
                "processes of other users are hidden here (/proc has hidepid): run gputop as root"
                    .to_owned(),
            );
        }
        match self.model.stand_ins() {
            0 => {}
            1 => lines.push("1 process of gputop's demo is left out".to_owned()),
            count => lines.push(format!("{count} processes of gputop's demo are left out")),
        }
        // Memory that only one process keeps is in the row of that process.
        let is_listed =
            |memory: &UnaccountedMemory| self.is_kept_by_one(|gpu| gpu.uuid == memory.gpu, None);
        for memory in self
            .unaccounted_memory()
            .filter(|memory| !is_listed(memory))
        {
            lines.extend([
                String::new(),
                table::unaccounted_memory(self.snapshot, memory),
            ]);
        }
        let (dim, plain) = if dims && !self.leftovers.is_empty() {
            ("\x1b[2m", "\x1b[22m")
        } else {
            ("", "")
        };
        if !self.leftovers.is_empty() {
            let rss = Total::sum_bytes(self.leftovers.iter().map(|verdict| verdict.rss));
            let rss = labels::word(rss);
            let shm = cell(&self.snapshot.host.scan.shm_used);
            lines.push(format!(
                "\n{dim}left behind without GPU memory: {rss} of host memory (RSS); {shm} in use in /dev/shm"
            ));
            lines.extend(self.table(&self.leftovers));
        }
        lines.join("\n") + "\n" + plain
    }

    /// Returns a row for each verdict, followed by the evidence, which is not cut because its end
    /// has the figures.
    fn table(&self, verdicts: &[&Verdict]) -> Vec<String> {
        if verdicts.is_empty() {
            return Vec::new();
        }
        let mut rows = String::new();
        table::rows(
            &mut rows,
            None,
            &COLUMNS,
            verdicts.iter().map(|verdict| self.row(verdict)),
        );
        let evidence = verdicts
            .iter()
            .map(|verdict| format!("\n         {}", verdict.sentence()));
        rows.lines()
            .zip(std::iter::once(String::new()).chain(evidence))
            .map(|(row, line)| row.to_owned() + &line)
            .collect()
    }

    fn row(&self, verdict: &Verdict) -> [String; 8] {
        let process = self.snapshot.process(verdict.process);
        let show = |cell: &dyn Fn(&Process) -> String| process.map_or_else(String::new, cell);
        let gpus: Vec<String> = self
            .gpus(verdict)
            .into_iter()
            .map(labels::gpu_label)
            .collect();
        [
            verdict.word().to_owned(),
            gpus.join(","),
            verdict.process.pid.to_string(),
            show(&|process| cell(&process.facts.user)),
            self.memory(verdict),
            table::one_word(&verdict.rss),
            show(&|process| cell(&process.load.state.map(State::letter))),
            show(&|process| cell(&labels::command(process))),
        ]
    }

    /// The text of the MEMORY cell. Each part of the memory is in one row only.
    fn memory(&self, verdict: &Verdict) -> String {
        let alone = || verdict.kept.iter().filter(|kept| kept.holders == 1);
        match verdict.listed {
            Some(Ok(_)) if self.is_kept_by_one(|_| true, Some(verdict.process)) => {
                "held".to_owned()
            }
            Some(Ok(listed)) => table::one_word(&Ok(listed.bytes)),
            Some(Err(_)) => "-".to_owned(),
            None if verdict.kept.is_empty() => "-".to_owned(),
            None if alone().next().is_none() => "shared".to_owned(),
            None => table::one_word(&Ok(alone().map(|kept| kept.memory).sum())),
        }
    }

    /// Whether a single suspect keeps the memory on a GPU that the driver lists for the ended
    /// process `ghost`, or for no process at all.
    fn is_kept_by_one(&self, is_gpu: impl Fn(&Gpu) -> bool, ghost: Option<ProcessId>) -> bool {
        let is_kept = |kept: &RetainedMemory| {
            kept.holders == 1
                && kept.ghost == ghost
                && self.snapshot.gpus.get(kept.gpu).is_some_and(&is_gpu)
        };
        let holders = self
            .suspects
            .iter()
            .filter(|verdict| verdict.listed.is_none());
        holders.flat_map(|verdict| &verdict.kept).any(is_kept)
    }

    /// The GPUs that list the process, and those that it has open.
    fn gpus(&self, verdict: &Verdict) -> Vec<&'a Gpu> {
        let mut gpus = self
            .model
            .process_total(verdict.process)
            .map_or_else(Vec::new, |total| total.gpus.clone());
        gpus.extend(&verdict.open);
        gpus.sort_unstable();
        gpus.into_iter()
            .map(|gpu| &self.snapshot.gpus[gpu])
            .collect()
    }

    fn json(&self) -> Value {
        let total = Verdict::total(&self.suspects.iter().copied());
        let unaccounted = self.unaccounted_memory().map(|memory| {
            json!({
                "gpu_uuid": memory.gpu,
                "memory_bytes": memory.memory,
                "device_file_holders": memory.device_file_holders,
                "unreadable_processes": memory.unreadable,
                "sentence": table::unaccounted_memory(self.snapshot, memory),
            })
        });
        let mut json = json!({
            "schema": Snapshot::SCHEMA,
            "is_complete": self.is_complete(),
            "summary": Verdict::summary(self.suspects.iter().copied()),
            "memory_bytes": total.bytes,
            "memory_is_lower_bound": total.is_lower_bound,
            "processes": self.suspects.iter().map(|verdict| self.entry(verdict)).collect::<Vec<_>>(),
            "leftovers": self.leftovers.iter().map(|verdict| self.entry(verdict)).collect::<Vec<_>>(),
            "unaccounted": unaccounted.collect::<Vec<_>>(),
            "shm_used_bytes": known(&self.snapshot.host.scan.shm_used),
            "demo_processes": self.model.stand_ins(),
            "denied_environments": self.denied_environments,
        });
        for (name, verdicts, _) in self.unseen.lists() {
            let entries = verdicts.iter().map(|verdict| self.entry(verdict));
            json[name] = json[name]
                .as_array()
                .into_iter()
                .flatten()
                .cloned()
                .chain(entries)
                .collect();
        }
        json
    }

    fn entry(&self, verdict: &Verdict) -> Value {
        let process = self.snapshot.process(verdict.process);
        let facts = process.map(|process| &process.facts);
        let job = self.model.job(verdict.process);
        json!({
            "pid": verdict.process.pid,
            "start_ticks": verdict.process.start_ticks,
            "verdict": verdict.name(),
            "sentence": verdict.sentence(),
            "gpu_uuids": self.gpus(verdict).iter().map(|gpu| &gpu.uuid).collect::<Vec<_>>(),
            "memory_used_bytes": verdict.listed.and_then(|listed| Some(listed.ok()?.bytes)),
            "memory_kept_bytes": verdict.kept.iter().map(|kept| kept.memory).sum::<Bytes>(),
            "rss_bytes": known(&verdict.rss),
            "user": facts.and_then(|facts| known(&facts.user)),
            "command": process.map(table::command),
            "argv": facts.and_then(|facts| known(&facts.argv)),
            "origin": facts.and_then(|facts| known(&facts.origin)),
            "job": job.map(|job| json!({ "name": job.name, "root": job.root, "members": job.members })),
        })
    }
}

fn known<T: Clone>(reading: &Reading<T>) -> Option<T> {
    reading.clone().ok()
}

/// The memory that the driver lists for a process, or the memory that it may keep.
fn memory(verdict: &Verdict) -> Option<Bytes> {
    match verdict.listed {
        Some(listed) => listed.ok().map(|total| total.bytes),
        None if verdict.kept.is_empty() => None,
        None => Some(verdict.kept.iter().map(|kept| kept.memory).sum()),
    }
}
