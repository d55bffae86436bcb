//! `gputop wait`: waits until something happens, and says by its exit code what.
//!
//! Agents read the hosts. They watch the given PIDs with pidfds, whether or not these use a GPU, so
//! that an end is told at once and no reading is needed for it.

mod awaited_growth;
mod awaited_job;
mod awaited_processes;
mod happening;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::os::unix::process::parent_id;
use std::process::{self, ExitCode};
use std::time::Duration;

use clap::{ArgGroup, Args};
use tokio::time::{Instant, timeout_at};

use self::awaited_growth::{AwaitedGrowth, NamedProcesses};
use self::awaited_job::AwaitedJob;
use self::awaited_processes::AwaitedProcesses;
use self::happening::{Happening, HappeningKind};
use super::free::gpu_search::{FreeGpuSearch, WantedGpus, no_gpu_reason};
use super::live::gpu_ids;
use super::live::read_hosts::{HostState, Watch, block_on, sentence_on};
use crate::base::text::Text;
use crate::base::units::ExactSpan;
use crate::flags::{AgentArgs, HostArgs, OutputArgs, values};
use crate::model::HostModel;
use crate::output::{self, Exit};
use crate::protocol::command::Command;
use crate::protocol::host_key::HostKey;
use crate::protocol::snapshot::{GpuUuid, Process, ProcessId, Snapshot, Trouble};
use crate::source::Source;

/// The conditions of a wait, as in `gputop wait 4711 --leak --timeout 12h`: until process 4711 has
/// ended (exit code 0) or leaks (12), or the time is up (124).
#[derive(Debug, Clone, Args)]
#[command(after_help = EXIT_CODES)]
#[command(group(ArgGroup::new("condition").required(true).multiple(true).args(["pid", "job", "free", "leak", "full_within"])))]
pub(crate) struct WaitArgs {
    /// Wait until all of these processes have ended, on a GPU or not
    #[arg(value_name = "PID")]
    pid: Vec<u32>,

    /// With several PIDs: wait for the first end only
    #[arg(long, requires = "pid")]
    any: bool,

    /// Wait until no process of this job is left: the ID of a Slurm job, the ID of a container or
    /// its beginning, or the name of a pod, as on the page of a process
    #[arg(long, value_name = "ID")]
    job: Option<String>,

    /// Wait until this number of GPUs are free, as `gputop free` judges it. They are not reserved:
    /// `gputop free --wait -- COMMAND` also takes them
    #[arg(long, value_name = "COUNT", value_parser = values::count)]
    free: Option<NonZeroUsize>,

    /// With `--free`: count only these GPUs, given by index, UUID or PCI bus ID
    #[arg(
        short = 'i',
        long = "id",
        value_name = "GPU,…",
        value_delimiter = ',',
        requires = "free"
    )]
    id: Vec<String>,

    /// Wait until memory leaks: that of the PIDs and their children, of the job, or else of your own
    /// processes and of the GPUs that they use. gputop watches from now on, and goes on from what a
    /// running `gputop record` of yours has seen
    #[arg(long)]
    leak: bool,

    /// Wait until the forecast says that memory will be full within this time, such as `10m`; of
    /// the same processes, and of the GPUs that they use
    #[arg(long, value_name = "TIME", value_parser = values::positive_span)]
    full_within: Option<Duration>,

    /// With `--leak` or `--full-within`: the processes of all users
    #[arg(long, conflicts_with_all = ["pid", "job"])]
    all: bool,

    /// Wait for no longer than this time
    #[arg(long, value_name = "TIME", value_parser = values::positive_span)]
    timeout: Option<Duration>,

    #[command(flatten)]
    agent: AgentArgs,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    pub(crate) hosts: HostArgs,
}

/// The end of the help.
const EXIT_CODES: &str = "\
Exit codes:
    0  the processes or the job have ended, or the GPUs are free
   12  memory leaks
   14  the forecast says that memory will be full within the time
  124  the time is up, and none of it has happened
    6  no process has the PID, or belongs to the job
    3  with --free, --leak or --full-within: the host has no NVIDIA driver
    4  with these: it has no GPU
   11  with --free: it has fewer GPUs than are wanted
    1  a host is lost, or another error";

/// Why the wait is in vain: the exit code and a sentence.
type WaitFailure = (Exit, String);

/// The interval of an agent that only watches PIDs: ends are told at once.
const WATCH_INTERVAL: Duration = Duration::from_secs(10);

/// How long a host may say nothing, beyond its interval.
const LONGEST_SILENCE: Duration = Duration::from_mins(1);

