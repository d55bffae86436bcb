//! Takes the answers of a round into the cluster.

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::host::{GpuFlag, span, whole};
use super::known_exporter::{Figure, SeriesForm};
use super::questions::{COUNTED, MOST_TROUBLES};
use super::rounds::RoundPart;
use super::{
    Cluster, ClusterFigures, ClusterGpu, ClusterGpuKey, ClusterHost, ClusterHostId, ClusterOwner,
    ClusterRound, HostPast, HostSelector, RoundKind, TroubleKnowledge, sick_uuids,
};
use crate::base::text::Text;
use crate::base::units::{Bytes, Percent};
use crate::protocol::series::{Series, SeriesAnswer};

/// The most hosts that are kept.
const MOST_HOSTS: usize = 20_000;

/// The most GPUs of a host that are kept.
const MOST_GPUS: usize = 512;

/// The most users, jobs and models of a host that are kept.
const MOST_WORDS: usize = 256;

/// The most users and jobs of a GPU that are kept.
const MOST_OWNERS: usize = 16;

/// The least and the most time between two samples that is believed, in seconds. A server that has
/// just started has few samples.
const INTERVALS: (f64, f64) = (1.0, 60.0);

/// The seconds for which the server surely remembers a host whose samples have ended.
const ENDED_LATELY: f64 = 3000.0;

/// The figures and the troubles of a host in one round.
struct FoundHost {
    selector: HostSelector,
    figures: ClusterFigures,
    flags: Vec<GpuFlag>,
}

impl Cluster {
    /// Takes the answers of a round in. Returns whether there is more to ask for at once: an
    /// exporter was not known, or there are hosts for the first time.
    pub(crate) fn take(&mut self, round: &ClusterRound, answers: &[SeriesAnswer]) -> bool {
        let times = answers.iter().flat_map(|answer| &answer.series);
        let latest = times.filter_map(|series| series.points.last()).next_back();
        if let Some(point) = latest
            && round.kind != RoundKind::Past
        {
            self.now = Some(point.time);
        }
        let warning = answers.iter().find_map(|answer| {
            let is_cut = answer
                .is_cut
                .then(|| "an answer has too many series".into());
            answer.warning.clone().or(is_cut)
        });
        match warning {
            Some(warning) => self.warnings.insert(round.kind, warning),
            None => self.warnings.remove(&round.kind),
        };
        let parts = || round.parts.iter().copied().zip(answers);
        match round.kind {
            RoundKind::Totals => return self.take_totals(parts()),
            RoundKind::Rows | RoundKind::AllGpus => self.take_gpus(round, parts()),
            RoundKind::Past => self.take_past(round, parts()),
            RoundKind::Ended => self.take_ended(parts()),
            RoundKind::Words => self.take_words(parts()),
        }
        false
    }

