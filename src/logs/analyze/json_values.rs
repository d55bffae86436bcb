//! JSON of other programs: one object for each line, documents over many lines such as those of
//! gpustat and nvtop, and the answers of Prometheus.
//!
//! Each object with an amount of memory is a sample. What the objects around it say (time, step,
//! host, GPU) holds for it.

use serde_json::{Map, Value};

use super::column_names::{MemoryName, MemoryRole};
use super::columns;
use super::dates::LogTimes;
use super::loose_samples::{LooseAmount, LooseMoment, LooseSamples, units_of_numbers};

/// Collects the lines of a JSON document.
#[derive(Debug, Default)]
pub(super) struct JsonDocuments {
    text: String,
    depth: usize,
    is_in_string: bool,
    times: LogTimes,
}

/// Facts from the objects around a value.
#[derive(Debug, Clone, Default)]
struct JsonContext {
    moment: LooseMoment,
    host: Option<String>,
    gpu: Option<String>,
}

impl JsonDocuments {
    /// Whether a line begins a document, or a document goes on.
    pub(super) fn takes(&self, line: &str) -> bool {
        if self.depth > 0 {
            return true;
        }
        let Some(rest) = line.strip_prefix(['{', '[']) else {
            return false;
        };
        let next = rest.trim_start().chars().next();
        if line.starts_with('{') {
            matches!(next, None | Some('"' | '}'))
        } else {
            matches!(next, None | Some('{' | '['))
        }
    }

    /// Reads a line of a document. Returns `None` where the document goes on, else whether it was
    /// JSON with samples.
    pub(super) fn line(
        &mut self,
        number: u64,
        line: &str,
        into: &mut LooseSamples,
    ) -> Option<Result<(), String>> {
        /// Bytes of a document.
        const LONGEST: usize = 1 << 28;
        self.count_brackets(line);
        self.text.push_str(line);
        self.text.push('\n');
        if self.depth > 0 && self.text.len() < LONGEST {
            return None;
        }
        let text = std::mem::take(&mut self.text);
        (self.depth, self.is_in_string) = (0, false);
        let before = into.len();
        Some(
            match serde_json::from_str::<Value>(text.trim().trim_end_matches(',')) {
                Err(error) => Err(format!("no JSON: {error}")),
                Ok(value) => {
                    self.value(number, &value, &JsonContext::default(), into);
                    if into.len() > before {
                        Ok(())
                    } else {
                        Err("JSON without an amount of memory".to_owned())
                    }
                }
            },
        )
    }

