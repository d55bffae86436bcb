//! Lines of text that have a time or a step, and amounts of memory: tables of `nvidia-smi`, gpustat
//! and nvitop, metrics of Prometheus, and the logs of trainers.
//!
//! A line without a moment of its own has that of an earlier line: a table has its date above it.

use std::sync::LazyLock;

use regex::bytes::{Captures, Regex};

use super::column_names::{MemoryName, MemoryRole};
use super::columns;
use super::dates::LogTimes;
use super::loose_samples::{LooseAmount, LooseMoment, LooseSamples, units_of_numbers};
use crate::base::units::Bytes;

/// Bytes of a line that are read: a longer one is no line of a log.
const LONGEST_LINE: usize = 1 << 14;

/// The forms of times. The first group is the time.
const TIMES: [&str; 6] = [
    r"(?:^|[^\d])(\d{4}[-/]\d\d[-/]\d\d[T _]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?)",
    r"((?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z][a-z] +\d{1,2} \d\d:\d\d:\d\d(?: [A-Z]{3,4})? \d{4})",
    r"((?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d\d [A-Z][a-z][a-z] \d{4} \d\d:\d\d:\d\d [AP]M)",
    r"^[A-Z][a-z][a-z] +\d{1,2} (\d\d:\d\d:\d\d) ",
    r"^[\[(# ]{0,4}(\d{1,2}:\d\d:\d\d(?:[.,]\d+)?)(?:[\]) ,;|-]|$)",
    r"^[\[(# ]{0,4}(1\d{9}(?:\.\d+)?|1\d{12})(?:[\]) ,;:|]|$)",
];

/// The forms of steps: the word for one, and the form. A second and third group are the step in an
/// epoch and the steps of one.
const STEPS: [(&str, &str); 8] = [
    ("iteration", r"\(after (\d+) iterations?\)"),
    (
        "step",
        r#"(?:^|[^\w-])(?:global[_ ])?steps?['"]?(?:\s*[:=#]\s*|\s+)\[?\s*(\d+)(?:[^\d.]|$)"#,
    ),
    (
        "iteration",
        r#"(?:^|[^\w-])iter(?:ation)?s?['"]?(?:\s*[:=#]\s*|\s+)\[?\s*(\d+)(?:[^\d.]|$)"#,
    ),
    ("iteration", r"iter\(\w+\)\s+\[\s*(\d+)/"),
    (
        "iteration",
        r"epoch:?\s*(?:\(\w+\))?\s*\[\s*(\d+)\]\s*\[\s*(\d+)/\s*(\d+)\]",
    ),
    ("step", r"(?:^|[ |])(\d+)/\d+ \[\d+:\d\d"),
    ("step", r"(?:^|[ |])(\d+)it \[\d+:\d\d"),
    (
        "epoch",
        r#"(?:^|[^\w-])epoch['"]?(?:\s*[:=#]\s*|\s+)\[?\s*(\d+(?:\.\d+)?)"#,
    ),
];

const NUMBER: &str = r"\d+(?:[.,]\d+)*(?:e[+-]?\d+)?";

