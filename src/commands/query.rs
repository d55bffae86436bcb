//! nvidia-smi's `--query-gpu`, `--query-compute-apps`, `-L`, its table and `pmon`, so that scripts
//! written for nvidia-smi need no change; and gputop's own `--csv`.
//!
//! Names, order, units, spacing and the words for missing values are those of nvidia-smi 590.
//! nvidia-smi itself is never called: an agent reads the driver.

mod csv;
mod field;
mod nvidia_smi_exit;
mod process_monitor;
mod rows;
mod summary;
mod usage;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;

pub use self::field::FieldTable;
use self::field::QueryField;
use self::nvidia_smi_exit::NvidiaSmiExit;
pub use self::process_monitor::MonitorColumns;
use super::live::chosen_processes::ChosenProcesses;
use super::live::gpu_ids;
use super::live::read_hosts;
use crate::app::lists::unknown_processes;
use crate::base::text::Text;
use crate::base::units::Moment;
use crate::flags::ReadOptions;
use crate::model::HostModel;
use crate::output::{self, Exit};
use crate::protocol::agent_options::{AgentOptions, SHORTEST_INTERVAL, SHORTEST_LOOP};
use crate::protocol::snapshot::{Gpu, Missing, Snapshot};
use crate::source::Source;

/// The program that a query is asked of. It decides the exit codes, and where sentences on errors
/// go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// gputop.
    Gputop,
    /// gputop under the name `nvidia-smi`, which ends as nvidia-smi does.
    NvidiaSmi,
}

/// A query of nvidia-smi.
#[derive(Debug, Clone)]
pub enum Query {
    /// A list of the fields that a query can have.
    Help(FieldTable),
    /// The fields with these names.
    Fields(FieldTable, Vec<String>),
    /// The GPUs and their MIG instances.
    List,
    /// The versions of driver and CUDA.
    Version,
    /// The table of GPUs and processes.
    Summary,
    /// A line for each process on a GPU, in each sample.
    Monitor(MonitorColumns),
    /// The options that gputop has under the name `nvidia-smi`.
    Usage,
    /// The changing values of each GPU, as CSV.
    Csv,
    /// The changing values of each process on a GPU, as CSV.
    ProcessCsv,
}

impl Query {
    /// Whether the answer has a row for each process.
    fn has_processes(&self) -> bool {
        matches!(
            self,
            Self::Fields(FieldTable::ComputeApps, _)
                | Self::ProcessCsv
                | Self::Summary
                | Self::Monitor(_)
        )
    }
}

/// A query, its interval and the format of the answer.
#[derive(Debug)]
pub struct QueryOptions {
    /// The program that is asked.
    pub caller: Caller,
    /// How the agent is started. Its interval follows from `every`.
    pub agent: AgentOptions,
    /// How long to wait for the driver.
    pub timeout: Duration,
    /// The time from one answer to the next; `None` for one answer.
    pub every: Option<Duration>,
    /// The number of answers; `None` for one without `every`, and for answers until a signal with
    /// it.
    pub count: Option<u32>,
    /// The query; `None` if only options without a query are given.
    pub query: Option<Query>,
    /// The words of `--format`.
    pub format: Vec<String>,
    /// The GPUs to answer for, as index, UUID or PCI address; all if empty.
    pub ids: Vec<String>,
    /// The processes to answer for.
    pub processes: ChosenProcesses,
    /// The file to write to; `None` for the standard output.
    pub file: Option<PathBuf>,
}

impl QueryOptions {
    fn has_processes(&self) -> bool {
        self.query.as_ref().is_some_and(Query::has_processes)
    }

    fn has_rates(&self) -> bool {
        matches!(self.query, Some(Query::ProcessCsv | Query::Monitor(_)))
    }

    fn is_usage(&self) -> bool {
        matches!(self.query, Some(Query::Usage))
    }
}

