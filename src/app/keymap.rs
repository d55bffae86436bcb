//! The table of all keys and their intents. The help page prints the table, the footer a part of it; no other code knows a
//! key.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::process_columns::ProcessColumn;

/// The part of the screen that keys go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyContext {
    /// The lists of GPUs and processes.
    List,
    /// The filter is being typed.
    Filter,
    /// The dialog that ends processes.
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

/// The user's intent with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// Move the cursor, or the page, by this many lines.
    Move(isize),
    /// Move the cursor, or the page, by this many screenfuls.
    MovePage(isize),
    /// Move to the first line.
    First,
    /// Move to the last line.
    Last,
    /// Switch between GPUs and processes.
    OtherList,
    /// Sort by the next column.
    NextColumn,
    /// Sort by the column before.
    PreviousColumn,
    /// Sort by this column.
    SortBy(ProcessColumn),
    /// Invert the order.
    Invert,
    /// Show only processes that hold memory and should not.
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
    /// Show more time, or less, by this many steps.
    Zoom(isize),
    /// Move the cursor of the graph this many steps into the past.
    Back(isize),
    /// Let the graph follow the present.
    Now,
    /// Mark this moment, and type its name.
    Mark,
    /// Keep the mark.
    KeepMark,
    /// Drop the mark.
    DropMark,
    /// Open the page of the process or GPU.
    Detail,
    /// Open the help page.
    Help,
    /// Open the dialog that ends processes.
    OpenEndDialog,
    /// Move the choice of the signal by this many places.
    Choose(isize),
    /// Switch between the process and its whole job.
    Widen,
    /// Send the chosen signal.
    Confirm,
    /// Show only the user's own processes.
    Mine,
    /// Hide or show the line about the host.
    HostLine,
    /// Pause or resume the screen.
    Pause,
    /// Scroll the commands to the right by this many steps.
    ScrollCommand(isize),
    /// Copy the PID under the cursor.
    CopyPid,
    /// Copy the command under the cursor.
    CopyCommand,
    /// Open the panel of settings.
    SettingsPanel,
    /// Change the setting under the cursor.
    Toggle,
    /// Move the column under the cursor this many places to the right, or choose another value.
    Shift(isize),
    /// Write the settings to the configuration file.
    Keep,
    /// Close a page, panel or dialog.
    Close,
    /// Read more often.
    Faster,
    /// Read less often.
    Slower,
    /// Scan all hosts now; start a new agent where one is lost or silent.
    Refresh,
    /// Stop and give the terminal back to the shell.
    Suspend,
    /// Quit gputop.
    Quit,
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Binding {
    /// The context in which the row holds.
    pub context: KeyContext,
    /// The keys.
    pub keys: &'static [Key],
    /// The intent of each of these keys.
    pub intent: Intent,
    /// The text of the help page; empty if the row before covers this one.
    pub help: &'static str,
}

/// A key and its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    code: KeyCode,
    control: bool,
    /// The name on the help page.
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

const fn binding(context: KeyContext, keys: &'static [Key], intent: Intent, help: &'static str) -> Binding {
    Binding { context, keys, intent, help }
}