struct Forms {
    times: Vec<Regex>,
    steps: Vec<(&'static str, Regex)>,
    /// `name{labels} number time`
    metric: Regex,
    /// `20000MiB / 81559MiB`
    pair: Regex,
    /// `memory (MB): 6814`, `mem=24.6G`
    labelled: Regex,
    /// `MA 4.89 GB`
    spaced: Regex,
    /// An amount alone, behind the time.
    alone: Regex,
    gpu: Regex,
    /// The row of a table that begins with the index of a GPU.
    table_gpu: Regex,
    /// `memory (MB) |`, whose unit holds for the whole line.
    section: Regex,
    host: Regex,
}

static FORMS: LazyLock<Forms> = LazyLock::new(|| {
    let regex =
        |form: &str| Regex::new(&format!("(?-u){form}")).expect("a test compiles all forms");
    let any_case =
        |form: &str| Regex::new(&format!("(?i-u){form}")).expect("a test compiles all forms");
    Forms {
        times: TIMES.iter().map(|form| regex(form)).collect(),
        steps: STEPS
            .iter()
            .map(|(word, form)| (*word, any_case(form)))
            .collect(),
        metric: regex(r"^([A-Za-z_:][\w:]*)\{([^}]*)\}\s+([-+.eE\d]+)(?:\s+(\d{10,13}))?\s*$"),
        pair: any_case(&format!(
            r"({NUMBER})\s*([kmgt]i?b?)?\s*/\s*({NUMBER})\s*([kmgt]i?b)\b"
        )),
        labelled: any_case(&format!(
            r#"([a-z_][\w./@ -]*?)\s*(?:[(\[]([\w%]+)[)\]])?['"]?\s*[:=]\s*['"]?({NUMBER})\s*([kmgt]i?b?\b|bytes\b|b\b|%)?"#
        )),
        spaced: any_case(&format!(r"\b([a-z_][\w]*)\s+({NUMBER})\s*([kmgt]i?b)\b")),
        alone: any_case(&format!(r"^[\s,;:|\]-]*({NUMBER})\s*([kmgt]i?b|bytes)\s*$")),
        gpu: any_case(
            r"(?:^|[^a-z])(?:gpu|cuda|device|card|rank)[ :_=#\[]{0,2}(\d{1,3})(?:[^\d.]|$)",
        ),
        table_gpu: regex(r"^(?:(?:\||\xe2\x94\x82)\s+(\d{1,3})\s+\S|\[(\d{1,3})\]\s)"),
        section: any_case(r"memory \(([kmg]i?b)\)"),
        host: any_case(r"\b(?:cpu|host|ram|swap|disk|rss|virtual)\b"),
    }
});

/// Reads the lines of one log.
#[derive(Debug, Default)]
pub(super) struct TextLines {
    times: LogTimes,
    moment: LooseMoment,
    /// The GPU of the table's row above.
    table_gpu: Option<String>,
}

impl TextLines {
    /// Reads a line. Returns whether it has an amount of memory.
    pub(super) fn line(&mut self, number: u64, line: &str, into: &mut LooseSamples) -> bool {
        let line = without_colours(line);
        let line = line.as_str();
        if line.len() > LONGEST_LINE {
            return false;
        }
        let has_moment = self.read_moment(line, into);
        let forms = &*FORMS;
        if let Some(found) = forms.table_gpu.captures(line.as_bytes()) {
            self.table_gpu = group(&found, 1).or(group(&found, 2)).map(str::to_owned);
        }
        let before = into.len();
        if let Some(found) = forms.metric.captures(line.as_bytes()) {
            self.metric(number, &found, into);
        } else if !self.pair(number, line, into)
            && !line.starts_with(['|', '│', '+', '╒', '╞', '├'])
        {
            self.labels(number, line, has_moment, into);
        }
        into.len() > before
    }

    /// Takes the time and the step of a line. Returns the rest behind the time, if it has one.
    fn read_moment(&mut self, line: &str, into: &mut LooseSamples) -> Option<usize> {
        let forms = &*FORMS;
        let mut end = None;
        for form in &forms.times {
            let Some(found) = form.captures(line.as_bytes()) else {
                continue;
            };
            let Some(time) = found.get(1) else { continue };
            let text = line
                .get(time.range())
                .unwrap_or_default()
                .replace(',', ".")
                .replace('_', " ");
            if let Some(time_ms) = self.times.time(&text, None) {
                self.moment.time = Some(time_ms);
                into.has_dates = self.times.has_date || !text.contains(':');
                end = Some(time.end());
                break;
            }
        }
        for (word, form) in &forms.steps {
            let Some(found) = form.captures(line.as_bytes()) else {
                continue;
            };
            let of = |place: usize| group(&found, place).and_then(|step| step.parse::<f64>().ok());
            let step = match (of(1), of(2), of(3)) {
                (Some(epoch), Some(step), Some(steps)) => Some(epoch * steps + step),
                (step, ..) => step,
            };
            self.moment.step = step.and_then(columns::step_time);
            into.step_word = word;
            break;
        }
        end
    }

