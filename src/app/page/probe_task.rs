//! The part of a process's page about the tasks of the probe on request: the keys, the cost before,
//! and the answer.

use super::memory::{amounts, signed};
use super::{PageLine, ProcessTopic, Writer, module_memory};
use crate::app::keys::probe_task::{
    AskedTask, ProbeTask, STEPS_OF_LINES, STEPS_OF_PEAK, TaskProgress,
};
use crate::base::units::Bytes;
use crate::output::labels::tensors;
use crate::protocol::command::ProbeRequest;
use crate::protocol::reply::Outcome;
use crate::protocol::snapshot::{LineMemory, PeakParts, ProbeAnswer, ProbeReport};

/// The heading of this part.
const HEADING: &str = "On request";

pub(super) fn is_heading(line: &PageLine) -> bool {
    matches!(line, PageLine::Head(text) if text == HEADING)
}

pub(super) fn describe(writer: &mut Writer, asked: Option<&AskedTask>, report: &ProbeReport) {
    writer.head(HEADING);
    let Some(asked) = asked else {
        writer.field(
            "keys",
            "p peak, b modules, r lines, h holders, t tensors, m mark, s snapshot",
        );
        return;
    };
    let name = match asked.task {
        ProbeTask::Tensors => "tensors",
        ProbeTask::Holders => "holders",
        ProbeTask::Lines => "lines",
        ProbeTask::Peak => "peak",
        ProbeTask::Modules => "modules",
        ProbeTask::Mark | ProbeTask::Unmark => "mark",
        ProbeTask::Snapshot => "snapshot",
    };
    match &asked.progress {
        TaskProgress::Proposed => {
            writer.field(name, meaning(asked.task));
            writer.field("cost", cost(asked.task, report));
            writer.field("", "Enter starts it, Esc leaves it");
        }
        TaskProgress::Sent | TaskProgress::Asked(_) => writer.field(name, waiting(asked.task)),
        TaskProgress::Failed(why) => writer.field(name, format!("not done: {why}")),
        TaskProgress::Answered(answer) => describe_answer(writer, name, asked.task, answer, report),
    }
}

fn meaning(task: ProbeTask) -> String {
    let steps = task
        .recorded_steps()
        .map_or_else(String::new, |steps| steps.to_string());
    match task {
        ProbeTask::Peak => {
            format!("records {steps} steps, and shows what their highest memory was made of")
        }
        ProbeTask::Modules => "records 1 step, and shows the memory of each module".to_owned(),
        _ => {
            format!("records {steps} steps, and shows which lines allocated the memory that stayed")
        }
    }
}

/// Predicts how much longer a step takes while stacks are recorded.
fn cost(task: ProbeTask, report: &ProbeReport) -> String {
    let recording = report.recording.as_ref();
    if recording.is_some_and(|recording| recording.state.as_str() == "users") {
        return "none: the program records the stacks itself".to_owned();
    }
    let Some(percent) = recording.and_then(|recording| recording.cost_percent) else {
        return "not known yet: it is measured in the first 40 steps".to_owned();
    };
    let seconds = report.steps.as_ref().and_then(|steps| steps.seconds);
    let steps = task.recorded_steps().map(f64::from);
    let total = seconds
        .zip(steps)
        .map(|(seconds, steps)| seconds * steps * percent / 100.0);
    let total = total.map_or_else(String::new, |total| format!(", {} in all", brief(total)));
    let calls = match task {
        ProbeTask::Modules => ", and 0.1 ms per call of a module",
        _ => "",
    };
    format!(
        "a step takes about {} longer meanwhile{total}{calls}",
        percent_words(percent)
    )
}

