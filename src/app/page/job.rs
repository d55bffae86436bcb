//! The page of a job over all its hosts: the ranks that differ first, with the medians, and then all
//! ranks by host.

mod differences;
mod rank_grid;

use std::time::Duration;

use self::differences::Difference;
pub(crate) use self::rank_grid::GridHost;
use super::{PageLine, Writer};
use crate::app::fleet::viewer_clock::Clocks;
use crate::base::units::{Bytes, Elapsed, Hertz, Moment};
use crate::model::{
    Fleet, FleetJob, HostModel, HostProcess, JobMedians, JobRank, MissingRank, RankFigures,
    Severity,
};
use crate::output::labels::{self, short_amount};
use crate::protocol::host_key::HostKey;

/// A job and its page.
#[derive(Debug, Clone)]
pub(crate) struct JobTopic {
    /// The job as it was when it was seen last.
    job: FleetJob,
    /// The hosts from which data comes.
    answering: Vec<HostKey>,
    /// The words at the right of the first line: the size of the job.
    size: String,
    /// The chosen rank; `None` until the user moves the cursor, which then stays on the first rank
    /// that differs.
    chosen: Option<u32>,
    /// The ranks that differ, in the order of their lines.
    differing: Vec<u32>,
    /// The places of all ranks in the grid: its line, the number, and the column.
    cells: Vec<(usize, u32, usize)>,
    /// The figures of the chosen rank, in a line.
    chosen_line: String,
    /// The page as it was when most ranks ran; `None` before it was drawn.
    last: Option<LastPage>,
    /// When the end of the job was seen, by the clock of `LastPage::host`; `None` while it runs.
    ended: Option<Moment>,
}

/// A page that stays when the job ends. Its ranks end one after the other, so the last page of all is
/// no use.
#[derive(Debug, Clone)]
struct LastPage {
    lines: Vec<PageLine>,
    chosen_line: String,
    /// The number of ranks that ran.
    ranks: usize,
    /// A host of the job, and its time.
    host: HostKey,
    at: Moment,
}

/// How long a page with more ranks stays the last one.
const KEPT: Duration = Duration::from_mins(1);

/// A job with all that its page needs.
struct ShownJob<'a> {
    fleet: &'a Fleet,
    clocks: &'a Clocks,
    job: &'a FleetJob,
    answering: &'a [HostKey],
    figures: Vec<RankFigures>,
    medians: JobMedians,
    /// The ranks that no host shows; `None` if a host of the job does not answer.
    missing: Option<Vec<MissingRank>>,
}

impl<'a> ShownJob<'a> {
    fn of(
        fleet: &'a Fleet,
        clocks: &'a Clocks,
        job: &'a FleetJob,
        answering: &'a [HostKey],
    ) -> Self {
        let answers = |host: HostKey| answering.contains(&host);
        let model = |host: HostKey| fleet.host(host).filter(|_| answers(host));
        let figures = job.figures(model);
        Self {
            fleet,
            clocks,
            job,
            answering,
            medians: JobMedians::of(&figures),
            missing: job.missing(answers),
            figures,
        }
    }

    fn model(&self, host: HostKey) -> Option<&'a HostModel> {
        self.fleet.host(host).filter(|_| self.answers(host))
    }

    fn answers(&self, host: HostKey) -> bool {
        self.answering.contains(&host)
    }

    /// A place as the user reads it: the host, and the GPU of a rank there, else its local rank.
    fn place(&self, rank: &JobRank) -> String {
        let gpu = self
            .fleet
            .host(rank.host)
            .and_then(|model| crate::model::main_gpu(model, rank.process))
            .map(labels::gpu_label)
            .or_else(|| Some(rank.local_rank?.to_string()));
        let host = self.fleet.name(rank.host);
        gpu.map_or_else(|| host.to_owned(), |gpu| format!("{host}:{gpu}"))
    }

    /// The place where a rank was seen, or where torchrun started it; empty if that is not known.
    fn place_of_missing(&self, missing: &MissingRank) -> String {
        let host = missing.host.map_or("", |host| self.fleet.name(host));
        match missing.local_rank {
            Some(local) if !host.is_empty() => format!("{host}:{local}"),
            _ => host.to_owned(),
        }
    }

    /// How long the oldest rank has run; `None` if no host knows.
    fn age(&self) -> Option<Duration> {
        let age = |rank: &JobRank| {
            let snapshot = self.fleet.host(rank.host)?.latest()?;
            labels::elapsed(snapshot, snapshot.process(rank.process)?).ok()
        };
        self.job.ranks.iter().filter_map(age).max()
    }

    /// The medians in a line: `59.6G  allocated 41.2G  97%  618W  1.83GHz  PCIe x16`.
    fn medians_in_words(&self) -> String {
        let medians = &self.medians;
        let figures = RankFigures {
            memory: medians.memory,
            allocated: medians.allocated,
            sm: medians.sm,
            power: medians.power,
            clock: medians.clock,
            link_width: medians.link_width,
            slowdown: None,
        };
        figures_in_words(&figures)
    }
}