    fn take_totals<'a>(
        &mut self,
        parts: impl Iterator<Item = (RoundPart, &'a SeriesAnswer)> + Clone,
    ) -> bool {
        let mut forms: BTreeSet<SeriesForm> = BTreeSet::new();
        // The server may refuse a question: its answer then says nothing.
        let mut refused: Vec<SeriesForm> = Vec::new();
        let mut exporters = parts
            .clone()
            .filter(|(part, _)| matches!(part, RoundPart::Exporters { .. }))
            .peekable();
        let knows_forms =
            exporters.peek().is_some() && exporters.all(|(_, answer)| !is_refused(answer));
        self.trouble_knowledge = trouble_knowledge(parts.clone(), self.trouble_knowledge);
        let mut found: BTreeMap<ClusterHostId, FoundHost> = BTreeMap::new();
        let mut owners: BTreeMap<Text, usize> = BTreeMap::new();
        self.has_more_troubles = false;
        let mut sick_twins = BTreeMap::new();
        // An exporter that no better one is beside has no twins any more.
        self.twins.retain(|form, _| {
            let mut parts = parts.clone();
            parts.any(|(part, _)| part == RoundPart::Twins(*form))
        });
        for (part, answer) in parts {
            match part {
                RoundPart::Gpus(form) if is_refused(answer) => refused.push(form),
                RoundPart::Exporters { by_instance } => {
                    let signs = answer.series.iter();
                    let signs = signs.filter_map(|series| series.label("sign"));
                    forms.extend(
                        signs.filter_map(|sign| SeriesForm::of_sign(sign.as_str(), by_instance)),
                    );
                }
                RoundPart::Samples => {
                    self.interval = answer.series.first().and_then(value_of).map(interval);
                }
                RoundPart::Owners(form) => {
                    for series in &answer.series {
                        let name = first_label(series, form.exporter().owner_labels);
                        if let (Some(name), Some(gpus)) = (name, value_of(series)) {
                            *owners.entry(name.clone()).or_default() += count(gpus);
                        }
                    }
                }
                RoundPart::Gpus(form) => {
                    let twins = self.twins.get(&form);
                    take_hosts(&mut found, form, twins, answer);
                }
                RoundPart::Twins(form) if !is_refused(answer) => {
                    let hosts = answer.series.iter();
                    let hosts = hosts.filter_map(|series| Some(host_of(form, series)?.0));
                    self.twins.insert(form, hosts.collect());
                }
                RoundPart::Troubles(form, figure) => {
                    self.has_more_troubles |= answer.series.len() >= MOST_TROUBLES;
                    let twins = self.twins.get(&form);
                    take_troubles(&mut found, &mut sick_twins, twins, (form, figure), answer);
                }
                RoundPart::Ages(form) => each_host(&mut found, form, answer, |host, _, value| {
                    host.figures.age = span(value);
                }),
                RoundPart::OfHosts(form, figure) => {
                    each_host(&mut found, form, answer, |host, _, value| {
                        host.figures.set(figure, value);
                    });
                    if figure.is_count() && !is_refused(answer) {
                        // No series: it is so of none of its GPUs.
                        for host in found.values_mut() {
                            if host.selector.form == form {
                                host.figures.count_none(figure);
                            }
                        }
                    }
                }
                _ => {}
            }
        }
        let before = (self.forms.len(), self.hosts.is_empty());
        self.sick_twins = sick_twins;
        self.take_found(found, &refused);
        if knows_forms {
            self.forms = forms.into_iter().collect();
        }
        let mut owners: Vec<(Text, usize)> = owners.into_iter().collect();
        owners.sort_by_key(|(_, gpus)| std::cmp::Reverse(*gpus));
        for (name, _) in &owners {
            self.hues.give(name);
        }
        self.owners = owners;
        let has_first_hosts = before.1 && !self.hosts.is_empty();
        self.forms.len() > before.0 || has_first_hosts
    }

    fn take_found(
        &mut self,
        mut found: BTreeMap<ClusterHostId, FoundHost>,
        refused: &[SeriesForm],
    ) {
        let now = self.now;
        let twins = &self.twins;
        let sick = sick_uuids(self.sick_twins.values());
        self.hosts.retain(|id, host| {
            let twins = twins.get(&host.selector.form);
            !twins.is_some_and(|twins| twins.contains(id)) || found.contains_key(id)
        });
        for (id, host) in &mut self.hosts {
            if !refused.contains(&host.selector.form) {
                host.is_silent = !found.contains_key(id);
            }
        }
        while found.len() > MOST_HOSTS {
            found.pop_last();
        }
        for (
            id,
            FoundHost {
                selector,
                figures,
                flags,
            },
        ) in found
        {
            let host = self
                .hosts
                .entry(id)
                .or_insert_with(|| ClusterHost::new(selector.clone()));
            host.selector = selector;
            host.figures = figures;
            host.flags = flags;
            host.last_seen = now;
            for gpu in &mut host.gpus {
                gpu.judge(&host.flags, &sick);
            }
        }
        while self.hosts.len() > MOST_HOSTS {
            self.hosts.pop_last();
        }
        self.name_hosts();
    }

