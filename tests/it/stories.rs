//! Runs the stories of real processes in `stories/*.txt`, and checks gputop's verdicts on them.
//!
//! All stories run at the same time, each on a GPU of its own, with one agent: the shipped binary,
//! which lists real processes, reads the real `/proc`, and takes plain files for `/dev/nvidia*`.
//! The model judges its lines.

mod script;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use fake_nvml::GpuProcess;
use gputop::base::text::Text;
use gputop::base::units::Moment;
use gputop::model::HostModel;
use gputop::protocol::line::Line;
use rustix::process::Signal;

use self::script::{Action, Claim, Story};
use crate::cli::json;
use crate::host::{GIB, Host};
use crate::process::{ChildProcess, ProcessHandle, now};
use crate::ready_pipe::ReadyPipe;
use crate::{DEADLINE, print_note};

/// The files with the stories.
const FILES: [&str; 3] = [
    include_str!("stories/workers.txt"),
    include_str!("stories/launchers.txt"),
    include_str!("stories/states.txt"),
];

/// The longest wait for a claim to hold: some verdicts need 10 s of observation.
const CLAIM_DEADLINE: Duration = DEADLINE.saturating_mul(3);

/// Milliseconds until the claims of `later`: longer than the 10 minutes after which a process
/// without computation is idle.
const LATER_MS: u64 = 11 * 60 * 1000;

/// A story whose processes run.
struct RunningStory {
    story: Story,
    gpu: usize,
    /// The processes that reported a role.
    processes: BTreeMap<String, ProcessHandle>,
    /// The index of the current step.
    step: usize,
    is_over: bool,
    /// The time of the last action.
    acted: Instant,
    /// The time from the last action to the first orphan; `None` while there is none.
    time_to_orphan: Option<Duration>,
    /// The first process of the story, a child of the test. The others descend from it.
    first_process: ChildProcess,
}

impl Drop for RunningStory {
    fn drop(&mut self) {
        self.processes.values().for_each(ProcessHandle::kill);
    }
}

impl RunningStory {
    fn pid(&self, role: &str) -> u32 {
        self.processes[role].pid
    }

    /// The role of a process; `None` for helpers of multiprocessing and other processes without a
    /// role.
    fn role(&self, pid: u32) -> Option<&str> {
        self.processes
            .iter()
            .find(|(_, process)| process.pid == pid)
            .map(|(role, _)| role.as_str())
    }

    /// The roles of these processes, sorted.
    fn roles(&self, pids: impl Iterator<Item = u32>) -> String {
        let mut roles: Vec<&str> = pids.filter_map(|pid| self.role(pid)).collect();
        roles.sort_unstable();
        if roles.is_empty() {
            "nobody".to_owned()
        } else {
            roles.join(" ")
        }
    }

    /// Replaces roles in braces by PIDs.
    fn with_pids(&self, text: &str) -> String {
        self.processes
            .iter()
            .fold(text.to_owned(), |text, (role, process)| {
                text.replace(&format!("{{{role}}}"), &process.pid.to_string())
            })
    }

    fn perform(&mut self, action: &Action, host: &mut Host) {
        let gpu = self.gpu;
        let change_process = |host: &mut Host, pid: u32, change: &dyn Fn(&mut GpuProcess)| {
            host.change(|world| {
                world.gpus[gpu]
                    .processes
                    .iter_mut()
                    .filter(|process| process.pid == pid)
                    .for_each(change);
            });
        };
        match action {
            Action::Ready(_) => {}
            Action::On {
                role,
                memory,
                sm,
                holders,
            } => {
                let holders = holders.iter().map(|holder| self.pid(holder)).collect();
                host.add_process(
                    gpu,
                    GpuProcess {
                        sm: *sm,
                        holders,
                        ..GpuProcess::new(self.pid(role), *memory)
                    },
                );
            }
            Action::Sm(role, percent) => {
                change_process(host, self.pid(role), &|process| process.sm = Some(*percent));
            }
            Action::Ghost(role) => {
                change_process(host, self.pid(role), &|process| process.fictional = true);
            }
            Action::Extra(memory) => {
                host.change(|world| world.gpus[gpu].memory.unaccounted = *memory);
            }
            Action::Kill(role) => {
                self.processes[role].signal(Signal::KILL);
                self.processes[role].wait_for_end();
                if self.pid(role) == self.first_process.pid() {
                    // Reaps it, as a shell does.
                    self.first_process.wait();
                }
            }
            Action::Stop(role) => {
                self.processes[role].signal(Signal::STOP);
                self.processes[role].wait_for_state('T');
            }
        }
        self.acted = now();
    }

