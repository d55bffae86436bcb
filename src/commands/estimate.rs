//! `gputop estimate`: how much GPU memory a training step will need, before it runs.
//!
//! A script of the probe runs in the user's Python, calls a function that returns a model and
//! inputs, and answers in JSON.

mod gpu_names;
mod text;

use std::env;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::str::FromStr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use serde_json::json;

use super::live::probed_process::PROBE_INTERVAL;
use super::live::read_hosts::{self, HostState};
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::files::probe_files;
use crate::flags::{OutputArgs, ReadArgs, ReadOptions, values};
use crate::output::{self, Exit, TextStyle};

/// The function that is estimated, and how.
#[derive(Debug, Clone, Args)]
pub(crate) struct EstimateArgs {
    /// A file and a function in it, such as `model.py:build`. The function has no parameters, and
    /// returns `(model, inputs)`, `(model, inputs, optimizer)`, or a dict with `model`, `inputs`,
    /// `optimizer`, `loss`, `targets` and `batch`
    #[arg(value_name = "FILE:FUNCTION")]
    subject: EstimateSubject,

    /// The Python that imports the file [default: of `VIRTUAL_ENV`, else the first on the PATH]
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,

    /// Use this optimizer: `adamw`, `adam`, `sgd`, `sgd_momentum`, `rmsprop`, `adagrad` or
    /// `adafactor`, or by formula `lion` or `adamw8bit`; `none` for inference [default: the one that the function returns, or `adamw`]
    #[arg(long, value_name = "NAME", value_parser = OPTIMIZERS, hide_possible_values = true)]
    optimizer: Option<String>,

    /// Run the model and its loss in autocast of this precision: `bf16` or `fp16`
    #[arg(long, value_name = "NAME", value_parser = ["bf16", "fp16"], hide_possible_values = true)]
    precision: Option<String>,

    /// Let each repeated block of the model compute its activations again in the backward pass
    /// (`torch.utils.checkpoint`)
    #[arg(long)]
    checkpoint: bool,

    /// Run training steps on the current GPU, with the whole batch and with half of it, and measure
    /// their peaks
    #[arg(long)]
    measure: bool,

    /// Find the largest batch for a GPU with this much memory, such as `24GiB` [default: the GPUs
    /// of this host]
    #[arg(long, value_name = "AMOUNT", value_parser = values::capacity)]
    gpu_memory: Option<Bytes>,

    /// Find the largest batch for a GPU of this name, such as `RTX 4090` or `H100`; repeatable
    #[arg(long, value_name = "NAME", value_parser = gpu_names::parse)]
    gpu: Vec<GpuKind>,

    #[command(flatten)]
    read: ReadArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// A function in a file, as in `model.py:build`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EstimateSubject {
    file: PathBuf,
    function: String,
}

impl FromStr for EstimateSubject {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.rsplit_once(':') {
            Some((file, function)) if !file.is_empty() && !function.is_empty() => Ok(Self {
                file: file.into(),
                function: function.to_owned(),
            }),
            _ => Err("must be a file and a function in it, such as `model.py:build`".to_owned()),
        }
    }
}

/// The answer of the script.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum ScriptAnswer {
    Failed { error: String },
    Estimated(Box<TrainingEstimate>),
}

/// The memory of a training step.
#[derive(Debug, Clone, Deserialize)]
struct TrainingEstimate {
    bytes: EstimatedParts,
    measured: bool,
    /// The first dimension of the inputs; absent if they have none.
    batch: Option<u64>,
    /// How the peak of large batches grows with each more; absent if it is not known.
    per_sample: Option<Bytes>,
    /// For each GPU that was asked about, the largest batch that fits; absent if it is not known.
    largest_batches: Vec<Option<u64>>,
    /// The name of the optimizer; absent for inference.
    optimizer: Option<String>,
    assumptions: Vec<String>,
    /// The names of the parts that are computed from the parameters, and do not come from a step.
    #[serde(default)]
    by_formula: Vec<String>,
    torch: String,
}

/// The parts of the memory. A measurement has only the peak and the fixed part.
#[derive(Debug, Clone, Deserialize)]
struct EstimatedParts {
    parameters: Option<Bytes>,
    gradients: Option<Bytes>,
    optimizer_state: Option<Bytes>,
    buffers: Option<Bytes>,
    inputs: Option<Bytes>,
    activations: Option<Bytes>,
    /// The part that does not depend on the batch.
    fixed: Option<Bytes>,
    peak: Bytes,
}

/// GPUs of one size.
#[derive(Debug, Clone, PartialEq, Eq)]
struct GpuKind {
    name: String,
    memory: Bytes,
    count: usize,
}

/// The optimizers that an estimate knows by name.
const OPTIMIZERS: [&str; 10] = [
    "adamw",
    "adam",
    "sgd",
    "sgd_momentum",
    "rmsprop",
    "adagrad",
    "adafactor",
    "lion",
    "adamw8bit",
    "none",
];

/// The memory that CUDA takes besides PyTorch's, as the script assumes.
const CONTEXT: Bytes = Bytes(800 << 20);

/// The time that an estimate may take. Steps on the GPU may take longer.
const LIMIT: Duration = Duration::from_mins(2);

