//! The areas of the screen. The app needs them to find what was clicked and how long a page is; the
//! view draws into them.

use strum::VariantArray;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Area {
    pub x: u16,
    pub y: u16,
    pub width: u16,
    /// The height in rows; 0 if there is no room.
    pub height: u16,
}

impl Area {
    /// The area in a frame: without the edges, and without a blank column beside each.
    pub(crate) fn inner(self) -> Self {
        Self {
            x: self.x + 2,
            y: self.y + 1,
            width: self.width.saturating_sub(4),
            height: self.height.saturating_sub(2),
        }
    }

    /// The area with the frame around it.
    pub(crate) fn frame(self) -> Self {
        Self {
            x: self.x - 2,
            y: self.y - 1,
            width: self.width + 4,
            height: self.height + 2,
        }
    }

    /// The rows of a list, with the column at the left that marks whose each row is.
    pub(crate) fn row(self) -> Self {
        Self {
            x: self.x.saturating_sub(1),
            width: self.width + 1,
            ..self
        }
    }

    pub(crate) fn contains(self, x: u16, y: u16) -> bool {
        (self.x..self.x.saturating_add(self.width)).contains(&x)
            && (self.y..self.y.saturating_add(self.height)).contains(&y)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Layout {
    /// The host line: one row or none.
    pub host: Area,
    /// The list of GPUs, headings first, or their tiles.
    pub gpus: Area,
    /// The rows of hosts from which no line has come, below the GPUs and in their frame. No rows
    /// otherwise.
    pub waiting_hosts: Area,
    /// `None` if each GPU has a row of the list.
    pub tiles: Option<TileGrid>,
    /// The list of processes, headings first.
    pub processes: Area,
    /// Below the list of suspects: the reason for the process under the cursor. No rows otherwise.
    pub reason: Area,
    /// The note that allocator stats are not known, below a list that has no room for the reasons.
    /// No rows otherwise.
    pub unread_note: Area,
    pub graph: Area,
    /// The latest news. No rows while there are none, and on a small screen.
    pub news: Area,
    /// The timeline of a replay, above the last row. No rows otherwise.
    pub timeline: Area,
    /// The last row: the most useful keys, a notice, or the text being typed.
    pub footer: Area,
    pub body: Area,
    /// Whether the lists and the graph have frames, which surround their areas.
    pub has_frames: bool,
}

/// How the screen shows the GPUs.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, VariantArray, strum::Display, strum::IntoStaticStr,
)]
#[strum(serialize_all = "lowercase")]
pub enum GpuView {
    /// As tiles where these leave enough room for the processes, else as rows.
    #[default]
    Auto,
    /// As tiles, also if they leave little room.
    Tiles,
    /// As tiles that show use alone: memory that stays the same says little.
    Use,
    /// One row for each.
    Rows,
}

impl GpuView {
    /// The view that the `v` key chooses next.
    #[must_use]
    pub fn next(self) -> Self {
        match self {
            Self::Auto => Self::Tiles,
            Self::Tiles => Self::Use,
            Self::Use => Self::Rows,
            Self::Rows => Self::Auto,
        }
    }
}

/// The places of tiles of equal size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TileGrid {
    area: Area,
    /// The number of tiles beside each other.
    pub columns: u16,
    /// The rows of each tile.
    height: u16,
}

impl TileGrid {
    /// The narrowest tile: frame, label, bar and figures.
    const NARROWEST: u16 = 30;
    /// The fewest rows of a tile: memory, use, history and processes, and the frame. More rows are
    /// for the history.
    const LOWEST: u16 = 6;
    const HIGHEST: u16 = 16;
    /// The least height of tiles of which more are put below each other, where fewer rows of them
    /// would fit too: wide tiles show more of the past.
    const ROOMY: u16 = 9;

    /// The number of columns, and of rows of tiles, for this many tiles on this many lines; `None`
    /// if the screen is too narrow.
    fn shape(width: u16, lines: u16, tiles: usize) -> Option<(u16, u16)> {
        let tiles = u16::try_from(tiles).ok().filter(|tiles| *tiles > 0)?;
        let most = (width / Self::NARROWEST).min(tiles);
        let mut rows = tiles.div_ceil((most > 0).then_some(most)?);
        // More rows of wider tiles, where each of them is full.
        let is_roomy = |rows: &u16| lines / rows >= Self::ROOMY;
        let is_full = |rows: &u16| tiles % rows == 0;
        if let Some(more) = (rows..=tiles).take_while(is_roomy).filter(is_full).last() {
            rows = more;
        }
        // The last row is as full as the others, where that is possible.
        Some((tiles.div_ceil(rows), rows))
    }