/// Answers once, or every `options.every`. Fails if no agent can be started or the answer cannot be
/// written.
pub fn run(options: &QueryOptions) -> anyhow::Result<ExitCode> {
    let fields = match selected_fields(options) {
        Ok(fields) => fields,
        Err(sentence) if options.caller == Caller::NvidiaSmi => {
            return refuse_as_nvidia_smi(&sentence);
        }
        Err(sentence) => {
            output::print_error(&Text::new(sentence));
            return Ok(Exit::Usage.into());
        }
    };
    if let Some(Query::Help(table)) = options.query {
        output::print(table.help().as_bytes())?;
        return Ok(Exit::Success.into());
    }
    let read = read_options(options, &fields);
    let mut answers = AnswerLoop {
        options,
        fields,
        output: QueryOutput {
            path: options.file.as_deref(),
            file: None,
        },
        count: 0,
        skipped_passes: 0,
        answered_at: None,
        unknown_ids: Vec::new(),
    };
    let outcome = read_hosts::read_until(&read, options.has_rates(), |hosts| {
        let (model, snapshot) = hosts[0].seen?;
        answers.take_snapshot(hosts[0].name, model, snapshot)
    })?;
    answers.finish(match outcome {
        Ok(end) => end?,
        Err(reason) => QueryEnd {
            exit: Exit::Partial,
            reason: Some(reason),
            as_nvidia_smi: NvidiaSmiExit::OTHER,
        },
    })
}

/// Returns how the agent is started and read.
fn read_options(options: &QueryOptions, fields: &[QueryField]) -> ReadOptions {
    let only = wanted_readings(options, fields);
    let agent = AgentOptions {
        interval: options
            .every
            .map_or(SHORTEST_INTERVAL, |every| every.max(SHORTEST_LOOP)),
        detail: only.iter().any(|reading| reading.starts_with("detail.")),
        only,
        ..options.agent.clone()
    };
    ReadOptions {
        interval: agent.interval,
        sources: vec![Source::LocalAgent(agent)],
        timeout: options.timeout,
    }
}

/// The end of a query.
struct QueryEnd {
    exit: Exit,
    /// The reason why there is no answer.
    reason: Option<Text>,
    as_nvidia_smi: NvidiaSmiExit,
}

/// Answers a query at each interval.
struct AnswerLoop<'a> {
    options: &'a QueryOptions,
    fields: Vec<QueryField>,
    output: QueryOutput<'a>,
    /// The number of answers.
    count: u32,
    /// The passes since the last answer.
    skipped_passes: u32,
    answered_at: Option<Moment>,
    unknown_ids: Vec<String>,
}