/// The known figures in a line.
fn figures_in_words(figures: &RankFigures) -> String {
    let words = [
        figures.memory.map(short_amount),
        figures
            .allocated
            .map(|bytes| format!("allocated {}", short_amount(bytes))),
        figures.sm.map(|sm| sm.to_string()),
        figures.power.map(|power| power.to_string()),
        figures.clock.map(gigahertz),
        figures.link_width.map(|width| format!("PCIe x{width}")),
    ];
    let words: Vec<String> = words.into_iter().flatten().collect();
    words.join("  ")
}

/// `1.83GHz`
fn gigahertz(clock: Hertz) -> String {
    let hundredths = (clock.0 + 5_000_000) / 10_000_000;
    format!("{}.{:02}GHz", hundredths / 100, hundredths % 100)
}

/// The difference between two amounts.
fn distance(a: Bytes, b: Bytes) -> Bytes {
    Bytes(a.0.abs_diff(b.0))
}

impl JobTopic {
    pub(in crate::app) fn new(job: FleetJob) -> Self {
        Self {
            job,
            answering: Vec::new(),
            size: String::new(),
            chosen: None,
            differing: Vec::new(),
            cells: Vec::new(),
            chosen_line: String::new(),
            last: None,
            ended: None,
        }
    }

    pub(super) fn title(&self) -> String {
        format!("Job {}", self.job.title())
    }

    /// The figures of the chosen rank, for the line below the title.
    pub(crate) fn chosen_line(&self) -> &str {
        &self.chosen_line
    }

    /// Takes the job as it is now, the size of it in words, and the hosts from which data comes.
    pub(in crate::app) fn update(&mut self, fleet: &Fleet, size: String, answering: Vec<HostKey>) {
        if let Some(job) = self.current(fleet) {
            self.job = job.clone();
            (self.size, self.answering) = (size, answering);
        }
    }

