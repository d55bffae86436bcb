//! Tests of hosts that two exporters read, by one name or by two.

use super::super::questions;
use super::*;

#[test]
fn a_host_that_two_exporters_read_counts_once_and_gputop_s_exporter_wins() {
    let mut server = AskedServer::with(
        DCGM,
        false,
        &[
            &[("Hostname", "gpu-1.example.org")],
            &[("Hostname", "gpu-2")],
            &[("Hostname", "10.0.0.5")],
        ],
    );
    server.adds(
        NVITOP,
        false,
        &[&[("hostname", "10.0.0.5")], &[("hostname", "10.0.0.6")]],
    );
    server.adds(GPUTOP, false, &[&[("host", "gpu-1")]]);
    let twins = RoundPart::Twins(form(DCGM));
    server.knows(twins, &[("Hostname", "gpu-1.example.org")], 1.0);
    server.ask_totals();
    assert_eq!(server.names(), ["10.0.0.5", "10.0.0.6", "gpu-1", "gpu-2"]);
    let form_of = |host: &str| server.host(host).selector.form;
    assert_eq!(form_of("gpu-1"), form(GPUTOP));
    assert_eq!(form_of("gpu-2"), form(DCGM));
    assert_eq!(form_of("10.0.0.5"), form(DCGM));
    assert_eq!(form_of("10.0.0.6"), form(NVITOP));
    assert_eq!(
        server.cluster.exporters(),
        ["gputop exporter", "dcgm-exporter", "nvitop-exporter"]
    );
}

#[test]
fn a_host_of_another_name_with_the_same_gpus_is_there_while_no_better_exporter_reads_it() {
    let pod: LabelList<'_> = &[("Hostname", "dcgm-exporter-x2x")];
    let mut server = AskedServer::with(DCGM, false, &[pod, &[("Hostname", "gpu-2")]]);
    server.ask_totals();
    assert_eq!(server.names(), ["dcgm-exporter-x2x", "gpu-2"]);
    server.adds(GPUTOP, false, &[&[("host", "gpu-1")]]);
    let twins = RoundPart::Twins(form(DCGM));
    server.knows(twins, pod, 1.0);
    server.ask_totals();
    assert_eq!(server.names(), ["gpu-1", "gpu-2"]);

    // A question that the server refuses says nothing.
    let round = server.cluster.totals_round(false);
    let mut answers = server.answers(&round);
    let place = round.parts.iter().position(|part| *part == twins);
    answers[place.expect("twins are asked for")] = SeriesAnswer {
        warning: Some("too many series".into()),
        ..SeriesAnswer::default()
    };
    server.cluster.take(&round, &answers);
    assert_eq!(server.names(), ["gpu-1", "gpu-2"]);

    let is_of_gputop = |part: &RoundPart, series: &Series| {
        let sign = series.label("sign").map(Text::as_str);
        *part == RoundPart::Gpus(form(GPUTOP)) || sign == Some(GPUTOP)
    };
    let known = &mut server.known;
    known.retain(|(part, series)| *part != twins && !is_of_gputop(part, series));
    server.ask_totals();
    assert_eq!(server.names(), ["dcgm-exporter-x2x", "gpu-1", "gpu-2"]);
    assert!(server.host("gpu-1").is_silent && !server.host("dcgm-exporter-x2x").is_silent);
}

#[test]
fn the_figures_of_a_host_come_from_the_exporter_that_counts_for_it() {
    let labels: LabelList<'_> = &[("Hostname", "gpu-1")];
    let mut server = AskedServer::with(DCGM, false, &[labels]);
    server.adds(GPUTOP, false, &[&[("host", "gpu-1")]]);
    for (sign, labels, used) in [
        (GPUTOP, &[("host", "gpu-1")] as LabelList<'_>, 3.0 * GIB),
        (DCGM, labels, 70.0 * GIB),
    ] {
        let part = RoundPart::OfHosts(form(sign), Figure::MemoryUsed);
        server.knows(part, labels, used);
    }
    server.ask_totals();
    let used = server.host("gpu-1").figures.memory_used;
    assert_eq!(used, Some(Bytes::from_gib(3)));
}

#[test]
fn hosts_are_the_same_where_two_exporters_read_a_gpu_of_the_same_uuid() {
    let question = questions::twins(form_by_instance(SMI), &[form(GPUTOP), form(DCGM)]);
    assert_eq!(
        question.expression,
        "group by (cluster,instance) ((label_replace(group by (cluster,instance,uuid) \
         (nvidia_smi_memory_used_bytes{hostname=\"\",host=\"\",nodename=\"\",node=\"\",\
         uuid=~\"(GPU-)?[0-9a-f]{8}-.+\"}), \"gputop_uuid\", \"$1\", \"uuid\", \"(?:GPU-)?(.+)\")) \
         and on (gputop_uuid) \
         (label_replace(group by (uuid) (gputopmon_gpu_info{gpu!~\".*:.*\",\
         uuid=~\"(GPU-)?[0-9a-f]{8}-.+\"}), \"gputop_uuid\", \"$1\", \"uuid\", \"(?:GPU-)?(.+)\") or \
         label_replace(group by (UUID) (DCGM_FI_DEV_FB_USED{UUID=~\"(GPU-)?[0-9a-f]{8}-.+\"}), \
         \"gputop_uuid\", \"$1\", \"UUID\", \"(?:GPU-)?(.+)\")))"
    );
}