impl AnswerLoop<'_> {
    /// Takes the latest snapshot, and answers if it is time. Returns `None` to wait for the next
    /// one.
    fn take_snapshot(
        &mut self,
        host: &str,
        model: &HostModel,
        snapshot: &Snapshot,
    ) -> Option<anyhow::Result<QueryEnd>> {
        let options = self.options;
        // An agent's second pass follows the first at once, because rates need two. Only one of
        // them is answered.
        let shortest_pause = options.every.unwrap_or(Duration::ZERO) / 2;
        let pause = |answered_at| snapshot.at.since(answered_at);
        if self
            .answered_at
            .is_some_and(|at| pause(at) < shortest_pause)
        {
            return None;
        }
        self.skipped_passes += 1;
        if self.is_incomplete(snapshot) && self.skipped_passes < PATIENCE {
            return None;
        }
        let snapshot = &*options.processes.filter(host, model, snapshot, false);
        let gpus = chosen(snapshot, &options.ids);
        let exit = exit(snapshot, &gpus);
        let as_nvidia_smi = self.nvidia_smi_exit(exit, snapshot, &gpus);
        // Without an answer, a loop waits for the driver. nvidia-smi ends.
        let ends_without = options.every.is_none() || options.caller == Caller::NvidiaSmi;
        let has_answer = !matches!(exit, Exit::NoDriver | Exit::NoGpu | Exit::Nothing)
            && !as_nvidia_smi.is_refusal();
        let mut end = QueryEnd {
            exit,
            reason: None,
            as_nvidia_smi,
        };
        if !has_answer && !options.is_usage() && ends_without {
            end.reason = Some(reason(exit, snapshot, options));
            return Some(Ok(end));
        }
        let is_first = self.count == 0;
        if is_first {
            self.print_problems(snapshot, &gpus);
        }
        let text = answer((model, snapshot), &gpus, options, &self.fields, is_first);
        (self.skipped_passes, self.answered_at) = (0, Some(snapshot.at));
        self.count += 1;
        match self.output.put(&text) {
            Ok(()) if options.every.is_some() && options.count != Some(self.count) => None,
            Ok(()) => Some(Ok(end)),
            Err(error) => Some(Err(error)),
        }
    }

    /// Whether the next pass will have more. The scan of /proc runs beside the passes over the
    /// driver, and delivers its result a little later.
    fn is_incomplete(&self, snapshot: &Snapshot) -> bool {
        self.options.has_processes() && rows::is_incomplete(snapshot)
            || self.options.has_rates() && self.count == 0 && rows::lacks_cpu(snapshot)
    }

    fn nvidia_smi_exit(&self, exit: Exit, snapshot: &Snapshot, gpus: &[&Gpu]) -> NvidiaSmiExit {
        let is_summary = matches!(self.options.query, Some(Query::Summary));
        let needs_lists = self.options.has_processes() && !is_summary;
        let found = nvidia_smi_exit::after_query(exit, snapshot, gpus, needs_lists);
        // The process monitor has no row for processes that are not known, unlike the other lists.
        let lacks_list = || {
            gpus.iter()
                .any(|gpu| nvidia_smi_exit::without_list(gpu).is_some())
        };
        if matches!(self.options.query, Some(Query::Monitor(_))) && found.code == 0 && lacks_list()
        {
            return NvidiaSmiExit::OTHER;
        }
        found
    }

    /// Prints a sentence on everything that the answer lacks.
    fn print_problems(&mut self, snapshot: &Snapshot, gpus: &[&Gpu]) {
        self.unknown_ids = gpu_ids::unknown(&[snapshot], &self.options.ids);
        if !self.unknown_ids.is_empty() {
            output::print_error(&gpu_ids::no_such_gpu(&self.unknown_ids));
        }
        let of_gpus = || snapshot.gpus.iter().filter(|gpu| is_of_one(gpu, gpus));
        of_gpus()
            .filter_map(|gpu| gpu.trouble.as_ref())
            .for_each(|trouble| output::print_error(&trouble.sentence));
        // The sentence about a trouble names the call.
        let is_asked = |gpu: &&Gpu| self.options.has_processes() && gpu.trouble.is_none();
        for sentence in unknown_processes::sentences(of_gpus().filter(is_asked)) {
            output::print_error(&Text::new(sentence));
        }
    }

    fn finish(&self, end: QueryEnd) -> anyhow::Result<ExitCode> {
        let QueryEnd {
            exit,
            reason,
            as_nvidia_smi,
        } = end;
        match self.options.caller {
            Caller::NvidiaSmi if self.options.is_usage() => Ok(Exit::Success.into()),
            Caller::NvidiaSmi => {
                output::print(as_nvidia_smi.sentence.as_bytes())?;
                reason
                    .filter(|_| as_nvidia_smi.sentence.is_empty())
                    .iter()
                    .for_each(output::print_error);
                let code = if self.unknown_ids.is_empty() {
                    as_nvidia_smi.code
                } else {
                    NvidiaSmiExit::NO_DEVICE
                };
                Ok(code.into())
            }
            Caller::Gputop => {
                reason.iter().for_each(output::print_error);
                Ok(match exit {
                    Exit::Success if !self.unknown_ids.is_empty() => Exit::Nothing,
                    _ => exit,
                }
                .into())
            }
        }
    }
}

/// Prints a sentence on a wrong command line where nvidia-smi prints it.
///
/// # Errors
///
/// When the standard output is closed.
pub fn refuse_as_nvidia_smi(sentence: &str) -> anyhow::Result<ExitCode> {
    output::print(format!("{sentence}\n").as_bytes())?;
    Ok(Exit::Usage.into())
}

/// The passes after which an answer is given even if processes have not been scanned.
const PATIENCE: u32 = 10;

/// The standard output, or the file of `-f`.
struct QueryOutput<'a> {
    path: Option<&'a Path>,
    /// Opened with the first answer: without an answer, an existing file keeps its contents.
    file: Option<File>,
}

impl QueryOutput<'_> {
    fn put(&mut self, text: &str) -> anyhow::Result<()> {
        let Some(path) = self.path else {
            return Ok(output::print(text.as_bytes())?);
        };
        let context = || format!("cannot write {}", path.display());
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(File::create(path).with_context(context)?),
        };
        file.write_all(text.as_bytes()).with_context(context)
    }
}

