//! Replays the lines of a recording at the pace of their data time.

use std::time::Duration;

use tokio::process::ChildStdout;
use tokio::time::{Instant, sleep_until};

use super::super::connection::Reporter;
use super::super::line_reader::LineReader;
use super::super::standard_error::StandardError;
use super::super::{SourceEvent, limits};
use super::Speed;
use crate::base::text::Text;
use crate::base::units::Moment;
use crate::protocol::host_key::HostKey;
use crate::protocol::host_tag::HostTag;
use crate::protocol::line::Line;

const MOST_HOSTS: usize = 1024;

/// A host in a recording.
struct RecordedHost {
    /// The key of the host in the file; `None` for lines without a tag.
    key_in_file: Option<u64>,
    /// The data time of its newest line.
    at: Moment,
    /// The time from the beginning of the recording to that line.
    position: Duration,
    /// The number of its lines that were sent.
    lines: u64,
}

/// Sends the lines of a recording when they are due.
pub(super) struct Player {
    lines: LineReader<ChildStdout>,
    /// Why the file cannot be read to its end; empty if it can.
    standard_error: StandardError,
    /// The hosts in the order of their keys, which is the order in which they appear.
    hosts: Vec<RecordedHost>,
    start: Instant,
    position: Duration,
    speed: Speed,
    /// The reason why the first ignored line was not understood, and the number of ignored lines; `None` when there are
    /// none.
    ignored: Option<(String, u64)>,
    reporter: Reporter,
}

impl Player {
    /// Returns a player of the standard output of a process, whose standard error says what is wrong with the file.
    pub(super) fn new(
        lines: LineReader<ChildStdout>,
        standard_error: StandardError,
        speed: Speed,
        reporter: Reporter,
    ) -> Self {
        let (hosts, start, position) = (Vec::new(), Instant::now(), Duration::ZERO);
        Self { lines, standard_error, hosts, start, position, speed, ignored: None, reporter }
    }

