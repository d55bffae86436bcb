//! Tests of what is not known: refused questions, answers that were cut off, exporters without
//! troubles, hosts off the screen, and names that gputop has changed.

use super::*;

impl AskedServer {
    /// Asks for the totals once; the server refuses the questions of these parts.
    fn ask_totals_refusing(&mut self, refuses: impl Fn(&RoundPart) -> bool) {
        let round = self.cluster.totals_round(true);
        let mut answers = self.answers(&round);
        for (part, answer) in round.parts.iter().zip(&mut answers) {
            if refuses(part) {
                *answer = SeriesAnswer {
                    warning: Some("refused".into()),
                    ..SeriesAnswer::default()
                };
            }
        }
        self.cluster.take(&round, &answers);
    }
}

#[test]
fn a_refused_question_leaves_its_part_unknown_and_the_others_as_they_are() {
    let mut server = AskedServer::with(DCGM, false, &[&[("hostname", "gpu-1")]]);
    let memory = RoundPart::OfHosts(form(DCGM), Figure::MemoryUsed);
    server.knows(memory, &[("hostname", "gpu-1")], GIB);
    server.ask_totals();
    assert_eq!(server.cluster.trouble_knowledge, TroubleKnowledge::Known);
    assert_eq!(server.host("gpu-1").figures.free, Some(0));

    let free = RoundPart::OfHosts(form(DCGM), Figure::Free);
    let xid = RoundPart::Troubles(form(DCGM), Figure::Xid);
    server.ask_totals_refusing(|part| [free, xid].contains(part));
    let figures = &server.host("gpu-1").figures;
    assert_eq!(figures.free, None, "not known, which is not 0");
    assert_eq!(figures.memory_used, Some(Bytes::from_gib(1)));
    assert_eq!(server.cluster.trouble_knowledge, TroubleKnowledge::Refused);
    assert_eq!(server.cluster.warning().map(Text::as_str), Some("refused"));

    server.ask_totals_refusing(|part| matches!(part, RoundPart::Exporters { .. }));
    assert_eq!(server.cluster.exporters(), ["dcgm-exporter"]);
    server.ask_totals_refusing(|part| matches!(part, RoundPart::Gpus(_)));
    assert!(!server.host("gpu-1").is_silent, "nothing says that it is");
    server.ask_totals();
    assert_eq!(server.cluster.warning(), None);
}

#[test]
fn an_exporter_without_troubles_does_not_say_that_there_are_none() {
    let mut server = AskedServer::with(NVITOP, false, &[&[("hostname", "gpu-1")]]);
    assert_eq!(server.cluster.trouble_knowledge, TroubleKnowledge::NotAsked);
    server.ask_totals();
    assert_eq!(
        server.cluster.trouble_knowledge,
        TroubleKnowledge::NotExported
    );
}

#[test]
fn an_answer_with_too_many_series_is_noted() {
    let mut server = AskedServer::with(DCGM, false, &[&[("hostname", "gpu-1")]]);
    server.ask_totals();
    let round = server.cluster.totals_round(false);
    let mut answers = server.answers(&round);
    answers[0].is_cut = true;
    server.cluster.take(&round, &answers);
    let warning = server.cluster.warning().map(Text::as_str);
    assert_eq!(warning, Some("an answer has too many series"));
}

#[test]
fn a_filter_knows_the_users_jobs_and_models_of_hosts_off_the_screen() {
    let mut server = AskedServer::with(DCGM, false, &[&[("hostname", "gpu-1")]]);
    server.ask_totals();
    let host = ("hostname", "gpu-1");
    let owner = [host, ("namespace", "nlp"), ("pod", "train-0")];
    server.knows(RoundPart::OwnersOfHosts(form(DCGM)), &owner, 1.0);
    let model = [host, ("modelName", "NVIDIA H100")];
    server.knows(RoundPart::ModelsOfHosts(form(DCGM)), &model, 1.0);
    let round = server.cluster.words_round();
    let answers = server.answers(&round);
    server.cluster.take(&round, &answers);
    let words = server.host("gpu-1").words.iter().map(Text::as_str);
    assert_eq!(words.collect::<Vec<_>>(), ["NVIDIA H100", "nlp", "train-0"]);
}

#[test]
fn a_name_with_a_replaced_character_is_in_no_question_and_the_others_are() {
    let changed = "gpu\u{FFFD}2";
    let names: [LabelList<'_>; 2] = [&[("hostname", "gpu-1")], &[("hostname", changed)]];
    let mut server = AskedServer::with(DCGM, false, &names);
    server.ask_totals();
    assert_eq!(server.names(), ["gpu-1", changed]);
    let hosts = server.cluster.hosts().map(|(id, _)| id.clone()).collect();
    for question in server.cluster.rows_round(hosts).questions {
        let expression = question.expression;
        assert!(expression.contains("gpu\\\\-1"), "{expression}");
        assert!(!expression.contains('\u{FFFD}'), "{expression}");
    }
}

#[test]
fn a_gpu_whose_memory_is_blank_is_neither_free_nor_busy_and_missing_in_the_sum() {
    let mut server = AskedServer::with(DCGM, false, &[&[("hostname", "gpu-1")]]);
    server.ask_totals();
    assert_eq!(server.host("gpu-1").figures.unknown(), 2, "of two GPUs");
    let known = RoundPart::OfHosts(form(DCGM), Figure::Known);
    server.knows(known, &[("hostname", "gpu-1")], 1.0);
    server.ask_totals();
    assert_eq!(server.host("gpu-1").figures.unknown(), 1);
}