/// Returns the reason why there is no GPU to query.
fn reason(exit: Exit, snapshot: &Snapshot, options: &QueryOptions) -> Text {
    match (&snapshot.driver.trouble, exit) {
        (Some(trouble), _) => trouble.sentence.clone(),
        (None, Exit::Nothing) => gpu_ids::no_such_gpu(&options.ids),
        (None, _) => Text::new("the driver knows of no GPU"),
    }
}

/// Returns the fields that the query selects, empty for other queries, or a sentence that says what
/// is wrong with the query.
fn selected_fields(options: &QueryOptions) -> Result<Vec<QueryField>, String> {
    let known = ["csv", "noheader", "nounits"];
    if let Some(other) = options
        .format
        .iter()
        .find(|word| !known.contains(&word.trim()))
    {
        return Err(format!(
            "`{other}` is no format; these are: csv, noheader, nounits"
        ));
    }
    match &options.query {
        Some(query) if !options.processes.is_all() && !query.has_processes() => {
            Err("-u, --pid, --filter and --mine choose processes: they go with the screen, --once, --plain, --json, \
                 --csv=processes and --query-compute-apps"
                .to_owned())
        }
        Some(Query::Fields(table, names)) => table.select(names).map_err(|sentence| match options.caller {
            Caller::NvidiaSmi => format!("{sentence}."),
            Caller::Gputop => format!("{sentence}; see gputop --help-query-{}", table.option()),
        }),
        Some(_) => Ok(Vec::new()),
        None => Err("-f and --format go with --query-gpu, --query-compute-apps, -L or --csv; -i also with --once, --plain or --json; on \
             the screen, /gpu0 shows the processes of a GPU"
            .to_owned()),
    }
}

fn answer(
    (model, snapshot): (&HostModel, &Snapshot),
    gpus: &[&Gpu],
    options: &QueryOptions,
    fields: &[QueryField],
    is_first: bool,
) -> String {
    let Some(Query::Fields(table, _)) = options.query else {
        return match options.query {
            Some(Query::Version) => versions(snapshot),
            Some(Query::Summary) => summary::table(snapshot, gpus),
            Some(Query::Monitor(columns)) => {
                process_monitor::sample(snapshot, gpus, columns, is_first)
            }
            Some(Query::Usage) => usage::text(snapshot),
            Some(Query::Csv) => csv::table(snapshot, gpus, is_first),
            Some(Query::ProcessCsv) => csv::processes(
                model,
                snapshot,
                snapshot.gpus.iter().filter(|gpu| is_of_one(gpu, gpus)),
                is_first,
            ),
            _ => list(snapshot, gpus, options.caller),
        };
    };
    let has = |word: &str| options.format.iter().any(|given| given.trim() == word);
    let mut text = String::new();
    // nvidia-smi separates headers and values by a comma and a space.
    let mut add_line = |cells: Vec<String>| text += &(cells.join(", ") + "\n");
    if is_first && !has("noheader") {
        add_line(fields.iter().map(QueryField::header).collect());
    }
    let shows_unit = !has("nounits");
    if table == FieldTable::ComputeApps {
        for row in rows::compute_apps(snapshot, gpus) {
            add_line(
                fields
                    .iter()
                    .map(|field| field.cell(field.value(&row), shows_unit))
                    .collect(),
            );
        }
    } else {
        // nvidia-smi has no row for a GPU without this function.
        let is_listed = |gpu: &&&Gpu| table != FieldTable::RemappedRows || rows::remaps_rows(gpu);
        for gpu in gpus.iter().filter(is_listed) {
            let row = rows::gpu(snapshot, gpu);
            let value = |field: &QueryField| rows::gpu_value(field, &row, snapshot, gpu);
            add_line(
                fields
                    .iter()
                    .map(|field| field.cell(value(field), shows_unit))
                    .collect(),
            );
        }
    }
    text
}

/// Returns the GPUs with one of these IDs, without MIG instances; all GPUs if no ID is given.
fn chosen<'a>(snapshot: &'a Snapshot, ids: &[String]) -> Vec<&'a Gpu> {
    let gpus = snapshot
        .gpus
        .iter()
        .filter(|gpu| gpu.facts.parent.is_none());
    gpus.filter(|gpu| gpu_ids::is_chosen(snapshot, gpu, ids))
        .collect()
}

