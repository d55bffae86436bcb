//! Runs the stories of real processes in `stories/*.txt`, and checks gputop's verdicts.
//!
//! All stories run at the same time, each on a GPU of its own, with one agent: the shipped binary, which lists real
//! processes, reads the real `/proc`, and takes plain files for `/dev/nvidia*`. The model judges its lines.

mod script;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use fake_nvml::Tenant;
use gputop::base::text::Text;
use gputop::base::units::Moment;
use gputop::model::HostModel;
use gputop::protocol::line::Line;
use rustix::process::Signal;

use self::script::{Act, Claim, Story};
use crate::cli::json;
use crate::process::{Life, Started, now};
use crate::stage::Parts;
use crate::world::Host;
use crate::{DEADLINE, say};

/// The files with the stories.
const FILES: [&str; 3] =
    [include_str!("stories/workers.txt"), include_str!("stories/launchers.txt"), include_str!("stories/states.txt")];

/// The time for a claim to come true: rules count seconds, as a process is quiet only after 10 s.
const PATIENCE: Duration = DEADLINE.saturating_mul(3);

/// Longer than the time after which a process without computation is idle.
const LATER: u64 = 11 * 60 * 1000;

/// A story that is running.
struct Told {
    story: Story,
    gpu: usize,
    parts: BTreeMap<String, Life>,
    /// The current scene, and whether the last one is over.
    scene: usize,
    is_over: bool,
    /// The end of the last act, and the time from there to the first orphan.
    acted: Instant,
    orphaned: Option<Duration>,
    /// The process that was started here; the others descend from it.
    started: Started,
}

impl Drop for Told {
    fn drop(&mut self) {
        for life in self.parts.values() {
            life.end();
        }
    }
}

impl Told {
    fn pid(&self, part: &str) -> u32 {
        self.parts[part].pid
    }

    /// The part that a PID plays; `None` for helpers of multiprocessing and other processes without a part.
    fn part(&self, pid: u32) -> Option<&str> {
        self.parts.iter().find(|(_, life)| life.pid == pid).map(|(part, _)| part.as_str())
    }

    /// The names of the parts among these PIDs.
    fn names(&self, pids: impl Iterator<Item = u32>) -> String {
        let mut names: Vec<&str> = pids.filter_map(|pid| self.part(pid)).collect();
        names.sort_unstable();
        if names.is_empty() { "nobody".to_owned() } else { names.join(" ") }
    }

    /// Replaces parts in braces by their PIDs.
    fn with_pids(&self, text: &str) -> String {
        let put =
            |text: String, (part, life): (&String, &Life)| text.replace(&format!("{{{part}}}"), &life.pid.to_string());
        self.parts.iter().fold(text.to_owned(), put)
    }

    fn perform(&mut self, act: &Act, host: &mut Host) {
        let gpu = self.gpu;
        let change_tenant = |host: &mut Host, pid: u32, change: &dyn Fn(&mut Tenant)| {
            host.change(|world| world.gpus[gpu].tenants.iter_mut().filter(|tenant| tenant.pid == pid).for_each(change));
        };
        match act {
            Act::Ready(_) => {}
            Act::On { part, memory, sm, holders } => {
                let holders = holders.iter().map(|holder| self.pid(holder)).collect();
                host.put(gpu, Tenant { sm: *sm, holders, ..Tenant::new(self.pid(part), *memory) });
            }
            Act::Sm(part, percent) => change_tenant(host, self.pid(part), &|tenant| tenant.sm = Some(*percent)),
            Act::Ghost(part) => change_tenant(host, self.pid(part), &|tenant| tenant.fictional = true),
            Act::Extra(memory) => host.change(|world| world.gpus[gpu].memory.unaccounted = *memory),
            Act::Kill(part) => {
                self.parts[part].signal(Signal::KILL);
                self.parts[part].wait_end();
                if self.pid(part) == self.started.pid() {
                    // Like a shell.
                    self.started.wait();
                }
            }
            Act::Stop(part) => {
                self.parts[part].signal(Signal::STOP);
                self.parts[part].wait_state('T');
            }
        }
        self.acted = now();
    }

