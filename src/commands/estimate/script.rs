//! The script of the probe that estimates in the user's Python: what it is asked, and its answers.

use std::env;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::variant::{StepSharding, StepVariant};
use super::{EstimateArgs, GpuKind};
use crate::base::text::Text;
use crate::base::units::{Bytes, ExactSpan};
use crate::files::probe_files;

/// One estimate that the script makes.
#[derive(Debug, Clone)]
pub(super) struct EstimateRun<'a> {
    /// The values of parameters of the function.
    pub(super) parameters: Vec<(&'a str, u64)>,
    pub(super) variant: StepVariant,
    /// Whether only the step itself is asked for, and not how it grows with the batch.
    pub(super) is_brief: bool,
}

/// The answer to one run.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum ScriptAnswer {
    Failed { error: Text },
    Estimated(Box<TrainingEstimate>),
}

/// The memory of a training step.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct TrainingEstimate {
    pub(super) bytes: EstimatedParts,
    pub(super) measured: bool,
    /// The first dimension of the inputs; absent if they have none.
    pub(super) batch: Option<u64>,
    /// How the peak of large batches grows with each more; absent if it is not known.
    pub(super) per_sample: Option<Bytes>,
    /// For each GPU that was asked about, the largest batch that fits; absent if it is not known.
    #[serde(default)]
    pub(super) largest_batches: Vec<Option<u64>>,
    /// For each GPU that was asked about, whether the step fits.
    #[serde(default)]
    pub(super) fits: Vec<bool>,
    /// The name of the optimizer; absent for inference.
    pub(super) optimizer: Option<String>,
    pub(super) assumptions: Vec<String>,
    /// The names of the parts that are computed, and do not come from a step.
    #[serde(default)]
    pub(super) by_formula: Vec<String>,
    pub(super) torch: String,
}

/// The parts of the memory. A measurement has only the peak and the fixed part.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct EstimatedParts {
    pub(super) parameters: Option<Bytes>,
    pub(super) gradients: Option<Bytes>,
    pub(super) optimizer_state: Option<Bytes>,
    /// Parameters and gradients that are whole for a moment, where GPUs share them.
    pub(super) gathered: Option<Bytes>,
    pub(super) buffers: Option<Bytes>,
    pub(super) inputs: Option<Bytes>,
    pub(super) activations: Option<Bytes>,
    /// The part that does not depend on the batch.
    pub(super) fixed: Option<Bytes>,
    pub(super) peak: Bytes,
}

/// The answers of the script.
#[derive(Debug)]
pub(super) struct ScriptAnswers {
    /// The estimate of the first run, or in a sweep of the first that did not fail.
    pub(super) first: TrainingEstimate,
    /// The answers to the runs, in their order. The last ones may be missing.
    pub(super) all: Vec<ScriptAnswer>,
    /// Why answers are missing.
    pub(super) why_missing: Option<Text>,
}

/// The memory that CUDA takes besides PyTorch's, as the script assumes.
pub(super) const CONTEXT: Bytes = Bytes(800 << 20);

/// The time that estimates take at most, by default. Steps on the GPU may take longer.
const LIMIT: Duration = Duration::from_mins(2);

impl ScriptAnswer {
    pub(super) fn result(&self) -> Result<&TrainingEstimate, &Text> {
        match self {
            Self::Failed { error } => Err(error),
            Self::Estimated(estimate) => Ok(estimate),
        }
    }
}

impl TrainingEstimate {
    /// The peak, and what CUDA takes.
    pub(super) fn total(&self) -> Bytes {
        self.bytes.peak + CONTEXT
    }

    pub(super) fn is_by_formula(&self, part: &str) -> bool {
        self.by_formula.iter().any(|name| name == part)
    }

    /// Returns the names of the GPUs that the step fits.
    pub(super) fn fitting<'a>(&self, gpus: &'a [GpuKind]) -> Vec<&'a str> {
        gpus.iter()
            .zip(&self.fits)
            .filter_map(|(gpu, fits)| fits.then_some(gpu.name.as_str()))
            .collect()
    }
}

