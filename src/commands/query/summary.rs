//! The table that `nvidia-smi` prints without arguments, in the widths of its versions 570 to 595:
//! scripts cut it by position.

use std::fmt::Write;

use serde_json::Value;

use super::field::{FieldTable, QueryField};
use super::{nvidia_smi_exit, rows};
use crate::base::text::Text;
use crate::base::time::local_time;
use crate::protocol::snapshot::{Gpu, GpuProcess, Reading, Snapshot};

/// The fields of `--query-gpu` that the table shows.
const FIELDS: [&str; 17] = [
    "index",
    "name",
    "persistence_mode",
    "pci.bus_id",
    "display_active",
    "ecc.mode.current",
    "ecc.errors.uncorrected.volatile.total",
    "fan.speed",
    "temperature.gpu",
    "pstate",
    "power.draw",
    "enforced.power.limit",
    "memory.used",
    "memory.total",
    "utilization.gpu",
    "compute_mode",
    "mig.mode.current",
];

/// The readings besides those of the fields.
const OTHER_READINGS: [&str; 5] = [
    "processes",
    "graphics_processes",
    "instances",
    "facts.gpu_instance_id",
    "facts.compute_instance_id",
];

const NOT_AVAILABLE: &str = "N/A";
const UNREADABLE: &str = "ERR!";

const TOP: &str = "\
+-----------------------------------------------------------------------------------------+
";
const GPU_LINE: &str = "\
+-----------------------------------------+------------------------+----------------------+
";
const GPU_TITLES: &str = "\
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
";
const INSTANCE_TITLES: &str = "
+-----------------------------------------------------------------------------------------+
| MIG devices:                                                                            |
+------------------+----------------------------------+-----------+-----------------------+
| GPU  GI  CI  MIG |              Shared Memory-Usage |        Vol|        Shared         |
|      ID  ID  Dev |                Shared BAR1-Usage | SM     Unc| CE ENC  DEC  OFA  JPG |
|                  |                                  |        ECC|                       |
|==================+==================================+===========+=======================|
";
const INSTANCE_LINE: &str = "\
+------------------+----------------------------------+-----------+-----------------------+
";
const PROCESS_TITLES: &str = "
+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
";
const NO_PROCESSES: &str = "\
|  No running processes found                                                             |
";

/// Returns the readings of GPUs that the table needs.
pub(super) fn wanted_readings() -> Vec<String> {
    let readings = fields()
        .iter()
        .map(QueryField::wanted_reading)
        .collect::<Vec<_>>();
    readings
        .into_iter()
        .chain(OTHER_READINGS.map(str::to_owned))
        .collect()
}

fn fields() -> Vec<QueryField> {
    FieldTable::Gpu
        .select(&FIELDS.map(str::to_owned))
        .unwrap_or_default()
}

/// Returns the whole table for these GPUs.
pub(super) fn table(snapshot: &Snapshot, gpus: &[&Gpu]) -> String {
    let (answering, silent): (Vec<&Gpu>, Vec<&Gpu>) = gpus
        .iter()
        .partition(|gpu| nvidia_smi_exit::without_handle(gpu).is_none());
    let mut text: String = silent
        .iter()
        .filter_map(|gpu| nvidia_smi_exit::without_handle(gpu))
        .collect();
    if answering.is_empty() {
        return text + nvidia_smi_exit::NO_DEVICES;
    }
    let version = |version: &Option<Text>| {
        version
            .as_ref()
            .map_or(NOT_AVAILABLE.to_owned(), Text::to_string)
    };
    let (driver, cuda) = (
        version(&snapshot.driver.version),
        version(&snapshot.driver.cuda_version),
    );
    let versions = format!(
        "| NVIDIA-SMI {driver:<22} Driver Version: {driver:<14} CUDA Version: {cuda:<8} |\n"
    );
    text += &[&*heading(snapshot), TOP, &versions, GPU_LINE, GPU_TITLES].concat();
    let fields = fields();
    for gpu in &answering {
        text += &GpuCells::new(snapshot, gpu, &fields).lines();
        text += GPU_LINE;
    }
    let instances: Vec<&Gpu> = answering
        .iter()
        .flat_map(|gpu| rows::instances(snapshot, gpu))
        .collect();
    if !instances.is_empty() {
        text += INSTANCE_TITLES;
        for gpu in &answering {
            for (number, instance) in rows::instances(snapshot, gpu).enumerate() {
                text += &instance_lines(number, instance);
                text += INSTANCE_LINE;
            }
        }
    }
    text += PROCESS_TITLES;
    let mut lines = String::new();
    for gpu in &answering {
        lines.extend(nvidia_smi_exit::list_trouble(gpu).map(|words| line_without_list(gpu, words)));
        let processes = rows::gpu_processes(snapshot, gpu);
        lines.extend(
            processes.map(|(place, gpu_process)| process_line(snapshot, place, gpu_process)),
        );
    }
    text += if lines.is_empty() {
        NO_PROCESSES
    } else {
        &lines
    };
    text + TOP
}

