//! The state of the cluster view: the hosts that a Prometheus server knows, with a cursor, a filter
//! and an order, and the questions that are due.
//!
//! [`ClusterApp::update`] takes each event and returns the effects that the session is to perform.

mod cluster_input;
mod cluster_rows;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tui_input::Input;

pub(crate) use self::cluster_input::KEYS;
pub(crate) use self::cluster_rows::{ClusterRow, ClusterTotals};
use super::fleet::fleet_areas::{FleetAreas, FleetShape};
use super::fleet::host_sort::HostSort;
use super::input::notice::Notice;
use super::layout::Area;
use crate::base::terminal::Background;
use crate::base::time::{ViewerClock, ViewerTime};
use crate::model::cluster::{
    Cluster, ClusterHostId, ClusterRound, ClusterTrouble, RoundKind, TroubleKnowledge,
};
use crate::protocol::series::{QuestionSpan, SeriesAnswer, SeriesQuestion};

/// The least time between two rounds of questions about all hosts.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(15);

/// The rounds of totals after which the exporters are looked for again.
const LOOKS_AGAIN: u32 = 20;

/// The past that the graphs show, and the time between two of its points.
pub(crate) const PAST: QuestionSpan = QuestionSpan {
    length: Duration::from_hours(1),
    step: Duration::from_mins(1),
};

/// The rows of the panel with the GPUs of the host under the cursor, and the least height of the
/// screen's body with a panel.
const PANEL_ROWS: u16 = 9;
const BODY_WITH_PANEL: u16 = 20;

/// Answers that are older say nothing about the present.
const OUTDATED: Duration = Duration::from_mins(5);

/// The most hosts whose GPUs are asked for at once.
const MOST_HOSTS_IN_ROWS: usize = 400;

/// An event of the cluster view.
#[derive(Debug)]
pub(crate) enum ClusterEvent {
    Key(crossterm::event::KeyEvent),
    Mouse(crossterm::event::MouseEvent),
    Paste(String),
    Resized(u16, u16),
    Background(Background),
    Clock(ViewerClock),
    /// Time has passed.
    Tick(ViewerTime),
    /// The server has answered the questions of a round, or could not.
    Answered(RoundKind, u64, Result<Vec<SeriesAnswer>, String>),
    /// A sentence for the user.
    Said(String),
}

/// An effect that the session is to perform.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ClusterEffect {
    /// Ask the server: the kind of the round, its number, and the questions.
    Ask(RoundKind, u64, Vec<SeriesQuestion>),
    /// Open this host over ssh.
    Open(String),
    Redraw,
    Suspend,
    Quit,
}

/// The list on the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ClusterList {
    #[default]
    Hosts,
    AllGpus,
}

/// The layer over the lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ClusterMode {
    #[default]
    Lists,
    /// The filter is being typed.
    Filter,
    Help,
}

/// A place in a list, and the first line of the list on the screen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ListPlace {
    pub(crate) cursor: usize,
    pub(crate) first: usize,
}

/// The areas of the screen.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ClusterAreas {
    pub(crate) header: Area,
    pub(crate) fleet: FleetAreas,
    /// The GPUs and the past of the host under the cursor; no row where there is no room.
    pub(crate) panel: Area,
    /// All GPUs, in place of the hosts.
    pub(crate) gpus: Area,
    pub(crate) footer: Area,
}

/// A failure of the server, and the time since the first one.
#[derive(Debug, Clone)]
pub(crate) struct ServerTrouble {
    pub(crate) sentence: String,
    pub(crate) age: ViewerTime,
}