/// How long to wait for GPUs that do not answer at the start, before the others are looked at; and
/// for the answer to a command, and for the origins of processes.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a driver may take to start.
const DRIVER_START: Duration = Duration::from_mins(1);

/// Waits, and prints what happened.
///
/// # Errors
///
/// When no agent can be started, or the standard output cannot be written.
pub(crate) fn run(args: &WaitArgs) -> anyhow::Result<ExitCode> {
    let sources = args.sources();
    if !args.pid.is_empty() && sources.len() > 1 {
        return Ok(output::refuse(
            &"a PID is that of one host: give one --via only, and no --local".into(),
        ));
    }
    if args.all && !args.leak && args.full_within.is_none() {
        return Ok(output::refuse(
            &"--all says whose leaks count: give --leak or --full-within too".into(),
        ));
    }
    let happened = block_on(async {
        let wanted = args.wanted();
        let searches = sources.iter().filter_map(|source| {
            let wanted = wanted.as_ref()?;
            Some(FreeGpuSearch::new(wanted, source))
        });
        let searches = searches.collect();
        let is_local = matches!(sources.as_slice(), [Source::LocalAgent(_)]);
        let watch = Watch::start(sources)?;
        let mut wait = Wait::new(args, watch, searches, is_local);
        let happened = wait.until_happened().await;
        wait.watch.close().await;
        Ok(happened)
    })?;
    match happened {
        Ok(happening) => {
            if args.output.json {
                output::print_json(&happening.json())?;
            } else {
                let line = format!("{}\n", happening.sentence);
                output::print_text(&line, args.output.is_ascii())?;
            }
            Ok(happening.kind.exit().into())
        }
        Err((exit, sentence)) => {
            output::print_error(&Text::new(sentence));
            Ok(exit.into())
        }
    }
}

impl WaitArgs {
    /// The time from one pass of an agent to the next.
    fn interval(&self) -> Option<Duration> {
        let usual = self.watches_pids_only().then_some(WATCH_INTERVAL);
        self.agent.given_interval().or(usual)
    }

    fn watches_pids_only(&self) -> bool {
        self.job.is_none() && !self.needs_gpus()
    }

    /// Whether readings of GPUs are waited for.
    fn needs_gpus(&self) -> bool {
        self.free.is_some() || self.leak || self.full_within.is_some()
    }

    fn sources(&self) -> Vec<Source> {
        let mut sources = self.hosts.sources(&self.agent, self.interval());
        if !self.needs_gpus() {
            for source in &mut sources {
                if let Source::LocalAgent(agent) = source {
                    agent.only = vec!["processes".to_owned()];
                }
            }
        }
        sources
    }

    fn wanted(&self) -> Option<WantedGpus> {
        Some(WantedGpus {
            count: self.free?,
            memory: None,
            idle: None,
            id: self.id.clone(),
            waits: true,
            by_uuid: false,
            keeps_locks: false,
        })
    }
}

/// A wait, and what is known so far.
struct Wait<'a> {
    args: &'a WaitArgs,
    watch: Watch,
    /// One for each host with `--free`, else none.
    searches: Vec<FreeGpuSearch<'a>>,
    processes: AwaitedProcesses,
    job: Option<AwaitedJob>,
    growth: AwaitedGrowth,
    /// Whether this host alone is read.
    is_local: bool,
    started: Instant,
    /// When the last line of each host came.
    heard: BTreeMap<HostKey, Instant>,
    /// Whether the model has what a recorder saw.
    has_past: bool,
}

impl<'a> Wait<'a> {
    fn new(
        args: &'a WaitArgs,
        watch: Watch,
        searches: Vec<FreeGpuSearch<'a>>,
        is_local: bool,
    ) -> Self {
        Self {
            args,
            watch,
            searches,
            processes: AwaitedProcesses::new(&args.pid, args.any),
            job: args.job.as_deref().map(AwaitedJob::new),
            growth: AwaitedGrowth {
                leak: args.leak,
                full_within: args.full_within,
                all: args.all,
            },
            is_local,
            started: Instant::now(),
            heard: BTreeMap::new(),
            has_past: false,
        }
    }

    /// Waits for the first happening, or until the wait is in vain.
    async fn until_happened(&mut self) -> Result<Happening, WaitFailure> {
        /// How often the clock is looked at while no line comes.
        const CHECK: Duration = Duration::from_secs(5);
        let deadline = self
            .args
            .timeout
            .and_then(|timeout| self.started.checked_add(timeout));
        for pid in self.processes.pids() {
            let command = Command::Watch { pid: *pid };
            self.watch.sources.send(HostKey::FIRST, command);
        }
        loop {
            let check = Instant::now() + CHECK;
            let wake = deadline.map_or(check, |deadline| deadline.min(check));
            if let Ok(Some(host)) = timeout_at(wake, self.watch.next_event()).await {
                self.heard.insert(host, Instant::now());
            }
            if let Some(happened) = self.look()? {
                return Ok(happened);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(self.timeout());
            }
        }
    }