    fn take_gpus<'a>(
        &mut self,
        round: &ClusterRound,
        parts: impl Iterator<Item = (RoundPart, &'a SeriesAnswer)>,
    ) {
        let mut found: BTreeMap<ClusterHostId, BTreeMap<ClusterGpuKey, ClusterGpu>> =
            BTreeMap::new();
        let hosts = &self.hosts;
        let mut each =
            |form: SeriesForm,
             answer: &SeriesAnswer,
             take: &mut dyn FnMut(&mut ClusterGpu, &Series, f64)| {
                for series in &answer.series {
                    let (Some((id, selector)), Some(value)) =
                        (host_of(form, series), value_of(series))
                    else {
                        continue;
                    };
                    // Another exporter may read the same host.
                    if hosts.get(&id).is_none_or(|host| host.selector != selector) {
                        continue;
                    }
                    let gpus = found.entry(id).or_default();
                    let mut key = gpu_key(form, series);
                    if let Some(gpu) = gpus.keys().find(|gpu| gpu.is_split_into(&key)) {
                        key = gpu.clone();
                    }
                    if gpus.len() < MOST_GPUS || gpus.contains_key(&key) {
                        let new = || ClusterGpu::new(key.clone());
                        take(gpus.entry(key.clone()).or_insert_with(new), series, value);
                    }
                }
            };
        for (part, answer) in parts {
            match part {
                RoundPart::OfGpus(form, figure) => {
                    each(form, answer, &mut |gpu, _, value| gpu.set(figure, value));
                }
                RoundPart::AgesOfGpus(form) => {
                    each(form, answer, &mut |gpu, _, value| gpu.age = span(value));
                }
                RoundPart::OwnersOfGpus(form) => each(form, answer, &mut |gpu, series, _| {
                    let owner = ClusterOwner {
                        user: first_label(series, form.exporter().owner_labels).cloned(),
                        job: first_label(series, form.exporter().job_labels).cloned(),
                    };
                    let is_known = owner.user.is_some() || owner.job.is_some();
                    if is_known && gpu.owners.len() < MOST_OWNERS && !gpu.owners.contains(&owner) {
                        gpu.owners.push(owner);
                    }
                }),
                RoundPart::ModelsOfGpus(form) => each(form, answer, &mut |gpu, series, _| {
                    gpu.model = form
                        .model_label()
                        .and_then(|label| series.label(label).cloned());
                }),
                _ => {}
            }
        }
        let sick = sick_uuids(self.sick_twins.values());
        let is_asked = |id: &ClusterHostId| round.hosts.is_empty() || round.hosts.contains(id);
        for (id, host) in self.hosts.iter_mut().filter(|(id, _)| is_asked(id)) {
            // A silent host keeps its GPUs, whose state is then unknown.
            if host.is_silent {
                continue;
            }
            let gpus = found.remove(id).into_iter().flatten().map(|(_, gpu)| gpu);
            // Another exporter may read the same host by another name of its GPUs.
            let mut gpus: Vec<ClusterGpu> = gpus
                .filter(|gpu| gpu.memory_used.is_some() || gpu.age.is_some())
                .collect();
            gpus.sort_by(|one, other| one.order().cmp(&other.order()));
            for gpu in &mut gpus {
                let before = host.gpus.iter().find(|before| before.key == gpu.key);
                if gpu.model.is_none() {
                    gpu.model = before.and_then(|before| before.model.clone());
                }
                gpu.judge(&host.flags, &sick);
            }
            host.gpus = gpus;
        }
    }

    fn take_past<'a>(
        &mut self,
        round: &ClusterRound,
        parts: impl Iterator<Item = (RoundPart, &'a SeriesAnswer)>,
    ) {
        let mut found: BTreeMap<ClusterHostId, HostPast> = BTreeMap::new();
        let Some(end) = self.now else { return };
        for (part, answer) in parts {
            let RoundPart::Past(form, figure) = part else {
                continue;
            };
            for series in &answer.series {
                let Some((id, _)) = host_of(form, series) else {
                    continue;
                };
                let past = found.entry(id).or_default();
                past.end = past.end.max(end);
                let points = series.points.iter().map(|point| (point.time, point.value));
                match figure {
                    Figure::Sm => past.sm = points.collect(),
                    _ => past.memory_used = points.collect(),
                }
            }
        }
        for id in &round.hosts {
            if let Some(host) = self.hosts.get_mut(id) {
                host.past = found.remove(id);
            }
        }
    }

    /// Adds the hosts whose samples ended lately, and forgets those that have samples under another
    /// name.
    fn take_ended<'a>(&mut self, parts: impl Iterator<Item = (RoundPart, &'a SeriesAnswer)>) {
        let mut ended: BTreeMap<SeriesForm, BTreeSet<ClusterHostId>> = BTreeMap::new();
        for (part, answer) in parts {
            let RoundPart::Ended(form) = part else {
                continue;
            };
            if is_refused(answer) {
                continue;
            }
            let ended = ended.entry(form).or_default();
            for series in &answer.series {
                let Some((id, selector)) = host_of(form, series) else {
                    continue;
                };
                ended.insert(id.clone());
                if self.hosts.len() < MOST_HOSTS {
                    self.hosts.entry(id).or_insert_with(|| ClusterHost {
                        is_silent: true,
                        ..ClusterHost::new(selector)
                    });
                }
            }
        }
        let now = self.now;
        self.hosts.retain(|id, host| {
            let seen = now.zip(host.last_seen);
            let is_remembered = seen.is_some_and(|(now, seen)| now - seen < ENDED_LATELY);
            let ended = ended.get(&host.selector.form);
            let has_other_name = ended.is_some_and(|ended| !ended.contains(id));
            !(host.is_silent && is_remembered && has_other_name)
        });
        self.name_hosts();
    }

    fn take_words<'a>(&mut self, parts: impl Iterator<Item = (RoundPart, &'a SeriesAnswer)>) {
        for host in self.hosts.values_mut() {
            host.words.clear();
        }
        for (part, answer) in parts {
            let (form, labels) = match part {
                RoundPart::OwnersOfHosts(form) => {
                    let exporter = form.exporter();
                    (form, [exporter.owner_labels, exporter.job_labels].concat())
                }
                RoundPart::ModelsOfHosts(form) => (form, form.model_label().into_iter().collect()),
                _ => continue,
            };
            for series in &answer.series {
                let host = host_of(form, series).and_then(|(id, _)| self.hosts.get_mut(&id));
                let Some(host) = host else { continue };
                let words = labels.iter().filter_map(|label| series.label(label));
                let room = MOST_WORDS.saturating_sub(host.words.len());
                host.words.extend(words.take(room).cloned());
            }
        }
    }
}

