//! Marks: moments that the user keeps with a name, to compare memory before and after a phase of a
//! job without touching its script.

use crate::base::text::Text;
use crate::base::units::{Bytes, Moment};
use crate::model::{
    Fleet, GpuOrProcess, HostGpu, HostModel, HostProcess, HostSubject, MemoryHistory,
};
use crate::output::labels;
use crate::protocol::host_key::HostKey;

/// The most marks that are kept. The oldest is dropped for a new one.
const MOST: usize = 32;

/// A named moment, with the memory of every GPU and process then. The history loses detail over
/// time, a mark does not.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Mark {
    /// `mark 3`, or the name that the user gave.
    pub name: Text,
    /// The moment of the key press, by the clock of each host.
    moments: Vec<(HostKey, Moment)>,
    memory: Vec<(HostSubject, MarkedMemory)>,
}

/// The memory of a subject at a mark. `None` for amounts that are not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct MarkedMemory {
    /// The driver's figure.
    pub held: Option<Bytes>,
    /// The memory of tensors, by PyTorch's own figures.
    pub allocated: Option<Bytes>,
    /// All memory that PyTorch has taken from CUDA.
    pub reserved: Option<Bytes>,
    /// The highest amount since the mark before: of tensors if known, else the driver's figure.
    pub peak: Option<Bytes>,
}

impl MarkedMemory {
    /// The memory of a subject now. `before` is the moment of the mark before; `None` if there is
    /// none.
    fn now(model: &HostModel, subject: &GpuOrProcess, before: Option<Moment>) -> Self {
        let series = model.series(subject);
        let split = model.allocator_history(subject);
        let peak_of = split
            .map(|split| &split.allocated)
            .filter(|allocated| allocated.latest().is_some())
            .or(series);
        Self {
            held: series.and_then(MemoryHistory::latest),
            allocated: split.and_then(|split| split.allocated.latest()),
            reserved: split.and_then(|split| split.reserved.latest()),
            peak: before.and_then(|before| peak_of?.peak_since(before, model.now())),
        }
    }
}

impl Mark {
    /// Records the memory of every GPU and process of every host now. `before` is the mark before.
    fn now(fleet: &Fleet, name: Text, before: Option<&Self>) -> Self {
        let mut mark = Self {
            name,
            moments: Vec::new(),
            memory: Vec::new(),
        };
        for (host, model) in fleet.hosts() {
            let Some(snapshot) = model.latest() else {
                continue;
            };
            mark.moments.push((host, model.now()));
            let since = before.and_then(|before| before.at(host));
            let gpus = snapshot.gpus.iter().map(|gpu| {
                HostSubject::from(HostGpu {
                    host,
                    gpu: gpu.uuid.clone(),
                })
            });
            let processes = model.process_totals().iter().map(|total| HostProcess {
                host,
                process: total.process,
            });
            for subject in gpus.chain(processes.map(HostSubject::from)) {
                let memory = MarkedMemory::now(model, &subject.subject, since);
                mark.memory.push((subject, memory));
            }
        }
        mark
    }

    /// The moment of the mark, by the clock of a host; `None` if the host was not there, or was
    /// booted since.
    pub(crate) fn at(&self, host: HostKey) -> Option<Moment> {
        self.moments
            .iter()
            .find(|(known, _)| *known == host)
            .map(|(_, at)| *at)
    }

    fn memory(&self, subject: &HostSubject) -> MarkedMemory {
        self.memory
            .iter()
            .find(|(known, _)| known == subject)
            .map(|(_, memory)| *memory)
            .unwrap_or_default()
    }
}

/// A line of the list of marks: the memory of a subject at one mark, and its change since the mark
/// before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MarkLine {
    /// The mark's name; `None` for the present.
    pub name: Option<Text>,
    pub at: Moment,
    pub memory: MarkedMemory,
    /// The memory at the last marks before at which it was known.
    before: MarkedMemory,
}

