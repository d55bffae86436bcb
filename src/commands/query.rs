//! nvidia-smi's questions, answered in its words: `--query-gpu`, `--query-compute-apps`, `-L`. So scripts need no change.
//!
//! Names, order, units, spacing and what stands for a missing value are those of nvidia-smi 590. It never calls
//! nvidia-smi: an agent reads the driver.

mod apps;
mod cell;
mod csv;
mod gpu;

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;

use self::cell::Cell;
use crate::base::text::Text;
use crate::cli::{AgentArgs, Cli, QueryArgs, SHORTEST_INTERVAL};
use crate::commands::report::{self, Exit};
use crate::protocol::snapshot::{Gpu, Missing, Snapshot};

/// Whether the command line asks one of these questions.
pub fn is_asked(cli: &Cli) -> bool {
    let query = &cli.query;
    query.gpu.is_some()
        || query.query_compute_apps.is_some()
        || query.list
        || query.csv
        || query.help_gpu
        || query.help_compute_apps
        || !query.id.is_empty()
        || !query.format.is_empty()
        || query.filename.is_some()
}

/// Answers once, or again and again.
///
/// # Errors
///
/// When no agent can be started, or when nobody reads the answer.
pub fn run(cli: &Cli) -> anyhow::Result<ExitCode> {
    let query = &cli.query;
    if query.help_gpu || query.help_compute_apps {
        let help = if query.help_gpu { gpu::help() } else { apps::help() };
        report::put(help.as_bytes())?;
        return Ok(Exit::Success.into());
    }
    let question = match Question::of(query) {
        Ok(question) => question,
        Err(sentence) => {
            report::complain(&Text::new(sentence));
            return Ok(Exit::Usage.into());
        }
    };
    let args = AgentArgs {
        interval: cli.every.unwrap_or(Duration::ZERO).max(SHORTEST_INTERVAL),
        detail: matches!(question, Question::Gpus(_) | Question::Apps(_)),
        ..cli.agent.clone()
    };
    let mut out = Out { path: query.filename.as_deref(), file: None };
    let mut is_first = true;
    let mut waited = 0;
    // When the last answer was. The first pass of an agent is soon followed by another, for rates.
    let mut last = None;
    let soon = cli.every.unwrap_or(Duration::ZERO) / 2;
    // Named that is not here: said once, and what is here is answered.
    let mut absent = Vec::new();
    let answered = report::follow(&args, cli.timeout, false, |model| {
        let snapshot = model.latest()?;
        if last.is_some_and(|last| snapshot.at.since(last) < soon) {
            return None;
        }
        waited += 1;
        // What runs is read aside, and comes a moment later.
        if matches!(question, Question::Apps(_)) && apps::is_early(snapshot) && waited < PASSES {
            return None;
        }
        let gpus = chosen(snapshot, &query.id);
        let exit = exit(snapshot, &gpus);
        if let (Exit::NoDriver | Exit::NoGpu | Exit::Nothing, None) = (exit, cli.every) {
            return Some(Err(excuse(exit, snapshot, query)));
        }
        if is_first {
            let is_here =
                |id: &&String| snapshot.gpus.iter().any(|gpu| gpu.facts.parent.is_none() && is_it(gpu, id.trim()));
            absent = query.id.iter().filter(|id| !is_here(id)).cloned().collect();
            if !absent.is_empty() {
                report::complain(&Text::new(format!("no such GPU here: {}", absent.join(","))));
            }
        }
        let text = question.answer(snapshot, &gpus, query, is_first);
        (is_first, waited, last) = (false, 0, Some(snapshot.at));
        match out.put(&text) {
            Ok(()) if cli.every.is_some() => None,
            Ok(()) => Some(Ok(Ok(exit))),
            Err(closed) => Some(Ok(Err(closed))),
        }
    })?;
    match answered {
        Ok(Ok(exit)) => Ok(match exit? {
            Exit::Success if !absent.is_empty() => Exit::Nothing,
            exit => exit,
        }
        .into()),
        Ok(Err((exit, reason))) => {
            report::complain(&reason);
            Ok(exit.into())
        }
        Err(reason) => {
            report::complain(&reason);
            Ok(Exit::Partial.into())
        }
    }
}

/// Where answers go.
struct Out<'a> {
    /// The file that the person named.
    path: Option<&'a Path>,
    /// Opened with the first answer: until there is one, what stands in it stays.
    file: Option<File>,
}

impl Out<'_> {
    fn put(&mut self, text: &str) -> anyhow::Result<()> {
        let Some(path) = self.path else {
            let mut out = io::stdout();
            return Ok(out.write_all(text.as_bytes()).and_then(|()| out.flush())?);
        };
        let cannot = || format!("cannot write {}", path.display());
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(File::create(path).with_context(cannot)?),
        };
        file.write_all(text.as_bytes()).with_context(cannot)
    }
}

/// Why there is nobody to ask.
fn excuse(exit: Exit, snapshot: &Snapshot, query: &QueryArgs) -> (Exit, Text) {
    let reason = match (&snapshot.driver.trouble, exit) {
        (Some(trouble), _) => trouble.sentence.clone(),
        (None, Exit::Nothing) => Text::new(format!("no such GPU here: {}", query.id.join(","))),
        (None, _) => Text::new("the driver knows of no GPU"),
    };
    (exit, reason)
}

