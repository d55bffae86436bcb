//! The last line of the screen: the badges, and the keys that matter in this place.

use unicode_width::UnicodeWidthStr;

use super::end_dialog::Scope;
use crate::app::keys::keymap::{BINDINGS, Binding, Intent, KeyContext};
use crate::app::keys::probe_task::ProbeTask;
use crate::app::keys::steering::Steering;
use crate::app::{App, List, Mode};

/// The keys over the process list, the most useful first, each with a word. Where a word is empty,
/// the next key has the same.
const PROCESSES: &[(Intent, &str)] = &[
    (Intent::Help, "help"),
    (Intent::OpenFilter, "filter"),
    (Intent::Suspects, "orphans"),
    (Intent::OpenEndDialog, "end"),
    (Intent::Graph, "graph"),
    (Intent::Detail, "info"),
    (Intent::News, "news"),
    (Intent::SaveScreen, "picture"),
    (Intent::Quit, "quit"),
    (Intent::OtherList, "GPUs"),
    (Intent::Group, "group"),
    (Intent::OpenSortMenu, "sort"),
    (Intent::SettingsPanel, "settings"),
    (Intent::Pause, "pause"),
    (Intent::Job, "job"),
    (Intent::Mine, "mine"),
];

/// The keys over the lists and the graph in a replay.
const REPLAY: &[(Intent, &str)] = &[
    (Intent::Help, "help"),
    (Intent::Steer(Steering::Pause), "pause"),
    (Intent::Steer(Steering::Step(-1)), ""),
    (Intent::Steer(Steering::Step(1)), "step"),
    (Intent::Steer(Steering::NextEvent(-1)), ""),
    (Intent::Steer(Steering::NextEvent(1)), "event"),
    (Intent::Steer(Steering::NextAlert), "alert"),
    (Intent::Steer(Steering::OpenJump), "jump"),
    (Intent::Steer(Steering::Speed(-1)), ""),
    (Intent::Steer(Steering::Speed(1)), "speed"),
    (Intent::Quit, "quit"),
    (Intent::Graph, "graph"),
    (Intent::Detail, "info"),
    (Intent::OpenFilter, "filter"),
    (Intent::News, "news"),
    (Intent::SaveScreen, "picture"),
    (Intent::OtherList, "GPUs"),
];

/// The keys in the fleet view.
const FLEET: &[(Intent, &str)] = &[
    (Intent::Help, "help"),
    (Intent::Open, "open"),
    (Intent::OtherList, "troubles"),
    (Intent::OpenFilter, "filter"),
    (Intent::SortByNeighbour(1), "sort"),
    (Intent::FleetView, "lists"),
    (Intent::News, "news"),
    (Intent::Job, "jobs"),
    (Intent::Quit, "quit"),
    (Intent::NextLayout, "who"),
    (Intent::SaveScreen, "picture"),
    (Intent::Pause, "pause"),
];

/// The keys where no host has a GPU.
const WITHOUT_GPU: &[(Intent, &str)] = &[
    (Intent::Help, "help"),
    (Intent::News, "news"),
    (Intent::SettingsPanel, "settings"),
    (Intent::Quit, "quit"),
];

const GPUS: &[(Intent, &str)] = &[
    (Intent::Help, "help"),
    (Intent::Open, "its processes"),
    (Intent::Detail, "detail"),
    (Intent::Graph, "graph"),
    (Intent::OtherList, "processes"),
    (Intent::Quit, "quit"),
    (Intent::Watch, "watch"),
    (Intent::News, "news"),
    (Intent::SaveScreen, "picture"),
    (Intent::SettingsPanel, "settings"),
    (Intent::Pause, "pause"),
];

const SETTINGS_PANEL: &[(Intent, &str)] = &[
    (Intent::Close, "back"),
    (Intent::Toggle, "show or hide"),
    (Intent::SaveSettings, "write to config.toml"),
    (Intent::Shift(-1), ""),
    (Intent::Shift(1), "move"),
    (Intent::Quit, "quit"),
];

const PAGE: &[(Intent, &str)] = &[
    (Intent::Close, "back"),
    (Intent::Move(-1), ""),
    (Intent::Move(1), "line"),
    (Intent::MovePage(-1), ""),
    (Intent::MovePage(1), "page"),
    (Intent::Quit, "quit"),
    (Intent::SaveScreen, "picture"),
];

/// The keys on the page of a process with a probe.
const PROBE: &[(Intent, &str)] = &[
    (Intent::Close, "back"),
    (Intent::AskProbe(ProbeTask::Peak), "peak"),
    (Intent::AskProbe(ProbeTask::Modules), "modules"),
    (Intent::AskProbe(ProbeTask::Lines), "lines"),
    (Intent::AskProbe(ProbeTask::Holders), "holders"),
    (Intent::AskProbe(ProbeTask::Tensors), "tensors"),
    (Intent::AskProbe(ProbeTask::Mark), "mark"),
    (Intent::AskProbe(ProbeTask::Snapshot), "snapshot"),
    (Intent::Quit, "quit"),
    (Intent::SaveScreen, "picture"),
];