impl MarkLine {
    /// The change of an amount since the mark before, in bytes; `None` for the first mark.
    pub(crate) fn change(&self, amount: impl Fn(&MarkedMemory) -> Option<Bytes>) -> Option<i64> {
        Some(amount(&self.memory)?.0.cast_signed() - amount(&self.before)?.0.cast_signed())
    }

    /// Returns the amounts with their changes, as in `memory 40.0 GiB (+2.0 GiB), peak 38.9 GiB,
    /// allocated 30.1 GiB (+0)`: a narrow screen cuts the end.
    fn sentence(&self) -> String {
        let part = |name: &str, amount: fn(&MarkedMemory) -> Option<Bytes>| {
            let bytes = amount(&self.memory)?;
            let change = self
                .change(amount)
                .map_or_else(String::new, |bytes| format!(" ({})", labels::change(bytes)));
            Some(format!("{name} {bytes}{change}"))
        };
        let parts = [
            part("memory", |memory| memory.held),
            self.memory.peak.map(|peak| format!("peak {peak}")),
            part("allocated", |memory| memory.allocated),
            part("reserved", |memory| memory.reserved),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// At most [`MOST`] marks, the oldest first.
    pub list: Vec<Mark>,
    /// The number of marks that were ever added. It names new marks.
    added: usize,
}

impl Marks {
    /// Marks this moment. Returns a notice about the memory of `subject` then; `None` if there is
    /// nothing to mark yet.
    pub(in crate::app) fn add(
        &mut self,
        fleet: &Fleet,
        subject: Option<&HostSubject>,
    ) -> Option<String> {
        let mark = Mark::now(
            fleet,
            format!("mark {}", self.added + 1).into(),
            self.list.last(),
        );
        if mark.moments.is_empty() {
            return None;
        }
        self.added += 1;
        let name = mark.name.clone();
        self.list.push(mark);
        let surplus = self.list.len().saturating_sub(MOST);
        self.list.drain(..surplus);
        let found = subject.and_then(|subject| {
            let model = fleet.host(subject.host)?;
            Some((
                labels::subject(model, &subject.subject)?,
                self.lines(model, subject),
            ))
        });
        // The last line is the present.
        let sentence = match &found {
            Some((subject, lines)) if lines.len() > 1 => {
                format!(", {subject}: {}", lines[lines.len() - 2].sentence())
            }
            _ => String::new(),
        };
        Some(format!("{name}{sentence} (' names it)"))
    }

    /// Names the latest mark. An empty name changes nothing.
    pub(in crate::app) fn name_latest(&mut self, name: &str) {
        if let Some(mark) = self.list.last_mut().filter(|_| !name.trim().is_empty()) {
            mark.name = Text::new(name.trim());
        }
    }

    /// Drops the moments and amounts of hosts that were booted since the mark: the clock of such a
    /// host started again.
    pub(in crate::app) fn fit(&mut self, fleet: &Fleet) {
        let is_valid = |host: HostKey, at: Moment| {
            let Some(model) = fleet.host(host) else {
                return false;
            };
            model
                .history()
                .began()
                .is_some_and(|began| (began..=model.now()).contains(&at))
        };
        self.list.retain_mut(|mark| {
            let moments = mark.moments.len();
            mark.moments.retain(|(host, at)| is_valid(*host, *at));
            if mark.moments.len() < moments {
                let hosts: Vec<HostKey> = mark.moments.iter().map(|(host, _)| *host).collect();
                mark.memory
                    .retain(|(subject, _)| hosts.contains(&subject.host));
            }
            !mark.moments.is_empty()
        });
    }

    /// The memory of a subject at each mark and now, the latest last.
    pub(crate) fn lines(&self, model: &HostModel, subject: &HostSubject) -> Vec<MarkLine> {
        let mut before = MarkedMemory::default();
        let mut line = |name: Option<Text>, at, memory: MarkedMemory| {
            let line = MarkLine {
                name,
                at,
                memory,
                before,
            };
            before = MarkedMemory {
                held: memory.held.or(before.held),
                allocated: memory.allocated.or(before.allocated),
                reserved: memory.reserved.or(before.reserved),
                peak: None,
            };
            line
        };
        let marks = || {
            self.list
                .iter()
                .filter_map(|mark| Some((mark, mark.at(subject.host)?)))
        };
        let mut lines: Vec<MarkLine> = marks()
            .map(|(mark, at)| line(Some(mark.name.clone()), at, mark.memory(subject)))
            .collect();
        let last = marks().next_back().map(|(_, at)| at);
        lines.push(line(
            None,
            model.now(),
            MarkedMemory::now(model, &subject.subject, last),
        ));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::line::Line;
    use crate::protocol::snapshot::ProcessId;
    use crate::protocol::snapshot::example::{allocator_stats, host};

    #[test]
    fn memory_before_and_after_a_phase_is_compared() {
        let mut fleet = Fleet::default();
        let mut marks = Marks::default();
        let mut snapshot = host(1).with(100, "python train.py", 0, Bytes::from_gib(10));
        let mut grow = |fleet: &mut Fleet, gib: u64| {
            snapshot = snapshot.later(60);
            snapshot.gpus[0].processes[0].memory = Ok(Bytes::from_gib(gib));
            snapshot.gpus[0].load.memory_used = Ok(Bytes::from_gib(gib + 1));
            snapshot.processes[0].allocator = Some(Box::new(allocator_stats(
                Some(snapshot.gpus[0].uuid.clone()),
                Bytes::from_gib(12),
                Bytes::from_gib(gib - 5),
            )));
            _ = fleet.apply(HostKey::FIRST, Line::Full(Box::new(snapshot.clone())));
        };
        let id = HostProcess {
            host: HostKey::FIRST,
            process: ProcessId {
                pid: 100,
                start_ticks: Some(100),
            },
        };
        let mut notices = Vec::new();
        for (gib, name) in [(10, "epoch 1"), (14, "after eval"), (13, "")] {
            grow(&mut fleet, gib);
            notices.extend(marks.add(&fleet, Some(&id.into())));
            marks.name_latest(name);
        }
        grow(&mut fleet, 15);
        let model = fleet.host(HostKey::FIRST).unwrap();
        let lines = marks.lines(model, &id.into());
        let gib = |bytes: Option<i64>| bytes.map(|bytes| bytes >> 30);
        let found: Vec<_> = lines
            .iter()
            .map(|line| {
                let name = line.name.as_ref().map_or("now", Text::as_str);
                let changes = [
                    line.change(|memory| memory.held),
                    line.change(|memory| memory.reserved),
                ];
                (name, line.memory.held, line.memory.peak, changes.map(gib))
            })
            .collect();
        let held = |gib| Some(Bytes::from_gib(gib));
        // The peak is that of tensors, which hold 5 GiB less than the process.
        let expected = [
            ("epoch 1", held(10), None, [None, None]),
            ("after eval", held(14), held(9), [Some(4), Some(0)]),
            ("mark 3", held(13), held(9), [Some(-1), Some(0)]),
            ("now", held(15), held(10), [Some(2), Some(0)]),
        ];
        assert_eq!(found, expected);
        let first = "mark 1, 100 train.py: memory 10.0 GiB, allocated 5.0 GiB, reserved 12.0 GiB (' names it)";
        let second = "mark 2, 100 train.py: memory 14.0 GiB (+4.0 GiB), peak 9.0 GiB, allocated 9.0 GiB (+4.0 GiB), \
             reserved 12.0 GiB (+0) (' names it)";
        assert_eq!(notices[..2], [first, second]);
        let gpu = HostGpu {
            host: HostKey::FIRST,
            gpu: model.latest().unwrap().gpus[0].uuid.clone(),
        };
        assert_eq!(marks.lines(model, &gpu.into())[1].memory.held, held(15));
        // A reboot starts the clock of a host again, so its marks are dropped.
        let mut booted = host(1);
        booted.host.facts.boot_id = "another boot".into();
        _ = fleet.apply(HostKey::FIRST, Line::Full(Box::new(booted)));
        marks.fit(&fleet);
        assert!(marks.list.is_empty());
    }
}