/// Runs the script in the user's Python. Returns why the first run has no estimate, if so.
pub(super) fn ask(
    args: &EstimateArgs,
    gpus: &[GpuKind],
    runs: &[EstimateRun<'_>],
) -> Result<ScriptAnswers, Text> {
    let folder =
        probe_files::unpack().map_err(|why| Text::new(format!("nothing is estimated: {why}")))?;
    let python = args.python.clone().unwrap_or_else(default_python);
    let arguments = json!({
        "file": args.subject.file, "function": args.subject.function, "measure": args.measure,
        "gpus": gpus.iter().map(|gpu| gpu.memory).collect::<Vec<_>>(),
        "runs": runs.iter().map(EstimateRun::to_json).collect::<Vec<_>>(),
    });
    let mut command = Command::new(&python);
    command
        .arg(folder.join("estimate_command.py"))
        .arg(arguments.to_string())
        .stdout(Stdio::piped());
    if !args.measure {
        hide_gpus(&mut command, &folder);
    }
    let cannot_run = |error: io::Error| {
        Text::new(format!(
            "cannot run {}: {error}: name the Python of your environment with --python",
            python.display()
        ))
    };
    let mut child = command.spawn().map_err(cannot_run)?;
    let limit = args.time_limit.or((!args.measure).then_some(LIMIT));
    let (all, is_late) = answers(&mut child, runs.len(), limit);
    if is_late {
        let _ = child.kill();
    }
    let status = child.wait().map_err(cannot_run)?;
    let limit = ExactSpan(limit.unwrap_or_default());
    let why_missing = (all.len() < runs.len()).then(|| {
        Text::new(if is_late {
            format!("the time of {limit} was over: --time-limit gives more")
        } else {
            format!("{} ended with {status}", python.display())
        })
    });
    let count = if args.sweep.is_some() { all.len() } else { 1 };
    let first = all
        .iter()
        .take(count)
        .find_map(|answer| answer.result().ok());
    let first = match (first, all.first()) {
        (Some(estimate), _) => estimate.clone(),
        (None, Some(ScriptAnswer::Failed { error })) => return Err(error.clone()),
        (None, _) => {
            return Err(Text::new(if is_late {
                format!(
                    "{} gave no estimate in {limit}, and was ended: estimate a smaller model, or fewer layers of it, or give it more time with --time-limit",
                    args.subject
                )
            } else {
                format!(
                    "{} gave no estimate, and ended with {status}",
                    python.display()
                )
            }));
        }
    };
    Ok(ScriptAnswers {
        first,
        all,
        why_missing,
    })
}

impl EstimateRun<'_> {
    fn to_json(&self) -> Value {
        let variant = &self.variant;
        let parameters: serde_json::Map<String, Value> = self
            .parameters
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).into()))
            .collect();
        json!({
            "parameters": parameters, "is_brief": self.is_brief, "optimizer": variant.optimizer,
            "precision": variant.precision, "checkpoint": variant.checkpoint, "lora": variant.lora,
            "sharding": variant.sharding.map(StepSharding::to_json),
        })
    }
}

/// Keeps a Python from the GPUs of this host: CUDA finds none, and no driver that would open one.
fn hide_gpus(command: &mut Command, folder: &Path) {
    let mut paths = folder.join("no_driver").into_os_string();
    if let Some(inherited) = env::var_os("LD_LIBRARY_PATH").filter(|paths| !paths.is_empty()) {
        paths.push(":");
        paths.push(inherited);
    }
    command
        .env("LD_LIBRARY_PATH", paths)
        .env("CUDA_VISIBLE_DEVICES", "");
}

/// Returns the answers that a child prints, at most `count`, and whether the limit has passed before.
fn answers(child: &mut Child, count: usize, limit: Option<Duration>) -> (Vec<ScriptAnswer>, bool) {
    let mut answers = Vec::new();
    let Some(stdout) = child.stdout.take() else {
        return (answers, false);
    };
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let Ok(answer) = serde_json::from_str(&line) else {
                break;
            };
            if sender.send(answer).is_err() {
                break;
            }
        }
    });
    while answers.len() < count {
        let next = match deadline {
            Some(deadline) => {
                receiver.recv_timeout(deadline.saturating_duration_since(Instant::now()))
            }
            None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match next {
            Ok(answer) => answers.push(answer),
            Err(error) => return (answers, error == RecvTimeoutError::Timeout),
        }
    }
    (answers, false)
}

/// Returns the Python of the active virtual environment, or else the first one on the PATH.
fn default_python() -> PathBuf {
    if let Some(environment) = env::var_os("VIRTUAL_ENV").filter(|folder| !folder.is_empty()) {
        return PathBuf::from(environment).join("bin/python");
    }
    let path = env::var_os("PATH");
    let is_there = |name: &str| {
        path.iter()
            .flat_map(env::split_paths)
            .any(|folder| folder.join(name).is_file())
    };
    if is_there("python3") || !is_there("python") {
        "python3".into()
    } else {
        "python".into()
    }
}
