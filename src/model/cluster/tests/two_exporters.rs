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
fn hosts_are_the_same_where_better_exporters_read_all_gpus_of_the_same_uuids() {
    let question = questions::twins(form_by_instance(SMI), &[form(DCGM)]).expression;
    let own = "label_replace(group by (cluster,instance,uuid) \
               (nvidia_smi_memory_used_bytes{hostname=\"\",host=\"\",nodename=\"\",node=\"\",\
               uuid=~\"(GPU-)?[0-9a-f]{8}-.+\"}), \"gputop_uuid\", \"$1\", \"uuid\", \
               \"(?:GPU-)?([0-9a-f]{8}-.+)\")";
    // A series without a label that names the host is one of another form.
    let other = "label_replace(group by (UUID) (DCGM_FI_DEV_FB_USED{UUID=~\"(GPU-)?[0-9a-f]{8}-.+\"} unless \
                 DCGM_FI_DEV_FB_USED{UUID=~\"(GPU-)?[0-9a-f]{8}-.+\",hostname=\"\",Hostname=\"\"}), \
                 \"gputop_uuid\", \"$1\", \"UUID\", \"(?:GPU-)?([0-9a-f]{8}-.+)\")";
    assert_eq!(
        question,
        format!(
            "group by (cluster,instance) ({own}) unless group by (cluster,instance) \
             (({own}) unless on (gputop_uuid) ({other}))"
        )
    );
    let ended = questions::ended(form_by_instance(SMI), &[form(DCGM)]).expression;
    let expected = format!(
        "[1h])), \"gputop_uuid\", \"$1\", \"uuid\", \"(?:GPU-)?([0-9a-f]{{8}}-.+)\") \
                            unless on (gputop_uuid) ({other})) unless group by (cluster,instance) ("
    );
    assert!(ended.contains(&expected), "{ended}");
}

#[test]
fn an_error_of_the_hardware_counts_whichever_exporter_tells_of_it_once() {
    let pod: LabelList<'_> = &[("Hostname", "pod-1")];
    let mut server =
        AskedServer::with(GPUTOP, false, &[&[("host", "gpu-1")], &[("host", "gpu-2")]]);
    server.adds(DCGM, false, &[pod, &[("Hostname", "gpu-2")]]);
    server.knows(RoundPart::Twins(form(DCGM)), pod, 1.0);
    let xid = |sign| RoundPart::Troubles(form(sign), Figure::Xid);
    let both: LabelList<'_> = &[("host", "gpu-1"), ("gpu", "0"), ("uuid", "GPU-a")];
    server.knows(xid(GPUTOP), both, 48.0);
    for (host, gpu, uuid) in [
        ("pod-1", "0", "GPU-a"),
        ("pod-1", "1", "GPU-b"),
        ("gpu-2", "3", "GPU-c"),
    ] {
        let labels: LabelList<'_> = &[("Hostname", host), ("gpu", gpu), ("UUID", uuid)];
        server.knows(xid(DCGM), labels, 79.0);
    }
    server.ask_totals();
    assert_eq!(server.names(), ["gpu-1", "gpu-2"]);
    assert_eq!(
        server.troubles(),
        [
            "gpu-1:0 last Xid 48: memory error that ECC could not correct",
            "gpu-2:3 last Xid 79: fell off the bus",
            "pod-1:1 last Xid 79: fell off the bus",
        ]
    );
    assert_eq!(server.cluster.sick_elsewhere(), 1);
    // The same GPU, of which the better exporter does not say what it has.
    let known: LabelList<'_> = &[("host", "gpu-1"), ("gpu", "1"), ("uuid", "GPU-b")];
    let error = RoundPart::Troubles(form(GPUTOP), Figure::HardwareError);
    server.knows(error, known, 1.0);
    server.ask_totals();
    assert_eq!(server.troubles().len(), 4);
    assert_eq!(server.cluster.sick_elsewhere(), 0);
}

#[test]
fn a_gpu_is_not_free_whichever_exporter_tells_of_an_error_of_its_hardware() {
    let both = [form(GPUTOP), form(SMI)];
    let free =
        |all| questions::of_hosts(form(GPUTOP), Figure::Free, all).expect("it has the figure");
    let alone = free(&both[..1]).expression;
    assert!(!alone.contains("gputop_uuid"), "{alone}");
    let beside = free(&both).expression;
    let sick = |series: &str| {
        format!(
            "label_replace(group by (uuid) ({series}{{uuid=~\"(GPU-)?[0-9a-f]{{8}}-.+\"}} > 0), \
             \"gputop_uuid\", \"$1\", \"uuid\", \"(?:GPU-)?([0-9a-f]{{8}}-.+)\")"
        )
    };
    let end = format!(
        "\"gputop_uuid\", \"$1\", \"uuid\", \"(?:GPU-)?([0-9a-f]{{8}}-.+)\") unless on (gputop_uuid) ({} or {}))",
        sick("nvidia_smi_remapped_rows_failure"),
        sick("nvidia_smi_ecc_errors_uncorrected_volatile_total")
    );
    assert!(beside.ends_with(&end), "{beside}");

    let pod: LabelList<'_> = &[("Hostname", "pod-1")];
    let mut server = AskedServer::with(GPUTOP, false, &[&[("host", "gpu-1")]]);
    server.adds(DCGM, false, &[pod]);
    server.knows(RoundPart::Twins(form(DCGM)), pod, 1.0);
    let labels: LabelList<'_> = &[("Hostname", "pod-1"), ("gpu", "0"), ("UUID", "GPU-a")];
    server.knows(RoundPart::Troubles(form(DCGM), Figure::Xid), labels, 79.0);
    for uuid in ["GPU-a", "GPU-b"] {
        let gpu: LabelList<'_> = &[("host", "gpu-1"), ("gpu", "0"), ("uuid", uuid)];
        let used = RoundPart::OfGpus(form(GPUTOP), Figure::MemoryUsed);
        server.knows(used, gpu, 3.0 * GIB);
    }
    server.ask_totals();
    let round = server.cluster.all_gpus_round();
    let answers = server.answers(&round);
    server.cluster.take(&round, &answers);
    let states = server.host("gpu-1").gpus.iter().map(|gpu| gpu.state);
    assert_eq!(states.collect::<Vec<_>>(), [GpuState::Sick, GpuState::Busy]);
}