/// Every binding.
pub const BINDINGS: &[Binding] = &[
    binding(KeyContext::List, &[UP, letter('k', "k")], Intent::Move(-1), "up"),
    binding(KeyContext::List, &[DOWN, letter('j', "j")], Intent::Move(1), "down"),
    binding(KeyContext::List, &[PAGE_UP, control('b', "^B")], Intent::MovePage(-1), "a screen up"),
    binding(KeyContext::List, &[PAGE_DOWN, control('f', "^F")], Intent::MovePage(1), "a screen down"),
    binding(KeyContext::List, &[HOME], Intent::First, "first line"),
    binding(KeyContext::List, &[END, letter('G', "G")], Intent::Last, "last line"),
    binding(KeyContext::List, &[TAB], Intent::OtherList, "between GPUs and processes"),
    binding(KeyContext::List, &[ENTER, letter('e', "e")], Intent::Detail, "process or GPU in detail"),
    binding(
        KeyContext::List,
        &[letter('g', "g")],
        Intent::Graph,
        "graph; again: over the whole screen, with marks and events",
    ),
    binding(KeyContext::List, &[letter('[', "[")], Intent::Zoom(-1), "graph: less time, down to a minute"),
    binding(KeyContext::List, &[letter(']', "]")], Intent::Zoom(1), "graph: more time, up to 7 days"),
    binding(KeyContext::List, &[LEFT], Intent::Back(1), "graph: into the past; Esc comes back to now"),
    binding(KeyContext::List, &[RIGHT], Intent::Back(-1), "graph: towards now"),
    binding(
        KeyContext::List,
        &[letter('m', "m")],
        Intent::Mark,
        "mark this moment under a name, to compare memory later",
    ),
    binding(
        KeyContext::List,
        &[key(KeyCode::F(9), "F9"), letter('x', "x"), key(KeyCode::Delete, "Del")],
        Intent::OpenEndDialog,
        "end process… (asks first)",
    ),
    binding(
        KeyContext::List,
        &[letter('/', "/"), letter('\\', "\\"), key(KeyCode::F(3), "F3"), key(KeyCode::F(4), "F4")],
        Intent::OpenFilter,
        "filter by anything a line shows",
    ),
    binding(KeyContext::List, &[letter('o', "o")], Intent::Suspects, "only who holds memory and should not"),
    binding(
        KeyContext::List,
        &[letter('t', "t"), key(KeyCode::F(5), "F5")],
        Intent::Tree,
        "processes below their parents",
    ),
    binding(KeyContext::List, &[letter('b', "b")], Intent::Group, "by job, by user, or each for itself"),
    binding(KeyContext::List, &[letter(' ', "Space")], Intent::Tag, "tag for the panel that ends processes"),
    binding(KeyContext::List, &[letter('c', "c")], Intent::TagJob, "tag the whole job"),
    binding(KeyContext::List, &[letter('U', "U")], Intent::Untag, "untag all"),
    binding(
        KeyContext::List,
        &[letter('w', "w")],
        Intent::Watch,
        "say when this process ends; on a GPU: when it is free",
    ),
    binding(KeyContext::List, &[ESC], Intent::ClearFilter, "clear the filter; the graph comes back to now"),
    binding(
        KeyContext::List,
        &[letter('s', "s"), letter('>', ">"), key(KeyCode::F(6), "F6")],
        Intent::NextColumn,
        "sort by the next column",
    ),
    binding(
        KeyContext::List,
        &[letter('S', "S"), letter('<', "<")],
        Intent::PreviousColumn,
        "sort by the column before",
    ),
    binding(KeyContext::List, &[letter('I', "I"), letter('r', "r")], Intent::Invert, "invert the order"),
    binding(KeyContext::List, &[letter('M', "M")], Intent::SortBy(ProcessColumn::Memory), "sort by GPU memory"),
    binding(KeyContext::List, &[letter('P', "P")], Intent::SortBy(ProcessColumn::Sm), "sort by GPU use"),
    binding(KeyContext::List, &[letter('T', "T")], Intent::SortBy(ProcessColumn::Elapsed), "sort by time since start"),
    binding(KeyContext::List, &[letter('u', "u")], Intent::Mine, "only my own processes"),
    binding(KeyContext::List, &[letter('l', "l")], Intent::ScrollCommand(1), "scroll the commands to the right"),
    binding(KeyContext::List, &[letter('h', "h")], Intent::ScrollCommand(-1), "scroll them back"),
    binding(KeyContext::List, &[letter('y', "y")], Intent::CopyPid, "copy the PID, of all that are tagged"),
    binding(KeyContext::List, &[letter('Y', "Y")], Intent::CopyCommand, "copy the command"),
    binding(KeyContext::List, &[letter('p', "p")], Intent::Pause, "let the screen stand still; again: go on"),
    binding(KeyContext::List, &[letter('H', "H")], Intent::HostLine, "hide the line of the host, or show it"),
    binding(
        KeyContext::List,
        &[key(KeyCode::F(2), "F2"), letter('C', "C")],
        Intent::SettingsPanel,
        "settings: which columns, their order, colours",
    ),
    binding(
        KeyContext::List,
        &[letter('W', "W"), key(KeyCode::F(12), "F12")],
        Intent::Keep,
        "write the settings to config.toml",
    ),
    binding(KeyContext::List, &[letter('+', "+"), letter('=', "=")], Intent::Faster, "read more often"),
    binding(KeyContext::List, &[letter('-', "-")], Intent::Slower, "read less often"),
    binding(KeyContext::List, &[letter('R', "R")], Intent::Refresh, "read everything now; a new agent if it is gone"),
    binding(KeyContext::List, &[letter('?', "?"), key(KeyCode::F(1), "F1")], Intent::Help, "this page"),
    binding(KeyContext::List, &[control('z', "^Z")], Intent::Suspend, "to the shell; `fg` comes back"),
    binding(
        KeyContext::List,
        &[letter('q', "q"), control('c', "^C"), key(KeyCode::F(10), "F10")],
        Intent::Quit,
        "quit",
    ),
    binding(KeyContext::Filter, &[ENTER], Intent::KeepFilter, "keep"),
    binding(KeyContext::Filter, &[ESC], Intent::ClearFilter, "clear"),
    binding(KeyContext::Filter, &[UP], Intent::Move(-1), ""),
    binding(KeyContext::Filter, &[DOWN], Intent::Move(1), ""),
    binding(KeyContext::Filter, &[control('z', "^Z")], Intent::Suspend, ""),
    binding(KeyContext::Filter, &[control('c', "^C")], Intent::Quit, ""),
    binding(KeyContext::EndDialog, &[UP, letter('k', "k")], Intent::Choose(-1), "choose what is above"),
    binding(KeyContext::EndDialog, &[DOWN, letter('j', "j")], Intent::Choose(1), "choose what is below"),
    binding(KeyContext::EndDialog, &[TAB, RIGHT, LEFT], Intent::Widen, "the whole job, or what was chosen"),
    binding(KeyContext::EndDialog, &[PAGE_UP], Intent::MovePage(-1), "scroll the processes up"),
    binding(KeyContext::EndDialog, &[PAGE_DOWN], Intent::MovePage(1), "scroll the processes down"),
    binding(KeyContext::EndDialog, &[ENTER], Intent::Confirm, "send it"),
    binding(KeyContext::EndDialog, &[ESC, letter('q', "q")], Intent::Close, "close"),
    binding(KeyContext::EndDialog, &[control('z', "^Z")], Intent::Suspend, ""),
    binding(KeyContext::EndDialog, &[control('c', "^C"), key(KeyCode::F(10), "F10")], Intent::Quit, "quit gputop"),
    binding(KeyContext::Page, &[UP, letter('k', "k")], Intent::Move(-1), "up"),
    binding(KeyContext::Page, &[DOWN, letter('j', "j")], Intent::Move(1), "down"),
    binding(KeyContext::Page, &[PAGE_UP, control('b', "^B")], Intent::MovePage(-1), "a screen up"),
    binding(
        KeyContext::Page,
        &[PAGE_DOWN, control('f', "^F"), letter(' ', "Space")],
        Intent::MovePage(1),
        "a screen down",
    ),
    binding(KeyContext::Page, &[HOME, letter('g', "g")], Intent::First, "top"),
    binding(KeyContext::Page, &[END, letter('G', "G")], Intent::Last, "bottom"),
    binding(
        KeyContext::Page,
        &[key(KeyCode::F(9), "F9"), letter('x', "x"), key(KeyCode::Delete, "Del")],
        Intent::OpenEndDialog,
        "end process…",
    ),
    binding(
        KeyContext::Page,
        &[ESC, letter('q', "q"), ENTER, letter('?', "?"), key(KeyCode::F(1), "F1")],
        Intent::Close,
        "back",
    ),
    binding(KeyContext::Page, &[letter('y', "y")], Intent::CopyPid, "copy the PID, or the GPU's UUID"),
    binding(KeyContext::Page, &[letter('Y', "Y")], Intent::CopyCommand, "copy the command"),
    binding(KeyContext::Page, &[control('z', "^Z")], Intent::Suspend, ""),
    binding(KeyContext::Graph, &[LEFT, letter('h', "h")], Intent::Back(1), "into the past"),
    binding(KeyContext::Graph, &[RIGHT, letter('l', "l")], Intent::Back(-1), "towards now"),
    binding(
        KeyContext::Graph,
        &[PAGE_UP, control('b', "^B"), letter('H', "H")],
        Intent::Back(30),
        "half a graph into the past",
    ),
    binding(
        KeyContext::Graph,
        &[PAGE_DOWN, control('f', "^F"), letter('L', "L")],
        Intent::Back(-30),
        "half a graph towards now",
    ),
    binding(KeyContext::Graph, &[END, letter('G', "G"), letter('n', "n")], Intent::Now, "now"),
    binding(KeyContext::Graph, &[letter('[', "[")], Intent::Zoom(-1), "less time, down to a minute"),
    binding(KeyContext::Graph, &[letter(']', "]")], Intent::Zoom(1), "more time, up to 7 days"),
    binding(KeyContext::Graph, &[letter('m', "m")], Intent::Mark, "mark this moment under a name"),
    binding(KeyContext::Graph, &[UP, letter('k', "k")], Intent::Move(-1), "the process or GPU above"),
    binding(KeyContext::Graph, &[DOWN, letter('j', "j")], Intent::Move(1), "the process or GPU below"),
    binding(KeyContext::Graph, &[ENTER], Intent::Detail, "in detail"),
    binding(KeyContext::Graph, &[TAB], Intent::OtherList, "between GPUs and processes"),
    binding(
        KeyContext::Graph,
        &[key(KeyCode::F(9), "F9"), letter('x', "x"), key(KeyCode::Delete, "Del")],
        Intent::OpenEndDialog,
        "end process…",
    ),
    binding(KeyContext::Graph, &[letter('?', "?"), key(KeyCode::F(1), "F1")], Intent::Help, "all keys"),
    binding(KeyContext::Graph, &[letter('g', "g")], Intent::Graph, "no graph"),
    binding(KeyContext::Graph, &[ESC, letter('q', "q")], Intent::Close, "to now, then back to the lists"),
    binding(KeyContext::Graph, &[control('z', "^Z")], Intent::Suspend, ""),
    binding(KeyContext::Graph, &[control('c', "^C"), key(KeyCode::F(10), "F10")], Intent::Quit, "quit gputop"),
    binding(KeyContext::SettingsPanel, &[UP, letter('k', "k")], Intent::Move(-1), "up"),
    binding(KeyContext::SettingsPanel, &[DOWN, letter('j', "j")], Intent::Move(1), "down"),
    binding(KeyContext::SettingsPanel, &[PAGE_UP, control('b', "^B")], Intent::MovePage(-1), "a screen up"),
    binding(KeyContext::SettingsPanel, &[PAGE_DOWN, control('f', "^F")], Intent::MovePage(1), "a screen down"),
    binding(KeyContext::SettingsPanel, &[HOME, letter('g', "g")], Intent::First, "top"),
    binding(KeyContext::SettingsPanel, &[END, letter('G', "G")], Intent::Last, "bottom"),
    binding(
        KeyContext::SettingsPanel,
        &[letter(' ', "Space"), ENTER],
        Intent::Toggle,
        "show or hide; the next of several",
    ),
    binding(KeyContext::SettingsPanel, &[LEFT, letter('h', "h")], Intent::Shift(-1), "a column to the left"),
    binding(KeyContext::SettingsPanel, &[RIGHT, letter('l', "l")], Intent::Shift(1), "a column to the right"),
    binding(
        KeyContext::SettingsPanel,
        &[letter('W', "W"), key(KeyCode::F(12), "F12")],
        Intent::Keep,
        "write the settings to config.toml",
    ),
    binding(KeyContext::SettingsPanel, &[ESC, letter('q', "q"), key(KeyCode::F(2), "F2")], Intent::Close, "back"),
    binding(KeyContext::SettingsPanel, &[control('z', "^Z")], Intent::Suspend, ""),
    binding(KeyContext::SettingsPanel, &[control('c', "^C"), key(KeyCode::F(10), "F10")], Intent::Quit, "quit gputop"),
    binding(KeyContext::Mark, &[ENTER], Intent::KeepMark, "keep the mark"),
    binding(KeyContext::Mark, &[ESC], Intent::DropMark, "no mark"),
    binding(KeyContext::Mark, &[control('z', "^Z")], Intent::Suspend, ""),
    binding(KeyContext::Mark, &[control('c', "^C")], Intent::Quit, ""),
    binding(KeyContext::Page, &[control('c', "^C"), key(KeyCode::F(10), "F10")], Intent::Quit, "quit gputop"),
];

