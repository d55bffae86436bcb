//! What opens over the lists, and closes again: pages, and the panel that ends processes.

use super::end_dialog::EndDialog;
use super::keymap::Mode;
use super::labels;
use super::page::{Page, Topic};
use super::{App, List, commands, job};
use crate::app::event::Effect;
use crate::model::GpuOrProcess;
use crate::protocol::command::Command;
use crate::protocol::snapshot::{ProcessId, Snapshot};

impl App {
    pub(super) fn open_detail(&mut self) -> Option<Effect> {
        let snapshot = self.model.latest()?;
        if self.focus == List::Gpus {
            let gpu = snapshot.gpus.get(self.gpu_at)?;
            let page = Page::new(Topic::Gpu(gpu.uuid.clone(), labels::gpu_label(gpu)));
            let effect = detail_of(&page, snapshot);
            self.page = Some(page);
            return effect;
        }
        // A graph over the whole screen may stay with a process that has ended.
        let id = match self.graph_view.whole() {
            Some(GpuOrProcess::Process(id)) => *id,
            _ => self.under_cursor()?,
        };
        let Some(process) = snapshot.process(id).cloned() else {
            self.say("this process has ended");
            return None;
        };
        self.page = Some(Page::new(Topic::Process(Box::new(process), None)));
        Some(Effect::Commands(vec![Command::Inspect { process: id }]))
    }

    pub(super) fn open_end_panel(&mut self) -> Option<Effect> {
        if self.options.readonly {
            self.say("gputop was started with --readonly: it signals nobody");
            return None;
        }
        if self.lost.is_some() {
            self.say("there is no agent to signal through: press R to start one");
            return None;
        }
        // Whoever signals sees how things are, not how they were.
        if self.behind.is_some() {
            self.resume();
            self.arrange();
        }
        let target = match (&self.page, self.graph_view.whole()) {
            (Some(Page { topic: Topic::Process(process, _), .. }), _) => Some(process.id),
            (None, Some(GpuOrProcess::Process(process))) => Some(*process),
            (Some(_), _) | (None, Some(_)) => None,
            (None, None) => self.under_cursor().filter(|_| self.focus == List::Processes),
        };
        let snapshot = self.model.latest()?;
        let chosen: Vec<ProcessId> = if self.mode() == Mode::List && !self.tagged.is_empty() {
            self.tagged.iter().copied().filter(|id| snapshot.process(*id).is_some()).collect()
        } else {
            target.into_iter().filter(|id| snapshot.process(*id).is_some()).collect()
        };
        let Some(first) = chosen.first() else {
            let is_on_gpu = self.mode() == Mode::List && self.focus == List::Gpus;
            self.say(if is_on_gpu {
                "only processes are ended: Tab goes to them"
            } else {
                "there is no process under the cursor"
            });
            return None;
        };
        let job = job(&self.model, *first);
        let (panel, mut asked) = EndDialog::open(chosen, &job, &self.model, snapshot);
        self.end = Some(panel);
        // Of a job that is about to be ended, nobody is left out because the census has yet to come by.
        asked.push(Command::Scan);
        commands(asked)
    }

    pub(super) fn confirm(&mut self) -> Option<Effect> {
        let end = self.end.as_mut()?;
        if end.is_over() {
            return self.close();
        }
        commands(end.confirm())
    }

    pub(super) fn close(&mut self) -> Option<Effect> {
        if let Some(end) = self.end.take() {
            return commands(end.release());
        }
        match self.page.take() {
            Some(Page { topic: Topic::Gpu(..), .. }) => {
                return Some(Effect::Commands(vec![Command::Detail { gpu: None }]));
            }
            Some(_) => {}
            None if self.setup.is_some() => self.setup = None,
            None => self.close_graph(),
        }
        None
    }
}

/// Asks for all there is to know of the GPU that a page is about; of an instance, of its whole.
pub(super) fn detail_of(page: &Page, snapshot: &Snapshot) -> Option<Effect> {
    let Topic::Gpu(uuid, _) = &page.topic else { return None };
    let gpu = snapshot.gpu(uuid)?.facts.parent.as_ref().unwrap_or(uuid).clone();
    Some(Effect::Commands(vec![Command::Detail { gpu: Some(gpu) }]))
}
