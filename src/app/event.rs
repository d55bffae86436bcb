//! The whole vocabulary of the app, on one page: what can happen, and what it can ask for.

use std::time::Duration;

use crossterm::event::{KeyEvent, MouseEvent};

use crate::base::text::Text;
use crate::model::HostLabel;
use crate::protocol::command::Command;
use crate::protocol::host_key::HostKey;
use crate::protocol::line::Line;

/// Everything that can happen to the app.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A host joins the fleet, or has another name for people.
    Host(HostKey, HostLabel),
    /// A line arrived from this host.
    Line(HostKey, Box<Line>),
    /// A key was pressed.
    Key(KeyEvent),
    /// The mouse was clicked, or its wheel turned.
    Mouse(MouseEvent),
    /// The terminal has this size now, in columns and rows.
    Resized(u16, u16),
    /// Time went by since the event before. The app has no other clock.
    Tick(Duration),
    /// What came of an effect: one sentence for a person.
    Done(Text),
    /// No more lines come from this host; the text says why, in one sentence.
    SourceLost(HostKey, Text),
}

/// Everything the app can ask of the world.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Send each command to the agent of its host, in this order. The replies come back as lines.
    Commands(Vec<(HostKey, Command)>),
    /// Tell the person, wherever they look.
    Alert(Vec<Alert>),
    /// Start the sources of these hosts again: they are lost or silent.
    Reconnect(Vec<HostKey>),
    /// Ask the terminal to take this text into its clipboard.
    Copy(String),
    /// Write the app's settings where each run finds them.
    Keep,
    /// Give the terminal back to the shell until the person returns (Ctrl-Z).
    Suspend,
    /// Leave.
    Quit,
}

/// Something that a person wants to hear of at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alert {
    /// What it is.
    pub kind: AlertKind,
    /// For a person.
    pub sentence: String,
    /// For a program: names in capitals, and values. What is not known is not there.
    pub facts: Vec<(&'static str, String)>,
}

/// What an alert is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertKind {
    /// Memory leaks.
    Leak,
    /// It leaks, and runs out within the time that was set.
    OutOfMemorySoon,
    /// Nobody is on a GPU any more that was watched.
    GpuFree,
    /// A process has ended that was watched.
    ProcessEnded,
}

impl AlertKind {
    /// Its name for a program; it never changes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Leak => "leak",
            Self::OutOfMemorySoon => "out_of_memory_soon",
            Self::GpuFree => "gpu_free",
            Self::ProcessEnded => "process_ended",
        }
    }
}