    /// The job as it is now. Its marks may be known better than before. `None` once it has ended.
    pub(in crate::app) fn current<'a>(&self, fleet: &'a Fleet) -> Option<&'a FleetJob> {
        let by_key = fleet.jobs().iter().find(|job| job.key == self.job.key);
        by_key.or_else(|| {
            let mut members = self.job.members();
            members.find_map(|member| {
                fleet.process(member)?;
                fleet.job_of(member)
            })
        })
    }

    /// The process of the chosen rank, also of one that has ended; `None` if it was never seen.
    pub(in crate::app) fn chosen_process(&self) -> Option<HostProcess> {
        let chosen = self.chosen_rank()?;
        let of_running = self.job.ranks.iter().find(|rank| rank.rank == chosen);
        let of_gone = || {
            let mut gone = self.job.gone.iter();
            gone.find(|gone| gone.last.rank == chosen)
                .map(|gone| &gone.last)
        };
        of_running.or_else(of_gone).map(|rank| HostProcess {
            host: rank.host,
            process: rank.process,
        })
    }

    pub(in crate::app) fn chosen_rank(&self) -> Option<u32> {
        let first = || {
            let differing = self.differing.first().copied();
            differing.or_else(|| self.cells.first().map(|(_, rank, _)| *rank))
        };
        let is_there = |chosen: &u32| self.cells.iter().any(|(_, rank, _)| rank == chosen);
        self.chosen.filter(is_there).or_else(first)
    }

    fn place_of_chosen(&self) -> Option<usize> {
        let chosen = self.chosen_rank()?;
        self.cells.iter().position(|(_, rank, _)| *rank == chosen)
    }

    /// Moves the cursor by this many ranks.
    pub(in crate::app) fn step_rank(&mut self, by: isize) {
        if let Some(place) = self.place_of_chosen() {
            let last = self.cells.len().saturating_sub(1);
            let place = place.saturating_add_signed(by).min(last);
            self.chosen = Some(self.cells[place].1);
        }
    }

    /// Moves the cursor by this many lines of the grid, to the nearest column there.
    pub(super) fn step_line(&mut self, by: isize) {
        let Some(place) = self.place_of_chosen() else {
            return;
        };
        let (line, _, column) = self.cells[place];
        let mut lines: Vec<usize> = self.cells.iter().map(|(line, ..)| *line).collect();
        lines.sort_unstable();
        lines.dedup();
        let at = lines.iter().position(|other| *other == line).unwrap_or(0);
        let target = lines[at.saturating_add_signed(by).min(lines.len() - 1)];
        let of_target = self.cells.iter().filter(|(line, ..)| *line == target);
        let nearest = of_target.min_by_key(|(_, _, other)| other.abs_diff(column));
        self.chosen = nearest.map(|(_, rank, _)| *rank);
    }

    /// Moves the cursor to the next rank that differs.
    pub(in crate::app) fn choose_next_difference(&mut self) {
        let chosen = self.chosen_rank();
        let at = self.differing.iter().position(|rank| Some(*rank) == chosen);
        let next = at.map_or(0, |at| (at + 1) % self.differing.len());
        self.chosen = self.differing.get(next).copied().or(self.chosen);
    }

    /// Writes the page. Returns the line of the chosen rank.
    pub(super) fn write(
        &mut self,
        writer: &mut Writer,
        fleet: &Fleet,
        clocks: &Clocks,
        width: usize,
    ) -> Option<usize> {
        if self.current(fleet).is_none() {
            self.write_last(writer, fleet, clocks);
            return None;
        }
        self.ended = None;
        let job = self.job.clone();
        let answering = self.answering.clone();
        let shown = ShownJob::of(fleet, clocks, &job, &answering);
        let user = job.user.as_ref().map(|user| format!("{user}  "));
        let since = shown.age().map(|age| format!("for {}  ", Elapsed(age)));
        let [user, since] = [user, since].map(|part| part.unwrap_or_else(String::new));
        writer.field("job", format!("{user}{since}{}", self.size));
        let medians = shown.medians_in_words();
        if !medians.is_empty() {
            writer.field("median", medians);
        }
        let differences = differences::find(&shown);
        self.differing = Vec::new();
        for rank in differences.iter().filter_map(|difference| difference.rank) {
            if !self.differing.contains(&rank) {
                self.differing.push(rank);
            }
        }
        write_differences(writer, &differences, width);
        self.write_grid(writer, &shown, &differences, width)
    }

    /// Writes the last page of a job that has ended.
    fn write_last(&mut self, writer: &mut Writer, fleet: &Fleet, clocks: &Clocks) {
        let Some(last) = &self.last else { return };
        let now = fleet.host(last.host).map_or(last.at, HostModel::now);
        let ended = *self.ended.get_or_insert(now);
        let clock = clocks.shared(fleet, last.host);
        let [ended, read] = [ended, last.at].map(|at| {
            clock.map_or_else(String::new, |clock| {
                format!(" at {}", clock.seconds(at, now))
            })
        });
        writer.head(&format!(
            "No rank runs any more: seen{ended}. The figures below were read{read}."
        ));
        writer.lines.extend(last.lines.iter().cloned());
        self.chosen_line.clone_from(&last.chosen_line);
    }

    /// Keeps the page for the time after the end of the job.
    fn keep(&mut self, lines: &[PageLine], fleet: &Fleet) {
        let ranks = self.job.ranks.len();
        let host = self.last.as_ref().map(|last| last.host);
        let Some(host) = host.or_else(|| Some(self.job.parts.first()?.host)) else {
            return;
        };
        let at = fleet.host(host).map_or(Moment::default(), HostModel::now);
        let is_fuller = |last: &LastPage| last.ranks > ranks && at.since(last.at) < KEPT;
        if !self.last.as_ref().is_some_and(is_fuller) {
            self.last = Some(LastPage {
                lines: lines.to_vec(),
                chosen_line: self.chosen_line.clone(),
                ranks,
                host,
                at,
            });
        }
    }

    /// Writes all ranks by host. Returns the line of the chosen one.
    fn write_grid(
        &mut self,
        writer: &mut Writer,
        shown: &ShownJob<'_>,
        differences: &[Difference],
        width: usize,
    ) -> Option<usize> {
        let hosts = rank_grid::hosts(shown, differences);
        let places = rank_grid::places(&hosts, width);
        writer.head("");
        let first = writer.lines.len();
        self.cells = rank_grid::cells(&hosts, &places, first);
        let chosen = self.chosen_rank();
        let lines = rank_grid::lines(hosts, &places, chosen);
        writer.lines.extend(lines.into_iter().map(PageLine::Ranks));
        self.chosen_line = chosen.map_or_else(String::new, |rank| chosen_words(shown, rank));
        self.keep(&writer.lines, shown.fleet);
        // Until the user moves, and on the first line of the grid, the page stays at its top.
        self.chosen?;
        let line = self.cells[self.place_of_chosen()?].0;
        Some(if line == first { 0 } else { line })
    }
}

