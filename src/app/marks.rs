//! Marks: names that a person gives to moments, to compare memory before and after a phase of a job
//! without touching its script.

use crate::base::text::Text;
use crate::base::units::{Bytes, Moment};
use crate::model::{GpuOrProcess, HostModel, MemoryHistory};

/// So many stay, the latest.
const MOST: usize = 32;

/// A moment with a name, and what was held then. The history forgets details, a mark does not.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    /// What the person calls it.
    pub name: Text,
    /// When the key was pressed.
    pub at: Moment,
    held: Vec<(GpuOrProcess, Bytes)>,
}

impl Mark {
    /// Records the memory of every GPU and process now.
    pub(super) fn now(model: &HostModel) -> Self {
        let gpus = model.latest().into_iter().flat_map(|it| &it.gpus);
        let gpus = gpus.filter_map(|it| Some((GpuOrProcess::Gpu(it.uuid.clone()), it.load.memory_used.ok()?)));
        let known = |subject: GpuOrProcess| Some((subject.clone(), model.series(&subject)?.latest()?));
        let processes = model.process_totals().iter().filter_map(|it| known(GpuOrProcess::Process(it.process)));
        Self { name: Text::from(""), at: model.now(), held: gpus.chain(processes).collect() }
    }

    /// What a subject held; absent when that was not known, or it was not there.
    pub fn held(&self, subject: &GpuOrProcess) -> Option<Bytes> {
        self.held.iter().find(|(it, _)| it == subject).map(|(_, bytes)| *bytes)
    }
}

/// A line of the list of marks: what a subject held, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkLine {
    /// The mark's name; absent for the present.
    pub name: Option<Text>,
    /// When.
    pub at: Moment,
    /// What was held; absent when not known.
    pub held: Option<Bytes>,
    /// What that is more than at the mark before, in bytes; absent for the first.
    pub since_last: Option<i64>,
    /// What that is more than when gputop first saw the subject, in bytes.
    pub over_baseline: Option<i64>,
}

/// All marks, the latest last.
#[derive(Debug, Default)]
pub struct Marks {
    list: Vec<Mark>,
    /// The number of marks that were ever added: names of marks without a name.
    added: usize,
}

impl Marks {
    /// Every mark, the latest last.
    pub fn list(&self) -> &[Mark] {
        &self.list
    }

    /// Adds a mark under this name, or under a number if the name is empty.
    pub(super) fn add(&mut self, mut mark: Mark, name: &str) {
        self.added += 1;
        let name = name.trim();
        mark.name = if name.is_empty() { format!("mark {}", self.added).into() } else { Text::new(name) };
        self.list.push(mark);
        let surplus = self.list.len().saturating_sub(MOST);
        self.list.drain(..surplus);
    }

    /// Forgets marks of another boot: their times mean other moments there.
    pub(super) fn fit(&mut self, began: Option<Moment>, now: Moment) {
        self.list.retain(|it| began.is_some_and(|began| (began..=now).contains(&it.at)));
    }

    /// What a subject held at each mark and holds now, the latest last.
    pub fn lines(&self, model: &HostModel, subject: &GpuOrProcess) -> Vec<MarkLine> {
        let series = model.series(subject);
        let baseline = series.and_then(MemoryHistory::baseline);
        let mut last = None;
        let mut line = |name: Option<Text>, at, held: Option<Bytes>| {
            let since_last = difference(held, last);
            last = held.or(last);
            MarkLine { name, at, held, since_last, over_baseline: difference(held, baseline) }
        };
        let mut lines: Vec<MarkLine> =
            self.list.iter().map(|it| line(Some(it.name.clone()), it.at, it.held(subject))).collect();
        lines.push(line(None, model.now(), series.and_then(MemoryHistory::latest)));
        lines
    }
}

/// What one amount is more than another.
fn difference(amount: Option<Bytes>, before: Option<Bytes>) -> Option<i64> {
    Some(amount?.0.cast_signed() - before?.0.cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::snapshot::ProcessId;
    use crate::protocol::snapshot::example::host;

    #[test]
    fn memory_before_and_after_a_phase_is_compared() {
        let mut model = HostModel::default();
        let mut marks = Marks::default();
        let mut snapshot = host(1).with(100, "python train.py", 0, Bytes::from_gib(10));
        let mut grow = |model: &mut HostModel, gib: u64| {
            snapshot = snapshot.later(60);
            snapshot.gpus[0].processes[0].memory = Ok(Bytes::from_gib(gib));
            snapshot.gpus[0].load.memory_used = Ok(Bytes::from_gib(gib + 1));
            model.replace(snapshot.clone());
        };
        for (gib, name) in [(10, "epoch 1"), (14, "after eval"), (13, "")] {
            grow(&mut model, gib);
            marks.add(Mark::now(&model), name);
        }
        grow(&mut model, 15);
        let id = ProcessId { pid: 100, start_ticks: Some(100) };
        let lines = marks.lines(&model, &GpuOrProcess::Process(id));
        let gib = |it: Option<i64>| it.map(|it| it >> 30);
        let found: Vec<_> = lines
            .iter()
            .map(|it| {
                (it.name.as_ref().map_or("now", Text::as_str), it.held, gib(it.since_last), gib(it.over_baseline))
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
        let gpu = GpuOrProcess::Gpu(model.latest().unwrap().gpus[0].uuid.clone());
        assert_eq!(marks.lines(&model, &gpu)[1].held, held(15));
        // A host that was booted anew has a clock of its own.
        marks.fit(Some(Moment(1)), Moment(2));
        assert!(marks.list().is_empty());
    }
}
