//! The page that takes the place of the lists where no host has a GPU.

use super::*;

#[test]
fn without_a_gpu_there_is_no_list_of_processes() {
    let mut host = host(0);
    host.processes.clear();
    for width in [70, 120] {
        let text = screen(
            Theme::new(false, ColourDepth::Sixteen),
            &app_with(&host, width, Settings::default()),
            width,
            24,
        );
        assert!(
            text.contains("finds no GPU on this host") && !text.contains("COMMAND"),
            "{text}"
        );
        for command in [
            "gputop doctor",
            "gputop --demo",
            "gputop --via 'ssh HOST gputop agent'",
            "gputop replay",
            "q quit",
        ] {
            assert!(text.contains(command), "{command}:\n{text}");
        }
        assert!(
            !text.contains("filter"),
            "there is nothing to filter:\n{text}"
        );
    }
}

#[test]
fn the_page_without_a_gpu_goes_when_a_gpu_comes() {
    let mut without = host(0);
    without.processes.clear();
    let mut app = app_with(&without, 120, Settings::default());
    assert!(app.missing_gpus().is_some());
    let with = Snapshot {
        sequence: without.sequence + 1,
        ..host(1)
    };
    let line = Line::Full(Box::new(with));
    app.update(Event::Line(HostKey::FIRST, Box::new(line)));
    assert_eq!(app.missing_gpus(), None);
}