    /// Returns the facts that contradict a claim; `None` when the claim holds.
    fn deny(&self, claim: &Claim, model: &HostModel) -> Option<String> {
        let found = |part: &str| {
            let mut verdicts = model.verdicts().iter();
            verdicts.find(|verdict| verdict.process.pid == self.pid(part))
        };
        let unlike = |is: String, claimed: &str| (is != claimed).then_some(is);
        match claim {
            Claim::Verdict { part, word, fragment } => match found(part) {
                None => Some(format!("{part} is not seen")),
                Some(verdict) => {
                    let (said, fragment) = (verdict.sentence(), self.with_pids(fragment));
                    let holds = verdict.word() == word && said.contains(&fragment);
                    (!holds).then(|| format!("{part} => {}: {said} (no `{fragment}`)", verdict.word()))
                }
            },
            Claim::Gone(part) => {
                (!self.parts[part].ends_within(Duration::ZERO)).then(|| format!("{part} is still there"))
            }
            Claim::Never { parts, words } => parts.iter().find_map(|part| {
                let verdict = found(part).filter(|verdict| words.iter().any(|word| verdict.word() == word))?;
                Some(format!("{part} => {}: {}", verdict.word(), verdict.sentence()))
            }),
            Claim::Job { part, job } => {
                let Some(found) = found(part).and_then(|verdict| model.job(verdict.process)) else {
                    return Some(format!("{part} is in no job"));
                };
                unlike(format!("{}: {}", found.name, self.names(found.members.iter().map(|member| member.pid))), job)
            }
            Claim::Origin { part, origin } => {
                let found = found(part).and_then(|verdict| model.latest()?.process(verdict.process));
                let found =
                    found.and_then(|process| process.facts.origin.as_ref().ok()).map_or("nowhere", Text::as_str);
                unlike(found.to_owned(), origin)
            }
            Claim::Unaccounted(claimed) => {
                let place =
                    |uuid| model.latest().and_then(|snapshot| snapshot.gpus.iter().position(|gpu| gpu.uuid == uuid));
                let found =
                    model.unaccounted().iter().find(|unaccounted| place(unaccounted.gpu.clone()) == Some(self.gpu));
                let said = found.map_or("none".to_owned(), |unaccounted| {
                    format!(
                        "{}, open in {}",
                        unaccounted.memory,
                        self.names(unaccounted.device_file_holders.iter().map(|unaccounted| unaccounted.pid))
                    )
                });
                unlike(said, claimed)
            }
        }
    }

    /// Returns the contradicted claims of the current scene.
    fn wrong(&self, model: &HostModel) -> Vec<String> {
        self.story.scenes[self.scene].claims.iter().filter_map(|claim| self.deny(claim, model)).collect()
    }

    /// Checks `never` claims against each line from their scene on.
    #[track_caller]
    fn refute_never(&self, model: &HostModel) {
        let claims = self.story.scenes[..=self.scene].iter().flat_map(|scene| &scene.claims);
        let never = claims.filter(|claim| matches!(claim, Claim::Never { .. }));
        let denials: Vec<String> = never.filter_map(|claim| self.deny(claim, model)).collect();
        assert!(denials.is_empty(), "{}: {denials:?}", self.story.title);
    }

    /// Performs the acts of the next scene.
    fn begin(&mut self, host: &mut Host) {
        self.orphaned = None;
        for act in std::mem::take(&mut self.story.scenes[self.scene].acts) {
            self.perform(&act, host);
        }
    }

    /// Continues with the next scene if all claims of this one hold.
    fn go_on(&mut self, host: &mut Host, model: &HostModel) {
        if self.is_over || !self.wrong(model).is_empty() {
            return;
        }
        if let Some(after) = self.orphaned.filter(|_| self.scene > 0) {
            say(format_args!("an orphan after {} ms: {}", after.as_millis(), self.story.title));
        }
        self.is_over = self.scene + 1 == self.story.scenes.len();
        if !self.is_over {
            self.scene += 1;
            self.begin(host);
        }
    }

