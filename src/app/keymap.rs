//! Every key and what the person means by it. Help prints this table, the footer some of it; nothing else knows a key.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::process_columns::ProcessColumn;

/// Where keys go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The lists of GPUs and processes.
    List,
    /// The filter is being typed.
    Filter,
    /// The panel that ends a process.
    EndDialog,
    /// A page of text over the lists: help, or a process in detail.
    Page,
    /// The graph over the whole screen.
    Graph,
    /// A mark is being named.
    Mark,
    /// The panel of settings.
    SettingsPanel,
}

/// What a person means by a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// Move the cursor, or the page, by so many lines.
    Move(isize),
    /// By so many screenfuls.
    MovePage(isize),
    /// To the first line.
    First,
    /// To the last line.
    Last,
    /// Between GPUs and processes.
    OtherList,
    /// Sort by the next column.
    NextColumn,
    /// Sort by the column before.
    PreviousColumn,
    /// Sort by this column.
    SortBy(ProcessColumn),
    /// The other way around.
    Invert,
    /// Show only who holds memory and should not.
    Suspects,
    /// Show processes below their parents.
    Tree,
    /// Group by job, by user, not at all.
    Group,
    /// Tag the process or group under the cursor, or untag it.
    Tag,
    /// Tag the whole job.
    TagJob,
    /// Untag all.
    Untag,
    /// Watch the process or GPU under the cursor until it ends, or is free.
    Watch,
    /// Type a filter.
    OpenFilter,
    /// Keep what was typed.
    KeepFilter,
    /// Show all again.
    ClearFilter,
    /// Show the graph, then over the whole screen, then not at all.
    Graph,
    /// Show more time, or less, by so many steps.
    Zoom(isize),
    /// Move the cursor of the graph so many steps into the past.
    Back(isize),
    /// Let the graph follow the present.
    Now,
    /// Mark this moment, and type its name.
    Mark,
    /// Keep the mark.
    KeepMark,
    /// Forget it.
    DropMark,
    /// What is known of the process.
    Detail,
    /// The keys.
    Help,
    /// The panel that ends a process.
    OpenEndPanel,
    /// Choose the signal before or after.
    Choose(isize),
    /// Between the process and its whole job.
    Widen,
    /// Send the chosen signal.
    Confirm,
    /// Show only the person's own processes.
    Mine,
    /// Hide the line of the host, or show it.
    HostLine,
    /// Let the screen stand still, or go on.
    Pause,
    /// Scroll the commands to the right by so many steps.
    ScrollCommand(isize),
    /// Copy the PID under the cursor.
    CopyPid,
    /// Copy its command.
    CopyCommand,
    /// The panel of settings.
    SettingsPanel,
    /// Change the setting under the cursor.
    Toggle,
    /// Move the column under the cursor so many places to the right, or take another value.
    Shift(isize),
    /// Write the settings down.
    Keep,
    /// Leave a page or panel.
    Close,
    /// Read more often.
    Faster,
    /// Read less often.
    Slower,
    /// Read everything now; start an agent where there is none.
    Refresh,
    /// Give the terminal back for a while.
    Suspend,
    /// Leave gputop.
    Quit,
}

/// One line of the table.
#[derive(Debug, Clone, Copy)]
pub struct Binding {
    /// Where it holds.
    pub mode: Mode,
    /// Any of these keys.
    pub keys: &'static [Key],
    /// What they mean.
    pub intent: Intent,
    /// What the help says; empty where the line before says it.
    pub help: &'static str,
}

/// A key, and how it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    code: KeyCode,
    control: bool,
    /// As the help writes it.
    pub name: &'static str,
}

const fn key(code: KeyCode, name: &'static str) -> Key {
    Key { code, control: false, name }
}

const fn letter(character: char, name: &'static str) -> Key {
    key(KeyCode::Char(character), name)
}

const fn control(character: char, name: &'static str) -> Key {
    Key { code: KeyCode::Char(character), control: true, name }
}

