//! Opens the page of a process or GPU, also of one that the news or the graph remember.

use super::mode::Mode;
use crate::app::event::Effect;
use crate::app::lists::list_view::{Grouping, View};
use crate::app::page::{NewsId, Page, PageTopic, ProcessTopic};
use crate::app::{App, List, commands};
use crate::model::{GpuOrProcess, HostGpu, HostModel, HostProcess, HostSubject};
use crate::protocol::command::Command;
use crate::protocol::host_key::HostKey;
use crate::protocol::snapshot::{Missing, Process, ProcessLoad, Snapshot};

/// Asks for the details of the GPU that a page is about, if it is on this host; for a MIG instance,
/// of its parent.
pub(in crate::app) fn detail_command(
    page: &Page,
    host: HostKey,
    snapshot: &Snapshot,
) -> Option<Effect> {
    let PageTopic::Gpu(topic, _) = &page.topic else {
        return None;
    };
    let gpu = snapshot.gpu(&topic.gpu).filter(|_| topic.host == host)?;
    let gpu = gpu.facts.parent.as_ref().unwrap_or(&topic.gpu).clone();
    commands(host, vec![Command::Detail { gpu: Some(gpu) }])
}

impl App {
    /// Opens the page of a process, with its last known facts if it has ended.
    pub(in crate::app) fn open_process_page(&mut self, id: HostProcess) -> Option<Effect> {
        let HostProcess { host, process } = id;
        let topic = match self.fleet().process(id) {
            Some((_, seen)) => ProcessTopic::new(host, seen.clone()),
            None => {
                let known = self
                    .fleet()
                    .host(host)
                    .and_then(|model| model.history().process(process)?.facts().cloned());
                let Some(facts) = known else {
                    self.notice.set(format!(
                        "{} has ended, and gputop does not remember it",
                        process.pid
                    ));
                    return None;
                };
                let load = ProcessLoad::missing(Missing::Gone);
                let process = Process {
                    id: process,
                    facts,
                    load,
                    allocator: None,
                    probe: None,
                    bytes_read: None,
                };
                let inspection = Some(Err("the process has ended".into()));
                ProcessTopic {
                    inspection,
                    ..ProcessTopic::new(host, process)
                }
            }
        };
        let lives = topic.inspection.is_none();
        self.modes
            .open(Mode::Page(Box::new(Page::new(PageTopic::Process(
                Box::new(topic),
            )))));
        if lives {
            commands(host, vec![Command::Inspect { process }])
        } else {
            None
        }
    }

    /// Closes the page of the news, and opens the process or GPU of an item.
    pub(in crate::app) fn open_news(&mut self, (host, number): NewsId) -> Option<Effect> {
        let model = self.fleet().host(host)?;
        let subject = model
            .news()
            .find(|item| item.number == number)?
            .subject
            .clone();
        if self.modes.page().is_some() {
            self.modes.close();
        }
        if subject.is_some() {
            self.leave_fleet_for(host);
        }
        match subject {
            Some(GpuOrProcess::Gpu(gpu)) => self.select_gpu(&HostGpu { host, gpu }),
            Some(GpuOrProcess::Process(process)) => {
                self.select_process(HostProcess { host, process })
            }
            None => None,
        }
    }

    /// Puts the cursor on a GPU, and opens its page.
    pub(in crate::app) fn select_gpu(&mut self, gpu: &HostGpu) -> Option<Effect> {
        let Some(row) = self
            .gpus
            .rows(self.fleet())
            .position(|row| row.id() == *gpu)
        else {
            self.notice.set("this GPU is gone from the list");
            return None;
        };
        self.focus = List::Gpus;
        self.gpus.select(row, self.data.shown());
        self.open_detail()
    }

    /// Puts the cursor on a process, and opens its page. The page of a process that has ended, and
    /// is in the list no more, lies over its graph.
    fn select_process(&mut self, id: HostProcess) -> Option<Effect> {
        self.focus = List::Processes;
        let place = |app: &Self| {
            app.processes
                .rows
                .iter()
                .position(|row| row.process() == Some(id))
        };
        let snapshot = self.fleet().host(id.host).and_then(HostModel::latest);
        if place(self).is_none() && snapshot.is_none_or(|snapshot| !snapshot.lives(id.process)) {
            let effect = self.open_process_page(id);
            if let Some(page) = self.modes.close() {
                self.modes.open(Mode::Graph(HostSubject::from(id)));
                self.modes.open(page);
            }
            return effect;
        }
        if place(self).is_none() {
            // A filter hides the process.
            self.processes.filter.reset();
            self.processes.view = View {
                grouping: Grouping::Flat,
                host: self.processes.view.host.filter(|host| *host == id.host),
                ..View::default()
            };
            self.processes.refresh(self.data.shown());
        }
        if let Some(row) = place(self) {
            self.processes.select(row);
        }
        self.open_process_page(id)
    }
}
