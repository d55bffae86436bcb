//! The flags that change the memory of a training step.

use serde_json::{Value, json};

use super::EstimateArgs;

/// A training step as some flags change it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct StepVariant {
    pub(super) optimizer: Option<String>,
    pub(super) precision: Option<String>,
    pub(super) checkpoint: bool,
    /// The rank of the adapters.
    pub(super) lora: Option<u32>,
    pub(super) sharding: Option<StepSharding>,
}

/// How several GPUs share a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepSharding {
    Fsdp { gpus: u32 },
    Zero { stage: u8, gpus: u32 },
}

impl StepSharding {
    pub(super) fn to_json(self) -> Value {
        match self {
            Self::Fsdp { gpus } => json!(["fsdp", gpus]),
            Self::Zero { stage, gpus } => json!(["zero", gpus, stage]),
        }
    }
}

impl StepVariant {
    pub(super) fn of(args: &EstimateArgs) -> Self {
        let fsdp = args.fsdp.map(|gpus| StepSharding::Fsdp { gpus });
        let zero = args.zero.zip(args.gpus);
        Self {
            optimizer: args.optimizer.clone(),
            precision: args.precision.clone(),
            checkpoint: args.checkpoint,
            lora: args.lora,
            sharding: fsdp.or(zero.map(|(stage, gpus)| StepSharding::Zero { stage, gpus })),
        }
    }

    /// Returns each flag as it is written, and the step that it alone makes.
    pub(super) fn each_alone(&self) -> Vec<(String, Self)> {
        let none = Self::default();
        let mut found = Vec::new();
        if let Some(optimizer) = self.optimizer.clone() {
            let flag = format!("--optimizer {optimizer}");
            let optimizer = Some(optimizer);
            found.push((
                flag,
                Self {
                    optimizer,
                    ..none.clone()
                },
            ));
        }
        if let Some(precision) = self.precision.clone() {
            let flag = format!("--precision {precision}");
            let precision = Some(precision);
            found.push((
                flag,
                Self {
                    precision,
                    ..none.clone()
                },
            ));
        }
        if self.checkpoint {
            let checkpoint = true;
            found.push((
                "--checkpoint".to_owned(),
                Self {
                    checkpoint,
                    ..none.clone()
                },
            ));
        }
        if let Some(rank) = self.lora {
            let lora = Some(rank);
            found.push((
                format!("--lora r={rank}"),
                Self {
                    lora,
                    ..none.clone()
                },
            ));
        }
        if let Some(sharding) = self.sharding {
            let flag = match sharding {
                StepSharding::Fsdp { gpus } => format!("--fsdp {gpus}"),
                StepSharding::Zero { stage, gpus } => format!("--zero {stage} --gpus {gpus}"),
            };
            let sharding = Some(sharding);
            found.push((flag, Self { sharding, ..none }));
        }
        found
    }
}

/// Parses the rank of `--lora`.
pub(super) fn rank(text: &str) -> Result<u32, String> {
    match text.strip_prefix("r=").unwrap_or(text).parse() {
        Ok(rank @ 1..=65536) => Ok(rank),
        _ => Err("must be the rank of the adapters, such as `r=16`".to_owned()),
    }
}

/// Parses a number of GPUs that share a step.
pub(super) fn several_gpus(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(count @ 2..=65536) => Ok(count),
        _ => Err("must be a number of GPUs from 2".to_owned()),
    }
}