    /// Looks whether something has happened.
    fn look(&mut self) -> Result<Option<Happening>, WaitFailure> {
        for reply in self.watch.take_replies() {
            self.processes.receive(&reply)?;
        }
        if !self.has_past && (self.args.leak || self.args.full_within.is_some()) {
            let states = self.watch.states(PATIENCE, |_| true);
            self.has_past = states.iter().any(|host| host.seen.is_some());
            if self.has_past {
                self.watch.wait_for_recorder();
            }
        }
        let age = self.started.elapsed();
        let Self {
            args,
            watch,
            searches,
            processes,
            job,
            growth,
            ..
        } = self;
        let hosts = watch.states(PATIENCE, |_| true);
        for host in &hosts {
            if let Some((model, snapshot)) = host.seen {
                processes.learn(model);
                if let Some(job) = job {
                    let own = if self.is_local {
                        own_processes(snapshot)
                    } else {
                        BTreeSet::new()
                    };
                    job.update(host.key, model, snapshot, &own, age < PATIENCE);
                }
            }
        }
        if let Some(ended) = processes.end() {
            return Ok(Some(on_host(ended, &hosts, hosts.first())));
        }
        if let Some(ended) = job.as_ref().and_then(|job| job.end(hosts.len())) {
            return ended.map(Some);
        }
        let named = NamedProcesses {
            processes,
            job: job.as_ref(),
        };
        for host in &hosts {
            if let Some((model, snapshot)) = host.seen
                && let Some(grows) = growth.find(model, snapshot, named, age < PATIENCE)
            {
                return Ok(Some(on_host(grows, &hosts, Some(host))));
            }
        }
        if args.needs_gpus() {
            check_gpus(args, &hosts, age)?;
        }
        if let Some(free) = find_free(searches, &hosts, age)? {
            return Ok(Some(free));
        }
        for host in &hosts {
            let heard = self.heard.get(&host.key).unwrap_or(&self.started);
            check_host(args, watch, host, heard.elapsed())?;
        }
        let is_answered = processes.are_known() || hosts.iter().all(|host| host.seen.is_none());
        if !is_answered && age > PATIENCE {
            let sentence = "the agent does not say whether the process lives: it may be of an older gputop; update it";
            return Err((Exit::Error, sentence.to_owned()));
        }
        Ok(None)
    }

    /// The time is up.
    fn timeout(&self) -> Happening {
        let mut clauses: Vec<String> = self.processes.still_running().into_iter().collect();
        clauses.extend(self.job.as_ref().map(AwaitedJob::still_running));
        if let Some(count) = self.args.free {
            let gpus = if count.get() == 1 {
                "GPU is"
            } else {
                "GPUs are"
            };
            clauses.push(format!("fewer than {count} {gpus} free"));
        }
        clauses.extend(self.growth.nothing_yet());
        let timeout = ExactSpan(self.args.timeout.unwrap_or_default());
        let sentence = format!("the time of {timeout} is up: {}", clauses.join("; "));
        Happening::new(HappeningKind::Timeout, sentence)
    }
}