/// Returns the intent of a key in a context; `None` when the key does nothing there.
pub fn intent(context: KeyContext, event: KeyEvent) -> Option<Intent> {
    let held = event.modifiers & (KeyModifiers::CONTROL | KeyModifiers::ALT | KeyModifiers::SUPER);
    let wanted = |key: &Key| {
        let modifiers = if key.control { KeyModifiers::CONTROL } else { KeyModifiers::NONE };
        key.code == event.code && held == modifiers
    };
    let binding = BINDINGS.iter().find(|binding| binding.context == context && binding.keys.iter().any(wanted));
    binding.map(|binding| binding.intent)
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
                assert!(seen.insert((binding.context, key.name)), "{} in {:?}", key.name, binding.context);
            }
        }
    }

    #[test]
    fn from_the_lists_no_key_can_send() {
        for context in [
            KeyContext::List,
            KeyContext::Filter,
            KeyContext::Page,
            KeyContext::Graph,
            KeyContext::Mark,
            KeyContext::SettingsPanel,
        ] {
            assert!(BINDINGS.iter().all(|binding| binding.context != context || binding.intent != Intent::Confirm));
        }
    }

    #[test]
    fn control_c_always_quits() {
        for context in [
            KeyContext::List,
            KeyContext::Filter,
            KeyContext::EndDialog,
            KeyContext::Page,
            KeyContext::Graph,
            KeyContext::Mark,
            KeyContext::SettingsPanel,
        ] {
            let event = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
            assert_eq!(intent(context, event), Some(Intent::Quit), "{context:?}");
        }
    }
}
