//! Writes the questions to a Prometheus server in `PromQL`.
//!
//! Two exporters may export the same GPU, and a sum over their series would count it twice. So each
//! question first takes one value for each GPU, and only then adds up.

use std::time::Duration;

use super::known_exporter::{Figure, SeriesForm};
use super::{ClusterHostId, HostSelector};
use crate::base::text::Text;
use crate::protocol::series::{QuestionSpan, SeriesQuestion};

/// The most GPUs of which one question on troubles tells.
pub(super) const MOST_TROUBLES: usize = 200;

/// The most users of all hosts.
const MOST_OWNERS: usize = 100;

/// The time in which samples are counted, to learn how often they come. A server that has just started
/// has too few for so long.
pub(super) const COUNTED: Duration = Duration::from_mins(2);

/// The time for which a host whose samples have ended is still listed at the start.
const REMEMBERED: &str = "1h";

/// The pattern of a UUID. GPUs of other makers may share an identifier, which has another form.
const UUID: &str = "[0-9a-f]{8}-.+";

fn now(expression: String) -> SeriesQuestion {
    SeriesQuestion {
        expression,
        span: None,
    }
}

/// Asks which exporters there are: one series for each, with its sign as the label `sign`.
/// `by_instance` asks for those whose series do not name the host, so that the scraped address has
/// to. A pattern for all names would make the server look at ten times as many series.
pub(super) fn exporters(by_instance: bool) -> SeriesQuestion {
    let counts = SeriesForm::all(by_instance).map(|form| {
        let (sign, count) = (form.exporter().sign, form.count());
        format!("label_replace({count}, \"sign\", \"{sign}\", \"\", \"\")")
    });
    now(counts.collect::<Vec<String>>().join(" or "))
}

/// Asks how many samples of a GPU come in [`COUNTED`], as a rule.
pub(super) fn samples(form: SeriesForm) -> SeriesQuestion {
    now(format!(
        "quantile(0.5, count_over_time({}[{}s]))",
        form.sign(""),
        COUNTED.as_secs()
    ))
}

/// Asks for the clock of the server.
pub(super) fn time() -> SeriesQuestion {
    now("vector(time())".to_owned())
}

/// Asks for the number of GPUs of each host.
pub(super) fn gpus(form: SeriesForm) -> SeriesQuestion {
    let hosts = form.host_labels();
    now(format!(
        "count by ({hosts}) (group by ({hosts},{}) ({}))",
        form.gpu_labels(),
        form.sign("")
    ))
}

/// Asks for the hosts all of whose GPUs these other exporters read too: the UUIDs say so, whatever
/// name each of them gives the host.
pub(super) fn twins(form: SeriesForm, others: &[SeriesForm]) -> SeriesQuestion {
    let hosts = form.host_labels();
    let own = uuids(form, &format!("{hosts},"));
    now(format!(
        "group by ({hosts}) ({own}) unless group by ({hosts}) (({own}) unless on (gputop_uuid) ({}))",
        all_uuids(others)
    ))
}

/// The UUIDs of the GPUs that these exporters read, as the label `gputop_uuid`.
fn all_uuids(forms: &[SeriesForm]) -> String {
    let all: Vec<String> = forms.iter().map(|form| uuids(*form, "")).collect();
    all.join(" or ")
}

/// The UUIDs of the GPUs as the label `gputop_uuid`, beside these labels, each followed by a comma.
fn uuids(form: SeriesForm, labels: &str) -> String {
    let of_label = |label: &&str| {
        let series = form.sign_of_named(&format!("{label}=~\"(GPU-)?{UUID}\""));
        with_uuid(&format!("group by ({labels}{label}) ({series})"), label)
    };
    let all: Vec<String> = form.exporter().uuid_labels.iter().map(of_label).collect();
    all.join(" or ")
}

/// Gives series the label `gputop_uuid` where this label holds a UUID. One exporter leaves out the
/// beginning.
fn with_uuid(series: &str, label: &str) -> String {
    format!("label_replace({series}, \"gputop_uuid\", \"$1\", \"{label}\", \"(?:GPU-)?({UUID})\")")
}

/// Asks for the age of the oldest sample of each host, in seconds.
pub(super) fn ages(form: SeriesForm) -> SeriesQuestion {
    now(format!(
        "max by ({}) (time() - timestamp({}))",
        form.host_labels(),
        form.sign("")
    ))
}

