//! The table of all keys and their intents. The help page prints the table, the footer a part of
//! it; no other code knows a key.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use strum::VariantArray;

use super::probe_task::ProbeTask;
use super::steering::Steering;
use crate::app::lists::process_columns::ProcessColumn;

/// The part of the screen that keys go to, in the order of the help page; as text, its heading
/// there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, VariantArray, strum::Display)]
pub(crate) enum KeyContext {
    #[strum(serialize = "In the lists")]
    List,
    #[strum(serialize = "In the fleet view: all hosts at a glance")]
    Fleet,
    #[strum(serialize = "In the graph over the whole screen")]
    Graph,
    #[strum(serialize = "While naming a mark")]
    MarkName,
    #[strum(serialize = "While typing a filter or a search")]
    Filter,
    #[strum(serialize = "In the menu of columns to sort by")]
    SortMenu,
    #[strum(serialize = "In the panel of settings")]
    SettingsPanel,
    #[strum(serialize = "In the panel that ends a process")]
    EndDialog,
    #[strum(serialize = "On a page")]
    Page,
    #[strum(serialize = "In a replay")]
    Replay,
    #[strum(serialize = "While typing a time to jump to")]
    JumpTime,
}

/// The user's intent with a key. Of two directions, the negative one is up, left, less, or towards
/// the present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intent {
    /// Move the cursor, or scroll the page, by this many lines.
    Move(isize),
    /// Move the cursor, or scroll the page, by this many screenfuls.
    MovePage(isize),
    /// Move the cursor by this many columns of hosts.
    MoveColumn(isize),
    OtherList,
    /// Show all hosts at a glance, or their lists.
    FleetView,
    /// Sort by the column this many places to the right of the one that decides now.
    SortByNeighbour(isize),
    SortBy(ProcessColumn),
    OpenSortMenu,
    /// Sort by the column under the cursor of the menu.
    SortByChosen,
    Invert,
    Suspects,
    Tree,
    Group,
    Tag,
    TagJob,
    /// Tag all processes that are listed.
    TagAll,
    TagOthers,
    Untag,
    Watch,
    OpenFilter,
    ClearFilter,
    OpenSearch,
    /// Move the cursor to the next process that the search finds, or to the one before.
    NextMatch(isize),
    /// Leave the state of the latest badge.
    Leave,
    SearchPage,
    Graph,
    /// Show more or less time, by this many steps.
    Zoom(isize),
    /// Show only the amounts in use, or those from 0.
    ZoomAmounts,
    /// Show other rows of load below the graph.
    LoadRows,
    /// Move the cursor of the graph by this many steps into the past.
    Back(isize),
    Now,
    Mark,
    /// Type a name for the latest mark.
    NameMark,
    KeepMarkName,
    /// Show the processes of the GPU under the cursor, or the page of the process.
    Open,
    /// Type a digit of the number of the GPU whose processes alone are shown.
    ShowGpu(u32),
    Detail,
    /// Ask the probe in the process of the page.
    AskProbe(ProbeTask),
    Help,
    /// Open the page of the job of a process; in the fleet view, go to the jobs.
    Job,
    /// Open the page of all news.
    News,
    /// Show the next layout: the overview, who, one run, the night.
    NextLayout,
    /// Show the GPUs in the next way: as tiles, their use alone, as rows.
    GpuView,
    OpenEndDialog,
    /// Move the choice of the signal by this many places.
    Choose(isize),
    Widen,
    Confirm,
    Mine,
    HostLine,
    Pause,
    /// Go through a recording.
    Steer(Steering),
    /// Scroll the commands to the right by this many steps.
    ScrollCommand(isize),
    CopyPid,
    CopyCommand,
    SettingsPanel,
    Toggle,
    /// Move the column under the cursor to the right by this many places, or choose another value.
    Shift(isize),
    SaveScreen,
    SaveSettings,
    Close,
    /// Change the time between two readings by this many steps.
    Interval(isize),
    Refresh,
    /// Start or stop a recording of what the viewer receives.
    Record,
    Suspend,
    Quit,
}

