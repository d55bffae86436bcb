//! The way to the page of a job, and the keys there.

use super::mode::Mode;
use crate::app::App;
use crate::app::event::Effect;
use crate::app::page::{JobTopic, PageTopic};
use crate::model::{FleetJob, GpuOrProcess, HostProcess};

impl App {
    /// Opens the page of a job.
    pub(in crate::app) fn open_job(&mut self, job: FleetJob) {
        self.open_page(PageTopic::Job(Box::new(JobTopic::new(job))));
        self.refresh_job_page();
    }

    /// Opens the page of the job of the process under the cursor, or of the open page.
    pub(in crate::app) fn open_job_of_process(&mut self) {
        if self.modes.page().is_some_and(|page| page.job().is_some()) {
            return;
        }
        let subject = self.subject();
        let process = subject.and_then(|subject| match subject.subject {
            GpuOrProcess::Process(process) => Some(HostProcess {
                host: subject.host,
                process,
            }),
            GpuOrProcess::Gpu(_) => None,
        });
        let Some(process) = process.or_else(|| self.process_under_cursor()) else {
            self.notice
                .set("there is no process under the cursor: J shows the job of a process");
            return;
        };
        match self.fleet().job_of(process).cloned() {
            Some(job) => self.open_job(job),
            None => self.notice.set(format!(
                "{} has no ranks: its environment names no job of Slurm, torchrun, MPI or Ray",
                process.process.pid
            )),
        }
    }

    /// Gives the open page of a job the job as it is now.
    pub(in crate::app) fn refresh_job_page(&mut self) {
        let Some(topic) = self.modes.page().and_then(|page| page.job()) else {
            return;
        };
        let Some(job) = topic.current(self.fleet()) else {
            return;
        };
        let size = self.size_of_job(job);
        let hosts = job.hosts().into_iter();
        let answering = hosts.filter(|host| self.trouble(*host).is_none()).collect();
        let fleet = self.data.shown();
        if let Some(topic) = self.modes.page_mut().and_then(|page| page.job_mut()) {
            topic.update(fleet, size, answering);
        }
    }

    /// Moves the cursor on the page of a job by this many ranks.
    pub(in crate::app) fn step_rank(&mut self, by: isize) {
        if let Some(topic) = self.modes.page_mut().and_then(|page| page.job_mut()) {
            topic.step_rank(by);
        }
    }

    /// Moves the cursor on the page of a job to the next rank that differs. Returns whether such a
    /// page, or another one, is open.
    pub(in crate::app) fn choose_next_difference(&mut self) -> bool {
        if let Some(topic) = self.modes.page_mut().and_then(|page| page.job_mut()) {
            topic.choose_next_difference();
        }
        matches!(self.modes.current(), Mode::Page(_))
    }

    /// Opens the page of the process of the chosen rank over the page of the job.
    pub(in crate::app) fn open_rank(&mut self) -> Option<Effect> {
        let topic = self.modes.page()?.job()?;
        let rank = topic.chosen_rank()?;
        match topic.chosen_process() {
            Some(process) => self.open_process_page(process),
            None => {
                self.notice.set(format!(
                    "rank {rank} was not seen: it has no process to show"
                ));
                None
            }
        }
    }
}
