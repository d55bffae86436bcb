//! Advice on leaks and failed allocations: texts from `assets/advice`, most likely first.
//!
//! Memory alone seldom shows the cause. Where it does not, there are several texts, each of which
//! says so. The first line of each is its title; indented lines are code.

/// Why an allocation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::Display)]
pub(crate) enum Shortage {
    /// The request is larger than the whole GPU.
    #[strum(to_string = "too big")]
    TooBig,
    /// This process holds so much that the request does not fit beside it.
    #[strum(to_string = "full")]
    Full,
    /// The memory is free, but not in one piece.
    #[strum(to_string = "fragmentation")]
    Fragmentation,
    /// Much of this process's memory is outside PyTorch.
    #[strum(to_string = "memory outside PyTorch")]
    OutsidePytorch,
    /// Other processes hold the memory.
    #[strum(to_string = "someone else")]
    SomeoneElse,
    /// The process has reached its own limit, whatever is free.
    #[strum(to_string = "a fraction limit")]
    Limit,
    /// The driver refused though memory was free.
    #[strum(to_string = "refused")]
    Refused,
    /// The driver had no memory at first. PyTorch freed its cache and tried again.
    #[strum(to_string = "no failure")]
    Retried,
    /// The requested size is impossible: more than 1 EB.
    #[strum(to_string = "no real size")]
    Absurd,
    /// The error message does not contain enough.
    #[strum(to_string = "not said")]
    Unsaid,
}

impl Shortage {
    /// The name in JSON; never changes.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::TooBig => "too_big",
            Self::Full => "full",
            Self::OutsidePytorch => "outside_pytorch",
            Self::Fragmentation => "fragmentation",
            Self::SomeoneElse => "someone_else",
            Self::Limit => "limit",
            Self::Refused => "refused",
            Self::Retried => "retried",
            Self::Absurd => "absurd",
            Self::Unsaid => "unsaid",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GrowthPattern {
    Steady,
    /// In steps far apart, like one per epoch.
    Steps,
    Accelerating,
    /// In some phases only, without release: most likely evaluation.
    InPhases,
    /// The memory of tensors: references to them are kept.
    Tensors,
    /// The allocator's reserve, without the memory of tensors.
    Cache,
    /// The process's memory outside PyTorch.
    NotPyTorch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advice {
    /// The name in JSON: the file name without `.txt`.
    pub name: &'static str,
    text: &'static str,
}

impl Advice {
    pub fn title(&self) -> &'static str {
        self.text
            .split_once('\n')
            .map_or(self.text, |(title, _)| title)
    }

    /// The paragraphs after the title, each on one line, to be wrapped to the page. An indented
    /// line is code, which is not wrapped.
    pub fn paragraphs(&self) -> Vec<String> {
        let mut paragraphs: Vec<String> = Vec::new();
        let is_code = |line: &str| line.starts_with(' ');
        for line in self.text.lines().skip(1) {
            match paragraphs.last_mut() {
                Some(last) if !is_code(last) && !is_code(line) => {
                    last.push(' ');
                    last.push_str(line);
                }
                _ => paragraphs.push(line.to_owned()),
            }
        }
        paragraphs
    }
}

/// Texts on known errors, which the errors name.
macro_rules! error_texts {
    ($($name:literal,)+) => {
        const ERROR_TEXTS: &[Advice] =
            &[$(Advice { name: $name, text: include_str!(concat!("../../assets/advice/", $name, ".txt")) }),+];
    };
}

error_texts! {
    "batch-size-search",
    "container-memory",
    "cublas",
    "cuda-jl",
    "cudnn",
    "cupy",
    "driver-out-of-memory",
    "gaudi",
    "host-allocator",
    "host-memory",
    "job-memory",
    "jvm-heap",
    "killed",
    "llama-cpp",
    "metal",
    "mps",
    "nccl",
    "notebook-memory",
    "nvml-assert",
    "ollama",
    "onnx-runtime",
    "open-files",
    "pinned-memory",
    "program-comfyui",
    "program-deepspeed",
    "program-lightning",
    "program-transformers",
    "program-vllm",
    "program-webui",
    "ray-memory",
    "rmm",
    "sglang-memory",
    "shared-memory",
    "slurm-memory",
    "tensorflow",
    "tensorrt",
    "tensorrt-llm",
    "triton-shared-memory",
    "vllm-cache",
    "vllm-startup",
    "vllm-warmup",
    "worker-killed",
    "xid-hardware",
    "xid-program",
    "xla",
    "xla-tpu",
}

/// Returns the texts with these names, for a known error.
pub(crate) fn on_error(names: &[&str]) -> Vec<Advice> {
    let all = || ERROR_TEXTS.iter().chain(std::iter::once(&UNSAID));
    names
        .iter()
        .filter_map(|name| all().find(|advice| advice.name == *name))
        .copied()
        .collect()
}

macro_rules! texts {
    ($($constant:ident = $name:literal,)+) => {
        $(const $constant: Advice =
            Advice { name: $name, text: include_str!(concat!("../../assets/advice/", $name, ".txt")) };)+
        #[cfg(test)]
        const ALL: &[Advice] = &[$($constant),+];
    };
}

texts! {
    ABSURD = "absurd",
    CACHE = "cache",
    CHANGING_SIZES = "changing-sizes",
    EPOCH_END = "epoch-end",
    EVALUATION_GRAD = "evaluation-grad",
    FRAGMENTATION = "fragmentation",
    FRAGMENTATION_HIP = "fragmentation-hip",
    FRAGMENTATION_NPU = "fragmentation-npu",
    FRAGMENTATION_OLD = "fragmentation-old",
    FRAGMENTATION_SPLIT_SIZE = "fragmentation-split-size",
    FRAGMENTATION_XPU = "fragmentation-xpu",
    GREW = "grew",
    KEPT_TENSORS = "kept-tensors",
    LAST_OUTPUT = "last-output",
    LIMIT = "limit",
    LONG_SEQUENCE = "long-sequence",
    LOSS_HISTORY = "loss-history",
    NOT_PYTORCH = "not-pytorch",
    OUTSIDE_PYTORCH = "outside-pytorch",
    REFUSED = "refused",
    RETRIED = "retried",
    SOMEONE_ELSE = "someone-else",
    TOO_BIG = "too-big",
    UNSAID = "unsaid",
    WARM_UP = "warm-up",
}

/// The options against fragmentation that a version of PyTorch has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AllocatorOptions {
    /// `expandable_segments`: PyTorch 2.1 and later, on CUDA.
    ExpandableSegments,
    /// `max_split_size_mb`: PyTorch 1.10 to 2.0.
    SplitSize,
    /// None: PyTorch before 1.10.
    None,
    /// PyTorch on GPUs of AMD.
    Hip,
    /// PyTorch on GPUs of Intel.
    Xpu,
    /// PyTorch on NPUs of Huawei.
    Npu,
}

