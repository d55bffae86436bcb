//! Tests of clusters: answers of a Prometheus server become hosts, GPUs and troubles.

mod asking;
mod split_gpus;
mod two_exporters;
mod unknown;

use super::rounds::RoundPart;
use super::*;
use crate::base::units::{Bytes, Percent};
use crate::model::GpuState;
use crate::protocol::series::{Series, SeriesAnswer, SeriesPoint};

const GIB: f64 = 1_073_741_824.0;

/// The server's clock at its first answer.
const START: f64 = 1_795_780_000.0;

/// The signs of exporters.
const GPUTOP: &str = "gputopmon_gpu_info";
const DCGM: &str = "DCGM_FI_DEV_FB_USED";
const NVITOP: &str = "gpu_memory_used_MiB";
const SMI: &str = "nvidia_smi_memory_used_bytes";

/// Labels by their names.
type LabelList<'a> = &'a [(&'a str, &'a str)];

fn series(labels: LabelList<'_>, time: f64, value: f64) -> Series {
    let mut labels: Vec<(Text, Text)> = labels
        .iter()
        .map(|(name, value)| ((*name).into(), (*value).into()))
        .collect();
    labels.sort();
    Series {
        labels,
        points: vec![SeriesPoint { time, value }],
    }
}

fn form(sign: &str) -> SeriesForm {
    SeriesForm::of_sign(sign, false).expect("the sign is that of an exporter")
}

fn form_by_instance(sign: &str) -> SeriesForm {
    SeriesForm::of_sign(sign, true).expect("the sign is that of an exporter")
}

/// A server that knows some series, and the cluster that gputop makes of its answers.
struct AskedServer {
    now: f64,
    known: Vec<(RoundPart, Series)>,
    cluster: Cluster,
}

impl AskedServer {
    fn new() -> Self {
        Self {
            now: START,
            known: Vec::new(),
            cluster: Cluster::default(),
        }
    }

    fn knows(&mut self, part: RoundPart, labels: LabelList<'_>, value: f64) {
        self.known.push((part, series(labels, self.now, value)));
    }

