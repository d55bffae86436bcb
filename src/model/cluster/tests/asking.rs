//! Tests of the questions: each asks for few series, and a name means its host alone.

use super::super::questions;
use super::*;
use crate::protocol::series::{QuestionSpan, SeriesQuestion};

const SPAN: QuestionSpan = QuestionSpan {
    length: Duration::from_hours(1),
    step: Duration::from_mins(1),
};

fn forms() -> impl Iterator<Item = SeriesForm> {
    [false, true].into_iter().flat_map(SeriesForm::all)
}

/// The matcher of these hosts in a question, with the labels that name them.
fn matcher(hosts: &[(Option<&str>, &str)]) -> Vec<String> {
    let hosts: Vec<(ClusterHostId, HostSelector)> = hosts
        .iter()
        .map(|(cluster, name)| {
            let id = ClusterHostId {
                cluster: cluster.map(Text::from),
                name: (*name).into(),
            };
            let selector = HostSelector {
                form: form(DCGM),
                label: "Hostname",
                value: (*name).into(),
            };
            (id, selector)
        })
        .collect();
    let selected = questions::selected(hosts.iter().map(|(id, selector)| (id, selector)));
    selected.into_iter().map(|(_, matcher)| matcher).collect()
}

#[test]
fn letters_of_patterns_and_quotes_in_a_name_mean_only_that_host() {
    for (name, expected) in [
        ("gpu-1", r#"Hostname=~"gpu\\-1""#),
        ("a.b", r#"Hostname=~"a\\.b""#),
        ("a|b", r#"Hostname=~"a\\|b""#),
        (".*", r#"Hostname=~"\\.\\*""#),
        (r#"x"y"#, r#"Hostname=~"x\"y""#),
        (r#"x",y="z"#, r#"Hostname=~"x\",y=\"z""#),
        (r"x\d", r#"Hostname=~"x\\\\d""#),
        (
            "a(b)[c]{d}^$?+",
            r#"Hostname=~"a\\(b\\)\\[c\\]\\{d\\}\\^\\$\\?\\+""#,
        ),
    ] {
        assert_eq!(matcher(&[(None, name)]), [expected], "{name}");
    }
}

/// Reads the value of `label=~"…"` as `PromQL` does, and returns the pattern.
fn pattern(matcher: &str) -> regex::Regex {
    let quoted = matcher.split_once("=~\"").expect("a matcher").1;
    let quoted = quoted.strip_suffix('"').expect("a quote at the end");
    let mut text = String::new();
    let mut letters = quoted.chars();
    while let Some(letter) = letters.next() {
        assert_ne!(letter, '"', "{matcher}");
        text.push(match letter {
            '\\' => match letters.next().expect("an escape has a letter") {
                'n' => '\n',
                letter @ ('"' | '\\') => letter,
                letter => panic!("\\{letter} is no escape of PromQL: {matcher}"),
            },
            letter => letter,
        });
    }
    regex::Regex::new(&format!("^(?:{text})$")).expect("the pattern is valid")
}

proptest::proptest! {
    #[test]
    fn the_pattern_of_any_name_matches_that_name_alone(name in "[ -~äß名]{1,12}", other in "[ -~]{1,12}") {
        let matchers = matcher(&[(None, &name)]);
        let pattern = pattern(&matchers[0]);
        proptest::prop_assert!(pattern.is_match(&name), "{pattern}");
        proptest::prop_assert_eq!(pattern.is_match(&other), name == other);
    }
}

#[test]
fn hosts_of_one_cluster_are_asked_for_together_and_the_cluster_is_named() {
    assert_eq!(
        matcher(&[
            (None, "a"),
            (Some("east"), "a"),
            (None, "b"),
            (Some("we\"st"), "c"),
        ]),
        [
            r#"Hostname=~"a|b""#,
            r#"Hostname=~"a",cluster="east""#,
            r#"Hostname=~"c",cluster="we\"st""#,
        ]
    );
}

/// Whether a question asks for one value for each host or each GPU, or for less.
#[track_caller]
fn check_aggregated(question: &SeriesQuestion, form: SeriesForm) {
    let expression = &question.expression;
    let hosts = form.host_labels();
    let aggregations = ["sum", "avg", "count", "max", "group"].iter();
    let mut by_host = aggregations.map(|word| format!("{word} by ({hosts}"));
    let is_limited = expression.starts_with("topk(") || expression.starts_with("bottomk(");
    let is_one_value = expression.starts_with("quantile(0.5, ");
    assert!(
        is_limited || is_one_value || by_host.any(|start| expression.starts_with(&start)),
        "{expression}"
    );
    let count = |letter: char| expression.matches(letter).count();
    assert_eq!(count('('), count(')'), "{expression}");
    assert_eq!(count('{'), count('}'), "{expression}");
    assert_eq!(count('"') % 2, 0, "{expression}");
    assert!(
        !expression.replace("\"$1\"", "").contains('$'),
        "{expression}"
    );
}

#[test]
fn each_question_about_all_hosts_gives_a_value_for_each_host_or_has_a_limit() {
    for form in forms() {
        let hosts = format!("by ({})", form.host_labels());
        let has_hosts = |question: &SeriesQuestion| question.expression.contains(&hosts);
        for figure in Figure::OF_HOSTS {
            let question = questions::of_hosts(form, figure, &[]).expect("all exporters have it");
            check_aggregated(&question, form);
            assert!(has_hosts(&question), "{question:?}");
        }
        for question in [
            questions::gpus(form),
            questions::ages(form),
            questions::ended(form, &[form]),
        ] {
            check_aggregated(&question, form);
            assert!(has_hosts(&question), "{question:?}");
        }
        check_aggregated(&questions::samples(form), form);
        let troubles = Figure::TROUBLES.map(|figure| questions::troubles(form, figure));
        for question in troubles
            .into_iter()
            .chain([questions::owners(form, &[])])
            .flatten()
        {
            let expression = &question.expression;
            let limits = ["topk(200, ", "bottomk(200, ", "topk(100, "];
            assert!(
                limits.iter().any(|limit| expression.starts_with(limit)),
                "{expression}"
            );
            check_aggregated(&question, form);
        }
    }
}

#[test]
fn the_exporters_are_asked_for_with_one_count_for_each() {
    for by_instance in [false, true] {
        let question = questions::exporters(by_instance).expression;
        let parts: Vec<&str> = question.split("label_replace(").skip(1).collect();
        assert_eq!(parts.len(), 5, "{question}");
        for (part, form) in parts.iter().zip(SeriesForm::all(by_instance)) {
            let sign = form.exporter().sign;
            assert!(part.starts_with(&format!("count({sign}{{")), "{part}");
            let label = format!("\"sign\", \"{sign}\", \"\", \"\")");
            assert!(part.contains(&label), "{part}");
            assert_eq!(SeriesForm::of_sign(sign, by_instance), Some(form));
        }
    }
}

#[test]
fn each_question_about_gpus_or_the_past_names_its_hosts() {
    const SELECTED: &str = "Hostname=~\"a|b\"";
    for form in forms() {
        let of_gpus = Figure::OF_GPUS.map(|figure| questions::of_gpus(form, figure, SELECTED, &[]));
        let past = [Figure::MemoryUsed, Figure::Sm]
            .map(|figure| questions::past(form, figure, SELECTED, SPAN));
        let others = [
            Some(questions::ages_of_gpus(form, SELECTED)),
            questions::owners_of_gpus(form, SELECTED),
            questions::models_of_gpus(form, SELECTED),
        ];
        for question in of_gpus.into_iter().chain(past).chain(others).flatten() {
            check_aggregated(&question, form);
            assert!(question.expression.contains(SELECTED), "{question:?}");
        }
    }
}

#[test]
fn the_rounds_of_a_cluster_hold_one_question_for_each_part() {
    let mut server = AskedServer::with(GPUTOP, false, &[&[("host", "gpu-1")]]);
    server.adds(DCGM, false, &[&[("Hostname", "gpu-2")]]);
    server.adds(SMI, true, &[&[("instance", "gpu-3:9835")]]);
    server.ask_totals();
    let hosts: Vec<ClusterHostId> = server.cluster.hosts().map(|(id, _)| id.clone()).collect();
    assert_eq!(hosts.len(), 3);
    let rows = server.cluster.rows_round(hosts.clone());
    for round in [
        server.cluster.totals_round(true),
        server.cluster.ended_round(),
        server.cluster.all_gpus_round(),
        server.cluster.past_round(hosts, SPAN),
        rows.clone(),
    ] {
        assert_eq!(round.parts.len(), round.questions.len());
        assert!(!round.parts.is_empty(), "{:?}", round.kind);
    }
    // Each exporter is asked for its own hosts only.
    for name in [
        r#"host=~"gpu\\-1""#,
        r#"Hostname=~"gpu\\-2""#,
        r#"instance=~"gpu\\-3:9835""#,
    ] {
        let named = rows
            .questions
            .iter()
            .filter(|question| question.expression.contains(name));
        let count = named.count();
        assert!((7..=10).contains(&count), "{name}: {count}");
    }
}

#[test]
fn each_exporter_has_the_figures_that_every_row_shows() {
    for form in forms() {
        for figure in [
            Figure::MemoryUsed,
            Figure::MemoryTotal,
            Figure::Sm,
            Figure::Power,
            Figure::Temperature,
            Figure::Free,
        ] {
            let expression = form.expression(figure, "");
            let name = form.exporter().name;
            assert!(expression.is_some(), "{name} lacks {figure:?}");
        }
    }
}
