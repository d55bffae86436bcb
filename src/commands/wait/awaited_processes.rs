//! The processes of the given PIDs, from the replies of the agent that watches them.

use super::WaitFailure;
use super::happening::{Happening, HappeningKind};
use crate::base::text::Text;
use crate::model::HostModel;
use crate::output::{Exit, labels};
use crate::protocol::reply::{Outcome, Reply};
use crate::protocol::snapshot::{GpuUuid, ProcessId};

/// The process that had the PID when the wait began.
#[derive(Debug)]
struct AwaitedProcess {
    id: ProcessId,
    /// The command line where the agent lists the process, else the kernel's name of it; empty
    /// where neither is known.
    command: String,
    /// The GPUs that it was on when it was last seen.
    gpus: Vec<GpuUuid>,
    has_ended: bool,
}

impl AwaitedProcess {
    fn name(&self) -> String {
        match self.command.as_str() {
            "" => self.id.pid.to_string(),
            command => format!("{} ({command})", self.id.pid),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct AwaitedProcesses {
    pids: Vec<u32>,
    /// Whether the first end is enough.
    any: bool,
    /// In the order of the replies, which is that of the PIDs.
    list: Vec<AwaitedProcess>,
}

impl AwaitedProcesses {
    pub(super) fn new(pids: &[u32], any: bool) -> Self {
        let mut pids = pids.to_vec();
        pids.sort_unstable();
        pids.dedup();
        Self {
            pids,
            any,
            list: Vec::new(),
        }
    }

    pub(super) fn pids(&self) -> &[u32] {
        &self.pids
    }

    /// Whether the agent has answered for each PID.
    pub(super) fn are_known(&self) -> bool {
        self.list.len() >= self.pids.len()
    }

    pub(super) fn contains(&self, id: ProcessId) -> bool {
        id.start_ticks.is_some() && self.list.iter().any(|process| process.id == id)
    }

    /// Takes a reply of the agent.
    pub(super) fn receive(&mut self, reply: &Reply) -> Result<(), WaitFailure> {
        let id = reply.process;
        match &reply.outcome {
            Outcome::Watched { name } => self.list.push(AwaitedProcess {
                id,
                command: name.as_ref().map_or_else(String::new, Text::to_string),
                gpus: Vec::new(),
                has_ended: false,
            }),
            Outcome::Ended { .. } => {
                let mut processes = self.list.iter_mut();
                if let Some(process) = processes.find(|process| process.id == id) {
                    process.has_ended = true;
                }
            }
            Outcome::NoProcess => {
                let sentence = format!(
                    "no process has the PID {}: it has ended before, or never ran here",
                    id.pid
                );
                return Err((Exit::Nothing, sentence));
            }
            Outcome::Refused { reason } => {
                return Err((Exit::Error, format!("cannot wait for {}: {reason}", id.pid)));
            }
            _ => {}
        }
        Ok(())
    }

    /// Learns the commands and GPUs of the processes that the snapshot lists.
    pub(super) fn learn(&mut self, model: &HostModel) {
        let Some(snapshot) = model.latest() else {
            return;
        };
        for process in &mut self.list {
            let Some(listed) = snapshot
                .process(process.id)
                .filter(|_| snapshot.lives(process.id))
            else {
                continue;
            };
            if let Some(command) = labels::command_line(listed).filter(|line| !line.is_empty()) {
                process.command = command;
            }
            process.gpus = super::gpus_of(model, snapshot, &[process.id]);
        }
    }

    /// Returns the end of all processes, or of the first if that is enough.
    pub(super) fn end(&self) -> Option<Happening> {
        let ended: Vec<&AwaitedProcess> = self
            .list
            .iter()
            .filter(|process| process.has_ended)
            .collect();
        let is_enough = if self.any { 1 } else { self.pids.len().max(1) };
        if ended.len() < is_enough {
            return None;
        }
        let names: Vec<String> = ended.iter().map(|process| process.name()).collect();
        let has = if names.len() == 1 { "has" } else { "have" };
        let sentence = format!("{} {has} ended", names.join(", "));
        let mut gpus: Vec<GpuUuid> = ended
            .iter()
            .flat_map(|process| process.gpus.iter().cloned())
            .collect();
        gpus.sort_unstable();
        gpus.dedup();
        Some(Happening {
            processes: ended.iter().map(|process| process.id).collect(),
            gpus,
            ..Happening::new(HappeningKind::ProcessEnded, sentence)
        })
    }

    /// Returns a clause on the processes that still run; `None` if no PID was given.
    pub(super) fn still_running(&self) -> Option<String> {
        let running = self.list.iter().filter(|process| !process.has_ended);
        let names: Vec<String> = running.map(AwaitedProcess::name).collect();
        let runs = if names.len() == 1 { "runs" } else { "run" };
        (!names.is_empty()).then(|| format!("{} still {runs}", names.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::Moment;

    fn reply(pid: u32, outcome: Outcome) -> Reply {
        let process = ProcessId {
            pid,
            start_ticks: Some(u64::from(pid) + 100),
        };
        Reply { process, outcome }
    }

    fn awaited(any: bool) -> AwaitedProcesses {
        let mut processes = AwaitedProcesses::new(&[7, 8, 7], any);
        assert!(!processes.are_known());
        for pid in [7, 8] {
            let name = Some("python".into());
            let watched = reply(pid, Outcome::Watched { name });
            processes.receive(&watched).expect("it is watched");
        }
        assert!(processes.are_known());
        assert_eq!(processes.end(), None);
        processes
    }

    const ENDED: Outcome = Outcome::Ended { at: Moment(0) };

    #[test]
    fn all_processes_must_end_or_one_if_that_is_enough() {
        let mut all = awaited(false);
        all.receive(&reply(8, ENDED)).expect("it is watched");
        assert_eq!(all.end(), None);
        let running = all.still_running();
        assert_eq!(running.as_deref(), Some("7 (python) still runs"));
        all.receive(&reply(7, ENDED)).expect("it is watched");
        let ended = all.end().expect("both have ended");
        assert_eq!(ended.sentence, "7 (python), 8 (python) have ended");
        assert_eq!(ended.processes.len(), 2);
        let mut any = awaited(true);
        any.receive(&reply(8, ENDED)).expect("it is watched");
        let ended = any.end().expect("one has ended");
        assert_eq!(ended.sentence, "8 (python) has ended");
        assert_eq!(ended.kind.exit(), Exit::Success);
    }

    #[test]
    fn the_end_of_another_process_with_the_same_pid_does_not_count() {
        let mut processes = awaited(true);
        let mut other = reply(8, ENDED);
        other.process.start_ticks = Some(1);
        processes.receive(&other).expect("it is a reply");
        assert_eq!(processes.end(), None);
    }

    #[test]
    fn a_process_that_is_not_there_or_cannot_be_watched_ends_the_wait() {
        let mut processes = AwaitedProcesses::new(&[7], false);
        let (exit, sentence) = processes
            .receive(&reply(7, Outcome::NoProcess))
            .expect_err("it is not there");
        assert_eq!(exit, Exit::Nothing);
        assert!(sentence.contains("no process has the PID 7"), "{sentence}");
        let reason = "7 is a thread".into();
        let (exit, sentence) = processes
            .receive(&reply(7, Outcome::Refused { reason }))
            .expect_err("it is refused");
        assert_eq!(exit, Exit::Error);
        assert_eq!(sentence, "cannot wait for 7: 7 is a thread");
    }
}
