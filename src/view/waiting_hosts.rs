//! Draws the rows of hosts from which no line has come: `gpu-02   no answer for 34s: ssh: connect
//! to host gpu-02: timed out`

use ratatui::buffer::Buffer;
use unicode_width::UnicodeWidthStr;

use super::pen::Pen;
use super::theme::Theme;
use crate::app::layout::Area;
use crate::app::lists::columns::{Align, HOST_WIDTH};
use crate::app::{App, WaitingHost};

pub(super) fn draw(buffer: &mut Buffer, theme: Theme, app: &App, area: Area) {
    let mut hosts = app.waiting_hosts();
    // A host in trouble has a row before one that starts.
    hosts.sort_by_key(|host| !host.is_in_trouble);
    let rows = usize::from(area.height);
    let shown = if hosts.len() > rows {
        rows.saturating_sub(1)
    } else {
        hosts.len()
    };
    let (rowed, others) = hosts.split_at(shown);
    // Below the names in the list of GPUs.
    let widest = rowed
        .iter()
        .map(|host| host.name.width())
        .max()
        .unwrap_or(0);
    let width = widest.clamp(HOST_WIDTH, usize::from(area.width / 3).max(HOST_WIDTH));
    for (line, host) in (0..).zip(rowed) {
        let Some(mut pen) = Pen::at(buffer, area, line) else {
            return;
        };
        let style = if host.is_in_trouble {
            theme.alarm()
        } else {
            theme.dim()
        };
        pen.cell(&host.name, width, Align::Left, theme.text())
            .skip(1)
            .rest(host.words.as_str(), style);
    }
    if !others.is_empty()
        && let Some(mut pen) = Pen::at(buffer, area, area.height - 1)
    {
        let is_in_trouble = others.iter().any(|host| host.is_in_trouble);
        pen.rest(
            of_others(others),
            if is_in_trouble {
                theme.alarm()
            } else {
                theme.dim()
            },
        );
    }
}

/// Returns the words for hosts without a row: `12 more without an answer: gpu-04, gpu-05`.
fn of_others(others: &[WaitingHost]) -> String {
    let names: Vec<&str> = others.iter().map(|host| host.name.as_str()).collect();
    format!(
        "{} more without an answer: {}",
        others.len(),
        names.join(", ")
    )
}