/// Returns `Tue Jul 14 08:12:38 2026`, with spaces after it.
fn heading(snapshot: &Snapshot) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    const DAY_MS: i64 = 86_400_000;
    let offset = snapshot.host.facts.utc_offset.unwrap_or(0);
    let local = local_time(snapshot.unix_ms, offset);
    let part = |from: usize, to: usize| local.get(from..to).unwrap_or_default();
    let number = |from, to| part(from, to).parse().unwrap_or(1_usize);
    let days = (snapshot.unix_ms.cast_signed() + i64::from(offset) * 1000)
        .div_euclid(DAY_MS)
        .rem_euclid(7);
    // The first of January 1970 was a Thursday.
    let weekday = usize::try_from(days)
        .ok()
        .and_then(|day| DAYS.get(day))
        .unwrap_or(&DAYS[0]);
    let month = MONTHS
        .get(number(5, 7).saturating_sub(1))
        .unwrap_or(&MONTHS[0]);
    format!(
        "{weekday} {month} {:>2} {} {}       \n",
        number(8, 10),
        part(11, 19),
        part(0, 4)
    )
}

/// The cells of one GPU: the fields by name, as text.
struct GpuCells<'a> {
    snapshot: &'a Snapshot,
    gpu: &'a Gpu,
    row: Value,
    fields: &'a [QueryField],
}

impl<'a> GpuCells<'a> {
    fn new(snapshot: &'a Snapshot, gpu: &'a Gpu, fields: &'a [QueryField]) -> Self {
        Self {
            snapshot,
            gpu,
            row: rows::gpu(snapshot, gpu),
            fields,
        }
    }

