//! `gputop estimate`: how much GPU memory a training step will need, before it runs.
//!
//! A script of the probe runs in the user's Python, calls a function that returns a model and
//! inputs, and answers in JSON.

mod gpu_names;
mod savings;
mod script;
mod sweep;
mod text;
mod variant;

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use self::script::ScriptAnswers;
use self::sweep::Sweep;
use self::variant::StepVariant;
use super::live::probed_process::PROBE_INTERVAL;
use super::live::read_hosts::{self, HostState};
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::flags::{OutputArgs, ReadArgs, ReadOptions, values};
use crate::output::{self, Exit, TextStyle};

/// The function that is estimated, and how.
#[derive(Debug, Clone, Args)]
pub(crate) struct EstimateArgs {
    /// A file and a function in it, such as `model.py:build`, or `hf:config.json`, a configuration
    /// of Hugging Face. The function needs no arguments, and returns `(model, inputs)`, `(model,
    /// inputs, optimizer)`, or a dict with `model`, `inputs`, `optimizer`, `loss`, `targets` and
    /// `batch`
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

    /// Freeze the model, and train adapters of this rank beside its linear layers (LoRA), as in
    /// `r=16`
    #[arg(long, value_name = "r=RANK", value_parser = variant::rank)]
    lora: Option<u32>,

    /// Shard parameters, gradients and optimizer state over this many GPUs, as FSDP of PyTorch
    /// does: by formula
    #[arg(long, value_name = "GPUS", value_parser = variant::several_gpus, conflicts_with_all = ["zero", "measure"])]
    fsdp: Option<u32>,

    /// Shard them over `--gpus` GPUs, as this stage of ZeRO does: by formula
    #[arg(long, value_name = "STAGE", value_parser = clap::value_parser!(u8).range(1..=3), requires = "gpus", conflicts_with = "measure")]
    zero: Option<u8>,

    /// The number of GPUs of `--zero`
    #[arg(long, value_name = "COUNT", value_parser = variant::several_gpus, requires = "zero")]
    gpus: Option<u32>,

    /// Estimate with several values of one or two parameters of the function: the ends, and the
    /// powers of two between them, as in `batch=1..64,length=512..4096`
    #[arg(long, value_name = "NAME=FIRST..LAST,…", conflicts_with = "measure")]
    sweep: Option<Sweep>,

    /// End the estimate after this time [default: 2m, and never with `--measure`]
    #[arg(long, value_name = "TIME", value_parser = values::positive_span)]
    time_limit: Option<Duration>,

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

/// The model that is estimated: a function in a file, as in `model.py:build`, or a file with a
/// configuration, as in `hf:config.json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EstimateSubject {
    file: PathBuf,
    /// Absent for a configuration.
    function: Option<String>,
}

impl FromStr for EstimateSubject {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text.strip_prefix("hf:"), text.rsplit_once(':')) {
            (Some(file), _) if !file.is_empty() => Ok(Self {
                file: file.into(),
                function: None,
            }),
            (None, Some((file, function))) if !file.is_empty() && !function.is_empty() => Ok(Self {
                file: file.into(),
                function: Some(function.to_owned()),
            }),
            _ => Err("must be a file and a function in it, such as `model.py:build`, or `hf:config.json`".to_owned()),
        }
    }
}

impl fmt::Display for EstimateSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.function {
            Some(function) => f.write_str(function),
            None => self.file.display().fmt(f),
        }
    }
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

impl GpuKind {
    fn label(&self) -> String {
        if self.count > 1 {
            format!("{} × {}", self.count, self.name)
        } else {
            self.name.clone()
        }
    }
}

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
    let (subject, variant) = (&args.subject, StepVariant::of(args));
    let runs = match &args.sweep {
        Some(sweep) => sweep.runs(&variant),
        None if args.measure => savings::runs(&variant).into_iter().take(1).collect(),
        None => savings::runs(&variant),
    };
    let answers = if subject.file.is_file() {
        script::ask(args, &gpus, &runs)
    } else {
        Err(Text::new(format!(
            "there is no file {}: name it as in `model.py:build` or `hf:config.json`",
            subject.file.display()
        )))
    };
    match answers {
        Ok(answers) if args.output.json => {
            output::print_json(&to_json(args, &variant, &answers, &gpus))?;
        }
        Ok(answers) => {
            let style = TextStyle::of_stdout(args.output.is_ascii());
            let text = text::format(args, &variant, &answers, &gpus, why_none.as_ref(), style);
            output::print(text.as_bytes())?;
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

fn to_json(
    args: &EstimateArgs,
    variant: &StepVariant,
    answers: &ScriptAnswers,
    gpus: &[GpuKind],
) -> Value {
    let estimate = &answers.first;
    let mut found = json!({
        "file": args.subject.file, "function": args.subject.function, "torch": estimate.torch,
        "optimizer": estimate.optimizer, "measured": estimate.measured,
        "assumptions": estimate.assumptions, "by_formula": estimate.by_formula,
    });
    let kinds = gpus
        .iter()
        .map(|gpu| json!({ "name": gpu.name, "count": gpu.count, "memory_bytes": gpu.memory }));
    let mut kinds: Vec<Value> = kinds.collect();
    if let Some(sweep) = &args.sweep {
        found["sweep"] = sweep.to_json(answers, gpus);
    } else {
        for (kind, largest) in kinds.iter_mut().zip(&estimate.largest_batches) {
            kind["largest_batch"] = json!(largest);
        }
        let bytes = &estimate.bytes;
        for (name, value) in [
            ("batch", json!(estimate.batch)),
            ("parameters_bytes", json!(bytes.parameters)),
            ("gradients_bytes", json!(bytes.gradients)),
            ("optimizer_state_bytes", json!(bytes.optimizer_state)),
            ("gathered_bytes", json!(bytes.gathered)),
            ("buffers_bytes", json!(bytes.buffers)),
            ("inputs_bytes", json!(bytes.inputs)),
            ("activations_bytes", json!(bytes.activations)),
            ("fixed_bytes", json!(bytes.fixed)),
            ("peak_bytes", json!(bytes.peak)),
            ("total_bytes", json!(estimate.total())),
            ("bytes_per_sample", json!(estimate.per_sample)),
        ] {
            found[name] = value;
        }
        let rows = savings::rows(variant, answers);
        found["savings"] = rows.iter().map(|row| row.to_json(gpus)).collect();
    }
    found["gpus"] = kinds.into();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_a_file_and_a_function() {
        let subject: EstimateSubject = "a:b/model.py:build".parse().unwrap();
        assert_eq!(
            (subject.file, subject.function),
            ("a:b/model.py".into(), Some("build".to_owned()))
        );
        let subject: EstimateSubject = "hf:models/config.json".parse().unwrap();
        assert_eq!(
            (subject.file, subject.function),
            ("models/config.json".into(), None)
        );
        for wrong in ["model.py", ":build", "model.py:", "", "hf:"] {
            assert!(wrong.parse::<EstimateSubject>().is_err(), "{wrong}");
        }
    }
}
