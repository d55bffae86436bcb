//! Opens the dialogs that end processes, and confirms them: for the process under the cursor, for the
//! tagged processes, and for the job of a page, on one host or on several.

use std::collections::BTreeMap;
use std::time::Duration;

use super::end_dialog::{self, EndDialog};
use super::end_over_hosts::EndOverHosts;
use super::mode::Mode;
use crate::app::event::Effect;
use crate::app::lists::rows::RowSubject;
use crate::app::page::PageTopic;
use crate::app::{App, List, commands};
use crate::model::{FleetJob, GpuOrProcess, HostProcess, HostSubject};
use crate::protocol::command::Command;
use crate::protocol::host_key::HostKey;
use crate::protocol::slurm_job::{SlurmCancel, SlurmCancelAnswer};
use crate::protocol::snapshot::ProcessId;

/// The processes of each host that a dialog ends, those that started the others first, and how many
/// these are.
type Parts = BTreeMap<HostKey, (Vec<ProcessId>, usize)>;

impl App {
    pub(super) fn open_end_dialog(&mut self) -> Option<Effect> {
        if self.options.readonly {
            self.notice
                .set("gputop was started with --readonly: it signals nobody");
            return None;
        }
        // A signal is sent to what is there now, so the screen shows that.
        if self.data.paused().is_some() {
            self.data.resume();
            self.refresh();
        }
        if matches!(self.modes.current(), Mode::List)
            && self.processes.tagged.is_empty()
            && self.focus == List::Gpus
        {
            self.notice
                .set("only processes are ended: Tab goes to them");
            return None;
        }
        if let Some(job) = self.job_to_end() {
            return self.open_end_of_job(&job);
        }
        let mut chosen = self.processes_to_end();
        chosen.retain(|process| self.fleet().process(*process).is_some());
        let Some(first) = chosen.first().copied() else {
            let row = self
                .processes
                .selected_row()
                .filter(|_| matches!(self.modes.current(), Mode::List));
            if matches!(
                row.map(|row| &row.subject),
                Some(RowSubject::Unaccounted(_))
            ) {
                self.show_possible_holders();
                return None;
            }
            self.notice.set("there is no process under the cursor");
            return None;
        };
        let host = first.host;
        if chosen.iter().any(|process| process.host != host) {
            return self.open_end_of_tagged(&chosen);
        }
        if self.lost.contains_key(&host) {
            self.notice
                .set("there is no agent to signal through: press Ctrl-R to start one");
            return None;
        }
        let model = self.fleet().host(host)?;
        let chosen = chosen.into_iter().map(|process| process.process).collect();
        let job = end_dialog::job(model, first.process);
        let (dialog, mut asked) = EndDialog::open(host, chosen, &job, model, model.latest()?);
        self.modes.open(Mode::EndDialog(Box::new(dialog)));
        // A scan finds members of the job that the agent has not seen yet.
        asked.push(Command::Scan);
        commands(host, asked)
    }

    /// The job of the page that is open, with all of its hosts; `None` on another page.
    fn job_to_end(&self) -> Option<FleetJob> {
        let Mode::Page(page) = self.modes.current() else {
            return None;
        };
        page.job()?.current(self.fleet()).cloned()
    }

    fn open_end_of_job(&mut self, job: &FleetJob) -> Option<Effect> {
        let mut parts = Parts::new();
        for part in &job.parts {
            let (processes, roots) = parts.entry(part.host).or_default();
            // The roots of all runs of this host come first.
            for root in &part.roots {
                processes.insert(*roots, *root);
                *roots += 1;
            }
            let others = part.members.iter().filter(|id| !part.roots.contains(id));
            processes.extend(others);
        }
        let hosts: Vec<String> = parts
            .keys()
            .map(|host| self.fleet().name(*host).to_owned())
            .collect();
        self.end_dialogs += 1;
        let dialog = self.end_dialogs;
        let slurm = job.key.mark.slurm_id();
        let slurm = slurm.map(|job| SlurmCancel { job, hosts, dialog });
        let effect = self.open_end_over_hosts(format!("the job {}", job.title()), parts, slurm);
        if let Some(dialog) = self.modes.end_over_hosts_mut() {
            dialog.unseen = job.unseen();
        }
        effect
    }

    fn open_end_of_tagged(&mut self, tagged: &[HostProcess]) -> Option<Effect> {
        let mut parts = Parts::new();
        for tagged in tagged {
            let (processes, roots) = parts.entry(tagged.host).or_default();
            processes.push(tagged.process);
            // Nobody knows who started whom.
            *roots += 1;
        }
        self.open_end_over_hosts("the tagged processes".to_owned(), parts, None)
    }

