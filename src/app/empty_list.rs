//! Sentences for a process list that is empty, and for a GPU that nobody uses.

use super::App;
use super::gpu_list::{GpuRow, gpu_rows};
use super::labels::word;
use super::{rows, unknown_processes};
use crate::base::units::Elapsed;
use crate::model::{HostGpu, Verdict};
use crate::protocol::snapshot::{Missing, State};

impl App {
    /// Says why the process list is empty.
    pub(crate) fn why_empty(&self) -> String {
        let view = &self.processes.view;
        let is_of_gpu_that_fails =
            || gpu_rows(self.fleet()).any(|row| row.gpu.trouble.is_some() || !row.gpu.failures.is_empty());
        match &view.gpu {
            _ if !self.processes.filter.value().is_empty() => {
                "no process matches the filter (Esc clears it)".to_owned()
            }
            _ if view.mine && rows::is_only_others(self.fleet()) => {
                "no process of yours uses a GPU (u shows those of others)".to_owned()
            }
            _ if view.suspects
                && let Some(hidden) = self.hidden_suspects() =>
            {
                hidden
            }
            _ if let Some(unknown) = self.unknown_processes() => unknown,
            _ if is_of_gpu_that_fails() => {
                "no process is listed; the processes of a GPU that fails are not known".to_owned()
            }
            _ if view.suspects => "no process holds memory that it should not (o shows all)".to_owned(),
            Some(gpu) => {
                let label = self.shown_gpu_label().unwrap_or_default();
                let last = self.last_user(gpu).map_or_else(String::new, |last| format!("; last: {last}"));
                format!("GPU {label} is empty{last}; g shows its graph, Esc all processes")
            }
            None => "no process uses a GPU".to_owned(),
        }
    }

    /// Says why the processes on the GPU that the list is about, or on some of all GPUs, are not known; `None` if all are.
    fn unknown_processes(&self) -> Option<String> {
        let is_shown = |row: &GpuRow<'_>| self.processes.view.gpu.as_ref().is_none_or(|gpu| *gpu == row.id());
        unknown_processes::sentences(gpu_rows(self.fleet()).filter(is_shown).map(|row| row.gpu)).into_iter().next()
    }

    /// Says that the list hides all suspects, and how many there are; `None` if there are none.
    fn hidden_suspects(&self) -> Option<String> {
        let view = &self.processes.view;
        let summaries: Vec<String> =
            self.fleet().hosts().filter_map(|(_, model)| Verdict::summary(model.verdicts())).collect();
        let of_whom = if view.mine { " of yours" } else { "" };
        let place = self.shown_gpu_label().map_or_else(String::new, |gpu| format!(" on GPU {gpu}"));
        let hidden = format!("no orphan{of_whom}{place}; elsewhere {} (Esc shows more)", summaries.join(", "));
        (!summaries.is_empty()).then_some(hidden)
    }

    /// The process that left a GPU last, as in `2885 train.py (alice), held 50.6 GiB, ended 12m ago`; `None` when gputop saw
    /// none, or forgot it.
    pub(crate) fn last_user(&self, gpu: &HostGpu) -> Option<String> {
        let model = self.fleet().host(gpu.host)?;
        let known = model.history().gpu_processes(&gpu.gpu).into_iter();
        let (id, process, memory) = known.max_by_key(|(_, process, memory)| (process.gone, memory.end()))?;
        let user = process.user().map_or_else(|_| String::new(), |user| format!(" ({user})"));
        let who = format!("{}{user}", word(process.name()));
        let held = memory.latest().map_or_else(String::new, |bytes| format!(", held {bytes}"));
        let state = model.latest().and_then(|snapshot| Some(snapshot.process(id)?.load.state));
        let has_ended = matches!(state, None | Some(Ok(State::Zombie | State::Dead) | Err(Missing::Gone)));
        let ended = if has_ended { "ended" } else { "left" };
        let ago = Elapsed(model.now().since(process.gone.unwrap_or(memory.end())));
        Some(format!("{} {who}{held}, {ended} {ago} ago", id.pid))
    }
}
