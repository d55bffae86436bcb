//! The whole vocabulary of the app, on one page: what can happen, and what it can ask for.

use std::time::Duration;

use crossterm::event::{KeyEvent, MouseEvent};

use crate::control::Command;
use crate::snapshot::line::Line;
use crate::untrusted::Text;

/// Everything that can happen to the app.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The link brought a line.
    Line(Box<Line>),
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
    /// The agent at the other end is gone, and why: one sentence for a person.
    LinkLost(Text),
}

/// Everything the app can ask of the world.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Ask this of the agent, in this order. What comes of it is events.
    Commands(Vec<Command>),
    /// Start an agent in place of the one that is lost or silent.
    Reconnect,
    /// Ask the terminal to take this text into its clipboard.
    Copy(String),
    /// Write the app's settings where each run finds them.
    Keep,
    /// Give the terminal back to the shell until the person returns (Ctrl-Z).
    Suspend,
    /// Leave.
    Quit,
}