    /// Notes the time of the first orphan after an act.
    fn note_orphan(&mut self, model: &HostModel) {
        let is_orphan = model
            .verdicts()
            .iter()
            .any(|verdict| verdict.word() == "orphan" && self.part(verdict.process.pid).is_some());
        if is_orphan && self.orphaned.is_none() {
            self.orphaned = Some(self.acted.elapsed());
        }
    }
}

/// Starts the processes of every story, and waits until each has reported its part.
fn cast(host: &mut Host) -> Vec<Told> {
    let parts = Parts::of(host);
    let stories = FILES.iter().flat_map(|file| script::read(file)).filter(can_be_told);
    let mut told: Vec<Told> = stories.enumerate().map(|(gpu, story)| start(host, &parts, story, gpu)).collect();
    let waited = now();
    let is_missing =
        |told: &Told| told.story.parts().into_iter().find(|part| !told.parts.contains_key(*part)).map(str::to_owned);
    while let Some((waiting, missing)) = told.iter().find_map(|told| Some((told, is_missing(told)?))) {
        let part = parts.next(PATIENCE.saturating_sub(waited.elapsed()));
        let Some(part) = part else { panic!("{}: {missing} never comes", waiting.story.title) };
        told[part.gpu].parts.insert(part.name, Life::of(part.pid));
    }
    told
}

fn can_be_told(story: &Story) -> bool {
    let program = &story.run[0];
    let is_there = std::env::var_os("PATH")
        .is_some_and(|paths| std::env::split_paths(&paths).any(|paths| paths.join(program).exists()));
    if !is_there {
        say(format_args!("left out: {} ({program} is not installed)", story.title));
    }
    is_there
}

/// Starts the first process of a story.
fn start(host: &Host, parts: &Parts, story: Story, gpu: usize) -> Told {
    let files = story.files.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    let run: Vec<&str> = story.run.iter().map(String::as_str).collect();
    let started = Started::start(&mut parts.play(host, gpu, files, &run));
    Told { story, gpu, parts: BTreeMap::new(), scene: 0, is_over: false, acted: now(), orphaned: None, started }
}

/// The model of the agent's lines.
struct Watch {
    model: HostModel,
    lines: Receiver<Vec<u8>>,
    _agent: Started,
}

impl Watch {
    fn start(mut command: Command) -> Self {
        // Keeps the agent's input open: without it, the agent exits.
        let mut agent = Started::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let out = BufReader::new(agent.child().stdout.take().expect("it was asked for"));
        let (send, lines) = mpsc::channel();
        thread::spawn(move || out.split(b'\n').map_while(Result::ok).try_for_each(|line| send.send(line)));
        Self { model: HostModel::default(), lines, _agent: agent }
    }

    #[track_caller]
    fn next(&mut self) {
        let line = self.lines.recv_timeout(DEADLINE).expect("the agent goes on");
        match Line::parse(&line).expect("our own line").expect("our own kind") {
            Line::Full(full) => self.model.replace(*full),
            Line::Tick(change) => self.model.change(*change).expect("a tick starts from the line before"),
            Line::Reply(_) => {}
        }
    }

    /// Lets eleven minutes pass.
    fn pass_time(&mut self) {
        let mut snapshot = self.model.latest().expect("there were lines").clone();
        snapshot.at = Moment(snapshot.at.0 + LATER);
        snapshot.gpus.iter_mut().for_each(|gpu| gpu.load.at = Moment(gpu.load.at.0 + LATER));
        self.model.replace(snapshot);
    }
}

