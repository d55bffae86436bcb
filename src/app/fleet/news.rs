//! The news of all hosts, latest first, and those since the user last looked.

use std::collections::BTreeMap;
use std::time::Duration;

use super::viewer_clock::Clocks;
use crate::app::App;
use crate::app::event::Effect;
use crate::base::time::ViewerTime;
use crate::base::units::{Elapsed, Moment};
use crate::model::{Fleet, HostModel, NewsItem, Past, Severity};
use crate::protocol::host_key::HostKey;

/// A user who presses no key for this long does not look.
const ABSENCE: Duration = Duration::from_mins(10);

/// The time after the first key press in which the user reads the summary.
const READ: Duration = Duration::from_secs(5);

/// The age up to which serious news have a row on a small screen.
const RECENT: Duration = Duration::from_mins(10);

/// A line of the news.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewsLine<'a> {
    pub host: HostKey,
    /// The time since the news: the data time up to the latest line of the host, and the viewer
    /// time since then.
    age: Duration,
    pub item: &'a NewsItem,
}

impl NewsLine<'_> {
    /// Returns the clock time as in `03:58`, or how long ago the news were where no time zone is
    /// known. News of several hosts have the viewer's time.
    pub(crate) fn time(&self, fleet: &Fleet, clocks: &Clocks) -> String {
        let model = fleet.host(self.host);
        let clock = if fleet.has_many() {
            clocks.shared(fleet, self.host)
        } else {
            model.and_then(HostModel::wall_clock)
        };
        clock.zip(model).map_or_else(
            || format!("-{}", Elapsed(self.age)),
            |(clock, model)| clock.near(self.item.at, model.now()),
        )
    }

    /// Returns the sentence; with several hosts, the name of the host comes first.
    pub(crate) fn sentence(&self, fleet: &Fleet) -> String {
        let sentence = &self.item.sentence;
        if fleet.has_many() {
            format!("{}: {sentence}", fleet.name(self.host))
        } else {
            sentence.clone()
        }
    }
}

/// The news of all hosts, latest first.
pub(crate) fn lines(fleet: &Fleet) -> Vec<NewsLine<'_>> {
    let lines = fleet.hosts().flat_map(|(host, model)| {
        model.news().rev().map(move |item| NewsLine {
            host,
            age: model.now().since(item.at) + model.since_latest_line(),
            item,
        })
    });
    let mut lines: Vec<_> = lines.collect();
    lines.sort_by_key(|line| line.age);
    lines
}

/// Whether something serious happened lately.
pub(in crate::app) fn is_serious(fleet: &Fleet) -> bool {
    fleet.hosts().any(|(_, model)| {
        let mut recent = model
            .news()
            .rev()
            .take_while(|item| model.now().since(item.at) < RECENT);
        recent.any(|item| item.severity == Severity::Bad)
    })
}

/// When the user last pressed a key, and the news that were known then.
#[derive(Debug, Default)]
pub(crate) struct LastLook {
    /// The viewer time since the last key press; after an absence, since the one before.
    since: ViewerTime,
    /// The data time of each host at that key press.
    seen: BTreeMap<HostKey, Moment>,
    /// The viewer time since the first key press after an absence.
    returned: Option<ViewerTime>,
}

impl LastLook {
    /// Counts the time since an earlier viewer of the host ended as time in which the user did not
    /// look.
    pub(in crate::app) fn begin_after(&mut self, host: HostKey, past: &Past, fleet: &Fleet) {
        let Some((latest, last_look_ms)) = fleet
            .host(host)
            .and_then(HostModel::latest)
            .zip(past.last_look_ms)
        else {
            return;
        };
        if past.boot_id != latest.host.facts.boot_id {
            return;
        }
        let ago = latest.unix_ms.saturating_sub(last_look_ms);
        self.seen
            .insert(host, Moment(latest.at.0.saturating_sub(ago)));
        self.since = self.since.max(ViewerTime::new(Duration::from_millis(ago)));
    }

    pub(in crate::app) fn press(&mut self, fleet: &Fleet) {
        if self.returned.is_none() && self.summary(fleet).is_some() {
            self.returned = Some(ViewerTime::ZERO);
        } else {
            self.look(fleet);
        }
    }

    pub(in crate::app) fn advance(&mut self, elapsed: ViewerTime, fleet: &Fleet) {
        self.since += elapsed;
        if let Some(returned) = &mut self.returned {
            *returned += elapsed;
            if returned.duration() >= READ {
                self.look(fleet);
            }
        }
    }

