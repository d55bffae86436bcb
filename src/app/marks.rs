//! Marks: names that the user gives to moments, to compare memory before and after a phase of a job without touching its
//! script.

use crate::base::text::Text;
use crate::base::units::{Bytes, Moment};
use crate::model::{Fleet, GpuOrProcess, HostGpu, HostModel, HostProcess, HostSubject, MemoryHistory};
use crate::protocol::host_key::HostKey;

/// The most marks that are kept. The oldest is dropped for a new one.
const MOST: usize = 32;

/// A named moment, with the memory of every GPU and process then. The history loses detail over time, a mark does not.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Mark {
    /// The name that the user gave, or a number such as `mark 3`.
    pub name: Text,
    /// The moment of the key press, by the clock of each host.
    moments: Vec<(HostKey, Moment)>,
    memory: Vec<(HostSubject, Bytes)>,
}

impl Mark {
    /// Records the memory of every GPU and process of every host now.
    pub(super) fn now(fleet: &Fleet) -> Self {
        let mut mark = Self { name: Text::from(""), moments: Vec::new(), memory: Vec::new() };
        for (host, model) in fleet.hosts().filter(|(_, model)| model.latest().is_some()) {
            mark.moments.push((host, model.now()));
            let gpus = model.latest().into_iter().flat_map(|snapshot| &snapshot.gpus);
            mark.memory.extend(gpus.filter_map(|gpu| {
                let subject = HostGpu { host, gpu: gpu.uuid.clone() };
                Some((subject.into(), gpu.load.memory_used.ok()?))
            }));
            mark.memory.extend(model.process_totals().iter().filter_map(|total| {
                let memory = model.series(&GpuOrProcess::Process(total.process))?.latest()?;
                Some((HostProcess { host, process: total.process }.into(), memory))
            }));
        }
        mark
    }

    /// The moment of the mark, by the clock of a host; `None` if the host was not there, or was booted since.
    pub(crate) fn at(&self, host: HostKey) -> Option<Moment> {
        self.moments.iter().find(|(known, _)| *known == host).map(|(_, at)| *at)
    }

    /// The memory of a subject at the mark; `None` if it was not known.
    pub(crate) fn memory(&self, subject: &HostSubject) -> Option<Bytes> {
        self.memory.iter().find(|(known, _)| known == subject).map(|(_, bytes)| *bytes)
    }
}

/// A line of the list of marks: the memory of a subject at one mark, and its change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MarkLine {
    /// The mark's name; `None` for the present.
    pub name: Option<Text>,
    pub at: Moment,
    /// The memory; `None` if it was not known.
    pub held: Option<Bytes>,
    /// The change since the mark before, in bytes; `None` for the first mark.
    pub since_last: Option<i64>,
    /// The change since gputop first saw the subject, in bytes.
    pub over_baseline: Option<i64>,
}

#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// At most [`MOST`] marks, the oldest first.
    pub list: Vec<Mark>,
    /// The number of marks that were ever added. It names marks without a name.
    added: usize,
}

impl Marks {
    /// Adds a mark under this name, or under a number if the name is empty.
    pub(super) fn add(&mut self, mut mark: Mark, name: &str) {
        self.added += 1;
        let name = name.trim();
        mark.name = if name.is_empty() { format!("mark {}", self.added).into() } else { Text::new(name) };
        self.list.push(mark);
        let surplus = self.list.len().saturating_sub(MOST);
        self.list.drain(..surplus);
    }

    /// Drops the moments and amounts of hosts that were booted since the mark: the clock of such a host started again.
    pub(super) fn fit(&mut self, fleet: &Fleet) {
        let is_valid = |host: HostKey, at: Moment| {
            let Some(model) = fleet.host(host) else { return false };
            model.history().began().is_some_and(|began| (began..=model.now()).contains(&at))
        };
        self.list.retain_mut(|mark| {
            let moments = mark.moments.len();
            mark.moments.retain(|(host, at)| is_valid(*host, *at));
            if mark.moments.len() < moments {
                let hosts: Vec<HostKey> = mark.moments.iter().map(|(host, _)| *host).collect();
                mark.memory.retain(|(subject, _)| hosts.contains(&subject.host));
            }
            !mark.moments.is_empty()
        });
    }