/// Whether the server has refused a question.
fn is_refused(answer: &SeriesAnswer) -> bool {
    answer.series.is_empty() && answer.warning.is_some()
}

/// Whether these answers tell of all troubles; as before where they are only for the first screen.
fn trouble_knowledge<'a>(
    parts: impl Iterator<Item = (RoundPart, &'a SeriesAnswer)> + Clone,
    before: TroubleKnowledge,
) -> TroubleKnowledge {
    // All rounds but those for the first screen ask for ages.
    if !parts
        .clone()
        .any(|(part, _)| matches!(part, RoundPart::Ages(_)))
    {
        return before;
    }
    let asked: Vec<&SeriesAnswer> = parts
        .filter(|(part, _)| matches!(part, RoundPart::Troubles(..)))
        .map(|(_, answer)| answer)
        .collect();
    if asked.is_empty() {
        TroubleKnowledge::NotExported
    } else if asked.into_iter().any(is_refused) {
        TroubleKnowledge::Refused
    } else {
        TroubleKnowledge::Known
    }
}

/// Adds the hosts of an answer. A host that an earlier exporter reads is left as it is.
fn take_hosts(
    found: &mut BTreeMap<ClusterHostId, FoundHost>,
    form: SeriesForm,
    twins: Option<&BTreeSet<ClusterHostId>>,
    answer: &SeriesAnswer,
) {
    for series in &answer.series {
        let (Some((id, selector)), Some(gpus)) = (host_of(form, series), value_of(series)) else {
            continue;
        };
        if twins.is_some_and(|twins| twins.contains(&id)) {
            continue;
        }
        found.entry(id).or_insert_with(|| FoundHost {
            selector,
            figures: ClusterFigures {
                gpus: count(gpus),
                ..ClusterFigures::default()
            },
            flags: Vec::new(),
        });
    }
}

/// Adds the troubles of an answer to their hosts. An error of the hardware counts whichever exporter
/// tells of it, but once for each GPU.
fn take_troubles(
    found: &mut BTreeMap<ClusterHostId, FoundHost>,
    sick_twins: &mut BTreeMap<ClusterHostId, ClusterHost>,
    twins: Option<&BTreeSet<ClusterHostId>>,
    (form, figure): (SeriesForm, Figure),
    answer: &SeriesAnswer,
) {
    let flags = found.values().flat_map(|host| &host.flags);
    let flags = flags.chain(sick_twins.values().flat_map(|host| &host.flags));
    let known: BTreeSet<String> = flags
        .filter(|flag| {
            let is_told = figure == Figure::HardwareError && flag.figure.is_of_hardware();
            (flag.figure == figure || is_told) && !flag.gpu.bare_uuid().is_empty()
        })
        .map(|flag| flag.gpu.bare_uuid().to_owned())
        .collect();
    for series in &answer.series {
        let (Some((id, selector)), Some(value)) = (host_of(form, series), value_of(series)) else {
            continue;
        };
        let gpu = gpu_key(form, series);
        let is_news = figure.is_of_hardware() && !known.contains(gpu.bare_uuid());
        if figure == Figure::HardwareError && !is_news {
            continue;
        }
        let flag = GpuFlag { gpu, figure, value };
        match found.get_mut(&id) {
            Some(host) if host.selector == selector || is_news => host.flags.push(flag),
            None if is_news && twins.is_some_and(|twins| twins.contains(&id)) => {
                let new = || ClusterHost::new(selector);
                let twin = sick_twins.entry(id).or_insert_with(new);
                twin.flags.push(flag);
            }
            // Without a driver, a host has no GPUs.
            None if figure == Figure::Lost => {
                let host = FoundHost {
                    selector,
                    figures: ClusterFigures::default(),
                    flags: vec![flag],
                };
                found.insert(id, host);
            }
            _ => {}
        }
    }
}

