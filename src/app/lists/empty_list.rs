//! Sentences for a process list that is empty, and for a GPU that nobody uses.

use super::gpu_list::GpuRow;
use super::{rows, unknown_processes};
use crate::app::App;
use crate::base::units::Elapsed;
use crate::model::{HostGpu, Verdict};
use crate::output::labels::{gpu_label, word};
use crate::protocol::snapshot::{Gpu, Missing, State};

impl App {
    /// Says why the process list is empty.
    pub(crate) fn why_empty(&self) -> String {
        let view = &self.processes.view;
        let is_of_gpu_that_fails = || {
            self.gpus
                .rows(self.fleet())
                .any(|row| row.gpu.trouble.is_some() || !row.gpu.failures.is_empty())
        };
        match &view.gpu {
            _ if !self.processes.filter.value().is_empty() => {
                "no process matches the filter (Esc clears it)".to_owned()
            }
            _ if view.only_mine && rows::is_only_others(self.fleet()) => {
                "no process of yours uses a GPU (u shows those of others)".to_owned()
            }
            _ if view.only_suspects
                && let Some(hidden) = self.hidden_suspects() =>
            {
                hidden
            }
            _ if let Some(unknown) = self.why_unknown() => unknown,
            _ if is_of_gpu_that_fails() => {
                "no process is listed; the processes of a GPU that fails are not known".to_owned()
            }
            _ if view.only_suspects => {
                "no process holds memory that it should not (o shows all)".to_owned()
            }
            Some(gpu) => {
                let label = self.shown_gpu_label().unwrap_or_default();
                let last = self
                    .last_user(gpu)
                    .map_or_else(String::new, |last| format!("; last: {last}"));
                format!("GPU {label} is empty{last}; g shows its graph, Esc all processes")
            }
            None => "no process uses a GPU".to_owned(),
        }
    }

    /// The GPUs that the list is about.
    fn shown_gpus(&self) -> impl Iterator<Item = GpuRow<'_>> {
        let is_shown = |row: &GpuRow<'_>| {
            self.processes
                .view
                .gpu
                .as_ref()
                .is_none_or(|gpu| *gpu == row.id())
        };
        self.gpus.rows(self.fleet()).filter(is_shown)
    }

    /// Says for each reason on which of the GPUs that fulfil a condition the processes are not
    /// known.
    fn unknown_processes(&self, is_meant: impl Fn(&Gpu) -> bool) -> Vec<String> {
        let fleet = self.fleet();
        let of_host = |(host, _)| {
            let of_host = self
                .shown_gpus()
                .filter(|row| row.host == host && is_meant(row.gpu));
            let sentences = unknown_processes::sentences(of_host.map(|row| row.gpu));
            let name = if fleet.has_many() {
                format!("{}: ", fleet.name(host))
            } else {
                String::new()
            };
            sentences
                .into_iter()
                .map(move |sentence| format!("{name}{sentence}"))
        };
        fleet.hosts().flat_map(of_host).collect()
    }

    /// Says why the empty list may lack processes; `None` if all are known. Of several reasons, it
    /// names the GPUs only: the reasons are below.
    fn why_unknown(&self) -> Option<String> {
        let sentences = self.unknown_processes(|_| true);
        if sentences.len() < 2 {
            return sentences.into_iter().next();
        }
        let fleet = self.fleet();
        let of_host = |(host, _)| {
            let unknown = self
                .shown_gpus()
                .filter(|row| row.host == host && row.gpu.missing.processes.is_some());
            let labels: Vec<String> = unknown.map(|row| gpu_label(row.gpu)).collect();
            let on_host = if fleet.has_many() {
                format!(" of {}", fleet.name(host))
            } else {
                String::new()
            };
            (!labels.is_empty()).then(|| format!("GPU {}{on_host}", labels.join(", ")))
        };
        let places: Vec<String> = fleet.hosts().filter_map(of_host).collect();
        Some(format!("processes on {} are not known", places.join(", ")))
    }

    /// The sentences below the list on GPUs with unknown processes, where the list does not say it
    /// in place of its rows. The sentence on a GPU in trouble says enough.
    pub(crate) fn notes_on_unknown_processes(&self) -> Vec<String> {
        let is_said = self.processes.rows.is_empty() && self.unknown_processes(|_| true).len() == 1;
        if is_said {
            Vec::new()
        } else {
            self.unknown_processes(|gpu| gpu.trouble.is_none())
        }
    }

    /// Says that the list hides all suspects, and how many there are; `None` if there are none.
    fn hidden_suspects(&self) -> Option<String> {
        let view = &self.processes.view;
        let summaries: Vec<String> = self
            .fleet()
            .hosts()
            .filter_map(|(_, model)| Verdict::summary(model.verdicts()))
            .collect();
        let of_whom = if view.only_mine { " of yours" } else { "" };
        let place = self
            .shown_gpu_label()
            .map_or_else(String::new, |gpu| format!(" on GPU {gpu}"));
        let hidden = format!(
            "no orphan{of_whom}{place}; elsewhere {} (Esc shows more)",
            summaries.join(", ")
        );
        (!summaries.is_empty()).then_some(hidden)
    }

    /// The process that left a GPU last, as in `2885 train.py (alice), held 50.6 GiB, ended 12m
    /// ago`; `None` when gputop saw none, or forgot it.
    pub(crate) fn last_user(&self, gpu: &HostGpu) -> Option<String> {
        let model = self.fleet().host(gpu.host)?;
        let known = model.history().gpu_processes(&gpu.gpu).into_iter();
        let (id, process, memory) =
            known.max_by_key(|(_, process, memory)| (process.gone, memory.end()))?;
        let user = process
            .user()
            .map_or_else(|_| String::new(), |user| format!(" ({user})"));
        let who = format!("{}{user}", word(process.name()));
        let held = memory
            .latest()
            .map_or_else(String::new, |bytes| format!(", held {bytes}"));
        let state = model
            .latest()
            .and_then(|snapshot| Some(snapshot.process(id)?.load.state));
        let has_ended = matches!(
            state,
            None | Some(Ok(State::Zombie | State::Dead) | Err(Missing::Gone))
        );
        let ended = if has_ended { "ended" } else { "left" };
        let ago = Elapsed(model.now().since(process.gone.unwrap_or(memory.end())));
        Some(format!("{} {who}{held}, {ended} {ago} ago", id.pid))
    }
}