    /// Reads a metric in the text format of Prometheus.
    fn metric(&mut self, number: u64, found: &Captures<'_>, into: &mut LooseSamples) {
        let Some(name) = group(found, 1) else { return };
        let parsed = MemoryName::new(name);
        let Some(role) = parsed
            .role()
            .filter(|role| !matches!(role, MemoryRole::Free | MemoryRole::Total))
        else {
            return;
        };
        let labels = group(found, 2).unwrap_or_default();
        let label = |wanted: &[&str]| {
            labels.split(',').find_map(|label| {
                let (name, value) = label.split_once('=')?;
                wanted
                    .contains(&name.trim())
                    .then(|| value.trim().trim_matches('"').to_owned())
            })
        };
        let Some(value) = group(found, 3).and_then(|value| value.parse::<f64>().ok()) else {
            return;
        };
        let mut moment = self.moment;
        if let Some(time) = group(found, 4).and_then(|time| self.times.time(time, None)) {
            moment.time = Some(time);
            into.has_dates = true;
        }
        let amount = LooseAmount {
            role: Some(role),
            host: label(&["Hostname", "hostname", "instance", "node"]),
            gpu: label(&[
                "gpu",
                "gpu_id",
                "index",
                "minor_number",
                "card",
                "device",
                "UUID",
                "uuid",
            ]),
            number: value,
            named_unit: parsed.unit.or(parsed.usual_unit()),
            ..LooseAmount::default()
        };
        into.add(number, moment, &amount);
    }

    /// Reads the memory in use and the capacity in the row of a table. Returns whether there are
    /// any.
    fn pair(&mut self, number: u64, line: &str, into: &mut LooseSamples) -> bool {
        let forms = &*FORMS;
        let Some(found) = forms.pair.captures(line.as_bytes()) else {
            return false;
        };
        let end = found.get(0).map_or(0, |whole| whole.end());
        // A progress bar of a download.
        if line
            .get(end..)
            .is_some_and(|rest| rest.trim_start().starts_with('['))
        {
            return true;
        }
        // gpustat writes MB, and means MiB as NVML does.
        let is_table = line.starts_with(['|', '│', '[']);
        let unit = |name: &str| {
            if is_table && name.eq_ignore_ascii_case("MB") {
                Some(1 << 20)
            } else {
                Bytes::unit(name)
            }
        };
        let of_total = group(&found, 4).and_then(unit);
        let of_used = group(&found, 2).and_then(unit).or(of_total);
        let (Some(used), Some(total)) = (
            group(&found, 1).and_then(parse),
            group(&found, 3).and_then(parse),
        ) else {
            return false;
        };
        let (unit, total) = units_of_numbers(of_used, Some((total, of_total)));
        let before = found.get(0).map_or(0, |whole| whole.start());
        let gpu = self
            .table_gpu
            .clone()
            .filter(|_| is_table)
            .or_else(|| gpu_of(line, before));
        let amount = LooseAmount {
            role: Some(MemoryRole::Used),
            gpu,
            number: used,
            unit,
            total,
            ..LooseAmount::default()
        };
        into.add(number, self.moment, &amount);
        true
    }