/// Adds where it happened, if a sentence must say that.
fn on_host(
    happening: Happening,
    hosts: &[HostState<'_>],
    host: Option<&HostState<'_>>,
) -> Happening {
    let Some(host) = host else { return happening };
    let sentence = if hosts.len() > 1 || host.must_be_named {
        format!("{}: {}", host.name, happening.sentence)
    } else {
        happening.sentence
    };
    Happening {
        sentence,
        host: Some(host.name.to_owned()),
        ..happening
    }
}

/// Fails if the host is lost, or says nothing any more.
fn check_host(
    args: &WaitArgs,
    watch: &Watch,
    host: &HostState<'_>,
    silence: Duration,
) -> Result<(), WaitFailure> {
    let interval = args
        .interval()
        .unwrap_or_else(|| args.hosts.usual_interval());
    let lost = |reason: &Text| {
        let reason = sentence_on(host, reason);
        Err((Exit::Error, format!("the wait is over, because {reason}")))
    };
    match watch.ended(host.key) {
        Some(reason) => lost(reason),
        None if silence > LONGEST_SILENCE + 2 * interval => {
            let span = ExactSpan(Duration::from_secs(silence.as_secs()));
            lost(&Text::new(format!("the agent has said nothing for {span}")))
        }
        None => Ok(()),
    }
}

/// Whether the GPUs of a host have answered twice, or have had the time to.
fn is_ready(host: &HostState<'_>, age: Duration) -> bool {
    host.trouble.is_none() || host.lacks_only_gpus && age > PATIENCE
}

/// Fails if no host has a GPU to wait for, or no host has the GPUs that are named.
fn check_gpus(args: &WaitArgs, hosts: &[HostState<'_>], age: Duration) -> Result<(), WaitFailure> {
    let snapshots: Vec<&Snapshot> = hosts.iter().filter_map(|host| Some(host.seen?.1)).collect();
    if snapshots.len() < hosts.len() {
        return Ok(());
    }
    if snapshots.iter().all(|snapshot| has_no_gpu(snapshot, age)) {
        let Some(first) = snapshots.first() else {
            return Ok(());
        };
        let exit = match Exit::of_snapshot(first, true) {
            Exit::NoGpu => Exit::NoGpu,
            _ => Exit::NoDriver,
        };
        return Err((exit, no_gpu_reason(first)));
    }
    let unknown = gpu_ids::unknown(&snapshots, &args.id);
    if hosts.iter().all(|host| is_ready(host, age)) && !unknown.is_empty() {
        let sentence = gpu_ids::no_such_gpu(&unknown).to_string();
        return Err((Exit::Nothing, sentence));
    }
    Ok(())
}

/// Whether the driver has said that there is no GPU, or has said nothing for long.
fn has_no_gpu(snapshot: &Snapshot, age: Duration) -> bool {
    let is_starting = snapshot
        .driver
        .trouble
        .as_ref()
        .is_some_and(Trouble::is_starting);
    snapshot.gpus.is_empty() && (!is_starting || age > DRIVER_START)
}

/// Returns the free GPUs of the first host that has enough; fails if no host ever will.
fn find_free(
    searches: &mut [FreeGpuSearch<'_>],
    hosts: &[HostState<'_>],
    age: Duration,
) -> Result<Option<Happening>, WaitFailure> {
    let mut failures = Vec::new();
    for (search, host) in searches.iter_mut().zip(hosts) {
        let seen = host.seen.filter(|(_, snapshot)| {
            // A host without GPUs may have some when its driver is there.
            is_ready(host, age) && !snapshot.gpus.is_empty()
        });
        match seen.and_then(|(model, snapshot)| search.update(model, snapshot)) {
            Some(Ok(found)) => {
                let gpus = if found.uuids.len() == 1 {
                    format!("GPU {} is", found.gpus)
                } else {
                    format!("GPUs {} are", found.gpus)
                };
                let free = Happening {
                    gpus: found.uuids,
                    ..Happening::new(HappeningKind::GpuFree, format!("{gpus} free"))
                };
                return Ok(Some(on_host(free, hosts, Some(host))));
            }
            Some(Err(failure)) => failures.push(failure),
            None => {}
        }
    }
    match failures.first() {
        Some(failure) if failures.len() == hosts.len() => Err(failure.clone()),
        _ => Ok(None),
    }
}

/// The GPUs that these processes use.
fn gpus_of(model: &HostModel, snapshot: &Snapshot, processes: &[ProcessId]) -> Vec<GpuUuid> {
    let totals = processes.iter().filter_map(|id| model.process_total(*id));
    totals
        .flat_map(|total| snapshot.gpus_at(&total.gpus))
        .map(|gpu| gpu.uuid.clone())
        .collect()
}

/// The PIDs of gputop, of its agent, and of the shells and scripts that wait for it. A job that
/// these are a part of would else never end.
fn own_processes(snapshot: &Snapshot) -> BTreeSet<u32> {
    let facts = |pid: u32| {
        let mut processes = snapshot.processes.iter();
        let process = processes.find(|process| process.id.pid == pid)?;
        Some(&process.facts)
    };
    let own = process::id();
    let mut pids = BTreeSet::from([own]);
    let mut next = Some(parent_id());
    while let Some(pid) = next.filter(|pid| pids.insert(*pid)) {
        next = facts(pid).and_then(|facts| facts.parent.ok());
    }
    // A shell that was replaced by gputop leaves its children, which are workers of the job. The
    // agent has the name of gputop.
    let own_name = facts(own).and_then(|facts| facts.comm.as_ref().ok());
    let is_agent = |process: &&Process| {
        process.facts.parent == Ok(own) && process.facts.comm.as_ref().ok() == own_name
    };
    let agents = snapshot.processes.iter().filter(is_agent);
    pids.extend(agents.map(|process| process.id.pid));
    pids
}