/// Prints an estimate. Fails if the standard output cannot be written.
pub(crate) fn run(args: &EstimateArgs) -> anyhow::Result<ExitCode> {
    let mut named = args.gpu.clone();
    named.extend(args.gpu_memory.map(|memory| GpuKind {
        name: "a GPU".to_owned(),
        memory,
        count: 1,
    }));
    let (gpus, why_none) = if named.is_empty() {
        match gpus_here(&args.read.this_host(Some(PROBE_INTERVAL)))? {
            Ok(gpus) => (gpus, None),
            Err(why) => (Vec::new(), Some(why)),
        }
    } else {
        (named, None)
    };
    match ask(args, &gpus) {
        Ok(estimate) if args.output.json => output::print_json(&to_json(args, &estimate, &gpus))?,
        Ok(estimate) => {
            let style = TextStyle::of_stdout(args.output.is_ascii());
            output::print(
                text::format(args, &estimate, &gpus, why_none.as_ref(), style).as_bytes(),
            )?;
        }
        Err(why) => {
            output::print_error(&why);
            return Ok(Exit::Error.into());
        }
    }
    Ok(Exit::Success.into())
}

/// Returns the GPUs of this host, or why none is known.
fn gpus_here(read: &ReadOptions) -> anyhow::Result<Result<Vec<GpuKind>, Text>> {
    let kinds = read_hosts::read_until(read, false, |hosts: &[HostState<'_>]| {
        let (_, snapshot) = hosts.first()?.seen?;
        let mut kinds: Vec<GpuKind> = Vec::new();
        for gpu in &snapshot.gpus {
            let Ok(memory) = gpu.load.memory_total else {
                continue;
            };
            let name = &gpu.facts.name;
            let name = name
                .as_ref()
                .map_or_else(|_| "GPU".to_owned(), ToString::to_string);
            match kinds
                .iter_mut()
                .find(|kind| kind.name == name && kind.memory == memory)
            {
                Some(kind) => kind.count += 1,
                None => kinds.push(GpuKind {
                    name,
                    memory,
                    count: 1,
                }),
            }
        }
        Some(kinds)
    })?;
    Ok(kinds.and_then(|kinds| {
        if kinds.is_empty() {
            Err("no GPU is found here".into())
        } else {
            Ok(kinds)
        }
    }))
}

/// Runs the script in the user's Python.
fn ask(args: &EstimateArgs, gpus: &[GpuKind]) -> Result<TrainingEstimate, Text> {
    let subject = &args.subject;
    if !subject.file.is_file() {
        return Err(Text::new(format!(
            "there is no file {}: name it as in `model.py:build`",
            subject.file.display()
        )));
    }
    let folder =
        probe_files::unpack().map_err(|why| Text::new(format!("nothing is estimated: {why}")))?;
    let python = args.python.clone().unwrap_or_else(default_python);
    let arguments = json!({
        "file": subject.file, "function": subject.function, "optimizer": args.optimizer,
        "precision": args.precision, "checkpoint": args.checkpoint, "measure": args.measure, "gpus": gpus.iter().map(|gpu| gpu.memory).collect::<Vec<_>>(),
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
    let limit = (!args.measure).then_some(LIMIT);
    let Some(line) = first_line(&mut child, limit) else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(Text::new(format!(
            "{} gave no estimate in {} seconds, and was ended: estimate a smaller model, or fewer layers of it",
            subject.function,
            LIMIT.as_secs()
        )));
    };
    let status = child.wait().map_err(cannot_run)?;
    match serde_json::from_str(&line) {
        Ok(ScriptAnswer::Estimated(estimate)) => Ok(*estimate),
        Ok(ScriptAnswer::Failed { error }) => Err(Text::new(error)),
        Err(_) => Err(Text::new(format!(
            "{} gave no estimate, and ended with {status}",
            python.display()
        ))),
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

/// Returns the first line that a child prints, or an empty one if it prints none. `None`: the limit
/// has passed.
fn first_line(child: &mut Child, limit: Option<Duration>) -> Option<String> {
    let stdout = child.stdout.take()?;
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut line = String::new();
        let _ = BufReader::new(stdout).read_line(&mut line);
        let _ = sender.send(line);
    });
    match limit {
        Some(limit) => receiver.recv_timeout(limit).ok(),
        None => receiver.recv().ok(),
    }
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

fn to_json(
    args: &EstimateArgs,
    estimate: &TrainingEstimate,
    gpus: &[GpuKind],
) -> serde_json::Value {
    let gpus: Vec<_> = gpus
        .iter()
        .zip(&estimate.largest_batches)
        .map(|(gpu, largest)| {
            json!({ "name": gpu.name, "count": gpu.count, "memory_bytes": gpu.memory, "largest_batch": largest })
        })
        .collect();
    let bytes = &estimate.bytes;
    json!({
        "file": args.subject.file, "function": args.subject.function, "torch": estimate.torch,
        "optimizer": estimate.optimizer, "measured": estimate.measured, "batch": estimate.batch,
        "parameters_bytes": bytes.parameters, "gradients_bytes": bytes.gradients,
        "optimizer_state_bytes": bytes.optimizer_state, "buffers_bytes": bytes.buffers, "inputs_bytes": bytes.inputs,
        "activations_bytes": bytes.activations, "fixed_bytes": bytes.fixed, "peak_bytes": bytes.peak,
        "total_bytes": bytes.peak + CONTEXT, "bytes_per_sample": estimate.per_sample, "gpus": gpus,
        "assumptions": estimate.assumptions, "by_formula": estimate.by_formula,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_a_file_and_a_function() {
        let subject: EstimateSubject = "a:b/model.py:build".parse().unwrap();
        assert_eq!(
            (subject.file, subject.function),
            ("a:b/model.py".into(), "build".to_owned())
        );
        for wrong in ["model.py", ":build", "model.py:", ""] {
            assert!(wrong.parse::<EstimateSubject>().is_err(), "{wrong}");
        }
    }
}