    /// Adds an exporter, and hosts with two GPUs each, which have these labels.
    fn with(sign: &str, by_instance: bool, hosts: &[LabelList<'_>]) -> Self {
        let mut server = Self::new();
        server.adds(sign, by_instance, hosts);
        server
    }

    fn adds(&mut self, sign: &str, by_instance: bool, hosts: &[LabelList<'_>]) {
        let exporters = RoundPart::Exporters { by_instance };
        self.knows(exporters, &[("sign", sign)], 1.0);
        let form = SeriesForm::of_sign(sign, by_instance).expect("the sign is that of an exporter");
        for labels in hosts {
            self.knows(RoundPart::Gpus(form), labels, 2.0);
        }
    }

    fn answers(&self, round: &ClusterRound) -> Vec<SeriesAnswer> {
        let answer = |part: &RoundPart| {
            let known = self.known.iter().filter(|(known, _)| known == part);
            let series = known.map(|(_, series)| {
                let mut series = series.clone();
                for point in &mut series.points {
                    point.time = self.now;
                }
                series
            });
            SeriesAnswer {
                series: series.collect(),
                ..SeriesAnswer::default()
            }
        };
        round.parts.iter().map(answer).collect()
    }

    /// Asks for the totals until nothing more is to be asked for at once.
    fn ask_totals(&mut self) {
        for turn in 0..5 {
            let round = self.cluster.totals_round(turn == 0);
            if !self.cluster.take(&round, &self.answers(&round)) {
                return;
            }
        }
        panic!("the cluster asks again and again");
    }

    /// Asks for the GPUs of all hosts.
    fn ask_rows(&mut self) {
        let hosts = self.cluster.hosts().map(|(id, _)| id.clone()).collect();
        let round = self.cluster.rows_round(hosts);
        let answers = self.answers(&round);
        self.cluster.take(&round, &answers);
    }

    fn names(&self) -> Vec<String> {
        let hosts = self.cluster.hosts();
        hosts.map(|(id, _)| id.name.to_string()).collect()
    }

    #[track_caller]
    fn host(&self, name: &str) -> &ClusterHost {
        let mut hosts = self.cluster.hosts();
        let found = hosts.find(|(id, _)| id.name.as_str() == name);
        let (_, host) = found.unwrap_or_else(|| panic!("{name} in {:?}", self.names()));
        host
    }

    /// The state of each GPU of a host, with its label.
    #[track_caller]
    fn states(&self, host: &str) -> Vec<(String, GpuState)> {
        let gpus = self.host(host).gpus.iter();
        gpus.map(|gpu| (gpu.label(), gpu.state)).collect()
    }

    /// The lines of troubles: the host, the GPUs and the sentence.
    fn troubles(&self) -> Vec<String> {
        let troubles = self.cluster.troubles();
        let line = |trouble: &ClusterTrouble| {
            let (host, gpus) = (&trouble.host.name, trouble.gpus.join(","));
            format!("{host}:{gpus} {}", trouble.sentence)
        };
        troubles.iter().map(line).collect()
    }
}

#[test]
fn a_host_is_named_by_hostname_in_small_letters_or_not() {
    let mut server = AskedServer::with(
        DCGM,
        false,
        &[&[("Hostname", "gpu-1")], &[("hostname", "gpu-2")]],
    );
    server.ask_totals();
    assert_eq!(server.names(), ["gpu-1", "gpu-2"]);
    assert_eq!(server.host("gpu-1").figures.gpus, 2);
    assert_eq!(server.cluster.exporters(), ["dcgm-exporter"]);
}

#[test]
fn a_scraped_address_names_the_host_without_its_port() {
    let hosts: [LabelList<'_>; 4] = [
        &[("instance", "gpu-1.example.org:9835")],
        &[("instance", "[fd00::7]:9835")],
        &[("instance", "10.0.0.5:9835")],
        &[("instance", "gpu-2")],
    ];
    let mut server = AskedServer::with(SMI, true, &hosts);
    server.ask_totals();
    assert_eq!(
        server.names(),
        ["10.0.0.5", "fd00::7", "gpu-1.example.org", "gpu-2"]
    );
}

#[test]
fn the_figures_of_a_host_are_in_bytes_percent_and_watts() {
    let labels: LabelList<'_> = &[("Hostname", "gpu-1")];
    let mut server = AskedServer::with(DCGM, false, &[labels]);
    for (figure, value) in [
        (Figure::MemoryUsed, 60.5 * GIB),
        (Figure::MemoryTotal, 160.0 * GIB),
        (Figure::Sm, 130.0),
        (Figure::Power, 812.25),
        (Figure::Free, 1.0),
    ] {
        server.knows(RoundPart::OfHosts(form(DCGM), figure), labels, value);
    }
    server.knows(RoundPart::Ages(form(DCGM)), labels, 12.5);
    server.knows(RoundPart::Samples, &[], 8.0);
    server.ask_totals();
    let expected = ClusterFigures {
        known: Some(0),
        gpus: 2,
        free: Some(1),
        memory_used: Some(Bytes(Bytes::from_gib(60).0 + (1 << 29))),
        memory_total: Some(Bytes::from_gib(160)),
        // No GPU computes more than all the time.
        sm: Some(Percent::new(100.0)),
        power: Some(812.25),
        age: Some(Duration::from_millis(12_500)),
    };
    assert_eq!(server.host("gpu-1").figures, expected);
    // 8 samples in 2 minutes.
    assert_eq!(server.cluster.interval, Some(Duration::from_secs(15)));
}

#[test]
fn a_host_without_a_series_of_free_gpus_has_none_and_unknown_is_not_zero() {
    let mut server = AskedServer::with(
        DCGM,
        false,
        &[&[("Hostname", "gpu-1")], &[("Hostname", "gpu-2")]],
    );
    let part = RoundPart::OfHosts(form(DCGM), Figure::Free);
    server.knows(part, &[("Hostname", "gpu-1")], 2.0);
    server.ask_totals();
    assert_eq!(server.host("gpu-1").figures.free, Some(2));
    assert_eq!(server.host("gpu-2").figures.free, Some(0));
    assert_eq!(server.host("gpu-2").figures.memory_used, None);
    assert_eq!(server.host("gpu-2").figures.sm, None);

    // An exporter that cannot say which GPUs are free is not asked for them.
    let mut round = server.cluster.totals_round(false);
    let mut answers = server.answers(&round);
    let place = round.parts.iter().position(|known| *known == part);
    let place = place.expect("free GPUs were asked for");
    round.parts.remove(place);
    answers.remove(place);
    server.cluster.take(&round, &answers);
    assert_eq!(server.host("gpu-1").figures.free, None);
}

#[test]
fn a_host_whose_samples_end_is_silent_keeps_its_place_and_comes_back() {
    let hosts: [LabelList<'_>; 3] = [
        &[("Hostname", "gpu-1")],
        &[("Hostname", "gpu-2")],
        &[("Hostname", "gpu-3")],
    ];
    let mut server = AskedServer::with(DCGM, false, &hosts);
    server.ask_totals();
    assert_eq!(server.troubles(), [""; 0]);
    let all = std::mem::take(&mut server.known);
    let is_of_second = |series: &Series| {
        let host = series.label("Hostname");
        host.is_some_and(|host| host.as_str() == "gpu-2")
    };
    server.known = all.clone();
    server.known.retain(|(_, series)| !is_of_second(series));
    server.now += 95.0;
    server.ask_totals();
    assert_eq!(server.names(), ["gpu-1", "gpu-2", "gpu-3"]);
    let silent = server.host("gpu-2");
    let silence = server.cluster.silence(silent);
    assert_eq!(silence, Some(Duration::from_secs(95)));
    assert_eq!(server.cluster.worst_of(silent), Some(TroubleRank::Silent));
    assert_eq!(server.troubles(), ["gpu-2: no samples for 1m35s"]);
    assert_eq!(server.cluster.silence(server.host("gpu-1")), None);

    server.known = all;
    server.now += 15.0;
    server.ask_totals();
    assert_eq!(server.cluster.silence(server.host("gpu-2")), None);
    assert_eq!(server.troubles(), [""; 0]);
}

#[test]
fn a_host_whose_samples_ended_before_the_first_question_is_listed() {
    let mut server = AskedServer::with(DCGM, false, &[&[("Hostname", "gpu-1")]]);
    server.ask_totals();
    let ended = RoundPart::Ended(form(DCGM));
    server.knows(ended, &[("Hostname", "gpu-0")], 1.0);
    server.knows(ended, &[("Hostname", "gpu-1")], 1.0);
    let round = server.cluster.ended_round();
    let answers = server.answers(&round);
    server.cluster.take(&round, &answers);
    assert_eq!(server.names(), ["gpu-0", "gpu-1"]);
    assert!(server.host("gpu-0").is_silent);
    assert!(!server.host("gpu-1").is_silent, "it has samples");
    assert_eq!(
        server.troubles(),
        ["gpu-0: no samples now; there were some in the last hour"]
    );
}

#[test]
fn troubles_come_in_the_order_of_their_urgency() {
    let mut server = AskedServer::with(
        GPUTOP,
        false,
        &[
            &[("host", "a")],
            &[("host", "b")],
            &[("host", "c")],
            &[("host", "silent")],
        ],
    );
    server.ask_totals();
    server.known.pop();
    for (figure, host, value) in [
        (Figure::Slowdown, "a", 1.0),
        (Figure::HeldIdle, "a", 7200.0),
        (Figure::Leftover, "a", 3.0 * GIB),
        (Figure::Leak, "b", 1.0),
        (Figure::Xid, "b", 79.0),
        (Figure::FullSoon, "c", 300.0),
    ] {
        let part = RoundPart::Troubles(form(GPUTOP), figure);
        server.knows(
            part,
            &[("host", host), ("gpu", "4"), ("uuid", "GPU-4")],
            value,
        );
    }
    let lost = RoundPart::Troubles(form(GPUTOP), Figure::Lost);
    server.knows(lost, &[("host", "c")], 1.0);
    server.now += 60.0;
    server.ask_totals();
    assert_eq!(
        server.troubles(),
        [
            "c: lost, or does not answer",
            "c:4 memory is full in 5m00s, if it grows on",
            "b:4 last Xid 79: fell off the bus",
            "b:4 memory leaks",
            "silent: no samples for 1m00s",
            "a:4 leftover processes hold 3.0 GiB",
            "a:4 the hardware or its temperature slows it down",
            "a:4 held without use for 2h00m",
        ]
    );
    let worst = |host: &str| server.cluster.worst_of(server.host(host));
    assert_eq!(worst("a"), Some(TroubleRank::Leftover));
    assert_eq!(worst("b"), Some(TroubleRank::HardwareError));
    assert_eq!(worst("c"), Some(TroubleRank::Lost));
}

#[test]
fn gpus_of_a_host_with_the_same_trouble_share_a_line() {
    let mut server = AskedServer::with(
        DCGM,
        false,
        &[&[("Hostname", "gpu-1")], &[("Hostname", "gpu-2")]],
    );
    let part = RoundPart::Troubles(form(DCGM), Figure::Xid);
    for (host, gpu, xid) in [
        ("gpu-1", "0", 79.0),
        ("gpu-1", "1", 48.0),
        ("gpu-1", "5", 79.0),
        ("gpu-2", "0", 79.0),
        ("gpu-2", "1", 999.0),
    ] {
        server.knows(part, &[("Hostname", host), ("gpu", gpu)], xid);
    }
    server.ask_totals();
    assert_eq!(
        server.troubles(),
        [
            "gpu-1:0,5 last Xid 79: fell off the bus",
            "gpu-1:1 last Xid 48: memory error that ECC could not correct",
            "gpu-2:0 last Xid 79: fell off the bus",
            "gpu-2:1 last Xid 999",
        ]
    );
    assert_eq!(server.host("gpu-1").count(Figure::Xid), 3);
}

#[test]
fn the_state_of_a_gpu_follows_from_its_figures_and_troubles() {
    let host = ("Hostname", "gpu-1");
    let mut server = AskedServer::with(DCGM, false, &[&[host]]);
    let figure = |figure: Figure| RoundPart::OfGpus(form(DCGM), figure);
    let ages = RoundPart::AgesOfGpus(form(DCGM));
    for (gpu, used, age) in [
        ("0", Some(0.0), 5.0),
        ("1", Some(40.0), 5.0),
        ("2", Some(75.0), 5.0),
        ("3", Some(75.0), 5.0),
        ("4", None, 5.0),
        ("5", Some(40.0), 301.0),
        ("10", Some(0.0), 5.0),
    ] {
        let labels: LabelList<'_> = &[host, ("gpu", gpu)];
        if let Some(used) = used {
            server.knows(figure(Figure::MemoryUsed), labels, used * GIB);
        }
        server.knows(figure(Figure::MemoryTotal), labels, 80.0 * GIB);
        server.knows(ages, labels, age);
    }
    for gpu in ["0", "10"] {
        let labels: LabelList<'_> = &[host, ("gpu", gpu)];
        server.knows(figure(Figure::Free), labels, 1.0);
    }
    // A GPU that a pod holds is not free, even if it is empty.
    let owners = RoundPart::OwnersOfGpus(form(DCGM));
    server.knows(owners, &[host, ("gpu", "10"), ("exported_pod", "p")], 1.0);
    let xid = RoundPart::Troubles(form(DCGM), Figure::Xid);
    server.knows(xid, &[host, ("gpu", "3")], 79.0);
    server.ask_totals();
    assert_eq!(server.states("gpu-1"), [], "they were not asked for");
    server.ask_rows();
    let state = |gpu: &str, state| (gpu.to_owned(), state);
    assert_eq!(
        server.states("gpu-1"),
        [
            state("0", GpuState::Free),
            state("1", GpuState::Busy),
            state("2", GpuState::NearlyFull),
            state("3", GpuState::Sick),
            state("4", GpuState::Unknown),
            state("5", GpuState::Unknown),
            state("10", GpuState::Busy),
        ]
    );
    // The next totals tell that GPU 3 is well again.
    server.known.retain(|(part, _)| *part != xid);
    server.ask_totals();
    assert_eq!(server.states("gpu-1")[3], state("3", GpuState::NearlyFull));
}

#[test]
fn a_gpu_with_several_errors_of_the_hardware_is_one_sick_gpu() {
    let host = ("host", "gpu-1");
    let mut server = AskedServer::with(GPUTOP, false, &[&[host]]);
    for (gpu, figure, value) in [
        ("0", Figure::Xid, 48.0),
        ("0", Figure::EccErrors, 1.0),
        ("1", Figure::EccErrors, 7.0),
        ("2", Figure::Slowdown, 1.0),
    ] {
        let labels: LabelList<'_> = &[host, ("gpu", gpu)];
        server.knows(
            RoundPart::OfGpus(form(GPUTOP), Figure::MemoryUsed),
            labels,
            GIB,
        );
        server.knows(RoundPart::Troubles(form(GPUTOP), figure), labels, value);
    }
    server.ask_totals();
    server.ask_rows();
    assert_eq!(server.host("gpu-1").sick(), 2);
    let states = server.states("gpu-1").into_iter().map(|(_, state)| state);
    let expected = [GpuState::Sick, GpuState::Sick, GpuState::Busy];
    assert_eq!(states.collect::<Vec<GpuState>>(), expected);
    assert_eq!(
        server.troubles(),
        [
            "gpu-1:0 last Xid 48: memory error that ECC could not correct",
            "gpu-1:0 uncorrected ECC errors: 1",
            "gpu-1:1 uncorrected ECC errors: 7",
            "gpu-1:2 the hardware or its temperature slows it down",
        ]
    );
}

#[test]
fn gputop_s_exporter_tells_leaks_leftovers_and_idle_holds_from_busy_gpus() {
    let host = ("host", "gpu-1");
    let mut server = AskedServer::with(GPUTOP, false, &[&[host]]);
    for (gpu, figure) in [
        ("0", Figure::Leak),
        ("1", Figure::Leftover),
        ("2", Figure::HeldIdle),
        ("3", Figure::Slowdown),
    ] {
        let labels: LabelList<'_> = &[host, ("gpu", gpu)];
        let used = RoundPart::OfGpus(form(GPUTOP), Figure::MemoryUsed);
        server.knows(used, labels, 40.0 * GIB);
        server.knows(RoundPart::Troubles(form(GPUTOP), figure), labels, 5400.0);
    }
    server.ask_totals();
    server.ask_rows();
    let states = server.states("gpu-1").into_iter().map(|(_, state)| state);
    assert_eq!(
        states.collect::<Vec<_>>(),
        [
            GpuState::Leak,
            GpuState::Orphan,
            GpuState::HeldIdle,
            GpuState::Busy
        ]
    );
}

#[test]
fn a_gpu_is_named_by_its_index_its_instance_or_the_beginning_of_its_uuid() {
    let mut server = AskedServer::with(DCGM, false, &[&[("Hostname", "gpu-1")]]);
    server.adds(SMI, true, &[&[("instance", "gpu-2:9835")]]);
    let used = |form| RoundPart::OfGpus(form, Figure::MemoryUsed);
    for labels in [
        &[("Hostname", "gpu-1"), ("gpu", "0"), ("UUID", "GPU-a")] as LabelList<'_>,
        &[
            ("Hostname", "gpu-1"),
            ("gpu", "1"),
            ("GPU_I_ID", "7"),
            ("UUID", "GPU-b"),
        ],
    ] {
        server.knows(used(form(DCGM)), labels, GIB);
    }
    let labels: LabelList<'_> = &[("instance", "gpu-2:9835"), ("uuid", "3f2504e0-4f89-11d3")];
    server.knows(used(form_by_instance(SMI)), labels, GIB);
    server.ask_totals();
    server.ask_rows();
    let labels = |host: &str| {
        let states = server.states(host).into_iter();
        states.map(|(label, _)| label).collect::<Vec<String>>()
    };
    assert_eq!(labels("gpu-1"), ["0", "1:7"]);
    assert_eq!(labels("gpu-2"), ["3f2504e0"]);
}

#[test]
fn an_index_that_is_a_series_of_its_own_names_and_sorts_the_gpus() {
    let mut server = AskedServer::with(SMI, true, &[&[("instance", "gpu-2:9835")]]);
    let form = form_by_instance(SMI);
    for (uuid, index) in [("a0", 10.0), ("b0", 9.0), ("c0", 0.0)] {
        let labels: LabelList<'_> = &[("instance", "gpu-2:9835"), ("uuid", uuid)];
        let of_gpus = |figure| RoundPart::OfGpus(form, figure);
        server.knows(of_gpus(Figure::MemoryUsed), labels, 50.0 * GIB);
        server.knows(of_gpus(Figure::Index), labels, index);
        if uuid == "a0" {
            let failure = RoundPart::Troubles(form, Figure::RowRemapFailure);
            server.knows(failure, labels, 1.0);
        }
    }
    server.ask_totals();
    server.ask_rows();
    assert_eq!(
        server.states("gpu-2"),
        [
            ("0".to_owned(), GpuState::Busy),
            ("9".to_owned(), GpuState::Busy),
            ("10".to_owned(), GpuState::Sick),
        ]
    );
    assert_eq!(
        server.troubles(),
        ["gpu-2:10 a bad row of its memory could not be replaced"]
    );
}

#[test]
fn the_pod_of_a_workload_counts_before_the_pod_of_the_exporter() {
    let host = ("Hostname", "gpu-1");
    let mut server = AskedServer::with(DCGM, false, &[&[host]]);
    let labels: LabelList<'_> = &[host, ("gpu", "0")];
    let used = RoundPart::OfGpus(form(DCGM), Figure::MemoryUsed);
    server.knows(used, labels, GIB);
    let owner: LabelList<'_> = &[
        host,
        ("gpu", "0"),
        ("namespace", "monitoring"),
        ("pod", "dcgm-exporter-x"),
        ("exported_namespace", "vision"),
        ("exported_pod", "train-0"),
    ];
    server.knows(RoundPart::OwnersOfGpus(form(DCGM)), owner, 1.0);
    let owners = RoundPart::Owners(form(DCGM));
    server.knows(
        owners,
        &[
            ("exported_namespace", "vision"),
            ("namespace", "monitoring"),
        ],
        2.0,
    );
    server.knows(owners, &[("namespace", "vision")], 3.0);
    server.knows(owners, &[("namespace", "nlp")], 4.0);
    server.ask_totals();
    server.ask_rows();
    assert_eq!(
        server.host("gpu-1").gpus[0].owners,
        [ClusterOwner {
            user: Some("vision".into()),
            job: Some("train-0".into()),
        }]
    );
    let most_first = [(Text::from("vision"), 5), (Text::from("nlp"), 4)];
    assert_eq!(server.cluster.owners, most_first);
}

#[test]
fn the_domain_of_all_hosts_is_left_out_and_the_cluster_named_where_there_are_several() {
    let mut server = AskedServer::with(
        DCGM,
        false,
        &[
            &[("Hostname", "gpu-1.lab.example.org")],
            &[("Hostname", "gpu-2.lab.example.org")],
        ],
    );
    server.ask_totals();
    let shown = |server: &AskedServer| -> Vec<String> {
        let hosts = server.cluster.hosts();
        hosts
            .map(|(id, _)| server.cluster.shown_name(id).to_owned())
            .collect()
    };
    assert_eq!(shown(&server), ["gpu-1", "gpu-2"]);
    let labels: LabelList<'_> = &[("Hostname", "gpu-1.lab.example.org"), ("cluster", "west")];
    server.knows(RoundPart::Gpus(form(DCGM)), labels, 8.0);
    server.ask_totals();
    assert_eq!(shown(&server), ["gpu-1", "gpu-2", "west/gpu-1"]);
}

#[test]
fn a_figure_over_time_belongs_to_its_host_and_ends_at_the_server_s_time() {
    let mut server = AskedServer::with(
        DCGM,
        false,
        &[&[("Hostname", "gpu-1")], &[("Hostname", "gpu-2")]],
    );
    server.ask_totals();
    let hosts = server.cluster.hosts().map(|(id, _)| id.clone()).collect();
    let span = crate::protocol::series::QuestionSpan {
        length: Duration::from_hours(1),
        step: Duration::from_mins(1),
    };
    let round = server.cluster.past_round(hosts, span);
    let points = |values: [f64; 2]| {
        let mut series = series(&[("Hostname", "gpu-1")], 0.0, 0.0);
        let times = [START - 60.0, START].into_iter().zip(values);
        series.points = times
            .map(|(time, value)| SeriesPoint { time, value })
            .collect();
        SeriesAnswer {
            series: vec![series],
            ..SeriesAnswer::default()
        }
    };
    let answers: Vec<SeriesAnswer> = round
        .parts
        .iter()
        .map(|part| match part {
            RoundPart::Past(_, Figure::Sm) => points([50.0, 99.0]),
            _ => points([GIB, 2.0 * GIB]),
        })
        .collect();
    server.cluster.take(&round, &answers);
    assert_eq!(
        server.host("gpu-1").past,
        Some(HostPast {
            memory_used: vec![(START - 60.0, GIB), (START, 2.0 * GIB)],
            sm: vec![(START - 60.0, 50.0), (START, 99.0)],
            end: START,
        })
    );
    assert_eq!(server.host("gpu-2").past, None);
}