    /// Returns the facts that contradict a claim; `None` when the claim holds.
    fn contradiction(&self, claim: &Claim, model: &HostModel) -> Option<String> {
        let verdict_on = |role: &str| {
            model
                .verdicts()
                .iter()
                .find(|verdict| verdict.process.pid == self.pid(role))
        };
        let unless_equal = |found: String, claimed: &str| (found != claimed).then_some(found);
        match claim {
            Claim::Verdict {
                role,
                word,
                fragment,
            } => match verdict_on(role) {
                None => Some(format!("{role} is not listed")),
                Some(verdict) => {
                    let (sentence, fragment) = (verdict.sentence(), self.with_pids(fragment));
                    let holds = verdict.word() == word && sentence.contains(&fragment);
                    (!holds).then(|| {
                        format!("{role} => {}: {sentence} (no `{fragment}`)", verdict.word())
                    })
                }
            },
            Claim::Gone(role) => self.processes[role]
                .is_alive()
                .then(|| format!("{role} is alive")),
            Claim::Never { roles, words } => roles.iter().find_map(|role| {
                let verdict = verdict_on(role)
                    .filter(|verdict| words.iter().any(|word| verdict.word() == word))?;
                Some(format!(
                    "{role} => {}: {}",
                    verdict.word(),
                    verdict.sentence()
                ))
            }),
            Claim::Job { role, job } => {
                let Some(found) = verdict_on(role).and_then(|verdict| model.job(verdict.process))
                else {
                    return Some(format!("{role} is in no job"));
                };
                let members = self.roles(found.members.iter().map(|member| member.pid));
                unless_equal(format!("{}: {members}", found.name), job)
            }
            Claim::Origin { role, origin } => {
                let process =
                    verdict_on(role).and_then(|verdict| model.latest()?.process(verdict.process));
                let found = process.and_then(|process| process.facts.origin.as_ref().ok());
                unless_equal(found.map_or("nowhere", Text::as_str).to_owned(), origin)
            }
            Claim::Unaccounted(claimed) => {
                let uuid = model.latest().map(|snapshot| &snapshot.gpus[self.gpu].uuid);
                let found = model
                    .unaccounted()
                    .iter()
                    .find(|unaccounted| Some(&unaccounted.gpu) == uuid);
                let found = found.map_or("none".to_owned(), |unaccounted| {
                    let holders = unaccounted
                        .device_file_holders
                        .iter()
                        .map(|holder| holder.pid);
                    format!("{}, open in {}", unaccounted.memory, self.roles(holders))
                });
                unless_equal(found, claimed)
            }
        }
    }

    /// Returns what contradicts the claims of the current step.
    fn contradictions(&self, model: &HostModel) -> Vec<String> {
        let claims = &self.story.steps[self.step].claims;
        claims
            .iter()
            .filter_map(|claim| self.contradiction(claim, model))
            .collect()
    }

    /// Checks the `never` claims of all steps so far.
    #[track_caller]
    fn check_never_claims(&self, model: &HostModel) {
        let claims = self.story.steps[..=self.step]
            .iter()
            .flat_map(|step| &step.claims);
        let never = claims.filter(|claim| matches!(claim, Claim::Never { .. }));
        let contradictions: Vec<String> = never
            .filter_map(|claim| self.contradiction(claim, model))
            .collect();
        assert!(
            contradictions.is_empty(),
            "{}: {contradictions:?}",
            self.story.title
        );
    }

    /// Performs the actions of the current step.
    fn begin_step(&mut self, host: &mut Host) {
        self.time_to_orphan = None;
        for action in std::mem::take(&mut self.story.steps[self.step].actions) {
            self.perform(&action, host);
        }
    }

    /// Begins the next step if all claims of this one hold.
    fn advance(&mut self, host: &mut Host, model: &HostModel) {
        if self.is_over || !self.contradictions(model).is_empty() {
            return;
        }
        if let Some(time) = self.time_to_orphan.filter(|_| self.step > 0) {
            print_note(format_args!(
                "an orphan after {} ms: {}",
                time.as_millis(),
                self.story.title
            ));
        }
        self.is_over = self.step + 1 == self.story.steps.len();
        if !self.is_over {
            self.step += 1;
            self.begin_step(host);
        }
    }