const UP: Key = key(KeyCode::Up, "Up");
const DOWN: Key = key(KeyCode::Down, "Down");
const ENTER: Key = key(KeyCode::Enter, "Enter");
const ESC: Key = key(KeyCode::Esc, "Esc");
const TAB: Key = key(KeyCode::Tab, "Tab");
const PAGE_UP: Key = key(KeyCode::PageUp, "PgUp");
const PAGE_DOWN: Key = key(KeyCode::PageDown, "PgDn");
const LEFT: Key = key(KeyCode::Left, "Left");
const RIGHT: Key = key(KeyCode::Right, "Right");
const HOME: Key = key(KeyCode::Home, "Home");
const END: Key = key(KeyCode::End, "End");

const fn binding(mode: Mode, keys: &'static [Key], intent: Intent, help: &'static str) -> Binding {
    Binding { mode, keys, intent, help }
}

/// Every binding.
pub const BINDINGS: &[Binding] = &[
    binding(Mode::List, &[UP, letter('k', "k")], Intent::Move(-1), "up"),
    binding(Mode::List, &[DOWN, letter('j', "j")], Intent::Move(1), "down"),
    binding(Mode::List, &[PAGE_UP, control('b', "^B")], Intent::MovePage(-1), "a screen up"),
    binding(Mode::List, &[PAGE_DOWN, control('f', "^F")], Intent::MovePage(1), "a screen down"),
    binding(Mode::List, &[HOME], Intent::First, "first line"),
    binding(Mode::List, &[END, letter('G', "G")], Intent::Last, "last line"),
    binding(Mode::List, &[TAB], Intent::OtherList, "between GPUs and processes"),
    binding(Mode::List, &[ENTER, letter('e', "e")], Intent::Detail, "process or GPU in detail"),
    binding(
        Mode::List,
        &[letter('g', "g")],
        Intent::Graph,
        "graph; again: over the whole screen, with marks and events",
    ),
    binding(Mode::List, &[letter('[', "[")], Intent::Zoom(-1), "graph: less time, down to a minute"),
    binding(Mode::List, &[letter(']', "]")], Intent::Zoom(1), "graph: more time, up to 7 days"),
    binding(Mode::List, &[LEFT], Intent::Back(1), "graph: into the past; Esc comes back to now"),
    binding(Mode::List, &[RIGHT], Intent::Back(-1), "graph: towards now"),
    binding(Mode::List, &[letter('m', "m")], Intent::Mark, "mark this moment under a name, to compare memory later"),
    binding(
        Mode::List,
        &[key(KeyCode::F(9), "F9"), letter('x', "x"), key(KeyCode::Delete, "Del")],
        Intent::OpenEndPanel,
        "end process… (asks first)",
    ),
    binding(
        Mode::List,
        &[letter('/', "/"), letter('\\', "\\"), key(KeyCode::F(3), "F3"), key(KeyCode::F(4), "F4")],
        Intent::OpenFilter,
        "filter by anything a line shows",
    ),
    binding(Mode::List, &[letter('o', "o")], Intent::Suspects, "only who holds memory and should not"),
    binding(Mode::List, &[letter('t', "t"), key(KeyCode::F(5), "F5")], Intent::Tree, "processes below their parents"),
    binding(Mode::List, &[letter('b', "b")], Intent::Group, "by job, by user, or each for itself"),
    binding(Mode::List, &[letter(' ', "Space")], Intent::Tag, "tag for the panel that ends processes"),
    binding(Mode::List, &[letter('c', "c")], Intent::TagJob, "tag the whole job"),
    binding(Mode::List, &[letter('U', "U")], Intent::Untag, "untag all"),
    binding(Mode::List, &[letter('w', "w")], Intent::Watch, "say when this process ends; on a GPU: when it is free"),
    binding(Mode::List, &[ESC], Intent::ClearFilter, "clear the filter; the graph comes back to now"),
    binding(
        Mode::List,
        &[letter('s', "s"), letter('>', ">"), key(KeyCode::F(6), "F6")],
        Intent::NextColumn,
        "sort by the next column",
    ),
    binding(Mode::List, &[letter('S', "S"), letter('<', "<")], Intent::PreviousColumn, "sort by the column before"),
    binding(Mode::List, &[letter('I', "I"), letter('r', "r")], Intent::Invert, "invert the order"),
    binding(Mode::List, &[letter('M', "M")], Intent::SortBy(ProcessColumn::Memory), "sort by GPU memory"),
    binding(Mode::List, &[letter('P', "P")], Intent::SortBy(ProcessColumn::Sm), "sort by GPU use"),
    binding(Mode::List, &[letter('T', "T")], Intent::SortBy(ProcessColumn::Elapsed), "sort by time since start"),
    binding(Mode::List, &[letter('u', "u")], Intent::Mine, "only my own processes"),
    binding(Mode::List, &[letter('l', "l")], Intent::ScrollCommand(1), "scroll the commands to the right"),
    binding(Mode::List, &[letter('h', "h")], Intent::ScrollCommand(-1), "scroll them back"),
    binding(Mode::List, &[letter('y', "y")], Intent::CopyPid, "copy the PID, of all that are tagged"),
    binding(Mode::List, &[letter('Y', "Y")], Intent::CopyCommand, "copy the command"),
    binding(Mode::List, &[letter('p', "p")], Intent::Pause, "let the screen stand still; again: go on"),
    binding(Mode::List, &[letter('H', "H")], Intent::HostLine, "hide the line of the host, or show it"),
    binding(
        Mode::List,
        &[key(KeyCode::F(2), "F2"), letter('C', "C")],
        Intent::SettingsPanel,
        "settings: which columns, their order, colours",
    ),
    binding(
        Mode::List,
        &[letter('W', "W"), key(KeyCode::F(12), "F12")],
        Intent::Keep,
        "write the settings to config.toml",
    ),
    binding(Mode::List, &[letter('+', "+"), letter('=', "=")], Intent::Faster, "read more often"),
    binding(Mode::List, &[letter('-', "-")], Intent::Slower, "read less often"),
    binding(Mode::List, &[letter('R', "R")], Intent::Refresh, "read everything now; a new agent if it is gone"),
    binding(Mode::List, &[letter('?', "?"), key(KeyCode::F(1), "F1")], Intent::Help, "this page"),
    binding(Mode::List, &[control('z', "^Z")], Intent::Suspend, "to the shell; `fg` comes back"),
    binding(Mode::List, &[letter('q', "q"), control('c', "^C"), key(KeyCode::F(10), "F10")], Intent::Quit, "quit"),
    binding(Mode::Filter, &[ENTER], Intent::KeepFilter, "keep"),
    binding(Mode::Filter, &[ESC], Intent::ClearFilter, "clear"),
    binding(Mode::Filter, &[UP], Intent::Move(-1), ""),
    binding(Mode::Filter, &[DOWN], Intent::Move(1), ""),
    binding(Mode::Filter, &[control('z', "^Z")], Intent::Suspend, ""),
    binding(Mode::Filter, &[control('c', "^C")], Intent::Quit, ""),
    binding(Mode::EndDialog, &[UP, letter('k', "k")], Intent::Choose(-1), "choose what is above"),
    binding(Mode::EndDialog, &[DOWN, letter('j', "j")], Intent::Choose(1), "choose what is below"),
    binding(Mode::EndDialog, &[TAB, RIGHT, LEFT], Intent::Widen, "the whole job, or what was chosen"),
    binding(Mode::EndDialog, &[PAGE_UP], Intent::MovePage(-1), "scroll the processes up"),
    binding(Mode::EndDialog, &[PAGE_DOWN], Intent::MovePage(1), "scroll the processes down"),
    binding(Mode::EndDialog, &[ENTER], Intent::Confirm, "send it"),
    binding(Mode::EndDialog, &[ESC, letter('q', "q")], Intent::Close, "close"),
    binding(Mode::EndDialog, &[control('z', "^Z")], Intent::Suspend, ""),
    binding(Mode::EndDialog, &[control('c', "^C"), key(KeyCode::F(10), "F10")], Intent::Quit, "quit gputop"),
    binding(Mode::Page, &[UP, letter('k', "k")], Intent::Move(-1), "up"),
    binding(Mode::Page, &[DOWN, letter('j', "j")], Intent::Move(1), "down"),
    binding(Mode::Page, &[PAGE_UP, control('b', "^B")], Intent::MovePage(-1), "a screen up"),
    binding(Mode::Page, &[PAGE_DOWN, control('f', "^F"), letter(' ', "Space")], Intent::MovePage(1), "a screen down"),
    binding(Mode::Page, &[HOME, letter('g', "g")], Intent::First, "top"),
    binding(Mode::Page, &[END, letter('G', "G")], Intent::Last, "bottom"),
    binding(
        Mode::Page,
        &[key(KeyCode::F(9), "F9"), letter('x', "x"), key(KeyCode::Delete, "Del")],
        Intent::OpenEndPanel,
        "end process…",
    ),
    binding(
        Mode::Page,
        &[ESC, letter('q', "q"), ENTER, letter('?', "?"), key(KeyCode::F(1), "F1")],
        Intent::Close,
        "back",
    ),
    binding(Mode::Page, &[letter('y', "y")], Intent::CopyPid, "copy the PID, or the GPU's UUID"),
    binding(Mode::Page, &[letter('Y', "Y")], Intent::CopyCommand, "copy the command"),
    binding(Mode::Page, &[control('z', "^Z")], Intent::Suspend, ""),
    binding(Mode::Graph, &[LEFT, letter('h', "h")], Intent::Back(1), "into the past"),
    binding(Mode::Graph, &[RIGHT, letter('l', "l")], Intent::Back(-1), "towards now"),
    binding(
        Mode::Graph,
        &[PAGE_UP, control('b', "^B"), letter('H', "H")],
        Intent::Back(30),
        "half a graph into the past",
    ),
    binding(
        Mode::Graph,
        &[PAGE_DOWN, control('f', "^F"), letter('L', "L")],
        Intent::Back(-30),
        "half a graph towards now",
    ),
    binding(Mode::Graph, &[END, letter('G', "G"), letter('n', "n")], Intent::Now, "now"),
    binding(Mode::Graph, &[letter('[', "[")], Intent::Zoom(-1), "less time, down to a minute"),
    binding(Mode::Graph, &[letter(']', "]")], Intent::Zoom(1), "more time, up to 7 days"),
    binding(Mode::Graph, &[letter('m', "m")], Intent::Mark, "mark this moment under a name"),
    binding(Mode::Graph, &[UP, letter('k', "k")], Intent::Move(-1), "the process or GPU above"),
    binding(Mode::Graph, &[DOWN, letter('j', "j")], Intent::Move(1), "the process or GPU below"),
    binding(Mode::Graph, &[ENTER], Intent::Detail, "in detail"),
    binding(Mode::Graph, &[TAB], Intent::OtherList, "between GPUs and processes"),
    binding(
        Mode::Graph,
        &[key(KeyCode::F(9), "F9"), letter('x', "x"), key(KeyCode::Delete, "Del")],
        Intent::OpenEndPanel,
        "end process…",
    ),
    binding(Mode::Graph, &[letter('?', "?"), key(KeyCode::F(1), "F1")], Intent::Help, "all keys"),
    binding(Mode::Graph, &[letter('g', "g")], Intent::Graph, "no graph"),
    binding(Mode::Graph, &[ESC, letter('q', "q")], Intent::Close, "to now, then back to the lists"),
    binding(Mode::Graph, &[control('z', "^Z")], Intent::Suspend, ""),
    binding(Mode::Graph, &[control('c', "^C"), key(KeyCode::F(10), "F10")], Intent::Quit, "quit gputop"),
    binding(Mode::SettingsPanel, &[UP, letter('k', "k")], Intent::Move(-1), "up"),
    binding(Mode::SettingsPanel, &[DOWN, letter('j', "j")], Intent::Move(1), "down"),
    binding(Mode::SettingsPanel, &[PAGE_UP, control('b', "^B")], Intent::MovePage(-1), "a screen up"),
    binding(Mode::SettingsPanel, &[PAGE_DOWN, control('f', "^F")], Intent::MovePage(1), "a screen down"),
    binding(Mode::SettingsPanel, &[HOME, letter('g', "g")], Intent::First, "top"),
    binding(Mode::SettingsPanel, &[END, letter('G', "G")], Intent::Last, "bottom"),
    binding(Mode::SettingsPanel, &[letter(' ', "Space"), ENTER], Intent::Toggle, "show or hide; the next of several"),
    binding(Mode::SettingsPanel, &[LEFT, letter('h', "h")], Intent::Shift(-1), "a column to the left"),
    binding(Mode::SettingsPanel, &[RIGHT, letter('l', "l")], Intent::Shift(1), "a column to the right"),
    binding(
        Mode::SettingsPanel,
        &[letter('W', "W"), key(KeyCode::F(12), "F12")],
        Intent::Keep,
        "write the settings to config.toml",
    ),
    binding(Mode::SettingsPanel, &[ESC, letter('q', "q"), key(KeyCode::F(2), "F2")], Intent::Close, "back"),
    binding(Mode::SettingsPanel, &[control('z', "^Z")], Intent::Suspend, ""),
    binding(Mode::SettingsPanel, &[control('c', "^C"), key(KeyCode::F(10), "F10")], Intent::Quit, "quit gputop"),
    binding(Mode::Mark, &[ENTER], Intent::KeepMark, "keep the mark"),
    binding(Mode::Mark, &[ESC], Intent::DropMark, "no mark"),
    binding(Mode::Mark, &[control('z', "^Z")], Intent::Suspend, ""),
    binding(Mode::Mark, &[control('c', "^C")], Intent::Quit, ""),
    binding(Mode::Page, &[control('c', "^C"), key(KeyCode::F(10), "F10")], Intent::Quit, "quit gputop"),
];

