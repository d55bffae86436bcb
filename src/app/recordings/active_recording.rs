//! The recording that the user makes of what the viewer receives.

use unicode_width::UnicodeWidthStr;

use crate::app::App;
use crate::app::event::Effect;
use crate::app::graph::export::host_and_time;
use crate::app::lists::gpu_list::gpu_rows;
use crate::base::time::ViewerTime;
use crate::base::units::Elapsed;
use crate::model::HostModel;
use crate::protocol::recorder_report::{RecorderReport, RecorderState};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecordingPhase {
    /// The file is being opened, or lines are written.
    Writing,
    /// Nothing can be written, as on a full disk.
    Paused,
    /// The user stopped the recording, and its end is still to be written.
    Closing,
}

/// A recording from its start until its file is closed.
#[derive(Debug)]
pub(crate) struct ActiveRecording {
    phase: RecordingPhase,
    /// The time since its start.
    age: ViewerTime,
}

impl ActiveRecording {
    pub(in crate::app) fn advance(&mut self, elapsed: ViewerTime) {
        self.age += elapsed;
    }

    /// The words of its badge.
    pub(crate) fn words(&self) -> String {
        match self.phase {
            RecordingPhase::Writing => format!("REC {}", Elapsed(self.age.duration())),
            RecordingPhase::Paused => "REC paused".to_owned(),
            RecordingPhase::Closing => "REC closing".to_owned(),
        }
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.phase == RecordingPhase::Paused
    }
}

impl App {
    pub(in crate::app) fn toggle_recording(&mut self) -> Option<Effect> {
        if self.options.is_recording {
            self.notice
                .set("a recording cannot be recorded: `gputop clip` copies a part of it");
            return None;
        }
        match &mut self.active_recording {
            Some(recording) if recording.phase == RecordingPhase::Closing => {
                self.notice
                    .set("the last recording is still being closed: its disk does not respond");
                None
            }
            Some(recording) => {
                recording.phase = RecordingPhase::Closing;
                Some(Effect::StopRecording)
            }
            None if self
                .data
                .live()
                .hosts()
                .all(|(_, model)| model.latest().is_none()) =>
            {
                self.notice.set("there is nothing to record yet");
                None
            }
            None => {
                self.active_recording = Some(ActiveRecording {
                    phase: RecordingPhase::Writing,
                    age: ViewerTime::default(),
                });
                Some(Effect::StartRecording)
            }
        }
    }

    pub(in crate::app) fn take_recorder_report(
        &mut self,
        report: &RecorderReport,
    ) -> Option<Effect> {
        self.notice.set(with_short_path(
            report.sentence.as_str(),
            usize::from(self.size.0),
        ));
        match (report.state, &mut self.active_recording) {
            (RecorderState::Closed, recording) => *recording = None,
            (
                _,
                Some(ActiveRecording {
                    phase: RecordingPhase::Closing,
                    ..
                })
                | None,
            ) => {}
            (RecorderState::Writing, Some(recording)) => recording.phase = RecordingPhase::Writing,
            (RecorderState::Paused, Some(recording)) => recording.phase = RecordingPhase::Paused,
        }
        None
    }

    /// Returns the name of the file of a recording, without an ending: `HOST-2026-11-23T034112`.
    pub(crate) fn recording_name(&self) -> String {
        let fleet = self.data.live();
        let host = fleet
            .hosts()
            .find(|(_, model)| HostModel::latest(model).is_some());
        let Some((host, _)) = host else {
            return "recording".to_owned();
        };
        let (name, time) = host_and_time(fleet, host);
        let name = match () {
            () if fleet.has_many() => "hosts",
            () if gpu_rows(fleet).any(|row| row.gpu.facts.simulated) => "demo",
            () => &name,
        };
        format!("{name}-{time}")
    }
}

/// Leaves out the first folders of the path in a sentence that is wider than the screen.
fn with_short_path(sentence: &str, width: usize) -> String {
    let mut shown = sentence.to_owned();
    let Some((before, mut path)) = sentence.split_once(" /") else {
        return shown;
    };
    while shown.width() > width
        && let Some((_, rest)) = path.split_once('/')
    {
        path = rest;
        shown = format!("{before} …/{path}");
    }
    shown
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crossterm::event::{KeyCode, KeyEvent};

    use super::*;
    use crate::app::AppOptions;
    use crate::app::event::Event;
    use crate::protocol::host_key::HostKey;
    use crate::protocol::line::Line;
    use crate::protocol::snapshot::example;

    fn press_r(app: &mut App) -> Option<Effect> {
        app.update(Event::Key(KeyEvent::from(KeyCode::Char('R'))))
    }

    /// Reports a state. Returns the badge and the notice.
    fn badge(app: &mut App, state: RecorderState) -> (Option<String>, String) {
        app.update(Event::Recorder(RecorderReport {
            state,
            sentence: format!("{state:?}").into(),
        }));
        (
            app.active_recording.as_ref().map(ActiveRecording::words),
            app.notice.text().unwrap().to_owned(),
        )
    }

    #[test]
    fn the_badge_shows_the_state_of_the_recording_until_it_is_closed() {
        let mut app = App::new(AppOptions::default());
        assert_eq!(press_r(&mut app), None);
        assert_eq!(app.notice.text(), Some("there is nothing to record yet"));
        app.update(Event::Line(
            HostKey::FIRST,
            Box::new(Line::Full(Box::new(example::host(1)))),
        ));
        assert_eq!(press_r(&mut app), Some(Effect::StartRecording));
        app.update(Event::Tick(ViewerTime::new(Duration::from_secs(65))));
        let shown = |words: &str, notice: &str| (Some(words.to_owned()), notice.to_owned());
        assert_eq!(
            badge(&mut app, RecorderState::Writing),
            shown("REC 1m05s", "Writing")
        );
        assert_eq!(
            badge(&mut app, RecorderState::Paused),
            shown("REC paused", "Paused")
        );
        assert_eq!(
            badge(&mut app, RecorderState::Writing),
            shown("REC 1m05s", "Writing")
        );
        assert_eq!(press_r(&mut app), Some(Effect::StopRecording));
        assert_eq!(
            badge(&mut app, RecorderState::Writing),
            shown("REC closing", "Writing")
        );
        assert_eq!(press_r(&mut app), None);
        assert_eq!(
            badge(&mut app, RecorderState::Closed),
            (None, "Closed".to_owned())
        );
        assert_eq!(press_r(&mut app), Some(Effect::StartRecording));
    }

    #[test]
    fn a_path_gives_way_from_its_beginning_until_the_sentence_fits() {
        let sentence =
            "recorded 9s, 4.0 KiB: /home/ada/.local/state/gputop/recordings/gpu-01.jsonl.zst";
        assert_eq!(with_short_path(sentence, 79), sentence);
        assert_eq!(
            with_short_path(sentence, 60),
            "recorded 9s, 4.0 KiB: …/gputop/recordings/gpu-01.jsonl.zst"
        );
        assert_eq!(
            with_short_path(sentence, 1),
            "recorded 9s, 4.0 KiB: …/gpu-01.jsonl.zst"
        );
        assert_eq!(with_short_path("no path", 1), "no path");
    }
}