/// Asks for the hosts whose samples have ended lately. A host whose GPUs have samples under another
/// name has not ended, whichever of all exporters has them: a pod is named anew at each start.
pub(super) fn ended(form: SeriesForm, all: &[SeriesForm]) -> SeriesQuestion {
    let hosts = form.host_labels();
    let sign = form.sign("");
    let labels = form.exporter().uuid_labels;
    let past = format!(
        "group by ({hosts},{}) (last_over_time({sign}[{REMEMBERED}]))",
        labels.join(",")
    );
    let past = without_gpus(form, past, &[all_uuids(all)]);
    now(format!(
        "group by ({hosts}) ({past}) unless group by ({hosts}) ({sign})"
    ))
}

/// Asks for a figure of each host; `None` where the exporter does not have it. `all` are the exporters
/// that there are.
pub(super) fn of_hosts(
    form: SeriesForm,
    figure: Figure,
    all: &[SeriesForm],
) -> Option<SeriesQuestion> {
    Some(now(of_hosts_text(form, figure, "", all)?))
}

fn of_hosts_text(
    form: SeriesForm,
    figure: Figure,
    selected: &str,
    all: &[SeriesForm],
) -> Option<String> {
    let gpus = if figure == Figure::Power {
        form.whole_gpu_labels()
    } else {
        form.gpu_labels()
    };
    let each = of_gpus_text(form, figure, selected, &gpus, all)?;
    Some(format!(
        "{} by ({}) ({each})",
        figure.aggregation(),
        form.host_labels()
    ))
}

/// One value for each GPU, which these labels tell from the others. A GPU with an error of the hardware is not free, whichever of all
/// exporters tells of the error.
fn of_gpus_text(
    form: SeriesForm,
    figure: Figure,
    selected: &str,
    gpus: &str,
    all: &[SeriesForm],
) -> Option<String> {
    let expression = form.expression(figure, selected)?;
    let each = format!("max by ({},{gpus}) ({expression})", form.host_labels());
    if figure != Figure::Free {
        return Some(each);
    }
    let others = all.iter().filter(|other| **other != form);
    let sick: Vec<String> = others.flat_map(|other| sick_uuids(*other)).collect();
    Some(without_gpus(form, each, &sick))
}

/// The UUIDs of the GPUs that have an error of the hardware, as the label `gputop_uuid`.
fn sick_uuids(form: SeriesForm) -> Vec<String> {
    let errors = Figure::TROUBLES.into_iter();
    let errors = errors.filter(|figure| figure.is_of_hardware());
    errors
        .flat_map(|figure| uuids_in(form, |selected| form.expression(figure, selected)))
        .collect()
}

/// The UUIDs of the GPUs that these series of an exporter are about, as the label `gputop_uuid`.
fn uuids_in(form: SeriesForm, series: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let labels = form.exporter().uuid_labels.iter();
    let of_label = |label: &&str| {
        let series = series(&format!("{label}=~\"(GPU-)?{UUID}\""))?;
        Some(with_uuid(&format!("group by ({label}) ({series})"), label))
    };
    labels.filter_map(of_label).collect()
}

/// Leaves out the series of GPUs of these UUIDs.
fn without_gpus(form: SeriesForm, series: String, uuids: &[String]) -> String {
    if uuids.is_empty() {
        return series;
    }
    let labels = form.exporter().uuid_labels.iter();
    let series = labels.fold(series, |series, label| with_uuid(&series, label));
    format!("{series} unless on (gputop_uuid) ({})", uuids.join(" or "))
}

/// Asks for the GPUs of all hosts with a trouble; `None` where the exporter does not know it.
pub(super) fn troubles(form: SeriesForm, figure: Figure) -> Option<SeriesQuestion> {
    let expression = form.expression(figure, "")?;
    let order = if figure.is_worse_when_less() {
        "bottomk"
    } else {
        "topk"
    };
    Some(now(format!(
        "{order}({MOST_TROUBLES}, max by ({},{}) ({expression}))",
        form.host_labels(),
        form.gpu_labels()
    )))
}

/// Asks for the users of all hosts with the number of their GPUs, the most first. GPUs whose users a
/// better exporter tells are left out.
pub(super) fn owners(form: SeriesForm, better: &[SeriesForm]) -> Option<SeriesQuestion> {
    let owner = form.owner_labels();
    let each = format!(
        "group by ({},{},{owner}) ({})",
        form.host_labels(),
        form.gpu_labels(),
        form.owners("")?
    );
    let better = better.iter();
    let known: Vec<String> = better
        .flat_map(|better| uuids_in(*better, |selected| better.owners(selected)))
        .collect();
    let each = without_gpus(form, each, &known);
    // The instances of a split GPU have an index in common, and no UUID.
    Some(now(format!(
        "topk({MOST_OWNERS}, count by ({owner}) (group by ({},{},{owner}) ({each})))",
        form.host_labels(),
        form.exporter().index_labels.join(",")
    )))
}

