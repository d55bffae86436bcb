//! The areas of the screen. The app needs them to find what was clicked and how long a page is; the view draws into them.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Area {
    pub x: u16,
    pub y: u16,
    pub width: u16,
    /// The height in rows; 0 if there is no room.
    pub height: u16,
}

impl Area {
    pub(crate) fn contains(self, x: u16, y: u16) -> bool {
        (self.x..self.x.saturating_add(self.width)).contains(&x)
            && (self.y..self.y.saturating_add(self.height)).contains(&y)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Layout {
    /// The host line: one row or none.
    pub host: Area,
    /// The list of GPUs, headings first.
    pub gpus: Area,
    /// The list of processes, headings first.
    pub processes: Area,
    /// Below the list of suspects: the reason for the process under the cursor. No rows otherwise.
    pub reason: Area,
    /// The note that allocator stats are not known, below a list that has no room for the reasons. No rows otherwise.
    pub unreadable: Area,
    pub graph: Area,
    /// The last row: the most useful keys, a notice, or the text being typed.
    pub footer: Area,
    pub body: Area,
}

/// The smallest screen that shows more than one line, in columns and rows.
pub(crate) const SMALLEST: (u16, u16) = (40, 10);

/// The fewest rows of the list of processes beside a graph, headings included.
const PROCESSES: u16 = 4;

/// The rows of a graph: its head, its time axis, and enough between them to be readable.
const GRAPH: std::ops::RangeInclusive<u16> = 7..=28;

impl Layout {
    /// The same layout with room for the reason below the list of suspects, if enough rows of the list remain.
    pub(super) fn with_reason(mut self) -> Self {
        let rows = if self.processes.width < 100 { 4 } else { 3 };
        if self.processes.height >= PROCESSES + rows {
            self.processes.height -= rows;
            let y = self.processes.y + self.processes.height;
            self.reason = Area { y, height: rows, ..self.processes };
        }
        self
    }

    /// Whether these sentences fit below this many processes, with a blank row between. A tenth of each row counts as lost to
    /// word wrap.
    pub(super) fn has_room_for(&self, sentences: &[String], processes: usize) -> bool {
        let width = usize::from(self.processes.width) * 9 / 10;
        let rows: usize = sentences.iter().map(|sentence| sentence.len() / width.max(1) + 1).sum();
        processes + 2 + rows <= usize::from(self.processes.height)
    }

    /// The same layout with a row for the note about allocator stats, if enough rows of the list remain.
    pub(super) fn with_unread(mut self) -> Self {
        if self.processes.height > 2 * PROCESSES {
            self.processes.height -= 1;
            let y = self.processes.y + self.processes.height;
            self.unreadable = Area { y, height: 1, ..self.processes };
        }
        self
    }
}

/// Whether the graph is open below the lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum GraphVisibility {
    /// Open if the screen has room for it beside ten processes.
    #[default]
    WhenRoomy,
    /// Open, even if few processes remain visible.
    Shown,
    Hidden,
}

/// Divides a screen into areas; `None` if the screen is smaller than [`SMALLEST`]. `gpus` is the number of GPUs, and
/// `host` says whether the host line is shown.
pub(crate) fn divide(width: u16, height: u16, gpus: usize, graph: GraphVisibility, host: bool) -> Option<Layout> {
    if width < SMALLEST.0 || height < SMALLEST.1 {
        return None;
    }
    let mut top = 0;
    let mut take = |height: u16| {
        let area = Area { x: 0, y: top, width, height };
        top += height;
        area
    };
    let host_rows = u16::from(host);
    let between = height - 1 - host_rows;
    // Without a GPU the area explains why in a few lines.
    let wanted = if gpus == 0 { 4 } else { u16::try_from(gpus).unwrap_or(u16::MAX).saturating_add(1) };
    let gpu_rows = wanted.min(between / 2 - 1).max(wanted.min(3)).min(between);
    let rest = between - gpu_rows;
    let graph_rows = match graph {
        GraphVisibility::Hidden => 0,
        GraphVisibility::Shown => rest.saturating_sub(PROCESSES).min((rest * 3 / 5).max(*GRAPH.start())),
        GraphVisibility::WhenRoomy if rest > 11 + GRAPH.start() => (rest - 11).min(rest / 2),
        GraphVisibility::WhenRoomy => 0,
    };
    let graph_rows = if graph_rows < 4 { 0 } else { graph_rows.min(*GRAPH.end()) };
    let host = take(host_rows);
    let gpus = take(gpu_rows);
    let processes = take(rest - graph_rows);
    let graph = take(graph_rows);
    let footer = take(1);
    let reason = Area { height: 0, ..graph };
    let unreadable = reason;
    let body = Area { x: 0, y: host_rows, width, height: between };
    Some(Layout { host, gpus, processes, reason, unreadable, graph, footer, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eighty_by_twenty_four_fits_eight_gpus_and_ten_processes() {
        let layout = divide(80, 24, 8, GraphVisibility::WhenRoomy, true).unwrap();
        assert_eq!((layout.gpus.height, layout.graph.height), (9, 0));
        assert!(layout.processes.height > 10, "{layout:?}");
    }

    #[test]
    fn the_areas_fill_a_screen_of_any_size_and_do_not_overlap() {
        for graph in [GraphVisibility::WhenRoomy, GraphVisibility::Shown, GraphVisibility::Hidden] {
            for (width, height) in (SMALLEST.0..200).step_by(7).zip(SMALLEST.1..120) {
                for gpus in [0, 1, 8, 16, 100] {
                    let it = divide(width, height, gpus, graph, (width + height) % 2 == 0).unwrap();
                    let parts = [it.host, it.gpus, it.processes, it.graph, it.footer];
                    assert_eq!(parts.iter().map(|part| part.height).sum::<u16>(), height, "{it:?}");
                    assert!(it.processes.height >= 2, "{it:?}");
                    let below = |a: &Area, b: &Area| a.y + a.height == b.y;
                    assert!(parts.windows(2).all(|two| below(&two[0], &two[1])), "{it:?}");
                }
            }
        }
    }

    #[test]
    fn below_the_smallest_size_there_is_no_layout() {
        assert_eq!(divide(39, 50, 1, GraphVisibility::Shown, true), None);
        assert_eq!(divide(80, 9, 1, GraphVisibility::Shown, true), None);
    }
}
