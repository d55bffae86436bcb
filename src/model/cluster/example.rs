//! A made-up cluster for tests: it answers the questions of gputop as a Prometheus server does that
//! has the series of dcgm-exporter.

use crate::base::text::Text;
use crate::protocol::series::{Series, SeriesAnswer, SeriesPoint, SeriesQuestion};

const GIB: f64 = 1_073_741_824.0;

/// The memory of a GPU, in bytes.
const MEMORY: f64 = 80.0 * GIB;

/// A made-up host.
#[derive(Debug, Clone)]
pub(crate) struct ExampleHost {
    pub(crate) name: String,
    /// The namespace that uses each GPU; `None` for a free GPU.
    pub(crate) gpus: Vec<Option<&'static str>>,
    /// The GPUs with Xid 79.
    pub(crate) sick: Vec<usize>,
}

/// A made-up cluster.
#[derive(Debug, Clone)]
pub(crate) struct ExampleCluster {
    pub(crate) hosts: Vec<ExampleHost>,
    /// The server's clock, in seconds since 1970.
    pub(crate) now: f64,
    /// The number of samples of a GPU in two minutes.
    pub(crate) samples: f64,
    /// The reason why its answers are not complete.
    pub(crate) warning: Option<&'static str>,
}

impl ExampleCluster {
    /// Hosts of these names with eight GPUs each. `vision` uses the first six, and two are free.
    pub(crate) fn new(names: impl IntoIterator<Item = String>) -> Self {
        let mut gpus = vec![Some("vision"); 6];
        gpus.resize(8, None);
        let host = |name| ExampleHost {
            name,
            gpus: gpus.clone(),
            sick: Vec::new(),
        };
        Self {
            hosts: names.into_iter().map(host).collect(),
            now: 1_795_780_000.0,
            samples: 8.0,
            warning: None,
        }
    }

    pub(crate) fn host(&mut self, name: &str) -> &mut ExampleHost {
        let mut hosts = self.hosts.iter_mut();
        let found = hosts.find(|host| host.name == name);
        found.expect("the cluster has the host")
    }

    /// Answers questions about the hosts that they name, or about all.
    pub(crate) fn answer(&self, questions: &[SeriesQuestion]) -> Vec<SeriesAnswer> {
        let answers = questions.iter().map(|question| SeriesAnswer {
            series: self.series(question),
            warning: self.warning.map(Text::from),
            is_cut: false,
        });
        answers.collect()
    }

    fn series(&self, question: &SeriesQuestion) -> Vec<Series> {
        let words = question.expression.as_str();
        let all: usize = self.hosts.iter().map(|host| host.gpus.len()).sum();
        if words.starts_with("label_replace(") {
            if !words.contains("count(DCGM_FI_DEV_FB_USED{})") {
                // No series lacks the name of its host.
                return Vec::new();
            }
            return vec![self.one(&[("sign", "DCGM_FI_DEV_FB_USED")], number(all))];
        }
        if words.starts_with("quantile(") {
            return vec![self.one(&[], self.samples)];
        }
        if words.contains("last_over_time(") {
            return Vec::new();
        }
        if words.starts_with("topk(100, ") {
            return self.owners();
        }
        if words.starts_with("topk(200, ") {
            return self.troubles(words.contains("XID_ERRORS"));
        }
        let names = named_hosts(words);
        let is_named = |host: &&ExampleHost| {
            let names = names.as_ref();
            names.is_none_or(|names| names.contains(&host.name))
        };
        let hosts = self.hosts.iter().filter(is_named);
        let is_by_gpu = words.contains("by (cluster,hostname,Hostname,gpu")
            && !words.contains("by (cluster,hostname,Hostname) ");
        if !is_by_gpu {
            let series = hosts.filter_map(|host| self.of_host(host, question));
            return series.collect();
        }
        let gpus = hosts.flat_map(|host| (0..host.gpus.len()).map(move |gpu| (host, gpu)));
        gpus.filter_map(|(host, gpu)| self.of_gpu(host, gpu, words))
            .collect()
    }

