//! Errors of frameworks other than PyTorch's CUDA backend.

use super::{KnownError, anywhere, form};

const TENSORRT: &str = "TensorRT got no GPU memory for a layer, its workspace or the engine.";

pub(super) const ERRORS: &[KnownError] = &[
    KnownError {
        cause: "mps",
        title: "MPS (the GPU of a Mac) is out of memory",
        forms: &[
            form(
                "MPS backend out of memory",
                r"MPS backend out of memory \(MPS allocated: (?P<own>[\d.]+ \w+), other allocations: (?P<others>[\d.]+ \w+), max allowed: (?P<limit>[\d.]+ \w+)\)\. Tried to allocate (?P<asked>[\d.]+ \w+)",
                "PyTorch holds {own} and other programs or libraries {others} of the memory that the Mac's GPU shares with the host; \
             {asked} more would pass the limit of {limit}.",
            ),
            form(
                "Invalid buffer size",
                r"Invalid buffer size: (?P<size>[\d.]+ \w+)",
                "PyTorch asked the Mac's GPU for one tensor of {size}, which is more than its memory, or than one buffer may have.",
            ),
        ],
        advice: &["mps"],
        follows: &[],
        absorbs: &[],
    },
    KnownError {
        cause: "onnx_runtime",
        title: "ONNX Runtime is out of GPU memory",
        forms: &[
            anywhere(
                "onnxruntime::BFCArena",
                r"BFCArena::\w+.*Failed to allocate memory for requested buffer of size (?P<bytes>\d+)",
                "ONNX Runtime's arena could not grow by {bytes}.",
            ),
            anywhere(
                "BFCArena",
                r"BFCArena::\w+.*Available memory of (?P<free>\d+) is smaller than requested bytes of (?P<bytes>\d+)",
                "ONNX Runtime's arena may not grow by {bytes}: its limit leaves {free} bytes.",
            ),
            anywhere(
                "AllocateRawInternal",
                r"AllocateRawInternal Available memory of (?P<free>\d+) is smaller than requested bytes of (?P<bytes>\d+)",
                "ONNX Runtime's arena may not grow by {bytes}: its limit leaves {free} bytes.",
            ),
            anywhere(
                "onnxruntime",
                r"onnxruntime.*(?:CUDA failure 2: out of memory|CUDA error cudaErrorMemoryAllocation|cudaErrorMemoryAllocation: ?out of memory|Failed to allocate memory)",
                "ONNX Runtime got no GPU memory from the driver.",
            ),
            anywhere(
                "bad allocation",
                r"onnxruntime.*bad allocation",
                "ONNX Runtime got no memory from the host.",
            ),
        ],
        advice: &["onnx-runtime"],
        follows: &[],
        absorbs: &["cuda_out_of_memory"],
    },
    KnownError {
        cause: "rmm",
        title: "RAPIDS (RMM) is out of GPU memory",
        forms: &[
            form(
                "std::bad_alloc",
                r"std::bad_alloc: (?:out_of_memory: )?CUDA error \(failed to allocate (?P<bytes>\d+) bytes\)",
                "RMM, which allocates GPU memory for cuDF, cuML and other libraries of RAPIDS, asked the driver for {bytes}, and the GPU \
                 had no room. This is the GPU's memory, not the host's.",
            ),
            form(
                "std::bad_alloc",
                r"std::bad_alloc: (?:out_of_memory: )?(?:CUDA error|RMM failure|.*rmm/)",
                "RMM, which allocates GPU memory for cuDF, cuML and other libraries of RAPIDS, got no memory from the driver. This is the \
                 GPU's memory, not the host's.",
            ),
        ],
        advice: &["rmm"],
        follows: &[],
        absorbs: &["cuda_out_of_memory", "host_allocator"],
    },
    KnownError {
        cause: "paddle",
        title: "PaddlePaddle is out of GPU memory",
        forms: &[anywhere(
            "ut of memory error on GPU",
            r"Out of memory error on GPU (?P<gpu>\d+)\. Cannot allocate (?P<asked>[\d.]+\w+) memory on GPU \d+, (?P<held>[\d.]+\w+) memory has been allocated and available memory is only (?P<free>[\d.]+\w+)",
            "PaddlePaddle asked GPU {gpu} for {asked} more. {held} of it were in use, and {free} free.",
        )],
        advice: &["driver-out-of-memory"],
        follows: &[],
        absorbs: &["cuda_out_of_memory"],
    },
    KnownError {
        cause: "cuda_jl",
        title: "CUDA.jl (Julia) is out of GPU memory",
        forms: &[form(
            "ut of GPU memory trying to allocate",
            r"Out of GPU memory trying to allocate (?P<size>[\d.]+ \w+)",
            "Julia asked for {size} of GPU memory, and got none.",
        )],
        advice: &["cuda-jl"],
        follows: &[],
        absorbs: &["cuda_out_of_memory"],
    },
    KnownError {
        cause: "gaudi",
        title: "A Gaudi accelerator (HPU) is out of memory",
        forms: &[anywhere(
            "MODULE:PT_DEVMEM",
            r"MODULE:PT_DEVMEM Allocation failed for size::(?P<bytes>\d+)",
            "PyTorch asked the accelerator for {bytes}, and it had no room.",
        )],
        advice: &["gaudi"],
        follows: &[],
        absorbs: &[],
    },
    KnownError {
        cause: "metal",
        title: "The GPU of a Mac is out of memory (Metal)",
        forms: &[
            anywhere(
                "kIOGPUCommandBufferCallbackErrorOutOfMemory",
                r"Insufficient Memory \(\d+:kIOGPUCommandBufferCallbackErrorOutOfMemory\)",
                "The Mac's GPU shares the memory of the host, and a command of the program did not fit into it.",
            ),
            form(
                "[metal::malloc]",
                r"\[metal::malloc\] Attempting to allocate (?P<bytes_asked>\d+) bytes which is greater than the maximum allowed buffer size of (?P<bytes_limit>\d+)",
                "The program asked the Mac's GPU for one buffer of {bytes_asked}, and a buffer may have at most {bytes_limit}: most often a \
                 context or a prompt that is too long.",
            ),
        ],
        advice: &["metal"],
        follows: &[],
        absorbs: &[],
    },
    KnownError {
        cause: "tensorrt_llm",
        title: "TensorRT-LLM has too little GPU memory for its executor",
        forms: &[anywhere(
            "insufficient GPU memory",
            r"Executor creation failed due to insufficient GPU memory",
            "TensorRT-LLM loaded the model, and what it makes next did not fit beside it. Most often that is the KV cache; the lines below \
             the error name the part and the memory that was free.",
        )],
        advice: &["tensorrt-llm"],
        follows: &[],
        absorbs: &[],
    },
    KnownError {
        cause: "tensorrt",
        title: "TensorRT is out of GPU memory",
        forms: &[
            anywhere(
                "Error Code 2: OutOfMemory",
                r"Error Code 2: OutOfMemory",
                TENSORRT,
            ),
            anywhere(
                "(out of memory)",
                r"(?:Error Code 1: Cuda Runtime|[Cc]uda [Ee]rror in \S+: \d+|Cuda Runtime) \(out of memory\)",
                TENSORRT,
            ),
            anywhere(
                "could not be allocated",
                r"Requested amount of (?:GPU )?memory \((?P<bytes>\d+) bytes\) could not be allocated",
                "TensorRT asked for {bytes} of GPU memory for a layer, its workspace or the engine, and got none.",
            ),
            anywhere(
                "OutOfMemory Error in",
                r"OutOfMemory Error in \w+",
                TENSORRT,
            ),
            anywhere(
                "OutOfMemory",
                r"(?:TRT|TensorRT)\S* .*(?:OutOfMemory|OUT_OF_MEMORY)",
                TENSORRT,
            ),
        ],
        advice: &["tensorrt"],
        follows: &[],
        absorbs: &["cuda_out_of_memory"],
    },
    KnownError {
        cause: "tensorflow",
        title: "TensorFlow is out of GPU memory",
        forms: &[
            anywhere(
                "OOM when allocating tensor",
                r"OOM when allocating tensor (?:with|of) shape ?(?P<shape>\[[\d,]*\]) and type (?P<type>\w+)",
                "TensorFlow asked for a tensor of shape {shape} ({type}), and its share of the GPU is full.",
            ),
            anywhere(
                "bfc_allocator",
                r"(?:tensorflow|local_xla|local_tsl)/\S*bfc_allocator\.cc:\d+\] (?:Allocator \((?P<name>[^)]*)\) ran out of memory trying to allocate (?P<size>[\d.]+ ?\w+))",
                "TensorFlow's allocator {name} asked for {size}, and its share of the GPU is full.",
            ),
            anywhere(
                "failed to allocate",
                r"failed to allocate (?P<size>[\d.]+ ?\w+) \(\d+ bytes\) from device: CUDA_ERROR_OUT_OF_MEMORY",
                "TensorFlow asked the driver for {size} at once, which is more than was free on the GPU.",
            ),
            form(
                "Dst tensor is not initialized",
                r"(?:[\w.]*InternalError: |Internal: )?Dst tensor is not initialized",
                "TensorFlow had no GPU memory to copy a tensor to: this is how it reports a full GPU here.",
            ),
            anywhere(
                "failed to alloc",
                r"failed to alloc(?:ate)? \d+ bytes unified memory: CUDA_ERROR_OUT_OF_MEMORY",
                "TensorFlow got no memory from the driver.",
            ),
        ],
        advice: &["tensorflow"],
        follows: &[],
        absorbs: &["cuda_out_of_memory", "xla"],
    },
    KnownError {
        cause: "xla",
        title: "XLA (JAX) is out of memory on a TPU",
        forms: &[
            form(
                "Attempting to reserve",
                r"RESOURCE_EXHAUSTED: Attempting to reserve (?P<asked>[\d.]+\w) at the bottom of memory.*There are (?P<free>[\d.]+\w) free",
                "The program that XLA compiled asked for {asked} of the TPU's memory at once, and {free} were free.",
            ),
            anywhere(
                "Ran out of memory in memory space",
                r"Ran out of memory in memory space (?P<space>hbm)",
                "The program that XLA compiled needs more of the TPU's main memory ({space}) than the TPU has: it would not fit on an \
                 empty one.",
            ),
            anywhere(
                "Ran out of memory in memory space",
                r"Ran out of memory in memory space (?P<space>\w+)",
                "A kernel of the program needs more of the TPU's memory on the chip ({space}) than there is. This is not the main \
                 memory of the TPU: a smaller batch may not help.",
            ),
        ],
        advice: &["xla-tpu"],
        follows: &[],
        absorbs: &[],
    },
    KnownError {
        cause: "xla",
        title: "XLA (JAX) is out of memory",
        forms: &[
            form(
                "ESOURCE_EXHAUSTED",
                r"RESOURCE_EXHAUSTED: (?:.*?)?(?:[Oo]ut of memory|OOM|[Ff]ailed to allocate|Allocation type|Attempting to allocate|Ran out of memory)(?:.*?(?P<bytes>\d{4,}) ?(?:bytes|B\b))?",
                "XLA, which compiles and runs JAX programs, could not get memory on the GPU or TPU. A JAX program takes three quarters of \
                 the GPU at its start, and this request did not fit into them.",
            ),
            form(
                "Resource exhausted: Out of memory",
                r"Resource exhausted: Out of memory",
                "XLA, which compiles and runs JAX programs, could not get memory on the GPU or TPU.",
            ),
            anywhere(
                "bfc_allocator",
                r"external/xla/\S*bfc_allocator\.cc:\d+\] Allocator \((?P<name>[^)]*)\) ran out of memory trying to allocate (?P<size>[\d.]+ ?\w+)",
                "XLA, which compiles and runs JAX programs, asked for {size}, and its share of the GPU is full. A JAX program takes three \
                 quarters of the GPU at its start.",
            ),
        ],
        advice: &["xla"],
        follows: &[],
        absorbs: &["cuda_out_of_memory"],
    },
    KnownError {
        cause: "cupy",
        title: "CuPy is out of GPU memory",
        forms: &[
            anywhere(
                "cudaErrorMemoryAllocation",
                r"cupy\S*CUDARuntimeError: cudaErrorMemoryAllocation",
                "CuPy got no memory from the driver.",
            ),
            form(
                "ut of memory ",
                r"[Oo]ut of memory (?:to allocate|allocating) (?P<bytes>[\d,]+) bytes \((?:total|allocated so far:?) (?P<held>[\d,]+) bytes(?:, limit set to: (?P<limit>[\d,]+) bytes)?\)",
                "CuPy asked for {bytes} more while its memory pool held {held}.",
            ),
        ],
        advice: &["cupy"],
        follows: &[],
        absorbs: &["cuda_out_of_memory"],
    },
    KnownError {
        cause: "ollama",
        title: "Ollama's model does not fit",
        forms: &[
            anywhere(
                "ollama[",
                r"ollama\[\d+\]: .*cudaMalloc failed: out of memory",
                "Ollama loads a model with llama.cpp, and a part of it did not fit on the GPU.",
            ),
            anywhere(
                "llama runner",
                r"llama runner (?:process has terminated|exited)[:,] .*(?:out of memory|enough available memory|signal: killed|exit status 2)",
                "Ollama started a process for the model, which ran out of memory: the model, its context and the requests in parallel do not fit.",
            ),
            anywhere(
                "requires more system memory",
                r"model requires more system memory \((?P<wanted>[\d.]+ \w+)\) than is available \((?P<free>[\d.]+ \w+)\)",
                "The model needs {wanted} of the host's memory, and {free} are available.",
            ),
        ],
        advice: &["ollama"],
        follows: &[],
        absorbs: &["cuda_out_of_memory", "llama_cpp"],
    },
    KnownError {
        cause: "llama_cpp",
        title: "llama.cpp is out of GPU memory",
        forms: &[
            anywhere(
                "cudaMalloc failed: out of memory",
                r"(?:ggml\w*|alloc_buffer): allocating (?P<size>[\d.]+ \w+) on device (?P<gpu>\d+): cudaMalloc failed: out of memory",
                "llama.cpp asked GPU {gpu} for {size} (layers, KV cache or compute buffers), and it was not free.",
            ),
            anywhere(
                "failed to allocate",
                r"(?:alloc_tensor_range|ggml_gallocr_reserve_n\w*|ggml_\w+): failed to allocate (?P<device>\w+) buffer of size (?P<bytes>\d+)",
                "llama.cpp asked {device} for {bytes}, and it was not free.",
            ),
            anywhere(
                "unable to allocate",
                r"(?:llama|error loading model).*unable to allocate (?P<device>\w+) buffer",
                "llama.cpp asked {device} for memory, and it was not free.",
            ),
            anywhere(
                "CUDA error 2",
                r"CUDA error 2 at \S*ggml\S*: out of memory",
                "llama.cpp got no memory from the driver.",
            ),
            anywhere(
                "failed to allocate ",
                r"(?P<vague>\w+): (?:failed to initialize the context: )?failed to allocate (?:compute buffers|buffer for kv cache)",
                "llama.cpp had no room for its KV cache or its compute buffers beside the model.",
            ),
            anywhere(
                "ggml_vulkan",
                r"ggml_vulkan: (?:Device memory allocation of size (?P<bytes>\d+) failed|.*ErrorOutOfDeviceMemory)",
                "llama.cpp got no memory from the GPU.",
            ),
        ],
        advice: &["llama-cpp"],
        follows: &[],
        absorbs: &["cuda_out_of_memory"],
    },
];