    fn count_brackets(&mut self, line: &str) {
        let mut is_escaped = false;
        for byte in line.bytes() {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' if self.is_in_string => is_escaped = true,
                b'"' => self.is_in_string = !self.is_in_string,
                b'{' | b'[' if !self.is_in_string => self.depth += 1,
                b'}' | b']' if !self.is_in_string => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
    }

    fn value(
        &mut self,
        number: u64,
        value: &Value,
        context: &JsonContext,
        into: &mut LooseSamples,
    ) {
        match value {
            Value::Array(values) => {
                for (place, value) in values.iter().enumerate() {
                    let mut context = context.clone();
                    // Devices without an index have their places; rows over time do not.
                    if let Value::Object(object) = value
                        && context.gpu.is_none()
                        && !names_gpu(object)
                        && !self.has_moment(object)
                    {
                        context.gpu = Some(place.to_string());
                    }
                    self.value(number, value, &context, into);
                }
            }
            Value::Object(object) => self.object(number, object, context, into),
            _ => {}
        }
    }

    fn has_moment(&mut self, object: &Map<String, Value>) -> bool {
        let moment = self.moment(object, &mut LooseSamples::default());
        moment != LooseMoment::default()
    }

    fn object(
        &mut self,
        number: u64,
        object: &Map<String, Value>,
        context: &JsonContext,
        into: &mut LooseSamples,
    ) {
        if let (Some(Value::Object(labels)), Some(values)) = (
            object.get("metric"),
            object.get("values").or(object.get("value")),
        ) {
            return self.metric(number, labels, values, into);
        }
        let mut context = context.clone();
        let own = self.moment(object, into);
        context.moment.time = own.time.or(context.moment.time);
        context.moment.step = own.step.or(context.moment.step);
        let text = |names: &[&str]| names.iter().find_map(|name| scalar(object.get(*name)?));
        context.host = text(&["hostname", "host", "node"]).or(context.host);
        let pid = text(&["pid"]).and_then(|pid| pid.parse().ok());
        if pid.is_none() {
            context.gpu = text(&GPU_NAMES).or(context.gpu);
        }
        let process = text(&["process_name", "command", "cmdline"]).filter(|_| pid.is_some());
        let mut amounts = Vec::new();
        let mut total = None;
        for (key, value) in object {
            let name = MemoryName::new(key);
            let Some(role) = name.role().filter(|_| !name.is_share_of_wandb()) else {
                continue;
            };
            let Some((amount, unit)) = scalar(value).and_then(|text| number_and_unit(&text)) else {
                continue;
            };
            match role {
                MemoryRole::Total => total = Some((amount, unit.or(name.unit))),
                MemoryRole::Free | MemoryRole::Percent => {}
                _ => amounts.push((key, name, role, amount, unit)),
            }
        }
        // An object tells the memory in use in several ways: the best counts.
        let best = amounts.iter().map(|(_, _, role, ..)| *role).min();
        amounts.retain(|(_, _, role, ..)| Some(*role) == best);
        let has_many = amounts.len() > 1;
        for (key, name, role, amount, unit) in amounts {
            let (of_total, total) = units_of_numbers(unit, total);
            let named_unit = name.unit.or(of_total).or(name.usual_unit());
            let gpu = name.gpu().map(str::to_owned).or(context.gpu.clone());
            let label = if gpu.is_some() && !(has_many && name.gpu().is_none()) || pid.is_some() {
                String::new()
            } else {
                key.clone()
            };
            let amount = LooseAmount {
                label,
                role: Some(role),
                host: context.host.clone(),
                gpu,
                pid,
                process: process.clone(),
                number: amount,
                unit,
                named_unit,
                total: total.filter(|_| pid.is_none()),
            };
            into.add(number, context.moment, &amount);
        }
        for (key, value) in object
            .iter()
            .filter(|(_, value)| value.is_object() || value.is_array())
        {
            let mut context = context.clone();
            // rocm-smi names the object of each GPU `card0`.
            if let Some(gpu) = MemoryName::new(key).gpu() {
                context.gpu = Some(gpu.to_owned());
            }
            self.value(number, value, &context, into);
        }
    }

    /// Returns the time and the step of an object.
    fn moment(&mut self, object: &Map<String, Value>, into: &mut LooseSamples) -> LooseMoment {
        const TIMES: [&str; 12] = [
            "timestamp",
            "time",
            "_timestamp",
            "query_time",
            "datetime",
            "date",
            "ts",
            "@timestamp",
            "asctime",
            "elapsed",
            "_runtime",
            "t",
        ];
        let mut moment = LooseMoment::default();
        for name in TIMES {
            let Some(text) = object.get(name).and_then(scalar) else {
                continue;
            };
            if let Some(time) = self.times.time(&text.replace(',', "."), None) {
                into.has_dates = self.times.has_date || time > 1_000_000_000_000;
                moment.time = Some(time);
                break;
            }
        }
        let steps = object.iter().filter_map(|(key, value)| {
            let word = columns::step_word(&key.to_ascii_lowercase())?;
            Some((word, columns::step_time(scalar(value)?.parse().ok()?)?))
        });
        if let Some((word, step)) = steps.min_by_key(|(word, _)| *word == "epoch") {
            moment.step = Some(step);
            into.step_word = word;
        }
        moment
    }

    /// Reads a series of Prometheus: `values` are times in seconds and numbers as text.
    fn metric(
        &mut self,
        number: u64,
        labels: &Map<String, Value>,
        values: &Value,
        into: &mut LooseSamples,
    ) {
        let text = |names: &[&str]| names.iter().find_map(|name| scalar(labels.get(*name)?));
        let metric = text(&["__name__"]).unwrap_or_default();
        let name = MemoryName::new(&metric);
        let role = name.role();
        // A query such as `a - b` has no name: its figures are what the user asked for.
        if matches!(role, Some(MemoryRole::Free | MemoryRole::Total))
            || role.is_none() && !metric.is_empty()
        {
            return;
        }
        let one = [values.clone()];
        let pairs = values
            .as_array()
            .filter(|values| values.iter().all(Value::is_array));
        for pair in pairs.map_or(&one[..], Vec::as_slice) {
            let (Some(time), Some(value)) =
                (pair.get(0).and_then(scalar), pair.get(1).and_then(scalar))
            else {
                continue;
            };
            let (Some(time), Ok(value)) = (self.times.time(&time, None), value.parse::<f64>())
            else {
                continue;
            };
            into.has_dates = true;
            let amount = LooseAmount {
                role: role.or(Some(MemoryRole::Plain)),
                host: text(&["Hostname", "hostname", "instance", "node"]),
                gpu: text(&GPU_NAMES),
                number: value,
                named_unit: name.unit.or(name.usual_unit()),
                ..LooseAmount::default()
            };
            into.add(
                number,
                LooseMoment {
                    time: Some(time),
                    step: None,
                },
                &amount,
            );
        }
    }
}

/// Keys that name a GPU.
const GPU_NAMES: [&str; 10] = [
    "index",
    "gpu",
    "gpu_index",
    "gpu_id",
    "device",
    "card",
    "rank",
    "uuid",
    "gpu_uuid",
    "UUID",
];

fn names_gpu(object: &Map<String, Value>) -> bool {
    GPU_NAMES
        .iter()
        .chain(&["pid"])
        .any(|name| object.contains_key(*name))
}

/// Returns a number or a text of a value.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Splits `20000MiB`, `24.6 GB` or `2.1e10`.
fn number_and_unit(text: &str) -> Option<(f64, Option<u64>)> {
    use crate::base::units::Bytes;
    let text = text.trim();
    if let Ok(number) = text.parse::<f64>() {
        return Some((number, None)).filter(|(number, _)| *number >= 0.0);
    }
    let number = text.trim_end_matches(|character: char| character.is_alphabetic());
    let unit = Bytes::unit(&text[number.len()..])?;
    Some((number.trim().replace(',', "").parse().ok()?, Some(unit)))
}