/// The state of the cluster view.
#[derive(Debug)]
pub(crate) struct ClusterApp {
    /// The server, as it was typed.
    pub(crate) server: String,
    pub(crate) cluster: Cluster,
    pub(crate) size: (u16, u16),
    pub(crate) areas: ClusterAreas,
    pub(crate) list: ClusterList,
    pub(crate) mode: ClusterMode,
    pub(crate) filter: Input,
    pub(crate) sort: HostSort,
    pub(crate) is_inverted: bool,
    /// The hosts that the filter lets through, in their order.
    pub(crate) hosts: Vec<ClusterHostId>,
    /// The GPUs that the filter lets through, in their order: the host, and the place on it.
    pub(crate) gpus: Vec<(ClusterHostId, usize)>,
    pub(crate) host_place: ListPlace,
    pub(crate) gpu_place: ListPlace,
    pub(crate) trouble_place: ListPlace,
    /// Whether the cursor is in the troubles.
    pub(crate) is_in_troubles: bool,
    pub(crate) troubles: Vec<ClusterTrouble>,
    pub(crate) totals: ClusterTotals,
    /// The hosts with free GPUs, the most first.
    free: Vec<(ClusterHostId, usize)>,
    /// The host under the cursor, which the cursor follows; `None` until the user moves it.
    selected: Option<ClusterHostId>,
    pub(crate) server_trouble: Option<ServerTrouble>,
    pub(crate) notice: Notice,
    pub(crate) clock: Option<ViewerClock>,
    pub(crate) background: Option<Background>,
    /// The rounds that were asked for and not answered, by their kinds.
    asked: BTreeMap<RoundKind, (u64, ClusterRound)>,
    next_round: u64,
    /// The time until the totals are asked for again.
    due_in: ViewerTime,
    /// The times since the totals and the rows were answered.
    pub(crate) since_totals: ViewerTime,
    pub(crate) since_rows: ViewerTime,
    /// The rounds of totals so far.
    rounds: u32,
    /// The hosts whose GPUs and past were asked for last.
    rows_of: Vec<ClusterHostId>,
    /// The kinds of rounds that need not be asked for again before new totals come, or ever: the hosts
    /// whose samples ended before gputop began.
    done: BTreeSet<RoundKind>,
}

impl ClusterApp {
    /// Returns the state before the first answer. The first event brings the first question.
    pub(crate) fn new(server: String, filter: &str) -> Self {
        Self {
            server,
            cluster: Cluster::default(),
            size: (0, 0),
            areas: ClusterAreas::default(),
            list: ClusterList::default(),
            mode: ClusterMode::default(),
            filter: Input::new(filter.to_owned()),
            sort: HostSort::default(),
            is_inverted: false,
            hosts: Vec::new(),
            gpus: Vec::new(),
            host_place: ListPlace::default(),
            gpu_place: ListPlace::default(),
            trouble_place: ListPlace::default(),
            is_in_troubles: false,
            troubles: Vec::new(),
            totals: ClusterTotals::default(),
            free: Vec::new(),
            selected: None,
            server_trouble: None,
            notice: Notice::default(),
            clock: None,
            background: None,
            asked: BTreeMap::new(),
            next_round: 0,
            due_in: ViewerTime::ZERO,
            since_totals: ViewerTime::ZERO,
            since_rows: ViewerTime::ZERO,
            rounds: 0,
            rows_of: Vec::new(),
            done: BTreeSet::new(),
        }
    }

    /// Takes an event in, and returns what is to be done. A question that is not asked then is never
    /// asked.
    #[must_use]
    pub(crate) fn update(&mut self, event: ClusterEvent) -> Vec<ClusterEffect> {
        let mut effects = Vec::new();
        let is_change = !matches!(event, ClusterEvent::Tick(_) | ClusterEvent::Clock(_));
        match event {
            ClusterEvent::Key(key) => {
                self.notice.clear();
                effects.extend(self.press(key));
            }
            ClusterEvent::Mouse(mouse) => effects.extend(self.click(mouse)),
            ClusterEvent::Paste(text) => self.paste(&text),
            ClusterEvent::Resized(columns, rows) => self.size = (columns, rows),
            ClusterEvent::Background(background) => self.background = Some(background),
            ClusterEvent::Clock(clock) => self.clock = Some(clock),
            ClusterEvent::Said(sentence) => self.notice.set(sentence),
            ClusterEvent::Tick(elapsed) => self.advance(elapsed),
            ClusterEvent::Answered(kind, number, answers) => self.take(kind, number, answers),
        }
        if is_change {
            self.settle();
        }
        // The questions before come first: a slow server must not be asked for totals alone. But
        // troubles are shown as soon as they can be.
        let may_ask = if self.cluster.trouble_knowledge == TroubleKnowledge::NotAsked {
            !self.awaits(RoundKind::Totals)
        } else {
            self.asked.is_empty()
        };
        if self.due_in == ViewerTime::ZERO && may_ask {
            effects.push(self.ask_for_totals());
        }
        if is_change {
            effects.extend(self.ask_for_rest());
        }
        effects
    }

    fn advance(&mut self, elapsed: ViewerTime) {
        self.notice.advance(elapsed);
        self.since_totals += elapsed;
        self.since_rows += elapsed;
        if let Some(clock) = &mut self.clock {
            *clock += elapsed;
        }
        if let Some(trouble) = &mut self.server_trouble {
            trouble.age += elapsed;
        }
        self.due_in = self.due_in.left_after(elapsed).unwrap_or(ViewerTime::ZERO);
    }

