//! A page of text over the lists: the keys, or one process or GPU in detail.

mod advice;
mod gpu;
mod help;
mod inspection;
mod job;
mod memory;
mod module_memory;
mod news_list;
pub(crate) mod night;
mod probe;
mod probe_task;
mod program_marks;
mod users;

use std::fmt::Display;

use tui_input::{Input, InputRequest};

use self::advice::advise;
pub(crate) use self::job::{GridHost, JobTopic};
pub(crate) use self::news_list::{NewsId, NewsList, NewsPart};
use self::night::StripValues;
use crate::app::fleet::viewer_clock::Clocks;
use crate::app::keys::probe_task::AskedTask;
use crate::app::lists::columns::Tone;
use crate::app::lists::list_view::first_row;
use crate::app::lists::process_cells;
use crate::base::text::Text;
use crate::base::units::{Bytes, Elapsed};
use crate::model::{
    Breakdown, Fleet, GpuOrProcess, HistoryEventKind, HostGpu, HostModel, HostProcess, HostSubject,
    Severity, TensorLayer, UserHue,
};
use crate::output::labels::{self, elapsed, state_in_words, use_in_words};
use crate::output::text_wrap::wrap_and_cut;
use crate::protocol::host_key::HostKey;
use crate::protocol::reply::Inspection;
use crate::protocol::snapshot::{Identity, Missing, Process, ProcessId, Snapshot};

/// The width of the names at the left of a page.
pub(crate) const LABEL: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PageLine {
    Head(String),
    /// A name and a text. The name is empty where the text of the line before continues.
    Field(String, String),
    Bar(Breakdown),
    /// The names of the parts of a bar.
    Legend,
    /// A bar of the layers of PyTorch's memory: the amount of each.
    Layers([Bytes; TensorLayer::ALL.len()]),
    /// A name and a text as in a field, with the colour of a layer.
    Layer(TensorLayer, String, String),
    /// Part of a line of the news, with its time.
    News(NewsPart),
    /// A badge, and the first line of the sentence after it.
    Verdict(Severity, String, String),
    /// A user with the figures of a row of the page of users.
    User {
        name: Text,
        hue: Option<UserHue>,
        figures: String,
    },
    /// Values over time, in the hue of a user for memory.
    Strip {
        host: HostKey,
        label: String,
        hue: Option<UserHue>,
        values: StripValues,
        is_use: bool,
    },
    /// A rank or a host that differs from the others of its job: its letter in the grid, its label,
    /// which is as wide as those of the others, and a line of a sentence.
    Difference {
        letter: char,
        severity: Severity,
        label: String,
        label_width: usize,
        sentence: String,
    },
    /// Hosts of a job with their ranks.
    Ranks(Vec<GridHost>),
    /// The events below a strip: the column of each, and its kind.
    Events(Vec<(usize, HistoryEventKind)>),
}

#[derive(Debug, Clone)]
pub(crate) enum PageTopic {
    Help,
    News(NewsList),
    /// The users, and the memory that each holds.
    Users,
    /// The last 24 hours of each GPU.
    Night,
    /// A GPU, and its short name in the list when the page was opened.
    Gpu(HostGpu, String),
    Process(Box<ProcessTopic>),
    Job(Box<JobTopic>),
}

#[derive(Debug, Clone)]
pub(crate) struct ProcessTopic {
    pub(super) host: HostKey,
    pub(super) process: Process,
    /// The result of the inspection, or the reason why there is none; `None` until the agent
    /// answers.
    pub(super) inspection: Option<Result<Box<Inspection>, Text>>,
    /// The task that the user last asked of the probe.
    pub(super) asked: Option<AskedTask>,
    /// Whether the page scrolls to what was asked when it is drawn next.
    pub(super) shows_task: bool,
}

impl ProcessTopic {
    pub(super) fn new(host: HostKey, process: Process) -> Self {
        Self {
            host,
            process,
            inspection: None,
            asked: None,
            shows_task: false,
        }
    }

