//! Stories of real processes, written down in `stories/*.txt`, and what gputop thinks of each.
//!
//! They are told at the same time, each on a GPU of its own, to one agent: the shipped binary, which lists real
//! processes, reads the real `/proc`, and takes plain files for `/dev/nvidia*`. Its stream is judged by the model.

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

/// Where the stories stand.
const FILES: [&str; 3] =
    [include_str!("stories/workers.txt"), include_str!("stories/launchers.txt"), include_str!("stories/states.txt")];

/// For what takes a count of seconds by rule: a process is quiet only after 10 s.
const PATIENCE: Duration = DEADLINE.saturating_mul(3);

/// Beyond this, a process that computes nothing is idle.
const LATER: u64 = 11 * 60 * 1000;

/// A story on the stage.
struct Told {
    story: Story,
    gpu: usize,
    parts: BTreeMap<String, Life>,
    /// How far it is told, and whether to the end.
    scene: usize,
    is_over: bool,
    /// When the last act ended, and how long after it the first orphan was seen.
    acted: Instant,
    orphaned: Option<Duration>,
    /// The process that was started here; the others are its.
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

    /// The part that a PID plays; absent for one that plays none, as multiprocessing's own helpers.
    fn part(&self, pid: u32) -> Option<&str> {
        self.parts.iter().find(|(_, life)| life.pid == pid).map(|(part, _)| part.as_str())
    }

    /// Those of them who play a part, by name.
    fn names(&self, pids: impl Iterator<Item = u32>) -> String {
        let mut names: Vec<&str> = pids.filter_map(|pid| self.part(pid)).collect();
        names.sort_unstable();
        if names.is_empty() { "nobody".to_owned() } else { names.join(" ") }
    }

    /// The text with PIDs in the place of parts in braces.
    fn with_pids(&self, text: &str) -> String {
        let put =
            |text: String, (part, life): (&String, &Life)| text.replace(&format!("{{{part}}}"), &life.pid.to_string());
        self.parts.iter().fold(text.to_owned(), put)
    }