    /// Reads all labels with amounts. `time_end` is the end of the time in the line.
    fn labels(
        &mut self,
        number: u64,
        line: &str,
        time_end: Option<usize>,
        into: &mut LooseSamples,
    ) {
        let forms = &*FORMS;
        let bytes = line.as_bytes();
        let section = forms
            .section
            .captures(bytes)
            .and_then(|found| Bytes::unit(group(&found, 1)?));
        let begin = time_end.unwrap_or(0);
        let text = &bytes[begin..];
        let mut total = None;
        let mut amounts: Vec<(usize, LooseAmount)> = Vec::new();
        let labelled = forms
            .labelled
            .captures_iter(text)
            .map(|found| (found, [1, 2, 3, 4]));
        let spaced = forms
            .spaced
            .captures_iter(text)
            .map(|found| (found, [1, 0, 2, 3]));
        for (found, places) in labelled.chain(spaced) {
            let Some(start) = found.get(1).map(|label| label.start()) else {
                continue;
            };
            if amounts.iter().any(|(at, _)| *at == start) || forms.host.is_match(&text[..start]) {
                continue;
            }
            let of = |place: usize| {
                if places[place] == 0 {
                    None
                } else {
                    group(&found, places[place])
                }
            };
            let Some(amount) = amount_of(&of, section, &text[..start]) else {
                continue;
            };
            if amount.role == Some(MemoryRole::Total) {
                total = amount
                    .unit
                    .or(amount.named_unit)
                    .and_then(|unit| Bytes::parse_number(&format!("{}", amount.number), unit));
                continue;
            }
            if amounts.iter().all(|(_, other)| other.label != amount.label) {
                amounts.push((start, amount));
            }
        }
        if amounts.is_empty()
            && time_end.is_some()
            && let Some(found) = forms.alone.captures(text)
            && let Some(used) = group(&found, 1).and_then(parse)
        {
            let unit = group(&found, 2).and_then(Bytes::unit);
            amounts.push((
                0,
                LooseAmount {
                    role: Some(MemoryRole::Plain),
                    number: used,
                    unit,
                    ..LooseAmount::default()
                },
            ));
        }
        for (start, amount) in amounts {
            let gpu = gpu_of(line, begin + start + amount.label.len());
            // `GPU0: 20000 MiB` has no other label.
            let label = if MemoryName::new(&amount.label).is_only_gpu() {
                String::new()
            } else {
                amount.label.clone()
            };
            into.add(
                number,
                self.moment,
                &LooseAmount {
                    label,
                    gpu,
                    total,
                    ..amount
                },
            );
        }
    }
}

/// Returns the amount under a label, if it is memory of a GPU. `before` is the text before the
/// label.
fn amount_of<'a>(
    of: &dyn Fn(usize) -> Option<&'a str>,
    section: Option<u64>,
    before: &[u8],
) -> Option<LooseAmount> {
    let label = last_words(of(0)?);
    let unit = of(3).filter(|unit| *unit != "%");
    if of(3) == Some("%") || of(1) == Some("%") {
        return None;
    }
    let name = MemoryName::new(&of(1).map_or(label.to_owned(), |unit| format!("{label} ({unit})")));
    let sized = unit.and_then(Bytes::unit);
    // `Max_MA` is a label of DeepSpeed. Other labels with a unit need a word of memory before them.
    let names_memory = || {
        let before = before.to_ascii_lowercase();
        name.has("gpu")
            || name.has("cuda")
            || ["mem", "vram", "cuda"].iter().any(|word| {
                before
                    .windows(word.len())
                    .any(|part| part == word.as_bytes())
            })
    };
    let role = name.role().or_else(|| {
        (sized.is_some() && !name.is_other() && names_memory()).then_some(MemoryRole::Plain)
    })?;
    Some(LooseAmount {
        label: label.to_owned(),
        role: Some(role),
        number: parse(of(2)?)?,
        unit: sized,
        named_unit: name.unit.or(section).or(name.usual_unit()),
        ..LooseAmount::default()
    })
}

/// Returns the end of a label: at most three words, and no number.
fn last_words(label: &str) -> &str {
    const MOST: usize = 3;
    let label = label.trim();
    let is_number = |word: &str| {
        word.bytes()
            .all(|byte| byte.is_ascii_digit() || b".,/-".contains(&byte))
    };
    let mut begin = label.len();
    for (count, (at, _)) in label
        .rmatch_indices(' ')
        .chain([(usize::MAX, "")])
        .enumerate()
    {
        let start = if at == usize::MAX { 0 } else { at + 1 };
        if start > begin
            || is_number(label.get(start..begin).unwrap_or_default().trim()) && start < begin
        {
            break;
        }
        begin = start;
        if count + 1 == MOST {
            break;
        }
    }
    label.get(begin..).unwrap_or(label).trim()
}

/// Returns the GPU or rank that a line names before an offset.
fn gpu_of(line: &str, before: usize) -> Option<String> {
    let text = line.as_bytes().get(..before.min(line.len()))?;
    let found = FORMS.gpu.captures_iter(text).last()?;
    group(&found, 1).map(str::to_owned)
}

fn group<'a>(found: &Captures<'a>, place: usize) -> Option<&'a str> {
    found
        .get(place)
        .and_then(|found| str::from_utf8(found.as_bytes()).ok())
}

/// Parses `20,480.5`, `24,6` and `1e9`.
fn parse(number: &str) -> Option<f64> {
    let has_groups = number.split(',').skip(1).all(|group| {
        group
            .split('.')
            .next()
            .is_some_and(|group| group.len() == 3)
    });
    if number.contains(',')
        && !has_groups
        && number.matches(',').count() == 1
        && !number.contains('.')
    {
        return number.replace(',', ".").parse().ok();
    }
    number.replace(',', "").parse().ok()
}