/// Asks for a figure of each GPU. `selected` restricts it to some hosts; empty for all.
pub(super) fn of_gpus(
    form: SeriesForm,
    figure: Figure,
    selected: &str,
    all: &[SeriesForm],
) -> Option<SeriesQuestion> {
    let gpus = form.gpu_labels();
    Some(now(of_gpus_text(form, figure, selected, &gpus, all)?))
}

/// Asks for the age of the sample of each GPU, in seconds.
pub(super) fn ages_of_gpus(form: SeriesForm, selected: &str) -> SeriesQuestion {
    now(format!(
        "max by ({},{}) (time() - timestamp({}))",
        form.host_labels(),
        form.gpu_labels(),
        form.sign(selected)
    ))
}

/// Asks for the users and jobs of each GPU.
pub(super) fn owners_of_gpus(form: SeriesForm, selected: &str) -> Option<SeriesQuestion> {
    let expression = form.owners(selected)?;
    Some(now(format!(
        "group by ({},{},{}) ({expression})",
        form.host_labels(),
        form.gpu_labels(),
        form.job_labels()
    )))
}

/// Asks for the model of each GPU, which a label holds.
pub(super) fn models_of_gpus(form: SeriesForm, selected: &str) -> Option<SeriesQuestion> {
    let (expression, label) = form.models(selected)?;
    Some(now(format!(
        "group by ({},{},{label}) ({expression})",
        form.host_labels(),
        form.gpu_labels()
    )))
}

/// Asks for the users and jobs of each host.
pub(super) fn owners_of_hosts(form: SeriesForm) -> Option<SeriesQuestion> {
    let expression = form.owners("")?;
    Some(now(format!(
        "group by ({},{}) ({expression})",
        form.host_labels(),
        form.job_labels()
    )))
}

/// Asks for the models of the GPUs of each host.
pub(super) fn models_of_hosts(form: SeriesForm) -> Option<SeriesQuestion> {
    let (expression, label) = form.models("")?;
    Some(now(format!(
        "group by ({},{label}) ({expression})",
        form.host_labels()
    )))
}

/// Asks for a figure of each host over time.
pub(super) fn past(
    form: SeriesForm,
    figure: Figure,
    selected: &str,
    span: QuestionSpan,
) -> Option<SeriesQuestion> {
    Some(SeriesQuestion {
        expression: of_hosts_text(form, figure, selected, &[])?,
        span: Some(span),
    })
}

/// Groups hosts by the exporter and the label that names them, each group with the matcher that
/// selects its hosts. A host is left out if its name is not known as the server has it: the server
/// would refuse the whole question.
pub(super) fn selected<'a>(
    hosts: impl Iterator<Item = (&'a ClusterHostId, &'a HostSelector)>,
) -> Vec<(SeriesForm, String)> {
    let mut groups: Vec<(SeriesForm, &'static str, Option<&str>, Vec<String>)> = Vec::new();
    for (id, selector) in hosts {
        let cluster = id.cluster.as_ref().map(Text::as_str);
        if [Some(selector.value.as_str()), cluster]
            .into_iter()
            .flatten()
            .any(is_changed)
        {
            continue;
        }
        let value = quoted_pattern(selector.value.as_str());
        match groups.iter_mut().find(|(form, label, known, _)| {
            (*form, *label, *known) == (selector.form, selector.label, cluster)
        }) {
            Some((.., values)) => values.push(value),
            None => groups.push((selector.form, selector.label, cluster, vec![value])),
        }
    }
    groups
        .into_iter()
        .map(|(form, label, cluster, values)| {
            let cluster = cluster.map_or_else(String::new, |cluster| {
                format!(",cluster=\"{}\"", quoted(cluster))
            });
            (form, format!("{label}=~\"{}\"{cluster}", values.join("|")))
        })
        .collect()
}

/// Whether gputop has replaced a character of a name, so that no series has the name that is left.
fn is_changed(name: &str) -> bool {
    name.contains(char::REPLACEMENT_CHARACTER)
}

/// Returns a text as it stands between the quotes of `PromQL`.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '\n' => quoted.push_str("\\n"),
            letter => quoted.push(letter),
        }
    }
    quoted
}

/// Returns the pattern that a text alone matches, as it stands between the quotes of `PromQL`.
fn quoted_pattern(text: &str) -> String {
    quoted(&regex::escape(text))
}