    /// The area of a tile. The tiles of a row share its width.
    pub(crate) fn tile(&self, gpu: usize) -> Area {
        let (row, column) = (
            gpu / usize::from(self.columns),
            gpu % usize::from(self.columns),
        );
        let (row, column) = (
            u16::try_from(row).unwrap_or(u16::MAX),
            u16::try_from(column).unwrap_or(u16::MAX),
        );
        let edge = |column: u16| {
            let width = u32::from(self.area.width) * u32::from(column) / u32::from(self.columns);
            self.area.x + u16::try_from(width).unwrap_or(u16::MAX)
        };
        let (x, end) = (edge(column), edge(column + 1));
        Area {
            x,
            y: self.area.y + row * self.height,
            width: end - x,
            height: self.height,
        }
    }
}

/// A screen of this width shows a page with its graph beside it.
const BESIDE_PAGE: u16 = 160;

/// A screen with a body of this height shows a page with its graph above it.
const ABOVE_PAGE: u16 = 34;

/// The most rows of a graph above a page.
const HIGHEST_ABOVE_PAGE: u16 = 16;

/// Divides the body of the screen for the page of a GPU or process: the page, and its graph, which
/// is beside it on a wide screen, and else above it where that is wanted. The graph has no rows
/// where there is no room for it.
pub(crate) fn page_and_graph(body: Area, may_be_above: bool) -> (Area, Area) {
    if body.width >= BESIDE_PAGE {
        let graph = body.width / 2;
        return (
            Area {
                x: body.x + graph + 1,
                width: body.width - graph - 1,
                ..body
            },
            Area {
                width: graph,
                ..body
            },
        );
    }
    let graph = if may_be_above && body.height >= ABOVE_PAGE {
        (body.height / 3).min(HIGHEST_ABOVE_PAGE)
    } else {
        0
    };
    (
        Area {
            y: body.y + graph,
            height: body.height - graph,
            ..body
        },
        Area {
            height: graph,
            ..body
        },
    )
}

/// The smallest screen that shows more than one line, in columns and rows.
pub(crate) const SMALLEST: (u16, u16) = (40, 10);

/// The fewest rows of the list of processes beside a graph, headings included.
const PROCESSES: u16 = 4;

/// The rows that the list of processes keeps beside a graph that the user did not ask for, headings
/// included.
const FEWEST_BESIDE_GRAPH: u16 = 6;

/// The rows of a graph: its head, its time axis, and enough between them to be readable.
const GRAPH: std::ops::RangeInclusive<u16> = 7..=40;

impl Layout {
    /// The rows of the reason on a narrow screen.
    const REASON: u16 = 4;

    /// The fewest rows of a list of processes with the reason below.
    pub(super) const WITH_REASON: u16 = PROCESSES + Self::REASON;

    /// The area of the panel of settings: below the first processes, so that the lists show what a
    /// setting changes.
    pub(crate) fn settings_panel(&self) -> Area {
        /// The processes that stay visible, with their headings.
        const KEPT: u16 = 4;
        /// The fewest rows of the panel, its head included.
        const FEWEST: u16 = 8;
        let kept =
            (self.processes.y - self.body.y + KEPT).min(self.body.height.saturating_sub(FEWEST));
        Area {
            y: self.body.y + kept,
            height: self.body.height - kept,
            ..self.body
        }
    }

    /// The areas of a screen of this size with nothing in its body; `None` if it is smaller than
    /// [`SMALLEST`].
    pub(super) fn without_lists(width: u16, height: u16, has_timeline: bool) -> Option<Self> {
        if width < SMALLEST.0 || height < SMALLEST.1 {
            return None;
        }
        let row = |y: u16, height: u16| Area {
            x: 0,
            y,
            width,
            height,
        };
        let timeline = u16::from(has_timeline);
        Some(Self {
            host: row(0, 1),
            body: row(1, height - 2 - timeline),
            timeline: row(height - 1 - timeline, timeline),
            footer: row(height - 1, 1),
            ..Self::default()
        })
    }

    /// The GPUs and the hosts below them.
    pub(crate) fn gpus_and_hosts(&self) -> Area {
        Area {
            height: self.gpus.height + self.waiting_hosts.height,
            ..self.gpus
        }
    }

    /// The same layout with room for the reason below the list of suspects, if enough rows of the
    /// list remain.
    pub(super) fn with_reason(mut self) -> Self {
        let rows = if self.processes.width < 100 {
            Self::REASON
        } else {
            Self::REASON - 1
        };
        if self.processes.height >= PROCESSES + rows {
            self.processes.height -= rows;
            let y = self.processes.y + self.processes.height;
            self.reason = Area {
                y,
                height: rows,
                ..self.processes
            };
        }
        self
    }