/// The keys while a task of the probe waits for a confirmation.
const PROPOSAL: &[(Intent, &str)] = &[
    (Intent::Open, "start"),
    (Intent::Close, "cancel"),
    (Intent::Quit, "quit"),
];

/// The keys on the page of a job.
const JOB: &[(Intent, &str)] = &[
    (Intent::Close, "back"),
    (Intent::MoveColumn(-1), ""),
    (Intent::MoveColumn(1), "rank"),
    (Intent::OtherList, "next that differs"),
    (Intent::Open, "its process"),
    (Intent::OpenEndDialog, "end"),
    (Intent::Quit, "quit"),
    (Intent::SaveScreen, "picture"),
];

const HELP: &[(Intent, &str)] = &[
    (Intent::Close, "back"),
    (Intent::SearchPage, "search"),
    (Intent::Move(-1), ""),
    (Intent::Move(1), "line"),
    (Intent::MovePage(-1), ""),
    (Intent::MovePage(1), "page"),
    (Intent::Quit, "quit"),
];

const NEWS: &[(Intent, &str)] = &[
    (Intent::Close, "back"),
    (Intent::Open, "open"),
    (Intent::SearchPage, "search"),
    (Intent::Move(-1), ""),
    (Intent::Move(1), "line"),
    (Intent::Quit, "quit"),
];

const GRAPH: &[(Intent, &str)] = &[
    (Intent::Close, "back"),
    (Intent::Back(1), "past"),
    (Intent::Now, "now"),
    (Intent::Zoom(-1), ""),
    (Intent::Zoom(1), "zoom"),
    (Intent::Mark, "mark"),
    (Intent::Move(1), "next"),
    (Intent::OtherList, "GPUs"),
    (Intent::OpenEndDialog, "end"),
    (Intent::Help, "help"),
    (Intent::Quit, "quit"),
    (Intent::SaveScreen, "picture"),
];

const END_DIALOG: &[(Intent, &str)] = &[
    (Intent::Confirm, "send"),
    (Intent::Choose(-1), ""),
    (Intent::Choose(1), "choose"),
    (Intent::Widen, "whole job"),
    (Intent::Close, "close"),
];

/// A part of the footer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FooterPart {
    Badge(String),
    /// A key, its intent and a word for that.
    Key(&'static str, Intent, &'static str),
    /// A hint of `--demo`: its number, and a key with its intent and words for that.
    Hint {
        number: usize,
        key: &'static str,
        intent: Intent,
        words: &'static str,
    },
    /// A notice, in place of the keys.
    Notice(String),
}

impl FooterPart {
    fn width(&self) -> usize {
        match self {
            Self::Badge(words) | Self::Notice(words) => words.width(),
            Self::Key(key, _, "") => key.len(),
            Self::Key(key, _, word) => key.len() + 1 + word.len(),
            Self::Hint {
                number, key, words, ..
            } => number.to_string().len() + 1 + key.len() + 2 + words.len(),
        }
    }
}

impl App {
    /// The parts of the footer, each with its first column, in a line that begins at column `x`.
    /// Where there is no room for all, the earliest badges and the less useful keys are left out;
    /// the key that quits stays. A notice takes the place of the keys; badges leave it half of the
    /// line.
    pub(crate) fn footer(&self, mut x: usize) -> Vec<(usize, FooterPart)> {
        let badges = self.badge_words();
        let is_over_lists = matches!(self.modes.current(), Mode::List);
        let can_leave = is_over_lists || matches!(self.modes.current(), Mode::Fleet);
        let leave = (can_leave && !badges.is_empty())
            .then(|| self.key(Intent::Leave, "leaves"))
            .flatten();
        let notice = self
            .notice
            .text()
            .filter(|_| !self.is_typing())
            .map(|words| FooterPart::Notice(words.to_owned()));
        let (count, width) = (badges.len(), usize::from(self.size.0));
        let mut parts: Vec<FooterPart> = badges.into_iter().map(FooterPart::Badge).collect();
        if let Some(notice) = notice {
            parts.push(notice);
        } else {
            parts.extend(leave);
            if is_over_lists {
                let before: usize = parts.iter().map(|part| part.width() + 2).sum();
                parts.extend(self.fitting_hints(x + before));
            }
            let keys = self.hints().iter();
            parts.extend(keys.filter_map(|(intent, word)| self.key(*intent, word)));
        }
        // The keys that leave, then the badges, the latest first, then the other keys.
        let rank = |place: &usize| match parts[*place] {
            FooterPart::Key(_, Intent::Leave | Intent::Quit, _) | FooterPart::Notice(_) => 0,
            FooterPart::Badge(_) => count - *place,
            FooterPart::Key(..) | FooterPart::Hint { .. } => count + *place,
        };
        let mut fitting: Vec<usize> = (0..parts.len()).collect();
        fitting.sort_by_key(rank);
        let mut end = x;
        fitting.retain(|place| {
            end += match &parts[*place] {
                FooterPart::Notice(words) => words.width().min(width / 2),
                part => part.width(),
            };
            end += 2;
            end <= width + 2
        });
        let mut placed = Vec::new();
        for (_, part) in parts
            .into_iter()
            .enumerate()
            .filter(|(place, _)| fitting.contains(place))
        {
            let is_joined = matches!(part, FooterPart::Key(_, _, ""));
            let width = part.width() + if is_joined { 1 } else { 2 };
            placed.push((x, part));
            x += width;
        }
        placed
    }