impl AllocatorOptions {
    fn advice(self) -> Advice {
        match self {
            Self::ExpandableSegments => FRAGMENTATION,
            Self::SplitSize => FRAGMENTATION_SPLIT_SIZE,
            Self::None => FRAGMENTATION_OLD,
            Self::Hip => FRAGMENTATION_HIP,
            Self::Xpu => FRAGMENTATION_XPU,
            Self::Npu => FRAGMENTATION_NPU,
        }
    }
}

/// Returns advice on a failed allocation, for these reasons, main reason first. If the program does
/// not train, advice on training is left out.
pub(crate) fn on_shortage(
    reasons: &[Shortage],
    options: AllocatorOptions,
    may_train: bool,
) -> Vec<Advice> {
    let mut texts = Vec::new();
    for reason in reasons {
        let next: &[Advice] = match reason {
            Shortage::TooBig => &[TOO_BIG],
            Shortage::Full => &[TOO_BIG, GREW],
            // On a GPU that is full, the cache in pieces is too small for an option to help.
            Shortage::Fragmentation if reasons.first() == Some(&Shortage::Full) => &[],
            Shortage::Fragmentation => &[options.advice(), CHANGING_SIZES],
            Shortage::OutsidePytorch => &[OUTSIDE_PYTORCH],
            Shortage::SomeoneElse => &[SOMEONE_ELSE],
            Shortage::Limit => &[LIMIT],
            Shortage::Refused => &[REFUSED],
            Shortage::Retried => &[RETRIED],
            Shortage::Absurd => &[ABSURD],
            Shortage::Unsaid => &[UNSAID],
        };
        add(&mut texts, next);
    }
    let is_on_training = |advice: &Advice| [TOO_BIG, GREW, CHANGING_SIZES].contains(advice);
    texts.retain(|advice| may_train || !is_on_training(advice));
    texts
}

