//! The program that a log shows: the one whose options help against the shortage.

/// A program or library that plans the GPU's memory, or starts the programs that do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    Vllm,
    Sglang,
    ComfyUi,
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
            Self::DeepSpeed => "deepspeed",
            Self::Lightning => "lightning",
            Self::Transformers => "transformers",
            Self::Accelerate => "accelerate",
            Self::Ray => "ray",
        }
    }
}

/// The programs, those whose options decide on the memory first, with the texts by which a log shows them.
pub(super) const PROGRAMS: &[(Program, &[&str])] = &[
    (
        Program::Vllm,
        &["/vllm/", "\\vllm\\", "VLLM::", "(EngineCore", "(VllmWorker", "vllm.v1", "vllm.engine", "vLLM API server"],
    ),
    (Program::Sglang, &["/sglang/", "sglang::", "sglang.srt", "sglang.launch_server"]),
    (Program::ComfyUi, &["ComfyUI", "comfyUI", "/comfyui/", "/comfy/", "\\comfy\\"]),
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
pub(super) fn decisive(programs: &[Program]) -> Option<Program> {
    PROGRAMS.iter().map(|(program, _)| *program).find(|program| programs.contains(program))
}