/// Says all that is known of a rank: `rank 21 gpu-03:5  4217 train.py  62.1G  97%  618W  1.83GHz`.
fn chosen_words(shown: &ShownJob<'_>, rank: u32) -> String {
    let place = shown.job.ranks.iter().position(|known| known.rank == rank);
    let Some(place) = place else {
        let mut missing = shown.missing.iter().flatten();
        let missing = missing.find(|missing| missing.rank == rank);
        let at = missing.map_or_else(String::new, |missing| shown.place_of_missing(missing));
        return format!("rank {rank} {at}  does not run");
    };
    let known = &shown.job.ranks[place];
    let name = shown.fleet.host(known.host).and_then(|model| {
        let process = model.latest()?.process(known.process)?;
        Some(format!(
            "  {} {}",
            known.process.pid,
            labels::program(process)
        ))
    });
    let name = name.as_deref().unwrap_or("");
    let figures = figures_in_words(&shown.figures[place]);
    format!("rank {rank} {}{name}  {figures}", shown.place(known))
}

/// Writes the lines of the ranks that differ, or that none does.
fn write_differences(writer: &mut Writer, differences: &[Difference], width: usize) {
    use unicode_width::UnicodeWidthStr;
    if differences.is_empty() {
        writer.field("", "no rank differs from the others");
        return;
    }
    let label = |difference: &Difference| match difference.rank {
        Some(rank) => format!("{rank:>3} {}", difference.place),
        None => difference.place.clone(),
    };
    let most = differences.iter().map(|line| label(line).width()).max();
    let label_width = most.unwrap_or(0).min(width / 3);
    writer.head("");
    for difference in differences {
        let room = width.saturating_sub(2 + label_width + 2).max(20);
        let mut label = label(difference);
        for sentence in crate::output::text_wrap::wrap_and_cut(&difference.sentence, room, 0) {
            writer.lines.push(PageLine::Difference {
                letter: if label.is_empty() {
                    ' '
                } else {
                    difference.letter
                },
                severity: difference.severity,
                label: std::mem::take(&mut label),
                label_width,
                sentence,
            });
        }
    }
}

/// The severity of the letter of a rank in the grid.
pub(super) fn severity_of(letter: char) -> Severity {
    match letter {
        'x' | 'm' | 'L' => Severity::Bad,
        _ => Severity::Notable,
    }
}