/// Returns advice on growing memory, for these patterns, most certain first.
pub(crate) fn on_growth(patterns: &[GrowthPattern]) -> Vec<Advice> {
    let mut texts = Vec::new();
    for pattern in patterns {
        add(
            &mut texts,
            match pattern {
                GrowthPattern::Steady => &[LOSS_HISTORY, KEPT_TENSORS, NOT_PYTORCH, CACHE],
                GrowthPattern::Steps => &[EPOCH_END, EVALUATION_GRAD, LOSS_HISTORY],
                // Each training step takes more than the one before: its graph contains those of
                // earlier steps.
                GrowthPattern::Accelerating => &[LONG_SEQUENCE, LOSS_HISTORY, CACHE],
                GrowthPattern::InPhases => &[EVALUATION_GRAD, KEPT_TENSORS, LAST_OUTPUT],
                GrowthPattern::Tensors => {
                    &[LOSS_HISTORY, KEPT_TENSORS, EVALUATION_GRAD, LAST_OUTPUT]
                }
                GrowthPattern::Cache => &[CACHE, FRAGMENTATION],
                GrowthPattern::NotPyTorch => &[NOT_PYTORCH],
            },
        );
    }
    if !texts.is_empty() {
        texts.push(WARM_UP);
    }
    texts
}

fn add(texts: &mut Vec<Advice>, next: &[Advice]) {
    for advice in next {
        if !texts.contains(advice) {
            texts.push(*advice);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_short_plain_and_has_a_title() {
        for advice in ALL.iter().chain(ERROR_TEXTS) {
            let text = advice.text;
            assert!(text.is_ascii() && text.ends_with('\n'), "{}", advice.name);
            assert!((3..=8).contains(&text.lines().count()), "{}", advice.name);
            assert!(
                text.lines()
                    .all(|line| !line.trim().is_empty() && line.len() <= 130),
                "{}",
                advice.name
            );
            // With its indentation, code fits 80 columns.
            assert!(
                text.lines()
                    .all(|line| !line.starts_with(' ') || line.len() <= 77),
                "{}",
                advice.name
            );
            assert!(
                !advice.title().starts_with(' ') && advice.title().len() <= 70,
                "{}",
                advice.name
            );
        }
    }

    #[track_caller]
    fn check(texts: &[Advice], expected: &[&str]) {
        assert_eq!(
            texts.iter().map(|advice| advice.name).collect::<Vec<_>>(),
            expected
        );
    }

    #[test]
    fn the_most_likely_text_comes_first_and_none_twice() {
        let newest = AllocatorOptions::ExpandableSegments;
        check(
            &on_shortage(
                &[Shortage::Fragmentation, Shortage::SomeoneElse],
                newest,
                true,
            ),
            &["fragmentation", "changing-sizes", "someone-else"],
        );
        check(
            &on_shortage(&[Shortage::Full, Shortage::TooBig], newest, true),
            &["too-big", "grew"],
        );
        check(
            &on_shortage(&[Shortage::Full, Shortage::Fragmentation], newest, true),
            &["too-big", "grew"],
        );
        let serves = |reasons: &[Shortage]| on_shortage(reasons, AllocatorOptions::Hip, false);
        check(
            &serves(&[Shortage::Fragmentation, Shortage::Full]),
            &["fragmentation-hip"],
        );
        check(
            &serves(&[Shortage::Full, Shortage::SomeoneElse]),
            &["someone-else"],
        );
        check(&on_shortage(&[], newest, true), &[]);
        check(
            &on_growth(&[GrowthPattern::Cache, GrowthPattern::Steady]),
            &[
                "cache",
                "fragmentation",
                "loss-history",
                "kept-tensors",
                "not-pytorch",
                "warm-up",
            ],
        );
        check(&on_growth(&[]), &[]);
    }

    #[test]
    fn every_text_is_used() {
        use AllocatorOptions::{ExpandableSegments, Hip, Npu, SplitSize, Xpu};
        use GrowthPattern::{Accelerating, Cache, InPhases, NotPyTorch, Steady, Steps, Tensors};
        use Shortage::{
            Absurd, Fragmentation, Full, Limit, OutsidePytorch, Refused, Retried, SomeoneElse,
            TooBig, Unsaid,
        };
        let all = [
            TooBig,
            Full,
            Fragmentation,
            OutsidePytorch,
            SomeoneElse,
            Limit,
            Refused,
            Retried,
            Absurd,
            Unsaid,
        ];
        let mut given = on_shortage(&all, ExpandableSegments, true);
        for options in [SplitSize, AllocatorOptions::None, Hip, Xpu, Npu] {
            given.extend(on_shortage(&[Fragmentation], options, true));
        }
        given.extend(on_growth(&[
            Steady,
            Steps,
            Accelerating,
            InPhases,
            Tensors,
            Cache,
            NotPyTorch,
        ]));
        let unused: Vec<_> = ALL
            .iter()
            .filter(|advice| !given.contains(advice))
            .map(|advice| advice.name)
            .collect();
        assert!(unused.is_empty(), "{unused:?}");
    }
}