/// Whether the GPU is one of `gpus`, or an instance of one.
fn is_of_one(gpu: &Gpu, gpus: &[&Gpu]) -> bool {
    gpus.iter()
        .any(|chosen| chosen.uuid == gpu.uuid || gpu.facts.parent.as_ref() == Some(&chosen.uuid))
}

/// Returns the readings that the query needs, as their paths in the JSON of a GPU.
fn wanted_readings(options: &QueryOptions, fields: &[QueryField]) -> Vec<String> {
    let mut readings: Vec<String> = match &options.query {
        Some(Query::List) => ["facts.name", "instances"].map(str::to_owned).into(),
        Some(Query::Version | Query::Usage) => vec!["snapshot.driver_version".to_owned()],
        Some(Query::Summary) => summary::wanted_readings(),
        Some(Query::Monitor(_)) => process_monitor::wanted_readings(),
        Some(Query::Csv) => csv::names()
            .iter()
            .map(|name| format!("load.{name}"))
            .chain(["facts.name".to_owned()])
            .collect(),
        Some(Query::Fields(table, _)) => {
            let processes = (*table == FieldTable::ComputeApps).then(|| "processes".to_owned());
            let rows = (*table == FieldTable::RemappedRows).then(|| rows::REMAPPED_ROWS.to_owned());
            fields
                .iter()
                .map(QueryField::wanted_reading)
                .chain(processes)
                .chain(rows)
                .collect()
        }
        // The processes need everything that a report has.
        Some(Query::Help(_) | Query::ProcessCsv) | None => return Vec::new(),
    };
    if !options.ids.is_empty() {
        readings.push("facts.pci_bus_id".to_owned());
    }
    readings
}

fn exit(snapshot: &Snapshot, gpus: &[&Gpu]) -> Exit {
    match Exit::of_snapshot(snapshot, true) {
        none @ (Exit::NoDriver | Exit::NoGpu) => none,
        _ if gpus.is_empty() => Exit::Nothing,
        _ if gpus.iter().any(|gpu| gpu.trouble.is_some()) => Exit::Partial,
        // Other failures were not queried, or are in the answer.
        _ => Exit::Success,
    }
}

/// Returns the versions as `nvidia-smi --version` writes them.
fn versions(snapshot: &Snapshot) -> String {
    let word = |version: &Option<Text>| {
        version
            .as_ref()
            .map_or_else(|| "N/A".to_owned(), Text::to_string)
    };
    let (driver, cuda) = (
        word(&snapshot.driver.version),
        word(&snapshot.driver.cuda_version),
    );
    let nvml = driver.split('.').take(2).collect::<Vec<_>>().join(".");
    format!(
        "NVIDIA-SMI version  : {driver}\nNVML version        : {nvml}\nDRIVER version      : {driver}\n\
         CUDA Version        : {cuda}\n"
    )
}

/// Returns `GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-…)` for each GPU, followed by its MIG
/// instances.
fn list(snapshot: &Snapshot, gpus: &[&Gpu], caller: Caller) -> String {
    let mut lines = Vec::new();
    let name = |gpu: &Gpu| {
        gpu.facts
            .name
            .as_ref()
            .map_or_else(Missing::to_string, Text::to_string)
    };
    for gpu in gpus {
        if let (Err(_), Some(trouble)) = (&gpu.facts.name, &gpu.trouble) {
            // A count of the lines is still a count of the GPUs.
            let sentence = (caller == Caller::NvidiaSmi)
                .then(|| nvidia_smi_exit::without_handle(gpu))
                .flatten();
            lines.push(
                sentence
                    .unwrap_or_else(|| format!("GPU {}: {}\n", gpu.facts.index, trouble.sentence)),
            );
            continue;
        }
        lines.push(format!(
            "GPU {}: {} (UUID: {})\n",
            gpu.facts.index,
            name(gpu),
            gpu.uuid
        ));
        let instances = snapshot
            .gpus
            .iter()
            .filter(|instance| instance.facts.parent.as_ref() == Some(&gpu.uuid));
        for (number, instance) in instances.enumerate() {
            let name = name(instance);
            let profile = name
                .rsplit_once("MIG ")
                .map_or(name.as_str(), |(_, profile)| profile);
            lines.push(format!(
                "  MIG {profile:<11} Device {number:>2}: (UUID: {})\n",
                instance.uuid
            ));
        }
    }
    lines.concat()
}