#[test]
fn users_are_counted_on_gpus_whose_users_no_better_exporter_tells() {
    let asked = |better: &[_]| questions::owners(form(NVITOP), better).expect("it has users");
    let alone = asked(&[form(SMI)]).expression;
    assert!(!alone.contains("gputop_uuid"), "{alone}");
    let beside = asked(&[form(GPUTOP), form(SMI)]).expression;
    let known = " unless on (gputop_uuid) (label_replace(group by (uuid) (label_replace(\
                 gputopmon_processes{uuid=~\"(GPU-)?[0-9a-f]{8}-.+\"} > 0, ";
    assert!(beside.contains(known), "{beside}");
}

#[test]
fn an_error_of_the_hardware_without_a_name_is_told_where_no_other_is_and_a_host_without_gpus_is_there()
 {
    let mut server = AskedServer::with(GPUTOP, false, &[&[("host", "gpu-1")]]);
    let gpu = |index| [("host", "gpu-1"), ("gpu", index), ("uuid", index)];
    let trouble = |figure| RoundPart::Troubles(form(GPUTOP), figure);
    server.knows(trouble(Figure::EccErrors), &gpu("0"), 3.0);
    for index in ["0", "1"] {
        server.knows(trouble(Figure::HardwareError), &gpu(index), 1.0);
    }
    server.knows(trouble(Figure::Leftover), &gpu("2"), 0.0);
    // An index that stands for a UUID is that of GPUs of other hosts, too.
    let unknown = |host| [("host", host), ("gpu", "3"), ("uuid", "unknown-3")];
    server.knows(trouble(Figure::Lost), &unknown("gpu-1"), 1.0);
    server.adds(GPUTOP, false, &[&[("host", "gpu-3")]]);
    server.knows(trouble(Figure::HardwareError), &unknown("gpu-3"), 1.0);
    // The driver of this host does not run.
    server.knows(trouble(Figure::Lost), &[("host", "gpu-2")], 1.0);
    server.ask_totals();
    assert_eq!(server.names(), ["gpu-1", "gpu-2", "gpu-3"]);
    assert_eq!(
        server.troubles(),
        [
            "gpu-1:3 lost, or does not answer",
            "gpu-2: lost, or does not answer",
            "gpu-1:0 uncorrected ECC errors: 3",
            "gpu-1:1 an error of the hardware: its host tells which",
            "gpu-3:3 an error of the hardware: its host tells which",
            "gpu-1:2 leftover processes hold an unknown amount of memory",
        ]
    );
    assert_eq!(server.host("gpu-1").sick(), 3);
    assert_eq!(server.host("gpu-2").sick(), 0);
}

#[test]
fn the_gpus_of_a_host_come_from_the_exporter_that_counts_for_it() {
    let mut server = AskedServer::with(GPUTOP, false, &[&[("host", "gpu-1")]]);
    server.adds(SMI, true, &[&[("instance", "gpu-1:9835")]]);
    let used = |form| RoundPart::OfGpus(form, Figure::MemoryUsed);
    let of_gputop: LabelList<'_> = &[("host", "gpu-1"), ("gpu", "0"), ("uuid", "GPU-a")];
    server.knows(used(form(GPUTOP)), of_gputop, 2.0 * GIB);
    let of_smi: LabelList<'_> = &[("instance", "gpu-1:9835"), ("uuid", "a")];
    server.knows(used(form_by_instance(SMI)), of_smi, 3.0 * GIB);
    server.ask_totals();
    let round = server.cluster.all_gpus_round();
    let answers = server.answers(&round);
    server.cluster.take(&round, &answers);
    let gpus = server.host("gpu-1").gpus.iter();
    let used: Vec<Option<Bytes>> = gpus.map(|gpu| gpu.memory_used).collect();
    assert_eq!(used, [Some(Bytes::from_gib(2))]);
}

#[test]
fn a_silent_host_whose_gpus_have_samples_under_another_name_is_forgotten() {
    let hosts: [LabelList<'_>; 3] = [
        &[("Hostname", "pod-a")],
        &[("Hostname", "gpu-2")],
        &[("Hostname", "gpu-3")],
    ];
    let mut server = AskedServer::with(DCGM, false, &hosts);
    server.ask_totals();
    // One pod has a new name, and one host is lost.
    server.known.clear();
    server.adds(DCGM, false, &[&[("Hostname", "pod-b")], hosts[1]]);
    server.now += 60.0;
    server.ask_totals();
    assert_eq!(server.names(), ["gpu-2", "gpu-3", "pod-a", "pod-b"]);
    assert!(server.cluster.has_silent_hosts());
    server.knows(RoundPart::Ended(form(DCGM)), hosts[2], 1.0);
    let round = server.cluster.ended_round();
    let answers = server.answers(&round);
    server.cluster.take(&round, &answers);
    assert_eq!(server.names(), ["gpu-2", "gpu-3", "pod-b"]);
}
