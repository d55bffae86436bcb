//! The program that a log shows: the one whose options help against the shortage.

use regex::bytes::Regex;

use super::log_pattern;

/// A program or library that plans the GPU's memory, or starts the programs that do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    Vllm,
    Sglang,
    ComfyUi,
    /// AUTOMATIC1111's web UI for Stable Diffusion, and its forks.
    WebUi,
    /// llama.cpp, and programs that are built on it.
    LlamaCpp,
    DeepSpeed,
    Lightning,
    Transformers,
    Accelerate,
    Ray,
}

impl Program {
    /// The name in JSON; never changes.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::ComfyUi => "comfyui",
            Self::WebUi => "stable_diffusion_webui",
            Self::LlamaCpp => "llama_cpp",
            Self::DeepSpeed => "deepspeed",
            Self::Lightning => "lightning",
            Self::Transformers => "transformers",
            Self::Accelerate => "accelerate",
            Self::Ray => "ray",
        }
    }
}

impl Program {
    /// The advice on a GPU that this program's options help to leave room on.
    pub(super) fn advice(self) -> &'static [&'static str] {
        match self {
            Self::Vllm => &["program-vllm"],
            Self::Sglang => &["sglang-memory"],
            Self::ComfyUi => &["program-comfyui"],
            Self::WebUi => &["program-webui"],
            Self::LlamaCpp => &["llama-cpp"],
            Self::DeepSpeed => &["program-deepspeed"],
            Self::Lightning => &["program-lightning"],
            Self::Transformers => &["program-transformers"],
            Self::Accelerate | Self::Ray => &[],
        }
    }

    /// Whether the program may train a model. The others only run one.
    pub(super) fn may_train(self) -> bool {
        !matches!(
            self,
            Self::Vllm | Self::Sglang | Self::ComfyUi | Self::WebUi | Self::LlamaCpp
        )
    }

    /// Returns the only program that has an error of this cause.
    fn of_cause(cause: &str) -> Option<Self> {
        match cause {
            "vllm_startup_memory" | "vllm_no_cache_blocks" | "vllm_cache_too_small" => {
                Some(Self::Vllm)
            }
            "sglang_memory" => Some(Self::Sglang),
            "llama_cpp" | "ollama" => Some(Self::LlamaCpp),
            "batch_size_search" => Some(Self::Accelerate),
            "ray_memory_monitor" => Some(Self::Ray),
            _ => None,
        }
    }
}

/// The programs, those whose options decide on the memory first, with the texts by which a log
/// shows them.
pub(super) const PROGRAMS: &[(Program, &[&str])] = &[
    (
        Program::Vllm,
        &[
            "/vllm/",
            "\\vllm\\",
            "VLLM::",
            "(EngineCore",
            "(VllmWorker",
            "vllm.v1",
            "vllm.engine",
            "vLLM API server",
            "vLLM worker",
        ],
    ),
    (
        Program::Sglang,
        &["/sglang/", "sglang::", "sglang.srt", "sglang.launch_server"],
    ),
    (
        Program::ComfyUi,
        &["ComfyUI", "comfyUI", "/comfyui/", "/comfy/", "\\comfy\\"],
    ),
    (Program::WebUi, &["stable-diffusion-webui"]),
    (
        Program::LlamaCpp,
        &[
            "ggml-cuda",
            "ggml_cuda",
            "llama_model_load",
            "llama_context:",
        ],
    ),
    (
        Program::DeepSpeed,
        &[
            "/deepspeed/",
            "[deepspeed]",
            "\\deepspeed\\",
            "[launch.py:",
            "DeepSpeedEngine",
        ],
    ),
    (
        Program::Lightning,
        &[
            "/pytorch_lightning/",
            "/lightning/pytorch/",
            "/lightning/fabric/",
            "\\pytorch_lightning\\",
        ],
    ),
    (
        Program::Transformers,
        &["/transformers/", "\\transformers\\"],
    ),
    (Program::Accelerate, &["/accelerate/", "\\accelerate\\"]),
    (
        Program::Ray,
        &[
            "/ray/_private/",
            "ray.exceptions.",
            "(raylet)",
            "ray::",
            "/ray/worker.py",
        ],
    ),
];

/// Finds the programs that the lines of a log show.
#[derive(Debug)]
pub(super) struct ProgramFinder {
    pub found: Vec<Program>,
    /// The texts of the other programs. A log is full of the texts of its own program, so those are
    /// searched for once.
    other_texts: Regex,
}

impl Default for ProgramFinder {
    fn default() -> Self {
        Self {
            found: vec![],
            other_texts: texts_except(&[]),
        }
    }
}

impl ProgramFinder {
    pub(super) fn scan(&mut self, lines: &[u8]) {
        let mut start = 0;
        while let Some(text) = self.other_texts.find_at(lines, start) {
            let has_text = |texts: &[&str]| {
                texts
                    .iter()
                    .any(|known| known.as_bytes() == text.as_bytes())
            };
            self.found.extend(
                PROGRAMS
                    .iter()
                    .find(|(_, texts)| has_text(texts))
                    .map(|(program, _)| *program),
            );
            // The text of another program may begin inside of this one.
            start = text.start() + 1;
            self.other_texts = texts_except(&self.found);
        }
    }
}

/// Returns a pattern for the texts of all programs but these. It matches nothing when these are
/// all.
fn texts_except(found: &[Program]) -> Regex {
    let others = PROGRAMS
        .iter()
        .filter(|(program, _)| !found.contains(program));
    let texts: Vec<String> = others
        .flat_map(|(_, texts)| texts.iter().map(|text| regex::escape(text)))
        .collect();
    let nothing = r"[^\s\S]";
    log_pattern(&if texts.is_empty() {
        nothing.to_owned()
    } else {
        texts.join("|")
    })
}

/// Returns the program of the log whose options decide on the memory.
pub(super) fn deciding_program(programs: &[Program], causes: &[&str]) -> Option<Program> {
    let is_shown = |program: &Program| programs.contains(program);
    let is_implied = |program: &Program| {
        causes
            .iter()
            .any(|cause| Program::of_cause(cause) == Some(*program))
    };
    PROGRAMS
        .iter()
        .map(|(program, _)| *program)
        .find(|program| is_shown(program) || is_implied(program))
}