    /// Whether these sentences fit below this many processes, with a blank row between.
    pub(super) fn has_room_for(&self, sentences: &[String], processes: usize) -> bool {
        processes + 2 + rows_of(sentences, self.processes.width.into())
            <= usize::from(self.processes.height)
    }

    /// The same layout with a row for the note about allocator stats, if enough rows of the list
    /// remain.
    pub(super) fn with_unread(mut self) -> Self {
        if self.processes.height > 2 * PROCESSES {
            self.processes.height -= 1;
            let y = self.processes.y + self.processes.height;
            self.unread_note = Area {
                y,
                height: 1,
                ..self.processes
            };
        }
        self
    }
}

/// The rows of sentences on lines of this width. A tenth of each row counts as lost to word wrap.
pub(super) fn rows_of(sentences: &[String], width: usize) -> usize {
    sentences
        .iter()
        .map(|sentence| sentence.len() / (width * 9 / 10).max(1) + 1)
        .sum()
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

/// The smallest screen with frames around the lists and the graph.
const FRAMED: (u16, u16) = (100, 30);

/// The facts that determine the areas of a screen.
#[derive(Debug, Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts that depend on nothing"
)]
pub(crate) struct ScreenShape {
    pub width: u16,
    pub height: u16,
    pub gpus: usize,
    /// The number of hosts from which no line has come, and which have a row.
    pub waiting_hosts: usize,
    /// The number of the other hosts.
    pub read_hosts: usize,
    pub gpu_view: GpuView,
    pub graph: GraphVisibility,
    /// Whether memory grows so that its graph matters more than the last rows of the list.
    pub has_forecast: bool,
    /// The rows that the list of processes needs, heading and sentences below included. The graph
    /// may take the others.
    pub processes: u16,
    /// Whether one of the latest news is serious, and so has a row on a small screen too.
    pub is_serious: bool,
    /// Whether the host line is shown.
    pub has_host_line: bool,
    /// Whether there is a timeline.
    pub has_timeline: bool,
}

/// The number of rows of each area, frames included.
struct LayoutRows {
    host: u16,
    /// The rows of the GPUs and of the waiting hosts below them.
    gpus: u16,
    waiting: u16,
    /// The number of tiles beside each other and below each other, and the height of each; `None`
    /// for a list.
    tiles: Option<(u16, u16, u16)>,
    processes: u16,
    graph: u16,
    news: u16,
    timeline: u16,
}

impl ScreenShape {
    /// Divides the screen into areas; `None` if it is smaller than [`SMALLEST`].
    pub(crate) fn divide(self) -> Option<Layout> {
        let Self { width, height, .. } = self;
        if width < SMALLEST.0 || height < SMALLEST.1 {
            return None;
        }
        let has_frames = width >= FRAMED.0 && height >= FRAMED.1;
        let rows = self.rows(has_frames);
        let mut top = 0;
        let mut take = |height: u16| {
            let area = Area {
                x: 0,
                y: top,
                width,
                height,
            };
            top += height;
            area
        };
        let host = take(rows.host);
        let gpus = take(rows.gpus);
        let tiles = rows.tiles.map(|(columns, _, height)| TileGrid {
            area: gpus,
            columns,
            height,
        });
        let processes = take(rows.processes);
        let graph = take(rows.graph);
        let news = take(rows.news);
        let timeline = take(rows.timeline);
        let footer = take(1);
        let inside = |area: Area| if has_frames { area.inner() } else { area };
        // The first column marks whose each row is.
        let list = |area: Area| {
            if has_frames {
                area.inner()
            } else {
                Area {
                    x: 1,
                    width: width - 1,
                    ..area
                }
            }
        };
        let below = Area { height: 0, ..graph };
        let gpus = if tiles.is_some() { gpus } else { list(gpus) };
        let waiting_rows = rows.waiting.min(gpus.height);
        let gpus = Area {
            height: gpus.height - waiting_rows,
            ..gpus
        };
        Some(Layout {
            host,
            gpus,
            waiting_hosts: Area {
                y: gpus.y + gpus.height,
                height: waiting_rows,
                ..gpus
            },
            tiles,
            processes: list(processes),
            reason: below,
            unread_note: below,
            // The head of a graph is on its frame.
            graph: if has_frames {
                Area {
                    y: graph.y,
                    height: graph.height.saturating_sub(1),
                    ..graph.inner()
                }
            } else {
                graph
            },
            news: if rows.news > 0 { inside(news) } else { news },
            timeline,
            footer,
            body: Area {
                x: 0,
                y: rows.host,
                width,
                height: self.between(),
            },
            has_frames,
        })
    }

