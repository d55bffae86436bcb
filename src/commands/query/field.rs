//! A field of `--query-gpu` or `--query-compute-apps`: a line of one of two tables.

use std::fmt::Write;

use serde::Deserialize;
use serde_json::Value;

use crate::protocol::snapshot::{Missing, Reading};

/// The table that a query selects fields from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldTable {
    /// Fields of a GPU: `--query-gpu`.
    Gpu,
    /// Fields of a process that computes on a GPU: `--query-compute-apps`.
    ComputeApps,
    /// Fields of a GPU whose memory can remap rows: `--query-remapped-rows`.
    RemappedRows,
}

/// A field that can be queried.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueryField {
    /// All names, separated by spaces. The first one is printed in the header.
    names: &'static str,
    unit: &'static str,
    /// The path of the reading in the JSON of a row. A `.0` after a list or a PCI address is its
    /// first part.
    reading: &'static str,
    /// How the reading is written, if not as a text or a number in `unit`:
    ///
    /// - `No, Yes`: the words for 0 (or `false`), 1 (or `true`) and so on; `-` stands for no word.
    /// - `bits 0x30: A, B`: the words for the number in these bits.
    /// - `hex 8`: a hexadecimal number with at least 8 digits.
    /// - `P{}`: the reading in the place of `{}`.
    /// - `bare`, before another form: nvidia-smi writes N/A without brackets.
    /// - `deprecated`, before another form: nvidia-smi says so where the reading is null.
    form: &'static str,
    help: &'static str,
}

/// The words for a missing value, in nvidia-smi's spelling.
pub(super) const NOT_AVAILABLE: &str = "[N/A]";
const UNKNOWN_ERROR: &str = "[Unknown Error]";

/// Returns nvidia-smi's words for a missing value.
pub(super) fn missing_words(reason: Missing) -> &'static str {
    match reason {
        Missing::Unsupported | Missing::Gone | Missing::NotAsked => NOT_AVAILABLE,
        Missing::Denied => "[Insufficient Permissions]",
        Missing::Failed | Missing::NotYet => UNKNOWN_ERROR,
    }
}

/// The fields of a GPU's detail that newer drivers call deprecated: the name in the row, the reading,
/// and the first such driver. An older driver answers them.
pub(super) const WITHDRAWN: [(&str, &str, u32); 2] = [
    ("display_mode", "display_attached", 580),
    ("power_management_mode", "power_management", 590),
];

impl FieldTable {
    fn all(self) -> impl Iterator<Item = QueryField> {
        let table = match self {
            Self::Gpu => include_str!("gpu_fields.txt"),
            Self::ComputeApps => include_str!("compute_app_fields.txt"),
            Self::RemappedRows => include_str!("remapped_row_fields.txt"),
        };
        table
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| {
                let mut columns = line.splitn(5, '|').map(str::trim);
                let mut next = || columns.next().unwrap_or_default();
                QueryField {
                    names: next(),
                    unit: next(),
                    reading: next(),
                    form: next(),
                    help: next(),
                }
            })
    }

    /// The name of the option, after `--query-`.
    pub(super) fn option(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::ComputeApps => "compute-apps",
            Self::RemappedRows => "remapped-rows",
        }
    }

    /// Returns the fields with these names, or an error that has the first name of no field.
    pub(super) fn select(self, names: &[String]) -> Result<Vec<QueryField>, String> {
        let find = |name: &String| {
            let name = name.trim();
            let is_named = |field: &QueryField| field.names.split(' ').any(|alias| alias == name);
            self.all()
                .find(is_named)
                .ok_or_else(|| format!("Field \"{name}\" is not a valid field to query"))
        };
        names.iter().map(find).collect()
    }

    /// Returns the help: the names of each field and the sentence on it.
    pub(super) fn help(self) -> String {
        let mut text = format!(
            "List of valid properties to query for the switch \"--query-{}\":\n",
            self.option()
        );
        for field in self.all() {
            let names = field.names.replace(' ', "\" or \"");
            let _infallible: std::fmt::Result = write!(text, "\n\"{names}\"\n{}\n", field.help);
        }
        text
    }
}

