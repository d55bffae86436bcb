//! Asks the probe in the process of a page for a task: at the press of a key, or after a
//! confirmation where the task costs time.

use crate::app::event::Effect;
use crate::app::keys::probe_task::{AskedTask, ProbeTask, TaskProgress};
use crate::app::page::{PageTopic, ProcessTopic};
use crate::app::{App, RECORDING, commands};
use crate::model::HostModel;
use crate::protocol::command::Command;

impl App {
    /// Asks the probe of the open page for a task, or proposes a task that costs time.
    pub(in crate::app) fn ask_probe(&mut self, task: ProbeTask) -> Option<Effect> {
        let is_recording = self.options.is_recording;
        let is_readonly = self.options.readonly;
        let Some(PageTopic::Process(topic)) = self.modes.page_mut().map(|page| &mut page.topic)
        else {
            self.notice
                .set("only a program that runs under `gputop run` can be asked: open its page");
            return None;
        };
        let probe = topic.process.probe.as_ref();
        // The first line of an agent does not wait for a search for probes.
        let is_searched = self.data.shown().host(topic.host);
        let is_searched = is_searched.is_some_and(HostModel::is_complete);
        let why_not = match probe {
            _ if is_recording => Some(RECORDING.to_owned()),
            _ if is_readonly => Some(
                "gputop was started with --readonly: it asks no program for anything".to_owned(),
            ),
            None if !is_searched => {
                Some("no probe was looked for in this process yet: press the key again".to_owned())
            }
            None => Some(
                "no probe is in this process: start it as `gputop run -- python train.py`"
                    .to_owned(),
            ),
            Some(probe) if probe.report.is_none() => probe.missing.map(|why| why.to_string()),
            Some(_) if topic.is_waiting() => {
                Some("the probe has not answered the key before yet".to_owned())
            }
            Some(_) => None,
        };
        if let Some(why_not) = why_not {
            self.notice.set(why_not);
            return None;
        }
        let progress = if task.recorded_steps().is_some() {
            TaskProgress::Proposed
        } else {
            TaskProgress::Sent
        };
        let is_proposed = progress == TaskProgress::Proposed;
        topic.asked = Some(AskedTask { task, progress });
        topic.shows_task = true;
        if is_proposed { None } else { self.send_task() }
    }

    /// Asks the probe for the proposed task.
    pub(in crate::app) fn confirm_task(&mut self) -> Option<Effect> {
        let Some(PageTopic::Process(topic)) = self.modes.page_mut().map(|page| &mut page.topic)
        else {
            return None;
        };
        topic.set_progress(TaskProgress::Sent);
        self.send_task()
    }

    fn send_task(&mut self) -> Option<Effect> {
        let Some(PageTopic::Process(topic)) = self.modes.page().map(|page| &page.topic) else {
            return None;
        };
        let request = topic.request(topic.asked.as_ref()?.task)?;
        commands(
            topic.host,
            vec![Command::AskProbe {
                process: topic.process.id,
                request,
            }],
        )
    }

    /// The process page whose task waits for a confirmation.
    pub(in crate::app) fn proposal(&mut self) -> Option<&mut ProcessTopic> {
        match self.modes.page_mut().map(|page| &mut page.topic) {
            Some(PageTopic::Process(topic)) if topic.is_proposed() => Some(topic),
            _ => None,
        }
    }
}