    pub(super) fn id(&self) -> HostProcess {
        HostProcess {
            host: self.host,
            process: self.process.id,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Page {
    pub(super) topic: PageTopic,
    /// All lines, also those that are not on the screen.
    pub lines: Vec<PageLine>,
    pub top: usize,
    /// The words that the shown lines of the help or the news contain.
    pub search: Input,
    is_typing: bool,
}

impl Page {
    pub(super) fn new(topic: PageTopic) -> Self {
        Self {
            topic,
            lines: Vec::new(),
            top: 0,
            search: Input::default(),
            is_typing: false,
        }
    }

    /// Whether the page can show only the lines with some words.
    pub(crate) fn has_search(&self) -> bool {
        matches!(self.topic, PageTopic::Help | PageTopic::News(_))
    }

    /// Whether the page is that of a process with a report of the probe.
    pub(super) fn has_probe(&self) -> bool {
        let PageTopic::Process(topic) = &self.topic else {
            return false;
        };
        topic
            .process
            .probe
            .as_ref()
            .is_some_and(|probe| probe.report.is_some())
    }

    /// Whether a task of the probe waits for a confirmation.
    pub(super) fn is_proposed(&self) -> bool {
        matches!(&self.topic, PageTopic::Process(topic) if topic.is_proposed())
    }

    pub(super) fn news(&self) -> Option<&NewsList> {
        if let PageTopic::News(list) = &self.topic {
            Some(list)
        } else {
            None
        }
    }

    pub(super) fn news_mut(&mut self) -> Option<&mut NewsList> {
        if let PageTopic::News(list) = &mut self.topic {
            Some(list)
        } else {
            None
        }
    }

    pub(super) fn job(&self) -> Option<&JobTopic> {
        if let PageTopic::Job(topic) = &self.topic {
            Some(topic)
        } else {
            None
        }
    }

    pub(super) fn job_mut(&mut self) -> Option<&mut JobTopic> {
        if let PageTopic::Job(topic) = &mut self.topic {
            Some(topic)
        } else {
            None
        }
    }

    /// The line below the title: the figures of the chosen rank of a job; empty on other pages.
    pub(crate) fn second_line(&self) -> &str {
        self.job().map_or("", JobTopic::chosen_line)
    }

    /// Whether the words of the search are being typed.
    pub(crate) fn is_typing(&self) -> bool {
        self.is_typing
    }

    pub(super) fn open_search(&mut self) {
        self.is_typing = self.has_search();
    }

    pub(super) fn search_for(&mut self, request: InputRequest) {
        if self.is_typing {
            self.search.handle(request);
            self.top = 0;
        }
    }

    /// Ends the typing. Keeps the words of the search, or shows the whole page again.
    pub(super) fn close_search(&mut self, keep: bool) {
        self.is_typing = false;
        if !keep {
            self.search.reset();
        }
    }

    pub(crate) fn title(&self) -> String {
        match &self.topic {
            PageTopic::Help => "Help".to_owned(),
            PageTopic::News(_) => "News".to_owned(),
            PageTopic::Users => "Who".to_owned(),
            PageTopic::Night => "Night".to_owned(),
            PageTopic::Gpu(_, label) => format!("GPU {label}"),
            PageTopic::Process(topic) => format!("Process {}", topic.process.id.pid),
            PageTopic::Job(topic) => topic.title(),
        }
    }

    /// The GPU or process that the page is about; `None` for other pages.
    pub(crate) fn subject(&self) -> Option<HostSubject> {
        match &self.topic {
            PageTopic::Gpu(gpu, _) => Some(gpu.clone().into()),
            PageTopic::Process(topic) => Some(topic.id().into()),
            PageTopic::Job(_)
            | PageTopic::Help
            | PageTopic::News(_)
            | PageTopic::Users
            | PageTopic::Night => None,
        }
    }

    /// Whether the page is that of a process, which begins with what its graph shows. That of a GPU
    /// is a long table.
    pub(super) fn is_of_process(&self) -> bool {
        matches!(self.topic, PageTopic::Process(_))
    }

    pub(super) fn scroll(&mut self, by: isize) {
        match &mut self.topic {
            PageTopic::News(list) => list.step(by),
            PageTopic::Job(topic) => topic.step_line(by),
            _ => self.top = self.top.saturating_add_signed(by),
        }
    }

    /// Writes the lines for the latest data and for a screen of this size.
    pub(super) fn fit(
        &mut self,
        fleet: &Fleet,
        clocks: &Clocks,
        (width, height): (u16, u16),
        is_recording: bool,
    ) {
        let mut writer = Writer {
            width: usize::from(width).saturating_sub(LABEL + 4).max(8),
            lines: Vec::new(),
        };
        match &mut self.topic {
            PageTopic::Help => {
                writer.lines = help::lines(writer.width, self.search.value(), is_recording);
            }
            PageTopic::News(list) => {
                let cursor = list.write(&mut writer, fleet, clocks, self.search.value());
                let rows = writer.lines.len();
                self.top = first_row(self.top, cursor, rows, height.saturating_sub(1));
            }
            PageTopic::Users => users::describe(&mut writer, fleet),
            PageTopic::Night => night::describe(&mut writer, fleet),
            PageTopic::Gpu(HostGpu { host, gpu }, _) => {
                let model = fleet.host(*host);
                match model.and_then(|model| Some((model, model.latest()?.gpu(gpu)?))) {
                    Some((model, gpu)) => {
                        let without_detail = if is_recording {
                            "not in this recording"
                        } else {
                            "asking the driver…"
                        };
                        gpu::describe(&mut writer, model, gpu, without_detail);
                    }
                    None => writer.head("This GPU is gone from the list."),
                }
            }
            PageTopic::Job(topic) => {
                let width = usize::from(width);
                let cursor = topic.write(&mut writer, fleet, clocks, width);
                if let Some(cursor) = cursor {
                    let rows = writer.lines.len();
                    self.top = first_row(self.top, cursor, rows, height.saturating_sub(1));
                }
            }
            PageTopic::Process(topic) => {
                if let Some((_, seen)) = fleet.process(topic.id()) {
                    topic.process.clone_from(seen);
                    topic.take_answer();
                }
                if let Some(model) = fleet.host(topic.host) {
                    describe_process(&mut writer, model, topic);
                    // A leak that the probe found has its own advice.
                    if probe::found_leaks(&topic.process).next().is_none() {
                        advise(&mut writer, model, &GpuOrProcess::Process(topic.process.id));
                    }
                }
                match &topic.inspection {
                    None => writer.field("environment", "asking the agent…"),
                    Some(Err(reason)) => writer.field("environment", reason),
                    Some(Ok(found)) => inspection::describe(&mut writer, found),
                }
            }
        }
        let host = match &self.topic {
            PageTopic::Help
            | PageTopic::News(_)
            | PageTopic::Users
            | PageTopic::Night
            | PageTopic::Job(_) => None,
            PageTopic::Gpu(gpu, _) => Some(gpu.host),
            PageTopic::Process(topic) => Some(topic.host),
        };
        if let Some(host) = host.filter(|host| fleet.must_be_named(*host)) {
            writer.lines.insert(
                0,
                PageLine::Field("host".to_owned(), fleet.both_names(host)),
            );
        }
        self.lines = writer.lines;
        if let PageTopic::Process(topic) = &mut self.topic
            && std::mem::take(&mut topic.shows_task)
            && let Some(head) = self.lines.iter().position(probe_task::is_heading)
        {
            self.top = head;
        }
        self.top = self.top.min(
            self.lines
                .len()
                .saturating_sub(usize::from(height.saturating_sub(2))),
        );
    }
}

struct Writer {
    width: usize,
    lines: Vec<PageLine>,
}

impl Writer {
    fn head(&mut self, text: &str) {
        self.lines.push(PageLine::Head(text.to_owned()));
    }

    /// Writes a badge and a sentence.
    fn verdict(&mut self, severity: Severity, badge: String, sentence: &str) {
        let mut lines = wrap_and_cut(sentence, self.width, 0).into_iter();
        let first = lines.next().unwrap_or_default();
        self.lines.push(PageLine::Verdict(severity, badge, first));
        self.lines
            .extend(lines.map(|line| PageLine::Field(String::new(), line)));
    }

    fn field(&mut self, label: &str, text: impl Display) {
        self.hanging(label, text, 0);
    }

    /// Writes a field whose further lines are indented by this many columns. A word that no line
    /// has room for is cut.
    fn hanging(&mut self, label: &str, text: impl Display, indent: usize) {
        // On a narrow screen the indent would leave room for only a word or two.
        let indent = if indent + 24 > self.width { 0 } else { indent };
        let mut label = label.to_owned();
        for (number, mut line) in wrap_and_cut(&text.to_string(), self.width, indent)
            .into_iter()
            .enumerate()
        {
            if number > 0 {
                line.insert_str(0, &" ".repeat(indent));
            }
            self.lines
                .push(PageLine::Field(std::mem::take(&mut label), line));
        }
    }

    fn reading(&mut self, label: &str, reading: Result<impl Display, impl Display>) {
        self.field(label, labels::word(reading));
    }

    /// Writes one line for each part, or `none`. `None` stands for parts that this user may not
    /// read.
    fn list<T: Display>(&mut self, label: &str, parts: Option<impl IntoIterator<Item = T>>) {
        let Some(parts) = parts else {
            return self.field(label, "may not be read by this user");
        };
        let mut label = label;
        for part in parts {
            self.field(std::mem::take(&mut label), part);
        }
        if !label.is_empty() {
            self.field(label, "none");
        }
    }
}

/// Writes the trouble of a process as a badge and a sentence; nothing for a process without one.
fn headline(writer: &mut Writer, model: &HostModel, id: ProcessId) {
    let subject = GpuOrProcess::Process(id);
    let word = process_cells::verdict(model, id, false);
    let Tone::Severity(severity @ (Severity::Bad | Severity::Notable)) = word.tone else {
        if word.tone == Tone::Alarm {
            growth_headline(writer, model, &subject, word.text);
        }
        return;
    };
    match model.verdict(id).filter(|verdict| verdict.is_suspect()) {
        Some(verdict) if verdict.word() == word.text => {
            writer.verdict(severity, word.text, &verdict.sentence());
        }
        _ => growth_headline(writer, model, &subject, word.text),
    }
}

fn growth_headline(writer: &mut Writer, model: &HostModel, subject: &GpuOrProcess, word: String) {
    let Some(growing) = model
        .growing()
        .iter()
        .find(|growing| growing.subject == *subject)
    else {
        return;
    };
    let rate = labels::growth::rate(growing.evidence.rate);
    let full = labels::growth::full_within(model, growing)
        .or_else(|| labels::growth::when_full(model, growing));
    let sentence = match full {
        Some(full) => format!("{full}, {rate}"),
        None => rate,
    };
    writer.verdict(Severity::Bad, word, &sentence);
}

/// Describes a process. Growth is what most readers look for, so it is on the first screenful even
/// of a small screen.
fn describe_process(writer: &mut Writer, model: &HostModel, topic: &ProcessTopic) {
    let process = &topic.process;
    let subject = GpuOrProcess::Process(process.id);
    headline(writer, model, process.id);
    probe::leaks_in_short(writer, process);
    describe_program(writer, process);
    describe_life(writer, model, process);
    writer.field("identity", identity(process));
    describe_verdict(writer, model, process.id);
    describe_growth(writer, model, &subject);
    describe_job(writer, model, process);
    describe_load(writer, model, process);
    describe_use_of_gpus(writer, model, process.id);
    probe::describe(writer, model, process, topic.asked.as_ref());
    memory::of_process(writer, model, process);
    if let Some(series) = model.series(&subject)
        && let (Some(first), Some(peak)) = (series.baseline(), series.peak)
    {
        let seen = format!("{first} when first seen, {peak} at its peak since");
        writer.field("memory", seen);
    }
}

fn describe_program(writer: &mut Writer, process: &Process) {
    let facts = &process.facts;
    match &facts.argv {
        Ok(argv) if !argv.is_empty() => {
            if let Some(served) = labels::server::served(argv) {
                writer.field("serves", served);
            }
            writer.field("command", argv.line());
        }
        _ => writer.reading("command", labels::command(process)),
    }
    writer.reading("name", facts.comm.as_ref());
    writer.reading("user", facts.user.as_ref());
}

/// Says since when a process runs, and when it ended.
fn describe_life(writer: &mut Writer, model: &HostModel, process: &Process) {
    let Some(snapshot) = model.latest() else {
        return;
    };
    let mut simulated = snapshot.gpus.iter().filter(|gpu| gpu.facts.simulated);
    if simulated.any(|gpu| gpu.device_file_holders.contains(&process.id)) {
        writer.field(
            "simulated",
            "the process is real; its user, GPU, PyTorch and the time before its start belong to --demo",
        );
    }
    let elapsed = elapsed(snapshot, process);
    writer.reading(
        "started",
        elapsed.map(|elapsed| format!("{} ago", Elapsed(elapsed))),
    );
    if snapshot.process(process.id).is_none() {
        writer.field("ended", last_seen(model, process.id));
    } else if process.load.state == Err(Missing::Gone) && process.id.start_ticks.is_some() {
        writer.field("ended", "yes; its GPU has not answered since");
    }
}

/// Says how sure it is that the driver means this process.
fn identity(process: &Process) -> &'static str {
    match process.facts.identity {
        Identity::Sure => "sure: PID and start time were read together",
        Identity::Fresh => "started just now: sure at the next reading",
        Identity::Unverified if process.load.state == Err(Missing::Gone) => {
            "none: no process here has this PID; it has ended, and the driver still lists it"
        }
        Identity::Unverified => "not verified: NVML may mean a process of another PID namespace",
    }
}

/// Writes the verdict on a process. The first word is the one that the list shows.
fn describe_verdict(writer: &mut Writer, model: &HostModel, id: ProcessId) {
    let Some(verdict) = model.verdict(id) else {
        return;
    };
    let growth = model
        .growth(&GpuOrProcess::Process(id))
        .map(|growth| growth.verdict());
    let grows = growth.filter(|growth| growth.grows() && !verdict.is_suspect());
    let text = match grows {
        Some(grows) => format!(
            "{}: see growth; besides, {}",
            grows.word(),
            verdict.sentence()
        ),
        None => format!("{}: {}", verdict.word(), verdict.sentence()),
    };
    writer.field("verdict", text);
}

fn describe_job(writer: &mut Writer, model: &HostModel, process: &Process) {
    if let Some(job) = model.job(process.id).filter(|job| job.members.len() > 1) {
        let root = match job.root {
            None => "its root has ended".to_owned(),
            Some(root) => format!("root {}", root.pid),
        };
        let (name, count) = (&job.name, job.members.len());
        writer.field(
            "job",
            format!("{name}, {count} processes, {root} (in the panel of F9: Tab)"),
        );
    }
    if let Ok(origin) = &process.facts.origin {
        writer.field("origin", origin);
    }
}

/// Writes the CPU side of a process. One that had ended when it was opened from the news has no
/// readings.
fn describe_load(writer: &mut Writer, model: &HostModel, process: &Process) {
    let load = &process.load;
    let is_there = |snapshot: &Snapshot| snapshot.process(process.id).is_some();
    if model.latest().is_none_or(is_there) || load.threads.is_ok() {
        writer.reading(
            "state",
            load.state.map(|state| state_in_words(process, state)),
        );
        writer.reading("threads", load.threads);
        writer.reading("CPU", load.cpu);
        writer.reading("host memory", load.rss);
    }
}

fn describe_use_of_gpus(writer: &mut Writer, model: &HostModel, id: ProcessId) {
    let (Some(snapshot), Some(process_total)) = (model.latest(), model.process_total(id)) else {
        return;
    };
    for gpu in snapshot.gpus_at(&process_total.gpus) {
        let Some(gpu_process) = gpu.process(id) else {
            continue;
        };
        let memory = match gpu_process.memory {
            Err(Missing::Unsupported) => {
                "N/A (the driver does not say what one process holds)".to_owned()
            }
            memory => labels::word(memory),
        };
        let (sm, usage) = (
            labels::word(gpu_process.sm),
            use_in_words(gpu_process.usage),
        );
        let label = format!("on GPU {}", labels::gpu_label(gpu));
        writer.field(&label, format!("{memory}, SM {sm}, {usage}"));
    }
}

/// Says when a process ended, or left its GPUs, and the memory that it held.
fn last_seen(model: &HostModel, process: ProcessId) -> String {
    let known = model.history().process(process);
    let ago = known
        .and_then(|known| known.gone)
        .map(|gone| format!("{} ago, ", Elapsed(model.now().since(gone))));
    let held = known
        .and_then(|known| known.memory()?.latest())
        .map(|held| format!("held {held}; "));
    let [ago, held] = [ago, held].map(|part| part.unwrap_or_else(String::new));
    format!("{ago}{held}the facts here are the last that were read")
}

fn describe_growth(writer: &mut Writer, model: &HostModel, subject: &GpuOrProcess) {
    let Some(growth) = model.leak_detector(subject) else {
        return;
    };
    if let Some(growing) = model.growth(subject) {
        writer.field("growth", growing.sentence());
    }
    let grows = model
        .growing()
        .iter()
        .find(|growing| growing.subject == *subject);
    if let Some(full) = grows.and_then(|growing| labels::growth::full_within(model, growing)) {
        writer.field("full", full.trim_start_matches("full "));
    }
    if grows.is_some_and(|growing| growing.is_loading) {
        writer.field("", "seems to load a model: no alert yet");
    }
    if let Some((at, fall)) = growth.last_drop() {
        writer.field(
            "fell",
            format!("{fall}, {} ago", Elapsed(model.now().since(at))),
        );
    }
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr;

    use super::*;

    #[test]
    fn no_line_breaks_between_a_number_and_its_unit() {
        let sentence = "LEAK: +30 MiB/min for 12 min (38 new highs, 1 expected by chance); out of memory in 3 h 10 min \
            (2 h 50 to 3 h 40)";
        for width in 14..=sentence.len() {
            let mut writer = Writer {
                width,
                lines: Vec::new(),
            };
            writer.field("memory", sentence);
            let lines: Vec<&str> = writer
                .lines
                .iter()
                .map(|line| {
                    if let PageLine::Field(_, text) = line {
                        text.as_str()
                    } else {
                        ""
                    }
                })
                .collect();
            assert_eq!(lines.join(" "), sentence);
            for pair in lines.windows(2) {
                let begins = pair[1].split([' ', ',', '/']).next().unwrap_or("");
                assert!(
                    !["MiB", "s", "min", "h", "10", "50", "40)"].contains(&begins),
                    "{lines:?}"
                );
                assert!(pair[0].width() <= width, "{lines:?}");
            }
        }
    }
}
