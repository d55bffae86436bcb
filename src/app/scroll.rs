//! Scrolling of the two lists.

/// Returns the index of the first row on a screen of this height, its head line included. The cursor is on the screen, and
/// no row stays blank while rows are scrolled out.
pub(super) fn top(top: usize, cursor: usize, rows: usize, height: u16) -> usize {
    let visible = usize::from(height.saturating_sub(1)).max(1);
    top.min(cursor).max((cursor + 1).saturating_sub(visible)).min(rows.saturating_sub(visible))
}
