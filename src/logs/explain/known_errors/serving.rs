//! Errors of programs that plan the GPU's memory themselves: `vLLM`, `SGLang`, `accelerate`.

use super::{KnownError, anywhere, form};

pub(super) const ERRORS: &[KnownError] = &[
    KnownError {
        cause: "vllm_warmup_memory",
        title: "vLLM ran out of GPU memory while it tried its sampler",
        forms: &[form(
            "out of memory occurred when warming up sampler",
            r"CUDA out of memory occurred when warming up sampler with (?P<requests>\d+) dummy requests",
            "Before it serves, vLLM samples for {requests} requests at once, as many as it may have. Their logits need memory beside the \
             model and the KV cache, and did not fit.",
        )],
        advice: &["vllm-warmup"],
        follows: &["pytorch"],
        absorbs: &[],
    },
    KnownError {
        cause: "vllm_wake_up",
        title: "vLLM could not take its GPU memory",
        forms: &[form(
            "cumem_allocator",
            r"CUDA Error: out of memory at \S*cumem_allocator",
            "vLLM's allocator for the sleep mode asked the driver for memory: at its start, or when it woke up. It was not free; while \
             vLLM sleeps, other programs (a trainer, for instance) may take the memory that it gave back.",
        )],
        advice: &["driver-out-of-memory"],
        follows: &[],
        absorbs: &["cuda_out_of_memory"],
    },
    KnownError {
        cause: "vllm_startup_memory",
        title: "vLLM found less free GPU memory than it was told to use",
        forms: &[
            anywhere(
                "is less than desired GPU memory utilization",
                r"Free memory on device (?:(?P<gpu>\S+) )?\((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\) on startup is less than desired GPU memory utilization \((?P<share>[\d.]+), (?P<wanted>[\d.]+) GiB\)",
                "vLLM wants {wanted} GiB of the GPU ({share} of {total} GiB), and only {free} GiB were free when it started: \
                 another process, or an earlier vLLM that still runs, holds the rest.",
            ),
            anywhere(
                "Error in memory profiling",
                r"Error in memory profiling\. Initial free memory",
                "vLLM measures how much memory it needs, and another process took or freed GPU memory meanwhile.",
            ),
        ],
        advice: &["vllm-startup"],
        follows: &[],
        absorbs: &[],
    },
    KnownError {
        cause: "vllm_no_cache_blocks",
        title: "vLLM has no memory left for the KV cache",
        forms: &[form(
            "No available memory for the cache blocks",
            r"No available memory for the cache blocks",
            "The model and its activations fill the share of the GPU that vLLM may use, so nothing is left for the KV cache, \
             without which it cannot serve.",
        )],
        advice: &["vllm-cache"],
        follows: &["pytorch"],
        absorbs: &[],
    },
    KnownError {
        cause: "vllm_cache_too_small",
        title: "vLLM's KV cache cannot hold one request of full length",
        forms: &[
            form(
                "is larger than the maximum number of tokens",
                r"The model's max seq len \((?P<length>\d+)\) is larger than the maximum number of tokens that can be stored in (?:the )?KV cache \((?P<tokens>\d+)\)",
                "A request may have {length} tokens (max_model_len), and the memory left for the KV cache holds {tokens}.",
            ),
            form(
                "KV cache is needed",
                r"To serve at least one request with the model\S* max(?:imum)? seq len \((?P<length>\d+)\), ?\(?(?P<needed>[\d.]+ GiB) KV cache is needed, which is larger than the available KV cache memory \((?P<left>[\d.]+ GiB)\).*?estimated maximum model length is (?P<tokens>\d+)",
                "A request may have {length} tokens (max_model_len), which needs {needed} of KV cache, and {left} are left for it. vLLM \
                 estimates that {tokens} tokens fit.",
            ),
            form(
                "KV cache is needed",
                r"To serve at least one request with the model\S* max(?:imum)? seq len \((?P<length>\d+)\), ?\(?(?P<needed>[\d.]+ GiB) KV cache is needed, which is larger than the available KV cache memory \((?P<left>[\d.]+ GiB)\)",
                "A request may have {length} tokens (max_model_len), which needs {needed} of KV cache, and {left} are left for it.",
            ),
        ],
        advice: &["vllm-cache"],
        follows: &["pytorch"],
        absorbs: &[],
    },
    KnownError {
        cause: "sglang_memory",
        title: "SGLang has no memory left for the KV cache",
        forms: &[
            form(
                "Not enough memory",
                r"Not enough memory[.;,] Please try (?:to increase|increasing|to decrease) -{0,2}mem[-_]fraction[-_]static",
                "After the model was loaded, nothing of the share that SGLang may use (mem_fraction_static) is left for the KV cache.",
            ),
            form(
                "out of memory. Try to lower your batch size",
                r"(?:Prefill|Decode) out of memory\. Try to lower your batch size",
                "SGLang's pool for the KV cache has no room for the requests of one batch.",
            ),
            anywhere(
                "alloc_req_slots runs out of memory",
                r"alloc_req_slots runs out of memory\. Please set a smaller number for .--max-running-requests",
                "SGLang accepted more requests than it has places for.",
            ),
            form(
                "The memory capacity is unbalanced",
                r"The memory capacity is unbalanced\. Some GPUs may be occupied by other processes",
                "SGLang needs about the same free memory on all its GPUs, and other processes hold memory on some of them.",
            ),
        ],
        advice: &["sglang-memory"],
        follows: &["pytorch"],
        absorbs: &[],
    },
    KnownError {
        cause: "sglang_memory",
        title: "SGLang ran out of GPU memory while it captured CUDA graphs",
        forms: &[form(
            "Capture cuda graph failed",
            r"Capture cuda graph failed:? CUDA error: out of memory",
            "CUDA graphs come on top of the share for model and KV cache (mem_fraction_static), and too little was left for them.",
        )],
        advice: &["sglang-memory"],
        follows: &["pytorch"],
        absorbs: &["cuda_out_of_memory"],
    },
    KnownError {
        cause: "batch_size_search",
        title: "Not even batch size 1 fits",
        forms: &[form(
            "No executable batch size found",
            r"No executable batch size found,? ?(?:reached zero)?",
            "accelerate halved the batch size after each out-of-memory error until it reached zero: the model, its gradients \
             and optimizer state fill the GPU without any batch, or the function fails with memory that earlier tries left behind.",
        )],
        advice: &["batch-size-search"],
        follows: &["pytorch"],
        absorbs: &[],
    },
];
