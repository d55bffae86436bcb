//! Placeholder for the ui.
use ratatui::Frame;
use ratatui::widgets::{Paragraph, Wrap};

use crate::app::App;

/// Colours and glyphs.
#[derive(Debug)]
pub struct Theme;

impl Theme {
    /// By what can be shown.
    pub fn new(_ascii: bool, _colour: bool) -> Self {
        Self
    }
}

/// Draws.
pub fn draw(frame: &mut Frame<'_>, _theme: &Theme, app: &App) {
    frame.render_widget(Paragraph::new(format!("{} {}", app.count, app.seen)).wrap(Wrap { trim: false }), frame.area());
}