/// What a key means there; absent when it means nothing.
pub fn meaning(mode: Mode, event: KeyEvent) -> Option<Intent> {
    let held = event.modifiers & (KeyModifiers::CONTROL | KeyModifiers::ALT | KeyModifiers::SUPER);
    let wanted = |key: &Key| {
        let modifiers = if key.control { KeyModifiers::CONTROL } else { KeyModifiers::NONE };
        key.code == event.code && held == modifiers
    };
    BINDINGS.iter().find(|it| it.mode == mode && it.keys.iter().any(wanted)).map(|it| it.intent)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_key_means_one_thing_in_one_place() {
        let mut seen = HashSet::new();
        for binding in BINDINGS {
            for key in binding.keys {
                assert!(seen.insert((binding.mode, key.name)), "{} in {:?}", key.name, binding.mode);
            }
        }
    }

    #[test]
    fn from_the_lists_no_key_can_send() {
        for mode in [Mode::List, Mode::Filter, Mode::Page, Mode::Graph, Mode::Mark, Mode::SettingsPanel] {
            assert!(BINDINGS.iter().all(|it| it.mode != mode || it.intent != Intent::Confirm));
        }
    }

    #[test]
    fn control_c_always_quits() {
        for mode in
            [Mode::List, Mode::Filter, Mode::EndDialog, Mode::Page, Mode::Graph, Mode::Mark, Mode::SettingsPanel]
        {
            let event = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
            assert_eq!(meaning(mode, event), Some(Intent::Quit), "{mode:?}");
        }
    }
}