    fn open_end_over_hosts(
        &mut self,
        subject: String,
        parts: Parts,
        slurm: Option<SlurmCancel>,
    ) -> Option<Effect> {
        let (mut dialogs, mut asked) = (Vec::new(), Vec::new());
        for (host, (processes, roots)) in parts {
            let model = self.fleet().host(host)?;
            let (mut dialog, holds) =
                EndDialog::open_part(host, processes, roots, model, model.latest()?);
            if self.trouble(host).is_some() || self.lost.contains_key(&host) {
                dialog.give_up("does not answer: nothing is sent to it, and nothing is promised");
            } else {
                asked.extend(holds.into_iter().map(|hold| (host, hold)));
            }
            dialogs.push(dialog);
        }
        let dialog = EndOverHosts::new(subject, dialogs, slurm.clone());
        self.modes.open(Mode::EndOverHosts(Box::new(dialog)));
        let hold = Effect::Commands(asked);
        Some(match slurm {
            Some(slurm) => Effect::AskToCancel(slurm, Box::new(hold)),
            None => hold,
        })
    }

    /// Returns the commands of the dialog that are due by now, for each of its hosts.
    pub(in crate::app) fn due_commands(&mut self, elapsed: Duration) -> Option<Effect> {
        self.note_silent_hosts(elapsed);
        let hosts: Vec<HostKey> = match self.modes.current() {
            Mode::EndDialog(dialog) => vec![dialog.host],
            Mode::EndOverHosts(dialog) => dialog.parts().iter().map(|part| part.host).collect(),
            _ => return None,
        };
        let mut due = Vec::new();
        for host in hosts {
            let now = self.fleet().host(host)?.now();
            let commands = self.modes.end_on_host_mut(host)?.due_commands(now);
            due.extend(commands.into_iter().map(|command| (host, command)));
        }
        (!due.is_empty()).then_some(Effect::Commands(due))
    }

    /// Gives an answer of Slurm to the dialog that asked. If that is closed, says how `scancel` went.
    pub(in crate::app) fn take_slurm_cancel(&mut self, answer: &SlurmCancelAnswer) {
        let dialog = self.modes.end_over_hosts_mut();
        if dialog.is_some_and(|dialog| dialog.take_cancel(answer)) || !answer.has_run {
            return;
        }
        let job = &answer.question.job;
        self.notice.set(match &answer.result {
            Ok(()) => format!("scancel {job} has ended without an error"),
            Err(why) => format!("scancel {job}: {why}"),
        });
    }

    /// Tells the dialog over several hosts which of them do not answer now, and how much time has
    /// passed.
    fn note_silent_hosts(&mut self, elapsed: Duration) {
        let Some(dialog) = self.modes.end_over_hosts() else {
            return;
        };
        let hosts = dialog.parts().iter().map(|part| part.host);
        let silent = hosts.filter(|host| self.trouble(*host).is_some()).collect();
        if let Some(dialog) = self.modes.end_over_hosts_mut() {
            dialog.advance(silent, elapsed);
        }
    }

    pub(super) fn widen_end_dialog(&mut self) -> Option<Effect> {
        let dialog = self.modes.end_dialog_mut()?;
        let snapshot = self.data.shown().host(dialog.host)?.latest()?;
        commands(dialog.host, dialog.toggle_whole_job(snapshot))
    }

    /// The processes that the end-process dialog opens on. Over the lists: the tagged ones, or else
    /// the one under the cursor. On a page or graph: its process.
    fn processes_to_end(&self) -> Vec<HostProcess> {
        match self.modes.current() {
            Mode::List if !self.processes.tagged.is_empty() => self.processes.tagged.clone(),
            Mode::List => self.process_under_cursor().into_iter().collect(),
            Mode::Graph(HostSubject {
                host,
                subject: GpuOrProcess::Process(process),
            }) => {
                vec![HostProcess {
                    host: *host,
                    process: *process,
                }]
            }
            Mode::Page(page) => match &page.topic {
                PageTopic::Process(topic) => vec![topic.id()],
                _ => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    /// Records that the end-process dialog, as it is now, was on the screen for long enough to be
    /// read. Enter sends nothing before: it was typed for what the screen showed until then.
    pub(crate) fn mark_end_as_read(&mut self) {
        if let Some(dialog) = self.modes.end_dialog_mut() {
            dialog.mark_as_read();
        } else if let Some(dialog) = self.modes.end_over_hosts_mut() {
            dialog.mark_as_read();
        }
    }

    pub(super) fn confirm(&mut self) -> Option<Effect> {
        self.note_silent_hosts(Duration::ZERO);
        if let Some(dialog) = self.modes.end_over_hosts_mut() {
            if dialog.is_over() {
                return self.close();
            }
            return match dialog.confirm() {
                None => Some(Effect::CancelSlurmJob(dialog.slurm_job()?)),
                Some(commands) => (!commands.is_empty()).then_some(Effect::Commands(commands)),
            };
        }
        let dialog = self.modes.end_dialog_mut()?;
        if dialog.is_over() {
            return self.close();
        }
        commands(dialog.host, dialog.confirm())
    }
}