impl QueryField {
    /// Returns the name and unit as the header has them: `memory.used [MiB]`.
    pub(super) fn header(&self) -> String {
        let name = self.names.split(' ').next().unwrap_or_default();
        if self.unit.is_empty() {
            name.to_owned()
        } else {
            format!("{name} [{}]", self.unit)
        }
    }

    /// Returns the path of the reading, without the place of a part of it.
    pub(super) fn wanted_reading(&self) -> String {
        let path: Vec<&str> = self.reading.split('.').take(2).collect();
        let path = path.join(".");
        // The row of a GPU has a copy of the reading of a withdrawn field.
        match WITHDRAWN
            .iter()
            .find(|(name, ..)| path == format!("detail.{name}"))
        {
            Some((_, reading, _)) => format!("detail.{reading}"),
            None => path,
        }
    }

    /// Whether the value is known even if the GPU does not answer.
    pub(super) fn is_static(&self) -> bool {
        self.reading.starts_with("facts.") || self.reading.starts_with("snapshot.")
    }

    /// Returns the value in a row, or the words for a missing value.
    pub(super) fn value(&self, row: &Value) -> Result<String, &'static str> {
        let (form, not_available, no_word) = match self.form.strip_prefix("bare") {
            Some(form) => (form.trim_start(), "N/A", "N/A"),
            None => (self.form, NOT_AVAILABLE, UNKNOWN_ERROR),
        };
        let (form, null) = match form.strip_prefix("deprecated") {
            Some(form) => (
                form.trim_start(),
                "[Requested functionality has been deprecated]",
            ),
            None => (form, not_available),
        };
        match read(self.reading, row) {
            Ok(Value::Null) => Err(null),
            Ok(value) => self.formatted(form, &value).ok_or(no_word),
            Err(Missing::Unsupported | Missing::Gone) => Err(not_available),
            Err(reason) => Err(missing_words(reason)),
        }
    }

    /// Formats a value, as `form` says. Returns `None` for a number without a word.
    fn formatted(&self, form: &str, value: &Value) -> Option<String> {
        if form.is_empty() {
            return Some(self.in_unit(value));
        }
        if form.contains("{}") {
            return Some(form.replace("{}", &plain(value)));
        }
        let number = value.as_u64().or(value.as_bool().map(u64::from));
        if let Some(width) = form.strip_prefix("hex ") {
            let number = number.or_else(|| u64::from_str_radix(value.as_str()?, 16).ok())?;
            return Some(format!("0x{number:00$X}", width.parse().ok()?));
        }
        let (mask, words) = match form
            .strip_prefix("bits 0x")
            .and_then(|rest| rest.split_once(": "))
        {
            Some((mask, words)) => (u64::from_str_radix(mask, 16).ok()?, words),
            None => (u64::MAX, form),
        };
        let number = (number? & mask) >> mask.trailing_zeros();
        let word = words.split(", ").nth(usize::try_from(number).ok()?)?;
        (word != "-").then(|| word.to_owned())
    }

    /// Formats a value in nvidia-smi's unit. The unit of the reading is the end of its name.
    fn in_unit(&self, value: &Value) -> String {
        let name = self.reading.split('.').nth(1).unwrap_or_default();
        let unit = name.rsplit('_').next().unwrap_or_default();
        match (unit, value.as_u64(), value.as_f64()) {
            // Rounded up, as nvidia-smi does.
            ("bytes", Some(bytes), _) => bytes.div_ceil(1 << 20).to_string(),
            ("hertz", Some(hertz), _) => (hertz / 1_000_000).to_string(),
            ("ns", Some(nanoseconds), _) => (nanoseconds / 1000).to_string(),
            ("milliwatts", Some(milliwatts), _) => {
                format!("{}.{:02}", milliwatts / 1000, milliwatts % 1000 / 10)
            }
            ("percent", _, Some(percent)) => format!("{percent:.0}"),
            _ => plain(value),
        }
    }

    /// Returns a value as a cell: with its unit, if `shows_unit`.
    pub(super) fn cell(&self, value: Result<String, &'static str>, shows_unit: bool) -> String {
        match value {
            Ok(value) if shows_unit && !self.unit.is_empty() => format!("{value} {}", self.unit),
            Ok(value) => value,
            Err(words) => words.to_owned(),
        }
    }
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns the reading at a path of the JSON of a row. A group of readings that the row does not
/// have is unsupported.
fn read(path: &str, row: &Value) -> Reading<Value> {
    let mut value = row;
    for name in path.split('.') {
        value = match value {
            Value::Null => return Err(Missing::Unsupported),
            Value::String(address) => {
                let part = name
                    .parse()
                    .ok()
                    .and_then(|place| address.split([':', '.']).nth(place));
                return part.map(Value::from).ok_or(Missing::Failed);
            }
            Value::Array(list) => name
                .parse()
                .ok()
                .and_then(|place: usize| list.get(place))
                .unwrap_or(&Value::Null),
            group => match &group["missing"][name] {
                Value::Null => &group[name],
                reason => return Err(Missing::deserialize(reason).unwrap_or(Missing::Failed)),
            },
        };
    }
    Ok(value.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::base::units::Moment;
    use crate::commands::query::rows;
    use crate::protocol::snapshot::{GpuDetail, example};

    fn field(name: &str) -> QueryField {
        FieldTable::Gpu
            .select(&[name.to_owned()])
            .expect("a field of the table")[0]
    }

    #[test]
    fn every_reading_of_the_tables_is_in_the_json() {
        let mut host = example::host(1).with(100, "python", 0, crate::base::units::Bytes(1));
        let [corrected, corrected_ever, uncorrected, uncorrected_ever] =
            std::array::from_fn(|_| crate::protocol::snapshot::EccCounts::missing(Missing::Failed));
        let detail = GpuDetail::missing(
            Moment(0),
            corrected,
            corrected_ever,
            uncorrected,
            uncorrected_ever,
            Missing::Failed,
        );
        host.gpus[0].detail = Some(Box::new(detail));
        let row = &rows::compute_apps(&host, &[&host.gpus[0]])[0];
        for field in FieldTable::Gpu
            .all()
            .chain(FieldTable::ComputeApps.all())
            .chain(FieldTable::RemappedRows.all())
        {
            let mut path = field.reading.split('.');
            let (group, name) = (
                path.next().unwrap_or_default(),
                path.next().unwrap_or_default(),
            );
            // A withdrawn field has no reading.
            let is_named = row[group].get(name).is_some()
                || field.form.starts_with("deprecated")
                || group.is_empty();
            assert!(
                is_named && !field.names.is_empty() && field.help.ends_with('.'),
                "{field:?}"
            );
        }
    }

    #[test]
    fn values_round_as_nvidia_smi_does() {
        let shown = |name: &str, group: &str, reading: &str, value: Value| {
            let field = field(name);
            let row = json!({ group: { reading: value } });
            (
                field.cell(field.value(&row), true),
                field.cell(field.value(&row), false),
            )
        };
        let memory = |value: u64| shown("memory.used", "load", "memory_used_bytes", value.into());
        assert_eq!(memory(1).0, "1 MiB");
        assert_eq!(memory(81559 << 20).1, "81559");
        let power = |value: u64| {
            shown(
                "power.draw",
                "detail",
                "power_draw_milliwatts",
                value.into(),
            )
        };
        assert_eq!(power(69_859).0, "69.85 W");
        assert_eq!(power(700_000).1, "700.00");
        let held = "clocks_event_reasons_counters.sw_power_cap";
        assert_eq!(
            shown(
                held,
                "detail",
                "throttled_by_power_cap_ns",
                212_553_937_999_u64.into()
            )
            .0,
            "212553937 us"
        );
    }

    #[test]
    fn a_missing_value_is_written_in_words_without_a_unit() {
        let missing = |name: &str, group: &str, reading: &str, reason: &str| {
            field(name).value(&json!({ group: { reading: null, "missing": { reading: reason } } }))
        };
        assert_eq!(
            missing(
                "utilization.gpu",
                "load",
                "sm_utilization_percent",
                "unsupported"
            ),
            Err("[N/A]")
        );
        assert_eq!(
            missing(
                "utilization.gpu",
                "load",
                "sm_utilization_percent",
                "failed"
            ),
            Err("[Unknown Error]")
        );
        assert_eq!(
            missing(
                "temperature.memory",
                "detail",
                "memory_temperature_celsius",
                "unsupported"
            ),
            Err("N/A")
        );
        assert_eq!(
            field("serial").value(&json!({ "detail": null })),
            Err("[N/A]")
        );
    }
}