/// Removes the codes with which terminals change colours.
fn without_colours(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, code)) = rest.split_once('\u{1b}') {
        text.push_str(before);
        rest = code
            .split_once(|end: char| end.is_ascii_alphabetic())
            .map_or("", |(_, rest)| rest);
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::analyze::log_options::LogOptions;
    use crate::logs::analyze::log_samples::LogSamples;

    /// One example of each form of line, and its amounts in MiB.
    const EXAMPLES: [(&str, &str); 20] = [
        (
            "2026-03-01 08:00:00,123 - INFO - step 10, loss 0.5, mem 24.6 GB",
            "mem=23460",
        ),
        (
            "Mar  1 08:00:05 node7 train[123]: step=20 gpu_mem=20480MiB",
            "gpu_mem=20480",
        ),
        (
            "[2026-03-01 08:00:00,123] [INFO] [utils.py:781:see_memory_usage] MA 4.0 GB         Max_MA 5.0 GB         CA 6.0 GB         Max_CA 6 GB ",
            "MA=3814 CA=5722",
        ),
        ("CPU Virtual Memory:  used = 24.6 GB, percent = 5.0%", ""),
        (
            "[Rank 0] (after 10 iterations) memory (MB) | allocated: 12345.6 | max allocated: 13000.0 | reserved: 14000.0 | max reserved: 14000.0",
            "0 allocated=11773 0 reserved=13351",
        ),
        (
            "2026/03/01 08:00:00 - mmengine - INFO - Epoch(train)  [1][ 50/1000]  lr: 1.0e-04  eta: 1:00:00  time: 0.50  data_time: 0.01  memory: 6814  loss: 0.5",
            "memory=6814",
        ),
        (
            "epoch 1:  10%|█         | 120/1200 [01:00<09:00,  2.00it/s, loss=0.5, mem=24.0GiB]",
            "mem=24576",
        ),
        (
            "Epoch 0:  12%|█▏   | 120/1000 [00:12<01:30, 9.80it/s, v_num=0, train_loss=2.30, gpu_mem_gib=24.0]",
            "gpu_mem_gib=24576",
        ),
        (
            "{'loss': 0.5, 'grad_norm': 1.2, 'memory/device_reserved (GiB)': 30.0, 'epoch': 0.02}",
            "memory/device_reserved=30720",
        ),
        (
            "|  N/A   35C    P0             72W /  700W |   20000MiB /  81559MiB |     97%      Default |",
            "=20000",
        ),
        (
            "|    0   N/A  N/A      1234      C   python                                      19000MiB |",
            "",
        ),
        (
            "│ N/A   41C    P0    120W / 700W │  20.0GiB / 79.65GiB │     97%      Default │",
            "=20480",
        ),
        (
            "[0] NVIDIA H100 80GB HBM3 | 41'C,  97 % | 20000 / 81559 MB | me(19000M)",
            "0 =20000",
        ),
        (
            "DCGM_FI_DEV_FB_USED{gpu=\"3\",UUID=\"GPU-1\",device=\"nvidia3\"} 20000",
            "3 =20000",
        ),
        (
            "nvidia_gpu_memory_used_bytes{minor_number=\"1\"} 2.097152e+10 1772352000000",
            "1 =20000",
        ),
        (
            "Epoch: [0]  [  10/1000]  eta: 0:05:00  lr: 0.001  loss: 0.5 (0.6)  time: 0.4  max mem: 6814",
            "max mem=6814",
        ),
        ("08:00:05 24.0 GiB", "=24576"),
        (
            "model.safetensors:  45%|████      | 2.10G/4.60G [00:12<00:15, 160MB/s]",
            "",
        ),
        (
            "step 10: cuda:1 memory allocated: 1,024 MiB",
            "1 memory allocated=1024",
        ),
        ("Loading checkpoint shards took 4.0 GB", ""),
    ];

    #[test]
    fn each_form_of_line_has_its_amounts() {
        for (line, expected) in EXAMPLES {
            let (mut lines, mut loose) = (TextLines::default(), LooseSamples::default());
            lines.line(1, line, &mut loose);
            let mut samples = LogSamples::default();
            loose.finish(&LogOptions::default(), 1 << 20, &mut samples);
            let found: Vec<String> = samples
                .rows
                .iter()
                .map(|row| {
                    let series = &samples.series[row.series as usize];
                    let gpu = series
                        .gpu
                        .as_ref()
                        .map_or(String::new(), |gpu| format!("{gpu} "));
                    let label = series.label.as_ref().map_or("", |label| label.as_str());
                    format!("{gpu}{label}={}", row.used().0 >> 20)
                })
                .collect();
            assert_eq!(found.join(" "), expected, "{line}");
        }
    }
}