    fn perform(&mut self, act: &Act, host: &mut Host) {
        let gpu = self.gpu;
        let change_tenant = |host: &mut Host, pid: u32, change: &dyn Fn(&mut Tenant)| {
            host.change(|world| world.gpus[gpu].tenants.iter_mut().filter(|it| it.pid == pid).for_each(change));
        };
        match act {
            Act::Ready(_) => {}
            Act::On { part, memory, sm, holders } => {
                let holders = holders.iter().map(|it| self.pid(it)).collect();
                host.put(gpu, Tenant { sm: *sm, holders, ..Tenant::new(self.pid(part), *memory) });
            }
            Act::Sm(part, percent) => change_tenant(host, self.pid(part), &|it| it.sm = Some(*percent)),
            Act::Ghost(part) => change_tenant(host, self.pid(part), &|it| it.fictional = true),
            Act::Extra(memory) => host.change(|world| world.gpus[gpu].memory.unaccounted = *memory),
            Act::Kill(part) => {
                self.parts[part].signal(Signal::KILL);
                self.parts[part].wait_end();
                if self.pid(part) == self.started.pid() {
                    // As a shell does.
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

    /// What is so instead of what is claimed; absent when the claim holds.
    fn deny(&self, claim: &Claim, model: &HostModel) -> Option<String> {
        let found = |part: &str| {
            let mut verdicts = model.verdicts().iter();
            verdicts.find(|it| it.process.pid == self.pid(part))
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
                let verdict = found(part).filter(|it| words.iter().any(|word| it.word() == word))?;
                Some(format!("{part} => {}: {}", verdict.word(), verdict.sentence()))
            }),
            Claim::Job { part, job } => {
                let Some(found) = found(part).and_then(|it| model.job(it.process)) else {
                    return Some(format!("{part} is in no job"));
                };
                unlike(format!("{}: {}", found.name, self.names(found.members.iter().map(|it| it.pid))), job)
            }
            Claim::Origin { part, origin } => {
                let found = found(part).and_then(|it| model.latest()?.process(it.process));
                let found = found.and_then(|it| it.facts.origin.as_ref().ok()).map_or("nowhere", Text::as_str);
                unlike(found.to_owned(), origin)
            }
            Claim::Unaccounted(claimed) => {
                let place = |uuid| model.latest().and_then(|it| it.gpus.iter().position(|gpu| gpu.uuid == uuid));
                let found = model.unaccounted().iter().find(|it| place(it.gpu.clone()) == Some(self.gpu));
                let said = found.map_or("none".to_owned(), |it| {
                    format!("{}, open in {}", it.memory, self.names(it.device_file_holders.iter().map(|it| it.pid)))
                });
                unlike(said, claimed)
            }
        }
    }

    /// What is wrong in the scene that has begun.
    fn wrong(&self, model: &HostModel) -> Vec<String> {
        self.story.scenes[self.scene].claims.iter().filter_map(|claim| self.deny(claim, model)).collect()
    }

    /// What must never be is held against each line from the scene on in which that is said.
    #[track_caller]
    fn refute_never(&self, model: &HostModel) {
        let claims = self.story.scenes[..=self.scene].iter().flat_map(|it| &it.claims);
        let never = claims.filter(|it| matches!(it, Claim::Never { .. }));
        let denials: Vec<String> = never.filter_map(|claim| self.deny(claim, model)).collect();
        assert!(denials.is_empty(), "{}: {denials:?}", self.story.title);
    }

    /// Does what is done in the scene that begins.
    fn begin(&mut self, host: &mut Host) {
        self.orphaned = None;
        for act in std::mem::take(&mut self.story.scenes[self.scene].acts) {
            self.perform(&act, host);
        }
    }

    /// Goes on to the next scene, if what is claimed in this one is so.
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

    /// Takes the time of the first orphan after an act.
    fn note_orphan(&mut self, model: &HostModel) {
        let is_orphan = model.verdicts().iter().any(|it| it.word() == "orphan" && self.part(it.process.pid).is_some());
        if is_orphan && self.orphaned.is_none() {
            self.orphaned = Some(self.acted.elapsed());
        }
    }
}

/// The processes of every story, once each has said its part.
fn cast(host: &mut Host) -> Vec<Told> {
    let parts = Parts::of(host);
    let stories = FILES.iter().flat_map(|it| script::read(it)).filter(can_be_told);
    let mut told: Vec<Told> = stories.enumerate().map(|(gpu, story)| start(host, &parts, story, gpu)).collect();
    let waited = now();
    let is_missing =
        |it: &Told| it.story.parts().into_iter().find(|part| !it.parts.contains_key(*part)).map(str::to_owned);
    while let Some((it, missing)) = told.iter().find_map(|it| Some((it, is_missing(it)?))) {
        let part = parts.next(PATIENCE.saturating_sub(waited.elapsed()));
        let Some(part) = part else { panic!("{}: {missing} never comes", it.story.title) };
        told[part.gpu].parts.insert(part.name, Life::of(part.pid));
    }
    told
}

fn can_be_told(story: &Story) -> bool {
    let program = &story.run[0];
    let is_there =
        std::env::var_os("PATH").is_some_and(|it| std::env::split_paths(&it).any(|it| it.join(program).exists()));
    if !is_there {
        say(format_args!("left out: {} ({program} is not installed)", story.title));
    }
    is_there
}

/// Starts what the story starts.
fn start(host: &Host, parts: &Parts, story: Story, gpu: usize) -> Told {
    let files = story.files.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    let run: Vec<&str> = story.run.iter().map(String::as_str).collect();
    let started = Started::start(&mut parts.play(host, gpu, files, &run));
    Told { story, gpu, parts: BTreeMap::new(), scene: 0, is_over: false, acted: now(), orphaned: None, started }
}

/// What the agent has said, as the viewer understands it.
struct Watch {
    model: HostModel,
    lines: Receiver<Vec<u8>>,
    _agent: Started,
}

impl Watch {
    fn start(mut command: Command) -> Self {
        // Its input stays open: an agent without one leaves.
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
            Line::Tick(change) => self.model.change(change).expect("a tick starts from the line before"),
            Line::Reply(_) => {}
        }
    }

    /// Nothing happens for eleven minutes.
    fn pass_time(&mut self) {
        let mut snapshot = self.model.latest().expect("there were lines").clone();
        snapshot.at = Moment(snapshot.at.0 + LATER);
        snapshot.gpus.iter_mut().for_each(|gpu| gpu.load.at = Moment(gpu.load.at.0 + LATER));
        self.model.replace(snapshot);
    }
}

#[test]
fn each_story_ends_as_it_is_written() {
    let count = FILES.iter().map(|it| script::read(it).len()).sum();
    let mut host = Host::still(vec!["H100"; count]);
    let mut told = cast(&mut host);
    assert!(told.len() >= 25, "{} stories", told.len());
    for it in &mut told {
        it.begin(&mut host);
    }
    let mut watch = Watch::start(host.gputop(["agent"]));
    let began = now();
    loop {
        watch.next();
        for it in &mut told {
            it.note_orphan(&watch.model);
            it.refute_never(&watch.model);
            it.go_on(&mut host, &watch.model);
        }
        // At the end all is so at once.
        let wrong =
            told.iter().map(|it| (it, it.wrong(&watch.model))).filter(|(it, wrong)| !it.is_over || !wrong.is_empty());
        let wrong: Vec<String> = wrong.map(|(it, wrong)| format!("{}: {}", it.story.title, wrong.join("; "))).collect();
        if wrong.is_empty() {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "\n{}\n", wrong.join("\n"));
    }
    say(format_args!("all was told in {:?}", began.elapsed()));
    watch.pass_time();
    let later = told.iter().flat_map(|it| it.story.later.iter().map(move |claim| (it, claim)));
    let denied = later.filter_map(|(it, claim)| Some(format!("{}: {}", it.story.title, it.deny(claim, &watch.model)?)));
    assert_eq!(denied.collect::<Vec<_>>(), Vec::<String>::new());

    check_report(&host, &told);
}

/// Who looks only now is told of those whom nobody needed to watch.
fn check_report(host: &Host, told: &[Told]) {
    let ran = host.run(["orphans", "--json", "--timeout", "20s"]);
    assert_eq!(ran.code, 10, "{}", ran.err);
    let found = json(&ran);
    let entries = found["processes"].as_array().expect("a list");
    let verdict = |pid: u32| entries.iter().find(|it| it["process"]["pid"] == pid).map(|it| &it["verdict"]);
    let mut proved = 0;
    for it in told {
        // Nothing was done to it since gputop began to look.
        let [scene] = it.story.scenes.as_slice() else { continue };
        for claim in &scene.claims {
            match claim {
                Claim::Verdict { part, word, .. } if word == "orphan" => {
                    // Whether one is quiet cannot be said at once.
                    let said = verdict(it.pid(part)).expect("it is listed");
                    assert!(["orphan", "maybe_orphan"].iter().any(|it| said == it), "{}: {said}", it.story.title);
                    proved += usize::from(said == "orphan");
                }
                Claim::Never { parts, .. } => {
                    let listed = parts.iter().filter_map(|part| verdict(it.pid(part))).filter(|it| *it == "orphan");
                    assert_eq!(listed.count(), 0, "{}", it.story.title);
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
        let verdict = watch.model.verdicts().iter().find(|it| it.process.pid == outside.pid());
        if verdict.is_some_and(|it| it.word() == "foreign") {
            let sentence = verdict.map(gputop::model::Verdict::sentence).unwrap_or_default();
            assert!(sentence.contains("in another PID namespace") && sentence.contains("holds 3.0 GiB"), "{sentence}");
            return;
        }
        assert!(began.elapsed() < DEADLINE, "{verdict:?}");
    }
}