/// Passes each series of an answer to its host, if the same exporter reads that.
fn each_host(
    found: &mut BTreeMap<ClusterHostId, FoundHost>,
    form: SeriesForm,
    answer: &SeriesAnswer,
    mut take: impl FnMut(&mut FoundHost, &Series, f64),
) {
    for series in &answer.series {
        let (Some((id, selector)), Some(value)) = (host_of(form, series), value_of(series)) else {
            continue;
        };
        if let Some(host) = found.get_mut(&id).filter(|host| host.selector == selector) {
            take(host, series, value);
        }
    }
}

/// The host of a series; `None` where no label names it.
fn host_of(form: SeriesForm, series: &Series) -> Option<(ClusterHostId, HostSelector)> {
    let (label, value) = form
        .host_names()
        .iter()
        .find_map(|label| Some((*label, series.label(label)?)))?;
    let name = if form.is_by_instance() {
        without_port(value.as_str()).into()
    } else {
        value.clone()
    };
    let id = ClusterHostId {
        cluster: series.label("cluster").cloned(),
        name,
    };
    let value = value.clone();
    Some((id, HostSelector { form, label, value }))
}

/// The host of a scraped address.
fn without_port(instance: &str) -> &str {
    if instance.parse::<IpAddr>().is_ok() {
        return instance;
    }
    match instance.rsplit_once(':') {
        Some((host, port))
            if !port.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit()) =>
        {
            host.trim_start_matches('[').trim_end_matches(']')
        }
        _ => instance,
    }
}

fn gpu_key(form: SeriesForm, series: &Series) -> ClusterGpuKey {
    let exporter = form.exporter();
    let labels = |names: &[&str]| -> Vec<String> {
        let labels = names.iter().filter_map(|name| series.label(name));
        labels.map(ToString::to_string).collect()
    };
    ClusterGpuKey {
        index: labels(exporter.index_labels).join(":"),
        uuid: labels(exporter.uuid_labels).concat(),
    }
}

/// The latest value of a series.
fn value_of(series: &Series) -> Option<f64> {
    series.points.last().map(|point| point.value)
}

fn first_label<'a>(series: &'a Series, names: &[&str]) -> Option<&'a Text> {
    names.iter().find_map(|name| series.label(name))
}

/// The time between two samples, of which so many came in [`COUNTED`].
fn interval(samples: f64) -> Duration {
    let seconds = COUNTED.as_secs_f64() / samples.max(1.0);
    Duration::from_secs_f64(seconds.clamp(INTERVALS.0, INTERVALS.1))
}

fn count(value: f64) -> usize {
    usize::try_from(whole(value)).unwrap_or(usize::MAX)
}

impl ClusterFigures {
    fn set(&mut self, figure: Figure, value: f64) {
        match figure {
            Figure::MemoryUsed => self.memory_used = Some(Bytes(whole(value))),
            Figure::MemoryTotal => self.memory_total = Some(Bytes(whole(value))),
            Figure::Sm => self.sm = Some(percent(value)),
            Figure::Power => self.power = Some(single(value)),
            Figure::Free => self.free = Some(count(value)),
            Figure::Known => self.known = Some(count(value)),
            _ => {}
        }
    }
}

impl ClusterFigures {
    /// Sets a number of GPUs that is not known otherwise to 0.
    fn count_none(&mut self, figure: Figure) {
        let counted = match figure {
            Figure::Known => &mut self.known,
            _ => &mut self.free,
        };
        counted.get_or_insert(0);
    }
}

impl ClusterGpu {
    fn set(&mut self, figure: Figure, value: f64) {
        match figure {
            Figure::MemoryUsed => self.memory_used = Some(Bytes(whole(value))),
            Figure::MemoryTotal => self.memory_total = Some(Bytes(whole(value))),
            Figure::Sm => self.sm = Some(percent(value)),
            Figure::Power => self.power = Some(single(value)),
            Figure::Temperature => self.temperature = Some(single(value)),
            Figure::Free => self.is_free = true,
            Figure::Index => self.index = Some(whole(value)),
            _ => {}
        }
    }
}

fn percent(value: f64) -> Percent {
    Percent::new(single(value.clamp(0.0, 100.0)))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the figure is shown with a few digits"
)]
fn single(value: f64) -> f32 {
    value as f32
}