    pub(super) async fn run(mut self) {
        let mut number = 0_u64;
        let outcome = loop {
            number += 1;
            match self.lines.next().await {
                Ok(Some(line)) => {
                    let line = line.to_vec();
                    if !self.play(&line, number).await {
                        return;
                    }
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(format!("line {number}: {error}")),
            }
        };
        let rest = self.lines.rest().to_vec();
        let has_rest = outcome.is_ok() && !rest.is_empty();
        let is_cut_off = has_rest && !matches!(limits::parse(&rest), Ok(Some(_)));
        if has_rest && !is_cut_off && !self.play(&rest, number).await {
            return;
        }
        let problem = is_cut_off.then(|| "the last line of the recording is cut off".to_owned());
        let reason = self.standard_error.reason().await;
        let failure = outcome.err().or_else(|| reason.map(|reason| reason.to_string()));
        let ignored = self.ignored.map(|(sentence, count)| match count {
            1 => sentence,
            count => format!("{count} lines are not understood; the first is {sentence}"),
        });
        let problems: Vec<String> = failure.into_iter().chain(ignored).chain(problem).collect();
        let event = if self.hosts.is_empty() {
            let reason = if problems.is_empty() { "there is no line in it".to_owned() } else { problems.join("; ") };
            SourceEvent::Ended(HostKey::FIRST, Text::new(format!("the recording cannot be replayed: {reason}")))
        } else {
            SourceEvent::RecordingEnded((!problems.is_empty()).then(|| Text::new(problems.join("; "))))
        };
        self.reporter.send(event).await;
    }

    /// Sends one line when it is due. Returns whether anything still reads events.
    async fn play(&mut self, raw: &[u8], number: u64) -> bool {
        let parsed = match limits::parse(raw) {
            Ok(Some(line)) => line,
            // The recording may be from a later version, with more kinds of lines.
            Ok(None) => return true,
            Err(reason) => {
                self.ignore(number, &reason);
                return true;
            }
        };
        let tag = HostTag::of(raw);
        let key_in_file = tag.as_ref().map(|tag| tag.host_key);
        let known = self.hosts.iter().position(|host| host.key_in_file == key_in_file);
        if known.is_none() && self.hosts.len() == MOST_HOSTS {
            self.ignore(number, &format!("its host is one more than {MOST_HOSTS}"));
            return true;
        }
        let place = known.unwrap_or(self.hosts.len());
        let Ok(host) = u16::try_from(place).map(HostKey) else { return true };
        let at = match &parsed {
            Line::Full(snapshot) => Some(snapshot.at),
            Line::Tick(change) => Some(change.at),
            Line::Reply(_) => None,
            // A checkpoint after the first line replaces the lines before the recording.
            Line::Checkpoint(_) if known.is_some_and(|place| self.hosts[place].lines == 1) => None,
            // The model derives the same from the lines before this one.
            Line::Checkpoint(_) => return true,
        };
        if known.is_none() {
            let at = at.unwrap_or_default();
            self.hosts.push(RecordedHost { key_in_file, at, position: self.position, lines: 0 });
            if let Some(name) = tag.and_then(|tag| tag.name)
                && !self.reporter.send(SourceEvent::Named(host, name)).await
            {
                return false;
            }
        }
        if let Some(at) = at {
            self.wait_until_due(place, at).await;
        }
        if let Some(tap) = &self.reporter.tap {
            tap.copy(host, raw);
        }
        self.hosts[place].lines += 1;
        self.reporter.send(SourceEvent::Line(host, Box::new(parsed))).await
    }

    fn ignore(&mut self, number: u64, reason: &str) {
        let (_, count) = self.ignored.get_or_insert_with(|| (format!("line {number} of the recording: {reason}"), 0));
        *count += 1;
    }

    /// Waits until the line of this host at this data time is due.
    async fn wait_until_due(&mut self, place: usize, at: Moment) {
        let position = self.hosts[place].advance(at);
        self.position = self.position.max(position);
        let Speed::Times(times) = self.speed else { return };
        let after = Duration::try_from_secs_f64(position.as_secs_f64() / times).unwrap_or(Duration::MAX);
        match self.start.checked_add(after) {
            Some(due) => sleep_until(due).await,
            // A line so far in the future is never due.
            None => std::future::pending().await,
        }
    }
}

impl RecordedHost {
    /// Advances to the line at this data time. Returns the time from the beginning of the recording to that line.
    fn advance(&mut self, at: Moment) -> Duration {
        // A smaller time is that of another boot: how much time passed is not known, so none is counted.
        let step = at.since(std::mem::replace(&mut self.at, at));
        self.position = self.position.saturating_add(step);
        self.position
    }
}

#[cfg(test)]
pub(in crate::source) mod tests {
    use std::io::Write;
    use std::path::Path;
    use std::process::Command;

    use super::super::super::tests::run;
    use super::super::super::{Source, Sources, Tap};
    use super::super::Recording;
    use super::*;
    use crate::protocol::snapshot::example;

    /// Returns a full line of a pass at this time in milliseconds, with this tag.
    fn line(at: u64, tag: Option<(u64, &str)>) -> Vec<u8> {
        let mut snapshot = example::host(1);
        snapshot.at = Moment(at);
        let mut line = Vec::new();
        Line::Full(Box::new(snapshot)).write(&mut line).unwrap();
        if let Some((host_key, name)) = tag {
            HostTag { host_key, name: Some(name.into()) }.append_to(&mut line);
        }
        line
    }

    /// Starts a replay of this file, which `cat` reads: these tests are not gputop.
    pub(in crate::source) fn start_cat(path: &Path, speed: Speed, tap: Option<Tap>) -> Sources {
        let mut sources = Sources::start(Vec::new(), tap).unwrap();
        let recording = Recording { path: path.to_owned(), speed };
        let reporter = sources.reporter(HostKey::FIRST);
        let connection = recording.play_output(Command::new("cat").arg(path), reporter).unwrap();
        sources.list.push((Source::Recording(recording), connection));
        sources
    }