    /// Records the time of the first orphan after an action.
    fn record_orphan(&mut self, model: &HostModel) {
        let mut verdicts = model.verdicts().iter();
        let has_orphan = verdicts
            .any(|verdict| verdict.word() == "orphan" && self.role(verdict.process.pid).is_some());
        if has_orphan && self.time_to_orphan.is_none() {
            self.time_to_orphan = Some(self.acted.elapsed());
        }
    }
}

/// Starts the processes of every story, and waits until each has reported its role.
fn start_stories(host: &mut Host) -> Vec<RunningStory> {
    let pipe = ReadyPipe::create(host);
    let stories = FILES
        .iter()
        .flat_map(|file| script::read(file))
        .filter(is_installed);
    let mut running: Vec<RunningStory> = stories
        .enumerate()
        .map(|(gpu, story)| start_story(host, &pipe, story, gpu))
        .collect();
    let started = now();
    let missing_role = |story: &RunningStory| {
        story
            .story
            .roles()
            .into_iter()
            .find(|role| !story.processes.contains_key(*role))
            .map(str::to_owned)
    };
    while let Some((story, role)) = running
        .iter()
        .find_map(|story| Some((story, missing_role(story)?)))
    {
        let process = pipe.next_within(CLAIM_DEADLINE.saturating_sub(started.elapsed()));
        let Some(process) = process else {
            panic!("{}: {role} is never ready", story.story.title)
        };
        running[process.gpu]
            .processes
            .insert(process.role, ProcessHandle::open(process.pid));
    }
    running
}

/// Whether the program that a story runs is installed. Prints that a story is skipped.
fn is_installed(story: &Story) -> bool {
    let program = &story.run[0];
    let is_installed = std::env::var_os("PATH").is_some_and(|paths| {
        std::env::split_paths(&paths).any(|folder| folder.join(program).exists())
    });
    if !is_installed {
        print_note(format_args!(
            "skipped: {} ({program} is not installed)",
            story.title
        ));
    }
    is_installed
}

/// Starts the first process of a story.
fn start_story(host: &Host, pipe: &ReadyPipe, story: Story, gpu: usize) -> RunningStory {
    let files = story
        .files
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()));
    let words: Vec<&str> = story.run.iter().map(String::as_str).collect();
    let first_process = ChildProcess::spawn(&mut pipe.command(host, gpu, files, &words));
    let processes = BTreeMap::new();
    RunningStory {
        story,
        gpu,
        processes,
        step: 0,
        is_over: false,
        acted: now(),
        time_to_orphan: None,
        first_process,
    }
}

/// An agent, and the model of its lines.
pub(crate) struct ObservedHost {
    model: HostModel,
    lines: Receiver<Vec<u8>>,
    _agent: ChildProcess,
}

impl ObservedHost {
    pub(crate) fn start(mut command: Command) -> Self {
        // The agent's input stays open: when it closes, the agent exits.
        let mut agent = ChildProcess::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let out = BufReader::new(agent.child().stdout.take().expect("stdout is piped"));
        let (send, lines) = mpsc::channel();
        thread::spawn(move || {
            out.split(b'\n')
                .map_while(Result::ok)
                .try_for_each(|line| send.send(line))
        });
        Self {
            model: HostModel::default(),
            lines,
            _agent: agent,
        }
    }

    /// Waits for the next line, and applies it to the model.
    #[track_caller]
    pub(crate) fn apply_next_line(&mut self) {
        let line = self
            .lines
            .recv_timeout(DEADLINE)
            .expect("the agent writes another line");
        match Line::parse(&line)
            .expect("the line parses")
            .expect("the kind of line is known")
        {
            Line::Full(full) => self.model.replace(*full),
            Line::Tick(change) => self
                .model
                .change(*change)
                .expect("a tick changes the snapshot of the line before"),
            Line::Reply(_) | Line::Checkpoint(_) => {}
        }
    }

    pub(crate) fn model(&self) -> &HostModel {
        &self.model
    }

    /// Applies the last snapshot again, dated eleven minutes later.
    fn pass_eleven_minutes(&mut self) {
        let mut snapshot = self.model.latest().expect("lines were read").clone();
        snapshot.at = Moment(snapshot.at.0 + LATER_MS);
        snapshot
            .gpus
            .iter_mut()
            .for_each(|gpu| gpu.load.at = Moment(gpu.load.at.0 + LATER_MS));
        self.model.replace(snapshot);
    }
}

