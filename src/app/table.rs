//! What a person does with the lists as a whole: sorts them, stops them, takes a line of them elsewhere.

use std::time::Duration;

use super::keymap::Intent;
use super::labels;
use super::page::{Page, Topic};
use super::rows::{Grouping, Subject};
use super::{App, List};
use crate::app::event::Effect;
use crate::model::HostModel;
use crate::protocol::snapshot::{GpuUuid, ProcessId};

/// A command is scrolled by so many columns at a time, and so far at most.
const SCROLL: isize = 16;
const FARTHEST: usize = 4096;

impl App {
    /// The model that lines go to: what is on the screen, or what goes on behind it.
    pub(super) fn newest(&mut self) -> &mut HostModel {
        self.behind.as_mut().map_or(&mut self.model, |(model, _)| model)
    }

    /// Time goes by, but not on a screen that is paused.
    pub(super) fn pass(&mut self, elapsed: Duration) {
        self.newest().pass(elapsed);
        if let Some((_, paused)) = &mut self.behind {
            *paused += elapsed;
        }
    }

    /// For how long the agent has said nothing; absent while it speaks.
    pub fn silence(&self) -> Option<Duration> {
        self.behind.as_ref().map_or(&self.model, |(model, _)| model).silence()
    }

    /// For how long the screen has been paused; absent while it is not.
    pub fn paused(&self) -> Option<Duration> {
        self.behind.as_ref().map(|(_, paused)| *paused)
    }

    /// Shows what goes on again.
    pub(super) fn resume(&mut self) {
        if let Some((model, _)) = self.behind.take() {
            self.model = *model;
        }
    }

    /// Changes what the lists show.
    pub(super) fn change_view(&mut self, intent: Intent) {
        match intent {
            Intent::Mine => self.view.mine = !self.view.mine,
            Intent::HostLine => {
                self.host_line = !self.host_line;
                if !self.host_line
                    && self.model.latest().is_some_and(|it| it.gpus.iter().any(|gpu| gpu.facts.simulated))
                {
                    self.say("a simulated machine always says in its first line that it is one");
                }
            }
            Intent::Pause if self.behind.is_some() => self.resume(),
            Intent::Pause => self.behind = Some((Box::new(self.model.clone()), Duration::ZERO)),
            Intent::ScrollCommand(by) => {
                self.command_at = self.command_at.saturating_add_signed(by * SCROLL).min(FARTHEST);
            }
            _ => {}
        }
    }

    /// Groups the list, and says how: where nobody has related processes, one way looks like another.
    pub(super) fn group(&mut self, grouping: Grouping) {
        let before = std::mem::take(&mut self.rows);
        self.view.grouping = grouping;
        self.arrange();
        let words = match grouping {
            Grouping::Flat => "each process for itself",
            Grouping::Tree => "processes below their parents",
            Grouping::Job => "processes by job",
            Grouping::User => "processes by user",
        };
        self.say(if self.rows == before { format!("{words}, which looks the same here") } else { words.to_owned() });
    }

    /// Sorts by the column beside, of those that are shown and can be sorted by.
    pub(super) fn sort_by_neighbour(&mut self, by: isize) {
        let shown = self.columns();
        let columns: Vec<_> = shown.into_iter().filter(|it| it.sorts()).collect();
        let Some(last) = columns.len().checked_sub(1) else { return };
        let next = match columns.iter().position(|it| *it == self.sort.column) {
            Some(at) => (at.cast_signed() + by).rem_euclid(columns.len().cast_signed()).cast_unsigned(),
            None if by < 0 => last,
            None => 0,
        };
        self.sort = self.sort.first_by(columns[next]);
    }

    /// Asks the terminal to take what is under the cursor into its clipboard.
    pub(super) fn copy(&mut self, intent: Intent) -> Option<Effect> {
        let Some((text, what)) = self.to_copy(intent) else {
            self.say("there is nothing here to copy");
            return None;
        };
        self.say(format!("copied {what}, if the terminal lets programs do that (OSC 52)"));
        Some(Effect::Copy(text))
    }

    fn to_copy(&self, intent: Intent) -> Option<(String, String)> {
        let snapshot = self.model.latest()?;
        let on_page = match &self.page {
            Some(Page { topic: Topic::Process(process, _), .. }) => Some(process.id),
            Some(Page { topic: Topic::Gpu(GpuUuid(uuid), _), .. }) => {
                return Some((uuid.to_string(), uuid.to_string()));
            }
            _ => None,
        };
        if on_page.is_none() && self.focus == List::Gpus {
            let uuid = snapshot.gpus.get(self.gpu_at)?.uuid.to_string();
            return Some((uuid.clone(), uuid));
        }
        let id = on_page.or_else(|| self.under_cursor());
        if intent == Intent::CopyCommand {
            let process = snapshot.process(id?)?;
            let line = match &process.facts.argv {
                Ok(argv) if !argv.is_empty() => argv.line().clone(),
                _ => labels::command(process).ok()?,
            };
            return Some((line, format!("the command of {}", process.id.pid)));
        }
        let ids: Vec<ProcessId> = match (on_page, self.rows.get(self.cursor_at).map(|it| &it.subject)) {
            (None, _) if !self.tagged.is_empty() => self.tagged.clone(),
            (None, Some(Subject::Group(group))) => group.members.clone(),
            _ => vec![id?],
        };
        let pids = ids.iter().map(|it| it.pid.to_string()).collect::<Vec<_>>().join(" ");
        let what = if ids.len() == 1 { pids.clone() } else { format!("{} PIDs", ids.len()) };
        Some((pids, what))
    }
}