    /// Replays these bytes. Returns each event, with the time since the start in milliseconds; a line as its host key
    /// and data time.
    fn replay(bytes: &[u8], speed: Speed) -> Vec<(u128, String)> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        run(async {
            let start = Instant::now();
            let mut sources = start_cat(file.path(), speed, None);
            let mut events = Vec::new();
            loop {
                let event = sources.next().await;
                let is_last = matches!(event, SourceEvent::RecordingEnded(_) | SourceEvent::Ended(..));
                let shown = match event {
                    SourceEvent::Line(host, line) => match *line {
                        Line::Full(snapshot) => format!("{} {}", host.0, snapshot.at.0),
                        other => format!("{other:?}"),
                    },
                    SourceEvent::Named(host, name) => format!("{} is {name}", host.0),
                    SourceEvent::RecordingEnded(None) => "end".to_owned(),
                    SourceEvent::RecordingEnded(Some(problem)) => format!("end: {problem}"),
                    SourceEvent::Ended(_, reason) => reason.to_string(),
                    SourceEvent::Note(_, note) => note.to_string(),
                };
                events.push((start.elapsed().as_millis(), shown));
                if is_last {
                    return events;
                }
            }
        })
    }

    #[track_caller]
    fn check(bytes: &[u8], expected: &[&str]) {
        let events: Vec<String> = replay(bytes, Speed::Max).into_iter().map(|(_, event)| event).collect();
        assert_eq!(events, expected);
    }

    #[test]
    fn a_speed_is_a_number_or_max() {
        assert_eq!("max".parse(), Ok(Speed::Max));
        assert_eq!("10".parse(), Ok(Speed::Times(10.0)));
        assert_eq!("0.5x".parse(), Ok(Speed::Times(0.5)));
        for text in ["", "0", "-1", "inf", "nan", "fast"] {
            assert!(text.parse::<Speed>().is_err(), "{text}");
        }
    }

    #[test]
    fn hosts_have_keys_in_the_order_of_their_first_lines_whatever_the_file_says() {
        let lines = [line(1000, Some((7, "b"))), line(1000, Some((u64::MAX, "a"))), line(2000, Some((7, "b")))];
        check(&lines.concat(), &["0 is b", "0 1000", "1 is a", "1 1000", "0 2000", "end"]);
        check(&[line(1000, None), line(2000, None)].concat(), &["0 1000", "0 2000", "end"]);
    }

    #[test]
    fn data_time_sets_the_pace() {
        let mut host = RecordedHost { key_in_file: None, at: Moment(10_000), position: Duration::ZERO, lines: 0 };
        let positions: Vec<u128> = [10_000, 10_300, 5_000, 5_300].map(|at| host.advance(Moment(at)).as_millis()).into();
        assert_eq!(positions, [0, 300, 300, 600]);
    }

    #[test]
    fn no_line_comes_before_it_is_due() {
        let lines = [line(10_000, None), line(10_300, None)].concat();
        for (times, due) in [(1.0, 300), (3.0, 100), (0.5, 600)] {
            let events: Vec<u128> = replay(&lines, Speed::Times(times)).into_iter().map(|(time, _)| time).collect();
            assert!(events[1] >= due, "{times}: {events:?}");
        }
    }

    #[test]
    fn a_last_line_that_is_cut_off_is_reported_and_one_without_a_line_end_is_whole() {
        let (first, second) = (line(1000, None), line(2000, None));
        let whole = [&first[..], &second[..second.len() - 1]].concat();
        check(&whole, &["0 1000", "0 2000", "end"]);
        check(&whole[..whole.len() - 10], &["0 1000", "end: the last line of the recording is cut off"]);
    }

    #[test]
    fn lines_that_are_not_understood_are_ignored_and_reported() {
        let lines = [&line(1000, None)[..], b"hello\n", b"{\"kind\":\"later\"}\n", &line(2000, None), b"[]\n"].concat();
        let problem = "end: 2 lines are not understood; the first is line 2 of the recording: its line is not understood: \
                       expected value at line 1 column 1: hello";
        check(&lines, &["0 1000", "0 2000", problem]);
    }

    #[test]
    fn a_file_without_a_line_is_an_error() {
        check(b"", &["the recording cannot be replayed: there is no line in it"]);
        check(b"{", &["the recording cannot be replayed: the last line of the recording is cut off"]);
    }

    #[test]
    fn times_of_a_hostile_recording_do_no_harm() {
        let lines = [line(0, None), line(u64::MAX, None), line(0, None), line(u64::MAX, None)].concat();
        let latest = format!("0 {}", Moment::LATEST.0);
        check(&lines, &["0 0", &latest, "0 0", &latest, "end"]);
    }
}