    /// The time between two rounds of questions about all hosts.
    pub(crate) fn interval(&self) -> Duration {
        let between_samples = self.cluster.interval.unwrap_or_default();
        between_samples.max(SHORTEST_INTERVAL)
    }

    fn ask(&mut self, round: ClusterRound) -> ClusterEffect {
        self.next_round += 1;
        let (number, kind) = (self.next_round, round.kind);
        let questions = round.questions.clone();
        self.asked.insert(kind, (number, round));
        ClusterEffect::Ask(kind, number, questions)
    }

    fn ask_for_totals(&mut self) -> ClusterEffect {
        let looks_again = self.rounds.is_multiple_of(LOOKS_AGAIN);
        if looks_again && self.cluster.has_silent_hosts() {
            // They may have other names now.
            self.done.remove(&RoundKind::Ended);
        }
        let round = self.cluster.totals_round(looks_again);
        self.rounds = self.rounds.wrapping_add(1);
        self.ask(round)
    }

    /// Asks at once, at the request of the user.
    fn ask_now(&mut self) {
        (self.due_in, self.rounds) = (ViewerTime::ZERO, 0);
    }

    /// Asks for what the screen shows beside the totals: the GPUs and the past of its hosts, if they
    /// are others than before, all GPUs while these are listed, and the words of all hosts for a
    /// filter.
    fn ask_for_rest(&mut self) -> Vec<ClusterEffect> {
        let mut effects = Vec::new();
        let shown = self.shown_hosts();
        if !shown.iter().all(|host| self.rows_of.contains(host)) {
            self.rows_of.clone_from(&shown);
            let rows = self.cluster.rows_round(shown.clone());
            let past = self.cluster.past_round(shown, PAST);
            effects.extend([self.ask(rows), self.ask(past)]);
        }
        let wanted = [
            (RoundKind::AllGpus, self.list == ClusterList::AllGpus),
            (RoundKind::Words, !self.filter.value().trim().is_empty()),
            // Only after the hosts that are there.
            (RoundKind::Ended, !self.rows_of.is_empty()),
        ];
        for (kind, is_wanted) in wanted {
            if is_wanted && !self.awaits(kind) && self.done.insert(kind) {
                let round = match kind {
                    RoundKind::AllGpus => self.cluster.all_gpus_round(),
                    RoundKind::Words => self.cluster.words_round(),
                    _ => self.cluster.ended_round(),
                };
                effects.push(self.ask(round));
            }
        }
        effects
    }

    /// The hosts on the screen.
    fn shown_hosts(&self) -> Vec<ClusterHostId> {
        match self.list {
            ClusterList::Hosts => {
                let count = self.areas.fleet.capacity().min(MOST_HOSTS_IN_ROWS);
                let shown = self.hosts.iter().skip(self.host_place.first).take(count);
                shown.cloned().collect()
            }
            // All GPUs were asked for.
            ClusterList::AllGpus => Vec::new(),
        }
    }

    fn take(&mut self, kind: RoundKind, number: u64, answers: Result<Vec<SeriesAnswer>, String>) {
        let Some((known, round)) = self.asked.remove(&kind) else {
            return;
        };
        if known != number {
            self.asked.insert(kind, (known, round));
            return;
        }
        if kind == RoundKind::Totals {
            // From the answer on: a slow server gets as much time.
            self.due_in = ViewerTime::new(self.interval());
        }
        let answers = match answers {
            Ok(answers) => answers,
            Err(sentence) => {
                let before = self.server_trouble.take();
                let age = before.map_or(ViewerTime::ZERO, |trouble| trouble.age);
                self.server_trouble = Some(ServerTrouble { sentence, age });
                return;
            }
        };
        self.server_trouble = None;
        let is_unfinished = self.cluster.take(&round, &answers);
        match kind {
            RoundKind::Totals => self.since_totals = ViewerTime::ZERO,
            RoundKind::Rows | RoundKind::AllGpus => self.since_rows = ViewerTime::ZERO,
            _ => {}
        }
        if kind == RoundKind::Totals {
            // The rows are as old as the totals were.
            self.rows_of.clear();
            self.done.retain(|kind| *kind == RoundKind::Ended);
            if is_unfinished {
                self.due_in = ViewerTime::ZERO;
            }
            // A server that refuses the first questions answers nothing at all.
            let refusal = self.cluster.warning();
            if let Some(refusal) = refusal.filter(|_| self.cluster.exporters().is_empty()) {
                self.server_trouble = Some(ServerTrouble {
                    sentence: refusal.to_string(),
                    age: ViewerTime::ZERO,
                });
            }
        }
    }