#[test]
fn every_claim_of_the_stories_holds() {
    let count = FILES.iter().map(|file| script::read(file).len()).sum();
    let mut host = Host::new(vec!["H100"; count]);
    let mut stories = start_stories(&mut host);
    assert!(stories.len() >= 25, "{} stories", stories.len());
    for story in &mut stories {
        story.begin_step(&mut host);
    }
    let mut observed = ObservedHost::start(host.gputop(["agent"]));
    let began = now();
    loop {
        observed.apply_next_line();
        for story in &mut stories {
            story.record_orphan(&observed.model);
            story.check_never_claims(&observed.model);
            story.advance(&mut host, &observed.model);
        }
        // At the end, the last claims of all stories hold at once.
        let unfinished = stories
            .iter()
            .map(|story| (story, story.contradictions(&observed.model)))
            .filter(|(story, contradictions)| !story.is_over || !contradictions.is_empty());
        let unfinished: Vec<String> = unfinished
            .map(|(story, contradictions)| {
                format!("{}: {}", story.story.title, contradictions.join("; "))
            })
            .collect();
        if unfinished.is_empty() {
            break;
        }
        assert!(
            began.elapsed() < CLAIM_DEADLINE,
            "\n{}\n",
            unfinished.join("\n")
        );
    }
    print_note(format_args!("all claims held after {:?}", began.elapsed()));
    observed.pass_eleven_minutes();
    let later = stories
        .iter()
        .flat_map(|story| story.story.later.iter().map(move |claim| (story, claim)));
    let contradictions: Vec<String> = later
        .filter_map(|(story, claim)| {
            Some(format!(
                "{}: {}",
                story.story.title,
                story.contradiction(claim, &observed.model)?
            ))
        })
        .collect();
    assert_eq!(contradictions, Vec::<String>::new());

    check_report(&host, &stories);
}

/// Checks that `gputop orphans`, started only now, finds the orphans that need no observation.
fn check_report(host: &Host, stories: &[RunningStory]) {
    let output = host.run(["orphans", "--json", "--timeout", "20s"]);
    assert_eq!(output.code, 10, "{}", output.stderr);
    let report = json(&output);
    let entries = report["processes"].as_array().expect("a list of processes");
    let verdict_on = |pid: u32| {
        entries
            .iter()
            .find(|entry| entry["pid"] == pid)
            .map(|entry| &entry["verdict"])
    };
    let mut proved = 0;
    for story in stories {
        // Only stories of one step: nothing happened to their processes since the agent started.
        let [step] = story.story.steps.as_slice() else {
            continue;
        };
        for claim in &step.claims {
            match claim {
                Claim::Verdict { role, word, .. } if word == "orphan" => {
                    // A single report cannot tell whether a process is quiet.
                    let verdict = verdict_on(story.pid(role)).expect("the process is listed");
                    assert!(
                        verdict == "orphan" || verdict == "maybe_orphan",
                        "{}: {verdict}",
                        story.story.title
                    );
                    proved += usize::from(verdict == "orphan");
                }
                Claim::Never { roles, .. } => {
                    let is_orphan = |role: &String| {
                        verdict_on(story.pid(role)).is_some_and(|word| word == "orphan")
                    };
                    assert!(!roles.iter().any(is_orphan), "{}", story.story.title);
                }
                _ => {}
            }
        }
    }
    assert!(
        proved >= 7,
        "{proved} orphans were proved without observation"
    );
}

#[test]
fn a_process_of_another_pid_namespace_is_called_foreign() {
    if !rustix::process::getuid().is_root() {
        return print_note("skipped: only root can make a PID namespace");
    }
    let mut host = Host::new(["H100"]);
    let outside = ChildProcess::spawn(Command::new("sleep").arg("1000").stdin(host.open_device(0)));
    host.add_process(0, GpuProcess::fictional(outside.pid(), 3 * GIB));
    let mut command = Command::new("unshare");
    let namespace = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    let agent = [env!("CARGO_BIN_EXE_gputop"), "agent", "--interval", "100ms"];
    host.set_environment(&mut command)
        .args(namespace)
        .args(agent);
    let mut observed = ObservedHost::start(command);
    let began = now();
    loop {
        observed.apply_next_line();
        let verdict = observed
            .model
            .verdicts()
            .iter()
            .find(|verdict| verdict.process.pid == outside.pid());
        if let Some(verdict) = verdict.filter(|verdict| verdict.word() == "foreign") {
            let sentence = verdict.sentence();
            assert!(
                sentence.contains("in another PID namespace") && sentence.contains("holds 3.0 GiB"),
                "{sentence}"
            );
            return;
        }
        assert!(began.elapsed() < DEADLINE, "{verdict:?}");
    }
}
