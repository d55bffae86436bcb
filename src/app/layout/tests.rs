//! The areas of screens of many sizes.

use super::*;

fn screen(width: u16, height: u16, gpus: usize) -> ScreenShape {
    ScreenShape {
        width,
        height,
        gpus,
        waiting_hosts: 0,
        read_hosts: 1,
        gpu_view: GpuView::Auto,
        graph: GraphVisibility::WhenRoomy,
        has_forecast: true,
        processes: 30,
        is_serious: false,
        has_host_line: true,
        has_timeline: false,
    }
}

#[test]
fn eighty_by_twenty_four_fits_eight_gpus_and_ten_processes() {
    let layout = screen(80, 24, 8).divide().unwrap();
    assert_eq!(
        (layout.gpus.height, layout.graph.height, layout.tiles),
        (9, 0, None)
    );
    assert!(layout.processes.height > 10, "{layout:?}");
}

#[test]
fn eighty_by_twenty_four_fits_sixteen_gpus_and_more_scroll() {
    let heights = |gpus, is_serious, graph| {
        let shape = ScreenShape {
            graph,
            is_serious,
            ..screen(80, 24, gpus)
        };
        let layout = shape.divide().unwrap();
        [layout.gpus, layout.processes, layout.graph].map(|area| area.height)
    };
    assert_eq!(heights(16, false, GraphVisibility::WhenRoomy), [17, 5, 0]);
    assert_eq!(heights(16, true, GraphVisibility::WhenRoomy), [17, 4, 0]);
    assert_eq!(heights(32, false, GraphVisibility::WhenRoomy), [10, 12, 0]);
    assert_eq!(
        heights(16, false, GraphVisibility::Shown),
        [10, 5, 7],
        "the user asked for a graph"
    );
}

#[test]
fn gpus_are_tiles_where_these_leave_room() {
    let has_tiles = |width, height, gpus| {
        screen(width, height, gpus)
            .divide()
            .unwrap()
            .tiles
            .is_some()
    };
    assert!(has_tiles(80, 24, 1) && has_tiles(80, 24, 2) && !has_tiles(80, 24, 4));
    assert!(has_tiles(120, 40, 8) && !has_tiles(120, 40, 16) && has_tiles(200, 60, 16));
    let chosen = |gpu_view| {
        ScreenShape {
            gpu_view,
            ..screen(80, 24, 4)
        }
        .divide()
        .unwrap()
        .tiles
        .is_some()
    };
    assert!(chosen(GpuView::Tiles) && !chosen(GpuView::Rows));
}

#[test]
fn rows_that_no_process_needs_are_the_graph_s() {
    let graph = |processes| {
        ScreenShape {
            processes,
            ..screen(120, 66, 4)
        }
        .divide()
        .unwrap()
        .graph
        .height
    };
    assert_eq!([6, 20, 60].map(graph), [27, 16, 16]);
}

#[test]
fn a_graph_without_a_forecast_leaves_a_list_that_is_too_long_more_rows() {
    let rows = |has_forecast| {
        let layout = ScreenShape {
            processes: 60,
            has_forecast,
            ..screen(120, 66, 4)
        }
        .divide()
        .unwrap();
        (layout.processes.height, layout.graph.height)
    };
    assert_eq!([true, false].map(rows), [(17, 16), (27, 6)]);
}

#[test]
fn tiles_fill_the_width_and_do_not_overlap() {
    for (width, gpus) in [(80, 1), (80, 2), (121, 8), (200, 7), (233, 16)] {
        let layout = ScreenShape {
            gpu_view: GpuView::Tiles,
            ..screen(width, 60, gpus)
        }
        .divide()
        .unwrap();
        let grid = layout.tiles.unwrap();
        let tiles: Vec<Area> = (0..gpus).map(|gpu| grid.tile(gpu)).collect();
        assert_eq!((tiles[0].x, tiles[0].y), (layout.gpus.x, layout.gpus.y));
        for two in tiles.windows(2) {
            let is_beside = two[0].x + two[0].width == two[1].x && two[0].y == two[1].y;
            let is_below = two[0].x + two[0].width == width && two[0].y + two[0].height == two[1].y;
            assert!(is_beside || is_below, "{two:?}");
        }
        assert!(
            tiles
                .iter()
                .all(|tile| tile.width >= 30 && tile.y + tile.height <= layout.processes.y)
        );
    }
}

#[test]
fn the_areas_fill_a_screen_of_any_size_and_do_not_overlap() {
    for graph in [
        GraphVisibility::WhenRoomy,
        GraphVisibility::Shown,
        GraphVisibility::Hidden,
    ] {
        for gpu_view in GpuView::VARIANTS.iter().copied() {
            for (width, height) in (SMALLEST.0..200).step_by(7).zip(SMALLEST.1..120) {
                for (gpus, waiting_hosts) in [
                    (0, 0),
                    (1, 0),
                    (8, 0),
                    (16, 3),
                    (100, 1),
                    (0, 1),
                    (0, 40),
                    (2, 40),
                ] {
                    let host = (width + height) % 2 == 0;
                    let is_serious = width % 2 == 0;
                    let processes = width / 4;
                    let timeline = width % 3 == 0;
                    let it = ScreenShape {
                        width,
                        height,
                        gpus,
                        waiting_hosts,
                        read_hosts: usize::from(width) % 3,
                        gpu_view,
                        graph,
                        has_forecast: width % 5 == 0,
                        processes,
                        is_serious,
                        has_host_line: host,
                        has_timeline: timeline,
                    }
                    .divide()
                    .unwrap();
                    let around = |area: Area| if it.has_frames { area.frame() } else { area };
                    let graph = Area {
                        height: it.graph.height + u16::from(it.has_frames && it.graph.height > 0),
                        ..it.graph
                    };
                    assert!(it.waiting_hosts.height > 0 || waiting_hosts == 0, "{it:?}");
                    let gpus = it.gpus_and_hosts();
                    let gpus = if it.tiles.is_some() {
                        gpus
                    } else {
                        around(gpus)
                    };
                    let news = if it.news.height > 0 {
                        around(it.news)
                    } else {
                        it.news
                    };
                    let parts = [
                        it.host,
                        gpus,
                        around(it.processes),
                        graph,
                        news,
                        it.timeline,
                        it.footer,
                    ];
                    assert_eq!(
                        parts.iter().map(|part| part.height).sum::<u16>(),
                        height,
                        "{it:?}"
                    );
                    assert!(it.processes.height >= 2, "{it:?}");
                    assert_eq!(
                        (it.processes.row().x, it.processes.row().width),
                        if it.has_frames {
                            (1, width - 3)
                        } else {
                            (0, width)
                        },
                        "the column that marks whose a row is, beside its line: {it:?}"
                    );
                    let below = |a: &Area, b: &Area| a.y + a.height == b.y;
                    assert!(
                        parts.windows(2).all(|two| below(&two[0], &two[1])),
                        "{it:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn news_have_more_lines_on_a_larger_screen() {
    let lines = |height, is_serious| {
        let news = ScreenShape {
            is_serious,
            ..screen(120, height, 1)
        }
        .divide()
        .unwrap()
        .news;
        news.height
    };
    assert_eq!(
        [24, 30, 44, 45].map(|height| lines(height, false)),
        [0, 2, 2, 4]
    );
    assert_eq!([19, 24, 30].map(|height| lines(height, true)), [0, 1, 2]);
}

#[test]
fn below_the_smallest_size_there_is_no_layout() {
    assert_eq!(screen(39, 50, 1).divide(), None);
    assert_eq!(screen(80, 9, 1).divide(), None);
}