/// Passes that an answer may wait for what is read aside.
const PASSES: u32 = 10;

enum Question {
    Gpus(Vec<gpu::Field>),
    Apps(Vec<apps::Field>),
    List,
    Csv,
}

impl Question {
    fn of(query: &QueryArgs) -> Result<Self, String> {
        let known = ["csv", "noheader", "nounits"];
        if let Some(other) = query.format.iter().find(|it| !known.contains(&it.trim())) {
            return Err(format!("`{other}` is no format; these are: csv, noheader, nounits"));
        }
        match (&query.gpu, &query.query_compute_apps) {
            (Some(names), _) => gpu::fields(names).map(Self::Gpus).map_err(|it| unknown(&it, "gpu")),
            (None, Some(names)) => apps::fields(names).map(Self::Apps).map_err(|it| unknown(&it, "compute-apps")),
            (None, None) if query.csv => Ok(Self::Csv),
            (None, None) if query.list => Ok(Self::List),
            (None, None) => {
                Err("-i, -f and --format go with --query-gpu, --query-compute-apps, -L or --csv".to_owned())
            }
        }
    }

    fn answer(&self, snapshot: &Snapshot, gpus: &[&Gpu], query: &QueryArgs, is_first: bool) -> String {
        let has = |word: &str| query.format.iter().any(|it| it.trim() == word);
        let (header, units) = (is_first && !has("noheader"), !has("nounits"));
        let rows = match self {
            Self::Gpus(fields) => {
                let head = fields.iter().map(gpu::Field::head).collect();
                let row = |gpu: &&Gpu| fields.iter().map(|it| it.cell(snapshot, gpu)).collect();
                (head, gpus.iter().map(row).collect())
            }
            Self::Apps(fields) => (fields.iter().map(apps::Field::head).collect(), apps::rows(fields, snapshot, gpus)),
            Self::List => return list(snapshot, gpus),
            Self::Csv => return csv::table(snapshot, gpus, is_first),
        };
        table(header, units, rows)
    }
}

fn unknown(name: &str, of: &str) -> String {
    format!("Field \"{name}\" is not a valid field to query; see gputop --help-query-{of}")
}

/// Values and heads are parted by a comma and a space.
fn table(header: bool, units: bool, (head, rows): (Vec<String>, Vec<Vec<Cell>>)) -> String {
    let mut text = String::new();
    if header {
        text.push_str(&head.join(", "));
        text.push('\n');
    }
    for row in rows {
        let cells: Vec<String> = row.iter().map(|it| it.text(units)).collect();
        text.push_str(&cells.join(", "));
        text.push('\n');
    }
    text
}

/// The whole GPUs that are asked for; all of them when none is named.
fn chosen<'a>(snapshot: &'a Snapshot, ids: &[String]) -> Vec<&'a Gpu> {
    let gpus = snapshot.gpus.iter().filter(|it| it.facts.parent.is_none());
    gpus.filter(|gpu| ids.is_empty() || ids.iter().any(|id| is_it(gpu, id.trim()))).collect()
}

/// Whether that is its index, its UUID, or where it sits on the bus.
fn is_it(gpu: &Gpu, id: &str) -> bool {
    let bus = gpu.facts.bus_id.as_ref().is_ok_and(|bus| {
        let (bus, id) = (bus.as_str().to_lowercase(), id.to_lowercase());
        // People leave the domain out.
        bus == id || bus.ends_with(&format!(":{id}")) || bus.trim_start_matches('0') == id.trim_start_matches('0')
    });
    gpu.facts.index.to_string() == id || gpu.uuid.0.as_str() == id || bus
}

fn exit(snapshot: &Snapshot, gpus: &[&Gpu]) -> Exit {
    match Exit::of(snapshot, true) {
        none @ (Exit::NoDriver | Exit::NoGpu) => none,
        _ if gpus.is_empty() => Exit::Nothing,
        _ if gpus.iter().any(|it| it.trouble.is_some()) => Exit::Partial,
        // What else failed was not asked, or stands in its place.
        _ => Exit::Success,
    }
}

/// `GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-…)`, and its instances below it.
fn list(snapshot: &Snapshot, gpus: &[&Gpu]) -> String {
    let mut text = String::new();
    let name = |gpu: &Gpu| gpu.facts.name.as_ref().map_or_else(Missing::to_string, Text::to_string);
    for gpu in gpus {
        let _infallible: std::fmt::Result =
            writeln!(text, "GPU {}: {} (UUID: {})", gpu.facts.index, name(gpu), gpu.uuid);
        let parts = snapshot.gpus.iter().filter(|it| it.facts.parent.as_ref() == Some(&gpu.uuid));
        for (number, part) in parts.enumerate() {
            let name = name(part);
            let profile = name.rsplit_once("MIG ").map_or(name.as_str(), |(_, profile)| profile);
            let _infallible: std::fmt::Result =
                writeln!(text, "  MIG {profile:<11} Device {number:>2}: (UUID: {})", part.uuid);
        }
    }
    text
}