    /// The memory of a subject at each mark and now, the latest last.
    pub(crate) fn lines(&self, model: &HostModel, subject: &HostSubject) -> Vec<MarkLine> {
        let series = model.series(&subject.subject);
        let baseline = series.and_then(MemoryHistory::baseline);
        let mut last = None;
        let mut line = |name: Option<Text>, at, held: Option<Bytes>| {
            let since_last = difference(held, last);
            last = held.or(last);
            MarkLine { name, at, held, since_last, over_baseline: difference(held, baseline) }
        };
        let marks = self.list.iter().filter_map(|mark| Some((mark, mark.at(subject.host)?)));
        let mut lines: Vec<MarkLine> =
            marks.map(|(mark, at)| line(Some(mark.name.clone()), at, mark.memory(subject))).collect();
        lines.push(line(None, model.now(), series.and_then(MemoryHistory::latest)));
        lines
    }
}

fn difference(amount: Option<Bytes>, before: Option<Bytes>) -> Option<i64> {
    Some(amount?.0.cast_signed() - before?.0.cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::line::Line;
    use crate::protocol::snapshot::ProcessId;
    use crate::protocol::snapshot::example::host;

    #[test]
    fn memory_before_and_after_a_phase_is_compared() {
        let mut fleet = Fleet::default();
        let mut marks = Marks::default();
        let mut snapshot = host(1).with(100, "python train.py", 0, Bytes::from_gib(10));
        let mut grow = |fleet: &mut Fleet, gib: u64| {
            snapshot = snapshot.later(60);
            snapshot.gpus[0].processes[0].memory = Ok(Bytes::from_gib(gib));
            snapshot.gpus[0].load.memory_used = Ok(Bytes::from_gib(gib + 1));
            _ = fleet.apply(HostKey::FIRST, Line::Full(Box::new(snapshot.clone())));
        };
        for (gib, name) in [(10, "epoch 1"), (14, "after eval"), (13, "")] {
            grow(&mut fleet, gib);
            marks.add(Mark::now(&fleet), name);
        }
        grow(&mut fleet, 15);
        let id = ProcessId { pid: 100, start_ticks: Some(100) };
        let model = fleet.host(HostKey::FIRST).unwrap();
        let lines = marks.lines(model, &HostProcess { host: HostKey::FIRST, process: id }.into());
        let gib = |it: Option<i64>| it.map(|it| it >> 30);
        let found: Vec<_> = lines
            .iter()
            .map(|line| {
                (
                    line.name.as_ref().map_or("now", Text::as_str),
                    line.held,
                    gib(line.since_last),
                    gib(line.over_baseline),
                )
            })
            .collect();
        let held = |gib| Some(Bytes::from_gib(gib));
        let expected = [
            ("epoch 1", held(10), None, Some(0)),
            ("after eval", held(14), Some(4), Some(4)),
            ("mark 3", held(13), Some(-1), Some(3)),
            ("now", held(15), Some(2), Some(5)),
        ];
        assert_eq!(found, expected);
        let gpu = HostGpu { host: HostKey::FIRST, gpu: model.latest().unwrap().gpus[0].uuid.clone() };
        assert_eq!(marks.lines(model, &gpu.into())[1].held, held(15));
        // A reboot starts the clock of a host again, so its marks are dropped.
        let mut booted = host(1);
        booted.host.facts.boot_id = "another boot".into();
        _ = fleet.apply(HostKey::FIRST, Line::Full(Box::new(booted)));
        marks.fit(&fleet);
        assert!(marks.list.is_empty());
    }
}
