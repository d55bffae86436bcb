//! Placeholder for the app.
use std::time::Duration;

use crossterm::event::{KeyCode, KeyModifiers};

use crate::event::{Effect, Event};

/// What the command line says about the screen.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Signal no process.
    pub readonly: bool,
    /// From one reading to the next.
    pub interval: Duration,
}

/// All of the viewer's state.
#[derive(Debug)]
pub struct App {
    /// What was seen last.
    pub seen: String,
    /// Events.
    pub count: u64,
}

impl App {
    /// A new one.
    pub fn new(options: Options) -> Self {
        Self { seen: format!("{options:?}"), count: 0 }
    }

    /// Takes an event in.
    ///
    /// # Panics
    ///
    /// On p.
    #[expect(clippy::needless_pass_by_value, reason = "placeholder")]
    pub fn update(&mut self, event: Event) -> Option<Effect> {
        if let Event::Tick(_) = event {
            return None;
        }
        self.count += 1;
        self.seen = format!("{event:?}");
        self.seen.truncate(300);
        let Event::Key(key) = event else { return None };
        match key.code {
            KeyCode::Char('q') => Some(Effect::Quit),
            KeyCode::Char('z') if key.modifiers == KeyModifiers::CONTROL => Some(Effect::Suspend),
            KeyCode::Char('R') => Some(Effect::Reconnect),
            KeyCode::Char('p') => panic!("as asked\nfor"),
            _ => None,
        }
    }
}
