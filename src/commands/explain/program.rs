//! The program that a log shows: the one whose options help against the shortage.

/// A program or library that plans the GPU's memory, or starts the programs that do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    Vllm,
    Sglang,
    ComfyUi,
    /// AUTOMATIC1111's web UI for Stable Diffusion, and its forks.
    WebUi,
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
            Self::DeepSpeed => &["program-deepspeed"],
            Self::Lightning => &["program-lightning"],
            Self::Transformers => &["program-transformers"],
            Self::Accelerate | Self::Ray => &[],
        }
    }

    /// Whether the program may train a model. The others only run one.
    pub(super) fn may_train(self) -> bool {
        !matches!(self, Self::Vllm | Self::Sglang | Self::ComfyUi | Self::WebUi)
    }

    /// Returns the only program that has an error of this cause.
    fn of_cause(cause: &str) -> Option<Self> {
        match cause {
            "vllm_startup_memory" | "vllm_no_cache_blocks" | "vllm_cache_too_small" => Some(Self::Vllm),
            "sglang_memory" => Some(Self::Sglang),
            "batch_size_search" => Some(Self::Accelerate),
            "ray_memory_monitor" => Some(Self::Ray),
            _ => None,
        }
    }
}

/// The programs, those whose options decide on the memory first, with the texts by which a log shows them.
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
    (Program::Sglang, &["/sglang/", "sglang::", "sglang.srt", "sglang.launch_server"]),
    (Program::ComfyUi, &["ComfyUI", "comfyUI", "/comfyui/", "/comfy/", "\\comfy\\"]),
    (Program::WebUi, &["stable-diffusion-webui"]),
    (Program::DeepSpeed, &["/deepspeed/", "[deepspeed]", "\\deepspeed\\", "[launch.py:", "DeepSpeedEngine"]),
    (
        Program::Lightning,
        &["/pytorch_lightning/", "/lightning/pytorch/", "/lightning/fabric/", "\\pytorch_lightning\\"],
    ),
    (Program::Transformers, &["/transformers/", "\\transformers\\"]),
    (Program::Accelerate, &["/accelerate/", "\\accelerate\\"]),
    (Program::Ray, &["/ray/_private/", "ray.exceptions.", "(raylet)", "ray::", "/ray/worker.py"]),
];

/// Returns the program of the log whose options decide on the memory.
pub(super) fn decisive(programs: &[Program], causes: &[&str]) -> Option<Program> {
    let is_shown = |program: &Program| programs.contains(program);
    let is_implied = |program: &Program| causes.iter().any(|cause| Program::of_cause(cause) == Some(*program));
    PROGRAMS.iter().map(|(program, _)| *program).find(|program| is_shown(program) || is_implied(program))
}