    /// Returns the value of a field, or the word for a missing one.
    fn value(&self, name: &str) -> Result<String, &'static str> {
        let place = FIELDS.iter().position(|field| *field == name);
        let field = place
            .and_then(|place| self.fields.get(place))
            .ok_or(NOT_AVAILABLE)?;
        let value = rows::gpu_value(field, &self.row, self.snapshot, self.gpu);
        value.map_err(|words| {
            if words.contains(NOT_AVAILABLE) {
                NOT_AVAILABLE
            } else {
                UNREADABLE
            }
        })
    }

    /// Returns a cell: the value of a field as `form` has it, or the word for a missing one.
    fn cell(&self, name: &str, form: impl FnOnce(String) -> String) -> String {
        self.value(name).map_or_else(str::to_owned, form)
    }

    fn switch(&self, name: &str) -> String {
        self.cell(name, |value| {
            if value == "Enabled" { "On" } else { "Off" }.to_owned()
        })
    }

    fn with_unit(&self, name: &str, unit: &str) -> String {
        // The table has whole watts, rounded down.
        self.cell(name, |value| {
            format!("{}{unit}", value.split('.').next().unwrap_or_default())
        })
    }

    /// Returns the count of errors, or whether ECC is on where the whole GPU has no count.
    fn uncorrected(&self) -> String {
        let is_on = |mode: Result<String, _>| mode.is_ok_and(|mode| mode == "Enabled");
        match self.value("ecc.mode.current") {
            Ok(mode) if mode != "Enabled" => "Off".to_owned(),
            Ok(_) if is_on(self.value("mig.mode.current")) => "On".to_owned(),
            Ok(_) => self.cell("ecc.errors.uncorrected.volatile.total", |count| count),
            Err(words) => words.to_owned(),
        }
    }

    fn memory(&self) -> String {
        match (self.value("memory.used"), self.value("memory.total")) {
            // CPU and GPU share their memory.
            (Err(NOT_AVAILABLE), Err(NOT_AVAILABLE)) => "     Not Supported    ".to_owned(),
            _ => format!(
                "{:>10} / {:>9}",
                self.with_unit("memory.used", "MiB"),
                self.with_unit("memory.total", "MiB")
            ),
        }
    }

    fn name(&self) -> String {
        /// The longest name that is not cut.
        const WIDTH: usize = 27;
        let name = self.cell("name", |name| name);
        if name.chars().count() <= WIDTH {
            name
        } else {
            name.chars().take(WIDTH - 3).chain("...".chars()).collect()
        }
    }

    fn lines(&self) -> String {
        // Words for a missing limit stand further to the left than a limit.
        let limit = self.with_unit("enforced.power.limit", "W");
        let limit = if limit.ends_with('W') {
            limit
        } else {
            format!("{limit} ")
        };
        let state = self.cell("pstate", |state| state);
        let state = if state == UNREADABLE {
            format!("{state} ")
        } else {
            state
        };
        let mode = self.cell("compute_mode", |mode| mode.replace("Exclusive_", "E. "));
        format!(
            "|{:>4}  {:<27}    {:<3} |   {:>16} {:>3} |{:>21} |\n\
             |{:>4}{:>6}{state:>6}{:>16} / {limit:>5} |{:>23} |{:>8}{mode:>13} |\n\
             |{:41}|{:24}|{:>21} |\n",
            self.cell("index", |index| index),
            self.name(),
            self.switch("persistence_mode"),
            self.cell("pci.bus_id", |bus| bus),
            self.switch("display_active"),
            self.uncorrected(),
            self.with_unit("fan.speed", "%"),
            self.with_unit("temperature.gpu", "C"),
            self.with_unit("power.draw", "W"),
            self.memory(),
            self.with_unit("utilization.gpu", "%"),
            "",
            "",
            self.cell("mig.mode.current", |mode| mode),
        )
    }
}

/// Returns the two lines of a MIG instance. gputop does not read its multiprocessors, engines,
/// errors and BAR1 memory.
fn instance_lines(number: usize, instance: &Gpu) -> String {
    let mib = |reading: Reading<_>| {
        reading.map_or_else(
            |_| NOT_AVAILABLE.to_owned(),
            |bytes| format!("{}MiB", rows::mib(bytes)),
        )
    };
    let id = |reading: Reading<u32>| {
        reading.map_or_else(|_| NOT_AVAILABLE.to_owned(), |id| id.to_string())
    };
    format!(
        "|{:>3}{:>5}{:>4}{number:>4}  |{:>19} / {:>8}    |{:>3}{:>7} |{:>3}{:>4}{:>5}{:>5}{:>5} |\n\
         |{:18}|{:>19} / {:>8}    |{:11}|{:23}|\n",
        instance.facts.index,
        id(instance.facts.gpu_instance),
        id(instance.facts.compute_instance),
        mib(instance.load.memory_used),
        mib(instance.load.memory_total),
        NOT_AVAILABLE,
        NOT_AVAILABLE,
        NOT_AVAILABLE,
        NOT_AVAILABLE,
        NOT_AVAILABLE,
        NOT_AVAILABLE,
        NOT_AVAILABLE,
        "",
        NOT_AVAILABLE,
        NOT_AVAILABLE,
        "",
        "",
    )
}

/// Returns the line of a GPU whose processes cannot be listed.
fn line_without_list(gpu: &Gpu, words: &str) -> String {
    let index = gpu.facts.index;
    format!("|{index:>5}   N/A  N/A             N/A    N/A   {words:<32}      N/A      |\n")
}