#[test]
fn every_claim_of_the_stories_holds() {
    let count = FILES.iter().map(|file| script::read(file).len()).sum();
    let mut host = Host::still(vec!["H100"; count]);
    let mut told = cast(&mut host);
    assert!(told.len() >= 25, "{} stories", told.len());
    for case in &mut told {
        case.begin(&mut host);
    }
    let mut watch = Watch::start(host.gputop(["agent"]));
    let began = now();
    loop {
        watch.next();
        for case in &mut told {
            case.note_orphan(&watch.model);
            case.refute_never(&watch.model);
            case.go_on(&mut host, &watch.model);
        }
        // At the end, all claims hold at once.
        let wrong = told
            .iter()
            .map(|told| (told, told.wrong(&watch.model)))
            .filter(|(told, wrong)| !told.is_over || !wrong.is_empty());
        let wrong: Vec<String> =
            wrong.map(|(told, wrong)| format!("{}: {}", told.story.title, wrong.join("; "))).collect();
        if wrong.is_empty() {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "\n{}\n", wrong.join("\n"));
    }
    say(format_args!("all was told in {:?}", began.elapsed()));
    watch.pass_time();
    let later = told.iter().flat_map(|told| told.story.later.iter().map(move |claim| (told, claim)));
    let denied =
        later.filter_map(|(told, claim)| Some(format!("{}: {}", told.story.title, told.deny(claim, &watch.model)?)));
    assert_eq!(denied.collect::<Vec<_>>(), Vec::<String>::new());

    check_report(&host, &told);
}

/// Checks that a report started only now finds the orphans that do not need observation.
fn check_report(host: &Host, told: &[Told]) {
    let ran = host.run(["orphans", "--json", "--timeout", "20s"]);
    assert_eq!(ran.code, 10, "{}", ran.err);
    let found = json(&ran);
    let entries = found["processes"].as_array().expect("a list");
    let verdict = |pid: u32| entries.iter().find(|entry| entry["pid"] == pid).map(|entry| &entry["verdict"]);
    let mut proved = 0;
    for case in told {
        // Only stories without further scenes: nothing happened since the agent started.
        let [scene] = case.story.scenes.as_slice() else { continue };
        for claim in &scene.claims {
            match claim {
                Claim::Verdict { part, word, .. } if word == "orphan" => {
                    // A single report cannot tell whether a process is quiet.
                    let said = verdict(case.pid(part)).expect("it is listed");
                    assert!(["orphan", "maybe_orphan"].iter().any(|word| said == word), "{}: {said}", case.story.title);
                    proved += usize::from(said == "orphan");
                }
                Claim::Never { parts, .. } => {
                    let listed =
                        parts.iter().filter_map(|part| verdict(case.pid(part))).filter(|verdict| *verdict == "orphan");
                    assert_eq!(listed.count(), 0, "{}", case.story.title);
                }
                _ => {}
            }
        }
    }
    assert!(proved >= 7, "{proved} orphans were proved without being watched");
}

#[test]
fn a_process_of_another_pid_namespace_is_called_foreign() {
    if !rustix::process::getuid().is_root() {
        return say("skipped: only root can make a PID namespace");
    }
    let mut host = Host::still(["H100"]);
    let outside = Started::start(Command::new("sleep").arg("1000").stdin(host.device(0)));
    host.put(0, Tenant::fictional(outside.pid(), 3 << 30));
    let mut command = Command::new("unshare");
    let namespace = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    host.dress(&mut command).args(namespace).args([env!("CARGO_BIN_EXE_gputop"), "agent", "--interval", "100ms"]);
    let mut watch = Watch::start(command);
    let began = now();
    loop {
        watch.next();
        let verdict = watch.model.verdicts().iter().find(|verdict| verdict.process.pid == outside.pid());
        if verdict.is_some_and(|verdict| verdict.word() == "foreign") {
            let sentence = verdict.map(gputop::model::Verdict::sentence).unwrap_or_default();
            assert!(sentence.contains("in another PID namespace") && sentence.contains("holds 3.0 GiB"), "{sentence}");
            return;
        }
        assert!(began.elapsed() < DEADLINE, "{verdict:?}");
    }
}