    /// Whether the latest answers are too old to say anything about the present.
    pub(crate) fn is_outdated(&self) -> bool {
        self.since_totals.duration() > OUTDATED
    }

    /// Whether this round is still to be answered.
    pub(crate) fn awaits(&self, kind: RoundKind) -> bool {
        self.asked.contains_key(&kind)
    }

    /// The host under the cursor; `None` without hosts.
    pub(crate) fn selected_host(&self) -> Option<&ClusterHostId> {
        match self.list {
            ClusterList::Hosts => self.hosts.get(self.host_place.cursor),
            ClusterList::AllGpus => {
                let (host, _) = self.gpus.get(self.gpu_place.cursor)?;
                Some(host)
            }
        }
    }

    /// Brings the lists, the cursors and the areas up to date.
    fn settle(&mut self) {
        self.sort_hosts();
        self.sort_gpus();
        self.troubles = self.cluster.troubles();
        self.add_up();
        let (width, height) = self.size;
        let row = |y: u16| Area {
            x: 0,
            y,
            width,
            height: 1,
        };
        let body = Area {
            x: 1,
            y: 1,
            width: width.saturating_sub(2),
            height: height.saturating_sub(2),
        };
        let panel = if body.height >= BODY_WITH_PANEL && self.list == ClusterList::Hosts {
            PANEL_ROWS.min(body.height * 2 / 5 + 1)
        } else {
            0
        };
        let above = Area {
            height: body.height - panel,
            ..body
        };
        let names = self.hosts.iter().map(|host| self.cluster.shown_name(host));
        let widest = names.map(|name| name.chars().count()).max();
        let cells = self.hosts.iter().filter_map(|id| self.cluster.host(id));
        self.is_in_troubles &= self.trouble_count() > 0;
        let fleet = FleetAreas::divide(
            &FleetShape {
                body: above,
                troubles: self.trouble_count(),
                is_in_troubles: self.is_in_troubles,
                hosts: self.hosts.len(),
                name: widest.unwrap_or(0),
                cells: cells.map(|host| host.figures.gpus).max().unwrap_or(1),
                jobs: 0,
                is_in_jobs: false,
            },
            self.areas.fleet.troubles.height,
        );
        // The panel has the rows that the hosts leave, too: a host may have many GPUs.
        let (end, end_of_lines) = (body.y + body.height, fleet.jobs.y + fleet.jobs.height);
        self.areas = ClusterAreas {
            header: row(0),
            fleet,
            panel: Area {
                y: end_of_lines,
                height: if panel > 0 { end - end_of_lines } else { 0 },
                ..body
            },
            gpus: Area {
                y: fleet.troubles.y + fleet.troubles.height,
                height: body.height.saturating_sub(fleet.troubles.height),
                ..body
            },
            footer: row(height.saturating_sub(1)),
        };
        let hosts = &mut self.host_place;
        hosts.cursor = hosts.cursor.min(self.hosts.len().saturating_sub(1));
        hosts.first = fleet.first_host(hosts.first, hosts.cursor, self.hosts.len());
        let (troubles, gpus) = (
            self.trouble_count(),
            usize::from(self.areas.gpus.height).saturating_sub(1),
        );
        scroll(&mut self.gpu_place, self.gpus.len(), gpus);
        let rows = usize::from(fleet.troubles.height);
        if self.is_in_troubles {
            scroll(&mut self.trouble_place, troubles, rows);
        } else {
            self.trouble_place = ListPlace::default();
        }
    }

    /// The lines of troubles: that of the server, and those of hosts.
    pub(crate) fn trouble_count(&self) -> usize {
        self.troubles.len() + usize::from(self.server_trouble.is_some())
    }
}

/// Keeps the cursor in a list of this length, and on the screen of so many rows.
fn scroll(place: &mut ListPlace, length: usize, rows: usize) {
    let rows = rows.max(1);
    place.cursor = place.cursor.min(length.saturating_sub(1));
    place.first = place
        .first
        .min(place.cursor)
        .max((place.cursor + 1).saturating_sub(rows))
        .min(length.saturating_sub(rows));
}

#[cfg(test)]
mod tests;