    /// The hints of `--demo` that are left, in their order, as many as have room from a column on
    /// beside the keys that help and quit.
    fn fitting_hints(&self, mut end: usize) -> Vec<FooterPart> {
        const HELP_AND_QUIT: usize = "? help  q quit".len();
        let hints = self.demo_hints_left().filter_map(|hint| {
            let FooterPart::Key(key, intent, words) = self.key(hint.intent, hint.words)? else {
                return None;
            };
            Some(FooterPart::Hint {
                number: hint.number,
                key,
                intent,
                words,
            })
        });
        hints
            .take_while(|hint| {
                end += hint.width() + 2;
                end + HELP_AND_QUIT <= usize::from(self.size.0)
            })
            .collect()
    }

    /// The key of an intent in this place, with a word for it; `None` if there is none.
    fn key(&self, intent: Intent, word: &'static str) -> Option<FooterPart> {
        let dialog = self.modes.end_dialog();
        let word = match (intent, dialog) {
            (Intent::Widen, None) => return None,
            (Intent::Widen, Some(dialog)) if !dialog.can_widen() => return None,
            (Intent::Widen, Some(dialog)) if dialog.scope == Scope::Job => "not all of it",
            (Intent::Close, _)
                if matches!(self.modes.current(), Mode::Graph(_)) && self.graph.still.is_some() =>
            {
                "now"
            }
            (Intent::Quit, _) => self.options.quit_word,
            _ => word,
        };
        let context = self.modes.current().key_context();
        let of_replay = matches!(intent, Intent::Steer(_)) && context.has_replay_keys();
        let context = if of_replay {
            KeyContext::Replay
        } else {
            context
        };
        let is_hinted =
            |binding: &&Binding| binding.contexts.contains(&context) && binding.intent == intent;
        let key = BINDINGS.iter().find(is_hinted)?.keys.split(' ').next()?;
        Some(FooterPart::Key(key, intent, word))
    }

    fn hints(&self) -> &'static [(Intent, &'static str)] {
        match self.modes.current() {
            Mode::SettingsPanel(_) => SETTINGS_PANEL,
            Mode::SortMenu(_) => &[
                (Intent::SortByChosen, "sort"),
                (Intent::Invert, "invert"),
                (Intent::Close, "back"),
                (Intent::Quit, "quit"),
            ],
            Mode::List | Mode::Fleet | Mode::Graph(_) if self.replay.is_some() => REPLAY,
            Mode::Fleet => FLEET,
            Mode::List if self.missing_gpus().is_some() => WITHOUT_GPU,
            Mode::List if self.focus == List::Gpus => GPUS,
            Mode::List => PROCESSES,
            Mode::Page(page) if page.is_typing() => {
                &[(Intent::Close, "keep"), (Intent::ClearFilter, "clear")]
            }
            Mode::Filter | Mode::Search => {
                &[(Intent::Close, "keep"), (Intent::ClearFilter, "clear")]
            }
            Mode::Page(page) if page.news().is_some() => NEWS,
            Mode::Page(page) if page.job().is_some() => JOB,
            Mode::Page(page) if page.has_search() => HELP,
            Mode::Page(page) if page.is_proposed() => PROPOSAL,
            Mode::Page(page) if page.has_probe() => PROBE,
            Mode::Page(_) => PAGE,
            Mode::Graph(_) => GRAPH,
            Mode::JumpTime(_) => &[
                (Intent::Steer(Steering::Jump), "jump"),
                (Intent::Close, "stay"),
            ],
            Mode::MarkName(_) => &[(Intent::KeepMarkName, "keep"), (Intent::Close, "no name")],
            Mode::EndOverHosts(dialog) if dialog.is_over() => &[(Intent::Close, "close")],
            Mode::EndDialog(dialog) if dialog.is_over() => &[(Intent::Close, "close")],
            Mode::EndDialog(_) | Mode::EndOverHosts(_) => END_DIALOG,
        }
    }
}