    /// The rows between the host line above and the timeline and footer below.
    fn between(self) -> u16 {
        self.height - 1 - u16::from(self.has_host_line) - u16::from(self.has_timeline)
    }

    /// Divides the height of the screen.
    fn rows(self, has_frames: bool) -> LayoutRows {
        let news_lines = self.news_lines();
        let news = if has_frames && news_lines > 0 {
            news_lines + 2
        } else {
            news_lines
        };
        let lists = self.between() - news;
        let waiting = self.waiting_rows(lists);
        let for_gpus = lists - waiting;
        let tiles = self.tiles(for_gpus);
        let gpu_rows = tiles.map_or_else(
            || self.gpu_rows(for_gpus, has_frames),
            |(_, rows, height)| rows * height,
        );
        let gpus = gpu_rows + waiting;
        let rest = lists - gpus;
        // The frame around the list of processes takes two rows.
        let graph = self.graph_rows(if has_frames { rest - 2 } else { rest });
        LayoutRows {
            host: u16::from(self.has_host_line),
            gpus,
            waiting,
            tiles,
            processes: rest - graph,
            graph,
            news,
            timeline: u16::from(self.has_timeline),
        }
    }

    /// The number of tiles beside each other and below each other, and the height of each; `None`
    /// for a list.
    fn tiles(self, between: u16) -> Option<(u16, u16, u16)> {
        let fair = between * 2 / 5;
        let most = match self.gpu_view {
            GpuView::Auto => fair,
            GpuView::Tiles | GpuView::Use => between.saturating_sub(PROCESSES + 2),
            GpuView::Rows => return None,
        };
        let (columns, rows) = TileGrid::shape(self.width, fair, self.gpus)?;
        let height = (fair / rows).clamp(TileGrid::LOWEST, TileGrid::HIGHEST);
        (rows.saturating_mul(height) <= most).then_some((columns, rows, height))
    }

    /// The lines of news: more on a larger screen, and there whether there are news or not, so that
    /// nothing moves when the first ones come.
    fn news_lines(self) -> u16 {
        match self.height {
            ..20 => 0,
            20..30 => u16::from(self.is_serious),
            30..45 => 2,
            _ => 4,
        }
    }

    /// The rows of hosts from which no line has come: a quarter of the lists at most.
    fn waiting_rows(self, lists: u16) -> u16 {
        u16::try_from(self.waiting_hosts)
            .unwrap_or(u16::MAX)
            .min((lists / 4).max(1))
    }

    /// The rows of the list of GPUs.
    fn gpu_rows(self, between: u16, has_frames: bool) -> u16 {
        let frame = if has_frames { 2 } else { 0 };
        let wanted = match self.gpus {
            // The rows of the hosts say why no GPU is known.
            0 if self.waiting_hosts > 0 && self.read_hosts == 0 => 0,
            // Without a GPU the area explains why in a few lines.
            0 => 4,
            gpus => u16::try_from(gpus).unwrap_or(u16::MAX).saturating_add(1),
        };
        let wanted = wanted.saturating_add(frame);
        let graph = if self.graph == GraphVisibility::Shown {
            *GRAPH.start()
        } else {
            0
        };
        if wanted <= between.saturating_sub(PROCESSES + frame + graph) {
            return wanted;
        }
        // A list that scrolls leaves half of the screen to the processes.
        wanted.min(between / 2 - 1).max(wanted.min(3)).min(between)
    }

    /// The rows of the graph, of those that are free for it and the processes.
    fn graph_rows(self, free: u16) -> u16 {
        let rows = match self.graph {
            GraphVisibility::Hidden => 0,
            GraphVisibility::Shown => free
                .saturating_sub(PROCESSES)
                .min((free * 3 / 5).max(*GRAPH.start())),
            GraphVisibility::WhenRoomy if free > 11 + GRAPH.start() => {
                let unused = free.saturating_sub(self.processes.max(FEWEST_BESIDE_GRAPH));
                let fair = if self.has_forecast {
                    (free - 11).min(free / 2)
                } else {
                    *GRAPH.start()
                };
                fair.max(unused)
            }
            GraphVisibility::WhenRoomy => 0,
        };
        if rows < 4 { 0 } else { rows.min(*GRAPH.end()) }
    }
}

#[cfg(test)]
mod tests;