fn percent_words(percent: f64) -> String {
    match percent {
        percent if percent < 0.1 => "0.1 %".to_owned(),
        percent if percent < 10.0 => format!("{percent:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

fn brief(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 0.001 => "less than 1 ms".to_owned(),
        seconds if seconds < 1.0 => format!("{:.0} ms", seconds * 1000.0),
        seconds => format!("{seconds:.1} s"),
    }
}

fn waiting(task: ProbeTask) -> String {
    match task.recorded_steps() {
        Some(1) => "recording 1 step; without steps, 3 seconds…".to_owned(),
        Some(steps) => format!("recording {steps} steps; without steps, 3 seconds…"),
        None => "asked; the probe answers at the end of a step…".to_owned(),
    }
}

fn describe_answer(
    writer: &mut Writer,
    name: &str,
    task: ProbeTask,
    answer: &ProbeAnswer,
    report: &ProbeReport,
) {
    let recorded = answer
        .steps
        .map_or_else(String::new, |steps| format!(" in {steps} steps"));
    match task {
        ProbeTask::Tensors => writer.field(name, "all tensors were read: the largest are below"),
        ProbeTask::Holders if report.leaks.is_empty() => {
            writer.field(name, "no tensors pile up, so nothing holds them");
        }
        ProbeTask::Holders => writer.field(name, "looked for: see the leaks below"),
        ProbeTask::Mark => writer.field(name, "set: the changes below count from it; u ends that"),
        ProbeTask::Unmark => writer.field(
            name,
            "ended: the changes below count from the reading before",
        ),
        ProbeTask::Snapshot => {
            let path = answer
                .path
                .as_ref()
                .map_or_else(String::new, ToString::to_string);
            let size = answer
                .bytes
                .map_or_else(String::new, |bytes| format!(" ({bytes})"));
            writer.field(
                name,
                format!("{path}{size}: open it at https://docs.pytorch.org/memory_viz"),
            );
        }
        ProbeTask::Lines if answer.lines.is_empty() => {
            writer.field(name, format!("nothing that was allocated{recorded} stayed"));
        }
        ProbeTask::Lines => {
            writer.field(
                name,
                format!("what was allocated{recorded} and is still there:"),
            );
            describe_lines(writer, &answer.lines, None);
        }
        ProbeTask::Modules => module_memory::describe(writer, name, answer),
        ProbeTask::Peak if answer.peak.is_empty() => {
            writer.field(name, format!("nothing was allocated{recorded}"));
        }
        ProbeTask::Peak => {
            answer
                .peak
                .iter()
                .for_each(|peak| describe_peak(writer, peak, &recorded));
        }
    }
}

fn describe_peak(writer: &mut Writer, peak: &PeakParts, when: &str) {
    writer.field(
        "peak",
        format!("{} of cuda:{}{when}, made of:", peak.peak, peak.device),
    );
    let mut categories: Vec<_> = peak
        .categories
        .iter()
        .filter(|(_, bytes)| **bytes > Bytes(0))
        .collect();
    categories.sort_by_key(|(_, bytes)| std::cmp::Reverse(**bytes));
    for (category, bytes) in categories {
        amounts(
            writer,
            &category.to_string(),
            signed(*bytes),
            &tensors::share(*bytes, peak.peak),
        );
    }
    if !peak.is_complete {
        writer.field(
            "",
            "more was allocated than the recording has room for: the peak may be higher",
        );
    }
    if !peak.lines.is_empty() {
        writer.field("by line", "what these steps allocated of it:");
        describe_lines(writer, &peak.lines, Some(peak.peak));
    }
}

fn describe_lines(writer: &mut Writer, lines: &[LineMemory], whole: Option<Bytes>) {
    for LineMemory { bytes, count, line } in lines {
        let user = line
            .user
            .as_ref()
            .map_or("a line that is not known", |line| line.as_str());
        let inner = line
            .inner
            .as_ref()
            .filter(|inner| line.user.as_ref() != Some(inner));
        let inner = inner.map_or_else(String::new, |inner| format!(", {inner}"));
        let count = count.map_or_else(String::new, |count| format!("{count} × "));
        let share = whole.map_or_else(String::new, |whole| {
            format!("  {}", tensors::share(*bytes, whole))
        });
        writer.field(&bytes.to_string(), format!("{count}{user}{inner}{share}"));
    }
}

impl ProcessTopic {
    /// Takes the answer to the task from the latest report.
    pub(in crate::app) fn take_answer(&mut self) {
        let Some(AskedTask {
            progress: TaskProgress::Asked(id),
            ..
        }) = &self.asked
        else {
            return;
        };
        let report = self
            .process
            .probe
            .as_ref()
            .and_then(|probe| probe.report.as_ref());
        let answer = report
            .and_then(|report| report.answer.as_ref())
            .filter(|answer| answer.id == *id);
        let Some(answer) = answer else { return };
        let failed = || {
            answer.error.as_ref().map_or_else(
                || "the probe gives no reason".to_owned(),
                ToString::to_string,
            )
        };
        let progress = if answer.ok {
            TaskProgress::Answered(Box::new(answer.clone()))
        } else {
            TaskProgress::Failed(failed())
        };
        self.set_progress(progress);
    }

    pub(in crate::app) fn take_outcome(&mut self, outcome: &Outcome) {
        if self
            .asked
            .as_ref()
            .is_none_or(|asked| asked.progress != TaskProgress::Sent)
        {
            return;
        }
        match outcome {
            Outcome::ProbeAsked { id } => self.set_progress(TaskProgress::Asked(*id)),
            Outcome::Refused { reason } => {
                self.set_progress(TaskProgress::Failed(reason.to_string()));
            }
            _ => {}
        }
    }

    pub(in crate::app) fn set_progress(&mut self, progress: TaskProgress) {
        if let Some(asked) = &mut self.asked {
            (asked.progress, self.shows_task) = (progress, true);
        }
    }

    pub(in crate::app) fn is_proposed(&self) -> bool {
        self.asked
            .as_ref()
            .is_some_and(|asked| asked.progress == TaskProgress::Proposed)
    }

    pub(in crate::app) fn is_waiting(&self) -> bool {
        let is_waiting = |asked: &AskedTask| {
            matches!(asked.progress, TaskProgress::Sent | TaskProgress::Asked(_))
        };
        self.asked.as_ref().is_some_and(is_waiting)
    }

    /// The request for a task; `None` without a report.
    pub(in crate::app) fn request(&self, task: ProbeTask) -> Option<ProbeRequest> {
        let report = self.process.probe.as_ref()?.report.as_ref()?;
        Some(match task {
            ProbeTask::Tensors => ProbeRequest::Tensors,
            ProbeTask::Holders => ProbeRequest::Holders,
            ProbeTask::Lines => ProbeRequest::Record {
                steps: STEPS_OF_LINES,
            },
            ProbeTask::Modules => ProbeRequest::Modules,
            ProbeTask::Peak => ProbeRequest::Peak {
                steps: STEPS_OF_PEAK,
            },
            ProbeTask::Mark => ProbeRequest::Mark {
                name: "of this page".into(),
            },
            ProbeTask::Unmark => ProbeRequest::Unmark,
            ProbeTask::Snapshot => {
                // The program writes the file, so it lies in the program's folder.
                let folder = self
                    .inspection
                    .as_ref()
                    .and_then(|inspection| inspection.as_ref().ok()?.cwd.as_ref());
                let folder = folder.map_or("/tmp", |folder| folder.as_str().trim_end_matches('/'));
                let step = report
                    .steps
                    .as_ref()
                    .map_or_else(String::new, |steps| format!("-step-{}", steps.count));
                ProbeRequest::Snapshot {
                    path: format!("{folder}/gputop-{}{step}.pickle", self.process.id.pid).into(),
                    steps: None,
                }
            }
        })
    }
}