    /// The sum, the mean or the number of a host's GPUs; `None` where none has the series.
    fn of_host(&self, host: &ExampleHost, question: &SeriesQuestion) -> Option<Series> {
        let words = question.expression.as_str();
        let values = (0..host.gpus.len()).filter_map(|gpu| figure(host, gpu, words));
        let values: Vec<f64> = values.collect();
        if values.is_empty() {
            return None;
        }
        let sum: f64 = values.iter().sum();
        let value = match () {
            () if words.starts_with("max by") => 5.0,
            () if words.starts_with("count by") => number(values.len()),
            () if words.starts_with("avg by") => sum / number(values.len()),
            () => sum,
        };
        let mut series = self.one(&[("Hostname", &host.name)], value);
        if let Some(span) = question.span {
            let (length, step) = (span.length.as_secs_f64(), span.step.as_secs_f64());
            let mut time = self.now - length;
            series.points.clear();
            while time <= self.now {
                series.points.push(SeriesPoint { time, value });
                time += step;
            }
        }
        Some(series)
    }

    fn of_gpu(&self, host: &ExampleHost, gpu: usize, words: &str) -> Option<Series> {
        let index = gpu.to_string();
        let mut labels = vec![("Hostname", host.name.as_str()), ("gpu", &index)];
        if !words.starts_with("group by") {
            return Some(self.one(&labels, figure(host, gpu, words)?));
        }
        if words.contains(",modelName) ") {
            labels.push(("modelName", "NVIDIA H100 80GB HBM3"));
        } else {
            labels.extend([
                ("exported_namespace", host.gpus[gpu]?),
                ("exported_pod", "train-0"),
            ]);
        }
        Some(self.one(&labels, 1.0))
    }

    fn owners(&self) -> Vec<Series> {
        let gpus = self.hosts.iter().flat_map(|host| &host.gpus);
        let mut owners: Vec<&str> = gpus.flatten().copied().collect();
        owners.sort_unstable();
        let groups = owners.chunk_by(|one, other| one == other);
        let series =
            groups.map(|group| self.one(&[("exported_namespace", group[0])], number(group.len())));
        series.collect()
    }

    fn troubles(&self, is_xid: bool) -> Vec<Series> {
        let sick = self
            .hosts
            .iter()
            .flat_map(|host| host.sick.iter().map(move |gpu| (host, gpu.to_string())));
        let series = sick.map(|(host, gpu)| {
            let labels = [("Hostname", host.name.as_str()), ("gpu", gpu.as_str())];
            self.one(&labels, 79.0)
        });
        series.filter(|_| is_xid).collect()
    }

    fn one(&self, labels: &[(&str, &str)], value: f64) -> Series {
        let labels = labels.iter();
        let mut labels: Vec<(Text, Text)> = labels
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect();
        labels.sort();
        let time = self.now;
        Series {
            labels,
            points: vec![SeriesPoint { time, value }],
        }
    }
}

/// The hosts that a question names; `None` for one about all hosts.
fn named_hosts(words: &str) -> Option<Vec<String>> {
    let (_, pattern) = words.split_once("Hostname=~\"")?;
    let (pattern, _) = pattern.split_once('"')?;
    let names = pattern.split('|').map(|name| name.replace('\\', ""));
    Some(names.collect())
}

/// The value of a GPU for an expression; `None` where the GPU has no such series.
fn figure(host: &ExampleHost, gpu: usize, words: &str) -> Option<f64> {
    let is_free = host.gpus[gpu].is_none();
    let of_state = |busy: f64, free: f64| if is_free { free } else { busy };
    Some(match () {
        () if words.contains("time() - timestamp(") => 5.0,
        () if words.contains("exported_pod=\"\"") => is_free.then_some(1.0)?,
        () if words.contains("_FB_FREE{") => MEMORY,
        () if words.contains("_GPU_UTIL{") => of_state(97.0, 0.0),
        () if words.contains("_POWER_USAGE{") => of_state(650.0, 75.0),
        () if words.contains("_GPU_TEMP{") => of_state(64.0, 31.0),
        () => of_state(60.5 * GIB, 0.0),
    })
}

#[expect(clippy::cast_precision_loss, reason = "a test has few GPUs")]
fn number(count: usize) -> f64 {
    count as f64
}