/// Returns the line of a process on a GPU or an instance.
fn process_line(snapshot: &Snapshot, gpu: &Gpu, gpu_process: &GpuProcess) -> String {
    /// The longest name that is not cut. Of a longer one, the end is shown.
    const WIDTH: usize = 32;
    let name = rows::process_name(snapshot, gpu_process);
    let length = name.chars().count();
    let name = if length <= WIDTH {
        name.to_owned()
    } else {
        "..."
            .chars()
            .chain(name.chars().skip(length + 3 - WIDTH))
            .collect()
    };
    // A number stands one column further to the left than `N/A`.
    let id = |reading: Reading<u32>| {
        reading.map_or_else(|_| NOT_AVAILABLE.to_owned(), |id| format!("{id} "))
    };
    let memory = match gpu_process.memory {
        Ok(bytes) => format!("{:>8}", format!("{}MiB", rows::mib(bytes))),
        Err(_) => format!("{NOT_AVAILABLE:<8}"),
    };
    let (index, pid, usage) = (
        gpu.facts.index,
        gpu_process.process.pid,
        gpu_process.usage.to_string(),
    );
    let [instance, compute] = [id(gpu.facts.gpu_instance), id(gpu.facts.compute_instance)];
    let mut line = String::new();
    let _infallible: std::fmt::Result = writeln!(
        line,
        "|{index:>5}{instance:>6}{compute:>5}{pid:>16}{usage:>7}   {name:<32}      {memory} |"
    );
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::Bytes;
    use crate::protocol::snapshot::{Missing, example};

    #[test]
    fn every_field_of_the_table_is_one_of_a_query() {
        assert_eq!(fields().len(), FIELDS.len());
    }

    #[test]
    fn the_heading_is_the_local_time() {
        let mut host = example::host(0);
        for (unix_ms, offset, expected) in [
            (1_784_016_758_696, 0, "Tue Jul 14 08:12:38 2026       \n"),
            (0, 0, "Thu Jan  1 00:00:00 1970       \n"),
            (1_704_067_199_999, 3600, "Mon Jan  1 00:59:59 2024       \n"),
        ] {
            (host.unix_ms, host.host.facts.utc_offset) = (unix_ms, Ok(offset));
            assert_eq!(heading(&host), expected);
        }
    }

    #[test]
    fn a_gpu_whose_processes_cannot_be_listed_has_nvidia_smis_words_in_their_place() {
        let mut host = example::host(3).with(100, "python train.py", 0, Bytes::from_gib(1));
        host.gpus[1].missing.processes = Some(Missing::Unsupported);
        host.gpus[2].missing.processes = Some(Missing::Denied);
        let gpus: Vec<&Gpu> = host.gpus.iter().collect();
        let text = table(&host, &gpus);
        let (_, processes) = text
            .split_once("| Processes:")
            .expect("the table has a part for processes");
        let expected = [
            "|    0   N/A  N/A             100      C   python                                 1024MiB |",
            "|    1   N/A  N/A             N/A    N/A   Not Supported                         N/A      |",
            "|    2   N/A  N/A             N/A    N/A   Insufficient Permissions              N/A      |",
        ];
        assert_eq!(
            processes.lines().skip(4).take(3).collect::<Vec<_>>(),
            expected,
            "{text}"
        );
        // The list was not read, and the GPU answers: the exit code says nothing.
        for gpu in &host.gpus {
            let exit =
                nvidia_smi_exit::after_query(crate::output::Exit::Partial, &host, &[gpu], true);
            assert_eq!(exit.code, 0);
        }
    }

    #[test]
    fn all_lines_are_equally_wide() {
        let mut host = example::host(2).with(
            100,
            "/a/very/long/path/to/an/environment/bin/python train.py",
            0,
            Bytes(1),
        );
        host.gpus[1].load.memory_total = Err(Missing::Unsupported);
        host.gpus[1].load.memory_used = Err(Missing::Unsupported);
        let gpus: Vec<&Gpu> = host.gpus.iter().collect();
        let text = table(&host, &gpus);
        for line in text.lines().skip(1).filter(|line| !line.is_empty()) {
            assert_eq!(line.len(), 91, "{line}");
        }
        assert!(
            text.contains(".../to/an/environment/bin/python          1MiB |"),
            "{text}"
        );
        assert!(text.contains("|      Not Supported     |"), "{text}");
    }
}