    /// Begins anew after a jump of a recording: the news up to there are seen.
    pub(in crate::app) fn restart(&mut self, fleet: &Fleet) {
        self.look(fleet);
    }

    fn look(&mut self, fleet: &Fleet) {
        let seen = fleet
            .hosts()
            .map(|(host, model)| (host, model.now()))
            .collect();
        *self = Self {
            seen,
            ..Self::default()
        };
    }

    /// Returns `News since you last looked (2h10m ago): 3 ended, 1 leak`; `None` while the user is
    /// there, and without such news.
    pub(crate) fn summary(&self, fleet: &Fleet) -> Option<String> {
        if self.since.duration() < ABSENCE {
            return None;
        }
        let mut counts: Vec<(&str, usize)> = Vec::new();
        for (host, model) in fleet.hosts() {
            let seen = self.seen.get(&host).copied().unwrap_or_default();
            for word in model
                .news()
                .filter(|item| item.at > seen)
                .filter_map(|item| item.kind.summary_word())
            {
                match counts.iter_mut().find(|(known, _)| *known == word) {
                    Some((_, count)) => *count += 1,
                    None => counts.push((word, 1)),
                }
            }
        }
        let counts: Vec<String> = counts
            .iter()
            .map(|(word, count)| format!("{count} {word}"))
            .collect();
        let ago = Elapsed(self.since.duration());
        (!counts.is_empty()).then(|| {
            format!(
                "News since you last looked ({ago} ago): {}",
                counts.join(", ")
            )
        })
    }
}

impl App {
    /// The fleet as it is now, also while the screen is paused.
    pub(crate) fn live_fleet(&self) -> &Fleet {
        self.data.live()
    }

    pub(in crate::app) fn begin_after(&mut self, host: HostKey, past: &Past) -> Option<Effect> {
        self.data.live_mut().begin_after(host, past);
        self.last_look.begin_after(host, past, self.data.live());
        None
    }
}

#[cfg(test)]
mod tests {
    use crossterm::event::{KeyCode, KeyEvent};

    use super::*;
    use crate::app::event::Event;
    use crate::app::{App, AppOptions};
    use crate::base::units::Bytes;
    use crate::protocol::line::Line;
    use crate::protocol::snapshot::{Snapshot, example};

    fn see(app: &mut App, host: &Snapshot) {
        app.update(Event::Line(
            HostKey::FIRST,
            Box::new(Line::Full(Box::new(host.clone()))),
        ));
    }

    fn pass(app: &mut App, time: Duration) {
        app.update(Event::Tick(ViewerTime::new(time)));
    }

    fn summary(app: &App) -> Option<String> {
        app.last_look.summary(app.fleet())
    }

    /// An app whose user pressed a key, and then none for two hours, in which two processes ended.
    fn away() -> App {
        let mut app = App::new(AppOptions::default());
        app.update(Event::Resized(120, 40));
        let host = example::host(1);
        let memory = Bytes::from_gib(4);
        let with =
            host.clone()
                .with(101, "python a.py", 0, memory)
                .with(102, "python b.py", 0, memory);
        see(&mut app, &with);
        see(&mut app, &with.later(1));
        app.update(Event::Key(KeyEvent::from(KeyCode::Down)));
        pass(&mut app, Duration::from_mins(5));
        see(&mut app, &host.later(300));
        assert_eq!(summary(&app), None, "the user may be there");
        pass(&mut app, Duration::from_mins(115));
        see(&mut app, &host.later(7200));
        app
    }

    #[test]
    fn after_an_absence_the_news_are_summed_up_until_the_second_key() {
        let mut app = away();
        let expected = "News since you last looked (2h00m ago): 2 ended";
        assert_eq!(summary(&app).as_deref(), Some(expected));
        app.update(Event::Key(KeyEvent::from(KeyCode::Down)));
        assert_eq!(
            summary(&app).as_deref(),
            Some(expected),
            "the user has just come back"
        );
        app.update(Event::Key(KeyEvent::from(KeyCode::Down)));
        assert_eq!(summary(&app), None);
    }

    #[test]
    fn the_summary_goes_five_seconds_after_the_first_key() {
        let mut app = away();
        app.update(Event::Key(KeyEvent::from(KeyCode::Down)));
        pass(&mut app, Duration::from_secs(4));
        assert!(summary(&app).is_some());
        pass(&mut app, Duration::from_secs(1));
        assert_eq!(summary(&app), None);
    }
}