/// The groups of the keys in the lists; as text, their headings in the help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, VariantArray, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum KeyGroup {
    Look,
    #[strum(serialize = "end and tag")]
    End,
    #[strum(serialize = "find and group")]
    Find,
    Sort,
    Graph,
    Move,
    #[strum(serialize = "gputop itself")]
    Program,
}

impl Intent {
    pub(crate) fn group(self) -> KeyGroup {
        match self {
            Self::Move(_)
            | Self::MovePage(_)
            | Self::MoveColumn(_)
            | Self::OtherList
            | Self::ScrollCommand(_) => KeyGroup::Move,
            Self::AskProbe(_) | Self::Steer(_) => KeyGroup::Look,
            Self::Open
            | Self::Job
            | Self::News
            | Self::NextLayout
            | Self::FleetView
            | Self::GpuView
            | Self::Detail
            | Self::Watch
            | Self::Pause
            | Self::CopyPid
            | Self::CopyCommand => KeyGroup::Look,
            Self::OpenFilter
            | Self::ClearFilter
            | Self::OpenSearch
            | Self::NextMatch(_)
            | Self::Leave
            | Self::ShowGpu(_)
            | Self::Suspects
            | Self::Tree
            | Self::Group
            | Self::Mine => KeyGroup::Find,
            Self::SortByNeighbour(_)
            | Self::SortBy(_)
            | Self::OpenSortMenu
            | Self::SortByChosen
            | Self::Invert => KeyGroup::Sort,
            Self::Tag
            | Self::TagJob
            | Self::TagAll
            | Self::TagOthers
            | Self::Untag
            | Self::OpenEndDialog
            | Self::Choose(_)
            | Self::Widen
            | Self::Confirm => KeyGroup::End,
            Self::Graph
            | Self::Zoom(_)
            | Self::ZoomAmounts
            | Self::LoadRows
            | Self::Back(_)
            | Self::Now
            | Self::Mark
            | Self::NameMark
            | Self::KeepMarkName => KeyGroup::Graph,
            Self::Help
            | Self::SearchPage
            | Self::HostLine
            | Self::SettingsPanel
            | Self::Toggle
            | Self::Shift(_)
            | Self::SaveScreen
            | Self::SaveSettings
            | Self::Close
            | Self::Interval(_)
            | Self::Refresh
            | Self::Record
            | Self::Suspend
            | Self::Quit => KeyGroup::Program,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Binding {
    /// The contexts in which the keys have this intent.
    pub contexts: &'static [KeyContext],
    /// The names of the keys, separated by spaces.
    pub keys: &'static str,
    pub intent: Intent,
    /// The text of the help page; empty if the row before covers this one.
    pub help: &'static str,
}

const fn row(
    contexts: &'static [KeyContext],
    keys: &'static str,
    intent: Intent,
    help: &'static str,
) -> Binding {
    Binding {
        contexts,
        keys,
        intent,
        help,
    }
}

/// All keys and their intents.
#[rustfmt::skip]
pub(crate) const BINDINGS: &[Binding] = {
    use KeyContext::{
        EndDialog, Filter, Fleet, Graph, JumpTime, List, MarkName, Page, Replay, SettingsPanel, SortMenu,
    };
    &[
        row(&[List, Fleet, SettingsPanel, SortMenu, Page], "Up k", Intent::Move(-1), "up"),
        row(&[List, Fleet, SettingsPanel, SortMenu, Page], "Down j", Intent::Move(1), "down"),
        row(&[List, Fleet, SettingsPanel, Page], "PgUp ^B", Intent::MovePage(-1), "a screen up"),
        row(&[List, Fleet, SettingsPanel], "PgDn ^F", Intent::MovePage(1), "a screen down"),
        row(&[Page], "PgDn ^F Space", Intent::MovePage(1), "a screen down"),
        row(&[List, Fleet], "Home", Intent::Move(isize::MIN), "first line"),
        row(&[List, Fleet], "End G", Intent::Move(isize::MAX), "last line"),
        row(&[SettingsPanel, Page], "Home g", Intent::Move(isize::MIN), "top"),
        row(&[SettingsPanel, Page], "End G", Intent::Move(isize::MAX), "bottom"),
        row(&[List, Fleet], "f", Intent::FleetView,
            "all hosts at a glance, troubles first; again: the lists of all hosts"),
        row(&[Fleet], "Enter i e", Intent::Open,
            "the GPUs and processes of the host; the process or GPU of the trouble; the job"),
        row(&[Fleet], "Left h", Intent::MoveColumn(-1), "a column of hosts to the left"),
        row(&[Fleet], "Right l", Intent::MoveColumn(1), "a column of hosts to the right"),
        row(&[Fleet], "Tab", Intent::OtherList, "to all troubles, to the jobs, and back to the hosts"),
        row(&[Fleet], "J D", Intent::Job, "to the jobs; Enter opens the page of one"),
        row(&[Fleet], "/ \\ F4", Intent::OpenFilter,
            "filter by host, user, job or GPU; user:NAME is exact"),
        row(&[Fleet], "s > F6", Intent::SortByNeighbour(1),
            "sort by name, free GPUs, memory, SM use, power, trouble"),
        row(&[Fleet], "S <", Intent::SortByNeighbour(-1), "sort by the one before"),
        row(&[Fleet], "I r", Intent::Invert, "invert the order"),
        row(&[Fleet], "Esc", Intent::Leave, "back to the hosts; leave the filter or the pause"),
        row(&[List], "Tab", Intent::OtherList, "between GPUs and processes"),
        row(&[List], "Enter", Intent::Open, "the processes of the GPU; the process in detail"),
        row(&[List], "i e", Intent::Detail, "GPU or process in detail"),
        row(&[List, Graph], "J D", Intent::Job,
            "the job of the process over all its hosts: which ranks differ, and a grid of all"),
        row(&[List], "g", Intent::Graph,
            "graph; again: over the whole screen, with marks and events"),
        row(&[List], "[", Intent::Zoom(-1), "graph: less time, down to a minute"),
        row(&[List], "]", Intent::Zoom(1), "graph: more time, up to 7 days"),
        row(&[List], "z", Intent::ZoomAmounts, "graph: only the amounts in use, or from 0"),
        row(&[List], "v", Intent::LoadRows, "graph: SM use; with power and temperature; none"),
        row(
            &[List],
            "Left",
            Intent::Back(1),
            "to the tile on the left; graph: into the past; without one, scrolls the commands back",
        ),
        row(
            &[List],
            "Right",
            Intent::Back(-1),
            "to the tile on the right; graph: towards now; without one, scrolls the commands",
        ),
        row(&[List], "m", Intent::Mark, "mark this moment; m again shows what changed"),
        row(&[List], "'", Intent::NameMark, "name the latest mark"),
        row(&[List], "F9 x Del", Intent::OpenEndDialog, "end process… (asks first)"),
        row(&[List], "/ \\ F4", Intent::OpenFilter,
            "filter by any word of a line; user:NAME and pid:1,2 are exact"),
        row(&[List], "F3", Intent::OpenSearch, "search: the cursor goes to the first match"),
        row(&[List], "n", Intent::NextMatch(1), "next match of the search"),
        row(&[List], "N", Intent::NextMatch(-1), "match before"),
        row(&[List], "o", Intent::Suspects, "only processes that hold memory and should not"),
        row(&[List], "0", Intent::ShowGpu(0), "only the processes of GPU 0, and so on; again: all"),
        row(&[List], "1", Intent::ShowGpu(1), ""),
        row(&[List], "2", Intent::ShowGpu(2), ""),
        row(&[List], "3", Intent::ShowGpu(3), ""),
        row(&[List], "4", Intent::ShowGpu(4), ""),
        row(&[List], "5", Intent::ShowGpu(5), ""),
        row(&[List], "6", Intent::ShowGpu(6), ""),
        row(&[List], "7", Intent::ShowGpu(7), ""),
        row(&[List], "8", Intent::ShowGpu(8), ""),
        row(&[List], "9", Intent::ShowGpu(9), ""),
        row(&[List], "t F5", Intent::Tree, "processes below their parents"),
        row(&[List], "b", Intent::Group, "group by GPU, job, user, tree, not at all"),
        row(&[List], "Space", Intent::Tag, "tag, to end several processes at once"),
        row(&[List], "c", Intent::TagJob, "tag the whole job"),
        row(&[List], "a", Intent::TagAll,
            "tag all that are listed and hold GPU memory: o a F9 ends all orphans"),
        row(&[List], "A", Intent::TagOthers, "tag the others that are listed, without GPU memory"),
        row(&[List], "U", Intent::Untag, "untag all"),
        row(&[List], "w", Intent::Watch, "alert when this process ends, or this GPU is free"),
        row(&[List], "Esc", Intent::Leave,
            "leave the latest badge: filter, group, pause, past, tags"),
        row(&[List], "F6", Intent::OpenSortMenu, "choose the column to sort by"),
        row(&[List], "s >", Intent::SortByNeighbour(1), "sort by the next column"),
        row(&[List], "S <", Intent::SortByNeighbour(-1), "sort by the column before"),
        row(&[List], "I r", Intent::Invert, "invert the order"),
        row(&[List], "M", Intent::SortBy(ProcessColumn::Memory), "sort by GPU memory"),
        row(&[List], "P", Intent::SortBy(ProcessColumn::Sm), "sort by GPU use"),
        row(&[List], "T", Intent::SortBy(ProcessColumn::Elapsed), "sort by time since start"),
        row(&[List], "u", Intent::Mine, "only my own processes"),
        row(&[List], "l", Intent::ScrollCommand(1), "scroll the commands to the right"),
        row(&[List], "h", Intent::ScrollCommand(-1), "scroll them back"),
        row(&[List], "y", Intent::CopyPid, "copy the PID, of all that are tagged"),
        row(&[List], "Y", Intent::CopyCommand, "copy the command"),
        row(&[List, Fleet], "p", Intent::Pause, "pause / resume"),
        row(&[List], "H", Intent::HostLine, "hide or show the line of the host"),
        row(&[List], "F2 C", Intent::SettingsPanel,
            "settings: which columns, their order, colours"),
        row(&[List, Fleet], "^S", Intent::SaveScreen, "save the screen as SVG, and the graph as CSV"),
        row(&[Graph, Page, SettingsPanel, EndDialog, SortMenu], "^S", Intent::SaveScreen, ""),
        row(&[List, Fleet], "W F12", Intent::SaveSettings, "write the settings to config.toml"),
        row(&[List, Fleet], "+ =", Intent::Interval(-1), "read more often"),
        row(&[List, Fleet], "-", Intent::Interval(1), "read less often"),
        row(&[List, Fleet], "^R", Intent::Refresh, "read everything now; a new agent if it is gone"),
        row(&[List, Fleet, Graph], "R", Intent::Record,
            "record all hosts to a file; again: stop recording"),
        row(&[List, Fleet], "E", Intent::News, "the news: what happened, latest first"),
        row(&[List, Fleet, Page], "L", Intent::NextLayout,
            "the overview; who holds what; one run; the night of each GPU"),
        row(&[List], "V", Intent::GpuView, "GPUs as tiles where there is room, as tiles, their use alone, as rows"),
        row(&[List, Fleet], "? F1", Intent::Help, "all keys, and the words on the screen"),
        row(&[List, Fleet], "^Z", Intent::Suspend, "to the shell; `fg` comes back"),
        row(&[SortMenu], "Enter Space", Intent::SortByChosen, "sort by this column"),
        row(&[SortMenu], "I r", Intent::Invert, "invert the order"),
        row(&[SortMenu], "Esc F6", Intent::Close, "back"),
        row(&[List, Fleet, Graph, SettingsPanel, SortMenu, EndDialog, Page, Replay], "q ^C F10", Intent::Quit,
            "quit"),
        row(&[Filter], "Enter", Intent::Close, "keep"),
        row(&[Filter], "Esc", Intent::ClearFilter, "clear"),
        row(&[Filter], "Up", Intent::Move(-1), ""),
        row(&[Filter], "Down", Intent::Move(1), ""),
        row(&[EndDialog], "Up k", Intent::Choose(-1), "choose what is above"),
        row(&[EndDialog], "Down j", Intent::Choose(1), "choose what is below"),
        row(&[EndDialog], "Tab Right Left", Intent::Widen, "the whole job, or what was chosen"),
        row(&[EndDialog], "PgUp", Intent::MovePage(-1), "scroll the processes up"),
        row(&[EndDialog], "PgDn", Intent::MovePage(1), "scroll the processes down"),
        row(&[EndDialog], "Enter", Intent::Confirm, "send it"),
        row(&[EndDialog], "Esc", Intent::Close, "close"),
        row(&[Page], "F9 x Del", Intent::OpenEndDialog, "end process…"),
        row(&[Page], "Enter", Intent::Open,
            "back; in the news, opens the process or GPU of the line; of a job, the process of the rank"),
        row(&[Page], "Esc ? F1", Intent::Close, "back"),
        row(&[Page], "J D", Intent::Job, "of a process: its job over all hosts"),
        row(&[Page], "Left", Intent::MoveColumn(-1), "of a job: the rank before"),
        row(&[Page], "Right", Intent::MoveColumn(1), "of a job: the next rank"),
        row(&[Page], "Tab", Intent::OtherList, "of a job: the next rank that differs"),
        row(&[Page], "/", Intent::SearchPage,
            "in the help and the news: show only the lines with these words"),
        row(&[Page], "y", Intent::CopyPid, "copy the PID, or the GPU's UUID"),
        row(&[Page], "Y", Intent::CopyCommand, "copy the command"),
        row(&[Page], "p", Intent::AskProbe(ProbeTask::Peak),
            "under `gputop run`: what the peak of a step is made of"),
        row(&[Page], "b", Intent::AskProbe(ProbeTask::Modules),
            "the memory of a step by module (shows the cost first)"),
        row(
            &[Page],
            "r",
            Intent::AskProbe(ProbeTask::Lines),
            "which lines allocate: records 3 steps (shows the cost first)",
        ),
        row(&[Page], "h", Intent::AskProbe(ProbeTask::Holders), "which variables hold what leaks"),
        row(&[Page], "t", Intent::AskProbe(ProbeTask::Tensors), "read all tensors now"),
        row(&[Page], "m", Intent::AskProbe(ProbeTask::Mark),
            "count the changes of tensors from now on"),
        row(&[Page], "u", Intent::AskProbe(ProbeTask::Unmark),
            "count them from the reading before again"),
        row(&[Page], "s", Intent::AskProbe(ProbeTask::Snapshot),
            "write a snapshot for PyTorch's memory_viz"),
        row(&[Graph], "Left h", Intent::Back(1), "into the past"),
        row(&[Graph], "Right l", Intent::Back(-1), "towards now"),
        row(&[Graph], "PgUp ^B H", Intent::Back(30), "half a graph into the past"),
        row(&[Graph], "PgDn ^F L", Intent::Back(-30), "half a graph towards now"),
        row(&[Graph], "End G n", Intent::Now, "now"),
        row(&[Graph], "[", Intent::Zoom(-1), "less time, down to a minute"),
        row(&[Graph], "]", Intent::Zoom(1), "more time, up to 7 days"),
        row(&[Graph], "z", Intent::ZoomAmounts, "only the amounts in use, or from 0"),
        row(&[Graph], "v", Intent::LoadRows, "SM use; with power and temperature; none"),
        row(&[Graph], "m", Intent::Mark, "mark this moment; m again shows what changed"),
        row(&[Graph], "'", Intent::NameMark, "name the latest mark"),
        row(&[Graph], "Up k", Intent::Move(-1), "the process or GPU above"),
        row(&[Graph], "Down j", Intent::Move(1), "the process or GPU below"),
        row(&[Graph], "Enter i e", Intent::Detail, "in detail"),
        row(&[Graph], "Tab", Intent::OtherList, "between GPUs and processes"),
        row(&[Graph], "F9 x Del", Intent::OpenEndDialog, "end process…"),
        row(&[Graph], "? F1", Intent::Help, "all keys"),
        row(&[Graph], "g", Intent::Graph, "no graph"),
        row(&[Graph], "Esc", Intent::Close, "to now, then back to the lists"),
        row(&[SettingsPanel], "Space Enter", Intent::Toggle, "show or hide; the next of several"),
        row(&[SettingsPanel], "Left h", Intent::Shift(-1), "a column to the left"),
        row(&[SettingsPanel], "Right l", Intent::Shift(1), "a column to the right"),
        row(&[SettingsPanel], "W F12", Intent::SaveSettings, "write the settings to config.toml"),
        row(&[SettingsPanel], "Esc F2", Intent::Close, "back"),
        row(&[MarkName], "Enter", Intent::KeepMarkName, "keep the name"),
        row(&[MarkName], "Esc", Intent::Close, "no name"),
        row(&[Replay], "Space p", Intent::Steer(Steering::Pause), "pause / play"),
        row(&[Replay], ".", Intent::Steer(Steering::Step(1)), "the next pass, then pause"),
        row(&[Replay], ",", Intent::Steer(Steering::Step(-1)), "the pass before, then pause"),
        row(&[Replay], "+ =", Intent::Steer(Steering::Speed(1)),
            "play faster, up to ×1000 and as fast as possible"),
        row(&[Replay], "-", Intent::Steer(Steering::Speed(-1)), "play slower, down to ×0.5"),
        row(&[Replay], ")", Intent::Steer(Steering::JumpBy(1)), "a minute ahead"),
        row(&[Replay], "(", Intent::Steer(Steering::JumpBy(-1)), "a minute back"),
        row(
            &[Replay],
            "}",
            Intent::Steer(Steering::NextEvent(1)),
            "to the next event: an end, a leak, an orphan, an Xid",
        ),
        row(&[Replay], "{", Intent::Steer(Steering::NextEvent(-1)), "to the event before"),
        row(
            &[Replay],
            "!",
            Intent::Steer(Steering::NextAlert),
            "to the next event that is serious: a leak, out of memory",
        ),
        row(&[Replay], "J :", Intent::Steer(Steering::OpenJump),
            "jump to a time: 03:10, 07-14 03:10, -10m, +1h"),
        row(&[JumpTime], "Enter", Intent::Steer(Steering::Jump), "jump"),
        row(&[JumpTime], "Esc", Intent::Close, "stay"),
        row(&[Graph, MarkName, JumpTime, Filter, SettingsPanel, SortMenu, EndDialog, Page], "^Z", Intent::Suspend,
            ""),
        row(&[MarkName, JumpTime, Filter], "^C", Intent::Quit, ""),
    ]
};

impl KeyContext {
    /// Whether the keys of a replay come before those of this context.
    pub(in crate::app) fn has_replay_keys(self) -> bool {
        matches!(self, Self::List | Self::Fleet | Self::Graph | Self::Page)
    }
}

pub(crate) fn intent(context: KeyContext, key: KeyEvent) -> Option<Intent> {
    Some(binding(context, &name(key)?)?.intent)
}

fn binding(context: KeyContext, name: &str) -> Option<&'static Binding> {
    let is_meant = |binding: &&Binding| {
        binding.contexts.contains(&context) && binding.keys.split(' ').any(|key| key == name)
    };
    BINDINGS.iter().find(is_meant)
}

impl Binding {
    /// The names of the keys that have this intent in a context, in a replay or not; empty if
    /// others come before all of them.
    pub(in crate::app) fn keys_in(&self, context: KeyContext, is_replay: bool) -> String {
        let is_other = |name: &&str| {
            let of_replay = binding(KeyContext::Replay, name)
                .filter(|_| is_replay && context.has_replay_keys());
            of_replay.is_some_and(|binding| binding.intent != self.intent)
        };
        self.keys
            .split(' ')
            .filter(|name| !is_other(name))
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// The name of a key as in [`BINDINGS`]; `None` for a combination with a modifier that no binding
/// has.
fn name(key: KeyEvent) -> Option<String> {
    let modifiers =
        key.modifiers & (KeyModifiers::CONTROL | KeyModifiers::ALT | KeyModifiers::SUPER);
    match key.code {
        KeyCode::Char(letter) if modifiers == KeyModifiers::CONTROL => {
            Some(format!("^{}", letter.to_ascii_uppercase()))
        }
        _ if !modifiers.is_empty() => None,
        KeyCode::PageUp => Some("PgUp".to_owned()),
        KeyCode::PageDown => Some("PgDn".to_owned()),
        code => Some(code.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_key_has_one_meaning_in_each_context() {
        let mut seen = HashSet::new();
        for binding in BINDINGS {
            for context in binding.contexts {
                for key in binding.keys.split(' ') {
                    assert!(seen.insert((context, key)), "{key} in {context:?}");
                }
            }
        }
    }

    #[test]
    fn only_the_end_dialog_has_a_key_that_sends() {
        for binding in BINDINGS
            .iter()
            .filter(|binding| binding.intent == Intent::Confirm)
        {
            assert_eq!(binding.contexts, [KeyContext::EndDialog]);
        }
    }

    #[test]
    fn q_quits_wherever_no_text_is_typed() {
        for context in KeyContext::VARIANTS {
            let is_typing = matches!(
                context,
                KeyContext::Filter | KeyContext::MarkName | KeyContext::JumpTime
            );
            let expected = (!is_typing).then_some(Intent::Quit);
            assert_eq!(
                intent(*context, KeyCode::Char('q').into()),
                expected,
                "{context:?}"
            );
        }
    }

    #[test]
    fn control_c_quits_in_every_context() {
        for context in KeyContext::VARIANTS {
            let event = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
            assert_eq!(intent(*context, event), Some(Intent::Quit), "{context:?}");
        }
    }

    #[test]
    fn every_key_in_the_table_is_the_name_of_a_key() {
        let others = [
            KeyCode::Up,
            KeyCode::Down,
            KeyCode::Left,
            KeyCode::Right,
            KeyCode::Home,
            KeyCode::End,
            KeyCode::PageUp,
            KeyCode::PageDown,
            KeyCode::Tab,
            KeyCode::Enter,
            KeyCode::Esc,
            KeyCode::Delete,
            KeyCode::Char(' '),
        ];
        let function_keys = (1..=12).map(KeyCode::F);
        let letters = ('!'..='~').map(KeyCode::Char);
        let plain = others
            .into_iter()
            .chain(function_keys)
            .chain(letters.clone())
            .map(KeyEvent::from);
        let control = letters.map(|letter| KeyEvent::new(letter, KeyModifiers::CONTROL));
        let names: HashSet<String> = plain.chain(control).filter_map(name).collect();
        for key in BINDINGS.iter().flat_map(|binding| binding.keys.split(' ')) {
            assert!(names.contains(key), "{key}");
        }
    }
}
