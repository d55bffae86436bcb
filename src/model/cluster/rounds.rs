//! Rounds of questions: each question with the part of the cluster that its answer is for.

use super::known_exporter::{Figure, SeriesForm};
use super::{Cluster, ClusterHostId, questions};
use crate::protocol::series::{QuestionSpan, SeriesQuestion};

/// The purpose of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RoundKind {
    /// The exporters, and the totals of all hosts.
    Totals,
    /// The GPUs of the hosts on the screen.
    Rows,
    /// The past of the hosts on the screen.
    Past,
    /// The hosts whose samples ended before gputop first asked.
    Ended,
    /// All GPUs.
    AllGpus,
    /// The users, jobs and models of all hosts, for a filter.
    Words,
}

/// A round of questions, which are asked one after the other.
#[derive(Debug, Clone)]
pub(crate) struct ClusterRound {
    pub(crate) kind: RoundKind,
    pub(super) parts: Vec<RoundPart>,
    /// The questions, one for each part.
    pub(crate) questions: Vec<SeriesQuestion>,
    /// The hosts whose GPUs or past were asked for; empty for all.
    pub(super) hosts: Vec<ClusterHostId>,
}

/// The part of the cluster that an answer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RoundPart {
    Exporters { by_instance: bool },
    Time,
    Samples,
    Gpus(SeriesForm),
    Twins(SeriesForm),
    Ages(SeriesForm),
    OfHosts(SeriesForm, Figure),
    Troubles(SeriesForm, Figure),
    Owners(SeriesForm),
    Ended(SeriesForm),
    OfGpus(SeriesForm, Figure),
    AgesOfGpus(SeriesForm),
    OwnersOfGpus(SeriesForm),
    ModelsOfGpus(SeriesForm),
    OwnersOfHosts(SeriesForm),
    ModelsOfHosts(SeriesForm),
    Past(SeriesForm, Figure),
}

impl ClusterRound {
    fn new(kind: RoundKind, hosts: Vec<ClusterHostId>) -> Self {
        Self {
            kind,
            parts: Vec::new(),
            questions: Vec::new(),
            hosts,
        }
    }

    /// Adds a question if there is one: an exporter lacks some figures.
    fn add(&mut self, part: RoundPart, question: Option<SeriesQuestion>) {
        if let Some(question) = question {
            self.parts.push(part);
            self.questions.push(question);
        }
    }

    fn add_gpus(&mut self, form: SeriesForm, selected: &str, all: &[SeriesForm]) {
        for figure in Figure::OF_GPUS {
            let question = questions::of_gpus(form, figure, selected, all);
            self.add(RoundPart::OfGpus(form, figure), question);
        }
        self.add(
            RoundPart::AgesOfGpus(form),
            Some(questions::ages_of_gpus(form, selected)),
        );
        self.add(
            RoundPart::OwnersOfGpus(form),
            questions::owners_of_gpus(form, selected),
        );
    }
}

impl Cluster {
    /// The questions about the totals of all hosts. As long as no exporter is known, they are only
    /// about the exporters; `looks_for_exporters` asks for new ones. As long as no host is known, they
    /// are only about the number of GPUs: the first screen comes sooner.
    pub(crate) fn totals_round(&self, looks_for_exporters: bool) -> ClusterRound {
        let mut round = ClusterRound::new(RoundKind::Totals, Vec::new());
        if looks_for_exporters || self.forms.is_empty() {
            for by_instance in [false, true] {
                round.add(
                    RoundPart::Exporters { by_instance },
                    Some(questions::exporters(by_instance)),
                );
            }
        }
        let is_first = self.hosts.is_empty();
        for (place, form) in self.forms.iter().enumerate() {
            let form = *form;
            // One exporter alone names each host once, as a rule.
            if place > 0 {
                let question = questions::twins(form, &self.forms[..place]);
                round.add(RoundPart::Twins(form), Some(question));
            }
            round.add(RoundPart::Gpus(form), Some(questions::gpus(form)));
            if is_first {
                continue;
            }
            for figure in Figure::OF_HOSTS {
                round.add(
                    RoundPart::OfHosts(form, figure),
                    questions::of_hosts(form, figure, &self.forms),
                );
            }
            round.add(RoundPart::Ages(form), Some(questions::ages(form)));
            for figure in Figure::TROUBLES {
                round.add(
                    RoundPart::Troubles(form, figure),
                    questions::troubles(form, figure),
                );
            }
            round.add(
                RoundPart::Owners(form),
                questions::owners(form, &self.forms[..place]),
            );
        }
        // Without any other series, the clock still says how long there have been none.
        if !is_first {
            round.add(RoundPart::Time, Some(questions::time()));
        }
        if let Some(form) = self.forms.first().filter(|_| !is_first) {
            round.add(RoundPart::Samples, Some(questions::samples(*form)));
        }
        round
    }

    /// The questions about the GPUs of some hosts.
    pub(crate) fn rows_round(&self, hosts: Vec<ClusterHostId>) -> ClusterRound {
        let mut round = ClusterRound::new(RoundKind::Rows, hosts);
        for (form, selected) in self.selected(&round.hosts) {
            round.add_gpus(form, &selected, &self.forms);
            round.add(
                RoundPart::ModelsOfGpus(form),
                questions::models_of_gpus(form, &selected),
            );
        }
        round
    }

    /// The questions about the past of some hosts.
    pub(crate) fn past_round(&self, hosts: Vec<ClusterHostId>, span: QuestionSpan) -> ClusterRound {
        let mut round = ClusterRound::new(RoundKind::Past, hosts);
        for (form, selected) in self.selected(&round.hosts) {
            for figure in [Figure::MemoryUsed, Figure::Sm] {
                let question = questions::past(form, figure, &selected, span);
                round.add(RoundPart::Past(form, figure), question);
            }
        }
        round
    }

    /// The questions about hosts whose samples have ended lately.
    pub(crate) fn ended_round(&self) -> ClusterRound {
        let mut round = ClusterRound::new(RoundKind::Ended, Vec::new());
        for form in &self.forms {
            let question = questions::ended(*form, &self.forms);
            round.add(RoundPart::Ended(*form), Some(question));
        }
        round
    }

    /// The questions about all GPUs.
    pub(crate) fn all_gpus_round(&self) -> ClusterRound {
        let mut round = ClusterRound::new(RoundKind::AllGpus, Vec::new());
        for form in &self.forms {
            round.add_gpus(*form, "", &self.forms);
        }
        round
    }

    /// The questions about the users, jobs and models of all hosts.
    pub(crate) fn words_round(&self) -> ClusterRound {
        let mut round = ClusterRound::new(RoundKind::Words, Vec::new());
        for form in &self.forms {
            let form = *form;
            round.add(
                RoundPart::OwnersOfHosts(form),
                questions::owners_of_hosts(form),
            );
            round.add(
                RoundPart::ModelsOfHosts(form),
                questions::models_of_hosts(form),
            );
        }
        round
    }

    fn selected(&self, hosts: &[ClusterHostId]) -> Vec<(SeriesForm, String)> {
        questions::selected(hosts.iter().filter_map(|id| {
            let host = self.host(id)?;
            Some((id, &host.selector))
        }))
    }
}
